"""Metrics over a sweep of thread counts: a line a variant, medians over repeats, bars from the smallest to the largest repeat."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memprof.errors import InputError
from memprof.runs import metrics, summary
from memprof.runs.metrics import Metric
from memprof.runs.records import Run

from ..tables.grid import Unit, choose_unit
from . import choosing, lettering, style
from .sheet import Entry, Sheet

DEFAULT_METRICS = ("rss_peak_bytes", "time_ns")
_HIGH, _LEFT, _BETWEEN, _TITLE, _BELOW = 2.9, 0.62, 0.72, 0.24, 0.36
_NAME_INCHES = 2.9
_MOST_LINES = 40


@dataclass(frozen=True)
class Series:
    """One variant of one model on one machine: its runs by thread count, None for the runtime's own choice."""

    model: str
    name: str
    runs: Mapping[int | None, list[Run]]


def render(runs: Sequence[Run], names: Sequence[str] = (), *, phase: str | None = None) -> Figure:
    """The picture of these runs: a panel a metric, and a line of panels a model.

    phase: PEAK for RSS peaks and EXECUTE for all else where None. Raises UsageError for an unknown metric, InputError where no variant was
    measured with several thread counts or nothing of this was measured.
    """
    wanted = [metrics.metric(name) for name in (names or DEFAULT_METRICS)]
    if not any(run.outcome.ok for run in runs):
        raise choosing.no_success(runs)
    series = _series(runs)
    if all(len(one.runs) < 2 for one in series):
        raise InputError("these runs hold no sweep: each variant has one thread count; `memprof run --threads 1,2,4` measures several")
    with style.look():
        return _render(runs, series, wanted, phase)


def _series(runs: Sequence[Run]) -> list[Series]:
    several_machines = len({run.machine.name for run in runs}) > 1
    found: dict[tuple[str, str], dict[int | None, list[Run]]] = {}
    for run in runs:
        name = f"{run.job.variant}, {run.machine.name}" if several_machines else run.job.variant
        found.setdefault((run.job.model.name, name), {}).setdefault(run.job.threads, []).append(run)
    return [Series(model, name, by_threads) for (model, name), by_threads in found.items()]


def _render(runs: Sequence[Run], series: Sequence[Series], wanted: Sequence[Metric], phase: str | None) -> Figure:
    counts = sorted({count for one in series for count in one.runs}, key=lambda count: count or 0)
    models = list(dict.fromkeys(one.model for one in series))
    names = list(dict.fromkeys(one.name for one in series))
    remarks = choosing.remarks(summary.groups(runs))
    if len(names) > _MOST_LINES:
        remarks.insert(0, f"{len(names) - _MOST_LINES} more variants are not drawn: --model and --variant choose")
        names = names[:_MOST_LINES]
        series = [one for one in series if one.name in names]
    units = {metric.name: choose_unit(metric.unit, _all_values(series, metric, phase)) for metric in wanted}
    legend = [Entry(text, line=_words(index)) for index, text in enumerate(lettering.distinct(names, _NAME_INCHES, style.SMALL))]
    if any(not run.outcome.ok for run in runs):
        legend.append(Entry("failed", line={"marker": "X", "color": style.FAILED, "markersize": 7, "linestyle": "none"}))
    several = len(models) > 1
    each = (0.24 if several else 0) + _TITLE + _HIGH + _BELOW
    title = "Thread sweep" if several else f"Thread sweep: {models[0]}"
    sheet = Sheet(title, choosing.conditions(runs), each * len(models), legend=legend, remarks=remarks)
    wide = min(5.2, (sheet.width - _LEFT - 0.15 - _BETWEEN * (len(wanted) - 1)) / len(wanted))
    for row, model in enumerate(models):
        top = row * each
        if several:
            sheet.text(0.15, top, lettering.label(model, 9.5, weight="bold"), weight="bold")
        for column, metric in enumerate(wanted):
            offset = top + (0.24 if several else 0) + _TITLE
            axes = sheet.axes(_LEFT + column * (wide + _BETWEEN), offset, wide, _HIGH)
            ours = {names.index(one.name): one for one in series if one.model == model}
            _panel(axes, ours, counts, metric, phase, units[metric.name])
    return sheet.figure


def _words(index: int) -> dict[str, object]:
    look = style.line(index)
    return {"color": look.colour, "linestyle": look.dash, "marker": look.marker, "markersize": 6.5, "linewidth": 1.4}


def _all_values(series: Sequence[Series], metric: Metric, phase: str | None) -> list[float]:
    found = [value for one in series for group in one.runs.values() for value in _values(group, metric, phase)]
    if not found:
        raise InputError(f"these runs have no {metric.name} in {choosing.phase_of(metric, phase)}")
    return found


def _values(group: Sequence[Run], metric: Metric, phase: str | None) -> list[float]:
    where = choosing.phase_of(metric, phase)
    return [value for run in group if (value := metrics.value(run, where, metric)) is not None]


def _panel(axes: Axes, series: Mapping[int, Series], counts: Sequence[int | None], metric: Metric, phase: str | None, unit: Unit) -> None:
    step = min(0.07, 0.5 / len(series))
    for place, (index, one) in enumerate(series.items()):
        shift = (place - (len(series) - 1) / 2) * step  # or equal values would hide one another
        found = [(counts.index(count) + shift, values) for count in counts if (values := _values(one.runs.get(count, []), metric, phase))]
        xs = [x for x, _ in found]
        middles = [statistics.median(values) / unit.size for _, values in found]
        look = style.line(index)
        lows, highs = [min(values) / unit.size for _, values in found], [max(values) / unit.size for _, values in found]
        axes.vlines(xs, lows, highs, color=look.colour, linewidth=1.0)
        axes.plot(xs, middles, **_words(index), markeredgecolor="white", markeredgewidth=0.5)  # type: ignore[arg-type]
        lost = [counts.index(count) + shift for count, group in one.runs.items() if not _values(group, metric, phase)]
        axes.plot(lost, [0] * len(lost), linestyle="none", marker="X", color=style.FAILED, markersize=7, clip_on=False, zorder=5)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.03)
    axes.set_xlim(-0.5, len(counts) - 0.5)
    axes.set_xticks(range(len(counts)), [str(count) if count else "default" for count in counts])
    axes.set_xlabel("threads", labelpad=1)
    axes.yaxis.set_major_locator(MaxNLocator(6, min_n_ticks=2))
    axes.grid(axis="y")
    axes.tick_params(length=2.5)
    where = choosing.phase_of(metric, phase)
    said = unit.caption(metric.title + choosing.in_phase(where))
    axes.set_title(lettering.label(said, 5.0), fontsize=style.BODY, fontweight="bold", loc="left", pad=5)
