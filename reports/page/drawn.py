"""The figures that page.js draws. They travel as JSON of these types, in a script element of the page.

Figures are bytes and nanoseconds. A timeline's columns are base64 of little-endian unsigned
32-bit integers: ticks of `tick_ns` since the start of the run's first phase, and KiB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from msgspec import Struct

from memprof.records import metrics, summary
from memprof.records.types import Run

from .. import rows as naming
from ..columns import (
    Array,
    ColumnArrays,
    RunPhase,
    columns,
    device_over,
    polled_peak,
    run_peak,
    spans,
    thin,
    visible_devices,
    with_marks,
    zero_ns,
)
from ..standalone import packed
from ..tables import grid

# 16 bytes of the page a row: with these, timelines take about 4 MB of it however many runs there are.
_ROWS = 240_000
_MOST_ROWS_A_RUN = 4_000
_LEAST_ROWS_A_RUN = 40
_POINTS = 6_000  # iterations drawn as points on the whole page


class PhaseFigure(Struct, frozen=True):
    """A phase on a timeline. at_ns: when its highest sample was seen; polled: whether it was looked at while it ran; finished: whether it ended well:
    of a phase in which the run failed, the peak is what polling saw."""

    name: str
    begin_ns: int
    end_ns: int
    at_ns: int
    peak_bytes: int
    exact: bool
    polled: bool
    finished: bool


class Trace(Struct, frozen=True):
    """The timeline of a run. end: how the run ended, empty if it ended well. peak_phase: the phase of its peak."""

    repeat: int
    end: str
    peak_bytes: int
    peak_phase: str
    phases: tuple[PhaseFigure, ...]
    tick_ns: int
    t: str
    rss: str
    file: str
    device: str  # empty where none would be seen


class Latencies(Struct, frozen=True):
    """The timed iterations of all repeats: the median of the medians of those that ended well, as in the tables; smallest, quartiles and largest of
    all; and points (repeat, iteration, ns), thinned where many."""

    count: int
    median_ns: float
    box_ns: tuple[float, float, float, float, float]
    points: tuple[tuple[int, int, int], ...]


class RepeatGroup(Struct, frozen=True):
    """Repeats of a variant."""

    label: str
    traces: tuple[Trace, ...]
    latencies: Latencies | None


class ModelFigures(Struct, frozen=True):
    """A model and its groups."""

    name: str
    phases: tuple[str, ...]
    groups: tuple[RepeatGroup, ...]


class RunsPage(Struct, frozen=True):
    """All figures that are drawn. units, places: as grid.py has them."""

    models: tuple[ModelFigures, ...]
    units: Mapping[str, Mapping[str, Any]]
    places: Sequence[tuple[int, int]]


def page(by_model: Sequence[Sequence[Run]]) -> RunsPage:
    """The figures of these runs, a sequence a model. Raises InputError where a timeline is damaged."""
    rows = min(_MOST_ROWS_A_RUN, max(_LEAST_ROWS_A_RUN, _ROWS // sum(map(len, by_model))))
    points = max(50, _POINTS // sum(len(summary.groups(runs)) for runs in by_model))
    return RunsPage(tuple(_model(runs, rows, points) for runs in by_model), grid.UNITS, grid.PLACES)


def _model(runs: Sequence[Run], rows: int, points: int) -> ModelFigures:
    labels = naming.named(summary.groups(runs))
    groups = (
        RepeatGroup(labels[key], tuple(_trace(run, rows) for run in group), _latencies(group, points))
        for key, group in summary.groups(runs).items()
    )
    return ModelFigures(runs[0].job.model.name, tuple(summary.phases(runs, failed=True)), tuple(groups))


# -- latencies


def _latencies(runs: Sequence[Run], most: int) -> Latencies | None:
    points = [
        (run.job.repeat, number, time_ns)
        for run in runs
        if (mark := run.mark(summary.timed_phase(runs))) is not None
        for number, time_ns in enumerate(mark.times_ns, 1)
    ]
    if not points:
        return None
    times = [time_ns for _, _, time_ns in points]
    low, first, middle, third, high = (metrics.percentile(times, share) for share in (0, 0.25, 0.5, 0.75, 1))
    median = summary.iteration_ns(runs)  # None where no run ended well
    return Latencies(len(points), middle if median is None else median, (low, first, middle, third, high), tuple(_spread_out(points, most)))


def _spread_out(points: list[tuple[int, int, int]], most: int) -> list[tuple[int, int, int]]:
    """At most so many of the points, evenly by rank, the extremes among them."""
    if len(points) <= most:
        return points
    ranked = sorted(points, key=lambda point: point[2])
    return [ranked[round(place * (len(ranked) - 1) / (most - 1))] for place in range(most)]


# -- timelines


def _trace(run: Run, most: int) -> Trace:
    rows = _until_last_phase(run, columns(run.timeline, f"the timeline of {run.job.heading}, repeat {run.job.repeat},"))
    begin_ns = zero_ns(run, rows)
    chosen = spans(run, rows)
    phases = tuple(figure for span in chosen if (figure := _phase(span, rows, begin_ns)) is not None)
    highest = run_peak(run, rows, chosen)
    device = visible_devices(run.timeline)
    rows = thin(_with_steps(with_marks(run, rows), device[0]), most // 5, [(mark.begin_ns, mark.end_ns) for mark in run.marks])
    # A sample may precede the first phase by a moment.
    since = numpy.maximum(rows.t_ns - begin_ns, 0)
    tick_ns = 1_000 * (1 + int(since[-1]) // (1_000 * (2**32 - 1))) if len(since) else 1_000
    return Trace(
        repeat=run.job.repeat,
        end="" if run.outcome.ok else f"{run.outcome.word} {run.outcome.where}".rstrip(),
        peak_bytes=highest.bytes if highest is not None else run.timeline.rss_max_bytes,
        peak_phase=highest.phase if highest is not None else "",
        phases=phases,
        tick_ns=tick_ns,
        t=packed(since // tick_ns, "<u4"),
        rss=packed(rows.rss // 1024, "<u4"),
        file=packed(rows.file // 1024, "<u4"),
        device=packed(device_over(rows, device) // 1024, "<u4") if len(device[0]) else "",
    )


def _until_last_phase(run: Run, rows: ColumnArrays) -> ColumnArrays:
    """Columns without the samples after the last phase of a run that ended well: the process tearing itself down."""
    if not run.outcome.ok or not run.marks or not len(rows):
        return rows
    return rows.between(int(rows.t_ns[0]), max(mark.end_ns for mark in run.marks))


def _with_steps(rows: ColumnArrays, times: Array) -> ColumnArrays:
    """Columns with rows right before and at these times, on the lines between the others: what changes in steps there is drawn as steps."""
    inside = times[(times > rows.t_ns[0]) & (times < rows.t_ns[-1])] if len(rows) else times[:0]
    if not len(inside):
        return rows
    t_ns = numpy.unique(numpy.concatenate([rows.t_ns, inside - 1, inside]))
    return ColumnArrays(t_ns, *(numpy.interp(t_ns, rows.t_ns, column).astype(numpy.int64) for column in (rows.rss, rows.file, rows.vms)))


def _phase(span: RunPhase, rows: ColumnArrays, begin_ns: int) -> PhaseFigure | None:
    """None for a phase in which the run failed before it was polled."""
    mark, seen = span.mark, polled_peak(span, rows)
    if mark is None and seen is None:
        return None
    return PhaseFigure(
        name=span.phase,
        begin_ns=span.begin_ns - begin_ns,
        end_ns=span.end_ns - begin_ns,
        at_ns=(seen.t_ns if seen is not None else (span.begin_ns + span.end_ns) // 2) - begin_ns,
        peak_bytes=mark.height_bytes if mark is not None else seen.bytes if seen is not None else 0,
        exact=mark is not None and mark.sure,
        polled=mark is None or mark.interval_ns > 0,
        finished=mark is not None,
    )
