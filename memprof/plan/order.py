"""The order of operators with the lowest peak, and whether that is proven."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from . import heuristics
from .bits import bits
from .bounds import lower_bound
from .problem import Problem, steps
from .search import Walk, run

_SLICE = 500
_STATES = 4_000_000
_BEAM = 32


@dataclass(frozen=True)
class Best:
    """The best order found. No order has a peak below lower_bound_bytes; proven: peak_bytes is that bound. how: what found it and what proved
    it, in words. bottleneck: the operator whose minimum cut is the bound, where it is one."""

    order: tuple[int, ...]
    peak_bytes: int
    lower_bound_bytes: int
    proven: bool
    how: str
    bottleneck: int | None = None


def best_order(problem: Problem, time_limit_s: float = 10.0) -> Best:
    """The order of a graph with the lowest peak that could be found.

    Heuristics give an order, minimum cuts a bound, and where these do not meet an exact search closes the gap from both ends. Everything is
    deterministic but for the clock: a time limit that is reached can only leave the answer unproven, an interval in place of a figure.
    """
    end = time.monotonic() + time_limit_s
    return _Attempt(problem, lambda: time.monotonic() > end).best()


class _Attempt:
    def __init__(self, problem: Problem, expired: Callable[[], bool]) -> None:
        self.problem = problem
        self.expired = expired
        self.order: tuple[int, ...] = ()
        self.peak = -1
        self.seen: dict[int, int] = {}
        self.found_by = ""

    def take(self, order: tuple[int, ...] | None, name: str) -> None:
        """Keep an order if it is better; learn what each step needed in it in any case."""
        if order is None:
            return
        found = steps(self.problem, order)
        for step in found:
            self.seen[step.op] = min(step.memory_bytes, self.seen.get(step.op, step.memory_bytes))
        highest = found[-1].peak_bytes if found else sum(self.problem.sizes[tensor] for tensor in self.problem.given)
        if self.peak < 0 or highest < self.peak:
            self.order, self.peak, self.found_by = order, highest, name

    def best(self) -> Best:
        problem = self.problem
        self.take(heuristics.model_order(problem), "the model's order")
        if not problem.count:
            return Best((), self.peak, self.peak, True, "there is nothing to order")
        graph = bits(problem)
        self.take(heuristics.depth_first(problem), "depth first")
        self.take(heuristics.plain_depth_first(problem), "depth first")
        self.take(heuristics.greedy(problem, graph), "greedy")
        self.take(heuristics.greedy_backwards(problem, graph), "greedy from the end")
        bound = lower_bound(problem, graph, self.seen, self.peak, self.expired)
        for forward in (True, False):
            if self.peak > bound.bytes:
                self.take(heuristics.beam(graph, _BEAM, forward, self.peak, self.expired), "a beam search")
        if self.peak <= bound.bytes:
            return Best(self.order, self.peak, bound.bytes, True, f"{self.found_by}; proven by a minimum cut", bound.op)
        walks = (Walk(graph, True, bound.bytes, self.peak), Walk(graph, False, bound.bytes, self.peak))
        run(walks, _SLICE, _STATES, self.expired)
        for walk in walks:
            self.take(walk.order, "exact search")
        lower = min(self.peak, max(walk.level for walk in walks))
        if lower >= self.peak:
            return Best(self.order, self.peak, lower, True, f"{self.found_by}; proven by exact search", bound.op if bound.bytes == lower else None)
        return Best(self.order, self.peak, lower, False, f"{self.found_by}; the search for a proof was not finished", None)
