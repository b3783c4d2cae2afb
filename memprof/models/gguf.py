"""GGUF, the model files of llama.cpp: their keys, where their tensors lie, and the bytes that a token takes in the KV cache.

The layout (github.com/ggml-org/ggml/blob/main/docs/gguf.md, versions 2 and 3): a head with counts, keys with values, one line per tensor, and from
the next multiple of the alignment on the data. Keys other than numbers and texts are stepped over. Each access is checked, and each element that is
visited takes bytes of the file, so that the work is bounded by its size.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from ..base.errors import InputError, near_or_all, os_reason
from ..base.files import Torn, mapped
from . import companion_files

MAGIC = b"GGUF"
ALIGNMENT = 32
_VERSIONS = (2, 3)
# gguf_type in ggml's gguf.h: the numbers, in struct's letters, and the two types that have a length.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_LISTED = 4096  # numbers of an array that are read: a layer each
_LONGEST_NAME = 1 << 16
_MOST_EXTENTS = 4  # GGML_MAX_DIMS
_DEEPEST = 4

# ggml_type in ggml.h: (values, bytes) of a block.
BLOCKS: Mapping[int, tuple[int, int]] = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
}
# The types of whole values that numpy, or memprof's readers of weights, know by name.
_PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
# The types of a KV cache by llama.cpp's names, as numbers of ggml_type.
KV_TYPES: Mapping[str, int] = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q5_1": 7, "q5_0": 6, "q4_1": 3, "iq4_nl": 20, "q4_0": 2}
# A model with one of these keys keeps something else than every layer's keys and values of every token.
_OTHERWISE = (
    "attention.kv_lora_rank",
    "attention.sliding_window",
    "attention.shared_kv_layers",
    "ssm.state_size",
    "wkv.head_size",
)

Value = int | float | str | tuple[int | float, ...]


class GgufTensor(Struct, frozen=True):
    """A tensor: `bytes` at `offset` of the file. dtype: a numpy name or bfloat16; None for blocks of quantized values."""

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    bytes: int
    offset: int


class Gguf(Struct, frozen=True):
    """A file's keys with their values, arrays of texts and long ones left out, and its tensors."""

    keys: Mapping[str, Value]
    tensors: tuple[GgufTensor, ...]

    def number(self, name: str) -> int | None:
        """A whole number of the model's architecture: `block_count`."""
        value = self.keys.get(f"{self.keys.get('general.architecture')}.{name}")
        return value if isinstance(value, int) and value >= 0 else None


def read(data: mmap.mmap | bytes) -> Gguf:
    """A file's keys and tensors. Raises Torn."""
    cursor = _Cursor(data)
    if bytes(data[:4]) != MAGIC:
        raise Torn
    cursor.at = 4
    if cursor.number("I") not in _VERSIONS:
        raise Torn
    tensor_count, key_count = cursor.number("Q"), cursor.number("Q")
    keys: dict[str, Value] = {}
    for _ in range(cursor.possible(key_count, 13)):
        name = cursor.text()
        value = _value(cursor, cursor.number("I"), 0)
        if value is not None:
            keys[name] = value
    lines = [_line(cursor) for _ in range(cursor.possible(tensor_count, 24))]
    alignment = keys.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise Torn
    begin = -(-cursor.at // alignment) * alignment
    tensors = tuple(GgufTensor(name, shape, _PLAIN.get(kind), _size(shape, kind), begin + offset) for name, shape, kind, offset in lines)
    if any(tensor.offset + tensor.bytes > len(data) for tensor in tensors):
        raise Torn
    return Gguf(keys, tensors)


class _Cursor:
    """A place in a file that moves on as it is read. The methods raise Torn."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self.data, self.at = data, 0

    def number(self, letter: str) -> int:
        """A whole number of struct's letter."""
        return int(self.numbers(letter, 1)[0])

    def numbers(self, letter: str, count: int) -> tuple[int | float, ...]:
        """As many numbers of struct's letter."""
        begin = self.at
        self.skip(count * struct.calcsize(letter))
        return struct.unpack_from(f"<{count}{letter}", self.data, begin)

    def text(self) -> str:
        """A text; a name that is not UTF-8 is none that is looked for."""
        size = self.number("Q")
        if size > _LONGEST_NAME:
            self.skip(size)
            return ""
        begin = self.at
        self.skip(size)
        return bytes(self.data[begin : self.at]).decode("utf-8", "replace")

    def skip(self, size: int) -> None:
        """Step over bytes."""
        if size > len(self.data) - self.at:
            raise Torn
        self.at += size

    def possible(self, count: int, least: int) -> int:
        """The count, if so many elements of at least that many bytes fit into the rest."""
        if count * least > len(self.data) - self.at:
            raise Torn
        return count


def _value(cursor: _Cursor, kind: int, depth: int) -> Value | None:
    """The value at the cursor; None for an array that is not of numbers, or of too many."""
    if kind == _STRING:
        return cursor.text()
    if kind in _NUMBERS:
        return cursor.numbers(_NUMBERS[kind], 1)[0]
    if kind != _ARRAY or depth > _DEEPEST:
        raise Torn
    inner, count = cursor.number("I"), cursor.number("Q")
    if inner in _NUMBERS:
        if count <= _MOST_LISTED:
            return cursor.numbers(_NUMBERS[inner], count)
        cursor.skip(count * struct.calcsize(_NUMBERS[inner]))
        return None
    for _ in range(cursor.possible(count, 8)):
        if inner == _STRING:
            cursor.skip(cursor.number("Q"))
        else:
            _value(cursor, inner, depth + 1)
    return None


def _line(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """(name, shape, ggml type, offset) of a tensor; the shape's last extent is the fastest."""
    name, extents = cursor.text(), cursor.number("I")
    if extents > _MOST_EXTENTS:
        raise Torn
    shape = tuple(int(extent) for extent in reversed(cursor.numbers("Q", extents)))
    return name, shape, cursor.number("I"), cursor.number("Q")


def _size(shape: tuple[int, ...], kind: int) -> int:
    if kind not in BLOCKS:
        raise Torn
    values, size = BLOCKS[kind]
    if shape and shape[-1] % values:
        raise Torn
    return math.prod(shape) // values * size


# -- the files of a model that is split: github.com/ggml-org/llama.cpp/blob/master/tools/gguf-split

_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def parts(path: Path) -> list[Path]:
    """All files of a model, the named one first. Raises InputError if a part of a split model is missing or elsewhere."""
    path = companion_files.place(path)
    match = _SPLIT.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match[3])
    others: Iterator[Path] = (path.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf") for number in range(1, count + 1))
    files = [path]
    for file in others:
        if not file.is_file():
            raise InputError(f"model {path}: its part {file.name} is missing")
        files += [companion_files.inside(path, file)] if file.name != path.name else []
    return files


# -- the KV cache


class KvCache(Struct, frozen=True):
    """The cache of a transformer: of every token the keys and values of each layer. kv_heads: of each layer. key_width, value_width: of a head."""

    kv_heads: tuple[int, ...]
    key_width: int
    value_width: int

    def bytes_per_token(self, keys: str = "f16", values: str | None = None) -> float:
        """Bytes of a token, with the keys and the values in these types of llama.cpp; values: None for the type of the keys.

        Layers x KV heads x width of a head x the type's bytes a value, for the keys and for the values. Raises InputError for an unknown type.
        """
        heads = sum(self.kv_heads)
        return heads * (self.key_width * _value_bytes(keys) + self.value_width * _value_bytes(values or keys))


def _value_bytes(type: str) -> float:
    if type not in KV_TYPES:
        raise InputError(f"there is no type {type!r} of a KV cache{near_or_all(type, KV_TYPES)}")
    values, size = BLOCKS[KV_TYPES[type]]
    return size / values


def kv_cache(path: Path) -> KvCache:
    """The KV cache of a model's file, by its keys. Raises InputError where the file does not say it, or keeps something else."""
    try:
        with mapped(path) as data:
            file = read(data)
    except (OSError, ValueError) as error:
        raise InputError(f"model {path}: {os_reason(error) if isinstance(error, OSError) else 'the file is empty'}") from None
    except Torn:
        raise InputError(f"the KV cache of {path.name} cannot be told: the file is damaged or no .gguf file") from None
    other = next((key for key in _OTHERWISE if f"{file.keys.get('general.architecture')}.{key}" in file.keys), None)
    if other is not None:
        raise InputError(f"the KV cache of {path.name} cannot be told: its architecture has {other}, so not every layer keeps every token")
    layers, width, heads = (file.number(name) for name in ("block_count", "embedding_length", "attention.head_count"))
    kv_heads = _kv_heads(file, layers or 0, heads)
    if not layers or not kv_heads or not heads or width is None:
        raise InputError(f"the KV cache of {path.name} cannot be told: it does not say its layers, its width and its heads of attention")
    key = file.number("attention.key_length") or width // heads
    return KvCache(kv_heads, key, file.number("attention.value_length") or width // heads)


def _kv_heads(file: Gguf, layers: int, heads: int | None) -> tuple[int, ...]:
    """KV heads of each layer, none if the file does not say."""
    if layers > _MOST_LISTED:
        return ()
    listed = file.keys.get(f"{file.keys.get('general.architecture')}.attention.head_count_kv")
    if isinstance(listed, tuple):
        whole = tuple(heads for heads in listed if isinstance(heads, int) and heads >= 0)
        return whole if len(whole) == len(listed) == layers else ()
    shared = file.number("attention.head_count_kv")
    return (heads if shared is None else shared,) * layers if heads is not None else ()
