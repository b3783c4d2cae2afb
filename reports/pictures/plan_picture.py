"""A plan as a picture: memory over the steps of an order and of the best one, with the bound none undercuts, and the arena of each.

An arena is drawn as what it is: time to the right, addresses upwards, a rectangle for each tensor's live range at its offset. As .html it is
interactive, with the names at the pointer and nothing loaded from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memprof import files
from memprof.errors import InputError, UsageError
from memprof.plan.analysis import Analysis, Arena, Ordered, Placed, Planned
from memprof.plan.graphs.reduced import Mapped
from memprof.plan.orders.problem import Step, steps
from memprof.units import format_bytes

from ..tables import grid
from ..tables import plan as words
from ..tables.grid import Unit
from . import lettering, saving, style
from .sheet import Entry, Sheet
from .style import Fill

# Okabe and Ito's, made lighter so that black names can be read on them; neighbours in an arena differ by the step in which they begin.
_TENSORS = ("#8CC3E8", "#F2C572", "#7FCFB6", "#E9A98A", "#D9B3CD", "#B5B5B5", "#F3E88B", "#A8B8E8")
_CHOSEN, _BEST, _BOUND = "#D55E00", "#0072B2", "#555555"
# The same for a page, where the ground may be dark.
_ON_ANY = {_CHOSEN: "#E0651B", _BEST: "#2F8FD0"}
_MARK = "memprof plan"
_LINE_HIGH, _ARENA_HIGH, _ARENA_LEAST, _STRIP_HIGH, _LEFT, _GAP, _NAME_LEAST = 2.3, 2.6, 0.7, 0.2, 0.75, 0.62, 0.42
_NAME_SIZE = style.SMALL - 1
_BLOCKS = (Fill("#E4E4E4", edge="#FFFFFF"), Fill("#CFCFCF", edge="#FFFFFF"))
_MOST_BLOCKS = 24
_LEGEND = (
    "A rectangle is a tensor: the steps in which it is needed, at its place in the arena; where names do not fit, the operator that writes it "
    "and the step"
)

# An order, its steps and its colour.
Drawn = tuple[Ordered, tuple[Step, ...], str]


def check(path: Path) -> None:
    """Say what is wrong with a picture's path before anything is planned. Raises UsageError or InputError."""
    if path.suffix.lower() == ".html":
        files.check_target(path, lambda head: _MARK.encode() in head, "a page of a plan")
    elif path.suffix.lower() not in saving.ENDINGS:
        raise UsageError(f"{path}: a plan's picture ends in {', '.join(saving.ENDINGS)} or .html")
    else:
        saving.check(path)


def save(plan: Planned, found: Analysis, path: Path) -> None:
    """Draw a plan into a file: .png, .svg, .pdf or .html. Raises InputError where there is nothing to draw or it cannot be written."""
    if path.suffix.lower() == ".html":
        files.write(path, page(plan, found).encode())
    else:
        saving.save(render(plan, found), path)


def _orders(plan: Planned, found: Analysis) -> list[Drawn]:
    """The orders to draw."""
    if not found.chosen.order:
        raise InputError(f"{found.model}: there is no operator to draw")
    reduced = plan.mapped.problem
    drawn = [(found.chosen, steps(reduced, found.chosen.order), _CHOSEN if found.chosen.name != "best" else _BEST)]
    if found.best is not None and found.best is not found.chosen:
        drawn.append((found.best, steps(reduced, found.best.order), _BEST))
    return drawn


def _title(found: Analysis) -> str:
    return f"Memory plan: {Path(found.model).name}"


def _subtitle(found: Analysis) -> str:
    parts = [f"{found.operators:,} operators in {found.mode}"]
    if found.in_place:
        parts.append("working in place")
    parts.append("tensors only: scratch memory of kernels and weights are outside")
    return " · ".join(parts)


def _bound_text(found: Analysis) -> str:
    assert found.lower_bound_bytes is not None
    return f"no order needs less than {format_bytes(found.lower_bound_bytes)}" + (" (proven, and reached)" if found.proven else "")


def _label(order: Ordered) -> str:
    return f"{words._name(order)}: peak {format_bytes(order.peak_bytes)} at {order.operator}"


# -- what is written into the rectangles, and how high they are drawn


def _size(arena: Arena | None) -> int:
    return max((one.offset + one.bytes for one in arena.placed), default=0) if arena else 0


def _heights(drawn: Sequence[Drawn], high: float, least: float) -> list[float]:
    """How high each arena is drawn: all in one scale, the largest `high`, and none so low that its axis could not be read."""
    most = max(_size(order.arena) for order, _, _ in drawn) or 1
    return [max(high * _size(order.arena) / most, least) for order, _, _ in drawn]


@dataclass(frozen=True)
class Label:
    """What is written into a rectangle, empty where it has no room, and whether it stands upright. Not escaped."""

    text: str = ""
    upright: bool = False


def _labels(mapped: Mapped, order: Ordered, across: float, up: float, size: float) -> list[Label]:
    """What tells each tensor of an arena apart: names where they all fit that are wide enough for any, else the kind of the operator that writes
    it and the step, or the step alone. across, up: inches of a step and of a byte."""
    placed = order.arena.placed if order.arena else ()
    line = lettering.height(size) * 1.05
    sides = [((one.upper - one.lower) * across, one.bytes * up) for one in placed]
    names = [lettering.readable(one.name) for one in placed]
    wide = [(name, side[0] - 0.06) for name, side in zip(names, sides, strict=True) if side[0] > _NAME_LEAST and side[1] >= line]
    whole = all(lettering.width(name, size) <= room for name, room in wide)
    given = {mapped.tensors[tensor] for tensor in mapped.problem.given}
    found = []
    for one, name, (width, height) in zip(placed, names, sides, strict=True):
        step = str(one.lower + 1)
        texts = [f"{lettering.readable(mapped.kinds[order.order[one.lower]])} {step}", step]
        texts = [name] if one.name in given or (whole and width > _NAME_LEAST) else texts
        ways = ((False, width, height), (True, height, width))
        fitting = (
            Label(text, on) for text in texts for on, room, least in ways if lettering.width(text, size) <= room - 0.06 and least >= line
        )
        found.append(next(fitting, Label()))
    return found


def _blocks(names: Sequence[str]) -> list[tuple[int, int, str]]:
    """The blocks that operators' names tell of, `/block/layer/Conv`: (from, to, block) for each run of steps in one, to as deep a level as leaves
    them few enough to be named."""
    found: list[tuple[int, int, str]] = []
    paths = [name.strip("/").split("/")[:-1] for name in names]
    for depth in range(1, max(map(len, paths), default=0) + 1):
        runs: list[tuple[int, int, str]] = []
        for place, path in enumerate(paths):
            block = "/".join(path[:depth])
            begin = runs.pop()[0] if runs and runs[-1][2] == block else place
            runs.append((begin, place + 1, block))
        if len(runs) > _MOST_BLOCKS:
            break
        found = runs
    return found if len({block for _, _, block in found if block}) > 1 else []


def _remarks(found: Analysis) -> list[str]:
    """What a reader of the picture must know."""
    unsized = [f"{len(found.unsized)} tensors of unknown size count nothing"] if found.unsized else []
    return [said for said in (found.moved, found.source) if said] + unsized + [_LEGEND]


# -- PNG, SVG, PDF


def render(plan: Planned, found: Analysis) -> Figure:
    """The picture. Raises InputError for a graph without operators."""
    with style.look():
        return _render(plan, found, _orders(plan, found))


def _render(plan: Planned, found: Analysis, drawn: Sequence[Drawn]) -> Figure:
    unit = words.unit_of([order.peak_bytes for order, _, _ in drawn])
    legend = [
        Entry(
            lettering.shortened(lettering.readable(_label(order)), 9.0, style.SMALL),
            line={"color": colour, "linewidth": 1.8, "linestyle": dash},
        )
        for (order, _, colour), dash in zip(drawn, ("-", (0, (5, 1.2))), strict=False)
    ]
    if found.lower_bound_bytes is not None:
        legend.append(Entry(_bound_text(found), line={"color": _BOUND, "linewidth": 1, "linestyle": (0, (1.2, 1.5))}))
    blocks = [_blocks(_named(plan, order)) for order, _, _ in drawn]
    heights = _heights(drawn, _ARENA_HIGH, _ARENA_LEAST)
    content = _LINE_HIGH + sum(_GAP + (_STRIP_HIGH if runs else 0) + high for runs, high in zip(blocks, heights, strict=True)) + 0.4
    sheet = Sheet(_title(found), _subtitle(found), content, legend=legend, remarks=_remarks(found))
    wide = sheet.width - _LEFT - 0.25
    _lines(sheet.axes(_LEFT, 0, wide, _LINE_HIGH), found, drawn, unit)
    up = max(heights) / (max(_size(order.arena) for order, _, _ in drawn) or 1) / 1.03
    top = _LINE_HIGH
    for (order, _, _), runs, high in zip(drawn, blocks, heights, strict=True):
        top += _GAP
        sheet.text(_LEFT, top - 0.22, lettering.label(_arena_text(order), wide), size=style.BODY, weight="bold")
        if runs:
            _strip(sheet, top, wide, runs)
            top += _STRIP_HIGH
        axes = sheet.axes(_LEFT, top, wide, high)
        _arena(axes, order, _labels(plan.mapped, order, wide / len(order.order), up, _NAME_SIZE), unit, (wide, high), up)
        top += high
    axes.set_xlabel("step")
    return sheet.figure


def _named(plan: Planned, order: Ordered) -> list[str]:
    """What each step is called in the file: TFLite's operators have no names, but their results do."""
    mapped = plan.mapped
    if plan.graph.format == "onnx":
        return [mapped.operators[op] for op in order.order]
    return [mapped.tensors[mapped.problem.writes[op][0]] if mapped.problem.writes[op] else "" for op in order.order]


def _arena_text(order: Ordered) -> str:
    arena = order.arena
    assert arena is not None
    by = "by the exact packer" if arena.packed_bytes is not None and arena.packed_bytes < arena.greedy_bytes else "greedy by size"
    least = ", as small as can be" if arena.proven else ""
    return f"Arena of {words._name(order)}: {format_bytes(_size(arena))} ({by}{least})"


def _lines(axes: Axes, found: Analysis, drawn: Sequence[Drawn], unit: Unit) -> None:
    for (order, each, colour), dash in zip(drawn, ("-", (0, (5, 1.2))), strict=False):
        edges = range(len(each) + 1)
        axes.stairs([step.memory_bytes / unit.size for step in each], edges, color=colour, linewidth=1.6, linestyle=dash, baseline=None)
        axes.plot([order.step - 0.5], [order.peak_bytes / unit.size], "v", color=colour, markersize=5, clip_on=False)
    if found.lower_bound_bytes is not None:
        axes.axhline(found.lower_bound_bytes / unit.size, color=_BOUND, linewidth=1, linestyle=(0, (1.2, 1.5)))
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


def _arena(axes: Axes, order: Ordered, labels: Sequence[Label], unit: Unit, inches: tuple[float, float], up: float) -> None:
    """up: inches of a byte."""
    placed = order.arena.placed if order.arena else ()
    corners, colours, edges = [], [], []
    across = inches[0] / len(order.order)
    for one in placed:
        low, high = one.offset / unit.size, (one.offset + one.bytes) / unit.size
        corners.append([(one.lower, low), (one.upper, low), (one.upper, high), (one.lower, high)])
        colours.append(_TENSORS[one.lower % len(_TENSORS)])
        # The edges of what is thinner than a few of them would be all that is seen of it.
        edges.append(0.5 if min((one.upper - one.lower) * across, one.bytes * up) > 0.04 else 0.0)
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=style.INK, linewidths=edges))
    axes.set_xlim(0, len(order.order))
    axes.set_ylim(0, inches[1] / up / unit.size)
    axes.set_ylabel(f"offset ({unit.name})")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(max(2, round(inches[1] / 0.35))))
    for one, label in zip(placed, labels, strict=True):
        middle = ((one.lower + one.upper) / 2, (one.offset + one.bytes / 2) / unit.size)
        turned = 90 if label.upright else 0
        axes.text(*middle, lettering.escaped(label.text), ha="center", va="center", size=_NAME_SIZE, rotation=turned, clip_on=True)


# -- HTML


def page(plan: Planned, found: Analysis) -> str:
    """The same as a page that needs nothing else, names at the pointer. Raises InputError for a graph without operators."""
    import plotly.io
    from plotly.graph_objects import Figure as Interactive
    from plotly.graph_objects import Layout, Scatter

    drawn = _orders(plan, found)
    unit = words.unit_of([order.peak_bytes for order, _, _ in drawn])
    traces: list[Any] = []
    for order, each, colour in drawn:
        xs, ys, texts = _stairs(plan, order, each, unit)
        line = {"color": _ON_ANY[colour], "width": 2}
        name, shown = _plain(_label(order)), "%{text}<extra></extra>"
        traces.append(Scatter(x=xs, y=ys, text=texts, mode="lines", name=name, line=line, hovertemplate=shown))
    if found.lower_bound_bytes is not None:
        bound = found.lower_bound_bytes / unit.size
        line = {"color": "#888888", "width": 1.5, "dash": "dot"}
        traces.append(Scatter(x=[0, found.operators], y=[bound, bound], mode="lines", name=_bound_text(found), line=line, hoverinfo="skip"))
    heights = _heights(drawn, _PAGE_ARENA, _PAGE_ARENA_LEAST)
    up = max(heights) / 96 / (max(_size(order.arena) for order, _, _ in drawn) or 1)
    for place, (order, _, _) in enumerate(drawn):
        assert order.arena is not None
        labels = _labels(plan.mapped, order, _PAGE_WIDE / 96 / len(order.order), up, 9)
        for upright in (False, True):  # a trace writes all its texts in one direction
            some = [(one, label.text) for one, label in zip(order.arena.placed, labels, strict=True) if label.upright is upright]
            traces.append(_bars(some, unit, place + 2, upright))
    layout = _layout(found, drawn, heights, unit)
    figure = Interactive(traces, Layout(**layout))
    body = plotly.io.to_html(
        figure, full_html=False, include_plotlyjs=True, config={"displaylogo": False, "responsive": True}, div_id="plan"
    )
    notes = "".join(f"<p>{_plain(remark)}.</p>" for remark in _remarks(found))
    return _PAGE.replace("<!--title-->", _escaped(_title(found))).replace("<!--notes-->", notes).replace("<!--body-->", body)


def _bars(tensors: Sequence[tuple[Placed, str]], unit: Unit, axis: int, upright: bool) -> Any:
    """Tensors of an arena with what is written into them, all in one direction."""
    from plotly.graph_objects import Bar

    placed = [one for one, _ in tensors]
    return Bar(
        orientation="h",
        base=[one.lower for one in placed],
        x=[one.upper - one.lower for one in placed],
        y=[(one.offset + one.bytes / 2) / unit.size for one in placed],
        width=[one.bytes / unit.size for one in placed],
        marker={"color": [_TENSORS[one.lower % len(_TENSORS)] for one in placed], "line": {"color": "#333333", "width": 0.5}},
        text=[_plain(text) for _, text in tensors],
        customdata=[[one.lower + 1, one.upper, format_bytes(one.bytes), one.offset, _plain(one.name)] for one in placed],
        hovertemplate="%{customdata[4]}<br>%{customdata[2]} at offset %{customdata[3]:,}<br>"
        "steps %{customdata[0]} to %{customdata[1]}<extra></extra>",
        textposition="inside",
        insidetextanchor="middle",
        textangle=-90 if upright else 0,
        insidetextfont={"color": "#111111"},
        showlegend=False,
        yaxis=f"y{axis}",
        xaxis="x",
    )


_GRID = "rgba(128,128,128,0.25)"
# Pixels: of the page's parts, and of its plot's width where names are fitted into rectangles.
_PAGE_TOP, _PAGE_LINES, _PAGE_GAP, _PAGE_ARENA, _PAGE_ARENA_LEAST, _PAGE_BOTTOM, _PAGE_WIDE = 130, 260, 62, 320, 90, 50, 1200


def _layout(found: Analysis, drawn: Sequence[Drawn], heights: Sequence[float], unit: Unit) -> dict[str, Any]:
    """heights: of the arenas, in pixels."""
    whole = _PAGE_LINES + sum(_PAGE_GAP + high for high in heights)
    most = max(_size(order.arena) for order, _, _ in drawn) / unit.size or 1
    layout: dict[str, Any] = {
        "title": {
            "text": f"{_plain(_title(found))}<br><sub>{_plain(_subtitle(found))}</sub>",
            "x": 0,
            "xref": "container",
            "pad": {"l": 20},
        },
        "height": _PAGE_TOP + whole + _PAGE_BOTTOM,
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        "margin": {"t": _PAGE_TOP, "l": 80, "r": 20, "b": _PAGE_BOTTOM},
        "barmode": "overlay",
        "uniformtext": {"mode": "hide", "minsize": 9},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#888888", "activecolor": "#0072B2"},
        "xaxis": {
            "title": {"text": "step"},
            "range": [0, found.operators],
            "anchor": "free",
            "position": 0,
            "zeroline": False,
            "gridcolor": _GRID,
        },
        "yaxis": {
            "title": {"text": f"tensors in memory ({unit.name})"},
            "domain": [1 - _PAGE_LINES / whole, 1],
            "rangemode": "tozero",
            "zeroline": False,
            "gridcolor": _GRID,
        },
        "annotations": [],
    }
    top = whole - _PAGE_LINES
    for place, ((order, _, _), high) in enumerate(zip(drawn, heights, strict=True)):
        top -= _PAGE_GAP
        layout[f"yaxis{place + 2}"] = {
            "title": {"text": f"offset ({unit.name})"},
            "domain": [max((top - high) / whole, 0), top / whole],
            "range": [0, most * 1.03 * high / max(heights)],
            "zeroline": False,
            "gridcolor": _GRID,
        }
        note = {
            "text": f"<b>{_plain(_arena_text(order))}</b>",
            "xref": "paper",
            "yref": "paper",
            "x": 0,
            "y": top / whole,
            "yanchor": "bottom",
            "showarrow": False,
        }
        layout["annotations"].append(note)
        top -= high
    return layout


def _stairs(plan: Planned, order: Ordered, each: Sequence[Step], unit: Unit) -> tuple[list[float], list[float], list[str]]:
    """Two points a step, so that the pointer finds it anywhere along."""
    xs, ys, texts = list[float](), list[float](), list[str]()
    for place, step in enumerate(each):
        name, kind = plan.mapped.operators[step.op], plan.mapped.kinds[step.op]
        used = ", ".join(plan.mapped.tensors[one] for one in step.in_use[:6])
        text = (
            f"<b>{_plain(name)}</b> ({_plain(kind)}), step {place + 1}<br>{format_bytes(step.memory_bytes)}: "
            f"{format_bytes(step.in_use_bytes)} in use, {format_bytes(step.keep_bytes)} kept<br>{_plain(used)}"
        )
        for x in (place, place + 0.5, place + 1):
            xs.append(x)
            ys.append(step.memory_bytes / unit.size)
            texts.append(text)
    return xs, ys, texts


def _plain(text: str) -> str:
    """Anyone's text as plotly shows it: it reads some tags, so there are none."""
    return _escaped(grid.plain(text))


def _escaped(text: str) -> str:
    import html

    return html.escape(text, quote=False)


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="memprof plan">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title><!--title--></title>
<style>
:root { color-scheme: light dark; --ink: #111; --ground: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --ground: #16181c; } }
body { margin: 0 auto; max-width: 1400px; background: var(--ground); color: var(--ink); font-family: sans-serif; }
p { margin: 0 20px 0.5em 80px; font-size: small; }
</style></head><body>
<!--body-->
<!--notes-->
<script>
const ink = () => Plotly.relayout("plan", {"font.color": getComputedStyle(document.documentElement).getPropertyValue("--ink").trim()});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ink);
ink();
</script>
</body></html>
"""
