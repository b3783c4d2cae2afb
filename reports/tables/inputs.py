"""The shapes that ran in a report on two sides: see memprof.verdicts.input_files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from memprof.records import summary
from memprof.records.types import Run
from memprof.verdicts import input_files as judged

from ..ran import heading, shapes
from ..rows import key_fields


def notes(ran: Mapping[str, Sequence[Run]]) -> list[str]:
    """`Inputs: x 1x3x640x640.`, of a side alone where the sides differ."""
    return [f"Inputs{'' if side == judged.BOTH else f' of {side}'}: {text}." for side, runs in ran.items() for text in heading(runs)]


def fields(ran: Mapping[str, Sequence[Run]]) -> list[dict[str, object]]:
    """The same for JSON: of each variant whose shapes are known."""
    return [
        {
            "side": side,
            **key_fields(summary.key(run)),
            "shapes": {name: list(shape) for name, shape in judged.shapes(run.job).items()},
            "assumed": list(run.job.assumed),
            "file": Path(run.job.inputs).name if run.job.inputs else None,
        }
        for side, runs in ran.items()
        for run in runs
        if shapes(run)
    ]
