"""The shapes that ran stand in headings, and plans beside measurements are of what ran."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from made import run, runs

pytest.importorskip("onnx")

import plan_models as models
from plan_models import node, save, value

from memprof.judge import baseline, compare, inputs, verdicts
from memprof.judge.verdicts import Report
from memprof.models.identity import identify
from memprof.plan.measured import by_model
from memprof.reports import trace
from memprof.reports.page import words
from memprof.reports.pictures import choosing
from memprof.reports.tables import comparison, gate, planned, table
from memprof.runs import store
from memprof.runs.records import Run

LARGE = {"x": (1, 3, 640, 640)}


def test_shapes_stand_in_every_heading():
    made = [*runs("a", shapes=LARGE), *runs("b", shapes=LARGE)]

    assert table.render(made).startswith("net.onnx, warming up 5 & running 5, 5 repeats, x 1x3x640x640\n")
    assert "- Inputs: x 1x3x640x640." in table.render(made, style="models")
    assert "- Inputs: x 1x3x640x640." in table.render(made, style="swap")
    assert "x 1x3x640x640" in choosing.conditions(made)
    assert words.subtitle(made).endswith("; x 1x3x640x640")
    assert ("shapes", "x 1x3x640x640") in words.model(made).common
    assert json.loads(trace.render(made))["otherData"]["inputs"] == "x 1x3x640x640"
    assert "- Inputs: x 1x3x640x640." in comparison.render(compare.compare_variants(made, "a", "b"))
    entries = baseline.entries(made)
    report = Report("head against base", tuple(verdicts.judge(entries, entries)), ran=inputs.beside_baseline((), (), inputs.by_place(made)))
    assert "\n\nInputs: x 1x3x640x640.\n\n" in gate.render(report)


def test_shapes_of_a_file_of_inputs_and_those_taken_as_1_are_said():
    made = [run(inputs="/data/big.npz", given={"x": (1, 3, 48, 320)})]
    assert "x 1x3x48x320" in table.render(made)

    made = [run(inputs="/data/big.npz")]
    assert "inputs from big.npz" in table.render(made)

    made = [run(assumed={"x": (1, 3, 1, 1)})]
    assert "x 1x3x1x1 (open dimensions taken as 1: --shape)" in table.render(made)


def test_shapes_that_differ_are_told_apart():
    made = [*runs("a", shapes=LARGE), *runs("b", shapes={"x": (1, 3, 1, 1)})]

    assert "x 1x3x640x640 (a), x 1x3x1x1 (b)" in table.render(made)
    many = [run for size in range(1, 6) for run in runs(f"v{size}", shapes={"x": (size,)})]
    assert "shapes that differ between variants" in table.render(many)
    assert "shapes" in words.model(made).differing
    of_models = [run(model="n.onnx"), run(model="m.onnx", shapes=LARGE)]
    assert "- Inputs: m.onnx: x 1x3x640x640." in table.render(of_models, style="models")


def test_shapes_of_inputs_are_kept_with_the_run(memprof, tmp_path):
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("onnxruntime")
    path = save(tmp_path / "m.onnx", [node("Exp", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    numpy.savez(tmp_path / "in.npz", x=numpy.zeros(7, "float32"))

    words = ["-r", "onnxruntime", "--repeats", "1", "--warmup", "0", "--runs", "1", "-o", "r.jsonl", "--inputs", "in.npz"]
    done = memprof("run", path, *words)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(", x 7")
    assert store.load([tmp_path / "r.jsonl"]).runs[0].job.given == {"x": (7,)}


def test_two_sides_with_other_shapes_are_told_apart():
    base, head = runs(given={"x": (1, 3, 48, 320)}, inputs="/a/in.npz"), runs(assumed={"x": (1, 3, 1, 1)})

    text = comparison.render(compare.compare(base, head))
    fields = json.loads(comparison.render(compare.compare(base, head), format="json"))["inputs"]

    assert "- Inputs of base: x 1x3x48x320.\n- Inputs of head: x 1x3x1x1 (open dimensions taken as 1: --shape)." in text
    assert [(row["side"], row["shapes"], row["assumed"], row["file"]) for row in fields] == [
        ("base", {"x": [1, 3, 48, 320]}, [], "in.npz"),
        ("head", {"x": [1, 3, 1, 1]}, ["x"], None),
    ]
    assert "Inputs of" not in comparison.render(compare.compare(base, base)) and "Inputs" not in comparison.render(
        compare.compare(runs(), runs())
    )


# -- plans


def run_of(path: Path, made: Run, shapes: Mapping[str, tuple[int, ...]] | None = None, **changes: object) -> Run:
    return replace(made, job=replace(made.job, model=identify(path), shapes=shapes or {}, **changes))  # type: ignore[arg-type]


def open_model(path: Path) -> Path:
    return save(path, [node("Exp", ["x"], ["a"]), node("Exp", ["a"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])


def test_thread_counts_are_rows_of_their_own(tmp_path):
    path = models.wide(tmp_path / "wide.onnx")
    made = [run_of(path, run("a", threads=1)), run_of(path, run("a", threads=2, extra_mib=100))]

    section = planned.beside(made, by_model(made)["wide.onnx"])

    assert section is not None
    assert [(row[0], row[-1]) for row in section.tables[0].rows] == [("a, 1 thread", "228.0"), ("a, 2 threads", "328.0")]


def test_shapes_of_a_file_of_inputs_are_planned(tmp_path):
    path = open_model(tmp_path / "m.onnx")
    made = [run_of(path, run("a"), {"x": (1 << 20,)}), run_of(path, run("b"), given={"x": (8 << 20,)}, inputs="/data/in.npz")]

    section = planned.beside(made, by_model(made)["m.onnx"])

    assert section is not None
    assert [(table.title, table.rows[0][2]) for table in section.tables] == [
        ("Sizes in MiB, x=1048576", "8.00"),
        ("Sizes in MiB, x=8388608", "64.0"),
    ]
