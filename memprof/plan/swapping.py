"""What `plan residency` answers: the simulation of one order, with the runs and the operators' times that it stands beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError, UsageError
from ..models.identity import identify
from ..runs import store
from ..runs.records import Run
from . import executed
from .analysis import BEST, Chosen, Planned, chosen_order
from .orders.order import best_order
from .residency import Residency, residency
from .training import STATES


def swapping(
    plan: Planned, order: str, lookahead: int, files: Sequence[str], profile: Path | None
) -> tuple[Residency, list[Run], tuple[str, ...]]:
    """The residency of an order, the runs of this model among those in the files, and what must be said of the files and of the order.

    Raises InputError where no run in the files is of this model.
    """
    runs, remarks = _runs(plan, files)
    chosen = Chosen(best_order(plan.mapped.problem).order) if order == BEST else chosen_order(plan, order)
    shares = None
    if profile is not None:
        if plan.training is not None:
            raise UsageError("a profile has the times of an inference: --mode training has none")
        shares = executed.profiled(plan.graph, profile).times_ns
    trained = plan.training
    found = residency(
        plan.graph,
        plan.mapped,
        chosen.order,
        lookahead,
        shares,
        trained.updates if trained else (),
        STATES[trained.optimizer] if trained else 0,
    )
    return found, runs, (*remarks, *([chosen.source] if chosen.source else []))


def _runs(plan: Planned, files: Sequence[str]) -> tuple[list[Run], tuple[str, ...]]:
    if not files:
        return [], ()
    loaded = store.load(files)
    digest = identify(plan.graph.path).sha256
    runs = [run for run in loaded.runs if run.job.model.sha256 == digest]
    if not runs:
        known = sorted({run.job.model.name for run in loaded.runs})
        raise InputError(f"no run in {', '.join(files)} is of {plan.graph.path}, by its content; they are of {', '.join(known)}")
    return runs, tuple(loaded.warnings)
