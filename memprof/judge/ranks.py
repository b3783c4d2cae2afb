"""Rank tests, exact, with ties and in strata; modes of a sample; bootstrap intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

# Samples are two groups when the gap between them is this many times what either spreads.
_GAP = 3
_MOST_MODES = 3


def split_modes(values: Sequence[float], floor: float) -> tuple[tuple[float, ...], ...]:
    """The samples, sorted, as one group, or as two or three where gaps larger than `floor` part groups that each spread far less than any gap.

    Where most samples stand alone there are no modes but noise.
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
    found = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in found)
    squares = sum((value - statistics.fmean(group)) ** 2 for group in found for value in group)
    return math.sqrt(squares / freedom) if freedom else 0.0


def rank_p(base: Sequence[float], head: Sequence[float]) -> float:
    """How often chance alone would raise head this far above base: the exact one-sided test of the rank sum (Wilcoxon 1945), ties sharing ranks."""
    return stratified_p([(base, head)])


def stratified_p(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """The same within each stratum, all strata together: the exact one-sided test of the sum of rank sums, at any number of samples.

    Van Elteren's stratified form of Wilcoxon's test (1960) with weights of one. scipy has neither form exact where values are tied: its
    permutation test draws at random beyond ten a side.
    """
    bits = 8 * (sum(len(base) + len(head) for base, head in strata) // 8 + 1)  # no count of choices is wider
    observed, ways = 0, 1
    for base, head in strata:
        ranks = _double_ranks([*base, *head])
        observed += sum(ranks[len(base) :])
        ways *= _ways(ranks, len(head), bits)
    counts = _coefficients(ways, bits)
    return sum(counts[observed:]) / sum(counts)


def _double_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, so that shared ranks are whole numbers."""
    return [sum(other < value for other in values) + sum(other <= value for other in values) + 1 for value in values]


def _ways(ranks: Sequence[int], size: int, bits: int) -> int:
    """How many choices of `size` ranks have each sum: a polynomial whose coefficients are digits of `bits` bits, the exponent being the sum."""
    ways = [1] + [0] * size
    for rank in ranks:
        for taken in range(size, 0, -1):
            ways[taken] += ways[taken - 1] << (rank * bits)
    return ways[size]


def _coefficients(polynomial: int, bits: int) -> list[int]:
    width = bits // 8
    data = polynomial.to_bytes((polynomial.bit_length() + bits) // bits * width, "little")
    return [int.from_bytes(data[begin : begin + width], "little") for begin in range(0, len(data), width)]


LEAST_REPEATS = 5
ALPHA = 0.01
_RESAMPLES = 9999
# Up to here every arrangement is tried (10 against 10 are 184,756); above, as many at random, with a fixed seed.
_EXACT_UP_TO = 200_000


def bootstrap(base: Sequence[float], head: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the difference of the medians: percentiles over resampled sides (Efron 1979), with a fixed seed."""
    import numpy

    draw = numpy.random.default_rng(0)
    medians = [
        numpy.median(draw.choice(numpy.asarray(values, dtype=float), size=(_RESAMPLES, len(values))), axis=1) for values in (base, head)
    ]
    low, high = numpy.percentile(medians[1] - medians[0], [2.5, 97.5])
    return float(low), float(high)


def p_value(base: Sequence[float], head: Sequence[float], *, alternative: Literal["two-sided", "greater"] = "two-sided") -> float:
    """How often chance alone would part the two sides this far: the exact permutation test of the rank sum (Wilcoxon 1945).

    greater: that head is larger. Tied values share their ranks. Sides that do not vary: 0 where they differ (as asked), 1 where they are equal.
    """
    if len(set(base)) == 1 and len(set(head)) == 1:
        differs = head[0] > base[0] if alternative == "greater" else head[0] != base[0]
        return 0.0 if differs else 1.0
    import numpy
    from scipy import stats

    ranks = stats.rankdata([*base, *head])
    sides = (ranks[len(base) :], ranks[: len(base)])
    count = math.comb(len(ranks), len(base))
    result = stats.permutation_test(
        sides,
        lambda first, second, axis: numpy.mean(first, axis=axis) - numpy.mean(second, axis=axis),
        permutation_type="independent",
        vectorized=True,
        n_resamples=count if count <= _EXACT_UP_TO else _EXACT_UP_TO,
        alternative=alternative,
        rng=numpy.random.default_rng(0),
    )
    return float(result.pvalue)
