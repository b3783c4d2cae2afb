"""The table of RELEASE: how much memory a process still holds once its runtime was deleted, beside the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from memprof.base.units import counted, format_bytes
from memprof.records import metrics
from memprof.records.metrics import BYTES, METRICS
from memprof.records.modes import split_modes
from memprof.records.summary import Key
from memprof.records.types import RELEASE, Run

from ..rows import label, label_names, labels
from . import grid
from .grid import TextTable

TITLE = "Kept after release"
# The table's columns. The last two are parts of anonymous memory, where the allocator tells.
COLUMNS = {
    "RSS": "rss_end_bytes",
    "anonymous": "anon_end_bytes",
    "file-backed": "file_end_bytes",
    "heap in use": "heap_used_end_bytes",
    "heap freed, kept": "heap_free_end_bytes",
}
_SHARE = 0.1  # of the largest, from which samples that lie apart are modes or a note
_WHY = ": glibc gives a heap back only from its end, and one block that is still in use there keeps all below it"
Groups = Mapping[Key, Sequence[Run]]


def tables(groups: Groups, unit: str | None) -> list[TextTable]:
    """The table, none if no runtime was deleted."""
    asked = {key: group for key, group in groups.items() if any(run.mark(RELEASE) or _failed(run) for run in group)}
    cells = {key: {name: _kept(group, metric) for name, metric in COLUMNS.items()} for key, group in asked.items()}
    shown = [name for name in COLUMNS if any(figures[name] for figures in cells.values())]
    if not shown:
        return []
    size = grid.choose_unit(BYTES, [value for figures in cells.values() for values in figures.values() for value in values], unit)
    names = label_names(groups)
    rows = tuple((*labels(key, names), *(_cell(asked[key], figures[name], size) for name in shown)) for key, figures in cells.items())
    return [TextTable(size.caption(f"{TITLE}, above the baseline"), (*names, *shown), rows, len(names))]


def kept_bytes(run: Run, metric: str) -> float | None:
    """A figure at the end of RELEASE above that of the baseline, None if it could not be had."""
    return metrics.above_baseline(run, RELEASE, METRICS[metric])


def kept_modes(group: Sequence[Run]) -> tuple[tuple[float, ...], ...]:
    """What stays of each run's RSS above the baseline, as one group or by the modes of the sample; none if no runtime was deleted."""
    values = _kept(group, "rss_end_bytes")
    bound = max((run.machine.peak_bound_bytes for run in group), default=0)
    return split_modes(values, max(_SHARE * max(values), bound)) if values else ()


def notes(groups: Groups) -> list[str]:
    """A sentence on each variant of which some runs keep much more than others, so that a median says little."""
    sentences = []
    names = label_names(groups)
    for key, group in groups.items():
        modes = kept_modes(group)
        low, high = (min(modes[0]), max(modes[-1])) if modes else (0.0, 0.0)
        if len(modes) > 1:
            parts = [f"{format_bytes(statistics.median(mode))} in {len(mode)}" for mode in modes]
            count = sum(map(len, modes))
            sentences.append(f"{label(key, names)}: of {counted(count, 'run')}, {' and '.join(parts)} stay after release{_WHY}")
        elif high - low > _SHARE * high and len(modes[0]) > 1:
            sentences.append(f"{label(key, names)}: from {format_bytes(low)} to {format_bytes(high)} stay after release{_WHY}")
    return sentences


def _kept(group: Sequence[Run], metric: str) -> list[float]:
    return [value for run in group if (value := kept_bytes(run, metric)) is not None]


def _failed(run: Run) -> bool:
    return run.complete and not run.outcome.ok


def _cell(group: Sequence[Run], values: Sequence[float], unit: grid.Unit) -> str:
    failed = next((f"failed ({run.outcome.word})" for run in group if _failed(run)), "-")
    return unit.median(values) if values else failed
