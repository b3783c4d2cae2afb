"""No model file makes memprof take memory or time that the file could not account for, or read a file outside its folder."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest
from support.examples import tried
from support.model_store import _linked, _store, boxed, into_store, stored_in  # noqa: F401  (the fixtures)

onnx = pytest.importorskip("onnx")

from support.plan_models import node, save, value, weight

from memprof.base.errors import InputError, MemprofError
from memprof.base.files import Torn
from memprof.models import flatbuffer
from memprof.models.identity import identify
from memprof.models.inputs import inputs, names
from memprof.models.tensors import Unparsed, tensors
from memprof.plan.analysis import Question, analyse, planned
from memprof.plan.graphs.read import read
from memprof.programs import native

FAST = Question(time_limit_s=0)


@pytest.mark.parametrize("location", ["../../../etc/passwd", "/etc/passwd", "a/../../w.bin", "..\\w.bin", "."])
def test_external_data_outside_folder_refused(tmp_path: Path, location: str) -> None:
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


def test_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="it is not a file"):
        read(tmp_path / "m.onnx")


def test_flatbuffer_overlapping_vectors_torn() -> None:
    """A thousand tables that share a vector of ten thousand elements hold in 50 KB what would be ten million numbers."""
    vector = struct.pack("<I", 10_000) + bytes(4 * 10_000)
    # A vtable of one field, a table whose field is an offset to the vector.
    data = struct.pack("<HHH", 6, 8, 4) + b"\0\0" + struct.pack("<iI", 8, 4) + vector
    flat = flatbuffer.Flat(data)

    assert len(flat.integers(8, 0)) == 10_000
    with pytest.raises(Torn):
        for _ in range(1000):
            flat.integers(8, 0)


def test_openvino_tensors_with_impossible_numbers(tmp_path: Path) -> None:
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
def test_package_manifest_without_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "MANIFEST").write_text(text)
    assert inputs(tmp_path) == ()
    with pytest.raises(Unparsed, match="MANIFEST names no model"):
        tensors(tmp_path)


@pytest.mark.parametrize(
    ("name", "about"),
    [("metadata/MANIFEST", {"models": ["m.tflite"]}), ("genai_config.json", {"model": {"decoder": {"filename": "m.onnx"}}})],
)
def test_manifest_read_up_to_bound(tmp_path: Path, name: str, about: object) -> None:
    """The name stands behind 16 MiB of blanks: the file is taken for one that names no model, and a sparse file of any size costs no more."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(" " * (16 << 20) + json.dumps(about))
    with pytest.raises(Unparsed, match=f"{Path(name).name} names no model"):
        tensors(tmp_path)


def test_overlapping_arrays_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_tflite_numbers_without_traceback(tmp_path: Path) -> None:
    """Each place of a model with control flow, with numbers that point far outside, back, or at themselves."""
    pytest.importorskip("flatbuffers")
    pytest.importorskip("ai_edge_litert")
    from support.plan_tflite import control_flow

    content = control_flow(tmp_path / "m.tflite").read_bytes()
    path = tmp_path / "changed.tflite"
    for at in tried(range(0, len(content), 4)):
        for number in (b"\xff" * 8, b"\xff\xff\xff\x7f"):
            path.write_bytes(content[:at] + number + content[at + len(number) :])
            for reader in (identify, tensors, lambda changed: analyse(planned(read(changed), FAST), FAST)):
                with contextlib.suppress(MemprofError):
                    reader(path)


def test_tflite_shapes_and_offsets_overflow(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    pytest.importorskip("ai_edge_litert")
    from support import plan_tflite as tflite

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


def test_link_out_of_folder_refused(boxed: Path) -> None:
    for target in ("../mine.bin", str(boxed.parents[1] / "mine.bin"), "../gone.bin"):
        _linked(boxed.parent / "w.bin", target)
        for reader in (identify, tensors, read):
            with pytest.raises(InputError, match=r"w\.bin is a link to .*\.bin, which is not a file in the model's folder: it is not read"):
                reader(boxed)


def test_linked_folder_refused(boxed: Path) -> None:
    (boxed.parent / "sub").symlink_to("..")
    stored_in(boxed, "sub/mine.bin")
    for reader in (identify, tensors, read):
        with pytest.raises(InputError, match="which is not a file in the model's folder"):
            reader(boxed)


ANNEX = ".git/annex/objects/{0}x/{0}Y/{1}/{1}"
DVC = ".dvc/cache/files/md5/{0}0/{2}"


@pytest.mark.parametrize("form", [ANNEX, DVC])
@pytest.mark.parametrize("place", ["another repository", "a link to the store", "not a store's path"])
def test_link_outside_own_store_refused(boxed: Path, form: str, place: str) -> None:
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


def test_folder_with_files_in_store(tmp_path: Path) -> None:
    (tmp_path / "ct2").mkdir()
    for name in ("model.bin", "vocabulary.json"):
        (tmp_path / "ct2" / name).write_bytes(name.encode())
    into_store(tmp_path, DVC, "ct2/model.bin", "ct2/vocabulary.json")

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
def test_link_out_of_model_parts_refused(tmp_path: Path, model: str, link: str) -> None:
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


def test_openvino_linked_weights_refused(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    path = tmp_path / "box" / "net.xml"
    path.write_text('<net><layer type="Const" name="w"><data element_type="u8" shape="4" offset="0" size="4"/></layer></net>')
    (tmp_path / "box" / "net.bin").symlink_to(tmp_path / "mine.bin")

    with pytest.raises(InputError, match="which is not a file in the model's folder"):
        tensors(path)


@pytest.mark.parametrize("name", ["../mine.tflite", "/etc/passwd", "linked.tflite"])
def test_package_manifest_naming_file_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.tflite").write_bytes(bytes(256))
    (tmp_path / "package" / "metadata").mkdir(parents=True)
    (tmp_path / "package" / "metadata" / "MANIFEST").write_text(json.dumps({"models": [name]}))
    (tmp_path / "package" / "linked.tflite").symlink_to("../mine.tflite")

    with pytest.raises(InputError, match="which is not a file in the model's folder: it is not read"):
        tensors(tmp_path / "package")
    assert inputs(tmp_path / "package") == names(tmp_path / "package") == ()


@pytest.mark.parametrize("name", ["../mine.onnx", "/etc/passwd", "linked.onnx"])
def test_genai_configuration_naming_file_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.onnx").write_bytes(bytes(256))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "genai_config.json").write_text(json.dumps({"model": {"decoder": {"filename": name}}}))
    (tmp_path / "folder" / "linked.onnx").symlink_to("../mine.onnx")

    with pytest.raises(InputError, match="is not read"):
        tensors(tmp_path / "folder")
    with pytest.raises(InputError, match="is not read"):
        identify(tmp_path / "folder")
