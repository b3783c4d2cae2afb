"""A Place, and `here`: put a file there, run a program with its input and output, end it, tell facts.

The rest of memprof asks a Place, and does not know which it has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import psutil
from msgspec import Struct

from ..base import processes
from ..base.errors import InputError, UsageError, os_reason
from ..programs import commands
from ..programs.commands import Command
from ..programs.runtimes import RuntimeHost, ThisMachine
from ..records.types import Machine, Model, ModelFile
from .machine import this_machine

RecorderKind = Literal["python", "c"]

HIDDEN = ", or hidepid of /proc hides it from this user"  # behind the words that there is no such process
TEMPERATURES = "/sys/class/thermal/thermal_zone*/temp"
FREQUENCIES = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"


class RunningProcess(Struct, frozen=True):
    """A process that runs: its name, its words, and its program if that may be read.

    started: when it started, in clock ticks since the machine did, which distinguishes it from a later process of the same number; None if unknown.
    """

    pid: int
    started: int | None
    name: str
    words: tuple[str, ...]
    program: ModelFile | None


class MachineState(Struct, frozen=True):
    """The hottest sensor in degrees Celsius, and the clock of the fastest CPU; None if the kernel does not tell."""

    celsius: float | None
    hertz: int | None


class Started(Protocol):
    """A program that a place started, as a Popen: its outputs have fileno, read1 and read. returncode: None as long as it is not known."""

    @property
    def stdin(self) -> IO[bytes] | None: ...

    @property
    def stdout(self) -> Any: ...

    @property
    def stderr(self) -> Any: ...

    @property
    def returncode(self) -> int | None: ...


class Place(RuntimeHost, Protocol):
    """Where a recorder runs.

    python: the interpreter of the recorder, None if there is none. cpus: how many a program may use there. beat_ns:
    how often a recorder there hears from memprof, 0 for never. inherits: whether a program there can inherit descriptors of memprof's. beside:
    whether memprof itself may look at the processes there.
    """

    python: str | None
    beat_ns: int
    inherits: bool
    beside: bool

    @property
    def recorder(self) -> RecorderKind:
        """The recorder that measures unless the user says otherwise: Python's, if that can be had."""

    @property
    def cpus(self) -> int: ...

    def only_here(self, subject: str) -> None:
        """Raises UsageError if the place is another machine; subject: who needs this one, as the begin of a sentence."""

    def executable(self, path: str) -> str:
        """As `file`, for a program: it can be started there."""

    def sources(self, archive: Path) -> str:
        """A path there from which Python imports the sources in this zip file. Raises InputError."""

    def model(self, model: Model) -> str:
        """The path there of a model, whose files are sent if they were not yet. Raises InputError."""

    def model_files(self, model: Model) -> list[str]:
        """The paths there of all files of a model, as `model`."""

    def program(self, command: Command, model: Model) -> tuple[tuple[str, ...], ModelFile]:
        """The words that start a command there, and its program. Raises InputError if there is no such program.

        model: the model of its row. It is sent if the command names it by a relative path, and so is any other file.
        """

    def words_here(self, command: Command) -> Command:
        """The command without the words that name files there."""

    def folder_of(self, command: Command) -> str | None:
        """The folder there that a command runs in, None for the place's own. Raises InputError if there is none of that name."""

    def running(self, pid: int) -> RunningProcess:
        """A process there. Raises InputError if there is none of this number, or if it has no memory to look at."""

    def result(self, path: str) -> str:
        """The path there to write a file to that `bring` then brings to this path here."""

    def bring(self, path: str) -> None:
        """Bring the file of `result` here, if it was written."""

    def start(self, words: Sequence[str], descriptors: Sequence[int] = ()) -> Started:
        """Start a program there, its input and output as pipes; a program here inherits the descriptors. Raises OSError and InputError."""

    def lines(self, program: Started) -> Iterable[bytes]:
        """The lines that a program of `start` writes, as they come, without their ends; a last one that was cut off is left out. Meanwhile it hears
        from memprof at the beat."""

    def end(self, program: Started) -> None:
        """End a program that `start` gave, if it has not ended yet.

        At the end of its input a recorder ends its tree. Its output is closed too, or a line that nobody reads would hold it up.
        """

    def broken(self, program: Started) -> bool:
        """Whether the way to a program that has ended broke, and not the program."""

    def machine(self) -> Machine:
        """Facts about the place's machine."""

    def busy(self) -> tuple[float, int]:
        """The share of its CPUs that is busy, in percent, over a moment, and the memory that is free, in bytes."""

    def weather(self) -> MachineState:
        """Its temperature and clock now. Raises InputError."""

    def owner(self) -> str:
        """Who makes control groups there, for their names: BOOT-PID-STARTED, a process there that ends when memprof lets go. Raises InputError."""


class Here(ThisMachine):
    """This machine."""

    python: str | None = sys.executable
    beat_ns = 0
    inherits = True
    beside = True
    recorder: RecorderKind = "python"

    @property
    def cpus(self) -> int:
        return len(os.sched_getaffinity(0))

    def only_here(self, subject: str) -> None:
        pass

    def executable(self, path: str) -> str:
        return path

    def sources(self, archive: Path) -> str:
        return str(archive)

    def model(self, model: Model) -> str:
        return model.path

    def model_files(self, model: Model) -> list[str]:
        return [file.path for file in model.files]

    def program(self, command: Command, model: Model) -> tuple[tuple[str, ...], ModelFile]:
        path = commands.program(command)
        return commands.argv(command, path), commands.program_file(path)

    def words_here(self, command: Command) -> Command:
        return command

    def folder_of(self, command: Command) -> str | None:
        return os.path.abspath(command.cwd) if command.cwd else None

    def running(self, pid: int) -> RunningProcess:
        if not processes.is_seen(pid):
            perhaps = HIDDEN if processes.may_be_hidden() else ""
            raise InputError(f"there is no process {pid}{perhaps}")
        started = processes.started(pid)  # first: what is read afterwards may be a later process's, and then the recorder reports it
        name = processes.name(pid)
        if not processes.has_memory(pid):
            raise InputError(f"process {pid} ({name}) has ended, or is one of the kernel's own: it has no memory to look at")
        try:
            words = split_words(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError as error:
            raise InputError(f"process {pid}: {os_reason(error)}") from None
        program = None
        with suppress(OSError, InputError):  # another user's program, or a file that was deleted since
            program = commands.running_program(pid)
        return RunningProcess(pid, started, name, words, program)

    def result(self, path: str) -> str:
        return path

    def bring(self, path: str) -> None:
        pass

    def start(self, words: Sequence[str], descriptors: Sequence[int] = ()) -> Started:
        return piped(words, descriptors)

    def lines(self, program: Started) -> Iterable[bytes]:
        return (line[:-1] for line in program.stdout if line.endswith(b"\n"))

    def end(self, program: Started) -> None:
        assert isinstance(program, subprocess.Popen)
        close(program)
        program.wait()

    def broken(self, program: Started) -> bool:
        return False

    def machine(self) -> Machine:
        return this_machine()

    def busy(self) -> tuple[float, int]:
        return psutil.cpu_percent(interval=0.3), psutil.virtual_memory().available

    def weather(self) -> MachineState:
        texts = []
        for pattern in (TEMPERATURES, FREQUENCIES):
            texts.append("")
            for path in Path("/").glob(pattern.lstrip("/")):
                with suppress(OSError):  # a sensor that is off
                    texts[-1] += path.read_text()
        return weather(*texts)

    def owner(self) -> str:
        pid = os.getpid()
        return f"{processes.boot()}-{pid}-{processes.started(pid)}"


HERE = Here()


def piped(words: Sequence[str], descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """A process of a session of its own, so that a Ctrl-C does not reach it."""
    return subprocess.Popen(
        list(words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=tuple(descriptors),
    )


def close(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a process."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        with suppress(BrokenPipeError):
            pipe.close()  # type: ignore[union-attr]


def split_words(cmdline: bytes) -> tuple[str, ...]:
    """The words of a process (proc_pid_cmdline(5)): each ends with a zero."""
    return tuple(cmdline.decode("utf-8", "backslashreplace").rstrip("\0").split("\0"))


def weather(temperatures: str, frequencies: str) -> MachineState:
    """The highest of temperatures in thousandths of a degree and of frequencies in kHz, a line each.

    Documentation/driver-api/thermal/sysfs-api.rst, Documentation/admin-guide/pm/cpufreq.rst. A sensor that is off says 0, or something below.
    """
    celsius, hertz = (max((int(word) for word in text.split() if word.isdigit()), default=0) for text in (temperatures, frequencies))
    return MachineState(celsius / 1000 or None, hertz * 1000 or None)


def refuse_elsewhere(name: str, subject: str) -> UsageError:
    """The error for something that needs this machine. subject: who needs it, as the begin of a sentence."""
    return UsageError(f"{subject} works on this machine only, not on {name}")
