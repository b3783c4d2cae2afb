"""Names of rows and columns in tables, pictures and pages, so that a variant has the same name wherever it is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from memprof.base.units import counted
from memprof.programs.commands import subject
from memprof.records.metrics import HIGH_WATER_MARKS, NS, PEAKS, Metric
from memprof.records.summary import Key, timed_phase
from memprof.records.types import COMMAND, PEAK, RELEASE, STARTUP, WARMUP, Run

BASELINE = "baseline"
_MOST_PROGRAMS = 3  # that a heading names


def label_names(keys: Collection[Key], threads: bool = True) -> tuple[str, ...]:
    """The parts of a row's name: the variant, and thread count and machine where they differ. threads: false where columns are thread counts."""
    several_threads = threads and len({key.threads for key in keys}) > 1
    several_machines = len({key.machine for key in keys}) > 1
    return ("variant", *(["threads"] if several_threads else []), *(["machine"] if several_machines else []))


def labels(key: Key, names: Sequence[str]) -> tuple[str, ...]:
    """A row's name, a text for each part of label_names."""
    return tuple({"variant": key.heading, "threads": str(key.threads or "default"), "machine": key.machine}[name] for name in names)


def key_columns(keys: Collection[Key]) -> list[tuple[str, list[str]]]:
    """The columns that name the rows of these keys, each a head and its cells."""
    return [(name, [labels(key, [name])[0] for key in keys]) for name in label_names(keys)]


def label(key: Key, names: Sequence[str]) -> str:
    """The same in one text: `ort, 4 threads, board`."""
    return ", ".join(part(key, name) for name in names)


def part(key: Key, name: str) -> str:
    """A field of a key as a part of a row's name: `4 threads`."""
    if name == "threads":
        return counted(key.threads, "thread") if key.threads else "default threads"
    return key.heading if name == "variant" else str(getattr(key, name))


def named(keys: Collection[Key]) -> dict[Key, str]:
    """The label of each of these keys, as short as tells them apart."""
    names = label_names(keys)
    return {key: label(key, names) for key in keys}


def named_with_models(keys: Collection[Key]) -> dict[Key, str]:
    """The same, behind the model where there are several."""
    several = len({key.model for key in keys}) > 1
    return {key: f"{key.model}, {name}" if several else name for key, name in named(keys).items()}


def place(key: Key, phase: str = "") -> str:
    """A key with its model, and a phase of it: `net.onnx, ort, 4 threads, EXECUTE`."""
    threads = [counted(key.threads, "thread")] if key.threads else []
    return ", ".join([key.label, *threads, *([phase] if phase else [])])


def key_fields(key: Key) -> dict[str, str | int | None]:
    """A key as JSON has it in every report. The machine is beside it where a report needs it."""
    return {"model": key.model, "variant": key.heading, "threads": key.threads}


def unloaded(runs: Iterable[Run]) -> str:
    """The moment of the baseline, for a legend: a program loads its model where it likes, or has none."""
    return "before the first phase" if any(run.job.runtime == COMMAND for run in runs) else "no model loaded"


def baseline_words(runs: Iterable[Run]) -> str:
    """What the baseline of these runs is the memory of, in words."""
    kinds = {run.job.runtime == COMMAND for run in runs}
    of_each = {False: "the runtime with no model loaded", True: "the program before its first phase"}
    return " or ".join(of_each[kind] for kind in sorted(kinds))


def by_model(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by the name of their model, in the order in which models first come."""
    models: dict[str, list[Run]] = {}
    for run in runs:
        models.setdefault(run.job.model.name, []).append(run)
    return models


def whole_programs(runs: Sequence[Run]) -> list[Run]:
    """These runs, and those of several programs without a model, which have the name of the first of them, under the names of all."""
    titles = {}
    for name, of_model in by_model(runs).items():
        programs = list(dict.fromkeys(subject(run.job.argv) for run in of_model if run.job.argv and not run.job.model.files))
        if len(programs) > 1 and name == programs[0]:  # else it is a name that the user gave
            titles[name] = ", ".join(programs) if len(programs) <= _MOST_PROGRAMS else f"{name} and {len(programs) - 1} more programs"
    named = ((run, titles.get(run.job.model.name)) for run in runs)
    return [replace(run, job=replace(run.job, model=replace(run.job.model, name=title))) if title else run for run, title in named]


def columns(metric: Metric, phases: Sequence[str]) -> list[str]:
    """The columns of a metric's table for these phases; the baseline of memory is STARTUP's."""
    if metric.unit == NS:
        # How long an import takes is no property of the model, warming up is not timed, and nobody waits for a deletion.
        return [phase for phase in phases if phase not in (STARTUP, WARMUP, RELEASE)]
    if metric.name in HIGH_WATER_MARKS:  # the peak of a phase that only frees is the memory from before it
        phases = [phase for phase in phases if phase != RELEASE]
    return [BASELINE if phase == STARTUP else phase for phase in phases] + [PEAK] * (metric.name in PEAKS)


def phase_of(metric: Metric, phase: str | None, runs: Iterable[Run] = ()) -> str:
    """The named phase, or else the one in which this metric of these runs is shown."""
    return phase or (PEAK if metric.name in PEAKS else timed_phase(runs))


def exactness_notes(exact: Iterable[bool]) -> list[str]:
    """What `~` means, for the end of what shows it; nothing if every figure is exact."""
    return [] if all(exact) else ["~ not exact: it may have been higher."]
