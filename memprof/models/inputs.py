"""The inputs of a model as its file declares them, and the open dimensions that are taken as 1 because no size was given.

They are read from .onnx, .tflite, .circle, OpenVINO's .xml and onert's nnpackages, without any runtime. Other files have no inputs here. Message
numbers are onnx.proto3's.
"""

from __future__ import annotations

import mmap
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ..base import protobuf
from ..base.errors import InputError
from ..base.files import Torn, mapped
from . import MOST_DIMENSIONS, flatbuffer, onnx_file, tflite_file
from .packages import first_model

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_WHOLE = re.compile(r"(u?)int(\d+)")
_MOST_XML = 64 << 20
_MOST_WORDS = 4  # in a hint


class Input(Struct, frozen=True):
    """An input: its name and its shape, a dimension None where the file leaves it open. dimensions: their names, empty where they have none.
    dtype: its type in numpy's spelling if it is a type of numbers that is read, else empty."""

    name: str
    shape: tuple[int | None, ...]
    dimensions: tuple[str, ...] = ()
    dtype: str = ""


def inputs(path: Path) -> tuple[Input, ...]:
    """The inputs that a model's file declares; none where it cannot be read, which its runtime will say."""
    try:
        status = path.stat()
        return _inputs(path, status.st_size, status.st_mtime_ns)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, Torn, InputError):
        return ()


def names(path: Path) -> tuple[str, ...]:
    """The names by which a runtime may know the model's inputs; none where its file does not tell them all."""
    try:
        if path.is_dir():
            path = first_model(path)
        reader = {".onnx": _onnx_names, ".tflite": _flatbuffer_names, ".circle": _flatbuffer_names}.get(path.suffix.lower())
        return tuple(dict.fromkeys(reader(path))) if reader is not None else ()
    except (OSError, ValueError, LookupError, TypeError, RecursionError, Torn, InputError):
        return ()


@lru_cache(maxsize=64)
def _inputs(path: Path, _size: int, _changed_ns: int) -> tuple[Input, ...]:
    if path.is_dir():
        path = first_model(path)
    reader = {".onnx": _onnx, ".tflite": _flatbuffer, ".circle": _flatbuffer, ".xml": _openvino}.get(path.suffix.lower())
    return tuple(declared for declared in reader(path) if len(declared.shape) <= MOST_DIMENSIONS) if reader is not None else ()


def scalars(path: Path) -> tuple[str, ...]:
    """The inputs that the model's file declares as one number."""
    return tuple(declared.name for declared in inputs(path) if not declared.shape)


def expected(dtype: str, value: str) -> str:
    """What an input of a type of numbers takes, if it does not take the text of a value; else, and for other types, empty."""
    whole = _WHOLE.fullmatch(dtype)
    try:
        if whole is not None:
            bits = int(whole[2])
            least, most = (0, (1 << bits) - 1) if whole[1] else (-(1 << bits - 1), (1 << bits - 1) - 1)
            words = f"a whole number from {least} to {most}"
            return "" if least <= int(value) <= most else words
        if dtype.startswith("float"):
            words = "a number"
            float(value)
    except ValueError:
        return words
    return ""


def shapes_that_run(path: Path, shapes: Mapping[str, tuple[int, ...]], arrays: str | None) -> dict[str, tuple[int, ...]] | None:
    """The shape of every input as it runs: from the .npz file, else as asked for, else the model's own with its open dimensions as 1.

    None where the .npz file cannot be read.
    """
    given = array_shapes(arrays) if arrays is not None else {}
    if given is None:
        return None
    own = {declared.name: tuple(1 if size is None else size for size in declared.shape) for declared in inputs(path)}
    return {**own, **shapes, **given}


def taken_as_one(path: Path, shapes: Mapping[str, tuple[int, ...]], arrays: str | None) -> dict[str, tuple[int, ...]]:
    """The shapes that run, with each open dimension as 1, of the inputs that the model leaves open and nobody gave."""
    wanted = shapes_that_run(path, shapes, arrays)
    given = array_shapes(arrays) if arrays is not None else {}
    if wanted is None or given is None:
        return {}
    open_names = [
        declared.name for declared in inputs(path) if None in declared.shape and declared.name not in shapes and declared.name not in given
    ]
    return {name: wanted[name] for name in open_names}


def remark(assumed: Mapping[str, tuple[int, ...]], path: Path) -> str:
    """The shapes of `taken_as_one` as a sentence, empty where there are none. path: the model, for its fixed dimensions are not to be changed."""
    if not assumed:
        return ""
    listed = ", ".join(f"{name} runs as {'x'.join(map(str, shape))}" for name, shape in assumed.items())
    own: Mapping[str, tuple[int | None, ...]] = {declared.name: declared.shape for declared in inputs(path)}
    words = [
        f"--shape {name}={','.join('SIZE' if size is None else str(size) for size in own.get(name, shape))}"
        for name, shape in assumed.items()
    ]
    shown = " ".join(words[:_MOST_WORDS]) + (" ..." if len(words) > _MOST_WORDS else "")
    return f"open dimensions of the model are taken as 1: {listed} ({shown} sets others)"


def fixed_words(path: Path) -> str:
    """The inputs of which a model's file fixes dimensions, as `--shape` writes them, with N for an open one, and how one is opened; empty where it
    has none."""
    fixed = [
        f"{declared.name}={','.join('N' if size is None else str(size) for size in declared.shape)}"
        for declared in inputs(path)
        if any(size is not None for size in declared.shape)
    ]
    if not fixed:
        return ""
    by_torch = " (dynamic_shapes of torch.onnx.export), or open one in this file by onnx.tools.update_model_dims"
    how = f"export it with a dynamic dimension{by_torch if path.suffix.lower() == '.onnx' else ''}"
    return f"{path.name} fixes {listed(fixed)}: {how}"


def listed(texts: Sequence[str]) -> str:
    """Some of these texts on inputs, and how many more there are."""
    more = f" and {len(texts) - _MOST_WORDS} more inputs" if len(texts) > _MOST_WORDS else ""
    return f"{' '.join(texts[:_MOST_WORDS])}{more}"


def array_shapes(path: str) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the arrays in an .npz file, from their headers alone (NEP 1); None where it cannot be read."""
    shapes = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as member:
                        head = member.read(10 + (1 << 16))
                    shape = re.search(rb"'shape':\s*\(([\d, ]*)\)", head)
                    if shape is None or not head.startswith(b"\x93NUMPY"):
                        return None
                    shapes[name.removesuffix(".npy")] = tuple(int(size) for size in shape[1].split(b",") if size.strip())
    except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError):
        return None
    return shapes


# -- ONNX: ModelProto 7 graph; GraphProto 5 initializer, 11 input; TensorProto 8 name; ValueInfoProto 1 name, 2 type; TypeProto 1 tensor_type;
#   TypeProto.Tensor 2 shape; TensorShapeProto 1 dim; Dimension 1 dim_value, 2 dim_param


def _onnx(path: Path) -> Iterator[Input]:
    with mapped(path) as data:
        for name, part in _onnx_values(data):
            shape = _inside(data, part, 2, 1, 2)
            if shape is not None:
                dims = _all(data, shape, 1)
                tensor_type = _inside(data, part, 2, 1)
                kinds = _all(data, tensor_type, 1) if tensor_type is not None else []
                number = protobuf.varint(data, kinds[-1].begin, kinds[-1].end)[0] if kinds else 0
                # Some exporters call every open dimension `?`, though they differ.
                names = tuple("" if text.strip() == "?" else text for text in (_name(data, dim, 2) for dim in dims))
                yield Input(name, tuple(_dimension(data, dim) for dim in dims), names, onnx_file.TYPES.get(number, ""))


def _onnx_names(path: Path) -> Iterator[str]:
    with mapped(path) as data:
        yield from (name for name, _ in _onnx_values(data))


def _onnx_values(data: mmap.mmap) -> Iterator[tuple[str, protobuf.Field]]:
    """The name and the ValueInfoProto of each input that is no weight."""
    for graph in protobuf.fields(data, 0, len(data)):
        if graph.number == 7:
            parts = [part for part in protobuf.fields(data, graph.begin, graph.end) if part.number in (5, 11)]
            weights = {_name(data, part, 8) for part in parts if part.number == 5}
            named = ((_name(data, part, 1), part) for part in parts if part.number == 11)
            yield from ((name, part) for name, part in named if name not in weights)


def _all(data: mmap.mmap, part: protobuf.Field, number: int) -> list[protobuf.Field]:
    return [field for field in protobuf.fields(data, part.begin, part.end) if field.number == number]


def _inside(data: mmap.mmap, part: protobuf.Field, *numbers: int) -> protobuf.Field | None:
    for number in numbers:
        fields = _all(data, part, number)
        if not fields:
            return None
        part = fields[-1]
    return part


def _name(data: mmap.mmap, part: protobuf.Field, number: int) -> str:
    field = _inside(data, part, number)
    return data[field.begin : field.end].decode("utf-8", "replace") if field is not None else ""


def _dimension(data: mmap.mmap, dim: protobuf.Field) -> int | None:
    values = _all(data, dim, 1)
    value = protobuf.varint(data, values[-1].begin, dim.end)[0] if values else 0
    return value if 0 < value < 1 << 63 else None  # a negative size stands for an open dimension too


# -- TFLite and circle


def _flatbuffer(path: Path) -> Iterator[Input]:
    with mapped(path) as data:
        flat = flatbuffer.Flat(data)
        graph = flat.tables(flat.root(), tflite_file.MODEL_SUBGRAPHS)[0]
        tensors = flat.tables(graph, tflite_file.GRAPH_TENSORS)
        for number in flat.integers(graph, tflite_file.GRAPH_INPUTS):
            table = tensors[number]
            shape = flat.integers(table, tflite_file.TENSOR_SIGNATURE) or flat.integers(table, tflite_file.TENSOR_SHAPE)
            sizes, dtype = tuple(None if size < 0 else size for size in shape), tflite_file.type_name(flat, table)
            yield Input(flat.text(table, tflite_file.TENSOR_NAME), sizes, dtype=dtype)


def _flatbuffer_names(path: Path) -> Iterator[str]:
    yield from (declared.name for declared in _flatbuffer(path))
    with mapped(path) as data:  # a runtime may call an input by its name in the signature
        flat = flatbuffer.Flat(data)
        for signature in flat.tables(flat.root(), tflite_file.MODEL_SIGNATURES):
            for named in flat.tables(signature, tflite_file.SIGNATURE_INPUTS):
                yield flat.text(named, tflite_file.NAMED_TENSOR_NAME)


# -- OpenVINO: <layer name="x" type="Parameter"><data shape="?,3,224,224"/>; `?` and ranges such as 1..8 are open


def openvino_root(path: Path) -> Element:
    """The root of OpenVINO's .xml file. Raises ValueError where it is damaged or too large to be one."""
    if path.stat().st_size > _MOST_XML:
        raise ValueError(f"more than {_MOST_XML} bytes")
    from xml.etree import ElementTree  # here, because few models are XML

    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None


def openvino_data(layer: Element) -> Mapping[str, str]:
    """What a layer says of itself."""
    data = layer.find("data")
    return data.attrib if data is not None else {}


def _openvino(path: Path) -> Iterator[Input]:
    for layer in openvino_root(path).iter("layer"):
        if layer.get("type") == "Parameter":
            shape = openvino_data(layer).get("shape", "")
            if "..." not in shape:
                sizes = [size.strip() for size in shape.split(",") if size.strip()]
                yield Input(layer.get("name") or "", tuple(int(size) if size.isdecimal() else None for size in sizes))
