#!/usr/bin/env python3
"""`make fuzz`: damaged and invented profiles for each parser of memprof.heap, starting from small real ones; see harness.py."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import harness

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "heap"


def massif(data: bytes) -> None:
    """A massif file."""
    from memprof.heap import export
    from memprof.heap import massif as parser

    profile = parser.read(io.BytesIO(data), "input")
    again = parser.read(io.BytesIO("".join(export.massif(profile)).encode("utf-8", "replace")), "written")
    assert [snapshot.total_bytes for snapshot in again.snapshots] == [snapshot.total_bytes for snapshot in profile.snapshots]
    _look(profile)


def heaptrack(data: bytes) -> None:
    """A heaptrack recording, not compressed."""
    from memprof.heap import heaptrack as parser

    _look(parser.read(harness.file(data)))


def memray(data: bytes) -> None:
    """The output of memray_dump.py. memray itself reads the capture, in a separate process."""
    from memprof.heap import memray as parser

    _look(parser._profile(Path("input"), io.BytesIO(data)))


def memray_header(data: bytes) -> None:
    """The header of a memray capture, packed or not."""
    from memprof.heap import memray_releases

    memray_releases.format_of(harness.file(data))


def pprof(data: bytes) -> None:
    """A profile of pprof, not compressed: each of its values."""
    from memprof.heap import pprof as parser

    profile = parser.read(data, "input")
    for value in profile.values:
        _look(parser.read(data, "input", value))


def heap_text(data: bytes) -> None:
    """The text that tcmalloc, jemalloc or Go writes."""
    from memprof.heap import heap_text as parser

    _look(parser.read(io.BytesIO(data), "input"))


def torch_snapshot(data: bytes) -> None:
    """A memory snapshot of torch: each of its values."""
    from memprof.heap import torch_snapshot as parser

    profile = parser.read(data, "input")
    for value in profile.values:
        _look(parser.read(data, "input", value))


def phases(data: bytes) -> None:
    """phases.json beside a profile."""
    from memprof.heap import load

    profile = harness.file(b"desc: d\ncmd: c\ntime_unit: ms\nsnapshot=0\ntime=1\nmem_heap_B=1\nheap_tree=empty\n")
    (profile.parent / "phases.json").write_bytes(data)
    load(profile)


def container(data: bytes) -> None:
    """Any file at all, told by its content."""
    from memprof.heap import load

    if data[:6] not in (b"memray",):
        _look(load(harness.file(data)))


TARGETS: dict[str, Callable[[bytes], None]] = {
    reader.__name__: reader for reader in (massif, heaptrack, memray, memray_header, pprof, heap_text, torch_snapshot, phases, container)
}


def _look(profile: object) -> None:
    """Sums, shapes and inverts the peak's tree, as the views do."""
    from memprof.heap.profile import HeapProfile
    from memprof.heap.shape import shape, sums

    assert isinstance(profile, HeapProfile)
    best = profile.peak_tree
    if best is not None and best[0].tree is not None and len(best[0].tree) < 20_000:
        tree = best[0].tree
        sums(profile, tree)
        shape(profile, tree)
        shape(profile, tree, invert=True)


def seeds(name: str) -> list[bytes]:
    """Small real inputs."""
    if name == "massif":
        return [_head(gzip.decompress(path.read_bytes())) for path in sorted(DATA.glob("massif_*.gz"))]
    if name == "heaptrack":
        return [_head(gzip.decompress(path.read_bytes())) for path in sorted(DATA.glob("heaptrack_*.gz"))]
    if name == "memray":
        lines = gzip.decompress(next(DATA.glob("memray_*.gz")).read_bytes()).splitlines(True)
        small = {"kind": "snapshot", "time_ms": 5, "bytes": 300, "stacks": [[[0, 1], 200], [[1, -1], 100]]}
        return [b"".join([*lines[:3], json.dumps(small).encode() + b"\n"])]
    if name == "memray_header":
        return [path.read_bytes()[:200] for path in sorted(DATA.glob("capture_memray_*.bin"))] + [b"memray\0\x0b\0\0\0\0\0"]
    if name == "pprof":
        return [gzip.decompress(path.read_bytes()) for path in sorted(DATA.glob("*.pb.gz"))]
    if name == "heap_text":
        return [_head_of_text(gzip.decompress(path.read_bytes())) for path in sorted([*DATA.glob("*.heap.gz"), *DATA.glob("*.txt.gz")])]
    if name == "torch_snapshot":
        from support import torch_snapshots as made

        traced = made.used(40)
        return [
            made.pickled(made.snapshot(traced)),
            made.pickled_by_torch(made.snapshot(traced, newest=20)),
            made.pickled(made.of_torch_1(traced), 2),
        ]
    if name == "phases":
        phase = {"name": "A", "begin_ns": 5, "end_ns": 9}
        record = {
            "memprof_heap": 1,
            "tool": "massif",
            "files": ["input"],
            "begin_ns": 5,
            "wall_offset_ns": 1,
            "partial": None,
            "phases": [phase],
        }
        return [json.dumps(record).encode()]
    return [seed for tool in ("massif", "heaptrack", "pprof", "heap_text", "torch_snapshot") for seed in seeds(tool)[:1]] + [
        *(gzip.compress(seeds(tool)[0], mtime=0) for tool in ("massif", "pprof", "heap_text")),
        b"\x28\xb5\x2f\xfd",
    ]


def _head(data: bytes) -> bytes:
    if data.startswith(b"v "):
        return data[: data.rindex(b"\n", 0, harness.LONGEST_INPUT) + 1]
    at = data.find(b"heap_tree=detailed")
    header = data[: data.index(b"#-")]
    begin = data.rfind(b"#-----------\nsnapshot=", 0, at)
    return header + data[begin : begin + harness.LONGEST_INPUT - len(header)]


def _head_of_text(data: bytes) -> bytes:
    """The first stacks of a text, and its maps as far as there is room."""
    if len(data) <= harness.LONGEST_INPUT:
        return data
    maps = data[data.index(b"MAPPED_LIBRARIES:") :]
    rows = data[: harness.LONGEST_INPUT - len(maps)]
    return rows[: rows.rindex(b"\n") + 1] + maps


if __name__ == "__main__":
    modules = [
        "export",
        "files",
        "heap_text",
        "heaptrack",
        "massif",
        "memray",
        "memray_releases",
        "names",
        "one_moment",
        "phases",
        "plain_pickle",
    ]
    modules += ["pprof", "torch_snapshot", "trees"]
    harness.main(
        harness.Readers(TARGETS, seeds, [f"memprof.heap.{module}" for module in modules], Path(__file__)),
        "Fuzz the parsers of memprof heap.",
    )
