"""The closing note on a runtime that was measured from Python and natively: whether both agree above their baselines, else which memory makes the
difference.

Four parts add up to the resident set, so their differences add up to the whole: the heap in use, freed memory that the allocator kept (both from
mallinfo2), file-backed memory, and other anonymous memory (stacks, mappings).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from memprof.records import metrics, summary
from memprof.records.metrics import METRICS
from memprof.records.summary import Key
from memprof.records.types import RELEASE, STARTUP, Mark, Run

_SUFFIX = "-native"
_MIB = 1 << 20
_FEW = 4 * _MIB
_LEAST = 0.5 * _MIB  # a part that is smaller explains nothing
_FIELDS = {"heap in use": "heap_used_end_bytes", "freed but kept by the allocator": "heap_free_end_bytes", "file-backed": "file_end_bytes"}


def notes(groups: Mapping[Key, Sequence[Run]]) -> list[str]:
    """A sentence for each pair of a runtime and its native twin that were set alike."""
    return [sentence for python, native in _pairs(groups) if (sentence := _sentence(python, native))]


def _pairs(groups: Mapping[Key, Sequence[Run]]) -> Iterator[tuple[Sequence[Run], Sequence[Run]]]:
    for key, group in groups.items():
        for other_key, other in groups.items():
            alike = (key.model, key.threads, key.machine) == (other_key.model, other_key.threads, other_key.machine)
            if alike and other[0].job.runtime == group[0].job.runtime + _SUFFIX and other[0].job.knobs == group[0].job.knobs:
                yield group, other


def _sentence(python: Sequence[Run], native: Sequence[Run]) -> str | None:
    pair = [[run for run in group if run.complete and run.mark(STARTUP)] for group in (python, native)]
    if not all(pair):
        return None
    names = [group[0].job.heading for group in pair]
    grounds = [_median([_of(run, STARTUP, "rss_end_bytes") for run in group]) for group in pair]
    peaks = [_median([_peak(run) for run in group]) for group in pair]
    last = [phase for phase in summary.phases(pair[0]) if phase in summary.phases(pair[1]) and phase != RELEASE][-1]
    ends = [_median([_above(run, last, "rss_end_bytes") for run in group]) for group in pair]
    if None in grounds or None in peaks or None in ends:
        return None
    apart = {"at their peaks": peaks[1] - peaks[0], f"at the end of {last}": ends[1] - ends[0]}  # type: ignore[operator]
    both = f"{names[0]} and {names[1]}, above their baselines of {_mib(grounds[0])} and {_mib(grounds[1])} MiB"
    if max(map(abs, apart.values())) <= _FEW:
        return f"{both}, agree within {_mib(max(map(abs, apart.values())))} MiB."
    differences = " and ".join(f"{difference / _MIB:+.1f} MiB {where}" for where, difference in apart.items())
    why = ", ".join(f"{name} {difference / _MIB:+.1f}" for name, difference in _parts(pair, last) if abs(difference) >= _LEAST)
    where = _highest(pair)
    return f"{both}, differ: {names[1]} is at {differences}; at that end by: {why or 'no part alone'} MiB{where}."


def _parts(pair: Sequence[Sequence[Run]], phase: str) -> list[tuple[str, float]]:
    """The parts of the difference at the end of a phase, in bytes, the largest first."""
    sides = []
    for group in pair:
        figures = {}
        for name, field in _FIELDS.items():
            figures[name] = _median([_above(run, phase, field) for run in group])
        anon = _median([_above(run, phase, "anon_end_bytes") for run in group])
        if anon is not None and figures["heap in use"] is not None:
            figures["other anonymous"] = anon - figures["heap in use"] - (figures["freed but kept by the allocator"] or 0)
        sides.append(figures)
    parts = [(name, other - value) for name, value in sides[0].items() if value is not None and (other := sides[1].get(name)) is not None]
    return sorted(parts, key=lambda part: -abs(part[1]))


def _highest(pair: Sequence[Sequence[Run]]) -> str:
    """The phases of both peaks, if they differ."""
    phases = [summary.peak_phase(group) for group in pair]
    return f"; their peaks are in {phases[0]} and in {phases[1]}" if phases[0] != phases[1] else ""


def _peak(run: Run) -> float | None:
    value, ground = metrics.value(run, "PEAK", METRICS["rss_peak_bytes"]), _of(run, STARTUP, "rss_end_bytes")
    return value - ground if value is not None and ground is not None else None


def _above(run: Run, phase: str, field: str) -> float | None:
    value, ground = _of(run, phase, field), _of(run, STARTUP, field)
    return value - ground if value is not None and ground is not None else None


def _of(run: Run, phase: str, field: str) -> float | None:
    mark: Mark | None = run.mark(phase)
    return getattr(mark, field) if mark is not None else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _mib(count: float | None) -> str:
    return f"{(count or 0) / _MIB:.1f}"
