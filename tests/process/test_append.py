"""--append goes on where a campaign stopped: each job has exactly its repeats, however often it was interrupted."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import sample_runs
from support.recorder_runs import QUICK, Silent, held_runtime, runs_in, started, wait_for

import memprof as library
from memprof.base.errors import InputError
from memprof.campaign import resume
from memprof.places.place import HERE
from memprof.programs import commands
from memprof.records import store
from memprof.records.types import Outcome, Run
from memprof.subjects.order import Order

MACHINE = HERE.machine()
LOST = {"outcome": Outcome("lost", "EXECUTE", "the connection to ssh:tv broke"), "timeline": store.NOTHING_SEEN}


def at(variant: str, repeat: int, **changes: object) -> Run:
    return replace(sample_runs.run(variant, repeat, where=MACHINE), **changes)


def orders(variants: str, repeats: int) -> tuple[Order, ...]:
    """The orders of a campaign, as a plan has them: A1 B1 A2 B2 ..."""
    jobs = [at(variant, repeat).job for repeat in range(1, repeats + 1) for variant in variants]
    return tuple(Order(job, commands.RUNTIME, "", {}, None) for job in jobs)


def left(wanted: tuple[Order, ...], runs: list[Run], path: Path) -> tuple[str, str]:
    """What is left to measure, and what is there, such as `a1 b1 a2`."""
    path.write_bytes(b"".join(map(store.encode, runs)))
    some, there = resume.unfinished(wanted, path, lambda sentence: None)
    return tuple(
        " ".join(f"{job.variant}{job.repeat}" for job in jobs) for jobs in ([order.job for order in some], [run.job for run in there])
    )


A, B = ([at(variant, repeat) for repeat in (1, 2, 3)] for variant in "ab")


@pytest.mark.parametrize(
    ("wanted", "runs", "expected"),
    [
        (("a", 3), [], ("a1 a2 a3", "")),
        (("a", 3), A[:2], ("a3", "a1 a2")),
        (("a", 3), A, ("", "a1 a2 a3")),
        (("a", 3), [*A, *A[:1]], ("", "a1 a2 a3")),
        (("a", 3), [A[0], A[2]], ("a2", "a1 a3")),
        (("a", 3), [at("a", 1, **LOST), *A[1:]], ("a1", "a2 a3")),
        (("a", 3), [at("a", 1, **LOST), *A], ("", "a1 a2 a3")),
        (("a", 3), [*A[1:], at("a", 1, **LOST)], ("a1", "a2 a3")),
        (("a", 3), [replace(A[0], outcome=Outcome("signal", "EXECUTE", signal="SIGSEGV"))], ("a2 a3", "a1")),  # a crash is a result
        (("a", 4), A, ("a4", "a1 a2 a3")),
        (("a", 2), A, ("", "a1 a2")),
        (("ab", 3), A, ("b1 b2 b3", "a1 a2 a3")),  # another variant
        (("ab", 3), [*A, *A, *B], ("", "a1 b1 a2 b2 a3 b3")),
        (("ab", 2), [A[0], B[0], A[1]], ("b2", "a1 b1 a2")),
        (("a", 3), B, ("a1 a2 a3", "")),
        (("a", 3), [replace(run, machine=sample_runs.machine("another")) for run in A], ("a1 a2 a3", "")),
        (("a", 3), [replace(run, job=replace(run.job, warmup=0)) for run in A], ("a1 a2 a3", "")),
        (("a", 2), [replace(A[0], job=replace(A[0].job, built="/cache/net.ort"))], ("a2", "a1")),  # known after planning
    ],
)
def test_unfinished_only_missing_runs(tmp_path, wanted, runs, expected):
    assert left(orders(*wanted), runs, tmp_path / "r.jsonl") == expected


def test_unfinished_refuses_invalid_line(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(store.encode(A[0]) + b"{}\n" + store.encode(A[1]))

    with pytest.raises(InputError, match="line 2: not a run of memprof"):
        resume.unfinished(orders("a", 3), path, lambda sentence: None)


def test_load_drops_remeasured_lost_run(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(map(store.encode, [at("a", 1), at("a", 2, **LOST), at("b", 1, **LOST), at("a", 2)])))

    loaded = store.load([path])

    assert [(run.job.variant, run.job.repeat, run.outcome.status) for run in loaded.runs] == [
        ("a", 1, "ok"),
        ("b", 1, "lost"),
        ("a", 2, "ok"),
    ]
    assert loaded.warnings == ("net.onnx: 1 run that was lost is left out; the same was measured again",)


def test_load_keeps_run_without_marks(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(
        b"".join(map(store.encode, [at("a", 1, outcome=Outcome("lost", "EXECUTE", "its marks are not complete")), at("a", 1)]))
    )

    assert len(store.load([path]).runs) == 2


@pytest.mark.usefixtures("nothing_left")
def test_campaign_resumes_after_two_interruptions(memprof, scenario, tmp_path):
    """By kill -9 in the middle of a run, and then by Ctrl-C: in the end each job has its repeats once, and the tables are those of all."""
    scenario("slow.json")
    runtime, let, begun = held_runtime(tmp_path)
    path = tmp_path / "r.jsonl"
    variants = ["--variant", f"a={runtime}", "--variant", f"b={runtime},ballast=1048576"]
    words = ["run", "slow.json", *variants, "--warmup", "0", "--runs", "1", "--repeats", "4"]
    said = ""
    for number, count in ((signal.SIGKILL, 2), (signal.SIGINT, 4)):
        before = begun()
        let(before + 2)  # and the next stands still
        with started(tmp_path, *words, "-o", "r.jsonl", "--append") as process:
            wait_for(lambda before=before, count=count: begun() == before + 3 and path.read_bytes().count(b"\n") == count)
            os.kill(process.pid, number)
            said = process.communicate(timeout=120)[1]
    assert len(runs_in(path)) == 4
    assert said.splitlines()[-1] == "memprof: interrupted: 4 of 8 runs are in r.jsonl; the same command with --append goes on"
    let(1000)

    done = memprof(*words, "-o", "r.jsonl", "--append")

    assert done.returncode == 0, done.stderr
    assert "going on: r.jsonl holds 4 runs of 8, so 4 are left" in done.stderr
    assert "\nslow.json, warming up 0 & running 1, 4 repeats\n" in done.stdout
    counts = Counter((run["job"]["variant"], run["job"]["repeat"]) for run in runs_in(path))
    assert counts == {(variant, repeat): 1 for variant in "ab" for repeat in (1, 2, 3, 4)}


@pytest.mark.parametrize(("repeats", "holds"), [("1", "the one run"), ("2", "all 2 runs")])
def test_campaign_complete_not_measured_again(memprof, tmp_path, repeats, holds):
    words = ["exec", "-o", "r.jsonl", "--append", "--repeats", repeats, "--", "true"]
    first = memprof(*words)
    before = (tmp_path / "r.jsonl").read_bytes()

    done = memprof(*words)

    said = f"nothing is left to measure: r.jsonl holds {holds}; another file measures again, more --repeats add to this one\n"
    assert (first.returncode, done.returncode) == (0, 0) and done.stderr.startswith(said)
    assert done.stdout == first.stdout
    assert (tmp_path / "r.jsonl").read_bytes() == before


def test_library_measure_appends(scenario, tmp_path):
    model, path = scenario("quick.json", **QUICK), tmp_path / "r.jsonl"
    words = {"warmup": 0, "runs": 1, "repeats": 2, "output": path, "append": True}
    library.measure([model], ["synthetic"], **words)
    first, _ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first)
    listener = Silent()

    runs = library.measure([model], ["synthetic"], progress=listener, **words)

    assert [run.job.repeat for run in runs] == [1, 2] and len(runs_in(path)) == 2
    assert f"going on: {path} holds 1 run of 2, so 1 is left" in listener.said
