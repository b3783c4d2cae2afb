"""Bars of each phase's RSS peak by variant: anonymous, file-backed, and the part that only the high-water mark saw.

RELEASE has no peak of interest: its bar is the resident set at its end, which is what stays.

A bar is as long as the median peak over the repeats. A high-water mark has no split, so the parts are those of the highest sample of the phase
(or of its end, where that was higher), in the repeat whose peak is the median, or the lower of the two around it.
The rest, up to the mark, is a transient that polling missed.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import matplotlib.patheffects
import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from msgspec import Struct

from memprof.base.errors import InputError
from memprof.records import metrics, summary
from memprof.records.metrics import BYTES
from memprof.records.modes import middle
from memprof.records.summary import Key
from memprof.records.types import RELEASE, STARTUP, Mark, Run, Timeline

from ..columns import ColumnArrays, at_end, columns, split
from ..rows import named, unloaded
from ..tables import headline
from ..tables.grid import Unit, choose_unit
from . import choosing, lettering, style
from .sheet import LegendEntry, Sheet
from .style import ANON, FILE, UNSEEN

_ROW, _TITLES, _TICKS, _GAP = 0.27, 0.24, 0.4, 0.12
_COLUMNS, _MOST_COLUMNS = 4, 5  # of several lines, and of a single line
_AFTER_RELEASE = "after RELEASE"
_MOST_BARS = 60  # more rows than this are not looked at, and a PNG has its limits


class PhaseBar(Struct, frozen=True):
    """A phase of a variant, in bytes: its median peak and the parts of that, the smallest and largest repeat, and the baseline. swapped: whether
    the peak lacks pages that were swapped out."""

    peak: float
    anon: float
    file: float
    low: float
    high: float
    exact: bool
    baseline: float | None
    failed: bool
    imported: bool
    swapped: bool

    @property
    def unseen(self) -> float:
        """The part of the peak that only the high-water mark saw, or that a log does not split."""
        return self.peak - self.anon - self.file


@style.look()
def render(runs: Sequence[Run]) -> Figure:
    """The picture of these runs: for each model one row per variant and one column per phase, all on one scale.

    Raises InputError where no run succeeded.
    """
    choosing.need_success(runs)
    grouped = summary.groups(runs)
    not_drawn = len(grouped) - _MOST_BARS
    grouped = dict(list(grouped.items())[:_MOST_BARS])
    blocks = choosing.by_model(grouped)
    unpacked = functools.cache(columns)
    bars = {(key, phase): bar_of(group, phase, unpacked) for key, group in grouped.items() for phase in phases(blocks[key.model])}
    known = [bar for bar in bars.values() if bar is not None]
    if not known:
        raise InputError("no run here has a memory peak of a phase: the logs that they were imported from do not say it")
    unit = choose_unit(BYTES, [bar.high for bar in known])
    called = named(grouped)
    texts, wide = choosing.row_labels(called, 2.7)
    indent = wide + 0.25

    several = any(len(group) > 1 for group in grouped.values())
    sheet = Sheet(
        "RSS peak of each phase",
        choosing.conditions(runs),
        {model: _block_height(block) for model, block in blocks.items()},
        finding=headline.of_picture(runs),
        legend=_legend(known, several, any(RELEASE in phases(block) for block in blocks.values()), unloaded(chain(*grouped.values()))),
        remarks=choosing.remarks(grouped, max(not_drawn, 0)),
    )
    limit = _limit(known, unit, indent, max(_COLUMNS, *(_a_line(block) for block in blocks.values())))
    for model, block in blocks.items():
        _block(sheet, sheet.tops[model], indent, block, texts, bars, unit, limit)
    return sheet.figure


def phases(block: Mapping[Key, list[Run]]) -> list[str]:
    """The phases that get a column: those that any run reached, but for STARTUP, which is the baseline, and for those without a peak of any run:
    the first column has their failures."""
    runs = [run for group in block.values() for run in group]
    reached = [phase for phase in summary.phases(runs, failed=True) if phase != STARTUP] or [STARTUP]
    return [
        phase for phase in reached if any((mark := run.mark(phase)) is not None and _height(mark) is not None for run in runs)
    ] or reached


def _a_line(block: Mapping[Key, list[Run]]) -> int:
    """How many columns stand side by side."""
    count = len(phases(block))
    return count if count <= _MOST_COLUMNS else _COLUMNS


def bar_of(group: Sequence[Run], phase: str, unpacked: Callable[[Timeline], ColumnArrays]) -> PhaseBar | None:
    """The bar of a phase over the repeats of a variant, None where no repeat finished it. unpacked: has the columns of a timeline."""
    marks = [(mark, run) for run in group if (mark := run.mark(phase)) is not None and _height(mark) is not None]
    having = sorted(marks, key=lambda pair: _height(pair[0]) or 0)
    if not having:
        return None
    peaks = [_height(mark) or 0 for mark, _ in having]
    median = middle(peaks, BYTES)
    typical, run = having[(len(having) - 1) // 2]  # the median's repeat, or the lower of its two
    parts = at_end(typical) if phase == RELEASE else split(typical, unpacked(run.timeline)) if not run.imported else None
    scale = median / (_height(typical) or 1)  # the median of two repeats lies between them, and has the parts of neither
    grounds = [ground for _, run in having if (ground := metrics.baseline(run, metrics.METRICS["rss_peak_bytes"])) is not None]
    return PhaseBar(
        peak=median,
        anon=parts.anon * scale if parts else 0,
        file=parts.file * scale if parts else 0,
        low=peaks[0],
        high=peaks[-1],
        exact=phase == RELEASE or all(mark.sure for mark, _ in having),
        baseline=statistics.median(grounds) if grounds else None,
        failed=any(not run.outcome.ok and run.outcome.phase == phase for run in group),
        imported=run.imported,
        swapped=phase != RELEASE and any(mark.swapped_bytes for mark, _ in having),
    )


def _height(mark: Mark) -> int | None:
    return mark.rss_end_bytes if mark.phase == RELEASE else mark.rss_peak_bytes


def _block_height(block: Mapping[Key, list[Run]]) -> float:
    lines = -(-len(phases(block)) // _a_line(block))
    return lines * (_TITLES + len(block) * _ROW + _TICKS)


def _legend(known: Sequence[PhaseBar], several: bool, released: bool, at_baseline: str) -> list[LegendEntry]:
    entries = (
        [LegendEntry(style.ANON_WORDS, fill=ANON), LegendEntry(style.FILE_WORDS, fill=FILE)]
        if not all(bar.imported for bar in known)
        else []
    )
    unseen = {bar.imported: None for bar in known if _visible(bar)}
    if unseen and not entries:
        entries.append(LegendEntry("RSS, as the log says", fill=UNSEEN))
    elif unseen:
        why = {False: "high-water mark above every sample", True: "RSS of a log"}
        entries.append(LegendEntry(f"{', or '.join(why[imported] for imported in unseen)}: split not known", fill=UNSEEN))
    if any(bar.baseline is not None for bar in known):
        entries.append(
            LegendEntry(f"baseline: {at_baseline}", line={"marker": "|", "markersize": 11, "markeredgewidth": 1.6, "linestyle": "none"})
        )
    if several:
        spread = {"marker": "|", "markersize": 5, "linewidth": 0.9, "color": style.INK, "markevery": [0, 2]}
        entries.append(LegendEntry("all repeats (bar and number: their median)", line=spread))
    entries.append(LegendEntry("bold: the variant's PEAK"))
    if released:
        entries.append(LegendEntry(f"{_AFTER_RELEASE}: the RSS that stays"))
    if any(bar.failed for bar in known):
        entries.append(LegendEntry("✗ failed in some repeats"))
    if any(bar.swapped for bar in known):
        entries.append(LegendEntry("≥ at least: pages were swapped out"))
    if not all(bar.exact for bar in known):
        reason = {False: "only what polling saw", True: "what its log says"}
        entries.append(
            LegendEntry("~ " + ", or ".join(reason[imported] for imported in {bar.imported: None for bar in known if not bar.exact}))
        )
    return entries


def _visible(bar: PhaseBar) -> bool:
    return bar.unseen > 0.005 * bar.peak


def _limit(known: Sequence[PhaseBar], unit: Unit, indent: float, columns: int) -> float:
    """The right end of all axes: room for the longest bar and its number."""
    wide = _panel_width(indent, columns)
    room = max(lettering.width(_text(bar, unit), style.SMALL, "bold") for bar in known) + 0.12
    return max(bar.high for bar in known) / unit.size / (1 - room / wide)


def _panel_width(indent: float, count: int) -> float:
    return (10.0 - indent - 0.15 - _GAP * (count - 1)) / count


def _text(bar: PhaseBar, unit: Unit) -> str:
    return ("≥" if bar.swapped else "" if bar.exact else "~") + unit.cell(bar.peak) + (" ✗" if bar.failed else "")


def _block(
    sheet: Sheet,
    top: float,
    indent: float,
    block: Mapping[Key, list[Run]],
    texts: Mapping[Key, str],
    bars: Mapping[tuple[Key, str], PhaseBar | None],
    unit: Unit,
    limit: float,
) -> None:
    columns = phases(block)
    count = _a_line(block)
    lines = [columns[start : start + count] for start in range(0, len(columns), count)]
    high = len(block) * _ROW
    wide = _panel_width(indent, count)
    peaks = {key: summary.peak_phases(group) for key, group in block.items()}
    for index, line in enumerate(lines):
        offset = top + index * (_TITLES + high + _TICKS) + _TITLES
        for place, phase in enumerate(line):
            left = indent + place * (wide + _GAP)
            axes = sheet.axes(left, offset, wide, high)
            title = _AFTER_RELEASE if phase == RELEASE else phase
            _frame(axes, len(block), unit, limit, lettering.label(title, wide, weight="bold"))
            shown = {row: bar for row, key in enumerate(block) if (bar := bars[key, phase]) is not None}
            _bars(axes, shown, unit, limit)
            for row, (key, group) in enumerate(block.items()):
                if place == 0:
                    sheet.text(indent - 0.1, offset + (row + 0.5) * _ROW, lettering.escaped(texts[key]), ha="right", va="center")
                if row in shown:
                    highest = bars.get((key, peaks[key].highest)) or shown[row]
                    same = _text(shown[row], unit) == _text(highest, unit)
                    _value(axes, row, shown[row], unit, bold=phase in peaks[key].level and same)
                else:
                    _absence(axes, row, group, phase, limit, columns if phase == columns[0] else ())


def _frame(axes: Axes, rows: int, unit: Unit, limit: float, title: str) -> None:
    axes.set_xlim(0, limit)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_title(title, fontsize=style.BODY, fontweight="bold", loc="left", pad=4)
    axes.set_xlabel(unit.caption("RSS"), labelpad=1)
    ticks = MaxNLocator(4, min_n_ticks=2).tick_values(0, limit)
    axes.set_xticks([tick for tick in ticks if tick <= limit * 0.93])  # the last would touch the next panel's first
    axes.grid(axis="x")


def _bars(axes: Axes, shown: Mapping[int, PhaseBar], unit: Unit, limit: float) -> None:
    """Bars by row. All of a kind are one artist: separate artists take many times as long, above all their hatches."""
    rows = list(shown)
    lefts = [0.0] * len(rows)
    for part, fill in (("anon", ANON), ("file", FILE), ("unseen", UNSEEN)):
        sizes = [getattr(bar, part) / unit.size for bar in shown.values()]
        boxes = [(left, row - 0.31, left + size, row + 0.31) for left, row, size in zip(lefts, rows, sizes, strict=True) if size > 0]
        if boxes:
            axes.add_patch(PathPatch(_outline(boxes), label=part, **fill.words()))
        lefts = [left + size for left, size in zip(lefts, sizes, strict=True)]
    grounds = {row: bar.baseline / unit.size for row, bar in shown.items() if bar.baseline is not None}
    under = [matplotlib.patheffects.withStroke(linewidth=3.2, foreground="white")]
    ends = [row - 0.44 for row in grounds], [row + 0.44 for row in grounds]
    axes.vlines(list(grounds.values()), *ends, color=style.INK, linewidth=1.6, path_effects=under)
    spreads = {row: (bar.low / unit.size, bar.high / unit.size) for row, bar in shown.items()}
    wide = {row: (low, high) for row, (low, high) in spreads.items() if high - low > 0.004 * limit}
    axes.hlines(list(wide), [low for low, _ in wide.values()], [high for _, high in wide.values()], color=style.INK, linewidth=0.9)
    caps = [(value, row) for row, both in wide.items() for value in both]
    axes.plot([value for value, _ in caps], [row for _, row in caps], color=style.INK, marker="|", markersize=5, linestyle="none")


def _outline(boxes: Sequence[tuple[float, float, float, float]]) -> Path:
    """Boxes (left, bottom, right, top) as one path."""
    corners = [((left, low), (right, low), (right, high), (left, high)) for left, low, right, high in boxes]
    return Path.make_compound_path_from_polys(numpy.array(corners))


def _value(axes: Axes, row: int, bar: PhaseBar, unit: Unit, bold: bool) -> None:
    place = (max(bar.peak, bar.high) / unit.size, row)
    weight = "bold" if bold else "normal"
    axes.annotate(_text(bar, unit), place, (4, 0), textcoords="offset points", va="center", size=style.SMALL, weight=weight)


def _absence(axes: Axes, row: int, group: Sequence[Run], phase: str, limit: float, columns: Sequence[str]) -> None:
    """Write in the place of a bar how the variant failed in this phase, or a dash. columns: of the first, all phases that have one: it has the
    failures in others too."""
    failed = [run.outcome for run in group if not run.outcome.ok and run.outcome.phase == phase]
    elsewhere = [run.outcome for run in group if columns and not run.outcome.ok and run.outcome.phase not in columns]
    failed = failed or elsewhere
    words = f"✗ {failed[0].word}{f' {failed[0].where}' if elsewhere else ''}" if failed else "–"
    text = lettering.label(words, 3.0, style.SMALL)
    axes.text(limit * 0.01, row, text, va="center", size=style.SMALL, color=style.FAILED if failed else style.GREY)
