"""A graph cut into pieces that can be ordered one by one.

An operator that every other comes before or after ends a piece: in any order the same operators are done by then. The peak of the
whole is the highest of the pieces' peaks, and their best orders one after the other are a best order.
"""

from __future__ import annotations

from msgspec import Struct

from .bits import Bits, members
from .problem import Problem


class Piece(Struct, frozen=True):
    """A part of a graph as a problem: tensors alive when it begins are given, those wanted later are kept, and those that it never touches
    are one tensor. ops: its operators' numbers in the whole graph."""

    problem: Problem
    ops: tuple[int, ...]


def pieces(problem: Problem, graph: Bits) -> tuple[Piece, ...]:
    """The pieces of a graph in their order; the whole where nothing divides it. Linear in the size of the graph."""
    cuts = [op for op in range(graph.count) if graph.above[op] | graph.below[op] | 1 << op == graph.all]
    cuts.sort(key=lambda op: graph.above[op].bit_count())
    parts = []
    done = 0
    readers_left = [len(readers) for readers in problem.readers]
    alive = set(problem.given)
    alive_bytes = sum(problem.sizes[tensor] for tensor in alive)
    for end in [*(graph.above[op] | 1 << op for op in cuts), graph.all]:
        ops = tuple(members(end & ~done))
        if not ops:
            continue
        for op in ops:
            for tensor in dict.fromkeys(problem.reads[op]):
                readers_left[tensor] -= 1
        touched = dict.fromkeys(tensor for op in ops for tensor in (*problem.reads[op], *problem.writes[op]))
        wanted = {tensor for tensor in touched if readers_left[tensor] or tensor in problem.kept}
        begun = [tensor for tensor in touched if tensor in alive]
        parts.append(Piece(_part(problem, ops, tuple(touched), begun, wanted, alive_bytes), ops))
        alive.difference_update(touched)
        alive.update(wanted)
        alive_bytes += sum(problem.sizes[tensor] for tensor in wanted) - sum(problem.sizes[tensor] for tensor in begun)
        done = end
    return tuple(parts)


def _part(
    problem: Problem, ops: tuple[int, ...], touched: tuple[int, ...], begun: list[int], wanted: set[int], alive_bytes: int
) -> Problem:
    number = {tensor: index for index, tensor in enumerate(touched)}
    untouched = len(number)
    pairs = [problem.inplace[op] if problem.inplace else None for op in ops]
    return Problem(
        sizes=(*(problem.sizes[tensor] for tensor in touched), alive_bytes - sum(problem.sizes[tensor] for tensor in begun)),
        reads=tuple(tuple(number[tensor] for tensor in problem.reads[op]) for op in ops),
        writes=tuple(tuple(number[tensor] for tensor in problem.writes[op]) for op in ops),
        given=frozenset({*(number[tensor] for tensor in begun), untouched}),
        kept=frozenset({*(number[tensor] for tensor in wanted), untouched}),
        inplace=tuple(pair and (number[pair[0]], number[pair[1]]) for pair in pairs),
    )
