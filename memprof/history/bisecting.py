"""`bisect` from end to end: versions are opened and measured as the search asks for them, and both sides of what it finds are explained.

Every run is kept in the cache as soon as it exists, under the question's hash, and so is the reason why a version could not be measured. The same
question goes on where an earlier memprof was stopped, if machine, models and interpreters are those of then; once it is answered all is removed. If
an error ended the search, it tries anew what could not be measured: there may be a network or a tool now.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from .. import files
from ..cache import cache_folder
from ..errors import InputError, MeasurementError, MemprofError, UndecidedError, UsageError, near_or_all
from ..explain import engine
from ..explain.records import Explanation
from ..judge import baseline, coefficients, growing
from ..judge.baseline import Place
from ..judge.verdicts import Limits, judge_row
from ..measuring import campaign
from ..measuring.keeping import keeping
from ..measuring.order import Order
from ..measuring.orders import plan
from ..measuring.places.place import HERE
from ..measuring.progress import Progress
from ..measuring.suite import Suite, Variant, variants_of
from ..runs import metrics, settings, store, summary
from ..runs.records import COMMAND, PEAK, Job, Machine, Run
from ..seek import bisect, grow, scale
from ..seek.bisect import Question, Searched, Step, Unable, Unanswered
from ..units import counted
from .undoing import Undoing, undo
from .versions import Versions

_FIRST = 5  # repeats of each variant at both ends, to choose the variant to follow
_OPEN = 4  # builds held at a time; those that are not held may go from the cache
_AT = " @ "
_ITERATION = "iteration"


@dataclass(frozen=True)
class Request:
    """What is asked. variant, model: the place to follow, None for the one that differs most between the ends. explain: whether both sides are
    explained at the end. vary, per: of a law or of growth, see `_Several`."""

    versions: Versions
    metric: str = "rss_peak_bytes"
    phase: str | None = None
    model: str | None = None
    variant: str | None = None
    limits: Limits = field(default_factory=Limits)
    every: bool = False
    explain: bool = True
    vary: tuple[str, ...] = ()
    per: str | None = None


@dataclass(frozen=True)
class Side:
    """A side of a step, explained; why: the reason if it could not be."""

    explanation: Explanation | None
    why: str = ""


@dataclass(frozen=True)
class Bisected:
    """The answer. question: what was followed. phases: the first phase in which each step is seen. also: what else differs
    between both sides of each, such as a package that the release brought along. sides: of each step, explained before and
    after. undoing: what undoes each step for the worse, None where that was not asked or has no meaning. seconds: how long it took."""

    versions: Versions
    question: Question
    searched: Searched
    phases: tuple[str, ...]
    also: tuple[tuple[str, ...], ...]
    sides: tuple[tuple[Side, Side], ...]
    undoing: tuple[Undoing | None, ...]
    seconds: float


def bisect_versions(request: Request, progress: Progress, output: Path | None, say: Callable[[str], None]) -> Bisected:
    """Search. output: also keep the runs in this file. Raises UndecidedError if there is no answer, and what measuring raises."""
    began = time.monotonic()
    with ExitStack() as stack:
        state = _State(request, say)
        kind = _Several if request.metric in metrics.OF_SEVERAL else _Lab
        lab = stack.enter_context(kind(request, state, progress, stack.enter_context(keeping(output, say))))
        try:
            question = lab.question()
            searched = bisect.search(len(request.versions.labels), lab.look, question, request.every, progress.say)
        except Unanswered as error:
            raise UndecidedError(str(error)) from None
        except MemprofError:
            state.try_again()
            raise
        phases = tuple(lab.first_phase(step) for step in searched.steps)
        also = tuple(lab.also(step) for step in searched.steps)
        sides = tuple((lab.explained(step.before), lab.explained(step.at)) for step in searched.steps if request.explain)
        undoing = tuple(lab.undoing(step) if request.explain else None for step in searched.steps)
    state.forget()
    return Bisected(request.versions, question, searched, phases, also, sides, undoing, time.monotonic() - began)


@dataclass(frozen=True)
class _Conditions:
    """What figures of a search hold for: the machine, and the facts of `Versions`."""

    machine: Machine
    facts: dict[str, str]


class _State:
    """What is known of a question from an earlier memprof and from this one, in files of the cache."""

    def __init__(self, request: Request, say: Callable[[str], None]) -> None:
        asked = f"{request.versions.key} {request.metric} {request.phase} {request.model} {request.variant} {request.vary} {request.per}"
        stem = cache_folder("bisect") / hashlib.sha256(asked.encode()).hexdigest()[:32]
        self._runs_path, self._failures_path, self._values_path, self._conditions_path = (
            stem.with_suffix(end) for end in (".jsonl", ".json", ".values.json", ".conditions.json")
        )
        self.runs: dict[str, list[Run]] = {}
        self.failures: dict[str, str] = {}
        self.values: dict[str, list[float]] = {}
        self._under(_Conditions(HERE.machine(), dict(request.versions.facts)), say)
        with suppress(OSError, msgspec.DecodeError):
            self.failures = msgspec.json.decode(self._failures_path.read_bytes(), type=dict[str, str])
        with suppress(OSError, msgspec.DecodeError):
            self.values = msgspec.json.decode(self._values_path.read_bytes(), type=dict[str, list[float]])
        if self._runs_path.exists() and self._runs_path.stat().st_size:
            for run in store.load([self._runs_path]).runs:
                label = run.job.variant.rpartition(_AT)[2]
                if run.outcome.ok or label in self.failures:
                    self.runs.setdefault(label, []).append(run)
        if self.runs or self.failures or self.values:
            kept, word = (self.values, "figure") if self.values else (self.runs, "run")
            many = counted(sum(map(len, kept.values())), word)
            say(f"goes on where the search was stopped: {many} of {counted(len(kept), request.versions.noun)} are known")

    def _under(self, now: _Conditions, say: Callable[[str], None]) -> None:
        """Forget what was measured under other conditions: its figures must not be set beside new ones."""
        then = None
        with suppress(OSError, msgspec.DecodeError):
            then = msgspec.json.decode(self._conditions_path.read_bytes(), type=_Conditions)
        if then is None:  # nothing was measured yet, or nobody knows under which conditions
            self.forget()
        elif (differs := settings.other_machine(then.machine, now.machine)) is not None:
            say(f"a search that was stopped is not continued: it was on another machine ({differs})")
            self.forget()
        elif changed := [name for name in {**then.facts, **now.facts} if then.facts.get(name) != now.facts.get(name)]:
            say(f"a search that was stopped is not continued: another since then: {', '.join(changed)}")
            self.forget()
        files.write(self._conditions_path, msgspec.json.encode(now))

    def keep(self, line: bytes) -> None:
        """Append a Run to the file."""
        store.Writer(self._runs_path, append=True).write(line)

    def failed(self, label: str, reason: str) -> None:
        """Note that a version cannot be measured."""
        self.failures[label] = reason
        files.write(self._failures_path, msgspec.json.encode(self.failures))

    def try_again(self) -> None:
        """Forget which versions cannot be measured."""
        self._failures_path.unlink(missing_ok=True)

    def measured(self, label: str, values: Sequence[float]) -> None:
        """Keep figures of a version that no run has alone."""
        self.values.setdefault(label, []).extend(values)
        files.write(self._values_path, msgspec.json.encode(self.values))

    def forget(self) -> None:
        """Remove the files: the question is answered."""
        for path in (self._runs_path, self._failures_path, self._values_path, self._conditions_path):
            path.unlink(missing_ok=True)


class _Lab:
    """Opens versions and measures them. At most `_OPEN` builds are held at a time; the one that was used least recently goes first."""

    def __init__(self, request: Request, state: _State, progress: Progress, keep: Callable[[bytes], None]) -> None:
        self._request, self._state, self._progress, self._keep = request, state, progress, keep
        self._open: dict[int, tuple[ExitStack, Suite]] = {}
        self._used: dict[int, int] = {}
        self._place: Place | None = None
        self._question: Question | None = None

    def __enter__(self) -> _Lab:
        return self

    def __exit__(self, *error: object) -> None:
        with ExitStack() as stack:
            for opened, _ in self._open.values():
                stack.callback(opened.close)

    # -- the question

    def question(self) -> Question:
        """The row to follow: that of the model and variant that were named, or that which differs most between the ends."""
        count = len(self._request.versions.labels)
        good = self._first_runs(range(count), "good")
        bad = self._first_runs(range(count - 1, 0, -1), "bad")
        rows = [{place: self._row(runs) for place, runs in side.items()} for side in (good, bad)]
        both = [place for place in rows[0] if place in rows[1]]
        if not both:
            raise InputError("the ends have no variant in common")
        limits, bound = self._request.limits, next(iter(good.values()))[0].machine.peak_bound_bytes
        if len(both) > 1:
            judged = {place: judge_row(rows[0][place], rows[1][place], bound, limits) for place in both}
            ways = ("regressed", "improved", "undecided", "ok")
            both.sort(key=lambda place: (ways.index(judged[place].verdict), -abs(judged[place].change or 0)))
            self._progress.say(
                f"{both[0][0]}, {both[0][1]} is followed: it differs most between the ends; --variant and --model name another"
            )
        self._place = both[0]
        row = rows[0][both[0]]
        self._question = Question(row.key, row.phase, row.metric, bound, limits)
        return self._question

    def _first_runs(self, places: range, word: str) -> dict[Place, list[Run]]:
        """Runs of all places at an end, or at the next version inside if that cannot be measured."""
        for number in list(places)[: bisect.MOST_ENDS]:
            runs = self._runs(number, _FIRST, None)
            if isinstance(runs, Unable):
                label = self._request.versions.labels[number]
                self._progress.say(f"{label} cannot be the {word} end: {runs.reason}")
                self._note(number, runs.reason)
                continue
            by_place: dict[Place, list[Run]] = {}
            for run in runs:
                by_place.setdefault(_place_of(run.job), []).append(run)
            return by_place
        raise InputError(f"no version near the {word} end can be measured: {next(iter(self._state.failures.values()))}")

    def _row(self, runs: Sequence[Run]) -> summary.Row:
        wanted = metrics.metric(self._request.metric)
        phases = summary.phases(runs)
        usual = PEAK if wanted.name in metrics.PEAKS else phases[-1]
        phase = self._request.phase or usual
        if phase not in (*phases, PEAK):
            raise UsageError(f"--phase {phase}: the runs have no such phase{near_or_all(phase, phases)}")
        values = tuple(value for run in runs if (value := metrics.value(run, phase, wanted)) is not None)
        if not values:
            raise UsageError(f"--metric {wanted.name}: {phase} has none; --phase names another phase")
        key = summary.key(runs[0])
        return summary.row(replace(key, variant=key.variant.rpartition(_AT)[0]), phase, wanted.name, values, True)

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

    def _runs(self, number: int, repeats: int, place: Place | None) -> list[Run] | Unable:
        """That many runs of a version at one place, or at each that is asked for, those of an earlier memprof first."""
        label = self._request.versions.labels[number]
        if label in self._state.failures:
            return Unable(self._state.failures[label])
        known = self._state.runs.setdefault(label, [])
        have = [run for run in known if place is None or _place_of(run.job) == place]
        fewest = min((sum(_place_of(run.job) == other for run in have) for other in {_place_of(run.job) for run in have}), default=0)
        if fewest < repeats:
            try:
                orders = self._orders(number, place)
            except MemprofError as error:
                return Unable(str(error))
            again = [_again(order, label, number) for number in range(fewest + 1, repeats + 1) for order in orders]
            for run in campaign.measure(again, self._progress, self._kept):
                known.append(run)
                have.append(run)
        failed = next((run for run in have if not run.outcome.ok), None)
        return Unable(f"its run failed: {failed.outcome.sentence}") if failed is not None else have

    def _kept(self, line: bytes) -> None:
        self._state.keep(line)
        self._keep(line)

    def _orders(self, number: int, place: Place | None) -> list[Order]:
        """The orders of one repeat of a version. Raises MemprofError if the version cannot be made, or lacks the place."""
        orders = list(plan(replace(self._suite(number), repeats=1)).orders)
        wanted = [order for order in orders if self._is_asked(order.job) and place in (None, _place_of(order.job))]
        failure = next((order.error for order in wanted if order.error is not None), None)
        if failure is not None:
            raise failure
        if not wanted:
            names = ", ".join(dict.fromkeys(f"{order.job.model.name}, {order.job.variant}" for order in orders))
            raise InputError(f"there is no such model and variant; there are {names}")
        return wanted

    def _is_asked(self, job: Job) -> bool:
        return self._request.model in (None, job.model.name) and self._request.variant in (None, job.variant)

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

    def first_phase(self, step: Step) -> str:
        """The first phase that moved by at least half of a step of PEAK; the question's own phase for any other."""
        assert self._question is not None and self._place is not None
        if self._question.phase != PEAK:
            return self._question.phase
        wanted = metrics.metric(self._question.metric)
        before, after = (self._runs(number, 1, self._place) for number in (step.before, step.at))
        if isinstance(before, Unable) or isinstance(after, Unable):
            return PEAK
        size = step.judged.difference or 0.0
        for phase in summary.phases(after):
            old, new = ([value for run in side if (value := metrics.value(run, phase, wanted)) is not None] for side in (before, after))
            if old and new and (statistics.median(new) - statistics.median(old)) * size >= size * size / 2:
                return phase
        return PEAK

    def also(self, step: Step) -> tuple[str, ...]:
        """The packages and settings that differ between both sides of a step, beside the version itself: `numpy 1.26 → 2.0`."""
        labels = self._request.versions.labels[step.before], self._request.versions.labels[step.at]
        sides = [self._runs(number, 1, self._place) for number in (step.before, step.at)]
        ways = [{} if isinstance(runs, Unable) else baseline.portable(settings.of_repeats(runs)) for runs in sides]
        return tuple(
            settings.change(name, was, now)
            for name, was, now in settings.differing(ways[0], ways[1])
            if name not in ("runtime version", "runtime", f"{settings.PACKAGE}{self._request.versions.subject}")
            # A runtime's package may have another name: litert is ai_edge_litert.
            and not (name.startswith(settings.PACKAGE) and (was, now) == labels)
        )

    def explained(self, number: int) -> Side:
        """One side of a step, explained."""
        assert self._place is not None
        try:
            order = self._orders(number, self._place)[0]
            if order.job.runtime == COMMAND:
                return Side(None, "the memory of a program is not explained; memprof heap record shows who allocated it")
            self._progress.say(f"{self._request.versions.labels[number]}: looking at it to explain the step")
            return Side(engine.explain(order, self._progress, lambda line: None))
        except MemprofError as error:
            return Side(None, str(error))

    def undoing(self, step: Step) -> Undoing | None:
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
        return any(_place_of(order.job) == self._place for order in orders)


class _Several(_Lab):
    """Follows a figure that several processes give together: growth by a unit of work, or a term of a law.

    Each process of a verdict of growth is a sample, 0 where memory does not rise; each fitted law is one, 0 where memory does not depend on the
    term. A version without a verdict or a law is skipped.
    """

    def question(self) -> Question:
        """The row of the only variant, or of that which was named. Raises UsageError where there are several, or the words mean no figure."""
        metric = self._request.metric
        orders = self._end_orders()
        places = list(dict.fromkeys(_place_of(order.job) for order in orders))
        if len(places) > 1:
            there = "; ".join(f"{model}, {variant}" for model, variant, _ in places)
            raise UsageError(f"--metric {metric} follows one model and variant: --model and --variant name it; there are {there}")
        if orders[0].command is not None:
            raise UsageError(f"--metric {metric} is of runtimes, and {orders[0].job.variant} is a program")
        (self._place,) = places
        key = summary.Key(*places[0], orders[0].place.machine().name)
        self._question = Question(key, f"per {self._per(orders[0])}", metric, 0, self._request.limits)
        return self._question

    def _end_orders(self) -> list[Order]:
        errors = []
        for number in range(min(bisect.MOST_ENDS, len(self._request.versions.labels))):
            try:
                return self._orders(number, None)
            except MemprofError as error:
                errors.append(str(error))
                self._note(number, str(error))
        raise InputError(f"no version near the good end can be measured: {errors[0]}")

    def _per(self, order: Order) -> str:
        """The unit of growth, or the term of the law. Raises UsageError."""
        request = self._request
        if request.metric == metrics.GROWTH:
            if request.vary:
                raise UsageError(f"--vary is for --metric {metrics.LAW}")
            if request.per not in (None, _ITERATION, growing.RELOAD):
                raise UsageError(f"--per {request.per}: growth is by iteration or by {growing.RELOAD}")
            return request.per or _ITERATION
        if not request.vary:
            raise UsageError(f"--metric {metrics.LAW} needs --vary: a dimension and its range, such as --vary batch=1..8")
        asked = scale.request_of(order, request.vary)
        scale.check(asked)
        return coefficients.held_term([dimension.label for dimension in asked.dimensions if dimension.varies], request.per)

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

    def _samples(self, order: Order, label: str) -> list[float]:
        """One look at a version. Raises MeasurementError if it does not decide."""
        assert self._question is not None
        named = f"{order.job.variant}{_AT}{label}"
        per = self._question.phase.removeprefix("per ")
        if self._question.metric == metrics.GROWTH:
            grown = grow.grow(replace(grow.request_of(order, per), variant=named), self._progress, self._keep)
            if grown.interrupted:
                raise KeyboardInterrupt
            if grown.verdict.word == "undecided":
                raise MeasurementError(f"its growth is undecided: {grown.verdict.reason}")
            return [process.slope if process.word == "grows" else 0.0 for process in grown.verdict.processes]
        answer = scale.scale(replace(scale.request_of(order, self._request.vary), variant=named), self._progress, self._keep)
        if answer.interrupted:
            raise KeyboardInterrupt
        if answer.law is None:
            raise MeasurementError(f"no simple law of its {answer.main} holds at {', '.join(self._request.vary)}")
        held, others = coefficients.term(answer.law, per)
        if held is None and others:
            raise MeasurementError(f"the law of its {answer.main} has no term {per}, but {' and '.join(others)}")
        return [held.bytes if held is not None else 0.0]


def _place_of(job: Job) -> Place:
    return job.model.name, job.variant.rpartition(_AT)[0] if _AT in job.variant else job.variant, job.threads


def _again(order: Order, label: str, repeat: int) -> Order:
    """The order as a repeat of a version, whose runs no file takes for those of another version."""
    return replace(order, job=replace(order.job, variant=f"{order.job.variant}{_AT}{label}", repeat=repeat))
