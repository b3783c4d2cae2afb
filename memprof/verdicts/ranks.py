"""The rank test, exact, with ties and in strata; modes of a sample; bootstrap intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

from .rank_counts import NEGLIGIBLE, share_at_most

LEAST_REPEATS = 5
ALPHA = 0.01
_RESAMPLES = 9999
# The share of choices that the bounds of a verdict leave out of account.
_STRAYS = 1e-4

# Samples are two groups when the gap between them is this many times what either spreads.
_GAP = 3
_MOST_MODES = 3


def split_modes(values: Sequence[float], floor: float) -> tuple[tuple[float, ...], ...]:
    """The samples, sorted, as one group, or as two or three if gaps larger than `floor` part groups that each spread far less than any gap.

    If most samples stand alone, they are noise and no modes.
    """
    ordered = sorted(values)
    cuts = [place for place, (now, after) in enumerate(pairwise(ordered), 1) if after - now > floor]
    groups = tuple(tuple(ordered[begin:end]) for begin, end in pairwise([0, *cuts, len(ordered)]))
    gap = min((ordered[place] - ordered[place - 1] for place in cuts), default=0.0)
    spread = max(group[-1] - group[0] for group in groups)
    alone = sum(len(group) == 1 for group in groups)
    return groups if gap > _GAP * spread and len(groups) <= _MOST_MODES and 2 * alone < len(ordered) else (tuple(ordered),)


def pooled_stdev(groups: Iterable[Sequence[float]]) -> float:
    """The standard deviation within the groups together, 0 where none has two values."""
    several = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    squares = sum((value - statistics.fmean(group)) ** 2 for group in several for value in group)
    return math.sqrt(squares / freedom) if freedom else 0.0


# -- the rank test


def rank_p(base: Sequence[float], head: Sequence[float]) -> float:
    """How often chance alone would raise head this far above base: the exact one-sided test of the rank sum (Wilcoxon 1945), ties sharing ranks."""
    return stratified_p([(base, head)])


def p_words(p: float) -> str:
    """A chance as a reason has it: `p = 0.004`. Below NEGLIGIBLE only a bound of it may be known."""
    return f"p = {p:.2g}" if p >= NEGLIGIBLE else f"p < {NEGLIGIBLE:.2g}"


def two_sided_p(base: Sequence[float], head: Sequence[float]) -> float:
    """How often chance alone would part the sides this far, either way: twice the smaller of the one-sided values, 1 at most."""
    ranks = _ranks(base, head)
    above = sum(ranks[len(base) :]) * len(ranks) >= sum(ranks) * len(head)
    likely, other = ((base, head), (head, base)) if above else ((head, base), (base, head))
    p = rank_p(*likely)
    # The two values add up to 1 or more. Where ties make the distribution lopsided, the other can be the smaller all the same.
    return min(1.0, 2 * (p if p <= 0.5 else min(p, rank_p(*other))))


def beyond_chance(base: Sequence[float], head: Sequence[float]) -> bool:
    """Whether `two_sided_p` is at most ALPHA. Where certain bounds decide that, the choices are not counted with their ties.

    A shared rank is the rank that a value would have without ties, and a small remainder. The sum of ranks without ties has the same
    distribution in all rows of one size, and is counted once. The sum of the remainders strays by more than `stray` with a chance of _STRAYS at
    most.
    """
    ranks = _ranks(base, head)
    total, size = len(ranks), len(head)
    observed = sum(ranks[len(base) :])
    if observed < (total + 1) * size:
        return beyond_chance(head, base)
    plain = tuple(range(2, 2 * total + 1, 2))
    remainders = [shared - alone for shared, alone in zip(sorted(ranks), plain, strict=True)]
    # The two sides' remainders stray by the same amount, one side up and the other down.
    stray = _stray(remainders, min(size, total - size))
    # The chance of the observed sum or more lies between those of these two sums of plain ranks.
    most, least = (_p([plain], [size], observed + math.ceil(way * stray)) for way in (-1, 1))
    if 2 * (most + _STRAYS) <= ALPHA:
        return True
    if 2 * (min(least, 1 - most) - _STRAYS) > ALPHA:  # the chance of the observed sum or less is 1 - most at least
        return False
    return two_sided_p(base, head) <= ALPHA


def _stray(values: Sequence[int], drawn: int) -> float:
    """What the sum of `drawn` of these values, whose mean is 0, exceeds or falls below with a chance of _STRAYS at most, each way.

    Chernoff's bound. It holds without replacement too, because the sum is then no wider (Hoeffding 1963, theorem 4).
    """
    variance = statistics.fmean(value * value for value in values)
    if not variance:
        return 0.0
    odds = math.log(1 / _STRAYS)
    pace = math.sqrt(2 * odds / (drawn * variance))  # any pace gives a bound; for a normal distribution this one gives the least
    largest = pace * max(map(abs, values))
    means = (statistics.fmean(math.exp(way * pace * value - largest) for value in values) for way in (1, -1))
    return (drawn * (largest + math.log(max(means))) + odds) / pace


def stratified_p(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """As `rank_p`, within each stratum and over all strata together: the exact one-sided test of the sum of rank sums, for any number of samples.

    Van Elteren's stratified form of Wilcoxon's test (1960) with weights of 1.
    """
    ranks = [_ranks(base, head) for base, head in strata]
    sizes = [len(head) for _, head in strata]
    observed = sum(sum(stratum[-size:]) for stratum, size in zip(ranks, sizes, strict=True))
    return _p([tuple(sorted(stratum)) for stratum in ranks], sizes, observed)


def _ranks(base: Sequence[float], head: Sequence[float]) -> list[int]:
    """Twice the rank of each value, base's first, so that shared ranks are whole numbers."""
    values = [*base, *head]
    begins: dict[float, int] = {}
    ends: dict[float, int] = {}
    for place, value in enumerate(sorted(values), 1):
        begins.setdefault(value, place)
        ends[value] = place
    return [begins[value] + ends[value] for value in values]


def _p(strata: Sequence[tuple[int, ...]], sizes: Sequence[int], observed: int) -> float:
    """The chance that the sum of the ranks of `sizes[n]` from each stratum n is `observed` or more. The smaller tail is counted.

    Next to ALPHA, for one side or two, all is counted in whole numbers: no verdict hangs on how a double rounds.
    """
    mean = sum(Fraction(sum(ranks) * size, len(ranks)) for ranks, size in zip(strata, sizes, strict=True))
    upper = observed >= mean
    if upper:
        limit = sum(ranks[-1] * size for ranks, size in zip(strata, sizes, strict=True)) - observed
        strata = [tuple(ranks[-1] - rank for rank in reversed(ranks)) for ranks in strata]
    else:
        limit = observed - 1

    def p(whole: bool) -> float:
        share = share_at_most(tuple(strata), tuple(sizes), limit, whole)
        return share if upper else 1 - share

    rounded = p(whole=False)
    return p(whole=True) if any(math.isclose(rounded, level, rel_tol=1e-7) for level in (ALPHA, ALPHA / 2)) else rounded


# -- intervals


def bootstrap(base: Sequence[float], head: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the difference of the medians: percentiles over resampled sides (Efron 1979), with a fixed seed."""
    import numpy

    medians = []
    for seed, values in enumerate((base, head)):
        ordered = numpy.asarray(sorted(values), dtype=float)
        lower, upper = _middles(len(values), seed)
        medians.append((ordered[lower] + ordered[upper]) / 2)
    low, high = numpy.percentile(medians[1] - medians[0], [2.5, 97.5])
    return float(low), float(high)


@cache
def _middles(count: int, seed: int) -> tuple[Any, Any]:
    """The places, in the sorted sample, of the two middle values of each resample (the same place twice where the count is odd).

    A resample picks `count` places at random. The k-th smallest of `count` uniform numbers is Beta(k, count + 1 - k), and the next larger number
    is the smallest of those that are left above it: so two draws a resample stand for `count` draws.
    """
    import numpy

    draw = numpy.random.default_rng(seed)
    middle = (count + 1) // 2
    lower = draw.beta(middle, count + 1 - middle, _RESAMPLES)
    upper = lower if count % 2 else 1 - (1 - lower) * draw.random(_RESAMPLES) ** (1 / (count - middle))
    return (lower * count).astype(int), numpy.minimum(upper * count, count - 1).astype(int)
