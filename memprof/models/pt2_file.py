"""PyTorch's .pt2 of torch.export: the tensors of a program, each an entry of the zip archive, stored as it is.

NAME/data/weights/model_weights_config.json says of each weight its entry, type and sizes; data/constants/ has the same for constants (torch 2.8 and
later, torch/export/pt2_archive/constants.py). A package of AOTInductor ends in .pt2 too; its weights lie in a library that it compiled.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..base.files import Torn
from . import MOST_DIMENSIONS, Stored, stored_bytes

# torch/_export/serde/schema.py, ScalarType
_TYPES = {
    **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"), 1)),
    12: "bool",
    13: "bfloat16",
}
_CONFIGS = ("/data/weights/model_weights_config.json", "/data/constants/model_constants_config.json")
_LARGEST_CONFIG = 8 << 20  # unpacked: some 400 bytes a tensor
# Of a zip archive's entry: the lengths of its name and of an extra field, which the content follows.
_LOCAL_HEADER = struct.Struct("<26xHH")


def tensors(path: Path) -> Iterator[Stored]:
    """The tensors of an exported program, none in a package of AOTInductor. Raises Torn where it is no such file, OSError."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            # Of a file that was cut off, the last directory is that of an archive inside this one: sample_inputs/model.pt.
            if min(entry.header_offset for entry in archive.infolist()) > 0:
                raise Torn
            configs = [entry for entry in archive.infolist() if entry.filename.endswith(_CONFIGS)]
            if len(configs) > len(_CONFIGS) or any(config.file_size > _LARGEST_CONFIG for config in configs):
                raise Torn  # a small archive could hold very much of it
            for config in configs:
                yield from _tensors(file, archive, config)
    except (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, ValueError, LookupError, TypeError, AttributeError):
        raise Torn from None  # RuntimeError: zipfile's for what it cannot read, and json's for what lies too deep


def _tensors(file: BinaryIO, archive: zipfile.ZipFile, config: zipfile.ZipInfo) -> Iterator[Stored]:
    folder = config.filename.rpartition("/")[0]
    seen = set()
    for name, about in json.loads(archive.read(config))["config"].items():
        entry = archive.getinfo(f"{folder}/{about['path_name']}")
        dtype = _TYPES.get(about["tensor_meta"]["dtype"])
        # The same content may have several names. Pickled tensors, and types that numpy has not, are left out.
        if entry.filename in seen or dtype is None or about["use_pickle"] or entry.compress_type != zipfile.ZIP_STORED:
            continue
        seen.add(entry.filename)
        sizes = about["tensor_meta"]["sizes"]
        if len(sizes) > MOST_DIMENSIONS:  # before their product is taken
            raise Torn
        shape = tuple(_size(each) for each in sizes)
        if stored_bytes(dtype, shape) != entry.file_size:  # a view of a larger tensor
            continue
        yield Stored(name, dtype, shape, *_place(file, entry))


def _size(said: Any) -> int:
    if not isinstance(said["as_int"], int) or said["as_int"] < 0:
        raise Torn
    return int(said["as_int"])


def _place(file: BinaryIO, entry: zipfile.ZipInfo) -> tuple[int, int]:
    file.seek(entry.header_offset)
    lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    begin = entry.header_offset + _LOCAL_HEADER.size + sum(lengths)
    return begin, begin + entry.file_size
