"""Arenas whose needs are known at each place: what a replay of their requests, or a plan of their buffers, says.

An arena whose regions double (ONNX Runtime's, after TensorFlow's: best fit with coalescing) grows in steps, and one that a planner fills has what the
worst of several moments needs. Both are more than a sum of terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from .terms import Coordinates, Term

if TYPE_CHECKING:
    from .terms import Floats

# How far a run is from a replay by chance, in bytes and as a share of what is simulated: what PREPARE leaves free in the heap varies. Planned arenas
# do not depend on that, and repeat as other memory does.
_CHANCE = (float(1 << 20), 0.005)


class ArenaLaw(Struct, frozen=True):
    """An arena whose regions double, or another (doubles). size: what it needs at a place, in bytes, but for a constant and `beside`; None where
    nobody can tell. doubt: by how many bytes that may be off at a place, None where it is certain everywhere. beside: terms of what is not in the
    arena, such as the weights of each session. terms: what the tensors in it grow with, as a plan has it; empty without a plan that has it."""

    size: Callable[[Coordinates], float] | None = None
    doubt: Callable[[Coordinates], float] | None = None
    doubles: bool = True
    beside: tuple[Term, ...] = ()
    terms: tuple[Term, ...] = ()

    @property
    def chance(self) -> tuple[float, float]:
        """How far a run is from it by chance: in bytes, and as a share of it (standard deviations)."""
        return _CHANCE if self.doubles else (0.0, 0.0)

    def sizes(self, places: Mapping[str, Floats], count: int) -> Floats:
        """The bytes that it needs at places which are given as columns of `count` values: an array of as many."""
        assert self.size is not None
        return _at_each(self.size, places, count)

    def variance(self, places: Mapping[str, Floats], simulated: Floats) -> Floats:
        """How far runs at these places are from what is simulated there, as variances in bytes: by chance, and by what is in doubt, which is the end
        of an interval and so two standard deviations."""
        own, share = self.chance
        doubt = 0.0 if self.doubt is None else _at_each(self.doubt, places, len(simulated)) / 2
        return own**2 + (share * simulated) ** 2 + doubt**2


def _at_each(figure: Callable[[Coordinates], float], places: Mapping[str, Floats], count: int) -> Floats:
    import numpy as np

    return np.array([figure({name: float(column[place]) for name, column in places.items()}) for place in range(count)])
