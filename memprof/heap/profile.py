"""What an allocation profile is, whichever tool wrote it: snapshots over time, and trees of the places that hold the memory.

A tree is kept as massif writes it, *sites first*: the children of the root are the functions that allocate, the children of a node are its
callers, and a node's bytes hold those of its children. `Tree.inverted` turns it round, program entry first, which is how a flame graph reads.
Trees are columns, so that a tree of a million nodes takes 16 MB and one of any depth needs no recursion. Sizes are bytes; times are in the
profile's own unit.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

TimeUnit = Literal["i", "ms", "s", "B"]
Kind = Literal["empty", "detailed", "peak"]
FrameKind = Literal["site", "root", "below", "unknown"]
By = Literal["function", "module", "line"]
Direction = Literal["callers", "callees"]

UNKNOWN = "???"


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in the program.

    function: its name, demangled, in full (memprof.heap.names shortens it for display); UNKNOWN where the tool had none. module: the path of
    the file of code as the tool wrote it, NO_MODULE where it never does. address: None where the tool gives none.
    kind: "root" the whole, "below" several places left out as too small, `places` of them where the tool counted, "unknown" no name at all.
    """

    function: str
    file: str | None = None
    line: int | None = None
    module: str | None = None
    address: int | None = None
    kind: FrameKind = "site"
    places: int | None = None


BELOW = Frame("below the threshold", kind="below")
NO_MODULE = "(unknown module)"  # of code that the tool does not put down to a file


class Tree:
    """Nodes in depth-first order, node 0 the root; every column has one value a node.

    frame: the index of the node's frame in HeapProfile.frames. parent: the index of its parent, -1 at the root, always below the node's own.
    bytes: what it holds, its children included; of 32 bits where that is enough. blocks: the number
    of allocations, likewise, or None where the tool does not count them.
    direction: "callers", sites first, or "callees", program entry first.
    """

    __slots__ = ("_children", "blocks", "bytes", "direction", "frame", "parent")

    def __init__(
        self,
        frame: array[int],
        parent: array[int],
        bytes: array[int],
        blocks: array[int] | None = None,
        direction: Direction = "callers",
    ) -> None:
        self.frame, self.parent, self.bytes, self.blocks, self.direction = frame, parent, bytes, blocks, direction
        self._children: tuple[array[int], array[int]] | None = None

    def __len__(self) -> int:
        return len(self.frame)

    def children(self, node: int) -> array[int]:
        """The indices of a node's children, in the tool's order."""
        starts, nodes = self._child_table()
        return nodes[starts[node] : starts[node + 1]]

    def path(self, node: int) -> list[int]:
        """The nodes from the root to this one, both included."""
        found = [node]
        while (node := self.parent[node]) >= 0:
            found.append(node)
        return found[::-1]

    def depths(self) -> array[int]:
        """The number of edges from the root to each node."""
        depths = array("i", bytes(4 * len(self)))
        parent = self.parent
        for node in range(1, len(depths)):
            depths[node] = depths[parent[node]] + 1
        return depths

    def self_bytes(self) -> array[int]:
        """What each node holds beyond its children: that of the stack that ends there."""
        own = array("q", self.bytes)
        for node in range(1, len(own)):
            own[self.parent[node]] -= self.bytes[node]
        return own

    def stacks(self) -> Iterator[tuple[list[int], int]]:
        """Every stack that holds something of its own: its frames in the tree's direction, without the root, and its bytes."""
        own, path = self.self_bytes(), array("i")
        depths = self.depths()
        for node in range(len(self)):
            del path[max(depths[node] - 1, 0) :]
            if node:
                path.append(self.frame[node])
            if own[node] > 0:
                yield path.tolist(), own[node]

    def top_by(self, key: Sequence[int]) -> list[tuple[int, int, int]]:
        """Sums by a property of the frames: (key, self bytes, total bytes), largest self first, then largest total.

        key: for each frame of the profile the number of its group, below 0 for frames that are passed over (see HeapProfile.keys). Self: the
        group allocates, as the first frame of a stack that is not passed over. Total: it stands anywhere in the stack, counted once however
        often it does.
        """
        own: dict[int, int] = {}
        total: dict[int, int] = {}
        sites_first = self.direction == "callers"
        for stack, size in self.stacks():
            groups = [group for group in (key[frame] for frame in stack) if group >= 0]
            if groups:
                site = groups[0 if sites_first else -1]
                own[site] = own.get(site, 0) + size
            for group in set(groups):
                total[group] = total.get(group, 0) + size
        return sorted(((group, own.get(group, 0), size) for group, size in total.items()), key=lambda row: (-row[1], -row[2], row[0]))

    def inverted(self, most_nodes: int = 2_000_000) -> Tree:
        """The same stacks from their other end. What would take more than most_nodes nodes stays at the root as bytes of its own."""
        from .trie import invert

        return invert(self, most_nodes)

    def grouped(self, key: Sequence[int]) -> Tree:
        """The same tree over groups of frames: `frame` holds group numbers, -1 at the root; siblings of one group are one node, and so are a
        group and its caller within the group. Frames whose number is below 0 are passed over. See HeapProfile.keys."""
        from .trie import group

        return group(self, key)

    def folded(self, hidden: Sequence[bool]) -> Tree:
        """The same tree without the frames that are hidden (one value a frame): their callees and callers meet. Siblings that then have one
        frame are one node."""
        from .trie import fold

        return fold(self, hidden)

    def digest(self) -> bytes:
        """A hash of all columns: equal for equal trees."""
        hashed = hashlib.blake2b(self.direction.encode(), digest_size=16)
        for column in (self.frame, self.parent, self.bytes, self.blocks):
            if column is not None:
                hashed.update(f"{column.typecode}{len(column)}".encode())
                hashed.update(column)
        return hashed.digest()

    def _child_table(self) -> tuple[array[int], array[int]]:
        if self._children is None:
            count = len(self)
            starts = array("i", bytes(4 * (count + 2)))
            for parent in self.parent[1:]:
                starts[parent + 2] += 1
            for node in range(2, count + 2):
                starts[node] += starts[node - 1]
            nodes = array("i", bytes(4 * max(count - 1, 0)))
            for node in range(1, count):
                slot = self.parent[node] + 1
                nodes[starts[slot]] = node
                starts[slot] += 1
            self._children = starts, nodes
        return self._children


@dataclass(frozen=True)
class Snapshot:
    """The heap at one moment.

    index: the tool's number. time: in HeapProfile.time_unit; until: where the tool knows only between which two times the moment lies, the later.
    heap_bytes: what the program asked for and holds; extra_bytes: what the allocator adds to it; stacks_bytes: 0 unless the tool looked.
    phase: in which it was taken, where that is known.
    """

    index: int
    time: float
    heap_bytes: int
    extra_bytes: int = 0
    stacks_bytes: int = 0
    tree: Tree | None = None
    kind: Kind = "empty"
    phase: str | None = None
    until: float | None = None

    @property
    def total_bytes(self) -> int:
        """All that the tool counted at that moment."""
        return self.heap_bytes + self.extra_bytes + self.stacks_bytes


@dataclass(frozen=True)
class PhaseSpan:
    """A phase of the program, in the profile's time unit. end is None where the profile ends within it."""

    name: str
    begin: float
    end: float | None


@dataclass(frozen=True)
class HeapProfile:
    """All that a tool wrote of one process.

    tool: massif, heaptrack or memray. counts: what this tool counts, as a sentence. partial: why the profile does not reach the program's end,
    or None. started_ns: CLOCK_REALTIME at time 0, where the tool says it. phase_error: how far phase borders may be off against the snapshots,
    in the time unit; None where no phases are known.
    """

    tool: str
    command: str
    description: str
    time_unit: TimeUnit
    counts: str
    snapshots: tuple[Snapshot, ...]
    frames: tuple[Frame, ...]
    path: str = ""
    phases: tuple[PhaseSpan, ...] = ()
    phase_error: float | None = None
    started_ns: int | None = None
    partial: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def peak(self) -> Snapshot:
        """The snapshot with the largest total, the true maximum of what was recorded; of several the first with a tree."""
        return max(self.snapshots, key=lambda snapshot: (snapshot.total_bytes, snapshot.tree is not None, -snapshot.index))

    @property
    def peak_tree(self) -> tuple[Snapshot, bool] | None:
        """The largest snapshot that has a tree, and whether it is as large as the peak; None where no snapshot has one."""
        return self._largest(self.snapshots)

    def largest_tree(self, phase: str) -> tuple[Snapshot, bool] | None:
        """The same among the snapshots of a phase."""
        return self._largest([snapshot for snapshot in self.snapshots if snapshot.phase == phase])

    @staticmethod
    def _largest(snapshots: Sequence[Snapshot]) -> tuple[Snapshot, bool] | None:
        trees = [snapshot for snapshot in snapshots if snapshot.tree is not None]
        if not trees:
            return None
        found = max(trees, key=lambda snapshot: (snapshot.total_bytes, -snapshot.index))
        return found, found.total_bytes >= max(snapshot.total_bytes for snapshot in snapshots)

    def keys(self, by: By, fold: bool = True) -> tuple[list[int], list[str]]:
        """For each frame the number of its group, and the groups' names in full. fold: allocators' own frames are -1, passed over."""
        from .names import group_name, is_allocator

        numbers: dict[str, int] = {}
        key = []
        for frame in self.frames:
            if frame.kind == "root" or (fold and is_allocator(frame)):
                key.append(-1)
            else:
                key.append(numbers.setdefault(group_name(frame, by), len(numbers)))
        return key, list(numbers)

    @property
    def allocators(self) -> list[bool]:
        """For each frame whether it is an allocator's own: what views hide by default, with Tree.folded."""
        from .names import is_allocator

        return [is_allocator(frame) for frame in self.frames]
