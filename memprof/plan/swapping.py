"""What `plan residency` answers: the simulation of one order, with the runs and the operators' times that it stands beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, UsageError
from ..models.identity import identify
from ..runs import store
from ..runs.records import Run
from . import executed
from .analysis import BEST, Chosen, Planned, chosen_order
from .measured import shapes_of, unknown, written
from .orders.order import best_order
from .residency import Residency, residency
from .training import STATES


@dataclass(frozen=True)
class Known:
    """The runs of a model among those in some files, and what must be said of the files."""

    runs: tuple[Run, ...]
    remarks: tuple[str, ...]


def known_runs(model: Path, files: Sequence[str]) -> Known:
    """Raises InputError where no run in the files is of this model."""
    if not files:
        return Known((), ())
    loaded = store.load(files)
    digest = identify(model).sha256
    runs = tuple(run for run in loaded.runs if run.job.model.sha256 == digest)
    if not runs:
        names = sorted({run.job.model.name for run in loaded.runs})
        raise InputError(f"no run in {', '.join(files)} is of {model}, by its content; they are of {', '.join(names)}")
    return Known(runs, tuple(loaded.warnings))


def at_shapes(known: Known, shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, tuple[int, ...]], Known]:
    """The shapes to plan at, and the runs of these shapes. shapes: those that are asked for; where none are, those of the runs are taken.

    Raises UsageError where the runs have several and none are asked for, InputError where no run has the ones that are.
    """
    each = {shapes_of(run) for run in known.runs if not unknown(run)}
    if not known.runs:
        return dict(shapes), known
    if not each:
        raise InputError(
            "these runs took their inputs from a file, and their record does not hold the inputs' shapes: no plan is like them"
        )
    if not shapes and len(each) > 1:
        raise UsageError(f"these runs are of several shapes, and --shape chooses: {'; '.join(sorted(map(written, each)))}")
    wanted = tuple(sorted(shapes.items())) if shapes else each.pop()
    runs = tuple(run for run in known.runs if not unknown(run) and shapes_of(run) == wanted)
    if not runs:
        raise InputError(f"no run is at {written(wanted)}; these are at {'; '.join(sorted(map(written, each)))}")
    others = len(known.runs) - len(runs)
    left_out = [f"{others} run{'s' if others > 1 else ''} of other shapes or inputs left out"] if others else []
    return dict(wanted), Known(runs, (*known.remarks, *left_out))


def swapping(plan: Planned, order: str, lookahead: int, profile: Path | None) -> tuple[Residency, tuple[str, ...]]:
    """The residency of an order, and what must be said of the order."""
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
    return found, tuple([chosen.source] if chosen.source else [])
