"""A tree as it is looked at: turned round or not, merged by function, module or line, allocators passed over, small nodes gathered.

The tree of a HeapProfile stays as the tool wrote it; each view makes a Shape of it. Gathering loses nothing: the bytes of small nodes stand in
one BELOW node, with the number of places it stands for.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from msgspec import Struct

from .frames import UNKNOWN, By, Frame
from .profile import HeapProfile
from .trees import CallTree, Direction, Trie, add_up, take_apart

ROOT, BELOW = -1, -2
MOST_NODES = 300_000  # of a turned tree, which can have as many as its stacks have frames together


class Shape(Struct, frozen=True):
    """Nodes in depth-first order, larger children first, gathered ones last; node 0 is the whole.

    group: the place of the node's name in `names`; ROOT, or BELOW for places too small for the tool or for this view. bytes: with those of
    its children. places: how many a BELOW node stands for, 0 if that is not known. frames: for each group a frame that belongs to it.
    """

    group: list[int]
    parent: list[int]
    bytes: list[int]
    places: list[int]
    names: list[str]
    frames: list[int]
    direction: Direction

    def __len__(self) -> int:
        return len(self.group)

    def children(self) -> list[list[int]]:
        """The children of each node."""
        children: list[list[int]] = [[] for _ in self.group]
        for node in range(1, len(self.group)):
            children[self.parent[node]].append(node)
        return children

    def own(self) -> list[int]:
        """The bytes of each node beyond its children."""
        own = list(self.bytes)
        take_apart(own, self.parent)
        return own


def shape(
    profile: HeapProfile, tree: CallTree, *, by: By = "function", invert: bool = False, fold: bool = True, least: float = 0.0
) -> Shape:
    """A tree's shape: sites first or, inverted, the program's entry first. fold: allocators' own frames are passed over.

    least: the share of the whole below which nodes are gathered, 0.01 for 1%.
    """
    key, names = profile.keys(by, fold)
    for number, frame in enumerate(profile.frames):
        if frame.kind == "below":
            key[number] = BELOW
    places = [frame.places or 0 for frame in profile.frames]
    direction: Direction = "callees" if invert else "callers"
    chained = (
        set(range(len(names))) if by == "module" else {key[number] for number, frame in enumerate(profile.frames) if is_unknown(frame)}
    )
    grouped = _turned(tree, key, places, chained, least) if tree.direction != direction else merged(tree, key, places, chained)
    frames = [0] * len(names)
    for number in range(len(key) - 1, -1, -1):
        if key[number] >= 0:
            frames[key[number]] = number
    return Shape(*_gathered(*grouped, least), names, frames, direction)


def sums(profile: HeapProfile, tree: CallTree, *, by: By = "function", fold: bool = True) -> list[tuple[int, str, int, int]]:
    """Sums by group: (a frame of it, its name, own bytes, total bytes), the largest own first.

    Own: of the stacks whose first frame that is not passed over is of the group. Total: of the stacks that hold the group anywhere, each stack
    counted once. It takes one pass, whatever the depth.
    """
    key, names = profile.keys(by, fold)
    own_of, total_of = [0] * len(names), [0] * len(names)
    first: dict[int, int] = {}
    for number, frame in enumerate(profile.frames):
        if frame.kind == "below":
            key[number] = ROOT
        first.setdefault(key[number], number)
    own, parents, frames, sites_first = tree.self_bytes(), tree.parent, tree.frame, tree.direction == "callers"
    site = [ROOT] * len(tree)
    open_on_path = [0] * len(names)
    path: list[int] = []
    for node in range(1, len(tree)):
        above, group = parents[node], key[frames[node]]
        while path and path[-1] != above:
            if (left := key[frames[path.pop()]]) >= 0:
                open_on_path[left] -= 1
        path.append(node)
        site[node] = site[above]
        if group >= 0:
            if not open_on_path[group]:
                total_of[group] += tree.bytes[node]
            open_on_path[group] += 1
            if not sites_first or site[above] < 0:
                site[node] = group
        if site[node] >= 0:
            own_of[site[node]] += own[node]
    rows = [(first[group], names[group], own_of[group], total_of[group]) for group in range(len(names)) if total_of[group]]
    return sorted(rows, key=lambda row: (-row[2], -row[3], row[1]))


def is_unknown(frame: Frame) -> bool:
    """Whether the tool had no name for the frame. A chain of such frames of one module says no more than one of them."""
    return frame.kind in ("site", "unknown") and frame.function == UNKNOWN


_Grouped = tuple[Trie, dict[int, int]]  # the groups' tree, and how many places each BELOW node stands for


def merged(tree: CallTree, key: Sequence[int], places: Sequence[int], chained: set[int]) -> _Grouped:
    """The tree in the direction it has, frames of group ROOT passed over.

    key: the group of each frame. places: of each BELOW frame how many it stands for. chained: groups of which neighbouring frames become one node.
    """
    trie, counted = Trie(ROOT), dict[int, int]()
    place = [0] * len(tree)
    own = tree.self_bytes()
    trie.own[0] = own[0]
    frames, parents = tree.frame, tree.parent
    for node in range(1, len(tree)):
        above, frame = place[parents[node]], frames[node]
        group = key[frame]
        if group == ROOT or (group in chained and trie.frame[above] == group):
            here = above
        else:
            here = trie.child(above, group)
            if group == BELOW:
                counted[here] = counted.get(here, 0) + places[frame]
        place[node] = here
        trie.own[here] += own[node]
    return trie, counted


def _turned(tree: CallTree, key: Sequence[int], places: Sequence[int], chained: set[int], least: float) -> _Grouped:
    """The tree in the other direction, the largest nodes first.

    Stacks that part at their far ends share nothing, so a turned tree can have as many nodes as its stacks have frames together. Nodes below
    `least` are not opened; those for which `MOST_NODES` leave no room are gathered.
    """
    trie, counted = Trie(ROOT), dict[int, int]()
    own, frames, parents = tree.self_bytes(), tree.frame, tree.parent
    trie.own[0] = own[0]
    limit = least * tree.bytes[0]
    ends = [node for node in range(1, len(tree)) if own[node] > 0]
    todo: list[tuple[int, int, list[tuple[int, int]]]] = [(-sum(own[end] for end in ends), 0, [(end, end) for end in ends])]
    while todo:
        _, here, stacks = heapq.heappop(todo)
        above = trie.frame[here]
        parts: dict[int, list[tuple[int, int]]] = {}
        for end, node in stacks:
            while node > 0 and ((group := key[frames[node]]) == ROOT or (group in chained and group == above)):
                node = parents[node]
            if node > 0:
                parts.setdefault(group, []).append((end, node))
            else:
                trie.own[here] += own[end]
        for group, inside in parts.items():
            size = sum(own[end] for end, _ in inside)
            small = group != BELOW and (size < limit or len(trie) >= MOST_NODES)
            child = trie.child(here, BELOW if small else group)
            if small or group == BELOW:
                counted[child] = counted.get(child, 0) + (1 if small else sum(places[frames[node]] for _, node in inside))
            if small:
                trie.own[child] += size
            else:
                heapq.heappush(todo, (-size, child, [(end, parents[node]) for end, node in inside]))
    return trie, counted


def _gathered(trie: Trie, counted: dict[int, int], least: float) -> tuple[list[int], list[int], list[int], list[int]]:
    """The columns of a Shape: nodes below `least` of the whole are gathered at their parent, with those that the tool left out there."""
    size = list(trie.own)
    add_up(size, trie.parent)
    children: dict[int, list[int]] = {}
    for node in range(1, len(size)):
        if size[node] > 0:
            children.setdefault(trie.parent[node], []).append(node)
    limit = least * size[0]
    groups, parents, sizes, places = list[int](), list[int](), list[int](), list[int]()
    todo = [(0, -1, size[0], 0)]
    while todo:
        node, parent, whole, count = todo.pop()
        number = len(groups)
        groups.append(trie.frame[node] if node >= 0 else BELOW)
        parents.append(parent)
        sizes.append(whole)
        places.append(count)
        if node < 0:
            continue
        small, small_places, left_out, after = 0, 0, -1, []
        for child in children.get(node, ()):
            if trie.frame[child] == BELOW:
                left_out = child
            elif size[child] < limit:
                small, small_places = small + size[child], small_places + 1
            else:
                after.append(child)
        if left_out >= 0 or small:
            whole = small + (size[left_out] if left_out >= 0 else 0)
            todo.append((left_out, number, whole, small_places + counted.get(left_out, 0)))
        todo.extend((child, number, size[child], 0) for child in sorted(after, key=lambda child: size[child]))
    return groups, parents, sizes, places
