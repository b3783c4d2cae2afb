"""Variants of which a further repeat would add no knowledge, because their runs fail: a campaign leaves their other repeats out."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ..records.summary import VariantKey, place_of
from ..records.types import Job, JobSide, Outcome, Run
from .progress import Progress

_Variant = tuple[VariantKey, str | None, JobSide | None]


class FailedVariants(Protocol):
    """What a campaign asks before each run, and tells after it."""

    def add(self, run: Run) -> None: ...

    def holds(self, job: Job) -> bool:
        """Whether the variant of this job is one; the message comes once."""


class EqualFailures:
    """Variants of which the last two runs failed with the same error, in whichever phase."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last_two: dict[_Variant, deque[str | None]] = {}
        self._told: set[_Variant] = set()

    def add(self, run: Run) -> None:
        outcome = run.outcome
        # A run that lacked memory or time may end otherwise the next time.
        failed = outcome.sentence if outcome.status in ("import", "refused", "error") else None
        self._last_two.setdefault(_variant_of(run.job), deque(maxlen=2)).append(failed)

    def holds(self, job: Job) -> bool:
        variant = _variant_of(job)
        failed = list(self._last_two.get(variant, ()))
        found = len(failed) > 1 and failed[0] is not None and failed[0] == failed[1]
        if found and variant not in self._told:
            self._told.add(variant)
            self._progress.say(f"{job.label}: it failed twice in the same way, so its other repeats are left out")
        return found


class FirstFailures:
    """Variants of which the first run failed, on any side: neither side has a comparison then, or head has failed already. The other side's first
    run is still made, so that the verdict says of which side the failure is."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._failed: dict[VariantKey, Outcome] = {}
        self._told: set[VariantKey] = set()

    def add(self, run: Run) -> None:
        if run.job.repeat == 1 and not run.complete and not _may_pass(run.outcome):
            self._failed.setdefault(place_of(run.job), run.outcome)

    def holds(self, job: Job) -> bool:
        place = place_of(job)
        outcome = self._failed.get(place) if job.repeat > 1 else None
        if outcome is not None and place not in self._told:
            self._told.add(place)
            self._progress.say(f"{job.label}: its first run failed, so the other repeats are left out: {outcome.sentence}")
        return outcome is not None


def _may_pass(outcome: Outcome) -> bool:
    """Whether the next run may end otherwise: this one lacked memory or time, or its recorder was ended."""
    return outcome.status in ("timeout", "lost") or outcome.signal == "SIGKILL" or outcome.out_of_memory is not False


def _variant_of(job: Job) -> _Variant:
    return place_of(job), job.version, job.side
