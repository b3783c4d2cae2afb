"""Who held the heap over time: stacked areas of the largest sites, the total as a line, the peak and the phases marked.

Areas are known only where a snapshot has a tree; ticks along the axis say where. What lies between is estimated from the totals, which every
snapshot has, and drawn paler. Names stand beside the chart in the order of the areas, so that nothing is written over anything; colours
differ in lightness and hatch too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memprof.errors import InputError
from memprof.heap import said
from memprof.heap.profile import By, HeapProfile, Snapshot, TimeUnit
from memprof.metrics import BYTES
from memprof.units import format_bytes

from .. import style
from ..grid import Unit, choose_unit, number
from ..style import Entry, Fill, Sheet
from . import labels
from .series import Ints, Series, filled, rows, series, thinned

_MOST_SITES = 10
_MOST_SNAPSHOTS = 1500  # more columns than a picture has pixels
_LEFT, _CHART, _HIGH = 0.62, 5.95, 4.1
_NAMES = 0.22
_TIME_AXIS = 0.42
_LINE = style.height(style.SMALL)
_FILLS = (
    Fill("#0072B2"),
    Fill("#F0B429", "////", "#7A5200"),
    Fill("#9FD8F5"),
    Fill("#D55E00", "\\\\\\\\", "#5C2900"),
    Fill("#009E73"),
    Fill("#F3C6DD", "xxxx", "#8A3F67"),
    Fill("#5B4A9E"),
    Fill("#CFE8B4", "....", "#3F6B12"),
    Fill("#7A4A1E", "||||", "#E8D5C2"),
    Fill("#B9C4CC", "----", "#55606A"),
    Fill("#E05C73", "++++", "#5E1420"),
)
_STACKS = Fill("#444444")
_OTHERS, _UNNAMED, _EXTRA = Fill("#FFFFFF", "////", "#999999"), Fill("#FFFFFF", "....", "#777777"), Fill("#DDDDDD", "", "#777777")


@dataclass(frozen=True)
class Area:
    """One of the stacked areas: what it is called, how it looks, and its bytes at each snapshot with a tree."""

    name: labels.Label
    fill: Fill
    values: Ints


def render(profile: HeapProfile, *, by: By = "function", fold: bool = True) -> Figure:
    """The picture of a profile. Raises InputError where nothing was allocated."""
    if not profile.snapshots or profile.peak.total_bytes == 0:
        raise InputError(f"{profile.path} holds no allocation, so there is nothing to draw")
    with style.look():
        return _render(profile, by, fold)


def facts(profile: HeapProfile, *, by: By = "function", fold: bool = True) -> dict[str, Any]:
    """What the picture shows, as values that JSON can hold: bytes of each area at each snapshot with a tree, and all totals."""
    found = series(profile, by, _MOST_SITES, fold, thinned(profile.snapshots, _MOST_SNAPSHOTS))
    areas = [
        {"name": area.name.full, "module": area.name.module, "source": area.name.source, "bytes": area.values.tolist()}
        for area in _areas(found)
    ]
    return {
        "tool": profile.tool,
        "path": profile.path,
        "time_unit": profile.time_unit,
        "remarks": said.remarks(profile),
        "peak": {"index": profile.peak.index, "total_bytes": profile.peak.total_bytes},
        "snapshots": [{"index": one.index, "time": one.time, "total_bytes": one.total_bytes} for one in profile.snapshots],
        "tree_snapshots": [one.index for one in found.snapshots],
        "areas": areas,
    }


def _render(profile: HeapProfile, by: By, fold: bool) -> Figure:
    unit = choose_unit(BYTES, [profile.peak.total_bytes])
    snapshots = thinned(profile.snapshots, _MOST_SNAPSHOTS)
    found = series(profile, by, _MOST_SITES, fold, snapshots)
    areas = _areas(found)
    sheet = Sheet(
        f"Who held the heap: {said.program(profile)}",
        f"{profile.tool} · {said.headline(profile)}",
        _NAMES + _HIGH + _TIME_AXIS,
        legend=_legend(areas),
        remarks=_remarks(profile, areas),
    )
    axes = sheet.axes(_LEFT, _NAMES, _CHART, _HIGH)
    time, caption = _time(profile)
    last = max(one.time for one in profile.snapshots) / time.size
    first = min(profile.snapshots[0].time / time.size, last)
    axes.set_xlim(first, last if last > first else first + 1)
    axes.set_ylim(0, profile.peak.total_bytes / unit.size * 1.1)
    _draw(axes, snapshots, found, areas, time, unit)
    _mark_phases(sheet, axes, profile, time)
    _mark_peak(axes, profile, time, unit)
    axes.yaxis.set_major_locator(MaxNLocator(6, min_n_ticks=2))
    axes.set_ylabel(unit.caption("heap"))
    axes.yaxis.set_label_coords(-0.42 / _CHART, 0.5)
    axes.tick_params(length=2.5)
    axes.set_xlabel(caption, labelpad=1)
    _names(sheet, profile, areas, found)
    return sheet.figure


def _areas(found: Series) -> list[Area]:
    """The areas from the ground up, each with its look."""
    looks = {"others": _OTHERS, "unlisted": _UNNAMED, "extra": _EXTRA, "stacks": _STACKS}
    return [
        Area(row.name, _FILLS[place % len(_FILLS)] if row.kind == "site" else looks[row.kind], row.values)
        for place, row in enumerate(rows(found))
    ]


def _legend(areas: Sequence[Area]) -> list[Entry]:
    total = Entry("total of every snapshot", line={"linewidth": 1.2})
    if not areas:
        return [total]
    return [total, Entry("a snapshot with a tree", line={"linestyle": "none", "marker": "|", "markersize": 6})]


def _remarks(profile: HeapProfile, areas: Sequence[Area]) -> list[str]:
    estimated = any(one.tree is None for one in profile.snapshots)
    words = "Between snapshots with a tree only the total is known; the areas there, drawn paler, are estimated from it."
    joined = [words] if areas and estimated else []
    return [*said.remarks(profile), said.counting(profile), *joined]


def _time(profile: HeapProfile) -> tuple[Unit, str]:
    """The unit of the time axis and its caption."""
    last = max(one.time for one in profile.snapshots)
    by_unit: dict[TimeUnit, str] = {"i": "instructions", "B": "bytes allocated and freed so far", "ms": "time", "s": "time"}
    words = by_unit[profile.time_unit]
    if profile.time_unit == "i":
        name, size = next(((name, size) for name, size in (("10⁹", 1e9), ("10⁶", 1e6), ("10³", 1e3)) if last >= size), ("", 1.0))
        return Unit(name, size), f"{name} {words}".strip() + " since the program's begin"
    if profile.time_unit == "B":
        unit = choose_unit(BYTES, [last])
        return unit, unit.caption(words)
    seconds = 1000.0 if profile.time_unit == "ms" else 1.0
    unit = Unit("s", seconds) if last >= 2 * seconds else Unit("ms", seconds / 1000)
    return unit, unit.caption("time since the program's begin")


def _draw(axes: Axes, snapshots: Sequence[Snapshot], found: Series, areas: Sequence[Area], time: Unit, unit: Unit) -> None:
    times = numpy.array([one.time for one in snapshots], "f8") / time.size
    columns = numpy.array([area.values for area in areas], "i8").reshape(len(areas), len(found.snapshots))
    all_of = filled(found, columns, snapshots)
    if len(found.snapshots) == 1:
        _single(axes, areas, found.snapshots[0].time / time.size, unit)
    elif areas:
        ground = numpy.zeros(len(times))
        for area, values in zip(areas, all_of.values / unit.size, strict=True):
            axes.fill_between(times, ground, ground + values, **{**area.fill.words(), "linewidth": 0.3})
            ground = ground + values
        for begin, end in _estimated(all_of.known.tolist()):
            axes.axvspan(times[begin], times[end], facecolor="white", alpha=0.28, edgecolor="none", zorder=1.5)
    axes.plot(times, [one.total_bytes / unit.size for one in snapshots], color=style.INK, linewidth=1.2, zorder=4)
    trees = times[all_of.known]
    axes.plot(trees, [0] * len(trees), linestyle="none", marker="|", markersize=5, color=style.INK, clip_on=False, zorder=5)


def _estimated(known: Sequence[bool]) -> list[tuple[int, int]]:
    """The stretches of snapshots without a tree, each from its neighbour before to its neighbour after."""
    found, place = [], 0
    while place < len(known):
        end = place
        while end < len(known) and not known[end]:
            end += 1
        if end > place:
            found.append((max(place - 1, 0), min(end, len(known) - 1)))
        place = end + 1
    return found


def _single(axes: Axes, areas: Sequence[Area], at: float, unit: Unit) -> None:
    """One tree is no area: a bar where it was taken."""
    left, right = axes.get_xlim()
    wide, ground = (right - left) / 60, 0.0
    for area in areas:
        high = float(area.values[0]) / unit.size
        axes.bar([min(max(at, left + wide / 2), right - wide / 2)], [high], wide, ground, **area.fill.words())
        ground += high


def _mark_phases(sheet: Sheet, axes: Axes, profile: HeapProfile, time: Unit) -> None:
    """A line where each phase begins, and names above the chart, the longest phases' first where there is not room for all."""
    left, right = axes.get_xlim()
    spans = []
    for index, span in enumerate(profile.phases):
        begin = max(span.begin / time.size, left)
        end = min(right if span.end is None else span.end / time.size, right)
        if end <= begin:
            continue
        if index % 2:
            axes.axvspan(begin, end, facecolor=style.BAND, edgecolor="none", zorder=0)
        axes.axvline(begin, color=style.INK, linewidth=0.6, linestyle=(0, (4, 3)), zorder=3)
        spans.append((begin, end, style.shortened(style.readable(span.name), 1.6, 7.0)))
    named = sorted(range(len(spans)), key=lambda place: spans[place][0] - spans[place][1])
    while named and sum(style.width(spans[place][2], 7.0) + 0.1 for place in named) > _CHART:
        named.pop()
    named.sort()
    wanted = [_LEFT + _CHART * ((spans[place][0] + spans[place][1]) / 2 - left) / (right - left) for place in named]
    places = style.apart(wanted, [style.width(spans[place][2], 7.0) + 0.1 for place in named], _LEFT, _LEFT + _CHART)
    for place, x, at in zip(named, wanted, places, strict=True):
        sheet.text(at, 0.03, style.escaped(spans[place][2]), ha="center", size=7.0, color=style.GREY)
        sheet.path([(at, 0.145), (x, _NAMES)], color=style.GREY, linewidth=0.5)


def _mark_peak(axes: Axes, profile: HeapProfile, time: Unit, unit: Unit) -> None:
    peak = profile.peak
    x, level = peak.time / time.size, peak.total_bytes / unit.size
    axes.plot([x], [level], marker="v", color=style.INK, markersize=6, clip_on=False, zorder=6)
    text = f"peak {number(level)} {unit.name}, snapshot {peak.index}"
    left, right = axes.get_xlim()
    half = style.width(text, style.SMALL, "bold") / 2 / _CHART * (right - left)
    middle = min(max(x, left + half * 1.05), right - half * 1.05)
    axes.annotate(
        text, (middle, level), (0, 5), textcoords="offset points", ha="center", va="bottom", size=style.SMALL, weight="bold", zorder=7,
        bbox=style.backing(),
    )  # fmt: skip


def _names(sheet: Sheet, profile: HeapProfile, areas: Sequence[Area], found: Series) -> None:
    """The list beside the chart: the areas from the top one down, each with its bytes in the largest tree."""
    if not areas:
        return
    best = max(range(len(found.snapshots)), key=lambda place: found.snapshots[place].total_bytes)
    shown = found.snapshots[best]
    left = _LEFT + _CHART + 0.2
    room = sheet.width - left - 0.15
    at_peak = shown.total_bytes >= profile.peak.total_bytes
    title = "Areas from the top, at the peak" if at_peak else f"In snapshot {shown.index}, not the peak"
    sheet.text(left, 0.02, style.label(title, room, style.SMALL, "bold"), size=style.SMALL, weight="bold")
    step = min(_HIGH / len(areas), 2 * _LINE + 0.1)
    texts = style.distinct([area.name.text for area in areas], room - 0.36, style.SMALL)
    for row, (area, text) in enumerate(reversed(list(zip(areas, texts, strict=True)))):
        top = _NAMES + row * step
        sheet.box(left, top + 0.02, 0.28, _LINE * 1.5, area.fill)
        sheet.text(left + 0.36, top, style.escaped(text), size=style.SMALL)
        size = int(area.values[best])
        share = f"{format_bytes(size)}, {100 * size / shown.total_bytes:.1f}%" if shown.total_bytes else format_bytes(size)
        too_small = not size and said.gathered(profile)
        words = "too small to be listed there" if too_small else f"{share}{f' · {area.name.module}' if area.name.module else ''}"
        beside = style.shortened(style.readable(words), room - 0.36, style.SMALL)
        sheet.text(left + 0.36, top + _LINE, style.escaped(beside), size=style.SMALL, color=style.GREY)
