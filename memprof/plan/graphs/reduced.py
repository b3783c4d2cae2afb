"""A graph as the planner's problem: operators, sizes, lifetimes."""

from __future__ import annotations

from msgspec import Struct

from ..orders.problem import Problem, peak
from .graph import Graph, Operator


class Mapped(Struct, frozen=True):
    """A problem and the meaning of its numbers.

    operators, kinds, tensors: names of the problem's operators and tensors. weights: those that each operator needs, its bodies'
    included. work: multiply-adds of each, None where not known. At first the problem's tensors are the graph's; more follow: the working memory
    of bodies, and orders that are kept without a tensor.
    """

    problem: Problem
    operators: tuple[str, ...]
    kinds: tuple[str, ...]
    tensors: tuple[str, ...]
    weights: tuple[tuple[int, ...], ...]
    work: tuple[int | None, ...]


def problem(graph: Graph, in_place: bool = False) -> Mapped:
    """A graph as a problem. A tensor of unknown size counts 0: `Graph.unsized` must stand beside any figure.

    A body's memory beyond the operator's results is a tensor that only this operator touches. Stateful operators keep their order through
    tensors of 0 bytes.
    """
    sizes = [tensor.bytes or 0 for tensor in graph.tensors]
    names = [tensor.name for tensor in graph.tensors]
    reads = [list(operator.reads) for operator in graph.operators]
    writes = [list(operator.writes) for operator in graph.operators]

    def add(name: str, bytes: int) -> int:
        names.append(name)
        sizes.append(bytes)
        return len(sizes) - 1

    chain: int | None = None
    for number, operator in enumerate(graph.operators):
        if working := working_bytes(graph, operator):
            writes[number].append(add(f"{operator.name} (inside)", working))
        if operator.stateful:
            if chain is not None:
                reads[number].append(chain)
            chain = add(f"{operator.name} (done)", 0)
            writes[number].append(chain)
    persistent = {number for number, tensor in enumerate(graph.tensors) if tensor.persistent}
    reduced = Problem(
        sizes=tuple(sizes),
        reads=tuple(map(tuple, reads)),
        writes=tuple(map(tuple, writes)),
        given=frozenset({*graph.inputs, *persistent}),
        kept=frozenset({*graph.outputs, *persistent, *(graph.inputs if graph.keeps_inputs else ())}),
        inplace=tuple(operator.overwrites for operator in graph.operators) if in_place else (),
        names=tuple(operator.name for operator in graph.operators),
    )
    return Mapped(
        problem=reduced,
        operators=reduced.names,
        kinds=tuple(operator.kind for operator in graph.operators),
        tensors=tuple(names),
        weights=tuple(needed_weights(operator) for operator in graph.operators),
        work=tuple(operator.work for operator in graph.operators),
    )


def needed_weights(operator: Operator) -> tuple[int, ...]:
    """The weights that an operator and its bodies read, each once."""
    inner = [number for body in operator.bodies for inner_operator in body.graph.operators for number in needed_weights(inner_operator)]
    return tuple(dict.fromkeys((*operator.weights, *inner)))


def working_bytes(graph: Graph, operator: Operator) -> int:
    """The bytes that an operator's bodies need beyond its results, in their own order: those of the branch that needs most, as only one runs.

    A branch's results are the operator's. The body of a loop holds its own inputs and results too, which become the next round's.
    """
    results = sum(graph.tensors[number].bytes or 0 for number in operator.writes)
    most = 0
    for body in operator.bodies:
        inner = problem(body.graph).problem
        needed = peak(inner, range(inner.count))
        most = max(most, needed if body.repeated else needed - results)
    return max(most, 0)
