"""The answer to `plan show`: the cost of an order of a graph and of the best, the operator that makes the peak, and the arena of either."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..base import files
from ..base.errors import InputError, UsageError, near, os_reason
from . import executed
from .arenas import arena
from .graphs.graph import Graph, Unknown
from .graphs.reduced import Mapped, problem
from .graphs.weights import Weights, account
from .orders.order import best_order
from .orders.problem import Problem, aliases, keeping, kept_at, lifetimes, steps
from .training import Gradients, Optimizer, Training, training

Mode = Literal["inference", "training"]
# arena_planner.h, kDefaultTensorAlignment.
_TFLITE_ALIGNMENT = 64
MODEL, BEST, ONNXRUNTIME, PRIORITY = "model", "best", "onnxruntime", "onnxruntime:priority"
# The name of the model's order where the file's own cannot run.
SORTED = "sorted"


class Question(Struct, frozen=True):
    """A question about a graph. optimizer, gradients: of a training step alone; None is "sgd" and "at-once". time_limit_s: for each search."""

    mode: Mode = "inference"
    in_place: bool = False
    optimizer: Optimizer | None = None
    gradients: Gradients | None = None
    time_limit_s: float = 10.0


class Alive(Struct, frozen=True):
    """A tensor that is in memory in a step. use: `input` or `output` of the step's operator, or `kept` for a later one."""

    name: str
    bytes: int
    use: Literal["input", "output", "kept"]


class StepRow(Struct, frozen=True):
    """A step of an order, with names."""

    operator: str
    kind: str
    in_use: tuple[str, ...]
    to_keep: tuple[str, ...]
    in_use_bytes: int
    to_keep_bytes: int
    memory_bytes: int
    peak_bytes: int


class Placed(Struct, frozen=True):
    """A tensor in an arena: there from step `lower` to before step `upper` (from 0), at that offset. Tensors that share memory in place count
    as one."""

    name: str
    lower: int
    upper: int
    offset: int
    bytes: int


class Arena(Struct, frozen=True):
    """One block of memory that holds all activations at fixed offsets.

    greedy_bytes: by TFLite's rule. packed_bytes: by the exact packer, None where it did not run. lower_bound_bytes: no arena is below it.
    proven: the smaller of the two arenas has that size. placed: the tensors in the smaller arena.
    """

    greedy_bytes: int
    packed_bytes: int | None
    lower_bound_bytes: int
    proven: bool
    placed: tuple[Placed, ...]


class Ordered(Struct, frozen=True):
    """An order and its cost. step: that of the peak, counted from 1; alive: the tensors in memory there, the largest first."""

    name: str
    order: tuple[int, ...]
    peak_bytes: int
    step: int
    operator: str
    kind: str
    alive: tuple[Alive, ...]
    arena: Arena | None


class TrainingParts(Struct, frozen=True):
    """A training step's parts.

    trainable, state and gradient bytes: of all weights that are trained; kept activations: all that the backward pass reads. Weights and states
    are there all the time. *_at_peak: the bytes of the others that are in memory at the peak of the chosen order.
    """

    optimizer: str
    gradients: str
    trainable_bytes: int
    state_bytes: int
    gradient_bytes: int
    gradient_bytes_at_peak: int
    kept_activations: int
    kept_activation_bytes: int
    kept_activation_bytes_at_peak: int


class Analysis(Struct, frozen=True):
    """A graph, its chosen order and its best order.

    moved: why the model's order is not the file's. source: the origin of an executed order. best: None where no time was given to look for
    it. how: what found it, and what proved it, in words.
    """

    model: str
    format: str
    mode: str
    in_place: bool
    operators: int
    tensors: int
    folded_operators: int
    weights: Weights
    training: TrainingParts | None
    moved: str
    source: str
    chosen: Ordered
    best: Ordered | None
    lower_bound_bytes: int | None
    proven: bool
    how: str
    assumptions: tuple[str, ...]
    unknown: tuple[Unknown, ...]
    unsized: tuple[str, ...]


class AskedOrder(Struct, frozen=True):
    """An order of the request. source: its origin, as a sentence, empty where its name says it."""

    order: tuple[int, ...]
    source: str = ""


class Planned(Struct, frozen=True):
    """A graph, its problem, and its training step if the request names one."""

    graph: Graph
    mapped: Mapped
    training: Training | None


def planned(graph: Graph, question: Question) -> Planned:
    """The problem that a question means. Raises InputError where nothing can be trained, UsageError for an option of training in an inference."""
    if question.mode == "training":
        training_step = training(graph, question.optimizer or "sgd", question.gradients or "at-once", question.in_place)
        return Planned(graph, training_step.mapped, training_step)
    if question.optimizer or question.gradients:
        raise UsageError(f"--{'optimizer' if question.optimizer else 'gradients'} needs --mode training")
    return Planned(graph, problem(graph, question.in_place), None)


def analyse(plan: Planned, question: Question, order: str = MODEL) -> Analysis:
    """The cost of an order of a graph, beside the best. order: `model`, `best`, `onnxruntime`, `onnxruntime:priority`, or a file's path.

    Raises UsageError for an order that is none of this graph, InputError for a file that cannot be read.
    """
    graph, mapped = plan.graph, plan.mapped
    reduced = mapped.problem
    search = best_order(reduced, question.time_limit_s) if question.time_limit_s > 0 or order == BEST else None
    asked = AskedOrder(search.order) if order == BEST and search is not None else asked_order(plan, order)
    packing = question.time_limit_s
    aligned = _TFLITE_ALIGNMENT if graph.keeps_inputs else 1
    chosen = describe(mapped, asked.order, SORTED if order == MODEL and graph.moved else order, packing, aligned)
    # A chosen order with the best peak is a best order, and no other needs to be described.
    best = None
    if search is not None:
        best = describe(mapped, search.order, BEST, packing, aligned) if search.peak_bytes < chosen.peak_bytes else chosen
    training_step = plan.training
    return Analysis(
        model=str(graph.path),
        format=graph.format,
        mode=question.mode,
        in_place=question.in_place,
        operators=reduced.count,
        tensors=len(reduced.sizes),
        folded_operators=len(graph.folded),
        weights=account(graph),
        training=_training_parts(training_step, chosen) if training_step is not None else None,
        moved=graph.moved,
        source=asked.source,
        chosen=chosen,
        best=best,
        lower_bound_bytes=search.lower_bound_bytes if search else None,
        proven=search.proven if search else False,
        how=search.how if search else "",
        assumptions=(*graph.assumptions, *_format_assumptions(graph), *(training_step.assumptions if training_step else ())),
        unknown=(*graph.unknown, *(training_step.unknown if training_step else ())),
        unsized=graph.unsized,
    )


def _training_parts(training_step: Training, chosen: Ordered) -> TrainingParts:
    return TrainingParts(
        optimizer=training_step.optimizer,
        gradients=training_step.gradients,
        trainable_bytes=training_step.trainable_bytes,
        state_bytes=training_step.state_bytes,
        gradient_bytes=training_step.gradient_bytes,
        gradient_bytes_at_peak=_at_peak(training_step.mapped.problem, chosen, training_step.weight_gradients),
        kept_activations=len(training_step.kept),
        kept_activation_bytes=training_step.kept_bytes,
        kept_activation_bytes_at_peak=_at_peak(training_step.mapped.problem, chosen, training_step.kept),
    )


def _at_peak(reduced: Problem, chosen: Ordered, tensors: Sequence[int]) -> int:
    """The bytes of these tensors at an order's peak. Tensors that lie over one another in place count once."""
    alias = aliases(reduced, chosen.order)
    roots = {alias[tensor] for tensor in tensors}
    buffers = lifetimes(reduced, chosen.order)
    return sum(buffer.size for buffer in buffers if buffer.id in roots and buffer.lower < chosen.step <= buffer.upper)


def _format_assumptions(graph: Graph) -> tuple[str, ...]:
    assumptions = []
    if graph.keeps_inputs:
        assumptions.append(
            "inputs stay in memory to the end, as TFLite never gives theirs to another tensor; its arena's offsets are multiples of 64"
        )
    else:
        assumptions.append(
            "an input's memory is free after its last reader; a caller who holds it, as onnxruntime's does, needs that much more"
        )
    if any(operator.bodies for operator in graph.operators):
        assumptions.append(
            "of an operator's branches only one runs, a loop's body holds its own inputs and results, and bodies keep their own order"
        )
    return tuple(assumptions)


def describe(mapped: Mapped, order: Sequence[int], name: str, packing_s: float = 0, alignment: int = 1) -> Ordered:
    """The cost of an order. packing_s: the time limit of the exact packer, 0 for greedy alone. alignment: of offsets in the greedy arena."""
    costs = steps(mapped.problem, order)
    place = max(range(len(costs)), key=lambda at: (costs[at].memory_bytes, -at), default=-1)
    peak = costs[place].memory_bytes if costs else sum(mapped.problem.sizes[tensor] for tensor in mapped.problem.given)
    op = order[place] if costs else -1
    return Ordered(
        name=name,
        order=tuple(order),
        peak_bytes=peak,
        step=place + 1,
        operator=mapped.operators[op] if costs else "",
        kind=mapped.kinds[op] if costs else "",
        alive=_alive(mapped, order, place) if costs else (),
        arena=_arena(mapped, order, packing_s, alignment),
    )


def _alive(mapped: Mapped, order: Sequence[int], place: int) -> tuple[Alive, ...]:
    reduced, op = mapped.problem, order[place]
    uses: list[tuple[int, Literal["input", "output", "kept"]]] = [(tensor, "input") for tensor in reduced.reads[op]]
    uses += [(tensor, "output") for tensor in reduced.writes[op]]
    uses += [(tensor, "kept") for tensor in kept_at(reduced, order, place)]
    alive = [Alive(mapped.tensors[tensor], reduced.sizes[tensor], use) for tensor, use in dict(uses).items() if reduced.sizes[tensor]]
    return tuple(sorted(alive, key=lambda tensor: -tensor.bytes))


def rows(mapped: Mapped, order: Sequence[int]) -> tuple[StepRow, ...]:
    """The table of an order, one row per step."""
    names = mapped.tensors
    return tuple(
        StepRow(
            operator=mapped.operators[step.op],
            kind=mapped.kinds[step.op],
            in_use=tuple(names[tensor] for tensor in step.in_use),
            to_keep=tuple(names[tensor] for tensor in kept),
            in_use_bytes=step.in_use_bytes,
            to_keep_bytes=step.keep_bytes,
            memory_bytes=step.memory_bytes,
            peak_bytes=step.peak_bytes,
        )
        for step, kept in zip(steps(mapped.problem, order), keeping(mapped.problem, order), strict=True)
    )


def _arena(mapped: Mapped, order: Sequence[int], packing_s: float, alignment: int) -> Arena:
    buffers = lifetimes(mapped.problem, order)
    greedy = arena.greedy(buffers, alignment)
    packed = arena.pack(buffers, packing_s, first=greedy if alignment == 1 else None) if packing_s > 0 else None
    taken = packed if packed is not None and packed.size_bytes < greedy.size_bytes else greedy
    bound = packed.lower_bound_bytes if packed is not None else max((step.memory_bytes for step in steps(mapped.problem, order)), default=0)
    placed = zip(buffers, taken.offsets, strict=True)
    tensors = tuple(Placed(mapped.tensors[buffer.id], buffer.lower, buffer.upper, offset, buffer.size) for buffer, offset in placed)
    return Arena(greedy.size_bytes, packed.size_bytes if packed else None, bound, taken.size_bytes == bound, tensors)


# -- which order


def asked_order(plan: Planned, order: str) -> AskedOrder:
    """The order that is meant by a word or a file's path. Raises as `onnxruntime_order` and `read_order` do."""
    mapped, graph = plan.mapped, plan.graph
    if order == MODEL:
        return AskedOrder(tuple(range(mapped.problem.count)))
    if plan.training is not None:
        raise UsageError("in training, --order is model or best: other orders lack the backward steps")
    if order in (ONNXRUNTIME, PRIORITY):
        run = executed.onnxruntime_order(graph, "priority" if order == PRIORITY else "default")
        return AskedOrder(run.order, run.source)
    return AskedOrder(read_order(graph, mapped, Path(order)))


def read_order(graph: Graph, mapped: Mapped, path: Path) -> tuple[int, ...]:
    """An order from a file: operators by name or by their number in the model's order (from 0), line by line or as a JSON list; or a profile
    that onnxruntime wrote of this model with graph optimization off.

    Raises InputError where it cannot be read, UsageError where it is no order of this graph.
    """
    try:
        text = files.content(path).decode()
    except OSError as error:
        raise InputError(f"order {path}: {os_reason(error)}; or give one of {MODEL}, {BEST}, {ONNXRUNTIME}, {PRIORITY}") from None
    except UnicodeDecodeError:
        raise InputError(f"order {path}: it is not text") from None
    words: list[object]
    if text.lstrip().startswith("["):
        try:
            words = json.loads(text)
        except ValueError as error:
            raise InputError(f"order {path}: it begins like JSON, but cannot be read as JSON ({error})") from None
        except RecursionError:
            raise InputError(f"order {path}: it is nested too deeply") from None
        if words and isinstance(words[0], dict):
            return executed.profiled(graph, path).order
    else:
        words = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    numbers = {name: number for number, name in enumerate(mapped.operators)}
    return _checked(mapped, [_operator(mapped, numbers, word, path) for word in words], path)


def _operator(mapped: Mapped, numbers: Mapping[str, int], word: object, path: Path) -> int:
    if isinstance(word, str) and word in numbers:
        return numbers[word]
    text = str(word)[:200]
    if text.isdecimal() and len(text) < 10 and int(text) < len(mapped.operators):
        return int(text)
    raise UsageError(f"order {path}: the model has no operator {text!r}{near(text, mapped.operators)}")


def _checked(mapped: Mapped, order: Sequence[int], path: Path) -> tuple[int, ...]:
    seen: set[int] = set()
    for op in order:
        if op in seen:
            raise UsageError(f"order {path}: {mapped.operators[op]} is in it twice")
        unwritten = [source for source in mapped.problem.producers[op] if source not in seen]
        if unwritten:
            raise UsageError(f"order {path}: {mapped.operators[op]} stands before {mapped.operators[unwritten[0]]}, whose result it reads")
        seen.add(op)
    if len(seen) < mapped.problem.count:
        missing = [name for op, name in enumerate(mapped.operators) if op not in seen]
        if len(missing) == 1:
            raise UsageError(f"order {path}: {missing[0]} is missing")
        raise UsageError(f"order {path}: {len(missing)} operators are missing, {missing[0]} among them")
    return tuple(order)
