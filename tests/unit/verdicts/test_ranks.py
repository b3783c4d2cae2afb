"""The rank test is the exact one as far as it counts, and scipy's beyond: held to counting every arrangement, and to scipy."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import sample_runs
from support.examples import examples

from memprof.reports.tables import comparison
from memprof.verdicts import compare, ranks

VALUES = st.lists(st.integers(0, 12), min_size=1, max_size=6)


def shared_ranks(values):
    """The rank of each value, ties sharing theirs, by definition."""
    return [sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2 for value in values]


def counted(*strata):
    """The share of all arrangements, stratum by stratum, whose rank sums come to no less than what was observed."""
    observed, sums = 0.0, [0.0]
    for base, head in strata:
        own = shared_ranks([*base, *head])
        observed += sum(own[len(base) :])
        sums = [before + sum(chosen) for before in sums for chosen in itertools.combinations(own, len(head))]
    return sum(total >= observed for total in sums) / len(sums)


@given(VALUES, VALUES)
@examples(300)
def test_rank_p_counts_every_arrangement(base, head):
    assert ranks.rank_p(base, head) == pytest.approx(counted((base, head)), rel=1e-12)
    both = min(1, 2 * min(counted((base, head)), counted((head, base))))
    assert ranks.two_sided_p(base, head) == pytest.approx(both, rel=1e-12)


SMALL = st.lists(st.integers(0, 5), min_size=1, max_size=3)


@given(st.lists(st.tuples(SMALL, SMALL), min_size=2, max_size=3))
@examples(100)
def test_stratified_p_counts_every_arrangement(strata):
    assert ranks.stratified_p(strata) == pytest.approx(counted(*strata), rel=1e-12)


def sums(numbers, size):
    """How many choices of `size` of the numbers have each sum, one number after the other."""
    ways = [{0: 1}, *({} for _ in range(size))]
    for number in numbers:
        for taken in range(size, 0, -1):
            for before, count in ways[taken - 1].items():
                ways[taken][before + number] = ways[taken].get(before + number, 0) + count
    return ways[size]


def summed(*strata):
    """As `counted`, for more values: the arrangements with the same sum are counted together, in whole numbers."""
    observed, counts = 0, {0: 1}
    for base, head in strata:
        own = [int(2 * rank) for rank in shared_ranks([*base, *head])]
        observed += sum(own[len(base) :])
        both = {}
        for (here, count), (there, times) in itertools.product(counts.items(), sums(own, len(head)).items()):
            both[here + there] = both.get(here + there, 0) + count * times
        counts = both
    return float(Fraction(sum(count for total, count in counts.items() if total >= observed), sum(counts.values())))


@st.composite
def tied(draw, most):
    """Two sides of up to `most` values each: from all alike to hardly any ties, and head shifted."""
    kinds = draw(st.integers(1, 3 * most))
    shift = draw(st.integers(-kinds, kinds))
    value = st.integers(0, kinds)
    base, head = (draw(st.lists(value, min_size=1, max_size=most)) for _ in range(2))
    return base, [shift + value for value in head]


@given(tied(24))
@examples(150)
def test_rank_p_exact_with_ties(sides):
    expected = summed(sides), summed(sides[::-1])
    assert ranks.rank_p(*sides) == pytest.approx(expected[0], rel=1e-12)
    assert ranks.two_sided_p(*sides) == pytest.approx(min(1, 2 * min(expected)), rel=1e-12)


@given(st.lists(tied(10), min_size=2, max_size=3))
@examples(80)
def test_stratified_p_exact_with_ties(strata):
    assert ranks.stratified_p(strata) == pytest.approx(summed(*strata), rel=1e-12)


SIDES = [(5, 5, "exact"), (7, 40, "exact"), (40, 40, "exact"), (60, 60, "asymptotic"), (9, 900, "asymptotic")]


@pytest.mark.parametrize("shift", [-0.5, 0, 0.3, 1])
@pytest.mark.parametrize(("few", "many", "method"), SIDES)
def test_rank_p_matches_scipy(few, many, method, shift):
    from scipy.stats import mannwhitneyu

    draw = random.Random(few + many)
    for step in (1e-9,) if method == "exact" else (1e-9, 0.5):
        base, head = ([step * round(draw.gauss(middle, 1) / step) for _ in range(count)] for middle, count in ((0, few), (shift, many)))
        for first, second in ((base, head), (head, base)):
            expected = mannwhitneyu(second, first, alternative="greater", method=method).pvalue
            assert ranks.rank_p(first, second) == pytest.approx(expected, rel=1e-9)
        assert ranks.two_sided_p(base, head) == pytest.approx(mannwhitneyu(base, head, method=method).pvalue, rel=1e-9)


@pytest.mark.parametrize("step", [1e-9, 1])
@pytest.mark.parametrize("strata", [1, 2])
def test_rank_p_approximation_near_count(step, strata, monkeypatch):
    draw = random.Random(5)
    trials = [
        [[[step * round(draw.gauss(middle, 1) / step) for _ in range(32 // strata)] for middle in (0, shift)] for _ in range(strata)]
        for shift in (-0.5, 0, 0.2, 0.4, 0.6, 0.8)
    ]
    counted_p = [ranks.stratified_p(sides) for sides in trials]
    monkeypatch.setattr(ranks, "_MOST_ADDITIONS", 0)
    for sides, expected in zip(trials, counted_p, strict=True):
        assert ranks.stratified_p(sides) == pytest.approx(expected, rel=0.2, abs=0.001)


def least_cpu_s(work, tries):
    """The least CPU time of work on each of the tries, in seconds."""
    took = []
    for each in tries:
        began = time.process_time()
        work(*each)
        took.append(time.process_time() - began)
    return min(took)


@pytest.mark.parametrize("step", [1e-9, 0.2])
@pytest.mark.parametrize(("few", "many"), [(45, 45), (5, 700), (5, 20_000), (2000, 2000)])
def test_rank_p_speed(few, many, step):
    """At most some 0.05 s of the processor's time; a busy machine takes up to three times the limit of 0.2 s."""
    draw = random.Random(3)
    tries = [
        [[step * round(draw.gauss(middle, 1) / step) for _ in range(count)] for middle, count in ((0, few), (0.25, many))] for _ in range(3)
    ]
    assert least_cpu_s(ranks.rank_p, tries) <= 3 * 0.2


def test_comparison_speed():
    """From the runs to the text, all rows of a usual run; a busy machine takes up to three times the limit of 0.5 s. It took 94 s."""
    draw = random.Random(5)
    tries = [
        [[sample_runs.run(repeat=repeat, extra_mib=draw.gauss(middle, 5)) for repeat in range(count)] for middle in (0, 2)]
        for count in (102, 101, 100)
    ]
    assert least_cpu_s(lambda base, head: comparison.render(compare.compare(base, head)), tries) <= 3 * 0.5


def test_rank_p_of_disjoint_sides():
    assert ranks.rank_p(range(10), range(10, 20)) == 1 / 184_756
    assert ranks.rank_p((1,) * 28, (2,) * 28) == 1 / math.comb(56, 28)
    assert ranks.rank_p(range(300), range(300, 600)) < ranks.NEGLIGIBLE
    assert ranks.rank_p((1,) * 200, (2,) * 200) == pytest.approx(1 / math.comb(400, 200))
    assert ranks.two_sided_p((1,) * 5, (1,) * 3) == ranks.rank_p((1,) * 900, (1,) * 900) == 1


def test_p_words_bound_tiny_chances():
    assert ranks.p_words(0.00123) == "p = 0.0012"
    assert ranks.p_words(1e-40) == "p < 1e-12"


def test_rank_test_needs_five_repeats():
    assert ranks.two_sided_p(range(5), range(10, 15)) < ranks.ALPHA
    assert ranks.two_sided_p(range(4), range(10, 14)) > ranks.ALPHA


@pytest.mark.parametrize("count", [5, 6, 20])
def test_bootstrap_matches_resampled_medians(count):
    draw = random.Random(count)
    base, head = ([draw.gauss(middle, 1) for _ in range(count)] for middle in (0, 10))

    drawn = sorted(statistics.median(draw.choices(head, k=count)) - statistics.median(draw.choices(base, k=count)) for _ in range(9999))

    low, high = ranks.bootstrap(base, head)
    places = [sum(value <= end for value in drawn) / len(drawn) for end in (low, high)]
    assert places == pytest.approx([0.025, 0.975], abs=0.012)
