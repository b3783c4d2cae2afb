"""The least memory that a model's activations need in the order of its file, as the planner has it (see memprof/plan).

The bytes in a runtime's arena are set beside it, and not judged by the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..plan.graphs.read import read
from ..plan.graphs.reduced import problem
from ..plan.orders.problem import peak


def highest(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """The largest sum of live activations, in bytes; None if it cannot be told. shapes: of inputs, by name."""
    try:
        graph = read(path, dict(shapes))
        reduced = problem(graph).problem
    except Exception:  # an aid to one finding; an error in the model was reported where its weights were read
        return None
    return None if graph.unsized else peak(reduced, range(reduced.count))
