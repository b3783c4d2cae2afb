"""Trees turned, grouped and folded; heaptrack recordings; and what is written for other tools."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.sample_profiles import top_by

from memprof.base.errors import InputError
from memprof.heap import export, heaptrack, load, massif, phases, phrases
from memprof.heap.frames import Frame
from memprof.heap.profile import HeapProfile, Snapshot
from memprof.heap.trees import Trie

DATA = Path(__file__).parents[2] / "data" / "heap"
Stacks = list[tuple[list[int], int]]


def made(stacks: Stacks) -> HeapProfile:
    """A profile of one tree; frame 0 is the root, 1 to 5 are functions, 2 is malloc."""
    trie = Trie(0)
    for stack, size in stacks:
        trie.add(stack, size)
    tree = trie.tree()
    names = ["malloc" if number == 2 else f"f{number}" for number in range(6)]
    frames = (Frame("all", kind="root"), *(Frame(name, "a.c", number, None, number) for number, name in enumerate(names) if number))
    return HeapProfile("massif", "./p", "", "ms", "", (Snapshot(0, 1.0, tree.bytes[0], tree=tree),), frames)


_STACKS = st.lists(st.tuples(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(1, 1000)), min_size=1, max_size=30)


def sums(stacks: Stacks) -> dict[tuple[int, ...], int]:
    """Bytes by stack."""
    sizes: dict[tuple[int, ...], int] = {}
    for stack, size in stacks:
        sizes[tuple(stack)] = sizes.get(tuple(stack), 0) + size
    return sizes


@given(_STACKS)
def test_tree_holds_stacks(stacks: Stacks) -> None:
    tree = made(stacks).snapshots[0].tree
    assert tree is not None
    assert sums(list(tree.stacks())) == sums(stacks)
    assert all(parent < node for node, parent in enumerate(tree.parent))
    assert all(own >= 0 for own in tree.self_bytes())


@given(_STACKS)
def test_sums_by_function_without_allocator(stacks: Stacks) -> None:
    profile = made(stacks)
    tree = profile.snapshots[0].tree
    assert tree is not None
    key, names = profile.keys("function")
    assert key[2] == -1
    expected: dict[str, int] = {}
    for stack, size in stacks:
        for name in {f"f{frame}" for frame in stack if frame != 2}:
            expected[name] = expected.get(name, 0) + size
    assert {names[group]: total for group, _, total in top_by(tree, key)} == expected  # recursion counts once


@given(_STACKS)
def test_massif_round_trip(stacks: Stacks) -> None:
    profile = made(stacks)
    again = massif.read(io.BytesIO("".join(export.massif(profile)).encode()), "f")
    ours, theirs = profile.snapshots[0].tree, again.snapshots[0].tree
    assert ours is not None and theirs is not None
    assert (ours.parent, list(ours.bytes)) == (theirs.parent, list(theirs.bytes))
    assert [profile.frames[n].function for n in ours.frame[1:]] == [again.frames[n].function for n in theirs.frame[1:]]


@pytest.mark.parametrize("tool", ["heaptrack", "memray"])
def test_massif_export_names_original_tool(tool: str) -> None:
    profile = replace(made([([1], 5)]), tool=tool, counts=f"{tool} counts each block; and more", description="")
    text = "".join(export.massif(profile))
    assert text.startswith(f"desc: memprof export of {tool}: {tool} counts")
    again = massif.read(io.BytesIO(text.encode()), "f")
    assert (again.tool, again.counts) == (profile.tool, profile.counts)
    assert phrases.comparable([profile, again]) == []
    assert "".join(export.massif(again)) == text
    assert massif.read(io.BytesIO("".join(export.massif(made([([1], 5)]))).encode()), "f").tool == "massif"


def test_collapsed_stacks_begin_at_entry() -> None:
    text = "".join(export.collapsed(made([([1, 3, 4], 10), ([1, 5], 7)])))
    assert sorted(text.splitlines()) == ["f4;f3;f1 10", "f5;f1 7"]


def test_speedscope_stacks_and_weights() -> None:
    data = json.loads("".join(export.speedscope(made([([1, 3], 10), ([1, 5], 7)]))))
    (profile,) = data["profiles"]
    names = [[data["shared"]["frames"][number]["name"] for number in sample] for sample in profile["samples"]]
    assert (profile["unit"], profile["endValue"]) == ("bytes", 17)
    assert dict(zip(map(tuple, names), profile["weights"], strict=True)) == {("f3", "f1"): 10, ("f5", "f1"): 7}


def test_collapsed_stacks_need_tree() -> None:
    profile = HeapProfile("massif", "", "", "ms", "", (Snapshot(0, 1.0, 5),), (), "p")
    with pytest.raises(InputError, match="p: no snapshot has a tree"):
        list(export.collapsed(profile))


_RECORDING = """v 10400 3
X ./program
s 8 /bin/a b
s 4 main
s 4 grow
s 3 a.c
i 10 1 2 4 7
i 20 1 3 4 9
t 1 0
t 2 1
a 64 2
a 3e8 1
c a
+ 0
+ 1
c 14
- 1
+ 0
c 1e
"""


def test_heaptrack_exact_peak(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_text(_RECORDING)
    profile = heaptrack.read(path)
    assert (profile.command, profile.time_unit, profile.peak.total_bytes, profile.peak.time) == ("./program", "ms", 1100, 20.0)
    peak = profile.peak_tree
    assert peak is not None and peak[1] and peak[0].tree is not None
    stacks = {tuple(profile.frames[number].function for number in stack): size for stack, size in peak[0].tree.stacks()}
    assert stacks == {("grow", "main"): 100, ("main",): 1000}
    assert profile.snapshots[-1].total_bytes == 200 and profile.frames[2].module == "/bin/a b"


# A program in C: the dynamic linker calls libstdc++'s initialiser, which only heaptrack's own library needs.
_PRELOADED = """v 10400 3
X ./program
s c /bin/program
s 9 libc.so.6
s 1c /lib/x86_64/libstdc++.so.6
s 14 /lib64/ld-linux.so.2
i 10 4
i 20 3
i 30 1
i 40 3
t 1 0
t 2 1
a 11c00 2
+ 0
t 3 0
a 64 3
+ 1
c a
- 0
c 14
"""


@pytest.mark.parametrize(("through_cxx", "peak"), [(False, 100), (True, 72_704 + 100 + 50)])
def test_heaptrack_pool_of_its_own_left_out(tmp_path: Path, through_cxx: bool, peak: int) -> None:
    """The pool is the program's where any other block came through libstdc++."""
    path = tmp_path / "h"
    path.write_text(_PRELOADED.replace("c a\n", "t 4 3\na 32 4\n+ 2\nc a\n") if through_cxx else _PRELOADED)
    profile = heaptrack.read(path)
    assert profile.peak.total_bytes == peak
    assert profile.snapshots[-1].total_bytes == peak - (72_704 if through_cxx else 0)
    tree = profile.peak_tree
    assert tree is not None and tree[0].tree is not None and tree[0].tree.bytes[0] == peak
    assert any("libstdc++" in (profile.frames[number].module or "") for number in tree[0].tree.frame) == through_cxx


def test_heaptrack_highest_total_between_timestamps(tmp_path: Path) -> None:
    path = tmp_path / "h"
    # 100 B are held from the first timestamp to the third; in between 1000 B come and go.
    path.write_text(_RECORDING.partition("c a\n")[0] + "+ 0\nc a\nc 14\n+ 1\n- 1\nc 1e\nc 28\n- 0\nc 32\n")
    rows = [(snapshot.time, snapshot.until, snapshot.total_bytes) for snapshot in heaptrack.read(path).snapshots]
    assert rows == [(0, None, 0), (10, None, 100), (20, 30, 1100), (30, None, 100), (50, None, 0)]


@pytest.mark.parametrize(
    ("begin", "end", "total"),
    [(12, 19, 100), (15, 35, 1100), (21, 25, 1100), (31, 38, 100), (41, None, 0), (60, None, 0)],
)  # fmt: skip
def test_phase_tree_at_largest_moment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begin: float, end: float | None, total: int) -> None:
    monkeypatch.setitem(phases.ERROR_S, "heaptrack", 0.0)
    path = tmp_path / "h"
    path.write_text(_RECORDING.partition("c a\n")[0] + "+ 0\nc a\nc 14\n+ 1\n- 1\nc 1e\nc 28\n- 0\nc 32\n")
    spans = [{"name": "PREPARE", "begin_ns": int(begin * 1e6), "end_ns": None if end is None else int(end * 1e6)}]
    kept = {"memprof_heap": 1, "tool": "heaptrack", "files": ["h"], "begin_ns": 0, "wall_offset_ns": 0, "partial": None, "phases": spans}
    (tmp_path / "phases.json").write_text(json.dumps(kept))
    largest = phrases.chosen(load(path), phase="prepare")
    assert largest is not None and largest.total_bytes == total
    assert largest.tree is not None and largest.tree.bytes[0] == total


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("v 10400 3", "nonsense", "line 1: it does not begin with heaptrack's version"),
        ("v 10400 3", "v 10400 4", "line 1: a format newer than 3"),
        ("+ 1\n", "+ 7\n", "line 15: no line of a heaptrack recording, or a line that uses an undefined number"),
        ("t 2 1", "t 2 5", "line 10: no line of a heaptrack recording, or a line that uses an undefined number"),
        ("a 64 2", "a zz 2", "line 11: no line"),
        ("a 64 2", "a 64646464646464646464 2", "line 11: a number beyond 64 bits"),
        ("c a", "m 1 2", "line 13: it was recorded with --raw"),
    ],
)
def test_heaptrack_damage_in_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = tmp_path / "h"
    path.write_text(_RECORDING.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        heaptrack.read(path)
    assert sentence in str(error.value) and "\n" not in str(error.value)
