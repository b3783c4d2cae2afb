"""Metrics over a sweep of thread counts: one line per variant, medians over repeats, bars from the smallest to the largest repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from msgspec import Struct

from memprof.base.errors import InputError
from memprof.records import metrics, summary
from memprof.records.metrics import Metric
from memprof.records.modes import middle
from memprof.records.types import Run

from ..rows import phase_of
from ..tables import headline
from ..tables.grid import Unit
from . import choosing, lettering, style
from .sheet import LegendEntry, Sheet

DEFAULT_METRICS = ("rss_peak_bytes", "time_ns")
_HIGH, _LEFT, _BETWEEN, _TITLE, _BELOW = 2.9, 0.62, 0.72, 0.24, 0.36
_NAME_INCHES = 9.2  # a line of the legend
_MOST_LINES = 40


class ThreadSeries(Struct, frozen=True):
    """A variant of a model on a machine: its runs by thread count, None for the runtime's choice."""

    model: str
    name: str
    runs: Mapping[int | None, list[Run]]


@style.look()
def render(runs: Sequence[Run], names: Sequence[str] = (), *, phase: str | None = None) -> Figure:
    """The picture of these runs: one panel per metric, and one line of panels per model.

    phase: PEAK for RSS peaks and EXECUTE for other metrics where None. Raises UsageError for an unknown metric, InputError where no variant was
    measured with several thread counts or nothing of this was measured.
    """
    wanted = [metrics.metric(name) for name in (names or DEFAULT_METRICS)]
    choosing.need_success(runs)
    series = _series(runs)
    if all(len(line.runs) < 2 for line in series):
        raise InputError("these runs hold no sweep: each variant has one thread count; `memprof run --threads 1,2,4` measures several")
    counts = sorted({count for line in series for count in line.runs}, key=lambda count: count or 0)
    models = list(dict.fromkeys(line.model for line in series))
    names = list(dict.fromkeys(line.name for line in series))
    remarks = choosing.remarks(summary.groups(runs), max(len(names) - _MOST_LINES, 0))
    if len(names) > _MOST_LINES:
        names = names[:_MOST_LINES]
        series = [line for line in series if line.name in names]
    every = [group for line in series for group in line.runs.values()]
    units = {
        metric.name: choosing.unit(metric, phase, [value for group in every for value in choosing.values(group, metric, phase)])
        for metric in wanted
    }
    legend = [LegendEntry(text, line=_look(index)) for index, text in enumerate(lettering.distinct(names, _NAME_INCHES, style.SMALL))]
    if any(not run.outcome.ok for run in runs):
        legend.append(LegendEntry("failed", line={"marker": "X", "color": style.FAILED, "markersize": 7, "linestyle": "none"}))
    heights = dict.fromkeys(models, _TITLE + _HIGH + _BELOW)
    sheet = Sheet("Thread sweep", choosing.conditions(runs), heights, finding=headline.of_picture(runs), legend=legend, remarks=remarks)
    wide = min(5.2, (sheet.width - _LEFT - 0.15 - _BETWEEN * (len(wanted) - 1)) / len(wanted))
    for model in models:
        for column, metric in enumerate(wanted):
            axes = sheet.axes(_LEFT + column * (wide + _BETWEEN), sheet.tops[model] + _TITLE, wide, _HIGH)
            lines = {names.index(line.name): line for line in series if line.model == model}
            _panel(axes, lines, counts, metric, phase, units[metric.name])
    return sheet.figure


def _series(runs: Sequence[Run]) -> list[ThreadSeries]:
    several_machines = len({run.machine.name for run in runs}) > 1
    by_line: dict[tuple[str, str], dict[int | None, list[Run]]] = {}
    for run in runs:
        name = f"{run.job.heading}, {run.machine.name}" if several_machines else run.job.heading
        by_line.setdefault((run.job.model.name, name), {}).setdefault(run.job.threads, []).append(run)
    return [ThreadSeries(model, name, by_threads) for (model, name), by_threads in by_line.items()]


def _look(index: int) -> dict[str, Any]:
    return {**style.line(index), "markersize": 6.5, "linewidth": 1.4}


def _panel(
    axes: Axes, series: Mapping[int, ThreadSeries], counts: Sequence[int | None], metric: Metric, phase: str | None, unit: Unit
) -> None:
    step = min(0.07, 0.5 / len(series))
    for place, (index, line) in enumerate(series.items()):
        shift = (place - (len(series) - 1) / 2) * step  # or equal values would hide one another
        points = [
            (counts.index(count) + shift, values)
            for count in counts
            if (values := choosing.values(line.runs.get(count, []), metric, phase))
        ]
        xs = [x for x, _ in points]
        middles = [middle(values) / unit.size for _, values in points]
        look = _look(index)
        lows, highs = [min(values) / unit.size for _, values in points], [max(values) / unit.size for _, values in points]
        axes.vlines(xs, lows, highs, color=look["color"], linewidth=1.0)
        axes.plot(xs, middles, **look, markeredgecolor="white", markeredgewidth=0.5)
        lost = [counts.index(count) + shift for count, group in line.runs.items() if not choosing.values(group, metric, phase)]
        axes.plot(lost, [0] * len(lost), linestyle="none", marker="X", color=style.FAILED, markersize=7, clip_on=False, zorder=5)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.03)
    axes.set_xlim(-0.5, len(counts) - 0.5)
    axes.set_xticks(range(len(counts)), [str(count) if count else "default" for count in counts])
    axes.set_xlabel("threads", labelpad=1)
    axes.yaxis.set_major_locator(MaxNLocator(6, min_n_ticks=2))
    axes.grid(axis="y")
    where = phase_of(metric, phase, [run for line in series.values() for group in line.runs.values() for run in group])
    title = unit.caption(metric.title + choosing.in_phase(where))
    axes.set_title(lettering.label(title, 5.0), fontsize=style.BODY, fontweight="bold", loc="left", pad=5)
