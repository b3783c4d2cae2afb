"""Steps in a series of measurements, such as a project's peak from commit to commit: where the level changed, by how much, and for how long.

A point of the series is the repeats of one commit. Repeats have outliers and often two modes or more, which lie further apart than the
steps that matter, so points are not compared by a mean or a median but by how their values are distributed: each value becomes a vector (see
memprof.verdicts.sample_distance), and a point is the mean of its vectors. The package ruptures proposes where that mean changes (PELT,
Killick 2012). A proposal stays if the change beside it is larger than chance and the values moved by more than the floor.

Levels are compared over at most `_WINDOW` points on either side: a slow drift does not count as a step, however far it goes.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError
from . import sample_distance

# The smallest step that is reported, as a share of the level; for a high-water mark the kernel's bound too (see `find`).
SHARE = 0.004
# The same between two releases. Modes of a peak lie up to 2% apart, and few repeats may show one mode each.
BETWEEN = 0.02

_WINDOW = 10
# The least gain of a split, in squared lengths of unit vectors: a point none of whose values has its like in the other level gains 1.
_LEAST_GAIN = 0.45
# How many times the gain that chance gives to a split anywhere in the window.
_CHANCE = 1.6
# The same with fewer points than the window after it: a history that is looked at with every new commit has that many more chances to be wrong.
_CHANCE_AT_THE_END = 3.2
# Points that ruptures sees at once: its time grows with the square.
_STRETCH = 500
_OVERLAP = 60
# Of so many moves from point to point, steps are few. In a shorter series the repeats of a point say what noise is.
_MANY = 20
# Two levels are the same again if they differ by less than this share of the step between them.
_BACK = 0.25
_Z = 2.576  # of a 99% interval
# All values of a window are compared with all on its other side: a point of more values counts as this many of them, evenly chosen.
_MOST_VALUES = 200


class LevelStep(Struct, frozen=True):
    """A change of level between the points `at - 1` and `at`.

    before, after: the medians beside it. size: by how much values moved (the median of all differences between both sides; Hodges and Lehmann
    1963); low, high: its 99% interval. until: the point from which on an opposite step undoes it, None if none does. undoes: this is that
    opposite step.
    """

    at: int
    before: float
    after: float
    size: float
    low: float
    high: float
    until: int | None = None
    undoes: bool = False

    @property
    def share(self) -> float | None:
        """The size as a share of the level before, None if that is 0."""
        return self.size / self.before if self.before else None


def find(points: Sequence[Sequence[float]], bound: float = 0.0, share: float = SHARE) -> tuple[LevelStep, ...]:
    """The steps of a series, in its order. Each point has at least one value.

    bound: how far a value may lie from the truth; no step is smaller than that, or than this share of the median of the series. Raises
    InputError if ruptures is not installed.
    """
    if len(points) < 2:
        return ()
    import numpy

    points = [_thinned(point) for point in points]
    values = numpy.fromiter(chain.from_iterable(points), float)
    floor = max(bound, share * abs(float(numpy.median(values)))) or 1e-12
    series = _Series.of(values, numpy.fromiter(map(len, points), int), floor)
    places = series.proposals()
    known: dict[tuple[int, int, int], float] = {}

    def strength(place: int) -> float:
        span = (place, *_beside(places, place, len(points)))
        if span not in known:
            known[span] = series.strength(*span)
        return known[span]

    while places and strength(weakest := min(places, key=strength)) <= 0:
        places.remove(weakest)
    return _undone([series.step(place, *_beside(places, place, len(points))) for place in places], floor)


def _thinned(point: Sequence[float]) -> Sequence[float]:
    """Its least and its greatest value and evenly many in between, where there are more than are compared."""
    if len(point) <= _MOST_VALUES:
        return point
    ordered = sorted(point)
    return [ordered[number * (len(ordered) - 1) // (_MOST_VALUES - 1)] for number in range(_MOST_VALUES)]


def between(points: Sequence[Sequence[float]], bound: float = 0.0, share: float = BETWEEN) -> tuple[LevelStep, ...]:
    """The steps of a series in which each point may differ from the next, such as releases of a program: each point against the one before.

    A step is reported if every value lies farther than the bound and this share of the level before from every value of the point before. A few
    repeats do not show all modes, so that such a step is to be confirmed. low, high: the smallest and the largest difference.
    """
    steps = []
    for at, (before, after) in enumerate(pairwise(points), 1):
        level = statistics.median(before)
        differences = [now - was for was in before for now in after]
        low, high = min(differences), max(differences)
        if max(low, -high) > max(bound, share * abs(level)):
            steps.append(LevelStep(at, level, statistics.median(after), statistics.median(differences), low, high))
    return _undone(steps, bound)


def _beside(places: Sequence[int], place: int, count: int) -> tuple[int, int]:
    """The points beside a place that are compared: to the next places, and no more than the window."""
    number = bisect_left(places, place)
    earlier = places[number - 1] if number else 0
    later = places[number + 1] if number + 1 < len(places) else count
    return max(earlier, place - _WINDOW), min(later, place + _WINDOW)


def _undone(steps: Sequence[LevelStep], floor: float) -> tuple[LevelStep, ...]:
    """The steps, those that go away again with the place where they do."""
    known = list(steps)
    for number, (step, after) in enumerate(pairwise(steps)):
        opposite = step.size * after.size < 0
        if opposite and not known[number].undoes and abs(step.size + after.size) <= max(floor, _BACK * abs(step.size)):
            known[number] = replace(known[number], until=after.at)
            known[number + 1] = replace(known[number + 1], undoes=True)
    return tuple(known)


class _Series(Struct, frozen=True):
    """values: of all points, one after another; begins: where each point's values begin, and where the last point's end. vectors: one row per point;
    chance: the variance of a row around its level, as its neighbours show it."""

    values: Any
    begins: Any
    vectors: Any
    chance: float
    floor: float

    @classmethod
    def of(cls, values: Any, counts: Any, floor: float) -> _Series:
        import numpy

        each = sample_distance.vectors(values, float(numpy.median(values)), sample_distance.width(floor, _noise(values, counts)))
        begins = numpy.concatenate([[0], numpy.cumsum(counts)])
        vectors = numpy.add.reduceat(each, begins[:-1], axis=0) / counts[:, None]
        moves = numpy.sort(((vectors[1:] - vectors[:-1]) ** 2).sum(axis=1) / 2)
        if len(moves) >= _MANY:
            chance = float(moves[: math.ceil(0.9 * len(moves))].mean())  # a tenth may be steps and outliers
        else:
            # Each value's vector has the length 1, which gives the variance of repeats. Two points with one repeat each have no variance.
            repeats = float(((1 - (vectors**2).sum(axis=1)) / numpy.maximum(counts - 1, 1)).mean()) if counts.min() > 1 else 0.0
            chance = (
                math.inf
                if len(moves) == 1 == counts.min()
                else max(repeats, float(moves[(len(moves) - 1) // 2]) if len(moves) > 1 else 0.0)
            )
        return cls(values, begins, vectors, chance, floor)

    def proposals(self) -> list[int]:
        """Places where the distribution of the values may change."""
        places: set[int] = set()
        begin = 0
        while True:
            end = min(begin + _STRETCH, len(self.vectors))
            proposed = self._in_stretch(begin, end)
            # Beside the edge of a stretch a step has few points on a side; the stretch that overlaps sees more of it.
            low = begin + _OVERLAP // 2 if begin else 0
            high = end - _OVERLAP // 2 if end < len(self.vectors) else end
            places.update(place for place in proposed if low <= place < high)
            if end == len(self.vectors):
                return sorted(places)
            begin = end - _OVERLAP

    def _in_stretch(self, begin: int, end: int) -> list[int]:
        if end - begin < 2:
            return []
        stretch = self.vectors[begin:end]
        penalty = max(_LEAST_GAIN, _CHANCE * self._by_chance(end - begin))
        if float(((stretch - stretch.mean(axis=0)) ** 2).sum()) <= penalty:
            return []  # no split can gain more than that
        search = _ruptures().KernelCPD(kernel="linear", min_size=1).fit(stretch)
        return [begin + place for place in search.predict(pen=penalty)[:-1]]

    def _by_chance(self, count: int) -> float:
        """The gain that the best of so many splits has by chance: of a normal vector, about its variance times 2 log n."""
        return self.chance * 2 * math.log(max(count, 4))

    def strength(self, place: int, begin: int, end: int) -> float:
        """How far a place is beyond the floor and beyond chance, by the lesser of the two; positive if it is a step."""
        left, right = self.vectors[begin:place], self.vectors[place:end]
        apart = float(((left.mean(axis=0) - right.mean(axis=0)) ** 2).sum())
        gain = apart * len(left) * len(right) / (len(left) + len(right))
        chance = _CHANCE_AT_THE_END if len(self.vectors) - place < _WINDOW else _CHANCE
        needed = max(_LEAST_GAIN, chance * self._by_chance(2 * _WINDOW))
        if gain <= needed:
            return gain / needed - 1
        return min(gain / needed, abs(self._differences(place, begin, end)[3]) / self.floor) - 1

    def _differences(self, place: int, begin: int, end: int) -> tuple[Any, Any, Any, float]:
        """The values on both sides, the sorted differences between them, and the median of those."""
        import numpy

        before, after = (self.values[self.begins[low] : self.begins[high]] for low, high in ((begin, place), (place, end)))
        differences = numpy.sort((after[:, None] - before[None, :]).ravel())
        middle = len(differences) // 2
        median = differences[middle] if len(differences) % 2 else (differences[middle - 1] + differences[middle]) / 2
        return before, after, differences, float(median)

    def step(self, place: int, begin: int, end: int) -> LevelStep:
        """The step at a place, seen from the points beside it."""
        import numpy

        before, after, differences, median = self._differences(place, begin, end)
        # The interval of the median of differences lies between two of them (Moses 1953), by the rank sum's normal approximation.
        out = len(differences) / 2 - _Z * math.sqrt(len(before) * len(after) * (len(before) + len(after) + 1) / 12)
        low = max(0, math.floor(out))
        return LevelStep(
            place,
            float(numpy.median(before)),
            float(numpy.median(after)),
            median,
            float(differences[low]),
            float(differences[len(differences) - 1 - low]),
        )


def _noise(values: Any, counts: Any) -> float:
    """The standard deviation of values of one mode, by the differences between neighbours, which steps leave alone."""
    import numpy

    if counts.min() == counts.max():
        table = values.reshape(len(counts), -1)
        pairs = numpy.abs(table[1:, :, None] - table[:-1, None, :]).ravel()
    else:
        table = numpy.split(values, numpy.cumsum(counts)[:-1])
        pairs = numpy.concatenate([numpy.abs(now[:, None] - was[None, :]).ravel() for was, now in pairwise(table)])
    if len(counts) <= _MANY:
        pairs = numpy.concatenate([pairs, *map(sample_distance.within, table)])
    return sample_distance.spread(pairs)


def _ruptures() -> Any:
    try:
        import ruptures
    except ImportError:
        raise InputError("finding steps needs the package ruptures: pip install 'ml-memprof[history]'") from None
    return ruptures
