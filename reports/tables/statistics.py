"""Statistics as tables: for each metric a row a variant and phase, as a notebook shows a summary."""

from __future__ import annotations

from collections.abc import Sequence

from memprof.runs.metrics import METRICS
from memprof.runs.summary import Row

from .. import rows
from . import grid
from .grid import Section, Table


def render(found: Sequence[Row], *, format: str = "markdown") -> str:
    """The tables as Markdown or html."""
    section = Section("", tuple(_table(name, found) for name in dict.fromkeys(row.metric for row in found)), tuple(_notes(found)))
    return grid.html([section]) if format == "html" else grid.markdown(section)


def _table(metric: str, found: Sequence[Row]) -> Table:
    of_metric = [row for row in found if row.metric == metric]
    names = rows.label_names({row.key for row in found})
    several = len({row.key.model for row in found}) > 1
    labels = (*(["model"] if several else []), *names, "phase")
    unit = grid.choose_unit(METRICS[metric].unit, [row.max for row in of_metric])
    lines = []
    for row in of_metric:
        figures = [grid.number(value / unit.size) for value in (row.median, row.mean, row.min, row.max, row.stdev)]
        called = (*([row.key.model] if several else []), *rows.labels(row.key, names), row.phase)
        lines.append((*called, *(text if row.exact else f"~{text}" for text in figures[:4]), figures[4], str(len(row.values))))
    header = (*labels, "median", "mean", "min", "max", "stdev", "repeats")
    return Table(unit.caption(METRICS[metric].title), header, tuple(lines), len(labels))


def _notes(found: Sequence[Row]) -> list[str]:
    return [] if all(row.exact for row in found) else ["~ not exact: it may have been higher."]
