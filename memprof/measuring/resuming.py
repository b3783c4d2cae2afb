"""Where a campaign goes on: the orders that a runs file lacks.

A runs file that is added to may hold a campaign that was interrupted. Its runs are the same as those that are wanted now if the jobs are the same by
content, the repeat's number included, and the machine too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..runs import attempts, store
from ..runs.records import Run
from ..units import counted
from .order import Order


def unfinished(orders: tuple[Order, ...], path: Path, say: Callable[[str], None]) -> tuple[tuple[Order, ...], list[Run]]:
    """The orders whose runs a runs file lacks, and the runs that it has of the others. All orders if it has none of them, or has them all.

    Raises InputError for a line that is no run.
    """
    if not path.is_file() or not path.stat().st_size:
        return orders, []
    runs = [store.decode(line, where) for where, line in store.lines(path, say)]
    wanted = [attempts.measured(order.job, order.place.machine().name) for order in orders]
    there = _last_pass(set(wanted), runs)
    if not there:
        return orders, []
    left = tuple(order for order, key in zip(orders, wanted, strict=True) if key not in there)
    say(f"going on: {path} holds {counted(len(there), 'run')} of {len(orders)}, so {len(left)} {'is' if len(left) == 1 else 'are'} left")
    return left, list(there.values())


def _last_pass(wanted: set[str], runs: Sequence[Run]) -> dict[str, Run]:
    """The runs of the last pass through all that is wanted, empty if that was complete. Who measured the same twice wanted two passes.

    A run whose probe was lost has no figures: it is not among them.
    """
    there: dict[str, Run] = {}
    for run in runs:
        key = attempts.measured(run.job, run.machine.name)
        if key not in wanted or attempts.was_lost(run):
            continue
        if key in there or len(there) == len(wanted):
            there = {}
        there[key] = run
    return {} if len(there) == len(wanted) else there
