"""A sum of terms fitted to points by non-negative least squares, and how well it fits.

Memory that a term needs is never below zero, so no coefficient is. Non-negative least squares are least squares over the terms whose coefficients are
above zero (Lawson and Hanson 1974): a sum with another coefficient is no fit, for the sum without that term is the one.

Residuals are measured in units of the noise that is known beforehand; large ones count by their size and not by their square (Huber 1964). A sum is
judged by its residuals at points that it did not see, from the hat matrix (leave-one-out: Allen's PRESS, 1974). The score is minus twice the
logarithm of a marginal likelihood whose scale is known as well as `_KNOWN` residuals would tell it, plus a penalty for each term.

Where an arena is simulated, what it needs is part of the sum, with the factor 1, and terms are fitted to the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .arena import ArenaLaw
from .terms import Kind, SizePoint, Term, columns_of, ranges_of

if TYPE_CHECKING:
    from .terms import Floats

# As many residuals as the noise that is given is worth, against those that are measured.
_KNOWN = 3.0
# Residuals beyond so many times the noise count by their size and no longer by its square.
_HUBER = 3.0
_ROUNDS = 20
# The cost of a term beside ln(points): a law of few simple terms is believed first.
_COST = 5.0
_COSTS: Mapping[Kind, float] = {"": 0.0, "doubling": 2.0, "pages": 3.0}
_COST_OF_A_DEGREE = 0.25
# A law fits where residuals at unseen points are within so many times the noise, or within this share of the memory.
_FITS, _FITS_SHARE = 3.5, 0.003
_LEVERAGE = 0.97  # a point that a law needs so much is none that it can be judged by
_LEAST_SCALE = 0.7  # residuals of a few points may be small by chance
_ALIKE = 1e-5  # of a term of length 1: with less of it beside all others, the points do not tell it from them
_SETTLED = 1e-3  # weights that change by less


class Fit(Struct, frozen=True):
    """Terms fitted to points.

    bytes: a coefficient for each term; covariance: theirs, a row and a column for each, in units of the noise. scale: of residuals, in the same
    units; freedom: how well it is known, in residuals. score: less is better. errors: at each measured point for a law that did not see it, in bytes,
    NaN where it could not do without it; strange: the same in units of the noise to expect of it. arena: what is simulated beside the terms, if
    anything is; kept: the share of it that the heap keeps besides.
    """

    terms: tuple[Term, ...]
    bytes: Floats
    covariance: Floats
    scale: float
    freedom: float
    score: float
    errors: Floats
    strange: Floats
    arena: ArenaLaw | None = None
    kept: float = 0.0

    def at(self, places: Mapping[str, Floats], count: int) -> tuple[Floats, Floats]:
        """The bytes at places that are given as columns of `count` values, and their variance: arrays of as many."""
        import numpy as np

        columns = np.column_stack([term.values(places, count) for term in self.terms])
        sizes = columns @ self.bytes
        variance = np.einsum("ij,jk,ik->i", columns, self.covariance, columns)
        if self.arena is None:
            return sizes, variance * self.scale**2
        simulated = self.arena.sizes(places, count)
        variance = (variance + self.arena.variance(places, simulated)) * self.scale**2
        # The share that a heap keeps varies from place to place by as much as it is.
        return sizes + (1 + self.kept) * simulated, variance + (self.kept * simulated) ** 2


class _Solved(Struct, frozen=True):
    """Problems of least squares that have a solution: their numbers, and an array with a row for each of its coefficients, their covariance, and the
    residual and the leverage of each point."""

    numbers: Any
    amounts: Floats
    covariance: Floats
    residuals: Floats
    leverage: Floats


class FitProblem:
    """Points as numbers, with what every fit of them needs. noise: what two runs at a place differ by, in bytes and as a share."""

    def __init__(self, points: Sequence[SizePoint], noise: tuple[float, float]) -> None:
        import numpy as np

        self._points = points
        self.varying = [name for name, (low, high) in ranges_of(points).items() if low < high]
        self.at = columns_of([point.at for point in points], list(points[0].at))
        self.sizes = np.array([point.bytes for point in points], dtype=float)
        self.noise = np.maximum(np.hypot(noise[0], noise[1] * self.sizes), 1.0)
        self.least = np.array([point.least for point in points])
        self.count = int((~self.least).sum())
        self._columns: dict[Term, Floats] = {}

    def values(self, name: str) -> list[float]:
        """The values of a dimension that were measured, ascending."""
        return sorted({float(point.at[name]) for point in self._points if not point.least})

    def changed(self, name: str, rounded: Term) -> set[float]:
        """The measured values of a dimension that differ from this term of it."""
        differs = (self._column(rounded) != self.at[name]) & ~self.least
        return set(self.at[name][differs].tolist())

    def misfit(self, fit: Fit) -> bool:
        """Whether unseen points lie farther from a law than noise explains."""
        import numpy as np

        seen = np.isfinite(fit.errors)
        far = np.abs(fit.errors) > _FITS_SHARE * self.sizes[~self.least]
        return bool((np.abs(fit.strange) > _FITS)[seen & far].any())

    def fit(self, terms: Sequence[Term], arena: ArenaLaw | None = None, keeps: bool = False) -> Fit | None:
        """The terms fitted, beside an arena that is simulated. keeps: the heap keeps a share of that besides, which is fitted too. None where the
        points do not tell these figures apart, or one would not be above zero."""
        (fit,) = self.fits([terms], arena, keeps)
        return fit

    def fits(self, sums: Sequence[Sequence[Term]], arena: ArenaLaw | None = None, keeps: bool = False) -> list[Fit | None]:
        """`fit` of each of many sums, all of as many terms. They are solved together: a call of numpy takes longer than a sum of few terms does."""
        import numpy as np

        figures = len(sums[0]) + keeps
        if figures > max(self.count - 2, min(self.count, 2)):
            return [None] * len(sums)
        noise, rest = self.noise, self.sizes
        terms = {term: number for number, term in enumerate(dict.fromkeys(term for each in sums for term in each))}
        numbers = np.array([[terms[term] for term in each] for each in sums])
        columns = np.array([self._column(term) for term in terms])[numbers]
        if arena is not None:
            simulated = arena.sizes(self.at, len(self.sizes))
            rest = rest - simulated
            noise = np.sqrt(noise**2 + arena.variance(self.at, simulated))
            columns = np.append(columns, [[simulated]], axis=1) if keeps else columns
        solved = self._solved(columns.swapaxes(1, 2) / noise[:, None], rest / noise)
        judged = solved.leverage < _LEVERAGE
        room = np.where(judged, 1 - solved.leverage, 1.0)
        errors = np.where(judged, solved.residuals / room * noise, np.nan)[:, ~self.least]
        # The residual at an unseen point has the noise of the point and of the law: 1 / (1 - leverage) times the variance of noise alone.
        strange = np.where(judged, solved.residuals / np.sqrt(room), 0.0)
        strange[:, self.least] = np.maximum(strange[:, self.least], 0.0)
        losses = _huber(strange).sum(axis=1)
        scales = np.maximum(np.sqrt((losses + _KNOWN) / (self.count + _KNOWN)), _LEAST_SCALE)
        freedom = self.count - figures + _KNOWN
        degrees = np.array([_COSTS[term.kind] + _COST_OF_A_DEGREE * max(term.degree - 1, 0) for term in terms])[numbers].sum(axis=1)
        scores = freedom * np.log1p(losses / _KNOWN) + figures * (_COST + math.log(max(self.count, 2))) + degrees[solved.numbers]
        fits: list[Fit | None] = [None] * len(sums)
        for row, number in enumerate(solved.numbers):
            own = len(sums[number])
            fits[number] = Fit(
                tuple(sums[number]),
                solved.amounts[row, :own],
                solved.covariance[row, :own, :own],
                scale=float(scales[row]),
                freedom=freedom,
                score=float(scores[row]),
                errors=errors[row],
                strange=strange[row, ~self.least],
                arena=arena,
                kept=float(solved.amounts[row, -1]) if keeps else 0.0,
            )
        return fits

    def _column(self, term: Term) -> Floats:
        if term not in self._columns:
            self._columns[term] = term.values(self.at, len(self._points))
        return self._columns[term]

    def _solved(self, columns: Floats, target: Floats) -> _Solved:
        """Least squares in units of the noise. columns: for each problem a row for each point; target: one figure for each point.

        Left out are problems whose columns are not told apart, and those in which a coefficient is not above zero.
        """
        import numpy as np

        norms = np.sqrt((columns**2).sum(axis=1))
        numbers = np.flatnonzero(norms.all(axis=1))
        columns = columns[numbers] / norms[numbers, None, :]
        active, robust = np.tile(~self.least, (len(numbers), 1)), np.ones((len(numbers), len(target)))
        ended: list[tuple[Floats, ...]] = []
        for turn in range(_ROUNDS):
            weights = np.sqrt(robust) * active  # a point without weight is as good as left out
            basis, triangle = np.linalg.qr(columns * weights[:, :, None])
            apart = np.abs(np.diagonal(triangle, axis1=1, axis2=2)).min(axis=1) >= _ALIKE
            solution = np.zeros(triangle.shape[:2])
            turned = basis[apart].swapaxes(1, 2) @ (target * weights[apart])[:, :, None]
            solution[apart] = np.linalg.solve(triangle[apart], turned)[:, :, 0]
            good = apart & (solution.min(axis=1) > 0)
            residuals = target - (columns @ solution[:, :, None])[:, :, 0]
            # A point that needs at least so much says something only where the law is below it.
            use, former = active, robust
            active, robust = ~self.least | (residuals > 0), self._weights(residuals, columns.shape[2])
            settled = (active == use).all(axis=1) & (np.abs(robust - former).max(axis=1) < _SETTLED)
            done = good & (settled | (turn == _ROUNDS - 1))
            leverage = np.where(use, (basis**2).sum(axis=2), 0.0)
            ended.append((numbers[done], solution[done], triangle[done], residuals[done], leverage[done]))
            going = good & ~done
            if not going.any():
                break
            numbers, columns, active, robust = numbers[going], columns[going], active[going], robust[going]
        numbers, solution, triangle, residuals, leverage = (np.concatenate(parts) for parts in zip(*ended, strict=True))
        inverse = np.linalg.inv(triangle)
        covariance = inverse @ inverse.swapaxes(1, 2) / (norms[numbers, :, None] * norms[numbers, None, :])
        return _Solved(numbers, solution / norms[numbers], covariance, residuals, leverage)

    def _weights(self, residuals: Floats, figures: int) -> Floats:
        """Huber's weights, a row for each problem; all the same where there is nothing to tell an outlier by."""
        import numpy as np

        if self.count - figures < 2:
            return np.ones(residuals.shape)
        scales = np.maximum(1.0, 1.4826 * np.median(np.abs(residuals), axis=1))
        weights: Floats = np.minimum(1.0, _HUBER * scales[:, None] / np.maximum(np.abs(residuals), 1e-12))
        return weights


def _huber(residuals: Floats) -> Floats:
    """What each residual, in units of its noise, adds to a loss: its square, and beyond some units its size."""
    import numpy as np

    size = np.abs(residuals)
    return np.where(size <= _HUBER, size**2, 2 * _HUBER * size - _HUBER**2)
