"""The answer of `memprof bisect`: each step in a line, what changed in the memory, and every version that was measured."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from memprof.base.units import counted, format_change, format_duration, listed
from memprof.explain.records import Explanation
from memprof.records import metrics
from memprof.records.metrics import amount, signed
from memprof.regressions.bisect.bisect import Bisected
from memprof.regressions.bisect.bisect_request import StepSide, heap_folder
from memprof.regressions.bisect.search import VersionStep
from memprof.regressions.bisect.undo_search import Undoing

from . import grid
from .explain import settings
from .grid import Section, TextTable

_LEAST = 256 << 10
_MOST_SLICES = 4


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
        lines.append(_step(answer, step, answer.phases[number]))
        if answer.also[number]:
            lines.append(f"Between them also differ: {', '.join(answer.also[number])}.")
        if number < len(answer.sides):
            lines += _changes(*answer.sides[number], answer.phases[number], _size(answer, step))
            lines += _heap_profiles(answer, step, *answer.sides[number])
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


def _step(answer: Bisected, step: VersionStep, phase: str) -> str:
    question = answer.question
    base, head = step.judged.base, step.judged.head
    assert base is not None and head is not None
    names = f"{answer.versions.named(step.before)} -> {answer.versions.named(step.at)}"
    name = _what(answer) if question.metric in metrics.OF_SEVERAL else question.phase
    figures = f"{name} {amount(question.metric, base.median)} -> {amount(question.metric, head.median)}"
    share = f" ({format_change(head.median / base.median - 1)})" if base.median else ""
    where = f", in {phase}" if phase != question.phase else ""
    text = f"{answer.versions.subject} {names}: {figures}{share}{where}, {answer.question.key.label}"
    if step.between:
        named = listed([answer.versions.labels[place] for place in step.between], 4)
        text += f"; it may lie at any of these too, which could not be measured: {named}"
    return text


def _size(answer: Bisected, step: VersionStep) -> str:
    """The size of a step of memory; empty for another metric, which no slices add up to."""
    name = answer.question.metric
    return (
        _bytes(round(step.judged.difference or 0))
        if metrics.described(name).unit == metrics.BYTES and name not in metrics.OF_SEVERAL
        else ""
    )


def _bytes(change: int) -> str:
    return signed("rss_end_bytes", change, 0)


def _changes(before: StepSide, after: StepSide, first: str, size: str) -> Iterator[str]:
    if before.explanation is None or after.explanation is None:
        yield f"What changed is not known: {before.why or after.why}."
        return
    phase, moved = _moved(before.explanation, after.explanation, first)
    if phase:
        named = ", ".join(f"{name} {_bytes(change)}" for name, change in moved[:_MOST_SLICES])
        when = f"end of {phase}" if "/" not in phase else f"peak of {phase.partition('/')[0]}"
        looks = [explanation.phase(phase) for explanation in (before.explanation, after.explanation)]
        whole = sum(sign * look.rss_bytes for sign, look in zip((-1, 1), looks, strict=True) if look is not None)
        beside = f"; all slices together {_bytes(whole)}, the step {size}" if size else ""
        yield f"What changed at the {when}: {named}{beside}."
    else:
        yield "The looks at both sides see no difference: what makes the step is freed before its phase ends."
    already = {settings(proposal.settings) for finding in before.explanation.findings for proposal in finding.proposals}
    advice = [proposal for finding in after.explanation.findings for proposal in finding.proposals if proposal.settings]
    new = [proposal for proposal in advice if settings(proposal.settings) not in already]
    for proposal in new[:2]:
        yield f"Only the newer side has the advice: {settings(proposal.settings)}."


def _heap_profiles(answer: Bisected, step: VersionStep, before: StepSide, after: StepSide) -> Iterator[str]:
    """The command that shows a step which no look saw, where one can be given."""
    if before.explanation is None or after.explanation is None or _moved(before.explanation, after.explanation, "")[0]:
        return
    if before.heap_record and after.heap_record:
        diff = shlex.join(["memprof", "heap", "diff", *(heap_folder(answer.versions.labels[place]) for place in (step.before, step.at))])
        yield f"Two heap profiles show who allocates it: {before.heap_record} && {after.heap_record} && {diff}"


def _undoing(undoing: Undoing, step: VersionStep, answer: Bisected) -> str:
    newer = answer.versions.labels[step.at]
    if undoing.settings is None:
        were = "was" if undoing.tried == 1 else "were"
        return f"No setting undoes it: {counted(undoing.tried, 'setting')} of {newer} {were} measured, alone and two together."
    slower = f", at {undoing.slower:.2f} times the latency" if undoing.slower is not None else ""
    figure = amount(answer.question.metric, undoing.median)
    return f"{settings(undoing.settings)} undoes it: {newer} then has {figure}{slower} ({counted(undoing.tried, 'setting')} tried)."


def _moved(before: Explanation, after: Explanation, first: str) -> tuple[str, list[tuple[str, int]]]:
    """The phase to tell, and by how much each of its slices moved, the largest first: the phase where the step is first seen, else that which
    moved most."""
    changes = {phase.name: (earlier, phase) for phase in after.phases if (earlier := before.phase(phase.name)) is not None}
    moved = {}
    for name, (earlier, phase) in changes.items():
        names = dict.fromkeys(part.name for part in (*earlier.slices, *phase.slices))
        sizes = [(part, phase.size(part) - earlier.size(part)) for part in names]
        moved[name] = sorted((size for size in sizes if abs(size[1]) >= _LEAST), key=lambda size: -abs(size[1]))
    likely = [name for name in (f"{first}/peak", first) if moved.get(name)]
    likely += sorted(
        (name for name in moved if moved[name]), key=lambda name: -abs(changes[name][1].rss_bytes - changes[name][0].rss_bytes)
    )
    return (likely[0], moved[likely[0]]) if likely else ("", [])


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
                "difference": step.judged.difference,
                "change": step.judged.change,
                "reason": step.judged.reason,
                "also": list(also),
                "undone_by": undoing.settings if undoing is not None else None,
            }
            for step, phase, also, undoing in zip(searched.steps, answer.phases, answer.also, answer.undoing, strict=True)
        ],
        "measured": {labels[place]: list(values) for place, values in sorted(searched.values.items())},
        "skipped": {labels[place]: reason for place, reason in sorted(searched.skipped.items())},
        "seconds": round(answer.seconds, 1),
        "sentences": sentences(answer),
    }
