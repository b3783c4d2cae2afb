"""The zoo's language model: a decoder as LLaMA's, of any size, with random weights. Its dimensions and weights; the writers know the formats.

The published family's proportions: heads of 64, half as many key and value heads as heads, a gated feed-forward of three times the width, and a
layer for each 64 of width. Its tokens are bytes, so that it needs no vocabulary from elsewhere and a text's tokens can be counted by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from ..base.errors import UsageError
from .graph import Weight

HEAD = 64
CONTEXT = 131072  # the longest that it claims to know; a runtime takes less by its settings
ROPE_BASE = 10000.0
EPSILON = 1e-5
# Unknown, begin and end of a text, then the 256 bytes.
UNKNOWN, BEGIN, END, FIRST_BYTE = 0, 1, 2, 3
VOCABULARY = FIRST_BYTE + 256
_STEP = 2 * HEAD  # the width goes in steps that give a whole number of key and value heads


class Decoder(Struct, frozen=True):
    """The dimensions of a decoder."""

    layers: int
    width: int

    @property
    def heads(self) -> int:
        """Heads of attention, each with a query."""
        return self.width // HEAD

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values: two queries share each."""
        return self.heads // 2

    @property
    def feed(self) -> int:
        """The width of the feed-forward part."""
        return 3 * self.width

    @property
    def weights(self) -> Iterator[tuple[str, Weight]]:
        """(part, weight) of every weight in order, matrices as (out, in). Part: its name in a layer, or in the whole model, as GGUF has it."""
        yield "token_embd", Weight("token_embd", (VOCABULARY, self.width), 1.0)
        for layer in range(self.layers):
            for part, (out, into) in self._matrices.items():
                # Even values in -a..a have the deviation a / sqrt(3): sums of `into` products keep their power.
                yield part, Weight(f"blk.{layer}.{part}", (out, into), math.sqrt(3 / into))
        yield "output", Weight("output", (VOCABULARY, self.width), math.sqrt(3 / self.width))

    @property
    def parameters(self) -> int:
        """Values of all weights."""
        return 2 * VOCABULARY * self.width + self.layers * sum(out * into for out, into in self._matrices.values())

    @property
    def _matrices(self) -> dict[str, tuple[int, int]]:
        width, keys, feed = self.width, self.kv_heads * HEAD, self.feed
        return {
            "attn_q": (width, width),
            "attn_k": (keys, width),
            "attn_v": (keys, width),
            "attn_output": (width, width),
            "ffn_gate": (feed, width),
            "ffn_up": (feed, width),
            "ffn_down": (width, feed),
        }


def sized(size_bytes: int, item_bytes: int = 2) -> Decoder:
    """The decoder whose weights, of so many bytes a value, come nearest to that size: of all widths the one with the published proportions.

    Raises UsageError below the smallest.
    """
    smallest = Decoder(1, _STEP)
    if size_bytes < smallest.parameters * item_bytes:
        raise UsageError(f"the weights of llama are at least {smallest.parameters * item_bytes} bytes")
    choices, width = [], _STEP
    while (thinnest := Decoder(1, width).parameters * item_bytes) <= size_bytes:
        layer = (Decoder(2, width).parameters - Decoder(1, width).parameters) * item_bytes
        choices.append(Decoder(1 + round((size_bytes - thinnest) / layer), width))
        width += _STEP
    return min(choices, key=lambda decoder: abs(math.log(decoder.layers * HEAD / decoder.width)))
