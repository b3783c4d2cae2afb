"""The picture of `memprof scale`: measured points and the law through them, with its interval, beyond the measured range as a dashed line.

What was asked stands in it too: predictions with their intervals, and a limit with the largest values that fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from msgspec import Struct
from msgspec.structs import replace

from memprof.base.errors import InputError
from memprof.base.units import counted, format_bytes, format_number, parse_bytes
from memprof.growth.laws.laws import Prediction
from memprof.growth.laws.terms import Coordinates
from memprof.growth.scale import predictions as scale_laws
from memprof.growth.scale.answer import PlaceRun, Scaled, Within, words_of
from memprof.records.metrics import BYTES
from memprof.records.types import Run

from ..tables import grid
from ..tables.grid import Unit
from ..tables.scale import arena_sizes, formula, passing, refuted
from . import style
from .lettering import label, readable, shortened, width
from .placing import apart
from .sheet import LegendEntry, Sheet

_LEFT, _RIGHT, _ABOVE, _HIGH, _BELOW = 0.85, 0.25, 0.08, 3.6, 0.42
_MOST_CURVES = 4
_MOST_INCHES = 3.0  # of a name in the legend
_MOST_INCHES_OF_LAW = 6.0  # as small text: about two lines of a title
_PLACES = 160
# Farther than so many times the measured range a place leaves no room for all others, and so does a limit above all.
_FARTHEST, _HIGHEST = 4, 3
_ROOM = 1.1  # of the law, for its interval; a wider one would leave no room for the law
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")
_DASHED = (0, (4, 2.5))
_LIMIT: dict[str, Any] = {"color": style.INK, "linestyle": ":", "linewidth": 1.2}
_PREDICTED: dict[str, Any] = {"color": style.INK, "marker": "*", "markersize": 11, "linestyle": "none"}
_LARGEST: dict[str, Any] = {"color": style.INK, "marker": "v", "markersize": 6, "linestyle": "none"}
_ELSEWHERE: dict[str, Any] = {"color": style.GREY, "marker": "P", "markersize": 6, "linestyle": "none"}
_UNMEASURED: dict[str, Any] = {"color": style.FAILED, "marker": "x", "markersize": 7, "linestyle": "none"}
# Large and open: a point that was fitted may be at the same place.
_HELD_OUT: dict[str, Any] = {"markersize": 9, "markerfacecolor": "none"}
_Others = tuple[tuple[str, int], ...]


def render(runs: Sequence[Run], *, within: str | None = None) -> Figure:
    """The law of runs that `memprof scale` kept. within: a limit to draw, as people write sizes. Raises InputError unless they are of one search."""
    searches = scale_laws.of_runs(runs)
    if not searches:
        raise InputError("there is nothing to draw: no run is of a search for a law (memprof scale -o RUNS.jsonl keeps such runs)")
    if len(searches) > 1:
        names = "; ".join(f"{search.model} in {title(search)}" for search in searches)
        raise InputError(f"the runs are of {len(searches)} searches, and a picture is of one: {names}")
    (search,) = searches
    if within:
        search = scale_laws.confirmed(replace(search, within_bytes=parse_bytes(within)))
    return picture(search)


def title(scaled: Scaled) -> str:
    """The runtime, and the settings that are the same at all places."""
    return " · ".join(text for text in (grid.runtime(scaled.runtime), scaled.settings) if text)


@style.look()
def picture(scaled: Scaled) -> Figure:
    """The main figure against the first dimension that varies, a curve for each combination of the others. Raises InputError where no point
    was measured."""
    points = [point for point in scaled.points if scaled.main in point.sizes]
    if not points:
        raise InputError("there is nothing to draw: no point was measured")
    drawn = _drawn(scaled, points)
    size = grid.choose_unit(BYTES, [drawn.high_bytes, drawn.limit_bytes or 0])
    sheet = Sheet(
        f"{scaled.main} by {scaled.source}" if scaled.simulated else f"{scaled.main} as a law",
        " · ".join(text for text in (title(scaled), _drawn_as(scaled)) if text),
        {scaled.model: _ABOVE + _HIGH + _BELOW},
        finding=_finding(scaled),
        legend=_legend(drawn),
        remarks=_remarks(drawn),
    )
    wide = sheet.width - _LEFT - _RIGHT
    axes = sheet.axes(_LEFT, _ABOVE, wide, _HIGH)
    curves = [_curve(axes, drawn, others, size, _COLOURS[place]) for place, others in enumerate(drawn.curves)]
    top = max([drawn.high_bytes, *(most for _, most in curves)])
    bottom = min([*(point.sizes[scaled.main] for point in drawn.points), *(least for least, _ in curves)])
    for point in drawn.points:
        _point(axes, drawn, point, size)
    for prediction in drawn.predictions:
        heights = np.array([prediction.low_bytes, prediction.high_bytes]) / size.size
        axes.plot([prediction.at[drawn.name]] * 2, heights, color=style.INK, linewidth=1.1, marker="_", markersize=7, zorder=3.4)
        axes.plot([prediction.at[drawn.name]], [prediction.bytes / size.size], zorder=3.5, **_PREDICTED)
    top = max([top, *(prediction.bytes for prediction in drawn.predictions), drawn.limit_bytes or 0])
    # A wide interval far beyond the measured range would leave no room for the law.
    highest = [top, *(min(prediction.high_bytes, 1.5 * top) for prediction in drawn.predictions)]
    lowest = [bottom, *(prediction.low_bytes for prediction in drawn.predictions), *([drawn.limit_bytes] if drawn.limit_bytes else [])]
    low, high = _limits(min(lowest), max(highest))
    axes.set_ylim(low / size.size, high / size.size)
    edge = 0.04 * (drawn.ends[1] - drawn.ends[0]) or 0.5
    axes.set_xlim(drawn.ends[0] - edge, drawn.ends[1] + edge)
    places = [point.at[drawn.name] for point in drawn.unmeasured if point.at[drawn.name] <= drawn.ends[1]]
    if places:
        axes.plot(places, [low / size.size] * len(places), clip_on=False, zorder=7, **_UNMEASURED)
    if drawn.limit_bytes:
        _limit(axes, drawn, drawn.limit_bytes / size.size, wide)
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel(label(drawn.name, wide, style.BODY), labelpad=2)
    axes.set_ylabel(f"{size.caption(label(scaled.main, 1.0, style.BODY))}{', the axis does not begin at 0' if low else ''}")
    return sheet.figure


class _Drawn(Struct, frozen=True):
    """What is in the picture. name: the dimension along the axis. ends: of the axis; high_bytes: the most that has to be seen. curves: the values of
    the other dimensions, each with a law of its own. Then the points, the places that could not be measured, the predictions, and the largest
    values that fit; left_out: sentences on what has no room."""

    scaled: Scaled
    name: str
    ends: tuple[int, int]
    high_bytes: float
    curves: Sequence[_Others]
    points: Sequence[PlaceRun]
    unmeasured: Sequence[PlaceRun]
    predictions: Sequence[Prediction]
    largest: Sequence[Within]
    left_out: Sequence[str]

    @property
    def limit_bytes(self) -> int | None:
        """The limit, None without a limit, or with one far above everything drawn."""
        limit = self.scaled.within_bytes
        return limit if limit is not None and limit <= _HIGHEST * self.high_bytes else None

    def named(self, others: _Others) -> set[int]:
        """The places on a curve at which a size is drawn or named, and the largest value that fits."""
        every = [*(point.at for point in self.points), *(prediction.at for prediction in self.predictions)]
        values = {int(at[self.name]) for at in every if _others(at, self.name) == others}
        values |= {row.value or 0 for row in self.largest if _others(row.others, self.name) == others}
        return {value for value in values if self.ends[0] <= value <= self.ends[1]}

    def look(self, at: Coordinates) -> dict[str, Any]:
        """Colour and marker of a measured place."""
        others = _others(at, self.name)
        if others not in self.curves:
            return _ELSEWHERE
        place = self.curves.index(others)
        return {"color": _COLOURS[place], "marker": _MARKERS[place], "markersize": 6, "linestyle": "none"}


def _drawn(scaled: Scaled, points: Sequence[PlaceRun]) -> _Drawn:
    name = next(iter(points[0].at))
    fitted = [point for point in points if not point.held_out] or points
    farthest = _FARTHEST * max(point.at[name] for point in fitted)
    far = [point for point in points if point.at[name] > farthest]
    near = [point for point in points if point.at[name] <= farthest]
    seen = [prediction for prediction in scaled.predictions if prediction.at[name] <= farthest]
    seen += _unasked(scaled, name, farthest)
    unseen = [prediction for prediction in scaled.predictions if prediction.at[name] > farthest]
    counts = Counter(_others(point.at, name) for point in fitted)
    asked = [others for others in dict.fromkeys(_others(prediction.at, name) for prediction in seen) if others not in counts]
    every = [*asked[: _MOST_CURVES // 2], *sorted(counts, key=lambda others: -counts[others])]
    curves = sorted(every[:_MOST_CURVES])
    rows = [row for row in scaled.within if row.dimension == name and row.value and _others(row.others, name) in curves]
    largest = [row for row in rows if (row.value or 0) <= farthest]
    values = [*(point.at[name] for point in near), *(int(prediction.at[name]) for prediction in seen), *(row.value or 0 for row in largest)]
    left_out = [
        *([f"Not drawn: {counted(len(far), 'point')} beyond {name}={farthest}."] if far else []),
        *(f"Not drawn: {_said_of(prediction, scaled.main)}." for prediction in unseen),
    ]
    return _Drawn(
        scaled,
        name,
        (min(values), max(values)),
        max([*(point.sizes[scaled.main] for point in near), *(prediction.bytes for prediction in seen)]),
        curves,
        near,
        [point for point in scaled.points if point.ended and scaled.main not in point.sizes],
        seen,
        largest,
        left_out,
    )


def _unasked(scaled: Scaled, name: str, farthest: int) -> list[Prediction]:
    """The places below the largest that fit where most is needed, as the text has them, but for those that were predicted or measured."""
    known = [dict(at) for at in (*(prediction.at for prediction in scaled.predictions), *(point.at for point in scaled.points))]
    most = [row.most for row in scaled.within if row.most is not None and row.dimension == name and not scaled.undecided]
    return [prediction for prediction in most if prediction.at[name] <= farthest and dict(prediction.at) not in known]


def _limits(lowest: float, highest: float) -> tuple[float, float]:
    """The ends of the axis of memory, in bytes: from 0, unless that would leave two thirds of the picture empty."""
    begin = lowest if lowest > highest * 2 / 3 else 0.0
    edge = 0.06 * (highest - begin) or 0.06 * highest
    return max(begin - edge, 0.0) if begin else 0.0, highest + edge


def _finding(scaled: Scaled) -> str:
    """The law, where there is room for it."""
    law = scaled.law
    if scaled.undecided or law is None:
        return f"{scaled.model}: {'the law is undecided' if scaled.undecided else f'no simple law holds for {scaled.main}'}"
    if scaled.simulated:
        return arena_sizes(scaled)
    return formula(scaled, law) if _short(formula(scaled, law)) else ""


def _drawn_as(scaled: Scaled) -> str:
    """Whose curve it is, if it is not that of the law in the title."""
    law = scaled.law
    if scaled.undecided or law is None or scaled.simulated:
        return ""
    return "" if _short(formula(scaled, law)) else "the law below"


def _law_below(scaled: Scaled) -> list[str]:
    law = scaled.law
    if law is None or scaled.undecided:
        return []
    said = formula(scaled, law)
    if scaled.simulated:
        return [f"The nearest sum without {'these plans' if law.planned else 'steps'}: {said}."]
    return ([] if _short(said) else [f"{said}."]) + (["The arena's steps are around the law."] if law.steps else [])


def _short(text: str) -> bool:
    return width(text, style.SMALL) <= _MOST_INCHES_OF_LAW


def _said_of(prediction: Prediction, main: str) -> str:
    place = ", ".join(f"{name}={format_number(value)}" for name, value in prediction.at.items())
    low, high = format_bytes(prediction.low_bytes), format_bytes(prediction.high_bytes)
    return f"{main} at {place}, predicted as {format_bytes(prediction.bytes)}, with 95% {low} to {high}"


def _remarks(drawn: _Drawn) -> list[str]:
    scaled = drawn.scaled
    said = [f"Undecided: {scaled.undecided}."] if scaled.undecided else [*_law_below(scaled), *refuted(scaled)]
    said += [f"Not measured: {words_of(point.at)}: {point.ended}." for point in drawn.unmeasured]
    said += drawn.left_out
    if scaled.within_bytes and not drawn.limit_bytes:
        said.append(f"The limit of {format_bytes(scaled.within_bytes)} lies above the picture.")
    return said + [passing(change) for change in scaled.changes if change.dimension == drawn.name]


def _others(at: Coordinates, name: str) -> _Others:
    return tuple(sorted((other, int(value)) for other, value in at.items() if other != name))


def _curve(axes: Axes, drawn: _Drawn, others: _Others, size: Unit, colour: str) -> tuple[float, float]:
    """The law along the axis: solid where it was measured, dashed beyond. The least and the most that has to be seen of it, in bytes."""
    if drawn.scaled.law is None:
        return drawn.high_bytes, 0.0
    # An arena may need more in a narrow range: the curve goes through each place that the text or a point names.
    values = sorted({*(round(value) for value in np.linspace(*drawn.ends, _PLACES)), *drawn.named(others)})
    predictions = drawn.scaled.predict([{**dict(others), drawn.name: value} for value in values])
    x = np.array(values)
    measured = np.array([not prediction.beyond for prediction in predictions])
    middle = np.array([prediction.bytes for prediction in predictions]) / size.size
    low = np.array([prediction.low_bytes for prediction in predictions]) / size.size
    high = np.array([prediction.high_bytes for prediction in predictions]) / size.size
    axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    last = int(measured.sum())
    axes.plot(x[:last], middle[:last], color=colour, linewidth=1.3)
    axes.plot(x[max(last - 1, 0) :], middle[max(last - 1, 0) :], color=colour, linewidth=1.3, linestyle=_DASHED)
    most = max(max(prediction.bytes, min(prediction.high_bytes, _ROOM * prediction.bytes)) for prediction in predictions)
    return min(prediction.bytes for prediction in predictions), most


def _point(axes: Axes, drawn: _Drawn, point: PlaceRun, size: Unit) -> None:
    look = drawn.look(point.at)
    x, height = point.at[drawn.name], point.sizes[drawn.scaled.main]
    axes.plot([x], [height / size.size], zorder=4, **{**look, **(_HELD_OUT if point.held_out else {})})
    if point.least:
        axes.annotate("at least", (x, height / size.size), (0, 6), textcoords="offset points", fontsize=style.SMALL)


def _limit(axes: Axes, drawn: _Drawn, height: float, wide: float) -> None:
    """The limit, and on it the largest values that fit, each with a line down."""
    axes.axhline(height, **_LIMIT)
    rows = sorted(((row.value or 0, drawn.look(row.others)["color"]) for row in drawn.largest), key=lambda row: row[0])
    texts = [f"{value:,}" for value, _ in rows]
    begin, end = axes.get_xlim()
    middles = [(value - begin) / (end - begin) * wide for value, _ in rows]
    lefts = apart(middles, [width(text, style.SMALL) + 0.1 for text in texts], 0.0, wide)
    for (value, colour), text, left in zip(rows, texts, lefts, strict=True):
        axes.plot([value] * 2, [axes.get_ylim()[0], height], color=colour, linewidth=0.8, linestyle=":", zorder=3)
        axes.plot([value], [height], zorder=6, **{**_LARGEST, "color": colour})
        place = (begin + left / wide * (end - begin), height)
        axes.annotate(text, place, (0, 5), textcoords="offset points", ha="center", fontsize=style.SMALL)


def _legend(drawn: _Drawn) -> list[LegendEntry]:
    scaled = drawn.scaled
    entries = []
    for place, others in enumerate(drawn.curves):
        words = ", ".join(f"{name}={value}" for name, value in others) or "measured"
        measured = any(_others(point.at, drawn.name) == others for point in drawn.points)
        line = {"color": _COLOURS[place], **({"marker": _MARKERS[place], "markersize": 6} if measured else {"linewidth": 1.3})}
        line |= {} if scaled.law else {"linestyle": "none"}
        entries.append(LegendEntry(shortened(readable(words), _MOST_INCHES, style.SMALL), line=line))
    if any(_others(point.at, drawn.name) not in drawn.curves for point in drawn.points):
        names = " and ".join(name for name, _ in drawn.curves[0])
        entries.append(LegendEntry(f"at other values of {shortened(readable(names), _MOST_INCHES, style.SMALL)}", line=_ELSEWHERE))
    if any(point.held_out for point in drawn.points):
        entries.append(LegendEntry("not fitted", line={"linestyle": "none", "marker": "o", **_HELD_OUT}))
    if drawn.unmeasured:
        entries.append(LegendEntry("not measured", line=_UNMEASURED))
    if scaled.law is not None:
        entries.append(LegendEntry(f"95% of {scaled.source}", fill=style.Fill("#DCE9F4")))
        corners = [{**dict(others), drawn.name: end} for others in drawn.curves for end in drawn.ends]
        if any(prediction.beyond for prediction in scaled.predict(corners)):
            entries.append(LegendEntry("beyond the measured range", line={"linestyle": _DASHED, "linewidth": 1.3}))
    if drawn.predictions:
        entries.append(LegendEntry("predicted, with 95%", line=_PREDICTED))
    if drawn.limit_bytes:
        entries.append(LegendEntry(f"limit {format_bytes(drawn.limit_bytes)}", line=_LIMIT))
        if drawn.largest:
            entries.append(LegendEntry("largest that fits", line=_LARGEST))
    return entries
