"""What a model file is: which files belong to it, how its format is read, which tensors it holds."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..base.errors import UsageError

# No model has a shape of more dimensions, and the product of a million extents takes minutes to multiply.
MOST_DIMENSIONS = 1024
MOST_EXTENT = (1 << 63) - 1  # ONNX has 64 bits with a sign for it, and so have runs files


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
