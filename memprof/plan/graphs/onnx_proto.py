"""An ONNX file as onnx's messages: loaded, inlined, with its external data where that is small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...base import terminal_text
from ...base.errors import InputError, os_reason
from ...models.onnx_file import external_file
from ...models.skeleton import PLACE, SMALL, skeleton
from ..orders.topological import topological
from .graph import Remarks, Span, Unknown, check_count, shown, size
from .isolated_onnx import Apart, Bounded, ModelRefusal

OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")
RANDOM = frozenset(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"))


def load(path: Path) -> Any:
    """The model as onnx's ModelProto without the values of large tensors. Raises InputError."""
    onnx = package()
    content = skeleton(path)
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception:  # protobuf's DecodeError, whose package has no types
        raise InputError(f"model {path}: this is not an ONNX model, or not a complete one") from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise InputError(f"model {path}: there is no graph in it")
    graphs = [model.graph, *model.functions]
    check_count(sum(len(graph.node) for graph in graphs), path)
    if not all(isinstance(text, str) for graph in graphs for text in _texts(graph)):
        # protobuf's package gives bytes for a string of proto2 that is not UTF-8.
        raise InputError(f"model {path}: a name in it is not UTF-8")
    return model


def _texts(graph: Any) -> Iterator[object]:
    """All names in a graph or a function."""
    yield graph.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output, *(attribute.name for attribute in node.attribute))
        for inner in inner_graphs(node):
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


def package() -> Any:
    """The package onnx. Raises InputError if it, or what it imports, is not installed."""
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise InputError(f"reading an ONNX graph needs {error.name}, not installed here: pip install 'ml-memprof[plan]'") from None
    return onnx


def inlined(model: Any, path: Path, apart: Apart) -> Any:
    """The model with the bodies of its local functions in place of their calls. Raises InputError."""
    try:
        return apart.run("inline", model)
    except (ModelRefusal, Bounded) as error:
        raise InputError(f"model {path}: its local functions cannot be put in place: {first_line(error)}") from None


def in_order(graph: Any) -> list[int]:
    """Put the nodes of a graph behind those whose results they read, for shapes are inferred in that order. Returns their places in the file."""
    maker = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    waits = [{maker[name] for name in names_read(node) if name in maker} for node in graph.node]
    places = topological(waits)
    places += sorted({*range(len(waits))}.difference(places))  # a cycle is reported later, by its operators' names
    if places != list(range(len(places))):
        nodes = [type(node).FromString(node.SerializeToString()) for node in graph.node]
        graph.ClearField("node")
        graph.node.extend(nodes[place] for place in places)
    return places


def names_read(node: Any) -> set[str]:
    """The names that a node reads, and those that its graphs take from around them."""
    names = {name for name in node.input if name}
    for inner in inner_graphs(node):
        names_inside = {value.name for value in inner.output}.union(*map(names_read, inner.node))
        names |= names_inside - {
            *(value.name for value in inner.input),
            *(tensor.name for tensor in inner.initializer),
            *(sparse.values.name for sparse in inner.sparse_initializer),
            *(name for inner_node in inner.node for name in inner_node.output),
        }
    return names


def inner_graphs(node: Any) -> Iterator[Any]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def first_line(error: Exception) -> str:
    """An exception's words on one line, at most 200 characters."""
    text = shown(" ".join(str(error).split())) or type(error).__name__
    return terminal_text.shortened(text, 200)


def small_external(model: Any, path: Path, remarks: Remarks) -> None:
    """Take small external tensors into the model, for shape inference may want their values. Files that are missing or too short are remarked."""
    missing: list[str] = []
    short: list[str] = []
    for tensor in _tensors(model.graph):
        span = _external(tensor, path)
        if span is None:
            continue
        try:
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
        except OSError as error:
            raise InputError(f"model {path}: its external data {shown(span.path.name)}: {os_reason(error)}") from None
    if missing:
        names = tuple(dict.fromkeys(map(shown, missing)))
        remarks.unknown.append(
            Unknown("external data that is missing: sizes are those the model states, copies among them are not found", names)
        )
    if short:
        remarks.unknown.append(Unknown("weights that their external data is too short for", tuple(map(shown, short))))


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in inner_graphs(node):
            yield from _tensors(inner)


def _external(tensor: Any, path: Path) -> Span | None:
    """The place of an external tensor (docs/ExternalData.md of onnx), None for one in the model. Raises InputError for a damaged entry."""
    if tensor.data_location != tensor.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if PLACE in entries:
        return None
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
        full = size(type_name(tensor.data_type), tuple(tensor.dims)) or 0
        if offset < 0 or length < 0 or not entries.get("location"):
            raise ValueError
        return Span(external_file(path, entries["location"]), offset, length or max(full, 0))
    except ValueError:
        raise InputError(f"model {path}: the place of {shown(tensor.name) or 'a tensor'} in its external data is damaged") from None


def content(tensor: Any, path: Path) -> Span | bytes:
    """The place of a tensor's values; for small tensors the values themselves, with type and shape. Raises InputError for a damaged entry."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if PLACE in entries:
        begin, length = (int(word) if word.isdecimal() else -1 for word in (*entries[PLACE].split(), "", "")[:2])
        if min(begin, length) < 0:  # the file itself has an entry of this name
            raise InputError(f"model {path}: the place of {shown(tensor.name) or 'a tensor'} in it is damaged")
        return Span(path, begin, length)
    if (span := _external(tensor, path)) is not None:
        return span
    unnamed = type(tensor)()
    unnamed.CopyFrom(tensor)
    unnamed.ClearField("name")
    unnamed.ClearField("doc_string")
    return bytes(unnamed.SerializeToString(deterministic=True))


def type_name(number: int) -> str:
    """The name of an element type (onnx.proto3, TensorProto.DataType), in numpy's spelling."""
    from onnx import TensorProto

    try:
        name = str(TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"type {number}"
    return {"float": "float32", "double": "float64"}.get(name, name)
