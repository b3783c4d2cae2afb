"""The table that runs which generate have beside the others: tokens a second, and how much of the model was read again meanwhile."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from memprof.records import metrics
from memprof.records.metrics import BYTES, NS
from memprof.records.summary import Key
from memprof.records.types import GENERATE, PROMPT, REQUEST, Run

from ..rows import key_columns
from . import grid
from .grid import TextTable, Unit

_PHASES = (PROMPT, GENERATE, REQUEST)
_UNIT = "token"
Figures = Sequence[Sequence[float | None]]  # of each group, of each run


def tables(groups: Mapping[Key, Sequence[Run]], unit: str | None) -> list[TextTable]:
    """The table, if any of these runs counted tokens. Medians over the repeats.

    Faults and bytes read are of these phases together: pages of a mapped model that had been dropped and were read from disk again.
    """
    phases = [phase for phase in _PHASES if any(_speed_in(phase, run) is not None for group in groups.values() for run in group)]
    if not phases:
        return []

    def of_runs(figure: Callable[[Run], float | None]) -> Figures:
        return [[figure(run) for run in group] for group in groups.values()]

    def known(figures: Figures) -> list[float]:
        return [figure for each in figures for figure in each if figure is not None]

    heads = key_columns(groups)
    columns = [*heads, *((f"{phase}, tokens/s", _cells(of_runs(partial(_speed_in, phase)), Unit("", 1))) for phase in phases)]
    firsts = of_runs(lambda run: metrics.value(run, REQUEST, metrics.METRICS["first_token_ns"]))
    if known(firsts):
        time = grid.choose_unit(NS, known(firsts))
        columns.append((time.caption(f"{REQUEST}, first token"), _cells(firsts, time)))
    columns.append(("major faults", _cells(of_runs(partial(_sum, "major_faults")))))
    refaults, read = of_runs(partial(_sum, "refaults")), of_runs(partial(_sum, "read_bytes"))
    if known(refaults):  # in a control group alone
        columns.append(("refaults", _cells(refaults)))
    size = grid.choose_unit(BYTES, known(read), unit)
    columns.append((size.caption("read from disk"), _cells(read, size)))
    return [grid.of_columns("Tokens, and the pages that were not in memory meanwhile", columns, len(heads))]


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


def _cells(figures: Figures, unit: Unit | None = None) -> list[str]:
    """The median of each group in a unit; without one, and where it is 0, as a count."""
    each = [[value for value in values if value is not None] for values in figures]
    return [
        unit.median(known) if unit is not None and any(known) else f"{statistics.median(known):.0f}" if known else "-" for known in each
    ]
