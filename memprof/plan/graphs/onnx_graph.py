"""ONNX files as graphs, their shapes inferred by onnx itself from a skeleton of the model without its weights (see skeleton.py).

What constants alone determine is folded, as every runtime does at load: Constant nodes, ConstantOfShape of a constant, a Transpose of a
weight. A DequantizeLinear of a weight is taken for a part of its reader. Local functions are put in place of their calls.
The meaning of messages is that of onnx.proto3; of operators, github.com/onnx/onnx/blob/main/docs/Operators.md.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import InputError, UsageError
from ...models.skeleton import PLACE, SMALL, skeleton
from .graph import (
    FLOATING,
    Body,
    Folded,
    Graph,
    Operator,
    Span,
    Tensor,
    Unknown,
    Weight,
    check_names,
    ordered,
    shown,
    size,
    topological,
    words,
)

_OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")
_RANDOM = frozenset(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"))
_REPEATED = frozenset(("Loop", "Scan", "SequenceMap"))
# Whose output may lie over their first input of the same size: what works element by element, and what only names a tensor anew.
# onnxruntime's kernels say so with MayInplace and Alias.
_IN_PLACE = words(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BatchNormalization Cast Ceil Celu Clip Cos Cosh CumSum DequantizeLinear Div Dropout Elu Erf Exp "
    "Expand Flatten Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Log LogSoftmax Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow "
    "QuantizeLinear Reciprocal Relu Reshape Round Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Squeeze Sub Sum Swish Tan Tanh "
    "ThresholdedRelu Unsqueeze Where Xor"
)
# Floating weights that no gradient reaches: running statistics and scales; by operator, the inputs that are.
_STATISTICS = {"BatchNormalization": (3, 4), "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2)}
_NESTED_MOST = 64
# What shapes are computed with: none of these makes much of little, but for those that `_bounded` looks at first.
_SHAPE_ARITHMETIC = words(
    "Abs Add And Cast Ceil Clip Concat ConstantOfShape CumSum Div Equal Expand Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual "
    "Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements ScatterND "
    "Sign Slice Sqrt Squeeze Sub Tile Transpose Unsqueeze Where"
)
_FEW = 1024
# Shapes found by computing what they depend on lead to further ones.
_ROUNDS = 6


def load(path: Path) -> Any:
    """The model as onnx's ModelProto without the values of large tensors. Raises InputError."""
    onnx = _onnx()
    content = skeleton(path)
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception:  # protobuf's DecodeError, whose package has no types
        raise InputError(f"model {path}: this is no ONNX model, or not a whole one") from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise InputError(f"model {path}: there is no graph in it")
    graphs = [model.graph, *model.functions]
    if not all(isinstance(text, str) for graph in graphs for text in _texts(graph)):
        # protobuf's package gives bytes for a string of proto2 that is not UTF-8.
        raise InputError(f"model {path}: a name in it is not UTF-8")
    return model


def _texts(graph: Any) -> Iterator[object]:
    """All names in a graph or a function."""
    yield graph.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output, *(one.name for one in node.attribute))
        for inner in _inner_graphs(node):
            yield from _texts(inner)
    if not hasattr(graph, "initializer"):
        return
    for tensor in _tensors(graph):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        if value.type.WhichOneof("value") == "tensor_type":
            yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)


def read(path: Path, shapes: Mapping[str, tuple[int, ...]], batch: int | None = None, inline: bool = True) -> Graph:
    """The graph of an ONNX file. inline: local functions are put in place of their calls; without it a call is one operator.

    Raises InputError for a torn or impossible model, UsageError for a shape that does not fit it.
    """
    model = load(path)
    reader = _Reader(path)
    _small_external(model, path, reader)
    if inline and model.functions:
        model = _inlined(model, path)
    reader.places = _in_order(model.graph)
    reader.assumptions += _bind(model, shapes, batch, path)
    model = _inferred(model, shapes, reader)
    return reader.graph(model)


def _onnx() -> Any:
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise InputError(f"reading an ONNX graph needs {error.name}, not installed here: pip install 'memprof[plan]'") from None
    return onnx


def _inlined(model: Any, path: Path) -> Any:
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:
        raise InputError(f"model {path}: its local functions cannot be put in place: {_line(error)}") from None


def _in_order(graph: Any) -> list[int]:
    """Put the nodes of a graph behind those whose results they read, for shapes are inferred in that order; returns their places in the file."""
    maker = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    waits = [{maker[name] for name in names_read(node) if name in maker} for node in graph.node]
    places = topological(waits)
    places += sorted({*range(len(waits))}.difference(places))  # a cycle is said where it is known by its operators' names
    if places != list(range(len(places))):
        nodes = [type(node).FromString(node.SerializeToString()) for node in graph.node]
        graph.ClearField("node")
        graph.node.extend(nodes[place] for place in places)
    return places


def names_read(node: Any) -> set[str]:
    """What a node reads, and what its graphs take from around them."""
    found = {name for name in node.input if name}
    for inner in _inner_graphs(node):
        taken = {value.name for value in inner.output}.union(*map(names_read, inner.node))
        found |= taken - {
            *(value.name for value in inner.input),
            *(tensor.name for tensor in inner.initializer),
            *(sparse.values.name for sparse in inner.sparse_initializer),
            *(name for one in inner.node for name in one.output),
        }
    return found


# -- shapes


def _inferred(model: Any, shapes: Mapping[str, tuple[int, ...]], reader: _Reader) -> Any:
    inside = {name: shape for name, shape in shapes.items() if name not in {value.name for value in model.graph.input}}
    found = _infer(model, reader)
    for name, shape in inside.items():
        _say_shape(found.graph, name, shape)
    states = _loop_states(found.graph)
    if states:
        reader.assumptions.append(f"{states} states of loops have the shape that a round gives them")
    if inside or states:
        found = _infer(found, reader)
    for _ in range(_ROUNDS):
        before = _unshaped(found.graph)
        if not before:
            break
        known = type(found)()
        known.CopyFrom(found)
        if not _compute(known.graph, ChainMap(), _opset(model)):
            break
        known = _infer(known, reader)
        _restore(found.graph, known.graph)
        found = known
        if _unshaped(found.graph) == before:
            break
    return found


def _loop_states(graph: Any) -> int:
    """Give what a Loop carries the shape of the body's results, which onnx does not infer because a round could change it; how many."""
    known = {value.name: value for value in (*graph.value_info, *graph.output)}
    count = 0
    for node in graph.node:
        for inner in _inner_graphs(node):
            count += _loop_states(inner)
            if node.op_type != "Loop":
                continue
            for name, result in zip(node.output[: len(node.input) - 2], inner.output[1:], strict=False):
                kind = result.type.tensor_type
                if not name or not _shaped(kind):
                    continue
                value = known[name] if name in known else graph.value_info.add(name=name)
                if not value.type.tensor_type.HasField("shape"):
                    value.type.tensor_type.CopyFrom(kind)
                    count += 1
    return count


def _opset(model: Any) -> int:
    return max((one.version for one in model.opset_import if one.domain in _OWN_DOMAINS[:2]), default=1)


def _unshaped(graph: Any) -> int:
    """How many results of nodes have no shape in numbers, graphs inside included."""
    known = {value.name for value in (*graph.value_info, *graph.output) if _shaped(value.type.tensor_type)}
    here = sum(name not in known for node in graph.node for name in node.output if name and node.op_type != "Constant")
    return here + sum(_unshaped(inner) for node in graph.node for inner in _inner_graphs(node))


def _compute(graph: Any, values: ChainMap[str, Any], opset: int, around: ChainMap[str, list[int]] | None = None) -> int:
    """Put a Constant in place of each node whose small result constants and known shapes determine; how many were computed.

    onnx's own inference follows values only through a few operators, and a Pad or a Reshape behind others has no shape for it.
    """
    from onnx import helper, numpy_helper

    here = values.new_child()
    dims = (around or ChainMap()).new_child(
        {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.value_info)
            if _shaped(value.type.tensor_type)
        }
    )
    for tensor in graph.initializer:
        here[tensor.name] = _array(tensor)
    count = 0
    for node in graph.node:
        for inner in _inner_graphs(node):
            count += _compute(inner, here, opset, dims)
        if node.op_type == "If" and here.get(node.input[0]) is not None:
            count += _decide(graph, node, bool(here[node.input[0]].reshape(-1)[0]))
        elif node.op_type == "Loop" and (rounds := _rounds(node, here)) is not None:
            count += _stack(graph, node, rounds)
        if len(node.output) != 1 or node.domain not in _OWN_DOMAINS[:2] or node.op_type in _RANDOM:
            continue
        result = _value_of(node, here, dims, opset)
        here[node.output[0]] = result
        if result is None or node.op_type == "Constant":
            continue
        constant = helper.make_node("Constant", [], list(node.output), name=node.name, value=numpy_helper.from_array(result))
        node.CopyFrom(constant)
        count += 1
    return count


def _decide(graph: Any, node: Any, condition: bool) -> int:
    """Give an If the shapes of the branch that a known condition takes; how many were new."""
    branch = _graph_of(node, "then_branch" if condition else "else_branch")
    return _state(graph, zip(node.output, branch.output if branch is not None else (), strict=False))


def _stack(graph: Any, node: Any, rounds: int) -> int:
    """Give what a Loop collects a row of each of its rounds; how many shapes were new."""
    states = len(node.input) - 2
    collected = []
    for name, row in zip(node.output[states:], _graph_of(node, "body").output[1 + states :], strict=False):
        if _shaped(row.type.tensor_type):
            whole = type(row).FromString(row.SerializeToString())
            _set_dims(whole.type.tensor_type, [rounds, *(dim.dim_value for dim in row.type.tensor_type.shape.dim)])
            collected.append((name, whole))
    return _state(graph, collected)


def _state(graph: Any, results: Iterable[tuple[str, Any]]) -> int:
    """Give tensors the shapes of others where those are known; how many were new."""
    known = {value.name: value for value in (*graph.value_info, *graph.output)}
    count = 0
    for name, result in results:
        kind = result.type.tensor_type
        if not name or not _shaped(kind):
            continue
        value = known[name] if name in known else graph.value_info.add(name=name)
        if value.type.tensor_type != kind:
            value.type.tensor_type.CopyFrom(kind)
            count += 1
    return count


def _graph_of(node: Any, name: str) -> Any:
    return next((one.g for one in node.attribute if one.name == name), None)


def _rounds(node: Any, values: ChainMap[str, Any]) -> int | None:
    """How many rounds a Loop makes where constants say so, and its body's condition does not end it before."""
    body = _graph_of(node, "body")
    trips = values.get(node.input[0]) if len(node.input) > 1 else None
    if trips is None or trips.dtype.name != "int64" or not trips.size or body is None or len(body.input) < 2 or not body.output:
        return None
    if node.input[1]:  # without it what the body says of it is not heeded
        begins = values.get(node.input[1])
        if begins is None or not begins.all() or not _goes_on(body, values):
            return None
    return max(int(trips.reshape(-1)[0]), 0)


def _goes_on(body: Any, values: ChainMap[str, Any]) -> bool:
    """Whether a Loop's body hands its condition on as it is, or says a constant yes."""
    handed = {one.output[0]: one.input[0] for one in body.node if one.op_type == "Identity" and one.input and one.output}
    constants = {one.name: _array(one) for one in body.initializer}
    constants |= {one.output[0]: _value_of(one, values, {}, 0) for one in body.node if one.op_type == "Constant" and one.output}
    name = body.output[0].name
    while name in handed:
        name = handed.pop(name)
    known = constants.get(name, values.get(name))
    return name == body.input[1].name or (known is not None and bool(known.all()))


def _value_of(node: Any, values: ChainMap[str, Any], dims: Mapping[str, Sequence[int]], opset: int) -> Any:
    """The small result of a node, None where it is not known or not small."""
    import numpy as np

    if node.op_type == "Constant":
        tensor = next((one.t for one in node.attribute if one.name == "value"), None)
        if tensor is not None:
            return _array(tensor)
    elif node.op_type in ("Shape", "Size") and node.input[0] in dims and not node.attribute:
        shape = dims[node.input[0]]
        return np.array(shape if node.op_type == "Shape" else math.prod(shape), np.int64)
    if node.op_type not in _SHAPE_ARITHMETIC or any(values.get(name) is None for name in node.input if name):
        return None
    if not _bounded(node, [values[name] for name in node.input if name]):
        return None
    key = (node.SerializeToString(), *((values[name].tobytes(), values[name].shape) for name in node.input if name))
    if key not in _RESULTS:
        if len(_RESULTS) >= _REMEMBERED:
            _RESULTS.clear()
        _RESULTS[key] = _evaluated(node, {name: values[name] for name in node.input if name}, opset)
    return _RESULTS[key]


# A round computes again what earlier ones have: making an evaluator takes a millisecond.
_RESULTS: dict[Any, Any] = {}
_REMEMBERED = 50_000


def _evaluated(node: Any, feed: dict[str, Any], opset: int) -> Any:
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            (result,) = ReferenceEvaluator(node, opsets={"": opset}).run(None, feed)
        array = np.asarray(result)
        return array if array.nbytes <= SMALL and array.dtype.kind in "biuf" else None
    except Exception:  # whatever an operator's reference raises: its result is not known then
        return None


def _bounded(node: Any, given: Sequence[Any]) -> bool:
    """Whether a node's result is small because what it reads is; damaged models ask for terabytes."""
    if any(one.size > _FEW for one in given):
        return False
    if node.op_type == "Range" and len(given) == 3:
        start, limit, step = (float(one.reshape(-1)[0]) if one.size else 0.0 for one in given)
        return step != 0 and abs((limit - start) / step) <= _FEW
    if node.op_type in ("ConstantOfShape", "Expand", "Tile") and given:
        extents = [abs(int(extent)) for extent in given[-1].reshape(-1)]
        return math.prod(extents) * max(int(one.size) for one in given[:-1] or given) <= _FEW * _FEW
    return True


def _array(tensor: Any) -> Any:
    from onnx import numpy_helper

    if tensor.external_data or math.prod(tensor.dims) > SMALL or tensor.data_type == tensor.STRING:
        return None
    try:
        return numpy_helper.to_array(tensor)
    except Exception:  # a damaged one, which is said elsewhere
        return None


def _restore(original: Any, known: Any) -> None:
    """Put the nodes back that were computed; the shapes that came of it stay."""
    for one, other in zip(original.node, known.node, strict=True):
        if one.op_type != other.op_type:
            other.CopyFrom(one)
            continue
        for inner, changed in zip(_inner_graphs(one), _inner_graphs(other), strict=True):
            _restore(inner, changed)


def _infer(model: Any, reader: _Reader) -> Any:
    from onnx import shape_inference

    try:
        return shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # what it raises comes from C++, by many names
        reader.unknown.append(Unknown(f"shape inference gave up, so only shapes that the file states are known ({_line(error)})", ()))
        return model


def _say_shape(graph: Any, name: str, shape: Sequence[int]) -> None:
    known = next((value for value in (*graph.value_info, *graph.output) if value.name == name), None)
    value = known if known is not None else graph.value_info.add(name=name)
    if value.type.WhichOneof("value") not in (None, "tensor_type"):
        raise UsageError(f"{name} is no tensor, so it has no shape")
    _set_dims(value.type.tensor_type, shape)


def _set_dims(tensor_type: Any, shape: Sequence[int]) -> None:
    tensor_type.shape.ClearField("dim")
    tensor_type.shape.SetInParent()
    for extent in shape:
        tensor_type.shape.dim.add().dim_value = extent


def _bind(model: Any, shapes: Mapping[str, tuple[int, ...]], batch: int | None, path: Path) -> list[str]:
    """Give every dimension of every input a number, and say what was taken for granted."""
    graph = model.graph
    constant = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    inputs = [value for value in graph.input if value.name not in constant]
    check_names(shapes, [*(value.name for value in inputs), *(name for node in graph.node for name in node.output if name)], path)
    bound = _Bound(path)
    changed: list[str] = []
    for value in inputs:
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        kind = value.type.tensor_type
        wanted = shapes.get(value.name)
        if wanted is not None and not kind.HasField("shape"):
            _set_dims(kind, wanted)
        dims = kind.shape.dim
        if wanted is not None and len(wanted) != len(dims):
            raise UsageError(f"{path}: input {value.name} has {len(dims)} dimensions, and {len(wanted)} were given")
        for axis, dim in enumerate(dims):
            if wanted is not None:
                before = dim.dim_value
                if bound.set(dim, wanted[axis]):
                    changed.append(f"dimension {axis} of {value.name}, {before} in the file, is taken as {wanted[axis]}")
            elif axis == 0 and batch is not None:
                bound.set(dim, batch)
    free: list[str] = []
    for value in inputs:
        for dim in value.type.tensor_type.shape.dim if value.type.WhichOneof("value") == "tensor_type" else ():
            if not _fixed(dim):
                if dim.dim_param not in bound.symbols:
                    free.append(shown(dim.dim_param) or f"a nameless dimension of {value.name}")
                bound.set(dim, bound.symbols.get(dim.dim_param, 1))
    bound.everywhere(graph)
    assumed = list(dict.fromkeys(free))
    if assumed:
        changed.append(f"{_list(assumed)} taken as 1: --shape or --batch says otherwise")
    return changed


@dataclass
class _Bound:
    path: Path
    symbols: dict[str, int] = field(default_factory=dict)
    changed: bool = False

    def set(self, dim: Any, extent: int) -> bool:
        """Give a dimension a number; others of its name have the same. True where the file had fixed another one."""
        name = dim.dim_param
        if name and self.symbols.setdefault(name, extent) != extent:
            raise UsageError(f"{self.path}: dimension {name} cannot be {self.symbols[name]} and {extent} at once")
        changed = not name and _fixed(dim) and dim.dim_value != extent
        self.changed = self.changed or changed
        dim.dim_value = extent
        return changed

    def everywhere(self, graph: Any) -> None:
        """Put the numbers in place of their names; where a fixed dimension was changed, shapes further on may hold no more."""
        if self.changed:
            graph.ClearField("value_info")
        for value in (*graph.value_info, *graph.output):
            if value.type.WhichOneof("value") != "tensor_type":
                continue
            if self.changed:
                value.type.tensor_type.ClearField("shape")
            for dim in value.type.tensor_type.shape.dim if value.type.tensor_type.HasField("shape") else ():
                if dim.dim_param in self.symbols:
                    dim.dim_value = self.symbols[dim.dim_param]
        for node in graph.node:
            for inner in _inner_graphs(node):
                self.everywhere(inner)


def _shaped(kind: Any) -> bool:
    return bool(kind.HasField("shape")) and all(map(_fixed, kind.shape.dim))


def _fixed(dim: Any) -> bool:
    return bool(dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0)


def _named(dim: Any) -> str:
    """The name that a model gives a dimension; onnx's inference makes some up, which say nothing."""
    return "unknown" if not dim.dim_param or dim.dim_param.startswith("unk__") else str(dim.dim_param)


def _inner_graphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _list(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _line(error: Exception) -> str:
    text = shown(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


# -- constants


def _small_external(model: Any, path: Path, reader: _Reader) -> None:
    """Take small external tensors into the model, for shape inference may want their values; say which files are missing or too short."""
    missing: list[str] = []
    short: list[str] = []
    for tensor in _tensors(model.graph):
        span = _external(tensor, path)
        if span is None:
            continue
        if not span.path.is_file():
            missing.append(str(span.path.name))
            continue
        if span.offset + span.bytes > span.path.stat().st_size:
            short.append(tensor.name)
        elif span.bytes <= SMALL:
            with span.path.open("rb") as file:
                file.seek(span.offset)
                tensor.raw_data = file.read(span.bytes)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
    if missing:
        names = tuple(dict.fromkeys(map(shown, missing)))
        reader.unknown.append(
            Unknown("external data that is missing: sizes are those the model states, copies among them are not found", names)
        )
    if short:
        reader.unknown.append(Unknown("weights that their external data is too short for", tuple(map(shown, short))))


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
        for inner in _inner_graphs(node):
            yield from _tensors(inner)


def _external(tensor: Any, path: Path) -> Span | None:
    """Where an external tensor lies (docs/ExternalData.md of onnx), None for one in the model. Raises InputError for an entry that is none."""
    if tensor.data_location != tensor.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if PLACE in entries:
        return None
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
        whole = size(_type_name(tensor.data_type), tuple(tensor.dims)) or 0
        if offset < 0 or length < 0 or not entries.get("location"):
            raise ValueError
        return Span(path.parent / entries["location"], offset, length or max(whole, 0))
    except ValueError:
        raise InputError(f"model {path}: the place of {shown(tensor.name) or 'a tensor'} in its external data is damaged") from None


def _content(tensor: Any, path: Path) -> Span | bytes | None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if PLACE in entries:
        begin, length = map(int, entries[PLACE].split())
        return Span(path, begin, length)
    if (span := _external(tensor, path)) is not None:
        return span
    bare = type(tensor)()
    bare.CopyFrom(tensor)
    bare.ClearField("name")
    bare.ClearField("doc_string")
    return bytes(bare.SerializeToString(deterministic=True))


def _type_name(number: int) -> str:
    from onnx import TensorProto

    try:
        name = str(TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"type {number}"
    return {"float": "float32", "double": "float64"}.get(name, name)


# -- the graph


class _Reader:
    """Collects a model's weights over all its graphs, and what must be said of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.assumptions: list[str] = []
        self.unknown: list[Unknown] = []
        self.places: list[int] = []
        self.moved = ""
        self._weights: list[Weight] = []
        self._foreign: Counter[str] = Counter()
        self._fused = 0
        self._sparse: list[str] = []
        self._quantizing = 0

    def graph(self, model: Any) -> Graph:
        """The main graph."""
        found, captured = self._graph(model.graph, ChainMap(), frozenset(), 0)
        if captured:
            raise InputError(f"model {self.path}: {captured[0][1]} reads {shown(captured[0][0])}, which nothing makes")
        if self._foreign:
            names = tuple(f"{shown(kind)} ({count})" for kind, count in self._foreign.most_common())
            self.unknown.append(
                Unknown("operators from another domain: their shapes are those the file states, their working is not known", names)
            )
        if self._fused:
            self.assumptions.append(f"{self._fused} DequantizeLinear of weights taken for a part of the operators that read them")
        if self._quantizing:
            self.assumptions.append(
                f"{self._quantizing} QuantizeLinear and DequantizeLinear of activations count as written; a runtime that fuses them holds less"
            )
        if self._sparse:
            self.assumptions.append(f"{len(self._sparse)} sparse weights count as stored; a runtime that unpacks them holds more")
        return Graph(
            name=found.name,
            format="onnx",
            path=self.path,
            tensors=found.tensors,
            operators=found.operators,
            inputs=found.inputs,
            outputs=found.outputs,
            weights=tuple(self._weights),
            folded=found.folded,
            weight_outputs=found.weight_outputs,
            assumptions=tuple(self.assumptions),
            unknown=tuple(self.unknown),
            moved=self.moved,
        )

    def _graph(self, proto: Any, constants: ChainMap[str, int], around: Iterable[str], depth: int) -> tuple[Graph, list[tuple[str, str]]]:
        """A graph, and (name, reader) of what it takes from around it."""
        if depth > _NESTED_MOST:
            raise InputError(f"model {self.path}: its graphs lie in one another more than {_NESTED_MOST} deep")
        scope = _Scope(self, proto, constants.new_child(), depth)
        return scope.read(around)

    def add_weight(self, weight: Weight) -> int:
        """Its number."""
        self._weights.append(weight if weight.name.isprintable() else replace(weight, name=shown(weight.name)))
        return len(self._weights) - 1

    def tensor_weight(self, tensor: Any, name: str) -> int:
        """A weight from a TensorProto."""
        kind, shape = _type_name(tensor.data_type), tuple(tensor.dims)
        if any(extent < 0 for extent in shape):
            raise InputError(f"model {self.path}: weight {shown(name)} has a negative dimension")
        bytes = size(kind, shape)
        if kind == "string":
            bytes = sum(len(text) for text in tensor.string_data)
        if bytes is None:
            self.unknown.append(Unknown(f"a weight of type {kind}, whose size is not known", (shown(name),)))
        return self.add_weight(Weight(name, kind, shape, bytes, _content(tensor, self.path), kind in FLOATING))

    def sparse_weight(self, sparse: Any, name: str) -> int:
        """A weight from a SparseTensorProto: its values and their indices."""
        kind = _type_name(sparse.values.data_type)
        parts = [size(_type_name(part.data_type), tuple(part.dims)) for part in (sparse.values, sparse.indices)]
        self._sparse.append(name)
        bytes = None if None in parts else sum(part or 0 for part in parts)
        return self.add_weight(Weight(name, kind, tuple(sparse.dims), bytes, None, False))

    def value_weight(self, name: str, kind: str, count: int, scalar: bool) -> int:
        """A weight from a Constant node's plain numbers."""
        shape = () if scalar else (count,)
        return self.add_weight(Weight(name, kind, shape, size(kind, shape) or 0, None, False))

    def not_trainable(self, number: int) -> None:
        """It is a running statistic."""
        self._weights[number] = replace(self._weights[number], trainable=False)

    def weight(self, number: int) -> Weight:
        """The weight of that number."""
        return self._weights[number]

    def count(self, node: Any, folded: bool) -> None:
        """Keep count of what must be said of operators."""
        if node.domain not in _OWN_DOMAINS:
            self._foreign[f"{node.domain}.{node.op_type}"] += 1
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            self._fused += folded
            self._quantizing += not folded


class _Scope:
    """One graph while it is read."""

    def __init__(self, reader: _Reader, proto: Any, constants: ChainMap[str, int], depth: int) -> None:
        self._reader = reader
        self._proto = proto
        self._constants = constants
        self._depth = depth
        self._types = {value.name: value.type for value in (*proto.input, *proto.value_info, *proto.output)}
        self._tensors: list[Tensor] = []
        self._numbers: dict[str, int] = {}
        self._operators: list[Operator] = []
        self._folded: list[Folded] = []
        self._captured: list[tuple[str, str]] = []
        self._names: Counter[str] = Counter()
        self._masked: dict[str, str] = {}

    def read(self, around: Iterable[str]) -> tuple[Graph, list[tuple[str, str]]]:
        """The graph; around: the names of tensors that enclosing graphs have."""
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
        made = [name for node in proto.node for name in node.output if name]
        if self._depth and (twice := [name for name, count in Counter(made).items() if count > 1]):
            raise InputError(f"model {self._reader.path}: {shown(twice[0])} is made twice")
        self._local = {*made, *(value.name for value in proto.input), *local.maps[0]}
        self._around = _Names(self._local, around)
        places = range(len(proto.node)) if self._depth else self._reader.places
        for place, node in zip(places, proto.node, strict=True):
            self._node(place, node)
        names = [tensor.name for tensor in self._tensors]
        operators, moved = ordered(self._operators, inputs, names, f"model {self._reader.path}")
        self._reader.moved = moved or self._reader.moved
        outputs = [self._numbers[value.name] for value in proto.output if value.name in self._numbers]
        for value in proto.output:
            if value.name not in self._numbers and value.name not in self._constants:
                if value.name not in self._around:
                    raise InputError(f"model {self._reader.path}: its output {shown(value.name)} is made by nothing")
                self._captured.append((value.name, "an output"))
        graph = Graph(
            name=proto.name,
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

    # -- one node

    def _node(self, place: int, node: Any) -> None:
        name = self._name(node)
        kind = shown(node.op_type if node.domain in _OWN_DOMAINS[:2] else f"{node.domain}.{node.op_type}")
        if node.op_type == "Constant" and node.domain in _OWN_DOMAINS[:2] and len(node.output) == 1:
            self._constants[node.output[0]] = self._constant(node)
            return
        bodies, taken = self._bodies(node, name)
        inputs = [text for text in node.input if text]
        if self._foldable(node, inputs, bodies):
            self._fold(place, node, name, kind, inputs)
            return
        self._reader.count(node, False)
        if node.op_type == "Dropout" and len(node.output) > 1:
            self._masked[node.output[1]] = node.output[0]  # whose shape onnx infers for no opset below 12
        weights = [self._constants[text] for text in dict.fromkeys(inputs) if text in self._constants]
        for position in _STATISTICS.get(node.op_type, ()):
            if position < len(node.input) and node.input[position] in self._constants:
                self._reader.not_trainable(self._constants[node.input[position]])
        reads = [number for text in dict.fromkeys((*inputs, *taken)) if (number := self._read(text, name)) is not None]
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
                stateful=node.op_type in _RANDOM and node.domain in _OWN_DOMAINS,
            )
        )

    def _name(self, node: Any) -> str:
        base = shown(node.name or f"{node.op_type}_{self._names[node.op_type]}")
        self._names[node.op_type] += 1
        self._names[f"name {base}"] += 1
        again = self._names[f"name {base}"]
        return base if again == 1 else f"{base}#{again}"

    def _bodies(self, node: Any, name: str) -> tuple[list[Body], list[str]]:
        """An operator's graphs, and what they take from here or further out."""
        bodies, taken = [], []
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                graph, captured = self._reader._graph(inner, self._constants, self._around, self._depth + 1)
                bodies.append(Body(f"{name}/{attribute.name}", graph, node.op_type in _REPEATED))
                taken += [text for text, _ in captured if text not in self._constants]
        return bodies, taken

    def _read(self, text: str, reader: str) -> int | None:
        """The tensor of that name, None for a constant and for what lies further out."""
        if text in self._constants:
            return None
        if text in self._local:
            return self._tensor(text, "")
        if text in self._around:
            self._captured.append((text, reader))
            return None
        raise InputError(f"model {self._reader.path}: {reader} reads {shown(text)}, which nothing makes")

    def _foldable(self, node: Any, inputs: Sequence[str], bodies: Sequence[Body]) -> bool:
        if bodies or node.domain not in _OWN_DOMAINS or node.op_type in _RANDOM or not inputs:
            return False
        return all(text in self._constants for text in inputs) and any(node.output)

    def _fold(self, place: int, node: Any, name: str, kind: str, inputs: Sequence[str]) -> None:
        fused = node.op_type == "DequantizeLinear"
        self._reader.count(node, True)
        weights = tuple(dict.fromkeys(self._constants[text] for text in inputs))
        results = []
        for text in node.output:
            if not text:
                continue
            type, shape, bytes, why = self._described(text, self._why(node))
            if bytes is None:
                self._reader.unknown.append(Unknown("results computed from constants whose size is not known", (shown(f"{text} ({why})"),)))
            if fused:  # what is held, and read, is the quantized weight
                bytes = sum(self._reader.weight(one).bytes or 0 for one in weights)
            sources = any(self._reader.weight(one).trainable for one in weights) or node.op_type == "ConstantOfShape"
            trainable = type in FLOATING and sources and not fused
            number = self._reader.add_weight(Weight(text, type, shape or (), bytes, None, trainable))
            self._constants[text] = number
            results.append(number)
        self._folded.append(Folded(name, kind, place, weights, tuple(results), fused))

    def _constant(self, node: Any) -> int:
        name = node.output[0]
        for attribute in node.attribute:
            if attribute.name == "value":
                return self._reader.tensor_weight(attribute.t, name)
            if attribute.name == "sparse_value":
                return self._reader.sparse_weight(attribute.sparse_tensor, name)
            plain = {"value_float": "f", "value_floats": "floats", "value_int": "i", "value_ints": "ints"}.get(attribute.name)
            if plain is not None:
                count = len(getattr(attribute, plain)) if plain.endswith("s") else 1
                kind = "float32" if plain.startswith("f") else "int64"
                return self._reader.value_weight(name, kind, count, not plain.endswith("s"))
            if attribute.name in ("value_string", "value_strings"):
                texts = [attribute.s] if attribute.name == "value_string" else list(attribute.strings)
                return self._reader.add_weight(Weight(name, "string", (len(texts),), sum(map(len, texts)), b"\0".join(texts)))
        raise InputError(f"model {self._reader.path}: the Constant {shown(name)} has no value")

    # -- tensors

    def _tensor(self, name: str, why: str) -> int:
        if name not in self._numbers:
            type, shape, bytes, reason = self._described(name, why)
            self._numbers[name] = len(self._tensors)
            self._tensors.append(Tensor(shown(name), type, shape, bytes, shown(reason)))
        return self._numbers[name]

    def _described(self, name: str, why: str) -> tuple[str, tuple[int, ...] | None, int | None, str]:
        """A tensor's type, shape, bytes, and why there are none."""
        if name in self._masked and not (name in self._types and self._types[name].tensor_type.HasField("shape")):
            type, shape, bytes, why = self._described(self._masked[name], why)
            return "bool", shape, size("bool", shape) if shape is not None else bytes, why
        known = self._types.get(name)
        case = known.WhichOneof("value") if known is not None else None
        if case not in (None, "tensor_type", "sparse_tensor_type"):
            return str(case).removesuffix("_type"), None, None, f"a {str(case).removesuffix('_type')} has no fixed size"
        if known is None or case is None:
            return "unknown", None, None, why or "its shape cannot be inferred"
        kind = getattr(known, case)
        type = _type_name(kind.elem_type)
        if not kind.HasField("shape"):
            return type, None, None, why or "its shape cannot be inferred"
        if not all(_fixed(dim) for dim in kind.shape.dim):
            symbols = ", ".join(str(dim.dim_value) if _fixed(dim) else _named(dim) for dim in kind.shape.dim)
            return type, None, None, f"its shape ({symbols}) depends on data"
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        bytes = size(type, shape)
        return type, shape, bytes, "" if bytes is not None else f"a {type} has no known size"

    def _why(self, node: Any) -> str:
        if node.domain not in _OWN_DOMAINS:
            return f"{node.domain}.{node.op_type} is from another domain, and the file does not state its shape"
        return f"the shape of {node.op_type}'s result cannot be inferred"

    def _overwrites(self, node: Any, inputs: Sequence[str], writes: Sequence[int]) -> tuple[int, int] | None:
        if node.op_type not in _IN_PLACE or node.domain not in _OWN_DOMAINS or not writes:
            return None
        target = self._tensors[writes[0]]
        for text in inputs:
            number = self._numbers.get(text)
            if number is not None and target.bytes and self._tensors[number].bytes == target.bytes:
                return number, writes[0]
        return None

    # -- work

    def _work(self, node: Any, writes: Sequence[int]) -> int | None:
        """Multiply-adds of the operators that have most of them; one a result's element for all others; None where a shape is not known."""
        if not writes or node.domain not in _OWN_DOMAINS:
            return None
        out = self._tensors[writes[0]].shape
        shapes = [self._shape(text) for text in node.input]
        if out is None:
            return None
        each: int | None = 1
        if node.op_type in ("Conv", "ConvInteger", "QLinearConv"):
            kernel = shapes[3 if node.op_type == "QLinearConv" else 1] if len(shapes) > 1 else None
            each = math.prod(kernel[1:]) if kernel else None
        elif node.op_type == "ConvTranspose" and len(shapes) > 1:
            source, kernel = shapes[0], shapes[1]
            return math.prod(source) * math.prod(kernel[1:]) if source is not None and kernel else None
        elif node.op_type in ("MatMul", "MatMulInteger", "Gemm"):
            transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
            source = shapes[0] if shapes else None
            each = (source[0] if transposed else source[-1]) if source else None
        elif node.op_type in ("MaxPool", "AveragePool"):
            window = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "kernel_shape"), [1])
            each = max(math.prod(window), 1)
        return None if each is None else math.prod(out) * each

    def _shape(self, name: str) -> tuple[int, ...] | None:
        if name in self._constants:
            return self._reader.weight(self._constants[name]).shape
        number = self._numbers.get(name)
        return self._tensors[number].shape if number is not None else None


class _Names:
    """Names here or further out, without copying them for each graph inside another."""

    def __init__(self, here: MutableMapping[str, Any] | set[str], around: Iterable[str]) -> None:
        self._here, self._further = here, around

    def __contains__(self, name: object) -> bool:
        return name in self._here or name in self._further  # type: ignore[operator]

    def __iter__(self) -> Iterator[str]:
        yield from self._here
        yield from self._further
