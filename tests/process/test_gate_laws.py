"""The gate's limits on the terms of laws, which a suite asks for."""

from __future__ import annotations

import json
import sys

import pytest

from memprof.records import store

KIB, MIB = 1024, 1024 * 1024


def write(tmp_path, law: str, limits: str = 'peak = "1 GiB"\n') -> None:
    (tmp_path / "suite.toml").write_text(
        'models = ["scenario.json"]\nrepeats = 1\nwarmup = 0\nruns = 1\n[[variant]]\nname = "net"\nruntime = "synthetic"\n'
        f'[[variant]]\nname = "program"\ncmd = "{sys.executable} -c pass"\n{law}'
    )
    (tmp_path / "budgets.toml").write_text(limits)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('vary = "batch=1..8"', "--vary batch: neither scenario.json nor synthetic has such a dimension"),
        ('vary = "x=8..1"', "HIGH is not below LOW"),
        ('vary = "x=1..8"\nper = "y"', "per 'y': 'y' is not a dimension that varies"),
        ('vary = ["x=1..8", "y=1..8"]', "x and y vary: per names the term"),
        ('vary = "x=3"', "nothing varies"),
        ('vary = "x=1..8"\nvariant = "program"', "guards nothing: a program has no dimensions to vary"),
        ('vary = "x=1..8"\nmodel = "other"', "guards nothing: no model and variant of the suite match"),
    ],
)
def test_law_refused_before_measurement(memprof, scenario, tmp_path, text, said) -> None:
    scenario()
    write(tmp_path, f'[[law]]\nlimit = "1 KiB"\n{text}\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl")

    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_law_limits_coefficient_and_keeps_runs(memprof, scenario, tmp_path, nothing_left) -> None:
    scenario(load=[{"allocate": "w", "bytes": {"": 30 * MIB, "x": MIB}}])
    laws = '[[law]]\nvary = "x=1..32"\nper = "x"\nlimit = "1.1 MiB"\npoints = 4\n[[law]]\nvary = "x=1..32"\nlimit = "0.5 MiB"\npoints = 3\n'
    write(tmp_path, laws)

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl", "--format", "json")

    assert done.returncode == 1, done.stderr
    rows = [row for row in json.loads(done.stdout)["rows"] if row["metric"] == "law_bytes"]
    assert {(row["variant"], row["phase"], row["verdict"], row["budget"]) for row in rows} == {
        ("net", "per x", "ok", int(1.1 * MIB)),
        ("net", "per x", "over", MIB // 2),
    }
    kept = store.load([tmp_path / "out.law.jsonl"]).runs
    assert len(kept) == 7 and {"net, x=1", "net, x=32"} <= {run.job.variant for run in kept}
