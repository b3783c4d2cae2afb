"""Numbers in an order in which each stands behind those it waits for."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


def topological(waits: Sequence[Collection[int]]) -> list[int]:
    """0, 1, 2, ... where that order serves; else again and again the lowest number that waits for no other.

    waits: for each number those it waits for. Numbers in a cycle, or behind one, are left out.
    """
    if all(source < number for number, sources in enumerate(waits) for source in sources):
        return list(range(len(waits)))
    followers: list[list[int]] = [[] for _ in waits]
    for number, sources in enumerate(waits):
        for source in sources:
            followers[source].append(number)
    waiting = [len(sources) for sources in waits]
    ready = [number for number, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for follower in followers[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    return order
