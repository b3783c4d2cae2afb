"""The answer to `plan residency`: the simulation of an order, with the runs and the operators' times that stand beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from ..base.errors import InputError, UsageError
from ..base.units import counted
from ..models.identity import identify
from ..records import store
from ..records.types import Run
from . import executed
from .analysis import BEST, AskedOrder, Planned, asked_order
from .measured import shapes_of, shapes_text, unknown_shapes
from .orders.order import best_order
from .residency import Residency, residency
from .training import STATES


class ModelRuns(Struct, frozen=True):
    """The runs of a model among those in some files, and remarks on the files."""

    runs: tuple[Run, ...]
    remarks: tuple[str, ...]


def known_runs(model: Path, files: Sequence[str]) -> ModelRuns:
    """The runs of a model, by its content. Raises InputError where the files hold none."""
    if not files:
        return ModelRuns((), ())
    loaded = store.load(files)
    digest = identify(model).sha256
    runs = tuple(run for run in loaded.runs if run.job.model.sha256 == digest)
    if not runs:
        names = sorted({run.job.model.name for run in loaded.runs})
        raise InputError(f"no run in {', '.join(files)} is of {model}, by its content; they are of {', '.join(names)}")
    return ModelRuns(runs, tuple(loaded.warnings))


def at_shapes(model_runs: ModelRuns, shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, tuple[int, ...]], ModelRuns]:
    """The shapes to plan at, and the runs of these shapes. shapes: those asked for; where it is empty, the runs' shapes are taken.

    Raises UsageError where the runs have several shapes and the request names none, InputError where no run has its shapes.
    """
    shapes_run = {shapes_of(run) for run in model_runs.runs if not unknown_shapes(run)}
    if not model_runs.runs:
        return dict(shapes), model_runs
    if not shapes_run:
        raise InputError(
            "these runs took their inputs from a file, and their record does not hold the inputs' shapes: no plan is like them"
        )
    if not shapes and len(shapes_run) > 1:
        raise UsageError(f"these runs are of several shapes, and --shape chooses: {'; '.join(sorted(map(shapes_text, shapes_run)))}")
    wanted = tuple(sorted(shapes.items())) if shapes else shapes_run.pop()
    runs = tuple(run for run in model_runs.runs if not unknown_shapes(run) and shapes_of(run) == wanted)
    if not runs:
        raise InputError(f"no run is at {shapes_text(wanted)}; these are at {'; '.join(sorted(map(shapes_text, shapes_run)))}")
    others = len(model_runs.runs) - len(runs)
    left_out = [f"{counted(others, 'run')} of other shapes or inputs left out"] if others else []
    return dict(wanted), ModelRuns(runs, (*model_runs.remarks, *left_out))


def swapping(plan: Planned, order: str, lookahead: int, profile: Path | None) -> tuple[Residency, tuple[str, ...]]:
    """The residency of an order, and remarks on the order. Raises as `asked_order` and `profiled` do."""
    asked = AskedOrder(best_order(plan.mapped.problem).order) if order == BEST else asked_order(plan, order)
    shares = None
    if profile is not None:
        if plan.training is not None:
            raise UsageError("a profile has the times of an inference: --mode training has none")
        shares = executed.profiled(plan.graph, profile).times_ns
    trained = plan.training
    simulated = residency(
        plan.graph,
        plan.mapped,
        asked.order,
        lookahead,
        shares,
        trained.updates if trained else (),
        STATES[trained.optimizer] if trained else 0,
    )
    return simulated, tuple([asked.source] if asked.source else [])
