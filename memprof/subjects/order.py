"""One run to be made: its Job, with all that its start needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from ..base.errors import MemprofError, UsageError
from ..models import inputs
from ..places.place import HERE, Place, RecorderKind
from ..programs.runtimes import Runtime
from ..records.recorder_order import CommandStart, GroupOrder
from ..records.types import EXECUTE, GENERATE, PROMPT, Job, Model
from .drive import Drive
from .suite import MS, Suite

HASH_SEED = "PYTHONHASHSEED"


class Order(Struct, frozen=True):
    """A Job and how its child is started: all that the recorder needs beyond the Job itself.

    build: knobs that act on the model file, which must be converted before the first of its jobs; None if it is loaded unconverted.
    outputs: an .npz file to write the model's outputs to, after the last iteration and outside any phase.
    argv: the command to start in place of the interpreter and memprof's runner. cwd: its working folder, None for memprof's own.
    command: what is to be watched of a program that is not memprof's runner, None for that.
    wrap: the program to start it under, with its arguments: a profiler. interprets: the profiler is itself the interpreter, and takes the path of
    memprof's runner. writers: programs that the profiler starts beside the child, by name (see memprof.heap.record). until: the phase after which
    it is done.
    teardown: let the interpreter end as any program does. grace_ns: how long the child may take to end once it is done
    or was asked to end, 0 for no such limit; at its time limit it is then asked with SIGTERM first.
    group: a control group to make for the child, join and remove; rlimits: by name, in bytes. drop: files beside the
    model's whose page cache is treated like it.
    hold_at: for a job that holds, the RSS in bytes at which it is also held inside a phase, by phase. hold_units: for a command that holds, after
    how much of a phase's first unit of work it is held, by phase, in place of the phases' ends.
    stdin: it reads memprof's standard input, a file from its present position on. error: why it cannot be started, if that is known already.
    traced: a file for the lines of Python code whose objects grew (see runners/tracing.py).
    subject: the suite of this one thing, with which every question can ask about it.
    place: where it is measured. max_celsius: the machine must have cooled down to this first.
    recorder: which of the recorders measures it. drive: the load for a command that is a server. report_ns: how often the recorder tells how
    far the run has come, 0 for not before its end.
    """

    job: Job
    runtime: Runtime
    python: str
    env: Mapping[str, str | None]
    build: Mapping[str, str] | None
    outputs: str | None = None
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    command: CommandStart | None = None
    wrap: tuple[str, ...] = ()
    interprets: bool = False
    writers: Sequence[str] = ()
    until: str | None = None
    teardown: bool = False
    grace_ns: int = 0
    group: GroupOrder | None = None
    rlimits: Mapping[str, int] | None = None
    drop: Sequence[str] = ()
    hold_at: Mapping[str, int] = field(default_factory=dict)
    hold_units: Mapping[str, Sequence[int]] = field(default_factory=dict)
    stdin: bool = False
    error: MemprofError | None = None
    subject: Suite = field(default_factory=Suite)
    place: Place = HERE
    max_celsius: float | None = None
    recorder: RecorderKind = "python"
    report_ns: int = 0
    drive: Drive | None = None
    traced: str | None = None

    @property
    def settings_env(self) -> dict[str, str]:
        """The variables that a program beside this one needs for the same settings: those of knobs, of the runtime and of the user, and of a
        deterministic run the one by which malloc opens a single arena. Those by which memprof finds what is in an environment of its own are none of
        them, nor is the seed of the interpreter's hashes."""
        command = self.subject.only.command if self.argv is not None else None
        own = {HASH_SEED, *(command.surroundings if command is not None else ())}
        return {name: value for name, value in self.env.items() if value is not None and (name not in own or name in self.job.env)}


def asked(suite: Suite, model: Model, runtime: str, variant: str) -> Job:
    """A Job as far as its suite says it, the same for a runtime and for a command."""
    return Job(
        model=model,
        runtime=runtime,
        variant=variant,
        repeat=0,
        warmup=0,
        runs=0,
        cache=suite.cache or "warm",
        deterministic=bool(suite.deterministic),
        timeout_ns=suite.timeout_ns or 0,
        cpus=suite.cpus,
        no_swap=bool(suite.no_swap),
        interval_ns=suite.interval_ns or MS,
        iterations_interval_ns=suite.interval_ns or MS,
        version=suite.version,
    )


def shapes_that_run(job: Job) -> dict[str, tuple[int, ...]] | None:
    """The shape of each input of the model as it runs; open dimensions that nobody gave are 1. None if the file of inputs cannot be read."""
    return inputs.shapes_that_run(Path(job.model.path), job.shapes, job.inputs)


def assumed_words(job: Job) -> str:
    """The model's name, and which of its open dimensions run as 1; empty where there are none."""
    remark = inputs.remark(job.assumed, Path(job.model.path))
    return f"{job.model.name}: {remark}" if remark else ""


def intervals(job: Job) -> dict[str, int]:
    """Polling periods by phase, "" for all that are not named."""
    return {"": job.interval_ns, **dict.fromkeys((EXECUTE, PROMPT, GENERATE), job.iterations_interval_ns)}


def at_least(value: int | None, least: int, what: str) -> int:
    if value is None or value < least:
        raise UsageError(f"{what} {value}: {least} is the least")
    return value
