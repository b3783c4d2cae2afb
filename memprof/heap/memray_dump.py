"""Writes a memray capture as lines of JSON: a head, then frames and snapshots. A program: `python memray_dump.py FILE SMALLEST PHASES`.

    {"command", "allocator", "arenas", "begin_ms", "native", "partial"}
    {"kind": "frame", "function", "file", "line", "module", "offset"}    numbered from 0 in the order they come
    {"kind": "snapshot", "time_ms", "bytes", "stacks": [[[FRAME, ...], bytes], ...] or null}

PHASES is JSON too, [[begin, end or null], ...] in milliseconds of the epoch: the largest snapshot of each phase has its stacks.
arenas: whether the allocator's arenas are counted in place of the Python objects in them.
offset: of a native frame without a symbol, from where its module was mapped. memray's API does not tell it, `memray parse` does.
Stacks are sites first. A stack that holds less than 1/SMALLEST of each snapshot is given as a line of Python, with -1 for the rest. Snapshots are
in the order of time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from bisect import bisect_left, bisect_right
from typing import Any

_TREES = 16
_SNAPSHOTS = 200


def main(path: str, smallest: int, phases: Any) -> int:
    """Dump the capture. The exit code is 0 on success."""
    try:
        import memray
    except ImportError:
        sys.stderr.write(f"memray is not installed in {sys.executable}: pip install memray\n")
        return 1
    try:
        with memray.FileReader(path) as reader:
            dump(reader, path, smallest, phases, sys.stdout)
    except (OSError, ValueError, RuntimeError) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return 1
    return 0


def dump(reader: Any, path: str, smallest: int, phases: Any, out: Any) -> None:
    """Write the lines."""
    metadata = reader.metadata
    snapshots = list(reader.get_memory_snapshots())
    aggregated = str(getattr(metadata, "file_format", "")).endswith("AGGREGATED_ALLOCATIONS")
    begin_ms = int(metadata.start_time.timestamp() * 1000)
    allocator = str(metadata.python_allocator).split()[0] if metadata.python_allocator else "unknown"
    head = {
        "command": metadata.command_line,
        "allocator": allocator,
        "arenas": allocator not in ("malloc", "unknown") and not getattr(metadata, "trace_python_allocators", False),
        "begin_ms": begin_ms,
        "native": bool(metadata.has_native_traces),
        "partial": None if metadata.end_time else "the capture was not closed: the program ended before memray could do so",
    }
    write(out, head)
    writer = Stacks(out, Addresses(path) if head["native"] else None)
    count = len(snapshots)
    rows = []  # (time_ms, bytes, stacks)
    trees: dict[int, list[Any]] = {}
    in_phases = [largest_of(snapshots, begin, end) for begin, end in phases] if count else []
    if not aggregated and count and hasattr(reader, "get_temporal_allocation_records"):  # memray before 1.8 does not have it
        spacing = max(1, count // _TREES)
        wanted = sorted(set(range(0, count, spacing)) | {count - 1} | {index for index, _ in in_phases})
        trees = at_moments(reader, writer, wanted, [snapshots[index].heap / smallest for index in wanted])
    step = max(1, -(-count // _SNAPSHOTS))
    kept = set(trees)
    for start in range(0, count, step):
        kept.add(max(range(start, min(start + step, count)), key=lambda index: snapshots[index].heap))
    for index, time_ms in sorted({(index, snapshots[index].time) for index in kept} | set(in_phases)):
        stacks = trees.get(index)
        # The snapshot's figure and the sum of its tree are of slightly different moments.
        size = sum(held for _, held in stacks) if stacks is not None else snapshots[index].heap
        rows.append((max(0, time_ms - begin_ms), size, stacks))
    records = list(reader.get_high_watermark_allocation_records(merge_threads=True))
    least = sum(record.size for record in records) / smallest
    peak = merged((writer.stack(record, record.size >= least), record.size) for record in records)
    size = sum(held for _, held in peak)
    if peak or not rows:
        best = max(range(count), key=lambda index: snapshots[index].heap) if count else 0
        time_ms = max(0, snapshots[best].time - begin_ms) if count else 0
        rows.append((time_ms, size, peak))
    for time_ms, size, stacks in sorted(rows, key=lambda row: row[0]):
        write(out, {"kind": "snapshot", "time_ms": time_ms, "bytes": size, "stacks": stacks})


def largest_of(snapshots: Any, begin: float, end: Any) -> tuple[int, float]:
    """The index of a phase's largest snapshot, and its time. A phase too short for a snapshot has the one before it, with which it begins."""
    times = [snapshot.time for snapshot in snapshots]
    inside = range(bisect_left(times, begin), len(times) if end is None else bisect_right(times, end))
    if not inside:
        return max(inside.start - 1, 0), (begin + (begin + 1 if end is None else end)) / 2
    index = max(inside, key=lambda index: snapshots[index].heap)
    return index, times[index]


def at_moments(reader: Any, writer: Stacks, wanted: list[int], least: list[float]) -> dict[int, list[Any]]:
    """The stacks that were live at these snapshots, by the snapshot's index. least: the bytes that a stack must hold at one of them to be kept in
    full."""
    live: list[list[Any]] = [[] for _ in wanted]
    for record in reader.get_temporal_allocation_records(merge_threads=True):
        sizes: dict[int, int] = {}
        for interval in record.intervals:
            end = interval.deallocated_before_snapshot
            last = len(wanted) if end is None else bisect_left(wanted, end)
            for place in range(bisect_left(wanted, interval.allocated_before_snapshot), last):
                sizes[place] = sizes.get(place, 0) + interval.n_bytes
        if sizes:
            # The same at each moment: a site would seem to grow if stacks came to it as the heap, and with it the least, grows.
            stack = writer.stack(record, any(size >= least[place] for place, size in sizes.items()))
            for place, size in sizes.items():
                live[place].append((stack, size))
    return {index: merged(stacks) for index, stacks in zip(wanted, live, strict=True)}


def merged(stacks: Any) -> list[Any]:
    """Equal stacks as one, with the sums of their bytes."""
    sums: dict[tuple[int, ...], int] = {}
    for stack, size in stacks:
        sums[stack] = sums.get(stack, 0) + size
    return list(sums.items())


class Stacks:
    """Numbers frames, and writes each when it first comes."""

    def __init__(self, out: Any, addresses: Addresses | None) -> None:
        self._out, self._addresses = out, addresses
        self._numbers: dict[Any, int] = {}

    def stack(self, record: Any, full: bool) -> tuple[int, ...]:
        """The numbers of a record's frames, the site first. Without full: only the line of Python it came from, with -1 for the rest, because
        resolving the native frames of every small block takes minutes."""
        if not full:
            return (*(self._number(tuple(frame)) for frame in record.stack_trace(max_stacks=1)[:1]), -1)
        if self._addresses is None:
            return tuple(self._number(tuple(frame)) for frame in record.stack_trace())
        trace = [tuple(frame) for frame in record.hybrid_stack_trace()]
        # The frames that a hybrid trace leaves out, those of the interpreter, have names.
        nameless = iter(self._addresses.nameless(record) if any(frame[0] == NAMELESS for frame in trace) else ())
        return tuple(self._number(frame, next(nameless, None) if frame[0] == NAMELESS else None) for frame in trace)

    def _number(self, frame: Any, place: tuple[str, int] | None = None) -> int:
        number = self._numbers.get((frame, place))
        if number is None:
            number = self._numbers[frame, place] = len(self._numbers)
            function, file, line = frame
            module, offset = place or (None, None)
            if file and ".so" in file:  # memray 1.20 never does this: it names source files alone
                module, file = file, None
            row = {"kind": "frame", "function": function, "file": file, "line": line, "module": module, "offset": offset}
            write(self._out, row)
        return number


class Addresses:
    """Where the native frames of a capture lie: its frames' addresses and its libraries, as `memray parse` prints them.

    NATIVE_FRAME_ID ip=0x7f249d245304 index=1        numbered from 1; index: the frame that called it, 0 for none
    SEGMENT_HEADER filename=/lib/libc.so.6 num_segments=4 addr=0x7f249d21e000
    SEGMENT 0x26000 1550fc                           where in the library, and its size, both hexadecimal; (nil) for 0
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._frames: list[tuple[int, int]] = []
        self._segments: dict[int, tuple[int, str, int]] = {}
        self._begins: list[int] = []
        self._named: dict[int, tuple[int, bool]] = {}  # by address: how many functions memray names there, and whether they have names
        self._parsed = False

    def nameless(self, record: Any) -> list[tuple[str, int] | None]:
        """The module and the offset of each frame of a record's native stack that has no name, the site first; None where no module is known."""
        self._parse()
        places, frame, depth = [], getattr(record, "native_stack_id", 0), 0
        while 0 < frame <= len(self._frames):
            address, frame = self._frames[frame - 1]
            depth += 1
            if address not in self._named:
                below = len(record.native_stack_trace(max_stacks=depth - 1)) if depth > 1 else 0
                functions = record.native_stack_trace(max_stacks=depth)[below:]  # max_stacks counts addresses
                self._named[address] = len(functions), any(function[0] != NAMELESS for function in functions)
            count, has_name = self._named[address]
            if count and not has_name:
                places.append(self._place(address))
        return places

    def _place(self, address: int) -> tuple[str, int] | None:
        at = bisect_right(self._begins, address) - 1
        if at < 0:
            return None
        end, path, base = self._segments[self._begins[at]]
        return (path, address - base) if address < end else None

    def _parse(self) -> None:
        if self._parsed:
            return
        self._parsed = True
        words = [sys.executable, "-I", "-m", "memray", "parse", self._path]
        path, base = "", 0
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parsing:
            for line in parsing.stdout or ():
                if frame := _FRAME.match(line):
                    self._frames.append((int(frame[1], 16), int(frame[2])))
                elif header := _LIBRARY.match(line):
                    path, base = header[1].decode("utf-8", "backslashreplace"), _address(header[2])
                elif segment := _SEGMENT.match(line):
                    begin = base + _address(segment[1])
                    self._segments[begin] = begin + int(segment[2], 16), path, base
        self._begins = sorted(self._segments)


NAMELESS = "<unknown>"
_FRAME = re.compile(rb"NATIVE_FRAME_ID ip=0x([0-9a-f]{1,16}) index=(\d{1,12})\s")
_LIBRARY = re.compile(rb"SEGMENT_HEADER filename=(.*) num_segments=\d+ addr=(\S+)\s")
_SEGMENT = re.compile(rb"SEGMENT (\S+) ([0-9a-f]{1,16})\s")


def _address(text: bytes) -> int:
    return int(text, 16) if text.startswith(b"0x") else 0


def write(out: Any, row: Any) -> None:
    """Write a line."""
    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
