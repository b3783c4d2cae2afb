"""An allocation profile, whichever tool wrote it: snapshots over time, and trees of the places that hold the memory.

A tree is kept as massif writes it, *sites first*: the children of the root are the functions that allocate, the children of a node are its
callers, and a node's bytes include those of its children. A Shape turns it round where a view wants the program's entry first.
Trees are columns, so that a tree of a million nodes takes 16 MB and one of any depth needs no recursion. Sizes are bytes; times are in the
profile's own unit.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from .file_names import FileNames
from .frames import By, Frame
from .trees import CallTree

TimeUnit = Literal["i", "ms", "s", "B"]
_EMPTY_SHARE = 0.001


class Snapshot(Struct, frozen=True):
    """The heap at one moment.

    index: the tool's number. time: in HeapProfile.time_unit. until: if the tool knows only between which two times the moment lies, the later.
    heap_bytes: the blocks that the program asked for and holds. extra_bytes: the allocator's addition to them. stacks_bytes: 0 unless the tool
    looked. phase: in which it was taken, if that is known.
    """

    index: int
    time: float
    heap_bytes: int
    extra_bytes: int = 0
    stacks_bytes: int = 0
    tree: CallTree | None = None
    phase: str | None = None
    until: float | None = None

    @property
    def total_bytes(self) -> int:
        """All bytes that the tool counted at that moment."""
        return self.heap_bytes + self.extra_bytes + self.stacks_bytes


class PhaseSpan(Struct, frozen=True):
    """A phase of the program, in the profile's time unit. end is None if the profile ends within it. rss_peak_bytes: None if not known."""

    name: str
    begin: float
    end: float | None
    rss_peak_bytes: int | None = None


class HeapProfile(Struct, frozen=True, dict=True):
    """All that a tool wrote of one process.

    tool: massif, heaptrack, memray, pprof, tcmalloc, jemalloc, Go or torch. counts: a sentence on the blocks this tool counts. partial: why the
    profile does not reach the program's end, or None. started_ns: CLOCK_REALTIME at time 0, if it is known. phase_error: how far phase
    borders may be off against the snapshots, in the time unit; None if no phases are known. Without started_ns they are off to one side: the
    tool counts time from a moment after its launch.
    values: the names of the values that the file has of each block, of which this profile shows `value`; none if it has only one. total: for a
    profile of one moment, what its bytes are, in words that follow them; empty where snapshots show the total over time, and so a peak.
    """

    tool: str
    command: str
    description: str
    time_unit: TimeUnit
    counts: str
    snapshots: tuple[Snapshot, ...]
    frames: tuple[Frame, ...]
    path: str = ""
    phases: tuple[PhaseSpan, ...] = ()
    phase_error: float | None = None
    started_ns: int | None = None
    partial: str | None = None
    warnings: tuple[str, ...] = ()
    total: str = ""
    value: str = ""
    values: tuple[str, ...] = ()

    @property
    def peak(self) -> Snapshot:
        """The snapshot with the largest total, the true maximum of the recording; of several the first with a tree."""
        return max(self.snapshots, key=lambda snapshot: (snapshot.total_bytes, snapshot.tree is not None, -snapshot.index))

    @property
    def peak_tree(self) -> tuple[Snapshot, bool] | None:
        """The largest snapshot that has a tree, and whether it is as large as the peak; None if no snapshot has one."""
        return self._largest(self.snapshots)

    def largest_tree(self, phase: str) -> tuple[Snapshot, bool] | None:
        """The same among the snapshots of a phase, with that of the peak if it may lie there."""
        top = self.peak_tree
        peak = top[0] if top else None
        return self._largest(
            [
                snapshot
                for snapshot in self.snapshots
                if (phase in self.possible_phases(snapshot) if snapshot is peak else snapshot.phase == phase)
            ]
        )

    def possible_phases(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The phases in which a snapshot may lie, as exactly as the clocks are known; of a profile with several, those that can hold its bytes.

        A phase whose resident set stayed below the heap that the snapshot holds gives way to one whose resident set reached it.
        """
        if self.phase_error is None:
            return () if snapshot.phase is None else (snapshot.phase,)
        near = self.phases_nearby(snapshot)
        reached = [span for span in near if span.rss_peak_bytes is not None and span.rss_peak_bytes >= snapshot.heap_bytes]
        able = [span for span in near if span in reached or span.rss_peak_bytes is None] if reached else near
        return tuple(dict.fromkeys(span.name for span in able))

    @property
    def border_error(self) -> tuple[float, float]:
        """How far before its place and how far behind it a border of phases may lie, in the time unit; see phase_error."""
        error = self.phase_error or 0.0
        return error, 0.0 if self.started_ns is None else error

    @property
    def longest_phase(self) -> float:
        """The duration of the longest phase, in the time unit, 0 without phases. One that has no end lasts until the last snapshot."""
        last = max((snapshot.time for snapshot in self.snapshots), default=0.0)
        return max(((last if span.end is None else span.end) - span.begin for span in self.phases), default=0.0)

    @property
    def drawable_phases(self) -> tuple[PhaseSpan, ...]:
        """The phases, for a time axis; none if no phase took longer than its borders are uncertain, so that an axis could only mislead."""
        return self.phases if self.longest_phase > (self.phase_error or 0.0) else ()

    def phases_nearby(self, snapshot: Snapshot) -> list[PhaseSpan]:
        """The phases within the clocks' uncertainty of a snapshot's moment, without those that took a thousandth of it: nothing happens in them, as
        in PREPARE of onnxruntime-native."""
        before, after = self.border_error
        return self._within(snapshot, before, after)

    def phases_left(self, snapshot: Snapshot) -> list[PhaseSpan]:
        """The phases that had ended before a snapshot's moment only because borders are off to one side, in the order of their begins."""
        if self.started_ns is not None:
            return []
        spans = self._within(snapshot, 0.0, self.phase_error or 0.0)
        return [span for span in spans if span.end is not None and span.end < snapshot.time]

    def _within(self, snapshot: Snapshot, before: float, after: float) -> list[PhaseSpan]:
        """The phases that hold a snapshot's moment if their borders lie up to so much before their places, or up to so much behind."""
        error = self.phase_error or 0.0
        begin = snapshot.time - after
        end = (snapshot.time if snapshot.until is None else snapshot.until) + before
        spans, begins, reach = self._by_begin
        near, at = [], bisect_right(begins, end) - 1
        while at >= 0 and reach[at] >= begin:
            span = spans[at]
            if span.end is None or (span.end >= begin and span.end - span.begin >= _EMPTY_SHARE * error):
                near.append(span)
            at -= 1
        return near[::-1]

    @cached_property
    def _by_begin(self) -> tuple[list[PhaseSpan], list[float], list[float]]:
        """The phases in the order of their begins, these begins, and how far the phases up to each reach."""
        spans = sorted(self.phases, key=lambda span: span.begin)
        ends = (math.inf if span.end is None else span.end for span in spans)
        return spans, [span.begin for span in spans], list(accumulate(ends, max))

    @staticmethod
    def _largest(snapshots: Sequence[Snapshot]) -> tuple[Snapshot, bool] | None:
        trees = [snapshot for snapshot in snapshots if snapshot.tree is not None]
        if not trees:
            return None
        largest = max(trees, key=lambda snapshot: (snapshot.total_bytes, -snapshot.index))
        return largest, largest.total_bytes >= max(snapshot.total_bytes for snapshot in snapshots)

    @cached_property
    def file_names(self) -> FileNames:
        """The names of its source files in the views."""
        return FileNames(frame.file for frame in self.frames)

    def keys(self, by: By, fold: bool = True) -> tuple[list[int], list[str]]:
        """For each frame the number of its group, and the groups' names in full. fold: allocators' frames are -1, passed over."""
        from .names import group_name, is_allocator

        files = self.file_names
        numbers: dict[str, int] = {}
        group_of = []
        for frame in self.frames:
            if frame.kind == "root" or (fold and is_allocator(frame)):
                group_of.append(-1)
            else:
                group_of.append(numbers.setdefault(group_name(frame, by, files), len(numbers)))
        return group_of, list(numbers)
