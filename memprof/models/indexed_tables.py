"""Which inputs of a model choose rows of a table, as the ids of words do of an embedding, and how many rows the table has.

They are read from .onnx, .tflite and .circle files, OpenVINO's .xml, nnpackages and CTranslate2's folders. Other formats have no tables here. What
happens inside a function, or in the body of an operator of TFLite or OpenVINO, is not looked at. The message numbers are those of onnx.proto3, the
numbers of operators those of schema.fbs.
"""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import protobuf
from ..base.errors import InputError
from ..base.files import Torn, mapped
from ..base.protobuf import Field
from . import companion_files, ctranslate2_file, flatbuffer, inputs, onnx_file, tflite_file
from .index_walk import IndexedTable, Indexing, IndexWalk, Operation
from .packages import first_model

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def remark(ranges: Mapping[str, int], path: Path) -> str:
    """That the integers of these inputs were made, as a piece of a sentence; empty for none. ranges: `limits`, or a part of them. path: the model."""
    own = {declared.name for declared in inputs.inputs(path)}
    made = [f"{name} 0 to {rows - 1:,}" for name, rows in ranges.items() if not own or name in own]
    return f"memprof made these integers: {', '.join(made)} (--inputs FILE.npz gives your own)" if made else ""


def indexing(path: Path) -> Indexing:
    """The tables that a model's inputs index; none where its file cannot be read, which its runtime will say, or its format has no graph here."""
    try:
        status = path.stat()
    except OSError:
        return Indexing()
    return _indexing(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _indexing(path: Path, _size: int, _changed_ns: int) -> Indexing:
    try:
        if path.is_dir() and (path / ctranslate2_file.NAME).is_file():
            return _ctranslate2(path / ctranslate2_file.NAME)
        return _read(first_model(path) if path.is_dir() else path)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, Torn, InputError):
        return Indexing()


def _read(path: Path) -> Indexing:
    if path.suffix.lower() == ".xml":
        return _openvino(path)
    reader = {".onnx": _onnx, ".tflite": _flatbuffer, ".circle": _flatbuffer}.get(path.suffix.lower())
    if reader is None:
        return Indexing()
    with mapped(path) as data:
        return reader(data, path)


def _widths(path: Path) -> dict[str, int]:
    """The last size of each input that has a fixed one."""
    return {declared.name: size for declared in inputs.inputs(path) if declared.shape and (size := declared.shape[-1]) is not None}


# -- ONNX: ModelProto 7 graph; GraphProto 1 node, 5 initializer; NodeProto 1 input, 2 output, 4 op_type, 5 attribute; AttributeProto 1 name, 3 i,
#   5 t, 6 g, 11 graphs

_AXES = ("axis", "gather_axis")


def _onnx(data: mmap.mmap, path: Path) -> Indexing:
    graphs = list(protobuf.parts(data, protobuf.root(data), (7,)))
    stored = [(name, name, shape) for graph in graphs for name, shape in _initializers(data, graph)]
    walk = IndexWalk(inputs.names(path), stored, _widths(path))
    for graph in graphs:
        _follow_graph(data, graph, walk, 0)
    return walk.found({})


def _initializers(data: mmap.mmap, graph: Field) -> Iterator[tuple[str, tuple[int, ...]]]:
    tensors = (onnx_file.tensor(data, part) for part in protobuf.parts(data, graph, (5,)))
    return ((tensor.name, tensor.shape) for tensor in tensors)


def _follow_graph(data: mmap.mmap, graph: Field, walk: IndexWalk, depth: int) -> None:
    """Follow the nodes in the file's order, which is the order in which they can run, and graphs inside them, which see the values around them."""
    if depth > protobuf.DEEPEST:
        raise Torn
    if depth:
        for name, shape in _initializers(data, graph):
            walk.store(name, shape)
    for node in protobuf.parts(data, graph, (1,)):
        words: dict[int, list[str]] = {1: [], 2: [], 4: []}
        numbers, constant, inner = {}, None, []
        for part in protobuf.parts(data, node, (1, 2, 4, 5)):
            if part.number != 5:
                words[part.number].append(protobuf.text(data, part))
                continue
            name, number, tensor, graphs = _attribute(data, part)
            numbers[name] = number
            inner += graphs
            constant = tensor if name == "value" else constant
        kind = words[4][-1] if words[4] else ""
        if kind == "Constant" and constant is not None and words[2]:
            walk.store(words[2][0], onnx_file.tensor(data, constant).shape)
        axis = next((numbers[name] for name in _AXES if name in numbers), 0)
        walk.follow(Operation(kind, words[1], words[2], axis, numbers.get("batch_dims", 0)))
        for body in inner:
            _follow_graph(data, body, walk, depth + 1)


def _attribute(data: mmap.mmap, attribute: Field) -> tuple[str, int, Field | None, list[Field]]:
    """An attribute's name, its number, its tensor and its graphs."""
    name, number, tensor, graphs = "", 0, None, []
    for part in protobuf.fields(data, attribute.begin, attribute.end):
        if part.number == 3 and part.wire == protobuf.VARINT:
            number = protobuf.signed(data, part)
        elif part.wire == protobuf.BYTES and part.number == 1:
            name = protobuf.text(data, part)
        elif part.wire == protobuf.BYTES and part.number == 5:
            tensor = part
        elif part.wire == protobuf.BYTES and part.number in (6, 11):
            graphs.append(part)
    return name, number, tensor, graphs


# -- TFLite and circle, by ONNX's names for the same operators

_TFLITE_NUMBERS: Mapping[str, tuple[int, ...]] = {
    "Cast": (53,),
    "Reshape": (22,),
    "Squeeze": (43,),
    "Unsqueeze": (70,),
    "Transpose": (39,),
    "Expand": (130,),
    "Tile": (69,),
    "Slice": (45, 65),
    "Concat": (2,),
    "Pack": (83,),
    "Unpack": (88,),
    "Split": (102,),
    "SplitAlong": (49,),
    "Pad": (34, 60),
    "Reverse": (105,),
    "Min": (57,),
    "Max": (55,),
    "Where": (64, 123),
    "ReduceMax": (82,),
    "ReduceMin": (89,),
    "Floor": (8,),
    "Ceil": (104,),
    "Round": (116,),
    "Abs": (101,),
    "Relu": (19,),
    "Mod": (95,),
    "Equal": (71, 72),
    "Less": (58, 63),
    "Greater": (61, 62),
    "Not": (87,),
    "And": (86,),
    "Or": (84,),
    "Shape": (77,),
    "ArgMax": (56,),
    "ArgMin": (79,),
    "TopK": (48,),
    "NonZero": (109,),
    "DequantizeLinear": (6,),
    "Gather": (36,),
    "GatherND": (107,),
    "ScatterNewND": (122,),
    "EmbeddingLookup": (7,),
    "EmbeddingLookupSparse": (33,),
}
_TFLITE_KINDS: Mapping[int, str] = {number: kind for kind, numbers in _TFLITE_NUMBERS.items() for number in numbers}
_GATHER_AXIS, _GATHER_BATCH = 0, 1  # fields of GatherOptions
_NAMED_TENSOR_INDEX = 1  # a field of TensorMap


def _flatbuffer(data: mmap.mmap, path: Path) -> Indexing:
    flat = flatbuffer.Flat(data)
    model = flat.root()
    graph = flat.tables(model, tflite_file.MODEL_SUBGRAPHS)[0]
    tensors = flat.tables(graph, tflite_file.GRAPH_TENSORS)
    names = [flat.text(table, tflite_file.TENSOR_NAME) for table in tensors]
    buffers = [tflite_file.content(flat, table)[1] for table in flat.tables(model, tflite_file.MODEL_BUFFERS)]
    given = flat.integers(graph, tflite_file.GRAPH_INPUTS)
    # Names need not differ between tensors, numbers do.
    stored = [
        (str(number), names[number], tflite_file.shape(flat, table))
        for number, table in enumerate(tensors)
        if buffers[flat.scalar(table, tflite_file.TENSOR_BUFFER, "<I")]
    ]
    widths = _widths(path)
    walk = IndexWalk(map(str, given), stored, {str(number): widths[names[number]] for number in given if names[number] in widths})
    codes = [tflite_file.operator_number(flat, table) for table in flat.tables(model, tflite_file.MODEL_CODES)]
    for table in flat.tables(graph, tflite_file.GRAPH_OPERATORS):
        kind = _TFLITE_KINDS.get(codes[flat.scalar(table, tflite_file.OPERATOR_CODE, "<I")], "")
        options = flat.child(table, tflite_file.OPERATOR_OPTIONS) if kind == "Gather" else 0
        operands = [str(number) for number in flat.integers(table, tflite_file.OPERATOR_INPUTS)]
        results = [str(number) for number in flat.integers(table, tflite_file.OPERATOR_OUTPUTS)]
        axis = flat.scalar(options, _GATHER_AXIS, "<i") if options else 0
        batch = flat.scalar(options, _GATHER_BATCH, "<i") if options else 0
        walk.follow(Operation(kind, operands, results, axis, batch))
    return walk.found(_signature_names(flat, names)).called({str(number): names[number] for number in given})


def _signature_names(flat: flatbuffer.Flat, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The names that signatures have for inputs, by the input's own."""
    more: dict[str, list[str]] = defaultdict(list)
    for signature in flat.tables(flat.root(), tflite_file.MODEL_SIGNATURES):
        for named in flat.tables(signature, tflite_file.SIGNATURE_INPUTS):
            name = names[flat.scalar(named, _NAMED_TENSOR_INDEX, "<I")]
            alias = flat.text(named, tflite_file.NAMED_TENSOR_NAME)
            if alias != name and alias not in more[name]:
                more[name].append(alias)
    return {name: tuple(aliases) for name, aliases in more.items()}


# -- OpenVINO: <layer id="" name="" type=""><data axis=""/><output><port id="" names=""/></output></layer>, and
#   <edge from-layer="" from-port="" to-layer="" to-port=""/>; layers stand in the order in which they can run

_OPENVINO_KINDS: Mapping[str, str] = {
    "Convert": "Cast",
    "Broadcast": "Expand",
    "StridedSlice": "Slice",
    "VariadicSplit": "Split",
    "Clamp": "Clip",
    "Ceiling": "Ceil",
    "ReLU": "Relu",
    "FloorMod": "Mod",
    "Select": "Where",
    "Maximum": "Max",
    "Minimum": "Min",
    "Multiply": "Mul",
    "Subtract": "Sub",
    "NotEqual": "Equal",
    "LessEqual": "Less",
    "GreaterEqual": "Greater",
    "LogicalNot": "Not",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "LogicalXor": "Xor",
    "ShapeOf": "Shape",
    "ScatterElementsUpdate": "ScatterElements",
    "ScatterNDUpdate": "ScatterND",
    "ScatterUpdate": "Scatter",
    "EmbeddingBagOffsetsSum": "EmbeddingBag",
    "EmbeddingBagPackedSum": "EmbeddingBag",
    "EmbeddingBagOffsets": "EmbeddingBag",
    "EmbeddingBagPacked": "EmbeddingBag",
    "EmbeddingSegmentsSum": "EmbeddingBag",
}
_AXIS_OPERANDS = {"Gather": 2, "Scatter": 3}
_AXIS_BYTES = (4, 8)


def _openvino(path: Path) -> Indexing:
    root = inputs.openvino_root(path)
    makers = {
        (edge.get("to-layer"), edge.get("to-port")): f"{edge.get('from-layer')}.{edge.get('from-port')}" for edge in root.iter("edge")
    }
    layers = [(layer, _ports(layer, "output")) for layer in root.iter("layer")]
    given = {results[0]: layer.get("name") or "" for layer, results in layers if layer.get("type") == "Parameter" and results}
    constants = {results[0]: layer for layer, results in layers if layer.get("type") == "Const" and results}
    stored = [(value, layer.get("name") or "", _shape(layer)) for value, layer in constants.items()]
    widths = _widths(path)
    walk = IndexWalk(given, stored, {value: widths[name] for value, name in given.items() if name in widths})
    for layer, results in layers:
        words = inputs.openvino_data(layer)
        kind = layer.get("type") or ""
        kind = _OPENVINO_KINDS.get(kind, kind)
        operands = [makers.get((layer.get("id"), port.get("id")), "") for port in layer.iterfind("input/port")]
        place = _AXIS_OPERANDS.get(kind, len(operands))
        axis: int | None = 0
        if place < len(operands):
            axis = _axis(path, constants.get(operands[place]))
        elif kind == "GatherElements":
            axis = int(words.get("axis", 0))
        walk.follow(Operation(kind, operands, results, axis, int(words.get("batch_dims", 0))))
    names = {layer.get("name") or "": _port_names(layer) for layer, _ in layers if layer.get("type") == "Parameter"}
    return walk.found(names).called(given)


def _ports(layer: Element, side: str) -> list[str]:
    return [f"{layer.get('id')}.{port.get('id')}" for port in layer.iterfind(f"{side}/port")]


def _port_names(layer: Element) -> tuple[str, ...]:
    """The names by which the runtime knows what a layer makes."""
    names = ",".join(port.get("names") or "" for port in layer.iterfind("output/port")).split(",")
    return tuple(name for name in dict.fromkeys(names) if name and name != layer.get("name"))


def _shape(constant: Element) -> tuple[int, ...]:
    return tuple(int(size) for size in inputs.openvino_data(constant).get("shape", "").split(",") if size.strip())


def _axis(path: Path, constant: Element | None) -> int | None:
    """The number in a constant; None where there is no such number."""
    data = inputs.openvino_data(constant) if constant is not None else {}
    size = int(data.get("size", 0))
    if size not in _AXIS_BYTES:
        return None
    with companion_files.inside(path, companion_files.place(path).with_suffix(".bin")).open("rb") as file:
        file.seek(int(data.get("offset", 0)))
        return int.from_bytes(file.read(size), "little", signed=True)


# -- CTranslate2: its only input is the words of a text, by their numbers in the vocabulary

_TOKENS = "tokens"  # as runners/runtimes/ctranslate2.py calls it
_EMBEDDINGS = (
    "encoder/embeddings_0/weight",
    "decoder/embeddings/weight",
)  # of a translator, whose decoder makes its own words, and of a generator


def _ctranslate2(path: Path) -> Indexing:
    with mapped(path) as data:
        rows = {tensor.name: tensor.shape[0] for tensor in ctranslate2_file.variables(data) if tensor.name in _EMBEDDINGS and tensor.shape}
    name = next((name for name in _EMBEDDINGS if name in rows), None)
    return Indexing((IndexedTable(_TOKENS, name, rows[name]),)) if name is not None and rows[name] else Indexing()
