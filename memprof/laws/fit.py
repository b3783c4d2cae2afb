"""Terms fitted to points, and how well they fit.

Residuals are measured in units of the noise that is known beforehand. Terms are fitted by Huber's M-estimator (Huber 1964), and judged by their
residuals at points that they did not see (leave-one-out, from the hat matrix: Allen's PRESS, 1974). The score is minus twice the logarithm of a
marginal likelihood whose scale is known as well as `KNOWN` residuals would tell it, plus a penalty for each term.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .terms import At, Kind, Point, Term, columns_of, ranges_of

if TYPE_CHECKING:
    from .terms import Floats

# As many residuals as the noise that is given is worth, against those that are measured.
KNOWN = 3.0
# Residuals beyond so many times the noise count by their size and no longer by its square.
_HUBER = 3.0
_ROUNDS = 8
# The cost of a term beside ln(points), by what it is: a law of few simple terms is believed first.
COST = 5.0
_COSTS: Mapping[Kind, float] = {"": 0.0, "doubling": 2.0, "pages": 3.0, "beyond": 4.0}
_FALLING = 3.0
_FLOOR = 8.0
# Simple terms fit where residuals at unseen points are within so many times the noise, or within this share of the memory.
_FITS, _FITS_SHARE = 3.5, 0.003
_LEVERAGE = 0.97  # a point that a law needs so much is none that it can be judged by


@dataclass(frozen=True)
class Fit:
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


class Problem:
    """Points as numbers, with what every fit of them needs."""

    def __init__(self, points: Sequence[Point], noise: tuple[float, float], floor: int = 0) -> None:
        """floor: how many of the lowest points lie on a floor of the law."""
        import numpy as np

        self._points = points
        ranges = ranges_of(points)
        self.varying = [name for name, (low, high) in ranges.items() if low < high]
        self._at = columns_of([point.at for point in points], list(ranges))
        self.sizes = np.array([point.bytes for point in points], dtype=float)
        self.noise = np.maximum(np.hypot(noise[0], noise[1] * self.sizes), 1.0)
        self.least = np.array([point.least for point in points])
        self.resting = np.zeros(len(points), dtype=bool)
        self.floor = 0.0
        if floor:
            lowest = sorted((place for place in range(len(points)) if not points[place].least), key=lambda place: points[place].bytes)[
                :floor
            ]
            self.resting[lowest] = True
            self.floor = float(self.sizes[lowest].mean())
        self.exact = ~self.least & ~self.resting
        self.count = int(self.exact.sum())
        self._columns: dict[Term, Floats] = {}
        self._fits: dict[tuple[Term, ...], Fit | None] = {}

    @property
    def places(self) -> list[At]:
        """Where the points were measured."""
        return [point.at for point in self._points]

    def measured(self, least: int) -> Iterator[tuple[str, list[float]]]:
        """The dimensions of which at least so many values were measured, each with these values, ascending."""
        for name in self.varying:
            values = sorted({float(point.at[name]) for point in self._points if not point.least})
            if len(values) >= least:
                yield name, values

    @property
    def floor_penalty(self) -> float:
        """What a floor costs a score."""
        return _FLOOR if self.floor else 0.0

    def column(self, term: Term) -> Floats:
        """The term's value at each point."""
        if term not in self._columns:
            self._columns[term] = term.values(self._at, len(self._points))
        return self._columns[term]

    def misfit(self, fit: Fit) -> bool:
        """Whether unseen points lie farther from a law than noise explains."""
        import numpy as np

        seen = np.isfinite(fit.errors)
        sizes = self.sizes[~self.least]
        far = np.abs(fit.errors) > _FITS_SHARE * sizes
        return bool((np.abs(fit.strange) > _FITS)[seen & far].any())

    def fit(self, terms: tuple[Term, ...]) -> Fit | None:
        """The terms fitted, None if the points do not tell them apart or a coefficient has a sign that memory cannot have."""
        terms = tuple(sorted(terms, key=lambda term: (term.degree, term.powers, term.kind, term.size, term.each)))
        if terms not in self._fits:
            self._fits[terms] = self._fitted(terms)
        return self._fits[terms]

    def _fitted(self, terms: tuple[Term, ...]) -> Fit | None:
        import numpy as np

        # A place where the law changes is a figure too.
        figures = len(terms) + sum(term.kind == "beyond" for term in terms)
        if figures > max(self.count - 2, min(self.count, 2)):
            return None
        matrix = np.column_stack([self.column(term) for term in terms]) / self.noise[:, None]
        target = np.where(self.resting, self.floor, self.sizes) / self.noise
        norms = np.linalg.norm(matrix, axis=0)
        if not norms.all():
            return None
        matrix = matrix / norms
        use = self.exact
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
            now = self.exact | (self.least & (residuals > 0)) | (self.resting & (residuals < 0))
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
        on = self.resting & ~use
        on_floor = (self.sizes - self.floor) / self.noise
        strange = np.where(on, on_floor, strange)
        unseen = np.where(on, on_floor, unseen)
        loss = float(np.sum(huber(strange)))
        coefficients = solution / norms
        penalty = sum(COST + _COSTS[term.kind] + 0.25 * max(term.degree - 1, 0) + math.log(max(self.count, 2)) for term in terms)
        for term, coefficient in zip(terms, coefficients, strict=True):
            if coefficient < 0 and term.powers:
                if term.degree > 1 or term.kind in ("doubling", "pages"):
                    return None
                penalty += _FALLING if term.kind != "beyond" else 0.0
        penalty += self.floor_penalty
        freedom += int(self.resting.sum()) - bool(self.floor)
        score = (freedom + KNOWN) * math.log1p(loss / KNOWN) + penalty
        scale = max(math.sqrt((loss + KNOWN) / (int((~self.least).sum()) + KNOWN)), 0.7)
        errors = (unseen * self.noise)[~self.least]
        return Fit(
            terms,
            coefficients,
            inverse / np.outer(norms, norms),
            scale,
            freedom + KNOWN,
            score,
            errors,
            strange[~self.least],
            self.floor,
        )

    def _robust(self, residuals: Floats, freedom: int) -> Floats:
        """Huber's weights; all the same where there is nothing to tell an outlier by."""
        import numpy as np

        if freedom < 2:
            return np.ones(len(residuals))
        scale = max(1.0, 1.4826 * float(np.median(np.abs(residuals))))
        return np.minimum(1.0, _HUBER * scale / np.maximum(np.abs(residuals), 1e-12))


def huber(residuals: Floats) -> Floats:
    """What each residual, in units of its noise, adds to a loss: its square, and beyond some units its size."""
    import numpy as np

    size = np.abs(residuals)
    return np.where(size <= _HUBER, size**2, 2 * _HUBER * size - _HUBER**2)
