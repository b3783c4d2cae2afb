"""The verdict on one row that both sides have: by the medians of its samples, by their modes, or by the machines that they come from."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from ..records.metrics import amount, signed
from ..records.modes import split_modes
from ..records.summary import Row
from . import machine_spread
from .ranks import ALPHA, p_words, pooled_stdev, rank_p, stratified_p

_STDEVS = 3
# A lone repeat lies far from its like beyond so many times their spread. Of pairs of five repeats of one normal distribution (7% noise, 2,000 pairs)
# 1.7% are then undecided, and 0.8% without this rule; 7.3% if the farthest repeat were left out wherever it lies.
_FAR = 2
_REPEATS_ADVICE = "more repeats help"
_ADVICE = f"deterministic runs (deterministic = true in a suite, or --deterministic) or {_REPEATS_ADVICE}"

Decided = Literal["regressed", "improved", "ok", "undecided"]


class Decision(Struct, frozen=True):
    """A verdict on a row, and why, in words. threshold: the difference that had to be exceeded. p: of the one-sided test, if there was one."""

    verdict: Decided
    reason: str
    threshold: float
    p: float | None = None


def by_machines(base: Row, machines: machine_spread.Sides, floor: float) -> Decision:
    """The verdict on a row of interchangeable machines: the machine is a random effect, and no mode of the samples."""
    threshold = max(floor, _STDEVS * machines.stdev)
    change = f"{signed(base.metric, machines.difference, base.median)} {machines.words}"
    if machines.too_few:
        return Decision("undecided", f"{change}: {machine_spread.ADVICE}", threshold)
    if abs(machines.difference) <= threshold:
        return Decision("ok", f"{change} is within the threshold of {amount(base.metric, threshold)}", threshold)
    p = machines.p if machines.difference > 0 else machines.turned.p
    if p > ALPHA:
        return Decision("ok", f"{change}, but not beyond noise ({p_words(p)})", threshold, p)
    verdict: Decided = "regressed" if machines.difference > 0 else "improved"
    return Decision(verdict, f"{change} (threshold {amount(base.metric, threshold)}, {p_words(p)})", threshold, p)


class Pair(Struct, frozen=True):
    """Both sides of a row, each as one group of samples or as several modes, the lowest first. outlier: a lone sample is in no group.
    deterministic: the runs were, as far as they can be."""

    metric: str
    base: tuple[tuple[float, ...], ...]
    head: tuple[tuple[float, ...], ...]
    base_values: tuple[float, ...]
    head_values: tuple[float, ...]
    floor: float
    outlier: bool
    deterministic: bool = False

    @classmethod
    def of(cls, base: Row, head: Row, floor: float, deterministic: bool = False) -> Pair:
        """A lone value is a mode if the other side has its like. A lone value without its like is an outlier, if there is only one."""
        sides = [split_modes(row.values, floor) for row in (base, head)]
        strange = [
            group
            for groups, other in ((sides[0], head.values), (sides[1], base.values))
            for group in groups
            if len(group) == 1 < len(groups) and all(abs(group[0] - value) > floor for value in other)
        ]
        outlier = len(strange) == 1
        modes = [tuple(group for group in groups if not outlier or group is not strange[0]) for groups in sides]
        return cls(base.metric, modes[0], modes[1], base.values, head.values, floor, outlier, deterministic)

    @property
    def advice(self) -> str:
        """What helps where modes or an outlier leave the row undecided."""
        return _REPEATS_ADVICE if self.deterministic else _ADVICE

    @property
    def threshold(self) -> float:
        """The difference that must be exceeded: the floor, or three standard deviations within the groups if that is more."""
        return max(self.floor, _STDEVS * pooled_stdev(self.base + self.head))

    @property
    def _beyond_modes(self) -> float:
        """The change that puts all of one side beyond all of the other, whichever mode each run meets."""
        return self.floor + max(max(values) - min(values) for values in (self.base_values, self.head_values))

    def decide(self) -> Decision:
        decision = self._by_medians() if len(self.base) == len(self.head) == 1 else self._by_modes()
        return self._far_from_like(decision.p) if decision.verdict == "ok" and self._hidden() else decision

    def _by_medians(self) -> Decision:
        before, after = statistics.median(self.base_values), statistics.median(self.head_values)
        difference = after - before
        if abs(difference) <= self.threshold:
            return self._decision("ok", f"{self._signed(difference, before)} is within the threshold of {self._amount(self.threshold)}")
        p = self._p(difference)
        if p <= ALPHA:
            reason = f"{self._signed(difference, before)} (threshold {self._amount(self.threshold)}, {p_words(p)})"
            return self._decision("regressed" if difference > 0 else "improved", reason, p)
        if self.outlier:
            return self._far_from_like(p)
        return self._decision("ok", f"{self._signed(difference, before)}, but not beyond noise ({p_words(p)})", p)

    def _far_from_like(self, p: float | None) -> Decision:
        before = statistics.median(self.base_values)
        change = self._signed(statistics.median(self.head_values) - before, before)
        return self._decision("undecided", f"{change}, but a repeat lies far from its like: {self.advice}", p)

    def _hidden(self) -> bool:
        """Whether a lone repeat far from its like, one per side at most, hides that all the others lie apart by more than the floor.

        It widens the spread, and with it the threshold, or it lets the ranks overlap. A repeat that has its like among the others of the other side
        is a mode.
        """
        bases = [self.base_values, *self._without_stray(self.base_values, self.head_values)]
        heads = [self.head_values, *self._without_stray(self.head_values, self.base_values)]
        pairs = itertools.product(bases, heads)
        return any(max(min(head) - max(base), min(base) - max(head)) > self.floor for base, head in pairs)

    def _without_stray(self, values: Sequence[float], other: Sequence[float]) -> list[Sequence[float]]:
        """The values without the one farthest from their median, if it is far from the rest and its like is not in the rest of the other side."""
        far, *rest = _farthest_first(values)
        gap = min(abs(far - value) for value in rest)
        has_like = any(abs(far - value) <= self.floor for value in _farthest_first(other)[1:])
        return [rest] if gap > _FAR * (max(rest) - min(rest)) and not has_like else []

    def _by_modes(self) -> Decision:
        apart = self._apart()
        if apart is not None:
            return apart
        # For each mode of head, the place of its like among base's modes, None if there is none.
        places = [next((place for place, mode in enumerate(self.base) if self._alike(mode, other)), None) for other in self.head]
        known = [place for place in places if place is not None]
        if len(set(known)) == len(places):
            return self._same_modes(known)
        strays = [mode for mode, place in zip(self.head, places, strict=True) if place is None]
        if known and all(max(stray) < self.base[0][0] for stray in strays):
            return self._decision("ok", "head has a mode that base lacks, below all of base's")
        if len(self.base) == len(self.head):
            return self._moved()
        return self._decision("undecided", f"{_modes(self.head)} in head, {len(self.base)} in base, {len(known)} alike: {self.advice}")

    def _apart(self) -> Decision | None:
        """A verdict if all of one side lies beyond all of the other, whatever their modes."""
        for upper, lower, verdict, word in (
            (self.head_values, self.base_values, "regressed", "above"),
            (self.base_values, self.head_values, "improved", "below"),
        ):
            least = min(upper) - max(lower)
            if least > self.floor and (p := rank_p(lower, upper)) <= ALPHA:
                reason = f"all of head is {word} all of base, by {self._amount(least)} at least ({p_words(p)})"
                return self._decision("regressed" if verdict == "regressed" else "improved", reason, p)
        return None

    def _alike(self, mode: Sequence[float], other: Sequence[float]) -> bool:
        return abs(statistics.median(mode) - statistics.median(other)) <= self.threshold

    def _same_modes(self, places: Sequence[int]) -> Decision:
        """Both sides have the same modes, so only how often each is met can differ."""
        shares = [
            [float(place) for place, mode in enumerate(self.base) for _ in mode],
            [float(place) for place, mode in zip(places, self.head, strict=True) for _ in mode],
        ]
        worse = statistics.fmean(shares[1]) >= statistics.fmean(shares[0])
        p = rank_p(*(shares if worse else shares[::-1]))
        met = [", ".join(str(side.count(place)) for place in range(len(self.base))) for side in shares]
        reason = f"{_modes(self.base)}, the same on both sides; runs in each: {met[1]}, in base {met[0]} ({p_words(p)})"
        return self._decision(("regressed" if worse else "improved") if p <= ALPHA else "ok", reason, p)

    def _moved(self) -> Decision:
        """As many modes on both sides: they can be told apart if all moved alike, and by less than half of the gap between them."""
        before, after = ([statistics.median(mode) for mode in side] for side in (self.base, self.head))
        shifts = [there - here for here, there in zip(before, after, strict=True)]
        gap = min(high - low for side in (before, after) for low, high in pairwise(side))
        same_way = all(shift > self.threshold for shift in shifts) or all(shift < -self.threshold for shift in shifts)
        if not same_way or max(map(abs, shifts)) >= gap / 2 or max(shifts) - min(shifts) > self.threshold:
            return self._decision("undecided", f"{_modes(self.base)} on both sides that cannot be told apart: {self.advice}")
        strata = list(zip(self.base, self.head, strict=True))
        p = stratified_p(strata if shifts[0] > 0 else [(head, base) for base, head in strata])
        moves = " and ".join(self._signed(shift, here) for shift, here in zip(shifts, before, strict=True))
        if p > ALPHA:
            reason = f"{_modes(self.base)}, which moved by {moves}, in too few repeats to decide ({p_words(p)}): {self.advice}"
            return self._decision("undecided", reason, p)
        return self._decision(
            "regressed" if shifts[0] > 0 else "improved", f"{_modes(self.base)}, all of which moved: {moves} ({p_words(p)})", p
        )

    def _p(self, difference: float) -> float:
        sides = (self.base_values, self.head_values) if difference > 0 else (self.head_values, self.base_values)
        return rank_p(*sides)

    def _decision(self, verdict: Decided, reason: str, p: float | None = None) -> Decision:
        # Where modes or an outlier leave a row undecided, only a change larger than they lie apart would have been sure to show.
        return Decision(verdict, reason, self._beyond_modes if verdict == "undecided" else self.threshold, p)

    def _amount(self, value: float) -> str:
        return amount(self.metric, value)

    def _signed(self, value: float, beside: float) -> str:
        return signed(self.metric, value, beside)


def _farthest_first(values: Sequence[float]) -> list[float]:
    middle = statistics.median(values)
    return sorted(values, key=lambda value: -abs(value - middle))


def _modes(groups: Sequence[object]) -> str:
    return "one mode" if len(groups) == 1 else f"{len(groups)} modes"
