"""Progress for logs: what is said of runs as they end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.sample_runs import run

from memprof.doors.cli import progress
from memprof.records.types import Outcome, Run

MIB = 1 << 20
BAD = Outcome("error", "MODEL_LOAD", message="ValueError: no such operator")


def said(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> list[str]:
    plain = progress.Plain()
    for index, each in enumerate(runs, 1):
        plain.started(each.job, index, len(runs))
        plain.finished(each)
    plain.close()
    return capsys.readouterr().err.splitlines()


def repeats(*variants: str, count: int = 2, model: str = "net.onnx") -> list[Run]:
    return [run(variant, repeat, extra_mib=place, model=model) for repeat in range(1, count + 1) for place, variant in enumerate(variants)]


def test_line_per_repeat_of_all_variants(capsys):
    assert said(repeats("a", "b"), capsys) == [
        "[2/4] net.onnx, repeat 1: peaks a 270.0 MiB; b 271.0 MiB",
        "[4/4] net.onnx, repeat 2: peaks a 270.0 MiB; b 271.0 MiB",
    ]


def test_line_per_model_and_per_run_of_one_variant(capsys):
    assert said([*repeats("a", count=1), *repeats("a", "b", count=1, model="other.onnx")], capsys) == [
        "[1/3] net.onnx, a, repeat 1: peak 270.0 MiB",
        "[3/3] other.onnx, repeat 1: peaks a 270.0 MiB; b 271.0 MiB",
    ]


def test_failed_run_has_a_line(capsys):
    good, bad, *_ = repeats("a", "b")
    failed = replace(bad, outcome=BAD, marks=())
    assert said([good, failed, replace(failed, job=replace(bad.job, repeat=2))], capsys) == [
        "[1/3] net.onnx, a, repeat 1: peak 270.0 MiB",
        "[2/3] net.onnx, b, repeat 1: failed: in MODEL_LOAD: ValueError: no such operator",
        "[3/3] net.onnx, b, repeat 2: failed in the same way",
    ]


def test_long_runs_have_lines_of_their_own(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_LONG_S", 0.0)
    assert [line.split(":")[0] for line in said(repeats("a", "b", count=1), capsys)] == [
        "[1/2] net.onnx, a, repeat 1",
        "[2/2] net.onnx, b, repeat 1",
    ]
