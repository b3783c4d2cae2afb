"""Which inputs a model file declares, which of their dimensions are open, and that this is said wherever a 1 was taken for them."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy
import pytest
from msgspec.structs import replace
from support import sample_runs
from support.model_inputs import model

from memprof.base.errors import InputError
from memprof.models import inputs
from memprof.records import failures
from memprof.records.types import Outcome
from memprof.subjects import suite

onnx = pytest.importorskip("onnx")


@pytest.mark.parametrize(
    ("dtype", "taken", "refused", "words"),
    [
        ("int64", ("16000", "-1"), ("abc", "1.5", "9" * 30), "a whole number from -9223372036854775808 to 9223372036854775807"),
        ("uint8", ("0", "255"), ("-1", "256"), "a whole number from 0 to 255"),
        ("float32", ("0.5", "2", "-1e3"), ("loud", ""), "a number"),
        ("", ("anything",), (), ""),
    ],
)
def test_value_of_type(dtype: str, taken: tuple[str, ...], refused: tuple[str, ...], words: str) -> None:
    assert [inputs.expected(dtype, value) for value in taken] == [""] * len(taken)
    assert [inputs.expected(dtype, value) for value in refused] == [words] * len(refused)


def test_onnx_open_dimensions(tmp_path: Path) -> None:
    path = model(tmp_path, ("n", 3, None, 5), (2,))
    assert inputs.inputs(path) == (
        inputs.Input("x", (None, 3, None, 5), ("n", "", "", ""), "float32"),
        inputs.Input("y", (2,), ("",), "float32"),
    )
    assert inputs.shapes_that_run(path, {}, None) == {"x": (1, 3, 1, 5), "y": (2,)}
    assert inputs.taken_as_one(path, {}, None) == {"x": (1, 3, 1, 5)}
    assert inputs.taken_as_one(path, {"x": (2, 3, 4, 5)}, None) == {}
    sentence = inputs.remark(inputs.taken_as_one(path, {}, None), path)
    assert "x runs as 1x3x1x5" in sentence and "--shape x=SIZE,3,SIZE,5" in sentence
    assert inputs.remark({}, path) == ""
    unnamed = model(tmp_path, ("?", 3, "?", 5), ("m",), name="unnamed.onnx")  # as some exporters call what differs
    assert [declared.dimensions for declared in inputs.inputs(unnamed)] == [("", "", "", ""), ("m",)]
    two = model(tmp_path, ("n", 3), ("m",), name="two.onnx")
    assert "(--shape x=SIZE,3 --shape y=SIZE sets others)" in inputs.remark(inputs.taken_as_one(two, {}, None), two)


def test_fixed_dimension_of_1_kept(tmp_path: Path) -> None:
    path = model(tmp_path, (1, 3, "h", "w"), (1, 8))
    assumed = inputs.taken_as_one(path, {}, None)
    assert assumed == {"x": (1, 3, 1, 1)}
    assert "--shape x=1,3,SIZE,SIZE " in inputs.remark(assumed, path)


def test_input_file_gives_shapes(tmp_path: Path) -> None:
    path, arrays = model(tmp_path, ("n", 4), ("m",)), tmp_path / "in.npz"
    numpy.savez(arrays, x=numpy.zeros((7, 4), numpy.float32))
    assert inputs.array_shapes(str(arrays)) == {"x": (7, 4)}
    assert inputs.shapes_that_run(path, {"x": (2, 4)}, str(arrays)) == {"x": (7, 4), "y": (1,)}, (
        "the file wins, as it does where they are made"
    )
    assert inputs.taken_as_one(path, {}, str(arrays)) == {"y": (1,)}
    arrays.write_bytes(arrays.read_bytes()[:40])
    assert inputs.array_shapes(str(arrays)) is None and inputs.shapes_that_run(path, {}, str(arrays)) is None


def test_openvino_open_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "net.xml"
    path.write_text('<net><layers><layer name="x" type="Parameter"><data shape="?,3,1..8" element_type="f32"/></layer></layers></net>')
    assert inputs.inputs(path) == (inputs.Input("x", (None, 3, None)),)


@pytest.mark.parametrize("ending", [".onnx", ".tflite", ".xml", ".bin"])
def test_invalid_model_declares_nothing(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"net{ending}"
    for content in (b"", b"\xff" * 100, struct.pack("<I", 8) + b"TFL3" + b"\x7f" * 30):
        path.write_bytes(content)
        assert inputs.inputs(path) == ()
    assert inputs.inputs(tmp_path / "gone.onnx") == ()


@pytest.mark.parametrize(
    ("message", "printed", "reason"),
    [
        ("compilation went wrong", "loading\nUnsupported operation: MIRROR_PAD\nbye\n", "Unsupported operation: MIRROR_PAD"),
        ("Unsupported operation: MIRROR_PAD", "Unsupported operation: MIRROR_PAD\n", ""),
        ("it failed", "all is well\n", ""),
        ("Unknown input 'x'", "Could not load shared library a.so: libopenvino.so: cannot open shared object file: No such file\n", ""),
        ("it failed", "Error: no kernel\n(libopenvino.so: cannot open shared object file)\n", "Error: no kernel"),
        ("", "app: libm.so: cannot open shared object file: No such file\n", "app: libm.so: cannot open shared object file: No such file"),
        ("it failed", "", ""),
        ("it failed", "Error: first\nError: last\n  at frame 3 (error)\n", "Error: last"),
        ("it failed", "\x1b[1;31mError: \x1b[0mno kernel\x1b[m\n", "Error: no kernel"),
        (
            "Fail: [ONNXRuntimeError] : 2 : Non-zero status code returned while running Conv",
            "\x1b[1;31m2026-11-22 22:45:39 [E:onnxruntime:, executor.cc:677 Run] Non-zero status code returned while running Conv\x1b[m\n",
            "",
        ),
    ],
)
def test_failure_reason_from_output(message: str, printed: str, reason: str) -> None:
    run = sample_runs.run(outcome=Outcome("error", "PREPARE", message))
    assert failures.reason(replace(run, output_tail=printed)) == reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[model]]\npath = "a.onnx"\nshapes.x = [1]', "there is no 'shapes'; did you mean shape?"),
        ("[[variant]]\ncmd = './app'\nshape.x = [1]", "set, python and shape are for runtimes"),
    ],
)
def test_suite_shape_refusals(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "suite.toml").write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        suite.read(tmp_path / "suite.toml")


def test_names_of_shapeless_inputs(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    path = tmp_path / "rankless.onnx"
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "out")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["out"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph), path)
    assert inputs.names(path) == ("x",) and inputs.inputs(path) == ()
