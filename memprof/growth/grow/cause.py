"""Why memory rose, for an answer of `memprof grow`: the same work in one more process, which stands still after its warm-up and at its end.

A program is stopped from outside, when its marks or its lines tell that it has done so many units. It runs on until it stands still, so the two
looks have the units that were known by then.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ...base.units import capitalised, counted, format_bytes
from ...campaign.progress import Progress
from ...explain import growth as two_looks
from ...records import work
from ...records.python_lines import GrowthLine, within
from ...records.types import EXECUTE
from ...subjects.order import Order
from ...verdicts.curve_tail import LEAST_RISE
from ...verdicts.growth import Verdict
from .grow import GrowRequest, GrowthAnswer, work_order

RELOADS = "RELOAD"  # the phase of reloads, as the runner calls it
_ENOUGH_BYTES, _LEAST_UNITS = 16 << 20, 100  # so much more, and so many iterations, show the parts well
_LINES = 3
_SHARE = 0.8  # of what a program did that has its own end: another run of it may do a little less
_MORE = 2
_PATIENCE = 4  # times as slow as it was


def check(request: GrowRequest) -> None:
    """Raises UsageError for work of which two looks cannot be taken."""
    if request.command is not None:
        request.suite.place.only_here("--why of a program, which is stopped after so many units of its work,")


def explained(request: GrowRequest, answer: GrowthAnswer, progress: Progress) -> GrowthAnswer:
    """The answer with the two looks, and what they tell among its remarks. Raises what explain.growth.why raises."""
    verdict = answer.verdict
    if (none := _no_rise(verdict)) is not None:
        return replace(answer, remarks=(*answer.remarks, f"--why: {none}, so there is no rise to look into"))
    if request.command is not None:
        first, more = _looks_after(verdict, answer, 1)
        looked = _of_program(request, answer, (first, first + more), progress)
        return replace(answer, why=looked, remarks=(*answer.remarks, *_said(answer, (*looked.sentences, *looked.remarks))))
    order = _looked_order(request, answer)
    looked = two_looks.why(order, progress, last=RELOADS if request.cycles else EXECUTE)
    traced = order.runtime.name.endswith(".py") and order.place.beside  # tracemalloc's answer is a file
    grown_lines = two_looks.lines(order, progress, _LINES) if traced else ()
    return replace(
        answer,
        why=looked,
        remarks=(*answer.remarks, *_said(answer, (*looked.sentences, *_lines(within(grown_lines, looked.grown_bytes)), *looked.remarks))),
    )


def lines(request: GrowRequest, answer: GrowthAnswer, progress: Progress) -> tuple[tuple[GrowthLine, ...], int]:
    """The lines of Python whose objects grew in one more process, and over how many units. Raises what explain.growth.lines raises."""
    order = _looked_order(request, answer)
    return two_looks.lines(order, progress, _LINES), order.job.runs


def _looked_order(request: GrowRequest, answer: GrowthAnswer) -> Order:
    """The order of a process with as many units before the first look, and after it, as show the rise."""
    order = work_order(request, 1, answer.fresh)
    warmup, runs = _looks_after(answer.verdict, answer, 0 if order.runtime.native is None else 1)
    assert order.job.use is not None
    return replace(order, job=replace(order.job, warmup=warmup, runs=runs, use=replace(order.job.use, iterations=runs)))


def _no_rise(verdict: Verdict) -> str | None:
    """Why there is nothing to look into, None where something rose."""
    if verdict.word == "undecided" and not verdict.tail:
        return f"it is undecided, because {verdict.reason}"
    if verdict.word == "undecided" and verdict.rise_bytes < LEAST_RISE:
        return f"it is undecided, and memory rose by {format_bytes(verdict.rise_bytes)} only"
    return "it is steady" if verdict.word == "steady" else None


def _looks_after(verdict: Verdict, answer: GrowthAnswer, least: int) -> tuple[int, int]:
    """After how many units the first look is taken, and after how many more the second: what rose came between them. least: the fewest units
    after which the child can stand still."""
    if verdict.word == "bounded":
        return least, max(verdict.warmup - least, 1)
    if verdict.word == "undecided":
        return least, max(verdict.warmup + verdict.tail - least, 1)
    runs, each = max(verdict.tail, 1), _each(verdict, answer)
    if each > 0:
        runs = min(runs, max(_LEAST_UNITS, math.ceil(_ENOUGH_BYTES / each)))
    return max(verdict.warmup, 1), runs


def _each(verdict: Verdict, answer: GrowthAnswer) -> float:
    """How many bytes came with each unit of those that are repeated."""
    if verdict.unit in ("iteration", "reload"):
        return verdict.slope
    counts = work.curve_of(answer.runs[0]).counts
    return verdict.slope * counts[verdict.unit][-1] / max(next(iter(counts.values()))[-1], 1)


def _of_program(request: GrowRequest, answer: GrowthAnswer, units: tuple[int, int], progress: Progress) -> two_looks.GrowthParts:
    """The two looks at a program. One that can be asked for more units does more than are needed, so that it has not ended by then."""
    curve = work.curve_of(answer.runs[0])
    first, last = units
    if not request.sized:
        last = max(first + 1, first + int(_SHARE * (last - first)))
    order = work_order(request, _MORE * last, answer.fresh)
    limit_ns = _PATIENCE * (curve.t_ns[-1] - curve.t_ns[0]) + order.job.timeout_ns
    order = replace(order, job=replace(order.job, timeout_ns=limit_ns))
    return two_looks.why_program(order, curve.phase, (first, last), next(iter(curve.counts)), progress)


def _said(answer: GrowthAnswer, sentences: Iterable[str]) -> Iterator[str]:
    return (f"{capitalised(sentence, answer.model, answer.runtime)}." for sentence in sentences)


def _lines(lines: Iterable[GrowthLine]) -> Iterator[str]:
    for line in lines:
        where = f"{os.path.basename(line.file)}, line {line.number}"
        inside = "" if line.library_file is None else f", allocated in {line.library_file}:{line.library_number}"
        yield f"objects of Python from {where}: {format_bytes(line.bytes)} more in {counted(max(line.blocks, 0), 'block')}{inside}{line.holder_words}"
