"""Pages that are swapped out: what a phase had of them at most, and the largest sum of resident and swapped pages of one moment."""

from __future__ import annotations

import base64
import zlib
from array import array
from itertools import accumulate

import pytest

from memprof.base.counter_bounds import peak_bound
from memprof.records.types import Run

from .written import MIB, ROOT, Recording, mark


def swapped(run: Run, phase: str) -> tuple[float | None, float | None]:
    """(the most that was swapped out, the most with resident pages) in MiB."""
    found = mark(run, phase)
    return tuple(size and size / MIB for size in (found.swap_peak_bytes, found.rss_swap_peak_bytes))  # type: ignore[return-value]


def test_both_peak_is_of_one_moment() -> None:
    recording = Recording()
    recording.begin("A")
    for rss, swap in ((100, 0), (80, 60), (120, 10), (90, 0)):
        recording.at(recording.now_ms + 10).status(rss=rss, swap=swap)
    recording.end("A", peak=125)
    assert swapped(recording.run(), "A") == (60, 140)


def test_phase_has_its_own_swap_alone() -> None:
    recording = Recording()
    recording.at(10).begin("BEFORE")
    recording.at(15).end("BEFORE", peak=10)
    recording.at(20).status(rss=80, swap=60)
    recording.at(25).begin("AFTER")
    recording.at(30).status(rss=100)
    recording.at(50).end("AFTER", peak=100)
    run = recording.run()
    assert swapped(run, "BEFORE") == swapped(run, "AFTER") == (None, None)


def test_level_lasts_without_further_readings() -> None:
    recording = Recording()
    recording.at(10).status(rss=80, swap=60)
    recording.at(20).begin("SHORT")
    recording.at(25).end("SHORT", peak=80)
    recording.begin("LONG")
    recording.at(60).end("LONG", peak=80)
    run = recording.run()
    assert swapped(run, "LONG") == (60, 140)
    assert swapped(run, "SHORT") == (None, None)  # nobody has read in it


def test_reading_that_straddles_counts_nowhere() -> None:
    recording = Recording()
    recording.at(10).begin("A")
    recording.at(15).status(rss=1, swap=60, took_ms=10)
    recording.end("A", ms=20, peak=1)
    recording.begin("B", ms=22)
    recording.at(30).status(rss=1)
    recording.at(50).end("B", peak=1)
    run = recording.run()
    assert swapped(run, "A") == swapped(run, "B") == (None, None)


def test_late_reading_within_counts() -> None:
    recording = Recording()
    recording.at(10).begin("A")
    recording.status(rss=1, swap=60, took_ms=30)
    recording.at(50).end("A", peak=1)
    assert swapped(recording.run(), "A") == (60, 61)


def test_own_look_counts_without_readings() -> None:
    recording = Recording()
    recording.begin("A")
    recording.end("A", peak=444, rss=438, swap_end_bytes=175 * MIB)
    assert swapped(recording.run(), "A") == (175, 613)


def test_repeats_of_a_phase_have_one_peak() -> None:
    recording = Recording()
    for rss, swap in ((10, 30), (70, 0)):
        recording.begin("A")
        recording.at(recording.now_ms + 10).status(rss=rss, swap=swap)
        recording.end("A", peak=rss)
    assert swapped(recording.run(), "A") == (30, 70)


def test_forked_processes_may_share_swapped_pages() -> None:
    recording = Recording(rss=100)
    recording.begin("A")
    recording.fork(101)
    recording.spawn(102, 5)
    recording.poll()
    for pid, swap in ((ROOT, 30), (101, 20), (102, 7)):
        recording.status(pid, swap=swap)
    recording.end("A", rss=100)
    assert swapped(recording.run(), "A")[0] == 37


def test_timeline_begins_with_the_first_swap() -> None:
    recording = Recording()
    recording.at(10).status(rss=80)
    assert recording.so_far().timeline.swap is None
    for ms, swap in ((20, 60), (30, 0)):
        recording.at(ms).status(rss=80, swap=swap)
    column = recording.run().timeline.swap
    assert column is not None
    assert list(accumulate(array("q", zlib.decompress(base64.b64decode(column))))) == [60 * MIB, 0]


def test_wrapper_has_no_part_in_swap() -> None:
    recording = Recording(command=None)
    recording.status(swap=60, threads=9)
    recording.lineage(101, ROOT)
    recording.spawn(101, 5, parent=0)
    recording.startup(101)
    run = recording.run()
    assert run.timeline.swap is None
    assert run.machine.peak_bound_bytes == peak_bound("6.18", 4096, 2, 2)


@pytest.mark.parametrize(
    ("kernel", "usable", "threads", "cpus", "pages"),
    [
        ("6.18.44", 2, 1, 2, 2 * 32 * 2),  # a part for each CPU, of two counters
        ("6.18.44", 1, 64, 2, 2 * 32),
        ("6.2.0", 64, 1, 64, 2 * 128 * 64),
        ("6.2.0", 4, 8, 64, 2 * 128 * 4),
        ("6.1.0-50-arm64", 8, 1, 8, 67 * 16),  # a part for each thread
        ("5.10.1", 8, 9, 8, 9 * 67 * 16),
        ("odd", 2, 1, 2, 2 * 32 * 2),
        ("6.²", 2, 1, 2, 2 * 32 * 2),
    ],
)
def test_bound_of_a_high_water_mark(kernel: str, usable: int, threads: int, cpus: int, pages: int) -> None:
    assert peak_bound(kernel, 4096, cpus, usable, threads) == pages * 4096


def test_threads_count_where_counters_need_them() -> None:
    recording = Recording(kernel="6.1.0")
    for threads in (3, 9, 2):
        recording.status(threads=threads)
    assert recording.run().machine.peak_bound_bytes == peak_bound("6.1.0", 4096, 2, 2, 9)
