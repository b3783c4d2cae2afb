"""Allocation profiles of massif, heaptrack and memray, read into one HeapProfile."""

from __future__ import annotations

from pathlib import Path

from .profile import HeapProfile


def load(path: str | Path) -> HeapProfile:
    """The profile in a file, told by its content: a massif file, heaptrack's recording or a memray capture, the first two also compressed.

    Where `phases.json` of `memprof heap record` lies beside it, its snapshots know their phases.
    Raises InputError where it is none of these, is damaged beyond use, or where its tool's converter is not installed.
    """
    from .files import read

    return read(Path(path))
