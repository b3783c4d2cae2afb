"""The rank test is the exact one: held to counting every arrangement, and to scipy where scipy is exact."""

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
from support.examples import examples, tried

from memprof.base.errors import InputError
from memprof.reports.tables import comparison
from memprof.verdicts import compare, rank_counts, ranks

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
    assert ranks.beyond_chance(*sides) == (2 * min(expected) <= ranks.ALPHA)


@given(st.lists(tied(10), min_size=2, max_size=3))
@examples(80)
def test_stratified_p_exact_with_ties(strata):
    assert ranks.stratified_p(strata) == pytest.approx(summed(*strata), rel=1e-12)


@pytest.mark.parametrize("step", [1, 5, 40])
def test_share_doubles_match_integers(step):
    draw = random.Random(5)
    numbers = tuple(sorted(step * draw.randrange(200 // step) for _ in range(70)))
    for limit in range(sum(numbers[:30]), sum(numbers) * 30 // 70, 997):
        for strata, sizes in (((numbers,), (30,)), ((numbers[::2], numbers[1::2]), (15, 15))):
            rough, whole = (rank_counts.share_at_most(strata, sizes, limit, exactly) for exactly in (False, True))
            assert rough == pytest.approx(whole, rel=1e-13)


def test_rank_p_integers_near_limit(monkeypatch):
    asked = []
    share = rank_counts.share_at_most

    def doubtful(strata, sizes, limit, whole):
        asked.append(whole)
        return share(strata, sizes, limit, True) if whole else ranks.ALPHA * (1 + 1e-12)

    monkeypatch.setattr(ranks, "share_at_most", doubtful)

    assert ranks.rank_p(range(5), range(10, 15)) == 1 / 252
    assert asked == [False, True]


@pytest.mark.parametrize("shift", [-0.5, 0, 0.3, 1])
@pytest.mark.parametrize(("few", "many"), [(5, 5), (7, 40), (60, 60)])
def test_rank_p_matches_scipy_without_ties(few, many, shift):
    from scipy.stats import mannwhitneyu

    draw = random.Random(few + many)
    base, head = ([draw.gauss(middle, 1) for _ in range(count)] for middle, count in ((0, few), (shift, many)))

    for first, second in ((base, head), (head, base)):
        expected = mannwhitneyu(second, first, alternative="greater", method="exact").pvalue
        assert ranks.rank_p(first, second) == pytest.approx(expected, rel=1e-9)
    assert ranks.two_sided_p(base, head) == pytest.approx(mannwhitneyu(base, head, method="exact").pvalue, rel=1e-9)


@pytest.mark.parametrize("step", [0.01, 0.4, 3])
def test_beyond_chance_bounds_match_count(step, monkeypatch):
    """Near the limit and far from it, with and without ties; where ties are few, few pairs need the whole count."""
    draw = random.Random(7)
    counts = []
    whole = ranks.two_sided_p
    monkeypatch.setattr(ranks, "two_sided_p", lambda base, head: counts.append(1) or whole(base, head))
    for trial in tried(range(40)):
        shift = draw.choice([0, 0, 0.2, 0.5, 0.8, 1.5]) * draw.choice([-1, 1])
        base, head = ([step * round(draw.gauss(middle, 1) / step) for _ in range(40 + trial % 9)] for middle in (0, shift))
        assert ranks.beyond_chance(base, head) == (whole(base, head) <= ranks.ALPHA)

    assert len(counts) <= 12 or step > 0.01


def least_cpu_s(work, tries):
    """The least CPU time of work on each of the tries, in seconds. Each try is another one, because counts of a row are kept for the next."""
    took = []
    for each in tries:
        began = time.process_time()
        work(*each)
        took.append(time.process_time() - began)
    return min(took)


@pytest.mark.parametrize("step", [1e-9, 0.2])
def test_rank_p_speed(step):
    """About 0.02 s of the processor's time; a busy machine takes up to three times the limit of 0.1 s. All at once took 11 s."""
    draw = random.Random(3)
    tries = [[[step * round(draw.gauss(middle, 1) / step) for _ in range(count)] for middle in (0, 0.25)] for count in (102, 101, 100)]
    assert least_cpu_s(ranks.rank_p, tries) <= 3 * 0.1


def test_comparison_speed():
    """From the runs to the text, all rows of a usual run; a busy machine takes up to three times the limit of 0.5 s. It took 94 s."""
    draw = random.Random(5)
    tries = [
        [[sample_runs.run(repeat=repeat, extra_mib=draw.gauss(middle, 5)) for repeat in range(count)] for middle in (0, 2)]
        for count in (102, 101, 100)
    ]
    assert least_cpu_s(lambda base, head: comparison.render(compare.compare(base, head)), tries) <= 3 * 0.5


def test_untied_rows_counted_once(monkeypatch):
    counts = []
    whole = rank_counts._counts
    monkeypatch.setattr(rank_counts, "_counts", lambda *about: counts.append(1) or whole(*about))
    draw = random.Random(11)
    for shift in (0, 0.1, 0.2, 0.3) * 3:
        ranks.two_sided_p([draw.random() for _ in range(37)], [shift + draw.random() for _ in range(37)])

    assert len(counts) == 2  # the smaller half and the larger


def test_rank_p_too_many_repeats():
    with pytest.raises(InputError, match="too many repeats for an exact rank test"):
        ranks.rank_p(range(0, 6000, 2), range(1, 6000, 2))


@given(st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=3), st.integers(0, 30))
@examples(300)
def test_bound_never_below_count(strata, limit):
    numbers = [tuple(sorted((*base, *head))) for base, head in strata]
    numbers = [tuple(value - stratum[0] for value in stratum) for stratum in numbers]
    sizes = [len(head) for _, head in strata]
    sums = [0]
    for stratum, size in zip(numbers, sizes, strict=True):
        sums = [before + sum(chosen) for before in sums for chosen in itertools.combinations(stratum, size)]
    share = sum(total <= limit for total in sums) / len(sums)
    assert rank_counts._at_most(numbers, sizes, limit) >= share * (1 - 1e-9)


def test_negligible_share_not_counted(monkeypatch):
    """400 repeats a side, a tenth of them strays: the count took four seconds, and minutes from 550 a side on."""
    monkeypatch.setattr(rank_counts, "_counts", None)
    draw = random.Random(5)
    base = [draw.randint(0, 400) for _ in range(400)]
    head = [draw.randint(0, 400) + 8000 * (draw.random() < 0.9) for _ in range(400)]
    assert 0 < ranks.rank_p(base, head) < rank_counts.NEGLIGIBLE
    assert ranks.p_words(ranks.rank_p(base, head)) == "p < 1e-12" and ranks.p_words(0.00123) == "p = 0.0012"


def test_counts_bounded_over_many_rows():
    """Rows as a file of 1 MiB may have them: 200 rows of 500 repeats, of sums that only counting tells from chance."""
    draw = random.Random(7)
    rows = [([draw.choice((0, 3, 7)) for _ in range(500)], [draw.choice((0, 3, 7, 7)) for _ in range(500)]) for _ in range(200)]
    began = time.process_time()
    with pytest.raises(InputError, match="too many rows of too many repeats"), rank_counts.bounded():
        for row in rows:
            ranks.rank_p(*row)
    assert time.process_time() - began < 60


@pytest.mark.parametrize("values", [(-1, 1) * 7, (-8, -6, *range(14)), (0,) * 6 + (-20, -4, 4, 20), (13, *(-1,) * 13), (0,) * 8])
@pytest.mark.parametrize("share", [0.2, 0.01])
def test_stray_sums_within_share(values, share, monkeypatch):
    monkeypatch.setattr(ranks, "_STRAYS", share)
    values = [value * len(values) - sum(values) for value in values]
    for drawn in range(1, len(values) // 2 + 1):
        chosen = [sum(choice) for choice in itertools.combinations(values, drawn)]
        stray = ranks._stray(values, drawn)
        assert sum(total > stray for total in chosen) <= share * len(chosen)
        assert sum(total < -stray for total in chosen) <= share * len(chosen)


def test_rank_p_of_disjoint_sides():
    assert ranks.rank_p(range(10), range(10, 20)) == pytest.approx(1 / 184_756)
    assert ranks.rank_p(range(300), range(300, 600)) == pytest.approx(1 / math.comb(600, 300))
    assert ranks.rank_p((1,) * 300, (2,) * 300) == pytest.approx(1 / math.comb(600, 300))
    assert ranks.two_sided_p((1,) * 5, (1,) * 3) == 1


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


def test_rank_p_very_unequal_sides():
    with pytest.raises(InputError, match="too many repeats for an exact rank test"):
        ranks.rank_p(range(5), [number * 7919 % 100_000 for number in range(12_000)])
