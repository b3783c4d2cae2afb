"""What the tests of failures share: one job through a real recorder, memprof in the background, and a look at what still runs."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from memprof.campaign import campaign
from memprof.places.machine import this_machine
from memprof.records.types import Run
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite

MIB = 1 << 20
# How far a peak can lie from what a program is known to hold: the kernel's bound, and what the program itself needs meanwhile (a line of output, a
# frame, a page of a library that is touched for the first time).
NEAR = int(this_machine().peak_bound_bytes + 0.15 * MIB)
NEAR_MIB = NEAR / MIB
PYTHON = shlex.quote(sys.executable)  # as a word of a shell script
MARK = "MEMPROF_TEST"  # in the environment of everything that a test starts
# A knob for a runtime of a test's own, whose text begins with this: a user's file imports nothing of memprof.
KNOB = """
class Knob:
    def __init__(self, name, values, default, acts="load"):
        self.name, self.values, self.default, self.acts, self.meaning, self.env = name, values, default, acts, name, None
    def value(self, text):
        return text
"""
# For a test of what those of the recorders alone (tests/process/recorder) do not show. All else the fold decides, for both alike.
BOTH_RECORDERS = pytest.mark.usefixtures("recorder")
# For a test that shows nothing of the recorder, in a module whose tests run with both.
WITHOUT_PROBE = pytest.mark.parametrize("recorder", ["python"], indirect=True)
QUICK = {"load": [{"allocate": "weights", "bytes": 4 * MIB}]}
HANG = {"load": [{"hang": True}]}


class Silent:
    """Nobody is told how it goes, but for what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def started(self, job, index, total): ...
    def live(self, phase, rss_bytes): ...
    def finished(self, run): ...

    def say(self, sentence):
        self.said.append(sentence)


def measured(model: Path, runtime: str | Path = "synthetic", **words: object) -> Run:
    """One job through a real recorder, without the command around it: no warm-up, one iteration and no RELEASE unless `words` say otherwise."""
    suite = Suite(models=(str(model),), runtimes=(str(runtime),), repeats=1, **{"warmup": 0, "runs": 1, "release": False, **words})
    (run,) = campaign.measure(plan(suite).orders, Silent(), lambda line: None)
    return run


Result = TypeVar("Result")


def with_patience(attempt: Callable[[int], Result], came_so_far: Callable[[Result], object]) -> Result:
    """The result of `attempt`, such as a Run, under the first of some time limits, in ns, that was long enough for it to come so far; a busy
    machine needs a longer one.

    The first is 1 s. The last, which is a minute, is enough in any case, so what it does not reach is missing.
    """
    for limit_s in (1, 8, 64):
        result = attempt(limit_s * 10**9)
        if came_so_far(result):
            break
    return result


def free_port() -> int:
    """A port of loopback on which nobody listens.

    It is none that the kernel gives to whoever asks for any port. Such a one another test may get before the server that is to have it.
    """
    given_out = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    first, last = map(int, given_out)
    others = [port for port in range(10_000, 1 << 16) if not first <= port <= last] or list(range(1024, first))
    while True:
        port = secrets.choice(others)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence with which something was refused before anything was measured."""
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("memprof: "), line
    return line


def refused(done: subprocess.CompletedProcess[str], code: int = 5) -> str:
    """The sentence with which a command was refused."""
    assert done.returncode == code, done.stderr
    return sentence(done)


def runtime_file(folder: Path, name: str = "mine.py", top: str = "", **bodies: str) -> Path:
    """A user's runtime whose methods (init, load, prepare, execute, and release if it is said) do what is said, and nothing else."""
    words = {"init": "(self)", "load": "(self, model, options)", "prepare": "(self)", "execute": "(self)"}
    if "release" in bodies:
        words["release"] = "(self)"
    lines = ["import os, signal, subprocess, sys, time", top, "class Runtime:", "    version = '1'"]
    for word, signature in words.items():
        lines.append(f"    def {'__init__' if word == 'init' else word}{signature}:")
        lines += [f"        {line}" for line in bodies.get(word, "pass").splitlines()]
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


# A user's runtime that keeps 8 KiB of whatever stands for KEY.
KEEPER = """
class Runtime:
    formats = (".json",)
    version = "1"
    default_threads = 1

    def load(self, model, options):
        self.kept = {}
        self.done = 0

    def prepare(self): ...

    def signature(self):
        return SIGNATURE

    def set_inputs(self, arrays):
        self.array = arrays["x"]

    def execute(self):
        self.done += 1
        self.kept.setdefault(KEY, b"1" * 8192)
"""
FLOATS = '[("x", (1, 30), "float32")]'

_HELD = """folder, allowed = {begun!r}, {allowed!r}
ahead = len(os.listdir(folder))
open(os.path.join(folder, os.urandom(8).hex()), "w").close()
while ahead >= os.path.getsize(allowed):
    time.sleep(0.05)"""


def held_runtime(folder: Path) -> tuple[Path, Callable[[int], object], Callable[[], int]]:
    """A runtime of which only so many iterations go on, in all processes together; `let(count)`, which says how many; and how many have begun.

    Each process has one iteration. None goes on before the first `let`, so a campaign stands still where a test wants it to.
    """
    begun, allowed = folder / "begun", folder / "allowed"
    begun.mkdir()
    allowed.touch()

    def let(count: int) -> None:
        allowed.write_bytes(b"x" * count)  # its size, so that it is never read half written

    return runtime_file(folder, execute=_HELD.format(begun=str(begun), allowed=str(allowed))), let, lambda: len(os.listdir(begun))


def script(path: Path, text: str) -> Path:
    """An executable file."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def unobserved(command: str) -> str:
    """Lines of shell that run a command while the recorder that has started the shell stands still, as where a busy machine has no CPU for it."""
    return f"kill -STOP $PPID\n{command}\ncode=$?\nkill -CONT $PPID\nexit $code\n"


def runs_in(path: Path) -> list[dict]:
    """What a runs file holds, every line of it whole."""
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


# -- memprof in the background


@contextmanager
def started(folder: Path, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`memprof WORDS` in a session of its own, as a terminal's foreground process is in a group of its own; killed where it still runs."""
    command = [sys.executable, "-m", "memprof", *map(str, words)]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(ready: Callable[[], object], seconds: float = 120) -> object:
    """The first value that is true. Fails after a while, which is long: only a test that fails waits so long, whatever else the machine does.

    Looking takes at most a quarter of the time: a look at all processes is long.
    """
    begin = time.monotonic()
    end = begin + seconds
    while not (result := ready()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(max(0.01, 3 * (time.monotonic() - begin)))
        begin = time.monotonic()
    return result


def processes(*words: str) -> list[psutil.Process]:
    """Processes that this test started, those with all these words or files in their command line, but for the test itself."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    marked = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):  # that of a zombie is empty
                process = psutil.Process(pid)
                line = [part.rpartition("/")[2] for part in process.cmdline()]
                if all(word in line for word in words) and process.status() != psutil.STATUS_ZOMBIE:
                    marked.append(process)
        except (OSError, psutil.Error):
            continue
    return marked


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, reaped or not. It may be reaped between two looks."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def children() -> list[psutil.Process]:
    """The measured processes, and what they forked."""
    return processes("runners", "run")


def recorders() -> list[psutil.Process]:
    """The recorders."""
    return processes("-I", "-S")


def new_mark() -> str:
    """A value that no other test uses."""
    return secrets.token_hex(8)


def all_gone() -> bool:
    """Whether nothing that this test started still runs."""
    return not processes()
