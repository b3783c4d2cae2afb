"""Generated model files: real architectures with random weights, and synthetic ones for single effects.

The same name and options give the same bytes on every machine, so a figure can be repeated without a download. An .mnn file is made of the ONNX
file by MNN, and so depends on MNN's version; its weights are the same. Nothing heavy is imported before `make` is called.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from ..base.errors import InputError, UsageError, near, os_reason
from ..base.files import FORCE, check_new, replacing, sha256_of
from ..models import packages

if TYPE_CHECKING:
    from .onnx_file import OnnxModel

NAMES: Mapping[str, str] = {
    "inception_v3": "Inception v3, 299 x 299, 23.8 million parameters",
    "mobilenet_v2": "MobileNet v2, 224 x 224, 3.5 million parameters",
    "resnet50": "ResNet-50 v1.5, 224 x 224, 25.5 million parameters",
    "vgg16": "VGG-16, 224 x 224, 138 million parameters",
    "mnist": "a small convolutional net for 28 x 28 digits, 0.1 million parameters",
    "branches": "eight wide branches written side by side: in another order the activations need a quarter",
    "founding_example": "five operators whose order decides between 225 and 300 bytes (ONNX, --size of a large tensor)",
    "shared_if": "one large weight used by two branches of an If, as stored and transposed (ONNX, --size)",
    "shared_if_rewritten": "the same sums with the small operands transposed instead (ONNX, --size)",
    "llama": "a language model's decoder of any size, its tokens the bytes (GGUF, ONNX, genai, --size; in GGUF as float16)",
    "llama_with_past": "the same with the KV cache as inputs and outputs (ONNX, --size)",
    "encoder": "four layers of BERT's kind with open batch and sequence (ONNX, TFLite, --size)",
    "lstm": "two LSTM layers with open batch and sequence (ONNX, --size)",
    "loop": "a Loop over an open sequence with an If inside (ONNX, --size)",
    "labels": "a LabelEncoder from 20 strings to numbers: work for `memprof grow`, whose fresh inputs are new strings (ONNX)",
    "mlp": "square dense layers of any size together, none above 256 MiB (ONNX, --size)",
}
ENDINGS: Mapping[str, str] = {
    "onnx": ".onnx",
    "tflite": ".tflite",
    "mnn": ".mnn",
    "ncnn": ".param",
    "gguf": ".gguf",
    "genai": ".genai",
}
FORMATS = tuple(ENDINGS)
TYPES = ("float32", "int8", "float16", "q8_0", "q4_0")
DEFAULT_SIZE_BYTES = 256 << 20
FOUNDING_BYTES = 100

_SIZED = frozenset({"founding_example", "shared_if", "shared_if_rewritten", "mlp", "llama", "llama_with_past", "encoder", "lstm", "loop"})
_NO_LAYERS = _SIZED | {"labels"}
_OWN_FORMATS = {"llama": ("gguf", "onnx", "genai"), "encoder": ("onnx", "tflite")}  # others without layers as ONNX alone
# Those of a format; the first is its default.
_FORMAT_TYPES = {
    "onnx": ("float32", "int8"),
    "tflite": ("float32", "int8"),
    "mnn": ("float32",),
    "ncnn": ("float32",),
    "genai": ("float32",),
    "gguf": ("float16", "q8_0", "q4_0"),
}
_LAYERS = ("onnx", "tflite", "ncnn", "mnn")  # the formats of nets of layers
# Nets that end in an average over the image take images of any size.
_OPEN = frozenset({"inception_v3", "mobilenet_v2", "resnet50"})
# A protobuf message and a flatbuffer end at 2 GiB; this leaves room for the graph.
_EMBEDDED_LIMIT = int(1.9 * 2**30)


_UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ModelFiles(Struct, frozen=True):
    """A model that was written; path: its file or folder. `bytes` and `sha256` are of all files one after another, the model first."""

    path: str
    bytes: int
    sha256: str
    files: tuple[str, ...]


def make(
    name: str,
    path: Path,
    *,
    format: str,
    type: str | None = None,
    size_bytes: int | None = None,
    external_data: bool = False,
    open_dimensions: bool = False,
    overwrite: bool = True,
) -> tuple[Path, ...]:
    """Writes the model `name` to `path` and returns the files it consists of, the model first. In genai `path` is a folder.

    type: None for float32, and float16 in GGUF. size_bytes: of the weights; of llama in GGUF as float16, whatever their type is.
    open_dimensions: batch, height and width are open, for ONNX nets for images alone. external_data: ONNX only, weights go to `path` with `.data`
    added; above 1.9 GiB they do in any case.
    Raises UsageError for a name or a combination that does not exist, InputError where a package is missing, a file is in
    the way (without `overwrite`) or cannot be written. No failure leaves a half-written file under a final name.
    """
    type = check(name, format, type, size_bytes, external_data, open_dimensions)
    size_bytes = size_bytes or (FOUNDING_BYTES if name == "founding_example" else DEFAULT_SIZE_BYTES)
    try:
        if format == "mnn":
            return _make_mnn(name, path, overwrite)
        files, write = _files(name, path, format, type, size_bytes, external_data, open_dimensions)
        if format == "genai":
            path.mkdir(exist_ok=True)
        check_new(*files, instead=FORCE, overwrite=overwrite)
        with replacing(*files) as opened:
            write(*opened)
        return files
    except ModuleNotFoundError as error:
        raise InputError(f"making a model needs {error.name}, not installed here: pip install 'ml-memprof[zoo]'") from error
    except OSError as error:
        raise InputError(f"cannot write {path}: {os_reason(error)}") from error


def describe(files: tuple[Path, ...]) -> ModelFiles:
    """Sizes and content of files that `make` returned. Raises InputError if a file cannot be read."""
    try:
        sha256, size = sha256_of(*files)
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {os_reason(error)}") from error
    # A folder is named as a whole: that is what a runtime takes.
    model = files[0].parent if files[0].name == packages.GENAI else files[0]
    return ModelFiles(str(model), size, sha256, tuple(str(path) for path in files))


def check(name: str, format: str, type: str | None, size_bytes: int | None, external_data: bool, open_dimensions: bool = False) -> str:
    """The type, that of the format where none is given. Raises UsageError for a request that has no meaning, before anything is written."""
    if name not in NAMES:
        raise UsageError(f"the zoo has no model {name!r}{near(name, NAMES) or '; memprof zoo --list names them'}")
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}: {', '.join(FORMATS)}")
    type = type or _FORMAT_TYPES[format][0]
    if type not in TYPES:
        raise UsageError(f"unknown type {type!r}: {' or '.join(TYPES)}")
    if type not in _FORMAT_TYPES[format]:
        raise UsageError(f"{format} files are made in {' or '.join(_FORMAT_TYPES[format])}, not in {type}")
    formats = _OWN_FORMATS.get(name, ("onnx",)) if name in _NO_LAYERS else _LAYERS
    if format not in formats:
        raise UsageError(f"{name} is made as {' or '.join(formats)}, not as {format}")
    if name in _NO_LAYERS and format in ("onnx", "tflite") and type != "float32":
        raise UsageError(f"{name} is made as {format} in float32 only, not in {type}")
    if size_bytes is not None and name not in _SIZED:
        raise UsageError(f"{name} has the size of its architecture; a size is for {', '.join(sorted(_SIZED))}")
    if size_bytes is not None and size_bytes < 1:
        raise UsageError("a model's size is at least one byte")
    if size_bytes is not None and format == "tflite" and size_bytes > _EMBEDDED_LIMIT:
        raise UsageError("a TFLite file ends at 2 GiB: the weights are at most 1.9 GiB")
    if external_data and format != "onnx":
        raise UsageError(f"external data is a feature of onnx, not of {format}")
    if open_dimensions and (format != "onnx" or name not in _OPEN):
        raise UsageError(f"open dimensions are for {', '.join(sorted(_OPEN))}, as onnx")
    return type


def _make_mnn(name: str, path: Path, overwrite: bool) -> tuple[Path, ...]:
    from ..base.leftovers import end_leftovers, scratch
    from ..programs.runtimes import convert

    check_new(path, instead=FORCE, overwrite=overwrite)
    end_leftovers()
    with scratch("zoo") as work:
        (model,) = make(name, work.folder / f"{name}.onnx", format="onnx")
        # The converter's own temporary files go into the folder too.
        converted = convert("mnn", model, work.folder, {**work.variables, "TMPDIR": str(work.folder)})
        with replacing(path) as (file,), converted.open("rb") as content:
            # The converter numbers each file at random, near its beginning: this one has its number from the model's name.
            number = str(uuid.uuid5(uuid.NAMESPACE_URL, f"memprof zoo {name}")).encode()
            file.write(_UUID.sub(number, content.read(4096), count=1))
            shutil.copyfileobj(content, file)
    return (path,)


# The files of a model, first the one that leads to the others, and the function that writes them all, opened in this order.
_Files = tuple[tuple[Path, ...], Callable[..., None]]


def _files(name: str, path: Path, format: str, type: str, size_bytes: int, external: bool, open_dimensions: bool) -> _Files:
    from .architectures import ARCHITECTURES

    if format == "gguf":
        from . import decoder, gguf_writer

        return (path,), partial(gguf_writer.write, decoder.sized(size_bytes), type)
    if format == "tflite" and name == "encoder":
        from . import encoder, tflite_encoder

        return (path,), partial(tflite_encoder.write, encoder.sized(size_bytes))
    if format == "tflite":
        from . import tflite_writer

        return (path,), partial(tflite_writer.write, ARCHITECTURES[name](), type == "int8")
    if format == "ncnn":
        from . import ncnn_writer

        if path.suffix != ENDINGS["ncnn"]:
            raise UsageError(f"{path}: an ncnn model is a .param and a .bin file; name the first, {path.stem}.param")
        return (path, path.with_suffix(".bin")), partial(ncnn_writer.write, ARCHITECTURES[name]())
    if format == "genai":
        return _genai_files(path, size_bytes)
    return _onnx_files(_onnx_model(name, type == "int8", size_bytes, open_dimensions), path, external)


def _genai_files(path: Path, size_bytes: int) -> _Files:
    from . import decoder, genai_config, onnx_decoder

    shape = decoder.sized(size_bytes, item_bytes=4)
    files, write_model = _onnx_files(onnx_decoder.decoder(shape, cached=True), path / genai_config.MODEL, False)

    def write(config: BinaryIO, *model: BinaryIO) -> None:
        write_model(*model)
        config.write(genai_config.of(shape).encode())

    return (path / packages.GENAI, *files), write


def _onnx_files(model: OnnxModel, path: Path, external: bool) -> _Files:
    from .onnx_file import save

    if not external and model.constant_bytes <= _EMBEDDED_LIMIT:
        return (path,), partial(save, model)
    side = path.with_name(f"{path.name}.data")
    return (path, side), partial(save, model, location=side.name)


def _onnx_model(name: str, quantized: bool, size_bytes: int, open_dimensions: bool) -> OnnxModel:
    from . import decoder, onnx_decoder, onnx_writer, sequences, synthetic
    from .architectures import ARCHITECTURES

    if name in ARCHITECTURES:
        return onnx_writer.network(ARCHITECTURES[name](), quantized, open_dimensions)
    if name in ("llama", "llama_with_past"):
        return onnx_decoder.decoder(decoder.sized(size_bytes, item_bytes=4), cached=name == "llama_with_past")
    if name in ("shared_if", "shared_if_rewritten"):
        return synthetic.shared_if(size_bytes, rewritten=name == "shared_if_rewritten")
    if name == "labels":
        return synthetic.labels()
    makers = {
        "founding_example": synthetic.founding_example,
        "mlp": synthetic.mlp,
        "encoder": sequences.encoder,
        "lstm": sequences.lstm,
        "loop": sequences.loop,
    }
    return makers[name](size_bytes)
