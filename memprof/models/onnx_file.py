"""The tensors of an ONNX file, found by walking its protobuf: in the graph, in nodes, in graphs inside nodes, in functions.

Message and field numbers are those of onnx.proto3, IR version 3 and later. External data (docs/ExternalData.md of onnx) is a path relative to the
model's folder, see companion_files.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from ..base import protobuf
from ..base.files import Data, Torn
from ..base.protobuf import Field
from . import MOST_DIMENSIONS, companion_files

# message: {field: the message in it}; other fields hold no tensors.
INSIDE: Mapping[str, Mapping[int, str]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Function": {7: "Node"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
}
# TensorProto.DataType of numbers, in numpy's spelling.
TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
}
# TensorProto: float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data; and external_data.
VALUES = frozenset((4, 5, 6, 7, 9, 10, 11))
RAW = 9
EXTERNAL = 13
_DIMS, _DATA_TYPE, _NAME = 1, 2, 8
_KEY, _VALUE = 1, 2  # StringStringEntryProto


def tensors(data: Data) -> Iterator[Field]:
    """Where each TensorProto of a model lies. Raises Torn."""
    return _tensors(data, protobuf.root(data), "Model", 0)


def _tensors(data: Data, message: Field, kind: str, depth: int) -> Iterator[Field]:
    if depth > protobuf.DEEPEST:
        raise Torn
    for part in protobuf.parts(data, message, INSIDE[kind]):
        inner = INSIDE[kind][part.number]
        if inner == "Tensor":
            yield part
        else:
            yield from _tensors(data, part, inner, depth + 1)


class OnnxTensor(Struct, frozen=True):
    """A TensorProto. dtype: None for strings and for types of less than a byte. values: the fields that hold its values, if they lie in the model's
    own file. external: else the entries that say where they lie."""

    name: str
    dtype: str | None
    shape: tuple[int, ...]
    values: tuple[Field, ...]
    external: Mapping[str, str]


def tensor(data: Data, message: Field) -> OnnxTensor:
    """The TensorProto that lies there. Raises Torn, also for more dimensions than any model has."""
    name, kind, shape, values, external = "", 0, list[int](), list[Field](), dict[str, str]()
    for part in protobuf.fields(data, message.begin, message.end):
        if part.wire == protobuf.VARINT and part.number == _DIMS:
            shape.append(protobuf.signed(data, part))
        elif part.wire == protobuf.VARINT and part.number == _DATA_TYPE:
            kind = protobuf.signed(data, part)
        elif part.wire != protobuf.BYTES:
            continue
        elif part.number == _DIMS:
            shape += protobuf.varints(data, part).tolist()
        elif part.number == _NAME:
            name = data[part.begin : part.end].decode("utf-8", "replace")
        elif part.number in VALUES:
            values.append(part)
        elif part.number == EXTERNAL:
            pair = {word.number: protobuf.text(data, word) for word in protobuf.parts(data, part, (_KEY, _VALUE))}
            external[pair.get(_KEY, "")] = pair.get(_VALUE, "")
    if len(shape) > MOST_DIMENSIONS:  # before their product is taken
        raise Torn
    return OnnxTensor(name, TYPES.get(kind), tuple(shape), tuple(values), external)


def external_file(model: Path, location: str) -> Path:
    """The file that holds a model's external data. Raises InputError for a file outside the model's folder."""
    return companion_files.named(model, location, "its external data")
