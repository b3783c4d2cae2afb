"""A place of `memprof scale` measured: the order for it, its runs, alone or side by side, and the planner's own peak there.

A run that dies of want of memory is a measurement too, "at least so much". A run that the runtime refuses is not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
from msgspec.structs import replace

from ...base.errors import InputError, MemprofError, UsageError
from ...campaign import campaign, side_by_side
from ...campaign.fleet.message import SearchRequest
from ...campaign.fleet.payload import SearchTrial
from ...campaign.progress import Keep, Progress, Quiet
from ...campaign.side_by_side import SharedFile, Together
from ...places import limits
from ...places.place import HERE, Place
from ...plan.analysis import describe
from ...plan.graphs.graph import Graph
from ...plan.graphs.read import check_installed, read
from ...plan.graphs.reduced import problem
from ...programs.commands import Command
from ...records import store
from ...records.types import PEAK, STARTUP, Job, LawSearch, Outcome, RequestTrace, Run
from ...subjects import orders
from ...subjects.dimensions import PROCESSES, SESSIONS, THREADS, Space, space, space_of_program
from ...subjects.order import Order
from ...subjects.suite import Suite, Variant
from . import arena_requests, delegation
from .answer import ALL, ANONYMOUS, CHARGED, PlaceRun, ScaleRequest, words_of
from .arena_requests import Simulation
from .delegation import Delegated

_SHARE = 0.9  # of the memory that is free, for a run that is not to drive out others
_NOISE = 0.001
_RUNS = 2
_LEAST_NOISE_BYTES = 128 << 10
_WANT = re.compile(
    r"bad_alloc|out of memory|cannot allocate|memoryerror|failed to allocate|unable to allocate|alloc\w* failed", re.IGNORECASE
)


class Places:
    """Measures a request's model at one place after another.

    runtime: its name. noise: what two runs at the same place differ by, in bytes and as a share. job: of the last run. unplanned: why there is no
    plan, empty if there is one. doubles: the runtime's memory is an arena whose regions double; unsimulated: why it is not simulated, once it was
    tried.
    shared: files whose pages processes share. assumed: a sentence on open dimensions of the model that run as 1, empty for none. calls: see Scaled.
    Raises UsageError and InputError for a fault of the request.
    """

    def __init__(self, request: ScaleRequest, progress: Progress, keep: Keep) -> None:
        self._request, self._progress, self._keep = request, progress, keep
        suite, variant = request.suite, request.suite.only
        self._place, self.runtime = suite.place, variant.runtime
        self.calls: tuple[str, ...] = ()
        self.noise = (float(_LEAST_NOISE_BYTES), _NOISE)
        self.job: Job | None = None
        self.unplanned = self.unsimulated = ""
        self.shared: tuple[SharedFile, ...] = ()
        self._guard = _guard(suite.place) if request.fleet is None else None
        if variant.command is not None:
            self._of_program(variant.command)
        else:
            self._of_model(variant)

    def _of_program(self, command: Command) -> None:
        self._variant, self.runtime = self._request.suite.only, command.name
        self.space: Space = space_of_program(self._request.dimensions, command)
        self.main, self.doubles, self.assumed = PEAK, False, ""
        self.model = self._order(self._lowest({})).job.model

    def _of_model(self, variant: Variant) -> None:
        request, suite = self._request, self._request.suite
        self.model, runtime, python = orders.located(suite, travels=request.fleet is not None)
        self._variant = replace(variant, python=python)
        self.space = space(request.dimensions, Path(self.model.path), runtime)
        if self.space.side_by_side and request.fleet is not None:
            raise UsageError("--vary processes works on one machine (--on names another than this), not on a fleet")
        self.main = ALL if self.space.side_by_side else PEAK
        settings = {**suite.set, **variant.set}
        self.doubles = runtime.arena_doubles(settings)
        self.calls = runtime.in_program({**settings, **({THREADS: str(request.threads)} if request.threads else {})})
        self.assumed = "" if runtime.name.endswith(".py") else _assumed(self.space.forgotten(request.shapes, suite.inputs))

    def check(self, at: Mapping[str, int]) -> None:
        """Say now what is wrong with the request's words. Raises UsageError and InputError."""
        self.space.check_shapes(self._request.shapes, self._request.suite.inputs)
        self._order(at)

    def env(self, places: Sequence[Mapping[str, int]]) -> dict[str, str]:
        """The variables of the settings that have the same value at all these places."""
        each = [self._order(at).settings_env for at in places]
        return {name: value for name, value in each[0].items() if all(env.get(name) == value for env in each)}

    def missing(self) -> str:
        """A sentence on the package without which there is neither a plan nor a simulated arena, empty if it is installed. It is imported."""
        if self._variant.command is not None:
            return ""
        try:
            check_installed(Path(self.model.path))
        except InputError as error:
            return str(error)
        return ""

    def measure_at_once(self, places: Sequence[Mapping[str, int]], count: int, *, held_out: bool = False) -> Iterator[PlaceRun]:
        """As `measure` for each of several places, on the request's fleet."""
        assert self._request.fleet is not None
        points = []
        for at in places:
            job = self._order(at).job
            points.append(SearchTrial(self._asked(at)[0], SearchRequest(job.at, job.sessions, held_out, self._planned(at))))
        for number, answer in self._request.fleet.measure(points, Quiet(self._progress, count), self._keep):
            at, planned = places[number], points[number].sought.planned_bytes
            if not answer.complete:
                yield PlaceRun(at, {}, answer.why, held_out=held_out)
            else:
                (run,) = answer.runs
                self._known(run)
                yield replace(measured(run), at=at, planned_bytes=planned, held_out=held_out)

    def measure(self, at: Mapping[str, int], count: int, *, held_out: bool = False) -> PlaceRun:
        """The sizes at a place, where `count` places were measured before. held_out: no law is to be fitted to them."""
        order = self._order(at)
        planned = self._planned(at)
        order = replace(order, job=replace(order.job, verifies=held_out, planned_bytes=planned))
        if self.space.side_by_side:
            self._progress.say(f"{words_of(at)}: measuring")
            point = self._side_by_side(order)
        else:
            point = self._alone(order, count)
        return replace(point, at=at, planned_bytes=planned, held_out=held_out)

    def simulate(self) -> tuple[LawSearch, Simulation | None]:
        """The arenas at any place, and what they are made of: the recording of runs apart from the measurements, or the buffers of a graph. Nothing
        where they cannot be simulated."""
        if not self._request.simulates or self._variant.command is not None:
            return LawSearch(), None
        if not self.doubles:
            known = self._delegated()
            return (
                (LawSearch(), None)
                if known is None
                else (LawSearch(arenas=arena_requests.kept_arenas(known)), arena_requests.planned(known))
            )
        try:
            recorded, simulation = self._replayed(arena_requests.places(self.space.varying))
            return LawSearch(requests=recorded), simulation
        except MemprofError as error:
            self.unsimulated = str(error)
            return LawSearch(), None

    def _delegated(self) -> Delegated | None:
        """The arenas by the graph and its parts: for TFLite's runtimes."""
        axes = [dimension for dimension in self.space.varying if all(name in self.space.axes for name in dimension.names)]
        others = {dimension.label for dimension in self.space.varying} - {dimension.label for dimension in axes}
        if not self._here or not axes or not others <= {SESSIONS}:
            return None
        places = arena_requests.places(axes)
        order = self._order(self._lowest(places[0]))
        if self._planned(self._lowest(places[0])) is None or not arena_requests.delegates(order):
            return None
        try:
            graphs = [(at, self._graph(self._lowest(at))) for at in places]
        except MemprofError:
            return None
        return delegation.delegated(order.job.runtime, order.python or sys.executable, graphs)

    def _lowest(self, at: Mapping[str, int]) -> dict[str, int]:
        """A place with all other dimensions low."""
        return {dimension.label: at.get(dimension.label, dimension.low) for dimension in self.space.varying}

    def _replayed(self, places: Sequence[Mapping[str, int]]) -> tuple[RequestTrace, Simulation]:
        """Raises MemprofError with the reason why there is none."""
        if not self._here:
            raise InputError("that is done on this machine only")
        others = [PROCESSES] if self.space.side_by_side else []
        others += [name for dimension in self.space.varying for name in dimension.names if name not in (*self.space.axes, *others)]
        unusual = " and ".join(others) or arena_requests.unusual(self._order(places[0]))
        if unusual:
            raise InputError(f"not with {unusual}{' in --vary' if others else ''}")
        inputs = [self._inputs(at) for at in places]  # before any run: without them a recording has no use
        self._progress.say(f"{self.model.name}: recording what is asked of the arena, in {len(places)} runs without it")
        recorded = [(at, arena_requests.record(self._guarded(self._order(at)), sizes)) for at, sizes in zip(places, inputs, strict=True)]
        kept = arena_requests.kept(recorded, arena_requests.heap(self._guarded(self._order(places[0]))))
        simulation = arena_requests.replayed(kept, self._runs)
        if kept is None or simulation is None:
            raise InputError(
                "what is asked of it follows no products of the dimensions: sizes are rounded on the way, which a step in --vary may leave out, "
                "such as height=64..256:32, or other operators run from place to place"
            )
        return kept, simulation

    def _inputs(self, at: Mapping[str, int]) -> tuple[int, ...]:
        """The bytes of each of the model's inputs at a place. Raises InputError where its graph cannot be read."""
        if self._planned(at) is None:
            raise InputError(self.unplanned)
        graph = self._graph(at)
        return tuple(graph.tensors[number].bytes or 0 for number in graph.inputs)

    def too_large(self, least_bytes: float) -> bool:
        """Whether a run that needs so much should not be started."""
        return self._here and least_bytes > _free()

    def _order(self, at: Mapping[str, int]) -> Order:
        suite, variant = self._asked(at)
        order = orders.of_one(suite) if variant.command is not None else orders.order(suite, self.model, variant)
        place = {dimension.label: at.get(dimension.label, dimension.low) for dimension in self.space.dimensions}
        return replace(order, job=replace(order.job, sessions=self.space.value(SESSIONS, at) or 1, release=False, at=place))

    def _asked(self, at: Mapping[str, int]) -> tuple[Suite, Variant]:
        """The place as a suite of one run, and its only variant."""
        request, own = self._request, self._variant
        name = f"{own.name}, {words_of(at)}" if own.name else words_of(at)
        if own.command is not None:
            values = {word: self.space.value(word, at) for dimension in self.space.dimensions for word in dimension.names}
            own = replace(own, command=replace(own.command.filled(values), name=name))
        knobs = self.space.knobs(at) if own.command is None else {}
        variant = replace(own, name=name, set={**own.set, **knobs}, shapes={}, threads=())
        threads = self.space.value(THREADS, at) or request.threads
        suite = replace(
            request.suite,
            runtimes=(),
            variants=(variant,),
            repeats=1,
            threads=(threads,) if threads else (),
            shapes=self.space.shapes(at, request.shapes) if own.command is None else {},
            warmup=request.suite.warmup if request.suite.warmup is not None else 1,
            runs=self._runs,
            deterministic=True,  # peaks of one job come in modes some percent apart, which no law could tell from its terms
            release=False,  # laws are of what a model needs, and the figures at the end are those of EXECUTE
        )
        return suite, variant

    @property
    def _runs(self) -> int:
        """Timed iterations of each run."""
        return self._request.suite.runs or _RUNS

    @property
    def _here(self) -> bool:
        return self._place is HERE and self._request.fleet is None

    def _guarded(self, order: Order) -> Order:
        return order if self._guard is None else replace(order, **self._guard.start(_free()))

    def _alone(self, order: Order, count: int) -> PlaceRun:
        (run,) = campaign.measure([self._guarded(order)], Quiet(self._progress, count), self._keep)
        self._known(run)
        return measured(run)

    def _side_by_side(self, order: Order) -> PlaceRun:
        count = self.space.value(PROCESSES, order.job.at) or 1
        lines: list[bytes] = []
        seen = side_by_side.measure(order, count, self._progress, lines.append, _free() if self._place is HERE else None)
        run = seen.runs[0]
        self._known(run)
        point = _summed(run, seen)
        if run.outcome.ok and seen.shared:
            self.shared = seen.shared
        runs = [store.decode(line, "a run") for line in lines]
        first = next(place for place, each in enumerate(runs) if each.outcome == run.outcome)
        runs[first] = replace(runs[first], search=LawSearch(sums=point.sizes))
        for each in runs:
            self._keep(store.encode(each))
        return point

    def _known(self, run: Run) -> None:
        self.job = run.job
        self.noise = noise(run)

    def _planned(self, at: Mapping[str, int]) -> int | None:
        """The planner's own peak at a place, with the operators in the order of the file."""
        if self.unplanned or self._variant.command is not None:
            return None
        path = Path(self.model.path)
        if path.suffix not in (".onnx", ".tflite", ".circle"):
            self.unplanned = "there is no plan to hold it against: graphs are read from .onnx, .tflite and .circle files"
            return None
        if self._request.suite.inputs is not None:
            self.unplanned = "there is no plan to hold it against: inputs come from a file"
            return None
        try:
            graph = self._graph(at)
            if graph.unsized:
                raise InputError(f"the size of {graph.unsized[0]} is not known")
            mapped = problem(graph)
            return describe(mapped, range(mapped.problem.count), "model").peak_bytes
        except MemprofError as error:
            self.unplanned = f"there is no plan to hold it against: {error}"
            return None

    def _graph(self, at: Mapping[str, int]) -> Graph:
        return read(Path(self.model.path), self.space.shapes(at, self._request.shapes))


def _assumed(names: Sequence[str]) -> str:
    """Open dimensions that nobody set, in a sentence; it has the words that set them. A user's own runtime may make its inputs itself."""
    if not names:
        return ""
    words = " ".join(f"--vary {name}=SIZE" for name in names)
    return f"open dimensions of the model are taken as 1: {', '.join(names)} ({words} sets others)"


def noise(run: Run) -> tuple[float, float]:
    """What two runs at the same place differ by, in bytes and as a share."""
    return (max(float(_LEAST_NOISE_BYTES), run.machine.peak_bound_bytes / 4), _NOISE)


def measured(run: Run) -> PlaceRun:
    """The sizes at the place of a run that was alone."""
    sizes = {mark.phase: int(mark.rss_peak_bytes) for mark in run.marks if mark.phase != STARTUP and mark.rss_peak_bytes}
    if not run.outcome.ok:
        return _failed(run, sizes)
    if not sizes:
        return PlaceRun(run.job.at, {}, "no phase has a peak")
    sizes[PEAK] = max(sizes.values())
    last = next(mark for mark in reversed(run.marks) if mark.phase in sizes)
    if last.anon_end_bytes is not None and len(run.processes) < 2:  # else it is of one process, beside peaks of their sum
        sizes[ANONYMOUS] = last.anon_end_bytes
    elsewhere = last.rss_end_bytes - last.pss_end_bytes if last.rss_end_bytes and last.pss_end_bytes else None
    return PlaceRun(run.job.at, sizes, elsewhere_bytes=elsewhere)


def measured_together(runs: Sequence[Run]) -> PlaceRun | None:
    """The sizes at a place of runs that were side by side, None where none has their sum."""
    run = next((run for run in runs if run.search is not None and run.search.sums), None) or next(
        (run for run in runs if not run.outcome.ok), None
    )
    if run is None:
        return None
    sums = dict(run.search.sums) if run.search is not None else {}
    if run.outcome.ok or not sums:
        return PlaceRun(run.job.at, sums, run.outcome.sentence if not run.outcome.ok else None)
    return PlaceRun(run.job.at, sums, f"out of memory {run.outcome.where}", least=True)


def _summed(run: Run, seen: Together) -> PlaceRun:
    """The sizes at the place of processes of which this one's outcome counts."""
    sizes = {phase: total.bytes for phase, total in seen.phases.items() if phase != STARTUP}
    if not run.outcome.ok:
        return _failed(run, sizes, ALL, seen.charged_peak_bytes)
    last = list(seen.phases)[-1]
    sizes[ALL] = seen.phases[last].bytes
    charged = seen.phases[last].charged_bytes
    if charged is not None:
        sizes[CHARGED] = charged
    return PlaceRun(run.job.at, sizes)


def _failed(run: Run, sizes: dict[str, int], main: str = PEAK, charged: int | None = None) -> PlaceRun:
    """A run that failed. If it died for lack of memory, it needs at least what it was last seen with."""
    at, outcome = run.job.at, run.outcome
    if not ran_out(outcome):
        return PlaceRun(at, {}, outcome.sentence, refused=outcome.status in ("refused", "error"))
    seen = [outcome.rss_last_bytes or 0, charged or 0, *sizes.values()]
    if run.charged is not None:
        seen.append(run.charged.peak_bytes or 0)
    least = max([*seen, run.timeline.rss_max_bytes])
    if not least:
        return PlaceRun(at, {}, outcome.sentence)
    if outcome.phase:
        sizes = {**sizes, str(outcome.phase): least}
    return PlaceRun(at, {**sizes, main: least}, f"out of memory {outcome.where}", least=True)


def ran_out(outcome: Outcome) -> bool:
    """Whether a run died for lack of memory: by the kernel's hand, or by the runtime's own words."""
    if outcome.ok:
        return False
    if outcome.out_of_memory is not False:
        return True
    return outcome.status in ("error", "exit", "signal") and bool(_WANT.search(outcome.sentence))


def _guard(place: Place) -> limits.Groups | None:
    """A control group that bounds each run by the memory that is free, so that a place too large ends that run and nothing else."""
    if place is not HERE:
        return None
    limiter = limits.find("auto")
    return limiter if isinstance(limiter, limits.Groups) else None


def _free() -> int:
    """The memory that a run may take, in bytes."""
    return int(_SHARE * psutil.virtual_memory().available)
