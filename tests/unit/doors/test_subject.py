"""The words for what is measured: the same in every question, and a Suite of them."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import fields
from support.configurations import configure, folder  # noqa: F401  (the fixture)

from memprof.base.errors import InputError, UsageError
from memprof.doors.cli.subject import QuestionCommand, Words, subject
from memprof.places.place import HERE
from memprof.records.types import COMMAND
from memprof.subjects.settings import SETTINGS
from memprof.subjects.suite import Suite

QUESTIONS = ("explain", "fit", "grow", "scale", "tune")


@pytest.mark.parametrize("name", QUESTIONS)
def test_question_takes_every_setting(name: str) -> None:
    command = import_module(f"memprof.doors.cli.{name}").command
    options = {option for parameter in command.params for option in parameter.opts}

    assert isinstance(command, QuestionCommand)
    assert {f"--{setting.name}" for setting in SETTINGS} <= options
    assert {"-r", "models"} <= options


def test_every_setting_is_a_suite_field() -> None:
    names = [setting.field for setting in SETTINGS]

    assert set(names) <= {field.name for field in fields(Suite)}
    assert len(set(names)) == len(names)


def parsed(*arguments: str) -> Words:
    seen: list[Words] = []

    @click.command(cls=QuestionCommand)
    @subject
    def command(subject: Words) -> None:
        seen.append(subject)

    command.main(list(arguments), standalone_mode=False)
    return seen[0]


def test_settings_become_suite_fields() -> None:
    words = ["m.onnx", "-r", "onnxruntime@1.19.2", "--set", "arena=off", "--set", "mode=parallel", "--threads", "1,2", "--env", "A=b"]
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


def test_name_names_program_wholly() -> None:
    named, plain = (parsed(*words, "--", "./app5", "x").suite(HERE) for words in (("--name", "app"), ()))

    assert (named.name, named.only.name) == ("app", "app")
    assert (plain.name, plain.only.name) == (None, "app5")


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
        (("--runs", "3", "--", "b", "{warmup}"), "b: write {runs} where the number goes, or give no --runs"),
        (("--warmup", "3", "--", "b"), "b: write {warmup} where the number goes, or give no --warmup"),
        (("4711",), "4711 is not a file; a process that already runs can only be polled: memprof attach 4711"),
        (("m", "n", "-r", "a"), "these are m; n"),
    ],
)
def test_subject_of_one_thing(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        assert parsed(*words).suite(HERE).only


def test_program_elsewhere_takes_python_of_recorder() -> None:
    class There: ...

    assert parsed("--python", "python3", "--", "b").suite(There()).python is None  # type: ignore[arg-type]


def test_numbers_of_a_file_and_of_requests(folder: Path) -> None:
    (folder / "4711").write_bytes(b"model")

    assert parsed("4711", "-r", "a").suite(HERE).models == ("4711",)
    assert parsed("--runs", "3", "--drive", "http:80", "--", "b").suite(HERE).runs == 3


def test_question_takes_defaults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = configure(folder, "[defaults]\nrecorder = 'c'\nenv = { A = '1' }\npython = 'python3'\n")

    suite = parsed("m", "-r", "synthetic", "--env", "A=2").suite(HERE)

    assert (suite.recorder, suite.env, suite.python) == ("c", {"A": "2"}, "python3")
    assert capsys.readouterr().err == f"memprof: defaults from {path}: recorder, python\n"


@pytest.mark.parametrize("words", [("run",), ("tune",), ("scale", "--vary", "threads=1..4")])
def test_defaults_on_fleet(folder: Path, memprof: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    seen: list[Suite] = []

    def stop(suite: Suite, *rest: Any, **others: Any) -> None:
        seen.append(suite)
        raise InputError("it is enough")

    configure(folder, "[defaults]\ntimeout = '1s'\nthreads = 2\npython = 'python3'\n[places]\nlab = 'dask:tcp://127.0.0.1:1'\n")
    monkeypatch.setattr("memprof.doors.cli.fleet.searching", nullcontext)
    monkeypatch.setattr("memprof.doors.cli.fleet.measure_on_fleet", stop)
    if words[0] != "run":
        monkeypatch.setattr(f"memprof.doors.cli.{words[0]}._request", stop)

    assert "it is enough" in memprof(*words, "m", "-r", "synthetic", "--on", "lab", cwd=folder).stderr
    assert [(suite.timeout_ns, suite.python) for suite in seen] == [(10**9, None)]
    assert seen[0].threads == (() if words[0] == "scale" else (2,))


def test_recordings_of_fleet_refused(folder: Path, memprof: Any) -> None:
    done = memprof("run", "m", "-r", "synthetic", "--on", "dask:tcp://127.0.0.1:1", "--keep-recording", cwd=folder)

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("memprof: --keep-recording does not go with a fleet: ")
