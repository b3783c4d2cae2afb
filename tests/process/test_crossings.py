"""Questions x subjects x places: each crossing comes to a measurement, or is refused in one sentence with the reason.

`make crossings` writes what is found here into docs/crossings.md; without it the page must say the same.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.crossings import PLACES, QUESTIONS, SUBJECTS, Reached, World, world  # noqa: F401  (the fixture)
from support.manual import ROOT
from support.recorder_runs import sentence

from memprof.programs import environments
from memprof.records.types import COMMAND

PAGE = ROOT / "docs" / "crossings.md"
WRITES = "MEMPROF_WRITES_CROSSINGS"
COLUMNS = ("installed runtime", "own runtime", "release", "separate environment", "program", "server under load", "running process")
NAMES = {"here": "Here", "ssh": "ssh:", "adb": "adb:", "labgrid": "labgrid:", "fleet": "A fleet, dask:"}
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
    assert not re.search(r"[.!?]( |$)", said), said
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
    """A table for all places that have the same, and the reasons."""
    alike: list[tuple[list[str], Answers]] = []
    for place, found in answers.items():
        same = next((names for names, other in alike if other == found), None)
        if same is None:
            alike.append(([NAMES[place]], found))
        else:
            same.append(NAMES[place])
    reasons = list(dict.fromkeys(why for _, found in alike for why in found.values() if why))
    parts = []
    for names, found in alike:
        lines = [f"## {', '.join(names)}", "", f"| | {' | '.join(COLUMNS)} |", f"| --- |{' --- |' * len(COLUMNS)}"]
        for question in QUESTIONS:
            cells = [str(reasons.index(why) + 1) if (why := found[question, subject]) else "yes" for subject in SUBJECTS]
            lines.append(f"| `{question}` | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    listed = "\n".join(f"{number}. {why}" for number, why in enumerate(reasons, 1))
    return "\n\n".join(["", *parts, f"## Reasons\n\n{listed}", ""]).removeprefix("\n")
