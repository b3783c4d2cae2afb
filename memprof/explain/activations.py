"""How much memory a model's activations need at least in the order of its file: the sum of the tensors that live at once, at its highest.

No reuse in place, no scratch memory of kernels: what a runtime's arena holds is set beside it, not judged by the byte. TFLite and circle are
read from the file alone; ONNX needs the package onnx, which infers the shapes. None where either cannot be had.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import flatbuffer
from . import weights

_ONNX_MOST_BYTES = 512 << 20  # the package reads a model whole


@dataclass(frozen=True)
class Step:
    """One operator: the names of the tensors it reads and writes."""

    reads: tuple[object, ...]
    writes: tuple[object, ...]


def highest(path: Path) -> int | None:
    """The largest sum of live activations, in bytes; None where it cannot be told."""
    try:
        if path.suffix in (".tflite", ".circle"):
            return _tflite(path)
        if path.suffix == ".onnx" and path.stat().st_size <= _ONNX_MOST_BYTES:
            return _onnx(path)
    except Exception:  # an aid to one finding; whatever is wrong with the model has been said where its weights were read
        return None
    return None


def live(steps: Sequence[Step], sizes: dict[object, int], kept: Iterable[object]) -> int:
    """The largest sum of sizes of tensors alive at once: from the step that writes one to the last that reads it; `kept` to the end."""
    kept = set(kept)
    last = {name: number for number, step in enumerate(steps) for name in (*step.reads, *step.writes)}
    written = {name for step in steps for name in step.writes}
    now = most = sum(sizes.get(name, 0) for name in last if name not in written)
    for number, step in enumerate(steps):
        now += sum(sizes.get(name, 0) for name in step.writes)
        most = max(most, now)
        now -= sum(sizes.get(name, 0) for name in {*step.reads, *step.writes} if last[name] == number and name not in kept)
    return most


def _tflite(path: Path) -> int | None:
    # SubGraph 0 tensors, 1 inputs, 2 outputs, 3 operators; Operator 1 inputs, 2 outputs; Tensor 0 shape, 1 type, 2 buffer
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        root = flatbuffer.u32(data, 0)
        buffers = [weights._buffer(data, table)[1] for table in weights._tables(data, root, 4)]
        graphs = weights._tables(data, root, 2)
        if len(graphs) != 1:
            return None
        sizes: dict[object, int] = {}
        for number, table in enumerate(weights._tables(data, graphs[0], 0)):
            kind = weights._TFLITE_TYPES.get(weights._scalar(data, table, 1, "<b"))
            if kind is not None and not buffers[weights._scalar(data, table, 2, "<I")]:
                sizes[number] = weights._size(kind, weights._ints(data, table, 0))
        steps = [
            Step(weights._ints(data, operator, 1), weights._ints(data, operator, 2)) for operator in weights._tables(data, graphs[0], 3)
        ]
        return live(steps, sizes, weights._ints(data, graphs[0], 2))


def _onnx(path: Path) -> int | None:
    try:
        import onnx
        from onnx import helper, shape_inference
    except ImportError:
        return None
    model = onnx.load(str(path), load_external_data=False)
    names = {tensor.name for tensor in model.graph.initializer}
    graph = shape_inference.infer_shapes(model).graph
    sizes: dict[object, int] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        shape = [size.dim_value for size in tensor.shape.dim]
        if value.name not in names and tensor.elem_type:
            if not all(shape):
                return None  # a size that is known only at run time
            sizes[value.name] = int(np.prod(shape, dtype=np.int64)) * np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).itemsize
    steps = [Step(tuple(node.input), tuple(node.output)) for node in graph.node]
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return None
    return live(steps, sizes, [value.name for value in graph.output])
