"""The figures of the page that stand in HTML: the tables of each metric, and the bars of each phase's peak. page.js chooses which are seen."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct

from memprof.records import metrics, summary
from memprof.records.metrics import BYTES, METRICS
from memprof.records.modes import middle
from memprof.records.types import PEAK, Run

from .. import rows
from ..short_names import distinct
from ..tables import grid, missing
from ..tables.grid import TextTable, Unit
from ..tables.table import ReportTables

_PEAK = METRICS["rss_peak_bytes"]
_MOST_LETTERS = 40  # in a chip
_LEAST = 0.004  # of the longest bar: what is shorter cannot be seen


class Choice(Struct, frozen=True):
    """The table of a metric, as measured or above the baseline."""

    metric: str
    above: bool
    table: TextTable


class BarPart(Struct, frozen=True):
    """A part of a bar: its class in the style sheet, its length as a percentage of the longest bar, and its words."""

    kind: str
    length: float
    words: str


class PeakBar(Struct, frozen=True):
    """The RSS peak of a variant in a phase, lengths as percentages of the longest bar.

    value, spread, where: the median over the repeats, the distance to the farthest, and the phase of the peak of all. ground: the baseline.
    low, high: the range of the repeats, None where it is too short to be seen. why: the reason if there is no figure.
    """

    label: str
    value: str = ""
    spread: str = ""
    where: str = ""
    parts: tuple[BarPart, ...] = ()
    ground: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


class Figures(Struct, frozen=True):
    """Of a model: the names of its groups, its tables with their notes, the tables of iterations, and by phase, the highest of all first, a bar
    for each group."""

    labels: tuple[str, ...]
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]
    iterations: tuple[TextTable, ...]
    bars: dict[str, tuple[PeakBar, ...]]

    @property
    def chips(self) -> tuple[tuple[str, str], ...]:
        """Each name, and what of it fits into a chip; names that differ are different there too."""
        return tuple(zip(self.labels, distinct(self.labels, _MOST_LETTERS), strict=True))


def figures(runs: Sequence[Run]) -> Figures:
    """The figures of these runs of a model, rows in the order of their groups."""
    groups, measured, above = summary.groups(runs), ReportTables(), ReportTables(above=True)
    choices = [Choice(name, False, each) for name, metric in METRICS.items() for each in measured.of_metric(metric, groups)]
    choices += [Choice(name, True, each) for name, metric in METRICS.items() if metric.baseline for each in above.of_metric(metric, groups)]
    notes = measured.notes(groups, list(METRICS.values()))
    return Figures(tuple(rows.named(groups).values()), tuple(choices), tuple(notes), tuple(measured.of_iterations(groups)), _bars(runs))


def _bars(runs: Sequence[Run]) -> dict[str, tuple[PeakBar, ...]]:
    groups = summary.groups(runs)
    names = rows.named(groups)
    phases = [name for name in rows.columns(_PEAK, summary.phases(runs, failed=True)) if name != rows.BASELINE]
    bars = {}
    for phase in reversed(phases):
        largest = max(metrics.values(runs, phase, _PEAK), default=None)
        if largest is not None:
            unit = grid.choose_unit(BYTES, [largest])
            bars[phase] = tuple(_bar(names[key], group, phase, largest, unit) for key, group in groups.items())
    return bars


def _bar(label: str, runs: Sequence[Run], phase: str, largest: float, unit: Unit) -> PeakBar:
    peaks = metrics.values(runs, phase, _PEAK)
    if not peaks:
        return PeakBar(label, why=missing.why_absent(runs, phase, _PEAK))
    top = summary.peak_phases(runs) if phase == PEAK else None
    at = top.highest if top is not None else phase
    median = middle(peaks, BYTES)
    notes = [*missing.swapped(runs, phase), *missing.inexact(runs, phase)]
    grounds = [ground for run in runs if (ground := metrics.baseline(run, _PEAK)) is not None]
    visible = max(peaks) - min(peaks) > _LEAST * largest
    return PeakBar(
        label,
        # The first note begins with the sign of a peak that is not exact.
        value=f"{notes[0][0] if notes else ''}{unit.amount(median)}",
        spread=grid.spread(median / unit.size, [peak / unit.size for peak in peaks]).partition(" ")[2],
        where=top.highest if top is not None else "",
        parts=_parts(runs, at, largest, unit),
        ground=100 * statistics.median(grounds) / largest if grounds else None,
        low=100 * min(peaks) / largest if visible else None,
        high=100 * max(peaks) / largest if visible else None,
    )


def _parts(runs: Sequence[Run], phase: str, largest: float, unit: Unit) -> tuple[BarPart, ...]:
    """What the peak of a phase consists of: memory that the phase's end still has, and the rest, which was given back before it."""
    peak = middle(metrics.values(runs, phase, _PEAK), BYTES)
    anonymous, file, shared = (metrics.values(runs, phase, METRICS[f"{kind}_end_bytes"]) for kind in ("anon", "file", "shmem"))
    if not anonymous or not file:
        return (BarPart("anonymous", 100 * peak / largest, "the system does not say what it consists of"),)
    backed = min(peak, middle(file, BYTES) + (middle(shared, BYTES) if shared else 0))
    held = min(peak - backed, middle(anonymous, BYTES))
    parts = [("anonymous", held, "anonymous"), ("file", backed, "file-backed")]
    if peak - backed - held >= _LEAST * largest:
        parts.append(("transient", peak - backed - held, "given back by its end"))
    return tuple(BarPart(kind, 100 * size / largest, f"{unit.amount(size)} {words}") for kind, size, words in parts)
