"""The choice of a law's terms from a fixed list: of all sums of few terms, the one that says most about points which it did not see.

Powers and products come first. Dimensions that are rounded up are tried only where those do not fit, for a few points can always be rounded to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from .arena import ArenaLaw
from .fit import Fit, FitProblem
from .terms import CONSTANT, Kind, Term

_MOST_TERMS = 3  # beside the constant
_AT_ONCE = 1 << 16  # points of sums that are solved together: each takes some hundred bytes meanwhile
_FINEST = 64  # pages finer than this share of the range do not show
# A simulation is believed where it is so near unseen points: half of them, and all but every fifth, as shares of them. glibc may return free memory
# to the kernel in the middle of a run, by chance.
HALF_NEAR, MOST_NEAR = 0.03, 0.08


def simple_fits(problem: FitProblem) -> list[Fit]:
    """Sums of powers and products, the best first; empty where not even a constant can be fitted."""
    return _best_first(_sums(problem, _simple(problem.varying)))


def stepped_fits(problem: FitProblem, terms: Sequence[Term]) -> list[Fit]:
    """Sums for an arena whose regions double, the best first: of these terms, or else of powers and products. Any sum of many terms follows the steps
    until the next point shows them. So they have half as many figures as there are points at most; and where they do not fit, and nobody knows the
    terms, a constant and one term."""
    fits = _best_first(_sums(problem, terms or _simple(problem.varying)))
    few = [fit for fit in fits if len(fit.terms) <= max(problem.count // 2, 2)]
    return few if terms or not few or not problem.misfit(few[0]) else [fit for fit in few if len(fit.terms) <= 2]


def rounded_fits(problem: FitProblem) -> list[Fit]:
    """Sums in which dimensions are rounded up, the best first: in any terms of a single dimension, in one of two terms of several."""
    simple = _simple(problem.varying)
    rounded = list(_rounded(problem, simple))
    if len(problem.varying) == 1:
        return _best_first(_sums(problem, [*simple, *rounded]))
    chosen = itertools.product(rounded, [(), *((term,) for term in simple)])
    return _best_first(_fits(problem, ((term, *others) for term, others in chosen)))


def simulated_fits(problem: FitProblem, arena: ArenaLaw) -> list[Fit]:
    """A simulated arena with a constant and the terms beside it, where that is near the points; the best first. The heap keeps a share of it besides
    only where there are such terms: one arena is made after another, and freed pieces lie between them."""
    terms = (CONSTANT, *arena.beside)
    fits = [problem.fit(terms, arena, keeps) for keeps in ([True, False] if arena.beside else [False])]
    return _best_first(fit for fit in fits if fit is not None and _near(problem, fit))


def _near(problem: FitProblem, fit: Fit) -> bool:
    """Whether a simulation is near the points that it did not see, and needs as much as a run that died for lack of memory."""
    import numpy as np

    sizes, _ = fit.at(problem.at, len(problem.sizes))
    if (sizes[problem.least] < (1 - MOST_NEAR) * problem.sizes[problem.least]).any() or np.isnan(fit.errors).any():
        return False
    shares = np.sort(np.abs(fit.errors) / problem.sizes[~problem.least])
    return bool(np.median(shares) <= HALF_NEAR and shares[len(shares) - 1 - len(shares) // 5] <= MOST_NEAR)


def _best_first(fits: Iterable[Fit]) -> list[Fit]:
    return sorted(fits, key=lambda fit: fit.score)


def _sums(problem: FitProblem, library: Sequence[Term]) -> Iterator[Fit]:
    return _fits(problem, itertools.chain.from_iterable(itertools.combinations(library, count) for count in range(_MOST_TERMS + 1)))


def _fits(problem: FitProblem, sums: Iterable[tuple[Term, ...]]) -> Iterator[Fit]:
    """The sums with a constant, or without one where it would be zero."""
    by_length: dict[int, list[tuple[Term, ...]]] = {}
    for terms in sums:
        by_length.setdefault(len(terms), []).append(terms)
    most = max(_AT_ONCE // len(problem.sizes), 1)
    for alike in by_length.values():
        for begin in range(0, len(alike), most):
            some = alike[begin : begin + most]
            fits = problem.fits([(CONSTANT, *terms) for terms in some])
            yield from filter(None, fits)
            rest = [terms for terms, fit in zip(some, fits, strict=True) if fit is None and terms]
            yield from filter(None, problem.fits(rest) if rest else ())


def _simple(names: Sequence[str]) -> list[Term]:
    """Powers and products of up to the third degree, no dimension above its square."""
    every = itertools.product(range(3), repeat=len(names))
    return [
        Term(tuple((name, power) for name, power in zip(names, powers, strict=True) if power)) for powers in every if 0 < sum(powers) <= 3
    ]


def _rounded(problem: FitProblem, simple: Sequence[Term]) -> Iterator[Term]:
    """The terms of a dimension with that dimension rounded up, in each way that changes two of its values or more: one alone may be anything."""
    for name in problem.varying:
        alone = ((name, 1),)
        for kind, size, each in (*_roundings(problem.values(name)), *_divided(problem, name)):
            if len(problem.changed(name, Term(alone, kind, name, size, each))) > 1:
                yield from (Term(term.powers, kind, name, size, each) for term in simple if (name, 1) in term.powers)


def _roundings(values: Sequence[float]) -> Iterator[tuple[Kind, float, str]]:
    """Ways to round a dimension up: to a power of two, or to pages that are not too fine to show."""
    yield "doubling", 0.0, ""
    for size in _powers_of_two(values[-1] - values[0]):
        if size * _FINEST >= values[-1] - values[0]:
            yield "pages", size, ""


def _divided(problem: FitProblem, name: str) -> Iterator[tuple[Kind, float, str]]:
    """Ways to round up each part of a dimension that is divided among those of another. Only places where a part is less than a page show them."""
    values = problem.values(name)
    for each in problem.varying:
        if each != name:
            parts = problem.values(each)
            yield from (("pages", size, each) for size in _powers_of_two(values[-1] / parts[0]) if size * parts[-1] > values[0])


def _powers_of_two(most: float) -> Iterator[float]:
    """The powers of two from 2 on."""
    size = 2.0
    while size <= most:
        yield size
        size *= 2
