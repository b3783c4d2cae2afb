"""The answer of `memprof bisect`: each step in a line, what changed in the memory, and every version that was measured."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from memprof.base.units import counted, format_bytes, format_change, format_duration, listed
from memprof.records import metrics
from memprof.records.metrics import amount, signed
from memprof.records.summary import PeakPhases
from memprof.regressions.bisect.bisect import Bisected
from memprof.regressions.bisect.bisect_request import StepSide, heap_folder
from memprof.regressions.bisect.search import VersionStep
from memprof.regressions.bisect.undo_search import Undoing

from . import grid
from .explain import settings
from .grid import Section, TextTable
from .headline import apart
from .step_looks import LookDifference, difference

_MOST_SLICES = 4
_RESIDENT = (*metrics.HIGH_WATER_MARKS, "rss_end_bytes")  # metrics of the whole resident set


def render(answer: Bisected, format: str = "markdown") -> str:
    """The answer as markdown, or the same content as json."""
    if format == "json":
        return json.dumps(_plain(answer), indent=1)
    say = grid.say_in(format)
    return "\n\n".join(["\n".join(map(say, sentences(answer))), grid.laid_out(_table(answer), say)])


def sentences(answer: Bisected) -> list[str]:
    """The answer, one line per step and lines on what changed there."""
    searched, versions, name = answer.searched, answer.versions, answer.question.key.label
    if not searched.steps:
        ends = f"{versions.labels[min(searched.values)]} and {versions.labels[max(searched.values)]}"
        return [f"{name}: {ends} do not differ in {_what(answer)}: {searched.ends.reason}. There is nothing to search ({_effort(answer)})."]
    lines = []
    for number, step in enumerate(searched.steps):
        lines.append(_step(answer, step, answer.phases[number], answer.peaks[number]))
        if answer.also[number]:
            lines.append(f"Between them also differ: {', '.join(answer.also[number])}.")
        if number < len(answer.sides):
            lines += _explained(answer, step, *answer.sides[number], _places(answer.phases[number], answer.peaks[number]))
        undoing = answer.undoing[number]
        if undoing is not None:
            lines.append(_undoing(undoing, step, answer))
    lines[0] += f"; {_effort(answer)}"
    return lines


def _what(answer: Bisected) -> str:
    question = answer.question
    of = "" if question.metric in metrics.OF_SEVERAL else "of "
    return f"{metrics.described(question.metric).title} {of}{question.phase}"


def _effort(answer: Bisected) -> str:
    total = counted(len(answer.versions.labels), answer.versions.noun)
    skipped = f", {len(answer.searched.skipped)} skipped" if answer.searched.skipped else ""
    return f"{len(answer.searched.values)} of {total} measured{skipped}, {format_duration(int(answer.seconds * 1e9))}"


def _step(answer: Bisected, step: VersionStep, phase: str, peaks: tuple[PeakPhases, PeakPhases]) -> str:
    question = answer.question
    base, head = step.judged.base, step.judged.head
    assert base is not None and head is not None
    names = f"{answer.versions.named(step.before)} -> {answer.versions.named(step.at)}"
    name = _what(answer) if question.metric in metrics.OF_SEVERAL else question.phase
    before, after = apart(peaks)
    figures = f"{name} {amount(question.metric, base.median)}{before} -> {amount(question.metric, head.median)}{after}"
    share = f" ({format_change(head.median / base.median - 1)})" if base.median else ""
    where = _where(phase, peaks) if phase != question.phase else ""
    text = f"{answer.versions.subject} {names}: {figures}{share}{where}, {answer.question.key.label}"
    if step.between:
        named = listed([answer.versions.labels[place] for place in step.between], 4)
        text += f"; it may lie at any of these too, which could not be measured: {named}"
    return text


def _where(phase: str, peaks: tuple[PeakPhases, PeakPhases]) -> str:
    """The phase in which a step is first seen, and that of both PEAKs where it is another."""
    shared = peaks[0].shared(peaks[1])
    if phase in shared.level or not (peaks[0].level and peaks[1].level):
        return f", in {phase}"
    both = f", in {shared.names}" if shared.level else ""
    return f"{both}, first seen in {phase}" if shared.level or phase not in peaks[1].level else ""


def _places(phase: str, peaks: tuple[PeakPhases, PeakPhases]) -> tuple[str, str]:
    """The phase of each side whose memory makes the step: that of its PEAK, or of several alike that in which the step is first seen."""
    shared = peaks[0].shared(peaks[1])
    if phase in shared.level or not (peaks[0].level and peaks[1].level):
        return phase, phase
    return (shared.highest, shared.highest) if shared.level else (peaks[0].highest, peaks[1].highest)


def _bytes(change: int) -> str:
    return signed("rss_end_bytes", change, 0)


def _explained(answer: Bisected, step: VersionStep, before: StepSide, after: StepSide, phases: tuple[str, str]) -> Iterator[str]:
    """What changed, what the looks do not show, and the commands that show it. phases: where each side has the figure."""
    if before.explanation is None or after.explanation is None:
        yield f"What changed is not known: {before.why or after.why}."
        return
    name = answer.question.metric
    is_memory = metrics.described(name).unit == metrics.BYTES and name not in metrics.OF_SEVERAL  # slices add up to no other metric
    size = round(step.judged.difference or 0) if is_memory else 0
    of_peak = name in (*metrics.PEAKS, *metrics.HIGH_WATER_MARKS)
    seen = difference(before.explanation, after.explanation, phases, of_peak, size, name in _RESIDENT)
    labels = (answer.versions.labels[step.before], answer.versions.labels[step.at])
    yield from _changes(seen, labels, _bytes(size) if is_memory else "")
    yield from _unseen(seen, labels, phases)
    already = {settings(proposal.settings) for finding in before.explanation.findings for proposal in finding.proposals}
    advice = [proposal for finding in after.explanation.findings for proposal in finding.proposals if proposal.settings]
    new = [proposal for proposal in advice if settings(proposal.settings) not in already]
    for proposal in new[:2]:
        yield f"Only the newer side has the advice: {settings(proposal.settings)}."
    if not seen.explains and before.heap_record and after.heap_record:
        diff = shlex.join(["memprof", "heap", "diff", *map(heap_folder, labels)])
        yield f"Two heap profiles show who allocates it: {before.heap_record} && {after.heap_record} && {diff}"


def _changes(seen: LookDifference, labels: tuple[str, str], size: str) -> Iterator[str]:
    """By how much slices moved. size: of the step, empty for a metric that is no memory."""
    if seen.looks is None or not seen.moved:
        yield "The looks at both sides see no difference."
        return
    named = ", ".join(f"{name} {_bytes(change)}" for name, change in seen.moved[:_MOST_SLICES])
    beside = f"; all slices together {_bytes(seen.whole_bytes)}, the step {size}" if size else ""
    yield f"What changed {_when(seen.looks[0].name, seen.looks[1].name, labels)}: {named}{beside}."


def _when(before: str, after: str, labels: tuple[str, str]) -> str:
    """The moment of two looks, by their names."""
    first, second = (f"the {'peak' if '/' in name else 'end'} of {name.partition('/')[0]}" for name in (before, after))
    if before.partition("/")[0] == after.partition("/")[0]:  # the end of the side whose peak is there
        return f"at {first if '/' in before else second}"
    return f"from {first} ({labels[0]}) to {second} ({labels[1]})"


def _unseen(seen: LookDifference, labels: tuple[str, str], phases: tuple[str, str]) -> Iterator[str]:
    """What makes the step and is in no slice."""
    for label, phase, height in zip(labels, phases, seen.transients, strict=True):
        if height:
            peak = f"The peak of {label} lies {format_bytes(height)} above the end of {phase}"
            yield f"{peak}: a transient, which slices at the end do not show."
    if seen.missing_bytes:
        early = [
            f"the look at {label} came on the way to the peak, at {format_bytes(late[0])} of {format_bytes(late[1])}"
            for label, late in zip(labels, seen.late, strict=True)
            if late is not None
        ]
        yield f"The slices do not sum to the step: {format_bytes(abs(seen.missing_bytes))} lie between them{''.join(f'; {text}' for text in early)}."


def _undoing(undoing: Undoing, step: VersionStep, answer: Bisected) -> str:
    newer = answer.versions.labels[step.at]
    if undoing.settings is None:
        were = "was" if undoing.tried == 1 else "were"
        return f"No setting undoes it: {counted(undoing.tried, 'setting')} of {newer} {were} measured, alone and two together."
    slower = f", at {undoing.slower:.2f} times the latency" if undoing.slower is not None else ""
    figure = amount(answer.question.metric, undoing.median)
    return f"{settings(undoing.settings)} undoes it: {newer} then has {figure}{slower} ({counted(undoing.tried, 'setting')} tried)."


def _table(answer: Bisected) -> Section:
    searched, metric = answer.searched, answer.question.metric
    unit = grid.choose_unit(metrics.described(metric).unit, [value for values in searched.values.values() for value in values])
    steps = {step.at: step for step in searched.steps}
    rows = []
    for place in sorted({*searched.values, *searched.skipped}):
        values = searched.values.get(place)
        if values is None:
            rows.append((answer.versions.labels[place], "-", "0", f"skipped: {searched.skipped[place]}"))
            continue
        step = steps.get(place)
        note = signed(metric, step.judged.difference or 0.0, step.judged.base.median if step.judged.base else 0.0) if step else ""
        rows.append((answer.versions.labels[place], unit.median(values), str(len(values)), note or searched.skipped.get(place, "")))
    name = unit.caption(f"{metrics.described(metric).title}, {answer.question.phase}")
    return Section("", (TextTable(name, (answer.versions.noun, "median", "repeats", ""), tuple(rows), 1),), ())


def _plain(answer: Bisected) -> dict[str, Any]:
    question, searched, labels = answer.question, answer.searched, answer.versions.labels
    return {
        "model": question.key.model,
        "variant": question.key.heading,
        "phase": question.phase,
        "metric": question.metric,
        "versions": list(labels),
        "ends": searched.ends.reason,
        "steps": [
            {
                "before": labels[step.before],
                "at": labels[step.at],
                "between": [labels[place] for place in step.between],
                "phase": phase,
                "peak_phases": [list(side.level) for side in peaks],
                "difference": step.judged.difference,
                "change": step.judged.change,
                "reason": step.judged.reason,
                "also": list(also),
                "undone_by": undoing.settings if undoing is not None else None,
            }
            for step, phase, peaks, also, undoing in zip(
                searched.steps, answer.phases, answer.peaks, answer.also, answer.undoing, strict=True
            )
        ],
        "measured": {labels[place]: list(values) for place, values in sorted(searched.values.items())},
        "skipped": {labels[place]: reason for place, reason in sorted(searched.skipped.items())},
        "seconds": round(answer.seconds, 1),
        "sentences": sentences(answer),
    }
