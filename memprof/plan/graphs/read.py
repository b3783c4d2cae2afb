"""A graph from a model file of either format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...base.errors import InputError, UsageError, os_reason
from ...base.pairs import by_name
from ...models import MOST_EXTENT, check_extents, tflite_file
from .graph import Graph, check_size


def given_shapes(shapes: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`NAME=1,3,224,224` for each tensor that is named. Raises UsageError."""
    given = []
    for text in shapes:
        name, separator, extents = text.rpartition("=")
        try:
            shape = tuple(int(extent) for extent in extents.replace("x", ",").split(",")) if extents else ()
        except ValueError:
            shape = (-1,)
        if not separator or not name or any(extent < 0 for extent in shape):
            raise UsageError(f"{text!r} is not a shape: write NAME=1,3,224,224")
        given.append((name, shape))
    return by_name(given, "--shape")


def check_installed(path: Path) -> None:
    """Raises InputError if the package that reads a file of this name is not installed."""
    if path.suffix == ".onnx":
        from . import onnx_proto

        onnx_proto.package()
    elif path.suffix in (".tflite", ".circle"):
        from . import tflite_graph

        tflite_graph.operator_names()


def read(path: Path, shapes: dict[str, tuple[int, ...]] | None = None, batch: int | None = None, inline: bool = True) -> Graph:
    """The graph of an ONNX, TFLite or circle file.

    shapes: of inputs, or of tensors inside whose shape cannot be inferred, by name. batch: the first dimension of every input. inline: put the
    bodies of ONNX's local functions in place of their calls; the operators are then not those of the file.

    Raises InputError for a file that is missing, torn or no model, UsageError for another format or a shape that cannot be meant.
    """
    if batch is not None and batch < 1:
        raise UsageError("a batch is at least 1")
    try:
        if path.is_dir():
            raise InputError(f"{path}: a folder has no graph to plan; give the .onnx, .tflite or .circle file")
        if path.exists() and not path.is_file():
            raise InputError(f"model {path}: it is not a file")  # reading from a pipe would wait for ever
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    if not head:
        raise InputError(f"model {path}: the file is empty")
    if path.suffix in (".tflite", ".circle") or head[4:8] in (b"TFL3", b"CIR0"):
        from . import tflite_graph

        _check_extents(shapes or {}, batch, tflite_file.MOST_EXTENT)
        graph = tflite_graph.read(path, shapes or {}, batch)
    elif path.suffix == ".onnx":
        from . import onnx_graph

        _check_extents(shapes or {}, batch, MOST_EXTENT)
        graph = onnx_graph.read(path, shapes or {}, batch, inline)
    else:
        raise UsageError(f"{path}: a graph is read from .onnx, .tflite and .circle files")
    check_size(graph)
    return graph


def _check_extents(shapes: Mapping[str, tuple[int, ...]], batch: int | None, most: int) -> None:
    """Raises UsageError for an extent that the format has no room for."""
    for name, shape in shapes.items():
        check_extents(name, shape, most)
    if batch is not None and batch > most:
        raise UsageError(f"a batch is at most {most}")
