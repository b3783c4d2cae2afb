"""The question of `memprof scale` and its answer: requests, measured points, the laws side by side, and the arithmetic on these alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from ...base.errors import UsageError
from ...base.units import format_bytes
from ...campaign.fleet.search_client import Machines
from ...campaign.side_by_side import SharedFile
from ...records.types import EXECUTE, PEAK
from ...subjects.dimensions import Dimension
from ...subjects.suite import Suite
from ..laws.laws import FARTHEST, Law, Prediction
from ..laws.terms import Coordinates

ANONYMOUS = "anonymous memory at the end"
ALL = "all processes at the end"
CHARGED = "their control group at the end"

_Places = Sequence[Mapping[str, int]]


class ScaleRequest(Struct, frozen=True):
    """The question: what is measured, and the dimensions to vary.

    suite: of one model in a runtime; the name of its variant, if it has one, stands before the place in the name of the runs. predictions: places
    to predict, by label. within_bytes: a limit, for the largest value of each dimension that fits. confirm: run the predictions that can be reached.
    points: the most runs that the laws are fitted to, None for as many as the number of dimensions asks for. fleet: the machines that measure, None
    for the suite's place. simulates: an arena whose regions double is simulated, which predictions need and coefficients do not.
    """

    suite: Suite
    dimensions: Sequence[Dimension]
    points: int | None = None
    predictions: _Places = ()
    within_bytes: int | None = None
    confirm: bool = False
    fleet: Machines | None = None
    simulates: bool = True

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of inputs, with those of the variant."""
        return {**self.suite.shapes, **self.suite.only.shapes}

    @property
    def threads(self) -> int | None:
        """The thread count, None for the runtime's own. Raises UsageError for several."""
        counts = self.suite.only.threads or self.suite.threads
        if len(counts) > 1:
            raise UsageError("--threads: a law has one count, or varies it: --vary threads=1..8")
        return counts[0] if counts else None


class PlaceRun(Struct, frozen=True):
    """A run at a place. sizes: in bytes, by the law's name. ended: how it failed. least: it died for lack of memory, and its sizes are at least so
    much. refused: the runtime gave an error of its own. planned_bytes: the planner's own peak there, None where there is no plan. held_out: no law
    was fitted to it. elsewhere_bytes: of the resident set at the end, what other processes or other mappings of the same pages share. again: the
    main figure of all runs at this place in their order, where it is the median of several."""

    at: Mapping[str, int]
    sizes: Mapping[str, int]
    ended: str | None = None
    least: bool = False
    refused: bool = False
    planned_bytes: int | None = None
    held_out: bool = False
    elsewhere_bytes: int | None = None
    again: tuple[int, ...] = ()

    def most_bytes(self, main: str) -> int:
        """The main figure, the largest of all runs at this place: what a limit needs."""
        return max(self.again or (self.sizes[main],))


class Named(Struct, frozen=True):
    """The law of one figure: PEAK, a phase's peak, or anonymous memory at the end. law: None where no simple law holds."""

    name: str
    law: Law | None


class PeakChange(Struct, frozen=True):
    """A place where another phase makes the peak: beyond this value of a dimension, with the others at `others`."""

    dimension: str
    value: int
    before: str
    after: str
    others: Mapping[str, int]


class Within(Struct, frozen=True):
    """The largest value of a dimension that fits into a limit, with the others fixed: as predicted, surely, and possibly. None where none fits, and
    possibly where the law's interval does not bound it (value is a number then). confirmed_bytes: the size that was measured at the predicted
    value, None where it was not run; ended: how that run failed, if it did. refused: the lowest value that the runtime refused with these
    others; those that fit are below it. most: of the values up to that which a limit is to hold (`bound`), the one with the largest upper end."""

    dimension: str
    others: Mapping[str, int]
    value: int | None
    surely: int | None
    possibly: int | None
    confirmed_bytes: int | None = None
    ended: str = ""
    refused: int | None = None
    most: Prediction | None = None

    @property
    def bound(self) -> int | None:
        """The largest value that surely fits, or the predicted one where none does; None where none fits."""
        return self.value if self.surely is None else self.surely

    def place(self, labels: Sequence[str]) -> dict[str, int]:
        """Its value among the others', in the order of these labels."""
        at = {**self.others, self.dimension: self.value or 0}
        return {label: at[label] for label in labels}

    @property
    def confirmable(self) -> bool:
        """Whether its value is one that can be run."""
        return self.value is not None and self.value < FARTHEST

    def bound_place(self, dimensions: Sequence[Dimension]) -> dict[str, int]:
        """Its bound among the others' values, in the order of these dimensions: no more than the end of the range where memory does not depend on
        it."""
        ends = {each.label: each.last for each in dimensions}
        bound = self.bound or 0
        if not self.confirmable:
            bound = min(bound, ends[self.dimension])
        return {label: self.others.get(label, bound) for label in ends}

    @property
    def bounded(self) -> bool:
        """Whether the law's interval says what is possible."""
        return self.possibly is not None or self.value is None


class Against(Struct, frozen=True):
    """A term of the measured law beside the planner's: bytes per unit of each, None where one of them has no such term."""

    words: str
    measured_bytes: float | None
    planned_bytes: float | None


class Scaled(Struct, frozen=True):
    """The answer. main: the name of the law that predictions are of. undecided: the lack, and what to add; empty if decided.
    planned: the law of the planner's own peak, None where there is no plan; unplanned: why. shared: files whose pages processes share.
    mapped_again_bytes: what each further session adds to the resident set and not to memory, pages that it maps again. env: the variables that a
    program needs for the same settings, without those that a dimension varies. widened: how many times as wide as the law's own the intervals are,
    because a size that was measured afterwards lies outside of one. calls: the knobs and the number of threads that were set, in the runtime's own
    words.
    """

    model: str
    runtime: str
    settings: str
    dimensions: tuple[Dimension, ...]
    points: tuple[PlaceRun, ...]
    main: str
    laws: tuple[Named, ...]
    changes: tuple[PeakChange, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    within_bytes: int | None = None
    within: tuple[Within, ...] = ()
    planned: Law | None = None
    unplanned: str = ""
    against: tuple[Against, ...] = ()
    findings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    undecided: str = ""
    shared: tuple[SharedFile, ...] = ()
    mapped_again_bytes: float = 0.0
    threads: int | None = None
    interrupted: bool = False
    widened: float = 1.0
    env: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[str, ...] = ()

    @property
    def unmet(self) -> str:
        """That no value fits into the limit that was given, as a sentence; empty if one does, and if nothing tells."""
        if self.undecided or not self.within or any(row.value is not None for row in self.within):
            return ""
        return f"{self.model}: no value of {' and '.join(each.label for each in self.varying)} fits into {format_bytes(self.within_bytes or 0)}"

    @property
    def varying(self) -> tuple[Dimension, ...]:
        """The dimensions with more than one value."""
        return tuple(dimension for dimension in self.dimensions if dimension.varies)

    @property
    def unbelievable(self) -> str:
        """Why the terms of the law have no meaning; empty where they have one, and for a law without any."""
        return self.undecided if self.law is not None and len(self.law.coefficients) > 1 else ""

    @property
    def law(self) -> Law | None:
        """The law that predictions are of."""
        return self.named(self.main)

    def named(self, name: str) -> Law | None:
        """The law of that name."""
        return next((named.law for named in self.laws if named.name == name), None)

    @property
    def sources(self) -> dict[str, Law]:
        """The laws that predictions come from, by name: those of the phases that make the peak, or else that of the main figure."""
        return _sources(self.main, self.laws)

    @property
    def source(self) -> str:
        """What predictions come from, in words."""
        simulated = [law for law in self.sources.values() if law.simulated]
        if not simulated:
            return "the law"
        return "the planned arenas" if simulated[0].planned else "the simulated arena"

    @property
    def simulated(self) -> bool:
        """Whether predictions come from an arena rather than from the sum that the coefficients are of."""
        return any(law.simulated for law in self.sources.values())

    @property
    def limit_places(self) -> tuple[dict[str, int], Prediction] | None:
        """What the lines for a manifest stand on: of the largest places that surely fit into the limit, the one up to which most is needed, and the
        prediction of that. None where nothing fits."""
        rows = [(row.bound_place(self.varying), row.most) for row in self.within if row.most is not None]
        return max(rows, key=lambda row: row[1].high_bytes, default=None)

    def predict(self, places: Sequence[Coordinates]) -> list[Prediction]:
        """The main figure at places: of PEAK, the largest of what the phases' laws say. Empty where there is no law."""
        return [_widened(prediction, self.widened) for prediction in predicted(self.main, self.laws, places)]

    def expect(self, places: Sequence[Coordinates]) -> list[Prediction]:
        """`predict`, but at places that were confirmed the size as measured, which needs no interval."""
        sizes = {tuple(sorted(point.at.items())): float(point.most_bytes(self.main)) for point in self.confirmations}
        predictions = self.predict(places)
        for number, prediction in enumerate(predictions):
            size = sizes.get(tuple(sorted((name, int(value)) for name, value in prediction.at.items())))
            if size is not None:
                predictions[number] = replace(prediction, bytes=size, low_bytes=size, high_bytes=size)
        return predictions

    @property
    def confirmations(self) -> tuple[PlaceRun, ...]:
        """The points that were measured after the law was found, to confirm it."""
        return tuple(point for point in self.points if point.held_out and not point.ended and self.main in point.sizes)

    @property
    def refutations(self) -> tuple[tuple[PlaceRun, Prediction], ...]:
        """The confirmed points outside of the law's own interval, with that."""
        own = predicted(self.main, self.laws, [point.at for point in self.confirmations])
        return tuple(
            (point, prediction)
            for point, prediction in zip(self.confirmations, own, strict=bool(own))
            if not prediction.low_bytes <= point.sizes[self.main] <= prediction.high_bytes
        )


def widening(answer: Scaled) -> float:
    """How many times as wide intervals must be to hold all confirmed sizes."""
    factors = [1.0]
    for point, prediction in answer.refutations:
        off = point.sizes[answer.main] - prediction.bytes
        half = prediction.high_bytes - prediction.bytes if off > 0 else prediction.bytes - prediction.low_bytes
        factors.append(abs(off) / max(half, 1.0))
    return max(factors)


def _widened(prediction: Prediction, factor: float) -> Prediction:
    low, high = (prediction.bytes + factor * (end - prediction.bytes) for end in (prediction.low_bytes, prediction.high_bytes))
    return prediction if factor == 1 else replace(prediction, low_bytes=max(low, 0.0), high_bytes=high)


def predicted(main: str, named: Sequence[Named], places: Sequence[Coordinates]) -> list[Prediction]:
    """The main figure at places. PEAK is the largest of what the phases' laws say, so that it may change from one phase's law to another's."""
    each = [law.predict_all(places) for law in _sources(main, named).values()] if places else []
    return [
        replace(
            max(row, key=lambda prediction: prediction.bytes),
            low_bytes=max(prediction.low_bytes for prediction in row),
            high_bytes=max(prediction.high_bytes for prediction in row),
        )
        for row in zip(*each, strict=True)
    ]


def _sources(main: str, named: Sequence[Named]) -> dict[str, Law]:
    """See Scaled."""
    whole = {entry.name: entry.law for entry in named if entry.name == main and entry.law is not None}
    return (_highest(main, named) or whole) if whole else {}


def _highest(main: str, named: Sequence[Named]) -> dict[str, Law]:
    """The laws of the phases of which PEAK is the largest; none where a phase has no law, or has one of an arena that is simulated for PEAK alone. A
    phase that made the peak nowhere is left out: beyond the measured range its law is worth less than that of PEAK itself."""
    phases = {entry.name: entry.law for entry in named if entry.name not in (PEAK, ANONYMOUS)}
    whole = next((entry.law for entry in named if entry.name == main), None)
    if main != PEAK or whole is None or None in phases.values():
        return {}
    peaks = {tuple(point.at.items()): point.bytes for point in whole.measured}

    def is_peak(law: Law) -> bool:
        return any(point.bytes >= peaks.get(tuple(point.at.items()), math.inf) for point in law.measured)

    highest = {name: law for name, law in phases.items() if law is not None and is_peak(law)}
    return {} if whole.simulated and any(law.steps for law in highest.values()) else highest


def changes(main: str, named: Sequence[Named], ranges: Mapping[str, tuple[int, int]]) -> tuple[PeakChange, ...]:
    """Where another phase begins to make the peak, along each dimension with the others at their lowest."""
    phases = _highest(main, named)
    if len(phases) < 2:
        return ()
    changes = []
    for label, (low, high) in ranges.items():
        others = {name: ends[0] for name, ends in ranges.items() if name != label}

        def top(value: int, label: str = label, others: Mapping[str, int] = others) -> str:
            sizes = {name: law.predict({**others, label: value}).bytes for name, law in phases.items()}
            best = max(sizes.values())
            # Phases that are nearly as high are one: the later stands for them, for it is the one that repeats.
            return [name for name in sizes if sizes[name] >= best * 0.98][-1]

        before, after = top(low), top(high)
        if before == after:
            continue
        left, right = low, high
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if top(middle) == before else (left, middle)
        changes.append(PeakChange(label, left, before, top(right), others))
    return tuple(changes)


def fall(points: Sequence[PlaceRun], main: str) -> tuple[PlaceRun, PlaceRun] | None:
    """The two points between which the main figure falls most while one dimension grows and no other changes, the lower place first; None where it
    falls nowhere."""
    whole = [point for point in points if not point.ended and not point.held_out and main in point.sizes]
    falls = [
        (low, high)
        for low, high in itertools.permutations(whole, 2)
        if high.sizes[main] < low.sizes[main] and [high.at[name] > size for name, size in low.at.items() if high.at[name] != size] == [True]
    ]
    return max(falls, key=lambda pair: pair[0].sizes[main] - pair[1].sizes[main], default=None)


def against(answer: Scaled) -> tuple[Against, ...]:
    """The terms of EXECUTE's law beside those of the planner's, where a plan grows at all."""
    measured = answer.named(EXECUTE)
    if answer.planned is None or measured is None:
        return ()
    ours = {coefficient.term.words: coefficient.bytes for coefficient in measured.coefficients if coefficient.term.powers}
    theirs = {coefficient.term.words: coefficient.bytes for coefficient in answer.planned.coefficients if coefficient.term.powers}
    return tuple(Against(words, ours.get(words), theirs.get(words)) for words in dict.fromkeys([*ours, *theirs]) if theirs)


def words_of(at: Mapping[str, int]) -> str:
    """A place as people write it: `batch=4,sequence=512`."""
    return ",".join(f"{name}={value}" for name, value in at.items())
