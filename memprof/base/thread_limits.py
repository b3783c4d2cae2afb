"""numpy and scipy in a bounded address space (`ulimit -v`): OpenBLAS, which each of them brings, finds its memory, or the lack of it is an error.

OpenBLAS (0.3.23 and 0.3.30 seen) asks for a buffer of 32 MiB for each of its threads as soon as it is loaded, and for a buffer at the first product
of matrices. Where there is none it asks again without end, and the process can then not even exit.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import address_space_is_limited

_THREADS = "OPENBLAS_NUM_THREADS"
_BUFFER_BYTES = 40 << 20  # 32 MiB and a little, aligned
_SCIPY_BYTES = 96 << 20  # scipy.special with its OpenBLAS: 75 MiB of scipy 1.17, and a little
_LARGE = 128  # OpenBLAS multiplies smaller matrices than this without a buffer


def load_numpy() -> None:
    """Load numpy, if the address space is bounded and numpy is not there yet: without threads, and with its buffer. Raises what
    `errors.out_of_memory` knows where there is no room for that, and ImportError."""
    if "numpy" in sys.modules or not address_space_is_limited():
        return
    with _one_thread():
        import numpy
    mmap.mmap(-1, _BUFFER_BYTES).close()
    matrix = numpy.ones((_LARGE, _LARGE))
    numpy.matmul(matrix, matrix)


def load_scipy() -> None:
    """`load_numpy` for scipy.special, of which memprof takes nothing that multiplies matrices."""
    if "scipy.special" in sys.modules or not address_space_is_limited():
        return
    mmap.mmap(-1, _SCIPY_BYTES).close()
    with _one_thread():
        import scipy.special  # noqa: F401


@contextmanager
def _one_thread() -> Iterator[None]:
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:  # the variable is not for what memprof measures
        if given is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = given
