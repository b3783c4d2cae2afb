"""Tables of a comparison: for each model one table a metric, a row a variant, a column a phase, as Markdown, CSV or JSON.

A cell is the median over the repeats; ± is the distance from it to the farthest repeat. Where a variant failed, the cell of the phase says
how, and a note below says why.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from memprof import metrics, summary
from memprof.metrics import BYTES, COUNT, NS, Metric
from memprof.records import EXECUTE, PEAK, STARTUP, WARMUP, Run
from memprof.summary import Key

from . import frame

BASELINE = "baseline"
_UNITS = {BYTES: (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)), NS: (("s", 10**9), ("ms", 10**6), ("us", 10**3)), COUNT: (("", 1),)}
_SMALLEST_SHOWN = {"GiB": 64 * 2**30, "MiB": 2**20, "s": 100 * 10**9, "ms": 10**5}

_WIDEST = 40  # one long name must not push all other rows off the screen


@dataclass(frozen=True)
class Table:
    """A table as texts, before it is Markdown."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """What is said of one model: a title, tables, and notes."""

    title: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def render(runs: Sequence[Run], names: Sequence[str] = (), *, format: str = "markdown", above_baseline: bool = False) -> str:
    """The tables of these runs as text. names: metrics, the default ones where none are named. format: markdown, csv or json.

    CSV and JSON have one row a run and phase, as frame.runs_frame has it; above_baseline has no effect on them.
    """
    if format in ("csv", "json"):
        return _plain(runs, names, format)
    return "\n\n".join(markdown(section) for section in sections(runs, names, above_baseline=above_baseline))


def _plain(runs: Sequence[Run], names: Sequence[str], format: str) -> str:
    table = frame.runs_frame(runs)
    if names:
        table = table[[*frame.KEYS, *(metrics.metric(name).name for name in names)]]
    if format == "csv":
        return table.to_csv(index=False, lineterminator="\n").rstrip("\n")
    rows = json.loads(table.to_json(orient="records", double_precision=15))
    return json.dumps([{key: value for key, value in row.items() if value is not None} for row in rows], indent=1)


def sections(runs: Sequence[Run], names: Sequence[str] = (), *, above_baseline: bool = False) -> list[Section]:
    """One section a model, in order of first appearance."""
    wanted = [metrics.metric(name) for name in (names or metrics.DEFAULT_METRICS)]
    models = dict.fromkeys(run.job.model.name for run in runs)
    return [_section([run for run in runs if run.job.model.name == model], wanted, not names, above_baseline) for model in models]


def _section(runs: Sequence[Run], wanted: Sequence[Metric], with_iterations: bool, above: bool) -> Section:
    grouped = summary.groups(runs)
    tables = [table for metric in wanted if (table := _metric_table(grouped, metric, above)) is not None]
    if with_iterations and (table := _iterations_table(grouped)) is not None:
        tables.append(table)
    return Section(_title(runs), tuple(tables), tuple(_notes(grouped, above)))


def _title(runs: Sequence[Run]) -> str:
    job = runs[0].job
    threads = sorted({run.job.threads for run in runs if run.job.threads})
    said = [job.model.name]
    if threads:
        said.append(f"{', '.join(map(str, threads))} thread{'s' if threads != [1] else ''}")
    said.append(f"warming up {job.warmup} & running {job.runs}")
    repeats = max(len(group) for group in summary.groups(runs).values())
    said.append(f"{repeats} repeat{'s' if repeats > 1 else ''}")
    return ", ".join(said)


# -- one table a metric


def _metric_table(grouped: dict[Key, list[Run]], metric: Metric, above: bool) -> Table | None:
    runs = [run for group in grouped.values() for run in group]
    columns = _columns(runs, metric)
    cells = {key: [_values(group, column, metric, above) for column in columns] for key, group in grouped.items()}
    everything = [value for row in cells.values() for values in row for value in values]
    if not everything:
        return None
    unit, size = _unit(metric, everything)
    rows = []
    for key, group in grouped.items():
        texts = [_cell(group, column, metric, values, size) for column, values in zip(columns, cells[key], strict=True)]
        rows.append((*_labels(key, grouped), *texts))
    title = f"{metric.title}{' above the baseline' if above and metric.baseline else ''}{f' ({unit})' if unit else ''}"
    return Table(title, (*_label_names(grouped), *columns), tuple(rows))


def _columns(runs: Sequence[Run], metric: Metric) -> list[str]:
    phases = summary.phases(runs)
    failed = [run.outcome.phase for run in runs if run.outcome.phase and run.outcome.phase not in phases]
    phases = summary.order(dict.fromkeys([*phases, *failed]))
    if metric.unit == NS:
        # How long an import takes is no property of the model, and warming up is not timed.
        return [phase for phase in phases if phase not in (STARTUP, WARMUP)]
    columns = [BASELINE if phase == STARTUP else phase for phase in phases]
    return [*columns, PEAK] if metric.name == "rss_peak_bytes" else columns


def _values(group: Sequence[Run], column: str, metric: Metric, above: bool) -> list[float]:
    found = []
    for run in group:
        if column == BASELINE and metric.baseline:
            value = metrics.baseline(run, metric)
        else:
            value = metrics.value(run, STARTUP if column == BASELINE else column, metric)
            if value is not None and above and metric.baseline:
                ground = metrics.baseline(run, metric)
                value = value - ground if ground is not None else None
        if value is not None:
            found.append(value)
    return found


def _unit(metric: Metric, values: Sequence[float]) -> tuple[str, float]:
    largest = max(abs(value) for value in values)
    units = _UNITS[metric.unit]
    for name, size in units[:-1]:
        if largest >= _SMALLEST_SHOWN[name]:
            return name, size
    return units[-1]


def _cell(group: Sequence[Run], column: str, metric: Metric, values: Sequence[float], size: float) -> str:
    failures = [run.outcome for run in group if run.outcome.phase == (STARTUP if column == BASELINE else column)]
    if not values:
        return f"failed ({failures[0].word})" if failures else "-"
    text = spread([value / size for value in values])
    exact = all(metrics.exact(run, column, metric) for run in group)
    return text if exact else "~" + text


def spread(values: Sequence[float]) -> str:
    """`137.2 ±0.4`: the median, and the distance to the farthest value where there are several."""
    middle = statistics.median(values)
    farthest = max(abs(value - middle) for value in values)
    return number(middle) if len(values) == 1 else f"{number(middle)} ±{number(farthest, middle)}"


def number(value: float, beside: float | None = None) -> str:
    """Four significant digits at most, and no more places than a value beside it has."""
    size = abs(beside if beside is not None else value)
    places = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:.{places}f}"
    return text[1:] if text.startswith("-") and not any(digit in text for digit in "123456789") else text


# -- the iterations of EXECUTE


def _iterations_table(grouped: dict[Key, list[Run]]) -> Table | None:
    wanted = [metrics.METRICS[name] for name in metrics.ITERATION_METRICS]
    cells = {key: [_values(group, EXECUTE, metric, False) for metric in wanted] for key, group in grouped.items()}
    everything = [value for row in cells.values() for values in row for value in values]
    if not everything:
        return None
    unit, size = _unit(wanted[0], everything)
    rows = [
        (*_labels(key, grouped), *(spread([value / size for value in values]) if values else "-" for values in row))
        for key, row in cells.items()
    ]
    return Table(f"EXECUTE, one iteration ({unit})", (*_label_names(grouped), "min", "mean", "max", "median", "geomean"), tuple(rows))


# -- rows' labels, notes


def _label_names(grouped: dict[Key, list[Run]]) -> tuple[str, ...]:
    return ("variant", *(["threads"] if _several_threads(grouped) else []), *(["machine"] if _several_machines(grouped) else []))


def _labels(key: Key, grouped: dict[Key, list[Run]]) -> tuple[str, ...]:
    threads = [str(key.threads) if key.threads else "default"] if _several_threads(grouped) else []
    return (key.variant, *threads, *([key.machine] if _several_machines(grouped) else []))


def _several_threads(grouped: dict[Key, list[Run]]) -> bool:
    return len({key.threads for key in grouped}) > 1


def _several_machines(grouped: dict[Key, list[Run]]) -> bool:
    return len({key.machine for key in grouped}) > 1


def _notes(grouped: dict[Key, list[Run]], above: bool) -> list[str]:
    runs = [run for group in grouped.values() for run in group]
    notes = []
    if any(len(group) > 1 for group in grouped.values()):
        notes.append("Cells: median over repeats, ± the distance to the farthest repeat. EXECUTE's latency: the median iteration.")
    if any(not mark.rss_peak_exact for run in runs for mark in run.marks):
        notes.append("~ the high-water mark could not be reset here: the peak is only what polling saw, and may have been higher.")
    for key, group in grouped.items():
        name = ", ".join([key.variant, *([f"{key.threads} threads"] if key.threads and _several_threads(grouped) else [])])
        notes += [f"{name}: {sentence}" for sentence in dict.fromkeys(_sentences(group))]
    return notes


def _sentences(group: Sequence[Run]) -> list[str]:
    failed = [run for run in group if not run.outcome.ok]
    said = []
    for run in failed:
        count = sum(other.outcome.phase == run.outcome.phase and other.outcome.status == run.outcome.status for other in failed)
        share = f" in {count} of {len(group)} repeats" if len(group) > 1 else ""
        said.append(f"failed{share}: {run.outcome.sentence}")
    return said + [note for run in group if run.about for note in run.about.notes] + [note for run in group for note in run.warnings]


# -- Markdown


def markdown(section: Section) -> str:
    """A section as Markdown, its columns aligned so that it reads well as plain text too."""
    parts = [_escaped(section.title)]
    for table in section.tables:
        parts += [table.title, _grid(table)]
    parts += ["\n".join(f"- {_escaped(note)}" for note in section.notes)] if section.notes else []
    return "\n\n".join(parts)


def _grid(table: Table) -> str:
    rows = [[_escaped(text) for text in row] for row in (table.header, *table.rows)]
    widths = [min(_WIDEST, max(len(row[place]) for row in rows)) for place in range(len(rows[0]))]
    labels = sum(name in ("variant", "threads", "machine") for name in table.header)
    lines = ["| " + " | ".join(_aligned(row, widths, labels)) + " |" for row in rows]
    rule = ["-" * width if place < labels else "-" * (width - 1) + ":" for place, width in enumerate(widths)]
    return "\n".join([lines[0], "| " + " | ".join(rule) + " |", *lines[1:]])


def _aligned(row: Sequence[str], widths: Sequence[int], labels: int) -> list[str]:
    return [text.ljust(width) if place < labels else text.rjust(width) for place, (text, width) in enumerate(zip(row, widths, strict=True))]


def _escaped(text: str) -> str:
    """Text that stays text in a Markdown table: no cell's end, no line's end, no tag."""
    plain = " ".join(text.split()) if any(mark.isspace() and mark != " " for mark in text) else text
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
