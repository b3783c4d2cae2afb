"""The choice of a law's terms, from those of all laws that fit nearly as well.

Simple terms come first: the others are tried only where the simple ones do not fit. Laws with nearly the best score stay as rivals: a prediction's
interval holds their disagreement, and so widens where no point is near.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .fit import Fit, Problem
from .log_periodic import Arena, Growth, following, stepped
from .terms import CONSTANT, Kind, Point, Term

if TYPE_CHECKING:
    from .terms import Floats

# A rival is a law whose score is worse by less than this; its weight is exp(-difference / 2).
_RIVAL = 9.0
_MOST_RIVALS = 24
_BEAM, _NARROW = 8, 3  # how many laws of each size are grown side by side; with a floor
_MOST_TERMS = 7
_FLOOR_SHARE = 0.06  # points on a floor differ by no more than this


def rivals_of(
    points: Sequence[Point],
    noise: tuple[float, float],
    quick: bool = False,
    simple: bool = False,
    arena: Arena | None = None,
) -> list[tuple[float, Fit]]:
    """The best law and those nearly as good, with their weights; none for no points. quick: without laws that change or have a
    floor, which are many. simple: without roundings too. arena: whose memory it is."""
    whole = [point for point in points if not point.least]
    if not whole:
        return []
    problem = Problem(points, noise)
    names = problem.varying
    fits = _beam(problem, _simple(names), _BEAM)
    if not fits:
        return []
    if simple:
        return _weighted(fits)
    if arena is not None and arena.doubles:
        fits = _doubling(problem, points, noise, fits, arena, quick)
        known = following(problem, arena, fits[0])
        return [(1.0, known)] if known is not None else _weighted(fits)
    known = following(problem, arena, fits[0]) if arena is not None else None
    if known is not None:
        # What is simulated is a law among simple ones, and comes before those that any few points could be rounded to.
        if problem.misfit(fits[0]):
            return [(1.0, known)]
        fits = _merged(fits, [known])
    if problem.misfit(fits[0]):
        fits = _merged(fits, _rounded(problem, fits), _stepped(problem, names) if len(names) == 1 else [])
    if quick:
        return _weighted(fits)
    if problem.misfit(fits[0]) and len(whole) >= 5:
        fits = _merged(fits, _changing(problem, fits))
    if problem.misfit(fits[0]) and len(whole) >= 5:
        fits = _merged(fits, *(_beam(Problem(points, noise, floor), _simple(names), _NARROW) for floor in _floors(whole, noise)))
    return _weighted(fits)


def _weighted(fits: Sequence[Fit]) -> list[tuple[float, Fit]]:
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


def _beam(problem: Problem, library: Sequence[Term], beam: int) -> list[Fit]:
    """Fits grown term by term from the constant, the best first. beam: how many of each size are grown on."""
    constant = problem.fit((CONSTANT,))
    frontier = [constant] if constant is not None else []
    every = {fit.terms: fit for fit in frontier}
    for _ in range(_MOST_TERMS - 1):
        grown: dict[tuple[Term, ...], Fit] = {}
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


def _merged(*several: Iterable[Fit]) -> list[Fit]:
    every: dict[tuple[object, ...], Fit] = {}
    for fit in itertools.chain(*several):
        key = (type(fit), fit.terms, fit.floor)
        if key not in every or fit.score < every[key].score:
            every[key] = fit
    return sorted(every.values(), key=lambda fit: fit.score)


def _doubling(
    problem: Problem, points: Sequence[Point], noise: tuple[float, float], fits: Sequence[Fit], arena: Arena, quick: bool
) -> list[Fit]:
    """Laws of an arena whose regions double: simple ones of few terms, and what grows with steps.

    Its steps would be fitted by any sum of many terms, or by other roundings, until the next point shows them.
    """
    most = max(problem.count // 2, 1 if quick else 2)
    few = [fit for fit in fits if len(fit.terms) <= most]
    growths: list[Growth] = [arena.growth] if arena.growth else [((term, 1.0),) for term in _simple(problem.varying)]
    whole = [point for point in points if not point.least]
    floors = [Problem(points, noise, floor) for floor in _floors(whole, noise)] if len(whole) >= 5 and not quick else []
    return _merged(few, *(stepped(each, growths) for each in (problem, *floors)))


def _floors(points: Sequence[Point], noise: tuple[float, float]) -> list[int]:
    """How many of the lowest points may lie on a floor: those that differ by little, and leave enough to fit a law to; the most of them."""
    sizes = sorted(point.bytes for point in points)
    near = sizes[0] + max(_FLOOR_SHARE * sizes[0], 4 * noise[0])
    counts = [count for count in range(2, len(sizes) - 1) if sizes[count - 1] <= near]
    return counts[-3:]


def _rounded(problem: Problem, fits: Sequence[Fit]) -> list[Fit]:
    """The best fits with a dimension rounded up, in one of their terms or in all."""
    better = []
    ways = [(name, way) for name, values in problem.measured(3) for way in _roundings(values)]
    for name, (kind, size, each) in [*ways, *_divided(problem)]:
        for fit in fits[:_BEAM]:
            places = [place for place, term in enumerate(fit.terms) if (name, 1) in term.powers and not term.kind]
            for chosen in {(place,) for place in places} | ({tuple(places)} if places else set()):
                terms = tuple(
                    Term(term.powers, kind, name, size, each) if place in chosen else term for place, term in enumerate(fit.terms)
                )
                rounded = problem.fit(terms)
                if rounded is not None:
                    better.append(rounded)
    return better


def _stepped(problem: Problem, names: Sequence[str]) -> list[Fit]:
    """Fits of simple terms and roundings side by side, such as a dimension and the same rounded up, which no simple law becomes term by term.

    In two dimensions they are more than a few points tell apart.
    """
    simple = _simple(names)
    steps = [
        Term(term.powers, kind, name, size)
        for name, values in problem.measured(3)
        for kind, size, _ in _roundings(values)
        for term in simple
        if (name, 1) in term.powers
    ]
    return _beam(problem, [*simple, *steps], _BEAM)


def _roundings(values: Sequence[float]) -> list[tuple[Kind, float, str]]:
    """Ways to round a dimension up that these values can tell apart. Finer pages than a 64th of the range do not show."""
    ways: list[tuple[Kind, float, str]] = [("doubling", 0.0, "")]
    span = values[-1] - values[0]
    size = 2
    while size <= span:
        if size * 64 >= span:
            ways.append(("pages", float(size), ""))
        size *= 2
    return ways


def _divided(problem: Problem) -> Iterator[tuple[str, tuple[Kind, float, str]]]:
    """Ways to round up each part of a dimension that is divided among those of another. Only places where a part is less than a page show them."""
    measured = dict(problem.measured(2))
    for (name, values), (each, parts) in itertools.permutations(measured.items(), 2):
        size = 2.0
        while size <= values[-1] / parts[0]:
            if size * parts[-1] > values[0]:
                yield name, ("pages", size, each)
            size *= 2


def _changing(problem: Problem, fits: Sequence[Fit]) -> list[Fit]:
    """The best fits with another slope from some place of a dimension on."""
    changed = []
    for name, values in problem.measured(4):
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


def between(rivals: Sequence[tuple[float, Fit]], columns: Mapping[str, Floats], count: int, middle: Floats) -> Floats:
    """The variance between rivals, around the best law."""
    import numpy as np

    total = np.zeros(count)
    for weight, fit in rivals[1:]:
        sizes, _ = fit.at(columns, count)
        total += weight * (sizes - middle) ** 2
    return total
