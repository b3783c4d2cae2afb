"""An ONNX file without its large weights, made by walking its protobuf in a mapped file: gigabytes of weights cost nothing to read around.

The wire format is protobuf.dev/programming-guides/encoding; the message numbers are onnx.proto3's, of IR version 3 and later. A tensor larger
than `SMALL` loses its values and says in an external_data entry of its own where they lie; everything else stays as it is, byte for byte.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, os_reason

# Shape inference reads small constants (a Reshape's target, say); no weight worth leaving out is smaller.
SMALL = 4096
# The key of the entry that says where values lie: "OFFSET LENGTH" in the model's file.
PLACE = "memprof.place"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# protobuf's own limit for messages inside messages.
_DEEPEST = 100

# message: {field: the message in it}; fields that are not named are copied.
_INSIDE = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Function": {7: "Node"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
}
# TensorProto: float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data.
_VALUES = frozenset((4, 5, 6, 7, 9, 10, 11))


class Torn(Exception):
    """These bytes are no protobuf message, or not a whole one."""


@dataclass(frozen=True)
class Field:
    """A field of a message: where it begins with its tag, and where its value begins and ends."""

    number: int
    wire: int
    start: int
    begin: int
    end: int


def fields(data: mmap.mmap | bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message that lies from start to end. Raises Torn."""
    at = start
    while at < end:
        key, begin = varint(data, at, end)
        number, wire = key >> 3, key & 7
        if wire == _BYTES:
            length, begin = varint(data, begin, end)
            stop = begin + length
        elif wire == _VARINT:
            _, stop = varint(data, begin, end)
        elif wire in (_FIXED64, _FIXED32):
            stop = begin + (8 if wire == _FIXED64 else 4)
        else:
            raise Torn
        if stop > end or not number:
            raise Torn
        yield Field(number, wire, at, begin, stop)
        at = stop


def varint(data: mmap.mmap | bytes, at: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends. Raises Torn."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Torn


def encoded(value: int) -> bytes:
    """The same the other way round."""
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def skeleton(path: Path) -> bytes:
    """The model without the values of its large tensors. Raises InputError where the file cannot be read or is no whole protobuf."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return b"".join(_message(data, "Model", 0, len(data), 0))
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    except (Torn, ValueError):
        raise InputError(f"model {path}: this is no ONNX model, or not a whole one") from None


def _message(data: mmap.mmap, kind: str, start: int, end: int, depth: int) -> Iterator[bytes]:
    if depth > _DEEPEST:
        raise Torn
    inside = _INSIDE[kind]
    copied = start  # from here on nothing is written yet
    for part in fields(data, start, end):
        if part.wire != _BYTES or part.number not in inside or part.end - part.begin <= SMALL:
            continue
        yield data[copied : part.start]
        child = inside[part.number]
        if child == "Tensor":
            content = b"".join(_tensor(data, part.begin, part.end))
        else:
            content = b"".join(_message(data, child, part.begin, part.end, depth + 1))
        yield encoded(part.number << 3 | _BYTES) + encoded(len(content)) + content
        copied = part.end
    yield data[copied:end]


def _tensor(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    values = []
    for part in fields(data, start, end):
        if part.number in _VALUES and part.end - part.begin > SMALL and part.wire == _BYTES:
            values.append(part)
        else:
            yield data[part.start : part.end]
    if len(values) == 1:
        entry = _text(1, PLACE) + _text(2, f"{values[0].begin} {values[0].end - values[0].begin}")
        yield encoded(13 << 3 | _BYTES) + encoded(len(entry)) + entry


def _text(number: int, text: str) -> bytes:
    content = text.encode()
    return encoded(number << 3 | _BYTES) + encoded(len(content)) + content
