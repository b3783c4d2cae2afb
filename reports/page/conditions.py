"""How runs were measured, in words: the conditions of a variant, and the facts of the machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from memprof.base.units import format_bound, format_bytes
from memprof.records.settings import written
from memprof.records.types import Machine, Run

from .. import ran


def machines(runs: Sequence[Run]) -> list[tuple[str, tuple[str, ...]]]:
    """Facts of the machines: (name of the fact, its text for each machine); a machine whose facts changed is there twice."""
    distinct = list(dict.fromkeys(run.machine for run in runs))
    return [(name, tuple(of(machine) for machine in distinct)) for name, of in FACTS.items()]


# The facts of a machine.
FACTS: dict[str, Callable[[Machine], str]] = {
    "machine": lambda machine: machine.name,
    "processor": lambda machine: f"{machine.cpu} ({machine.arch})",
    "CPUs": lambda machine: str(machine.cpus) if machine.cpus == machine.cpus_usable else f"{machine.cpus}, {machine.cpus_usable} usable",
    "memory": lambda machine: (
        f"{format_bytes(machine.memory_bytes)}, {f'{format_bytes(machine.swap_bytes)} of' if machine.swap_bytes else 'no'} swap"
    ),
    "kernel": lambda machine: machine.kernel,
    "C library": lambda machine: machine.libc,
    "pages": lambda machine: f"{format_bytes(machine.page_bytes)}, transparent huge pages: {machine.huge_pages}",
    "bound of a peak": lambda machine: f"{format_bound(machine.peak_bound_bytes)}: the kernel adds its counters up late",
}


def conditions(runs: Sequence[Run]) -> dict[str, str]:
    """The conditions by name; if repeats differ, their texts one after another."""
    texts = {name: "; ".join(dict.fromkeys(text for run in runs if (text := of(run)))) for name, of in _CONDITIONS.items()}
    return {**texts, "repeats": str(len(runs)), "measured": when(runs)}


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


def _iterations(run: Run) -> str:
    return f"{run.job.warmup} to warm up, {run.job.runs} timed" if run.job.runs or not run.job.argv else "chosen by the command"


_CONDITIONS: dict[str, Callable[[Run], str]] = {
    "runtime": _runtime,
    "Python": _python,
    "knobs": _knobs,
    "threads": lambda run: str(run.job.threads or "the runtime's default"),
    "shapes": ran.shapes,
    "environment": lambda run: ", ".join(f"{key}={value}" if value is not None else f"{key} unset" for key, value in run.job.env.items()),
    "page cache": lambda run: run.job.cache,
    "iterations": _iterations,
}


def when(runs: Sequence[Run]) -> str:
    """The day of the runs, or the first and the last."""
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(run.started_ns // 10**9)) for run in runs if run.started_ns})
    return "" if not days else days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
