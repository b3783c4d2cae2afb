"""A plan of a model beside measurements of it: a section of the tables and of the page."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from memprof.base.units import format_bytes
from memprof.plan.analysis import Analysis
from memprof.plan.measured import Measured, Shapes, shapes_text
from memprof.records import metrics, summary
from memprof.records.types import EXECUTE, MODEL_LOAD, PREPARE, STARTUP, WARMUP, Run

from ..rows import named
from . import grid
from .grid import Section, TextTable, Unit
from .plan import SCRATCH, sentence


def beside(runs: Sequence[Run], plans: Sequence[Measured]) -> Section | None:
    """Planned activations beside the measured phases of these runs of one model, a table for each of its plans.

    Where nothing could be planned there are notes alone, which say why. None without plans, and for programs, which have no graph.
    """
    if not plans or not any(run.job.model.files or run.imported for run in runs):
        return None
    tables, notes = [], []
    for plan in plans:
        rows, unit = _phases([run for run in runs if plan.of(run)], summary.groups(runs))
        if plan.analysis is not None and rows:
            tables.append(_table(plan.analysis, plan.shapes, rows, unit))
            notes += _notes(plan.analysis)
    if tables:
        notes = [
            "Planned without running it: the weights that stay after constant folding, and the peak of tensors in the model's order.",
            "Measured: resident memory above the runtime with no model loaded, at the end of MODEL_LOAD and PREPARE, and at the peak of "
            "WARMUP and EXECUTE.",
            SCRATCH,
            *notes,
        ]
    notes += [f"Not planned: {plan.why}." for plan in plans if plan.why]
    return Section("", tuple(tables), tuple(dict.fromkeys(notes)))


def _table(analysis: Analysis, shapes: Shapes, rows: Sequence[tuple[str, tuple[float | None, ...]]], unit: Unit) -> TextTable:
    peak, weights = analysis.chosen.peak_bytes, analysis.weights.held.bytes
    least = "at least " if analysis.unsized else ""
    lines = [
        (
            name,
            unit.cell(weights),
            least + unit.cell(peak),
            unit.cell(weights + peak),
            *map(unit.cell, values),
        )
        for name, values in rows
    ]
    header = ("variant", "weights, planned", "tensors, planned", "together", "after MODEL_LOAD", "after PREPARE", "peak of EXECUTE")
    return TextTable(f"Sizes in {unit.name}{f', {shapes_text(shapes)}' if shapes else ''}", header, tuple(lines))


def _notes(analysis: Analysis) -> list[str]:
    peak = analysis.chosen.peak_bytes
    notes = [f"The planned peak of {format_bytes(peak)} is at {analysis.chosen.operator}."]
    if analysis.best is not None and analysis.best.peak_bytes < peak:
        notes.append(
            f"Another order of operators would need {format_bytes(analysis.best.peak_bytes)} of tensors instead of {format_bytes(peak)}"
            f"{' (proven to be the least)' if analysis.proven else ''}: memprof plan reorder writes it."
        )
    notes += [sentence(analysis.moved)] if analysis.moved else []
    return notes + [f"Assumed: {assumption}." for assumption in analysis.assumptions[:3]]


def _phases(runs: Sequence[Run], among: Iterable[summary.Key]) -> tuple[list[tuple[str, tuple[float | None, ...]]], Unit]:
    """Measured bytes above the baseline, as `_above` has them, by variant and threads. among: all rows of the model, whose names must differ."""
    names = named(list(among))
    groups = summary.groups([run for run in runs if run.complete and run.mark(STARTUP) is not None])
    rows = []
    for key, group in groups.items():
        columns = [[value for value in column if value is not None] for column in zip(*map(_above, group), strict=True)]
        rows.append((names[key], tuple(statistics.median(values) if values else None for values in columns)))
    largest = [value for _, values in rows for value in values if value is not None]
    return rows, grid.choose_unit(metrics.BYTES, largest)


def _above(run: Run) -> tuple[float | None, ...]:
    """RSS above the baseline after MODEL_LOAD, after PREPARE, and at the peak of WARMUP and EXECUTE."""
    ends = (metrics.above_baseline(run, phase, metrics.METRICS["rss_end_bytes"]) for phase in (MODEL_LOAD, PREPARE))
    peaks = (metrics.above_baseline(run, phase, metrics.METRICS["rss_peak_bytes"]) for phase in (WARMUP, EXECUTE))
    return *ends, max((peak for peak in peaks if peak is not None), default=None)
