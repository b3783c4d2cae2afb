"""Reads heaptrack's recordings, as `heaptrack PROGRAM` leaves them: interpreted, compressed with zstd or gzip.

The format (heaptrack's accumulatedtracedata.cpp, version 1 to 3; every number hexadecimal, indices from 1 with 0 for none):

    v VERSION FORMAT        X COMMAND           I PAGE_SIZE PAGES       # comment      S suppression
    s LENGTH TEXT           a string (format 3; before it, `s TEXT`)
    i ADDRESS MODULE [FUNCTION FILE LINE]...    an instruction; more than one function where they were inlined, the innermost first
    t INSTRUCTION PARENT    a trace: where, called from which trace
    a SIZE TRACE            a kind of allocation, counted from 0
    + KIND    - KIND        such a block is allocated, freed
    c MS      R PAGES       the time, the resident set

The massif export of heaptrack_print is not used: that of 1.4 announces children that it leaves out, has no peak tree, and takes its times from
a timer. The recording holds every allocation, so the peak found here is exact, but for blocks that only heaptrack needs: its own library, which it
preloads, links libstdc++, whose initialiser allocates a pool of 72,704 bytes. The time of an allocation is only known to lie between two
timestamps: they are mostly 10 ms apart, but half a second was seen while threads waited for heaptrack's lock.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import IO, cast

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError
from .alignment import Reading
from .frames import BELOW, UNKNOWN, Frame, FrameTable
from .profile import HeapProfile, PhaseSpan, Snapshot
from .trees import SMALLEST, CallTree, Trie

COUNTS = (
    "heaptrack counts every block from malloc, new and similar functions, at the requested size, touched or not. It does not count memory "
    "mapped directly, what the allocator adds to a block, or freed blocks that the allocator keeps"
)
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # the first bytes of compressed files
_SNAPSHOTS = 1000
_TREES = 24
_MOST_ENTRIES = 20_000_000
_INT64 = (1 << 63) - 1
_LONGEST_LINE = 1 << 22
_CXX, _LOADER = re.compile(rb"libstdc\+\+\.so"), re.compile(rb"ld(?:-|64|\.so)")  # of modules' names


def read(path: Path, phases: Sequence[PhaseSpan] = ()) -> HeapProfile:
    """The profile in a heaptrack recording, with the exact peak, the largest tree of each phase, and some twenty in between.

    Raises InputError if the file is damaged or was not interpreted (`heaptrack --raw`), or if zstd is not installed.
    """
    left_out = _blocks_of_preload(path)
    course = _course(path, left_out)
    return _SecondPass(path, _wanted(course, phases), left_out).profile()


def has_begun(path: Path) -> bool:
    """Whether a recording has its first line: heaptrack leaves a file of some lines without it where its program was ended before it ran."""
    with suppress(InputError), _lines(path) as lines:
        return next(lines, b"").startswith(b"v ")
    return True  # it cannot be opened here, which is for its reader to say


def resident_set(path: Path) -> list[Reading]:
    """The resident set of the process as heaptrack wrote it, at heaptrack's own times. Raises InputError."""
    readings: list[Reading] = []
    page = time_ns = 0
    with _lines(path) as lines:
        try:
            for line in lines:
                if line.startswith(b"I "):
                    page = int(line.split()[1], 16)
                elif line.startswith(b"c "):
                    time_ns = _small(line.split()[1]) * 1_000_000
                elif line.startswith(b"R "):
                    readings.append(Reading(time_ns, _small(line.split()[1]) * page))
        except (ValueError, IndexError) as error:
            raise InputError(f"{path}: {_reason(error)}") from None
    return readings


# -- opening


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[bytes]]:
    with path.open("rb") as file:
        head = file.read(4)
    if head.startswith(GZIP):
        with gzip.open(path) as packed:
            yield _bounded(cast(IO[bytes], packed), path)
        return
    if head != ZSTD:
        with path.open("rb") as file:
            yield _bounded(file, path)
        return
    if shutil.which("zstd") is None:
        raise InputError(f"{path} is compressed with zstd, which is not installed: on Debian, apt-get install zstd")
    with subprocess.Popen(
        ["zstd", "-dcq", "--", str(path.absolute())], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield _bounded(process.stdout, path)
        finally:
            process.kill()


def _bounded(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Whole lines. A last line without its end is left out, and so is everything after damage in a compressed file."""
    try:
        while line := file.readline(_LONGEST_LINE):
            if not line.endswith(b"\n"):
                if len(line) >= _LONGEST_LINE:
                    raise InputError(f"{path}: a line of more than 4 MiB")
                return
            yield line
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return


# -- blocks that heaptrack alone needs


class _Caller(Enum):
    """Who is in a trace, as far as it matters whose libstdc++ is."""

    NOBODY = auto()
    LOADER = auto()  # the dynamic linker alone
    INITIALISER = auto()  # libstdc++'s, called by the dynamic linker
    PROGRAM = auto()


def _blocks_of_preload(path: Path) -> frozenset[int]:
    """The kinds of allocations that libstdc++'s initialiser made for heaptrack: none if any other block came through libstdc++, for then the program
    has that library itself. Damage is left to the passes that follow."""
    modules, instructions, callers = [b""], [b""], [_Caller.NOBODY]
    has_cxx, found, kinds = [False], set[int](), 0
    with _lines(path) as lines, suppress(ValueError, IndexError):
        for line in lines:
            kind = line[0]
            if kind == 115:  # s
                modules.append(os.path.basename(line[2:].rstrip(b"\n")))
            elif kind == 105:  # i
                words = line.split()
                instructions.append(modules[int(words[2], 16)] if len(words) > 2 else b"")
            elif kind == 116:  # t
                instruction, parent = (int(word, 16) for word in line.split()[1:3])
                module = instructions[instruction]
                is_cxx = _CXX.match(module) is not None
                callers.append(_caller(callers[parent], module, is_cxx))
                has_cxx.append(is_cxx or has_cxx[parent])
            elif kind == 97:  # a
                trace = int(line.split()[2], 16)
                if callers[trace] is _Caller.INITIALISER:
                    found.add(kinds)
                elif has_cxx[trace]:
                    return frozenset()
                kinds += 1
    return frozenset(found)


def _caller(above: _Caller, module: bytes, is_cxx: bool) -> _Caller:
    """Who is in a trace that a frame of this module ends."""
    if _LOADER.match(module) and above in (_Caller.NOBODY, _Caller.LOADER):
        return _Caller.LOADER
    if above is _Caller.INITIALISER or (is_cxx and above is _Caller.LOADER):
        return _Caller.INITIALISER
    return _Caller.PROGRAM


# -- first pass: the course of the total


class _Course:
    """Rows of totals: that at each timestamp, and the largest between two timestamps if it exceeds both.

    times: in ms, when the total was held, or after which it was reached. untils: the timestamp before which it was reached; the same as the
    time if the total was held then. totals: bytes. events: how many there had been; they are counted from 1, and event 0 is the beginning.
    """

    def __init__(self) -> None:
        self.times, self.untils = array("d"), array("d")
        self.totals = array("q")
        self.events = array("q")

    def add(self, time: float, until: float, total: int, event: int) -> None:
        self.times.append(time)
        self.untils.append(until)
        self.totals.append(total)
        self.events.append(event)


def _course(path: Path, left_out: Collection[int]) -> _Course:
    """left_out: the kinds of allocations that do not count."""
    course, sizes = _Course(), array("q")
    total = event = number = begin = high = high_event = 0
    time = 0.0
    course.add(time, time, 0, 0)
    seen_version = False
    with _lines(path) as lines:
        try:
            for number, line in enumerate(lines, 1):
                kind = line[0]
                if kind == 43:  # +
                    total += sizes[_index(line)]
                    event += 1
                    if total > high:
                        if total > _INT64:
                            raise ValueError("the total is beyond 64 bits")
                        high, high_event = total, event
                elif kind == 45:  # -
                    total -= sizes[_index(line)]
                    event += 1
                elif kind == 97:  # a
                    if len(sizes) >= _MOST_ENTRIES:
                        raise ValueError("more kinds of allocations than can be")
                    sizes.append(0 if len(sizes) in left_out else int(line.split()[1], 16))
                elif kind == 99:  # c
                    now = float(_small(line.split()[1]))
                    if high > max(begin, total):
                        course.add(time, now, high, high_event)
                    course.add(now, now, total, event)
                    time, begin, high, high_event = now, total, total, event
                elif kind == 118:  # v
                    seen_version = True
                    if int(line.split()[2], 16) > 3:
                        raise ValueError("a format newer than 3, which is not known here")
                elif kind in b"mx" and line[1:2] == b" ":
                    raise ValueError("it was recorded with --raw: run heaptrack_interpret on it first")
                if number == 1 and not seen_version:
                    raise ValueError("it does not begin with heaptrack's version")
        except (ValueError, IndexError, OverflowError) as error:
            raise InputError(f"{path}, line {number}: {_reason(error)}") from None
    if not number:
        raise InputError(f"{path} is not a heaptrack recording, or nothing in it can be read")
    if high > max(begin, total):
        course.add(time, time, high, high_event)
    course.add(time, time, total, event)
    return course


def _index(line: bytes) -> int:
    index = int(line[2:], 16)
    if index < 0:
        raise ValueError
    return index


def _small(text: bytes) -> int:
    if len(text) > 15:
        raise ValueError("a number beyond 64 bits")
    return int(text, 16)


def _reason(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OverflowError) or "limit" in text:
        return "a number beyond 64 bits"
    if isinstance(error, IndexError) or not text or "literal" in text:
        return "no line of a heaptrack recording, or a line that uses an undefined number"
    return text


class _Moment(Struct, frozen=True):
    """A snapshot to be taken: the state after so many events, held at `time`, or reached between it and `until` (ms). total: bytes. has_tree: the
    snapshot is to have one."""

    event: int
    time: float
    until: float | None
    total: int
    has_tree: bool


def _wanted(course: _Course, phases: Sequence[PhaseSpan]) -> dict[int, list[_Moment]]:
    """The snapshots by the number of events before them: the largest total of each stretch of time and of each phase, the peak and the end."""
    count = len(course.times)
    # A row without an event since the one before it would only repeat that one's snapshot.
    changed = [place for place in range(count) if not place or course.events[place] != course.events[place - 1]]
    step = -(-len(changed) // _SNAPSHOTS)
    trees = max(1, len(changed) // step // _TREES)
    moments: dict[tuple[int, float], _Moment] = {}

    def keep(place: int, has_tree: bool, time: float, until: float) -> None:
        event = course.events[place]
        earlier = moments.get((event, time))
        if earlier is None or has_tree > earlier.has_tree:
            moments[event, time] = _Moment(event, time, until if until > time else None, course.totals[place], has_tree and event > 0)

    def keep_row(place: int, has_tree: bool = True) -> None:
        keep(place, has_tree, course.times[place], course.untils[place])

    keep_row(_largest(course, range(count)))
    for number, start in enumerate(range(0, len(changed), step)):
        keep_row(_largest(course, changed[start : start + step]), number % trees == 0)
    for span in phases:
        inside = range(bisect_left(course.times, span.begin), count if span.end is None else bisect_right(course.times, span.end))
        if inside:
            keep_row(_largest(course, inside))
        else:  # the phase lies between two timestamps, or after the last
            around = range(max(inside.start - 1, 0), min(inside.start + 1, count))
            keep(_largest(course, around), True, span.begin, course.times[around[-1]])
    keep_row(count - 1)
    by_event: dict[int, list[_Moment]] = {}
    for moment in sorted(moments.values(), key=lambda moment: (moment.event, moment.time)):
        by_event.setdefault(moment.event, []).append(moment)
    return by_event


def _largest(course: _Course, places: Sequence[int]) -> int:
    return max(places, key=course.totals.__getitem__)


# -- second pass: the blocks that were live at these moments


class _SecondPass:
    def __init__(self, path: Path, wanted: Mapping[int, Sequence[_Moment]], left_out: Collection[int]) -> None:
        self._path, self._wanted, self._left_out = path, wanted, left_out
        self._strings: list[str] = [""]
        self._instructions: list[tuple[int, ...]] = [()]  # frames, the innermost first
        self._instruction, self._parent = array("i", [0]), array("i", [0])  # of traces
        self._size, self._trace, self._live = array("q"), array("i"), array("q")
        self._frames = FrameTable(Frame("allocated with malloc, new and their kin", kind="root"), BELOW)
        self._format = 1
        self._command = ""

    def profile(self) -> HeapProfile:
        snapshots = self._taken(0)
        event = number = 0
        with _lines(self._path) as lines:
            try:
                for line in lines:
                    number += 1
                    kind = line[0]
                    if kind == 43 or kind == 45:
                        self._live[_index(line)] += 44 - kind
                        event += 1
                        if event in self._wanted:
                            snapshots += self._taken(event)
                    else:
                        self._define(kind, line)
            except (ValueError, IndexError, OverflowError, UnicodeDecodeError) as error:
                raise InputError(f"{self._path}, line {number}: {_reason(error)}") from None
        kept = [snapshot for snapshot in snapshots if snapshot.heap_bytes >= 0]
        return HeapProfile(
            "heaptrack",
            self._command,
            "",
            "ms",
            COUNTS,
            tuple(replace(snapshot, index=index) for index, snapshot in enumerate(kept)),
            tuple(self._frames.frames),
            str(self._path),
            warnings=("it frees blocks that it never allocated: the recording is damaged or began late",)
            if len(kept) < len(snapshots)
            else (),
        )

    def _taken(self, event: int) -> list[Snapshot]:
        """The snapshots of the state as it is now. There can be several: the state may last into a phase."""
        moments = self._wanted.get(event, ())
        tree = next((self._tree(moment.total) for moment in moments if moment.has_tree), None)
        return [Snapshot(0, moment.time, moment.total, tree=tree if moment.has_tree else None, until=moment.until) for moment in moments]

    def _define(self, kind: int, line: bytes) -> None:
        if kind == 97:  # a
            numbers = _numbers(line)
            size, trace = numbers[0], numbers[1]
            self._parent[trace]  # an IndexError if there is no such trace
            self._size.append(0 if len(self._size) in self._left_out else size)
            self._trace.append(trace)
            self._live.append(0)
        elif kind == 116:  # t
            numbers = _numbers(line)
            instruction, parent = numbers[0], numbers[1]
            self._instructions[instruction], self._parent[parent]  # the same
            self._instruction.append(instruction)
            self._parent.append(parent)
        elif kind == 105:  # i
            self._instructions.append(self._frames_of(_numbers(line)))
        elif kind == 115:  # s
            text = line[2:].rstrip(b"\n")
            if self._format >= 3:
                text = text.partition(b" ")[2]
            self._strings.append(text.decode("utf-8", "backslashreplace"))
        elif kind == 118:  # v
            self._format = int(line.split()[2], 16)
        elif kind == 88:  # X
            self._command = line[2:].strip().decode("utf-8", "backslashreplace")
        if max(len(self._strings), len(self._instructions), len(self._parent)) > _MOST_ENTRIES:
            raise ValueError("more entries than can be")

    def _frames_of(self, numbers: list[int]) -> tuple[int, ...]:
        address, module = numbers[0], self._strings[numbers[1]] if len(numbers) > 1 else ""
        if address >> 64:
            raise ValueError("a number beyond 64 bits")
        frames = []
        for at in range(2, len(numbers) - 2, 3):
            function, file = self._strings[numbers[at]], self._strings[numbers[at + 1]]
            frames.append(Frame(function or UNKNOWN, file or None, numbers[at + 2] or None, module or None, address))
        if not frames:
            function = self._strings[numbers[2]] if len(numbers) > 2 else ""
            frames = [Frame(function or UNKNOWN, None, None, module or None, address, "site" if function else "unknown")]
        return tuple(self._frames.number(frame) for frame in frames)

    def _tree(self, total: int) -> CallTree:
        """The blocks that are live now, which sum up to `total` bytes. Of the many stacks that hold next to nothing only the site is kept."""
        least = total / SMALLEST
        by_trace: dict[int, int] = defaultdict(int)
        for kind, count in enumerate(self._live):
            if count > 0 and kind not in self._left_out:
                by_trace[self._trace[kind]] += count * self._size[kind]
        trie = Trie(0)
        for trace, size in by_trace.items():
            trie.add(self._stack(trace) if size >= least else (*self._instructions[self._instruction[trace]][:1], 1), size)
        return trie.tree()

    def _stack(self, trace: int) -> Iterator[int]:
        while trace:  # a parent is defined before its child, so this ends
            yield from self._instructions[self._instruction[trace]]
            trace = self._parent[trace]


def _numbers(line: bytes) -> list[int]:
    """The numbers of a line. Raises ValueError for one below 0, too."""
    numbers = [int(word, 16) for word in line.split()[1:]]
    if any(number < 0 for number in numbers):
        raise ValueError
    return numbers
