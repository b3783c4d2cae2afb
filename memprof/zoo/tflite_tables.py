"""The tables of a TensorFlow Lite flatbuffer (schema version 3, identifier TFL3): tensors, buffers and operators of one graph.

The schema's classes come with ai-edge-litert, which generates them from TFLite's schema.fbs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from msgspec import Struct

# Imported by name because neither package describes its types.
_flatbuffers: Any = importlib.import_module("flatbuffers")
schema: Any = importlib.import_module("ai_edge_litert.schema_py_generated")

_SCHEMA_VERSION = 3
# schema.fbs, table Buffer: `data:[ubyte] (force_align: 16)`. flatbuffers' Python code generator leaves that out.
_ALIGNMENT = 16
# For tables and names beside the weights; inception_v3 needs 40 kB.
_ROOM = 1 << 20
# The old field for an operator's code is one byte wide. Codes beyond are in the new field, and the old one then has its largest value.
_BEYOND = 127


class _Forgetful(dict[Any, Any]):
    """Makes a builder write a vtable for each table.

    Sharing would depend on flatbuffers' release: 24.3.25 takes two vtables as equal that differ in the size of their
    tables, 25.12.19 does not, and the same model would have different bytes.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keeps nothing."""


class ConstantBuffer(Struct, frozen=True):
    """Stands for the schema's BufferT: constant data, made only when it is written, at a 16-byte boundary."""

    data: Callable[[], npt.NDArray[Any]] | None = None

    def Pack(self, builder: Any) -> Any:
        """Writes the data and its table, and returns the table's offset. The schema's classes call it by this name."""
        data = None if self.data is None else _aligned_vector(builder, np.ascontiguousarray(self.data()))
        schema.BufferStart(builder)
        if data is not None:
            schema.BufferAddData(builder, data)
        return schema.BufferEnd(builder)


def _aligned_vector(builder: Any, data: npt.NDArray[Any]) -> Any:
    builder.StartVector(1, data.nbytes, _ALIGNMENT)
    # A builder fills its bytes from the end.
    builder.head -= data.nbytes
    builder.Bytes[builder.head : builder.head + data.nbytes] = data.data.cast("B")
    return builder.EndVector()


def table(kind: str, **fields: Any) -> Any:
    """An object of the schema. Set field by field: constructors of older ai-edge-litert releases take no arguments."""
    made = getattr(schema, kind)()
    for field, value in fields.items():
        setattr(made, field, value)
    return made


class Tables:
    """Collects the tables of one subgraph: tensors and buffers by index, operators in order."""

    def __init__(self, name: str, versions: Mapping[str, int]) -> None:
        """versions: of operators that are not version 1."""
        self._name, self._versions = name, versions
        # Buffer 0 is empty by convention and serves every tensor without constant data.
        self._buffers = [ConstantBuffer()]
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._codes: list[str] = []
        self.indices: dict[str, int] = {}

    def tensor(self, name: str, shape: Sequence[int], kind: str, buffer: ConstantBuffer | None = None, **more: Any) -> int:
        """The index of a new tensor. kind: of the schema's types. more: of the schema's fields."""
        if buffer is not None:
            self._buffers.append(buffer)
        index = self.indices[name] = len(self._tensors)
        place = 0 if buffer is None else len(self._buffers) - 1
        self._tensors.append(table("TensorT", name=name, shape=list(shape), type=getattr(schema.TensorType, kind), buffer=place, **more))
        return index

    def integers(self, name: str, numbers: Sequence[int]) -> int:
        """A constant vector of 32-bit integers."""
        array = np.array(numbers, dtype="<i4")
        return self.tensor(name, [len(numbers)], "INT32", ConstantBuffer(lambda: array))

    def operator(self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: Any = None) -> None:
        """A further operator, by the schema's name for it. options: their table, None for an operator without."""
        if name not in self._codes:
            self._codes.append(name)
        kind = "NONE" if options is None else type(options).__name__.removesuffix("T")
        self._operators.append(
            table(
                "OperatorT",
                opcodeIndex=self._codes.index(name),
                inputs=list(inputs),
                outputs=list(outputs),
                builtinOptionsType=getattr(schema.BuiltinOptions, kind),
                builtinOptions=options,
            )
        )

    def write(self, inputs: Sequence[int], outputs: Sequence[int], weight_bytes: int, file: BinaryIO) -> None:
        """Writes the model to an open file. It is held in memory as a whole, and the largest weight two or three times."""
        subgraph = table(
            "SubGraphT", tensors=self._tensors, inputs=list(inputs), outputs=list(outputs), operators=self._operators, name=self._name
        )
        model = table(
            "ModelT",
            version=_SCHEMA_VERSION,
            operatorCodes=[self._code(name) for name in self._codes],
            subgraphs=[subgraph],
            description="memprof zoo",
            buffers=self._buffers,
        )
        # A builder that must grow copies its whole content.
        builder = _flatbuffers.Builder(weight_bytes + _ROOM)
        builder.vtables = _Forgetful()
        builder.Finish(model.Pack(builder), b"TFL3")
        file.write(memoryview(builder.Bytes)[builder.Head() :])

    def _code(self, name: str) -> Any:
        code = getattr(schema.BuiltinOperator, name)
        return table("OperatorCodeT", deprecatedBuiltinCode=min(code, _BEYOND), builtinCode=code, version=self._versions.get(name, 1))
