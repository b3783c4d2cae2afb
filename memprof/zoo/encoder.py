"""The zoo's encoder of BERT's kind, of any size, with random weights: its dimensions and weights; the writers know the formats.

Depth, vocabulary and the width of a head are fixed, and the width follows from the requested size. Weights are scaled so that no activation
vanishes or explodes.
"""

from __future__ import annotations

import math

from msgspec import Struct

from .graph import Weight
from .sizing import widest

LAYERS, HEAD, VOCABULARY, POSITIONS = 4, 64, 8192, 2048
EPSILON = 1e-5  # of a normalisation, ONNX's own default
FAR = -10000.0  # added to a score that no softmax is to see


class Encoder(Struct, frozen=True):
    """The dimensions of an encoder, and its weights."""

    width: int

    @property
    def heads(self) -> int:
        """Heads of attention."""
        return self.width // HEAD

    @property
    def words(self) -> Weight:
        """A row for each token."""
        return Weight("words", (VOCABULARY, self.width), 1.0)

    @property
    def positions(self) -> Weight:
        """A row for each position."""
        return Weight("positions", (POSITIONS, self.width), 1.0)


def sized(size_bytes: int) -> Encoder:
    """The widest encoder whose weights, as float32, have at most that size. Raises UsageError for a size that holds not even a single head."""
    return Encoder(widest(size_bytes, lambda wide: wide * (VOCABULARY + POSITIONS) + LAYERS * 12 * wide * wide, HEAD, "encoder"))


def dense(name: str, inputs: int, outputs: int) -> tuple[Weight, Weight]:
    """A matrix as (in, out), and its bias."""
    return Weight(f"{name}/weight", (inputs, outputs), math.sqrt(3 / inputs)), Weight(f"{name}/bias", (outputs,), 0.1)


def shift(name: str, width: int) -> Weight:
    """What is added after a normalisation of that name."""
    return Weight(f"{name}/shift", (width,), 0.1)
