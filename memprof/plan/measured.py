"""Plans to stand beside measured runs: of the same file, by its content, at the shapes that ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ..base.errors import InputError, MemprofError, os_reason
from ..models.identity import identify
from ..records.types import Model, Run
from .analysis import Analysis, Question, analyse, planned
from .graphs.read import read

# A plan takes seconds, and a file of runs can hold thousands of shapes.
_MOST = 12

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class Measured(Struct, frozen=True):
    """The plan of a model at the shapes of some runs. analysis: None where there is none; `why` then gives the reason.

    sha256: of the model. shapes: of inputs, by name, in order; empty where the model's own shapes ran.
    """

    sha256: str
    shapes: Shapes
    analysis: Analysis | None
    why: str = ""

    def of(self, run: Run) -> bool:
        """Whether a run measured this model at these shapes."""
        return (self.sha256, self.shapes) == (run.job.model.sha256, shapes_of(run)) and not unknown_shapes(run)


def shapes_of(run: Run) -> Shapes:
    """The shapes that a run was given, those of its file of inputs too, sorted by the inputs' names."""
    return tuple(sorted((name, tuple(shape)) for name, shape in {**run.job.shapes, **run.job.given}.items()))


def unknown_shapes(run: Run) -> bool:
    """Whether inputs came from a file whose shapes the run's record does not hold."""
    return run.job.inputs is not None and not run.job.given


def shapes_text(shapes: Shapes) -> str:
    """Shapes as text, `x=1x3x224x224`; empty ones are the model's own."""
    return ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes) or "the model's own shapes"


def by_model(runs: Sequence[Run], time_limit_s: float = 2.0) -> dict[str, tuple[Measured, ...]]:
    """The plans of the runs' models, by the models' names: a plan for each content and each shape. time_limit_s: for each best order."""
    by_name: dict[str, dict[object, Measured]] = {}
    digests: dict[Path, str] = {}
    count = 0
    for run in runs:
        plans = by_name.setdefault(run.job.model.name, {})
        key = (run.job.model.sha256, shapes_of(run))
        if unknown_shapes(run):
            why = "inputs came from a file, and the record of these runs does not hold their shapes"
            plans.setdefault("inputs", Measured("", (), None, why))
        elif key not in plans and count < _MOST:
            count += 1
            plans[key] = _measured(run.job.model, key[1], time_limit_s, digests)
        elif key not in plans:
            plans.setdefault("more", Measured("", (), None, f"only {_MOST} models and shapes are planned"))
    return {name: tuple(plans.values()) for name, plans in by_name.items()}


def _measured(model: Model, shapes: Shapes, time_limit_s: float, digests: dict[Path, str]) -> Measured:
    path = Path(model.path)
    try:
        if path.suffix not in (".onnx", ".tflite", ".circle"):
            raise InputError("graphs are read from .onnx, .tflite and .circle files")
        if not model.sha256:
            raise InputError("the record does not say which file was measured")
        if not path.is_file():
            raise InputError(f"the model is no longer at {path}")
        if path not in digests:
            digests[path] = identify(path).sha256
        if digests[path] != model.sha256:
            raise InputError(f"{path} is not the file that was measured: its content differs")
        question = Question(time_limit_s=time_limit_s)
        return Measured(model.sha256, shapes, analyse(planned(read(path, dict(shapes)), question), question))
    except MemprofError as error:
        return Measured(model.sha256, shapes, None, str(error))
    except OSError as error:
        return Measured(model.sha256, shapes, None, f"{path}: {os_reason(error)}")
