"""What memprof makes of a run with either recorder, where a test of the fold or of the recorder alone would not show it."""

from __future__ import annotations

import fcntl
import importlib.util
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.native_programs import folded, program, ran_until_seen
from support.recorder_runs import MIB, wait_for, with_patience

from memprof.base.errors import InputError
from memprof.places.machine import this_machine
from memprof.places.recorder_start import recorder_command
from memprof.programs import recorder_build
from memprof.recording import order
from memprof.records import store
from memprof.records.recorder_order import CommandStart, Message, Start
from memprof.records.types import COMMAND, Job, Model, Run
from memprof.reports.tables import table

KINDS = ("python", "c")


def job() -> Job:
    return Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)


# -- a program that no poll saw


def unseen(kind: str, path: str, folder: Path) -> Run:
    """The Run of a program that began and ended while its recorder stood still.

    A lease on its file (fcntl(2), F_SETLEASE) holds it at its exec, where the recorder waits for it; a signal then stops the recorder.
    """
    copy = str(shutil.copy(path, folder / "program"))  # nobody else may have the file open
    message = Message(job(), Start((copy,), command=CommandStart()), 600 * 10**9, {"": 10**6})
    words = recorder_command(kind)
    with (
        open(copy, "rb") as file,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as recorder,
    ):
        assert recorder.stdin is not None and recorder.stdout is not None
        try:
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # which does nothing; SIGIO ends a process
            try:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError as error:
                pytest.skip(f"this file system has no leases: {error}")
            recorder.stdin.write(order.lines(message, this_machine()))
            recorder.stdin.flush()
            wait_for(lambda: fcntl.fcntl(file, fcntl.F_GETLEASE) != fcntl.F_WRLCK)
            recorder.send_signal(signal.SIGSTOP)
            wait_for(lambda: psutil.Process(recorder.pid).status() == psutil.STATUS_STOPPED)
            (child,) = psutil.Process(recorder.pid).children()
            file.close()
            wait_for(lambda: child.status() == psutil.STATUS_ZOMBIE)
            recorder.send_signal(signal.SIGCONT)
            answer = recorder.stdout.read()
        finally:
            recorder.kill()
    return folded(message, answer)


@pytest.mark.parametrize("kind", KINDS)
def test_large_program_that_no_poll_saw(kind, tmp_path):
    run = unseen(kind, program("hold(64 * MIB);"), tmp_path)

    (mark,) = run.marks
    assert (mark.phase, mark.rss_peak_exact, mark.rss_peak_high_bytes) == ("RUN", True, None)
    assert 64 * MIB <= mark.rss_peak_bytes < 68 * MIB
    assert run.outcome.ok and run.warnings == ()
    assert "not exact" not in table.render([run])


@pytest.mark.parametrize("kind", KINDS)
def test_small_program_that_no_poll_saw(kind, tmp_path):
    """Of the Python recorder's child it tells the copy of the recorder before the exec, which is larger. The recorder in C is smaller than any."""
    run = unseen(kind, program(""), tmp_path)

    if kind == "python":
        assert run.marks == ()
        (said,) = run.warnings
        bound = re.fullmatch(r"it ended before it could be looked at, and had at most (\d+\.\d) MiB resident", said)
        assert bound and 1 < float(bound[1]) < 30
    else:
        (mark,) = run.marks
        assert mark.rss_peak_exact and mark.rss_peak_bytes < 4 * MIB


def test_small_program_has_a_bound(tmp_path):
    run = ran_until_seen(0.1, tmp_path / "seen", program("until(words[1]);"))

    (mark,) = run.marks
    assert not mark.rss_peak_exact and mark.rss_peak_bytes < 4 * MIB < mark.rss_peak_high_bytes < 30 * MIB
    text = table.render([run])
    more = mark.rss_peak_high_bytes / mark.rss_peak_bytes - 1
    assert f"the peak is what polling saw of a program smaller than memprof's recorder, and up to {more:.0%} more is possible" in text


@contextmanager
def waiting(kind: str) -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """A recorder whose child, a shell, has started another process; and these two."""
    message = Message(job(), Start(("sh", "-c", "sleep 600 & sleep 600"), command=CommandStart()), 600 * 10**9, {"": 10**6})
    with subprocess.Popen(recorder_command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as recorder:
        assert recorder.stdin is not None
        recorder.stdin.write(order.lines(message, this_machine()))
        recorder.stdin.flush()
        below = psutil.Process(recorder.pid)
        wait_for(lambda: len(below.children(recursive=True)) == 3)
        yield recorder, below.children(recursive=True)


# -- the program


def test_build_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(recorder_build.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(
        InputError, match="the recorder for sparc64 is compiled on first use, and there is no compiler for it: pip install ziglang"
    ):
        recorder_build.built("sparc64")


ARCHITECTURES = {"x86_64": None, "aarch64": "qemu-aarch64", "armv7l": "qemu-arm", "riscv64": "qemu-riscv64"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_recorder_on_each_architecture(architecture):
    qemu, here = ARCHITECTURES[architecture], architecture == platform.machine()
    emulator = None if here else next((path for name in (f"{qemu}-static", qemu) if (path := shutil.which(name))), None)
    if not here and emulator is None:
        pytest.skip(f"no {qemu}")
    try:
        program = recorder_build.built(architecture)
    except InputError as error:
        pytest.skip(str(error))

    def attempt(limit_ns: int) -> Run:
        script = f"echo load took 12 ms; sleep {limit_ns / 4e9}; echo end; exit 3"
        start = Start(("sh", "-c", script), command=CommandStart((("LOAD", r"took \d+"), ("REST", "^end$"))))
        message = Message(job(), start, 600 * 10**9, {"": 10**6})
        with subprocess.Popen([*([emulator] if emulator else []), str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as recorder:
            assert recorder.stdin is not None and recorder.stdout is not None
            recorder.stdin.write(order.lines(message, this_machine()))
            recorder.stdin.flush()
            return folded(message, recorder.stdout.read())

    run = with_patience(attempt, lambda run: run.mark("REST").rss_peak_bytes > 100_000)

    assert (run.outcome.status, run.outcome.exit_code, run.outcome.message) == ("exit", 3, "end")
    assert [mark.phase for mark in run.marks] == ["LOAD", "REST"]
    assert run.mark("REST").rss_peak_bytes > 100_000
    assert len(store.unpack(run.timeline).t_ns) > 0
    if importlib.util.find_spec("ziglang"):  # glibc's static programs are larger
        assert program.stat().st_size <= 120_000


def test_recorder_in_c_is_small():
    with waiting("c") as (recorder, _):
        wait_for(lambda: psutil.Process(recorder.pid).num_ctx_switches().voluntary > 300)  # one a poll

        assert psutil.Process(recorder.pid).memory_info().rss <= MIB
