"""The least memory that a model's activations need in the order of its file, as the planner has it (see memprof/plan).

The bytes in a runtime's arena are set beside it, and not judged by the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ..plan.graphs.graph import Graph
from ..plan.graphs.read import read
from ..plan.graphs.reduced import problem
from ..plan.orders.problem import peak


class GraphFacts(Struct, frozen=True):
    """What a model's graph tells. highest_bytes: the largest sum of live activations, None if it cannot be told. loops: an operator runs a graph
    again and again, such as Loop, Scan or WHILE."""

    highest_bytes: int | None = None
    loops: bool = False


def of_graph(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> GraphFacts:
    """The facts of a model's graph, as far as they can be told. shapes: of inputs, by name."""
    try:
        graph = read(path, dict(shapes))
        reduced = problem(graph).problem
    except Exception:  # an aid to two findings; an error in the model was reported where its weights were read
        return GraphFacts()
    return GraphFacts(None if graph.unsized else peak(reduced, range(reduced.count)), _loops(graph))


def _loops(graph: Graph) -> bool:
    return any(body.repeated or _loops(body.graph) for operator in graph.operators for body in operator.bodies)
