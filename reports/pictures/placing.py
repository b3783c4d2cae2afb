"""Labels that must not meet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

Box = tuple[float, float, float, float]
Spot = tuple[float, float]
Leader = tuple[Spot, Spot]
_NEAR = 0.13  # a label so many inches from its point needs no line to it


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes (left, bottom, right, top) share more than an edge."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def leader(point: Spot, box: Box) -> Leader | None:
    """The line from a point to its label, None where they are near enough without one."""
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


def _cross(one: Leader, other: Leader) -> bool:
    """Whether two lines cross: the ends of each lie on both sides of the other."""

    def side(line: Leader, spot: Spot) -> float:
        (x, y), (u, v) = line
        return (u - x) * (spot[1] - y) - (v - y) * (spot[0] - x)

    return all(side(line, ends[0]) * side(line, ends[1]) < 0 for line, ends in ((one, other), (other, one)))


_RINGS = (0.09, 0.16, 0.26, 0.4, 0.58, 0.8, 1.05, 1.35)
_DIRECTIONS_ROUND = ((1, 0), (1, 1), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1), (-1, -1), (1, 0.5), (1, -0.5), (-1, 0.5), (-1, -0.5))


def beside(
    points: Sequence[Spot],
    sizes: Sequence[tuple[float, float]],
    area: Box,
    obstacles: Sequence[Box] = (),
    above: bool = False,
) -> list[Box] | None:
    """A box for the label of each point, none over another, over a point or an obstacle, or outside the area; None without room.

    The line to a label that is not near its point meets no other label, point or line. points, sizes (width, height), area and obstacles in
    inches. Near a point is tried first, to its right before to its left, or above it before all else.
    """
    spots = [(x - 0.06, y - 0.06, x + 0.06, y + 0.06) for x, y in points]
    found: dict[int, Box] = {}
    lines: list[Leader] = []
    crowd = [sum(abs(x - u) + abs(y - v) < 1.2 for u, v in points) for x, y in points]
    for index in sorted(range(len(points)), key=lambda one: -crowd[one]):  # where it is crowded first
        taken = [*spots, *found.values(), *obstacles]
        x, y = points[index]
        others = [*(spot for spot in spots if not _inside((x, y, x, y), spot)), *found.values()]  # points on one another are one
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
        found[index] = box
        if (line := leader(points[index], box)) is not None:
            lines.append(line)
    return [found[index] for index in range(len(points))]


def _candidates(point: Spot, size: tuple[float, float], above: bool) -> Iterator[Box]:
    (x, y), (wide, high) = point, size
    for ring in _RINGS:
        for across, up in ((0.0, 1.0), *_DIRECTIONS_ROUND) if above else _DIRECTIONS_ROUND:
            left = x + across * ring - (wide if across < 0 else wide / 2 if across == 0 else 0)
            bottom = y + up * ring - (high if up < 0 else high / 2 if up == 0 else 0)
            yield left, bottom, left + wide, bottom + high


def backing() -> dict[str, Any]:
    """For text over lines: a box behind it, so that it stays readable (and, unlike an outline, text in an SVG)."""
    return {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


def _inside(box: Box, area: Box) -> bool:
    return area[0] <= box[0] and area[1] <= box[1] and box[2] <= area[2] and box[3] <= area[3]


def apart(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres as near to the wanted ones as intervals of these sizes can lie side by side, in order, from low to high.

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
