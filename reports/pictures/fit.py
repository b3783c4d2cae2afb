"""What `memprof fit` found: the least limits as a table, and latency and page faults against the limit as a table and a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from memprof.errors import InputError
from memprof.runs.metrics import BYTES, NS
from memprof.seek.fit import CONFIRMATIONS, WHOLE, At, Fitted, Part
from memprof.units import format_bytes

from ..tables import grid
from ..tables.grid import Say, Section, Table, Unit
from . import style
from .style import Entry, Sheet

_LEFT, _RIGHT, _ABOVE, _LATENCY, _BETWEEN, _FAULTS, _BELOW = 0.85, 0.2, 0.24, 2.4, 0.2, 1.6, 0.4
_LOG_FROM = 1000  # page faults; below, a plain axis tells more


def render(found: Fitted, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    if format == "json":
        return json.dumps(asdict(found), indent=1)
    say = style.plain if format == "text" else grid.escaped
    return f"{_finding(found, say)}\n\n{grid.laid_out(section(found, unit), say)}"


def section(found: Fitted, unit: str | None = None) -> Section:
    """Two tables: the parts of the job, and the curve, where there is one."""
    sizes = [size for part in found.parts for size in (part.least_bytes, part.rss_peak_bytes, part.touched_bytes) if size]
    size = grid.choose_unit(BYTES, sizes, unit)
    rows = [
        (part.name, _shown(part.least_bytes, size), _shown(part.rss_peak_bytes, size), _shown(part.touched_bytes, size))
        for part in found.parts
    ]
    parts = Table(size.caption("Least memory"), ("part", "least limit", "RSS peak, no limit", "working set"), tuple(rows))
    return Section("", (parts, _curve(found, size)) if len(found.curve) > 1 else (parts,), tuple(_notes(found)))


def _curve(found: Fitted, size: Unit) -> Table:
    time = grid.choose_unit(NS, [at.time_ns for at in found.curve if at.time_ns])
    plain = found.curve[-1].time_ns
    header = [f"limit ({size.name})", f"iteration ({time.name})", "of no limit", "minor faults", "major faults"]
    rows = [
        [
            "none" if at.limit_bytes is None else _shown(at.limit_bytes, size),
            _shown(at.time_ns, time),
            f"{at.time_ns / plain:.2f}x" if at.time_ns and plain else "-",
            _shown(at.minor_faults),
            _shown(at.major_faults),
        ]
        for at in found.curve
    ]
    if any(at.ended for at in found.curve):
        header.append("failures")
        rows = [[*row, at.ended or "none"] for row, at in zip(rows, found.curve, strict=True)]
    return Table("Under a limit over the whole run", tuple(header), tuple(map(tuple, rows)))


def _shown(value: float | None, unit: Unit | None = None) -> str:
    return "-" if value is None else grid.number(value / unit.size) if unit is not None else f"{value:.0f}"


def _finding(found: Fitted, say: Say) -> str:
    what = ", ".join(say(text) for text in (found.model, found.runtime, found.settings) if text)
    whole = _whole(found)
    slower = f", at most {found.max_time:g} times as slow," if found.max_time is not None else ""
    if whole is None:
        least = [f"{part.name} works in {format_bytes(part.least_bytes)}" for part in found.parts if part.least_bytes is not None]
        return f"{what}: {', '.join(least) or 'no limit was found under which it works'}."
    if whole.least_bytes is None:
        return f"{what}: no limit was found under which it runs{slower.rstrip(',')}."
    in_all = "" if found.exact else " of what it allocates"
    peak = f"its RSS peak with no limit is {format_bytes(whole.rss_peak_bytes)}"
    return f"{what}: runs{slower} in {format_bytes(whole.least_bytes)}{in_all}; {peak}."


def _whole(found: Fitted) -> Part | None:
    return next((part for part in found.parts if part.name == WHOLE), None)


def _notes(found: Fitted) -> list[str]:
    notes = [f"Limited by {found.limiter}; what works has worked {CONFIRMATIONS} times."]
    if found.exact:
        notes.append(
            "A group is charged for pages that the run brings in itself, so the page cache of the model and of all files it maps is dropped "
            "before each trial; pages that other processes hold meanwhile are free to it. The RSS peak counts them: it is the upper figure."
        )
    else:
        notes.append(
            "The limit is on what is allocated, touched or not, but for what files hold; RSS peak and working set are what is resident, "
            "files' pages included. So a limit may lie above the peak or below it: compare limits with one another."
        )
    if any(part.name != WHOLE for part in found.parts):
        notes.append(
            "A phase alone: the limit is set before it and lifted after it, while the process stands still; EXECUTE has its warm-up in it."
        )
    notes.append(
        "Working set: resident pages referenced in the phase, files' pages too; of the whole run, that of the phase with the most."
    )
    notes += found.remarks
    return notes


# -- the picture


def picture(found: Fitted) -> Figure:
    """Latency and page faults of EXECUTE against the limit, the least limit and the RSS peak marked. Raises InputError where there is no curve."""
    points = [at for at in found.curve if at.limit_bytes is not None and at.time_ns]
    if not points:
        raise InputError("there is nothing to draw: no latency under a limit was measured")
    with style.look():
        return _picture(found, points)


_TIME: dict[str, Any] = {"color": style.INK, "marker": "o", "markersize": 4.5, "linewidth": 1.4}
_NONE: dict[str, Any] = {"color": style.GREY, "linestyle": (0, (5, 3)), "linewidth": 1.0}
_KINDS: dict[str, dict[str, Any]] = {
    "minor_faults": {"color": "#0072B2", "marker": "s", "markersize": 4.5, "linewidth": 1.4, "linestyle": (0, (5, 1.5))},
    "major_faults": {"color": "#D55E00", "marker": "^", "markersize": 5.0, "linewidth": 1.4},
}


def _picture(found: Fitted, points: Sequence[At]) -> Figure:
    plain = found.curve[-1]
    marked = _marked(found)
    size = grid.choose_unit(BYTES, [value for _, value in marked] + [at.limit_bytes or 0 for at in points])
    time = grid.choose_unit(NS, [at.time_ns or 0 for at in found.curve])
    legend = [
        Entry("median iteration", line=_TIME),
        Entry("with no limit", line={**_NONE, "marker": ""}),
        *(Entry(f"{name.replace('_', ' ')} in EXECUTE", line=look) for name, look in _KINDS.items()),
    ]
    failed = [f"in {format_bytes(at.limit_bytes or 0)}: {at.ended}" for at in found.curve if at.ended]
    sheet = Sheet(
        f"Latency under a memory limit: {found.model}",
        " · ".join([found.runtime, *([found.settings] if found.settings else []), f"limited by {found.limiter}"]),
        _ABOVE + _LATENCY + _BETWEEN + _FAULTS + _BELOW,
        legend=legend,
        remarks=[*failed, *found.remarks],
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
        axes.tick_params(length=2.5)
        for _, value in marked:
            axes.axvline(value / size.size, color=style.INK, linewidth=0.8, linestyle=":", zorder=1)
    upper.plot(x, [(at.time_ns or 0) / time.size for at in points], **_TIME)
    if plain.time_ns:
        upper.axhline(plain.time_ns / time.size, **_NONE)
    upper.set_ylim(0, max(at.time_ns or 0 for at in found.curve) / time.size * 1.1)
    upper.yaxis.set_major_locator(MaxNLocator(5))
    upper.set_ylabel(time.caption("one iteration"))
    upper.tick_params(labelbottom=False)
    _faults(lower, x, points)
    lower.set_xlabel(size.caption("limit over the whole run"), labelpad=2)
    for axes in (upper, lower):
        axes.yaxis.set_label_coords(-0.62 / wide, 0.5)
    _name(sheet, marked, size, (min(ends) - room, max(ends) + room), wide)
    return sheet.figure


def _marked(found: Fitted) -> list[tuple[str, int]]:
    """What is marked on the axis of limits, by size; a limit on what is allocated is no measure of a resident set."""
    whole = _whole(found)
    assert whole is not None
    assert whole.least_bytes is not None
    marked = [("least limit", whole.least_bytes)] + ([("RSS peak with no limit", whole.rss_peak_bytes)] if found.exact else [])
    return sorted(marked, key=lambda one: one[1])


def _faults(axes: Axes, x: Sequence[float], points: Sequence[At]) -> None:
    most = 1.0
    for name, look in _KINDS.items():
        seen = [(place, value) for place, at in zip(x, points, strict=True) if (value := getattr(at, name)) is not None]
        axes.plot([place for place, _ in seen], [value for _, value in seen], **look)
        most = max([most, *(value for _, value in seen)])
    if most >= _LOG_FROM:
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(0, most * 2)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_ylim(0, most * 1.15)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylabel("page faults" + (" (logarithmic)" if most >= _LOG_FROM else ""))


def _name(sheet: Sheet, marked: Sequence[tuple[str, int]], size: Unit, ends: tuple[float, float], wide: float) -> None:
    """Names over the panels, each as near to its line as the other lets it be, with a line down to it."""
    texts = [f"{name} {grid.number(value / size.size)} {size.name}" for name, value in marked]
    wanted = [_LEFT + wide * (value / size.size - ends[0]) / (ends[1] - ends[0]) for _, value in marked]
    places = style.apart(wanted, [style.width(text, style.SMALL) + 0.15 for text in texts], _LEFT, _LEFT + wide)
    for text, x, place in zip(texts, wanted, places, strict=True):
        sheet.text(place, 0.02, style.escaped(text), ha="center", size=style.SMALL)
        sheet.path([(place, 0.15), (x, _ABOVE)], color=style.INK, linewidth=0.6)
