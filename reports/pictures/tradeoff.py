"""Latency against memory, one point per variant: who is on the Pareto front, and who is beaten by another in both."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox
from msgspec import Struct
from msgspec.structs import replace

from memprof.base.errors import InputError
from memprof.records import metrics, summary
from memprof.records.metrics import Metric
from memprof.records.modes import middle
from memprof.records.summary import Key
from memprof.records.types import RUN, Run

from ..rows import named, phase_of
from ..tables import headline
from ..tables.grid import Unit, choose_unit
from . import choosing, lettering, style
from .sheet import LegendEntry, Sheet

_LEFT, _RIGHT, _HIGH, _BELOW = 0.72, 0.2, 4.3, 0.45
_LOG_FROM = 30.0
_KEY_ROW = 0.16
_MOST_NAMES = 60
_NAME_INCHES = 2.8  # beside a point
_KEY_INCHES, _MOST_KEY_COLUMNS = 9.0, 3
_BESIDE, _TALL = 0.09, 0.14  # inches from a point to its label, and the label's height

Spot = tuple[float, float]


class TradeoffPoint(Struct, frozen=True):
    """A variant: its memory in bytes and its latency in ns over the repeats that succeeded. row: how a table beside the picture calls it.
    left_out: see `render`."""

    name: str
    memory: tuple[float, ...]
    latency: tuple[float, ...]
    row: str = ""
    left_out: bool = False

    @property
    def at(self) -> tuple[float, float]:
        return middle(self.memory), middle(self.latency)

    def scaled(self, memory: Unit, latency: Unit) -> TradeoffPoint:
        """The same in these units."""
        return replace(
            self, memory=tuple(value / memory.size for value in self.memory), latency=tuple(value / latency.size for value in self.latency)
        )


class AxisScale(Struct, frozen=True):
    """An axis: from low to high, in its unit, logarithmic where the values span orders of magnitude."""

    low: float
    high: float
    log: bool

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def front(points: Sequence[TradeoffPoint]) -> list[TradeoffPoint]:
    """The Pareto front, by memory, smallest first: no other point has less memory or latency and no more of the other. Points
    that are left out are not on it."""
    best: list[TradeoffPoint] = []
    for point in sorted((point for point in points if not point.left_out), key=lambda point: point.at):
        if not best or point.at[1] < best[-1].at[1] or point.at == best[-1].at:
            best.append(point)
    return best


@style.look()
def render(
    runs: Sequence[Run],
    memory: str = "rss_peak_bytes",
    *,
    phase: str | None = None,
    rows: Mapping[str, str] | None = None,
    left_out: Collection[str] = (),
    limit_bytes: float | None = None,
    finding: str = "",
) -> Figure:
    """The picture of these runs, one panel per model. memory: the metric that stands for it, in `phase` (PEAK for RSS peaks where None). rows: by the
    name of a variant, what a table beside the picture calls it. left_out: the names of variants that this table leaves out, as another is no worse
    beyond noise: none of them is on the front. limit_bytes: a limit to memory, which is a line. finding: the heading, where it is
    no range.

    Raises UsageError for an unknown metric, InputError where no run succeeded or none has both figures.
    """
    metric = metrics.metric(memory)
    choosing.need_success(runs)
    phase = phase_of(metric, phase, runs)
    grouped = summary.groups(runs)
    called = named(grouped)
    points = {model: _points(block, called, metric, phase, rows or {}, left_out) for model, block in choosing.by_model(grouped).items()}
    all_points = [point for model_points in points.values() for point in model_points]
    if not all_points:
        raise InputError(f"these runs have no {metric.name} in {phase} together with timed iterations")
    latency = metrics.METRICS["time_ns"]
    units = (
        choose_unit(metric.unit, [value for point in all_points for value in point.memory]),
        choose_unit(latency.unit, [value for point in all_points for value in point.latency]),
    )
    shown = {model: model_points for model, model_points in points.items() if model_points}
    timed = "Duration" if all(_timed(group) == RUN for group in grouped.values()) else "Latency, one iteration"
    limit = limit_bytes / units[0].size if limit_bytes else None
    panels = {model: _Panel([point.scaled(*units) for point in model_points], limit) for model, model_points in shown.items()}
    heights = {model: _HIGH + _BELOW + panel.key_height for model, panel in panels.items()}
    remarks = choosing.remarks(grouped)
    remarks += [f"{model}: no repeat of any variant succeeded" for model in points if model not in shown]
    remarks += [f"Only the front is named, {panel.unnamed} others are not: --variant chooses" for panel in panels.values() if panel.unnamed]
    sheet = Sheet(
        "Latency against memory",
        choosing.conditions(runs),
        heights,
        finding=finding or headline.of_picture(runs),
        legend=_legend(bool(left_out)),
        remarks=remarks,
    )
    for model, panel in panels.items():
        across = lettering.label(units[0].caption(metric.title + choosing.in_phase(phase)), 8.0, style.SMALL)
        panel.draw(sheet, sheet.tops[model], across, units[1].caption(timed))
    return sheet.figure


_ON: dict[str, Any] = {"marker": "o", "markersize": 7, "color": "#0072B2", "markeredgecolor": style.INK, "linestyle": "none"}
_BEATEN: dict[str, Any] = {"marker": "o", "markersize": 6, "color": "white", "markeredgecolor": style.GREY, "linestyle": "none"}


def _legend(left_out: bool) -> tuple[LegendEntry, ...]:
    return (
        LegendEntry(
            "Pareto front: no other variant is better", line={**_ON, "linestyle": "--", "linewidth": 1.2, "markeredgecolor": style.INK}
        ),
        LegendEntry("another is better" + (", or no worse beyond noise" if left_out else ""), line=_BEATEN),
        LegendEntry("thin bars: all repeats, point: their medians"),
        LegendEntry("further left and down is better"),
    )


def _points(
    block: Mapping[Key, list[Run]],
    called: Mapping[Key, str],
    metric: Metric,
    phase: str,
    rows: Mapping[str, str],
    left_out: Collection[str],
) -> list[TradeoffPoint]:
    latency = metrics.METRICS["time_ns"]
    points = []
    for key, group in block.items():
        where = _timed(group)
        both = [(metrics.value(run, phase, metric), metrics.value(run, where, latency)) for run in group if run.complete]
        having = [(memory, time) for memory, time in both if memory is not None and time is not None]
        if having:
            memory, time = zip(*having, strict=True)
            points.append(TradeoffPoint(called[key], memory, time, rows.get(key.heading, ""), key.heading in left_out))
    return points


def _timed(group: Sequence[Run]) -> str:
    """The phase whose time counts: for a program without phases, all of it."""
    return RUN if any(run.mark(RUN) is not None for run in group) else summary.timed_phase(group)


class _Panel:
    """A model's points and their labels, decided before the sheet is made.

    Labels are names if all are short and have room beside their points, else the rows of a table or numbers, which a key below the panel explains.
    """

    def __init__(self, points: Sequence[TradeoffPoint], limit: float | None) -> None:
        self._points = points
        self._limit = limit
        self._wide = 10.0 - _LEFT - _RIGHT
        self._scales = (
            _scale([*(value for point in points for value in point.memory), *([limit] if limit is not None else [])]),
            _scale([value for point in points for value in point.latency]),
        )
        named = sorted(points if len(points) <= _MOST_NAMES else front(points)[:_MOST_NAMES], key=lambda point: point.at)
        self.unnamed = len(points) - len(named)
        names = lettering.distinct([point.name for point in named], _KEY_INCHES, style.SMALL)
        widest = max(lettering.width(name, style.SMALL) for name in names)
        spots = [(self._along(0, point.at[0]), self._along(1, point.at[1])) for point in named]
        points_at = [(self._along(0, point.at[0]), self._along(1, point.at[1])) for point in points]
        self._labels = _placed(list(zip(names, spots, strict=True)), points_at, self._wide)
        self._key: list[str] = []
        if widest > _NAME_INCHES or _crowded(self._labels, points_at):
            rows = [point.row or str(number) for number, point in enumerate(named, 1)]
            self._labels = _placed(_short_labels(spots, rows), points_at, self._wide)
            self._key = [f"{row}  {name.removeprefix(row).lstrip()}" for row, name in zip(rows, names, strict=True)]
        self._key_wide = max([_NAME_INCHES, *(lettering.width(text, style.SMALL) for text in self._key)]) + 0.25
        self._key_rows = -(-len(self._key) // max(1, min(_MOST_KEY_COLUMNS, int(self._wide / self._key_wide))))

    def _along(self, axis: int, value: float) -> float:
        """Where a value lies along an axis, in inches."""
        return self._scales[axis].share(value) * (self._wide, _HIGH)[axis]

    @property
    def key_height(self) -> float:
        return self._key_rows * _KEY_ROW + (0.1 if self._key else 0)

    def draw(self, sheet: Sheet, top: float, across: str, up: str) -> None:
        axes = sheet.axes(_LEFT, top, self._wide, _HIGH)
        for scale, way in ((self._scales[0], "x"), (self._scales[1], "y")):
            _axis(axes, scale, way)
        axes.set_xlabel(across + (" (logarithmic)" if self._scales[0].log else ""), labelpad=2)
        axes.set_ylabel(up + (" (logarithmic)" if self._scales[1].log else ""))
        axes.grid()
        best = front(self._points)
        self._draw_front(axes, best)
        if self._limit is not None:
            axes.axvline(self._limit, color=style.FAILED, linewidth=1.2, zorder=2)
            words: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "top", "size": style.SMALL, "color": style.FAILED}
            axes.text(self._limit, 0.98, "limit ", transform=axes.get_xaxis_transform(), **words)
        self._draw_bars(axes)
        on_front = {id(point) for point in best}
        for look, is_on in ((_ON, True), (_BEATEN, False)):
            places = [point.at for point in self._points if (id(point) in on_front) is is_on]
            axes.plot([x for x, _ in places], [y for _, y in places], **look, zorder=4)
        for label in self._labels:
            label.draw(axes, (self._wide, _HIGH))
        for index, text in enumerate(self._key):
            column, row = divmod(index, self._key_rows)
            place = (_LEFT + self._key_wide * column, top + _HIGH + _BELOW + 0.02 + _KEY_ROW * row)
            sheet.text(*place, lettering.escaped(text), size=style.SMALL)

    def _draw_front(self, axes: Axes, best: Sequence[TradeoffPoint]) -> None:
        xs, ys = zip(*(point.at for point in best), strict=True)
        corners = ([xs[0], *xs, self._scales[0].high], [self._scales[1].high, *ys, ys[-1]])
        axes.plot(*corners, drawstyle="steps-post", color="#0072B2", linewidth=1.2, linestyle="--", zorder=2)

    def _draw_bars(self, axes: Axes) -> None:
        xs, ys = zip(*(point.at for point in self._points), strict=True)
        memory, latency = [point.memory for point in self._points], [point.latency for point in self._points]
        axes.hlines(ys, [*map(min, memory)], [*map(max, memory)], color=style.GREY, linewidth=0.8)
        axes.vlines(xs, [*map(min, latency)], [*map(max, latency)], color=style.GREY, linewidth=0.8)


class _Label:
    """A text beside a point: right or left of it, above or below. All in inches, from the lower left of the axes."""

    def __init__(self, text: str, spot: Spot, right: bool, above: bool) -> None:
        self.text, self.spot, self.right = text, spot, right
        size = lettering.width(text, style.SMALL)
        left = spot[0] + _BESIDE if right else spot[0] - _BESIDE - size
        below = spot[1] + _BESIDE / 2 if above else spot[1] - _BESIDE / 2 - _TALL
        self.box = Bbox.from_bounds(left, below, size, _TALL)

    def draw(self, axes: Axes, size: Spot) -> None:
        place = (self.box.x0 if self.right else self.box.x1) / size[0], self.box.y0 / size[1]
        words: dict[str, Any] = {"ha": "left" if self.right else "right", "va": "bottom", "size": style.SMALL, "zorder": 7}
        axes.text(*place, lettering.escaped(self.text), transform=axes.transAxes, bbox=style.backing(), **words)


def _placed(texts: Sequence[tuple[str, Spot]], points: Sequence[Spot], wide: float) -> list[_Label]:
    """A label for each text, one after another, at the first side of its point where it lies on no point and no other label; above it on the
    right where there is none, or on the left where the right edge is near."""
    placed: list[_Label] = []
    for text, spot in texts:
        sides = [_Label(text, spot, right, above) for above in (True, False) for right in (True, False)]
        inside = [label for label in sides if label.box.x0 >= 0 and label.box.x1 <= wide and label.box.y0 >= 0 and label.box.y1 <= _HIGH]
        free = [label for label in inside if not _covers(label, placed, points)]
        placed.append((free or inside or sides)[0])
    return placed


def _crowded(labels: Sequence[_Label], points: Sequence[Spot]) -> bool:
    """Whether a label lies on another, or on a point."""
    return any(_covers(label, labels[place + 1 :], points) for place, label in enumerate(labels))


def _covers(label: _Label, others: Sequence[_Label], points: Sequence[Spot]) -> bool:
    boxes = [Bbox.from_bounds(x - 0.05, y - 0.05, 0.1, 0.1) for x, y in points]
    return label.box.count_overlaps([*boxes, *(other.box for other in others)]) > 0


def _short_labels(spots: Sequence[Spot], rows: Sequence[str]) -> list[tuple[str, Spot]]:
    """The rows or numbers of points. Points so near that these would meet share a text."""
    together: dict[Spot, list[str]] = {}
    for row, (x, y) in zip(rows, spots, strict=True):
        near = next((spot for spot in together if abs(spot[0] - x) < 0.3 and abs(spot[1] - y) < 0.15), (x, y))
        together.setdefault(near, []).append(row)
    return [(_listed(list(map(int, each))) if all(map(str.isdigit, each)) else "; ".join(each), spot) for spot, each in together.items()]


def _listed(numbers: Sequence[int]) -> str:
    """Increasing numbers as `1, 4` or, in a row of three or more, `1–4`."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(map(str, numbers))


def _scale(values: Sequence[float]) -> AxisScale:
    low, high = min(values), max(values)
    if low > 0 and high / low >= _LOG_FROM:
        room = (high / low) ** 0.1
        return AxisScale(low / room, high * room, True)
    span = max(high - low, high * 0.1, 1e-9)
    return AxisScale(max(low - span * 0.12, 0.0), high + span * 0.15, False)


def _axis(axes: Axes, scale: AxisScale, way: str) -> None:
    axis = axes.xaxis if way == "x" else axes.yaxis
    if scale.log:
        axes.set_xscale("log") if way == "x" else axes.set_yscale("log")
        axis.set_major_formatter(LogFormatter())
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(7, min_n_ticks=2))
    axes.set_xlim(scale.low, scale.high) if way == "x" else axes.set_ylim(scale.low, scale.high)
