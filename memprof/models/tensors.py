"""The weights of a model file: where each tensor's bytes lie, its type and its shape. Files are mapped, never read whole.

ONNX (with external data, subgraphs, functions and constants in nodes), TFLite and circle, onert's nnpackages, and OpenVINO's pairs of .xml
and .bin. A model that a runtime converted (TVM's library, an .ort file) is described by the model it was made from.
Formats: onnx.proto3; TensorFlow Lite's and ONE's schema.fbs.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, os_reason
from . import flatbuffer


@dataclass(frozen=True)
class Tensor:
    """One weight tensor: `bytes` at `offset` of the file, or as they are in `inline` where the file has them in another form.

    dtype: a numpy name, or bfloat16. shape: () for a scalar.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    path: str
    offset: int
    inline: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)

    @property
    def item_bytes(self) -> int:
        """The size of one element."""
        return 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize


class Unparsed(InputError):
    """The weights of a model cannot be told apart from the rest of it."""


def tensors(path: Path) -> list[Tensor]:
    """All weight tensors of a model. Raises Unparsed where its format is not known or the file is damaged, InputError where it cannot be read."""
    if path.is_dir():
        path = _in_package(path)
    reader = {".onnx": _onnx, ".tflite": _flatbuffer, ".circle": _flatbuffer, ".xml": _openvino}.get(path.suffix.lower())
    if reader is None:
        raise Unparsed(f"the weights of {path.name} cannot be told apart: memprof reads those of .onnx, .tflite, .circle and .xml files")
    try:
        found = list(reader(path))
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    except (_Damaged, flatbuffer.Torn, UnicodeDecodeError, ValueError, IndexError, KeyError, TypeError, OverflowError):
        raise Unparsed(f"the weights of {path.name} cannot be told apart: the file is damaged or no {path.suffix} file") from None
    if not found:
        raise Unparsed(f"{path.name} holds no weights")
    return found


def _in_package(folder: Path) -> Path:
    try:
        with (folder / "metadata" / "MANIFEST").open(encoding="utf-8") as file:
            return folder / str(json.load(file)["models"][0])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        raise Unparsed(f"the weights of {folder.name} cannot be told apart: its metadata/MANIFEST names no model") from None


class Files:
    """Tensors' bytes, through mappings that are opened once and closed together."""

    def __init__(self) -> None:
        self._open: dict[str, mmap.mmap | bytes] = {}

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        # A mapping that a view still holds is closed with the last of them.
        self._open.clear()

    def data(self, tensor: Tensor) -> NDArray[np.uint8]:
        """The tensor's bytes, mapped. Raises Unparsed where they are not in the file, InputError where it cannot be read."""
        if tensor.inline is not None:
            return tensor.inline
        if tensor.path not in self._open:
            try:
                with open(tensor.path, "rb") as file:
                    size = os.fstat(file.fileno()).st_size  # an empty file cannot be mapped
                    self._open[tensor.path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            except OSError as error:
                raise InputError(f"model {tensor.path}: {os_reason(error)}") from None
        whole = self._open[tensor.path]
        if not 0 <= tensor.offset <= len(whole) - tensor.bytes:
            raise Unparsed(f"{tensor.path} is shorter than the model says: {tensor.name} lies beyond its end")
        return np.frombuffer(whole, np.uint8, tensor.bytes, tensor.offset)


# -- ONNX: ModelProto 7 graph, 25 functions; GraphProto 1 node, 5 initializer; FunctionProto 7 node; NodeProto 5 attribute;
#   AttributeProto 5 t, 6 g, 10 tensors, 11 graphs; TensorProto 1 dims, 2 data_type, 4 float_data, 5 int32_data, 7 int64_data, 8 name,
#   9 raw_data, 10 double_data, 11 uint64_data, 13 external_data; StringStringEntryProto 1 key, 2 value

_ONNX_TYPES = {
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
_LITTLE = {4: "<f4", 10: "<f8"}  # typed data whose packed form is the bytes themselves
_DEEPEST = 32


class _Damaged(Exception):
    """These bytes are not what they should be."""


@dataclass(frozen=True)
class _Span:
    begin: int
    end: int


def _onnx(path: Path) -> Iterator[Tensor]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for number, span in _spans(data, _Span(0, len(data)), {7, 25}):
            yield from _graph(data, span, path, 0, {1, 5} if number == 7 else {7})


def _graph(data: mmap.mmap, graph: _Span, path: Path, depth: int, wanted: set[int]) -> Iterator[Tensor]:
    if depth > _DEEPEST:
        raise _Damaged
    for number, part in _spans(data, graph, wanted):
        if number == 5:
            yield from _tensor(data, part, path)
            continue
        for _, attribute in _spans(data, part, {5}):
            for kind, value in _spans(data, attribute, {5, 6, 10, 11}):
                if kind in (5, 10):
                    yield from _tensor(data, value, path)
                else:
                    yield from _graph(data, value, path, depth + 1, {1, 5})


def _tensor(data: mmap.mmap, span: _Span, path: Path) -> Iterator[Tensor]:
    dims: list[int] = []
    kind, name = 0, ""
    raw: _Span | None = None
    typed: list[tuple[int, _Span]] = []
    outside: dict[str, str] = {}
    for number, value in _fields(data, span):
        if number == 1:
            dims += [value] if isinstance(value, int) else _varints(data, value).tolist()
        elif number == 2 and isinstance(value, int):
            kind = value
        elif isinstance(value, int):
            continue
        elif number == 8:
            name = data[value.begin : value.end].decode()
        elif number == 9:
            raw = value
        elif number in (4, 5, 7, 10, 11):
            typed.append((number, value))
        elif number == 13:
            pair = {key: data[text.begin : text.end].decode() for key, text in _spans(data, value, {1, 2})}
            outside[pair.get(1, "")] = pair.get(2, "")
    dtype = _ONNX_TYPES.get(kind)
    if dtype is None:  # strings, and types of less than a byte
        return
    shape = tuple(dims)
    if "location" in outside:
        size = int(outside.get("length", 0)) or _size(dtype, shape)
        yield Tensor(name, dtype, shape, size, str(path.parent / outside["location"]), int(outside.get("offset", 0)))
    elif raw is not None:
        yield Tensor(name, dtype, shape, raw.end - raw.begin, str(path), raw.begin)
    elif len(typed) == 1 and typed[0][0] in _LITTLE:
        yield Tensor(name, dtype, shape, typed[0][1].end - typed[0][1].begin, str(path), typed[0][1].begin)
    elif typed:
        inline = np.concatenate([_varints(data, part).astype(_carrier(dtype)) for _, part in typed]).view(np.uint8)
        yield Tensor(name, dtype, shape, len(inline), str(path), typed[0][1].begin, inline)


def _carrier(dtype: str) -> str:
    # float16 and bfloat16 travel as their bits in int32_data.
    return "uint16" if dtype in ("float16", "bfloat16") else dtype


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    count = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    for size in shape:
        count *= size
    return count


def _spans(data: mmap.mmap, span: _Span, wanted: set[int]) -> Iterator[tuple[int, _Span]]:
    """The length-delimited fields that are wanted."""
    for number, value in _fields(data, span):
        if number in wanted and isinstance(value, _Span):
            yield number, value


def _fields(data: mmap.mmap, span: _Span) -> Iterator[tuple[int, _Span | int]]:
    """The fields of a protobuf message: a place in the file for those with a length, a number for varints; fixed ones are stepped over."""
    at = span.begin
    while at < span.end:
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 2:
            size, at = _varint(data, at)
            if at + size > span.end:
                raise _Damaged
            yield key >> 3, _Span(at, at + size)
            at += size
        elif wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise _Damaged


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Damaged


def _varints(data: mmap.mmap, span: _Span) -> NDArray[np.int64]:
    """Packed varints as signed 64-bit numbers, all at once: a weight of a million of them is no rarity in typed data."""
    raw = np.frombuffer(data[span.begin : span.end], np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if len(raw) and (not len(ends) or ends[-1] != len(raw) - 1):
        raise _Damaged
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    place = np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)
    parts = (raw & 0x7F).astype(np.uint64) << (7 * np.minimum(place, 9)).astype(np.uint64)
    return np.add.reduceat(parts, starts).view(np.int64) if len(ends) else np.zeros(0, np.int64)


# -- TFLite and circle: Model 2 subgraphs, 4 buffers; SubGraph 0 tensors; Tensor 0 shape, 1 type, 2 buffer, 3 name; Buffer 0 data, 1 offset, 2 size

_TFLITE_TYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    6: "bool",
    7: "int16",
    9: "int8",
    10: "float64",
    12: "uint64",
    15: "uint32",
    16: "uint16",
    18: "bfloat16",
}


def _flatbuffer(path: Path) -> Iterator[Tensor]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[4:8] not in (b"TFL3", b"CIR0"):
            raise _Damaged
        flat = flatbuffer.Flat(data)
        buffers = [_buffer(flat, table) for table in flat.tables(flat.root(), 4)]
        seen = set()
        for graph in flat.tables(flat.root(), 2):
            for table in flat.tables(graph, 0):
                number = flat.scalar(table, 2, "<I")
                kind = _TFLITE_TYPES.get(flat.scalar(table, 1, "<b"))
                if not number or number in seen or kind is None:  # 0 is the empty buffer of all that is computed
                    continue
                offset, size = buffers[number]
                if size:
                    seen.add(number)
                    yield Tensor(flat.text(table, 3), kind, flat.integers(table, 0), size, str(path), offset)


def _buffer(flat: flatbuffer.Flat, table: int) -> tuple[int, int]:
    inside = flat.vector(table, 0, 1)
    return inside if inside[1] else (flat.scalar(table, 1, "<Q"), flat.scalar(table, 2, "<Q"))


# -- OpenVINO: <layer type="Const" name=""><data element_type="f32" shape="1, 2" offset="0" size="8"/></layer>, offsets into the .bin file

_OPENVINO_TYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "boolean": "bool",
    "u8": "uint8",
    "i8": "int8",
    **{f"{sign}{bits}": f"{word}{bits}" for sign, word in (("i", "int"), ("u", "uint")) for bits in (16, 32, 64)},
}


def _openvino(path: Path) -> Iterator[Tensor]:
    from xml.etree import ElementTree

    weights = path.with_suffix(".bin")
    try:
        for layer in ElementTree.parse(path).getroot().iter("layer"):
            data = layer.find("data")
            if layer.get("type") != "Const" or data is None:
                continue
            kind = _OPENVINO_TYPES.get(data.get("element_type", ""))
            if kind is not None:
                shape = tuple(int(word) for word in data.get("shape", "").split(",") if word.strip())
                yield Tensor(layer.get("name", ""), kind, shape, int(data.get("size", 0)), str(weights), int(data.get("offset", 0)))
    except ElementTree.ParseError:
        raise _Damaged from None
