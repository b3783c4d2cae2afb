"""Why a cell is empty, or a peak is not exact: the same words in tables and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from memprof.base.units import format_bytes
from memprof.records import metrics, summary
from memprof.records.metrics import Metric
from memprof.records.types import OUTSIDE, PEAK, STARTUP, Mark, Run

from ..rows import BASELINE


def inexact(runs: Sequence[Run], phase: str = PEAK) -> list[str]:
    """Notes on peaks of a phase, or of all phases, that are not exact."""
    return [f"~ not exact: {why}; it may have been higher." for why in why_inexact(runs, phase)]


def swapped(runs: Sequence[Run], phase: str | None = None) -> list[str]:
    """A note on peaks that lack pages which were swapped out: none if there is no such phase. phase: only of those that its figures come from."""
    which = swapped_out(runs, phase)
    return [f"≥ at least: {which}. The peak of RSS and swap is the largest sum seen, about every 10 ms."] if which else []


def swapped_out(runs: Sequence[Run], phase: str | None = None) -> str:
    """Which phases had pages swapped out, in words; empty if there is none."""
    most: dict[str, int] = {}
    looked_at = (mark for run in runs for mark in (run.marks if phase is None else metrics.marks_of(run, phase)))
    for mark in (mark for mark in looked_at if mark.swapped_bytes):
        most[mark.phase] = max(most.get(mark.phase, 0), mark.swapped_bytes)
    amounts = ", ".join(f"{format_bytes(most[phase])} in {phase}" for phase in summary.phases(runs) if phase in most)
    return f"pages were swapped out ({amounts}, at most), which RSS does not count" if most else ""


def why_inexact(runs: Sequence[Run], phase: str = PEAK) -> list[str]:
    """Why peaks are not exact, each reason once."""
    marks = [(run, mark) for run in runs for mark in metrics.marks_of(run, phase)]
    unsure = [(run, mark) for run, mark in marks if mark.rss_peak_bytes is not None and not mark.sure]
    why = dict.fromkeys(_why_inexact(run, mark) for run, mark in unsure if mark.rss_peak_high_bytes is None)
    for several, what in (
        (True, "several processes had together for certain"),
        (False, "polling saw of a program smaller than memprof's recorder"),
    ):
        those = [mark for run, mark in unsure if bool(run.processes) == several]
        bounds = [mark.rss_peak_high_bytes / mark.rss_peak_bytes for mark in those if mark.rss_peak_high_bytes and mark.rss_peak_bytes]
        if bounds:
            why[f"the peak is what {what}, and up to {max(bounds) - 1:.0%} more is possible"] = None
    return list(why)


def _why_inexact(run: Run, mark: Mark) -> str:
    if run.imported:
        return "the peak is what the imported log says"
    if run.processes:
        return "the peak is what polling saw of several processes together: each has a high-water mark, their sum has none"
    if mark.phase in run.job.phase_regexes:
        return "the phase ends where a line of output arrived, which is later than the event it tells of"
    return "the high-water mark was not reset where the phase began, or was gone where it ended; the peak is only what polling saw"


_AT_THE_END = {
    "anon_end_bytes": "anonymous memory",
    "file_end_bytes": "file-backed memory",
    "vms_end_bytes": "VMS",
    "hwm_bytes": "HWM",
    "pss_end_bytes": "PSS",
    "uss_end_bytes": "USS",
}


def _unread(runs: Sequence[Run], shown: Sequence[Metric]) -> list[str]:
    """Why figures that some phases have at their end are missing in those of commands."""
    marks = [(run, mark) for run in runs for mark in run.marks]
    by_reason: dict[str, dict[str, None]] = {}
    for metric in shown:
        if metric.name not in _AT_THE_END or all(metric.of(mark) is None for _, mark in marks):
            continue  # no table has it
        for run, mark in marks:
            if run.job.argv and metric.of(mark) is None:
                by_reason.setdefault(_why_unread(run, mark), {})[_AT_THE_END[metric.name]] = None
    return [f"{', '.join(names)}: -, {why}" for why, names in by_reason.items()]


def _why_unread(run: Run, mark: Mark) -> str:
    if run.imported:
        return "the imported log does not say"
    if mark.phase == OUTSIDE:
        return f"read where a phase ends, and no phase ends {OUTSIDE}"
    if mark.rss_end_bytes is None:
        return f"{mark.phase} lasted until the program's end, and then there is nothing to read"
    if mark.phase in run.job.phase_regexes:
        return "not read where a line ends a phase"
    if run.job.phases:
        return "not read after each of many short calls of a function"
    return "memprof_marks.py does not read it, or /proc/PID/smaps_rollup could not be read"


# Metrics that a system may not have: their name in a note, and why a finished phase lacks them.
_NOT_SAID = {
    "pss_end_bytes": ("PSS", "/proc/PID/smaps_rollup could not be read"),
    "uss_end_bytes": ("USS", "/proc/PID/smaps_rollup could not be read"),
    "heap_used_end_bytes": ("heap figures", "the C library has no mallinfo2 (glibc 2.33 and later have)"),
    "heap_free_end_bytes": ("heap figures", "the C library has no mallinfo2 (glibc 2.33 and later have)"),
    "read_bytes": ("bytes read from disk", "/proc/PID/io could not be read"),
    "anon_end_bytes": ("anonymous and file-backed memory", "the kernel does not say it"),
    "file_end_bytes": ("anonymous and file-backed memory", "the kernel does not say it"),
}


def absences(runs: Sequence[Run], shown: Sequence[Metric]) -> list[str]:
    """Why figures are missing that finished phases should have."""
    # A command's marks may come from places that do not read such a figure: see `_unread`.
    marks = [mark for run in runs if not run.job.argv for mark in run.marks]
    lacking = {metric.name for metric in shown if any(metric.of(mark) is None for mark in marks)}
    notes = dict.fromkeys(f"{title}: -, {why}" for name, (title, why) in _NOT_SAID.items() if name in lacking)
    return [*notes, *_unread(runs, shown)]


def why_absent(runs: Sequence[Run], phase: str, metric: Metric) -> str:
    """Why none of these repeats of a variant has a value of a metric in a phase, PEAK or the baseline."""
    name = STARTUP if phase == BASELINE else phase
    marks = [(run, run.mark(name)) for run in runs]
    reached = [(run, mark) for run, mark in marks if mark is not None]
    failed = next((run.outcome for run in runs if not run.outcome.ok), None)
    if not reached:
        if failed is not None:
            where = f"failed in {failed.phase} ({failed.word})" if failed.phase else f"failed ({failed.word})"
            return f"it {where} and never came so far"
        return "it has no finished phase" if phase == PEAK else f"it has no phase {phase}"
    if metric.name.startswith("time_"):
        return "the phase has no iterations"
    for run, mark in reached:
        if run.job.argv:
            return _why_unread(run, mark)
    return _NOT_SAID.get(metric.name, ("", "the system it was measured on does not say it"))[1]
