"""The tables of the atlas: for each model one row per runtime, the releases from left to right, with arrows at steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from memprof.base.units import format_change
from memprof.records.types import PEAK
from memprof.reports.tables import grid
from memprof.reports.tables.grid import Section, TextTable
from memprof.versions.history_file import History, MetricLine

_METRIC = "rss_peak_bytes"
_MIB = 1 << 20
_TITLE = ": PEAK (MiB)"


@dataclass(frozen=True)
class Atlas:
    """The tables, one a group of runtimes that ran the same model, and notes on what is missing."""

    tables: tuple[TextTable, ...]
    notes: tuple[str, ...]


def of(history: History, unable: Mapping[str, str]) -> Atlas:
    """The atlas of a history whose commits are releases. unable: reasons by `runtime version`."""
    peaks = [line for line in history.lines if (line.phase, line.metric) == (PEAK, _METRIC)]
    names = dict.fromkeys(line.key.model for line in sorted(peaks, key=lambda line: line.places))
    failed = (f"{history.commits[place].subject}, {variant.rpartition(', ')[0]}: {words}" for (place, variant), words in _failures(history))
    missing = (f"{release} is missing: {reason.removeprefix(release).lstrip(': ')}" for release, reason in sorted(unable.items()))
    return Atlas(tuple(_table(history, name, [line for line in peaks if line.key.model == name]) for name in names), (*failed, *missing))


def _failures(history: History) -> Iterable[tuple[tuple[int, str], str]]:
    return sorted(history.failures.items())


def _table(history: History, model: str, peaks: Sequence[MetricLine]) -> TextTable:
    columns = max(len(line.places) for line in peaks)
    ordered = sorted(peaks, key=lambda line: line.places)
    header = ("runtime", *(f"{columns - 1 - number} before" for number in range(columns - 1)), "newest")
    rows = [(line.key.variant, *[""] * (columns - len(line.places)), *_cells(history, line)) for line in ordered]
    return TextTable(f"{model}{_TITLE}", header, tuple(rows))


def _cells(history: History, line: MetricLine) -> Iterable[str]:
    steps = {line.places[step.at]: step for step in line.steps}
    for place, samples in zip(line.places, line.samples, strict=True):
        arrow = ""
        if step := steps.get(place):
            share = f" {format_change(step.share)}" if step.share is not None else ""
            arrow = f" {'▲' if step.size > 0 else '▼'}{share}"
        yield f"{history.commits[place].short}: {grid.number(median(samples) / _MIB)}{arrow}"


def markdown(atlas: Atlas) -> str:
    """All tables as one for the manual, with the model in its first column. Columns are releases before the newest, which is the last."""
    widest = max((table.header for table in atlas.tables), key=len, default=())
    rows = tuple(
        (table.title.removesuffix(_TITLE), row[0], *[""] * (len(widest) - len(row)), *row[1:])
        for table in atlas.tables
        for row in table.rows
    )
    return grid.markdown(Section("", (TextTable("", ("model", *widest), rows, labels=2),)))
