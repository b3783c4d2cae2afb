"""Runs as pandas frames: bytes and nanoseconds, absent values as NA."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas

from memprof import metrics, store
from memprof.errors import InputError
from memprof.records import PEAK, Run

KEYS = ("model", "runtime", "variant", "threads", "machine", "repeat", "phase", "outcome")


def runs_frame(runs: Iterable[Run]) -> pandas.DataFrame:
    """One row a run and phase, with KEYS and every metric as columns; a failed run has a row for the phase it failed in, and PEAK none.

    outcome is `ok` in phases that ended well, else what became of the run there: its status, or the name of the signal.
    """
    rows = [row for run in runs for row in _rows(run)]
    frame = pandas.DataFrame(rows, columns=[*KEYS, *metrics.METRICS, "rss_peak_exact"])
    whole = ["threads", *(name for name, metric in metrics.METRICS.items() if metric.unit != metrics.NS)]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def _rows(run: Run) -> Iterable[dict[str, object]]:
    shared = {
        "model": run.job.model.name,
        "runtime": run.job.runtime,
        "variant": run.job.variant,
        "threads": run.job.threads,
        "machine": run.machine.name,
        "repeat": run.job.repeat,
    }
    for mark in run.marks:
        figures = {name: metric.of(mark) for name, metric in metrics.METRICS.items()}
        yield {**shared, "phase": mark.phase, "outcome": "ok", **figures, "rss_peak_exact": mark.rss_peak_exact}
    if run.outcome.ok:
        peak = metrics.METRICS["rss_peak_bytes"]
        yield {
            **shared,
            "phase": PEAK,
            "outcome": "ok",
            peak.name: metrics.value(run, PEAK, peak),
            "rss_peak_exact": metrics.exact(run, PEAK, peak),
        }
    else:
        yield {**shared, "phase": run.outcome.phase, "outcome": run.outcome.signal or run.outcome.status}


def write_parquet(runs: Iterable[Run], path: Path) -> None:
    """The same as a Parquet file. Raises InputError where pyarrow is missing."""
    try:
        runs_frame(runs).to_parquet(path, index=False)
    except ImportError as error:
        reason = " ".join(str(error).split(". ")[0].split())
        raise InputError(f"Parquet needs pyarrow: pip install 'memprof[parquet]' ({reason})") from None


def timeline_frame(runs: Iterable[Run]) -> pandas.DataFrame:
    """One row a sample of every run; t_ns counts from the begin of the run's first phase."""
    frames = [_timeline(run) for run in runs]
    columns = ["model", "variant", "threads", "machine", "repeat", "phase", "t_ns", "rss_bytes", "file_bytes", "vms_bytes"]
    if not frames:
        return pandas.DataFrame(columns=columns)
    return pandas.concat(frames, ignore_index=True)[columns]


def _timeline(run: Run) -> pandas.DataFrame:
    columns = store.unpack(run.timeline) if run.timeline.samples else store.Columns((), (), (), ())
    begin_ns = run.marks[0].begin_ns if run.marks else (columns.t_ns[0] if columns.t_ns else 0)
    frame = pandas.DataFrame(
        {"t_ns": list(columns.t_ns), "rss_bytes": list(columns.rss), "file_bytes": list(columns.file), "vms_bytes": list(columns.vms)},
        dtype="int64",
    )
    frame["phase"] = ""
    for mark in run.marks:
        frame.loc[(frame["t_ns"] >= mark.begin_ns) & (frame["t_ns"] <= mark.end_ns), "phase"] = mark.phase
    frame["t_ns"] -= begin_ns
    return frame.assign(
        model=run.job.model.name,
        variant=run.job.variant,
        threads=run.job.threads,
        machine=run.machine.name,
        repeat=run.job.repeat,
    )
