"""An ONNX file without its large weights, made by walking its protobuf in a mapped file: gigabytes of weights are passed over, not read.

A tensor whose values take more than `SMALL` bytes loses them, and an added external_data entry says where they lie. Everything else stays as it
is, byte for byte.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from ..base import protobuf
from ..base.errors import InputError, os_reason
from ..base.files import Torn, mapped
from . import onnx_file

# Shape inference reads small constants (a Reshape's target, say); no weight worth leaving out is smaller.
SMALL = 4096
# The key of the entry that says where values lie: "OFFSET LENGTH" in the model's file.
PLACE = "memprof.place"


def skeleton(path: Path) -> bytes:
    """The model without the values of its large tensors. Raises InputError where the file cannot be read or is no whole protobuf."""
    try:
        with mapped(path) as data:
            return b"".join(_message(data, "Model", 0, len(data), 0))
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    except (Torn, ValueError):
        raise InputError(f"model {path}: this is not an ONNX model, or not a complete one") from None


def _message(data: mmap.mmap, kind: str, start: int, end: int, depth: int) -> Iterator[bytes]:
    if depth > protobuf.DEEPEST:
        raise Torn
    inside = onnx_file.INSIDE[kind]
    copied = start  # all before it is written
    for part in protobuf.fields(data, start, end):
        if part.wire != protobuf.BYTES or part.number not in inside or part.end - part.begin <= SMALL:
            continue
        yield data[copied : part.start]
        child = inside[part.number]
        if child == "Tensor":
            content = b"".join(_tensor(data, part.begin, part.end))
        else:
            content = b"".join(_message(data, child, part.begin, part.end, depth + 1))
        yield protobuf.field(part.number, content)
        copied = part.end
    yield data[copied:end]


def _tensor(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    values = []
    for part in protobuf.fields(data, start, end):
        if part.number in onnx_file.VALUES and part.end - part.begin > SMALL and part.wire == protobuf.BYTES:
            values.append(part)
        else:
            yield data[part.start : part.end]
    if len(values) == 1:
        place = f"{values[0].begin} {values[0].end - values[0].begin}"
        yield protobuf.field(onnx_file.EXTERNAL, protobuf.field(1, PLACE.encode()) + protobuf.field(2, place.encode()))
