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
    nobody can tell. beside: terms of what is not in the arena, such as the weights of each session. terms: what the tensors in it grow with, as a
    plan has it; empty without a plan that has it."""

    size: Callable[[Coordinates], float] | None = None
    doubles: bool = True
    beside: tuple[Term, ...] = ()
    terms: tuple[Term, ...] = ()

    @property
    def chance(self) -> tuple[float, float]:
        """How far a run is from it by chance: in bytes, and as a share of it (standard deviations)."""
        return _CHANCE if self.doubles else (0.0, 0.0)

    def sizes(self, places: Mapping[str, Floats], count: int) -> Floats:
        """The bytes that it needs at places which are given as columns of `count` values: an array of as many."""
        import numpy as np

        assert self.size is not None
        return np.array([self.size({name: float(column[place]) for name, column in places.items()}) for place in range(count)])
