"""Where to measure a law: a fixed list of places, of which the first ones that can be measured are taken.

All dimensions low, then each high alone: what a dimension costs. Then the other corners: what two cost together. Then the places whose dimensions are
low, high or in the middle between them, and each half in the same way: how fast memory grows. Places where memory is large come first, for the
terms differ most there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

# A range as its lowest value, its highest and the step between values.
Range = tuple[int, int, int]
_HALVINGS = 4


def places(ranges: Mapping[str, Range]) -> Iterator[dict[str, int]]:
    """The places of these ranges in the order in which to measure them, each once: as many as some halvings have, or the ranges values."""
    seen = set()
    for shares in _shares(len(ranges)):
        at = {name: _value(range, share) for (name, range), share in zip(ranges.items(), shares, strict=True)}
        if tuple(at.values()) not in seen:
            seen.add(tuple(at.values()))
            yield at


def first_places(ranges: Mapping[str, Range]) -> list[dict[str, int]]:
    """Where to measure first: all dimensions low, then each high alone."""
    return list(itertools.islice(places(ranges), 1 + len(ranges)))


def _shares(count: int) -> Iterator[tuple[float, ...]]:
    """Places as shares of each range."""
    yield from sorted(itertools.product((1, 0), repeat=count), key=sum)
    for halving in range(1, _HALVINGS + 1):
        values = [step / 2**halving for step in range(2**halving, -1, -1)]
        yield from sorted(itertools.product(values, repeat=count), key=sum, reverse=True)


def _value(range: Range, share: float) -> int:
    """A value of the dimension, half by the size of its range and half by its logarithm: memory follows either."""
    low, high, step = range
    between = (low + share * (high - low) + low * (high / low) ** share) / 2
    return low + step * int((between - low) / step + 0.5)
