"""Places, points and the terms of laws: a constant, powers and products of dimensions, and dimensions rounded up (to a power of two, as an arena that
doubles; to pages of N, or to pages of N for each of another dimension). Sizes are in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ...base.units import format_number

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# The error of a law a full range away from all measured points, as a share of the memory, for shapes that no term has; twice the law's error at
# unseen points is added.
SHAPE = 0.01
# How far two runs at the same place differ, as bytes and as a share of the size, where nobody says better.
NOISE = (262144.0, 0.001)

Coordinates = Mapping[str, float]
Kind = Literal["", "doubling", "pages"]


class SizePoint(Struct, frozen=True):
    """A measured size at a place. least: the run died for lack of memory, so that it needs at least so much."""

    at: Coordinates
    bytes: float
    least: bool = False


class Term(Struct, frozen=True):
    """A product of powers of dimensions; without any, the constant. `dimension` is then taken as `kind` says: rounded up to a power of two, or to a
    multiple of `size`. each: a dimension among whose parts the first is divided, so that each part is rounded
    up to pages (a context among slots); empty for none."""

    powers: tuple[tuple[str, int], ...] = ()
    kind: Kind = ""
    dimension: str = ""
    size: float = 0.0
    each: str = ""

    @property
    def degree(self) -> int:
        """The sum of the powers."""
        return sum(power for _, power in self.powers)

    @property
    def names(self) -> set[str]:
        """The dimensions that its value depends on."""
        return {name for name, _ in self.powers} | ({self.each} if self.each else set())

    @property
    def words(self) -> str:
        """The term as people read it: `batch x sequence²`. Empty for the constant."""
        return " x ".join(_factor(name, power, self) for name, power in self.powers)

    def values(self, at: Mapping[str, Floats], count: int) -> Floats:
        """The term's value at places that are given as columns of `count` values: an array of as many."""
        import numpy as np

        product = np.ones(count)
        for name, power in self.powers:
            column = at[name]
            if name == self.dimension:
                column = _taken(column, self.kind, self.size * at[self.each] if self.each else self.size)
            product = product * column**power
        return product


def _factor(name: str, power: int, term: Term) -> str:
    if name == term.dimension:
        if term.kind == "doubling":
            return f"({name} rounded up to a power of two)"
        return f"({name} rounded up to a multiple of {format_number(term.size)}{f' x {term.each}' if term.each else ''})"
    return name + ("²" if power == 2 else f"^{power}" if power > 2 else "")


def _taken(column: Floats, kind: Kind, size: float | Floats) -> Floats:
    import numpy as np

    if kind == "doubling":
        return np.asarray(np.exp2(np.ceil(np.log2(np.maximum(column, 1e-9)) - 1e-9)))
    if kind == "pages":
        return np.asarray(size * np.ceil(column / size - 1e-9))
    return column


CONSTANT = Term()


def columns_of(places: Sequence[Coordinates], names: Sequence[str]) -> dict[str, Any]:
    """Places as a column of numbers for each name."""
    import numpy as np

    return {name: np.array([float(place[name]) for place in places]) for name in names}


def ranges_of(points: Sequence[SizePoint]) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each dimension."""
    return {name: (min(values), max(values)) for name in points[0].at if (values := [float(point.at[name]) for point in points])}


def _scaled(value: float, low: float, high: float) -> float:
    """A dimension's value where its range goes from 0 to 1: half by its size and half by its logarithm, for memory follows either."""
    if high <= low:
        return 0.0 if value == low else (value - low) / max(abs(low), 1.0)
    linear = (value - low) / (high - low)
    if low <= 0 or value <= 0:
        return linear
    return (linear + math.log(value / low) / math.log(high / low)) / 2


def distance(places: Sequence[Coordinates], measured: Sequence[Coordinates], ranges: Mapping[str, tuple[float, float]]) -> Floats:
    """How far each place is from the nearest measured one, in ranges."""
    import numpy as np

    def scaled(all_places: Sequence[Coordinates]) -> Floats:
        return np.array([[_scaled(float(place[name]), low, high) for name, (low, high) in ranges.items()] for place in all_places])

    there, here = scaled(measured), scaled(places)
    return np.asarray(np.abs(here[:, None, :] - there[None, :, :]).max(axis=2).min(axis=1))
