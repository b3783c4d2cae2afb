"""`memprof plan` as a user runs it, and what its parts compute, against figures worked out by hand and against runtimes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.plan_command import Memprof, memprof, open_shaped, run_at, wide  # noqa: F401  (the fixtures)

onnx = pytest.importorskip("onnx")
np = pytest.importorskip("numpy")

from memprof import zoo
from memprof.base.errors import InputError, UsageError
from memprof.base.units import parse_bandwidth
from memprof.plan.graphs.read import read
from memprof.plan.measured import by_model
from memprof.plan.swapping import ModelRuns, at_shapes
from memprof.reports.tables.planned import beside


def test_reorder_tflite_keeps_results(tmp_path: Path, memprof: Memprof) -> None:
    pytest.importorskip("ai_edge_litert")
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    zoo.make("branches", tmp_path / "b.tflite", format="tflite")
    done = memprof("plan", "reorder", "b.tflite", "-o", "r.tflite")
    assert done.returncode == 0 and "proven to be the least" in done.stderr, done.stderr
    results, orders = [], []
    for name in ("b.tflite", "r.tflite"):
        interpreter = Interpreter(str(tmp_path / name), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        interpreter.allocate_tensors()
        (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
        interpreter.set_tensor(source["index"], np.linspace(0, 1, 512 * 512 * 3, dtype=np.float32).reshape(1, 512, 512, 3))
        interpreter.invoke()
        results.append(interpreter.get_tensor(target["index"]).tobytes())
        orders.append([operator["op_name"] for operator in interpreter._get_ops_details() if operator["op_name"] != "DELEGATE"])
    assert results[0] == results[1]
    assert orders[0] != orders[1]
    assert orders[1] == [operator.kind for operator in read(tmp_path / "r.tflite").operators]
    assert (tmp_path / "b.tflite").stat().st_size == (tmp_path / "r.tflite").stat().st_size


@pytest.mark.parametrize(("text", "expected"), [("900 MB/s", 9 * 10**8), ("1.5GiB/s", 3 << 29), ("1000", 1000)])
def test_bandwidth_forms(text: str, expected: int) -> None:
    assert parse_bandwidth(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [("fast", "not a bandwidth: write a size per second, such as 900MB/s"), ("1 MB/h", "not a bandwidth"), ("0", "moves nothing")],
)
def test_bandwidth_refusals(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_bandwidth(text)


def test_pack_with_capacity(tmp_path: Path, memprof: Memprof) -> None:
    # Three of 4 and one of 3 in turn: greedy by size may need more than the 8 that are alive at once.
    (tmp_path / "b.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\nc,2,4,4\nd,0,1,3\n")
    done = memprof("plan", "pack", "b.csv", "--capacity", "8", "-o", "out.csv", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["verdict"], answer["size_bytes"], answer["lower_bound_bytes"]) == ("met", 8, 8)
    lines = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert lines[0] == ["id", "lower", "upper", "size", "offset"] and len(lines) == 5
    (tmp_path / "out.csv").write_text("mine")
    done = memprof("plan", "pack", "b.csv", "-o", "out.csv")
    assert (done.returncode, done.stdout) == (5, "") and "out.csv exists; --force replaces it" in done.stderr
    assert (tmp_path / "out.csv").read_text() == "mine"
    assert memprof("plan", "pack", "b.csv", "-o", "out.csv", "--force").returncode == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 5
    done = memprof("plan", "pack", "b.csv", "--capacity", "7")
    assert done.returncode == 5 and "proven" in done.stderr and "cannot be met, proven" in done.stdout
    (tmp_path / "b.csv").write_text("id,lower,upper\n")
    done = memprof("plan", "pack", "b.csv")
    assert done.returncode == 5 and "size" in done.stderr and len(done.stderr.splitlines()) == 1


def test_plot_output_refusals(wide: Path, memprof: Memprof) -> None:
    done = memprof("plan", "plot", wide, "-o", "p.txt")
    assert done.returncode == 2 and ".html" in done.stderr
    assert memprof("plan", "plot", wide, "-o", "nowhere/p.png").returncode == 5


def test_residency_at_run_shapes(tmp_path: Path) -> None:
    path = open_shaped(tmp_path / "m.onnx")
    small, large = run_at(path, x=(2, 64)), run_at(path, x=(8, 64))
    of_file = run_at(path, inputs="in.npz")

    assert at_shapes(ModelRuns((small, small), ()), {}) == ({"x": (2, 64)}, ModelRuns((small, small), ()))
    shapes, known = at_shapes(ModelRuns((small, large, of_file), ()), {"x": (8, 64)})
    assert (shapes, known.runs, known.remarks) == ({"x": (8, 64)}, (large,), ("2 runs of other shapes or inputs left out",))
    with pytest.raises(UsageError, match="several shapes, and --shape chooses: x=2x64; x=8x64"):
        at_shapes(ModelRuns((small, large), ()), {})
    with pytest.raises(InputError, match="no run is at x=3x64; these are at x=2x64"):
        at_shapes(ModelRuns((small,), ()), {"x": (3, 64)})
    with pytest.raises(InputError, match="took their inputs from a file"):
        at_shapes(ModelRuns((of_file,), ()), {})


def test_missing_plan_reasons(tmp_path: Path) -> None:
    path = open_shaped(tmp_path / "m.onnx")
    run = run_at(path)
    path.write_bytes(path.read_bytes() + b"\x08\x09")
    assert by_model([run])["m.onnx"][0].why == f"{path} is not the file that was measured: its content differs"
    path.unlink()
    (plan,) = by_model([run])["m.onnx"]
    assert plan.why == f"the model is no longer at {path}"
    section = beside([run], [plan])
    assert section is not None and not section.tables and section.notes == (f"Not planned: the model is no longer at {path}.",)
