"""The words on samples in modes. One figure cannot stand for them: sentences name each mode, and notes say how many runs are in each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from memprof.records import metrics
from memprof.records.metrics import amount
from memprof.records.modes import middles, modes
from memprof.records.summary import Row
from memprof.records.types import PEAK, Run

_MOST_FIGURES = 3  # in a row
_RSS_PEAK = metrics.METRICS["rss_peak_bytes"]


def figure(metric: str, values: Sequence[float]) -> str:
    """The median as people read it, or the median of each mode: `77.6 MiB or 85.5 MiB`."""
    return " or ".join(amount(metric, value) for value in middles(values, metrics.described(metric).unit))


def of_row(row: Row) -> str:
    """The same for a row. The machines of a kind differ, which makes no modes."""
    return " or ".join(amount(row.metric, value) for value in of_each(row))


def of_each(row: Row) -> tuple[float, ...]:
    """The median of a row, or of each of its modes."""
    return (row.median,) if row.machines else middles(row.values, metrics.described(row.metric).unit)


def differences(base: Row, head: Row) -> list[float]:
    """How much more head has than base: each mode of the one less each mode of the other, for no run is at a difference between modes."""
    return between(of_each(base), of_each(head))


def between(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """The same of the modes of both sides."""
    return [second - first for first in before for second in after]


def change(metric: str, changes: Sequence[float], least: float = 0.0) -> str:
    """Such differences as people read them: `27.0 MiB more`, `512.0 KiB or 4.5 MiB more`, `the same or 8.0 MiB more`. least: up to which all of
    them are the same."""
    if all(abs(each) <= least for each in changes):
        return "the same"
    parts = ["the same"] if 0 in changes else []
    for word, side in (("less", [-each for each in changes]), ("more", changes)):
        figures = list(dict.fromkeys(amount(metric, size) for size in sorted(side) if size > 0))
        if figures:
            parts.append(f"{' or '.join(figures) if len(figures) <= _MOST_FIGURES else f'from {figures[0]} to {figures[-1]}'} {word}")
    return " or ".join(parts)


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
