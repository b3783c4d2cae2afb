"""How much file-backed and shared memory some processes can have together, from which parts of which files they have mapped.

A part of a file is in memory once, however many processes map it. So the parts that any of the processes maps, taken together, bound what all
of them have of files; what their resident sets have beyond it is counted more than once for certain. Reading maps takes a tenth of a
millisecond, where shares take a hundred times that: on a busy machine no round of shares may ever be complete.
"""

from __future__ import annotations

from collections.abc import Iterable

Part = tuple[int, int, int]  # the file's number in the recording, the first byte, and the byte after the last


class FileOverlap:
    """The newest reading of each process, and the one before."""

    def __init__(self) -> None:
        self._parts: dict[int, list[Part]] = {}
        self._first: dict[int, list[Part]] | None = None  # the first of two complete readings
        self.moved = 0  # what the sum's overlap had moved by when that was complete

    def take(self, pid: int, parts: list[Part]) -> None:
        """Take what a process has mapped."""
        self._parts[pid] = parts

    def drop(self) -> None:
        """A process has come or gone: a first reading is of other processes."""
        self._first = None

    def complete(self, pids: Iterable[int], moved: int) -> dict[int, list[Part]] | None:
        """All of these processes were read. At the second time: what each has mapped, which covers what the poll between the two saw."""
        read = {pid: self._parts[pid] for pid in pids if self._parts.get(pid)}
        first, self._first = self._first, None
        if first is None:
            self._first, self.moved = read, moved
            return None
        return {pid: parts if parts == first[pid] else first[pid] + parts for pid, parts in read.items() if pid in first}


def union_bytes(parts: Iterable[Part]) -> int:
    """The bytes of all parts, each place of a file counted once."""
    total, last, reached = 0, -1, 0
    for file, begin, end in sorted(parts):
        if file != last:
            last, reached = file, 0
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total
