"""The answer to `plan reorder`: a model written in another order, checked by reading the file again."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from ..base.errors import InputError, UsageError
from .analysis import BEST, MODEL, AskedOrder, Planned, Question, asked_order
from .graphs.read import read
from .graphs.reduced import problem
from .graphs.rewrite import reorder
from .orders.order import best_order
from .orders.problem import peak


class Reordered(Struct, frozen=True):
    """The files written: the model, and the external data that was copied to its side.

    moved: how many operators stand elsewhere than in the model's file. before_bytes and after_bytes: the peaks of tensors in the model's order
    and in the written order. assumptions: those of the graph's reader.
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
    """Write a model in another order. Raises UsageError for the order that its file has, and the errors of `reorder`."""
    if order == MODEL and not plan.graph.moved:
        raise UsageError("the model has this order already: --order best, or a file with another order")
    reduced = plan.mapped.problem
    search = best_order(reduced, question.time_limit_s) if order == BEST else None
    asked = AskedOrder(search.order, search.how) if search is not None else asked_order(plan, order)
    if search is not None and search.peak_bytes == peak(reduced, range(reduced.count)):
        asked = AskedOrder(tuple(range(reduced.count)), search.how)  # no better order is known: nothing needs to move
    places = [plan.graph.operators[op].place for op in asked.order]
    files = reorder(plan.graph, asked.order, target, overwrite)
    shapes = {
        plan.graph.tensors[number].name: shape for number in plan.graph.inputs if (shape := plan.graph.tensors[number].shape) is not None
    }
    reread = problem(read(target, shapes if plan.graph.format == "onnx" else {}, inline=False), question.in_place).problem
    after = peak(reread, range(reread.count))
    expected = peak(reduced, asked.order)
    if plan.graph.format == "onnx" and after != expected:
        raise InputError(f"{target} was written and does not have the order that was meant: please report this")
    return Reordered(
        files=tuple(map(str, files)),
        order=order,
        moved=sum(place != before for place, before in zip(places, sorted(places), strict=True)),
        before_bytes=peak(reduced, range(reduced.count)),
        after_bytes=expected,
        lower_bound_bytes=search.lower_bound_bytes if search else None,
        proven=search.proven if search else False,
        how=asked.source,
        assumptions=plan.graph.assumptions,
    )
