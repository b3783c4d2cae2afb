"""The shift between heaptrack's clock and the recorder's: found where the size has steps, and not where it has none."""

from __future__ import annotations

import gzip
import random
from bisect import bisect_right
from pathlib import Path

import pytest

from memprof.heap import alignment, heaptrack
from memprof.heap.alignment import Reading

MIB, MS = 1 << 20, 1_000_000
LAUNCH, ZERO = 7_000 * MS, 7_190 * MS

# The size of a process from each ms of heaptrack's time on, in MiB.
LOADS = ((-15, 2), (0, 4), (60, 20), (130, 44), (210, 84), (300, 44), (340, 52), (700, 0))


def size_at(course: tuple[tuple[int, int], ...], ms: float) -> int:
    place = bisect_right([begin for begin, _ in course], ms)
    return course[place - 1][1] * MIB if place else 0


def both(course: tuple[tuple[int, int], ...], seed: int) -> tuple[list[Reading], list[Reading]]:
    """What heaptrack writes of a course, and what the recorder reads, at times of their own."""
    drawn = random.Random(seed)
    tool, process, at = [], [], 12.0
    while at < 690:
        tool.append(Reading(int(at) * MS, size_at(course, at)))
        at += drawn.uniform(10, 25)
    at = -drawn.uniform(0, 15)
    while at < 700:
        process.append(Reading(ZERO + int(at * MS), size_at(course, at)))
        at += drawn.uniform(15, 40)
    return tool, [*process, Reading(ZERO + 700 * MS, 0)]


SCRIPT = [Reading(LAUNCH, MIB), Reading(LAUNCH + 900 * MS, 2 * MIB)]


@pytest.mark.parametrize("seed", range(20))
def test_shift_found_by_steps(seed: int) -> None:
    tool, process = both(LOADS, seed)

    zero = alignment.zero(tool, [SCRIPT, process])

    assert zero is not None
    assert abs(zero.t_ns - ZERO) <= zero.error_ns < 40 * MS


def test_no_shift_without_steps() -> None:
    assert alignment.zero(*flat(both(((-15, 40), (700, 0)), 1))) is None


def flat(curves: tuple[list[Reading], list[Reading]]) -> tuple[list[Reading], list[list[Reading]]]:
    return curves[0], [SCRIPT, curves[1][:-1]]


def test_no_shift_for_another_process() -> None:
    tool, _ = both(LOADS, 1)
    _, other = both(((-15, 3), (40, 90), (90, 5), (400, 66), (420, 9), (600, 70), (700, 0)), 1)
    assert alignment.zero(tool, [SCRIPT, other]) is None
    assert alignment.zero(tool, []) is None and alignment.zero([], [other]) is None


def test_shift_of_processes_alike_covers_both() -> None:
    tool, process = both(LOADS, 1)
    later = [Reading(reading.t_ns + 100 * MS, reading.size) for reading in process]

    zero = alignment.zero(tool, [SCRIPT, process, later])

    assert zero is not None
    for true_ns in (ZERO, ZERO + 100 * MS):
        assert abs(zero.t_ns - true_ns) <= zero.error_ns


def test_sizes_of_processes_in_recording(tmp_path: Path) -> None:
    path = tmp_path / "r.recording.gz"
    stat = "S 9 0 0 0 1 140"
    lines = (
        "recording 1 4096 100 python",
        f"process 100 5 71 7 0 900 3 2 {stat} 800 5 4 {stat} a name",
        "process 110 5 72 7 0 - - - - gone before",
        ". 200 5 100 2 71 900 10 2 72 800 20 4",
        ". 400 5 300 4 71 900 30 2 72 -",
        "gone 500 71",
    )
    path.write_bytes(gzip.compress("\n".join((*lines, "")).encode()))

    assert alignment.of_processes(path) == [
        [(100, 3 * 4096), (200, 10 * 4096), (300, 10 * 4096), (400, 30 * 4096), (500, 0)],
        [(200, 20 * 4096)],
    ]


def test_resident_set_in_heaptrack_file(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_text("v 10400 3\nI 1000 5e298d\nc a\nR 10\nc 1f\nR 20\n")
    assert heaptrack.resident_set(path) == [(10 * MS, 16 * 4096), (31 * MS, 32 * 4096)]
