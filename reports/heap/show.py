"""A profile in the terminal: its peak, a chart of the total over time, the tree of one snapshot, and the largest sites and modules.

Right at any width from 60 columns, with and without colour; in a pipe it is plain text. Chains of single callers are not indented, so that
a tree of any depth stays on the screen. Any cut is marked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from memprof.base.terminal_text import plain
from memprof.base.units import capitalised, format_bytes
from memprof.heap import phrases
from memprof.heap.frames import By
from memprof.heap.profile import HeapProfile, Snapshot
from memprof.heap.program_lines import has_python
from memprof.heap.shape import BELOW, Shape, shape, sums

from . import labels, terminal

_TOP = 12
_CHART_ROWS = 8
_TICKS = 4  # columns a snapshot at least, for each to have its tick
_MODULE_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


class ProfileView(Struct, frozen=True):
    """The part of a profile that is shown. least: the share of the whole below which nodes are gathered; depth: callers shown a branch, 0 for all."""

    snapshot: int | None = None
    phase: str | None = None
    by: By = "function"
    invert: bool = False
    least: float = 0.01
    fold: bool = True
    full_names: bool = False
    depth: int = 10


class FrameRow(Struct, frozen=True):
    """A group of frames. own_bytes: where it is the place that allocates; total_bytes: where it stands anywhere in the stack."""

    label: labels.FrameLabel
    own_bytes: int
    total_bytes: int


def render(profile: HeapProfile, look: ProfileView = ProfileView(), *, width: int = 100, colour: bool = False, unicode: bool = True) -> str:
    """The profile as text. Raises UsageError or InputError for a snapshot or a phase that it does not have."""
    return terminal.rendered(width, colour, lambda console: _ProfilePage(profile, look, console, unicode).write())


def facts(profile: HeapProfile, look: ProfileView = ProfileView()) -> dict[str, Any]:
    """The same content as values that JSON can hold, sizes in bytes, times in `time_unit`.

    border_error: how far before the times of `phases` their true borders may lie, and how far behind them.
    """
    shown = phrases.chosen(profile, look.snapshot, look.phase)
    values: dict[str, Any] = {
        "tool": profile.tool,
        "command": profile.command,
        "path": profile.path,
        "counts": profile.counts,
        "time_unit": profile.time_unit,
        "value": profile.value or None,
        "values": list(profile.values),
        "total": profile.total or None,
        "partial": profile.partial,
        "remarks": phrases.remarks(profile, shown),
        "phases": [{"name": span.name, "begin": span.begin, "end": span.end} for span in profile.phases],
        "border_error": dict(zip(("before", "behind"), profile.border_error, strict=True)) if profile.phases else None,
        "peak": _snapshot_facts(profile, profile.peak) if profile.snapshots else None,
        "peak_tree_is_peak": bool(profile.peak_tree and profile.peak_tree[1]),
        "snapshots": [_snapshot_facts(profile, snapshot) for snapshot in profile.snapshots],
        "shown": None if shown is None else _snapshot_facts(profile, shown),
    }
    if shown is not None:
        values |= {"by": look.by, "inverted": look.invert, "least_share": look.least, "tree": _nodes(profile, shown, look)}
        groups: tuple[tuple[str, By], ...] = (("sites", look.by if look.by != "module" else "function"), ("modules", "module"))
        for name, by in groups:
            values[name] = [
                _place_facts(row.label) | {"self_bytes": row.own_bytes, "total_bytes": row.total_bytes}
                for row in top(profile, shown, by, look.fold)
            ]
    return values


def _snapshot_facts(profile: HeapProfile, snapshot: Snapshot) -> dict[str, Any]:
    """phase: null where the clocks leave several, which `phases` lists."""
    possible = profile.possible_phases(snapshot)
    return {
        "index": snapshot.index,
        "time": snapshot.time,
        "until": snapshot.until,
        "heap_bytes": snapshot.heap_bytes,
        "extra_bytes": snapshot.extra_bytes,
        "stacks_bytes": snapshot.stacks_bytes,
        "total_bytes": snapshot.total_bytes,
        "phase": possible[0] if len(possible) == 1 else None,
        "phases": possible,
        "has_tree": snapshot.tree is not None,
    }


def _nodes(profile: HeapProfile, shown: Snapshot, look: ProfileView) -> list[dict[str, Any]]:
    """The tree's nodes in depth-first order, each with its parent's place: nested objects would be as deep as the stack."""
    tree = _shaped(profile, shown, look)
    nodes = []
    for node in range(len(tree)):
        named = labels.label(profile, tree, node, look.by, full_names=True)
        node_facts = {"parent": tree.parent[node], **_place_facts(named), "bytes": tree.bytes[node]}
        nodes.append(node_facts | ({"places": tree.places[node]} if tree.group[node] == BELOW else {}))
    return nodes


def _place_facts(named: labels.FrameLabel) -> dict[str, Any]:
    """source: the largest of `lines` source lines."""
    return {"name": named.full, "module": named.module, "source": named.source, "lines": named.lines}


def _shaped(profile: HeapProfile, shown: Snapshot, look: ProfileView) -> Shape:
    assert shown.tree is not None
    return shape(profile, shown.tree, by=look.by, invert=look.invert, fold=look.fold, least=look.least)


def top(profile: HeapProfile, shown: Snapshot, by: By, fold: bool = True) -> list[FrameRow]:
    """Groups of frames in a snapshot, those that allocate most first."""
    assert shown.tree is not None
    groups = sums(profile, shown.tree, by=by, fold=fold)
    return [FrameRow(labels.group_label(profile, largest, name, by), own, total) for largest, name, own, total in groups]


class _ProfilePage(terminal.TextPage):
    def __init__(self, profile: HeapProfile, look: ProfileView, console: Console, unicode: bool) -> None:
        super().__init__(console, unicode)
        self.profile, self.look = profile, look
        self.width = console.width
        self.shown = phrases.chosen(profile, look.snapshot, look.phase)
        self.tones: dict[str, str] = {}

    def write(self) -> None:
        self._head()
        if len(self.profile.snapshots) > 1 and self.profile.peak.total_bytes:
            self.line()
            self._chart()
        look, shown = self.look, self.shown
        if shown is None or shown.tree is None or not shown.tree.bytes[0]:
            return
        modules = top(self.profile, shown, "module", look.fold)
        self.tones = {row.label.text: colour for row, colour in zip(modules, _MODULE_COLOURS, strict=False)}
        self.line()
        self._tree(shown)
        by: By = look.by if look.by != "module" else "function"
        sites = [row for row in top(self.profile, shown, by, look.fold) if row.own_bytes > 0]
        tables = (f"Largest allocation sites of snapshot {shown.index}, by {by}", sites), (f"Modules of snapshot {shown.index}", modules)
        for title, rows in reversed(tables) if look.by == "module" else tables:
            self._rows(title, rows, shown.tree.bytes[0])

    def _ascii(self, text: str) -> str:
        return text if self.unicode else text.replace("…", "~")

    def _head(self) -> None:
        profile = self.profile
        title = plain(profile.path or profile.tool)
        self.prose(title, "bold")
        command = labels.shortened(plain(profile.command), 3 * self.width)
        if command:
            self.prose(self._ascii(f"{profile.tool} of {command}"), "dim")
        self.prose(phrases.headline(profile), "bold")
        self.prose(phrases.counting(profile), "dim")
        for remark in phrases.remarks(profile, self.shown):
            self.prose(f"! {remark}", "yellow")

    # -- the chart

    def _chart(self) -> None:
        profile, left = self.profile, 11
        wide = self.width - left - 1
        first, last = _span(profile)
        levels = columns(profile.snapshots, wide, first, last)
        most = max(levels)
        blocks = terminal.BLOCKS[self.unicode]
        step = len(blocks) - 1
        peak = _column(profile.peak.time, first, last, wide)
        shown = None if self.shown is None else _column(self.shown.time, first, last, wide)
        for row in range(_CHART_ROWS - 1, -1, -1):
            scale = format_bytes(most) if row == _CHART_ROWS - 1 else format_bytes(most / 2) if row == _CHART_ROWS // 2 - 1 else ""
            text = Text(f"{scale:>{left - 2}} ", "dim")
            text.append("┤" if self.unicode and scale else "│" if self.unicode else "|", "dim")
            for place, level in enumerate(levels):
                filled = level / most * _CHART_ROWS * step - row * step
                mark = blocks[max(0, min(step, round(filled) or (1 if filled > 0 else 0)))]
                text.append(mark, "red" if place == peak else "cyan" if place == shown else "blue")
            self.line(text)
        self._axis(left, wide, first, last, peak, shown)

    def _axis(self, left: int, wide: int, first: float, last: float, peak: int, shown: int | None) -> None:
        flat, tick = ("─", "┴") if self.unicode else ("-", "+")
        ruler = [flat] * wide
        places = {_column(snapshot.time, first, last, wide) for snapshot in self.profile.snapshots}
        ticked = len(places) <= wide // _TICKS
        for place in places if ticked else ():
            ruler[place] = tick
        if shown is not None and shown != peak:
            ruler[shown] = "^"
        ruler[peak] = "▲" if self.unicode else "^"
        line = Text(" " * (left - 1) + ("└" if self.unicode else "+"), "dim")
        for place, mark in enumerate(ruler):
            line.append(mark, "red" if place == peak else "cyan" if place == shown else "dim")
        self.line(line)
        unit = self.profile.time_unit
        begin, end = phrases.format_time(first, unit), phrases.format_time(last, unit)
        if first == 0:
            begin = "0"
        self.line(Text(" " * left + begin + end.rjust(max(wide - len(begin), 1)), "dim"))
        for words in self._phases(wide, first, last):
            self.line(Text(" " * left + words, "magenta"))
        legend = Text(" " * left)
        legend.append("▲" if self.unicode else "^", "red")
        legend.append(" the peak", "dim")
        if shown is not None and shown != peak:
            legend.append("   ")
            legend.append("^", "cyan")
            legend.append(" the snapshot of the tree", "dim")
        if ticked:
            legend.append(f"   {tick} a snapshot, drawn until the next", "dim")
        self.line(legend)

    def _phases(self, wide: int, first: float, last: float) -> list[str]:
        """A strip with each phase's name at its start. Where any name has no room, all are numbers, and lines below say name and time of each."""
        spans, unit = self.profile.drawable_phases, self.profile.time_unit
        if not spans:
            return []
        names = [plain(span.name) for span in spans]
        begins = [_column(span.begin, first, last, wide) for span in spans]
        ends = [wide if span.end is None else _column(span.end, first, last, wide) for span in spans]
        numbered = any(cell_len(name) >= end - begin for name, begin, end in zip(names, begins, ends, strict=True))
        strip = [" "] * wide
        free = 0
        for number, (name, begin) in enumerate(zip(names, begins, strict=True), 1):
            text = ("│" if self.unicode else "|") + (str(number) if numbered else name)
            cells = cell_len(text)
            at = max(min(begin, wide - cells), free)  # without room where it belongs, beside the one before
            if at + cells <= wide:
                strip[at : at + cells] = [text, *[""] * (cells - 1)]
                free = at + cells
        lines = ["".join(strip).rstrip()]
        if numbered:
            dash = "–" if self.unicode else "-"
            for number, (name, span) in enumerate(zip(names, spans, strict=True), 1):
                end = "the end" if span.end is None else phrases.format_time(span.end, unit)
                text = f"{number} {labels.shortened(name, 30)} {phrases.format_time(span.begin, unit)}{dash}{end}"
                if len(lines) > 1 and cell_len(lines[-1]) + 3 + cell_len(text) <= wide:
                    lines[-1] += f"   {text}"
                else:
                    lines.append(self._ascii(labels.shortened(text, wide)))
        return lines

    # -- the tree

    def _tree(self, shown: Snapshot) -> None:
        look = self.look
        tree = _shaped(self.profile, shown, look)
        order = terminal.tree_order(look.invert)
        by = "" if look.by == "function" else f", by {look.by}"
        self._title(f"Tree of snapshot {shown.index}: {order}{by}")
        whole = tree.bytes[0]
        self._node(tree, 0, whole, "")
        for node, guide, cut in terminal.walk(tree.children(), look.depth, max(2, self.width - 56), terminal.GUIDES[self.unicode]):
            if cut:
                self.line(Text(" " * 18 + guide + self.cut_mark + cut, "dim"))
            else:
                self._node(tree, node, whole, guide)
        if tree.own()[0] > whole * look.least:
            self.line(
                Text(f"{format_bytes(tree.own()[0]):>10} {phrases.share(tree.own()[0], whole):>6}  (in no place the tool names)", "dim")
            )
        notes = [f"nodes below {100 * look.least:g}% are gathered (--min)"] if look.least else []
        if phrases.gathered(self.profile):
            notes.append("the tool had left out the smallest places before")
        if look.fold:
            lines = ", and of Python's stacks all but the lines of the program" if has_python(self.profile) else ""
            notes.append(f"allocators' own frames are left out{lines} (--no-fold)")
        if any(largest.lines > 1 for largest in tree.frames):
            notes.append("of several lines of a function the largest is named (--by line)")
        if notes:
            self.prose(capitalised("; ".join(notes)) + ".", "dim")

    def _node(self, tree: Shape, node: int, whole: int, guide: str) -> None:
        size, above = tree.bytes[node], tree.parent[node]
        part = size / whole if whole else 0.0
        text = Text(f"{format_bytes(size):>10} ")
        text.append(f"{phrases.share(size, whole):>6} ", "bold red" if part >= 0.25 else "yellow" if part >= 0.05 else "dim")
        if above > 0 and tree.bytes[above] == size:
            text = Text(" " * 18)  # as much as the line above: all of it came this way
        text.append(guide, "dim")
        named = labels.label(self.profile, tree, node, self.look.by, self.look.full_names)
        if above >= 0 and named.module == labels.label(self.profile, tree, above, self.look.by).module:
            named = replace(named, module="")  # said above
        self._named(text, named, "dim" if tree.group[node] == BELOW else "bold" if above <= 0 else "")
        self.line(text)

    def _named(self, text: Text, named: labels.FrameLabel, style: str) -> None:
        tones = (style or self.tones.get(named.text, ""), self.tones.get(named.module, "dim"))
        terminal.append_name(text, named, self.width, tones, self.look.full_names, self.unicode)

    # -- the tops

    def _title(self, text: str) -> None:
        self.prose(text, "bold underline")

    def _rows(self, title: str, rows: Sequence[FrameRow], whole: int) -> None:
        self.line()
        self._title(title)
        self.line(Text(f"{'self':>10} {'':5}  {'total':>12} {'':5}", "dim"))
        for row in rows[:_TOP]:
            text = Text(f"{format_bytes(row.own_bytes):>10} {phrases.share(row.own_bytes, whole):>6}")
            text.append(f" {format_bytes(row.total_bytes):>12} {phrases.share(row.total_bytes, whole):>6}", "dim")
            text.append("  ")
            self._named(text, row.label, "")
            self.line(text)
        if len(rows) > _TOP:
            self.line(Text(f"{'':10} {len(rows) - _TOP:,} more: --json has them all", "dim"))


# -- the chart's columns


def _span(profile: HeapProfile) -> tuple[float, float]:
    return profile.snapshots[0].time, max(snapshot.time for snapshot in profile.snapshots)


def _column(time: float, first: float, last: float, wide: int) -> int:
    return int(_place(time, first, last, wide))


def _place(time: float, first: float, last: float, wide: int) -> float:
    """Where a moment lies among the columns, of which the last is the end."""
    return 0.0 if last <= first else max(0.0, min(wide - 1.0, (time - first) / (last - first) * (wide - 1)))


def columns(snapshots: Sequence[Snapshot], wide: int, first: float, last: float) -> list[float]:
    """The most that was held in each of `wide` equal parts of the time, the last of which is the end: a total holds until the next snapshot."""
    levels = [0.0] * wide
    held, since = float(snapshots[0].total_bytes), 0
    for snapshot in sorted(snapshots, key=lambda snapshot: snapshot.time):
        place = _place(snapshot.time, first, last, wide)
        for column in range(since, math.ceil(place)):
            levels[column] = max(levels[column], held)
        held, since = float(snapshot.total_bytes), int(place)
        levels[since] = max(levels[since], held)
    return [*levels[:since], *(max(level, held) for level in levels[since:])]
