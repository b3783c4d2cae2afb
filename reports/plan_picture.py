"""A plan as a picture: memory over the steps of an order and of the best one, with the bound none undercuts, and the arena of each.

An arena is drawn as what it is: time to the right, addresses upwards, a rectangle for each tensor's live range at its offset. As .html it is
interactive, with the names at the pointer and nothing loaded from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memprof.errors import InputError
from memprof.plan.analysis import Analysis, Arena, Ordered, Planned
from memprof.plan.problem import Step, steps
from memprof.units import format_bytes

from . import plan as words
from . import style
from .grid import Unit
from .style import Entry, Sheet

# Okabe and Ito's, made lighter so that black names can be read on them; neighbours in an arena differ by the step in which they begin.
_TENSORS = ("#8CC3E8", "#F2C572", "#7FCFB6", "#E9A98A", "#D9B3CD", "#B5B5B5", "#F3E88B", "#A8B8E8")
_CHOSEN, _BEST, _BOUND = "#D55E00", "#0072B2", "#555555"
# The same for a page, where the ground may be dark.
_ON_ANY = {_CHOSEN: "#E0651B", _BEST: "#2F8FD0"}
_MARK = "memprof plan"
_LINE_HIGH, _ARENA_HIGH, _LEFT, _GAP, _NAME_LEAST = 2.3, 2.6, 0.75, 0.62, 0.42


def check(path: Path) -> None:
    """Say what is wrong with a picture's path before anything is planned. Raises UsageError or InputError."""
    if path.suffix.lower() == ".html":
        style.check_replaceable(path, lambda head: _MARK.encode() in head, "a page of a plan")
    else:
        style.check(path)


def save(plan: Planned, found: Analysis, path: Path) -> None:
    """Draw a plan into a file: .png, .svg, .pdf or .html. Raises InputError where there is nothing to draw or it cannot be written."""
    if path.suffix.lower() == ".html":
        style.write(path, page(plan, found).encode())
    else:
        style.save(render(plan, found), path)


def _orders(plan: Planned, found: Analysis) -> list[tuple[Ordered, tuple[Step, ...], str]]:
    """Each order to draw, with its steps and its colour."""
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


# -- PNG, SVG, PDF


def render(plan: Planned, found: Analysis) -> Figure:
    """The picture. Raises InputError for a graph without operators."""
    with style.look():
        return _render(found, _orders(plan, found))


def _render(found: Analysis, drawn: Sequence[tuple[Ordered, tuple[Step, ...], str]]) -> Figure:
    unit = words.unit_of([order.peak_bytes for order, _, _ in drawn])
    legend = [
        Entry(style.shortened(style.readable(_label(order)), 9.0, style.SMALL), line={"color": colour, "linewidth": 1.8, "linestyle": dash})
        for (order, _, colour), dash in zip(drawn, ("-", (0, (5, 1.2))), strict=False)
    ]
    if found.lower_bound_bytes is not None:
        legend.append(Entry(_bound_text(found), line={"color": _BOUND, "linewidth": 1, "linestyle": (0, (1.2, 1.5))}))
    remarks = [f"{len(found.unsized)} tensors of unknown size count nothing"] if found.unsized else []
    high = _LINE_HIGH + len(drawn) * (_GAP + _ARENA_HIGH) + 0.4
    sheet = Sheet(_title(found), _subtitle(found), high, legend=legend, remarks=remarks)
    wide = sheet.width - _LEFT - 0.25
    count = len(drawn[0][1])
    _lines(sheet.axes(_LEFT, 0, wide, _LINE_HIGH), found, drawn, unit)
    most = max(_size(order.arena) for order, _, _ in drawn) / unit.size
    for place, (order, _, _) in enumerate(drawn):
        top = _LINE_HIGH + _GAP + place * (_GAP + _ARENA_HIGH)
        sheet.text(_LEFT, top - 0.22, style.label(_arena_text(order), wide), size=style.BODY, weight="bold")
        axes = sheet.axes(_LEFT, top, wide, _ARENA_HIGH)
        _arena(axes, order.arena, count, most, unit, (wide, _ARENA_HIGH))
        if place == len(drawn) - 1:
            axes.set_xlabel("step")
    return sheet.figure


def _size(arena: Arena | None) -> int:
    return max((one.offset + one.bytes for one in arena.placed), default=0) if arena else 0


def _arena_text(order: Ordered) -> str:
    arena = order.arena
    assert arena is not None
    by = "by the exact packer" if arena.packed_bytes is not None and arena.packed_bytes < arena.greedy_bytes else "greedy by size"
    least = ", as small as can be" if arena.proven else ""
    return f"Arena of {words._name(order)}: {format_bytes(_size(arena))} ({by}{least})"


def _lines(axes: Axes, found: Analysis, drawn: Sequence[tuple[Ordered, tuple[Step, ...], str]], unit: Unit) -> None:
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


def _arena(axes: Axes, arena: Arena | None, count: int, most: float, unit: Unit, inches: tuple[float, float]) -> None:
    placed = arena.placed if arena else ()
    corners, colours, edges = [], [], []
    across, up = inches[0] / count, inches[1] / (most * 1.03 or 1)
    for one in placed:
        low, high = one.offset / unit.size, (one.offset + one.bytes) / unit.size
        corners.append([(one.lower, low), (one.upper, low), (one.upper, high), (one.lower, high)])
        colours.append(_TENSORS[one.lower % len(_TENSORS)])
        # The edges of what is thinner than a few of them would be all that is seen of it.
        edges.append(0.5 if min((one.upper - one.lower) * across, (high - low) * up) > 0.04 else 0.0)
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=style.INK, linewidths=edges))
    axes.set_xlim(0, count)
    axes.set_ylim(0, most * 1.03 or 1)
    axes.set_ylabel(f"offset ({unit.name})")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for one in placed:
        wide, high = (one.upper - one.lower) * across - 0.06, one.bytes / unit.size * up
        if wide < _NAME_LEAST or high < style.height(style.SMALL - 1) * 1.05:
            continue
        text = style.label(one.name, wide, style.SMALL - 1)
        middle = ((one.lower + one.upper) / 2, (one.offset + one.bytes / 2) / unit.size)
        axes.text(*middle, text, ha="center", va="center", size=style.SMALL - 1, clip_on=True)


# -- HTML


def page(plan: Planned, found: Analysis) -> str:
    """The same as a page that needs nothing else, names at the pointer. Raises InputError for a graph without operators."""
    import plotly.io
    from plotly.graph_objects import Bar, Layout, Scatter
    from plotly.graph_objects import Figure as Interactive

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
    for place, (order, _, _) in enumerate(drawn):
        assert order.arena is not None
        placed = order.arena.placed
        traces.append(
            Bar(
                orientation="h",
                base=[one.lower for one in placed],
                x=[one.upper - one.lower for one in placed],
                y=[(one.offset + one.bytes / 2) / unit.size for one in placed],
                width=[one.bytes / unit.size for one in placed],
                marker={"color": [_TENSORS[one.lower % len(_TENSORS)] for one in placed], "line": {"color": "#333333", "width": 0.5}},
                text=[_plain(one.name) for one in placed],
                customdata=[[one.lower + 1, one.upper, format_bytes(one.bytes), one.offset] for one in placed],
                hovertemplate="%{text}<br>%{customdata[2]} at offset %{customdata[3]:,}<br>steps %{customdata[0]} to %{customdata[1]}<extra></extra>",
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                insidetextfont={"color": "#111111"},
                showlegend=False,
                yaxis=f"y{place + 2}",
                xaxis="x",
            )
        )
    layout = _layout(found, drawn, unit)
    figure = Interactive(traces, Layout(**layout))
    body = plotly.io.to_html(
        figure, full_html=False, include_plotlyjs=True, config={"displaylogo": False, "responsive": True}, div_id="plan"
    )
    return _PAGE.replace("TITLE", _escaped(_title(found))).replace("BODY", body)


_GRID = "rgba(128,128,128,0.25)"


def _layout(found: Analysis, drawn: Sequence[tuple[Ordered, tuple[Step, ...], str]], unit: Unit) -> dict[str, Any]:
    share = 0.34 if len(drawn) == 1 else 0.26
    most = max(_size(order.arena) for order, _, _ in drawn) / unit.size
    layout: dict[str, Any] = {
        "title": {
            "text": f"{_plain(_title(found))}<br><sub>{_plain(_subtitle(found))}</sub>",
            "x": 0,
            "xref": "container",
            "pad": {"l": 20},
        },
        "height": 620 if len(drawn) == 1 else 880,
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        "margin": {"t": 130, "l": 80, "r": 20, "b": 50},
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
            "domain": [1 - share, 1],
            "rangemode": "tozero",
            "zeroline": False,
            "gridcolor": _GRID,
        },
        "annotations": [],
    }
    height = (1 - share - 0.08 * len(drawn)) / len(drawn)
    for place, (order, _, _) in enumerate(drawn):
        top = 1 - share - 0.08 - place * (height + 0.08)
        layout[f"yaxis{place + 2}"] = {
            "title": {"text": f"offset ({unit.name})"},
            "domain": [max(top - height, 0), top],
            "range": [0, most * 1.03 or 1],
            "zeroline": False,
            "gridcolor": _GRID,
        }
        note = {
            "text": f"<b>{_plain(_arena_text(order))}</b>",
            "xref": "paper",
            "yref": "paper",
            "x": 0,
            "y": top,
            "yanchor": "bottom",
            "showarrow": False,
        }
        layout["annotations"].append(note)
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
    return _escaped(style.plain(text))


def _escaped(text: str) -> str:
    import html

    return html.escape(text, quote=False)


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="memprof plan">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title>
<style>
:root { color-scheme: light dark; --ink: #111; --ground: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --ground: #16181c; } }
body { margin: 0 auto; max-width: 1400px; background: var(--ground); color: var(--ink); font-family: sans-serif; }
</style></head><body>
BODY
<script>
const ink = () => Plotly.relayout("plan", {"font.color": getComputedStyle(document.documentElement).getPropertyValue("--ink").trim()});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ink);
ink();
</script>
</body></html>
"""
