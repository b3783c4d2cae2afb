"""Frames without a symbol: called by module and offset, found in the module's file where a profile has only addresses."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from support.examples import tried
from support.sample_profiles import usual

from memprof.heap import diff, load, phrases, unnamed
from memprof.heap.names import group_name
from memprof.reports.heap import diff as report

_TEXT, _VADDR = 0x1000, 0x2000  # where an ELF file's code lies, and is mapped
_MACHINES = {"x86-64": 62, "aarch64": 183, "other": 8}


def _library(path: Path, seed: int, machine: str = "x86-64", pages: int = 40) -> list[int]:
    """Write a library of random code with 30 calls. Where they return to, from where the library is mapped."""
    chance = random.Random(seed)
    code = bytearray(chance.randbytes(4096 * pages))
    ends = sorted(chance.sample(range(16, len(code), 16), 30))
    for number, end in enumerate(ends):
        if machine == "aarch64":
            code[end - 4 : end] = struct.pack("<I", 0x94000000 + number if number % 2 else 0xD63F0100)
        elif number % 3:
            code[end - 5 : end] = b"\xe8" + chance.randbytes(4)
        else:
            code[end - 2 : end] = b"\xff\xd0"  # call *%rax
    head = b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HHIQQQIHHH", 3, _MACHINES[machine], 1, 0, 64, 0, 0, 64, 56, 1)
    head += bytes(64 - len(head)) + struct.pack("<IIQQQQQQ", 1, 5, _TEXT, _VADDR, _VADDR, len(code), len(code), 4096)
    path.write_bytes(head + bytes(_TEXT - len(head)) + code)
    return [_VADDR + end for end in ends]


def _massif(path: Path, module: Path, addresses: list[int]) -> None:
    lines = "".join(f" n0: 100 0x{address:X}: ??? (in {module})\n" for address in addresses)
    tree = f"n{len(addresses)}: {100 * len(addresses)} (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n{lines}"
    path.write_text(f"desc: d\ncmd: c\ntime_unit: ms\nsnapshot=0\ntime=1\nmem_heap_B={100 * len(addresses)}\nheap_tree=peak\n{tree}")


@pytest.mark.parametrize("machine", ["x86-64", "aarch64"])
@pytest.mark.parametrize("before", [0, 1])  # valgrind gives the last byte of a call
def test_massif_addresses_become_offsets(tmp_path: Path, machine: str, before: int) -> None:
    for seed in tried(range(20)):
        library, base = tmp_path / "libx.so.1", 0x5C00000 + seed * 0x35000
        ends = _library(library, seed, machine)
        for known in (ends, ends[:4]):
            _massif(tmp_path / "m", library, [base + end - before for end in known])
            names = [frame.function for frame in load(tmp_path / "m").frames if frame.kind == "unknown"]
            assert sorted(names) == sorted(f"libx.so.1+{end - before:#x}" for end in known)


@pytest.mark.parametrize("case", ["another build", "another machine", "no file", "few addresses"])
def test_unlocated_frames_keep_addresses(tmp_path: Path, case: str) -> None:
    library = tmp_path / "libx.so.1"
    ends = _library(library, 1, "other" if case == "another machine" else "x86-64")[: 3 if case == "few addresses" else None]
    if case == "another build":
        _library(library, 2)
    if case == "no file":
        library.unlink()
    _massif(tmp_path / "m", library, [0x5C00000 + end for end in ends])
    read = load(tmp_path / "m")
    assert {group_name(frame, "function", read.file_names) for frame in read.frames if frame.kind == "unknown"} == {
        f"libx.so.1@{0x5C00000 + end:#x}" for end in ends
    }
    assert any("libx.so.1 has no symbols: 100% of the tree's bytes" in remark for remark in phrases.remarks(read))
    files, _ = diff.joint_files(read, read)
    # An address of one run is none of another's.
    assert len({diff.identity(frame, files) for frame in read.frames if frame.kind == "unknown"}) == 1


def test_profile_with_names_has_no_remark() -> None:
    assert unnamed.remark(usual(), usual().peak) is None

    assert not any("no symbols" in remark for remark in phrases.remarks(usual()))


def test_difference_sums_nameless_frames_by_library(tmp_path: Path) -> None:
    """Offsets of two builds have nothing to do with one another, and a chain of nameless frames is one place."""
    sides = []
    for number, size in enumerate((100, 300)):
        module = tmp_path / f"build{number}" / "libx.so.1"
        lines = "".join(f"{' ' * depth}n1: {size} 0x{depth + number:X}000: ??? (in {module})\n" for depth in range(1, 4))
        tree = (
            f"n1: {size} (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n{lines}    n0: {size} 0x9: main (in /bin/app)\n"
        )
        path = tmp_path / f"m{number}"
        path.write_text(f"desc: d\ncmd: c\ntime_unit: ms\nsnapshot=0\ntime=1\nmem_heap_B={size}\nheap_tree=peak\n{tree}")
        sides.append(load(path))
    text = report.render(diff.diff(*sides))
    assert text.count("??? ") == 2 and "+200 B" in text, text  # among the functions, and once in the tree
