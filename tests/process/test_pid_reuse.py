"""A process's number that another process gets while memprof looks at the first: no figure of the second is shown as the first's."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.recorder_runs import Silent, wait_for

from memprof.base import processes
from memprof.base.errors import MeasurementError
from memprof.campaign import attach
from memprof.places.place import RunningProcess
from memprof.records.types import Run

_CLONE3 = 435  # on every architecture (linux/sched.h: struct clone_args, whose set_tid says the number)


def another(pid: int, *words: str) -> int:
    """A process of exactly this number, which is free. Skips the test where nobody may choose one."""
    number = (ctypes.c_int * 1)(pid)
    fields = (ctypes.c_uint64 * 11)(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(number), 1, 0)
    # PyDLL keeps the interpreter's lock, which nobody in the child would give back.
    call = ctypes.PyDLL(None, use_errno=True).syscall
    made = call(_CLONE3, ctypes.byref(fields), ctypes.c_size_t(ctypes.sizeof(fields)))
    if made == 0:
        os.execvp(words[0], words)
    if made < 0:
        reason = ctypes.get_errno()
        pytest.skip(f"no process of a chosen number can be made here: {os.strerror(reason)}")
    assert made == pid
    return made


class Numbered:
    """A process whose number is given to a second one, with more memory, when a test says so."""

    def __init__(self) -> None:
        self._first = subprocess.Popen(["sleep", "600"])
        self.pid, self.reused = self._first.pid, False
        begun = processes.started(self.pid)
        wait_for(lambda: psutil.Process(self.pid).status() == psutil.STATUS_SLEEPING)
        wait_for(lambda: _ticks() > begun + 2)  # the second starts at another tick

    def reuse(self) -> None:
        """The first ends, and the second is there when it has its memory."""
        self._first.kill()
        self._first.wait()
        another(self.pid, sys.executable, "-c", "kept = bytearray(64 << 20); import time; time.sleep(600)")
        self.reused = True
        wait_for(lambda: psutil.Process(self.pid).memory_info().rss > 64 << 20)

    def end(self) -> None:
        """End whichever there is."""
        self._first.kill()
        self._first.wait()
        if self.reused:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _ticks() -> int:
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return int(uptime * os.sysconf("SC_CLK_TCK"))


@pytest.fixture
def numbered() -> Iterator[Numbered]:
    made = Numbered()
    yield made
    made.end()


def looked(process: RunningProcess, seconds: float = 0.2, began: Callable[[], None] = lambda: None) -> Run:
    """The Run of looking at a process that was found; began: called when it has been seen."""

    class Seen(Silent):
        def live(self, phase: str, rss_bytes: int) -> None:
            nonlocal began
            began()
            began = lambda: None  # noqa: E731

    job = attach.job(process, int(seconds * 1e9), int(0.3 * 1e9), None)
    (run,) = attach.measure(job, process, Seen(), lambda line: None)
    return run


def test_pid_reused_before_look_refused(numbered):
    process = attach.running(numbered.pid)
    assert looked(process).outcome.ok
    numbered.reuse()
    with pytest.raises(MeasurementError, match=rf"^process {numbered.pid} has ended, and its number is another process's now$"):
        looked(process)


def test_pid_reused_at_end_without_figures(recorder, numbered):
    run = looked(attach.running(numbered.pid), seconds=600, began=numbered.reuse)

    (mark,) = run.marks
    assert run.outcome.ok and numbered.reused
    assert mark.rss_end_bytes is None and mark.rss_peak_bytes < 64 << 20
    assert run.warnings == ("the process ended while it was polled",)
