"""Odd surroundings: pipes and streams that are closed, names that hold anything, files and variables that Python would take for its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.recorder_runs import PYTHON, QUICK, runs_in, runtime_file, sentence, started

pytestmark = pytest.mark.usefixtures("nothing_left")

ONCE = ["run", "quick.json", "-r", "synthetic", "--repeats", "1", "-o", "runs.jsonl"]
COMMAND = f"{PYTHON} -m memprof {' '.join(ONCE)}"


@pytest.fixture
def folder(tmp_path, scenario):
    scenario("quick.json", **QUICK)
    return tmp_path


def shell(folder, line):
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_run_output_pipe_closed_early(folder):
    done = shell(folder, f"set -o pipefail; {COMMAND} | head -n 1")

    assert done.returncode == 0 and done.stdout.startswith("quick.json, synthetic: PEAK is ") and done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_run_failure_with_closed_pipe(folder, scenario):
    scenario("quick.json", load=[{"exit": 1}])

    done = shell(folder, f"{COMMAND} | true; exit ${{PIPESTATUS[0]}}")

    assert done.returncode == 4


def test_run_survives_closed_log(folder):
    with started(folder, *ONCE) as process:
        process.stderr.close()
        out = process.stdout.read()
        process.wait()

    assert process.returncode == 0
    assert out.startswith("quick.json, ")
    assert len(runs_in(folder / "runs.jsonl")) == 1


def test_refusal_exit_code_without_stderr(folder):
    done = shell(folder, f"{PYTHON} -m memprof run none.json -r synthetic 2>&-")

    assert (done.returncode, done.stdout) == (5, "")


def test_runtimes_command_pipe_closed_early(folder):
    done = shell(folder, f"set -o pipefail; {PYTHON} -m memprof runtimes | head -n 1")

    assert done.returncode == 0
    assert done.stderr == ""


def test_model_names_with_any_characters(tmp_path, memprof):
    place = tmp_path / "a place, mit Umlauten äöü 模型"
    place.mkdir()
    names = ["a|b.json", "<b>.json", "two\nlines.json", "`x`.json", "x" * 200 + ".json", "ünï.json"]
    for name in names:
        (place / name).write_text(json.dumps(QUICK))

    done = memprof("run", *names, "-r", "synthetic", "--repeats", "1", "--runs", "1", "-o", "runs of mine.jsonl", cwd=place)

    assert done.returncode == 0, done.stderr
    assert [run["job"]["model"]["name"] for run in runs_in(place / "runs of mine.jsonl")] == names
    assert sum(line.startswith("[") for line in done.stderr.splitlines()) == len(names)
    assert {line[0] for line in done.stderr.splitlines()} <= set("[16tm")
    titles = [line for line in done.stdout.splitlines() if ", warming up " in line]
    shown = ["a\\|b.json", "`<b>.json`", "two lines.json", "\\`x\\`.json", "x" * 200 + ".json", "ünï.json"]
    assert [title.split(", warming up")[0] for title in titles] == shown


def test_model_name_newline_refused_in_line(memprof, tmp_path):
    done = memprof("run", "no\nsuch.json", "-r", "synthetic")

    assert sentence(done) == "memprof: model no such.json: no such file"


def test_model_name_not_utf8_refused(memprof, tmp_path):
    name = os.fsdecode(b"not \xff UTF-8.json")
    (tmp_path / name).write_text(json.dumps(QUICK))

    done = memprof("run", name, "-r", "synthetic", "-o", "runs.jsonl")

    assert done.returncode == 5
    assert done.stderr.splitlines()[-1].endswith("is not UTF-8")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs.jsonl").exists()


def test_terminal_without_sign_gets_escape(folder, memprof):
    latin = {"env": {**os.environ, "PYTHONIOENCODING": "latin-1"}, "encoding": "latin-1"}

    done = memprof(*ONCE, "--name", "模型 ±", **latin)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith("\\u6a21\\u578b ±, warming up")


def test_working_folder_modules_ignored(folder):
    for name in ("json", "select", "array", "marks", "runtimes", "memprof", "sitecustomize"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong file')\n")
    command = Path(sys.executable).with_name("memprof")  # with -m, Python itself would look into the working folder

    done = subprocess.run([command, *ONCE], cwd=folder, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert runs_in(folder / "runs.jsonl")[0]["outcome"]["status"] == "ok"


VARIABLES = [
    {"PYTHONOPTIMIZE": "2", "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "7"},
    {"PYTHONVERBOSE": "1", "PYTHONMALLOC": "debug", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("variables", VARIABLES)
def test_python_environment_variables_harmless(folder, memprof, variables):
    if variables.get("LC_ALL") == "C" and not sys.executable.isascii():
        pytest.skip("without UTF-8 mode such a locale has no name for this interpreter's path, and memprof says so")
    done = memprof(*ONCE, env={**os.environ, **variables}, stdin=subprocess.DEVNULL)

    assert done.returncode == 0, done.stderr
    (run,) = runs_in(folder / "runs.jsonl")
    assert run["outcome"]["status"] == "ok"
    assert "quick.json, warming up" in done.stdout


def test_nested_memprof_keeps_own_marks(folder, memprof):
    """memprof in a program that memprof measures: its marks go to its own recorder."""
    command = [sys.executable, "-m", "memprof", *ONCE]
    runtime_file(folder, load=f"subprocess.run({command}, check=True)")

    done = memprof("run", "quick.json", "-r", "./mine.py", "--repeats", "1", "-o", "outer.jsonl")

    assert done.returncode == 0, done.stdout
    for name in ("outer.jsonl", "runs.jsonl"):
        (run,) = runs_in(folder / name)
        assert [mark["phase"] for mark in run["marks"]] == ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE", "RELEASE"]
        assert run["warnings"] == []
