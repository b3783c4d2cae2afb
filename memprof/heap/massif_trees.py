"""A tree of a massif file, read in large pieces: columns of numbers from its lines, and parents from their indentation."""

from __future__ import annotations

import itertools
import operator
import re
from array import array

from .frames import FrameTable
from .massif_frames import parse_place
from .trees import Tree

_MOST_PLACES = 1_000_000
_ONE = array("q", [1])
_SECOND_ROOT = 1 << 40  # more children than any file could hold

# Splits whole lines of a tree. The text between two matches is empty if each match is a line; no tuple is made for a line.
_NODES = re.compile(rb"( *)n(\d{1,19}): (\d{1,19}) (.+)\n")


class Numbers(dict[bytes, int]):
    """Numbers by their digits, since a tree repeats many of them."""

    def __missing__(self, digits: bytes) -> int:
        if len(self) >= 1 << 16:
            self.clear()
        number = self[digits] = int(digits)
        return number


class Places(dict[bytes, int]):
    """Frame numbers by the text of their places."""

    def __init__(self) -> None:
        self.table = FrameTable()

    def __missing__(self, text: bytes) -> int:
        if len(self) >= _MOST_PLACES:
            raise ValueError(f"it names more than {_MOST_PLACES} places: no program has so many")
        frame = parse_place(text.decode("utf-8", "backslashreplace").rstrip("\r"))
        number = self[text] = self.table.number(frame)
        return number


class Columns:
    """A tree while it is read. counts: how many children each node announced. torn: whether the file ended before all of them came."""

    def __init__(self, places: Places, numbers: Numbers) -> None:
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
