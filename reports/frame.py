"""Runs as pandas frames: bytes and nanoseconds, absent values as NA."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy
import pandas

from memprof.base.errors import InputError
from memprof.records import metrics, summary
from memprof.records.settings import written
from memprof.records.types import PEAK, Conditions, Run

from .columns import Array, ColumnArrays, columns
from .soundness import sound

KEYS = ("model", "runtime", "variant", "threads", "machine", "repeat", "phase", "outcome")
# Behind the metrics: the message of a failed run, and columns that tell apart rows with the same keys.
DETAILS = ("message", "knobs", "shapes", "runtime_version", "kernel", "model_sha256")

# The machine around a run, where its kernel tells.
CONDITIONS = tuple(field.name for field in fields(Conditions))

# The columns whose cells are text.
WORDS = tuple(name for name in (*KEYS, *DETAILS) if name not in ("threads", "repeat"))


_KNOWN = ("rss_peak_exact", "rss_peak_at_least")


def runs_frame(runs: Iterable[Run]) -> pandas.DataFrame:
    """One row per run and phase, with KEYS, every metric and DETAILS as columns; a failed run has a row for the phase it failed in.

    A run has a row for PEAK unless it failed before RELEASE.

    rss_peak_at_least: pages were swapped out meanwhile, which are in no resident set; such a peak is not exact.

    outcome is `ok` in phases that ended well, else the run's status or the name of the signal that ended it. Bytes, nanoseconds
    (rounded) and counts are whole numbers. knobs and shapes: as they are written on the command line, with commas between.
    """
    runs = list(runs)
    sound(runs)
    rows = [row for run in runs for row in _rows(run)]
    frame = pandas.DataFrame(rows, columns=[*KEYS, *metrics.METRICS, *_KNOWN, "rss_peak_high_bytes", *DETAILS, *CONDITIONS])
    numbers = dict.fromkeys(["threads", *metrics.METRICS, "rss_peak_high_bytes"], "Int64")
    numbers.update({name: "Float64" if name.endswith("_celsius") else "Int64" for name in CONDITIONS})
    return frame.astype({**numbers, **dict.fromkeys(_KNOWN, "boolean")})


def _rows(run: Run) -> Iterable[dict[str, object]]:
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


def write_parquet(runs: Iterable[Run], path: Path) -> None:
    """The same frame as a Parquet file. Raises InputError where pyarrow is missing."""
    try:
        runs_frame(runs).to_parquet(path, index=False)
    except ImportError as error:
        reason = " ".join(str(error).split(". ")[0].split())
        raise InputError(f"Parquet needs pyarrow: pip install 'ml-memprof[parquet]' ({reason})") from None


def timeline_frame(runs: Iterable[Run]) -> pandas.DataFrame:
    """One row per sample of every run; t_ns counts from the start of the run's first phase, phase is empty between two phases.

    The words are categories: ten million rows take 0.4 GiB. Raises InputError where a timeline is damaged.
    """
    runs = list(runs)
    sound(runs)
    timelines = [columns(run.timeline, run.job.heading) for run in runs]
    lengths = [len(rows) for rows in timelines]
    words = {name: [of(run) for run in runs] for name, of in _NAMES.items()}
    frame = pandas.DataFrame(
        {name: pandas.Categorical(of_runs, list(dict.fromkeys(of_runs))).repeat(lengths) for name, of_runs in words.items()}
    )
    frame["threads"] = pandas.array([run.job.threads for run in runs], dtype="Int64").repeat(lengths)
    frame["repeat"] = numpy.repeat([run.job.repeat for run in runs], lengths)
    frame["phase"] = _phases(runs, timelines)
    begins = [
        run.marks[0].begin_ns if run.marks else int(rows.t_ns[0]) if len(rows) else 0 for run, rows in zip(runs, timelines, strict=True)
    ]
    frame["t_ns"] = _joined([rows.t_ns - begin_ns for rows, begin_ns in zip(timelines, begins, strict=True)])
    for name in ("rss", "file", "vms"):
        frame[f"{name}_bytes"] = _joined([getattr(rows, name) for rows in timelines])
    return frame


_NAMES: dict[str, Callable[[Run], str]] = {
    "model": lambda run: run.job.model.name,
    "variant": lambda run: run.job.heading,
    "machine": lambda run: run.machine.name,
}


def _phases(runs: Sequence[Run], timelines: Sequence[ColumnArrays]) -> pandas.Categorical:
    """The phase that each sample lies in."""
    names = ["", *summary.phases(runs)]
    codes = [numpy.zeros(len(rows), numpy.int64) for rows in timelines]
    for run, rows, codes_of_run in zip(runs, timelines, codes, strict=True):
        for mark in run.marks:
            low, high = numpy.searchsorted(rows.t_ns, [mark.begin_ns, mark.end_ns + 1])
            codes_of_run[low:high] = names.index(mark.phase)
    kind = pandas.CategoricalDtype(names)
    return pandas.Categorical.from_codes(_joined(codes), dtype=kind)


def _joined(arrays: Sequence[Array]) -> Array:
    return numpy.concatenate(arrays) if arrays else numpy.zeros(0, numpy.int64)
