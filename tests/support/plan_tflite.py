"""TFLite files for the tests of planning, written with the schema's own classes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flatbuffers

schema: Any = importlib.import_module("ai_edge_litert.schema_py_generated")


def table(kind: str, **fields: Any) -> Any:
    table = getattr(schema, kind)()
    for name, value in fields.items():
        setattr(table, name, value)
    return table


def tensor(name: str, shape: Sequence[int], buffer: int = 0, kind: str = "FLOAT32", **rest: Any) -> Any:
    return table("TensorT", name=name, shape=list(shape), type=getattr(schema.TensorType, kind), buffer=buffer, hasRank=True, **rest)


def operator(code: int, inputs: Sequence[int], outputs: Sequence[int], options: Any = None) -> Any:
    kind = type(options).__name__.removesuffix("T")
    return table(
        "OperatorT",
        opcodeIndex=code,
        inputs=list(inputs),
        outputs=list(outputs),
        builtinOptionsType=getattr(schema.BuiltinOptions, kind) if options is not None else 0,
        builtinOptions=options,
    )


def subgraph(name: str, tensors: Sequence[Any], inputs: Sequence[int], outputs: Sequence[int], operators: Sequence[Any]) -> Any:
    return table("SubGraphT", name=name, tensors=list(tensors), inputs=list(inputs), outputs=list(outputs), operators=list(operators))


def write(
    path: Path,
    codes: Sequence[str],
    graphs: Sequence[Any],
    buffers: Sequence[bytes] = (),
    metadata: Sequence[str] = (),
    outside: tuple[int, int] | None = None,
    signature: tuple[Mapping[str, int], Mapping[str, int]] | None = None,
) -> Path:
    """A file. outside: the offset and the size of one more buffer, whose bytes lie behind the flatbuffer. signature: the names of inputs and of
    outputs in it, each with its tensor's number."""
    made = [table("OperatorCodeT", builtinCode=getattr(schema.BuiltinOperator, name, 32), version=1) for name in codes]
    for code, name in zip(made, codes, strict=True):
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        if not hasattr(schema.BuiltinOperator, name):
            code.customCode = name
    data = [table("BufferT"), *(table("BufferT", data=list(content)) for content in buffers)]
    data += [table("BufferT", offset=outside[0], size=outside[1])] if outside else []
    model = table("ModelT", version=3, operatorCodes=made, subgraphs=list(graphs), buffers=data, description="")
    model.metadata = [table("MetadataT", name=name, buffer=0) for name in metadata]
    if signature is not None:
        maps = [[table("TensorMapT", name=name, tensorIndex=index) for name, index in names.items()] for names in signature]
        model.signatureDefs = [table("SignatureDefT", inputs=maps[0], outputs=maps[1], signatureKey="serving_default", subgraphIndex=0)]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def control_flow(path: Path) -> Path:
    """A WHILE that adds 1 to a vector of 25 until a counter is reached, and an IF that chooses between it and its negation."""
    main = subgraph(
        "main",
        [
            tensor("n", [], kind="INT32"),
            tensor("x", [25]),
            tensor("n_out", [], kind="INT32"),
            tensor("x_out", [25]),
            tensor("c", [], kind="BOOL"),
            tensor("y", [25]),
        ],
        [0, 1, 4],
        [5],
        [
            operator(0, [0, 1], [2, 3], table("WhileOptionsT", condSubgraphIndex=1, bodySubgraphIndex=2)),
            operator(1, [4, 3], [5], table("IfOptionsT", thenSubgraphIndex=3, elseSubgraphIndex=4)),
        ],
    )
    less = subgraph(
        "less",
        [tensor("i", [], kind="INT32"), tensor("v", [25]), tensor("ten", [], 1, kind="INT32"), tensor("go", [], kind="BOOL")],
        [0, 1],
        [3],
        [operator(2, [0, 2], [3], table("LessOptionsT"))],
    )
    body = subgraph(
        "body",
        [
            tensor("i", [], kind="INT32"),
            tensor("v", [25]),
            tensor("one", [], 2, kind="INT32"),
            tensor("i_next", [], kind="INT32"),
            tensor("half", [25]),
            tensor("v_next", [25]),
        ],
        [0, 1],
        [3, 5],
        [
            operator(3, [0, 2], [3], table("AddOptionsT")),
            operator(4, [1], [4], table("ExpOptionsT")),
            operator(3, [4, 1], [5], table("AddOptionsT")),
        ],
    )
    same = subgraph("same", [tensor("v", [25])], [0], [0], [])
    negated = subgraph("negated", [tensor("v", [25]), tensor("w", [25])], [0], [1], [operator(5, [0], [1], table("NegOptionsT"))])
    buffers = [(10).to_bytes(4, "little"), (1).to_bytes(4, "little")]
    return write(path, ["WHILE", "IF", "LESS", "ADD", "EXP", "NEG"], [main, less, body, same, negated], buffers)
