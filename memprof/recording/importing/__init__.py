"""Logs that other tools have written, as Runs: one file per format, each `knows(text) -> bool` and `read(text, file name) -> [Measurement]`.

Figures that a log does not have stay absent. Memory that a tool polled becomes rss_peak_bytes marked inexact, a high-water mark that was never reset
becomes hwm_bytes. A log's clock is its tool's, so the phases of a log follow one another from 0. A log that is cut off is read as far as it goes,
with a note. A log that no format knows is an error. No format's reader raises anything but InputError, whatever the file holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from ...base import file_kinds
from ...base.errors import InputError, UsageError, os_reason
from ...base.files import content
from ...records import store
from ...records.store import NOTHING_SEEN
from ...records.types import SCHEMA, About, Job, Machine, Model, Outcome, Run
from . import (
    dumpsys_meminfo,
    llamacpp_breakdown,
    memprof_recording,
    mprof,
    onert_csv,
    onert_log,
    onnxruntime_profile,
    proc_files,
    psrecord,
    tflite_benchmark,
)
from .measurement import Measurement

FORMATS = (
    onnxruntime_profile,
    mprof,
    psrecord,
    tflite_benchmark,
    dumpsys_meminfo,
    llamacpp_breakdown,
    proc_files,
    onert_csv,
    onert_log,
)
_MOST_BYTES = 1 << 30


def words(text: str) -> tuple[str | None, Path]:
    """`NAME=FILE` or `FILE` as (name, file). A file that exists may hold the sign in its name."""
    name, equals, file = text.partition("=")
    if equals and name and file and not Path(text).exists():
        if "/" in name:
            raise UsageError(f"{text!r}: write NAME=FILE, or FILE")
        return name, Path(file)
    return None, Path(text)


def read(path: Path) -> list[Measurement]:
    """The measurements in a log. Raises InputError if it cannot be read, is in no known format, or has no figure of a phase."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than 1 GiB: no log of a known tool")
        text = content(path).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    for form in FORMATS:
        if form.knows(text):
            try:
                measurements = [measurement for measurement in form.read(text, path.name) if measurement.marks]
            except RecursionError:
                raise InputError(f"{path} is damaged: it is nested too deeply") from None
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
            if not measurements:
                raise InputError(f"{path}: {form.TOOL} wrote this, but no figure of a phase is in it")
            return measurements
    kind = file_kinds.kind_of(path)
    what = f"{path} is {kind}, and not" if kind else f"{path} is not"
    hint = "; `memprof heap show` is for heap profiles" if kind in file_kinds.HEAP_KINDS else ""
    raise InputError(f"{what} a log of a tool that memprof knows ({', '.join(form.TOOL for form in FORMATS)}){hint}")


def runs(files: Iterable[tuple[str | None, Path]], *, name: str | None = None, machine: str | None = None) -> list[Run]:
    """The Runs of some logs. Logs of one model and one variant are repeats of one another.

    files: (variant or None, log). name: the model's in place of that in the logs. machine: where they were written. Raises InputError.
    """
    numbered: list[Run] = []
    counts: dict[tuple[str, str, int | None], int] = {}
    for variant, path in files:
        recorded = memprof_recording.read(path)
        if recorded is not None:
            numbered.append(_renamed(recorded, variant, name, machine))
            continue
        measurements = read(path)
        for index, measurement in enumerate(measurements, 1):
            apart = f" {measurement.variant or index}" if len(measurements) > 1 else ""
            label = variant + apart if variant else measurement.variant or path.stem + apart
            run = _run(measurement if measurement.model else replace(measurement, model=path.stem), label, name, machine)
            store.check(run, str(path))  # a damaged log may say times that no clock has
            key = (run.job.model.name, run.job.variant, run.job.threads)
            counts[key] = counts.get(key, 0) + 1
            numbered.append(replace(run, job=replace(run.job, repeat=counts[key])))
    return numbered


def _renamed(run: Run, variant: str | None, name: str | None, machine: str | None) -> Run:
    job = replace(run.job, variant=variant or run.job.variant, model=replace(run.job.model, name=name or run.job.model.name))
    return replace(run, job=job, machine=replace(run.machine, name=machine or run.machine.name))


def _run(measurement: Measurement, variant: str, name: str | None, machine: str | None) -> Run:
    model = Model(name or measurement.model, measurement.model_path or measurement.model, (), measurement.model_bytes, "")
    job = Job(
        model=model,
        runtime=measurement.runtime,
        variant=variant,
        repeat=1,
        warmup=measurement.warmup,
        runs=measurement.runs,
        knobs=measurement.knobs,
        threads=measurement.threads,
        env=measurement.env,
        cache="asis",
        interval_ns=0,
        iterations_interval_ns=0,
        argv=measurement.argv or (measurement.tool,),
    )
    about = About(measurement.version, "", (f"imported from {measurement.tool}", *measurement.notes))
    return Run(
        memprof=SCHEMA,
        job=job,
        machine=_machine(machine or "imported", measurement.arch),
        started_ns=measurement.started_ns,
        outcome=Outcome("ok"),
        timeline=measurement.timeline or NOTHING_SEEN,
        marks=tuple(measurement.marks),
        about=about,
        values=tuple(measurement.values),
    )


def _machine(name: str, arch: str) -> Machine:
    """A machine of which a log says next to nothing."""
    return Machine(name, arch, "", "", "", 0, 0, 0, 0, 0, "", 0)
