"""The table by which onert's developers compare loading: one row per variant, the memory of MODEL_LOAD, and the times of MODEL_LOAD and PREPARE.

In their tables MB is 1024 * 1024 bytes, and a time is the whole milliseconds that have gone by: 288.84 ms are 288.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from memprof.records import metrics
from memprof.records.metrics import METRICS
from memprof.records.summary import Key
from memprof.records.types import MODEL_LOAD, PREPARE, Run

from .grid import TextTable, Unit

_MS = 1_000_000
ONERTS = Unit("MB", 1 << 20)


def table(groups: Mapping[Key, Sequence[Run]], names: Mapping[Key, str], above: bool, unit: Unit) -> TextTable:
    """The table of these runs; unit: for memory."""
    rows = [(names[key], _memory(group, above, unit), _time(group, MODEL_LOAD), _time(group, PREPARE)) for key, group in groups.items()]
    return TextTable("", ("Runtime", "Memory", "Load time", "Prepare time"), tuple(rows))


def notes(unit: Unit) -> tuple[str, ...]:
    """The meaning of the cells, in this unit."""
    cells = "Memory: the peak of RSS in MODEL_LOAD; medians over repeats, times in whole milliseconds."
    return (cells,) if unit is not ONERTS else (cells, "MB means 1024 * 1024 bytes here, as in onert's tables.")


def _memory(group: Sequence[Run], above: bool, unit: Unit) -> str:
    size_of = metrics.above_baseline if above else metrics.value
    values = [value for run in group if (value := size_of(run, MODEL_LOAD, METRICS["rss_peak_bytes"])) is not None]
    return f"{statistics.median(values) / unit.size:.0f} {unit.name}" if values else "-"


def _time(group: Sequence[Run], phase: str) -> str:
    times = [mark.time_ns for run in group if (mark := run.mark(phase)) is not None]
    return f"{math.floor(statistics.median(times) / _MS)} ms" if times else "-"
