"""The parts of a resident set, phase by phase, as stacked bars."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memprof.errors import InputError
from memprof.explain.records import SLICES, Explanation, Phase
from memprof.runs.metrics import BYTES

from ..fills import Fill
from ..tables.explain import FILLS, headline, lead, short, title, warned
from ..tables.grid import choose_unit, number
from . import lettering, placing, style
from .sheet import Entry, Sheet

_TRANSIENT = Fill("#FFFFFF", "....", "#333333")


def draw(explanation: Explanation) -> Figure:
    """The waterfall of each phase: a stacked bar a look, and above it how much higher the phase's peak was. Raises InputError."""
    if not explanation.phases:
        raise InputError("the child was never looked at, so there is no waterfall to draw")
    with style.look():
        return _draw(explanation)


def _draw(explanation: Explanation) -> Figure:
    names = [name for name in SLICES if any(phase.size(name) > 0.003 * phase.rss_bytes for phase in explanation.phases)]
    transients = {phase.name: phase.transient_bytes for phase in explanation.measured}
    shown = any(transients.get(phase.name, 0) > 0.01 * phase.rss_bytes for phase in explanation.phases)
    legend = [Entry(name, fill=FILLS[name]) for name in names]
    if shown:
        legend.append(Entry("its peak above its end", fill=_TRANSIENT))
    row, wide = 0.46, 10.0
    sheet = Sheet(
        f"What the resident set consists of: {title(explanation)}",
        lead(explanation),
        len(explanation.phases) * row + 0.45,
        legend=legend,
        remarks=[
            *warned(explanation),
            *(f"{place}. {headline(finding)}" for place, finding in enumerate(explanation.findings[:3], 1)),
        ],
        width=wide,
    )
    heads = [lettering.label(short(phase.name), 1.7) for phase in explanation.phases]
    indent = max(lettering.width(head) for head in heads) + 0.3
    tops = [phase.rss_bytes + (0 if "/" in phase.name else transients.get(phase.name, 0)) for phase in explanation.phases]
    unit = choose_unit(BYTES, tops)
    axes = sheet.axes(indent, 0.05, wide - indent - 0.2, len(explanation.phases) * row)
    limit = max(tops) / unit.size / (1 - 0.62 / (wide - indent - 0.2))
    axes.set_xlim(0, limit)
    axes.set_ylim(len(explanation.phases) - 0.5, -0.5)
    axes.set_yticks(range(len(explanation.phases)), heads)
    axes.tick_params(axis="y", length=0, labelsize=style.BODY)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(axis="x")
    axes.set_xlabel(unit.caption("resident"), labelpad=2)
    for place, phase in enumerate(explanation.phases):
        _stack(axes, place, phase, names, unit.size, limit, 0 if "/" in phase.name else transients.get(phase.name, 0), wide - indent - 0.2)
    return sheet.figure


def _stack(axes, place: int, phase: Phase, names: Sequence[str], unit: float, limit: float, above: int, inches: float) -> None:  # type: ignore[no-untyped-def]
    left = 0.0
    for name in names:
        size = phase.size(name) / unit
        if size <= 0:
            continue
        axes.barh(place, size, 0.72, left=left, **FILLS[name].words())
        text = number(size)
        if size / limit * inches > lettering.width(text, style.SMALL) + 0.1:
            axes.text(left + size / 2, place, text, ha="center", va="center", size=style.SMALL, bbox=placing.backing())
        left += size
    if above > 0.01 * phase.rss_bytes:
        axes.barh(place, above / unit, 0.72, left=left, **{**_TRANSIENT.words(), "linestyle": "--"})
        left += above / unit
    total = number(phase.rss_bytes / unit) + (f" (peak {number(left)})" if above > 0.01 * phase.rss_bytes else "")
    fits = (limit - left) / limit * inches > lettering.width(total, style.SMALL, "bold") + 0.08
    side = {"ha": "left"} if fits else {"ha": "right", "bbox": placing.backing()}
    axes.annotate(
        total, (left, place), (4 if fits else -4, 0), textcoords="offset points", va="center", size=style.SMALL, weight="bold", **side
    )
