"""The weights of a model file: where each tensor's bytes lie, its type and its shape. Files are mapped, never read whole.

ONNX (with external data, subgraphs, functions and constants in nodes), TFLite and circle, onert's nnpackages, OpenVINO's pairs of .xml
and .bin, ncnn's of .param and .bin, PyTorch's .pt2, ExecuTorch's .pte, and the folders of CTranslate2 and onnxruntime-genai. A model that a
runtime converted (TVM's library, an .ort file) is described by the model it was made from.
Formats: onnx.proto3; TensorFlow Lite's and ONE's schema.fbs.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..base import protobuf
from ..base.errors import InputError, os_reason
from ..base.files import Torn, mapped
from . import (
    MOST_DIMENSIONS,
    Stored,
    companion_files,
    ctranslate2_file,
    flatbuffer,
    gguf,
    ncnn_file,
    onnx_file,
    packages,
    pt2_file,
    pte_file,
    stored_bytes,
    tflite_file,
)
from .inputs import openvino_data, openvino_root
from .onnx_file import OnnxTensor


@dataclass(frozen=True)
class StoredTensor:
    """A weight tensor: `bytes` at `offset` of the file, or the bytes in `inline` where the file has them in another form.

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
        return stored_bytes(self.dtype, ())


class Unparsed(InputError):
    """The weights of a model cannot be told apart from the rest of it."""


class UnknownFormat(Unparsed):
    """It is in no format that is read here."""


def tensors(path: Path) -> list[StoredTensor]:
    """All weight tensors of a model. Raises UnknownFormat, Unparsed for a damaged file, InputError where it cannot be read."""
    if path.is_dir():
        path = _in_package(path)
    readers = {
        ".onnx": _onnx,
        ".tflite": _flatbuffer,
        ".circle": _flatbuffer,
        ".xml": _openvino,
        ".gguf": _gguf,
        ".pt2": _pt2,
        ".pte": _pte,
        ".param": _ncnn,
    }
    reader = _ctranslate2 if path.name == ctranslate2_file.NAME else readers.get(path.suffix.lower())
    unknown = UnknownFormat(
        f"the weights of {path.name} cannot be told apart: "
        "memprof reads those of .onnx, .tflite, .circle, .xml, .gguf, .pt2, .pte and .param files, and of CTranslate2's folders"
    )
    if reader is None:
        raise unknown
    try:
        weights = list(reader(path))
        if any(_impossible(tensor) for tensor in weights):
            raise Torn
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    except (Torn, ValueError, LookupError, TypeError, ArithmeticError):
        if reader is _ctranslate2 and not (path.parent / "config.json").is_file():  # its name is one that any program may choose
            raise unknown from None
        raise Unparsed(f"the weights of {path.name} cannot be told apart: the file is damaged or no {path.suffix} file") from None
    if not weights:
        raise Unparsed(f"{path.name} holds no weights")
    return weights


def pieces(path: Path) -> list[StoredTensor]:
    """The bytes of a file of an unknown format as tensors of bytes, in the order of the file, so that copies of its content are found. Raises
    InputError where it cannot be read."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    # A tensor that a program copies for itself is found by the pieces that lie wholly in it.
    step = max(_PIECE_BYTES, -(-size // _MOST_PIECES))
    parts = ((begin, min(step, size - begin)) for begin in range(0, size, step))
    return [StoredTensor(f"bytes from {begin}", "uint8", (count,), count, str(path), begin) for begin, count in parts]


_PIECE_BYTES, _MOST_PIECES = 256 << 10, 4096


def _impossible(tensor: StoredTensor) -> bool:
    """Whether no tensor can have these numbers: their sums and products would not fit into 64 bits."""
    shape, most = tensor.shape, 1 << 56
    if len(shape) > MOST_DIMENSIONS or min((tensor.bytes, tensor.offset, *shape)) < 0:
        return True
    return max(tensor.bytes, tensor.offset) > most or math.prod(extent for extent in shape if extent) * tensor.item_bytes > most


def _in_package(folder: Path) -> Path:
    if (folder / ctranslate2_file.NAME).is_file():
        return folder / ctranslate2_file.NAME
    genai = (folder / packages.GENAI).is_file()
    try:
        return packages.genai_decoder(folder) if genai else packages.first_model(folder)
    except (OSError, Torn):
        manifest = packages.GENAI if genai else packages.NNPACKAGE
        raise Unparsed(f"the weights of {folder.name} cannot be told apart: its {manifest} names no model") from None


class Files:
    """The bytes of tensors. Each file is mapped once, and all mappings are closed together."""

    def __init__(self) -> None:
        self._open: dict[str, mmap.mmap | bytes] = {}

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        # A mapping is closed with the last view of it.
        self._open.clear()

    def data(self, tensor: StoredTensor) -> NDArray[np.uint8]:
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


# -- ONNX

_LITTLE = (4, 10)  # float_data and double_data, whose packed form is the bytes themselves


def _onnx(path: Path) -> Iterator[StoredTensor]:
    with mapped(path) as data:
        for tensor in onnx_file.tensors(data):
            yield from _tensor(data, onnx_file.tensor(data, tensor), path)


def _tensor(data: mmap.mmap, tensor: OnnxTensor, path: Path) -> Iterator[StoredTensor]:
    name, dtype, shape, values = tensor.name, tensor.dtype, tensor.shape, tensor.values
    if dtype is None:
        return
    raw = next((part for part in reversed(values) if part.number == onnx_file.RAW), None)
    if raw is None and len(values) == 1 and values[0].number in _LITTLE:
        raw = values[0]
    if "location" in tensor.external:
        size = int(tensor.external.get("length", 0)) or stored_bytes(dtype, shape)
        file = onnx_file.external_file(path, tensor.external["location"])
        yield StoredTensor(name, dtype, shape, size, str(file), int(tensor.external.get("offset", 0)))
    elif raw is not None:
        yield StoredTensor(name, dtype, shape, raw.end - raw.begin, str(path), raw.begin)
    elif values:
        inline = np.concatenate([protobuf.varints(data, part).astype(_carrier(dtype)) for part in values]).view(np.uint8)
        yield StoredTensor(name, dtype, shape, len(inline), str(path), values[0].begin, inline)


def _carrier(dtype: str) -> str:
    # float16 and bfloat16 travel as their bits in int32_data.
    return "uint16" if dtype in ("float16", "bfloat16") else dtype


# -- TFLite and circle

# The types of weights that are read: those of whole bytes whose values numpy can read.
_NUMPY = frozenset(onnx_file.TYPES.values())


def _flatbuffer(path: Path) -> Iterator[StoredTensor]:
    with mapped(path) as data:
        if data[4:8] not in tflite_file.IDENTIFIERS:
            raise Torn
        flat = flatbuffer.Flat(data)
        buffers = [tflite_file.content(flat, table) for table in flat.tables(flat.root(), tflite_file.MODEL_BUFFERS)]
        seen = set()
        for graph in flat.tables(flat.root(), tflite_file.MODEL_SUBGRAPHS):
            for table in flat.tables(graph, tflite_file.GRAPH_TENSORS):
                number = flat.scalar(table, tflite_file.TENSOR_BUFFER, "<I")
                kind = tflite_file.type_name(flat, table)
                if not number or number in seen or kind not in _NUMPY:  # 0 is the empty buffer of computed values
                    continue
                offset, size = buffers[number]
                if size:
                    seen.add(number)
                    name = flat.text(table, tflite_file.TENSOR_NAME)
                    yield StoredTensor(name, kind, tflite_file.shape(flat, table), size, str(path), offset)


# -- GGUF


def _gguf(path: Path) -> Iterator[StoredTensor]:
    """Blocks of quantized values are plain bytes here: they are found in memory as they are stored."""
    for part in gguf.parts(path):
        with mapped(part) as data:
            for tensor in gguf.read(data).tensors:
                shape = tensor.shape if tensor.dtype else (tensor.bytes,)
                yield StoredTensor(tensor.name, tensor.dtype or "uint8", shape, tensor.bytes, str(part), tensor.offset)


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


def _openvino(path: Path) -> Iterator[StoredTensor]:
    weights = companion_files.inside(path, companion_files.place(path).with_suffix(".bin"))
    for layer in openvino_root(path).iter("layer"):
        data = openvino_data(layer)
        kind = _OPENVINO_TYPES.get(data.get("element_type", ""))
        if layer.get("type") == "Const" and kind is not None:
            shape = tuple(int(word) for word in data.get("shape", "").split(",") if word.strip())
            yield StoredTensor(layer.get("name", ""), kind, shape, int(data.get("size", 0)), str(weights), int(data.get("offset", 0)))


# -- Formats whose readers say from where to where a tensor's bytes lie: CTranslate2, ncnn, PyTorch and ExecuTorch


def _at(stored: Iterable[Stored], file: Path) -> Iterator[StoredTensor]:
    for tensor in stored:
        yield StoredTensor(tensor.name, tensor.dtype, tensor.shape, tensor.end - tensor.begin, str(file), tensor.begin)


def _ctranslate2(path: Path) -> Iterator[StoredTensor]:
    with mapped(path) as data:
        yield from _at(ctranslate2_file.variables(data), path)


def _ncnn(path: Path) -> Iterator[StoredTensor]:
    network = ncnn_file.layers(path.read_text("utf-8"))
    unknown = next((layer for layer in network if not layer.known), None)
    if unknown is not None:
        layer = f"{unknown.name} ({unknown.kind})"
        raise Unparsed(f"the weights of {path.name} cannot be told apart: memprof does not know how many its layer {layer} has")
    weights = companion_files.inside(path, companion_files.place(path).with_suffix(".bin"))
    with mapped(weights) as data:
        yield from _at(ncnn_file.tensors(data, network), weights)


def _pt2(path: Path) -> Iterator[StoredTensor]:
    return _at(pt2_file.tensors(path), path)


def _pte(path: Path) -> Iterator[StoredTensor]:
    with mapped(path) as data:
        yield from _at(pte_file.tensors(data), path)
