"""The search for the version that changed a figure: both ends first, then the middle of what is left, as often as it takes.

A turn is a test of whether the version in the middle is like the good end or like the bad end: it goes towards the good end if chance cannot
explain how far the version is from the good end, and towards the bad end if chance cannot explain how far it is from the bad end. If neither
is so, or both ends seem far, it asks for more repeats. The levels of all tests together are `RISK`, however often each turn looks, so
that a search takes a wrong turn in at most that share of all searches (a union bound, so nothing is assumed of noise but that repeats of one
version can change places). The gate's verdict decides whether the ends differ at all.

A version whose level lies between both ends is far from the good end: of several steps the first that the threshold lets through is found.
Nothing here measures: `look` does, and a version may be measured in any way that gives figures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ..judge import likeness, verdicts
from ..judge.ranks import p_words
from ..judge.verdicts import Judged, Limits
from ..runs import summary
from ..runs.summary import Key, Row

RISK = 0.01
# Repeats of a version after each look; the ends have at least as many as the version beside them.
LOOKS = (6, 12, 24, 40)
_ENDS = 12
# Ends that the gate takes for alike are measured again while chance explains their distance in less than this share of cases.
_LIKELY = 0.2
# Versions that are tried as an end: what keeps so many from being built keeps the others too.
MOST_ENDS = 4


@dataclass(frozen=True)
class Unable:
    """Why a version cannot be built or run, or cannot be told from either end."""

    reason: str


# A version's number and a count of repeats -> that many more figures, or why there are none.
Look = Callable[[int, int], "tuple[float, ...] | Unable"]


@dataclass(frozen=True)
class Question:
    """The figure that is asked for. bound_bytes: of peaks on this machine. limits: the smallest difference that counts."""

    key: Key
    phase: str
    metric: str
    bound_bytes: int
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Step:
    """The step: it lies after `before` and at `at` at the latest. judged: both, by the gate. between: the versions between them, which are
    skipped, none if the very version is known."""

    before: int
    at: int
    judged: Judged
    between: tuple[int, ...] = ()


@dataclass(frozen=True)
class Searched:
    """How a search ended. ends: both ends, by the gate. steps: the steps, one without --all, none if the ends do not differ.

    values: the figures of each version that was measured. skipped: why others were not.
    """

    ends: Judged
    steps: tuple[Step, ...]
    values: dict[int, tuple[float, ...]]
    skipped: dict[int, str]


def search(count: int, look: Look, question: Question, every: bool = False, say: Callable[[str], None] = lambda words: None) -> Searched:
    """Search `count` versions, the first good and the last bad. every: find each step, and not only the first.

    An end that cannot be built or run gives its place to the next version inside. Raises Unanswered if there are not two ends, or chance cannot
    be told from a difference between them.
    """
    return _Search(count, look, question, say).answer(every)


class Unanswered(Exception):
    """Why there is no answer, as a sentence."""


Side = Literal["good", "bad"]


class _Search:
    def __init__(self, count: int, look: Look, question: Question, say: Callable[[str], None]) -> None:
        self._look, self._question, self._say = look, question, say
        self._count = count
        turns = math.ceil(math.log2(max(count - 1, 2)))
        # Each look at a turn makes two tests.
        self._level = RISK / (turns * len(LOOKS) * 2)
        self.values: dict[int, tuple[float, ...]] = {}
        self.skipped: dict[int, str] = {}

    def answer(self, every: bool) -> Searched:
        first = self._end(range(self._count), "good")
        last = self._end(range(self._count - 1, first, -1), "bad")
        whole = ends = self._ends(first, last)
        steps: list[Step] = []
        while ends.verdict in ("regressed", "improved"):
            steps.append(self._between(first, last))
            first = steps[-1].at
            if not every or first == last:
                break
            ends = self._ends(first, last)
        return Searched(whole, tuple(steps), self.values, self.skipped)

    def _end(self, places: range, word: str) -> int:
        for place in list(places)[:MOST_ENDS]:
            if self._have(place, _ENDS):
                return place
        raise Unanswered(f"no version near the {word} end can be measured: {next(iter(self.skipped.values()), 'there is none left')}")

    def _have(self, place: int, repeats: int) -> bool:
        """Measure a version until it has so many repeats; whether that can be done."""
        if place in self.skipped:
            return False
        missing = repeats - len(self.values.get(place, ()))
        if missing > 0:
            answer = self._look(place, missing)
            if isinstance(answer, Unable):
                if place not in self.values:
                    self.skipped[place] = answer.reason
                return False
            self.values[place] = self.values.get(place, ()) + answer
        return True

    def _row(self, place: int) -> Row:
        return summary.row(self._question.key, self._question.phase, self._question.metric, self.values[place], True)

    def _judged(self, first: int, last: int, limits: Limits | None = None) -> Judged:
        return verdicts.judge_row(self._row(first), self._row(last), self._question.bound_bytes, limits or self._question.limits)

    def _ends(self, first: int, last: int) -> Judged:
        """The gate's verdict on both ends; where it sees no difference, by how alike they are as wholes. Raises Unanswered if neither can."""
        looks = (_ENDS, *(look for look in LOOKS if look > _ENDS))
        for repeats in looks:
            for place in (first, last):
                if not self._have(place, repeats):
                    raise Unanswered("an end cannot be measured any more, as it could before")
            judged = self._judged(first, last)
            if judged.verdict in ("regressed", "improved"):
                return judged
            before, after = self.values[first], self.values[last]
            size = statistics.median(there - here for here in before for there in after)
            floor = self._least(before)
            p = likeness.chance(before, after, floor)
            if p <= RISK / len(looks) and abs(size) > floor:
                verdict: verdicts.Verdict = "regressed" if size > 0 else "improved"
                return replace(judged, verdict=verdict, reason=f"the values lie apart as wholes ({p_words(p)})", p=p, threshold=floor)
            # A step as large as two modes lie apart looks like a mode that came or went, which the gate lets pass.
            if judged.verdict == "ok" and (p > _LIKELY or repeats == looks[-1]):
                return judged
        raise Unanswered(f"the ends cannot be told apart from noise in {LOOKS[-1]} repeats each: {judged.reason}")

    def _least(self, base: Sequence[float]) -> float:
        """The smallest difference that counts beside these figures."""
        question = self._question
        return max(1.0, verdicts.floor(question.metric, statistics.median(base), question.bound_bytes, question.limits))

    def _between(self, first: int, last: int) -> Step:
        low, high = first, last
        while True:
            middle = (low + high) / 2
            inside = [place for place in range(low + 1, high) if place not in self.skipped]
            if not inside:
                break
            place = min(inside, key=lambda place: abs(place - middle))
            side = self._side(place, first, last)
            if side == "good":
                low = place
            elif side == "bad":
                high = place
        for place in (low, high):  # the gate judges both, and the version that was found last may have few repeats
            self._have(place, _ENDS)
        return Step(low, high, self._judged(low, high), tuple(range(low + 1, high)))

    def _side(self, place: int, first: int, last: int) -> Side | None:
        """Which end a version is like; None if it cannot be measured or told, and is skipped."""
        for repeats in LOOKS:
            ends = all(self._have(end, max(repeats, _ENDS)) for end in (first, last))
            if not ends or not self._have(place, repeats):
                return None
            values, good, bad = (self.values[number] for number in (place, first, last))
            # Between the ends a step counts if it is as large as one between the ends must be, or half of theirs if that is less.
            whole = abs(statistics.median(there - here for here in good for there in bad))
            floor = max(min(self._least(good), whole / 2), 1e-9)
            far = {"good": likeness.chance(good, values, floor), "bad": likeness.chance(bad, values, floor)}
            if far["good"] <= self._level:
                return "bad"
            if far["bad"] <= self._level:
                return "good"
            self._say(f"not certain after {repeats} repeats (p = {far['good']:.2g} of the good end, {far['bad']:.2g} of the bad)")
        self.skipped[place] = f"cannot be told from either end in {LOOKS[-1]} repeats"
        return None
