"""Memory snapshots of torch, made by hand to its structure, beside an allocator that knows what is held when; and hostile pickles."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import pickletools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import torch_snapshots as made
from support.examples import tried

from memprof.base.errors import InputError, MemprofError, UsageError
from memprof.heap import export, load, massif, plain_pickle, torch_snapshot
from memprof.heap.profile import HeapProfile, Snapshot

DATA = Path(__file__).parents[2] / "data" / "heap"


def read(snapshot: Any, value: str | None = None) -> HeapProfile:
    return torch_snapshot.read(made.pickled(snapshot), "made", value)


def held_by_stack(profile: HeapProfile, snapshot: Snapshot) -> dict[tuple[str, ...], int]:
    assert snapshot.tree is not None
    return {
        tuple(f"{profile.frames[frame].function}:{profile.frames[frame].line}" for frame in stack): size
        for stack, size in snapshot.tree.stacks()
    }


def replayed(events: list[dict[str, Any]], until: int) -> dict[tuple[str, ...], int]:
    """What is held by stack after so many allocations and ends of blocks, found the plain way."""
    live: dict[int, tuple[tuple[str, ...], int]] = {}
    for event in [event for event in events if event["action"] in ("alloc", "free_completed")][:until]:
        if event["action"] == "alloc":
            stack = tuple(f"{frame['name']}:{frame['line'] or None}" for frame in event["frames"])
            live[event["addr"]] = stack, event["size"]
        else:
            del live[event["addr"]]
    sums: Counter[tuple[str, ...]] = Counter()
    for stack, size in live.values():
        sums[stack] += size
    return dict(sums)


def test_peak_of_trace_by_stack():
    for seed in tried(range(20)):
        allocator = made.used(seed=seed)
        profile = read(made.snapshot(allocator))
        best = profile.peak_tree

        assert best is not None and best[1]
        assert best[0].heap_bytes == max(allocator.totals)
        assert held_by_stack(profile, best[0]) == replayed(allocator.events, allocator.totals.index(max(allocator.totals)))
        assert profile.snapshots[-1].heap_bytes == sum(allocator.held.values())
        assert held_by_stack(profile, profile.snapshots[-1]) == replayed(allocator.events, 10**6)


def test_trees_between_are_true():
    allocator = made.used()
    profile = read(made.snapshot(allocator))
    found = 0
    for snapshot in profile.snapshots[:-1]:
        if snapshot.tree is not None:
            places = [place for place, total in enumerate(allocator.totals) if total == snapshot.heap_bytes]
            assert held_by_stack(profile, snapshot) in [replayed(allocator.events, place) for place in places]
            found += 1
    assert found >= 10
    assert [snapshot.time for snapshot in profile.snapshots] == sorted(snapshot.time for snapshot in profile.snapshots)


@pytest.mark.parametrize("newest", [10, 100, 300])
def test_trace_without_its_begin(newest):
    allocator = made.used()
    profile = read(made.snapshot(allocator, newest=newest))
    kept = [event for event in allocator.events[-newest:] if event["action"] in ("alloc", "free_completed")]

    assert profile.peak.heap_bytes == max(allocator.totals[-len(kept) - 1 :])
    assert "[allocated before the trace began]" in {frame.function for frame in profile.frames}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_of_a_snapshot_alike(protocol):
    snapshot = made.snapshot(made.used(), made.used(80, 1, 2))
    usual, of_torch = read(snapshot), torch_snapshot.read(made.pickled_by_torch(snapshot), "made")

    for other in (of_torch, torch_snapshot.read(pickletools.optimize(made.pickled(snapshot, protocol)), "made")):
        assert [held_by_stack(other, each) for each in other.snapshots if each.tree] == [
            held_by_stack(usual, each) for each in usual.snapshots if each.tree
        ]
        assert [each.time for each in other.snapshots] == [each.time for each in usual.snapshots]


def test_segments_of_torch_1():
    allocator = made.used()
    profile, new = read(made.of_torch_1(allocator)), read(made.snapshot(allocator, traced=False))

    assert held_by_stack(profile, profile.snapshots[0]) == held_by_stack(new, new.snapshots[0])
    assert profile.total == "allocated when the snapshot was taken (allocated)"
    assert profile.warnings == new.warnings


def test_snapshot_that_torch_made():
    # Written by torch 2.13 (torch.cuda._memory_viz._profile_to_snapshot of a profile of three steps of training on a CPU), 167 events.
    path = DATA / "torch_cpu_profile.pickle.gz"
    snapshot = pickle.loads(gzip.decompress(path.read_bytes()))
    (events,) = snapshot["device_traces"]
    profile = load(path)
    best = profile.peak_tree
    held = sum(block["size"] for block in snapshot["segments"][0]["blocks"] if block["state"] == "active_allocated")

    # torch.cuda._memory_viz.segsum: total_allocated: 4.5MiB.
    assert profile.snapshots[-1].heap_bytes == held == 4724740
    live, totals = 0, []
    for event in events:  # what was there before the events is added below
        live += {"alloc": event["size"], "free_completed": -event["size"]}.get(event["action"], 0)
        totals.append(live)
    assert best is not None and best[1]
    assert best[0].heap_bytes == max(totals) + held - totals[-1]


def test_reserved_and_inactive():
    allocator = made.used()
    reserved, inactive = (read(made.snapshot(allocator), value) for value in ("reserved", "inactive"))
    free = {
        segment["address"]: sum(block["size"] for block in segment["blocks"] if block["state"] == "inactive")
        for segment in allocator.segments
    }

    # torch.cuda._memory_viz.segsum of torch 2.13 on this snapshot: total_reserved 160.0MiB, total_allocated 5.0MiB, total_free 155.0MiB.
    assert reserved.peak.total_bytes == 160 * made.MIB == sum(segment["total_size"] for segment in allocator.segments)
    assert inactive.peak.total_bytes == sum(free.values())
    assert "160.0 MiB were reserved in 8 segments: 5.0 MiB allocated, 155.0 MiB inactive" in reserved.warnings[0]
    by_group = {stack[0]: 0 for stack in held_by_stack(inactive, inactive.snapshots[0])}
    for stack, size in held_by_stack(inactive, inactive.snapshots[0]).items():
        by_group[stack[0]] += size
    full = sum(size for segment, size in zip(allocator.segments, free.values(), strict=True) if size == segment["total_size"])
    assert set(by_group.values()) == {full, sum(free.values()) - full}
    assert any("segment 0x7f0000000000: large, 20.0 MiB" in frame.function for frame in reserved.frames)


def test_block_that_waits_for_its_end_is_held():
    allocator = made.Allocator()
    first, second = allocator.alloc(5 * made.MIB, made.STACKS[0]), allocator.alloc(3 * made.MIB, made.STACKS[1])
    allocator.free(first, pending=True)
    profile = read(made.snapshot(allocator))

    assert profile.snapshots[-1].heap_bytes == 8 * made.MIB
    assert (
        "3.0 MiB allocated, 5.0 MiB wait for their free to complete, 12.0 MiB inactive, 12.0 MiB of that beside held" in profile.warnings[0]
    )
    assert second in allocator.held


def test_devices_apart():
    snapshot = made.snapshot(made.used(), made.used(80, 1, 2))
    profile = read(snapshot)

    assert profile.value == "allocated:0"
    assert profile.values == ("allocated:0", "reserved:0", "inactive:0", "allocated:1", "reserved:1", "inactive:1")
    assert read(snapshot, "reserved:1").peak.total_bytes == sum(each["total_size"] for each in snapshot["segments"] if each["device"] == 1)
    assert read(snapshot, "reserved").value == "reserved:0"
    assert "This is device 0; --value allocated:N shows another: 1 (" in profile.warnings[1]
    with pytest.raises(UsageError, match="made has no value 'reserved:2'; did you mean reserved:"):
        read(snapshot, "reserved:2")


def test_time_without_clock_is_bytes_allocated():
    allocator = made.used(clock=False)
    profile = read(made.snapshot(allocator))

    assert profile.time_unit == "B"
    assert profile.snapshots[-1].time == sum(event["size"] for event in allocator.events if event["action"] in ("alloc", "free_completed"))


def test_deep_stacks_come_in_pieces():
    deep = [made.frame(f"f{place}", line=place + 1) for place in range(2500)]
    allocator = made.Allocator()
    allocator.alloc(made.MIB, deep)
    allocator.alloc(made.MIB, deep)  # by the memo
    profile = read(made.snapshot(allocator))

    assert list(held_by_stack(profile, profile.snapshots[-1])) == [tuple(f"f{place}:{place + 1}" for place in range(2500))]


def test_export_keeps_what_the_total_is():
    profile = read(made.snapshot(made.used()), "reserved")
    again = massif.read(io.BytesIO("".join(export.massif(profile)).encode()), "again")

    assert (again.tool, again.total, again.peak.total_bytes) == ("torch", profile.total, profile.peak.total_bytes)


# -- hostile and damaged pickles


class _Caller:
    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


class _State:
    def __init__(self) -> None:
        self.value = 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps(_Caller(), 2), r"asks for (posix|nt)\.system \(GLOBAL at byte \d+\): memprof reads lists, dicts, strings and numbers"),
        (pickle.dumps({"segments": [_Caller()]}, 4), r"asks for posix\.system \(STACK_GLOBAL at byte \d+\)"),
        (pickle.dumps(_State(), 2), r"asks for \w+[\w.]* \(GLOBAL"),
        (b"\x80\x02ios\nsystem\n.", r"asks for os\.system \(INST at byte 2\)"),
        (b"\x80\x02)R.", r"asks for more than plain values \(REDUCE at byte 3\)"),
        (b"\x80\x02}}b.", r"\(BUILD at byte 4\)"),
        (b"\x80\x02))\x81.", r"\(NEWOBJ at byte 4\)"),
        (b"\x80\x02\x82\x01.", r"\(EXT1 at byte 2\)"),
        (b"\x80\x02K\x01Q.", r"\(BINPERSID at byte 4\)"),
        (pickle.dumps({1, 2}, 4), r"\(EMPTY_SET at byte"),
        (pickle.dumps(b"data", 4), r"\(SHORT_BINBYTES at byte"),
        (b"\x80\x02c\x1b[31mos\n\x07system\n.", r"asks for [^\x1b\x07]*system"),
        (b"\x80\x02I1\n.", "a pickle in the old text form, which is not read"),
        (b"\x80\x06N.", "a protocol newer than 5"),
        (b"\x80\x04\xfe.", "byte 2 is no opcode of a pickle"),
        (b"\x80\x02]r\xff\xff\xff\xff.", "it is no whole pickle, at byte"),  # a memo of 2^32 entries
        (b"\x80\x04\x8d" + (1 << 60).to_bytes(8, "little"), "it is no whole pickle"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f", "a number of 2147483647 bytes"),
        (b"\x80\x02h\x05.", "it is no whole pickle"),
        (b"\x80\x02N", "it is no whole pickle"),
        (b"\x80\x02NN.", "it is no whole pickle"),
        (b"\x80\x02)" + b"\x85" * 100_000 + b"}" + b"2s.", "it is no whole pickle"),
        (b"\x80\x02})" + b"\x85" * 300_000 + b"Ns.", "it is no whole pickle"),  # a key whose hash would overflow C's stack
        (b"\x80\x02" + b"(" * 100_000, "it is no whole pickle"),
        (pickle.dumps({"segments": 5}), "a Python pickle, and not a memory snapshot of torch"),
        (made.nested("segment_type"), "not a memory snapshot of torch"),
        (made.nested("state"), "not a memory snapshot of torch|is damaged"),
        (pickle.dumps([1, 2]), "a Python pickle, and not a memory snapshot of torch"),
        (pickle.dumps({"weights": [1.0]}), "a Python pickle, and not a memory snapshot of torch"),
        (pickle.dumps("text"), "a Python pickle, and not a memory snapshot of torch"),
        (pickle.dumps({"segments": [], "device_traces": [[]]}), "without any segment or event"),
        (pickle.dumps({"segments": [{"address": 1, "total_size": -5, "blocks": []}]}), "not a memory snapshot of torch"),
        (made.pickled({"segments": [], "device_traces": [[made.event(1, 1 << 62)]]}), "is damaged"),
        (made.pickled({"segments": [], "device_traces": [[made.event(place, 1 << 61) for place in range(3)]]}), "more than any memory"),
    ],
)  # fmt: skip
def test_wrong_pickle_refused(tmp_path, content, sentence):
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(InputError, match=sentence) as error:
        load(tmp_path / "file")

    assert "\n" not in str(error.value)


def test_cyclic_pickle_refused():
    cycle: list[Any] = []
    cycle.append(cycle)
    knot: dict[str, Any] = {"segments": cycle, "device_traces": cycle}
    knot["segments"].append(knot)

    with pytest.raises(InputError, match="not a memory snapshot of torch"):
        read(knot)


def test_file_beyond_limit_refused(monkeypatch):
    monkeypatch.setattr(torch_snapshot, "MOST_BYTES", 2048)

    with pytest.raises(InputError, match=r"made is larger than 2\.0 KiB, the most that memprof reads of a snapshot: record fewer events"):
        read(made.snapshot(made.used()))


def test_containers_beyond_limit_refused(monkeypatch):
    monkeypatch.setattr(plain_pickle, "MOST_CONTAINERS", 10_000)

    with pytest.raises(InputError, match="holds more than memprof reads of a pickle: 10,000 lists and dicts"):
        read({"segments": [[] for _ in range(20_000)]})
    read(made.snapshot(made.used(4000)))  # its rows do not count


def test_torn_anywhere_is_sentence():
    content = made.pickled(made.snapshot(made.used(30)))
    for end in range(0, len(content), 7):
        with pytest.raises(MemprofError) as error:
            torch_snapshot.read(content[:end], "torn")
        assert "\n" not in str(error.value)


def test_reader_of_plain_values_as_python_has_it():
    class _Keeper:
        def of_list(self, before: Any, items: list[Any]) -> Any:
            return before

        def of_dict(self, items: dict[Any, Any]) -> Any:
            return items

    value = {
        "a": [1, -1, 255, 256, 65536, 1 << 40, -(1 << 62), 1.5, None, True, False, "é", "x" * 300],
        "b": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    }
    value["c"] = [value["a"], {5: list(range(3000))}, {str(number): number for number in range(2500)}]  # type: ignore[list-item]
    for protocol in (2, 3, 4, 5):
        assert plain_pickle.read(pickle.dumps(value, protocol), "made", _Keeper()) == value
    assert plain_pickle.read(made.pickled_by_torch(value), "made", _Keeper()) == value


def test_snapshot_file_by_command(memprof, tmp_path: Path):
    (tmp_path / "snapshot.pickle").write_bytes(made.pickled(made.snapshot(made.used())))

    shown = memprof("heap", "show", str(tmp_path / "snapshot.pickle"))
    facts = json.loads(memprof("heap", "show", str(tmp_path / "snapshot.pickle"), "--value", "inactive", "--json").stdout)

    assert shown.returncode == 0 and "Peak 106.4 MiB: snapshot " in shown.stdout
    assert facts["tool"] == "torch" and facts["peak"]["total_bytes"] == 162489856
