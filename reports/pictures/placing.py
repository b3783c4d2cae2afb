"""Labels side by side along a line, none over another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
