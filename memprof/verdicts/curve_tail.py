"""The tail of a curve of memory by work: its level, its slope, and whether it rises, is flat, or slows down.

The slope is the median of the slopes of all pairs of points (Theil 1950, Sen 1968), and its interval a block bootstrap of what is left over
(Künsch 1989). A tail rises if its slope is above zero in each of its halves, if its least values rise too (a garbage collector's saw-tooth has
slopes, but comes down again), and if its second half is no slower than its first (a cache that fills up is). Memory that comes in few large steps,
as from a pool that doubles, rises if it does so in each of the last doublings of the work, at one rate.

A tail that reached its last new height long ago has stopped: what a leak adds would have set others since. That tells the bound of a cache, which
fills evenly and then keeps its size. It takes heights at even distances before: those of a pool that doubles are further apart each time.

A tail that comes down to the same level in three of its quarters, the last among them, is flat however it moves above: what a leak holds is never
given back, and would lie under all of it.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST_POINTS = 4  # of a slope
_POINTS = 48  # of a tail, each the median of its rows
_RESAMPLES = 150
_BLOCK = 4  # neighbouring points that are drawn together
_SURE = 0.95
# A tail is flat if it rises by no more than this, in bytes or in bytes per unit: a library's code that is used late comes 64 KiB at a time.
LEAST_RISE, LEAST_SLOPE = 256 << 10, 64.0
_LEAST_PAGES, _LEAST_STEPS = 4, 3  # of a rise, and of each of its halves
_EVEN = 0.03  # the scatter of a leak of one page after another, as a share of its rise
SLOWER = 0.9  # the second half's slope over the first's, from where on a rise slows down
_DOUBLINGS, _UNEVEN = 4, 2.2
_LEAST_ROWS = 100  # of a tail whose least values are compared
_QUARTERS, _AGREEING = 4, 3  # so many of them come down to one level
_LEVEL = 1 / 8  # how far apart that is, as a share of what a flat tail may rise by
_HEIGHT = 0.03  # of the whole rise, from one new height to the next
_LEAST_HEIGHTS = 6  # of a rise that is more than a few steps
_PAUSE, _LEAST_PAUSE = 3.0, 1 / 8  # since the last height: times the longest before it, and as a share of the tail
_BOUND_PAUSE = 6.0  # as _PAUSE, for a bound: a pool that becomes four times as large has pauses four times as long
BOUND_SHARE = 0.6  # of the work, within which a bound must be reached: then it held for long enough


class Tail:
    """The part of a curve from some amount of work on."""

    def __init__(self, done: NDArray[Any], size: NDArray[Any], begin: float, floor: float) -> None:
        first = int(np.searchsorted(done, begin))
        self.done, self.size, self.floor = done[first:], size[first:], floor
        self.begin, self.length = begin, float(done[-1] - begin)
        self.x, self.y = points_of(self.done, self.size)
        self.slope, self.low, self.high = slope_of(self.x, self.y)
        self.lows = [float(part.min()) for part in np.array_split(self.y, 4)]
        eighth = max(1, len(self.y) // 8)
        self.rise = float(np.median(self.y[-eighth:]) - np.median(self.y[:eighth]))
        self.step = floor / self.length  # the slope of a floor over the whole tail

    @cached_property
    def halves(self) -> list[tuple[float, float, float]]:
        half = len(self.x) // 2
        return [slope_of(self.x[:half], self.y[:half]), slope_of(self.x[half:], self.y[half:])]

    @property
    def flat(self) -> bool:
        """It has one level, and no rise that matters can hide in its scatter."""
        return not self.rises and ((self.rise <= self._allowed and self.high * self.length <= 4 * self._allowed) or self.comes_down)

    @property
    def _allowed(self) -> float:
        """By how much a flat tail may rise, in bytes."""
        return max(LEAST_RISE, LEAST_SLOPE * self.length, self.floor)

    @cached_property
    def comes_down(self) -> bool:
        """The least of a quarter's rows, which all of the memory that is never given back is part of, is the same for all quarters but one at most.

        That one may lie above or below: a level that is rarely reached is missed in some quarter, or reached in that one alone. The last quarter
        must be among the others, since memory that rose late is in no other. More than half of the rows must lie above the level by more than the
        quarters differ: this is for memory that moves.
        """
        if len(self.size) < _LEAST_ROWS or len(self._level) < _AGREEING:
            return False
        least = [self.least[quarter] for quarter in self._level]
        return least[-1] <= least[0] + self.floor and float(np.median(self.size)) > max(least) + max(least) - min(least)

    @cached_property
    def least(self) -> list[float]:
        """The least of the rows of each quarter."""
        return [float(part.min()) for part in np.array_split(self.size, _QUARTERS)]

    @cached_property
    def _level(self) -> list[int]:
        """The quarters that come down to the level to which the last does."""
        allowed = max(self.floor, _LEVEL * min(LEAST_RISE, LEAST_SLOPE * self.length))
        return [quarter for quarter, least in enumerate(self.least) if abs(least - self.least[-1]) <= allowed]

    @property
    def most(self) -> float:
        """The most that a flat tail may grow by each unit."""
        if not self.comes_down:
            return max(self.high, self.rise / self.length, 0.0) + self.step
        # The least of two quarters are as far apart as the quarters between them are long.
        between = (self._level[-1] - self._level[0] - 1) * self.length / _QUARTERS
        least = [self.least[quarter] for quarter in self._level]
        return (max(least) - min(least) + self.floor) / between

    @cached_property
    def rises(self) -> bool:
        lows = self.lows[-1] - self.lows[0]
        return (
            self.low > 0
            and self._matters
            and all(before < after for before, after in pairwise(self.lows))
            and lows >= 0.4 * self.slope * self.length
            and all(int((np.diff(part) > 0).sum()) >= _LEAST_STEPS for part in np.array_split(self.y, 2))
            and all(low > 0 for _, low, _ in self.halves)
            and not self.slows
            and not self.stopped
            and not self.comes_down
        )

    @property
    def _matters(self) -> bool:
        """A small rise counts only if it is as even as no few steps by chance are."""
        rise = self.slope * self.length
        rest = self.y - self.slope * self.x
        even = float(np.mean(np.abs(rest - np.median(rest)))) <= _EVEN * rise
        return rise >= (_LEAST_PAGES * self.floor if even else max(LEAST_RISE, _LEAST_PAGES * self.floor))

    @property
    def slows(self) -> bool:
        (first, first_low, _), (second, _, second_high) = self.halves
        return first > 0 and second < SLOWER * first and second_high < first_low

    @property
    def stopped(self) -> bool:
        """It rose evenly, and has risen no more for a while."""
        heights = _heights(self.x, self.y, self.floor)
        pause = float(self.x[-1]) - heights[-1]
        return pause > _LEAST_PAUSE * self.length and pause > _PAUSE * _longest_pause(heights)

    @cached_property
    def bound_at(self) -> float | None:
        """How much was done when it had risen evenly to a height that it never left upwards since, None if it has no such bound.

        Rows above it for a moment would seem to be one: so the highest rows of all quarters since must be as high.
        """
        parts = [part for part in np.array_split(np.arange(len(self.size)), _POINTS) if len(part)]
        heights = _heights(
            np.array([self.done[part[-1]] for part in parts]), np.array([self.size[part].max() for part in parts]), self.floor
        )
        pause = float(self.done[-1]) - heights[-1]
        if heights[-1] - self.begin > BOUND_SHARE * self.length or pause <= _BOUND_PAUSE * _longest_pause(heights):
            return None
        return float(heights[-1])

    @cached_property
    def most_of_bound(self) -> float:
        """The most that a tail may grow by each unit whose highest rows keep their height."""
        return (max(self.peaks) - min(self.peaks) + self.floor) / (self.length * (_QUARTERS - 1) / _QUARTERS)

    @cached_property
    def peaks(self) -> list[float]:
        """The highest of the rows of each quarter."""
        return [float(part.max()) for part in np.array_split(self.size, _QUARTERS)]

    @property
    def keeps_height(self) -> bool:
        """Its highest rows lie no further apart than a flat tail may rise."""
        return max(self.peaks) - min(self.peaks) <= self._allowed

    @property
    def reason(self) -> str:
        if self.stopped:
            return "it rose evenly and then stopped, but too late to be sure"
        if self.halves[0][0] > 0 and self.halves[1][0] > 0 and self.low > 0:
            return "it still rises, but more and more slowly" if self.slows else "it rises and comes down again"
        if self.low <= self.step and self.high * self.length > LEAST_RISE:
            return "its memory moves too much to tell a slow rise"
        return "it rose late, in few steps"


def _heights(done: NDArray[Any], size: NDArray[Any], floor: float) -> list[float]:
    """How much was done when each new height was reached: one above all before by more than a step that is small beside the rise."""
    step = max(floor, _HEIGHT * float(size.max() - size[0]))
    highest, heights = float(size[0]), [float(done[0])]
    for after, height in zip(done.tolist(), size.tolist(), strict=True):
        if height > highest + step:
            highest = height
            heights.append(after)
    return heights


def _longest_pause(heights: list[float]) -> float:
    """From one new height to the next; endless where they are so few that nothing is even."""
    return max(after - before for before, after in pairwise(heights)) if len(heights) >= _LEAST_HEIGHTS else math.inf


def points_of(done: NDArray[Any], size: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """At most _POINTS points at equal distances of work, each the median of the rows around it."""
    if len(done) <= _POINTS:
        return done, size
    edges = np.searchsorted(done, np.linspace(done[0], done[-1], _POINTS + 1)[1:-1]).tolist()
    parts = [slice(begin, end) for begin, end in pairwise([0, *edges, len(done)]) if begin < end]
    return np.array([done[part].mean() for part in parts]), np.array([_medians(size[part]) for part in parts])


def _medians(values: NDArray[Any]) -> Any:
    """The medians of finite values along their last axis: as numpy's, which takes ten times as long for a few values and copies many."""
    count = values.shape[-1]
    ordered = np.partition(values, count // 2, axis=-1)
    upper = ordered[..., count // 2]
    return upper if count % 2 else (ordered[..., : count // 2].max(axis=-1) + upper) / 2


def middle_slope(x: NDArray[Any], y: NDArray[Any]) -> float:
    """The median slope of all pairs; 0 of fewer than four points."""
    if len(x) < _LEAST_POINTS:
        return 0.0
    left, right, over = _pairs(x)
    return float(np.median((y[right] - y[left]) / over))


def _pairs(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The places of the left and of the right point of each pair, and the distance between both, of those that are apart."""
    left, right = np.triu_indices(len(x), 1)
    over = x[right] - x[left]
    usable = over > 0
    return left[usable], right[usable], over[usable]


def slope_of(x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float, float]:
    """The median slope of all pairs, with an interval of 95% by blocks of what is left over."""
    if len(x) < _LEAST_POINTS:
        return 0.0, -math.inf, math.inf
    left, right, over = _pairs(x)
    slope = float(np.median((y[right] - y[left]) / over))
    rest = y - slope * x
    rest -= np.median(rest)
    if not rest.any():
        return slope, slope, slope
    random = np.random.default_rng(0)  # the same curve has the same verdict
    blocks = -(-len(x) // _BLOCK)
    starts = random.integers(0, len(x) - _BLOCK + 1, size=(_RESAMPLES, blocks))
    chosen = (starts[:, :, None] + np.arange(_BLOCK)).reshape(_RESAMPLES, -1)[:, : len(x)]
    drawn = rest[chosen]
    risen = drawn.take(right, axis=1)
    risen -= drawn.take(left, axis=1)
    risen /= over
    slopes = slope + _medians(risen)
    low, high = np.quantile(slopes, [(1 - _SURE) / 2, (1 + _SURE) / 2])
    return slope, float(low), float(high)


def by_doublings(done: NDArray[Any], size: NDArray[Any], floor: float) -> float | None:
    """The rate of memory that rises by steps in each of the last doublings of the work, None if it does not.

    A pool that doubles has one step in each; its steps are twice as high each time, so its rate stays.
    """
    total = done[-1]
    edges = [np.searchsorted(done, total / 2**power, side="right") - 1 for power in range(_DOUBLINGS, -1, -1)]
    rates = []
    for before, after in pairwise(edges):
        width = done[after] - done[before]
        rise = size[after] - size[before]
        if width <= 0 or rise < _LEAST_PAGES * floor:
            return None
        rates.append(float(rise / width))
    rising = size[edges[-1]] - size[edges[0]]
    if max(rates) > _UNEVEN * min(rates) or rates[-1] < SLOWER * float(np.median(rates[:-1])):
        return None
    return float(rising / (done[edges[-1]] - done[edges[0]]))


def spread(count: NDArray[Any], size: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows at equal distances, without medians: they would blur what a unit explains."""
    places = np.unique(np.linspace(0, len(count) - 1, _POINTS).astype(int))
    return count[places], size[places]
