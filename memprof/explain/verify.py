"""Whether a proposal helps: each is measured as a variant beside the settings as they are, interleaved, as plain runs like any other.

Rules do not know all that a setting does. So each other value of each knob is measured once as well, and those that save most become proposals.
All results have one base: the proposals are measured with all repeats in a single session, interleaved with the settings as they are.
Every run has the iterations of the run that is explained: a setting can need less in the first iteration and more in each later one.

A change is beyond noise where compare's verdict is more or less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from ..base.errors import MemprofError
from ..base.units import counted, format_bytes
from ..campaign import campaign
from ..campaign.progress import Keep, Progress
from ..programs.runtimes import Runtime, described
from ..records import metrics, summary
from ..records.metrics import METRICS
from ..records.modes import middle
from ..records.summary import timed_phase
from ..records.types import PEAK, PREPARE, Run
from ..subjects.orders import plan
from ..subjects.suite import Suite, Variant
from ..verdicts.compare import Verdict, verdict_of, verdict_of_times
from .records import RUNTIME, TRIED, Advice, Explanation, Finding, Verified, worth

_ADDED = " + "
_BEST = 3  # settings that are measured with all repeats
_PAIRS = 2  # the same of pairs: the best single setting stands behind them, third
_PAIRED = 6  # knobs of which every two are tried together once
_LEAST_SHARE = 0.005  # of PEAK, that a single run must save for its setting to be measured again


def verify(explanation: Explanation, suite: Suite, variant: Variant, progress: Progress, keep: Keep) -> Explanation:
    """The explanation with every proposal that is a knob measured, with other values of knobs that save PEAK, and with every two of the best
    together. suite: as explained, with the repeats and iterations wanted.

    Single runs choose what is measured. All of that is measured in one session then, beside the same runs of the settings as they are.

    keep: takes each Run as a line of a runs file. Raises what campaign.measure raises; a proposal that cannot run is a result, and an
    interruption leaves the results until then.
    """
    runtime = plan(replace(suite, variants=(variant,), runtimes=(), repeats=1)).orders[0].runtime
    chosen, saving, complete = _screened(explanation, runtime, suite, variant, progress, keep)
    if complete:
        chosen, complete = _with_pairs(chosen, saving, runtime, suite, variant, progress, keep)
    return _measured(chosen, suite, variant, progress, keep) if complete else chosen


def _proposed(explanation: Explanation) -> dict[str, Advice]:
    """The proposals that are knobs, by the name of their settings."""
    return {_name(advice.settings): advice for finding in explanation.findings for advice in finding.proposals if advice.settings}


def _screened(
    explanation: Explanation, runtime: Runtime, suite: Suite, variant: Variant, progress: Progress, keep: Keep
) -> tuple[Explanation, Sequence[Advice], bool]:
    """The explanation with those values of knobs proposed that save most PEAK in a single run, beyond what rules propose; all settings that saved
    PEAK in one, the best first; and whether nothing interrupted that."""
    proposed = _proposed(explanation)
    others = {
        name: Advice(f"no rule proposes it ({knob.meaning})", settings, calls=runtime.in_program(settings))
        for knob in runtime.knobs
        if knob.name not in {**suite.set, **variant.set}
        for settings in ({knob.name: value} for value in knob.candidates())
        if (name := _name(settings)) not in proposed
    }
    peak = explanation.peak
    if peak is None or (not others and len(proposed) < 2):  # nothing is to be chosen
        return explanation, (), True
    progress.say(f"{explanation.model.name}: trying {counted(len(proposed) + len(others), 'setting')} once each")
    settings = {name: advice.settings for name, advice in (proposed | others).items()}
    trials = _tried(replace(suite, repeats=1), variant, settings, progress, keep)
    explanation = trials.noted(explanation, progress)
    peaks = trials.peaks
    usual = peaks.pop(None, 0.0)
    least = max(explanation.peak_bound_bytes, _LEAST_SHARE * usual)
    names = sorted((name for name in peaks if name is not None and usual - peaks[name] > least), key=lambda name: peaks[name])
    best = _one_per_knob(others[name] for name in names if name in others)[:_BEST]
    if best:
        ran = sum(name in trials.runs for name in others)
        evidence = (f"{counted(ran, 'value')} that no rule proposes {'was' if ran == 1 else 'were'} measured once",)
        saved = round(usual - peaks[_name(best[0].settings)])
        found = Finding(TRIED, "other settings save PEAK", saved, f"{peak.name}/peak", evidence, tuple(best))
        explanation = replace(explanation, findings=(*explanation.findings, found))
    elif others and trials.complete:
        explanation = replace(explanation, remarks=(*explanation.remarks, _without_effect(list(others), trials, least)))
    return explanation, [(proposed | others)[name] for name in names], trials.complete


def _with_pairs(
    explanation: Explanation,
    saving: Sequence[Advice],
    runtime: Runtime,
    suite: Suite,
    variant: Variant,
    progress: Progress,
    keep: Keep,
) -> tuple[Explanation, bool]:
    """The explanation with a proposal for each of the best pairs of settings that nobody proposed together, in the finding of the better one, and
    whether nothing interrupted that. saving: settings that saved PEAK in a single run, the best first. Another runtime is paired with the best
    setting, with the best pair, and with the best that a rule proposes together."""
    known = {frozenset(proposal.settings.items()) for proposal in _proposed(explanation).values()}
    of_knobs = [advice for advice in saving if RUNTIME not in advice.settings]
    best = _one_per_knob(advice for advice in of_knobs if len(advice.settings) == 1)[:_PAIRED]
    pairs = _together(itertools.combinations(best, 2), known, runtime)
    if len(pairs) > _PAIRS:
        progress.say(f"{explanation.model.name}: trying {counted(len(pairs), 'pair')} of settings once each")
        trials = _tried(replace(suite, repeats=1), variant, {name: pair.settings for name, (_, pair) in pairs.items()}, progress, keep)
        explanation = trials.noted(explanation, progress)
        if not trials.complete:
            return explanation, False
        peaks = trials.peaks
        pairs = {name: pairs[name] for name in sorted(pairs, key=lambda name: peaks.get(name, math.inf))[:_PAIRS]}
    runtimes = [advice for advice in saving if RUNTIME in advice.settings]
    partners = [*best[:1], *[pair for _, pair in pairs.values()][:1], *[advice for advice in of_knobs if len(advice.settings) > 1][:1]]
    pairs |= _together(itertools.product(runtimes, partners), known, runtime)
    findings = list(explanation.findings)
    for first, pair in pairs.values():
        place = next(number for number, finding in enumerate(findings) if first in finding.proposals or finding.rule == TRIED)
        findings[place] = replace(findings[place], proposals=(*findings[place].proposals, pair))
    return replace(explanation, findings=tuple(findings)), True


def _together(
    pairs: Iterable[tuple[Advice, Advice]], known: Collection[frozenset[tuple[str, str]]], runtime: Runtime
) -> dict[str, tuple[Advice, Advice]]:
    """Of those pairs whose settings can act together and that nobody proposed, the first of both and the proposal, by its name."""
    found = {}
    for first, second in pairs:
        both = {**first.settings, **second.settings}
        if (
            len(both) == len(first.settings) + len(second.settings)
            and frozenset(both.items()) not in known
            and not any(runtime.lacks(both))
        ):
            words = "together: each saved PEAK in a run by itself" if len(both) > 2 else "both: each saved PEAK in a run by itself"
            found[_name(both)] = first, Advice(words, both, calls=_calls(first, second))
    return found


def _calls(first: Advice, second: Advice) -> tuple[str, ...]:
    """What a program writes for both, in the words of another runtime where that is the first of them."""
    runtime = first.settings.get(RUNTIME)
    return (*first.calls, *(second.calls if runtime is None else described(runtime).in_program(second.settings)))


def _one_per_knob(proposals: Iterable[Advice]) -> list[Advice]:
    """The first proposal for each knob."""
    first: dict[tuple[str, ...], Advice] = {}
    for proposal in proposals:
        first.setdefault(tuple(proposal.settings), proposal)
    return list(first.values())


def _without_effect(names: Sequence[str], trials: _Trials, least: float) -> str:
    """A sentence on values of which none became a proposal: how many were tried, and which do not run, with the reason of the first."""
    failed = dict(trials.refused)
    failed |= {name: runs[0].outcome.sentence for name, runs in trials.runs.items() if name is not None and not runs[0].outcome.ok}
    tried = counted(len(names) - len(failed), "other value")
    without = f"; {', '.join(failed)} cannot run: {next(iter(failed.values()))}" if failed else ""
    return f"--verify tried {tried} of knobs once each: none saves more than {format_bytes(least)} of PEAK{without}"


def _measured(explanation: Explanation, suite: Suite, variant: Variant, progress: Progress, keep: Keep) -> Explanation:
    """The explanation with all proposals measured that are knobs, as far as nothing interrupted that."""
    proposals = {name: advice.settings for name, advice in _proposed(explanation).items()}
    if not proposals:
        return explanation
    trials = _tried(suite, variant, proposals, progress, keep)
    bound = explanation.peak_bound_bytes
    findings = tuple(_with_results(finding, trials.runs, trials.refused, bound) for finding in explanation.findings)
    return trials.noted(replace(explanation, findings=findings), progress)


class _Trials(Struct):
    """Runs by the name of their settings, None for the settings as they are; why others could not run; and how many runs were wanted."""

    runs: dict[str | None, list[Run]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    wanted: int = 0
    complete: bool = True

    @property
    def peaks(self) -> dict[str | None, float]:
        """PEAK of the first run of each settings whose run has one, in bytes."""
        found = {name: metrics.value(runs[0], PEAK, METRICS["rss_peak_bytes"]) for name, runs in self.runs.items()}
        return {name: value for name, value in found.items() if value is not None}

    def noted(self, explanation: Explanation, progress: Progress) -> Explanation:
        """The explanation, with a remark if these were interrupted."""
        if self.complete:
            return explanation
        remark = f"interrupted after {sum(map(len, self.runs.values()))} of {counted(self.wanted, 'run')} of --verify"
        progress.say(remark)
        return replace(explanation, remarks=(*explanation.remarks, remark))


def _tried(suite: Suite, variant: Variant, proposals: Mapping[str, Mapping[str, str]], progress: Progress, keep: Keep) -> _Trials:
    """Measure the settings as they are and these, interleaved; an interruption leaves the runs until then."""
    trials = _Trials()
    variants, names = [replace(variant, name="as it is")], [None, *proposals]
    for name, settings in proposals.items():
        knobs = {key: value for key, value in settings.items() if key not in ("threads", RUNTIME)}
        threads = (int(settings["threads"]),) if "threads" in settings else variant.threads
        runtime = settings.get(RUNTIME, variant.runtime)
        candidate = replace(variant, runtime=runtime, name=name, set={**variant.set, **knobs}, threads=threads)
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
        if not proposal.settings:
            proposals.append(proposal)
        elif name in refused:
            proposals.append(replace(proposal, verified=Verified(0, error=refused[name])))
        elif name not in runs:  # --verify was interrupted before it ran
            proposals.append(proposal)
        else:
            proposals.append(replace(proposal, verified=_result(finding, runs[None], runs[name])))
    with_results = replace(finding, proposals=tuple(sorted(proposals, key=lambda proposal: worth(proposal, bound_bytes))))
    return _as_measured(with_results, bound_bytes) if finding.rule == TRIED else with_results


def _as_measured(finding: Finding, bound_bytes: int) -> Finding:
    """The finding of settings that saved PEAK in a single run, with what the best was measured to save after that."""
    best = finding.best(bound_bytes)
    if best is not None and best.verified is not None:
        return replace(finding, bytes=round(best.verified.saved_bytes(bound_bytes)[0]))
    if all(proposal.verified is None for proposal in finding.proposals):
        return finding
    return replace(finding, title="other settings, which saved PEAK in a single run only")


def _result(finding: Finding, before: Sequence[Run], after: Sequence[Run]) -> Verified:
    good = [[run for run in side if run.outcome.ok] for side in (before, after)]
    if not all(good):
        failed = next((run for run in (*after, *before) if not run.outcome.ok), None)
        return Verified(len(after), error=failed.outcome.sentence if failed is not None else "it was not measured")
    phase, _, inside = finding.phase.partition("/")
    metric = "rss_peak_bytes" if inside else "rss_end_bytes"
    in_phase, heights = (
        [metrics.values(side, *where) for side in good] for where in ((phase, METRICS[metric]), (PEAK, METRICS["rss_peak_bytes"]))
    )
    bound = max(run.machine.peak_bound_bytes for side in good for run in side)
    beyond = any(_verdict(pair, bound) in ("more", "less") for pair in (heights, in_phase))

    def both(name: str, where: str) -> tuple[float, float] | None:
        return _medians([metrics.values(side, where, METRICS[name]) for side in good])

    peaks = both("rss_peak_bytes", PEAK)
    iterations = [metrics.values(side, timed_phase(side), METRICS["time_median_ns"]) for side in good]
    prepared = [_prepared(side) for side in good]
    return Verified(
        repeats=min(len(good[0]), len(good[1])),
        peak_bytes=peaks,
        peaks_bytes=(tuple(map(int, heights[0])), tuple(map(int, heights[1]))),
        end_bytes=both("rss_end_bytes", _last(good[0])),
        anon_bytes=both("anon_end_bytes", _last(good[0])),
        phase_bytes=both(metric, phase),
        iteration_ns=_medians(iterations),
        prepared_ns=_medians(prepared),
        iteration_spread_ns=_spreads(iterations),
        prepared_spread_ns=_spreads(prepared),
        peak_raised=peaks is not None and peaks[1] - peaks[0] > bound,
        beyond_noise=beyond,
        iteration_verdict=_timed_verdict(iterations),
        prepared_verdict=_timed_verdict(prepared),
        late_rise_bytes=summary.late_rise_bytes(good[1]),
    )


def _verdict(sides: Sequence[Sequence[float]], bound_bytes: int) -> Verdict | Literal[""]:
    before, after = sides
    return verdict_of(before, after, bound_bytes) if before and after else ""


def _timed_verdict(sides: Sequence[Sequence[float]]) -> Verdict | Literal[""]:
    before, after = sides
    return verdict_of_times(before, after) if before and after else ""


def _last(runs: Sequence[Run]) -> str:
    return runs[0].marks[-1].phase


def _medians(sides: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    return (middle(sides[0]), middle(sides[1])) if all(sides) else None


def _spreads(sides: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """The distance of the farthest value of each side from its median."""
    middles = _medians(sides)
    if middles is None:
        return None
    first, second = (max(abs(value - median) for value in side) for side, median in zip(sides, middles, strict=True))
    return first, second


def _prepared(runs: Sequence[Run]) -> list[float]:
    """The time (ns) in each run until the first iteration can begin: all phases up to PREPARE but STARTUP."""
    return [sum(mark.time_ns for mark in run.marks[1:] if mark.phase in ("MODEL_LOAD", PREPARE)) for run in runs]
