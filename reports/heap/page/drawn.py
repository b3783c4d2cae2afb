"""The figures that heap.js draws: totals and areas over time, and thin trees over one table of frames that all files share.

A page must open in a browser whatever the profile's size: at most `_MOST_SNAPSHOTS` points a file, `_MOST_TREES` trees, and of these only
nodes above a share of their snapshot that lets all of them together stay below `_MOST_NODES`; smaller ones are gathered at their parent.
The page states the share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from memprof.base.terminal_text import plain
from memprof.heap import phrases
from memprof.heap.frames import By
from memprof.heap.names import is_allocator, module_name, short
from memprof.heap.profile import HeapProfile, Snapshot
from memprof.heap.program_lines import has_python, program_tree
from memprof.heap.trees import CallTree

from ...short_names import shortened
from ...standalone import packed
from .. import labels
from ..series import filled, rows, series, thinned, time_axis

_MOST_SNAPSHOTS = 1200
_MOST_TREES = 300
_MOST_NODES = 200_000
_MOST_SITES = 10
_LONGEST = 3000  # letters of a name; templates get longer, and nobody reads them to their end
_SHARES = (0.0, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)
BELOW = -1


class Node(Struct, frozen=True):
    """A tree's columns, base64 of little-endian arrays: frame (int32, BELOW for gathered nodes), parent (int32), bytes (float64), places (int32)."""

    frame: str
    parent: str
    bytes: str
    places: str


class Stack(Struct, frozen=True):
    """Stacked areas: the name of each, and its bytes at every point."""

    names: tuple[str, ...]
    full: tuple[str, ...]
    modules: tuple[str, ...]
    kinds: tuple[str, ...]
    values: tuple[list[int], ...]


class ProfileDrawing(Struct, frozen=True):
    """A profile. A point is a snapshot that is drawn. noun: what the largest total is called. axis: the unit of time in words, and its size, 0 for a
    profile of one moment; moment: a point in words; known: whether the areas are a tree's figures, or nothing; tree: its place in trees, or -1."""

    name: str
    noun: str
    axis: tuple[str, float]
    index: list[int]
    time: list[float]
    moment: list[str]
    total: list[int]
    known: list[bool]
    tree: list[int]
    peak: int
    shown: int
    phases: list[tuple[str, float, float | None]]
    border_error: tuple[float, float]
    stacks: dict[str, Stack]
    trees: list[Node]
    left_out: int
    share: float


class ProfilePage(Struct, frozen=True):
    """frames: (name, module, source line, whether it is an allocator's); names: (short, full)."""

    files: list[ProfileDrawing]
    names: list[tuple[str, str]]
    modules: list[str]
    frames: list[tuple[int, int, str, int]]


class _Frames:
    """The table of frames, names and modules that all files share. Only frames that a tree on the page has are in it."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.modules: dict[str, int] = {}
        self.frames: dict[tuple[int, int, str, int], int] = {}

    def numbers(self, profile: HeapProfile, used: NDArray[Any]) -> NDArray[Any]:
        """The number of each used frame in the table, BELOW for those that are not places."""
        numbers = numpy.full(len(profile.frames), BELOW, "<i4")
        key, names = profile.keys("function", fold=False)
        for place in used.tolist():
            frame = profile.frames[place]
            if frame.kind not in ("below", "root"):
                name = self.names.setdefault(plain(names[key[place]]), len(self.names))
                module = self.modules.setdefault(plain(module_name(frame)), len(self.modules))
                row = (name, module, _cut(labels.source(frame, profile.file_names)), int(is_allocator(frame)))
                numbers[place] = self.frames.setdefault(row, len(self.frames))
        return numbers


def page(profiles: Sequence[HeapProfile], names: Sequence[str]) -> ProfilePage:
    """The figures of these profiles."""
    frames = _Frames()
    points = [_points(profile) for profile in profiles]
    trees = [
        [_cut_down(profile, snapshot) for snapshot in chosen if snapshot.tree] for profile, chosen in zip(profiles, points, strict=True)
    ]
    share = _share([snapshot.tree for chosen in trees for snapshot in chosen if snapshot.tree is not None])
    files = [
        _file(profile, name, shown, with_trees, share, frames)
        for profile, name, shown, with_trees in zip(profiles, names, points, trees, strict=True)
    ]
    return ProfilePage(
        files,
        [(_cut(plain(short(name))), _cut(name)) for name in frames.names],
        [_cut(name) for name in frames.modules],
        list(frames.frames),
    )


def _cut(text: str) -> str:
    return shortened(text, _LONGEST)


def _points(profile: HeapProfile) -> list[Snapshot]:
    """The snapshots that are drawn, with no more trees than a page has room for. A snapshot that loses its tree keeps its total."""
    chosen = thinned(profile.snapshots, _MOST_SNAPSHOTS)
    having = [snapshot for snapshot in chosen if snapshot.tree is not None]
    kept = {snapshot.index for snapshot in thinned(having, _MOST_TREES)}
    best = profile.peak_tree
    if best is not None:
        kept.add(best[0].index)
    return [snapshot if snapshot.index in kept else replace(snapshot, tree=None) for snapshot in chosen]


def _cut_down(profile: HeapProfile, snapshot: Snapshot) -> Snapshot:
    """The snapshot, whose stacks of Python have the lines of the program alone."""
    return snapshot if snapshot.tree is None else replace(snapshot, tree=program_tree(profile, snapshot.tree, "function"))


def _share(trees: Sequence[CallTree]) -> float:
    """The smallest share of a snapshot below which nodes are gathered so that all nodes have room."""
    for share in _SHARES:
        if sum(int((numpy.asarray(tree.bytes) >= share * tree.bytes[0]).sum()) for tree in trees) <= _MOST_NODES:
            return share
    return _SHARES[-1]


def _file(
    profile: HeapProfile, name: str, points: Sequence[Snapshot], with_trees: Sequence[Snapshot], share: float, frames: _Frames
) -> ProfileDrawing:
    below = numpy.array([frame.kind == "below" for frame in profile.frames], bool)
    places = numpy.array([frame.places or 0 for frame in profile.frames], "i8")
    trees = [snapshot.tree for snapshot in with_trees if snapshot.tree is not None]
    thin = [_thin(tree, share, below, places) for tree in trees]
    used = numpy.unique(numpy.concatenate([columns[0] for columns in thin])) if thin else numpy.zeros(0, "i8")
    numbers = frames.numbers(profile, used[used >= 0])
    number = {snapshot.index: place for place, snapshot in enumerate(with_trees)}
    peak = max(range(len(points)), key=lambda place: (points[place].total_bytes, points[place].tree is not None, -place)) if points else -1
    shown = max(
        (place for place, snapshot in enumerate(points) if snapshot.index in number),
        key=lambda place: points[place].total_bytes,
        default=peak,
    )
    time, caption = time_axis(profile)
    return ProfileDrawing(
        name=name,
        noun=phrases.total_noun(profile),
        axis=(caption, 0 if profile.total else time.size),
        index=[snapshot.index for snapshot in points],
        time=[snapshot.time for snapshot in points],
        moment=[plain(phrases.moment(profile, snapshot)) for snapshot in points],
        total=[snapshot.total_bytes for snapshot in points],
        known=[snapshot.index in number or snapshot.total_bytes == 0 for snapshot in points],
        tree=[number.get(snapshot.index, -1) for snapshot in points],
        peak=peak,
        shown=shown,
        phases=[(plain(span.name), span.begin, span.end) for span in profile.drawable_phases],
        border_error=profile.border_error,
        stacks={by: _stack(profile, by, points) for by in ("function", "module")} if points else {},
        trees=[_node(columns, numbers) for columns in thin],
        left_out=len(profile.snapshots) - len(points) + sum(snapshot.tree is not None for snapshot in profile.snapshots) - len(with_trees),
        share=share,
    )


def _stack(profile: HeapProfile, by: By, points: Sequence[Snapshot]) -> Stack:
    table = series(profile, by, _MOST_SITES, True, points)
    areas = rows(table)
    return Stack(
        tuple(_cut(area.name.text) for area in areas),
        tuple(_cut(area.name.full) for area in areas),
        tuple(_cut(area.name.module) for area in areas),
        tuple(area.kind for area in areas),
        tuple(row.astype("i8").tolist() for row in filled(table, points)[0]),
    )


_Columns = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def _thin(tree: CallTree, share: float, below: NDArray[Any], places: NDArray[Any]) -> _Columns:
    """A tree's frame, parent, bytes and places without nodes below the share. Nodes of frame -1, behind the others, hold their bytes."""
    frame, parent, size = (numpy.asarray(column) for column in (tree.frame, tree.parent, tree.bytes))
    keep = (size >= share * size[0]) & ~below[frame]
    keep[0] = True
    while True:  # a file may claim that a child holds more than its parent
        closed = keep & numpy.where(parent >= 0, keep[parent], True)
        if (closed == keep).all():
            break
        keep = closed
    number = numpy.cumsum(keep) - 1
    gone = ~keep & numpy.where(parent >= 0, keep[parent], True)
    at = number[parent[gone]]
    counts = numpy.where(below[frame[gone]], places[frame[gone]], 1)
    held = numpy.bincount(at, size[gone], int(keep.sum()))
    many = numpy.bincount(at, counts, int(keep.sum()))
    gathering = numpy.flatnonzero(held > 0)
    kept_parent = numpy.where(parent[keep] >= 0, number[parent[keep]], -1)
    return (
        numpy.concatenate([frame[keep], numpy.full(len(gathering), -1)]),
        numpy.concatenate([kept_parent, gathering]),
        numpy.concatenate([size[keep].astype("f8"), held[gathering]]),
        numpy.concatenate([numpy.zeros(int(keep.sum())), many[gathering]]),
    )


def _node(columns: _Columns, numbers: NDArray[Any]) -> Node:
    frame, parent, size, places = columns
    mapped = numpy.where(frame >= 0, numbers[frame], BELOW)
    return Node(
        packed(mapped, "<i4"),
        packed(parent, "<i4"),
        packed(size, "<f8"),
        packed(places, "<i4"),
    )


def estimated(data: ProfilePage) -> bool:
    """Whether any chart has estimated areas."""
    return any(file.trees and not all(file.known) for file in data.files)


def gathering(data: ProfilePage, profiles: Sequence[HeapProfile]) -> list[str]:
    """The sentences that say which nodes and snapshots the page leaves out."""
    sentences = []
    share = max((file.share for file in data.files), default=0.0)
    if share:
        sentences.append(f"Nodes below {100 * share:g}% of their snapshot are gathered at their parent.")
    if any(map(has_python, profiles)):
        sentences.append("Stacks of Python have the lines of the program alone; memprof heap show --no-fold has all.")
    if any(phrases.gathered(profile) for profile in profiles):
        sentences.append("The tool itself left out the smallest places; they stand as smaller places where they belong.")
    if any(file.left_out for file in data.files):
        kept = sum(len(file.index) for file in data.files)
        trees = sum(len(file.trees) for file in data.files)
        sentences.append(f"Of all snapshots {kept:,} are drawn, {trees:,} of them with their tree, the largest among them.")
    return sentences
