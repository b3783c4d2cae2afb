"""Steps in a series: where they are, how large, and all that looks like a step and is none."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.history_series import BOUND, NOISES, SIZES, f1, matched, series

from memprof.base.errors import InputError
from memprof.verdicts import steps

MIB = 1 << 20


def flat(*levels: tuple[float, int], repeats: int = 5) -> list[tuple[float, ...]]:
    """A series without noise: (MiB, commits) one after another."""
    return [(level * MIB,) * repeats for level, count in levels for _ in range(count)]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("size", [size for size in SIZES if size >= 0.01])
def test_known_steps_found(noise: str, size: float) -> None:
    known = [series(noise, size, seed) for seed in range(3)]
    places = [[step.at for step in steps.find(made.points, BOUND)] for made in known]
    assert f1(places, [made.steps for made in known]) >= 0.95


@pytest.mark.parametrize("noise", NOISES)
def test_noise_without_step(noise: str) -> None:
    assert all(not steps.find(series(noise, 0, seed, steps=0).points, BOUND) for seed in range(4))


def test_noiseless_step_exact() -> None:
    (step,) = steps.find(flat((200, 7), (203, 4)), BOUND)
    assert (step.at, step.before, step.after, step.size) == (7, 200 * MIB, 203 * MIB, 3 * MIB)
    assert step.low == step.high == 3 * MIB
    assert step.share == pytest.approx(0.015)
    assert step.until is None and not step.undoes


def test_step_below_bound_ignored() -> None:
    points = flat((200, 20), (203, 20))
    assert steps.find(points, 2 * MIB)
    assert not steps.find(points, 4 * MIB)


def test_constant_or_short_series_without_step() -> None:
    assert steps.find(flat((200, 50)), BOUND) == ()
    assert steps.find(flat((0, 50))) == ()
    assert steps.find(flat((200, 1)), BOUND) == ()
    assert steps.find([]) == ()


def test_step_undone_later() -> None:
    rise, fall = steps.find(flat((200, 12), (210, 3), (200, 12)), BOUND)
    assert (rise.at, rise.until, rise.undoes) == (12, 15, False)
    assert (fall.at, fall.until, fall.undoes) == (15, None, True)
    rise, half = steps.find(flat((200, 12), (210, 12), (205, 12)), BOUND)
    assert rise.until is None and not half.undoes


def test_step_at_newest_commit() -> None:
    draw = random.Random(1)
    calm = [tuple(draw.gauss(200 * MIB, 0.05 * MIB) for _ in range(5)) for _ in range(30)]
    newest = tuple(value + 4 * MIB for value in calm[0])
    assert [step.at for step in steps.find([*calm, newest], BOUND)] == [30]
    one_outlier = (calm[0][0] + 40 * MIB, *calm[0][1:])
    assert not steps.find([*calm, one_outlier], BOUND)


def test_step_among_few_commits() -> None:
    for count in (2, 3, 5):
        assert [step.at for step in steps.find(flat((200, count - 1), (204, 1)), BOUND)] == [count - 1]
    wide = [
        (190.0 * MIB, 195.0 * MIB, 200.0 * MIB, 205.0 * MIB, 210.0 * MIB),
        (195.0 * MIB, 200.0 * MIB, 205.0 * MIB, 210.0 * MIB, 215.0 * MIB),
    ]
    assert not steps.find(wide, BOUND)
    assert not steps.find([(200.0 * MIB,), (204.0 * MIB,)], BOUND), "of one repeat each nothing is known"


def test_second_mode_without_step() -> None:
    draw = random.Random(2)
    calm = [tuple(draw.gauss(200 * MIB, 0.05 * MIB) + 5 * MIB * draw.randint(0, 1) for _ in range(5)) for _ in range(40)]
    calm[20] = (205 * MIB,) * 5
    assert not steps.find(calm, BOUND)


def test_step_interval_holds_size() -> None:
    held = 0
    for seed in range(60):
        made = series("one mode", 0.02, seed, commits=60, steps=1)
        level = made.points[0][0]
        (step,) = steps.find(made.points, BOUND)
        held += step.low - 0.001 * level <= step.size <= step.high + 0.001 * level and abs(abs(step.size) / level - 0.02) < 0.001
    assert held >= 58


def test_points_with_differing_repeats() -> None:
    points = [(200.0 * MIB,) * (1 + number % 3) for number in range(20)] + [(210.0 * MIB,) * (1 + number % 4) for number in range(20)]
    assert [step.at for step in steps.find(points, BOUND)] == [20]


def test_point_of_million_repeats() -> None:
    many = [tuple(float((number * 7919) % 1000 + level) for number in range(1_000_000)) for level in (10**7, 10**8)]
    (step,) = steps.find(many, BOUND)  # all differences would take 8 TB
    assert step.at == 1 and step.size == pytest.approx(9e7, abs=1000)


def test_long_series_loses_no_step() -> None:
    made = series("two modes", 0.02, 3, commits=1600, steps=12)
    assert [step.at for step in steps.find(made.points, BOUND)] == list(made.steps)
    for place in range(430, 510, 7):  # where stretches overlap
        assert [step.at for step in steps.find(flat((200, place), (206, 1100 - place), repeats=1), BOUND)] == [place]


@given(st.lists(st.lists(st.integers(0, 1 << 34), min_size=1, max_size=4), max_size=40), st.integers(0, MIB))
def test_steps_ordered_and_above_bound(points: list[list[float]], bound: int) -> None:
    found_steps = steps.find(points, bound)
    places = [step.at for step in found_steps]
    assert places == sorted(set(places)) and all(0 < place < len(points) for place in places)
    for step in found_steps:
        assert abs(step.size) > bound and step.low <= step.size <= step.high


def test_missing_ruptures_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    with pytest.raises(InputError, match="memprof\\[history\\]"):
        steps.find(flat((200, 10), (210, 10)), BOUND)


def test_score_counts_step_once() -> None:
    assert matched([10, 11], [10]) == 1
    assert matched([13], [10]) == 0
    assert f1([[10, 50]], [[11, 80]]) == 0.5
