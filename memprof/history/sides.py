"""What runs of a version, and of the two sides of a step, show."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ..errors import UsageError, near_or_all
from ..judge import baseline
from ..runs import metrics, settings, summary
from ..runs.records import PEAK, Run
from ..seek.bisect import Question, Step
from .asked import AT, Request
from .versions import Versions


def row_of(request: Request, runs: Sequence[Run]) -> summary.Row:
    """The figures that are asked for, of runs of one version and variant. Raises UsageError where there are none."""
    wanted = metrics.metric(request.metric)
    phases = summary.phases(runs)
    usual = PEAK if wanted.name in metrics.PEAKS else phases[-1]
    phase = request.phase or usual
    if phase not in (*phases, PEAK):
        raise UsageError(f"--phase {phase}: the runs have no such phase{near_or_all(phase, phases)}")
    values = tuple(value for run in runs if (value := metrics.value(run, phase, wanted)) is not None)
    if not values:
        raise UsageError(f"--metric {wanted.name}: {phase} has none; --phase names another phase")
    key = summary.key(runs[0])
    return summary.row(replace(key, variant=key.variant.rpartition(AT)[0]), phase, wanted.name, values, True)


def first_phase(question: Question, step: Step, before: Sequence[Run], after: Sequence[Run]) -> str:
    """The first phase that moved by at least half of a step of PEAK; the question's own phase for any other."""
    if question.phase != PEAK:
        return question.phase
    wanted = metrics.metric(question.metric)
    size = step.judged.difference or 0.0
    for phase in summary.phases(after) if before and after else ():
        old, new = ([value for run in side if (value := metrics.value(run, phase, wanted)) is not None] for side in (before, after))
        if old and new and (statistics.median(new) - statistics.median(old)) * size >= size * size / 2:
            return phase
    return PEAK


def also(versions: Versions, step: Step, before: Sequence[Run], after: Sequence[Run]) -> tuple[str, ...]:
    """The packages and settings that differ between both sides of a step, beside the version itself: `numpy 1.26 → 2.0`."""
    labels = versions.labels[step.before], versions.labels[step.at]
    ways = [baseline.portable(settings.of_repeats(runs)) if runs else {} for runs in (before, after)]
    return tuple(
        settings.change(name, was, now)
        for name, was, now in settings.differing(ways[0], ways[1])
        if name not in ("runtime version", "runtime", f"{settings.PACKAGE}{versions.subject}")
        # A runtime's package may have another name: litert is ai_edge_litert.
        and not (name.startswith(settings.PACKAGE) and (was, now) == labels)
    )
