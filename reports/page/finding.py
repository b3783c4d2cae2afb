"""The page's finding in words: which variant of a model peaks highest, by how much, and whether that can be told from noise.

Markup, whose parts were escaped when they were put in.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from memprof.base.units import counted, format_bytes
from memprof.records import metrics, summary
from memprof.records.metrics import METRICS
from memprof.records.summary import Key
from memprof.records.types import PEAK, Run

from .. import rows

_PEAK = METRICS["rss_peak_bytes"]


@dataclass(frozen=True)
class _Peak:
    label: str
    middle: float
    low: float
    high: float
    phase: str
    ground: float | None
    ground_words: str
    exact: bool
    repeats: int
    bound: int

    @property
    def shown(self) -> str:
        return ("" if self.exact else "~") + format_bytes(self.middle)


def findings(groups: dict[Key, list[Run]]) -> Iterable[Markup]:
    """One sentence per machine: figures of different machines are never set against each other."""
    names = rows.label_names(groups)
    machines = list(dict.fromkeys(key.machine for key in groups))
    for machine in machines:
        here = {key: group for key, group in groups.items() if key.machine == machine}
        peaks = [_peak(rows.label(key, [name for name in names if name != "machine"]), group) for key, group in here.items()]
        subject = "variants and thread counts" if "threads" in names else "variants"
        where = Markup("On <strong>{}</strong>, ").format(machine) if len(machines) > 1 else Markup("")
        yield Markup(" ").join(
            part for part in (where + _finding([peak for peak in peaks if peak], subject, bool(where)), _failed(here)) if part
        )


def _peak(label: str, runs: Sequence[Run]) -> _Peak | None:
    measured = [(run, value) for run in runs if (value := metrics.value(run, PEAK, _PEAK)) is not None]
    if not measured:
        return None
    values = [value for _, value in measured]
    grounds = [ground for run, _ in measured if (ground := metrics.baseline(run, _PEAK)) is not None]
    return _Peak(
        label,
        statistics.median(values),
        min(values),
        max(values),
        summary.peak_phase([run for run, _ in measured]),
        statistics.median(grounds) if grounds else None,
        rows.baseline_words(runs),
        all(metrics.exact(run, PEAK, _PEAK) for run, _ in measured),
        len(values),
        max(run.machine.peak_bound_bytes for run, _ in measured),
    )


def _finding(peaks: Sequence[_Peak], subject: str, continued: bool) -> Markup:
    if not peaks:
        return Markup("<strong>{} run ended well</strong>, so there is no peak to report.").format("no" if continued else "No")
    highest, lowest = max(peaks, key=lambda peak: peak.middle), min(peaks, key=lambda peak: peak.middle)
    if len(peaks) == 1:
        return _single(highest)
    if highest.middle == lowest.middle:
        return Markup("{} {} {} peak alike, at <strong>{}</strong> in {}.").format(
            "all" if continued else "All", len(peaks), subject, highest.shown, highest.phase
        )
    of = Markup("{} {} {}, ").format("of" if continued else "Of", len(peaks), subject) if len(peaks) > 2 else Markup("")
    return of + Markup(
        "<strong>{}</strong> peaks highest, at <strong>{}</strong> in {}: {} more than <strong>{}</strong>, the lowest, "
        "which peaks at <strong>{}</strong> in {}{}."
    ).format(
        highest.label,
        highest.shown,
        highest.phase,
        _more(highest, lowest),
        lowest.label,
        lowest.shown,
        lowest.phase,
        _doubt(highest, lowest),
    )


def _single(peak: _Peak) -> Markup:
    above = ""
    if peak.ground is not None:
        above = f": {format_bytes(peak.middle - peak.ground)} above the {format_bytes(peak.ground)} of {peak.ground_words}"
    return Markup("<strong>{}</strong> peaks at <strong>{}</strong> in {}{}.").format(peak.label, peak.shown, peak.phase, above)


def _more(highest: _Peak, lowest: _Peak) -> str:
    difference = highest.middle - lowest.middle
    if not lowest.middle:
        return format_bytes(difference)
    return f"{format_bytes(difference)} ({difference / lowest.middle:.{0 if difference > lowest.middle / 10 else 1}%})"


def _doubt(highest: _Peak, lowest: _Peak) -> str:
    difference = highest.middle - lowest.middle
    if difference <= max(highest.bound, lowest.bound):
        return ", a difference finer than the kernel counts"
    if highest.low <= lowest.high:
        return ", a difference within the spread of their repeats"
    if min(highest.repeats, lowest.repeats) == 1:
        return ", with a single repeat, so that noise is not known"
    return ""


def _failed(groups: dict[Key, list[Run]]) -> Markup:
    runs = [run for group in groups.values() for run in group]
    failed = sum(not run.outcome.ok for run in runs)
    if not failed:
        return Markup("")
    variants = [key for key, group in groups.items() if not any(run.outcome.ok for run in group)]
    who = f"{counted(failed, 'run')} of {len(runs):,}"
    all_of = ""
    if variants:
        names = _quoted(variants[0].heading) if len(variants) == 1 else f"{len(variants)} variants"
        all_of = f", {'among them ' if failed > sum(len(groups[key]) for key in variants) else ''}all of {names}"
    return Markup('<a href="#failures">{} failed</a>{}.').format(who, all_of)


def _quoted(text: str) -> str:
    return f"“{text if len(text) <= 60 else text[:59] + '…'}”"
