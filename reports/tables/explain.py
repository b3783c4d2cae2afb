"""An explanation as text for a terminal, as Markdown or as JSON. The page and the picture use its words and tables too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from memprof.base.terminal_text import plain
from memprof.base.units import counted, format_bytes, format_duration
from memprof.explain import records
from memprof.explain.records import (
    AGAIN,
    DEVICE,
    FILES,
    IN_USE,
    KEPT,
    LIBRARIES,
    MAPPED,
    MODEL_FILE,
    ONCE,
    REPACKED,
    REST,
    SEEN_SHARE,
    SLICES,
    STACKS,
    TRIED,
    Advice,
    Explanation,
    Finding,
    Held,
    PhaseLook,
    Verified,
    where,
)
from memprof.records.metrics import BYTES
from memprof.records.modes import middle
from memprof.records.settings import written
from memprof.records.summary import late_rise_words
from memprof.records.types import EXECUTE, PEAK
from memprof.verdicts.ranks import LEAST_REPEATS, bootstrap

from .. import modes, soundness
from ..fills import Fill
from ..ran import shaped
from .grid import Section, TextTable, choose_unit, escaped, laid_out, markdown, number
from .headline import in_program, measured, time_words

_BAR = 46
_MOST_TENSORS = 12
_RSS_PEAK = "rss_peak_bytes"
RANKED = "Proposals as measured, what saves the most PEAK first"
_INTERRUPTED = "--verify was interrupted before it measured the proposals together: they are not ranked."
NOT_MEASURED = "The proposals follow from rules, and none was measured: --verify measures and ranks them."
# The parts of a resident set. Weights are blue, orange or red; parts that could go are hatched.
FILLS = {
    LIBRARIES: Fill("#B8BEC6"),
    STACKS: Fill("#59626D"),
    ONCE: Fill("#0072B2"),
    MODEL_FILE: Fill("#56B4E9", "////", "#1F5A7D"),
    AGAIN: Fill("#D55E00", "\\\\\\\\", "#5A2700"),
    REPACKED: Fill("#E69F00", "xxxx", "#6B4A00"),
    IN_USE: Fill("#009E73"),
    KEPT: Fill("#CC79A7", "....", "#5C2C49"),
    FILES: Fill("#F0E442", "--", "#6B6400"),
    MAPPED: Fill("#8C6BB1"),
    REST: Fill("#FFFFFF", "", "#555555"),
    DEVICE: Fill("#FFFFFF", "||||", "#D55E00"),
}


def render(explanation: Explanation, form: str = "text") -> str:
    """The explanation as text, markdown or json. Raises InputError where its figures are none."""
    soundness.check(explanation, f"the explanation of {explanation.model.name}")
    if form == "json":
        return records.encode(explanation).decode().rstrip("\n")
    return _markdown(explanation) if form == "markdown" else _text(explanation)


# -- words


def title(explanation: Explanation) -> str:
    """The model and how it ran, in a line."""
    threads = f", {counted(explanation.threads, 'thread')}" if explanation.threads else ""
    knobs = f" with {', '.join(f'{name}={value}' for name, value in written(explanation.knobs).items())}" if explanation.knobs else ""
    shapes = shaped(explanation.shapes, explanation.assumed)
    runtime = f"{explanation.runtime} {explanation.runtime_version}".rstrip()
    what = runtime if explanation.model.name == runtime else f"{explanation.model.name} in {runtime}"
    return f"{what}{knobs}{threads}{shapes}"


def origin(explanation: Explanation) -> str:
    """With what and where it was measured, for a report that is pasted."""
    runtime = (explanation.runtime, explanation.runtime_version)
    return measured([runtime], [explanation.python_version], [(explanation.machine, explanation.machine_words)])


def warned(explanation: Explanation) -> list[str]:
    return [f"warning: {warning}" for warning in (*explanation.warnings, *_modes(explanation))]


def lead(explanation: Explanation) -> str:
    if explanation.peak is None:
        return "no phase was finished"
    weights = f"; the model has {format_bytes(explanation.weight_bytes)} of weights" if explanation.weight_bytes is not None else ""
    return f"{PEAK} {format_bytes(explanation.peak_bytes)}, in {explanation.peak_phases.names}{_iterations(explanation)}{weights}"


def _iterations(explanation: Explanation) -> str:
    """How often it ran: which phase has the PEAK depends on it."""
    if explanation.warmup is None or explanation.runs is None:
        return ""
    return f", with {counted(explanation.warmup, 'warm-up')} and {counted(explanation.runs, 'timed iteration')}"


def nothing(explanation: Explanation) -> str:
    """That explain found no cause; and of how much, where the looks missed a part of the PEAK."""
    looked, peak = explanation.looked_bytes, explanation.peak_bytes
    if looked < SEEN_SHARE * peak:
        return f"The looks saw at most {format_bytes(looked)} of {format_bytes(peak)}: what the rest consists of is not known."
    if explanation.phases and all(look.beyond_one_bytes is None for look in explanation.phases):
        why = "a note has the cause" if explanation.model.files else "name the model before --"
        return f"Nothing was found, but memprof did not look for copies of weights, which may make it larger than it must be: {why}."
    return "Nothing was found that makes it larger than it must be."


def headline(finding: Finding, bound_bytes: int) -> str:
    """A finding in a line. bound_bytes: see Explanation."""
    return f"{finding.title}: {amount(finding, bound_bytes)}"


def amount(finding: Finding, bound_bytes: int) -> str:
    """The figure beside the title of a finding: what its best proposal was measured to save of PEAK, else the bytes that were found."""
    best = finding.best(bound_bytes)
    if best is None or best.verified is None:
        return _found_bytes(finding)
    saved, _ = best.verified.saved_bytes(bound_bytes)
    return f"{settings(best.settings)} saves {format_bytes(saved)} of PEAK{_doubt(best.verified)}"


def evidence(finding: Finding, bound_bytes: int) -> list[str]:
    """The sentences below the title of a finding: with the bytes that were found, where its title has a saving."""
    in_title = finding.rule == TRIED or finding.best(bound_bytes) is None
    return [*([] if in_title else [f"found: {_found_bytes(finding)}"]), *finding.evidence]


def _found_bytes(finding: Finding) -> str:
    return f"{format_bytes(finding.bytes)} {where(finding.phase)}"


def settings(of: Mapping[str, str]) -> str:
    """Settings of a proposal, as the command line has them."""
    words = {"threads": "--threads {}", records.RUNTIME: "-r {}"}
    return " ".join(words.get(name, f"--set {name}={{}}").format(value) for name, value in written(of).items())


def details(proposal: Advice, finding: Finding, bound_bytes: int) -> list[str]:
    """The lines below a proposal: its measured effect, and the words that a program writes for it, unless it does not run. bound_bytes: see
    Explanation."""
    runs = proposal.verified is None or proposal.verified.error is None
    words = [f"in a program: {'; '.join(proposal.calls)}"] if proposal.calls and runs else []
    return [*verdict(proposal, finding, bound_bytes), *words]


def verdict(proposal: Advice, finding: Finding, bound_bytes: int) -> list[str]:
    """The measured effect of a proposal: savings, sizes and costs; nothing if it was not measured. bound_bytes: see Explanation."""
    done = proposal.verified
    if done is None:
        return []
    if done.error is not None:
        return [f"measured: it does not run: {done.error}"]
    sizes = [_peaks(done)]
    phase, _, inside = finding.phase.partition("/")
    if done.phase_bytes and done.phase_bytes != done.end_bytes and done.phase_bytes != done.peak_bytes:
        sizes.append(_change(f"{'peak' if inside else 'end'} of {phase}", done.phase_bytes))
    sizes += [_change("RSS at the end", done.end_bytes), _change("of it anonymous", done.anon_bytes)]
    cost = [
        f"{name} {_latency(pair[0], spread and spread[0])} -> {_latency(pair[1], spread and spread[1])} ({time_words(pair[1] / pair[0], verdict)})"
        for name, pair, spread, verdict in (
            ("an iteration", done.iteration_ns, done.iteration_spread_ns, done.iteration_verdict),
            ("load and prepare", done.prepared_ns, done.prepared_spread_ns, done.prepared_verdict),
        )
        if pair and pair[0]
    ]
    lines = [
        f"measured, {counted(done.repeats, 'run')} each: {_saved(done, bound_bytes)}",
        ", ".join(part for part in sizes if part),
        f"latency: {', '.join(cost)}" if cost else "",
        late_rise_words(done.late_rise_bytes, EXECUTE) if done.late_rise_bytes else "",
    ]
    return [line for line in lines if line]


def ranked(explanation: Explanation) -> list[str]:
    """The measured proposals, the best first, a line each; that none was measured, or not to the end, where there are some."""
    if explanation.ranked:
        return [f"{settings(proposal.settings)}: {_effect(proposal, explanation.peak_bound_bytes)}" for proposal in explanation.ranked]
    proposed = any(proposal.settings for finding in explanation.findings for proposal in finding.proposals)
    if not proposed:
        return []
    tried = any(finding.rule == records.TRIED for finding in explanation.findings)  # each setting once, before all proposals are measured
    return [_INTERRUPTED if tried else NOT_MEASURED]


def ranking(explanation: Explanation) -> str:
    """The heading of the measured proposals. Another runtime is another program, and ranked apart."""
    apart = any(records.RUNTIME in proposal.settings for proposal in explanation.ranked)
    return f"{RANKED}{'; another runtime stands behind all settings that save PEAK' if apart else ''}"


def _effect(proposal: Advice, bound_bytes: int) -> str:
    """What a proposal saves, and its price in time."""
    done = proposal.verified
    assert done is not None
    return "it does not run" if done.error is not None else "; ".join(filter(None, (_saved(done, bound_bytes), _price(done))))


def _price(done: Verified) -> str:
    times, verdict = done.timed
    if times is None or not times[0]:
        return ""
    what = "an iteration takes" if times is done.iteration_ns else "load and prepare take"
    return f"{what} {time_words(times[1] / times[0], verdict)}"


def _latency(ns: float, spread_ns: float | None) -> str:
    return format_duration(ns) + (f" ± {format_duration(spread_ns)}" if spread_ns else "")


def _saved(done: Verified, bound_bytes: int) -> str:
    saved = [
        f"{format_bytes(size)} {place}"
        for size, place in zip(done.saved_bytes(bound_bytes), ("of PEAK", "at the end"), strict=True)
        if size
    ]
    if done.peak_raised and done.peak_bytes:
        saved.append(f"it raises PEAK by {format_bytes(done.peak_bytes[1] - done.peak_bytes[0])}")
        return f"{'it saves ' if len(saved) > 1 else ''}{', but '.join(saved)}"
    if not saved:
        return "it saves nothing"
    if saved[0].endswith(" of PEAK") and (span := _interval(done)):
        saved[0] = f"{saved[0]} ({span})"
    return f"it saves {' and '.join(saved)}{_doubt(done)}"


def _doubt(done: Verified) -> str:
    return "" if done.beyond_noise else " (not beyond noise, or too few runs to tell)"


def _interval(done: Verified) -> str:
    """The 95% interval of what it saves of PEAK, as compare has it; empty where the runs are too few for one, or all differ alike."""
    before, after = done.peaks_bytes
    if min(len(before), len(after)) < LEAST_REPEATS:
        return ""
    low, high = (format_bytes(size) if size > 0 else f"-{format_bytes(-size)}" for size in bootstrap(after, before))
    return f"{low} to {high}" if low != high else ""


def _peaks(done: Verified) -> str:
    """PEAK before and after, each with the distance of its farthest run, or with all its modes."""
    if done.peak_bytes is None or not all(done.peaks_bytes):
        return _change("PEAK", done.peak_bytes)
    return f"PEAK {' -> '.join(map(_spread, done.peaks_bytes))}"


def _spread(peaks: Sequence[int]) -> str:
    if modes.counts(_RSS_PEAK, peaks):
        return modes.figure(_RSS_PEAK, peaks)
    median = middle(peaks, BYTES)
    return f"{format_bytes(median)} ± {format_bytes(max(abs(peak - median) for peak in peaks))}"


def _modes(explanation: Explanation) -> list[str]:
    """That PEAK of the settings as they are has modes, each of which another saving is from."""
    verified = [proposal.verified for proposal in explanation.ranked if proposal.verified is not None]
    found = next((text for done in verified if done.peaks_bytes[0] and (text := modes.counts(_RSS_PEAK, done.peaks_bytes[0]))), "")
    advice = (
        "a saving is of one of them, and its interval has the others; --deterministic leaves one, where the runtime is deterministic itself"
    )
    return [f"PEAK of the settings as they are has {found}: {advice}"] if found else []


def _change(name: str, pair: tuple[float, float] | None) -> str:
    return f"{name} {format_bytes(pair[0])} -> {format_bytes(pair[1])}" if pair else ""


def notes(explanation: Explanation) -> list[str]:
    notes = list(explanation.remarks)
    if explanation.counted_bytes is not None and explanation.weight_bytes:
        others = ", ".join(f"{format_bytes(size)} {why}" for why, size in explanation.not_counted.items())
        share = explanation.counted_bytes / explanation.weight_bytes
        tensors = counted(explanation.counted_tensors, explanation.noun)
        notes.append(f"copies of {tensors} are counted, {share:.1%} of the weights' bytes{f'; not of {others}' if others else ''}")
        last = explanation.phases[-1] if explanation.phases else None
        if last is not None and last.unplaced_bytes:
            notes.append(
                f"{where(last.name)} a copy of {1 - last.unplaced_bytes / explanation.counted_bytes:.1%} of the counted weights' bytes was found,"
                f" and none of {counted(last.unplaced_tensors, explanation.noun)}, {format_bytes(last.unplaced_bytes)}"
            )
    notes += _short_of_peaks(explanation)
    if any(phase.beyond_one_bytes is not None for phase in explanation.phases):
        notes.append(
            f"weights beyond one copy: resident bytes of all copies of each {explanation.noun} but one; in files, the kernel can drop them and "
            "read them again"
        )
    return notes


def _short_of_peaks(explanation: Explanation) -> list[str]:
    """How far below its phase's peak each look inside a phase came, where a table shows the difference."""
    peaks = {f"{phase.name}/peak": phase.rss_peak_bytes for phase in explanation.measured}
    short = [(phase, peaks.get(phase.name, 0)) for phase in explanation.phases if "/" in phase.name]
    return [
        f"the look {where(phase.name)} was taken at {format_bytes(phase.rss_bytes)}, {format_bytes(peak - phase.rss_bytes)} below that peak"
        for phase, peak in short
        if format_bytes(peak) != format_bytes(phase.rss_bytes) and peak > phase.rss_bytes
    ]


# -- tables


def waterfall(explanation: Explanation) -> TextTable:
    """The slices of each look, and what lies beside them."""
    phases = explanation.phases
    largest = max(phase.rss_bytes for phase in phases)
    unit = choose_unit(BYTES, [largest])

    def row(name: str, sizes: Iterable[float | None]) -> tuple[str, ...]:
        return name, *("-" if size is None else _cell(size, unit.size, largest) for size in sizes)

    names = [name for name in SLICES if any(phase.size(name) for phase in phases) or name == REST]
    rows = [row(name, (phase.size(name) for phase in phases)) for name in names]
    rows.append(("RSS", *(unit.cell(phase.rss_bytes) for phase in phases)))
    if any(phase.device_bytes for phase in phases):
        rows.append(row(DEVICE, (phase.device_bytes for phase in phases)))
    rows.append(("unexplained", *(f"{phase.unexplained:.1%}" for phase in phases)))
    if any("/" not in phase.name for phase in phases):
        transients = {phase.name: phase.transient_bytes for phase in explanation.measured}
        above = ("" if "/" in phase.name else _cell(transients.get(phase.name, 0), unit.size, largest) for phase in phases)
        rows.append(("the phase's peak above its end", *above))
    if any(phase.beyond_one_bytes is not None for phase in phases):
        rows.append(row("weights beyond one copy", (phase.beyond_one_bytes for phase in phases)))
        rows.append(row("of these in files' clean pages", (phase.droppable_bytes for phase in phases)))
        if any(phase.unplaced_bytes for phase in phases):
            rows.append(row("weights of which no copy was found", (phase.unplaced_bytes for phase in phases)))
    return TextTable(unit.caption("What the resident set consists of"), ("slice", *heads(explanation, phases)), tuple(rows))


def heads(explanation: Explanation, looks: Iterable[PhaseLook]) -> tuple[str, ...]:
    """The names of looks. One at the end of a phase that had held clearly more, or that has a look near its peak too, has it in its name: else what
    such a phase held before seems to be there."""
    peaks = {phase.name: phase.rss_peak_bytes for phase in explanation.measured}

    def head(look: PhaseLook) -> str:
        phase, _, inside = look.name.partition("/")
        had_more = look.rss_bytes < SEEN_SHARE * peaks.get(phase, 0) or explanation.phase(f"{phase}/peak") is not None
        return f"{phase} peak" if inside else f"{phase} end" if had_more else phase

    return tuple(map(head, looks))


def _cell(size: float, unit: float, largest: float) -> str:
    """A size with as many places as the largest of its table has."""
    return "0" if not size else number(size / unit, largest / unit)


def _copies(explanation: Explanation) -> TextTable | None:
    """The copies of weights in each phase, by layout and place."""
    kinds = list(dict.fromkeys(_kind(copies) for phase in explanation.phases for copies in phase.held))
    if not kinds:
        return None
    largest = max(copies.bytes for phase in explanation.phases for copies in phase.held)
    unit = choose_unit(BYTES, [largest])
    looked = [phase for phase in explanation.phases if phase.beyond_one_bytes is not None]
    rows = []
    for layout, converted, place, freed in kinds:
        cells = []
        for phase in looked:
            alike = [copies for copies in phase.held if _kind(copies) == (layout, converted, place, freed)]
            cells.append(f"{_cell(alike[0].bytes, unit.size, largest)} ({alike[0].copies})" if alike else "-")
        rows.append((f"{layout}{f' as {converted}' if converted else ''}", f"{place}{', freed' if freed else ''}", *cells))
    caption = f"{unit.caption('Copies of weights')}, in brackets the number of copied {explanation.noun}s"
    return TextTable(caption, ("layout", "where", *heads(explanation, looked)), tuple(rows), labels=2)


def _kind(copies: Held) -> tuple[str, str, str, bool]:
    return copies.layout, copies.converted, copies.where, copies.freed


def _tensors(explanation: Explanation) -> TextTable | None:
    """The tensors with the most bytes beyond their first copy, in the phase where these are most."""
    looked = [phase for phase in explanation.phases if phase.beyond_one_bytes]
    if not looked:
        return None
    worst = max(looked, key=lambda phase: phase.beyond_one_bytes or 0)
    held = []
    for tensor in explanation.tensors:
        layouts = tensor.copies.get(worst.name, {})
        beyond = (sum(layouts.values()) - tensor.instances) * tensor.bytes
        if beyond > 0:
            held.append((beyond, tensor, layouts))
    held.sort(key=lambda entry: -entry[0])
    rows = tuple(
        (
            tensor.name,
            "x".join(map(str, tensor.shape)),
            tensor.dtype,
            format_bytes(tensor.bytes),
            ", ".join(f"{count} {name}" for name, count in layouts.items()),
        )
        for _, tensor, layouts in held[:_MOST_TENSORS]
    )
    more = f", the largest {_MOST_TENSORS} of {len(held)}" if len(held) > _MOST_TENSORS else ""
    return (
        TextTable(f"Tensors held more than once {where(worst.name)}{more}", ("tensor", "shape", "type", "size", "copies"), rows, labels=1)
        if rows
        else None
    )


def visible(explanation: Explanation) -> list[str]:
    """The slices that can be seen in a stacked bar of some phase, in their order, and the memory of devices beside them."""
    return [name for name in (*SLICES, DEVICE) if any(phase.size(name) > 0.003 * phase.rss_bytes for phase in explanation.phases)]


def hows(explanation: Explanation) -> list[str]:
    """How each slice was found, in the words of the last phase that has it."""
    hows = {part.name: part.how for phase in explanation.phases for part in phase.slices}
    return [f"{name}: {hows[name]}" for name in SLICES if name in hows]


# -- Markdown and text


def tables(explanation: Explanation) -> list[TextTable]:
    slices = waterfall(explanation) if explanation.phases else None
    return [table for table in (slices, _copies(explanation), _tensors(explanation)) if table is not None]


def _markdown(explanation: Explanation) -> str:
    say = escaped
    lines = [f"### {say(title(explanation))}", "", f"{say(lead(explanation))}.", ""]
    lines += [f"**{say(text)}**\n" for text in warned(explanation)]
    if explanation.ranked:
        lines += [f"{ranking(explanation)}:", "", *(f"{place}. {say(text)}" for place, text in enumerate(ranked(explanation), 1)), ""]
    else:
        lines += [f"{say(text)}\n" for text in ranked(explanation)]
    lines += found(explanation)
    parts = ["\n".join(lines).rstrip(), markdown(Section("", tuple(tables(explanation)), tuple(notes(explanation))))]
    parts.append("How each slice was found:\n\n" + "\n".join(f"- {say(text)}" for text in hows(explanation)))
    parts += [_in_program(explanation, True), say(origin(explanation))]
    return "\n\n".join(filter(None, parts))


def found(explanation: Explanation) -> list[str]:
    """The lines of the findings in Markdown, with their evidence and proposals."""
    lines = [] if explanation.findings else [nothing(explanation)]
    for place, finding in enumerate(explanation.findings, 1):
        lines.append(f"{place}. **{escaped(finding.title)}**: {escaped(amount(finding, explanation.peak_bound_bytes))}")
        lines += [f"   - {escaped(text)}" for text in evidence(finding, explanation.peak_bound_bytes)]
        for proposal in finding.proposals:
            knob = f"`{settings(proposal.settings)}`: " if proposal.settings else ""
            lines.append(f"   - to do: {knob}{escaped(proposal.text)}")
            lines += [f"     - {escaped(text)}" for text in details(proposal, finding, explanation.peak_bound_bytes)]
    return lines


def _text(explanation: Explanation) -> str:
    say = plain
    lines = [say(title(explanation)), say(lead(explanation)), *(say(text) for text in warned(explanation)), ""]
    if explanation.ranked:
        lines += [ranking(explanation), *(f"{place:>4}. {say(text)}" for place, text in enumerate(ranked(explanation), 1)), ""]
    lines += ["Findings, the worst first" if explanation.findings else nothing(explanation)]
    if not explanation.ranked:
        lines += map(say, ranked(explanation))
    for place, finding in enumerate(explanation.findings, 1):
        lines += ["", f"{place}. {say(headline(finding, explanation.peak_bound_bytes))}"]
        lines += [f"     {say(text)}" for text in evidence(finding, explanation.peak_bound_bytes)]
        for proposal in finding.proposals:
            lines.append(f"   > {say(settings(proposal.settings)) + ': ' if proposal.settings else ''}{say(proposal.text)}")
            lines += [f"       {say(text)}" for text in details(proposal, finding, explanation.peak_bound_bytes)]
    if explanation.phases:
        lines += ["", *_bars(explanation)]
    lines += ["", laid_out(Section("", tuple(tables(explanation)), tuple(notes(explanation))), say)]
    lines += ["", "How each slice was found:", *(f"- {say(text)}" for text in hows(explanation))]
    lines += ["", say(ended)] if (ended := _in_program(explanation, False)) else []
    lines += ["", say(origin(explanation))]
    return "\n".join(lines)


def _in_program(explanation: Explanation, code: bool) -> str:
    best = explanation.best
    if best is None or best.verified is None or not best.calls:
        return ""
    first = best is explanation.ranked[0]
    choice = "Measured" if first else "Measured, the best of those whose cost in time is little or within noise"
    return f"{in_program(settings(best.settings), best.calls, code)} {choice}: {_effect(best, explanation.peak_bound_bytes)}."


def _bars(explanation: Explanation) -> list[str]:
    """The largest look as bars."""
    largest = max(explanation.phases, key=lambda phase: phase.rss_bytes)
    slices = [part for part in largest.slices if part.bytes]
    widest = max((len(part.name) for part in slices), default=0)
    lines = [f"The largest look, {where(largest.name)}: {format_bytes(largest.rss_bytes)}"]
    for part in slices:
        share = min(max(part.bytes / largest.rss_bytes, 0), 1) if largest.rss_bytes else 0
        lines.append(f"  {part.name.ljust(widest)}  {format_bytes(part.bytes):>10}  {share:>4.0%}  {'█' * round(share * _BAR)}".rstrip())
    return lines
