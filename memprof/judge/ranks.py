"""The rank test, exact, with ties and in strata; modes of a sample; bootstrap intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache, reduce
from itertools import accumulate, pairwise
from operator import mul
from struct import iter_unpack
from typing import Any

LEAST_REPEATS = 5
ALPHA = 0.01
_RESAMPLES = 9999
# From this many samples on, bounds are tried first: into how many blocks the samples are put, and the share of choices left out of account.
_FEW = 80
_BLOCKS = 20
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


def two_sided_p(base: Sequence[float], head: Sequence[float]) -> float:
    """How often chance alone would part the sides this far, either way: twice the smaller of the one-sided values, 1 at most."""
    ranks = _ranks(base, head)
    observed = sum(ranks[len(base) :])
    above = observed * len(ranks) >= sum(ranks) * len(head)
    return min(1.0, 2 * (rank_p(base, head) if above else rank_p(head, base)))


def beyond_chance(base: Sequence[float], head: Sequence[float]) -> bool:
    """Whether `two_sided_p` is at most ALPHA; where certain bounds decide that, not all choices are counted.

    The sorted samples are put into blocks. A rank is its block's part and a small remainder. The sum of the blocks' numbers has the same
    distribution for all samples of one size, which is counted once. The sum of the remainders strays by more than `stray` with a chance of
    _STRAYS at most (Serfling 1974, corollary 1.1, for draws without replacement).
    """
    ranks = _ranks(base, head)
    if sum(ranks[len(base) :]) * len(ranks) < sum(ranks) * len(head):
        return beyond_chance(head, base)
    total, size = len(ranks), len(head)
    if total < _FEW:
        return two_sided_p(base, head) <= ALPHA
    place = {index: position * _BLOCKS // total for position, index in enumerate(sorted(range(total), key=ranks.__getitem__))}
    remainders = [_BLOCKS * rank - 2 * total * place[index] for index, rank in enumerate(ranks)]
    drawn = min(size, total - size)  # the two sides' remainders stray by the same amount, one side up and the other down
    stray = (max(remainders) - min(remainders)) * math.sqrt(drawn * (1 - (drawn - 1) / total) * math.log(1 / _STRAYS) / 2)
    # The chance of the observed sum or more lies between those of these two sums of blocks' numbers.
    likely = _BLOCKS * sum(ranks[len(base) :]) - Fraction(sum(remainders) * size, total)
    ends = [(likely + way * Fraction(stray)) / (2 * total) for way in (1, -1)]
    up_to = _block_sums(total, size)
    least, most = (1 - Fraction(up_to[min(math.ceil(end), len(up_to)) - 1] if end > 0 else 0, up_to[-1]) for end in ends)
    if 2 * (most + Fraction(_STRAYS)) <= Fraction(ALPHA):
        return True
    if 2 * (least - Fraction(_STRAYS)) > Fraction(ALPHA):
        return False
    return two_sided_p(base, head) <= ALPHA


@cache
def _block_sums(total: int, size: int) -> list[int]:
    """How many choices of `size` of `total` places, put into blocks in their order, have a sum of blocks' numbers of at most 0, 1, 2 ..."""
    numbers = [place * _BLOCKS // total for place in range(total)]
    low, high = numbers[: total // 2], numbers[total // 2 :]
    width = total // 8 + 1
    lower, upper = (_packed(half, min(size, len(half)), width, lambda seen, taken: sum(numbers)) for half in (low, high))
    packed = 0
    for taken in range(max(0, size - len(high)), len(lower)):
        packed += lower[taken] * upper[size - taken] << 8 * width * (sum(low[:taken]) + sum(high[: size - taken]))
    return list(accumulate(_digits(packed, width)))


def stratified_p(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """As `rank_p`, within each stratum and over all strata together: the exact one-sided test of the sum of rank sums, for any number of samples.

    Van Elteren's stratified form of Wilcoxon's test (1960) with weights of 1. All is counted in whole numbers. The smaller tail is counted: the
    choices at or above the observed sum, or all choices less those below it.
    """
    ranks = [_ranks(base, head) for base, head in strata]
    sizes = [len(head) for _, head in strata]
    observed = sum(sum(stratum[-size:]) for stratum, size in zip(ranks, sizes, strict=True))
    ways = math.prod(math.comb(len(stratum), size) for stratum, size in zip(ranks, sizes, strict=True))
    mean = sum(Fraction(sum(stratum) * size, len(stratum)) for stratum, size in zip(ranks, sizes, strict=True))
    if observed < mean:
        return float(1 - Fraction(_at_most(ranks, sizes, observed - 1), ways))
    turned = [[max(stratum) - rank for rank in stratum] for stratum in ranks]
    most = sum(max(stratum) * size for stratum, size in zip(ranks, sizes, strict=True))
    return float(Fraction(_at_most(turned, sizes, most - observed), ways))


def _ranks(base: Sequence[float], head: Sequence[float]) -> list[int]:
    """Twice the rank of each value, base's first, so that shared ranks are whole numbers."""
    values = [*base, *head]
    begins: dict[float, int] = {}
    ends: dict[float, int] = {}
    for place, value in enumerate(sorted(values), 1):
        begins.setdefault(value, place)
        ends[value] = place
    return [begins[value] + ends[value] for value in values]


def _at_most(strata: Sequence[Sequence[int]], sizes: Sequence[int], limit: int) -> int:
    """How many choices of `size` numbers from each stratum have a sum of at most `limit`, over all strata together."""
    if len(strata) == 1:
        return _choices_at_most(strata[0], sizes[0], limit)
    ordered = [sorted(numbers) for numbers in strata]
    room = limit - sum(sum(numbers[:size]) for numbers, size in zip(ordered, sizes, strict=True))
    counts = [_counts(numbers, size, room) for numbers, size in zip(ordered, sizes, strict=True)]
    return _pairs_at_most(counts[0], reduce(_product, counts[1:]), room)


def _choices_at_most(numbers: Sequence[int], size: int, limit: int) -> int:
    """How many choices of `size` of these numbers have a sum of at most `limit`.

    The smaller half of the numbers and the larger are counted apart, by how many are taken from each: all at once (Pagano and Tritchler 1983)
    takes eight times the work. Sums that no further choice can keep within the limit are dropped on the way.
    """
    step = math.gcd(*(number - min(numbers) for number in numbers)) or 1
    limit = (limit - size * min(numbers)) // step
    numbers = sorted((number - min(numbers)) // step for number in numbers)
    middle = len(numbers) // 2
    low, high = numbers[:middle], numbers[middle:]
    least, least_high = [0, *accumulate(numbers)], [0, *accumulate(high)]

    def room_low(seen: int, taken: int) -> int:
        end = seen + size - taken
        return limit - least[taken] - (least[end] - least[seen]) if end <= len(numbers) else -1

    def room_high(seen: int, taken: int) -> int:
        return limit - least_high[taken] - least[min(size - taken, middle)]

    width = len(high) // 8 + 1
    lower = _packed(low, min(size, len(low)), width, room_low)
    upper = _packed(high, min(size, len(high)), width, room_high)
    return sum(
        _pairs_at_most(_digits(lower[taken], width), _digits(upper[size - taken], width), room_low(middle, taken))
        for taken in range(max(0, size - len(high)), len(lower))
    )


def _counts(numbers: Sequence[int], size: int, room: int) -> list[int]:
    """How many choices of `size` of these sorted numbers have the least sum, the sum above it, and so on, up to `room` above the least."""
    width = len(numbers) // 8 + 1
    return _digits(_packed(numbers, size, width, lambda seen, taken: room)[size], width)


def _packed(numbers: Sequence[int], most: int, width: int, room: Callable[[int, int], int]) -> list[int]:
    """For each size up to `most`, how many choices of that many of these sorted numbers have each sum.

    The counts are the digits, of `width` bytes, of one large number: its first digit is for the least sum of that size, and one addition adds
    all digits. room(seen, taken): the largest sum above the least that is of interest once `seen` numbers are seen and `taken` of them taken.
    """
    bits = 8 * width
    ways = [1] + [0] * most
    for seen, number in enumerate(numbers, 1):
        for taken in range(min(seen, most), 0, -1):
            if ways[taken - 1]:
                ways[taken] += ways[taken - 1] << (number - numbers[taken - 1]) * bits
            wide = max(0, room(seen, taken) + 1) * bits
            if ways[taken].bit_length() > wide:
                ways[taken] &= (1 << wide) - 1
    return ways


def _digits(packed: int, width: int) -> list[int]:
    data = packed.to_bytes(packed.bit_length() // (8 * width) * width + width, "little")
    number = int.from_bytes
    return [number(digit, "little") for (digit,) in iter_unpack(f"{width}s", data)]


def _pairs_at_most(first: Sequence[int], second: Sequence[int], limit: int) -> int:
    """How many pairs have a sum of at most `limit`; first[n] and second[n] are how often n occurs on each side."""
    if limit < 0:
        return 0
    up_to = list(accumulate(second[: limit + 1]))
    whole = max(0, limit + 2 - len(up_to))  # each of these goes with every number of the second
    some: int = sum(map(mul, first[whole : limit + 1], reversed(up_to[: limit + 1 - whole])))
    return up_to[-1] * sum(first[:whole]) + some


def _product(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The counts of sums of a number from each side: the product of two large numbers with the counts as digits."""
    width = (sum(first) * sum(second)).bit_length() // 8 + 1
    sides = [int.from_bytes(b"".join(count.to_bytes(width, "little") for count in side), "little") for side in (first, second)]
    return _digits(sides[0] * sides[1], width)


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
