"""The .dat file of memory_profiler's mprof:

    CMDLINE python script.py
    MEM 45.3 1795283921.2682                              MiB, and seconds since 1970, of each sample
    CHLD 0 12.1 1795283921.27                             the same of a child process, with --multiprocess
    FUNC name MEM_BEGIN T_BEGIN MEM_END T_END [DEPTH]     a function that carries @profile

The functions become phases, else there is one, RUN. All peaks are what was sampled. Children that were sampled along with a row are added to it.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ..runs.records import RUN, Mark
from .found import MIB, Found, count, timeline, whole_lines

TOOL = "mprof"
_S = 1_000_000_000
_SAMPLE = re.compile(r"^MEM\s+([0-9.e+-]+)\s+([0-9.e+]+)\s*$")
_CHILD = re.compile(r"^CHLD\s+[0-9]+\s+([0-9.e+-]+)\s+([0-9.e+]+)\s*$")
_FUNCTION = re.compile(r"^FUNC\s+(\S+)\s+([0-9.e+-]+)\s+([0-9.e+]+)\s+([0-9.e+-]+)\s+([0-9.e+]+)(?:\s+[0-9]+)?\s*$")


def knows(text: str) -> bool:
    """Whether its first lines are of that kind."""
    return any(_SAMPLE.match(line) for line in text.splitlines()[:200]) and text.lstrip().startswith(("CMDLINE", "MEM ", "FUNC ", "CHLD "))


def read(text: str, file: str) -> list[Found]:
    """The measurement in a file."""
    samples: list[tuple[int, int]] = []
    children: list[tuple[int, int]] = []
    functions: list[tuple[str, int, int, int]] = []
    command = ""
    lines, notes = whole_lines(text)
    for line in lines:
        if match := _SAMPLE.match(line):
            _add(samples, match[2], match[1])
        elif match := _CHILD.match(line):
            _add(children, match[2], match[1])
        elif match := _FUNCTION.match(line):
            begin, end, memory = count(match[3], _S), count(match[5], _S), count(match[4], MIB)
            if begin is not None and end is not None and memory is not None and begin <= end:
                functions.append((match[1], begin, end, memory))
        elif line.startswith("CMDLINE") and not command:
            command = line[len("CMDLINE") :].strip()
    if not samples:
        return []
    samples.sort()
    start = samples[0][0]
    rows = _with_children(samples, children)
    times = [time for time, _ in rows]
    highest = _Highest([rss for _, rss in rows])
    marks = [_mark(name, begin, end, rows, times, start, highest) for name, begin, end, _ in sorted(functions, key=lambda each: each[1])]
    marks = _once(marks) or [_mark(RUN, times[0], times[-1], rows, times, start, highest)]
    words = command.split()
    return [
        Found(
            TOOL,
            "command",
            marks,
            model=next((os.path.basename(word) for word in words[1:] if word.endswith((".py", ".tflite", ".onnx", ".circle"))), "")
            or (os.path.basename(words[0]) if words else file),
            argv=tuple(words),
            started_ns=start,
            notes=["all memory is what was sampled; which part of it is file-backed is not known", *notes],
            timeline=timeline([(time - start, rss, 0) for time, rss in rows]),
        )
    ]


def _add(rows: list[tuple[int, int]], time: str, memory: str) -> None:
    t_ns, rss = count(time, _S), count(memory, MIB)
    if t_ns is not None and rss is not None:
        rows.append((t_ns, rss))


def _with_children(samples: list[tuple[int, int]], children: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each sample with the children that were looked at between it and the next one."""
    children.sort()
    times = [time for time, _ in children]
    rows = []
    for index, (time, rss) in enumerate(samples):
        end = samples[index + 1][0] if index + 1 < len(samples) else time + _S
        inside = children[bisect_left(times, time) : bisect_left(times, end)]
        rows.append((time, rss + sum(memory for _, memory in inside)))
    return rows


class _Highest:
    """The highest of any stretch of values, from the highest of each power of two: functions may be many and long, and lie in one another."""

    def __init__(self, values: Sequence[int]) -> None:
        self._levels = [list(values)]
        while len(self._levels[-1]) > (step := 1 << (len(self._levels) - 1)):
            below = self._levels[-1]
            self._levels.append([max(pair) for pair in zip(below, below[step:], strict=False)])

    def within(self, begin: int, end: int) -> int | None:
        """Of the values from begin to before end, None where there are none."""
        if begin >= end:
            return None
        level = (end - begin).bit_length() - 1
        return max(self._levels[level][begin], self._levels[level][end - (1 << level)])


def _mark(name: str, begin: int, end: int, rows: list[tuple[int, int]], times: list[int], start: int, highest: _Highest) -> Mark:
    first, last = bisect_left(times, begin), bisect_right(times, end)
    before, begin_ns = bisect_right(times, begin) - 1, max(begin - start, 0)
    return Mark(
        phase=name[:200],
        begin_ns=begin_ns,
        end_ns=max(end - start, begin_ns),
        rss_peak_bytes=highest.within(first, last),
        rss_peak_exact=False,
        samples=last - first,
        rss_begin_bytes=rows[before][1] if before >= 0 else None,
        rss_end_bytes=rows[last - 1][1] if last > first else None,
    )


def _once(marks: list[Mark]) -> list[Mark]:
    """A function that was called more than once is one phase with its calls as iterations, as memprof has it."""
    found: dict[str, list[Mark]] = {}
    for mark in marks:
        found.setdefault(mark.phase, []).append(mark)
    return [_merged(same) if len(same) > 1 else same[0] for same in found.values()]


def _merged(same: list[Mark]) -> Mark:
    return Mark(
        phase=same[0].phase,
        begin_ns=same[0].begin_ns,
        end_ns=max(mark.end_ns for mark in same),
        rss_peak_bytes=max((mark.rss_peak_bytes for mark in same if mark.rss_peak_bytes is not None), default=None),
        rss_peak_exact=False,
        times_ns=tuple(mark.time_ns for mark in same),
        samples=sum(mark.samples for mark in same),
        rss_begin_bytes=same[0].rss_begin_bytes,
        rss_end_bytes=same[-1].rss_end_bytes,
    )
