"""Offsets for buffers with known lifetimes: the arena.

`greedy` follows TFLite's rule. `pack` looks for the smallest arena, or for an arena within a capacity, and states its proof: the load (the
most bytes alive at once) is a lower bound for any arena, and an exact search may raise it. The problem is NP-hard (dynamic storage
allocation, Garey and Johnson, SR2). A gap can therefore remain, and is stated.
"""

from __future__ import annotations

import importlib.util
import math
import time
from bisect import insort_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Literal

from msgspec import Struct

from ..orders.problem import Buffer
from . import skyline

Verdict = Literal["met", "impossible", "undecided"]

_ROUNDS = 14
_STEPS = 1500
_SOLVER_ROUND = 2
_FEW = 256  # of so many buffers a look at each takes less time than numpy's calls


class Packing(Struct, frozen=True):
    """offsets: in bytes, for each buffer in the order given. size_bytes: of the arena. No arena is below lower_bound_bytes; proven: this arena
    has that size. how: what found it and what proved it, in words."""

    offsets: tuple[int, ...]
    size_bytes: int
    lower_bound_bytes: int
    proven: bool
    how: str = ""

    def verdict(self, capacity: int) -> Verdict:
        """Whether a capacity of that many bytes was met, is proven impossible, or was not decided."""
        if self.size_bytes <= capacity:
            return "met"
        return "impossible" if self.lower_bound_bytes > capacity else "undecided"


def load(buffers: Iterable[Buffer]) -> int:
    """The most bytes alive at once: no arena can be smaller."""
    events = sorted(event for buffer in buffers for event in ((buffer.lower, 1, buffer.size), (buffer.upper, 0, -buffer.size)))
    alive = highest = 0
    for _, _, change in events:
        alive += change
        highest = max(highest, alive)
    return highest


def overlapping(buffers: Sequence[Buffer], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Two buffers, by position, that are alive at once and share a byte; None where the packing is valid."""
    order = sorted(range(len(buffers)), key=lambda index: buffers[index].lower)
    alive: list[int] = []
    for index in order:
        buffer, offset = buffers[index], offsets[index]
        alive = [other for other in alive if buffers[other].upper > buffer.lower]
        for other in alive:
            if offset < offsets[other] + buffers[other].size and offsets[other] < offset + buffer.size:
                return other, index
        alive.append(index)
    return None


def greedy(buffers: Sequence[Buffer], alignment: int = 1) -> Packing:
    """TFLite's rule (ArenaPlanner::CreateTensorAllocationVector and SimpleMemoryArena::Allocate in tensorflow/lite): buffers that
    live from the first step to the last go first, by id; then the largest, of equal sizes the earliest, then the lowest id. Each goes into the
    smallest gap that holds it, of equal gaps the lowest, else above all buffers alive with it.

    alignment: of offsets, in bytes; TFLite's is 64.
    """
    end = max((buffer.upper for buffer in buffers), default=0)

    def rank(index: int) -> tuple[int, int, int, int]:
        buffer = buffers[index]
        return (0, buffer.id, 0, 0) if buffer.lower == 0 and buffer.upper == end else (1, -buffer.size, buffer.lower, buffer.id)

    offsets = _place(buffers, sorted(range(len(buffers)), key=rank), alignment)
    size, bound = _size(buffers, offsets), load(buffers)
    return Packing(offsets, size, bound, size == bound, "greedy by size")


def _size(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    return max((offset + buffer.size for buffer, offset in zip(buffers, offsets, strict=True)), default=0)


def _place(buffers: Sequence[Buffer], order: Sequence[int], alignment: int = 1, best_fit: bool = True) -> tuple[int, ...]:
    """Place buffers in this order, each into the smallest gap (or the lowest) among the buffers that it is alive with."""
    if len(buffers) <= _FEW:
        return _place_few(buffers, order, alignment, best_fit)
    import numpy as np

    # Rows: lower, upper, start and end of the placed buffers, sorted by start.
    table = np.zeros((4, len(buffers)), dtype=np.int64)
    # From moment to moment, of the placed buffers: the bytes alive, and where the highest of them ends. Where they are the same there is no gap.
    moments = np.unique([moment for buffer in buffers for moment in (buffer.lower, buffer.upper)])
    spans = moments.searchsorted([(buffer.lower, buffer.upper) for buffer in buffers])
    loads, tops = np.zeros((2, len(moments)), dtype=np.int64)
    offsets = [0] * len(buffers)
    for placed, index in enumerate(order):
        buffer = buffers[index]
        lower, upper, start, end = table[:, :placed]
        span = slice(*spans[index])
        top = int(tops[span].max(initial=0))
        offset = -(-top // alignment) * alignment
        if top and not (buffer.size and (loads[span] == top).any()):
            alive = ((lower < buffer.upper) & (upper > buffer.lower)).nonzero()[0]
            floors = np.maximum.accumulate(end[alive])
            if alignment > 1:
                floors = -(-floors // alignment) * alignment
            room = start[alive]
            room[1:] -= floors[:-1]
            fitting = (room >= buffer.size).nonzero()[0]
            if fitting.size:
                chosen = int(fitting[room[fitting].argmin()] if best_fit else fitting[0])
                offset = int(floors[chosen - 1]) if chosen else 0
        offsets[index] = offset
        at = int(start.searchsorted(offset))
        table[:, at + 1 : placed + 1] = table[:, at:placed]
        table[:, at] = buffer.lower, buffer.upper, offset, offset + buffer.size
        loads[span] += buffer.size
        tops[span] = np.maximum(tops[span], offset + buffer.size)
    return tuple(offsets)


def _place_few(buffers: Sequence[Buffer], order: Sequence[int], alignment: int, best_fit: bool) -> tuple[int, ...]:
    """`_place` by a look at each placed buffer."""
    offsets = [0] * len(buffers)
    placed: list[tuple[int, int, int, int]] = []  # start, end, lower, upper, sorted by start
    for index in order:
        buffer = buffers[index]
        lower, upper, size = buffer.lower, buffer.upper, buffer.size
        floor = 0  # where all that lies below ends, aligned
        gap: tuple[int, int] | None = None  # its room, its offset
        for start, end, begins, ends in placed:
            if begins < upper and ends > lower:
                room = start - floor
                if room >= size and (gap is None or (best_fit and room < gap[0])):
                    gap = room, floor
                if end > floor:
                    floor = -(-end // alignment) * alignment
        offset = floor if gap is None else gap[1]
        offsets[index] = offset
        insort_left(placed, (offset, offset + size, lower, upper), key=itemgetter(0))
    return tuple(offsets)


def pack(
    buffers: Sequence[Buffer],
    time_limit_s: float = 10.0,
    capacity: int | None = None,
    solver: bool = True,
    first: Packing | None = None,
) -> Packing:
    """The smallest arena that could be found, or with a capacity (bytes) the first that fits it.

    Heuristics come first: placing by size, area, lifetime, start and end. Then follow exact search within capacities between bound and best
    (skyline.py), in rounds of growing effort, and ortools' CP-SAT where it is installed and `solver` allows it. Work is counted in steps. A time
    limit that is reached can only leave a gap, which the result states. first: what `greedy` makes of the same buffers, where that is known.
    """
    end = time.monotonic() + time_limit_s

    def expired() -> bool:
        return time.monotonic() > end

    state = _Packer(buffers, capacity)
    state.heuristics(first or greedy(buffers), expired)
    installed = solver and importlib.util.find_spec("ortools") is not None
    for round_ in range(_ROUNDS):
        if state.done or expired():
            break
        state.search(_STEPS << 2 * round_, 100 * round_, expired)
        if installed and round_ == _SOLVER_ROUND:
            state.solve((end - time.monotonic()) * 2 / 3)
    return state.packing()


class _Packer:
    """The best packing and the best bound so far. Parts that share no moment are searched apart. Sizes are counted in their greatest common
    divisor."""

    def __init__(self, buffers: Sequence[Buffer], capacity: int | None) -> None:
        self.unit = math.gcd(*(buffer.size for buffer in buffers)) or 1
        self.given = buffers
        self.buffers = [Buffer(buffer.id, buffer.lower, buffer.upper, buffer.size // self.unit) for buffer in buffers]
        self.parts = _apart(self.buffers)
        self.bounds = [load([self.buffers[index] for index in part]) for part in self.parts]
        self.goal = None if capacity is None else capacity // self.unit
        self.offsets: tuple[int, ...] = tuple(0 for _ in buffers)
        self.size = sum(buffer.size for buffer in self.buffers) + 1
        self.how = ""
        self.proof = "the load"

    @property
    def bound(self) -> int:
        return max(self.bounds, default=0)

    @property
    def done(self) -> bool:
        return self.size <= self.bound or (self.goal is not None and (self.size <= self.goal or self.bound > self.goal))

    def packing(self) -> Packing:
        offsets = tuple(offset * self.unit for offset in self.offsets)
        proven = self.size <= self.bound
        how = f"{self.how}; proven by {self.proof}" if proven else f"{self.how}; the search for a proof was not finished"
        return Packing(offsets, self.size * self.unit, self.bound * self.unit, proven, how if self.given else "there is nothing to place")

    def heuristics(self, first: Packing, expired: Callable[[], bool]) -> None:
        keys: tuple[tuple[str, Callable[[Buffer], tuple[int, ...]]], ...] = (
            ("by size", lambda buffer: (-buffer.size, buffer.lower)),
            ("by area", lambda buffer: (-buffer.size * (buffer.upper - buffer.lower), buffer.lower)),
            ("by lifetime", lambda buffer: (buffer.lower - buffer.upper, -buffer.size)),
            ("by start", lambda buffer: (buffer.lower, -buffer.size)),
            ("by end", lambda buffer: (-buffer.upper, -buffer.size)),
        )
        if not self.buffers:
            self.size = 0
            return
        self.take([offset // self.unit for offset in first.offsets], "greedy by size")
        for name, key in keys:
            for best_fit in (True, False):
                if self.done or expired():
                    return
                order = sorted(range(len(self.buffers)), key=lambda index: (*key(self.buffers[index]), index))
                self.take(_place(self.buffers, order, best_fit=best_fit), f"placing {name}")

    def take(self, offsets: Sequence[int], how: str) -> None:
        """Keep a packing if it is better."""
        size = _size(self.buffers, offsets)
        if size < self.size:
            self.offsets, self.size, self.how = tuple(offsets), size, how

    def search(self, steps: int, seed: int, expired: Callable[[], bool]) -> None:
        """Exact search within one capacity after the other, from the bound up to the best arena so far."""
        for share in (0.0,) if self.goal is not None else (0.0, 0.25, 0.5, 0.75, 1.0):
            if self.done or expired():
                return
            low, high = self.bound, self.size - 1
            capacity = self.goal if self.goal is not None else low + int((high - low) * share)
            assert capacity is not None
            self.attempt(capacity, partial(skyline.fit, capacity=capacity, max_steps=steps, expired=expired, seed=seed), "exact search")

    def attempt(self, capacity: int, fit: Callable[[Sequence[Buffer]], skyline.SkylinePacking], how: str) -> None:
        """Try every part that is above the capacity, and keep the offsets and bounds that come of it."""
        offsets = list(self.offsets)
        for number, part in enumerate(self.parts):
            members = [self.buffers[index] for index in part]
            if _size(members, [offsets[index] for index in part]) <= capacity:
                continue
            placed = fit(members)
            if placed.impossible and capacity + 1 > self.bounds[number]:
                if capacity + 1 > self.bound:
                    self.proof = how
                self.bounds[number] = capacity + 1
            if placed.offsets is None:
                return
            for index, offset in zip(part, placed.offsets, strict=True):
                offsets[index] = offset
        self.take(offsets, how)

    def solve(self, seconds: float) -> None:
        """CP-SAT, for the goal where there is one, else for the bound and then for the smallest arena."""
        if self.done or seconds <= 0:
            return
        from . import cpsat

        end = time.monotonic() + seconds
        capacity = self.goal if self.goal is not None else self.bound
        until = end if self.goal is not None else time.monotonic() + seconds / 2
        self.attempt(capacity, lambda part: cpsat.fit(part, capacity, until - time.monotonic()), "CP-SAT")
        if not self.done and self.goal is None and time.monotonic() < end:
            members = max(
                self.parts, key=lambda part: _size([self.buffers[index] for index in part], [self.offsets[index] for index in part])
            )
            hints = [self.offsets[index] for index in members]
            smallest = cpsat.smallest([self.buffers[index] for index in members], hints, self.bound, self.size - 1, end - time.monotonic())
            if smallest.offsets is not None:
                offsets = list(self.offsets)
                for index, offset in zip(members, smallest.offsets, strict=True):
                    offsets[index] = offset
                self.take(offsets, "CP-SAT")
            number = self.parts.index(members)
            if smallest.bound > self.bounds[number]:
                self.bounds[number], self.proof = min(smallest.bound, self.size), "CP-SAT"


def _apart(buffers: Sequence[Buffer]) -> list[list[int]]:
    """The buffers, by position, in groups that share no moment."""
    groups: list[list[int]] = []
    until = -1
    for index in sorted(range(len(buffers)), key=lambda index: buffers[index].lower):
        if not groups or buffers[index].lower >= until:
            groups.append([])
        groups[-1].append(index)
        until = max(until, buffers[index].upper)
    return groups
