"""CTranslate2's model.bin: the variables of a model, one after another, each with its name, shape and type.

Little-endian, no alignment: the format's version (u32), the specification's name, its revision (u32), the number of variables (u32); of each
its name, rank (u8), sizes (u32 each), type (u8), bytes (u32) and content. A name is its length (u16) and a text that ends with a zero byte.
Written so by ctranslate2/specs/model_spec.py; version 6 is of 2022 and later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..base.files import Data, Torn
from . import Stored, stored_bytes

NAME = "model.bin"
_TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_OLDEST, _NEWEST = 5, 6  # earlier versions have other fields


def variables(data: Data) -> Iterator[Stored]:
    """The variables of a file. Raises Torn where it is no such file, or where a part of it is missing."""
    try:
        yield from _variables(data)
    except struct.error:
        raise Torn from None


def _variables(data: Data) -> Iterator[Stored]:
    (version,) = struct.unpack_from("<I", data, 0)
    if not _OLDEST <= version <= _NEWEST:
        raise Torn
    _, at = _text(data, 4)
    _, count = struct.unpack_from("<II", data, at)
    at += 8
    for _ in range(count):
        name, at = _text(data, at)
        (rank,) = struct.unpack_from("<B", data, at)
        shape = struct.unpack_from(f"<{rank}I", data, at + 1)
        kind, size = struct.unpack_from("<BI", data, at + 1 + 4 * rank)
        at += 6 + 4 * rank
        if kind >= len(_TYPES) or size != stored_bytes(_TYPES[kind], shape) or at + size > len(data):
            raise Torn
        yield Stored(name, _TYPES[kind], tuple(shape), at, at + size)
        at += size


def _text(data: Data, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<H", data, at)
    begin, end = at + 2, at + 2 + length
    if length < 1 or end > len(data):
        raise Torn
    return bytes(data[begin : end - 1]).decode("utf-8", "replace"), end
