"""Plans of what runs have measured: of the model they name, if it is still at hand, at each set of shapes that ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import MemprofError, os_reason
from ..models.identity import identify
from ..runs.records import Model, Run
from .analysis import Analysis, Question, analyse, planned
from .graphs.read import read

_READ = (".onnx", ".tflite", ".circle")


@dataclass(frozen=True)
class Beside:
    """Runs of one model at one set of shapes, and the plan of it; where there is none, reason says why, empty where no plan is expected."""

    runs: tuple[Run, ...]
    shapes: Mapping[str, tuple[int, ...]]
    analysis: Analysis | None
    reason: str = ""


def beside(runs: Sequence[Run], time_limit_s: float = 2.0) -> list[Beside]:
    """A plan for each model and each set of shapes that these runs had, in order of first appearance.

    A model must be the one that was measured, by its content. time_limit_s: for the best order of each.
    """
    groups: dict[object, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.job.model.name, run.job.model.sha256, tuple(shapes_of(run).items()), unknown(run)), []).append(run)
    return [_beside(group, time_limit_s) for group in groups.values()]


def shapes_of(run: Run) -> dict[str, tuple[int, ...]]:
    """The shapes that a run was given, by its options and by its file of inputs, in the order of the inputs' names."""
    return dict(sorted({**run.job.shapes, **run.job.given}.items()))


def unknown(run: Run) -> bool:
    """Whether inputs came from a file whose shapes the run does not say."""
    return run.job.inputs is not None and not run.job.given


def _beside(runs: Sequence[Run], time_limit_s: float) -> Beside:
    model, shapes = runs[0].job.model, shapes_of(runs[0])
    path = Path(model.path)
    reason = ""
    try:
        if path.suffix not in _READ:
            return Beside(tuple(runs), shapes, None)
        if not path.is_file():
            reason = f"{path} is not at hand"
        elif unknown(runs[0]):
            reason = "its inputs came from a file, and these runs do not say their shapes"
        elif not _same(path, model):
            reason = f"{path} is not the model that was measured any more: its content is another"
        else:
            question = Question(time_limit_s=time_limit_s)
            return Beside(tuple(runs), shapes, analyse(planned(read(path, shapes), question), question))
    except MemprofError as error:
        reason = str(error)
    except OSError as error:
        reason = f"{path}: {os_reason(error)}"
    return Beside(tuple(runs), shapes, None, reason)


def _same(path: Path, model: Model) -> bool:
    return path.stat().st_size == model.files[0].bytes and identify(path).sha256 == model.sha256
