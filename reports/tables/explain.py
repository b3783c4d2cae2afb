"""What explain found, as text for a terminal, Markdown, JSON, a picture of the waterfall of each phase, and a piece of the page."""

from __future__ import annotations

import html as escaping
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memprof.errors import InputError
from memprof.explain import records
from memprof.explain.records import (
    AGAIN,
    FILES,
    IN_USE,
    KEPT,
    LIBRARIES,
    MODEL_FILE,
    ONCE,
    REPACKED,
    REST,
    SLICES,
    STACKS,
    Explanation,
    Finding,
    Phase,
    Proposal,
    Verified,
)
from memprof.runs.metrics import BYTES
from memprof.runs.records import PEAK
from memprof.runs.settings import written
from memprof.units import format_bytes, format_duration

from ..pictures import style
from ..pictures.style import Entry, Fill, Sheet
from .grid import Section, Table, choose_unit, escaped, html, laid_out, markdown, number

_BAR = 46
_MOST_TENSORS = 12
# Okabe and Ito's colours; what is weight is of one family, what could go is hatched.
_FILLS = {
    LIBRARIES: Fill("#B8BEC6"),
    STACKS: Fill("#59626D"),
    ONCE: Fill("#0072B2"),
    MODEL_FILE: Fill("#56B4E9", "////", "#1F5A7D"),
    AGAIN: Fill("#D55E00", "\\\\\\\\", "#5A2700"),
    REPACKED: Fill("#E69F00", "xxxx", "#6B4A00"),
    IN_USE: Fill("#009E73"),
    KEPT: Fill("#CC79A7", "....", "#5C2C49"),
    FILES: Fill("#F0E442", "--", "#6B6400"),
    REST: Fill("#FFFFFF", "", "#555555"),
}
_TRANSIENT = Fill("#FFFFFF", "....", "#333333")


def render(found: Explanation, form: str = "text") -> str:
    """The explanation as text, markdown or json."""
    if form == "json":
        return records.encode(found).decode().rstrip("\n")
    return _markdown(found) if form == "markdown" else _text(found)


# -- words


def title(found: Explanation) -> str:
    """What was looked at, in a line."""
    threads = f", {found.threads} thread{'s' if found.threads != 1 else ''}" if found.threads else ""
    knobs = f" with {', '.join(f'{name}={value}' for name, value in written(found.knobs).items())}" if found.knobs else ""
    return f"{found.model.name} in {found.runtime} {found.runtime_version}{knobs}{threads}"


def _lead(found: Explanation) -> str:
    peak = found.peak
    if peak is None:
        return "no phase was finished"
    weights = f"; the model has {format_bytes(found.weight_bytes)} of weights" if found.weight_bytes is not None else ""
    return f"{PEAK} {format_bytes(peak.rss_peak_bytes)}, in {peak.name}{weights}"


def _place(name: str) -> str:
    phase, _, inside = name.partition("/")
    return f"near {phase}'s peak" if inside else f"at the end of {phase}"


def _headline(finding: Finding) -> str:
    return f"{finding.title}: {format_bytes(finding.bytes)} {_place(finding.phase)}"


def _settings(proposal: Proposal) -> str:
    return " ".join(f"--set {name}={value}" for name, value in written(proposal.settings).items())


def verdict(proposal: Proposal, finding: Finding) -> list[str]:
    """What a proposal was measured to do: what it saves, the sizes, and what it costs; nothing where it was not."""
    done = proposal.verified
    if done is None:
        return []
    if done.error is not None:
        return [f"measured: it does not run: {done.error}"]
    sizes = [_change("PEAK", done.peak_bytes)]
    phase, _, inside = finding.phase.partition("/")
    if done.phase_bytes and done.phase_bytes != done.end_bytes and done.phase_bytes != done.peak_bytes:
        sizes.append(_change(f"{'peak' if inside or finding.rule == 'transient' else 'end'} of {phase}", done.phase_bytes))
    sizes += [_change("RSS at the end", done.end_bytes), _change("of it anonymous", done.anon_bytes)]
    cost = [
        f"{name} {format_duration(pair[0])} -> {format_duration(pair[1])} ({pair[1] / pair[0] - 1:+.0%})"
        for name, pair in (("an iteration", done.iteration_ns), ("load and prepare", done.prepared_ns))
        if pair and pair[0]
    ]
    runs = f"{done.repeats} run{'s' if done.repeats != 1 else ''} each"
    lines = [f"measured, {runs}: {_saved(done)}", ", ".join(part for part in sizes if part), f"latency: {', '.join(cost)}" if cost else ""]
    return [line for line in lines if line]


def _saved(done: Verified) -> str:
    sizes = {"of PEAK": done.peak_bytes, "at the end": done.end_bytes}
    saved = [
        f"{format_bytes(before - after)} {what}"
        for what, pair in sizes.items()
        if pair
        for before, after in [pair]
        if before - after > 1 << 20
    ]
    if not saved:
        return "it saves nothing"
    return f"it saves {' and '.join(saved)}{'' if done.beyond_noise else ' (not beyond noise, or too few runs to tell)'}"


def _change(what: str, pair: tuple[float, float] | None) -> str:
    return f"{what} {format_bytes(pair[0])} -> {format_bytes(pair[1])}" if pair else ""


def _notes(found: Explanation) -> list[str]:
    notes = list(found.remarks)
    if found.counted_bytes is not None and found.weight_bytes:
        others = ", ".join(f"{format_bytes(size)} {why}" for why, size in found.not_counted.items())
        share = found.counted_bytes / found.weight_bytes
        notes.append(
            f"copies are counted of {found.counted_tensors} tensors, {share:.1%} of the weights' bytes{f'; not of {others}' if others else ''}"
        )
    notes.append(
        "weights beyond one copy: resident bytes of all copies of each tensor but one; in files, the kernel can drop them and read them again"
    )
    return notes


# -- tables


def _waterfall(found: Explanation) -> Table:
    largest = max(phase.rss_bytes for phase in found.phases)
    unit = choose_unit(BYTES, [largest])
    names = [name for name in SLICES if any(phase.size(name) for phase in found.phases) or name == REST]
    rows = [(name, *(_cell(phase.size(name), unit.size, largest) for phase in found.phases)) for name in names]
    rows.append(("RSS", *(number(phase.rss_bytes / unit.size) for phase in found.phases)))
    rows.append(("unexplained", *(f"{phase.unexplained:.1%}" for phase in found.phases)))
    transients = {one.name: one.transient_bytes for one in found.measured}
    rows.append(
        (
            "its peak above its end",
            *("" if "/" in phase.name else _cell(transients.get(phase.name, 0), unit.size, largest) for phase in found.phases),
        )
    )
    if any(phase.beyond_one_bytes is not None for phase in found.phases):
        beyond = (("-" if phase.beyond_one_bytes is None else _cell(phase.beyond_one_bytes, unit.size, largest)) for phase in found.phases)
        rows.append(("weights beyond one copy", *beyond))
        rows.append(("of these in files' clean pages", *(_cell(phase.droppable_bytes, unit.size, largest) for phase in found.phases)))
    heads = tuple(_short(phase.name) for phase in found.phases)
    return Table(unit.caption("What the resident set consists of"), ("slice", *heads), tuple(tuple(row) for row in rows))


def _short(name: str) -> str:
    phase, _, inside = name.partition("/")
    return f"{phase} peak" if inside else phase


def _cell(size: float, unit: float, largest: float) -> str:
    """A size with as many places as the largest of its table has."""
    return "0" if not size else number(size / unit, largest / unit)


def _copies(found: Explanation) -> Table | None:
    """How many copies there are in each phase, by layout and place."""
    kinds = list(dict.fromkeys((one.layout, one.converted, one.where, one.freed) for phase in found.phases for one in phase.held))
    if not kinds:
        return None
    largest = max(one.bytes for phase in found.phases for one in phase.held)
    unit = choose_unit(BYTES, [largest])
    looked = [phase for phase in found.phases if phase.beyond_one_bytes is not None]
    rows = []
    for layout, converted, where, freed in kinds:
        cells = []
        for phase in looked:
            mine = [one for one in phase.held if (one.layout, one.converted, one.where, one.freed) == (layout, converted, where, freed)]
            cells.append(f"{_cell(mine[0].bytes, unit.size, largest)} of {mine[0].copies}" if mine else "-")
        kind = f"{layout}{f' as {converted}' if converted else ''}"
        rows.append((kind, f"{where}{', freed' if freed else ''}", *cells))
    heads = tuple(_short(phase.name) for phase in looked)
    return Table(f"{unit.caption('Copies of weights')}, of so many tensors' copies", ("layout", "where", *heads), tuple(rows), labels=2)


def _tensors(found: Explanation) -> Table | None:
    """The tensors of which most is held beyond one copy, in the phase where that is largest."""
    looked = [phase for phase in found.phases if phase.beyond_one_bytes]
    if not looked:
        return None
    worst = max(looked, key=lambda phase: phase.beyond_one_bytes or 0)
    having = []
    for tensor in found.tensors:
        layouts = tensor.copies.get(worst.name, {})
        beyond = (sum(layouts.values()) - tensor.instances) * tensor.bytes
        if beyond > 0:
            having.append((beyond, tensor, layouts))
    having.sort(key=lambda one: -one[0])
    rows = tuple(
        (
            tensor.name,
            "x".join(map(str, tensor.shape)),
            tensor.dtype,
            format_bytes(tensor.bytes),
            ", ".join(f"{count} {name}" for name, count in layouts.items()),
        )
        for _, tensor, layouts in having[:_MOST_TENSORS]
    )
    more = f", the largest {_MOST_TENSORS} of {len(having)}" if len(having) > _MOST_TENSORS else ""
    return (
        Table(f"Tensors held more than once {_place(worst.name)}{more}", ("tensor", "shape", "type", "size", "copies"), rows, labels=1)
        if rows
        else None
    )


def _hows(found: Explanation) -> list[str]:
    """How each slice was found, as the last phase has it, or the last that has such a slice."""
    hows = {one.name: one.how for phase in found.phases for one in phase.slices}
    return [f"{name}: {hows[name]}" for name in SLICES if name in hows]


# -- Markdown and text


def _tables(found: Explanation) -> list[Table]:
    return [table for table in (_waterfall(found) if found.phases else None, _copies(found), _tensors(found)) if table is not None]


def _markdown(found: Explanation) -> str:
    say = escaped
    lines = [f"### {say(title(found))}", "", f"{say(_lead(found))}.", ""]
    if not found.findings:
        lines += ["Nothing was found that makes it larger than it must be.", ""]
    for place, finding in enumerate(found.findings, 1):
        lines.append(f"{place}. **{say(finding.title)}**: {format_bytes(finding.bytes)} {say(_place(finding.phase))}")
        lines += [f"   - {say(text)}" for text in finding.evidence]
        for proposal in finding.proposals:
            knob = f"`{_settings(proposal)}`: " if proposal.settings else ""
            lines.append(f"   - to do: {knob}{say(proposal.text)}")
            lines += [f"     - {say(said)}" for said in verdict(proposal, finding)]
    parts = ["\n".join(lines).rstrip(), markdown(Section("", tuple(_tables(found)), tuple(_notes(found))))]
    parts.append("How each slice was found:\n\n" + "\n".join(f"- {say(text)}" for text in _hows(found)))
    return "\n\n".join(parts)


def _text(found: Explanation) -> str:
    say = style.plain
    lines = [say(title(found)), say(_lead(found)), ""]
    lines += ["Findings, the worst first" if found.findings else "Nothing was found that makes it larger than it must be."]
    for place, finding in enumerate(found.findings, 1):
        lines += ["", f"{place}. {say(_headline(finding))}"]
        lines += [f"     {say(text)}" for text in finding.evidence]
        for proposal in finding.proposals:
            lines.append(f"   > {say(_settings(proposal)) + ': ' if proposal.settings else ''}{say(proposal.text)}")
            lines += [f"       {say(said)}" for said in verdict(proposal, finding)]
    if found.phases:
        lines += ["", *_bars(found)]
    lines += ["", laid_out(Section("", tuple(_tables(found)), tuple(_notes(found))), say)]
    lines += ["", "How each slice was found:", *(f"- {say(text)}" for text in _hows(found))]
    return "\n".join(lines)


def _bars(found: Explanation) -> list[str]:
    """The largest look as bars."""
    phase = max(found.phases, key=lambda one: one.rss_bytes)
    names = [one for one in phase.slices if one.bytes]
    widest = max((len(one.name) for one in names), default=0)
    lines = [f"The largest look, {_place(phase.name)}: {format_bytes(phase.rss_bytes)}"]
    for one in names:
        share = one.bytes / phase.rss_bytes if phase.rss_bytes else 0
        lines.append(f"  {one.name.ljust(widest)}  {format_bytes(one.bytes):>10}  {share:>4.0%}  {'█' * round(share * _BAR)}".rstrip())
    return lines


# -- the picture


def draw(found: Explanation) -> Figure:
    """The waterfall of each phase: a stacked bar a look, and above it how much higher the phase's peak was. Raises InputError."""
    if not found.phases:
        raise InputError("the child was never looked at, so there is no waterfall to draw")
    with style.look():
        return _drawn(found)


def _drawn(found: Explanation) -> Figure:
    names = [name for name in SLICES if any(phase.size(name) > 0.003 * phase.rss_bytes for phase in found.phases)]
    transients = {one.name: one.transient_bytes for one in found.measured}
    shown = any(transients.get(phase.name, 0) > 0.01 * phase.rss_bytes for phase in found.phases)
    legend = [Entry(name, fill=_FILLS[name]) for name in names]
    if shown:
        legend.append(Entry("its peak above its end", fill=_TRANSIENT))
    row, wide = 0.46, 10.0
    sheet = Sheet(
        f"What the resident set consists of: {title(found)}",
        _lead(found),
        len(found.phases) * row + 0.45,
        legend=legend,
        remarks=[f"{place}. {_headline(finding)}" for place, finding in enumerate(found.findings[:3], 1)],
        width=wide,
    )
    heads = [style.label(_short(phase.name), 1.7) for phase in found.phases]
    indent = max(style.width(head) for head in heads) + 0.3
    tops = [phase.rss_bytes + (0 if "/" in phase.name else transients.get(phase.name, 0)) for phase in found.phases]
    unit = choose_unit(BYTES, tops)
    axes = sheet.axes(indent, 0.05, wide - indent - 0.2, len(found.phases) * row)
    limit = max(tops) / unit.size / (1 - 0.62 / (wide - indent - 0.2))
    axes.set_xlim(0, limit)
    axes.set_ylim(len(found.phases) - 0.5, -0.5)
    axes.set_yticks(range(len(found.phases)), heads)
    axes.tick_params(axis="y", length=0, labelsize=style.BODY)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(axis="x")
    axes.set_xlabel(unit.caption("resident"), labelpad=2)
    for place, phase in enumerate(found.phases):
        _stack(axes, place, phase, names, unit.size, limit, 0 if "/" in phase.name else transients.get(phase.name, 0), wide - indent - 0.2)
    return sheet.figure


def _stack(axes, place: int, phase: Phase, names: Sequence[str], unit: float, limit: float, above: int, inches: float) -> None:  # type: ignore[no-untyped-def]
    left = 0.0
    for name in names:
        size = phase.size(name) / unit
        if size <= 0:
            continue
        axes.barh(place, size, 0.72, left=left, **_FILLS[name].words())
        text = number(size)
        if size / limit * inches > style.width(text, style.SMALL) + 0.1:
            axes.text(left + size / 2, place, text, ha="center", va="center", size=style.SMALL, bbox=style.backing())
        left += size
    if above > 0.01 * phase.rss_bytes:
        axes.barh(place, above / unit, 0.72, left=left, **{**_TRANSIENT.words(), "linestyle": "--"})
        left += above / unit
    total = number(phase.rss_bytes / unit) + (f" (peak {number(left)})" if above > 0.01 * phase.rss_bytes else "")
    fits = (limit - left) / limit * inches > style.width(total, style.SMALL, "bold") + 0.08
    side = {"ha": "left"} if fits else {"ha": "right", "bbox": style.backing()}
    axes.annotate(
        total, (left, place), (4 if fits else -4, 0), textcoords="offset points", va="center", size=style.SMALL, weight="bold", **side
    )


# -- the page


def page_piece(found: Explanation) -> str:
    """A section of the page, as HTML: the findings, the waterfall as bars, the tables. Nothing in it runs or is loaded."""
    say = escaping.escape
    parts = [f'<h3 class="name">{say(title(found))}</h3>', f"<p>{say(_lead(found))}.</p>"]
    if not found.findings:
        parts.append("<p>Nothing was found that makes it larger than it must be.</p>")
    else:
        parts.append('<ol class="explained">')
        for finding in found.findings:
            parts.append(
                f"<li><p><strong>{say(finding.title)}</strong>: {say(format_bytes(finding.bytes))} {say(_place(finding.phase))}</p><ul>"
            )
            parts += [f"<li>{say(text)}</li>" for text in finding.evidence]
            for proposal in finding.proposals:
                knob = f"<code>{say(_settings(proposal))}</code>: " if proposal.settings else ""
                said = [f"<br><span class=muted>{say(text)}</span>" for text in verdict(proposal, finding)]
                parts.append(f"<li>To do: {knob}{say(proposal.text)}{''.join(said)}</li>")
            parts.append("</ul></li>")
        parts.append("</ol>")
    parts.append(_page_bars(found))
    section = Section("", tuple(_tables(found)), tuple(_notes(found)))
    tables = html([section]).replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    parts.append(tables.replace("<ul>", '<ul class="notes">'))
    parts.append(
        f"<details><summary>How each slice was found</summary><ul>{''.join(f'<li>{say(text)}</li>' for text in _hows(found))}</ul></details>"
    )
    return "\n".join(parts)


def _page_bars(found: Explanation) -> str:
    """Stacked bars of plain elements, so that they follow the page's theme and need no script."""
    say = escaping.escape
    widest = max((phase.rss_bytes for phase in found.phases), default=0)
    if not widest:
        return ""
    names = [name for name in SLICES if any(phase.size(name) > 0.003 * phase.rss_bytes for phase in found.phases)]
    lines = ['<div class="waterfall" aria-hidden="true">']
    for phase in found.phases:
        pieces = "".join(_page_slice(name, phase.size(name), widest) for name in names if phase.size(name) > 0)
        lines.append(f"<div><span>{say(_short(phase.name))}</span><b>{pieces}</b><em>{say(format_bytes(phase.rss_bytes))}</em></div>")
    keys = "".join(f'<span><i style="background:{_FILLS[name].colour}"></i>{say(name)}</span>' for name in names)
    lines.append(f'<p class="keys">{keys}</p></div>')
    return "\n".join(lines)


def _page_slice(name: str, size: int, widest: int) -> str:
    words = escaping.escape(f"{name}: {format_bytes(size)}")
    return f'<i style="width:{size / widest:.3%};background:{_FILLS[name].colour}" title="{words}"></i>'
