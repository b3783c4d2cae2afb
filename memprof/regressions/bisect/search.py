"""The search for the version that changed a figure: both ends first, then the middle of what is left, as often as it takes.

A turn is a test of whether the version in the middle is like the good end or like the bad end: it goes towards the good end if chance cannot
explain how far the version is from the good end, and towards the bad end if chance cannot explain how far it is from the bad end. If neither
is so, or both ends seem far, it asks for more repeats. The levels of all tests together are `RISK`, however often each turn looks, so
that a search takes a wrong turn in at most that share of all searches (a union bound, so nothing is assumed of noise but that repeats of one
version can change places). The gate's verdict decides whether the ends differ at all.

A version whose level lies between both ends is far from the good end: of several steps the first that the threshold lets through is found.
Nothing here measures: `look` does, and a version may be measured in any way that gives figures. Where several machines measure, a turn has as many
versions, and each is compared with the ends as its own machine saw them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from ...campaign.progress import WORTH_A_FORECAST_NS, forecast
from ...records import summary
from ...records.summary import Key
from ...verdicts import sample_distance, verdicts
from ...verdicts.ranks import p_words
from ...verdicts.verdicts import Judged, Limits

RISK = 0.01
# Repeats of a version after each look; the ends have at least as many as the version beside them.
LOOKS = (6, 12, 24, 40)
ENDS = 12
# Ends that the gate takes for alike are measured again while chance explains their distance in less than this share of cases.
_LIKELY = 0.2
# Versions that are tried as an end: what keeps so many from being built keeps the others too.
MOST_ENDS = 4


class Unable(Struct, frozen=True):
    """Why a version cannot be built or run, or cannot be told from either end. number: the version's."""

    reason: str
    number: int = -1


# A version's number and a count of repeats -> that many more figures, or why there are none.
Look = Callable[[int, int], "tuple[float, ...] | Unable"]
# How many figures of each of some versions one machine must have -> all its figures of these, or which of them cannot be had.
RepeatCounts = Mapping[int, int]
Figures = Mapping[int, "tuple[float, ...]"]
Ask = Callable[[Sequence[RepeatCounts]], "list[Figures | Unable]"]


class FigureQuestion(Struct, frozen=True):
    """The figure to follow. bound_bytes: of peaks on this machine. limits: the smallest difference that counts."""

    key: Key
    phase: str
    metric: str
    bound_bytes: int
    limits: Limits = field(default_factory=Limits)


class VersionStep(Struct, frozen=True):
    """The step: it lies after `before` and at `at` at the latest. judged: both, by the gate. between: the versions between them, which are
    skipped, none if the very version is known."""

    before: int
    at: int
    judged: Judged
    between: tuple[int, ...] = ()


class Searched(Struct, frozen=True):
    """How a search ended. ends: both ends, by the gate. steps: the steps, one without --all, none if the ends do not differ.

    values: the figures of each version that was measured. skipped: why others were not.
    """

    ends: Judged
    steps: tuple[VersionStep, ...]
    values: dict[int, tuple[float, ...]]
    skipped: dict[int, str]


def search(
    count: int,
    look: Look,
    question: FigureQuestion,
    every: bool = False,
    say: Callable[[str], None] = lambda words: None,
    began_ns: int | None = None,
) -> Searched:
    """Search `count` versions, the first good and the last bad. every: find each step, and not only the first. began_ns: when the ends' first runs
    began, on time.monotonic_ns.

    An end that cannot be built or run gives its place to the next version inside. Raises Unanswered if there are not two ends, or chance cannot
    be told from a difference between them.
    """
    return search_at_once(count, _One(look).ask, 1, question, every, say, began_ns)


def search_at_once(
    count: int,
    ask: Ask,
    width: int,
    question: FigureQuestion,
    every: bool = False,
    say: Callable[[str], None] = lambda words: None,
    began_ns: int | None = None,
) -> Searched:
    """As `search`, with so many versions in a turn. ask: gets the needs of a whole turn; each answer is of one machine."""
    return _StepSearch(count, ask, width, question, say, began_ns).answer(every)


class Unanswered(Exception):
    """Why there is no answer, as a sentence."""


Side = Literal["good", "bad"]


class _One(Struct):
    """A machine that measures one version after another, and keeps what it has."""

    look: Look
    values: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def ask(self, wants: Sequence[RepeatCounts]) -> list[Figures | Unable]:
        """See Ask."""
        return [self._answer(wanted) for wanted in wants]

    def _answer(self, wanted: RepeatCounts) -> Figures | Unable:
        for number, repeats in wanted.items():
            missing = repeats - len(self.values.get(number, ()))
            if missing > 0:
                answer = self.look(number, missing)
                if isinstance(answer, Unable):
                    return replace(answer, number=number)
                self.values[number] = self.values.get(number, ()) + answer
        return {number: self.values[number] for number in wanted}


class _StepSearch:
    def __init__(
        self, count: int, ask: Ask, width: int, question: FigureQuestion, say: Callable[[str], None], began_ns: int | None
    ) -> None:
        self._ask_machines, self._width, self._question, self._say = ask, width, question, say
        self._count = count
        self._began_ns = began_ns if began_ns is not None else time.monotonic_ns()
        turns = math.ceil(math.log2(max(count - 1, 2)) / math.log2(width + 1))
        # Each look at a version of a turn makes two tests.
        self._level = RISK / (turns * width * len(LOOKS) * 2)
        self.values: dict[int, tuple[float, ...]] = {}  # of each version those of the machine that has most
        self.skipped: dict[int, str] = {}

    def answer(self, every: bool) -> Searched:
        first, last = self._both()
        whole = ends = self._ends(first, last)
        steps: list[VersionStep] = []
        self._announce(whole, first, last)
        while ends.verdict in ("regressed", "improved"):
            steps.append(self._between(first, last))
            first = steps[-1].at
            if not every or first == last:
                break
            ends = self._ends(first, last)
        return Searched(whole, tuple(steps), self.values, self.skipped)

    def _announce(self, ends: Judged, first: int, last: int) -> None:
        """Say that the ends differ, and how long the search may take: a turn at most as long as an end with its build, unless it is not certain."""
        if ends.verdict not in ("regressed", "improved"):
            return
        self._say(f"the ends differ: {ends.reason}")
        turns = math.ceil(math.log2(last - first) / math.log2(self._width + 1))
        left_ns = (time.monotonic_ns() - self._began_ns) // 2 * turns
        if left_ns >= WORTH_A_FORECAST_NS:
            self._say(forecast(turns, "turn", left_ns))

    def _both(self) -> tuple[int, int]:
        """The ends that can be measured."""
        while True:
            first = self._end(range(self._count), "good")
            last = self._end(range(self._count - 1, first, -1), "bad")
            (figures,) = self._ask([{first: ENDS, last: ENDS}])
            if not isinstance(figures, Unable):
                return first, last
            self.skipped[figures.number] = figures.reason

    def _end(self, places: range, word: str) -> int:
        for place in list(places)[:MOST_ENDS]:
            if place not in self.skipped:
                return place
        raise Unanswered(f"no version near the {word} end can be measured: {next(iter(self.skipped.values()), 'there is none left')}")

    def _ask(self, wants: Sequence[RepeatCounts]) -> list[Figures | Unable]:
        answers = self._ask_machines(wants)
        for figures in answers:
            for number, values in figures.items() if not isinstance(figures, Unable) else ():
                if len(values) > len(self.values.get(number, ())):
                    self.values[number] = values
        return answers

    def _pair(self, first: int, last: int, repeats: int) -> Figures:
        """Figures of two versions that were measured before. Raises Unanswered if that cannot be done any more."""
        (figures,) = self._ask([{first: repeats, last: repeats}])
        if isinstance(figures, Unable):
            raise Unanswered(f"an end cannot be measured any more, as it could before: {figures.reason}")
        return figures

    def _judged(self, before: tuple[float, ...], after: tuple[float, ...]) -> Judged:
        asked = self._question
        base, head = (summary.Row(asked.key, asked.phase, asked.metric, values, True) for values in (before, after))
        return verdicts.judge_row(base, head, asked.bound_bytes, asked.limits)

    def _ends(self, first: int, last: int) -> Judged:
        """The gate's verdict on both ends; where it sees no difference, by how alike they are as wholes. Raises Unanswered if neither can."""
        looks = (ENDS, *(look for look in LOOKS if look > ENDS))
        for repeats in looks:
            figures = self._pair(first, last, repeats)
            before, after = figures[first], figures[last]
            judged = self._judged(before, after)
            if judged.verdict in ("regressed", "improved"):
                return judged
            size = statistics.median(there - here for here in before for there in after)
            floor = self._least(before)
            p = sample_distance.chance(before, after, floor)
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

    def _between(self, first: int, last: int) -> VersionStep:
        low, high = first, last
        while places := self._inside(low, high):
            sides = self._sides(places, first, last)
            high = min((place for place in places if sides.get(place) == "bad"), default=high)
            low = max((place for place in places if sides.get(place) == "good" and place < high), default=low)
        # The gate judges both, and the version that was found last may have few repeats.
        figures = self._pair(low, high, ENDS)
        return VersionStep(low, high, self._judged(figures[low], figures[high]), tuple(range(low + 1, high)))

    def _inside(self, low: int, high: int) -> list[int]:
        """The versions of a turn: those that divide what is left into the most equal parts."""
        left = [place for place in range(low + 1, high) if place not in self.skipped]
        chosen: list[int] = []
        for part in range(1, min(self._width, len(left)) + 1):
            wanted = low + (high - low) * part / (min(self._width, len(left)) + 1)
            chosen.append(min((place for place in left if place not in chosen), key=lambda place: abs(place - wanted)))
        return sorted(chosen)

    def _sides(self, places: Sequence[int], first: int, last: int) -> dict[int, Side]:
        """Which end each of these versions is like. One that cannot be measured or told is skipped."""
        sides: dict[int, Side] = {}
        left = list(places)
        for repeats in LOOKS:
            ends = max(repeats, ENDS)
            answers = self._ask([{first: ends, last: ends, place: repeats} for place in left])
            for place, figures in zip(tuple(left), answers, strict=True):
                if isinstance(figures, Unable):
                    if figures.number in (first, last):
                        raise Unanswered(f"an end cannot be measured any more, as it could before: {figures.reason}")
                    self.skipped[place] = figures.reason
                    left.remove(place)
                elif (side := self._side(figures[place], figures[first], figures[last], repeats)) is not None:
                    sides[place] = side
                    left.remove(place)
                    self._say(f"number {place + 1} of {self._count} is like the {side} end")
            if not left:
                return sides
        for place in left:
            self.skipped[place] = f"cannot be told from either end in {LOOKS[-1]} repeats"
        return sides

    def _side(self, values: Sequence[float], good: Sequence[float], bad: Sequence[float], repeats: int) -> Side | None:
        # Between the ends a step counts if it is as large as one between the ends must be, or half of theirs if that is less.
        whole = abs(statistics.median(there - here for here in good for there in bad))
        floor = max(min(self._least(good), whole / 2), 1e-9)
        far = {"good": sample_distance.chance(good, values, floor), "bad": sample_distance.chance(bad, values, floor)}
        if far["good"] <= self._level:
            return "bad"
        if far["bad"] <= self._level:
            return "good"
        self._say(f"not certain after {repeats} repeats (p = {far['good']:.2g} of the good end, {far['bad']:.2g} of the bad)")
        return None
