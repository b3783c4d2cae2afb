"""An explanation as a section of the page."""

from __future__ import annotations

import html as escaping

from memprof.base.units import format_bytes
from memprof.explain.records import SLICES, Explanation

from .. import soundness
from ..tables.explain import FILLS, NOTHING, hows, lead, notes, settings, short, tables, title, verdict, warned, where
from ..tables.grid import Section, html


def page_piece(explanation: Explanation) -> str:
    """A section of the page, as HTML: the findings, the waterfall as bars, the tables. Nothing in it runs or is loaded.

    Raises InputError where its figures are none.
    """
    soundness.check(explanation, f"the explanation of {explanation.model.name}")
    say = escaping.escape
    parts = [f'<h3 class="name">{say(title(explanation))}</h3>', f"<p>{say(lead(explanation))}.</p>"]
    parts += [f"<p><strong>{say(text)}</strong></p>" for text in warned(explanation)]
    if not explanation.findings:
        parts.append(f"<p>{NOTHING}</p>")
    else:
        parts.append('<ol class="explained">')
        for finding in explanation.findings:
            parts.append(
                f"<li><p><strong>{say(finding.title)}</strong>: {say(format_bytes(finding.bytes))} {say(where(finding.phase))}</p><ul>"
            )
            parts += [f"<li>{say(text)}</li>" for text in finding.evidence]
            for proposal in finding.proposals:
                knob = f"<code>{say(settings(proposal))}</code>: " if proposal.settings else ""
                verdicts = [f"<br><span class=muted>{say(text)}</span>" for text in verdict(proposal, finding)]
                parts.append(f"<li>To do: {knob}{say(proposal.text)}{''.join(verdicts)}</li>")
            parts.append("</ul></li>")
        parts.append("</ol>")
    parts.append(_page_bars(explanation))
    section = Section("", tuple(tables(explanation)), tuple(notes(explanation)))
    body = html([section]).replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    parts.append(body.replace("<ul>", '<ul class="notes">'))
    parts.append(
        f"<details><summary>How each slice was found</summary><ul>{''.join(f'<li>{say(text)}</li>' for text in hows(explanation))}</ul></details>"
    )
    return "\n".join(parts)


def _page_bars(explanation: Explanation) -> str:
    """Stacked bars of plain elements, so that they follow the page's theme and need no script."""
    say = escaping.escape
    widest = max((phase.rss_bytes for phase in explanation.phases), default=0)
    if not widest:
        return ""
    names = [name for name in SLICES if any(phase.size(name) > 0.003 * phase.rss_bytes for phase in explanation.phases)]
    lines = ['<div class="waterfall" aria-hidden="true">']
    for phase in explanation.phases:
        pieces = "".join(_page_slice(name, phase.size(name), widest) for name in names if phase.size(name) > 0)
        lines.append(f"<div><span>{say(short(phase.name))}</span><b>{pieces}</b><em>{say(format_bytes(phase.rss_bytes))}</em></div>")
    keys = "".join(f'<span><i style="background:{FILLS[name].colour}"></i>{say(name)}</span>' for name in names)
    lines.append(f'<p class="keys">{keys}</p></div>')
    return "\n".join(lines)


def _page_slice(name: str, size: int, widest: int) -> str:
    words = escaping.escape(f"{name}: {format_bytes(size)}")
    return f'<i style="width:{size / widest:.3%};background:{FILLS[name].colour}" title="{words}"></i>'
