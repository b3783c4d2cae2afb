"""How a measurement ended, from the wait status, the marks and the reflexes of the recorder."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

from msgspec import Struct

from ..base import elf_machines
from ..records.types import Status
from .line_phases import LinePhases
from .marks import MarkFold
from .phases import Phases
from .state import FoldState

Outcome = dict[str, Any]  # memprof.records.types.Outcome

_NO_START: Status = "start"


class LaunchFailure(Struct, frozen=True):
    """Why nothing was started. step: as in the recording; head: of a program that the kernel does not start."""

    step: str
    reason: int
    head: bytes
    subject: str

    def outcome(self, state: FoldState) -> Outcome:
        """The outcome of the run."""
        phase = "RUN" if state.header.message.start.attach is not None else "STARTUP"
        return {"status": _NO_START, "phase": phase, "message": self._message(state)}

    def _message(self, state: FoldState) -> str:
        start = state.header.message.start
        if self.step == "cpus":
            named = ",".join(map(str, start.cpus))
            return f"it may not run on exactly the CPUs {named}: one of them is not there, or not allowed to this process"
        if self.step == "gone":
            return f"process {start.attach} has ended, or is one of the kernel's own"
        if self.step == "reused":
            return f"process {start.attach} has ended, and its number is another process's now"
        message = f"{self.subject}: {os.strerror(self.reason)}"
        if self.reason != errno.ENOEXEC:
            return message
        machine = elf_machines.machine(self.head)
        if machine is None:
            return message + " (a script needs #! and its interpreter in its first line)"
        return f"{message} (a program for {elf_machines.name(machine)}; this machine is {state.header.machine.arch})"


class ProgramEnd(Struct):
    """status: the wait status of the program, None if it was not waited for. timed_out: whether its time was over. stopped: whether memprof
    ended it, as all was done. out_of_memory: whether the kernel killed it for lack of memory."""

    status: int | None = None
    timed_out: bool = False
    stopped: bool = False
    out_of_memory: bool | None = False

    @property
    def signal(self) -> int | None:
        """The signal that ended it (wait(2): the low seven bits)."""
        number = (self.status or 0) & 0x7F
        return number or None

    @property
    def code(self) -> int | None:
        """Its exit code."""
        return None if self.signal is not None else (self.status or 0) >> 8 & 0xFF


def judge(state: FoldState, phases: Phases, marks: MarkFold, lines: LinePhases, end: ProgramEnd) -> Outcome:
    """The outcome of a program that was started."""
    code, number = (0, None) if end.stopped else (end.code, end.signal)
    if state.measured != state.root and code is not None and code > 128:
        number = code - 128  # how a shell that wraps it says that a signal ended it
    message = state.header.message
    command = message.start.command
    outcome: Outcome = {"status": "ok"}
    if end.timed_out:
        code = number = None  # the program did not end by itself
        seconds = f"{message.timeout_ns / 1e9:.3f}".rstrip("0").rstrip(".")
        outcome.update(status="timeout", message=f"did not end in time (timeout {seconds} s)")
    elif marks.error is not None and number is None:
        outcome.update(marks.error)
    elif number is not None:
        outcome["status"] = "signal"
    elif code != 0 or not (marks.done or command is not None):  # a user's program does not write "done"
        outcome["status"] = "exit" if code else "lost"
    elif lines.driven and not end.stopped:
        outcome.update(status="error", phase=phases.name, message="it ended before all requests were made")
    if outcome["status"] != "ok":
        outcome.setdefault("phase", phases.name or _next_phase(phases, command is not None and not marks.came))
        outcome.update(exit_code=code, signal=_signal_name(number) if number is not None else None)
        outcome["rss_last_bytes"] = state.rss or None
        outcome["out_of_memory"] = end.out_of_memory if number == signal.SIGKILL else False
    return outcome


def _next_phase(phases: Phases, command: bool) -> str:
    if phases.last:
        return f"after {phases.last}"
    return "RUN" if command else "STARTUP"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
