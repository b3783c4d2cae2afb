"""Tables that only commands have: the processes of their tree, and the figures that they report themselves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from memprof.records.metrics import BYTES
from memprof.records.summary import Key
from memprof.records.types import Charged, DeviceKind, Process, Run, Value

from ..rows import key_columns, label_names, labels
from . import devices, grid
from .control_group import looked_at
from .grid import TextTable
from .swap import titled

_ROWS = 12
Groups = Mapping[Key, Sequence[Run]]


def tables(groups: Groups, unit: str | None) -> list[TextTable]:
    """Both tables, if there is anything to show."""
    return [*_values(groups, unit), *_processes(groups, unit)]


def beside(run: Run, place: int) -> dict[str, Any]:
    """What JSON has of a run beside its row at that place, as run_rows.rows has them.

    The row of a phase that counted units of work, such as tokens, gets them, and that of a phase with memory of devices its kinds, and what the
    runtime itself counted. The first row also gets the run's values (the last by name), processes and control group.
    """
    found: dict[str, Any] = {}
    if place < len(run.marks):
        mark = run.marks[place]
        found["units"] = dict(mark.units)
        found["devices"] = [_known(kind) for kind in mark.devices] if mark.device_peak_bytes else []
        found["device_counts"] = dict(devices.own_counts(run, mark.phase))
    if not place:
        found["values"] = {value.name: value.note if value.value is None else value.value for value in run.values}
        found["processes"] = [_known(process) for process in run.processes]
        found["charged"] = _known(charged) if (charged := looked_at(run)) is not None else {}
    return {name: figures for name, figures in found.items() if figures}


def _known(record: Process | DeviceKind | Charged) -> dict[str, Any]:
    return {name: figure for name, figure in asdict(record).items() if figure is not None}


def _values(groups: Groups, unit: str | None) -> list[TextTable]:
    """The last value that a run reported under each name; the median over the repeats. A word where a repeat's last was no finite number."""
    lasts = [[{value.name: value for value in run.values} for run in group] for group in groups.values()]
    reported = dict.fromkeys(name for each in lasts for last in each for name in last)
    shown = {name: [_value([last[name] for last in each if name in last]) for each in lasts] for name in reported}
    numbers = {name: [value for value in values if isinstance(value, float)] for name, values in shown.items()}
    size = grid.choose_unit(BYTES, [value for name, values in numbers.items() if name.endswith("_bytes") for value in values], unit)
    columns = key_columns(groups)
    for name, values in shown.items():
        title, own = titled(name, numbers[name], size)
        columns.append((title, [value if isinstance(value, str) else own.cell(value) for value in values]))
    return [grid.of_columns("Reported by the program itself, last", columns, len(columns) - len(shown))] if shown else []


def _value(reported: Sequence[Value]) -> float | str | None:
    """The median over repeats; a word where one is no finite number."""
    words = [value.note or "not a number" for value in reported if value.value is None]
    numbers = [value.value for value in reported if value.value is not None]
    return words[-1] if words else float(statistics.median(numbers)) if numbers else None


def _processes(groups: Groups, unit: str | None) -> list[TextTable]:
    """One row per process, of the repeat with the most processes; if there are many, those with the same name share a row."""
    chosen = {key: max((run.processes for run in group), key=len) for key, group in groups.items()}
    peaks = [process.rss_peak_bytes for processes in chosen.values() for process in processes]
    if not peaks:
        return []
    size = grid.choose_unit(BYTES, peaks, unit)
    names = label_names(groups)
    rows = []
    for key, processes in chosen.items():
        for name, namesakes in _together(processes):
            shares = [process.pss_peak_bytes for process in namesakes if process.pss_peak_bytes is not None]
            seen_s = max(process.end_ns - process.begin_ns for process in namesakes) / 1e9
            rows.append(
                (
                    *labels(key, names),
                    name,
                    size.cell(max(process.rss_peak_bytes for process in namesakes)),
                    size.cell(max(shares)) if shares else "-",
                    f"{seen_s:.2f}",
                )
            )
    header = (*names, "process", "RSS peak", "PSS peak", "seen (s)")
    return [TextTable(size.caption("Processes, the largest figures of each"), header, tuple(rows), len(names) + 1)]


def _together(processes: Sequence[Process]) -> list[tuple[str, list[Process]]]:
    if len(processes) <= _ROWS:
        return [(f"{process.name} ({process.pid})", [process]) for process in processes]
    by_name: dict[str, list[Process]] = {}
    for process in processes:
        by_name.setdefault(process.name, []).append(process)
    return [
        (f"{name} x{len(namesakes)}" if len(namesakes) > 1 else f"{name} ({namesakes[0].pid})", namesakes)
        for name, namesakes in by_name.items()
    ]
