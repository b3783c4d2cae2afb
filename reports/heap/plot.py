"""Who held the heap over time: stacked areas of the largest sites, the total as a line, the peak and the phases marked.

A heap changes by steps: each snapshot is drawn on to the next. Areas are known only where a snapshot has a tree; ticks along the axis say where.
Between these they are estimated from the totals, which every snapshot has, and drawn paler.

Names stand beside the chart in the order of the areas, so that no text covers another. Colours differ in lightness and hatch too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from msgspec import Struct
from msgspec.structs import replace

from memprof.base.errors import InputError
from memprof.base.units import format_bytes
from memprof.heap import phrases
from memprof.heap.frames import By
from memprof.heap.profile import HeapProfile, Snapshot
from memprof.records.metrics import BYTES

from ..pictures import lettering, style
from ..pictures.sheet import LegendEntry, PhaseName, Sheet, phase_name, phase_names_width
from ..pictures.style import Fill
from ..tables.grid import Unit, choose_unit, number
from . import labels
from .series import Ints, Kind, SiteArea, SiteSeries, filled, rows, series, thinned, time_axis

_MOST_SITES = 10
_MOST_SNAPSHOTS = 1500  # more columns than a picture has pixels
_MOST_DOTS = 30  # of snapshots: where there are more, the steps alone say where they are
_LAST = 1 / 60  # of the time: how wide the last snapshot is drawn, which no other ends
_THIN = 1 / 200  # of the time: a strip where a phase may begin, if it is narrower, is drawn as a line
_SLIVER = 1 / 40  # of the time: between two paler stretches, anything narrower is drawn paler too, or the areas would be all stripes
_LEFT, _CHART, _HIGH = 0.62, 5.95, 4.1
_NAMES = 0.22
_TIME_AXIS = 0.42
_LINE = lettering.height(style.SMALL)
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
_SHADE = 0.17
_UNSURE = Fill("#D4D4D4", "", "#D4D4D4")  # ink in that shade on white
# Of areas that are no site.
_FILLS_OF_KINDS: dict[Kind, Fill] = {
    "others": Fill("#FFFFFF", "////", "#999999"),
    "unlisted": Fill("#FFFFFF", "....", "#777777"),
    "extra": Fill("#DDDDDD", "", "#777777"),
    "stacks": Fill("#444444"),
}


@style.look()
def render(profile: HeapProfile, *, by: By = "function", fold: bool = True) -> Figure:
    """The picture of a profile. Raises InputError where nothing was allocated."""
    if not profile.snapshots or profile.peak.total_bytes == 0:
        raise InputError(f"{profile.path} holds no allocation, so there is nothing to draw")
    unit = choose_unit(BYTES, [profile.peak.total_bytes])
    snapshots = thinned(profile.snapshots, _MOST_SNAPSHOTS)
    table = series(profile, by, _MOST_SITES, fold, snapshots)
    areas = rows(table)
    time, caption = time_axis(profile)
    last = max(snapshot.time for snapshot in profile.snapshots) / time.size
    first = min(profile.snapshots[0].time / time.size, last)
    right = last + (last - first) * _LAST if last > first else first + 1
    edges = numpy.array([*(snapshot.time / time.size for snapshot in snapshots), right], "f8")
    everywhere, known = filled(table, snapshots)
    paler = _estimated(known.tolist(), edges, (right - first) * _SLIVER) if len(table.snapshots) > 1 else []
    phases = _phases(profile, first, right, time)
    unsure = _border_error(profile, right - first, time) if phases else (0.0, 0.0)
    sheet = Sheet(
        "Who held the heap",
        f"{profile.tool} · {phrases.headline(profile)}",
        {phrases.program(profile): _NAMES + _HIGH + _TIME_AXIS},
        finding=_finding(profile, table),
        legend=_legend(snapshots, areas, any(unsure)),
        remarks=_remarks(profile, phases, bool(paler)),
    )
    axes = sheet.axes(_LEFT, _NAMES, _CHART, _HIGH)
    axes.set_xlim(first, right)
    axes.set_ylim(0, profile.peak.total_bytes / unit.size * 1.1)
    _draw(axes, snapshots, edges, areas, everywhere / unit.size, unit)
    totals = numpy.array([snapshot.total_bytes / unit.size for snapshot in snapshots])
    for begin, end in paler:
        levels = numpy.append(totals[begin:end], totals[end - 1])
        axes.fill_between(edges[begin : end + 1], 0, levels, step="post", facecolor="white", alpha=0.28, edgecolor="none", zorder=1.5)
    _mark_phases(sheet, axes, phases, unsure)
    _mark_peak(axes, profile, time, unit)
    axes.yaxis.set_major_locator(MaxNLocator(6, min_n_ticks=2))
    axes.set_ylabel(unit.caption("heap"))
    axes.yaxis.set_label_coords(-0.42 / _CHART, 0.5)
    axes.set_xlabel(caption, labelpad=1)
    if profile.total:
        axes.set_xticks([])
    _names(sheet, profile, areas, table)
    return sheet.figure


def facts(profile: HeapProfile, *, by: By = "function", fold: bool = True) -> dict[str, Any]:
    """The picture's content as values that JSON can hold: bytes of each area at each snapshot with a tree, and all totals."""
    table = series(profile, by, _MOST_SITES, fold, thinned(profile.snapshots, _MOST_SNAPSHOTS))
    areas = [
        {"name": area.name.full, "module": area.name.module, "source": area.name.source, "bytes": area.values.tolist()}
        for area in rows(table)
    ]
    return {
        "tool": profile.tool,
        "path": profile.path,
        "time_unit": profile.time_unit,
        "remarks": phrases.remarks(profile),
        "peak": {"index": profile.peak.index, "total_bytes": profile.peak.total_bytes},
        "snapshots": [
            {"index": snapshot.index, "time": snapshot.time, "total_bytes": snapshot.total_bytes} for snapshot in profile.snapshots
        ],
        "tree_snapshots": [snapshot.index for snapshot in table.snapshots],
        "areas": areas,
    }


def _finding(profile: HeapProfile, table: SiteSeries) -> str:
    """Which sites held most at the peak, or have most of a total; the peak alone where its snapshot has no tree."""
    at_peak = [place for place, snapshot in enumerate(table.snapshots) if snapshot.index == profile.peak.index]
    if not at_peak or not table.sites:
        return phrases.headline(profile)
    sizes = table.values[:, at_peak[0]].tolist()
    size, total = max(sizes), profile.peak.total_bytes
    names = [
        _title_name(site.text)
        for site, own in sorted(zip(table.sites, sizes, strict=True), key=lambda entry: -entry[1])
        if format_bytes(own) == format_bytes(size)
    ]
    others = f", and {rest} as much" if (rest := labels.beside_first(names)) else ""
    if profile.total:
        return f"{names[0]}: {format_bytes(size)} of the {format_bytes(total)} ({phrases.share(size, total, 0)}) {profile.total}{others}"
    where = phrases.in_phase(profile, profile.peak)
    return f"{names[0]} held {format_bytes(size)} of {format_bytes(total)} at the peak ({phrases.share(size, total, 0)}){others}{where}"


def _title_name(site: str) -> str:
    """A site's name, shortened to fit. The offset of a place without a symbol stays: without it the name is that of the whole library."""
    name, plus, offset = lettering.readable(site).rpartition("+0x")
    place = plus + offset
    room = _CHART - lettering.width(place, style.HEADING, "bold")
    return (
        lettering.shortened(name, room, style.HEADING, "bold") + place
        if plus
        else lettering.shortened(offset, _CHART, style.HEADING, "bold")
    )


def _fills(areas: Sequence[SiteArea]) -> list[Fill]:
    """The looks of these areas."""
    return [_FILLS_OF_KINDS.get(area.kind, _FILLS[place % len(_FILLS)]) for place, area in enumerate(areas)]


def _legend(snapshots: Sequence[Snapshot], areas: Sequence[SiteArea], unsure: bool) -> list[LegendEntry]:
    dots = {"marker": "o", "markersize": 3.5} if len(snapshots) <= _MOST_DOTS else {}
    total = LegendEntry("total of every snapshot, drawn until the next", line={"linewidth": 1.2, **dots})
    border = [LegendEntry("a phase begins somewhere in here", fill=_UNSURE)] if unsure else []
    if not areas:
        return [total, *border]
    return [total, LegendEntry("a snapshot with a tree", line={"linestyle": "none", "marker": "|", "markersize": 6}), *border]


def _remarks(profile: HeapProfile, phases: Sequence[PhaseBand], paler: bool) -> list[str]:
    remarks = [*phrases.remarks(profile), phrases.counting(profile), phrases.between(profile)]
    if paler:
        remarks.append("Between snapshots with a tree only the total is known; the areas there, drawn paler, are estimated from it.")
    if numbered := [f"{phase.label} {phase.name}" for phase in phases if phase.label != phase.name]:
        remarks.append(f"Phases: {', '.join(numbered)}.")
    return [remark for remark in remarks if remark]


def _draw(axes: Axes, snapshots: Sequence[Snapshot], edges: Ints, areas: Sequence[SiteArea], values: Ints, unit: Unit) -> None:
    """Totals and areas as steps. edges: where each snapshot begins, and where the last ends; values: one row per area, one column per snapshot."""
    trees = [place for place, snapshot in enumerate(snapshots) if snapshot.tree is not None]
    if len(trees) == 1:
        _single(axes, areas, edges[trees[0]], edges[trees[0] + 1], unit)
    elif areas and trees:
        ground = numpy.zeros(len(edges))
        for fill, row in zip(_fills(areas), values, strict=True):
            top = ground + numpy.append(row, row[-1])
            axes.fill_between(edges, ground, top, step="post", **{**fill.words(), "linewidth": 0.3})
            ground = top
    totals = [snapshot.total_bytes / unit.size for snapshot in snapshots]
    axes.plot(edges, [*totals, totals[-1]], drawstyle="steps-post", color=style.INK, linewidth=1.2, zorder=4)
    if len(snapshots) <= _MOST_DOTS:
        axes.plot(edges[:-1], totals, linestyle="none", marker="o", markersize=3.5, color=style.INK, clip_on=False, zorder=4)
    axes.plot(edges[trees], [0] * len(trees), linestyle="none", marker="|", markersize=5, color=style.INK, clip_on=False, zorder=5)


def _estimated(known: Sequence[bool], edges: Ints, least: float) -> list[tuple[int, int]]:
    """The stretches of snapshots without a tree: the first, and the one behind the last. Two stretches less than `least` apart become one."""
    stretches: list[tuple[int, int]] = []
    for place, is_known in enumerate(known):
        if is_known or edges[place + 1] <= edges[place]:
            continue
        near = stretches and edges[place] - edges[stretches[-1][1]] < least
        stretches.append((stretches.pop()[0] if near else place, place + 1))
    return stretches


def _single(axes: Axes, areas: Sequence[SiteArea], begin: float, end: float, unit: Unit) -> None:
    """A bar for the only tree, from its snapshot to the next, wide enough to be seen."""
    left, right = axes.get_xlim()
    wide, ground = max(end - begin, (right - left) * _LAST), 0.0
    for area, fill in zip(areas, _fills(areas), strict=True):
        high = float(area.values[0]) / unit.size
        axes.bar([min(begin, right - wide)], [high], wide, ground, align="edge", **fill.words())
        ground += high


class PhaseBand(Struct, frozen=True):
    """A phase on the axis of time. label: the text above it, which is its name or a number that a remark explains."""

    begin: float
    end: float
    name: str
    label: str


def _phases(profile: HeapProfile, left: float, right: float, time: Unit) -> list[PhaseBand]:
    """The phases that the axis shows, named where there is room for the names of all, else numbered."""
    phases = []
    for span in profile.drawable_phases:
        begin = max(span.begin / time.size, left)
        end = min(right if span.end is None else span.end / time.size, right)
        if end > begin:
            name = phase_name(span.name, 1.6)
            phases.append(PhaseBand(begin, end, name, name))
    if phase_names_width([phase.label for phase in phases]) > _CHART:
        phases = [replace(phase, label=str(number)) for number, phase in enumerate(phases, 1)]
    return phases


def _border_error(profile: HeapProfile, wide: float, time: Unit) -> tuple[float, float]:
    """How far before and behind its place a border may lie on an axis so wide; nothing where that is too little to be seen."""
    before, behind = (error / time.size for error in profile.border_error)
    return (before, behind) if before + behind > wide * _THIN else (0.0, 0.0)


def _mark_phases(sheet: Sheet, axes: Axes, phases: Sequence[PhaseBand], unsure: tuple[float, float]) -> None:
    """A line where each phase begins, or a strip where it may begin, and its name above the chart. unsure: see _border_error. Strips that overlap
    are one."""
    left, right = axes.get_xlim()
    phases = sorted(phases, key=lambda phase: phase.begin)
    shaded = left
    before, behind = unsure
    for index, phase in enumerate(phases):
        if index % 2 and phase.begin + behind < phase.end - before:
            axes.axvspan(phase.begin + behind, phase.end - before, facecolor=style.BAND, edgecolor="none", zorder=0)
        if not any(unsure):
            axes.axvline(phase.begin, color=style.INK, linewidth=0.6, linestyle=(0, (4, 3)), zorder=3)
        elif phase.begin > left:
            begin, shaded = max(phase.begin - before, shaded), max(shaded, min(phase.begin + behind, right))
            axes.axvspan(begin, shaded, facecolor=style.INK, alpha=_SHADE, edgecolor="none", zorder=3)
    names = [
        PhaseName(phase.label, _LEFT + _CHART * ((phase.begin + phase.end) / 2 - left) / (right - left), phase.end - phase.begin)
        for phase in phases
    ]
    sheet.phase_names(names, _LEFT, _CHART, 0.0, _NAMES)


def _mark_peak(axes: Axes, profile: HeapProfile, time: Unit, unit: Unit) -> None:
    peak = profile.peak
    x, level = peak.time / time.size, peak.total_bytes / unit.size
    axes.plot([x], [level], marker="v", color=style.INK, markersize=6, clip_on=False, zorder=6)
    text = f"{phrases.total_noun(profile)} {number(level)} {unit.name}, snapshot {peak.index}"
    left, right = axes.get_xlim()
    half = lettering.width(text, style.SMALL, "bold") / 2 / _CHART * (right - left)
    middle = min(max(x, left + half * 1.05), right - half * 1.05)
    axes.annotate(
        text, (middle, level), (0, 5), textcoords="offset points", ha="center", va="bottom", size=style.SMALL, weight="bold", zorder=7,
        bbox=style.backing(),
    )  # fmt: skip


def _names(sheet: Sheet, profile: HeapProfile, areas: Sequence[SiteArea], table: SiteSeries) -> None:
    """The list beside the chart: the areas from the top one down, each with its bytes in the largest tree."""
    if not areas:
        return
    best = max(range(len(table.snapshots)), key=lambda place: table.snapshots[place].total_bytes)
    shown = table.snapshots[best]
    left = _LEFT + _CHART + 0.2
    room = sheet.width - left - 0.15
    at_peak = shown.total_bytes >= profile.peak.total_bytes
    title = f"Areas from the top, at the {phrases.total_noun(profile)}" if at_peak else f"In snapshot {shown.index}, not the peak"
    sheet.text(left, 0.02, lettering.label(title, room, style.SMALL, "bold"), size=style.SMALL, weight="bold")
    step = min(_HIGH / len(areas), 2 * _LINE + 0.1)
    texts = lettering.distinct([area.name.text for area in areas], room - 0.36, style.SMALL)
    for row, (area, fill, text) in enumerate(reversed(list(zip(areas, _fills(areas), texts, strict=True)))):
        top = _NAMES + row * step
        sheet.box(left, top + 0.02, 0.28, _LINE * 1.5, fill)
        sheet.text(left + 0.36, top, lettering.escaped(text), size=style.SMALL)
        size = int(area.values[best])
        share = f"{format_bytes(size)}, {phrases.share(size, shown.total_bytes)}" if shown.total_bytes else format_bytes(size)
        unlisted = int(table.unnamed[best])
        none = f"none listed there, {format_bytes(unlisted)} at most" if unlisted else "none there"
        words = f"{share}{f' · {area.name.module}' if area.name.module else ''}" if size else none
        beside = lettering.shortened(lettering.readable(words), room - 0.36, style.SMALL)
        sheet.text(left + 0.36, top + _LINE, lettering.escaped(beside), size=style.SMALL, color=style.GREY)
