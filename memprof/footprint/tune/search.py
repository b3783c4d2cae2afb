"""Which settings to try next, by the costs of the earlier ones alone: the search behind `memprof tune`, without a measurement in it.

Six stages follow one another, each decided by the history alone, so that a search that was stopped goes on where it was:

    screen   the default, then every value of every knob by itself, or beside the values that it needs: once each, for that shows which values matter.
    pairs    the best of these values, one of each knob, two by two: two can do more together than each by itself. Then the default to its third
             trial.
    climb    the best settings known with one change: a value more, another value of a knob, or a value less. What is better by half a percent is
             the next to be changed, until no change helps. All values are tried, because one without effect by itself may have one beside
             others, once the peak lies in another phase. The climb is repeated with more weight on the other figure, which fills the front.
    phases   two changes of these settings that lower different phases: alone each shows in no peak. Those are tried whose phases promise less
             together.
    detours  the climb without one knob of the best settings, for each of these: where it lowers the peak of one phase, the others seem to do nothing,
             and several of them together may do more than it does. Values that lowered nothing anywhere are left out.
    doubts   the front, and what it lacks because a single trial took longer, by no more than times differ on this machine: to the third trial.

A combination that fails is narrowed down to a pair if possible. No later trial contains a failed combination.
Settings are measured three times before the climb goes on from them. Where the time is too short for all values, the climb begins before the others
are tried, and nothing is measured a second time.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from msgspec import Struct, field

Settings = frozenset[tuple[str, str]]
Needs = Mapping[tuple[str, str], Mapping[str, str | None]]
DEFAULT: Settings = frozenset()
_Stage = Callable[[Set[Settings], Sequence[Settings]], Settings | None]

# Trials of the default, and of settings that the climb goes on from.
SURE = 3
# A value whose peak and time are this near the default's changes nothing, unless the default itself varies more.
_SAME_PEAK, _SAME_TIME = 0.01, 0.05
# Peaks and times of the front that are this near are as good as equal.
_EQUAL_PEAK, _EQUAL_TIME = 0.003, 0.15
# Of settings whose values differ by less, those with fewer settings are better.
SAME_VALUE = 0.005
# Of two settings with as good as equal peaks the faster is better.
_TIME_WEIGHT = 0.02
_PRICE = 20.0
# The values of how many knobs are tried two by two.
_BEST_KNOBS = 5
# How much of the goal's figure is in what a climb makes small: the first climb has the goal alone, the others more and more of the other figure.
_WEIGHTS = (1.0, 0.6, 0.25)


class Trial(Struct, frozen=True):
    """One measurement of some settings: PEAK in bytes and time in ns of an iteration, both None if it failed.

    changes: the model's outputs were not the default's. phases: the peak of each phase in bytes, in their order; empty where they are not known.
    """

    settings: Settings
    peak: float | None
    time: float | None
    changes: bool = False
    phases: tuple[float, ...] = ()

    @property
    def ok(self) -> bool:
        return self.peak is not None and self.time is not None


class Goal(Struct, frozen=True):
    """The aim of a search: the least peak, with max_time among settings that take at most so many times the default's time; with a budget in
    bytes the least time among settings that keep within it.
    """

    max_time: float | None = None
    budget: float | None = None


class TrialPoint(Struct, frozen=True):
    """Settings with the medians of their trials. phases: those of each phase's peak, empty where the trials do not have the same phases."""

    settings: Settings
    peak: float
    time: float
    trials: int
    changes: bool = False
    phases: tuple[float, ...] = ()


class Search(Struct):
    """Ask it for settings, tell it their costs; see the module's text.

    knobs: by name, the values that differ from the default's. needs: for a value that acts only beside others, the value of each other knob,
    None for its default. Settings that lack it are never asked for. first: the values that are tried before others; the first two save most
    together.
    """

    knobs: Mapping[str, Sequence[str]]
    goal: Goal = field(default_factory=Goal)
    trials: list[Trial] = field(default_factory=list)
    needs: Needs = field(default_factory=dict)
    first: Sequence[tuple[str, str]] = ()
    _failed: list[Settings] = field(default_factory=list)
    _points: dict[Settings, TrialPoint] = field(default_factory=dict)  # kept between calls of `tell`, because they are needed often

    def tell(self, trial: Trial) -> None:
        """Take a measurement."""
        self.trials.append(trial)
        group = [known for known in self.trials if known.settings == trial.settings]
        self._points.pop(trial.settings, None)
        if all(known.ok for known in group):
            self._points[trial.settings] = _point(trial.settings, group)
        if not trial.ok and trial.settings not in self._failed:
            self._failed.append(trial.settings)

    def ask(self, screens: bool = True) -> Settings | None:
        """The settings to measure next, None if there is nothing left to gain. screens: see `ask_several`. Raises ValueError if the default itself
        failed."""
        return next(iter(self.ask_several(1, screens)), None)

    def ask_several(self, most: int, screens: bool = True) -> list[Settings]:
        """As `ask`, at most so many that can be measured at once: all are of one stage, and none waits for the answer to another. screens: there is
        time to try each value by itself; without it the best settings known are changed."""
        if any(not trial.ok for trial in self.trials if trial.settings == DEFAULT):
            raise ValueError("the default settings fail")
        if not self.of(DEFAULT):
            return [DEFAULT]
        tried = {trial.settings for trial in self.trials}
        stages: tuple[_Stage, ...] = (
            *(self._suspects, self._pair, self._unsure, self._neighbour),
            *(self._complement, self._unsure_detour, self._detour, self._doubt),
        )
        if singles := self._untried_singles(tried):
            if screens:
                return singles[:most]
            stages = (self._suspects, self._neighbour)
        return next((asked for stage in stages if (asked := _asked(stage, tried, most))), [])

    def of(self, settings: Settings) -> list[Trial]:
        """The trials of these settings that succeeded."""
        return [trial for trial in self.trials if trial.settings == settings and trial.ok]

    def untried(self) -> list[Settings]:
        """The values that were not tried by themselves, each beside those that it needs."""
        return self._untried_singles({trial.settings for trial in self.trials})

    # -- results so far

    def points(self) -> list[TrialPoint]:
        """All settings that succeeded at least once and never failed, with medians."""
        return list(self._points.values())

    def front(self) -> list[TrialPoint]:
        """The points that no other beats in both figures, least peak first. Of points as good as equal it has that with the fewest settings."""
        return front(self.points())

    def plain(self) -> dict[Settings, Settings]:
        """All settings that never failed, each with the same settings less the values that change nothing."""
        idle = set(self.idle())
        stripped_of = {settings: self._stripped(settings, idle) for settings in self._points}
        return {settings: settings if self._hopeless(stripped) else stripped for settings, stripped in stripped_of.items()}

    def plain_points(self) -> list[TrialPoint]:
        """The points of these. Settings that differ only in values that change nothing are one point, with all their trials."""
        plain = self.plain()
        trials: dict[Settings, list[Trial]] = {}
        for trial in self.trials:
            if trial.settings in plain:
                trials.setdefault(plain[trial.settings], []).append(trial)
        return [_point(settings, group) for settings, group in trials.items()]

    def proposals(self) -> list[TrialPoint]:
        """All plain points of the front that peak below the default, least peak first. Points that keep the outputs have a front among themselves.

        Times of single trials are those of a machine that may be busy for a while. So there are also, for each of these, the point with only
        some of its settings and the same peak; and the point with the fewest settings that keeps within a budget.
        """
        known = self.plain_points()
        safe = [point for point in known if not point.changes]
        points = [*front(safe), *(point for point in front(known) if point.changes)]
        points += [lighter for point in points if (lighter := _lightest(point, known)) is not None]
        within = [point for point in safe if point.peak <= (self.goal.budget or 0)]
        points += sorted(within, key=lambda point: (len(point.settings), point.time))[:1]
        lower = {point.settings: point for point in points if point.peak < self.base.peak * (1 - SAME_VALUE)}
        return sorted(lower.values(), key=lambda point: point.peak)

    def beaten(self) -> list[TrialPoint]:
        """The plain points that peak below the default and are no proposal, as another is better; least peak first."""
        proposed = {point.settings for point in self.proposals()}
        lower = [point for point in self.plain_points() if point.peak < self.base.peak * (1 - SAME_VALUE)]
        return sorted((point for point in lower if point.settings not in proposed), key=lambda point: point.peak)

    @property
    def base(self) -> TrialPoint:
        """The default."""
        return self._points[DEFAULT]

    def idle(self) -> list[tuple[str, str]]:
        """The values that changed neither figure, nor the outputs, between any two points that differ in that value alone."""
        near_time = self._near()[1]
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
                and abs(math.log(point.peak / other.peak)) < self._near_peak(point, other)
                and (other.settings != ground or abs(math.log(point.time / other.time)) < near_time)
                for point, other in pairs
            ):
                idle.append(item)
        return idle

    def time_noise(self) -> float:
        """By how much the default's times differ, as a share of the least."""
        times = sorted(trial.time or 0.0 for trial in self.of(DEFAULT))
        return times[-1] / times[0] - 1 if times and times[0] else 0.0

    def _near(self) -> tuple[float, float]:
        """How far the logarithms of two peaks and of two times may lie apart to be called the same."""
        default = self.of(DEFAULT)
        spreads = _spread([trial.peak or 0 for trial in default]), _spread([trial.time or 0 for trial in default])
        return max(_SAME_PEAK, 3 * spreads[0]), max(_SAME_TIME, 3 * spreads[1])

    def _near_peak(self, point: TrialPoint, other: TrialPoint) -> float:
        """The same for the peaks of two points: the default's may differ from run to run where those of other settings do not. Settings of a single
        trial may differ as the default does."""
        if min(point.trials, other.trials) < SURE:
            return self._near()[0]
        spreads = [_spread([trial.peak or 0 for trial in self.of(each.settings)]) for each in (point, other)]
        return max(_SAME_PEAK, 3 * max(spreads))

    def failed(self) -> list[Settings]:
        """The smallest combinations that failed."""
        return [failed for failed in self._failed if not any(other < failed for other in self._failed)]

    def value(self, point: TrialPoint, weight: float = 1.0) -> float:
        """How good a point is, less being better: the logarithm of the figure that the goal minimises, and a steep price for breaking its limit
        and for other outputs. With a weight below 1 the rest of the weight is on the other figure."""
        base = self.base
        peak, time = math.log(point.peak / base.peak), math.log(point.time / base.time)
        price = _PRICE if point.changes else 0.0
        if self.goal.budget is not None:
            return price + weight * time + (1 - weight) * peak + _PRICE * max(0.0, math.log(point.peak / self.goal.budget))
        limit = math.log(self.goal.max_time) if self.goal.max_time is not None else math.inf
        return price + weight * peak + (1 - weight + _TIME_WEIGHT) * time + _PRICE * max(0.0, time - limit)

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
        items = [(name, value) for name, values in self.knobs.items() for value in values]
        return [*(item for item in self.first if item in items), *(item for item in items if item not in self.first)]

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

    def _unsure(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """The default, the best point, a point to climb from, or a value that makes iterations faster and nothing else, that stands on too few
        trials."""
        points = [self.base, min(self.points(), key=self.value), *map(self._ground, _WEIGHTS), *self._faster_alone()]
        return _of_few_trials(points, pending)

    def _faster_alone(self) -> list[TrialPoint]:
        """The values by themselves with the default's peak and a shorter time, which may be that of a machine that was less busy."""
        near_peak, near_time = self._near()
        singles = [point for item in self._items() if (point := self._points.get(frozenset({item}))) is not None]
        return [
            point
            for point in singles
            if abs(math.log(point.peak / self.base.peak)) < near_peak and math.log(self.base.time / point.time) >= near_time
        ]

    def _ground(self, weight: float, without: str = "") -> TrialPoint:
        """The point to climb from: the best, or one with fewer settings that is as good as equal. without: a knob that keeps its default."""
        points = [(self.value(point, weight), point) for point in self._points.values() if without not in dict(point.settings)]
        least = min(value for value, _ in points)
        alike = [(len(point.settings), value, sorted(point.settings), point) for value, point in points if value <= least + SAME_VALUE]
        return min(alike)[-1]

    def _pair(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """The two values that usually save most together, if both save here; then the best values of two knobs, with those that they need."""
        usual = [point.settings for item in self.first[:2] if (point := self._points.get(self._single(item))) and self.value(point) < 0]
        best_of: dict[str, TrialPoint] = {}
        for item in self._items():
            point = self._points.get(self._single(item))
            if point is not None and (item[0] not in best_of or self.value(point) < self.value(best_of[item[0]])):
                best_of[item[0]] = point
        best = [point.settings for point in sorted(best_of.values(), key=self.value)[:_BEST_KNOBS]]
        for first, second in (*itertools.combinations(usual, 2), *itertools.combinations(best, 2)):
            pair = first | second
            if len(dict(pair)) == len(pair) and pair not in tried and not self._hopeless(pair):
                return pair
        return None

    def _neighbour(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """A point to climb from with one change, that first which promises most."""
        for weight in _WEIGHTS:
            if near := self._near_by(self._ground(weight).settings, self._items(), tried):
                return min(near, key=lambda settings: self._promise(settings, weight))
        return None

    def _near_by(self, ground: Settings, items: Iterable[tuple[str, str]], tried: Set[Settings]) -> list[Settings]:
        """Settings with one of these values changed that were not tried, and may work."""
        changed = (self._changed(ground, item) for item in items)
        return [settings for settings in changed if settings not in tried and not self._hopeless(settings)]

    def _complement(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """A point to climb from with two changes that lower different phases: alone each shows in no peak."""
        asked = (self._complements(self._ground(weight), weight, tried) for weight in _WEIGHTS)
        return next((settings for settings in asked if settings is not None), None)

    def _complements(self, ground: TrialPoint, weight: float, tried: Set[Settings], without: str = "") -> Settings | None:
        """The two changes of a point that promise most, by what each did there alone to time and to the peak of each phase; None where no two
        promise less than the point has. without: see `_ground`."""
        near = [(item, point) for item in self._items() if (point := self._points.get(self._changed(ground.settings, item))) is not None]
        best, least = None, self.value(ground, weight) - SAME_VALUE
        for (_, one), (item, other) in itertools.combinations(near, 2):
            settings = self._changed(one.settings, item)
            if settings in tried or without in dict(settings) or self._hopeless(settings):
                continue
            promised = self.value(_both(settings, ground, one, other), weight)
            if promised < least:
                best, least = settings, promised
        return best

    def _unsure_detour(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """The point to climb from without a knob of the best settings that stands on too few trials."""
        return _of_few_trials([self._ground(_WEIGHTS[0], name) for name in self._best_knobs()], pending)

    def _detour(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """As `_neighbour` and `_complement`, without a knob of the best settings, by the values that lowered the goal's figure anywhere."""
        helpful = self._helpful()
        for name in self._best_knobs():
            ground = self._ground(_WEIGHTS[0], name)
            items = [item for item in self._items() if item in helpful or item in ground.settings]
            near = [settings for settings in self._near_by(ground.settings, items, tried) if name not in dict(settings)]
            if near:
                return min(near, key=self._promise)
            if (both := self._complements(ground, _WEIGHTS[0], tried, name)) is not None:
                return both
        return None

    def _best_knobs(self) -> list[str]:
        return sorted(dict(self._ground(_WEIGHTS[0]).settings))

    def _helpful(self) -> set[tuple[str, str]]:
        """The values that made settings better, beside any others."""
        return {
            item
            for point in self._points.values()
            for item in point.settings
            if (other := self._points.get(point.settings - {item})) is not None and self.value(point) < self.value(other) - SAME_VALUE
        }

    def _doubt(self, tried: Set[Settings], pending: Sequence[Settings]) -> Settings | None:
        """A proposal of too few trials, or settings below the default's peak that are none because such a trial took more time than that of a rival,
        by no more than times of the same settings differ. Settings with the peak of some of their values alone are left out."""
        proposals, known, near_time = self.proposals(), self.plain_points(), self._near()[1]
        doubtful = [
            point
            for point in self.beaten()
            if _lightest(point, known) is None
            and not any(rival.peak <= point.peak and math.log(point.time / rival.time) >= near_time for rival in proposals)
        ]
        return _of_few_trials([*proposals, *doubtful], pending)

    def _promise(self, settings: Settings, weight: float = 1.0) -> float:
        """The value of settings if each of them did what it does by itself."""
        base = self.base
        singles = [self._points.get(self._single(item), base) for item in settings]
        peak = base.peak * math.prod(single.peak / base.peak for single in singles)
        time = base.time * math.prod(single.time / base.time for single in singles)
        return self.value(TrialPoint(settings, peak, time, 0, any(single.changes for single in singles)), weight)

    def _hopeless(self, settings: Settings) -> bool:
        return bool(self._lacking(settings)) or any(failed <= settings for failed in self._failed)


def _asked(stage: _Stage, tried: Set[Settings], most: int) -> list[Settings]:
    """What a stage asks for, as if each answer were a long time off."""
    pending: list[Settings] = []
    while len(pending) < most and (settings := stage(tried | set(pending), pending)) is not None:
        pending.append(settings)
    return pending


def _of_few_trials(points: Iterable[TrialPoint], pending: Sequence[Settings]) -> Settings | None:
    """The first of these settings that has too few trials, those that wait for their answer included."""
    return next((point.settings for point in points if point.trials + pending.count(point.settings) < SURE), None)


def _both(settings: Settings, ground: TrialPoint, one: TrialPoint, other: TrialPoint) -> TrialPoint:
    """The settings of two changes as they should be, if each does what it does to the ground alone, phase by phase."""
    peaks = ground.peak, one.peak, other.peak
    of_phases = (ground.phases, one.phases, other.phases) if len(ground.phases) == len(one.phases) == len(other.phases) else ((), (), ())
    phases = tuple(first * second / before for before, first, second in zip(*of_phases, strict=True))
    peak = max(phases, default=peaks[1] * peaks[2] / peaks[0])
    return TrialPoint(settings, peak, one.time * other.time / ground.time, 0, one.changes or other.changes, phases)


def _point(settings: Settings, trials: Sequence[Trial]) -> TrialPoint:
    middle = (statistics.median(trial.peak or 0 for trial in trials), statistics.median(trial.time or 0 for trial in trials))
    known = len({len(trial.phases) for trial in trials}) == 1
    phases = tuple(statistics.median(peaks) for peaks in zip(*(trial.phases for trial in trials), strict=True)) if known else ()
    return TrialPoint(settings, *middle, len(trials), any(trial.changes for trial in trials), phases)


def front(points: Iterable[TrialPoint]) -> list[TrialPoint]:
    """The Pareto front, least peak first, without ballast: a point is left out if a point with only some of its settings has as good as the
    same peak (0.3%) and is about as fast (15%).
    """
    candidates = sorted(points, key=lambda point: (point.peak, point.time))
    peaks = [point.peak for point in candidates]
    unbeaten: list[TrialPoint] = []
    for point in candidates:
        if not unbeaten or point.time < unbeaten[-1].time:
            small_enough = candidates[: bisect_right(peaks, point.peak * (1 + _EQUAL_PEAK))]
            if not any(_lighter_as_fast(other, point) for other in small_enough):
                unbeaten.append(point)
    return unbeaten


def _lightest(point: TrialPoint, known: Iterable[TrialPoint]) -> TrialPoint | None:
    """The point with the fewest settings, all of them among this one's, that has as good as the same peak."""
    lighter = [
        other
        for other in known
        if other.settings < point.settings and other.changes <= point.changes and other.peak <= point.peak * (1 + _EQUAL_PEAK)
    ]
    return min(lighter, key=lambda other: (len(other.settings), other.time), default=None)


def _lighter_as_fast(lighter: TrialPoint, point: TrialPoint) -> bool:
    return lighter.settings < point.settings and lighter.time <= point.time * (1 + _EQUAL_TIME)


def _spread(values: Sequence[float]) -> float:
    """The relative standard deviation, 0 for a single value."""
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0
