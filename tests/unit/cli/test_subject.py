"""The words for what is measured: the same in every question, and a Suite of them."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

import click
import pytest

from memprof.base.errors import UsageError
from memprof.cli.subject import Question, Words, subject
from memprof.places.place import HERE
from memprof.records.types import COMMAND
from memprof.subjects.settings import SETTINGS
from memprof.subjects.suite import Suite

QUESTIONS = ("explain", "fit", "grow", "scale", "tune")


@pytest.mark.parametrize("name", QUESTIONS)
def test_question_takes_every_setting(name: str) -> None:
    command = import_module(f"memprof.cli.{name}").command
    options = {option for parameter in command.params for option in parameter.opts}

    assert isinstance(command, Question)
    assert {f"--{setting.name}" for setting in SETTINGS} <= options
    assert {"-r", "models"} <= options


def test_every_setting_is_a_suite_field() -> None:
    names = [setting.field for setting in SETTINGS]

    assert set(names) <= {field.name for field in fields(Suite)}
    assert len(set(names)) == len(names)


def parsed(*arguments: str) -> Words:
    seen: list[Words] = []

    @click.command(cls=Question)
    @subject
    def command(subject: Words) -> None:
        seen.append(subject)

    command.main(list(arguments), standalone_mode=False)
    return seen[0]


def test_settings_become_suite_fields() -> None:
    words: list[Any] = [
        "m.onnx",
        "-r",
        "onnxruntime@1.19.2",
        "--set",
        "arena=off",
        "--set",
        "mode=parallel",
        "--threads",
        "1,2",
        "--env",
        "A=b",
    ]
    words += ["--shape", "x=1,3", "--cpus", "3,0-1", "--no-swap", "--deterministic", "--timeout", "2s", "--runs", "7", "--cache", "cold"]

    suite = parsed(*words).suite(HERE)

    assert suite.models == ("m.onnx",) and suite.only.runtime == "onnxruntime@1.19.2"
    assert suite.set == {"arena": "off", "mode": "parallel"} and suite.threads == (1, 2) and suite.env == {"A": "b"}
    assert suite.shapes == {"x": (1, 3)} and suite.cpus == "0-1,3" and suite.no_swap and suite.deterministic
    assert (suite.timeout_ns, suite.runs, suite.cache, suite.warmup) == (2 * 10**9, 7, "cold", None)


def test_program_behind_dashes() -> None:
    suite = parsed("m.bin", "--timeout", "1s", "--", "A=1", "./engine", "--set", "x", "{model}").suite(HERE)

    command = suite.only.command
    assert suite.only.runtime == COMMAND and command is not None
    assert (command.argv, command.env) == (("./engine", "--set", "x", "{model}"), {"A": "1"})
    assert suite.models == ("m.bin",) and suite.set == {}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("m", "-r", "a", "--", "b"), "a runtime, or a program"),
        (("m",), "name a runtime, -r NAME, or a program"),
        (("m", "-r", "a", "--phase", "load=f"), "--phase is for a program"),
        (("m", "-r", "a", "--phase-regex", "load=f"), "--phase-regex is for a program"),
        (("m", "-r", "a", "--cwd", "."), "--cwd is for a program"),
        (("--shape", "x=1", "--", "b"), "--shape is for a runtime"),
        (("--inputs", "x.npz", "--", "b"), "--inputs is for a runtime"),
        (("--python", "python3", "--", "b"), "--python is for a runtime"),
        (("m", "n", "-r", "a"), "these are m, n"),
    ],
)
def test_subject_of_one_thing(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        assert parsed(*words).suite(HERE).only
