"""Runs -> statistics of each metric in each phase, over the repeats of one variant. No pandas: the gate runs on this alone."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError
from ..base.units import counted, format_bound, format_bytes, listed, together
from . import metrics
from .metrics import Metric
from .modes import middle
from .types import EXECUTE, GENERATE, PEAK, PHASES, RELEASE, REQUEST, WARMUP, Job, JobSide, Run, heading, label

_LITTLE_TIME = 1.1  # times as long, which few mind
_MUCH_TIME = 2  # times as long by the medians, which is a cost also where the times differ too much to tell

_MOST_PHASES = 3  # whose names stand in a row
_SEEN_BYTES = 100 << 10  # a difference that a table in MiB shows
_RISE_SHARE = 0.02  # of PEAK, by which later iterations must peak above earlier ones to count as a rise


class VariantKey(NamedTuple):
    """What is measured, on whatever machine: the same place of another set of Runs is its counterpart."""

    model: str
    variant: str
    threads: int | None
    version: str | None = None
    side: JobSide | None = None

    @property
    def heading(self) -> str:
        """Its variant as reports name it."""
        return heading(self.variant, self.version, self.side)

    @property
    def label(self) -> str:
        """Its model and variant, as sentences name them."""
        return label(self.model, self.variant, self.version, self.side)

    def on(self, machine: str) -> Key:
        """Its key on a machine of that name."""
        return Key(self.model, self.variant, self.threads, machine, self.version, self.side)


class KeyFields:
    """What was measured on a machine, and has a place."""

    model: str
    variant: str
    threads: int | None
    version: str | None
    side: JobSide | None

    @property
    def place(self) -> VariantKey:
        """The same without the machine."""
        return VariantKey(self.model, self.variant, self.threads, self.version, self.side)

    @property
    def heading(self) -> str:
        """Its variant as reports name it."""
        return self.place.heading

    @property
    def label(self) -> str:
        """Its model and variant, as sentences name them."""
        return self.place.label


class Key(KeyFields, Struct, frozen=True):
    """Two Runs with the same key are repeats of one another. machine: its name, or that of the kind whose machines are interchangeable."""

    model: str
    variant: str
    threads: int | None
    machine: str
    version: str | None = None
    side: JobSide | None = None


class Row(Struct, frozen=True):
    """A metric in a phase over all repeats of a variant that have it: bytes, ns or a count, as the metric says.

    values: at least one, in the order of the repeats. exact: no value comes from polling alone.
    swapped: the most that was swapped out and is missing in a value, in bytes. with_swap: the values with such pages added; none if nothing was
    swapped out. machines: where each value was measured, if the key's machine is a kind; else empty. missed: the most by which a value that is not
    exact may lie below the truth, in bytes.
    """

    key: Key
    phase: str
    metric: str
    values: tuple[float, ...]
    exact: bool
    swapped: int = 0
    with_swap: tuple[float, ...] = ()
    machines: tuple[str, ...] = ()
    missed: int = 0

    @property
    def median(self) -> float:
        """See memprof.records.modes.middle."""
        return middle(self.values, metrics.described(self.metric).unit)

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return statistics.fmean(self.values)

    @property
    def min(self) -> float:
        """The smallest value."""
        return min(self.values)

    @property
    def max(self) -> float:
        """The largest value."""
        return max(self.values)

    @property
    def stdev(self) -> float:
        """The standard deviation of a sample, 0 for a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def key(run: Run) -> Key:
    """The key of a Run."""
    job, kind = run.job, run.attempt.kind if run.attempt is not None else None
    return Key(job.model.name, job.variant, job.threads, kind or run.machine.name, job.version, job.side)


def place_of(job: Job) -> VariantKey:
    """The place of a job, whichever version and side it is of."""
    return VariantKey(job.model.name, job.variant, job.threads)


def groups(runs: Iterable[Run]) -> dict[Key, list[Run]]:
    """Runs by key, in order of first appearance; versions of one variant that a search measured stand in the order of their history."""
    by_key: dict[Key, list[Run]] = {}
    for run in runs:
        by_key.setdefault(key(run), []).append(run)
    versions: dict[Key, list[Key]] = {}
    for each, group in by_key.items():
        if group[0].job.version_number is not None:
            versions.setdefault(replace(each, version=None), []).append(each)
    ordered = {
        each: iter(sorted(each_versions, key=lambda other: _version_number(by_key[other]))) for each, each_versions in versions.items()
    }
    # The versions of a variant take the places that they have together, and every other key keeps its own.
    places = (each if group[0].job.version_number is None else next(ordered[replace(each, version=None)]) for each, group in by_key.items())
    return {each: by_key[each] for each in places}


def _version_number(group: Sequence[Run]) -> int:
    return group[0].job.version_number or 0


def groups_of_one_machine(runs: Iterable[Run]) -> dict[Key, list[Run]]:
    """As `groups`. Raises InputError if a model and variant, at one thread count, was measured on several machines."""
    by_key = groups(runs)
    for key in by_key:
        machines = sorted({other.machine for other in by_key if replace(other, machine="") == replace(key, machine="")})
        if len(machines) > 1:
            raise InputError(f"{key.label}: one side has runs of {' and '.join(machines)}; compare one machine at a time")
    return by_key


def phases(runs: Iterable[Run], failed: bool = False) -> list[str]:
    """The phases that these runs finished, in the order in which they ran. failed: those too in which a run ended before its time."""
    return merged(_phases(run, failed) for run in runs)


def _phases(run: Run, failed: bool) -> list[str]:
    names = [mark.phase for mark in sorted(run.marks, key=lambda mark: mark.begin_ns)]  # an inner phase ends before the one around it
    last = run.outcome.phase
    return [*names, last] if failed and not run.outcome.ok and last and not last.startswith("after") else names


def merged(courses: Iterable[Iterable[str]]) -> list[str]:
    """The phases of several courses, each in the order in which it ran, as one order that agrees with all of them: Kahn's topological sort.

    Where no course puts two phases in an order, memprof's own keep that of PHASES, and a program's own stands right after the last of memprof's that
    ran before it. Where courses contradict one another, the same decides.
    """
    ranks: dict[str, tuple[float, int]] = {}
    after: dict[str, set[str]] = {}
    for course in map(dict.fromkeys, courses):
        own: float = len(PHASES) - 2  # before RELEASE, unless one of memprof's own ran before it
        before: str | None = None
        for name in course:
            own = float(PHASES.index(name)) if name in PHASES else own
            ranks.setdefault(name, (own if name in PHASES else own + 0.5, len(ranks)))
            after.setdefault(name, set())
            if before is not None:
                after[before].add(name)
            before = name
    waits = Counter(name for later in after.values() for name in later)
    ready = [(ranks[name], name) for name in ranks if not waits[name]]
    heapify(ready)
    order: dict[str, None] = {}
    while len(order) < len(ranks):
        _, name = heappop(ready) if ready else min((ranks[name], name) for name in ranks if name not in order)
        if name in order:
            continue
        order[name] = None
        for later in after[name]:
            waits[later] -= 1
            if not waits[later]:
                heappush(ready, (ranks[later], later))
    return list(order)


def timed_phase(runs: Iterable[Run]) -> str:
    """The phase whose iterations are the model's latency: EXECUTE, or else GENERATE or REQUEST if these runs have it."""
    names = {mark.phase for run in runs for mark in run.marks}
    return next((phase for phase in (EXECUTE, GENERATE, REQUEST) if phase in names), EXECUTE)


def iteration_ns(runs: Iterable[Run]) -> float | None:
    """The median over the runs that ended well of their median iteration, in ns; None where none has iterations."""
    ended = [run for run in runs if run.outcome.ok]
    marks = [mark for run in ended if (mark := run.mark(timed_phase(ended))) is not None and mark.times_ns]
    return statistics.median(statistics.median(mark.times_ns) for mark in marks) if marks else None


class PeakPhases(Struct, frozen=True):
    """Where a PEAK is: everywhere the figure of PEAK and the phase beside it come from this.

    highest: the phase with the highest peak, empty without a phase. level: all phases whose peaks do not differ from it beyond bound_bytes, in
    the order in which they ran, the highest among them. gapless: no other phase ran between them. bound_bytes: how far a high-water mark can lie
    from the truth. spread_bytes: from the lowest of them to the highest.
    """

    highest: str = ""
    level: tuple[str, ...] = ()
    gapless: bool = True
    bound_bytes: int = 0
    spread_bytes: float = 0

    @property
    def names(self) -> str:
        """The phases in a few words: `PREPARE`, `WARMUP and EXECUTE`, `STARTUP to EXECUTE`."""
        if len(self.level) <= _MOST_PHASES:
            return together(self.level)
        return f"{self.level[0]} to {self.level[-1]}" if self.gapless else listed(self.level, _MOST_PHASES)

    @property
    def note(self) -> str:
        """Why phases stand together whose figures differ in a table; empty where they do not."""
        if self.spread_bytes < _SEEN_BYTES:
            return ""
        return f"PEAK is in {self.names}: they differ by less than the {format_bound(self.bound_bytes)} to which peaks are exact"

    def shared(self, other: PeakPhases) -> PeakPhases:
        """The phases in which both PEAKs are; none where the highest of a side is not among them, for its figure would stand beside phases that are
        lower. The highest is the last: the memory at its end is what both led to."""
        level = tuple(phase for phase in self.level if phase in other.level)
        if self.highest not in level or other.highest not in level:
            return PeakPhases()
        places = [self.level.index(phase) for phase in level]
        gapless = self.gapless and places == list(range(places[0], places[-1] + 1))
        return PeakPhases(level[-1], level, gapless)


def peak_phases(runs: Iterable[Run]) -> PeakPhases:
    """The phases of PEAK by the medians of the runs that ended well."""
    ended = [run for run in runs if run.complete and run.marks]
    known = [(phase, metrics.values(ended, phase, metrics.METRICS["rss_peak_bytes"])) for phase in phases(ended) if phase != RELEASE]
    heights = [(phase, middle(values, metrics.BYTES)) for phase, values in known if values]
    return highest_phases(heights, max((run.machine.peak_bound_bytes for run in ended), default=0))


def highest_phases(heights: Sequence[tuple[str, float]], bound_bytes: int) -> PeakPhases:
    """The same of phases and their peaks, in the order in which they ran. This is where PEAK is, of repeats, of rows and of a single run."""
    if not heights:
        return PeakPhases()
    highest, most = max(heights, key=lambda height: height[1])  # the first of those that are the same to the byte
    places = [place for place, (_, peak) in enumerate(heights) if peak >= most - bound_bytes]
    gapless = places == list(range(places[0], places[-1] + 1))
    level = [heights[place] for place in places]
    return PeakPhases(highest, tuple(name for name, _ in level), gapless, bound_bytes, most - min(peak for _, peak in level))


def costs_time(before: float, after: float, is_noise: bool) -> bool:
    """Whether a time is clearly longer than another, of which only a little is no matter. is_noise: the times differ too much to tell."""
    return after > (_MUCH_TIME if is_noise else _LITTLE_TIME) * before


def late_rise_bytes(runs: Iterable[Run]) -> int:
    """By how much the timed iterations peak above those of WARMUP, the median of the runs; 0 where that is no more than runs differ by.

    They do the same work: where it needs more memory later, a run with fewer iterations has a lower PEAK. Whether that was one step or goes on is not
    in the phases' peaks.
    """
    rises = []
    for run in runs:
        first, later = run.mark(WARMUP), run.mark(timed_phase([run]))
        if first is not None and later is not None and first.height_bytes:
            rise = later.height_bytes - first.height_bytes
            rises.append(rise if rise > max(run.machine.peak_bound_bytes, _RISE_SHARE * run.height_bytes) else 0)
    return int(statistics.median(rises)) if rises else 0


def late_rise_words(rise_bytes: int, phase: str) -> str:
    """A rise of late_rise_bytes in words. phase: the timed one."""
    rise = f"{phase} peaks {format_bytes(rise_bytes)} above {WARMUP}"
    return f"{rise}: a single step or growth, which more iterations (--runs) or memprof grow tell apart"


def summarise(runs: Iterable[Run], names: Sequence[str] = metrics.DEFAULT_METRICS) -> tuple[Row, ...]:
    """Statistics of these metrics, in every phase and for PEAK, of every group of repeats. Values that could not be had are left out."""
    wanted = [metrics.metric(name) for name in names]
    rows = []
    for group_key, group in groups(runs).items():
        for phase in [*phases(group), PEAK]:
            rows += [row for metric in wanted if (row := _row(group_key, group, phase, metric)) is not None]
    return tuple(rows)


def failures(failed: int, runs: int, failure: str | None) -> str:
    """`2 of 5 runs failed: killed by SIGKILL`. failure: the first of them in words."""
    return f"{failed} of {counted(runs, 'run')} failed: {failure}"


def _row(group_key: Key, group: Sequence[Run], phase: str, metric: Metric) -> Row | None:
    if phase == RELEASE and metric.name in metrics.HIGH_WATER_MARKS:
        return None  # the peak of a phase that only frees is the memory from before it
    having = [(run, value) for run in group if (value := metrics.value(run, phase, metric)) is not None]
    if not having:
        return None
    exact = all(metrics.exact(run, phase, metric) for run, _ in having)
    swapped = max(metrics.swapped(run, phase, metric) for run, _ in having)
    with_swap = tuple(value for run, _ in having if (value := metrics.with_swap(run, phase, metric)) is not None) if swapped else ()
    kinds = all(run.attempt is not None and run.attempt.kind for run, _ in having)
    machines = tuple(run.machine.name for run, _ in having) if kinds else ()
    missed = max(metrics.missed(run, phase, metric) for run, _ in having)
    return Row(group_key, phase, metric.name, tuple(value for _, value in having), exact, swapped, with_swap, machines, missed)


def whole(plain: Row) -> Row:
    """The row with the swapped-out pages in its values; the row itself if there are none."""
    if not plain.with_swap:
        return plain
    machines = plain.machines if len(plain.machines) == len(plain.with_swap) else ()
    return replace(plain, values=plain.with_swap, with_swap=(), machines=machines)
