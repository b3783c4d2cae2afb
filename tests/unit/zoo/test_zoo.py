"""The zoo: the same bytes every time, the published architectures, and files that every runtime takes and agrees on."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.zoo_models import MIB, encoders, made, run_onnx  # noqa: F401  (the fixtures)

from memprof import zoo
from memprof.base.errors import InputError, MemprofError, UsageError
from memprof.base.files import replacing
from memprof.doors.cli.zoo import command
from memprof.zoo.architectures import ARCHITECTURES
from memprof.zoo.graph import out_size, pads

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")

NET_FORMATS, NET_TYPES = ("onnx", "tflite"), ("float32", "int8")  # of networks of layers


def image(name: str, seed: int = 0) -> Any:
    """A smooth random image in NHWC, -1..1, as photographs are rather than noise."""
    height, width, channels = ARCHITECTURES[name]().input.shape
    coarse = np.random.default_rng(seed).uniform(-1, 1, (1, 7, 7, channels)).astype(np.float32)
    tall = np.repeat(coarse, -(-height // 7), axis=1)
    return np.ascontiguousarray(np.repeat(tall, -(-width // 7), axis=2)[:, :height, :width])


@functools.cache
def output_onnx(path: Path, name: str, seed: int = 0) -> Any:
    """The output of a model for an image. Several tests ask for it, and a model takes long to load."""
    return run_onnx_image(path, image(name, seed))


def run_onnx_image(path: Path, x: Any) -> Any:
    return run_onnx(path, {"input": np.ascontiguousarray(x.transpose(0, 3, 1, 2))})


def run_tflite(runtime: str, path: Path, x: Any) -> Any:
    """Runs a float32 or int8 model and returns real values."""
    interpreter = pytest.importorskip(f"{runtime}.interpreter").Interpreter(str(path))
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert (source["name"], target["name"]) == ("input", "output")
    if source["dtype"] == np.int8:
        scale, zero = source["quantization"]
        x = np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)
    interpreter.set_tensor(source["index"], x)
    interpreter.invoke()
    y = interpreter.get_tensor(target["index"])
    if target["dtype"] == np.int8:
        scale, zero = target["quantization"]
        y = (y.astype(np.float32) - zero) * scale
    return y


def run_onert(path: Path, x: Any) -> Any:
    native = pytest.importorskip("onert.native.libnnfw_api_pybind")
    session = native.infer.nnfw_session(str(path), "cpu")
    session.set_prepare_config(native.prepare_config.ENABLE_INTERNAL_OUTPUT_ALLOC)
    session.prepare()
    session.set_input(0, x)
    session.run()
    return session.get_output(0)


class TestArchitectures:
    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            # keras.applications' trainable parameters: batch normalisation there has a shift and no scale
            ("inception_v3", 23_817_352),
            # the same less one scale a channel, which folding takes into the kernels
            ("mobilenet_v2", 3_504_872 - 17_056),
            # torchvision's 25,557,032 less one scale a channel
            ("resnet50", 25_557_032 - 26_560),
            ("vgg16", 138_357_544),
        ],
    )
    def test_published_parameter_count(self, name: str, parameters: int) -> None:
        assert sum(math.prod(weight.shape) for weight in ARCHITECTURES[name]().weights) == parameters

    @pytest.mark.parametrize(
        ("name", "shape"),
        [("inception_v3", (8, 8, 2048)), ("mobilenet_v2", (7, 7, 1280)), ("resnet50", (7, 7, 2048)), ("vgg16", (7, 7, 512))],
    )
    def test_published_feature_map(self, name: str, shape: tuple[int, ...]) -> None:
        assert [operator.output.shape for operator in ARCHITECTURES[name]().operators if len(operator.output.shape) == 3][-1] == shape

    @pytest.mark.parametrize("format", NET_FORMATS)
    def test_inception_v3_file_size(self, made: Any, format: str) -> None:
        size = made("inception_v3", format).stat().st_size
        assert 4 * 23_817_352 < size < 4 * 23_817_352 + 100_000

    @pytest.mark.parametrize(
        ("size", "window", "stride", "out", "around"),
        [(224, 3, 2, 112, (0, 1)), (299, 3, 1, 299, (1, 1)), (112, 3, 2, 56, (0, 1)), (5, 1, 2, 3, (0, 0)), (7, 7, 2, 4, (3, 3))],
    )
    def test_same_padding_as_in_tensorflow(self, size: int, window: int, stride: int, out: int, around: tuple[int, int]) -> None:
        assert (out_size(size, window, stride, "same"), pads(size, window, stride, "same")) == (out, around)


class TestOnnx:
    @pytest.mark.parametrize(
        ("name", "type"),
        [
            *((name, type) for name in ("mnist", "mobilenet_v2") for type in NET_TYPES),
            ("inception_v3", "int8"),
            *((name, "float32") for name in ("shared_if", "shared_if_rewritten", "mlp", "llama", "llama_with_past")),
        ],
    )
    def test_checker_passes(self, made: Any, name: str, type: str) -> None:
        path = made(name, "onnx", type)
        onnx.checker.check_model(str(path), full_check=True)
        model = onnx.load(path)
        assert (model.ir_version, [(opset.domain, opset.version) for opset in model.opset_import]) == (8, [("", 17)])

    def test_bytes_equal_protobuf(self, made: Any) -> None:
        # Given a file whose constants were written by hand, when onnx reads and writes it, then nothing is lost or added.
        path = made("mnist", "onnx", "int8")
        model = onnx.load(path)
        assert len(model.SerializeToString()) == path.stat().st_size

    def test_int8_large_weights(self, made: Any) -> None:
        model = onnx.load(made("mobilenet_v2", "onnx", "int8"))
        large = {tensor.data_type for tensor in model.graph.initializer if math.prod(tensor.dims) > 2000}
        assert large == {onnx.TensorProto.INT8}


class TestTflite:
    @pytest.fixture
    def tables(self, made: Any) -> Any:
        schema = pytest.importorskip("ai_edge_litert.schema_py_generated")

        def get(name: str, type: str) -> tuple[Any, Any]:
            return schema, schema.Model.GetRootAs(made(name, "tflite", type).read_bytes())

        return get

    def test_file_identifier(self, made: Any) -> None:
        assert made("mnist", "tflite").read_bytes()[4:8] == b"TFL3"

    @pytest.mark.parametrize("type", NET_TYPES)
    def test_constants_aligned_to_16_bytes(self, tables: Any, type: str) -> None:
        _, model = tables("mobilenet_v2", type)
        fields = [model.Buffers(index)._tab for index in range(model.BuffersLength())]
        starts = [field.Vector(field.Offset(4)) for field in fields if field.Offset(4)]
        assert len(starts) > 100
        assert {start % 16 for start in starts} == {0}

    def test_int8_integer_throughout(self, tables: Any) -> None:
        schema, model = tables("mobilenet_v2", "int8")
        tensors = [model.Subgraphs(0).Tensors(index) for index in range(model.Subgraphs(0).TensorsLength())]
        assert {tensor.Type() for tensor in tensors} == {schema.TensorType.INT8, schema.TensorType.INT32}

    def test_int8_bias_scales(self, tables: Any) -> None:
        _, model = tables("mobilenet_v2", "int8")
        graph = model.Subgraphs(0)
        for index in range(graph.OperatorsLength()):
            operator = graph.Operators(index)
            if operator.InputsLength() == 3:
                source, kernel, bias = (graph.Tensors(operator.Inputs(place)).Quantization().ScaleAsNumpy() for place in range(3))
                np.testing.assert_allclose(bias, source * kernel, rtol=1e-6)
                assert bias.size in (1, graph.Tensors(operator.Inputs(2)).Shape(0))


class TestRunning:
    @pytest.mark.parametrize(
        ("name", "runtime"),
        [
            *itertools.product(("mnist", "mobilenet_v2"), ("tflite_runtime", "ai_edge_litert", "onert")),
            ("inception_v3", "ai_edge_litert"),  # ten times as large
        ],
    )
    def test_formats_agree(self, made: Any, name: str, runtime: str) -> None:
        x, path = image(name), made(name, "tflite")
        expected = output_onnx(made(name, "onnx"), name)
        output = run_onert(path, x) if runtime == "onert" else run_tflite(runtime, path, x)
        assert output.shape == expected.shape
        np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-6)

    @pytest.mark.parametrize("name", ["mnist", "mobilenet_v2", "inception_v3"])
    def test_outputs_depend_on_input(self, made: Any, name: str) -> None:
        path = made(name, "onnx")
        first, second = (output_onnx(path, name, seed) for seed in (0, 1))
        for y in (first, second):
            assert np.isfinite(y).all() and y.sum() == pytest.approx(1, abs=1e-4)
            assert 5 / y.size < y.max() < 0.999 and (y > 0).all()
        assert np.abs(first - second).max() > 0.05 * first.max()

    @pytest.mark.parametrize("name", ["mnist", "mobilenet_v2"])
    @pytest.mark.parametrize("runtime", ["onnxruntime", "tflite_runtime", "ai_edge_litert"])
    def test_int8_follows_float32(self, made: Any, name: str, runtime: str) -> None:
        x = image(name)
        expected = output_onnx(made(name, "onnx"), name)
        path = made(name, "onnx" if runtime == "onnxruntime" else "tflite", "int8")
        output = run_onnx_image(path, x) if runtime == "onnxruntime" else run_tflite(runtime, path, x)
        assert np.corrcoef(output.ravel(), expected.ravel())[0, 1] > 0.98
        assert output.argmax() == expected.argmax()

    def test_mlp_runs(self, made: Any) -> None:
        path = made("mlp", "onnx")
        width = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[1].dim_value
        y = run_onnx(path, {"input": np.linspace(-1, 1, width, dtype=np.float32)[np.newaxis]})
        assert 0.2 < np.sqrt((y**2).mean()) < 3


class TestExternalData:
    def test_same_outputs_after_folder_move(self, made: Any, tmp_path: Path) -> None:
        (tmp_path / "before").mkdir()
        files = zoo.make("mnist", tmp_path / "before" / "m.onnx", format="onnx", external_data=True)
        assert [file.name for file in files] == ["m.onnx", "m.onnx.data"]
        moved = (tmp_path / "before").rename(tmp_path / "after") / "m.onnx"
        onnx.checker.check_model(str(moved), full_check=True)
        x = image("mnist")
        assert np.array_equal(run_onnx_image(moved, x), run_onnx_image(made("mnist", "onnx"), x))

    def test_data_aligned_to_pages(self, tmp_path: Path) -> None:
        model_path, side_path = zoo.make("mnist", tmp_path / "m.onnx", format="onnx", external_data=True)
        tensors = onnx.load(model_path, load_external_data=False).graph.initializer
        places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in tensors if tensor.external_data]
        assert {place["location"] for place in places} == {"m.onnx.data"}
        assert {int(place["offset"]) % 4096 for place in places} == {0}
        assert max(int(place["offset"]) + int(place["length"]) for place in places) == side_path.stat().st_size
        assert model_path.stat().st_size < 20_000

    def test_automatic_beyond_protobuf_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(zoo, "_EMBEDDED_LIMIT", MIB)
        assert len(zoo.make("mlp", tmp_path / "below.onnx", format="onnx", size_bytes=MIB // 2)) == 1
        assert len(zoo.make("mlp", tmp_path / "above.onnx", format="onnx", size_bytes=2 * MIB)) == 2

    def test_interrupted_replacement_leaves_no_model(self, tmp_path: Path) -> None:
        # Given a model with its data, when its replacement ends between the two renames, then no model is left at all.
        model, side = tmp_path / "m", tmp_path / "m.data"
        model.write_bytes(b"old")
        side.mkdir()  # which a file cannot replace
        with pytest.raises(OSError), replacing(model, side) as (file, _):
            file.write(b"new")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.data"]


class TestGenai:
    def test_config_names_decoder_inputs_and_outputs(self, tmp_path: Path) -> None:
        words = ["llama", "--format", "genai", "--size", "4MiB", "-o", str(tmp_path / "llama"), "--json"]
        facts = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).stdout)
        assert facts["path"] == str(tmp_path / "llama")
        assert facts["files"] == [str(tmp_path / "llama" / name) for name in ("genai_config.json", "model.onnx")]
        about = json.loads((tmp_path / "llama" / "genai_config.json").read_text())["model"]["decoder"]
        graph = onnx.load(tmp_path / "llama" / about["filename"]).graph
        for said, values in (("inputs", graph.input), ("outputs", graph.output)):
            layers = range(about["num_hidden_layers"])
            named = {name % layer if "%d" in name else name for name in about[said].values() for layer in layers}
            assert named == {value.name for value in values}
        cache = next(value for value in graph.input if value.name == "past_key_values.0.key").type.tensor_type.shape.dim
        assert (cache[1].dim_value, cache[3].dim_value) == (about["num_key_value_heads"], about["head_size"])


class TestCommand:
    def invoke(self, *arguments: object) -> Any:
        return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)

    def test_list_of_names(self) -> None:
        lines = self.invoke("--list").stdout.splitlines()
        assert [line.split()[0] for line in lines] == list(zoo.NAMES)

    def test_report_of_made_file(self, tmp_path: Path) -> None:
        path = tmp_path / "m.tflite"
        pytest.importorskip("ai_edge_litert")
        result = self.invoke("mnist", "--format", "tflite", "-o", path, "--json")
        made = json.loads(result.stdout)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert made == {"path": str(path), "bytes": path.stat().st_size, "sha256": digest, "files": [str(path)]}
        assert result.stderr == f"made {path}: 415.9 KiB, sha256 {digest[:12]}\n"

    def test_size_and_hash_with_external_data(self, tmp_path: Path) -> None:
        path = tmp_path / "m.onnx"
        made = json.loads(self.invoke("mnist", "--format", "onnx", "-o", path, "--json", "--external-data").stdout)
        content = path.read_bytes() + Path(f"{path}.data").read_bytes()
        assert (made["bytes"], made["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        assert made["files"] == [str(path), f"{path}.data"]

    @pytest.mark.parametrize("taken", ["m.onnx", "m.onnx.data"])
    def test_replacement_only_by_force(self, tmp_path: Path, taken: str) -> None:
        (tmp_path / taken).write_text("mine")
        arguments = ["mnist", "--format", "onnx", "-o", tmp_path / "m.onnx", "--external-data"]
        error = self.invoke(*arguments).exception
        assert isinstance(error, InputError) and str(error) == f"{tmp_path / taken} exists; --force replaces it"
        assert (tmp_path / taken).read_text() == "mine" and len(list(tmp_path.iterdir())) == 1
        assert self.invoke(*arguments, "--force").exception is None
        onnx.checker.check_model(str(tmp_path / "m.onnx"))

    def test_invalid_size(self, tmp_path: Path) -> None:
        error = self.invoke("mlp", "--format", "onnx", "-o", tmp_path / "m", "--size", "big").exception
        assert isinstance(error, MemprofError) and error.exit_code == 2


class TestDecoder:
    """The language model as ONNX: with the cache, token by token, it gives the logits of the whole text."""

    SIZE = 2 * MIB

    def test_weights_have_requested_size(self, made: Any) -> None:
        assert made("llama", "onnx").stat().st_size == pytest.approx(self.SIZE, rel=0.25)

    def test_cache_keeps_logits(self, made: Any) -> None:
        runtime = pytest.importorskip("onnxruntime")
        whole, cached = (runtime.InferenceSession(str(made(name, "onnx"))) for name in ("llama", "llama_with_past"))
        text = (np.arange(24).reshape(2, 12) * 37 + 3) % 259
        expected = whole.run(["logits"], {"input_ids": text})[0]

        past = {i.name: np.zeros((2, i.shape[1], 0, 64), "f4") for i in cached.get_inputs() if i.name != "input_ids"}
        names = [output.name for output in cached.get_outputs()]
        logits = []
        for begin, end in ((0, 5), (5, 6), (6, 12)):
            results = dict(zip(names, cached.run(None, {"input_ids": text[:, begin:end], **past}), strict=True))
            logits.append(results.pop("logits"))
            past = {name.replace("present", "past_key_values"): array for name, array in results.items()}

        assert np.allclose(np.concatenate(logits, axis=1), expected, atol=1e-4)
        assert expected.std() > 0.1
        assert all(array.shape[2] == 12 for array in past.values())

    def test_later_token_keeps_earlier_logits(self, made: Any) -> None:
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(str(made("llama", "onnx")))
        text = np.arange(10).reshape(1, 10) + 3
        before = session.run(None, {"input_ids": text})[0]
        text[0, 7] = 200
        after = session.run(None, {"input_ids": text})[0]
        assert np.array_equal(before[:, :7], after[:, :7])
        assert not np.allclose(before[:, 7:], after[:, 7:], atol=1e-3)


@pytest.mark.parametrize(
    ("name", "more", "dimensions"),
    [
        ("encoder", {"size_bytes": 4 * MIB}, {"ids": ("batch", "sequence"), "mask": ("batch", "sequence")}),
        ("lstm", {"size_bytes": MIB}, {"input": ("sequence", "batch", "")}),
        ("loop", {"size_bytes": MIB}, {"input": ("sequence", "batch", "")}),
        ("mobilenet_v2", {"open_dimensions": True}, {"input": ("batch", "", "height", "width")}),
    ],
)
def test_open_dimensions_have_names(tmp_path, name, more, dimensions):
    from memprof.models import inputs

    (path,) = zoo.make(name, tmp_path / "m.onnx", format="onnx", **more)
    assert {tensor.name: tensor.dimensions for tensor in inputs.inputs(path)} == dimensions
    if "size_bytes" in more:
        assert path.stat().st_size == pytest.approx(more["size_bytes"], rel=0.35)
    with pytest.raises(UsageError, match="open dimensions are for"):
        zoo.make("vgg16", tmp_path / "v.onnx", format="onnx", open_dimensions=True)


@pytest.mark.parametrize("name", ["encoder", "lstm", "loop"])
def test_sequence_models_run_at_any_size(tmp_path, name):
    ort = pytest.importorskip("onnxruntime")
    numpy = pytest.importorskip("numpy")
    (path,) = zoo.make(name, tmp_path / "m.onnx", format="onnx", size_bytes=4 * MIB)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch, sequence in ((1, 3), (2, 7)):
        if name == "encoder":
            feed = {key: numpy.ones((batch, sequence), dtype=numpy.int64) for key in ("ids", "mask")}
        else:
            feed = {"input": numpy.ones((sequence, batch, session.get_inputs()[0].shape[2]), dtype=numpy.float32)}
        (output,) = session.run(None, feed)
        assert sorted(output.shape[:2]) == sorted((batch, sequence))
        assert numpy.isfinite(output).all()
        assert output.std() > 1e-3


ENCODER_TFLITE_SHA256 = "885d19648e274531b80bcfaee3035f49e87e886066da50dd0a26b394e96d0b9e"


def test_tflite_encoder_has_fixed_bytes(encoders, tmp_path):
    from memprof.models import inputs

    zoo.make("encoder", tmp_path / "again.tflite", format="tflite", size_bytes=8 * MIB)
    first = (encoders / "encoder.tflite").read_bytes()
    assert (tmp_path / "again.tflite").read_bytes() == first
    assert hashlib.sha256(first).hexdigest() == ENCODER_TFLITE_SHA256
    assert {tensor.name: tensor.shape for tensor in inputs.inputs(encoders / "encoder.tflite")} == {
        "ids": (None, None),
        "mask": (None, None),
    }


@pytest.mark.parametrize("runtime", ["tflite_runtime", "ai_edge_litert"])
def test_tflite_encoder_agrees_with_onnx(encoders, runtime):
    generator = np.random.default_rng(0)
    interpreter = pytest.importorskip(f"{runtime}.interpreter").Interpreter(str(encoders / "encoder.tflite"))
    for batch, sequence in ((1, 16), (1, 1), (3, 40)):
        feed = {"ids": generator.integers(0, 8192, (batch, sequence)), "mask": generator.integers(0, 2, (batch, sequence))}
        feed["mask"][:, 0] = 1
        for tensor in interpreter.get_input_details():
            interpreter.resize_tensor_input(tensor["index"], (batch, sequence))
        interpreter.allocate_tensors()
        for tensor in interpreter.get_input_details():
            interpreter.set_tensor(tensor["index"], feed[tensor["name"]].astype(np.int32))
        interpreter.invoke()
        output = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        assert np.allclose(output, run_onnx(encoders / "encoder.onnx", feed), atol=1e-3)
        assert output.std() > 0.5


@pytest.mark.parametrize("output", [".", ".."])
@pytest.mark.parametrize("formats", ["onnx", "onnx,tflite"])
def test_zoo_output_folder_refused(memprof: Any, output: str, formats: str) -> None:
    done = memprof("zoo", "mnist", "--format", formats, "-o", output)
    assert done.returncode == 2 and done.stderr.strip().endswith(
        f"-o {output} is a folder: name the model in it, -o {Path(output) / 'mnist'}"
    )


def test_zoo_lists_all_missing_arguments(memprof):
    done = memprof("zoo")
    assert (done.returncode, done.stderr) == (2, "memprof: Missing argument 'NAME', option '--format' and option '--output' / '-o'.\n")
    assert memprof("zoo", "mnist", "-o", "x").stderr == "memprof: Missing option '--format'.\n"


def test_labels_keep_strings_apart(tmp_path: Path) -> None:
    (path,) = zoo.make("labels", tmp_path / "labels.onnx", format="onnx")
    onnx.checker.check_model(onnx.load(path))
    words = np.array(["k3", "unknown", *["k19"] * 18], dtype=object)
    assert run_onnx(path, {"x": words}).tolist() == [3, -1, *[19] * 18]
    for wrong in ({"format": "tflite"}, {"format": "onnx", "type": "int8"}, {"format": "onnx", "size_bytes": 1 << 20}):
        with pytest.raises(UsageError, match=r"^labels "):
            zoo.make("labels", tmp_path / "other", **wrong)
