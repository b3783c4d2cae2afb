"""What the tests of model inputs share."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

onnx = pytest.importorskip("onnx")


def model(folder: Path, *shapes: tuple, name: str = "open.onnx") -> Path:
    """x, y, ... with these shapes, a text being an open dimension, and a weight that older files list among the inputs too."""
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(numpy.ones(3, numpy.float32), "weight")
    values = [helper.make_tensor_value_info("xyz"[index], TensorProto.FLOAT, shape) for index, shape in enumerate(shapes)]
    values.append(helper.make_tensor_value_info("weight", TensorProto.FLOAT, [3]))
    node = helper.make_node("Relu", ["x"], ["out"])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, shapes[0])
    graph = helper.make_graph([node], "g", values, [out], [weight])
    path = folder / name
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path
