"""One look at a process that stands still: everything read of it, before any interpretation.

This module and those that it imports need numpy and nothing else of memprof, so that they can run on another machine (remote_look.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..base.mappings import Mapping
from . import glibc, memory_map, scan, whole_weights
from .filtering import Filter
from .glibc import GlibcHeap
from .memory_map import PAGE, Pages
from .scan import Hits, Keys
from .whole_weights import Small, Whole


class ProcessSnapshot(NamedTuple):
    """The readings of a process while it stood still. hits: None if weights were not looked for. whole: the small weights in it."""

    phase: str
    mappings: tuple[Mapping, ...]
    pages: Pages
    heap: GlibcHeap
    stack_pointers: tuple[int, ...]
    hits: Hits | None
    empty_huge_bytes: int
    stood_still_ns: int
    whole: tuple[Whole, ...] = ()


def take(pid: int, phase: str, sought: Keys | None, tiny: Small | None = None, passing: Filter | None = None) -> ProcessSnapshot:
    """Look at a process that stands still. sought: the weights to look for, or None; tiny: those too small for that; passing: see scan.

    Raises memory_map.ProcessEndError or memory_map.Unreadable.
    """
    begin_ns = time.monotonic_ns()
    mappings = memory_map.mappings(pid)
    pages = memory_map.present_pages(pid, mappings)
    blocks = glibc.walk(pid, mappings, pages)
    pointers = tuple(memory_map.threads_stack_pointers(pid))
    hits = scan.scan(sought, pid, pages, passing=passing) if sought is not None else None
    whole = whole_weights.find(tiny, pid, pages) if tiny is not None else ()
    empty = _empty_huge_pages(pid, mappings, pages)
    return ProcessSnapshot(phase, tuple(mappings), pages, blocks, pointers, hits, empty, time.monotonic_ns() - begin_ns, whole)


def _empty_huge_pages(pid: int, mappings: Sequence[Mapping], pages: Pages) -> int:
    """Bytes of pages that hold nothing but zeros, in mappings that transparent huge pages were given to."""
    numbers = [number for number, mapping in enumerate(mappings) if mapping.huge]
    if not numbers:
        return 0
    empty = 0
    for piece in memory_map.Memory(pid).read(*pages.ranges(np.isin(pages.mapping, numbers))):
        whole = len(piece.data) // PAGE * PAGE
        empty += int(np.count_nonzero(~piece.data[:whole].reshape(-1, PAGE).any(axis=1))) * PAGE
    return min(empty, sum(mapping.huge for mapping in mappings))
