"""Labels side by side along a line, none over another."""

from __future__ import annotations

from collections.abc import Sequence


def apart(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """The centres of intervals of these sizes that lie side by side, in order, from low to high.

    wanted: the centre of each if it has room, increasing. Where they would meet, the later one moves up, but none moves beyond `high`. Intervals that
    are too long together begin before `low`.
    """
    lefts: list[float] = []
    free = low
    for centre, size in zip(wanted, sizes, strict=True):
        lefts.append(max(free, centre - size / 2))
        free = lefts[-1] + size
    limit = high
    for place in reversed(range(len(lefts))):
        lefts[place] = min(lefts[place], limit - sizes[place])
        limit = lefts[place]
    return [left + size / 2 for left, size in zip(lefts, sizes, strict=True)]
