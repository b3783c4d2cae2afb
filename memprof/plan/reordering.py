"""The best order found and written to a file, checked by reading the file again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, UsageError
from .analysis import BEST, MODEL, Chosen, Planned, Question, chosen_order
from .graphs.read import read
from .graphs.reduced import problem
from .graphs.written import reorder
from .orders.order import best_order
from .orders.problem import peak


@dataclass(frozen=True)
class Reordered:
    """What was written: the model, and the external data that was copied to its side.

    moved: how many operators stand elsewhere than in the model's file. before_bytes and after_bytes: the peaks of tensors in the model's order
    and in the written one. assumptions: what the graph's reader took for granted.
    """

    files: tuple[str, ...]
    order: str
    moved: int
    before_bytes: int
    after_bytes: int
    lower_bound_bytes: int | None
    proven: bool
    how: str
    assumptions: tuple[str, ...]


def reordered(plan: Planned, question: Question, order: str, target: Path, overwrite: bool) -> Reordered:
    """Write a model in another order. Raises UsageError for the order that its file has, and what `reorder` raises."""
    if order == MODEL and not plan.graph.moved:
        raise UsageError("the model's order is the one it has: --order best, or a file with another")
    reduced = plan.mapped.problem
    best = best_order(reduced, question.time_limit_s) if order == BEST else None
    chosen = Chosen(best.order, best.how) if best is not None else chosen_order(plan, order)
    if best is not None and best.peak_bytes == peak(reduced, range(reduced.count)):
        chosen = Chosen(tuple(range(reduced.count)), best.how)  # no better one is known: nothing needs to move
    places = [plan.graph.operators[op].place for op in chosen.order]
    files = reorder(plan.graph, chosen.order, target, overwrite)
    shapes = {plan.graph.tensors[one].name: shape for one in plan.graph.inputs if (shape := plan.graph.tensors[one].shape) is not None}
    again = problem(read(target, shapes if plan.graph.format == "onnx" else {}, inline=False), question.in_place).problem
    after = peak(again, range(again.count))
    expected = peak(reduced, chosen.order)
    if plan.graph.format == "onnx" and after != expected:
        raise InputError(f"{target} was written and does not have the order that was meant: please report this")
    return Reordered(
        files=tuple(map(str, files)),
        order=order,
        moved=sum(place != before for place, before in zip(places, sorted(places), strict=True)),
        before_bytes=peak(reduced, range(reduced.count)),
        after_bytes=expected,
        lower_bound_bytes=best.lower_bound_bytes if best else None,
        proven=best.proven if best else False,
        how=chosen.source,
        assumptions=plan.graph.assumptions,
    )
