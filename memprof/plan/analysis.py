"""What `plan show` answers: what an order of a graph costs, what the best one would, which operator makes the peak, and the arena of either."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import InputError, UsageError, near, os_reason
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


@dataclass(frozen=True)
class Question:
    """What is asked of a graph. optimizer, gradients: of a training step alone; None is "sgd" and "at-once"."""

    mode: Mode = "inference"
    in_place: bool = False
    optimizer: Optimizer | None = None
    gradients: Gradients | None = None
    time_limit_s: float = 10.0


@dataclass(frozen=True)
class Alive:
    """A tensor that is in memory in a step. use: `input` or `output` of the step's operator, or `kept` for a later one."""

    name: str
    bytes: int
    use: Literal["input", "output", "kept"]


@dataclass(frozen=True)
class Row:
    """A step of an order, with names."""

    operator: str
    kind: str
    in_use: tuple[str, ...]
    to_keep: tuple[str, ...]
    in_use_bytes: int
    to_keep_bytes: int
    memory_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Placed:
    """A tensor in an arena: there from step `lower` to before step `upper` (from 0), at that offset. Tensors that share it in place are one."""

    name: str
    lower: int
    upper: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class Arena:
    """One block of memory that holds all activations at fixed offsets.

    greedy_bytes: by TFLite's rule. packed_bytes: by the exact packer, None where it did not run; proven: no arena is smaller than the smaller of
    the two. lower_bound_bytes: none can be below it. placed: the tensors in that smaller one.
    """

    greedy_bytes: int
    packed_bytes: int | None
    lower_bound_bytes: int
    proven: bool
    placed: tuple[Placed, ...]


@dataclass(frozen=True)
class Ordered:
    """An order and what it costs. step: that of the peak, counted from 1; alive: what is in memory there, the largest first."""

    name: str
    order: tuple[int, ...]
    peak_bytes: int
    step: int
    operator: str
    kind: str
    alive: tuple[Alive, ...]
    arena: Arena | None


@dataclass(frozen=True)
class Beside:
    """A training step's parts.

    trainable, state and gradient bytes: of all weights that are trained; kept activations: all that the backward pass reads. Weights and states
    are there all the time; of the others so much is in memory at the peak of the chosen order.
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


@dataclass(frozen=True)
class Analysis:
    """All that is said of a graph.

    moved: why the model's order is not the file's. source: where an executed order comes from. best: None where no time was given to look for
    it. how: what found it, and what proved it.
    """

    model: str
    format: str
    mode: str
    in_place: bool
    operators: int
    tensors: int
    folded_operators: int
    weights: Weights
    training: Beside | None
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


@dataclass(frozen=True)
class Chosen:
    """An order that was asked for. source: where it comes from, as a sentence, where the name does not say it."""

    order: tuple[int, ...]
    source: str = ""


@dataclass(frozen=True)
class Planned:
    """A graph, its problem, and its training where that was asked for."""

    graph: Graph
    mapped: Mapped
    training: Training | None


def planned(graph: Graph, question: Question) -> Planned:
    """The problem that a question means. Raises InputError where nothing can be trained, UsageError for words of training in an inference."""
    if question.mode == "training":
        found = training(graph, question.optimizer or "sgd", question.gradients or "at-once", question.in_place)
        return Planned(graph, found.mapped, found)
    if question.optimizer or question.gradients:
        raise UsageError(f"--{'optimizer' if question.optimizer else 'gradients'} is of a training step: it needs --mode training")
    return Planned(graph, problem(graph, question.in_place), None)


def analyse(plan: Planned, question: Question, order: str = MODEL) -> Analysis:
    """What an order of a graph costs, beside the best. order: `model`, `best`, `onnxruntime`, `onnxruntime:priority`, or a file's path.

    Raises UsageError for an order that is none of this graph, InputError for a file that cannot be read.
    """
    graph, mapped = plan.graph, plan.mapped
    reduced = mapped.problem
    best = best_order(reduced, question.time_limit_s) if question.time_limit_s > 0 or order == BEST else None
    chosen = Chosen(best.order) if order == BEST and best is not None else chosen_order(plan, order)
    packing = question.time_limit_s
    aligned = _TFLITE_ALIGNMENT if graph.keeps_inputs else 1
    first = describe(mapped, chosen.order, SORTED if order == MODEL and graph.moved else order, packing, aligned)
    # Where the chosen order has the best peak, it is a best order, and no other needs to be looked at.
    second = (
        None if best is None else first if best.peak_bytes >= first.peak_bytes else describe(mapped, best.order, BEST, packing, aligned)
    )
    trained = plan.training
    return Analysis(
        model=str(graph.path),
        format=graph.format,
        mode=question.mode,
        in_place=question.in_place,
        operators=reduced.count,
        tensors=len(reduced.sizes),
        folded_operators=len(graph.folded),
        weights=account(graph),
        training=_beside(trained, first) if trained is not None else None,
        moved=graph.moved,
        source=chosen.source,
        chosen=first,
        best=second,
        lower_bound_bytes=best.lower_bound_bytes if best else None,
        proven=best.proven if best else False,
        how=best.how if best else "",
        assumptions=(*graph.assumptions, *_format_assumptions(graph), *(trained.assumptions if trained else ())),
        unknown=(*graph.unknown, *(trained.unknown if trained else ())),
        unsized=graph.unsized,
    )


def _beside(found: Training, chosen: Ordered) -> Beside:
    return Beside(
        optimizer=found.optimizer,
        gradients=found.gradients,
        trainable_bytes=found.trainable_bytes,
        state_bytes=found.state_bytes,
        gradient_bytes=found.gradient_bytes,
        gradient_bytes_at_peak=_at_peak(found.mapped.problem, chosen, found.weight_gradients),
        kept_activations=len(found.kept),
        kept_activation_bytes=found.kept_bytes,
        kept_activation_bytes_at_peak=_at_peak(found.mapped.problem, chosen, found.kept),
    )


def _at_peak(reduced: Problem, chosen: Ordered, tensors: Sequence[int]) -> int:
    """What these tensors take at an order's peak; those that lie over one another in place count once."""
    alias = aliases(reduced, chosen.order)
    wanted = {alias[tensor] for tensor in tensors}
    buffers = lifetimes(reduced, chosen.order)
    return sum(one.size for one in buffers if one.id in wanted and one.lower < chosen.step <= one.upper)


def _format_assumptions(graph: Graph) -> tuple[str, ...]:
    found = []
    if graph.keeps_inputs:
        found.append(
            "inputs stay in memory to the end, as TFLite never gives theirs to another tensor; its arena's offsets are multiples of 64"
        )
    else:
        found.append("an input's memory is free after its last reader; a caller who holds it, as onnxruntime's does, needs that much more")
    if any(operator.bodies for operator in graph.operators):
        found.append(
            "of an operator's branches only one runs, a loop's body holds its own inputs and results, and bodies keep their own order"
        )
    return tuple(found)


def describe(mapped: Mapped, order: Sequence[int], name: str, packing_s: float = 0, alignment: int = 1) -> Ordered:
    """What an order costs. packing_s: how long the exact packer may take, 0 for greedy alone. alignment: of offsets in the greedy arena."""
    found = steps(mapped.problem, order)
    place = max(range(len(found)), key=lambda at: (found[at].memory_bytes, -at), default=-1)
    peak = found[place].memory_bytes if found else sum(mapped.problem.sizes[tensor] for tensor in mapped.problem.given)
    op = order[place] if found else -1
    return Ordered(
        name=name,
        order=tuple(order),
        peak_bytes=peak,
        step=place + 1,
        operator=mapped.operators[op] if found else "",
        kind=mapped.kinds[op] if found else "",
        alive=_alive(mapped, order, place) if found else (),
        arena=_arena(mapped, order, packing_s, alignment),
    )


def _alive(mapped: Mapped, order: Sequence[int], place: int) -> tuple[Alive, ...]:
    reduced, op = mapped.problem, order[place]
    uses: list[tuple[int, Literal["input", "output", "kept"]]] = [(tensor, "input") for tensor in reduced.reads[op]]
    uses += [(tensor, "output") for tensor in reduced.writes[op]]
    uses += [(tensor, "kept") for tensor in kept_at(reduced, order, place)]
    alive = [Alive(mapped.tensors[tensor], reduced.sizes[tensor], use) for tensor, use in dict(uses).items() if reduced.sizes[tensor]]
    return tuple(sorted(alive, key=lambda each: -each.bytes))


def rows(mapped: Mapped, order: Sequence[int]) -> tuple[Row, ...]:
    """The table of an order."""
    names = mapped.tensors
    return tuple(
        Row(
            operator=mapped.operators[step.op],
            kind=mapped.kinds[step.op],
            in_use=tuple(names[one] for one in step.in_use),
            to_keep=tuple(names[one] for one in kept),
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
    packed = arena.pack(buffers, packing_s) if packing_s > 0 else None
    taken = packed if packed is not None and packed.size_bytes < greedy.size_bytes else greedy
    bound = packed.lower_bound_bytes if packed is not None else max((one.memory_bytes for one in steps(mapped.problem, order)), default=0)
    placed = tuple(
        Placed(mapped.tensors[one.id], one.lower, one.upper, offset, one.size) for one, offset in zip(buffers, taken.offsets, strict=True)
    )
    return Arena(greedy.size_bytes, packed.size_bytes if packed else None, bound, taken.size_bytes == bound, placed)


# -- which order


def chosen_order(plan: Planned, order: str) -> Chosen:
    """The order that is meant by a word or a file's path."""
    mapped, graph = plan.mapped, plan.graph
    if order == MODEL:
        return Chosen(tuple(range(mapped.problem.count)))
    if plan.training is not None:
        raise UsageError("in training the order is the model's or the best: no other names the backward steps")
    if order in (ONNXRUNTIME, PRIORITY):
        run = executed.onnxruntime_order(graph, "priority" if order == PRIORITY else "default")
        return Chosen(run.order, run.source)
    return Chosen(read_order(graph, mapped, Path(order)))


def read_order(graph: Graph, mapped: Mapped, path: Path) -> tuple[int, ...]:
    """An order from a file: operators by name or by their number in the model's order (from 0), one a line or as a JSON list; or a profile that
    onnxruntime wrote of this model with graph optimization off.

    Raises InputError where it cannot be read, UsageError where it is no order of this graph.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"order {path}: {os_reason(error)}; or give one of {MODEL}, {BEST}, {ONNXRUNTIME}, {PRIORITY}") from None
    except UnicodeDecodeError:
        raise InputError(f"order {path}: it is no text") from None
    words: list[object]
    if text.lstrip().startswith("["):
        try:
            words = json.loads(text)
        except ValueError as error:
            raise InputError(f"order {path}: it begins as JSON and is none ({error})") from None
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
            raise UsageError(f"order {path}: {mapped.operators[op]} stands there twice")
        late = [source for source in mapped.problem.producers[op] if source not in seen]
        if late:
            raise UsageError(f"order {path}: {mapped.operators[op]} stands before {mapped.operators[late[0]]}, whose result it reads")
        seen.add(op)
    if len(seen) < mapped.problem.count:
        missing = next(name for op, name in enumerate(mapped.operators) if op not in seen)
        raise UsageError(f"order {path}: {mapped.problem.count - len(seen)} operators are missing, {missing} among them")
    return tuple(order)
