"""ncnn, MNN, TensorFlow Lite Micro and CTranslate2: the same outputs as the others, their own figures, and what they refuse in their own words."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support import ct2_model
from support.recorder_runs import measured
from support.session_cache import once

import memprof
from memprof import zoo
from memprof.base.errors import InputError, UsageError
from memprof.base.files import Torn
from memprof.base.runners import runners_path
from memprof.doors.cli.zoo import command as zoo_command
from memprof.models import ctranslate2_file
from memprof.models.identity import identify
from memprof.models.tensors import Unparsed, tensors
from memprof.programs import runtimes
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite

np = pytest.importorskip("numpy")
pytest.importorskip("onnx")
pytest.importorskip("ai_edge_litert")

# These change only if the format is changed on purpose.
MNIST_NCNN = {
    ".param": "efe0d2e4e963b405fd2945eab95fabe270d7f141ac7fd627414078710a26c9ef",
    ".bin": "c531d2a1126e8b5042526a2e3c5c911c7a9dc65b5dc3a5746db2e2a498c3c0b4",
}
# Settings with which a runtime computes in float32 on every CPU.
FLOAT32 = {"ncnn": {"storage": "f32"}, "openvino": {"precision": "f32"}}
NEEDS = {"onnxruntime": "onnxruntime", "openvino": "openvino", "tflite": "tflite_runtime", "litert": "ai_edge_litert"}
NEEDS.update({"tflite_micro": "tflite_micro", "ncnn": "ncnn", "mnn": "MNN"})


@pytest.fixture(scope="module")
def nets() -> Path:
    """mobilenet_v2 and mnist in every format that can be made here."""
    return once("the nets of test_small_runtimes.py", make_nets)


def make_nets(folder: Path) -> None:
    for name in ("mnist", "mobilenet_v2"):
        for format in ("onnx", "tflite", "ncnn", *(["mnn"] if find_spec("MNN") else [])):
            zoo.make(name, folder / f"{name}{zoo.ENDINGS[format]}", format=format)


def run(runtime: str, model: Path, arrays: dict[str, Any], folder: Path) -> Any:
    """The first output of a runtime, by memprof's own runner. A layout with channels last is that of .tflite files."""
    np.savez(folder / "in.npz", **arrays)
    job = {"runtime": runtime, "model": str(model), "threads": 1, "warmup": 0, "runs": 2, "knobs": FLOAT32.get(runtime, {})}
    job.update(shapes={}, inputs=str(folder / "in.npz"), outputs=str(folder / "out.npz"))
    command = [sys.executable, str(runners_path()), "run"]
    done = subprocess.run(command, input=json.dumps(job) + "\n", capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    return np.load(folder / "out.npz")["0"]


def unlike(output: Any, expected: Any) -> float:
    """The largest difference, relative to the largest expected value."""
    assert output.shape == expected.shape
    return float(np.abs(output - expected).max() / np.abs(expected).max())


class TestOutputs:
    """Two iterations each: a runtime that takes the input's memory for its own needs computes something else in the second."""

    @pytest.mark.parametrize(
        ("name", "others"),
        [
            ("mobilenet_v2", ("tflite", "tflite_micro", "ncnn", "mnn", "openvino")),
            ("mnist", ("litert", "ncnn", "mnn")),
        ],
    )
    @pytest.mark.long
    def test_same_in_every_runtime(self, nets: Path, tmp_path: Path, name: str, others: tuple[str, ...]) -> None:
        pytest.importorskip("onnxruntime")
        channels, height, width = {"mobilenet_v2": (3, 224, 224), "mnist": (1, 28, 28)}[name]
        x = np.random.default_rng(1).uniform(-1, 1, (1, channels, height, width)).astype(np.float32)
        expected = run("onnxruntime", nets / f"{name}.onnx", {"input": x}, tmp_path)
        assert expected.std() > 0
        for runtime in others:
            if find_spec(NEEDS[runtime]) is None:
                continue
            ending = {"ncnn": ".param", "mnn": ".mnn", "openvino": ".onnx"}.get(runtime, ".tflite")
            given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if ending == ".tflite" else x
            assert unlike(run(runtime, nets / f"{name}{ending}", {"input": given}, tmp_path), expected) < 1e-3, runtime

    def test_ncnn_same_as_converted_onnx(self, nets: Path, tmp_path: Path) -> None:
        for module in ("ncnn", "pnnx", "onnxruntime"):
            pytest.importorskip(module) if module != "pnnx" else find_spec(module) or pytest.skip("pnnx is not installed")
        x = np.random.default_rng(1).uniform(-1, 1, (1, 1, 28, 28)).astype(np.float32)
        declared = {"input": [1, 1, 28, 28]}
        job = {"runtime": "ncnn", "model": str(nets / "mnist.onnx"), "folder": str(tmp_path), "declared": declared}
        subprocess.run([sys.executable, str(runners_path()), "build"], input=json.dumps(job) + "\n", text=True, check=True)
        converted = tmp_path / "mnist.param"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["built.json", "mnist.bin", "mnist.param"]
        assert "Input in0 0 1 input 0=28 1=28 2=1" in converted.read_text().splitlines()
        written, expected = run("ncnn", converted, {"input": x}, tmp_path), run("onnxruntime", nets / "mnist.onnx", {"input": x}, tmp_path)
        assert unlike(written, expected) < 1e-3

    def test_ctranslate2_depends_on_tokens(self, tmp_path: Path) -> None:
        pytest.importorskip("ctranslate2")
        model = ct2_model.make(tmp_path / "model")
        first, second = (run("ctranslate2", model, {"tokens": np.array([[3, 4, last]], np.int32)}, tmp_path) for last in (5, 6))
        assert first.shape == (1, 3, ct2_model.WORDS)
        np.testing.assert_allclose(first[:, :2], second[:, :2], rtol=1e-4, atol=1e-5)  # a model of language sees what came before
        assert np.abs(first[:, 2] - second[:, 2]).max() > 0.01

    def test_translation_model_scores(self, tmp_path: Path) -> None:
        pytest.importorskip("ctranslate2")
        model = ct2_model.make(tmp_path / "model", translates=True)
        first, second = (run("ctranslate2", model, {"tokens": np.array([[3, 4, last]], np.int32)}, tmp_path) for last in (5, 6))
        assert first.shape == second.shape == (1, 1)
        assert first < 0 and first != second  # logarithms of probabilities


class TestFigures:
    def test_tflite_micro_arena(self, nets: Path) -> None:
        pytest.importorskip("tflite_micro")
        (run,) = memprof.measure([nets / "mnist.tflite"], ["tflite_micro"], warmup=0, runs=1, repeats=1)
        assert run.outcome.ok, run.outcome.sentence
        last = {value.name: value.value for value in run.values}
        # The largest two activations that live together: 28 x 28 x 16 floats and 14 x 14 x 16.
        assert last["arena_activations_bytes"] == 4 * 16 * (28 * 28 + 14 * 14)
        assert last["arena_bytes"] == last["arena_activations_bytes"] + last["arena_persistent_bytes"]

    def test_mnn_conversion_knob_without_conversion_refused(self, nets: Path) -> None:
        """It had no effect, and nothing said so."""
        pytest.importorskip("MNN")
        (run,) = memprof.measure([nets / "mnist.mnn"], ["mnn"], warmup=0, runs=1, repeats=1, set={"placed": "separate"})
        assert not run.outcome.ok and "mnist.mnn is in MNN's own format" in run.outcome.sentence

    def test_mnn_session_memory(self, nets: Path) -> None:
        pytest.importorskip("MNN")
        (run,) = memprof.measure([nets / "mnist.mnn"], ["mnn"], warmup=0, runs=1, repeats=1)
        (size,) = {value.value for value in run.values if value.name == "mnn_session_bytes" and value.phase == "PREPARE"}
        assert 4 * 100_000 < size < 4 << 20  # at least the dense layers' weights


class TestRefusals:
    """In the runtime's own words; an operator by its name."""

    def test_ncnn_names_missing_operator(self, tmp_path: Path) -> None:
        pytest.importorskip("ncnn")
        (tmp_path / "m.param").write_text("7767517\n3 3\nInput in0 0 1 in0 0=8 1=8 2=3\nFrobnicate f 1 1 in0 a\nDet d 1 1 a out0\n")
        (tmp_path / "m.bin").write_bytes(b"\0" * 4)
        (run,) = memprof.measure([tmp_path / "m.param"], ["ncnn"], warmup=0, runs=1, repeats=1)
        assert (run.outcome.status, run.outcome.phase) == ("refused", "MODEL_LOAD")
        assert run.outcome.message == "ncnn has no operator Det, Frobnicate"

    def test_ncnn_names_input_without_shape(self, tmp_path: Path) -> None:
        pytest.importorskip("ncnn")
        (tmp_path / "m.param").write_text("7767517\n2 2\nInput in0 0 1 in0\nReLU r 1 1 in0 out0\n")
        (tmp_path / "m.bin").write_bytes(b"\0" * 4)
        (run,) = memprof.measure([tmp_path / "m.param"], ["ncnn"], warmup=0, runs=1, repeats=1)
        assert run.outcome.message == "the .param file does not say the shape of input in0: give it one, without the batch"
        run = measured(tmp_path / "m.param", "ncnn", shapes={"in0": (3, 8, 8)})
        assert run.outcome.ok, run.outcome.sentence

    @pytest.mark.parametrize(
        ("runtime", "words"),
        [("mnn", "mnn: MNN cannot convert the model: it has no operator Frobnicate"), ("ncnn", "it has no operator Frobnicate")],
    )
    def test_converter_names_missing_operator(self, tmp_path: Path, runtime: str, words: str) -> None:
        from onnx import TensorProto, helper, save

        if find_spec({"mnn": "MNN", "ncnn": "pnnx"}[runtime]) is None:
            pytest.skip(f"{runtime} converts nothing here")
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 8, 8]) for name in "xy"]
        node = helper.make_node("Frobnicate", ["x"], ["y"], domain="my.ops")
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
        save(helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=opsets), tmp_path / "m.onnx")
        (tmp_path / "folder").mkdir()
        with pytest.raises(InputError) as error:
            runtimes.convert(runtime, tmp_path / "m.onnx", tmp_path / "folder", {})
        assert words in str(error.value)

    @pytest.mark.parametrize(("runtime", "words"), [("mnn", "MNN cannot convert the model"), ("ncnn", "pnnx cannot convert the model")])
    def test_failed_converter_quoted(self, nets: Path, tmp_path: Path, runtime: str, words: str) -> None:
        if find_spec({"mnn": "MNN", "ncnn": "pnnx"}[runtime]) is None:
            pytest.skip(f"{runtime} converts nothing here")
        torn = tmp_path / "torn.onnx"
        torn.write_bytes((nets / "mnist.onnx").read_bytes()[:3000])
        (tmp_path / "folder").mkdir()
        with pytest.raises(InputError, match=rf"{words}: .*fail"):
            runtimes.convert(runtime, torn, tmp_path / "folder", {})

    def test_tflite_micro_arena_too_small(self, nets: Path) -> None:
        pytest.importorskip("tflite_micro")
        (run,) = memprof.measure([nets / "mnist.tflite"], ["tflite_micro"], set={"arena": "2KiB"}, warmup=0, runs=1, repeats=1)
        assert (run.outcome.status, run.outcome.phase) == ("refused", "PREPARE")
        assert run.outcome.message is not None and run.outcome.message.startswith("arena=2048 is too small: Failed to ")

    def test_tflite_micro_names_missing_operator(self, nets: Path, tmp_path: Path) -> None:
        pytest.importorskip("tflite_micro")
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema

        model = schema.ModelT.InitFromPackedBuf((nets / "mnist.tflite").read_bytes(), 0)
        for code in model.operatorCodes:
            if code.builtinCode == schema.BuiltinOperator.SOFTMAX:
                code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.UNIQUE
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(model.Pack(builder), b"TFL3")
        (tmp_path / "m.tflite").write_bytes(builder.Output())
        (run,) = memprof.measure([tmp_path / "m.tflite"], ["tflite_micro"], warmup=0, runs=1, repeats=1)
        assert run.outcome.message == "TensorFlow Lite Micro has no operator UNIQUE"

    def test_ctranslate2_names_unsupported_model_kind(self, tmp_path: Path) -> None:
        pytest.importorskip("ctranslate2")
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "model.bin").write_bytes(struct.pack("<IH", 6, 12) + b"WhisperSpec\0" + struct.pack("<II", 3, 0))
        (run,) = memprof.measure([tmp_path / "m"], ["ctranslate2"], warmup=0, runs=1, repeats=1)
        assert run.outcome.message is not None and run.outcome.message.startswith("the model is a WhisperSpec: memprof runs CTranslate2's ")

    def test_ncnn_model_without_weights(self, tmp_path: Path) -> None:
        (tmp_path / "m.param").write_text("7767517\n0 0\n")
        with pytest.raises(InputError, match=r"m\.param: its weights m\.bin are missing"):
            identify(tmp_path / "m.param")


class TestAll:
    def test_unsuitable_runtimes_omitted_with_reason(self, nets: Path) -> None:
        installed = {runtime.name for runtime in runtimes.describe(sys.executable) if runtime.installed and not runtime.native}
        planned = plan(Suite(models=(str(nets / "mnist.onnx"),), runtimes=("all",), repeats=1))
        names = [order.job.variant for order in planned.orders]
        assert set(names) == installed & {"onnxruntime", "openvino", "tvm", "mnn", *(["ncnn"] if find_spec("pnnx") else [])}
        for runtime in runtimes.describe(sys.executable):
            if runtime.name not in names and runtime.distribution is not None and (runtime.installed or not runtime.native):
                assert any(runtime.name in remark for remark in planned.remarks), runtime.name
        assert sum("not installed" in remark for remark in planned.remarks) <= 1

    def test_named_runtime_measured_once(self, nets: Path) -> None:
        planned = plan(Suite(models=(str(nets / "mnist.tflite"),), runtimes=("litert", "all"), repeats=1))
        names = [order.job.variant for order in planned.orders]
        assert names[0] == "litert" and len(names) == len(set(names))

    def test_missing_converter_omits_runtime(self, nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if find_spec("ncnn") is None:
            pytest.skip("ncnn is not installed")
        described = runtimes.located
        without = "ncnn takes .onnx by pnnx, which is not installed: pip install --no-deps pnnx"

        def lacking(name: str, *words: Any) -> Any:
            runtime, python = described(name, *words)
            return (replace(runtime, no_converter=without) if name == "ncnn" else runtime), python

        monkeypatch.setattr(runtimes, "located", lacking)
        planned = plan(Suite(models=(str(nets / "mnist.onnx"),), runtimes=("all",), repeats=1))
        assert f"mnist.onnx: ncnn is left out, {without}" in planned.remarks
        assert "ncnn" not in {order.job.variant for order in planned.orders}
        with pytest.raises(InputError, match="no-deps pnnx"):
            plan(Suite(models=(str(nets / "mnist.onnx"),), runtimes=("ncnn",), repeats=1))
        plan(Suite(models=(str(nets / "mnist.param"),), runtimes=("ncnn",), repeats=1))

    def test_folder_taken_by_matching_runtime(self, tmp_path: Path) -> None:
        known = {runtime.name: runtime for runtime in runtimes.describe(sys.executable)}
        (tmp_path / "model.bin").write_bytes(b"x")
        assert known["ctranslate2"].takes(str(tmp_path)) and not known["onert"].takes(str(tmp_path))
        (tmp_path / "metadata").mkdir()
        (tmp_path / "metadata" / "MANIFEST").write_text("{}")
        assert known["onert"].takes(str(tmp_path))


class TestZoo:
    def test_ncnn_same_bytes(self, nets: Path) -> None:
        assert {ending: hashlib.sha256((nets / f"mnist{ending}").read_bytes()).hexdigest() for ending in MNIST_NCNN} == MNIST_NCNN

    def test_mnn_same_bytes(self, nets: Path, tmp_path: Path) -> None:
        pytest.importorskip("MNN")
        zoo.make("mnist", tmp_path / "again.mnn", format="mnn")
        assert (tmp_path / "again.mnn").read_bytes() == (nets / "mnist.mnn").read_bytes()

    def test_several_formats_under_one_name(self, tmp_path: Path) -> None:
        words = ["mnist", "--format", "onnx,tflite,ncnn", "-o", str(tmp_path / "net"), "--json"]
        result = CliRunner().invoke(zoo_command, words, catch_exceptions=False)
        facts = json.loads(result.stdout)
        assert [[Path(file).name for file in model["files"]] for model in facts] == [["net.onnx"], ["net.tflite"], ["net.param", "net.bin"]]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["net.bin", "net.onnx", "net.param", "net.tflite"]

    def test_impossible_format_refused_before_others(self, tmp_path: Path) -> None:
        words = ["mnist", "--format", "onnx,ncnn", "--type", "int8", "-o", str(tmp_path / "net")]
        error = CliRunner().invoke(zoo_command, words, standalone_mode=False).exception
        assert isinstance(error, UsageError) and str(error) == "ncnn files are made in float32, not in int8"
        assert not list(tmp_path.iterdir())

    def test_ncnn_named_by_param_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"name the first, net\.param"):
            zoo.make("mnist", tmp_path / "net.ncnn", format="ncnn")


class TestCTranslate2File:
    def written(self, *variables: tuple[bytes, int, tuple[int, ...], int, bytes], version: int = 6) -> bytes:
        data = struct.pack("<IH", version, 5) + b"Spec\0" + struct.pack("<II", 1, len(variables))
        for name, rank, shape, kind, content in variables:
            data += (
                struct.pack("<H", len(name) + 1)
                + name
                + b"\0"
                + struct.pack(f"<B{len(shape)}IBI", rank, *shape, kind, len(content))
                + content
            )
        return data

    def test_tensor_offsets(self, tmp_path: Path) -> None:
        content = np.arange(6, dtype=np.float32).tobytes()
        data = self.written((b"w", 2, (2, 3), 0, content), (b"s", 0, (), 3, b"\1\0\0\0"), (b"q", 1, (4,), 1, b"abcd"))
        (tmp_path / "model.bin").write_bytes(data)
        stored = tensors(tmp_path)
        assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in stored] == [
            ("w", "float32", (2, 3)),
            ("s", "int32", ()),
            ("q", "int8", (4,)),
        ]
        assert [data[tensor.offset : tensor.offset + tensor.bytes] for tensor in stored] == [content, b"\1\0\0\0", b"abcd"]
        assert identify(tmp_path).weight_bytes == 32

    @pytest.mark.parametrize("damage", ["short", "version", "type", "size", "rank", "name"])
    def test_damaged_file(self, tmp_path: Path, damage: str) -> None:
        whole = self.written((b"w", 1, (2,), 0, b"12345678"))
        data = {
            "short": whole[:-1],
            "version": self.written(version=99),
            "type": self.written((b"w", 1, (2,), 200, b"12345678")),
            "size": self.written((b"w", 1, (3,), 0, b"12345678")),
            "rank": self.written((b"w", 255, (2,), 0, b"12345678")),
            "name": whole[:4] + b"\xff\xff" + whole[6:],
        }[damage]
        with pytest.raises(Torn):
            list(ctranslate2_file.variables(data))
        (tmp_path / "model.bin").write_bytes(data)
        with pytest.raises(Unparsed):
            tensors(tmp_path)
        assert identify(tmp_path).weight_bytes is None
