"""Reads massif files: valgrind's of any age, and the exports of other tools.

The format (valgrind's massif/ms_main.c, ms_print): header lines `desc: `, `cmd: `, `time_unit: `, then blocks

    #-----------
    snapshot=N
    #-----------
    time=T
    mem_heap_B=N
    mem_heap_extra_B=N
    mem_stacks_B=N
    heap_tree=empty|detailed|peak
    n2: 300 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
     n0: 200 0x4005A1: grow(int) (tree.cpp:12)
     n0: 100 in 3 places, all below massif's threshold (1.00%)

A tree line is indented by a space a level. It has `n` and the number of children, the bytes, and a place: an address and a function with
`(file:line)` or `(in module)`, or a sum of places that are too small. Inlined frames repeat an address. Of the text only the distinct places are
kept, so that a file of a gigabyte takes a fraction of that.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from typing import Protocol

from ..base.errors import InputError
from .frames import FrameTable
from .massif_frames import parse_place
from .profile import HeapProfile, Snapshot, TimeUnit
from .trees import CallTree

_PIECE = 1 << 18  # small enough to be taken apart within a processor's cache
_LONGEST_LINE = 1 << 22
_MOST_SNAPSHOTS = _MOST_PLACES = 1_000_000
_INT64 = (1 << 63) - 1

_LINE = re.compile(rb" *n(\d+): (\d+) .+")
# Splits whole lines of a tree. The text between two matches is empty if each match is a line; no object is made for a line.
_NODES = re.compile(rb"( *)n(\d{1,19}): (\d{1,19}) (.+)\n")
_UNITS: dict[str, TimeUnit] = {"i": "i", "ms": "ms", "s": "s", "B": "B"}
_TREES = (b"empty", b"detailed", b"peak")
_NUMBERS = ("time", "mem_heap_B", "mem_heap_extra_B", "mem_stacks_B")

HEAP = (
    "massif counts the blocks that the program holds from malloc, new and similar functions, touched or not; `extra` is what the allocator adds to "
    "each block. It does not count memory mapped directly, code, or freed blocks that the allocator keeps"
)
PAGES = (
    "massif with --pages-as-heap counts every page that is mapped (mmap, brk), touched or not: code, files and stacks too. This is the address "
    "space, not resident memory"
)
STACKS = "; thread stacks are counted too (--stacks=yes)"
# The `desc:` of another tool's profile in a file that memprof wrote. A reader learns from it how that tool counts, and what the total of a
# profile of one moment is.
EXPORTED = "memprof export of {tool}{total}: {counts}"
_EXPORTED = re.compile(r"memprof export of (heaptrack|memray|pprof|tcmalloc|jemalloc|Go|torch)(?: \[(.{1,200}?)\])?: (.{1,1000})")


class Stream(Protocol):
    """A file, a compressed file or bytes in memory, to be read piece by piece."""

    def read1(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


class _Torn(Exception):
    """The file ends here, within something."""


def read(stream: Stream, name: str) -> HeapProfile:
    """The profile in a massif file, which begins with `desc:`. A file that ends within a snapshot gives its content, and `partial` is set.

    Raises InputError, naming the line, if the file is not a massif file, contradicts itself or holds no snapshot.
    """
    return _MassifReader(stream, name).read()


class _MassifReader:
    def __init__(self, stream: Stream, name: str) -> None:
        self._stream, self._name = stream, name
        self._buffer, self._at, self._line = b"", 0, 0
        self._ended = False
        self._places = _Places(self._bad)
        self.partial: str | None = None

    def read(self) -> HeapProfile:
        header = self._header()
        snapshots: list[Snapshot] = []
        try:
            while (snapshot := self._snapshot()) is not None:
                snapshots.append(snapshot)
                if self.partial is not None:
                    break
                if len(snapshots) > _MOST_SNAPSHOTS:
                    raise self._bad(f"more than {_MOST_SNAPSHOTS} snapshots")
        except _Torn:
            self.partial = f"the file ends within snapshot {len(snapshots)}, in line {self._line}"
        if not snapshots:
            raise InputError(f"{self._name}: this massif file has no complete snapshot")
        description, command, unit = header
        exported = _EXPORTED.fullmatch(description)
        root = next((self._places.table.frames[s.tree.frame[0]].function for s in snapshots if s.tree is not None), "")
        pages = "(page allocation" in root or "--pages-as-heap=yes" in description
        stacks = any(snapshot.stacks_bytes for snapshot in snapshots)
        return HeapProfile(
            exported[1] if exported else "massif",
            command,
            description,
            unit,
            exported[3] if exported else PAGES if pages else HEAP + (STACKS if stacks else ""),
            tuple(snapshots),
            tuple(self._places.table.frames),
            self._name,
            partial=self.partial,
            total=(exported[2] or "") if exported else "",
        )

    # -- lines

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        try:
            data = self._stream.read1(_PIECE)  # a read of exactly so much would lose the bytes before a compressed file's torn end
        except EOFError:  # a compressed file that was cut off
            data = b""
            self.partial = "the compressed file is cut off"
        self._buffer, self._at = self._buffer[self._at :] + data, 0
        self._ended = not data
        return bool(data)

    def _next(self) -> bytes | None:
        """The next line that is neither empty nor a comment, None at the end. A last line without its end may be torn and is left out."""
        while True:
            end = self._buffer.find(b"\n", self._at)
            if end < 0:
                if len(self._buffer) - self._at > _LONGEST_LINE:
                    raise self._bad("a line of more than 4 MiB", 1)
                if self._more():
                    continue
                if self._at < len(self._buffer):
                    self._line += 1
                    raise _Torn
                return None
            line = self._buffer[self._at : end].rstrip(b"\r")
            self._at, self._line = end + 1, self._line + 1
            if line and not line.startswith(b"#"):
                return line

    def _bad(self, reason: str, ahead: int = 0) -> InputError:
        return InputError(f"{self._name}, line {self._line + ahead}: {reason}")

    # -- parts

    def _header(self) -> tuple[str, str, TimeUnit]:
        fields: dict[str, str] = {}
        try:
            while "time_unit" not in fields:
                line = self._next()
                if line is None:
                    raise _Torn
                key, colon, value = line.partition(b":")
                if not colon:
                    raise self._bad("no massif header has such a line")
                fields[key.decode("ascii", "backslashreplace")] = value.strip().decode("utf-8", "backslashreplace")
        except _Torn:
            raise InputError(f"{self._name}: the file ends within its header") from None
        unit = _UNITS.get(fields["time_unit"])
        if unit is None:
            raise self._bad(f"time_unit {fields['time_unit'][:20]!r} is not i, ms, s or B")
        return fields.get("desc", ""), fields.get("cmd", ""), unit

    def _snapshot(self) -> Snapshot | None:
        line = self._next()
        if line is None:
            return None
        if not line.startswith(b"snapshot="):
            raise self._bad("a snapshot was expected here")
        index = self._number(line, b"snapshot")
        values = dict.fromkeys(_NUMBERS, 0)
        time, present = 0.0, set()
        while True:
            line = self._next()
            if line is None:
                raise _Torn
            key, equals, value = line.partition(b"=")
            name = key.decode("ascii", "backslashreplace")
            if name == "heap_tree":
                break
            if not equals or name not in values or name in present:
                raise self._bad(f"{name[:40]!r} is not a field of a snapshot, or appears twice")
            present.add(name)
            if name == "time":
                time = self._time(value)
            else:
                values[name] = self._number(line, key)
        missing = {"time", "mem_heap_B"} - present
        if missing:
            raise self._bad(f"the snapshot has no {' and no '.join(sorted(missing))}")
        if sum(values.values()) > _INT64:
            raise self._bad("its sizes sum up beyond 64 bits")
        if value not in _TREES:
            raise self._bad(f"heap_tree={value[:20].decode('ascii', 'backslashreplace')} is not empty, detailed or peak")
        tree = None if value == b"empty" else self._tree()
        return Snapshot(index, time, values["mem_heap_B"], values["mem_heap_extra_B"], values["mem_stacks_B"], tree)

    def _number(self, line: bytes, key: bytes) -> int:
        text = line[len(key) + 1 :]
        if not text.isdigit():
            raise self._bad(f"{key.decode()}={text[:40].decode('ascii', 'backslashreplace')} is not a number")
        if not _fits(text):
            raise self._bad(f"{key.decode()} is a number beyond 64 bits")
        return int(text)

    def _time(self, text: bytes) -> float:
        if not re.fullmatch(rb"\d{1,19}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,2})?", text):
            raise self._bad("time= is not a number, or is beyond 64 bits")
        return float(text)

    # -- trees

    def _tree(self) -> CallTree:
        """The tree that follows. Raises _Torn if the file ends before its first line."""
        frame, parent, sizes = array("i"), array("i"), array("q")
        missing = array("q")  # how many children of each node have not come yet
        path: list[int] = []  # the nodes from the root to the newest
        first = self._line + 1
        while piece := self._piece():
            parts = _NODES.split(piece)
            if any(parts[::5]):  # what lies between the lines
                raise self._unparsed(piece)
            try:
                missing.extend(map(int, parts[2::5]))
                sizes.extend(map(int, parts[3::5]))
            except OverflowError:
                raise self._unparsed(piece) from None
            frame.extend(map(self._places.__getitem__, parts[4::5]))
            for depth in map(len, parts[1::5]):
                if depth > len(path):
                    raise self._bad("a line that is indented too far for a child of the line above it", first + len(parent) - self._line)
                del path[depth:]
                above = path[-1] if path else -1
                if path:
                    missing[above] -= 1
                elif parent:
                    raise self._miscounted(0, parent, missing, first)  # a second root
                path.append(len(parent))
                parent.append(above)
            self._line = first + len(parent) - 1
        at_end = self._ended and b"\n" not in self._buffer[self._at :]
        if not frame:
            if at_end:
                raise _Torn
            raise self._bad("a tree is announced, but does not follow", 1)
        if any(missing):
            still_open = set(path if at_end else ())
            for node, count in enumerate(missing):
                if count < 0 or (count and node not in still_open):
                    raise self._miscounted(node, parent, missing, first)
            self.partial = f"the file ends within a tree, in line {self._line}"
        return CallTree(array("i", frame), array("i", parent), _smallest(sizes))

    def _miscounted(self, node: int, parent: array[int], missing: array[int], first: int) -> InputError:
        announced = missing[node] + parent.count(node)
        return self._bad(f"a wrong child count: {announced} announced, another number follows", first + node - self._line)

    def _piece(self) -> bytes:
        """Whole lines of a tree, as many as are read so far; empty if no line of a tree follows."""
        while True:
            at, buffer = self._at, self._buffer
            end = buffer.rfind(b"\n", at)
            if end >= at:
                break
            if len(buffer) - at > _LONGEST_LINE:
                raise self._bad("a line of more than 4 MiB", 1)
            if not self._more():
                return b""
        if buffer[at : at + 1] not in (b" ", b"n"):
            return b""
        stop = buffer.find(b"\n#", at, end)
        if stop < 0:
            stop = buffer.find(b"\nsnapshot=", at, end)
        stop = end if stop < 0 else stop
        self._at = stop + 1
        return buffer[at : stop + 1]

    def _unparsed(self, piece: bytes) -> InputError:
        """The error for the first line of a piece that is no line of a tree, or has too large a number."""
        lines = [_LINE.fullmatch(line) for line in piece[:-1].split(b"\n")]
        at, line = next((number, line) for number, line in enumerate(lines, 1) if line is None or not all(map(_fits, line.groups())))
        return self._bad("this is not a line of a tree" if line is None else "a number beyond 64 bits", at)


class _Places(dict[bytes, int]):
    """Frame numbers by the text of their places."""

    def __init__(self, bad: Callable[[str], InputError]) -> None:
        self.table = FrameTable()
        self._bad = bad

    def __missing__(self, text: bytes) -> int:
        if len(self) >= _MOST_PLACES:
            raise self._bad(f"it names more than {_MOST_PLACES} places: no program has so many")
        frame = parse_place(text.decode("utf-8", "backslashreplace").rstrip("\r"))
        number = self[text] = self.table.number(frame)
        return number


def _fits(digits: bytes) -> bool:
    """Whether a number fits into 64 bits. A text of thousands of digits is not converted."""
    return len(digits) < 4000 and int(digits) <= _INT64


def _smallest(sizes: array[int]) -> array[int]:
    """The sizes in 32 bits if they let it be, and in no more memory than they need."""
    try:
        return array("i", sizes)
    except OverflowError:
        return array("q", sizes)
