"""Where a model's weights lie in its files, against what the package onnx and the zoo say of the same files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from memprof import zoo
from memprof.base.errors import InputError
from memprof.explain import snippets, waterfall
from memprof.explain.copies import STORED, Copy
from memprof.explain.records import AGAIN
from memprof.explain.scan import Keys
from memprof.explain.snippets import TensorQuery
from memprof.models import tensors
from memprof.models.identity import identify
from memprof.models.tensors import Files, StoredTensor, Unparsed

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(3)


def model_of(*tensors, nodes=()):
    graph = onnx.helper.make_graph(list(nodes), "g", [], [], list(tensors))
    return onnx.helper.make_model(graph)


def typed(name: str, array: np.ndarray, kind: int):
    return onnx.helper.make_tensor(name, kind, array.shape, array.flatten().tolist(), raw=False)


def read(path: Path) -> dict[str, tuple[tuple[int, ...], np.ndarray]]:
    with Files() as files:
        weights = {}
        for tensor in tensors.tensors(path):
            kind = "uint16" if tensor.dtype == "bfloat16" else tensor.dtype
            weights[tensor.name] = (tensor.shape, np.array(files.data(tensor)).view(kind).reshape(tensor.shape))
        return weights


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool"])
@pytest.mark.parametrize("raw", [True, False])
def test_onnx_types_read_exactly(tmp_path: Path, dtype: str, raw: bool) -> None:
    values = (RNG.standard_normal((5, 7)) * 50).astype(dtype)
    made = onnx.numpy_helper.from_array(values, "w") if raw else typed("w", values, onnx.helper.np_dtype_to_tensor_dtype(values.dtype))
    onnx.save(model_of(made), tmp_path / "m.onnx")
    shape, array = read(tmp_path / "m.onnx")["w"]
    assert shape == (5, 7)
    assert np.array_equal(array, onnx.numpy_helper.to_array(made))


def test_onnx_external_subgraph_and_constant_weights(tmp_path: Path) -> None:
    inner, constant, outside = (RNG.standard_normal((300, 10)).astype("f4") for _ in range(3))
    branch = onnx.helper.make_graph([], "b", [], [], [onnx.numpy_helper.from_array(inner, "inner")])
    nodes = [
        onnx.helper.make_node("If", ["c"], ["x"], then_branch=branch, else_branch=branch),
        onnx.helper.make_node("Constant", [], ["k"], value=onnx.numpy_helper.from_array(constant, "constant")),
    ]
    path = tmp_path / "net.onnx"
    model = model_of(onnx.numpy_helper.from_array(outside, "outside"), nodes=nodes)
    onnx.save_model(model, path, save_as_external_data=True, location="net.data", size_threshold=100, convert_attribute=False)
    weights = tensors.tensors(path)
    assert sorted(tensor.name for tensor in weights) == ["constant", "inner", "inner", "outside"]
    assert Path(next(tensor.path for tensor in weights if tensor.name == "outside")).name == "net.data"
    values = read(path)
    for name, wanted in (("inner", inner), ("constant", constant), ("outside", outside)):
        assert np.array_equal(values[name][1], wanted)


def test_zoo_weights_same_in_both_formats(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    pytest.importorskip("ai_edge_litert")
    zoo.make("mnist", tmp_path / "m.onnx", format="onnx")
    zoo.make("mnist", tmp_path / "m.tflite", format="tflite")
    sums = []
    for name in ("m.onnx", "m.tflite"):
        arrays = [array for _, array in read(tmp_path / name).values() if array.dtype == np.float32 and array.size > 100]
        sums.append(sorted(round(float(array.sum()), 3) for array in arrays))
    assert sums[0] == sums[1]
    assert sums[0]


def test_openvino_constants_in_bin_file(tmp_path: Path) -> None:
    values = RNG.standard_normal((4, 8)).astype("f4")
    (tmp_path / "m.bin").write_bytes(b"12345678" + values.tobytes())
    (tmp_path / "m.xml").write_text(
        '<net><layers><layer id="0" name="w" type="Const"><data element_type="f32" shape="4, 8" offset="8" size="128"/></layer></layers></net>'
    )
    assert np.array_equal(read(tmp_path / "m.xml")["w"][1], values)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("m.onnx", b"\xff" * 100, "damaged"),
        ("m.tflite", b"no model at all", "damaged"),
        ("m.xml", b"<net", "damaged"),
        ("m.json", b"{}", "memprof reads those of"),
        ("m.onnx", b"", "damaged"),
        ("m.tflite", b"\x10\0\0\0TFL3", "damaged"),
    ],
)
def test_unparsable_weights_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Unparsed, match=said):
        tensors.tensors(tmp_path / name)


def test_torn_onnx_refused(tmp_path: Path) -> None:
    whole = model_of(onnx.numpy_helper.from_array(RNG.standard_normal((64, 16)).astype("f4"), "w")).SerializeToString()
    for end in range(1, len(whole), 37):
        (tmp_path / "m.onnx").write_bytes(whole[:end])
        with pytest.raises(Unparsed):
            tensors.tensors(tmp_path / "m.onnx")


@pytest.mark.parametrize(("content", "offset"), [(b"x" * 100, 0), (b"", 0), (b"x" * 500, -4)])
def test_external_data_too_short(tmp_path: Path, content: bytes, offset: int) -> None:
    (tmp_path / "w.bin").write_bytes(content)
    with Files() as files, pytest.raises(Unparsed, match="shorter"):
        files.data(tensors.StoredTensor("w", "float32", (100,), 400, str(tmp_path / "w.bin"), offset))


def test_external_data_missing(tmp_path: Path) -> None:
    with Files() as files, pytest.raises(InputError, match="No such file"):
        files.data(tensors.StoredTensor("w", "float32", (100,), 400, str(tmp_path / "w.bin"), 0))


DATA = Path(__file__).parents[2] / "data"


def test_pt2_tensors_are_archive_entries(tmp_path: Path) -> None:
    path = DATA / "net.pt2"
    weights = read(path)
    with zipfile.ZipFile(path) as archive:
        kernel = np.frombuffer(archive.read("net/data/weights/weight_0"), "f4").reshape(16, 3, 3, 3)
    assert np.array_equal(weights["c.weight"][1], kernel)
    assert weights["f.weight"][0] == (10, 16)
    assert identify(path).weight_bytes == sum(array.nbytes for _, array in weights.values())


@pytest.mark.parametrize("damage", ["cut", "entry", "sizes", "text", "large", "many"])
def test_damaged_pt2_refused(tmp_path: Path, damage: str) -> None:
    with zipfile.ZipFile(DATA / "net.pt2") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    config = "net/data/weights/model_weights_config.json"
    if damage == "entry":
        del entries["net/data/weights/weight_0"]
    elif damage == "sizes":
        entries[config] = entries[config].replace(b'{"as_int": 16}', b'{"as_int": -16}')
    elif damage == "text":
        entries[config] = b"[]"
    elif damage == "large":
        entries[config] += b" " * (9 << 20)
    elif damage == "many":
        entries |= {f"net{number}/{config}": entries[config] for number in range(3)}
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if damage == "large" else zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(Unparsed, match=r"the file is damaged or no \.pt2 file"):
        tensors.tensors(path)
    assert identify(path).weight_bytes is None


def test_pte_weights_match_source_program() -> None:
    kernel = read(DATA / "net.pt2")["c.weight"][1]
    dense = read(DATA / "net.pt2")["f.weight"][1]
    portable, xnnpack = read(DATA / "net.pte"), read(DATA / "net_xnnpack.pte")
    assert any(np.array_equal(array, kernel) for _, array in portable.values())
    for weights in (portable, xnnpack):
        assert any(np.array_equal(array, dense) for _, array in weights.values())
    (folded,) = (array for shape, array in xnnpack.values() if len(shape) == 4)  # with the norm's factors in it, and the channels last
    assert folded.shape == (16, 3, 3, 3)
    for name, weights in (("net.pte", portable), ("net_xnnpack.pte", xnnpack)):
        assert identify(DATA / name).weight_bytes == sum(array.nbytes for _, array in weights.values())


def test_pte_unknown_delegate_counted_as_bytes(tmp_path: Path) -> None:
    content = (DATA / "net_xnnpack.pte").read_bytes()
    (tmp_path / "m.pte").write_bytes(content.replace(b"XH00", b"????"))
    weights = {tensor.name: tensor for tensor in tensors.tensors(tmp_path / "m.pte")}
    kernel = np.array(next(array for shape, array in read(DATA / "net_xnnpack.pte").values() if len(shape) == 4))
    assert {weights[f"XnnpackBackend {number}"].dtype for number in range(2)} == {"uint8"}
    assert kernel.tobytes() in {array.tobytes() for _, array in read(tmp_path / "m.pte").values()}


def test_torn_pte_refused(tmp_path: Path) -> None:
    for name in ("net.pte", "net_xnnpack.pte"):
        whole = (DATA / name).read_bytes()
        last = max(tensor.offset + tensor.bytes for tensor in tensors.tensors(DATA / name))
        for end in range(1, last, 97):
            (tmp_path / "m.pte").write_bytes(whole[:end])
            with pytest.raises(Unparsed, match=r"the file is damaged or no \.pte file"):
                tensors.tensors(tmp_path / "m.pte")
            assert identify(tmp_path / "m.pte").weight_bytes is None


def test_aotinductor_package_without_weights(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        archive.writestr("m/data/aotinductor/model/m.so", b"\0" * 1000)
    with pytest.raises(Unparsed, match=r"m\.pt2 holds no weights"):
        tensors.tensors(tmp_path / "m.pt2")


def test_genai_weights_match_decoder(tmp_path: Path) -> None:
    zoo.make("llama", tmp_path / "llama", format="genai", size_bytes=2 << 20)
    weights = tensors.tensors(tmp_path / "llama")
    assert weights == tensors.tensors(tmp_path / "llama" / "model.onnx")
    assert identify(tmp_path / "llama").weight_bytes == identify(tmp_path / "llama" / "model.onnx").weight_bytes
    for text in ("{}", '{"model": {"decoder": {"filename": 1}}}', "["):
        (tmp_path / "llama" / "genai_config.json").write_text(text)
        with pytest.raises(Unparsed, match=r"its genai_config\.json names no model"):
            tensors.tensors(tmp_path / "llama")
        assert identify(tmp_path / "llama").weight_bytes is None


def test_ncnn_weights_match_onnx(tmp_path: Path) -> None:
    zoo.make("mnist", tmp_path / "net.onnx", format="onnx")
    zoo.make("mnist", tmp_path / "net.param", format="ncnn")

    stored, expected = read(tmp_path / "net.param"), read(tmp_path / "net.onnx")

    assert stored
    arrays = {array.tobytes(): shape for shape, array in expected.values()}
    assert [shape == arrays[array.tobytes()] for shape, array in stored.values()] == [True] * len(stored)
    assert sum(array.nbytes for _, array in stored.values()) >= 0.99 * sum(tensor.stat().st_size for tensor in [tmp_path / "net.bin"])


NCNN = "7767517\n2 2\nInput in 0 1 in 0=4 1=4 2=1\n"


def test_ncnn_float16_kernel_aligned(tmp_path: Path) -> None:
    kernel, bias = RNG.standard_normal((3, 1, 1, 3)).astype("f2"), RNG.standard_normal(3).astype("f4")
    (tmp_path / "m.param").write_text(NCNN + "Convolution c 1 1 in out 0=3 1=3 11=1 5=1 6=9\n")
    (tmp_path / "m.bin").write_bytes(b"\x47\x6b\x30\x01" + kernel.tobytes() + b"\0\0" + bias.tobytes())

    weights = read(tmp_path / "m.param")

    assert list(weights) == ["c/weight", "c/bias"]
    assert np.array_equal(weights["c/weight"][1], kernel)
    assert np.array_equal(weights["c/bias"][1], bias)


@pytest.mark.parametrize("line", ["LSTM r 1 1 in out 0=8 1=64", "Convolution r 1 1 in out 0=3 1=1 6=3 8=2"])
def test_ncnn_unsized_layer_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "m.param").write_text(NCNN + line + "\n")
    (tmp_path / "m.bin").write_bytes(bytes(100))

    with pytest.raises(Unparsed, match=r"^the weights of m.param cannot be told apart: .* its layer r \((LSTM|Convolution)\) has$"):
        tensors.tensors(tmp_path / "m.param")


@pytest.mark.parametrize("size", [0, 3, 10, 39, 41])
def test_ncnn_file_mismatching_graph_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "m.param").write_text(NCNN + "Convolution c 1 1 in out 0=3 1=3 11=1 6=9\n")
    (tmp_path / "m.bin").write_bytes(bytes(size))

    with pytest.raises(Unparsed, match=r"damaged or no \.param file"):
        tensors.tensors(tmp_path / "m.param")


@pytest.mark.parametrize(
    "text", ["", "7767517", "x\n1 1\n", NCNN + "Convolution c", NCNN + "Convolution c 1 1 in out 0=x", NCNN + "Convolution c 1 1 in out"]
)
def test_damaged_ncnn_graph_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.param").write_text(text)
    (tmp_path / "m.bin").write_bytes(bytes(40))

    with pytest.raises(Unparsed):
        tensors.tensors(tmp_path / "m.param")


def test_file_of_unknown_format_in_pieces(tmp_path: Path) -> None:
    """model.bin is CTranslate2's name, and any program's."""
    content = RNG.integers(0, 256, 700_001, np.uint8)
    path = tmp_path / "model.bin"
    content.tofile(path)

    with pytest.raises(tensors.UnknownFormat, match=r"^the weights of model.bin cannot be told apart: memprof reads those of "):
        tensors.tensors(path)
    parts = tensors.pieces(path)
    with Files() as files:
        assert np.array_equal(np.concatenate([files.data(part) for part in parts]), content)
    assert [part.bytes for part in parts] == [262_144, 262_144, 175_713]

    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Unparsed, match=r"the file is damaged or no \.bin file$"):
        tensors.tensors(path)


def test_copy_that_is_being_made_is_the_further_one() -> None:
    """The slice of further copies and the weights beyond one copy are the same bytes, also where a copy at a lower address is not yet whole."""
    weights = (TensorQuery(StoredTensor("w", "uint8", (8192,), 8192, "model.bin", 0)),)
    index = snippets.Index(weights, (), Keys(np.zeros(0, np.uint64), 0, 0), *[np.zeros(0, np.int32)] * 2)
    held = [Copy(0, STORED, "", 0x1000, 0x3000, 4096, 0), Copy(0, STORED, "", 0x9000, 0xB000, 8192, 0)]
    kinds = [waterfall.ANONYMOUS]

    further = waterfall._by_worth(held, kinds, weights)[AGAIN]

    assert sum(copy.bytes for copy in further) == waterfall._beyond_one(held, kinds, index)[0] == 4096
