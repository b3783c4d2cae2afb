"""Does memory rise with use: repeats a work in several fresh processes, each longer than those before, until the verdict holds or the budget ends.

Each process follows its memory after each unit (runners/repeated.py). The processes of a round do the same, at other addresses. A round is
decided by memprof.verdicts.growth. Two kinds of processes may take turns in it, one with the same input and one with inputs that vary (see
kinds.py). A verdict that needs a longer run gets a round four times as long, as far as the budget goes. Growth is confirmed by such a round too, if
there is time and memory for it: the saw-tooth of a garbage collector looks like growth until its first tooth ends. With a budget in units it is
followed to the end of the budget: a cache looks like growth until it is full.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import MeasurementError, UsageError
from ...base.pairs import WITH_COMMAS, by_name
from ...base.units import capitalised, counted, format_bytes, parse_duration_ns
from ...campaign import campaign
from ...campaign.progress import Keep, Progress
from ...explain import growth as two_looks
from ...heap.growth_sites import Rises
from ...models import check_extents
from ...programs.commands import Command
from ...records import work
from ...records.settings import in_a_line
from ...records.store import units_done
from ...records.types import COMMAND, RELOAD, Run, Use
from ...subjects import orders
from ...subjects.drive import Drive
from ...subjects.order import Order, assumed_words
from ...subjects.suite import MS, Suite
from ...verdicts import growth, growth_inputs
from ...verdicts.growth_inputs import InputsVerdict
from ...verdicts.growth_outlook import CacheBound, Outlook, outlook
from .kinds import Kind, Wish, check_shapes, kinds_of

FIRST_UNITS, FACTOR = 2000, 4  # of the first round, and from one round to the next
_FIRST_CYCLES = 50
_MOST_SHAPES = 64
_BUDGET_NS = 300 * 1000 * MS
_ENDLESS = (1 << 31) - 1  # units of a run that ends by time
_REPORT_NS = 60 * 1000 * MS
_LOADING_NS = 600 * 1000 * MS  # beside the work, at most
_PATIENCE = 4  # times as long as a longer round should take
_SHARE_OF_MEMORY = 0.25  # of what is free, for a round that grows as expected
_IN_TIME = 0.9  # of its time: what ended sooner was not ended by time

TWO_KINDS = "Two kinds of processes shared the budget: --same or --fresh gives all of it to one, and a larger --budget gives both more."


class UnitBudget(Struct, frozen=True):
    """At most so many units per process and so much time in all; None for no such limit. With neither it is five minutes."""

    units: int | None = None
    time_ns: int | None = None


class GrowRequest(Struct, frozen=True):
    """The question: which work is repeated, and for how long at most.

    suite: of one model in a runtime, or of one program, which runs by itself; its phase_regexes are the lines that end a program's units,
    by unit. varied: the shapes that iterations take, with the seed of their order. cycles: "reload", None for iterations. soak_ns: one round,
    whose processes share so much time, and no other. wish: which inputs iterations get, None for what the suite says. processes: of each kind.
    folder, feeder: a folder of .npz files, or the words of a program, from which inputs come one after another.
    """

    suite: Suite
    varied: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    seed: int | None = None
    cycles: str | None = None
    budget: UnitBudget = UnitBudget()
    soak_ns: int | None = None
    processes: int = growth.LEAST_PROCESSES
    wish: Wish | None = None
    folder: str | None = None
    feeder: tuple[str, ...] = ()

    @property
    def sized(self) -> bool:
        """Whether a program takes its number of units from memprof: by a word of its command, or by memprof's requests."""
        return self.suite.drive is not None or (self.command is not None and self.command.has("runs"))

    @property
    def command(self) -> Command | None:
        """The program, None for a model in a runtime. Raises UsageError for a suite of several things, or of none."""
        return self.suite.only.command


class KindGrowth(Struct, frozen=True):
    """The verdict on the processes of one kind in their last round. inputs: what they got, in words. resident, runs: as in GrowthAnswer."""

    inputs: str
    verdict: growth.Verdict
    resident: tuple[tuple[int, int], ...]
    runs: tuple[Run, ...] = ()


class GrowthAnswer(Struct, frozen=True):
    """The answer: the verdict on the last round, with what each of its processes did. resident: the resident set before the first unit and after the
    last, by process. would_change: what more work could overturn the verdict. shapes: how many were varied. interrupted: by Ctrl-C or SIGTERM,
    after a whole round. runs: those of the last round. why: the two looks of --why, if they were taken. who: the call sites of --who, if they were
    recorded.

    Where two kinds of processes were measured, inputs is what they tell together, and kinds has both; all other fields are those of the kind that
    decides. fresh: whether its iterations got new inputs."""

    model: str
    runtime: str
    version: str
    settings: str
    verdict: growth.Verdict
    resident: tuple[tuple[int, int], ...]
    would_change: Outlook | None = None
    shapes: int = 0
    threads: int | None = None
    remarks: tuple[str, ...] = ()
    interrupted: bool = False
    runs: tuple[Run, ...] = ()
    why: two_looks.GrowthParts | None = None
    who: Rises | None = None
    fresh: bool = False
    inputs: InputsVerdict | None = None
    kinds: tuple[KindGrowth, ...] = ()


def grow(request: GrowRequest, progress: Progress, keep: Keep, so_far: Callable[[bytes], None] = lambda line: None) -> GrowthAnswer:
    """Measure and decide. Each Run is given to `keep`, and of a long run what is known of it to `so_far` every minute.

    Raises UsageError or InputError for a fault of the request, MeasurementError if a process fails before it has done enough to be judged.
    """
    return _Grower(request, progress, keep, so_far).run()


def request_of(suite: Suite, per: str, shapes: str | None = None, budget: str | None = None) -> GrowRequest:
    """The question by this unit: iteration, reload or shape. shapes, budget: the words of `memprof grow`. Iterations of one shape get the same input
    and fresh ones, as there. Raises UsageError."""
    varied, seed = parse_shapes(shapes) if shapes is not None else ((), None)
    cycles = RELOAD if per == RELOAD else None
    limits = parse_budget(budget) if budget is not None else UnitBudget()
    return GrowRequest(suite, varied, seed, cycles, limits, wish=None if varied else "both")


def within_budget(units: int, most: int | None) -> int:
    """The units of a round that would have so many, at most so many: the whole budget where the rest of it would be no round that tells more."""
    return units if most is None or most >= 2 * units else most


class _Grower:
    def __init__(self, request: GrowRequest, progress: Progress, keep: Keep, so_far: Callable[[bytes], None]) -> None:
        self._request, self._progress, self._keep, self._so_far = request, progress, keep, so_far
        self._remarks: list[str] = []
        self._order = _command_order(request, FIRST_UNITS, Kind()) if request.command is not None else order_of(request)
        self._end_ns = time.monotonic_ns() + (request.budget.time_ns or _BUDGET_NS)
        fixed = self._fixed()
        self._kinds = kinds_of(request.wish, bool(request.varied), fixed)
        if fixed and request.wish == "both" and request.command is None and request.cycles is None:
            self._remark(f"Fresh inputs were not fed: {fixed}.")

    def run(self) -> GrowthAnswer:
        request, job = self._request, self._order.job
        if assumed := assumed_words(job):
            self._progress.say(assumed)
        units = within_budget(_FIRST_CYCLES if request.cycles else FIRST_UNITS, request.budget.units)
        if request.soak_ns is not None:
            units = request.budget.units or _ENDLESS
        answers: dict[Kind, GrowthAnswer] = {}
        wanted = dict.fromkeys(self._kinds, units)
        interrupted = False
        try:
            while wanted:
                rounds, spent_ns = self._round(wanted)
                before = dict(answers)
                answers.update((kind, self._judged(kind, runs)) for kind, runs in rounds.items())
                going = [kind for kind in rounds if self._kind_goes_on(answers[kind], before.get(kind))]
                next_units = {
                    kind: self._next(_least(rounds[kind]), sum(spent_ns[each] for each in going), answers[kind]) for kind in going
                }
                wanted = {kind: units for kind, units in next_units.items() if units}
        except KeyboardInterrupt:
            if not answers:
                raise
            interrupted = True
        answer = self._together([answers[kind] for kind in self._kinds])
        for freed in filter(None, (work.freed_before(run) for run in answer.runs[:1])):
            self._remark(f"{capitalised(freed)}.")
        return replace(answer, interrupted=interrupted, remarks=tuple(self._remarks))

    def _fixed(self) -> str:
        """Why this work has inputs of one kind only, empty where they can be made again."""
        drive = self._request.suite.drive
        if drive is not None:
            return _fixed_load(drive)
        if self._request.command is not None:
            return "a program makes its own inputs"
        if self._request.cycles:
            return "a reload takes the same inputs"
        runtime = self._order.runtime
        if runtime.native is not None:
            return f"{runtime.name} is a C program that only iterates"
        if runtime.signature:
            return ""
        return f"{os.path.basename(runtime.name)} makes its own inputs"

    def _round(self, wanted: Mapping[Kind, int]) -> tuple[dict[Kind, list[Run]], dict[Kind, int]]:
        """One round: processes of each kind that do the same, alternating, and the nanoseconds that each kind took.

        The first of a kind may be ended by time; the others then do as much as it did.
        """
        units = dict(wanted)
        rounds: dict[Kind, list[Run]] = {kind: [] for kind in wanted}
        spent_ns = dict.fromkeys(wanted, 0)
        for number in range(self._request.processes):
            for place, kind in enumerate(tuple(units)):
                begin_ns = time.monotonic_ns()
                left = (self._request.processes - number) * len(units) - place
                run = self._measure(units[kind], number, self._cap_ns(left), kind)
                if run is None:
                    del units[kind], rounds[kind]
                    continue
                rounds[kind].append(run)
                spent_ns[kind] += time.monotonic_ns() - begin_ns
                if number == 0 and self._request.soak_ns is None:
                    units[kind] = max(units_done(run), 1)
                if not self._went_well(run):
                    del units[kind]
        return rounds, spent_ns

    def _cap_ns(self, left: int) -> int:
        if self._request.soak_ns is not None:
            return self._request.soak_ns // (self._request.processes * len(self._kinds))
        return max((self._end_ns - time.monotonic_ns()) // left, 1000 * MS)

    def _measure(self, units: int, number: int, cap_ns: int, kind: Kind) -> Run | None:
        """A process of this kind; None if the model takes no inputs of this kind, and those of the other were measured."""
        request = self._request
        if request.sized:
            self._order = _command_order(request, units, kind)
        order = _working(self._order, request, units, cap_ns, kind)
        timeout_ns = cap_ns + (0 if request.command and not request.suite.drive else _LOADING_NS)
        job = replace(order.job, repeat=number + 1, timeout_ns=min(timeout_ns, request.suite.timeout_ns or timeout_ns))
        report_ns = min(_REPORT_NS, cap_ns // 4) if request.soak_ns is not None else 0
        order = replace(order, job=job, report_ns=report_ns)
        (run,) = campaign.measure([order], self._progress, self._keep, so_far=self._so_far)
        if run.outcome.ok and not run.work:
            raise MeasurementError(_no_units(run, request))
        if not self._went_well(run):
            own = request.folder or request.feeder  # a user's own stream that fails is an error
            if kind.fresh and not own and number == 0 and len(self._kinds) > 1 and units_done(run) < growth.LEAST_UNITS:
                self._kinds = tuple(other for other in self._kinds if other != kind)
                why = run.outcome.message if run.outcome.status == "refused" else run.outcome.sentence
                self._remark(f"Every iteration got the same input, because fresh ones failed: {why}.")
                return None
            self._failed(run, kind)
        elif not run.outcome.ok and request.soak_ns is None:
            self._remark(
                f"Process {run.job.repeat} was ended after {counted(units_done(run), 'unit')}: it had used its share of the budget's time."
            )
        return run

    def _went_well(self, run: Run) -> bool:
        """Whether it did its whole work, or as much as time allowed: a program does not know of the budget, and is ended by time."""
        by_time = self._request.command is not None and run.outcome.status == "timeout"
        return run.outcome.ok or (by_time and units_done(run) >= (growth.LEAST_UNITS if self._request.soak_ns is not None else 1))

    def _failed(self, run: Run, kind: Kind) -> None:
        """A process that ended early is judged by its units so far, if they are enough."""
        done = units_done(run)
        if done < growth.LEAST_UNITS:
            raise MeasurementError(f"{run.job.label}: {run.outcome.sentence}")
        limit = ""
        if run.outcome.out_of_memory is not False:
            limit = f"; this machine has {format_bytes(run.machine.memory_bytes)}"
        which = f" with {kind.words}" if len(self._kinds) > 1 else ""
        self._remarks.append(f"Process {run.job.repeat}{which} ended early, after {done} units: {run.outcome.sentence}{limit}.")

    # -- deciding

    def _judged(self, kind: Kind, runs: Sequence[Run]) -> GrowthAnswer:
        curves = [work.curve_of(run) for run in runs]
        series = [growth.series(curve, run.machine.page_bytes) for curve, run in zip(curves, runs, strict=True)]
        verdict = growth.judge(series)
        if not all(map(self._went_well, runs)):
            verdict = _of_one(verdict)
        job, about = runs[0].job, next((run.about for run in runs if run.about), None)
        if any(curve.swap[-1] != curve.swap[0] for curve in curves):
            self._remark("Pages were swapped out or in meanwhile: resident and swapped pages are judged together.")
        if any(any(curve.device) for curve in curves):
            self._remark("It has memory of devices, which RSS does not count: both are judged together.")
        return GrowthAnswer(
            job.model.name,
            job.variant if job.runtime == COMMAND else job.runtime,
            about.runtime_version if about else "",
            in_a_line(job.knobs),
            verdict,
            tuple((each.rss[0], each.rss[-1]) for each in series),
            outlook(verdict, growth.risen(series, verdict), _cache_bounds(self._order), longer=self._lengthens),
            len(self._request.varied) if kind.varied else 0,
            job.threads,
            runs=tuple(runs),
            fresh=kind.fresh,
        )

    @property
    def _lengthens(self) -> bool:
        """Whether a round can be made longer."""
        return self._request.soak_ns is None and (self._request.command is None or self._request.sized)

    def _together(self, answers: Sequence[GrowthAnswer]) -> GrowthAnswer:
        """The answer of one kind, or of two, the one with the same input first."""
        for answer in answers:
            if answer.shapes:
                self._remark(_by_shapes(answer.runs[0]))
        same, varied = answers[0], answers[-1]
        if varied.fresh:
            for note in sorted(_notes(varied) - (_notes(same) if same is not varied else set())):
                self._remark(f"{capitalised(note)}.")
        if len(answers) == 1:
            return varied
        inputs_verdict = growth_inputs.judge(same.verdict, varied.verdict, "shape" if varied.shapes else "input")
        answer = same if inputs_verdict.decides == "same" else varied
        if answer.verdict.word == "undecided":
            self._remark(TWO_KINDS)
        kinds = zip(self._kinds, answers, strict=True)
        parts = tuple(KindGrowth(kind.words, each.verdict, each.resident, each.runs) for kind, each in kinds)
        return replace(answer, shapes=varied.shapes, inputs=inputs_verdict, kinds=parts)

    def _kind_goes_on(self, answer: GrowthAnswer, before: GrowthAnswer | None) -> bool:
        ended = next((run for run in answer.runs if _inputs_ended(run)), None)
        if ended is not None:
            self._remark(
                f"The stream of inputs ended after {counted(units_done(ended), 'iteration')}, so that there can be no longer round."
            )
            return False
        return all(run.outcome.ok for run in answer.runs) and self._goes_on(answer, before)

    def _goes_on(self, answer: GrowthAnswer, before: GrowthAnswer | None) -> bool:
        """Whether a longer round is wanted: to decide, or to confirm growth that was seen once or a bound that was reached late."""
        if not self._lengthens:
            return False
        if answer.verdict.word == "undecided" or answer.verdict.late:
            return True
        confirmed = before is not None and before.verdict.word == "grows"
        return answer.verdict.word == "grows" and (not confirmed or self._request.budget.units is not None)

    def _next(self, done: int, spent_ns: int, answer: GrowthAnswer) -> int:
        """How many units the next round has, 0 for no more round."""
        budget, now_ns = self._request.budget, time.monotonic_ns()
        units = within_budget(FACTOR * done, budget.units)
        if budget.units is not None and budget.time_ns is None:  # as long as they take, but not for ever
            self._end_ns = max(self._end_ns, now_ns + _PATIENCE * spent_ns * units // max(done, 1))
        units = min(units, int(done * (self._end_ns - now_ns) / max(spent_ns, 1)))
        if answer.verdict.word == "grows":
            units = min(units, int(self._free_bytes() / max(answer.verdict.slope * answer.verdict.tail / max(done, 1), 1)))
        return units if units >= 2 * done else 0

    def _free_bytes(self) -> float:
        """How much memory a round that grows may take."""
        _, available = self._order.place.busy()
        return _SHARE_OF_MEMORY * available

    def _remark(self, text: str) -> None:
        if text not in self._remarks:
            self._remarks.append(text)


def _cache_bounds(order: Order) -> tuple[CacheBound, ...]:
    """The settings of the order's runtime that bound a cache, with their values; a cache that is off, or whose bound is unknown, has none."""
    bounds = []
    for knob in order.runtime.knobs:
        if knob.bounds is None:
            continue
        value = int(order.job.knobs.get(knob.name, knob.default) or 0)
        if value:
            bounds.append(CacheBound(knob.name, value, knob.bounds))
    return tuple(bounds)


def _least(runs: Sequence[Run]) -> int:
    """As many units as each of the processes did."""
    return min(units_done(run) for run in runs)


def _inputs_ended(run: Run) -> bool:
    """Whether a process that was to go on with fresh inputs had no more."""
    use = run.job.use
    if use is None or not use.fresh or run.job.drive or not run.outcome.ok or units_done(run) >= use.iterations:
        return False
    t_ns = work.curve_of(run).t_ns
    return not use.time_ns or t_ns[-1] - t_ns[0] < _IN_TIME * use.time_ns


def _notes(answer: GrowthAnswer) -> set[str]:
    """What the processes say to the reader of their figures."""
    return {note for run in answer.runs if run.about is not None for note in run.about.notes}


def _of_one(verdict: growth.Verdict) -> growth.Verdict:
    """The verdict of a round that was cut short: that on its last process, if it grew until it was ended."""
    last = verdict.processes[-1]
    if last.word != "grows":
        return verdict
    facts = {name: getattr(last, name) for name in growth.Growth.__struct_fields__}
    return growth.Verdict(**facts, processes=verdict.processes)


def _by_shapes(run: Run) -> str:
    """How much had come when the last new shape had come, in the first process of the last round."""
    curve = work.curve_of(run)
    shapes = curve.counts["shape"]
    place = next(place for place, count in enumerate(shapes) if count == shapes[-1])
    rise = format_bytes(max(0, curve.rss[place] - curve.rss[0]))
    return f"{rise} came with {counted(shapes[-1], 'shape')}, the last of them new in iteration {curve.counts['iteration'][place]:,}."


def _no_units(run: Run, request: GrowRequest) -> str:
    if request.suite.phase_regexes:
        pattern = next(iter(request.suite.phase_regexes.values()))
        return f"{run.job.heading}: no line that it printed matches '{pattern}', so that no unit was counted"
    return (
        f"{run.job.heading}: it counted no unit. Mark its iterations inside a phase with memprof_iteration() or iteration() (see memprof marks), "
        "or name the line that it prints after each: --phase-regex request='^served'"
    )


def _suite(request: GrowRequest) -> Suite:
    """The suite with what following the memory of each unit asks for."""
    suite = request.suite
    shapes = {**(request.varied[0] if request.varied else {}), **suite.shapes}
    return replace(suite, shapes=shapes, warmup=0, runs=1, repeats=1, interval_ns=suite.interval_ns or 10 * MS, release=False)


def order_of(request: GrowRequest) -> Order:
    """The order of the model in the runtime. Raises UsageError and InputError."""
    if request.varied and request.cycles:
        raise UsageError("--shapes and --cycles are two experiments: a reload takes the one shape of --shape")
    if request.folder or request.feeder:
        request.suite.place.only_here("a stream of inputs")
    check_shapes(request.suite, request.varied, request.folder)
    order = orders.of_one(_suite(request))
    if order.runtime.native is not None and (request.varied or request.cycles or request.soak_ns is not None):
        raise UsageError(f"{order.runtime.name} is a C program that only iterates: --shapes, --cycles and --for are for runtimes in Python")
    if request.varied and order.runtime.one_shape is not None:
        raise UsageError(f"--shapes: {order.runtime.one_shape}")
    return order


def work_order(request: GrowRequest, units: int, fresh: bool = False) -> Order:
    """The order of so many units of the request's work, with new inputs or without. Raises UsageError and InputError."""
    kind = Kind(bool(request.varied), fresh)
    order = _command_order(request, units, kind) if request.command is not None else order_of(request)
    return _working(order, request, units, 0, kind)


def _working(order: Order, request: GrowRequest, units: int, most_ns: int, kind: Kind) -> Order:
    """The order with its work repeated so often, for so long at most, with inputs of this kind; 0 ns for any time."""
    shapes = request.varied if kind.varied else ()
    use = Use(units, most_ns, request.cycles, 2, shapes, request.seed, kind.fresh, request.folder, request.feeder)
    return replace(order, job=replace(order.job, use=use, runs=units), env={**order.env, "MEMPROF_WORK": "1"})


def _command_order(request: GrowRequest, units: int, kind: Kind) -> Order:
    """The order of a program. memprof's requests have all the same prompt where one kind of processes was wished to."""
    if request.varied or request.cycles:
        raise UsageError("--shapes and --cycles are for a runtime: a program does its own work")
    suite = replace(_suite(request), runs=units)
    if suite.drive is not None and not _fixed_load(suite.drive) and request.wish is not None and not kind.fresh:
        suite = replace(suite, drive=replace(suite.drive, distinct=1))
    return orders.of_one(suite)


def _fixed_load(drive: Drive) -> str:
    """Why a load has requests of one kind only, empty where memprof can ask the same and new ones."""
    if not drive.varies:
        return "each request to this server has the same content"
    return "distinct= says which prompts differ" if drive.distinct is not None else ""


# -- shapes

_DOMAIN = re.compile(r"([A-Za-z_, ]+?)\s+in\s+([0-9, ]+)$")
_TOO_LONG = re.compile(r"[0-9]{20}")  # beyond 64 bits, and from 4,300 digits on Python refuses to read it
_ORDER = re.compile(r"\((?:random, seed ([0-9]+)|in turn)\)$")


def parse_shapes(text: str) -> tuple[tuple[dict[str, tuple[int, ...]], ...], int | None]:
    """`input=1,3,H,W; H,W in 224,320,640 (random, seed 1)`: all shapes, and the seed of their order, None for one after another.

    Raises UsageError for any other text, for numbers that no dimension can have, and for more shapes than inputs are made for at once.
    """
    if _TOO_LONG.search(text):
        raise UsageError("--shapes: a number of so many digits is neither a size nor a seed")
    order = _ORDER.search(text)
    seed = int(order[1]) if order is not None and order[1] is not None else None
    parts = [part.strip() for part in (text[: order.start()] if order is not None else text).split(";") if part.strip()]
    given_templates: list[tuple[str, list[str]]] = []
    given_domains: list[tuple[str, tuple[int, ...]]] = []
    for part in parts:
        domain = _DOMAIN.match(part)
        if domain is not None:
            sizes = tuple(int(word) for word in domain[2].replace(" ", "").split(",") if word)
            if not sizes or min(sizes) < 1:
                raise UsageError(f"--shapes: {part!r} names no size of 1 or more")
            given_domains += [(letter.strip(), sizes) for letter in domain[1].split(",") if letter.strip()]
            continue
        name, equals, words = part.rpartition("=")
        if not equals or not name.strip():
            raise UsageError(f"--shapes: {part!r} is neither INPUT=1,3,H,W nor H,W in 224,320")
        given_templates.append((name.strip(), [word.strip() for word in words.split(",")]))
    templates, domains = by_name(given_templates, "--shapes:"), by_name(given_domains, "--shapes:", WITH_COMMAS)
    used = list(dict.fromkeys(word for words in templates.values() for word in words if not word.isdecimal()))
    for letter in used:
        if letter not in domains:
            raise UsageError(f"--shapes: which sizes has {letter or 'an empty dimension'}? Write {letter or 'H'} in 224,320")
    for letter in domains:
        if letter not in used:
            raise UsageError(f"--shapes: no input has a dimension {letter}")
    if not used:
        raise UsageError("--shapes: no dimension varies: write INPUT=1,3,H,W; H,W in 224,320")
    shapes: list[dict[str, tuple[int, ...]]] = []
    for sizes in product(*(domains[letter] for letter in used)):
        value = dict(zip(used, sizes, strict=True))
        shapes.append({name: tuple(value.get(word, 0) or int(word) for word in words) for name, words in templates.items()})
    for shape in shapes:
        for name, extents in shape.items():
            check_extents(name, extents)
    if len(shapes) > _MOST_SHAPES:
        raise UsageError(f"--shapes: these are {len(shapes)} shapes, and {_MOST_SHAPES} is the most: all inputs are made before the first")
    return tuple(shapes), seed


def parse_budget(text: str) -> UnitBudget:
    """`20000` units per process, or `10min` in all. Raises UsageError for neither."""
    if text.isdecimal():
        if int(text) < growth.LEAST_UNITS:
            raise UsageError(f"--budget {text}: {growth.LEAST_UNITS} units are the least that can be judged")
        return UnitBudget(units=int(text))
    return UnitBudget(time_ns=parse_duration_ns(text))
