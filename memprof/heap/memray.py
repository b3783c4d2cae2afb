"""Reads memray's captures, through memray itself (memray_dump.py) in another process, since a damaged capture can crash its C++."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import IO, Annotated

import msgspec

from ..base.errors import InputError
from .frames import BELOW, NO_MODULE, UNKNOWN, Frame, FrameTable, is_python
from .profile import HeapProfile, PhaseSpan, Snapshot
from .trees import SMALLEST, Trie
from .unnamed import offset_name

COUNTS = (
    "memray counts blocks from malloc and similar functions, and memory mapped directly with mmap, at the requested size, touched or not; "
    "{native}. It does not count what the allocator adds to a block, or freed blocks that it keeps"
)
_ARENAS = (
    ". Of Python's objects it counts the arenas that hold them, each for the line that needed a new one: recorded with PYTHONMALLOC=malloc, "
    "it counts each object"
)
_NATIVE = "stacks go through C and C++ as well as Python"
_PYTHON = "stacks are those of Python only (recorded without --native), so C++ is seen as the line that called it"
_LIMIT_S = 600
# memray's words on a capture of another format (record_reader.cpp), and those of memray_dump.py where there is no memray.
_OTHER_RELEASE = re.compile(r"incompatible with this version|^memray is not installed")
# memray quotes nothing: a folder's name may hold a space.
_MEMRAY = re.compile(r"(?:.*?/)?memray[\d.]*(?:/__main__\.py)? run (?P<arguments>.+)", re.DOTALL)
_WITH_VALUE = re.compile(r"-[a-zA-Z]*[op]|--output|--live-port")  # the options of `memray run` that take a value


def read(path: Path, phases: Sequence[PhaseSpan] = (), install: Callable[[str], None] | None = None) -> HeapProfile:
    """The profile in a memray capture: its exact peak, and trees at moments in between and of each phase, if the capture has all allocations.

    phases: in milliseconds of CLOCK_REALTIME. install: says what is done, where an environment may be made with the memray release that reads a
    capture of another one. Raises InputError if that may not be, or the capture cannot be read.
    """
    with tempfile.TemporaryFile() as answer:
        reason = _dump(path, phases, sys.executable, answer)
        if reason is not None and _OTHER_RELEASE.search(reason):
            from . import memray_releases  # for it, pip and environments are imported

            reason = _dump(path, phases, memray_releases.interpreter(path, install), answer)
        if reason is not None:
            raise InputError(f"{path} cannot be read by memray: {reason}")
        answer.seek(0)
        return _profile(path, answer)


def _dump(path: Path, phases: Sequence[PhaseSpan], python: str, answer: IO[bytes]) -> str | None:
    """Let the memray of an interpreter write a capture as lines into an empty file. The reason if it cannot."""
    script = resources.files(__package__) / "memray_dump.py"
    spans = json.dumps([(phase.begin, phase.end) for phase in phases])
    answer.seek(0)
    answer.truncate()
    with resources.as_file(script) as program:
        try:
            done = subprocess.run(
                [python, "-I", str(program), str(path.absolute()), str(SMALLEST), spans],
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.PIPE,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"{path}: memray did not read it in {_LIMIT_S} s") from None
    if done.returncode == 0:
        return None
    complaints = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return complaints[-1][:300] if complaints else f"memray ended with {done.returncode}"


class _Head(msgspec.Struct):
    command: str
    allocator: str
    begin_ms: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    native: bool
    partial: str | None
    arenas: bool = False


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class _MemrayFrame(msgspec.Struct, tag_field="kind", tag="frame"):
    function: str | None
    file: str | None
    line: int | None
    module: str | None
    offset: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] | None = None


class _Snapshot(msgspec.Struct, tag_field="kind", tag="snapshot"):
    time_ms: Annotated[float, msgspec.Meta(ge=0)]
    bytes: _Count
    stacks: list[tuple[list[Annotated[int, msgspec.Meta(ge=-1)]], _Count]] | None


_ROW: msgspec.json.Decoder[_MemrayFrame | _Snapshot] = msgspec.json.Decoder(
    _MemrayFrame | _Snapshot
)  # made once: that takes longer than a line


def _profile(path: Path, answer: Iterable[bytes]) -> HeapProfile:
    lines = iter(answer)
    try:
        head = msgspec.json.decode(next(lines, b""), type=_Head)
        rows = [_ROW.decode(line) for line in lines]
        return _assembled(path, head, rows)
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: memray's answer cannot be understood: {' '.join(str(error).split())[:200]}") from None


def _assembled(path: Path, head: _Head, rows: list[_MemrayFrame | _Snapshot]) -> HeapProfile:
    table = FrameTable(Frame("allocated", kind="root"), BELOW)
    snapshots: list[Snapshot] = []
    by_dump: list[int] = []  # the number in the table of each frame of the dump
    for row in rows:
        if isinstance(row, _MemrayFrame):
            by_dump.append(table.number(_frame(row)))
            continue
        tree = None
        if row.stacks is not None:
            trie = Trie(0)
            for stack, size in row.stacks:
                trie.add([by_dump[number] if number >= 0 else 1 for number in stack], size)
            tree = trie.tree()
        snapshots.append(Snapshot(len(snapshots), row.time_ms, row.bytes, tree=tree))
    if not snapshots:
        raise InputError(f"{path}: a memray capture without any snapshot")
    return HeapProfile(
        "memray",
        program(head.command),
        f"memray, Python allocator {head.allocator}",
        "ms",
        COUNTS.format(native=_NATIVE if head.native else _PYTHON) + (_ARENAS if head.arenas else ""),
        tuple(snapshots),
        tuple(table.frames),
        str(path),
        partial=head.partial,
        started_ns=head.begin_ms * 10**6,
    )


def _frame(row: _MemrayFrame) -> Frame:
    """Of code of C and C++ with symbols memray tells no library, only the source file where there is debug information."""
    known = row.function not in (None, "", "<unknown>")
    file = row.file if row.file != "<unknown>" else None
    python = is_python(file)
    module = row.module if row.module != "<unknown>" else None
    name = row.function if known and row.function else UNKNOWN if module is None or row.offset is None else offset_name(module, row.offset)
    return Frame(name, file or None, row.line or None, module or (None if python else NO_MODULE), None, "site" if known else "unknown")


def program(command: str) -> str:
    """The command of the program that was recorded, without memray's in front of it."""
    under_memray = _MEMRAY.fullmatch(command)
    if under_memray is None:
        return command
    words = under_memray["arguments"].split()
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-c", "-m"):
        at += 2 if _WITH_VALUE.fullmatch(words[at]) else 1
    return " ".join(["python", *words[at:]]) if at < len(words) else command
