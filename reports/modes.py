"""The words on samples in modes. One figure cannot stand for them: sentences name each mode, and notes say how many runs are in each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from memprof.records import metrics
from memprof.records.metrics import amount
from memprof.records.modes import middle, modes
from memprof.records.summary import Row
from memprof.records.types import PEAK, Run

_RSS_PEAK = metrics.METRICS["rss_peak_bytes"]


def figure(metric: str, values: Sequence[float]) -> str:
    """The median as people read it, or the median of each mode: `77.6 MiB or 85.5 MiB`."""
    unit = metrics.described(metric).unit
    groups = modes(values, unit)
    middles = [statistics.median(group) for group in groups] if len(groups) > 1 else [middle(values, unit)]
    return " or ".join(amount(metric, value) for value in middles)


def of_row(row: Row) -> str:
    """The same for a row. The machines of a kind differ, which makes no modes."""
    return figure(row.metric, row.values) if count(row) > 1 else amount(row.metric, row.median)


def count(row: Row) -> int:
    """How many modes a row has."""
    return 1 if row.machines else len(modes(row.values, metrics.described(row.metric).unit))


def counts(metric: str, values: Sequence[float]) -> str:
    """`2 modes, 77.6 MiB in 6 runs and 85.5 MiB in 6`; empty for values in one mode."""
    groups = modes(values, metrics.described(metric).unit)
    if len(groups) == 1:
        return ""
    first, *others = [f"{amount(metric, statistics.median(group))} in {len(group)}" for group in groups]
    return f"{len(groups)} modes, {' and '.join([f'{first} runs', *others])}"


def notes(group: Sequence[Run]) -> list[str]:
    """A sentence on the modes of a variant's PEAK, none where it has one. Different machines are no modes."""
    peaks = metrics.values(group, PEAK, _RSS_PEAK)
    found = counts(_RSS_PEAK.name, peaks) if peaks and len({run.machine.name for run in group}) == 1 else ""
    return [f"PEAK has {found}{_advice(group)}"] if found else []


def _advice(group: Sequence[Run]) -> str:
    return "" if any(run.job.deterministic for run in group) else ": --deterministic leaves one, where the runtime is deterministic itself"
