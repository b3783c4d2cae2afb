"""The reader of TFLite files, against files written with the schema's own classes and against what LiteRT's interpreter says of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ai_edge_litert")
pytest.importorskip("flatbuffers")
pytest.importorskip("tflite")
np = pytest.importorskip("numpy")

from support.plan_tflite import control_flow, operator, schema, subgraph, table, tensor, write

from memprof import zoo
from memprof.base.errors import InputError, UsageError
from memprof.models import tflite_file
from memprof.plan.graphs import rewrite, tflite_graph
from memprof.plan.graphs.read import check_installed, read
from memprof.plan.graphs.reduced import problem, working_bytes
from memprof.plan.graphs.weights import account
from memprof.plan.orders.problem import peak


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_tensors_as_in_interpreter(tmp_path: Path, kind: str) -> None:
    from ai_edge_litert.interpreter import Interpreter

    path = tmp_path / "m.tflite"
    zoo.make("mnist", path, format="tflite", type=kind)
    details = {detail["name"]: detail for detail in Interpreter(str(path)).get_tensor_details()}
    graph = read(path)
    assert len(graph.tensors) + len(graph.weights) == len(details)
    for entry in (*graph.tensors, *graph.weights):
        assert tuple(details[entry.name]["shape"]) == entry.shape
        assert np.dtype(details[entry.name]["dtype"]).name == entry.type
        assert entry.bytes == int(np.prod(details[entry.name]["shape"])) * np.dtype(details[entry.name]["dtype"]).itemsize


def test_operators_with_rules_in_schema() -> None:
    known = {*tflite_graph._BODIES, *tflite_graph._STATEFUL, *tflite_graph._IN_PLACE}
    assert known <= set(tflite_graph.operator_names().values())


def test_missing_package_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo.make("mnist", tmp_path / "m.tflite", format="tflite")
    monkeypatch.setitem(sys.modules, "tflite.BuiltinOperator", None)
    tflite_graph.operator_names.cache_clear()
    sentence = r"^reading a TFLite graph needs tflite\.BuiltinOperator, not installed here: pip install 'ml-memprof\[plan\]'$"
    for call in (read, check_installed):
        with pytest.raises(InputError, match=sentence):
            call(tmp_path / "m.tflite")


def test_tensor_types_of_schema() -> None:
    types = {code: name for name, code in vars(schema.TensorType).items() if isinstance(code, int)}
    for code, name in enumerate(tflite_file.TYPES):
        if code in types:
            assert types[code].lower().replace("_", "") == name.replace("_", "")


def test_inputs_outputs_and_variables_stay(tmp_path: Path) -> None:
    tensors = [tensor("x", [25]), tensor("a", [25]), tensor("state", [50], isVariable=True), tensor("b", [25]), tensor("y", [1])]
    main = subgraph(
        "main",
        tensors,
        [0],
        [4],
        [operator(0, [0], [1], table("ExpOptionsT")), operator(1, [1, 2], [3]), operator(0, [3], [4], table("ExpOptionsT"))],
    )
    graph = read(write(tmp_path / "m.tflite", ["EXP", "Recurrent"], [main]))
    reduced = problem(graph).problem
    assert peak(reduced, range(3)) == 100 + 200 + 100 + 100  # x and the state all the time, a and b
    assert [unknown.names for unknown in graph.unknown] == [("Recurrent (1)",)]


def test_working_bytes_of_loops_and_branches(tmp_path: Path) -> None:
    graph = read(control_flow(tmp_path / "m.tflite"))
    loop, choose = graph.operators
    assert [body.repeated for body in loop.bodies] == [True, True]
    assert [body.repeated for body in choose.bodies] == [False, False]
    # In the body's last step: its inputs of 4 and 100 bytes, which stay, its results, and `half`.
    assert working_bytes(graph, loop) == 4 + 100 + 4 + 100 + 100
    assert working_bytes(graph, choose) == 200 - 100
    assert account(graph).stored.count == 2


def test_subgraph_recursive_or_missing(tmp_path: Path) -> None:
    for index, reason in ((0, "subgraph 0 runs itself"), (7, "runs subgraph 7, which it does not have")):
        main = subgraph(
            "main", [tensor("x", [2]), tensor("y", [2])], [0], [1], [operator(0, [0], [1], table("CallOptionsT", subgraph=index))]
        )
        path = write(tmp_path / f"m{index}.tflite", ["CALL"], [main])
        with pytest.raises(InputError, match=reason):
            read(path)


def test_optional_inputs_buffers_packed_types(tmp_path: Path) -> None:
    tensors = [tensor("x", [1, 4]), tensor("w", [3, 4], 1), tensor("w2", [3, 4], 1), tensor("y", [1, 3]), tensor("z", [1, 3]),
               tensor("packed", [5], 2, "INT4"), tensor("text", [2], kind="STRING")]  # fmt: skip
    main = subgraph("main", tensors, [0], [3, 4, 6], [operator(0, [0, 1, -1], [3]), operator(0, [0, 2, -1], [4]), operator(1, [5], [6])])
    graph = read(write(tmp_path / "m.tflite", ["FULLY_CONNECTED", "CAST"], [main], [bytes(48), bytes(3)]))
    accounted = account(graph)
    assert (accounted.stored.count, accounted.stored.bytes) == (2, 51)
    assert (accounted.shared.count, accounted.shared.bytes) == (1, 48)
    assert graph.unsized == ("text (a string has no fixed size)",)


@pytest.mark.parametrize("buffer", [0, 1], ids=["no buffer", "empty buffer"])
def test_empty_constant_is_made_by_no_operator(tmp_path: Path, buffer: int) -> None:
    """The shape of a scalar, which RESHAPE reads."""
    tensors = [tensor("x", [1]), tensor("shape", [0], buffer, "INT32"), tensor("y", [1])]
    main = subgraph("main", tensors, [0], [2], [operator(0, [0, 1], [2])])
    graph = read(write(tmp_path / "m.tflite", ["RESHAPE"], [main], [b""]))
    assert [operator.reads for operator in graph.operators] == [(0,)]


def test_batch_sets_first_dimension(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    zoo.make("mnist", path, format="tflite")
    single, four = read(path), read(path, batch=4)
    assert [4 * (tensor.bytes or 0) for tensor in single.tensors] == [tensor.bytes for tensor in four.tensors]
    assert any("taken as 4" in assumption for assumption in four.assumptions)
    assert read(path, {"input": (4, 28, 28, 1)}).tensors == four.tensors
    with pytest.raises(UsageError, match="only its first dimension can be changed"):
        read(path, {"input": (1, 56, 56, 1)})
    for words in ({"batch": 1 << 31}, {"shapes": {"input": (1 << 31, 28, 28, 1)}}):
        with pytest.raises(UsageError, match=r"(a batch is at most|a size of input is above) 2147483647"):
            read(path, **words)
    with pytest.raises(UsageError, match="is not an input"):
        read(path, {"conv_1": (4, 28, 28, 16)})


def test_open_dimensions_distinguished_by_extent(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    zoo.make("encoder", path, format="tflite", size_bytes=8 << 20)

    graph = read(path, {"ids": (3, 50), "mask": (3, 50)})

    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    assert shapes["layer_1/scores"] == (3, 2, 50, 50)
    assert shapes["layer_4/wide"] == (3, 50, 512)
    assert shapes["row"] == (1, 50)  # the first row of a batch
    assert shapes["output"] == (3, 50, 128)
    assert any("(1 as 3, 16 as 50)" in assumption for assumption in graph.assumptions)
    assert not any("dynamic shape" in assumption for assumption in graph.assumptions)
    assert {tensor.name: tensor.shape for tensor in read(path, batch=3).tensors}["output"] == (3, 16, 128)
    with pytest.raises(UsageError, match="open dimensions that are 16 in the file would be 50 and 60"):
        read(path, {"ids": (3, 50), "mask": (3, 60)})
    with pytest.raises(UsageError, match="only its open dimensions can be changed"):
        read(path, {"ids": (3, 50, 1)})


def test_dequantized_weights_folded(tmp_path: Path) -> None:
    tensors = [tensor("x", [1, 4]), tensor("half", [3, 4], 1, "FLOAT16"), tensor("w", [3, 4]), tensor("y", [1, 3])]
    main = subgraph("main", tensors, [0], [3], [operator(0, [1], [2], table("DequantizeOptionsT")), operator(1, [0, 2], [3])])
    accounted = account(read(write(tmp_path / "m.tflite", ["DEQUANTIZE", "FULLY_CONNECTED"], [main], [bytes(24)])))
    assert (accounted.folded.bytes, accounted.results.bytes, accounted.held.bytes) == (24, 48, 48)


def test_reorder_of_numbered_operators_refused(tmp_path: Path) -> None:
    main = subgraph("main", [tensor("x", [2]), tensor("y", [2])], [0], [1], [operator(0, [0], [1], table("ExpOptionsT"))])
    path = write(tmp_path / "m.tflite", ["EXP"], [main], metadata=["model_control_dependencies"])
    with pytest.raises(UsageError, match="their order cannot be changed"):
        rewrite.reorder(read(path), (0,), tmp_path / "r.tflite")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.tflite"]


def test_indices_out_of_range_refused(tmp_path: Path) -> None:
    def broken(**changes: Any) -> Path:
        tensors = [tensor("x", [2]), tensor("y", [2])]
        main = subgraph(
            "main", tensors, [0], [changes.get("output", 1)], [operator(changes.get("code", 0), [0], [1], table("ExpOptionsT"))]
        )
        return write(tmp_path / "m.tflite", ["EXP"], [main])

    assert read(broken()).operators
    with pytest.raises(InputError, match="there is no graph in it"):
        read(write(tmp_path / "none.tflite", ["EXP"], []))
    for change in ({"output": 9}, {"code": 3}):
        with pytest.raises(InputError, match="not a TFLite model, or not a complete one"):
            read(broken(**change))
