"""A model's graph as a planner needs it, whatever file it came from: operators in the file's order, tensors with their bytes, weights.

onnx_graph.py and tflite_graph.py make it; `problem` reduces it to sizes, reads and writes. What a reader did not understand is named in
`unknown`, and what it took for granted in `assumptions`: nothing counts zero without a word. No package is needed here.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError, UsageError, near, os_reason
from ..problem import Problem, peak

# Bits of an element by its type's name: ONNX's names in numpy's spelling (onnx.proto3, TensorProto.DataType) and TFLite's (schema.fbs,
# TensorType). Types below a byte are packed; string, resource and variant have no size that a graph would tell.
BITS = {
    **dict.fromkeys(("float32", "int32", "uint32"), 32),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 64),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 16),
    **dict.fromkeys(("int8", "uint8", "bool"), 8),
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8),
    **dict.fromkeys(("int4", "uint4", "float4e2m1"), 4),
    **dict.fromkeys(("int2", "uint2"), 2),
    "complex128": 128,
}

FLOATING = ("float32", "float16", "bfloat16", "float64")


def listed(*texts: str) -> tuple[str, ...]:
    """The words of texts: tables of names are read better so than as a column of strings."""
    return tuple(" ".join(texts).split())


def words(*texts: str) -> frozenset[str]:
    """The same as a set."""
    return frozenset(listed(*texts))


def shown(name: str) -> str:
    """A name out of a file as it may be printed: on one line, without what would steer a terminal."""
    return name if name.isprintable() else "".join(mark if mark.isprintable() else "\ufffd" for mark in name)


@dataclass(frozen=True)
class Tensor:
    """A tensor that an operator makes or that the caller gives. bytes: None where it is not known, and then `why` says why."""

    name: str
    type: str
    shape: tuple[int, ...] | None
    bytes: int | None
    why: str = ""
    persistent: bool = False


Content = bytes


@dataclass(frozen=True)
class Span:
    """Where a weight's content lies: so many bytes of a file from an offset."""

    path: Path
    offset: int
    bytes: int


@dataclass(frozen=True)
class Weight:
    """Constant data. bytes: in memory, by type and shape (of a sparse one what is stored); None where the type's size is not known.

    content: where its bytes lie, or themselves; None where they are not at hand. trainable: it is of a floating type and no running statistic.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int | None
    content: Span | Content | None = None
    trainable: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator in the file's order.

    place: its number in the file. kind: its type, with its domain where that is not the format's own. reads, writes: numbers into the
    graph's tensors, each once. weights: what it reads itself of the main graph's weights. overwrites: (input, output) where runtimes know to
    work in place. work: multiply-adds, None where no rule is known. bodies: graphs that it runs (a branch, a loop's body). stateful: its
    effect depends on its place among others of that sort.
    """

    name: str
    kind: str
    place: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    weights: tuple[int, ...] = ()
    overwrites: tuple[int, int] | None = None
    work: int | None = None
    bodies: tuple[Body, ...] = ()
    stateful: bool = False


@dataclass(frozen=True)
class Body:
    """A graph inside an operator. repeated: it runs any number of times, its results becoming its inputs."""

    name: str
    graph: Graph
    repeated: bool = False


@dataclass(frozen=True)
class Unknown:
    """Something that was not understood: what it is, what follows from that for the figures, and whom it concerns."""

    what: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Account:
    """How many weights of one sort there are and what they weigh."""

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Weights:
    """A model's weights by what becomes of them; each is in `stored`, and in as many of the others as it fits.

    shared: read by several operators, so that a runtime that keeps them apart (in two layouts, say) holds more than is stored. duplicated:
    copies beyond the first of what has the same type, shape and content. folded: read only by operators that a runtime computes once at load;
    results: what it holds in their stead. fused: read through a DequantizeLinear that is taken for a part of its reader. unused: read by
    nobody. held: what is left after folding.
    """

    stored: Account
    shared: Account
    duplicated: Account
    folded: Account
    results: Account
    fused: Account
    unused: Account
    held: Account


@dataclass(frozen=True)
class Folded:
    """An operator whose result a runtime computes once, because all that it reads is constant."""

    name: str
    kind: str
    place: int
    weights: tuple[int, ...]
    results: tuple[int, ...]
    fused: bool = False


@dataclass(frozen=True)
class Graph:
    """A model's main graph, or one inside an operator; what a body reads from around it is no part of it, but read by its operator.

    inputs, outputs: numbers of tensors; weight_outputs: weights that are outputs. weights: of the main graph and all its bodies, stored ones
    and results of folding; a body's own is empty. keeps_inputs: the format's runtime never reuses the memory of inputs. moved: why the
    operators are not in the file's order, empty where they are.
    """

    name: str
    format: str
    path: Path
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights: tuple[Weight, ...] = ()
    folded: tuple[Folded, ...] = ()
    assumptions: tuple[str, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    keeps_inputs: bool = False
    weight_outputs: tuple[int, ...] = ()
    moved: str = ""

    @property
    def unsized(self) -> tuple[str, ...]:
        """Tensors of unknown size, with the reason: where there are any, every figure is a least one."""
        here = [f"{tensor.name} ({tensor.why})" for tensor in self.tensors if tensor.bytes is None]
        inner = [name for operator in self.operators for body in operator.bodies for name in body.graph.unsized]
        return (*here, *inner)


def size(type: str, shape: Sequence[int]) -> int | None:
    """Bytes of a tensor, None for a type without a known size. Types below a byte are packed over the whole tensor."""
    bits = BITS.get(type)
    if bits is None:
        return None
    count = 1
    for extent in shape:
        count *= extent
    return -(-count * bits // 8)


# -- to a problem


@dataclass(frozen=True)
class Mapped:
    """A problem and what its numbers stand for.

    operators, kinds, tensors: names of the problem's operators and tensors. weights: what each operator needs of the graph's weights, bodies'
    included. work: multiply-adds of each, None where not known. sources: the graph's operator behind each, -1 for none. At first the problem's
    tensors are the graph's; more follow: the working memory of bodies, and orders that are kept without a tensor.
    """

    problem: Problem
    operators: tuple[str, ...]
    kinds: tuple[str, ...]
    tensors: tuple[str, ...]
    weights: tuple[tuple[int, ...], ...]
    work: tuple[int | None, ...]
    sources: tuple[int, ...]


def problem(graph: Graph, in_place: bool = False) -> Mapped:
    """A graph as a problem. A tensor of unknown size counts 0: `Graph.unsized` must be said beside any figure.

    What a body needs on its own, beyond the operator's results, is a tensor that only its operator touches. Operators with a state stay in
    their order through tensors of 0 bytes.
    """
    sizes = [tensor.bytes or 0 for tensor in graph.tensors]
    names = [tensor.name for tensor in graph.tensors]
    reads = [list(operator.reads) for operator in graph.operators]
    writes = [list(operator.writes) for operator in graph.operators]

    def add(name: str, bytes: int) -> int:
        names.append(name)
        sizes.append(bytes)
        return len(sizes) - 1

    chain: int | None = None
    for number, operator in enumerate(graph.operators):
        if working := working_bytes(graph, operator):
            writes[number].append(add(f"{operator.name} (inside)", working))
        if operator.stateful:
            if chain is not None:
                reads[number].append(chain)
            chain = add(f"{operator.name} (done)", 0)
            writes[number].append(chain)
    persistent = {number for number, tensor in enumerate(graph.tensors) if tensor.persistent}
    reduced = Problem(
        sizes=tuple(sizes),
        reads=tuple(map(tuple, reads)),
        writes=tuple(map(tuple, writes)),
        given=frozenset({*graph.inputs, *persistent}),
        kept=frozenset({*graph.outputs, *persistent, *(graph.inputs if graph.keeps_inputs else ())}),
        inplace=tuple(operator.overwrites for operator in graph.operators) if in_place else (),
        names=tuple(operator.name for operator in graph.operators),
    )
    return Mapped(
        problem=reduced,
        operators=reduced.names,
        kinds=tuple(operator.kind for operator in graph.operators),
        tensors=tuple(names),
        weights=tuple(needed_weights(operator) for operator in graph.operators),
        work=tuple(operator.work for operator in graph.operators),
        sources=tuple(range(len(graph.operators))),
    )


def needed_weights(operator: Operator) -> tuple[int, ...]:
    """The weights that an operator and its bodies read, each once."""
    inner = [number for body in operator.bodies for one in body.graph.operators for number in needed_weights(one)]
    return tuple(dict.fromkeys((*operator.weights, *inner)))


def working_bytes(graph: Graph, operator: Operator) -> int:
    """What the bodies of an operator need beyond its results, in their own order: the branch that needs most, as only one runs.

    A branch's results are the operator's. The body of a loop holds its own inputs and results too, which become the next round's.
    """
    results = sum(graph.tensors[number].bytes or 0 for number in operator.writes)
    found = 0
    for body in operator.bodies:
        inner = problem(body.graph).problem
        most = peak(inner, range(inner.count))
        found = max(found, most if body.repeated else most - results)
    return max(found, 0)


# -- weights


def account(graph: Graph) -> Weights:
    """What becomes of a graph's weights, those of its bodies included. Reads the content of those that could be alike."""
    graphs = list(_graphs(graph))
    folded = [one for each in graphs for one in each.folded]
    readers = Counter(number for each in graphs for operator in each.operators for number in operator.weights)
    folding = Counter(number for one in folded for number in one.weights)
    results = {number for one in folded if not one.fused for number in one.results}
    merged = {number for one in folded if one.fused for number in one.results}
    fused = {number for one in folded if one.fused for number in one.weights} - results
    stored = [number for number in range(len(graph.weights)) if number not in results and number not in merged]
    gone = {number for number in stored if folding[number] and not readers[number] and number not in fused}
    live = [number for number in sorted(results) if readers[number]]

    def weigh(numbers: Iterable[int]) -> Account:
        having = list(numbers)
        return Account(len(having), sum(graph.weights[number].bytes or 0 for number in having))

    return Weights(
        stored=weigh(stored),
        shared=weigh(number for number in stored if readers[number] + folding[number] > 1),
        duplicated=_duplicated([graph.weights[number] for number in stored]),
        folded=weigh(sorted(gone)),
        results=weigh(live),
        fused=weigh(sorted(fused)),
        unused=weigh(number for number in stored if not readers[number] and not folding[number] and number not in graph.weight_outputs),
        held=weigh([*(number for number in stored if number not in gone), *live]),
    )


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for operator in graph.operators:
        for body in operator.bodies:
            yield from _graphs(body.graph)


def _duplicated(weights: Sequence[Weight]) -> Account:
    """Further copies of what is there already, by type, shape and content; only what has a twin by type and shape is read at all."""
    alike: dict[tuple[str, tuple[int, ...], int], list[Weight]] = {}
    for weight in weights:
        if weight.content is not None and weight.bytes:
            stored = weight.content.bytes if isinstance(weight.content, Span) else len(weight.content)
            alike.setdefault((weight.type, weight.shape, stored), []).append(weight)
    count = total = 0
    for group in alike.values():
        if len(group) < 2:
            continue
        seen = {digest for weight in group if (digest := _digest(weight)) is not None}
        known = sum(_digest_known(weight) for weight in group)
        copies = known - len(seen)
        count += copies
        total += copies * (group[0].bytes or 0)
    return Account(count, total)


def _digest_known(weight: Weight) -> bool:
    return not isinstance(weight.content, Span) or _within(weight.content)


def _within(span: Span) -> bool:
    try:
        return span.offset + span.bytes <= span.path.stat().st_size
    except OSError:
        return False


def _digest(weight: Weight) -> bytes | None:
    content = weight.content
    if not isinstance(content, Span):
        return hashlib.sha256(content or b"").digest()
    if not _within(content):
        return None
    digest = hashlib.sha256()
    try:
        with content.path.open("rb") as file:
            file.seek(content.offset)
            left = content.bytes
            while left and (chunk := file.read(min(left, 1 << 20))):
                digest.update(chunk)
                left -= len(chunk)
    except OSError as error:
        raise InputError(f"{content.path}: {os_reason(error)}") from None
    return digest.digest()


# -- order in the file


def topological(waits: Sequence[Collection[int]]) -> list[int]:
    """Numbers so that each stands behind those it waits for: again and again the least of those that wait for nothing more. What is in a cycle
    or behind one is left out."""
    if all(source < number for number, sources in enumerate(waits) for source in sources):
        return list(range(len(waits)))
    followers: dict[int, list[int]] = {}
    for number, sources in enumerate(waits):
        for source in sources:
            followers.setdefault(source, []).append(number)
    left = [len(sources) for sources in waits]
    ready = [number for number, count in enumerate(left) if not count]
    heapq.heapify(ready)
    found: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        found.append(number)
        for follower in followers.get(number, ()):
            left[follower] -= 1
            if not left[follower]:
                heapq.heappush(ready, follower)
    return found


def ordered(operators: Sequence[Operator], made_elsewhere: Iterable[int], names: Sequence[str], where: str) -> tuple[list[Operator], str]:
    """Operators so that each stands behind those whose results it reads, as near to the file's order as that allows; and why that is not the
    file's own order, empty where it is.

    Raises InputError for a tensor that nothing makes or that two make, and for a cycle, which is named.
    """
    maker: dict[int, int] = {}
    for number, operator in enumerate(operators):
        for tensor in operator.writes:
            if tensor in maker:
                raise InputError(f"{where}: {operators[maker[tensor]].name} and {operator.name} both make {names[tensor]}")
            maker[tensor] = number
    known = set(made_elsewhere)
    waits: list[set[int]] = []
    for operator in operators:
        for tensor in operator.reads:
            if tensor not in maker and tensor not in known:
                raise InputError(f"{where}: {operator.name} reads {names[tensor]}, which nothing makes")
        waits.append({maker[tensor] for tensor in operator.reads if tensor in maker})
    found = topological(waits)
    if len(found) < len(operators):
        cycle = _cycle(waits, sorted({*range(len(operators))}.difference(found)))
        raise InputError(f"{where}: the graph has a cycle: {_path(operators, cycle)}")
    late = ((operators[number], operators[source]) for number in found for source in sorted(waits[number]))
    early = next((pair for pair in late if pair[0].place < pair[1].place), None)
    return [operators[number] for number in found], "" if early is None else _moved(*early)


def _moved(reader: Operator, maker: Operator) -> str:
    return (
        f"the file's own order cannot run: {reader.name} stands before {maker.name}, whose result it reads; what is shown as the model's order "
        "is the file's made topological, of the operators that could run next always the first in the file"
    )


def _cycle(waits: Sequence[set[int]], stuck: Sequence[int]) -> list[int]:
    """A cycle among operators of which each waits for another of them."""
    among = set(stuck)
    at, seen = stuck[0], dict[int, int]()
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = min(waits[at] & among)
    return path[seen[at] :][::-1]


def _path(operators: Sequence[Operator], cycle: Sequence[int]) -> str:
    names = [operators[number].name for number in cycle]
    if len(names) > 6:
        names = [*names[:3], "...", *names[-2:]]
    return " -> ".join([*names, names[0]])


# -- what a user says of shapes


def given_shapes(shapes: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`NAME=1,3,224,224` for each tensor that is named. Raises UsageError."""
    found = {}
    for text in shapes:
        name, separator, extents = text.rpartition("=")
        try:
            shape = tuple(int(extent) for extent in extents.replace("x", ",").split(",")) if extents else ()
        except ValueError:
            shape = (-1,)
        if not separator or not name or any(extent < 0 for extent in shape):
            raise UsageError(f"{text!r} is no shape: write NAME=1,3,224,224")
        found[name] = shape
    return found


def check_names(shapes: Iterable[str], known: Iterable[str], path: Path) -> None:
    """Raises UsageError where a shape is given for a tensor that the model does not have."""
    having = list(known)
    for name in shapes:
        if name not in having:
            raise UsageError(f"{path} has no tensor {name!r}{near(name, having)}")


def read(path: Path, shapes: dict[str, tuple[int, ...]] | None = None, batch: int | None = None, inline: bool = True) -> Graph:
    """The graph of an ONNX, TFLite or circle file.

    shapes: of inputs, or of tensors inside whose shape cannot be inferred, by name. batch: the first dimension of every input. inline: ONNX's
    local functions stand in place of their calls; operators then are not those of the file.
    Raises InputError for a file that is missing, torn or no model, UsageError for another format or a shape that cannot be meant.
    """
    if batch is not None and batch < 1:
        raise UsageError("a batch is at least 1")
    try:
        if path.is_dir():
            raise InputError(f"{path}: a folder has no graph to plan; give the .onnx, .tflite or .circle file")
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InputError(f"model {path}: {os_reason(error)}") from None
    if not head:
        raise InputError(f"model {path}: the file is empty")
    if path.suffix in (".tflite", ".circle") or head[4:8] in (b"TFL3", b"CIR0"):
        from . import tflite_graph

        return tflite_graph.read(path, shapes or {}, batch)
    if path.suffix == ".onnx":
        from . import onnx_graph

        return onnx_graph.read(path, shapes or {}, batch, inline)
    raise UsageError(f"{path}: a graph is read from .onnx, .tflite and .circle files")
