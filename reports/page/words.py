"""The words of the page: the finding, notices that come before any comparison, failures, and the conditions of measuring.

All of it is plain text, or Markup whose parts were escaped when they were put in.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from memprof.runs import metrics, summary
from memprof.runs.metrics import METRICS
from memprof.runs.records import PEAK, Machine, Outcome, Run
from memprof.runs.settings import written
from memprof.runs.summary import Key
from memprof.units import counted, format_bytes, format_duration

from .. import rows
from ..tables import missing, ran

_PEAK = METRICS["rss_peak_bytes"]


@dataclass(frozen=True)
class Failure:
    """A failure that some repeats of a variant share."""

    who: str
    share: str
    how: str
    message: str
    output: str
    output_size: str


@dataclass(frozen=True)
class Condition:
    """How a variant was measured: a text for each of the model's differing conditions."""

    label: str
    values: tuple[str, ...]


_CONDITIONS = ("runtime", "Python", "knobs", "threads", "shapes", "environment", "page cache", "iterations", "repeats", "measured")


@dataclass(frozen=True)
class File:
    """A file of a model."""

    path: str
    size: str
    sha256: str
    weights: str
    used_by: str


@dataclass(frozen=True)
class Model:
    """The words on a model. common: conditions that all variants share, (name, text); differing: the names of the others."""

    name: str
    findings: tuple[Markup, ...]
    failures: tuple[Failure, ...]
    common: tuple[tuple[str, str], ...]
    differing: tuple[str, ...]
    conditions: tuple[Condition, ...]
    files: tuple[File, ...]


def title(runs: Sequence[Run]) -> str:
    """The page's name."""
    names = list(dict.fromkeys(run.job.model.name for run in runs))
    return names[0] if len(names) == 1 else f"{len(names)} models"


def subtitle(runs: Sequence[Run]) -> str:
    """The numbers of variants and runs, the machine and the days."""
    groups = summary.groups(runs)
    variants = len({key.variant for key in groups})
    machines = list(dict.fromkeys(run.machine.name for run in runs))
    where = machines[0] if len(machines) == 1 else f"{len(machines)} machines"
    parts = [counted(variants, "variant"), f"{counted(len(runs), 'run')} on {where}", *([_when(runs)] if _when(runs) else [])]
    return "; ".join([", ".join(parts), *ran.heading(runs)])


def model(runs: Sequence[Run]) -> Model:
    """The words on the runs of a model."""
    groups = summary.groups(runs)
    measured = [(label, _conditions(group)) for label, group in _labelled(groups)]
    differing = [place for place in range(len(_CONDITIONS)) if len({texts[place] for _, texts in measured}) > 1]
    shared = [place for place in range(len(_CONDITIONS)) if place not in differing and measured[0][1][place]]
    return Model(
        runs[0].job.model.name,
        tuple(_findings(groups)),
        tuple(failure for label, group in _labelled(groups) for failure in _failures(label, group)),
        tuple((_CONDITIONS[place], measured[0][1][place]) for place in shared),
        tuple(_CONDITIONS[place] for place in differing),
        tuple(Condition(label, tuple(texts[place] for place in differing)) for label, texts in measured) if differing else (),
        tuple(_files(groups)),
    )


def _labelled(groups: dict[Key, list[Run]]) -> list[tuple[str, list[Run]]]:
    names = rows.label_names(groups)
    return [(rows.label(key, names), group) for key, group in groups.items()]


# -- the finding


@dataclass(frozen=True)
class _Peak:
    label: str
    middle: float
    low: float
    high: float
    phase: str
    ground: float | None
    exact: bool
    repeats: int
    bound: int

    @property
    def shown(self) -> str:
        return ("" if self.exact else "~") + format_bytes(self.middle)


def _findings(groups: dict[Key, list[Run]]) -> Iterable[Markup]:
    """A sentence a machine: figures of different machines are never set against each other."""
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
        above = f": {format_bytes(peak.middle - peak.ground)} above the {format_bytes(peak.ground)} of the runtime with no model loaded"
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
        names = _quoted(variants[0].variant) if len(variants) == 1 else f"{len(variants)} variants"
        all_of = f", {'among them ' if failed > sum(len(groups[key]) for key in variants) else ''}all of {names}"
    return Markup('<a href="#failures">{} failed</a>{}.').format(who, all_of)


def _quoted(text: str) -> str:
    return f"“{text if len(text) <= 60 else text[:59] + '…'}”"


# -- notices


def notices(runs: Sequence[Run], warnings: Sequence[str]) -> list[str]:
    """Facts that a reader must know first: mixtures, and files that were not whole."""
    sentences = list(warnings)
    machines = list(dict.fromkeys(run.machine.name for run in runs))
    if len(machines) > 1:
        sentences.append(
            f"These runs come from {len(machines)} machines ({', '.join(machines)}). Each has separate rows; nothing is averaged over machines."
        )
    schemas = sorted({run.memprof for run in runs})
    if len(schemas) > 1:
        sentences.append(
            f"These runs were written in schema versions {', '.join(map(str, schemas))}: a figure that a version did not have is “-”."
        )
    models = rows.by_model(runs)
    for name, of_model in models.items():
        for label, group in _labelled(summary.groups(of_model)):
            if differing := _differing(group):
                who = label if len(models) == 1 else f"{name}, {label}"
                sentences.append(
                    f"{who}: its repeats were not measured alike, they differ in {', '.join(differing)}. Its medians are over all of them."
                )
    return sentences


# Facts that repeats of a variant must have in common, by the name that a reader knows.
_SHARED: dict[str, Callable[[Run], object]] = {
    "the model's content": lambda run: run.job.model.sha256,
    "the runtime": lambda run: run.job.runtime,
    "the runtime's version": lambda run: run.about.runtime_version if run.about else None,
    "Python's version": lambda run: run.about.python_version if run.about else None,
    "knobs": lambda run: sorted(run.job.knobs.items()),
    "environment": lambda run: sorted(run.job.env.items()),
    "the kernel": lambda run: run.machine.kernel,
    "the CPU": lambda run: (run.machine.cpu, run.machine.cpus_usable),
    "the C library": lambda run: run.machine.libc,
    "memory": lambda run: run.machine.memory_bytes,
    "the page cache": lambda run: run.job.cache,
    "determinism": lambda run: run.job.deterministic,
    "the number of iterations": lambda run: (run.job.warmup, run.job.runs),
    "input shapes": ran.shapes,
    "schema": lambda run: run.memprof,
}


def _differing(runs: Sequence[Run]) -> list[str]:
    names = []
    for name, of in _SHARED.items():
        # A run that failed early lacks some facts; that is no difference.
        facts = {repr(value) for run in runs if (value := of(run)) is not None}
        if len(facts) > 1:
            names.append(name)
    return names


# -- failures


_HOW = {
    "import": "the runtime could not be imported",
    "refused": "the job was refused",
    "error": "the runtime raised an error",
    "start": "it could not be started",
}


def _failures(label: str, runs: Sequence[Run]) -> Iterable[Failure]:
    alike: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        if not run.outcome.ok:
            outcome = run.outcome
            alike.setdefault((outcome.status, outcome.phase, outcome.exit_code, outcome.signal, outcome.message), []).append(run)
    for group in alike.values():
        run = group[-1]
        yield Failure(
            who=label,
            share=f"failed in {len(group)} of {counted(len(runs), 'repeat')}",
            how=_how(run.outcome),
            message=_message(run.outcome),
            output=run.output_tail or "",
            output_size=format_bytes(run.output_bytes) if run.output_bytes else "",
        )


def _how(outcome: Outcome) -> str:
    if outcome.status not in _HOW:
        return outcome.sentence
    where = outcome.phase or ""
    return f"{where if where.startswith('after') or not where else 'in ' + where}: {_HOW[outcome.status]}"


def _message(outcome: Outcome) -> str:
    message = outcome.message or ""
    return "" if message in _how(outcome) else message


# -- conditions


def machines(runs: Sequence[Run]) -> list[tuple[str, tuple[str, ...]]]:
    """Facts of the machines: (name of the fact, its text for each machine); a machine whose facts changed is there twice."""
    distinct = list(dict.fromkeys(run.machine for run in runs))
    return [(name, tuple(of(machine) for machine in distinct)) for name, of in _FACTS.items()]


def _swap(machine: Machine) -> str:
    return f", {format_bytes(machine.swap_bytes)} of swap" if machine.swap_bytes else ", no swap"


_FACTS: dict[str, Callable[[Machine], str]] = {
    "machine": lambda machine: machine.name,
    "processor": lambda machine: f"{machine.cpu} ({machine.arch})",
    "CPUs": lambda machine: str(machine.cpus) if machine.cpus == machine.cpus_usable else f"{machine.cpus}, {machine.cpus_usable} usable",
    "memory": lambda machine: format_bytes(machine.memory_bytes) + _swap(machine),
    "kernel": lambda machine: machine.kernel,
    "C library": lambda machine: machine.libc,
    "pages": lambda machine: f"{format_bytes(machine.page_bytes)}, transparent huge pages: {machine.huge_pages}",
    "bound of a peak": lambda machine: f"{format_bytes(machine.peak_bound_bytes)}: the kernel adds its counters up late",
}


def _conditions(runs: Sequence[Run]) -> tuple[str, ...]:
    """A text for each of _CONDITIONS; if repeats differ, their texts one after another."""

    def texts(of: Callable[[Run], str]) -> str:
        return "; ".join(dict.fromkeys(text for run in runs if (text := of(run))))

    return (
        texts(_runtime),
        texts(_python),
        texts(_knobs),
        texts(lambda run: str(run.job.threads or "the runtime's default")),
        texts(ran.shapes),
        texts(lambda run: ", ".join(f"{key}={value}" if value is not None else f"{key} unset" for key, value in run.job.env.items())),
        texts(lambda run: run.job.cache),
        texts(
            lambda run: (
                f"{run.job.warmup} to warm up, {run.job.runs} timed" if run.job.runs or not run.job.argv else "chosen by the command"
            )
        ),
        str(len(runs)),
        _when(runs),
    )


def _runtime(run: Run) -> str:
    # A run that failed early could not say its version; where another repeat did, it is not a second runtime.
    return (
        f"{run.job.runtime} {run.about.runtime_version}" if run.about else "" if run.outcome.ok else f"{run.job.runtime}, version not known"
    )


def _knobs(run: Run) -> str:
    return (
        ", ".join([*(f"{key}={value}" for key, value in written(run.job.knobs).items()), *(["deterministic"] * run.job.deterministic)])
        or "defaults"
    )


def _python(run: Run) -> str:
    version = run.about.python_version if run.about else ""
    return f"{version} ({run.job.python})".strip() if run.job.python else version


def _when(runs: Sequence[Run]) -> str:
    days = sorted({_day(run) for run in runs if run.started_ns})
    return "" if not days else days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _day(run: Run) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(run.started_ns // 10**9))


def _files(groups: dict[Key, list[Run]]) -> Iterable[File]:
    users: dict[tuple[str, int, str], list[str]] = {}
    weights: dict[tuple[str, int, str], str] = {}
    labelled = _labelled(groups)
    for label, group in labelled:
        for model in dict.fromkeys(run.job.model for run in group):
            for place, file in enumerate(model.files):
                key = (file.path, file.bytes, file.sha256)
                users[key] = [*(who for who in users.get(key, ()) if who != label), label]
                if not place and model.weight_bytes:
                    weights[key] = format_bytes(model.weight_bytes)
    for key, who in users.items():
        path, size, sha256 = key
        yield File(path, format_bytes(size), sha256, weights.get(key, ""), "" if len(who) == len(labelled) else "; ".join(who))


def exactness(runs: Sequence[Run]) -> list[str]:
    """Sentences on how far the figures can be trusted."""
    sentences = []
    marks = [mark for run in runs for mark in run.marks if mark.rss_peak_bytes is not None]
    inexact = [mark for mark in marks if not mark.sure]
    bound = format_bytes(max(run.machine.peak_bound_bytes for run in runs))
    if len(inexact) < len(marks):
        sentences.append(
            "Peaks without a ~ are exact: the kernel's high-water mark was reset where each phase began and read where it ended, so that no "
            f"transient is lost. The kernel adds its counters up late, by up to {bound} here; no difference below that means anything."
        )
    if inexact:
        number = "All" if 1 < len(inexact) == len(marks) else f"{len(inexact):,}"
        verbs = "is inexact and carries" if len(inexact) == 1 else "are inexact and carry"
        sentences.append(
            f"{number} of {counted(len(marks), 'phase peak')} {verbs} a ~, and the true peak may be higher: "
            f"{'; or '.join(missing.why_inexact(runs))}."
        )
    sentences += _polling(runs)
    sentences.append(
        "Cells are medians over repeats, each a fresh process; ± is the distance to the farthest repeat. EXECUTE's latency is the median "
        "iteration of each repeat. 1 MiB is 1024 KiB, 1 MB is 1000 kB."
    )
    return sentences


def _polling(runs: Sequence[Run]) -> Iterable[str]:
    pollings = [run.polling for run in runs if run.polling]
    if pollings:
        middle = statistics.median(polling.median_ns for polling in pollings)
        yield (
            f"Timelines come from polling, every {format_duration(middle)} in the middle and within "
            f"{format_duration(max(polling.p99_ns for polling in pollings))} in 99 of 100 polls of the worst run. Long ones are thinned for "
            "this page without losing a maximum of any phase."
        )
    blind = summary.order(mark.phase for run in runs if not run.imported for mark in run.marks if not mark.interval_ns)
    if blind:
        yield (
            f"Not polled in some runs, so that timing is not disturbed: {', '.join(blind)}. Peaks there come from the high-water mark alone, "
            "and from the phase's end where it carries a ~."
        )


def remarks(runs: Sequence[Run], warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Warnings and notes: (the text, whom it concerns)."""
    several = len({run.job.model.name for run in runs}) > 1
    groups = summary.groups(runs)
    names = {name: rows.label_names([key for key in groups if key.model == name]) for name in {key.model for key in groups}}
    users: dict[str, dict[str, None]] = {text: {} for text in warnings}
    for key, group in groups.items():
        label = rows.label(key, names[key.model])
        for run in group:
            for text in (*run.warnings, *(run.about.notes if run.about else ())):
                users.setdefault(text, {})[f"{key.model}, {label}" if several else label] = None
    return [(text, "; ".join(who)) for text, who in users.items()]
