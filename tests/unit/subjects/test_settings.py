"""The table of settings: what the command line reads is what it writes."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from msgspec.structs import asdict, replace

from memprof.doors.cli.subject import setting_option
from memprof.subjects import suite
from memprof.subjects.drive import Drive
from memprof.subjects.settings import OF_A_SUITE, fields, options
from memprof.subjects.suite import Suite, Variant, file_lines

GIVEN = {
    "set": {"arena": "off", "a": "b=c"},
    "threads": (1, 4),
    "env": {"A": "", "B": "x y"},
    "python": "/opt/python",
    "shapes": {"x": (1, 3), "scalar": ()},
    "inputs": "a b.npz",
    "values": {"h": "640"},
    "name": "net",
    "cwd": "build",
    "phases": {"MODEL_LOAD": "load"},
    "phase_regexes": {"EXECUTE": "^a=b, .*$"},
    "drive": Drive("127.0.0.1", 8080, parallel=3, distinct=2),
    "warmup": 0,
    "runs": 7,
    "cache": "cold",
    "deterministic": True,
    "cpus": "0-1,3",
    "no_swap": False,
    "recorder": "c",
    "timeout_ns": 90_000_000_000,
    "interval_ns": 500_000,
    "max_celsius": 45.5,
    "repeats": 3,
    "release": False,
}


def read(words: list[str]) -> dict[str, object]:
    """The fields that a command line with these words has."""
    command = click.Command("any", callback=lambda **given: fields(given, ""))
    for setting in OF_A_SUITE:
        command = setting_option(setting)(command)
    with click.Context(command) as context:
        command.parse_args(context, words)
        return fields(context.params, "")


@pytest.mark.parametrize("name", GIVEN)
def test_setting_written_as_it_is_read(name: str) -> None:
    assert read(options({name: GIVEN[name]})) == {name: GIVEN[name]}


@pytest.mark.parametrize("name", [name for name in GIVEN if name not in ("inputs", "cwd")])  # paths are relative to a file
def test_setting_written_to_file_as_read(name: str, tmp_path: Path) -> None:
    given = replace(Suite(models=("/m.onnx",), variants=(Variant("onnxruntime", set={"arena": "off"}),)), **{name: GIVEN[name]})
    (tmp_path / "suite.toml").write_text("\n".join(file_lines(given)))

    found = suite.read(tmp_path / "suite.toml")

    assert (found.models, found.runtimes) == (given.models, ("onnxruntime",))
    assert getattr(found, name) == getattr(given.together, name) and found.set["arena"] == "off"


def test_all_settings_written_together() -> None:
    assert {setting.field for setting in OF_A_SUITE} == set(GIVEN)
    assert read(options(GIVEN)) == GIVEN
    assert options(asdict(Suite())) == []


@pytest.mark.parametrize(
    "load",
    [Drive("::1", 1, kind="http", path="/"), Drive("host", 8000, kind="http", path="/v1/p", body="a.jsonl", parallel=4)],
)
def test_load_written_as_it_is_read(load: Drive) -> None:
    assert read(options({"drive": load})) == {"drive": load}
