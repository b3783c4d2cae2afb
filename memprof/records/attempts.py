"""Which of several attempts to measure the same stands, and when two runs are the same run.

On a fleet, a comparison whose machine was lost begins again elsewhere, whole. The runs that were there already stay in the file as part of their
attempt, and are never mixed with those of another. Elsewhere a run alone is lost, with its connection or recorder, and measured again by --append.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ..base.units import counted
from .types import Job, Run


def standing(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs without those that others replace, and a sentence for each comparison, and each model, that has such runs.

    The attempt with the most runs stands; of attempts with as many, the last. A run that was lost does not stand if the same was measured later.
    """
    again = _measured_again(runs)
    counts = Counter((run.attempt.comparison, run.attempt.number) for run in runs if run.attempt)
    best: dict[str, int] = {}
    for (comparison, number), count in counts.items():
        if comparison not in best or (count, number) > (counts[comparison, best[comparison]], best[comparison]):
            best[comparison] = number
    kept, aside, replaced = [], Counter[str](), Counter[str]()
    for index, run in enumerate(runs):
        if run.attempt is not None and run.attempt.number != best[run.attempt.comparison]:
            aside[run.job.model.name] += 1
        elif index in again:
            replaced[run.job.model.name] += 1
        else:
            kept.append(run)
    remarks = [
        f"{model}: {counted(count, 'run')} of attempts that lost their machine {'is' if count == 1 else 'are'} left out; "
        "the comparison began again elsewhere"
        for model, count in aside.items()
    ]
    remarks += [
        f"{model}: {counted(count, 'run')} that {'was' if count == 1 else 'were'} lost {'is' if count == 1 else 'are'} left out; "
        "the same was measured again"
        for model, count in replaced.items()
    ]
    return kept, remarks


def was_lost(run: Run) -> bool:
    """Whether a run's recorder was lost, with its connection or without: such a run is no evidence about its job.

    A run that is lost because its marks are not complete is a result: its memory was seen. Files of before `cut` have no samples of the others.
    """
    return run.attempt is None and (run.outcome.cut is not None or (run.outcome.status == "lost" and not run.timeline.samples))


def measured(job: Job, machine: str) -> str:
    """A hash of what was measured, and where. The file of a converted model is not in it: the knobs say how it is converted. The shapes that the
    model's file fixes are not in it either: older runs lack them."""
    return hashlib.sha256(f"{job_hash(replace(job, built=None, fixed={}))} {machine}".encode()).hexdigest()


def _measured_again(runs: Sequence[Run]) -> set[int]:
    """The places of the runs that were lost and are followed by a run of the same job on the same machine."""
    lost = {index: measured(run.job, run.machine.name) for index, run in enumerate(runs) if was_lost(run)}
    if not lost:
        return set()
    last = {measured(run.job, run.machine.name): index for index, run in enumerate(runs) if not was_lost(run)}
    return {index for index, key in lost.items() if last.get(key, -1) > index}


def identity(run: Run) -> str:
    """A hash of all that makes a run the only one of its kind: its job by content, its machine, and its attempt. The figures are not in it."""
    attempt = (run.attempt.comparison, run.attempt.number, run.attempt.place) if run.attempt else None
    return hashlib.sha256(repr((job_hash(run.job), run.machine.name, attempt)).encode()).hexdigest()


def job_hash(job: Job) -> str:
    """A hash of a job by content: the place of the files of its model does not count."""
    model = replace(job.model, path="", files=())
    return hashlib.sha256(msgspec.json.encode(replace(job, model=model), order="deterministic")).hexdigest()
