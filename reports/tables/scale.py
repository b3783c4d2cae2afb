"""The outcome of `memprof scale`: each law as a sentence, its coefficients with their intervals, the measured points, and the predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from memprof.base.terminal_text import shortened
from memprof.base.units import BYTE_UNITS, counted, format_bytes, format_number
from memprof.growth.laws.laws import FARTHEST, Law, bounds
from memprof.growth.laws.terms import SizePoint
from memprof.growth.scale.answer import PeakChange, PlaceRun, Scaled, Within, words_of
from memprof.records.metrics import BYTES

from . import grid, resources
from .grid import Say, Section, TextTable, Unit
from .headline import in_program, with_threads

_MOST_LETTERS = 60  # of a remark in a table; --json has all of it


def render(scaled: Scaled, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    found = resources.of_scale(scaled)
    if format == "json":
        return json.dumps({**_plain(scaled), "resources": found and to_builtins(found)}, indent=1)
    say = grid.say_in(format)
    text = f"{finding(scaled, say)}\n\n{grid.laid_out(section(scaled, unit), say)}{resources.block(found, format, scaled.threads)}"
    called = with_threads(scaled.settings, scaled.threads)
    return "\n\n".join(filter(None, (text, in_program(called, scaled.calls, format != "text") if found else "")))


def section(scaled: Scaled, unit: str | None = None) -> Section:
    """Tables of the coefficients, the points, the predictions and the limits, with notes."""
    size = grid.choose_unit(BYTES, [value for point in scaled.points for value in point.sizes.values()], unit)
    tables = [_coefficients(scaled), _points(scaled, size), *answers(scaled, unit)]
    return Section("", tuple(table for table in tables if table.rows), tuple(notes(scaled)))


def answers(scaled: Scaled, unit: str | None = None) -> list[TextTable]:
    """Tables of the predictions and of the largest values that fit, those of the request, and of the terms beside the planner's."""
    size = grid.choose_unit(BYTES, [value for point in scaled.points for value in point.sizes.values()], unit)
    tables = [_predictions(scaled, size)] if scaled.predictions else []
    tables += [_within(scaled)] if scaled.within and not scaled.undecided else []
    return tables + ([_against(scaled)] if scaled.against else [])


def finding(scaled: Scaled, say: Say) -> str:
    """The law in a sentence, after what it is of."""
    job = grid.subject(say, scaled.model, scaled.runtime, scaled.settings, scaled.threads)
    law = scaled.law
    if scaled.undecided:
        return f"{job}: undecided: {say(scaled.undecided)}."
    if law is None:
        return f"{job}: no simple law holds for {scaled.main}; the table has the measured points and the bounds between them."
    return "\n\n".join([f"{job}: {say(headline(scaled, law))}", *_beside(scaled, law)])


def headline(scaled: Scaled, law: Law) -> str:
    """What predictions come from: the law, or an arena with its sizes over the range, as a sentence without a full stop."""
    return f"{arena_sizes(scaled)}; {_average(scaled)}" if scaled.simulated else formula(scaled, law)


def arena_sizes(scaled: Scaled) -> str:
    """The arena that the main figure follows, with its sizes where all dimensions are lowest, in the middle of their ranges, and highest."""
    places = [
        {each.label: each.low + (each.last - each.low) // each.step * part // 2 * each.step for each in scaled.varying}
        for part in (0, 1, 2)
    ]
    sizes = [f"{format_bytes(prediction.bytes)} at {words_of(at)}" for at, prediction in zip(places, scaled.predict(places), strict=True)]
    planned = scaled.law is not None and scaled.law.planned
    arena = "the arenas that TFLite and XNNPACK plan" if planned else "ONNX Runtime's arena, which grows in steps"
    return f"{scaled.main} follows {arena}: {', '.join(dict.fromkeys(sizes))}"


def _average(scaled: Scaled) -> str:
    """What one more of each dimension costs on average over its range, with the others at their lowest."""
    lowest = {each.label: each.low for each in scaled.varying}
    costs = []
    for dimension in scaled.varying:
        low, high = scaled.predict([lowest, {**lowest, dimension.label: dimension.last}])
        costs.append(f"{per((high.bytes - low.bytes) / (dimension.last - dimension.low))} per {dimension.label}")
    return f"on average about {' and '.join(costs)}{' with the others lowest' if len(costs) > 1 else ''}"


def formula(scaled: Scaled, law: Law) -> str:
    """The law as predictions have it: where another phase makes the peak from some place on, the laws of these phases."""
    phases = [(name, by) for name in _of_changes(scaled) if (by := scaled.named(name)) is not None]
    if not phases:
        return f"{scaled.main} = {sentence(law)}"
    most = "larger" if len(phases) == 2 else "largest"
    return f"{scaled.main} is the {most} of " + " and ".join(f"{name} = {sentence(by)}" for name, by in phases)


def _of_changes(scaled: Scaled) -> list[str]:
    return list(dict.fromkeys(name for change in scaled.changes for name in (change.before, change.after)))


def _beside(scaled: Scaled, law: Law) -> Iterator[str]:
    """What a reader of the formula must know."""
    if scaled.simulated:
        steps = (
            ""
            if law.planned
            else ": its regions double, so memory grows in steps around the sum. The interval of a coefficient holds these steps, that of a "
            "prediction need not"
        )
        yield f"The nearest sum is {formula(scaled, law)}. Predictions do not come from it, but from {scaled.source}{steps}."
    if scaled.mapped_again_bytes:
        yield (
            f"{scaled.main} is RSS, which counts a page once for each mapping. Sessions map the same pages of files again: "
            f"{format_bytes(scaled.mapped_again_bytes)} of what each further session adds is no more memory."
        )


def sentence(law: Law) -> str:
    """A law as a sum: `118.2 MiB + 8.00 KiB x context`."""
    text = ""
    for coefficient in law.coefficients:
        amount = per(abs(coefficient.bytes)) + (f" x {coefficient.term.words}" if coefficient.term.powers else "")
        sign = "-" if coefficient.bytes < 0 else "+"
        text += f" {sign} {amount}" if text else ("-" if coefficient.bytes < 0 else "") + amount
    return text


def per(amount: float) -> str:
    """A coefficient as people read it: three digits at least, also below a byte."""
    size, sign = abs(amount), "-" if amount < 0 else ""
    if size < 1000:
        return f"{sign}{format_number(size, 3)} B"
    unit = format_bytes(size).rpartition(" ")[2]
    value = size / BYTE_UNITS[unit]
    return f"{sign}{value:.{2 if value < 10 else 1}f} {unit}"


def _coefficients(scaled: Scaled) -> TextTable:
    rows = []
    for named in scaled.laws:
        phases = _of_changes(scaled) if named.name == scaled.main else []
        if named.law is None or phases:
            rows.append((named.name, f"the most of {' and '.join(phases)}" if phases else "no simple law", "-", "-", "-", "-"))
            continue
        for place, coefficient in enumerate(named.law.coefficients):
            words = coefficient.term.words or "constant"
            error = "" if place else ("-" if named.law.error is None else f"{named.law.error:.1%}")
            interval = f"{per(coefficient.low_bytes)} to {per(coefficient.high_bytes)}"
            source = "" if place else "planned arenas" if named.law.planned else "simulated arena" if named.law.simulated else "the sum"
            rows.append(("" if place else named.name, words, per(coefficient.bytes), interval, source, error))
    if any(named.law is not None and named.law.simulated for named in scaled.laws):
        header = ("law of", "term of the nearest sum", "coefficient", "with 95%", "predictions from", "their error at unseen points")
        return TextTable("Laws", header, tuple(rows), labels=2)
    sums = ("law of", "term", "coefficient", "with 95%", "error at unseen points")
    return TextTable("Laws", sums, tuple((*row[:4], row[5]) for row in rows), labels=2)


def _points(scaled: Scaled, size: Unit) -> TextTable:
    points = sorted(scaled.points, key=lambda point: tuple(point.at.values()))
    expected = scaled.predict([point.at for point in points])
    labels = list(scaled.points[0].at)
    columns = [(label, [str(point.at[label]) for point in points]) for label in labels]
    columns += [(named.name, [_sized(point, named.name, scaled.main, size) for point in points]) for named in scaled.laws]
    if expected:
        columns.append((scaled.source.removeprefix("the "), [size.cell(prediction.bytes) for prediction in expected]))
    if scaled.planned:
        columns.append(("plan", [size.cell(point.planned_bytes) for point in points]))
    if any(point.ended or point.held_out or point.again for point in points):
        columns.append(("remark", [shortened(point.ended or "", _MOST_LETTERS) or _remark(point) for point in points]))
    if scaled.law is None:
        columns.append(("between", [_between(scaled, point, size) for point in points]))
    return grid.of_columns(size.caption("Measured"), columns, len(labels))


def _remark(point: PlaceRun) -> str:
    several = f"median of {counted(len(point.again), 'run')}" if point.again else ""
    return "; ".join(filter(None, ("not fitted" if point.held_out else "", several)))


def _sized(point: PlaceRun, name: str, main: str, size: Unit) -> str:
    if name not in point.sizes:
        return "-"
    text = size.cell(point.sizes[name])
    return f"at least {text}" if point.least and name == main else text


def _between(scaled: Scaled, point: PlaceRun, size: Unit) -> str:
    others = [
        SizePoint(other.at, other.sizes[scaled.main], other.least)
        for other in scaled.points
        if other is not point and scaled.main in other.sizes
    ]
    low, high = bounds(others, point.at)
    return f"{size.cell(low)} to {size.cell(high)}"


def _predictions(scaled: Scaled, size: Unit) -> TextTable:
    rows = []
    for prediction in scaled.predictions:
        there = [point for point in scaled.points if dict(point.at) == dict(prediction.at)]
        seen = max(there, key=lambda point: point.held_out, default=None)
        rows.append(
            (
                ", ".join(f"{name}={format_number(value)}" for name, value in prediction.at.items()),
                "-" if scaled.undecided else size.cell(prediction.bytes),
                "-" if scaled.undecided else f"{size.cell(prediction.low_bytes)} to {size.cell(prediction.high_bytes)}",
                f"beyond the measured {' and '.join(prediction.beyond)}" if prediction.beyond else "within",
                _sized(seen, scaled.main, scaled.main, size) if seen else "-",
            )
        )
    header = ("at", scaled.main, "with 95%", "range", "measured")
    return TextTable(size.caption(f"Predictions{_by(scaled)}"), header, tuple(rows))


def _by(scaled: Scaled) -> str:
    """What predictions come from, where that is not the law."""
    return f" by {scaled.source}" if scaled.simulated else ""


def _within(scaled: Scaled) -> TextTable:
    rows = []
    for row in scaled.within:
        others = ", ".join(f"{name}={value}" for name, value in row.others.items())
        rows.append((row.dimension, others or "-", _value(row.value), _value(row.surely), _possibly(row), _confirmed(row, scaled)))
    header = ("dimension", "with", "largest that fits", "surely", "possibly", "measured there")
    return TextTable(f"Within {format_bytes(scaled.within_bytes or 0)}{_by(scaled)}", header, tuple(rows), labels=2)


def _confirmed(row: Within, scaled: Scaled) -> str:
    size = "-" if row.confirmed_bytes is None else format_bytes(row.confirmed_bytes)
    if row.ended:
        return f"{'' if row.confirmed_bytes is None else f'at least {size}, '}{shortened(row.ended, _MOST_LETTERS)}"
    return f"{size}: too much" if (row.confirmed_bytes or 0) > (scaled.within_bytes or 0) else size


def _value(value: int | None) -> str:
    return "none" if value is None else "any" if value >= FARTHEST else f"{value}"


def _possibly(row: Within) -> str:
    return _value(row.possibly) if row.bounded else "not bounded"


def _against(scaled: Scaled) -> TextTable:
    rows = []
    for row in scaled.against:
        both = row.measured_bytes is not None and row.planned_bytes
        rows.append(
            (
                row.words,
                "-" if row.measured_bytes is None else per(row.measured_bytes),
                "-" if row.planned_bytes is None else per(row.planned_bytes),
                f"{(row.measured_bytes or 0) / (row.planned_bytes or 1):.2f}x" if both else "-",
            )
        )
    return TextTable("Peak of EXECUTE beside the planner's own peak", ("term", "measured", "planned", "measured of planned"), tuple(rows))


def passing(change: PeakChange) -> str:
    """Where the peak passes from one phase to another, as a sentence."""
    others = f" (with {words_of(change.others).replace(',', ', ')})" if change.others else ""
    return f"Up to about {change.dimension}={change.value} {change.before} makes the peak, beyond it {change.after}{others}."


def notes(scaled: Scaled) -> list[str]:
    """The notes beside the law, one sentence for each."""
    said = [*scaled.findings]
    said += map(passing, scaled.changes)
    planned = [named.name for named in scaled.laws if named.law is not None and named.law.planned]
    if planned:
        said.append(
            f"Predictions of {', '.join(planned)} follow the arena of TFLite's interpreter and XNNPACK's workspace, planned as they plan them."
        )
    unused = [scaled.main] if scaled.changes else []
    stepped = [named.name for named in scaled.laws if named.law is not None and named.law.steps and named.name not in unused]
    if stepped:
        said.append(
            f"The arena's regions double, so memory grows in steps around the law of {', '.join(stepped)}: a run between the measured places, or "
            "beyond them, may need more or less. The intervals hold such steps."
        )
    if scaled.undecided and scaled.law is not None and (scaled.predictions or scaled.within_bytes):
        said.append("Nothing is predicted, for the law is undecided. What was measured stands.")
    elif any(prediction.beyond for prediction in scaled.predictions):
        said.append("Beyond the measured range a law is an assumption; its interval is wider there.")
    for point in scaled.points:
        if point.again:
            sizes = ", ".join(map(format_bytes, point.again))
            said.append(f"Runs at {words_of(point.at)} had a {scaled.main} of {sizes}: the median counts.")
    if not scaled.undecided and not all(row.bounded for row in scaled.within):
        said.append(
            "Where it says not bounded, the law's interval is too wide beyond the measured range to say what is possible: measure more there."
        )
    said += [] if scaled.undecided else refuted(scaled)
    said += [] if scaled.undecided else filter(None, (_smaller(scaled, row) for row in scaled.within))
    for row in scaled.within:
        if row.refused is not None:
            others = f" with {words_of(row.others)}" if row.others else ""
            said.append(f"{scaled.runtime} refuses {row.dimension}={row.refused}{others}, so that no more fit there for certain.")
    if scaled.law is None:
        said.append("Bounds hold if memory grows with every dimension: a point lies between those below it and those above it.")
    return [*said, *scaled.remarks]


def _smaller(scaled: Scaled, row: Within) -> str:
    """That a smaller value may need more than the largest that surely fits, as a sentence; empty where none does."""
    bound = row.bound_place(scaled.varying)
    if row.most is None or dict(row.most.at) == bound:
        return ""
    seen = [point.sizes[scaled.main] for point in scaled.points if dict(point.at) == dict(row.most.at) and scaled.main in point.sizes]
    at = ",".join(f"{name}={value:.0f}" for name, value in row.most.at.items())
    if any(dict(point.at) == dict(row.most.at) for point in scaled.confirmations):
        too_much = ": too much" if row.most.high_bytes > (scaled.within_bytes or 0) else ""
        return f"Of all places up to {words_of(bound)}, {at} needs most: measured {format_bytes(row.most.high_bytes)}{too_much}."
    sizes = f"{format_bytes(row.most.bytes)}, at most {format_bytes(row.most.high_bytes)}"
    too_much = ": too much" if max(seen, default=0) > (scaled.within_bytes or 0) else ""
    measured = f"; measured {format_bytes(max(seen))}{too_much}" if seen else ""
    return f"Of all places up to {words_of(bound)}, {at} may need most: {sizes}{measured}."


def refuted(scaled: Scaled) -> list[str]:
    """The confirmed sizes outside of the law's intervals, and how wide the intervals are therefore: a sentence for each."""
    said = [
        f"The interval of {words_of(point.at)} is refuted: {format_bytes(prediction.low_bytes)} to {format_bytes(prediction.high_bytes)}, and "
        f"{format_bytes(point.sizes[scaled.main])} measured."
        for point, prediction in scaled.refutations
    ]
    return [*said, f"All intervals here are {scaled.widened:.1f} times as wide as the law's, to hold what was measured."] if said else []


# -- JSON


def _plain(scaled: Scaled) -> dict[str, Any]:
    laws = [{"name": named.name, "law": _law(named.law)} for named in scaled.laws]
    return {**to_builtins(replace(scaled, laws=(), planned=None)), "laws": laws, "planned": _law(scaled.planned)}


def _law(law: Law | None) -> Mapping[str, object] | None:
    if law is None:
        return None
    return {
        "text": sentence(law),
        "coefficients": [{**to_builtins(entry), "words": entry.term.words} for entry in law.coefficients],
        "error": law.error,
        "points": law.points,
        "ranges": law.ranges,
        "steps": law.steps,
        "simulated": law.simulated,
    }
