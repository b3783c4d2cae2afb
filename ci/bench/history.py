"""How good the search of steps is, beside other finders on the same series: `make bench-history`.

500 synthetic series with known steps (see history_series.py) and as many without a step. A step counts as found within two commits of its place.
OTHERS names an interpreter that has apache-otava, ruptures and asv; without it memprof's alone is measured. Processor time is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from memprof.judge import steps

from .history_series import BOUND, COMMITS, NOISES, SIZES, Series, series
from .table import aligned

WITHIN = 2


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=500, help="how many with steps, and how many without")
    count = parser.parse_args().series
    kinds = [(noise, size) for noise in NOISES for size in SIZES]
    stepped = [series(*kinds[number % len(kinds)], number) for number in range(count)]
    calm = [series(NOISES[number % len(NOISES)], 0.0, number, steps=0) for number in range(count)]
    began = time.process_time()
    places = {"memprof": [_memprof(one) for one in (*stepped, *calm)]}
    seconds = (time.process_time() - began) / (2 * count)
    places |= _others([*stepped, *calm])
    finders = list(places)
    lines = [["noise", "step", "steps", *(f"{name}: F1" for name in finders)]]
    for noise in (*NOISES, "all"):
        for size in SIZES:
            rows = [n for n, one in enumerate(stepped) if one.size == size and noise in (one.noise, "all")]
            scores = [f1([places[name][n] for n in rows], [stepped[n].steps for n in rows]) for name in finders]
            lines.append([noise, f"{size:.1%}", str(sum(len(stepped[n].steps) for n in rows)), *(f"{score:.3f}" for score in scores)])
    print(aligned(lines), end="\n\n")
    lines = [["noise, no step", "commits", *(f"{name}: false alarms" for name in finders)]]
    for noise in (*NOISES, "all"):
        rows = [n for n, one in enumerate(calm) if noise in (one.noise, "all")]
        alarms = [sum(len(places[name][count + n]) for n in rows) for name in finders]
        lines.append([noise, str(len(rows) * COMMITS), *map(str, alarms)])
    print(aligned(lines), end="\n\n")
    exact = [place in one.steps for one, found in zip(stepped, places["memprof"][:count], strict=True) for place in found]
    print(f"{sum(exact)} of {len(exact)} found steps are at the very commit; {1000 * seconds:.1f} ms a series of {COMMITS} commits")


def f1(found: Sequence[Sequence[int]], known: Sequence[Sequence[int]]) -> float:
    """The harmonic mean of precision and recall over all series together."""
    hits = sum(matched(here, there) for here, there in zip(found, known, strict=True))
    total = sum(map(len, found)) + sum(map(len, known))
    return 2 * hits / total if total else 1.0


def matched(found: Sequence[int], known: Sequence[int]) -> int:
    """How many known steps have a found step near them, each its own."""
    left = list(found)
    for place in known:
        near = min(left, key=lambda other: abs(other - place), default=None)
        if near is not None and abs(near - place) <= WITHIN:
            left.remove(near)
    return len(found) - len(left)


def _memprof(one: Series) -> list[int]:
    return [step.at for step in steps.find(one.points, BOUND)]


def _others(all_series: Sequence[Series]) -> dict[str, list[list[int]]]:
    python = os.environ.get("OTHERS")
    if not python:
        return {}
    script = Path(__file__).with_name("history_others.py")
    given = json.dumps([one.points for one in all_series])
    done = subprocess.run([python, str(script)], input=given, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
