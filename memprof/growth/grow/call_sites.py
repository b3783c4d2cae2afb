"""Which call sites hold the memory that rose, for an answer of `memprof grow`: the same work in one more process, under memray or heaptrack."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ...base.errors import InputError, MeasurementError
from ...base.leftovers import scratch
from ...base.units import format_bytes
from ...campaign.progress import Progress
from ...explain.growth import NAMES, GrowthParts
from ...explain.records import IN_USE
from ...heap import files, record
from ...heap.growth_sites import MOMENTS, Rises, rises
from ...heap.profile import HeapProfile
from ...heap.record import HeapRequest
from ...records import work
from ...records.types import Run
from ...records.work import Curve
from ...verdicts.growth import Verdict
from .grow import GrowRequest, GrowthAnswer, work_order

_ENOUGH_BYTES = 16 << 20  # what the tools see well
# Without the tool, which makes it longer: heaptrack's clock differs from memprof's by up to 0.3 s, memray's by 0.02 s.
_ENOUGH_NS = {"heaptrack": 4 * 10**9, "memray": 2 * 10**8}
_MOST_BYTES = 256 << 20
_LEAST_UNITS, _MOST_UNITS = 100, 100_000
_PLACES = 5


def check(request: GrowRequest) -> None:
    """Raises UsageError or InputError where no tool can record the work."""
    request.suite.place.only_here("--who, which records with memray or heaptrack,")
    _recording(request, 1, Path())


def explained(request: GrowRequest, answer: GrowthAnswer, progress: Progress) -> GrowthAnswer:
    """The answer with the places that rose, and what they tell among its remarks. Raises what heap.record.record and heap.growth_sites.rises
    raise."""
    verdict = answer.verdict
    if verdict.word != "grows":
        return replace(answer, remarks=(*answer.remarks, f"--who: it is {verdict.word}, so that no call site rises with it"))
    with scratch("who") as place:
        tool = _recording(request, 1, place.folder).tool
        assert tool is not None  # which is chosen in any case
        wanted = _recording(request, _units(answer, tool), place.folder / "recording", answer.fresh)
        recorded = record.record(wanted, progress)
        if not recorded.run.work:
            raise MeasurementError(f"--who: no unit of work was recorded: {recorded.partial or 'the program counted none'}")
        curve = work.curve_of(recorded.run)
        profile = files.read(recorded.files[0], files.ReaderChoice((curve.phase, MOMENTS)))
        risen = rises(profile, curve.phase, _done(recorded.run, profile, curve, verdict.unit))
    python = record.interpreter(wanted.order) if wanted.order is not None and recorded.tool == "heaptrack" else None
    sentences = _sentences(risen, recorded.tool, verdict, answer.why, python)
    return replace(answer, who=risen, remarks=(*answer.remarks, *sentences))


def _recording(request: GrowRequest, units: int, folder: Path, fresh: bool = False) -> HeapRequest:
    """The recording of so many units, with new inputs or without. Raises UsageError or InputError if neither memray nor heaptrack can make it."""
    order = work_order(request, units, fresh)
    wanted = HeapRequest(folder, order=order)
    tool, _ = record.choose(wanted, record.interpreter(order))
    if tool == "massif":
        raise InputError("--who needs memray (pip install memray, beside the runtime) or heaptrack (on Debian, apt-get install heaptrack)")
    return replace(wanted, tool=tool)


def _units(answer: GrowthAnswer, tool: str) -> int:
    """As many units as show the rise well: enough bytes, and enough time for the tool's moments."""
    curve = work.curve_of(answer.runs[0])
    units = next(iter(curve.counts.values()))[-1]
    each_ns = (curve.t_ns[-1] - curve.t_ns[0]) / max(units, 1)
    each_bytes = (curve.rss[-1] - curve.rss[0]) / max(units, 1)
    by_time = _ENOUGH_NS[tool] / max(each_ns, 1)
    wanted = max(by_time, _ENOUGH_BYTES / max(each_bytes, 1), _LEAST_UNITS)
    # More than were done before only as far as that takes no long time, and no more memory than any machine has.
    most = max(units, min(by_time, _MOST_BYTES / max(each_bytes, 1)), _LEAST_UNITS)
    return math.ceil(min(wanted, most, _MOST_UNITS))


def _done(run: Run, profile: HeapProfile, curve: Curve, unit: str) -> Callable[[float], float]:
    """How much of a unit was done at a time of the profile, by the phase's begin and end on both clocks."""
    span = next(span for span in profile.phases if span.name == curve.phase)
    mark = run.mark(curve.phase)
    counts = curve.counts.get(unit) or next(iter(curve.counts.values()))
    begin_ns, end_ns = (mark.begin_ns, mark.end_ns) if mark is not None else (curve.t_ns[0], curve.t_ns[-1])
    end = span.end if span.end is not None else profile.snapshots[-1].time

    def done(time: float) -> float:
        share = (time - span.begin) / max(end - span.begin, 1e-9)
        return float(np.interp(begin_ns + share * (end_ns - begin_ns), curve.t_ns, counts))

    return done


def _sentences(risen: Rises, tool: str, verdict: Verdict, why: GrowthParts | None, python: str | None) -> Iterator[str]:
    """What was recorded, for people. why: the two looks, if they were taken. python: the program's interpreter, if the tool sees no line of it."""
    each = f"each {verdict.unit}"
    if not risen.places:
        yield f"{tool}: the live bytes of no call site rise with {verdict.unit}s{_unexplained(tool, why)}."
    for place in risen.places[:_PLACES]:
        site, *callers = place.sites
        called = f", called by {', '.join(callers)}" if callers else ""
        yield f"{tool}: about {format_bytes(place.each_bytes)} {each} stay from {site}{called}."
    rest = risen.places[_PLACES:]
    if rest:
        yield f"{tool}: about {format_bytes(sum(place.each_bytes for place in rest))} {each} stay from {len(rest)} other call sites."
    if python is not None:
        yield f"memray is not installed in {python}: install '.[memray]' there to see lines of Python."


def _unexplained(tool: str, why: GrowthParts | None) -> str:
    """What follows where no call site rises: the tool sees malloc alone, and a short or uneven recording hides a rise from it."""
    if why is None:
        return "; --why tells whether what rose is in use"
    in_use_bytes = next((part.grown_bytes for part in why.parts if part.name == NAMES[IN_USE]), 0)
    if 2 * in_use_bytes >= why.grown_bytes:
        return f", though --why finds {format_bytes(in_use_bytes)} more in use by the program: {tool} did not see who holds them"
    return ": the rise is memory that was freed and kept by the allocator, or it is not from malloc; --why names the mappings that rise"
