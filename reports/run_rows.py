"""Runs as rows of plain values, one per run and phase: bytes, nanoseconds (rounded) and counts, without those that could not be had."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict, fields

from memprof.records import metrics
from memprof.records.settings import written
from memprof.records.types import PEAK, Conditions, Run

KEYS = ("model", "runtime", "variant", "threads", "machine", "repeat", "phase", "outcome")
KNOWN = ("rss_peak_exact", "rss_peak_at_least")
# Behind the metrics: the message of a failed run, and columns that tell apart rows with the same keys.
DETAILS = ("message", "knobs", "shapes", "runtime_version", "kernel", "model_sha256")
# The machine around a run, where its kernel tells.
CONDITIONS = tuple(field.name for field in fields(Conditions))
COLUMNS = (*KEYS, *metrics.METRICS, *KNOWN, "rss_peak_high_bytes", *DETAILS, *CONDITIONS)


def rows(run: Run) -> Iterator[dict[str, object]]:
    """A row for each finished phase, one for PEAK unless the run failed before RELEASE, and one for the phase that it failed in."""
    keys = {
        "model": run.job.model.name,
        "runtime": run.job.runtime,
        "variant": run.job.heading,
        "threads": run.job.threads,
        "machine": run.machine.name,
        "repeat": run.job.repeat,
    }
    details = {
        "knobs": ",".join(f"{name}={value}" for name, value in written(run.job.knobs).items()) or None,
        "shapes": ",".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in run.job.shapes.items()) or None,
        "runtime_version": run.about.runtime_version if run.about else None,
        "kernel": run.machine.kernel,
        "model_sha256": run.job.model.sha256,
        **(asdict(run.conditions) if run.conditions else {}),
    }
    for mark in run.marks:
        figures = {name: _whole(metric.of(mark)) for name, metric in metrics.METRICS.items()}
        least = mark.swapped_bytes > 0
        known = {
            "rss_peak_exact": mark.rss_peak_exact and not least,
            "rss_peak_at_least": least,
            "rss_peak_high_bytes": mark.rss_peak_high_bytes,
        }
        yield {**keys, "phase": mark.phase, "outcome": "ok", **figures, **known, **details}
    if run.complete:
        peak = metrics.METRICS["rss_peak_bytes"]
        figures = {name: _whole(metrics.value(run, PEAK, metrics.METRICS[name])) for name in metrics.PEAKS}
        least = metrics.swapped(run, PEAK, peak) > 0
        known = {"rss_peak_exact": metrics.exact(run, PEAK, peak) and not least, "rss_peak_at_least": least}
        yield {**keys, "phase": PEAK, "outcome": "ok", **figures, **known, **details}
    if not run.outcome.ok:
        outcome = {"outcome": run.outcome.signal or run.outcome.status, "message": run.outcome.message}
        yield {**keys, "phase": run.outcome.phase, **outcome, **details}


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
