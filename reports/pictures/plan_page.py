"""A plan as a page: the picture of plan_picture.py with names at the pointer, a zoom over steps, and orders that can be hidden.

It needs nothing else, as all pages; standalone.py is why names from a model file stay text.
"""

from __future__ import annotations

from dataclasses import dataclass

from memprof.base.terminal_text import plain
from memprof.base.units import format_bytes, listed
from memprof.plan.analysis import Analysis, Ordered, Planned
from memprof.plan.orders.problem import OrderStep

from .. import standalone
from ..tables.grid import Unit
from ..tables.plan import order_name, unit_of
from .plan_picture import BEST, TENSORS, arena_heights, arena_size, arena_text, bound_text, order_label, orders, remarks, subtitle, title

# Pixels: of the largest arena, and of the smallest.
_ARENA_HIGH, _ARENA_LEAST = 320, 90
_MOST_NAMES = 6


@dataclass(frozen=True)
class _Step:
    """An operator of an order, and the memory while it runs, in bytes and in words."""

    bytes: int
    name: str
    kind: str
    text: str
    used: str


@dataclass(frozen=True)
class _TensorBox:
    """A rectangle: steps [lower, upper), bytes from offset; names: its own, and a shorter text that tells it apart."""

    lower: int
    upper: int
    offset: int
    bytes: int
    size: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class _Order:
    """An order of operators with its arena. high: of the arena's picture, in pixels."""

    name: str
    label: str
    colour: str
    dash: tuple[int, ...]
    steps: tuple[_Step, ...]
    tensors: tuple[_TensorBox, ...]
    high: int


@dataclass(frozen=True)
class _OrderBound:
    """The least that any order needs."""

    bytes: int
    label: str


@dataclass(frozen=True)
class _PlanPage:
    """All that plan.js draws. most: the size of the largest arena; colours: of tensors, by the step in which they begin."""

    unit: Unit
    operators: int
    orders: tuple[_Order, ...]
    bound: _OrderBound | None
    most: int
    colours: tuple[str, ...]


def render(plan: Planned, analysis: Analysis) -> str:
    """The page. Raises InputError for a graph without operators."""
    data = _page(plan, analysis)
    return standalone.render(
        __package__,
        "plan",
        data,
        title=plain(title(analysis)),
        subtitle=plain(subtitle(analysis)),
        lines=_lines(data),
        arenas=[plain(arena_text(order)) for order, _, _ in orders(plan, analysis)],
        remarks=[plain(remark) for remark in remarks(analysis)],
    )


def _lines(data: _PlanPage) -> list[tuple[str, str, str]]:
    """The lines of the chart: name, colour and dashes in the style sheet."""
    orders = [(order.label, order.colour, "dash" if order.dash else "solid") for order in data.orders]
    return [*orders, *([(data.bound.label, "--muted", "dot")] if data.bound else [])]


def _page(plan: Planned, analysis: Analysis) -> _PlanPage:
    drawn = orders(plan, analysis)
    bound = analysis.lower_bound_bytes
    return _PlanPage(
        unit_of([order.peak_bytes for order, _, _ in drawn]),
        analysis.operators,
        tuple(
            _Order(
                plain(order_name(order)),
                plain(order_label(order)),
                "--v0" if colour == BEST else "--v1",
                (8, 4) if place else (),
                tuple(_step(plan, step) for step in order_steps),
                _tensors(plan, order),
                round(high),
            )
            for place, ((order, order_steps, colour), high) in enumerate(
                zip(drawn, arena_heights(drawn, _ARENA_HIGH, _ARENA_LEAST), strict=True)
            )
        ),
        None if bound is None else _OrderBound(bound, bound_text(analysis)),
        max(arena_size(order.arena) for order, _, _ in drawn),
        TENSORS,
    )


def _step(plan: Planned, step: OrderStep) -> _Step:
    mapped = plan.mapped
    return _Step(
        step.memory_bytes,
        plain(mapped.operators[step.op]),
        plain(mapped.kinds[step.op]),
        f"{format_bytes(step.memory_bytes)}: {format_bytes(step.in_use_bytes)} in use, {format_bytes(step.keep_bytes)} kept",
        listed([plain(mapped.tensors[tensor]) for tensor in step.in_use], _MOST_NAMES),
    )


def _tensors(plan: Planned, order: Ordered) -> tuple[_TensorBox, ...]:
    mapped = plan.mapped
    given = {mapped.tensors[tensor] for tensor in mapped.problem.given}
    tensors = []
    for placed in order.arena.placed if order.arena else ():
        step = str(placed.lower + 1)
        shorter = () if placed.name in given else (f"{plain(mapped.kinds[order.order[placed.lower]])} {step}", step)
        tensors.append(
            _TensorBox(placed.lower, placed.upper, placed.offset, placed.bytes, format_bytes(placed.bytes), (plain(placed.name), *shorter))
        )
    return tuple(tensors)
