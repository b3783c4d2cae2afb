"""A suite in shards and its runs put together again: comparisons stay whole, lines stay as they are, contradictions are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.sample_runs import machine, run

from memprof.base.errors import UsageError
from memprof.records import attempts, store
from memprof.records.types import Attempt
from memprof.subjects import shards as parts
from memprof.subjects.suite import Suite


def written(path, runs):
    path.write_bytes(b"".join(map(store.encode, runs)))
    return path


def started_at(started_ns, measured):
    return replace(measured, started_ns=started_ns)


@given(st.integers(1, 12), st.integers(1, 8))
def test_shards_cover_suite(models, count):
    suite = Suite(models=tuple(f"m{number}.onnx" for number in range(models)), runtimes=("synthetic",))

    shards = [parts.shard(suite, number, count) for number in range(1, count + 1)]

    measured = [model for shard in shards if shard is not None for model in shard.models]
    assert sorted(measured) == sorted(suite.models)
    sizes = [len(shard.models) if shard else 0 for shard in shards]
    assert max(sizes) - min(sizes) <= 1


def test_commands_form_one_comparison():
    suite = Suite(variants=(), cwd="there")

    assert parts.comparisons(suite) == (suite,)
    assert parts.shard(suite, 2, 2) is None


def test_suite_name_for_only_model():
    lone = Suite(models=("a.onnx",), name="mine")
    several = Suite(models=("a.onnx", "b.onnx"), name="mine")

    assert [part.name for part in parts.comparisons(lone)] == ["mine"]
    assert [part.name for part in parts.comparisons(several)] == ["a.onnx", "b.onnx"]


def test_comparisons_refuse_equal_model_names():
    with pytest.raises(UsageError, match=r"two models are called a\.onnx"):
        parts.comparisons(Suite(models=("x/a.onnx", "b.onnx", "y/a.onnx")))


@pytest.mark.parametrize("text", ["", "2", "0/5", "6/5", "1/0", "a/b", "1/2/3", "-1/2", "²/3"])
def test_shard_refusals(text):
    with pytest.raises(UsageError, match="such as 2/5"):
        parts.parse_shard(text)


def test_merge_drops_duplicate_run(memprof, tmp_path):
    written(tmp_path / "one.jsonl", [run("a", 1), run("a", 2)])
    written(tmp_path / "two.jsonl", [run("a", 2), run("b", 1)])

    done = memprof("merge", "one.jsonl", "two.jsonl", "-o", "runs.jsonl", "--json")

    # Neither file holds all runs that the other has, but no job has different runs.
    assert json.loads(done.stdout) == {"runs": 3, "duplicates": 1, "files": 2}
    assert (tmp_path / "runs.jsonl").read_bytes() == b"".join(map(store.encode, [run("a", 1), run("a", 2), run("b", 1)]))


def test_merge_keeps_repeated_job(memprof, tmp_path):
    first, second = started_at(1, run("a", 1)), started_at(2, run("a", 1))
    written(tmp_path / "early.jsonl", [first])
    written(tmp_path / "late.jsonl", [first, second])

    done = memprof("merge", "early.jsonl", "late.jsonl", "-o", "runs.jsonl")

    assert done.stdout == "2 runs of 2 files; 1 line that another part has too\n"


def test_merge_refuses_different_runs(memprof, tmp_path):
    written(tmp_path / "one.jsonl", [run("b", 1), started_at(1, run("a", 1))])
    written(tmp_path / "two.jsonl", [started_at(2, run("a", 1))])

    done = memprof("merge", "one.jsonl", "two.jsonl", "-o", "runs.jsonl")

    assert done.returncode == 5
    assert done.stderr == "memprof: one.jsonl, line 2 and two.jsonl, line 1 are different runs of the same job: a job belongs in one part\n"
    assert not (tmp_path / "runs.jsonl").exists()


def test_merge_separates_machines_and_attempts(memprof, tmp_path):
    runs = [replace(run("a", 1), machine=machine(name)) for name in ("x", "y")]
    runs += [replace(started_at(number, run("a", 1)), attempt=Attempt("c", number, 1)) for number in (1, 2)]
    for number, one_run in enumerate(runs):
        written(tmp_path / f"{number}.jsonl", [one_run])

    done = memprof("merge", "0.jsonl", "1.jsonl", "2.jsonl", "3.jsonl", "-o", "runs.jsonl")

    assert done.stdout == "4 runs of 4 files\n"


def test_merge_refuses_differing_models(memprof, tmp_path):
    other = run("b", 1)
    other = replace(other, job=replace(other.job, model=replace(other.job.model, sha256="ff" * 32)))
    written(tmp_path / "one.jsonl", [run("a", 1)])
    written(tmp_path / "two.jsonl", [other])

    done = memprof("merge", "one.jsonl", "two.jsonl", "-o", "runs.jsonl")

    assert done.returncode == 5
    assert "net.onnx is not the same file in one.jsonl, line 1 and two.jsonl, line 1" in done.stderr


def test_merge_torn_or_foreign_part(memprof, tmp_path):
    torn = written(tmp_path / "torn.jsonl", [run("a", 1), run("a", 2)])
    torn.write_bytes(torn.read_bytes()[:-9])
    (tmp_path / "foreign.jsonl").write_text("hello\n")

    done = memprof("merge", "torn.jsonl", "-o", "runs.jsonl")
    refused = memprof("merge", "torn.jsonl", "foreign.jsonl", "-o", "more.jsonl")
    twice = memprof("merge", "torn.jsonl", "./torn.jsonl", "-o", "more.jsonl")
    exists = memprof("merge", "torn.jsonl", "-o", "runs.jsonl")

    assert (done.returncode, done.stdout) == (0, "1 run of 1 file\n")
    assert "torn.jsonl: the last line is torn and was left out" in done.stderr
    assert refused.returncode == 5 and "foreign.jsonl, line 1: not a run of memprof" in refused.stderr
    assert twice.returncode == 2 and "named twice" in twice.stderr
    assert exists.returncode == 5 and "runs.jsonl exists" in exists.stderr
    assert not (tmp_path / "more.jsonl").exists()


def attempted(number: int, *repeats: int, comparison: str = "c", runs: int = 3):
    return [replace(started_at(number, run("a", repeat)), attempt=Attempt(comparison, number, runs)) for repeat in repeats]


def test_load_leaves_out_lost_attempt(tmp_path):
    path = written(tmp_path / "runs.jsonl", [*attempted(1, 1, 2), run("b", 1), *attempted(2, 1, 2, 3)])

    loaded = store.load([path])

    assert [kept.attempt.number if kept.attempt else 0 for kept in loaded.runs] == [0, 2, 2, 2]
    assert loaded.warnings == ("net.onnx: 2 runs of attempts that lost their machine are left out; the comparison began again elsewhere",)


def test_attempt_with_most_runs_stands():
    kept, _ = attempts.standing([*attempted(1, 1, 2), *attempted(2, 1), *attempted(3, 3, comparison="other")])
    assert [(kept_run.attempt.comparison, kept_run.attempt.number) for kept_run in kept] == [("c", 1), ("c", 1), ("other", 3)]

    kept, _ = attempts.standing([*attempted(1, 1), *attempted(2, 1)])
    assert [kept_run.attempt.number for kept_run in kept] == [2]


def test_job_hash_by_content():
    here, there = run("a", 1).job, run("a", 1).job
    there = replace(there, model=replace(there.model, path=str(Path("/elsewhere/net.onnx")), files=()))

    assert attempts.job_hash(here) == attempts.job_hash(there)
    assert attempts.job_hash(here) != attempts.job_hash(replace(here, repeat=2))
