"""How alike two samples are as wholes, whatever their modes: each value becomes a vector, and samples are compared by the means of these.

The vectors are random Fourier features of a Gaussian kernel (Rahimi and Recht 2007) at fixed frequencies, so the distance of two means is that
of maximum mean discrepancy (Gretton 2012): it is large if many values of one sample have no like in the other. Values that differ by much less
than the width count as alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

_WAVES = 6
_DRAWS = 20_000
_AT_ONCE = 2_000
# After so many draws that reach the distance, more of them change nothing.
_ENOUGH = 50


def vectors(values: Any, middle: float, width: float) -> Any:
    """A row of length 1 for each value."""
    import numpy

    normal = statistics.NormalDist()
    waves = numpy.asarray([normal.inv_cdf(0.5 + (number + 0.5) / (2 * _WAVES)) for number in range(_WAVES)])
    angles = (values - middle)[:, None] * (waves / width)
    return numpy.concatenate([numpy.cos(angles), numpy.sin(angles)], axis=1) / math.sqrt(_WAVES)


def width(floor: float, noise: float) -> float:
    """The width with which differences of the floor are seen, and the noise of one mode is not."""
    return max(floor / 1.2, 2 * noise)


def within(sample: Any) -> Any:
    """All differences between two values of a sample."""
    import numpy

    return numpy.abs(sample[:, None] - sample[None, :])[numpy.triu_indices(len(sample), 1)]


def spread(pairs: Any) -> float:
    """The standard deviation of values of one mode: from the quarter of these differences between two values that is smallest.

    Half of the pairs are of one mode where two modes are met equally often, so other modes leave this quarter alone. A quarter of the
    differences between two values of a normal distribution is below 0.451 standard deviations.
    """
    import numpy

    return float(numpy.quantile(pairs, 0.25)) / 0.451 if len(pairs) else 0.0


def chance(base: Sequence[float], head: Sequence[float], floor: float) -> float:
    """How often chance alone would set two samples of one distribution this far apart: a permutation test with fixed seeds.

    floor: the difference that matters, above 0. The sample itself is counted among the permutations that reach its distance, so that the test
    keeps its level (Phipson and Smyth 2010); where many reach it, drawing stops early (Besag and Clifford 1991). The answer is never below 5e-5.

    Samples that lie closer than half of that difference would set them are alike, 1: without noise chance explains not even a page.
    """
    import numpy

    sides = [numpy.asarray(side, dtype=float) for side in (base, head)]
    values = numpy.concatenate(sides)
    wide = width(floor, spread(numpy.concatenate([within(side) for side in sides])))
    rows = vectors(values, float(numpy.median(values)), wide)
    count, size = len(values), len(head)
    total = rows.sum(axis=0)

    def distance(sums: Any) -> Any:
        return ((sums / size - (total - sums) / (count - size)) ** 2).sum(axis=-1)

    seen = float(distance(rows[count - size :].sum(axis=0))) * (1 - 1e-9)
    here, there = vectors(numpy.asarray([0.0, floor / 2]), 0.0, wide)
    if seen < float(((here - there) ** 2).sum()):
        return 1.0
    draw = numpy.random.default_rng(0)
    reached = 0
    for number in range(_DRAWS // _AT_ONCE):
        picked = numpy.argpartition(draw.random((_AT_ONCE, count)), size - 1, axis=1)[:, :size]
        marks = numpy.zeros((_AT_ONCE, count))
        numpy.put_along_axis(marks, picked, 1.0, axis=1)
        reached += int((distance(marks @ rows) >= seen).sum())
        if reached >= _ENOUGH:
            return reached / (_AT_ONCE * (number + 1))
    return (1 + reached) / (1 + _DRAWS)
