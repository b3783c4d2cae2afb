"""The recording of a run while it comes, compressed in a temporary file, and where it is kept.

A recording is kept where the user wants it, and always for a run that failed or whose peaks are known to no better than 1%: if the fold was wrong,
nothing has to be measured again, as `memprof import` makes the Run again.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ..base import files
from ..base.cache import cache_folder
from ..base.errors import InputError
from ..records.types import Run

SUFFIX = ".recording.gz"
_PIECE_BYTES = 1 << 16
_MOST_BYTES = 256 << 20  # compressed; a longer recording is not kept
_MOST_FILES = 40  # of those that nobody asked for
_GZIP = 16 + zlib.MAX_WBITS


class Spool:
    """A recording that comes line by line. folder: where all are kept, None for only those of runs that went wrong, in the cache."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._piece = bytearray()
        self._file: BinaryIO | None = None
        self._compressor = zlib.compressobj(1, wbits=_GZIP)

    def __enter__(self) -> Spool:
        with suppress(OSError):
            self._file = tempfile.TemporaryFile()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, line: bytes) -> None:
        """Take a line, without its end."""
        self._piece += line + b"\n"
        if len(self._piece) >= _PIECE_BYTES:
            self._compress()

    def _compress(self) -> None:
        """A disk that is full ends the recording, and not the measurement."""
        if self._file is not None:
            try:
                self._file.write(self._compressor.compress(bytes(self._piece)))
                if self._file.tell() > _MOST_BYTES:
                    self._close()
            except OSError:
                self._close()
        self._piece.clear()

    def keep_if_wanted(self, run: Run) -> None:
        """Keep the recording if all are wanted, or if the run failed or has a peak that is not sure. Raises InputError if the user's folder cannot be
        written."""
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._save(self._folder, run)
            except OSError as error:
                raise InputError(f"{self._folder}: {error.strerror}") from None
        elif not run.outcome.ok or not all(mark.sure for mark in run.marks):
            with suppress(OSError, InputError):
                folder = cache_folder("recordings")
                self._save(folder, run)
                for path in sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)[:-_MOST_FILES]:
                    path.unlink(missing_ok=True)

    def _save(self, folder: Path, run: Run) -> None:
        self._compress()
        if self._file is None:
            return
        self._file.write(self._compressor.flush())
        self._file.seek(0)
        words = (run.job.model.name, run.job.heading, str(run.job.repeat), str(run.started_ns))
        name = "-".join(re.sub(r"[^\w.+-]+", "_", word)[:60] for word in words)
        with files.replacing(folder / (name + SUFFIX)) as (file,):
            shutil.copyfileobj(self._file, file)
        self._close()
