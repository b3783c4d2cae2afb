"""Every repeat as a point, so that two modes are seen as two: as measured on a shared scale, and as the difference from each variant's median."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from msgspec import Struct

from memprof.base.units import counted
from memprof.records import metrics, summary
from memprof.records.metrics import Metric
from memprof.records.modes import middle
from memprof.records.summary import Key
from memprof.records.types import Run

from ..rows import named, phase_of
from ..tables import headline
from ..tables.grid import Unit
from . import choosing, lettering, style
from .sheet import LegendEntry, Sheet

_TITLES, _TICKS, _GAP, _TEXT = 0.26, 0.36, 0.3, 1.5
_DOT_STEP, _ROOM, _HIGHEST_ROW = 0.062, 0.2, 0.9  # inches
_MOST_ROWS = 60


class Strip(Struct, frozen=True):
    """A variant's values, in the order of the repeats, and how many repeats have none."""

    key: Key
    name: str
    values: tuple[float, ...]
    lost: int

    @property
    def median(self) -> float:
        return middle(self.values)


@style.look()
def render(runs: Sequence[Run], names: Sequence[str] = (), *, phase: str | None = None) -> Figure:
    """The picture of these runs: for each model and metric (RSS peak where none is named) one row per variant.

    phase: PEAK for RSS peaks and EXECUTE for other metrics where None. Raises UsageError for an unknown metric, InputError where no run
    succeeded or none has the metric.
    """
    wanted = [metrics.metric(name) for name in (names or ("rss_peak_bytes",))]
    choosing.need_success(runs)
    all_groups = summary.groups(runs)
    grouped = dict(list(all_groups.items())[:_MOST_ROWS])
    called = named(grouped)
    blocks = {
        model: [(metric, [_strip(key, called[key], group, metric, phase) for key, group in block.items()]) for metric in wanted]
        for model, block in choosing.by_model(grouped).items()
    }
    panels = [panel for block in blocks.values() for panel in block]
    units = {metric.name: _unit(panels, metric, phase) for metric in wanted}
    texts, wide = choosing.row_labels(called, 2.7)
    indent = wide + 0.25
    failed = [LegendEntry("✗ failed before it had a value")] if any(strip.lost for _, strips in panels for strip in strips) else []
    sheet = Sheet(
        "Every repeat",
        choosing.conditions(runs),
        {model: sum(_panel_height(strips) for _, strips in block) for model, block in blocks.items()},
        finding=headline.of_picture(runs),
        legend=[*_LEGEND, *failed],
        remarks=choosing.remarks(grouped, len(all_groups) - len(grouped)),
    )
    for model, block in blocks.items():
        top = sheet.tops[model]
        for metric, strips in block:
            called_here = [texts[strip.key] for strip in strips]
            where = phase_of(metric, phase, runs)
            _block(sheet, top + _TITLES, indent, _row_height(strips), strips, called_here, metric, where, units[metric.name])
            top += _panel_height(strips)
    return sheet.figure


def _row_height(strips: Sequence[Strip]) -> float:
    return max(min(len(strip.values) * _DOT_STEP + _ROOM, _HIGHEST_ROW) for strip in strips)


def _panel_height(strips: Sequence[Strip]) -> float:
    return _TITLES + _row_height(strips) * len(strips) + _TICKS + 0.1


_LEGEND = (
    LegendEntry(
        "a repeat, the first on top",
        line={"marker": "o", "markersize": 4.5, "color": "#0072B2", "markeredgecolor": "white", "linestyle": "none"},
    ),
    LegendEntry("median", line={"marker": "|", "markersize": 11, "markeredgewidth": 1.6, "linestyle": "none"}),
    LegendEntry("the axes do not begin at 0"),
)


def _strip(key: Key, name: str, group: Sequence[Run], metric: Metric, phase: str | None) -> Strip:
    values = tuple(choosing.values(group, metric, phase))
    return Strip(key, name, values, len(group) - len(values))


def _unit(panels: Sequence[tuple[Metric, Sequence[Strip]]], metric: Metric, phase: str | None) -> Unit:
    values = [value for other, strips in panels if other == metric for strip in strips for value in strip.values]
    return choosing.unit(metric, phase, values)


def _block(
    sheet: Sheet,
    top: float,
    indent: float,
    high: float,
    strips: Sequence[Strip],
    texts: Sequence[str],
    metric: Metric,
    phase: str,
    unit: Unit,
) -> None:
    wide = (10.0 - indent - _TEXT - 0.15 - _GAP) / 2
    measured = sheet.axes(indent, top, wide, high * len(strips))
    beside = sheet.axes(indent + wide + _GAP, top, wide, high * len(strips))
    _frame(
        measured, len(strips), lettering.label(metric.title + choosing.in_phase(phase), wide, weight="bold"), unit.caption("as measured")
    )
    _frame(beside, len(strips), "from the variant's own median", unit.caption("difference"))
    words = {"ha": "right", "va": "baseline", "weight": "bold"}
    sheet.text(sheet.width - 0.15, top - 4 / 72, unit.caption("median"), **words)
    sides = [(axes, relative, *_side(strips, unit, relative)) for axes, relative in ((measured, False), (beside, True))]
    for axes, _, limits, _ in sides:
        axes.set_xlim(limits)
    for row, (strip, text) in enumerate(zip(strips, texts, strict=True)):
        centre = top + (row + 0.5) * high
        sheet.text(indent - 0.1, centre, lettering.escaped(text), ha="right", va="center")
        median, colour = _summary(strip, unit)
        sheet.text(sheet.width - 0.15, centre, median, ha="right", va="center", size=style.SMALL, color=colour)
        for axes, relative, _, values in sides:
            if strip.values:
                _dots(axes, row, values[row], 0.0 if relative else strip.median / unit.size, high)


def _side(strips: Sequence[Strip], unit: Unit, relative: bool) -> tuple[tuple[float, float], list[list[float]]]:
    """An axis's limits, and each strip's values along it."""
    values = [[(value - (strip.median if relative else 0)) / unit.size for value in strip.values] for strip in strips]
    flat = [value for strip_values in values for value in strip_values]
    low, high = (min(flat), max(flat)) if flat else (0.0, 1.0)
    if relative:
        high = max(abs(low), abs(high)) or 1e-3
        low = -high
    room = max((high - low) * 0.06, abs(high) * 1e-4, 1e-6)
    return (low - room, high + room), values


def _summary(strip: Strip, unit: Unit) -> tuple[str, str]:
    if not strip.values:
        return "✗ none succeeded", style.FAILED
    count = len(strip.values)
    lost = f", ✗ {strip.lost}" if strip.lost else ""
    return f"{unit.cell(strip.median)}  ({counted(count, 'repeat')}{lost})", style.INK


def _frame(axes: Axes, rows: int, title: str, label: str) -> None:
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_title(title, fontsize=style.BODY, fontweight="bold", loc="left", pad=4)
    axes.set_xlabel(label, labelpad=1)
    axes.xaxis.set_major_locator(MaxNLocator(5, min_n_ticks=2))
    axes.grid(axis="x")
    for edge in range(1, rows):
        axes.axhline(edge - 0.5, color=style.FAINT, linewidth=0.6)


def _dots(axes: Axes, row: int, values: Sequence[float], median: float, high: float) -> None:
    """A dot for each repeat, the first on top: dots at the same value do not hide one another, and a drift over the repeats is seen."""
    step = min(_DOT_STEP, (high - _ROOM) / len(values)) / high
    ys = [row + (place - (len(values) - 1) / 2) * step for place in range(len(values))]
    axes.vlines(median, row - 0.46, row + 0.46, color=style.INK, linewidth=1.6, zorder=2)
    look = {"marker": "o", "markersize": 4.5, "color": "#0072B2", "markeredgecolor": "white", "markeredgewidth": 0.5}
    axes.plot(values, ys, linestyle="none", zorder=3, **look)  # type: ignore[arg-type]
