"""The zoo: the same bytes every time, the published architectures, and files that every runtime takes and agrees on."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.zoo_models import MIB, encoders, made, run_onnx  # noqa: F401  (the fixtures)

from memprof import zoo
from memprof.base.errors import InputError, UsageError
from memprof.doors.cli.zoo import command
from memprof.records import store

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")

NET_FORMATS, NET_TYPES = ("onnx", "tflite"), ("float32", "int8")  # of networks of layers

# These change only if the format of a model is changed on purpose.
MNIST_SHA256 = {
    ("onnx", "float32"): "bd54aa624b6a5b93b5fbcaeaa06a6022d3885fae0315853ee76bb2fd1ec50057",
    ("onnx", "int8"): "f9bf4c628fcff0f82e7260bbe3b9ab11ed9bd1661c0bae5f52898e49aa6d818b",
    ("tflite", "float32"): "5437c1adefb573c981c5904fa752e3aea15e05e3a7165ca751040b4c9c6afb1e",
    ("tflite", "int8"): "1ce2266ef1b00440dfbbe2583e2d847911f2f76b15db062ed3eb5e8c94f6ef91",
}


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)


class TestBytes:
    @pytest.mark.parametrize("format", NET_FORMATS)
    @pytest.mark.parametrize("type", NET_TYPES)
    def test_reproducible(self, made: Any, tmp_path: Path, format: str, type: str) -> None:
        first = made("mnist", format, type).read_bytes()
        zoo.make("mnist", tmp_path / "again", format=format, type=type)
        assert (tmp_path / "again").read_bytes() == first
        assert hashlib.sha256(first).hexdigest() == MNIST_SHA256[format, type]

    def test_weight_independent_of_others(self) -> None:
        from memprof.zoo.graph import Weight
        from memprof.zoo.weights import values

        short, long = (values("model", Weight("w", (rows, 1000), 1.0)) for rows in (3, 2500))
        # More than two blocks long, and the shorter ends on an odd half of a 64-bit word.
        assert np.array_equal(long[:3], short)
        assert not np.array_equal(values("model", Weight("v", (3, 1000), 1.0)), short)
        assert not np.array_equal(values("other", Weight("w", (3, 1000), 1.0)), short)

    def test_floats_random_to_last_bit(self) -> None:
        from memprof.zoo.graph import Weight
        from memprof.zoo.weights import values

        # A limit that is a power of two keeps the integers' own bits: the worst case for the mantissa.
        weights = values("model", Weight("w", (1 << 20,), 0.25))
        low = np.bincount(weights.view(np.uint32) & 0xFFF, minlength=4096)
        assert low.min() > 150 and low.max() < 1000  # 256 expected
        assert np.unique(weights).size > 0.95 * weights.size
        assert abs(float(weights.mean())) < 1e-3 and float(weights.std()) == pytest.approx(0.25 / math.sqrt(3), rel=1e-2)


class TestSharedWeight:
    def inputs(self, embed: bool) -> dict[str, Any]:
        x = np.random.default_rng(0).standard_normal((1, 1024)).astype(np.float32)
        return {"embed": np.array(embed), "ids": np.array([3]), "x": x}

    @pytest.mark.parametrize("embed", [True, False])
    def test_both_forms_same_results(self, made: Any, embed: bool) -> None:
        stored = run_onnx(made("shared_if", "onnx"), self.inputs(embed))
        rewritten = run_onnx(made("shared_if_rewritten", "onnx"), self.inputs(embed))
        assert stored.shape == ((1, 1024) if embed else (1, 2 * MIB // 4096))
        np.testing.assert_allclose(rewritten, stored, rtol=1e-4, atol=1e-5)
        assert stored.std() > 0.01

    def test_rewriting_saves_two_copies(self, tmp_path: Path) -> None:
        pytest.importorskip("onnxruntime")
        code = (
            "import os, sys, onnxruntime as r\n"
            "rss = lambda: int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')\n"
            "start = rss(); s = r.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider']); print(rss() - start)"
        )
        resident = []
        for name in ("shared_if", "shared_if_rewritten"):
            zoo.make(name, tmp_path / name, format="onnx", size_bytes=64 * MIB)
            resident.append(int(run_python(code, str(tmp_path / name)).stdout) / (64 * MIB))
        # The weight, its folded transpose and its prepacked transpose; the weight alone.
        assert resident == [pytest.approx(3, abs=0.3), pytest.approx(1, abs=0.3)]


class TestSizes:
    @pytest.mark.parametrize("size", [MIB, 300 * MIB, 1024 * MIB, 5 * 1024 * MIB])
    def test_mlp_size_and_matrix_limit(self, size: int) -> None:
        from memprof.zoo.synthetic import mlp

        model = mlp(size)
        assert model.constant_bytes == pytest.approx(size, rel=0.01)
        assert max(constant.nbytes for constant in model.constants) <= 256 * MIB

    def test_making_needs_little_memory(self, tmp_path: Path) -> None:
        code = (
            "import sys, pathlib, memprof.zoo as z\n"
            "z.make('mlp', pathlib.Path(sys.argv[1]), format='onnx', size_bytes=128 << 20, external_data=sys.argv[2] == 'yes')\n"
            "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
        )
        for external in ("yes", "no"):
            result = run_python(code, str(tmp_path / "mlp.onnx"), external)
            assert int(result.stdout) < 120 * 1024, result.stderr

    @pytest.mark.parametrize(("text", "size"), [("1MiB", MIB), ("500kB", 500_000)])
    def test_option_units(self, tmp_path: Path, text: str, size: int) -> None:
        arguments = ["shared_if", "--format", "onnx", "--size", text, "-o", str(tmp_path / "m"), "--json"]
        result = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert json.loads(result.stdout)["bytes"] == pytest.approx(size, abs=5000)


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "options", "words"),
        [
            ("inception_v4", {"format": "onnx"}, "did you mean inception_v3"),
            ("zebra", {"format": "onnx"}, "--list"),
            ("mnist", {"format": "pth"}, "'pth'"),
            ("mnist", {"format": "onnx", "type": "int4"}, "'int4'"),
            ("shared_if", {"format": "tflite"}, "made as onnx, not as tflite"),
            ("mlp", {"format": "onnx", "type": "int8"}, "onnx in float32 only"),
            ("encoder", {"format": "tflite", "type": "int8"}, "tflite in float32 only"),
            ("encoder", {"format": "tflite", "size_bytes": 2 << 30}, "a TFLite file ends at 2 GiB"),
            ("encoder", {"format": "tflite", "size_bytes": MIB}, "the weights of encoder are at least 3407872 bytes"),
            ("mnist", {"format": "onnx", "size_bytes": MIB}, "size"),
            ("shared_if", {"format": "onnx", "size_bytes": 100}, "at least 4096"),
            ("mlp", {"format": "onnx", "size_bytes": 0}, "at least"),
            ("mnist", {"format": "tflite", "external_data": True}, "external data"),
        ],
    )
    def test_invalid_options(self, tmp_path: Path, name: str, options: dict[str, Any], words: str) -> None:
        with pytest.raises(UsageError, match=words):
            zoo.make(name, tmp_path / "m", **options)
        assert not list(tmp_path.iterdir())

    def test_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there is no folder"):
            zoo.make("mnist", tmp_path / "none" / "m.onnx", format="onnx")

    def test_existing_genai_folder(self, tmp_path: Path) -> None:
        (tmp_path / "llama").mkdir()
        (tmp_path / "llama" / "model.onnx").write_text("mine")
        with pytest.raises(InputError, match=r"llama/model\.onnx exists"):
            zoo.make("llama", tmp_path / "llama", format="genai", size_bytes=2 * MIB, overwrite=False)
        assert [file.name for file in (tmp_path / "llama").iterdir()] == ["model.onnx"]

    def test_folder_as_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="it is a folder"):
            zoo.make("mnist", tmp_path, format="onnx")

    @pytest.mark.parametrize(("module", "format"), [("onnx", "onnx"), ("flatbuffers", "tflite")])
    def test_uninstalled_package(self, tmp_path: Path, module: str, format: str) -> None:
        code = (
            "import sys, pathlib, memprof.zoo as z\n"
            "sys.modules[sys.argv[1]] = None; z.make('mnist', pathlib.Path(sys.argv[2]), format=sys.argv[3])"
        )
        result = run_python(code, module, str(tmp_path / "m"), format)
        last = result.stderr.splitlines()[-1]
        assert last.startswith("memprof.base.errors.InputError") and module in last and "pip install 'ml-memprof[zoo]'" in last

    def test_full_disk(self, tmp_path: Path) -> None:
        # A limit on the size of files stands for the disk: the same OSError, in the midst of writing.
        code = (
            "import resource, sys, pathlib, memprof.zoo as z\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
            "z.make('mlp', pathlib.Path(sys.argv[1]), format='onnx', size_bytes=8 << 20, external_data=True)"
        )
        last = run_python(code, str(tmp_path / "m.onnx")).stderr.splitlines()[-1]
        assert last.startswith("memprof.base.errors.InputError: cannot write") and "File too large" in last
        assert not list(tmp_path.iterdir())


def test_killed_zoo_leaves_no_model(tmp_path: Path) -> None:
    # The kernel itself kills who writes beyond the limit, in the midst of the data.
    code = (
        "import resource, signal, sys, pathlib, memprof.zoo as z\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "z.make('mlp', pathlib.Path(sys.argv[1]), format='onnx', size_bytes=8 << 20, external_data=True)"
    )
    done = run_python(code, str(tmp_path / "m.onnx"))
    assert done.returncode == -signal.SIGXFSZ, done.stderr
    assert not list(tmp_path.iterdir())  # where the file system has files without names, as here


def test_encoder_tflite_measured_at_shape(encoders, memprof, tmp_path):
    shapes = ("--shape", "ids=2,64", "--shape", "mask=2,64", "--warmup", 1, "--runs", 1, "--repeats", 1)
    done = memprof("run", encoders / "encoder.tflite", "-r", "litert", "-r", "tflite", *shapes, "-o", tmp_path / "runs.jsonl")
    assert done.returncode == 0, done.stderr
    assert "taken as 1" not in done.stderr
    for run in store.load([tmp_path / "runs.jsonl"]).runs:
        # The embedding of 2 x 64 tokens, 128 wide, is the least that PREPARE or EXECUTE holds besides.
        assert run.mark("EXECUTE").anon_end_bytes - run.mark("MODEL_LOAD").anon_end_bytes > 4 * 2 * 64 * 128
