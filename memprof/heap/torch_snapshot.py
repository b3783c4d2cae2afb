"""Reads memory snapshots of torch's caching allocator: what `torch.cuda.memory._dump_snapshot` pickles, and earlier lists of segments.

The structure (torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/memory.py; older keys from torch/cuda/_memory_viz.py):

    {"segments": [SEGMENT, ...], "device_traces": [[EVENT, ...] of device 0, ...], ...}, before torch 2.0 a list of segments alone
    SEGMENT  device, address, total_size, segment_type ("large", "small"), stream, frames, blocks
    BLOCK    size, requested_size, state ("active_allocated", "active_pending_free", "inactive"), frames; before torch 2.1 history in place of
             frames: [{"real_size", "frames"}, ...], the newest first
    EVENT    action ("alloc", "free_requested", "free_completed", "segment_alloc", ...), addr, size (requested), frames, time_us (from torch 2.2)
    FRAME    filename, name, line; a list of frames begins with the site

A block is held from `alloc` to `free_completed`. A trace has the newest events only, so the state at its begin is found backwards, from the blocks of
the segments. Rows become numbers in columns while the pickle is read: memory is about the size of the file, and at most MOST_BYTES are read.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from ..base.errors import InputError
from ..base.files import Data
from ..base.units import counted, format_bytes
from . import one_moment, plain_pickle
from .frames import BELOW, NO_MODULE, UNKNOWN, Frame, FrameTable, is_python
from .profile import HeapProfile, Snapshot
from .trees import CallTree

MOST_BYTES = 4 << 30
ALLOCATED, RESERVED, INACTIVE = "allocated", "reserved", "inactive"
COUNTS = (
    "torch counts the blocks that its caching allocator holds for tensors on the device, at the requested size, until their free is "
    "completed. It does not count what other libraries take from the device, or the context of CUDA"
)
_SEGMENTS = "torch counts the segments that its caching allocator has reserved from the device, with the parts of them that hold no block"
_SNAPSHOTS = 200
_TREES = 16
_MOST_NAMED = 15  # devices
_BEFORE, _NO_STACK = 2, 3  # frames
_ACTIVE, _PENDING = "active_allocated", "active_pending_free"
_LARGEST = 1 << 62
_NOTHING = ("", "??", "none")  # of names and files; the last where torch makes a snapshot of its profiler's events


class _FrameNumber(int):
    __slots__ = ()


class _StackNumber(int):
    __slots__ = ()


class _EventNumber(int):
    __slots__ = ()


class _HistoryPart(NamedTuple):
    size: int
    stack: int


class _SnapshotBlock(NamedTuple):
    size: int
    requested: int
    state: str
    stack: int
    address: int | None


class _SnapshotRows:
    """What takes the place of a snapshot's rows while they are read, and the columns that hold them."""

    def __init__(self) -> None:
        self.frames = FrameTable(
            Frame("allocated by torch", kind="root"),
            BELOW,
            Frame("[allocated before the trace began]", module=NO_MODULE),
            Frame("[no stack was recorded]", module=NO_MODULE),
        )
        self.stacks: list[tuple[int, ...]] = [(_NO_STACK,), (_BEFORE,)]
        self._stack_numbers: dict[tuple[int, ...], int] = {(): 0}
        # Of events: whether it is an allocation, else the end of one; others are not kept.
        self.begins = array("b")
        self.addresses, self.sizes, self.times, self.event_stacks = array("Q"), array("q"), array("q"), array("q")

    def of_list(self, before: Any, items: list[Any]) -> Any:
        if isinstance(before, _StackNumber):
            return self._stack((*self.stacks[before], *(item for item in items if isinstance(item, _FrameNumber))))
        if before == [] and set(map(type, items)) == {_FrameNumber}:
            return self._stack(tuple(items))
        return before

    def of_dict(self, items: dict[Any, Any]) -> Any:
        if "filename" in items and "name" in items:
            return _FrameNumber(self.frames.number(_frame(items)))
        if "action" in items and "size" in items:
            return self._event(items)
        if "state" in items and "size" in items:
            return self._block(items)
        if "real_size" in items:
            return _HistoryPart(_size(items["real_size"]), self._stack_of(items))
        return items

    def _stack(self, frames: tuple[int, ...]) -> _StackNumber:
        number = self._stack_numbers.setdefault(frames, len(self.stacks))
        if number == len(self.stacks):
            self.stacks.append(frames)
        return _StackNumber(number)

    def _stack_of(self, items: dict[Any, Any]) -> int:
        stack = items.get("frames")
        return int(stack) if isinstance(stack, _StackNumber) else 0

    def _event(self, items: dict[Any, Any]) -> _EventNumber | None:
        """None for an event that neither begins nor ends a block."""
        if items["action"] not in ("alloc", "free_completed"):
            return None
        self.begins.append(items["action"] == "alloc")
        self.addresses.append(_size(items.get("addr", 0) & (1 << 64) - 1, 1 << 64))
        self.sizes.append(_size(items["size"]))
        self.times.append(_size(items.get("time_us", 0)))
        self.event_stacks.append(self._stack_of(items))
        return _EventNumber(len(self.begins) - 1)

    def _block(self, items: dict[Any, Any]) -> _SnapshotBlock:
        size, history = _size(items["size"]), items.get("history")
        newest = history[0] if isinstance(history, list) and history and isinstance(history[0], _HistoryPart) else None
        requested = _size(items.get("requested_size", newest.size if newest else size))
        stack = newest.stack if newest else self._stack_of(items)
        address = items.get("address")
        return _SnapshotBlock(size, requested, _text(items["state"]), stack, None if address is None else _size(address, 1 << 64))


def _size(value: Any, limit: int = _LARGEST) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise TypeError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value[:40]


def _frame(items: dict[Any, Any]) -> Frame:
    name, file, line = items["name"], items["filename"], items.get("line")
    if not isinstance(name, str) or not isinstance(file, str):
        raise TypeError
    known = name not in _NOTHING
    source = file if file not in _NOTHING else None
    number = line if type(line) is int and 0 < line < 1 << 31 else None
    module = None if is_python(source) else NO_MODULE
    return Frame(name if known else UNKNOWN, source, number, module, None, "site" if known else "unknown")


class _Segment(Struct):
    """address: of its first byte. size: reserved. kind: large or small. blocks: in the order of their addresses."""

    address: int
    size: int
    kind: str
    stream: int
    stack: int
    blocks: list[_SnapshotBlock]

    @property
    def held(self) -> int:
        """The bytes of blocks that are allocated, or whose free is not completed."""
        return sum(block.size for block in self.blocks if block.state in (_ACTIVE, _PENDING))

    @property
    def named(self) -> str:
        """Its name in trees, without brackets, which views take for parameters."""
        share = f"{100 * self.held / self.size if self.size else 0:.0f}%"
        stream = f", stream {self.stream}" if self.stream else ""
        return f"segment {self.address:#x}: {self.kind}{stream}, {format_bytes(self.size)}, {share} held"


class _DeviceMemory(Struct):
    segments: list[_Segment] = field(default_factory=list)
    events: Sequence[int] = ()

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    def blocks(self, *states: str) -> list[_SnapshotBlock]:
        return [block for segment in self.segments for block in segment.blocks if block.state in states]


def read(data: Data, path: str, value: str | None = None) -> HeapProfile:
    """The profile in a snapshot. value: `allocated`, `reserved` or `inactive`; of several devices of that with the most reserved, or `allocated:1`.

    Raises InputError for a file that is too large, damaged, no snapshot, or asks for more than plain values, and UsageError for an unknown value.
    """
    if len(data) > MOST_BYTES:
        raise InputError(
            f"{path} is larger than {format_bytes(MOST_BYTES)}, the most that memprof reads of a snapshot: record fewer events (max_entries)"
        )
    rows = _SnapshotRows()
    found = plain_pickle.read(data, path, rows)
    try:
        devices = _devices(found, rows)
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
        raise InputError(
            f"{path} is a Python pickle, and not a memory snapshot of torch: its segments are not as torch writes them"
        ) from None
    if not devices:
        raise InputError(f"{path} is a memory snapshot of torch without any segment or event: nothing was allocated on a device")
    return _TorchSnapshot(path, rows, devices).profile(value)


def _devices(found: Any, rows: _SnapshotRows) -> dict[int, _DeviceMemory]:
    """The memory of each device that has any."""
    segments, traces = (found["segments"], found.get("device_traces", [])) if isinstance(found, dict) else (found, [])
    if not isinstance(segments, list) or not isinstance(traces, list):
        raise TypeError
    devices: dict[int, _DeviceMemory] = {}
    for raw in segments:
        address, blocks = _size(raw["address"], 1 << 64), []
        at = address
        for block in raw["blocks"]:
            if isinstance(block, dict):
                block = rows.of_dict(block)
            if not isinstance(block, _SnapshotBlock):
                raise TypeError
            blocks.append(block if block.address is not None else block._replace(address=at))
            at += block.size
        kind, stack = _text(raw.get("segment_type", "large")), raw.get("frames")
        number = int(stack) if isinstance(stack, _StackNumber) else 0
        stream = raw.get("stream", 0)  # a pointer, seldom of use
        segment = _Segment(address, _size(raw["total_size"]), kind, stream if type(stream) is int else 0, number, blocks)
        devices.setdefault(_size(raw.get("device", 0), 1 << 16), _DeviceMemory()).segments.append(segment)
    for device, trace in enumerate(traces):
        events = [rows.of_dict(event) if isinstance(event, dict) else event for event in trace]
        numbers = [event for event in events if event is not None]
        if not all(isinstance(event, _EventNumber) for event in numbers):
            raise TypeError
        if numbers:
            devices.setdefault(device, _DeviceMemory()).events = array("q", numbers)
    return devices


class _TorchSnapshot:
    def __init__(self, path: str, rows: _SnapshotRows, devices: dict[int, _DeviceMemory]) -> None:
        self._path, self._rows, self._devices = path, rows, devices

    def profile(self, wanted: str | None) -> HeapProfile:
        most = max(self._devices, key=lambda number: (self._devices[number].reserved, len(self._devices[number].events)))
        several = len(self._devices) > 1
        of_each = {
            f"{word}:{number}" if several else word: (word, number)
            for number in sorted(self._devices)
            for word in (ALLOCATED, RESERVED, INACTIVE)
        }
        default = f"{ALLOCATED}:{most}" if several else ALLOCATED
        if several and wanted in (ALLOCATED, RESERVED, INACTIVE):
            wanted = f"{wanted}:{most}"
        value = one_moment.selected(self._path, list(of_each), wanted, default)
        word, number = of_each[value]
        device = self._devices[number]
        warnings = [_summary(device, number if several else None)]
        if several:
            shown = [other for other in sorted(self._devices) if other != number][:_MOST_NAMED]
            others = ", ".join(f"{other} ({format_bytes(self._devices[other].reserved)} reserved)" for other in shown)
            warnings.append(f"This is device {number}; --value {word}:N shows another: {others}.")
        total, unit_ms, started_us = "", True, 0
        if word == ALLOCATED:
            snapshots, unit_ms, started_us = self._allocated(device)
            if len(snapshots) == 1:
                total = f"allocated when the snapshot was taken ({value})"
        else:
            stacks = self._reserved(device) if word == RESERVED else self._inactive(device)
            tree = one_moment.tree_of(self._path, list(stacks))
            snapshots = [Snapshot(0, 0, tree.bytes[0], tree=tree)]
            total = f"{word} when the snapshot was taken ({value})"
        return HeapProfile(
            "torch",
            "",
            "",
            "ms" if unit_ms else "B",
            COUNTS if word == ALLOCATED else _SEGMENTS,
            tuple(snapshots),
            tuple(self._rows.frames.frames),
            self._path,
            started_ns=started_us * 1000 if started_us else None,
            warnings=tuple(warnings),
            total=total,
            value=value,
            values=tuple(of_each),
        )

    # -- trees

    def _tree_of_sums(self, sums: dict[int, int]) -> CallTree:
        return one_moment.tree_of(self._path, [(self._rows.stacks[number], size) for number, size in sums.items() if size])

    def _reserved(self, device: _DeviceMemory) -> Iterable[tuple[tuple[int, ...], int]]:
        for segment in device.segments:
            site = self._rows.frames.number(Frame(segment.named, module=NO_MODULE))
            yield (site, *(self._rows.stacks[segment.stack] if segment.stack else ())), segment.size

    def _inactive(self, device: _DeviceMemory) -> Iterable[tuple[tuple[int, ...], int]]:
        """By whether a block lies in the same segment, which then cannot be given back, and by segment."""
        split, whole = (
            self._rows.frames.number(Frame(name, module=NO_MODULE))
            for name in ("free pieces beside held blocks", "free pieces of empty segments")
        )
        for segment in device.segments:
            site = self._rows.frames.number(Frame(segment.named, module=NO_MODULE))
            free = [block.size for block in segment.blocks if block.state not in (_ACTIVE, _PENDING)]
            if free:
                yield (split if segment.held else whole, site), sum(free)

    # -- what is allocated, at the snapshot and before

    def _allocated(self, device: _DeviceMemory) -> tuple[list[Snapshot], bool, int]:
        """The snapshots, whether their time is in milliseconds (else in bytes), and when the first event was, in microseconds."""
        held = {
            block.address: (block.requested, block.stack, block.size - block.requested)
            for block in device.blocks(_ACTIVE, _PENDING)
            if block.address is not None
        }
        sums: dict[int, int] = defaultdict(int)
        for size, stack, _ in held.values():
            sums[stack] += size
        tree = self._tree_of_sums(sums)
        events = device.events
        if not events:
            extra = sum(max(rounded, 0) for _, _, rounded in held.values())
            return [Snapshot(0, 0, tree.bytes[0], extra, tree=tree)], True, 0
        begin = self._begin({address: (size, stack) for address, (size, stack, _) in held.items()}, events)
        totals = self._totals(begin, events)
        times, by_time = self._times(events)
        wanted = _wanted(totals)
        trees = self._trees_at(begin, events, {place for place, has_tree in wanted.items() if has_tree})
        snapshots = [Snapshot(index, times[place], totals[place], tree=trees.get(place)) for index, place in enumerate(sorted(wanted))]
        snapshots.append(Snapshot(len(snapshots), times[-1], tree.bytes[0], tree=tree))
        return snapshots, by_time, self._rows.times[events[0]] if by_time else 0

    def _begin(self, held: dict[int, tuple[int, int]], events: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The blocks, by their addresses, before the first event: bytes and stack. held: those after the last."""
        rows = self._rows
        for event in reversed(events):
            address = rows.addresses[event]
            if rows.begins[event]:
                held.pop(address, None)
            else:
                held[address] = rows.sizes[event], 1
        return held

    def _totals(self, begin: dict[int, tuple[int, int]], events: Sequence[int]) -> array[int]:
        """The bytes held before the first event, and after each."""
        rows = self._rows
        live = {address: size for address, (size, _) in begin.items()}
        total = sum(live.values())
        totals = array("q", [total])
        for event in events:
            address = rows.addresses[event]
            total -= live.pop(address, 0)
            if rows.begins[event]:
                live[address] = rows.sizes[event]
                total += rows.sizes[event]
                one_moment.check_total(self._path, total)
            totals.append(total)
        return totals

    def _times(self, events: Sequence[int]) -> tuple[list[float] | array[float], bool]:
        """When each total was reached, and whether in milliseconds since the first event; without a clock in bytes allocated and freed until then, as
        massif counts it."""
        rows = self._rows
        first = rows.times[events[0]]
        times = array("d", [0.0])
        if first and all(rows.times[event] for event in (events[0], events[-1])):
            latest = 0.0
            for event in events:
                latest = max(latest, (rows.times[event] - first) / 1000)
                times.append(latest)
            return times, True
        moved = 0.0
        for event in events:
            moved += rows.sizes[event]
            times.append(moved)
        return times, False

    def _trees_at(self, begin: dict[int, tuple[int, int]], events: Sequence[int], places: set[int]) -> dict[int, CallTree]:
        """The trees of what is held after so many events."""
        rows, live, trees = self._rows, dict(begin), dict[int, CallTree]()
        sums: dict[int, int] = defaultdict(int)
        for size, stack in live.values():
            sums[stack] += size
        if 0 in places:
            trees[0] = self._tree_of_sums(sums)
        for place, event in enumerate(events, 1):
            address = rows.addresses[event]
            before = live.pop(address, None)
            if before is not None:
                sums[before[1]] -= before[0]
            if rows.begins[event]:
                live[address] = rows.sizes[event], rows.event_stacks[event]
                sums[rows.event_stacks[event]] += rows.sizes[event]
            if place in places:
                trees[place] = self._tree_of_sums(sums)
        return trees


def _wanted(totals: Sequence[int]) -> dict[int, bool]:
    """The places of the totals to be shown, the largest of each stretch, and whether with a tree, as some of them and the peak."""
    step = -(-len(totals) // _SNAPSHOTS)
    largest = [max(range(start, min(start + step, len(totals))), key=totals.__getitem__) for start in range(0, len(totals), step)]
    spacing = max(1, len(largest) // _TREES)
    wanted = {place: number % spacing == 0 for number, place in enumerate(largest)}
    wanted[max(largest, key=totals.__getitem__)] = True
    return wanted


def _summary(device: _DeviceMemory, number: int | None) -> str:
    """A sentence on what was reserved when the snapshot was taken, and how much of it held nothing."""
    held, pending = device.blocks(_ACTIVE), device.blocks(_PENDING)
    free = [(block.size, segment) for segment in device.segments for block in segment.blocks if block.state not in (_ACTIVE, _PENDING)]
    split = sum(size for size, segment in free if segment.held)
    waiting = f", {format_bytes(sum(block.size for block in pending))} wait for their free to complete" if pending else ""
    where = "" if number is None else f" of device {number}"
    largest = f"; the largest free piece is {format_bytes(max(size for size, _ in free))}" if free else ""
    return (
        f"When the snapshot was taken, {format_bytes(device.reserved)}{where} were reserved in {counted(len(device.segments), 'segment')}: "
        f"{format_bytes(sum(block.size for block in held))} allocated{waiting}, {format_bytes(sum(size for size, _ in free))} inactive, "
        f"{format_bytes(split)} of that beside held blocks (fragmented){largest}."
    )
