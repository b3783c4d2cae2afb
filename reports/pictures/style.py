"""What all pictures share: colours with hatches, text that stays text, units, a sheet laid out in inches, and the file it is written to.

Pictures are made with matplotlib's objects alone, so no display, no backend and no state of pyplot's is needed, and a user's own
matplotlibrc changes nothing. The same runs give the same bytes. Colours are Okabe and Ito's, told apart by the colour-blind; what they
tell apart in colour is told apart in grey by hatches, line styles, markers or lightness.
"""

from __future__ import annotations

import io
import math
import os
import re
import tempfile
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from memprof.errors import InputError, UsageError, near, os_reason
from memprof.runs.metrics import Metric
from memprof.runs.records import EXECUTE, PEAK, Run
from memprof.runs.summary import Key

DPI = 150
BODY, SMALL, HEADING = 9.0, 8.0, 12.0
INK, GREY, FAINT, BAND, FAILED = "#000000", "#555555", "#D9D9D9", "#EFEFEF", "#B33F00"


# -- colours


@dataclass(frozen=True)
class Fill:
    """An area's colour, and the hatch that tells it apart in black and white."""

    colour: str
    hatch: str = ""
    edge: str = INK

    def words(self) -> dict[str, Any]:
        """For bars and areas."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": self.edge, "linewidth": 0.5}


ANON = Fill("#0072B2")
FILE = Fill("#F0B429", "////", "#7A5200")
UNSEEN = Fill("#FFFFFF", "....", "#333333")
ANON_WORDS, FILE_WORDS = "anonymous", "file-backed and shared"

# Okabe and Ito's without yellow, which is lost on white; neighbours differ in lightness too.
_LINES = ("#000000", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")


@dataclass(frozen=True)
class Line:
    """How one of many lines is drawn: no two of the first 420 are alike, and the first 12 differ in marker."""

    colour: str
    dash: Any
    marker: str


def line(index: int) -> Line:
    """The look of the line at that place in the picture."""
    return Line(_LINES[index % len(_LINES)], _DASHES[index % len(_DASHES)], _MARKERS[index % len(_MARKERS)])


# -- the look

# Tried in this order for letters that matplotlib's own DejaVu Sans lacks.
_FALLBACK_FONTS = (
    *("Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans KR", "Noto Sans JP", "Noto Sans SC"),
    *("NanumGothic", "UnDotum", "IPAGothic", "TakaoGothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback"),
    *("Apple SD Gothic Neo", "Hiragino Sans", "PingFang SC", "Malgun Gothic", "Microsoft YaHei", "Arial Unicode MS"),
    *("Noto Sans", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Symbols2", "Noto Emoji", "Symbola", "Unifont"),
)


@lru_cache(maxsize=1)
def _families() -> tuple[str, ...]:
    installed = {font.name for font in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in installed))


@contextmanager
def look() -> Iterator[None]:
    """Within it everything is drawn in memprof's look, whatever the user has set."""
    ours = {
        "font.family": [*_families(), "sans-serif"],  # the last for those who read an SVG elsewhere
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
        "font.size": BODY,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GREY,
        "axes.axisbelow": True,
        "axes.formatter.useoffset": False,
        "axes.unicode_minus": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "hatch.linewidth": 0.5,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "axes.labelsize": SMALL,
        "figure.dpi": DPI,
        "savefig.dpi": DPI,
        "svg.hashsalt": "memprof",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
    }
    with matplotlib.style.context(["default", ours]):
        yield


# -- text that stays text


def plain(text: str) -> str:
    """Text on one line, without what would steer a terminal, break an XML file or turn the writing's direction round."""
    line = " ".join(text.split())
    return "".join("�" if unicodedata.category(mark) in ("Cc", "Cs", "Cn", "Co") or mark in _DIRECTIONS else mark for mark in line)


_DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@lru_cache(maxsize=1)
def _drawable() -> frozenset[int]:
    found: set[int] = set()
    for family in _families():
        found |= FT2Font(fontManager.findfont(FontProperties(family=[family]))).get_charmap().keys()
    return frozenset(found)


def readable(text: str) -> str:
    """Plain text in letters that some font here has; others are named by their code, for they would all look the same.

    save() gives an SVG the letters back.
    """
    return "".join(mark if ord(mark) in _drawable() else f"[U+{ord(mark):04X}]" for mark in plain(text))


_NAMED_LETTER = re.compile(r"\[U\+([0-9A-F]{4,6})\]")


def _letter(named: re.Match[str]) -> str:
    code = int(named[1], 16)
    ours = code <= 0x10FFFF and code not in _drawable() and plain(chr(code)) == chr(code)  # or it is part of somebody's name
    return chr(code) if ours else named[0]


@lru_cache(maxsize=1)
def _ruler() -> Any:
    return RendererAgg(1, 1, 72)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=10_000)
def _advance(mark: str, weight: str) -> float:
    """How far a letter moves the next one, as a share of the font's size. Kerning is left out: it would only bring letters closer."""
    font = FontProperties(family=[*_families()], size=100, weight=weight)
    with_it, without = (_ruler().get_text_width_height_descent(text, font, ismath=False)[0] for text in (f"|{mark}|", "||"))
    return float(with_it - without) / 100


def width(text: str, size: float = BODY, weight: str = "normal") -> float:
    """How wide readable text is drawn, in inches; not escaped."""
    return sum(_advance(mark, weight) for mark in text) * size / 72 * 1.03


def height(size: float = BODY, lines: int = 1) -> float:
    """How high so many lines of text are, in inches."""
    return lines * size * 1.25 / 72


def shortened(text: str, inches: float, size: float = BODY, weight: str = "normal") -> str:
    """Readable text with as much of its middle left out as it takes to fit."""
    if width(text, size, weight) <= inches + 1e-9:
        return text
    keep, low, high = 1, 1, len(text) - 1
    while low <= high:
        middle = (low + high) // 2
        if width(_without_middle(text, middle), size, weight) <= inches:
            keep, low = middle, middle + 1
        else:
            high = middle - 1
    return _without_middle(text, keep)


def _without_middle(text: str, keep: int) -> str:
    tail = keep // 2
    return text[: keep - tail] + "…" + (text[-tail:] if tail else "")


def escaped(text: str) -> str:
    """Text that matplotlib draws as it is: two `$` would be mathematics."""
    return text.replace("$", r"\$")


def label(text: str, inches: float = 100.0, size: float = BODY, weight: str = "normal") -> str:
    """Anyone's text, made ready for matplotlib: on one line, shortened in the middle to fit, escaped."""
    return escaped(shortened(readable(text), inches, size, weight))


def distinct(texts: Sequence[str], inches: float, size: float = BODY, weight: str = "normal") -> list[str]:
    """Different texts, readable, shortened to fit, and different still. Not escaped.

    Those that lose what tells them apart with their middle are cut around it instead, and numbered where that does not help.
    """
    whole = [readable(text) for text in texts]
    short = [shortened(text, inches, size, weight) for text in whole]
    for alike in _collisions(short, texts):
        common = next(place for place, letters in enumerate(zip_longest(*(whole[index] for index in alike))) if len(set(letters)) > 1)
        for index in alike:
            short[index] = _from(whole[index], common, inches, size, weight)
    for alike in _collisions(short, texts):
        for place, index in enumerate(alike, 1):
            mark = f" #{place}"
            short[index] = shortened(whole[index], inches - width(mark, size, weight), size, weight) + mark
    return short


def _collisions(short: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
    """The places of different texts that came out the same."""
    found: dict[str, list[int]] = {}
    for index, text in enumerate(short):
        found.setdefault(text, []).append(index)
    return [places for places in found.values() if len({texts[index] for index in places}) > 1]


def _from(text: str, common: int, inches: float, size: float, weight: str) -> str:
    """A text's first word, and then as much as fits from shortly before the place where it differs from others."""
    head = text.split(" ")[0]
    head = head if width(head, size, weight) <= inches / 3 else text[:6]
    start = max(len(head), common - 12)
    ends = range(len(text), start, -1)
    return _window(head, text, start, next((end for end in ends if width(_window(head, text, start, end), size, weight) <= inches), start))


def _window(head: str, text: str, start: int, end: int) -> str:
    return head + "…" + text[start:end] + ("…" if end < len(text) else "")


def wrapped(text: str, inches: float, size: float = SMALL, most: int = 3) -> list[str]:
    """Text in lines that fit, the last one shortened where there are more than `most`; escaped."""
    lines: list[str] = []
    rest = readable(text).split(" ")
    while rest and len(lines) < most - 1:
        taken = 1
        while taken < len(rest) and width(" ".join(rest[: taken + 1]), size) <= inches:
            taken += 1
        lines.append(shortened(" ".join(rest[:taken]), inches, size))
        rest = rest[taken:]
    return [escaped(text) for text in [*lines, *([shortened(" ".join(rest), inches, size)] if rest else [])]]


# -- which runs, and what they are called


def chosen(runs: Sequence[Run], model: str | None = None, variants: Sequence[str] = ()) -> list[Run]:
    """The runs of this model and these variants, all where none is named.

    Raises UsageError for a name that does not occur, InputError where there are no runs at all.
    """
    if not runs:
        raise InputError("there are no runs to draw")
    models = list(dict.fromkeys(run.job.model.name for run in runs))
    if model is not None and model not in models:
        raise UsageError(f"these runs have no model {model!r}{near(model, models) or '; they have ' + ', '.join(models)}")
    runs = [run for run in runs if model in (None, run.job.model.name)]
    known = list(dict.fromkeys(run.job.variant for run in runs))
    for name in variants:
        if name not in known:
            raise UsageError(f"these runs have no variant {name!r}{near(name, known) or '; they have ' + ', '.join(known)}")
    return [run for run in runs if not variants or run.job.variant in variants]


def names(keys: Collection[Key]) -> dict[Key, str]:
    """What each group of repeats is called, as short as it can be told apart: its variant, and threads and machine where they differ."""
    several_threads = len({key.threads for key in keys}) > 1
    several_machines = len({key.machine for key in keys}) > 1
    found = {}
    for key in keys:
        count = key.threads
        threads = [f"{count} thread{'s' if count > 1 else ''}" if count else "default threads"] if several_threads else []
        found[key] = ", ".join([key.variant, *threads, *([key.machine] if several_machines else [])])
    return found


def by_model(grouped: Mapping[Key, list[Run]]) -> dict[str, dict[Key, list[Run]]]:
    """Groups of repeats by model, both in order of first appearance."""
    found: dict[str, dict[Key, list[Run]]] = {}
    for key, group in grouped.items():
        found.setdefault(key.model, {})[key] = group
    return found


def conditions(runs: Sequence[Run]) -> str:
    """Under which conditions these runs were measured, in a line."""
    jobs = [run.job for run in runs]
    said = []
    if all(job.threads for job in jobs):
        threads = sorted({job.threads or 0 for job in jobs})
        said.append(f"{_list(threads)} thread{'s' if threads != [1] else ''}")
    if any(job.warmup or job.runs or not job.argv for job in jobs):
        said.append(
            f"{_list(sorted({job.warmup for job in jobs}))} warm-up and {_list(sorted({job.runs for job in jobs}))} timed iterations"
        )
    counts: dict[object, int] = {}
    for job in jobs:
        one = (job.model.name, job.variant, job.threads)
        counts[one] = counts.get(one, 0) + 1
    several = sorted({min(counts.values()), max(counts.values())})
    said.append(f"{' to '.join(map(str, several))} repeat{'s' if several != [1] else ''}")
    machines = {run.machine.name: run.machine for run in runs}
    if len(machines) == 1:
        machine = runs[0].machine
        words = replace(machine, cpu="").words
        said.append(f"{machine.name} ({words})" if words else machine.name)
    else:
        said.append(f"{len(machines)} machines")
    return " · ".join(said)


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def remarks(grouped: Mapping[Key, list[Run]]) -> list[str]:
    """What a reader of the picture must know: different machines, and what failed."""
    runs = [run for group in grouped.values() for run in group]
    machines = {run.machine.name: run.machine for run in runs}
    found = []
    if len(machines) > 1:
        each = ", ".join(f"{one.name} ({one.words or 'not known'})" for one in machines.values())
        found.append(f"Measured on {len(machines)} machines, which are never averaged: {each}")
    called = names(list(grouped))
    several_models = len({key.model for key in grouped}) > 1
    for key, group in grouped.items():
        name = f"{key.model}, {called[key]}" if several_models else called[key]
        failed = [run.outcome for run in group if not run.outcome.ok]
        for one in dict.fromkeys((outcome.status, outcome.phase) for outcome in failed):
            same = [outcome for outcome in failed if (outcome.status, outcome.phase) == one]
            share = f" in {len(same)} of {len(group)} repeats" if len(group) > 1 else ""
            found.append(f"✗ {name}: failed{share}: {same[0].sentence}")
    return found


def no_success(runs: Sequence[Run]) -> InputError:
    """The error where nothing can be drawn for want of a successful run."""
    last = runs[-1]
    said = f"{plain(last.job.variant)}: {plain(last.outcome.sentence)}"
    return InputError(f"no run succeeded, so there is nothing to draw ({said}); `memprof plot timeline` shows how far they came")


# -- the sheet


@dataclass(frozen=True)
class Entry:
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


_MARGIN = 0.15
_MOST_REMARKS = 8


class Sheet:
    """A figure laid out in inches: title, conditions and legend above the content, remarks below it.

    All places are in inches, from the left edge and from the top of the content.
    """

    def __init__(
        self,
        title: str,
        subtitle: str,
        content: float,
        *,
        legend: Sequence[Entry] = (),
        remarks: Sequence[str] = (),
        width: float = 10.0,
    ) -> None:
        self.width = width
        inner = width - 2 * _MARGIN
        rows = _legend_rows(legend, inner)
        below = _remark_lines(remarks, inner)
        top = _MARGIN + height(HEADING) + height(SMALL) + 0.06 + len(rows) * height(SMALL) * 1.25 + 0.16
        bottom = _MARGIN + (0.08 + height(SMALL, len(below)) if below else 0)
        self.figure = Figure(figsize=(width, top + content + bottom), dpi=DPI, facecolor="white")
        self._height = top + content + bottom
        self._top = top
        self.text(_MARGIN, _MARGIN - top, label(title, inner, HEADING, "bold"), size=HEADING, weight="bold")
        self.text(_MARGIN, _MARGIN - top + height(HEADING) + 0.03, label(subtitle, inner, SMALL), size=SMALL, color=GREY)
        for index, row in enumerate(rows):
            self._legend(row, _MARGIN - top + height(HEADING) + height(SMALL) + 0.1 + index * height(SMALL) * 1.25)
        for index, text in enumerate(below):
            self.text(_MARGIN, content + 0.08 + height(SMALL, index), text, size=SMALL, color=INK)

    def text(self, left: float, top: float, text: str, **words: Any) -> Text:
        """Text whose upper left corner, or other `ha` and `va`, lies there; ready for matplotlib (see label)."""
        place = {"ha": "left", "va": "top", **words}
        return self.figure.text(left, self._height - self._top - top, text, transform=self.figure.dpi_scale_trans, **place)

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

    def _legend(self, row: Sequence[tuple[float, Entry]], top: float) -> None:
        middle = self._height - self._top - top - SMALL / 72 * 0.52
        for left, entry in row:
            if entry.fill is not None:
                box = Rectangle((left, middle - 0.05), 0.28, 0.1, transform=self.figure.dpi_scale_trans, **entry.fill.words())
                self.figure.add_artist(box)
            if entry.line is not None:
                xs = [left + entry.handle / 2] if entry.is_point else [left, left + 0.14, left + 0.28]
                words = {"color": INK, "markevery": [len(xs) // 2], **entry.line}
                self.figure.add_artist(Line2D(xs, [middle] * len(xs), transform=self.figure.dpi_scale_trans, **words))
            self.text(left + entry.handle, top, escaped(entry.text), size=SMALL)


def _legend_rows(entries: Sequence[Entry], inches: float) -> list[list[tuple[float, Entry]]]:
    rows: list[list[tuple[float, Entry]]] = []
    left = inches
    for entry in entries:
        wide = entry.handle + width(entry.text, SMALL) + 0.2
        if not rows or left + wide > inches + _MARGIN:
            rows.append([])
            left = _MARGIN
        rows[-1].append((left, entry))
        left += wide
    return rows


def _remark_lines(remarks: Sequence[str], inches: float) -> list[str]:
    shown = remarks if len(remarks) <= _MOST_REMARKS else remarks[: _MOST_REMARKS - 1]
    more = [f"and {len(remarks) - len(shown)} more such remarks: `memprof table` has them all"] if len(shown) < len(remarks) else []
    return [text for remark in [*shown, *more] for text in wrapped(remark, inches)]


# -- labels beside points


Box = tuple[float, float, float, float]
Spot = tuple[float, float]
Leader = tuple[Spot, Spot]
_NEAR = 0.13  # a label so many inches from its point needs no line to it


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes (left, bottom, right, top) share more than an edge."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def leader(point: Spot, box: Box) -> Leader | None:
    """The line from a point to its label, None where they are near enough without one."""
    end = min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])
    return (point, end) if math.dist(point, end) > _NEAR else None


def _is_clear(line: Leader | None, boxes: Sequence[Box], lines: Sequence[Leader]) -> bool:
    return line is None or not (any(_runs_through(line, box) for box in boxes) or any(_cross(line, other) for other in lines))


def _runs_through(line: Leader, box: Box) -> bool:
    """Whether a line enters a box (Liang and Barsky 1984)."""
    (x, y), (u, v) = line
    begin, end = 0.0, 1.0
    for start, step, low, high in ((x, u - x, box[0], box[2]), (y, v - y, box[1], box[3])):
        if step:
            enters, leaves = sorted(((low - start) / step, (high - start) / step))
            begin, end = max(begin, enters), min(end, leaves)
        elif not low < start < high:
            return False
    return begin < end


def _cross(one: Leader, other: Leader) -> bool:
    """Whether two lines cross: the ends of each lie on both sides of the other."""

    def side(line: Leader, spot: Spot) -> float:
        (x, y), (u, v) = line
        return (u - x) * (spot[1] - y) - (v - y) * (spot[0] - x)

    return all(side(line, ends[0]) * side(line, ends[1]) < 0 for line, ends in ((one, other), (other, one)))


_RINGS = (0.09, 0.16, 0.26, 0.4, 0.58, 0.8, 1.05, 1.35)
_DIRECTIONS_ROUND = ((1, 0), (1, 1), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1), (-1, -1), (1, 0.5), (1, -0.5), (-1, 0.5), (-1, -0.5))


def beside(
    points: Sequence[Spot],
    sizes: Sequence[tuple[float, float]],
    area: Box,
    obstacles: Sequence[Box] = (),
    above: bool = False,
) -> list[Box] | None:
    """A box for the label of each point, none over another, over a point or an obstacle, or outside the area; None without room.

    The line to a label that is not near its point meets no other label, point or line. points, sizes (width, height), area and obstacles in
    inches. Near a point is tried first, to its right before to its left, or above it before all else.
    """
    spots = [(x - 0.06, y - 0.06, x + 0.06, y + 0.06) for x, y in points]
    found: dict[int, Box] = {}
    lines: list[Leader] = []
    crowd = [sum(abs(x - u) + abs(y - v) < 1.2 for u, v in points) for x, y in points]
    for index in sorted(range(len(points)), key=lambda one: -crowd[one]):  # where it is crowded first
        taken = [*spots, *found.values(), *obstacles]
        x, y = points[index]
        others = [*(spot for spot in spots if not _inside((x, y, x, y), spot)), *found.values()]  # points on one another are one
        free = (
            box
            for box in _candidates(points[index], sizes[index], above)
            if _inside(box, area)
            and not any(overlap(box, other) for other in taken)
            and not any(_runs_through(line, box) for line in lines)
            and _is_clear(leader(points[index], box), others, lines)
        )
        box = next(free, None)
        if box is None:
            return None
        found[index] = box
        if (line := leader(points[index], box)) is not None:
            lines.append(line)
    return [found[index] for index in range(len(points))]


def _candidates(point: Spot, size: tuple[float, float], above: bool) -> Iterator[Box]:
    (x, y), (wide, high) = point, size
    for ring in _RINGS:
        for across, up in ((0.0, 1.0), *_DIRECTIONS_ROUND) if above else _DIRECTIONS_ROUND:
            left = x + across * ring - (wide if across < 0 else wide / 2 if across == 0 else 0)
            bottom = y + up * ring - (high if up < 0 else high / 2 if up == 0 else 0)
            yield left, bottom, left + wide, bottom + high


def backing() -> dict[str, Any]:
    """For text over lines: a box behind it, so that it stays readable (and, unlike an outline, text in an SVG)."""
    return {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


def _inside(box: Box, area: Box) -> bool:
    return area[0] <= box[0] and area[1] <= box[1] and box[2] <= area[2] and box[3] <= area[3]


def apart(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres as near to the wanted ones as intervals of these sizes can lie side by side, in order, from low to high.

    wanted must increase. Where they are too long together they overlap evenly.
    """
    blocks: list[list[Any]] = []  # [left edge, length, sum of the wanted left edges, members]
    for centre, size in zip(wanted, sizes, strict=True):
        blocks.append([centre - size / 2, size, [centre - size / 2]])
        while len(blocks) > 1 and blocks[-2][0] + blocks[-2][1] > blocks[-1][0]:
            last, before = blocks.pop(), blocks[-1]
            before[2] += [edge - before[1] for edge in last[2]]
            before[1] += last[1]
            before[0] = sum(before[2]) / len(before[2])
    places: list[float] = []
    for left, _, members in blocks:
        places += [left] * len(members)
    return _pressed(places, sizes, low, high)


def _pressed(lefts: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Lay intervals from their blocks' left edges, pressed back where they pass the right edge and then the left one."""
    edges: list[float] = []
    at = low
    for left, size in zip(lefts, sizes, strict=True):
        at = max(at, left)
        edges.append(at)
        at += size
    limit = high
    for index in range(len(edges) - 1, -1, -1):
        edges[index] = min(edges[index], limit - sizes[index])
        limit = edges[index]
    return [edge + size / 2 for edge, size in zip(edges, sizes, strict=True)]


# -- the file

_HEADS = {".png": (b"\x89PNG",), ".pdf": (b"%PDF",), ".svg": (b"<?xml", b"<svg")}
ENDINGS = tuple(_HEADS)


def check(path: Path) -> None:
    """Say what is wrong with a picture's path before anything is drawn.

    Raises UsageError for an unknown ending, InputError where it cannot be written or what lies there is no such picture.
    """
    ending = path.suffix.lower()
    if ending not in _HEADS:
        raise UsageError(f"{path}: a picture's name ends in .png, .svg or .pdf")
    check_replaceable(path, lambda head: head.startswith(_HEADS[ending]), f"a {ending[1:].upper()} picture")


def check_replaceable(path: Path, ours: Callable[[bytes], bool], what: str) -> None:
    """Say what stands against writing a file. Raises InputError where its folder cannot take it or something else lies there."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder")
        if not path.parent.is_dir():
            raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InputError(f"{path} cannot be written: no permission to write in {path.parent}")
        if path.exists():
            with path.open("rb") as file:
                head = file.read(256)
            if head and not ours(head.lstrip()):
                raise InputError(f"{path} exists and is not {what}; it was left as it is")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None


def save(figure: Figure, path: str | Path) -> None:
    """Write a picture, whole or not at all; an earlier picture of that name is replaced, anything else is not.

    Raises UsageError for an ending other than .png, .svg and .pdf, InputError where it cannot be written.
    """
    path = Path(path)
    check(path)
    ending = path.suffix.lower()[1:]
    facts: dict[str, Any] = {
        "png": {"Software": "memprof"},
        "svg": {"Creator": "memprof", "Date": None},
        "pdf": {"Creator": "memprof", "Producer": "matplotlib", "CreationDate": None},
    }
    data = io.BytesIO()
    with look(), _whole_letters(figure, ending == "svg"):
        figure.savefig(data, format=ending, dpi=DPI, metadata=facts[ending])
    write(path, data.getvalue())


def write(path: Path, data: bytes) -> None:
    """Replace a file in one step. Raises InputError."""
    target = path.resolve()
    try:
        descriptor, name = tempfile.mkstemp(prefix=".memprof-", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None


@contextmanager
def _whole_letters(figure: Figure, wanted: bool) -> Iterator[None]:
    """Within it, letters that no font here has are letters again: whoever opens an SVG may have the font."""
    changed = []
    if wanted:
        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            if _NAMED_LETTER.search(text.get_text()):
                changed.append((text, text.get_text()))
                text.set_text(_NAMED_LETTER.sub(_letter, text.get_text()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield
    for text, before in changed:
        text.set_text(before)


# -- metrics


def in_phase(phase: str) -> str:
    """` in EXECUTE`, or nothing for PEAK, which is no phase."""
    return "" if phase == PEAK else f" in {plain(phase)}"


def phase_of(metric: Metric, phase: str | None) -> str:
    """The phase a metric is drawn of where none is named, the same as in tables."""
    return phase or (PEAK if metric.name == "rss_peak_bytes" else EXECUTE)
