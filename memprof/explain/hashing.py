"""Eight bytes as a number, and the table that says at once whether it can be one of those that are looked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TABLE_BITS = 22
_MIX = np.uint64(0x9E3779B97F4A7C15)

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Places = NDArray[np.int64]
Table = NDArray[np.bool_]


def hashed(keys: Words) -> NDArray[np.int64]:
    """The place of each key in the table."""
    return ((keys * _MIX) >> np.uint64(64 - TABLE_BITS)).astype(np.int64)


def table(keys: Words) -> Table:
    """The table of these keys."""
    marked = np.zeros(1 << TABLE_BITS, bool)
    marked[hashed(keys)] = True
    return marked
