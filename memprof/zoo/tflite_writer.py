"""Writes a network as a TensorFlow Lite flatbuffer: NHWC, builtin operators.

Types are float32, or int8 throughout: input, output, activations and weights in int8 with 32-bit biases, as TFLite's
quantisation specification asks (ai.google.dev/edge/litert/models/quantization_spec). Activation functions are fused into
the operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy.typing as npt
from msgspec import Struct

from .graph import (
    Activation,
    Add,
    Concat,
    Conv,
    Dense,
    Flatten,
    GlobalAverage,
    LayerOutput,
    Network,
    Operator,
    Padding,
    Pool,
    Softmax,
    Weight,
)
from .tflite_tables import ConstantBuffer, Tables, schema, table
from .weights import Quantized, quantize_bias, quantize_weight, values

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


def write(graph: Network, quantized: bool, file: BinaryIO) -> None:
    """Writes a model to an open file (see Tables.write)."""
    writer = _OperatorWriter(graph, quantized)
    weight_bytes = sum(math.prod(weight.shape) for weight in graph.weights) * (1 if quantized else 4)
    writer.write(weight_bytes, file)


class _OperatorWriter:
    """Puts a network's operators into tables."""

    def __init__(self, graph: Network, quantized: bool) -> None:
        self._graph = graph
        self._quantized = quantized
        self._tables = Tables(graph.name, _INT8_VERSIONS if quantized else {})

    def write(self, weight_bytes: int, file: BinaryIO) -> None:
        inputs = [self._activation(self._graph.input)]
        for operator in self._graph.operators:
            self._operator(operator)
        self._tables.write(inputs, [self._activation(self._graph.output)], weight_bytes, file)

    def _operator(self, operator: Operator) -> None:
        match operator:
            case Conv():
                self._conv(operator)
            case Dense():
                self._dense(operator)
            case Pool():
                self._pool(operator)
            case GlobalAverage():
                axes = self._tables.integers(f"{operator.output.name}/axes", [1, 2])
                inputs = [self._activation(operator.source), axes]
                self._append("MEAN", inputs, operator.output, table("ReducerOptionsT", keepDims=False))
            case Concat():
                inputs = [self._activation(source) for source in operator.sources]
                self._append("CONCATENATION", inputs, operator.output, table("ConcatenationOptionsT", axis=3))
            case Add():
                inputs = [self._activation(operator.first), self._activation(operator.second)]
                options = table("AddOptionsT", fusedActivationFunction=_fused(operator.activation))
                self._append("ADD", inputs, operator.output, options)
            case Flatten():
                shape = [1, *operator.output.shape]
                inputs = [self._activation(operator.source), self._tables.integers(f"{operator.output.name}/shape", shape)]
                self._append("RESHAPE", inputs, operator.output, table("ReshapeOptionsT", newShape=shape))
            case Softmax():
                inputs = [self._activation(operator.source)]
                self._append("SOFTMAX", inputs, operator.output, table("SoftmaxOptionsT", beta=1.0))

    def _conv(self, conv: Conv) -> None:
        options = table(
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
        options = table(
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
        options = table("FullyConnectedOptionsT", fusedActivationFunction=_fused(dense.activation))
        self._append("FULLY_CONNECTED", inputs, dense.output, options)

    def _append(self, name: str, inputs: Sequence[int], output: LayerOutput, options: Any) -> None:
        self._tables.operator(name, inputs, [self._activation(output)], options)

    def _activation(self, tensor: LayerOutput) -> int:
        """The index of an activation, entered when it first comes."""
        if tensor.name in self._tables.indices:
            return self._tables.indices[tensor.name]
        shape = [1, *tensor.shape]
        if not self._quantized:
            return self._tables.tensor(tensor.name, shape, "FLOAT32")
        steps = table("QuantizationParametersT", scale=[tensor.scale], zeroPoint=[tensor.zero_point])
        return self._tables.tensor(tensor.name, shape, "INT8", quantization=steps)

    def _constants(self, source: LayerOutput, kernel: Weight, bias: Weight, layout: _Layout, per_channel: bool) -> tuple[int, int, int]:
        """The three inputs of an operator with weights."""
        model, inputs = self._graph.name, self._activation(source)
        if not self._quantized:
            matrix = self._tables.tensor(
                kernel.name, layout.shape, "FLOAT32", ConstantBuffer(lambda: layout.arrange(values(model, kernel)))
            )
            return inputs, matrix, self._tables.tensor(bias.name, bias.shape, "FLOAT32", ConstantBuffer(lambda: values(model, bias)))
        weights = quantize_weight(values(model, kernel), per_channel)
        offsets = quantize_bias(values(model, bias), source.scale, weights.scales)
        arranged = Quantized(layout.arrange(weights.data), weights.scales)
        return (
            inputs,
            self._steps(kernel.name, layout.shape, "INT8", arranged, layout.channel_axis),
            self._steps(bias.name, bias.shape, "INT32", offsets, 0),
        )

    def _steps(self, name: str, shape: Sequence[int], kind: str, quantized: Quantized, channel_axis: int) -> int:
        """A constant in whole steps, with the scales that give their size."""
        scales = quantized.scales.tolist()
        steps = table(
            "QuantizationParametersT",
            scale=scales,
            zeroPoint=[0] * len(scales),
            quantizedDimension=channel_axis if len(scales) > 1 else 0,
        )
        return self._tables.tensor(name, shape, kind, ConstantBuffer(lambda: quantized.data), quantization=steps)


class _Layout(Struct, frozen=True):
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


def _fused(activation: Activation) -> int:
    names = {"none": "NONE", "relu": "RELU", "relu6": "RELU6"}
    return int(getattr(schema.ActivationFunctionType, names[activation]))


def _padding(padding: Padding) -> int:
    return int(getattr(schema.Padding, padding.upper()))
