"""Which settings to try next, told only what the earlier ones cost: the search behind `memprof tune`, without a measurement in it.

Four stages follow one another, each decided by the history alone, so that the same history and seed always give the same next settings and
a search that was stopped goes on where it was:

    screen   the default three times, then every value of every knob by itself. A value that moves neither figure is set aside; one that
             fails is never tried again.
    climb    the same around the best settings known, as often as those have become better by half a percent: what changes nothing by itself
             may do so beside others, once the peak lies in another phase.
    search   combinations. What they will cost is predicted by a linear model of log(peak) and log(time), with a term a value and one a pair
             of values (Bayesian linear regression with a normal prior); the next is the best of the neighbours of what is good already under
             coefficients drawn from its posterior (Thompson 1933: uncertain terms are tried, known bad ones are not).
    trim     what is best, less each setting that the model holds for useless, so that what is proposed has no ballast.

A combination that fails is narrowed down to a pair where that is possible; nothing that contains a failed combination is asked for again.
Good points are measured three times before anything is built on them.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Settings = frozenset[tuple[str, str]]
DEFAULT: Settings = frozenset()

_DEFAULTS, _PROMISING = 3, 3
# A value whose peak and time are this near the default's changes nothing, unless the default itself varies more.
_SAME_PEAK, _SAME_TIME = 0.01, 0.05
_SINGLE_SD, _PAIR_SD = 0.5, 0.1
_PEAK_SD, _TIME_SD = 0.01, 0.05
_PATIENCE = 60
_CLIMB = 0.005
# Of two peaks that are as good as equal the faster.
_TIME_WEIGHT = 0.02
_BETTER = 0.003
_PRICE = 20.0
_RANDOM_CANDIDATES = 300


@dataclass(frozen=True)
class Trial:
    """One measurement of some settings: PEAK in bytes and time in ns of an iteration, both None where it failed.

    changes: the model's outputs were not the default's.
    """

    settings: Settings
    peak: float | None
    time: float | None
    changes: bool = False

    @property
    def ok(self) -> bool:
        return self.peak is not None and self.time is not None


@dataclass(frozen=True)
class Goal:
    """What is sought: the least peak, where max_time is given among those that take at most so many times the default's time; with a budget
    in bytes the least time among those that keep within it.
    """

    max_time: float | None = None
    budget: float | None = None


@dataclass(frozen=True)
class Point:
    """Settings with the medians of their trials."""

    settings: Settings
    peak: float
    time: float
    trials: int
    changes: bool = False


@dataclass
class Search:
    """Ask it for settings, tell it what they cost; see the module's text.

    knobs: by name, the values that differ from the default's. avoid: combinations known to be impossible.
    """

    knobs: Mapping[str, Sequence[str]]
    goal: Goal = field(default_factory=Goal)
    seed: int = 0
    trials: list[Trial] = field(default_factory=list)
    _failed: list[Settings] = field(default_factory=list)
    _anchor: Point | None = None  # around which all values were tried, or are being tried
    _points: dict[Settings, Point] = field(default_factory=dict)  # kept from one telling to the next: they are asked for often

    def tell(self, trial: Trial) -> None:
        """Take what some settings cost."""
        self.trials.append(trial)
        group = [one for one in self.trials if one.settings == trial.settings]
        self._points.pop(trial.settings, None)
        if all(one.ok for one in group):
            self._points[trial.settings] = _point(trial.settings, group)
        if DEFAULT in self._points:
            best = min(self._points.values(), key=self.value)
            ground = self._anchor or self.base
            if best.trials >= _PROMISING and self.value(best) < self.value(ground) - _CLIMB:
                self._anchor = best
        if not trial.ok and trial.settings not in self._failed:
            self._failed.append(trial.settings)

    def ask(self) -> Settings | None:
        """The settings to measure next; None when there is nothing left to gain. Raises ValueError where the default itself failed."""
        if any(not trial.ok for trial in self.trials if trial.settings == DEFAULT):
            raise ValueError("the default settings fail")
        if len(self.of(DEFAULT)) < _DEFAULTS:
            return DEFAULT
        tried = {trial.settings for trial in self.trials}
        for single in self._singles():
            if single not in tried:
                return single
        stages = (self._suspects, self._lighter, self._promising, self._neighbour, self._next, self._trimmed)
        return next((settings for stage in stages if (settings := stage(tried)) is not None), None)

    def of(self, settings: Settings) -> list[Trial]:
        """The trials of these settings that succeeded."""
        return [trial for trial in self.trials if trial.settings == settings and trial.ok]

    # -- what is known

    def points(self) -> list[Point]:
        """Every settings that succeeded at least once and never failed, with medians."""
        return list(self._points.values())

    def front(self) -> list[Point]:
        """The points that no other beats in both figures, least peak first; of points that are as good as equal, that with the fewest settings."""
        return front(self.points())

    def plain(self) -> dict[Settings, Settings]:
        """For all settings that never failed what is left of them without the values that change nothing."""
        idle = set(self.idle())
        less = {settings: settings - idle for settings in self._points}
        return {settings: settings if self._hopeless(rest) else rest for settings, rest in less.items()}

    def plain_points(self) -> list[Point]:
        """The points of these: settings that differ only in what changes nothing are one, with all their trials."""
        plain = self.plain()
        trials: dict[Settings, list[Trial]] = {}
        for trial in self.trials:
            if trial.settings in plain:
                trials.setdefault(plain[trial.settings], []).append(trial)
        return [_point(settings, ours) for settings, ours in trials.items()]

    @property
    def base(self) -> Point:
        """The default."""
        return self._points[DEFAULT]

    def idle(self) -> list[tuple[str, str]]:
        """The values that changed neither figure, nor the outputs, wherever they were tried beside settings that lack nothing else."""
        near_peak = max(_SAME_PEAK, 3 * _spread([trial.peak or 0 for trial in self.of(DEFAULT)]))
        near_time = max(_SAME_TIME, 3 * _spread([trial.time or 0 for trial in self.of(DEFAULT)]))
        found = []
        for single in self._singles():
            (item,) = single
            pairs = [
                (point, other)
                for point in self._points.values()
                if item in point.settings and (other := self._points.get(point.settings - single)) is not None
            ]
            # By itself it must have been tried; beside others the times are of single trials, and say less.
            if any(other.settings == DEFAULT for _, other in pairs) and all(
                point.changes <= other.changes
                and abs(math.log(point.peak / other.peak)) < near_peak
                and (other.settings != DEFAULT or abs(math.log(point.time / other.time)) < near_time)
                for point, other in pairs
            ):
                found.append(item)
        return found

    def failed(self) -> list[Settings]:
        """The smallest combinations that failed."""
        return [one for one in self._failed if not any(other < one for other in self._failed)]

    def value(self, point: Point) -> float:
        """How good a point is, less being better: the logarithm of what the goal minimises, and a steep price for what it forbids, other
        outputs among that."""
        base = self.base
        peak, time = math.log(point.peak / base.peak), math.log(point.time / base.time)
        price = _PRICE if point.changes else 0.0
        if self.goal.budget is not None:
            return price + time + _PRICE * max(0.0, math.log(point.peak / self.goal.budget))
        limit = math.log(self.goal.max_time) if self.goal.max_time is not None else math.inf
        return price + peak + _TIME_WEIGHT * time + _PRICE * max(0.0, time - limit)

    # -- stages

    def _singles(self) -> list[Settings]:
        return [frozenset({(name, value)}) for name, values in self.knobs.items() for value in values]

    def _suspects(self, tried: set[Settings]) -> Settings | None:
        """A pair out of the last failed combination that may be to blame: never seen together in anything that worked."""
        good = [trial.settings for trial in self.trials if trial.ok]
        for failed in reversed(self._failed):
            if len(failed) < 3 or any(other < failed for other in self._failed):
                continue
            for pair in map(frozenset, itertools.combinations(sorted(failed), 2)):
                if pair not in tried and not any(pair <= one for one in good):
                    return pair
        return None

    def _lighter(self, tried: set[Settings]) -> Settings | None:
        """The best points and those of the front less the values that change nothing."""
        idle = set(self.idle())
        for point in [*sorted(self.points(), key=self.value)[:2], *self.front()]:
            less = point.settings - idle
            if less not in tried and not self._hopeless(less):
                return less
        return None

    def _promising(self, tried: set[Settings]) -> Settings | None:
        """The best points, while they stand on fewer than three trials."""
        best = sorted(self.points(), key=self.value)[:2]
        return next((point.settings for point in best if point.trials < _PROMISING), None)

    def _neighbour(self, tried: set[Settings]) -> Settings | None:
        """The anchor with one more value, or another one."""
        if self._anchor is None:
            return None
        for single in self._singles():
            (item,) = single
            near = _changed(self._anchor.settings, item)
            if item not in self._anchor.settings and near not in tried and not self._hopeless(near):
                return near
        return None

    def _next(self, tried: set[Settings]) -> Settings | None:
        active = self._active()
        if not active or self._stale():
            return None
        model = _Model(self.trials, self.base, active)
        dice = model.dice(self.seed, len(self.trials))
        candidates = [one for one in self._candidates(active, dice) if one not in tried and not self._hopeless(one)]
        if not candidates:
            return None
        peaks, times = model.draw(candidates, dice)
        # Turn by turn for the goal, and for some other weighing of the two, which fills the front in between.
        weight = 1.0 if len(self.trials) % 3 else dice.random()
        spoilt = {item for point in self.points() if point.changes and len(point.settings) == 1 for item in point.settings}
        scores = [
            self._score(peak, time, weight) + (_PRICE if spoilt & one else 0)
            for one, peak, time in zip(candidates, peaks, times, strict=True)
        ]
        return candidates[scores.index(min(scores))]

    def _score(self, peak: float, time: float, weight: float) -> float:
        if self.goal.budget is not None:
            return weight * time + _PRICE * max(0.0, peak - math.log(self.goal.budget / self.base.peak)) + (1 - weight) * peak
        limit = math.log(self.goal.max_time) if self.goal.max_time is not None else math.inf
        return weight * peak + (1 - weight + _TIME_WEIGHT) * time + _PRICE * max(0.0, time - limit)

    def _active(self) -> list[tuple[str, str]]:
        """The values worth combining."""
        idle, failed = set(self.idle()), {next(iter(one)) for one in self._failed if len(one) == 1}
        return [item for single in self._singles() for item in single if item not in idle and item not in failed]

    def _stale(self) -> bool:
        """Whether the newest searches brought nothing."""
        first = _DEFAULTS + len(self._singles())
        searched = self.trials[first:]
        if len(searched) <= _PATIENCE:
            return False
        before = front([Point(trial.settings, trial.peak or 0, trial.time or 0, 1) for trial in self.trials[:-_PATIENCE] if trial.ok])
        known = [(math.log(point.peak), math.log(point.time)) for point in before]
        for point in self.points():
            peak, time = math.log(point.peak), math.log(point.time)
            newer = all(trial.settings != point.settings for trial in self.trials[:-_PATIENCE])
            if newer and all(peak < other[0] - _BETTER or time < other[1] - 3 * _TIME_SD for other in known):
                return False
        return True

    def _candidates(self, active: Sequence[tuple[str, str]], dice: Any) -> list[Settings]:
        """Neighbours of the good points by one change or two, and combinations drawn at random."""
        idle = self.idle()
        starts = [point.settings for point in self.front()] + [point.settings for point in sorted(self.points(), key=self.value)[:5]]
        found: dict[Settings, None] = {}
        for start in starts:
            for item in active:
                found[_changed(start, item)] = None
        starts += list(found)
        items = [*active, *idle]
        for _ in range(_RANDOM_CANDIDATES):
            start = starts[int(dice.integers(len(starts)))]
            # Mostly values that did something; at times one that did nothing by itself, which may do something beside others.
            pool = active if dice.random() < 0.9 else items
            for item in (pool[int(dice.integers(len(pool)))] for _ in range(int(dice.integers(1, 4)))):
                start = _changed(start, item)
            found[start] = None
        return list(found)

    def _hopeless(self, settings: Settings) -> bool:
        return any(failed <= settings for failed in self._failed)

    def _trimmed(self, tried: set[Settings]) -> Settings | None:
        """A point of the front less one of its settings, where that was not tried."""
        model = _Model(self.trials, self.base, self._active())
        for point in self.front():
            for item in sorted(point.settings):
                less = point.settings - {item}
                if less in tried or self._hopeless(less):
                    continue
                (peak,), (time,) = model.mean([less])
                if (
                    peak - math.log(point.peak / self.base.peak) < 2 * _SAME_PEAK
                    and time - math.log(point.time / self.base.time) < _SAME_TIME
                ):
                    return less
        return None


def _point(settings: Settings, trials: Sequence[Trial]) -> Point:
    middle = (statistics.median(one.peak or 0 for one in trials), statistics.median(one.time or 0 for one in trials))
    return Point(settings, *middle, len(trials), any(one.changes for one in trials))


def front(points: Iterable[Point]) -> list[Point]:
    """The Pareto front, least peak first, without ballast: a point is left out where one with only some of its settings has as good as the
    same peak (0.3%) and is about as fast (15%).
    """
    every = list(points)
    found: list[Point] = []
    for point in sorted(every, key=lambda one: (one.peak, one.time)):
        if (not found or point.time < found[-1].time) and not any(_as_good(other, point) for other in every):
            found.append(point)
    return found


def _as_good(less: Point, point: Point) -> bool:
    same = less.peak <= point.peak * (1 + _BETTER) and less.time <= point.time * (1 + 3 * _TIME_SD)
    return less.settings < point.settings and same


def _changed(settings: Settings, item: tuple[str, str]) -> Settings:
    """With the knob at this value, or without it where it has it already."""
    rest = frozenset(other for other in settings if other[0] != item[0])
    return rest if item in settings else rest | {item}


def _spread(values: Sequence[float]) -> float:
    """The relative standard deviation, 0 for a single value."""
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


class _Model:
    """log(peak) and log(time) relative to the default's, linear in values and pairs of values: mean and covariance of the coefficients.

    Bayesian linear regression with known noise (Bishop 2006, section 3.3): with the precision P = A + X'X/s^2 the mean is P^-1 X'y/s^2; with
    its Cholesky factor P = LL', mean + L'^-1 z has the posterior's distribution for standard normal z.
    """

    def __init__(self, trials: Sequence[Trial], base: Point, active: Sequence[tuple[str, str]]) -> None:
        import numpy

        self._numpy = numpy
        self._place = {item: index for index, item in enumerate(active)}
        pairs = [pair for pair in itertools.combinations(active, 2) if pair[0][0] != pair[1][0]]
        self._pairs = {pair: len(active) + index for index, pair in enumerate(pairs)}
        good = [trial for trial in trials if trial.ok and trial.settings != DEFAULT]
        rows = self._rows([trial.settings for trial in good])
        prior = numpy.diag([_SINGLE_SD**-2] * len(active) + [_PAIR_SD**-2] * len(pairs))
        self._fits = []
        for noise, values in (
            (_PEAK_SD, [math.log((trial.peak or 1) / base.peak) for trial in good]),
            (_TIME_SD, [math.log((trial.time or 1) / base.time) for trial in good]),
        ):
            precision = prior + rows.T @ rows / noise**2
            mean = numpy.linalg.solve(precision, rows.T @ numpy.asarray(values) / noise**2)
            self._fits.append((mean, precision))

    def dice(self, seed: int, count: int) -> Any:
        """Random numbers of the asking number `count`."""
        return self._numpy.random.default_rng([seed, count])

    def mean(self, settings: Sequence[Settings]) -> tuple[list[float], list[float]]:
        """What they are expected to cost: log(peak) and log(time) over the default's."""
        rows = self._rows(settings)
        peak, time = ((rows @ mean).tolist() for mean, _ in self._fits)
        return peak, time

    def draw(self, settings: Sequence[Settings], dice: Any) -> tuple[list[float], list[float]]:
        """The same under coefficients drawn from what is still possible."""
        rows = self._rows(settings)
        peak, time = ((rows @ self._drawn(mean, precision, dice)).tolist() for mean, precision in self._fits)
        return peak, time

    def _drawn(self, mean: Any, precision: Any, dice: Any) -> Any:
        factor = self._numpy.linalg.cholesky(precision)
        return mean + self._numpy.linalg.solve(factor.T, dice.standard_normal(len(mean)))

    def _rows(self, settings: Sequence[Settings]) -> Any:
        rows = self._numpy.zeros((len(settings), len(self._place) + len(self._pairs)))
        for row, one in zip(rows, settings, strict=True):
            places = sorted(self._place[item] for item in one if item in self._place)
            row[places] = 1
            items = sorted((item for item in one if item in self._place), key=self._place.__getitem__)
            row[[self._pairs[pair] for pair in itertools.combinations(items, 2) if pair in self._pairs]] = 1
        return rows
