"""The dimensions along which memory is measured: the user's words for them, and the job at a place.

A dimension is an open one of the model, by the name that its file gives it (`batch`) or by an input and an axis (`input.0`); `threads`;
`sessions` of the model in one process; `processes` at once; or a knob of the runtime that takes a number. A dimension of a program is any `{name}`
among its words. Several names with one range have the same
value everywhere (`height,width=224..1024`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from ..base.errors import UsageError, near_or_all
from ..base.pairs import by_name
from ..base.units import parse_bytes
from ..models import inputs
from ..programs.commands import Command
from ..programs.runtimes import Runtime

THREADS, SESSIONS, PROCESSES = "threads", "sessions", "processes"
OWN = (THREADS, SESSIONS, PROCESSES)
_RANGE = re.compile(r"(?P<low>[^.:]+)(\.\.(?P<high>[^.:]+)(:(?P<step>\d+))?)?")


class Dimension(Struct, frozen=True):
    """A range of whole values, ends included, for all that has one of these names. label: its name in a law."""

    names: tuple[str, ...]
    low: int
    high: int
    step: int = 1

    @property
    def label(self) -> str:
        """Its name in a law."""
        return "=".join(self.names)

    @property
    def last(self) -> int:
        """The highest of its values."""
        return self.high - (self.high - self.low) % self.step

    @property
    def varies(self) -> bool:
        """Whether it has more than one value."""
        return self.low < self.high


def parse(text: str) -> Dimension:
    """`batch=1..64`, `height,width=224..1024:32` (every 32nd), or `sequence=128` for one value. Sizes have units. Raises UsageError."""
    names, equals, words = text.partition("=")
    match = _RANGE.fullmatch(words)
    wrong = UsageError(f"--vary {text!r}: write NAME=LOW..HIGH, NAME=LOW..HIGH:STEP or NAME=VALUE")
    if not equals or match is None or not all(names.split(",")):
        raise wrong
    try:
        low = parse_bytes(match["low"])
        high = parse_bytes(match["high"]) if match["high"] else low
        step = int(match["step"] or 1)
    except (UsageError, ValueError):  # a number of thousands of digits too
        raise wrong from None
    if low < 1 or high < low or step < 1:
        raise UsageError(f"--vary {text!r}: LOW and STEP are at least 1, and HIGH is not below LOW")
    if low < high < low + step:
        raise UsageError(f"--vary {text!r}: a step of {step} leaves the range; {low + step} would be the second value")
    return Dimension(tuple(names.split(",")), low, high, step)


def parse_place(text: str, dimensions: Sequence[Dimension]) -> dict[str, int]:
    """`batch=4,sequence=512` as values by label, of every dimension that varies; `height,width=640` gives both the value. Raises UsageError."""
    given: dict[str, int] = {}
    for name, (equals, value) in by_name(((name, rest) for name, *rest in _named_values(text)), f"--predict {text!r}:").items():
        dimension = next((dimension for dimension in dimensions if name in (dimension.label, *dimension.names)), None)
        if not equals or dimension is None:
            known = [name for dimension in dimensions for name in dimension.names]
            raise UsageError(f"--predict {text!r}: {name!r} is not a dimension that varies{near_or_all(name, known)}")
        size = parse_bytes(value)
        if given.setdefault(dimension.label, size) != size:
            raise UsageError(f"--predict {text!r}: {dimension.label} has one value, and two are given")
        if value.replace(".", "", 1).isdigit() and not value.isdigit():
            raise UsageError(f"--predict {text!r}: {name} is a whole number")
        if given[dimension.label] < 1:
            raise UsageError(f"--predict {text!r}: {name} is at least 1")
        if not dimension.varies and given[dimension.label] != dimension.low:
            raise UsageError(f"--predict {text!r}: {name} is {dimension.low} everywhere; give it a range to predict another value")
    missing = [dimension.label for dimension in dimensions if dimension.varies and dimension.label not in given]
    if missing:
        raise UsageError(f"--predict {text!r}: {' and '.join(missing)} {'need' if len(missing) > 1 else 'needs'} a value too")
    return {dimension.label: given[dimension.label] for dimension in dimensions if dimension.label in given}


def _named_values(text: str) -> list[tuple[str, str, str]]:
    """Each name with the `=` and the value that follow it, or that follow the names after it."""
    settings: list[tuple[str, str, str]] = []
    for setting in reversed(text.split(",")):
        name, equals, value = setting.partition("=")
        settings.append((name, equals, value) if equals or not settings else (name, *settings[-1][1:]))
    return settings[::-1]


def check_given_once(dimensions: Sequence[Dimension], knobs: Mapping[str, str], threads: int | None) -> None:
    """Raises UsageError for a name that has a range and a value of its own besides."""
    given = {**{name: f"--set {name}={value}" for name, value in knobs.items()}, **({THREADS: f"--threads {threads}"} if threads else {})}
    for name in (name for dimension in dimensions for name in dimension.names):
        if name in given:
            raise UsageError(f"--vary {name}: {given[name]} gives it a value too; leave one of the two out")


class Space(Struct, frozen=True):
    """Dimensions that were looked up in a model and a runtime. axes: of a model's dimension, the (input, axis) pairs that it sets."""

    dimensions: tuple[Dimension, ...]
    axes: Mapping[str, tuple[tuple[str, int], ...]]
    model: Path

    @property
    def varying(self) -> tuple[Dimension, ...]:
        """Those with more than one value."""
        return tuple(dimension for dimension in self.dimensions if dimension.varies)

    @property
    def side_by_side(self) -> bool:
        """Whether processes run at once."""
        return any(PROCESSES in dimension.names for dimension in self.dimensions)

    def value(self, name: str, at: Mapping[str, int]) -> int | None:
        """The value of a name at a place, None if no dimension has it."""
        dimension = next((dimension for dimension in self.dimensions if name in dimension.names), None)
        return None if dimension is None else at.get(dimension.label, dimension.low)

    def shapes(self, at: Mapping[str, int], given: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs that a place sets, and those that were given anyway."""
        shapes = dict(given)
        own = {declared.name: declared.shape for declared in inputs.inputs(self.model)}
        for name, axes in self.axes.items():
            for tensor, axis in axes:
                shape = list(shapes.get(tensor) or (1 if size is None else size for size in own[tensor]))
                shape[axis] = self.value(name, at) or 1
                shapes[tensor] = tuple(shape)
        return shapes

    def check_shapes(self, given: Mapping[str, tuple[int, ...]], arrays: str | None = None) -> None:
        """Raises UsageError for the shape of an input that gives one of the dimensions a value of its own, or that has too few. A 1 stands for a
        dimension that is given elsewhere. arrays: an .npz file of inputs, whose array gives all dimensions of its input values."""
        in_file = (inputs.array_shapes(arrays) or {}) if arrays is not None else {}
        for name, tensor in ((name, tensor) for name, axes in self.axes.items() for tensor, _ in axes if tensor in in_file):
            raise UsageError(f"--vary {name}: {Path(arrays or '').name} has {tensor}, of which it is a dimension; leave one of the two out")
        for name, (tensor, axis) in ((name, place) for name, axes in self.axes.items() for place in axes if place[0] in given):
            words = f"--shape {tensor}={','.join(map(str, given[tensor]))}"
            dimension = next(dimension for dimension in self.dimensions if name in dimension.names)
            if axis >= len(given[tensor]):
                raise UsageError(f"{words}: it has no place for {name}, which is dimension {axis} of {tensor}")
            if given[tensor][axis] not in (1, dimension.low):
                raise UsageError(f"{words}: {given[tensor][axis]} is in the place of {name}, which --vary gives values; write 1 there")

    def fixed(self, name: str) -> int | None:
        """The size that the model's file has for a dimension, None where it is open or none of the model's."""
        if name not in self.axes:
            return None
        own = {declared.name: declared.shape for declared in inputs.inputs(self.model)}
        return next(own[tensor][axis] for tensor, axis in self.axes[name])

    @property
    def open(self) -> str:
        """In words, what the model's file leaves open."""
        names = _open(inputs.inputs(self.model))
        return f"open in the file are {', '.join(names)}" if names else inputs.fixed_words(self.model) or "the file leaves none open"

    def forgotten(self, given: Mapping[str, tuple[int, ...]], arrays: str | None) -> tuple[str, ...]:
        """The names of the model's open dimensions that nobody set, so that they run as 1. given: the shapes of inputs that were. arrays: an .npz
        file of inputs."""
        known = {*given, *(inputs.array_shapes(arrays) or {} if arrays is not None else {})}
        covered = {place for axes in self.axes.values() for place in axes}
        return tuple(
            name
            for name, places in _open(inputs.inputs(self.model)).items()
            if any(place[0] not in known and place not in covered for place in places)
        )

    def knobs(self, at: Mapping[str, int]) -> dict[str, str]:
        """The runtime's knobs that a place sets."""
        names = [name for dimension in self.dimensions for name in dimension.names if name not in self.axes and name not in OWN]
        return {name: str(self.value(name, at)) for name in names}


def space_of_program(dimensions: Sequence[Dimension], command: Command) -> Space:
    """The dimensions, each a `{name}` among a program's words. Raises UsageError for a name that is none, and for one that is there twice."""
    seen: set[str] = set()
    for name in (name for dimension in dimensions for name in dimension.names):
        if name in seen:
            raise UsageError(f"--vary {name}: it is named twice")
        seen.add(name)
        if not command.has(name):
            raise UsageError(f"--vary {name}: write {{{name}}} where its value goes among the words of {command.name}")
    return Space(tuple(dimensions), {}, Path())


def space(dimensions: Sequence[Dimension], model: Path, runtime: Runtime) -> Space:
    """The dimensions, each found in the model or the runtime. Raises UsageError for a name that neither has, for one that is there twice, and for one
    that the file fixes, if the runtime does not change that; InputError for a file that holds no model."""
    runtime.check_file(str(model))
    declared = inputs.inputs(model)
    symbols: dict[str, list[tuple[str, int]]] = {}
    for tensor in declared:
        for axis, name in enumerate(tensor.dimensions):
            if name:
                symbols.setdefault(name, []).append((tensor.name, axis))
    indexed = {f"{tensor.name}.{axis}": (tensor.name, axis) for tensor in declared for axis in range(len(tensor.shape))}
    unnamed = _open(declared) or (indexed if runtime.reshapes else {})
    numbers = [knob.name for knob in runtime.knobs if knob.values in ("int", "bytes")]
    axes: dict[str, tuple[tuple[str, int], ...]] = {}
    seen: set[str] = set()
    for dimension in dimensions:
        for name in dimension.names:
            if name in seen:
                raise UsageError(f"--vary {name}: it is named twice")
            seen.add(name)
            if name in symbols:
                axes[name] = tuple(symbols[name])
            elif name in indexed:
                axes[name] = (indexed[name],)
            elif name not in OWN and name not in numbers:
                closed = f"; {inputs.fixed_words(model)}" if declared and not _open(declared) else ""
                known = [*dict.fromkeys([*symbols, *unnamed]), *OWN, *(knob for knob in numbers if runtime.knob(knob))]
                unknown = (
                    f"--vary {name}: neither {model.name} nor {_short(runtime.name)} has such a dimension{near_or_all(name, known)}{closed}"
                )
                words = _open_words(declared, dimension)
                raise UsageError(f"{unknown}{'' if unknown.endswith('?') or not words else '.'}{words}")
    if SESSIONS in seen and runtime.native is not None:
        raise UsageError(f"--vary sessions: {runtime.name} has one session in a process; the same runtime through Python can have several")
    found = Space(tuple(dimensions), axes, model)
    for dimension in dimensions:
        for name in () if runtime.reshapes else dimension.names:
            size = found.fixed(name)
            if size is not None and (dimension.low, dimension.high) != (size, size):
                raise UsageError(f"--vary {name}: {model.name} fixes it at {size}, and {_short(runtime.name)} keeps that; {found.open}")
    return found


def _open_words(declared: Sequence[inputs.Input], dimension: Dimension) -> str:
    """A sentence with the inputs that have open dimensions, as `--shape` writes them, and the words that give their first ones the range of a
    dimension. Of a single open dimension it has these words alone. Empty where none is open."""
    names = {place: name for name, places in _open(declared).items() for place in places}
    if not names:
        return ""
    texts = [
        f"{tensor.name}={','.join(names.get((tensor.name, axis), str(size)) for axis, size in enumerate(tensor.shape))}"
        for tensor in declared
        if None in tensor.shape
    ]
    first = min(axis for _, axis in names)
    together = ",".join(dict.fromkeys(name for (_, axis), name in names.items() if axis == first))
    values = f"{dimension.low}..{dimension.high}" if dimension.varies else str(dimension.low)
    step = f":{dimension.step}" if dimension.step > 1 else ""
    option = f"--vary {together}={values}{step}"
    return f" Write {option}" if len(set(names.values())) == 1 else f" Open are {inputs.listed(texts)}: such as {option}"


def _open(declared: Sequence[inputs.Input]) -> dict[str, list[tuple[str, int]]]:
    """The open dimensions by their names, or as INPUT.AXIS, with the (input, axis) pairs of each."""
    known: dict[str, list[tuple[str, int]]] = {}
    for tensor in declared:
        for axis, size in enumerate(tensor.shape):
            if size is None:
                known.setdefault((tensor.dimensions and tensor.dimensions[axis]) or f"{tensor.name}.{axis}", []).append((tensor.name, axis))
    return known


def _short(name: str) -> str:
    return Path(name).name
