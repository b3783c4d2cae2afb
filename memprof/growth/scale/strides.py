"""Counts of strides: how many frames, windows or pooled rows a dimension has, from sizes that follow such a count.

A convolution, a pooling or a transform of frames makes floor((value + offset) / stride) of a dimension's value, and so do several after one another.
Sizes that are a multiple of such a count are none of the dimension itself: a sum of its powers has them only nearly, and an arena's simulation
needs all of them as they are to one another.

Few places leave several strides and offsets. A power of two that begins at either end of a stride is taken for certain. Of others the roundest is
taken, and the ends of what is possible stand beside it. Counts that happen to be even at all places may be those of a shorter stride: that stands
beside them too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import gcd, isqrt, lcm, prod

from msgspec import Struct

At = Mapping[str, int]
# A count has as many distinct values at the recorded places at least: any two lie on a line.
_FEWEST_VALUES = 3
_MOST_STRIDES = 1 << 16  # which are tried for one count
_PARTS = (2, 3)  # of a count, in which a shorter stride is looked for
_HIGHEST_POWER, _HIGHEST_DEGREE = 2, 3


class Rival(Struct, frozen=True):
    """Another stride and offset that the recorded places leave possible, in parts of one of the count: floor(...) / parts."""

    stride: int
    offset: int
    parts: int = 1


class Stride(Struct, frozen=True):
    """A count: floor((value of the dimension + offset) / stride). rivals: others that it may be; empty where it is certain."""

    dimension: str
    stride: int
    offset: int
    rivals: tuple[Rival, ...] = ()

    @property
    def label(self) -> str:
        """A name for the count beside those of dimensions."""
        return f"({self.dimension} + {self.offset}) // {self.stride}"

    def count(self, at: At, rival: int | None = None) -> Fraction | int:
        """The count at a place, or by one of its rivals."""
        value = at[self.dimension]
        if rival is None or not self.rivals:
            return (value + self.offset) // self.stride
        other = self.rivals[rival % len(self.rivals)]
        whole = (value + other.offset) // other.stride
        return whole if other.parts == 1 else Fraction(whole, other.parts)


class StridedSize(Struct, frozen=True):
    """A size: factor x powers of dimensions x (count + shift) ^ power."""

    stride: Stride
    shift: int
    power: int
    others: tuple[tuple[str, int], ...]
    factor: Fraction


def strided(places: Sequence[At], sizes: Sequence[int]) -> StridedSize | None:
    """The size as a multiple of a count, and of powers of other dimensions; None where it is none.

    Squares of a few counts may lie on a line too, but seldom on one that begins near 0: the count to which least is added is taken.
    """
    names = sorted({name for at in places for name in at if len({each[name] for each in places}) > 1})
    every = [found for name in names for power in range(1, _HIGHEST_POWER + 1) for found in _forms(places, sizes, names, name, power)]
    return min(every, key=lambda found: abs(found.shift), default=None)


def _forms(places: Sequence[At], sizes: Sequence[int], names: Sequence[str], name: str, power: int) -> Iterator[StridedSize]:
    """The size as a multiple of a power of a dimension's count, for each product of the other dimensions that leaves one."""
    others = [other for other in names if other != name]
    for powers in itertools.product(range(_HIGHEST_POWER + 1), repeat=len(others)):
        if power + sum(powers) > _HIGHEST_DEGREE:
            continue
        beside = tuple((other, each) for other, each in zip(others, powers, strict=True) if each)
        rest = [Fraction(size, prod(at[other] ** each for other, each in beside)) for size, at in zip(sizes, places, strict=True)]
        found = _counts(rest, power)
        if found is None:
            continue
        counts, factor = found
        stride = _stride(name, [at[name] for at in places], counts)
        if stride is not None:
            yield StridedSize(stride[0], stride[1], power, beside, factor)


def _counts(sizes: Sequence[Fraction], power: int) -> tuple[list[int], Fraction] | None:
    """The whole numbers without a common divisor of which the sizes are powers, and what these are multiplied by."""
    if min(sizes) <= 0:
        return None
    below = lcm(*(size.denominator for size in sizes))
    whole = [int(size * below) for size in sizes]
    common = gcd(*whole)
    counts = [size // common if power == 1 else isqrt(size // common) for size in whole]
    if [count**power * common for count in counts] != whole:
        return None
    return counts, Fraction(common, below)


def _stride(name: str, values: Sequence[int], counts: Sequence[int]) -> tuple[Stride, int] | None:
    """The stride that makes these counts of a dimension's values, and what is added to each count; None where none of two or more does."""
    known = dict(zip(values, counts, strict=True))
    if any(known[value] != count for value, count in zip(values, counts, strict=True)) or len(set(counts)) < _FEWEST_VALUES:
        return None
    possible = list(_possible(sorted(known.items())))
    if not possible:
        return None
    stride, offset = _roundest(possible)
    shift, start = divmod(offset, stride)
    # Rivals count from the same number on.
    rivals = [Rival(each, other - shift * each) for each, other in _ends(possible)]
    if stride & (stride - 1) == 0 and start in (0, stride - 1):
        rivals = []
    for parts in _PARTS:
        shorter = list(_possible(sorted((value, parts * count) for value, count in known.items())))
        if shorter:
            each, other = _roundest(shorter)
            rivals.append(Rival(each, other - shift * parts * each, parts))
    return Stride(name, stride, start, tuple(dict.fromkeys(rivals))), shift


def _roundest(possible: Sequence[tuple[int, tuple[int, int]]]) -> tuple[int, int]:
    """The roundest of these strides, with its offset."""
    stride, (low, high) = min(possible, key=lambda each: _roughness(each[0]))
    return stride, _offset(stride, low, high)


def _ends(possible: Sequence[tuple[int, tuple[int, int]]]) -> list[tuple[int, int]]:
    """The shortest and the longest of these strides, with an offset."""
    return [(stride, (low + high) // 2) for stride, (low, high) in (*possible[:1], *possible[-1:])]


def _possible(known: Sequence[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
    """The strides of two and more that make these counts, with the least and the largest offset of each."""
    (first, low), (last, high) = known[0], known[-1]
    least, most = (last - first) // (high - low + 1) + 1, -(-(last - first) // max(high - low - 1, 1)) - 1
    if most - least > _MOST_STRIDES:
        return
    for stride in range(max(least, 2), most + 1):
        begin = max(count * stride - value for value, count in known)
        end = min((count + 1) * stride - 1 - value for value, count in known)
        if begin <= end:
            yield stride, (begin, end)


def _roughness(stride: int) -> tuple[int, int, int]:
    """How unlike a stride is that people choose: what is left of it without factors 2, 3 and 5, then without 2."""
    odd = stride // (stride & -stride)
    left = odd
    for factor in (3, 5):
        while left % factor == 0:
            left //= factor
    return left, odd, stride


def _offset(stride: int, low: int, high: int) -> int:
    """An offset between these: of a count of whole strides, or of begun ones, or else that in the middle."""
    for start in (0, stride - 1):
        offset = low + (start - low) % stride
        if offset <= high:
            return offset
    return (low + high) // 2
