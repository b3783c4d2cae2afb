"""What the tests of crossings share: every question about every subject at every place, walked by the command line's own code until a recorder
would start.

Nothing is measured, nothing outside is reached, and nothing is installed: other machines are shells of this one, a fleet's worker is this process,
and environments are entries of the cache whose interpreters are never started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Memprof

from memprof.base import leftovers
from memprof.base.cache import cache_folder
from memprof.campaign import attach, campaign, conversion, side_by_side
from memprof.campaign.fleet import comparison_runs, scheduler, scheduler_client, search_client
from memprof.campaign.fleet.message import PROTOCOL, ComparisonTask, Doing, Offered
from memprof.campaign.fleet.scheduler import FleetPlace
from memprof.doors.cli.progress import Plain
from memprof.explain import remote
from memprof.places import parse, remote_groups
from memprof.places.place import HERE, Here, MachineState, Place
from memprof.places.remote import Remote
from memprof.programs import environments, recorder_build, runtimes, symbols
from memprof.programs.environments import Environment
from memprof.programs.runtimes import Knob, Runtime
from memprof.records.recorder_order import GroupOrder, Message
from memprof.records.types import Job
from memprof.subjects import command_orders, orders
from memprof.subjects.order import Order
from memprof.versions import installation, pip
from support.manual import ROOT
from support.plan_models import node, save, value, weight
from support.recorder_runs import free_port, runtime_file, script
from support.session_cache import own_cache

QUESTIONS = ("run", "exec", "explain", "tune", "fit", "grow", "scale", "gate", "bisect", "heap record", "attach")
SUBJECTS = ("installed", "own", "release", "separate", "program", "server", "process")
PLACES = {
    "here": (),
    "ssh": ("--on", "ssh:board"),
    "adb": ("--on", "adb:board"),
    "labgrid": ("--on", "labgrid:board"),
    "fleet": ("--on", "dask:tcp://127.0.0.1:8786", "--machines", "kind=board"),
}
_REMOTE = ("ssh", "adb", "labgrid")
_MODELS = {
    "installed": ("net.onnx", "onnxruntime"),
    "own": ("net.onnx", "./mine.py"),
    "release": ("net.onnx", "onnxruntime@1.19.2"),
    "separate": ("net.pt2", "torch"),
}
_INSTALLED = {"onnxruntime": "1.27.0", "synthetic": "1"}
_SEPARATE = {"onnxruntime": "1.19.2", "torch": "2.13.0"}
PYTHON = "otherpython"  # another interpreter, on PATH
BELOW = "#!/bin/sh\n# another\n"  # the program in the folder `below`
_LISTED = ("2.3.0", "2.0.0", "1.26.0")


class Reached(BaseException):
    """A recorder would start now. order: None of a process that runs already. on_fleet: at a fleet's worker. said: to the user, before.
    recorder_python: the interpreter of a recorder in Python."""

    def __init__(
        self, job: Job, message: Message, place: Place, recorder: str, order: Order | None, on_fleet: bool, said: tuple[str, ...]
    ) -> None:
        super().__init__(job.heading)
        self.job, self.message, self.place, self.recorder = job, message, place, recorder
        self.order, self.on_fleet, self.said = order, on_fleet, said
        self.recorder_python = place.python


@dataclass(frozen=True)
class _Shell:
    """A Link whose other side is this machine."""

    name: str
    folder: str

    def words(self, text: str, first: bool = False) -> list[str]:
        return ["sh", "-c", text]

    def refused(self, said: str) -> str:
        return said


@dataclass
class World:
    """What the walk takes place in. folder: the current one, with all that words name. port: of the server. environments: by what they are for."""

    folder: Path
    port: int
    memprof: Memprof
    environments: Mapping[str, Environment]
    _numbers: int = field(default=0)

    def walk(self, *words: str) -> Reached | subprocess.CompletedProcess[str]:
        """The command, until a recorder would start or the command ends."""
        try:
            return self.memprof(*words, cwd=self.folder)
        except Reached as reached:
            return reached

    def words(self, question: str, subject: str, place: str, *settings: str, program: str = "./program") -> tuple[str, ...]:
        """The words that ask this. settings: of what is measured; for a gate, lines of its suite. program: its words."""
        self._numbers += 1
        on, name = PLACES[place], f"answer{self._numbers}"
        if question == "gate":
            return self._gate(subject, settings, on, name, program)
        own = {
            "heap record": ("--tool", "massif", "-o", name),
            "scale": ("--vary", "n=1..4" if subject in ("program", "server") else "threads=1..4"),
            "bisect": self._versions(subject),
            "run": ("-o", f"{name}.jsonl"),
            "exec": ("-o", f"{name}.jsonl"),
            "attach": ("-o", f"{name}.jsonl"),
        }.get(question, ())
        asked = (*question.split(), *own, *on, *settings)
        match subject:
            case "process":
                return (*asked, str(os.getpid()))
            case "program" | "server":
                load = ("--drive", self.load) if subject == "server" else ()
                if question == "run":
                    return (*asked, *load, "--cmd", f"program={program}")
                return (*asked, *load, "--", *program.split(), *(("{n}",) if question == "scale" else ()))
        model, runtime = _MODELS[subject]
        return (*asked, "-r", runtime, model)

    @property
    def load(self) -> str:
        """What is asked of the server."""
        return f"http:{self.port}/predict,body=in.json"

    def _versions(self, subject: str) -> tuple[str, ...]:
        """The package whose releases are searched: the runtime's own where it has any, else one that the subject uses."""
        package = {"installed": "onnxruntime", "separate": "torch"}.get(subject, "numpy")
        return ("--package", package, "--from", _LISTED[-1], "--to", _LISTED[0])

    def _gate(self, subject: str, settings: Sequence[str], on: Sequence[str], name: str, program: str) -> tuple[str, ...]:
        if subject == "process":
            return ("gate", "--budgets", "budgets.toml", *on, str(os.getpid()))
        text = "\n".join((*settings, self._subject_of_suite(subject, program)))
        (self.folder / f"{name}.toml").write_text(text)
        return ("gate", "--run", f"{name}.toml", "--budgets", "budgets.toml", "-o", f"{name}.jsonl", *on)

    def _subject_of_suite(self, subject: str, program: str) -> str:
        if subject in _MODELS:
            model, runtime = _MODELS[subject]
            return f"models = ['{model}']\nruntimes = ['{runtime}']\n"
        load = f"drive = '{self.load}'\n" if subject == "server" else ""
        return f"{load}[[variant]]\nname = 'program'\ncmd = '{program}'\n"


@pytest.fixture
def world(tmp_path: Path, memprof: Memprof, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Made once for a walk: see World."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / ".git").mkdir()  # no configuration above it counts
    save(folder / "net.onnx", [node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 64])], [value("y", [1, 64])], [weight("w", 64, 64)])
    shutil.copy(ROOT / "tests" / "data" / "net.pt2", folder)
    runtime_file(folder)
    (folder / "below").mkdir()
    script(folder / "program", "#!/bin/sh\n")
    script(folder / "below" / "program", BELOW)
    np.savez(folder / "in.npz", x=np.zeros((1, 64), np.float32))
    (folder / "in.json").write_text("{}\n")
    (folder / "budgets.toml").write_text("[[budget]]\nrss_peak_bytes = '1GiB'\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    script(tools / "valgrind", "#!/bin/sh\n")
    script(tools / PYTHON, f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    own_cache(monkeypatch, tmp_path / "cache")
    made = {name: _environment(name, version) for name, version in _SEPARATE.items()}
    _instead_of_runtimes(monkeypatch)
    _instead_of_machines(monkeypatch)
    _instead_of_looks(monkeypatch)
    _instead_of_packages(monkeypatch)
    said: list[str] = []
    fleet = _instead_of_fleet(monkeypatch, said)
    _instead_of_recorder(monkeypatch, fleet, said)
    with ExitStack() as stack:
        _instead_of_boards(monkeypatch, tmp_path, stack)
        yield World(folder, free_port(), memprof, made)
    command_orders.common_knobs.cache_clear()


def _environment(name: str, version: str) -> Environment:
    """An environment in the cache, with an interpreter that nobody starts."""
    folder = environments.place() / f"{name}-{version}"
    (folder / "bin").mkdir(parents=True)
    interpreter = script(folder / "bin" / "python", "#!/bin/sh\nexit 1\n")
    made = Environment(name, version, "3.12", str(interpreter), 1 << 20, True, {name: version})
    environments.finish(made)
    return made


def _instead_of_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What interpreters would say: memprof's own and those of boards have ONNX Runtime, the separate environments theirs."""
    arenas = Knob("malloc_arenas", "int", None, "env", "", "MALLOC_ARENA_MAX", tries=("1",))

    @cache
    def answered(python: str, user_file: str | None, machine: object) -> tuple[Runtime, ...]:
        if user_file is not None:
            return (Runtime("mine.py", version="1", knobs=(arenas,), python="3.12"),)
        versions = _SEPARATE if str(environments.place()) in python else _INSTALLED
        return tuple(
            Runtime(name, distribution, versions.get(name), formats, (arenas,), python="3.12")
            for name, distribution, formats in (
                ("synthetic", None, (".json",)),
                ("onnxruntime", "onnxruntime", (".onnx",)),
                ("torch", "torch", (".pt2",)),
            )
        )

    monkeypatch.setattr(runtimes, "_answered", answered)
    command_orders.common_knobs.cache_clear()


def _instead_of_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that are idle and cool, without waiting to see it, and have control groups, gdb and recorders of both kinds."""
    for place in (Here, Remote):
        monkeypatch.setattr(place, "busy", lambda self: (0.0, 1 << 40))
        monkeypatch.setattr(place, "weather", lambda self: MachineState(20.0, None))
    monkeypatch.setattr(remote_groups, "without_swap", lambda place: lambda: {"group": GroupOrder("/memprof", (("memory.swap.max", "0"),))})
    monkeypatch.setattr(symbols, "wrap", lambda argv, phases, cwd, env: ("gdb", *argv))
    monkeypatch.setattr(recorder_build, "is_built", lambda arch: True)
    monkeypatch.setattr(orders, "recorder_command", lambda kind, place: ())


def _instead_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another machine's program that looks at processes says to the same words, which it is asked once: each time it would import numpy."""
    run, known = remote._There._run, {}

    def run_once(self: remote._There, timeout_s: int, *words: str) -> subprocess.CompletedProcess[bytes]:
        key = (*self._start, *words)
        if key not in known:
            known[key] = run(self, timeout_s, *words)
        return known[key]

    monkeypatch.setattr(remote._There, "_run", run_once)


def _instead_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of packages that has a few releases of each, and installs nothing."""
    made: dict[tuple[str, str], Environment] = {}

    def ensure(package: installation.PipPackage, version: str, say: object, python: str | None = None, **rest: object) -> Environment:
        key = package.name, f"{version}-by-{Path(python).name}" if python else version
        if key not in made:
            made[key] = _environment(*key)
        return made[key]

    monkeypatch.setattr(installation, "ensure", ensure)
    monkeypatch.setattr(pip, "versions", lambda *words: pip.Listed(_LISTED))


def _instead_of_boards(monkeypatch: pytest.MonkeyPatch, folder: Path, stack: ExitStack) -> None:
    """Boards by ssh, adb and labgrid, each a shell of this machine that is reached once."""
    boards: dict[str, Remote] = {}
    refusing = parse.remote
    for kind in _REMOTE:
        boards[kind] = Remote(_Shell(f"{kind}:board", str(folder / kind)))
        boards[kind].open()
        stack.callback(boards[kind].close)

    @contextmanager
    def remote(name: str, folder: str | None, python: str | None, *words: Any) -> Iterator[Remote]:
        board = boards.get(name.partition(":")[0])
        if board is None:
            with refusing(name, folder, python, *words) as place:
                yield place
        else:
            usual, board.python = board.python, python or board.python
            try:
                yield board
            finally:
                board.python = usual

    monkeypatch.setattr(parse, "remote", remote)


def _instead_of_fleet(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> dict[str, bool]:
    """A fleet of one worker, which is this process. It says whether that measures. said: to the user."""
    works = {"now": False}
    offered = Offered("here", "board", "board", {"kind": "board", "place": "here"}, PROTOCOL, "1")
    there = [FleetPlace("board/here", "tcp://board", offered, Doing())]

    @contextmanager
    def connected(address: str, say: object) -> Iterator[object]:
        yield object()

    def tell(remark: str = "", **words: object) -> None:
        if remark:
            said.append(remark)

    class Desk:
        def __init__(self, client: object, comparisons: Sequence[ComparisonTask], *words: object, **rest: object) -> None:
            self.comparisons = comparisons
            self.failed: dict[str, str] = {}
            self.outputs: dict[str, bytes] = {}
            self.unmade: dict[str, Mapping[str, str]] = {}

        def runs(self) -> Iterator[object]:
            for comparison in self.comparisons:
                kept = cache_folder("fleet/files")
                for sent in comparison.files:
                    shutil.copy(sent.path, kept / sent.sha256)
                works["now"] = True
                try:
                    result = comparison_runs.measure(comparison, HERE, "board/here", tell, pytest.fail)
                finally:
                    works["now"] = False
                self.failed[comparison.key] = f"{comparison.title} failed once on board/here and is given up: {result.why}"
            yield from ()

    monkeypatch.setattr("memprof.doors.cli.fleet.load_distributed", lambda: None)
    monkeypatch.setattr(scheduler, "connected", connected)
    monkeypatch.setattr(scheduler, "places", lambda client: (there, []))
    for module in (scheduler_client, search_client):
        monkeypatch.setattr(module, "SchedulerClient", Desk)
    return works


def _instead_of_recorder(monkeypatch: pytest.MonkeyPatch, fleet: Mapping[str, bool], said: list[str]) -> None:
    """The end of the walk, in place of a recorder."""
    asked: list[Order] = []

    def remembered(order: Order, *words: Any) -> Message:
        asked.append(order)
        return message(order, *words)

    def ask(job: Job, message: Message, *words: object, place: Place = HERE, recorder: str = "python", **rest: object) -> None:
        told = tuple(said)
        said.clear()
        raise Reached(job, message, place, recorder, asked[-1] if asked else None, fleet["now"], told)

    message = campaign.message
    monkeypatch.setattr(
        leftovers, "end_marked", lambda tokens: 0
    )  # the walk's end is an error, after which all processes are looked through
    monkeypatch.setattr(Plain, "say", lambda self, sentence: said.append(sentence))
    for module in (campaign, side_by_side):
        monkeypatch.setattr(module, "message", remembered)
    for module in (campaign, side_by_side, attach, conversion):
        monkeypatch.setattr(module, "ask", ask)
