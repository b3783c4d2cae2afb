"""The shapes that ran stand in headings, and plans beside measurements are of what ran."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from support.sample_runs import run, runs

pytest.importorskip("onnx")

from memprof.records.types import About
from memprof.reports import trace
from memprof.reports.page import words
from memprof.reports.pictures import choosing
from memprof.reports.tables import comparison, gate, table
from memprof.verdicts import baseline, compare, input_files, verdicts
from memprof.verdicts.verdicts import Report

LARGE = {"x": (1, 3, 640, 640)}


def test_shapes_in_every_heading():
    made = [*runs("a", shapes=LARGE), *runs("b", shapes=LARGE)]

    assert "\n\nnet.onnx, warming up 5 & running 5, 5 repeats, x=1x3x640x640\n" in table.render(made)
    assert "- Inputs: x=1x3x640x640." in table.render(made, style="models")
    assert "- Inputs: x=1x3x640x640." in table.render(made, style="swap")
    assert "x=1x3x640x640" in choosing.conditions(made)
    assert words.subtitle(made).endswith("; x=1x3x640x640")
    assert ("shapes", "x=1x3x640x640") in words.model(made).common
    assert json.loads(trace.render(made))["otherData"]["inputs"] == "x=1x3x640x640"
    assert "- Inputs: x=1x3x640x640." in comparison.render(compare.compare_variants(made, "a", "b"))
    entries = baseline.entries(made)
    report = Report(
        "head against base", tuple(verdicts.judge(entries, entries)), ran=input_files.beside_baseline((), (), input_files.by_place(made))
    )
    assert "\n\nInputs: x=1x3x640x640.\n\n" in gate.render(report)


def test_versions_and_machine_at_top_of_page_and_picture():
    made = [replace(run(name), about=About(version, "3.11")) for name, version in (("a", "1.32.0"), ("b", "1.19.2"), ("c", "1.32.0"))]

    assert words.subtitle(made) == "3 variants, 3 runs on here (a CPU, 2 CPUs, x86_64, Linux 6.18); onnxruntime 1.32.0, onnxruntime 1.19.2"
    assert " · onnxruntime 1.32.0, onnxruntime 1.19.2 · " in choosing.conditions(made)
    assert words.subtitle([replace(run(), about=None)]) == "1 variant, 1 run on here (a CPU, 2 CPUs, x86_64, Linux 6.18)"
    assert "6 versions of runtimes" in words.subtitle([replace(run(f"v{minor}"), about=About(f"1.{minor}", "3.11")) for minor in range(6)])


def test_shapes_from_file_or_assumed():
    made = [run(inputs="/data/big.npz", given={"x": (1, 3, 48, 320)})]
    assert "x=1x3x48x320" in table.render(made)

    made = [run(fixed={"x": (1, 3, 416, 416), "size": (2,)}, shapes={"size": (4,)})]
    assert ", size=4, x=1x3x416x416\n" in table.render(made) or ", x=1x3x416x416, size=4\n" in table.render(made)

    made = [run(inputs="/data/big.npz")]
    assert "inputs from big.npz" in table.render(made)

    made = [run(assumed={"x": (1, 3, 1, 1)})]
    assert "x=1x3x1x1 (open dimensions taken as 1: --shape)" in table.render(made)


def test_shapes_differing_between_variants():
    made = [*runs("a", shapes=LARGE), *runs("b", shapes={"x": (1, 3, 1, 1)})]

    assert "x=1x3x640x640 (a), x=1x3x1x1 (b)" in table.render(made)
    many = [run for size in range(1, 6) for run in runs(f"v{size}", shapes={"x": (size,)})]
    assert "shapes that differ between variants" in table.render(many)
    differing = words.model(made).conditions
    assert differing is not None and "shapes" in differing.header
    of_models = [run(model="n.onnx"), run(model="m.onnx", shapes=LARGE)]
    assert "- Inputs: m.onnx: x=1x3x640x640." in table.render(of_models, style="models")


def test_shapes_differing_between_sides():
    base, head = runs(given={"x": (1, 3, 48, 320)}, inputs="/a/in.npz"), runs(assumed={"x": (1, 3, 1, 1)})

    text = comparison.render(compare.compare(base, head))
    fields = json.loads(comparison.render(compare.compare(base, head), format="json"))["inputs"]

    assert "- Inputs of base: x=1x3x48x320.\n- Inputs of head: x=1x3x1x1 (open dimensions taken as 1: --shape)." in text
    assert [(row["side"], row["shapes"], row["assumed"], row["file"]) for row in fields] == [
        ("base", {"x": [1, 3, 48, 320]}, [], "in.npz"),
        ("head", {"x": [1, 3, 1, 1]}, ["x"], None),
    ]
    assert "Inputs of" not in comparison.render(compare.compare(base, base)) and "Inputs" not in comparison.render(
        compare.compare(runs(), runs())
    )
