"""A recording of memprof itself, compressed by gzip or not, as the Run that this memprof makes of it.

One that was cut off is read as far as it goes.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from ...records.types import Run
from ..fold import fold

TOOL = "memprof"
_GZIP = b"\x1f\x8b"
_HEAD = b"recording "


def knows(path: Path) -> bool:
    """Whether a file is a recording. Raises OSError."""
    with suppress(EOFError, zlib.error), _opened(path) as file:
        return file.read(len(_HEAD)) == _HEAD
    return False


def read(path: Path) -> Run:
    """Its Run. Raises OSError, and InputError for lines that are none of a recording."""
    with _opened(path) as file:
        return fold(_lines(file), str(path))


def _lines(file: BinaryIO) -> Iterator[bytes]:
    with suppress(EOFError, zlib.error):  # it was cut off, and so has no outcome
        yield from file


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as file:
        head = file.read(len(_GZIP))
        file.seek(0)
        yield cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file))) if head == _GZIP else file
