"""Samples over time in bounded memory, for a run of any length, without ever losing a maximum.

Only changes are kept: while nothing moves, a sample just extends the last one. When the columns are full, each group of ten neighbours is
thinned to those that hold an extreme of the group, at most five, at the times when they were really seen.
"""

import mmap
import sys
import zlib
from binascii import b2a_base64

CAPACITY = 20_000
_GROUP = 10


class Timeline:
    """Columns t_ns, rss, file and vms (bytes), a row a change, times increasing."""

    def __init__(self, capacity=CAPACITY):
        if capacity < _GROUP:
            raise ValueError("a timeline needs room for %d samples" % _GROUP)
        self._capacity = capacity
        self.columns = tuple(numbers(capacity) for _ in range(4))
        self.rows = 0
        self._repeated_ns = None  # the time of the newest sample, if it repeats the last one that was kept
        self.count = 0
        self._first_ns = 0
        self._last = None
        self._area = 0
        self.rss_min = 0
        self.rss_max = 0

    def add(self, t_ns, rss, file, vms):
        """Take a sample; times must increase."""
        values = (rss, file, vms)
        if self.count == 0:
            self._first_ns = t_ns
            self.rss_min = self.rss_max = rss
        else:
            self._area += self._last[1][0] * (t_ns - self._last[0])
            if rss < self.rss_min:
                self.rss_min = rss
            elif rss > self.rss_max:
                self.rss_max = rss
        self.count += 1
        if self._last is not None and values == self._last[1]:
            self._repeated_ns = t_ns
        else:
            # The end of a level is a row too, so that a slope between two rows is a slope that was really there.
            if self._repeated_ns is not None:
                self._keep(self._repeated_ns, self._last[1])
                self._repeated_ns = None
            self._keep(t_ns, values)
        self._last = (t_ns, values)

    def close(self):
        """Take no more samples: the newest becomes a row."""
        if self._repeated_ns is not None:
            self._keep(self._repeated_ns, self._last[1])
            self._repeated_ns = None

    def mean(self):
        """Mean RSS over all samples, each weighted by the time until the next, in bytes."""
        if self.count < 2:
            return self._last[1][0] if self._last else 0
        return self._area // (self._last[0] - self._first_ns)

    def highest(self, begin_ns, end_ns, column=1):
        """The largest RSS, or value of another column, sampled from begin_ns to end_ns, 0 if no row lies between them."""
        times, values = self.columns[0], self.columns[column]
        best = self._last[1][column - 1] if self._repeated_ns is not None and begin_ns <= self._repeated_ns <= end_ns else 0
        for index in range(self.rows - 1, -1, -1):
            if times[index] < begin_ns:
                break
            if times[index] <= end_ns and values[index] > best:
                best = values[index]
        return best

    def encoded(self):
        """The columns as text: base64 of zlib of the differences between neighbours as little-endian 64-bit integers."""
        self.close()
        return {name: packed(column[: self.rows]) for name, column in zip(("t_ns", "rss", "file", "vms"), self.columns)}

    def _keep(self, t_ns, values):
        if self.rows >= self._capacity:
            self._thin()
        for column, value in zip(self.columns, (t_ns,) + values):
            column[self.rows] = value
        self.rows += 1

    def _thin(self):
        _, rss, file, vms = self.columns
        place = 0
        for start in range(0, self.rows, _GROUP):
            group = range(start, min(start + _GROUP, self.rows))
            chosen = {
                max(group, key=rss.__getitem__),
                min(group, key=rss.__getitem__),
                max(group, key=lambda index: rss[index] - file[index]),
                max(group, key=file.__getitem__),
                max(group, key=vms.__getitem__),
            }
            # In place: a row stays, or moves to the place of a row that is no longer wanted.
            for index in sorted(chosen):
                for column in self.columns:
                    column[place] = column[index]
                place += 1
        self.rows = place


def numbers(count):
    """Zeros, signed 64-bit integers, resident only as far as they are written to.

    The module array would serve too, but it imports collections: milliseconds of the probe's start.
    """
    return memoryview(mmap.mmap(-1, 8 * count, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)).cast("q")


def packed(column):
    """A column as text, see `encoded`."""
    steps = memoryview(bytearray(column)).cast("q")
    for index in range(len(steps) - 1, 0, -1):
        steps[index] -= steps[index - 1]
    data = steps if sys.byteorder == "little" else b"".join(step.to_bytes(8, "little", signed=True) for step in steps)
    return b2a_base64(zlib.compress(data, 1), newline=False).decode("ascii")
