"""The parts that texts for the terminal share: lines of an exact width, names that fit, and trees of any depth that stay on the screen."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from memprof.base.terminal_text import plain
from memprof.base.units import counted

from . import labels

GUIDES = {True: ("│ ", "├─", "└─", "  "), False: ("| ", "|-", "`-", "  ")}
BLOCKS = {True: " ▁▂▃▄▅▆▇█", False: "  ..::##"}
NARROWEST = 60


class TextPage:
    """A text, written from its top to its bottom."""

    def __init__(self, console: Console, unicode: bool) -> None:
        self.console, self.unicode = console, unicode
        self.cut_mark = "… " if unicode else "... "

    def line(self, text: Text | str = "", style: str = "") -> None:
        """Write a line; one that is too long is left to the terminal."""
        self.console.print(Text(text, style) if isinstance(text, str) else text, soft_wrap=True)

    def prose(self, text: str, style: str = "") -> None:
        """Write anyone's text, wrapped at the console's width."""
        self.console.print(Text(plain(text), style))


def tree_order(invert: bool) -> str:
    """The words for the direction of a tree."""
    return "where the program begins, and below each what it calls" if invert else "what allocates, and below each who called it"


def rendered(width: int, colour: bool, write: Callable[[Console], None]) -> str:
    """The text that `write` writes to a console of this width, without blanks at the lines' ends."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, NARROWEST),
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        legacy_windows=False,
    )
    write(console)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().split("\n"))


def append_name(text: Text, named: labels.FrameLabel, width: int, tones: tuple[str, str], full: bool = False, unicode: bool = True) -> None:
    """Append a name, and its module and source line as far as there is room to the line's end; the name itself is cut last.

    tones: the styles of the name and of the words beside it. full: nothing is cut.
    """
    room, name = width - text.cell_len, named.text
    module = "" if named.module and named.source.startswith(f"{named.module}:") else named.module
    source = named.source + (f" and {counted(named.lines - 1, 'more line')}" if named.lines > 1 else "")
    parts = [part for part in (module, source) if part]
    tails = ["  " + " ".join(parts), f"  {parts[0]}", ""] if parts else [""]
    beside, most = tails[0], 1 << 30
    if not full:
        needed = min(cell_len(name), 40)
        beside = next((tail for tail in tails if cell_len(tail) + needed <= room), "")
        if not beside and module and room > 36:
            beside = "  " + labels.shortened(module, max(12, room - needed - 2))
        most = max(8, room - cell_len(beside))
    shown = name
    while cell_len(shown) > most:  # letters may be two cells wide
        shown = labels.shortened(name, min(len(shown) - 1, most - (cell_len(shown) - len(shown))))
    text.append(shown if unicode else shown.replace("…", "~"), tones[0])
    text.append(beside if unicode else beside.replace("…", "~"), tones[1])


def walk(children: Sequence[Sequence[int]], depth: int, widest: int, guides: tuple[str, str, str, str]) -> list[tuple[int, str, str]]:
    """The nodes below node 0: (node, guide before it, words where nodes are left out).

    A single child follows its parent without indentation. depth: nodes shown from one branching to the next, 0 for all; widest: the length of a
    guide beyond which the nodes below are left out.
    """
    through, branch, last, blank = guides
    lines: list[tuple[int, str, str]] = []
    todo: list[tuple[int, str, str, int]] = []  # node, its guide, the guide of what follows, frames in this chain so far

    def push(kids: Sequence[int], prefix: str, run: int) -> None:
        if len(kids) == 1:
            begin = prefix if run else prefix + blank
            todo.append((kids[0], begin, begin, run + 1))
            return
        for place, child in enumerate(reversed(kids)):
            todo.append((child, prefix + (last if place == 0 else branch), prefix + (blank if place == 0 else through), 1))

    push(children[0], "", 0)
    while todo:
        node, guide, follow, run = todo.pop()
        if depth and run > depth:
            skipped, end = 1, node
            while len(children[end]) == 1:
                end, skipped = children[end][0], skipped + 1
            if skipped > 1:
                lines.append((node, guide, f"{skipped:,} more frames (--depth)"))
                if children[end]:
                    push(children[end], follow, 1)
                continue
        lines.append((node, guide, ""))
        if children[node] and len(children[node]) > 1 and len(follow) >= widest:
            lines.append((node, follow, "deeper than fits: --json has it"))
        else:
            push(children[node], follow, run)
    return lines
