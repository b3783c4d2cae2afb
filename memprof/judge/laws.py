"""Laws: memory as a function of dimensions such as batch, context or sessions, from a few measured points, and the next point to measure.

A law is a sum of terms with a coefficient each: a constant, powers and products of dimensions, dimensions rounded up (to a power of two, as an
arena that doubles; to pages of N), and a dimension beyond a place where the law changes. Simple terms come first: the others are tried only
where the simple ones do not fit. No process, no file, no clock. Sizes are in bytes.

How a law is chosen. Residuals are measured in units of the noise that is known beforehand. A law is fitted by Huber's M-estimator (Huber 1964),
and judged by its residuals at points that it did not see (leave-one-out, from the hat matrix: Allen's PRESS, 1974). The score is minus twice the
logarithm of a marginal likelihood whose scale is known as well as `_KNOWN` residuals would tell it, plus a penalty for each term. Laws with
nearly the best score stay as rivals: a prediction's interval holds their disagreement, and so widens where no point is near.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

At = Mapping[str, float]
Kind = Literal["", "doubling", "pages", "beyond"]

# As many residuals as the noise that is given is worth, against those that are measured.
_KNOWN = 3.0
# Residuals beyond so many times the noise count by their size and no longer by its square.
_HUBER = 3.0
_ROUNDS = 8
# A rival is a law whose score is worse by less than this; its weight is exp(-difference / 2).
_RIVAL = 9.0
_MOST_RIVALS = 24
_BEAM, _NARROW = 8, 3  # how many laws of each size are grown side by side; with a floor
_MOST_TERMS = 7
# The cost of a term beside ln(points), by what it is: a law of few simple terms is believed first.
_COST = 5.0
_COSTS: Mapping[Kind, float] = {"": 0.0, "doubling": 2.0, "pages": 3.0, "beyond": 4.0}
_FALLING = 3.0
_FLOOR = 8.0
_FLOOR_SHARE = 0.06  # points on a floor differ by no more than this
# Simple terms fit where residuals at unseen points are within so many times the noise, or within this share of the memory.
_FITS, _FITS_SHARE = 3.5, 0.003
# A law with a larger typical error at unseen points than this share is none.
_NO_LAW = 0.05
_LEVERAGE = 0.97  # a point that a law needs so much is none that it can be judged by
# The error of a law a full range away from all measured points, as a share of the memory, for shapes that no term has.
_SHAPE = 0.01
_CONFIDENCE = 0.95
_FARTHEST = 1 << 40


@dataclass(frozen=True)
class Point:
    """A measured size at a place. least: the run died of want of memory, so that it needs at least so much."""

    at: At
    bytes: float
    least: bool = False


@dataclass(frozen=True)
class Term:
    """A product of powers of dimensions; without any, the constant. `dimension` is then taken as `kind` says: rounded up to a power of two, to a
    multiple of `size`, or as far as it goes beyond `size`."""

    powers: tuple[tuple[str, int], ...] = ()
    kind: Kind = ""
    dimension: str = ""
    size: float = 0.0

    @property
    def degree(self) -> int:
        """The sum of the powers."""
        return sum(power for _, power in self.powers)

    @property
    def words(self) -> str:
        """The term as people read it: `batch x sequence²`. Empty for the constant."""
        return " x ".join(_factor(name, power, self) for name, power in self.powers)

    def values(self, at: Mapping[str, Floats], count: int) -> Floats:
        """The term's value at places that are given as columns."""
        import numpy as np

        product = np.ones(count)
        for name, power in self.powers:
            column = at[name]
            if name == self.dimension:
                column = _taken(column, self.kind, self.size)
            product = product * column**power
        return product


def _factor(name: str, power: int, term: Term) -> str:
    if name == term.dimension:
        if term.kind == "doubling":
            return f"({name} rounded up to a power of two)"
        if term.kind == "pages":
            return f"({name} rounded up to a multiple of {term.size:g})"
        return f"({name} beyond {term.size:g})"
    return name + ("²" if power == 2 else f"^{power}" if power > 2 else "")


def _taken(column: Floats, kind: Kind, size: float) -> Floats:
    import numpy as np

    if kind == "doubling":
        return np.asarray(np.exp2(np.ceil(np.log2(np.maximum(column, 1e-9)) - 1e-9)))
    if kind == "pages":
        return np.asarray(size * np.ceil(column / size - 1e-9))
    if kind == "beyond":
        return np.asarray(np.maximum(column - size, 0.0))
    return column


CONSTANT = Term()


@dataclass(frozen=True)
class Coefficient:
    """A term's coefficient in bytes, and the interval in which it lies with 95%."""

    term: Term
    bytes: float
    low_bytes: float
    high_bytes: float


@dataclass(frozen=True)
class Prediction:
    """The size to expect at a place, and the interval in which it lies with 95%. beyond: the dimensions whose measured range does not hold it."""

    at: At
    bytes: float
    low_bytes: float
    high_bytes: float
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Fit:
    """Terms fitted to points: coefficients, their covariance in units of the noise, the scale of residuals, and the score (less is better).

    errors: at each measured point for a law that did not see it, in bytes, NaN where it could not do without it. strange: the same in units of the
    noise to expect of it. floor: it is never below this.
    """

    terms: tuple[Term, ...]
    bytes: Floats
    covariance: Floats
    scale: float
    freedom: float
    score: float
    errors: Floats
    strange: Floats
    floor: float = 0.0

    def at(self, places: Mapping[str, Floats], count: int) -> tuple[Floats, Floats]:
        """What it says at places, and the variance of that."""
        import numpy as np

        columns = np.column_stack([term.values(places, count) for term in self.terms])
        variance = np.einsum("ij,jk,ik->i", columns, self.covariance, columns) * self.scale**2
        sizes = columns @ self.bytes
        return np.maximum(sizes, self.floor), np.where(sizes < self.floor, 0.0, np.maximum(variance, 0.0))


@dataclass(frozen=True)
class Law:
    """A law. error: its typical error at points that it did not see, as a share of them; None where every point was needed to fit it.

    floor_bytes: memory is never below this, however small the sum is (memory that was freed earlier is used again); 0 for no such floor.
    ranges: of the points, by dimension. changes: where it changes inside its range, as (dimension, place).
    """

    coefficients: tuple[Coefficient, ...]
    error: float | None
    points: int
    ranges: Mapping[str, tuple[float, float]]
    changes: tuple[tuple[str, float], ...] = ()
    floor_bytes: float = 0.0
    rivals: tuple[tuple[float, _Fit], ...] = field(default=(), repr=False, compare=False)
    places: tuple[At, ...] = field(default=(), repr=False, compare=False)
    noise: tuple[float, float] = field(default=(0.0, 0.0), repr=False, compare=False)

    def predict(self, at: At) -> Prediction:
        """The size at a place, anywhere. Raises KeyError for a place without one of the dimensions."""
        (prediction,) = self.predict_all([at])
        return prediction

    def predict_all(self, places: Sequence[At]) -> list[Prediction]:
        """`predict` for several places."""
        import numpy as np
        from scipy.special import stdtrit

        columns = _columns(places, list(self.ranges))
        best = self.rivals[0][1]
        middle, variance = best.at(columns, len(places))
        variance = variance + _between(self.rivals, columns, len(places), middle)
        away = _distance(places, self.places, self.ranges)
        own = np.hypot(self.noise[0], self.noise[1] * middle) * best.scale
        variance = variance + own**2 + (_SHAPE * away * middle) ** 2
        half = float(stdtrit(best.freedom, 0.5 + _CONFIDENCE / 2)) * np.sqrt(variance)
        return [
            Prediction(place, float(size), float(max(size - wide, 0.0)), float(size + wide), self._beyond(place))
            for place, size, wide in zip(places, middle, half, strict=True)
        ]

    def _beyond(self, at: At) -> tuple[str, ...]:
        return tuple(name for name, (low, high) in self.ranges.items() if not low <= at[name] <= high)

    def coefficient(self, words: str) -> Coefficient | None:
        """The coefficient of the term of those words, None if the law has none."""
        return next((coefficient for coefficient in self.coefficients if coefficient.term.words == words), None)


def law(points: Sequence[Point], *, noise: tuple[float, float] = (262144.0, 0.001)) -> Law | None:
    """The law of some points, None where no sum of these terms is one.

    noise: what two runs at the same place differ by, as bytes and as a share of the size; both are standard deviations. A point that died of
    want of memory bounds the law from below.
    """
    rivals = _rivals(points, noise)
    whole = [point for point in points if not point.least]
    if not rivals or len(whole) <= 1:
        return None
    best = rivals[0][1]
    sizes = _sizes(whole)
    error = _typical_error(best, sizes)
    if error is not None and error > _NO_LAW:
        return None
    ranges = _ranges(points)
    return Law(
        coefficients=_coefficients(best),
        error=error,
        points=len(points),
        ranges=ranges,
        changes=tuple((term.dimension, term.size) for term in best.terms if term.kind == "beyond"),
        floor_bytes=best.floor,
        rivals=tuple(rivals),
        places=tuple(point.at for point in points),
        noise=noise,
    )


def _coefficients(fit: _Fit) -> tuple[Coefficient, ...]:
    import numpy as np
    from scipy.special import stdtrit

    half = float(stdtrit(fit.freedom, 0.5 + _CONFIDENCE / 2)) * fit.scale * np.sqrt(np.maximum(np.diag(fit.covariance), 0.0))
    ordered = sorted(zip(fit.terms, fit.bytes, half, strict=True), key=lambda row: (row[0].degree, row[0].powers, row[0].kind))
    return tuple(Coefficient(term, float(size), float(size - wide), float(size + wide)) for term, size, wide in ordered)


def _typical_error(fit: _Fit, sizes: Floats) -> float | None:
    """The median of the errors at unseen points, as a share."""
    import numpy as np

    seen = np.isfinite(fit.errors)
    return float(np.median(np.abs(fit.errors[seen]) / sizes[seen])) if seen.any() else None


# -- choosing the terms


def _rivals(points: Sequence[Point], noise: tuple[float, float], quick: bool = False) -> list[tuple[float, _Fit]]:
    """The best law and those nearly as good, with their weights; none for no points. quick: without laws that change or have a
    floor, which are many."""
    whole = [point for point in points if not point.least]
    if not whole:
        return []
    problem = _Problem(points, noise)
    names = problem.varying
    fits = _beam(problem, _simple(names), _BEAM)
    if not fits:
        return []
    if problem.misfit(fits[0]):
        fits = _merged(fits, _rounded(problem, fits))
    if quick:
        return _weighted(fits)
    if problem.misfit(fits[0]) and len(whole) >= 5:
        fits = _merged(fits, _changing(problem, fits))
    if problem.misfit(fits[0]) and len(whole) >= 5:
        fits = _merged(fits, *(_beam(_Problem(points, noise, floor), _simple(names), _NARROW) for floor in _floors(whole, noise)))
    return _weighted(fits)


def _weighted(fits: Sequence[_Fit]) -> list[tuple[float, _Fit]]:
    """The best fit and those nearly as good, each with its weight."""
    best = fits[0].score
    kept = [fit for fit in fits if fit.score - best < _RIVAL][:_MOST_RIVALS]
    weights = [math.exp((best - fit.score) / 2) for fit in kept]
    return [(weight / sum(weights), fit) for weight, fit in zip(weights, kept, strict=True)]


def _simple(names: Sequence[str]) -> list[Term]:
    """Powers and products of up to the third degree, no dimension above its square."""
    every = itertools.product(range(3), repeat=len(names))
    return [
        Term(tuple((name, power) for name, power in zip(names, powers, strict=True) if power)) for powers in every if 0 < sum(powers) <= 3
    ]


class _Problem:
    """Points as numbers, with what every fit of them needs."""

    def __init__(self, points: Sequence[Point], noise: tuple[float, float], floor: int = 0) -> None:
        """floor: how many of the lowest points lie on a floor of the law."""
        import numpy as np

        self._points = points
        ranges = _ranges(points)
        self.varying = [name for name, (low, high) in ranges.items() if low < high]
        self._at = _columns([point.at for point in points], list(ranges))
        self.sizes = np.array([point.bytes for point in points], dtype=float)
        self._noise = np.maximum(np.hypot(noise[0], noise[1] * self.sizes), 1.0)
        self._least = np.array([point.least for point in points])
        self._most = np.zeros(len(points), dtype=bool)
        self._floor = 0.0
        if floor:
            lowest = sorted((place for place in range(len(points)) if not points[place].least), key=lambda place: points[place].bytes)[
                :floor
            ]
            self._most[lowest] = True
            self._floor = float(self.sizes[lowest].mean())
        self._exact = ~self._least & ~self._most
        self.count = int(self._exact.sum())
        self._columns: dict[Term, Floats] = {}
        self._fits: dict[tuple[Term, ...], _Fit | None] = {}

    def distinct(self, name: str) -> list[float]:
        """The values of a dimension at points that were measured, ascending."""
        return sorted({float(point.at[name]) for point in self._points if not point.least})

    def column(self, term: Term) -> Floats:
        if term not in self._columns:
            self._columns[term] = term.values(self._at, len(self._points))
        return self._columns[term]

    def misfit(self, fit: _Fit) -> bool:
        """Whether unseen points lie farther from a law than noise explains."""
        import numpy as np

        seen = np.isfinite(fit.errors)
        sizes = self.sizes[~self._least]
        far = np.abs(fit.errors) > _FITS_SHARE * sizes
        return bool((np.abs(fit.strange) > _FITS)[seen & far].any())

    def fit(self, terms: tuple[Term, ...]) -> _Fit | None:
        """The terms fitted, None if the points do not tell them apart or a coefficient has a sign that memory cannot have."""
        terms = tuple(sorted(terms, key=lambda term: (term.degree, term.powers, term.kind, term.size)))
        if terms not in self._fits:
            self._fits[terms] = self._fitted(terms)
        return self._fits[terms]

    def _fitted(self, terms: tuple[Term, ...]) -> _Fit | None:
        import numpy as np

        if len(terms) > max(self.count - 2, min(self.count, 2)):
            return None
        matrix = np.column_stack([self.column(term) for term in terms]) / self._noise[:, None]
        target = np.where(self._most, self._floor, self.sizes) / self._noise
        norms = np.linalg.norm(matrix, axis=0)
        if not norms.all():
            return None
        matrix = matrix / norms
        use = self._exact
        weights = np.ones(len(target))
        freedom = self.count - len(terms)
        for _ in range(_ROUNDS):
            used = matrix[use] * np.sqrt(weights[use])[:, None]
            gram = used.T @ used
            if np.linalg.cond(gram) > 1e10:
                return None
            inverse = np.linalg.inv(gram)
            solution = inverse @ (used.T @ (target[use] * np.sqrt(weights[use])))
            residuals = target - matrix @ solution
            # A point that needs at least so much says something only where the law is below it.
            now = self._exact | (self._least & (residuals > 0)) | (self._most & (residuals < 0))
            robust = self._robust(residuals, freedom)
            if (now == use).all() and np.abs(robust - weights).max() < 1e-3:
                break
            use, weights = now, robust
        else:
            now = use
        used = matrix[use] * np.sqrt(weights[use])[:, None]
        leverage = np.zeros(len(target))
        leverage[use] = np.einsum("ij,jk,ik->i", used, inverse, used)
        judged = leverage < _LEVERAGE
        room = np.where(judged, 1 - leverage, 1.0)
        unseen = np.where(judged, residuals / room, np.nan)
        # The residual at an unseen point has the noise of the point and of the law: 1 / (1 - leverage) times the variance of noise alone.
        strange = np.where(judged & use, residuals / np.sqrt(room), 0.0)
        resting = self._most & ~use
        on_floor = (self.sizes - self._floor) / self._noise
        strange = np.where(resting, on_floor, strange)
        unseen = np.where(resting, on_floor, unseen)
        loss = float(np.sum(_loss(strange)))
        coefficients = solution / norms
        penalty = sum(_COST + _COSTS[term.kind] + 0.25 * max(term.degree - 1, 0) + math.log(max(self.count, 2)) for term in terms)
        for term, coefficient in zip(terms, coefficients, strict=True):
            if coefficient < 0 and term.powers:
                if term.degree > 1 or term.kind in ("doubling", "pages"):
                    return None
                penalty += _FALLING if term.kind != "beyond" else 0.0
        penalty += _FLOOR if self._floor else 0.0
        freedom += int(self._most.sum()) - bool(self._floor)
        score = (freedom + _KNOWN) * math.log1p(loss / _KNOWN) + penalty
        scale = max(math.sqrt((loss + _KNOWN) / (int((~self._least).sum()) + _KNOWN)), 0.7)
        errors = (unseen * self._noise)[~self._least]
        return _Fit(
            terms,
            coefficients,
            inverse / np.outer(norms, norms),
            scale,
            freedom + _KNOWN,
            score,
            errors,
            strange[~self._least],
            self._floor,
        )

    def _robust(self, residuals: Floats, freedom: int) -> Floats:
        """Huber's weights; all the same where there is nothing to tell an outlier by."""
        import numpy as np

        if freedom < 2:
            return np.ones(len(residuals))
        scale = max(1.0, 1.4826 * float(np.median(np.abs(residuals))))
        return np.minimum(1.0, _HUBER * scale / np.maximum(np.abs(residuals), 1e-12))


def _loss(residuals: Floats) -> Floats:
    import numpy as np

    size = np.abs(residuals)
    return np.where(size <= _HUBER, size**2, 2 * _HUBER * size - _HUBER**2)


def _beam(problem: _Problem, library: Sequence[Term], beam: int) -> list[_Fit]:
    """Fits grown term by term from the constant, the best first. beam: how many of each size are grown on."""
    constant = problem.fit((CONSTANT,))
    frontier = [constant] if constant is not None else []
    every = {fit.terms: fit for fit in frontier}
    for _ in range(_MOST_TERMS - 1):
        grown: dict[tuple[Term, ...], _Fit] = {}
        for fit in frontier:
            for term in library:
                if term not in fit.terms:
                    larger = problem.fit((*fit.terms, term))
                    if larger is not None and larger.terms not in every:
                        grown[larger.terms] = larger
        if not grown:
            break
        every.update(grown)
        frontier = sorted(grown.values(), key=lambda fit: fit.score)[:beam]
    return sorted(every.values(), key=lambda fit: fit.score)


def _merged(*several: Iterable[_Fit]) -> list[_Fit]:
    every = {(fit.terms, fit.floor): fit for fits in several for fit in fits}
    return sorted(every.values(), key=lambda fit: fit.score)


def _floors(points: Sequence[Point], noise: tuple[float, float]) -> list[int]:
    """How many of the lowest points may lie on a floor: those that differ by little, and leave enough to fit a law to; the most of them."""
    sizes = sorted(point.bytes for point in points)
    near = sizes[0] + max(_FLOOR_SHARE * sizes[0], 4 * noise[0])
    counts = [count for count in range(2, len(sizes) - 1) if sizes[count - 1] <= near]
    return counts[-3:]


def _rounded(problem: _Problem, fits: Sequence[_Fit]) -> list[_Fit]:
    """The best fits with a dimension rounded up, in one of their terms or in all."""
    better = []
    for name in problem.varying:
        values = problem.distinct(name)
        if len(values) < 3:
            continue
        for kind, size in _roundings(values):
            for fit in fits[:_BEAM]:
                places = [place for place, term in enumerate(fit.terms) if (name, 1) in term.powers and not term.kind]
                for chosen in {(place,) for place in places} | ({tuple(places)} if places else set()):
                    terms = tuple(Term(term.powers, kind, name, size) if place in chosen else term for place, term in enumerate(fit.terms))
                    rounded = problem.fit(terms)
                    if rounded is not None:
                        better.append(rounded)
    return better


def _roundings(values: Sequence[float]) -> list[tuple[Kind, float]]:
    """Ways to round a dimension up that these values can tell apart. Finer pages than a 64th of the range do not show."""
    ways: list[tuple[Kind, float]] = [("doubling", 0.0)]
    span = values[-1] - values[0]
    size = 2
    while size <= span:
        if size * 64 >= span:
            ways.append(("pages", float(size)))
        size *= 2
    return ways


def _changing(problem: _Problem, fits: Sequence[_Fit]) -> list[_Fit]:
    """The best fits with another slope from some place of a dimension on."""
    changed = []
    for name in problem.varying:
        values = problem.distinct(name)
        if len(values) < 4:
            continue
        for fit in fits[:_BEAM]:
            linear = [term for term in fit.terms if (name, 1) in term.powers and not term.kind] or [Term(((name, 1),))]
            for before, after in itertools.pairwise(values[:-1]):
                for step in range(1, 9):
                    place = before + (after - before) * step / 8
                    for term in linear:
                        new = problem.fit((*fit.terms, Term(term.powers, "beyond", name, _short(place))))
                        if new is not None:
                            changed.append(new)
    return changed


def _short(value: float) -> float:
    """A place in three digits, which is more than the points tell."""
    return float(f"{value:.3g}")


# -- places


def _columns(places: Sequence[At], names: Sequence[str]) -> dict[str, Any]:
    import numpy as np

    return {name: np.array([float(place[name]) for place in places]) for name in names}


def _sizes(points: Sequence[Point]) -> Floats:
    import numpy as np

    return np.array([point.bytes for point in points], dtype=float)


def _ranges(points: Sequence[Point]) -> dict[str, tuple[float, float]]:
    return {name: (min(values), max(values)) for name in points[0].at if (values := [float(point.at[name]) for point in points])}


def _between(rivals: Sequence[tuple[float, _Fit]], columns: Mapping[str, Floats], count: int, middle: Floats) -> Floats:
    """The variance between rivals, around the best law."""
    import numpy as np

    total = np.zeros(count)
    for weight, fit in rivals[1:]:
        sizes, _ = fit.at(columns, count)
        total += weight * (sizes - middle) ** 2
    return total


def _scaled(value: float, low: float, high: float) -> float:
    """A dimension's value where its range goes from 0 to 1: half by its size and half by its logarithm, for memory follows either."""
    if high <= low:
        return 0.0 if value == low else (value - low) / max(abs(low), 1.0)
    linear = (value - low) / (high - low)
    if low <= 0 or value <= 0:
        return linear
    return (linear + math.log(value / low) / math.log(high / low)) / 2


def _distance(places: Sequence[At], measured: Sequence[At], ranges: Mapping[str, tuple[float, float]]) -> Floats:
    """How far each place is from the nearest measured one, in ranges."""
    import numpy as np

    def scaled(all_places: Sequence[At]) -> Floats:
        return np.array([[_scaled(float(place[name]), low, high) for name, (low, high) in ranges.items()] for place in all_places])

    there, here = scaled(measured), scaled(places)
    return np.asarray(np.abs(here[:, None, :] - there[None, :, :]).max(axis=2).min(axis=1))


# -- which point next


def values_of(low: int, high: int, step: int = 1, most: int = 24) -> list[int]:
    """Values of a dimension worth measuring: its ends, and between them about as many near one another as far apart."""
    count = (high - low) // step + 1
    if count <= most:
        return [low + step * place for place in range(count)]
    shares = {place / (most - 1) for place in range(most)}
    chosen = {low, low + step * (count - 1)}
    for share in shares:
        linear = low + share * (high - low)
        by_logarithm = max(low, 1) * (high / max(low, 1)) ** share
        chosen.add(low + step * round(((linear + by_logarithm) / 2 - low) / step))
    return sorted(chosen)


def first_places(ranges: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Where to measure first: all dimensions low, then each high alone."""
    lowest = {name: low for name, (low, _) in ranges.items()}
    return [lowest, *({**lowest, name: high} for name, (low, high) in ranges.items() if high > low)]


def next_place(
    series: Sequence[Sequence[Point]], candidates: Sequence[Mapping[str, int]], *, noise: tuple[float, float] = (262144.0, 0.001)
) -> Mapping[str, int] | None:
    """The candidate that tells most about the laws of several series of points: where rival laws disagree most, and known laws know least.

    A candidate that was measured, or that is not below a point that died of want of memory, tells nothing. None if no candidate is left.
    """
    import numpy as np

    points = series[0]
    dead = [point.at for point in points if point.least]
    left = [
        place
        for place in candidates
        if all(dict(place) != dict(point.at) for point in points) and not any(all(place[name] >= at[name] for name in place) for at in dead)
    ]
    if not left:
        return None
    ranges = {name: (min(place[name] for place in candidates), max(place[name] for place in candidates)) for name in left[0]}
    columns = _columns(left, list(ranges))
    away = _distance(left, [point.at for point in points], ranges)
    utility = np.zeros(len(left))
    height = max(max((point.bytes for point in one), default=0.0) for one in series)
    for one in series:
        rivals = _rivals(one, noise, quick=True)
        if not rivals:
            continue
        middle, variance = rivals[0][1].at(columns, len(left))
        variance = variance + _between(rivals, columns, len(left), middle)
        size = np.maximum(middle, height * 0.05)
        utility += variance / size**2
    utility += (_SHAPE * away) ** 2 * len(series)
    return left[int(np.argmax(utility))]


# -- the inverse


class Predicts(Protocol):
    """A law, or several of which the largest counts."""

    def predict(self, at: At) -> Prediction:
        """The size to expect at a place."""


def largest(law: Predicts, name: str, others: At, within_bytes: float, start: int) -> tuple[int | None, int | None, int | None]:
    """The largest whole value of a dimension whose predicted size is within a limit, with the other dimensions fixed: as predicted, the most that
    is safe (the upper end of the interval fits too), and the most that is possible (its lower end does). None where not even `start` fits; values
    end at 2^40, where the law does not depend on the dimension."""

    def most(end: str) -> int | None:
        def fits(value: int) -> bool:
            return bool(getattr(law.predict({**others, name: value}), end) <= within_bytes)

        if not fits(start):
            return None
        low, high = start, max(2 * start, 2)
        while fits(high):
            low, high = high, high * 2
            if high > _FARTHEST:
                return _FARTHEST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    return most("bytes"), most("high_bytes"), most("low_bytes")


# -- where there is no law


def bounds(points: Sequence[Point], at: At) -> tuple[float | None, float | None]:
    """The least and the most that memory can be at a place if it grows with every dimension: None where no point bounds it."""
    below = [point.bytes for point in points if all(point.at[name] <= at[name] for name in at)]
    above = [point.bytes for point in points if not point.least and all(point.at[name] >= at[name] for name in at)]
    return max(below, default=None), min(above, default=None)
