"""The metrics: the name and unit of each number, and its place in a Run. Tables, pictures and the gate read from this list alone.

Smaller is better for every metric here. Definitions stand in docs/numbers.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from ..base.errors import UsageError, near_or_all
from ..base.units import format_bytes, format_change, format_duration, format_number
from .types import PEAK, STARTUP, Mark, Run

BYTES, NS, COUNT = "bytes", "ns", "count"
CHARGED_PEAK = "charged_peak_bytes"


class Metric(Struct, frozen=True):
    """A number: its column name, its title for people, its unit (bytes, ns or count).

    of: its value in a phase, None if it could not be had. baseline: the field of the STARTUP mark that is subtracted to show it above the
    baseline; None if that has no meaning.
    """

    name: str
    title: str
    unit: str
    of: Callable[[Mark], float | None]
    baseline: str | None = None


def _field(name: str) -> Callable[[Mark], float | None]:
    return lambda mark: getattr(mark, name)


def _over_iterations(function: Callable[[Sequence[int]], float]) -> Callable[[Mark], float | None]:
    return lambda mark: function(mark.times_ns) if mark.times_ns else None


def _latency(mark: Mark) -> float | None:
    # A phase of iterations is as long as its typical iteration; how many there were is the user's choice. A log without times has phases of 0 ns.
    return statistics.median(mark.times_ns) if mark.times_ns else mark.time_ns or None


def first_token(mark: Mark) -> float | None:
    """The median time to the first token of a phase's requests."""
    return statistics.median(mark.first_token_ns) if mark.first_token_ns else None


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies, linear between neighbours (numpy's default, Hyndman and Fan's type 7)."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; a value of 0 counts as 1."""
    return math.exp(sum(math.log(max(value, 1)) for value in values) / len(values))


_METRICS = (
    Metric("time_ns", "Latency", NS, _latency),
    Metric("rss_peak_bytes", "RSS peak", BYTES, _field("rss_peak_bytes"), "rss_end_bytes"),
    Metric("anon_end_bytes", "Anonymous memory at the end", BYTES, _field("anon_end_bytes"), "anon_end_bytes"),
    Metric("file_end_bytes", "File-backed memory at the end", BYTES, _field("file_end_bytes"), "file_end_bytes"),
    Metric("vms_end_bytes", "VMS at the end", BYTES, _field("vms_end_bytes"), "vms_end_bytes"),
    Metric("hwm_bytes", "HWM, never reset", BYTES, _field("hwm_bytes"), "rss_end_bytes"),
    Metric("pss_end_bytes", "PSS at the end", BYTES, _field("pss_end_bytes"), "pss_end_bytes"),
    Metric("uss_end_bytes", "USS at the end", BYTES, _field("uss_end_bytes"), "uss_end_bytes"),
    Metric("rss_swap_peak_bytes", "Peak of RSS and swap", BYTES, lambda mark: mark.with_swap_bytes, "rss_end_bytes"),
    Metric("rss_end_bytes", "RSS at the end", BYTES, _field("rss_end_bytes"), "rss_end_bytes"),
    Metric("shmem_end_bytes", "Shared memory at the end", BYTES, _field("shmem_end_bytes"), "shmem_end_bytes"),
    Metric("device_peak_bytes", "Device memory peak", BYTES, _field("device_peak_bytes")),
    Metric("device_end_bytes", "Device memory at the end", BYTES, _field("device_end_bytes")),
    Metric(CHARGED_PEAK, "Charge of the control group, peak", BYTES, _field(CHARGED_PEAK)),
    Metric("page_tables_end_bytes", "Page tables at the end", BYTES, _field("page_tables_end_bytes")),
    Metric("swap_end_bytes", "Swapped out at the end", BYTES, _field("swap_end_bytes"), "swap_end_bytes"),
    Metric("vms_peak_bytes", "VMS peak, never reset", BYTES, _field("vms_peak_bytes"), "vms_end_bytes"),
    Metric("heap_used_end_bytes", "Heap in use at the end", BYTES, _field("heap_used_end_bytes"), "heap_used_end_bytes"),
    Metric("heap_free_end_bytes", "Heap freed but kept at the end", BYTES, _field("heap_free_end_bytes"), "heap_free_end_bytes"),
    Metric("minor_faults", "Minor page faults", COUNT, _field("minor_faults")),
    Metric("major_faults", "Major page faults", COUNT, _field("major_faults")),
    Metric("refaults", "Refaults of pages of files", COUNT, _field("refaults")),
    Metric("read_bytes", "Read from disk", BYTES, _field("read_bytes")),
    Metric("cpu_ns", "CPU time", NS, _field("cpu_ns")),
    Metric("time_min_ns", "Shortest iteration", NS, _over_iterations(min)),
    Metric("time_mean_ns", "Mean iteration", NS, _over_iterations(statistics.fmean)),
    Metric("time_median_ns", "Median iteration", NS, _over_iterations(statistics.median)),
    Metric("time_max_ns", "Longest iteration", NS, _over_iterations(max)),
    Metric("time_geomean_ns", "Geometric mean of iterations", NS, _over_iterations(geometric_mean)),
    Metric("time_p90_ns", "90th percentile of iterations", NS, _over_iterations(lambda times: percentile(times, 0.9))),
    Metric(
        "time_stdev_ns",
        "Standard deviation of iterations",
        NS,
        _over_iterations(lambda times: statistics.stdev(times) if len(times) > 1 else 0.0),
    ),
    Metric("first_token_ns", "Median time to the first token", NS, first_token),
    Metric("working_set_peak_bytes", "Working set of the control group, peak", BYTES, _field("working_set_peak_bytes")),
    Metric("charged_anon_peak_bytes", "Anonymous memory of the control group, peak", BYTES, _field("charged_anon_peak_bytes")),
    Metric("charged_file_peak_bytes", "Page cache of the control group, peak", BYTES, _field("charged_file_peak_bytes")),
    Metric("charged_kernel_peak_bytes", "Kernel memory of the control group, peak", BYTES, _field("charged_kernel_peak_bytes")),
    Metric(
        "charged_kernel_stacks_peak_bytes", "Kernel stacks of the control group, peak", BYTES, _field("charged_kernel_stacks_peak_bytes")
    ),
    Metric("charged_slab_peak_bytes", "Slab of the control group, peak", BYTES, _field("charged_slab_peak_bytes")),
    Metric("charged_page_tables_peak_bytes", "Page tables of the control group, peak", BYTES, _field("charged_page_tables_peak_bytes")),
    Metric("charged_percpu_peak_bytes", "Per-CPU data of the control group, peak", BYTES, _field("charged_percpu_peak_bytes")),
    Metric("charged_sockets_peak_bytes", "Sockets of the control group, peak", BYTES, _field("charged_sockets_peak_bytes")),
    Metric("charged_swap_peak_bytes", "Swapped out of the control group, peak", BYTES, _field("charged_swap_peak_bytes")),
)
METRICS = {metric.name: metric for metric in _METRICS}

# Figures in bytes per unit that several processes give together: no run alone has them. See memprof.verdicts.growth_limits and .coefficients.
GROWTH, LAW = "growth_bytes", "law_bytes"
OF_SEVERAL = {name: Metric(name, title, BYTES, lambda mark: None) for name, title in ((GROWTH, "Growth"), (LAW, "Memory"))}

# Of a control group, each in the field of a Charged with its name behind `charged_`.
_CHARGES = (
    CHARGED_PEAK,
    "charged_kernel_peak_bytes",
    "charged_kernel_stacks_peak_bytes",
    "charged_slab_peak_bytes",
    "charged_page_tables_peak_bytes",
    "charged_percpu_peak_bytes",
    "charged_sockets_peak_bytes",
)
# Peaks, which the whole run has too, and not only each phase.
PEAKS = ("rss_peak_bytes", "rss_swap_peak_bytes", "device_peak_bytes", *_CHARGES)
# Read from a high-water mark, which the kernel keeps up to the run's bound below the truth.
HIGH_WATER_MARKS = ("rss_peak_bytes", "rss_swap_peak_bytes", "hwm_bytes")
# Resident memory at a phase's end: a page that was swapped out by then is missing in it.
_RESIDENT_AT_THE_END = ("rss_end_bytes", "anon_end_bytes", "pss_end_bytes", "uss_end_bytes")

# The metrics that `run` prints, in this order; the latencies of EXECUTE follow as a table.
DEFAULT_METRICS = tuple(metric.name for metric in _METRICS[:8])
ITERATION_METRICS = ("time_min_ns", "time_mean_ns", "time_max_ns", "time_median_ns", "time_geomean_ns")


def metric(name: str) -> Metric:
    """The metric of that name. Raises UsageError."""
    if name not in METRICS:
        raise UsageError(f"there is no metric {name!r}{near_or_all(name, METRICS)}")
    return METRICS[name]


def described(name: str) -> Metric:
    """The name and unit of a metric, of those of several processes too."""
    return OF_SEVERAL.get(name) or METRICS[name]


def value(run: Run, phase: str, wanted: Metric) -> float | None:
    """A metric in a phase of a run, None if it could not be had. The phase PEAK is the largest of all but RELEASE; only PEAKS have it."""
    if phase == PEAK and wanted.name in _CHARGES:  # a group has its peaks of times outside of all phases too
        return getattr(run.charged, wanted.name.removeprefix("charged_")) if run.charged is not None and run.complete else None
    if phase == PEAK:
        peaks = [peak for mark in run.before_release if (peak := wanted.of(mark)) is not None]
        return max(peaks) if peaks and run.complete and wanted.name in PEAKS else None
    mark = run.mark(phase)
    return wanted.of(mark) if mark is not None else None


def baseline(run: Run, wanted: Metric) -> float | None:
    """The metric's value before any model is loaded, None if that has no meaning or was not measured."""
    mark = run.mark(STARTUP)
    return getattr(mark, wanted.baseline) if mark is not None and wanted.baseline else None


def values(runs: Iterable[Run], phase: str, wanted: Metric) -> list[float]:
    """The metric in a phase of each of these runs that has it."""
    return [found for run in runs if (found := value(run, phase, wanted)) is not None]


def above_baseline(run: Run, phase: str, wanted: Metric) -> float | None:
    """A metric in a phase above its value before any model is loaded, None if either could not be had."""
    found, ground = value(run, phase, wanted), baseline(run, wanted)
    return found - ground if found is not None and ground is not None else None


def exact(run: Run, phase: str, wanted: Metric) -> bool:
    """Whether the value is exact, and not only the largest that polling happened to see."""
    if wanted.name not in PEAKS or wanted.name in _CHARGES:
        return True
    if wanted.name == "device_peak_bytes":
        return not any(mark.device_peak_bytes for mark in marks_of(run, phase))
    both = wanted.name == "rss_swap_peak_bytes"
    return all(mark.sure and not (both and mark.swapped_bytes) for mark in marks_of(run, phase))


def marks_of(run: Run, phase: str) -> Sequence[Mark]:
    """The marks that a figure of a phase comes from; for PEAK those of all phases but RELEASE."""
    return run.before_release if phase == PEAK else [mark for mark in run.marks if mark.phase == phase]


def swapped(run: Run, phase: str, wanted: Metric) -> int:
    """The most that was swapped out in a phase and is missing in the metric's value, in bytes; 0 for metrics that lack none."""
    marks = marks_of(run, phase)
    if wanted.name in ("rss_peak_bytes", "hwm_bytes"):
        return max((mark.swapped_bytes for mark in marks), default=0)
    if wanted.name in _RESIDENT_AT_THE_END:
        return max((mark.swap_end_bytes or 0 for mark in marks), default=0)
    return 0


def missed(run: Run, phase: str, wanted: Metric) -> int:
    """The most by which a peak that is not exact may lie below the truth, in bytes; 0 where that is not known."""
    if wanted.name != "rss_peak_bytes":
        return 0
    marks = [mark for mark in marks_of(run, phase) if mark.rss_peak_bytes is not None]
    possible = max((mark.rss_peak_high_bytes or 0 for mark in marks if not mark.rss_peak_exact), default=0)
    return max(0, possible - max((mark.height_bytes for mark in marks), default=0))


def with_swap(run: Run, phase: str, wanted: Metric) -> float | None:
    """The metric's value with the swapped-out pages that it lacks, None if it could not be had."""
    plain = value(run, phase, wanted)
    if plain is None or not swapped(run, phase, wanted):
        return plain
    if wanted.name in _RESIDENT_AT_THE_END:
        return plain + swapped(run, phase, wanted)
    return max(plain, value(run, phase, METRICS["rss_swap_peak_bytes"]) or 0)


def amount(metric: str, value: float) -> str:
    """A metric's value as people read it."""
    unit = described(metric).unit
    return format_bytes(value) if unit == BYTES else format_duration(value) if unit == NS else format_number(value)


def signed(metric: str, value: float, beside: float) -> str:
    """A difference as people read it, with its share of the value beside it: `+2.0 MiB, +4.5%`."""
    share = f", {format_change(value / beside)}" if beside else ""
    return f"{'+' if value >= 0 else '-'}{amount(metric, abs(value))}{share}"
