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

from .timeline import Timeline

_WIDE = 0.005  # bounds this far apart wait for a reading that brings them closer
_READINGS = 3  # readings that a sample waits for at most
_PENDING = 2000  # samples that wait for a reading of shares; beyond them the oldest have the bounds that are known without it


class Sum:
    """The sum over its members. settled: called with (t_ns, low, high, file-backed, vms) in bytes for each sample, in their order.

    Counts since the beginning, in bytes. gained, lost: by how much the overlap may have grown and shrunk; copied: the shrinking that was learnt
    from faults, later than it happened. missed: by how much a high-water mark was above all samples since the last reading.
    """

    def __init__(self, settled):
        self._settled = settled
        self._low = self._anon = self._file = 0  # the overlap: certain, and possible of anonymous and of file-backed pages
        self.gained = self.lost = self.copied = 0
        self.missed = 0
        self._pending = []
        self._repeated = False  # whether the last row that waits repeats the row before
        self.last = None  # (low, file-backed, vms) as of the last sample, as far as was known then
        self.several = False

    @property
    def overlap(self):
        """(certain, possible of anonymous pages, possible of file-backed pages) as of now, in bytes."""
        return self._low, self._anon, self._file

    @property
    def width(self):
        """How far apart the bounds are, in bytes, as of now."""
        return self._anon + self._file - self._low if self.several else 0

    @property
    def moved(self):
        """The bytes of all events that may have changed the overlap so far."""
        return self.gained + self.lost + self.copied

    def gain(self, certain, anon, file):
        """The overlap has grown by this much for certain, and by no more than this of anonymous and file-backed pages."""
        self._low += certain
        self._anon += anon
        self._file += file
        self.gained += anon + file

    def lose(self, size, known=None):
        """The overlap may have shrunk by `size`, now. known: the part of it that had been counted as certain, if not all."""
        self._low = max(0, self._low - (size if known is None else known))
        self.lost += size

    def copy(self, size):
        """Up to `size` has been copied on write since faults were last asked for."""
        self._low = max(0, self._low - size)
        self.copied += size

    def miss(self, size):
        """A high-water mark was `size` above all samples of its process since the last reading."""
        self.missed = max(self.missed, size)

    def forget(self, low, anon, file):
        """Begin again with other members, between which the overlap is between low and anon + file."""
        self.flush()
        self._low, self._anon, self._file = low, anon, file

    def sample(self, now, members):
        """Take the members' resident sets as they are now; there is at least one member."""
        total = most = files = most_file = vms = 0
        for node in members:
            total += node.rss
            files += node.file
            vms += node.vms
            if node.rss > most:
                most = node.rss
            if node.file > most_file:
                most_file = node.file
        self.several = len(members) > 1
        self._file = min(self._file, files - most_file)
        self._anon = min(self._anon, total - most)
        self._repeated = False
        self._pending.append(Row(now, total, most, files, most_file, vms, self))
        if not self.several:
            self.confirm(0, 0, 0)
            self.flush()  # no later reading can tell more of them
        elif len(self._pending) > _PENDING:
            self._settle(self._pending[: _PENDING // 2])
            self._pending = self._pending[_PENDING // 2 :]
        if self.several:
            self.last = (max(most, total - self._anon - self._file), max(most_file, files - self._file), vms)
        else:
            self.last = (total, files, vms)

    def again(self, now):
        """Nothing has changed since the last sample."""
        if not self.several:
            self._settled(now, self.last[0], self.last[0], *self.last[1:])
        elif self._pending:
            if not self._repeated:
                self._pending.append(self._pending[-1].copy())
            self._pending[-1].t_ns = now
            self._repeated = True

    def confirm(self, low, anon, file):
        """The overlap is known to lie between low and anon + file, now: this narrows the bounds, also those of samples that wait."""
        for row in self._pending:
            row.narrow(self, low, anon, file)
        if low <= self._anon + self._file and anon + file >= self._low:  # else the bounds so far have missed something
            low = max(low, self._low)
            anon, file = min(anon, self._anon), min(file, self._file)
        self._low, self._anon, self._file = min(low, anon + file), anon, file
        wide = next((place for place, row in enumerate(self._pending) if row.wide(self)), len(self._pending))
        self._settle(self._pending[:wide])
        self._pending = self._pending[wide:]  # the next reading may tell more of them
        self.missed = 0

    def at_least(self, low):
        """The overlap is known to be at least `low`, now; so are the samples that wait, less what it has grown since."""
        low = min(low, self._anon + self._file)
        for row in self._pending:
            row.raise_low(self, low)
        self._low = max(self._low, low)

    def flush(self):
        """Settle the samples that wait, with the bounds that are known."""
        self._settle(self._pending)
        self._pending = []

    def _settle(self, rows):
        for row in rows:
            self._settled(row.t_ns, *row.bounds(self), *row.others())
        if rows:
            self._repeated = False


class Row:
    """A sample, and the bounds of the overlap then. missed: how much more a process had between two samples."""

    __slots__ = (
        "anon",
        "copied",
        "file",
        "files",
        "gained",
        "known",
        "lost",
        "low",
        "missed",
        "most",
        "most_file",
        "readings",
        "t_ns",
        "total",
        "vms",
    )

    def __init__(self, t_ns, total, most, files, most_file, vms, whole):
        self.t_ns, self.total, self.most, self.files, self.most_file, self.vms = t_ns, total, most, files, most_file, vms
        self.low, self.anon, self.file = whole.overlap
        self.gained, self.lost, self.copied = whole.gained, whole.lost, whole.copied
        self.known = whole.copied  # copies up to here are in low
        self.missed = self.readings = 0

    def copy(self):
        """A second Row with the same values."""
        twin = Row.__new__(Row)
        for name in Row.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    def narrow(self, whole, low, anon, file):
        """Take the overlap of a later time: before, it was smaller by at most the gains since then, and larger by at most the losses."""
        back = whole.lost - self.lost + whole.copied - self.copied
        self.raise_low(whole, low)
        self.readings += 1
        self.anon, self.file = min(self.anon, anon + back, anon + file + back), min(self.file, file + back)
        if self.total > self.most:
            self.missed = max(self.missed, whole.missed)

    def raise_low(self, whole, low):
        """Take the least overlap of a later time."""
        self.low = max(self._low(whole), low - (whole.gained - self.gained))
        self.known = whole.copied

    def _low(self, whole):
        return max(0, self.low - (whole.copied - self.known))

    def bounds(self, whole):
        """(certain, possible) sum at the sample's time, in bytes."""
        high = min(self.anon + self.file, self.total - self.most)
        missed = max(self.missed, whole.missed) if self.total > self.most else 0
        return self.total - high, self.total - min(high, self._low(whole)) + missed

    def wide(self, whole):
        """Whether the bounds are so far apart that it is worth waiting for the next reading."""
        low, high = self.bounds(whole)
        return self.readings < _READINGS and high - low > _WIDE * low

    def others(self):
        """(file-backed, vms) at the sample's time, in bytes."""
        return min(self.total, max(self.most_file, self.files - self.file)), self.vms


class History:
    """A sum over time: its certain size as a timeline, and its possible size."""

    def __init__(self):
        self.timeline = Timeline()
        self.settled_ns = 0
        self.most = 0
        self.sum = Sum(self._settled)
        self._possible = Timeline()

    def _settled(self, t_ns, low, high, file, vms):
        self.timeline.add(t_ns, low, file, vms)
        self._possible.add(t_ns, high, 0, 0)
        self.settled_ns, self.most = t_ns, max(self.most, high)

    def highest(self, begin_ns, end_ns):
        """(certain, possible) largest sum from begin_ns to end_ns, in bytes; 0 if no sample lies between them."""
        return self.timeline.highest(begin_ns, end_ns), self._possible.highest(begin_ns, end_ns)
