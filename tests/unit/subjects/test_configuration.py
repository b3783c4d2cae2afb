"""Defaults of memprof's configuration: used for what a suite lacks and its subjects heed, and sentences for those that are none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.configurations import configure, folder  # noqa: F401  (the fixture)
from support.manual import ROOT, blocks
from support.suites import one, program

from memprof.base.errors import InputError
from memprof.places import names
from memprof.places.place import Place
from memprof.subjects.configuration import with_defaults
from memprof.subjects.drive import parse as parse_drive
from memprof.subjects.settings import SETTINGS
from memprof.subjects.suite import Suite, Variant, parse_cmd

EVERY = """
[defaults]
set = { malloc_arenas = 1, mmap = true, prepacking = "off" }
threads = [1, 2]
env = { A = "1", B = 2 }
python = "venv/bin/python"
shape = { x = [1, 3], y = [] }
inputs = "inputs.npz"
input = { sr = 16000 }
name = "net"
cwd = "build"
phase = { load = "load_model" }
phase_regex = { execute = "^done" }
warmup = 1
runs = 7
cache = "cold"
deterministic = true
cpus = [0, 1, 3]
no_swap = true
recorder = "c"
timeout = "2min"
interval = "5ms"
max_temperature = "45C"
"""


def silent(sentence: str) -> None:
    pass


def both() -> Suite:
    """A model in a runtime, and a program that heeds all."""
    return Suite(models=("m",), variants=(Variant("synthetic"), parse_cmd("app=./app {model} {threads} {runs} {warmup}")))


def test_every_setting_has_default(folder: Path) -> None:
    configure(folder, EVERY)
    told: list[str] = []

    suite = with_defaults(both(), told.append)

    assert told == [
        f"defaults from {folder / 'memprof.toml'}: {', '.join(setting.parameter for setting in SETTINGS if setting.parameter in ALL)}"
    ]
    assert (suite.models, suite.variants) == (both().models, both().variants)
    assert suite.set == {"malloc_arenas": "1", "mmap": "on", "prepacking": "off"} and suite.env == {"A": "1", "B": "2"}
    assert suite.shapes == {"x": (1, 3), "y": ()} and suite.threads == (1, 2) and suite.name == "net"
    assert suite.phases == {"MODEL_LOAD": "load_model"} and suite.phase_regexes == {"EXECUTE": "^done"}
    assert (suite.python, suite.inputs, suite.cwd) == tuple(str(folder / path) for path in ("venv/bin/python", "inputs.npz", "build"))
    assert (suite.warmup, suite.runs, suite.cache, suite.deterministic, suite.cpus, suite.no_swap) == (1, 7, "cold", True, "0-1,3", True)
    assert (suite.recorder, suite.timeout_ns, suite.interval_ns, suite.max_celsius) == ("c", 120 * 10**9, 5 * 10**6, 45.0)


def test_words_of_suite_come_first(folder: Path) -> None:
    configure(folder, EVERY)
    own: dict[str, Any] = {"threads": (4,), "env": {"A": "own"}, "set": {"mmap": "off"}, "deterministic": False, "runs": 0, "timeout_ns": 1}

    suite = with_defaults(one("m", **own), silent)

    assert (suite.threads, suite.deterministic, suite.runs, suite.timeout_ns, suite.warmup) == ((4,), False, 0, 1, 1)
    assert suite.env == {"A": "own", "B": "2"} and suite.set == {"malloc_arenas": "1", "mmap": "off", "prepacking": "off"}


def test_manual_example_is_read(folder: Path) -> None:
    page = ROOT / "docs/configuration.md"
    (text,) = blocks(page, "toml")
    configure(folder, text)
    named = re.findall(r"`([a-z_]+)`", page.read_text().partition("`[defaults]` has settings")[2].partition(". An option")[0])

    assert used(one("m")) == {"timeout", "threads", "cpus", "env"}
    assert list(names.known()) == ["board", "tv", "lab"]
    assert sorted(named) == sorted(ALL)


@pytest.mark.parametrize("text", ["", "[defaults]\n", "insecure_fleet = true\n", "[defaults]\nruns = 3\nphase = { load = 'f' }\n"])
def test_defaults_without_effect_are_silent(folder: Path, text: str) -> None:
    configure(folder, text)
    suite = one("m", runs=3)

    assert with_defaults(suite, pytest.fail) == suite


def used(suite: Suite, **words: Any) -> set[str]:
    told: list[str] = []
    with_defaults(suite, told.append, **words)
    return set(told[0].partition(": ")[2].split(", "))


ALL = {setting.parameter for setting in SETTINGS} - {"drive"}
FOR_RUNTIMES = {"python", "shape", "inputs", "input"}
FOR_PROGRAMS = {"cwd", "phase", "phase_regex"}


def test_unheeded_defaults_unused(folder: Path) -> None:
    configure(folder, EVERY)

    assert used(both()) == ALL
    assert used(one("m")) == ALL - FOR_PROGRAMS
    assert used(program("./app {threads} {runs} {warmup}")) == ALL - FOR_RUNTIMES
    assert used(program("./app {runs}")) == ALL - FOR_RUNTIMES - {"threads", "warmup"}
    assert used(program("./server", drive=parse_drive("openai:80"))) == ALL - FOR_RUNTIMES - {
        "threads",
        "phase",
        "phase_regex",
    }


ELSEWHERE = cast(Place, SimpleNamespace(name="ssh:board"))


@pytest.mark.parametrize("far", [lambda suite: used(suite, on_fleet=True), lambda suite: used(Suite(place=ELSEWHERE).over(suite))])
def test_elsewhere_no_interpreter_nor_gdb(folder: Path, far: Callable[[Suite], set[str]]) -> None:
    configure(folder, EVERY)

    assert far(both()) == ALL - {"python", "phase"}


def test_version_has_own_interpreter(folder: Path) -> None:
    configure(folder, EVERY)

    assert "python" not in used(one("m", "onnxruntime@1.19"))
    assert "python" not in used(Suite(models=("m",), runtimes=("onnxruntime@1.19", "litert")))


def test_varied_dimension_has_no_default(folder: Path) -> None:
    configure(folder, EVERY)

    suite = with_defaults(one("m"), silent, varied={"threads", "malloc_arenas", "batch"})

    assert suite.threads == () and suite.set == {"mmap": "on", "prepacking": "off"}


def test_interpreter_by_name_stays(folder: Path) -> None:
    configure(folder, "[defaults]\npython = 'python3.12'\ninputs = '~/x.npz'\n")

    suite = with_defaults(one("m"), silent)

    assert (suite.python, suite.inputs) == ("python3.12", str(Path("~/x.npz").expanduser()))


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("timout = '1s'", "there is no default 'timout'; did you mean timeout?"),
        ("no-swap = true", "there is no default 'no-swap'; did you mean no_swap"),
        ("drive = 'openai:80'", "there is no default 'drive'"),
        ("timeout = 'soon'", "default timeout: "),
        ("timeout = 1.5", "default timeout: Expected `str`, got `float`"),
        ("threads = 'many'", "default threads: Expected `int | array`, got `str`"),
        ("cpus = '0-x'", "default cpus: --cpus '0-x': write numbers"),
        ("runs = '3'", "default runs: Expected `int`, got `str`"),
        ("runs = true", "default runs: Expected `int`, got `bool`"),
        ("no_swap = 1", "default no_swap: Expected `bool`, got `int`"),
        ("cache = 'hot'", "default cache: Invalid enum value 'hot'"),
        ("python = true", "default python: Expected `str`, got `bool`"),
        ("env = 'A=1'", "default env: Expected `object`, got `str`"),
        ("env = { A = true }", "default env: Expected `int | str`, got `bool`"),
        ("shape = { x = ['a'] }", "default shape: Expected `int`, got `str`"),
    ],
)
def test_default_refusals_name_file(folder: Path, entry: str, sentence: str) -> None:
    path = configure(folder, f"[defaults]\n{entry}\n")
    with pytest.raises(InputError) as refused:
        with_defaults(program("./app"), silent)  # which heeds few of them: what is wrong is said all the same

    assert str(refused.value).startswith(f"{path}: {sentence}")
