"""RSS over time: what polling saw as areas, phases shaded and named, and the exact peak of each phase where polling missed it too.

Several variants are rows on one scale of time and memory, or lines over one another with a strip of phases each; each model has a scale
of its own. What is drawn of a variant is one repeat, that with the median PEAK; the spread over its repeats is said beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from memprof.errors import InputError, UsageError, near
from memprof.runs import metrics, summary
from memprof.runs.metrics import BYTES
from memprof.runs.records import PEAK, PHASES, STARTUP, Run

from ..columns import Cache, Columns, Peak, Span, peak, spans, thin, typical
from ..rows import named
from ..tables.grid import Unit, choose_unit, number
from . import choosing, lettering, placing, style
from .sheet import Entry, Sheet
from .style import ANON, FILE, UNSEEN, Fill, Line

_MOST_ROWS = 20
_BUCKETS = 1500  # more stretches of time than a picture has columns of pixels to tell apart
_LEFT, _RIGHT = 0.62, 0.15
_MODEL, _NAME, _PHASE_NAMES, _BELOW, _TIME_AXIS = 0.28, 0.19, 0.2, 0.2, 0.42
_SMALLEST = 7.0
_RSS_PEAK = metrics.METRICS["rss_peak_bytes"]


@dataclass(frozen=True)
class Drawn:
    """What is drawn of one variant: its typical run, as far as its phases are wanted. peak: None where no phase ended and nothing was seen."""

    model: str
    name: str
    run: Run
    group: Sequence[Run]
    rows: Columns
    spans: Sequence[Span]
    peak: Peak | None

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
        return max([*self.rows.rss.tolist(), *(span.mark.height_bytes for span in self.spans if span.mark)], default=0)

    @property
    def failed(self) -> bool:
        return not self.run.outcome.ok

    @property
    def hedge(self) -> str:
        """What stands before the peak: `≥` where the run failed on its way up, `~` where polling alone saw it, else nothing."""
        if self.peak is None or self.peak.exact:
            return ""
        return "≥" if self.spans[-1].mark is None and self.peak.phase == self.spans[-1].phase else "~"


@dataclass(frozen=True)
class Scale:
    """Units of the picture, and how far its axes reach in them."""

    memory: Unit
    time: Unit
    highest: float
    longest: float

    def at(self, one: Drawn, t_ns: int) -> float:
        """A moment on the axis of time."""
        return (t_ns - one.zero_ns) / self.time.size

    def times(self, one: Drawn) -> NDArray[numpy.float64]:
        found: NDArray[numpy.float64] = (one.rows.t_ns - one.zero_ns) / self.time.size
        return found


def render(runs: Sequence[Run], *, overlay: bool = False, phases: Sequence[str] = ()) -> Figure:
    """The picture of these runs, failed ones too. phases: only these, time counted from the begin of the first of them.

    Raises UsageError for a phase that no run has, InputError where nothing was polled.
    """
    known = summary.order([*summary.phases(runs), *(run.outcome.phase for run in runs if run.outcome.phase)])
    for phase in phases:
        if phase not in known:
            raise UsageError(f"these runs have no phase {phase!r}{near(phase, known) or '; they have ' + ', '.join(known)}")
    with style.look():
        return _render(runs, overlay, phases)


def _render(runs: Sequence[Run], overlay: bool, phases: Sequence[str]) -> Figure:
    everyone = summary.groups(runs)
    grouped = dict(list(everyone.items())[:_MOST_ROWS])
    called = named(grouped)
    if not overlay:
        called = dict(zip(called, lettering.distinct(list(called.values()), 3.6, weight="bold"), strict=True))
    cache = Cache()
    found = {key: _drawn(key.model, called[key], group, phases, cache) for key, group in grouped.items()}
    models: dict[str, list[Drawn]] = {}
    for key, one in found.items():
        if one is not None:
            models.setdefault(key.model, []).append(one)
    if not models:
        raise InputError("these runs hold nothing to draw: they ended before they could be polled")
    remarks = choosing.remarks(grouped)
    if len(everyone) > len(grouped):
        remarks.insert(0, f"{len(everyone) - len(grouped)} more variants are not drawn: --model and --variant choose")
    missing = [called[key] for key, one in found.items() if one is None]
    if missing:
        remarks.append(f"Not drawn, for nothing was seen of {'these phases' if phases else 'it'}: {', '.join(missing)}")
    title = "Resident memory over time" + (f": {next(iter(models))}" if len(models) == 1 else "")
    return (_overlay if overlay else _rows)(models, _scales(models), title, choosing.conditions(runs), remarks)


def _drawn(model: str, name: str, group: Sequence[Run], phases: Sequence[str], cache: Cache) -> Drawn | None:
    run = typical(group)
    rows = cache(run)
    found = [span for span in spans(run, rows) if not phases or span.phase in phases]
    if phases:
        rows = rows.between(found[0].begin_ns, found[-1].end_ns) if found else rows.between(0, 0)
    if not len(rows) and not any(span.mark for span in found):
        return None
    return Drawn(model, name, run, group, thin(rows, _BUCKETS), found, _peak(run, rows, found))


def _peak(run: Run, rows: Columns, found: Sequence[Span]) -> Peak | None:
    marks = [span.mark for span in found if span.mark is not None and span.mark.rss_peak_bytes is not None]
    top = max(marks, key=lambda mark: mark.height_bytes, default=None)
    highest = peak(top, rows, run.machine.peak_bound_bytes) if top is not None else None
    if found and found[-1].mark is None and len(rows) and rows.rss.max() > (highest.bytes if highest else 0):
        row = int(rows.rss.argmax())
        return Peak(int(rows.rss[row]), found[-1].phase, int(rows.t_ns[row]), int(rows.rss[row]), shown=True, exact=False)
    return highest


def _scales(models: Mapping[str, Sequence[Drawn]]) -> dict[str, Scale]:
    everyone = [one for ones in models.values() for one in ones]
    memory = choose_unit(BYTES, [one.highest for one in everyone])
    time = Unit("s", 1e9) if max(one.end_ns for one in everyone) >= 2e9 else Unit("ms", 1e6)
    return {
        model: Scale(
            memory, time, max(one.highest for one in ones) / memory.size or 1, max(one.end_ns for one in ones) / time.size * 1.005 or 1
        )
        for model, ones in models.items()
    }


def _say_time(axes: Axes, scale: Scale, ones: Sequence[Drawn]) -> None:
    firsts = {one.spans[0].phase for one in ones if one.spans}
    first = firsts.pop() if len(firsts) == 1 else "the first phase"
    axes.set_xlabel(lettering.label(scale.time.caption(f"time since the begin of {first}"), 5.0, style.SMALL), labelpad=1)


# -- rows


def _rows(
    models: Mapping[str, Sequence[Drawn]], scales: Mapping[str, Scale], title: str, conditions: str, remarks: Sequence[str]
) -> Figure:
    everyone = [one for ones in models.values() for one in ones]
    high = {1: 3.2, 2: 2.2, 3: 1.7, 4: 1.4, 5: 1.3}.get(len(everyone), 1.05)
    each = _NAME + _PHASE_NAMES + high + _BELOW
    above = _MODEL if len(models) > 1 else 0.0
    content = sum(above + each * len(ones) - _BELOW + _TIME_AXIS for ones in models.values())
    sheet = Sheet(title, conditions, content, legend=_legend(everyone), remarks=remarks)
    top = 0.0
    for model, ones in models.items():
        if above:
            sheet.text(_RIGHT, top, lettering.label(model, 9.5, 10.5, "bold"), weight="bold", size=10.5)
            top += above
        for one in ones:
            _row(sheet, top, high, one, scales[model], ones if one is ones[-1] else None)
            top += each
        top += _TIME_AXIS - _BELOW
    return sheet.figure


def _row(sheet: Sheet, top: float, high: float, one: Drawn, scale: Scale, last_of: Sequence[Drawn] | None) -> None:
    wide = sheet.width - _LEFT - _RIGHT
    _heading(sheet, top, one, scale)
    axes = sheet.axes(_LEFT, top + _NAME + _PHASE_NAMES, wide, high)
    axes.set_xlim(0, scale.longest)
    axes.set_ylim(0, scale.highest * (1 + 0.3 / high))
    _areas(axes, one, scale)
    _shade(axes, one, scale)
    _name_phases(sheet, top + _NAME, one, scale)
    _say_peak(axes, one, scale, wide)
    axes.yaxis.set_major_locator(MaxNLocator(3 if high < 1.3 else 5, min_n_ticks=2))
    axes.set_ylabel(scale.memory.caption("RSS"))
    axes.yaxis.set_label_coords(-0.41 / wide, 0.5)
    axes.tick_params(length=2.5)
    if last_of is None:
        axes.set_xticks([])
    else:
        _say_time(axes, scale, last_of)


def _legend(everyone: Sequence[Drawn]) -> list[Entry]:
    marks = [span.mark for one in everyone for span in one.spans if span.mark is not None]
    found = (
        [Entry(style.ANON_WORDS, fill=ANON), Entry(style.FILE_WORDS, fill=FILE)] if not all(one.run.imported for one in everyone) else []
    )
    if any(one.run.imported for one in everyone):
        found.append(Entry("RSS of a log: split not known" if found else "RSS, as the log says", fill=UNSEEN))
    if marks:
        exact = all(mark.sure for mark in marks)
        words = "exact peak of each phase" if exact else "peak of each phase (~: only what was polled)"
        found.append(Entry(words, line={"linewidth": 1.6}))
    if any(metrics.baseline(one.run, _RSS_PEAK) is not None for one in everyone):
        found.append(Entry("baseline: no model loaded", line={"linewidth": 1.0, "linestyle": ":"}))
    if any(_unpolled(one, span) for one in everyone for span in one.spans):
        found.append(Entry("pale: not polled, its ends joined"))
    return found


def _heading(sheet: Sheet, top: float, one: Drawn, scale: Scale) -> None:
    room = sheet.width - 2 * _RIGHT
    said = lettering.shortened(lettering.readable(_side(one, scale.memory)), room * 0.6, style.SMALL)
    name = lettering.label(one.name, room - lettering.width(said, style.SMALL) - 0.2, weight="bold")
    sheet.text(_RIGHT, top, name, weight="bold")
    colour = style.FAILED if one.failed else style.GREY
    sheet.text(sheet.width - _RIGHT, top + 0.01, lettering.escaped(said), ha="right", size=style.SMALL, color=colour)


def _side(one: Drawn, unit: Unit) -> str:
    """What is said beside a variant's name: how it failed, or which repeat this is and how far the others lie from it."""
    if one.failed:
        return f"✗ failed: {one.run.outcome.sentence}"
    peaks = [value for run in one.group if (value := metrics.value(run, PEAK, _RSS_PEAK)) is not None]
    if len(one.group) == 1 or not peaks:
        return ""
    low, high = number(min(peaks) / unit.size), number(max(peaks) / unit.size)
    around = f"{low} to {high} {unit.name}" if low != high else f"{low} {unit.name} each"
    return f"repeat {one.run.job.repeat}, the one with the median PEAK; PEAK of {len(peaks)} repeats: {around}"


def _areas(axes: Axes, one: Drawn, scale: Scale) -> None:
    times, anon, rss = scale.times(one), one.rows.anon / scale.memory.size, one.rows.rss / scale.memory.size
    for low, high, fill in ((0, rss, UNSEEN),) if one.run.imported else ((0, anon, ANON), (anon, rss, FILE)):
        axes.fill_between(times, low, high, **{**fill.words(), "linewidth": 0.0})
    axes.plot(times, rss, color=style.INK, linewidth=0.7)
    for span in one.spans:
        begin, end = scale.at(one, span.begin_ns), scale.at(one, span.end_ns)
        if span.mark is not None and span.mark.rss_peak_bytes is not None:
            axes.hlines(span.mark.rss_peak_bytes / scale.memory.size, begin, end, color=style.INK, linewidth=1.6)
        if _unpolled(one, span):
            axes.axvspan(begin, end, facecolor="white", alpha=0.6, edgecolor="none", zorder=1.5)
    ground = metrics.baseline(one.run, _RSS_PEAK)
    if ground is not None:
        axes.axhline(ground / scale.memory.size, color=style.INK, linewidth=1.0, linestyle=":")
    if one.failed and len(times):
        axes.plot(times[-1:], rss[-1:], marker="X", color=style.FAILED, markersize=8, markeredgecolor="white", clip_on=False)


def _unpolled(one: Drawn, span: Span) -> bool:
    """Whether what is drawn of a phase is but a straight line between its ends; how often another tool polled, its log does not say."""
    return not one.run.imported and span.mark is not None and span.mark.interval_ns == 0 and span.phase != STARTUP


def _shade(axes: Axes, one: Drawn, scale: Scale) -> None:
    for index, span in enumerate(one.spans):
        begin, end = scale.at(one, span.begin_ns), scale.at(one, span.end_ns)
        if index % 2 == 1:
            axes.axvspan(begin, end, facecolor=style.BAND, edgecolor="none", zorder=0)
        axes.axvline(end, color=style.GREY, linewidth=0.5, zorder=0.6)


def _name_phases(sheet: Sheet, top: float, one: Drawn, scale: Scale) -> None:
    """Names over the panel, each as near to its phase as the others let it be, with a line down to it."""
    wide = sheet.width - _LEFT - _RIGHT
    texts = [
        lettering.shortened(("✗ " if span.mark is None else "") + lettering.readable(span.phase), 2.5, _SMALLEST) for span in one.spans
    ]
    named = sorted(range(len(texts)), key=lambda index: one.spans[index].begin_ns - one.spans[index].end_ns)
    while len(named) > 1 and sum(lettering.width(texts[index], _SMALLEST) + 0.1 for index in named) > wide:
        named.pop()  # the shortest go unnamed
    named.sort()
    centres = [(scale.at(one, one.spans[index].begin_ns) + scale.at(one, one.spans[index].end_ns)) / 2 for index in named]
    wanted = [_LEFT + wide * centre / scale.longest for centre in centres]
    places = placing.apart(wanted, [lettering.width(texts[index], _SMALLEST) + 0.1 for index in named], _LEFT, _LEFT + wide)
    for index, x, place in zip(named, wanted, places, strict=True):
        colour = style.FAILED if one.spans[index].mark is None else style.GREY
        sheet.text(place, top + 0.03, lettering.escaped(texts[index]), ha="center", size=_SMALLEST, color=colour)
        sheet.path([(place, top + 0.145), (x, top + _PHASE_NAMES)], color=style.GREY, linewidth=0.5)


def _say_peak(axes: Axes, one: Drawn, scale: Scale, wide: float) -> None:
    top = one.peak
    if top is None:
        return
    text = f"{one.hedge}{number(top.bytes / scale.memory.size)} {scale.memory.name} in {lettering.readable(top.phase)}"
    if not top.shown and top.seen_bytes is not None:
        text += f" (polling saw {number(top.seen_bytes / scale.memory.size)})"
    text = lettering.shortened(text, 5.0, style.SMALL, "bold")
    x, level = scale.at(one, top.t_ns), top.bytes / scale.memory.size
    if top.shown and one.hedge != "≥":
        axes.plot([x], [level], marker="v", color=style.INK, markersize=5, clip_on=False, zorder=5)
    half = lettering.width(text, style.SMALL, "bold") / 2 / wide * scale.longest
    middle = min(max(x, half * 1.02), scale.longest - half * 1.02)
    words: dict[str, Any] = {"ha": "center", "va": "bottom", "size": style.SMALL, "weight": "bold", "zorder": 6, "bbox": placing.backing()}
    axes.annotate(lettering.escaped(text), (middle, level), (0, 4.5), textcoords="offset points", **words)


# -- overlay

_HIGH, _STRIP, _LOOK = 3.6, 0.19, 0.62
_PHASE_FILLS = dict(zip(PHASES, (Fill("#FFFFFF"), Fill("#C4C4C4"), Fill("#858585"), Fill("#E6E6E6", "////"), Fill("#5A5A5A")), strict=True))
_OTHER_FILLS = (Fill("#FFFFFF", "\\\\\\\\"), Fill("#C4C4C4", "////"), Fill("#FFFFFF", "...."), Fill("#C4C4C4", "xxxx"))


def _overlay(
    models: Mapping[str, Sequence[Drawn]], scales: Mapping[str, Scale], title: str, conditions: str, remarks: Sequence[str]
) -> Figure:
    everyone = [one for ones in models.values() for one in ones]
    phases = summary.order(span.phase for one in everyone for span in one.spans)
    fills = _fills(phases)
    exact = all(one.peak.exact for one in everyone if one.peak is not None)
    unseen = any(not one.peak.shown for one in everyone if one.peak is not None)
    words = ("exact peak" if exact else "peak") + (", in the middle of its phase where polling missed it" if unseen else "")
    legend = [
        Entry(words, line={"marker": "o", "linestyle": "none"}),
        *(Entry(lettering.shortened(lettering.readable(phase), 1.6, style.SMALL), fill=fills[phase]) for phase in phases),
    ]
    above = _MODEL if len(models) > 1 else 0.0
    heights = {model: above + _HIGH + 0.1 + _STRIP * len(ones) + _TIME_AXIS for model, ones in models.items()}
    sheet = Sheet(title, conditions, sum(heights.values()), legend=legend, remarks=remarks)
    top = 0.0
    for model, ones in models.items():
        if above:
            sheet.text(_RIGHT, top, lettering.label(model, 9.5, 10.5, "bold"), weight="bold", size=10.5)
        _lines(sheet, top + above, ones, scales[model], fills)
        top += heights[model]
    return sheet.figure


def _fills(phases: Sequence[str]) -> dict[str, Fill]:
    others = [phase for phase in phases if phase not in _PHASE_FILLS]
    return {**_PHASE_FILLS, **{phase: _OTHER_FILLS[index % len(_OTHER_FILLS)] for index, phase in enumerate(others)}}


def _lines(sheet: Sheet, top: float, ones: Sequence[Drawn], scale: Scale, fills: Mapping[str, Fill]) -> None:
    indent = min(2.6, max(lettering.width(lettering.readable(one.name)) for one in ones) + 0.3) + _LOOK
    wide = sheet.width - indent - _RIGHT
    axes = sheet.axes(indent, top, wide, _HIGH)
    axes.set_xlim(0, scale.longest)
    axes.set_ylim(0, scale.highest * 1.12)
    axes.grid(axis="y")
    axes.tick_params(length=2.5, labelbottom=False)
    axes.set_ylabel(scale.memory.caption("RSS"))
    names = lettering.distinct([one.name for one in ones], indent - _LOOK - 0.3)
    for index, (one, name) in enumerate(zip(ones, names, strict=True)):
        _line(axes, one, scale, style.line(index))
        place = top + _HIGH + 0.1 + index * _STRIP
        _label_strip(sheet, place, one, name, _letter(index), style.line(index))
        _strip(sheet, place, indent, wide, one, scale, fills)
    _letters(axes, ones, scale, wide)
    bottom = sheet.axes(indent, top + _HIGH + 0.1, wide, _STRIP * len(ones))
    bottom.patch.set_alpha(0)
    bottom.set_xlim(0, scale.longest)
    bottom.set_yticks([])
    bottom.tick_params(length=2.5)
    bottom.spines["left"].set_visible(False)
    _say_time(bottom, scale, ones)


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"{chr(ord('A') + index // 26 - 1)}{chr(ord('A') + index % 26)}"


def _line(axes: Axes, one: Drawn, scale: Scale, look: Line) -> None:
    times, rss = scale.times(one), one.rows.rss / scale.memory.size
    axes.plot(times, rss, color=look.colour, linestyle=look.dash, linewidth=1.4)
    if one.failed and len(times):
        axes.plot(times[-1:], rss[-1:], marker="X", color=style.FAILED, markersize=8, zorder=6)
    if one.peak is not None:
        x, level = scale.at(one, one.peak.t_ns), one.peak.bytes / scale.memory.size
        axes.plot([x], [level], marker=look.marker, color=look.colour, markersize=7.5, markeredgecolor="white", zorder=5)


def _letters(axes: Axes, ones: Sequence[Drawn], scale: Scale, wide: float) -> None:
    """Each variant's letter and peak beside its peak, with a line to it where another stands between."""
    peaks = [(index, one, one.peak) for index, one in enumerate(ones) if one.peak is not None]
    texts = [f"{_letter(index)} {one.hedge}{number(top.bytes / scale.memory.size)}" for index, one, top in peaks]
    spots = [
        (scale.at(one, top.t_ns) / scale.longest * wide, top.bytes / scale.memory.size / (scale.highest * 1.12) * _HIGH)
        for _, one, top in peaks
    ]
    sizes = [(lettering.width(text, style.SMALL, "bold") + 0.04, 0.13) for text in texts]
    boxes = (
        placing.beside(spots, sizes, (0.02, 0.0, wide, _HIGH + 0.1), above=True) or []
    )  # without room, the letters beside the strips must do
    for text, spot, box in zip(texts, spots, boxes, strict=False):
        left, bottom, right, upper = box
        if (line := placing.leader(spot, box)) is not None:
            ends = ([x / wide for x, _ in line], [y / _HIGH for _, y in line])
            axes.plot(*ends, transform=axes.transAxes, color=style.GREY, linewidth=0.5, zorder=4)
        words: dict[str, Any] = {"size": style.SMALL, "weight": "bold", "ha": "center", "va": "center", "zorder": 7}
        middle = ((left + right) / 2 / wide, (bottom + upper) / 2 / _HIGH)
        axes.text(*middle, text, transform=axes.transAxes, bbox=placing.backing(), **words)


def _label_strip(sheet: Sheet, top: float, one: Drawn, name: str, letter: str, look: Line) -> None:
    middle = top + _STRIP / 2
    sheet.text(_RIGHT, middle, letter, va="center", weight="bold", size=style.SMALL)
    sheet.path([(_RIGHT + 0.2, middle), (_RIGHT + 0.55, middle)], color=look.colour, linestyle=look.dash, linewidth=1.6)
    text = ("✗ " if one.failed else "") + lettering.escaped(name)
    sheet.text(_RIGHT + _LOOK, middle, text, va="center", color=style.FAILED if one.failed else style.INK)


def _strip(sheet: Sheet, top: float, indent: float, wide: float, one: Drawn, scale: Scale, fills: Mapping[str, Fill]) -> None:
    """A variant's phases as a strip under the lines."""
    for span in one.spans:
        left, right = (scale.at(one, t_ns) / scale.longest * wide for t_ns in (span.begin_ns, span.end_ns))
        sheet.box(indent + left, top + 0.03, right - left, _STRIP - 0.06, fills[span.phase])
