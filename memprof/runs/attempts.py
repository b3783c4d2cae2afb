"""Which of a fleet's attempts at a comparison stands, and when two runs are the same run.

A comparison whose machine was lost begins again elsewhere, whole. The runs that were there already stay in the file as part of their attempt,
and are never mixed with those of another.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from ..units import counted
from .records import Attempt, Job, Run


def standing(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs without those of attempts that another attempt replaces, and a sentence for each comparison that has such attempts.

    The attempt with the most runs stands; of attempts with as many, the last.
    """
    counts = Counter((run.attempt.comparison, run.attempt.number) for run in runs if run.attempt)
    best: dict[str, int] = {}
    for (comparison, number), count in counts.items():
        if comparison not in best or (count, number) > (counts[comparison, best[comparison]], best[comparison]):
            best[comparison] = number
    kept, aside = [], Counter[str]()
    for run in runs:
        if run.attempt is not None and run.attempt.number != best[run.attempt.comparison]:
            aside[run.job.model.name] += 1
        else:
            kept.append(run)
    remarks = [
        f"{model}: {counted(count, 'run')} of attempts that lost their machine {'is' if count == 1 else 'are'} left out; "
        "the comparison began again elsewhere"
        for model, count in aside.items()
    ]
    return kept, remarks


def complete(attempt: Attempt, count: int) -> bool:
    """Whether `count` different runs are all of an attempt's."""
    return count >= attempt.runs > 0


def identity(run: Run) -> str:
    """A hash of all that makes a run the only one of its kind: its job by content, its machine, and its attempt. The figures are not in it."""
    attempt = (run.attempt.comparison, run.attempt.number, run.attempt.place) if run.attempt else None
    return hashlib.sha256(repr((job_hash(run.job), run.machine.name, attempt)).encode()).hexdigest()


def job_hash(job: Job) -> str:
    """A hash of a job by content: where the files of its model lie makes no difference."""
    model = replace(job.model, path="", files=())
    return hashlib.sha256(msgspec.json.encode(replace(job, model=model), order="deterministic")).hexdigest()
