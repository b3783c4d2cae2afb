"""Questions x subjects x places: each crossing comes to a measurement, or is refused in one sentence with the reason.

`make crossings` writes what is found here into docs/crossings.md; without it the page must say the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from support.crossings import BELOW, PLACES, PYTHON, QUESTIONS, SUBJECTS, Reached, World, world  # noqa: F401  (the fixture)
from support.manual import ROOT
from support.recorder_runs import sentence

from memprof.programs import environments
from memprof.records.recorder_order import GroupOrder
from memprof.records.types import COMMAND
from memprof.subjects.settings import SETTINGS

PAGE = ROOT / "docs" / "crossings.md"
WRITES = "MEMPROF_WRITES_CROSSINGS"
ON_FLEETS = ("run", "tune", "scale", "bisect")
ON_BOARDS = ("run", "explain", "gate")  # the others measure as run does: whatever makes their orders, a board gets them the same way
COLUMNS = ("installed runtime", "own runtime", "release", "separate environment", "program", "server under load", "running process")
NAMES = {"here": "Here", "ssh": "ssh:", "adb": "adb:", "labgrid": "labgrid:", "fleet": "A fleet, dask:"}
_SECOND_SENTENCE = re.compile(r"(?<!\.)[.!?]( |$)")
_BLOCK = re.compile(r"(?<=^<!-- crossings -->\n).*?(?=^<!-- /crossings -->$)", re.MULTILINE | re.DOTALL)

Answers = dict[tuple[str, str], str]


@pytest.mark.long
def test_every_crossing_measures_or_says_why(world: World) -> None:
    answers = {
        place: {(question, subject): answer(world, question, subject, place) for question in QUESTIONS for subject in SUBJECTS}
        for place in PLACES
    }

    written, block = PAGE.read_text(encoding="utf-8"), page(answers)
    if os.environ.get(WRITES):
        PAGE.write_text(_BLOCK.sub(lambda _: block, written), encoding="utf-8")
    else:
        (shown,) = _BLOCK.findall(written)
        assert shown == block, "docs/crossings.md says otherwise; make crossings writes it"


def answer(world: World, question: str, subject: str, place: str) -> str:
    """Why this cannot be asked; empty if it can."""
    words = world.words(question, subject, place)
    end = world.walk(*words)
    if isinstance(end, Reached):
        assert end.on_fleet == (place == "fleet"), words
        assert end.place.name == ("here" if place == "fleet" else place if place == "here" else f"{place}:board"), words
        assert _is(world, end, question, subject), words
        return ""
    said = sentence(end).removeprefix("memprof: ")
    assert end.returncode in (2, 5), words
    assert not _SECOND_SENTENCE.search(said), said
    return _masked(said)


def _is(world: World, reached: Reached, question: str, subject: str) -> bool:
    """Whether it is this subject that would be measured."""
    job, start = reached.job, reached.message.start
    if subject == "process":
        return start.attach == os.getpid()
    if subject in ("program", "server"):
        in_release = question != "bisect" or start.env["PATH"].startswith(f"{environments.place()}/numpy-")
        return (
            in_release
            and job.runtime == COMMAND
            and Path(job.argv[0]).name == "program"
            and (job.drive is not None) == (subject == "server")
        )
    runtime, package = {
        "installed": ("onnxruntime", ""),
        "own": ("mine.py", ""),
        "release": ("onnxruntime", "onnxruntime-1.19.2"),
        "separate": ("torch", "torch-2.13.0"),
    }[subject]
    if question == "bisect":
        package = {"installed": "onnxruntime-", "separate": "torch-"}.get(subject, "numpy-")
    here = str(environments.place())
    used = [word for word in start.argv if word.startswith(here)]
    return Path(job.runtime).name == runtime and (used[0].startswith(f"{here}/{package}") if package else not used)


def _masked(said: str) -> str:
    """The sentence without what is of one walk or one machine."""
    said = re.sub(r"\b(ssh|adb|labgrid):board\b|dask:tcp://[\d.:]*\d", "PLACE", said)
    said = re.sub(r"\S*/python3?\b", "PYTHON", said)
    said = re.sub(r"^-r [^:]+", "-r NAME", said)
    return said.replace(str(os.getpid()), "PID").replace("kind=board", "LABEL=VALUE")


def page(answers: dict[str, Answers]) -> str:
    """A row per place, reason and subjects, with the questions that have it in common; places with the same answers share their rows."""
    alike: list[tuple[list[str], Answers]] = []
    for place, found in answers.items():
        same = next((names for names, other in alike if other == found), None)
        if same is None:
            alike.append(([NAMES[place]], found))
        else:
            same.append(NAMES[place])
    lines = ["| place | question | subject | refused with |", "| --- | --- | --- | --- |"]
    for names, found in alike:
        questions: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for question in QUESTIONS:
            whys = dict.fromkeys(why for subject in SUBJECTS if (why := found[question, subject]))
            for why in whys:
                subjects = tuple(column for column, subject in zip(COLUMNS, SUBJECTS, strict=True) if found[question, subject] == why)
                questions.setdefault((why, subjects), []).append(f"`{question}`")
        for (why, subjects), refusing in questions.items():
            whom = "every subject" if len(subjects) == len(COLUMNS) else ", ".join(subjects)
            lines.append(f"| {', '.join(names)} | {', '.join(refusing)} | {whom} | {why} |")
    return "\n".join(["", *lines, "", ""])


# -- settings

NO_SWAP = GroupOrder("/memprof", (("memory.swap.max", "0"),))


def _has_python(end: Reached) -> bool:
    """Whether the interpreter is the runtime's, that of a release's environment, or on another machine the recorder's."""
    of_recorder = end.recorder_python == PYTHON and end.job.runtime == COMMAND
    return of_recorder or any(Path(word).name == PYTHON or f"-by-{PYTHON}/" in word for word in end.message.start.argv)


@dataclass(frozen=True)
class Heeded:
    """A setting in the words of the command line and of a suite's file, and whether what would be measured has it. program: with the words that it
    needs."""

    word: str
    line: str
    shows: Callable[[Reached], bool]
    program: str = "./program"


SHOWN = {
    "set": Heeded("malloc_arenas=3", "set = { malloc_arenas = 3 }", lambda end: end.message.start.env.get("MALLOC_ARENA_MAX") == "3"),
    "threads": Heeded("3", "threads = 3", lambda end: end.job.threads == 3, "./program {threads}"),
    "env": Heeded("A=b", "env = { A = 'b' }", lambda end: end.message.start.env.get("A") == "b"),
    "python": Heeded(PYTHON, f"python = '{PYTHON}'", _has_python),
    "shape": Heeded("x=1,64", "shape = { x = [1, 64] }", lambda end: end.job.shapes == {"x": (1, 64)}),
    "inputs": Heeded("in.npz", "inputs = 'in.npz'", lambda end: Path(end.job.inputs or "").name.endswith("in.npz")),
    "input": Heeded("x=1", "input = { x = 1 }", lambda end: end.job.values == {"x": "1"}),
    "name": Heeded("renamed", "name = 'renamed'", lambda end: end.job.model.name == "renamed"),
    "cwd": Heeded(
        "below", "cwd = 'below'", lambda end: end.job.program is not None and end.job.program.sha256 == sha256(BELOW.encode()).hexdigest()
    ),
    "phase": Heeded("load=main", "phase = { load = 'main' }", lambda end: end.job.phases == {"MODEL_LOAD": "main"}),
    "phase-regex": Heeded("load=^l", "phase_regex = { load = '^l' }", lambda end: end.job.phase_regexes == {"MODEL_LOAD": "^l"}),
    "drive": Heeded("http:1/x", "drive = 'http:1/x'", lambda end: end.job.drive == "GET /x, 1 at once"),
    "warmup": Heeded("3", "warmup = 3", lambda end: end.job.warmup == 3, "./program {warmup}"),
    "runs": Heeded("7", "runs = 7", lambda end: end.job.runs == 7, "./program {runs}"),
    "cache": Heeded("asis", "cache = 'asis'", lambda end: end.message.cache == "asis"),
    "deterministic": Heeded("", "deterministic = true", lambda end: end.message.start.deterministic),
    "cpus": Heeded("0", "cpus = '0'", lambda end: end.message.start.cpus == (0,)),
    "no-swap": Heeded("", "no_swap = true", lambda end: end.message.start.group == NO_SWAP),
    "recorder": Heeded("c", "recorder = 'c'", lambda end: end.recorder == "c"),
    "timeout": Heeded("7s", "timeout = '7s'", lambda end: end.message.timeout_ns == 7 * 10**9),
    "interval": Heeded("3ms", "interval = '3ms'", lambda end: end.message.intervals[""] == 3 * 10**6),
    "max-temperature": Heeded("45C", "max_temperature = '45C'", lambda end: end.order is not None and end.order.max_celsius == 45),
}


def test_settings_have_examples() -> None:
    assert list(SHOWN) == [setting.name for setting in SETTINGS]


@pytest.mark.long
@pytest.mark.parametrize("question", QUESTIONS)
def test_setting_heeded_or_refused(world: World, question: str) -> None:
    wrong = [
        f"{place}, {subject}: --{name}{f', of {program}' if subject == 'program' else ''}: {fault}"
        for place in ("here", *(("ssh",) if question in ON_BOARDS else ()), *(("fleet",) if question in ON_FLEETS else ()))
        for subject in {"attach": ("process",), "exec": ("program",)}.get(question, ("installed", "program"))
        for name, setting in SHOWN.items()
        for program in ({"./program": 1, setting.program: 1} if subject == "program" else ("./program",))
        if (fault := _fault(world, question, subject, place, name, program))
    ]

    assert not wrong, "\n".join(wrong)


def _fault(world: World, question: str, subject: str, place: str, name: str, program: str) -> str:
    """What is wrong with what comes of a setting; empty if it is heeded, or refused in a sentence. A comparison of several may say that none of them
    heeds it."""
    setting = SHOWN[name]
    given = (setting.line,) if question == "gate" else (f"--{name}", *([setting.word] if setting.word else []))
    end = world.walk(*world.words(question, subject, place, *given, program=program))
    if not isinstance(end, Reached):
        said = sentence(end)
        return "" if end.returncode in (2, 5) and not _SECOND_SENTENCE.search(said) else said
    said_so = [remark for remark in end.said if re.search(r"\b(has|have) no effect\b", remark)]
    if setting.shows(end):
        return " ".join(said_so)
    return "" if said_so and question in ("run", "gate") else "it is ignored"
