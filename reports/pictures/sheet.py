"""A picture's frame: title, legend, remarks, and room for axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from msgspec import Struct

from .lettering import escaped, height, readable, shortened, width, wrapped
from .placing import apart
from .style import BODY, DPI, GREY, HEADING, INK, SMALL, Fill


class LegendEntry(Struct, frozen=True):
    """One line of a legend: readable text, and an area or a line with its look as matplotlib's words."""

    text: str
    fill: Fill | None = None
    line: Mapping[str, Any] | None = None

    @property
    def is_point(self) -> bool:
        return self.line is not None and self.line.get("linestyle") == "none"

    @property
    def handle(self) -> float:
        """The room before the text, in inches."""
        return 0.0 if self.fill is None and self.line is None else 0.2 if self.is_point else 0.34


class PhaseName(Struct, frozen=True):
    """A phase's name over a panel: readable text, the middle of the phase in inches from the sheet's left edge, and its length in any unit."""

    text: str
    middle: float
    length: float
    colour: str = GREY


WIDTH = 10.0  # inches
_MARGIN = 0.15
_INNER = WIDTH - 2 * _MARGIN
_BLOCK_NAME = 10.5
_MOST_LINES = 6  # of a title, a subtitle or a heading: more is no name, and would push the content away
_MOST_REMARKS = 8
_PHASE_SIZE = 7.0


def phase_name(text: str, inches: float) -> str:
    """A phase's name as readable text, shortened to fit."""
    return shortened(readable(text), inches, _PHASE_SIZE)


def phase_names_width(names: Sequence[str]) -> float:
    """The room that phases' names take side by side, in inches."""
    return sum(map(_phase_name_width, names))


def _phase_name_width(name: str) -> float:
    return width(name, _PHASE_SIZE) + 0.1


def _heading_lines(text: str, size: float) -> list[str]:
    return wrapped(text, _INNER, size, _MOST_LINES, "bold")


def heading_height(text: str, size: float = BODY) -> float:
    """How high a heading is that Sheet.heading writes, in inches."""
    return height(size, len(_heading_lines(text, size)))


class Sheet:
    """A figure laid out in inches: title, conditions and legend above the content, remarks below it.

    All places are in inches, from the left edge and from the top of the content. blocks: the height of each part of the content by its name, such
    as a model's. Several names are headings; a single one stands beside the title. finding: what the picture shows, in a sentence. It is the title
    then, and what it is a picture of stands below. tops: where each block begins, below its heading.
    """

    def __init__(
        self,
        title: str,
        subtitle: str,
        blocks: Mapping[str, float],
        *,
        finding: str = "",
        legend: Sequence[LegendEntry] = (),
        remarks: Sequence[str] = (),
    ) -> None:
        self.width = WIDTH
        headed = len(blocks) > 1
        headings = [0.2 + heading_height(name, _BLOCK_NAME) if headed else 0.0 for name in blocks]
        content = sum(headings) + sum(blocks.values())
        if not headed:
            title = ": ".join(part for part in (title, *blocks) if part)
        if finding:
            title, subtitle = finding.removesuffix("."), " · ".join(part for part in (title, subtitle) if part)
        titles = _heading_lines(title, HEADING)
        subtitles = wrapped(subtitle, _INNER, SMALL, _MOST_LINES)
        rows = _legend_rows(legend)
        below = _remark_lines(remarks)
        head = height(HEADING, len(titles)) + 0.03 + height(SMALL, len(subtitles))
        top = _MARGIN + head + 0.03 + len(rows) * height(SMALL) * 1.25 + 0.16
        bottom = _MARGIN + (0.08 + height(SMALL, len(below)) if below else 0)
        self.figure = Figure(figsize=(WIDTH, top + content + bottom), dpi=DPI, facecolor="white")
        self._height = top + content + bottom
        self._top = top
        self.lines(_MARGIN, _MARGIN - top, titles, size=HEADING, weight="bold")
        self.lines(_MARGIN, _MARGIN - top + height(HEADING, len(titles)) + 0.03, subtitles, size=SMALL, color=GREY)
        for index, row in enumerate(rows):
            self._legend(row, _MARGIN - top + head + 0.07 + index * height(SMALL) * 1.25)
        self.tops: dict[str, float] = {}
        at = 0.0
        for heading, (name, high) in zip(headings, blocks.items(), strict=True):
            if headed:
                self.heading(at + 0.1, name, _BLOCK_NAME)
            self.tops[name] = at + heading
            at += heading + high
        self.lines(_MARGIN, content + 0.08, below, size=SMALL, color=INK)

    def text(self, left: float, top: float, text: str, **words: Any) -> Text:
        """Text whose upper left corner, or other `ha` and `va`, lies there; ready for matplotlib (see label)."""
        place = {"ha": "left", "va": "top", **words}
        return self.figure.text(left, self._height - self._top - top, text, transform=self.figure.dpi_scale_trans, **place)

    def lines(self, left: float, top: float, lines: Sequence[str], *, size: float, **words: Any) -> None:
        """Lines of text, ready for matplotlib, one below the other."""
        for index, line in enumerate(lines):
            self.text(left, top + height(size, index), line, size=size, **words)

    def heading(self, top: float, text: str, size: float = BODY) -> None:
        """Anyone's text in bold from the left to the right margin, such as a model's name; heading_height says how high."""
        self.lines(_MARGIN, top, _heading_lines(text, size), size=size, weight="bold")

    def axes(self, left: float, top: float, width: float, height: float, **words: Any) -> Axes:
        """Axes whose frame, without ticks and labels, lies there."""
        bottom = self._height - self._top - top - height
        box = (left / self.width, bottom / self._height, width / self.width, height / self._height)
        return self.figure.add_axes(box, **words)

    def path(self, points: Sequence[tuple[float, float]], **words: Any) -> None:
        """A line on the sheet."""
        xs, tops = zip(*points, strict=True)
        levels = [self._height - self._top - top for top in tops]
        self.figure.add_artist(Line2D(xs, levels, transform=self.figure.dpi_scale_trans, **words))

    def box(self, left: float, top: float, width: float, height: float, fill: Fill) -> None:
        """A filled rectangle on the sheet."""
        bottom = self._height - self._top - top - height
        self.figure.add_artist(Rectangle((left, bottom), width, height, transform=self.figure.dpi_scale_trans, **fill.words()))

    def phase_names(self, names: Sequence[PhaseName], left: float, wide: float, top: float, bottom: float) -> None:
        """Names over a panel, each as near to the middle of its phase as the others let it be, with a line down to `bottom`.

        names: in the order of time. Without room for all, the shortest phases go unnamed. left, wide: the panel's; all in inches.
        """
        named = sorted(range(len(names)), key=lambda index: -names[index].length)
        while len(named) > 1 and phase_names_width([names[index].text for index in named]) > wide:
            named.pop()
        shown = [names[index] for index in sorted(named)]
        middles = [name.middle for name in shown]
        places = apart(middles, [_phase_name_width(name.text) for name in shown], left, left + wide)
        for name, middle, place in zip(shown, middles, places, strict=True):
            self.text(place, top + 0.03, escaped(name.text), ha="center", size=_PHASE_SIZE, color=name.colour)
            self.path([(place, top + 0.145), (middle, bottom)], color=GREY, linewidth=0.5)

    def _legend(self, row: Sequence[tuple[float, LegendEntry]], top: float) -> None:
        middle = top + SMALL / 72 * 0.52
        for left, entry in row:
            if entry.fill is not None:
                self.box(left, middle - 0.05, 0.28, 0.1, entry.fill)
            if entry.line is not None:
                xs = [left + entry.handle / 2] if entry.is_point else [left, left + 0.14, left + 0.28]
                self.path([(x, middle) for x in xs], **{"color": INK, "markevery": [len(xs) // 2], **entry.line})
            self.text(left + entry.handle, top, escaped(entry.text), size=SMALL)


def _legend_rows(entries: Sequence[LegendEntry]) -> list[list[tuple[float, LegendEntry]]]:
    rows: list[list[tuple[float, LegendEntry]]] = []
    left = _INNER
    for entry in entries:
        wide = entry.handle + width(entry.text, SMALL) + 0.2
        if not rows or left + wide > _INNER + _MARGIN:
            rows.append([])
            left = _MARGIN
        rows[-1].append((left, entry))
        left += wide
    return rows


def _remark_lines(remarks: Sequence[str]) -> list[str]:
    shown = remarks if len(remarks) <= _MOST_REMARKS else remarks[: _MOST_REMARKS - 1]
    more = [f"and {len(remarks) - len(shown)} more such remarks: `memprof table` has them all"] if len(shown) < len(remarks) else []
    return [text for remark in [*shown, *more] for text in wrapped(remark, _INNER)]
