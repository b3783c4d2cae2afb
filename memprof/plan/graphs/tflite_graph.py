"""TensorFlow Lite and circle files as graphs, read from the mapped file.

The tables and their field numbers stand in models/tflite_file.py; the package tflite has the operators' names. TFLite keeps the file's order of
operators. It never gives the memory of a graph's inputs, outputs and variables to another tensor (arena_planner.cc), and nor does this graph.
"""

from __future__ import annotations

import functools
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import InputError, UsageError, os_reason
from ...base.files import Torn, mapped
from ...models import tflite_file
from ...models.flatbuffer import Flat
from .graph import (
    FLOATING,
    Activation,
    Body,
    Constant,
    Folded,
    Graph,
    Operator,
    Span,
    Unknown,
    check_count,
    check_names,
    shown,
    size,
    words,
)
from .sorting import ordered

# circle_schema.fbs: the operators that only circle has lie below 0 and, in old files, at the end of a byte.
_CIRCLE = {-7: "GRU", -6: "ROPE", -5: "RUN_MODEL", -4: "RMS_NORM", 252: "BCQ_GATHER", 253: "BCQ_FULLY_CONNECTED", 254: "INSTANCE_NORM"}

# Operators that run other subgraphs: the fields of their options that name a subgraph, and whether it runs again and again.
_BODIES = {
    "IF": ((0, 1), False),
    "WHILE": ((0, 1), True),
    "CALL": ((0,), False),
    "CALL_ONCE": ((0,), False),
    "STABLEHLO_WHILE": ((0, 1), True),
    "STABLEHLO_COMPOSITE": ((1,), False),
}
_STATEFUL = words(
    "CALL_ONCE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE RANDOM_STANDARD_NORMAL "
    "RANDOM_UNIFORM MULTINOMIAL STABLEHLO_RNG_BIT_GENERATOR"
)
# Operators whose registration says kTfLiteInplaceOpInput0Shared, that only name a tensor again, or that work element by element.
_IN_PLACE = words(
    "ADD SUB MUL DIV RESHAPE SQUEEZE EXPAND_DIMS BITCAST SOFTMAX LOGISTIC RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 TANH ELU GELU HARD_SWISH LEAKY_RELU "
    "PRELU NEG ABS EXP LOG SQRT RSQRT SIN COS FLOOR CEIL ROUND SQUARE SIGN MAXIMUM MINIMUM POW FLOOR_DIV FLOOR_MOD SQUARED_DIFFERENCE LOG_SOFTMAX "
    "LOGICAL_AND LOGICAL_OR LOGICAL_NOT ADD_N CUMSUM DYNAMIC_UPDATE_SLICE CAST QUANTIZE DEQUANTIZE"
)
_NESTED_MOST = 64


@functools.cache
def operator_names() -> Mapping[int, str]:
    """The operators' names by number: schema.fbs, enum BuiltinOperator. Raises InputError if the package that has them is not installed."""
    try:
        from tflite.BuiltinOperator import BuiltinOperator
    except ModuleNotFoundError as error:
        raise InputError(f"reading a TFLite graph needs {error.name}, not installed here: pip install 'ml-memprof[plan]'") from None
    return _CIRCLE | {number: name for name, number in vars(BuiltinOperator).items() if isinstance(number, int)}


def read(path: Path, shapes: Mapping[str, tuple[int, ...]], batch: int | None = None) -> Graph:
    """The graph of a TFLite or circle file.

    Shapes are those of the file. Another first dimension, by batch or by shapes that differ in nothing else, is carried to every activation
    that has the old one; another size of an open dimension to every open dimension that has the old one. Raises InputError for a torn or impossible
    model, UsageError for any other change of a shape.
    """
    try:
        with mapped(path) as data:
            return _TfliteReader(path, Flat(data), shapes, batch).graph()
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    except (Torn, struct.error, LookupError, ArithmeticError, ValueError):
        raise InputError(f"model {path}: this is not a TFLite model, or not a complete one") from None


class _Rebatch(Struct, frozen=True):
    """A first dimension in place of another."""

    old: int
    new: int


class _TfliteReader:
    def __init__(self, path: Path, flat: Flat, shapes: Mapping[str, tuple[int, ...]], batch: int | None) -> None:
        self._path, self._flat, self._shapes, self._batch = path, flat, shapes, batch
        self._weights: list[Constant] = []
        self._by_buffer: dict[tuple[int, str, tuple[int, ...]], int] = {}
        self._assumptions: list[str] = []
        self._unknown: list[Unknown] = []
        self._custom: Counter[str] = Counter()
        self._sparse = self._dynamic = self._unscaled = 0
        self._moved = ""
        self._rebatch: _Rebatch | None = None
        self._opened: dict[int, int] = {}  # the extents that the file gives for open dimensions, and what they are taken as
        self._operators = 0

    def count(self, operators: int) -> None:
        """Count the operators of all subgraphs, those of a subgraph that runs twice two times. Raises InputError for too many."""
        self._operators += operators
        check_count(self._operators, self._path)

    def graph(self) -> Graph:
        flat = self._flat
        if flat.length < 8 or flat.data[4:8] not in tflite_file.IDENTIFIERS:
            raise InputError(f"model {self._path}: this is not a TFLite model (the identifier TFL3 is not at its byte 4)")
        root = flat.root()
        self._kinds = [self._kind(code) for code in flat.tables(root, tflite_file.MODEL_CODES)]
        self._buffers = flat.tables(root, tflite_file.MODEL_BUFFERS)
        self._subgraphs = flat.tables(root, tflite_file.MODEL_SUBGRAPHS)
        if not self._subgraphs:
            raise InputError(f"model {self._path}: there is no graph in it")
        self._set_batch(self._subgraphs[0])
        main = self._subgraph(0, ())
        self._remark()
        return replace(
            main,
            format="circle" if flat.data[4:8] == b"CIR0" else "tflite",
            weights=tuple(self._weights),
            assumptions=tuple(self._assumptions),
            unknown=tuple(self._unknown),
            moved=self._moved,
        )

    def _kind(self, code: int) -> str:
        number = tflite_file.operator_number(self._flat, code)
        name = operator_names().get(number, f"operator {number}")
        return f"custom.{shown(self._flat.text(code, tflite_file.CODE_CUSTOM)) or 'nameless'}" if name == "CUSTOM" else name

    def _set_batch(self, subgraph: int) -> None:
        tensors = self._flat.tables(subgraph, tflite_file.GRAPH_TENSORS)
        names = [shown(self._flat.text(table, tflite_file.TENSOR_NAME)) for table in tensors]
        check_names(self._shapes, names, self._path)
        wanted: set[_Rebatch] = set()
        opened: dict[int, set[int]] = {}
        others = False  # whether a dimension beside the first is to change
        inputs = [index for index in self._flat.integers(subgraph, tflite_file.GRAPH_INPUTS) if 0 <= index < len(tensors)]
        firsts = set[int]()
        for index in inputs:
            shape = tflite_file.shape(self._flat, tensors[index])
            firsts.update(shape[:1])
            given = self._shapes.get(names[index])
            if given is None and self._batch is not None and shape:
                given = (self._batch, *shape[1:])
            if given is None:
                continue
            open_axes = self._open_axes(tensors[index])
            if len(given) != len(shape) or any(given[axis] != size for axis, size in enumerate(shape) if axis and axis not in open_axes):
                which = "its open dimensions" if open_axes else "its first dimension"
                raise UsageError(
                    f"{self._path}: input {names[index]} is {list(shape)} in the file, and only {which} can be changed: "
                    "TFLite's shapes are inferred by its own kernels alone"
                )
            for axis in open_axes:
                opened.setdefault(shape[axis], set()).add(given[axis])
            others |= given[1:] != shape[1:]
            if given[:1] != shape[:1]:
                wanted.add(_Rebatch(shape[0], given[0]))
        if self._batch is not None and len(firsts) > 1:
            raise UsageError(f"{self._path}: its inputs differ in their first dimension, so --batch cannot stand for all; use --shape")
        inner = [name for name in self._shapes if name not in {names[index] for index in inputs}]
        if inner:
            raise UsageError(f"{self._path}: {inner[0]} is not an input, and shapes inside a TFLite graph are those of the file")
        if len(wanted) > 1:
            raise UsageError(f"{self._path}: its inputs would get different first dimensions")
        self._rebatch = wanted.pop() if wanted else None
        if others and any(len(sizes) > 1 for sizes in opened.values()):
            old, sizes = next((old, sizes) for old, sizes in opened.items() if len(sizes) > 1)
            raise UsageError(
                f"{self._path}: open dimensions that are {old} in the file would be {' and '.join(map(str, sorted(sizes)))}, and TFLite's shapes, "
                "inferred by its own kernels alone, do not tell which is which"
            )
        if all(len(sizes) == 1 for sizes in opened.values()) and any({old} != sizes for old, sizes in opened.items()):
            self._opened = {old: sizes.pop() for old, sizes in opened.items()}

    def _open_axes(self, table: int) -> list[int]:
        signature = self._flat.integers(table, tflite_file.TENSOR_SIGNATURE)
        rank = len(tflite_file.shape(self._flat, table))
        return [axis for axis, size in enumerate(signature) if size == -1] if len(signature) == rank else []

    # -- a subgraph

    def _subgraph(self, index: int, around: tuple[int, ...]) -> Graph:
        if not 0 <= index < len(self._subgraphs):
            raise InputError(f"model {self._path}: an operator runs subgraph {index}, which it does not have")
        if index in around:
            raise InputError(f"model {self._path}: subgraph {index} runs itself")
        if len(around) >= _NESTED_MOST:
            raise InputError(f"model {self._path}: its subgraphs call one another more than {_NESTED_MOST} deep")
        return _Subgraph(self, index, (*around, index)).read()

    def constant(self, table: int, name: str, type: str, shape: tuple[int, ...]) -> int | None:
        """The number of a tensor's weight, None for a tensor without content. Tensors that name the same buffer are one weight."""
        flat = self._flat
        index = flat.scalar(table, tflite_file.TENSOR_BUFFER, "<I")
        if not index:
            return None
        if index >= len(self._buffers):
            raise Torn
        known = self._by_buffer.get((index, type, shape))
        if known is not None:
            return known
        begin, stored = tflite_file.content(flat, self._buffers[index])
        if not stored:
            return None
        sparse = bool(flat.child(table, tflite_file.TENSOR_SPARSITY))
        self._sparse += sparse
        bytes = stored if sparse or type == "string" else size(type, shape)
        if bytes is not None and not sparse and type in ("int4", "int2", "uint4") and stored == math.prod(shape):
            bytes = stored  # written with an element a byte
        if bytes is None:
            self._unknown.append(Unknown(f"a weight of type {type}, whose size is not known: it counts as stored", (name,)))
            bytes = stored
        self._weights.append(Constant(name, type, shape, bytes, Span(self._path, begin, stored), type in FLOATING))
        self._by_buffer[index, type, shape] = len(self._weights) - 1
        return len(self._weights) - 1

    def result(self, name: str, type: str, shape: tuple[int, ...]) -> int:
        """The number of a weight that is computed from others at load."""
        self._weights.append(Constant(name, type, shape, size(type, shape), None, type in FLOATING))
        return len(self._weights) - 1

    def shape(self, table: int, is_constant: bool) -> tuple[int, ...]:
        """A tensor's shape, with the batch and the open dimensions of the request."""
        shape = tflite_file.shape(self._flat, table)
        if is_constant or not shape:
            return shape
        open_axes = self._open_axes(table)
        self._dynamic += any(shape[axis] not in self._opened for axis in open_axes)
        if self._opened and open_axes:
            return tuple(self._opened.get(size, size) if axis in open_axes else size for axis, size in enumerate(shape))
        if self._rebatch is None:
            return shape
        if shape[0] != self._rebatch.old:
            self._unscaled += 1
            return shape
        return (self._rebatch.new, *shape[1:])

    def _remark(self) -> None:
        if self._opened:
            changes = ", ".join(f"{old} as {new}" for old, new in self._opened.items() if old != new)
            self._assumptions.append(
                f"open dimensions taken as they are given, in every activation where the file leaves them open and by their extents in the file "
                f"({changes}), for TFLite's shapes are inferred by its own kernels alone"
            )
        elif self._rebatch is not None:
            kept = f"; activations of another first dimension ({self._unscaled}) stay as they are" if self._unscaled else ""
            self._assumptions.append(
                f"a first dimension of {self._rebatch.old} taken as {self._rebatch.new} in every activation that has it, for TFLite's shapes are "
                f"inferred by its own kernels alone{kept}"
            )
        if self._dynamic:
            self._assumptions.append(f"tensors of dynamic shape ({self._dynamic}) taken with the extents that the file gives")
        if self._sparse:
            self._assumptions.append(f"sparse weights ({self._sparse}) count as stored; a kernel that unpacks them holds more")
        if self._custom:
            names = tuple(f"{kind} ({count})" for kind, count in self._custom.most_common())
            self._unknown.append(Unknown("custom operators: their shapes are those the file states, their working is not known", names))


class _Subgraph:
    """A subgraph while it is read."""

    def __init__(self, reader: _TfliteReader, index: int, around: tuple[int, ...]) -> None:
        self._reader, self._flat, self._around = reader, reader._flat, around
        self._table = reader._subgraphs[index]
        self._index = index
        self._tables = self._flat.tables(self._table, tflite_file.GRAPH_TENSORS)
        self._tensors: list[Activation] = []
        self._numbers: dict[int, int] = {}
        self._constants: dict[int, int] = {}
        self._empty: set[int] = set()  # constants of no element, such as the shape of a scalar

    def read(self) -> Graph:
        flat, path = self._flat, self._reader._path
        inputs = self._indices(self._table, tflite_file.GRAPH_INPUTS)
        outputs = self._indices(self._table, tflite_file.GRAPH_OUTPUTS)
        operators = flat.tables(self._table, tflite_file.GRAPH_OPERATORS)
        self._reader.count(len(operators))
        computed = {index for operator in operators for index in self._indices(operator, tflite_file.OPERATOR_OUTPUTS)} | set(inputs)
        for index, table in enumerate(self._tables):
            if index not in computed and not self._is_variable(table):
                self._constant(index, table)
        given = [self._tensor(index) for index in inputs if index not in self._constants]
        persistent = [self._tensor(index) for index, table in enumerate(self._tables) if self._is_variable(table)]
        read, folded = list[Operator](), list[Folded]()
        for place, operator in enumerate(operators):
            entry = self._operator(place, operator)
            if isinstance(entry, Folded):
                folded.append(entry)
            else:
                read.append(entry)
        names = [tensor.name for tensor in self._tensors]
        in_order, moved = ordered(read, [*given, *persistent], names, f"model {path}")
        self._reader._moved = moved or self._reader._moved
        for index in outputs:
            if index not in self._constants and index not in self._numbers:
                raise InputError(f"model {path}: no operator makes its output {self._name(index)}")
        return Graph(
            format="tflite",
            path=path,
            tensors=tuple(self._tensors),
            operators=tuple(in_order),
            inputs=tuple(dict.fromkeys(given)),
            outputs=tuple(dict.fromkeys(self._numbers[index] for index in outputs if index in self._numbers)),
            folded=tuple(folded),
            keeps_inputs=True,
            weight_outputs=tuple(self._constants[index] for index in outputs if index in self._constants),
        )

    def _indices(self, table: int, number: int) -> list[int]:
        """The tensors that a table names, without the -1 of an optional tensor that is left out."""
        indices = [index for index in self._flat.integers(table, number) if index != -1]
        if any(not 0 <= index < len(self._tables) for index in indices):
            raise Torn
        return indices

    def _is_variable(self, table: int) -> bool:
        return bool(self._flat.scalar(table, tflite_file.TENSOR_VARIABLE, "<B"))

    def _name(self, index: int) -> str:
        return shown(self._flat.text(self._tables[index], tflite_file.TENSOR_NAME)) or f"tensor {index}"

    def _constant(self, index: int, table: int) -> None:
        shape = self._reader.shape(table, True)
        number = self._reader.constant(table, self._name(index), tflite_file.type_name(self._flat, table), shape)
        if number is not None:
            self._constants[index] = number
        elif 0 in shape:
            self._empty.add(index)

    def _tensor(self, index: int) -> int:
        if index not in self._numbers:
            table = self._tables[index]
            type = tflite_file.type_name(self._flat, table)
            shape = self._reader.shape(table, False)
            bytes, why = size(type, shape), ""
            if bytes is None:
                why = f"a {type} has no fixed size" if type in ("string", "resource", "variant") else f"the size of {type} is not known"
            self._numbers[index] = len(self._tensors)
            self._tensors.append(Activation(self._name(index), type, shape, bytes, why, self._is_variable(table)))
        return self._numbers[index]

    def _operator(self, place: int, table: int) -> Operator | Folded:
        code = self._flat.scalar(table, tflite_file.OPERATOR_CODE, "<I")
        kinds = self._reader._kinds
        if code >= len(kinds):
            raise Torn
        kind = kinds[code]
        inputs, outputs = self._indices(table, tflite_file.OPERATOR_INPUTS), self._indices(table, tflite_file.OPERATOR_OUTPUTS)
        name = f"{kind}#{place}"
        weights = tuple(dict.fromkeys(self._constants[index] for index in inputs if index in self._constants))
        if kind in ("DEQUANTIZE", "DENSIFY") and len(inputs) == len(outputs) == 1 and inputs[0] in self._constants:
            # The kernels of both compute a constant once and keep the result (kTfLitePersistentRo).
            out = self._tables[outputs[0]]
            result = self._reader.result(self._name(outputs[0]), tflite_file.type_name(self._flat, out), self._reader.shape(out, True))
            self._constants[outputs[0]] = result
            return Folded(weights, (result,))
        if kind.startswith("custom."):
            self._reader._custom[kind.removeprefix("custom.")] += 1
        elif kind.startswith("operator "):
            self._reader._unknown.append(Unknown(f"{kind}, which no schema known here has", (name,)))
        activations = [index for index in inputs if index not in self._constants and index not in self._empty]
        reads = [self._tensor(index) for index in dict.fromkeys(activations)]
        writes = [self._tensor(index) for index in dict.fromkeys(outputs)]
        return Operator(
            name=name,
            kind=kind,
            place=place,
            reads=tuple(reads),
            writes=tuple(number for number in writes if not self._tensors[number].persistent),
            weights=weights,
            overwrites=self._overwrites(kind, reads, writes),
            work=self._work(kind, inputs, writes),
            bodies=tuple(self._bodies(kind, table)),
            stateful=kind in _STATEFUL or any(self._tensors[number].persistent for number in (*reads, *writes)),
        )

    def _bodies(self, kind: str, table: int) -> Iterator[Body]:
        if kind == "STABLEHLO_CASE":
            options = self._flat.child(table, tflite_file.OPERATOR_OPTIONS_2)
            indices: Sequence[int] = self._flat.integers(options, 0) if options else ()
            repeated = False
        elif kind in _BODIES:
            fields, repeated = _BODIES[kind]
            options = self._flat.child(
                table, tflite_file.OPERATOR_OPTIONS_2 if kind.startswith("STABLEHLO") else tflite_file.OPERATOR_OPTIONS
            )
            indices = [self._flat.scalar(options, number, "<i") for number in fields] if options else ()
        else:
            return
        for index in indices:
            yield Body(self._reader._subgraph(index, self._around), repeated)

    def _overwrites(self, kind: str, reads: Sequence[int], writes: Sequence[int]) -> tuple[int, int] | None:
        if kind not in _IN_PLACE or len(writes) != 1:
            return None
        wanted = self._tensors[writes[0]].bytes
        return next(((number, writes[0]) for number in reads if wanted and self._tensors[number].bytes == wanted), None)

    def _work(self, kind: str, inputs: Sequence[int], writes: Sequence[int]) -> int | None:
        """Multiply-adds of the operators that have most of them. All others count one for each element of the result."""
        if not writes or kind.startswith(("custom.", "operator ")):
            return None
        out = self._tensors[writes[0]].shape or ()
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D", "FULLY_CONNECTED", "BATCH_MATMUL") and len(inputs) > 1:
            shape = tflite_file.shape(self._flat, self._tables[inputs[1]])
            per_element = {
                "CONV_2D": math.prod(shape[1:]),
                "DEPTHWISE_CONV_2D": math.prod(shape[1:3]),
                "CONV_3D": math.prod(shape[:-1]),
                "FULLY_CONNECTED": shape[-1] if shape else 1,
                "BATCH_MATMUL": shape[-2] if len(shape) > 1 else 1,
            }[kind]
            return math.prod(out) * per_element
        return math.prod(out)
