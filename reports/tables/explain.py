"""What explain found, as text for a terminal, as Markdown or as JSON; its words and tables are also those of the page and of the picture."""

from __future__ import annotations

from memprof.explain import records
from memprof.explain.records import (
    REST,
    SLICES,
    Explanation,
    Finding,
    Proposal,
    Verified,
)
from memprof.plain import plain
from memprof.runs.metrics import BYTES
from memprof.runs.records import PEAK
from memprof.runs.settings import written
from memprof.units import format_bytes, format_duration

from .. import soundness
from .grid import Section, Table, choose_unit, escaped, laid_out, markdown, number
from .shapes import shaped

_BAR = 46
_MOST_TENSORS = 12


def render(found: Explanation, form: str = "text") -> str:
    """The explanation as text, markdown or json. Raises InputError where its figures are none."""
    soundness.check(found, f"the explanation of {found.model.name}")
    if form == "json":
        return records.encode(found).decode().rstrip("\n")
    return _markdown(found) if form == "markdown" else _text(found)


# -- words


def title(found: Explanation) -> str:
    """What was looked at, in a line."""
    threads = f", {found.threads} thread{'s' if found.threads != 1 else ''}" if found.threads else ""
    knobs = f" with {', '.join(f'{name}={value}' for name, value in written(found.knobs).items())}" if found.knobs else ""
    return f"{found.model.name} in {found.runtime} {found.runtime_version}{knobs}{threads}{shaped(found.shapes, found.assumed)}"


def warned(found: Explanation) -> list[str]:
    return [f"warning: {warning}" for warning in found.warnings]


def lead(found: Explanation) -> str:
    peak = found.peak
    if peak is None:
        return "no phase was finished"
    weights = f"; the model has {format_bytes(found.weight_bytes)} of weights" if found.weight_bytes is not None else ""
    return f"{PEAK} {format_bytes(peak.rss_peak_bytes)}, in {peak.name}{weights}"


def where(name: str) -> str:
    phase, _, inside = name.partition("/")
    return f"near {phase}'s peak" if inside else f"at the end of {phase}"


def headline(finding: Finding) -> str:
    return f"{finding.title}: {format_bytes(finding.bytes)} {where(finding.phase)}"


def settings(proposal: Proposal) -> str:
    pairs = written(proposal.settings).items()
    return " ".join(f"--threads {value}" if name == "threads" else f"--set {name}={value}" for name, value in pairs)


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
        f"{name} {_latency(pair[0], spread and spread[0])} -> {_latency(pair[1], spread and spread[1])} ({pair[1] / pair[0] - 1:+.0%})"
        for name, pair, spread in (
            ("an iteration", done.iteration_ns, done.iteration_spread_ns),
            ("load and prepare", done.prepared_ns, done.prepared_spread_ns),
        )
        if pair and pair[0]
    ]
    runs = f"{done.repeats} run{'s' if done.repeats != 1 else ''} each"
    lines = [f"measured, {runs}: {_saved(done)}", ", ".join(part for part in sizes if part), f"latency: {', '.join(cost)}" if cost else ""]
    return [line for line in lines if line]


def _latency(ns: float, spread_ns: float | None) -> str:
    return format_duration(ns) + (f" ± {format_duration(spread_ns)}" if spread_ns else "")


def _saved(done: Verified) -> str:
    sizes = {"of PEAK": done.peak_bytes, "at the end": done.end_bytes}
    saved = [
        f"{format_bytes(before - after)} {what}"
        for what, pair in sizes.items()
        if pair
        for before, after in [pair]
        if before - after > 1 << 20
    ]
    if done.peak_raised and done.peak_bytes:
        saved.append(f"it raises PEAK by {format_bytes(done.peak_bytes[1] - done.peak_bytes[0])}")
        return f"{'it saves ' if len(saved) > 1 else ''}{', but '.join(saved)}"
    if not saved:
        return "it saves nothing"
    return f"it saves {' and '.join(saved)}{'' if done.beyond_noise else ' (not beyond noise, or too few runs to tell)'}"


def _change(what: str, pair: tuple[float, float] | None) -> str:
    return f"{what} {format_bytes(pair[0])} -> {format_bytes(pair[1])}" if pair else ""


def notes(found: Explanation) -> list[str]:
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
    heads = tuple(short(phase.name) for phase in found.phases)
    return Table(unit.caption("What the resident set consists of"), ("slice", *heads), tuple(tuple(row) for row in rows))


def short(name: str) -> str:
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
    heads = tuple(short(phase.name) for phase in looked)
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
        Table(f"Tensors held more than once {where(worst.name)}{more}", ("tensor", "shape", "type", "size", "copies"), rows, labels=1)
        if rows
        else None
    )


def hows(found: Explanation) -> list[str]:
    """How each slice was found, as the last phase has it, or the last that has such a slice."""
    hows = {one.name: one.how for phase in found.phases for one in phase.slices}
    return [f"{name}: {hows[name]}" for name in SLICES if name in hows]


# -- Markdown and text


def tables(found: Explanation) -> list[Table]:
    return [table for table in (_waterfall(found) if found.phases else None, _copies(found), _tensors(found)) if table is not None]


def _markdown(found: Explanation) -> str:
    say = escaped
    lines = [f"### {say(title(found))}", "", f"{say(lead(found))}.", "", *(f"**{say(text)}**\n" for text in warned(found))]
    if not found.findings:
        lines += ["Nothing was found that makes it larger than it must be.", ""]
    for place, finding in enumerate(found.findings, 1):
        lines.append(f"{place}. **{say(finding.title)}**: {format_bytes(finding.bytes)} {say(where(finding.phase))}")
        lines += [f"   - {say(text)}" for text in finding.evidence]
        for proposal in finding.proposals:
            knob = f"`{settings(proposal)}`: " if proposal.settings else ""
            lines.append(f"   - to do: {knob}{say(proposal.text)}")
            lines += [f"     - {say(said)}" for said in verdict(proposal, finding)]
    parts = ["\n".join(lines).rstrip(), markdown(Section("", tuple(tables(found)), tuple(notes(found))))]
    parts.append("How each slice was found:\n\n" + "\n".join(f"- {say(text)}" for text in hows(found)))
    return "\n\n".join(parts)


def _text(found: Explanation) -> str:
    say = plain
    lines = [say(title(found)), say(lead(found)), *(say(text) for text in warned(found)), ""]
    lines += ["Findings, the worst first" if found.findings else "Nothing was found that makes it larger than it must be."]
    for place, finding in enumerate(found.findings, 1):
        lines += ["", f"{place}. {say(headline(finding))}"]
        lines += [f"     {say(text)}" for text in finding.evidence]
        for proposal in finding.proposals:
            lines.append(f"   > {say(settings(proposal)) + ': ' if proposal.settings else ''}{say(proposal.text)}")
            lines += [f"       {say(said)}" for said in verdict(proposal, finding)]
    if found.phases:
        lines += ["", *_bars(found)]
    lines += ["", laid_out(Section("", tuple(tables(found)), tuple(notes(found))), say)]
    lines += ["", "How each slice was found:", *(f"- {say(text)}" for text in hows(found))]
    return "\n".join(lines)


def _bars(found: Explanation) -> list[str]:
    """The largest look as bars."""
    phase = max(found.phases, key=lambda one: one.rss_bytes)
    names = [one for one in phase.slices if one.bytes]
    widest = max((len(one.name) for one in names), default=0)
    lines = [f"The largest look, {where(phase.name)}: {format_bytes(phase.rss_bytes)}"]
    for one in names:
        share = min(max(one.bytes / phase.rss_bytes, 0), 1) if phase.rss_bytes else 0
        lines.append(f"  {one.name.ljust(widest)}  {format_bytes(one.bytes):>10}  {share:>4.0%}  {'█' * round(share * _BAR)}".rstrip())
    return lines
