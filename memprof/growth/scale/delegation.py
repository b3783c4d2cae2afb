"""The activations of a TFLite model at any place of its dimensions, where the interpreter hands parts of its graph to XNNPACK.

Two planners share them. Between the parts, the interpreter's arena holds the tensors that its own operators and whole parts read and write. Inside
a part, XNNPACK writes results over operands, and all parts take turns in one workspace. Each is as large as its worst moment, so another moment may
make the peak far from where memory was measured.

A separate process loads the model, and tells which tensors each part reads and writes. The sizes of tensors at any place follow from the graph at
a few.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ...base.errors import InputError
from ...plan import Buffer, Problem, greedy, lifetimes
from ...plan.graphs.graph import Graph
from ...plan.orders.topological import topological
from .requests import Amount, Basis

At = Mapping[str, int]

_MODULES = {"litert": "ai_edge_litert.interpreter", "tflite": "tflite_runtime.interpreter"}
_LONGEST_S = 120
_ALIGNMENT = 64  # of tensors, in both arenas
# XNNPACK packs the second operand of these into its workspace, unless it is a weight that was packed before.
_PACKS = ("BATCH_MATMUL", "FULLY_CONNECTED")

# The program of that process. Its last line is the list of operators, those of the file first: type, tensors read, tensors written.
_CHILD = """
import importlib, json, sys
job = json.load(sys.stdin)
interpreter = importlib.import_module(job["module"]).Interpreter(model_path=job["model"], num_threads=1)
for tensor in interpreter.get_input_details():
    if tensor["name"] in job["shapes"]:
        interpreter.resize_tensor_input(tensor["index"], job["shapes"][tensor["name"]])
interpreter.allocate_tensors()
operators = interpreter._get_ops_details()
print(json.dumps([[each["op_name"], *([int(number) for number in each[key]] for key in ("inputs", "outputs"))] for each in operators]))
"""


class Part(Struct, frozen=True):
    """Operators that run as one, by number in the graph, and the tensors that they read from around them and leave there. apart: XNNPACK has them."""

    operators: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    apart: bool


# Buffers of an arena: the first step, the step after the last, and the bytes as a sum of products of dimensions.
Arena = tuple[tuple[int, int, Amount], ...]


_MOST_BYTES = 1 << 53  # no machine has as much, and what is far above any limit need not be placed


class Delegated(Struct, frozen=True):
    """The activations at any place. between: the interpreter's arena; workspaces: XNNPACK's workspace as each part needs it."""

    between: Arena
    workspaces: tuple[Arena, ...]

    @property
    def labels(self) -> list[str]:
        """The dimensions that it depends on."""
        amounts = {amount for arena in (self.between, *self.workspaces) for *_, amount in arena}
        return sorted({name for amount in amounts for powers, _ in amount.terms for name, _ in powers})

    def resident_bytes(self, at: At) -> int:
        """The interpreter's arena and XNNPACK's workspace at a place."""
        return _bytes(self.between, at) + max((_bytes(each, at) for each in self.workspaces), default=0)


def _bytes(arena: Arena, at: At) -> int:
    known = {amount: amount.at(at) for amount in {amount for *_, amount in arena}}
    buffers = [Buffer(number, lower, upper, known[amount]) for number, (lower, upper, amount) in enumerate(arena)]
    together = sum(buffer.size for buffer in buffers)
    return together if together > _MOST_BYTES else greedy(buffers, _ALIGNMENT).size_bytes


def _between(graph: Graph, ran: Sequence[Part], amounts: Sequence[Amount]) -> Arena:
    shared = {tensor for part in ran for tensor in (*part.reads, *part.writes)} | set(graph.inputs)
    problem = Problem(
        sizes=tuple((tensor.bytes or 0) if number in shared else 0 for number, tensor in enumerate(graph.tensors)),
        reads=tuple(part.reads for part in ran),
        writes=tuple(part.writes for part in ran),
        given=frozenset(graph.inputs),
        kept=frozenset({*graph.outputs, *(graph.inputs if graph.keeps_inputs else ())}),
    )
    return _arena(problem, amounts)


def _workspace(graph: Graph, part: Part, amounts: Sequence[Amount]) -> Arena:
    """XNNPACK's workspace for a part: what its operators hand to one another."""
    around = {*part.reads, *part.writes}
    sizes = [0 if number in around else tensor.bytes or 0 for number, tensor in enumerate(graph.tensors)]
    every = list(amounts)
    operators = [graph.operators[number] for number in part.operators]
    writes = [operator.writes for operator in operators]
    for place, operator in enumerate(operators):
        if operator.kind in _PACKS and len(operator.reads) > 1:
            packed = operator.reads[1]
            writes[place] = (*operator.writes, len(sizes))
            sizes.append(graph.tensors[packed].bytes or 0)
            every.append(amounts[packed])
    pairs = [operator.overwrites for operator in operators]
    problem = Problem(
        sizes=tuple(sizes),
        reads=tuple(operator.reads for operator in operators),
        writes=tuple(writes),
        given=frozenset(part.reads),
        kept=frozenset(part.writes),
        inplace=tuple(pair if pair is not None and not {*pair} & around else None for pair in pairs),
    )
    return _arena(problem, every)


def _arena(problem: Problem, amounts: Sequence[Amount]) -> Arena:
    return tuple((buffer.lower, buffer.upper, amounts[buffer.id]) for buffer in lifetimes(problem, problem.model_order))


def delegated(runtime: str, python: str, graphs: Sequence[tuple[At, Graph]]) -> Delegated | None:
    """The activations of a model at any place, from its graph at some. runtime: whose interpreter it is; python: that has it.

    None where they do not tell: no such interpreter, bodies inside operators, a graph that differs from place to place by more than sizes, or
    sizes that follow no few products of the dimensions.
    """
    graph = graphs[0][1]
    module = _MODULES.get(runtime)
    if module is None or graph.format != "tflite" or any(operator.bodies for operator in graph.operators):
        return None
    if any(_structure(other) != _structure(graph) or other.unsized for _, other in graphs):
        return None
    basis = Basis([at for at, _ in graphs])
    amounts = [basis.amount([tensor.bytes or 0 for tensor in same]) for same in zip(*(each.tensors for _, each in graphs), strict=True)]
    known = tuple(amount for amount in amounts if amount is not None)
    if len(known) < len(amounts):
        return None
    job = {
        "module": module,
        "model": str(graph.path),
        "shapes": {graph.tensors[number].name: list(graph.tensors[number].shape or ()) for number in graph.inputs},
    }
    try:
        child = subprocess.run(
            [python, "-c", _CHILD], input=json.dumps(job), capture_output=True, text=True, timeout=_LONGEST_S, check=True
        )
        ran = parts(graph, json.loads(child.stdout.splitlines()[-1]))
        if ran is None:
            return None
        # Layers that are alike need the same workspace.
        workspaces = dict.fromkeys(_workspace(graph, part, known) for part in ran if part.apart)
        return Delegated(_between(graph, ran, known), tuple(workspaces))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, InputError):
        return None


def _structure(graph: Graph) -> object:
    return graph.inputs, graph.outputs, [(each.kind, each.place, each.reads, each.writes) for each in graph.operators]


def parts(graph: Graph, listed: Sequence[tuple[str, Sequence[int], Sequence[int]]]) -> tuple[Part, ...] | None:
    """What runs as one, in the order in which it runs: the interpreter's own operators, and all operators of each part that XNNPACK has.

    listed: the interpreter's operators: type, tensors read, tensors written, by the file's numbers. The file's come first, then the parts. None
    where these are not the graph's. Raises LookupError and InputError where they do not fit together.
    """
    numbers: dict[int, int] = {}
    for operator in graph.operators:
        kind, _, outputs = listed[operator.place]
        if kind != operator.kind or len(outputs) != len(operator.writes):
            return None
        numbers.update(zip(outputs, operator.writes, strict=True))
    writer = {tensor: number for number, operator in enumerate(graph.operators) for tensor in operator.writes}
    made = []
    owned: set[int] = set()
    count = next((place for place, (kind, *_) in enumerate(listed) if kind == "DELEGATE"), len(listed))
    for _, inputs, outputs in listed[count:]:
        around = {numbers[tensor] for tensor in inputs if tensor in numbers}
        writes = [numbers[tensor] for tensor in outputs if tensor in numbers]
        inside: set[int] = set()
        waiting = [writer[tensor] for tensor in writes]
        while waiting:
            number = waiting.pop()
            if number not in inside:
                inside.add(number)
                waiting += [writer[tensor] for tensor in graph.operators[number].reads if tensor in writer and tensor not in around]
        outer = {tensor for number in inside for tensor in graph.operators[number].reads if tensor not in writer}
        owned |= inside
        made.append(Part(tuple(sorted(inside)), tuple(sorted(around | outer)), tuple(writes), True))
    made += [
        Part((number,), operator.reads, operator.writes, False) for number, operator in enumerate(graph.operators) if number not in owned
    ]
    made.sort(key=lambda part: part.operators)
    source = {tensor: place for place, part in enumerate(made) for tensor in part.writes}
    order = topological([sorted({source[tensor] for tensor in part.reads if tensor in source}) for part in made])
    return tuple(made[place] for place in order) if len(order) == len(made) else None
