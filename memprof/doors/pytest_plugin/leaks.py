"""Tests that must not grow: what their processes tell together, and the sentence of a test that fails."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.units import format_bytes
from .table import GROWTH, HIDDEN, RATE

if TYPE_CHECKING:
    from ...records.python_lines import GrowthLine
    from ...records.types import Run
    from ...verdicts.growth import Verdict

REASON = "growth_reason"  # the property of a test whose memprof.grows found growth
_MOST_LINES, _LEAST_SHARE = 3, 0.1  # of the lines that are named, and of the growth that one of them has
_CLOSE = 16  # bytes per call that may hide without a longer round: 1,000 calls of a test that keeps nothing leave 9
_NO_LINES = (
    "No line of Python allocates it. To see the call sites in C, call the same in a script that marks each call (memprof marks --python): "
    "memprof grow --why --who -- python SCRIPT"
)


@dataclass(frozen=True)
class LeakAnswer:
    """The verdict on a test that was called again and again. rise: by how much its memory rose in all, see verdicts.growth.risen."""

    verdict: Verdict
    rise: tuple[int, bool]

    def needs_more(self, most_bytes: int) -> bool:
        """Whether a longer round would tell more: it is undecided, or flat and more than the limit could hide, which each call may keep, or it grows
        in memory that was freed before, where caches of the interpreter and of pytest fill up too."""
        flat = self.verdict.word in ("steady", "bounded")
        return self.verdict.word == "undecided" or self.verdict.hidden or (flat and self.verdict.high > max(_CLOSE, most_bytes))

    def failure(self, run: Run, most_bytes: int, most_calls: int) -> str | None:
        """Why the test fails, None if it passes. run: one of its processes. most_bytes: each call may keep. most_calls: a process makes."""
        from msgspec.structs import replace

        from ...records.summary import key
        from ...verdicts import growth_limits
        from ...verdicts.growth_outlook import outlook

        # The number of calls is none of a test's settings, so it is not told how many would decide.
        growth = growth_limits.VariantGrowth(key(run), "call", replace(self.verdict, needed=None))
        row = growth_limits.judged(growth, growth_limits.Limit("call", most_bytes))
        if row.verdict == "ok":
            return None
        if self.verdict.word == "undecided":
            return f"{row.reason}. Let its work vary less or take less time: a process makes up to {most_calls:,} calls"
        unfilled = outlook(self.verdict, self.rise, longer=False).unfilled_cache("call")
        return f"{row.reason}. {unfilled}: then bound it, fill it in a fixture, or give leaks a higher limit"


def judge(runs: Sequence[Run]) -> LeakAnswer:
    """The answer of processes that called the same test."""
    from ...records import work
    from ...verdicts import growth

    series = [growth.series(work.curve_of(run), run.machine.page_bytes) for run in runs]
    verdict = growth.judge(series)
    return LeakAnswer(verdict, growth.risen(series, verdict))


def properties(verdict: Verdict) -> list[tuple[str, object]]:
    """Those of a test: no rate where none was found, and beside a flat one what could hide."""
    if verdict.word == "undecided":
        return [(GROWTH, verdict.word)]
    hidden: list[tuple[str, object]] = [] if verdict.word == "grows" else [(HIDDEN, verdict.high)]
    return [(GROWTH, verdict.word), (RATE, verdict.slope), *hidden]


def told(lines: Sequence[GrowthLine], calls: int, rate: float, folder: Path) -> Iterator[str]:
    """A sentence for each line of Python that allocates a part of the growth, with what holds the objects if that was found. calls: between both
    looks. rate: the growth, in bytes per call. folder: to which paths are relative."""
    large = _large(lines, calls, rate)
    for line in large:
        inside = "" if line.library_file is None else f" (in {line.library_file}:{line.library_number}, which it called)"
        size = format_bytes(line.bytes / calls)  # as Python's code asked for them: the allocator rounds each up
        yield f"At least {size} of Python's objects per call stay, allocated by {_place(line, folder)}{inside}{line.holder_words}"
    if not large:
        yield _NO_LINES


def largest_place(lines: Sequence[GrowthLine], calls: int, rate: float, folder: Path) -> str | None:
    """The line that allocates most of the growth, FILE:LINE, None if no line of Python has a part of it. The words are those of `told`."""
    return next((_place(line, folder) for line in _large(lines, calls, rate)), None)


def _large(lines: Sequence[GrowthLine], calls: int, rate: float) -> list[GrowthLine]:
    from ...records.python_lines import within

    return [line for line in within(lines, rate * calls) if line.bytes >= _LEAST_SHARE * rate * calls][:_MOST_LINES]


def _place(line: GrowthLine, folder: Path) -> str:
    path = os.path.relpath(line.file, folder) if Path(line.file).is_relative_to(folder) else line.file
    return f"{path}:{line.number}"
