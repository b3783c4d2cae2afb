"""ONNX Runtime's CPU arena, simulated: which of its pages a sequence of requests writes.

BFC is best fit with coalescing. Regions double from 1 MiB. A request gets the smallest free chunk that is large enough, and of equal ones that at the
lowest address. The chunk is cut if what is left is as large as the request, or large anyway. Free neighbours become one chunk. Nothing is given back,
so memory is the union of all bytes ever written (bfc_arena.cc and mem_pattern_planner.h of ONNX Runtime; seen with 1.32). Beside each region lies
a table of its chunks.

From the second run with the same shapes on, all tensors of the graph lie in one block, by a plan of the first run's requests (`planned_block`).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Collection, Sequence

from .heap import Heap

# Regions double up to a GiB; larger ones are taken only for a request that needs them.
_FIRST_REGION_BYTES, _LARGEST_STEP_BYTES = 1 << 20, 1 << 30
_ALIGNMENT_BYTES = 256
_PAGE_BYTES = 4096
_BINS = 21
_MOST_DEAD_BYTES = 128 << 20
# For each 256 bytes of a region its table has a number of 8 bytes, all of which are written at once.
_TABLE_SHARE = 32
_REGION_ALIGNMENT = 64


class BfcArena:
    """An arena with regions from a heap. regions: their sizes in bytes, in the order in which they were taken."""

    def __init__(self, heap: Heap) -> None:
        self.regions: list[int] = []
        self._heap = heap
        self._addresses: list[int] = []
        self._fresh: list[bool] = []
        self._tables_bytes = 0
        self._next = _FIRST_REGION_BYTES
        self._chunks: list[dict[int, int]] = []  # of each region: the size of the chunk at each offset
        self._free: list[set[int]] = []
        self._bins: list[list[tuple[int, int, int, int]]] = [[] for _ in range(_BINS)]
        self._used: dict[object, tuple[int, int]] = {}
        self._written: list[list[tuple[int, int]]] = []

    @property
    def resident_bytes(self) -> int:
        """The pages that became resident: those of fresh regions that were written, and fresh tables."""
        spans = itertools.chain.from_iterable(itertools.compress(self._written, self._fresh))
        return sum(end - begin for begin, end in spans) + self._tables_bytes

    def allocate(self, key: object, size: int) -> None:
        """A request of so many bytes, all of which will be written. key: by which it is released."""
        if size <= 0:
            return
        rounded = -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        region, offset = self._fitting(rounded)
        whole = self._chunks[region][offset]
        self._free[region].discard(offset)
        if whole >= 2 * rounded or whole - rounded >= _MOST_DEAD_BYTES:
            self._chunks[region][offset] = rounded
            self._chunks[region][offset + rounded] = whole - rounded
            self._put(region, offset + rounded)
        self._used[key] = (region, offset)
        self._write(region, offset, offset + size)

    def release(self, key: object) -> None:
        """Give back what was allocated under the key; nothing where that was of 0 bytes."""
        place = self._used.pop(key, None)
        if place is None:
            return
        region, offset = place
        chunks, free = self._chunks[region], self._free[region]
        after = offset + chunks[offset]
        if after in free:
            self._take(region, after)
            chunks[offset] += chunks.pop(after)
        before = next((other for other in free if other + chunks[other] == offset), None)
        if before is not None:
            self._take(region, before)
            chunks[before] += chunks.pop(offset)
            offset = before
        self._put(region, offset)

    def _fitting(self, rounded: int) -> tuple[int, int]:
        """The region and the offset of the chunk to use, out of its bin."""
        for chunks in self._bins[_bin(rounded) :]:
            place = bisect_left(chunks, (rounded,))
            if place < len(chunks):
                _, _, offset, region = chunks.pop(place)
                return region, offset
        grown = rounded > self._next
        while rounded > self._next:
            self._next *= 2
        self._extend(self._next)
        if not grown:
            self._next = min(2 * self._next, _LARGEST_STEP_BYTES)
        return len(self.regions) - 1, 0

    def _extend(self, size: int) -> None:
        address, fresh = self._heap.allocate(size, _REGION_ALIGNMENT)
        table = size // _TABLE_SHARE
        if self._heap.allocate(table)[1]:
            self._tables_bytes += table
        self.regions.append(size)
        self._addresses.append(address)
        self._fresh.append(fresh)
        self._chunks.append({0: size})
        self._free.append(set())
        self._written.append([])

    def _entry(self, region: int, offset: int) -> tuple[int, int, int, int]:
        """A free chunk as bins are ordered: by its size, then by its address."""
        return self._chunks[region][offset], self._addresses[region] + offset, offset, region

    def _put(self, region: int, offset: int) -> None:
        entry = self._entry(region, offset)
        self._free[region].add(offset)
        insort(self._bins[_bin(entry[0])], entry)

    def _take(self, region: int, offset: int) -> None:
        entry = self._entry(region, offset)
        self._free[region].discard(offset)
        chunks = self._bins[_bin(entry[0])]
        del chunks[bisect_left(chunks, entry)]

    def _write(self, region: int, begin: int, end: int) -> None:
        begin, end = begin // _PAGE_BYTES * _PAGE_BYTES, -(-end // _PAGE_BYTES) * _PAGE_BYTES
        apart = []
        for span in self._written[region]:
            if span[1] < begin or span[0] > end:
                apart.append(span)
            else:
                begin, end = min(begin, span[0]), max(end, span[1])
        self._written[region] = [*apart, (begin, end)]


def _bin(size: int) -> int:
    """The bin of chunks of that size: each holds sizes up to twice its least, the last all larger ones."""
    return min((size // _ALIGNMENT_BYTES).bit_length() - 1, _BINS - 1)


def planned_block(steps: Sequence[int], sizes: Sequence[int], planned: Collection[int]) -> int:
    """The bytes of the one block that holds all tensors of a run.

    steps: the run's requests in order: n allocates number n, and ~n releases it. sizes: of each number. planned: the numbers that lie in the block.
    Each takes the smallest gap that holds it, among those in use at that time, otherwise it lies behind the last of them.
    """
    placed: list[tuple[int, int, int]] = []  # (offset, size, number) in use, by offset
    most = 0
    for step in steps:
        if step < 0:
            placed = [block for block in placed if block[2] != ~step]
            continue
        size = -(-sizes[step] // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        if step not in planned or not size:
            continue
        end, best = 0, None
        for place, block in enumerate(placed):
            gap = block[0] - end
            if gap >= size and (best is None or gap < best[0]):
                best = (gap, end, place)
            end = block[0] + block[1]
        gap = most - end  # what the block has behind the last tensor is a gap too
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end, len(placed))
        offset, place = (best[1], best[2]) if best is not None else (end, len(placed))
        placed.insert(place, (offset, size, step))
        most = max(most, offset + size)
    return most
