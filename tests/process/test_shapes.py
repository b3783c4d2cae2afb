"""The shapes that ran stand in headings, and plans beside measurements are of what ran."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.sample_runs import run

pytest.importorskip("onnx")

from support import plan_models as models
from support.plan_models import node, save, value

from memprof.models.identity import identify
from memprof.plan.measured import by_model
from memprof.records import store
from memprof.records.types import Run
from memprof.reports.tables import planned


def test_input_shapes_kept_with_run(memprof, tmp_path):
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("onnxruntime")
    path = save(tmp_path / "m.onnx", [node("Exp", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    numpy.savez(tmp_path / "in.npz", x=numpy.zeros(7, "float32"))

    words = ["-r", "onnxruntime", "--repeats", "1", "--warmup", "0", "--runs", "1", "-o", "r.jsonl", "--inputs", "in.npz"]
    done = memprof("run", path, *words)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].endswith(", x=7")
    assert store.load([tmp_path / "r.jsonl"]).runs[0].job.given == {"x": (7,)}


def run_of(path: Path, made: Run, shapes: Mapping[str, tuple[int, ...]] | None = None, **changes: object) -> Run:
    return replace(made, job=replace(made.job, model=identify(path), shapes=shapes or {}, **changes))  # type: ignore[arg-type]


def open_model(path: Path) -> Path:
    return save(path, [node("Exp", ["x"], ["a"]), node("Exp", ["a"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])


def test_thread_counts_as_separate_rows(tmp_path):
    path = models.wide(tmp_path / "wide.onnx")
    made = [run_of(path, run("a", threads=1)), run_of(path, run("a", threads=2, extra_mib=100))]

    section = planned.beside(made, by_model(made)["wide.onnx"])

    assert section is not None
    assert [(row[0], row[-1]) for row in section.tables[0].rows] == [("a, 1 thread", "228.0"), ("a, 2 threads", "328.0")]


def test_input_file_shapes_planned(tmp_path):
    path = open_model(tmp_path / "m.onnx")
    made = [run_of(path, run("a"), {"x": (1 << 20,)}), run_of(path, run("b"), given={"x": (8 << 20,)}, inputs="/data/in.npz")]

    section = planned.beside(made, by_model(made)["m.onnx"])

    assert section is not None
    assert [(table.title, table.rows[0][2]) for table in section.tables] == [
        ("Sizes in MiB, x=1048576", "8.00"),
        ("Sizes in MiB, x=8388608", "64.0"),
    ]
