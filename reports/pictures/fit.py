"""The picture of `memprof fit`: latency and page faults against the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from memprof.base import terminal_text
from memprof.base.errors import InputError
from memprof.base.units import counted, format_bytes
from memprof.footprint.fit import Fitted, LimitPoint
from memprof.records.metrics import BYTES, NS

from ..ran import shaped
from ..tables import grid
from ..tables.fit import outcome
from ..tables.grid import Unit
from . import lettering, placing, style
from .sheet import LegendEntry, Sheet

_LEFT, _RIGHT, _ABOVE, _LATENCY, _BETWEEN, _FAULTS, _BELOW = 0.85, 0.2, 0.24, 2.4, 0.2, 1.6, 0.4
_LOG_FROM = 1000  # page faults; below, a plain axis tells more
_LOG_RATIO = 10  # the most of a latency that a plain axis shows beside the least


@style.look()
def picture(fitted: Fitted) -> Figure:
    """Latency and page faults of EXECUTE, or of a program, against the limit, the least limit and the RSS peak marked. Raises InputError where there
    is no curve."""
    points = [at for at in fitted.curve if at.limit_bytes is not None and at.time_ns]
    if not points:
        raise InputError("there is nothing to draw: no latency under a limit was measured")
    plain = fitted.curve[-1]
    marked = _marked(fitted)
    size = grid.choose_unit(BYTES, [value for _, value in marked] + [at.limit_bytes or 0 for at in points])
    time = grid.choose_unit(NS, [at.time_ns or 0 for at in fitted.curve])
    legend = [
        LegendEntry("median iteration" if grid.runtime(fitted.runtime) else "median duration", line=_TIME),
        *([LegendEntry("of the runs that did not fail", line={**_TIME, **_HOLLOW})] if any(at.ended for at in points) else []),
        LegendEntry("with no limit", line={**_NONE, "marker": ""}),
        *(
            LegendEntry(name.replace("_", " ") + (" in EXECUTE" if grid.runtime(fitted.runtime) else ""), line=look)
            for name, look in _KINDS.items()
        ),
    ]
    failed = [f"in {format_bytes(at.limit_bytes or 0)}: {at.ended}" for at in fitted.curve if at.ended]
    found = terminal_text.plain(outcome(fitted))
    ran = [counted(fitted.threads, "thread") if fitted.threads else "", shaped(fitted.shapes, fitted.assumed).removeprefix(", ")]
    sheet = Sheet(
        "Latency under a memory limit",
        " · ".join(text for text in (grid.runtime(fitted.runtime), fitted.settings, *ran, f"limited by {fitted.limiter}") if text),
        {fitted.model: _ABOVE + _LATENCY + _BETWEEN + _FAULTS + _BELOW},
        finding=found[:1].upper() + found[1:],
        legend=legend,
        remarks=[*failed, *fitted.remarks],
    )
    wide = sheet.width - _LEFT - _RIGHT
    x = [(at.limit_bytes or 0) / size.size for at in points]
    ends = [*x, *(value / size.size for _, value in marked)]
    room = max(max(ends) - min(ends), max(ends) * 0.02) * 0.04
    upper = sheet.axes(_LEFT, _ABOVE, wide, _LATENCY)
    lower = sheet.axes(_LEFT, _ABOVE + _LATENCY + _BETWEEN, wide, _FAULTS)
    for axes in (upper, lower):
        axes.set_xlim(min(ends) - room, max(ends) + room)
        axes.xaxis.set_major_locator(MaxNLocator(8))
        axes.grid(axis="y")
        for _, value in marked:
            axes.axvline(value / size.size, color=style.INK, linewidth=0.8, linestyle=":", zorder=1)
    failing = [(at.limit_bytes or 0) / size.size for at in fitted.curve if at.ended and at.limit_bytes]
    _drawn(upper, x, points, [(at.time_ns or 0) / time.size for at in points], _TIME, failing)
    if plain.time_ns:
        upper.axhline(plain.time_ns / time.size, **_NONE)
    _latency_axis(upper, [at.time_ns / time.size for at in fitted.curve if at.time_ns], time, grid.runtime(fitted.runtime) != "")
    upper.tick_params(labelbottom=False)
    _faults(lower, x, points, failing)
    lower.set_xlabel(size.caption("limit over the whole run"), labelpad=2)
    for axes in (upper, lower):
        axes.yaxis.set_label_coords(-0.62 / wide, 0.5)
    _name(sheet, marked, size, (min(ends) - room, max(ends) + room), wide)
    return sheet.figure


_TIME: dict[str, Any] = {"color": style.INK, "marker": "o", "markersize": 4.5, "linewidth": 1.4}
_HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "linestyle": "none"}
_FEW_TICKS = 50  # the ratio of latencies below which powers of ten alone would be one tick or two
_NONE: dict[str, Any] = {"color": style.GREY, "linestyle": (0, (5, 3)), "linewidth": 1.0}
_KINDS: dict[str, dict[str, Any]] = {
    "minor_faults": {"color": "#0072B2", "marker": "s", "markersize": 4.5, "linewidth": 1.4, "linestyle": (0, (5, 1.5))},
    "major_faults": {"color": "#D55E00", "marker": "^", "markersize": 5.0, "linewidth": 1.4},
}


def _latency_axis(axes: Axes, values: Sequence[float], time: Unit, iterates: bool) -> None:
    """The axis for these latencies, in the unit: logarithmic where they differ so much that a plain one would show only the largest."""
    caption = time.caption("one iteration" if iterates else "one run")
    if max(values) > _LOG_RATIO * min(values):
        axes.set_yscale("log")
        axes.set_ylim(min(values) / 1.5, max(values) * 1.5)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(values) < _FEW_TICKS * min(values) else (1,)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        caption += ", logarithmic"
    else:
        axes.set_ylim(0, max(values) * 1.1)
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylabel(caption)


def _marked(fitted: Fitted) -> list[tuple[str, int]]:
    """The marks on the axis of limits, by size. A limit on allocations is no measure of a resident set, so the RSS peak has no mark then."""
    part = fitted.whole
    assert part is not None  # a curve is of the whole run
    name = "limit" if fitted.within_bytes is not None else "least limit" if part.complete else "least limit that worked"
    marked = [(name, part.least_bytes)] if part.least_bytes is not None else []
    marked += [("RSS peak with no limit", part.rss_peak_bytes)] if fitted.exact else []
    return sorted(marked, key=lambda mark: mark[1])


def _drawn(
    axes: Axes,
    x: Sequence[float],
    points: Sequence[LimitPoint],
    values: Sequence[float | None],
    look: Mapping[str, Any],
    failing: Sequence[float],
) -> None:
    """A line through the points that have a value. It would promise that the job works there: where some runs failed, the others' figure is no point
    of it, and it is broken at the limits in `failing`, which lie on the axis like x."""
    for partly, kind in ((False, look), (True, {**look, **_HOLLOW})):
        some = [
            (at, value) for at, point, value in zip(x, points, values, strict=True) if value is not None and bool(point.ended) is partly
        ]
        gaps = [] if partly else [(at, math.nan) for at in failing]
        places = sorted([*some, *gaps], key=lambda place: place[0])
        axes.plot([at for at, _ in places], [value for _, value in places], **kind)


def _faults(axes: Axes, x: Sequence[float], points: Sequence[LimitPoint], failing: Sequence[float]) -> None:
    most = 1.0
    for name, look in _KINDS.items():
        values = [getattr(at, name) for at in points]
        _drawn(axes, x, points, values, look, failing)
        most = max([most, *(value for value in values if value is not None)])
    if most >= _LOG_FROM:
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(0, most * 2)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_ylim(0, most * 1.15)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylabel("page faults" + (" (logarithmic)" if most >= _LOG_FROM else ""))


def _name(sheet: Sheet, marked: Sequence[tuple[str, int]], size: Unit, ends: tuple[float, float], wide: float) -> None:
    """Names over the panels, each as near to its mark as the other lets it be, with a line down to it."""
    texts = [f"{name} {size.amount(value)}" for name, value in marked]
    wanted = [_LEFT + wide * (value / size.size - ends[0]) / (ends[1] - ends[0]) for _, value in marked]
    places = placing.apart(wanted, [lettering.width(text, style.SMALL) + 0.15 for text in texts], _LEFT, _LEFT + wide)
    for text, x, place in zip(texts, wanted, places, strict=True):
        sheet.text(place, 0.02, lettering.escaped(text), ha="center", size=style.SMALL)
        sheet.path([(place, 0.15), (x, _ABOVE)], color=style.INK, linewidth=0.6)
