"""Which files make up a model, what they hold and how much of them is weights.

A model is a file with the external data it names (ONNX), a folder (an onert nnpackage), or a pair (OpenVINO's .xml and .bin). Files are read
just as far as this needs, without any runtime's package: the two formats' own documents are cited where they are read.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError, os_reason
from ..runs.records import Model, ModelFile
from . import flatbuffer


def identify(path: Path, name: str | None = None) -> Model:
    """The model at a path, hashed.

    Raises InputError where it is missing, empty or unreadable, or where a folder is no nnpackage.
    """
    try:
        files = [_hashed(file) for file in files_of(path)]
        weight_bytes = _weight_bytes(path)
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    together = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
    return Model(
        name=name or path.name,
        path=str(path.resolve()),
        files=tuple(files),
        bytes=sum(file.bytes for file in files),
        sha256=files[0].sha256 if len(files) == 1 else together,
        weight_bytes=weight_bytes,
    )


def files_of(path: Path) -> list[Path]:
    """The files that belong to a model, itself first. Raises InputError or OSError."""
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file())
        if not any(file.name == "MANIFEST" for file in found):
            raise InputError(f"model {path}: a folder without metadata/MANIFEST is no nnpackage")
        return found
    if not path.exists():
        raise InputError(f"model {path}: no such file")
    if path.stat().st_size == 0:
        raise InputError(f"model {path}: the file is empty")
    if path.suffix == ".onnx":
        return [path, *_external_files(path)]
    if path.suffix == ".xml" and path.with_suffix(".bin").exists():
        return [path, path.with_suffix(".bin")]
    return [path]


def _external_files(path: Path) -> list[Path]:
    names = sorted({location for _, location in _onnx_tensors(path) if location})
    for name in names:
        if not (path.parent / name).is_file():
            raise InputError(f"model {path}: its external data {name} is missing")
    return [path.parent / name for name in names]


def _hashed(path: Path) -> ModelFile:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return ModelFile(str(path.resolve()), size, digest.hexdigest())


def _weight_bytes(path: Path) -> int | None:
    if path.suffix == ".onnx":
        return sum(size for size, _ in _onnx_tensors(path)) or None
    if path.suffix in (".tflite", ".circle"):
        return _flatbuffer_weight_bytes(path)
    return None


# -- ONNX: onnx.proto3, message numbers as of IR version 3 and later
#   ModelProto 7 graph;  GraphProto 1 node, 5 initializer;  NodeProto 5 attribute;  AttributeProto 5 t, 6 g, 10 tensors, 11 graphs
#   TensorProto 4-7, 10, 11 typed data, 9 raw_data, 13 external_data;  StringStringEntryProto 1 key, 2 value

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _Damaged(Exception):
    """These bytes are no protobuf message."""


def _onnx_tensors(path: Path) -> list[tuple[int, str]]:
    """(bytes of data, external file's name or "") of each tensor; none for a file that is not ONNX, which its runtime will say."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        try:
            return [found for _, graph in _fields(view, {7}) for found in _graph_tensors(graph, 0)]
        except (_Damaged, UnicodeDecodeError, ValueError):
            return []
        finally:
            view.release()


def _graph_tensors(graph: memoryview, depth: int) -> Iterator[tuple[int, str]]:
    if depth > 32:
        raise _Damaged
    for number, part in _fields(graph, {1, 5}):
        if number == 5:
            yield _tensor(part)
            continue
        for _, attribute in _fields(part, {5}):
            for kind, value in _fields(attribute, {5, 6, 10, 11}):
                if kind in (5, 10):
                    yield _tensor(value)
                else:
                    yield from _graph_tensors(value, depth + 1)


def _tensor(tensor: memoryview) -> tuple[int, str]:
    size, entries = 0, {}
    for number, part in _fields(tensor, {4, 5, 6, 7, 9, 10, 11, 13}):
        if number == 13:
            pair = {kind: bytes(text).decode() for kind, text in _fields(part, {1, 2})}
            entries[pair.get(1, "")] = pair.get(2, "")
        else:
            size += len(part)
    return size + int(entries.get("length", 0)), entries.get("location", "")


def _fields(message: memoryview, wanted: set[int]) -> Iterator[tuple[int, memoryview]]:
    """Length-delimited fields of a protobuf message that are wanted; all others are stepped over."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _BYTES:
            size, at = _varint(message, at)
            if at + size > end:
                raise _Damaged
            if number in wanted:
                yield number, message[at : at + size]
            at += size
        elif wire == _VARINT:
            _, at = _varint(message, at)
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise _Damaged


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Damaged


# -- TFLite and circle: flatbuffers, schema.fbs: table Model { 4 buffers: [Buffer] }, table Buffer { 0 data: [ubyte]; 1 offset; 2 size }


def _flatbuffer_weight_bytes(path: Path) -> int | None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        flat = flatbuffer.Flat(data)
        try:
            return sum(flat.vector(table, 0, 1)[1] + flat.scalar(table, 2, "<Q") for table in flat.tables(flat.root(), 4)) or None
        except flatbuffer.Torn:
            return None
