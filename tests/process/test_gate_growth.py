"""The gate's limits on growth: in a suite, which measures it, and among budgets, for runs of `memprof grow` too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.native_programs import program
from support.recorder_runs import FLOATS, KEEPER, runtime_file

from memprof.records import store
from memprof.verdicts import budgets


def limits(folder: Path, text: str) -> tuple[budgets.Budget, ...]:
    (folder / "budgets.toml").write_text(text)
    return budgets.read(folder / "budgets.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('variant = "x*"', "variant x* guards nothing: no model and variant of the suite match"),
        ('budget = "3"', "--budget 3: 32 units are the least that can be judged"),
    ],
)
def test_growth_unmeasurable_refused_first(memprof, scenario, tmp_path, text, said) -> None:
    scenario()
    (tmp_path / "suite.toml").write_text(
        f'models = ["scenario.json"]\nruntimes = ["synthetic"]\nrepeats = 1\nwarmup = 0\nruns = 1\n[[growth]]\nlimit = "0 B"\n{text}\n'
    )
    limits(tmp_path, 'peak = "1 GiB"\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl")

    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_suite_growth_of_program(memprof, tmp_path, nothing_left) -> None:
    body = 'memprof_begin("EXECUTE"); for (int n = 0; n < atoi(words[1]); n++) { hold(65536); memprof_iteration(); } memprof_end();'
    (tmp_path / "suite.toml").write_text(
        f'repeats = 1\nwarmup = 0\nruns = 1\n[[variant]]\nname = "engine"\ncmd = "{program(body)} {{runs}}"\n'
        '[[growth]]\nlimit = "1 KiB"\nbudget = "400"\n'
    )
    limits(tmp_path, 'peak = "1 GiB"\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl", "--format", "json")

    (row,) = [row for row in json.loads(done.stdout)["rows"] if row["metric"] == "growth_bytes"]
    assert (done.returncode, row["variant"], row["verdict"]) == (1, "engine", "over"), done.stdout


def test_suite_settings_hold_for_growth_and_laws(memprof, tmp_path) -> None:
    (tmp_path / "law.json").write_text('{"weights": ["4MiB"], "activations": ["1MiB"]}')
    # A suite may have settings for programs beside runtimes, which do not heed them.
    (tmp_path / "suite.toml").write_text(
        'models = ["law.json"]\nruntimes = ["synthetic"]\nrepeats = 1\nwarmup = 0\nruns = 1\n'
        'deterministic = true\ncpus = "0"\ncache = "cold"\nenv = { MADE_UP = "1" }\nphase_regex = { load = "ready" }\n'
        '[[growth]]\nlimit = "0 B"\nbudget = "40"\n[[law]]\nvary = "threads=1..8"\nlimit = "1 GiB"\npoints = 2\n'
    )
    limits(tmp_path, 'peak = "1 GiB"\n')

    memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl")

    for kind in ("growth", "law"):
        jobs = [run.job for run in store.load([tmp_path / f"out.{kind}.jsonl"]).runs]
        assert {(job.deterministic, job.cpus, job.cache, job.env["MADE_UP"]) for job in jobs} == {(True, "0", "cold", "1")}, kind


def test_suite_growth_finds_leak(memprof, scenario, tmp_path, nothing_left) -> None:
    scenario()
    runtime_file(tmp_path, top="kept = []", execute="kept.append(bytearray(b'1') * 65536)")
    (tmp_path / "suite.toml").write_text(
        'models = ["scenario.json"]\nrepeats = 1\nwarmup = 0\nruns = 1\n'
        '[[variant]]\nname = "leaks"\nruntime = "./mine.py"\n[[variant]]\nname = "fine"\nruntime = "synthetic"\n'
        '[[growth]]\nper = "iteration"\nlimit = "0 B"\nbudget = "400"\n'
    )
    limits(tmp_path, 'peak = "1 GiB"\n[[budget]]\nvariant = "leaks"\ngrowth_bytes = "1 MiB"\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl", "--format", "json")

    rows = {(row["variant"], row["budget"]): row for row in json.loads(done.stdout)["rows"] if row["metric"] == "growth_bytes"}
    assert {place: row["verdict"] for place, row in rows.items()} == {("leaks", 0): "over", ("leaks", 1 << 20): "ok", ("fine", 0): "ok"}
    assert done.returncode == 1
    kept = store.load([tmp_path / "out.growth.jsonl"]).runs
    assert {run.job.variant for run in kept} == {"leaks", "fine"} and len(kept) >= 6


def test_suite_growth_with_new_inputs(memprof, tmp_path) -> None:
    (tmp_path / "user.py").write_text(KEEPER.replace("SIGNATURE", FLOATS).replace("KEY", "self.array.tobytes()"))
    (tmp_path / "m.json").write_text("{}")
    (tmp_path / "suite.toml").write_text(
        'models = ["m.json"]\nruntimes = ["./user.py"]\nrepeats = 1\nwarmup = 0\nruns = 1\n[[growth]]\nlimit = "0 B"\nbudget = "400"\n'
    )
    limits(tmp_path, 'peak = "1 GiB"\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl", "--format", "json")

    (row,) = [row for row in json.loads(done.stdout)["rows"] if row["metric"] == "growth_bytes"]
    assert (done.returncode, row["verdict"]) == (1, "over"), done.stdout + done.stderr
    assert "more per iteration with new inputs only" in row["reason"]
