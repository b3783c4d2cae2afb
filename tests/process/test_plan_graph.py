"""What is read from ONNX and TFLite files for planning, against sizes added up by hand and figures known from elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")
np = pytest.importorskip("numpy")

from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support import plan_models as models
from support.examples import examples
from support.plan_models import FLOAT, node, save, value, weight

from memprof import zoo
from memprof.base.errors import InputError, MemprofError
from memprof.plan.graphs.graph import Graph
from memprof.plan.graphs.read import read
from memprof.plan.graphs.reduced import problem
from memprof.plan.graphs.weights import account
from memprof.plan.orders.problem import peak

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def peak_of(graph: Graph, in_place: bool = False) -> int:
    reduced = problem(graph, in_place).problem
    return peak(reduced, range(reduced.count))


def names(graph: Graph) -> list[str]:
    return [tensor.name for tensor in graph.tensors]


def tensor(graph: Graph, name: str) -> Any:
    return next(activation for activation in graph.tensors if activation.name == name)


@pytest.mark.parametrize(
    ("name", "bytes"),
    [
        ("shufflenet", 3_110_912),
        ("densenet121", 8_429_568),
        ("resnet50", 9_633_792),
        ("inception_v2", 6_422_528),
        ("inception_v1", 6_422_528),
        ("squeezenet", 6_308_352),
        ("vgg19", 25_690_112),
    ],
)
def test_peaks_of_onnx_wheel_graphs(name: str, bytes: int) -> None:
    graph = read(LIGHT / f"light_{name}.onnx")
    assert peak_of(graph) == bytes
    assert not graph.unsized
    assert graph.folded  # their weights are computed from constants


def test_sizes_by_type(tmp_path: Path) -> None:
    kinds = {"INT4": 5, "UINT4": 5, "BOOL": 9, "FLOAT16": 18, "DOUBLE": 72, "FLOAT8E4M3FN": 9, "BFLOAT16": 18, "INT64": 72}
    nodes = [node("Cast", ["x"], [f"y{kind}"], to=getattr(TensorProto, kind)) for kind in kinds]
    outputs = [value(f"y{kind}", [3, 3], getattr(TensorProto, kind)) for kind in kinds]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [3, 3])], outputs, opset=21))
    assert {kind: tensor(graph, f"y{kind}").bytes for kind in kinds} == kinds


def test_unsized_type_named(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x"], ["text"], "to_text", to=TensorProto.STRING), node("Identity", ["text"], ["y"])]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [3])], [value("y", [3], TensorProto.STRING)]))
    assert [entry.split(" (")[0] for entry in graph.unsized] == ["text", "y"]
    assert tensor(graph, "text").bytes is None
    assert "string has no known size" in graph.unsized[0]


def test_symbols_taken_as_1(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [value("x", ["batch", "time", 8])], [value("y", ["batch", "time", 8])])
    graph = read(path)
    assert tensor(graph, "y").bytes == 32
    assert graph.assumptions == ("batch, time taken as 1: --shape or --batch says otherwise",)
    assert tensor(read(path, batch=4), "y").bytes == 128
    assert read(path, batch=4).assumptions == ("time taken as 1: --shape or --batch says otherwise",)
    full = read(path, {"x": (2, 3, 8)})
    assert tensor(full, "y").shape == (2, 3, 8)
    assert full.assumptions == ()
    resized = read(path, {"x": (2, 3, 5)})
    assert [text.partition(";")[0] for text in resized.assumptions] == ["dimension 2 of x, 8 in the file, is taken as 5"]
    assert tensor(resized, "y").bytes == 120


def test_batch_of_fixed_file_assumed(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [value("x", [1, 8])], [value("y", [1, 8])])
    assert read(path, batch=1).assumptions == ()
    (assumption,) = read(path, batch=4).assumptions
    assert assumption.startswith("dimension 0 of x, 1 in the file, is taken as 4; ONNX Runtime does not run it so")
    assert tensor(read(path, batch=4), "y").bytes == 128


@pytest.mark.parametrize("name", ["?", "", " ? "])
def test_nameless_dimensions_distinct(tmp_path: Path, name: str) -> None:
    """Paddle's exporter calls every open dimension `?`."""
    inputs = [value("x", [name, 3, name, name])]
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], inputs, [value("y", [name, 3, name, name])])

    graph = read(path, {"x": (1, 3, 48, 192)})
    assert (tensor(graph, "y").shape, graph.assumptions, graph.unsized) == ((1, 3, 48, 192), (), ())
    graph = read(path, batch=5)
    assert tensor(graph, "y").shape == (5, 3, 1, 1)
    assert graph.assumptions == ("a nameless dimension of x taken as 1: --shape or --batch says otherwise",)


def test_batch_replaces_fixed_dimension(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Flatten", ["a"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 3, 4])], [value("y", [1, 12])], values=[value("a", [1, 3, 4])])
    graph = read(path, batch=5)
    assert [activation.bytes for activation in graph.tensors] == [240, 240, 240]


def test_data_dependent_shape_named_or_given(tmp_path: Path) -> None:
    nodes = [node("NonZero", ["x"], ["places"], "find"), node("Cast", ["places"], ["y"], to=FLOAT)]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [10])], [value("y", None)])
    graph = read(path)
    assert len(graph.unsized) == 2
    assert "depends on data" in graph.unsized[0] or "cannot be inferred" in graph.unsized[0]
    given = read(path, {"places": (1, 4)})
    assert tensor(given, "places").bytes == 32
    assert not given.unsized


def test_foreign_operator_with_stated_shape(tmp_path: Path) -> None:
    nodes = [
        node("Magic", ["x"], ["a"], domain="com.example"),
        node("Magic", ["a"], ["b"], domain="com.example"),
        node("Relu", ["b"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [4])], [value("y", None)], values=[value("a", [25])], domains=("com.example",))
    graph = read(path)
    assert tensor(graph, "a").bytes == 100
    assert tensor(graph, "b").bytes is None
    assert "from another domain" in tensor(graph, "b").why
    assert [unknown.names for unknown in graph.unknown if "another domain" in unknown.what] == [("com.example.Magic (2)",)]
    assert graph.operators[0].kind == "com.example.Magic"


def test_optional_inputs_and_outputs(tmp_path: Path) -> None:
    nodes = [node("Clip", ["x", "", "six"], ["a"]), node("MaxPool", ["a"], ["y", ""], kernel_shape=[2, 2])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 1, 4, 4])], [value("y", None)], [numpy_helper.from_array(np.float32(6), "six")])
    graph = read(path)
    assert names(graph) == ["x", "a", "y"]
    assert not graph.unsized


def test_outputs_alive_until_end(tmp_path: Path) -> None:
    nodes = [node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2), node("Exp", ["a"], ["c"]), node("Exp", ["c"], ["d"])]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [50])], [value("b", None), value("d", None), value("a", None)]))
    assert peak_of(graph) == 400  # a, b, c and d in the last step


def test_in_place_operators_lower_peak(tmp_path: Path) -> None:
    nodes = [node("Exp", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Cast", ["b"], ["c"], to=TensorProto.INT8)]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [25])], [value("c", None, TensorProto.INT8)]))
    assert peak_of(graph) == 200
    assert peak_of(graph, in_place=True) == 125


def test_shapes_computed_from_values(tmp_path: Path) -> None:
    """onnx's inference does not follow values through a Mod or an If; a Pad behind them has a shape all the same."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Mod", ["s", "three"], ["rest"]),
        node("Concat", ["zero", "rest"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.array([number], np.int64), name) for name, number in (("three", 3), ("zero", 0))]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [11])], [value("y", None)], constants)
    graph = read(path)
    assert tensor(graph, "y").shape == (13,)
    assert [operator.kind for operator in graph.operators] == ["Shape", "Mod", "Concat", "Pad"]  # they are run all the same


def test_values_that_cannot_be_computed(tmp_path: Path) -> None:
    """Three numbers in a shape of two: onnx's reference refuses that, and the size is not known."""
    constants = [numpy_helper.from_array(np.array(numbers, np.int64), name) for name, numbers in (("three", [1, 2, 3]), ("two", [2]))]
    nodes = [node("Identity", ["three"], ["a"]), node("Reshape", ["a", "two"], ["target"]), node("Reshape", ["x", "target"], ["y"])]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [2])], [value("y", None)], constants))
    assert [entry.split(" (")[0] for entry in graph.unsized] == ["y"]


def test_if_costs_larger_branch(tmp_path: Path) -> None:
    small = helper.make_graph([node("Neg", ["x"], ["r1"])], "small", [], [value("r1", [25])])
    large = helper.make_graph(
        [node("Concat", ["x", "x", "x"], ["big"], axis=0), node("Slice", ["big", "from", "to"], ["r2"])], "large", [], [value("r2", [25])]
    )
    bounds = [numpy_helper.from_array(np.array([at], np.int64), name) for name, at in (("from", 0), ("to", 25))]
    path = save(
        tmp_path / "m.onnx",
        [node("If", ["c"], ["y"], "choose", then_branch=small, else_branch=large)],
        [value("c", [], TensorProto.BOOL), value("x", [25])],
        [value("y", [25])],
        bounds,
    )
    graph = read(path)
    (operator,) = graph.operators
    assert [graph.tensors[number].name for number in operator.reads] == ["c", "x"]  # x is taken from around the branches
    assert len(operator.bodies) == 2
    assert peak_of(graph) == 1 + 100 + 400  # c, x, and of the larger branch big and r2, which is y
    assert account(graph).stored.count == 2


def test_branch_weight_shared_transpose_folded(tmp_path: Path) -> None:
    zoo.make("shared_if", tmp_path / "s.onnx", format="onnx", size_bytes=1 << 20)
    accounted = account(read(tmp_path / "s.onnx"))
    assert (accounted.shared.count, accounted.shared.bytes) == (1, 1 << 20)
    assert (accounted.results.count, accounted.results.bytes) == (1, 1 << 20)
    assert accounted.held.bytes == 2 << 20


def test_loop_and_scan_bodies_counted(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Exp", ["state"], ["e"]), node("Add", ["e", "x"], ["next"])],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("state", [25])],
        [value("on", [], TensorProto.BOOL), value("next", [25])],
    )
    scan = helper.make_graph([node("Neg", ["row"], ["out"])], "scan", [value("row", [5])], [value("out", [5])])
    nodes = [node("Loop", ["n", "", "x"], ["y"], "loop", body=body), node("Scan", ["m"], ["z"], "scan", body=scan, num_scan_inputs=1)]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [value("n", [], TensorProto.INT64), value("x", [25]), value("m", [4, 5])],
        [value("y", None), value("z", None)],
    )
    graph = read(path)
    assert not graph.unsized
    assert all(operator.bodies[0].repeated for operator in graph.operators)
    inside = [problem(graph).problem.sizes[tensors[-1]] for tensors in problem(graph).problem.writes]
    assert inside == [8 + 1 + 200, 40]  # of the loop: i, on, and two of its vectors; of the scan a row in and one out


def _collecting(path: Path, trips: int | None, going: str = "", handed_on: str = "Identity") -> Path:
    """A Loop that collects a row of 5 in each round. trips: None where an input says it. going: its condition, "" for none, or `go`, or `yes`."""
    body = helper.make_graph(
        [node(handed_on, ["go_in"], ["on"]), node("Identity", ["x"], ["row"])],
        "body",
        [value("i", [], TensorProto.INT64), value("go_in", [], TensorProto.BOOL)],
        [value("on", [], TensorProto.BOOL), value("row", [5])],
    )
    constants = [numpy_helper.from_array(np.array(True), "yes")]
    inputs = [value("x", [5]), value("go", [], TensorProto.BOOL)]
    if trips is None:
        inputs.append(value("n", [], TensorProto.INT64))
    else:
        constants.append(numpy_helper.from_array(np.array(trips, np.int64), "n"))
    return save(path, [node("Loop", ["n", going], ["rows"], "loop", body=body)], inputs, [value("rows", None)], constants)


@pytest.mark.parametrize(("going", "handed_on"), [("", "Not"), ("yes", "Identity")])
def test_loop_rows_by_trip_count(tmp_path: Path, going: str, handed_on: str) -> None:
    graph = read(_collecting(tmp_path / "m.onnx", 7, going, handed_on))
    assert tensor(graph, "rows").shape == (7, 5)
    assert not graph.unsized


@pytest.mark.parametrize(("trips", "going", "handed_on"), [(None, "", "Identity"), (7, "go", "Identity"), (7, "yes", "Not")])
def test_loop_rows_unknown_with_early_end(tmp_path: Path, trips: int | None, going: str, handed_on: str) -> None:
    """And the name that onnx's inference makes up for that dimension is nobody's."""
    graph = read(_collecting(tmp_path / "m.onnx", trips, going, handed_on))
    assert graph.unsized == ("rows (its shape (unknown, 5) depends on data)",)


def test_local_functions_inlined(tmp_path: Path) -> None:
    twice = helper.make_function(
        "local", "Twice", ["a"], ["c"], [node("Exp", ["a"], ["b"]), node("Exp", ["b"], ["c"])], [helper.make_opsetid("", 18)]
    )
    path = save(
        tmp_path / "m.onnx",
        [node("Twice", ["x"], ["y"], domain="local")],
        [value("x", [25])],
        [value("y", [25])],
        functions=[twice],
        domains=("local",),
    )
    assert [operator.kind for operator in read(path).operators] == ["Exp", "Exp"]
    assert [operator.kind for operator in read(path, inline=False).operators] == ["local.Twice"]


def test_weights_accounted_for(tmp_path: Path) -> None:
    twin = numpy_helper.from_array(numpy_helper.to_array(weight("a", 4, 4)), "twin")
    nodes = [
        node("MatMul", ["x", "a"], ["p"]),
        node("MatMul", ["p", "a"], ["q"]),  # shared
        node("MatMul", ["q", "twin"], ["r"]),  # a copy
        node("Transpose", ["folded"], ["turned"], perm=[1, 0]),  # folded away
        node("MatMul", ["r", "turned"], ["y"]),
    ]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [value("x", [4, 4])],
        [value("y", None)],
        [weight("a", 4, 4), twin, weight("folded", 8, 4, seed=1), weight("unused", 2, seed=2)],
    )
    accounted = account(read(path))
    assert [(part.count, part.bytes) for part in (accounted.stored, accounted.shared, accounted.duplicated)] == [(4, 264), (1, 64), (1, 64)]
    assert [(part.count, part.bytes) for part in (accounted.folded, accounted.results, accounted.unused)] == [(1, 128), (1, 128), (1, 8)]
    assert (accounted.held.count, accounted.held.bytes) == (4, 264)


@pytest.mark.parametrize("external", [False, True])
def test_duplicate_large_weights_found(tmp_path: Path, external: bool) -> None:
    array = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    changed = array.copy()
    changed[-1, -1] += 1
    weights = [numpy_helper.from_array(content, name) for name, content in (("a", array), ("b", array), ("c", changed))]
    nodes = [node("MatMul", [source, name], [target]) for source, name, target in (("x", "a", "p"), ("p", "b", "q"), ("q", "c", "y"))]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [64, 64])], [value("y", None)], weights)
    if external:
        onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    accounted = account(read(path))
    assert (accounted.duplicated.count, accounted.duplicated.bytes) == (1, 16384)
    assert accounted.stored.bytes == 3 * 16384


def test_external_constants_serve_shape_inference(tmp_path: Path) -> None:
    target = numpy_helper.from_array(np.array([2, -1], np.int64), "target")
    path = save(tmp_path / "m.onnx", [node("Reshape", ["x", "target"], ["y"])], [value("x", [10])], [value("y", None)], [target])
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert tensor(read(path), "y").shape == (2, 5)


def test_missing_external_data_named(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("MatMul", ["x", "w"], ["y"])], [value("x", [64, 64])], [value("y", None)], [weight("w", 64, 64)])
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "m.data").rename(tmp_path / "elsewhere")
    graph = read(path)
    assert ("m.data",) in [unknown.names for unknown in graph.unknown]
    assert account(graph).stored.bytes == 16384
    os.truncate(shutil.copy(tmp_path / "elsewhere", tmp_path / "m.data"), 100)
    assert ("w",) in [unknown.names for unknown in read(path).unknown]


def test_weights_and_tensors_beyond_2_gib(tmp_path: Path) -> None:
    """A weight of 3 GiB in a sparse file and activations of 4 GiB cost nothing to read."""
    big = TensorProto(name="w", dims=[3 << 28], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "m.data"), ("offset", "0"), ("length", str(3 << 30))):
        big.external_data.add(key=key, value=text)
    nodes = [node("Expand", ["x", "w_shape"], ["y"]), node("Mul", ["w", "one"], ["v"])]
    weights = [big, numpy_helper.from_array(np.array([1 << 30], np.int64), "w_shape"), weight("one", 1)]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1])], [value("y", None), value("v", None)], weights)
    (tmp_path / "m.data").touch()
    os.truncate(tmp_path / "m.data", 3 << 30)
    graph = read(path)
    assert tensor(graph, "y").bytes == 4 << 30
    assert account(graph).stored.bytes > 3 << 30


def test_large_weight_not_read_into_memory(tmp_path: Path) -> None:
    import tracemalloc

    zoo.make("mlp", tmp_path / "m.onnx", format="onnx", size_bytes=16 << 20)
    read(tmp_path / "m.onnx")
    tracemalloc.start()
    graph = read(tmp_path / "m.onnx")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(constant.bytes or 0 for constant in graph.weights) > 15 << 20
    assert most < 4 << 20


def test_sparse_weights_counted_as_stored(tmp_path: Path) -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1, 2], np.float32), "s"), numpy_helper.from_array(np.array([3, 7], np.int64), "indices"), [10]
    )
    graph = read(save(tmp_path / "m.onnx", [node("Add", ["x", "s"], ["y"])], [value("x", [10])], [value("y", [10])], sparse=[sparse]))
    assert account(graph).stored.bytes == 8 + 16
    assert any("sparse" in assumption for assumption in graph.assumptions)


def test_quantized_weight_held_as_stored(tmp_path: Path) -> None:
    zoo.make("mnist", tmp_path / "m.onnx", format="onnx", type="int8")
    accounted = account(read(tmp_path / "m.onnx"))
    assert accounted.fused.count
    assert accounted.held == accounted.stored


@pytest.mark.parametrize(
    ("nodes", "output", "said"),
    [
        (
            [node("Add", ["x", "c"], ["a"], "first"), node("Exp", ["a"], ["b"], "second"), node("Exp", ["b"], ["c"], "third")],
            "c",
            r"cycle: .*first -> second -> third -> first|cycle: .*second",
        ),
        ([node("Add", ["x", "ghost"], ["y"], "sum")], "y", "sum reads ghost, which no operator makes"),
        ([node("Exp", ["x"], ["y"])], "z", "no operator makes its output z"),
    ],
    ids=["cycle", "tensor of nobody", "output of nobody"],
)
def test_unrunnable_graph_refused(tmp_path: Path, nodes: list[Any], output: str, said: str) -> None:
    path = save(tmp_path / "m.onnx", nodes, [value("x", [4])], [value(output, [4])])
    with pytest.raises(InputError, match=said):
        read(path)


def test_unrunnable_order_mended(tmp_path: Path) -> None:
    nodes = [node("Exp", ["a"], ["y"], "second"), node("Exp", ["x"], ["a"], "first")]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [4])], [value("y", [4])]))
    assert [operator.name for operator in graph.operators] == ["first", "second"]
    assert [operator.place for operator in graph.operators] == [1, 0]
    assert "second stands before first, whose result it reads" in graph.moved
    assert not read(models.wide(tmp_path / "w.onnx")).moved


def test_unrunnable_order_keeps_shapes_and_constants(tmp_path: Path) -> None:
    """Nodes in the opposite order: shapes are inferred in an order that can run, and a constant behind its reader is one."""
    nodes = [
        node("Reshape", ["c", "target"], ["y"], "last"),
        node("Add", ["b", "one"], ["c"], "third"),
        node("Constant", [], ["one"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        node("Exp", ["a"], ["b"], "second"),
        node("Concat", ["x", "x"], ["a"], "first", axis=0),
        node("Constant", [], ["target"], value=numpy_helper.from_array(np.array([5, 4], np.int64))),
    ]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [10])], [value("y", None)]))
    assert [operator.name for operator in graph.operators] == ["first", "second", "third", "last"]
    assert not graph.unsized and tensor(graph, "y").shape == (5, 4)
    assert "second stands before first" in graph.moved


def test_branch_local_name_moves_nothing(tmp_path: Path) -> None:
    """A branch may call its own what stands outside further on."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("Exp", ["x"], ["later"]), node("Neg", ["later"], [f"r{name}"])], name, [], [value(f"r{name}", [4])]
        )
        for name in ("then", "else")
    }
    nodes = [node("If", ["c"], ["y"], "choose", **branches), node("Exp", ["y"], ["later"], "after")]
    path = save(tmp_path / "m.onnx", nodes, [value("c", [], TensorProto.BOOL), value("x", [4])], [value("later", [4])])
    assert not read(path).moved


def _whole(path: Path) -> None:
    """All that is done with a file before anything is shown."""
    graph = read(path)
    account(graph)
    reduced = problem(graph, True).problem
    peak(reduced, range(reduced.count))


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("seeds")
    files = {"onnx": models.wide(folder / "w.onnx").read_bytes()}
    zoo.make("shared_if", folder / "s.onnx", format="onnx", size_bytes=4096)
    files["onnx if"] = (folder / "s.onnx").read_bytes()
    try:
        from support.plan_tflite import control_flow

        files["tflite"] = control_flow(folder / "c.tflite").read_bytes()
    except ImportError:
        pass
    return files


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_readers_refuse_mutated_files_cleanly(seeds: dict[str, bytes], tmp_path: Path, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(seeds)))
    content = bytearray(seeds[name])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(("byte", "cut", "insert", "word")))
        if kind == "byte":
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "word":
            content[at : at + 4] = data.draw(st.sampled_from((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\1\0\0\0")))
        elif kind == "cut":
            del content[at : at + data.draw(st.integers(1, 30))]
        else:
            content[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        if not content:
            return
    path = tmp_path / f"f.{name.split()[0]}"
    path.write_bytes(bytes(content))
    try:
        _whole(path)
    except MemprofError as error:
        assert str(error).isprintable()
