"""Which inputs a model file declares, which of their dimensions are open, and that this is said wherever a 1 was taken for them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest
from msgspec.structs import replace
from support import sample_runs
from support.manual import ROOT
from support.model_inputs import model

import memprof as library
from memprof import zoo
from memprof.base.errors import UsageError
from memprof.campaign.fleet import payload
from memprof.explain import activations, engine
from memprof.models import inputs
from memprof.subjects import orders, shards, suite
from memprof.subjects.suite import MS, Suite, Variant

onnx = pytest.importorskip("onnx")


def test_open_dimensions_remarked_and_recorded(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    suite = Suite(models=(str(model(tmp_path, ("n", 3))),), variants=(Variant(runtime="onnxruntime"),))
    planned = orders.plan(suite)
    assert [remark for remark in planned.remarks if "taken as 1: x runs as 1x3" in remark]
    assert all(order.job.assumed == {"x": (1, 3)} for order in planned.orders)
    given = orders.plan(Suite(models=suite.models, variants=suite.variants, shapes={"x": (4, 3)}))
    assert not any("taken as 1" in remark for remark in given.remarks) and given.orders[0].job.assumed == {}


def test_failure_names_assumed_shapes(memprof, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    # A convolution of 3 x 3 without padding has nothing to do on 1 x 1.
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 3, 3], [0.0] * 9)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["out"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "h", "w"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "conv.onnx")
    done = memprof("run", "conv.onnx", "-r", "onnxruntime", "--repeats", "1", "-o", "runs.jsonl")
    assert done.returncode == 4
    (failed,) = (line for line in done.stderr.splitlines() if "failed:" in line)
    assert "taken as 1: x runs as 1x1x1x1" in failed
    assert "taken as 1: x runs as 1x1x1x1" in done.stdout, "the table's note"
    explained = memprof("explain", "conv.onnx", "-r", "onnxruntime")
    assert explained.returncode == 4 and "taken as 1: x runs as 1x1x1x1" in explained.stderr.splitlines()[-1]


def test_explain_shows_shapes(memprof, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model(tmp_path, ("n", 3))
    done = memprof("explain", "open.onnx", "-r", "onnxruntime", "--runs", "1", "--warmup", "0", "-o", "why.json")
    assert done.returncode == 0, done.stderr
    assert "x=1x3 (open dimensions taken as 1: --shape)" in done.stdout.splitlines()[0]
    assert "taken as 1: x runs as 1x3" in done.stderr
    assert json.loads((tmp_path / "why.json").read_text())["assumed"] == {"x": [1, 3]}


def test_plan_uses_measured_shapes(tmp_path: Path) -> None:
    path, arrays = model(tmp_path, ("n", 1024)), tmp_path / "in.npz"
    numpy.savez(arrays, x=numpy.zeros((1000, 1024), numpy.float32))
    job = sample_runs.job()
    job = replace(job, model=replace(job.model, path=str(path)))
    assert activations.of_graph(path, engine._shapes(job)).highest_bytes == 2 * 4 * 1024
    from_file = replace(job, inputs=str(arrays))
    assert activations.of_graph(path, engine._shapes(from_file)).highest_bytes == 2 * 4 * 1024 * 1000
    asked = replace(job, shapes={"x": (10, 1024)})
    assert activations.of_graph(path, engine._shapes(asked)).highest_bytes == 2 * 4 * 1024 * 10
    assert engine._shapes(replace(job, runtime="./mine.py")) is None, "it may make its inputs in any size"
    arrays.write_bytes(b"torn")
    assert engine._shapes(from_file) is None


PRINTS = """
class Runtime:
    version = "1"
    def load(self, model, options): pass
    def prepare(self):
        import sys
        sys.stderr.write("line one\\nUnsupported operation: MIRROR_PAD\\nline three\\n")
        raise RuntimeError("it does not compile")
    def execute(self): pass
"""


def test_failure_shows_runtime_reason(memprof, tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(PRINTS)
    (tmp_path / "net.bin").write_bytes(b"model")
    done = memprof("run", "net.bin", "-r", "./prints.py", "--repeats", "1", "-o", "runs.jsonl")
    assert done.returncode == 4
    for text in (done.stderr, done.stdout.replace("\\", "")):
        assert "it does not compile; it printed: Unsupported operation: MIRROR_PAD" in text
        assert "line three" not in text
    for command in ("run", "explain"):
        loud = memprof(command, "net.bin", "-r", "./prints.py", "--verbose", *(("-o", "more.jsonl") if command == "run" else ()))
        assert "line one" in loud.stderr and "line three" in loud.stderr, command


def ran_with(suite: Suite) -> dict[tuple[str, str], dict[str, tuple[int, ...]]]:
    return {(order.job.model.name, order.job.variant): dict(order.job.shapes) for order in orders.plan(suite).orders}


def test_shapes_precedence_in_suite(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model(tmp_path, ("n", 3), ("m",), name="a.onnx")
    model(tmp_path, ("n", 3), ("m",), name="b.onnx")
    (tmp_path / "suite.toml").write_text(
        """
        models = ["b.onnx"]
        shape = {x = [1, 3], y = [1]}
        [[model]]
        path = "a.onnx"
        shape.x = [2, 3]
        [[variant]]
        name = "own"
        runtime = "onnxruntime"
        shape = {x = [4, 3]}
        [[variant]]
        name = "plain"
        runtime = "onnxruntime"
        """
    )
    read = suite.read(tmp_path / "suite.toml")
    expected = {
        ("b.onnx", "own"): {"x": (4, 3), "y": (1,)},
        ("b.onnx", "plain"): {"x": (1, 3), "y": (1,)},
        ("a.onnx", "own"): {"x": (4, 3), "y": (1,)},
        ("a.onnx", "plain"): {"x": (2, 3), "y": (1,)},
    }
    assert ran_with(read) == expected
    for number in (1, 2):  # a shard's and a fleet's comparison of one model
        part = shards.shard(read, number, 2)
        assert part is not None
        assert ran_with(part) == {place: shapes for place, shapes in expected.items() if place[0] == Path(part.models[0]).name}
    sent = [task.suite for task in payload.packed(read, payload.MachineChoice(), [])]
    assert [suite.shapes["x"] for suite in sent] == [(1, 3), (2, 3)]
    assert [variant.shapes for variant in sent[0].variants] == [{"x": (4, 3)}, {}]


def test_shapes_of_variant_option(memprof, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model(tmp_path, ("n", 3))
    done = memprof(
        "run",
        "open.onnx",
        "--variant",
        "two=onnxruntime,shape.x=2x3",
        "--variant",
        "open=onnxruntime",
        "--repeats",
        "1",
        "-o",
        "runs.jsonl",
    )
    assert done.returncode == 0, done.stderr
    assert "x=2x3 (two), x=1x3 (open dimensions taken as 1: --shape) (open)" in done.stdout.splitlines()[2]
    assert "open.onnx, open: open dimensions of the model are taken as 1" in done.stderr
    refused = memprof("run", "open.onnx", "--variant", "two=onnxruntime,shape.x=2xn", "-o", "more.jsonl")
    assert refused.returncode == 2 and "write shape.INPUT=1x3x224x224" in refused.stderr


@pytest.mark.parametrize("command", ["run", "explain", "tune", "fit"])
def test_shape_of_unknown_input_refused(memprof, tmp_path: Path, command: str) -> None:
    pytest.importorskip("onnxruntime")
    model(tmp_path, ("n", 3))
    done = memprof(command, "open.onnx", "-r", "onnxruntime", "--shape", "weight=3")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == "memprof: open.onnx has no input 'weight'; there is x"
    assert [path.name for path in tmp_path.iterdir()] == ["open.onnx"], "nothing was measured"


def test_shape_for_the_models_that_have_its_input(tmp_path: Path) -> None:
    """Of several models each takes the shapes and values of its own inputs; a name that none has is refused."""
    pytest.importorskip("onnxruntime")
    paths = (str(model(tmp_path, ("n", 3), name="one.onnx")), str(model(tmp_path, ("n", 3), ("m",), (1,), name="three.onnx")))
    suite = Suite(models=paths, variants=(Variant(runtime="onnxruntime"),), shapes={"x": (2, 3), "y": (4,)}, values={"z": "0.5"})
    expected = {"one.onnx": ({"x": (2, 3)}, {}), "three.onnx": (suite.shapes, suite.values)}
    parts = (*shards.comparisons(suite), *(shards.shard(suite, number, 2) for number in (1, 2)))
    for chosen, models in ((suite, set(expected)), *zip(parts, [{"one.onnx"}, {"three.onnx"}] * 2, strict=True)):
        assert chosen is not None
        jobs = [order.job for order in orders.plan(chosen).orders]
        assert {job.model.name for job in jobs} == models
        assert all((job.shapes, job.values) == expected[job.model.name] for job in jobs)
    with pytest.raises(UsageError, match="has no input 'c'"):
        orders.plan(replace(suite, shapes={"c": (2, 3)}))


def test_inputs_file_unknown_input_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    numpy.savez(tmp_path / "in.npz", images=numpy.zeros((1, 3), numpy.float32))
    given = Suite(
        models=(str(model(tmp_path, ("n", 3), name="a.onnx")),),
        variants=(Variant(runtime="onnxruntime"),),
        inputs=str(tmp_path / "in.npz"),
    )
    with pytest.raises(UsageError, match=re.escape("a.onnx has no input 'images'; there is x")):
        orders.plan(given)


def test_shape_size_too_large_refused(tmp_path: Path) -> None:
    """Those of an option, of a suite's variant, and of an array without elements; the run of such a job could not be written."""
    pytest.importorskip("onnxruntime")
    large = 1 << 63
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (0, {large}), }}\n".encode()
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    every = Suite(models=(str(model(tmp_path, ("n", "m"))),), variants=(Variant(runtime="onnxruntime"),))
    for changes in (
        {"shapes": {"x": (1, large)}},
        {"variants": (Variant(runtime="onnxruntime", shapes={"x": (large, 1)}),)},
        {"inputs": str(tmp_path / "in.npz")},
    ):
        with pytest.raises(UsageError, match="a size of x is above 9223372036854775807, the most that a dimension can have"):
            orders.plan(replace(every, **changes))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run -r onnxruntime --shape x=4,3", "--shape x=4,3: in.npz has x as 2x3"),
        ("run --variant a=onnxruntime,shape.x=4x3", "variant a: shape x=4,3: in.npz has x as 2x3"),
        ("explain -r onnxruntime --shape x=4,3", "--shape x=4,3: in.npz has x as 2x3"),
        ("grow -r onnxruntime --shape x=4,3", "--shape x=4,3: in.npz has x as 2x3"),
        ("grow -r onnxruntime --shapes x=N,3;N~in~2,4", "--shapes x=4,3: in.npz has x as 2x3"),
        ("scale -r onnxruntime --vary n=1..4", "--vary n: in.npz has x, of which it is a dimension"),
    ],
)
def test_shape_beside_file_of_inputs(memprof, tmp_path: Path, words: str, sentence: str) -> None:
    """The array alone would be fed, under the heading of another shape."""
    pytest.importorskip("onnxruntime")
    numpy.savez(tmp_path / "in.npz", x=numpy.zeros((2, 3), numpy.float32))
    command, *rest = (word.replace("~", " ") for word in words.split(" "))

    done = memprof(command, model(tmp_path, ("n", 3)), *rest, "--inputs", "in.npz")

    assert done.returncode == 2 and done.stderr.splitlines()[-1] == f"memprof: {sentence}; leave one of the two out"


def test_shape_beside_folder_of_inputs(memprof, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "in").mkdir()
    numpy.savez(tmp_path / "in" / "0.npz", x=numpy.zeros((2, 3), numpy.float32))

    done = memprof("grow", model(tmp_path, ("n", 3)), "-r", "onnxruntime", "--inputs", "in", "--shape", "x=4,3")

    assert (done.returncode, done.stderr) == (2, "memprof: --shape x=4,3: 0.npz has x as 2x3; leave one of the two out\n")


@pytest.mark.parametrize("settings", ["openvino", "tvm,runtime_only=on"])  # the whole of TVM takes twice the time to import
def test_note_on_open_dimensions(memprof, tmp_path: Path, settings: str) -> None:
    """A runtime that can leave a dimension open, and can fix it, says which of both was measured, for each input."""
    pytest.importorskip(settings.partition(",")[0])
    model(tmp_path, ("n", 3), ("m", 3))
    words = ("run", "open.onnx", "--variant", f"a={settings},shape.x=1x3", "--repeats", "1", "--runs", "1", "-o", "runs.jsonl")

    done = memprof(*words)

    assert done.returncode == 0, done.stderr
    kept = "- a: the model kept its open dimensions of y, which can take other memory than to fix them by --shape"
    assert {kept, "- a: the model's open dimensions were fixed to x=1,3"} <= set(done.stdout.splitlines())


def open_tflite(folder: Path) -> Path:
    """x:0 + x:0, with an open first dimension; the signature calls it x_1."""
    from support import plan_tflite

    tensors = [plan_tflite.tensor(name, (1, 300_000), shapeSignature=[-1, 300_000]) for name in ("x:0", "y:0")]
    options = plan_tflite.table("AddOptionsT")
    graph = plan_tflite.subgraph("main", tensors, [0], [1], [plan_tflite.operator(0, (0, 0), (1,), options)])
    return plan_tflite.write(folder / "open.tflite", ["ADD"], [graph], signature=({"x_1": 0}, {"y_1": 1}))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ("onert", "x:0"),
        ("onert-native", "x:0"),
        ("tflite", "x:0"),
        ("litert", "x:0"),
        ("litert,api=compiled_model", "x:0"),
        ("litert,api=compiled_model", "x_1"),
    ],
)
def test_open_dimension_of_tflite(memprof, tmp_path: Path, settings: str, name: str) -> None:
    """What memprof takes as 1 runs, and what is given by a name that memprof prints, as a shape or as an array, runs with its size."""
    pytest.importorskip("ai_edge_litert")
    package = settings.partition(",")[0].partition("-")[0]
    pytest.importorskip({"tflite": "tflite_runtime", "litert": "ai_edge_litert"}.get(package, package))
    open_tflite(tmp_path)
    numpy.savez(tmp_path / "in.npz", **{name: numpy.zeros((9, 300_000), numpy.float32)})
    words = ("run", "open.tflite", "--variant", f"a={settings}", "--repeats", "1", "--runs", "1")
    given = ((), ("--shape", f"{name}=9,300000"), ("--inputs", "in.npz"))
    for number, more in enumerate(given if "native" not in settings else given[:2]):
        done = memprof(*words, *more, "-o", f"{number}.jsonl")
        assert done.returncode == 0, done.stderr
    peaks = [run.height_bytes for path in sorted(tmp_path.glob("?.jsonl")) for run in library.load(str(path))]
    assert all(peak - peaks[0] > 16 << 20 for peak in peaks[1:]), peaks  # two tensors of nine rows instead of one


READS = """
import numpy
class Runtime:
    version = "1"
    def load(self, model, options): self.options = options
    def prepare(self): pass
    def execute(self):
        made = bytearray(b"1" * self.options.shapes["x"][0])
        print(len(made), sorted(numpy.load(self.options.inputs)), file=open("seen.txt", "w"))
"""


def test_user_runtime_reads_shapes_and_inputs(memprof, tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(READS)
    (tmp_path / "net.bin").write_bytes(b"model")
    numpy.savez(tmp_path / "in.npz", tokens=numpy.zeros(3))
    given = ("--shape", "x=50", "--inputs", "in.npz", "--repeats", "1", "-o")
    done = memprof("run", "net.bin", "-r", "./reads.py", *given, "runs.jsonl")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen.txt").read_text() == "50 ['tokens']\n"
    assert "no effect" not in done.stdout + done.stderr

    (tmp_path / "deaf.py").write_text(
        "class Runtime:\n    def load(self, model, options): pass\n    prepare = execute = lambda self: None\n"
    )
    done = memprof("run", "net.bin", "-r", "./deaf.py", *given, "deaf.jsonl")
    assert done.returncode == 0, done.stderr
    assert "deaf: this runtime did not look at options.shapes and options.inputs, which had no effect" in done.stdout


def test_measure_takes_command_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    path = model(tmp_path, ("n", 3))
    numpy.savez(tmp_path / "in.npz", x=numpy.zeros((2, 3), numpy.float32))
    monkeypatch.setattr(
        "memprof.campaign.campaign.measure", lambda orders, *rest: [replace(sample_runs.run(), job=order.job) for order in orders]
    )
    measured_run, *_ = library.measure(
        path, "onnxruntime", shapes={"x": [2, 3]}, inputs=tmp_path / "in.npz", timeout="30s", cache="cold", deterministic=True
    )
    job = measured_run.job
    assert (job.model.path, job.runtime, dict(job.shapes), dict(job.given)) == (str(path), "onnxruntime", {"x": (2, 3)}, {"x": (2, 3)})
    assert (job.timeout_ns, job.cache, job.deterministic, job.threads) == (30_000 * MS, "cold", True, 1)


def test_troubleshooting_opens_batch(tmp_path: Path) -> None:
    """The command of the manual, with the names and sizes of another net."""
    (command,) = re.findall(r'`python3 (-c "[^"]*update_model_dims[^"]*")`', (ROOT / "docs" / "troubleshooting.md").read_text("utf-8"))
    zoo.make("mnist", tmp_path / "model.onnx", format="onnx")
    (before,) = inputs.inputs(tmp_path / "model.onnx")
    words = shlex.split(command.replace("3, 299, 299", ", ".join(map(str, before.shape[1:]))).replace("1000", "10"))
    subprocess.run([sys.executable, *words], cwd=tmp_path, check=True)

    (opened,) = inputs.inputs(tmp_path / "open.onnx")
    assert (before.shape[0], opened.shape) == (1, (None, *before.shape[1:])) and opened.dimensions[0] == "batch"
