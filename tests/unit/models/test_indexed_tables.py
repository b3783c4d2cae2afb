"""Which inputs index tables, in graphs of a few operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from memprof.models import index_walk, indexed_tables
from memprof.models.index_walk import IndexedTable, Indexing

onnx = pytest.importorskip("onnx")
helper: Any = onnx.helper
INT64, FLOAT = 7, 1


def table(name: str, *shape: int) -> Any:
    return onnx.numpy_helper.from_array(numpy.zeros(shape, numpy.float32), name)


def number(name: str, value: int | list[int]) -> Any:
    return onnx.numpy_helper.from_array(numpy.array(value, numpy.int64), name)


def node(kind: str, operands: str, results: str, **attributes: Any) -> Any:
    return helper.make_node(kind, operands.split(), results.split(), **attributes)


def written(folder: Path, nodes: Sequence[Any], stored: Sequence[Any], inputs: Sequence[str] = ("ids",)) -> Path:
    """A model of these nodes and weights. Its inputs are integers of [1, 2], `word` of [1, 1]."""
    values = [helper.make_tensor_value_info(name, INT64, [1, 1 if name == "word" else 2]) for name in inputs]
    out = helper.make_tensor_value_info("out", FLOAT, None)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", values, [out], stored)), path)
    return path


WORDS, TYPES = table("words", 50, 4), table("types", 2, 4)
DIRECT = node("Gather", "words ids", "out")


@pytest.mark.parametrize(
    ("nodes", "stored", "limits"),
    [
        ([DIRECT], [WORDS], {"ids": 50}),
        ([node("Gather", "words ids", "out", axis=1)], [WORDS], {"ids": 4}),
        ([node("Gather", "words ids", "out", axis=-2)], [WORDS], {"ids": 50}),
        ([node("Gather", "words ids", "out", axis=5)], [WORDS], {}),
        ([node("GatherElements", "words ids", "out", axis=1)], [WORDS], {"ids": 4}),
        ([node("GatherND", "words ids", "out")], [WORDS], {}),
        ([node("GatherND", "words word", "out")], [WORDS], {"word": 50}),
        ([node("Cast", "word", "long", to=7), node("GatherND", "deep long", "out", batch_dims=1)], [table("deep", 9, 8, 7)], {"word": 8}),
        ([node("Reshape", "ids shape", "flat"), node("GatherND", "words flat", "out")], [WORDS, number("shape", [2, 1])], {}),
        ([node("Cast", "ids", "long", to=7), node("Unsqueeze", "long", "wide"), node("Gather", "words wide", "out")], [WORDS], {"ids": 50}),
        ([node("Slice", "ids a b", "first"), node("Squeeze", "first", "flat"), node("Gather", "words flat", "out")], [WORDS], {"ids": 50}),
        ([node("Where", "mask ids pad", "real"), node("Gather", "words real", "out")], [WORDS, number("pad", 0)], {"ids": 50}),
        ([node("Identity", "words", "shared"), node("Gather", "shared ids", "out")], [WORDS], {"ids": 50}),
        ([node("DequantizeLinear", "words s", "real"), node("Gather", "real ids", "out")], [WORDS, table("s")], {"ids": 50}),
        ([node("Constant", "", "made", value=WORDS), node("Gather", "made ids", "out")], [], {"ids": 50}),
        ([DIRECT, node("Gather", "types ids", "out")], [WORDS, TYPES], {"ids": 2}),
        ([DIRECT, node("Equal", "ids pad", "is"), node("Cast", "is", "n"), node("Gather", "types n", "out")], [WORDS, TYPES], {"ids": 50}),
        ([DIRECT, node("Add", "ids one", "next"), node("Gather", "words next", "out")], [WORDS, number("one", 1)], {}),
        ([DIRECT, node("Relu", "x", "cache"), node("Gather", "cache ids", "out")], [WORDS], {}),
        ([DIRECT, node("ScatterND", "cache ids words", "out")], [WORDS], {}),
        ([DIRECT], [], {}),
        ([DIRECT], [table("words", 0, 4)], {}),
        ([node("Gather", "ids one", "first"), node("Gather", "words first", "out")], [WORDS, number("one", 1)], {"ids": 50}),
        ([node("Add", "ids ids", "out")], [WORDS], {}),
        ([node("EmbedLayerNormalization", "ids mask words positions types", "out")], [WORDS, TYPES], {"ids": 50, "mask": 2}),
    ],
)
def test_onnx_limits(tmp_path: Path, nodes: list[Any], stored: list[Any], limits: dict[str, int]) -> None:
    assert indexed_tables.indexing(written(tmp_path, nodes, stored, ("ids", "mask", "word"))).limits() == limits


def test_bert_inputs_apart(tmp_path: Path) -> None:
    nodes = [
        node("Gather", "words input_ids", "a"),
        node("Gather", "types token_type_ids", "b"),
        node("Unsqueeze", "attention_mask", "wide"),
        node("Cast", "wide", "seen", to=1),
        node("Sub", "one seen", "unseen"),
        node("Gather", "places position_ids", "c"),
        node("Sum", "a b c unseen", "out"),
    ]
    stored = [table("words", 30522, 2), TYPES, table("places", 512, 2), table("one")]
    path = written(tmp_path, nodes, stored, ("input_ids", "attention_mask", "token_type_ids", "position_ids"))
    found = indexed_tables.indexing(path)
    assert found.limits() == {"input_ids": 30522, "token_type_ids": 2, "position_ids": 512}
    assert IndexedTable("input_ids", "words", 30522) in found.tables and not found.unlimited


def test_table_told_without_limit(tmp_path: Path) -> None:
    nodes = [DIRECT, node("Add", "ids one", "next"), node("Gather", "words next", "out")]
    found = indexed_tables.indexing(written(tmp_path, nodes, [WORDS, number("one", 1)]))
    assert found.tables == (IndexedTable("ids", "words", 50),) and found.unlimited == {"ids"}


def test_onnx_inner_graph_sees_outer_values(tmp_path: Path) -> None:
    out = [helper.make_tensor_value_info("row", FLOAT, None)]
    body = helper.make_graph([node("Gather", "inner ids", "row")], "then", [], out, [table("inner", 7, 4)])
    other = helper.make_graph([node("Gather", "words ids", "row")], "else", [], out)
    chosen = helper.make_node("If", ["yes"], ["out"], then_branch=body, else_branch=other)
    assert indexed_tables.indexing(written(tmp_path, [chosen], [WORDS], ("ids", "yes"))).limits() == {"ids": 7}


def test_old_onnx_lists_weights_among_inputs(tmp_path: Path) -> None:
    path = written(tmp_path, [node("Gather", "words places", "out")], [WORDS, number("places", [0, 1])], ("ids", "places"))
    assert indexed_tables.indexing(path) == Indexing()


@pytest.mark.parametrize("ending", [".onnx", ".tflite", ".circle", ".xml", ".gguf", ".pt2"])
def test_damaged_file_has_no_tables(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"net{ending}"
    whole = written(tmp_path, [DIRECT], [WORDS]).read_bytes()
    for content in (b"", b"\xff" * 99, whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(content)
        assert indexed_tables.indexing(path).limits() == {}
    assert indexed_tables.indexing(tmp_path / f"gone{ending}").limits() == {}


def test_changed_file_read_again(tmp_path: Path) -> None:
    assert indexed_tables.indexing(written(tmp_path, [DIRECT], [WORDS])).limits() == {"ids": 50}
    assert indexed_tables.indexing(written(tmp_path, [DIRECT], [table("words", 511, 4)])).limits() == {"ids": 511}


def test_endless_origins_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node joins one input more to all before, so that 500 nodes carry 125,000 origins: a small file may name any number."""
    monkeypatch.setattr(index_walk, "_MOST_STEPS", 1 << 16)
    count = 500
    values = [helper.make_tensor_value_info(f"i{place}", INT64, [1]) for place in range(count)]
    nodes = [node("Gather", "words i0", "out"), node("Identity", "i0", "v0")]
    nodes += [node("Concat", f"v{place - 1} i{place}", f"v{place}", axis=0) for place in range(1, count)]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("out", FLOAT, None)], [WORDS])
    onnx.save(helper.make_model(graph), tmp_path / "net.onnx")
    assert indexed_tables.indexing(tmp_path / "net.onnx") == Indexing()


# -- TFLite


def tflite(folder: Path, kinds: Sequence[str], operators: Sequence[Any]) -> Path:
    """Tensors: 0 ids, 1 a table of 50 x 4, 2 a table of 2 x 4, 3 and 4 integers that are computed, 5 numbers that are computed."""
    from support import plan_tflite as flat

    tensors = [
        flat.tensor("serving_ids:0", [1, 2], kind="INT32"),
        flat.tensor("words", [50, 4], 1),
        flat.tensor("types", [2, 4], 2),
        flat.tensor("a", [1, 2], kind="INT32"),
        flat.tensor("b", [1, 2], kind="INT32"),
        flat.tensor("out", [1, 2, 4]),
    ]
    graph = flat.subgraph("main", tensors, [0], [5], operators)
    return flat.write(folder / "net.tflite", kinds, [graph], [bytes(800), bytes(32)])


@pytest.mark.parametrize(
    ("kinds", "steps", "limit"),
    [
        (["GATHER"], [(0, [1, 0], [5], 0)], 50),
        (["GATHER"], [(0, [1, 0], [5], 1)], 4),
        (["GATHER"], [(0, [1, 0], [5], -2)], 50),
        (["EMBEDDING_LOOKUP"], [(0, [0, 1], [5], None)], 50),
        (["CAST", "RESHAPE", "GATHER"], [(0, [0], [3], None), (1, [3], [4], None), (2, [1, 4], [5], 0)], 50),
        (["GATHER"], [(0, [1, 0], [5], 0), (0, [2, 0], [5], 0)], 2),
        (["GATHER_ND"], [(0, [1, 0], [5], None)], None),
        (["ADD", "GATHER"], [(0, [0, 0], [3], None), (1, [1, 3], [5], 0)], None),
        (["EQUAL", "GATHER"], [(0, [0, 0], [3], None), (1, [1, 3], [5], 0)], None),
        (["GATHER"], [(0, [5, 0], [5], 0)], None),
        (["GATHER", "SCATTER_ND"], [(0, [1, 0], [5], 0), (1, [0, 3, 4], [5], None)], None),
    ],
)
def test_tflite_limits(
    tmp_path: Path, kinds: list[str], steps: list[tuple[int, list[int], list[int], int | None]], limit: int | None
) -> None:
    pytest.importorskip("ai_edge_litert")
    from support import plan_tflite as flat

    operators = [
        flat.operator(code, operands, results, flat.table("GatherOptionsT", axis=axis) if axis is not None else None)
        for code, operands, results, axis in steps
    ]
    path = tflite(tmp_path, kinds, operators)
    assert indexed_tables.indexing(path).limits() == ({"serving_ids:0": limit} if limit is not None else {})


def test_tflite_signature_name_too(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    import flatbuffers
    from support import plan_tflite as flat

    path = tflite(tmp_path, ["GATHER"], [flat.operator(0, [1, 0], [5], flat.table("GatherOptionsT", axis=0))])
    model = flat.schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    model.signatureDefs = [flat.table("SignatureDefT", signatureKey="serve", inputs=[flat.table("TensorMapT", name="ids", tensorIndex=0)])]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    assert indexed_tables.indexing(path).limits() == {"serving_ids:0": 50, "ids": 50}


# -- OpenVINO


def layer(number: int, kind: str, name: str, data: str = "", inputs: int = 0, names: str = "") -> str:
    ports = "".join(f'<port id="{place}"/>' for place in range(inputs))
    made = f'<output><port id="{inputs}" names="{names or name}"/></output>'
    return f'<layer id="{number}" name="{name}" type="{kind}"><data {data}/><input>{ports}</input>{made}</layer>'


def edge(source: str, target: str) -> str:
    (maker, port), (reader, place) = source.split("."), target.split(".")
    return f'<edge from-layer="{maker}" from-port="{port}" to-layer="{reader}" to-port="{place}"/>'


IDS = layer(0, "Parameter", "ids", 'shape="1,?" element_type="i64"', names="ids,other")
TABLE = layer(1, "Const", "words", 'shape="50, 4" element_type="u8" offset="8" size="200"')
AXIS = layer(2, "Const", "axis", 'shape="" element_type="i64" offset="0" size="8"')
INTO = [edge("1.0", "9.0"), edge("2.0", "9.2")]


@pytest.mark.parametrize(
    ("layers", "edges", "axis", "limit"),
    [
        ([layer(9, "Gather", "out", inputs=3)], [*INTO, edge("0.0", "9.1")], 0, 50),
        ([layer(9, "Gather", "out", inputs=3)], [*INTO, edge("0.0", "9.1")], -1, 4),
        ([layer(9, "Gather", "out", inputs=3)], [edge("1.0", "9.0"), edge("0.0", "9.2"), edge("0.0", "9.1")], 0, None),
        ([layer(9, "GatherElements", "out", 'axis="1"', 2)], [edge("1.0", "9.0"), edge("0.0", "9.1")], 0, 4),
        ([layer(9, "EmbeddingBagPackedSum", "out", inputs=2)], [edge("1.0", "9.0"), edge("0.0", "9.1")], 0, 50),
        (
            [layer(3, "Convert", "int", inputs=1), layer(9, "Gather", "out", inputs=3)],
            [*INTO, edge("0.0", "3.0"), edge("3.1", "9.1")],
            0,
            50,
        ),
        (
            [layer(3, "Add", "next", inputs=2), layer(9, "Gather", "out", inputs=3)],
            [*INTO, edge("0.0", "3.0"), edge("0.0", "3.1"), edge("3.2", "9.1")],
            0,
            None,
        ),
        (
            [
                layer(3, "Convert", "wide", inputs=1),
                layer(4, "Const", "scale", 'shape="50,1" element_type="f32" offset="8" size="200"'),
                layer(5, "Multiply", "real", inputs=2),
                layer(9, "Gather", "out", inputs=3),
            ],
            [edge("1.0", "3.0"), edge("3.1", "5.0"), edge("4.0", "5.1"), edge("5.2", "9.0"), edge("2.0", "9.2"), edge("0.0", "9.1")],
            0,
            50,
        ),
    ],
)
def test_openvino_limits(tmp_path: Path, layers: list[str], edges: list[str], axis: int, limit: int | None) -> None:
    (tmp_path / "net.bin").write_bytes(axis.to_bytes(8, "little", signed=True) + bytes(200))
    path = tmp_path / "net.xml"
    path.write_text(f"<net><layers>{''.join((IDS, TABLE, AXIS, *layers))}</layers><edges>{''.join(edges)}</edges></net>")
    found = indexed_tables.indexing(path)
    assert found.limits() == ({"ids": limit, "other": limit} if limit is not None else {})
    if limit is not None:
        assert found.tables == (IndexedTable("ids", "words", limit),)


def test_openvino_without_weights_has_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "net.xml"
    gather, edges = layer(9, "Gather", "out", inputs=3), [*INTO, edge("0.0", "9.1")]
    path.write_text(f"<net><layers>{IDS}{TABLE}{AXIS}{gather}</layers><edges>{''.join(edges)}</edges></net>")
    assert indexed_tables.indexing(path).limits() == {}
