"""The shapes that ran, in headings of tables, pictures and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memprof.runs.records import Run

from .shapes import shaped


def shapes(run: Run) -> str:
    """`x 1x3x640x640` for each input whose shape was given or taken as 1, and which file inputs came from where its shapes are not known."""
    job = run.job
    file = f", inputs from {Path(job.inputs).name}" if job.inputs and not job.given else ""
    return (shaped({**job.shapes, **job.given}, job.assumed) + file).removeprefix(", ")


def heading(runs: Sequence[Run]) -> list[str]:
    """The same over several runs: a text where they ran with one set of shapes, a text a model where each model has its own."""
    each: dict[str, dict[str, None]] = {}
    for run in runs:
        each.setdefault(run.job.model.name, {})[shapes(run)] = None
    texts = {model: next(iter(found)) if len(found) == 1 else "shapes that differ between variants" for model, found in each.items()}
    if len(set(texts.values())) == 1:
        return [text for text in list(texts.values())[:1] if text]
    return [f"{model}: {text}" for model, text in texts.items() if text]
