"""Sums of trees of processes: programs of trees.c whose memory is known but for what every small process has.

Right is a sum whose interval holds the memory; narrow is an interval under 5% of its upper end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

MIB = 1 << 20
SOURCE = Path(__file__).with_name("trees.c")
# The most MiB that are held at once, and the number of processes that share them.
CASES = {
    "fork": (100, 7),
    "fork-short": (100, 7),
    "killed": (100, 7),
    "storm": (100, 9),
    "own": (96, 5),
    "copy": (200, 2),
    "copy-100ms": (1000, 2),
    "copy-300ms": (1000, 2),
    "file": (200, 4),
    "shmem": (200, 5),
    "vfork": (300, 4),
    "vfork-short": (300, 4),
    "threads": (128, 5),
    "daemon": (100, 3),
    "leader": (164, 2),
}
_SMALL_MIB = 2.0  # of the first process besides, libraries included
_EACH_MIB = 0.8  # of each further process besides, at most: its tables, stack and copies of a few pages
WIDE = ("storm",)  # processes come and go faster than shares can be read: the bounds hold, but nothing brings them together
_NARROW = 0.05
_ENOUGH, _MANY = 0.95, 20  # so many sums must be narrow, of so many: a single wide sum of a few says nothing


def truth(case: str) -> tuple[float, float]:
    """The least and the most MiB that a case may have at its peak."""
    held, count = CASES[case]
    return held, held + _SMALL_MIB + _EACH_MIB * (count - 1)


def judged(case: str, sums: Sequence[tuple[float, float]]) -> tuple[int, int, bool]:
    """How many sums, each as its lower and upper bound in MiB, are right, how many are narrow, and whether the case is as it must be."""
    least, most = truth(case)
    right = sum(low <= most and high >= least for low, high in sums)
    narrow = sum(high - low < _NARROW * high for low, high in sums)
    return right, narrow, right == len(sums) and (case in WIDE or len(sums) < _MANY or narrow >= _ENOUGH * len(sums))


def built(folder: Path) -> Path:
    """The program, compiled into a folder."""
    program = folder / "trees"
    subprocess.run(["cc", "-O1", "-pthread", "-o", str(program), str(SOURCE)], check=True)
    return program


def measured(program: Path, case: str, folder: Path, repeats: int) -> list[tuple[float, float]]:
    """The bounds of each sum's peak, in MiB."""
    runs = folder / "runs.jsonl"
    runs.unlink(missing_ok=True)
    command = [sys.executable, "-m", "memprof", "exec", "--repeats", str(repeats), "-o", str(runs), "--", str(program), case]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{case}: exit code {done.returncode}: {done.stderr}")
    marks = [mark for line in runs.read_text().splitlines() for mark in json.loads(line)["marks"]]
    if len(marks) != repeats:
        raise SystemExit(f"{case}: {len(marks)} sums of {repeats} repeats")
    return [(mark["rss_peak_bytes"] / MIB, (mark.get("rss_peak_high_bytes") or mark["rss_peak_bytes"]) / MIB) for mark in marks]


@contextmanager
def loops(count: int) -> Iterator[None]:
    """So many processes that do nothing but turn."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
