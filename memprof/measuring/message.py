"""The line that a probe reads from its standard input: its one form, its one encoder and its one decoder.

The probe itself imports nothing of this. The docstring of memprof/probe/__main__.py has the meaning of each field, and a test holds the probe's
reader to the fields here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ..runs.records import Cache, Job


@dataclass(frozen=True)
class Start:
    """How the child is started: the file and its words, its environment (None removes a variable), folder and standard input.

    stdin: text for the child to read; input: the descriptor that it reads from instead. grace_ns: how long it may take to end, 0 for no limit.
    group: a control group to make, {"path", "settings"}; rlimits: in bytes by name. writers: see heap.record. command: see probe.command, None
    for memprof's own side. attach: the process to look at, if nothing is started; attach_started: when it started (proc_pid_stat(5), 22), None if
    unknown. cpus: the numbers of the CPUs that it may run on, none for all.
    """

    argv: Sequence[str] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    cwd: str | None = None
    stdin: str = ""
    input: int | None = None
    deterministic: bool = False
    grace_ns: int = 0
    group: Mapping[str, object] | None = None
    rlimits: Mapping[str, int] | None = None
    writers: Sequence[str] | None = None
    command: Mapping[str, object] | None = None
    attach: int | None = None
    attach_started: int | None = None
    cpus: Sequence[int] = ()


@dataclass(frozen=True)
class Hold:
    """How long the child may be held in nanoseconds, and where it is held inside a phase, by phase: the RSS in bytes, and how much of the
    phase's first unit of work, which needs a command and the probe in Python."""

    limit_ns: int
    at: Mapping[str, int]
    units: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """One measurement. intervals: polling periods in nanoseconds by phase, "" for all others. files: whose page cache is treated as `cache` says;
    cache_drop: drop it first. silence_ns: the probe ends the child if no line came for so long, 0 for never.
    report_ns: it tells how far the Run has come each time so much has passed, 0 for never."""

    job: Job
    start: Start
    timeout_ns: int
    intervals: Mapping[str, int]
    files: Sequence[str] = ()
    cache: Cache = "asis"
    cache_drop: bool = False
    hold: Hold | None = None
    silence_ns: int = 0
    report_ns: int = 0


_decoder = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """The line, its end included."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line. Raises msgspec.ValidationError for a field of another type."""
    return _decoder.decode(line)
