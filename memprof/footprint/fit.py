"""The least memory in which a model still runs: bisects a limit that the child is put under before it starts.

Each trial is a fresh process in a fresh control group. The page cache of its model and of the files it maps is dropped before, because a group is
charged only for pages that it brings in itself. For a phase alone the limit is set while the child stands still before the phase, and lifted while
it stands still after it. A limit works if the job is completed under it, in time. A limit is believed once it has worked three times; that of the
whole run as often again, for these runs are the first point of the curve too. No limit is the least while a run failed in it or in a higher one: a
group is not charged for pages that others hold, so a run can work by chance in far less than it needs by itself.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ..base.errors import MeasurementError, UsageError
from ..base.units import counted, exact_bytes, format_bytes, format_duration
from ..campaign import campaign
from ..campaign.progress import Keep, Progress, Quiet
from ..places import limits
from ..places.limits import By, Limiter
from ..records import metrics
from ..records.settings import in_a_line
from ..records.summary import timed_phase
from ..records.types import COMMAND, EXECUTE, GENERATE, MODEL_LOAD, PEAK, PREPARE, PROMPT, STARTUP, Job, Outcome, Run
from ..subjects import orders
from ..subjects.order import Order, assumed_words, shapes_that_run
from ..subjects.suite import MS, Suite
from . import shared_files
from .next_commands import gate_line, tune_line
from .shared_files import HeldFiles

WHOLE = "whole run"
PARTS = (WHOLE, MODEL_LOAD, PREPARE, EXECUTE)
CONFIRMATIONS = 3
# How exactly the limit is found: to this share of it, and no finer than so many bytes.
_SHARE, _NEAREST = 0.005, 256 << 10
# How far above the first limit that worked the search may be sent by later failures.
_RISE = 1.25
_PLAIN_RUNS = 3
_CURVE = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0)
# Near its limit a run reads its libraries again and again. It is ended when it takes so many times as long as without a limit, and at least so long.
_PATIENCE, _LEAST_PATIENCE_NS = 5, 5 * 1000 * MS
_PAGE = os.sysconf("SC_PAGE_SIZE")


class FitRequest(Struct, frozen=True):
    """The question to answer.

    suite: of one model in a runtime, or of one program. max_time: how many times as long as without a limit an iteration may take, and a program
    whose iterations are not known as a whole, None for any. parts: of PARTS; a program has only the whole. time_ns: how long the search may take,
    None for as long as it needs. within: the only limit to try, in bytes and on the whole run, None to search the least.
    """

    suite: Suite
    max_time: float | None = None
    parts: Sequence[str] = PARTS
    by: By = "auto"
    time_ns: int | None = None
    within: int | None = None


class PartLimit(Struct, frozen=True):
    """The least limit in bytes under which a part of the job works, None if none was found, and the part's figures with no limit.

    rss_peak_bytes: its RSS peak, which counts pages that others share too, 0 if it was too short to be seen. touched_bytes: the resident pages that
    it referenced, None if the kernel does not say. trials: how many runs had a limit. worked: how many runs have worked under the
    least limit. None failed there or in more. failed_bytes: the highest limit in which a run failed, 0 for none. complete: False if the search
    ended before the least limit was known, or had worked as often as it must. late_bytes: the highest limit in which a run was ended by time and
    tried again, 0 for none.
    """

    name: str
    least_bytes: int | None
    rss_peak_bytes: int
    touched_bytes: int | None
    trials: int
    worked: int = 0
    failed_bytes: int = 0
    complete: bool = True
    late_bytes: int = 0


class LimitPoint(Struct, frozen=True):
    """A point of the curve: a limit (None for none), the median iteration in ns, page faults and refaults over EXECUTE or over a program, and the
    failures in words.

    Where some runs failed, the figures are of the others. runs: how many there were; a limit that only the search tried has one. times_ns: the
    median iteration of each run that did not fail. charged_bytes: the most that a group of those was charged, None if there was no group.
    late: the trials that were ended by time and tried again, in words, empty if there were none.
    """

    limit_bytes: int | None
    time_ns: float | None
    minor_faults: float | None
    major_faults: float | None
    ended: str | None = None
    refaults: float | None = None
    runs: int = 1
    times_ns: tuple[float, ...] = ()
    charged_bytes: int | None = None
    late: str = ""


class Fitted(Struct, frozen=True):
    """The answer. charged_bytes: the most that a group was charged with no limit, None if there was no group. shapes, assumed: see explain's
    records. interrupted: by Ctrl-C or SIGTERM, after the first part. within_bytes: the only limit that was tried, None if the least was searched.
    env: the variables that a program needs for the same settings. calls: the knobs and the number of threads that were set, in the runtime's own
    words. tune_command: a command line that searches settings within the limit that was given, empty without one. gate_command: one that holds
    later runs to a budget, before and behind its size. held: what other processes held of its files, for which its group was not charged.
    """

    model: str
    runtime: str
    settings: str
    limiter: str
    exact: bool
    parts: tuple[PartLimit, ...]
    curve: tuple[LimitPoint, ...]
    charged_bytes: int | None
    max_time: float | None
    remarks: tuple[str, ...]
    threads: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    assumed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    interrupted: bool = False
    within_bytes: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    tune_command: str = ""
    gate_command: tuple[str, str] = ("", "")
    held: HeldFiles = HeldFiles()

    @property
    def whole(self) -> PartLimit | None:
        """What was found of the whole run, None if it was not limited as a whole."""
        return next((part for part in self.parts if part.name == WHOLE), None)

    @property
    def unmet(self) -> str:
        """That the limit which was given is not enough, as a sentence; empty if it is, or none was given or tried."""
        if self.within_bytes is None or self.whole is None or (self.whole.least_bytes is not None and self.whole.complete):
            return ""
        runs = "does not run" if self.whole.complete else "was not shown to run"
        return f"{self.model} {runs} within {format_bytes(self.within_bytes)}"


def fit(request: FitRequest, progress: Progress, keep: Keep) -> Fitted:
    """Find the limits. Each Run is given to `keep`.

    Raises UsageError or InputError for a fault of the request or the machine, MeasurementError if the model does not even run without a limit.
    """
    return _Fitter(request, progress, keep).run()


class _Fitter:
    def __init__(self, request: FitRequest, progress: Progress, keep: Keep) -> None:
        self._request, self._progress, self._keep = request, progress, keep
        for part in request.parts:
            if part not in PARTS:
                raise UsageError(f"--part {part!r} is unknown; the parts are {', '.join(PARTS)}")
        self._program = request.suite.only.command is not None
        if self._program and set(request.parts) != {WHOLE}:
            raise UsageError("--part: a program is limited as a whole, --part whole")
        if request.within is not None and set(request.parts) != {WHOLE}:
            raise UsageError("--within is a limit on the whole run: --part whole")
        # release: the least memory in which a model runs
        warmup = request.suite.warmup if request.suite.warmup is not None else 1
        self._order = orders.of_one(replace(request.suite, warmup=warmup, cache=request.suite.cache or "cold", release=False))
        self._limiter: Limiter = limits.find(request.by)
        self._drop: list[str] = []
        self._files: dict[str, int] = {}  # that a run uses, and how many bytes of each
        self._held = HeldFiles()
        self._patience_ns = 0
        self._plain_time = 0.0
        self._end_ns = time.monotonic_ns() + request.time_ns if request.time_ns is not None else None
        self._stopped = False  # by Ctrl-C or SIGTERM
        self._begin_ns = self._announced_ns = self._trials = 0
        self._remarks: list[str] = []

    def run(self) -> Fitted:
        job = self._order.job
        self._progress.say(f"limited by {self._limiter.words}")
        if assumed := assumed_words(job):
            self._progress.say(assumed)
        touched = self._whole_time() if self._program else self._touched_bytes()
        plain = [self._trial(None, name="no limit") for _ in range(_PLAIN_RUNS)]
        for run in plain:
            if not run.outcome.ok:
                raise MeasurementError(f"{run.job.model.name}, {run.job.runtime}: it fails without any limit: {run.outcome.sentence}")
        self._plain_time = statistics.median(_time(run) for run in plain)
        device = max((mark.device_peak_bytes or 0 for run in plain for mark in run.before_release), default=0)
        if device:
            self._remark(
                f"It has up to {format_bytes(device)} of device memory, which RSS does not count. A limit holds for what of it is memfds or shared "
                "memory; what a driver allocates lies beside the limit."
            )
        charges = [run.charged.peak_bytes for run in plain if run.charged and run.charged.peak_bytes is not None]
        upper = int(max(charges) if charges else max(self._ceiling(run) for run in plain))
        searches: list[_LimitSearch] = []
        interrupted = False
        try:
            for name in self._request.parts:
                if self._stopped:
                    break
                if self._is_time_up():
                    self._remark(f"{name}: the time was up before it was searched; a longer --time searches it.")
                    continue
                self._announce_again(self._runs_to_come(upper, len(self._request.parts) - len(searches)))
                searches.append(self._searched(name, upper))
            for search in searches:
                if search.part == WHOLE:
                    self._measure_curve(search, upper)
        except KeyboardInterrupt:
            if not searches:
                raise
            interrupted = True
            self._remark("Interrupted: the search was not finished.")
        self._see_held_files()
        curve = [point for search in searches if search.part == WHOLE for point in search.curve]
        suite, within = self._request.suite, self._request.within
        threads = {"threads": str(job.threads)} if job.threads else {}
        return Fitted(
            job.model.name,
            job.runtime,
            in_a_line(job.knobs),
            self._limiter.words,
            self._limiter.exact,
            tuple(self._limit_of(search, plain, touched) for search in searches),
            (*curve, _at(None, plain)),
            max(charges) if charges else None,
            self._request.max_time,
            tuple(self._remarks),
            job.threads,
            shapes_that_run(job) or {},
            job.assumed,
            interrupted or self._stopped,
            within,
            self._order.settings_env,
            () if self._program else self._order.runtime.in_program({**suite.set, **suite.only.set, **threads}),
            tune_line(suite, self._order, exact_bytes(within)) if within is not None else "",
            gate_line(suite, self._order),
            self._held,
        )

    # -- a run without a limit, looked at while it stands still

    def _touched_bytes(self) -> dict[str, int]:
        """The bytes that each phase touched. The run also tells the files it maps and how long it takes."""
        touched: dict[str, int] = {}
        files: dict[str, int] = {}

        def look(job: Job, phase: str, pid: int) -> None:
            if phase != STARTUP and (referenced := _referenced(pid)) is not None:
                touched[phase] = referenced
            for path, size in shared_files.used(pid).items():
                files[path] = max(size, files.get(path, 0))
            with suppress(OSError):  # `1`: clear the referenced bits of all pages (proc_pid_clear_refs(5))
                Path(f"/proc/{pid}/clear_refs").write_text("1")

        begin_ns = time.monotonic_ns()
        run = self._measured(replace(self._order, job=replace(self._order.job, hold=True, variant="looked at")), look)
        self._timed(run, time.monotonic_ns() - begin_ns)
        model = {file.path: file.bytes for file in run.job.model.files}
        self._drop = [path for path in files if path not in model]
        self._files = {**files, **model}  # a group is charged for a model's file that is read, too
        self._see_held_files()
        return touched

    def _see_held_files(self) -> None:
        """See what others hold of the child's files now. They may come and go during the search: the most is kept."""
        if self._limiter.exact and self._files:
            self._held = max(self._held, shared_files.held(self._files), key=lambda held: held.bytes)

    def _whole_time(self) -> dict[str, int]:
        """How long a program takes. What it touches is not known, as it is not stopped."""
        begin_ns = time.monotonic_ns()
        run = self._trial(None, name="without a limit")
        self._timed(run, time.monotonic_ns() - begin_ns)
        return {}

    def _timed(self, run: Run, took_ns: int) -> None:
        """Take the time of the first run, and say what is to come. Raises MeasurementError if it failed."""
        given_ns = self._request.suite.timeout_ns
        self._patience_ns = given_ns or max(_LEAST_PATIENCE_NS, int(max(_PATIENCE, 2 * (self._request.max_time or 0)) * took_ns))
        if not run.outcome.ok:
            raise MeasurementError(f"{run.job.model.name}, {run.job.runtime}: it fails without any limit: {run.outcome.sentence}")
        self._announce(_PLAIN_RUNS + self._runs_to_come(self._ceiling(run), len(self._request.parts)), took_ns)

    def _runs_to_come(self, upper: int, parts: int) -> int:
        """About how many runs the search of so many parts and the curve will take, if luck neither helps nor hinders."""
        if self._request.within is not None:
            return CONFIRMATIONS
        high = _start(upper)
        runs_a_part = 1 + math.ceil(math.log2(high / _step(high))) + 2 * CONFIRMATIONS - 1
        curve = 1 + len(_CURVE) if WHOLE in self._request.parts else 0  # its first point confirms the least limit
        return runs_a_part * parts + _PLAIN_RUNS * curve

    def _announce(self, count: int, took_ns: int) -> None:
        duration = f"{format_duration(took_ns)} without a limit and up to {format_duration(self._patience_ns)} near the least"
        low_ns, high_ns = count * took_ns, count * self._patience_ns
        left_ns = self._end_ns - time.monotonic_ns() if self._end_ns is not None else math.inf
        if high_ns <= left_ns:
            in_all = f"{_long(low_ns)} to {_long(high_ns)} in all"
        elif low_ns < left_ns:
            in_all = f"{_long(low_ns)} to {_long(left_ns)} in all, then --time ends the search"
        else:
            in_all = f"--time ends the search before that, in {_long(left_ns)}"
        self._progress.say(f"about {counted(count, 'run')} will follow, {duration}: {in_all}")
        self._trials, self._begin_ns = 0, time.monotonic_ns()
        self._announced_ns = self._begin_ns + high_ns

    def _announce_again(self, count: int) -> None:
        """A new estimate by the runs so far, where the rest goes on longer than was announced; --time ends it as it was announced."""
        now_ns = time.monotonic_ns()
        each_ns = (now_ns - self._begin_ns) // self._trials
        left_ns = count * each_ns
        if self._end_ns is None and now_ns + left_ns > self._announced_ns:
            self._announced_ns = now_ns + left_ns
            runs = f"about {counted(count, 'run')} will follow, {format_duration(each_ns)} each so far"
            self._progress.say(f"it takes longer than announced: {runs}, {_long(left_ns)} more")

    # -- trials

    def _trial(self, limit: int | None, *, part: str = WHOLE, name: str = "") -> Run:
        """A run under a limit in bytes, over all of it or over a phase alone. limit: None for none."""
        executes = part not in (MODEL_LOAD, PREPARE)
        self._trials += 1
        variant = name or f"{part} in {format_bytes(limit or 0)}"
        job = replace(
            self._order.job,
            variant=variant,
            runs=self._order.job.runs if executes else 0,
            warmup=self._order.job.warmup if executes else 0,
            hold=part != WHOLE,
            timeout_ns=self._patience_ns or self._order.job.timeout_ns,
            limit=None if limit is None else f"{part} limited to {limit} bytes",
        )
        limited = self._limiter.start(limit if part == WHOLE else None)
        order = replace(self._order, job=job, drop=self._drop, **limited)
        if part == WHOLE:
            return self._measured(order, None)
        before = {MODEL_LOAD: STARTUP, PREPARE: MODEL_LOAD, EXECUTE: PREPARE}[part]

        def look(job: Job, phase: str, pid: int) -> None:
            if phase == before:
                self._limiter.change(pid, limit)
            elif phase in (part, GENERATE):
                self._limiter.change(pid, None)

        return self._measured(order, look)

    def _measured(self, order: Order, look: Callable[[Job, str, int], None] | None) -> Run:
        (run,) = campaign.measure([order], Quiet(self._progress), self._keep, look)  # to its end: a full disk is reported after the run
        return run

    def _try(self, limit: int, search: _LimitSearch, *, name: str = "", slow_fails: bool = True) -> None:
        """A trial under this limit in bytes, taken into the search. slow_fails: whether a run that is completed too slowly counts as failed."""
        part = search.part
        search.trials += 1
        try:
            run = self._trial(limit, part=part, name=name)
            late = run.outcome.status == "timeout" and self._request.suite.timeout_ns is None
            if late and not self._is_time_up() and self._is_busy():
                search.late.setdefault(limit, []).append(run.job.timeout_ns)
                run = self._trial_again(run, limit, part)
        except limits.LimitRefusal as error:
            self._progress.say(f"{part}, {format_bytes(limit)}: its memory does not fit ({error})")
            search.failed = max(search.failed, limit)
            return
        search.runs.setdefault(limit, []).append(run)
        time_ns = _time(run)
        slow = bool(time_ns and self._request.max_time is not None and time_ns > self._request.max_time * self._plain_time)
        if not run.outcome.ok or (slow and slow_fails):
            search.failed = max(search.failed, limit)
        elif not slow:
            search.worked[limit] = search.worked.get(limit, 0) + 1
        self._tell(run, limit, part, slow)

    def _tell(self, run: Run, limit: int, part: str, slow: bool) -> None:
        if run.outcome.ok:
            time_ns = _time(run)
            duration = f", {format_duration(time_ns)}{'' if self._program else ' per iteration'}" if time_ns else ""
            self._progress.say(f"{part}, {format_bytes(limit)}: works{duration}{', which is too slow' if slow else ''}")
            return
        reason = f"out of memory {run.outcome.where}" if _out_of_memory(run.outcome) else run.outcome.sentence
        self._progress.say(f"{part}, {format_bytes(limit)}: {reason}")
        if run.outcome.status == "timeout":
            patience = format_duration(run.job.timeout_ns)
            too_little = f"{part}: with too little memory runs took longer than "
            if not any(remark.startswith(too_little) for remark in self._remarks):  # a second time they have twice the time
                self._remark(f"{too_little}{patience}; they were ended and count as failed.")

    def _trial_again(self, late: Run, limit: int, part: str) -> Run:
        """A trial in place of one that was ended by time, with twice the time: if the machine is busy, a run is late with enough memory."""
        self._progress.say(f"{part}, {format_bytes(limit)}: {late.outcome.sentence}; it is tried again with twice the time")
        usual_ns, self._patience_ns = self._patience_ns, 2 * self._patience_ns
        try:
            return self._trial(limit, part=part)
        finally:
            self._patience_ns = usual_ns

    def _is_busy(self) -> bool:
        """Whether others use the machine now, so that a run may be late because of them."""
        return self._order.place.busy()[0] > campaign.BUSY_PERCENT

    def _is_time_up(self) -> bool:
        return self._stopped or (self._end_ns is not None and time.monotonic_ns() >= self._end_ns)

    def _remark(self, sentence: str) -> None:
        if sentence not in self._remarks:
            self._remarks.append(sentence)

    # -- bisecting

    def _searched(self, part: str, upper: int) -> _LimitSearch:
        """The search for the least limit in bytes that works."""
        search = _LimitSearch(part, wanted=CONFIRMATIONS + (_PLAIN_RUNS if part == WHOLE else 0))
        if self._request.within is not None:
            self._try_within(self._request.within, search)
        elif self._works_at_all(_start(upper), search):
            try:
                self._bisect(search)
            except KeyboardInterrupt:
                self._stopped = True
                search.complete = False
                self._remark(f"{part}: interrupted; {search.words}.")
        search.found = self._request.within or search.least
        return search

    def _try_within(self, limit: int, search: _LimitSearch) -> None:
        """The only limit that is tried: it works if it does as often as a least limit must. The first failure decides that it does not."""
        while not search.failed and search.worked.get(limit, 0) < CONFIRMATIONS:
            if self._is_time_up():
                search.complete = False
                self._remark(f"{search.part}: the time was up after {search.trials} of {counted(CONFIRMATIONS, 'trial')}.")
                return
            self._try(limit, search)

    def _works_at_all(self, high: int, search: _LimitSearch) -> bool:
        """Whether a limit works from which the search can go down."""
        for _ in range(4):
            self._try(high, search)
            if search.worked:
                return True
            if self._is_time_up():
                self._remark(f"{search.part}: the time was up; {search.words}.")
                return False
            high = _whole_pages(high * 1.25)
        self._remark(f"{search.part}: no limit that was tried works, up to {format_bytes(search.failed)}.")
        return False

    def _bisect(self, search: _LimitSearch) -> None:
        """Narrow the bounds until the least limit is known, or the time is up."""
        top = max(search.worked)
        while True:
            if self._is_time_up():
                search.complete = False
                self._remark(f"{search.part}: the time was up; {search.words}.")
                return
            least = search.least
            if least is None:  # all that worked did so by luck: the least lies a step above
                limit = _whole_pages(search.failed + _step(search.failed))
                if limit > top * _RISE:
                    self._remark(
                        f"{search.part}: no limit that was tried works {search.wanted} times in a row, up to {format_bytes(search.failed)}."
                    )
                    return
            elif least - search.failed > _step(least):
                limit = _whole_pages((search.failed + least) / 2)
            elif search.worked[least] < search.wanted:
                limit = least
            else:
                return
            self._try(limit, search)

    # -- the curve

    def _measure_curve(self, search: _LimitSearch, upper: int) -> None:
        """Measure limits above the least one that was found. A failure among them raises the least limit, which is confirmed again."""
        if search.found is None or self._request.within is not None:
            return
        self._announce_again(self._runs_to_come(upper, 0))
        limits_above = [limit for factor in _CURVE if (limit := _whole_pages(search.found * factor)) <= upper * 1.05]
        for limit in (limit for limit in limits_above for _ in range(_PLAIN_RUNS)):
            if self._stopped:
                break
            if self._is_time_up():
                self._remark("The time was up before all limits above the least were measured; a longer --time measures them.")
                break
            self._try(limit, search, name=f"in {format_bytes(limit)}", slow_fails=False)
        while (least := search.least) is not None and search.worked[least] < CONFIRMATIONS:
            if self._is_time_up():
                search.complete = False
                return
            self._try(least, search)

    def _limit_of(self, search: _LimitSearch, plain: Sequence[Run], touched: Mapping[str, int]) -> PartLimit:
        """What a search found. plain: the runs with no limit. touched: the bytes that each phase touched."""
        name, least = search.part, search.least
        peak = max(_peak(run, name) for run in plain)
        sizes = [size for phase, size in touched.items() if name == WHOLE or phase in _phases(name)]
        worked = search.worked.get(self._request.within or least or 0, 0)
        touched_most = max(sizes, default=None)
        return PartLimit(
            name, least, peak, touched_most, search.trials, worked, search.failed, search.complete, max(search.late, default=0)
        )

    def _ceiling(self, run: Run) -> int:
        """A limit in bytes under which a run passes with room to spare, for runs without a group that is charged."""
        if self._limiter.exact:
            return _peak(run, WHOLE)
        return 2 * max((mark.vms_peak_bytes or mark.height_bytes for mark in run.marks), default=1 << 30)


class _LimitSearch(Struct):
    """What is known about the limits on a part, in bytes.

    wanted: how often the least must work. runs: all runs of each limit. worked: how often each limit worked. failed: the highest that failed, 0 for
    none. late: of each limit with runs that were ended by time and tried again, after how many ns each was. trials: how many there were. found: the
    least limit before those of the curve were measured. complete: whether it was not ended by the time or by the user before the least limit was
    known.
    """

    part: str
    wanted: int
    runs: dict[int, list[Run]] = field(default_factory=dict)
    worked: dict[int, int] = field(default_factory=dict)
    failed: int = 0
    late: dict[int, list[int]] = field(default_factory=dict)
    trials: int = 0
    found: int | None = None
    complete: bool = True

    @property
    def least(self) -> int | None:
        """The least limit that worked above all that failed, None if there is none."""
        return min((limit for limit in self.worked if limit > self.failed), default=None)

    @property
    def curve(self) -> list[LimitPoint]:
        """The limits from the least that was found, failures among them."""
        return [
            _at(limit, self.runs[limit], self.late.get(limit, ()))
            for limit in sorted(self.runs)
            if self.found is not None and limit >= self.found
        ]

    @property
    def words(self) -> str:
        """The highest limit that failed, and the least above it that worked."""
        if self.least is None:
            return f"runs failed in up to {format_bytes(self.failed)}, and no higher limit has worked"
        worked = f"{format_bytes(self.least)} worked in {counted(self.worked[self.least], 'trial')}"
        return f"{f'{format_bytes(self.failed)} failed' if self.failed else 'no limit failed'}, and {worked}"


def _at(limit: int | None, runs: Sequence[Run], late_ns: Sequence[int] = ()) -> LimitPoint:
    completed = [run for run in runs if run.outcome.ok]
    if not completed:
        return LimitPoint(limit, None, None, None, _ended(runs), runs=len(runs), late=_late(late_ns, len(runs)))
    counts = [
        [count for run in completed if (count := _faults(run, name)) is not None] for name in ("minor_faults", "major_faults", "refaults")
    ]
    faults = [statistics.median(each) if each else None for each in counts]
    times = tuple(_time(run) for run in completed)
    charges = [run.charged.peak_bytes for run in completed if run.charged is not None and run.charged.peak_bytes is not None]
    charged = max(charges, default=None)
    ended, late = _ended(runs), _late(late_ns, len(runs))
    return LimitPoint(limit, statistics.median(times), faults[0], faults[1], ended, faults[2], len(runs), times, charged, late)


def _time(run: Run) -> float:
    """The median iteration in ns, 0 if there was none; of a program that has none, all its phases."""
    mark = run.mark(timed_phase([run]))
    if mark is not None and mark.times_ns:
        return statistics.median(mark.times_ns)
    return float(sum(each.time_ns for each in run.marks)) if run.job.runtime == COMMAND else 0.0


def _faults(run: Run, kind: str) -> int | None:
    """The faults of a kind in what is timed, None if nothing of it has a count; of a program without iterations, in all its phases."""
    timed = run.mark(timed_phase([run]))
    if run.job.runtime == COMMAND and (timed is None or not timed.times_ns):
        counts = [count for mark in run.marks if (count := getattr(mark, kind)) is not None]
        return sum(counts) if counts else None
    return getattr(timed, kind) if timed is not None else None


def _peak(run: Run, part: str) -> int:
    if part == WHOLE:
        return int(metrics.value(run, PEAK, metrics.METRICS["rss_peak_bytes"]) or 0)
    return max((mark.height_bytes for mark in run.marks if mark.phase in _phases(part)), default=0)


def _phases(part: str) -> tuple[str, ...]:
    """The phases of a part: a model that generates has two in place of EXECUTE."""
    return (EXECUTE, PROMPT, GENERATE) if part == EXECUTE else (part,)


def _out_of_memory(outcome: Outcome) -> bool:
    """Under a limit, perhaps is enough."""
    return outcome.out_of_memory is not False


def _ended(runs: Sequence[Run]) -> str | None:
    """How many of the runs failed, and of what: `1 of 3 failed (timeout)`; None if none did."""
    failed = [run.outcome for run in runs if not run.outcome.ok]
    reasons = dict.fromkeys("out of memory" if _out_of_memory(outcome) else outcome.word for outcome in failed)
    return f"{len(failed)} of {len(runs)} failed ({', '.join(reasons)})" if failed else None


def _late(late_ns: Sequence[int], runs: int) -> str:
    """How many trials were ended by time and tried again: `1 of 2 was ended after 5 s`; empty if none was. runs: those that count."""
    if not late_ns:
        return ""
    return f"{len(late_ns)} of {runs + len(late_ns)} {'was' if len(late_ns) == 1 else 'were'} ended after {format_duration(min(late_ns))}"


def _start(upper: int) -> int:
    """The first limit to try: the need with no limit, and a little more."""
    return _whole_pages(upper * 1.02 + _NEAREST)


def _step(limit: int) -> float:
    return max(_NEAREST, _SHARE * limit)


def _long(ns: float) -> str:
    """A duration that people wait for: `90 s`, `7 min`."""
    return f"{ns / 60e9:.0f} min" if ns >= 120e9 else f"{ns / 1e9:.0f} s"


def _whole_pages(size: float) -> int:
    return int(size) // _PAGE * _PAGE


def _referenced(pid: int) -> int | None:
    """`Referenced:` of /proc/PID/smaps_rollup (proc_pid_smaps(5)), in bytes: resident pages touched since the bits were cleared."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(row.split()[1]) * 1024 for row in rows if row.startswith("Referenced:")), None)
