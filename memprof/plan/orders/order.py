"""The order of operators with the lowest peak, and whether that is proven."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct

from . import heuristics
from .bits import bits
from .bounds import lower_bound
from .problem import Problem, steps
from .search import Walk
from .spgraph import series_parallel
from .split import Piece, pieces

_ROUNDS = 12
_BEAM = 8
_SLICE = 400
_STATES = 4_000_000


class Best(Struct, frozen=True):
    """The best order found. No order has a peak below lower_bound_bytes; proven: peak_bytes is that bound. how: what found it and what proved
    it, in words."""

    order: tuple[int, ...]
    peak_bytes: int
    lower_bound_bytes: int
    proven: bool
    how: str


def best_order(problem: Problem, time_limit_s: float = 10.0) -> Best:
    """The order of a graph with the lowest peak that could be found.

    The graph is cut into pieces where it can be. Heuristics give an order of each, and minimum cuts a bound. Where these do not meet, beams
    and an exact search from both ends close the gap in rounds of growing effort. Work is counted in states, so that the same graph has the
    same answer. Only a time limit that is reached ends the rounds early, and leaves an interval in place of a figure.
    """
    end = time.monotonic() + time_limit_s

    def expired() -> bool:
        return time.monotonic() > end

    if not problem.count:
        given = sum(problem.sizes[tensor] for tensor in problem.given)
        return Best((), given, given, True, "there is nothing to order")
    parts = [_Part(piece) for piece in pieces(problem, bits(problem))]
    for part in parts:
        part.begin(expired)
    lower = max(part.lower for part in parts)
    for part in sorted(parts, key=lambda part: (-part.peak, part.piece.ops)):
        if part.peak > lower:
            part.cut(lower, expired)
            lower = max(lower, part.lower)
    for round_ in range(_ROUNDS):
        for part in sorted(parts, key=lambda part: (-part.peak, part.piece.ops)):
            if part.peak > lower and not expired():
                part.work(round_, lower, expired)
                lower = max(lower, part.lower)
    return _joined(problem, parts, lower)


def _joined(problem: Problem, parts: list[_Part], lower: int) -> Best:
    order = tuple(part.piece.ops[op] for part in parts for op in part.order)
    highest = steps(problem, order)[-1].peak_bytes
    worst = max(parts, key=lambda part: part.peak)
    forcing = max(parts, key=lambda part: part.lower)
    if highest <= lower:
        proven_by = "there being no other order" if _only(problem, order) else forcing.proven_by
        return Best(order, highest, highest, True, f"{worst.found_by}; proven by {proven_by}")
    return Best(order, highest, lower, False, f"{worst.found_by}; the search for a proof was not finished")


def _only(problem: Problem, order: Sequence[int]) -> bool:
    """Whether no other order is possible: each operator reads a result of the one before it."""
    return all(before in problem.producers[op] for before, op in pairwise(order))


class _Part:
    """A piece of the graph, its best order and best bound so far, and the searches under way."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.graph = bits(piece.problem)
        self.order: tuple[int, ...] = ()
        self.peak = -1
        self.lower = max(self.graph.given, self.graph.kept)
        self.found_by = ""
        self.proven_by = "what is given or kept"
        self._least_seen: dict[int, int] = {}
        self._walks: tuple[Walk, ...] = ()

    def take(self, order: tuple[int, ...] | None, name: str) -> None:
        """Keep an order if it is better; in any case learn how much each step needed in it."""
        if order is None:
            return
        costs = steps(self.piece.problem, order)
        for step in costs:
            self._least_seen[step.op] = min(step.memory_bytes, self._least_seen.get(step.op, step.memory_bytes))
        if self.peak < 0 or costs[-1].peak_bytes < self.peak:
            self.order, self.peak, self.found_by = order, costs[-1].peak_bytes, name

    def begin(self, expired: Callable[[], bool]) -> None:
        """Try the orders that cost next to nothing."""
        problem = self.piece.problem
        self.take(problem.model_order, "the model's order")
        if len(self.order) == 1:
            self.lower, self.proven_by = self.peak, "what one operator needs in any order"
            return
        exact = series_parallel(problem, self.graph)
        if exact is not None:
            self.take(exact, "the algorithm for series-parallel graphs")
            self.lower, self.proven_by = self.peak, "the algorithm for series-parallel graphs"
            return
        self.take(heuristics.depth_first(problem), "depth first")
        self.take(heuristics.greedy(self.graph, expired), "greedy choice")
        self.take(heuristics.greedy_backwards(self.graph, expired), "greedy choice from the end")

    def cut(self, enough: int, expired: Callable[[], bool]) -> None:
        """The bound by minimum cuts, without operators that cannot need more than `enough` bytes."""
        useful = {op: memory for op, memory in self._least_seen.items() if memory > enough}
        bound = lower_bound(self.piece.problem, self.graph, useful, self.peak, expired)
        if bound > self.lower:
            self.lower, self.proven_by = bound, "a minimum cut"

    def work(self, round_: int, enough: int, expired: Callable[[], bool]) -> None:
        """One round: beams and search from both ends, four times as much as in the round before. Peaks up to `enough` are as good as any."""
        for forward in (True, False):
            if self.peak > enough:
                beam = heuristics.beam(self.graph, _BEAM << 2 * round_, forward, self.peak, expired)
                self.take(beam.order, "a beam search")
                if beam.order is None and beam.complete:
                    self._prove(self.peak)
                    return
        if self.peak <= enough:
            return
        if not self._walks:
            self._walks = tuple(Walk(self.graph, forward, max(enough, self.lower), self.peak) for forward in (True, False))
        until = min(sum(walk.states for walk in self._walks) + 2 * (_SLICE << 2 * round_), _STATES)
        while sum(walk.states for walk in self._walks) < until and not expired():
            for walk in self._walks:
                walk.upper = min(walk.upper, self.peak)
                walk.advance(_SLICE)
                self.take(walk.order, "exact search")
                if walk.order is not None or walk.exhausted:
                    self._prove(min(walk.level, self.peak))
                    return
                self._prove(walk.level)

    def _prove(self, level: int) -> None:
        if level > self.lower:
            self.lower, self.proven_by = level, "exact search"
