"""A problem in the form for searching: sets of operators as the bits of an int, and the cost of a step in either direction.

A downset (a set of operators that holds all producers of its members) is all that a step's cost depends on: the memory after it is the same
whatever order led there. That function is submodular (it is a cut of the hypergraph of tensors), which is what bounds and commitments
rest on. The same search can walk in both directions, `forwards` and `backwards`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from .problem import Problem

StepCost = Callable[[int, int, int], tuple[int, int]]


class Bits(Struct, frozen=True):
    """A problem's graph: masks of operators, one for each operator.

    before, after: direct producers and consumers. above, below: all ancestors and all descendants. written: bytes that each operator
    writes; unread: the part of them that nobody wants. inputs: for each operator, (mask of all readers, bytes) of each tensor that it reads and
    the last reader frees. saved: (mask of all readers, bytes) of the input it may overwrite, 0 bytes where there is none. given, kept: bytes.
    rivals: the operators whose reading can keep another operator from working in place.
    """

    count: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    above: tuple[int, ...]
    below: tuple[int, ...]
    written: tuple[int, ...]
    unread: tuple[int, ...]
    inputs: tuple[tuple[tuple[int, int], ...], ...]
    saved: tuple[tuple[int, int], ...]
    given: int
    kept: int
    rivals: int

    @property
    def all(self) -> int:
        """Every operator."""
        return (1 << self.count) - 1


def bits(problem: Problem) -> Bits:
    """The problem's graph as masks. Quadratic in memory at worst: n masks of n bits."""
    count, sizes = problem.count, problem.sizes
    stays = problem.kept | {tensor for tensor in problem.given if not problem.readers[tensor]}
    above, below = [0] * count, [0] * count
    for op in problem.model_order:
        for source in problem.producers[op]:
            above[op] |= above[source] | 1 << source
    for op in reversed(problem.model_order):
        for target in problem.consumers[op]:
            below[op] |= below[target] | 1 << target
    readers = [mask(ops) for ops in problem.readers]
    outputs = [tuple(dict.fromkeys(tensors)) for tensors in problem.writes]
    freed = [tuple(tensor for tensor in dict.fromkeys(tensors) if tensor not in stays and sizes[tensor]) for tensors in problem.reads]
    saved = tuple((0, 0) if source is None else (readers[source], sizes[source]) for source in problem.overwrites)
    return Bits(
        count=count,
        before=tuple(mask(ops) for ops in problem.producers),
        after=tuple(mask(ops) for ops in problem.consumers),
        above=tuple(above),
        below=tuple(below),
        written=tuple(sum(sizes[tensor] for tensor in tensors) for tensors in outputs),
        unread=tuple(sum(sizes[tensor] for tensor in tensors if not readers[tensor] and tensor not in stays) for tensors in outputs),
        inputs=tuple(tuple((readers[tensor], sizes[tensor]) for tensor in tensors) for tensors in freed),
        saved=saved,
        given=sum(sizes[tensor] for tensor in problem.given),
        kept=sum(sizes[tensor] for tensor in stays),
        rivals=mask({other for op, (others, size) in enumerate(saved) if size for other in members(others) if other != op}),
    )


def mask(ops: Iterable[int]) -> int:
    """Operators as bits."""
    operators = 0
    for op in ops:
        operators |= 1 << op
    return operators


def members(operators: int) -> Iterator[int]:
    """The operators of a mask, ascending."""
    while operators:
        low = operators & -operators
        yield low.bit_length() - 1
        operators ^= low


def readied(before: tuple[int, ...], after: tuple[int, ...], done: int, op: int) -> int:
    """The operators, as a mask, that an operator makes ready. before, after: as in `Bits`, or changed places for the way back. done: `op` too."""
    operators = 0
    for other in members(after[op]):
        if not before[other] & ~done:
            operators |= 1 << other
    return operators


def forwards(graph: Bits) -> StepCost:
    """(operators done, bytes alive after them, an operator that is ready) -> (memory of its step, bytes alive after it)."""
    written, unread, inputs, saved = graph.written, graph.unread, graph.inputs, graph.saved

    def cost(done: int, alive: int, op: int) -> tuple[int, int]:
        left = ~(done | 1 << op)
        memory = alive + written[op]
        after = memory - unread[op]
        for readers, size in inputs[op]:
            if not readers & left:
                after -= size
        readers, size = saved[op]
        if size and not readers & left:
            memory -= size
        return memory, after

    return cost


def backwards(graph: Bits) -> StepCost:
    """(operators to come, bytes alive before them, an operator that may run right before) -> (memory of its step, bytes alive before it)."""
    written, unread, inputs, saved = graph.written, graph.unread, graph.inputs, graph.saved

    def cost(later: int, alive: int, op: int) -> tuple[int, int]:
        memory = alive + unread[op]
        for readers, size in inputs[op]:
            if not readers & later:
                memory += size
        before = memory - written[op]
        readers, size = saved[op]
        if size and not readers & later:
            memory -= size
        return memory, before

    return cost
