"""The zoo's decoder as ONNX, in float32 and plain operators of opset 17: with all of a text as its input, or with the KV cache as inputs and outputs.

Names are those that exporters of language models give: `input_ids` [batch, sequence] in, `logits` out; with the cache `past_key_values.N.key` and
`.value` [batch, KV heads, past_sequence, 64] in, `present.N.key` and `.value` out. Matrices are stored (in, out), as MatMul takes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from . import decoder as shapes
from .decoder import HEAD, Decoder
from .graph import Weight
from .onnx_file import Initializer, OnnxModel, assemble, constant, weight_constant

_HIDDEN = -1e9  # added to the score of a token that lies ahead


def decoder(shape: Decoder, cached: bool) -> OnnxModel:
    """The decoder; cached: with inputs and outputs for the KV cache."""
    return _DecoderWriter(shape, cached).model()


class _DecoderWriter:
    """Writes operators in the order of execution. The methods return the names of results."""

    def __init__(self, shape: Decoder, cached: bool) -> None:
        self.shape, self.cached = shape, cached
        self.name = "llama_with_past" if cached else "llama"
        self.nodes: list[NodeProto] = []
        self.constants: list[Initializer] = []
        self.inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])]
        self.outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", shapes.VOCABULARY])]
        self.weights = {weight.name: weight for _, weight in shape.weights}

    def model(self) -> OnnxModel:
        """The whole graph."""
        self._positions()
        embedding = self.weights["token_embd"]
        self.constants.append(weight_constant("llama", embedding))
        x = self._node("Gather", embedding.name, "input_ids", axis=0)
        for layer in range(self.shape.layers):
            part = f"blk.{layer}."
            x = self._node("Add", x, self._attention(layer, self._norm(x, part + "attn_norm")))
            x = self._node("Add", x, self._feed(part, self._norm(x, part + "ffn_norm")))
        logits = self._matrix(self._norm(x, "output_norm"), "output")
        self.nodes.append(helper.make_node("Identity", [logits], ["logits"], name="logits"))
        return assemble(self.name, self.nodes, self.inputs, self.outputs, self.constants)

    def _positions(self) -> None:
        """Angles of the tokens' places, and the mask that hides tokens which lie ahead."""
        zero, one = self._constant("zero", 0), self._constant("one", 1)
        length = self._node("Gather", self._node("Shape", "input_ids"), one, axis=0)
        past = zero
        if self.cached:
            for layer in range(self.shape.layers):
                for part in ("key", "value"):
                    self.inputs.append(self._cache(f"past_key_values.{layer}.{part}", "past_sequence"))
                    self.outputs.append(self._cache(f"present.{layer}.{part}", "total_sequence"))
            past = self._node("Gather", self._node("Shape", "past_key_values.0.key"), self._constant("two", 2), axis=0)
        total = self._node("Add", past, length)
        rows = self._node("Unsqueeze", self._node("Range", past, total, one), self._constant("columns", [1]))
        columns = self._node("Unsqueeze", self._node("Range", zero, total, one), self._constant("rows", [0]))
        hidden, shown = self._constant("hidden", _HIDDEN, "<f4"), self._constant("shown", 0.0, "<f4")
        self.mask = self._node("Where", self._node("Less", rows, columns), hidden, shown)
        turns = shapes.ROPE_BASE ** (-np.arange(0, HEAD, 2, dtype="<f8") / HEAD)
        self.constants.append(constant("turns", turns.astype("<f4")))
        angles = self._node("Mul", self._node("Cast", rows, to=TensorProto.FLOAT), "turns")
        angles = self._node("Concat", angles, angles, axis=-1)
        self.cosine, self.sine = self._node("Cos", angles), self._node("Sin", angles)
        self.scale, self.epsilon = self._constant("scale", HEAD**-0.5, "<f4"), self._constant("epsilon", shapes.EPSILON, "<f4")

    def _attention(self, layer: int, x: str) -> str:
        part = f"blk.{layer}."
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        query = self._turned(self._heads(self._matrix(x, part + "attn_q"), heads))
        key = self._turned(self._heads(self._matrix(x, part + "attn_k"), kv_heads))
        value = self._heads(self._matrix(x, part + "attn_v"), kv_heads)
        if self.cached:
            key = self._node("Concat", f"past_key_values.{layer}.key", key, axis=2, output=f"present.{layer}.key")
            value = self._node("Concat", f"past_key_values.{layer}.value", value, axis=2, output=f"present.{layer}.value")
        keys = self._node("Transpose", self._shared(key), perm=[0, 1, 3, 2])
        scores = self._node("Add", self._node("Mul", self._node("MatMul", query, keys), self.scale), self.mask)
        mixed = self._node("MatMul", self._node("Softmax", scores, axis=-1), self._shared(value))
        mixed = self._node("Reshape", self._node("Transpose", mixed, perm=[0, 2, 1, 3]), self._constant("joined", [0, 0, self.shape.width]))
        return self._matrix(mixed, part + "attn_output")

    def _feed(self, part: str, x: str) -> str:
        gate = self._matrix(x, part + "ffn_gate")
        gate = self._node("Mul", gate, self._node("Sigmoid", gate))
        return self._matrix(self._node("Mul", gate, self._matrix(x, part + "ffn_up")), part + "ffn_down")

    def _norm(self, x: str, name: str) -> str:
        power = self._node("ReduceMean", self._node("Mul", x, x), axes=[-1], keepdims=1)
        root = self._node("Sqrt", self._node("Add", power, self.epsilon))
        self.constants.append(constant(name, np.ones(self.shape.width, "<f4")))
        return self._node("Mul", self._node("Div", x, root), name)

    def _matrix(self, x: str, name: str) -> str:
        out, into = self.weights[name].shape
        self.constants.append(weight_constant("llama", Weight(name, (into, out), self.weights[name].limit)))
        return self._node("MatMul", x, name)

    def _heads(self, x: str, count: int) -> str:
        """[batch, sequence, count x 64] as [batch, count, sequence, 64]."""
        return self._node("Transpose", self._node("Reshape", x, self._constant(f"heads_{count}", [0, 0, count, HEAD])), perm=[0, 2, 1, 3])

    def _turned(self, x: str) -> str:
        """Rotary embedding: each pair of halves is turned by its place's angle (Su et al. 2021)."""
        first, second = f"{x}/first", f"{x}/second"
        self.nodes.append(helper.make_node("Split", [x], [first, second], name=f"{x}/Split", axis=-1))
        swapped = self._node("Concat", self._node("Neg", second), first, axis=-1)
        return self._node("Add", self._node("Mul", x, self.cosine), self._node("Mul", swapped, self.sine))

    def _shared(self, x: str) -> str:
        """Each KV head for the two queries that share it."""
        pairs = self._node("Expand", self._node("Unsqueeze", x, self._constant("pair", [2])), self._constant("twice", [1, 1, 2, 1, 1]))
        return self._node("Reshape", pairs, self._constant("every", [0, self.shape.heads, -1, HEAD]))

    def _cache(self, name: str, length: str) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", self.shape.kv_heads, length, HEAD])

    def _node(self, kind: str, *sources: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(sources), [name], name=name, **attributes))
        return name

    def _constant(self, name: str, value: object, type: str = "<i8") -> str:
        """A constant, made once."""
        if all(other.name != name for other in self.constants):
            self.constants.append(constant(name, np.array(value, type)))
        return name
