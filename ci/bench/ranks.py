"""What the exact rank test costs: `cd ci && python -m bench.ranks`. Processor time, so that a busy machine matters little; nothing is written.

A row is two sides of as many repeats, without ties, with some and with many, in one stratum or two. The verdicts are those of `compare`, on
as many rows as it has by default.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from memprof.verdicts import rank_counts, ranks

from .table import aligned

# How far apart neighbouring values are, in standard deviations.
STEPS = {"no ties": 1e-9, "some ties": 0.05, "many ties": 1.0}
SHIFT = 0.25
ROWS = 31


def main() -> None:
    """Print the table."""
    ranks.rank_p(range(5), range(5))  # imports numpy
    lines = [["repeats a side", "test", *STEPS]]
    for count in (100, 200):
        for name, work in (("a row", _row), ("a row in two strata", _strata), (f"{ROWS} verdicts", _verdicts)):
            lines.append([str(count), name, *(_seconds(work, count, step) for step in STEPS.values())])
    print(aligned(lines))


def _row(count: int, step: float) -> object:
    return ranks.rank_p(*_sides(count, step))


def _strata(count: int, step: float) -> object:
    return ranks.stratified_p([_sides(count // 2, step, seed) for seed in (1, 2)])


def _verdicts(count: int, step: float) -> object:
    return [ranks.beyond_chance(*_sides(count, step, seed)) for seed in range(ROWS)]


def _sides(count: int, step: float, seed: int = 1) -> tuple[Sequence[float], Sequence[float]]:
    draw = random.Random(seed)
    base, head = ([step * round(draw.gauss(middle, 1) / step) for _ in range(count)] for middle in (0, SHIFT))
    return base, head


def _seconds(work: Callable[[int, float], object], count: int, step: float) -> str:
    rank_counts.share_at_most.cache_clear()
    rank_counts._shared_halves.cache_clear()
    began = time.process_time()
    work(count, step)
    return f"{time.process_time() - began:.3f} s"


if __name__ == "__main__":
    main()
