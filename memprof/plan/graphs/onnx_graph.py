"""ONNX files as graphs, their shapes inferred by onnx itself from a skeleton of the model without its weights (memprof.models.skeleton).

Operators that read constants alone are folded, as every runtime does at load: Constant nodes, ConstantOfShape of a constant, a Transpose of a
weight. A DequantizeLinear of a weight is taken for a part of its reader. The bodies of local functions stand in place of their calls.
The meaning of messages is that of onnx.proto3; of operators, github.com/onnx/onnx/blob/main/docs/Operators.md.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...base.errors import InputError
from ...models import MOST_DIMENSIONS
from .graph import FLOATING, Activation, Body, Constant, Folded, Graph, Operator, Remarks, Unknown, check_count, shown, size, words
from .isolated_onnx import Apart
from .onnx_proto import OWN_DOMAINS, RANDOM, content, in_order, inlined, inner_graphs, load, small_external, type_name
from .onnx_shapes import bind, fixed, inferred, named
from .sorting import ordered

_REPEATED = frozenset(("Loop", "Scan", "SequenceMap"))
# Operators whose output may lie over their first input of the same size: they work element by element, or only name a tensor again.
# onnxruntime's kernels declare it with MayInplace and Alias.
_IN_PLACE = words(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BatchNormalization Cast Ceil Celu Clip Cos Cosh CumSum DequantizeLinear Div Dropout Elu Erf Exp "
    "Expand Flatten Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Log LogSoftmax Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow "
    "QuantizeLinear Reciprocal Relu Reshape Round Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Squeeze Sub Sum Swish Tan Tanh "
    "ThresholdedRelu Unsqueeze Where Xor"
)
# Floating weights that no gradient reaches, running statistics and scales: by operator, the positions of those inputs.
_STATISTICS = {"BatchNormalization": (3, 4), "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2)}
_NESTED_MOST = 64

# The names of the tensors of enclosing graphs, a set a graph, the nearest first.
_Around = tuple[Set[str], ...]


def read(path: Path, shapes: Mapping[str, tuple[int, ...]], batch: int | None = None, inline: bool = True) -> Graph:
    """The graph of an ONNX file. inline: put the bodies of local functions in place of their calls; without it a call is an operator.

    Raises InputError for a torn or impossible model, UsageError for a shape that does not fit it.
    """
    model = load(path)
    reader = _OnnxReader(path)
    small_external(model, path, reader.remarks)
    with Apart(model.ByteSize()) as apart:
        if inline and model.functions:
            model = inlined(model, path, apart)
        reader.places = in_order(model.graph)
        reader.remarks.assumptions += bind(model, shapes, batch, path)
        model = inferred(model, shapes, reader.remarks, apart)
    return reader.graph(model)


class _OnnxReader:
    """A model while it is read: its weights over all its graphs, and the remarks on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.remarks = Remarks()
        self.places: list[int] = []
        self.moved = ""
        self.weights: list[Constant] = []
        self._foreign: Counter[str] = Counter()
        self._fused = 0
        self._sparse: list[str] = []
        self._quantizing = 0
        self._operators = 0

    def graph(self, model: Any) -> Graph:
        """The main graph."""
        main, captured = self._graph(model.graph, ChainMap(), (), 0)
        if captured:
            raise InputError(f"model {self.path}: {captured[0][1]} reads {shown(captured[0][0])}, which no operator makes")
        if self._foreign:
            names = tuple(f"{shown(kind)} ({count})" for kind, count in self._foreign.most_common())
            self.remarks.unknown.append(
                Unknown("operators from another domain: their shapes are those the file states, their working is not known", names)
            )
        if self._fused:
            self.remarks.assumptions.append(f"{self._fused} DequantizeLinear of weights taken for a part of the operators that read them")
        if self._quantizing:
            self.remarks.assumptions.append(
                f"{self._quantizing} QuantizeLinear and DequantizeLinear of activations count as written; a runtime that fuses them holds less"
            )
        if self._sparse:
            self.remarks.assumptions.append(f"sparse weights ({len(self._sparse)}) count as stored; a runtime that unpacks them holds more")
        return replace(
            main,
            weights=tuple(self.weights),
            assumptions=tuple(self.remarks.assumptions),
            unknown=tuple(self.remarks.unknown),
            moved=self.moved,
        )

    def _graph(self, proto: Any, constants: ChainMap[str, int], around: _Around, depth: int) -> tuple[Graph, list[tuple[str, str]]]:
        """A graph, and (name, reader) of each tensor that it takes from around it."""
        if depth > _NESTED_MOST:
            raise InputError(f"model {self.path}: its graphs are nested more than {_NESTED_MOST} deep")
        self._operators += len(proto.node)
        check_count(self._operators, self.path)
        scope = _Scope(self, proto, constants.new_child(), depth)
        return scope.read(around)

    def add_weight(self, weight: Constant) -> int:
        """Keep a weight; returns its number."""
        self.weights.append(weight if weight.name.isprintable() else replace(weight, name=shown(weight.name)))
        return len(self.weights) - 1

    def tensor_weight(self, tensor: Any, name: str) -> int:
        """Keep a TensorProto as a weight; returns its number. Raises InputError for an impossible shape."""
        kind, shape = type_name(tensor.data_type), tuple(tensor.dims)
        if any(extent < 0 for extent in shape):
            raise InputError(f"model {self.path}: weight {shown(name)} has a negative dimension")
        if len(shape) > MOST_DIMENSIONS:
            raise InputError(f"model {self.path}: weight {shown(name)} has {len(shape):,} dimensions")
        bytes = size(kind, shape)
        if kind == "string":
            bytes = sum(len(text) for text in tensor.string_data)
        if bytes is None:
            self.remarks.unknown.append(Unknown(f"a weight of type {kind}, whose size is not known", (shown(name),)))
        return self.add_weight(Constant(name, kind, shape, bytes, content(tensor, self.path), kind in FLOATING))

    def sparse_weight(self, sparse: Any, name: str) -> int:
        """Keep a SparseTensorProto as a weight, its values and their indices; returns its number."""
        kind = type_name(sparse.values.data_type)
        parts = [size(type_name(part.data_type), tuple(part.dims)) for part in (sparse.values, sparse.indices)]
        self._sparse.append(name)
        bytes = None if None in parts else sum(part or 0 for part in parts)
        return self.add_weight(Constant(name, kind, tuple(sparse.dims), bytes, None, False))

    def not_trainable(self, number: int) -> None:
        """Mark a weight as a running statistic."""
        self.weights[number] = replace(self.weights[number], trainable=False)

    def count_operator(self, node: Any, folded: bool) -> None:
        """Count an operator for the remarks on foreign and quantizing operators."""
        if node.domain not in OWN_DOMAINS:
            self._foreign[f"{node.domain}.{node.op_type}"] += 1
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            self._fused += folded
            self._quantizing += not folded


class _Scope:
    """A graph while it is read."""

    def __init__(self, reader: _OnnxReader, proto: Any, constants: ChainMap[str, int], depth: int) -> None:
        self._reader = reader
        self._proto = proto
        self._constants = constants
        self._depth = depth
        self._types = {value.name: value.type for value in (*proto.input, *proto.value_info, *proto.output)}
        self._tensors: list[Activation] = []
        self._numbers: dict[str, int] = {}
        self._operators: list[Operator] = []
        self._folded: list[Folded] = []
        self._captured: list[tuple[str, str]] = []
        self._names: Counter[str] = Counter()
        self._masked: dict[str, str] = {}

    def read(self, around: _Around) -> tuple[Graph, list[tuple[str, str]]]:
        """The graph, and what it takes from around it."""
        proto, local = self._proto, self._constants
        for tensor in proto.initializer:
            local[tensor.name] = self._reader.tensor_weight(tensor, tensor.name)
        for sparse in proto.sparse_initializer:
            local[sparse.values.name] = self._reader.sparse_weight(sparse, sparse.values.name)
        inputs = [
            self._tensor(value.name, "an input without a shape: --shape says it")
            for value in proto.input
            if value.name not in local.maps[0]
        ]
        results = [name for node in proto.node for name in node.output if name]
        if self._depth and (twice := [name for name, count in Counter(results).items() if count > 1]):
            raise InputError(f"model {self._reader.path}: {shown(twice[0])} is made twice")
        self._local = {*results, *(value.name for value in proto.input), *local.maps[0]}
        self._around = (self._local, *around)
        places = range(len(proto.node)) if self._depth else self._reader.places
        for place, node in zip(places, proto.node, strict=True):
            self._node(place, node)
        names = [tensor.name for tensor in self._tensors]
        operators, moved = ordered(self._operators, inputs, names, f"model {self._reader.path}")
        self._reader.moved = moved or self._reader.moved
        outputs = [self._numbers[value.name] for value in proto.output if value.name in self._numbers]
        for value in proto.output:
            if value.name not in self._numbers and value.name not in self._constants:
                if not self._is_around(value.name):
                    raise InputError(f"model {self._reader.path}: no operator makes its output {shown(value.name)}")
                self._captured.append((value.name, "an output"))
        graph = Graph(
            format="onnx",
            path=self._reader.path,
            tensors=tuple(self._tensors),
            operators=tuple(operators),
            inputs=tuple(inputs),
            outputs=tuple(dict.fromkeys(outputs)),
            weight_outputs=tuple(self._constants[value.name] for value in proto.output if value.name in self._constants),
            folded=tuple(self._folded),
        )
        return graph, self._captured

    # -- a node

    def _node(self, place: int, node: Any) -> None:
        name = self._name(node)
        kind = shown(node.op_type if node.domain in OWN_DOMAINS[:2] else f"{node.domain}.{node.op_type}")
        if node.op_type == "Constant" and node.domain in OWN_DOMAINS[:2] and len(node.output) == 1:
            self._constants[node.output[0]] = self._constant(node)
            return
        bodies, captured_names = self._bodies(node)
        inputs = [text for text in node.input if text]
        if self._foldable(node, inputs, bodies):
            self._fold(node, inputs)
            return
        self._reader.count_operator(node, False)
        if node.op_type == "Dropout" and len(node.output) > 1:
            self._masked[node.output[1]] = node.output[0]  # onnx infers the mask's shape for no opset below 12
        weights = [self._constants[text] for text in dict.fromkeys(inputs) if text in self._constants]
        for position in _STATISTICS.get(node.op_type, ()):
            if position < len(node.input) and node.input[position] in self._constants:
                self._reader.not_trainable(self._constants[node.input[position]])
        reads = [number for text in dict.fromkeys((*inputs, *captured_names)) if (number := self._read(text, name)) is not None]
        writes = [self._tensor(text, self._why(node)) for text in node.output if text]
        self._operators.append(
            Operator(
                name=name,
                kind=kind,
                place=place,
                reads=tuple(reads),
                writes=tuple(writes),
                weights=tuple(weights),
                overwrites=self._overwrites(node, inputs, writes),
                work=self._work(node, writes),
                bodies=tuple(bodies),
                stateful=node.op_type in RANDOM and node.domain in OWN_DOMAINS,
            )
        )

    def _name(self, node: Any) -> str:
        base = shown(node.name or f"{node.op_type}_{self._names[node.op_type]}")
        self._names[node.op_type] += 1
        self._names[f"name {base}"] += 1
        count = self._names[f"name {base}"]
        return base if count == 1 else f"{base}#{count}"

    def _bodies(self, node: Any) -> tuple[list[Body], list[str]]:
        """An operator's graphs, and the names that they take from this graph or from further out."""
        bodies, captured_names = [], []
        for inner in inner_graphs(node):
            graph, captured = self._reader._graph(inner, self._constants, self._around, self._depth + 1)
            bodies.append(Body(graph, node.op_type in _REPEATED))
            captured_names += [text for text, _ in captured if text not in self._constants]
        return bodies, captured_names

    def _read(self, text: str, reader: str) -> int | None:
        """The tensor of that name, None for a constant and for a tensor further out."""
        if text in self._constants:
            return None
        if text in self._local:
            return self._tensor(text, "")
        if self._is_around(text):
            self._captured.append((text, reader))
            return None
        raise InputError(f"model {self._reader.path}: {reader} reads {shown(text)}, which no operator makes")

    def _is_around(self, name: str) -> bool:
        return any(name in names for names in self._around)

    def _foldable(self, node: Any, inputs: Sequence[str], bodies: Sequence[Body]) -> bool:
        if bodies or node.domain not in OWN_DOMAINS or node.op_type in RANDOM or not inputs:
            return False
        return all(text in self._constants for text in inputs) and any(node.output)

    def _fold(self, node: Any, inputs: Sequence[str]) -> None:
        fused = node.op_type == "DequantizeLinear"
        self._reader.count_operator(node, True)
        weights = tuple(dict.fromkeys(self._constants[text] for text in inputs))
        results = []
        for text in node.output:
            if not text:
                continue
            type, shape, bytes, why = self._described(text, self._why(node))
            if bytes is None:
                self._reader.remarks.unknown.append(
                    Unknown("results computed from constants whose size is not known", (shown(f"{text} ({why})"),))
                )
            if fused:  # the weight is held, and read, as it is quantized
                bytes = sum(self._reader.weights[weight].bytes or 0 for weight in weights)
            sources = any(self._reader.weights[weight].trainable for weight in weights) or node.op_type == "ConstantOfShape"
            trainable = type in FLOATING and sources and not fused
            number = self._reader.add_weight(Constant(text, type, shape or (), bytes, None, trainable))
            self._constants[text] = number
            results.append(number)
        self._folded.append(Folded(weights, tuple(results), fused))

    def _constant(self, node: Any) -> int:
        name = node.output[0]
        for attribute in node.attribute:
            if attribute.name == "value":
                return self._reader.tensor_weight(attribute.t, name)
            if attribute.name == "sparse_value":
                return self._reader.sparse_weight(attribute.sparse_tensor, name)
            field = {"value_float": "f", "value_floats": "floats", "value_int": "i", "value_ints": "ints"}.get(attribute.name)
            if field is not None:
                kind = "float32" if field.startswith("f") else "int64"
                shape = (len(getattr(attribute, field)),) if field.endswith("s") else ()
                return self._reader.add_weight(Constant(name, kind, shape, size(kind, shape)))
            if attribute.name in ("value_string", "value_strings"):
                texts = [attribute.s] if attribute.name == "value_string" else list(attribute.strings)
                return self._reader.add_weight(Constant(name, "string", (len(texts),), sum(map(len, texts)), b"\0".join(texts)))
        raise InputError(f"model {self._reader.path}: the Constant {shown(name)} has no value")

    # -- tensors

    def _tensor(self, name: str, why: str) -> int:
        if name not in self._numbers:
            type, shape, bytes, reason = self._described(name, why)
            self._numbers[name] = len(self._tensors)
            self._tensors.append(Activation(shown(name), type, shape, bytes, shown(reason)))
        return self._numbers[name]

    def _described(self, name: str, why: str) -> tuple[str, tuple[int, ...] | None, int | None, str]:
        """A tensor's type, shape and bytes, and the reason where the bytes are None."""
        if name in self._masked and not (name in self._types and self._types[name].tensor_type.HasField("shape")):
            type, shape, bytes, why = self._described(self._masked[name], why)
            return "bool", shape, size("bool", shape) if shape is not None else bytes, why
        declared = self._types.get(name)
        case = declared.WhichOneof("value") if declared is not None else None
        if case not in (None, "tensor_type", "sparse_tensor_type"):
            return str(case).removesuffix("_type"), None, None, f"a {str(case).removesuffix('_type')} has no fixed size"
        if declared is None or case is None:
            return "unknown", None, None, why or "its shape cannot be inferred"
        tensor_type = getattr(declared, case)
        type = type_name(tensor_type.elem_type)
        if not tensor_type.HasField("shape"):
            return type, None, None, why or "its shape cannot be inferred"
        if not all(fixed(dim) for dim in tensor_type.shape.dim):
            symbols = ", ".join(str(dim.dim_value) if fixed(dim) else named(dim) for dim in tensor_type.shape.dim)
            return type, None, None, f"its shape ({symbols}) depends on data"
        if len(tensor_type.shape.dim) > MOST_DIMENSIONS:
            return type, None, None, f"it has {len(tensor_type.shape.dim):,} dimensions"
        shape = tuple(dim.dim_value for dim in tensor_type.shape.dim)
        bytes = size(type, shape)
        return type, shape, bytes, "" if bytes is not None else f"a {type} has no known size"

    def _why(self, node: Any) -> str:
        if node.domain not in OWN_DOMAINS:
            return f"{node.domain}.{node.op_type} is from another domain, and the file does not state its shape"
        return f"the shape of {node.op_type}'s result cannot be inferred"

    def _overwrites(self, node: Any, inputs: Sequence[str], writes: Sequence[int]) -> tuple[int, int] | None:
        if node.op_type not in _IN_PLACE or node.domain not in OWN_DOMAINS or not writes:
            return None
        target = self._tensors[writes[0]]
        for text in inputs:
            number = self._numbers.get(text)
            if number is not None and target.bytes and self._tensors[number].bytes == target.bytes:
                return number, writes[0]
        return None

    # -- work

    def _work(self, node: Any, writes: Sequence[int]) -> int | None:
        """Multiply-adds of the operators that have most of them. All others count one for each result element. None where a shape is unknown."""
        if not writes or node.domain not in OWN_DOMAINS:
            return None
        out = self._tensors[writes[0]].shape
        shapes = [self._shape(text) for text in node.input]
        if out is None:
            return None
        per_element: int | None = 1
        if node.op_type in ("Conv", "ConvInteger", "QLinearConv"):
            kernel = shapes[3 if node.op_type == "QLinearConv" else 1] if len(shapes) > 1 else None
            per_element = math.prod(kernel[1:]) if kernel else None
        elif node.op_type == "ConvTranspose" and len(shapes) > 1:
            source, kernel = shapes[0], shapes[1]
            return math.prod(source) * math.prod(kernel[1:]) if source is not None and kernel else None
        elif node.op_type in ("MatMul", "MatMulInteger", "Gemm"):
            transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
            source = shapes[0] if shapes else None
            per_element = (source[0] if transposed else source[-1]) if source else None
        elif node.op_type in ("MaxPool", "AveragePool"):
            window = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "kernel_shape"), [1])
            per_element = max(math.prod(window), 1)
        return None if per_element is None else math.prod(out) * per_element

    def _shape(self, name: str) -> tuple[int, ...] | None:
        if name in self._constants:
            return self._reader.weights[self._constants[name]].shape
        number = self._numbers.get(name)
        return self._tensors[number].shape if number is not None else None
