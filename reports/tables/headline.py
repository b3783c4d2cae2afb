"""The first sentence of a report, which says what matters, and the last line of a pasted table, which says where its figures are from."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from memprof.base.units import format_bytes
from memprof.records import metrics, summary
from memprof.records.summary import Row, first_highest
from memprof.records.types import EXECUTE, GENERATE, PEAK, REQUEST, Run
from memprof.verdicts.compare import Comparison, Difference

from ..rows import place
from .release import kept_bytes

_KINDS = {"anon_end_bytes": "anonymous", "file_end_bytes": "file-backed"}
_TIMED = (EXECUTE, GENERATE, REQUEST)


def of_runs(runs: Sequence[Run]) -> str:
    """PEAK, in which phase, how far above the baseline, and what stays after release; of several rows those of the least and the largest PEAK.

    Medians of the runs that ended well; empty where none did.
    """
    groups = summary.groups(run for run in runs if run.outcome.ok)
    ended = [run for group in groups.values() for run in group]
    peaks = sorted((row for row in summary.summarise(ended, ("rss_peak_bytes",)) if row.phase == PEAK), key=lambda row: row.median)
    if not peaks:
        return ""
    if len(peaks) == 1:
        row = peaks[0]
        return f"{place(row.key)}: PEAK is {_size(row)}, {_circumstances(groups[row.key])}."
    least, largest = (f"{_size(row)}, of {place(row.key)} ({_circumstances(groups[row.key])})" for row in (peaks[0], peaks[-1]))
    return f"Of {len(peaks)} PEAKs, the least is {least}, and the largest is {largest}."


def _size(row: Row) -> str:
    return f"{'≥' if row.swapped else '' if row.exact else '~'}{format_bytes(row.median)}"  # as in the tables


def _circumstances(group: Sequence[Run]) -> str:
    metric = metrics.METRICS["rss_peak_bytes"]
    facts = f"in {summary.peak_phase(group)}"
    grounds = [(metrics.value(run, PEAK, metric), metrics.baseline(run, metric)) for run in group]
    above = [peak - ground for peak, ground in grounds if peak is not None and ground is not None]
    if above:
        facts += f", {format_bytes(statistics.median(above))} above the baseline"
    kept = [value for run in group if (value := kept_bytes(run, "rss_end_bytes")) is not None]
    if kept:
        stays = max(statistics.median(kept), 0)
        facts += f"; {format_bytes(stays) if stays else 'nothing'} stays after release"
    return facts


def of_comparison(comparison: Comparison) -> str:
    """How far PEAK differs, in which phase, in which kind of memory, and the time; empty where PEAK was not compared.

    Of several rows, the one whose PEAK differs most.
    """
    peaks = [row for row in comparison.differences if (row.phase, row.metric) == (PEAK, "rss_peak_bytes")]
    if not peaks:
        return ""
    rank = {"noise": 0, "too few": 1}
    peak = max(peaks, key=lambda row: (rank.get(row.verdict, 2), abs(row.difference)))
    own = [row for row in comparison.differences if row.key == peak.key]
    label = f"{peak.key.model}, {peak.key.heading}" + (f", {peak.key.threads} threads" if peak.key.threads else "")
    parts = [f"{label}: {_peak(peak)}"]
    highest = _highest(own, max((run.machine.peak_bound_bytes for run in comparison.measured), default=0))
    if highest is not None and peak.verdict != "noise":
        parts[0] += f", in {highest.phase}"
        kinds = [_kind(row) for row in own if row.phase == highest.phase and row.metric in _KINDS]
        parts += [f"at its end {' and '.join(kinds)}"] if kinds else []
    parts += [f"{row.phase} {_time(row)}" for row in own if row.metric == "time_ns" and row.phase in _TIMED]
    sentence = "; ".join(parts) + "."
    return sentence if len(peaks) == 1 else f"{sentence} {_rest(peaks)}"


def _peak(row: Difference) -> str:
    if row.verdict == "noise":
        return f"PEAK is the same within noise ({format_bytes(row.head.median)})"
    word = "more" if row.difference > 0 else "less"
    sizes = f"{format_bytes(row.base.median)} to {format_bytes(row.head.median)}"
    few = ", with too few repeats to tell it from noise" if row.verdict == "too few" else ""
    return f"PEAK is {format_bytes(abs(row.difference))} {word} ({sizes}{few})"


def _highest(rows: Iterable[Difference], bound_bytes: int) -> Difference | None:
    """The phase that has the PEAK of the side that needs more."""
    phases = [row for row in rows if row.metric == "rss_peak_bytes" and row.phase != PEAK]
    heights = [(row.base.median, row.head.median) for row in phases]
    side = 0 if heights and max(base for base, _ in heights) > max(head for _, head in heights) else 1
    highest = first_highest([int(pair[side]) for pair in heights], bound_bytes)
    return None if highest is None else phases[highest]


def _kind(row: Difference) -> str:
    name = f"{_KINDS[row.metric]} memory"
    if row.verdict == "noise" or not row.difference:
        return f"{name} is the same"
    return f"{name} is {format_bytes(abs(row.difference))} {'more' if row.difference > 0 else 'less'}"


def _time(row: Difference) -> str:
    if row.verdict == "noise" or row.ratio is None or not row.difference:
        return "takes the same time within noise"
    few = ", with too few repeats" if row.verdict == "too few" else ""
    return f"takes {abs(row.ratio - 1):.0%} {'more' if row.difference > 0 else 'less'} time{few}"


def _rest(peaks: Sequence[Difference]) -> str:
    counts = {word: sum(row.verdict == word for row in peaks) for word in ("more", "less", "noise", "too few")}
    words = {"more": "higher", "less": "lower", "noise": "the same within noise", "too few": "of too few repeats"}
    return f"Of {len(peaks)} PEAKs, {', '.join(f'{count} {words[word]}' for word, count in counts.items() if count)}."


def origin(runs: Sequence[Run]) -> str:
    """`Measured with onnxruntime 1.31.0, Python 3.11.2; on here (a CPU, 2 CPUs, x86_64, Linux 6.18).`; empty where runs do not tell.

    Several versions or machines stand one after another, each once.
    """
    versions: dict[str, None] = {}
    for run in runs:
        if run.about is not None:
            version = run.about.runtime_version
            versions.update({f"{run.job.runtime} {version}": None} if version and run.job.runtime else {})
    versions.update({f"Python {run.about.python_version}": None for run in runs if run.about is not None and run.about.python_version})
    machines = {run.machine.name: run.machine.words for run in runs if run.machine.words}
    if len(machines) == 1:
        where = [f"on {name} ({words})" for name, words in machines.items()]
    else:  # notes of the table describe each
        where = [f"on {' and '.join(machines)}"] if machines else []
    parts = [*([f"with {', '.join(versions)}"] if versions else []), *where]
    return f"Measured {'; '.join(parts)}." if parts else ""
