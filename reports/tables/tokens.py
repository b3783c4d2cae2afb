"""The table that runs which generate have beside the others: tokens a second, and how much of the model was read again meanwhile."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from memprof.records import metrics
from memprof.records.metrics import BYTES, NS
from memprof.records.summary import Key
from memprof.records.types import GENERATE, PROMPT, REQUEST, Run

from ..rows import label_names, labels
from . import grid
from .grid import TextTable, Unit

_PHASES = (PROMPT, GENERATE, REQUEST)
_UNIT = "token"
Figures = Mapping[Key, Sequence[float | None]]


def tables(groups: Mapping[Key, Sequence[Run]], unit: str | None) -> list[TextTable]:
    """The table, if any of these runs counted tokens. Medians over the repeats.

    Faults and bytes read are of these phases together: pages of a mapped model that had been dropped and were read from disk again.
    """
    phases = [phase for phase in _PHASES if any(_speed_in(phase, run) is not None for group in groups.values() for run in group)]
    if not phases:
        return []

    def of_runs(figure: Callable[[Run], float | None]) -> Figures:
        return {key: [figure(run) for run in group] for key, group in groups.items()}

    def known(figures: Figures) -> list[float]:
        return [figure for each in figures.values() for figure in each if figure is not None]

    columns: dict[str, tuple[Figures, Unit | None]] = {}
    for phase in phases:
        columns[f"{phase}, tokens/s"] = (of_runs(partial(_speed_in, phase)), Unit("", 1))
    firsts = of_runs(lambda run: metrics.value(run, REQUEST, metrics.METRICS["first_token_ns"]))
    refaults, read = of_runs(partial(_sum, "refaults")), of_runs(partial(_sum, "read_bytes"))
    if known(firsts):
        time = grid.choose_unit(NS, known(firsts))
        columns[time.caption(f"{REQUEST}, first token")] = (firsts, time)
    columns["major faults"] = (of_runs(partial(_sum, "major_faults")), None)
    if known(refaults):  # in a control group alone
        columns["refaults"] = (refaults, None)
    size = grid.choose_unit(BYTES, known(read), unit)
    columns[size.caption("read from disk")] = (read, size)
    names = label_names(groups)
    rows = tuple((*labels(key, names), *(_cell(figures[key], each) for figures, each in columns.values())) for key in groups)
    return [TextTable("Tokens, and the pages that were not in memory meanwhile", (*names, *columns), rows, len(names))]


def _speed_in(phase: str, run: Run) -> float | None:
    mark = run.mark(phase)
    if mark is None or not mark.units.get(_UNIT):
        return None
    # Requests side by side take less than the sum of their times; iterations one after another take less than the phase with its marks.
    time_ns = min(sum(mark.times_ns) or mark.time_ns, mark.time_ns)
    return mark.units[_UNIT] / time_ns * 1e9 if time_ns else None


def _sum(name: str, run: Run) -> float | None:
    counts = [getattr(mark, name) for phase in _PHASES if (mark := run.mark(phase)) is not None]
    return sum(counts) if counts and None not in counts else None


def _cell(values: Sequence[float | None], unit: Unit | None) -> str:
    """The median in a unit; without one, and where it is 0, as a count."""
    known = [value for value in values if value is not None]
    return unit.median(known) if unit is not None and any(known) else f"{statistics.median(known):.0f}" if known else "-"
