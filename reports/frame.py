"""Runs as pandas frames: bytes and nanoseconds, absent values as NA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy
import pandas

from memprof.base.errors import InputError
from memprof.records import metrics, summary
from memprof.records.types import Run

from . import run_rows
from .columns import Array, ColumnArrays, columns, zero_ns
from .soundness import sound


def runs_frame(runs: Iterable[Run]) -> pandas.DataFrame:
    """The rows of run_rows.py, one per run and phase, with all of its columns.

    rss_peak_at_least: pages were swapped out meanwhile, which are in no resident set; such a peak is not exact.

    outcome is `ok` in phases that ended well, else the run's status or the name of the signal that ended it. Bytes, nanoseconds
    (rounded) and counts are whole numbers. knobs and shapes: as they are written on the command line, with commas between.
    """
    runs = list(runs)
    sound(runs)
    frame = pandas.DataFrame([row for run in runs for row in run_rows.rows(run)], columns=list(run_rows.COLUMNS))
    numbers = dict.fromkeys(["threads", *metrics.METRICS, "rss_peak_high_bytes"], "Int64")
    numbers.update({name: "Float64" if name.endswith("_celsius") else "Int64" for name in run_rows.CONDITIONS})
    return frame.astype({**numbers, **dict.fromkeys(run_rows.KNOWN, "boolean")})


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
    lengths = list(map(len, timelines))
    words = {
        "model": [run.job.model.name for run in runs],
        "variant": [run.job.heading for run in runs],
        "machine": [run.machine.name for run in runs],
    }
    frame = pandas.DataFrame(
        {name: pandas.Categorical(of_runs, list(dict.fromkeys(of_runs))).repeat(lengths) for name, of_runs in words.items()}
    )
    frame["threads"] = pandas.array([run.job.threads for run in runs], dtype="Int64").repeat(lengths)
    frame["repeat"] = numpy.repeat([run.job.repeat for run in runs], lengths)
    frame["phase"] = _phases(runs, timelines)
    frame["t_ns"] = _joined([rows.t_ns - zero_ns(run, rows) for run, rows in zip(runs, timelines, strict=True)])
    for name in ("rss", "file", "vms"):
        frame[f"{name}_bytes"] = _joined([getattr(rows, name) for rows in timelines])
    return frame


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
