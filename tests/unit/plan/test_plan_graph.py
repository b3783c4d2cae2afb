"""What is read from ONNX and TFLite files for planning, against sizes added up by hand and figures known from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from support.plan_models import node, save, value

from memprof import zoo
from memprof.base.errors import InputError, UsageError
from memprof.plan.graphs.read import given_shapes, read


@pytest.mark.parametrize(
    ("shapes", "batch", "sentence"),
    [
        ({"x": (2, 2)}, None, "has 3 dimensions, and the shape given has 2"),
        ({"z": (2, 2)}, None, "has no tensor 'z'"),
        ({"x": (2, 3, 8), "w": (4,)}, None, "cannot be 2 and 4 at once"),
        ({}, 0, "a batch is at least 1"),
        ({}, 1 << 63, "a batch is at most 9223372036854775807"),
        ({"x": (1 << 63, 3, 8)}, None, "a size of x is above 9223372036854775807, the most that a dimension can have"),
        ({"places": (1 << 70,)}, None, "a size of places is above 9223372036854775807"),
    ],
)
def test_shapes_invalid_for_model(tmp_path: Path, shapes: Any, batch: Any, sentence: str) -> None:
    inputs = [value("x", ["b", "t", 8]), value("w", ["b"])]
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"]), node("Relu", ["w"], ["v"])], inputs, [value("y", None), value("v", None)])
    with pytest.raises(UsageError, match=sentence):
        read(path, shapes, batch)


@pytest.mark.parametrize("name", ["m.onnx", "m.tflite"])
def test_torn_model_file_refused(tmp_path: Path, name: str) -> None:
    if name.endswith("tflite"):
        pytest.importorskip("ai_edge_litert")
    zoo.make("mnist", tmp_path / name, format=name.split(".")[1])
    whole = (tmp_path / name).read_bytes()
    for length in (1, 7, 40, 1000, len(whole) // 2, len(whole) - 1000):
        (tmp_path / name).write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"not an? (ONNX|TFLite) model"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content"), [("m.onnx", b""), ("m.tflite", b""), ("m.onnx", b"hello world"), ("m.tflite", b"hello world" * 9)]
)
def test_foreign_files_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="m\\."):
        read(tmp_path / name)


def test_other_formats_and_folders_refused(tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(b"x" * 100)
    with pytest.raises(UsageError, match=r"read from .onnx"):
        read(tmp_path / "m.pt")
    with pytest.raises(InputError, match="a folder has no graph"):
        read(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        read(tmp_path / "none.onnx")


def test_shapes_from_words() -> None:
    assert given_shapes(["x=1,3,4", "a:b=2", "s="]) == {"x": (1, 3, 4), "a:b": (2,), "s": ()}
    for text in ("x", "=1,2", "x=1,two", "x=-1"):
        with pytest.raises(UsageError, match="is not a shape"):
            given_shapes([text])
