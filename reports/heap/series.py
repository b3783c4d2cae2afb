"""How much each allocating function or module held over time: one column per snapshot with a tree, one row per site.

A profile of a hundred megabytes has a million nodes, so whole columns are worked on, never single nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from memprof.heap.frames import By
from memprof.heap.names import is_allocator, is_library
from memprof.heap.profile import HeapProfile, Snapshot
from memprof.heap.program_lines import program_tree
from memprof.heap.shape import FrameShares, LargestFrame
from memprof.heap.trees import CallTree
from memprof.records.metrics import BYTES

from ..tables.grid import Unit, choose_unit
from . import labels

Ints = NDArray[Any]
_LEAST = 0.005  # of the largest total: a smaller area would not be seen


class SiteSeries(Struct, frozen=True):
    """Bytes by site over time. snapshots: those with a tree, in the order of time; sites: the largest, the largest first.

    values: one row per site, one column per snapshot. others: the bytes of all other sites together; unnamed: those that the tool had left out
    or could not name.
    """

    snapshots: tuple[Snapshot, ...]
    sites: tuple[labels.FrameLabel, ...]
    values: Ints
    others: Ints
    unnamed: Ints


def series(profile: HeapProfile, by: By, most: int, fold: bool = True, snapshots: Sequence[Snapshot] | None = None) -> SiteSeries:
    """The `most` largest sites of these snapshots (of all where None) by the most that each ever held.

    fold: a site is the first frame that is neither an allocator's nor the standard library's, in a stack of Python the nearest line of the program;
    else the first of all.
    """
    chosen = [snapshot for snapshot in (profile.snapshots if snapshots is None else snapshots) if snapshot.tree is not None]
    trees = [snapshot.tree for snapshot in chosen if snapshot.tree is not None]
    trees = [program_tree(profile, tree, by) for tree in trees] if fold else trees
    key, names = profile.keys(by, fold)
    hidden = numpy.array([frame.kind in ("root", "below") or (fold and is_allocator(frame)) for frame in profile.frames], bool)
    below = numpy.array([frame.kind == "below" for frame in profile.frames], bool)
    passed = (hidden & ~below) | numpy.array([fold and is_library(frame) for frame in profile.frames], bool)
    groups = numpy.where(hidden, -1, numpy.array(key, "i8"))
    held = numpy.zeros((len(chosen), len(names)), "i8")
    unnamed = numpy.zeros(len(chosen), "i8")
    for place, tree in enumerate(trees):
        sizes = of_tree(tree, groups, passed, len(names))
        held[place] = sizes
        unnamed[place] = tree.bytes[0] - int(sizes.sum())
    largest = held.max(0, initial=0)
    least = _LEAST * max((snapshot.total_bytes for snapshot in chosen), default=0)
    order = [int(group) for group in numpy.argsort(-largest, kind="stable") if largest[group] > least][: most + 1]
    if len(order) > most and int((largest > 0).sum()) > most + 1:  # else a last site takes no more room than "others" would
        order = order[:most]
    shares = FrameShares(profile.frames, groups.tolist(), by)
    one_by_one = numpy.where(hidden, -1, numpy.arange(len(groups)))
    for place in sorted({int(held[:, group].argmax()) for group in order}):  # where each site is named, it held most
        sizes = of_tree(trees[place], one_by_one, passed, len(groups))
        for frame in numpy.flatnonzero((sizes > 0) & numpy.isin(groups, numpy.flatnonzero(held.argmax(0) == place))).tolist():
            shares.add(int(groups[frame]), frame, int(sizes[frame]))
    sites = tuple(_label(profile, shares.largest(group, group), names[group], by) for group in order)
    values = held[:, order].T
    return SiteSeries(tuple(chosen), sites, values, held.sum(1) - values.sum(0), numpy.maximum(unnamed, 0))


def _label(profile: HeapProfile, largest: LargestFrame, name: str, by: By) -> labels.FrameLabel:
    """The label of a site: by lines, the line is a part of its name."""
    label = labels.group_label(profile, largest, name, by)
    return replace(label, text=f"{label.text} {label.source}") if by == "line" and label.source else label


def time_axis(profile: HeapProfile) -> tuple[Unit, str]:
    """The unit of the time axis and its caption."""
    if profile.total:
        return Unit("", 1.0), "one moment"
    last = max((snapshot.time for snapshot in profile.snapshots), default=0)
    if profile.time_unit == "i":
        name, size = next(((name, size) for name, size in (("10⁹", 1e9), ("10⁶", 1e6), ("10³", 1e3)) if last >= size), ("", 1.0))
        return Unit(name, size), f"{name} instructions since the program's start".lstrip()
    if profile.time_unit == "B":
        unit = choose_unit(BYTES, [last])
        return unit, unit.caption("bytes allocated and freed so far")
    seconds = 1000.0 if profile.time_unit == "ms" else 1.0
    unit = Unit("s", seconds) if last >= 2 * seconds else Unit("ms", seconds / 1000)
    return unit, unit.caption("time since the first event" if profile.tool == "torch" else "time since the program's start")


def thinned(snapshots: Sequence[Snapshot], most: int) -> list[Snapshot]:
    """At most about so many snapshots, spread evenly: of each stretch the largest, and the largest that has a tree."""
    if len(snapshots) <= most:
        return list(snapshots)
    borders = numpy.linspace(0, len(snapshots), most // 2 + 1).astype(int).tolist()
    kept = {0, len(snapshots) - 1}
    for begin, end in pairwise(borders):
        inside = range(begin, end)
        kept.add(max(inside, key=lambda place: snapshots[place].total_bytes))
        trees = [place for place in inside if snapshots[place].tree is not None]
        if trees:
            kept.add(max(trees, key=lambda place: snapshots[place].total_bytes))
    return [snapshots[place] for place in sorted(kept)]


Kind = Literal["site", "others", "unlisted", "extra", "stacks"]


class SiteArea(Struct, frozen=True):
    """A stacked area: its name, its kind, and its bytes at each snapshot with a tree."""

    name: labels.FrameLabel
    kind: Kind
    values: Ints


def rows(table: SiteSeries) -> list[SiteArea]:
    """The areas from the ground up: the largest site lowest, memory without a site at the top. Together they are the snapshots' totals."""
    site_rows = [SiteArea(name, "site", table.values[place]) for place, name in enumerate(table.sites)]
    extra = numpy.array([snapshot.extra_bytes for snapshot in table.snapshots], "i8")
    stacks = numpy.array([snapshot.stacks_bytes for snapshot in table.snapshots], "i8")
    more: tuple[tuple[str, Kind, Ints], ...] = (
        ("other sites", "others", table.others),
        ("places the tool left out as too small", "unlisted", table.unnamed),
        ("added by the allocator", "extra", extra),
        ("stacks", "stacks", stacks),
    )
    return site_rows + [SiteArea(labels.FrameLabel(name, name), kind, values) for name, kind, values in more if values.any()]


def filled(table: SiteSeries, snapshots: Sequence[Snapshot]) -> tuple[NDArray[numpy.float64], NDArray[numpy.bool_]]:
    """The areas at every snapshot, one row per area and one column per snapshot, and which columns are a tree's figures (or nothing at all).

    The others are estimated: between the neighbours that have a tree, as far as the total has come.
    snapshots: those of the table, and others of which only the total is known. A total beyond both neighbours is shared out as in the nearer
    of them. A picture must mark the estimates as such.
    """
    sizes = [row.values for row in rows(table)]
    areas = numpy.array(sizes, "i8").reshape(len(sizes), len(table.snapshots))
    place = {snapshot.index: column for column, snapshot in enumerate(table.snapshots)}
    has_tree = numpy.array([snapshot.index in place for snapshot in snapshots], bool)
    known = has_tree | numpy.array([snapshot.total_bytes == 0 for snapshot in snapshots], bool)
    values = numpy.zeros((len(areas), len(snapshots)))
    trees = numpy.flatnonzero(has_tree)
    if not len(trees):
        return values, known
    columns = numpy.array([place[snapshots[at].index] for at in trees])
    totals = numpy.array([snapshot.total_bytes for snapshot in snapshots], "f8")
    exact = areas[:, columns].astype("f8")
    for at in range(len(snapshots)):
        after = int(numpy.searchsorted(trees, at))
        if has_tree[at]:
            values[:, at] = exact[:, after]
            continue
        left, right = max(after - 1, 0), min(after, len(trees) - 1)
        low, high = totals[trees[left]], totals[trees[right]]
        share = min(max((totals[at] - low) / (high - low), 0.0), 1.0) if high != low else 0.0
        mixed = exact[:, left] * (1 - share) + exact[:, right] * share
        whole = mixed.sum()
        values[:, at] = mixed * (totals[at] / whole) if whole else 0.0
    return values, known


def of_tree(tree: CallTree, groups: Ints, passed: Ints, count: int) -> Ints:
    """The bytes of each group as the place that allocates: the first frame of a stack that is not passed over, or its outermost.

    groups: of each frame the number of its group, or -1; passed: whether it is passed over.
    """
    frame, parent, size = (numpy.asarray(column) for column in (tree.frame, tree.parent, tree.bytes))
    has_callers = numpy.zeros(len(frame), bool)
    has_callers[parent[1:]] = True
    open_ = passed[frame] & has_callers
    open_[0] = True
    front = numpy.zeros(len(frame), bool)  # nodes above which everything is passed over
    front[0] = True
    sites = numpy.zeros(len(frame), bool)
    while True:
        reached = front[parent]
        reached[0] = False
        sites |= reached & ~open_
        further = reached & open_
        if not (further & ~front).any():
            break
        front |= further
    site_groups = groups[frame[sites]]
    return numpy.bincount(site_groups[site_groups >= 0], size[sites][site_groups >= 0], count).astype("i8")
