"""Writes a network as ONNX: NCHW, opset 17, plain operators, float32 or int8 as a QDQ graph.

A QDQ graph keeps float operators and puts a QuantizeLinear/DequantizeLinear pair on every activation; runtimes fuse them
into integer kernels. Input and output stay float32 in both types.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper

from .graph import Activation, Add, Concat, Conv, Dense, Flatten, GlobalAverage, LayerOutput, Network, Operator, Pool, Softmax, Weight, pads
from .onnx_file import Initializer, OnnxModel, assemble, constant, weight_constant
from .weights import Quantized, quantize_bias, quantize_weight, values


def network(graph: Network, quantized: bool, open_dimensions: bool = False) -> OnnxModel:
    """A network as a model with one input `input` and one output `output`, batch 1. open_dimensions: batch, height and width are open."""
    writer = _QdqWriter(graph) if quantized else _FloatWriter(graph)
    writer.write()
    return assemble(
        graph.name,
        writer.nodes,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, _nchw(graph.input, open_dimensions))],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, _nchw(graph.output, open_dimensions))],
        writer.constants.values(),
    )


def _nchw(tensor: LayerOutput, open_dimensions: bool) -> list[int | str]:
    """(height, width, channels) as [1, channels, height, width]; a vector as [1, features]."""
    if open_dimensions:
        return ["batch", tensor.shape[-1], *(("height", "width") if len(tensor.shape) == 3 else ())]
    return [1, tensor.shape[-1], *tensor.shape[:-1]]


class _FloatWriter:
    """One node for each operator, another for its activation."""

    def __init__(self, graph: Network) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Initializer] = {}
        self._graph = graph
        self._numbers = itertools.count(1)

    def write(self) -> None:
        """Fills `nodes` and `constants`."""
        self._settle(self._graph.input)
        for operator in self._graph.operators:
            self._operator(operator)
            if not isinstance(operator, Softmax):
                self._settle(operator.output)

    def _operator(self, operator: Operator) -> None:
        match operator:
            case Conv():
                self._conv(operator)
            case Dense():
                inputs = self._constants(operator.source, operator.matrix, operator.bias, per_channel=False)
                self._activated("Gemm", inputs, operator.output, operator.activation, transB=1)
            case Pool():
                self._pool(operator)
            case GlobalAverage():
                pooled = f"{operator.output.name}/pooled"
                self._node("GlobalAveragePool", [self._read(operator.source)], pooled)
                self._node("Flatten", [pooled], operator.output.name)
            case Concat():
                self._node("Concat", [self._read(source) for source in operator.sources], operator.output.name, axis=1)
            case Add():
                inputs = [self._read(operator.first), self._read(operator.second)]
                self._activated("Add", inputs, operator.output, operator.activation)
            case Flatten():
                self._node("Flatten", [self._read(operator.source)], operator.output.name)
            case Softmax():
                self._node("Softmax", [self._read(operator.source)], operator.output.name, axis=-1)

    def _conv(self, conv: Conv) -> None:
        window = conv.kernel.shape[2:]
        inputs = self._constants(conv.source, conv.kernel, conv.bias, per_channel=True)
        self._activated(
            "Conv",
            inputs,
            conv.output,
            conv.activation,
            kernel_shape=window,
            strides=[conv.stride, conv.stride],
            pads=_onnx_pads(conv, window),
            group=conv.kernel.shape[0] if conv.depthwise else 1,
        )

    def _pool(self, pool: Pool) -> None:
        self._node(
            "MaxPool" if pool.kind == "max" else "AveragePool",
            [self._read(pool.source)],
            pool.output.name,
            kernel_shape=[pool.size, pool.size],
            strides=[pool.stride, pool.stride],
            pads=_onnx_pads(pool, (pool.size, pool.size)),
        )

    def _activated(self, op_type: str, inputs: list[str], output: LayerOutput, activation: Activation, **attributes: Any) -> None:
        raw = output.name if activation == "none" else f"{output.name}/raw"
        self._node(op_type, inputs, raw, **attributes)
        if activation == "relu":
            self._node("Relu", [raw], output.name)
        elif activation == "relu6":
            self._node("Clip", [raw, self._scalar("zero", 0.0), self._scalar("six", 6.0)], output.name)

    def _scalar(self, name: str, value: float) -> str:
        return self._constant(name, np.array(value, dtype="<f4"))

    def _constant(self, name: str, values: npt.NDArray[Any]) -> str:
        self.constants[name] = constant(name, values)
        return name

    def _node(self, op_type: str, inputs: list[str], output: str, **attributes: Any) -> None:
        name = f"{op_type}_{next(self._numbers)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))

    def _read(self, tensor: LayerOutput) -> str:
        """The name under which later operators find a tensor."""
        return tensor.name

    def _settle(self, tensor: LayerOutput) -> None:
        """Adds the nodes that follow a tensor that was just written: none in float32."""

    def _constants(self, source: LayerOutput, kernel: Weight, bias: Weight, per_channel: bool) -> list[str]:
        """The three inputs of an operator with weights, the weights entered."""
        for weight in (kernel, bias):
            self.constants[weight.name] = weight_constant(self._graph.name, weight)
        return [self._read(source), kernel.name, bias.name]


class _QdqWriter(_FloatWriter):
    """The same nodes, reading activations and weights through DequantizeLinear."""

    def _read(self, tensor: LayerOutput) -> str:
        return f"{tensor.name}/dequantized"

    def _settle(self, tensor: LayerOutput) -> None:
        scale = self._constant(f"{tensor.name}/scale", np.array(tensor.scale, dtype="<f4"))
        zero = self._constant(f"{tensor.name}/zero_point", np.array(tensor.zero_point, dtype=np.int8))
        stored = f"{tensor.name}/int8"
        self._node("QuantizeLinear", [tensor.name, scale, zero], stored)
        self._node("DequantizeLinear", [stored, scale, zero], self._read(tensor))

    def _constants(self, source: LayerOutput, kernel: Weight, bias: Weight, per_channel: bool) -> list[str]:
        weights = quantize_weight(values(self._graph.name, kernel), per_channel)
        offsets = quantize_bias(values(self._graph.name, bias), source.scale, weights.scales)
        return [self._read(source), self._dequantized(kernel, weights), self._dequantized(bias, offsets)]

    def _dequantized(self, weight: Weight, quantized: Quantized) -> str:
        # ONNX takes a single scale as a scalar, one scale a channel as a vector along the axis.
        scales = quantized.scales if quantized.scales.size > 1 else quantized.scales.reshape(())
        inputs = [
            self._constant(f"{weight.name}/stored", quantized.data),
            self._constant(f"{weight.name}/scale", scales),
            self._constant(f"{weight.name}/zero_point", np.zeros(scales.shape, dtype=quantized.data.dtype)),
        ]
        self._node("DequantizeLinear", inputs, weight.name, axis=0)
        return weight.name


def _onnx_pads(operator: Conv | Pool, window: Sequence[int]) -> list[int]:
    """Padding as ONNX lists it: all the begins, then all the ends."""
    height, width, _ = operator.source.shape
    top, bottom = pads(height, window[0], operator.stride, operator.padding)
    left, right = pads(width, window[1], operator.stride, operator.padding)
    return [top, left, bottom, right]
