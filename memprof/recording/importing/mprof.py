"""The .dat file of memory_profiler's mprof:

    CMDLINE python script.py
    MEM 45.3 1795283921.2682                              MiB, and seconds since 1970, of each sample
    CHLD 0 12.1 1795283921.27                             the same of a child process, with --multiprocess
    FUNC name MEM_BEGIN T_BEGIN MEM_END T_END [DEPTH]     a function that carries @profile

The functions become phases; without any there is one phase, RUN. All peaks are sampled. Children that were sampled along with a row are added to it.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ...records.types import RUN, Mark
from .measurement import MIB, SAMPLED, Measurement, count, timeline, whole_lines

TOOL = "mprof"
_S = 1_000_000_000
_SAMPLE = re.compile(r"^MEM\s+([0-9.e+-]+)\s+([0-9.e+]+)\s*$")
_CHILD = re.compile(r"^CHLD\s+[0-9]+\s+([0-9.e+-]+)\s+([0-9.e+]+)\s*$")
_FUNCTION = re.compile(r"^FUNC\s+(\S+)\s+([0-9.e+-]+)\s+([0-9.e+]+)\s+([0-9.e+-]+)\s+([0-9.e+]+)(?:\s+[0-9]+)?\s*$")


def knows(text: str) -> bool:
    """Whether its first lines are of that kind."""
    return any(_SAMPLE.match(line) for line in text.splitlines()[:200]) and text.lstrip().startswith(("CMDLINE", "MEM ", "FUNC ", "CHLD "))


def read(text: str, file: str) -> list[Measurement]:
    """The measurement in a file."""
    samples: list[tuple[int, int]] = []
    children: list[tuple[int, int]] = []
    functions: list[tuple[str, int, int]] = []
    command = ""
    lines, notes = whole_lines(text)
    for line in lines:
        if match := _SAMPLE.match(line):
            _add(samples, match[2], match[1])
        elif match := _CHILD.match(line):
            _add(children, match[2], match[1])
        elif match := _FUNCTION.match(line):
            begin, end = count(match[3], _S), count(match[5], _S)
            if begin is not None and end is not None and begin <= end:
                functions.append((match[1], begin, end))
        elif line.startswith("CMDLINE") and not command:
            command = line[len("CMDLINE") :].strip()
    if not samples:
        return []
    samples.sort()
    start = samples[0][0]
    rows = _with_children(samples, children)
    times = [time for time, _ in rows]
    highest = _Highest([rss for _, rss in rows])
    marks = [_mark(*function, rows, times, start, highest) for function in sorted(functions, key=lambda function: function[1])]
    marks = _once(marks) or [_mark(RUN, times[0], times[-1], rows, times, start, highest)]
    words = command.split()
    return [
        Measurement(
            TOOL,
            "command",
            marks,
            model=next((os.path.basename(word) for word in words[1:] if word.endswith((".py", ".tflite", ".onnx", ".circle"))), "")
            or (os.path.basename(words[0]) if words else file),
            argv=tuple(words),
            started_ns=start,
            notes=[SAMPLED, *notes],
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
        """Of the values from begin to before end, None if there are none."""
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
    """A function that was called more than once becomes one phase, with its calls as iterations."""
    calls_of: dict[str, list[Mark]] = {}
    for mark in marks:
        calls_of.setdefault(mark.phase, []).append(mark)
    return [_merged(calls) if len(calls) > 1 else calls[0] for calls in calls_of.values()]


def _merged(calls: list[Mark]) -> Mark:
    return Mark(
        phase=calls[0].phase,
        begin_ns=calls[0].begin_ns,
        end_ns=max(mark.end_ns for mark in calls),
        rss_peak_bytes=max((mark.rss_peak_bytes for mark in calls if mark.rss_peak_bytes is not None), default=None),
        rss_peak_exact=False,
        times_ns=tuple(mark.time_ns for mark in calls),
        samples=sum(mark.samples for mark in calls),
        rss_begin_bytes=calls[0].rss_begin_bytes,
        rss_end_bytes=calls[-1].rss_end_bytes,
    )
