"""Allocations of known size and duration, measured as a model would be. Their known peaks are compared with the measured ones."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from ..base.errors import MeasurementError
from ..base.leftovers import scratch
from ..base.units import format_bytes
from ..campaign import campaign
from ..campaign.progress import Progress
from ..places.cgroups import meminfo, memory_group
from ..places.place import Place
from ..records import store
from ..records.types import EXECUTE, PREPARE, RUN, Mark, Polling, Run
from ..subjects import suite
from ..subjects.order import Order
from ..subjects.orders import plan
from .checks import MIB, MS


class Transient(Struct, frozen=True):
    """The errors of each source of a peak, for an allocation that was touched, held for `held_ns` and freed. Above the truth they are positive.

    The errors are the worst of the repeats. That of polling at 50 ms is also the worst of all moments at which a poller could have started,
    and their median stands beside it. threads: each held an equal part, all at once; their stacks, some 17 KiB each, count as error.
    took_ns: how long the phase took, touching and freeing included.
    """

    threads: int
    held_ns: int
    bytes: int
    repeats: int
    took_ns: int
    peak_error_bytes: int | None
    hwm_error_bytes: int | None
    polled_1ms_error_bytes: int | None
    polled_50ms_error_bytes: int | None
    polled_50ms_median_error_bytes: int | None


_SLOW_NS = 50 * MS
_BEFORE = 1.2  # an earlier, higher transient, which a high-water mark that is never reset keeps showing
_REPEATS = 5
_ENOUGH_NS = 4_500 * MS
_STARTS = 50

# (threads, held_ns) of the transient in PREPARE and of that in EXECUTE, one row per process.
_PROCESSES = (
    ((1, 0), (1, 100 * MS)),
    ((1, MS // 10), (8, 0)),
    ((1, 1 * MS), (1, 10 * MS)),
    ((8, 1 * MS), (8, 100 * MS)),
)


def transient_bytes(root: Path) -> int:
    """How large a known allocation can be here: 100 MiB, or 8 MiB if that could end in a kill on this machine or under its limit."""
    try:
        group = memory_group(root)
        room = [meminfo(root)["MemAvailable"], *([group.limit_bytes] if group and group.limit_bytes is not None else [])]
    except (OSError, KeyError, ValueError):
        return 100 * MIB
    return 100 * MIB if min(room) > 400 * MIB else 8 * MIB


class KnownAllocations(Struct, frozen=True):
    """A run, and the (threads, held_ns) of the transients in its PREPARE and its EXECUTE."""

    transients: tuple[tuple[int, int], tuple[int, int]]
    run: Run


def known_allocations(python: str, size: int, progress: Progress, place: Place) -> list[KnownAllocations]:
    """Measure the known allocations, all of them once and again while there is time.

    Raises MeasurementError if an allocation could not be measured, and whatever campaign and suite raise.
    """
    with scratch("doctor") as work:
        scenarios = _scenarios(work.folder, size)
        wanted = suite.Suite(
            models=tuple(scenarios),
            runtimes=("synthetic",),
            python=python,
            warmup=0,
            runs=1,
            repeats=_REPEATS,
            interval_ns=MS,
            cache="asis",
            timeout_ns=60_000 * MS,
            place=place,
            release=False,
        )
        enough_ns = time.monotonic_ns() + _ENOUGH_NS
        known: list[KnownAllocations] = []
        with closing(_measure(plan(wanted).orders, progress)) as measured:
            for run in measured:
                known.append(KnownAllocations(scenarios[run.job.model.path], run))
                if not run.outcome.ok:
                    raise MeasurementError(f"an allocation of {format_bytes(size)} could not be measured: {run.outcome.sentence}")
                if len(known) >= len(_PROCESSES) and time.monotonic_ns() >= enough_ns:
                    break
    return known


def known_program(size: int, progress: Progress, place: Place) -> Run:
    """Measure a program that holds a block of this size: dd, which busybox and toybox have too. Raises as `known_allocations`."""
    dd = suite.parse_cmd(f"dd if=/dev/zero of=/dev/null bs={size} count=10")
    wanted = suite.Suite(variants=(dd,), repeats=1, interval_ns=MS, timeout_ns=60_000 * MS, place=place)
    with closing(_measure(plan(wanted).orders, progress)) as measured:
        run = next(measured)
    if not run.outcome.ok or run.mark(RUN) is None:
        reason = run.outcome.sentence if not run.outcome.ok else "it was not seen"
        raise MeasurementError(f"dd, with a block of {format_bytes(size)}, could not be measured: {reason}")
    return run


def _measure(orders: Sequence[Order], progress: Progress) -> Generator[Run, None, None]:
    yield from campaign.measure(orders, progress, lambda line: None)


def _scenarios(folder: Path, size: int) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The transients in each model, by its path."""
    earlier = _spike(1, 0, int(size * _BEFORE))
    scenarios = {}
    for number, (prepare, execute) in enumerate(_PROCESSES, 1):
        path = folder / f"known-allocations-{number}.json"
        path.write_bytes(msgspec.json.encode({"load": [earlier], "prepare": [_spike(*prepare, size)], "execute": [_spike(*execute, size)]}))
        scenarios[str(path)] = (prepare, execute)
    return scenarios


def _spike(threads: int, held_ns: int, size: int) -> dict[str, object]:
    return {"spike": size // threads, "hold_s": held_ns / 1e9, "threads": threads}


def measured_marks(run: Run) -> list[Mark]:
    """The marks of the phases with transients."""
    return [mark for mark in run.marks if mark.phase in (PREPARE, EXECUTE)]


class _Errors(Struct, frozen=True):
    """One transient, once: the error of each source in bytes."""

    took_ns: int
    peak: int
    hwm: int | None
    polled: int
    polled_slowly: tuple[int, ...]


def compared(known: Sequence[KnownAllocations], size: int) -> tuple[Transient, ...]:
    """The errors of each known transient. The true peak is the resident set at the phase's start, and `size` bytes more."""
    errors: dict[tuple[int, int], list[_Errors]] = {}
    for measured in known:
        columns = store.unpack(measured.run.timeline)
        for mark, kind in zip(measured_marks(measured.run), measured.transients, strict=True):
            errors.setdefault(kind, []).append(_errors(mark, columns, size))
    return tuple(_worst_of(*kind, size, errors[kind]) for kind in sorted(errors))


def _errors(mark: Mark, columns: store.TimelineColumns, size: int) -> _Errors:
    truth = (mark.rss_begin_bytes or 0) + size
    inside = slice(bisect_left(columns.t_ns, mark.begin_ns), bisect_right(columns.t_ns, mark.end_ns))
    polled = max(columns.rss[inside], default=mark.rss_begin_bytes or 0)
    return _Errors(
        took_ns=mark.time_ns,
        peak=mark.height_bytes - truth,
        hwm=mark.hwm_bytes - truth if mark.hwm_bytes is not None else None,
        polled=polled - truth,
        polled_slowly=tuple(peak - truth for peak in polled_peaks(columns, mark.begin_ns, mark.end_ns, _SLOW_NS)),
    )


def polled_peaks(columns: store.TimelineColumns, begin_ns: int, end_ns: int, period_ns: int) -> list[int]:
    """The peaks that pollers of this period would report for a phase, for starts spread evenly over one period, by a finer timeline.

    A poller without a poll in the phase reports the level at its start.
    """

    def level(t_ns: int) -> int:
        return columns.rss[max(0, bisect_right(columns.t_ns, t_ns) - 1)]

    starts = (begin_ns + period_ns * index // _STARTS for index in range(_STARTS))
    return [max((level(t_ns) for t_ns in range(start, end_ns + 1, period_ns)), default=level(begin_ns)) for start in starts]


def _worst_of(threads: int, held_ns: int, size: int, repeats: Sequence[_Errors]) -> Transient:
    slowly = [error for repeat in repeats for error in repeat.polled_slowly]
    return Transient(
        threads=threads,
        held_ns=held_ns,
        bytes=size,
        repeats=len(repeats),
        took_ns=int(statistics.median(repeat.took_ns for repeat in repeats)),
        peak_error_bytes=worst([repeat.peak for repeat in repeats]),
        hwm_error_bytes=worst([repeat.hwm for repeat in repeats]),
        polled_1ms_error_bytes=worst([repeat.polled for repeat in repeats]),
        polled_50ms_error_bytes=worst(slowly),
        polled_50ms_median_error_bytes=int(statistics.median(slowly)) if slowly else None,
    )


def worst(errors: Sequence[int | None]) -> int | None:
    """The error furthest from 0, None if there is none."""
    return max((error for error in errors if error is not None), key=abs, default=None)


def typical_polling(runs: Sequence[Run]) -> Polling | None:
    """The polling period that was achieved: the median run's median and 99th percentile."""
    pollings = [run.polling for run in runs if run.polling is not None]
    if not pollings:
        return None
    return Polling(
        polls=sum(polling.polls for polling in pollings),
        median_ns=int(statistics.median(polling.median_ns for polling in pollings)),
        p99_ns=int(statistics.median(polling.p99_ns for polling in pollings)),
    )
