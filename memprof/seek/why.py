"""Why memory rose, for an answer of `memprof grow`: the same work in one more process, which stands still after its warm-up and at its end."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace

from ..errors import UsageError
from ..explain import grown as two_looks
from ..explain.grown import Line
from ..measuring.progress import Progress
from ..runs.records import EXECUTE, Use
from ..units import counted, format_bytes
from .grow import Grown, GrowRequest, order_of

RELOADS = "RELOAD"  # the phase of reloads, as the runner calls it
_ENOUGH_BYTES, _LEAST_UNITS = 16 << 20, 100  # so much more, and so many iterations, show the parts well
_LINES = 3


def check(request: GrowRequest) -> None:
    """Raises UsageError for work of which two looks cannot be taken."""
    if request.command is not None:
        raise UsageError("--why looks at a model in a runtime: a program does not stand still after so many units of its work")


def explained(request: GrowRequest, answer: Grown, progress: Progress) -> Grown:
    """The answer with the two looks, and what they tell among its remarks. Raises what explain.grown.why raises."""
    verdict = answer.verdict
    if verdict.word not in ("grows", "bounded"):
        return replace(answer, remarks=(*answer.remarks, f"--why: it is {verdict.word}, so there is no rise to look into"))
    warmup, runs = max(verdict.warmup, 1), max(verdict.tail, 1)
    if verdict.word == "grows" and verdict.slope > 0 and verdict.unit in ("iteration", "reload"):
        runs = min(runs, max(_LEAST_UNITS, math.ceil(_ENOUGH_BYTES / verdict.slope)))
    elif verdict.word == "bounded":  # what rose before it stopped
        warmup, runs = 1, max(verdict.warmup - 1, 1)
    order = order_of(request)
    use = Use(runs, 0, request.cycles, 2, request.varied, request.seed) if request.cycles or request.varied else None
    order = replace(order, job=replace(order.job, warmup=warmup, runs=runs, use=use))
    looked = two_looks.why(order, progress, last=RELOADS if request.cycles else EXECUTE)
    traced = order.runtime.name.endswith(".py") and order.place.beside  # tracemalloc's answer is a file
    lines = two_looks.lines(order, progress, _LINES) if traced else ()
    said = (f"{sentence[:1].upper()}{sentence[1:]}." for sentence in (*looked.sentences, *_lines(lines), *looked.remarks))
    return replace(answer, why=looked, remarks=(*answer.remarks, *said))


def _lines(lines: tuple[Line, ...]) -> Iterator[str]:
    for line in lines:
        where = f"{os.path.basename(line.file)}, line {line.number}"
        yield f"objects of Python from {where}: {format_bytes(line.bytes)} more in {counted(max(line.blocks, 0), 'block')}"
