"""Logs that other tools have written, as Runs: one file a format, each `knows(text) -> bool` and `read(text, file name) -> [Found]`.

What a log does not say stays absent. Memory that a tool polled becomes rss_peak_bytes marked inexact, a high-water mark that was never reset becomes
hwm_bytes. Times have no clock in common with anything, so the phases of a log follow one another from 0. A log that ends before its format's
own end gives what it holds, and a note says so; one that no format knows is an error. No format's reader raises anything but InputError,
whatever the file holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import InputError, UsageError, os_reason
from ..runs import store
from ..runs.records import SCHEMA, About, Job, Machine, Model, Outcome, Run
from ..runs.store import NOTHING_SEEN
from . import mprof, onert_csv, onert_log, onnxruntime_profile, psrecord, tflite_benchmark
from .found import Found

FORMATS = (onnxruntime_profile, mprof, psrecord, tflite_benchmark, onert_csv, onert_log)
_MOST_BYTES = 1 << 30


def words(text: str) -> tuple[str | None, Path]:
    """`NAME=FILE` or `FILE` as (name, file); a file whose own name holds the sign is taken as it is."""
    name, equals, rest = text.partition("=")
    if equals and name and rest and not Path(text).exists():
        if "/" in name:
            raise UsageError(f"{text!r}: write NAME=FILE, or FILE")
        return name, Path(rest)
    return None, Path(text)


def read(path: Path) -> list[Found]:
    """What a log says. Raises InputError where it cannot be read, is in no known format, or says nothing that could be used."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than 1 GiB: no log of a known tool")
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    for form in FORMATS:
        if form.knows(text):
            try:
                found = [one for one in form.read(text, path.name) if one.marks]
            except RecursionError:
                raise InputError(f"{path} is damaged: it is nested too deeply") from None
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
            if not found:
                raise InputError(f"{path}: {form.TOOL} wrote this, but no figure of a phase is in it")
            return found
    raise InputError(f"{path} is no log of a tool that memprof knows ({', '.join(form.TOOL for form in FORMATS)})")


def runs(files: Iterable[tuple[str | None, Path]], *, name: str | None = None, machine: str | None = None) -> list[Run]:
    """The Runs of some logs. Logs of one model and one variant are repeats of one another.

    name: the model's in place of what the logs say. machine: where they were written. Raises InputError.
    """
    made: list[Run] = []
    counts: dict[tuple[str, str, int | None], int] = {}
    for variant, path in files:
        found = read(path)
        for index, one in enumerate(found, 1):
            apart = f" {index}" if len(found) > 1 else ""
            one = one if one.model else replace(one, model=path.stem)
            run = _run(one, (variant or one.variant or path.stem) + (apart if variant or not one.variant else ""), name, machine)
            store.check(run, str(path))  # a damaged log may say times that no clock has
            key = (run.job.model.name, run.job.variant, run.job.threads)
            counts[key] = counts.get(key, 0) + 1
            made.append(replace(run, job=replace(run.job, repeat=counts[key])))
    return made


def _run(found: Found, variant: str, name: str | None, machine: str | None) -> Run:
    model = Model(name or found.model, found.model_path or found.model, (), found.model_bytes, "")
    job = Job(
        model=model,
        runtime=found.runtime,
        variant=variant,
        repeat=1,
        warmup=found.warmup,
        runs=found.runs,
        knobs=found.knobs,
        threads=found.threads,
        env=found.env,
        cache="asis",
        interval_ns=0,
        iterations_interval_ns=0,
        argv=found.argv or (found.tool,),
    )
    about = About(found.version, "", (f"imported from {found.tool}", *found.notes))
    return Run(
        memprof=SCHEMA,
        job=job,
        machine=_machine(machine or "imported", found.arch),
        started_ns=found.started_ns,
        outcome=Outcome("ok"),
        timeline=found.timeline or NOTHING_SEEN,
        marks=tuple(found.marks),
        about=about,
        values=tuple(found.values),
    )


def _machine(name: str, arch: str) -> Machine:
    """A machine of which a log says next to nothing."""
    return Machine(name, arch, "", "", "", 0, 0, 0, 0, 0, "", 0)


def formats() -> Sequence[str]:
    """The tools whose logs can be read."""
    return [form.TOOL for form in FORMATS]
