"""Models over sequences with open dimensions, as ONNX: an encoder of BERT's kind, an LSTM, and a loop with a branch inside.

`batch` and `sequence` are open and have these names in the file. The width follows from the requested size. Weights are random, scaled so
that no activation vanishes or explodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from . import encoder as encoding
from .graph import Weight
from .onnx_file import Initializer, OnnxModel, assemble, constant, weight_constant
from .sizing import widest

_LSTM_LAYERS = 2


class _Nodes:
    """Nodes and constants in the order in which they are added."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Initializer] = {}

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}_{len(self.nodes) + 1}", **attributes))
        return output

    def weight(self, weight: Weight) -> str:
        self.constants[weight.name] = weight_constant(self.model, weight)
        return weight.name

    def value(self, name: str, values: object, type: str = "<f4") -> str:
        self.constants[name] = constant(name, np.array(values, dtype=type))
        return name

    def dense(self, source: str, name: str, inputs: int, outputs: int) -> str:
        """A matrix product with a bias."""
        matrix, bias = encoding.dense(name, inputs, outputs)
        product = self.node("MatMul", [source, self.weight(matrix)], f"{name}/product")
        return self.node("Add", [product, self.weight(bias)], name)

    def normalised(self, source: str, name: str, width: int) -> str:
        scale = self.value(f"{name}/scale", np.ones(width))
        shift = self.weight(encoding.shift(name, width))
        return self.node("LayerNormalization", [source, scale, shift], name, axis=-1)

    def assembled(self, inputs: Sequence[ValueInfoProto], output: ValueInfoProto) -> OnnxModel:
        return assemble(self.model, self.nodes, inputs, [output], self.constants.values())


def encoder(size_bytes: int) -> OnnxModel:
    """Four layers of attention and feed-forward, heads of 64, with inputs `ids` and `mask`, both int64 [batch, sequence] with at most 2048
    positions. Output [batch, sequence, width]. Raises UsageError for a size that holds not even a single head.
    """
    shape = encoding.sized(size_bytes)
    width = shape.width
    net = _Nodes("encoder")
    length = net.node("Gather", [net.node("Shape", ["ids"], "shape"), net.value("one", 1, "<i8")], "length", axis=0)
    places = net.node("Range", [net.value("zero", 0, "<i8"), length, "one"], "places")
    words = net.node("Gather", [net.weight(shape.words), "ids"], "embedded", axis=0)
    positions = net.node("Gather", [net.weight(shape.positions), places], "placed", axis=0)
    hidden = net.normalised(net.node("Add", [words, positions], "summed"), "embedding", width)
    # 0 where the mask is 1, and a number that no softmax sees past where it is 0.
    seen = net.node("Cast", ["mask"], "seen", to=TensorProto.FLOAT)
    away = net.node("Mul", [net.node("Sub", [net.value("whole", 1.0), seen], "unseen"), net.value("far", encoding.FAR)], "away")
    bias = net.node("Unsqueeze", [away, net.value("inner", [1, 2], "<i8")], "attention_bias")
    split = net.value("split", [0, 0, shape.heads, encoding.HEAD], "<i8")
    joined = net.value("joined", [0, 0, width], "<i8")
    for layer in range(1, encoding.LAYERS + 1):
        hidden = _encoder_layer(net, f"layer_{layer}", hidden, bias, split, joined, width)
    net.node("Identity", [hidden], "output")
    inputs = [_declared(name, TensorProto.INT64, "batch", "sequence") for name in ("ids", "mask")]
    return net.assembled(inputs, _declared("output", TensorProto.FLOAT, "batch", "sequence", width))


def _encoder_layer(net: _Nodes, name: str, hidden: str, bias: str, split: str, joined: str, width: int) -> str:
    def heads(kind: str, order: list[int]) -> str:
        dense = net.dense(hidden, f"{name}/{kind}", width, width)
        return net.node("Transpose", [net.node("Reshape", [dense, split], f"{dense}/split")], f"{dense}/heads", perm=order)

    query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
    scores = net.node("MatMul", [query, key], f"{name}/scores")
    scaled = net.node("Div", [scores, net.value("root", math.sqrt(encoding.HEAD))], f"{name}/scaled")
    weights = net.node("Softmax", [net.node("Add", [scaled, bias], f"{name}/masked")], f"{name}/weights", axis=-1)
    mixed = net.node("Transpose", [net.node("MatMul", [weights, value], f"{name}/mixed")], f"{name}/turned", perm=[0, 2, 1, 3])
    output = net.dense(net.node("Reshape", [mixed, joined], f"{name}/context"), f"{name}/output", width, width)
    attended = net.normalised(net.node("Add", [hidden, output], f"{name}/attended"), f"{name}/attention", width)
    wide = net.dense(attended, f"{name}/wide", width, 4 * width)
    # GELU as it is exported: x / 2 (1 + erf(x / sqrt(2))).
    erf = net.node("Erf", [net.node("Div", [wide, net.value("root2", math.sqrt(2))], f"{name}/over")], f"{name}/erf")
    gate = net.node("Add", [erf, "whole"], f"{name}/gate")
    active = net.node("Mul", [net.node("Mul", [wide, gate], f"{name}/gated"), net.value("half", 0.5)], f"{name}/active")
    narrow = net.dense(active, f"{name}/narrow", 4 * width, width)
    return net.normalised(net.node("Add", [attended, narrow], f"{name}/forward"), f"{name}/normal", width)


def lstm(size_bytes: int) -> OnnxModel:
    """Two LSTM layers, one after the other. Input `input`, float [sequence, batch, width]; output [sequence, batch, width]."""
    width = widest(size_bytes, lambda wide: _LSTM_LAYERS * 8 * wide * wide, 8, "lstm")
    net = _Nodes("lstm")
    source = "input"
    for layer in range(1, _LSTM_LAYERS + 1):
        limit = math.sqrt(1 / width)
        weights = net.weight(Weight(f"lstm_{layer}/weight", (1, 4 * width, width), limit))
        recurrence = net.weight(Weight(f"lstm_{layer}/recurrence", (1, 4 * width, width), limit))
        bias = net.weight(Weight(f"lstm_{layer}/bias", (1, 8 * width), limit))
        states = net.node("LSTM", [source, weights, recurrence, bias], f"lstm_{layer}/states", hidden_size=width)
        source = net.node("Squeeze", [states, net.value("direction", [1], "<i8")], f"lstm_{layer}")
    net.node("Identity", [source], "output")
    shape = ("sequence", "batch", width)
    return net.assembled([_declared("input", TensorProto.FLOAT, *shape)], _declared("output", TensorProto.FLOAT, *shape))


def loop(size_bytes: int) -> OnnxModel:
    """A Loop over the steps of a sequence; in it an If that applies two matrices alternately. Input `input`, float [sequence, batch, width];
    output: the states after each step, of the same shape."""
    width = widest(size_bytes, lambda wide: 2 * wide * wide, 8, "loop")
    net = _Nodes("loop")
    shape = ("sequence", "batch", width)
    count = net.node("Gather", [net.node("Shape", ["input"], "shape"), net.value("zero", 0, "<i8")], "count", axis=0)
    first = net.node("Gather", ["input", "zero"], "first", axis=0)
    net.value("always", True, "?")
    net.value("two", 2, "<i8")
    for name in ("even", "odd"):
        net.weight(Weight(name, (width, width), math.sqrt(3 / width)))
    net.nodes.append(helper.make_node("Loop", [count, "always", first], ["last", "output"], name="Loop", body=_loop_body(width)))
    return net.assembled([_declared("input", TensorProto.FLOAT, *shape)], _declared("output", TensorProto.FLOAT, *shape))


def _loop_body(width: int) -> Any:
    def branch(weight: str) -> Any:
        result = _declared(f"{weight}/product", TensorProto.FLOAT, "batch", width)
        return helper.make_graph(
            [helper.make_node("MatMul", ["state", weight], [f"{weight}/product"], name=f"MatMul_{weight}")], weight, [], [result]
        )

    nodes = [
        helper.make_node("Gather", ["input", "step"], ["now"], name="Gather_now", axis=0),
        helper.make_node("Mod", ["step", "two"], ["turn"], name="Mod"),
        helper.make_node("Equal", ["turn", "zero"], ["is_even"], name="Equal"),
        helper.make_node("If", ["is_even"], ["product"], name="If", then_branch=branch("even"), else_branch=branch("odd")),
        helper.make_node("Add", ["product", "now"], ["sum"], name="Add"),
        helper.make_node("Tanh", ["sum"], ["next"], name="Tanh"),
        helper.make_node("Identity", ["next"], ["state_out"], name="State"),
        helper.make_node("Identity", ["goes_on"], ["goes_on_out"], name="GoesOn"),
    ]
    state = (TensorProto.FLOAT, "batch", width)
    inputs = [_declared("step", TensorProto.INT64), _declared("goes_on", TensorProto.BOOL), _declared("state", *state)]
    outputs = [_declared("goes_on_out", TensorProto.BOOL), _declared("state_out", *state), _declared("next", *state)]
    return helper.make_graph(nodes, "body", inputs, outputs)


def _declared(name: str, type: int, *shape: int | str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, type, shape)
