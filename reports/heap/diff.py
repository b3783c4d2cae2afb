"""Two profiles beside each other: growth and shrinkage, as tables by module and by function or line, and as a tree of call paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from memprof.base.terminal_text import plain
from memprof.base.units import counted, format_bytes, format_change
from memprof.heap import phrases
from memprof.heap.diff import Diff, DiffSide, SiteChange
from memprof.heap.frames import By
from memprof.heap.names import short

from . import labels, terminal

_TOP = 15


class DiffView(Struct, frozen=True):
    """least: the share of the larger peak below which changes are not shown; depth: callers shown a branch, 0 for all."""

    least: float = 0.01
    full_names: bool = False
    depth: int = 10
    by: By = "function"
    invert: bool = False


def render(diff: Diff, look: DiffView = DiffView(), *, width: int = 100, colour: bool = False, unicode: bool = True) -> str:
    """The differences as text."""
    return terminal.rendered(width, colour, lambda console: _DiffPage(diff, look, console, unicode).write())


def facts(diff: Diff, look: DiffView = DiffView()) -> dict[str, Any]:
    """The same content as values that JSON can hold, all changes among them; the tree in depth-first order with each node's parent."""
    return {
        "before": _side(diff.before),
        "after": _side(diff.after),
        "growth_bytes": diff.growth_bytes,
        "growth_share": diff.growth,
        "notes": list(diff.notes),
        "modules": [_change(change) for change in diff.modules],
        "by": look.by,
        "sites": [_change(change) for change in diff.sites],
        "inverted": look.invert,
        "tree": [{"parent": parent} | _change(change) for change, parent in zip(diff.tree, diff.parent, strict=True)],
    }


def _side(side: DiffSide) -> dict[str, Any]:
    return {
        "path": side.profile.path,
        "tool": side.profile.tool,
        "command": side.profile.command,
        "peak_bytes": side.peak_bytes,
        "tree_bytes": side.tree_bytes,
        "snapshot": None if side.shown is None else side.shown.index,
        "partial": side.profile.partial,
        "unlisted_at_most_bytes": side.limit_bytes,
    }


def _change(change: SiteChange) -> dict[str, Any]:
    return {
        "name": change.name,
        "module": change.module,
        "source": change.source,
        "before_bytes": change.before_bytes,
        "after_bytes": change.after_bytes,
        "growth_bytes": change.growth_bytes,
    }


def _signed(size: int) -> str:
    return f"+{format_bytes(size)}" if size > 0 else format_bytes(size)


def _tone(size: int) -> str:
    return "red" if size > 0 else "green" if size < 0 else "dim"


def headline(diff: Diff) -> str:
    """The change of the peak, or of the total of profiles of one moment, in a sentence."""
    before, after = diff.before.peak_bytes, diff.after.peak_bytes
    noun = phrases.total_noun(diff.after.profile)
    if not diff.growth_bytes:
        return f"The {noun} is the same: {format_bytes(after)}."
    share = f" ({_share(diff.growth_bytes, before)})" if before else ""
    verb = "grew" if diff.growth_bytes > 0 else "shrank"
    return f"The {noun} {verb} by {format_bytes(abs(diff.growth_bytes))}{share}: {format_bytes(before)} -> {format_bytes(after)}."


def _share(growth: int, before: int) -> str:
    """A growth as a share, `+12.0%`, or as a ratio where the later is ten times the earlier.

    A share below a tenth of a percent is in words, for a sign would stand before a zero.
    """
    if growth >= 9 * before:
        return format_change(growth / before)
    text = phrases.share(abs(growth), before)
    if text[0] in "<>":
        return f"{'less' if text[0] == '<' else 'more'} than {text[1:]}"
    return f"{'+' if growth > 0 else '-'}{text}"


class _DiffPage(terminal.TextPage):
    def __init__(self, diff: Diff, look: DiffView, console: Console, unicode: bool) -> None:
        super().__init__(console, unicode)
        self.diff, self.look = diff, look
        self.limit = look.least * max(diff.before.peak_bytes, diff.after.peak_bytes)

    def write(self) -> None:
        diff = self.diff
        for word, side in (("A", diff.before), ("B", diff.after)):
            where = f", {phrases.moment(side.profile, side.shown)}" if side.shown is not None else ""
            self.prose(f"{word}: {side.profile.path or phrases.program(side.profile)} ({side.profile.tool}{where})", "dim")
        self.prose(headline(diff), f"bold {_tone(diff.growth_bytes)}")
        for note in diff.notes:
            self.prose(f"! {note}", "yellow")
        if not diff.before.tree_bytes and not diff.after.tree_bytes:
            return
        self._table("Modules, by what they allocate", diff.modules)
        self._table(f"{'Lines' if self.look.by == 'line' else 'Functions'}, by what they allocate", diff.sites)
        self._tree()

    def _figures(self, change: SiteChange) -> Text:
        text = Text()
        text.append(f"{_signed(change.growth_bytes):>11}", _tone(change.growth_bytes))
        text.append(
            f" {self._size(change.before_bytes, self.diff.before):>11} {self._size(change.after_bytes, self.diff.after):>11}  ", "dim"
        )
        return text

    @staticmethod
    def _size(size: int | None, side: DiffSide) -> str:
        return format_bytes(size) if size is not None else "not listed" if side.limit_bytes else "-"

    def _named(self, text: Text, change: SiteChange, style: str = "") -> None:
        shown = plain(change.own_name if self.look.full_names else short(change.own_name))
        named = labels.FrameLabel(shown, plain(change.name), plain(change.module), plain(change.source))
        terminal.append_name(text, named, self.console.width, (style, "dim"), self.look.full_names, self.unicode)

    def _head(self, title: str) -> None:
        self.line()
        self.prose(title, "bold underline")
        self.line(f"{'growth':>11} {'A':>11} {'B':>11}", "dim")

    def _table(self, title: str, changes: Sequence[SiteChange]) -> None:
        shown = [change for change in changes if change.growth_bytes and abs(change.growth_bytes) >= self.limit][:_TOP]
        self._head(title)
        for change in shown:
            text = self._figures(change)
            self._named(text, change)
            self.line(text)
        left_out = sum(change.growth_bytes != 0 for change in changes) - len(shown)
        if left_out:
            self.line(f"{counted(left_out, 'smaller change')} not shown (--min; --json has all)", "dim")
        elif not shown:
            self.line("no change", "dim")

    def _tree(self) -> None:
        order = terminal.tree_order(self.look.invert)
        self._head(f"Tree of changes: {order}")
        tree, children = self.diff.tree, self._children()
        text = self._figures(tree[0])
        self._named(text, tree[0], "bold")
        self.line(text)
        for node, guide, cut in terminal.walk(children, self.look.depth, max(2, self.console.width - 75), terminal.GUIDES[self.unicode]):
            if cut:
                self.line(" " * 37 + guide + self.cut_mark + cut, "dim")
                continue
            change, above = tree[node], tree[self.diff.parent[node]]
            is_same = self.diff.parent[node] > 0 and (change.before_bytes, change.after_bytes) == (above.before_bytes, above.after_bytes)
            text = Text(" " * 37) if is_same else self._figures(change)
            text.append(guide, "dim")
            self._named(text, change, "" if change.before_bytes and change.after_bytes else "italic")
            self.line(text)
        self.prose(
            f"Changes below {100 * self.look.least:g}% of the larger {phrases.total_noun(self.diff.after.profile)} are not shown (--min).",
            "dim",
        )

    def _children(self) -> list[list[int]]:
        """The children of each node that changed enough, or that have a node below them that did: changes below a node can cancel out."""
        tree, parent = self.diff.tree, self.diff.parent
        largest = [abs(change.growth_bytes) for change in tree]
        for node in range(len(tree) - 1, 0, -1):
            largest[parent[node]] = max(largest[parent[node]], largest[node])
        children: list[list[int]] = [[] for _ in tree]
        for node in range(1, len(tree)):
            if largest[node] >= self.limit and largest[node] > 0:
                children[parent[node]].append(node)
        return children
