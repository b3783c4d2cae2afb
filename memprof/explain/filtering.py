"""The places of 32-bit words that equal a constant under a mask: by C, or, without a compiler, by numpy at half the speed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError

_AT_ONCE = 1 << 19  # words; every call of numpy's costs as much as thousands of them
_SOURCE = Path(__file__).with_name("filtering.c")

Words = NDArray[np.uint32]
Places = NDArray[np.int64]
Filter = Callable[[Words, int, int], Places]


@cache
def ready() -> Filter:
    """(words, mask, constant) -> the places that pass, in order. Compiles on first use: call it before a process stands still."""
    from ..programs import native  # here: on another machine numpy must do, and no compiler of memprof's is there (remote_look.py)

    try:
        function = ctypes.CDLL(str(native.compiled(_SOURCE, library=True))).memprof_filter
    except (
        InputError,
        OSError,
        AttributeError,
    ):  # no compiler, a compiler that does not know this C, or a cache on a disk without execution
        return by_numpy
    function.restype = ctypes.c_int64
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)

    def by_c(words: Words, mask: int, constant: int) -> Places:
        places = np.empty(len(words), np.int64)  # only the pages that are written to become resident
        return places[: function(words.ctypes.data, len(words), mask, constant, places.ctypes.data)].copy()

    return by_c


def by_numpy(words: Words, mask: int, constant: int) -> Places:
    """The same without a compiler."""
    places = [np.zeros(0, np.int64)]
    for start in range(0, len(words), _AT_ONCE):
        part = words[start : start + _AT_ONCE]
        places.append(np.flatnonzero((part & np.uint32(mask)) == np.uint32(constant)) + start)
    return np.concatenate(places)
