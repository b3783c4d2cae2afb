"""A graph in training, from the graph of its inference: forward, loss, backward in the opposite order, update. Stated assumptions, no autograd.

An operator's derivative decides which tensors of the forward pass its backward step reads: a product needs its factors, a rectifier its
result, a sum nothing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, section 3). A gradient has the size of its tensor.
Where several operators read a tensor, their shares are added in place. Gradients are applied at once, when a weight's is complete, as
nntrainer does, or all together after the backward pass, as PyTorch's optimizers do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from ..base.errors import InputError
from .graphs.graph import FLOATING, Graph, Operator, Unknown, words
from .graphs.reduced import Mapped, problem
from .orders.problem import Problem

Optimizer = Literal["sgd", "momentum", "adam"]
Gradients = Literal["at-once", "after"]
# Values that an optimizer keeps for each trainable value: none, a velocity, or two moments (Kingma and Ba 2014).
STATES: dict[str, int] = {"sgd": 0, "momentum": 1, "adam": 2}

# Operators by the tensors of the forward pass that their backward step reads.
_NOTHING = words(
    "Add Sub Sum Concat Reshape Flatten Squeeze Unsqueeze Transpose Identity Split Pad AveragePool GlobalAveragePool ReduceMean ReduceSum Expand "
    "Tile Cast Resize Upsample Neg DepthToSpace SpaceToDepth Mean QuantizeLinear DequantizeLinear Slice CONCATENATION RESHAPE SQUEEZE EXPAND_DIMS "
    "TRANSPOSE PAD PADV2 MEAN SUM SPLIT SPLIT_V SLICE STRIDED_SLICE CAST RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR NEG PACK UNPACK TILE "
    "BROADCAST_TO DEPTH_TO_SPACE SPACE_TO_DEPTH SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND QUANTIZE DEQUANTIZE ADD_N MIRROR_PAD REVERSE_V2"
)
_INPUTS = words(
    "Conv ConvTranspose Gemm MatMul Mul Div Pow Log Erf Gelu BatchNormalization LayerNormalization InstanceNormalization GroupNormalization PRelu "
    "Abs Max Min HardSwish HardSigmoid Softplus Einsum Sin Cos LOG ABS SIN COS POW MAXIMUM MINIMUM GELU HARD_SWISH PRELU BATCH_MATMUL "
    "TRANSPOSE_CONV SQUARE SQUARED_DIFFERENCE Mish Swish"
)
_OUTPUTS = words(
    "Relu Sigmoid Tanh Softmax LogSoftmax Exp Sqrt Reciprocal Elu Selu LeakyRelu Clip ADD SUB AVERAGE_POOL_2D RELU RELU6 RELU_N1_TO_1 LOGISTIC TANH "
    "SOFTMAX LOG_SOFTMAX EXP SQRT RSQRT ELU LEAKY_RELU"
)
_BOTH = words(
    "MaxPool LRN ReduceMax ReduceMin LSTM GRU RNN ReduceL2 GlobalMaxPool CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED CONV_3D MUL DIV MAX_POOL_2D "
    "LSTM UNIDIRECTIONAL_SEQUENCE_LSTM L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION REDUCE_MAX REDUCE_MIN"
)
# Operators that choose among values; they choose with an input of an integer type.
_CHOICES = words(
    "Gather GatherElements GatherND Where ScatterND ScatterElements Dropout GATHER GATHER_ND SELECT SELECT_V2 EMBEDDING_LOOKUP"
)


class Training(Struct, frozen=True):
    """A training step as a problem, with the bytes that are there in any order.

    kept: tensors of the forward pass that a backward step reads. weight_gradients: tensors that are gradients of weights, before they are
    summed. gradient_bytes: of all weights. state_bytes: the optimizer's, in memory all the time, like the weights. updates: for each operator of
    the problem the weights that it changes.
    """

    mapped: Mapped
    optimizer: Optimizer
    gradients: Gradients
    kept: tuple[int, ...]
    weight_gradients: tuple[int, ...]
    kept_bytes: int
    trainable_bytes: int
    gradient_bytes: int
    state_bytes: int
    updates: tuple[tuple[int, ...], ...]
    assumptions: tuple[str, ...]
    unknown: tuple[Unknown, ...]


def training(graph: Graph, optimizer: Optimizer = "sgd", gradients: Gradients = "at-once", in_place: bool = False) -> Training:
    """A training step of a graph. Raises InputError where no weight can be trained."""
    forward = problem(graph, in_place)
    building = _Building(graph, forward, gradients)
    building.build()
    if not building.trained:
        raise InputError(f"model {graph.path}: it has no floating weight that reaches an output, so there is nothing to train")
    bytes = sum(graph.weights[weight].bytes or 0 for weight in building.trained)
    applied = "at once, when a weight's is complete" if gradients == "at-once" else "all together after the backward pass"
    assumptions = [
        "every floating weight is trained, but for running statistics; a gradient has the size and type of its tensor",
        "a loss reads the outputs and gives each its gradient; the inputs get none",
        "the shares of a tensor that several operators read are added in place",
        f"gradients are applied {applied}; {optimizer} keeps {STATES[optimizer]} values for each trained value",
        "values that a runtime recomputes, and memory that its backward kernels need beyond gradients and kept activations, are left out",
    ]
    if graph.format != "onnx":
        assumptions.append("an operator with a fused activation keeps its result too, as every convolution and sum may have one")
    unknown = []
    if building.without_rule:
        names = tuple(f"{kind} ({count})" for kind, count in building.without_rule.most_common())
        unknown.append(Unknown("operators without a rule for the inputs of their backward step: inputs and results are kept", names))
    kept = tuple(sorted(building.saved))
    return Training(
        mapped=building.mapped(),
        optimizer=optimizer,
        gradients=gradients,
        kept=kept,
        weight_gradients=tuple(building.weight_gradients),
        kept_bytes=sum(forward.problem.sizes[tensor] for tensor in kept),
        trainable_bytes=bytes,
        gradient_bytes=bytes,
        state_bytes=STATES[optimizer] * bytes,
        updates=tuple(building.updates),
        assumptions=tuple(assumptions),
        unknown=tuple(unknown),
    )


def saved(operator: Operator, graph: Graph) -> tuple[tuple[int, ...], bool]:
    """The tensors of the forward pass that an operator's backward step reads, and whether a rule names them."""
    if operator.bodies:
        return (*operator.reads, *operator.writes), False
    chosen = tuple(number for number in operator.reads if graph.tensors[number].type not in FLOATING)
    kind = operator.kind
    if kind in _NOTHING:
        return (), True
    if kind in _CHOICES:
        return (*chosen, *(operator.writes[1:] if kind == "Dropout" else ())), True
    if kind in _INPUTS:
        return operator.reads, True
    if kind in _OUTPUTS:
        return operator.writes, True
    return (*operator.reads, *operator.writes), kind in _BOTH


@dataclass
class _Building:
    """A training step while it is built."""

    graph: Graph
    forward: Mapped
    gradients: Gradients
    saved: set[int] = field(default_factory=set)
    trained: list[int] = field(default_factory=list)
    weight_gradients: list[int] = field(default_factory=list)
    without_rule: Counter[str] = field(default_factory=Counter)
    updates: list[tuple[int, ...]] = field(default_factory=list)

    def build(self) -> None:
        """Forward, loss, backward, update."""
        base = self.forward.problem
        self._sizes, self._names = list(base.sizes), list(self.forward.tensors)
        self._reads, self._writes = list(base.reads), list(base.writes)
        self._inplace: list[tuple[int, int] | None] = list(base.inplace) or [None] * base.count
        self._operators, self._kinds = list(self.forward.operators), list(self.forward.kinds)
        self._weights, self._work = list(self.forward.weights), list(self.forward.work)
        self.updates = [()] * base.count
        self._of_tensor: dict[int, int] = {}  # the sums of gradients so far, of tensors and of weights
        self._of_weight: dict[int, int] = {}
        reached = self._reached()
        self._loss(reached)
        left = Counter(weight for operator in self.graph.operators for weight in self._trainable(operator))
        for number in range(len(self.graph.operators) - 1, -1, -1):
            operator = self.graph.operators[number]
            self._backward(number, operator, reached)
            for weight in self._trainable(operator):
                left[weight] -= 1
                if self.gradients == "at-once" and not left[weight] and weight in self._of_weight:
                    self._update([weight])
        if self.gradients == "after" and self._of_weight:
            self._update(list(self._of_weight))
        self.trained = sorted(self._of_weight)

    def mapped(self) -> Mapped:
        """The whole step."""
        base = self.forward.problem
        whole = Problem(
            sizes=tuple(self._sizes),
            reads=tuple(self._reads),
            writes=tuple(self._writes),
            given=base.given,
            kept=base.kept,
            inplace=tuple(self._without_saved(pair) for pair in self._inplace),
            names=tuple(self._operators),
        )
        return Mapped(whole, whole.names, tuple(self._kinds), tuple(self._names), tuple(self._weights), tuple(self._work))

    def _without_saved(self, pair: tuple[int, int] | None) -> tuple[int, int] | None:
        return None if pair is None or pair[0] in self.saved else pair

    def _trainable(self, operator: Operator) -> list[int]:
        return [number for number in operator.weights if self.graph.weights[number].trainable]

    def _reached(self) -> set[int]:
        """Tensors that depend on a trainable weight."""
        reached: set[int] = set()
        for number, operator in enumerate(self.graph.operators):
            trains = any(self.graph.weights[weight].trainable for weight in self.forward.weights[number])
            if trains or any(tensor in reached for tensor in operator.reads):
                reached.update(tensor for tensor in operator.writes if self.graph.tensors[tensor].type in FLOATING)
        return reached

    def _loss(self, reached: set[int]) -> None:
        outputs = [number for number in self.graph.outputs if number in reached]
        for number in outputs:
            self._of_tensor[number] = self._add(f"gradient of {self._names[number]}", self._sizes[number])
        self._operator("loss", "loss", outputs, [self._of_tensor[number] for number in outputs])

    def _backward(self, number: int, operator: Operator, reached: set[int]) -> None:
        ready = [self._of_tensor[tensor] for tensor in operator.writes if tensor in self._of_tensor]
        if not ready:
            return
        wanted, has_rule = saved(operator, self.graph)
        if not has_rule:
            self.without_rule[operator.kind] += 1
        self.saved.update(wanted)
        tensors = [tensor for tensor in operator.reads if tensor in reached]
        weights = self._trainable(operator)
        shares = [self._add(f"gradient of {self._names[tensor]}", self._sizes[tensor]) for tensor in tensors]
        of_weights = [
            self._add(f"gradient of {self.graph.weights[weight].name}", self.graph.weights[weight].bytes or 0) for weight in weights
        ]
        self.weight_gradients += of_weights
        if not shares and not of_weights:
            return
        work = operator.work * (bool(shares) + bool(of_weights)) if operator.work is not None else None
        inside = [
            self._add(f"{operator.name} (inside, backward)", self._sizes[tensor])
            for tensor in self.forward.problem.writes[number]
            if tensor >= len(self.graph.tensors) and self._sizes[tensor]
        ]
        self._operator(
            f"{operator.name} backward",
            operator.kind,
            [*ready, *wanted],
            [*shares, *of_weights, *inside],
            self.forward.weights[number],
            work,
        )
        for tensor, share in zip(tensors, shares, strict=True):
            self._accumulate(self._of_tensor, tensor, share)
        for weight, share in zip(weights, of_weights, strict=True):
            self._accumulate(self._of_weight, weight, share)

    def _accumulate(self, sums: dict[int, int], number: int, share: int) -> None:
        if number not in sums:
            sums[number] = share
            return
        total = self._add(self._names[share], self._sizes[share])
        self._operator(f"add {self._names[share]}", "sum of gradients", [sums[number], share], [total], pair=(sums[number], total))
        sums[number] = total

    def _update(self, weights: Sequence[int]) -> None:
        name = self.graph.weights[weights[0]].name if len(weights) == 1 else "all weights"
        done = self._add(f"{name} (updated)", 0)
        self._operator(f"update {name}", "update", [self._of_weight[weight] for weight in weights], [done], tuple(weights))
        self.updates[-1] = tuple(weights)

    def _add(self, name: str, bytes: int) -> int:
        self._names.append(name)
        self._sizes.append(bytes)
        return len(self._sizes) - 1

    def _operator(
        self,
        name: str,
        kind: str,
        reads: Sequence[int],
        writes: Sequence[int],
        weights: tuple[int, ...] = (),
        work: int | None = None,
        pair: tuple[int, int] | None = None,
    ) -> None:
        self._operators.append(name)
        self._kinds.append(kind)
        self._reads.append(tuple(dict.fromkeys(reads)))
        self._writes.append(tuple(writes))
        self._weights.append(weights)
        self._work.append(work)
        self._inplace.append(pair)
        self.updates.append(())
