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
from .program_lines import program_tree
from .trees import CallTree, Trie, add_up, take_apart

ROOT, BELOW = -1, -2
_LEAST_LINE = 0.01  # of a node's bytes: a smaller line is not worth a word
MOST_NODES = 300_000  # of a turned tree, which can have as many as its stacks have frames together


class LargestFrame(Struct, frozen=True):
    """The frame that stands for a node or a group, of its largest source line. lines: how many lines have at least a hundredth of its bytes."""

    frame: int
    lines: int = 1


_NO_FRAME = LargestFrame(0)  # of the root and of gathered nodes


class Shape(Struct, frozen=True):
    """Nodes in depth-first order, larger children first, gathered ones last; node 0 is the whole.

    group: the place of the node's name in `names`; ROOT, or BELOW for places too small for the tool or for this view. bytes: with those of
    its children. places: how many a BELOW node stands for, 0 if that is not known. frames: of each node the frame whose line is shown. inverted:
    the program's entry first.
    """

    group: list[int]
    parent: list[int]
    bytes: list[int]
    places: list[int]
    frames: list[LargestFrame]
    names: list[str]
    inverted: bool

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
    """A tree's shape: sites first or, inverted, the program's entry first. fold: allocators' own frames are passed over, and stacks of Python have
    the lines of the program alone.

    least: the share of the whole below which nodes are gathered, 0.01 for 1%.
    """
    tree = program_tree(profile, tree, by) if fold else tree
    key, names = profile.keys(by, fold)
    for number, frame in enumerate(profile.frames):
        if frame.kind == "below":
            key[number] = BELOW
    places = [frame.places or 0 for frame in profile.frames]
    chained = (
        set(range(len(names))) if by == "module" else {key[number] for number, frame in enumerate(profile.frames) if is_unknown(frame)}
    )
    shares = FrameShares(profile.frames, key, by)
    return Shape(*_gathered(*grouped(tree, invert, key, places, chained, shares, least), shares, least), names, invert)


def sums(profile: HeapProfile, tree: CallTree, *, by: By = "function", fold: bool = True) -> list[tuple[LargestFrame, str, int, int]]:
    """Sums by group: (the frame whose line is shown, its name, own bytes, total bytes), the largest own first.

    Own: of the stacks whose first frame that is not passed over is of the group. Total: of the stacks that hold the group anywhere, each stack
    counted once. The line is that of the largest own bytes, of a group without any that of the largest total. It takes one pass, whatever the depth.
    """
    tree = program_tree(profile, tree, by) if fold else tree
    key, names = profile.keys(by, fold)
    own_of, total_of = [0] * len(names), [0] * len(names)
    for number, frame in enumerate(profile.frames):
        if frame.kind == "below":
            key[number] = ROOT
    own_shares, total_shares = (FrameShares(profile.frames, key, by) for _ in range(2))
    own, parents, frames = tree.self_bytes(), tree.parent, tree.frame
    site, site_frame = [ROOT] * len(tree), [0] * len(tree)
    open_on_path = [0] * len(names)
    path: list[int] = []
    for node in range(1, len(tree)):
        above, group = parents[node], key[frames[node]]
        while path and path[-1] != above:
            if (left := key[frames[path.pop()]]) >= 0:
                open_on_path[left] -= 1
        path.append(node)
        site[node], site_frame[node] = site[above], site_frame[above]
        if group >= 0:
            if not open_on_path[group]:
                total_of[group] += tree.bytes[node]
                total_shares.add(group, frames[node], tree.bytes[node])
            open_on_path[group] += 1
            if site[above] < 0:
                site[node], site_frame[node] = group, frames[node]
        if site[node] >= 0:
            own_of[site[node]] += own[node]
            own_shares.add(site[node], site_frame[node], own[node])
    rows = [
        ((own_shares if own_of[group] else total_shares).largest(group, group), names[group], own_of[group], total_of[group])
        for group in range(len(names))
        if total_of[group]
    ]
    return sorted(rows, key=lambda row: (-row[2], -row[3], row[1]))


def is_unknown(frame: Frame) -> bool:
    """Whether the tool had no name for the frame. A chain of such frames of one module says no more than one of them."""
    return frame.kind in ("site", "unknown") and frame.function == UNKNOWN


class FrameShares:
    """The bytes that each frame has in a node or a group, counted where the frames of one group differ in source line or module."""

    def __init__(self, frames: Sequence[Frame], key: Sequence[int], by: By) -> None:
        self._frames = frames
        self._first: dict[int, LargestFrame] = {}
        self._held: dict[int, dict[int, int]] = {}
        places: dict[int, set[tuple[str | None, int | None, str | None]]] = {}
        for number, group in enumerate(key):
            if group >= 0:
                self._first.setdefault(group, LargestFrame(number))
                places.setdefault(group, set()).add((frames[number].file, frames[number].line, frames[number].module))
        several = set() if by == "module" else {group for group, seen in places.items() if len(seen) > 1}
        self._counted = {number for number, group in enumerate(key) if group in several}

    def add(self, node: int, frame: int, size: int) -> None:
        """Add bytes that a node has from a frame of its group."""
        if frame in self._counted:
            held = self._held.setdefault(node, {})
            held[frame] = held.get(frame, 0) + size

    def largest(self, node: int, group: int) -> LargestFrame:
        """The frame that stands for a node."""
        held = self._held.get(node)
        if not held:
            return self._first[group]
        lines: dict[tuple[str | None, int | None], int] = {}
        for number, size in held.items():
            line = self._line(number)
            lines[line] = lines.get(line, 0) + size
        most = max(lines, key=lambda line: lines[line])
        frame = max((number for number in held if self._line(number) == most), key=lambda number: held[number])
        least = _LEAST_LINE * sum(lines.values())
        return LargestFrame(frame, max(sum(size >= least for size in lines.values()), 1))

    def _line(self, number: int) -> tuple[str | None, int | None]:
        return self._frames[number].file, self._frames[number].line


_Grouped = tuple[Trie, dict[int, int]]  # the groups' tree, and how many places each BELOW node stands for


def grouped(
    tree: CallTree,
    invert: bool,
    key: Sequence[int],
    places: Sequence[int],
    chained: set[int],
    shares: FrameShares | None = None,
    least: float = 0.0,
) -> _Grouped:
    """The tree by groups, sites or, inverted, the program's entry first; frames of group ROOT are passed over.

    key: the group of each frame. places: of each BELOW frame how many it stands for. chained: groups of which neighbouring frames become one node.
    shares: gets the bytes of each node by its frames. least: the share of the whole below which nodes need not be told apart.
    """
    return _turned(tree, key, places, chained, shares, least) if invert else _merged(tree, key, places, chained, shares)


def _merged(tree: CallTree, key: Sequence[int], places: Sequence[int], chained: set[int], shares: FrameShares | None) -> _Grouped:
    """Sites first."""
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
            elif shares is not None:
                shares.add(here, frame, tree.bytes[node])
        place[node] = here
        trie.own[here] += own[node]
    return trie, counted


def _turned(
    tree: CallTree, key: Sequence[int], places: Sequence[int], chained: set[int], shares: FrameShares | None, least: float
) -> _Grouped:
    """The program's entry first, the largest nodes first.

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
                if shares is not None:
                    for end, node in inside:
                        shares.add(child, frames[node], own[end])
                heapq.heappush(todo, (-size, child, [(end, parents[node]) for end, node in inside]))
    return trie, counted


def _gathered(
    trie: Trie, counted: dict[int, int], shares: FrameShares, least: float
) -> tuple[list[int], list[int], list[int], list[int], list[LargestFrame]]:
    """The columns of a Shape: nodes below `least` of the whole are gathered at their parent, with those that the tool left out there."""
    size = list(trie.own)
    add_up(size, trie.parent)
    children: dict[int, list[int]] = {}
    for node in range(1, len(size)):
        if size[node] > 0:
            children.setdefault(trie.parent[node], []).append(node)
    limit = least * size[0]
    groups, parents, sizes, places, frames = list[int](), list[int](), list[int](), list[int](), list[LargestFrame]()
    todo = [(0, -1, size[0], 0)]
    while todo:
        node, parent, whole, count = todo.pop()
        number = len(groups)
        groups.append(trie.frame[node] if node >= 0 else BELOW)
        parents.append(parent)
        sizes.append(whole)
        places.append(count)
        frames.append(shares.largest(node, groups[-1]) if groups[-1] >= 0 else _NO_FRAME)
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
    return groups, parents, sizes, places, frames
