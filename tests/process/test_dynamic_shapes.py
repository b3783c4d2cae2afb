"""Iterations over several shapes: each runtime computes in the shape that it is fed, as it does when it is fed no other."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.recorder_runs import Silent
from support.session_cache import once

from memprof import zoo
from memprof.campaign import campaign
from memprof.footprint.tune import candidates
from memprof.footprint.tune.answer import TuneRequest
from memprof.growth.grow.grow import GrowRequest, work_order
from memprof.programs import runtimes
from memprof.records import work
from memprof.subjects import orders
from memprof.subjects.order import Order
from memprof.subjects.suite import Suite

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")

from support import plan_models as models
from support.exported_models import DATA, interpreter

Shapes = Mapping[str, tuple[int, ...]]
IMAGES: tuple[Shapes, ...] = tuple({"input": (1, 3, *size)} for size in ((64, 64), (96, 64), (64, 96)))
CHANNELS_LAST: tuple[Shapes, ...] = tuple({"input": (1, *size, 3)} for size in ((64, 64), (96, 64), (64, 96)))
ONE: Any = {"repeats": 1, "warmup": 0, "runs": 1, "release": False}
MIB = 1 << 20
SMALL: tuple[Shapes, ...] = tuple({"x": (1, 3, *size)} for size in ((8, 8), (12, 10)))
PACKAGES = {
    "openvino": "openvino",
    "tflite": "tflite_runtime",
    "litert": "ai_edge_litert",
    "onert": "onert",
    "mnn": "MNN",
    "ncnn": "ncnn",
    "tvm": "tvm",
}
# (runtime, settings, model, shapes); the last shape is the one whose outputs are compared.
CASES = [
    pytest.param("openvino", {}, "fixed.onnx", IMAGES, id="openvino, a file that fixes the shape"),
    pytest.param("tflite", {}, "net.tflite", CHANNELS_LAST, id="tflite"),
    pytest.param("litert", {}, "net.tflite", CHANNELS_LAST, id="litert"),
    pytest.param("litert", {"api": "compiled_model"}, "net.tflite", CHANNELS_LAST, id="litert, compiled_model"),
    pytest.param("onert", {}, "net.tflite", CHANNELS_LAST, id="onert"),
    pytest.param("mnn", {}, "open.onnx", IMAGES, id="mnn"),
    pytest.param("ncnn", {}, "net.param", IMAGES, id="ncnn"),
    pytest.param("openvino", {}, "flat.onnx", SMALL, id="openvino, a reshape"),
    pytest.param("mnn", {}, "flat.onnx", SMALL, id="mnn, a reshape"),
    pytest.param("ncnn", {}, "flat.onnx", SMALL, id="ncnn, a reshape"),
    pytest.param("tvm", {"runtime_only": "on"}, "flat.onnx", SMALL, id="tvm, a reshape"),  # the whole of it takes twice the time to import
]


@pytest.fixture(scope="module")
def nets() -> Path:
    return once("the nets of test_dynamic_shapes.py", _make_nets)


def _make_nets(folder: Path) -> None:
    zoo.make("mobilenet_v2", folder / "open.onnx", format="onnx", open_dimensions=True)
    for name, format in (("fixed.onnx", "onnx"), ("net.tflite", "tflite"), ("net.param", "ncnn")):
        zoo.make("mobilenet_v2", folder / name, format=format)
    _flattening(folder / "flat.onnx", positions=-1)
    _flattening(folder / "one_shape.onnx", positions=64)


def _flattening(path: Path, positions: int) -> Path:
    """A convolution whose output becomes a row for each position; their number is that of the input, or with `positions` that of one shape."""
    to = onnx.numpy_helper.from_array(np.array([1, 4, positions], np.int64), "to")
    weights = [models.weight("w", 4, 3, 3, 3), models.weight("m", 4, 5), to]
    nodes = [
        models.node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        models.node("Reshape", ["c", "to"], ["flat"]),
        models.node("Transpose", ["flat"], ["rows"], perm=[0, 2, 1]),
        models.node("MatMul", ["rows", "m"], ["y"]),
    ]
    return models.save(path, nodes, [models.value("x", [1, 3, "h", "w"])], [models.value("y", [1, "n", 5])], weights)


@pytest.mark.parametrize(
    ("runtime", "words", "sentence"),
    [
        ("openvino", (), "the model cannot be fed x=1,3,12,10: Requested output shape [1,4,64] is incompatible with input shape"),
        ("mnn", (), "with x=1,3,8,10: MNN's runSession ended with code 3"),
        ("ncnn", (), "pnnx cannot convert the model"),
        (
            "tvm",
            ("--set", "runtime_only=on"),
            "the model cannot be fed x=1,3,12,10: Reshape expects the new shape to be convertible from the old shape",
        ),
    ],
)
def test_model_of_one_shape_refused(memprof, nets: Path, runtime: str, words: tuple[str, ...], sentence: str) -> None:
    _need(runtime)
    shapes = "x=1,3,H,W; H in 8,12; W in 8,10"

    done = memprof("grow", nets / "one_shape.onnx", "-r", runtime, *words, "--shapes", shapes, "--budget", "32")

    assert done.returncode == 4
    assert sentence in done.stderr


def test_torch_outputs_of_each_shape(tmp_path: Path) -> None:
    suite = Suite(models=(str(DATA / "net.py"),), runtimes=("torch",), python=interpreter("torch"), threads=(1,), **ONE)
    shapes: tuple[Shapes, ...] = tuple({"input_0": (1, 3, *size)} for size in ((32, 32), (48, 32), (32, 48)))

    _, written = outputs(work_order(GrowRequest(suite, shapes), 2 * len(shapes)), tmp_path)
    _, expected = outputs(orders.of_one(replace(suite, shapes=shapes[-1])), tmp_path)

    np.testing.assert_allclose(written, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_openvino_keeps_kernels_of_shapes(nets: Path) -> None:
    _need("openvino")
    shapes: tuple[Shapes, ...] = tuple({"input": (1, 3, height, 64)} for height in range(64, 192, 16))

    def rise(**knobs: str) -> int:
        suite = Suite(models=(str(nets / "open.onnx"),), runtimes=("openvino",), set=knobs, threads=(1,), **ONE)
        (run,) = campaign.measure([work_order(GrowRequest(suite, shapes), len(shapes))], Silent(), lambda line: None)
        assert run.outcome.ok, run.outcome.sentence
        resident = work.unpack(run.work[0]).rss
        return int(resident[-1] - resident[1])

    # Arenas of malloc and activations of the largest shape come with either; 8 shapes of kernels take some 14 MiB.
    kept, without, without_both = rise(), rise(cpu_runtime_cache="0"), rise(cpu_runtime_cache="0", primitive_cache="0")
    assert kept > without + 3 * MIB and without > without_both + 2 * MIB


@pytest.mark.long
def test_ncnn_keeps_blocks_of_shapes(nets: Path, tmp_path: Path) -> None:
    _need("ncnn")
    sizes = range(96, 224, 16)
    shapes: tuple[Shapes, ...] = tuple({"input": (1, 3, height, width)} for height in sizes for width in sizes)

    def resident(**knobs: str) -> tuple[int, Any]:
        suite = Suite(models=(str(nets / "net.param"),), runtimes=("ncnn",), set=knobs, threads=(1,), **ONE)
        run, written = outputs(work_order(GrowRequest(suite, shapes), len(shapes)), tmp_path)
        return int(work.unpack(run.work[0]).rss[-1]), written

    (kept, expected), (given_back, written) = resident(), resident(pool_clear="on")

    assert kept > given_back + 20 * MIB  # 70 MiB with ncnn 1.0.20261020
    np.testing.assert_allclose(written, expected, rtol=1e-4, atol=1e-6)


def test_shape_caches_tried_by_tune(nets: Path) -> None:
    _need("openvino")
    openvino = runtimes.find("openvino", sys.executable)

    searched = candidates.candidates_of(openvino, TuneRequest(Suite(models=(str(nets / "open.onnx"),), runtimes=("openvino",))))

    assert searched["cpu_runtime_cache"] == searched["primitive_cache"] == ("0",)
    assert candidates.needs_of(openvino, searched)["primitive_cache", "0"] == {"cpu_runtime_cache": "0"}


def test_primitive_cache_beside_runtime_cache_refused(memprof, nets: Path) -> None:
    _need("openvino")

    done = memprof("run", nets / "open.onnx", "-r", "openvino", "--set", "primitive_cache=0")

    assert done.returncode == 2
    assert "primitive_cache=0 needs cpu_runtime_cache=0" in done.stderr


def _need(runtime: str) -> None:
    if find_spec(PACKAGES[runtime]) is None or (runtime == "ncnn" and find_spec("pnnx") is None):
        pytest.skip(f"{runtime} or its converter is not installed")


def test_shapes_of_micro_refused(memprof, tmp_path):
    pytest.importorskip("tflite_micro")
    zoo.make("mnist", tmp_path / "m.tflite", format="tflite")

    done = memprof("grow", "m.tflite", "-r", "tflite_micro", "--shapes", "input=1,H,28,1; H in 28,30")

    assert done.returncode == 2
    assert done.stderr.endswith("--shapes: TensorFlow Lite Micro takes a model's inputs only in the shapes that its file says\n")


def outputs(order: Order, folder: Path) -> tuple[Any, Any]:
    """The Run of an order, and the model's first output after the last iteration."""
    path = folder / "out.npz"
    (run,) = campaign.measure([replace(order, outputs=str(path))], Silent(), lambda line: None)
    assert run.outcome.ok, run.outcome.sentence
    with np.load(path) as arrays:
        return run, arrays["0"]


@pytest.mark.long
@pytest.mark.parametrize(("runtime", "knobs", "model", "shapes"), CASES)
def test_outputs_of_each_shape(
    nets: Path, tmp_path: Path, runtime: str, knobs: dict[str, str], model: str, shapes: tuple[Shapes, ...]
) -> None:
    _need(runtime)
    suite = Suite(models=(str(nets / model),), runtimes=(runtime,), set=knobs, threads=(1,), **ONE)

    varied, written = outputs(work_order(GrowRequest(suite, shapes), 2 * len(shapes)), tmp_path)
    _, expected = outputs(orders.of_one(replace(suite, shapes=shapes[-1])), tmp_path)

    assert work.unpack(varied.work[0]).counts["shape"][-1] == len(shapes)
    assert written.shape == expected.shape and expected.std() > 0
    np.testing.assert_allclose(written, expected, rtol=1e-4, atol=1e-6)
