"""The share of choices of some numbers whose sum is at most a limit: what an exact rank test counts. Nothing is sampled or approximated by a curve.

Counts are doubles. All are positive and only added and multiplied, so a share is off by less than one in ten thousand million. Who needs it
better asks for whole numbers of any length: the same steps in some fifty times the time. Where counting takes most of a second and more, a share
that is certainly negligible is not counted: its upper bound stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from ..base.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# In ascending order.
Numbers: TypeAlias = tuple[int, ...]
# How many choices have the least sum, the sum one above it, and so on.
Counts: TypeAlias = "NDArray[Any]"

# 512 MiB of doubles.
_MOST_COUNTS = 1 << 26
# Additions of rows of counts: some seconds. 5 repeats beside 2,000 take as many.
_MOST_ADDITIONS = 1 << 20
# Numbers times choices times sums, from which on counting takes most of a second: 250 repeats a side that are spread over each other.
_SLOW = 1 << 33
NEGLIGIBLE = 1e-12
# Steps of counting, some seconds of them: an addition of two counts, which costs far less than the call for a row of them.
_MOST_STEPS = 2e10
_STEPS_OF_A_CALL = 1000
_STEPS_OF_A_WHOLE_NUMBER = 50
_left: ContextVar[list[float] | None] = ContextVar("left", default=None)


@contextmanager
def bounded() -> Iterator[None]:
    """Let the block's counts together take some seconds, not minutes: what would take longer raises InputError before it is begun."""
    token = _left.set([_MOST_STEPS])
    try:
        yield
    finally:
        _left.reset(token)


@lru_cache(maxsize=64)  # rows that have the same ties and the same sum are common: the PEAK is often the peak of EXECUTE
def share_at_most(strata: tuple[Numbers, ...], sizes: tuple[int, ...], limit: int, whole: bool = False) -> float:
    """The share of the choices of `sizes[n]` numbers from each stratum n whose sum over all strata is at most `limit`. If that is NEGLIGIBLE and
    slow to count, an upper bound of it.

    whole: counted in whole numbers, and rounded once. Raises InputError for so many numbers that the counts would not fit in memory, or take minutes.
    """
    if limit < sum(sum(numbers[:size]) for numbers, size in zip(strata, sizes, strict=True)):
        return 0.0
    step = math.gcd(*(number - numbers[0] for numbers in strata for number in numbers)) or 1
    room = (limit - sum(numbers[0] * size for numbers, size in zip(strata, sizes, strict=True))) // step
    steps = [tuple((number - numbers[0]) // step for number in numbers) for numbers in strata]
    if room * sum(len(numbers) * size for numbers, size in zip(strata, sizes, strict=True)) > _SLOW:
        most = _at_most(steps, sizes, room)
        if most < NEGLIGIBLE:
            return most
    choices = math.prod(math.comb(len(numbers), size) for numbers, size in zip(strata, sizes, strict=True))
    # What counts as a single choice. From about 1000 numbers on, the counts of all choices would be larger than a double can be.
    single = 1 if whole else 2.0 ** -(choices.bit_length() // 4)
    if len(strata) == 1:
        count, parts = _in_halves(steps[0], sizes[0], room, single), 2
    else:
        count, parts = _in_strata(steps, sizes, room, single), len(strata)
    return min(1.0, float(Fraction(count) / Fraction(single) ** parts / choices))


def _at_most(strata: Sequence[Numbers], sizes: Sequence[int], limit: int) -> float:
    """An upper bound of the share, by Chernoff; it holds without replacement too (Hoeffding 1963, theorem 4).

    Numbers that are chosen have the sum `limit` or less where those left over have the rest or more: the fewer of the two bind tighter.
    """
    few = [min(size, len(numbers) - size) for numbers, size in zip(strata, sizes, strict=True)]
    # The numbers from their mean on, turned round where the numbers left over are the fewer, and how far below the mean of all the limit is.
    centred = [
        [(number - sum(numbers) / len(numbers)) * (1 if drawn == size else -1) for number in numbers]
        for numbers, size, drawn in zip(strata, sizes, few, strict=True)
    ]
    below = sum(sum(numbers) / len(numbers) * size for numbers, size in zip(strata, sizes, strict=True)) - limit
    variance = sum(sum(value * value for value in values) / len(values) * drawn for values, drawn in zip(centred, few, strict=True))
    if below <= 0 or not variance:
        return 1.0

    def exponent(pace: float) -> float:
        total = -pace * below
        for values, drawn in zip(centred, few, strict=True):
            largest = max(-pace * value for value in values)
            total += drawn * (largest + math.log(sum(math.exp(-pace * value - largest) for value in values) / len(values)))
        return total

    return math.exp(min(0.0, *(exponent(below / variance * factor) for factor in (0.5, 1.0, 2.0))))  # any pace gives a bound


def _in_strata(strata: Sequence[Numbers], sizes: Sequence[int], room: int, single: float) -> float:
    """The count for several strata, each counted whole."""
    import numpy

    left = room - sum(sum(numbers[:size]) for numbers, size in zip(strata, sizes, strict=True))
    counts = [_counts_of(numbers, size, left, single) for numbers, size in zip(strata, sizes, strict=True)]
    return _pairs_at_most(counts[0], reduce(numpy.convolve, counts[1:]).cumsum(), left)


def _counts_of(numbers: Numbers, size: int, room: int, single: float) -> Counts:
    """The counts of the choices of `size` of these numbers, up to `room` above the least sum."""
    needed = len(numbers) - size
    return _counts(numbers, size, lambda seen, taken: room if seen - taken <= needed else -1, single)[size]


def _in_halves(numbers: Numbers, size: int, limit: int, single: float) -> float:
    """The count for a single stratum.

    The smaller half of the numbers and the larger are counted apart: all at once (Pagano and Tritchler 1983) takes eight times the work.
    """
    middle = len(numbers) // 2
    if numbers == tuple(range(len(numbers))):
        # All rows without ties share these counts, if they are made for a limit that serves many rows.
        most = size * (len(numbers) - 1) // 2
        while most // 2 > limit:
            most //= 2
        lower, upper = _shared_halves(numbers, size, max(most, limit), single)
    else:
        lower, upper = _halves(numbers, size, limit, single)
    least, least_high = [0, *accumulate(numbers)], [0, *accumulate(numbers[middle:])]
    return sum(
        _pairs_at_most(lower[taken], upper[size - taken], limit - least[taken] - least_high[size - taken])
        for taken in range(max(0, size - len(numbers) + middle), min(size, middle) + 1)
    )


def _halves(numbers: Numbers, size: int, limit: int, single: float) -> tuple[list[Counts], list[Counts]]:
    """For each size, the counts of choices from the smaller half of the numbers, and how many from the larger half have each sum or less.

    Sums that no further choice can keep within the limit are dropped on the way.
    """
    middle = len(numbers) // 2
    low, high = numbers[:middle], numbers[middle:]
    least, least_high = [0, *accumulate(numbers)], [0, *accumulate(high)]

    def room_low(seen: int, taken: int) -> int:
        end = seen + size - taken
        return limit - least[taken] - (least[end] - least[seen]) if end <= len(numbers) else -1

    def room_high(seen: int, taken: int) -> int:
        more = max(0, size - taken - middle)  # so many must still come from the larger half
        if seen + more > len(high):
            return -1
        return limit - least_high[taken] - (least_high[seen + more] - least_high[seen]) - least[size - taken - more]

    lower = _counts(low, min(size, len(low)), room_low, single)
    upper = _counts(high, min(size, len(high)), room_high, single)
    return lower, [counts.cumsum() for counts in upper]


_shared_halves = lru_cache(maxsize=2)(_halves)


def _counts(numbers: Numbers, most: int, room: Callable[[int, int], int], single: float) -> list[Counts]:
    """For each size up to `most`, the counts of the choices of that many of these numbers.

    room(seen, taken): the largest sum above the least that is of interest once `seen` numbers are seen and `taken` of them taken. It falls as
    more are seen.
    """
    import numpy

    kind = object if isinstance(single, int) else float
    least = [0, *accumulate(numbers)]
    widths = [min(least[-1] - least[-1 - taken] - least[taken], room(taken, taken)) + 1 for taken in range(1, most + 1)]
    if sum(max(0, width) for width in widths) > _MOST_COUNTS or len(numbers) * most > _MOST_ADDITIONS:
        raise InputError("too many repeats for an exact rank test: 500 a side fit in memory, so many do not")
    left = _left.get()
    if left is not None:
        calls = len(numbers) * most
        left[0] -= (calls * _STEPS_OF_A_CALL + len(numbers) * sum(max(0, width) for width in widths)) * (
            _STEPS_OF_A_WHOLE_NUMBER if kind is object else 1
        )
        if left[0] < 0:
            raise InputError(
                "too many rows of too many repeats: their exact rank tests would take minutes. Those of 200 repeats a side take a moment each"
            )
    ways = [numpy.full(1, single, kind), *(numpy.zeros(max(0, width), kind) for width in widths)]
    ends = [1] + [0] * most  # beyond its end a row of counts is 0, or of no interest any more
    for seen, number in enumerate(numbers, 1):
        for taken in range(min(seen, most), 0, -1):
            fits = max(0, room(seen, taken) + 1)
            shift = number - numbers[taken - 1]
            end = min(shift + ends[taken - 1], fits)
            if end > shift:
                ways[taken][shift:end] += ways[taken - 1][: end - shift]
                ends[taken] = max(ends[taken], end)
            ends[taken] = min(ends[taken], fits)
    return [counts[:end] for counts, end in zip(ways, ends, strict=True)]


def _pairs_at_most(first: Counts, up_to: Counts, room: int) -> float:
    """How many pairs have a sum of at most `room`: first[n] choices have the sum n on one side, up_to[n] at most n on the other."""
    if room < 0 or not len(first) or not len(up_to):
        return 0
    first = first[: room + 1]
    all_of_second = max(0, room + 1 - len(up_to))
    some = first[all_of_second:]
    partners = up_to[room - all_of_second - len(some) + 1 : room - all_of_second + 1][::-1]
    count: float = first[:all_of_second].sum() * up_to[-1] + (some * partners).sum()
    return count
