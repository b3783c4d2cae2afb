"""A process that already runs, or all processes of a control group, as a job and its Run, for `memprof attach`.

The process is not touched: the recorder only reads /proc (see memprof.recorder.attach). A Ctrl-C ends the looking and leaves a Run of what was seen.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError, MeasurementError, UsageError
from ..places import kernel_log
from ..places.containers import LookedAtGroup
from ..places.place import HERE, Place, RecorderKind, RunningProcess, Started
from ..records import store
from ..records.recorder_order import CommandStart, Message, Start
from ..records.types import COMMAND, Job, Model, Run
from .progress import Keep, Progress
from .recorder_client import ask

_LEAST_NS = 100_000


def running(pid: int, place: Place = HERE) -> RunningProcess:
    """The process of a number. Raises InputError if there is no such process, or if it has no memory to look at."""
    if pid <= 0:
        raise InputError(f"there is no process {pid}")
    return place.running(pid)


def first_of(group: LookedAtGroup) -> RunningProcess:
    """The oldest process of a group that has memory. Raises InputError."""
    for pid in group.pids[:-1]:
        with suppress(InputError):
            return running(pid)
    return running(group.pids[-1])


def log_path(path: str, pid: int, place: Place) -> str:
    """Where a log is that the user names, of a process that may have another root, as one in a container has."""
    if not place.beside:
        return path
    inside = f"/proc/{pid}/root{os.path.abspath(path)}"
    return inside if not os.path.exists(path) and os.path.exists(inside) else os.path.abspath(path)


def job(process: RunningProcess, duration_ns: int, interval_ns: int, name: str | None) -> Job:
    """The job of looking at a process. Raises UsageError."""
    if duration_ns <= 0 or interval_ns < _LEAST_NS:
        raise UsageError("--for must be longer than 0, and --interval at least 0.1ms")
    program = process.program
    return Job(
        model=Model(name or process.name, program.path if program else process.name, (), 0, program.sha256 if program else ""),
        runtime=COMMAND,
        variant=name or process.name,
        repeat=1,
        warmup=0,
        runs=0,
        cache="asis",
        timeout_ns=duration_ns,
        interval_ns=interval_ns,
        iterations_interval_ns=interval_ns,
        argv=process.words,
        program=program,
    )


class WorkLog(Struct, frozen=True):
    """Where a process writes a line after each unit of its work, on the machine that it runs on. regexes: what a unit's line matches, by unit."""

    path: str
    regexes: Mapping[str, str]


def measure(
    job: Job,
    process: RunningProcess,
    progress: Progress,
    keep: Keep,
    recorder: RecorderKind = "python",
    place: Place = HERE,
    log: WorkLog | None = None,
    recordings: Path | None = None,
    group: LookedAtGroup | None = None,
) -> Iterator[Run]:
    """Look at the process for as long as the job says, or until Ctrl-C or SIGTERM; yields its one Run.

    group: the one whose processes are all looked at, and of which this is the first.
    Raises MeasurementError if it ended before it could be looked at, or if the log cannot be read.
    """
    progress.started(job, 1, 1)
    command = CommandStart(tuple(log.regexes.items()), log=log.path) if log is not None else None
    start = Start(attach=process.pid, attach_started=process.started, watch=group.folders if group is not None else (), command=command)
    message = Message(job, start, job.timeout_ns, {"": job.interval_ns})
    run, line = ask(job, message, "", progress.live, began=_end_on_signal, place=place, recorder=recorder, recordings=recordings)
    if run.outcome.status == "start":
        raise MeasurementError(run.outcome.message or f"process {process.pid} has ended")
    if group is not None and run.charged is not None and run.charged.oom_kills:
        said = kernel_log.kills(group.folders[0].removeprefix(group.folders[-1]))
        run = replace(run, charged=replace(run.charged, kernel_log=said and said[-run.charged.oom_kills :]))
        line = store.encode(run)
    try:
        keep(line)
    finally:
        progress.finished(run)
        yield run


def _end_on_signal(recorder: Started) -> None:
    """From here on a Ctrl-C asks the recorder for its samples so far."""

    def end(*_: object) -> None:
        assert recorder.stdin is not None
        with suppress(OSError, ValueError):
            os.write(recorder.stdin.fileno(), b"end 0\n")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
