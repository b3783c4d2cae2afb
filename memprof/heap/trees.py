"""Trees of frames."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Literal

Direction = Literal["callers", "callees"]


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
