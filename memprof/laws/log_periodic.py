"""Laws of an arena whose regions double: memory that grows in steps which come again with each doubling.

Such an arena (ONNX Runtime's, after TensorFlow's: best fit with coalescing) takes regions of 1, 2, 4, ... MiB and cuts them into chunks. A tensor
that no longer fits beside another needs a region of its own. Which tensors share one depends on their sizes beside powers of two, so it is the same
again for tensors of twice the size. A few runs tell how memory grows, but not where all its steps are. So the steps are a random function of the
place between two powers of two, with jumps: a Gaussian process on the circle of these places (kriging; Rasmussen and Williams 2006). What it says at
a place is near what was measured at the same place of another octave. Far from all of these, its interval holds steps of the usual height.

Where the arena can be simulated, the steps are known: memory is a constant and what the simulation says. Other arenas have no such steps, but
what they need may be known at each place too, and is not always a sum of terms: it is what the worst of several moments needs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .fit import COST, KNOWN, Fit, Problem, huber
from .terms import CONSTANT, Term

if TYPE_CHECKING:
    from .terms import At, Floats

# How high steps are beside the growth, as a share; the points choose.
_STEPS = (0.25, 0.5)
# Places of an octave so far apart have little to do with each other, and so many octaves.
_NEAR, _OCTAVES = 0.2, 8.0
# The first regions are of 1 and 2 MiB, whatever the tensors' sizes are: steps of so much do not come again.
_FIRST_BYTES = 1 << 21
# How far a run is from a simulated arena by chance, in bytes and as a share of what is simulated: what PREPARE leaves free in the heap varies.
_CHANCE_BYTES, _CHANCE_SHARE = 1 << 20, 0.005
# A simulation is believed where it is so near unseen points: half of them, and all but every fifth, as shares of them. glibc may return free memory
# to the kernel in the middle of a run, by chance.
_HALF_NEAR, _MOST_NEAR = 0.03, 0.08
# The variance of another simulation that some runs are nearer to, as a share of its square: an interval of 95% then reaches it.
_REACHED = 0.25


# What memory grows with: terms, and their bytes beside one another.
Growth = tuple[tuple[Term, float], ...]


@dataclass(frozen=True)
class Arena:
    """An arena whose regions double, or another (doubles). growth: of the tensors in it as a plan has it, by their bytes; empty where no plan says
    so. simulated: what a place needs, but for a constant and `beside`, as simulations have it that differ in what they assume; the points choose.
    beside: terms of what is not in the arena, such as the weights of each session."""

    growth: Growth = ()
    simulated: tuple[Callable[[At], float], ...] = ()
    doubles: bool = True
    beside: tuple[Term, ...] = ()


@dataclass(frozen=True)
class Stepped(Fit):
    """A constant and what grows, with steps. steps: how high they are, as a share of what grows. The rest is what predictions need: the height of
    steps for a unit of growth, the growth at the points, the inverse of the points' covariance, as it is and times the residuals, and the points'
    columns with the covariance of their two figures."""

    growth: Growth = ()
    steps: float = 0.0
    height: float = 0.0
    values: Any = None
    inverse: Any = None
    pull: Any = None
    columns: Any = None
    spread: Any = None

    def at(self, places: Mapping[str, Floats], count: int) -> tuple[Floats, Floats]:
        """See Fit."""
        import numpy as np

        value = sum((weight * term.values(places, count) for term, weight in self.growth), np.zeros(count))
        across = _covariance(value, self.values, self.height)
        sizes = np.column_stack([term.values(places, count) for term in self.terms]) @ self.bytes + across @ self.pull
        lost = np.column_stack([np.ones(count), value]) - across @ self.inverse @ self.columns
        variance = (self.height * value) ** 2 - np.einsum("ij,jk,ik->i", across, self.inverse, across)
        variance += np.einsum("ij,jk,ik->i", lost, self.spread, lost)
        variance = np.maximum(variance, 0.0) * self.scale**2
        return np.maximum(sizes, self.floor), np.where(sizes < self.floor, variance / 4, variance)


@dataclass(frozen=True)
class Following(Fit):
    """A constant, the terms beside an arena, and the arena simulated. The terms are those of the law that is nearest without it, with its steps.
    beside: the constant and the terms, and what they are multiplied by; factor: what the arena is multiplied by. chance: of a run, in bytes and as
    a share of what is simulated; known: how well the constant is known, as a variance in chances. doubles: see Arena. others: simulations to which
    some of the runs are nearer."""

    steps: float = 0.0
    beside: tuple[tuple[Term, float], ...] = ()
    factor: float = 1.0
    chance: tuple[float, float] = (0.0, 0.0)
    known: float = 0.0
    simulated: Callable[[At], float] = lambda at: 0.0
    doubles: bool = True
    others: tuple[Callable[[At], float], ...] = ()

    def at(self, places: Mapping[str, Floats], count: int) -> tuple[Floats, Floats]:
        """See Fit."""
        import numpy as np

        every = [{name: float(column[place]) for name, column in places.items()} for place in range(count)]
        value = np.array([self.simulated(at) for at in every])
        rest = np.sum([amount * term.values(places, count) for term, amount in self.beside], axis=0)
        own, share = self.chance
        variance = (own**2 * (1 + self.known) + (share * value) ** 2) * self.scale**2
        for other in self.others:
            variance += _REACHED * (self.factor * (np.array([other(at) for at in every]) - value)) ** 2
        return rest + self.factor * value, variance


def following(problem: Problem, arena: Arena, shown: Fit) -> Fit | None:
    """The points by what is simulated nearest to them, and a constant beside it; None if nothing is near. shown: the fit whose terms it has."""
    fits = []
    for simulated in arena.simulated:
        fit = _followed(problem, arena, simulated, shown, grows=bool(arena.beside)) or _followed(problem, arena, simulated, shown)
        if fit is not None:
            fits.append(fit)
    if not fits:
        return None
    best = min(fits, key=lambda fit: fit.score)
    return replace(best, others=tuple(_others(best, arena, problem)))


def _others(best: Following, arena: Arena, problem: Problem) -> Iterator[Callable[[At], float]]:
    """The simulations to which some runs are nearer than to the best, each run counted for the nearest."""
    import numpy as np

    fits = [best, *(replace(best, simulated=simulated) for simulated in arena.simulated if simulated is not best.simulated)]
    columns = {name: np.array([float(at[name]) for at in problem.places]) for name in problem.places[0]}
    errors = np.abs([fit.at(columns, len(problem.sizes))[0] - problem.sizes for fit in fits])
    nearest = np.where(errors[0] - errors.min(axis=0) > _CHANCE_BYTES, errors.argmin(axis=0), 0)[~problem.least]
    yield from (fits[number].simulated for number in dict.fromkeys(nearest.tolist()) if number)


def _followed(problem: Problem, arena: Arena, simulated: Callable[[At], float], shown: Fit, grows: bool = False) -> Following | None:
    """grows: the heap keeps a share of what arenas hold besides, as where one is made after another and freed pieces lie between them."""
    import numpy as np

    measured = ~problem.least
    sizes = problem.sizes[measured]
    values = np.array([simulated(at) for at in problem.places])
    count = len(sizes)
    terms = (CONSTANT, *arena.beside)
    columns = np.column_stack([*(problem.column(term) for term in terms), *([values] if grows else [])])
    fixed = np.zeros_like(values) if grows else values
    here, rests = columns[measured], sizes - fixed[measured]
    figures = here.shape[1]
    if count < figures + 2:
        return None
    amounts = _through(here, rests)
    others = [_through(np.delete(here, place, 0), np.delete(rests, place)) for place in range(count)]
    if amounts is None or (grows and amounts[-1] < 1):
        return None
    # At least so much is needed where a run died for want of memory.
    if ((fixed + columns @ amounts)[~measured] < (1 - _MOST_NEAR) * problem.sizes[~measured]).any():
        return None
    errors = rests - np.array([np.nan if other is None else row @ other for row, other in zip(here, others, strict=True)])
    if np.isnan(errors).any():
        return None
    shares = np.abs(errors) / sizes
    if np.median(shares) > _HALF_NEAR or np.sort(shares)[count - 1 - count // 5] > _MOST_NEAR:
        return None
    noise = problem.noise[measured]
    # Only memory that doubles depends so on what PREPARE left: other runs repeat as well as their noise. But the share that a heap keeps varies from
    # place to place by as much as it is.
    usual = (float(np.median(noise)), float(amounts[-1]) - 1 if grows else 0.0)
    chance = (float(_CHANCE_BYTES), _CHANCE_SHARE) if arena.doubles else usual
    strange = errors / np.hypot(np.hypot(noise, chance[0] * arena.doubles), chance[1] * values[measured])
    loss = float(np.sum(huber(strange)))
    freedom = count - figures + KNOWN
    score = freedom * math.log1p(loss / KNOWN) + figures * (COST + math.log(count))
    scale = max(math.sqrt((loss + KNOWN) / (freedom + KNOWN)), 0.7)
    return Following(
        shown.terms,
        shown.bytes,
        shown.covariance * (shown.scale / scale) ** 2,
        scale,
        freedom,
        score,
        errors,
        strange,
        steps=shown.steps if isinstance(shown, Stepped) else 0.0,
        beside=tuple(zip(terms, amounts[: len(terms)].tolist(), strict=True)),
        factor=float(amounts[-1]) if grows else 1.0,
        chance=chance,
        known=math.pi / 2 * figures / count,  # of a median
        simulated=simulated,
        doubles=arena.doubles,
    )


def _through(columns: Floats, sizes: Floats) -> Floats | None:
    """The sum of the columns that has the least absolute residuals: of one, the median. None where they are not told apart."""
    import numpy as np

    if columns.shape[1] == 1:
        return np.array([float(np.median(sizes))])
    best: tuple[float, Floats] | None = None
    norms = np.abs(columns).max(axis=0)
    for chosen in itertools.combinations(range(len(sizes)), columns.shape[1]):
        rows = columns[list(chosen)] / norms
        if np.linalg.cond(rows) > 1e6:
            continue
        amounts = np.linalg.solve(rows, sizes[list(chosen)]) / norms
        far = float(np.abs(sizes - columns @ amounts).sum())
        if best is None or far < best[0]:
            best = (far, amounts)
    return best[1] if best is not None else None


def stepped(problem: Problem, growths: Sequence[Growth]) -> Iterator[Fit]:
    """The points by a constant and each of these growths, with steps of each height."""
    for growth in growths:
        for steps in _STEPS:
            fit = _fitted(problem, growth, steps)
            if fit is not None:
                yield fit


def _fitted(problem: Problem, growth: Growth, steps: float) -> Fit | None:
    import numpy as np

    use = problem.exact
    every = np.asarray(sum(weight * problem.column(term) for term, weight in growth))
    values, sizes, noise = every[use], problem.sizes[use], problem.noise[use]
    count = len(sizes)
    if count < 3 or values.min() <= 0 or values.max() <= 1.2 * values.min():
        return None
    usual = (sizes[values.argmax()] - sizes[values.argmin()]) / (values.max() - values.min())
    if usual <= 0:
        return None
    height = steps * usual
    own = noise**2 + float(_FIRST_BYTES) ** 2
    covariance = _covariance(values, values, height) + np.diag(own)
    inverse = np.linalg.inv(covariance)
    columns = np.column_stack([np.ones(count), values])
    gram = columns.T @ inverse @ columns
    if np.linalg.cond(gram / np.sqrt(np.outer(np.diag(gram), np.diag(gram)))) > 1e10:
        return None
    spread = np.linalg.inv(gram)
    fitted = spread @ columns.T @ inverse @ sizes
    if fitted[0] < 0 or fitted[1] <= 0:
        return None
    residuals = sizes - columns @ fitted
    pull = inverse @ residuals
    loss = float(residuals @ pull)
    # Leave-one-out, as for a regression: its precision is what the points say of one another once the terms are taken out.
    precision = inverse - inverse @ columns @ spread @ columns.T @ inverse
    room = np.maximum(np.diag(precision), 1e-30)
    errors = np.full(int((~problem.least).sum()), np.nan)
    strange = np.zeros_like(errors)
    here = use[~problem.least]
    errors[here] = precision @ sizes / room
    strange[here] = precision @ sizes / np.sqrt(room)
    freedom = count - 2
    # Points on a floor, and those that need at least so much, say something only where the law is above or below them.
    over = fitted[0] + fitted[1] * every - problem.sizes
    wrong = np.where(problem.resting, np.maximum(over, 0.0), np.where(problem.least, np.minimum(over, 0.0), 0.0))
    loss += float(np.sum(wrong**2 / (_FIRST_BYTES**2 + (height * every) ** 2)))
    _, known = np.linalg.slogdet(covariance / np.sqrt(np.outer(own, own)))
    penalty = 2 * (COST + math.log(count)) + 0.25 * max(max(term.degree for term, _ in growth) - 1, 0) + problem.floor_penalty
    score = (freedom + KNOWN) * math.log1p(loss / KNOWN) + float(known) + penalty
    scale = max(math.sqrt((loss + KNOWN) / (freedom + KNOWN)), 0.7)
    # Of the coefficients of a constant and each term, which are one figure times their weights.
    weights = np.zeros((1 + len(growth), 2))
    weights[0, 0] = 1.0
    weights[1:, 1] = [weight for _, weight in growth]
    return Stepped(
        (CONSTANT, *(term for term, _ in growth)),
        weights @ fitted,
        weights @ spread @ weights.T,
        scale,
        freedom + KNOWN,
        score,
        errors,
        strange,
        problem.floor,
        growth=growth,
        steps=steps,
        height=height,
        values=values,
        inverse=inverse,
        pull=pull,
        columns=columns,
        spread=spread,
    )


def _covariance(places: Floats, others: Floats, height: float) -> Floats:
    """Of the steps at places with these values of the term: near each other in an octave, and not many octaves apart."""
    import numpy as np

    here, there = np.log2(places)[:, None], np.log2(others)[None, :]
    apart = np.abs(here - there)
    around = np.abs((apart + 0.5) % 1.0 - 0.5)
    return np.asarray(height**2 * places[:, None] * others[None, :] * np.exp(-around / _NEAR - apart / _OCTAVES))
