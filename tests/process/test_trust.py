"""A runs file is data: what it names is measured again only where the user says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.attacks.hostile import FOREIGN

from memprof import zoo
from memprof.plan import executed
from memprof.plan.graphs.read import read
from memprof.records import store

# A runtime in a file, as a stranger might plant it: it leaves a trace when it is only looked at.
PLANTED = """
import pathlib
pathlib.Path(__file__).with_name("executed").touch()
class Runtime:
    formats = (".bin",)
    def load(self, model, options): pass
    def prepare(self): pass
    def execute(self): pass
"""
# Of a stranger: a runtime, and an interpreter too.
THEIRS = f"#!/bin/sh\n'''true'\ntouch theirs\nexit 0\n'''\n{PLANTED}".replace("executed", "theirs")
TUNED = ("model.bin", "-r", "./planted.py", "--try", "malloc_arenas=1", "--time", "1s")


@pytest.fixture
def mine(memprof, tmp_path):
    """runs.jsonl: five runs of a runtime in a file, and `executed`, which the runtime leaves, is gone again."""
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "model.bin").write_bytes(b"model")
    done = memprof("run", "model.bin", "-r", "./planted.py", "--warmup", "0", "--runs", "1", "--repeats", "1", "-o", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    (tmp_path / "executed").unlink()
    path = tmp_path / "runs.jsonl"
    (measured,) = store.load([path]).runs
    path.write_bytes(b"".join(store.encode(replace(measured, job=replace(measured.job, repeat=repeat))) for repeat in range(1, 6)))
    return path


def rewritten(path: Path, **changes: object) -> None:
    """The file as a stranger makes it: the same runs, but for these fields of each job."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["job"].update(changes)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def confirmed(memprof, *words):
    # --prove measures again whatever the verdict.
    return memprof("gate", "runs.jsonl", "--baseline", "runs.jsonl", "--prove", "-o", "new.jsonl", *words)


def test_prove_names_programs_first(memprof, mine, tmp_path):
    done = confirmed(memprof, "--trust-runs")

    assert done.returncode in (0, 3), done.stderr
    assert (tmp_path / "executed").exists() and (tmp_path / "new.checks.jsonl").exists()
    lines = done.stderr.splitlines()
    (shown,) = [number for number, line in enumerate(lines) if "as the runs file says: runtime " in line]
    assert f"{tmp_path}/planted.py, interpreter " in lines[shown]
    assert shown < min(number for number, line in enumerate(lines) if re.match(r"\[\d+/", line))


@pytest.mark.parametrize("changes", FOREIGN, ids=lambda changes: next(iter(changes)))
def test_prove_refuses_foreign_runs(memprof, mine, tmp_path, changes):
    rewritten(mine, **changes)

    done = confirmed(memprof)

    assert (done.returncode, done.stdout) == (5, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("memprof: --prove executes what the runs file names for model.bin, planted: runtime ")
    assert line.endswith("; if you trust the file, allow it with --trust-runs") and "\x1b" not in line and "\x07" not in line
    assert not (tmp_path / "executed").exists() and not (tmp_path / "new.checks.jsonl").exists()


def test_prove_shows_foreign_command(memprof, mine, tmp_path):
    """It is what would be executed; the runtime of a program is only called `command`."""
    rewritten(mine, argv=("/bin/sh", "-c", "touch executed \x1b[2K"), cwd="/tmp/theirs")

    done = confirmed(memprof)

    assert done.returncode == 5
    assert ": program /bin/sh -c 'touch executed \\x1b[2K', folder /tmp/theirs, no variables; if you trust" in done.stderr
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("option", ["--confirm", "--prove"])
def test_gate_without_trust_executes_nothing(memprof, mine, tmp_path, option):
    refused = memprof("gate", "runs.jsonl", "--baseline", "runs.jsonl", option)

    assert refused.returncode == 5 and f"memprof: {option} executes what the runs file names" in refused.stderr
    assert memprof("gate", "runs.jsonl", "--baseline", "runs.jsonl").returncode == 0
    assert not (tmp_path / "executed").exists()


def test_trust_runs_allows_foreign_runs(memprof, mine, tmp_path):
    rewritten(mine, env={"HELLO": "1"})

    done = confirmed(memprof, "--trust-runs")

    assert done.returncode in (0, 3), done.stderr
    assert "HELLO=1" in done.stderr and (tmp_path / "executed").exists()


def test_trust_runs_needs_confirm_or_prove(memprof, mine):
    done = memprof("gate", "runs.jsonl", "--baseline", "runs.jsonl", "--trust-runs")
    assert (done.returncode, done.stderr) == (2, "memprof: --trust-runs goes with --confirm or --prove, of runs from a file\n")


def test_tune_leaves_out_foreign_settings(memprof, mine):
    rewritten(mine, knobs={"preload": "/tmp/evil.so"})

    done = memprof("tune", *TUNED, "-o", "runs.jsonl", "--append")

    assert done.returncode == 0, done.stderr
    assert "5 runs of the -o file left out: their settings are none that this search tries" in done.stderr.splitlines()
    added = store.load([mine]).runs[5:]
    assert added and not any("preload" in run.job.knobs for run in added)


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"runtime": "./theirs.py"}, 5), ({"python": "./theirs.py"}, 0), ({"env": {"LD_PRELOAD": "/tmp/evil.so"}}, 0)],
    ids=["runtime", "python", "env"],
)
def test_tune_executes_nothing_of_foreign_runs(memprof, mine, tmp_path, changes, code):
    (tmp_path / "theirs.py").write_text(THEIRS)
    (tmp_path / "theirs.py").chmod(0o755)
    rewritten(mine, **changes)

    done = memprof("tune", *TUNED, "-o", "runs.jsonl", "--append")

    assert done.returncode == code, done.stderr
    assert not (tmp_path / "theirs").exists()
    assert not any(run.job.env for run in store.load([mine]).runs[5:])


def test_function_from_foreign_file_refused(memprof, tmp_path):
    (tmp_path / "evil.py").write_text(PLANTED)
    asked = {"module": "evil", "file": str(tmp_path / "evil.py"), "name": "Runtime", "path": [], "call": "", "token": ""}
    (tmp_path / "evil.json").write_text(json.dumps(asked))
    runner = Path(__file__).parents[2] / "runners/function.py"

    done = memprof("run", "evil.json", "-r", runner, "--repeats", "1", "-o", "new.jsonl")

    assert done.returncode == 4
    assert "was not written by the test that measures it" in done.stderr
    assert not (tmp_path / "executed").exists()


def test_planner_ignores_module_in_folder(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    zoo.make("mnist", tmp_path / "m.onnx", format="onnx")
    (tmp_path / "onnxruntime.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    monkeypatch.chdir(tmp_path)

    order = executed.onnxruntime_order(read(Path("m.onnx")))

    assert order.order and not (tmp_path / "executed").exists()
