"""Timelines as numpy arrays: unpacked at once, thinned for drawing without losing a maximum, and split into kinds of memory at a peak.

memprof.records.store.unpack does the first without numpy, for reports of a few timelines. This is for pictures of hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from msgspec import Struct
from numpy.typing import NDArray

from memprof.base.errors import InputError
from memprof.records import store
from memprof.records.types import RELEASE, Mark, Run, Timeline

Array = NDArray[numpy.int64]
_VISIBLE = 0.004  # of the highest curve: what is lower cannot be seen


class ColumnArrays(Struct, frozen=True):
    """A timeline's columns: t_ns on CLOCK_MONOTONIC, the rest in bytes; all of one length, times increasing."""

    t_ns: Array
    rss: Array
    file: Array
    vms: Array

    @property
    def anon(self) -> Array:
        """Memory that is neither file-backed nor shared. The kernel reads both counters one after the other, so a difference can be below 0."""
        anon: Array = numpy.maximum(self.rss - self.file, 0)
        return anon

    def __len__(self) -> int:
        return len(self.t_ns)

    def between(self, begin_ns: int, end_ns: int) -> ColumnArrays:
        """The rows from begin_ns to end_ns, both included."""
        low, high = numpy.searchsorted(self.t_ns, [begin_ns, end_ns + 1])
        return ColumnArrays(self.t_ns[low:high], self.rss[low:high], self.file[low:high], self.vms[low:high])


class Split(Struct, frozen=True):
    """The parts of a resident set, in bytes; `file` counts shared memory too."""

    anon: int
    file: int

    @property
    def total(self) -> int:
        return self.anon + self.file


def columns(timeline: Timeline, called: str = "a timeline") -> ColumnArrays:
    """The columns of a timeline. Raises InputError where they are damaged; `called` names the timeline in it."""
    return ColumnArrays(*_summed(store.unpacked(timeline, called), called))


def visible_devices(timeline: Timeline) -> tuple[Array, Array]:
    """Of device memory: the times at which it changed, and the bytes from there on; empty where there was none, or so little beside the resident set
    that nobody would see it. Raises InputError as `columns`."""
    t_ns, sizes = _summed(store.unpacked_devices(timeline), "a timeline")
    most = int(sizes.max()) if len(sizes) else 0
    return (t_ns, sizes) if most > _VISIBLE * max(timeline.rss_max_bytes, most) else (t_ns[:0], sizes[:0])


def device_over(rows: ColumnArrays, device: tuple[Array, Array]) -> Array:
    """The most device memory from the row before up to each row, in bytes, so that no maximum is lost."""
    t_ns, sizes = device
    if not len(t_ns):
        return numpy.zeros(len(rows), numpy.int64)
    after = numpy.searchsorted(t_ns, rows.t_ns, side="right")
    held = numpy.where(after > 0, sizes[numpy.maximum(after - 1, 0)], 0)
    before = numpy.concatenate([[0], after[:-1]])
    most = [int(sizes[low:high].max()) if high > low else 0 for low, high in zip(before, after, strict=True)]
    over: Array = numpy.maximum(held, numpy.array(most, dtype=numpy.int64))
    return over


def with_marks(run: Run, rows: ColumnArrays) -> ColumnArrays:
    """Columns with the child's own readings where its phases begin and end.

    No poll may have come near a border: a line from the poll before it to the poll after it would cross the phase's peak, or run aslant through a
    step.

    A mark is a reading of one process: the columns of several, which are of their sum, stay as they are.
    """
    if run.processes:
        return rows
    ends = [
        (mark.end_ns, mark.rss_end_bytes, parts.file, mark.vms_end_bytes or 0)
        for mark in run.marks
        if mark.rss_end_bytes is not None and (parts := at_end(mark)) is not None
    ]
    rows = _inserted(rows, ends)
    before = numpy.searchsorted(rows.t_ns, [mark.begin_ns for mark in run.marks], side="right") - 1
    begins = []
    for mark, row in zip(run.marks, before.tolist(), strict=True):
        if row < 0:
            continue
        # Of the begin only the resident set is known, and of an unpolled phase of an older file nothing: the rest is as it was.
        rss = mark.rss_begin_bytes if mark.rss_begin_bytes is not None else None if mark.interval_ns else int(rows.rss[row])
        if rss is not None:
            begins.append((mark.begin_ns, rss, min(int(rows.file[row]), rss), int(rows.vms[row])))
    return _inserted(rows, begins)


def _inserted(rows: ColumnArrays, readings: Sequence[tuple[int, int, int, int]]) -> ColumnArrays:
    """Columns with these readings of (t_ns, rss, file, vms) too, each behind the rows of its time."""
    samples = numpy.stack([rows.t_ns, rows.rss, rows.file, rows.vms], axis=1)
    merged = numpy.concatenate([samples, numpy.array(readings, dtype=numpy.int64).reshape(-1, 4)])
    return ColumnArrays(*merged[numpy.argsort(merged[:, 0], kind="stable")].T)


def _summed(packed: Sequence[bytes], called: str) -> list[Array]:
    steps = [numpy.frombuffer(data, dtype="<i8") for data in packed]
    if any(numpy.abs(column.astype(float)).sum() >= 2.0**63 for column in steps):
        raise InputError(f"{called} is damaged: its numbers are larger than any that was measured")
    return [numpy.cumsum(column, dtype=numpy.int64) for column in steps]


def zero_ns(run: Run, rows: ColumnArrays) -> int:
    """When a run's first phase began, or where it finished none its first sample, on CLOCK_MONOTONIC."""
    return run.marks[0].begin_ns if run.marks else int(rows.t_ns[0]) if len(rows) else 0


def thin(rows: ColumnArrays, buckets: int, phases: Sequence[tuple[int, int]] = ()) -> ColumnArrays:
    """At most five rows for each of `buckets` equal stretches of time, each at the time when it was seen.

    The first and last row stay. Of each stretch the rows stay that have its largest and smallest RSS, and its largest other columns.
    phases: the begin and end of each in ns. The row with the largest RSS of each phase stays too.
    """
    if len(rows) <= 5 * buckets:
        return rows
    span = max(int(rows.t_ns[-1] - rows.t_ns[0]), 1)
    bucket = (rows.t_ns - rows.t_ns[0]) * buckets // (span + 1)
    starts = numpy.flatnonzero(numpy.diff(bucket, prepend=-1))
    extremes = [_highest(column, starts) for column in (rows.rss, -rows.rss, rows.anon, rows.file, rows.vms)]
    limits = [numpy.searchsorted(rows.t_ns, [begin_ns, end_ns + 1]) for begin_ns, end_ns in phases]
    highest = [first + int(rows.rss[first:last].argmax()) for first, last in limits if last > first]
    chosen = numpy.unique(numpy.concatenate([*extremes, numpy.array([0, len(rows) - 1, *highest])]))
    return ColumnArrays(rows.t_ns[chosen], rows.rss[chosen], rows.file[chosen], rows.vms[chosen])


def _highest(column: Array, starts: Array) -> Array:
    """The row of the first largest value of each stretch that begins at one of `starts`."""
    lengths = numpy.diff(starts, append=len(column))
    largest = numpy.repeat(numpy.maximum.reduceat(column, starts), lengths)
    rows = numpy.flatnonzero(column == largest)
    stretch = numpy.searchsorted(starts, rows, side="right") - 1
    first: Array = rows[numpy.unique(stretch, return_index=True)[1]]
    return first


def at_end(mark: Mark) -> Split | None:
    """The parts of memory at a phase's end, None where they are not known."""
    if mark.anon_end_bytes is None or mark.file_end_bytes is None:
        return None
    return Split(mark.anon_end_bytes, mark.file_end_bytes + (mark.shmem_end_bytes or 0))


def split(mark: Mark, rows: ColumnArrays) -> Split | None:
    """The parts of memory nearest to a phase's peak, as far as was seen: at its highest sample or at its end.

    A high-water mark cannot be split; nobody saw the part of it above this total. None where nothing was seen.
    """
    splits = [parts] if (parts := at_end(mark)) is not None else []
    inside = rows.between(mark.begin_ns, mark.end_ns)
    if len(inside):
        top = int(inside.rss.argmax())
        splits.append(Split(int(inside.anon[top]), int(inside.rss[top] - inside.anon[top])))
    # A sample may lie a little above the peak where per-CPU counters were summed late; the peak is shown.
    return max((_within(parts, mark.height_bytes) for parts in splits), key=lambda parts: parts.total, default=None)


def _within(parts: Split, peak_bytes: int) -> Split:
    return parts if parts.total <= peak_bytes else Split(max(peak_bytes - parts.file, 0), min(parts.file, peak_bytes))


def typical(group: Sequence[Run]) -> Run:
    """The repeat that stands for all: of those that succeeded, that with the median PEAK (the lower of two), else the longest."""
    good = [run for run in group if run.complete and run.marks]
    if good:
        peaks = sorted(good, key=lambda run: run.height_bytes)
        return peaks[(len(peaks) - 1) // 2]
    return max(group, key=lambda run: (len(run.marks), run.timeline.samples))


class RunPhase(Struct, frozen=True):
    """A phase of a run: its times on CLOCK_MONOTONIC, and its mark, None for the phase in which the run failed."""

    phase: str
    begin_ns: int
    end_ns: int
    mark: Mark | None


def spans(run: Run, rows: ColumnArrays) -> list[RunPhase]:
    """The phases of a run in their order; the last may be the phase in which it failed, up to the last sample."""
    phases = [RunPhase(mark.phase, mark.begin_ns, mark.end_ns, mark) for mark in run.marks]
    if not run.outcome.ok and run.outcome.phase:
        end_ns = int(rows.t_ns[-1]) if len(rows) else 0
        begin_ns = phases[-1].end_ns if phases else int(rows.t_ns[0]) if len(rows) else 0
        phases.append(RunPhase(run.outcome.phase, begin_ns, max(begin_ns, end_ns), None))
    return phases


class Peak(Struct, frozen=True):
    """The largest phase peak of a run: how much, in which phase, and when: at its highest sample where polling came near it.

    seen_bytes: the most that polling saw in that phase, None where it did not look. shown: whether it came near, so that t_ns is the
    time of the peak; else t_ns is only the middle of the phase.
    """

    bytes: int
    phase: str
    t_ns: int
    seen_bytes: int | None
    shown: bool
    exact: bool


def peak(mark: Mark, rows: ColumnArrays, bound: int) -> Peak:
    """Where the peak of a phase lies. bound: how far a high-water mark can lie from the truth."""
    seen = polled_peak(RunPhase(mark.phase, mark.begin_ns, mark.end_ns, mark), rows)
    seen_bytes = seen.bytes if seen is not None else None
    near = seen is not None and mark.height_bytes - seen.bytes <= max(bound, mark.height_bytes // 200)
    if seen is not None and near:
        t_ns = seen.t_ns
    elif mark.rss_end_bytes is not None and mark.height_bytes - mark.rss_end_bytes <= bound:
        t_ns, near = mark.end_ns, True
    else:
        t_ns = (mark.begin_ns + mark.end_ns) // 2
    return Peak(mark.height_bytes, mark.phase, t_ns, seen_bytes, near, mark.sure)


def polled_peak(span: RunPhase, rows: ColumnArrays) -> Peak | None:
    """The most that polling saw of a phase, None where it did not look. Of a phase in which the run failed nothing else is known."""
    inside = rows.between(span.begin_ns, span.end_ns)
    if not len(inside):
        return None
    row = int(inside.rss.argmax())
    return Peak(int(inside.rss[row]), span.phase, int(inside.t_ns[row]), int(inside.rss[row]), shown=True, exact=False)


def run_peak(run: Run, rows: ColumnArrays, chosen: Sequence[RunPhase]) -> Peak | None:
    """The PEAK of a run in these phases of it, RELEASE only where there is no other; None where no phase ended and nothing was polled.

    A run that failed may have been higher in the phase in which it did than in any that it finished. Of that phase only what polling saw is known.
    """
    marks = [span.mark for span in chosen if span.mark is not None and span.mark.rss_peak_bytes is not None]
    before = [mark for mark in marks if mark.phase != RELEASE] or marks
    highest = whole_peak(before, rows, run.machine.peak_bound_bytes)
    failed = polled_peak(chosen[-1], rows) if chosen and chosen[-1].mark is None else None
    return failed if failed is not None and failed.bytes > (highest.bytes if highest else 0) else highest


def whole_peak(marks: Sequence[Mark], rows: ColumnArrays, bound: int) -> Peak | None:
    """The PEAK of some phases: that of the highest of them; None without a phase."""
    highest = max(marks, key=lambda mark: mark.height_bytes, default=None)
    return peak(highest, rows, bound) if highest is not None else None
