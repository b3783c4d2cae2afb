"""ncnn's weights: a .param file, which is text, says of each layer how many it has; the .bin file has them one after another, without names.

A kernel or a matrix follows a tag of four bytes, which says its type; a bias is float32 and has none. Nothing in the .bin file says where a
layer's weights end, so one layer of an unknown kind hides those of all that follow. Format: ncnn's wiki, param-and-model-file-structure, and
src/modelbin.cpp of 1.0.20261020.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ..base.files import Torn
from . import Stored, stored_bytes

_MAGIC = "7767517"
_TAG = struct.Struct("<I")
_TYPES = {0: "float32", 0x0002C056: "float32", 0x01306B47: "float16"}
_ALIGNMENT = 4
_CONVOLUTIONS = ("Convolution", "ConvolutionDepthWise", "Deconvolution", "DeconvolutionDepthWise")
_WITHOUT_WEIGHTS = frozenset(
    [
        "BinaryOp",
        "Clip",
        "Concat",
        "Crop",
        "Dropout",
        "ELU",
        "Eltwise",
        "ExpandDims",
        "Flatten",
        "GELU",
        "HardSigmoid",
        "HardSwish",
        "Input",
        "Interp",
        "Mish",
        "Noop",
        "Padding",
        "Permute",
        "Pooling",
        "ReLU",
        "Reduction",
        "Reshape",
        "ShuffleChannel",
        "Sigmoid",
        "Slice",
        "Softmax",
        "Split",
        "Squeeze",
        "Swish",
        "TanH",
        "UnaryOp",
    ]
)


class Layer(Struct, frozen=True):
    """A line of the .param file. parameters: by number; lists are left out."""

    kind: str
    name: str
    parameters: Mapping[str, str]

    @property
    def known(self) -> bool:
        """Whether it is known how many weights it has. Scales of int8, and weights that are computed, are not."""
        weighs = self.kind in _CONVOLUTIONS or self.kind == "InnerProduct"
        return self.kind in _WITHOUT_WEIGHTS or (weighs and not any(self.number(each) for each in ("8", "19")))

    def number(self, key: str, default: int = 0) -> int:
        """A parameter that is a count."""
        return int(self.parameters.get(key, default))


def layers(text: str) -> list[Layer]:
    """The layers of a .param file. Raises Torn where it is none."""
    magic, _, *lines = text.splitlines()
    if magic.strip() != _MAGIC:
        raise Torn
    return [_layer(line.split()) for line in lines if line.strip()]


def _layer(words: Sequence[str]) -> Layer:
    kind, name, inputs, outputs, *others = words
    parameters = dict(word.split("=", 1) for word in others[int(inputs) + int(outputs) :])
    return Layer(kind, name, parameters)


def tensors(data: mmap.mmap, network: Sequence[Layer]) -> Iterator[Stored]:
    """The weights of layers that are known. Raises Torn where the .bin file has fewer or more."""
    place = 0
    for layer in network:
        if layer.kind in _WITHOUT_WEIGHTS:
            continue
        dense = layer.kind == "InnerProduct"
        outputs, count = layer.number("0"), layer.number("2" if dense else "6")
        wide = layer.number("1")
        inner = () if dense else (layer.number("11", wide), wide)
        each = outputs * math.prod(inner)
        if min(outputs, count, each) <= 0 or count % each:
            raise Torn
        if len(data) < place + _TAG.size:
            raise Torn
        (tag,) = _TAG.unpack_from(data, place)
        dtype, shape = _TYPES[tag], (outputs, count // each, *inner)
        begin = place + _TAG.size
        end = begin + stored_bytes(dtype, shape)
        yield Stored(f"{layer.name}/weight", dtype, shape, begin, end)
        place = begin + -(-(end - begin) // _ALIGNMENT) * _ALIGNMENT
        if layer.number("1" if dense else "5"):
            yield Stored(f"{layer.name}/bias", "float32", (outputs,), place, place + 4 * outputs)
            place += 4 * outputs
        if place > len(data):
            raise Torn
    if place != len(data):
        raise Torn
