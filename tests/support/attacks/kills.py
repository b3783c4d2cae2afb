"""Kills: memprof, its recorder and its child, with SIGKILL and with SIGTERM, memprof with SIGINT (Ctrl-C) too, in each phase of each command that
measures or writes. The child stands still in the phase, and has started another process, until the kill.

Right is a kill after which

- memprof ends with the right exit code and without a traceback,
- a command that only writes a file, killed when the file is to get its name, leaves none of that name, and its inputs as they were,
- nothing is left running (a build or a conversion may outlive a memprof that got SIGKILL, until the next memprof starts),
- the runs file can be read, holds the run before the kill, and names the phase in which the killed one failed,
- the next memprof works, and removes all that was left: processes, temporary files, control groups.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from memprof.base.errors import MemprofError
from memprof.records import store
from memprof.records.types import RUN, Run

from . import sandbox

PHASES = ("STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE")
BUILD, CONVERT = "build", "convert"  # of a side of the gate, and of a model; both before anything is measured
WRITE = "write"  # an output is whole, and not yet under its name
ANY = "any"  # whichever phase a process without a place to stand still is in
# The recorder ignores Ctrl-C: it ends when memprof does.
SIGNALS = {
    "memprof": (signal.SIGKILL, signal.SIGTERM, signal.SIGINT),
    "recorder": (signal.SIGKILL, signal.SIGTERM),
    "child": (signal.SIGKILL, signal.SIGTERM),
}
SOON_S = 20.0  # in which all that a kill ends must be gone, on a busy machine too
INTERRUPTED, FAILED = 130, 4

# Stands still in the phase that the environment names, in the Nth process that uses it, with another process.
_STAND = """
import os, subprocess, time

FOLDER, STOP, NUMBER = os.environ["MEMPROF_ATTACK"], os.environ["MEMPROF_ATTACK_PHASE"], int(os.environ["MEMPROF_ATTACK_NUMBER"])

def stand(phase):
    if phase == STOP:
        subprocess.Popen(["sleep", "600"])
        with open(FOLDER + "/reached.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(FOLDER + "/reached.new", FOLDER + "/reached")
        time.sleep(600)
"""
_RUNTIME = f"""{_STAND}
from runtimes import Knob

class Runtime:
    version = "1"
    knobs = (Knob("make", ("it",), None, "convert the model", acts="build"), Knob("size", ("1", "2"), "1", "nothing"))

    def __init__(self):
        with open(FOLDER + "/used", "a") as file:
            file.write("x")
            self.counts = file.tell() == NUMBER
        self.calls = 0
        self.stand("STARTUP")

    def stand(self, phase):
        if self.counts:
            stand(phase)

    def load(self, model, options):
        self.stand("MODEL_LOAD")

    def prepare(self):
        self.stand("PREPARE")

    def execute(self):
        self.calls += 1
        self.stand("WARMUP" if self.calls == 1 else "EXECUTE")

    @staticmethod
    def build(model, folder, options):
        subprocess.run(["mktemp"])
        stand("convert")
"""
# A program for `exec` that stands still in the same way.
_PROGRAM = f"""{_STAND}
with open(FOLDER + "/used", "a") as file:
    file.write("x")
    if file.tell() == NUMBER:
        stand(STOP)
"""
# Imported by every Python that finds it: memprof itself stands still where a file of the working folder is to get its name.
_STAND_WRITING = """
import os, sys, time

def hear(event, words):
    reached = os.environ["MEMPROF_ATTACK"] + "/reached"
    if event == "os.rename" and os.path.realpath(os.path.dirname(reached) + "/work") + "/" in os.fsdecode(words[1]) and not os.path.exists(reached):
        with open(reached + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(reached + ".new", reached)
        time.sleep(600)

sys.addaudithook(hear)
"""
_SUITE = """models = ["quick.json"]
repeats = 1
warmup = 1
runs = 1
[[variant]]
name = "quick"
runtime = "synthetic"
[[variant]]
name = "slow"
runtime = "./slow.py"
"""
_BUILD = """[build]
command = 'sleep 600 & echo $$ >"$MEMPROF_ATTACK/reached"; wait'
"""
_GOOD = "good.jsonl"  # what the commands that only write read
_INPUTS = {sandbox.MODEL, "slow.py", "program.py", "suite.toml", "budgets.toml", _GOOD}
_BISECT = ("bisect", "--suite", "suite.toml", "--good", "HEAD~1", "--no-explain", "-o", "runs.jsonl")
_RUN = ("run", sandbox.MODEL, "--repeats", "1", "--warmup", "1", "--runs", "1", "-o", "runs.jsonl", "--variant", "quick=synthetic")


@dataclass(frozen=True)
class Role:
    """A command that measures. codes: its exit codes when the recorder or the child was killed. number: which of its processes stands still.

    first: whether it has measured a whole run before that, which is in the runs file.
    """

    words: tuple[str, ...]
    codes: tuple[int, ...] = (FAILED,)
    number: int = 1
    first: bool = False
    in_phases: tuple[str, ...] = PHASES
    before: str | None = None  # a phase in which nothing is measured yet, or ever, and memprof alone is killed
    before_words: tuple[str, ...] = ()

    def phases(self, victim: str) -> tuple[str, ...]:
        """The phases in which a victim can be killed."""
        return (*self.in_phases, self.before) if self.before and victim == "memprof" else self.in_phases


def _writes(*words: str) -> Role:
    """A command that measures nothing, and writes a file."""
    return Role((), in_phases=(), before=WRITE, before_words=words)


ROLES = {
    "run": Role(
        (*_RUN, "--variant", "slow=./slow.py"), first=True, before=CONVERT, before_words=(*_RUN, "--variant", "slow=./slow.py,make=it")
    ),
    "gate": Role(
        ("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "runs.jsonl"),
        first=True,
        before=BUILD,
        before_words=("gate", "--run", "suite.toml", "--base-ref", "HEAD", "-o", "runs.jsonl"),
    ),
    # The second process is the held one, at which explain looks.
    "explain": Role(("explain", sandbox.MODEL, "-r", "./slow.py", "--warmup", "1", "--runs", "1", "--keep-runs", "runs.jsonl"), number=2),
    # A profiler may keep its file of a program that was killed: that is a result too.
    "heap": Role(("heap", "record", sandbox.MODEL, "-r", "./slow.py", "--warmup", "1", "-o", "profile"), codes=(0, FAILED)),
    "exec": Role(
        ("exec", "--repeats", "2", "-o", "runs.jsonl", "--", sys.executable, "program.py"), number=2, first=True, in_phases=(RUN,)
    ),
    # A setting that fails is a result.
    "tune": Role(
        ("tune", sandbox.MODEL, "-r", "./slow.py", "--try", "size=1,2", "--time", "60s", "-o", "runs.jsonl"),
        codes=(0, FAILED),
        number=2,
        first=True,
        in_phases=("STARTUP", "MODEL_LOAD", "PREPARE"),
    ),
    # These measure as `run` does, phase by phase.
    "grow": Role(
        ("grow", sandbox.MODEL, "-r", "./slow.py", "--budget", "200", "-o", "runs.jsonl"),
        codes=(3, FAILED),
        in_phases=("MODEL_LOAD", "EXECUTE"),
    ),
    "scale": Role(
        ("scale", sandbox.MODEL, "-r", "./slow.py", "--vary", "threads=1..2", "-o", "runs.jsonl"),
        codes=(3, FAILED),
        in_phases=("MODEL_LOAD", "EXECUTE"),
    ),
    # It measures the synthetic runtime, which does not stand still; what it learns of a killed child is in its answer.
    "doctor": Role(("doctor",), codes=(0, FAILED), in_phases=(ANY,)),
    "bisect": Role(
        _BISECT,
        codes=(3, FAILED, 5),
        in_phases=("MODEL_LOAD",),
        before=BUILD,
        before_words=_BISECT,
    ),
    "merge": _writes("merge", _GOOD, "-o", "out.jsonl"),
    "baseline": _writes("baseline", "update", _GOOD, "-o", "out.json"),
    "history": _writes("history", "add", _GOOD, "--folder", "out"),
    "page": _writes("page", _GOOD, "-o", "out.html"),
    # The second process is the first in a control group.
    "fit": Role(("fit", sandbox.MODEL, "-r", "./slow.py", "--part", "whole", "-o", "runs.jsonl"), number=2),
}

GROUPING = ("fit", "scale")  # commands that make control groups, which are the machine's: they are killed one after another


@dataclass(frozen=True)
class Kill:
    """A kill of the matrix."""

    role: str
    phase: str
    victim: str
    number: signal.Signals

    def __str__(self) -> str:
        return f"{self.role}, {self.phase}, {self.victim}, {self.number.name}"


def kills_of(role: str) -> Iterator[Kill]:
    """The kills of a role."""
    for victim, numbers in SIGNALS.items():
        for number in numbers:
            for phase in ROLES[role].phases(victim):
                yield Kill(role, phase, victim, number)


def tried(kill: Kill) -> Iterator[str]:
    """Kill, and say all that is wrong afterwards."""
    role = ROLES[kill.role]
    with sandbox.place() as place:
        prepare(place, kill)
        variables = {"MEMPROF_ATTACK_PHASE": kill.phase, "MEMPROF_ATTACK_NUMBER": str(role.number)}
        if kill.phase == WRITE:
            variables["PYTHONPATH"] = str(place.folder)
        words = role.before_words if kill.phase == role.before else role.words
        process = place.start(*words, env={**place.environment, **variables})
        sandbox.wait_for(lambda: process.poll() is not None or killed(place, process.pid, kill))
        try:
            code = process.wait(sandbox.LONGEST_S)
        except subprocess.TimeoutExpired:
            yield "memprof does not end"
            process.kill()
            process.wait()
            return
        if not (place.folder / "killed").exists():
            yield f"the phase was never reached: {place.output('stderr')[-300:]!r}"
            return
        yield from ended(place, kill, code)
        yield from readable(place, kill)
        if kill.phase == WRITE:
            yield from unwritten(place, kill)
        yield from cleaned(place, kill)


def killed(place: sandbox.Place, memprof: int, kill: Kill) -> bool:
    """Send the signal, if the phase is reached; whether it was sent. The recorder is the process that runs isolated, from a zip."""
    reached = place.folder / "reached"
    if kill.phase == ANY:
        children = [process.pid for process in place.processes("runners", "run")]
    else:
        children = [int(reached.read_text())] if reached.exists() else []
    if not children:
        return False
    victims = {"memprof": [memprof], "child": children}.get(kill.victim) or [process.pid for process in place.processes("-I", "-S")]
    try:
        os.kill(victims[0], kill.number)
    except (IndexError, ProcessLookupError):  # it has just ended
        return False
    (place.folder / "killed").touch()
    return True


def prepare(place: sandbox.Place, kill: Kill) -> None:
    """Write the files that the commands name."""
    (place.work / "slow.py").write_text(_RUNTIME)
    (place.work / "program.py").write_text(_PROGRAM)
    build = _BUILD if kill.phase == BUILD else '[build]\ncommand = "true"\n' if kill.role == "bisect" else ""
    (place.work / "suite.toml").write_text(_SUITE + build)
    (place.work / "budgets.toml").write_text('peak = "1 GiB"\n')
    if kill.phase == WRITE:
        words = ("run", sandbox.MODEL, "-r", "synthetic", "--repeats", "2", "--runs", "1", "-o", _GOOD)
        if place.run(*words) != 0:
            raise SystemExit(f"memprof {' '.join(words)}: {place.output('stderr')}")
        (place.folder / "sitecustomize.py").write_text(_STAND_WRITING)
    if kill.phase in (BUILD, WRITE) or kill.role == "bisect":
        commit = ("-c", "user.name=memprof", "-c", "user.email=memprof@localhost", "commit", "--quiet", "--allow-empty", "-m")
        for arguments in (("init", "--quiet"), ("add", "."), (*commit, "a suite"), (*commit, "another")):
            subprocess.run(["git", *arguments], cwd=place.work, env=place.environment, check=True)


def ended(place: sandbox.Place, kill: Kill, code: int) -> Iterator[str]:
    """Whether memprof has ended as it must, and everything with it."""
    role = ROLES[kill.role]
    by_signal = -signal.SIGKILL if kill.number == signal.SIGKILL else INTERRUPTED
    codes = (by_signal,) if kill.victim == "memprof" else role.codes
    if code not in codes:
        yield f"exit code {code} and not {' or '.join(map(str, codes))}"
    if "Traceback" in place.output("stderr"):
        yield "a traceback"
    may_outlive = kill.phase == role.before and kill.number == signal.SIGKILL
    if not may_outlive and not sandbox.wait_for(lambda: not place.processes(), SOON_S):
        yield f"still running: {[process.cmdline()[:3] for process in place.processes()]}"


def readable(place: sandbox.Place, kill: Kill) -> Iterator[str]:
    """Whether the files are whole and tell what happened."""
    role, path = ROLES[kill.role], place.work / "runs.jsonl"
    runs: list[Run] = []
    if path.exists() and path.stat().st_size:  # empty: killed before the first run
        try:
            runs = list(store.load([path]).runs)
        except MemprofError as error:
            yield f"the runs file cannot be read: {error}"
            return
    if role.first and kill.phase != role.before:
        if not runs or not runs[0].outcome.ok:
            yield "the run before the kill is lost"
        elif kill.victim != "memprof":
            yield from failed_in(runs[min(role.number, len(runs)) - 1], kill)  # a search goes on with others
    for file in (place.work / "profile").glob("*"):
        if file.suffix != ".json" and place.run("heap", "show", file) not in (0, 5):
            yield f"{file.name}: {place.output('stderr')[-200:]!r}"


def failed_in(run: Run, kill: Kill) -> Iterator[str]:
    """Whether a run tells in which phase it failed. A killed recorder has told no more than the last phase it heard of."""
    outcome = run.outcome
    if kill.victim == "recorder":
        if outcome.status != "lost":
            yield f"a run without its recorder is {outcome.status!r}"
    elif outcome.ok or outcome.phase != kill.phase:
        yield f"the killed run: {outcome.sentence}"


def unwritten(place: sandbox.Place, kill: Kill) -> Iterator[str]:
    """Whether the output is not there, the input is whole, and the command works now. SIGKILL leaves the draft of the output."""
    files = {path.name for path in place.work.rglob("*") if path.is_file() and ".git" not in path.parts}
    drafts = {name for name in files if name.startswith(".") and name.endswith(".tmp")}
    if kill.number != signal.SIGKILL and drafts:
        yield f"left: {', '.join(drafts)}"
    if odd := files - drafts - _INPUTS:
        yield f"written all the same: {', '.join(odd)}"
    if len(store.load([place.work / _GOOD]).runs) != 2:
        yield "its input is not what it was"
    if place.run(*ROLES[kill.role].before_words) != 0:
        yield f"it does not work again: {place.output('stderr')[-200:]!r}"


def cleaned(place: sandbox.Place, kill: Kill) -> Iterator[str]:
    """Whether the next memprof works and leaves nothing of the killed one. Commands that make control groups first remove those of others."""
    if place.run("run", sandbox.MODEL, "-r", "synthetic", "--repeats", "1", "--runs", "1", "-o", "next.jsonl") != 0:
        yield f"the next memprof: {place.output('stderr')[-200:]!r}"
    if kill.role in GROUPING:
        find = [sys.executable, "-c", "from memprof.places import limits; limits.find()"]
        subprocess.run(find, env=place.environment, check=True)
    if left := place.leftovers():
        yield f"left: {', '.join(left)}"
