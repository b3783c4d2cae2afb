"""Which runs a picture shows, what they are called in it, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memprof.errors import InputError, UsageError, near
from memprof.plain import plain
from memprof.runs.metrics import Metric
from memprof.runs.records import EXECUTE, PEAK, Run
from memprof.runs.summary import Key

from ..rows import named
from ..soundness import sound
from ..tables import ran


def chosen(runs: Sequence[Run], model: str | None = None, variants: Sequence[str] = ()) -> list[Run]:
    """The runs of this model and these variants, all where none is named.

    Raises UsageError for a name that does not occur, InputError where there are no runs at all.
    """
    if not runs:
        raise InputError("there are no runs to draw")
    sound(runs)
    models = list(dict.fromkeys(run.job.model.name for run in runs))
    if model is not None and model not in models:
        raise UsageError(f"these runs have no model {model!r}{near(model, models) or '; they have ' + ', '.join(models)}")
    runs = [run for run in runs if model in (None, run.job.model.name)]
    known = list(dict.fromkeys(run.job.variant for run in runs))
    for name in variants:
        if name not in known:
            raise UsageError(f"these runs have no variant {name!r}{near(name, known) or '; they have ' + ', '.join(known)}")
    return [run for run in runs if not variants or run.job.variant in variants]


def by_model(grouped: Mapping[Key, list[Run]]) -> dict[str, dict[Key, list[Run]]]:
    """Groups of repeats by model, both in order of first appearance."""
    found: dict[str, dict[Key, list[Run]]] = {}
    for key, group in grouped.items():
        found.setdefault(key.model, {})[key] = group
    return found


def conditions(runs: Sequence[Run]) -> str:
    """Under which conditions these runs were measured, in a line."""
    jobs = [run.job for run in runs]
    said = []
    if all(job.threads for job in jobs):
        threads = sorted({job.threads or 0 for job in jobs})
        said.append(f"{_list(threads)} thread{'s' if threads != [1] else ''}")
    if any(job.warmup or job.runs or not job.argv for job in jobs):
        said.append(
            f"{_list(sorted({job.warmup for job in jobs}))} warm-up and {_list(sorted({job.runs for job in jobs}))} timed iterations"
        )
    said += ran.heading(runs)
    counts: dict[object, int] = {}
    for job in jobs:
        one = (job.model.name, job.variant, job.threads)
        counts[one] = counts.get(one, 0) + 1
    several = sorted({min(counts.values()), max(counts.values())})
    said.append(f"{' to '.join(map(str, several))} repeat{'s' if several != [1] else ''}")
    machines = {run.machine.name: run.machine for run in runs}
    if len(machines) == 1:
        machine = runs[0].machine
        words = replace(machine, cpu="").words
        said.append(f"{machine.name} ({words})" if words else machine.name)
    else:
        said.append(f"{len(machines)} machines")
    return " · ".join(said)


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def remarks(grouped: Mapping[Key, list[Run]]) -> list[str]:
    """What a reader of the picture must know: different machines, and what failed."""
    runs = [run for group in grouped.values() for run in group]
    machines = {run.machine.name: run.machine for run in runs}
    found = []
    if len(machines) > 1:
        each = ", ".join(f"{one.name} ({one.words or 'not known'})" for one in machines.values())
        found.append(f"Measured on {len(machines)} machines, which are never averaged: {each}")
    called = named(grouped)
    several_models = len({key.model for key in grouped}) > 1
    for key, group in grouped.items():
        name = f"{key.model}, {called[key]}" if several_models else called[key]
        failed = [run.outcome for run in group if not run.outcome.ok]
        for one in dict.fromkeys((outcome.status, outcome.phase) for outcome in failed):
            same = [outcome for outcome in failed if (outcome.status, outcome.phase) == one]
            share = f" in {len(same)} of {len(group)} repeats" if len(group) > 1 else ""
            found.append(f"✗ {name}: failed{share}: {same[0].sentence}")
    return found


def no_success(runs: Sequence[Run]) -> InputError:
    """The error where nothing can be drawn for want of a successful run."""
    last = runs[-1]
    said = f"{plain(last.job.variant)}: {plain(last.outcome.sentence)}"
    return InputError(f"no run succeeded, so there is nothing to draw ({said}); `memprof plot timeline` shows how far they came")


def in_phase(phase: str) -> str:
    """` in EXECUTE`, or nothing for PEAK, which is no phase."""
    return "" if phase == PEAK else f" in {plain(phase)}"


def phase_of(metric: Metric, phase: str | None) -> str:
    """The phase a metric is drawn of where none is named, the same as in tables."""
    return phase or (PEAK if metric.name == "rss_peak_bytes" else EXECUTE)
