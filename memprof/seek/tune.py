"""The settings of a runtime with the least peak: measures what memprof.seek.search asks for, one after another, and verifies what it found.

Every measurement is a Run of its own in a runs file, so that a search that was stopped is taken up again from it and every report works on it.
What is proposed is not what the search saw but fresh runs of the default and of each proposal, interleaved.
"""

from __future__ import annotations

import glob
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import InputError, MeasurementError, UsageError
from ..measuring import campaign
from ..measuring.orders import Order, order
from ..measuring.progress import Progress, Quiet
from ..measuring.suite import MS, Suite, Variant
from ..models.identity import identify
from ..programs import runtimes
from ..programs.runtimes import Knob, Runtime
from ..runs import metrics, store
from ..runs.records import EXECUTE, PEAK, Run
from ..runs.settings import written
from ..units import format_bytes, format_duration
from .search import DEFAULT, Goal, Point, Search, Settings, Trial, front

VERIFYING_REPEATS = 5
_MOST_PROPOSALS = 5
_SEARCH_RUNS, _VERIFYING_RUNS, _WARMUP = 5, 10, 2
# A setting that takes this many times as long as the default (but half a minute at least) is taken to hang.
_PATIENCE, _LEAST_PATIENCE_NS = 20, 30 * 1000 * MS
# Where distributions put other allocators.
_ALLOCATORS = ("libjemalloc.so*", "libtcmalloc_minimal.so*", "libmimalloc.so*")
_FOLDERS = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


@dataclass(frozen=True)
class Wish:
    """What to search for and where: the model, the runtime, and the words of `memprof run` that hold for all trials.

    tries: values to try by knob, in place of the knob's own. tolerance: by how much outputs may differ from the default's, relative to the
    largest, before it is said. time_ns: how long it may take, verification included.
    """

    model: str
    runtime: str
    goal: Goal = field(default_factory=Goal)
    fixed: Mapping[str, str] = field(default_factory=dict)
    tries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    threads: int | None = None
    python: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: str | None = None
    tolerance: float = 1e-3
    time_ns: int = 600 * 1000 * MS
    seed: int = 0


@dataclass(frozen=True)
class Proposal:
    """Settings with verified figures: medians of fresh interleaved runs, PEAK in bytes and an iteration's time in ns.

    number: its runs are those of the variant whose name begins with # and this; 0 is the default.
    output_error: see Run; None where the runtime hands no outputs out. command: what measures it again. variables: the environment that
    carries those settings which act there.
    """

    number: int
    settings: Settings
    peak: float
    time: float
    peaks: tuple[float, ...]
    times: tuple[float, ...]
    output_error: float | None
    changes_outputs: bool
    command: str
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Tuned:
    """The outcome: the default, the proposals of the front with the least peak first, and what the search learned on the way.

    best: the proposal that the goal asks for, None where none reaches it. idle: values that change nothing by themselves. failed: the
    smallest combinations that failed, each with what was said. complete: False where it ran out of time or was interrupted before the search
    had nothing left to gain. verified: False where it was interrupted before its proposals were measured again. runs: those behind the figures,
    the trials where nothing was verified; what differs only in what changes nothing is one variant.
    """

    model: str
    runtime: str
    goal: Goal
    default: Proposal
    proposals: tuple[Proposal, ...]
    best: Proposal | None
    idle: tuple[tuple[str, str], ...]
    failed: tuple[tuple[Settings, str], ...]
    trials: int
    complete: bool
    verified: bool
    tolerance: float
    runs: tuple[Run, ...] = field(default=(), repr=False)


def tune(wish: Wish, progress: Progress, keep: Callable[[bytes], None], earlier: Sequence[Run] = ()) -> Tuned:
    """Search, verify, and say what was found; each Run is given to `keep`. earlier: the runs of a search that was stopped.

    Raises UsageError or InputError for what is wrong with the wish, MeasurementError where the default itself fails. KeyboardInterrupt ends
    the search, not the answer: what was found until then is returned unverified.
    """
    return _Tuner(wish, progress, keep).run(earlier)


class _Tuner:
    def __init__(self, wish: Wish, progress: Progress, keep: Callable[[bytes], None]) -> None:
        self._wish, self._progress, self._keep = wish, progress, keep
        self._python = runtimes.interpreter(wish.python)
        self._runtime = runtimes.find(wish.runtime, self._python)
        self._model = identify(Path(wish.model))
        if not self._runtime.takes(self._model.path):
            raise UsageError(f"{self._model.name}: {self._runtime.name} does not take it")
        self._suite = Suite(
            set=dict(wish.fixed),
            threads=(wish.threads,) if wish.threads else (),
            shapes=dict(wish.shapes),
            inputs=wish.inputs,
            warmup=_WARMUP,
            runs=_SEARCH_RUNS,
            repeats=1,
            python=self._python,
        )
        self._search = Search(_knobs(self._runtime, wish), wish.goal, wish.seed)
        self._fixed = dict(self._order(DEFAULT, "default").job.knobs)
        # A Run keeps values as the runtime's side reads them: 65536 for 64KiB.
        checked = {knob.name: knob for knob in self._runtime.knobs}
        self._written = {
            (name, checked[name].check(value)): (name, value) for name, values in self._search.knobs.items() for value in values
        }
        self._said: dict[Settings, str] = {}
        self._tried: list[tuple[Settings, Run]] = []
        self._begin_ns = time.monotonic_ns()
        self._took_ns: list[int] = []

    def run(self, earlier: Sequence[Run]) -> Tuned:
        for run in earlier:
            self._take_up(run)
        if earlier:
            self._progress.say(f"taken up again after {len(self._search.trials)} trials")
        with tempfile.TemporaryDirectory(prefix="memprof-tune-") as folder:
            self._outputs, self._reference = Path(folder, "outputs.npz"), Path(folder, "default.npz")
            complete, verified = False, dict[Settings, list[Run]]()
            try:
                complete = self._look()
                verified = self._verify()
            except KeyboardInterrupt:
                if not self._search.of(DEFAULT):
                    raise
                self._progress.say("interrupted: what follows was found until here and not verified")
            return self._tuned(verified, complete)

    # -- searching

    def _look(self) -> bool:
        """Measure what the search asks for; False where the time is up first."""
        while (settings := self._search.ask()) is not None:
            if self._search.of(DEFAULT) and self._left_ns() < self._verifying_ns():
                return False
            begin_ns = time.monotonic_ns()
            run = self._measured(settings)
            self._took_ns.append(time.monotonic_ns() - begin_ns)
            self._note(settings, run)
            if settings == DEFAULT and not run.outcome.ok:
                raise MeasurementError(f"{self._model.name}, {self._runtime.name}: the default settings fail: {run.outcome.sentence}")
            self._progress.say(f"[{len(self._search.trials)}] {shown(settings)}: {self._words(self._search.trials[-1], run)}")
        return True

    def _measured(self, settings: Settings) -> Run:
        order = self._order(settings, shown(settings))
        limit = _PATIENCE * statistics.median(self._took_ns[:3]) if self._took_ns else 0
        job = replace(order.job, repeat=len([one for one in self._search.trials if one.settings == settings]) + 1)
        order = replace(order, job=replace(job, timeout_ns=min(job.timeout_ns, int(max(limit, _LEAST_PATIENCE_NS)))))
        return next(iter(self._compared([order])))

    def _compared(self, orders: Sequence[Order]) -> Iterator[Run]:
        """Measure; each Run says how far its outputs lie from the default's. The first that succeeds is that default."""
        orders = [replace(order, outputs=str(self._outputs)) for order in orders]
        for run in campaign.measure(orders, Quiet(self._progress, len(self._search.trials)), lambda line: None):
            if run.outcome.ok and self._outputs.exists():
                if not self._reference.exists() and run.job.knobs == self._fixed:
                    self._reference.write_bytes(self._outputs.read_bytes())
                if self._reference.exists():
                    run = replace(run, output_error=output_error(self._reference, self._outputs))
            self._outputs.unlink(missing_ok=True)
            self._keep(store.encode(run))
            yield run

    def _order(self, settings: Settings, name: str) -> Order:
        variant = Variant(runtime=self._wish.runtime, name=name, set=dict(settings), python=self._python)
        return order(self._suite, self._model, variant)

    def _take_up(self, run: Run) -> None:
        job = run.job
        if (job.model.sha256, job.runtime, job.threads) != (self._model.sha256, self._runtime.name, self._wish.threads):
            raise InputError("the runs to go on with are of another model, runtime or thread count")
        if job.verifies:
            return
        words = written(job.knobs)
        settings = frozenset(
            self._written.get((key, value), (key, words[key])) for key, value in job.knobs.items() if key not in self._fixed
        )
        if any(key in job.knobs and job.knobs[key] != value for key, value in self._fixed.items()):
            raise InputError("the runs to go on with were measured with other --set")
        if run.about and self._runtime.version and run.about.runtime_version != self._runtime.version:
            raise InputError(f"the runs to go on with are of {job.runtime} {run.about.runtime_version}, not {self._runtime.version}")
        self._note(settings, run)

    def _note(self, settings: Settings, run: Run) -> None:
        self._search.tell(_trial(settings, run))
        self._tried.append((settings, run))
        if not run.outcome.ok:
            self._said[settings] = run.outcome.sentence

    def _words(self, trial: Trial, run: Run) -> str:
        if not trial.ok:
            return f"failed: {run.outcome.sentence}"
        words = f"{format_bytes(trial.peak or 0)}, {format_duration(trial.time or 0)}"
        if self._search.of(DEFAULT) and trial.settings != DEFAULT:
            base = self._search.base
            words += f" ({(trial.peak or 0) / base.peak:.0%} and {(trial.time or 0) / base.time:.0%} of the default's)"
        if run.output_error is not None and run.output_error > self._wish.tolerance:
            words += f", outputs differ by {run.output_error:.2g}"
        return words

    # -- time

    def _left_ns(self) -> int:
        return self._wish.time_ns - (time.monotonic_ns() - self._begin_ns)

    def _verifying_ns(self) -> float:
        each = statistics.median(self._took_ns) if self._took_ns else 0
        return each * VERIFYING_REPEATS * (1 + len(self._chosen())) * 1.2

    # -- verifying

    def _chosen(self) -> list[Point]:
        """The points of the front to verify: the best by the goal, and others along it."""
        base = self._search.base
        points = [point for point in front(self._search.plain_points()) if point.settings != DEFAULT and point.peak < base.peak * 0.995]
        points.sort(key=self._search.value)
        best, rest = points[:2], sorted(points[2:], key=lambda point: point.peak)
        step = max(1, -(-len(rest) // (_MOST_PROPOSALS - len(best)))) if rest else 1
        return sorted(best + rest[::step], key=lambda point: point.peak)

    def _verify(self) -> dict[Settings, list[Run]]:
        """Fresh runs of the default and of each point, interleaved."""
        wanted = [DEFAULT, *(point.settings for point in self._chosen())]
        self._progress.say(f"verifying {len(wanted) - 1} proposals against the default, {VERIFYING_REPEATS} fresh runs each, interleaved")
        plain = self._suite
        self._suite = replace(plain, runs=_VERIFYING_RUNS)
        orders = [self._order(settings, f"#{number} {shown(settings)}") for number, settings in enumerate(wanted)]
        self._suite = plain
        each = [
            replace(order, job=replace(order.job, repeat=repeat, verifies=True))
            for repeat in range(1, VERIFYING_REPEATS + 1)
            for order in orders
        ]
        found: dict[Settings, list[Run]] = {settings: [] for settings in wanted}
        for number, run in enumerate(self._compared(each)):
            found[wanted[number % len(wanted)]].append(run)
        return found

    def _tuned(self, verified: Mapping[Settings, Sequence[Run]], complete: bool) -> Tuned:
        failures = {
            settings: said for settings, runs in verified.items() for run in runs if not run.outcome.ok for said in [run.outcome.sentence]
        }
        sure = DEFAULT in verified and DEFAULT not in failures
        if sure:
            good = [self._proposal(number, one, runs) for number, (one, runs) in enumerate(verified.items()) if one not in failures]
        else:
            plain = self._search.plain()
            wanted = [DEFAULT, *(point.settings for point in self._chosen())]
            seen = {one: [run for settings, run in self._tried if plain.get(settings) == one] for one in wanted}
            found = [self._proposal(number, one, runs) for number, (one, runs) in enumerate(seen.items())]
            # Beside values that move neither figure the outputs may be others.
            good = [replace(one, output_error=None, changes_outputs=False) for one in found]
        default, *others = good
        kept = [one for one in others if not any(_beats(other, one) for other in good if other is not one)]
        kept.sort(key=lambda one: one.peak)
        return Tuned(
            model=self._model.name,
            runtime=self._runtime.name,
            goal=self._wish.goal,
            default=default,
            proposals=tuple(kept),
            best=_best(self._wish.goal, default, kept),
            idle=tuple(self._search.idle()),
            failed=tuple((one, self._said.get(one, "")) for one in self._search.failed()) + tuple(failures.items()),
            trials=len(self._search.trials),
            complete=complete,
            verified=sure,
            tolerance=self._wish.tolerance,
            runs=tuple(run for runs in verified.values() for run in runs) if sure else tuple(self._plain_runs()),
        )

    def _plain_runs(self) -> Iterator[Run]:
        plain = self._search.plain()
        for settings, run in self._tried:
            yield replace(run, job=replace(run.job, variant=shown(plain.get(settings, settings))))

    def _proposal(self, number: int, settings: Settings, runs: Sequence[Run]) -> Proposal:
        trials = [_trial(settings, run) for run in runs]
        peaks, times = tuple(trial.peak or 0.0 for trial in trials), tuple(trial.time or 0.0 for trial in trials)
        errors = [run.output_error for run in runs if run.output_error is not None]
        return self._with_words(number, settings, peaks, times, max(errors) if errors else None)

    def _with_words(
        self, number: int, settings: Settings, peaks: tuple[float, ...], times: tuple[float, ...], error: float | None
    ) -> Proposal:
        order = self._order(settings, shown(settings))
        return Proposal(
            number=number,
            settings=settings,
            peak=statistics.median(peaks),
            time=statistics.median(times),
            peaks=peaks,
            times=times,
            output_error=error,
            changes_outputs=error is not None and error > self._wish.tolerance,
            command=_command(self._wish, {**self._wish.fixed, **dict(settings)}),
            variables={name: value for name, value in order.env.items() if value is not None},
        )


def output_error(reference: Path, outputs: Path) -> float:
    """The largest difference of two .npz files' arrays over the largest magnitude of the first's; infinite where shapes or finiteness differ."""
    import numpy

    with numpy.load(reference) as before, numpy.load(outputs) as after:
        if set(before.files) != set(after.files):
            return float("inf")
        worst = 0.0
        for name in before.files:
            one, other = before[name], after[name]
            if one.shape != other.shape or one.dtype.kind not in "fiub":
                same = one.shape == other.shape and bool(numpy.array_equal(one, other))
                worst = max(worst, 0.0 if same else float("inf"))
                continue
            one, other = one.astype("float64"), other.astype("float64")
            if not numpy.array_equal(numpy.isfinite(one), numpy.isfinite(other)):
                return float("inf")
            finite = numpy.isfinite(one)
            scale = float(numpy.abs(one[finite]).max(initial=0.0)) or 1.0
            worst = max(worst, float(numpy.abs(one - other)[finite].max(initial=0.0)) / scale)
        return worst


def shown(settings: Settings) -> str:
    """Settings as a variant is written: `mmap=on,prepacking=off`; `default` where there are none."""
    return ",".join(f"{name}={value}" for name, value in sorted(settings)) or "default"


def _knobs(runtime: Runtime, wish: Wish) -> dict[str, tuple[str, ...]]:
    """What is searched: each knob's values but the default's, and the allocators that this machine has."""
    known = {knob.name: knob for knob in runtime.knobs}
    for name in (*wish.fixed, *wish.tries):
        if name not in known:
            raise runtimes.unknown_knob(name, [runtime])
    found = {name: _values(knob, wish) for name, knob in known.items() if name not in wish.fixed}
    return {name: values for name, values in found.items() if values}


def _values(knob: Knob, wish: Wish) -> tuple[str, ...]:
    if knob.name in wish.tries:
        for value in wish.tries[knob.name]:
            knob.check(value)
        return tuple(dict.fromkeys(value for value in wish.tries[knob.name] if value != knob.default))
    if knob.name == "preload":
        return allocators()
    return knob.candidates()


def allocators() -> tuple[str, ...]:
    """Shared libraries of other allocators on this machine, one a kind."""
    found = []
    for pattern in _ALLOCATORS:
        paths = sorted(path for folder in _FOLDERS for path in glob.glob(f"{folder}/{pattern}"))
        found += paths[:1]
    return tuple(found)


def _trial(settings: Settings, run: Run) -> Trial:
    mark = run.mark(EXECUTE)
    peak = metrics.value(run, PEAK, metrics.METRICS["rss_peak_bytes"])
    if not run.outcome.ok or peak is None or mark is None or not mark.times_ns:
        return Trial(settings, None, None)
    return Trial(settings, peak, statistics.median(mark.times_ns))


def _beats(one: Proposal, other: Proposal) -> bool:
    """Whether it has less of one and no more of the other."""
    return one.peak <= other.peak and one.time <= other.time and (one.peak < other.peak or one.time < other.time)


def _best(goal: Goal, default: Proposal, proposals: Sequence[Proposal]) -> Proposal | None:
    if goal.budget is not None:
        within = [one for one in (default, *proposals) if one.peak <= goal.budget]
        return min(within, key=lambda one: one.time, default=None)
    within = [one for one in proposals if goal.max_time is None or one.time <= goal.max_time * default.time]
    return min(within, key=lambda one: one.peak, default=None)


def _command(wish: Wish, knobs: Mapping[str, str]) -> str:
    from shlex import quote

    variant = ",".join([f"tuned={wish.runtime}", *(f"{name}={value}" for name, value in sorted(knobs.items()))])
    words = ["memprof", "run", wish.model, "--variant", variant]
    if wish.threads:
        words += ["--threads", str(wish.threads)]
    if wish.python:
        words += ["--python", wish.python]
    for name, shape in wish.shapes.items():
        words += ["--shape", f"{name}={','.join(map(str, shape))}"]
    if wish.inputs:
        words += ["--inputs", wish.inputs]
    return " ".join(map(quote, words))
