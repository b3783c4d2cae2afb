"""glibc's heap as large allocations meet it: which get freed memory that is resident already, and which get fresh pages.

A request takes the smallest free chunk that holds it, otherwise the heap grows; from a threshold on it gets a mapping of its own, below all earlier
ones (malloc/malloc.c; seen with 2.36). Small requests are not looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

_HEADER_BYTES, _LEAST_BYTES = 8, 32
_PAGE_BYTES = 4096
# Any addresses will do whose order is that of Linux: mappings lie above the heap.
_TOP, _MAPPINGS = 1 << 46, 1 << 62
MAPPED_BYTES = 32 << 20  # the threshold never gets above this


class Heap:
    """free: the sizes of the chunks that are free. mapped_from: the size from which on a request is mapped."""

    def __init__(self, free: Iterable[int] = (), mapped_from: int = MAPPED_BYTES) -> None:
        self._free: list[tuple[int, int]] = []
        address = 0
        for size in free:
            self._free.append((size, address))
            address += size + _LEAST_BYTES  # they do not touch
        self._free.sort()
        self._mapped_from = mapped_from
        self._top, self._mappings = _TOP, _MAPPINGS

    def allocate(self, size: int, alignment: int = 0) -> tuple[int, bool]:
        """A request of so many bytes: its address, and whether its pages are fresh."""
        if alignment:
            size += alignment + _LEAST_BYTES
        rounded = max(-(-(size + _HEADER_BYTES) // 16) * 16, _LEAST_BYTES)
        place = bisect_left(self._free, (rounded,))
        if place < len(self._free):
            whole, address = self._free.pop(place)
            if whole - rounded >= _LEAST_BYTES:
                insort(self._free, (whole - rounded, address + rounded))
            return address, False
        if rounded >= self._mapped_from:
            self._mappings -= -(-(rounded + _HEADER_BYTES) // _PAGE_BYTES) * _PAGE_BYTES
            return self._mappings, True
        self._top += rounded
        return self._top - rounded, True
