"""Which files a model is, and how much of it is weights."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprof.base.errors import InputError
from memprof.models.identity import identify

onnx = pytest.importorskip("onnx", reason="onnx is not installed")


def saved(path, *, external=False, in_branch=False):
    import numpy

    weight = onnx.numpy_helper.from_array(numpy.ones((64, 64), numpy.float32), "w")
    nodes, weights = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], [weight]
    if in_branch:
        branch = onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", ["w"], ["b"])], "branch", [], [onnx.helper.make_empty_tensor_value_info("b")], [weight]
        )
        nodes, weights = [onnx.helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], []
    value = onnx.helper.make_tensor_value_info
    inputs = [value("x", 1, (1, 64)), value("c", 9, ())]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, [value("y", 1, None)], weights))
    onnx.save_model(model, path, save_as_external_data=external, location="w.bin" if external else None, size_threshold=0)
    return path


def test_model_name_size_hash_and_weights(tmp_path):
    path = saved(tmp_path / "net.onnx")

    model = identify(path)

    assert (model.name, model.bytes) == ("net.onnx", path.stat().st_size)
    assert model.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert model.weight_bytes == 64 * 64 * 4


def test_external_data_belongs_to_model(tmp_path):
    model = identify(saved(tmp_path / "net.onnx", external=True))

    assert [file.path.rsplit("/")[-1] for file in model.files] == ["net.onnx", "w.bin"]
    assert model.weight_bytes == 64 * 64 * 4
    assert model.bytes > model.weight_bytes


def test_external_data_changes_hash(tmp_path):
    before = identify(saved(tmp_path / "net.onnx", external=True)).sha256
    data = bytearray((tmp_path / "w.bin").read_bytes())
    data[5] ^= 1
    (tmp_path / "w.bin").write_bytes(data)

    assert identify(tmp_path / "net.onnx").sha256 != before


def test_weights_in_branches_counted(tmp_path):
    assert identify(saved(tmp_path / "net.onnx", in_branch=True)).weight_bytes == 2 * 64 * 64 * 4


def test_external_data_missing(tmp_path):
    saved(tmp_path / "net.onnx", external=True)
    (tmp_path / "w.bin").unlink()

    with pytest.raises(InputError, match=r"external data w\.bin is missing"):
        identify(tmp_path / "net.onnx")


def test_folder_with_nested_package_refused(tmp_path):
    """Such as a home folder: all of it was read."""
    (tmp_path / "far" / "metadata").mkdir(parents=True)
    (tmp_path / "far" / "metadata" / "MANIFEST").write_text("{}")
    with pytest.raises(InputError, match="this folder has no metadata/MANIFEST"):
        identify(tmp_path)


@pytest.mark.parametrize(
    ("make", "reason"), [("none", "no such file"), ("empty", "is empty"), ("folder", "no metadata/MANIFEST of an nnpackage")]
)
def test_model_refusals(tmp_path, make, reason):
    path = tmp_path / "net.onnx"
    if make == "empty":
        path.touch()
    elif make == "folder":
        path.mkdir()

    with pytest.raises(InputError, match=reason):
        identify(path)


@given(data=st.binary(min_size=1, max_size=400), suffix=st.sampled_from([".onnx", ".tflite", ".circle"]))
def test_model_of_any_bytes_identified(tmp_path_factory, data, suffix):
    path = tmp_path_factory.mktemp("any") / f"net{suffix}"
    path.write_bytes(data)

    try:
        assert identify(path).bytes == len(data)
    except InputError as error:
        assert "external data" in str(error)  # the bytes happened to name some


@given(cut=st.integers(1, 16_000))
def test_model_truncated_still_identified(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    path = saved(folder / "net.onnx")
    path.write_bytes(path.read_bytes()[:-cut] or b"x")

    assert identify(path).bytes > 0
