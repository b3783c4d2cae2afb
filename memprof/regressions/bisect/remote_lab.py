"""Versions on the machines of a fleet: those of a turn are measured at once, each on one machine, beside the ends as that machine has them.

What is compared is therefore always of one machine. A machine that has measured the ends in this search is not asked for them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from ...base.errors import InputError, UsageError
from ...campaign.fleet.payload import SearchTrial
from ...campaign.fleet.search_client import ComparisonResult, Machines
from ...campaign.progress import Keep, Progress
from ...records import metrics
from ...records.summary import PeakPhases, VariantKey, place_of
from ...records.types import Run
from ...versions import measurement
from ...versions.measurement import Selection
from . import search
from .bisect_request import BisectRequest, SearchState, StepSide
from .search import FigureQuestion, Figures, RepeatCounts, Unable, VersionStep
from .step_sides import FIRST, also, first_phase, followed, peak_phases
from .undo_search import Undoing

_MOST_AT_ONCE = 8  # a turn of so many versions leaves a ninth of the range


class FleetLab:
    """Measures the versions of a question on a fleet. width: how many versions a turn has. Raises UsageError for what a fleet cannot answer."""

    def __init__(
        self, request: BisectRequest, fleet: Machines, state: SearchState, progress: Progress, keep: Keep, stack: ExitStack
    ) -> None:
        if request.metric in metrics.OF_SEVERAL:
            raise UsageError(f"--metric {request.metric} is measured on this machine only, not on a fleet")
        fleet.check_hosts()
        which = Selection(request.model, request.variant)
        assert request.versions.travels is not None
        self._travelling = stack.enter_context(request.versions.travels(which, progress.say))
        self._request, self._fleet, self._state, self._progress, self._keep = request, fleet, state, progress, keep
        self._labels = request.versions.labels
        self._place: VariantKey | None = None
        self._question: FigureQuestion | None = None
        state.runs = _of_whole_comparisons(state.runs)
        self.width = max(1, min(fleet.width, _MOST_AT_ONCE, len(self._labels) - 2))

    def question(self) -> FigureQuestion:
        """The row to follow. Each machine of a turn measures both ends meanwhile. Raises InputError if there are none."""
        if self._travelling.several:
            self._place, _ = self._followed(FIRST, 1)
        self._place, self._question = self._followed(search.ENDS, self.width)
        return self._question

    def _followed(self, repeats: int, machines: int) -> tuple[VariantKey, FigureQuestion]:
        """The place to follow, and the question there, after so many machines have measured both ends."""
        ends = self._ends(repeats, machines)
        machine = self._machine_with(ends)
        assert machine is not None
        good, bad = (measurement.by_place(self._runs(machine, number)) for number in sorted(ends))
        place, row = followed(self._request, good, bad, self._progress.say)
        return place, FigureQuestion(row.key, row.phase, row.metric, good[place][0].machine.peak_bound_bytes, self._request.limits)

    def _ends(self, repeats: int, machines: int) -> RepeatCounts:
        """Both ends that can be measured. Raises InputError if there are none."""
        sides = {
            "good": list(range(len(self._labels)))[: search.MOST_ENDS],
            "bad": list(range(len(self._labels) - 1, 0, -1))[: search.MOST_ENDS],
        }
        while True:
            for word, places in sides.items():
                if not places:
                    raise InputError(f"no version near the {word} end can be measured: {next(iter(self._state.failures.values()))}")
            ends = {places[0]: repeats for places in sides.values()}
            if len(ends) < 2:
                raise InputError("there is no second version that can be measured")
            (answer, *_) = self._measured([ends] * machines)
            if not isinstance(answer, Unable):
                return ends
            for word, places in sides.items():
                if answer.number in places:
                    self._progress.say(f"{self._labels[answer.number]} cannot be the {word} end: {answer.reason}")
                    places.remove(answer.number)

    # -- measuring

    def ask(self, wants: Sequence[RepeatCounts]) -> list[Figures | Unable]:
        """See search.Ask."""
        return [self._figures(wanted, answer) for wanted, answer in zip(wants, self._measured(wants), strict=True)]

    def _measured(self, wants: Sequence[RepeatCounts], again: bool = True) -> list[str | Unable]:
        """For each of these the machine that has it all, after what is missing was measured. What is wanted twice is measured by two machines.

        Raises InputError if the fleet cannot measure versions that it could measure before.
        """
        missing = [
            number
            for number, wanted in enumerate(wants)
            if not self._unable(wanted) and (self._machine_with(wanted) is None or wants.count(wanted) > 1)
        ]
        given_up: dict[int, str] = {}
        asked = [self._asked(wants[number]) for number in missing]
        for place, answer in self._fleet.measure(asked, self._progress, self._kept) if asked else ():
            self._take(answer)
            if answer.why:
                given_up[missing[place]] = answer.why
        answers: list[str | Unable] = []
        for number, wanted in enumerate(wants):
            found = self._unable(wanted) or self._machine_with(wanted) or self._blamed(wanted, given_up.get(number, ""), again)
            answers.append(found)
        return answers

    def _blamed(self, wanted: RepeatCounts, why: str, again: bool) -> str | Unable:
        """The version that is to blame for a comparison that was given up: the only one of it that no machine ever measured."""
        fresh = [number for number in wanted if self._machine_with({number: 1}) is None]
        if len(fresh) == 1 and why:
            self._note(fresh[0], why)
            return Unable(why, fresh[0])
        if not fresh or not again:
            raise InputError(why or "a machine of the fleet did not answer every question")
        alone = self._measured([{number: wanted[number]} for number in fresh], again=False)
        unable = next((answer for answer in alone if isinstance(answer, Unable)), None)
        return unable or self._measured([wanted], again=False)[0]

    def _asked(self, wanted: RepeatCounts) -> SearchTrial:
        machines = {run.attempt.place for runs in self._state.runs.values() for run in runs if run.attempt is not None}
        missing_at = {machine: self._missing(wanted, machine) for machine in machines}
        return self._travelling.asked(self._missing(wanted, ""), missing_at, self._place)

    def _missing(self, wanted: RepeatCounts, machine: str) -> dict[str, tuple[int, ...]]:
        """The repeats that a machine must measure, beside those that it has, by the versions' labels."""
        return {self._labels[number]: tuple(range(self._have(machine, number) + 1, count + 1)) for number, count in wanted.items()}

    def _kept(self, line: bytes) -> None:
        self._state.keep(line)
        self._keep(line)

    def _take(self, answer: ComparisonResult) -> None:
        """Note the runs of a comparison that is complete, or which versions cannot be made."""
        for run in answer.runs if answer.complete else ():
            label = run.job.version or ""
            if run.outcome.ok:
                self._state.runs.setdefault(label, []).append(run)
            elif label not in self._state.failures:
                self._state.failed(label, f"its run failed: {run.outcome.sentence}")
        for label, reason in answer.unmade.items():
            self._state.failed(label, reason)

    # -- what is known

    def _note(self, number: int, reason: str) -> None:
        self._state.failed(self._labels[number], reason)

    def _unable(self, wanted: RepeatCounts) -> Unable | None:
        failures = self._state.failures
        return next((Unable(failures[self._labels[number]], number) for number in wanted if self._labels[number] in failures), None)

    def _runs(self, machine: str, number: int) -> list[Run]:
        """The runs of a version on a machine by its name, at the place that is followed, at each while none is chosen."""
        return [
            run
            for run in self._state.runs.get(self._labels[number], ())
            if run.attempt is not None and run.attempt.place == machine and self._place in (None, place_of(run.job))
        ]

    def _have(self, machine: str, number: int) -> int:
        """How many repeats of a version a machine has."""
        return min(map(len, measurement.by_place(self._runs(machine, number)).values()), default=0)

    def _machine_with(self, wanted: RepeatCounts) -> str | None:
        """The machine that has that many runs of each version, the first of several; None if there is none."""
        machines = dict.fromkeys(
            run.attempt.place for number in wanted for run in self._state.runs.get(self._labels[number], ()) if run.attempt is not None
        )
        return next(
            (machine for machine in machines if all(self._have(machine, number) >= count for number, count in wanted.items())), None
        )

    def _figures(self, wanted: RepeatCounts, machine: str | Unable) -> Figures | Unable:
        assert self._question is not None
        if isinstance(machine, Unable):
            return machine
        metric, figures = metrics.metric(self._question.metric), {}
        for number in wanted:
            values = [metrics.value(run, self._question.phase, metric) for run in self._runs(machine, number)]
            if None in values:
                self._note(number, f"it has no {self._question.metric} in {self._question.phase}")
                return Unable(self._state.failures[self._labels[number]], number)
            figures[number] = tuple(value for value in values if value is not None)
        return figures

    # -- why

    def _both(self, step: VersionStep) -> Iterator[list[Run]]:
        """The runs of both sides on one machine."""
        machine = self._machine_with({step.before: 1, step.at: 1}) or ""
        yield from (self._runs(machine, number) for number in (step.before, step.at))

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

    def explained(self, number: int) -> StepSide:
        """That a side is not explained."""
        alone = {
            "commit": "bisect of the two commits on one of its machines, without --on, explains it",
            "release": "memprof explain with each release on one of its machines is",
        }
        return StepSide(None, f"a step that a fleet found is not explained; {alone[self._request.versions.noun]}")

    def undoing(self, step: VersionStep) -> Undoing | None:
        """None: no setting is looked for."""
        return None


def _of_whole_comparisons(known: Mapping[str, Sequence[Run]]) -> dict[str, list[Run]]:
    """The runs of an earlier memprof without those of comparisons that it did not see to their ends."""
    counts = Counter((run.attempt.comparison, run.attempt.number) for runs in known.values() for run in runs if run.attempt is not None)

    def is_whole(run: Run) -> bool:
        return run.attempt is not None and counts[run.attempt.comparison, run.attempt.number] >= run.attempt.runs

    return {label: list(filter(is_whole, runs)) for label, runs in known.items()}
