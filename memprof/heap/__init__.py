"""Allocation profiles of massif, heaptrack, memray, pprof, tcmalloc, jemalloc, Go and torch, read into one HeapProfile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .profile import HeapProfile


def load(path: str | Path, value: str | None = None, install: Callable[[str], None] | None = None) -> HeapProfile:
    """The profile in a file, told by its content: a massif file, heaptrack's recording, a memray capture, a profile of pprof, the text that tcmalloc,
    jemalloc and Go write, or a memory snapshot of torch. Those of massif, heaptrack, pprof and the texts may be compressed.

    value: of a file with several values of each block the one to show, such as `alloc_space`; None for what is in use. install: gets a message about
    each step, where an environment may be made with the memray release that a capture needs. If `phases.json` of `memprof heap record` lies beside
    the file, the snapshots know their phases. Raises InputError if the file is none of these or damaged beyond use, or if the program that reads its
    format is not installed, and UsageError for a value that the file does not have.
    """
    from .files import ReaderChoice, read

    return read(Path(path), ReaderChoice(None, value, install))
