"""Labels that must not meet: where they go, and how they are drawn beside their points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes

from .style import GREY, SMALL

Box = tuple[float, float, float, float]
Spot = tuple[float, float]
Leader = tuple[Spot, Spot]
_NEAR = 0.13  # a label so many inches from its point needs no line to it


def overlap(box: Box, other: Box) -> bool:
    """Whether two boxes (left, bottom, right, top) share more than an edge."""
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def leader(point: Spot, box: Box) -> Leader | None:
    """The line from a point to its label, None where they are near enough without it."""
    end = min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])
    return (point, end) if math.dist(point, end) > _NEAR else None


def _is_clear(line: Leader | None, boxes: Sequence[Box], lines: Sequence[Leader]) -> bool:
    return line is None or not (any(_runs_through(line, box) for box in boxes) or any(_cross(line, other) for other in lines))


def _runs_through(line: Leader, box: Box) -> bool:
    """Whether a line enters a box (Liang and Barsky 1984)."""
    (x, y), (u, v) = line
    begin, end = 0.0, 1.0
    for start, step, low, high in ((x, u - x, box[0], box[2]), (y, v - y, box[1], box[3])):
        if step:
            enters, leaves = sorted(((low - start) / step, (high - start) / step))
            begin, end = max(begin, enters), min(end, leaves)
        elif not low < start < high:
            return False
    return begin < end


def _cross(line: Leader, other: Leader) -> bool:
    """Whether two lines cross: the ends of each lie on both sides of the other."""

    def side(line: Leader, spot: Spot) -> float:
        (x, y), (u, v) = line
        return (u - x) * (spot[1] - y) - (v - y) * (spot[0] - x)

    return all(side(crossed, end) * side(crossed, other_end) < 0 for crossed, (end, other_end) in ((line, other), (other, line)))


_RINGS = (0.09, 0.16, 0.26, 0.4, 0.58, 0.8, 1.05, 1.35)
_DIRECTIONS_ROUND = ((1, 0), (1, 1), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1), (-1, -1), (1, 0.5), (1, -0.5), (-1, 0.5), (-1, -0.5))


def beside(
    points: Sequence[Spot],
    sizes: Sequence[tuple[float, float]],
    area: Box,
    obstacles: Sequence[Box] = (),
    above: bool = False,
) -> list[Box] | None:
    """A box for the label of each point, None without room. No box lies over another, over a point or an obstacle, or outside the area.

    The line to a label that is not near its point meets no other label, point or line. points, sizes (width, height), area and obstacles are in
    inches. Places near the point come first, those on its right before those on its left; with `above`, those above it before all.
    """
    spots = [(x - 0.06, y - 0.06, x + 0.06, y + 0.06) for x, y in points]
    boxes: dict[int, Box] = {}
    lines: list[Leader] = []
    crowd = [sum(abs(x - u) + abs(y - v) < 1.2 for u, v in points) for x, y in points]
    for index in sorted(range(len(points)), key=lambda place: -crowd[place]):  # where it is crowded first
        taken = [*spots, *boxes.values(), *obstacles]
        x, y = points[index]
        others = [*(spot for spot in spots if not _inside((x, y, x, y), spot)), *boxes.values()]  # points at the same place count as one
        free = (
            box
            for box in _candidates(points[index], sizes[index], above)
            if _inside(box, area)
            and not any(overlap(box, other) for other in taken)
            and not any(_runs_through(line, box) for line in lines)
            and _is_clear(leader(points[index], box), others, lines)
        )
        box = next(free, None)
        if box is None:
            return None
        boxes[index] = box
        if (line := leader(points[index], box)) is not None:
            lines.append(line)
    return [boxes[index] for index in range(len(points))]


def _candidates(point: Spot, size: tuple[float, float], above: bool) -> Iterator[Box]:
    (x, y), (wide, high) = point, size
    for ring in _RINGS:
        for across, up in ((0.0, 1.0), *_DIRECTIONS_ROUND) if above else _DIRECTIONS_ROUND:
            left = x + across * ring - (wide if across < 0 else wide / 2 if across == 0 else 0)
            bottom = y + up * ring - (high if up < 0 else high / 2 if up == 0 else 0)
            yield left, bottom, left + wide, bottom + high


def backing() -> dict[str, Any]:
    """The box behind text over lines, so that it stays readable (and, unlike an outline, text in an SVG)."""
    return {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


def draw(axes: Axes, text: str, point: Spot, box: Box, size: tuple[float, float], **words: Any) -> None:
    """Draw a label into its box, with the line to its point where they are not near. text: escaped; size: of the axes, in inches."""
    (left, bottom, right, upper), (wide, high) = box, size
    if (line := leader(point, box)) is not None:
        ends = ([x / wide for x, _ in line], [y / high for _, y in line])
        axes.plot(*ends, transform=axes.transAxes, color=GREY, linewidth=0.5, zorder=3)
    middle = ((left + right) / 2 / wide, (bottom + upper) / 2 / high)
    axes.text(*middle, text, transform=axes.transAxes, ha="center", va="center", size=SMALL, bbox=backing(), zorder=7, **words)


def _inside(box: Box, area: Box) -> bool:
    return area[0] <= box[0] and area[1] <= box[1] and box[2] <= area[2] and box[3] <= area[3]


def apart(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """The centres of intervals of these sizes that lie side by side, in order, from low to high, each as near to the wanted centre as can be.

    wanted must increase. Where they are too long together they overlap evenly.
    """
    blocks: list[list[Any]] = []  # [left edge, length, sum of the wanted left edges, members]
    for centre, size in zip(wanted, sizes, strict=True):
        blocks.append([centre - size / 2, size, [centre - size / 2]])
        while len(blocks) > 1 and blocks[-2][0] + blocks[-2][1] > blocks[-1][0]:
            last, before = blocks.pop(), blocks[-1]
            before[2] += [edge - before[1] for edge in last[2]]
            before[1] += last[1]
            before[0] = sum(before[2]) / len(before[2])
    places: list[float] = []
    for left, _, members in blocks:
        places += [left] * len(members)
    return _pressed(places, sizes, low, high)


def _pressed(lefts: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Lay intervals from their blocks' left edges, pressed back where they pass the right edge and then the left one."""
    edges: list[float] = []
    at = low
    for left, size in zip(lefts, sizes, strict=True):
        at = max(at, left)
        edges.append(at)
        at += size
    limit = high
    for index in range(len(edges) - 1, -1, -1):
        edges[index] = min(edges[index], limit - sizes[index])
        limit = edges[index]
    return [edge + size / 2 for edge, size in zip(edges, sizes, strict=True)]
