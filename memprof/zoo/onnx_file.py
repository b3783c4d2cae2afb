"""An ONNX model whose constants are made while the file is written, so that gigabytes of weights need megabytes.

onnx's classes hold every constant two or three times and end at 2 GiB. Here they serialise only the graph around the
constants. The constants follow in protobuf's wire format (protobuf.dev/programming-guides/encoding): fields may come in
any order, a message or bytes field is a tag, its length and its content. With external data the content goes to a side
file and the model names its place (github.com/onnx/onnx/blob/main/docs/ExternalData.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from ..base.protobuf import opening
from .graph import Weight
from .weights import blocks

OPSET = 17
# The format of 2021. Later versions add nothing used here, and older runtimes refuse them.
IR_VERSION = 8
# The ONNX documentation asks external data to start at multiples of this, so that it can be mapped into memory.
_PAGE = 4096

_DATA_TYPES = {"f4": TensorProto.FLOAT, "i1": TensorProto.INT8, "i4": TensorProto.INT32, "i8": TensorProto.INT64, "b1": TensorProto.BOOL}


class Initializer(Struct, frozen=True):
    """A named tensor. `parts` are its values in order, flat or not, and are walked once, when the file is written."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: Iterable[npt.NDArray[Any]]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


class OnnxModel(Struct, frozen=True):
    """A model to be saved: the graph without its constants, and the constants."""

    proto: ModelProto
    constants: tuple[Initializer, ...]

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants together."""
        return sum(constant.nbytes for constant in self.constants)


def constant(name: str, values: npt.NDArray[Any]) -> Initializer:
    """A constant from an array in memory."""
    return Initializer(name, values.shape, values.dtype, [values])


def weight_constant(model: str, weight: Weight) -> Initializer:
    """A weight of a model as float32, its values drawn when the file is written."""
    return Initializer(weight.name, weight.shape, np.dtype("<f4"), blocks(model, weight))


def assemble(
    name: str,
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    constants: Iterable[Initializer],
) -> OnnxModel:
    """The envelope around nodes and constants, with every version fixed."""
    graph = helper.make_graph(nodes, name, inputs, outputs)
    opsets = [helper.make_opsetid("", OPSET)]
    proto = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets, producer_name="memprof zoo")
    return OnnxModel(proto, tuple(constants))


def save(model: OnnxModel, file: BinaryIO, side: BinaryIO | None = None, location: str | None = None) -> None:
    """Writes a model, its large constants to `side` where that is given.

    `location` is the side file's name as the model is to know it, relative to the model. Constants below a page stay in
    the model in any case: runtimes want shapes, bounds and scales in the file itself.
    """
    entries = _entries(model.constants, location)
    graph = model.proto.graph.SerializeToString(deterministic=True)
    file.write(_envelope(model.proto))
    file.write(opening(ModelProto.GRAPH_FIELD_NUMBER, len(graph) + sum(entry.bytes_in_graph for entry in entries)))
    file.write(graph)
    for entry in entries:
        file.write(entry.head)
        target = file
        if side is not None and entry.offset is not None:
            target = side
            target.seek(entry.offset)
        for part in entry.constant.parts:
            target.write(np.ascontiguousarray(part).data)


class _Entry(Struct, frozen=True):
    """A constant and its place. `head` is its part of the graph up to the values, `offset` is None within the model."""

    constant: Initializer
    head: bytes
    offset: int | None

    @property
    def bytes_in_graph(self) -> int:
        return len(self.head) + (self.constant.nbytes if self.offset is None else 0)


def _entries(constants: Iterable[Initializer], location: str | None) -> list[_Entry]:
    """location: the name of the file for large constants, None where all lie in the model."""
    entries, end = [], 0
    for constant in constants:
        tensor = TensorProto(name=constant.name, dims=constant.shape, data_type=_DATA_TYPES[constant.dtype.str[1:]])
        offset, content, size = None, opening(TensorProto.RAW_DATA_FIELD_NUMBER, constant.nbytes), constant.nbytes
        if location is not None and constant.nbytes >= _PAGE:
            offset, content, size = end, b"", 0
            end += -(-constant.nbytes // _PAGE) * _PAGE
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", location), ("offset", str(offset)), ("length", str(constant.nbytes))):
                tensor.external_data.add(key=key, value=value)
        fields = tensor.SerializeToString(deterministic=True) + content
        entries.append(_Entry(constant, opening(GraphProto.INITIALIZER_FIELD_NUMBER, len(fields) + size) + fields, offset))
    return entries


def _envelope(proto: ModelProto) -> bytes:
    outer = ModelProto()
    outer.CopyFrom(proto)
    outer.ClearField("graph")
    return bytes(outer.SerializeToString(deterministic=True))
