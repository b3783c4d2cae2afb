"""Exact search for the order with the lowest peak: best first over downsets, from the first operator and from the last.

The states are downsets, as in the dynamic programming of Ahn et al. ("Ordering Chaos: memory-aware scheduling of irregularly wired neural
networks for edge devices", MLSys 2020), visited in the order of the peak that reaching them costs (a bottleneck shortest path, so the level
that is being worked on is a lower bound at any time). Commitments make the search small: from a downset S, a larger downset D whose
memory is the least of all between S and D, and that can be reached without passing the level, may be taken at once and nothing else
tried. For any way on from S through X, memory at D ∪ X is at most that at X, by submodularity (the same exchange as in Liu's generalized
pebbling, SIAM J. Algebraic Discrete Methods 1987, which is its case of a tree).

Working in place makes an operator cheaper once the input's other readers ("rivals") are done, so moving these later can cost more: walking
from the end, and for commitments that are no chain, nothing is committed that moves a rival.
"""

from __future__ import annotations

import heapq
from itertools import count, pairwise

from .bits import Bits, StepCost, backwards, forwards, mask, members, readied

_CONE = 24


class Walk:
    """One direction of the search. level: no order has a peak below it. order: an order whose peak is the level, None until it is found."""

    def __init__(self, graph: Bits, forward: bool, level: int, upper: int) -> None:
        self._graph = graph
        self._forward = forward
        self._before, self._after = (graph.before, graph.after) if forward else (graph.after, graph.before)
        self._cost: StepCost = forwards(graph) if forward else backwards(graph)
        self.level = level
        self.upper = upper
        self.order: tuple[int, ...] | None = None
        self.states = 0
        self._came: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._stack: list[tuple[int, int, int]] = []
        self._later: list[tuple[int, int, int, int, int, int]] = []
        self._ticket = count()
        self._came[0] = (0, ())
        self._enter(0, graph.given if forward else graph.kept, self._ready(0))

    @property
    def exhausted(self) -> bool:
        """Nothing is left below the upper bound: that is the best peak."""
        return self.level >= self.upper

    def advance(self, states: int) -> None:
        """Expand that many states, or fewer where the search ends."""
        until = self.states + states
        while self.order is None and not self.exhausted and self.states < until:
            if self._stack:
                self._expand(*self._stack.pop())
            else:
                self._rise()

    def _rise(self) -> None:
        """Go on at the next level."""
        while self._later and self._later[0][2] in self._came:
            heapq.heappop(self._later)
        if not self._later or self._later[0][0] >= self.upper:
            self.level = self.upper
            return
        self.level = max(self.level, self._later[0][0])
        while self._later and self._later[0][0] <= self.level:
            _, _, done, source, op, alive = heapq.heappop(self._later)
            if done not in self._came:
                self._came[done] = (source, (op,))
                self._enter(done, alive, self._ready(done))

    def _ready(self, done: int) -> int:
        return mask(op for op in members(self._graph.all & ~done) if not self._before[op] & ~done)

    def _expand(self, done: int, alive: int, ready: int) -> None:
        self.states += 1
        cost, came, level, upper = self._cost, self._came, self.level, self.upper
        before, after = self._before, self._after
        untried = ready
        while untried:
            bit = untried & -untried
            untried ^= bit
            new = done | bit
            if new in came:
                continue
            op = bit.bit_length() - 1
            memory, now = cost(done, alive, op)
            if memory > level:
                if memory < upper:
                    heapq.heappush(self._later, (memory, next(self._ticket), new, done, op, now))
                continue
            came[new] = (done, (op,))
            self._enter(new, now, ready ^ bit | readied(before, after, new, op))

    def _enter(self, done: int, alive: int, ready: int) -> None:
        """Take every commitment there is from a new state, and keep the state it leads to for expansion."""
        while ready:
            for op in members(ready):
                committed = commitment(
                    self._cost, self._before, self._after, self._graph.rivals, self._forward, done, alive, op, self.level
                )
                if committed is not None:
                    break
            else:
                self._stack.append((done, alive, ready))
                return
            ops, alive = committed
            new = done
            for op in ops:
                new |= 1 << op
            if new in self._came:
                return
            self._came[new] = (done, ops)
            for op in ops:
                ready |= readied(self._before, self._after, new, op)
            ready &= ~new
            done = new
        if done == self._graph.all:
            self._finish()

    def _finish(self) -> None:
        backwards_order: list[int] = []
        done = self._graph.all
        while done:
            done, ops = self._came[done]
            backwards_order += reversed(ops)
        self.order = tuple(reversed(backwards_order)) if self._forward else tuple(backwards_order)
        self.upper = self.level


def commitment(
    cost: StepCost,
    before: tuple[int, ...],
    after: tuple[int, ...],
    rivals: int,
    forward: bool,
    done: int,
    alive: int,
    op: int,
    level: int,
) -> tuple[tuple[int, ...], int] | None:
    """The smallest set of operators that begins with `op` and may be taken at once, in the order to take them, and the bytes alive after it;
    None where there is none, or where the search for it would grow.

    The sets are tried by their number of operators: `op`, and operators that only waited for it or for others of the set. The first set that
    brings memory to its old level or below is the least of all sets within it: a smaller set would have been reached before, at no higher peak.
    """
    if not forward and rivals >> op & 1:
        return None
    memory, now = cost(done, alive, op)
    if memory > level:
        return None
    if now <= alive:
        return (op,), now
    new = done | 1 << op
    frontier: dict[int, tuple[int, int, tuple[int, ...]]] = {new: (now, readied(before, after, new, op), (op,))}
    looked = 0
    while frontier:
        following: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        for state, (held, ready, ops) in frontier.items():
            for other in members(ready):
                bigger = state | 1 << other
                if bigger in following:
                    continue
                if rivals >> other & 1 and not forward:
                    return None
                memory, now = cost(state, held, other)
                if memory > level:
                    continue
                if now <= alive:
                    taken = (*ops, other)
                    if forward and rivals and not _chain(before, taken) and any(rivals >> member & 1 for member in taken):
                        return None
                    return taken, now
                looked += 1
                if looked > _CONE:
                    return None
                following[bigger] = (now, ready & ~(1 << other) | readied(before, after, bigger, other), (*ops, other))
        frontier = following
    return None


def _chain(before: tuple[int, ...], ops: tuple[int, ...]) -> bool:
    """Whether each operator waits for the one before it."""
    return all(before[second] >> first & 1 for first, second in pairwise(ops))
