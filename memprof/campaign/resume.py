"""Where a campaign goes on: the orders that a runs file lacks.

A runs file that is added to may hold a campaign that was interrupted. Its runs are the same as those that are wanted now if the jobs are the same by
content, the repeat's number included, and the machine too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..base.units import counted
from ..records import attempts, store
from ..records.types import Run
from ..subjects.order import Order


def unfinished(orders: tuple[Order, ...], path: Path, say: Callable[[str], None]) -> tuple[tuple[Order, ...], list[Run]]:
    """The orders whose runs a runs file lacks, and the runs that it has of the others: the last of each, if it was measured several times.

    A run whose recorder was lost has no figures: the file lacks it.
    Raises InputError for a line that is no run.
    """
    if not path.is_file() or not path.stat().st_size:
        return orders, []
    runs = [store.decode(line, where) for where, line in store.lines(path, say)]
    wanted = [attempts.measured(order.job, order.place.machine().name) for order in orders]
    there = {attempts.measured(run.job, run.machine.name): run for run in runs if not attempts.was_lost(run)}
    left = tuple(order for order, key in zip(orders, wanted, strict=True) if key not in there)
    kept = [there[key] for key in wanted if key in there]
    if not left:
        say(f"nothing is left to measure: {path} holds {_all(len(kept))}; another file measures again, more --repeats add to this one")
    elif kept:
        say(f"going on: {path} holds {counted(len(kept), 'run')} of {len(orders)}, so {len(left)} {'is' if len(left) == 1 else 'are'} left")
    return left, kept


def _all(runs: int) -> str:
    return "the one run" if runs == 1 else f"all {runs} runs"
