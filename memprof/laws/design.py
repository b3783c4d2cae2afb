"""Where to measure a law: the values of a dimension, the first places, and then the place that tells most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .log_periodic import Arena
from .model_selection import between, rivals_of
from .terms import NOISE, SHAPE, Point, columns_of, distance


def values_of(low: int, high: int, step: int = 1, most: int = 24) -> list[int]:
    """Values of a dimension worth measuring: its ends, and between them about as many near one another as far apart."""
    count = (high - low) // step + 1
    if count <= most:
        return [low + step * place for place in range(count)]
    shares = {place / (most - 1) for place in range(most)}
    chosen = {low, low + step * (count - 1)}
    for share in shares:
        linear = low + share * (high - low)
        by_logarithm = max(low, 1) * (high / max(low, 1)) ** share
        chosen.add(low + step * round(((linear + by_logarithm) / 2 - low) / step))
    return sorted(chosen)


def first_places(ranges: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Where to measure first: all dimensions low, then each high alone."""
    lowest = {name: low for name, (low, _) in ranges.items()}
    return [lowest, *({**lowest, name: high} for name, (low, high) in ranges.items() if high > low)]


def next_place(
    series: Sequence[Sequence[Point]],
    candidates: Sequence[Mapping[str, int]],
    *,
    noise: tuple[float, float] = NOISE,
    arena: Arena | None = None,
) -> Mapping[str, int] | None:
    """The candidate that tells most about the laws of several series of points: where rival laws disagree most, and known laws know least.

    A candidate that was measured, or that is not below a point that died of want of memory, tells nothing. None if no candidate is left.
    """
    import numpy as np

    points = series[0]
    dead = [point.at for point in points if point.least]
    left = [
        place
        for place in candidates
        if all(dict(place) != dict(point.at) for point in points) and not any(all(place[name] >= at[name] for name in place) for at in dead)
    ]
    if not left:
        return None
    ranges = {name: (min(place[name] for place in candidates), max(place[name] for place in candidates)) for name in left[0]}
    columns = columns_of(left, list(ranges))
    away = distance(left, [point.at for point in points], ranges)
    utility = np.zeros(len(left))
    height = max(max((point.bytes for point in law_points), default=0.0) for law_points in series)
    for law_points in series:
        rivals = rivals_of(law_points, noise, quick=True, arena=arena)
        if not rivals:
            continue
        middle, variance = rivals[0][1].at(columns, len(left))
        variance = variance + between(rivals, columns, len(left), middle)
        size = np.maximum(middle, height * 0.05)
        utility += variance / size**2
    utility += (SHAPE * away) ** 2 * len(series)
    return left[int(np.argmax(utility))]
