"""Writes a network as a TensorFlow Lite flatbuffer (schema version 3, identifier TFL3): NHWC, builtin operators.

Types are float32, or int8 throughout: input, output, activations and weights in int8 with 32-bit biases, as TFLite's
quantisation specification asks (ai.google.dev/edge/litert/models/quantization_spec). Activation functions are fused into
the operators. The schema's classes come with ai-edge-litert, which generates them from TFLite's schema.fbs.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from .graph import Activation, Add, Concat, Conv, Dense, Flatten, GlobalAverage, Graph, Operator, Padding, Pool, Softmax, Tensor, Weight
from .weights import Quantized, quantize_bias, quantize_weight, values

# Imported by name because neither package describes its types.
_flatbuffers: Any = importlib.import_module("flatbuffers")
_schema: Any = importlib.import_module("ai_edge_litert.schema_py_generated")

_SCHEMA_VERSION = 3
# schema.fbs, table Buffer: `data:[ubyte] (force_align: 16)`. flatbuffers' Python code generator leaves that out.
_ALIGNMENT = 16
# For tables and names beside the weights; inception_v3 needs 40 kB.
_ROOM = 1 << 20

# The version of each operator that first took int8; in float32 all of them are version 1.
_INT8_VERSIONS = {
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "MAX_POOL_2D": 2,
    "AVERAGE_POOL_2D": 2,
    "MEAN": 2,
    "CONCATENATION": 2,
    "ADD": 2,
    "RESHAPE": 1,
    "SOFTMAX": 2,
}


def write(graph: Graph, quantized: bool, file: BinaryIO) -> None:
    """Writes a model to an open file. It is held in memory as a whole, and the largest weight two or three times."""
    writer = _Writer(graph, quantized)
    weight_bytes = sum(math.prod(weight.shape) for weight in graph.weights) * (1 if quantized else 4)
    # A builder that must grow copies all that it holds.
    builder = _flatbuffers.Builder(weight_bytes + _ROOM)
    builder.vtables = _Forgetful()
    builder.Finish(writer.model().Pack(builder), b"TFL3")
    file.write(memoryview(builder.Bytes)[builder.Head() :])


class _Forgetful(dict[Any, Any]):
    """Makes a builder write a vtable for each table.

    Sharing would depend on flatbuffers' release: 24.3.25 takes two vtables as equal that differ in the size of their
    tables, 25.12.19 does not, and the same model would have different bytes.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keeps nothing."""


@dataclass(frozen=True)
class _Buffer:
    """Stands for the schema's BufferT: constant data, made only when it is written, at a 16-byte boundary."""

    data: Callable[[], npt.NDArray[Any]] | None = None

    def Pack(self, builder: Any) -> Any:
        """Writes the data and its table, and returns the table's offset. The schema's classes call it by this name."""
        data = None if self.data is None else _aligned_vector(builder, np.ascontiguousarray(self.data()))
        _schema.BufferStart(builder)
        if data is not None:
            _schema.BufferAddData(builder, data)
        return _schema.BufferEnd(builder)


def _aligned_vector(builder: Any, data: npt.NDArray[Any]) -> Any:
    builder.StartVector(1, data.nbytes, _ALIGNMENT)
    # A builder fills its bytes from the end.
    builder.head -= data.nbytes
    builder.Bytes[builder.head : builder.head + data.nbytes] = data.data.cast("B")
    return builder.EndVector()


class _Writer:
    """Collects the tables of one subgraph: tensors and buffers by index, operators in order."""

    def __init__(self, graph: Graph, quantized: bool) -> None:
        self._graph = graph
        self._quantized = quantized
        # Buffer 0 is empty by convention and serves every tensor without constant data.
        self._buffers = [_Buffer()]
        self._tensors: list[Any] = []
        self._indices: dict[str, int] = {}
        self._operators: list[Any] = []
        self._codes: list[str] = []

    def model(self) -> Any:
        """The root table."""
        inputs = [self._activation(self._graph.input)]
        for operator in self._graph.operators:
            self._operator(operator)
        subgraph = _table(
            "SubGraphT",
            tensors=self._tensors,
            inputs=inputs,
            outputs=[self._activation(self._graph.output)],
            operators=self._operators,
            name=self._graph.name,
        )
        return _table(
            "ModelT",
            version=_SCHEMA_VERSION,
            operatorCodes=[self._code_table(name) for name in self._codes],
            subgraphs=[subgraph],
            description="memprof zoo",
            buffers=self._buffers,
        )

    def _operator(self, operator: Operator) -> None:
        match operator:
            case Conv():
                self._conv(operator)
            case Dense():
                self._dense(operator)
            case Pool():
                self._pool(operator)
            case GlobalAverage():
                axes = self._integers(f"{operator.output.name}/axes", [1, 2])
                inputs = [self._activation(operator.source), axes]
                self._append("MEAN", inputs, operator.output, _table("ReducerOptionsT", keepDims=False))
            case Concat():
                inputs = [self._activation(source) for source in operator.sources]
                self._append("CONCATENATION", inputs, operator.output, _table("ConcatenationOptionsT", axis=3))
            case Add():
                inputs = [self._activation(operator.first), self._activation(operator.second)]
                options = _table("AddOptionsT", fusedActivationFunction=_fused(operator.activation))
                self._append("ADD", inputs, operator.output, options)
            case Flatten():
                shape = [1, *operator.output.shape]
                inputs = [self._activation(operator.source), self._integers(f"{operator.output.name}/shape", shape)]
                self._append("RESHAPE", inputs, operator.output, _table("ReshapeOptionsT", newShape=shape))
            case Softmax():
                inputs = [self._activation(operator.source)]
                self._append("SOFTMAX", inputs, operator.output, _table("SoftmaxOptionsT", beta=1.0))

    def _conv(self, conv: Conv) -> None:
        options = _table(
            "DepthwiseConv2DOptionsT" if conv.depthwise else "Conv2DOptionsT",
            padding=_padding(conv.padding),
            strideW=conv.stride,
            strideH=conv.stride,
            fusedActivationFunction=_fused(conv.activation),
        )
        if conv.depthwise:
            options.depthMultiplier = 1
        # (out, in, height, width) becomes (out, height, width, in), for a depthwise kernel (1, height, width, channels).
        axes = (1, 2, 3, 0) if conv.depthwise else (0, 2, 3, 1)
        layout = _Layout(
            shape=tuple(conv.kernel.shape[axis] for axis in axes),
            arrange=lambda kernel: kernel.transpose(axes),
            channel_axis=axes.index(0),
        )
        inputs = self._constants(conv.source, conv.kernel, conv.bias, layout, per_channel=True)
        self._append("DEPTHWISE_CONV_2D" if conv.depthwise else "CONV_2D", inputs, conv.output, options)

    def _pool(self, pool: Pool) -> None:
        options = _table(
            "Pool2DOptionsT",
            padding=_padding(pool.padding),
            strideW=pool.stride,
            strideH=pool.stride,
            filterWidth=pool.size,
            filterHeight=pool.size,
        )
        name = "MAX_POOL_2D" if pool.kind == "max" else "AVERAGE_POOL_2D"
        self._append(name, [self._activation(pool.source)], pool.output, options)

    def _dense(self, dense: Dense) -> None:
        layout = _Layout(dense.matrix.shape, lambda matrix: _columns_for_nhwc(matrix, dense.image), channel_axis=0)
        # TFLite before 2.15 takes a single scale for a dense layer's matrix.
        inputs = self._constants(dense.source, dense.matrix, dense.bias, layout, per_channel=False)
        options = _table("FullyConnectedOptionsT", fusedActivationFunction=_fused(dense.activation))
        self._append("FULLY_CONNECTED", inputs, dense.output, options)

    def _append(self, name: str, inputs: Sequence[int], output: Tensor, options: Any) -> None:
        if name not in self._codes:
            self._codes.append(name)
        operator = _table(
            "OperatorT",
            opcodeIndex=self._codes.index(name),
            inputs=list(inputs),
            outputs=[self._activation(output)],
            builtinOptionsType=getattr(_schema.BuiltinOptions, type(options).__name__.removesuffix("T")),
            builtinOptions=options,
        )
        self._operators.append(operator)

    def _code_table(self, name: str) -> Any:
        code = getattr(_schema.BuiltinOperator, name)
        # Old readers know only the deprecated field, one byte wide; every code used here is below its limit of 127.
        version = _INT8_VERSIONS[name] if self._quantized else 1
        return _table("OperatorCodeT", deprecatedBuiltinCode=code, builtinCode=code, version=version)

    def _activation(self, tensor: Tensor) -> int:
        """The index of an activation, entered when it first comes."""
        if tensor.name in self._indices:
            return self._indices[tensor.name]
        shape = [1, *tensor.shape]
        if not self._quantized:
            return self._tensor(tensor.name, shape, _schema.TensorType.FLOAT32)
        steps = _table("QuantizationParametersT", scale=[tensor.scale], zeroPoint=[tensor.zero_point])
        return self._tensor(tensor.name, shape, _schema.TensorType.INT8, quantization=steps)

    def _constants(self, source: Tensor, kernel: Weight, bias: Weight, layout: _Layout, per_channel: bool) -> tuple[int, int, int]:
        """The three inputs of an operator with weights."""
        model, inputs = self._graph.name, self._activation(source)
        if not self._quantized:
            float32 = _schema.TensorType.FLOAT32
            matrix = self._tensor(kernel.name, layout.shape, float32, _Buffer(lambda: layout.arrange(values(model, kernel))))
            return inputs, matrix, self._tensor(bias.name, bias.shape, float32, _Buffer(lambda: values(model, bias)))
        weights = quantize_weight(values(model, kernel), per_channel)
        offsets = quantize_bias(values(model, bias), source.scale, weights.scales)
        arranged = Quantized(layout.arrange(weights.data), weights.scales)
        return (
            inputs,
            self._steps(kernel.name, layout.shape, _schema.TensorType.INT8, arranged, layout.channel_axis),
            self._steps(bias.name, bias.shape, _schema.TensorType.INT32, offsets, 0),
        )

    def _steps(self, name: str, shape: Sequence[int], kind: int, quantized: Quantized, channel_axis: int) -> int:
        """A constant in whole steps, with the scales that give their size."""
        scales = quantized.scales.tolist()
        steps = _table(
            "QuantizationParametersT",
            scale=scales,
            zeroPoint=[0] * len(scales),
            quantizedDimension=channel_axis if len(scales) > 1 else 0,
        )
        return self._tensor(name, shape, kind, _Buffer(lambda: quantized.data), steps)

    def _integers(self, name: str, numbers: Sequence[int]) -> int:
        array = np.array(numbers, dtype="<i4")
        return self._tensor(name, [len(numbers)], _schema.TensorType.INT32, _Buffer(lambda: array))

    def _tensor(self, name: str, shape: Sequence[int], kind: int, buffer: _Buffer | None = None, quantization: Any = None) -> int:
        if buffer is not None:
            self._buffers.append(buffer)
        index = self._indices[name] = len(self._tensors)
        tensor = _table(
            "TensorT",
            name=name,
            shape=list(shape),
            type=kind,
            buffer=0 if buffer is None else len(self._buffers) - 1,
            quantization=quantization,
        )
        self._tensors.append(tensor)
        return index


@dataclass(frozen=True)
class _Layout:
    """How a weight lies in a channels-last file: its shape there, the way to it, and the axis of its output channels."""

    shape: tuple[int, ...]
    arrange: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    channel_axis: int


def _columns_for_nhwc(matrix: npt.NDArray[Any], image: tuple[int, int, int] | None) -> npt.NDArray[Any]:
    """Columns from the order channels, height, width to the order height, width, channels."""
    if image is None:
        return matrix
    height, width, channels = image
    return matrix.reshape(-1, channels, height, width).transpose(0, 2, 3, 1).reshape(matrix.shape)


def _table(kind: str, **fields: Any) -> Any:
    """An object of the schema. Set field by field: constructors of older ai-edge-litert releases take no arguments."""
    table = getattr(_schema, kind)()
    for field, value in fields.items():
        setattr(table, field, value)
    return table


def _fused(activation: Activation) -> int:
    names = {"none": "NONE", "relu": "RELU", "relu6": "RELU6"}
    return int(getattr(_schema.ActivationFunctionType, names[activation]))


def _padding(padding: Padding) -> int:
    return int(getattr(_schema.Padding, padding.upper()))
