"""A plan as a page: the picture of plan_picture.py with names at the pointer, a zoom over steps, and orders that can be hidden.

It needs nothing else, as all pages; standalone.py is why names from a model file stay text.
"""

from __future__ import annotations

from typing import Any

from memprof.base.terminal_text import plain
from memprof.base.units import format_bytes, listed
from memprof.plan.analysis import Analysis, Ordered, Planned
from memprof.plan.orders.problem import OrderStep

from .. import standalone
from ..tables.plan import order_name, unit_of
from .plan_picture import BEST, TENSORS, arena_heights, arena_size, arena_text, bound_text, order_label, orders, remarks, subtitle, title

# Pixels: of the largest arena, and of the smallest.
_ARENA_HIGH, _ARENA_LEAST = 320, 90
_MOST_NAMES = 6


def render(plan: Planned, analysis: Analysis) -> str:
    """The page. Raises InputError for a graph without operators."""
    drawn = orders(plan, analysis)
    heights = arena_heights(drawn, _ARENA_HIGH, _ARENA_LEAST)
    shown = [
        {
            "name": plain(order_name(order)),
            "label": plain(order_label(order)),
            "colour": "--v0" if colour == BEST else "--v1",
            "dash": (8, 4) if place else (),
            "steps": [_step(plan, step) for step in steps],
            "tensors": _tensors(plan, order),
            "high": round(high),
        }
        for place, ((order, steps, colour), high) in enumerate(zip(drawn, heights, strict=True))
    ]
    bound = None if analysis.lower_bound_bytes is None else {"bytes": analysis.lower_bound_bytes, "label": bound_text(analysis)}
    data = {
        "unit": unit_of([order.peak_bytes for order, _, _ in drawn]),
        "operators": analysis.operators,
        "orders": shown,
        "bound": bound,
        "most": max(arena_size(order.arena) for order, _, _ in drawn),
        "colours": TENSORS,
    }
    lines = [(order["label"], order["colour"], "dash" if order["dash"] else "solid") for order in shown]
    return standalone.render(
        __package__,
        "plan",
        data,
        title=plain(title(analysis)),
        subtitle=plain(subtitle(analysis)),
        lines=[*lines, *([(bound["label"], "--muted", "dot")] if bound else [])],
        arenas=[plain(arena_text(order)) for order, _, _ in drawn],
        remarks=[plain(remark) for remark in remarks(analysis)],
    )


def _step(plan: Planned, step: OrderStep) -> dict[str, Any]:
    """An operator of an order, and the memory while it runs, in bytes and in words."""
    mapped = plan.mapped
    return {
        "bytes": step.memory_bytes,
        "name": plain(mapped.operators[step.op]),
        "kind": plain(mapped.kinds[step.op]),
        "text": f"{format_bytes(step.memory_bytes)}: {format_bytes(step.in_use_bytes)} in use, {format_bytes(step.keep_bytes)} kept",
        "used": listed([plain(mapped.tensors[tensor]) for tensor in step.in_use], _MOST_NAMES),
    }


def _tensors(plan: Planned, order: Ordered) -> list[dict[str, Any]]:
    """Rectangles: steps [lower, upper), bytes from offset, and names: the tensor's own, then shorter texts that tell it apart."""
    mapped = plan.mapped
    given = {mapped.tensors[tensor] for tensor in mapped.problem.given}
    tensors = []
    for placed in order.arena.placed if order.arena else ():
        step = str(placed.lower + 1)
        shorter = [] if placed.name in given else [f"{plain(mapped.kinds[order.order[placed.lower]])} {step}", step]
        place = {"lower": placed.lower, "upper": placed.upper, "offset": placed.offset, "bytes": placed.bytes}
        tensors.append({**place, "size": format_bytes(placed.bytes), "names": [plain(placed.name), *shorter]})
    return tensors
