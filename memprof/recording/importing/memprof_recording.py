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

from ...base.errors import InputError, os_reason
from ...records.types import Run
from ..fold import fold

_GZIP = b"\x1f\x8b"
_HEAD = b"recording "


def read(path: Path) -> Run | None:
    """Its Run, None for a file that is no recording. Raises InputError for lines that are none of a recording, and for a file that cannot be read."""
    try:
        with suppress(EOFError, zlib.error), _opened(path) as file:
            if file.read(len(_HEAD)) == _HEAD:
                file.seek(0)
                return fold(_lines(file), str(path))
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    return None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    with suppress(EOFError, zlib.error):  # it was cut off, and so has no outcome
        yield from file


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as file:
        head = file.read(len(_GZIP))
        file.seek(0)
        yield cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file))) if head == _GZIP else file
