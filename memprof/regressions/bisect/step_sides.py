"""What runs of a version, and of the two sides of a step, show."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from ...base.errors import InputError, UsageError, near_or_all
from ...records import metrics, settings, summary
from ...records.summary import PeakPhases, VariantKey
from ...records.types import PEAK, Run
from ...verdicts import baseline
from ...verdicts.verdicts import judge_row
from .bisect_request import BisectRequest
from .search import FigureQuestion, VersionStep
from .version_range import Versions

FIRST = 5  # repeats of each variant at both ends, to choose the variant to follow


def row_of(request: BisectRequest, runs: Sequence[Run]) -> summary.Row:
    """The figures to follow, of runs of one version and variant. Raises UsageError where there are none."""
    wanted = metrics.metric(request.metric)
    phases = summary.phases(runs)
    usual = PEAK if wanted.name in metrics.PEAKS else phases[-1]
    phase = request.phase or usual
    if phase not in (*phases, PEAK):
        raise UsageError(f"--at-phase {phase}: the runs have no such phase{near_or_all(phase, phases)}")
    values = tuple(metrics.values(runs, phase, wanted))
    if not values:
        raise UsageError(f"--metric {wanted.name}: {phase} has none; --at-phase names another phase")
    return summary.Row(replace(summary.key(runs[0]), version=None), phase, wanted.name, values, True)


def followed(
    request: BisectRequest, good: Mapping[VariantKey, Sequence[Run]], bad: Mapping[VariantKey, Sequence[Run]], say: Callable[[str], None]
) -> tuple[VariantKey, summary.Row]:
    """The place to follow, and its figures at the good end: the only one of the ends, or that which differs most between them.

    Raises UsageError where there are no such figures, InputError if the ends have no place in common.
    """
    rows = [{place: row_of(request, runs) for place, runs in side.items()} for side in (good, bad)]
    both = [place for place in rows[0] if place in rows[1]]
    if not both:
        raise InputError("the ends have no variant in common")
    if len(both) > 1:
        bound = good[both[0]][0].machine.peak_bound_bytes
        judged = {place: judge_row(rows[0][place], rows[1][place], bound, request.limits) for place in both}
        ways = ("regressed", "improved", "undecided", "ok")
        both.sort(key=lambda place: (ways.index(judged[place].verdict), -abs(judged[place].change or 0)))
        say(f"{both[0][0]}, {both[0][1]} is followed: it differs most between the ends; --variant and --model name another")
    return both[0], rows[0][both[0]]


def first_phase(question: FigureQuestion, step: VersionStep, before: Sequence[Run], after: Sequence[Run]) -> str:
    """The first phase that moved by at least half of a step of PEAK; the question's own phase for any other."""
    if question.phase != PEAK:
        return question.phase
    wanted = metrics.metric(question.metric)
    size = step.judged.difference or 0.0
    for phase in summary.phases(after) if before and after else ():
        old, new = (metrics.values(side, phase, wanted) for side in (before, after))
        if old and new and (statistics.median(new) - statistics.median(old)) * size >= size * size / 2:
            return phase
    return PEAK


def peak_phases(question: FigureQuestion, before: Sequence[Run], after: Sequence[Run]) -> tuple[PeakPhases, PeakPhases]:
    """Where PEAK of both sides is; nowhere for a question of another figure."""
    if question.phase != PEAK or question.metric != "rss_peak_bytes":
        return PeakPhases(), PeakPhases()
    return summary.peak_phases(before), summary.peak_phases(after)


def also(versions: Versions, step: VersionStep, before: Sequence[Run], after: Sequence[Run]) -> tuple[str, ...]:
    """The packages and settings that differ between both sides of a step, beside the version itself: `numpy 1.26 → 2.0`."""
    labels = versions.labels[step.before], versions.labels[step.at]
    ways = [baseline.portable(settings.of_repeats(runs)) if runs else {} for runs in (before, after)]
    if not any(name.startswith(settings.PACKAGE) for way in ways for name in way):  # a program does not tell what it imports
        for way, number in zip(ways, (step.before, step.at), strict=True):
            way.update({f"{settings.PACKAGE}{name}": version for name, version in versions.packages(number).items()})
    return tuple(
        settings.change(name, was, now)
        for name, was, now in settings.differing(ways[0], ways[1])
        if name not in ("runtime version", "runtime", f"{settings.PACKAGE}{versions.subject}")
        # A runtime's package may have another name: litert is ai_edge_litert.
        and not (name.startswith(settings.PACKAGE) and (was, now) == labels)
    )
