"""The width of a model of the zoo whose weights are to have some size."""

from __future__ import annotations

from collections.abc import Callable

from ..base.errors import UsageError

_FLOAT_BYTES = 4


def widest(size_bytes: int, parameters: Callable[[int], int], step: int, name: str) -> int:
    """The largest width, a multiple of `step`, whose weights have at most that size. Raises UsageError if there is none."""
    width = 0
    while parameters(width + step) * _FLOAT_BYTES <= size_bytes:
        width += step
    if not width:
        raise UsageError(f"the weights of {name} are at least {parameters(step) * _FLOAT_BYTES} bytes")
    return width
