"""Searches on a fleet: what they ask for at one time is measured at once, and what is set side by side stays on one machine."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import wheels
from support.checkout import Checkout
from support.fleets import fleet
from support.recorder_runs import wait_for
from support.tune_runtime import COMMON, RUNTIME

pytestmark = pytest.mark.xdist_group("fleet")  # one worker makes what its tests share

if importlib.util.find_spec("distributed") is None:  # it takes half a second to import, in each worker
    pytest.skip("distributed is not installed", allow_module_level=True)

from memprof.campaign.fleet import scheduler_client
from memprof.footprint.tune import tuner
from memprof.records import store
from memprof.regressions.bisect import search

FIXED = (*COMMON, "--set", "slow=no", "--set", "idle=a", "--set", "bad=no")


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """A scheduler and two workers of one kind, each with this machine. Their pip sees two releases of a made onnxruntime; the newer holds more."""
    with fleet(tmp_path_factory.mktemp("twins")) as made:
        (made.folder / "wheels").mkdir()
        for version in ("1.20.0", "1.22.0"):
            wheels.onnxruntime(made.folder / "wheels", version, "_HELD = b'1' * (30 << 20)\n" if version >= "1.22" else "")
        wheels.numpy(made.folder / "wheels", "2.1.0")
        with pytest.MonkeyPatch.context() as patch:
            wheels.only(patch, made.folder / "wheels", made.folder)
            for name in ("left", "right"):
                made.begin(name, "--labels", "kind=twin")
        made.wait_for_offers()
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(scheduler_client, "_LOOK_S", 0.2)
    monkeypatch.setattr(tuner, "VERIFYING_REPEATS", 2)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(RUNTIME)
    (tmp_path / "model.bin").write_bytes(b"model")
    return tmp_path


def tuning(twins, *words):
    return ("tune", "model.bin", "-r", "./mine.py", *FIXED, *words, "--on", f"dask:{twins.address}", "-o", "runs.jsonl", "--json")


def test_tune_across_machines_verified_on_one(memprof, twins, folder):
    done = memprof(*tuning(twins, "--try", "copies=1", "--try", "rounding=half"), cwd=folder)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    runs = store.load([folder / "runs.jsonl"]).runs
    tried, verifying = [run for run in runs if not run.job.verifies], [run for run in runs if run.job.verifies]
    assert answer["best"] == {"copies": "1"} and answer["verified"]
    assert len({run.attempt.place for run in tried}) == 2
    # Outputs are compared with those of one default, whichever machine had it.
    errors = {(run.job.knobs.get("rounding", "exact"), round(run.output_error, 6)) for run in tried if run.outcome.ok}
    assert errors == {("exact", 0), ("half", 0.01)}
    # The proof is one comparison: on one machine, interleaved.
    assert len({(run.attempt.place, run.attempt.comparison) for run in verifying}) == 1
    assert [run.job.repeat for run in verifying] == sorted(run.job.repeat for run in verifying)
    assert Counter(run.job.repeat for run in verifying) == {1: len(verifying) // 2, 2: len(verifying) // 2}
    assert {run.output_error for run in verifying if run.job.knobs.get("rounding") is None} == {0}


PROGRAM = "import sys\nheld = b'1' * (int(sys.argv[1]) << 20)\n"
ENGINE = ("--", sys.executable, "engine.py", "{mib}")


def test_scale_of_program_across_machines(memprof, twins, tmp_path):
    (tmp_path / "engine.py").write_text(PROGRAM)

    done = memprof("scale", "--vary", "mib=8..64", "--points", "4", "--on", f"dask:{twins.address}", "-o", "runs.jsonl", "--json", *ENGINE)

    assert done.returncode == 0, done.stderr
    (law,) = (named["law"] for named in json.loads(done.stdout)["laws"] if named["name"] == "PEAK")
    (slope,) = (each["bytes"] for each in law["coefficients"] if each["words"] == "mib")
    assert abs(slope - (1 << 20)) < 1 << 16
    runs = store.load([tmp_path / "runs.jsonl"]).runs
    assert {run.job.at["mib"] for run in runs} == {int(run.job.argv[2]) for run in runs} >= {8, 64}
    assert len({run.attempt.place for run in runs}) == 2


def test_bisect_releases_on_worker(memprof, twins, tmp_path, monkeypatch):
    wheels.only(monkeypatch, twins.folder / "wheels", tmp_path / "cache")
    monkeypatch.setattr(search, "ENDS", 5)  # as few as the gate decides with
    (tmp_path / "net.onnx").write_bytes(b"\0")
    words = ("bisect", "net.onnx", "--package", "onnxruntime", "--from", "1.20", "--to", "1.22", "--on", f"dask:{twins.address}")

    done = memprof(*words, "--json", "-o", "runs.jsonl")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [(step["before"], step["at"], step["between"]) for step in answer["steps"]] == [("1.20.0", "1.22.0", [])]
    assert "What changed is not known: a step that a fleet found is not explained" in done.stdout
    runs = store.load([tmp_path / "runs.jsonl"]).runs
    assert [run.about.runtime_version for run in runs] == [run.job.version for run in runs] == ["1.20.0", "1.22.0"] * 5
    assert {run.job.variant for run in runs} == {"onnxruntime"}
    assert len({run.attempt.place for run in runs}) == 1
    assert not (tmp_path / "cache/memprof/environments").exists()  # at the desk nothing is installed


def test_bisect_commits_after_worker_death(memprof, twins, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "ENDS", 5)
    checkout = Checkout(tmp_path / "engine")
    noted, go = tmp_path / "noted", tmp_path / "go"
    wait = f"pwd >> '{noted}'; while [ ! -e '{go}' ]; do sleep 0.05; done; "
    build = f"{wait}! grep -q broken hold.sh && cp hold.sh hold && chmod +x hold"
    suite = f"[build]\npython = {str(checkout.folder / 'quick-python')!r}\ncommand = {json.dumps(build)}\n[[variant]]\ncmd = './hold'\n"
    for text in ("20", "30 # broken", "30"):
        code = f"import time; held = b'x' * ({text.split()[0]} << 20); time.sleep(0.05)"
        checkout.commit(
            suite_dot_toml=suite, hold_dot_sh=f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -SEc {shlex.quote(code)} #{text}\n"
        )
    words = ("bisect", "--suite", "suite.toml", "--good", "HEAD~2", "--on", f"dask:{twins.address}", "--json", "-o", "../runs.jsonl")

    def kill_the_first() -> str:
        first = wait_for(lambda: noted.exists() and noted.read_text())
        name = "left" if str(twins.folder / "left") in first else "right"
        twins.kill(name)
        go.touch()
        return name

    with ThreadPoolExecutor(1) as threads:
        killed = threads.submit(kill_the_first)
        done = memprof(*words, cwd=checkout.folder)
    lost = killed.result()
    twins.worker(lost, "--labels", "kind=twin")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    good, broken, bad = answer["versions"]
    assert [(step["before"], step["at"], step["between"]) for step in answer["steps"]] == [(good, bad, [broken])]
    assert f"{broken} cannot be built: " in answer["skipped"][broken] and "begins again elsewhere, whole: " in done.stderr
    runs = store.load([tmp_path / "runs.jsonl"]).runs
    assert [(run.job.variant, run.job.version) for run in runs] == [("hold", good), ("hold", bad)] * 5
    (survivor,) = {"left", "right"} - {lost}
    commits = twins.folder / survivor / "cache/memprof/commits"
    assert all(run.job.cwd.startswith(str(commits)) for run in runs)
    assert not list((twins.folder / lost / "cache/memprof/commits").glob("*/environment.json"))
    # Nothing is built at the desk, and nothing more is sent than each file once.
    assert not (tmp_path / "cache/memprof/commits").exists() and len(checkout.git("worktree", "list").splitlines()) == 1
    assert sum(path.read_bytes()[:4] == b"PACK" for path in twins.kept(survivor)) == 1
