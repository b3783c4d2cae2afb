"""The growth between two profiles: by call path, by function, by module, and of the peak as a whole.

Frames are matched by the names that survive a rebuild: the function's without clone suffixes and hashes, and for a Python function its file,
which may lie in another folder in the other profile (memprof.heap.file_names says which is the same).
Addresses, build folders and the versions in library names are left aside, and line numbers too unless lines are compared. A
place that one tree lacks may have been too small for the tool to list. Its absence is not zero then, and `DiffSide.limit_bytes` says how large it
can have been.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import UndecidedError
from ..base.units import format_bytes
from . import phrases
from .file_names import FileNames, file_name, one_path, same_files, short_file
from .frames import NO_MODULE, By, Frame
from .names import is_allocator, module_name, nameless, own_name, short_module, with_place
from .profile import HeapProfile, Snapshot
from .program_lines import program_tree
from .shape import BELOW, ROOT, grouped, is_unknown
from .trees import Trie, add_up

# Compilers add these to a name, others in each build: GCC's clones, LLVM's and Rust's hashes.
_BUILD = re.compile(r"(?:\.(?:isra|constprop|part|cold|lto_priv|llvm)(?:\.\d+)*|\s*\[clone [^\]]*\]|::h[0-9a-f]{16})+(?=$|\s|\()")
_UNNAMED = re.compile(r"\{(?:lambda|unnamed)[^{}]*\}")


class DiffSide(Struct, frozen=True):
    """One of two profiles, the snapshot whose tree is compared, and the largest place that this tree may lack, in bytes."""

    profile: HeapProfile
    shown: Snapshot | None
    limit_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The largest total of the profile, with or without a tree."""
        return self.profile.peak.total_bytes if self.profile.snapshots else 0

    @property
    def tree_bytes(self) -> int:
        """The size of the compared tree."""
        return 0 if self.shown is None or self.shown.tree is None else self.shown.tree.bytes[0]


class SiteChange(Struct, frozen=True):
    """A function, a line, a module or a node of the tree, before and after. None: the tree has no such place. source: `file.py:12` of a line,
    `file.py` of a function of Python; else empty. own_name: without the source."""

    own_name: str
    before_bytes: int | None
    after_bytes: int | None
    module: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """The name with the source."""
        return with_place(self.own_name, self.source)

    @property
    def growth_bytes(self) -> int:
        """After less before; a place that a tree lacks counts as 0."""
        return (self.after_bytes or 0) - (self.before_bytes or 0)


class Diff(Struct, frozen=True):
    """Two profiles set against each other.

    tree, parent: the call paths of both, depth first, sites first, node 0 the whole; a child's parent stands before it. sites, modules: functions or
    lines, and modules, by the bytes they allocate, the largest change first. notes: sentences on why the figures say less than they seem to.
    """

    before: DiffSide
    after: DiffSide
    tree: tuple[SiteChange, ...]
    parent: tuple[int, ...]
    sites: tuple[SiteChange, ...]
    modules: tuple[SiteChange, ...]
    notes: tuple[str, ...]

    @property
    def growth_bytes(self) -> int:
        """How much the peak grew."""
        return self.after.peak_bytes - self.before.peak_bytes

    @property
    def growth(self) -> float | None:
        """The same as a share of the earlier peak; None if that was 0."""
        return self.growth_bytes / self.before.peak_bytes if self.before.peak_bytes else None


def diff(
    before: HeapProfile, after: HeapProfile, *, phase: str | None = None, by: By = "function", invert: bool = False, fold: bool = True
) -> Diff:
    """Compare the largest trees of two profiles, of a phase or of all. Two builds of a program are one module, `old -> new`.

    by: what the tree and the sites are made of; a line that has moved is another line. invert: the program's entry first. fold: allocators' frames
    are left out, and stacks of Python have the lines of the program alone.
    Raises UsageError or InputError for a phase that a profile does not have.
    """
    before, after = _as_one_program(before, after)
    sides = [_side(profile, phrases.chosen(profile, None, phase)) for profile in (before, after)]
    files = joint_files(before, after)
    places = _PlaceTable()
    tree, parent = _joined([_paths(side, known, places, by, invert, fold) for side, known in zip(sides, files, strict=True)], places)
    sites, modules = (_site_changes(sides, files, each, fold) for each in ("function" if by == "module" else by, "module"))
    return Diff(sides[0], sides[1], tree, parent, sites, modules, tuple(_notes(*sides)))


def verdict(difference: Diff, limit: float) -> bool:
    """Whether the peak grew by more than the limit, a share (0.05 for 5%). Growth from 0 is beyond any limit.

    Raises UndecidedError if the profiles cannot tell: they count different things, or a partial profile could still have been larger.
    """
    if reasons := phrases.comparable([difference.before.profile, difference.after.profile]):
        raise UndecidedError(f"whether the heap grew cannot be decided: {reasons[0][0].lower()}{reasons[0][1:]}")
    grew = difference.growth_bytes > limit * difference.before.peak_bytes
    unsure = difference.before.profile if grew else difference.after.profile
    if unsure.partial:
        raise UndecidedError(f"whether the heap grew cannot be decided: {unsure.path} is partial ({unsure.partial.rstrip('.')})")
    return grew


# -- matching frames


class MatchedPlace(NamedTuple):
    """What a frame is in both builds: the name by which it is matched, and what is shown, which need not agree. own_name: without the source.

    A build without debug information knows a library where another knows a source file. A package may be a checkout in one of them.
    """

    key: str
    own_name: str
    module: str = ""
    source: str = ""


class JointFiles(NamedTuple):
    """The files of one of two profiles. names: those of both. joint: by function and path the path of the same file in the later profile, where
    that is another."""

    names: FileNames
    joint: Mapping[tuple[str, str], str]

    def place(self, key: str, own_name: str, module: str, frame: Frame, line: str = "") -> MatchedPlace:
        """The place of a frame that has a file. key: its function, as it is matched. line: behind the file's name."""
        assert frame.file is not None
        path = one_path(frame.file)
        path = self.joint.get((_function(frame), path), path)
        name = self.names.name(path)
        if name == short_file(path):  # tells it apart, and so does what this profile calls the file
            name = short_file(frame.file)
        return MatchedPlace(with_place(key, f"{path}{line}"), own_name, module, f"{name}{line}")


def joint_files(before: HeapProfile, after: HeapProfile) -> tuple[JointFiles, JointFiles]:
    """The files of both profiles, and which are the same: as files, and by function where a file alone does not tell."""
    first, last = (
        sorted({(_function(frame), one_path(frame.file)) for frame in profile.frames if frame.file}) for profile in (before, after)
    )
    same = _same_by([(file_name(path), path) for _, path in first], [(file_name(path), path) for _, path in last])
    moved = {(function, path): same.get((file_name(path), path), path) for function, path in first}
    by_function = _same_by(
        [(f"{function}\n{file_name(path)}", path) for (function, _), path in moved.items()],
        [(f"{function}\n{file_name(path)}", path) for function, path in last],
    )
    joint = {(function, old): by_function.get((f"{function}\n{file_name(path)}", path), path) for (function, old), path in moved.items()}
    names = FileNames([*moved.values(), *(path for _, path in last)])
    return JointFiles(names, joint), JointFiles(names, {})


def _same_by(before: Iterable[tuple[str, str]], after: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The files of each group that are the same. before, after: each file behind the name of its group."""
    groups: dict[str, tuple[set[str], set[str]]] = {}
    for side, files in enumerate((before, after)):
        for group, path in files:
            groups.setdefault(group, (set(), set()))[side].add(path)
    return {(group, first): last for group, sides in groups.items() for first, last in same_files(*sides).items()}


def _function(frame: Frame) -> str:
    """The name of a frame's function that survives a rebuild."""
    return _BUILD.sub("", _UNNAMED.sub("{lambda}", frame.function)).strip() or frame.function


def identity(frame: Frame, files: JointFiles) -> MatchedPlace:
    """A frame as a function."""
    module = "" if frame.module == NO_MODULE else module_name(frame)
    if _has_no_name(frame):
        return _matched(nameless(frame), module)
    name = _function(frame)
    if frame.file is not None and frame.file.endswith(".py"):
        return files.place(name, name, module, frame)
    return _matched(name, module)


def _matched(name: str, module: str = "") -> MatchedPlace:
    """A place that is matched by what is shown."""
    return MatchedPlace(name, name, module)


def _line(frame: Frame, files: JointFiles) -> MatchedPlace:
    function = identity(frame, files)
    if frame.file is None or not frame.line:
        return function
    return files.place(frame.function, own_name(frame, "line"), function.module, frame, f":{frame.line}")


def _module(frame: Frame, files: JointFiles) -> MatchedPlace:
    return _matched(module_name(frame))


_MATCHED: dict[By, Callable[[Frame, JointFiles], MatchedPlace]] = {"function": identity, "line": _line, "module": _module}
_SMALLER, _WHOLE = _matched("(smaller places)"), _matched("all of the heap")


def _has_no_name(frame: Frame) -> bool:
    """Whether a frame has an offset at most, which is another one in another build."""
    return frame.kind == "unknown" or is_unknown(frame)


def _as_one_program(before: HeapProfile, after: HeapProfile) -> tuple[HeapProfile, HeapProfile]:
    """Both profiles with one module for the program itself, where two builds of it have two names: else each function of it would seem to be gone."""
    programs = _program(before), _program(after)
    names = [short_module(path) for path in programs if path is not None]
    if len(set(names)) < 2:
        return before, after
    joint = " -> ".join(names)
    made = [
        replace(profile, frames=tuple(replace(frame, module=joint) if frame.module == path else frame for frame in profile.frames))
        for profile, path in zip((before, after), programs, strict=True)
    ]
    return made[0], made[1]


def _program(profile: HeapProfile) -> str | None:
    """The module that is the recorded program; None if no frame lies in it."""
    called = os.path.basename(profile.command.split(" ", 1)[0])
    return next((frame.module for frame in profile.frames if frame.module and os.path.basename(frame.module) == called), None)


class _PlaceTable:
    """Numbers places by their keys, and keeps each as it was seen last with a module."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._places: list[MatchedPlace] = []

    def number(self, place: MatchedPlace) -> int:
        number = self._numbers.setdefault(place.key, len(self._numbers))
        if number == len(self._places):
            self._places.append(place)
        elif place.module:
            self._places[number] = place
        return number

    def at(self, number: int) -> MatchedPlace:
        """The place of this number, or of a group that has none of its own."""
        return {ROOT: _WHOLE, BELOW: _SMALLER}.get(number) or self._places[number]


def _side(profile: HeapProfile, shown: Snapshot | None) -> DiffSide:
    limit = 0
    if shown is not None and shown.tree is not None:
        below = {number for number, frame in enumerate(profile.frames) if frame.kind == "below"}
        limit = max((size for number, size in zip(shown.tree.frame, shown.tree.bytes, strict=True) if number in below), default=0)
    return DiffSide(profile, shown, limit)


def _paths(side: DiffSide, files: JointFiles, places: _PlaceTable, by: By, invert: bool, fold: bool) -> Trie:
    """A side's tree over the names of both sides."""
    if side.shown is None or side.shown.tree is None:
        return Trie(ROOT)
    key = []
    for frame in side.profile.frames:
        if frame.kind == "root" or (fold and is_allocator(frame)):
            key.append(ROOT)
        else:
            key.append(BELOW if frame.kind == "below" else places.number(_MATCHED[by](frame, files)))
    chained = {key[number] for number, frame in enumerate(side.profile.frames) if _has_no_name(frame)}
    tree = program_tree(side.profile, side.shown.tree, by) if fold else side.shown.tree
    return grouped(tree, invert, key, [0] * len(key), chained)[0]


def _sizes(trie: Trie) -> list[int]:
    sizes = list(trie.own)
    add_up(sizes, trie.parent)
    return sizes


def _joined(tries: Sequence[Trie], places: _PlaceTable) -> tuple[tuple[SiteChange, ...], tuple[int, ...]]:
    """Both trees as one, children with the largest change first."""
    both = Trie(ROOT)
    sizes: list[dict[int, int]] = []
    for trie in tries:
        size, joint, size_in_both = _sizes(trie), [0] * len(trie), dict[int, int]()
        for node in range(len(trie)):
            if node:
                joint[node] = both.child(joint[trie.parent[node]], trie.frame[node])
            size_in_both[joint[node]] = size[node]
        sizes.append(size_in_both)
    before, after = sizes
    children: dict[int, list[int]] = {}
    for node in range(1, len(both)):
        children.setdefault(both.parent[node], []).append(node)
    changes, parents, todo = list[SiteChange](), list[int](), [(0, -1)]
    while todo:
        node, parent = todo.pop()
        place = places.at(both.frame[node])
        number = len(changes)
        changes.append(_change(place, before.get(node), after.get(node)))
        parents.append(parent)
        order = sorted(children.get(node, ()), key=lambda child: abs(after.get(child, 0) - before.get(child, 0)))
        todo.extend((child, number) for child in order)
    return tuple(changes), tuple(parents)


def _change(place: MatchedPlace, before_bytes: int | None, after_bytes: int | None) -> SiteChange:
    return SiteChange(place.own_name, before_bytes, after_bytes, place.module, place.source)


def _sites(trie: Trie) -> dict[int, int]:
    """The bytes that each first frame of a stack allocates."""
    sizes = _sizes(trie)
    return {trie.frame[node]: sizes[node] for node in range(1, len(trie)) if trie.parent[node] == 0}


def _site_changes(sides: Sequence[DiffSide], files: Sequence[JointFiles], by: By, fold: bool) -> tuple[SiteChange, ...]:
    """The changes of what allocates, the largest first."""
    places = _PlaceTable()
    before, after = (_sites(_paths(side, known, places, by, False, fold)) for side, known in zip(sides, files, strict=True))
    changes = (_change(places.at(key), before.get(key), after.get(key)) for key in dict.fromkeys([*before, *after]))
    return tuple(sorted(changes, key=lambda change: (-abs(change.growth_bytes), change.name)))


def _moments(before: DiffSide, after: DiffSide) -> list[str]:
    """A sentence where the trees are of different phases, with the command for one phase that both have."""
    sides = [side for side in (before, after) if side.shown is not None and side.shown.phase is not None]
    phases = [side.shown.phase for side in sides if side.shown is not None]
    if len(sides) < 2 or phases[0] == phases[1]:
        return []
    common = [phase for phase in reversed(phases) if phase and all(side.profile.largest_tree(phase) for side in sides)]
    if not common:
        return []
    words = ["memprof", "heap", "diff", *(side.profile.path for side in sides), "--at-phase", common[0]]
    return [f"The peaks are at different moments, {phases[0]} and {phases[1]}. One phase of both: {shlex.join(words)}"]


def _notes(before: DiffSide, after: DiffSide) -> list[str]:
    notes = phrases.comparable([before.profile, after.profile])
    notes += _moments(before, after)
    modules = [phrases.modules(side.profile) for side in (before, after)]
    if modules[0] != modules[1]:
        notes += [f"{word}: {sentence}" for word, sentence in zip("AB", modules, strict=True) if sentence]
    for side, word in ((before, "A"), (after, "B")):
        notes += [f"{word}: {remark}" for remark in phrases.remarks(side.profile, side.shown)]
        if side.limit_bytes:
            notes.append(
                f"{word}: places that its tree does not list were too small for the tool, not gone: at most "
                f"{format_bytes(side.limit_bytes)} together at one place of the tree."
            )
    return notes
