"""Which settings to try next, by the costs of the earlier ones alone: the search behind `memprof tune`, without a measurement in it.

Four stages follow one another, each decided by the history alone, so that the same history and seed always give the same next settings and
a search that was stopped goes on where it was:

    screen   the default three times, then every value of every knob by itself, or beside the values that it needs. A value that moves
             neither figure is set aside; one that fails is never tried again.
    climb    the same around the best settings known, as often as those have become better by half a percent: a value without effect by itself
             may have one beside others, once the peak lies in another phase.
    search   combinations. Their costs are predicted by a linear model of log(peak) and log(time), with a term for each value and a term for each
             pair of values (Bayesian linear regression with a normal prior). Coefficients are drawn from its posterior, and the next settings are
             the best neighbours of good settings under these (Thompson 1933: uncertain terms are tried, known bad ones are not).
    trim     the best settings less each setting that the model holds for useless, so that proposals have no ballast.

A combination that fails is narrowed down to a pair if possible. Nothing that contains a failed combination is asked for again.
Good points are measured three times before anything is built on them.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

Settings = frozenset[tuple[str, str]]
Needs = Mapping[tuple[str, str], Mapping[str, str | None]]
DEFAULT: Settings = frozenset()
_Stage = Callable[[Set[Settings], Sequence[Settings]], Settings | None]

_DEFAULTS, _PROMISING = 3, 3
# A value whose peak and time are this near the default's changes nothing, unless the default itself varies more.
_SAME_PEAK, _SAME_TIME = 0.01, 0.05
_SINGLE_SD, _PAIR_SD = 0.5, 0.1
_PEAK_SD, _TIME_SD = 0.01, 0.05
_PATIENCE = 60
_CLIMB = 0.005
# Of two settings with as good as equal peaks the faster is better.
_TIME_WEIGHT = 0.02
_BETTER = 0.003
_PRICE = 20.0
_RANDOM_CANDIDATES = 300


@dataclass(frozen=True)
class Trial:
    """One measurement of some settings: PEAK in bytes and time in ns of an iteration, both None if it failed.

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
    """The aim of a search: the least peak, with max_time among settings that take at most so many times the default's time; with a budget in
    bytes the least time among settings that keep within it.
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
    """Ask it for settings, tell it their costs; see the module's text.

    knobs: by name, the values that differ from the default's. needs: for a value that acts only beside others, the value of each other knob,
    None for its default. Settings that lack it are never asked for.
    """

    knobs: Mapping[str, Sequence[str]]
    goal: Goal = field(default_factory=Goal)
    seed: int = 0
    trials: list[Trial] = field(default_factory=list)
    needs: Needs = field(default_factory=dict)
    _failed: list[Settings] = field(default_factory=list)
    _anchor: Point | None = None  # around which all values were tried, or are being tried
    _points: dict[Settings, Point] = field(default_factory=dict)  # kept between calls of `tell`, because they are asked for often

    def tell(self, trial: Trial) -> None:
        """Take a measurement."""
        self.trials.append(trial)
        group = [known for known in self.trials if known.settings == trial.settings]
        self._points.pop(trial.settings, None)
        if all(known.ok for known in group):
            self._points[trial.settings] = _point(trial.settings, group)
        if DEFAULT in self._points:
            best = min(self._points.values(), key=self.value)
            ground = self._anchor or self.base
            if best.trials >= _PROMISING and self.value(best) < self.value(ground) - _CLIMB:
                self._anchor = best
        if not trial.ok and trial.settings not in self._failed:
            self._failed.append(trial.settings)

    def ask(self) -> Settings | None:
        """The settings to measure next, None if there is nothing left to gain. Raises ValueError if the default itself failed."""
        return next(iter(self.ask_several(1)), None)

    def ask_several(self, most: int) -> list[Settings]:
        """As `ask`, at most so many that can be measured at once: all are of one stage, and none waits for the answer to another."""
        if any(not trial.ok for trial in self.trials if trial.settings == DEFAULT):
            raise ValueError("the default settings fail")
        missing = _DEFAULTS - len(self.of(DEFAULT))
        if missing > 0:
            return [DEFAULT] * min(missing, most)
        tried = {trial.settings for trial in self.trials}
        singles = self._untried_singles(tried)
        stages = (self._suspects, self._lighter, self._promising, self._neighbour, self._next, self._trimmed)
        return singles[:most] or next((asked for stage in stages if (asked := _asked(stage, tried, most))), [])

    def of(self, settings: Settings) -> list[Trial]:
        """The trials of these settings that succeeded."""
        return [trial for trial in self.trials if trial.settings == settings and trial.ok]

    # -- results so far

    def points(self) -> list[Point]:
        """All settings that succeeded at least once and never failed, with medians."""
        return list(self._points.values())

    def front(self) -> list[Point]:
        """The points that no other beats in both figures, least peak first. Of points as good as equal it has that with the fewest settings."""
        return front(self.points())

    def plain(self) -> dict[Settings, Settings]:
        """All settings that never failed, each with the same settings less the values that change nothing."""
        idle = set(self.idle())
        stripped_of = {settings: self._stripped(settings, idle) for settings in self._points}
        return {settings: settings if self._hopeless(stripped) else stripped for settings, stripped in stripped_of.items()}

    def plain_points(self) -> list[Point]:
        """The points of these. Settings that differ only in values that change nothing are one point, with all their trials."""
        plain = self.plain()
        trials: dict[Settings, list[Trial]] = {}
        for trial in self.trials:
            if trial.settings in plain:
                trials.setdefault(plain[trial.settings], []).append(trial)
        return [_point(settings, group) for settings, group in trials.items()]

    @property
    def base(self) -> Point:
        """The default."""
        return self._points[DEFAULT]

    def idle(self) -> list[tuple[str, str]]:
        """The values that changed neither figure, nor the outputs, between any two points that differ in that value alone."""
        near_peak = max(_SAME_PEAK, 3 * _spread([trial.peak or 0 for trial in self.of(DEFAULT)]))
        near_time = max(_SAME_TIME, 3 * _spread([trial.time or 0 for trial in self.of(DEFAULT)]))
        idle = []
        for item in self._items():
            ground = self._single(item) - {item}
            pairs = [
                (point, other)
                for point in self._points.values()
                if item in point.settings and (other := self._points.get(point.settings - {item})) is not None
            ]
            # The value must have been tried by itself. Beside others the times are of single trials, and say less.
            if any(other.settings == ground for _, other in pairs) and all(
                point.changes <= other.changes
                and abs(math.log(point.peak / other.peak)) < near_peak
                and (other.settings != ground or abs(math.log(point.time / other.time)) < near_time)
                for point, other in pairs
            ):
                idle.append(item)
        return idle

    def failed(self) -> list[Settings]:
        """The smallest combinations that failed."""
        return [failed for failed in self._failed if not any(other < failed for other in self._failed)]

    def value(self, point: Point) -> float:
        """How good a point is, less being better: the logarithm of the figure that the goal minimises, and a steep price for breaking its limit
        and for other outputs."""
        base = self.base
        peak, time = math.log(point.peak / base.peak), math.log(point.time / base.time)
        price = _PRICE if point.changes else 0.0
        if self.goal.budget is not None:
            return price + time + _PRICE * max(0.0, math.log(point.peak / self.goal.budget))
        limit = math.log(self.goal.max_time) if self.goal.max_time is not None else math.inf
        return price + peak + _TIME_WEIGHT * time + _PRICE * max(0.0, time - limit)

    # -- stages: each names settings, given those that were tried, or are being tried, and those of them that are

    def _untried_singles(self, tried: Set[Settings]) -> list[Settings]:
        """Values by themselves, up to one that another of them may show to be hopeless."""
        untried: list[Settings] = []
        for single in self._singles():
            if single in tried or (len(single) > 1 and self._hopeless(single)):
                continue
            if any(earlier < single for earlier in untried):
                break
            untried.append(single)
        return untried

    def _singles(self) -> list[Settings]:
        # What others need comes first: if that fails, they need not be tried.
        return sorted(map(self._single, self._items()), key=len)

    def _items(self) -> list[tuple[str, str]]:
        return [(name, value) for name, values in self.knobs.items() for value in values]

    def _single(self, item: tuple[str, str]) -> Settings:
        """A value as it is tried by itself: with those that it needs."""
        return frozenset({item, *((name, value) for name, value in self.needs.get(item, {}).items() if value is not None)})

    def _lacking(self, settings: Settings) -> Settings:
        """The values that lack another which they need."""
        chosen = dict(settings)
        return frozenset(item for item in settings if any(chosen.get(name) != value for name, value in self.needs.get(item, {}).items()))

    def _changed(self, settings: Settings, item: tuple[str, str]) -> Settings:
        """The settings with the knob at this value and with what that needs, or without the knob if it has this value already. Values that
        lack what they need then go."""
        replaced = {item[0]} if item in settings else {item[0], *self.needs.get(item, {})}
        changed = frozenset(other for other in settings if other[0] not in replaced)
        if item not in settings:
            changed |= self._single(item)
        while lacking := self._lacking(changed):
            changed -= lacking
        return changed

    def _stripped(self, settings: Settings, idle: Set[tuple[str, str]]) -> Settings:
        """The settings less the values that change nothing, unless another value needs them."""
        kept = settings - idle
        return kept | (settings & {needed for item in kept for needed in self._single(item)})

    def _suspects(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """A pair out of the last failed combination that may be to blame: no settings that worked have both."""
        good = [trial.settings for trial in self.trials if trial.ok]
        for failed in reversed(self._failed):
            if len(failed) < 3 or any(other < failed for other in self._failed):
                continue
            for pair in map(frozenset, itertools.combinations(sorted(failed), 2)):
                if pair not in tried and not self._lacking(pair) and not any(pair <= settings for settings in good):
                    return pair
        return None

    def _lighter(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """A best point, or a point of the front, less the values that change nothing."""
        idle = set(self.idle())
        for point in [*sorted(self.points(), key=self.value)[:2], *self.front()]:
            lighter = self._stripped(point.settings, idle)
            if lighter not in tried and not self._hopeless(lighter):
                return lighter
        return None

    def _promising(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """A best point that stands on fewer than three trials."""
        best = sorted(self.points(), key=self.value)[:2]
        return next((point.settings for point in best if point.trials + pending.count(point.settings) < _PROMISING), None)

    def _neighbour(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """The anchor with a value more, or with another value of a knob."""
        if self._anchor is None:
            return None
        for item in self._items():
            near = self._changed(self._anchor.settings, item)
            if item not in self._anchor.settings and near not in tried and not self._hopeless(near):
                return near
        return None

    def _next(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """The most promising combination under drawn coefficients."""
        active = self._active()
        if not active or self._stale():
            return None
        model = _Model(self.trials, self.base, active)
        turn = len(self.trials) + len(pending)  # each of several settings has coefficients of its own
        dice = model.dice(self.seed, turn)
        candidates = [settings for settings in self._candidates(active, dice) if settings not in tried and not self._hopeless(settings)]
        if not candidates:
            return None
        peaks, times = model.draw(candidates, dice)
        # Two turns of three serve the goal, the third another weighing of the two figures, which fills the front in between.
        weight = 1.0 if turn % 3 else dice.random()
        spoilt = {item for item in self._items() if (point := self._points.get(self._single(item))) is not None and point.changes}
        scores = [
            self._score(peak, time, weight) + (_PRICE if spoilt & settings else 0)
            for settings, peak, time in zip(candidates, peaks, times, strict=True)
        ]
        return candidates[scores.index(min(scores))]

    def _score(self, peak: float, time: float, weight: float) -> float:
        if self.goal.budget is not None:
            return weight * time + _PRICE * max(0.0, peak - math.log(self.goal.budget / self.base.peak)) + (1 - weight) * peak
        limit = math.log(self.goal.max_time) if self.goal.max_time is not None else math.inf
        return weight * peak + (1 - weight + _TIME_WEIGHT) * time + _PRICE * max(0.0, time - limit)

    def _active(self) -> list[tuple[str, str]]:
        """The values worth combining."""
        idle = set(self.idle())
        return [item for item in self._items() if item not in idle and not self._hopeless(self._single(item))]

    def _stale(self) -> bool:
        """Whether the newest combinations brought nothing."""
        first = _DEFAULTS + len(self._singles())
        searched = self.trials[first:]
        if len(searched) <= _PATIENCE:
            return False
        before = front([Point(trial.settings, trial.peak or 0, trial.time or 0, 1) for trial in self.trials[:-_PATIENCE] if trial.ok])
        log_front = [(math.log(point.peak), math.log(point.time)) for point in before]
        known = {trial.settings for trial in self.trials[:-_PATIENCE]}
        for point in self.points():
            peak, time = math.log(point.peak), math.log(point.time)
            if point.settings not in known and all(peak < other[0] - _BETTER or time < other[1] - 3 * _TIME_SD for other in log_front):
                return False
        return True

    def _candidates(self, active: Sequence[tuple[str, str]], dice: Any) -> list[Settings]:
        """Neighbours of the good points by one change or two, and combinations drawn at random."""
        idle = self.idle()
        starts = [point.settings for point in self.front()] + [point.settings for point in sorted(self.points(), key=self.value)[:5]]
        candidates: dict[Settings, None] = {}
        for start in starts:
            for item in active:
                candidates[self._changed(start, item)] = None
        starts += list(candidates)
        items = [*active, *idle]
        for _ in range(_RANDOM_CANDIDATES):
            start = starts[int(dice.integers(len(starts)))]
            # These are mostly values with an effect, at times a value without an effect by itself, which may have one beside others.
            pool = active if dice.random() < 0.9 else items
            for item in (pool[int(dice.integers(len(pool)))] for _ in range(int(dice.integers(1, 4)))):
                start = self._changed(start, item)
            candidates[start] = None
        return list(candidates)

    def _hopeless(self, settings: Settings) -> bool:
        return bool(self._lacking(settings)) or any(failed <= settings for failed in self._failed)

    def _trimmed(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """A point of the front less one of its settings, if that was not tried."""
        model = _Model(self.trials, self.base, self._active())
        for point in self.front():
            for item in sorted(point.settings):
                trimmed = point.settings - {item}
                if trimmed in tried or self._hopeless(trimmed):
                    continue
                (peak,), (time,) = model.mean([trimmed])
                if (
                    peak - math.log(point.peak / self.base.peak) < 2 * _SAME_PEAK
                    and time - math.log(point.time / self.base.time) < _SAME_TIME
                ):
                    return trimmed
        return None


def _asked(stage: _Stage, tried: Set[Settings], most: int) -> list[Settings]:
    """What a stage asks for, as if each answer were a long time off."""
    pending: list[Settings] = []
    while len(pending) < most and (settings := stage(tried | set(pending), pending)) is not None:
        pending.append(settings)
    return pending


def _point(settings: Settings, trials: Sequence[Trial]) -> Point:
    middle = (statistics.median(trial.peak or 0 for trial in trials), statistics.median(trial.time or 0 for trial in trials))
    return Point(settings, *middle, len(trials), any(trial.changes for trial in trials))


def front(points: Iterable[Point]) -> list[Point]:
    """The Pareto front, least peak first, without ballast: a point is left out if a point with only some of its settings has as good as the
    same peak (0.3%) and is about as fast (15%).
    """
    candidates = sorted(points, key=lambda point: (point.peak, point.time))
    peaks = [point.peak for point in candidates]
    unbeaten: list[Point] = []
    for point in candidates:
        if not unbeaten or point.time < unbeaten[-1].time:
            small_enough = candidates[: bisect_right(peaks, point.peak * (1 + _BETTER))]
            if not any(_lighter_as_fast(other, point) for other in small_enough):
                unbeaten.append(point)
    return unbeaten


def _lighter_as_fast(lighter: Point, point: Point) -> bool:
    return lighter.settings < point.settings and lighter.time <= point.time * (1 + 3 * _TIME_SD)


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
        pairs = [pair for pair in itertools.combinations(range(len(active)), 2) if active[pair[0]][0] != active[pair[1]][0]]
        self._pairs = {pair: len(active) + index for index, pair in enumerate(pairs)}  # by the places of its two values
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
        """The random numbers of the `count`th question."""
        return self._numpy.random.default_rng([seed, count])

    def mean(self, settings: Sequence[Settings]) -> tuple[list[float], list[float]]:
        """The expected costs of some settings: log(peak) and log(time) over the default's."""
        rows = self._rows(settings)
        peak, time = ((rows @ mean).tolist() for mean, _ in self._fits)
        return peak, time

    def draw(self, settings: Sequence[Settings], dice: Any) -> tuple[list[float], list[float]]:
        """The same under coefficients drawn from their posterior."""
        rows = self._rows(settings)
        peak, time = ((rows @ self._drawn(mean, precision, dice)).tolist() for mean, precision in self._fits)
        return peak, time

    def _drawn(self, mean: Any, precision: Any, dice: Any) -> Any:
        factor = self._numpy.linalg.cholesky(precision)
        return mean + self._numpy.linalg.solve(factor.T, dice.standard_normal(len(mean)))

    def _rows(self, combinations: Sequence[Settings]) -> Any:
        """A row for each combination, a column for each value and pair: 1 if the combination has it."""
        rows = self._numpy.zeros((len(combinations), len(self._place) + len(self._pairs)))
        for row, settings in zip(rows, combinations, strict=True):
            places = sorted(self._place[item] for item in settings if item in self._place)
            row[places + [self._pairs[pair] for pair in itertools.combinations(places, 2) if pair in self._pairs]] = 1
        return rows
