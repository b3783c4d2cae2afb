"""Searches on a fleet: what they ask for at one time is measured at once, and what is set side by side stays on one machine."""

from __future__ import annotations

import importlib.util
import json
import signal
from collections import Counter

import pytest
from failing import started
from fleets import fleet, measuring, until
from test_tune import COMMON, RUNTIME

if importlib.util.find_spec("distributed") is None:  # it takes half a second to import, in each worker
    pytest.skip("distributed is not installed", allow_module_level=True)

from memprof.measuring.fleet import desk
from memprof.runs import store
from memprof.seek import tune

FIXED = (*COMMON, "--set", "slow=no", "--set", "idle=a")


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """A scheduler and two workers of one kind, each with this machine."""
    with fleet(tmp_path_factory.mktemp("twins")) as made:
        for name in ("left", "right"):
            made.begin(name, "--labels", "kind=twin")
        made.wait_for_offers()
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(desk, "_LOOK_S", 0.2)
    monkeypatch.setattr(tune, "VERIFYING_REPEATS", 2)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(RUNTIME)
    (tmp_path / "model.bin").write_bytes(b"model")
    return tmp_path


def tuning(twins, *words):
    return ("tune", "model.bin", "-r", "./mine.py", *FIXED, *words, "--on", f"dask:{twins.address}", "-o", "runs.jsonl", "--json")


def test_settings_are_tried_on_several_machines_at_once_and_verified_on_one(memprof, twins, folder):
    words = tuning(twins, "--set", "bad=no", "--try", "copies=2,1", "--try", "rounding=half")
    done = memprof(*words, cwd=folder)

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

    refused = memprof(*words, "--append", cwd=folder)
    again = memprof(*words, "--append", "--trust-runs", cwd=folder)

    assert refused.returncode == 5 and "--trust-runs" in refused.stderr
    assert again.returncode == 0, again.stderr
    assert f"going on after {len(tried)} trials" in again.stderr
    assert json.loads(again.stdout)["best"] == {"copies": "1"}


def test_a_search_that_is_interrupted_shows_what_it_has_and_leaves_nothing_running(twins, folder):
    words = tuning(twins, "--try", "bad=hang", "--try", "rounding=half", "--try", "copies=3")
    path = folder / "runs.jsonl"

    with started(folder, *words) as process:
        # The defaults and one of two values are there, and the other hangs.
        until(lambda: path.exists() and path.read_bytes().count(b"\n") == 4)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)

    assert process.returncode == 130, errors
    answer = json.loads(out)
    assert (answer["verified"], answer["trials"]) == (False, 4)
    assert "interrupted: the proposals that follow were not verified" in errors
    until(lambda: not measuring(*twins.workers))
