"""A model's file with its operators in another order and everything else as it was, byte for byte.

ONNX: the node fields of the graph change places; each node's own bytes stay (protobuf keeps repeated fields in the order of the file, wherever
they lie). A node that reads constants alone goes directly before the first operator that needs it. TFLite: the elements of the vector of operators
change places, each an offset from its place to a table that stays where it is (flatbuffers.dev/internals).
"""

from __future__ import annotations

import mmap
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ...base.errors import InputError, UsageError, os_reason
from ...base.files import FORCE, Torn, check_new, mapped, replacing
from ...base.protobuf import BYTES, fields, opening
from ...models import companion_files, flatbuffer, tflite_file
from ...models.identity import files_of
from . import onnx_proto
from .graph import Graph


def reorder(graph: Graph, order: Sequence[int], target: Path, overwrite: bool = False) -> tuple[Path, ...]:
    """Write a graph's file with its operators in that order, numbers of the graph's operators, and return the files written.

    External data is copied where the target lies in another folder; beside the model it names the same files. Raises UsageError for a
    target of another format, InputError where it exists (without overwrite) or cannot be written.
    """
    source = graph.path
    if target.suffix != source.suffix:
        raise UsageError(f"{target}: the order of a {source.suffix} file is written to a {source.suffix} file")
    if target.exists() and target.samefile(source):
        raise InputError(f"{target} is the model itself; -o names another file")
    check_new(target, instead=FORCE, overwrite=overwrite)
    places = [graph.operators[number].place for number in order]
    try:
        copied = _external(source, target, overwrite) if graph.format == "onnx" else []
        with mapped(source) as data, replacing(target) as (out,):
            if graph.format == "onnx":
                _onnx(data, places, source, out)
            else:
                _tflite(data, places, source, out)
    except OSError as error:
        raise InputError(f"cannot write {target}: {os_reason(error)}") from None
    except Torn:
        raise InputError(f"model {source}: it changed while it was read") from None
    return target, *copied


def _external(source: Path, target: Path, overwrite: bool) -> list[Path]:
    """The copies of external data that a target in another folder needs, written."""
    folder = companion_files.place(source).parent
    if folder == target.parent.resolve():
        return []
    copies = {file: target.parent / file.relative_to(folder) for file in files_of(source)[1:]}
    for copy in copies.values():
        copy.parent.mkdir(parents=True, exist_ok=True)
    check_new(*copies.values(), instead=FORCE, overwrite=overwrite)
    for file, copy in copies.items():
        with file.open("rb") as reading, replacing(copy) as (writing,):
            shutil.copyfileobj(reading, writing, 1 << 20)
    return list(copies.values())


# -- ONNX: ModelProto 7 graph, GraphProto 1 node


def _onnx(data: mmap.mmap, places: Sequence[int], path: Path, out: BinaryIO) -> None:
    graphs = [part for part in fields(data, 0, len(data)) if part.number == 7 and part.wire == BYTES]
    if len(graphs) != 1:
        raise InputError(f"model {path}: its graph is written in {len(graphs)} parts, which cannot be put in another order")
    graph = graphs[0]
    inside = list(fields(data, graph.begin, graph.end))
    nodes = [part for part in inside if part.number == 1 and part.wire == BYTES]
    ordered = iter(_whole_order(onnx_proto.load(path).graph, places))
    with memoryview(data) as view:  # written without a copy in memory
        out.write(view[: graph.start])
        out.write(opening(7, graph.end - graph.begin))
        for part in inside:
            moved = nodes[next(ordered)] if part.number == 1 and part.wire == BYTES else part
            out.write(view[moved.start : moved.end])
        out.write(view[graph.end :])


def _whole_order(proto: Any, places: Sequence[int]) -> list[int]:
    """All nodes: those of the plan in its order, each other node (a constant, or computed from constants) directly before its first reader."""
    maker = {name: number for number, node in enumerate(proto.node) for name in node.output if name}
    waits = [sorted({maker[name] for name in onnx_proto.names_read(node) if name in maker}) for node in proto.node]
    planned = set(places)
    order: list[int] = []
    done: set[int] = set()
    for place in places:
        waiting = [place]
        while waiting:
            at = waiting[-1]
            before = [source for source in waits[at] if source not in done and source != at]
            if before and at not in done:
                if any(source in planned for source in before):
                    raise UsageError("this order puts an operator before another whose result it needs")
                waiting += before
                continue
            waiting.pop()
            if at not in done:
                done.add(at)
                order.append(at)
    # Nodes that nothing in the plan needs, constants that are outputs or dead, stay in the file's order among themselves.
    order += [number for number in range(len(proto.node)) if number not in done]
    return order


# -- TFLite

# control_edges.h: the name under which a converter stores which operators must follow which, by their numbers in the file.
_CONTROL_EDGES = "model_control_dependencies"


def _tflite(data: mmap.mmap, places: Sequence[int], path: Path, out: BinaryIO) -> None:
    flat = flatbuffer.Flat(data)
    if any(flat.text(metadata, 0) == _CONTROL_EDGES for metadata in flat.tables(flat.root(), tflite_file.MODEL_METADATA)):
        raise UsageError(f"{path}: it numbers its operators in {_CONTROL_EDGES}, so their order cannot be changed")
    main = flat.tables(flat.root(), tflite_file.MODEL_SUBGRAPHS)[0]
    begin, count = flat.vector(main, tflite_file.GRAPH_OPERATORS, 4)
    tables = flat.tables(main, tflite_file.GRAPH_OPERATORS)
    planned = set(places)
    # Operators that are computed once at load keep their places before all others.
    order = [*(number for number in range(count) if number not in planned), *places]
    content = b"".join(struct.pack("<I", tables[number] - (begin + 4 * slot)) for slot, number in enumerate(order))
    with memoryview(data) as view:
        out.write(view[:begin])
        out.write(content)
        out.write(view[begin + 4 * count :])
