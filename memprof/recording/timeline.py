"""Samples over time in bounded memory, for a run of any length, without ever losing a maximum.

Only changes are kept: while nothing moves, a sample just extends the last one. When the columns are full, each group of ten neighbours is
thinned to those that hold an extreme of the group, at most five, at the times when they were really seen.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from binascii import b2a_base64
from collections.abc import Iterable, Sequence

CAPACITY = 20_000
_GROUP = 10
RSS, FILE, VMS = 2, 3, 4  # columns


class TimelineBuilder:
    """Columns of the time at which a reading began and ended, rss, file and vms (bytes), one row per change, times increasing."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._thinned = 0  # rows up to here are not all that there were
        self.columns = tuple(array("q") for _ in range(5))
        self._last: tuple[int, int, int] | None = None
        self._last_ns = self._first_ns = self._area = 0
        self._repeat: tuple[int, int] | None = None  # the newest reading, if it repeats the last one that was kept
        self.rss_min = self.rss_max = 0

    def __bool__(self) -> bool:
        return self._last is not None

    def add(self, begin_ns: int, end_ns: int, rss: int, file: int = 0, vms: int = 0) -> None:
        """Take a sample that was read between the two times, which increase."""
        values = (rss, file, vms)
        if self._last is None:
            self._first_ns = begin_ns
            self.rss_min = self.rss_max = rss
        else:
            self._area += self._last[0] * (begin_ns - self._last_ns)
            if rss < self.rss_min:
                self.rss_min = rss
            elif rss > self.rss_max:
                self.rss_max = rss
        if values == self._last:
            self._repeat = (begin_ns, end_ns)
        else:
            self._keep_repeat()  # the end of a level is a row too, so that a slope between two rows is a slope that was really there
            self._keep(begin_ns, end_ns, values)
        self._last, self._last_ns = values, begin_ns

    @property
    def last(self) -> tuple[int, int, int]:
        """(rss, file, vms) of the newest sample, zeros before the first."""
        return self._last or (0, 0, 0)

    def mean(self) -> int:
        """Mean RSS over all samples, each weighted by the time until the next, in bytes."""
        span = self._last_ns - self._first_ns
        return self._area // span if span > 0 else self.last[0]

    def highest(self, begin_ns: int, end_ns: int, column: int = RSS) -> int:
        """The largest RSS, or value of another column, that was read from begin_ns to end_ns; 0 if nothing was.

        A reading that is not wholly within these times may be of a moment outside of them, and does not count. Times between two
        readings that are the same have their value.
        """
        begins, ends, values = self.columns[0], self.columns[1], self.columns[column]
        next_ns, following = (self._repeat[0], self.last[column - RSS]) if self._repeat is not None else (0, None)
        best = 0
        for index in range(len(begins) - 1, -1, -1):
            value = values[index]
            until_ns = next_ns if value == following and index >= self._thinned else begins[index]
            if ends[index] <= end_ns and until_ns >= begin_ns:
                best = max(best, value)
            if begins[index] < begin_ns:
                break
            next_ns, following = begins[index], value
        return best

    def held(self, t_ns: int, until_ns: int, column: int = RSS) -> int:
        """The value of the newest row up to this time, 0 if there is none, or if another follows before until_ns."""
        begins = self.columns[0]
        for index in range(len(begins) - 1, -1, -1):
            if begins[index] <= t_ns:
                return self.columns[column][index]
            if begins[index] < until_ns:
                break
        return 0

    def encoded(self) -> dict[str, str]:
        """The columns as text, by name."""
        self._keep_repeat()
        return {name: packed(self.columns[place]) for name, place in (("t_ns", 0), ("rss", RSS), ("file", FILE), ("vms", VMS))}

    def _keep_repeat(self) -> None:
        if self._repeat is not None and self._last is not None:
            (begin_ns, end_ns), self._repeat = self._repeat, None
            self._keep(begin_ns, end_ns, self._last)

    def _keep(self, begin_ns: int, end_ns: int, values: tuple[int, int, int]) -> None:
        if len(self.columns[0]) >= self._capacity:
            self._thin()
        for column, value in zip(self.columns, (begin_ns, end_ns, *values), strict=True):
            column.append(value)

    def _thin(self) -> None:
        rss, file, vms = self.columns[RSS:]
        kept: list[int] = []
        for start in range(0, len(rss), _GROUP):
            group = range(start, min(start + _GROUP, len(rss)))
            chosen = {
                max(group, key=rss.__getitem__),
                min(group, key=rss.__getitem__),
                max(group, key=lambda index: rss[index] - file[index]),
                max(group, key=file.__getitem__),
                max(group, key=vms.__getitem__),
            }
            kept += sorted(chosen)
        for column in self.columns:
            column[:] = array("q", (column[index] for index in kept))
        self._thinned = len(kept)


def packed(column: Sequence[int] | Iterable[int]) -> str:
    """A column as text: base64 of zlib of the differences between neighbours as little-endian 64-bit integers."""
    values = array("q", column)
    for index in range(len(values) - 1, 0, -1):
        values[index] -= values[index - 1]
    if sys.byteorder != "little":
        values.byteswap()
    return b2a_base64(zlib.compress(values.tobytes(), 1), newline=False).decode("ascii")
