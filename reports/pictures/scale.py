"""The picture of `memprof scale`: measured points and the law through them, with its interval, beyond the measured range as a dashed line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from memprof.errors import InputError
from memprof.runs.metrics import BYTES
from memprof.runs.records import Run
from memprof.seek import scale_laws
from memprof.seek.scaled import Measured, Scaled
from memprof.units import counted, format_bytes, parse_bytes

from ..tables import grid
from ..tables.grid import Unit
from ..tables.scale import sentence
from . import style
from .lettering import readable
from .sheet import Entry, Sheet

_LEFT, _RIGHT, _ABOVE, _HIGH, _BELOW = 0.85, 0.25, 0.08, 3.6, 0.42
_MOST_CURVES = 4
_STEPS = 160
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7A5200")
_MARKERS = ("o", "s", "^", "D", "v")
_Others = tuple[tuple[str, int], ...]


def render(runs: Sequence[Run], *, within: str | None = None) -> Figure:
    """The law of runs that `memprof scale` kept. within: a limit to draw, as people write sizes. Raises InputError unless they are of one search."""
    searches = scale_laws.of_runs(runs)
    if not searches:
        kept = "memprof scale -o RUNS.jsonl keeps such runs, but those of --vary processes are parts of a sum"
        raise InputError(f"there is nothing to draw: no run is of a search for a law ({kept})")
    if len(searches) > 1:
        names = "; ".join(f"{search.model} in {title(search)}" for search in searches)
        raise InputError(f"the runs are of {len(searches)} searches, and a picture is of one: {names}")
    return picture(replace(searches[0], within_bytes=parse_bytes(within) if within else None))


def title(scaled: Scaled) -> str:
    """The runtime, and the settings that are the same at all places."""
    return " · ".join([scaled.runtime, *([scaled.settings] if scaled.settings else [])])


def picture(scaled: Scaled) -> Figure:
    """The main figure against the first dimension that varies, a curve for each combination of the others. Raises InputError where no point
    was measured."""
    points = [point for point in scaled.points if scaled.main in point.sizes]
    if not points:
        raise InputError("there is nothing to draw: no point was measured")
    with style.look():
        return _picture(scaled, points)


def _picture(scaled: Scaled, points: Sequence[Measured]) -> Figure:
    name = next(iter(points[0].at))
    fitted = [point for point in points if not point.held_out] or points
    # Far beyond the measured range a point would leave no room for all others.
    farthest = 2 * max(point.at[name] for point in fitted)
    far = [point for point in points if point.at[name] > farthest]
    points = [point for point in points if point.at[name] <= farthest]
    counts = Counter(_others(point, name) for point in fitted)
    curves = sorted(sorted(counts, key=lambda others: -counts[others])[:_MOST_CURVES])
    size = grid.choose_unit(BYTES, [*(point.sizes[scaled.main] for point in points), scaled.within_bytes or 0])
    sheet = Sheet(
        f"{scaled.main} as a law: {scaled.model}",
        f"{title(scaled)} · {_said(scaled)}",
        _ABOVE + _HIGH + _BELOW,
        legend=_legend(scaled, curves, points),
        remarks=[
            *([f"Undecided: {scaled.undecided}."] if scaled.undecided else []),
            *([f"Not drawn: {counted(len(far), 'point')} beyond {name}={farthest}."] if far else []),
        ],
    )
    axes = sheet.axes(_LEFT, _ABOVE, sheet.width - _LEFT - _RIGHT, _HIGH)
    low, high = min(point.at[name] for point in points), max(point.at[name] for point in points)
    for place, others in enumerate(curves):
        _curve(axes, scaled, name, others, (low, high), size, _COLOURS[place])
    for point in points:
        others = _others(point, name)
        place = curves.index(others) if others in curves else -1
        look: dict[str, Any] = {"color": _COLOURS[place] if place >= 0 else style.GREY, "marker": _MARKERS[place] if place >= 0 else "x"}
        filled = "white" if point.held_out else look["color"]
        axes.plot(
            [point.at[name]],
            [point.sizes[scaled.main] / size.size],
            linestyle="none",
            markersize=6,
            markerfacecolor=filled,
            zorder=4,
            **look,
        )
        if point.shift_bytes:
            heights = [point.sizes[scaled.main] / size.size, (point.sizes[scaled.main] + point.shift_bytes) / size.size]
            axes.plot([point.at[name]] * 2, heights, color=look["color"], linewidth=0.9, zorder=3)
        if point.least:
            axes.annotate(
                "at least", (point.at[name], point.sizes[scaled.main] / size.size), (0, 6), textcoords="offset points", fontsize=style.SMALL
            )
    if scaled.within_bytes:
        axes.axhline(scaled.within_bytes / size.size, **_LIMIT)
    axes.set_ylim(0, None)
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel(readable(name), labelpad=2)
    axes.set_ylabel(size.caption(readable(scaled.main)))
    axes.tick_params(length=2.5)
    return sheet.figure


_LIMIT: dict[str, Any] = {"color": style.INK, "linestyle": ":", "linewidth": 1.2}


def _said(scaled: Scaled) -> str:
    return sentence(scaled.law) if scaled.law is not None else "no simple law holds"


def _others(point: Measured, name: str) -> _Others:
    return tuple(sorted((other, value) for other, value in point.at.items() if other != name))


def _curve(axes: Axes, scaled: Scaled, name: str, others: _Others, ends: tuple[int, int], size: Unit, colour: str) -> None:
    """The law along the axis: solid where it was measured, dashed beyond."""
    law = scaled.law
    if law is None:
        return
    places: list[Mapping[str, float]] = [{**dict(others), name: float(value)} for value in np.linspace(*ends, _STEPS)]
    predictions = scaled.predict(places)
    x = np.array([place[name] for place in places])
    measured = np.array([not prediction.beyond for prediction in predictions])
    middle = np.array([prediction.bytes for prediction in predictions]) / size.size
    low = np.array([prediction.low_bytes for prediction in predictions]) / size.size
    high = np.array([prediction.high_bytes for prediction in predictions]) / size.size
    axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    last = int(measured.sum())
    axes.plot(x[:last], middle[:last], color=colour, linewidth=1.3)
    axes.plot(x[max(last - 1, 0) :], middle[max(last - 1, 0) :], color=colour, linewidth=1.3, linestyle=(0, (4, 2.5)))


def _legend(scaled: Scaled, curves: Sequence[_Others], points: Sequence[Measured]) -> list[Entry]:
    entries = [
        Entry(
            ", ".join(f"{name}={value}" for name, value in others) or "measured",
            line={"color": _COLOURS[place], "marker": _MARKERS[place], "markersize": 6, **({} if scaled.law else {"linestyle": "none"})},
        )
        for place, others in enumerate(curves)
    ]
    if any(point.held_out for point in points):
        entries.append(Entry("not fitted", line={"linestyle": "none", "marker": "o", "markerfacecolor": "white"}))
    if scaled.law is not None:
        entries.append(Entry("95% of the law", fill=style.Fill("#DCE9F4")))
        if any(prediction.beyond for prediction in scaled.predict([point.at for point in points])):
            entries.append(Entry("beyond the measured range", line={"linestyle": (0, (4, 2.5))}))
    if any(point.shift_bytes for point in points):
        entries.append(Entry("freed memory that the run did not keep, by chance", line={"linewidth": 0.9}))
    if scaled.within_bytes:
        entries.append(Entry(f"limit {format_bytes(scaled.within_bytes)}", line=_LIMIT))
    return entries
