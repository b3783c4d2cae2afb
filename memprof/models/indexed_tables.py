"""Which inputs of a model choose rows of a table, as the ids of words do of an embedding, and how many rows the table has.

The graph of an .onnx, .tflite or .circle file, or of an nnpackage, is walked from its inputs: values that are only cast, moved or picked stay the
input's own, values that are computed from it do not. Other formats have no tables here. What happens inside a function or in the
body of a TFLite operator is not looked at. The message numbers are onnx.proto3's, the operators' numbers those of schema.fbs.
"""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ..base.errors import InputError
from ..base.files import mapped
from . import MOST_DIMENSIONS, Torn, flatbuffer, inputs, protobuf, tflite_file
from .nnpackage import first_model
from .protobuf import Field

_MOST_ROWS = 1 << 31  # more than any table has, and little enough for the arithmetic of who makes the inputs


@dataclass(frozen=True)
class IndexedTable:
    """A table, and an input whose values are numbers of its rows. tensor: the name of the stored weight."""

    input: str
    tensor: str
    rows: int


@dataclass(frozen=True)
class Indexing:
    """The tables that inputs index. unlimited: the inputs that index something of unknown size as well, or by values computed from them."""

    tables: tuple[IndexedTable, ...] = ()
    unlimited: frozenset[str] = frozenset()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # more names of an input, in signatures

    def limits(self) -> dict[str, int]:
        """By the name of an input: its values must be below this, so that they are rows of each table that it indexes."""
        rows: dict[str, list[int]] = defaultdict(list)
        for table in self.tables:
            if table.input not in self.unlimited:
                for name in (table.input, *self.names.get(table.input, ())):
                    rows[name].append(table.rows)
        return {name: min(counts) for name, counts in rows.items()}


def remark(ranges: Mapping[str, int], path: Path) -> str:
    """That the integers of these inputs were made, as a piece of a sentence; empty for none. ranges: `limits`, or a part of them. path: the model."""
    own = {declared.name for declared in inputs.inputs(path)}
    made = [f"{name} 0 to {rows - 1:,}" for name, rows in ranges.items() if not own or name in own]
    return f"memprof made these integers: {', '.join(made)} (--inputs FILE.npz gives your own)" if made else ""


def indexing(path: Path) -> Indexing:
    """The tables that a model's inputs index; none where its file cannot be read, which its runtime will say, or its format has no graph here."""
    try:
        status = path.stat()
        return _indexing(path, status.st_size, status.st_mtime_ns)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, Torn, InputError):
        return Indexing()


@lru_cache(maxsize=64)
def _indexing(path: Path, _size: int, _changed_ns: int) -> Indexing:
    if path.is_dir():
        path = first_model(path)
    reader = {".onnx": _onnx, ".tflite": _flatbuffer, ".circle": _flatbuffer}.get(path.suffix.lower())
    if reader is None:
        return Indexing()
    with mapped(path) as data:
        return reader(data, path)


# -- the walk, which is the same for every format


@dataclass(frozen=True)
class _Operation:
    """An operator: its name in ONNX, and the names of its operands and results. axis, batch: of a Gather and its like."""

    kind: str
    operands: Sequence[str]
    results: Sequence[str]
    axis: int = 0
    batch: int = 0


# For each operator that looks values up: which operand holds the indices, and which one the table.
_LOOKUPS: Mapping[str, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "GatherBlockQuantized"), ((1, 0),)),
    **dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), ((1, 0),)),
    "EmbedLayerNormalization": ((0, 2), (1, 4), (8, 3)),
    "QEmbedLayerNormalization": ((0, 2), (1, 4)),
    "EmbeddingLookup": ((0, 1),),
    "EmbeddingLookupSparse": ((0, 4),),
    "ScatterNewND": ((0, 3),),  # TFLite's SCATTER_ND, whose target is no operand
}
_TUPLES = ("GatherND", "ScatterND")  # an index is a tuple of numbers, one a dimension
# The operands whose elements are among the results as they are; None for all.
_KEPT: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Identity", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Tile"), (0,)),
    **dict.fromkeys(("Slice", "Split", "Gather", "GatherElements", "GatherND", "Pad", "Clip", "ReduceMax", "ReduceMin", "Reverse"), (0,)),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Abs", "Relu", "Mod", "Dropout", "Unpack"), (0,)),
    **dict.fromkeys(("Concat", "Max", "Min", "Pack"), None),
    "Where": (1, 2),
    "SplitAlong": (1,),
}
# Operators whose results do not grow with the numbers that they take.
_APART = frozenset(
    (
        "Equal",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Not",
        "And",
        "Or",
        "Xor",
        "Shape",
        "Size",
        "ArgMax",
        "ArgMin",
        "TopK",
        "NonZero",
    )
)
_SAME_SHAPE = frozenset(("Identity", "Cast", "DequantizeLinear"))


class _Walk:
    """What each value comes from: inputs, with whether its elements are the input's own, or a stored tensor, with its shape."""

    def __init__(self, names: Iterable[str], stored: Iterable[tuple[str, str, tuple[int, ...]]], widths: Mapping[str, int]) -> None:
        """names: of inputs. stored: the name of a value, of its tensor, and its shape. widths: the last size of inputs, as far as it is known."""
        self._from: dict[str, frozenset[tuple[str, bool]]] = {name: frozenset([(name, True)]) for name in names}
        self._stored = {value: (tensor, shape) for value, tensor, shape in stored}
        self._widths = widths
        self._tables: dict[IndexedTable, None] = {}
        self._unlimited: set[str] = set()

    def store(self, value: str, shape: tuple[int, ...]) -> None:
        """A constant that an operator brings along."""
        self._stored[value] = (value, shape)

    def follow(self, operation: _Operation) -> None:
        """An operator behind all whose results it takes."""
        operands, kind = operation.operands, operation.kind
        for indices, table in _LOOKUPS.get(kind, ()):
            if indices < len(operands):
                self._look_up(operation, operands[indices], operands[table] if table < len(operands) else "")
        if kind in _SAME_SHAPE and operands and operands[0] in self._stored:
            self._stored.update((result, self._stored[operands[0]]) for result in operation.results)
        if kind in _KEPT:
            kept = _KEPT[kind]
            taken = operands if kept is None else [operands[place] for place in kept if place < len(operands)]
            origins = {origin for name in taken for origin in self._from.get(name, ())}
        elif kind in _APART or kind in _LOOKUPS:
            return
        else:
            origins = {(source, False) for name in operands for source, _ in self._from.get(name, ())}
        if origins:
            self._from.update((result, frozenset(origins)) for result in operation.results if result)

    def _look_up(self, operation: _Operation, indices: str, table: str) -> None:
        tensor, shape = self._stored.get(table, ("", None))
        rows = self._rows(operation, indices, shape) if shape is not None else None
        for source, own in self._from.get(indices, ()):
            if own and rows is not None:
                self._tables[IndexedTable(source, tensor, rows)] = None
            else:
                self._unlimited.add(source)

    def _rows(self, operation: _Operation, indices: str, shape: tuple[int, ...]) -> int | None:
        """How many values an index may have; None where that cannot be told."""
        if operation.kind in _TUPLES:
            # Each number of a tuple has a limit of its own, and which is which gets lost on the way: the least serves for all.
            width = self._widths.get(indices, len(shape) - operation.batch)
            sizes = shape[operation.batch : operation.batch + width]
        else:
            sizes = shape[operation.axis :][:1] if -len(shape) <= operation.axis < len(shape) else ()
        rows = min(sizes, default=0)
        return rows if 0 < rows <= _MOST_ROWS else None

    def found(self, names: Mapping[str, tuple[str, ...]]) -> Indexing:
        return Indexing(tuple(self._tables), frozenset(self._unlimited), names)


def _widths(path: Path) -> dict[str, int]:
    """The last size of each input that has a fixed one."""
    return {declared.name: size for declared in inputs.inputs(path) if declared.shape and (size := declared.shape[-1]) is not None}


# -- ONNX: ModelProto 7 graph; GraphProto 1 node, 5 initializer; NodeProto 1 input, 2 output, 4 op_type, 5 attribute; AttributeProto 1 name, 3 i,
#   5 t, 6 g, 11 graphs; TensorProto 1 dims, 8 name

_AXES = ("axis", "gather_axis")


def _onnx(data: mmap.mmap, path: Path) -> Indexing:
    graphs = list(protobuf.parts(data, protobuf.root(data), (7,)))
    stored = [(name, name, shape) for graph in graphs for name, shape in _initializers(data, graph)]
    walk = _Walk(inputs.names(path), stored, _widths(path))
    for graph in graphs:
        _follow_graph(data, graph, walk, 0)
    return walk.found({})


def _initializers(data: mmap.mmap, graph: Field) -> Iterator[tuple[str, tuple[int, ...]]]:
    return (_tensor(data, part) for part in protobuf.parts(data, graph, (5,)))


def _tensor(data: mmap.mmap, tensor: Field) -> tuple[str, tuple[int, ...]]:
    """A TensorProto's name and shape."""
    name, shape = "", []
    for part in protobuf.fields(data, tensor.begin, tensor.end):
        if part.number == 8 and part.wire == protobuf.BYTES:
            name = protobuf.text(data, part)
        elif part.number == 1 and part.wire == protobuf.VARINT:
            shape.append(_signed(protobuf.varint(data, part.begin, part.end)[0]))
        elif part.number == 1 and part.wire == protobuf.BYTES:
            shape += protobuf.varints(data, part).tolist()
    if len(shape) > MOST_DIMENSIONS:
        raise Torn
    return name, tuple(shape)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _follow_graph(data: mmap.mmap, graph: Field, walk: _Walk, depth: int) -> None:
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
            walk.store(words[2][0], _tensor(data, constant)[1])
        axis = next((numbers[name] for name in _AXES if name in numbers), 0)
        walk.follow(_Operation(kind, words[1], words[2], axis, numbers.get("batch_dims", 0)))
        for body in inner:
            _follow_graph(data, body, walk, depth + 1)


def _attribute(data: mmap.mmap, attribute: Field) -> tuple[str, int, Field | None, list[Field]]:
    """An attribute's name, its number, its tensor and its graphs."""
    name, number, tensor, graphs = "", 0, None, []
    for part in protobuf.fields(data, attribute.begin, attribute.end):
        if part.number == 3 and part.wire == protobuf.VARINT:
            number = _signed(protobuf.varint(data, part.begin, part.end)[0])
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
    walk = _Walk(map(str, given), stored, {str(number): widths[names[number]] for number in given if names[number] in widths})
    codes = [_code(flat, table) for table in flat.tables(model, tflite_file.MODEL_CODES)]
    for table in flat.tables(graph, tflite_file.GRAPH_OPERATORS):
        kind = _TFLITE_KINDS.get(codes[flat.scalar(table, tflite_file.OPERATOR_CODE, "<I")], "")
        options = flat.child(table, tflite_file.OPERATOR_OPTIONS) if kind == "Gather" else 0
        operands = [str(number) for number in flat.integers(table, tflite_file.OPERATOR_INPUTS)]
        results = [str(number) for number in flat.integers(table, tflite_file.OPERATOR_OUTPUTS)]
        axis = flat.scalar(options, _GATHER_AXIS, "<i") if options else 0
        batch = flat.scalar(options, _GATHER_BATCH, "<i") if options else 0
        walk.follow(_Operation(kind, operands, results, axis, batch))
    found = walk.found(_signature_names(flat, names))
    tables = tuple(IndexedTable(names[int(table.input)], table.tensor, table.rows) for table in found.tables)
    return Indexing(tables, frozenset(names[int(number)] for number in found.unlimited), found.names)


def _code(flat: flatbuffer.Flat, table: int) -> int:
    """An operator's number: that of old files ends at 127, where a placeholder stands for all above."""
    return max(flat.scalar(table, tflite_file.CODE_OLD, "<b"), flat.scalar(table, tflite_file.CODE_NEW, "<i"))


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
