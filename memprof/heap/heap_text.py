"""Reads the heap profiles that allocators write as text: tcmalloc's, jemalloc's and Go's (`debug=1`), also with the names that jeprof adds.

tcmalloc (gperftools' heap-profile-table.cc and malloc_extension.cc) and Go (runtime/pprof's writeHeapInternal):

    heap profile:  N: BYTES [  N: BYTES] @ heapprofile          in use [allocated]; heapprofile counts every block,
         N: BYTES [  N: BYTES] @ 0x... 0x...                    heap_v2/PERIOD and Go's heap/2*PERIOD are samples

jemalloc (src/prof_data.c), where `t*` is all threads and the others are not read:

    heap_v2/PERIOD
      t*: N: BYTES [N: BYTES]
    @ 0x... 0x...
      t*: N: BYTES [N: BYTES]

Both end with `MAPPED_LIBRARIES:` and a copy of /proc/PID/maps. The addresses of a stack are return addresses, the site first, so the call is a byte
before each. `jeprof --raw` puts `--- symbol`, lines `ADDRESS NAME--NAME` (inlined functions, the outermost first) and `--- heap` in front. Go writes
`#	ADDRESS	NAME+OFFSET	FILE:LINE` below each stack.

Samples are scaled as jeprof and google/pprof do it (see one_moment.scaled).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import BinaryIO

from ..base.errors import InputError
from . import one_moment
from .frames import UNKNOWN, Frame
from .one_moment import ALLOCATED, IN_USE, MOST_ENTRIES, StackSums
from .profile import HeapProfile

_LONGEST_LINE = 1 << 22
_FIGURES = rb" {0,19}(\d{1,19}): {0,19}(\d{1,19}) {0,9}\[ {0,19}(\d{1,19}): {0,19}(\d{1,19}) {0,9}\]"  # blocks and bytes in use, the same allocated
_ADDRESSES = rb"((?: {1,9}0x[0-9a-fA-F]{1,16})*)\s*"
_HEADER = re.compile(rb"heap profile:" + _FIGURES + rb" {0,9}@ {0,9}(heap\w{0,20}|growthz?)(?:/(\d{1,19}))?\s*")
_JEMALLOC = re.compile(rb"heap_v2/(\d{1,19})\s*")
_SAMPLE = re.compile(_FIGURES + rb" {0,9}@" + _ADDRESSES)
_COUNTS = re.compile(rb" {0,9}t(?:\*|\d{1,19}):" + _FIGURES + rb".*", re.DOTALL)
_STACK = re.compile(rb"@" + _ADDRESSES)
_MAPPING = re.compile(rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) +(\S+) +([0-9a-f]{1,16}) +\S+ +\d+ +(\S.*)", re.DOTALL)
_ADDED = re.compile(r"<[0-9a-f]{8,16}>$")  # the address of a function, which jeprof puts behind a name that only the symbol table has
_SYMBOL = re.compile(rb"(0x[0-9a-fA-F]{1,16}) (.+)", re.DOTALL)
_GO_FRAME = re.compile(rb"#\t(0x[0-9a-fA-F]{1,16})\t(.+?)\+0x[0-9a-f]+\s+(.+):(\d{1,9})\s*", re.DOTALL)

BEGINNINGS = (b"heap profile:", b"heap_v2/", b"--- symbol")


def read(file: BinaryIO, path: str, value: str | None = None) -> HeapProfile:
    """The profile in a text. value: `inuse_space` or, where the allocator kept count of it, `alloc_space`.

    Raises InputError, naming the line, for a text that is none of these or contradicts itself, and UsageError for a value that it does not have.
    """
    return _TextReader(file, path).profile(value)


class _TextReader:
    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path, self._line = file, path, 0
        self._names: dict[int, tuple[Frame, ...]] = {}
        # By stack, scaled to all blocks.
        self._in_use, self._allocated = StackSums(path), StackSums(path)
        self._has_allocated = False
        self._maps: list[tuple[int, int, int, str]] = []
        self._period = 0
        self._tool, self._command, self._growth = "tcmalloc", "", False

    def profile(self, wanted: str | None) -> HeapProfile:
        lines = self._lines()
        line = next(lines, b"")
        if line.startswith(b"--- symbol"):
            line = self._symbols(lines)
        if header := _HEADER.fullmatch(line):
            self._rows(header, lines)
        elif header := _JEMALLOC.fullmatch(line):
            self._tool, self._period = "jemalloc", int(header[1])
            self._threads(lines)
        else:
            raise self._bad("no heap profile of tcmalloc, jemalloc or Go begins so")
        complete = self._mappings(lines)
        values = [IN_USE, ALLOCATED] if self._has_allocated else [IN_USE]
        value = one_moment.selected(self._path, values, wanted, IN_USE)
        sums = (self._allocated if value == ALLOCATED else self._in_use).sums
        frames, stacks = one_moment.new_frames(), StackSums(self._path)
        number_of = {address: tuple(map(frames.number, self._frames(address))) for stack in sums for address in stack}
        for addresses, size in sums.items():
            stacks.add(tuple(number for address in addresses for number in number_of[address]), size)
        return one_moment.profile(
            self._tool,
            self._path,
            frames,
            stacks.sums,
            command=self._command,
            period=self._period,
            value="growth" if self._growth else value,
            values=values,
            partial=None if complete else "the file ends before its MAPPED_LIBRARIES",
        )

    # -- lines

    def _lines(self) -> Iterator[bytes]:
        while line := self._file.readline(_LONGEST_LINE):
            self._line += 1
            if len(line) >= _LONGEST_LINE:
                raise self._bad("a line of more than 4 MiB")
            if self._line > MOST_ENTRIES:
                raise self._bad("more entries than can be")
            yield line

    def _symbols(self, lines: Iterator[bytes]) -> bytes:
        """Read the names that jeprof found, and return the header behind them."""
        for line in lines:
            if line.startswith(b"binary="):
                self._command = _text(line[7:])
            elif symbol := _SYMBOL.fullmatch(line):
                names = [_ADDED.sub("", name) for name in _text(symbol[2]).split("--")]
                if not names[-1].startswith("0x"):
                    address = int(symbol[1], 16)
                    self._names[address] = tuple(Frame(name, address=address) for name in reversed(names))
            elif line.startswith(b"--- "):
                header = next(lines, b"")
                if not header:
                    raise self._bad("no profile follows the symbols: jeprof --raw writes it only where it fetched it from a program")
                if not header.startswith(b"heap"):
                    raise self._bad(
                        "the profile behind the symbols is in pprof's old binary form, which is not read; pprof -proto writes one that is"
                    )
                return header
        raise self._bad("the file ends within its symbols")

    def _rows(self, header: re.Match[bytes], lines: Iterator[bytes]) -> None:
        """tcmalloc's and Go's rows: figures and stack in one line."""
        kind, period = header[5], int(header[6] or 0)
        self._growth = kind.startswith(b"growth")
        # google/pprof's parseHeapHeader: a writer of `heap` gives twice its period.
        self._period = 1 if self._growth or kind == b"heapprofile" else period if kind.endswith(b"_v2") else period // 2
        for line in lines:
            if sample := _SAMPLE.fullmatch(line):
                self._add(sample[5], sample)
            elif go := _GO_FRAME.fullmatch(line):
                address = int(go[1], 16)
                self._names[address] = (Frame(_text(go[2]), _text(go[3]), int(go[4]) or None, address=address),)
                self._tool = "Go"
            elif line.startswith((b"# runtime.MemStats", b"MAPPED_LIBRARIES:")):
                self._tool = "Go" if line.startswith(b"#") else self._tool
                return
            elif line.strip() and not line.startswith(b"#"):
                if line.endswith(b"\n"):
                    raise self._bad("this is not a line of a heap profile")
                return  # torn

    def _threads(self, lines: Iterator[bytes]) -> None:
        """jemalloc's: a stack, then its figures by thread."""
        addresses: bytes | None = None
        for line in lines:
            if stack := _STACK.fullmatch(line):
                addresses = stack[1]
            elif figures := _COUNTS.fullmatch(line):
                if line.lstrip().startswith(b"t*:") and addresses is not None:
                    self._add(addresses, figures)
            elif line.startswith(b"MAPPED_LIBRARIES:"):
                return
            elif line.strip():
                if line.endswith(b"\n"):
                    raise self._bad("this is not a line of a heap profile")
                return

    def _add(self, addresses: bytes, figures: re.Match[bytes]) -> None:
        """Each row is scaled by itself: a stack may have several, of blocks of different sizes."""
        stack = tuple(max(int(word, 16) - 1, 0) for word in addresses.split())
        in_use, allocated = ((int(figures[place]), int(figures[place + 1])) for place in (1, 3))
        self._has_allocated = self._has_allocated or allocated not in ((0, 0), in_use)
        self._in_use.add(stack, one_moment.scaled(*in_use, self._period))
        self._allocated.add(stack, one_moment.scaled(*allocated, self._period))

    def _mappings(self, lines: Iterator[bytes]) -> bool:
        """Read the maps. Whether the file has them, or needs none."""
        for line in lines:
            mapping = _MAPPING.fullmatch(line)
            if mapping is not None and int(mapping[2], 16) > int(mapping[1], 16):
                self._maps.append((int(mapping[1], 16), int(mapping[2], 16), int(mapping[4], 16), _text(mapping[5])))
                self._command = self._command or self._maps[0][3]
        self._maps.sort()
        return bool(self._maps) or self._tool == "Go"

    def _frames(self, address: int) -> tuple[Frame, ...]:
        """The frames at the call that an address names, the innermost first."""
        place = bisect_right(self._maps, (address, 1 << 64, 0, "")) - 1
        mapping = self._maps[place] if place >= 0 and self._maps[place][0] <= address < self._maps[place][1] else None
        # jeprof names the first address of a stack as it stands, and Go all of the calls.
        named = self._names.get(address) or self._names.get(address + 1)
        if named is not None:
            return tuple(Frame(frame.function, frame.file, frame.line, mapping[3] if mapping else None, address) for frame in named)
        if not address:
            return (Frame(UNKNOWN, kind="unknown"),)
        return (one_moment.offset_frame(address, (mapping[0], mapping[2], mapping[3]) if mapping else None),)

    def _bad(self, what: str) -> InputError:
        return InputError(f"{self._path}, line {max(self._line, 1)}: {what}")


def _text(data: bytes) -> str:
    return data.strip().decode("utf-8", "backslashreplace")
