"""Models that show one effect of memory at any size: a weight shared by two branches, and weights by the gigabyte.

`shared_if` is the case of onnxruntime issue 20709. An embedding matrix W serves a Gather in one branch of an If and, read
as its transpose, a MatMul in the other; onnxruntime then holds W, a folded transpose and a prepacked one. The rewritten
form transposes the small operands instead, x W' = (W x')', and W is used as it is stored.
"""

from __future__ import annotations

import math
from typing import Any

from onnx import GraphProto, NodeProto, TensorProto, helper

from ..base.errors import UsageError
from .graph import Weight
from .onnx_file import OnnxModel, assemble, weight_constant

# The width of the model in the issue (NLLB).
_EMBEDDING = 1024
_MLP_LARGEST_WEIGHT = 256 << 20
_MLP_FEWEST_LAYERS = 4
_LABELS = 20
_FLOAT_BYTES = 4


def shared_if(size_bytes: int, rewritten: bool) -> OnnxModel:
    """W of `size_bytes`, as rows of 1024 floats.

    Inputs: `embed` (bool scalar) chooses the branch, `ids` (int64 [1]) the row of W, `x` (float [1, 1024]) is multiplied
    with W's transpose. The output is [1, 1024] with `embed`, [1, rows] without. Raises UsageError below one row.
    """
    rows = size_bytes // (_FLOAT_BYTES * _EMBEDDING)
    if rows < 1:
        raise UsageError(f"a shared weight is at least {_FLOAT_BYTES * _EMBEDDING} bytes")
    weight = Weight("W", (rows, _EMBEDDING), math.sqrt(3 / _EMBEDDING))
    branch = helper.make_node(
        "If",
        ["embed"],
        ["output"],
        name="If",
        then_branch=_branch("embedding", [helper.make_node("Gather", ["W", "ids"], ["rows"], name="Gather", axis=0)]),
        else_branch=_branch("projection", _transposed_operands() if rewritten else _transposed_weight()),
    )
    return assemble(
        "shared_if_rewritten" if rewritten else "shared_if",
        [branch],
        [
            helper.make_tensor_value_info("embed", TensorProto.BOOL, []),
            helper.make_tensor_value_info("ids", TensorProto.INT64, [1]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _EMBEDDING]),
        ],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, "features"])],
        # Both forms hold the same values, so that their outputs can be compared.
        [weight_constant("shared_if", weight)],
    )


def _transposed_weight() -> list[NodeProto]:
    return [
        helper.make_node("Transpose", ["W"], ["W_transposed"], name="TransposeWeight", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "W_transposed"], ["scores"], name="MatMul"),
    ]


def _transposed_operands() -> list[NodeProto]:
    return [
        helper.make_node("Transpose", ["x"], ["x_transposed"], name="TransposeInput", perm=[1, 0]),
        helper.make_node("MatMul", ["W", "x_transposed"], ["scores_transposed"], name="MatMul"),
        helper.make_node("Transpose", ["scores_transposed"], ["scores"], name="TransposeOutput", perm=[1, 0]),
    ]


def _branch(name: str, nodes: list[NodeProto]) -> GraphProto:
    output = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [1, None])
    return helper.make_graph(nodes, name, [], [output])


def labels() -> OnnxModel:
    """A LabelEncoder (ai.onnx.ml 2) of twenty strings: input `x`, strings [20], output `output`, int64 [20], -1 for a string without a number.

    ONNX Runtime 1.19.2 keeps each string that it has not seen (its issue 22271).
    """
    keys = [f"k{number}" for number in range(_LABELS)]
    numbers: dict[str, Any] = {"keys_strings": keys, "values_int64s": list(range(_LABELS)), "default_int64": -1}
    node = helper.make_node("LabelEncoder", ["x"], ["output"], name="LabelEncoder", domain="ai.onnx.ml", **numbers)
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, [_LABELS])]
    model = assemble("labels", [node], inputs, [helper.make_tensor_value_info("output", TensorProto.INT64, [_LABELS])], [])
    model.proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    return model


def founding_example(size_bytes: int) -> OnnxModel:
    """Five operators in the order L M N P Add, of nntrainer issue 1126: of six tensors four have `size_bytes`, and T3 a quarter of it.

    T1 is the input. L makes T2 of T1, P makes T5 of T1, M makes T3 of T2 in a byte an element, N makes T4 of T3, and Add reads T4 and T5. In this
    order three large tensors lie in memory at once, in L M P N Add two and a quarter. Add's result is a single number (a product of two
    vectors) of 4 bytes, where the issue counts none. Raises UsageError below one element.
    """
    count = size_bytes // _FLOAT_BYTES
    if count < 1:
        raise UsageError(f"a large tensor is at least {_FLOAT_BYTES} bytes")
    nodes = [
        helper.make_node("Relu", ["T1"], ["T2"], name="L"),
        helper.make_node("Cast", ["T2"], ["T3"], name="M", to=TensorProto.UINT8),
        helper.make_node("Cast", ["T3"], ["T4"], name="N", to=TensorProto.FLOAT),
        helper.make_node("Sigmoid", ["T1"], ["T5"], name="P"),
        helper.make_node("MatMul", ["T4", "T5"], ["T6"], name="Add"),
    ]
    return assemble(
        "founding_example",
        nodes,
        [helper.make_tensor_value_info("T1", TensorProto.FLOAT, [count])],
        [helper.make_tensor_value_info("T6", TensorProto.FLOAT, [])],
        [],
    )


def mlp(size_bytes: int) -> OnnxModel:
    """Square MatMul + Add + Relu layers of together about `size_bytes`, no matrix beyond 256 MiB. Input [1, width].

    Raises UsageError where a layer would have no column.
    """
    layers = max(_MLP_FEWEST_LAYERS, -(-size_bytes // _MLP_LARGEST_WEIGHT))
    width = math.isqrt(size_bytes // (layers * _FLOAT_BYTES))
    if width < 1:
        raise UsageError(f"the weights of mlp are at least {layers * _FLOAT_BYTES} bytes")
    nodes, constants, source = [], [], "input"
    for layer in range(1, layers + 1):
        prefix = f"dense_{layer}"
        output = "output" if layer == layers else prefix
        # A ReLU halves the power of its input, and He's factor of 2 (in the variance) restores it.
        matrix = Weight(f"{prefix}/weight", (width, width), math.sqrt(2 * 3 / width))
        bias = Weight(f"{prefix}/bias", (width,), 0.1)
        constants += [weight_constant("mlp", matrix), weight_constant("mlp", bias)]
        nodes += [
            helper.make_node("MatMul", [source, matrix.name], [f"{prefix}/product"], name=f"MatMul_{layer}"),
            helper.make_node("Add", [f"{prefix}/product", bias.name], [f"{prefix}/sum"], name=f"Add_{layer}"),
            helper.make_node("Relu", [f"{prefix}/sum"], [output], name=f"Relu_{layer}"),
        ]
        source = output
    shape = [1, width]
    return assemble(
        "mlp",
        nodes,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)],
        constants,
    )
