"""`memprof plan` as a user runs it, and what its parts compute, against figures worked out by hand and against runtimes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.plan_command import Memprof, memprof, open_shaped, run_at, wide  # noqa: F401  (the fixtures)

onnx = pytest.importorskip("onnx")
np = pytest.importorskip("numpy")

from onnx import TensorProto, helper, numpy_helper
from support import plan_models as models
from support.plan_models import node, save, value, weight

from memprof import zoo
from memprof.base.errors import InputError, MeasurementError, UsageError
from memprof.plan import executed, measured
from memprof.plan.analysis import Question, analyse, planned, read_order, rows
from memprof.plan.graphs import rewrite as written
from memprof.plan.graphs.read import read
from memprof.plan.graphs.reduced import problem
from memprof.plan.measured import by_model
from memprof.plan.orders.order import best_order
from memprof.plan.orders.problem import peak, steps
from memprof.plan.residency import residency
from memprof.plan.training import training
from memprof.reports.tables.planned import beside


@pytest.fixture
def founding(tmp_path: Path) -> Path:
    zoo.make("founding_example", tmp_path / "f.onnx", format="onnx")
    return tmp_path / "f.onnx"


def last_column(text: str) -> list[str]:
    return [line.rstrip(" |").rsplit("|", 1)[1].strip() for line in text.split("Steps in", 1)[1].splitlines()[4:] if line.startswith("|")]


def test_show_founding_example_tables(founding: Path, memprof: Memprof) -> None:
    shown = memprof("plan", "show", founding, "--steps")
    assert shown.returncode == 0, shown.stderr
    assert last_column(shown.stdout) == ["200", "225", "225", "300", "300"]
    assert "225, proven" in shown.stdout and "Scratch memory of kernels" in shown.stdout
    (founding.parent / "order.txt").write_text("# by hand\nL\nM\nP\nN\nAdd\n")
    assert last_column(memprof("plan", "show", founding, "--steps", "--order", "order.txt").stdout) == ["200", "225", "225", "225", "225"]
    assert last_column(memprof("plan", "show", founding, "--steps", "--order", "best").stdout) == ["200", "225", "225", "225", "225"]


def test_show_json_content(founding: Path, memprof: Memprof) -> None:
    content = json.loads(memprof("plan", "show", founding, "--json", "--steps").stdout)
    assert (content["chosen"]["peak_bytes"], content["chosen"]["operator"], content["chosen"]["step"]) == (300, "P", 4)
    assert (content["best"]["peak_bytes"], content["lower_bound_bytes"], content["proven"]) == (225, 225, True)
    assert [row["peak_bytes"] for row in content["steps"]] == [200, 225, 225, 300, 300]
    assert [(tensor["name"], tensor["use"]) for tensor in content["chosen"]["alive"]] == [("T1", "input"), ("T5", "output"), ("T4", "kept")]
    assert content["best"]["arena"]["greedy_bytes"] == 225
    placed = content["chosen"]["arena"]["placed"]
    assert {tensor["name"] for tensor in placed} == {"T1", "T2", "T3", "T4", "T5", "T6"}
    assert all(tensor["offset"] + tensor["bytes"] <= 300 for tensor in placed)


def test_unsized_tensor_gives_lower_bounds(tmp_path: Path, memprof: Memprof) -> None:
    path = save(
        tmp_path / "m.onnx", [node("Cast", ["x"], ["y"], to=TensorProto.STRING)], [value("x", [3])], [value("y", None, TensorProto.STRING)]
    )
    shown = memprof("plan", "show", path).stdout
    assert "at least 12" in shown
    assert "1 tensor of unknown size" in shown and "y (a string has no known size)" in shown
    assert memprof("plan", "plot", path, "-o", "plan.html").returncode == 0
    assert "1 tensor of unknown size counts nothing" in (tmp_path / "plan.html").read_text()


def test_show_without_time_for_search(founding: Path, memprof: Memprof) -> None:
    content = json.loads(memprof("plan", "show", founding, "--json", "--time-limit", "0").stdout)
    assert content["best"] is None and content["chosen"]["peak_bytes"] == 300 and content["chosen"]["arena"]["packed_bytes"] is None


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["none.onnx"], 5, "No such file"),
        (["f.onnx", "--order", "nowhere.txt"], 5, "order nowhere.txt"),
        (["f.onnx", "--order", "twice.txt"], 2, "is in it twice"),
        (["f.onnx", "--order", "early.txt"], 2, "stands before L, whose result it reads"),
        (["f.onnx", "--order", "short.txt"], 2, "4 operators are missing, M among them"),
        (["f.onnx", "--order", "nearly.txt"], 2, "nearly.txt: Add is missing"),
        (["f.onnx", "--order", "typo.txt"], 2, "no operator 'Ad'; did you mean Add"),
        (["f.onnx", "--order", "profile.json"], 4, "does not have 5 of 5 operators"),
        (["f.onnx", "--order", "broken.json"], 5, "begins like JSON, but cannot be read as JSON"),
        (["f.onnx", "--shape", "T1"], 2, "is not a shape"),
        (["f.onnx", "--shape", "T9=4"], 2, "has no tensor 'T9'"),
        (["f.onnx", "--batch", "0"], 2, "a batch is at least 1"),
        (["f.onnx", "--mode", "training"], 5, "nothing to train"),
        (["f.onnx", "--time-limit", "soon"], 2, "is not a duration"),
        (["f.onnx", "--unit", "furlong"], 2, "is not a unit"),
        (["f.onnx", "--optimizer", "adam"], 2, "--optimizer needs --mode training"),
        (["f.onnx", "--gradients", "after"], 2, "--gradients needs --mode training"),
    ],
)
def test_show_refusals(founding: Path, memprof: Memprof, words: list[str], code: int, sentence: str) -> None:
    texts = {
        "twice.txt": "L\nL\n",
        "early.txt": "M\nL\nN\nP\nAdd\n",
        "short.txt": "L\n",
        "nearly.txt": "L\nM\nN\nP\n",
        "typo.txt": "L\nM\nN\nP\nAd\n",
        "broken.json": "[1,",
    }
    texts["profile.json"] = '[{"cat": "Node", "name": "x_kernel_time", "ts": 1, "dur": 1, "args": {"node_index": "0", "op_name": "Conv"}}]'
    for name, text in texts.items():
        (founding.parent / name).write_text(text)
    done = memprof("plan", "show", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr


def test_show_escapes_control_characters(tmp_path: Path, memprof: Memprof) -> None:
    path = save(tmp_path / "m.onnx", [node("Exp", ["x\x1b[31m"], ["y|`<b>"], "n\n\x07")], [value("x\x1b[31m", [3])], [value("y|`<b>", [3])])
    shown = memprof("plan", "show", path, "--steps")
    assert shown.returncode == 0
    assert "\x1b" not in shown.stdout and "\x07" not in shown.stdout


def test_mended_order_named_as_such(tmp_path: Path, memprof: Memprof) -> None:
    nodes = [node("Exp", ["a"], ["y"], "second"), node("Exp", ["x"], ["a"], "first")]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [4])], [value("y", [4])])
    shown = memprof("plan", "show", path)
    assert "the model's order, made topological" in shown.stdout
    assert "- The file's own order cannot run: second stands before first, whose result it reads" in shown.stdout
    assert json.loads(memprof("plan", "show", path, "--json").stdout)["moved"].startswith("the file's own order cannot run")
    done = memprof("plan", "reorder", path, "-o", "r.onnx")
    assert done.returncode == 0 and "the file's own order cannot run" in done.stderr and "in the model's order" not in done.stderr
    assert [operator.name for operator in onnx.load(tmp_path / "r.onnx").graph.node] == ["first", "second"]
    assert memprof("plan", "reorder", path, "-o", "m2.onnx", "--order", "model").returncode == 0
    for command in (["residency"], ["plot", "-o", "p.html"]):
        assert "the file's own order cannot run" in memprof("plan", command[0], path, *command[1:]).stderr


def test_show_columns_aligned_names_distinct(tmp_path: Path, memprof: Memprof) -> None:
    """Names as exporters make them, which are alike at both ends."""
    names = [f"/features/features.{number}/block/residual_connection/convolution_1/Conv_output_0" for number in range(12)]
    nodes = [
        node("Exp", ["x" if not number else names[number - 1]], [name], f"{name}/exponential") for number, name in enumerate(names[:-1])
    ]
    path = save(tmp_path / "m.onnx", [*nodes, node("Sum", names[:-1], [names[-1]])], [value("x", [100])], [value(names[-1], [100])])
    for words in ([], ["--steps"]):
        shown = memprof("plan", "show", path, *words).stdout
        for table in shown.split("\n\n"):
            lines = [line for line in table.splitlines() if line.startswith("|")]
            assert len({len(line) for line in lines}) <= 1
            first = [line.split("|")[1].strip() for line in lines]
            assert len(set(first)) == len(first)


def _onnx_results(path: Path, feed: dict[str, Any]) -> list[bytes]:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [result.tobytes() for result in session.run(None, feed)]


def test_reordered_onnx_same_results(wide: Path, memprof: Memprof) -> None:
    done = memprof("plan", "reorder", wide, "-o", "better.onnx", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["before_bytes"], answer["after_bytes"], answer["proven"]) == (1600, 808, True)
    better = wide.with_name("better.onnx")
    old, new = onnx.load(wide), onnx.load(better)
    onnx.checker.check_model(new, full_check=True)
    before, after = (sorted(operator.SerializeToString() for operator in model.graph.node) for model in (old, new))
    assert before == after
    old.graph.ClearField("node")
    new.graph.ClearField("node")
    assert old == new
    assert wide.stat().st_size == better.stat().st_size
    feed = {"x": np.linspace(-1, 1, 100, dtype=np.float32)}
    assert _onnx_results(wide, feed) == _onnx_results(better, feed)


def test_reorder_constants_before_readers(tmp_path: Path) -> None:
    nodes = [
        node("Constant", [], ["size"], value=numpy_helper.from_array(np.array([25], np.int64))),
        node("Exp", ["x"], ["a"], "a"),
        node("ConstantOfShape", ["size"], ["zeros"]),
        node("Add", ["x", "zeros"], ["b"], "b"),
        node("Mul", ["a", "b"], ["y"], "y"),
        node("Constant", [], ["unused"], value=numpy_helper.from_array(np.array([1], np.int64))),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [25])], [value("y", None)])
    graph = read(path, inline=False)
    assert [operator.name for operator in graph.operators] == ["a", "b", "y"]
    written.reorder(graph, (1, 0, 2), tmp_path / "r.onnx")
    made = [operator.output[0] for operator in onnx.load(tmp_path / "r.onnx").graph.node]
    assert made == ["size", "zeros", "b", "a", "y", "unused"]


def test_reorder_copies_external_data(tmp_path: Path, memprof: Memprof) -> None:
    path = save(tmp_path / "m.onnx", [node("MatMul", ["x", "w"], ["y"])], [value("x", [8, 8])], [value("y", None)], [weight("w", 8, 8)])
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "a folder").mkdir()
    done = memprof("plan", "reorder", path, "-o", "a folder/r.onnx")
    assert done.returncode == 0 and "its external data is written too: a folder/m.data" in done.stderr
    assert (tmp_path / "a folder" / "m.data").read_bytes() == (tmp_path / "m.data").read_bytes()
    feed = {"x": np.eye(8, dtype=np.float32)}
    assert _onnx_results(path, feed) == _onnx_results(tmp_path / "a folder" / "r.onnx", feed)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["wide.onnx", "-o", "wide.onnx"], 5, "is the model itself"),
        (["wide.onnx", "-o", "there.onnx"], 5, "exists; --force replaces it"),
        (["wide.onnx", "-o", "better.tflite"], 2, "is written to a .onnx file"),
        (["wide.onnx", "-o", "nowhere/better.onnx"], 5, "there is no folder nowhere"),
        (["wide.onnx", "-o", "better.onnx", "--order", "model"], 2, "has this order already"),
    ],
)
def test_reorder_refusals(wide: Path, memprof: Memprof, words: list[str], code: int, sentence: str) -> None:
    wide.with_name("there.onnx").write_text("mine")
    done = memprof("plan", "reorder", *words)
    assert done.returncode == code and sentence in done.stderr and len(done.stderr.splitlines()) == 1
    assert wide.with_name("there.onnx").read_text() == "mine"
    assert not list(wide.parent.glob(".*"))


@pytest.mark.timeout(120)
def test_reorder_planned_gain_measured(tmp_path: Path, memprof: Memprof) -> None:
    """TFLite keeps the file's order: of the 110 MiB that were planned, most must show in its resident memory."""
    pytest.importorskip("tflite_runtime")
    zoo.make("branches", tmp_path / "b.tflite", format="tflite")
    plan = json.loads(memprof("plan", "reorder", "b.tflite", "-o", "r.tflite", "--json").stdout)
    peaks = []
    for name in ("b", "r"):
        words = ["run", f"{name}.tflite", "-r", "tflite", "--set", "xnnpack=off", "--threads", "1", "--repeats", "1", "--runs", "1"]
        done = memprof(*words, "--warmup", "0", "-o", f"{name}.jsonl", "--json")
        assert done.returncode == 0, done.stderr
        peaks.append(max(row["rss_peak_bytes"] for row in json.loads(done.stdout) if row["phase"] == "EXECUTE"))
    planned_gain = plan["before_bytes"] - plan["after_bytes"]
    assert planned_gain > 100 << 20
    assert 0.9 * planned_gain < peaks[0] - peaks[1] < 1.1 * planned_gain


def test_onnxruntime_order_read_from_profile(founding: Path, memprof: Memprof, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = pytest.importorskip("onnxruntime")
    graph = read(founding)
    own = executed.onnxruntime_order(graph)
    names = [graph.operators[number].name for number in own.order]
    assert sorted(names) == sorted(["L", "M", "N", "P", "Add"]) and names[-1] == "Add"
    assert all(own.times_ns[number] >= 0 for number in own.order)
    content = json.loads(memprof("plan", "show", founding, "--order", "onnxruntime", "--json").stdout)
    assert tuple(content["chosen"]["order"]) == own.order
    source = f"read from the profile of a run made now: onnxruntime {runtime.__version__}, its default order"
    assert source in content["source"]
    monkeypatch.setattr(executed, "onnxruntime_order", lambda *_: own)
    assert source in memprof("plan", "show", founding, "--order", "onnxruntime").stdout
    assert source in memprof("plan", "residency", founding, "--order", "onnxruntime").stderr


def test_onnxruntime_follows_reordered_model(wide: Path, memprof: Memprof) -> None:
    pytest.importorskip("onnxruntime")
    memprof("plan", "reorder", wide, "-o", "better.onnx")
    graph = read(wide.with_name("better.onnx"))
    assert executed.onnxruntime_order(graph, "priority").order == tuple(range(len(graph.operators)))


def test_onnxruntime_order_ignores_branch_events(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(kind, ["x"], ["a"]), node("Relu", ["a"], [f"r{name}"])], name, [], [value(f"r{name}", [25])]
        )
        for name, kind in (("then", "Exp"), ("else", "Neg"))
    }
    nodes = [node("If", ["c"], ["y"], **branches), node("Relu", ["y"], ["z"]), node("Exp", ["z"], ["w"])]
    path = save(tmp_path / "m.onnx", nodes, [value("c", [], TensorProto.BOOL), value("x", [25])], [value("w", [25])])
    assert executed.onnxruntime_order(read(path), "priority").order == (0, 1, 2)


def test_onnxruntime_order_of_unrunnable_model(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = save(
        tmp_path / "m.onnx",
        [node("Magic", ["x"], ["y"], domain="com.example")],
        [value("x", [4])],
        [value("y", [4])],
        domains=("com.example",),
    )
    with pytest.raises(MeasurementError, match=r"does not run .*Magic"):
        executed.onnxruntime_order(read(path))


def chain(path: Path) -> Path:
    """x [1, 4] -> MatMul W1 [4, 8] -> Relu -> MatMul W2 [8, 2] -> y; 16, 32, 32 and 8 bytes, weights of 128 and 64."""
    nodes = [node("MatMul", ["x", "w1"], ["a"], "one"), node("Relu", ["a"], ["b"], "relu"), node("MatMul", ["b", "w2"], ["y"], "two")]
    return save(path, nodes, [value("x", [1, 4])], [value("y", [1, 2])], [weight("w1", 4, 8), weight("w2", 8, 2)])


def test_training_step_by_hand(tmp_path: Path) -> None:
    graph = read(chain(tmp_path / "m.onnx"))
    trained = training(graph, "adam", "at-once")
    assert trained.mapped.operators == (
        "one",
        "relu",
        "two",
        "loss",
        "two backward",
        "update w2",
        "relu backward",
        "one backward",
        "update w1",
    )
    assert sorted(graph.tensors[number].name for number in trained.kept) == ["b", "x"]  # a product's factors, and a rectifier's result
    assert (trained.kept_bytes, trained.trainable_bytes, trained.gradient_bytes, trained.state_bytes) == (48, 192, 192, 384)
    memory = [step.memory_bytes for step in steps(trained.mapped.problem, range(9))]
    assert memory == [
        16 + 32,  # x, a
        16 + 32 + 32,  # x, a, b
        16 + 32 + 8,  # x, b, y
        16 + 32 + 8 + 8,  # and the gradient of y
        16 + 32 + 8 + 8 + 32 + 64,  # and those of b and w2
        16 + 32 + 8 + 32 + 64,
        16 + 32 + 8 + 32 + 32,  # x, b, y and the gradients of b and a
        16 + 8 + 32 + 128,  # x, y, the gradients of a and w1
        8 + 128,
    ]
    after = training(graph, "sgd", "after")
    assert after.mapped.operators[-1] == "update all weights"
    assert peak(after.mapped.problem, range(8)) == 16 + 8 + 32 + 128 + 64  # w2's gradient waits
    assert after.state_bytes == 0


def test_gradient_sum_in_place(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "w"], ["a"]), node("Exp", ["a"], ["b"]), node("Tanh", ["a"], ["c"]), node("Add", ["b", "c"], ["y"])]
    trained = training(read(save(tmp_path / "m.onnx", nodes, [value("x", [25])], [value("y", [25])], [weight("w", 25)])))
    adding = [number for number, kind in enumerate(trained.mapped.kinds) if kind == "sum of gradients"]
    assert len(adding) == 1
    assert trained.mapped.problem.inplace[adding[0]] is not None


def test_training_skips_statistics_names_unknown(tmp_path: Path) -> None:
    norm = [weight(name, 3) for name in ("scale", "bias", "mean", "var")]
    nodes = [node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["a"]), node("CumSum", ["a", "axis"], ["y"])]
    axis = numpy_helper.from_array(np.array(0, np.int64), "axis")
    trained = training(read(save(tmp_path / "m.onnx", nodes, [value("x", [2, 3])], [value("y", [2, 3])], [*norm, axis])))
    assert trained.trainable_bytes == 24
    assert [unknown.names for unknown in trained.unknown] == [("CumSum (1)",)]


def test_show_training_step(tmp_path: Path, memprof: Memprof) -> None:
    shown = memprof("plan", "show", chain(tmp_path / "m.onnx"), "--mode", "training", "--optimizer", "momentum", "--gradients", "after")
    assert shown.returncode == 0, shown.stderr
    assert "all together after the backward pass" in shown.stdout and "momentum" in shown.stdout


def test_training_peak_parts_add_up(tmp_path: Path, memprof: Memprof) -> None:
    """In the chain the peak is in the backward step of the first product: x (kept), y, the gradients of a and w1."""
    words = ["plan", "show", chain(tmp_path / "m.onnx"), "--mode", "training", "--optimizer", "adam"]
    rows = {}
    for line in memprof(*words).stdout.split("Training in", 1)[1].split("\n\n")[1].splitlines()[2:]:
        label, at_peak, whole = (cell.strip().replace(",", "") for cell in line.strip("|").split("|"))
        rows[label] = (int(at_peak), int(whole) if whole else None)
    assert rows["activations kept for the backward pass"] == (16, 48)
    assert rows["gradients of weights"] == (128, 192)
    assert rows["other tensors"] == (8 + 32, None)
    assert rows["trained weights"] == (192, 192) and rows["optimizer's state (adam)"] == (384, 384)
    assert rows.pop("all together")[0] == sum(at_peak for at_peak, _ in rows.values())
    content = json.loads(memprof(*words, "--json").stdout)
    kept = sum(tensor["bytes"] for tensor in content["chosen"]["alive"] if tensor["name"] in ("x", "b"))
    assert kept == content["training"]["kept_activation_bytes_at_peak"] == 16


def test_gradient_sums_counted_once_at_peak(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [1, 4])], [value("y", [1, 4])], [weight("w", 4, 4)]))
    question = Question("training", gradients="after", time_limit_s=0)
    analysis = analyse(planned(graph, question), question)
    assert analysis.training is not None
    assert analysis.training.gradient_bytes == 64
    assert analysis.training.gradient_bytes_at_peak == 2 * 64  # two shares, at the step that makes the second or adds them


def test_residency_by_hand(tmp_path: Path) -> None:
    graph = read(chain(tmp_path / "m.onnx"))
    mapped = problem(graph)
    on_demand = residency(graph, mapped, range(3), 0, [1, 1, 2])
    assert on_demand.resident == (16 + 128 + 32, 32 + 32, 32 + 64 + 8)
    assert (on_demand.min_bytes, on_demand.max_bytes, on_demand.mean_bytes) == (64, 176, round((176 + 64 + 2 * 104) / 4))
    assert (on_demand.in_bytes, on_demand.out_bytes) == (16 + 128 + 64, 8)
    assert on_demand.all_bytes == 16 + 32 + 32 - 0 + 192 - 16
    assert on_demand.speed is None
    ahead = residency(graph, mapped, range(3), 1, [1, 1, 2])
    assert ahead.resident == (16 + 128 + 32, 32 + 32 + 64, 32 + 64 + 8)
    # w2 is moved while `relu` runs, a quarter of the run; with 1% to spare.
    assert ahead.speed == pytest.approx(64 / 0.26, rel=0.01)
    assert ahead.bandwidth(1e9) == pytest.approx(ahead.speed)
    assert ahead.slowed_ns(1e9, 64) == pytest.approx(0.25e9 + 1e9 + 0.5e9, rel=1e-3)


def test_residency_moves_wanted_tensors_back(tmp_path: Path) -> None:
    nodes = [node("Exp", ["x"], ["a"]), node("Exp", ["x"], ["b"]), node("Exp", ["b"], ["c"]), node("Add", ["a", "c"], ["y"])]
    graph = read(save(tmp_path / "m.onnx", nodes, [value("x", [25])], [value("y", [25])]))
    on_device = residency(graph, problem(graph), range(4))
    assert (on_device.in_bytes, on_device.out_bytes) == (100 + 100, 100 + 100)  # x and a in; a and y out


def test_residency_of_training_writes_back(tmp_path: Path) -> None:
    graph = read(chain(tmp_path / "m.onnx"))
    step = training(graph, "adam")
    on_device = residency(graph, step.mapped, range(step.mapped.problem.count), 0, updates=step.updates, states=2)
    assert on_device.out_bytes >= 3 * 192


def test_residency_figures_and_refusals(tmp_path: Path, memprof: Memprof) -> None:
    path = chain(tmp_path / "m.onnx")
    shown = memprof("plan", "residency", path, "--lookahead", "1", "--device-bandwidth", "200MB/s")
    assert shown.returncode == 0, shown.stderr
    assert all(word in shown.stdout for word in ("MIN", "AVR", "MAX", "transfers at 200.0 MB/s"))
    content = json.loads(memprof("plan", "residency", path, "--json").stdout)
    assert content["max_bytes"] == 176 and content["moved_bytes"] == 216
    assert memprof("plan", "residency", path, "--device-bandwidth", "0MB/s").returncode == 2
    assert memprof("plan", "residency", path, "--runs", "none.jsonl").returncode == 5


def test_residency_one_unit_per_table(tmp_path: Path, memprof: Memprof) -> None:
    path = save(
        tmp_path / "m.onnx",
        [node("MatMul", ["x", "w1"], ["a"]), node("MatMul", ["a", "w2"], ["y"])],
        [value("x", [1, 512])],
        [value("y", [1, 8])],
        [weight("w1", 512, 1024), weight("w2", 1024, 8)],
    )
    shown = memprof("plan", "residency", path, "--device-bandwidth", "200MB/s", "--lookahead", "1").stdout
    for title in ("Resident (MiB)", "Moved (MiB)", "Times (ms)"):
        rows = [line.strip("| ").rsplit("|", 1) for line in shown.split(title, 1)[1].split("\n\n")[1].splitlines()[2:]]
        assert rows and all(cell.strip() == "-" or float(cell) >= 0 for _, cell in rows)


def test_residency_beside_runs(tmp_path: Path, memprof: Memprof) -> None:
    pytest.importorskip("onnxruntime")
    path = chain(tmp_path / "m.onnx")
    words = ["--repeats", "1", "--runs", "1", "--warmup", "0"]
    assert memprof("run", path, "-r", "onnxruntime", "-o", "r.jsonl", *words).returncode == 0
    content = json.loads(memprof("plan", "residency", path, "--lookahead", "1", "--runs", "r.jsonl", "--json").stdout)
    assert content["run_ns"] > 0 and content["bandwidth_needed_bytes_per_s"] > 0
    assert content["measured"]["onnxruntime"]["rss_max_bytes"] > 1 << 20
    unmeasured = models.wide(tmp_path / "other.onnx")
    done = memprof("plan", "residency", unmeasured, "--runs", "r.jsonl")
    assert done.returncode == 5 and "no run in r.jsonl is of" in done.stderr
    page = memprof("page", "r.jsonl", "-o", "page.html")
    assert page.returncode == 0, page.stderr
    text = (tmp_path / "page.html").read_text()
    assert 'id="planned"' in text and "tensors, planned" in text
    path.write_bytes(path.read_bytes() + b"\x08\x09")  # another model by content: no plan beside these runs, but the reason
    memprof("page", "r.jsonl", "-o", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "its content differs" in text and "tensors, planned" not in text


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_plot_formats_and_replacement(wide: Path, memprof: Memprof, ending: str) -> None:
    done = memprof("plan", "plot", wide, "-o", f"p.{ending}")
    assert done.returncode == 0, done.stderr
    content = wide.with_name(f"p.{ending}").read_bytes()
    assert len(content) > 5000
    assert b"wide0" in content and b"no order needs less than" in content
    if ending == "html":
        assert memprof("plan", "plot", wide, "-o", f"p.{ending}").returncode == 0  # an earlier picture is replaced
    wide.with_name(f"p.{ending}").write_text("mine, and nothing that was drawn")
    done = memprof("plan", "plot", wide, "-o", f"p.{ending}")
    assert done.returncode == 5 and len(done.stderr.splitlines()) == 1


def _drawn_figure(path: Path) -> Any:
    pytest.importorskip("matplotlib")
    from memprof.reports.pictures import plan_picture

    question = Question(time_limit_s=60)
    plan = planned(read(path), question)
    return plan_picture.render(plan, analyse(plan, question))


def test_picture_tensors_distinct_without_names(tmp_path: Path) -> None:
    names = [f"convolution_{number}/without_activation" for number in range(16)]
    nodes = [node("Exp", [name], [following]) for name, following in zip(["x", *names], [*names, "y"], strict=False)]
    figure = _drawn_figure(save(tmp_path / "m.onnx", nodes, [value("x", [100])], [value("y", [100])]))
    written = [text.get_text() for text in figure.axes[1].texts if text.get_text()]
    assert "Exp 3" in written and len(written) > 10
    assert len(set(written)) == len(written) and not any("…" in text for text in written)


def test_picture_arena_height_to_scale(wide: Path) -> None:
    own, best = _drawn_figure(wide).axes[1:]
    assert best.get_position().height / own.get_position().height == pytest.approx(808 / 1600, rel=0.02)
    assert best.get_ylim()[1] / own.get_ylim()[1] == pytest.approx(808 / 1600, rel=0.02)  # in one scale


def test_picture_blocks_above_arena(tmp_path: Path) -> None:
    kinds = [f"/body/block.{block}/{kind}" for block in range(3) for kind in ("expand/Exp", "project/Exp")]
    nodes = [node("Exp", [f"t{number}"], [f"t{number + 1}"], name) for number, name in enumerate(kinds)]
    figure = _drawn_figure(save(tmp_path / "m.onnx", nodes, [value("t0", [100])], [value("t6", [100])]))
    written = [text.get_text() for text in figure.texts]
    assert [text for text in written if text in ("expand", "project")] == ["expand", "project"] * 3
    many = [node("Exp", [f"t{number}"], [f"t{number + 1}"], f"/body/block.{number // 20}/layer.{number}/Exp") for number in range(60)]
    figure = _drawn_figure(save(tmp_path / "many.onnx", many, [value("t0", [100])], [value("t60", [100])]))
    assert {"block.0", "block.1", "block.2"} <= {text.get_text() for text in figure.texts}


def test_analysis_of_chosen_and_best_order(wide: Path) -> None:
    question = Question(time_limit_s=60)
    plan = planned(read(wide), question)
    analysis = analyse(plan, question)
    assert analysis.chosen.peak_bytes == 1600 and analysis.best is not None and analysis.best.peak_bytes == 808
    assert analysis.chosen.operator == "widen2"
    table = rows(plan.mapped, analysis.best.order)
    assert max(row.memory_bytes for row in table) == 808
    assert all(row.memory_bytes == row.in_use_bytes + row.to_keep_bytes for row in table)


def test_order_in_json_by_number(wide: Path) -> None:
    graph = read(wide)
    mapped = problem(graph)
    wide.with_name("o.json").write_text(json.dumps([0, 3, 1, 4, 2, 5, "join"]))
    assert read_order(graph, mapped, wide.with_name("o.json")) == (0, 3, 1, 4, 2, 5, 6)
    with pytest.raises(InputError):
        read_order(graph, mapped, wide.with_name("missing"))
    wide.with_name("o.json").write_text(json.dumps([99]))
    with pytest.raises(UsageError):
        read_order(graph, mapped, wide.with_name("o.json"))


def test_random_operators_keep_order(tmp_path: Path) -> None:
    nodes = [node("RandomNormal", [], [f"r{n}"], f"draw{n}", shape=[1000]) for n in range(2)]
    nodes += [node("ReduceSum", [f"r{n}"], [f"s{n}"], f"sum{n}", keepdims=1) for n in range(2)]
    graph = read(save(tmp_path / "m.onnx", nodes, [], [value("s0", [1]), value("s1", [1])]))
    order = best_order(problem(graph).problem).order
    assert [graph.operators[number].name for number in order] == ["draw0", "sum0", "draw1", "sum1"]


def test_ten_thousand_nodes_in_seconds(tmp_path: Path) -> None:
    import time

    nodes = [node("Exp", [f"t{n}"], [f"t{n + 1}"]) for n in range(10_000)]
    path = save(tmp_path / "m.onnx", nodes, [value("t0", [10])], [value("t10000", [10])])
    begin = time.process_time()
    graph = read(path)
    assert steps(problem(graph).problem, range(10_000))[-1].peak_bytes == 80
    assert time.process_time() - begin < 10  # 1 s on an idle machine


def test_reorder_function_calls(tmp_path: Path, memprof: Memprof) -> None:
    wide = helper.make_function("local", "Wide", ["a"], ["c"], [node("Exp", ["a"], ["c"])], [helper.make_opsetid("", 18)])
    nodes = [node("Wide", ["x"], [f"w{n}"], f"w{n}", domain="local") for n in range(2)]
    nodes += [node("ReduceSum", [f"w{n}"], [f"s{n}"], f"s{n}") for n in range(2)]
    values = [value(f"w{n}", [100]) for n in range(2)]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [value("x", [100])],
        [value("s0", [1]), value("s1", [1])],
        functions=[wide],
        domains=("local",),
        values=values,
    )
    done = memprof("plan", "reorder", path, "-o", "r.onnx")
    assert done.returncode == 0, done.stderr
    assert [operator.name for operator in onnx.load(tmp_path / "r.onnx").graph.node] == ["w0", "s0", "w1", "s1"]
    feed = {"x": np.linspace(0, 1, 100, dtype=np.float32)}
    assert _onnx_results(path, feed) == _onnx_results(tmp_path / "r.onnx", feed)


def test_assumed_dimension_said_by_every_command(tmp_path: Path, memprof: Memprof) -> None:
    path = open_shaped(tmp_path / "m.onnx")
    assumption = "n taken as 1: --shape or --batch says otherwise"

    assert assumption in memprof("plan", "show", path).stdout
    assert assumption in memprof("plan", "residency", path).stdout
    assert json.loads(memprof("plan", "residency", path, "--json").stdout)["assumptions"] == [assumption]
    assert assumption in memprof("plan", "reorder", path, "-o", "again.onnx").stderr
    assert json.loads(memprof("plan", "reorder", path, "-o", "more.onnx", "--json").stdout)["assumptions"] == [assumption]
    assert assumption in memprof("plan", "plot", path, "-o", "plan.png").stderr


def test_plans_beside_run_shapes_and_threads(tmp_path: Path) -> None:
    path = open_shaped(tmp_path / "m.onnx")
    runs = [run_at(path, x=(1024, 64)), run_at(path, x=(2048, 64)), run_at(path, threads=2, x=(2048, 64)), run_at(path, inputs="in.npz")]

    plans = by_model(runs)["m.onnx"]
    peaks = [plan.analysis.chosen.peak_bytes for plan in plans if plan.analysis is not None]
    section = beside(runs, plans)

    assert peaks == [2 * 1024 * 64 * 4, 2 * 2048 * 64 * 4]
    assert section is not None
    assert [table.title for table in section.tables] == ["Sizes in MiB, x=1024x64", "Sizes in MiB, x=2048x64"]
    assert [[row[0] for row in table.rows] for table in section.tables] == [
        ["onnxruntime, default threads"],
        ["onnxruntime, default threads", "onnxruntime, 2 threads"],
    ]
    assert "Not planned: inputs came from a file, and the record of these runs does not hold their shapes." in section.notes


def test_plans_limited_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = open_shaped(tmp_path / "m.onnx")
    monkeypatch.setattr(measured, "_MOST", 2)
    plans = by_model([run_at(path, x=(extent, 64)) for extent in range(1, 6)])["m.onnx"]
    assert [plan.why for plan in plans] == ["", "", "only 2 models and shapes are planned"]
