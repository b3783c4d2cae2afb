"""Which runs a picture shows, how they are grouped, and the words about them: conditions, failures, variants left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from memprof.base.errors import InputError, UsageError, near
from memprof.base.terminal_text import plain
from memprof.base.units import capitalised
from memprof.records import metrics
from memprof.records.metrics import Metric
from memprof.records.summary import Key
from memprof.records.types import PEAK, Machine, Run

from .. import modes, ran
from ..rows import named_with_models, phase_of, whole_programs
from ..soundness import sound
from ..tables import missing
from ..tables.grid import Unit, choose_unit
from . import lettering


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
    known = list(dict.fromkeys(run.job.heading for run in runs))
    for name in variants:
        if name not in known:
            raise UsageError(f"these runs have no variant {name!r}{near(name, known) or '; they have ' + '; '.join(known)}")
    return whole_programs([run for run in runs if not variants or run.job.heading in variants])


def by_model(grouped: Mapping[Key, list[Run]]) -> dict[str, dict[Key, list[Run]]]:
    """Groups of repeats by model, both in order of first appearance."""
    models: dict[str, dict[Key, list[Run]]] = {}
    for key, group in grouped.items():
        models.setdefault(key.model, {})[key] = group
    return models


def row_labels(called: Mapping[Key, str], most: float) -> tuple[dict[Key, str], float]:
    """The names of rows, cut to so many inches, and how wide they are."""
    wide = min(most, max(lettering.width(lettering.readable(name)) for name in called.values()))
    return dict(zip(called, lettering.distinct(list(called.values()), wide), strict=True)), wide


def conditions(runs: Sequence[Run]) -> str:
    """The conditions under which these runs were measured, in a line."""
    jobs = [run.job for run in runs]
    parts = []
    if all(job.threads for job in jobs):
        threads = sorted({job.threads or 0 for job in jobs})
        parts.append(f"{_list(threads)} thread{'s' if threads != [1] else ''}")
    if any(job.warmup or job.runs or not job.argv for job in jobs):
        timed = sorted({job.runs for job in jobs})
        parts.append(
            f"{_list(sorted({job.warmup for job in jobs}))} warm-up and {_list(timed)} timed iteration{'s' if timed != [1] else ''}"
        )
    parts += [*ran.versions(runs), *ran.heading(runs)]
    parts.append(ran.repeats(runs))
    machines = _machines(runs)
    if len(machines) == 1:
        machine = runs[0].machine
        words = replace(machine, cpu="").words
        parts.append(f"{machine.name} ({words})" if words else machine.name)
    else:
        parts.append(f"{len(machines)} machines")
    return " · ".join(parts)


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _machines(runs: Sequence[Run]) -> dict[str, Machine]:
    return {run.machine.name: run.machine for run in runs}


def remarks(grouped: Mapping[Key, list[Run]], not_drawn: int = 0) -> list[str]:
    """The lines that a reader of the picture needs: how many variants are not drawn, different machines, pages in swap, and what failed."""
    machines = _machines([run for group in grouped.values() for run in group])
    lines = []
    if not_drawn:
        lines.append(f"{not_drawn} more variants are not drawn: --model and --variant choose")
    if len(machines) > 1:
        listed = ", ".join(f"{machine.name} ({machine.words or 'not known'})" for machine in machines.values())
        lines.append(f"Measured on {len(machines)} machines, which are never averaged: {listed}")
    if swapped := missing.swapped_out([run for group in grouped.values() for run in group]):
        lines.append(capitalised(swapped))
    called = named_with_models(grouped)
    lines += [f"{called[key]}: {note}" for key, group in grouped.items() for note in modes.notes(group)]
    lines += [f"✗ {called[key]}: {failure}" for key, group in grouped.items() for failure in ran.failures(group)]
    return lines


def need_success(runs: Sequence[Run]) -> None:
    """Raises InputError where no run succeeded."""
    if any(run.complete for run in runs):
        return
    last = runs[-1]
    failure = f"{plain(last.job.heading)}: {plain(last.outcome.sentence)}"
    raise InputError(f"no run succeeded, so there is nothing to draw ({failure}); `memprof plot timeline` shows how far they came")


def values(group: Sequence[Run], metric: Metric, phase: str | None) -> list[float]:
    """The metric of each repeat that has it, in the phase that phase_of says."""
    return metrics.values(group, phase_of(metric, phase, group), metric)


def unit(metric: Metric, phase: str | None, drawn: Sequence[float]) -> Unit:
    """The unit in which these values of a metric are drawn. Raises InputError where there is none."""
    if not drawn:
        raise InputError(f"these runs have no {metric.name} in {phase_of(metric, phase)}")
    return choose_unit(metric.unit, drawn)


def in_phase(phase: str) -> str:
    """` in EXECUTE`, or nothing for PEAK, which is no phase."""
    return "" if phase == PEAK else f" in {plain(phase)}"
