"""Operators in an order in which they can run, or the cycle that forbids it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...base.errors import InputError
from ..orders.topological import topological
from .graph import Operator


def ordered(operators: Sequence[Operator], made_elsewhere: Iterable[int], names: Sequence[str], where: str) -> tuple[list[Operator], str]:
    """Operators so that each stands behind those whose results it reads, as near to the file's order as that allows; and why that is not the
    file's own order, empty where it is. made_elsewhere: tensors that no operator here makes.

    Raises InputError for a tensor that nothing makes or that two operators make, and for a cycle, which is named.
    """
    maker: dict[int, int] = {}
    for number, operator in enumerate(operators):
        for tensor in operator.writes:
            if tensor in maker:
                raise InputError(f"{where}: {operators[maker[tensor]].name} and {operator.name} both make {names[tensor]}")
            maker[tensor] = number
    known = set(made_elsewhere)
    waits: list[set[int]] = []
    for operator in operators:
        for tensor in operator.reads:
            if tensor not in maker and tensor not in known:
                raise InputError(f"{where}: {operator.name} reads {names[tensor]}, which no operator makes")
        waits.append({maker[tensor] for tensor in operator.reads if tensor in maker})
    order = topological(waits)
    if len(order) < len(operators):
        cycle = _cycle(waits, sorted({*range(len(operators))}.difference(order)))
        raise InputError(f"{where}: the graph has a cycle: {_path(operators, cycle)}")
    late = ((operators[number], operators[source]) for number in order for source in sorted(waits[number]))
    early = next((pair for pair in late if pair[0].place < pair[1].place), None)
    return [operators[number] for number in order], "" if early is None else _moved(*early)


def _moved(reader: Operator, maker: Operator) -> str:
    return (
        f"the file's own order cannot run: {reader.name} stands before {maker.name}, whose result it reads; the model's order shown here is the "
        "file's made topological, always with the first operator in the file that could run next"
    )


def _cycle(waits: Sequence[set[int]], stuck: Sequence[int]) -> list[int]:
    """A cycle among operators of which each waits for another of them."""
    remaining = set(stuck)
    at, seen = stuck[0], dict[int, int]()
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = min(waits[at] & remaining)
    return path[seen[at] :][::-1]


def _path(operators: Sequence[Operator], cycle: Sequence[int]) -> str:
    names = [operators[number].name for number in cycle]
    if len(names) > 6:
        names = [*names[:3], "...", *names[-2:]]
    return " -> ".join([*names, names[0]])
