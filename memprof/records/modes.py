"""Samples in modes: the memory of a runtime may come in two or three sizes, of which each run has one. A figure between two modes is one that no
run had, so it stands for none of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from .metrics import BYTES

# The least gap between two modes: a share of the largest value, and of memory a number of bytes; the larger of the two holds.
_SHARE, _BYTES = 0.01, 512 << 10
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


def modes(values: Sequence[float], unit: str) -> tuple[tuple[float, ...], ...]:
    """As `split_modes`, with the gap that counts for values of this unit, at least one. A value without its like is an outlier, and no mode."""
    groups = split_modes(values, max(_SHARE * max(map(abs, values)), _BYTES if unit == BYTES else 0))
    return groups if all(len(group) > 1 for group in groups) else (tuple(sorted(values)),)


def middles(values: Sequence[float], unit: str) -> tuple[float, ...]:
    """The median of each mode, the least first; of values in one mode their `middle`."""
    groups = modes(values, unit)
    return tuple(statistics.median(group) for group in groups) if len(groups) > 1 else (middle(values, unit),)


def middle(values: Sequence[float], unit: str = "") -> float:
    """The median. Where it would lie between two modes, which is nobody's figure, it is the largest value of the lower mode."""
    between = len(values) % 2 == 0 and len(modes(values, unit)) > 1
    return statistics.median_low(values) if between else statistics.median(values)
