"""Does memory rise with use: verdicts on curves whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support import sample_runs
from support.examples import examples
from support.sample_runs import worked

from memprof.records import work
from memprof.reports.tables.growth import words
from memprof.verdicts import growth
from memprof.verdicts.growth import Growth, Series, judge, judge_one

PAGE, MIB = 4096, 1 << 20
Shape = Callable[[np.ndarray, np.random.Generator], Any]


def flat(x: np.ndarray, random: np.random.Generator) -> Any:
    """A process at rest: now and then some pages of a library are used for the first time."""
    steps = np.zeros(len(x))
    for _ in range(random.poisson(3)):
        steps[int(len(x) * random.random() ** 3) :] += PAGE * random.integers(1, 17)
    return 50 * MIB + steps


def warm_up(x: np.ndarray, random: np.random.Generator) -> Any:
    return flat(x, random) + np.minimum(x / random.integers(1, len(x) // 5), 1) ** random.choice([0.5, 1, 2]) * random.uniform(1, 30) * MIB


def cache(x: np.ndarray, random: np.random.Generator) -> Any:
    keys = random.integers(0, random.integers(8, len(x) // 20), len(x))
    seen: set[int] = set()
    filled = []
    for key in keys:
        seen.add(int(key))
        filled.append(len(seen))
    return flat(x, random) + np.array(filled) * random.choice([4096, 65536])


def saw_tooth(x: np.ndarray, random: np.random.Generator) -> Any:
    return flat(x, random) + x % random.integers(5, len(x) // 20) * random.uniform(100, 3000)


def fragmentation(x: np.ndarray, random: np.random.Generator) -> Any:
    ends = 1 - np.exp(-x / (len(x) / random.uniform(24, 40)))
    return flat(x, random) + ends * random.uniform(1, 20) * MIB + random.normal(0, 20e3, len(x))


def leak(size: float, every: int = 1, beside: Shape = flat) -> Shape:
    return lambda x, random: beside(x, random) + x // every * size * every


def pool(x: np.ndarray, random: np.random.Generator) -> Any:
    return flat(x, random) + PAGE * 2 ** np.ceil(np.log2((x + 1) / 1.5))


def arenas(x: np.ndarray, random: np.random.Generator) -> Any:
    return flat(x, random) + (x + random.integers(200)) // 220 * 64 * MIB


def fills(entries: int, size: int = 4096) -> Shape:
    """A cache that takes an entry of each unit until it is full."""
    return lambda x, random: flat(x, random) + np.minimum(x, entries) * size


def fills_bytes(limit: int) -> Shape:
    """A cache of entries of any size that drops the oldest ones beyond its limit."""

    def size(x: np.ndarray, random: np.random.Generator) -> Any:
        ends = np.cumsum(random.integers(1000, 60000, len(x)))
        dropped = np.searchsorted(ends, ends - limit)
        return flat(x, random) + ends - np.where(dropped > 0, ends[dropped - 1], 0)

    return size


def bursts(entries: int, share: float) -> Shape:
    """A cache that drops a share of its entries at once when it is full."""

    def size(x: np.ndarray, random: np.random.Generator) -> Any:
        held = np.where(x <= entries, x, entries - entries * share + (x - entries) % (entries * share))
        return flat(x, random) + held * random.choice([4096, 65536])

    return size


def processes(shape: Shape, units: int, seed: int, count: int = 3) -> list[Series]:
    random = np.random.default_rng(seed)
    x = np.arange(units + 1)
    return [Series({"iteration": x.tolist()}, (np.floor(shape(x, random) / PAGE) * PAGE).astype(int).tolist()) for _ in range(count)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", [flat, warm_up, cache, saw_tooth, fragmentation])
def test_bounded_shapes_do_not_grow(shape, seed):
    verdict = judge(processes(shape, 2000, seed))

    assert verdict.word != "grows"
    if shape in (flat, warm_up, fragmentation):
        assert verdict.word == ("steady" if shape is flat else "bounded") or verdict.rise_bytes < MIB
        assert verdict.high * verdict.tail < 2 * MIB


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("shape", "units", "reached", "size"),
    [
        (fills(3000), 8000, 3000, 3000 * 4096),
        (fills(10_000), 18_000, 10_000, 10_000 * 4096),
        (fills(10_000, 65536), 20_000, 10_000, 10_000 * 65536),
        (fills_bytes(64 * MIB), 6000, 2200, 64 * MIB),
        (bursts(3000, 0.1), 8000, 3000, None),
        (bursts(3000, 0.5), 20_000, 3000, None),
        (bursts(3000, 0.9), 20_000, 3000, None),
    ],
)
def test_full_cache_bounded(shape, units, reached, size, seed):
    verdict = judge(processes(shape, units, seed))

    assert verdict.word == "bounded", verdict.reason
    assert verdict.warmup == pytest.approx(reached, rel=0.06)
    assert size is None or verdict.rise_bytes == pytest.approx(size, rel=0.03)
    assert verdict.high * verdict.tail < 2 * MIB


@pytest.mark.parametrize(
    ("units", "word"), [(8000, "grows"), (10_500, "grows"), (12_000, "undecided"), (14_000, "undecided"), (18_000, "bounded")]
)
def test_cache_bound_needs_longer_run(units, word):
    verdict = judge(processes(fills(10_000), units, 1))

    assert verdict.word == word
    assert verdict.reason == ("it rose evenly and then stopped, but too late to be sure" if word == "undecided" else None)


def slows_at(unit: int, size: float, beside: Shape) -> Shape:
    """What fills, and then leaks."""
    return lambda x, random: beside(x, random) + np.maximum(x - unit, 0) * size


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("beside", [fills(5000), fills_bytes(32 * MIB), bursts(3000, 0.5)])
def test_leak_beside_full_cache_not_flat(beside, seed):
    assert judge(processes(slows_at(3000, 512, beside), 12_000, seed)).word not in ("steady", "bounded")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("times", [1.5, 2, 3, 4])
def test_pool_of_multiples_not_bounded(times, seed):
    def multiples(x: np.ndarray, random: np.random.Generator) -> Any:
        return flat(x, random) + 64 * PAGE * times ** np.ceil(np.log((x + 1) / random.uniform(1, times)) / np.log(times))

    assert judge(processes(multiples, 2000, seed)).word not in ("steady", "bounded")


def test_leak_with_pause_not_flat():
    x = np.arange(8001)
    pause = np.where(x < 4000, x, np.maximum(x - 1500, 4000))

    assert judge([Series({"iteration": x.tolist()}, (50 * MIB + pause * 4096).tolist())] * 3).word not in ("steady", "bounded")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("shape", "units", "rate"),
    [
        (leak(4096), 2000, 4096),
        (leak(65536), 2000, 65536),
        (leak(4096, every=100), 2000, 4096),
        (leak(4096, beside=warm_up), 2000, 4096),
        (leak(4096, beside=saw_tooth), 2000, 4096),
        (leak(256), 20000, 256),
        (leak(256, beside=warm_up), 20000, 256),
        (arenas, 2000, 64 * MIB / 220),
    ],
)
def test_leak_grows_at_rate(shape, units, rate, seed):
    verdict = judge(processes(shape, units, seed))

    assert verdict.word == "grows", verdict.reason
    assert 0.8 * rate < verdict.slope < 1.25 * rate
    assert verdict.low <= verdict.slope <= verdict.high


def test_doubling_pool_grows():
    verdicts = [judge(processes(pool, 2000, seed)).word for seed in range(6)]

    assert verdicts.count("grows") >= 4 and set(verdicts) <= {"grows", "undecided"}


def test_warm_up_measured():
    x = np.arange(4001)
    size = (60 * MIB + np.minimum(x, 38) * 300_000).astype(int).tolist()

    verdict = judge([Series({"iteration": x.tolist()}, size)] * 3)

    assert (verdict.word, verdict.warmup, verdict.rise_bytes) == ("bounded", 38, 38 * 300_000)
    assert verdict.tail == 4001 - 39 and 0 < verdict.high <= 3


def test_late_step_decided_by_longer_run():
    x = np.arange(2001)
    size = (60 * MIB + (x > 1500) * 20 * MIB).tolist()
    longer = np.arange(8001)

    short = judge([Series({"iteration": x.tolist()}, size)] * 3)
    assert (short.word, short.needed) == ("undecided", 8000)
    long = judge([Series({"iteration": longer.tolist()}, (60 * MIB + (longer > 1500) * 20 * MIB).tolist())] * 3)
    assert (long.word, long.warmup) == ("bounded", 1501)


def test_filling_cache_undecided():
    x = np.arange(2001)
    size = (60 * MIB + (1 - np.exp(-x / 1500)) * 100 * MIB).astype(int).tolist()

    verdict = judge([Series({"iteration": x.tolist()}, size)] * 3)

    assert verdict.word == "undecided" and "more and more slowly" in verdict.reason


def comes_down(x: np.ndarray, random: np.random.Generator) -> Any:
    """Reloads of a runtime: some MiB rise for a while, the more the later, and are then given back in full."""
    risen, sizes = 0.0, []
    for share in x / x[-1]:
        risen = 0.0 if random.random() < 0.04 else max(risen, random.choice([0.2, 0.7, 1 + share, 2 * share]))
        sizes.append(risen * MIB)
    return 66 * MIB + np.array(sizes)


@pytest.mark.parametrize("seed", range(2))
def test_memory_returning_to_level_is_flat(seed):
    verdict = judge(processes(comes_down, 800, seed))

    assert verdict.word in ("steady", "bounded"), verdict.reason
    assert verdict.high < 64


def moves(*lows: int, units: int = 800) -> list[Series]:
    """Memory that moves by some MiB and more and more, and is at its least, so many KiB, once in each quarter."""
    x = np.arange(units)
    sizes = 66 * MIB + (1200 << 10) * (1 + x / units) * (1 + np.sin(x)) + MIB
    sizes[units // 8 :: units // 4] = 66 * MIB + 1024 * np.array(lows)
    return [Series({"reload": x.tolist()}, (sizes // PAGE * PAGE).astype(int).tolist())] * 3


@pytest.mark.parametrize("lows", [(0, 0, 0, 0), (396, 0, 0, 0), (0, 396, 0, 4), (396, 396, 0, 396)])
def test_quarter_missing_level_is_no_rise(lows):
    verdict = judge(moves(*lows))

    assert verdict.word in ("steady", "bounded"), verdict.reason
    assert verdict.high <= 2 * PAGE / 200


@pytest.mark.parametrize("lows", [(0, 0, 0, 396), (0, 0, 396, 396), (0, 12, 24, 36), (396, 0, 396, 0)])
def test_memory_without_common_level_not_flat(lows):
    assert judge(moves(*lows)).word not in ("steady", "bounded")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("size", [512, 4096])
def test_slow_leak_under_moves_not_flat(size, seed):
    assert judge(processes(leak(size, beside=comes_down), 800, seed)).word not in ("steady", "bounded")


def test_verdict_needs_all_processes():
    steady, growing = processes(flat, 2000, 1), processes(leak(4096), 2000, 1)

    torn = judge([*steady[:2], growing[0]])
    assert torn.reason == "growth in 1 of 3 processes" and torn.needed == 8000
    assert judge(growing[:2]).word == "undecided"
    fast = processes(leak(40960), 2000, 1)
    assert "times as fast" in judge([*growing[:2], fast[0]]).reason


def test_too_few_units_undecided():
    verdict = judge(processes(flat, 20, 1))

    assert verdict.word == "undecided" and verdict.needed == 128


@pytest.mark.parametrize(("last", "word"), [(199, "steady"), (400, "undecided")])
def test_units_that_came_at_once_undecided(last: int, word: str) -> None:
    """Lines of a fast program on a busy machine are read many at once: what memory did between them is not known."""
    done = [*range(600), 599 + last]
    found = judge_one(Series({"request": done}, [50 * MIB] * len(done)))
    assert found.word == word
    if word == "undecided":
        assert (found.reason, found.needed) == ("400 of 999 came at once, so memory between them is unknown", 4 * 999)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cause", ["iteration", "token", "request"])
def test_unit_of_leak_named(cause, seed):
    random = np.random.default_rng(seed)
    tokens = np.cumsum(random.integers(1, 100, 2001))
    requests = np.cumsum(random.random(2001) < 0.3)
    counts = {"iteration": np.arange(2001), "token": tokens, "request": requests}
    size = (np.floor((50 * MIB + counts[cause] * 4000) / PAGE) * PAGE).astype(int).tolist()

    verdict = judge([Series({name: column.tolist() for name, column in counts.items()}, size)] * 3)

    assert (verdict.word, verdict.unit, verdict.rivals) == ("grows", cause, ())
    assert 3900 < verdict.slope < 4100


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cause", ["iteration", "token", "request"])
def test_unit_of_doubling_pool_named(cause, seed):
    random = np.random.default_rng(seed)
    several = []
    for _ in range(3):
        tokens, requests = np.cumsum(random.integers(1, 100, 2001)), np.cumsum(random.random(2001) < 0.3)
        counts = {"iteration": np.arange(2001), "token": tokens, "request": requests}
        first = {"iteration": 24, "token": 1200, "request": 7}[cause]  # the steps come after twice as much each time
        size = 50 * MIB + 8 * MIB * 2 ** np.floor(np.log2(np.maximum(counts[cause] / first, 1)))
        several.append(Series({name: column.tolist() for name, column in counts.items()}, size.astype(int).tolist()))

    verdict = judge(several)

    assert (verdict.word, verdict.unit, verdict.rivals) == ("grows", cause, ())
    assert {growth.unit for growth in verdict.processes} == {cause}


@pytest.mark.parametrize("seed", range(1, 4))
def test_unit_stable_across_equal_processes(seed):
    random = np.random.default_rng(seed)
    tokens = np.cumsum(random.integers(1, 100, 2001))
    counts = {"iteration": list(range(2001)), "token": tokens.tolist()}
    several = []
    for _ in range(3):
        late = random.integers(0, 2, 2001)  # the kernel counts a page late at times
        several.append(Series(counts, ((50 * MIB + 6 * tokens) // PAGE * PAGE - PAGE * late).astype(int).tolist()))

    verdict = judge(several)

    assert {judge_one(process).unit for process in several} == {"token"}
    assert (verdict.word, verdict.unit) == ("grows", "token")


def test_units_varying_together_are_rivals():
    x = np.arange(2001)
    size = (50 * MIB + x * 4096).tolist()

    verdict = judge([Series({"iteration": x.tolist(), "token": (3 * x).tolist()}, size)] * 3)

    assert (verdict.unit, verdict.rivals) == ("iteration", ("token",))


def test_unit_once_per_iteration_replaces_iteration():
    steps = list(range(100))
    curve = work.unpack(worked(steps, [PAGE * step for step in steps], reload=steps))

    assert list(growth.series(curve, PAGE).counts) == ["reload"]


@pytest.mark.parametrize(
    ("where", "columns"), [("in use", (1, 0, 0)), ("kept free", (0, 1, 0)), ("file-backed", (0, 0, 1)), ("other mappings", (0, 0, 0))]
)
def test_memory_kind_of_growth_named(where, columns):
    x = np.arange(2001)
    used, free, file = (((part * x * 4096) + MIB).tolist() for part in columns)
    looked = x[::100].tolist()

    grown = judge_one(Series({"iteration": x.tolist()}, (50 * MIB + x * 4096).tolist(), file, looked, used[::100], free[::100]))

    assert (grown.word, grown.where) == ("grows", where)


def test_swapped_pages_count_as_memory():
    steps = list(range(200))
    curve = work.unpack(worked(steps, [10 * MIB - PAGE * step for step in steps], swap=[PAGE * step for step in steps]))

    assert set(growth.series(curve, PAGE).rss) == {10 * MIB}


@examples(25)
@given(st.integers(0, 10**6), st.sampled_from([flat, warm_up, cache, saw_tooth, leak(4096)]), st.integers(1, 1 << 40))
def test_verdict_independent_of_level(seed, shape, level):
    (process,) = processes(shape, 400, seed, 1)
    level -= level % PAGE
    lifted = Series(process.counts, [size + level for size in process.rss])

    unlifted, other = judge_one(process), judge_one(lifted)

    assert (unlifted.word, unlifted.warmup, unlifted.tail) == (other.word, other.warmup, other.tail)


@examples(25)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1 << 40)), min_size=1, max_size=200))
def test_verdict_finite_for_any_curve(rows):
    done = np.cumsum([step for step, _ in rows]).tolist()

    verdict: Growth = judge([Series({"iteration": done}, [size for _, size in rows])] * 3)

    assert verdict.word in ("steady", "bounded", "grows", "undecided")
    assert verdict.tail >= 0 and verdict.warmup >= 0
    if verdict.word != "undecided":
        assert np.isfinite([verdict.slope, verdict.low, verdict.high]).all()


def test_steep_part_of_cache_of_chance_keys() -> None:
    """The last of 3,000 keys that come by chance take many more units than the most of them."""
    random = np.random.default_rng(1)
    seen: set[int] = set()
    rss = []
    for _ in range(40_000):
        seen.add(int(random.integers(3000)))
        rss.append((50 << 20) + 8192 * len(seen))

    verdict = judge([Series({"iteration": list(range(len(rss)))}, rss)] * 3)

    assert verdict.word == "bounded"
    assert verdict.steep == pytest.approx(3000 * np.log(10), rel=0.05) and verdict.steep < verdict.warmup
    assert f", nine tenths of it in the first {verdict.steep:,}, then 0 B" in words(verdict)


def test_first_load_is_no_growth_with_reloads() -> None:
    done = list(range(101))
    curve = work_of(done, [(20 << 20) + (29 << 20) * (count > 0) for count in done])

    verdict = judge([growth.series(curve, 4096)] * 3)

    assert (verdict.word, verdict.rise_bytes) == ("steady", 0)


def work_of(done: list[int], rss: list[int]) -> work.Curve:
    run = sample_runs.run()
    return work.curve_of(replace(run, work=(worked(done, rss, "RELOAD", reload=done),)))


def test_leak_of_devices_grows_beside_flat_rss() -> None:
    """A dma-buf after each iteration, which no resident set counts."""
    done = list(range(401))
    run = replace(sample_runs.run("a", 1), work=(worked(done, [60 << 20] * len(done)),))
    times = [1_000_000 * each for each in done]
    line = replace(run.timeline, device_t_ns=sample_runs.packed(times), device=sample_runs.packed([each << 16 for each in done]))

    flat, leaking = (growth.series(work.curve_of(each), 4096) for each in (run, replace(run, timeline=line)))
    assert judge([flat] * 3).word == "steady"
    verdict = judge([leaking] * 3)
    assert verdict.word == "grows"
    assert verdict.slope == pytest.approx(1 << 16, rel=0.01)


LOOKS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 200)


def heap_of(used: Callable[[int], float], rss: Callable[[int], float] = lambda done: 0, looks: tuple[int, ...] = LOOKS) -> Series:
    """A process whose heap has 4 MiB of freed memory at first; used, rss: bytes beyond that after so many units."""
    done = list(range(201))
    resident = [50 * MIB + round(rss(each)) for each in done]
    free = [4 * MIB + round(rss(look) - used(look)) for look in looks]
    return Series({"reload": done}, resident, looked=looks, used=[2 * MIB + round(used(look)) for look in looks], free=free)


@pytest.mark.parametrize(
    ("used", "rss", "looks", "word", "hidden"),
    [
        (lambda done: 17000 * done, lambda done: 0, LOOKS, "grows", True),
        (lambda done: 17000 * done, lambda done: max(0, 17000 * done - 3 * MIB), LOOKS, "grows", True),  # used up towards the end
        (lambda done: 17000 * done, lambda done: 0, (0, 1, 2, 3, 200), "undecided", False),  # no look between
        (lambda done: 17000 * done, lambda done: 0, (0, 1, 100, 200), "steady", False),  # a saw-tooth may look so
        (lambda done: 17000 * (done if done != 128 else 3), lambda done: 0, LOOKS, "steady", False),  # a saw-tooth
        (lambda done: 1e6 * np.sqrt(done / 4), lambda done: 0, LOOKS, "undecided", False),
        (lambda done: 3 * MIB * min(done, 20) / 20, lambda done: 0, LOOKS, "steady", False),
        (lambda done: 1000 * done, lambda done: 0, LOOKS, "steady", False),  # less than a library's code that is used late
        (lambda done: 17000 * done * (done < 200), lambda done: 0, LOOKS, "steady", False),
    ],
    ids=["all freed", "used up", "no look between", "few looks", "falls", "slows down", "warm-up", "little", "given back"],
)
def test_growth_in_freed_memory(used, rss, looks, word, hidden):
    verdict = judge([heap_of(used, rss, looks)] * 3)

    assert (verdict.word, verdict.hidden) == (word, hidden), verdict
    if word == "grows":
        assert verdict.slope == pytest.approx(17000, rel=0.01) and verdict.where == "in use"
        assert "it fills memory that was freed before, so the resident set does not rise yet" in words(verdict)
    if word == "undecided":
        assert "in memory that was freed before" in (verdict.reason or "") and verdict.needed == 800


CLOSE_LOOKS = (0, 1, 2, 4, 8, 16, 32, 40, 50, 64, 80, 100, 120, 140, 160, 180, 200)


@pytest.mark.parametrize(
    ("used", "word"),
    [
        (lambda done: 500 * done, "grows"),  # 98 KiB in all, which is less than a rise of the resident set must have
        (lambda done: 500 * done + 9_000 * (done < 4), "grows"),  # what its first units gave back
        (lambda done: 500 * done + 30_000 * (done > 90), "steady"),  # not even
        (lambda done: 70 * done, "steady"),  # 14 KiB
        (lambda done: 3000 * np.sqrt(done), "steady"),
        (lambda done: 1000 * min(done, 130), "steady"),
    ],
    ids=["even", "given back at first", "step", "tiny", "slows down", "stops"],
)
def test_small_growth_in_freed_memory(used, word):
    verdict = judge([heap_of(used, looks=CLOSE_LOOKS)] * 3)

    assert verdict.word == word
    if word == "grows":
        assert verdict.hidden and verdict.slope == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize(("each", "least"), [(0, 20), (70, 90), (1000, 1020)])
def test_flat_verdict_names_what_freed_memory_can_hide(each, least):
    """All that the bytes in use rose by could be a leak, and a page more."""
    verdict = judge([heap_of(lambda done: each * done)] * 3)

    assert verdict.word == "steady"
    assert verdict.high == pytest.approx(least, abs=6) and verdict.high >= each


def test_rise_in_freed_memory_is_that_of_bytes_in_use():
    processes = [heap_of(lambda done: 17000 * done)] * 3

    assert growth.risen(processes, judge(processes)) == (17000 * 200, True)


def test_rate_counts_freed_memory_beside_resident():
    """The resident set rises, but by less than the program takes: it has a part of that from memory that was freed before."""
    processes = [heap_of(lambda done: 17000 * done, lambda done: 10000 * done)] * 3

    verdict = judge(processes)

    assert verdict.word == "grows" and not verdict.hidden
    assert verdict.slope == verdict.high == pytest.approx(17000, rel=0.01)
    assert verdict.low == pytest.approx(10000, rel=0.01)
    assert growth.risen(processes, verdict) == (17000 * 200, True)


def leak_behind_step(free: int) -> Series:
    """A cache of 3 MiB that is filled at once, and a leak of 17 kB per unit, in a heap with so many freed bytes at first."""

    def used(done: int) -> float:
        return 3 * MIB * (done > 1) + 17000 * done

    done = list(range(201))
    kept = [max(0, free - round(used(each))) for each in done]
    resident = [50 * MIB + round(used(each)) - free + kept[each] for each in done]
    return Series(
        {"iteration": done},
        resident,
        [20 * MIB] * 201,
        LOOKS,
        [2 * MIB + round(used(look)) for look in LOOKS],
        [kept[look] for look in LOOKS],
    )


@pytest.mark.parametrize("free", [0, MIB, 3 * MIB, 5 * MIB, 8 * MIB])
def test_step_at_first_is_no_part_of_rate(free):
    """Whatever part of both was freed memory before."""
    processes = [leak_behind_step(free)] * 3

    verdict = judge(processes)

    assert verdict.word == "grows", verdict
    assert verdict.slope == pytest.approx(17000, rel=0.03) and verdict.where == "in use"
    whole = 3 * MIB + 17000 * 200
    assert growth.risen(processes, verdict) == ((whole, True) if free else (whole, False))


def test_growth_in_freed_memory_needs_all_processes():
    """One process whose bytes in use rose may have cut its heap another way."""
    rises, flat = heap_of(lambda done: 17000 * done), heap_of(lambda done: 0)
    assert judge([rises, rises, flat]).word == "steady"


def test_memory_taken_and_not_written_is_no_growth():
    """Bytes in use that neither came from freed memory nor are resident: a large block of which nothing was written."""
    untouched = replace(heap_of(lambda done: 17000 * done), free=[4 * MIB] * len(LOOKS))
    assert judge([untouched] * 3).word == "steady"
