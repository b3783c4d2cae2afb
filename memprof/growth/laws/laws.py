"""Laws: memory as a function of dimensions such as batch, context or sessions, from a few measured points.

A law is a sum of terms with a coefficient each. `terms` has these, `fit` fits them to points, `model_selection` chooses among them, `arena` is what
may be known beside them, and `design` says which points to measure. No process, no file, no clock. Sizes are in bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ...base.thread_limits import load_scipy
from .arena import ArenaLaw
from .fit import Fit, FitProblem
from .model_selection import rounded_fits, simple_fits, simulated_fits, stepped_fits
from .terms import NOISE, SHAPE, Coordinates, SizePoint, Term, columns_of, distance, ranges_of

if TYPE_CHECKING:
    from .terms import Floats

# A law with a larger typical error at unseen points than this share is none. That of an arena may be off by the height of its steps.
_NO_LAW, _NO_LAW_OF_STEPS = 0.05, 0.25
_CONFIDENCE = 0.95
_AS_GOOD = 2.0  # of scores
# How high the steps of an arena are that is not simulated, as a share of what grows (a standard deviation): its regions double, so half of one may be
# idle at most, and a quarter is usual.
_STEPS = 0.25
FARTHEST = 1 << 40  # a dimension of which a law does not depend has no largest value
_EVERY, _FINE, _NEARBY = 512, 500, 8
_AT_ONCE = 64


class Coefficient(Struct, frozen=True):
    """A term's coefficient in bytes, and the interval in which it lies with 95%."""

    term: Term
    bytes: float
    low_bytes: float
    high_bytes: float


class Prediction(Struct, frozen=True):
    """The size to expect at a place, and the interval in which it lies with 95%. beyond: the dimensions whose measured range does not hold it."""

    at: Coordinates
    bytes: float
    low_bytes: float
    high_bytes: float
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True)
class Law:
    """A law. error: its typical error at points that it did not see, as a share of them; None where every point was needed to fit it.

    ranges: of the points, by dimension. fit: what predictions come from; the coefficients are those of the law without an arena. measured, noise:
    what it was fitted to. steps: how high an arena's steps are beside the law, as a share of what grows (a standard deviation); 0 for a law without.
    """

    coefficients: tuple[Coefficient, ...]
    error: float | None
    points: int
    ranges: Mapping[str, tuple[float, float]]
    fit: Fit = field(repr=False, compare=False)
    measured: tuple[SizePoint, ...] = field(repr=False, compare=False)
    noise: tuple[float, float] = field(repr=False, compare=False)
    steps: float = 0.0

    @property
    def simulated(self) -> bool:
        """Whether predictions are of an arena that is simulated."""
        return self.fit.arena is not None

    @property
    def planned(self) -> bool:
        """Whether that is one which does not double, as its planner fills it."""
        return self.fit.arena is not None and not self.fit.arena.doubles

    def predict(self, at: Coordinates) -> Prediction:
        """The size at a place, anywhere. Raises KeyError for a place without one of the dimensions."""
        (prediction,) = self.predict_all([at])
        return prediction

    def predict_all(self, places: Sequence[Coordinates]) -> list[Prediction]:
        """`predict` for several places.

        The interval is Student's, of the variance of the fit (see `Fit.at`), of a run's own noise, of shapes that no term has, which grows with the
        distance from all measured places, and of an arena's steps.
        """
        load_scipy()
        import numpy as np
        from scipy.special import stdtrit

        columns = columns_of(places, list(self.ranges))
        middle, variance = self.fit.at(columns, len(places))
        away = distance(places, [point.at for point in self.measured], self.ranges)
        own = np.hypot(self.noise[0], self.noise[1] * middle) * self.fit.scale
        shape = SHAPE + 2 * (self.error or 0.0)
        grown = middle - min(point.bytes for point in self.measured)
        variance = variance + own**2 + (shape * away * middle) ** 2 + (self.steps * np.maximum(grown, 0)) ** 2
        half = float(stdtrit(self.fit.freedom, 0.5 + _CONFIDENCE / 2)) * np.sqrt(variance)
        return [
            Prediction(place, float(size), float(max(size - wide, 0.0)), float(size + wide), self._beyond(place))
            for place, size, wide in zip(places, middle, half, strict=True)
        ]

    def _beyond(self, at: Coordinates) -> tuple[str, ...]:
        return tuple(name for name, (low, high) in self.ranges.items() if not low <= at[name] <= high)

    def depends_on(self, name: str) -> bool:
        """Whether one of its terms has the dimension."""
        return any(name in entry.term.names for entry in self.coefficients)

    def coefficient(self, words: str) -> Coefficient | None:
        """The coefficient of the term of those words, None if the law has none."""
        return next((coefficient for coefficient in self.coefficients if coefficient.term.words == words), None)


def law(
    points: Sequence[SizePoint], *, noise: tuple[float, float] = NOISE, arena: ArenaLaw | None = None, simple: bool = False
) -> Law | None:
    """The law of some points, None where no sum of these terms is one.

    noise: what two runs at the same place differ by, as bytes and as a share of the size; both are standard deviations. A point that died of
    want of memory bounds the law from below. arena: whose memory it is. simple: only a sum of powers and products is looked for.
    """
    if sum(not point.least for point in points) <= 1:
        return None
    problem = FitProblem(points, noise)
    doubles = arena is not None and arena.doubles
    fits = stepped_fits(problem, arena.terms) if arena is not None and doubles else simple_fits(problem)
    if not fits:
        return None
    misfit = problem.misfit(fits[0])
    simulated = simulated_fits(problem, arena)[:1] if arena is not None and arena.size is not None else []
    # What is simulated is a law among simple ones, and comes before those that any few points could be rounded to.
    follows = bool(simulated) and (doubles or misfit or simulated[0].score < fits[0].score)
    if misfit and not (follows or doubles or simple):
        fits = sorted([*fits, *rounded_fits(problem)], key=lambda fit: fit.score)
    best = simulated[0] if follows else fits[0]
    steps = _STEPS if doubles and misfit else 0.0
    error = _typical_error(best, problem.sizes[~problem.least])
    if error is not None and error > (_NO_LAW if follows or not steps else _NO_LAW_OF_STEPS):
        return None
    return Law(_coefficients(fits[0], steps), error, len(points), ranges_of(points), best, tuple(points), noise, 0.0 if follows else steps)


def single_step(law: Law, name: str) -> tuple[float, float] | None:
    """The neighbouring values of a dimension between which a single step explains the points as well as the law does: then they tell no slope. None
    where none does."""
    values = sorted({point.at[name] for point in law.measured if not point.least})
    for below, above in itertools.pairwise(values):
        stepped = [replace(point, at={**point.at, name: 1.0 if point.at[name] <= below else 2.0}) for point in law.measured]
        if simple_score(stepped, law.noise) <= law.fit.score + _AS_GOOD:
            return below, above
    return None


def simple_score(points: Sequence[SizePoint], noise: tuple[float, float]) -> float:
    """How well the best law of powers and products fits: less is better, and comparable for the same places and noise."""
    return min((fit.score for fit in simple_fits(FitProblem(points, noise))), default=math.inf)


def _coefficients(fit: Fit, steps: float) -> tuple[Coefficient, ...]:
    """The coefficients with their intervals. steps: how high an arena's steps are beside what grows, as a share: a slope is off by as much."""
    load_scipy()
    import numpy as np
    from scipy.special import stdtrit

    slopes = np.array([float(term.degree > 0) for term in fit.terms])
    variance = fit.scale**2 * np.diag(fit.covariance) + (steps * slopes * fit.bytes) ** 2
    half = float(stdtrit(fit.freedom, 0.5 + _CONFIDENCE / 2)) * np.sqrt(variance)
    ordered = sorted(zip(fit.terms, fit.bytes, half, strict=True), key=lambda row: (row[0].degree, row[0].powers, row[0].kind))
    return tuple(Coefficient(term, float(size), float(size - wide), float(size + wide)) for term, size, wide in ordered)


def _typical_error(fit: Fit, sizes: Floats) -> float | None:
    """The median of the errors at unseen points, as a share."""
    import numpy as np

    seen = np.isfinite(fit.errors)
    return float(np.median(np.abs(fit.errors[seen]) / sizes[seen])) if seen.any() else None


# -- the inverse


def largest(
    predict: Callable[[Sequence[Coordinates]], list[Prediction]],
    name: str,
    others: Coordinates,
    within_bytes: float,
    start: int,
    step: int = 1,
    known: Sequence[int] = (),
) -> tuple[int | None, int | None, int | None]:
    """The largest whole value of a dimension, of every `step`th, up to which every predicted size is within a limit, with the other dimensions fixed:
    as predicted, the most that is safe (the upper ends of the intervals fit too), and the most that is possible (their lower ends do). None where not
    even `start` fits; values end at 2^40, where the law does not depend on the dimension. known: values at
    which to look too.

    An interval is narrow at measured places, wide between them, and widest far beyond: its ends may cross the limit more than once, and the first
    time counts. Far beyond it may hold 0, and says no longer what is possible: that is None then, though a value fits as predicted.
    """
    values = _values(start, step, known)
    predictions: list[Prediction] = []
    for begin in range(0, len(values), _AT_ONCE):
        predictions += predict([{**others, name: value} for value in values[begin : begin + _AT_ONCE]])
        # A simulated arena takes milliseconds a place: what lies beyond is not asked for where it decides nothing.
        newest = predictions[begin:]
        if any(each.low_bytes > within_bytes for each in newest) or all(
            each.bytes > within_bytes and not each.low_bytes for each in newest
        ):
            break

    def most(end: str) -> int | None:
        too_large = next((place for place, prediction in enumerate(predictions) if getattr(prediction, end) > within_bytes), None)
        if too_large is None:
            return FARTHEST
        if not too_large:
            return None
        low, high = values[too_large - 1], values[too_large]
        while high - low > step:
            middle = low + (high - low) // step // 2 * step
            if middle == low:
                break
            (prediction,) = predict([{**others, name: middle}])
            low, high = (middle, high) if getattr(prediction, end) <= within_bytes else (low, middle)
        return low

    value, surely, possibly = most("bytes"), most("high_bytes"), most("low_bytes")
    return value, surely, None if possibly == FARTHEST and value != FARTHEST else possibly


def highest(
    predict: Callable[[Sequence[Coordinates]], list[Prediction]],
    name: str,
    others: Coordinates,
    start: int,
    end: int,
    step: int = 1,
    known: Sequence[int] = (),
) -> Prediction:
    """The prediction with the largest upper end among the values of a dimension at which `largest` looks, from `start` to `end`, and the end itself,
    with the other dimensions fixed: that of the largest such value. An arena whose regions double may need less at a larger value."""
    values = itertools.takewhile(lambda value: value < end, _values(start, step, known))
    predictions = predict([{**others, name: value} for value in (*values, end)])
    return max(reversed(predictions), key=lambda prediction: prediction.high_bytes)


def _values(start: int, step: int, known: Sequence[int]) -> list[int]:
    """Values at which to look whether they fit, of every `step`th: a five-hundredth apart up to several times the first, for an arena may need more
    in a narrow range; beyond, each at first and then 2% apart. known: others besides."""
    values = [start]
    while values[-1] < FARTHEST:
        value = values[-1]
        apart = value // _FINE if value <= _NEARBY * start else 1 if value - start < _EVERY * step else value // 50
        values.append(min(value + max(-(-apart // step), 1) * step, FARTHEST))
    return sorted({*values, *(value for value in known if start < value < FARTHEST)}) if known else values


# -- where there is no law


def bounds(points: Sequence[SizePoint], at: Coordinates) -> tuple[float | None, float | None]:
    """The least and the most that memory can be at a place if it grows with every dimension: None where no point bounds it."""
    below = [point.bytes for point in points if all(point.at[name] <= at[name] for name in at)]
    above = [point.bytes for point in points if not point.least and all(point.at[name] >= at[name] for name in at)]
    return max(below, default=None), min(above, default=None)
