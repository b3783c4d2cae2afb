"""The figures that page.js draws. They travel as JSON of these types, in a script element of the page.

Figures are bytes and nanoseconds. A timeline's columns are base64 of little-endian unsigned
32-bit integers: ticks of `tick_ns` since the start of the run's first phase, and KiB.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from memprof.records import metrics, summary
from memprof.records.types import Mark, Run

from .. import rows as naming
from ..columns import columns as unpacked
from ..tables import grid

# 16 bytes of the page a row: with these, timelines take about 4 MB of it however many runs there are.
_ROWS = 240_000
_MOST_ROWS_A_RUN = 4_000
_LEAST_ROWS_A_RUN = 40
_POINTS = 6_000  # iterations drawn as points on the whole page

Numbers = NDArray[numpy.int64]


@dataclass(frozen=True)
class Phase:
    """A finished phase on a timeline. at_ns: when its highest sample was seen; polled: whether it was looked at while it ran."""

    name: str
    begin_ns: int
    end_ns: int
    at_ns: int
    peak_bytes: int
    exact: bool
    polled: bool


@dataclass(frozen=True)
class Trace:
    """The timeline of a run. end: how the run ended, empty if it ended well. peak_phase: the phase of its peak."""

    repeat: int
    end: str
    peak_bytes: int
    peak_phase: str
    phases: tuple[Phase, ...]
    tick_ns: int
    t: str
    rss: str
    file: str


@dataclass(frozen=True)
class Latencies:
    """The timed iterations of all repeats: smallest, quartiles and largest of all, and points (repeat, iteration, ns), thinned where many."""

    count: int
    box_ns: tuple[float, float, float, float, float]
    points: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Group:
    """Repeats of a variant."""

    label: str
    traces: tuple[Trace, ...]
    latencies: Latencies | None


@dataclass(frozen=True)
class Model:
    """A model and its groups."""

    name: str
    phases: tuple[str, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Page:
    """All figures that are drawn. units, places: as grid.py has them."""

    models: tuple[Model, ...]
    units: Mapping[str, Mapping[str, Any]]
    places: Sequence[tuple[int, int]]


def page(by_model: Sequence[Sequence[Run]]) -> Page:
    """The figures of these runs, a sequence a model. Raises InputError where a timeline is damaged."""
    rows = min(_MOST_ROWS_A_RUN, max(_LEAST_ROWS_A_RUN, _ROWS // sum(map(len, by_model))))
    points = max(50, _POINTS // sum(len(summary.groups(runs)) for runs in by_model))
    return Page(tuple(_model(runs, rows, points) for runs in by_model), grid.UNITS, grid.PLACES)


def _model(runs: Sequence[Run], rows: int, points: int) -> Model:
    labels = naming.named(summary.groups(runs))
    groups = (
        Group(labels[key], tuple(_trace(run, rows) for run in group), _latencies(group, points))
        for key, group in summary.groups(runs).items()
    )
    return Model(runs[0].job.model.name, tuple(naming.phases(runs)), tuple(groups))


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
    return Latencies(len(points), (low, first, middle, third, high), tuple(_spread_out(points, most)))


def _spread_out(points: list[tuple[int, int, int]], most: int) -> list[tuple[int, int, int]]:
    """At most so many of the points, evenly by rank, the extremes among them."""
    if len(points) <= most:
        return points
    ranked = sorted(points, key=lambda point: point[2])
    return [ranked[round(place * (len(ranked) - 1) / (most - 1))] for place in range(most)]


# -- timelines


def _trace(run: Run, rows: int) -> Trace:
    t, rss, file = _within(run, *_unpacked(run))
    begin_ns = run.marks[0].begin_ns if run.marks else int(t[0]) if len(t) else 0
    phases = tuple(_phase(mark, t, rss, begin_ns) for mark in run.marks)
    t, rss, file = _with_marks(run, t, rss, file)
    kept = thinned(t, rss, file, run.marks, rows)
    # A sample may precede the first phase by a moment.
    since = numpy.maximum(t[kept] - begin_ns, 0)
    tick_ns = 1_000 * (1 + int(since[-1]) // (1_000 * (2**32 - 1))) if len(since) else 1_000
    return Trace(
        repeat=run.job.repeat,
        end="" if run.outcome.ok else f"{run.outcome.word} {run.outcome.where}".rstrip(),
        peak_bytes=max((mark.height_bytes for mark in run.before_release), default=run.timeline.rss_max_bytes),
        peak_phase=summary.highest_phase(run),
        phases=phases,
        tick_ns=tick_ns,
        t=_packed(since // tick_ns),
        rss=_packed(rss[kept] // 1024),
        file=_packed(file[kept] // 1024),
    )


def _within(run: Run, t: Numbers, rss: Numbers, file: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Columns without the samples after the last phase of a run that ended well: the process tearing itself down."""
    if not run.outcome.ok or not run.marks:
        return t, rss, file
    last = int(numpy.searchsorted(t, max(mark.end_ns for mark in run.marks), "right"))
    return t[:last], rss[:last], file[:last]


def _with_marks(run: Run, t: Numbers, rss: Numbers, file: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Columns with the child's marks where phases end, and where unpolled phases begin: else lines would run aslant or stop short."""
    marked = [_row(mark.end_ns, mark) for mark in run.marks]
    marked += [_row(mark.begin_ns, before) for before, mark in zip(run.marks, run.marks[1:], strict=False) if not mark.interval_ns]
    rows = numpy.array([row for row in marked if row is not None], dtype=numpy.int64).reshape(-1, 3)
    if not len(rows):
        return t, rss, file
    merged = numpy.concatenate([numpy.stack([t, rss, file], axis=1), rows])
    t, rss, file = merged[numpy.argsort(merged[:, 0], kind="stable")].T
    return t, rss, file


def _row(t_ns: int, mark: Mark) -> tuple[int, int, int] | None:
    if mark.rss_end_bytes is None or mark.file_end_bytes is None:
        return None
    return t_ns, mark.rss_end_bytes, mark.file_end_bytes + (mark.shmem_end_bytes or 0)


def _phase(mark: Mark, t: Numbers, rss: Numbers, begin_ns: int) -> Phase:
    first, last = _rows_of(mark, t)
    at_ns = int(t[first + int(numpy.argmax(rss[first:last]))]) if last > first else (mark.begin_ns + mark.end_ns) // 2
    return Phase(
        mark.phase,
        mark.begin_ns - begin_ns,
        mark.end_ns - begin_ns,
        at_ns - begin_ns,
        mark.height_bytes,
        mark.sure,
        mark.interval_ns > 0,
    )


def _rows_of(mark: Mark, t: Numbers) -> tuple[int, int]:
    return int(numpy.searchsorted(t, mark.begin_ns, "left")), int(numpy.searchsorted(t, mark.end_ns, "right"))


def thinned(t: Numbers, rss: Numbers, file: Numbers, marks: Sequence[Mark], most: int) -> Numbers:
    """The rows to keep, about `most`: of each bucket of neighbours the extremes of RSS, anonymous and file-backed memory.

    The ends stay, and the highest row of each phase, so that no phase loses its maximum to a neighbour in its bucket.
    """
    if len(t) <= most:
        return numpy.arange(len(t))
    size = -(-4 * len(t) // most)
    starts = numpy.arange(0, len(t), size)
    anonymous = rss - file
    extremes = [starts + numpy.argmax(_buckets(column, size), axis=1) for column in (rss, -rss, anonymous, file)]
    phases = [first + int(numpy.argmax(rss[first:last])) for first, last in (_rows_of(mark, t) for mark in marks) if last > first]
    kept = numpy.concatenate([*extremes, numpy.array([0, len(t) - 1, *phases])])
    rows: Numbers = numpy.unique(numpy.minimum(kept, len(t) - 1))
    return rows


def _buckets(column: Numbers, size: int) -> Numbers:
    return numpy.pad(column, (0, -len(column) % size), mode="edge").reshape(-1, size)


def _unpacked(run: Run) -> tuple[Numbers, Numbers, Numbers]:
    if not run.timeline.samples:
        empty = numpy.zeros(0, dtype=numpy.int64)
        return empty, empty, empty
    rows = unpacked(run.timeline, f"the timeline of {run.job.heading}, repeat {run.job.repeat},")
    return rows.t_ns, rows.rss, rows.file


def _packed(column: Numbers) -> str:
    return base64.b64encode(column.astype("<u4").tobytes()).decode()
