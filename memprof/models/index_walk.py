"""The walk through a model's graph that finds which inputs index tables. The reader of a format names its operators as ONNX does.

Values that are only cast, moved or picked stay an input's own, values that are computed from it do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from ..base.files import Torn

_MOST_STEPS = 1 << 23  # origins that are carried along: a small file can name any number of them, a model does not
_MOST_ROWS = 1 << 31  # more than any table has, and little enough for the arithmetic of who makes the inputs


class IndexedTable(Struct, frozen=True):
    """A table, and an input whose values are numbers of its rows. tensor: the name of the stored weight."""

    input: str
    tensor: str
    rows: int


class Indexing(Struct, frozen=True):
    """The tables that inputs index. unlimited: the inputs that index something of unknown size as well, or by values computed from them."""

    tables: tuple[IndexedTable, ...] = ()
    unlimited: frozenset[str] = frozenset()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # more names of an input, in signatures

    def called(self, names: Mapping[str, str]) -> Indexing:
        """The same with these names of inputs in place of those of the walk."""
        tables = tuple(replace(table, input=names[table.input]) for table in self.tables)
        return replace(self, tables=tables, unlimited=frozenset(names[name] for name in self.unlimited))

    def limits(self) -> dict[str, int]:
        """By the name of an input: its values must be below this, so that they are rows of each table that it indexes."""
        rows: dict[str, list[int]] = defaultdict(list)
        for table in self.tables:
            if table.input not in self.unlimited:
                for name in (table.input, *self.names.get(table.input, ())):
                    rows[name].append(table.rows)
        return {name: min(counts) for name, counts in rows.items()}


class Operation(Struct, frozen=True):
    """An operator: its name in ONNX, and the names of its operands and results. axis, batch: of a Gather and its like; None for an axis not known."""

    kind: str
    operands: Sequence[str]
    results: Sequence[str]
    axis: int | None = 0
    batch: int = 0


# For each operator that looks values up: which operand holds the indices, and which one the table.
_LOOKUPS: Mapping[str, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "GatherBlockQuantized"), ((1, 0),)),
    **dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), ((1, 0),)),
    "EmbedLayerNormalization": ((0, 2), (1, 4), (8, 3)),
    "QEmbedLayerNormalization": ((0, 2), (1, 4)),
    "EmbeddingLookup": ((0, 1),),
    "EmbeddingBag": ((1, 0),),
    "EmbeddingLookupSparse": ((0, 4),),
    "ScatterNewND": ((0, 3),),  # TFLite's SCATTER_ND, whose target is no operand
}
_TUPLES = ("GatherND", "ScatterND")  # an index is a tuple of numbers, one a dimension
# The operands whose elements are among the results as they are; None for all.
_KEPT: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Identity", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Tile"), (0,)),
    **dict.fromkeys(("Slice", "Split", "Gather", "GatherElements", "GatherND", "Pad", "Clip", "ReduceMax", "ReduceMin", "Reverse"), (0,)),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Abs", "Relu", "Mod", "Dropout", "Unpack"), (0,)),
    **dict.fromkeys(("Concat", "Max", "Min", "Pack"), None),
    "Where": (1, 2),
    "SplitAlong": (1,),
}
# Operators whose results do not grow with the numbers that they take.
_APART = frozenset(
    (
        "Equal",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Not",
        "And",
        "Or",
        "Xor",
        "Shape",
        "Size",
        "ArgMax",
        "ArgMin",
        "TopK",
        "NonZero",
        "Sign",
    )
)
_SAME_SHAPE = frozenset(("Identity", "Cast", "DequantizeLinear"))
_SCALES = ("Mul", "Sub", "Add")


class IndexWalk:
    """What each value comes from: inputs, with whether its elements are the input's own, or a stored tensor, with its shape."""

    def __init__(self, names: Iterable[str], stored: Iterable[tuple[str, str, tuple[int, ...]]], widths: Mapping[str, int]) -> None:
        """names: of inputs. stored: the name of a value, of its tensor, and its shape. widths: the last size of inputs, as far as it is known."""
        self._from: dict[str, frozenset[tuple[str, bool]]] = {name: frozenset([(name, True)]) for name in names}
        self._stored = {value: (tensor, shape) for value, tensor, shape in stored}
        self._widths = dict(widths)
        self._tables: dict[IndexedTable, None] = {}
        self._unlimited: set[str] = set()
        self._left = _MOST_STEPS

    def store(self, value: str, shape: tuple[int, ...]) -> None:
        """A constant that an operator brings along."""
        self._stored[value] = (value, shape)

    def follow(self, operation: Operation) -> None:
        """An operator behind all whose results it takes. Raises Torn where a graph has more of them than any model."""
        operands, kind = operation.operands, operation.kind
        for indices, table in _LOOKUPS.get(kind, ()):
            if indices < len(operands):
                self._look_up(operation, operands[indices], operands[table] if table < len(operands) else "")
        if (kind in _SAME_SHAPE or self._scales(operation)) and operands and operands[0] in self._stored:
            self._stored.update((result, self._stored[operands[0]]) for result in operation.results)
        if kind in _SAME_SHAPE and operands and operands[0] in self._widths:
            self._widths.update((result, self._widths[operands[0]]) for result in operation.results)
        if kind in _KEPT:
            kept = _KEPT[kind]
            taken = operands if kept is None else [operands[place] for place in kept if place < len(operands)]
            origins = {origin for name in taken for origin in self._from.get(name, ())}
        elif kind in _APART or kind in _LOOKUPS:
            return
        else:
            origins = {(source, False) for name in operands for source, _ in self._from.get(name, ())}
        self._left -= 1 + sum(len(self._from.get(name, ())) for name in operands)
        if self._left < 0:
            raise Torn
        if origins:
            self._from.update((result, frozenset(origins)) for result in operation.results if result)

    def _scales(self, operation: Operation) -> bool:
        """Whether a table is scaled or shifted by another, so that it keeps its shape: a table that is kept in small integers."""
        shapes = [self._stored[name][1] for name in operation.operands if name in self._stored]
        if operation.kind not in _SCALES or len(shapes) != 2 or len(shapes[1]) > len(shapes[0]):
            return False
        return all(size in (1, whole) for size, whole in zip(reversed(shapes[1]), reversed(shapes[0]), strict=False))

    def _look_up(self, operation: Operation, indices: str, table: str) -> None:
        tensor, shape = self._stored.get(table, ("", None))
        rows = self._rows(operation, indices, shape) if shape is not None else None
        for source, own in self._from.get(indices, ()):
            if own and rows is not None:
                self._tables[IndexedTable(source, tensor, rows)] = None
            else:
                self._unlimited.add(source)

    def _rows(self, operation: Operation, indices: str, shape: tuple[int, ...]) -> int | None:
        """How many values an index may have; None where that cannot be told."""
        axis = operation.axis
        if operation.kind in _TUPLES:
            # Each number of a longer tuple has a limit of its own.
            axis = operation.batch if self._widths.get(indices) == 1 else None
        if axis is None or not -len(shape) <= axis < len(shape):
            return None
        return shape[axis] if 0 < shape[axis] <= _MOST_ROWS else None

    def found(self, names: Mapping[str, tuple[str, ...]]) -> Indexing:
        return Indexing(tuple(self._tables), frozenset(self._unlimited), names)
