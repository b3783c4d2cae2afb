"""Trees of frames: kept (CallTree), and made from stacks (Trie). Each function makes one pass, without recursion."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, MutableSequence, Sequence

# Of a stack that holds less than this part of the whole, readers keep the site only: there are tens of thousands of them in a program.
SMALLEST = 5000


def add_up(column: MutableSequence[int], parent: Sequence[int]) -> None:
    """Turn the size of each node alone into its size with its children, in place. A child comes after its parent."""
    for node in range(len(column) - 1, 0, -1):
        column[parent[node]] += column[node]


def take_apart(column: MutableSequence[int], parent: Sequence[int]) -> None:
    """Undo `add_up`, in place."""
    for node in range(1, len(column)):
        column[parent[node]] -= column[node]


class CallTree:
    """Nodes in depth-first order, sites first, node 0 the root; every column has one value a node.

    frame: the index of the node's frame in HeapProfile.frames. parent: the index of its parent, -1 at the root, always below the node's index.
    bytes: the size of the node with its children; of 32 bits where that is enough.
    """

    __slots__ = ("bytes", "frame", "parent")

    def __init__(self, frame: array[int], parent: array[int], bytes: array[int]) -> None:
        self.frame, self.parent, self.bytes = frame, parent, bytes

    def __len__(self) -> int:
        return len(self.frame)

    def depths(self) -> array[int]:
        """The number of edges from the root to each node."""
        depths = array("i", bytes(4 * len(self)))
        parent = self.parent
        for node in range(1, len(depths)):
            depths[node] = depths[parent[node]] + 1
        return depths

    def self_bytes(self) -> array[int]:
        """The bytes of each node beyond its children: those of the stack that ends there."""
        own = array("q", self.bytes)
        take_apart(own, self.parent)
        return own

    def stacks(self) -> Iterator[tuple[list[int], int]]:
        """Every stack that ends in a node with bytes beyond its children: its frames from the site on, without the root, and these bytes."""
        own, path = self.self_bytes(), array("i")
        depths = self.depths()
        for node in range(len(self)):
            del path[max(depths[node] - 1, 0) :]
            if node:
                path.append(self.frame[node])
            if own[node] > 0:
                yield path.tolist(), own[node]


class Trie:
    """Collects stacks that share their beginnings. own: the bytes of the stacks that end in a node.

    root: the frame of node 0.
    """

    def __init__(self, root: int) -> None:
        self.frame, self.parent = array("i", [root]), array("i", [-1])
        self.own = array("q", [0])
        self._child: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.frame)

    def child(self, node: int, frame: int) -> int:
        """The child of a node that has this frame, made if there is none."""
        key = node, frame
        child = self._child.get(key)
        if child is None:
            child = self._child[key] = len(self.frame)
            self.frame.append(frame)
            self.parent.append(node)
            self.own.append(0)
        return child

    def add(self, stack: Iterable[int], size: int) -> None:
        """Add a stack's bytes."""
        node = 0
        for frame in stack:
            node = self.child(node, frame)
        self.own[node] += size

    def tree(self) -> CallTree:
        """The tree, depth first, larger children first, without nodes that hold nothing."""
        size = array("q", self.own)
        add_up(size, self.parent)
        children: dict[int, list[int]] = {}
        for node in range(1, len(size)):
            if size[node] != 0:
                children.setdefault(self.parent[node], []).append(node)
        frames, parents, sizes = array("i"), array("i"), array("q")
        todo = [(0, -1)]
        while todo:
            node, parent = todo.pop()
            number = len(frames)
            frames.append(self.frame[node])
            parents.append(parent)
            sizes.append(size[node])
            todo.extend((child, number) for child in sorted(children.get(node, ()), key=lambda child: size[child]))
        return CallTree(frames, parents, sizes)
