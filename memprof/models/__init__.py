"""What a model file is: which files belong to it, how its format is read, which tensors it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from ..base.errors import UsageError

# No model has a shape of more dimensions, and the product of a million extents takes minutes to multiply.
MOST_DIMENSIONS = 1024
MOST_EXTENT = (1 << 63) - 1  # ONNX has 64 bits with a sign for it, and so have runs files
# Bits of an element by its type's name: ONNX's names in numpy's spelling (onnx.proto3, TensorProto.DataType) and TFLite's (schema.fbs,
# TensorType). Types below a byte are packed; string, resource and variant have no size that a model's file would tell.
BITS = {
    **dict.fromkeys(("float32", "int32", "uint32"), 32),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 64),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 16),
    **dict.fromkeys(("int8", "uint8", "bool"), 8),
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8),
    **dict.fromkeys(("int4", "uint4", "float4e2m1"), 4),
    **dict.fromkeys(("int2", "uint2"), 2),
    "complex128": 128,
}


def stored_bytes(dtype: str, shape: Iterable[int]) -> int:
    """The bytes of a tensor of a type of whole bytes."""
    return BITS[dtype] // 8 * math.prod(shape)


def check_extents(name: str, shape: Iterable[int], most: int = MOST_EXTENT) -> None:
    """Raises UsageError where a dimension of a shape that was given for a tensor is larger than any model can have it."""
    if max(shape, default=0) > most:
        raise UsageError(f"a size of {name} is above {most}, the most that a dimension can have")


class Stored(Struct, frozen=True):
    """A tensor whose content lies from begin to end of a file. dtype: a numpy name, or bfloat16. shape: () for a scalar."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
