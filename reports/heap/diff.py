"""Two profiles set against each other: what grew and what shrank, as tables by module and function and as a tree of call paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from memprof.heap import wording
from memprof.heap.diff import Change, Diff, Side
from memprof.heap.names import short
from memprof.plain import plain
from memprof.units import format_bytes

from . import labels, terminal

_TOP = 15


@dataclass(frozen=True)
class Look:
    """least: the share of the larger peak below which changes are not shown; depth: callers shown a branch, 0 for all."""

    least: float = 0.01
    full_names: bool = False
    depth: int = 10
    invert: bool = False


def render(found: Diff, look: Look = Look(), *, width: int = 100, colour: bool = False, unicode: bool = True) -> str:
    """The differences as text."""
    return terminal.rendered(width, colour, lambda console: _Page(found, look, console, unicode).write())


def facts(found: Diff, look: Look = Look()) -> dict[str, Any]:
    """The same content as values that JSON can hold, all changes among them; the tree in depth-first order with each node's parent."""
    return {
        "before": _side(found.before),
        "after": _side(found.after),
        "growth_bytes": found.growth_bytes,
        "growth_share": found.growth,
        "notes": list(found.notes),
        "modules": [_change(one) for one in found.modules],
        "functions": [_change(one) for one in found.functions],
        "inverted": look.invert,
        "tree": [{"parent": parent} | _change(one) for one, parent in zip(found.tree, found.parent, strict=True)],
    }


def _side(side: Side) -> dict[str, Any]:
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


def _change(one: Change) -> dict[str, Any]:
    return {
        "name": one.name,
        "module": one.module,
        "before_bytes": one.before_bytes,
        "after_bytes": one.after_bytes,
        "growth_bytes": one.growth_bytes,
    }


def _signed(size: int) -> str:
    return f"+{format_bytes(size)}" if size > 0 else format_bytes(size)


def _tone(size: int) -> str:
    return "red" if size > 0 else "green" if size < 0 else "dim"


def headline(found: Diff) -> str:
    """What became of the peak, in a sentence."""
    before, after = found.before.peak_bytes, found.after.peak_bytes
    if not found.growth_bytes:
        return f"The peak is the same: {format_bytes(after)}."
    share = f" ({_share(found.growth_bytes, before)})" if before else ""
    verb = "grew" if found.growth_bytes > 0 else "shrank"
    return f"The peak {verb} by {format_bytes(abs(found.growth_bytes))}{share}: {format_bytes(before)} -> {format_bytes(after)}."


def _share(growth: int, before: int) -> str:
    """A growth as a share, `+12.0%`; what is no tenth of a percent has words, for a sign would stand before a zero."""
    text = wording.share(abs(growth), before)
    if text[0] in "<>":
        return f"{'less' if text[0] == '<' else 'more'} than {text[1:]}"
    return f"{'+' if growth > 0 else '-'}{text}"


class _Page:
    """One text, written from its top to its bottom."""

    def __init__(self, found: Diff, look: Look, console: Console, unicode: bool) -> None:
        self.found, self.look, self.console, self.unicode = found, look, console, unicode
        self.limit = look.least * max(found.before.peak_bytes, found.after.peak_bytes)

    def write(self) -> None:
        found = self.found
        for word, side in (("A", found.before), ("B", found.after)):
            where = f", {wording.moment(side.profile, side.shown)}" if side.shown is not None else ""
            self._prose(f"{word}: {side.profile.path or wording.program(side.profile)} ({side.profile.tool}{where})", "dim")
        self._prose(headline(found), f"bold {_tone(found.growth_bytes)}")
        for note in found.notes:
            self._prose(f"! {note}", "yellow")
        if not found.before.tree_bytes and not found.after.tree_bytes:
            return
        self._table("Modules, by what they allocate", found.modules)
        self._table("Functions, by what they allocate", found.functions)
        self._tree()

    def _line(self, text: Text | str = "", style: str = "") -> None:
        self.console.print(Text(text, style) if isinstance(text, str) else text, soft_wrap=True)

    def _prose(self, text: str, style: str = "") -> None:
        self.console.print(Text(plain(text), style))

    def _figures(self, one: Change) -> Text:
        text = Text()
        text.append(f"{_signed(one.growth_bytes):>11}", _tone(one.growth_bytes))
        text.append(f" {self._size(one.before_bytes, self.found.before):>11} {self._size(one.after_bytes, self.found.after):>11}  ", "dim")
        return text

    @staticmethod
    def _size(size: int | None, side: Side) -> str:
        return format_bytes(size) if size is not None else "not listed" if side.limit_bytes else "-"

    def _named(self, text: Text, one: Change, style: str = "") -> None:
        name = plain(one.name)
        named = labels.Label(name if self.look.full_names else plain(short(name)), name, plain(one.module))
        terminal.append_name(text, named, self.console.width, (style, "dim"), self.look.full_names, self.unicode)

    def _head(self, title: str) -> None:
        self._line()
        self._prose(title, "bold underline")
        self._line(f"{'growth':>11} {'A':>11} {'B':>11}", "dim")

    def _table(self, title: str, changes: Sequence[Change]) -> None:
        shown = [one for one in changes if one.growth_bytes and abs(one.growth_bytes) >= self.limit][:_TOP]
        self._head(title)
        for one in shown:
            text = self._figures(one)
            self._named(text, one)
            self._line(text)
        rest = sum(one.growth_bytes != 0 for one in changes) - len(shown)
        if rest:
            self._line(f"{rest:,} smaller change{'s' if rest > 1 else ''} not shown (--min; --json has all)", "dim")
        elif not shown:
            self._line("no change", "dim")

    def _tree(self) -> None:
        order = "from the program's entry down to what allocates" if self.look.invert else "what allocates, and below each who called it"
        self._head(f"Tree of changes: {order}")
        tree, children = self.found.tree, self._children()
        text = self._figures(tree[0])
        self._named(text, tree[0], "bold")
        self._line(text)
        for node, guide, cut in terminal.walk(children, self.look.depth, max(2, self.console.width - 75), terminal.GUIDES[self.unicode]):
            if cut:
                self._line(" " * 37 + guide + ("… " if self.unicode else "... ") + cut, "dim")
                continue
            one, above = tree[node], tree[self.found.parent[node]]
            same = self.found.parent[node] > 0 and (one.before_bytes, one.after_bytes) == (above.before_bytes, above.after_bytes)
            text = Text(" " * 37) if same else self._figures(one)
            text.append(guide, "dim")
            self._named(text, one, "" if one.before_bytes and one.after_bytes else "italic")
            self._line(text)
        self._prose(f"Changes below {100 * self.look.least:g}% of the larger peak are not shown (--min).", "dim")

    def _children(self) -> list[list[int]]:
        """The children of each node that changed enough, or have something below them that did: changes below one node can cancel out."""
        tree, parent = self.found.tree, self.found.parent
        largest = [abs(one.growth_bytes) for one in tree]
        for node in range(len(tree) - 1, 0, -1):
            largest[parent[node]] = max(largest[parent[node]], largest[node])
        children: list[list[int]] = [[] for _ in tree]
        for node in range(1, len(tree)):
            if largest[node] >= self.limit and largest[node] > 0:
                children[parent[node]].append(node)
        return children
