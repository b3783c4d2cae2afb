"""What texts for the terminal share: lines of an exact width, names that fit, and trees that stay on the screen however deep they are."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from . import labels

GUIDES = {True: ("│ ", "├─", "└─", "  "), False: ("| ", "|-", "`-", "  ")}
BLOCKS = {True: " ▁▂▃▄▅▆▇█", False: "  ..::##"}
NARROWEST = 60


def rendered(width: int, colour: bool, write: Callable[[Console], None]) -> str:
    """What is written to a console of this width, without blanks at the lines' ends."""
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


def append_name(text: Text, named: labels.Label, width: int, tones: tuple[str, str], full: bool = False, unicode: bool = True) -> None:
    """Append a name, and its module and source line as far as there is room to the line's end; the name itself is cut last.

    tones: the styles of the name and of what stands beside it. full: nothing is cut.
    """
    room = width - text.cell_len
    module = "" if named.module and named.source.startswith(f"{named.module}:") else named.module
    parts = [part for part in (module, named.source) if part]
    tails = ["  " + " ".join(parts), f"  {parts[0]}", ""] if parts else [""]
    beside, most = tails[0], 1 << 30
    if not full:
        needed = min(cell_len(named.text), 40)
        beside = next((tail for tail in tails if cell_len(tail) + needed <= room), "")
        if not beside and module and room > 36:
            beside = "  " + labels.shortened(module, max(12, room - needed - 2))
        most = max(8, room - cell_len(beside))
    name = named.text
    while cell_len(name) > most:  # letters may be two cells wide
        name = labels.shortened(named.text, min(len(name) - 1, most - (cell_len(name) - len(name))))
    text.append(name if unicode else name.replace("…", "~"), tones[0])
    text.append(beside if unicode else beside.replace("…", "~"), tones[1])


def walk(children: Sequence[Sequence[int]], depth: int, widest: int, guides: tuple[str, str, str, str]) -> list[tuple[int, str, str]]:
    """The nodes below node 0 with the guide before each, or what is said where some are left out.

    A node with a single child is followed by it without indentation. depth: nodes shown from one branching to the next, 0 for all; widest:
    how long a guide gets before what follows is left out.
    """
    through, branch, last, blank = guides
    found: list[tuple[int, str, str]] = []
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
                found.append((node, guide, f"{skipped:,} more frames (--depth)"))
                if children[end]:
                    push(children[end], follow, 1)
                continue
        found.append((node, guide, ""))
        if children[node] and len(children[node]) > 1 and len(follow) >= widest:
            found.append((node, follow, "deeper than fits: --json has it"))
        else:
            push(children[node], follow, run)
    return found
