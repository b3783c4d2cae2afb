"""Planned residency as text and JSON, beside the measured RSS of runs of the model."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from memprof.plan.residency import Residency
from memprof.records import metrics, summary
from memprof.records.types import EXECUTE, Run

from ..rows import named
from ..short_names import shortened
from . import grid, swap
from .grid import Section, TextTable
from .plan import LONGEST_NAME, SCRATCH, exact, unit_of


def show(
    model: str,
    planned: Residency,
    runs: Sequence[Run],
    *,
    format: str = "markdown",
    bandwidth: float | None = None,
    unit: str | None = None,
    timed: bool = False,
    assumptions: Sequence[str] = (),
) -> str:
    """Planned residency in the shape of the swap table, beside the measured RSS of runs of the model.

    bandwidth: of the device, bytes a second. timed: the operators' times come from a profile. assumptions: those of the graph's reader.
    """
    run_ns = _latency(runs)
    if format == "json":
        return json.dumps({**_json(model, planned, runs, bandwidth, run_ns), "assumptions": list(assumptions)}, indent=1)
    measured = _measured(runs)
    figures: dict[str, tuple[float | None, ...]] = {
        f"planned, {planned.lookahead} ahead": (planned.min_bytes, planned.mean_bytes, planned.max_bytes),
        "planned, all resident": (None, None, planned.all_bytes),
        **{f"{name}, RSS": values for name, values in measured.items()},
    }
    size = unit_of([value for values in figures.values() for value in values if value is not None], unit)
    columns = [(head, ["-" if value is None else exact(round(value), size) for value in values]) for head, values in figures.items()]
    resident = grid.of_columns(size.caption("Resident"), [("", swap.ROWS), *columns])
    tables = (resident, _moved(planned, unit), *_times(planned, bandwidth, run_ns))
    notes = _notes(planned, measured, timed, run_ns) + [f"Assumed: {assumption}." for assumption in assumptions]
    return grid.laid_out(Section(f"{Path(model).name}: what must be resident", tables, tuple(notes)), grid.say_in(format))


def _moved(planned: Residency, wanted: str | None) -> TextTable:
    lines = [
        ("moved in a run", planned.in_bytes + planned.out_bytes),
        ("of that in", planned.in_bytes),
        ("of that out", planned.out_bytes),
        ("before the first operator", planned.before_bytes),
    ]
    unit = unit_of([bytes for _, bytes in lines], wanted)
    return TextTable(unit.caption("Moved"), ("", "size"), tuple((label, exact(bytes, unit)) for label, bytes in lines))


def _times(planned: Residency, bandwidth: float | None, run_ns: float | None) -> list[TextTable]:
    """Times of a run and its transfers, if a run was measured or a bandwidth given."""
    lines = [] if run_ns is None else [("a run, measured with all resident", run_ns)]
    if bandwidth:
        lines.append((f"transfers at {_rate(bandwidth)}, all of a run", (planned.in_bytes + planned.out_bytes) / bandwidth * 1e9))
        if run_ns is not None:
            slowed = planned.slowed_ns(run_ns, bandwidth)
            lines.append((f"a run at {_rate(bandwidth)} ({grid.percent(slowed / run_ns)})", slowed))
        elif planned.speed is not None:
            lines.append((f"a run that {_rate(bandwidth)} do not slow down takes at least", planned.speed / bandwidth * 1e9))
    unit = grid.choose_unit(metrics.NS, [ns for _, ns in lines])
    return [TextTable(unit.caption("Times"), ("", "time"), tuple((label, unit.cell(ns)) for label, ns in lines))] if lines else []


def _rate(bytes: float) -> str:
    """Bytes a second in powers of ten, as devices are sold."""
    name, size = next((name, size) for name, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1)) if bytes >= size or size == 1)
    return f"{grid.number(bytes / size)} {name}/s"


def _notes(planned: Residency, measured: dict[str, Any], timed: bool, run_ns: float | None) -> list[str]:
    notes = [
        "Resident: weights and activations that the running operator"
        + (f" and the next {planned.lookahead if planned.lookahead > 1 else ''}".rstrip() + " read" if planned.lookahead else " reads")
        + ", and those that it writes; AVR is weighted by time.",
        "Operators' times are those of the profile."
        if timed
        else "An operator's time is taken in proportion to its multiply-adds and the bytes it touches; --profile has it measured.",
        SCRATCH,
    ]
    if planned.max_operator:
        notes.append(f"Most is resident at {shortened(planned.max_operator, LONGEST_NAME)}.")
    if run_ns is not None and (needed := planned.bandwidth(run_ns)) is not None:
        notes.append(f"A device that moves {_rate(needed)} slows the measured run down by 1% at most.")
    if not planned.lookahead:
        notes.append("Looking no operator ahead, no transfer overlaps with computing: any device slows a run down.")
    if measured:
        notes.append(
            "Measured RSS holds the runtime itself too, and is over the whole run, from the baseline on: loading, preparing and running."
        )
    return notes


def _json(model: str, planned: Residency, runs: Sequence[Run], bandwidth: float | None, run_ns: float | None) -> dict[str, Any]:
    content = {name: value for name, value in to_builtins(planned).items() if name not in ("resident", "shares", "loads", "speed")}
    return {
        "model": model,
        **content,
        "moved_bytes": planned.in_bytes + planned.out_bytes,
        "run_ns": run_ns,
        "bandwidth_needed_bytes_per_s": planned.bandwidth(run_ns) if run_ns is not None else None,
        "device_bandwidth_bytes_per_s": bandwidth,
        "slowed_run_ns": planned.slowed_ns(run_ns, bandwidth) if run_ns is not None and bandwidth else None,
        "measured": {
            name: {"rss_min_bytes": least, "rss_mean_bytes": mean, "rss_max_bytes": most}
            for name, (least, mean, most) in _measured(runs).items()
        },
    }


def _measured(runs: Sequence[Run]) -> dict[str, tuple[float, ...]]:
    """MIN, AVR and MAX of RSS by variant and threads as the swap table has them: from the baseline on, medians over repeats."""
    groups = summary.groups(runs)
    extremes = {name: swap.extremes(groups[key], "RSS", swap.Window()) for key, name in named(groups).items()}
    return {name: figures for name, figures in extremes.items() if figures}


def _latency(runs: Sequence[Run]) -> float | None:
    """The shortest of the variants' median iterations."""
    by_variant: dict[str, list[float]] = {}
    for run in runs:
        value = metrics.value(run, EXECUTE, metrics.METRICS["time_ns"]) if run.complete else None
        if value is not None:
            by_variant.setdefault(run.job.heading, []).append(value)
    return min((statistics.median(values) for values in by_variant.values()), default=None)
