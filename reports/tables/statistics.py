"""Statistics as tables: for each metric one row per variant and phase, as a notebook shows a summary."""

from __future__ import annotations

from collections.abc import Sequence

from memprof.records.metrics import METRICS
from memprof.records.summary import Row

from .. import rows
from . import grid
from .grid import Section, TextTable


def render(summary: Sequence[Row], *, format: str = "markdown") -> str:
    """The tables as Markdown or html."""
    section = Section(
        "",
        tuple(_table(name, summary) for name in dict.fromkeys(row.metric for row in summary)),
        tuple(rows.exactness_notes(row.exact for row in summary)),
    )
    return grid.html([section]) if format == "html" else grid.markdown(section)


def _table(metric: str, summary: Sequence[Row]) -> TextTable:
    of_metric = [row for row in summary if row.metric == metric]
    names = rows.label_names({row.key for row in summary})
    several = len({row.key.model for row in summary}) > 1
    labels = (*(["model"] if several else []), *names, "phase")
    unit = grid.choose_unit(METRICS[metric].unit, [row.max for row in of_metric])
    lines = []
    for row in of_metric:
        figures = [*map(unit.cell, (row.median, row.mean, row.min, row.max, row.stdev))]
        called = (*([row.key.model] if several else []), *rows.labels(row.key, names), row.phase)
        lines.append((*called, *(text if row.exact else f"~{text}" for text in figures[:4]), figures[4], str(len(row.values))))
    header = (*labels, "median", "mean", "min", "max", "stdev", "repeats")
    return TextTable(unit.caption(METRICS[metric].title), header, tuple(lines), len(labels))
