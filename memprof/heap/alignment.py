"""The clock of heaptrack on CLOCK_MONOTONIC: the shift at which the resident set that heaptrack wrote agrees with the one that the recorder read.

heaptrack counts milliseconds from a moment of its own after its launch, and writes the resident set of the process every 10 ms. The recorder reads
the same counter of the same process (statm) on CLOCK_MONOTONIC. Between two readings the size is taken to lie between theirs. Under a shift, a
reading of the one contradicts the other if it lies outside of the two readings around it. Readings beside a step of the size tell shifts apart; of
a size that never moves nothing can be learnt. The shifts that contradict least are possible, and so are those with a few contradictions more,
because a spike can come and go between two readings. massif writes blocks and not the resident set, so this cannot be had there: a block that was
not touched yet is no memory of the process.
"""

from __future__ import annotations

import gzip
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_MS = 1_000_000
_STEP_BYTES, _STEP_SHARE = 256 << 10, 0.01  # a step is at least so large, and at least this part of the largest reading
_MOST_READINGS = 300
_MOST_SHIFTS = 2000
_SPIKES = 0.05  # part of the readings that may contradict beyond the least
_MOST_CONTRADICTIONS = 0.1  # with more of them the curves are of two processes


class Reading(NamedTuple):
    """A resident set in bytes, at a time in nanoseconds."""

    t_ns: int
    size: int


class ClockZero(NamedTuple):
    """CLOCK_MONOTONIC at a tool's time 0, and how far that may be off to either side, in nanoseconds."""

    t_ns: int
    error_ns: int


def of_processes(recording: Path) -> list[list[Reading]]:
    """The resident set of each process in a recording (memprof.recording has the format), from where it was found to its end."""
    sizes: dict[bytes, list[Reading]] = {}
    page = 0
    with gzip.open(recording) as lines:
        for line in lines:
            words = line.split(maxsplit=8) if line.startswith(b"process ") else line.split()
            if words[:1] == [b"recording"]:
                page = int(words[2])
            elif words[:1] == [b"process"] and words[6] != b"-":
                sizes.setdefault(words[3], []).append(Reading(int(words[1]), int(words[7]) * page))
            elif words[:1] == [b"gone"] and words[2] in sizes:
                sizes[words[2]].append(Reading(int(words[1]), 0))
            elif words[:1] == [b"."]:
                _poll(words, page, sizes)
    return list(sizes.values())


def _poll(words: Sequence[bytes], page: int, sizes: dict[bytes, list[Reading]]) -> None:
    """A line `.`: a process whose size has changed still had the last one at the poll before."""
    t_ns, at = int(words[1]), 5
    while at < len(words):
        known = words[at + 1] != b"-"
        if known:
            readings = sizes.setdefault(words[at], [])
            if words[3] != b"-" and readings and readings[-1].t_ns < int(words[3]):
                readings.append(Reading(int(words[3]), readings[-1].size))
            readings.append(Reading(t_ns, int(words[at + 2]) * page))
        at += 4 if known else 2


def zero(tool: Sequence[Reading], processes: Sequence[Sequence[Reading]]) -> ClockZero | None:
    """Where the tool's time 0 lies, of its readings of one of these processes. None if no process has moved as they did, or they have no step.

    processes: all that the recorder saw, the tool's own script too, before which the tool's time does not begin. If several moved alike, the zero
    may be that of each.
    """
    launch_ns = min((process[0].t_ns for process in processes), default=0)
    found = [zero for process in processes if (zero := _of_one(tool, process, launch_ns)) is not None]
    if not found:
        return None
    least, most = min(zero.t_ns - zero.error_ns for zero in found), max(zero.t_ns + zero.error_ns for zero in found)
    return ClockZero((least + most) // 2, (most - least + 1) // 2)


def _of_one(tool: Sequence[Reading], process: Sequence[Reading], launch_ns: int) -> ClockZero | None:
    beside, of_recorder = _beside_steps(tool), _beside_steps(process)
    if not beside or not of_recorder:
        return None
    tool_times, process_times = [reading.t_ns for reading in tool], [reading.t_ns for reading in process]
    last = process_times[-1] - tool_times[-1]  # it writes no size after its end
    step = max(_MS, (last - launch_ns) // _MOST_SHIFTS)
    counts = {}
    for shift in range(launch_ns, last + step, step):
        within = [reading for reading in of_recorder if tool_times[0] <= reading.t_ns - shift <= tool_times[-1]]
        counts[shift] = _contradictions(beside, process, process_times, shift) + _contradictions(within, tool, tool_times, -shift)
    readings = len(beside) + len(of_recorder)
    least = min(counts.values(), default=readings)
    if least > _MOST_CONTRADICTIONS * readings:
        return None
    possible = [shift for shift, count in counts.items() if count <= least + _SPIKES * readings]
    # heaptrack leaves out the part of a millisecond
    return ClockZero((possible[0] + possible[-1]) // 2, (possible[-1] - possible[0]) // 2 + step)


def _beside_steps(readings: Sequence[Reading]) -> list[Reading]:
    """The readings before and after the largest steps."""
    least = max(_STEP_BYTES, _STEP_SHARE * max((reading.size for reading in readings), default=0))
    steps = [(abs(after.size - before.size), place) for place, (before, after) in enumerate(pairwise(readings))]
    largest = sorted((step for step in steps if step[0] >= least), reverse=True)[: _MOST_READINGS // 2]
    places = {place for _, before in largest for place in (before, before + 1)}
    return [readings[place] for place in sorted(places)]


def _contradictions(readings: Sequence[Reading], others: Sequence[Reading], times: Sequence[int], shift: int) -> int:
    """How many readings, later by `shift`, lie outside of the two others around them, whose times are given too. Before its first reading a process
    may have had any size below that one, and so after its last."""
    count = 0
    for t_ns, size in readings:
        place = bisect_right(times, t_ns + shift)
        before = others[place - 1].size if place else 0
        after = others[place].size if place < len(others) else 0
        count += not min(before, after) - _STEP_BYTES <= size <= max(before, after) + _STEP_BYTES
    return count
