"""memprof itself ended, politely or not: what was measured stays, the children end, and what escapes is ended by the next memprof."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import psutil
import pytest
from support.recorder_runs import (
    HANG,
    PYTHON,
    QUICK,
    all_gone,
    children,
    measured,
    processes,
    recorders,
    runs_in,
    runtime_file,
    script,
    started,
    wait_for,
)

from memprof.doors import cli
from memprof.records import store

INTERRUPTED = 130

pytestmark = pytest.mark.usefixtures("nothing_left")

ONCE = ["-r", "synthetic", "--repeats", "1", "-o", "runs.jsonl"]
NEXT = ["-r", "synthetic", "--repeats", "1", "-o", "next.jsonl"]


@pytest.fixture
def folder(tmp_path, scenario):
    scenario("quick.json", **QUICK)
    scenario("hang.json", **HANG)
    scenario("forks.json", load=[{"fork": 2, "for_s": 600}, *HANG["load"]])
    return tmp_path


# Becomes memprof, once the lines before it have changed the process.
EXEC = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'memprof'] + sys.argv[1:])"

INTERRUPTED_AFTER_ONE = "memprof: interrupted: 1 of 2 runs are in runs.jsonl; the same command with --append goes on"


def lines_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_keeps_runs_and_table(folder, number):
    with started(folder, "run", "quick.json", "forks.json", *ONCE) as process:
        wait_for(lambda: lines_of(folder / "runs.jsonl") == 1 and len(children()) == 3)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=120)

    assert process.returncode == INTERRUPTED
    assert [run["job"]["model"]["name"] for run in runs_in(folder / "runs.jsonl")] == ["quick.json"]
    assert out.startswith("quick.json, ")
    assert err.splitlines()[-2:] == ["memprof: runs.jsonl holds the runs", INTERRUPTED_AFTER_ONE]
    assert "Traceback" not in err
    assert all_gone()


def test_interruption_before_first_run(folder):
    with started(folder, "run", "hang.json", *ONCE) as process:
        wait_for(children)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)

    assert (process.returncode, out) == (INTERRUPTED, "")
    assert err.splitlines()[-1] == "memprof: interrupted"
    assert not (folder / "runs.jsonl").exists()


def test_interruption_repeated(folder):
    with started(folder, "run", "quick.json", "hang.json", *ONCE) as process:
        wait_for(lambda: lines_of(folder / "runs.jsonl") == 1 and children())
        while process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with_patience(process)
        err = process.stderr.read()

    assert process.returncode == INTERRUPTED
    assert "Traceback" not in err
    assert len(runs_in(folder / "runs.jsonl")) == 1


def test_interruption_twice_without_traceback(memprof, monkeypatch):
    interruptions = [KeyboardInterrupt, KeyboardInterrupt]

    def interrupted(*_, **__):
        if interruptions:
            raise interruptions.pop()

    monkeypatch.setattr(cli.group, "main", interrupted)
    monkeypatch.setattr(cli, "_ignore_interruptions", interrupted)

    done = memprof("runtimes")

    assert (done.returncode, done.stderr, interruptions) == (INTERRUPTED, "memprof: interrupted\n", [])


def test_interruption_while_module_loads(folder):
    code = "from memprof.doors import cli\ncli.group.main = lambda *_, **__: exec('raise KeyboardInterrupt')\ncli.main()\n"
    (folder / "interrupted.py").write_text(code)

    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=folder, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (INTERRUPTED, "memprof: interrupted\n")


def with_patience(process):
    try:
        process.wait(0.05)
    except subprocess.TimeoutExpired:
        pass


def test_interruption_while_result_unread(folder):
    mine = runtime_file(folder, load=f"while not os.path.exists({str(folder / 'go')!r}): time.sleep(0.01)")
    with started(folder, "run", "quick.json", "-r", mine, "--repeats", "1", "-o", "runs.jsonl", "--runs", "50000") as process:
        wait_for(children)
        os.kill(process.pid, signal.SIGSTOP)
        (folder / "go").touch()
        wait_for(lambda: not children())
        # In the middle of its line: a pipe does not hold all of it.
        wait_for(lambda: [recorder for recorder in recorders() if recorder.status() == psutil.STATUS_SLEEPING])
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        _, err = process.communicate(timeout=120)

    assert process.returncode == INTERRUPTED
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_while_runtime_is_described(folder, number):
    mine = runtime_file(folder, top="time.sleep(600)")
    with started(folder, "run", "quick.json", "-r", mine) as process:
        wait_for(lambda: processes("describe"))
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=120)

    assert process.returncode == INTERRUPTED
    assert err.split() == ["memprof:", "interrupted"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_recorder_killed_loses_one_run(folder, number):
    with started(folder, "run", "forks.json", "quick.json", *ONCE) as process:
        wait_for(lambda: len(children()) == 3)
        (recorder,) = recorders()
        recorder.send_signal(number)
        out, err = process.communicate(timeout=120)

    assert process.returncode == 4
    lost, good = runs_in(folder / "runs.jsonl")
    assert (lost["outcome"]["status"], good["outcome"]["status"]) == ("lost", "ok")
    assert lost["outcome"]["phase"] in ("STARTUP", "MODEL_LOAD")  # the last that it had told
    reason = "SIGKILL" if number == signal.SIGKILL else "exit code 3"
    assert f"- synthetic: failed: the recorder ended before its recording did ({reason})" in out
    assert "Traceback" not in err
    store.unpack(store.load([folder / "runs.jsonl"]).runs[0].timeline)


def test_recorder_killed_under_wrapper(folder):
    shell = script(folder / "shell", f'#!/bin/sh\n{PYTHON} "$@"\nexit $?\n')
    with started(folder, "run", "hang.json", *ONCE, "--python", shell) as process:
        wait_for(lambda: any(child.name().startswith("python") for child in children()))
        (recorder,) = recorders()
        recorder.kill()
        process.communicate(timeout=120)

    assert process.returncode == 4
    assert all_gone()


def test_processes_left_behind_ended_by_next(folder, memprof):
    with started(folder, "run", "forks.json", *ONCE) as process:
        wait_for(lambda: len(children()) == 3)
        (recorder,) = recorders()
        recorder.suspend()  # so that it cannot clean up when memprof ends
        process.kill()
        process.wait()
        recorder.kill()
    wait_for(lambda: len(children()) == 2)

    done = memprof("run", "quick.json", *NEXT)

    assert done.returncode == 0
    assert all_gone()
    assert "an earlier memprof was killed; processes that it left behind were ended: 2" in done.stderr


def test_processes_of_other_memprof_left_alone(folder, memprof):
    with started(folder, "run", "hang.json", *ONCE) as process:
        (child,) = wait_for(children)
        memprof("run", "quick.json", *NEXT)

        assert child.is_running()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


def test_ctrl_c_at_terminal(folder):
    ours, theirs = pty.openpty()
    program = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {EXEC}"
    command = [sys.executable, "-c", program, "run", "quick.json", "hang.json", *ONCE]
    streams = {"stdin": theirs, "stdout": subprocess.PIPE, "stderr": theirs}
    pieces = []

    def read():
        with suppress(OSError):  # the terminal's end
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)

    with subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, **streams) as process:
        os.close(theirs)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_for(lambda: lines_of(folder / "runs.jsonl") == 1 and children())
        os.write(ours, b"\x03")
        out, _ = process.communicate(timeout=120)
    reader.join()
    shown = b"".join(pieces).decode()
    os.close(ours)

    assert process.returncode == INTERRUPTED
    assert out.startswith("quick.json, ")
    assert "━" in shown
    assert shown.rstrip().endswith(INTERRUPTED_AFTER_ONE)


@pytest.mark.parametrize(
    "before",
    ["signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM])"],
)
def test_signals_inherited_have_no_effect(folder, before):
    program = f"import signal; {before}; {EXEC}"
    command = [sys.executable, "-c", program, "run", "quick.json", *ONCE, "--timeout", "30s"]

    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert runs_in(folder / "runs.jsonl")[0]["outcome"]["status"] == "ok"


def test_signals_of_measured_program_as_usual(folder):
    mine = runtime_file(
        folder, load="self.version = open('/proc/self/status').read()\nassert '\\nSigBlk:\\t0000000000000000' in self.version"
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGCHLD])
    try:
        run = measured(folder / "quick.json", mine)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert run.outcome.ok, run.outcome.sentence


LOST = """
import os, signal, sys, time
from memprof.doors import cli

class Removed:
    def __del__(self):
        os.kill(os.getpid(), signal.{number})
        time.sleep(600)  # the interruption is raised here, where Python drops it

def work(*words, **options):
    Removed()
    time.sleep(600)

cli.group.main = work
sys.argv = ["memprof"]
cli.main()
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_interruption_dropped_by_python_comes_again(tmp_path, number):
    done = subprocess.run(
        [sys.executable, "-c", LOST.format(number=number)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == INTERRUPTED, done.stderr
    assert "Traceback" not in done.stderr and "ignored" not in done.stderr
