"""The search for settings, on made-up costs: nothing is measured here."""

import itertools
import math
import random

import pytest

from memprof.footprint.tune.search import DEFAULT, Goal, Search, Trial, TrialPoint, front

KNOBS = {f"k{index}": tuple(f"v{value}" for value in range(1 + index % 3)) for index in range(12)}
FEW_KNOBS = {name: KNOBS[name] for name in list(KNOBS)[:6]}  # for a search that goes to its end
ITEMS = [(name, value) for name, values in KNOBS.items() for value in values]


class Made:
    """Settings with known costs: a factor each for peak and time, some pairs that do more or less together, some that fail."""

    def __init__(self, seed, noise=0.002):
        dice = random.Random(seed)
        self.dice, self.noise = dice, noise
        self.peaks = {item: dice.choice([0, 0, 0, -0.05, -0.1, -0.2, 0.05, 0.1]) for item in ITEMS}
        self.times = {item: dice.choice([0, 0, 0, 0.02, 0.2, 0.5]) for item in ITEMS}
        self.pairs = {frozenset(pair): dice.gauss(0, 0.05) for pair in itertools.combinations(ITEMS, 2) if dice.random() < 0.05}
        self.bad = [frozenset(dice.sample(ITEMS, 2)) for _ in range(3)] + [frozenset([dice.choice(ITEMS)])]

    def truth(self, settings):
        if any(bad <= settings for bad in self.bad):
            return None
        together = sum(value for pair, value in self.pairs.items() if pair <= settings)
        return sum(self.peaks[item] for item in settings) + together, sum(self.times[item] for item in settings)

    def trial(self, settings):
        cost = self.truth(settings)
        if cost is None:
            return Trial(settings, None, None)
        return Trial(
            settings, 280e6 * math.exp(cost[0] + self.dice.gauss(0, self.noise)), 30e6 * math.exp(cost[1] + self.dice.gauss(0, 0.02))
        )

    def least(self, limit=math.inf):
        """The least log(peak) by steepest descent from many places: what nobody who measures could know."""
        best = 0.0
        for _ in range(40):
            here, cost = DEFAULT, 0.0
            moved = True
            while moved:
                moved = False
                for item in random.sample(ITEMS, len(ITEMS)):
                    there = frozenset(other for other in here if other[0] != item[0])
                    there = there if item in here else there | {item}
                    least_there = self.truth(there)
                    if least_there and least_there[1] <= limit and least_there[0] < cost - 1e-9:
                        here, cost, moved = there, least_there[0], True
            best = min(best, cost)
        return best


def searched(made, goal=None, trials=150, knobs=KNOBS, first=()):
    search = Search(knobs, goal or Goal(), first=first)
    while len(search.trials) < trials and (settings := search.ask()) is not None:
        search.tell(made.trial(settings))
    return search


@pytest.mark.parametrize("seed", range(3))
def test_search_nears_least_peak(seed):
    made = Made(seed)
    grid = math.prod(1 + len(values) for values in KNOBS.values())

    search = searched(made)

    best = made.truth(min(search.points(), key=search.value).settings)
    assert len(search.trials) < grid / 100
    assert best[0] <= 0.85 * made.least()  # logarithms of shares: both are below 0


def test_search_keeps_time_limit():
    made = Made(1)

    search = searched(made, Goal(max_time=1.1))

    best = made.truth(min(search.points(), key=search.value).settings)
    assert best[1] <= math.log(1.1) + 0.05
    assert best[0] <= 0.8 * made.least(math.log(1.1))


def test_search_budget_prefers_fastest():
    made = Made(2)
    budget = 280e6 * math.exp(made.least() / 3)

    best = min((search := searched(made, Goal(budget=budget))).points(), key=search.value)

    assert best.peak <= budget * 1.01
    assert best.time <= min(point.time for point in search.points() if point.peak <= budget)


def test_search_default_then_single_values():
    search = searched(Made(0), trials=1 + len(ITEMS), first=(ITEMS[7], ("k0", "unknown"), ITEMS[3]))

    assert search.trials[0].settings == DEFAULT
    assert [trial.settings for trial in search.trials[1:3]] == [{ITEMS[7]}, {ITEMS[3]}]
    assert {next(iter(trial.settings)) for trial in search.trials[1:]} == set(ITEMS)


def phases(settings):
    """A knob that lowers the peak of loading, after which three others do nothing; these together lower it more, and take no time."""
    on = set(dict(settings))
    if "opt" in on:
        return (77.0 - 5 * ("pattern" in on), 16.0)
    return (100.0 - 18 * ("weights" in on) - 9 * ("threshold" in on) - 4 * ({"weights", "threshold", "pattern"} <= on), 10.0)


@pytest.mark.parametrize("slow", [1.0, 3.0])
def test_search_leaves_basin_of_one_knob(slow):
    """The least peak lies apart from the best value: its settings are found, and proposed though their first trial met a busy machine."""
    knobs = {
        "opt": ("off", "basic", "more"),
        "format": ("ort",),
        **dict.fromkeys(("weights", "threshold", "pattern", "idle", "other"), ("on",)),
    }
    search, best = Search(knobs), frozenset({("weights", "on"), ("threshold", "on"), ("pattern", "on")})
    while (settings := search.ask()) is not None:
        peak, time = phases(settings)
        busy = slow if settings == best and not search.of(best) else 1.0
        search.tell(Trial(settings, peak, time * busy))

    assert best in {point.settings for point in search.proposals()}
    assert min(search.points(), key=search.value).settings == best
    grid = itertools.product(*[("", *values) for values in knobs.values()])
    every = [frozenset((name, value) for name, value in zip(knobs, values, strict=True) if value) for values in grid]
    assert search.proposals()[0].peak == min(phases(settings)[0] for settings in every)
    assert len(search.trials) < len(every) / 3


def test_values_of_different_phases_are_combined():
    """Two phases are as high as each other: what lowers one of them shows in no peak alone, and is none of the best values."""
    savings = {**{f"idle{number}": (0, 0) for number in range(5)}, "load": (30, 0), "pattern": (0, 25), "last": (0, 2)}
    for known in (True, False):
        search = Search(dict.fromkeys(savings, ("on",)))
        while (settings := search.ask()) is not None:
            peaks = tuple(100.0 - sum(savings[name][phase] for name, _ in settings) for phase in (0, 1))
            search.tell(Trial(settings, max(peaks), 10.0, phases=peaks if known else ()))

        assert [(set(dict(point.settings)), point.peak) for point in search.proposals()] == (
            [({"load", "pattern", "last"}, 73.0)] if known else []
        )
        assert len(search.trials) < 70


def test_settings_of_one_slow_trial_are_tried_again():
    """The time of a single trial counts for a place on the front no more than times of the same settings differ."""
    knobs = dict.fromkeys("abc", ("on",))
    default = [("", (100.0, time)) for time in (10.0, 12.0, 11.0)]
    search = told(knobs, [*default, ("a=on", (80.0, 11.0)), ("b=on", (80.4, 13.0)), ("c=on", (80.5, 40.0))])
    asked = []
    while (settings := search.ask()) is not None:
        asked.append(settings)
        peak, time = (85.0, 30.0) if len(settings) > 1 else {"a": (80.0, 11.0), "b": (80.4, 9.0)}[min(settings)[0]]
        search.tell(Trial(settings, peak, time))

    assert asked.count(frozenset({("b", "on")})) == 2
    assert asked.count(frozenset({("c", "on")})) == 0
    assert search.time_noise() == pytest.approx(0.2)


def test_default_of_two_sizes_hides_no_value():
    """The default's peak comes in two sizes further apart than a value saves; beside another value each repeats, and tells that it saves."""
    search = Search({"opt": ("on",), "pattern": ("on",)})
    both, opt = frozenset({("opt", "on"), ("pattern", "on")}), frozenset({("opt", "on")})
    sizes = {DEFAULT: (145.1, 139.1, 145.3), both - opt: (139.1,), opt: (111.2, 111.2, 111.1), both: (105.2, 105.4, 105.3)}
    for settings, peaks in sizes.items():
        for peak in peaks:
            search.tell(Trial(settings, peak, 10.0))

    assert search.idle() == []
    assert search.proposals()[0].settings == both


def test_usual_pair_is_first():
    """Five others save more by themselves; the two are left out where one of them saves nothing."""
    pair = (ITEMS[0], ITEMS[1])
    for peak, first in ((95.0, set(pair)), (100.0, None)):
        search = Search(KNOBS, first=pair)
        for settings in (DEFAULT, *(frozenset({item}) for item in ITEMS)):
            size = 100.0 if not settings else peak if settings <= set(pair) else 90.0 - ITEMS.index(next(iter(settings)))
            search.tell(Trial(settings, size, 10.0))
        asked = search.ask()
        assert asked == first if first else not asked & set(pair) and len(asked) == 2


def test_search_without_time_combines_known():
    """Values that were not tried wait until those that save are together."""
    good = (ITEMS[0], ITEMS[4], ITEMS[9])
    search = Search(KNOBS)
    search.tell(Trial(DEFAULT, 100.0, 10.0))
    for item in (*good, ITEMS[2]):
        search.tell(Trial(frozenset({item}), 80.0 if item in good else 100.0, 10.0))

    asked = []
    for _ in range(2):
        asked.append(search.ask(screens=False))
        search.tell(Trial(asked[-1], 80.0 * 0.8 ** (len(asked[-1]) - 1), 10.0))

    assert asked[0] < asked[1] == set(good) and len(asked[0]) == 2
    assert len(search.ask()) == 1


def test_search_repeatable_from_history():
    whole = searched(Made(0), trials=150)
    again = Search(KNOBS)
    for trial in whole.trials[:60]:
        again.tell(trial)

    for trial in whole.trials[60:]:
        assert again.ask() == trial.settings
        again.tell(trial)


def test_points_merged_across_idle_settings():
    good, idle = frozenset({("good", "on")}), frozenset({("idle", "on")})
    search = Search({"good": ("on",), "idle": ("on",)})
    for settings, peak in [(DEFAULT, 100.0)] * 3 + [(idle, 100.1), (good | idle, 60.0), (good | idle, 62.0)]:
        search.tell(Trial(settings, peak, 10.0))

    assert search.idle() == list(idle)
    assert {point.settings: (point.peak, point.trials) for point in search.plain_points()} == {DEFAULT: (100.0, 4), good: (61.0, 2)}

    search.tell(Trial(good, None, None))  # without what changes nothing it fails: then that is no ballast

    assert good not in {point.settings for point in search.plain_points()}


def test_failures_narrowed_to_pairs():
    made = Made(0)

    search = searched(made, trials=200)

    for place, trial in enumerate(search.trials):
        known = [other.settings for other in search.trials[:place] if not other.ok]
        assert not any(settings <= trial.settings for settings in known)
    pairs = [failing for failing in search.failed() if len(failing) <= 2]
    assert pairs
    assert all(any(bad <= pair for bad in made.bad) for pair in pairs)


def test_value_tried_only_with_needs():
    made, kept = Made(0), {"k1": "v0", "k7": "v1"}
    made.bad = []
    made.peaks |= {("k4", "v0"): -0.5, ("k1", "v0"): 0.1, ("k5", "v0"): -0.2, ("k1", "v1"): -0.05}
    needs = {("k4", "v0"): kept, ("k5", "v0"): {"k1": None}}
    search = Search(KNOBS, needs=needs)

    while len(search.trials) < 150 and (settings := search.ask()) is not None:
        search.tell(made.trial(settings))

    asked = [dict(trial.settings) for trial in search.trials]
    assert {"k4": "v0", **kept} in asked[: 3 + len(ITEMS)]
    assert all(kept.items() <= settings.items() for settings in asked if settings.get("k4") == "v0")
    assert not any("k1" in settings for settings in asked if settings.get("k5") == "v0")
    best = min(search.points(), key=search.value)
    assert ("k4", "v0") in best.settings  # though it pays only after what it needs is paid for
    assert all(search._lacking(settings) == DEFAULT for settings in search.plain().values())


def test_value_with_failing_need_skipped():
    needs = {("k1", "v0"): {"k2": "v0"}}
    search = Search(FEW_KNOBS, needs=needs)

    while len(search.trials) < 40 and (settings := search.ask()) is not None:
        search.tell(Trial(settings, None, None) if ("k2", "v0") in settings else Trial(settings, 1e6, 1e6))

    assert not any(("k1", "v0") in trial.settings for trial in search.trials)
    assert search.failed() == [frozenset({("k2", "v0")})]


def test_idle_values_are_known():
    made = Made(3, noise=0.0005)

    search = searched(made, trials=1 + len(ITEMS))
    for _ in range(2):  # as often as the search measures the default in the end
        search.tell(made.trial(DEFAULT))
    idle = search.idle()

    truly = {item for item in ITEMS if made.peaks[item] == 0 and made.times[item] == 0 and frozenset([item]) not in made.bad}
    assert truly <= set(idle)
    assert not any(abs(made.peaks[item]) >= 0.05 or made.times[item] >= 0.2 for item in idle)


def test_best_point_without_ballast():
    made = Made(4, noise=0.0005)

    search = searched(made, trials=400, knobs=FEW_KNOBS)

    best = min(search.front(), key=search.value)
    assert best.trials >= 3
    assert search.ask() is None
    for item in best.settings:
        less = made.truth(best.settings - {item})
        assert less is None or less[0] > made.truth(best.settings)[0] or item in search.idle() or less[1] > made.truth(best.settings)[1]


def test_search_ends_on_failing_default():
    search = Search(KNOBS)
    search.tell(Trial(DEFAULT, None, None))

    with pytest.raises(ValueError, match="default"):
        search.ask()


def test_search_without_knobs_ends():
    search = Search({})
    for _ in range(3):
        search.tell(Trial(DEFAULT, 1.0, 1.0))

    assert search.ask() is None


def test_front_without_beaten_points():
    a, b = frozenset({("k", "a")}), frozenset({("k", "a"), ("l", "b")})
    points = [
        TrialPoint(DEFAULT, 100, 10, 1),
        TrialPoint(a, 60, 12, 1),
        TrialPoint(b, 59.95, 12.1, 1),
        TrialPoint(frozenset({("l", "b")}), 80, 13, 1),
    ]

    assert [point.settings for point in front(points)] == [a, DEFAULT]


def test_proposals_are_whole_front():
    figures = {
        "a": (109.8, 13.5),
        "b": (111, 12.6),
        "c": (112, 11.9),
        "d": (113, 11.2),
        "e": (114.9, 10.0),
        "f": (138.3, 9.9),
        "g": (120, 11),
    }
    search = Search({"k": tuple(figures)})
    search.tell(Trial(DEFAULT, 151.6, 10.0))
    for value, figure in figures.items():
        search.tell(Trial(frozenset({("k", value)}), *figure))

    assert [dict(point.settings)["k"] for point in search.proposals()] == ["a", "b", "c", "d", "e", "f"]


def told(knobs, figures, goal=None):
    """A search with these trials: settings as `a=on,b=on`, with the peak and the time of each."""
    search = Search(knobs, goal or Goal())
    for text, figure in figures:
        search.tell(Trial(frozenset(tuple(pair.split("=")) for pair in text.split(",") if pair), *figure))
    return search


def test_single_fast_trial_is_repeated():
    """A machine that is idle for a moment makes any value look fast: that value is tried again before it counts for anything."""
    default = [("", (140.0, time)) for time in (138.0, 178.0, 146.0)]
    search = told({"format": ("onnx",), "arena": ("off",)}, [*default, ("format=onnx", (140.0, 54.0)), ("arena=off", (130.0, 140.0))])
    asked = []
    while (settings := search.ask()) is not None and len(asked) < 8:
        asked.append(settings)
        search.tell(Trial(settings, 130.0 if ("arena", "off") in settings else 140.0, 141.0))

    assert asked.count(frozenset({("format", "onnx")})) == 2
    assert search.idle() == [("format", "onnx")]


def test_lighter_and_plainest_are_proposed():
    """Long settings whose single trial was fast stand beside those that are measured to need the same, and within a budget beside the plainest."""
    knobs = dict.fromkeys("abcd", ("on",))
    trials = [
        *[("", (140.0, 100.0))] * 3,
        *(("a=on", (109.0, 190.0)), ("b=on", (139.9, 99.0)), ("c=on", (118.0, 110.0)), ("d=on", (176.0, 100.0))),
        *(("a=on,c=on", (108.0, 150.0)), ("a=on,b=on,c=on", (108.0, 75.0))),
    ]

    def proposed(goal=None):
        return [set(dict(point.settings)) for point in told(knobs, trials, goal).proposals()]

    assert {"a", "c"} in proposed()
    assert {"a"} not in proposed()
    assert {"a"} in proposed(Goal(budget=112.0))


@pytest.mark.parametrize("seed", range(5))
def test_proposal_missing_only_if_matched(seed):
    search = searched(Made(seed), trials=80)
    proposals = search.proposals()

    for point in search.plain_points():
        if point.peak < 0.99 * search.base.peak:
            assert any(other.peak <= 1.003 * point.peak and other.time <= 1.15 * point.time for other in proposals), point
    assert not any(other.peak <= point.peak and other.time <= point.time for point, other in itertools.permutations(proposals, 2))


def in_turns(made, most, trials, knobs=FEW_KNOBS):
    """A search that asks for at most so many settings at once, and what it asked for each time."""
    search, turns = Search(knobs, Goal()), []
    while len(search.trials) < trials and (asked := search.ask_several(most)):
        turns.append(asked)
        for settings in asked:
            search.tell(made.trial(settings))
    return search, turns


def test_ask_several_in_fewer_turns():
    made = Made(0)
    one, single = in_turns(made, 1, 60)
    several, turns = in_turns(made, 4, 60)

    assert all(len(asked) == 1 for asked in single)
    assert max(map(len, turns)) == 4 and len(turns) < len(single) / 2
    assert turns[0] == [DEFAULT]
    counted = [len(asked) - len(set(asked)) for asked in turns]
    assert all(asked.count(settings) <= 3 for asked in turns for settings in asked) and sum(counted) < sum(map(len, turns)) / 3
    best = [min(search.value(point) for point in search.points()) for search in (one, several)]
    assert best[1] <= best[0] + 0.05


def test_ask_several_waits_for_needs():
    search = Search({"api": ("new",), "cache": ("on",), "slow": ("yes",)}, needs={("cache", "on"): {"api": "new"}})
    for _ in range(3):
        search.tell(Trial(DEFAULT, 1e6, 1e6))

    first = search.ask_several(8)
    for settings in first:
        search.tell(Trial(settings, 1e6, 1e6))

    assert first == [frozenset({("api", "new")}), frozenset({("slow", "yes")})]
    assert search.ask_several(8) == [frozenset({("api", "new"), ("cache", "on")})]
