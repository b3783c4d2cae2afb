"""A plan as a picture: memory over the steps of an order and of the best order, with the bound that no order undercuts, and the arena of each.

An arena has time to the right and addresses upwards, with a rectangle for each tensor's live range at its offset. plan_page.py draws the same as
a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memprof.base.errors import InputError
from memprof.base.units import capitalised, counted, format_bytes
from memprof.plan.analysis import Analysis, Arena, Ordered, Planned
from memprof.plan.graphs.reduced import Mapped
from memprof.plan.orders.problem import OrderStep, steps

from ..tables.grid import Unit
from ..tables.plan import order_name, unit_of
from . import lettering, style
from .sheet import LegendEntry, Sheet
from .style import Fill

# Okabe and Ito's, made lighter so that black names can be read on them; neighbours in an arena differ by the step in which they begin.
TENSORS = ("#8CC3E8", "#F2C572", "#7FCFB6", "#E9A98A", "#D9B3CD", "#B5B5B5", "#F3E88B", "#A8B8E8")
_CHOSEN, BEST, _BOUND = "#D55E00", "#0072B2", "#555555"
_LINE_HIGH, _ARENA_HIGH, _ARENA_LEAST, _STRIP_HIGH, _LEFT, _GAP, _NAME_LEAST = 2.3, 2.6, 0.7, 0.2, 0.75, 0.62, 0.42
_NAME_SIZE = style.SMALL - 1
_BLOCKS = (Fill("#E4E4E4", edge="#FFFFFF"), Fill("#CFCFCF", edge="#FFFFFF"))
_MOST_BLOCKS = 24
_LEGEND = (
    "A rectangle is a tensor: the steps in which it is needed, at its place in the arena; where names do not fit, the operator that writes it "
    "and the step"
)

# An order, its steps and its colour.
Drawn = tuple[Ordered, tuple[OrderStep, ...], str]


def orders(plan: Planned, analysis: Analysis) -> list[Drawn]:
    """The orders to draw."""
    if not analysis.chosen.order:
        raise InputError(f"{analysis.model}: there is no operator to draw")
    reduced = plan.mapped.problem
    drawn = [(analysis.chosen, steps(reduced, analysis.chosen.order), _CHOSEN if analysis.chosen.name != "best" else BEST)]
    if analysis.best is not None and analysis.best is not analysis.chosen:
        drawn.append((analysis.best, steps(reduced, analysis.best.order), BEST))
    return drawn


def title(analysis: Analysis) -> str:
    """The finding: the two peaks, or that of the only order."""
    chosen, best = analysis.chosen, analysis.best
    needs = f"{order_name(chosen)} needs {format_bytes(chosen.peak_bytes)}"
    if best is not None and 0 < best.peak_bytes < chosen.peak_bytes:
        return f"The best order needs {format_bytes(best.peak_bytes)}; {needs}, {chosen.peak_bytes / best.peak_bytes - 1:.0%} more"
    least = ", and no order needs less" if chosen.peak_bytes == analysis.lower_bound_bytes else ""
    return f"{capitalised(needs)}{least}"


def subtitle(analysis: Analysis) -> str:
    parts = [f"Memory plan: {Path(analysis.model).name}", f"{counted(analysis.operators, 'operator')} in {analysis.mode}"]
    if analysis.in_place:
        parts.append("working in place")
    parts.append("tensors only: scratch memory of kernels and weights are outside")
    return " · ".join(parts)


def bound_text(analysis: Analysis) -> str:
    assert analysis.lower_bound_bytes is not None
    return f"no order needs less than {format_bytes(analysis.lower_bound_bytes)}" + (" (proven, and reached)" if analysis.proven else "")


def order_label(order: Ordered) -> str:
    return f"{order_name(order)}: peak {format_bytes(order.peak_bytes)} at {order.operator}"


# -- the text in the rectangles, and how high they are drawn


def arena_size(arena: Arena | None) -> int:
    return max((tensor.offset + tensor.bytes for tensor in arena.placed), default=0) if arena else 0


def arena_heights(drawn: Sequence[Drawn], high: float, least: float) -> list[float]:
    """How high each arena is drawn: all in one scale, the largest `high`, none below `least`, where its axis could not be read."""
    most = max(arena_size(order.arena) for order, _, _ in drawn) or 1
    return [max(high * arena_size(order.arena) / most, least) for order, _, _ in drawn]


def _labels(mapped: Mapped, order: Ordered, across: float, up: float, size: float) -> list[tuple[str, bool]]:
    """A label for each tensor of an arena: the text in its rectangle, without escapes and empty without room, and whether it stands upright.

    across, up: inches of a step and of a byte.

    Names are written if they fit into every rectangle that is wide enough for a name at all. Otherwise a label is the kind of the operator that
    writes the tensor and the step, or the step alone.
    """
    placed = order.arena.placed if order.arena else ()
    line = lettering.height(size) * 1.05
    sides = [((tensor.upper - tensor.lower) * across, tensor.bytes * up) for tensor in placed]
    names = [lettering.readable(tensor.name) for tensor in placed]
    wide = [(name, side[0] - 0.06) for name, side in zip(names, sides, strict=True) if side[0] > _NAME_LEAST and side[1] >= line]
    whole = all(lettering.width(name, size) <= room for name, room in wide)
    given = {mapped.tensors[tensor] for tensor in mapped.problem.given}
    labels = []
    for tensor, name, (width, height) in zip(placed, names, sides, strict=True):
        step = str(tensor.lower + 1)
        texts = [f"{lettering.readable(mapped.kinds[order.order[tensor.lower]])} {step}", step]
        texts = [name] if tensor.name in given or (whole and width > _NAME_LEAST) else texts
        ways = ((False, width, height), (True, height, width))
        fitting = ((text, on) for text in texts for on, room, least in ways if lettering.width(text, size) <= room - 0.06 and least >= line)
        labels.append(next(fitting, ("", False)))
    return labels


def _blocks(names: Sequence[str]) -> list[tuple[int, int, str]]:
    """The blocks in operators' names (`/block/layer/Conv`): (from, to, block) for each run of steps in the same block.

    The level is the deepest that leaves few enough blocks to be named.
    """
    blocks: list[tuple[int, int, str]] = []
    paths = [name.strip("/").split("/")[:-1] for name in names]
    for depth in range(1, max(map(len, paths), default=0) + 1):
        runs: list[tuple[int, int, str]] = []
        for place, path in enumerate(paths):
            block = "/".join(path[:depth])
            begin = runs.pop()[0] if runs and runs[-1][2] == block else place
            runs.append((begin, place + 1, block))
        if len(runs) > _MOST_BLOCKS:
            break
        blocks = runs
    return blocks if len({block for _, _, block in blocks if block}) > 1 else []


def remarks(analysis: Analysis) -> list[str]:
    """The lines that a reader of the picture needs."""
    count = len(analysis.unsized)
    unsized = [f"{counted(count, 'tensor')} of unknown size {'counts' if count == 1 else 'count'} nothing"] if count else []
    return [remark for remark in (analysis.moved, analysis.source) if remark] + unsized + [_LEGEND]


# -- PNG, SVG, PDF


@style.look()
def render(plan: Planned, analysis: Analysis) -> Figure:
    """The picture. Raises InputError for a graph without operators."""
    drawn = orders(plan, analysis)
    unit = unit_of([order.peak_bytes for order, _, _ in drawn])
    legend = [
        LegendEntry(
            lettering.shortened(lettering.readable(order_label(order)), 9.0, style.SMALL),
            line={"color": colour, "linewidth": 1.8, "linestyle": dash},
        )
        for (order, _, colour), dash in zip(drawn, ("-", (0, (5, 1.2))), strict=False)
    ]
    if analysis.lower_bound_bytes is not None:
        legend.append(LegendEntry(bound_text(analysis), line={"color": _BOUND, "linewidth": 1, "linestyle": (0, (1.2, 1.5))}))
    blocks = [_blocks(_named(plan, order)) for order, _, _ in drawn]
    heights = arena_heights(drawn, _ARENA_HIGH, _ARENA_LEAST)
    content = _LINE_HIGH + sum(_GAP + (_STRIP_HIGH if runs else 0) + high for runs, high in zip(blocks, heights, strict=True)) + 0.4
    sheet = Sheet(title(analysis), subtitle(analysis), {"": content}, legend=legend, remarks=remarks(analysis))
    wide = sheet.width - _LEFT - 0.25
    _lines(sheet.axes(_LEFT, 0, wide, _LINE_HIGH), analysis, drawn, unit)
    up = max(heights) / (max(arena_size(order.arena) for order, _, _ in drawn) or 1) / 1.03
    top = _LINE_HIGH
    for (order, _, _), runs, high in zip(drawn, blocks, heights, strict=True):
        top += _GAP
        sheet.text(_LEFT, top - 0.22, lettering.label(arena_text(order), wide), size=style.BODY, weight="bold")
        if runs:
            _strip(sheet, top, wide, runs)
            top += _STRIP_HIGH
        axes = sheet.axes(_LEFT, top, wide, high)
        _arena(axes, order, _labels(plan.mapped, order, wide / len(order.order), up, _NAME_SIZE), unit, (wide, high), up)
        top += high
    axes.set_xlabel("step")
    return sheet.figure


def _named(plan: Planned, order: Ordered) -> list[str]:
    """Each step's name in the file: TFLite's operators have no names, but their results do."""
    mapped = plan.mapped
    if plan.graph.format == "onnx":
        return [mapped.operators[op] for op in order.order]
    return [mapped.tensors[mapped.problem.writes[op][0]] if mapped.problem.writes[op] else "" for op in order.order]


def arena_text(order: Ordered) -> str:
    arena = order.arena
    assert arena is not None
    by = "by the exact packer" if arena.packed_bytes is not None and arena.packed_bytes < arena.greedy_bytes else "greedy by size"
    least = ", as small as can be" if arena.proven else ""
    return f"Arena of {order_name(order)}: {format_bytes(arena_size(arena))} ({by}{least})"


def _lines(axes: Axes, analysis: Analysis, drawn: Sequence[Drawn], unit: Unit) -> None:
    for (order, order_steps, colour), dash in zip(drawn, ("-", (0, (5, 1.2))), strict=False):
        edges = range(len(order_steps) + 1)
        axes.stairs(
            [step.memory_bytes / unit.size for step in order_steps], edges, color=colour, linewidth=1.6, linestyle=dash, baseline=None
        )
        axes.plot([order.step - 0.5], [order.peak_bytes / unit.size], "v", color=colour, markersize=5, clip_on=False)
    if analysis.lower_bound_bytes is not None:
        axes.axhline(analysis.lower_bound_bytes / unit.size, color=_BOUND, linewidth=1, linestyle=(0, (1.2, 1.5)))
    axes.set_xlim(0, len(drawn[0][1]))
    axes.set_ylim(0, max(order.peak_bytes for order, _, _ in drawn) / unit.size * 1.08 or 1)
    axes.set_ylabel(f"tensors in memory ({unit.name})")
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _strip(sheet: Sheet, top: float, wide: float, runs: Sequence[tuple[int, int, str]]) -> None:
    """The blocks of an order above its arena."""
    across = wide / runs[-1][1]
    for place, (lower, upper, block) in enumerate(runs):
        if not block:
            continue
        room = (upper - lower) * across
        sheet.box(_LEFT + lower * across, top, room, _STRIP_HIGH - 0.05, _BLOCKS[place % 2])
        text = lettering.label(block.rsplit("/", 1)[-1], room - 0.04, _NAME_SIZE)
        if room > _NAME_LEAST:
            sheet.text(_LEFT + (lower + upper) / 2 * across, top + 0.02, text, size=_NAME_SIZE, ha="center")


def _arena(axes: Axes, order: Ordered, labels: Sequence[tuple[str, bool]], unit: Unit, inches: tuple[float, float], up: float) -> None:
    """up: inches of a byte."""
    placed = order.arena.placed if order.arena else ()
    corners, colours, edges = [], [], []
    across = inches[0] / len(order.order)
    for tensor in placed:
        low, high = tensor.offset / unit.size, (tensor.offset + tensor.bytes) / unit.size
        corners.append([(tensor.lower, low), (tensor.upper, low), (tensor.upper, high), (tensor.lower, high)])
        colours.append(TENSORS[tensor.lower % len(TENSORS)])
        # A rectangle thinner than a few edges would show nothing but them.
        edges.append(0.5 if min((tensor.upper - tensor.lower) * across, tensor.bytes * up) > 0.04 else 0.0)
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=style.INK, linewidths=edges))
    axes.set_xlim(0, len(order.order))
    axes.set_ylim(0, inches[1] / up / unit.size)
    axes.set_ylabel(f"offset ({unit.name})")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(max(2, round(inches[1] / 0.35))))
    for tensor, (text, upright) in zip(placed, labels, strict=True):
        middle = ((tensor.lower + tensor.upper) / 2, (tensor.offset + tensor.bytes / 2) / unit.size)
        turned = 90 if upright else 0
        axes.text(*middle, lettering.escaped(text), ha="center", va="center", size=_NAME_SIZE, rotation=turned, clip_on=True)
