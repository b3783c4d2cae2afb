"""Memory over units of work: the curves of the processes, the warm-up, the line of the rise, and the verdict in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from memprof.base.errors import InputError
from memprof.growth.grow.grow import GrowthAnswer
from memprof.growth.grow.kinds import Kind, kind_of
from memprof.records import store, work
from memprof.records.metrics import BYTES
from memprof.records.types import COMMAND, Run
from memprof.verdicts import growth
from memprof.verdicts.growth import Series, Verdict

from ..tables import grid
from ..tables.grid import Unit
from ..tables.growth import words
from . import style
from .sheet import LegendEntry, Sheet, heading_height

_LEFT, _RIGHT, _ABOVE, _PANEL, _BETWEEN, _BELOW = 0.85, 0.25, 0.12, 2.2, 0.5, 0.45
_FITTED: dict[str, Any] = {"color": "#009E73", "linestyle": (0, (5, 2)), "linewidth": 1.4, "marker": ""}


def picture(grown: GrowthAnswer) -> Figure:
    """The last round of `memprof grow`."""
    return render([run for kind in grown.kinds for run in kind.runs] or grown.runs)


def render(runs: Sequence[Run]) -> Figure:
    """A panel for each model, variant and kind of inputs, all on one scale. Raises InputError if no run followed its memory."""
    return draw(panels(runs))


def panels(runs: Sequence[Run]) -> list[Panel]:
    """The last round of each model, variant and kind of inputs, judged. Raises InputError if no run followed its memory."""
    groups: dict[tuple[str, str, Kind], list[Run]] = {}
    for run in store.rounds_together(runs):
        if run.work:
            groups.setdefault((run.job.model.name, run.job.heading, kind_of(run.job.use)), []).append(run)
    if not groups:
        raise InputError("there is nothing to draw: no run followed its memory by units (memprof grow -o RUNS.jsonl keeps such runs)")
    variants = Counter((model, heading) for model, heading, _ in groups)
    return [
        Panel((model, heading), work.last_round(group), kind.words if variants[model, heading] > 1 else "")
        for (model, heading, kind), group in groups.items()
    ]


class Panel:
    """A model and variant: the curves of its processes, and the verdict on them. inputs: what they got, in words, where another panel has others."""

    def __init__(self, name: tuple[str, str], runs: Sequence[Run], inputs: str = "") -> None:
        self.model, self.variant = name
        self.inputs = inputs
        self.command = runs[0].job.runtime == COMMAND
        self.processes = [growth.series(work.curve_of(run), run.machine.page_bytes) for run in runs]
        self.verdict: Verdict = growth.judge(self.processes)
        self.unit = next(iter(self.processes[0].counts))

    @property
    def title(self) -> str:
        """The verdict in words."""
        who = self.variant if self.command and self.variant == self.model else f"{self.model} in {self.variant}"
        return f"{who}{f' with {self.inputs}' if self.inputs else ''}: {words(self.verdict)}"

    def risen(self, process: Series) -> list[int]:
        """Memory above that before the first unit."""
        return [size - process.rss[0] for size in process.rss]


@style.look()
def draw(panels: Sequence[Panel]) -> Figure:
    """Their picture."""
    sizes = [size for panel in panels for process in panel.processes for size in panel.risen(process)]
    unit = grid.choose_unit(BYTES, sizes)
    legend = [LegendEntry(f"process {place + 1}", line=_look(place)) for place in range(max(len(panel.processes) for panel in panels))]
    legend += [LegendEntry("the rise", line=_FITTED)] if any(panel.verdict.word == "grows" for panel in panels) else []
    legend += [LegendEntry("warm-up", fill=style.Fill(style.BAND))] if any(panel.verdict.warmup for panel in panels) else []
    headings = [heading_height(panel.title, style.SMALL) + 0.06 if len(panels) > 1 else 0.0 for panel in panels]
    content = _ABOVE + sum(headings) + len(panels) * (_PANEL + _BETWEEN) - _BETWEEN + _BELOW
    sheet = Sheet(
        "Memory over units of work",
        "resident and swapped memory after each unit, above that before the first",
        {"": content},
        finding=panels[0].title if len(panels) == 1 else "",
        legend=legend,
    )
    wide = sheet.width - _LEFT - _RIGHT
    room = max(max(sizes) - min(sizes), 1 << 20) * 0.08
    top = _ABOVE
    for heading, panel in zip(headings, panels, strict=True):
        if heading:
            sheet.heading(top, panel.title, style.SMALL)
        axes = sheet.axes(_LEFT, top + heading, wide, _PANEL)
        top += heading + _PANEL + _BETWEEN
        _draw(axes, panel, unit)
        axes.set_ylim((min(sizes) - room) / unit.size, (max(sizes) + room) / unit.size)
        axes.set_ylabel(unit.caption("rise of memory"))
        axes.yaxis.set_label_coords(-0.62 / wide, 0.5)
        axes.set_xlabel(f"{panel.unit}s", labelpad=2)
    most = max(process.counts[panel.unit][-1] for panel in panels for process in panel.processes)
    for axes in sheet.figure.axes:
        axes.set_xlim(0, most * 1.01)
    return sheet.figure


def _look(place: int) -> dict[str, Any]:
    return {**style.line(place), "linewidth": 1.2, "marker": ""}


def _draw(axes: Axes, panel: Panel, unit: Unit) -> None:
    verdict = panel.verdict
    if verdict.warmup:
        axes.axvspan(0, verdict.warmup, color=style.BAND, linewidth=0, zorder=0)
    for place, process in enumerate(panel.processes):
        axes.plot(process.counts[panel.unit], [value / unit.size for value in panel.risen(process)], **_look(place))
    if verdict.word == "grows":
        process = panel.processes[0]
        count = process.counts.get(verdict.unit, process.counts[panel.unit])
        first = next(place for place, done in enumerate(process.counts[panel.unit]) if done >= verdict.warmup)
        ends = (first, len(count) - 1)
        # Through the middle of the curve: a step at the tail's begin is none of the rise.
        height = np.median(np.subtract(panel.risen(process)[first:], verdict.slope * np.asarray(count[first:])))
        rise = [height + verdict.slope * count[end] for end in ends]
        axes.plot([process.counts[panel.unit][end] for end in ends], [value / unit.size for value in rise], **_FITTED)
    axes.grid(axis="y")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
