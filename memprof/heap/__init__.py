"""Allocation profiles of massif, heaptrack and memray, read into one HeapProfile."""

from __future__ import annotations

from pathlib import Path

from .profile import HeapProfile


def load(path: str | Path) -> HeapProfile:
    """The profile in a file, told by its content: a massif file, heaptrack's recording or a memray capture.

    Raises InputError where it is none of these or is damaged beyond use.
    """
    raise NotImplementedError
