"""The sum of some processes' resident sets, pages that they have in common counted once, as an interval from a certain to a possible size.

The kernel tells each process's resident set at once and cheaply, and its share (PSS) only slowly. So the sum is kept as the resident sets added
up, less their overlap: the bytes that are counted more than once. Few events change the overlap, and each is bounded when it happens:

    a process is forked         it begins with its parent's anonymous pages, less the pages that its own faults made since
    file-backed memory grows    the new pages may be another process's too, or not
    memory is dropped           pages that were shared may be among it; memory never known as shared is not
    a page is copied on write   the resident sets stay as they are; minor faults tell how many pages at most
    a process ends              its shared pages are counted once less

Anonymous memory that grows changes the overlap by nothing. A reading of all shares gives the overlap itself, wrong by no more than the events
while it was read. From there the same bounds hold backward in time: samples wait for the next reading, and then have the narrower of both bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .process import ProcessState
from .timeline import TimelineBuilder

_WIDE = 0.005  # bounds this far apart wait for a reading that brings them closer
_READINGS = 3  # readings that a sample waits for at most
_PENDING = 2000  # samples that wait for a reading of shares; beyond them the oldest have the bounds that are known without it

Interval = tuple[int, int]


class SumSample(Struct):
    """A sample, and the bounds of the overlap then: certain, possible of anonymous and of file-backed pages.

    gained, lost, copied: the counts of the sum at that time. known: the copies up to which `low` is right. missed: how much more a process had
    between two samples. readings: how many readings of shares it has waited for.
    """

    begin_ns: int
    end_ns: int
    total: int
    most: int
    files: int
    most_file: int
    vms: int
    low: int
    anon: int
    file: int
    gained: int
    lost: int
    copied: int
    known: int
    missed: int = 0
    readings: int = 0


class TreeSum:
    """The sum over its members. settled: called with (begin_ns, end_ns, low, high, file-backed, vms) in bytes for each sample, in their order.

    Counts since the beginning, in bytes. gained, lost: by how much the overlap may have grown and shrunk; copied: the shrinking that was learnt
    from faults, later than it happened. missed: by how much a high-water mark was above all samples since the last reading.
    """

    def __init__(self, settled: Callable[[int, int, int, int, int, int], None]) -> None:
        self._settled = settled
        self._low = self._anon = self._file = 0  # the overlap: certain, and possible of anonymous and of file-backed pages
        self._gained = self._lost = self._copied = 0
        self._missed = 0
        self._last_ns = 0
        self._lasts = True  # whether there are members since the last sample
        self._pending: list[SumSample] = []
        self._newest: SumSample | None = None  # the last sample of several
        self._ahead: list[SumSample] = []  # the same sample, with what was learnt after it and when
        self._repeats = False  # whether the last row that waits repeats the row before
        self.last: tuple[int, int, int] | None = None  # (low, file-backed, vms) as of the last sample, as far as was known then
        self.several = False

    @property
    def certain(self) -> int:
        """The least overlap, as of now, in bytes."""
        return self._low

    @property
    def width(self) -> int:
        """How far apart the bounds are, in bytes, as of now."""
        return self._anon + self._file - self._low if self.several else 0

    @property
    def moved(self) -> int:
        """The bytes of all events that may have changed the overlap so far."""
        return self._gained + self._lost + self._copied

    def gain(self, certain: int, anon: int, file: int) -> None:
        """The overlap has grown by this much for certain, and by no more than this of anonymous and file-backed pages."""
        self._low += certain
        self._anon += anon
        self._file += file
        self._gained += anon + file

    def lose(self, size: int, known: int | None = None) -> None:
        """The overlap may have shrunk by `size`, now. known: the part of it that had been counted as certain, if not all."""
        self._low = max(0, self._low - (size if known is None else known))
        self._lost += size

    def copy(self, size: int) -> None:
        """Up to `size` has been copied on write since faults were last read."""
        self._low = max(0, self._low - size)
        self._copied += size

    def miss(self, size: int) -> None:
        """A high-water mark was `size` above all samples of its process since the last reading."""
        self._missed = max(self._missed, size)

    def sample(self, begin_ns: int, end_ns: int, members: Sequence[ProcessState]) -> None:
        """Take the members' resident sets as they were read between the two times; there is at least one member."""
        self._last_ns, self._lasts = begin_ns, True
        self.several = len(members) > 1
        if not self.several:
            self._sample_one(begin_ns, end_ns, members[0])
            return
        total = sum(member.rss for member in members)
        files = sum(member.file for member in members)
        vms = sum(member.vms for member in members)
        most, most_file = max(member.rss for member in members), max(member.file for member in members)
        self._file = min(self._file, files - most_file)
        self._anon = min(self._anon, total - most)
        self._repeats = False
        bounds = (self._low, self._anon, self._file)
        counts = (self._gained, self._lost, self._copied, self._copied)
        self._newest, self._ahead = SumSample(begin_ns, end_ns, total, most, files, most_file, vms, *bounds, *counts), []
        self._pending.append(self._newest)
        if len(self._pending) > _PENDING:
            self._settle(self._pending[: _PENDING // 2])
            self._pending = self._pending[_PENDING // 2 :]
        self.last = (max(most, total - self._anon - self._file), max(most_file, files - self._file), vms)

    def _sample_one(self, begin_ns: int, end_ns: int, member: ProcessState) -> None:
        """The resident set of one process is the sum; no later reading can tell more of the samples that wait."""
        if self._pending or self._anon or self._file:
            self.confirm(0, 0, 0)
            self.flush()
        rss, file, vms = self.last = (member.rss, member.file, member.vms)
        self._settled(begin_ns, end_ns, rss, rss, file, vms)

    def end(self) -> None:
        """No member is left: the last sample lasts no longer than to the newest time at which it was extended."""
        self._lasts = False

    def extend(self, t_ns: int) -> None:
        """Nothing has changed since the last sample."""
        if self.last is None or not self._lasts or t_ns <= self._last_ns:
            return
        self._last_ns = t_ns
        if not self.several:
            self._settled(t_ns, t_ns, self.last[0], *self.last)
        elif self._newest is not None:  # it may have been settled meanwhile
            while self._ahead and self._ahead[0].begin_ns <= t_ns:
                self._newest, self._repeats = self._ahead.pop(0), False
            if not self._repeats:
                self._pending.append(replace(self._newest))
            self._pending[-1].begin_ns = self._pending[-1].end_ns = t_ns
            self._repeats = True

    def renew(self, t_ns: int) -> None:
        """What was learnt of the overlap by this time holds for the last sample where that is extended beyond it."""
        if self._newest is not None:
            row = replace(self._newest, begin_ns=t_ns, low=self._low, anon=self._anon, file=self._file)
            row.gained, row.lost, row.copied, row.known = self._gained, self._lost, self._copied, self._copied
            self._ahead.append(row)

    def confirm(self, low: int, anon: int, file: int) -> None:
        """The overlap is known to lie between low and anon + file, now: this narrows the bounds, also those of samples that wait."""
        for row in (*self._pending, *self._ahead):
            self._narrow(row, low, anon, file)
        if low <= self._anon + self._file and anon + file >= self._low:  # else the bounds so far have missed something
            low = max(low, self._low)
            anon, file = min(anon, self._anon), min(file, self._file)
        self._low, self._anon, self._file = min(low, anon + file), anon, file
        wide = next((place for place, row in enumerate(self._pending) if self._waits(row)), len(self._pending))
        self._settle(self._pending[:wide])
        self._pending = self._pending[wide:]  # the next reading may tell more of them
        self._missed = 0

    def at_least(self, low: int) -> None:
        """The overlap is known to be at least `low`, now; so are the samples that wait, less what it has grown since."""
        low = min(low, self._anon + self._file)
        for row in (*self._pending, *self._ahead):
            self._raise_low(row, low)
        self._low = max(self._low, low)

    def flush(self) -> None:
        """Settle the samples that wait, with the bounds that are known."""
        self._settle(self._pending)
        self._pending = []

    def _settle(self, rows: Sequence[SumSample]) -> None:
        for row in rows:
            file = min(row.total, max(row.most_file, row.files - row.file))
            self._settled(row.begin_ns, row.end_ns, *self._bounds(row), file, row.vms)
        if rows:
            self._repeats = False

    # -- rows that wait

    def _narrow(self, row: SumSample, low: int, anon: int, file: int) -> None:
        """Take the overlap of a later time: before, it was smaller by at most the gains since then, and larger by at most the losses."""
        back = self._lost - row.lost + self._copied - row.copied
        self._raise_low(row, low)
        row.readings += 1
        row.anon, row.file = min(row.anon, anon + back, anon + file + back), min(row.file, file + back)
        if row.total > row.most:
            row.missed = max(row.missed, self._missed)

    def _raise_low(self, row: SumSample, low: int) -> None:
        """Take the least overlap of a later time."""
        row.low = max(self._low_of(row), low - (self._gained - row.gained))
        row.known = self._copied

    def _low_of(self, row: SumSample) -> int:
        return max(0, row.low - (self._copied - row.known))

    def _bounds(self, row: SumSample) -> Interval:
        """(certain, possible) sum at the sample's time, in bytes."""
        high = min(row.anon + row.file, row.total - row.most)
        missed = max(row.missed, self._missed) if row.total > row.most else 0
        return row.total - high, row.total - min(high, self._low_of(row)) + missed

    def _waits(self, row: SumSample) -> bool:
        """Whether the bounds are so far apart that it is worth waiting for the next reading."""
        low, high = self._bounds(row)
        return row.readings < _READINGS and high - low > _WIDE * low


class SumHistory:
    """A sum over time: its certain size as a timeline, and its possible size."""

    def __init__(self) -> None:
        self.timeline = TimelineBuilder()
        self.settled_ns = 0
        self.most = 0
        self.sum = TreeSum(self._settled)
        self._possible = TimelineBuilder()

    def _settled(self, begin_ns: int, end_ns: int, low: int, high: int, file: int, vms: int) -> None:
        self.timeline.add(begin_ns, end_ns, low, file, vms)
        self._possible.add(begin_ns, end_ns, high)
        self.settled_ns, self.most = end_ns, max(self.most, high)

    def highest(self, begin_ns: int, end_ns: int) -> Interval:
        """(certain, possible) largest sum from begin_ns to end_ns, in bytes; 0 if no sample lies between them."""
        return self.timeline.highest(begin_ns, end_ns), self._possible.highest(begin_ns, end_ns)
