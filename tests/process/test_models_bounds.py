"""No model file makes memprof take memory or time that the file could not account for, or read a file outside its folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.model_store import _linked, _store, boxed, into_store  # noqa: F401  (the fixtures)

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper
from support.plan_models import node, save, value, weight

from memprof.base.errors import InputError, MeasurementError
from memprof.models.identity import identify
from memprof.models.tensors import Files, Unparsed, tensors
from memprof.plan import executed
from memprof.plan.graphs import graph as graphs
from memprof.plan.graphs import isolated_onnx
from memprof.plan.graphs.isolated_onnx import Apart, Bounded, ModelRefusal
from memprof.plan.graphs.read import read
from memprof.plan.graphs.rewrite import reorder
from memprof.plan.graphs.weights import account

# Plans a model as `plan show` does and says what it took and what the process took for it.
_PLANNED = """
import sys
from pathlib import Path
from memprof.plan.analysis import Question, analyse, planned
from memprof.plan.graphs.read import read
question = Question(time_limit_s=1)
analysis = analyse(planned(read(Path(sys.argv[1])), question), question)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(analysis.chosen.peak_bytes, peak.split()[1])
"""


EXTENT = 2_147_483_648


def cast(path: Path) -> Path:
    inputs = [value("x", [EXTENT], TensorProto.INT64)]
    return save(path, [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], inputs, [value("y", [EXTENT])])


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="there is no /proc")
def test_large_dimension_planned_cheaply(tmp_path: Path) -> None:
    """onnx's data propagation makes an object for each element of a tensor of one dimension: 23 GiB for this one."""
    path = cast(tmp_path / "m.onnx")

    done = subprocess.run([sys.executable, "-c", _PLANNED, str(path)], capture_output=True, text=True, timeout=120, check=True)

    peak_bytes, process_kib = map(int, done.stdout.split())
    assert peak_bytes == EXTENT * (8 + 4)
    assert process_kib < 200 << 10


def test_onnx_process_memory_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load(cast(tmp_path / "m.onnx"))
    with Apart(model.ByteSize()) as apart:
        with pytest.raises(Bounded, match="64 MiB of memory"):
            apart.run("values", model)
        again = apart.run("shapes", model)  # in a new process, for the first one ended

    assert [dim.dim_value for dim in again.graph.output[0].type.tensor_type.shape.dim] == [EXTENT]
    monkeypatch.setattr(isolated_onnx, "_LEAST_RESULT", 0)
    monkeypatch.setattr(isolated_onnx, "_RESULT_EACH", 0)
    with Apart(model.ByteSize()) as apart, pytest.raises(Bounded, match="its result is larger than 0 MiB"):
        apart.run("shapes", model)


def test_onnx_error_text_passed_on(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])]))
    model.ClearField("opset_import")
    with Apart(model.ByteSize()) as apart, pytest.raises(ModelRefusal, match="No opset import"):
        apart.run("values", model)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    reasons = [each.what for each in read(tmp_path / "m.onnx").unknown]

    assert len(reasons) == 1
    assert reasons[0].startswith("shape inference gave up") and "No opset import" in reasons[0]


def test_large_dimension_found_by_inference(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Constant", [], ["zero"], value_ints=[0]),
        node("Constant", [], ["all"], value_ints=[-1]),
        node("Expand", ["zero", "s"], ["wide"]),
        node("Reshape", ["wide", "all"], ["flat"]),
        node("Cast", ["flat"], ["y"], to=TensorProto.INT32),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [50_000, 50_000])], [value("y", None, TensorProto.INT32)])

    shapes = {tensor.name: tensor.shape for tensor in read(path).tensors}

    assert shapes["y"] == (2_500_000_000,)


def test_onnx_functions_exploding_calls_refused(tmp_path: Path) -> None:
    """Forty functions, each of which calls the one before twice, stand for 2^40 operators."""
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "f0", ["x"], ["y"], [node("Relu", ["x"], ["y"])], sets)]
    for number in range(1, 40):
        calls = [node(f"f{number - 1}", ["x"], ["a"], domain="f"), node(f"f{number - 1}", ["a"], ["y"], domain="f")]
        functions.append(helper.make_function("f", f"f{number}", ["x"], ["y"], calls, sets))
    path = save(
        tmp_path / "m.onnx",
        [node("f39", ["x"], ["y"], domain="f")],
        [value("x", [4])],
        [value("y", [4])],
        functions=functions,
        domains=["f"],
    )

    with pytest.raises(InputError, match="local functions cannot be put in place: it takes more than"):
        read(path)


def test_tensor_beyond_any_memory_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [value("x", [2**62, 2**62])], [value("y", [2**62, 2**62])])

    with pytest.raises(InputError, match=r"its tensor y would take 8.51e\+37 bytes, more than any memory has"):
        read(path)


def test_tensor_with_too_many_dimensions(tmp_path: Path) -> None:
    wide = [2**40] * 50_000
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [value("x", wide)], [value("y", wide)])
    assert "y (it has 50,000 dimensions)" in read(path).unsized

    tensor = TensorProto(name="w", data_type=1, dims=wide)
    path = save(tmp_path / "w.onnx", [node("Add", ["x", "w"], ["y"])], [value("x", [1])], [value("y", [1])], [tensor])
    with pytest.raises(InputError, match="weight w has 50,000 dimensions"):
        read(path)
    with pytest.raises(Unparsed):
        tensors(path)


def test_graph_with_too_many_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], [f"y{number}"]) for number in range(6)], [value("x", [1])], [value("y5", [1])])
    read(path)
    monkeypatch.setattr(graphs, "MOST_OPERATORS", 5)

    with pytest.raises(InputError, match="it has more than 5 operators, which is more than memprof plans"):
        read(path)


def test_external_data_forged_entry_refused(tmp_path: Path) -> None:
    tensor = weight("w", 2)
    entry = tensor.external_data.add()
    entry.key, entry.value = "memprof.place", "-5 nothing"
    path = save(tmp_path / "m.onnx", [node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", [2])], [tensor])

    with pytest.raises(InputError, match="the place of w in it is damaged"):
        read(path)


def test_overlapping_weights_refused(tmp_path: Path) -> None:
    """Thirty thousand tensors that share a file of a mebibyte would be 30 GB to read."""
    tensors_ = [weight(f"w{number}", 2000) for number in range(50)]
    for number, tensor in enumerate(tensors_):
        onnx.external_data_helper.set_external_data(tensor, "w.bin", 4 * number, 8000)
        tensor.ClearField("raw_data")
    nodes = [node("Add", ["x", tensor.name], [f"y{number}"]) for number, tensor in enumerate(tensors_)]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [2000])], [value("y0", [2000])], tensors_)
    (tmp_path / "w.bin").write_bytes(bytes(8200))

    with pytest.raises(InputError, match="the weights in it lie over one another, which no model's do"):
        account(read(path))
    for tensor in tensors_:
        next(entry for entry in tensor.external_data if entry.key == "offset").value = "0"
    accounted = account(read(save(path, nodes, [value("x", [2000])], [value("y0", [2000])], tensors_)))
    assert (accounted.duplicated.count, accounted.duplicated.bytes) == (49, 49 * 8000)


def test_onnxruntime_profile_with_bad_numbers(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"], name="r")], [value("x", [1])], [value("y", [1])])
    graph = read(path)
    event = {"cat": "Node", "name": "r_kernel_time", "ts": 1, "dur": 2, "args": {"node_index": 0, "op_name": "Relu"}}
    profile = tmp_path / "profile.json"

    profile.write_text(json.dumps([event]))
    assert executed.profiled(graph, profile).times_ns == (2000,)
    for changed in ({"ts": float("inf")}, {"dur": "9" * 5000}, {"args": {"node_index": -7, "op_name": "Relu"}}, {"args": []}, {"name": 3}):
        profile.write_text(json.dumps([{**event, **changed}]))
        with pytest.raises(MeasurementError, match="does not have 1 of 1 operators"):
            executed.profiled(graph, profile)
    for text in ("[" * 100_000, '[{"cat": "Node"', "{}"):
        profile.write_text(text)
        with pytest.raises(InputError, match="this is not a profile of onnxruntime"):
            executed.profiled(graph, profile)


def test_link_inside_model_folder_followed(boxed: Path) -> None:
    (boxed.parent / "w.bin").rename(boxed.parent / "kept.bin")
    _linked(boxed.parent / "w.bin", "kept.bin")

    assert [Path(file.path).name for file in identify(boxed).files] == ["m.onnx", "w.bin"]
    (tensor,) = tensors(boxed)
    with Files() as files:
        assert bytes(files.data(tensor)) == bytes(range(256))
    assert read(boxed)


def test_linked_model_folder_of_target(boxed: Path) -> None:
    """People link models, under another name too. What the model names lies beside the model itself."""
    alias = boxed.parents[1] / "best.onnx"
    alias.symlink_to(boxed)

    model = identify(alias)

    assert (model.name, model.path) == ("best.onnx", str(boxed))
    assert [file.path for file in model.files] == [str(boxed), str(boxed.parent / "w.bin")]
    assert tensors(alias) == tensors(boxed)
    assert read(alias)
    (boxed.parents[1] / "other").mkdir()
    reorder(read(alias), [0], boxed.parents[1] / "other" / "new.onnx")
    assert (boxed.parents[1] / "other" / "w.bin").read_bytes() == bytes(range(256))


def test_hugging_face_cache_links_followed(boxed: Path) -> None:
    """snapshots/REVISION/NAME is a link to blobs/HASH: the only way out of a model's folder, and into one place."""
    top = boxed.parents[1]
    snapshot = top / "hub" / "snapshots" / "1f" / "onnx"
    snapshot.mkdir(parents=True)
    (top / "hub" / "blobs").mkdir()
    for name, blob in (("m.onnx", "b0"), ("w.bin", "b1")):
        (boxed.parent / name).rename(top / "hub" / "blobs" / blob)
        (snapshot / name).symlink_to(f"../../../blobs/{blob}")

    model = identify(snapshot / "m.onnx")

    assert model.path == str(snapshot / "m.onnx"), "its ending tells the format, and the blob has none"
    assert [file.path for file in model.files] == [str(snapshot / "m.onnx"), str(snapshot / "w.bin")]
    assert tensors(snapshot / "m.onnx") and read(snapshot / "m.onnx")
    _linked(snapshot / "w.bin", "../../../../mine.bin")
    with pytest.raises(InputError, match="which is not a file in the model's folder"):
        identify(snapshot / "m.onnx")
    (top / "hub" / "blobs" / "mine").symlink_to("../../mine.bin")
    _linked(snapshot / "w.bin", "../../../blobs/mine")
    with pytest.raises(InputError, match="which is not a file in the model's folder"):
        identify(snapshot / "m.onnx")


ANNEX = ".git/annex/objects/{0}x/{0}Y/{1}/{1}"
DVC = ".dvc/cache/files/md5/{0}0/{2}"


@pytest.mark.parametrize("form", [ANNEX, ".git/annex/objects/{0}f0/{0}f1/{1}/{1}", DVC, ".dvc/cache/{0}0/{2}"])
def test_git_annex_and_dvc_links_followed(boxed: Path, form: str) -> None:
    """A repository whose model and data are links: it is read with all its files, where they stand, and nothing else is."""
    repository = boxed.parents[1]
    before, digests = identify(boxed), tensors(boxed)
    into_store(repository, form, "box/m.onnx", "box/w.bin")

    model = identify(boxed)

    assert (model.path, model.sha256) == (str(boxed), before.sha256), "not the folder of the content, where nothing lies beside it"
    assert [file.path for file in model.files] == [str(boxed), str(boxed.parent / "w.bin")]
    assert tensors(boxed) == digests and read(boxed)
    alias = repository / "best.onnx"
    alias.symlink_to("box/m.onnx")
    assert identify(alias).files == model.files

    _store(repository, form, 1, "w.bin").unlink()
    _store(repository, form, 1, "w.bin").symlink_to(repository / "mine.bin")
    for reader in (identify, tensors, read):
        with pytest.raises(InputError, match=r"w\.bin is a link to .*mine\.bin, which is not a file in the model's folder"):
            reader(boxed)


def test_executed_order_of_linked_model(boxed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(words: list[str], *, input: str, **_: object) -> None:
        asked.append(json.loads(input)["model"])
        raise subprocess.TimeoutExpired(words, 1)

    into_store(boxed.parents[1], ANNEX, "box/m.onnx", "box/w.bin")
    graph = read(boxed)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(MeasurementError, match="did not run"):
        executed.onnxruntime_order(graph)
    assert asked == [str(boxed)]
