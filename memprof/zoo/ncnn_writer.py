"""Writes a network as ncnn reads it: a .param file, which is text, and a .bin file with the weights as float32, in the order of the layers.

A line of the .param file is a layer: its type, its name, how many blobs it takes and gives, their names, and its parameters by number. A
blob that several layers read passes through a layer Split. In the .bin file a kernel or a matrix follows a tag of four zero bytes, which
stands for float32; a bias has no tag. There is no batch, and the order of axes is channels, height, width, as in ONNX. Numbers and format:
ncnn's wiki, operators and param-and-model-file-structure.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import BinaryIO

from .graph import Activation, Add, Concat, Conv, Dense, Flatten, GlobalAverage, LayerOutput, Network, Operator, Pool, Softmax, pads
from .weights import blocks

_MAGIC = "7767517"
_FLOAT32 = b"\0\0\0\0"
# The parameters 9 and 10 of a layer with weights; -233xx is a list.
_Parameters = dict[str, int | float | str]  # by number
_FUSED: dict[Activation, _Parameters] = {"none": {}, "relu": {"9": 1}, "relu6": {"-23310": "2,0.0,6.0", "9": 3}}
_ALONE: dict[Activation, tuple[str, _Parameters]] = {"relu": ("ReLU", {}), "relu6": ("Clip", {"0": 0.0, "1": 6.0})}


def write(graph: Network, param: BinaryIO, weights: BinaryIO) -> None:
    """Write a network to two open files."""
    writer = _LayerWriter(graph)
    param.write(writer.text().encode())
    for weight in graph.weights:
        if len(weight.shape) > 1:
            weights.write(_FLOAT32)
        for block in blocks(graph.name, weight):
            weights.write(block.tobytes())


class _LayerWriter:
    """Collects the lines of layers, and hands each reader of a blob its part of a Split."""

    def __init__(self, graph: Network) -> None:
        self._graph = graph
        self._lines: list[str] = []
        self._blobs = 0
        self._readers = Counter(tensor.name for operator in graph.operators for tensor in _sources(operator))
        self._parts: dict[str, list[str]] = {}

    def text(self) -> str:
        """The .param file."""
        channels, height, width = self._graph.input.shape[2], *self._graph.input.shape[:2]
        self._layer("Input", [], self._graph.input.name, {"0": width, "1": height, "2": channels})
        for operator in self._graph.operators:
            self._operator(operator)
        return "\n".join([_MAGIC, f"{len(self._lines)} {self._blobs}", *self._lines]) + "\n"

    def _operator(self, operator: Operator) -> None:
        output = operator.output.name
        match operator:
            case Conv():
                kind = "ConvolutionDepthWise" if operator.depthwise else "Convolution"
                self._layer(kind, [operator.source], output, _conv(operator) | _FUSED[operator.activation])
            case Dense():
                sizes = {"0": operator.matrix.shape[0], "1": 1, "2": math.prod(operator.matrix.shape)}
                self._layer("InnerProduct", [operator.source], output, sizes | _FUSED[operator.activation])
            case Pool():
                self._layer("Pooling", [operator.source], output, _pool(operator))
            case GlobalAverage():
                self._layer("Pooling", [operator.source], output, {"0": 1, "4": 1})
            case Concat():
                self._layer("Concat", operator.sources, output, {"0": 0})
            case Add():
                alone = _ALONE.get(operator.activation)
                sum_name = output if alone is None else f"{output}/raw"
                self._layer("BinaryOp", [operator.first, operator.second], sum_name, {"0": 0})
                if alone is not None:
                    self._line(alone[0], [sum_name], [output], alone[1])
                    self._split(output)
            case Flatten():
                self._layer("Flatten", [operator.source], output, {})
            case Softmax():
                self._layer("Softmax", [operator.source], output, {"0": 0, "1": 1})

    def _layer(self, kind: str, sources: tuple[LayerOutput, ...] | list[LayerOutput], output: str, parameters: _Parameters) -> None:
        names = [self._parts[tensor.name].pop(0) if tensor.name in self._parts else tensor.name for tensor in sources]
        self._line(kind, names, [output], parameters)
        self._split(output)

    def _split(self, name: str) -> None:
        if self._readers[name] > 1:
            self._parts[name] = [f"{name}/{number}" for number in range(self._readers[name])]
            self._line("Split", [name], list(self._parts[name]), {})

    def _line(self, kind: str, inputs: list[str], outputs: list[str], parameters: _Parameters) -> None:
        self._blobs += len(outputs)
        name = f"{kind}_{len(self._lines)}" if kind != "Input" else outputs[0]
        values = [f"{number}={value}" for number, value in parameters.items()]
        self._lines.append(" ".join([kind, name, str(len(inputs)), str(len(outputs)), *inputs, *outputs, *values]))


def _sources(operator: Operator) -> tuple[LayerOutput, ...]:
    match operator:
        case Concat():
            return operator.sources
        case Add():
            return operator.first, operator.second
    return (operator.source,)


def _conv(conv: Conv) -> _Parameters:
    filters, _, rows, columns = conv.kernel.shape
    parameters: _Parameters = {
        "0": filters,
        "1": columns,
        "11": rows,
        "3": conv.stride,
        "13": conv.stride,
        "5": 1,
        "6": math.prod(conv.kernel.shape),
    }
    top, bottom = pads(conv.source.shape[0], rows, conv.stride, conv.padding)
    left, right = pads(conv.source.shape[1], columns, conv.stride, conv.padding)
    parameters.update({"4": left, "14": top, "15": right, "16": bottom})
    if conv.depthwise:
        parameters["7"] = filters
    return parameters


def _pool(pool: Pool) -> _Parameters:
    top, bottom = pads(pool.source.shape[0], pool.size, pool.stride, pool.padding)
    left, right = pads(pool.source.shape[1], pool.size, pool.stride, pool.padding)
    kind = 0 if pool.kind == "max" else 1
    # 5: padding as given here, nothing added by ncnn; 6: places outside do not count for an average.
    return {"0": kind, "1": pool.size, "2": pool.stride, "3": left, "13": top, "14": right, "15": bottom, "5": 1, "6": 0}
