"""Memory as a law: a model is measured at a few well-chosen places of its dimensions, and the laws of its peaks are fitted to them.

memprof.judge.laws says where to measure next and which law it is; here are the measurements, the laws side by side, their predictions, and what
the law is held against: the planner's own peak at the same places, the size of the weights, the pages that processes share. A run that dies of want
of memory is a measurement too, "at least so much". A run that the runtime refuses is not, and the search goes on elsewhere.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from ..errors import InputError, MeasurementError, MemprofError, UsageError
from ..judge import laws
from ..judge.laws import At, Law, Point, Prediction
from ..measuring import campaign, limits, orders, together
from ..measuring.orders import Order
from ..measuring.places.place import HERE, Place
from ..measuring.progress import Progress, Quiet
from ..measuring.suite import Suite, Variant
from ..measuring.together import Shared
from ..models.gguf import kv_cache
from ..models.identity import identify
from ..plan.analysis import describe
from ..plan.graphs.read import read
from ..plan.graphs.reduced import problem
from ..programs import runtimes
from ..runs.records import EXECUTE, MODEL_LOAD, PEAK, PREPARE, STARTUP, Job, Outcome, Run
from ..runs.settings import written
from ..units import counted, format_bytes
from .dimensions import PROCESSES, SESSIONS, THREADS, Dimension, Space, space

ANONYMOUS = "anonymous memory at the end"
_CONTEXT = "context"
ALL = "all processes at the end"
CHARGED = "their control group at the end"
# The most runs, by the number of dimensions that vary.
_MOST_RUNS = {1: 6, 2: 6}
_MOST_RUNS_BEYOND = 12
_SHARE = 0.9  # of the memory that is free, for a run that is not to drive out others
_NOISE = 0.001
_LEAST_NOISE_BYTES = 128 << 10
_SAME = 0.002  # heaps in use that differ by no more than this share are the same
_DIFFERENT = 0.1  # a growth that differs by this share from the plan's is a finding
_FAILURES = 3  # at the first places: then nothing can be said
_TOO_FEW_VALUES = 4
_WANT = re.compile(
    r"bad_alloc|out of memory|cannot allocate|memoryerror|failed to allocate|unable to allocate|alloc\w* failed", re.IGNORECASE
)

_Places = Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class ScaleRequest:
    """The question: the model, the runtime and its settings, and the dimensions to vary.

    predictions: places to predict, by label. within_bytes: a limit, for the largest value of each dimension that fits. confirm: run the
    predictions that can be reached. points: the most runs that the laws are fitted to, None for as many as the number of dimensions asks for.
    """

    model: str
    runtime: str
    dimensions: Sequence[Dimension]
    knobs: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    python: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: str | None = None
    runs: int = 2
    points: int | None = None
    predictions: _Places = ()
    within_bytes: int | None = None
    confirm: bool = False
    place: Place = HERE


@dataclass(frozen=True)
class Measured:
    """A run at a place. sizes: in bytes, by the law's name. ended: how it failed. least: it died of want of memory, and its sizes are at least so
    much. planned_bytes: the planner's own peak there, None where there is no plan. held_out: no law was fitted to it. heap_used_bytes,
    heap_free_bytes: at the end of PREPARE. shift_bytes: this run kept so much less freed memory than the run that kept the most, by chance; laws are
    fitted to sizes with it."""

    at: Mapping[str, int]
    sizes: Mapping[str, int]
    ended: str | None = None
    least: bool = False
    planned_bytes: int | None = None
    held_out: bool = False
    heap_used_bytes: int | None = None
    heap_free_bytes: int | None = None
    shift_bytes: int = 0


@dataclass(frozen=True)
class Named:
    """The law of one figure: PEAK, a phase's peak, or anonymous memory at the end. law: None where no simple law holds."""

    name: str
    law: Law | None


@dataclass(frozen=True)
class Change:
    """A place where another phase makes the peak: beyond this value of a dimension, with the others at `others`."""

    dimension: str
    value: int
    before: str
    after: str
    others: Mapping[str, int]


@dataclass(frozen=True)
class Within:
    """The largest value of a dimension that fits into a limit, with the others fixed: as predicted, surely, and possibly. None where none fits;
    confirmed: the size that was measured at the predicted value, None where it was not run."""

    dimension: str
    others: Mapping[str, int]
    value: int | None
    surely: int | None
    possibly: int | None
    confirmed_bytes: int | None = None


@dataclass(frozen=True)
class Against:
    """A term of the measured law beside the planner's: bytes a unit of each, None where one of them has no such term."""

    words: str
    measured_bytes: float | None
    planned_bytes: float | None


@dataclass(frozen=True)
class Scaled:
    """The answer. main: the name of the law that predictions are of. undecided: what there is too little of, and what to add; empty if decided.
    planned: the law of the planner's own peak, None where there is no plan; unplanned: why. shared: files whose pages processes share.
    """

    model: str
    runtime: str
    settings: str
    dimensions: tuple[Dimension, ...]
    points: tuple[Measured, ...]
    main: str
    laws: tuple[Named, ...]
    changes: tuple[Change, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    within_bytes: int | None = None
    within: tuple[Within, ...] = ()
    planned: Law | None = None
    unplanned: str = ""
    against: tuple[Against, ...] = ()
    findings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    undecided: str = ""
    shared: tuple[Shared, ...] = ()
    threads: int | None = None
    interrupted: bool = False

    @property
    def law(self) -> Law | None:
        """The law that predictions are of."""
        return self.named(self.main)

    def named(self, name: str) -> Law | None:
        """The law of that name."""
        return next((named.law for named in self.laws if named.name == name), None)

    def predict(self, places: Sequence[At]) -> list[Prediction]:
        """The main figure at places: of PEAK, the largest of what the phases' laws say. Empty where there is no law."""
        return _predicted(self.main, self.laws, places)


def scale(request: ScaleRequest, progress: Progress, keep: Callable[[bytes], None]) -> Scaled:
    """Measure and fit. Each Run is given to `keep`.

    Raises UsageError or InputError for a fault of the request, MeasurementError if no place could be measured.
    """
    return _Scaler(request, progress, keep).run()


class _Scaler:
    def __init__(self, request: ScaleRequest, progress: Progress, keep: Callable[[bytes], None]) -> None:
        self._request, self._progress, self._keep = request, progress, keep
        self._model = identify(Path(request.model))
        self._python = request.place.interpreter(request.python)
        runtime = runtimes.find(request.runtime, self._python, request.place)
        if not runtime.takes(self._model.path):
            raise UsageError(f"{self._model.name}: {Path(runtime.name).name} does not take it")
        self._space: Space = space(request.dimensions, Path(self._model.path), runtime)
        if not self._space.varying:
            raise UsageError("nothing varies: give a range, such as --vary batch=1..64")
        self._varying = self._space.varying
        if len(self._varying) > 3:
            raise UsageError(f"{len(self._varying)} dimensions vary: a law of more than 3 takes too many runs; fix one (--vary NAME=VALUE)")
        if self._space.side_by_side:
            request.place.only_here("--vary processes")
        self._main = ALL if self._space.side_by_side else PEAK
        self._most = request.points or _MOST_RUNS.get(len(self._varying), _MOST_RUNS_BEYOND)
        self._points: list[Measured] = []
        self._skipped: list[Mapping[str, int]] = []
        self._remarks: list[str] = []
        self._shared: tuple[Shared, ...] = ()
        self._noise = (float(_LEAST_NOISE_BYTES), _NOISE)
        self._unplanned = ""
        self._kept: int | None = None  # the most freed memory that a run kept, where laws are of such runs
        self._job: Job | None = None
        self._guard = _guard(request.place)

    def run(self) -> Scaled:
        interrupted = False
        self._order(self._lowest())  # what is wrong with the words is said before anything is measured
        try:
            self._search()
        except KeyboardInterrupt:
            if sum(not point.ended for point in self._points) < 2:
                raise
            interrupted = True
            self._remark("Interrupted: fewer points were measured than a law should have.")
        answer = self._answer()
        if interrupted:
            return replace(answer, interrupted=True)
        try:
            return self._confirmed(answer)
        except KeyboardInterrupt:
            return replace(answer, interrupted=True)

    # -- measuring

    def _search(self) -> None:
        for at in laws.first_places(self._ranges()):
            self._measure(at)
        if all(point.ended for point in self._points):
            raise MeasurementError(f"{self._model.name}, {self._request.runtime}: no place could be measured: {self._points[0].ended}")
        candidates = self._candidates()
        while len(self._points) < self._most:
            series = self._series_for_design()
            left = [at for at in candidates if at not in self._skipped]
            chosen = laws.next_place(series, left, noise=self._noise) if series else next(iter(left), None)
            if chosen is None:
                break
            self._measure(chosen)

    def _series_for_design(self) -> list[list[Point]]:
        series = [self._series(name) for name in dict.fromkeys((self._main, *([EXECUTE] if self._main == PEAK else [])))]
        return [points for points in series if any(not point.least for point in points)]

    def _measure(self, at: Mapping[str, int], *, held_out: bool = False) -> Measured:
        words = _words(at)
        if self._would_not_fit(at):
            self._skipped.append(at)
            point = Measured(at, {}, "not run: it would need more memory than this machine has free", held_out=held_out)
            self._progress.say(f"{words}: {point.ended}")
            return point
        self._progress.say(f"{words}: measuring") if self._space.side_by_side else None
        point = self._side_by_side(at) if self._space.side_by_side else self._alone(at)
        point = replace(point, planned_bytes=self._planned(at), held_out=held_out)
        if held_out and self._kept is not None and point.heap_free_bytes is not None:
            point = replace(point, shift_bytes=max(self._kept - point.heap_free_bytes, 0))
        self._points.append(point)
        if point.ended and not point.least:
            self._skipped.append(at)
        size = point.sizes.get(self._main)
        at_least = "at least " if point.least else ""
        seen = f"{self._main} {at_least}{format_bytes(size)}" if size else ""
        self._progress.say(f"{words}: {'; '.join(text for text in (point.ended or '', seen) if text)}")
        return point

    def _order(self, at: Mapping[str, int]) -> Order:
        request = self._request
        threads = self._space.value(THREADS, at) or request.threads
        suite = Suite(
            threads=(threads,) if threads else (),
            shapes=self._space.shapes(at, request.shapes),
            inputs=request.inputs,
            warmup=1,
            runs=request.runs,
            deterministic=True,  # peaks of one job come in modes some percent apart, which no law could tell from its terms
            place=request.place,
            release=False,  # laws are of what a model needs, and the figures at the end are those of EXECUTE
        )
        variant = Variant(runtime=request.runtime, name=_words(at), set={**request.knobs, **self._space.knobs(at)}, python=self._python)
        order = orders.order(suite, self._model, variant)
        return replace(order, job=replace(order.job, sessions=self._space.value(SESSIONS, at) or 1, release=False))

    def _alone(self, at: Mapping[str, int]) -> Measured:
        order = self._order(at)
        if self._guard is not None:
            order = replace(order, **self._guard.start(_free()))  # type: ignore[arg-type]
        (run,) = campaign.measure([order], Quiet(self._progress, len(self._points)), self._keep)
        self._known(run)
        sizes = {mark.phase: mark.rss_peak_bytes for mark in run.marks if mark.phase != STARTUP and mark.rss_peak_bytes}
        if not run.outcome.ok:
            return _failed(at, run, {name: int(size) for name, size in sizes.items()})
        sizes[PEAK] = max(sizes.values())
        last = next(mark for mark in reversed(run.marks) if mark.phase in sizes)
        if last.anon_end_bytes is not None:
            sizes[ANONYMOUS] = last.anon_end_bytes
        prepared = run.mark(PREPARE)
        heap = (prepared.heap_used_end_bytes, prepared.heap_free_end_bytes) if prepared is not None else (None, None)
        return Measured(at, {name: int(size) for name, size in sizes.items()}, heap_used_bytes=heap[0], heap_free_bytes=heap[1])

    def _side_by_side(self, at: Mapping[str, int]) -> Measured:
        count = self._space.value(PROCESSES, at) or 1
        seen = together.measure(self._order(at), count, self._progress, self._keep, _free())
        run = seen.runs[0]
        self._known(run)
        sizes = {phase: total.pss_bytes for phase, total in seen.phases.items() if phase != STARTUP}
        if not run.outcome.ok:
            return _failed(at, run, sizes, ALL, seen.charged_peak_bytes)
        last = list(seen.phases)[-1]
        sizes[ALL] = seen.phases[last].pss_bytes
        charged = seen.phases[last].charged_bytes
        if charged is not None:
            sizes[CHARGED] = charged
        if seen.shared:
            self._shared = seen.shared
        return Measured(at, sizes)

    def _known(self, run: Run) -> None:
        self._job = run.job
        self._noise = (max(float(_LEAST_NOISE_BYTES), run.machine.peak_bound_bytes / 4), _NOISE)

    def _would_not_fit(self, at: Mapping[str, int]) -> bool:
        """Whether a place surely needs more than is free: only said once a law is known."""
        if len(self._points) < 3 or self._request.place is not HERE:
            return False
        law = laws.law(self._series(self._main), noise=self._noise)
        return law is not None and law.predict(at).low_bytes > _free()

    def _planned(self, at: Mapping[str, int]) -> int | None:
        """The planner's own peak at a place, with the operators in the order of the file."""
        if self._unplanned:
            return None
        path = Path(self._model.path)
        if path.suffix not in (".onnx", ".tflite", ".circle"):
            self._unplanned = "there is no plan to hold it against: graphs are read from .onnx, .tflite and .circle files"
            return None
        if self._request.inputs is not None:
            self._unplanned = "there is no plan to hold it against: inputs come from a file"
            return None
        try:
            graph = read(path, self._space.shapes(at, self._request.shapes))
            if graph.unsized:
                raise InputError(f"the size of {graph.unsized[0]} is not known")
            mapped = problem(graph)
            return describe(mapped, range(mapped.problem.count), "model").peak_bytes
        except MemprofError as error:
            self._unplanned = f"there is no plan to hold it against: {error}"
            return None

    # -- places

    def _lowest(self) -> dict[str, int]:
        return {dimension.label: dimension.low for dimension in self._varying}

    def _ranges(self) -> dict[str, tuple[int, int]]:
        return {
            dimension.label: (dimension.low, dimension.high - (dimension.high - dimension.low) % dimension.step)
            for dimension in self._varying
        }

    def _candidates(self) -> list[dict[str, int]]:
        most = {1: 24, 2: 12}.get(len(self._varying), 7)
        values = [laws.values_of(dimension.low, dimension.high, dimension.step, most) for dimension in self._varying]
        labels = [dimension.label for dimension in self._varying]
        return [dict(zip(labels, chosen, strict=True)) for chosen in itertools.product(*values)]

    # -- the answer

    def _series(self, name: str) -> list[Point]:
        shifted = name not in (MODEL_LOAD, ALL, CHARGED)
        return [
            Point(point.at, point.sizes[name] + (point.shift_bytes if shifted else 0), point.least and name in (self._main, _last(point)))
            for point in self._points
            if name in point.sizes and not point.held_out and (not point.ended or point.least)
        ]

    def _shift(self) -> None:
        """Find runs whose PREPARE left less freed memory in the heap than others by chance, so that laws need not explain it.

        A runtime's peaks come in modes: glibc returns the top of its heap to the kernel or keeps it, as the order of a few calls has it. PREPARE
        then ends with the same memory in use and another amount of freed memory. Shifted sizes are taken only where they fit a law better.
        """
        known = [point for point in self._points if not point.ended and point.heap_used_bytes and point.heap_free_bytes is not None]
        used = [point.heap_used_bytes or 0 for point in known]
        if len(known) < 3 or max(used) - min(used) > _SAME * max(used):
            return
        most = max(point.heap_free_bytes or 0 for point in known)
        plain = laws.law(self._series(self._main), noise=self._noise)
        before = list(self._points)
        self._points = [replace(point, shift_bytes=most - (point.heap_free_bytes or 0)) if point in known else point for point in before]
        shifted = laws.law(self._series(self._main), noise=self._noise)
        if shifted is None or shifted.error is None or (plain is not None and plain.error is not None and shifted.error >= plain.error / 2):
            self._points = before
        else:
            self._kept = most

    def _laws(self) -> tuple[Named, ...]:
        names = dict.fromkeys(name for point in self._points if not point.ended for name in point.sizes)
        ordered = [self._main, *(name for name in names if name != self._main)]
        return tuple(Named(name, laws.law(self._series(name), noise=self._noise)) for name in ordered)

    def _answer(self) -> Scaled:
        job = self._job
        assert job is not None
        self._shift()
        named = self._laws()
        answer = Scaled(
            model=self._model.name,
            runtime=job.runtime,
            settings=self._settings(job),
            dimensions=self._space.dimensions,
            points=tuple(self._points),
            main=self._main,
            laws=named,
            changes=_changes(self._main, named, self._ranges()),
            predictions=tuple(_predicted(self._main, named, self._request.predictions)),
            within_bytes=self._request.within_bytes,
            unplanned=self._unplanned,
            shared=self._shared,
            threads=job.threads if THREADS not in self._labels() else None,
            undecided=self._undecided(named[0].law),
        )
        answer = replace(answer, within=self._within(answer), planned=self._planned_law())
        answer = replace(answer, against=_against(answer))
        return replace(answer, findings=tuple(self._findings(answer)), remarks=tuple(self._remarks))

    def _settings(self, job: Job) -> str:
        """The knobs that were the same everywhere."""
        same = {name: value for name, value in written(job.knobs).items() if name not in self._labels()}
        return ",".join(f"{name}={value}" for name, value in sorted(same.items()))

    def _labels(self) -> set[str]:
        return {name for dimension in self._space.dimensions for name in dimension.names}

    def _undecided(self, law: Law | None) -> str:
        """What there is too little of to know the law, and what to add."""
        whole = [point for point in self._points if not point.ended]
        for dimension in self._varying:
            values = {point.at[dimension.label] for point in whole}
            possible = (dimension.high - dimension.low) // dimension.step + 1
            if len(values) < 3 and possible < _TOO_FEW_VALUES:
                wide = max(4 * dimension.low, dimension.high)
                return (
                    f"{dimension.label}={dimension.low}..{dimension.high} has {counted(possible, 'value')}, and a line goes through any two: "
                    f"widen the range, such as --vary {','.join(dimension.names)}={dimension.low}..{wide}"
                )
        if law is not None and law.error is None:
            fewest = len(law.coefficients) + 2
            return (
                f"{counted(law.points, 'run')} are as many as the law has terms, so that nothing tests it: give --points {fewest} or more"
            )
        sizes = [point.sizes[self._main] for point in whole if self._main in point.sizes]
        noise = 4 * max(self._noise[0], self._noise[1] * max(sizes))
        if law is not None and max(sizes) - min(sizes) < noise and len(law.coefficients) == 1:
            ranges = ", ".join(f"{dimension.label}={dimension.low}..{dimension.high}" for dimension in self._varying)
            return (
                f"over {ranges} the figure changes by {format_bytes(max(sizes) - min(sizes))}, which is within the noise: widen the range"
            )
        return ""

    def _within(self, answer: Scaled) -> tuple[Within, ...]:
        limit = self._request.within_bytes
        if limit is None or answer.law is None:
            return ()
        rows = []
        ranges = self._ranges()
        for label, (low, _) in ranges.items():
            others = {name: ends for name, ends in ranges.items() if name != label}
            for fixed in itertools.product(*others.values()):
                at = dict(zip(others, fixed, strict=True))
                rows.append(Within(label, at, *laws.largest(_Main(answer), label, at, limit, low)))
        return tuple(rows)

    def _planned_law(self) -> Law | None:
        points = [Point(point.at, point.planned_bytes) for point in self._points if point.planned_bytes and not point.held_out]
        return laws.law(points, noise=(64.0, 1e-6)) if len(points) >= 3 else None

    def _findings(self, answer: Scaled) -> list[str]:
        findings = []
        kept = max(point.shift_bytes for point in self._points)
        if kept > 4 * self._noise[0]:
            findings.append(
                f"PREPARE keeps up to {format_bytes(kept)} more or less freed memory by chance, with the same settings; laws are of runs that keep "
                f"the most, and a run may need so much less."
            )
        whole = [point for point in self._points if not point.ended and not point.held_out]
        for dimension in self._varying:
            law = answer.law
            if law is not None and not any(dimension.label in dict(c.term.powers) for c in law.coefficients) and not answer.undecided:
                findings.append(f"{dimension.label} makes no difference beyond noise between {dimension.low} and {dimension.high}.")
        findings += _sessions(answer, self._model.weight_bytes or self._model.bytes)
        findings += _processes(answer)
        findings += self._cache(answer)
        if answer.unplanned:
            self._remark(f"{answer.unplanned[0].upper()}{answer.unplanned[1:]}.")
        findings += self._growth(whole)
        return findings

    def _cache(self, answer: Scaled) -> list[str]:
        """The KV cache of a .gguf model, by its file's arithmetic, beside what a token of context costs."""
        law = answer.named(ANONYMOUS)
        path = Path(self._model.path)
        if path.suffix != ".gguf" or law is None:
            return []
        try:
            arithmetic = kv_cache(path).bytes_per_token((self._job.knobs if self._job else {}).get("kv_type", "f16"))
        except InputError as error:
            self._remark(f"{error}.")
            return []
        if _CONTEXT not in self._ranges():
            return []
        cost = next(
            (entry for entry in law.coefficients if len(entry.term.powers) == 1 and dict(entry.term.powers).get(_CONTEXT) == 1), None
        )
        if cost is None:
            return [
                f"A token of KV cache is {format_bytes(arithmetic)} by the file, and no such term was found: memory does not grow with context so."
            ]
        said = f"A token of context costs {cost.bytes / 1024:.2f} KiB of anonymous memory, of which {arithmetic / 1024:.2f} KiB is the KV cache"
        return [f"{said} by the file: it is not kept whole." if cost.bytes < (1 - _DIFFERENT) * arithmetic else f"{said}."]

    def _growth(self, whole: Sequence[Measured]) -> list[str]:
        """EXECUTE's growth beside the plan's, where they differ."""
        low, high = whole[0], max(whole, key=lambda point: point.planned_bytes or 0)
        if not low.planned_bytes or not high.planned_bytes or EXECUTE not in low.sizes or high.planned_bytes <= low.planned_bytes:
            return []
        grown, planned = high.sizes[EXECUTE] - low.sizes[EXECUTE], high.planned_bytes - low.planned_bytes
        more = grown - planned
        if abs(more) <= max(_DIFFERENT * planned, 4 * self._noise[0]):
            return []
        reason = "kernels' scratch memory, an arena's rounding, or a copy" if more > 0 else "operators are fused, or run in another order"
        return [
            f"From {_words(low.at)} to {_words(high.at)} the peak of EXECUTE grows by {format_bytes(grown)}, the planner's own peak by "
            f"{format_bytes(planned)}: {format_bytes(abs(more))} {'more' if more > 0 else 'less'} than the activations of the graph ({reason})."
        ]

    def _remark(self, sentence: str) -> None:
        if sentence not in self._remarks:
            self._remarks.append(sentence)

    # -- confirming

    def _confirmed(self, answer: Scaled) -> Scaled:
        """The answer with its predictions measured, where they can be."""
        if not self._request.confirm or answer.law is None:
            return answer
        wanted: list[Mapping[str, int]] = [{name: int(value) for name, value in prediction.at.items()} for prediction in answer.predictions]
        wanted += [{**row.others, row.dimension: row.value} for row in answer.within if row.value]
        if not wanted:
            place = laws.next_place(
                self._series_for_design(), [at for at in self._candidates() if at not in self._skipped], noise=self._noise
            )
            wanted = [place] if place is not None else []
        seen: dict[tuple[tuple[str, int], ...], Measured] = {}
        for at in wanted:
            key = tuple(sorted(at.items()))
            if key not in seen:
                seen[key] = self._measure(at, held_out=True)
        rows = tuple(
            replace(row, confirmed_bytes=seen[tuple(sorted({**row.others, row.dimension: row.value}.items()))].sizes.get(self._main))
            if row.value
            else row
            for row in answer.within
        )
        for point in seen.values():
            if point.ended and not point.sizes:
                self._remark(f"{_words(point.at)} was not confirmed: {point.ended}.")
        return replace(answer, points=tuple(self._points), within=rows, remarks=tuple(self._remarks))


class _Main:
    """The main figure's law in the form that laws.largest asks."""

    def __init__(self, answer: Scaled) -> None:
        self._answer = answer

    def predict(self, at: At) -> Prediction:
        """See laws.Law."""
        return self._answer.predict([at])[0]


def _predicted(main: str, named: Sequence[Named], places: Sequence[At]) -> list[Prediction]:
    """The main figure at places. PEAK is the largest of what the phases' laws say, so that it may change from one phase's law to another's."""
    by_name = {entry.name: entry.law for entry in named}
    if not places or by_name.get(main) is None:
        return []
    phases = [law for name, law in by_name.items() if name not in (PEAK, ANONYMOUS)]
    whole = by_name[main]
    assert whole is not None
    if main != PEAK or not phases or any(law is None for law in phases):
        return whole.predict_all(places)
    each = [law.predict_all(places) for law in phases if law is not None]
    return [
        replace(
            max(row, key=lambda prediction: prediction.bytes),
            low_bytes=max(prediction.low_bytes for prediction in row),
            high_bytes=max(prediction.high_bytes for prediction in row),
        )
        for row in zip(*each, strict=True)
    ]


def _changes(main: str, named: Sequence[Named], ranges: Mapping[str, tuple[int, int]]) -> tuple[Change, ...]:
    """Where another phase begins to make the peak, along each dimension with the others at their lowest."""
    phases = {entry.name: entry.law for entry in named if entry.law is not None and entry.name not in (PEAK, ANONYMOUS)}
    if main != PEAK or len(phases) < 2:
        return ()
    changes = []
    for label, (low, high) in ranges.items():
        others = {name: ends[0] for name, ends in ranges.items() if name != label}

        def top(value: int, label: str = label, others: Mapping[str, int] = others) -> str:
            sizes = {name: law.predict({**others, label: value}).bytes for name, law in phases.items()}
            best = max(sizes.values())
            # Phases that are nearly as high are one: the later stands for them, for it is the one that repeats.
            return [name for name in sizes if sizes[name] >= best * 0.98][-1]

        before, after = top(low), top(high)
        if before == after:
            continue
        left, right = low, high
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if top(middle) == before else (left, middle)
        changes.append(Change(label, left, before, top(right), others))
    return tuple(changes)


def _against(answer: Scaled) -> tuple[Against, ...]:
    """The terms of EXECUTE's law beside those of the planner's."""
    measured = answer.named(EXECUTE)
    if answer.planned is None or measured is None:
        return ()
    ours = {coefficient.term.words: coefficient.bytes for coefficient in measured.coefficients if coefficient.term.powers}
    theirs = {coefficient.term.words: coefficient.bytes for coefficient in answer.planned.coefficients if coefficient.term.powers}
    return tuple(Against(words, ours.get(words), theirs.get(words)) for words in dict.fromkeys([*ours, *theirs]))


def _slope(answer: Scaled, label: str, name: str | None = None) -> laws.Coefficient | None:
    law = answer.named(name or answer.main)
    return law.coefficient(label) if law is not None else None


def _sessions(answer: Scaled, weight_bytes: int) -> list[str]:
    """Whether sessions share their weights."""
    slope = _slope(answer, SESSIONS, ANONYMOUS) or _slope(answer, SESSIONS)
    peak = _slope(answer, SESSIONS)
    if peak is None or slope is None or not weight_bytes:
        return []
    costs = f"Each further session costs {format_bytes(peak.bytes)} of {answer.main}; the model's weights are {format_bytes(weight_bytes)}"
    if peak.bytes < 0.5 * weight_bytes:
        return [f"{costs}: sessions share them."]
    copies = peak.bytes / weight_bytes
    return [f"{costs}: sessions do not share them" + (f" ({copies:.1f} times their size each)." if copies > 1.5 else ".")]


def _processes(answer: Scaled) -> list[str]:
    """What the next process costs, by its proportional share and by the control group."""
    slope = _slope(answer, PROCESSES)
    if slope is None:
        return []
    text = f"The next process costs {format_bytes(slope.bytes)} ({format_bytes(slope.low_bytes)} to {format_bytes(slope.high_bytes)})"
    charged = _slope(answer, PROCESSES, CHARGED)
    if charged is not None:
        text += f"; the control group is charged {format_bytes(charged.bytes)} for it, page tables included"
    findings = [f"{text}."]
    if answer.shared:
        files = ", ".join(f"{Path(entry.path).name} {format_bytes(entry.bytes)}" for entry in answer.shared)
        findings.append(f"The processes share pages of {files}.")
    return findings


def _failed(at: Mapping[str, int], run: Run, sizes: dict[str, int], main: str = PEAK, charged: int | None = None) -> Measured:
    """A run that failed. If it died of want of memory, it needs at least what it was last seen with."""
    outcome = run.outcome
    if not ran_out(outcome):
        return Measured(at, {}, outcome.sentence)
    seen = [outcome.rss_last_bytes or 0, charged or 0, *sizes.values()]
    if run.charged is not None:
        seen.append(run.charged.peak_bytes or 0)
    least = max([*seen, run.timeline.rss_max_bytes])
    if not least:
        return Measured(at, {}, outcome.sentence)
    if outcome.phase:
        sizes = {**sizes, str(outcome.phase): least}
    return Measured(at, {**sizes, main: least}, f"out of memory {outcome.where}", least=True)


def ran_out(outcome: Outcome) -> bool:
    """Whether a run died of want of memory: by the kernel's hand, or by the runtime's own words."""
    if outcome.ok:
        return False
    if outcome.out_of_memory is not False:
        return True
    return outcome.status in ("error", "exit", "signal") and bool(_WANT.search(outcome.sentence))


def _last(point: Measured) -> str:
    """The phase in which a run died."""
    return (point.ended or "").rpartition(" in ")[2]


def _guard(place: Place) -> limits.Groups | None:
    """A control group that bounds each run by the memory that is free, so that a place too large ends that run and nothing else."""
    if place is not HERE:
        return None
    limiter = limits.find("auto")
    return limiter if isinstance(limiter, limits.Groups) else None


def _free() -> int:
    """The memory that a run may take, in bytes."""
    return int(_SHARE * psutil.virtual_memory().available)


def _words(at: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in at.items())
