"""Orders that are good without proof: upper bounds for the exact search, and the measure of its gain.

All of them are deterministic: ties go to the operator with the lowest number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

from msgspec import Struct

from .bits import Bits, StepCost, backwards, forwards, mask, members, readied
from .problem import Problem


def depth_first(problem: Problem) -> tuple[int, ...]:
    """Post-order from the operators whose results nobody reads: of an operator's producers the one with most memory to free goes first.

    Sethi and Ullman's rule for registers ("The generation of optimal code for arithmetic expressions", JACM 1970) on a graph: producers by
    the peak that their own subtree needs less what it leaves, as Liu orders trees ("On the storage requirement in the out-of-core multifrontal
    method", ACM TOMS 1986).
    """
    need, left = _tree_needs(problem)
    return post_order(problem, lambda op: _by_gain(problem.producers[op], need, left))


def post_order(problem: Problem, producers: Callable[[int], Iterable[int]]) -> tuple[int, ...]:
    """Each operator behind its producers, from the operators whose results nobody reads. producers: of an operator, in the order to take them."""
    order: dict[int, None] = {}
    for last in range(problem.count):
        if problem.consumers[last]:
            continue
        stack = [(last, iter(producers(last)))]
        open_ = {last}
        while stack:
            op, untried = stack[-1]
            for source in untried:
                if source not in order and source not in open_:
                    stack.append((source, iter(producers(source))))
                    open_.add(source)
                    break
            else:
                stack.pop()
                order[op] = None
    return tuple(order)


def _tree_needs(problem: Problem) -> tuple[list[int], list[int]]:
    """For each operator the peak of its ancestors as if they were a tree, and the bytes it leaves behind."""
    need, left = [0] * problem.count, [0] * problem.count
    for op in problem.model_order:
        held = highest = 0
        for source in _by_gain(problem.producers[op], need, left):
            highest = max(highest, held + need[source])
            held += left[source]
        left[op] = sum(problem.sizes[tensor] for tensor in problem.writes[op])
        need[op] = max(highest, held + left[op])
    return need, left


def _by_gain(sources: Iterable[int], need: list[int], left: list[int]) -> list[int]:
    """Operators by the memory that is free again after their peak, the most first."""
    return sorted(sources, key=lambda source: (left[source] - need[source], source))


def greedy(graph: Bits, expired: Callable[[], bool] = bool) -> tuple[int, ...] | None:
    """Always the ready operator after which least is alive, then the one whose step needs least; None where time was up before the end."""
    return _greedy(graph, graph.before, graph.after, forwards(graph), _freed, expired)


def greedy_backwards(graph: Bits, expired: Callable[[], bool] = bool) -> tuple[int, ...] | None:
    """The rule of `greedy`, from the last operator to the first."""
    order = _greedy(graph, graph.after, graph.before, backwards(graph), _begun, expired)
    return order and order[::-1]


def _greedy(
    graph: Bits,
    before: tuple[int, ...],
    after: tuple[int, ...],
    cost: StepCost,
    changed: Callable[[int, int, int], int],
    expired: Callable[[], bool],
) -> tuple[int, ...] | None:
    """changed: (readers of a tensor that an operator reads, operators done, that operator) -> the readers whose cost that operator changes.

    The bytes by which a step changes memory stay the same until another reader of its inputs has run, so that the ready operators wait in a heap.
    A tensor that all operators read would otherwise have each of them weighed again at every step.
    """
    done = 0
    order: list[int] = []
    weights: dict[int, tuple[int, int, int]] = {}  # of the operators that are ready
    waiting: list[tuple[int, int, int]] = []

    def weigh(op: int) -> None:
        memory, alive = cost(done, 0, op)
        weights[op] = (alive, memory, op)
        heappush(waiting, weights[op])

    for op in range(graph.count):
        if not before[op]:
            weigh(op)
    while waiting:
        weight = heappop(waiting)
        op = weight[2]
        if weights.get(op) != weight:
            continue  # it has been weighed again since, or has run
        if len(order) & 63 == 0 and expired():
            return None
        del weights[op]
        done |= 1 << op
        order.append(op)
        for readers, _ in (*graph.inputs[op], graph.saved[op]):
            for other in members(changed(readers, done, op)):
                if other in weights:
                    weigh(other)
        for other in members(readied(before, after, done, op)):
            weigh(other)
    return tuple(order)


def _freed(readers: int, done: int, _: int) -> int:
    """The last reader that is left of a tensor frees it."""
    left = readers & ~done
    return left if left & (left - 1) == 0 else 0


def _begun(readers: int, later: int, op: int) -> int:
    """On the way back the first reader that is met brings a tensor to life, so that the others need no more for it."""
    others = readers & ~(1 << op)
    return others if not others & later else 0


# The highest memory so far, bytes alive, the operators that are ready, and (operator, state) that led here.
_Partial = tuple[int, int, int, Any]


class Beam(Struct, frozen=True):
    """The result of a beam search: an order with a peak below the one to beat, or None. complete: no state was left out, so that None means
    that there is no such order."""

    order: tuple[int, ...] | None
    complete: bool


def beam(graph: Bits, width: int, forward: bool, upper: int, expired: Callable[[], bool]) -> Beam:
    """Look at no more than `width` downsets of each size for an order whose peak is below `upper` bytes.

    Of equally many operators those with the lowest peak so far are kept, then those with least alive. An operator that lowers memory, and
    raises no peak, is taken at once (the smallest commitment of search.py).
    """
    before, after, cost, start = (
        (graph.before, graph.after, forwards(graph), graph.given) if forward else (graph.after, graph.before, backwards(graph), graph.kept)
    )
    if start >= upper:
        return Beam(None, True)
    movable = graph.all if forward else graph.all & ~graph.rivals
    layer: dict[int, _Partial] = {0: (start, start, mask(op for op in range(graph.count) if not before[op]), None)}
    complete = True
    for _ in range(graph.count):
        if expired():
            return Beam(None, False)
        states = sorted(layer.items(), key=lambda item: (item[1][0], item[1][1], item[0]))
        complete = complete and len(states) <= width
        layer = {}
        for done, state in states[:width]:
            highest, alive, ready, _ = state
            successors = []
            for op in members(ready):
                memory, now = cost(done, alive, op)
                if now <= alive and memory <= highest and movable >> op & 1:
                    successors = [(memory, now, op)]
                    break
                if memory < upper:
                    successors.append((memory, now, op))
            for memory, now, op in successors:
                new = done | 1 << op
                known = layer.get(new)
                if known is None or known[0] > max(highest, memory):
                    layer[new] = (max(highest, memory), now, ready & ~(1 << op) | readied(before, after, new, op), (op, state))
    if not layer:
        return Beam(None, complete)
    order: list[int] = []
    (state,) = layer.values()
    while state[3] is not None:
        op, state = state[3]
        order.append(op)
    return Beam(tuple(order[::-1] if forward else order), complete)
