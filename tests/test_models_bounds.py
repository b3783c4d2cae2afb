"""No model file makes memprof take memory or time that the file could not account for, or read a file outside its folder."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from examples import tried

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper
from plan_models import node, save, value, weight

from memprof.errors import InputError, MeasurementError, MemprofError
from memprof.models import Torn, flatbuffer
from memprof.models.identity import identify
from memprof.models.inputs import inputs, names
from memprof.models.tensors import Files, Unparsed, tensors
from memprof.plan import executed
from memprof.plan.analysis import Question, analyse, planned
from memprof.plan.graphs import graph as graphs
from memprof.plan.graphs.onnx_apart import Apart, Bounded, Refused
from memprof.plan.graphs.read import read
from memprof.plan.graphs.weights import account
from memprof.plan.graphs.written import reorder
from memprof.programs import native

FAST = Question(time_limit_s=0)
# Plans a model as `plan show` does and says what it took and what the process took for it.
_PLANNED = """
import sys
import zipfile
from pathlib import Path
from memprof.plan.analysis import Question, analyse, planned
from memprof.plan.graphs.read import read
from memprof.plan.graphs.weights import account
from memprof.programs import native
question = Question(time_limit_s=1)
analysis = analyse(planned(read(Path(sys.argv[1])), question), question)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(analysis.chosen.peak_bytes, peak.split()[1])
"""


def cast(path: Path, extent: int, kind: int) -> Path:
    return save(path, [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], [value("x", [extent], kind)], [value("y", [extent])])


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="there is no /proc")
@pytest.mark.parametrize(("extent", "kind"), [(2147483648, TensorProto.INT64), (50_000_000, TensorProto.FLOAT)])
def test_a_large_dimension_costs_nothing_to_plan(tmp_path: Path, extent: int, kind: int) -> None:
    """onnx's data propagation makes an object for each element of a tensor of one dimension: 23 and 6.9 GiB for these."""
    path = cast(tmp_path / "m.onnx", extent, kind)

    done = subprocess.run([sys.executable, "-c", _PLANNED, str(path)], capture_output=True, text=True, timeout=120, check=True)

    peak_bytes, process_kib = map(int, done.stdout.split())
    assert peak_bytes == extent * (8 if kind == TensorProto.INT64 else 4) + extent * 4
    assert process_kib < 200 << 10


def test_onnx_s_own_code_has_limits_and_says_which(tmp_path: Path) -> None:
    model = onnx.load(cast(tmp_path / "m.onnx", 2147483648, TensorProto.INT64))
    with Apart(model.ByteSize()) as apart:
        with pytest.raises(Bounded, match="64 MiB of memory"):
            apart.run("values", model)
        again = apart.run("shapes", model)  # in a new process, for the first one ended

    assert [dim.dim_value for dim in again.graph.output[0].type.tensor_type.shape.dim] == [2147483648]


def test_onnx_s_own_words_come_back(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])]))
    model.ClearField("opset_import")
    with Apart(model.ByteSize()) as apart, pytest.raises(Refused, match="No opset import"):
        apart.run("values", model)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    reasons = [each.what for each in read(tmp_path / "m.onnx").unknown]

    assert len(reasons) == 1
    assert reasons[0].startswith("shape inference gave up") and "No opset import" in reasons[0]


def test_a_large_dimension_that_only_inference_finds(tmp_path: Path) -> None:
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


def test_functions_that_call_functions_without_end_are_refused(tmp_path: Path) -> None:
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


def test_sizes_beyond_any_memory_are_a_sentence(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [value("x", [2**62, 2**62])], [value("y", [2**62, 2**62])])

    with pytest.raises(InputError, match=r"its tensor y would take 8.51e\+37 bytes, more than any memory has"):
        read(path)


def test_more_dimensions_than_any_model_has(tmp_path: Path) -> None:
    wide = [2**40] * 50_000
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], [value("x", wide)], [value("y", wide)])
    assert "y (it has 50,000 dimensions)" in read(path).unsized

    tensor = TensorProto(name="w", data_type=1, dims=wide)
    path = save(tmp_path / "w.onnx", [node("Add", ["x", "w"], ["y"])], [value("x", [1])], [value("y", [1])], [tensor])
    with pytest.raises(InputError, match="weight w has 50,000 dimensions"):
        read(path)
    with pytest.raises(Unparsed):
        tensors(path)


def test_more_operators_than_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", ["x"], [f"y{number}"]) for number in range(6)], [value("x", [1])], [value("y5", [1])])
    read(path)
    monkeypatch.setattr(graphs, "MOST_OPERATORS", 5)

    with pytest.raises(InputError, match="it has more than 5 operators, which is more than memprof plans"):
        read(path)


@pytest.mark.parametrize("location", ["../../../etc/passwd", "/etc/passwd", "a/../../w.bin", "..\\w.bin", "."])
def test_external_data_outside_the_folder_is_refused_by_every_reader(tmp_path: Path, location: str) -> None:
    tensor = weight("w", 8, 8)
    onnx.external_data_helper.set_external_data(tensor, location, 0, 256)
    tensor.ClearField("raw_data")
    folder = tmp_path / "model"
    folder.mkdir()
    path = save(folder / "m.onnx", [node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 8])], [value("y", [1, 8])], [tensor])
    (tmp_path / "w.bin").write_bytes(bytes(256))

    for reader in (identify, tensors, read):
        with pytest.raises(InputError, match="which is not a file in the model's folder: it is not read"):
            reader(path)


def test_an_entry_that_looks_like_memprof_s_own_is_held_against_the_file(tmp_path: Path) -> None:
    tensor = weight("w", 2)
    entry = tensor.external_data.add()
    entry.key, entry.value = "memprof.place", "-5 nothing"
    path = save(tmp_path / "m.onnx", [node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", [2])], [tensor])

    with pytest.raises(InputError, match="the place of w in it is damaged"):
        read(path)


def test_weights_over_one_another_are_not_read_again_and_again(tmp_path: Path) -> None:
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


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="it is not a file"):
        read(tmp_path / "m.onnx")


def test_vectors_over_one_another_are_read_as_often_as_a_model_would() -> None:
    """A thousand tables that share a vector of ten thousand elements hold in 50 KB what would be ten million numbers."""
    vector = struct.pack("<I", 10_000) + bytes(4 * 10_000)
    # A vtable of one field, a table whose field is an offset to the vector.
    data = struct.pack("<HHH", 6, 8, 4) + b"\0\0" + struct.pack("<iI", 8, 4) + vector
    flat = flatbuffer.Flat(data)

    assert len(flat.integers(8, 0)) == 10_000
    with pytest.raises(Torn):
        for _ in range(1000):
            flat.integers(8, 0)


def test_a_profile_whose_numbers_are_none_is_a_sentence(tmp_path: Path) -> None:
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


def test_tensors_of_impossible_numbers_are_not_told_apart(tmp_path: Path) -> None:
    layer = '<net><layer name="c" type="Const"><data element_type="f32" shape="{}" offset="{}" size="{}"/></layer></net>'
    path = tmp_path / "m.xml"
    (tmp_path / "m.bin").write_bytes(bytes(32))
    path.write_text(layer.format("2,4", 0, 32))
    assert [tensor.bytes for tensor in tensors(path)] == [32]
    for shape, offset, size in (("2,4", -8, 32), ("2,4", 0, -1), (f"{2**70},1", 0, 32), ("-1", 0, 32), ("65536,65536,65536,65536", 0, 32)):
        path.write_text(layer.format(shape, offset, size))
        with pytest.raises(Unparsed):
            tensors(path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"models": []}', '{"models": 1}', '{"models": [1]}', "[" * 200_000])
def test_a_package_whose_manifest_names_no_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "MANIFEST").write_text(text)
    assert inputs(tmp_path) == ()
    with pytest.raises(Unparsed, match="MANIFEST names no model"):
        tensors(tmp_path)


@pytest.mark.parametrize(
    ("name", "about"),
    [("metadata/MANIFEST", {"models": ["m.tflite"]}), ("genai_config.json", {"model": {"decoder": {"filename": "m.onnx"}}})],
)
def test_of_the_file_that_names_a_folder_s_model_no_more_is_read_than_it_can_need(tmp_path: Path, name: str, about: object) -> None:
    """The name stands behind 16 MiB of blanks: the file is taken for one that names no model, and a sparse file of any size costs no more."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(" " * (16 << 20) + json.dumps(about))
    with pytest.raises(Unparsed, match=f"{Path(name).name} names no model"):
        tensors(tmp_path)


def test_arrays_that_lie_over_one_another_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of ten entries that share the same bytes says that it holds ten times as much as those can be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "in.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1_000_000))
        first = archive.infolist()[0]
        for number in range(10):
            entry = copy.copy(first)
            entry.filename = f"{number}.npy"
            archive.filelist.append(entry)
            archive.NameToInfo[entry.filename] = entry

    with pytest.raises(InputError, match="its arrays are larger than what such a file can hold"):
        native._arrays(str(path))


def test_no_number_in_a_tflite_file_is_a_traceback(tmp_path: Path) -> None:
    """Each place of a model with control flow, with numbers that point far outside, back, or at themselves."""
    pytest.importorskip("flatbuffers")
    pytest.importorskip("ai_edge_litert")
    from plan_tflite import control_flow

    content = control_flow(tmp_path / "m.tflite").read_bytes()
    path = tmp_path / "changed.tflite"
    for at in tried(range(0, len(content), 4)):
        for number in (b"\xff" * 8, b"\xff\xff\xff\x7f"):
            path.write_bytes(content[:at] + number + content[at + len(number) :])
            for reader in (identify, tensors, lambda changed: analyse(planned(read(changed), FAST), FAST)):
                with contextlib.suppress(MemprofError):
                    reader(path)


def test_shapes_and_offsets_that_overflow_in_a_tflite_file(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    pytest.importorskip("ai_edge_litert")
    import plan_tflite as tflite

    most = 2**31 - 1
    tensors_ = [tflite.tensor("x", [most] * 4), tflite.tensor("y", [most] * 4)]
    graph = tflite.subgraph("main", tensors_, [0], [1], [tflite.operator(0, [0], [1])])
    path = tflite.write(tmp_path / "m.tflite", ["RELU"], [graph])
    with pytest.raises(InputError, match="more than any memory has"):
        read(path)

    weights = [tflite.tensor("x", [4]), tflite.tensor("w", [4], buffer=1), tflite.tensor("y", [4])]
    graph = tflite.subgraph("main", weights, [0], [2], [tflite.operator(0, [0, 1], [2])])
    path = tflite.write(tmp_path / "w.tflite", ["ADD"], [graph], outside=(2**64 - 8, 16))
    assert identify(path).weight_bytes is None
    with pytest.raises(Unparsed):
        tensors(path)
    with pytest.raises(InputError, match="not a TFLite model, or not a complete one"):
        read(path)


@pytest.fixture
def boxed(tmp_path: Path) -> Path:
    """A model of somebody else, box/m.onnx with its data in box/w.bin, beside a file of the reader's."""
    (tmp_path / "mine.bin").write_bytes(bytes(256))
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "w.bin").write_bytes(bytes(range(256)))
    return _stored_in(tmp_path / "box" / "m.onnx", "w.bin")


def _stored_in(path: Path, location: str) -> Path:
    tensor = weight("w", 8, 8)
    onnx.external_data_helper.set_external_data(tensor, location, 0, 256)
    tensor.ClearField("raw_data")
    return save(path, [node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 8])], [value("y", [1, 8])], [tensor])


def _linked(link: Path, target: str) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def test_a_link_out_of_the_folder_is_refused_by_every_reader(boxed: Path) -> None:
    for target in ("../mine.bin", str(boxed.parents[1] / "mine.bin"), "../gone.bin"):
        _linked(boxed.parent / "w.bin", target)
        for reader in (identify, tensors, read):
            with pytest.raises(InputError, match=r"w\.bin is a link to .*\.bin, which is not a file in the model's folder: it is not read"):
                reader(boxed)


def test_a_folder_that_is_a_link_does_not_lead_out_either(boxed: Path) -> None:
    (boxed.parent / "sub").symlink_to("..")
    _stored_in(boxed, "sub/mine.bin")
    for reader in (identify, tensors, read):
        with pytest.raises(InputError, match="which is not a file in the model's folder"):
            reader(boxed)


def test_a_link_that_stays_in_the_folder_is_followed(boxed: Path) -> None:
    (boxed.parent / "w.bin").rename(boxed.parent / "kept.bin")
    _linked(boxed.parent / "w.bin", "kept.bin")

    assert [Path(file.path).name for file in identify(boxed).files] == ["m.onnx", "w.bin"]
    (tensor,) = tensors(boxed)
    with Files() as files:
        assert bytes(files.data(tensor)) == bytes(range(256))
    assert read(boxed)


def test_the_folder_of_a_linked_model_is_where_the_link_points(boxed: Path) -> None:
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


def test_the_links_of_hugging_face_s_cache_are_the_reader_s_own(boxed: Path) -> None:
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


def _store(repository: Path, form: str, number: int, name: str) -> Path:
    """Where a store keeps the content of a file: git-annex under a key with the file's ending, DVC under a hash without."""
    return repository / form.format("abcdef"[number], f"SHA256E-s{number}--{'9' * 64}{Path(name).suffix}", f"{number:030x}")


def _into_store(repository: Path, form: str, *names: str) -> None:
    """Moves files into the repository's store and leaves links, as `git annex add` (relative) and `dvc add` (absolute) do."""
    for number, name in enumerate(names):
        content = _store(repository, form, number, name)
        content.parent.mkdir(parents=True)
        (repository / name).rename(content)
        (repository / name).symlink_to(os.path.relpath(content, (repository / name).parent) if "annex" in form else content)


@pytest.mark.parametrize("form", [ANNEX, ".git/annex/objects/{0}f0/{0}f1/{1}/{1}", DVC, ".dvc/cache/{0}0/{2}"])
def test_the_links_of_git_annex_and_dvc_lead_into_the_store_of_their_repository(boxed: Path, form: str) -> None:
    """A repository whose model and data are links: it is read with all its files, where they stand, and nothing else is."""
    repository = boxed.parents[1]
    before, digests = identify(boxed), tensors(boxed)
    _into_store(repository, form, "box/m.onnx", "box/w.bin")

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


def test_the_executed_order_is_that_of_the_model_with_its_data_beside_it(boxed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(words: list[str], *, input: str, **_: object) -> None:
        asked.append(json.loads(input)["model"])
        raise subprocess.TimeoutExpired(words, 1)

    _into_store(boxed.parents[1], ANNEX, "box/m.onnx", "box/w.bin")
    graph = read(boxed)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(MeasurementError, match="did not run"):
        executed.onnxruntime_order(graph)
    assert asked == [str(boxed)]


@pytest.mark.parametrize("form", [ANNEX, DVC])
@pytest.mark.parametrize("place", ["another repository", "a link to the store", "not a store's path"])
def test_a_link_to_anything_but_the_repository_s_own_store_is_refused(boxed: Path, form: str, place: str) -> None:
    """What an archive may hold: the names of a store, which lead to files of its reader."""
    top = boxed.parents[1]
    if place == "another repository":
        target = _store(top / "other", form, 1, "w.bin")
        target.parent.mkdir(parents=True)
    elif place == "a link to the store":  # a folder of the archive, named as a store, that is a link
        kept = _store(top / "elsewhere", form, 1, "w.bin")
        kept.parent.mkdir(parents=True)
        (boxed.parent / form.split("/")[0]).symlink_to(top / "elsewhere" / form.split("/")[0])
        target = _store(boxed.parent, form, 1, "w.bin")
    else:
        target = _store(top, form, 1, "w.bin").parents[1] / "secret.bin"
        target.parent.mkdir(parents=True)
    target.write_bytes(bytes(256))
    _linked(boxed.parent / "w.bin", str(target))

    for reader in (identify, tensors, read):
        with pytest.raises(InputError, match="which is not a file in the model's folder: it is not read"):
            reader(boxed)


def test_a_folder_whose_files_lie_in_a_store_is_a_model_with_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "ct2").mkdir()
    for name in ("model.bin", "vocabulary.json"):
        (tmp_path / "ct2" / name).write_bytes(name.encode())
    _into_store(tmp_path, DVC, "ct2/model.bin", "ct2/vocabulary.json")

    assert [Path(file.path).name for file in identify(tmp_path / "ct2").files] == ["model.bin", "vocabulary.json"]


@pytest.mark.parametrize(
    ("model", "link"),
    [
        ("net.xml", "net.bin"),
        ("net.param", "net.bin"),
        ("net.mnn", "net.mnn.weight"),
        ("net-00001-of-00002.gguf", "net-00002-of-00002.gguf"),
        ("package/metadata/MANIFEST", "package/secret.bin"),
        ("genai/genai_config.json", "genai/tokenizer.json"),
        ("ct2/model.bin", "ct2/vocabulary.json"),
    ],
)
def test_a_link_out_of_a_pair_or_a_folder_is_refused(tmp_path: Path, model: str, link: str) -> None:
    (tmp_path / "mine.bin").write_bytes(bytes(256))
    box = tmp_path / "box"
    (box / model).parent.mkdir(parents=True)
    (box / model).write_bytes(b"<net/>")
    (box / link).symlink_to(tmp_path / "mine.bin")
    named = box / Path(model).parts[0]

    with pytest.raises(InputError, match=r"is a link to .*, which is not a file in the model's folder: it is not read"):
        identify(named)

    (box / link).unlink()
    (box / link).write_bytes(b"x")
    assert len(identify(named).files) == 2


def test_the_weights_of_an_openvino_pair_are_not_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    path = tmp_path / "box" / "net.xml"
    path.write_text('<net><layer type="Const" name="w"><data element_type="u8" shape="4" offset="0" size="4"/></layer></net>')
    (tmp_path / "box" / "net.bin").symlink_to(tmp_path / "mine.bin")

    with pytest.raises(InputError, match="which is not a file in the model's folder"):
        tensors(path)


@pytest.mark.parametrize("name", ["../mine.tflite", "/etc/passwd", "linked.tflite"])
def test_the_manifest_of_a_package_does_not_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.tflite").write_bytes(bytes(256))
    (tmp_path / "package" / "metadata").mkdir(parents=True)
    (tmp_path / "package" / "metadata" / "MANIFEST").write_text(json.dumps({"models": [name]}))
    (tmp_path / "package" / "linked.tflite").symlink_to("../mine.tflite")

    with pytest.raises(InputError, match="which is not a file in the model's folder: it is not read"):
        tensors(tmp_path / "package")
    assert inputs(tmp_path / "package") == names(tmp_path / "package") == ()


@pytest.mark.parametrize("name", ["../mine.onnx", "/etc/passwd", "linked.onnx"])
def test_the_configuration_of_a_folder_of_genai_does_not_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.onnx").write_bytes(bytes(256))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "genai_config.json").write_text(json.dumps({"model": {"decoder": {"filename": name}}}))
    (tmp_path / "folder" / "linked.onnx").symlink_to("../mine.onnx")

    with pytest.raises(InputError, match="is not read"):
        tensors(tmp_path / "folder")
    with pytest.raises(InputError, match="is not read"):
        identify(tmp_path / "folder")
