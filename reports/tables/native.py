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
from memprof.records.types import PEAK, RELEASE, STARTUP, Run

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
    grounds = [metrics.values(group, STARTUP, METRICS["rss_end_bytes"]) for group in pair]
    last = [phase for phase in summary.phases(pair[0]) if phase in summary.phases(pair[1]) and phase != RELEASE][-1]
    peaks, ends = _difference(pair, PEAK, "rss_peak_bytes"), _difference(pair, last, "rss_end_bytes")
    if not all(grounds) or peaks is None or ends is None:
        return None
    apart = {"at their peaks": peaks, f"at the end of {last}": ends}
    both = f"{names[0]} and {names[1]}, above their baselines of {' and '.join(_mib(statistics.median(each)) for each in grounds)} MiB"
    if max(map(abs, apart.values())) <= _FEW:
        return f"{both}, agree within {_mib(max(map(abs, apart.values())))} MiB."
    differences = " and ".join(f"{difference / _MIB:+.1f} MiB {where}" for where, difference in apart.items())
    why = ", ".join(f"{name} {difference / _MIB:+.1f}" for name, difference in _parts(pair, last) if abs(difference) >= _LEAST)
    where = _highest(pair)
    return f"{both}, differ: {names[1]} is at {differences}; at that end by: {why or 'no part alone'} MiB{where}."


def _parts(pair: Sequence[Sequence[Run]], phase: str) -> list[tuple[str, float]]:
    """The parts of the difference at the end of a phase, in bytes, the largest first."""
    parts = {name: _difference(pair, phase, field) for name, field in _FIELDS.items()}
    anon, in_use, kept = _difference(pair, phase, "anon_end_bytes"), parts["heap in use"], parts["freed but kept by the allocator"]
    if anon is not None and in_use is not None:
        parts["other anonymous"] = anon - in_use - (kept or 0)
    return sorted(((name, size) for name, size in parts.items() if size is not None), key=lambda part: -abs(part[1]))


def _difference(pair: Sequence[Sequence[Run]], phase: str, name: str) -> float | None:
    """By how much more the second of a pair has of a metric, both above their baselines, in bytes; None where either does not tell."""
    sides = [[size for run in group if (size := metrics.above_baseline(run, phase, METRICS[name])) is not None] for group in pair]
    return statistics.median(sides[1]) - statistics.median(sides[0]) if all(sides) else None


def _highest(pair: Sequence[Sequence[Run]]) -> str:
    """The phases of both peaks, if they differ."""
    first, second = (summary.peak_phases(group) for group in pair)
    return f"; their peaks are in {first.names} and in {second.names}" if not first.shared(second).level else ""


def _mib(count: float) -> str:
    return f"{count / _MIB:.1f}"
