"""Reads memray's captures, through memray itself (memray_dump.py) in a process of its own: what a damaged capture does to its C++ ends there."""

from __future__ import annotations

import builtins
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ..errors import InputError
from .profile import BELOW, UNKNOWN, Frame, HeapProfile, Snapshot
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


class _Head(msgspec.Struct):
    command: str
    allocator: str
    begin_ms: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    native: bool
    partial: str | None


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class _Frame(msgspec.Struct, tag_field="kind", tag="frame"):
    function: str | None
    file: str | None
    line: int | None
    module: str | None


class _Snapshot(msgspec.Struct, tag_field="kind", tag="snapshot", rename={"word": "as"}):
    time_ms: Annotated[float, msgspec.Meta(ge=0)]
    bytes: _Count
    word: Literal["empty", "detailed", "peak"]
    stacks: list[tuple[list[Annotated[int, msgspec.Meta(ge=-1)]], _Count, _Count]] | None


def _profile(path: Path, answer: Iterable[builtins.bytes]) -> HeapProfile:
    lines = iter(answer)
    try:
        head = msgspec.json.decode(next(lines, b""), type=_Head)
        rows = [msgspec.json.decode(line, type=_Frame | _Snapshot) for line in lines]
        return _made(path, head, rows)
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError, OverflowError) as error:
        raise InputError(f"{path}: what memray said of it cannot be understood: {' '.join(str(error).split())[:200]}") from None


def _made(path: Path, head: _Head, rows: list[_Frame | _Snapshot]) -> HeapProfile:
    frames = [Frame("allocated", kind="root"), BELOW]
    numbers: dict[Frame, int] = {}
    snapshots: list[Snapshot] = []
    by_dump: list[int] = []
    for row in rows:
        if isinstance(row, _Frame):
            name = row.function or UNKNOWN
            frame = Frame(name, row.file or None, row.line or None, row.module, None, "unknown" if name == UNKNOWN else "site")
            number = numbers.setdefault(frame, len(frames))
            if number == len(frames):
                frames.append(frame)
            by_dump.append(number)
            continue
        tree = None
        if row.stacks is not None:
            trie = Trie(0, with_blocks=True)
            for stack, size, blocks in row.stacks:
                trie.add([by_dump[number] if number >= 0 else 1 for number in stack], size, blocks)
            tree = trie.tree()
        snapshots.append(Snapshot(len(snapshots), row.time_ms, row.bytes, tree=tree, kind=row.word if tree is not None else "empty"))
    if not snapshots:
        raise InputError(f"{path}: a memray capture without any snapshot")
    return HeapProfile(
        "memray",
        head.command,
        f"memray, Python allocator {head.allocator}",
        "ms",
        COUNTS.format(native=_NATIVE if head.native else _PYTHON),
        tuple(snapshots),
        tuple(frames),
        str(path),
        partial=head.partial,
        started_ns=head.begin_ms * 10**6,
    )
