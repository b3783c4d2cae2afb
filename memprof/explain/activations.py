"""How much memory a model's activations need at least in the order of its file, as the planner has it (see memprof/plan).

What a runtime's arena holds is set beside it, not judged by the byte.
"""

from __future__ import annotations

from pathlib import Path

from ..plan.graphs.read import read
from ..plan.graphs.reduced import problem
from ..plan.orders.problem import peak
from ..runs.records import Job


def highest(job: Job) -> int | None:
    """The largest sum of live activations at the job's shapes, in bytes; None where it cannot be told.

    Inputs from a file have shapes that the job does not say.
    """
    if job.inputs is not None:
        return None
    try:
        graph = read(Path(job.model.path), dict(job.shapes))
        reduced = problem(graph).problem
    except Exception:  # an aid to one finding; whatever is wrong with the model has been said where its weights were read
        return None
    return None if graph.unsized else peak(reduced, range(reduced.count))
