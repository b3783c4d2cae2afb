"""`bisect` from end to end: versions are opened and measured as the search asks for them, and both sides of what it finds are explained."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import InputError, MeasurementError, MemprofError, UndecidedError, UsageError
from ...campaign import campaign
from ...campaign.progress import Keep, Progress
from ...campaign.runs_writer import keeping
from ...explain import engine
from ...growth.grow import grow
from ...growth.laws import coefficients
from ...growth.scale import scale
from ...records import metrics, store
from ...records.summary import PeakPhases, VariantKey, place_of
from ...records.types import COMMAND, Job, Run
from ...subjects.job_command import heap_record
from ...subjects.order import Order
from ...subjects.orders import plan
from ...subjects.suite import Suite, Variant, variants_of
from ...versions import measurement
from ...versions.measurement import Selection, by_place
from . import request_check, search
from .bisect_request import BisectRequest, SearchState, StepSide, heap_folder
from .remote_lab import FleetLab
from .search import FigureQuestion, Searched, Unable, Unanswered, VersionStep
from .step_sides import FIRST, also, first_phase, followed, peak_phases
from .undo_search import Undoing, undo
from .version_range import Versions

_OPEN = 4  # builds held at a time; those that are not held may go from the cache
_REQUEST = "request"  # the unit of growth of a server that memprof asks


class Bisected(Struct, frozen=True):
    """The answer. question: what was followed. phases: the first phase in which each step is seen. peaks: where PEAK of its
    sides is, nowhere for a step of another figure. also: the other differences
    between both sides of each, such as a package that the release brought along. sides: of each step, explained before and
    after. undoing: what undoes each step for the worse, None where that was not asked or has no meaning. seconds: how long it took."""

    versions: Versions
    question: FigureQuestion
    searched: Searched
    phases: tuple[str, ...]
    peaks: tuple[tuple[PeakPhases, PeakPhases], ...]
    also: tuple[tuple[str, ...], ...]
    sides: tuple[tuple[StepSide, StepSide], ...]
    undoing: tuple[Undoing | None, ...]
    seconds: float


def bisect_versions(request: BisectRequest, progress: Progress, output: Path | None, say: Callable[[str], None]) -> Bisected:
    """Search. output: also keep the runs in this file. Raises UndecidedError if there is no answer, and what measuring raises."""
    began_ns = time.monotonic_ns()
    request_check.check(request)
    with ExitStack() as stack:
        state = SearchState(request, say)
        keep = _numbered(stack.enter_context(keeping(output, say)), request.versions.labels)
        lab: _VersionLab | FleetLab
        if request.fleet is not None:
            lab = FleetLab(request, request.fleet, state, progress, keep, stack)
        else:
            kind = _Several if request.metric in metrics.OF_SEVERAL else _VersionLab
            lab = stack.enter_context(kind(request, state, progress, keep))
        count = len(request.versions.labels)
        try:
            question = lab.question()
            if isinstance(lab, FleetLab):
                searched = search.search_at_once(count, lab.ask, lab.width, question, request.every, progress.say, began_ns)
            else:
                searched = search.search(count, lab.look, question, request.every, progress.say, began_ns)
        except Unanswered as error:
            raise UndecidedError(str(error)) from None
        except MemprofError:
            state.try_again()
            raise
        phases = tuple(lab.first_phase(step) for step in searched.steps)
        peaks = tuple(lab.peak_phases(step) for step in searched.steps)
        also = tuple(lab.also(step) for step in searched.steps)
        sides = tuple((lab.explained(step.before), lab.explained(step.at)) for step in searched.steps if request.explain)
        undoing = tuple(lab.undoing(step) if request.explain else None for step in searched.steps)
    state.forget()
    return Bisected(request.versions, question, searched, phases, peaks, also, sides, undoing, (time.monotonic_ns() - began_ns) / 1e9)


def _numbered(keep: Keep, labels: Sequence[str]) -> Keep:
    """Keeps each run with the place of its version: a search measures the ends first, and reports show versions as they came."""
    numbers = {label: number for number, label in enumerate(labels)}

    def kept(line: bytes) -> None:
        run = store.decode(line, "a run of the search")
        keep(store.encode(replace(run, job=replace(run.job, version_number=numbers.get(run.job.version or "")))))

    return kept


class _VersionLab:
    """Opens versions and measures them. At most `_OPEN` builds are held at a time; the one that was used least recently goes first."""

    def __init__(self, request: BisectRequest, state: SearchState, progress: Progress, keep: Keep) -> None:
        self._request, self._state, self._progress, self._keep = request, state, progress, keep
        self._open: dict[int, tuple[ExitStack, Suite]] = {}
        self._used: dict[int, int] = {}
        self._place: VariantKey | None = None
        self._question: FigureQuestion | None = None

    def __enter__(self) -> _VersionLab:
        return self

    def __exit__(self, *error: object) -> None:
        with ExitStack() as stack:
            for opened, _ in self._open.values():
                stack.callback(opened.close)

    # -- the question

    def question(self) -> FigureQuestion:
        """The row to follow: that of the model and variant that were named, or that which differs most between the ends."""
        count = len(self._request.versions.labels)
        good = self._first_runs(range(count), "good")
        bad = self._first_runs(range(count - 1, 0, -1), "bad")
        self._place, row = followed(self._request, good, bad, self._progress.say)
        bound = good[self._place][0].machine.peak_bound_bytes
        self._question = FigureQuestion(row.key, row.phase, row.metric, bound, self._request.limits)
        return self._question

    def _first_runs(self, places: range, word: str) -> dict[VariantKey, list[Run]]:
        """Runs of all places at an end, or at the next version inside if that cannot be measured."""
        for number in list(places)[: search.MOST_ENDS]:
            runs = self._runs(number, FIRST, None)
            if isinstance(runs, Unable):
                label = self._request.versions.labels[number]
                self._progress.say(f"{label} cannot be the {word} end: {runs.reason}")
                self._note(number, runs.reason)
                continue
            return by_place(runs)
        raise InputError(f"no version near the {word} end can be measured: {next(iter(self._state.failures.values()))}")

    # -- measuring

    def look(self, number: int, repeats: int) -> tuple[float, ...] | Unable:
        """That many more figures of a version."""
        assert self._place is not None and self._question is not None
        label = self._request.versions.labels[number]
        if label in self._state.failures:
            return Unable(self._state.failures[label])
        used = self._used.get(number, 0)
        runs = self._runs(number, used + repeats, self._place)
        if isinstance(runs, Unable):
            self._note(number, runs.reason)
            return runs
        self._used[number] = used + repeats
        wanted = metrics.metric(self._question.metric)
        values = [metrics.value(run, self._question.phase, wanted) for run in runs[used : used + repeats]]
        if None in values:
            self._note(number, f"it has no {self._question.metric} in {self._question.phase}")
            return Unable(self._state.failures[label])
        return tuple(value for value in values if value is not None)

    def _note(self, number: int, reason: str) -> None:
        self._state.failed(self._request.versions.labels[number], reason)

    def _runs(self, number: int, repeats: int, place: VariantKey | None) -> list[Run] | Unable:
        """That many runs of a version at one place, or at each of the given places, those of an earlier memprof first."""
        label = self._request.versions.labels[number]
        if label in self._state.failures:
            return Unable(self._state.failures[label])
        known = self._state.runs.setdefault(label, [])
        have = [run for run in known if place is None or place_of(run.job) == place]
        fewest = min((sum(place_of(run.job) == other for run in have) for other in {place_of(run.job) for run in have}), default=0)
        if fewest < repeats:
            try:
                orders = self._orders(number, place)
            except MemprofError as error:
                return Unable(str(error))
            again = [measurement.again(order, label, number) for number in range(fewest + 1, repeats + 1) for order in orders]
            for run in campaign.measure(again, self._progress, self._kept):
                known.append(run)
                have.append(run)
        failed = next((run for run in have if not run.outcome.ok), None)
        return Unable(f"its run failed: {failed.outcome.sentence}") if failed is not None else have

    def _kept(self, line: bytes) -> None:
        self._state.keep(line)
        self._keep(line)

    def _orders(self, number: int, place: VariantKey | None) -> list[Order]:
        """The orders of one repeat of a version. Raises MemprofError if the version cannot be made, or lacks the place."""
        return measurement.orders(self._suite(number), Selection(self._request.model, self._request.variant, place))

    def _suite(self, number: int) -> Suite:
        if number not in self._open:
            while len(self._open) >= _OPEN:
                oldest = next(iter(self._open))
                self._open.pop(oldest)[0].close()
            with ExitStack() as stack:
                suite = stack.enter_context(self._request.versions.open(number, self._progress.say))
                self._open[number] = stack.pop_all(), suite
        self._open[number] = self._open.pop(number)
        return self._open[number][1]

    # -- why

    def first_phase(self, step: VersionStep) -> str:
        """See step_sides.first_phase."""
        assert self._question is not None
        return first_phase(self._question, step, *self._both(step))

    def peak_phases(self, step: VersionStep) -> tuple[PeakPhases, PeakPhases]:
        """See step_sides.peak_phases."""
        assert self._question is not None
        return peak_phases(self._question, *self._both(step))

    def also(self, step: VersionStep) -> tuple[str, ...]:
        """See step_sides.also."""
        return also(self._request.versions, step, *self._both(step))

    def _both(self, step: VersionStep) -> tuple[list[Run], list[Run]]:
        """Runs of both sides, none of a side that cannot be measured any more."""
        before, after = (self._runs(number, 1, self._place) for number in (step.before, step.at))
        return [] if isinstance(before, Unable) else before, [] if isinstance(after, Unable) else after

    def explained(self, number: int) -> StepSide:
        """One side of a step, explained."""
        assert self._place is not None
        try:
            order = self._orders(number, self._place)[0]
            self._progress.say(f"{self._request.versions.labels[number]}: looking at it to explain the step")
            return StepSide(engine.explain(order, self._progress, lambda line: None), heap_record=self._heap_record(number, order.job))
        except MemprofError as error:
            return StepSide(None, str(error))

    def _heap_record(self, number: int, job: Job) -> str:
        """Of what another command can start: a model, or a program that a commit's build has made, and none of a release's environment."""
        versions = self._request.versions
        is_known = job.runtime != COMMAND or versions.noun == "commit"
        return heap_record(job, heap_folder(versions.labels[number])) if is_known else ""

    def undoing(self, step: VersionStep) -> Undoing | None:
        """The smallest setting of the newer side that undoes a step for the worse."""
        question, place = self._question, self._place
        assert question is not None and place is not None
        before, after = step.judged.base, step.judged.head
        if step.judged.verdict != "regressed" or question.metric in metrics.OF_SEVERAL or before is None or after is None:
            return None
        suite = self._suite(step.at)
        variant = next((variant for variant in variants_of(suite) if self._is_followed(suite, variant)), None)
        if variant is None or variant.command is not None:
            return None
        self._progress.say(f"{self._request.versions.labels[step.at]}: looking for a setting that undoes the step")
        return undo(suite, variant, before, after, question, self._progress, self._keep)

    def _is_followed(self, suite: Suite, variant: Variant) -> bool:
        try:
            orders = plan(replace(suite, variants=(variant,), runtimes=(), repeats=1)).orders
        except MemprofError:
            return False
        return any(place_of(order.job) == self._place for order in orders)


class _Several(_VersionLab):
    """Follows a figure that several processes give together: growth by a unit of work, or a term of a law.

    Each process of a verdict of growth is a sample, 0 where memory does not rise; each fitted law is one, 0 where memory does not depend on the
    term. A version without a verdict or a law is skipped.
    """

    def question(self) -> FigureQuestion:
        """The row of the only variant, or of that which was named. Raises UsageError where there are several, or the words mean no figure."""
        metric = self._request.metric
        orders = self._end_orders()
        places = list(dict.fromkeys(place_of(order.job) for order in orders))
        if len(places) > 1:
            there = "; ".join(f"{place.model}, {place.variant}" for place in places)
            raise UsageError(f"--metric {metric} follows one model and variant: --model and --variant name it; there are {there}")
        (self._place,) = places
        self._is_program = orders[0].job.runtime == COMMAND
        self._question = FigureQuestion(
            self._place.on(orders[0].place.machine().name), f"per {self._per(orders[0])}", metric, 0, self._request.limits
        )
        return self._question

    def _end_orders(self) -> list[Order]:
        errors = []
        for number in range(min(search.MOST_ENDS, len(self._request.versions.labels))):
            try:
                return self._orders(number, None)
            except MemprofError as error:
                errors.append(str(error))
                self._note(number, str(error))
        raise InputError(f"no version near the good end can be measured: {errors[0]}")

    def _per(self, order: Order) -> str:
        """The unit of growth, or the term of the law. Raises UsageError."""
        request = self._request
        if request.metric == metrics.GROWTH and order.job.runtime == COMMAND:
            request_check.check_growth_of_program(request)
            return next(iter(order.job.phase_regexes), _REQUEST if order.job.drive else request_check.ITERATION)
        if request.metric == metrics.GROWTH:
            return request.per or request_check.ITERATION
        scale.check(scale.request_of(order, request.vary))
        return request_check.law_term(request)

    def look(self, number: int, repeats: int) -> tuple[float, ...] | Unable:
        """That many more figures of a version."""
        label = self._request.versions.labels[number]
        used = self._used.get(number, 0)
        try:
            while len(self._state.values.get(label, ())) < used + repeats:
                if label in self._state.failures:
                    return Unable(self._state.failures[label])
                self._state.measured(label, self._samples(self._orders(number, self._place)[0], label))
        except MemprofError as error:
            self._note(number, str(error))
            return Unable(str(error))
        self._used[number] = used + repeats
        return tuple(self._state.values[label][used : used + repeats])

    def _both(self, step: VersionStep) -> tuple[list[Run], list[Run]]:
        """A program's words are whole only within its growth or its law, and its runs do not tell its packages."""
        return ([], []) if self._is_program else super()._both(step)

    def _samples(self, order: Order, label: str) -> list[float]:
        """One look at a version. Raises MeasurementError if it does not decide."""
        assert self._question is not None
        (variant,) = order.subject.variants
        subject = replace(order.subject, variants=(replace(variant, name=order.job.variant),), version=label)
        named = replace(order, subject=subject)
        per = self._question.phase.removeprefix("per ")
        if self._question.metric == metrics.GROWTH:
            asked = grow.request_of(named.subject, request_check.ITERATION if order.job.runtime == COMMAND else per)
            grown = grow.grow(asked, self._progress, self._keep)
            if grown.interrupted:
                raise KeyboardInterrupt
            if grown.verdict.word == "undecided":
                raise MeasurementError(f"its growth is undecided: {grown.verdict.reason}")
            return [process.slope if process.word == "grows" else 0.0 for process in grown.verdict.processes]
        answer = scale.scale(scale.request_of(named, self._request.vary), self._progress, self._keep)
        if answer.interrupted:
            raise KeyboardInterrupt
        if answer.law is None:
            raise MeasurementError(f"no simple law of its {answer.main} holds at {', '.join(self._request.vary)}")
        if answer.unbelievable:
            raise MeasurementError(f"the law of its {answer.main} is undecided: {answer.unbelievable}")
        held, others = coefficients.term(answer.law, per)
        if held is None and others:
            raise MeasurementError(f"the law of its {answer.main} has no term {per}, but {' and '.join(others)}")
        return [held.bytes if held is not None else 0.0]
