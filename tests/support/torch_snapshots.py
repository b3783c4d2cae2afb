"""Memory snapshots of torch, made by hand to the structure that torch/csrc/cuda/memory_snapshot.cpp writes, for machines without CUDA."""

from __future__ import annotations

import pickle
import random
import struct
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
_PAGE = 512  # torch's caching allocator rounds each block up to it


def frame(name: str, file: str = "/src/train.py", line: int = 1) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


def event(address: int, size: int, action: str = "alloc") -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0}


STACKS = [[frame("forward", "/src/net.py", 10 + number), frame("step", line=20), frame("<module>", line=30)] for number in range(5)] + [
    [frame("at::native::conv2d", "??", 0), frame("forward", "/src/net.py", 40), frame("<module>", line=30)]
]


@dataclass
class Allocator:
    """A caching allocator with segments of a fixed size, which records what it does as torch's does. Blocks are placed first fit."""

    device: int = 0
    segment_bytes: int = 20 * MIB
    clock: bool = True
    segments: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)
    totals: list[int] = field(default_factory=lambda: [0])

    def alloc(self, size: int, stack: list[dict[str, Any]]) -> int:
        rounded = -(-size // _PAGE) * _PAGE
        for segment in self.segments:
            for place, block in enumerate(segment["blocks"]):
                if block["state"] == "inactive" and block["size"] >= rounded:
                    return self._take(segment, place, size, rounded, stack)
        address = 0x7F0000000000 + (self.device << 40) + len(self.segments) * (1 << 32)
        total = max(self.segment_bytes, rounded)
        block = {"address": address, "size": total, "requested_size": 0, "state": "inactive", "frames": []}
        self.segments.append(
            {
                "device": self.device,
                "address": address,
                "total_size": total,
                "allocated_size": 0,
                "active_size": 0,
                "requested_size": 0,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": stack,
                "blocks": [block],
            }
        )
        self._note("segment_alloc", address, total, stack)
        return self._take(self.segments[-1], 0, size, rounded, stack)

    def free(self, address: int, pending: bool = False) -> None:
        for segment in self.segments:
            for place, block in enumerate(segment["blocks"]):
                if block["address"] == address:
                    self._note("free_requested", address, block["requested_size"], block["frames"])
                    if pending:
                        block["state"] = "active_pending_free"
                        return
                    self._note("free_completed", address, block["requested_size"], block["frames"])
                    self.totals.append(self.totals[-1] - self.held.pop(address))
                    segment["blocks"][place] = block | {"state": "inactive", "requested_size": 0, "frames": []}
                    return
        raise AssertionError(hex(address))

    def _take(self, segment: dict[str, Any], place: int, size: int, rounded: int, stack: list[dict[str, Any]]) -> int:
        block = segment["blocks"][place]
        address: int = block["address"]
        taken = {"address": address, "size": rounded, "requested_size": size, "state": "active_allocated", "frames": stack}
        rest = {"address": address + rounded, "size": block["size"] - rounded, "requested_size": 0, "state": "inactive", "frames": []}
        segment["blocks"][place : place + 1] = [taken] + ([rest] if rest["size"] else [])
        self._note("alloc", address, size, stack)
        self.held[address] = size
        self.totals.append(self.totals[-1] + size)
        return address

    def _note(self, action: str, address: int, size: int, stack: list[dict[str, Any]]) -> None:
        self.events.append(
            event(address, size, action)
            | {"frames": stack}
            | ({"time_us": 1_700_000_000_000_000 + 1000 * len(self.events)} if self.clock else {})
        )


def used(steps: int = 300, device: int = 0, seed: int = 1, clock: bool = True) -> Allocator:
    """An allocator after so many allocations and frees, drawn at random."""
    draw, allocator = random.Random(seed), Allocator(device, clock=clock)
    for step in range(steps):
        if allocator.held and draw.random() < (0.35 if step < steps * 0.6 else 0.7):
            allocator.free(draw.choice(list(allocator.held)))
        else:
            allocator.alloc(draw.randrange(1, 4 * MIB), draw.choice(STACKS))
    return allocator


def snapshot(*allocators: Allocator, traced: bool = True, newest: int | None = None) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot()` returns. newest: so many events of the trace, as max_entries leaves them."""
    return {
        "segments": [segment for allocator in allocators for segment in allocator.segments],
        "device_traces": [allocator.events[-newest:] if newest else allocator.events for allocator in allocators] if traced else [],
        "allocator_settings": {"expandable_segments": False, "roundup_power2_divisions": {"1": 0}, "garbage_collection_threshold": 0.0},
    }


def of_torch_1(allocator: Allocator) -> list[dict[str, Any]]:
    """The segments as torch before 2.0 lists them: a block has no address, and a history in place of frames."""
    segments = []
    for segment in allocator.segments:
        blocks = [
            {"size": block["size"], "state": block["state"]}
            | (
                {"history": [{"addr": block["address"], "real_size": block["requested_size"], "frames": block["frames"]}]}
                if block["state"] != "inactive"
                else {}
            )
            for block in segment["blocks"]
        ]
        kept = {key: segment[key] for key in ("device", "address", "total_size", "allocated_size", "active_size", "stream", "segment_type")}
        segments.append(kept | {"blocks": blocks})
    return segments


def pickled_by_torch(value: Any) -> bytes:
    """A pickle as torch's own C++ Pickler writes it: protocol 2, lists and dicts in one piece, and memo entries behind complete values."""
    out, memo = bytearray(b"\x80\x02"), dict[int, int]()

    def put(key: int) -> None:
        memo[key] = len(memo)
        out.extend(b"q" + bytes([memo[key]]) if memo[key] < 256 else b"r" + struct.pack("<I", memo[key]))

    def write(item: Any) -> None:
        if id(item) in memo and not isinstance(item, int | bool | float | None):
            number = memo[id(item)]
            out.extend(b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number))
        elif item is None:
            out.extend(b"N")
        elif isinstance(item, bool):
            out.extend(b"\x88" if item else b"\x89")
        elif isinstance(item, int):
            if 0 <= item < 256:
                out.extend(b"K" + bytes([item]))
            elif -(1 << 31) <= item < 1 << 31:
                out.extend(b"J" + struct.pack("<i", item))
            else:
                out.extend(b"\x8a\x08" + struct.pack("<q", item))
        elif isinstance(item, float):
            out.extend(b"G" + struct.pack(">d", item))
        elif isinstance(item, str):
            out.extend(b"X" + struct.pack("<I", len(item.encode())) + item.encode())
            put(id(item))
        elif isinstance(item, tuple):
            out.extend(b"(")
            for inner in item:
                write(inner)
            out.extend(b"t")
        elif isinstance(item, list):
            out.extend(b"](")
            for inner in item:
                write(inner)
            out.extend(b"e")
            put(id(item))
        else:
            out.extend(b"}(")
            for key, inner in item.items():
                write(key)
                write(inner)
            out.extend(b"u")
            put(id(item))

    write(value)
    return bytes(out + b".")


def pickled(value: Any, protocol: int = 4) -> bytes:
    return pickle.dumps(value, protocol)


def nested(key: str, depth: int = 100_000) -> bytes:
    """A snapshot with a list within so many lists in place of a word of a segment or block."""
    whole = pickled({"segments": [{"address": 1, "total_size": 8, "segment_type": "(1)", "blocks": [{"state": "(2)", "size": 8}]}]}, 2)
    word = b"X\x03\0\0\0" + (b"(1)" if key == "segment_type" else b"(2)")
    assert whole.count(word) == 1
    return whole.replace(word, b"]" * depth + b"a" * (depth - 1))
