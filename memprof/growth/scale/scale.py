"""Memory as a law: a model is measured at a few well-chosen places of its dimensions, and the laws of its peaks are fitted to them.

memprof.growth.laws says where to measure next and which law it is, `runs` measures a place, `predictions` makes the laws of places, and
`scale_findings` puts them into words. Here is the search: which places, and until when.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ...base.errors import InputError, MeasurementError, UsageError
from ...base.units import capitalised, format_bytes
from ...campaign.progress import Keep, Progress, Silent
from ...records import store
from ...records.types import PEAK, LawSearch
from ...subjects.dimensions import Dimension, parse, space
from ...subjects.order import Order
from ..laws import design, laws
from ..laws.arena import ArenaLaw
from ..laws.model_selection import HALF_NEAR, MOST_NEAR
from ..laws.terms import SizePoint
from . import predictions
from .answer import PlaceRun, Scaled, ScaleRequest, against, fall, words_of
from .arena_requests import Simulation
from .findings import findings, of_token
from .runs import Places

# Runs at a place whose first may be a chance: confirmed with a size outside its interval, or that of a figure which falls by more than this share.
_MORE_OF_A_DOUBTFUL_ONE, _FALLS = 2, 0.01

# The most runs, by the number of dimensions that vary.
_MOST_RUNS = {1: 6, 2: 6}
_MOST_RUNS_BEYOND = 12

_FAR = (
    f"The arena was simulated, but the simulation is too far from what was measured: half of the places should be within {HALF_NEAR:.0%} of it, and "
    f"four of five within {MOST_NEAR:.0%}. The law does without it, and its intervals are wide, for they hold an arena's steps."
)


def scale(request: ScaleRequest, progress: Progress, keep: Keep) -> Scaled:
    """Measure and fit. Each Run is given to `keep`.

    Raises UsageError or InputError for a fault of the request, MeasurementError if no place could be measured.
    """
    return _Scaler(request, progress, keep).run()


def check(request: ScaleRequest) -> None:
    """Say what is wrong with a request's words, before anything is measured. Raises UsageError and InputError."""
    _Scaler(request, Silent(), lambda line: None).check()


def request_of(order: Order, vary: Sequence[str], points: int | None = None) -> ScaleRequest:
    """The question for coefficients of an order's subject, by these ranges (see dimensions.parse). Raises UsageError."""
    dimensions = tuple(parse(text) for text in vary)
    # The shapes of a suite are of its runs: a law has its own where a dimension varies.
    given = order.job.shapes
    shapes = space(dimensions, Path(order.job.model.path), order.runtime).shapes({}, given) if given else {}
    (variant,) = order.subject.variants
    suite = replace(order.subject, variants=(replace(variant, shapes={}),), shapes=shapes, model_shapes={}, runs=None)
    return ScaleRequest(suite, dimensions, points, simulates=False)


def check_varying(varying: Sequence[Dimension]) -> None:
    """Raises UsageError where no law has so many dimensions that vary."""
    if not varying:
        raise UsageError("nothing varies: give a range, such as --vary batch=1..64")
    if len(varying) > predictions.MOST_VARYING:
        raise UsageError(
            f"{len(varying)} dimensions vary: a law of more than {predictions.MOST_VARYING} takes too many runs; fix one (--vary NAME=VALUE)"
        )


class _Scaler:
    def __init__(self, request: ScaleRequest, progress: Progress, keep: Keep) -> None:
        self._request, self._progress = request, progress
        self._keep = keep
        self._places = Places(request, progress, self._keep_with_search)
        self._main = self._places.main
        self._varying = self._places.space.varying
        check_varying(self._varying)
        self._most = request.points or _MOST_RUNS.get(len(self._varying), _MOST_RUNS_BEYOND)
        self._points: list[PlaceRun] = []
        self._too_large: list[Mapping[str, int]] = []  # places that were not run
        self._remarks: list[str] = []
        self._simulation: Simulation | None = None
        self._unkept = LawSearch()  # what the simulation is made of, until a run has kept it

    def check(self) -> None:
        """See the function of that name."""
        self._places.check(self._lowest())

    def run(self) -> Scaled:
        interrupted = False
        self.check()
        try:
            self._search()
        except KeyboardInterrupt:
            if sum(not point.ended for point in self._points) < 2:
                raise
            interrupted = True
            self._remark("Interrupted: fewer points were measured than a law should have.")
        answer = replace(self._answer(), env=self._places.env([point.at for point in self._points]), calls=self._places.calls)
        if interrupted:
            return replace(answer, interrupted=True)
        try:
            return self._confirmed(answer)
        except KeyboardInterrupt:
            return replace(answer, interrupted=True)

    # -- measuring

    def _search(self) -> None:
        assumed = self._places.assumed
        if assumed:
            self._progress.say(f"{self._places.model.name}: {assumed}")
            self._remark(f"{capitalised(assumed)}.")
        missing = self._places.missing()
        if missing:
            self._progress.say(f"{self._places.model.name}: {missing}")
        self._measure(design.first_places(self._ranges()))
        fixed = "; ".join(self._fixed())
        if all(point.ended for point in self._points):
            reason = "; ".join(text for text in (self._points[0].ended, fixed, assumed) if text)
            raise MeasurementError(f"{self._places.model.name}, {self._places.runtime}: no place could be measured: {reason}")
        if fixed:
            reason = next(point.ended for point in self._points if point.ended)
            raise InputError(f"{fixed}, and {self._places.runtime} keeps that ({reason}); {self._places.space.open}")
        for point in itertools.takewhile(lambda point: point.ended, self._points):
            if not point.least:
                self._progress.say(f"{words_of(point.at)}: {point.ended}")
        self._unkept, self._simulation = self._places.simulate()
        # On a fleet as many as are left are measured at once, elsewhere one after another: a run that dies says where not to measure.
        at_once = self._most if self._request.fleet is not None else 1
        while len(self._points) < self._most:
            chosen = list(itertools.islice(self._places_left(), min(at_once, self._most - len(self._points))))
            if not chosen:
                break
            self._measure(chosen)
        self._measure_again()

    def _measure_again(self) -> None:
        """Measure some places twice more, where an arena whose regions double may find other memory free in each run: the two between which the
        figure falls most, and with several threads that of the largest figure. The median of a place counts."""
        whole = [point for point in self._points if not point.ended]
        if not self._places.doubles or self._main != PEAK or self._request.fleet is not None:
            return
        falling = fall(whole, self._main)
        places = [point.at for point in falling or () if falling and falling[0].sizes[PEAK] > (1 + _FALLS) * falling[1].sizes[PEAK]]
        if self._places.job is not None and self._places.job.threads != 1:
            places.append(max(whole, key=lambda point: point.sizes[PEAK]).at)
        distinct = {tuple(at.values()): at for at in places}
        self._measure([at for at in distinct.values() for _ in range(_MORE_OF_A_DOUBTFUL_ONE)])
        self._points = predictions.of_medians(self._points, self._main)

    def _fixed(self) -> Iterator[str]:
        """The dimensions that the model's file fixes, where each other value is refused: the highest, and the nearest too."""
        for dimension in self._varying:
            sizes = {name: self._places.space.fixed(name) for name in dimension.names}
            if None in sizes.values() or not self._refused_but(dimension, sizes.values()):
                continue
            nearest = {**self._lowest(), dimension.label: dimension.low + dimension.step}
            if dimension.low in sizes.values() and all(point.at != nearest for point in self._points):
                self._measure([nearest])
            if self._refused_but(dimension, sizes.values()):
                yield f"{self._places.model.name} fixes {' and '.join(f'{name} at {size}' for name, size in sizes.items())}"

    def _refused_but(self, dimension: Dimension, sizes: Collection[int | None]) -> bool:
        """Whether all values of a dimension but these were refused."""
        others = [point for point in self._points if point.at[dimension.label] not in sizes]
        return bool(others) and all(point.ended and not point.least for point in others)

    def _keep_with_search(self, line: bytes) -> None:
        """Keep a run with what was asked, and what a simulation is made of since the last one."""
        run = store.decode(line, "a run")
        known = run.search or LawSearch()
        asked = replace(
            self._unkept,
            predictions=tuple(self._request.predictions),
            within_bytes=self._request.within_bytes,
            ranges={each.label: (each.low, each.high, each.step) for each in self._varying},
            sums=known.sums,
        )
        self._unkept = LawSearch()
        self._keep(line if asked == known else store.encode(replace(run, search=asked)))

    def _measure(self, places: Sequence[Mapping[str, int]], *, held_out: bool = False) -> list[PlaceRun]:
        """The points at places: one after another, or on a fleet at once."""
        if self._request.fleet is not None:
            return [self._noted(point) for point in self._places.measure_at_once(places, len(self._points), held_out=held_out)]
        points = []
        for at in places:
            if self._would_not_fit(at):
                self._too_large.append(at)
                points.append(PlaceRun(at, {}, "not run: it would need more memory than this machine has free", held_out=held_out))
                self._progress.say(f"{words_of(at)}: {points[-1].ended}")
            else:
                points.append(self._noted(self._places.measure(at, len(self._points), held_out=held_out)))
        return points

    def _noted(self, point: PlaceRun) -> PlaceRun:
        words = words_of(point.at)
        self._points.append(point)
        size = point.sizes.get(self._main)
        at_least = "at least " if point.least else ""
        seen = f"{self._main} {at_least}{format_bytes(size)}" if size else ""
        reason = point.ended or ""
        if reason and not point.least and all(other.ended for other in self._points):
            reason = "failed"  # if no place can be measured, the error says why, once
        self._progress.say(f"{words}: {'; '.join(text for text in (reason, seen) if text)}")
        return point

    def _would_not_fit(self, at: Mapping[str, int]) -> bool:
        """Whether a place surely needs more than is free: known only with a law."""
        if len(self._points) < 3:
            return False
        law = laws.law(self._series(self._main), noise=self._places.noise, arena=self._main_arena())
        return law is not None and self._places.too_large(law.predict(at).low_bytes)

    # -- places

    def _lowest(self) -> dict[str, int]:
        return {dimension.label: dimension.low for dimension in self._varying}

    def _ranges(self) -> dict[str, design.Range]:
        return {dimension.label: (dimension.low, dimension.last, dimension.step) for dimension in self._varying}

    def _places_left(self) -> Iterator[Mapping[str, int]]:
        """The places of the design that were not measured, but for those that need no less memory than one which had too little."""
        measured = [point.at for point in self._points]
        dead = [point.at for point in self._points if point.least] + self._too_large
        for at in design.places(self._ranges()):
            if at not in measured and all(any(at[name] < low[name] for name in at) for low in dead):
                yield at

    # -- the answer

    def _series(self, name: str) -> list[SizePoint]:
        return predictions.series(self._points, name, self._main)

    def _answer(self) -> Scaled:
        job = self._places.job
        assert job is not None
        noise = self._places.noise
        answer = predictions.answer(job, self._places.space.dimensions, self._points, self._main, noise, self._arena(), self._simulation)
        answer = replace(
            answer,
            predictions=tuple(answer.predict(self._request.predictions)),
            within_bytes=self._request.within_bytes,
            planned=predictions.planned(self._points),
            unplanned=self._places.unplanned,
            shared=self._places.shared,
        )
        answer = replace(answer, within=predictions.within(answer), against=against(answer))
        try:
            token_costs = of_token(answer, Path(self._places.model.path), job.knobs.get("kv_type", "f16"))
        except InputError as error:
            token_costs = []
            self._remark(f"{error}.")
        unplanned = answer.unplanned
        unsimulated = self._places.unsimulated
        if self._places.doubles and self._arena() is not None and not any(law.simulated for law in answer.sources.values()):
            if self._simulation is not None:
                self._remark(_FAR)
            elif unsimulated and unsimulated == unplanned:
                unplanned = f"the arena is not simulated, and {unplanned}"
            elif unsimulated:
                self._remark(f"The arena is not simulated: {unsimulated}.")
        if answer.law is None and (self._request.predictions or self._request.within_bytes):
            answer = replace(answer, undecided=answer.undecided or f"no simple law holds for {answer.main}")
            self._remark("Nothing is predicted, for no simple law holds.")
        if unplanned:
            self._remark(f"{capitalised(unplanned)}.")
        model = self._places.model
        told = findings(answer, model.weight_bytes or model.bytes, token_costs, self._places.noise[0])
        return replace(answer, findings=told, remarks=tuple(self._remarks))

    def _arena(self) -> ArenaLaw | None:
        assert self._places.job is not None
        return predictions.arena(self._places.doubles, self._places.job, self._places.space.dimensions, self._points, self._simulation)

    def _main_arena(self) -> ArenaLaw | None:
        return predictions.simulated(self._arena(), self._main, self._simulation)

    def _remark(self, sentence: str) -> None:
        if sentence not in self._remarks:
            self._remarks.append(sentence)

    # -- confirming

    def _confirmed(self, answer: Scaled) -> Scaled:
        """The answer with its predictions measured, where they can be."""
        if not self._request.confirm:
            return answer
        labels = [dimension.label for dimension in self._varying]
        # Where no law holds, a run says what a prediction would have.
        wanted: list[Mapping[str, int]] = [{label: at[label] for label in labels} for at in self._request.predictions]
        wanted += [row.place(labels) for row in answer.within if row.confirmable]
        if answer.limit_places is not None:
            bound, most = answer.limit_places
            places = [bound, {label: int(most.at[label]) for label in labels}]
            wanted += [at for at in places if all(point.at != at for point in self._points)]
        if not wanted and answer.law is not None:
            wanted = list(itertools.islice(self._places_left(), 1))
        distinct = {tuple(sorted(at.items())): at for at in wanted}
        seen = self._measure(list(distinct.values()), held_out=True)
        for point in seen:
            if point.ended and not point.sizes:
                self._remark(f"{words_of(point.at)} was not confirmed: {point.ended}.")
        if self._main == PEAK and self._request.fleet is None:
            odd = [point.at for point in seen if not point.ended and not _expected(answer, point)]
            self._measure([at for at in odd for _ in range(_MORE_OF_A_DOUBTFUL_ONE)], held_out=True)
        self._points = predictions.of_medians(self._points, self._main)
        return predictions.confirmed(replace(answer, points=tuple(self._points), remarks=tuple(self._remarks)))


def _expected(answer: Scaled, point: PlaceRun) -> bool:
    """Whether a point lies in the interval of its prediction, or has none."""
    size = point.sizes[answer.main]
    return all(prediction.low_bytes <= size <= prediction.high_bytes for prediction in answer.predict([point.at]))
