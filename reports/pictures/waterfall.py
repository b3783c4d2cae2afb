"""The parts of a resident set, phase by phase, as stacked bars."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memprof.base.errors import InputError
from memprof.base.units import capitalised
from memprof.explain.records import Explanation, PhaseLook
from memprof.records.metrics import BYTES

from ..fills import Fill
from ..tables.explain import FILLS, headline, heads, lead, title, visible, warned
from ..tables.grid import choose_unit, number
from . import lettering, style
from .sheet import LegendEntry, Sheet

_TRANSIENT = Fill("#FFFFFF", "....", "#333333")


@style.look()
def draw(explanation: Explanation) -> Figure:
    """The waterfall of each phase: a stacked bar a look, and above it how much higher the phase's peak was. Raises InputError."""
    if not explanation.phases:
        raise InputError("the child was never looked at, so there is no waterfall to draw")
    names = visible(explanation)
    above = [_above(phase, explanation) for phase in explanation.phases]
    legend = [LegendEntry(name, fill=FILLS[name]) for name in names]
    if any(above):
        legend.append(LegendEntry("the phase's peak above its end", fill=_TRANSIENT))
    found = [headline(finding, explanation.peak_bound_bytes) for finding in explanation.findings]
    row = 0.46
    sheet = Sheet(
        "What the resident set consists of",
        lead(explanation),
        {title(explanation): len(explanation.phases) * row + 0.45},
        finding=capitalised(found[0]) if found else "",
        legend=legend,
        remarks=[
            *warned(explanation),
            *(f"{place}. {text}" for place, text in enumerate(found[1:3], 2)),
        ],
    )
    labels = [lettering.label(head, 1.7) for head in heads(explanation, explanation.phases)]
    indent = max(lettering.width(label) for label in labels) + 0.3
    tops = [phase.whole_bytes + more for phase, more in zip(explanation.phases, above, strict=True)]
    unit = choose_unit(BYTES, tops)
    totals = [_total(phase, more, unit.size) for phase, more in zip(explanation.phases, above, strict=True)]
    inches = sheet.width - indent - 0.2
    axes = sheet.axes(indent, 0.05, inches, len(explanation.phases) * row)
    # The axis is so long that each bar's total has room on its right.
    rooms = [min(lettering.width(total, style.SMALL, "bold") + 0.08, inches / 2) for total in totals]
    limit = max(top / unit.size / (1 - room / inches) for top, room in zip(tops, rooms, strict=True))
    axes.set_xlim(0, limit)
    axes.set_ylim(len(explanation.phases) - 0.5, -0.5)
    axes.set_yticks(range(len(explanation.phases)), labels)
    axes.tick_params(axis="y", length=0, labelsize=style.BODY)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(axis="x")
    axes.set_xlabel(unit.caption("resident"), labelpad=2)
    for place, (phase, more, total) in enumerate(zip(explanation.phases, above, totals, strict=True)):
        left = _stack(axes, place, phase, names, unit.size, more, inches / limit)
        axes.annotate(total, (left, place), (4, 0), textcoords="offset points", va="center", size=style.SMALL, weight="bold")
    return sheet.figure


def _total(phase: PhaseLook, above: int, unit: float) -> str:
    """The text beside a bar."""
    peak = f" (peak {number((phase.rss_bytes + above) / unit)})" if above else ""
    return f"{number(phase.rss_bytes / unit)}{peak}{f' and {number(phase.device_bytes / unit)}' if phase.device_bytes else ''}"


def _above(phase: PhaseLook, explanation: Explanation) -> int:
    """How much higher the phase's peak was than this look, in bytes; 0 for less than 1%, for a look near the peak, and where that has a bar."""
    transients = {figures.name: figures.transient_bytes for figures in explanation.measured}
    more = 0 if explanation.phase(f"{phase.name}/peak") is not None else transients.get(phase.name, 0)
    return more if more > 0.01 * phase.rss_bytes else 0


def _stack(axes: Axes, place: int, phase: PhaseLook, names: Sequence[str], unit: float, above: int, inches: float) -> float:
    """One bar and where it ends; inches are those of one unit on the axis."""
    left = 0.0
    for name in names:
        size = phase.size(name) / unit
        if size <= 0:
            continue
        axes.barh(place, size, 0.72, left=left, **FILLS[name].words())
        text = number(size)
        if size * inches > lettering.width(text, style.SMALL) + 0.1:
            axes.text(left + size / 2, place, text, ha="center", va="center", size=style.SMALL, bbox=style.backing())
        left += size
    if above:
        axes.barh(place, above / unit, 0.72, left=left, **{**_TRANSIENT.words(), "linestyle": "--"})
        left += above / unit
    return left
