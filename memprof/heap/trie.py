"""Trees made from stacks or from other trees: inverted, grouped, folded. One pass each, without recursion."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from .trees import Direction, Tree

# Of a stack that holds less than this part of the whole, readers keep the site only: there are tens of thousands of them in a program.
SMALLEST = 5000


class Trie:
    """Collects stacks that share their beginnings. A node's own bytes are those of the stacks that end there.

    root: the frame of node 0.
    """

    def __init__(self, root: int, with_blocks: bool = False) -> None:
        self.frame, self.parent = array("i", [root]), array("i", [-1])
        self.own = array("q", [0])
        self.blocks = array("q", [0]) if with_blocks else None
        self._child: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.frame)

    def child(self, node: int, frame: int) -> int:
        """The child of a node that has this frame, made where there is none."""
        key = node, frame
        found = self._child.get(key)
        if found is None:
            found = self._child[key] = len(self.frame)
            self.frame.append(frame)
            self.parent.append(node)
            self.own.append(0)
            if self.blocks is not None:
                self.blocks.append(0)
        return found

    def add(self, stack: Iterable[int], size: int, blocks: int = 0) -> None:
        """Add a stack's bytes and number of allocations."""
        node = 0
        for frame in stack:
            node = self.child(node, frame)
        self.own[node] += size
        if self.blocks is not None:
            self.blocks[node] += blocks

    def tree(self, direction: Direction = "callers") -> Tree:
        """The tree, depth first, larger children first, without nodes that hold nothing."""
        size, blocks = array("q", self.own), None if self.blocks is None else array("q", self.blocks)
        for node in range(len(size) - 1, 0, -1):  # a child comes after its parent
            size[self.parent[node]] += size[node]
            if blocks is not None:
                blocks[self.parent[node]] += blocks[node]
        children: dict[int, list[int]] = {}
        for node in range(1, len(size)):
            if size[node] != 0:
                children.setdefault(self.parent[node], []).append(node)
        frames, parents, sizes, counts = array("i"), array("i"), array("q"), None if blocks is None else array("q")
        todo = [(0, -1)]
        while todo:
            node, parent = todo.pop()
            number = len(frames)
            frames.append(self.frame[node])
            parents.append(parent)
            sizes.append(size[node])
            if counts is not None and blocks is not None:
                counts.append(blocks[node])
            todo.extend((child, number) for child in sorted(children.get(node, ()), key=lambda child: size[child]))
        return Tree(frames, parents, sizes, counts, direction)


def invert(tree: Tree, most_nodes: int) -> Tree:
    """See Tree.inverted. The largest stacks come first, so that what does not fit is the smallest."""
    trie = Trie(tree.frame[0])
    own, parent, frame = tree.self_bytes(), tree.parent, tree.frame
    for end in sorted((node for node in range(len(tree)) if own[node] > 0), key=lambda node: -own[node]):
        place, node = 0, end
        while node > 0:
            if len(trie) >= most_nodes:
                place = 0
                break
            place = trie.child(place, frame[node])
            node = parent[node]
        trie.own[place] += own[end]
    return trie.tree("callees" if tree.direction == "callers" else "callers")


def group(tree: Tree, key: Sequence[int]) -> Tree:
    """See Tree.grouped."""
    return _merged(tree, -1, key, collapse=True)


def fold(tree: Tree, hidden: Sequence[bool]) -> Tree:
    """See Tree.folded."""
    return _merged(tree, tree.frame[0], [-1 if hide else frame for frame, hide in enumerate(hidden)], collapse=False)


def _merged(tree: Tree, root: int, key: Sequence[int], collapse: bool) -> Tree:
    trie = Trie(root, tree.blocks is not None)
    own = tree.self_bytes()
    own_blocks = None if tree.blocks is None else array("q", tree.blocks)
    if own_blocks is not None and tree.blocks is not None:
        for node in range(1, len(tree)):
            own_blocks[tree.parent[node]] -= tree.blocks[node]
    place = array("i", bytes(4 * len(tree)))
    for node in range(len(tree)):
        if node:
            above, number = place[tree.parent[node]], key[tree.frame[node]]
            stays = number < 0 or (collapse and above > 0 and trie.frame[above] == number)
            place[node] = above if stays else trie.child(above, number)
        trie.own[place[node]] += own[node]
        if own_blocks is not None and trie.blocks is not None:
            trie.blocks[place[node]] += own_blocks[node]
    return trie.tree(tree.direction)
