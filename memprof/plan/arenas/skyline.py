"""Whether buffers fit into a capacity: exact search that fills the arena from the bottom.

The search of MiniMalloc (Moffitt, "MiniMalloc: a lightweight memory allocator for hardware-accelerated machine learning", ASPLOS 2023)
in the form of a skyline. Taken from there: only canonical solutions are looked at (every buffer lies on the floor or on another buffer),
time is reduced to the sections where a maximal set of buffers is alive, a section's waste may not exceed what the capacity leaves over its
load, of equal buffers the first goes first, and parts that are independent in time are solved apart. The branching differs: a valley of the
skyline, and in it the section with the fewest candidates, so that most steps are forced where nothing may be wasted. A dead end goes back to
the last decision that it rests on. After a number of steps the search starts again with another order of preference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec import Struct

from ..orders.problem import Buffer

_RESTART = 5000


class SkylinePacking(Struct, frozen=True):
    """offsets: in the unit of the sizes, by position in the given buffers, or None. impossible: it is proven that there are none."""

    offsets: tuple[int, ...] | None
    impossible: bool


def sections(buffers: Sequence[Buffer]) -> tuple[tuple[int, int], ...]:
    """For each buffer the first and last section in which it is alive. Sections are the maximal sets of buffers alive at once, in time."""
    events = sorted(
        [(buffer.lower, 1, index) for index, buffer in enumerate(buffers)]
        + [(buffer.upper, 0, index) for index, buffer in enumerate(buffers)]
    )
    first, last = [0] * len(buffers), [0] * len(buffers)
    count, grown = 0, False
    for _, begins, index in events:
        if begins:
            first[index], grown = count, True
        else:
            last[index] = count if grown else count - 1
            count, grown = count + grown, False
    return tuple(zip(first, last, strict=True))


def fit(buffers: Sequence[Buffer], capacity: int, max_steps: int, expired: Callable[[], bool], seed: int = 0) -> SkylinePacking:
    """Look for offsets of all buffers within `capacity`, in the unit of the sizes, for at most `max_steps` steps; deterministic but for
    `expired`. seed: which orders of preference to try; 0 begins with the plain order, the largest first."""
    search = _Search(buffers, capacity)
    if search.hopeless:
        return SkylinePacking(None, True)
    restart = 0
    while search.steps < max_steps and not expired():
        placed = search.attempt(min(_RESTART * _luby(restart + 1), max_steps - search.steps), seed + restart, expired)
        if placed is not None:
            return SkylinePacking(tuple(search.offsets) if placed else None, not placed)
        restart += 1
    return SkylinePacking(None, False)


def _luby(index: int) -> int:
    """1 1 2 1 1 2 4 ...: Luby, Sinclair and Zuckerman, "Optimal speedup of Las Vegas algorithms", 1993."""
    size = index.bit_length()
    return 1 << size - 1 if index == (1 << size) - 1 else _luby(index - (1 << size - 1) + 1)


class _Frame(Struct):
    """A decision: the choices left in its place, the sections as they were before it, and the earlier decisions (bits) that it and the failures
    under it rest on."""

    choices: list[int]
    taken: int
    undo: list[tuple[int, int, int, bool, int]]
    reason: int


class _Search:
    def __init__(self, buffers: Sequence[Buffer], capacity: int) -> None:
        spans = sections(buffers)
        self.capacity = capacity
        self.offsets = [0] * len(buffers)
        self.steps = 0
        self.first = [span[0] for span in spans]
        self.last = [span[1] for span in spans]
        self.sizes = [buffer.size for buffer in buffers]
        count = max(self.last, default=-1) + 1
        self.over: list[list[int]] = [[] for _ in range(count)]
        for index, (first, last) in enumerate(spans):
            for section in range(first, last + 1):
                self.over[section].append(index)
        self.loads = [sum(self.sizes[index] for index in alive) for alive in self.over]
        # The buffers that begin at a section, and those that have ended there.
        self.beginning: list[list[int]] = [[] for _ in range(count + 1)]
        self.ending: list[list[int]] = [[] for _ in range(count + 1)]
        for index, (first, last) in enumerate(spans):
            self.beginning[first].append(index)
            self.ending[last + 1].append(index)
        self.hopeless = any(load > capacity for load in self.loads)
        twins: dict[tuple[int, int, int], int] = {}
        # For each buffer the one like it that must be placed first, -1 where there is none.
        self.elder = [-1] * len(buffers)
        for index, key in enumerate(zip(self.first, self.last, self.sizes, strict=True)):
            self.elder[index] = twins.get(key, -1)
            twins[key] = index

    def attempt(self, limit: int, seed: int, expired: Callable[[], bool]) -> bool | None:
        """True where all buffers are placed, False where there is no way, None where `limit` steps did not decide."""
        count = len(self.over)
        self.sky = [0] * count
        self.slack = [self.capacity - load for load in self.loads]
        self.closed = [False] * count
        self.unplaced = [len(alive) for alive in self.over]
        self.causes = [0] * count
        self.placed = 0
        rng = random.Random(seed)
        noise = 0.0 if not seed else 0.3
        self.matching = seed % 4 != 3
        lengths = [last - first + 1 for first, last in zip(self.first, self.last, strict=True)]
        areas = [size * length for size, length in zip(self.sizes, lengths, strict=True)]
        # The most preferred buffer has the lowest rank.
        self.rank = [-key * (1 + noise * rng.random()) for key in (self.sizes, areas, lengths)[seed % 3]]
        frames: list[_Frame] = []
        used = 0
        while True:
            next_ = self._choices()
            if next_ is None:
                return True
            choices, reason = next_
            while not choices:
                if not frames:
                    return False
                frame = frames.pop()
                self._undo(frame.taken, frame.undo)
                if reason >> len(frames) & 1:
                    reason = frame.reason = frame.reason | reason & ~(1 << len(frames))
                    choices = frame.choices
            used += 1
            self.steps += 1
            if used > limit or (used & 255 == 0 and expired()):
                return None
            taken = choices.pop()
            frames.append(_Frame(choices, taken, self._take(taken, 1 << len(frames)), reason))

    def _take(self, taken: int, bit: int) -> list[tuple[int, int, int, bool, int]]:
        """Place a buffer at the bottom of its valley; or (numbers below 0) let nothing begin there in a section; or (numbers above those of
        buffers) raise a valley where nothing begins to the lower of its walls. Returns the sections as they were before."""
        sky, slack, closed, causes = self.sky, self.slack, self.closed, self.causes
        undo = []
        if taken < 0:
            undo.append((~taken, sky[~taken], slack[~taken], closed[~taken], causes[~taken]))
            closed[~taken] = True
            causes[~taken] |= bit
            return undo
        if taken >= len(self.sizes):
            begin = end = taken - len(self.sizes)
            height = sky[begin]
            while end < len(sky) and sky[end] == height:
                undo.append((end, height, slack[end], closed[end], causes[end]))
                end += 1
            wall = min(sky[begin - 1] if begin else self.capacity, sky[end] if end < len(sky) else self.capacity)
            for section in range(begin, end):
                sky[section], closed[section] = wall, False
                slack[section] -= wall - height
                causes[section] |= bit
            return undo
        first, last = self.first[taken], self.last[taken]
        height = sky[first]
        self.offsets[taken] = height
        top = height + self.sizes[taken]
        self.placed |= 1 << taken
        for section in range(first, last + 1):
            undo.append((section, height, slack[section], closed[section], causes[section]))
            self.unplaced[section] -= 1
            sky[section] = top if self.unplaced[section] else self.capacity
            closed[section] = False
            causes[section] |= bit
        return undo

    def _undo(self, taken: int, undo: list[tuple[int, int, int, bool, int]]) -> None:
        if 0 <= taken < len(self.sizes):
            self.placed &= ~(1 << taken)
            for section in range(self.first[taken], self.last[taken] + 1):
                self.unplaced[section] += 1
        for section, height, slack, closed, causes in undo:
            self.sky[section], self.slack[section], self.closed[section], self.causes[section] = height, slack, closed, causes

    def _choices(self) -> tuple[list[int], int] | None:
        """The choices in the valley that has fewest, the best last, and the decisions that made it so, as bits; None where all buffers are
        placed."""
        sky, capacity, count = self.sky, self.capacity, len(self.sky)
        best: list[int] | None = None
        valley = (0, 0)
        begin = 0
        while begin < count:
            height = sky[begin]
            end = begin + 1
            while end < count and sky[end] == height:
                end += 1
            wall_left = sky[begin - 1] if begin else capacity
            wall_right = sky[end] if end < count else capacity
            if height < capacity and wall_left > height and wall_right > height:
                choices = self._valley(begin, end, height, min(wall_left, wall_right))
                if best is None or len(choices) < len(best):
                    best, valley = choices, (begin, end)
                    if not best:
                        break
            begin = end
        if best is None:
            return None
        reason = 0
        for section in range(max(valley[0] - 1, 0), min(valley[1] + 1, count)):
            reason |= self.causes[section]
        if len(best) > 1:
            best.sort(
                key=lambda index: (index >= 0, self._flush(index, *valley) if index >= 0 and self.matching else 0, -self.rank[index], index)
            )
        return best, reason

    def _flush(self, index: int, begin: int, end: int) -> int:
        """On how many sides a buffer put into this valley would end level with the wall, at once or after one more buffer."""
        first, last, size, sky = self.first[index], self.last[index], self.sizes[index], self.sky
        top = sky[begin] + size
        sides = 0
        if first == 0 or last == len(sky) - 1:
            sides += 1
        if first > 0:
            over = top - sky[first - 1] if first == begin else size
            sides += over == 0 or self._waits(self.ending[first] if over > 0 else self.beginning[first], abs(over), index)
        if last < len(sky) - 1:
            over = top - sky[last + 1] if last == end - 1 else size
            sides += over == 0 or self._waits(self.beginning[last + 1] if over > 0 else self.ending[last + 1], abs(over), index)
        return sides

    def _waits(self, indices: list[int], size: int, other_than: int) -> bool:
        """Whether a buffer of this size, other than `other_than`, is among these and not yet placed."""
        placed, sizes = self.placed, self.sizes
        return any(sizes[index] == size and not placed >> index & 1 and index != other_than for index in indices)

    def _valley(self, begin: int, end: int, height: int, wall: int) -> list[int]:
        """The fewest choices at a section of a valley."""
        closed, slack, placed = self.closed, self.slack, self.placed
        first, last, sizes = self.first, self.last, self.sizes
        best: list[int] | None = None
        section = begin
        while section < end:
            if closed[section]:
                section += 1
                continue
            start = section
            while section < end and not closed[section]:
                section += 1
            for edge in {start, section - 1}:
                inside = 0
                choices = []
                for index in self.over[edge]:
                    if placed >> index & 1 or first[index] < begin or last[index] >= end:
                        continue
                    inside += sizes[index]
                    if first[index] >= start and last[index] < section and (self.elder[index] < 0 or placed >> self.elder[index] & 1):
                        choices.append(index)
                if inside + slack[edge] < wall - height:
                    return []
                free = slack[edge] > 0
                if best is None or len(choices) + free < len(best):
                    best = [~edge, *choices] if free else choices
                    if not best:
                        return best
        if best is not None:
            return best
        wasted = wall - height
        return [len(self.sizes) + begin] if all(slack[section] >= wasted for section in range(begin, end)) else []
