"""Series-parallel graphs: the best order in polynomial time.

Where each tensor has a reader that no other reader of it can follow, the bytes that an operator frees do not depend on the order. The operator
raises memory by its outputs, the hill, and leaves it changed by a net amount. The lowest peak is then the scheduling of jobs to minimise the
maximum cumulative cost. For series-parallel precedence this is solved by keeping every part of the graph as a sequence of segments that no
optimal order needs to break: Abdel-Wahab and Kameda, "Scheduling to minimize maximum cumulative cost subject to series-parallel
precedence constraints" (Operations Research 1978), Monma and Sidney, "Sequencing with series-parallel precedence constraints" (Mathematics
of Operations Research 1979). Trees are the case that Liu solved as generalized pebbling (SIAM J. Algebraic Discrete Methods 1987), and
task graphs with a file for each edge that of Kayaaslan, Lambert, Marchal and Uçar (TCS 2018).

A tensor that several parallel branches read is freed by the last of them; search.py solves such graphs.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .bits import Bits, mask, members
from .problem import Problem


class Segment(Struct, frozen=True):
    """Operators that run one after the other: how far memory rises above where it was, and by how much it has changed at the end (bytes)."""

    hill: int
    net: int
    ops: tuple[int, ...]

    @property
    def rank(self) -> tuple[int, int]:
        """Segments that are free to move run in ascending order of rank: first those that lower memory, the lowest hill first; then those that
        raise it, the deepest fall from its hill first."""
        return (0, self.hill) if self.net <= 0 else (1, self.net - self.hill)

    def then(self, other: Segment) -> Segment:
        """Both as one segment."""
        return Segment(max(self.hill, self.net + other.hill), self.net + other.net, self.ops + other.ops)


def series_parallel(problem: Problem, graph: Bits) -> tuple[int, ...] | None:
    """The order with the lowest peak, or None where the graph is not of this kind."""
    jobs = _jobs(problem, graph)
    if jobs is None:
        return None
    parts = _decompose(graph)
    if parts is None:
        return None
    solved: dict[int, list[Segment]] = {}
    for part in reversed(parts):
        if part.branches:
            solved[id(part)] = _merge(part, [solved.pop(id(branch)) for branch in part.branches])
        else:
            solved[id(part)] = [jobs[part.ops.bit_length() - 1]]
    return tuple(op for segment in solved[id(parts[0])] for op in segment.ops)


def _jobs(problem: Problem, graph: Bits) -> list[Segment] | None:
    """Each operator as a segment; None where the bytes that one of them frees depend on the order."""
    freed = [0] * problem.count
    for tensor, readers in enumerate(problem.readers):
        if tensor in problem.kept or not readers or not problem.sizes[tensor]:
            continue
        all_readers = mask(readers)
        last = next((op for op in readers if all_readers & ~(graph.above[op] | 1 << op) == 0), None)
        if last is None:
            return None
        freed[last] += problem.sizes[tensor]
    jobs = []
    for op, written in enumerate(graph.written):
        rivals, size = graph.saved[op]
        saved = size if not rivals & ~(graph.above[op] | 1 << op) else 0
        jobs.append(Segment(written - saved, written - graph.unread[op] - freed[op], (op,)))
    return jobs


class _OperatorSet(Struct):
    """A set of operators, and the parts that it consists of: one after the other, or free of one another."""

    ops: int
    series: bool
    branches: list[_OperatorSet]


def _decompose(graph: Bits) -> list[_OperatorSet] | None:
    """All parts that the graph consists of, each before its branches; None where one of them is neither series nor parallel."""
    related = [above | below for above, below in zip(graph.above, graph.below, strict=True)]
    parts = [_OperatorSet(graph.all, False, [])]
    for part in parts:  # grows while it is walked
        if not part.ops & (part.ops - 1):
            continue
        branches = _components(part.ops, lambda op: related[op])
        if len(branches) == 1:
            part.series = True
            branches = _components(part.ops, lambda op: ~related[op])
            branches.sort(key=lambda ops: (graph.above[(ops & -ops).bit_length() - 1] & part.ops & ~ops).bit_count())
            if len(branches) == 1:
                return None
        part.branches = [_OperatorSet(ops, False, []) for ops in branches]
        parts += part.branches
    return parts


def _merge(part: _OperatorSet, solved: list[list[Segment]]) -> list[Segment]:
    """The segments of a part from those of its branches."""
    if not part.series:
        # Each branch is in ascending order and sorting is stable, so that branches keep theirs.
        return sorted((segment for branch in solved for segment in branch), key=lambda segment: segment.rank)
    segments: list[Segment] = []
    for segment in (segment for branch in solved for segment in branch):
        # A segment that would rather run before the segment it has to follow is glued to it.
        while segments and segment.rank < segments[-1].rank:
            segment = segments.pop().then(segment)
        segments.append(segment)
    return segments


def _components(part: int, neighbours: Callable[[int], int]) -> list[int]:
    """The connected components of a set of operators, by their lowest member."""
    components = []
    while part:
        reached = frontier = part & -part
        while frontier:
            following = 0
            for op in members(frontier):
                following |= neighbours(op)
            frontier = following & part & ~reached
            reached |= frontier
        components.append(reached)
        part &= ~reached
    return components
