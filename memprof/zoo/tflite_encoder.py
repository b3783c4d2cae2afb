"""Writes the zoo's encoder as a TensorFlow Lite flatbuffer in float32, with open batch and sequence.

Every shape follows from those of the inputs when an interpreter is prepared, so that all activations lie in its arena. RESHAPE cannot take heads
apart so: its target may leave one dimension open, and here two are. SPLIT and PACK make a dimension of heads, UNPACK and CONCATENATION end it.
Positions are counted (CUMSUM) along the first row of ids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from .encoder import EPSILON, FAR, HEAD, LAYERS, Encoder, dense, shift
from .graph import Weight
from .tflite_tables import ConstantBuffer, Tables, table
from .weights import values

_NAME = "encoder"  # as in the ONNX file, whose weights are drawn by it
_BATCH, _SEQUENCE = "batch", "sequence"
# The extents that the file gives for open dimensions. They differ, so that they tell which of the two a dimension is.
_EXTENTS = {_BATCH: 1, _SEQUENCE: 16}
_ANY = -1
_VERSIONS = {"FULLY_CONNECTED": 5}  # the first that may keep the dimensions of its input

_Shape = tuple[int | str, ...]


def write(encoder: Encoder, file: BinaryIO) -> None:
    """Writes a model to an open file (see Tables.write)."""
    _EncoderWriter(encoder).write(file)


class _EncoderWriter:
    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._width = encoder, encoder.width
        self._tables = Tables(_NAME, _VERSIONS)
        self._shapes: dict[int, _Shape] = {}
        self._names: dict[int, str] = {}
        self._weight_bytes = 0

    def write(self, file: BinaryIO) -> None:
        ids, mask = (self._tensor(name, (_BATCH, _SEQUENCE), "INT32") for name in ("ids", "mask"))
        words = self._rows(self._encoder.words, ids, "embedded")
        positions = self._rows(self._encoder.positions, self._places(ids), "placed")
        hidden = self._normalised(self._pair("ADD", words, positions, "summed"), "embedding")
        # 0 where the mask is 1, and a number that no softmax sees past where it is 0.
        seen = self._same("CAST", mask, "seen", table("CastOptionsT"))
        away = self._pair("MUL", self._pair("SUB", self._number("whole", 1.0), seen, "unseen"), self._number("far", FAR), "away")
        bias = self._widened(self._widened(away, "away/wide"), "attention_bias")
        for layer in range(1, LAYERS + 1):
            hidden = self._layer(f"layer_{layer}", hidden, bias, "output" if layer == LAYERS else None)
        self._tables.write([ids, mask], [hidden], self._weight_bytes, file)

    def _places(self, ids: int) -> int:
        """0, 1, 2, ... as [1, sequence]."""
        bounds = [self._tables.integers(f"row/{name}", pair) for name, pair in (("begin", (0, 0)), ("end", (1, 0)), ("steps", (1, 1)))]
        row = self._made("STRIDED_SLICE", [ids, *bounds], "row", (1, _SEQUENCE), table("StridedSliceOptionsT", endMask=0b10), "INT32")
        there = self._made("EQUAL", [row, row], "there", (1, _SEQUENCE), table("EqualOptionsT"), "BOOL")
        ones = self._same("CAST", there, "ones", table("CastOptionsT"), "INT32")
        return self._made("CUMSUM", [ones, self._axis(1)], "places", (1, _SEQUENCE), table("CumsumOptionsT", exclusive=True), "INT32")

    def _layer(self, name: str, hidden: int, bias: int, output: str | None) -> int:
        width = self._width
        query, key, value = (self._heads(self._dense(hidden, f"{name}/{kind}", width, width)) for kind in ("query", "key", "value"))
        scored = (_BATCH, self._encoder.heads, _SEQUENCE, _SEQUENCE)
        scores = self._made("BATCH_MATMUL", [query, key], f"{name}/scores", scored, table("BatchMatMulOptionsT", adjY=True))
        scaled = self._pair("MUL", scores, self._number("root", 1 / math.sqrt(HEAD)), f"{name}/scaled")
        masked = self._pair("ADD", scaled, bias, f"{name}/masked")
        weights = self._same("SOFTMAX", masked, f"{name}/weights", table("SoftmaxOptionsT", beta=1.0))
        mixed = self._made("BATCH_MATMUL", [weights, value], f"{name}/mixed", self._shapes[query], table("BatchMatMulOptionsT"))
        context = self._dense(self._joined(mixed, f"{name}/context"), f"{name}/output", width, width)
        attended = self._normalised(self._pair("ADD", hidden, context, f"{name}/attended"), f"{name}/attention")
        wide = self._dense(attended, f"{name}/wide", width, 4 * width)
        active = self._same("GELU", wide, f"{name}/active", table("GeluOptionsT", approximate=False))
        narrow = self._dense(active, f"{name}/narrow", 4 * width, width)
        return self._normalised(self._pair("ADD", attended, narrow, f"{name}/forward"), f"{name}/normal", output)

    # -- what several layers have

    def _dense(self, source: int, name: str, inputs: int, outputs: int) -> int:
        """A matrix product with a bias. TFLite has the matrix as (out, in)."""
        matrix, bias = dense(name, inputs, outputs)
        options = table("FullyConnectedOptionsT", keepNumDims=True)
        shape = (_BATCH, _SEQUENCE, outputs)
        return self._made("FULLY_CONNECTED", [source, self._weight(matrix, turned=True), self._weight(bias)], name, shape, options)

    def _heads(self, source: int) -> int:
        """[batch, sequence, width] as [batch, heads, sequence, 64]."""
        heads, name = self._encoder.heads, self._names[source]
        parts = self._parts(name)
        self._tables.operator("SPLIT", [self._axis(2), source], parts, table("SplitOptionsT", numSplits=heads))
        options = table("PackOptionsT", valuesCount=heads, axis=1)
        return self._made("PACK", parts, f"{name}/heads", (_BATCH, heads, _SEQUENCE, HEAD), options)

    def _joined(self, source: int, name: str) -> int:
        """[batch, heads, sequence, 64] as [batch, sequence, width]."""
        parts = self._parts(name)
        self._tables.operator("UNPACK", [source], parts, table("UnpackOptionsT", num=len(parts), axis=1))
        return self._made("CONCATENATION", parts, name, (_BATCH, _SEQUENCE, self._width), table("ConcatenationOptionsT", axis=2))

    def _parts(self, name: str) -> list[int]:
        return [self._tensor(f"{name}/head_{head}", (_BATCH, _SEQUENCE, HEAD)) for head in range(1, self._encoder.heads + 1)]

    def _widened(self, source: int, name: str) -> int:
        """With a dimension of 1 after the batch."""
        batch, *rest = self._shapes[source]
        return self._made("EXPAND_DIMS", [source, self._axis(1)], name, (batch, 1, *rest), table("ExpandDimsOptionsT"))

    def _normalised(self, source: int, name: str, output: str | None = None) -> int:
        """A normalisation over the width, with a shift."""
        mean = self._mean(source, f"{name}/mean")
        variance = self._mean(self._pair("SQUARED_DIFFERENCE", source, mean, f"{name}/squares"), f"{name}/variance")
        safe = self._pair("ADD", variance, self._number("epsilon", EPSILON), f"{name}/safe")
        centred = self._pair("SUB", source, mean, f"{name}/centred")
        scaled = self._pair("MUL", centred, self._same("RSQRT", safe, f"{name}/inverse"), f"{name}/scaled")
        return self._pair("ADD", scaled, self._weight(shift(name, self._width)), output or name)

    def _mean(self, source: int, name: str) -> int:
        return self._made("MEAN", [source, self._axis(2)], name, (_BATCH, _SEQUENCE, 1), table("ReducerOptionsT", keepDims=True))

    def _rows(self, weight: Weight, places: int, name: str) -> int:
        shape = (*self._shapes[places], self._width)
        return self._made("GATHER", [self._weight(weight), places], name, shape, table("GatherOptionsT", axis=0))

    # -- operators and tensors

    def _pair(self, kind: str, first: int, second: int, name: str) -> int:
        """An operator on two tensors, one of which may repeat along the other."""
        shape = max(self._shapes[first], self._shapes[second], key=lambda shape: (len(shape), sum(size != 1 for size in shape)))
        options = "".join(word.title() for word in kind.split("_"))
        return self._made(kind, [first, second], name, shape, table(f"{options}OptionsT"))

    def _same(self, kind: str, source: int, name: str, options: Any = None, type: str = "FLOAT32") -> int:
        """An operator that keeps the shape."""
        return self._made(kind, [source], name, self._shapes[source], options, type)

    def _made(self, kind: str, inputs: Sequence[int], name: str, shape: _Shape, options: Any = None, type: str = "FLOAT32") -> int:
        output = self._tensor(name, shape, type)
        self._tables.operator(kind, inputs, [output], options)
        return output

    def _tensor(self, name: str, shape: _Shape, type: str = "FLOAT32") -> int:
        extents = [_EXTENTS[size] if isinstance(size, str) else size for size in shape]
        signature = [_ANY if isinstance(size, str) else size for size in shape]
        return self._known(self._tables.tensor(name, extents, type, shapeSignature=signature), name, shape)

    def _weight(self, weight: Weight, *, turned: bool = False) -> int:
        shape = weight.shape[::-1] if turned else weight.shape
        self._weight_bytes += 4 * math.prod(shape)
        buffer = ConstantBuffer(lambda: values(_NAME, weight).transpose() if turned else values(_NAME, weight))
        return self._known(self._tables.tensor(weight.name, shape, "FLOAT32", buffer), weight.name, shape)

    def _number(self, name: str, value: float) -> int:
        return self._scalar(name, "FLOAT32", np.array(value, dtype="<f4"))

    def _axis(self, axis: int) -> int:
        return self._scalar(f"axis_{axis}", "INT32", np.array(axis, dtype="<i4"))

    def _scalar(self, name: str, type: str, value: Any) -> int:
        """A constant without dimensions, made once."""
        known = self._tables.indices.get(name)
        return self._known(self._tables.tensor(name, (), type, ConstantBuffer(lambda: value)), name, ()) if known is None else known

    def _known(self, index: int, name: str, shape: _Shape) -> int:
        self._shapes[index], self._names[index] = shape, name
        return index
