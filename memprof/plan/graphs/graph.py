"""A model's graph as a planner needs it, from any format: operators in the file's order, tensors with their bytes, weights.

onnx_graph.py and tflite_graph.py make it; reduced.py reduces it to sizes, reads and writes. `unknown` names everything that a reader did not
understand, and `assumptions` everything that it took for granted: nothing counts zero silently. No package is needed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct, field

from ...base.errors import InputError, UsageError, near
from ...models import BITS, MOST_DIMENSIONS

# The most that a reader takes: a graph of more operators cannot be planned in any useful time, and no memory holds more bytes.
MOST_OPERATORS = 30_000
MOST_BYTES = 1 << 56

FLOATING = ("float32", "float16", "bfloat16", "float64")


def words(*texts: str) -> frozenset[str]:
    """The words of texts as a set. Tables of names are easier to read as texts than as a column of strings."""
    return frozenset(" ".join(texts).split())


def shown(name: str) -> str:
    """A name out of a file as it may be printed: on one line, without characters that steer a terminal."""
    return name if name.isprintable() else "".join(mark if mark.isprintable() else "\ufffd" for mark in name)


class Activation(Struct, frozen=True):
    """A tensor that an operator makes or the caller gives. bytes: None where they are not known; `why` then gives the reason."""

    name: str
    type: str
    shape: tuple[int, ...] | None
    bytes: int | None
    why: str = ""
    persistent: bool = False


Content = bytes


class Span(Struct, frozen=True):
    """The place of a weight's content: bytes of a file from an offset."""

    path: Path
    offset: int
    bytes: int


class Constant(Struct, frozen=True):
    """Constant data. bytes: in memory, by type and shape (of a sparse weight, as stored); None where the type's size is not known.

    content: the place of its bytes, or the bytes; None where the file has only their place. trainable: its type is floating, and it is no running
    statistic.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int | None
    content: Span | Content | None = None
    trainable: bool = False


class Operator(Struct, frozen=True):
    """An operator in the file's order.

    place: its number in the file. kind: its type, with its domain where that is not the format's own. reads, writes: numbers into the
    graph's tensors, each once. weights: those of the main graph that it reads itself. overwrites: (input, output) where runtimes know to
    work in place. work: multiply-adds, None where no rule is known. bodies: graphs that it runs (a branch, a loop's body). stateful: its
    effect depends on its place among other stateful operators.
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


class Body(Struct, frozen=True):
    """A graph inside an operator. repeated: it runs any number of times, its results becoming its inputs."""

    graph: Graph
    repeated: bool = False


class Unknown(Struct, frozen=True):
    """A thing that was not understood, with its effect on the figures, and the names it concerns."""

    what: str
    names: tuple[str, ...]


class Folded(Struct, frozen=True):
    """An operator whose result a runtime computes once, because every input of it is constant: the weights it reads, and those it makes. fused: it
    is taken for a part of its readers."""

    weights: tuple[int, ...]
    results: tuple[int, ...]
    fused: bool = False


class Remarks(Struct):
    """Remarks on a graph, collected while its file is read."""

    assumptions: list[str] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)


class Graph(Struct, frozen=True):
    """A model's main graph, or a graph inside an operator. Tensors that a body reads from around it are read by its operator, and belong to the graph
    around it.

    inputs, outputs: numbers of tensors; weight_outputs: weights that are outputs. weights: of the main graph and all its bodies, both stored
    and results of folding; empty in a body. keeps_inputs: the format's runtime never reuses the memory of inputs. moved: why the operators are
    not in the file's order, empty where they are.
    """

    format: str
    path: Path
    tensors: tuple[Activation, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights: tuple[Constant, ...] = ()
    folded: tuple[Folded, ...] = ()
    assumptions: tuple[str, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    keeps_inputs: bool = False
    weight_outputs: tuple[int, ...] = ()
    moved: str = ""

    @property
    def unsized(self) -> tuple[str, ...]:
        """Tensors of unknown size, with the reason. Where there are any, every figure is a lower bound."""
        here = [f"{tensor.name} ({tensor.why})" for tensor in self.tensors if tensor.bytes is None]
        inner = [name for operator in self.operators for body in operator.bodies for name in body.graph.unsized]
        return (*here, *inner)


def size(type: str, shape: Sequence[int]) -> int | None:
    """Bytes of a tensor, None for a type without a known size and for more dimensions than any model has.

    Types below a byte are packed over the whole tensor.
    """
    bits = BITS.get(type)
    if bits is None or len(shape) > MOST_DIMENSIONS:
        return None
    count = 1
    for extent in shape:
        count *= extent
    return -(-count * bits // 8)


def check_count(operators: int, path: Path) -> None:
    """Raises InputError where there are more operators than a reader takes."""
    if operators > MOST_OPERATORS:
        raise InputError(f"model {path}: it has more than {MOST_OPERATORS:,} operators, which is more than memprof plans")


def check_size(graph: Graph) -> None:
    """Raises InputError where a graph's tensors are larger together than any memory. Sums of sizes then fit into 64 bits."""
    sizes = [(tensor.bytes or 0, tensor.name) for tensor in graph.tensors] + [(weight.bytes or 0, weight.name) for weight in graph.weights]
    if sum(bytes for bytes, _ in sizes) > MOST_BYTES:
        bytes, name = max(sizes)
        raise InputError(f"model {graph.path}: its tensor {name} would take {bytes:.3g} bytes, more than any memory has")
    for operator in graph.operators:
        for body in operator.bodies:
            check_size(body.graph)


def check_names(shapes: Iterable[str], known: Iterable[str], path: Path) -> None:
    """Raises UsageError where a shape is given for a tensor that the model does not have."""
    names = list(known)
    for name in shapes:
        if name not in names:
            raise UsageError(f"{path} has no tensor {name!r}{near(name, names)}")
