"""The rank test, with ties and in strata; bootstrap intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

LEAST_REPEATS = 5
ALPHA = 0.01
_RESAMPLES = 9999
# Up to so many additions, the exact test takes some hundredths of a second: 45 repeats per side without ties, 200 in two modes.
_MOST_ADDITIONS = 1 << 24
# The number of choices from so many values is no larger than a double can be.
_MOST_VALUES = 1000
# A chance as small as this is the same to every reader.
NEGLIGIBLE = 1e-12


def pooled_stdev(groups: Iterable[Sequence[float]]) -> float:
    """The standard deviation within the groups together, 0 where none has two values."""
    several = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    squares = sum((value - statistics.fmean(group)) ** 2 for group in several for value in group)
    return math.sqrt(squares / freedom) if freedom else 0.0


# -- the rank test


def rank_p(base: Sequence[float], head: Sequence[float]) -> float:
    """How often chance alone would raise head this far above base: the one-sided test of the rank sum (Wilcoxon 1945), ties sharing ranks."""
    return stratified_p([(base, head)])


def p_words(p: float) -> str:
    """A chance as a reason has it: `p = 0.004`. Below NEGLIGIBLE an approximation says no more than that it is small."""
    return f"p = {p:.2g}" if p >= NEGLIGIBLE else f"p < {NEGLIGIBLE:.2g}"


def two_sided_p(base: Sequence[float], head: Sequence[float]) -> float:
    """How often chance alone would part the sides this far, either way: twice the smaller of the one-sided values, 1 at most."""
    return min(1.0, 2 * rank_p(base, head), 2 * rank_p(head, base))


def stratified_p(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """As `rank_p`, within each stratum and over all strata together: the one-sided test of the sum of rank sums.

    Van Elteren's stratified form of Wilcoxon's test (1960) with weights of 1. It is exact while its table is small: all choices of head's ranks
    are counted. Beyond that the sum is taken as normal, with ties and a continuity correction. No side is empty.
    """
    smaller = [_smaller_head(base, head) for base, head in strata]
    sizes = [len(head) for _, head in smaller]
    ranks = [_ranks(base, head) for base, head in smaller]
    reduced = _reduced(ranks)
    additions = sum(len(stratum) * size * size * max(stratum) for stratum, size in zip(reduced, sizes, strict=True))
    if additions <= _MOST_ADDITIONS and sum(map(len, ranks)) <= _MOST_VALUES:
        return _exact_p(reduced, sizes)
    return _normal_p(ranks, sizes)


def _smaller_head(base: Sequence[float], head: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The sides, or both turned upside down and exchanged if head has more values: the test is the same, and a smaller head takes less counting."""
    return (base, head) if len(head) <= len(base) else ([-value for value in head], [-value for value in base])


def _ranks(base: Sequence[float], head: Sequence[float]) -> list[int]:
    """Twice the rank of each value, base's first, so that shared ranks are whole numbers."""
    values = [*base, *head]
    begins: dict[float, int] = {}
    ends: dict[float, int] = {}
    for place, value in enumerate(sorted(values), 1):
        begins.setdefault(value, place)
        ends[value] = place
    return [begins[value] + ends[value] for value in values]


def _reduced(strata: Sequence[Sequence[int]]) -> list[list[int]]:
    """The ranks as small whole numbers from 0 on, with the same test: of samples in two modes they are 0 and 1, which makes a small table."""
    least = [min(ranks) for ranks in strata]
    step = math.gcd(*(rank - first for ranks, first in zip(strata, least, strict=True) for rank in ranks)) or 1
    return [[(rank - first) // step for rank in ranks] for ranks, first in zip(strata, least, strict=True)]


def _head_sum(strata: Sequence[Sequence[int]], sizes: Sequence[int]) -> int:
    """The sum of head's ranks, which are the last of each stratum."""
    return sum(sum(ranks[-size:]) for ranks, size in zip(strata, sizes, strict=True))


def _exact_p(strata: Sequence[Sequence[int]], sizes: Sequence[int]) -> float:
    """The share of the choices of `sizes[n]` ranks from each stratum n whose sum is head's or more."""
    import numpy

    counts = reduce(numpy.convolve, (_sum_counts(ranks, size) for ranks, size in zip(strata, sizes, strict=True)))
    choices = math.prod(math.comb(len(ranks), size) for ranks, size in zip(strata, sizes, strict=True))
    return min(1.0, float(counts[_head_sum(strata, sizes) :].sum()) / choices)


def _sum_counts(ranks: Sequence[int], size: int) -> NDArray[numpy.float64]:
    """How many choices of `size` of these ranks have each sum: entry n is for the sum n. The table has a row for each number of ranks chosen.

    Doubles hold whole numbers exactly up to 2^53, which is 28 repeats per side. Beyond that a count is off by a share of 1e-13 at most.
    """
    import numpy

    table = numpy.zeros((size + 1, size * max(ranks) + 1))
    table[0, 0] = 1
    for rank in ranks:
        table[1:, rank:] += table[:-1, : table.shape[1] - rank]
    counts: NDArray[numpy.float64] = table[size]
    return counts


def _normal_p(strata: Sequence[Sequence[int]], sizes: Sequence[int]) -> float:
    """The chance of head's sum of doubled ranks or more, if the sum is normal. For one stratum it is that of scipy's `mannwhitneyu`."""
    mean = sum(size * statistics.fmean(ranks) for ranks, size in zip(strata, sizes, strict=True))
    variance = sum(
        size * (len(ranks) - size) / (len(ranks) - 1) * statistics.pvariance(ranks) for ranks, size in zip(strata, sizes, strict=True)
    )
    # The continuity correction is half a rank, which is 1 in doubled ranks.
    return math.erfc((_head_sum(strata, sizes) - 1 - mean) / math.sqrt(2 * variance)) / 2 if variance else 1.0


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
