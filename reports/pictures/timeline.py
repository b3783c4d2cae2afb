"""RSS over time: the samples of polling as areas, phases shaded and named, and the exact peak of each phase, also where polling missed it.

Several variants are rows on one scale of time and memory. Each model has its own scale. The page draws variants over one another.
The repeat with the median PEAK is drawn of each variant; the spread over its repeats stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from msgspec import Struct
from numpy.typing import NDArray

from memprof.base.errors import InputError, UsageError, near
from memprof.base.units import format_duration
from memprof.records import metrics, summary
from memprof.records.metrics import BYTES
from memprof.records.types import PEAK, STARTUP, Run

from ..columns import Array, ColumnArrays, Peak, RunPhase, columns, run_peak, spans, thin, typical, visible_devices, with_marks
from ..rows import named, unloaded
from ..tables import headline
from ..tables.grid import Unit, choose_unit
from . import choosing, lettering, style
from .sheet import WIDTH, LegendEntry, PhaseName, Sheet, phase_name
from .style import ANON, FILE, UNSEEN

_MOST_ROWS = 20
_BUCKETS = 1500  # more stretches of time than a picture has columns of pixels to tell apart
_LEFT, _RIGHT = 0.62, 0.15
_PHASE_NAMES, _BELOW, _TIME_AXIS = 0.2, 0.2, 0.42
_NAME_INCHES, _MOST_NAME_LINES = 18.0, 8
_RSS_PEAK = metrics.METRICS["rss_peak_bytes"]
_DEVICE: dict[str, Any] = {"color": style.DEVICE, "linewidth": 1.4, "linestyle": (0, (5, 1.5))}


class Drawn(Struct, frozen=True):
    """A variant as it is drawn: its typical run, and of that the wanted phases, all where none is named. peak: None where no phase ended and nothing
    was polled. device: the times and sizes of memory of devices, empty where none would be seen."""

    name: str
    run: Run
    group: Sequence[Run]
    rows: ColumnArrays
    spans: Sequence[RunPhase]
    peak: Peak | None
    device: tuple[Array, Array]
    wanted: Sequence[str] = ()

    @property
    def peaks(self) -> list[float]:
        """The peak of what is drawn, in each repeat."""
        if not self.wanted:
            return metrics.values(self.group, PEAK, _RSS_PEAK)
        found = [[metrics.value(run, phase, _RSS_PEAK) for phase in self.wanted] for run in self.group]
        return [max(known) for sizes in found if (known := [size for size in sizes if size is not None])]

    @property
    def zero_ns(self) -> int:
        return self.spans[0].begin_ns if self.spans else int(self.rows.t_ns[0])

    @property
    def end_ns(self) -> int:
        """The last moment drawn, from zero."""
        return int(max([*(span.end_ns for span in self.spans), *self.rows.t_ns[-1:].tolist()])) - self.zero_ns

    @property
    def highest(self) -> int:
        """The most memory drawn, in bytes."""
        device = self.device[1][self.device[0] <= self.zero_ns + self.end_ns]
        return max([*self.rows.rss.tolist(), *device.tolist(), *(span.mark.height_bytes for span in self.spans if span.mark)], default=0)

    @property
    def failed(self) -> bool:
        return not self.run.outcome.ok

    @property
    def hedge(self) -> str:
        """The sign before the peak: `≥` where the run failed on its way up, `~` where polling alone saw it, else nothing."""
        if self.peak is None or self.peak.exact:
            return ""
        return "≥" if self.spans[-1].mark is None and self.peak.phase == self.spans[-1].phase else "~"


class TimelineScale(Struct, frozen=True):
    """Units of the picture, and how far its axes reach in them."""

    memory: Unit
    time: Unit
    highest: float
    longest: float

    def at(self, variant: Drawn, t_ns: int) -> float:
        """A moment on the axis of time."""
        return (t_ns - variant.zero_ns) / self.time.size

    def times(self, variant: Drawn) -> NDArray[numpy.float64]:
        seconds: NDArray[numpy.float64] = (variant.rows.t_ns - variant.zero_ns) / self.time.size
        return seconds


@style.look()
def render(runs: Sequence[Run], *, phases: Sequence[str] = ()) -> Figure:
    """The picture of these runs, failed ones too. phases: only these, time counted from the start of the first of them.

    Raises UsageError for a phase that no run has, InputError where nothing was polled.
    """
    known = summary.phases(runs, failed=True)
    for phase in phases:
        if phase not in known:
            raise UsageError(f"these runs have no phase {phase!r}{near(phase, known) or '; they have ' + ', '.join(known)}")
    all_groups = summary.groups(runs)
    grouped = dict(list(all_groups.items())[:_MOST_ROWS])
    called = named(grouped)
    called = dict(zip(called, lettering.distinct(list(called.values()), _NAME_INCHES, weight="bold"), strict=True))
    drawn = {key: _drawn(called[key], group, phases) for key, group in grouped.items()}
    models: dict[str, list[Drawn]] = {}
    for key, variant in drawn.items():
        if variant is not None:
            models.setdefault(key.model, []).append(variant)
    if not models:
        raise InputError("these runs hold nothing to draw: they ended before they could be polled")
    remarks = choosing.remarks(grouped, len(all_groups) - len(grouped))
    missing = [called[key] for key, variant in drawn.items() if variant is None]
    if missing:
        remarks.append(f"Not drawn, for nothing was seen of {'these phases' if phases else 'it'}: {', '.join(missing)}")
    return _rows(models, _scales(models), "" if phases else headline.of_picture(runs), choosing.conditions(runs), remarks)


def _drawn(name: str, group: Sequence[Run], phases: Sequence[str]) -> Drawn | None:
    run = typical(group)
    rows = columns(run.timeline)
    line = with_marks(run, rows)
    chosen = [span for span in spans(run, rows) if not phases or span.phase in phases]
    if phases:
        within = (chosen[0].begin_ns, chosen[-1].end_ns) if chosen else (0, 0)
        rows, line = rows.between(*within), line.between(*within)
    if not len(rows) and not any(span.mark for span in chosen):
        return None
    return Drawn(name, run, group, thin(line, _BUCKETS), chosen, run_peak(run, rows, chosen), visible_devices(run.timeline), phases)


def _scales(models: Mapping[str, Sequence[Drawn]]) -> dict[str, TimelineScale]:
    all_variants = [variant for variants in models.values() for variant in variants]
    memory = choose_unit(BYTES, [variant.highest for variant in all_variants])
    time = Unit("s", 1e9) if max(variant.end_ns for variant in all_variants) >= 2e9 else Unit("ms", 1e6)
    return {
        model: TimelineScale(
            memory,
            time,
            max(variant.highest for variant in variants) / memory.size or 1,
            max(variant.end_ns for variant in variants) / time.size * 1.005 or 1,
        )
        for model, variants in models.items()
    }


def _say_time(axes: Axes, scale: TimelineScale, variants: Sequence[Drawn]) -> None:
    firsts = {variant.spans[0].phase for variant in variants if variant.spans}
    first = firsts.pop() if len(firsts) == 1 else "the first phase"
    axes.set_xlabel(lettering.label(scale.time.caption(f"time since the start of {first}"), 5.0, style.SMALL), labelpad=1)


def _rows(
    models: Mapping[str, Sequence[Drawn]], scales: Mapping[str, TimelineScale], finding: str, conditions: str, remarks: Sequence[str]
) -> Figure:
    all_variants = [variant for variants in models.values() for variant in variants]
    high = {1: 3.2, 2: 2.2, 3: 1.7, 4: 1.4, 5: 1.3}.get(len(all_variants), 1.05)
    headings = {model: [_heading(variant, scales[model].memory) for variant in variants] for model, variants in models.items()}
    panel = _PHASE_NAMES + high + _BELOW
    heights = {model: sum(heading.high + panel for heading in rows) - _BELOW + _TIME_AXIS for model, rows in headings.items()}
    sheet = Sheet("Resident memory over time", conditions, heights, finding=finding, legend=_legend(all_variants), remarks=remarks)
    for model, variants in models.items():
        top = sheet.tops[model]
        for variant, heading in zip(variants, headings[model], strict=True):
            heading.write(sheet, top)
            _row(sheet, top + heading.high, high, variant, scales[model], variants if variant is variants[-1] else None)
            top += heading.high + panel
    return sheet.figure


def _row(sheet: Sheet, top: float, high: float, variant: Drawn, scale: TimelineScale, last_of: Sequence[Drawn] | None) -> None:
    wide = sheet.width - _LEFT - _RIGHT
    axes = sheet.axes(_LEFT, top + _PHASE_NAMES, wide, high)
    axes.set_xlim(0, scale.longest)
    axes.set_ylim(0, scale.highest * (1 + 0.3 / high))
    _areas(axes, variant, scale)
    _shade(axes, variant, scale)
    _name_phases(sheet, top, variant, scale)
    _say_peak(axes, variant, scale, wide)
    axes.yaxis.set_major_locator(MaxNLocator(3 if high < 1.3 else 5, min_n_ticks=2))
    axes.set_ylabel(scale.memory.caption("RSS"))
    axes.yaxis.set_label_coords(-0.41 / wide, 0.5)
    if last_of is None:
        axes.set_xticks([])
    else:
        _say_time(axes, scale, last_of)


def _legend(variants: Sequence[Drawn]) -> list[LegendEntry]:
    marks = [span.mark for variant in variants for span in variant.spans if span.mark is not None]
    entries = (
        [LegendEntry(style.ANON_WORDS, fill=ANON), LegendEntry(style.FILE_WORDS, fill=FILE)]
        if not all(variant.run.imported for variant in variants)
        else []
    )
    if any(variant.run.imported for variant in variants):
        entries.append(LegendEntry("RSS of a log: split not known" if entries else "RSS, as the log says", fill=UNSEEN))
    if marks:
        exact = all(mark.sure for mark in marks)
        words = "exact peak of each phase" if exact else "peak of each phase (~: only what was polled)"
        entries.append(LegendEntry(words, line={"linewidth": 1.6}))
    if any(len(variant.device[0]) for variant in variants):
        entries.append(LegendEntry("device memory, which RSS does not count", line=_DEVICE))
    if any(metrics.baseline(variant.run, _RSS_PEAK) is not None for variant in variants):
        entries.append(LegendEntry(f"baseline: {unloaded(variant.run for variant in variants)}", line={"linewidth": 1.0, "linestyle": ":"}))
    if any(_unpolled(variant, span) for variant in variants for span in variant.spans):
        entries.append(LegendEntry("pale: not polled, its ends joined"))
    return entries


class _Heading(Struct, frozen=True):
    """A variant's name in lines, ready for matplotlib, and the text beside it."""

    lines: Sequence[str]
    aside: str
    failed: bool

    @property
    def high(self) -> float:
        return lettering.height(style.BODY, len(self.lines)) + 0.03

    def write(self, sheet: Sheet, top: float) -> None:
        sheet.lines(_RIGHT, top, self.lines, size=style.BODY, weight="bold")
        colour = style.FAILED if self.failed else style.GREY
        sheet.text(sheet.width - _RIGHT, top + 0.01, lettering.escaped(self.aside), ha="right", size=style.SMALL, color=colour)


def _heading(variant: Drawn, unit: Unit) -> _Heading:
    room = WIDTH - 2 * _RIGHT
    aside = lettering.shortened(lettering.readable(_side(variant, unit)), room * 0.6, style.SMALL)
    lines = lettering.wrapped(variant.name, room - lettering.width(aside, style.SMALL) - 0.2, style.BODY, _MOST_NAME_LINES, "bold")
    return _Heading(lines, aside, variant.failed)


def _side(variant: Drawn, unit: Unit) -> str:
    """The text beside a variant's name: how it failed, or which repeat this is and how far the others lie from it."""
    if variant.failed:
        return f"✗ failed: {variant.run.outcome.sentence}"
    peaks = variant.peaks
    if len(variant.group) == 1 or not peaks:
        return ""
    low, high = unit.cell(min(peaks)), unit.cell(max(peaks))
    around = f"{low} to {high} {unit.name}" if low != high else f"{low} {unit.name} each"
    what = f"peak of {' and '.join(variant.wanted)} in" if variant.wanted else "PEAK of"
    return f"repeat {variant.run.job.repeat}, the one with the median PEAK; {what} {len(peaks)} repeats: {around}"


def _areas(axes: Axes, variant: Drawn, scale: TimelineScale) -> None:
    times, anon, rss = scale.times(variant), variant.rows.anon / scale.memory.size, variant.rows.rss / scale.memory.size
    for low, high, fill in ((0, rss, UNSEEN),) if variant.run.imported else ((0, anon, ANON), (anon, rss, FILE)):
        axes.fill_between(times, low, high, **{**fill.words(), "linewidth": 0.0})
    axes.plot(times, rss, color=style.INK, linewidth=0.7)
    if len(variant.device[0]):
        axes.step((variant.device[0] - variant.zero_ns) / scale.time.size, variant.device[1] / scale.memory.size, where="post", **_DEVICE)
    for span in variant.spans:
        begin, end = scale.at(variant, span.begin_ns), scale.at(variant, span.end_ns)
        if span.mark is not None and span.mark.rss_peak_bytes is not None:
            axes.hlines(span.mark.rss_peak_bytes / scale.memory.size, begin, end, color=style.INK, linewidth=1.6)
        if _unpolled(variant, span):
            axes.axvspan(begin, end, facecolor="white", alpha=0.6, edgecolor="none", zorder=1.5)
    ground = metrics.baseline(variant.run, _RSS_PEAK)
    if ground is not None:
        axes.axhline(ground / scale.memory.size, color=style.INK, linewidth=1.0, linestyle=":")
    if variant.failed and len(times):
        axes.plot(times[-1:], rss[-1:], marker="X", color=style.FAILED, markersize=8, markeredgecolor="white", clip_on=False)


def _unpolled(variant: Drawn, span: RunPhase) -> bool:
    """Whether a phase is drawn as a straight line between its ends. A log does not say how often its tool polled."""
    return not variant.run.imported and span.mark is not None and span.mark.interval_ns == 0 and span.phase != STARTUP


def _shade(axes: Axes, variant: Drawn, scale: TimelineScale) -> None:
    for index, span in enumerate(variant.spans):
        begin, end = scale.at(variant, span.begin_ns), scale.at(variant, span.end_ns)
        if index % 2 == 1:
            axes.axvspan(begin, end, facecolor=style.BAND, edgecolor="none", zorder=0)
        axes.axvline(end, color=style.GREY, linewidth=0.5, zorder=0.6)


def _name_phases(sheet: Sheet, top: float, variant: Drawn, scale: TimelineScale) -> None:
    wide = sheet.width - _LEFT - _RIGHT
    names = []
    for span in variant.spans:
        failed = span.mark is None
        middle = (scale.at(variant, span.begin_ns) + scale.at(variant, span.end_ns)) / 2
        text = phase_name(("✗ " if failed else "") + span.phase, 2.5)
        colour = style.FAILED if failed else style.GREY
        names.append(PhaseName(text, _LEFT + wide * middle / scale.longest, span.end_ns - span.begin_ns, colour))
    sheet.phase_names(names, _LEFT, wide, top, top + _PHASE_NAMES)


def _say_peak(axes: Axes, variant: Drawn, scale: TimelineScale, wide: float) -> None:
    top = variant.peak
    if top is None:
        return
    text = f"{variant.hedge}{scale.memory.amount(top.bytes)} in {lettering.readable(top.phase)}"
    if not top.shown and top.seen_bytes is not None:
        text += f" (polling saw {scale.memory.cell(top.seen_bytes)})"
    if scale.at(variant, variant.zero_ns + variant.end_ns) < scale.longest / _BUCKETS:
        text += f"; it took {format_duration(variant.end_ns)}, too short to be seen"
    text = lettering.shortened(text, 5.0, style.SMALL, "bold")
    x, level = scale.at(variant, top.t_ns), top.bytes / scale.memory.size
    if top.shown and variant.hedge != "≥":
        axes.plot([x], [level], marker="v", color=style.INK, markersize=5, clip_on=False, zorder=5)
    half = lettering.width(text, style.SMALL, "bold") / 2 / wide * scale.longest
    middle = min(max(x, half * 1.02), scale.longest - half * 1.02)
    words: dict[str, Any] = {"ha": "center", "va": "bottom", "size": style.SMALL, "weight": "bold", "zorder": 6, "bbox": style.backing()}
    axes.annotate(lettering.escaped(text), (middle, level), (0, 4.5), textcoords="offset points", **words)
