"""The closing note on Python and native side by side: agreement within a few MiB, or which memory makes the difference. Runs are made up."""

from __future__ import annotations

from msgspec.structs import replace
from support.sample_runs import MIB, USUAL, runs

from memprof.records.summary import groups
from memprof.records.types import Run
from memprof.reports.tables import native, table


def pair(extra_mib: float = 0, heap_free_mib: float = 0, **words: object) -> list[Run]:
    python = runs("onert", runtime="onert", **words)
    small = {name: (end - 30, peak - 30) for name, (end, peak) in USUAL.items()}
    own = runs("onert-native", runtime="onert-native", memory=small, extra_mib=[extra_mib] * 5, **words)
    return [*_with_heap(python, 0), *_with_heap(own, heap_free_mib)]


def _with_heap(twins: list[Run], free_mib: float) -> list[Run]:
    """Every MiB of anonymous memory above 10 is heap, of which `free_mib` are kept after STARTUP."""
    changed = []
    for run in twins:
        marks = []
        for index, mark in enumerate(run.marks):
            free = int(free_mib * MIB) if index else 0
            anon = (mark.rss_end_bytes or 0) - 10 * MIB  # the same files in every phase, so that they differ in the heap alone
            marks.append(replace(mark, anon_end_bytes=anon, heap_used_end_bytes=anon - free, heap_free_end_bytes=free))
        changed.append(replace(run, marks=tuple(marks)))
    return changed


def test_note_agreement_with_baselines() -> None:
    (note,) = native.notes(groups(pair()))
    assert note == "onert and onert-native, above their baselines of 40.0 and 10.0 MiB, agree within 0.2 MiB."


def test_note_difference_with_cause() -> None:
    (note,) = native.notes(groups(pair(extra_mib=12.2, heap_free_mib=12)))
    assert "differ: onert-native is at +12.0 MiB at their peaks and +12.0 MiB at the end of EXECUTE" in note
    assert "by: freed but kept by the allocator +12.0 MiB" in note
    assert "heap in use" not in note and "file-backed" not in note


def test_note_compares_like_twins_only() -> None:
    twins = pair()
    other = [replace(run, job=replace(run.job, knobs={"mmap": "on"})) for run in twins if run.job.runtime == "onert-native"]
    assert native.notes(groups([run for run in twins if run.job.runtime == "onert"] + other)) == []
    assert native.notes(groups(runs("a"))) == []


def test_note_closes_table() -> None:
    assert table.render(pair()).split("\n\n")[-2].endswith("agree within 0.2 MiB.")
