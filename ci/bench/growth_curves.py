"""Curves of memory by units whose truth is known, for `ci/bench/growth.py series`: caches with a bound, and leaks that look like them.

A curve is what three processes would show without a process to run: the page is the least that shows, libraries are touched late, and the kernel
counts some pages late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memprof.verdicts.growth import LEAST_PROCESSES, Series

PAGE, MIB = 4096, 1 << 20

Numbers = NDArray[Any]
Random = np.random.Generator
Held = Callable[[Numbers, Random], Numbers]  # bytes that are held after so many units


@dataclass(frozen=True)
class Truth:
    """What a case of a kind is. held: its memory. word: the right verdict. reached, size: after how many units it is full, and its bytes then; rate:
    bytes per unit of a leak."""

    held: Held
    word: str
    reached: float = 0.0
    size: float = 0.0
    rate: float = 0.0


def _entries(count: int) -> Callable[[Random], Truth]:
    """A cache that takes an entry of each unit, so many in all."""

    def truth(random: Random) -> Truth:
        size = random.uniform(1000, 70_000)
        return Truth(lambda units, _: np.minimum(units, count) * size, "bounded", count, count * size)

    return truth


def _by_bytes(random: Random) -> Truth:
    """A cache of entries of any size, which drops the oldest when it has too many bytes."""
    limit, mean = random.uniform(16, 100) * MIB, 30_500

    def held(units: Numbers, drawn: Random) -> Numbers:
        ends = np.cumsum(drawn.integers(1000, 2 * mean - 1000, len(units)))
        dropped = np.searchsorted(ends, ends - limit)
        return np.asarray(ends - np.where(dropped > 0, ends[dropped - 1], 0))

    return Truth(held, "bounded", limit / mean, limit)


def _in_bursts(random: Random) -> Truth:
    """A cache that drops a share of its entries at once when it is full."""
    size, entries, share = random.uniform(1000, 70_000), 3000, random.uniform(0.1, 0.95)

    def held(units: Numbers, _: Random) -> Numbers:
        return np.asarray(size * np.where(units <= entries, units, entries - entries * share + (units - entries) % (entries * share)))

    return Truth(held, "bounded", entries, entries * size)


def _leak(random: Random) -> Truth:
    rate = float(np.exp(random.uniform(np.log(300), np.log(70_000))))
    return Truth(lambda units, _: units * rate, "grows", rate=rate)


def _leak_beside_cache(random: Random) -> Truth:
    """A leak that goes on when a cache beside it is full."""
    size, rate = random.uniform(1000, 10_000), random.uniform(2000, 10_000)
    return Truth(lambda units, _: np.minimum(units, 1000) * size + units * rate, "grows", rate=rate)


def _leak_in_pauses(random: Random) -> Truth:
    """A leak of a thousand units, alternating with a pause as long."""
    size, begin = random.uniform(2000, 20_000), random.integers(2000)
    return Truth(
        lambda units, _: size * ((units + begin) // 2000 * 1000 + np.minimum((units + begin) % 2000, 1000)), "grows", rate=size / 2
    )


# kind: (units per process at most, a case of it)
CURVES: dict[str, tuple[int, Callable[[Random], Truth]]] = {
    "bounded at 3,000": (8000, _entries(3000)),
    "bounded at 10,000": (20_000, _entries(10_000)),
    "bounded by bytes": (8000, _by_bytes),
    "eviction in bursts": (20_000, _in_bursts),
    "leak": (20_000, _leak),
    "leak beside a cache": (20_000, _leak_beside_cache),
    "leak in pauses": (20_000, _leak_in_pauses),
}


def processes(truth: Truth, units: int, random: Random) -> list[Series]:
    """The curves of the processes of a round of so many units."""
    return [_process(truth, np.arange(units + 1), random) for _ in range(LEAST_PROCESSES)]


def _process(truth: Truth, units: Numbers, random: Random) -> Series:
    memory = 50 * MIB + truth.held(units, random)
    for _ in range(random.poisson(3)):
        memory[int(len(units) * random.random() ** 3) :] += PAGE * random.integers(1, 17)
    late = random.integers(0, 2, len(units))
    rss = (memory // PAGE - late).astype(int) * PAGE
    return Series({"iteration": units.tolist()}, rss.tolist())
