"""Writes what a memray capture holds as lines of JSON: a head, then frames and snapshots. A program of its own, `python memray_dump.py FILE`.

    {"command", "allocator", "begin_ms", "native", "partial"}
    {"kind": "frame", "function", "file", "line", "module"}      numbered from 0 in the order they come
    {"kind": "snapshot", "time_ms", "bytes", "as": "peak|detailed|empty", "stacks": [[[FRAME, ...], bytes, blocks], ...] or null}

Stacks are sites first. Snapshots are in the order of time.
"""

from __future__ import annotations

import json
import sys
from typing import Any

_TREES = 24
_SNAPSHOTS = 200


def main(path: str) -> int:
    """Dump the capture; the exit code is 0 where that went well."""
    try:
        import memray
    except ImportError:
        sys.stderr.write(f"memray is not installed in {sys.executable}: pip install memray\n")
        return 1
    try:
        with memray.FileReader(path) as reader:
            dump(reader, sys.stdout)
    except (OSError, ValueError, RuntimeError) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return 1
    return 0


def dump(reader: Any, out: Any) -> None:
    """Write the lines."""
    metadata = reader.metadata
    snapshots = list(reader.get_memory_snapshots())
    aggregated = str(getattr(metadata, "file_format", "")).endswith("AGGREGATED_ALLOCATIONS")
    begin_ms = int(metadata.start_time.timestamp() * 1000)
    head = {
        "command": metadata.command_line,
        "allocator": str(metadata.python_allocator).split()[0] if metadata.python_allocator else "unknown",
        "begin_ms": begin_ms,
        "native": bool(metadata.has_native_traces),
        "partial": None if metadata.end_time else "the capture was not closed: the program ended without memray's leave",
    }
    write(out, head)
    writer = Stacks(out, head["native"])
    count = len(snapshots)
    rows = []  # (time_ms, bytes, as, stacks)
    trees: dict[int, list[Any]] = {}
    if not aggregated and count:
        every = max(1, count // _TREES)
        wanted = sorted(set(range(0, count, every)) | {count - 1})
        trees = at_moments(reader, writer, wanted)
    step = max(1, -(-count // _SNAPSHOTS))
    kept = set(trees)
    for start in range(0, count, step):
        kept.add(max(range(start, min(start + step, count)), key=lambda index: snapshots[index].heap))
    for index in sorted(kept):
        stacks = trees.get(index)
        # What was in memory when the snapshot was taken, and what its tree sums up to, are of slightly different moments.
        size = sum(each[1] for each in stacks) if stacks is not None else snapshots[index].heap
        rows.append((max(0, snapshots[index].time - begin_ms), size, "detailed" if stacks is not None else "empty", stacks))
    peak = [
        (writer.stack(record), record.size, record.n_allocations)
        for record in reader.get_high_watermark_allocation_records(merge_threads=True)
    ]
    size = sum(each[1] for each in peak)
    if peak or not rows:
        best = max(range(count), key=lambda index: snapshots[index].heap) if count else 0
        time_ms = max(0, snapshots[best].time - begin_ms) if count else 0
        rows.append((time_ms, size, "peak", peak))
    for time_ms, size, word, stacks in sorted(rows, key=lambda row: row[0]):
        write(out, {"kind": "snapshot", "time_ms": time_ms, "bytes": size, "as": word, "stacks": stacks})


def at_moments(reader: Any, writer: Stacks, wanted: list[int]) -> dict[int, list[Any]]:
    """The stacks that were live at these snapshots, by the snapshot's index."""
    found: dict[int, list[Any]] = {index: [] for index in wanted}
    for record in reader.get_temporal_allocation_records(merge_threads=True):
        sizes: dict[int, tuple[int, int]] = {}
        for interval in record.intervals:
            begin = interval.allocated_before_snapshot
            end = interval.deallocated_before_snapshot
            for index in wanted:
                if index >= begin and (end is None or index < end):
                    size, blocks = sizes.get(index, (0, 0))
                    sizes[index] = size + interval.n_bytes, blocks + interval.n_allocations
        if sizes:
            stack = writer.stack(record)
            for index, (size, blocks) in sizes.items():
                found[index].append((stack, size, blocks))
    return found


class Stacks:
    """Numbers frames, and writes each when it is first met."""

    def __init__(self, out: Any, native: bool) -> None:
        self._out, self._native = out, native
        self._numbers: dict[Any, int] = {}

    def stack(self, record: Any) -> list[int]:
        """The numbers of a record's frames, the site first."""
        trace = record.hybrid_stack_trace() if self._native else record.stack_trace()
        return [self._number(tuple(frame)) for frame in trace]

    def _number(self, frame: Any) -> int:
        number = self._numbers.get(frame)
        if number is None:
            number = self._numbers[frame] = len(self._numbers)
            function, file, line = frame
            module = None
            if file and not file.endswith(".py") and (".so" in file or not line):
                module, file = file, None
            write(self._out, {"kind": "frame", "function": function, "file": file, "line": line, "module": module})
        return number


def write(out: Any, row: Any) -> None:
    """Write a line."""
    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
