"""The fold against the two probes that memprof had before, which decided while they measured.

tests/data/recordings holds what each of them read from real programs, as a recording, and the Run that it made of that. The fold makes the same
of the same readings, but for what is better now; DIFFERENT says what that is, and why.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from memprof.recording.fold import fold
from memprof.records import store, work
from memprof.records.types import Mark, Run

_NO_PSS = "known without PSS, for which there was no time"
FOLDER = Path(__file__).parents[2] / "data" / "recordings"
NAMES = sorted(path.name.removesuffix(".rec.gz") for path in FOLDER.glob("*.rec.gz"))
# Fields that are others now, by the begin of the case's name.
DIFFERENT = {
    "attach-log": {"work"},  # a row has the time of its line; the probes gave it the time of a look after the line
    # A row has the memory that was read last before its line; the probes looked again after the line. So no row has what the last unit took.
    # And its phase lasts to the last line, where the probes ended it with the first.
    "units-of-lines": {"work", "phases"},
    "cpus-missing": {"bound"},  # of a program that never ran
    "group-missing": {"bound"},
    "cut-": {"timeline"},  # the probe in Python had none before the end
    "marks-under-gdb": {"timeline"},  # it begins with the program, and not with gdb
    "marks-forks-wrapped": {"timeline"},
    "synthetic-not-polled-killed": {"timeline"},  # it has the looks at a phase that is not polled
    "timeout-grace-ignored": {"timeline"},
    "tree-copy": {"peak", "timeline"},  # a copy is known when faults are read, and no poll later
    "tree-huge-pages": {"peak", "timeline", "bounds"},
    "lines-in-one-piece": {"end"},  # a line without its end: where the program ended, not where it was judged
    "synthetic-foreign-lines": {"warnings"},  # lines of a stranger are foreign
    "synthetic-stranger": {"warnings"},
    "marks-second-process.c": {"warnings"},  # the name of a process that is not looked at
    "marks-one-after-another": {"warnings"},  # a program that took over is another process too
    "marks-forks-wrapped.": {"warnings"},  # rounds that are dropped are others
    # A child is waited for where it vanishes from a list, which no recording tells; so the least number of unknown children is another.
    "orphan-that-ends": {"warnings"},
    "timeout-tree": {"warnings"},
    "tree-double-fork": {"warnings"},
    "tree-many-short": {"warnings"},
    "tree-too-short-to-see": {"warnings"},
}


def _lines(name: str) -> list[bytes]:
    recording = gzip.decompress((FOLDER / f"{name}.rec.gz").read_bytes())
    return [line + b"\n" for line in recording.split(b"\n")[:-1]]


def differs(name: str, field: str) -> bool:
    return any(field in fields for begin, fields in DIFFERENT.items() if name.startswith(begin))


def probe_words(warning: str) -> str:
    """A warning of the fold in the words of the probes, which named no processes and no time."""
    for pattern, word in (
        (r"at once \(.*?\);", "at once;"),
        (r"two readings(?:, mostly [^,]*,)?", "two polls"),
        (r"known \(they .*", _NO_PSS),
    ):
        warning = re.sub(pattern, word, warning)
    return warning


def figures(mark: Mark) -> dict[str, Any]:
    """All that a phase has, but the number of polls, which counts the last one now, and what is possible of a sum."""
    return {name: value for name, value in asdict(mark).items() if name not in ("samples", "rss_peak_high_bytes")}


@pytest.mark.parametrize("name", NAMES)
def test_fold_agrees_with_both_probes(name: str) -> None:
    made = fold(_lines(name))
    golden = store.decode(gzip.decompress((FOLDER / f"{name}.run.json.gz").read_bytes()).rstrip(b"\n"), name)

    _compare_outcomes(name, made, golden)
    _compare_phases(name, made, golden)
    _compare_curves(name, made, golden)


def _compare_outcomes(name: str, made: Run, golden: Run) -> None:
    assert replace(made.outcome, cut=None) == golden.outcome
    assert (made.about, made.values, made.output_bytes, made.output_tail) == (
        golden.about,
        golden.values,
        golden.output_bytes,
        golden.output_tail,
    )
    if not differs(name, "bound"):
        assert made.machine == golden.machine
    if not differs(name, "warnings"):
        assert sorted(map(probe_words, made.warnings)) == sorted(golden.warnings)


def _compare_phases(name: str, made: Run, golden: Run) -> None:
    assert [mark.phase for mark in made.marks] == [mark.phase for mark in golden.marks]
    for mark, wanted in zip(made.marks, golden.marks, strict=True):
        _compare_bounds(name, mark, wanted)
        if differs(name, "phases"):
            assert mark.begin_ns == wanted.begin_ns and mark.end_ns > wanted.end_ns and mark.rss_peak_bytes > wanted.rss_peak_bytes
            continue
        if differs(name, "peak"):
            mark = replace(mark, rss_peak_bytes=wanted.rss_peak_bytes)
        if differs(name, "end"):
            mark = replace(mark, end_ns=wanted.end_ns)
        assert figures(mark) == figures(wanted)


def _compare_bounds(name: str, mark: Mark, wanted: Mark) -> None:
    """What was certain is possible, and what is certain was possible."""
    low, high, wanted_low, wanted_high = mark.rss_peak_bytes, mark.rss_peak_high_bytes, wanted.rss_peak_bytes, wanted.rss_peak_high_bytes
    assert (high is None) == (wanted_high is None)
    if not differs(name, "bounds") and None not in (low, high, wanted_low, wanted_high):
        assert high >= max(low, wanted_low) and low <= wanted_high


def _compare_curves(name: str, made: Run, golden: Run) -> None:
    if not differs(name, "timeline"):
        extremes = [(run.timeline.rss_min_bytes, run.timeline.rss_max_bytes) for run in (made, golden)]
        assert extremes[0] == extremes[1]
    if not differs(name, "work"):
        assert [work.unpack(curve) for curve in made.work] == [work.unpack(curve) for curve in golden.work]
