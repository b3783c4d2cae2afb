"""The table that runs which generate have beside the others: tokens a second, and how much of the model was read again meanwhile."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from memprof.records.metrics import BYTES, NS, first_token
from memprof.records.summary import Key
from memprof.records.types import GENERATE, PROMPT, REQUEST, Mark, Run

from ..rows import label_names, labels
from . import grid
from .grid import TextTable, Unit

_PHASES = (PROMPT, GENERATE, REQUEST)
_UNIT = "token"


def tables(groups: Mapping[Key, Sequence[Run]], unit: str | None) -> list[TextTable]:
    """The table, if any of these runs counted tokens. Medians over the repeats.

    Faults and bytes read are of these phases together: pages of a mapped model that had been dropped and were read from disk again.
    """
    phases = [phase for phase in _PHASES if any(_speed(run.mark(phase)) is not None for group in groups.values() for run in group)]
    if not phases:
        return []
    names = label_names(groups)
    speeds = {key: [[_speed(run.mark(phase)) for run in group] for phase in phases] for key, group in groups.items()}
    faults = {key: [_sum(run, "major_faults") for run in group] for key, group in groups.items()}
    refaults = {key: [_sum(run, "refaults") for run in group] for key, group in groups.items()}
    counted = any(count is not None for counts in refaults.values() for count in counts)  # in a control group alone
    read = {key: [_sum(run, "read_bytes") for run in group] for key, group in groups.items()}
    firsts = {key: [_first(run) for run in group] for key, group in groups.items()}
    streamed = [count for counts in firsts.values() for count in counts if count is not None]
    time_size = grid.choose_unit(NS, streamed)
    size = grid.choose_unit(BYTES, [count for counts in read.values() for count in counts if count is not None], unit)
    rows = tuple(
        (
            *labels(key, names),
            *(_cell(row, Unit("", 1)) for row in speeds[key]),
            *([_cell(firsts[key], time_size)] if streamed else []),
            _count(faults[key]),
            *([_count(refaults[key])] if counted else []),
            _cell(read[key], size),
        )
        for key in groups
    )
    header = (
        *names,
        *(f"{phase}, tokens/s" for phase in phases),
        *([time_size.caption(f"{REQUEST}, first token")] if streamed else []),
        "major faults",
        *(["refaults"] if counted else []),
        size.caption("read from disk"),
    )
    return [TextTable("Tokens, and the pages that were not in memory meanwhile", header, rows, len(names))]


def _speed(mark: Mark | None) -> float | None:
    if mark is None or not mark.units.get(_UNIT):
        return None
    # Requests side by side take less than the sum of their times; iterations one after another take less than the phase with its marks.
    time_ns = min(sum(mark.times_ns) or mark.time_ns, mark.time_ns)
    return mark.units[_UNIT] / time_ns * 1e9 if time_ns else None


def _first(run: Run) -> float | None:
    mark = run.mark(REQUEST)
    return first_token(mark) if mark is not None else None


def _sum(run: Run, name: str) -> float | None:
    counts = [getattr(mark, name) for phase in _PHASES if (mark := run.mark(phase)) is not None]
    return sum(counts) if counts and None not in counts else None


def _cell(values: Sequence[float | None], unit: Unit) -> str:
    return unit.median(values) if any(values) else _count(values)


def _count(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.0f}" if known else "-"
