"""What a phase's memory was after each unit of its work, as the process itself read it, in bounded memory (runners/memprof_marks.py has the lines).

Rows are thinned by halving their rate: each second row is dropped when there is no more room, never the newest. Nothing is averaged, so the
curve keeps its steps and its slopes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from .fields import count
from .timeline import packed

ROWS = 1 << 15
UNITS = 8
_ANCHORS = 1 << 10
_MOST_NUMBERS = 1 << 13  # in one line
_FIXED = ("t_ns", "rss", "file", "swap")
_ANCHORED = ("iteration", "seen", "rss", "swap", "heap_used", "heap_free")


class NumberTable:
    """Rows of numbers in columns."""

    def __init__(self, capacity: int, width: int) -> None:
        self._capacity = capacity
        self.columns = [array("q") for _ in range(width)]

    def __len__(self) -> int:
        return len(self.columns[0])

    def widen(self) -> None:
        """One more column, with zeros so far."""
        self.columns.append(array("q", bytes(8 * len(self))))

    def add(self, row: Sequence[int]) -> None:
        """Add a row; each second one is dropped first if there is no room."""
        if len(self) == self._capacity:
            for column in self.columns:
                column[:] = column[1::2]
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)


class WorkCurve:
    """The curve of one phase. A phase that comes again continues it."""

    def __init__(self) -> None:
        self._units: list[str] = []
        self._rows = NumberTable(ROWS, len(_FIXED))
        self._anchors = NumberTable(_ANCHORS, len(_ANCHORED))
        self._heap = True
        self._before: dict[str, int] = {}  # what each unit had counted when the phase began again
        self._counts: dict[str, int] = {}

    @property
    def done(self) -> int:
        """How much of the first unit has been done."""
        return self._counts.get(self._units[0], 0) if self._units else 0

    def again(self) -> None:
        """The phase begins once more, and counts from 0."""
        self._before = dict(self._counts)

    def take(self, units: Sequence[str], values: Sequence[int]) -> None:
        """Take the numbers of a line, row by row. Raises ValueError for a line that is not whole, and for counts that no column holds."""
        width = len(_FIXED) + len(units)
        if not units or len(set(units)) != len(units) or len(values) % width or len(values) > _MOST_NUMBERS:
            raise ValueError("rows that are not whole")
        if len(set(units) | set(self._units)) > UNITS:
            raise ValueError("too many units")
        for unit in units:
            if unit not in self._units:
                self._units.append(unit)
                self._rows.widen()
        for start in range(0, len(values), width):
            row = values[start : start + width]
            for unit, total in zip(units, row[len(_FIXED) :], strict=True):
                self._counts[unit] = count(self._before.get(unit, 0) + total)
            self._rows.add([*row[: len(_FIXED)], *(self._counts.get(unit, 0) for unit in self._units)])

    def level_end(self) -> None:
        """Give the newest row the memory of the row before it, if it has less: what a program prints last is read while it frees all it has."""
        if len(self._rows) < 2:
            return
        _, *sizes = self._rows.columns[: len(_FIXED)]
        rss, _, swap = sizes
        if rss[-1] + swap[-1] < rss[-2] + swap[-2]:
            for column in sizes:
                column[-1] = column[-2]

    def anchor(self, values: Sequence[int | None]) -> None:
        """Take an exact look: the numbers of _ANCHORED, the last two None if the allocator does not tell."""
        self._heap = self._heap and None not in values
        iteration, *rest = (value or 0 for value in values)
        self._anchors.add([count(self._before.get("iteration", 0) + iteration), *rest])

    def encoded(self, phase: str) -> dict[str, object] | None:
        """The record, None if no unit was counted."""
        if len(self._rows) < 2:
            return None
        record: dict[str, object] = {"phase": phase, "units": self._units, "rows": len(self._rows)}
        columns = [packed(column) for column in self._rows.columns]
        record.update(zip(_FIXED, columns, strict=False))
        record["counts"] = columns[len(_FIXED) :]
        if len(self._anchors):
            kept = _ANCHORED if self._heap else _ANCHORED[:4]
            anchors: dict[str, object] = {name: packed(column) for name, column in zip(kept, self._anchors.columns, strict=False)}
            record["anchors"] = {**anchors, "rows": len(self._anchors)}
        return record
