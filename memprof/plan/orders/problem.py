"""A graph of operators reduced to all that memory depends on, and the cost of an order of its operators.

The model of memory is the usual one of static planners (TFLite's arena, Serenity's dynamic programming: Ahn et al., "Ordering Chaos", MLSys
2020). A tensor takes its bytes from the step that writes it up to and with the step of its last reader. A step needs its inputs, its
outputs and all that a later step still reads. The scratch memory of kernels is left out.

    given     is there before the first step, and goes after its last reader; without a reader nothing ever frees it (so does TFLite)
    kept      is wanted after the last step, and stays
    unread    a tensor that is written and neither read nor kept takes its bytes in the step that writes it, and no longer
    in place  an operator may write one output over one input of the same size, in the step that is the input's last use
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from ...base.errors import InputError
from .topological import topological


class Problem(Struct, frozen=True, dict=True):
    """A graph: tensors and operators by number.

    sizes: bytes of each tensor. reads, writes: the tensors that each operator reads and writes. given, kept: tensors that are there before the
    first operator, and tensors wanted after the last. inplace: for each operator (input it may overwrite, output written there), or None; empty
    where no operator may. It has effect where both tensors have the same size and the input is not kept. names: of the operators, for messages.

    Raises InputError where a tensor is read and neither written nor given, is written twice, or where the operators form a cycle.
    """

    sizes: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    given: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    inplace: tuple[tuple[int, int] | None, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        writer: dict[int, int] = {}
        for op, tensors in enumerate(self.writes):
            for tensor in tensors:
                if tensor in writer or tensor in self.given:
                    raise InputError(f"tensor {tensor} is written by {self.name(op)} and has a source already")
                writer[tensor] = op
        for op, tensors in enumerate(self.reads):
            for tensor in tensors:
                if tensor not in writer and tensor not in self.given:
                    raise InputError(f"tensor {tensor} is read by {self.name(op)} and nothing writes it")
        if len(self.model_order) < self.count:
            stuck = min({*range(self.count)}.difference(self.model_order))
            raise InputError(
                f"the graph has a cycle: {self.name(stuck)} waits for its own result or for that of another operator that does"
            )

    def name(self, op: int) -> str:
        """The operator's name, or its number where there are no names."""
        return self.names[op] if self.names else f"operator {op}"

    @property
    def count(self) -> int:
        """How many operators there are."""
        return len(self.reads)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The operators that read each tensor, each once, in ascending order."""
        readers: list[list[int]] = [[] for _ in self.sizes]
        for op, tensors in enumerate(self.reads):
            for tensor in dict.fromkeys(tensors):
                readers[tensor].append(op)
        return tuple(map(tuple, readers))

    @cached_property
    def writer(self) -> tuple[int | None, ...]:
        """The operator that writes each tensor, None for a given tensor and for one that nothing touches."""
        writer: list[int | None] = [None] * len(self.sizes)
        for op, tensors in enumerate(self.writes):
            for tensor in tensors:
                writer[tensor] = op
        return tuple(writer)

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """The operators that write what each operator reads, each once, in ascending order."""
        writer = self.writer
        return tuple(tuple(sorted({source for tensor in tensors if (source := writer[tensor]) is not None})) for tensors in self.reads)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """The operators that read what each operator writes, each once, in ascending order."""
        return tuple(tuple(sorted({op for tensor in tensors for op in self.readers[tensor]})) for tensors in self.writes)

    @cached_property
    def model_order(self) -> tuple[int, ...]:
        """The operators as the model has them where they can run so; else as they become ready, the lowest number first."""
        return tuple(topological(self.producers))

    @cached_property
    def overwrites(self) -> tuple[int | None, ...]:
        """The input that each operator may overwrite, None where it may not or where that could have no effect."""
        if not self.inplace:
            return (None,) * self.count
        return tuple(pair[0] if pair and self._may_overwrite(*pair) else None for pair in self.inplace)

    def _may_overwrite(self, source: int, target: int) -> bool:
        return self.sizes[source] == self.sizes[target] and source not in self.kept


class OrderStep(Struct, frozen=True):
    """An operator of an order and its needs while it runs.

    in_use_bytes: its inputs and outputs (an output written over an input counts once); keep_bytes: other tensors that are still
    wanted later; memory_bytes: both together; peak_bytes: the most of any step so far. in_use: its tensors; `keeping` has the others.
    """

    op: int
    in_use: tuple[int, ...]
    in_use_bytes: int
    keep_bytes: int
    memory_bytes: int
    peak_bytes: int


class Buffer(Struct, frozen=True):
    """A piece of memory and when it is needed: from step `lower` to before step `upper`, in bytes. id: the tensor that lies in it, or the
    first of those that share it in place."""

    id: int
    lower: int
    upper: int
    size: int


def steps(problem: Problem, order: Sequence[int]) -> tuple[OrderStep, ...]:
    """The needs of each step of an order. Raises ValueError where it is no order of this graph. Linear in the size of the graph."""
    last = _last_uses(problem, order)
    sizes = problem.sizes
    ending: list[list[int]] = [[] for _ in order]
    for tensor, position in enumerate(last):
        if 0 <= position < len(order):
            ending[position].append(tensor)
    alive = sum(sizes[tensor] for tensor in problem.given)
    costs: list[OrderStep] = []
    highest = 0
    for position, op in enumerate(order):
        in_use = tuple(dict.fromkeys((*problem.reads[op], *problem.writes[op])))
        written = sum(sizes[tensor] for tensor in dict.fromkeys(problem.writes[op]))
        source = problem.overwrites[op]
        shared = sizes[source] if source is not None and last[source] == position else 0
        memory = alive + written - shared
        used = sum(sizes[tensor] for tensor in in_use) - shared
        highest = max(highest, memory)
        costs.append(OrderStep(op, in_use, used, memory - used, memory, highest))
        alive += written - sum(sizes[tensor] for tensor in ending[position])
    return tuple(costs)


def peak(problem: Problem, order: Sequence[int]) -> int:
    """The most bytes that any step of an order needs; without any step, the bytes of the tensors given."""
    costs = steps(problem, order)
    return costs[-1].peak_bytes if costs else sum(problem.sizes[tensor] for tensor in problem.given)


def keeping(problem: Problem, order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """For each step the tensors that are alive and that it neither reads nor writes, ascending. They come step by step, for together they can
    be as large as the square of the graph."""
    last = _last_uses(problem, order)
    alive = set(problem.given)
    for position, op in enumerate(order):
        yield tuple(sorted(alive.difference(problem.reads[op])))
        alive.update(problem.writes[op])
        alive.difference_update([tensor for tensor in (*problem.reads[op], *problem.writes[op]) if last[tensor] == position])


def kept_at(problem: Problem, order: Sequence[int], position: int) -> tuple[int, ...]:
    """The tensors that `keeping` has for one step, without all the steps before it."""
    last, born = _last_uses(problem, order), _births(problem, order)
    reads = problem.reads[order[position]]
    there = (tensor for tensor in range(len(last)) if tensor in problem.given or 0 <= born[tensor] < position)
    return tuple(tensor for tensor in there if last[tensor] >= position and tensor not in reads)


def lifetimes(problem: Problem, order: Sequence[int]) -> tuple[Buffer, ...]:
    """The buffers of an order, by first step and then by tensor; lifetimes are half-open, [lower, upper) in steps.

    Tensors that share memory in place are one buffer, named after the first; `aliases` says which. Tensors of 0 bytes have none.
    """
    last = _last_uses(problem, order)
    root = _roots(problem, order, last)
    born = _births(problem, order)
    spans: dict[int, tuple[int, int]] = {}
    for tensor, size in enumerate(problem.sizes):
        if size and born[tensor] >= 0:
            lower, upper = born[tensor], last[tensor] + 1
            known = spans.get(root[tensor], (lower, upper))
            spans[root[tensor]] = (min(known[0], lower), max(known[1], upper))
    buffers = [Buffer(tensor, lower, min(upper, max(len(order), 1)), problem.sizes[tensor]) for tensor, (lower, upper) in spans.items()]
    return tuple(sorted(buffers, key=lambda buffer: (buffer.lower, buffer.id)))


def aliases(problem: Problem, order: Sequence[int]) -> tuple[int, ...]:
    """For each tensor the tensor in whose buffer it lies under this order: itself, unless it is written in place."""
    return _roots(problem, order, _last_uses(problem, order))


def _roots(problem: Problem, order: Sequence[int], last: Sequence[int]) -> tuple[int, ...]:
    root = list(range(len(problem.sizes)))
    for position, op in enumerate(order):
        source = problem.overwrites[op]
        if source is not None and last[source] == position:
            pair = problem.inplace[op]
            assert pair is not None
            root[pair[1]] = root[source]
    return tuple(root)


def _births(problem: Problem, order: Sequence[int]) -> list[int]:
    """The step that writes each tensor; 0 for a given tensor, -1 for one that nothing touches."""
    born = [-1] * len(problem.sizes)
    for tensor in problem.given:
        born[tensor] = 0
    for position, op in enumerate(order):
        for tensor in problem.writes[op]:
            born[tensor] = position
    return born


def _last_uses(problem: Problem, order: Sequence[int]) -> list[int]:
    """The last step that needs each tensor: the number of steps for a tensor that stays, -1 for one that nothing touches."""
    if sorted(order) != list(range(problem.count)):
        raise ValueError(f"an order names each of the {problem.count} operators once")
    last = [-1] * len(problem.sizes)
    written = set(problem.given)
    for position, op in enumerate(order):
        for tensor in problem.reads[op]:
            if tensor not in written:
                raise ValueError(f"{problem.name(op)} stands before the operator whose result it reads")
            last[tensor] = position
        for tensor in problem.writes[op]:
            written.add(tensor)
            last[tensor] = position
    for tensor in problem.given:
        if last[tensor] < 0:
            last[tensor] = len(order)
    for tensor in problem.kept:
        last[tensor] = len(order)
    return last
