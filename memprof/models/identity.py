"""The files that make up a model, their content by hash, and the bytes of the weights in them.

A model is a file with the external data it names (ONNX), a folder (an onert nnpackage, a CTranslate2 model), a pair (OpenVINO's .xml and .bin,
ncnn's .param and .bin, MNN's .mnn and .mnn.weight), or numbered parts (GGUF). Files are read
only as far as needed, without any runtime's package. The modules that read a format cite its documents.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..base import file_kinds
from ..base.errors import InputError, UsageError, os_reason
from ..base.files import Torn, mapped, sha256_of
from ..records.types import Model, ModelFile
from . import Stored, companion_files, ctranslate2_file, flatbuffer, gguf, onnx_file, packages, pt2_file, pte_file, tflite_file
from .onnx_file import OnnxTensor

# A folder with one of these files is a model: an nnpackage, of onnxruntime-genai, of CTranslate2.
_FOLDERS = (packages.NNPACKAGE, packages.GENAI, ctranslate2_file.NAME)


def identify(path: str | Path, name: str | None = None) -> Model:
    """The model at a path, hashed. `~` is the home folder.

    Raises InputError where it is missing, empty or unreadable, or where a folder holds none; UsageError for an empty name, which a path would
    take for the current folder.
    """
    if path == "":
        raise UsageError("the model's name is empty: name a file, or the folder of a package")
    path = Path(os.path.expanduser(path))
    try:
        files = [_hashed(file) for file in files_of(path)]
        weight_bytes = _weight_bytes(path)
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    together = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
    return Model(
        name=name or path.name,
        path=str(companion_files.place(path)),
        files=tuple(files),
        bytes=sum(file.bytes for file in files),
        sha256=files[0].sha256 if len(files) == 1 else together,
        weight_bytes=weight_bytes,
    )


# The endings of models' files that are not text, and what such a file is in the words of memprof.base.file_kinds if it tells.
_KINDS = {
    ".onnx": None,
    ".ort": "a model in ONNX Runtime's own format",
    ".tflite": "a TFLite model",
    ".circle": "a circle model",
    ".gguf": "a GGUF model",
    ".mnn": None,
    ".pt2": "a zip archive",
    ".pte": None,
}


def is_named_as_model(path: str | Path) -> bool:
    """Whether a file's name ends as that of a model does; a model's text file may be anything else."""
    return Path(path).suffix.lower() in _KINDS


def check_kind(path: str | Path) -> None:
    """Raises InputError for a file that is something else than its ending says, as far as its first bytes tell."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _KINDS or path.is_dir():
        return
    try:
        kind = file_kinds.kind_of(path)
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    if kind not in (None, _KINDS[ending]):
        raise InputError(f"model {path} is not in the format of its name: it is {kind}")


def files_of(path: Path) -> list[Path]:
    """The files that belong to a model, the named file first, those of a folder sorted. Raises InputError, also for a link out of its folder, or
    OSError."""
    if path.is_dir():
        if not any((path / name).is_file() for name in _FOLDERS):  # before its files are listed: it may be a home
            raise InputError(
                f"model {path}: this folder has no metadata/MANIFEST of an nnpackage, no genai_config.json of onnxruntime-genai, and no "
                f"{ctranslate2_file.NAME} of CTranslate2"
            )
        return sorted(companion_files.inside(path, file) for file in companion_files.place(path).rglob("*") if file.is_file())
    if not path.exists():
        raise InputError(f"model {path}: no such file")
    if path.stat().st_size == 0:
        raise InputError(f"model {path}: the file is empty")
    file = companion_files.place(path)
    if file.suffix == ".onnx":
        return [file, *_external_files(path)]
    if file.suffix == ".gguf":
        return gguf.parts(path)
    weights = file.with_name(f"{file.name}.weight") if file.suffix == ".mnn" else file.with_suffix(".bin")
    if file.suffix not in (".xml", ".param", ".mnn") or not os.path.lexists(weights):
        if file.suffix == ".param":
            raise InputError(f"model {path}: its weights {weights.name} are missing")
        return [file]
    return [file, companion_files.inside(path, weights)]


def _external_files(path: Path) -> list[Path]:
    files = [
        onnx_file.external_file(path, location)
        for location in sorted({tensor.external["location"] for tensor in _onnx_tensors(path) if tensor.external.get("location")})
    ]
    for file in files:
        if not file.is_file():
            raise InputError(f"model {path}: its external data {file.relative_to(companion_files.place(path).parent)} is missing")
    return files


def _hashed(path: Path) -> ModelFile:
    sha256, size = sha256_of(path)
    return ModelFile(str(path), size, sha256)


def _weight_bytes(path: Path) -> int | None:
    """The bytes of a model's weights; None where its format is not read, or where it is damaged, which its runtime will say."""
    try:
        return sum(_weight_sizes(path)) or None
    except (Torn, ValueError):
        return None


def _weight_sizes(path: Path) -> Iterator[int]:
    """The bytes of each weight. Raises Torn, OSError."""
    if path.is_dir():
        yield from _weight_sizes_in(path)
    elif path.suffix == ".onnx":
        for tensor in _onnx_tensors(path):
            yield sum(part.end - part.begin for part in tensor.values) + int(tensor.external.get("length", 0))
    elif path.suffix == ".pt2":
        yield from _sizes(pt2_file.tensors(path))
    elif path.suffix == ".gguf":
        for part in gguf.parts(path):
            with mapped(part) as data:
                yield from (tensor.bytes for tensor in gguf.read(data).tensors)
    elif path.suffix in (".tflite", ".circle"):
        with mapped(path) as data:
            flat = flatbuffer.Flat(data)
            yield from (tflite_file.content(flat, table)[1] for table in flat.tables(flat.root(), tflite_file.MODEL_BUFFERS))
    elif path.suffix == ".pte":
        with mapped(path) as data:
            yield from _sizes(pte_file.tensors(data))


def _weight_sizes_in(folder: Path) -> Iterator[int]:
    if (folder / packages.GENAI).is_file():
        try:
            yield from _weight_sizes(packages.genai_decoder(folder))
        except FileNotFoundError:
            return
    elif (folder / ctranslate2_file.NAME).is_file():
        with mapped(folder / ctranslate2_file.NAME) as data:
            yield from _sizes(ctranslate2_file.variables(data))


def _sizes(tensors: Iterable[Stored]) -> Iterator[int]:
    return (tensor.end - tensor.begin for tensor in tensors)


def _onnx_tensors(path: Path) -> list[OnnxTensor]:
    """The tensors of a file; none where it is not ONNX, which its runtime will say."""
    with mapped(path) as data:
        try:
            return [onnx_file.tensor(data, tensor) for tensor in onnx_file.tensors(data)]
        except Torn:
            return []
