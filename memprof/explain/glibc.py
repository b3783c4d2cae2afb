"""The blocks of glibc's allocator in a stopped process: those in use, and freed ones that it kept, found by walking its chunks from outside.

A chunk's header is the word at 8: its size, and in the lowest three bits PREV_INUSE 1, IS_MMAPPED 2, NON_MAIN_ARENA 4 (malloc/malloc.c). The
main arena's chunks lie one behind another from the start of [heap]. Those of another arena lie in heaps of at most 64 MiB that begin at a
multiple of that (struct heap_info, malloc/arena.c). A block with a separate mapping is a single chunk. The last chunk of an arena, its top, is
free. Free chunks of the smallest sizes (tcache, fast bins) look as if they were in use: a few hundred KiB at most. Seen with glibc 2.36; a
process with another allocator has no such chunks.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ..base.mappings import Mapping
from .memory_map import PAGE, Addresses, Pages, open_memory

_HEAP_BYTES = 64 << 20
_WINDOW = 1 << 18
_LEAST, _SIZE = 32, ~7
_ARENA_STARTS = range(0x800, 0xA00, 16)  # where chunks begin after a struct malloc_state, by version
_HEAP_STARTS = (0x20, 0x30, 0x40)
_FENCE = 0x10
_TOP_PAD = 128 << 10


class Ranges(NamedTuple):
    """Disjoint ranges of addresses, in order."""

    starts: Addresses
    ends: Addresses

    @property
    def bytes(self) -> int:
        """Their sum."""
        return int((self.ends - self.starts).sum()) if len(self.starts) else 0

    def covered(self, starts: Addresses, ends: Addresses) -> Addresses:
        """How many bytes of each of the given ranges lie in these."""
        return self._below(ends) - self._below(starts)

    def _below(self, addresses: Addresses) -> Addresses:
        if not len(self.starts):
            return np.zeros(len(addresses), np.uint64)
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(self.ends - self.starts)))
        place = np.searchsorted(self.starts, addresses, side="right")
        last = np.maximum(place, 1) - 1
        inside = np.minimum(addresses, self.ends[last]) - np.minimum(self.starts[last], addresses)
        return np.where(place > 0, sums[last] + inside, np.uint64(0))


def common(first: Ranges, second: Ranges) -> Ranges:
    """The parts that lie in both."""
    edges = np.unique(np.concatenate((first.starts, first.ends, second.starts, second.ends)))
    starts, ends = edges[:-1], edges[1:]
    in_both = (first.covered(starts, ends) > 0) & (second.covered(starts, ends) > 0)
    return Ranges(starts[in_both], ends[in_both])


def ranges(pairs: Sequence[tuple[int, int]]) -> Ranges:
    """Ranges from pairs in any order. Those that touch or overlap are merged."""
    if not pairs:
        return Ranges(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    merged: list[list[int]] = []
    for start, end in sorted(pairs):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    bounds = np.array(merged, np.uint64)
    return Ranges(bounds[:, 0].copy(), bounds[:, 1].copy())


class GlibcHeap(NamedTuple):
    """The walk's result. arenas: how many beside the main one have memory, and the bytes free in them. complete: every chain came to its end."""

    used: Ranges
    free: Ranges
    mapped: Ranges
    arenas: int
    arenas_free: Ranges
    complete: bool


class _Absent(Exception):
    """A header lies in a page that is not present: reading it would bring the page in."""


class _WordReader:
    """Words of a process's present pages, read in windows."""

    def __init__(self, pid: int, pages: Pages) -> None:
        self._descriptor = open_memory(pid)
        starts, ends = pages.ranges()
        self._starts, self._ends = starts.tolist(), ends.tolist()
        self._begin = self._end = 0
        self._data = b""

    def close(self) -> None:
        os.close(self._descriptor)

    def word(self, address: int) -> int:
        """The word there. Raises _Absent."""
        if not self._begin <= address <= self._end - 8:
            self._fill(address)
        return int(struct.unpack_from("<Q", self._data, address - self._begin)[0])

    def _fill(self, address: int) -> None:
        run = bisect_right(self._starts, address) - 1
        if run < 0 or address + 8 > self._ends[run]:
            raise _Absent
        end = min(address + _WINDOW, self._ends[run])
        try:
            self._data = os.pread(self._descriptor, end - address, address)
        except OSError:
            self._data = b""
        self._begin, self._end = address, address + len(self._data)
        if len(self._data) < 8:
            raise _Absent


class _Walk:
    def __init__(self, reader: _WordReader) -> None:
        self._reader = reader
        self.used: list[tuple[int, int]] = []
        self.free: list[tuple[int, int]] = []

    def chain(self, start: int, end: int) -> bool:
        """Follow the chunks from `start` to the end of their heap. False if they do not lead there; nothing is kept then."""
        word = self._reader.word
        used: list[tuple[int, int]] = []
        free: list[tuple[int, int]] = []
        at, begin = start, start  # `begin` of the chunks in use that were passed
        try:
            head = word(at + 8)
            while True:
                size = head & _SIZE
                after = at + size
                if after == end or (size <= _FENCE and at + 4 * _FENCE >= end):  # the top, or the fence at the end of a heap that is full
                    used.append((begin, at))
                    free.append((at + 16, end) if after == end else (at, at))
                    break
                if size < _LEAST or after > end - 16 or size & 15 or head & 2:
                    return False
                head = word(after + 8)
                if not head & 1:
                    used.append((begin, at + 16))
                    free.append((at + 16, after))
                    begin = after
                at = after
        except _Absent:
            return False
        self.used += [pair for pair in used if pair[1] > pair[0]]
        self.free += [pair for pair in free if pair[1] > pair[0]]
        return True


def walk(pid: int, mappings: Sequence[Mapping], pages: Pages) -> GlibcHeap:
    """Walk the chunks of a stopped process. Raises memory_map.ProcessEndError or memory_map.Unreadable."""
    reader = _WordReader(pid, pages)
    try:
        main, other_arenas, complete = _Walk(reader), _Walk(reader), True
        main_heap = [mapping for mapping in mappings if mapping.path == "[heap]"]
        if main_heap and any(mapping.rss for mapping in main_heap):
            complete = main.chain(main_heap[0].start, main_heap[-1].end)
        anonymous = [mapping for mapping in mappings if not mapping.path and mapping.rss and "rw" in mapping.perms]
        heaps = [heap for mapping in anonymous for heap in _heaps(reader, mapping)]
        walked = [heap for heap in heaps if _walk_heap(other_arenas, reader, *heap)]
        inside = ranges(walked)
        mapped = [pair for mapping in anonymous for pair in _mapped(reader, mapping, inside)]
    finally:
        reader.close()
    return GlibcHeap(
        ranges(main.used + other_arenas.used),
        ranges(main.free + other_arenas.free),
        ranges(mapped),
        len(walked),
        ranges(other_arenas.free),
        complete,
    )


def mapped_from(pid: int, mappings: Sequence[Mapping], pages: Pages) -> int | None:
    """The size from which on a request is mapped, which rises as mapped blocks are freed; None where it is not found.

    It stands in the C library's data, in struct malloc_par behind trim_threshold, which is twice as much once it has risen, and top_pad, 128 KiB
    if nobody set it. Raises memory_map.ProcessEndError or memory_map.Unreadable.
    """
    reader = _WordReader(pid, pages)
    found = set()
    try:
        for mapping in mappings:
            if not re.search(r"/libc[.-][^/]*$", mapping.path or "") or "w" not in mapping.perms:
                continue
            for at in range(mapping.start + 8, mapping.end - 8, 8):
                with suppress(_Absent):
                    if (
                        reader.word(at) == _TOP_PAD
                        and reader.word(at - 8) in (2 * reader.word(at + 8), _TOP_PAD)
                        and reader.word(at + 8) >= _TOP_PAD
                    ):
                        found.add(reader.word(at + 8))
    finally:
        reader.close()
    return found.pop() if len(found) == 1 else None


def _heaps(reader: _WordReader, mapping: Mapping) -> list[tuple[int, int]]:
    """Heaps of other arenas: struct heap_info { ar_ptr; prev; size; mprotect_size; ... } at a multiple of 64 MiB."""
    heaps = []
    for start in range(-(-mapping.start // _HEAP_BYTES) * _HEAP_BYTES, mapping.end, _HEAP_BYTES):
        try:
            arena, size = reader.word(start), reader.word(start + 16)
        except _Absent:
            continue
        if (
            0 < size <= _HEAP_BYTES
            and size % PAGE == 0
            and start + size <= mapping.end
            and arena % 16 == 0
            and 0 < arena % _HEAP_BYTES < 256
        ):
            heaps.append((start, start + size))
    return heaps


def _walk_heap(walk: _Walk, reader: _WordReader, start: int, end: int) -> bool:
    arena = reader.word(start)
    places = (arena + step for step in _ARENA_STARTS) if start < arena < end else (start + step for step in _HEAP_STARTS)
    return any(walk.chain(place, end) for place in places)


def _mapped(reader: _WordReader, mapping: Mapping, inside: Ranges) -> list[tuple[int, int]]:
    """Blocks with separate mappings. The kernel merges neighbouring mappings, so every page may be the first of a block."""
    blocks = []
    at = mapping.start
    walked = list(zip(inside.starts.tolist(), inside.ends.tolist(), strict=True))
    while at < mapping.end:
        within = next((end for start, end in walked if start <= at < end), 0)
        if within:
            at = within
            continue
        try:
            head = reader.word(at + 8)
            size = head & _SIZE
            if head & 7 == 2 and size % PAGE == 0 and at + size <= mapping.end and size and reader.word(at) == 0:
                blocks.append((at, at + size))
                at += size
                continue
        except _Absent:
            pass
        at += PAGE
    return blocks
