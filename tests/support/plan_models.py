"""Small models for the tests of planning, with sizes that can be added up by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def value(name: str, shape: Sequence[int | str | None], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int, seed: int = 0) -> Any:
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), name)


def save(path: Path, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], weights: Sequence[Any] = (), **rest: Any) -> Path:
    """An ONNX file, opset 18 unless `opset` says otherwise; `values` are value_infos, `functions` and `sparse` what they say."""
    domains = [helper.make_opsetid("", rest.get("opset", 18)), *(helper.make_opsetid(name, 1) for name in rest.get("domains", ()))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights), value_info=list(rest.get("values", ())))
    graph.sparse_initializer.extend(rest.get("sparse", ()))
    model = helper.make_model(graph, opset_imports=domains, ir_version=9, functions=list(rest.get("functions", ())))
    path.write_bytes(model.SerializeToString())
    return path


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any) -> Any:
    return helper.make_node(kind, inputs, outputs, name=name, **attributes)


def wide(path: Path) -> Path:
    """Three branches written breadth-first: 400 bytes each while wide, 4 when small. Another order peaks lower."""
    branches = range(3)
    nodes = [node("Exp", ["x"], [f"wide{n}"], f"widen{n}") for n in branches]
    nodes += [node("ReduceSum", [f"wide{n}"], [f"small{n}"], f"shrink{n}", keepdims=1) for n in branches]
    nodes += [node("Concat", [f"small{n}" for n in branches], ["y"], "join", axis=0)]
    return save(path, nodes, [value("x", [100])], [value("y", [3])])
