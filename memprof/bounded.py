"""numpy in a bounded address space (`ulimit -v`): loaded so that OpenBLAS, which numpy brings, finds its memory or the lack of it is an error.

OpenBLAS (0.3.23 and 0.3.30 seen) asks for a buffer of 32 MiB for each of its threads as soon as it is loaded, and for a buffer at the first product
of matrices. Where there is none it asks again without end, and the process can then not even exit.
"""

from __future__ import annotations

import mmap
import os
import sys

from .errors import address_space_is_limited

_THREADS = "OPENBLAS_NUM_THREADS"
_BUFFER_BYTES = 40 << 20  # 32 MiB and a little, aligned
_LARGE = 128  # OpenBLAS multiplies smaller matrices than this without a buffer


def load_numpy() -> None:
    """Load numpy, if the address space is bounded and numpy is not there yet: without threads, and with its buffer. Raises what
    `errors.out_of_memory` knows where there is no room for that, and ImportError."""
    if "numpy" in sys.modules or not address_space_is_limited():
        return
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        import numpy
    finally:  # the variable is not for what memprof measures
        if given is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = given
    mmap.mmap(-1, _BUFFER_BYTES).close()
    matrix = numpy.ones((_LARGE, _LARGE))
    numpy.matmul(matrix, matrix)
