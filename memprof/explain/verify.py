"""Whether a proposal helps: each is measured as a variant beside the settings as they are, interleaved, as plain runs like any other.

Rules do not know all that a setting does. So each other value of each knob is measured once as well, and those that save most become proposals.

A change is beyond noise if the rank test of compare finds it and it is larger than the kernel's own bound.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import MemprofError
from ..base.units import counted, format_bytes
from ..campaign import campaign
from ..campaign.progress import Keep, Progress
from ..records import metrics
from ..records.metrics import METRICS
from ..records.summary import timed_phase
from ..records.types import PEAK, PREPARE, Run
from ..subjects.orders import plan
from ..subjects.suite import Suite, Variant
from ..verdicts import ranks
from .records import Advice, Explanation, Finding, Verified, worth

_ADDED = " + "
_BEST = 3  # settings that are measured two by two
_LEAST_SHARE = 0.005  # of PEAK, that a single run must save for its setting to be measured again


def verify(explanation: Explanation, suite: Suite, variant: Variant, progress: Progress, keep: Keep) -> Explanation:
    """The explanation with every proposal that is a knob measured, with other values of knobs that save PEAK, and with every two of the best
    together. suite: as explained, with the repeats and iterations wanted.

    keep: takes each Run as a line of a runs file. Raises what campaign.measure raises; a proposal that cannot run is a result, and an
    interruption leaves the results until then.
    """
    explanation, complete = _screened(explanation, suite, variant, progress, keep)
    if not complete:
        return explanation
    done, complete = _measured(explanation, suite, variant, progress, keep)
    paired = _with_pairs(done)
    return _measured(paired, suite, variant, progress, keep)[0] if complete and paired is not done else done


def _with_pairs(explanation: Explanation) -> Explanation:
    """The explanation with a proposal for each two of the best settings that nobody measured together, in the finding of the better one."""
    known = {frozenset(proposal.settings.items()) for finding in explanation.findings for proposal in finding.proposals}
    singles = [proposal for proposal in explanation.ranked if len(proposal.settings) == 1]
    best = _one_per_knob(proposal for proposal in singles if worth(proposal, explanation.peak_bound_bytes)[0] == 0)
    findings = list(explanation.findings)
    for first, second in itertools.combinations(best, 2):
        both = {**first.settings, **second.settings}
        if len(both) == 2 and frozenset(both.items()) not in known:
            place = next(number for number, finding in enumerate(findings) if first in finding.proposals)
            proposals = (*findings[place].proposals, Advice("both: each saves PEAK by itself", both))
            findings[place] = replace(findings[place], proposals=proposals)
    return replace(explanation, findings=tuple(findings)) if tuple(findings) != explanation.findings else explanation


def _one_per_knob(proposals: Iterable[Advice]) -> list[Advice]:
    """The first proposal for each knob, _BEST at most."""
    first: dict[tuple[str, ...], Advice] = {}
    for proposal in proposals:
        first.setdefault(tuple(proposal.settings), proposal)
    return list(first.values())[:_BEST]


def _screened(explanation: Explanation, suite: Suite, variant: Variant, progress: Progress, keep: Keep) -> tuple[Explanation, bool]:
    """The explanation with those values of knobs proposed that save most PEAK in a single run, beyond what rules propose, and whether nothing
    interrupted that."""
    known = {frozenset(proposal.settings.items()) for finding in explanation.findings for proposal in finding.proposals}
    (order, *_) = plan(replace(suite, variants=(variant,), runtimes=(), repeats=1)).orders
    advice = {
        _name(settings): Advice(f"no rule proposes it ({knob.meaning})", settings)
        for knob in order.runtime.knobs
        if knob.name not in {**suite.set, **variant.set}
        for settings in ({knob.name: value} for value in knob.candidates())
        if frozenset(settings.items()) not in known
    }
    peak = explanation.peak
    if not advice or peak is None:
        return explanation, True
    progress.say(f"{explanation.model.name}: trying {counted(len(advice), 'other value')} of knobs once each")
    once = replace(suite, repeats=1, warmup=1, runs=1)
    trials = _tried(once, variant, {name: each.settings for name, each in advice.items()}, progress, keep)
    explanation = trials.noted(explanation, progress)
    peaks = {
        name: value for name, (run,) in trials.runs.items() if (value := metrics.value(run, PEAK, METRICS["rss_peak_bytes"])) is not None
    }
    usual = peaks.pop(None, 0.0)
    least = max(explanation.peak_bound_bytes, _LEAST_SHARE * usual)
    saving = sorted((name for name in peaks if name is not None and usual - peaks[name] > least), key=lambda name: peaks[name])
    if saving:
        evidence = (f"each of {counted(len(advice), 'value')} that no rule proposes was measured once",)
        saved = round(usual - peaks[saving[0]])
        best = _one_per_knob(advice[name] for name in saving)
        found = Finding("tried", "other settings save PEAK", saved, peak.name, evidence, tuple(best))
        explanation = replace(explanation, findings=(*explanation.findings, found))
    elif trials.complete:
        explanation = replace(explanation, remarks=(*explanation.remarks, _without_effect(list(advice), trials, least)))
    return explanation, trials.complete


def _without_effect(names: Sequence[str], trials: _Trials, least: float) -> str:
    """A sentence on values of which none became a proposal: how many were tried, and which do not run, with the reason of the first."""
    failed = dict(trials.refused)
    failed |= {name: runs[0].outcome.sentence for name, runs in trials.runs.items() if name is not None and not runs[0].outcome.ok}
    tried = counted(len(names) - len(failed), "other value")
    without = f"; {', '.join(failed)} cannot run: {next(iter(failed.values()))}" if failed else ""
    return f"--verify tried {tried} of knobs once each: none saves more than {format_bytes(least)} of PEAK{without}"


def _measured(explanation: Explanation, suite: Suite, variant: Variant, progress: Progress, keep: Keep) -> tuple[Explanation, bool]:
    """The explanation with those proposals measured that were not, and whether nothing interrupted that."""
    proposals: dict[str, Mapping[str, str]] = {}
    for finding in explanation.findings:
        for proposal in finding.proposals:
            if proposal.settings and proposal.verified is None:
                proposals[_name(proposal.settings)] = proposal.settings
    if not proposals:
        return explanation, True
    trials = _tried(suite, variant, proposals, progress, keep)
    bound = explanation.peak_bound_bytes
    findings = tuple(_with_results(finding, trials.runs, trials.refused, bound) for finding in explanation.findings)
    return trials.noted(replace(explanation, findings=findings), progress), trials.complete


@dataclass
class _Trials:
    """Runs by the name of their settings, None for the settings as they are; why others could not run; and how many runs were wanted."""

    runs: dict[str | None, list[Run]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    wanted: int = 0
    complete: bool = True

    def noted(self, explanation: Explanation, progress: Progress) -> Explanation:
        """The explanation, with a remark if these were interrupted."""
        if self.complete:
            return explanation
        remark = f"interrupted after {sum(map(len, self.runs.values()))} of {self.wanted} runs of --verify"
        progress.say(remark)
        return replace(explanation, remarks=(*explanation.remarks, remark))


def _tried(suite: Suite, variant: Variant, proposals: Mapping[str, Mapping[str, str]], progress: Progress, keep: Keep) -> _Trials:
    """Measure the settings as they are and these, interleaved; an interruption leaves the runs until then."""
    trials = _Trials()
    variants, names = [replace(variant, name="as it is")], [None, *proposals]
    for name, settings in proposals.items():
        knobs = {key: value for key, value in settings.items() if key != "threads"}
        threads = (int(settings["threads"]),) if "threads" in settings else variant.threads
        candidate = replace(variant, name=name, set={**variant.set, **knobs}, threads=threads)
        try:
            plan(replace(suite, variants=(candidate,), runtimes=()))
            variants.append(candidate)
        except MemprofError as error:
            trials.refused[name] = str(error)
            names.remove(name)
    orders = plan(replace(suite, variants=tuple(variants), runtimes=())).orders
    trials.wanted = len(orders)
    try:
        for index, run in enumerate(campaign.measure(orders, progress, keep)):
            trials.runs.setdefault(names[index % len(names)], []).append(run)
    except KeyboardInterrupt:
        trials.complete = False
    return trials


def _name(settings: Mapping[str, str]) -> str:
    return _ADDED.join(f"{key}={value}" for key, value in settings.items())


def _with_results(finding: Finding, runs: Mapping[str | None, Sequence[Run]], refused: Mapping[str, str], bound_bytes: int) -> Finding:
    proposals = []
    for proposal in finding.proposals:
        name = _name(proposal.settings)
        if not proposal.settings or proposal.verified is not None:
            proposals.append(proposal)
        elif name in refused:
            proposals.append(replace(proposal, verified=Verified(0, error=refused[name])))
        elif name not in runs:  # --verify was interrupted before it ran
            proposals.append(proposal)
        else:
            proposals.append(replace(proposal, verified=_result(finding, runs[None], runs[name])))
    return replace(finding, proposals=tuple(sorted(proposals, key=lambda proposal: worth(proposal, bound_bytes))))


def _result(finding: Finding, before: Sequence[Run], after: Sequence[Run]) -> Verified:
    good = [[run for run in side if run.outcome.ok] for side in (before, after)]
    if not all(good):
        failed = next((run for run in (*after, *before) if not run.outcome.ok), None)
        return Verified(len(after), error=failed.outcome.sentence if failed is not None else "it was not measured")
    phase, _, inside = finding.phase.partition("/")
    metric = "rss_peak_bytes" if inside else "rss_end_bytes"
    sides = [[_values(side, PEAK, "rss_peak_bytes"), _values(side, phase, metric)] for side in good]
    bound = max(run.machine.peak_bound_bytes for side in good for run in side)
    beyond = any(_beyond(first, second, bound) for first, second in zip(*sides, strict=True))

    def both(name: str, where: str) -> tuple[float, float] | None:
        return _medians([_values(side, where, name) for side in good])

    peaks = both("rss_peak_bytes", PEAK)
    iterations = [_values(side, timed_phase(side), "time_median_ns") for side in good]
    prepared = [_prepared(side) for side in good]
    return Verified(
        repeats=min(len(good[0]), len(good[1])),
        peak_bytes=peaks,
        end_bytes=both("rss_end_bytes", _last(good[0])),
        anon_bytes=both("anon_end_bytes", _last(good[0])),
        phase_bytes=both(metric, phase),
        iteration_ns=_medians(iterations),
        prepared_ns=_medians(prepared),
        iteration_spread_ns=_spreads(iterations),
        prepared_spread_ns=_spreads(prepared),
        peak_raised=peaks is not None and peaks[1] - peaks[0] > bound,
        beyond_noise=beyond,
    )


def _beyond(before: Sequence[float], after: Sequence[float], bound: int) -> bool:
    if min(len(before), len(after)) < ranks.LEAST_REPEATS:
        return False
    return abs(statistics.median(after) - statistics.median(before)) > bound and ranks.two_sided_p(before, after) <= ranks.ALPHA


def _last(runs: Sequence[Run]) -> str:
    return runs[0].marks[-1].phase


def _values(runs: Sequence[Run], phase: str, name: str) -> list[float]:
    return [value for run in runs if (value := metrics.value(run, phase, METRICS[name])) is not None]


def _medians(sides: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    return (statistics.median(sides[0]), statistics.median(sides[1])) if all(sides) else None


def _spreads(sides: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """The distance of the farthest value of each side from its median."""
    middles = _medians(sides)
    if middles is None:
        return None
    first, second = (max(abs(value - middle) for value in side) for side, middle in zip(sides, middles, strict=True))
    return first, second


def _prepared(runs: Sequence[Run]) -> list[float]:
    """The time (ns) in each run until the first iteration can begin: all phases up to PREPARE but STARTUP."""
    return [sum(mark.time_ns for mark in run.marks[1:] if mark.phase in ("MODEL_LOAD", PREPARE)) for run in runs]
