"""Names of rows and columns in tables, pictures and pages, so that a variant has the same name wherever it is shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from memprof.base.units import counted
from memprof.records import summary
from memprof.records.metrics import HIGH_WATER_MARKS, NS, PEAKS, Metric
from memprof.records.summary import Key
from memprof.records.types import PEAK, RELEASE, STARTUP, WARMUP, Run

BASELINE = "baseline"


def label_names(keys: Collection[Key], threads: bool = True) -> tuple[str, ...]:
    """The parts of a row's name: the variant, and thread count and machine where they differ. threads: false where columns are thread counts."""
    several_threads = threads and len({key.threads for key in keys}) > 1
    several_machines = len({key.machine for key in keys}) > 1
    return ("variant", *(["threads"] if several_threads else []), *(["machine"] if several_machines else []))


def labels(key: Key, names: Sequence[str]) -> tuple[str, ...]:
    """A row's name, a text for each part of label_names."""
    return tuple({"variant": key.heading, "threads": str(key.threads or "default"), "machine": key.machine}[name] for name in names)


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


def by_model(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by the name of their model, in the order in which models first come."""
    models: dict[str, list[Run]] = {}
    for run in runs:
        models.setdefault(run.job.model.name, []).append(run)
    return models


def phases(runs: Sequence[Run]) -> list[str]:
    """The phases that these runs have or failed in, in their order."""
    ended = [run.outcome.phase for run in runs if run.outcome.phase and not run.outcome.phase.startswith("after")]
    return summary.order([*summary.phases(runs), *ended])


def columns(metric: Metric, phases: Sequence[str]) -> list[str]:
    """The columns of a metric's table for these phases; the baseline of memory is STARTUP's."""
    if metric.unit == NS:
        # How long an import takes is no property of the model, warming up is not timed, and nobody waits for a deletion.
        return [phase for phase in phases if phase not in (STARTUP, WARMUP, RELEASE)]
    if metric.name in HIGH_WATER_MARKS:  # the peak of a phase that only frees is the memory from before it
        phases = [phase for phase in phases if phase != RELEASE]
    return [BASELINE if phase == STARTUP else phase for phase in phases] + [PEAK] * (metric.name in PEAKS)
