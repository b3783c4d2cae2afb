"""Reads memray's captures, through memray itself (memray_dump.py) in a process of its own: what a damaged capture does to its C++ ends there."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import InputError
from .names import demangled
from .profile import BELOW, UNKNOWN, Frame, HeapProfile, Kind, Snapshot
from .trie import SMALLEST, Trie

COUNTS = (
    "memray counts the blocks of malloc and its kin and also memory mapped directly with mmap, as large as they were asked for, touched or not; "
    "{native}; not what the allocator adds or keeps of freed blocks"
)
_NATIVE = "stacks go through C and C++ as well as Python"
_PYTHON = "stacks are those of Python only (recorded without --native), so C++ is seen as the line that called it"
_LIMIT_S = 600


def read(path: Path) -> HeapProfile:
    """The profile in a memray capture: its exact peak, and trees at moments in between where the capture has all allocations.

    Raises InputError where memray is not installed or the capture cannot be read.
    """
    script = resources.files(__package__) / "memray_dump.py"
    with resources.as_file(script) as program, tempfile.TemporaryFile() as answer:
        try:
            done = subprocess.run(
                [sys.executable, "-I", str(program), str(path.absolute()), str(SMALLEST)],
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.PIPE,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"{path}: memray did not read it in {_LIMIT_S} s") from None
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if done.returncode != 0:
            reason = said[-1][:300] if said else f"memray ended with {done.returncode}"
            raise InputError(f"{path} cannot be read by memray: {reason}")
        answer.seek(0)
        return _profile(path, answer)


def _profile(path: Path, answer: Any) -> HeapProfile:
    head = json.loads(answer.readline())
    frames = [Frame("allocated", kind="root"), BELOW]
    numbers: dict[Frame, int] = {}
    snapshots: list[Snapshot] = []
    by_dump: list[int] = []
    for line in answer:
        row = json.loads(line)
        if row["kind"] == "frame":
            name = demangled(row["function"] or UNKNOWN)
            frame = Frame(name, row["file"] or None, row["line"] or None, row["module"], None, "unknown" if name == UNKNOWN else "site")
            number = numbers.setdefault(frame, len(frames))
            if number == len(frames):
                frames.append(frame)
            by_dump.append(number)
            continue
        tree, kind = None, "empty"
        if row["stacks"] is not None:
            trie = Trie(0, with_blocks=True)
            for stack, size, blocks in row["stacks"]:
                trie.add([by_dump[number] if number >= 0 else 1 for number in stack], size, blocks)
            tree, kind = trie.tree(), row["as"]
        word: Kind = "peak" if kind == "peak" else "detailed" if kind == "detailed" else "empty"
        snapshots.append(Snapshot(len(snapshots), row["time_ms"], row["bytes"], tree=tree, kind=word))
    if not snapshots:
        raise InputError(f"{path}: a memray capture without any snapshot")
    return HeapProfile(
        "memray",
        head["command"],
        f"memray, Python allocator {head['allocator']}",
        "ms",
        COUNTS.format(native=_NATIVE if head["native"] else _PYTHON),
        tuple(snapshots),
        tuple(frames),
        str(path),
        partial=head["partial"],
        started_ns=head["begin_ms"] * 10**6,
    )
