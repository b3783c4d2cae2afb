"""The shapes that ran, in headings of tables, pictures and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memprof.runs.records import Run

from ..rows import by_model
from .shapes import shaped


def shapes(run: Run) -> str:
    """`x 1x3x640x640` for each input whose shape was given or taken as 1, and the file of inputs whose shapes are not known."""
    job = run.job
    file = f", inputs from {Path(job.inputs).name}" if job.inputs and not job.given else ""
    return (shaped({**job.shapes, **job.given}, job.assumed) + file).removeprefix(", ")


def heading(runs: Sequence[Run]) -> list[str]:
    """The shapes of several runs: a text if all ran with the same shapes, else a text a model."""
    texts = {}
    for model, of_model in by_model(runs).items():
        distinct = {shapes(run) for run in of_model}
        texts[model] = distinct.pop() if len(distinct) == 1 else "shapes that differ between variants"
    if len(set(texts.values())) == 1:
        return [text for text in list(texts.values())[:1] if text]
    return [f"{model}: {text}" for model, text in texts.items() if text]
