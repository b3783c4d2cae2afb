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
kept, and identical trees are one object, so that a file of a gigabyte takes a fraction of that.
"""

from __future__ import annotations

import itertools
import operator
import re
from array import array
from typing import Protocol

from ..errors import InputError
from .frames import UNKNOWN, Frame, FrameTable
from .profile import HeapProfile, Kind, Snapshot, TimeUnit
from .trees import Tree

_PIECE = 1 << 18  # small enough to be taken apart within a processor's cache
_LONGEST_LINE = 1 << 22
_MOST_PLACES = 1_000_000
_MOST_SNAPSHOTS = 1_000_000
_INT64 = (1 << 63) - 1
_ONE = array("q", [1])
_SECOND_ROOT = 1 << 40  # more children than any file could hold

# Splits whole lines of a tree. The text between two matches is empty if each match is a line; no tuple is made for a line.
_NODES = re.compile(rb"( *)n(\d{1,19}): (\d{1,19}) (.+)\n")
_NODE = re.compile(rb"( *)n(\d+): (\d+) (.+)")
_PLACE = re.compile(r"(0x[0-9A-Fa-f]{1,16}): (.*)", re.DOTALL)
_BELOW = re.compile(r"in (\d+) places?,.*below .*threshold.*", re.DOTALL)
_SOURCE = re.compile(r"(.+):(\d{1,9})", re.DOTALL)
_UNITS: dict[str, TimeUnit] = {"i": "i", "ms": "ms", "s": "s", "B": "B"}
_KINDS: dict[bytes, Kind] = {b"empty": "empty", b"detailed": "detailed", b"peak": "peak"}
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
# The `desc:` of another tool's profile in a file that memprof wrote. A reader learns from it how that tool counts.
EXPORTED = "memprof export of {tool}: {counts}"
_EXPORTED = re.compile(r"memprof export of (heaptrack|memray): (.{1,1000})")


class Stream(Protocol):
    """A file, a compressed file or bytes in memory, to be read piece by piece."""

    def read1(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


class _Torn(Exception):
    """The file ends here, within something."""


def read(stream: Stream, name: str) -> HeapProfile:
    """The profile in a massif file. A file that ends within a snapshot gives what it holds, and says so in `partial`.

    Raises InputError, naming the line, if the file is not a massif file, contradicts itself or holds no snapshot.
    """
    return _Reader(stream, name).read()


class _Numbers(dict[bytes, int]):
    """Numbers by their digits, since a tree repeats many of them."""

    def __missing__(self, digits: bytes) -> int:
        if len(self) >= 1 << 16:
            self.clear()
        number = self[digits] = int(digits)
        return number


class _Places(dict[bytes, int]):
    """Frame numbers by the text of their places."""

    def __init__(self) -> None:
        self.table = FrameTable()

    def __missing__(self, text: bytes) -> int:
        if len(self) >= _MOST_PLACES:
            raise ValueError(f"it names more than {_MOST_PLACES} places: no program has so many")
        frame = parse_place(text.decode("utf-8", "backslashreplace").rstrip("\r"))
        number = self[text] = self.table.number(frame)
        return number


def parse_place(text: str) -> Frame:
    """The frame of a place, as it stands behind the bytes in a tree line."""
    if match := _BELOW.fullmatch(text):
        return Frame("below the threshold", kind="below", places=int(match[1][:18]))
    match = _PLACE.fullmatch(text)
    if match is None:
        return Frame(text, kind="root")
    function, where = _split_place(match[2])
    address = int(match[1], 16)
    if where is None:
        return _site(function, None, None, None, address)
    if where.startswith("in ") and len(where) > 3:
        return _site(function, None, None, where[3:], address)
    if source := _SOURCE.fullmatch(where):
        return _site(function, source[1], int(source[2]), None, address)
    # heaptrack names the module without `in`.
    return _site(function, None, None, where, address)


def _site(function: str, file: str | None, line: int | None, module: str | None, address: int) -> Frame:
    return Frame(function, file, line, module, address, "unknown" if function == UNKNOWN else "site")


def _split_place(text: str) -> tuple[str, str | None]:
    """`f(int) (a.c:1)` as `f(int)` and `a.c:1`; a function alone, and None, if no bracket after a space ends the text."""
    if not text.endswith(")"):
        return text, None
    cut = text.rfind(" (")
    if cut > 0 and text.count("(", cut) == text.count(")", cut) == 1:
        where = text[cut + 2 : -1]
        return (text[:cut], where) if _is_where(where) else (text, None)
    depth = 0
    for index in range(len(text) - 1, 0, -1):
        depth += (text[index] == ")") - (text[index] == "(")
        if depth == 0:
            where = text[index + 1 : -1]
            return (text[: index - 1], where) if text[index - 1] == " " and _is_where(where) else (text, None)
    return (text[:cut], text[cut + 2 : -1]) if cut > 0 else (text, None)  # a path that holds a bracket


def _is_where(text: str) -> bool:
    return text.startswith("in ") or ":" in text or "/" in text or ".so" in text


class _Reader:
    def __init__(self, stream: Stream, name: str) -> None:
        self._stream, self._name = stream, name
        self._buffer, self._at, self._line = b"", 0, 0
        self._ended = False
        self._places, self._numbers = _Places(), _Numbers()
        self._trees: dict[bytes, Tree] = {}
        self._warnings: list[str] = []
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
            exported[2] if exported else PAGES if pages else HEAP + (STACKS if stacks else ""),
            tuple(snapshots),
            tuple(self._places.table.frames),
            self._name,
            partial=self.partial,
            warnings=tuple(self._warnings),
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
                if not colon or (not fields and key != b"desc"):
                    if not fields:
                        raise InputError(f"{self._name} is not a massif file: it does not begin with `desc:`")
                    raise self._bad("no massif header has such a line")
                fields[key.decode("ascii", "backslashreplace")] = value.strip().decode("utf-8", "backslashreplace")
        except _Torn:
            if not fields:
                empty = self._line == 0
                raise InputError(f"{self._name} is {'empty' if empty else 'not a massif file: it does not begin with `desc:`'}") from None
            raise InputError(f"{self._name}: the file ends within its header") from None
        unit = _UNITS.get(fields["time_unit"])
        if unit is None:
            raise self._bad(f"time_unit {fields['time_unit'][:20]!r} is not i, ms, s or B")
        return fields["desc"], fields.get("cmd", ""), unit

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
        if value not in _KINDS:
            raise self._bad(f"heap_tree={value[:20].decode('ascii', 'backslashreplace')} is not empty, detailed or peak")
        kind = _KINDS[value]
        tree = None if kind == "empty" else self._tree()
        return Snapshot(index, time, values["mem_heap_B"], values["mem_heap_extra_B"], values["mem_stacks_B"], tree, kind)

    def _number(self, line: bytes, key: bytes) -> int:
        text = line[len(key) + 1 :]
        if not text.isdigit():
            raise self._bad(f"{key.decode()}={text[:40].decode('ascii', 'backslashreplace')} is not a number")
        if len(text) > 4000 or int(text) > _INT64:
            raise self._bad(f"{key.decode()} is a number beyond 64 bits")
        return int(text)

    def _time(self, text: bytes) -> float:
        if not re.fullmatch(rb"\d{1,19}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,2})?", text):
            raise self._bad("time= is not a number, or is beyond 64 bits")
        return float(text)

    # -- trees

    def _tree(self) -> Tree:
        """The tree that follows. Raises _Torn if the file ends before its first line."""
        columns = _Columns(self._places, self._numbers)
        first = self._line + 1
        while piece := self._piece():
            lines = piece.count(b"\n")
            try:
                columns.add(piece)
            except ValueError as error:
                raise self._explained(piece, columns, str(error)) from None
            self._line += lines
        at_end = self._ended and b"\n" not in self._buffer[self._at :]
        if not columns.frame:
            if at_end:
                raise _Torn
            raise self._bad("a tree is announced, but does not follow", 1)
        lie = columns.lie(at_end)
        if lie is not None:
            raise self._bad(f"a wrong child count: {columns.counts[lie]} announced, another number follows", first + lie - self._line)
        if columns.torn:
            self.partial = f"the file ends within a tree, in line {self._line}"
        return self._shared(columns)

    def _piece(self) -> bytes:
        """Whole lines of a tree, as many as there are at hand; empty if no line of a tree follows."""
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

    def _explained(self, piece: bytes, columns: _Columns, reason: str) -> InputError:
        """The error for a piece of a tree that cannot be read, with the number of its line."""
        columns.restart()
        for line in piece[:-1].split(b"\n"):
            self._line += 1
            match = _NODE.fullmatch(line)
            if match is None:
                return self._bad("this is not a line of a tree")
            if any(len(number) > 19 or int(number) > _INT64 for number in (match[2], match[3])):
                return self._bad("a number beyond 64 bits")
            try:
                columns.add(line + b"\n")
            except ValueError as error:
                return self._bad(str(error))
        return self._bad(reason or "this is not a line of a tree")

    def _shared(self, columns: _Columns) -> Tree:
        tree = columns.tree()
        digest = tree.digest()
        return self._trees.setdefault(digest, tree)


class _Columns:
    """A tree while it is read. counts: how many children each node announced. torn: whether the file ended before all of them came."""

    def __init__(self, places: _Places, numbers: _Numbers) -> None:
        self._places, self._numbers = places, numbers
        self.frame, self.parent, self.bytes, self.counts = array("i"), array("i"), array("q"), array("q")
        self.torn = False
        self._path = [(0, 0)]  # see _link
        self._came = array("q")  # how many children of each node have come
        self._before: tuple[int, list[tuple[int, int]], int] = (0, [], -1)
        self._depth = -1

    def add(self, piece: bytes) -> None:
        """Add whole lines. Raises ValueError with a sentence on their mistake."""
        self._before = len(self.frame), self._path[:], self._depth
        parts = _NODES.split(piece)
        if any(parts[0::5]):
            raise ValueError("this is not a line of a tree")
        try:
            self.bytes.extend(map(self._numbers.__getitem__, parts[3::5]))
            self.counts.extend(map(self._numbers.__getitem__, parts[2::5]))
        except OverflowError:
            raise ValueError("a number beyond 64 bits") from None
        self.frame.extend(map(self._places.__getitem__, parts[4::5]))
        self._link(list(map(len, parts[1::5])))

    def _link(self, depths: list[int]) -> None:
        """Parents from indentation. Most lines are children of the line above them; the others begin chains of such lines. The chains on the
        path to the newest node are kept as (first node, its depth): each level of the path lies in the last chain that begins above it."""
        first, chains, came = len(self.parent), self._path, self._came
        before = [self._depth, *depths[:-1]]
        self._depth = depths[-1]
        self.parent.extend(range(first - 1, first + len(depths) - 1))
        if first:
            came[-1] += 1
        came.extend(_ONE * len(depths))
        came[-1] = 0
        steps = map(operator.sub, depths, before)
        for index in itertools.compress(range(len(depths)), map((1).__ne__, steps)):
            depth, node = depths[index], first + index
            if depth - before[index] > 1:
                raise ValueError("a line that is indented too far for a child of the line above it")
            while chains and chains[-1][1] >= depth:
                chains.pop()
            start, level = chains[-1] if chains else (-1, -1)
            came[node - 1] -= 1
            parent = self.parent[node] = start + depth - 1 - level if depth else -1
            came[parent if depth else 0] += 1 if depth else _SECOND_ROOT
            chains.append((node, depth))

    def restart(self) -> None:
        """Undo the last call of `add`."""
        count, self._path, self._depth = self._before[0], self._before[1][:], self._before[2]
        for column in (self.frame, self.parent, self.bytes, self.counts):
            del column[count:]
        self._came = array("q", bytes(8 * count))
        for parent in self.parent[1:]:
            self._came[parent] += 1

    def lie(self, at_end: bool) -> int | None:
        """The first node that announced another number of children than came; None if there is none, or if the file ended before they could come."""
        came = self._came
        if came == self.counts:
            return None
        if came[0] >= _SECOND_ROOT:
            return 0
        still_open = set()
        if at_end:
            node = len(self.frame) - 1
            while node >= 0:
                still_open.add(node)
                node = self.parent[node]
        for node, (announced, have) in enumerate(zip(self.counts, came, strict=True)):
            if announced != have and not (node in still_open and have < announced):
                return node
        self.torn = True
        return None

    def tree(self) -> Tree:
        """The tree, as small as its numbers let it be."""
        try:
            sizes = array("i", self.bytes)
        except OverflowError:
            sizes = array("q", self.bytes)
        return Tree(array("i", self.frame), array("i", self.parent), sizes)
