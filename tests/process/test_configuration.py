"""memprof's configuration from end to end: what is measured has its defaults, and what only reads never looks at it."""

from __future__ import annotations

import pytest
from support.recorder_runs import runs_in, sentence

ONE = ("--repeats", "1")


def test_run_takes_defaults(memprof, scenario, tmp_path):
    scenario("m.json")
    (tmp_path / "pyproject.toml").write_text(
        "[tool.memprof.defaults]\nruns = 2\nwarmup = 1\nenv = { A = '1' }\nno_swap = false\ndeterministic = true\n"
    )
    (tmp_path / "below").mkdir()
    (tmp_path / "suite.toml").write_text("models = ['m.json']\nruntimes = ['synthetic']\nrepeats = 1\nruns = 3\n")

    done = memprof(
        "run", "../m.json", "-r", "synthetic", *ONE, "--warmup", "0", "--no-deterministic", "-o", "../runs.jsonl", cwd=tmp_path / "below"
    )
    of_suite = memprof("run", "--suite", "suite.toml", "-o", "suite.jsonl")

    assert done.returncode == of_suite.returncode == 0, done.stderr
    (job,) = [run["job"] for run in runs_in(tmp_path / "runs.jsonl")]
    assert (job["runs"], job["warmup"], job["env"], job["deterministic"]) == (2, 0, {"A": "1"}, False)
    assert f"memprof: defaults from {tmp_path / 'pyproject.toml'}: runs, env, no_swap\n" in done.stderr
    (job,) = [run["job"] for run in runs_in(tmp_path / "suite.jsonl")]
    assert (job["runs"], job["warmup"], job["deterministic"]) == (3, 1, True)


def test_exec_takes_defaults(memprof, tmp_path):
    (tmp_path / "memprof.toml").write_text("[defaults]\nenv = { GREETING = 'hello' }\nthreads = 2\nruns = 7\nshape = { x = [1] }\n")

    done = memprof("exec", "-o", "runs.jsonl", "--", "sh", "-c", 'test "$GREETING" = hello')

    assert done.returncode == 0, done.stderr
    assert f"memprof: defaults from {tmp_path / 'memprof.toml'}: env\n" in done.stderr
    assert runs_in(tmp_path / "runs.jsonl")[0]["job"]["threads"] is None


def test_gate_takes_defaults(memprof, scenario, tmp_path):
    scenario("m.json")
    (tmp_path / "memprof.toml").write_text("[defaults]\nruns = 2\n")
    (tmp_path / "suite.toml").write_text("models = ['m.json']\nruntimes = ['synthetic']\nrepeats = 1\n")
    (tmp_path / "budgets.toml").write_text("[[budget]]\npeak = '1GiB'\n")

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "runs.jsonl")

    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"defaults from {tmp_path / 'memprof.toml'}: runs") == 1
    assert [run["job"]["runs"] for run in runs_in(tmp_path / "runs.jsonl")] == [2]


def test_broken_configuration_refuses_measuring_only(memprof, scenario, tmp_path):
    scenario("m.json")
    assert memprof("run", "m.json", "-r", "synthetic", *ONE, "-o", "runs.jsonl").returncode == 0
    (tmp_path / "memprof.toml").write_text("[defaults]\ntimout = '1s'\n")

    for words in (("run", "m.json", "-r", "synthetic"), ("exec", "--", "true"), ("fit", "m.json", "-r", "synthetic")):
        refused = memprof(*words)
        assert refused.returncode == 5
        assert sentence(refused) == f"memprof: {tmp_path / 'memprof.toml'}: there is no default 'timout'; did you mean timeout?"
    read = memprof("table", "runs.jsonl")
    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize("words", [("run", "m.json", "-r", "synthetic"), ("exec", "--", "true"), ("runtimes",), ("doctor",), ("clean",)])
def test_on_takes_named_place(memprof, tmp_path, words):
    (tmp_path / "memprof.toml").write_text("[places]\nboard = 'ssh:nobody@127.0.0.1:1'\n")

    done = memprof(words[0], "--on", "board", *words[1:])

    assert done.returncode == 5
    assert "ssh:nobody@127.0.0.1:1" in sentence(done)
