"""Tables of text as Markdown or HTML; numbers and their units as readers of tables want them."""

from __future__ import annotations

import html as escaping
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from memprof.base.errors import UsageError
from memprof.base.terminal_text import plain
from memprof.base.units import BYTE_UNITS, counted, format_change
from memprof.records.metrics import BYTES, NS
from memprof.records.modes import middle
from memprof.records.types import COMMAND

_WIDEST = 100  # one long name must not push all other rows off the screen

# A table has the largest unit whose threshold its largest value reaches.
BYTE_STEPS = (("GiB", 64 * 2**30), ("MiB", 2**20), ("KiB", 0))
TIME_STEPS = (("s", 100 * 10**9), ("ms", 10**5), ("us", 0))
TIME_SIZES = {"us": 10**3, "ms": 10**6, "s": 10**9}
# The same for the scripts of pages: the sizes of a kind's units, and the least value for which each is chosen, the largest first.
UNITS = {BYTES: {"sizes": BYTE_UNITS, "steps": BYTE_STEPS}, NS: {"sizes": TIME_SIZES, "steps": TIME_STEPS}}
# How many decimal places a number has: those of the first threshold that it reaches.
PLACES = ((1000, 0), (10, 1), (1, 2), (0, 3))


Say = Callable[[str], str]


class TextTable(Struct, frozen=True):
    """A table as texts: the first `labels` columns name the row, the others hold numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


def of_columns(title: str, columns: Sequence[tuple[str, Sequence[str]]], labels: int = 1) -> TextTable:
    """A table from its columns, each a head and its cells."""
    return TextTable(title, tuple(head for head, _ in columns), tuple(zip(*(cells for _, cells in columns), strict=True)), labels)


class Section(Struct, frozen=True):
    """Tables that belong together, under a title and over their notes."""

    title: str
    tables: tuple[TextTable, ...]
    notes: tuple[str, ...] = ()


class Unit(Struct, frozen=True):
    """A unit by name, and its size in bytes or nanoseconds."""

    name: str
    size: float

    def caption(self, title: str) -> str:
        """A title with the unit behind it."""
        return f"{title} ({self.name})" if self.name else title

    def cell(self, value: float | None) -> str:
        """A value as a number of this unit, `-` for none."""
        return "-" if value is None else number(value / self.size)

    def amount(self, value: float) -> str:
        """The same with the unit behind it: `137.2 MiB`."""
        return f"{self.cell(value)} {self.name}"

    def median(self, values: Sequence[float | None]) -> str:
        """The median of those values that are known, as `spread` writes it; `-` if none is."""
        known = [value for value in values if value is not None]
        kind = BYTES if self.name in BYTE_UNITS else NS
        return spread(middle(known, kind) / self.size, [value / self.size for value in known]) if known else "-"


def runtime(name: str) -> str:
    """A runtime's name for people; of a program, which has none, nothing."""
    return "" if name == COMMAND else name


def subject(say: Say, model: str, of: str, settings: str, threads: int | None) -> str:
    """`net.onnx, onnxruntime, arena=off, 4 threads`: what an answer is of. of: the runtime."""
    return ", ".join(say(text) for text in (model, runtime(of), settings, counted(threads, "thread") if threads else "") if text)


def choose_unit(kind: str, values: Sequence[float], wanted: str | None = None) -> Unit:
    """The unit of all values of a table: for bytes the wanted unit, else the unit that suits the largest value. Raises UsageError."""
    if kind == BYTES and wanted is not None:
        if wanted not in BYTE_UNITS:
            raise UsageError(f"{wanted!r} is not a unit: {', '.join(BYTE_UNITS)}")
        return Unit(wanted, BYTE_UNITS[wanted])
    if kind not in (BYTES, NS):
        return Unit("", 1)
    largest = max((abs(value) for value in values), default=0)
    name = next(name for name, least in (BYTE_STEPS if kind == BYTES else TIME_STEPS) if largest >= least)
    return Unit(name, BYTE_UNITS[name] if kind == BYTES else TIME_SIZES[name])


def number(value: float, beside: float | None = None) -> str:
    """Four significant digits at most, and no more places than a value beside it has."""
    size = abs(beside if beside is not None else value)
    places = next((places for least, places in PLACES if size >= least), 0)
    text = f"{value:.{places}f}"
    return text[1:] if text.startswith("-") and not any(digit in text for digit in "123456789") else text


def spread(middle: float, values: Sequence[float]) -> str:
    """`137.2 ±0.4`: a value, and if it stands for several its distance to the farthest of them; `0.681 (0.660 to 5.96)` where that is more than the
    value, so that ± would reach below zero."""
    if len(values) < 2:
        return number(middle)
    farthest = max(abs(value - middle) for value in values)
    if farthest > abs(middle):
        return f"{number(middle)} ({number(min(values))} to {number(max(values))})"
    return f"{number(middle)} ±{number(farthest, middle)}"


def percent(ratio: float) -> str:
    """A ratio as a change: 1.05 is `+5.0%`."""
    return format_change(ratio - 1).replace("-0.0%", "+0.0%")


# -- Markdown, and the same as plain text


def say_in(format: str) -> Say:
    """How texts are written in `text`, for a terminal, or in Markdown."""
    return plain if format == "text" else escaped


def markdown(section: Section) -> str:
    """A section as Markdown, its columns aligned so that it reads well as plain text too."""
    return laid_out(section, escaped)


def laid_out(section: Section, say: Say) -> str:
    """A section whose texts are written by `say`: `escaped` for Markdown, `plain` for a terminal, where nothing is escaped."""
    parts = [say(section.title)] if section.title else []
    for table in section.tables:
        parts += [*([say(table.title)] if table.title else []), _grid(table, say)]
    parts += ["\n".join(f"- {say(note)}" for note in section.notes)] if section.notes else []
    return "\n\n".join(parts)


def _grid(table: TextTable, say: Say) -> str:
    rows = [[say(text) for text in row] for row in (table.header, *table.rows)]
    widths = [max(3, min(_WIDEST, max(len(row[place]) for row in rows))) for place in range(len(table.header))]
    lines = ["| " + " | ".join(_aligned(row, widths, table.labels)) + " |" for row in rows]
    rule = ["-" * width if place < table.labels else "-" * (width - 1) + ":" for place, width in enumerate(widths)]
    return "\n".join([lines[0], "| " + " | ".join(rule) + " |", *lines[1:]])


def _aligned(row: Sequence[str], widths: Sequence[int], labels: int) -> list[str]:
    return [text.ljust(width) if place < labels else text.rjust(width) for place, (text, width) in enumerate(zip(row, widths, strict=True))]


# A command or an option of memprof between backticks, which a sentence for terminals has too, and the name of a container by the words around it:
# nothing in either would have to be escaped.
_OWN_CODE = re.compile(r"(`(?:memprof |--)[^`\\|<]*`|the (?:list|dict|set|deque|defaultdict|OrderedDict) `[A-Za-z_]\w*` of )")
# A word with an angle bracket in which nothing has to be escaped once it is code, without the stop behind it. A pair of brackets may have blanks
# between them: `std::vector<long int>&`.
_IN_BRACKETS = re.compile(r"(?<!\S)([^\s`|\\<]*<(?:(?! )[^`|\\<>\n]*>)?[^\s`|\\]*?)(?=[,.:;]*(?:\s|$))")


def escaped(text: str) -> str:
    """Text that stays text in a Markdown table: no cell's end, no line's end, no tag. memprof's own commands stay code."""
    pieces = _OWN_CODE.split(plain(text))
    return "".join(piece if place % 2 else _escaped(piece) for place, piece in enumerate(pieces))


def _escaped(text: str) -> str:
    """A word with an angle bracket becomes code, which Markdown leaves as it is: a reader of the source sees `<module>`, and no entity."""
    pieces = _IN_BRACKETS.split(text)
    return "".join(f"`{piece}`" if place % 2 else _without_tags(piece) for place, piece in enumerate(pieces))


def _without_tags(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


# -- HTML


def html(sections: Sequence[Section]) -> str:
    """Sections as a piece of HTML: headings, tables and notes, without styles."""
    return "\n".join(_html_section(section) for section in sections)


def _html_section(section: Section) -> str:
    lines = [f"<h2>{_html(section.title)}</h2>"] if section.title else []
    for table in section.tables:
        lines += ["<table>", f"<caption>{_html(table.title)}</caption>"]
        lines += [f"<thead>{_html_row(table.header, 'th', len(table.header))}</thead>", "<tbody>"]
        lines += [_html_row(row, "td", table.labels) for row in table.rows]
        lines += ["</tbody>", "</table>"]
    if section.notes:
        lines += ["<ul>", *(f"<li>{_html(note)}</li>" for note in section.notes), "</ul>"]
    return "\n".join(lines)


def _html_row(row: Sequence[str], tag: str, labels: int) -> str:
    names = ["th" if place < labels else tag for place in range(len(row))]
    return "<tr>" + "".join(f"<{name}>{_html(text)}</{name}>" for name, text in zip(names, row, strict=True)) + "</tr>"


def _html(text: str) -> str:
    return escaping.escape(plain(text))
