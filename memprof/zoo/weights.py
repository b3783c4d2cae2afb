"""The values of the weights: the same bits on every machine and with every numpy.

A weight is a stretch of the Philox counter-based stream whose key is the hash of the model's and the weight's name, so it
depends on no other weight and no order. numpy promises raw streams to be stable (NEP 19), unlike its distributions. One
conversion and one multiplication a value follow, which IEEE 754 fixes. Every float gets a full random
mantissa, so that copies of a weight can be recognised in memory by content.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .graph import Weight

Float32 = npt.NDArray[np.float32]

# 4 MiB of floats: small enough for the cache and for any machine, large enough that numpy's overhead vanishes.
_BLOCK = 1 << 20


def blocks(model: str, weight: Weight) -> Iterator[Float32]:
    """The values of a weight in pieces of at most 4 MiB, flat, in the order of its shape."""
    seed = hashlib.blake2b(f"{model}/{weight.name}".encode(), digest_size=16).digest()
    stream = np.random.Philox(key=int.from_bytes(seed, "little"))
    step = np.float32(weight.limit * 2.0**-31)
    count = math.prod(weight.shape)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        words = stream.random_raw((size + 1) // 2).astype("<u8", copy=False).view("<i4")[:size]
        yield words.astype("<f4") * step


def values(model: str, weight: Weight) -> Float32:
    """A whole weight in its shape."""
    whole = np.empty(math.prod(weight.shape), dtype="<f4")
    start = 0
    for block in blocks(model, weight):
        whole[start : start + block.size] = block
        start += block.size
    return whole.reshape(weight.shape)


class Quantized(Struct, frozen=True):
    """A weight in whole steps: real value = data * scale, zero point 0. There is a single scale, or a scale for each output channel."""

    data: npt.NDArray[Any]
    scales: Float32


# int8 kernels without VNNI (AVX2, AVX-512BW) add two products in 16 bits and saturate: with weights beyond 64 ONNX Runtime
# 1.31 gave quite different outputs on such a CPU. Its own quantiser offers reduce_range for the same reason.
_LARGEST_STEP = 63


def quantize_weight(weights: Float32, per_channel: bool) -> Quantized:
    """int8 in -63..63, by the largest magnitude of the tensor or of each first-axis channel."""
    flat = weights.reshape(weights.shape[0] if per_channel else 1, -1)
    scales = (np.abs(flat).max(axis=1) / np.float32(_LARGEST_STEP)).astype("<f4")
    data = np.rint(flat / scales[:, np.newaxis]).astype(np.int8)
    return Quantized(data.reshape(weights.shape), scales)


def quantize_bias(bias: Float32, input_scale: float, weight_scales: Float32) -> Quantized:
    """int32 in steps of input scale times weight scale, so that it adds to the integer products as it stands."""
    scales = np.float32(input_scale) * weight_scales
    return Quantized(np.rint(bias / scales).astype("<i4"), scales)
