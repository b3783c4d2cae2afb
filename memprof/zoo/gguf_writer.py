"""Writes the zoo's decoder as GGUF, the format of llama.cpp, in float16 or quantized by the package `gguf`.

The layout (github.com/ggml-org/ggml/blob/main/docs/gguf.md, version 3): a head with counts, keys with values, one line per tensor, and from the next
multiple of 32 bytes on the tensors' data, each at such a multiple. A tensor's dimensions stand the other way round, the fastest first.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct

from ..models.gguf import ALIGNMENT, BLOCKS, MAGIC
from . import decoder as shapes
from .decoder import Decoder
from .graph import Weight
from .weights import blocks

_VERSION = 3
# The types of values: gguf_type in ggml's gguf.h.
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
# ggml_type in ggml.h, and llama_ftype in llama.h: what most of the tensors are.
_F32 = 0
_TYPES = {"float16": (1, 1), "q4_0": (2, 2), "q8_0": (8, 7)}
# llama_token_type in llama.h.
_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6


class _GgufTensor(Struct, frozen=True):
    """A tensor to be written: its ggml type, its size, and the weight that it holds; None for the ones of a norm."""

    name: str
    shape: tuple[int, ...]
    kind: int
    bytes: int
    weight: Weight | None


def write(decoder: Decoder, type: str, file: BinaryIO) -> None:
    """Write the decoder. Raises ModuleNotFoundError where a quantized type needs `gguf` and it is missing."""
    kind, most = _TYPES[type]
    quantize = _quantizer(kind, type)
    tensors = _tensors(decoder, kind)
    keys = _keys(decoder, most)
    file.write(MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(keys)))
    file.write(b"".join(keys))
    offset = 0
    for tensor in tensors:
        dimensions = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        file.write(_text(tensor.name) + dimensions + struct.pack("<IQ", tensor.kind, offset))
        offset += _padded(tensor.bytes)
    file.write(bytes(-file.tell() % ALIGNMENT))
    for tensor in tensors:
        if tensor.weight is None:
            file.write(np.ones(tensor.shape, "<f4").tobytes())
        else:
            for part in blocks("llama", tensor.weight):  # whole rows of ggml's blocks, so that each part is quantized alone
                file.write(np.ascontiguousarray(quantize(part)).tobytes())
        file.write(bytes(_padded(tensor.bytes) - tensor.bytes))


def _quantizer(kind: int, type: str) -> Any:
    if type == "float16":
        return lambda values: values.astype("<f2")
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    return lambda values: quantize(values.reshape(1, -1), GGMLQuantizationType(kind))


def _tensors(decoder: Decoder, kind: int) -> list[_GgufTensor]:
    """All tensors in the order of the file."""
    values, size = BLOCKS[kind]
    tensors, layer = [], -1
    for part, weight in decoder.weights:
        if part == "attn_q":
            layer += 1
            tensors += [_norm(f"blk.{layer}.{name}", decoder) for name in ("attn_norm", "ffn_norm")]
        if part == "output":
            tensors.append(_norm("output_norm", decoder))
        tensors.append(_GgufTensor(f"{weight.name}.weight", weight.shape, kind, math.prod(weight.shape) // values * size, weight))
    return tensors


def _norm(name: str, decoder: Decoder) -> _GgufTensor:
    return _GgufTensor(f"{name}.weight", (decoder.width,), _F32, 4 * decoder.width, None)


def _keys(decoder: Decoder, most: int) -> list[bytes]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256]
    return [
        _key("general.architecture", _STRING, _text("llama")),
        _key("general.name", _STRING, _text(f"memprof zoo llama, {decoder.layers} layers of {decoder.width}")),
        _key("general.file_type", _UINT32, struct.pack("<I", most)),
        _key("llama.context_length", _UINT32, struct.pack("<I", shapes.CONTEXT)),
        _key("llama.embedding_length", _UINT32, struct.pack("<I", decoder.width)),
        _key("llama.block_count", _UINT32, struct.pack("<I", decoder.layers)),
        _key("llama.feed_forward_length", _UINT32, struct.pack("<I", decoder.feed)),
        _key("llama.attention.head_count", _UINT32, struct.pack("<I", decoder.heads)),
        _key("llama.attention.head_count_kv", _UINT32, struct.pack("<I", decoder.kv_heads)),
        _key("llama.attention.layer_norm_rms_epsilon", _FLOAT32, struct.pack("<f", shapes.EPSILON)),
        _key("llama.rope.dimension_count", _UINT32, struct.pack("<I", shapes.HEAD)),
        _key("llama.rope.freq_base", _FLOAT32, struct.pack("<f", shapes.ROPE_BASE)),
        _key("llama.vocab_size", _UINT32, struct.pack("<I", shapes.VOCABULARY)),
        _key("tokenizer.ggml.model", _STRING, _text("llama")),
        _array("tokenizer.ggml.tokens", _STRING, [_text(token) for token in tokens]),
        _array("tokenizer.ggml.scores", _FLOAT32, [struct.pack("<f", 0.0)] * len(tokens)),
        _array("tokenizer.ggml.token_type", _INT32, [struct.pack("<i", kind) for kind in kinds]),
        _key("tokenizer.ggml.unknown_token_id", _UINT32, struct.pack("<I", shapes.UNKNOWN)),
        _key("tokenizer.ggml.bos_token_id", _UINT32, struct.pack("<I", shapes.BEGIN)),
        _key("tokenizer.ggml.eos_token_id", _UINT32, struct.pack("<I", shapes.END)),
    ]


def _key(name: str, kind: int, value: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + value


def _array(name: str, kind: int, values: Sequence[bytes]) -> bytes:
    return _key(name, _ARRAY, struct.pack("<IQ", kind, len(values)) + b"".join(values))


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
