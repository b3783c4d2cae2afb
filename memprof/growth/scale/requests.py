"""What a model asks of ONNX Runtime's arena in two runs, as a function of its dimensions: from recordings at a few places to any other place.

A recording is the text of runners/native/requests.c, of a session without an arena, so that each request is seen. The requests of all recordings must
be the same but for their sizes. Each size is then a sum of few products of the dimensions, or of counts of strides (strides.py), that has the
recorded sizes exactly; or nearly, where the runtime rounds them in another way. A tensor that fits into a gap by chance may move all others: where
sizes are only near, or a count may be another, the arena is simulated with other sizes too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import comb, prod

from msgspec import Struct

from .bfc import BfcArena, planned_block
from .heap import Heap
from .strides import Stride, StridedSize, strided

At = Mapping[str, int]
_Counted = Mapping[str, Fraction | int]  # a place with the counts of its strides, which a rival may have in parts
# A size that no few terms give exactly is taken where the best of them are so near, as a share.
_NEAR = 0.01
_MOST_TERMS = 3
_HIGHEST_DEGREE = 3
# Of the counts of strides, those that most sizes follow, in sums of so many terms.
_MOST_COUNTS, _MOST_TERMS_OF_COUNTS = 4, 2
RIVALS = 4  # so many other sizes are tried where those of a place are in doubt
_SCATTER = 0x9E37  # its multiples have bits that look drawn


class Recording(Struct, frozen=True):
    """The requests of two runs of a session, one after the other, without an arena.

    first, second: the requests of each run in order: n allocates number n, and ~n releases it. sizes: of each number, in bytes. sites: for each,
    the place in the runtime's code that made it. inputs: the bytes of each array that the model gets, which exist before.
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    sizes: tuple[int, ...]
    sites: tuple[str, ...]
    inputs: tuple[int, ...]


def parse(lines: Iterable[str], first: tuple[int, int], second: tuple[int, int], inputs: tuple[int, ...]) -> Recording:
    """A recording from its text: `a NS ADDRESS BYTES SITE` and `f NS ADDRESS`. first, second: begin and end of each run, in ns of the same clock.

    Memory requested before the first run stays, and is left out. Raises ValueError or IndexError for a text that is torn or of something else.
    """
    numbers: dict[str, int] = {}
    sizes: list[int] = []
    sites: list[str] = []
    runs: tuple[list[int], list[int]] = ([], [])
    for line in lines:
        kind, clock, address, *rest = line.split()
        now = int(clock)
        run = next((steps for steps, (begin, end) in zip(runs, (first, second), strict=True) if begin <= now <= end), None)
        if kind == "a":
            numbers.pop(address, None)
            if run is not None:
                numbers[address] = len(sizes)
                run.append(len(sizes))
                sizes.append(int(rest[0]))
                sites.append(rest[1])
        elif address in numbers:
            number = numbers.pop(address)
            if run is not None:
                run.append(~number)
    return Recording(tuple(runs[0]), tuple(runs[1]), tuple(sizes), tuple(sites), inputs)


class Requests(Struct, frozen=True, dict=True):
    """The requests at any place. amounts: the size of each number, and then that of each input, as sums of products of dimensions and of the counts
    of strides. block: the number of the block that holds the second run's tensors, None for a runtime that makes none; planned: the numbers of the
    first run that lie in it. strides: the counts. errors: of each amount that has not the recorded sizes, its largest error as a share."""

    recording: Recording
    amounts: tuple[Amount, ...]
    block: int | None
    planned: frozenset[int]
    strides: tuple[Stride, ...] = ()
    errors: Mapping[Amount, float] = {}

    def doubtful(self, at: At) -> list[int]:
        """The rivals whose sizes at a place differ from those that are taken: numbers for `resident_bytes`. Empty where the sizes are certain."""
        sizes = self._sizes(at, None)
        return [rival for rival in range(RIVALS) if self._sizes(at, rival) != sizes]

    def resident_bytes(self, at: At, runs: int, heap: Heap, rival: int | None = None) -> tuple[int, int]:
        """What becomes resident at a place until the end of the first run, and until that of `runs` more: the inputs and the arena's pages.

        heap: as it is before the inputs are made; it is used up. rival: which other sizes to take where they are in doubt.
        """
        known = self._sizes(at, rival)
        every = [known[amount] for amount in self.amounts]
        count = len(self.recording.sizes)
        sizes, inputs = every[:count], every[count:]
        if self.block is not None:
            sizes[self.block] = planned_block(self.recording.first, sizes, self.planned)
        given = sum(size for size in inputs if heap.allocate(size)[1])
        arena = BfcArena(heap)
        _run(arena, 0, self.recording.first, sizes)
        after_first = arena.resident_bytes
        for turn in range(1, runs + 1):
            _run(arena, turn, self.recording.second, sizes)
        return given + after_first, given + arena.resident_bytes

    def _sizes(self, at: At, rival: int | None) -> dict[Amount, int]:
        """The size of each amount at a place. Where it is only near, rivals are larger or smaller by its error, each amount by itself."""
        counted = {**at, **{stride.label: stride.count(at, rival) for stride in self.strides}}
        known = {amount: amount.at(counted) for amount in self._distinct}
        if rival is not None:
            for number, (amount, error) in enumerate(self.errors.items()):
                share = error if (number + 1) * _SCATTER >> rival & 1 else -error
                known[amount] = max(known[amount] + round(share * known[amount]), 0)
        return known

    @cached_property
    def _distinct(self) -> tuple[Amount, ...]:
        return tuple(dict.fromkeys(self.amounts))


def _run(arena: BfcArena, turn: int, steps: Sequence[int], sizes: Sequence[int]) -> None:
    for step in steps:
        if step >= 0:
            arena.allocate((turn, step), sizes[step])
        else:
            arena.release((turn, ~step))


def requests(recorded: Sequence[tuple[At, Recording]]) -> Requests | None:
    """The requests at any place from those that were recorded at some, None where they do not tell: other operators or another number of them ran, a
    size follows no few products, or the second run's block is not what a plan of the first run's requests gives."""
    places, recordings = [at for at, _ in recorded], [recording for _, recording in recorded]
    first = recordings[0]
    if not first.first or any(
        (other.first, other.second, other.sites) != (first.first, first.second, first.sites) for other in recordings[1:]
    ):
        return None
    found = _block(recordings)
    if found is None:
        return None
    block, planned = found
    for recording in recordings:
        if block is not None and planned_block(recording.first, recording.sizes, planned) != recording.sizes[block]:
            return None
    every = list(zip(*((*recording.sizes, *recording.inputs) for recording in recordings), strict=True))
    distinct = list(dict.fromkeys(sizes for number, sizes in enumerate(every) if number != block))
    found_sizes = _Sizes(places, distinct, every)
    if any(sizes not in found_sizes.amounts for sizes in distinct):
        return None
    amounts = tuple(_NOTHING if number == block else found_sizes.amounts[sizes] for number, sizes in enumerate(every))
    return Requests(first, amounts, block, planned, found_sizes.strides, found_sizes.errors)


class _Sizes:
    """Sizes at the recorded places as amounts: for each tuple of sizes, as far as one is found. strides: the counts that these have; errors: see
    Requests."""

    def __init__(self, places: Sequence[At], distinct: Sequence[tuple[int, ...]], every: Sequence[tuple[int, ...]]) -> None:
        basis = Basis(places)
        self.amounts: dict[tuple[int, ...], Amount] = {}
        self.errors: dict[Amount, float] = {}
        near = {sizes: amount for sizes in distinct if (amount := basis.amount(sizes)) is not None}
        for sizes, amount in near.items():
            if not _error(amount, places, sizes):
                self.amounts[sizes] = amount
        self._strides: dict[str, Stride] = {}
        of_counts = {sizes: strided(places, sizes) for sizes in distinct if sizes not in self.amounts}
        for sizes, found in of_counts.items():
            if found is not None:
                self._strides.setdefault(found.stride.label, found.stride)
                self.amounts[sizes] = _amount(found)
        uses = Counter(found.stride.label for sizes in every if (found := of_counts.get(sizes)) is not None)
        often = [self._strides[label] for label, _ in uses.most_common(_MOST_COUNTS)]
        counted = [{**at, **{stride.label: stride.count(at) for stride in often}} for at in places]
        with_counts = Basis(counted, _MOST_TERMS_OF_COUNTS) if often else None
        for sizes in distinct:
            if sizes in self.amounts:
                continue
            exact = with_counts.amount(sizes) if with_counts is not None else None
            if exact is not None and not _error(exact, counted, sizes):
                self.amounts[sizes] = exact
            elif sizes in near:
                self.amounts[sizes] = near[sizes]
                self.errors[near[sizes]] = max(_error(near[sizes], places, sizes), self.errors.get(near[sizes], 0.0))
        self.strides = tuple(self._strides.values())


def _amount(found: StridedSize) -> Amount:
    """A multiple of a power of a count, as the sum that it is: (count + shift) ^ power has a term for each power of the count."""
    terms = []
    for power in range(found.power, -1, -1):
        factor = found.factor * comb(found.power, power) * found.shift ** (found.power - power)
        if factor:
            counts = ((found.stride.label, power),) if power else ()
            terms.append(((*found.others, *counts), int(factor) if factor.denominator == 1 else factor))
    return Amount(tuple(terms))


def _error(amount: Amount, places: Sequence[_Counted], sizes: Sequence[int]) -> float:
    """The largest difference of an amount from the sizes at these places, as a share."""
    return max(float(abs(amount.value(at) - size)) / max(size, 1) for at, size in zip(places, sizes, strict=True))


def _block(recordings: Sequence[Recording]) -> tuple[int | None, frozenset[int]] | None:
    """The block of the second run, and the numbers of the first that it holds: all that the second run does not ask for again. None if that is not
    clear."""
    recording = recordings[0]
    kept = set(range(len(recording.sizes))) - {~step for step in (*recording.first, *recording.second) if step < 0}
    asked = {
        number: (recording.sites[number], number in kept, *(each.sizes[number] for each in recordings)) for number in _asked(recording)
    }
    earlier = [step for step in recording.first if step >= 0]
    sites = {recording.sites[number] for number in earlier}
    blocks = [number for number in recording.second if number >= 0 and recording.sites[number] not in sites]
    if len(blocks) > 1:
        return None
    again: set[int] = set()
    place = 0
    for number in recording.second:
        if number < 0 or number in blocks:
            continue
        place = next((other for other in range(place, len(earlier)) if asked[earlier[other]] == asked[number]), -1) + 1
        if not place:
            return None
        again.add(earlier[place - 1])
    planned = frozenset(set(earlier) - again)
    return (blocks[0], planned) if blocks else None if planned else (None, planned)


def _asked(recording: Recording) -> list[int]:
    return [step for step in (*recording.first, *recording.second) if step >= 0]


# -- sizes as sums of products


class Amount(Struct, frozen=True):
    """A sum of products of dimensions: for each, the powers by dimension and what it is multiplied by."""

    terms: tuple[tuple[tuple[tuple[str, int], ...], Fraction | int], ...]

    def at(self, at: _Counted) -> int:
        """The value at a place, as a whole number."""
        return max(round(self.value(at)), 0)

    def value(self, at: _Counted) -> Fraction | int:
        """The sum at a place as it is."""
        total: Fraction | int = sum(factor * prod([at[name] ** power for name, power in powers]) for powers, factor in self.terms)
        return total


_NOTHING = Amount(())


class Basis:
    """The products that sizes may follow, with their values at the recorded places. most_terms: of a sum of them."""

    def __init__(self, places: Sequence[_Counted], most_terms: int = _MOST_TERMS) -> None:
        names = sorted({name for at in places for name in at if len({each[name] for each in places}) > 1})
        every = [
            tuple((name, power) for name, power in zip(names, powers, strict=True) if power)
            for powers in itertools.product(range(_HIGHEST_DEGREE), repeat=len(names))
            if sum(powers) <= _HIGHEST_DEGREE
        ]
        self._products = sorted(every, key=lambda powers: sum(power for _, power in powers))
        self._columns = [[prod(at[name] ** power for name, power in powers) for at in places] for powers in self._products]
        self._known: dict[tuple[int, ...], Amount | None] = {}
        self._count, self._most_terms = len(places), most_terms

    def amount(self, sizes: Sequence[int]) -> Amount | None:
        """The sum of the fewest products that has these sizes at the places, or nearly; None for none."""
        key = tuple(sizes)
        if key not in self._known:
            self._known[key] = self._sought(key)
        return self._known[key]

    def _sought(self, sizes: tuple[int, ...]) -> Amount | None:
        if not any(sizes):
            return _NOTHING
        best: tuple[float, Amount] | None = None
        # Places must be left that test the terms: one, and three where terms are subtracted, which fit nearly anything.
        for count in range(1, min(self._most_terms, self._count - 1) + 1):
            for chosen in itertools.combinations(range(len(self._products)), count):
                amount, error = self._tried(chosen, sizes)
                if amount is None or (best is not None and error >= best[0]):
                    continue
                if all(factor > 0 for _, factor in amount.terms) or (error == 0 and count <= self._count - 3):
                    best = (error, amount)
            if best is not None and best[0] == 0:
                break
        return best[1] if best is not None and best[0] <= _NEAR else None

    def _tried(self, chosen: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Amount | None, float]:
        """These products through the first, the last, ... places, and the largest error at all places as a share of the size."""
        rows = self._rows[: len(chosen)]
        solved = _solved([[self._columns[product][row] for product in chosen] for row in rows], [sizes[row] for row in rows])
        if solved is None or any(factor == 0 for factor in solved):
            return None, 0.0
        worst = 0.0
        for place, size in enumerate(sizes):
            value = sum(factor * self._columns[product][place] for factor, product in zip(solved, chosen, strict=True))
            if value != size:
                worst = max(worst, float(abs(value - size)) / max(size, 1))
        factors = [int(factor) if factor.denominator == 1 else factor for factor in solved]
        return Amount(tuple((self._products[product], factor) for product, factor in zip(chosen, factors, strict=True))), worst

    @cached_property
    def _rows(self) -> list[int]:
        """The places in the order in which they are used to solve for factors: the most distant first."""
        rows = list(range(self._count))
        return [row for pair in zip(rows, reversed(rows), strict=True) for row in pair][: self._count]


def _solved(matrix: list[list[Fraction | int]], target: list[int]) -> list[Fraction] | None:
    """The solution of so many equations by elimination, None if there is not exactly one."""
    rows = [[Fraction(value) for value in (*row, right)] for row, right in zip(matrix, target, strict=True)]
    count = len(rows)
    for column in range(count):
        pivot = next((row for row in range(column, count) if rows[row][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        lead = rows[column][column]
        rows[column] = [value / lead for value in rows[column]]
        for row in range(count):
            factor = rows[row][column]
            if row != column and factor:
                rows[row] = [value - factor * base for value, base in zip(rows[row], rows[column], strict=True)]
    return [row[count] for row in rows]
