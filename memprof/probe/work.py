"""What a phase's memory was after each unit of its work, as the process itself read it, in bounded memory (runners/marks.py has the lines).

Rows are thinned by halving their rate: each second row is dropped when there is no more room, never the newest. Nothing is averaged, so the
curve keeps its steps and its slopes.
"""

from .timeline import numbers, packed

ROWS = 1 << 15
_ANCHORS = 1 << 10
UNITS = 8
_MOST_NUMBERS = 1 << 13  # in one line
_FIXED = ("t_ns", "rss", "file", "swap")
_ANCHORED = ("iteration", "seen", "rss", "swap", "heap_used", "heap_free")


class Table:
    """Rows of numbers in columns that are made once."""

    def __init__(self, capacity, width):
        self.capacity = capacity
        self.columns = [numbers(capacity) for _ in range(width)]
        self.rows = 0

    def add(self, row):
        if self.rows == self.capacity:
            self.rows //= 2
            for column in self.columns:
                for place in range(self.rows):
                    column[place] = column[2 * place + 1]
        for column, value in zip(self.columns, row):
            column[self.rows] = value
        self.rows += 1

    def encoded(self, place):
        return packed(self.columns[place][: self.rows])


class Work:
    """The curve of one phase. A phase that comes again continues it."""

    def __init__(self):
        self.units = []
        self.rows = Table(ROWS, len(_FIXED))
        self.anchors = Table(_ANCHORS, len(_ANCHORED))
        self._heap = True
        self._before = {}  # what each unit had counted when the phase began again
        self._counts = {}

    @property
    def done(self):
        """How much of the first unit has been done."""
        return self._counts.get(self.units[0], 0) if self.units else 0

    def again(self):
        """The phase begins once more, and counts from 0."""
        self._before = dict(self._counts)

    def take(self, units, values):
        """Take the numbers of a line, row by row. Raises ValueError for a line that is not whole."""
        width = len(_FIXED) + len(units)
        if not units or len(set(units)) != len(units) or len(values) % width or len(values) > _MOST_NUMBERS:
            raise ValueError("rows that are not whole")
        if len(set(units) | set(self.units)) > UNITS:
            raise ValueError("too many units")
        for unit in units:
            if unit not in self.units:
                self.units.append(unit)
                self.rows.columns.append(numbers(ROWS))
        for start in range(0, len(values), width):
            row = values[start : start + width]
            for unit, total in zip(units, row[len(_FIXED) :]):
                self._counts[unit] = self._before.get(unit, 0) + total
            self.rows.add([*row[: len(_FIXED)], *(self._counts.get(unit, 0) for unit in self.units)])

    def anchor(self, values):
        """Take an exact look: the numbers of _ANCHORED, the last two None if the allocator does not tell."""
        self._heap = self._heap and None not in values
        iteration = self._before.get("iteration", 0) + values[0]
        self.anchors.add([iteration, *(value or 0 for value in values[1:])])

    def encoded(self, phase):
        """The record, None if no unit was counted."""
        if self.rows.rows < 2:
            return None
        record = {"phase": phase, "units": self.units, "rows": self.rows.rows}
        for place, name in enumerate(_FIXED):
            record[name] = self.rows.encoded(place)
        record["counts"] = [self.rows.encoded(len(_FIXED) + place) for place in range(len(self.units))]
        if self.anchors.rows:
            kept = _ANCHORED if self._heap else _ANCHORED[:4]
            record["anchors"] = {name: self.anchors.encoded(place) for place, name in enumerate(kept)}
            record["anchors"]["rows"] = self.anchors.rows
        return record
