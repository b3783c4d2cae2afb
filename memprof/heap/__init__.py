"""Allocation profiles of massif, heaptrack and memray, read into one HeapProfile."""

from __future__ import annotations

from pathlib import Path

from .profile import HeapProfile


def load(path: str | Path) -> HeapProfile:
    """The profile in a file, told by its content: a massif file, heaptrack's recording or a memray capture, the first two also compressed.

    If `phases.json` of `memprof heap record` lies beside the file, the snapshots know their phases.
    Raises InputError if the file is none of these or damaged beyond use, or if the program that reads its format is not installed.
    """
    from .files import read

    return read(Path(path))
