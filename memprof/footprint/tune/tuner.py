"""The settings of a runtime or a program with the least peak: measures the settings that `search` asks for, and verifies the best.

Every measurement is a Run in a runs file, so that a search that was stopped is taken up again from it and every report works on it.
The figures of a proposal are not those that the search saw: they are of fresh runs of the default and of each proposal, interleaved.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ...base.errors import InputError, MeasurementError, UsageError
from ...base.leftovers import scratch
from ...base.units import counted, format_bytes, format_duration
from ...campaign import campaign
from ...campaign.fleet.message import SearchRequest
from ...campaign.fleet.payload import SearchTrial
from ...campaign.fleet.search_client import Machines
from ...campaign.outputs import Outputs
from ...campaign.progress import Keep, Progress, Quiet
from ...places.place import HERE
from ...records import metrics, store
from ...records.metrics import BYTES
from ...records.modes import middle
from ...records.summary import late_rise_bytes, timed_phase
from ...records.types import COMMAND, EXECUTE, PEAK, RUN, Run
from ...subjects.order import Order, assumed_words, shapes_that_run
from ...subjects.suite import DEFAULTS, MS, Suite
from ..next_commands import fit_line, gate_line
from .answer import (
    ENV,
    ITERATION,
    VERIFYING_REPEATS,
    LeftOut,
    Recommendation,
    Tuned,
    TunedRuntimes,
    TuneRequest,
    apart,
    best_of,
    command_of,
    offer_of,
    rivals,
    shown,
)
from .candidates import FIRST
from .search import DEFAULT, Search, Settings, Trial
from .subject import Iterations, Subject, subject_of

# Of the default's first trial and of each trial where an iteration takes long, of other trials, and of fresh runs where an iteration is short. A peak
# is reached by the second iteration: ONNX Runtime 1.32 plans its block of activations by what the first asked for.
_BRIEF, _USUAL, _EXACT = Iterations(1, 1), Iterations(2, 5), Iterations(2, 10)
_LONG_ITERATION_NS = 500 * MS
# Trials of the best values together that a search which is too short for all values has time for, and the part of its time for the fresh runs.
_TOGETHER, _VERIFYING_SHARE = 4, 1 / 3
# A setting that takes this many times as long as the default (but half a minute at least) is taken to hang.
_PATIENCE, _LEAST_PATIENCE_NS = 20, 30 * 1000 * MS


# Settings, their Run or why the fleet gave it up, None if the time was up; and how long that took in ns.
_Measured = tuple[Settings, Run | str | None, int]


def tune(request: TuneRequest, progress: Progress, keep: Keep, earlier: Sequence[Run] = ()) -> Tuned:
    """Search and verify. Each Run is given to `keep`. earlier: the runs of a search that was stopped.

    Raises UsageError or InputError for a fault of the request, MeasurementError if the default itself fails. KeyboardInterrupt ends the search,
    not the answer: its proposals are then returned unverified.
    """
    return _Tuner(request, progress, keep).run(earlier)


def tune_each(requests: Sequence[TuneRequest], progress: Progress, keep: Keep, earlier: Sequence[Run] = ()) -> TunedRuntimes:
    """The searches of several runtimes, one after another; they share the time of the first request. earlier: their runs, of all of them.

    The default settings of each are measured once before that: a runtime that could not try one value in its share leaves it to the others.
    Raises as `tune` does, but MeasurementError only where the default settings of every runtime fail.
    """
    answers: list[Tuned] = []
    failed: dict[str, str] = {}
    tuners: dict[str, _Tuner] = {}
    end_ns, interrupted = time.monotonic_ns() + requests[0].time_ns, False
    for request in requests:
        name = request.suite.only.runtime
        tuner = _Tuner(replace(request, prefix=f"{name} ", time_ns=requests[0].time_ns // len(requests)), progress, keep)
        progress.say(f"{name}: the default settings first")
        try:
            tuner.begin([run for run in earlier if run.job.variant.startswith(f"{name} ")])
            tuners[name] = tuner
        except MeasurementError as error:
            failed[name] = str(error)
            progress.say(f"{name} is left out: {error}")
    searched = _that_can_search(tuners, end_ns - time.monotonic_ns(), progress)
    for name, tuner in sorted(tuners.items(), key=lambda pair: pair[0] in searched):
        left_ns = max(0, end_ns - time.monotonic_ns())
        if name in searched:
            share_ns = left_ns // (len(searched) - sum(answer.runtime in searched for answer in answers))
            progress.say(f"{name}: searching for {format_duration(share_ns)}{tuner.untried_words(share_ns)}")
        else:
            share_ns = 0
        try:
            answers.append(replace(tuner.run_for(share_ns), runtime=name))
        except MeasurementError as error:
            failed[name] = str(error)
        except KeyboardInterrupt:
            if not answers:
                raise
            interrupted = True
        if interrupted or (answers and answers[-1].interrupted):
            break
    if not answers:
        raise MeasurementError("; ".join(failed.values()))
    interrupted = interrupted or answers[-1].interrupted
    answers.sort(key=lambda answer: list(tuners).index(answer.runtime))
    return TunedRuntimes(tuple(answers), failed, interrupted)


def _that_can_search(tuners: Mapping[str, _Tuner], left_ns: int, progress: Progress) -> set[str]:
    """The runtimes that can try one value at least in an equal share of the time. The slowest leave their shares to the others, and `progress` gets
    the reason."""
    searched = dict(sorted(tuners.items(), key=lambda pair: pair[1].least_ns()))
    while searched:
        name, slowest = list(searched.items())[-1]
        share_ns = max(0, left_ns) // len(searched)
        if slowest.least_ns() <= share_ns:
            break
        del searched[name]
        needed = f"one value takes {format_duration(slowest.least_ns())} and its share is {format_duration(share_ns)}"
        why = needed if share_ns else "the time is up"
        progress.say(f"{name}: its default settings alone are measured, as {why}; a longer --time searches it")
    return set(searched)


class _Tuner:
    def __init__(self, request: TuneRequest, progress: Progress, keep: Keep) -> None:
        self._request, self._progress, self._keep_run = request, progress, keep
        # release: neither the peak nor the latency is in it
        self._subject: Subject = subject_of(replace(request, suite=replace(request.suite, repeats=1, release=False)))
        self._model, self._suite = self._subject.model, self._subject.suite
        if not self._subject.is_program and request.suite.runs == 0:
            raise UsageError("--runs 0: tune compares the time of iterations, so that 1 is the least")
        self._search = Search(self._subject.candidates, request.goal, needs=self._subject.needs, first=FIRST)
        self._default = self._order(DEFAULT, self._name(DEFAULT)).job
        self._version: str | None = None  # of the runtime, on a fleet
        self._sentences: dict[Settings, str] = {}
        self._tried: list[tuple[Settings, Run]] = []
        self._begin_ns = time.monotonic_ns()
        self._took_ns: list[int] = []
        self._took_by: dict[Settings, int] = {}

    def run(self, earlier: Sequence[Run]) -> Tuned:
        self._take_up_all(earlier)
        return self._searched()

    def begin(self, earlier: Sequence[Run]) -> None:
        """Take up the earlier runs, and measure the default settings once if none of these did. Raises as `tune` does."""
        self._take_up_all(earlier)
        if not self._search.of(DEFAULT):
            with scratch("tune") as work:
                self._outputs = Outputs(work.folder / "outputs.npz", work.folder / "default.npz")
                self._try([DEFAULT], None)

    def run_for(self, time_ns: int) -> Tuned:
        """Search and verify after `begin`, for so long from now on."""
        self._request = replace(self._request, time_ns=time_ns)
        self._begin_ns = time.monotonic_ns()
        return self._searched()

    def _take_up_all(self, earlier: Sequence[Run]) -> None:
        if assumed := assumed_words(self._default):
            self._progress.say(assumed)
        for run in earlier:
            self._check_machine(run)
        left_out = sum(not self._take_up(run) for run in earlier)
        if left_out:
            self._progress.say(f"{counted(left_out, 'run')} of the -o file left out: their settings are none that this search tries")
        if (sentence := self._sentences.get(DEFAULT)) is not None:
            raise InputError(f"the default settings fail in the -o file: {sentence}; name another")
        if self._search.trials:
            self._progress.say(f"going on after {counted(len(self._search.trials), 'trial')}")

    def _searched(self) -> Tuned:
        with scratch("tune") as work:
            self._outputs = Outputs(work.folder / "outputs.npz", work.folder / "default.npz")
            complete, verified, interrupted = False, dict[Settings, list[Run]](), False
            try:
                complete = self._explore()
                verified = self._verify()
            except KeyboardInterrupt:
                if not self._search.of(DEFAULT):
                    raise
                interrupted = True
                self._progress.say("interrupted: the proposals that follow were not verified")
            return replace(self._tuned(verified, complete), interrupted=interrupted)

    # -- searching

    def _explore(self) -> bool:
        """Measure the settings that the search asks for. False if the time is up first."""
        fleet, begins = self._request.fleet, True
        while wanted := self._search.ask_several(fleet.width if fleet is not None else 1, self._screens()):
            if fleet is not None and begins:  # goes on with an earlier search, whose outputs of the default are gone
                wanted, begins = wanted if DEFAULT in wanted else [DEFAULT], False
            known = bool(self._search.of(DEFAULT))
            spare_ns = self._left_ns() - self._verifying_ns()
            if known and spare_ns < self._usual_ns():
                return False
            if not self._try(wanted, int(spare_ns) if known else None):
                return False
            if not known:
                self._progress.say(self._plan_words())
        return True

    def _screens(self) -> bool:
        """Whether there is time to try a further value by itself: not while the best ones known would lack the time to be tried together."""
        spare_ns = self._left_ns() - self._verifying_ns()
        return not self._search.proposals() or spare_ns >= (_TOGETHER + 1) * self._usual_ns()

    def _try(self, wanted: Sequence[Settings], most_ns: int | None) -> bool:
        """Measure these settings and take the trials. most_ns: how much time there is, None for as much as they need. False if it was up first."""
        fleet, in_time = self._request.fleet, True
        trials = self._measured_here(wanted, most_ns) if fleet is None else self._measured_there(fleet, wanted, most_ns)
        for settings, run, took_ns in trials:
            late = isinstance(run, Run) and run.outcome.status == "timeout" and most_ns is not None and took_ns >= most_ns
            if run is None or late:
                in_time = False  # the time was up, which is no fault of these settings
                continue
            self._took_ns.append(took_ns)
            self._took_by[settings] = took_ns
            self._note(settings, run)
            sentence = self._sentences.get(settings)
            if settings == DEFAULT and sentence is not None:
                raise MeasurementError(f"{self._model.name}, {self._subject.name}: the default settings fail: {sentence}")
            self._progress.say(f"[{len(self._search.trials)}] {shown(settings)}: {self._costs(self._search.trials[-1], run)}")
        return in_time

    def _measured_here(self, wanted: Sequence[Settings], most_ns: int | None) -> Iterator[_Measured]:
        for settings in wanted:
            begin_ns = time.monotonic_ns()
            yield settings, self._measured(settings, most_ns), time.monotonic_ns() - begin_ns

    def _measured(self, settings: Settings, most_ns: int | None = None) -> Run:
        order = self._order(settings, self._name(settings))
        job = replace(order.job, repeat=self._repeats(settings) + 1)
        order = replace(order, job=replace(job, timeout_ns=self._patience_ns(job.timeout_ns, most_ns)))
        (run,) = self._compared([order])  # to its end: an interruption that meets an unfinished generator is lost
        return run

    def _measured_there(self, fleet: Machines, wanted: Sequence[Settings], most_ns: int | None) -> Iterator[_Measured]:
        """The same, each on another machine."""
        timeout_ns = self._patience_ns(self._suite.over(DEFAULTS).timeout_ns or 0, most_ns)
        reference = self._outputs.reference if self._outputs.reference.exists() else None
        repeats: Counter[Settings] = Counter()
        asked = []
        for settings in wanted:
            repeats[settings] += 1
            name, repeat = self._name(settings), self._repeats(settings) + repeats[settings]
            suite = replace(self._counted(self._iterations()), variants=(self._subject.variant(settings, name),), timeout_ns=timeout_ns)
            sought = SearchRequest(repeats={name: (repeat,)})
            if reference is not None:
                sought = replace(sought, outputs="compared")
            elif settings == DEFAULT and not self._subject.is_program:
                sought = replace(sought, outputs="sent")
            asked.append(SearchTrial(replace(suite, repeats=repeat), sought, reference=str(reference) if reference is not None else None))
        end_ns = time.monotonic_ns() + most_ns if most_ns is not None else None

        def late(runs: Sequence[Run]) -> bool:
            return end_ns is not None and time.monotonic_ns() > end_ns

        for number, answer in fleet.measure(asked, Quiet(self._progress, len(self._search.trials)), self._keep_run, late):
            settings, took_ns = wanted[number], int(answer.seconds * 1e9)
            if answer.complete:
                (run,) = answer.runs
                self._check_machine(run)
                if answer.outputs:
                    self._outputs.written.write_bytes(answer.outputs)
                    run = self._outputs.compared(run, True)
                yield settings, run, took_ns
            else:
                yield settings, answer.why or None, took_ns

    def _name(self, settings: Settings, number: int | None = None) -> str:
        """The name of the variant of these settings. number: of the proposal, whose runs are not those of the search."""
        return self._request.prefix + (f"#{number} " if number is not None else "") + shown(settings)

    def _repeats(self, settings: Settings) -> int:
        """How often these settings were measured."""
        return sum(trial.settings == settings for trial in self._search.trials)

    def _patience_ns(self, timeout_ns: int, most_ns: int | None) -> int:
        # The first trial, of the default, tells how long one takes: it may be as long as the search.
        limit = _PATIENCE * statistics.median(self._took_ns[:3]) if self._took_ns else self._request.time_ns
        return min(timeout_ns, int(max(limit, _LEAST_PATIENCE_NS)), most_ns or timeout_ns)

    def _compared(self, orders: Sequence[Order]) -> Iterator[Run]:
        """Measure. Each Run gets the distance of its outputs from the default's, those of the first default that succeeds."""
        asked = orders if self._subject.is_program else self._outputs.asked(orders)
        for run in campaign.measure(asked, Quiet(self._progress, len(self._search.trials)), lambda line: None):
            settings = run.job.knobs, run.job.threads, run.job.env
            run = self._outputs.compared(run, settings == (self._default.knobs, self._default.threads, self._default.env))
            self._keep_run(store.encode(run))
            yield run

    def _order(self, settings: Settings, name: str, verifies: bool = False) -> Order:
        return self._subject.order(settings, name, self._iterations(verifies))

    def _iterations(self, verifies: bool = False) -> Iterations:
        """The iterations of a trial, or of a fresh run; those that the request names, if it does."""
        short = bool(self._search.of(DEFAULT)) and self._search.base.time < _LONG_ITERATION_NS
        usual = (_EXACT if short else _USUAL) if verifies else (_USUAL if short else _BRIEF)
        warmup, runs = self._request.suite.warmup, self._request.suite.runs
        return Iterations(usual.warmup if warmup is None else warmup, usual.runs if runs is None else runs)

    def _counted(self, iterations: Iterations) -> Suite:
        """The suite with so many iterations, which a program has in its own words."""
        return self._suite if self._subject.is_program else replace(self._suite, warmup=iterations.warmup, runs=iterations.runs)

    def _check_machine(self, run: Run) -> None:
        """Raises InputError for a Run of a machine with which others of this search must not be compared."""
        fleet = self._request.fleet
        if fleet is None:
            if run.machine.arch != self._suite.place.machine().arch:
                raise InputError(f"the runs to go on with were measured on {run.machine.name} ({run.machine.arch}): name another -o file")
        elif run.attempt is None or not fleet.labels <= run.attempt.labels.items():
            raise InputError(
                f"the runs to go on with were measured on {run.machine.name}, no machine with {fleet.name}: name another -o file"
            )
        if fleet is not None and run.about is not None:
            version = run.about.runtime_version
            self._version = self._version or version
            if version != self._version:
                raise InputError(
                    f"{run.machine.name} has {self._subject.name} {version}, and a machine before it {self._version}: install one"
                )

    def _take_up(self, run: Run) -> bool:
        """Take an earlier Run as a trial. False if it has settings that this search does not try: a runs file must not name what is executed."""
        settings = self._subject.settings_of(run)
        if any(value not in self._subject.candidates.get(name, ()) for name, value in settings):
            return False
        if not run.job.verifies:
            self._note(settings, run)
        return True

    def _note(self, settings: Settings, run: Run | str) -> None:
        """Take a trial; one that the fleet gave up is a sentence, and failed."""
        if isinstance(run, str):
            self._search.tell(Trial(settings, None, None))
            self._sentences[settings] = run
            return
        self._tried.append((settings, run))  # first: what is searched with has a run, even if an interruption comes between the two
        self._search.tell(_trial(settings, run, self._request.tolerance))
        if not run.outcome.ok:
            self._sentences[settings] = run.outcome.sentence

    def _costs(self, trial: Trial, run: Run | str) -> str:
        if isinstance(run, str):
            return f"failed: {run}"
        if not trial.ok:
            return f"failed: {run.outcome.sentence}"
        costs = f"{format_bytes(trial.peak or 0)}, {format_duration(trial.time or 0)}"
        if self._search.of(DEFAULT) and trial.settings != DEFAULT:
            base = self._search.base
            costs += f" ({(trial.peak or 0) / base.peak:.0%} and {(trial.time or 0) / base.time:.0%} of the default's)"
        if run.output_error is not None and run.output_error > self._request.tolerance:
            costs += f", outputs differ by {run.output_error:.2g}"
        return costs

    # -- time

    def _left_ns(self) -> int:
        return self._request.time_ns - (time.monotonic_ns() - self._begin_ns)

    def least_ns(self) -> float:
        """How long it takes at least to try one value: its trial, and a fresh run of it and of the default. As long as nothing, where no trial of
        this search tells."""
        return self._usual_ns() + self._round_ns([DEFAULT, DEFAULT]) if self._took_ns else 0

    def untried_words(self, time_ns: int) -> str:
        """What a search of this length will not try, as the end of a sentence; empty if it tries each value, or no trial tells."""
        usual_ns, values = self._usual_ns(), len(self._search.untried())
        if not usual_ns:
            return ""
        spare_ns = time_ns - self._reserve_ns(self._round_ns([DEFAULT, DEFAULT]), time_ns)
        tried = max(1, int(spare_ns // usual_ns) - _TOGETHER)
        return f": about {tried} of {counted(values, 'value')} can be tried, first those that usually save most" if tried < values else ""

    def _plan_words(self) -> str:
        """How long it takes to try each value by itself, and how many there is time for, as a sentence."""
        values = len(self._search.untried())
        width = self._request.fleet.width if self._request.fleet is not None else 1
        whole = f"{counted(values, 'value')} to try, which takes about {format_duration(values * self._usual_ns() / width)}"
        return whole + self.untried_words(self._left_ns())

    def _verifying_ns(self) -> float:
        """How long it will take to verify the proposals of this moment."""
        if not self._took_ns:
            return 0
        wanted = self._verifiable(self._request.time_ns * _VERIFYING_SHARE)
        return self._reserve_ns(self._round_ns(wanted), self._request.time_ns)

    def _reserve_ns(self, round_ns: float, time_ns: int) -> float:
        """What of so much time is left to the fresh runs: as many rounds as a part of it holds, one at least."""
        rounds = int(time_ns * _VERIFYING_SHARE // max(round_ns, 1))
        return round_ns * max(1, min(rounds, VERIFYING_REPEATS))

    def _needed_ns(self) -> float:
        """How long a search takes that tries each value: with the part for the fresh runs, which is a round at least."""
        trials_ns = sum(self._took_ns) + (len(self._search.untried()) + _TOGETHER) * self._usual_ns()
        round_ns = self._round_ns(self._verifiable(self._request.time_ns * _VERIFYING_SHARE)) if self._took_ns else 0
        return trials_ns + max(round_ns, min(trials_ns * _VERIFYING_SHARE / (1 - _VERIFYING_SHARE), VERIFYING_REPEATS * round_ns))

    def _verifiable(self, time_ns: float) -> list[Settings]:
        """The default, and of the proposals the best by the goal, one at least: as many as so much time has one fresh run for. Least peak first."""
        points = sorted(self._search.proposals(), key=self._search.value)
        while len(points) > 1 and self._round_ns([DEFAULT, *(point.settings for point in points)]) > time_ns:
            points.pop()
        return [DEFAULT, *(point.settings for point in sorted(points, key=lambda point: point.peak))]

    def _usual_ns(self) -> float:
        return statistics.median(self._took_ns) if self._took_ns else 0

    def _round_ns(self, wanted: Sequence[Settings]) -> float:
        """The time of a fresh run of each: as long as its trial took, and its further iterations, and a little more."""
        usual = self._usual_ns()
        points = {point.settings: point.time for point in self._search.points()}
        trial, fresh = self._iterations(), self._iterations(verifies=True)
        more = 0 if self._subject.is_program else fresh.warmup + fresh.runs - trial.warmup - trial.runs
        return 1.1 * sum(self._took_by.get(settings, usual) + more * points.get(settings, self._search.base.time) for settings in wanted)

    # -- verifying

    def _verify(self) -> dict[Settings, list[Run]]:
        """Fresh runs of the default and of each point, interleaved, in as many rounds as there is time for."""
        # If all trials are those of an earlier search, they do not tell how long they took.
        wanted, rounds = self._verifiable(self._left_ns() if self._took_ns else math.inf), VERIFYING_REPEATS
        if self._took_ns:
            rounds = max(1, min(rounds, int(self._left_ns() // max(self._round_ns(wanted), 1))))
        runs_each = f"{'at least ' if rounds < VERIFYING_REPEATS else ''}{counted(rounds, 'fresh run')} each"
        self._progress.say(f"verifying {counted(len(wanted) - 1, 'proposal')} against the default, {runs_each}, interleaved")
        orders = [self._order(settings, self._name(settings, number), verifies=True) for number, settings in enumerate(wanted)]
        verified: dict[Settings, list[Run]] = {settings: [] for settings in wanted}
        if self._request.fleet is not None:
            return self._verified_there(self._request.fleet, wanted, rounds)
        for repeat in range(1, VERIFYING_REPEATS + 1):  # more than expected, if the machine is less busy than while the trials ran
            begin_ns = time.monotonic_ns()
            round_orders = [replace(order, job=replace(order.job, repeat=repeat, verifies=True)) for order in orders]
            for settings, run in zip(wanted, self._compared(round_orders), strict=True):
                verified[settings].append(run)
            if self._left_ns() < time.monotonic_ns() - begin_ns:
                break  # there is no time for another round like this one
        return verified

    def _verified_there(self, fleet: Machines, wanted: Sequence[Settings], rounds: int) -> dict[Settings, list[Run]]:
        """The same as one comparison, on one machine; nothing if the fleet gives it up."""
        variants = tuple(self._subject.variant(settings, self._name(settings, number)) for number, settings in enumerate(wanted))
        suite = replace(self._counted(self._iterations(verifies=True)), variants=variants, repeats=rounds)

        def late(runs: Sequence[Run]) -> bool:
            return self._left_ns() < 0 and len(runs) >= len(wanted)

        asked = [SearchTrial(suite, SearchRequest(verifies=True, outputs="" if self._subject.is_program else "compared"))]
        ((_, answer),) = fleet.measure(asked, Quiet(self._progress, len(self._search.trials)), self._keep_run, late)
        if answer.why:
            self._progress.say(f"the proposals that follow were not verified: {answer.why}")
            return {}
        whole = len(answer.runs) // len(wanted)  # rounds
        return {settings: list(answer.runs[place :: len(wanted)][:whole]) for place, settings in enumerate(wanted)} if whole else {}

    def _tuned(self, verified: Mapping[Settings, Sequence[Run]], complete: bool) -> Tuned:
        failures = {settings: run.outcome.sentence for settings, runs in verified.items() for run in runs if not run.outcome.ok}
        sure = DEFAULT in verified and DEFAULT not in failures
        if sure:
            measured = [
                self._proposal(number, settings, runs)
                for number, (settings, runs) in enumerate(verified.items())
                if settings not in failures
            ]
        else:
            plain = self._search.plain()
            wanted = [DEFAULT, *(point.settings for point in self._search.proposals())]
            tried = {settings: [run for full, run in self._tried if plain.get(full) == settings] for settings in wanted}
            measured = [self._proposal(number, settings, runs) for number, (settings, runs) in enumerate(tried.items())]
        default, *others = measured
        goal = self._request.goal
        beaten = rivals(measured)
        standing = [proposal for proposal in others if proposal.number not in beaten]
        # Within a budget a faster one of the same time within noise may have less PEAK as well, by more settings.
        best = best_of(goal, default, standing if goal.budget is None else others)
        kept = [each for each in others if each in standing or each is best]
        left_out = [LeftOut(each.number, each.settings, rival=beaten[each.number]) for each in others if each not in kept]
        if sure:
            numbered = enumerate(verified)
            left_out += [LeftOut(number, each, error=failures[each]) for number, each in numbered if each in failures]
        next_subject = self._next_subject(offer_of(goal, default, kept, best) or default)
        return Tuned(
            model=self._model.name,
            runtime=self._subject.name,
            goal=goal,
            default=default,
            proposals=tuple(kept),
            best=best,
            idle=tuple(self._search.idle()),
            failed=tuple((settings, self._sentences.get(settings, "")) for settings in self._search.failed()),
            left_out=tuple(sorted(left_out, key=lambda each: each.number)),
            trials=len(self._search.trials),
            complete=complete,
            verified=sure,
            tolerance=self._request.tolerance,
            runs=tuple(run for runs in verified.values() for run in runs) if sure else tuple(self._plain_runs()),
            repeats=min(map(len, verified.values())) if sure else 0,
            threads=self._default.threads,
            shapes=shapes_that_run(self._default) or {},
            assumed=self._default.assumed,
            timed=_timed(verified[DEFAULT][0] if sure else self._tried[0][1]),
            compares=not self._subject.is_program,
            given=self._request.defaults,
            untried=len(self._search.untried()),
            within=(sum(point.peak <= (goal.budget or 0) for point in self._search.points()), len(self._search.points())),
            baseline=None if self._subject.is_program else _baseline(verified[DEFAULT] if sure else [run for _, run in self._tried]),
            values=sum(map(len, self._subject.candidates.values())),
            needed_ns=round(self._needed_ns()),
            beaten=tuple(self._search.beaten()),
            unverified=tuple(point for point in self._search.proposals() if sure and point.settings not in verified),
            gate_command=gate_line(*next_subject),
            fit_command=fit_line(*next_subject) if self._request.fleet is None and self._request.suite.place is HERE else "",
            time_noise=self._search.time_noise(),
        )

    def _next_subject(self, row: Recommendation) -> tuple[Suite, Order]:
        """The suite of the search with the settings of a row, and its order."""
        request, own = self._request, self._request.suite.only
        order = self._order(row.settings, shown(row.settings))
        if self._subject.is_program:
            return request.suite, order
        values = apart(row.settings, request.defaults)
        env = {name.removeprefix(ENV): value for name, value in {**request.defaults, **values.filled}.items()}
        variant = replace(own, set={**own.set, **values.knobs}, threads=values.threads or request.threads[:1], env={**own.env, **env})
        return replace(request.suite, variants=(variant,), runtimes=()), order

    def _plain_runs(self) -> Iterator[Run]:
        plain = self._search.plain()
        for settings, run in self._tried:
            yield replace(run, job=replace(run.job, variant=self._name(plain.get(settings, settings))))

    def _proposal(self, number: int, settings: Settings, runs: Sequence[Run]) -> Recommendation:
        trials = [_trial(settings, run, self._request.tolerance) for run in runs]
        peaks, times = tuple(trial.peak or 0.0 for trial in trials), tuple(trial.time or 0.0 for trial in trials)
        errors = [run.output_error for run in runs if run.output_error is not None]
        error = max(errors) if errors else None
        order = self._order(settings, shown(settings))
        threads = {"threads": str(order.job.threads)} if order.job.threads else {}
        return Recommendation(
            number=number,
            settings=settings,
            peak=middle(peaks, BYTES),
            time=statistics.median(times),
            peaks=peaks,
            times=times,
            output_error=error,
            changes_outputs=error is not None and error > self._request.tolerance,
            command=command_of(self._request, settings, order),
            variables=order.settings_env,
            calls=(
                *order.runtime.in_program({**threads, **dict(sorted(settings))}),
                *(f"{name.removeprefix(ENV)}={value} in the environment" for name, value in sorted(settings) if name.startswith(ENV)),
            ),
            late_rise_bytes=late_rise_bytes(runs),
        )


def _trial(settings: Settings, run: Run, tolerance: float) -> Trial:
    mark = run.mark(timed_phase([run]))
    rss = metrics.METRICS["rss_peak_bytes"]
    peak = metrics.value(run, PEAK, rss)
    time_ns: float | None = statistics.median(mark.times_ns) if mark is not None and mark.times_ns else None
    if run.job.runtime == COMMAND:
        execute = run.mark(EXECUTE)
        time_ns = execute.time_ns if execute is not None else sum(each.time_ns for each in run.marks) or None
    if not run.outcome.ok or peak is None or time_ns is None:
        return Trial(settings, None, None)
    phases = tuple(of_phase for mark in run.before_release if (of_phase := rss.of(mark)))
    return Trial(settings, peak, time_ns, run.output_error is not None and run.output_error > tolerance, phases)


def _baseline(runs: Sequence[Run]) -> float | None:
    """The median baseline in bytes of runs, None if none has one."""
    known = [value for run in runs if (value := metrics.baseline(run, metrics.METRICS["rss_peak_bytes"])) is not None]
    return statistics.median(known) if known else None


def _timed(run: Run) -> str:
    """What the time of a run is of: an iteration, or of a program the phase EXECUTE, or its whole life."""
    if run.job.runtime != COMMAND:
        return ITERATION
    return EXECUTE if run.mark(EXECUTE) is not None else RUN
