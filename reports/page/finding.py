"""The page's finding in words: which variant of a model peaks highest, by how much, and whether that can be told from noise.

Markup, whose parts were escaped when they were put in.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from markupsafe import Markup
from msgspec import Struct

from memprof.base.units import counted, format_bytes
from memprof.records import metrics, summary
from memprof.records.metrics import METRICS
from memprof.records.summary import Key, Row
from memprof.records.types import PEAK, Run

from .. import modes, rows
from ..short_names import shortened
from ..tables.headline import size

_PEAK = METRICS["rss_peak_bytes"]


class _Peak(Struct, frozen=True):
    """The PEAK of a variant, in words and where it is reached, with its runs."""

    label: str
    row: Row
    runs: Sequence[Run]
    shown: str
    phases: str


def findings(groups: dict[Key, list[Run]]) -> Iterable[Markup]:
    """One sentence per machine: figures of different machines are never set against each other."""
    names = rows.label_names(groups)
    machines = list(dict.fromkeys(key.machine for key in groups))
    for machine in machines:
        here = {key: group for key, group in groups.items() if key.machine == machine}
        measured = [row for group in here.values() for row in summary.summarise(group, (_PEAK.name,)) if row.phase == PEAK]
        parts = [name for name in names if name != "machine"]
        peaks = [
            _Peak(rows.label(row.key, parts), row, here[row.key], size(row), summary.peak_phases(here[row.key]).words) for row in measured
        ]
        subject = "variants and thread counts" if "threads" in names else "variants"
        where = Markup("On <strong>{}</strong>, ").format(machine) if len(machines) > 1 else Markup("")
        yield Markup(" ").join(part for part in (where + _finding(peaks, subject, bool(where)), _failed(here)) if part)


def _finding(peaks: Sequence[_Peak], subject: str, continued: bool) -> Markup:
    if not peaks:
        return Markup("<strong>{} run ended well</strong>, so there is no peak to report.").format("no" if continued else "No")
    highest, lowest = max(peaks, key=lambda peak: peak.row.median), min(peaks, key=lambda peak: peak.row.median)
    if len(peaks) == 1:
        return _single(highest)
    if highest.row.median == lowest.row.median:
        return Markup("{} {} {} peak alike, at <strong>{}</strong> in {}.").format(
            "all" if continued else "All", len(peaks), subject, highest.shown, highest.phases
        )
    of = Markup("{} {} {}, ").format("of" if continued else "Of", len(peaks), subject) if len(peaks) > 2 else Markup("")
    return of + Markup(
        "<strong>{}</strong> peaks highest, at <strong>{}</strong> in {}: {} than <strong>{}</strong>, the lowest, "
        "which peaks at <strong>{}</strong> in {}{}."
    ).format(
        highest.label,
        highest.shown,
        highest.phases,
        _more(highest, lowest),
        lowest.label,
        lowest.shown,
        lowest.phases,
        _doubt(highest, lowest),
    )


def _single(peak: _Peak) -> Markup:
    above = ""
    grounds = [ground for run in peak.runs if (ground := metrics.baseline(run, _PEAK)) is not None]
    if grounds:
        ground = statistics.median(grounds)
        heights = modes.figure(_PEAK.name, [value - ground for value in peak.row.values])
        above = f": {heights} above the {format_bytes(ground)} of {rows.baseline_words(peak.runs)}"
    return Markup("<strong>{}</strong> peaks at <strong>{}</strong> in {}{}.").format(peak.label, peak.shown, peak.phases, above)


def _more(highest: _Peak, lowest: _Peak) -> str:
    """How much more the highest has; of modes each difference, and no share, which would be of one of them."""
    differences = modes.differences(lowest.row, highest.row)
    if len(differences) > 1 or not lowest.row.median:
        return modes.change(_PEAK.name, differences)
    (difference,) = differences
    return f"{format_bytes(difference)} ({difference / lowest.row.median:.{0 if difference > lowest.row.median / 10 else 1}%}) more"


def _doubt(highest: _Peak, lowest: _Peak) -> str:
    difference = highest.row.median - lowest.row.median
    if difference <= max(run.machine.peak_bound_bytes for run in (*highest.runs, *lowest.runs)):
        return ", a difference finer than the kernel counts"
    if highest.row.min <= lowest.row.max:
        return ", a difference within the spread of their repeats"
    if 1 in (len(highest.row.values), len(lowest.row.values)):
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
        names = f"“{shortened(variants[0].heading, 60)}”" if len(variants) == 1 else f"{len(variants)} variants"
        all_of = f", {'among them ' if failed > sum(len(groups[key]) for key in variants) else ''}all of {names}"
    return Markup('<a href="#failures">{} failed</a>{}.').format(who, all_of)
