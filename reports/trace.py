"""Runs as a trace in Chrome's event form, the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process for each run, all begun at 0 so that they lie under one another. The form, as Google's "Trace Event Format" describes it:

    ts, dur                 microseconds, from the start of the run's first phase; decimals keep the nanoseconds
    ph "X"                  a slice: a phase on thread 1, and inside it its iterations; slices of a thread nest or lie apart
    ph "C"                  a counter: RSS as anonymous + file-backed and shared, and VMS, in bytes, at 0 where the run is over
    ph "i"                  an instant on thread 2: the peak of each phase, and the PEAK of the run for its whole process (s "p")
    ph "M"                  names of processes and threads, the order of processes, how a run failed

The record has the durations of iterations, but not when they began: they are laid one after another from the start of their phase.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from memprof.base.errors import InputError
from memprof.base.units import counted, format_bytes
from memprof.records import summary
from memprof.records.types import Mark, Run

from . import ran
from .columns import ColumnArrays, Peak, RunPhase, columns, peak, spans, thin, typical, whole_peak
from .soundness import sound

_PHASES, _PEAKS = 1, 2  # threads
_MOST_BUCKETS, _ALL_BUCKETS = 800, 40_000  # of five rows at most: as many as a browser opens at once
_NOT_SHOWN = {"phase", "begin_ns", "end_ns", "times_ns", "samples", "interval_ns"}

Event = dict[str, Any]
Clock = Callable[[int], float]


def render(runs: Sequence[Run], *, all_repeats: bool = False) -> str:
    """The trace of these runs as JSON: of each variant the repeat with the median PEAK, or all repeats.

    Raises InputError where there is nothing to show.
    """
    drawn = list(runs) if all_repeats else [typical(group) for group in summary.groups(runs).values()]
    drawn = [run for run in drawn if run.marks or run.timeline.samples]
    if not drawn:
        raise InputError("these runs hold nothing to show: they ended before their first phase")
    sound(drawn)
    buckets = max(min(_MOST_BUCKETS, _ALL_BUCKETS // len(drawn)), 10)
    events = [event for number, run in enumerate(drawn, 1) for event in _events(number, run, buckets)]
    return json.dumps({"displayTimeUnit": "ms", "otherData": _facts(drawn), "traceEvents": events}, separators=(",", ":"))


def _facts(runs: Sequence[Run]) -> dict[str, str]:
    machines = {run.machine.name: run.machine for run in runs}
    facts = [f"{machine.name}: {machine.words}" for machine in machines.values()]
    shapes = ran.heading(runs)
    return {"tool": "memprof", "machines": _text("; ".join(facts)), **({"inputs": _text("; ".join(shapes))} if shapes else {})}


def _events(pid: int, run: Run, buckets: int) -> Iterator[Event]:
    rows = columns(run.timeline)
    phases = spans(run, rows)
    zero_ns: int = min([*(span.begin_ns for span in phases), *rows.t_ns[:1].tolist()])

    def clock(t_ns: int) -> float:
        """CLOCK_MONOTONIC in ns as the trace's microseconds."""
        return (t_ns - zero_ns) / 1000

    yield from _metadata(pid, run)
    for span in phases:
        yield from _slices(pid, run, span, clock)
    yield from _peaks(pid, run, rows, clock)
    yield from _counters(pid, thin(rows, buckets), clock)


def _metadata(pid: int, run: Run) -> Iterator[Event]:
    job = run.job
    threads = f", {counted(job.threads, 'thread')}" if job.threads else ""
    name = f"{job.label}{threads}, repeat {job.repeat}, {run.machine.name}"
    yield _named(pid, 0, "process_name", name=_text(name))
    yield _named(pid, 0, "process_sort_index", sort_index=pid)
    if not run.outcome.ok:
        yield _named(pid, 0, "process_labels", labels=_text(f"failed: {run.outcome.sentence}"))
    yield _named(pid, _PHASES, "thread_name", name="phases")
    yield _named(pid, _PEAKS, "thread_name", name="peaks")


def _named(pid: int, tid: int, kind: str, **args: object) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": kind, "args": args}


def _slices(pid: int, run: Run, span: RunPhase, clock: Clock) -> Iterator[Event]:
    if span.mark is None:
        args: dict[str, object] = {"outcome": _text(run.outcome.sentence)}
        yield _slice(pid, f"{span.phase} (failed: {run.outcome.word})", "phase", clock(span.begin_ns), span.end_ns - span.begin_ns, args)
        return
    yield _slice(pid, span.phase, "phase", clock(span.begin_ns), span.mark.time_ns, _figures(span.mark))
    at_ns = span.begin_ns
    for index, time_ns in enumerate(span.mark.times_ns, 1):
        if at_ns + time_ns > span.end_ns:
            return  # they do not fit into their phase, so its times or theirs are wrong
        yield _slice(pid, f"iteration {index}", "iteration", clock(at_ns), time_ns, {"begin": "not recorded: right after the one before"})
        at_ns += time_ns


def _slice(pid: int, name: str, kind: str, ts: float, time_ns: int, args: dict[str, object]) -> Event:
    return {"ph": "X", "pid": pid, "tid": _PHASES, "ts": ts, "dur": time_ns / 1000, "name": _text(name), "cat": kind, "args": args}


def _figures(mark: Mark) -> dict[str, object]:
    return {name: value for name, value in msgspec.to_builtins(mark).items() if value is not None and name not in _NOT_SHOWN}


def _peaks(pid: int, run: Run, rows: ColumnArrays, clock: Clock) -> Iterator[Event]:
    peaks = [peak(mark, rows, run.machine.peak_bound_bytes) for mark in run.marks]
    for phase_peak in peaks:
        yield _instant(pid, f"peak of {phase_peak.phase}: {_size(phase_peak)}", "t", phase_peak, clock)
    top = whole_peak(run.before_release, rows, run.machine.peak_bound_bytes)
    if top is not None and run.complete:
        yield _instant(pid, f"PEAK: {_size(top)} in {top.phase}", "p", top, clock)


def _size(peak: Peak) -> str:
    return ("" if peak.exact else "~") + format_bytes(peak.bytes)


def _instant(pid: int, name: str, scope: str, peak: Peak, clock: Clock) -> Event:
    args: dict[str, object] = {"rss_peak_bytes": peak.bytes, "exact": peak.exact, "seen_by_polling_bytes": peak.seen_bytes}
    if not peak.shown:
        args["time"] = "not known: polling missed it; the middle of the phase"
    shown = {key: value for key, value in args.items() if value is not None}
    return {"ph": "i", "pid": pid, "tid": _PEAKS, "ts": clock(peak.t_ns), "s": scope, "name": _text(name), "cat": "peak", "args": shown}


def _counters(pid: int, rows: ColumnArrays, clock: Clock) -> Iterator[Event]:
    # Python's numbers, all at once: taken singly they would be numpy's, at ten times the cost.
    for t_ns, anon, rss, vms in zip(rows.t_ns.tolist(), rows.anon.tolist(), rows.rss.tolist(), rows.vms.tolist(), strict=True):
        yield from _levels(pid, clock(t_ns), anon, rss - anon, vms)
    if len(rows):
        yield from _levels(pid, clock(int(rows.t_ns[-1]) + 1000), 0, 0, 0)


def _levels(pid: int, ts: float, anon: int, file: int, vms: int) -> Iterator[Event]:
    split = {"anonymous": anon, "file-backed and shared": file}
    yield {"ph": "C", "pid": pid, "tid": 0, "ts": ts, "name": "RSS (bytes)", "args": split}
    yield {"ph": "C", "pid": pid, "tid": 0, "ts": ts, "name": "VMS (bytes)", "args": {"vms": vms}}


def _text(text: str) -> str:
    """Text that is valid in any JSON reader: no half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()
