"""Synthetic series for the search of steps: 5 repeats a commit with the noise of real peaks, and steps that are known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

NOISES = ("zero", "one mode", "two modes", "commits", "drift", "outliers")
SIZES = (0.005, 0.01, 0.02, 0.05)
REPEATS = 5
COMMITS = 250
BOUND = 512 << 10  # of a high-water mark on 2 CPUs
_MIB = 1 << 20
_WITHIN = 2  # commits between a known step and a found one


@dataclass(frozen=True)
class Series:
    """points: the repeats of each commit, in bytes. steps: the first commit of each new level."""

    noise: str
    size: float
    points: tuple[tuple[float, ...], ...]
    steps: tuple[int, ...]


def series(noise: str, size: float, seed: int, commits: int = COMMITS, steps: int | None = None) -> Series:
    """A series with one to five steps of this size, up or down, at least 12 commits apart; with steps=0 it has none."""
    draw = random.Random(f"{noise} {size} {seed}")
    level = draw.uniform(100, 800) * _MIB
    count = draw.randint(1, 5) if steps is None else steps
    places: list[int] = []
    while len(places) < count:
        place = draw.randint(12, commits - 8)
        if all(abs(place - earlier) >= 12 for earlier in places):
            places.append(place)
    signs = {place: draw.choice((1, 1, -1)) for place in places}
    # ONNX Runtime's peaks vary by 0.03% with the default threads; its two modes lie 2.4% apart, and one of them is met more often.
    spread = 0.0003 * level
    gap, often = draw.uniform(0.015, 0.04) * level, draw.uniform(0.3, 0.7)
    slope = draw.choice((-1, 1)) * draw.uniform(0.00002, 0.0001) * level
    points = []
    now = level
    for commit in range(commits):
        now += signs.get(commit, 0) * size * level
        # Each commit lays its code out again.
        here = draw.gauss(now, 0.001 * level) if noise == "commits" else now
        points.append(tuple(_value(draw, noise, here, commit, spread, gap, often, slope) for _ in range(REPEATS)))
    return Series(noise, size, tuple(points), tuple(sorted(places)))


def _value(draw: random.Random, noise: str, level: float, commit: int, spread: float, gap: float, often: float, slope: float) -> float:
    if noise == "zero":
        return round(level / 4096) * 4096
    value = draw.gauss(level, spread)
    if noise == "two modes":
        value += gap * (draw.random() < often)
    if noise == "drift":
        value += slope * commit
    if noise == "outliers" and draw.random() < 0.03:
        value += draw.uniform(0.02, 0.3) * level
    return round(value / 4096) * 4096


def f1(places: Sequence[Sequence[int]], known: Sequence[Sequence[int]]) -> float:
    """The harmonic mean of precision and recall over all series together."""
    hits = sum(matched(here, there) for here, there in zip(places, known, strict=True))
    total = sum(map(len, places)) + sum(map(len, known))
    return 2 * hits / total if total else 1.0


def matched(places: Sequence[int], known: Sequence[int]) -> int:
    """How many known steps have a found step near them, each its own."""
    left = list(places)
    for place in known:
        near = min(left, key=lambda other: abs(other - place), default=None)
        if near is not None and abs(near - place) <= _WITHIN:
            left.remove(near)
    return len(places) - len(left)
