"""Shapes of an ONNX graph's tensors: stated in the file, inferred by onnx, or computed from constants."""

from __future__ import annotations

import hashlib
import math
import time
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ...base.errors import UsageError
from ...base.units import counted, listed
from ...models import MOST_DIMENSIONS
from ...models.skeleton import SMALL
from .graph import Remarks, Unknown, check_names, shown, words
from .isolated_onnx import Apart, Bounded, ModelRefusal
from .onnx_proto import OWN_DOMAINS, RANDOM, first_line, inner_graphs

# Operators that shapes are computed with. Their results are about as large as their inputs, but for those that `_bounded` checks first.
_SHAPE_ARITHMETIC = words(
    "Abs Add And Cast Ceil Clip Concat ConstantOfShape CumSum Div Equal Expand Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual "
    "Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements ScatterND "
    "Sign Slice Sqrt Squeeze Sub Tile Transpose Unsqueeze Where"
)
_FEW = 1024
# Shapes that are computed lead to further ones, in so many rounds.
_ROUNDS = 6
# The limits on computing them, for a whole model; a node takes a millisecond, whatever it works on.
_MOST_S, _MOST_BYTES = 10.0, 16 << 20


def inferred(model: Any, shapes: Mapping[str, tuple[int, ...]], remarks: Remarks, apart: Apart) -> Any:
    """The model with the shapes of its tensors. shapes: of inputs, which `bind` has set, and of tensors inside, by name. Raises UsageError for
    the shape of a value that is not a tensor."""
    inner_shapes = {name: shape for name, shape in shapes.items() if name not in {value.name for value in model.graph.input}}
    result = _infer(model, remarks, apart)
    for name, shape in inner_shapes.items():
        _set_shape(result.graph, name, shape)
    states = _loop_states(result.graph)
    if states:
        remarks.assumptions.append(f"states of loops ({states}) have the shape that a round gives them")
    if inner_shapes or states:
        result = _infer(result, remarks, apart)
    means = _Means(_opset(model))
    for _ in range(_ROUNDS):
        before = _unshaped(result.graph)
        if not before:
            break
        computed = type(result)()
        computed.CopyFrom(result)
        if not _compute(computed.graph, ChainMap(), means):
            break
        computed = _infer(computed, remarks, apart)
        _restore(result.graph, computed.graph)
        result = computed
        if _unshaped(result.graph) == before:
            break
    if means.spent:
        remarks.unknown.append(Unknown("shapes that depend on more computing than was done: they are not known", ()))
    return result


class _Means(Struct):
    """The time and bytes that may still be spent on computing values. spent: they ran out, and some values were not computed."""

    opset: int
    until: float = field(default_factory=lambda: time.monotonic() + _MOST_S)
    bytes: int = _MOST_BYTES
    spent: bool = False

    def suffice(self) -> bool:
        """Whether another value may be computed."""
        self.spent = self.spent or self.bytes < 0 or time.monotonic() > self.until
        return not self.spent


def _loop_states(graph: Any) -> int:
    """Give the states that a Loop carries the shapes of its body's results; how many were given. onnx does not infer them, because a round
    could change them."""
    declared = _declared(graph)
    count = 0
    for node in graph.node:
        for inner in inner_graphs(node):
            count += _loop_states(inner)
            if node.op_type != "Loop":
                continue
            states = zip(node.output[: len(node.input) - 2], inner.output[1:], strict=False)
            for target, source in _types(graph, declared, states):
                if not target.HasField("shape"):
                    target.CopyFrom(source)
                    count += 1
    return count


def _declared(graph: Any) -> dict[str, Any]:
    """The values whose types a graph states, but for its inputs."""
    return {value.name: value for value in (*graph.value_info, *graph.output)}


def _types(graph: Any, declared: Mapping[str, Any], results: Iterable[tuple[str, Any]]) -> Iterator[tuple[Any, Any]]:
    """The type of each named tensor, made where the graph lacks it, with the type of its result, where that has a known shape."""
    for name, result in results:
        source = result.type.tensor_type
        if name and _shaped(source):
            value = declared[name] if name in declared else graph.value_info.add(name=name)
            yield value.type.tensor_type, source


def _opset(model: Any) -> int:
    return max((opset.version for opset in model.opset_import if opset.domain in OWN_DOMAINS[:2]), default=1)


def _unshaped(graph: Any) -> int:
    """How many results of nodes have no shape in numbers, graphs inside included."""
    known = {value.name for value in (*graph.value_info, *graph.output) if _shaped(value.type.tensor_type)}
    count = sum(name not in known for node in graph.node for name in node.output if name and node.op_type != "Constant")
    return count + sum(_unshaped(inner) for node in graph.node for inner in inner_graphs(node))


def _compute(graph: Any, values: ChainMap[str, Any], means: _Means, around: ChainMap[str, list[int]] | None = None) -> int:
    """Put a Constant in place of each node whose small result follows from constants and known shapes; how many were computed.

    onnx's inference follows values only through a few operators. It has no shape for a Pad or a Reshape behind others.
    """
    from onnx import helper, numpy_helper

    known = values.new_child()
    dims = (around or ChainMap()).new_child(
        {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.value_info)
            if _shaped(value.type.tensor_type)
        }
    )
    for tensor in graph.initializer:
        known[tensor.name] = _array(tensor)
    count = 0
    for node in graph.node:
        for inner in inner_graphs(node):
            count += _compute(inner, known, means, dims)
        if node.op_type == "If" and node.input and known.get(node.input[0]) is not None:
            count += _decide(graph, node, bool(known[node.input[0]].reshape(-1)[0]))
        elif node.op_type == "Loop" and (rounds := _rounds(node, known, means)) is not None:
            count += _stack(graph, node, rounds)
        if len(node.output) != 1 or node.domain not in OWN_DOMAINS[:2] or node.op_type in RANDOM:
            continue
        result = _value_of(node, known, dims, means)
        known[node.output[0]] = result
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
    """Give the outputs that a Loop collects a row for each round; how many shapes were new."""
    states = len(node.input) - 2
    collected = []
    for name, row in zip(node.output[states:], _graph_of(node, "body").output[1 + states :], strict=False):
        if _shaped(row.type.tensor_type):
            collection = type(row).FromString(row.SerializeToString())
            _set_dims(collection.type.tensor_type, [rounds, *(dim.dim_value for dim in row.type.tensor_type.shape.dim)])
            collected.append((name, collection))
    return _state(graph, collected)


def _state(graph: Any, results: Iterable[tuple[str, Any]]) -> int:
    """Give tensors the shapes of their results where those are known; how many were new."""
    count = 0
    for target, source in _types(graph, _declared(graph), results):
        if target != source:
            target.CopyFrom(source)
            count += 1
    return count


def _graph_of(node: Any, name: str) -> Any:
    return next((attribute.g for attribute in node.attribute if attribute.name == name), None)


def _rounds(node: Any, values: ChainMap[str, Any], means: _Means) -> int | None:
    """How many rounds a Loop makes where constants fix it, and its body's condition does not end it before."""
    body = _graph_of(node, "body")
    trips = values.get(node.input[0]) if len(node.input) > 1 else None
    if trips is None or trips.dtype.name != "int64" or not trips.size or body is None or len(body.input) < 2 or not body.output:
        return None
    if node.input[1]:  # without it the body's condition has no effect
        begins = values.get(node.input[1])
        if begins is None or not begins.all() or not _goes_on(body, values, means):
            return None
    return max(int(trips.reshape(-1)[0]), 0)


def _goes_on(body: Any, values: ChainMap[str, Any], means: _Means) -> bool:
    """Whether a Loop's body hands its condition on as it is, or returns a constant true."""
    copies = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity" and node.input and node.output}
    constants = {tensor.name: _array(tensor) for tensor in body.initializer}
    constants |= {node.output[0]: _value_of(node, values, {}, means) for node in body.node if node.op_type == "Constant" and node.output}
    name = body.output[0].name
    while name in copies:
        name = copies.pop(name)
    condition = constants.get(name, values.get(name))
    return name == body.input[1].name or (condition is not None and bool(condition.all()))


def _value_of(node: Any, values: ChainMap[str, Any], dims: Mapping[str, Sequence[int]], means: _Means) -> Any:
    """The small result of a node, None where it is not known or not small."""
    import numpy as np

    if node.op_type == "Constant":
        tensor = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
        if tensor is not None:
            return _array(tensor)
    elif node.op_type in ("Shape", "Size") and node.input and node.input[0] in dims and not node.attribute:
        shape = dims[node.input[0]]
        count = math.prod(shape[:MOST_DIMENSIONS])
        if len(shape) > MOST_DIMENSIONS or count >> 63:
            return None
        return np.array(shape if node.op_type == "Shape" else count, np.int64)
    if node.op_type not in _SHAPE_ARITHMETIC or any(values.get(name) is None for name in node.input if name):
        return None
    if not _bounded(node, [values[name] for name in node.input if name]):
        return None
    feed = {name: values[name] for name in node.input if name}
    key = hashlib.sha256(repr((node.SerializeToString(), [(array.tobytes(), array.shape) for array in feed.values()])).encode()).digest()
    if key not in _RESULTS:
        if not means.suffice():
            return None
        if len(_RESULTS) >= _REMEMBERED:
            _RESULTS.clear()
        _RESULTS[key] = _evaluated(node, feed, means.opset)
    result = _RESULTS[key]
    means.bytes -= 0 if result is None else int(result.nbytes)
    return result


# A round asks again for the results of earlier rounds, and making an evaluator takes a millisecond.
_RESULTS: dict[bytes, Any] = {}
_REMEMBERED = 10_000


def _evaluated(node: Any, feed: dict[str, Any], opset: int) -> Any:
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            (result,) = ReferenceEvaluator(node, opsets={"": opset}).run(None, feed)
        array = np.asarray(result)
        return array if array.nbytes <= SMALL and array.dtype.kind in "biuf" else None
    except Exception:  # an operator's reference may raise anything; the result is then not known
        return None


def _bounded(node: Any, arrays: Sequence[Any]) -> bool:
    """Whether a node's result is small because its inputs are; damaged models ask for terabytes."""
    if any(array.size > _FEW for array in arrays):
        return False
    if node.op_type == "Range" and len(arrays) == 3:
        start, limit, step = (float(array.reshape(-1)[0]) if array.size else 0.0 for array in arrays)
        return step != 0 and abs((limit - start) / step) <= _FEW
    if node.op_type in ("ConstantOfShape", "Expand", "Tile") and arrays:
        extents = [abs(int(extent)) for extent in arrays[-1].reshape(-1)]
        return math.prod(extents) * max(int(array.size) for array in arrays[:-1] or arrays) <= _FEW * _FEW
    return True


def _array(tensor: Any) -> Any:
    from onnx import numpy_helper

    if tensor.external_data or math.prod(tensor.dims) > SMALL or tensor.data_type == tensor.STRING:
        return None
    try:
        return numpy_helper.to_array(tensor)
    except Exception:  # a damaged tensor, which is reported elsewhere
        return None


def _restore(original: Any, known: Any) -> None:
    """Put the computed nodes back; the shapes inferred from their values stay."""
    for node, changed_node in zip(original.node, known.node, strict=True):
        if node.op_type != changed_node.op_type:
            changed_node.CopyFrom(node)
            continue
        for inner, changed in zip(inner_graphs(node), inner_graphs(changed_node), strict=True):
            _restore(inner, changed)


def _infer(model: Any, remarks: Remarks, apart: Apart) -> Any:
    """The model with the shapes that onnx infers.

    Values are followed too (onnx calls it data propagation), where that stays within its bounds: for any tensor of one dimension, onnx makes a list
    of as many unknown values as it has elements.
    """
    try:
        try:
            return apart.run("values", model)
        except Bounded:
            return apart.run("shapes", model)
    except (ModelRefusal, Bounded) as error:
        why = Unknown(f"shape inference gave up, so only shapes that the file states are known ({first_line(error)})", ())
        if why not in remarks.unknown:
            remarks.unknown.append(why)
        return model


def _set_shape(graph: Any, name: str, shape: Sequence[int]) -> None:
    declared = next((value for value in (*graph.value_info, *graph.output) if value.name == name), None)
    value = declared if declared is not None else graph.value_info.add(name=name)
    if value.type.WhichOneof("value") not in (None, "tensor_type"):
        raise UsageError(f"{name} is not a tensor, so it has no shape")
    _set_dims(value.type.tensor_type, shape)


def _set_dims(tensor_type: Any, shape: Sequence[int]) -> None:
    tensor_type.shape.ClearField("dim")
    tensor_type.shape.SetInParent()
    for extent in shape:
        tensor_type.shape.dim.add().dim_value = extent


def bind(model: Any, shapes: Mapping[str, tuple[int, ...]], batch: int | None, path: Path) -> list[str]:
    """Give every dimension of every input a number. Returns the assumptions made. Raises UsageError for a shape that does not fit."""
    graph = model.graph
    constant = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    inputs = [value for value in graph.input if value.name not in constant]
    check_names(shapes, [*(value.name for value in inputs), *(name for node in graph.node for name in node.output if name)], path)
    _forget_placeholders(graph)
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
            raise UsageError(f"{path}: input {value.name} has {counted(len(dims), 'dimension')}, and the shape given has {len(wanted)}")
        if wanted is None and batch is not None and dims:
            wanted = (batch,)
        for axis, (dim, size) in enumerate(zip(dims, wanted or (), strict=False)):  # a batch is the first alone
            before = dim.dim_value
            if bound.set(dim, size):
                changed.append(
                    f"dimension {axis} of {value.name}, {before} in the file, is taken as {size}; ONNX Runtime does not run it so"
                )
    free: list[str] = []
    for value in inputs:
        for dim in value.type.tensor_type.shape.dim if value.type.WhichOneof("value") == "tensor_type" else ():
            if not fixed(dim):
                if dim.dim_param not in bound.symbols:
                    free.append(shown(dim.dim_param) or f"a nameless dimension of {value.name}")
                bound.set(dim, bound.symbols.get(dim.dim_param, 1))
    bound.everywhere(graph)
    assumed = list(dict.fromkeys(free))
    if assumed:
        changed.append(f"{listed(assumed, 6)} taken as 1: --shape or --batch says otherwise")
    return changed


def _forget_placeholders(graph: Any) -> None:
    """Clear the names of dimensions that are none. Some exporters call every open dimension `?`, though they differ."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.WhichOneof("value") == "tensor_type":
            for dim in value.type.tensor_type.shape.dim if value.type.tensor_type.HasField("shape") else ():
                if dim.WhichOneof("value") == "dim_param" and dim.dim_param.strip() in ("", "?"):
                    dim.ClearField("dim_param")
    for node in graph.node:
        for inner in inner_graphs(node):
            _forget_placeholders(inner)


class _Bound(Struct):
    path: Path
    symbols: dict[str, int] = field(default_factory=dict)
    changed: bool = False

    def set(self, dim: Any, extent: int) -> bool:
        """Give all dimensions of one name a number. True where the file had fixed another number."""
        name = dim.dim_param
        if name and self.symbols.setdefault(name, extent) != extent:
            raise UsageError(f"{self.path}: dimension {name} cannot be {self.symbols[name]} and {extent} at once")
        changed = not name and fixed(dim) and dim.dim_value != extent
        self.changed = self.changed or changed
        dim.dim_value = extent
        return changed

    def everywhere(self, graph: Any) -> None:
        """Put the numbers in place of their names. Where a fixed dimension was changed, the shapes stated further on no longer hold and go."""
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
            for inner in inner_graphs(node):
                self.everywhere(inner)


def _shaped(kind: Any) -> bool:
    return bool(kind.HasField("shape")) and all(map(fixed, kind.shape.dim))


def fixed(dim: Any) -> bool:
    """Whether a dimension has a number."""
    return bool(dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0)


def named(dim: Any) -> str:
    """The name that a model gives a dimension, `unknown` for those that onnx's inference makes up."""
    return "unknown" if not dim.dim_param or dim.dim_param.startswith("unk__") else str(dim.dim_param)
