"""What grew and what shrank between two profiles: by call path, by function, by module, and the peak as a whole.

Frames are matched by what survives a rebuild: the function's name without clone suffixes and hashes, and for a Python function the name of its
file. Addresses, line numbers, build folders and the versions in library names are left aside. A place that one tree lacks may have been too
small for the tool to list; then its absence is not zero, and `Side.limit_bytes` says how much it can have been.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import UndecidedError
from ..units import format_bytes
from . import wording
from .frames import NO_MODULE, UNKNOWN, Frame
from .names import is_allocator, module_name, nameless
from .profile import HeapProfile, Snapshot
from .shape import is_unknown
from .trees import Trie

BELOW = "(smaller places)"
_SKIP = -1
_MOST_NODES = 300_000  # of a turned tree, which can have as many as its stacks have frames together
# What a compiler adds to a name from build to build: GCC's clones, LLVM's and Rust's hashes.
_BUILD = re.compile(r"(?:\.(?:isra|constprop|part|cold|lto_priv|llvm)(?:\.\d+)*|\s*\[clone [^\]]*\]|::h[0-9a-f]{16})+(?=$|\s|\()")
_UNNAMED = re.compile(r"\{(?:lambda|unnamed)[^{}]*\}")


@dataclass(frozen=True)
class Side:
    """One of the two: its profile, the snapshot whose tree is compared, and the largest place that this tree may lack, in bytes."""

    profile: HeapProfile
    shown: Snapshot | None
    limit_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The largest total of the profile, with or without a tree."""
        return self.profile.peak.total_bytes if self.profile.snapshots else 0

    @property
    def tree_bytes(self) -> int:
        """What the compared tree holds."""
        return 0 if self.shown is None or self.shown.tree is None else self.shown.tree.bytes[0]


@dataclass(frozen=True)
class Change:
    """A function, a module or a node of the tree, before and after. None: the tree has no such place."""

    name: str
    before_bytes: int | None
    after_bytes: int | None
    module: str = ""

    @property
    def growth_bytes(self) -> int:
        """After less before, a place that a tree lacks as nothing."""
        return (self.after_bytes or 0) - (self.before_bytes or 0)


@dataclass(frozen=True)
class Diff:
    """Two profiles set against each other.

    tree, parent: the call paths of both, depth first, sites first, node 0 the whole; a child's parent stands before it. functions, modules: by
    what they allocate, the largest change first. notes: what makes the figures less than they look.
    """

    before: Side
    after: Side
    tree: tuple[Change, ...]
    parent: tuple[int, ...]
    functions: tuple[Change, ...]
    modules: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def growth_bytes(self) -> int:
        """How much the peak grew."""
        return self.after.peak_bytes - self.before.peak_bytes

    @property
    def growth(self) -> float | None:
        """The same as a share of the earlier peak; None where that was nothing."""
        return self.growth_bytes / self.before.peak_bytes if self.before.peak_bytes else None


def diff(before: HeapProfile, after: HeapProfile, *, phase: str | None = None, invert: bool = False, fold: bool = True) -> Diff:
    """Compare the largest trees of two profiles, of a phase or of all. invert: the program's entry first.

    Raises UsageError or InputError for a phase that one of them does not have.
    """
    sides = [_side(profile, wording.chosen(profile, None, phase)) for profile in (before, after)]
    names = _Names()
    tries = [_paths(side, names, identity, invert, fold) for side in sides]
    tree, parent = _joined(tries[0], tries[1], names)
    flat = tries if not invert else [_paths(side, names, identity, False, fold) for side in sides]
    functions = _changes([_sites(trie) for trie in flat], names)
    grouped = _Names()
    modules = _changes([_sites(_paths(side, grouped, _module, False, fold)) for side in sides], grouped)
    return Diff(sides[0], sides[1], tree, parent, functions, modules, tuple(_notes(*sides)))


def verdict(found: Diff, limit: float) -> bool:
    """Whether the peak grew by more than the limit, a share (0.05 for 5%). From nothing to something is growth beyond any limit.

    Raises UndecidedError where the profiles cannot tell: they count different things, or the one that lacks its end could still have been larger.
    """
    if other := wording.comparable([found.before.profile, found.after.profile]):
        raise UndecidedError(f"whether the heap grew cannot be decided: {other[0][0].lower()}{other[0][1:]}")
    grew = found.growth_bytes > limit * found.before.peak_bytes
    unsure = found.before.profile if grew else found.after.profile
    if unsure.partial:
        raise UndecidedError(f"whether the heap grew cannot be decided: {unsure.path} is partial ({unsure.partial.rstrip('.')})")
    return grew


# -- what a frame is matched by


def identity(frame: Frame) -> tuple[str, str]:
    """A frame's name as both builds have it, by which it is matched, and its module, which is only shown.

    A build without debug information knows a library where another knows a source file, so the module is no part of what must agree.
    """
    module = "" if frame.module == NO_MODULE else module_name(frame)
    if frame.function == UNKNOWN:
        return nameless(frame), module
    name = _BUILD.sub("", _UNNAMED.sub("{lambda}", frame.function)).strip() or frame.function
    if frame.file is not None and frame.file.endswith(".py"):
        name = f"{name} ({os.path.basename(frame.file)})"
    return name, module


def _module(frame: Frame) -> tuple[str, str]:
    return module_name(frame), ""


class _Names:
    """The numbers of names, and the module in which each was seen last."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.module: list[str] = []

    def __call__(self, name: str, module: str) -> int:
        found = self.number.setdefault(name, len(self.number))
        if found == len(self.module):
            self.module.append(module)
        elif module:
            self.module[found] = module
        return found

    def listed(self) -> list[tuple[str, str]]:
        return list(zip(self.number, self.module, strict=True))


def _side(profile: HeapProfile, shown: Snapshot | None) -> Side:
    limit = 0
    if shown is not None and shown.tree is not None:
        below = [number for number, frame in enumerate(profile.frames) if frame.kind == "below"]
        wanted = set(below)
        limit = max((size for number, size in zip(shown.tree.frame, shown.tree.bytes, strict=True) if number in wanted), default=0)
    return Side(profile, shown, limit)


def _paths(side: Side, names: _Names, named: Callable[[Frame], tuple[str, str]], invert: bool, fold: bool) -> Trie:
    """A side's tree over the names of both sides."""
    trie = Trie(_SKIP)
    if side.shown is None or side.shown.tree is None:
        return trie
    key = []
    for frame in side.profile.frames:
        if frame.kind == "root" or (fold and is_allocator(frame)):
            key.append(_SKIP)
        else:
            key.append(names(*((BELOW, "") if frame.kind == "below" else named(frame))))
    runs = {key[number] for number, frame in enumerate(side.profile.frames) if is_unknown(frame)}
    tree = side.shown.tree
    own, parents, frames = tree.self_bytes(), tree.parent, tree.frame
    trie.own[0] = own[0]
    if (tree.direction == "callers") != invert:
        place = [0] * len(tree)
        for node in range(1, len(tree)):
            above, number = place[parents[node]], key[frames[node]]
            skipped = number == _SKIP or (number in runs and trie.frame[above] == number)
            place[node] = above if skipped else trie.child(above, number)
            trie.own[place[node]] += own[node]
        return trie
    for end in sorted((node for node in range(1, len(tree)) if own[node] > 0), key=lambda node: -own[node]):
        here, node = 0, end
        if len(trie) >= _MOST_NODES:
            trie.own[trie.child(0, names(BELOW, ""))] += own[end]
            continue
        while node > 0:
            number = key[frames[node]]
            if number != _SKIP and not (number in runs and trie.frame[here] == number):
                here = trie.child(here, number)
            node = parents[node]
        trie.own[here] += own[end]
    return trie


def _sizes(trie: Trie) -> list[int]:
    size = list(trie.own)
    for node in range(len(size) - 1, 0, -1):
        size[trie.parent[node]] += size[node]
    return size


def _joined(one: Trie, other: Trie, names: _Names) -> tuple[tuple[Change, ...], tuple[int, ...]]:
    """Both trees as one, children with the largest change first."""
    both, called = Trie(_SKIP), names.listed()
    sizes: list[dict[int, int]] = []
    for trie in (one, other):
        size, place, at = _sizes(trie), [0] * len(trie), dict[int, int]()
        for node in range(len(trie)):
            if node:
                place[node] = both.child(place[trie.parent[node]], trie.frame[node])
            at[place[node]] = size[node]
        sizes.append(at)
    before, after = sizes
    children: dict[int, list[int]] = {}
    for node in range(1, len(both)):
        children.setdefault(both.parent[node], []).append(node)
    found, parents, todo = list[Change](), list[int](), [(0, -1)]
    while todo:
        node, parent = todo.pop()
        name, module = ("all of the heap", "") if not node else called[both.frame[node]]
        number = len(found)
        found.append(Change(name, before.get(node), after.get(node), module))
        parents.append(parent)
        order = sorted(children.get(node, ()), key=lambda child: abs(after.get(child, 0) - before.get(child, 0)))
        todo.extend((child, number) for child in order)
    return tuple(found), tuple(parents)


def _sites(trie: Trie) -> dict[int, int]:
    """What each first frame of a stack allocates."""
    size = _sizes(trie)
    return {trie.frame[node]: size[node] for node in range(1, len(trie)) if trie.parent[node] == 0}


def _changes(sites: Sequence[dict[int, int]], names: _Names) -> tuple[Change, ...]:
    """The largest change first."""
    before, after = sites
    called = names.listed()
    found = (Change(called[key][0], before.get(key), after.get(key), called[key][1]) for key in dict.fromkeys([*before, *after]))
    return tuple(sorted(found, key=lambda one: (-abs(one.growth_bytes), one.name)))


def _notes(before: Side, after: Side) -> list[str]:
    found = wording.comparable([before.profile, after.profile])
    modules = [wording.modules(side.profile) for side in (before, after)]
    if modules[0] != modules[1]:
        found += [f"{word}: {sentence}" for word, sentence in zip("AB", modules, strict=True) if sentence]
    for side, word in ((before, "A"), (after, "B")):
        found += [f"{word}: {remark}" for remark in wording.remarks(side.profile, side.shown)]
        if side.limit_bytes:
            found.append(
                f"{word}: places that its tree does not list were too small for the tool, not gone: at most "
                f"{format_bytes(side.limit_bytes)} together at one place of the tree."
            )
    return found
