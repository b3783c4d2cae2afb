"""Phases by marks: their records, their peaks, and where one ends and the next begins."""

from __future__ import annotations

import pytest

from memprof.base.counter_bounds import peak_bound

from .written import BEGIN_NS, MIB, MS, ROOT, Recording, bounds, mark, ns, phases

BOUND = peak_bound("6.18", 4096, 2, 2) / MIB


def test_phases_come_in_their_order() -> None:
    recording = Recording()
    recording.startup()
    for phase in ("LOAD", "PREPARE", "EXECUTE"):
        recording.phase(phase, peak=10)
    recording.mark("done")
    run = recording.run()
    assert phases(run) == ["STARTUP", "LOAD", "PREPARE", "EXECUTE"]
    assert run.outcome.ok and run.warnings == ()


def test_record_has_the_marks_figures() -> None:
    figures = {name: number for number, name in enumerate(FIGURES, 1)}
    recording = Recording(rss=1)
    recording.begin("A")
    recording.at(5).end("A", peak=100, **figures)
    found = mark(recording.run(), "A")
    assert {name: getattr(found, name) for name in FIGURES} == figures
    assert (found.end_ns, found.rss_peak_bytes, found.rss_peak_exact) == (ns(5), 100 * MIB, True)


FIGURES = [
    "hwm_bytes",
    "rss_begin_bytes",
    "rss_end_bytes",
    "anon_end_bytes",
    "file_end_bytes",
    "shmem_end_bytes",
    "swap_end_bytes",
    "vms_end_bytes",
    "vms_peak_bytes",
    "pss_end_bytes",
    "uss_end_bytes",
    "heap_used_end_bytes",
    "heap_free_end_bytes",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "cpu_ns",
]


@pytest.mark.parametrize(
    ("figures", "peak", "exact"),
    [
        ({"hwm_phase_bytes": 90 * MIB, "hwm_reset": True}, 90, True),
        ({"hwm_phase_bytes": 90 * MIB, "hwm_reset": False, "hwm_begin_bytes": 80 * MIB}, 90, True),  # it rose
        ({"hwm_phase_bytes": 90 * MIB, "hwm_reset": False, "hwm_begin_bytes": 90 * MIB, "rss_end_bytes": 60 * MIB}, 60, False),
        ({"hwm_phase_bytes": 90 * MIB, "hwm_begin_bytes": 90 * MIB, "rss_begin_bytes": 70 * MIB}, 70, False),
        ({"hwm_phase_bytes": 0, "hwm_reset": True}, 50, False),  # it could not be read
        ({}, 50, False),
        ({"hwm_phase_bytes": 20 * MIB, "hwm_reset": True, "rss_begin_bytes": 60 * MIB}, 50, True),  # the poll was above it
    ],
)
def test_peak_is_the_highest_that_is_sure(figures: dict[str, int], peak: float, exact: bool) -> None:
    recording = Recording()
    recording.phase("A", sizes={ROOT: 50}, **figures)
    run = recording.run()
    assert (bounds(run, "A"), mark(run, "A").rss_peak_exact) == ((peak, peak), exact)


def test_late_reading_gives_no_neighbour_its_peak() -> None:
    """A poll that straddles a border may be of either side."""
    recording = Recording()
    recording.at(10).begin("A")
    recording.poll({ROOT: 90}, took_ms=5)
    recording.end("A", ms=14, rss=5)
    recording.begin("B", ms=14)
    recording.poll({ROOT: 7})
    recording.end("B", rss=5)
    run = recording.run()
    assert (bounds(run, "A"), bounds(run, "B")) == ((5, 5), (7, 7))


def test_level_reaches_into_short_phases() -> None:
    """Between two polls that found the same, all phases have had that."""
    recording = Recording(rss=30)
    recording.begin("A")
    recording.end("A")
    recording.begin("B", ms=recording.now_ms + 0.1)
    recording.quiet()
    recording.end("B", ms=recording.now_ms - 0.5)
    recording.poll({ROOT: 31})
    run = recording.run()
    assert bounds(run, "B") == (30, 30)


def test_repeats_become_one_phase() -> None:
    recording = Recording()
    for peak in (8, 8, 64, 8):
        recording.begin("EXECUTE")
        recording.at(recording.now_ms + 3).end("EXECUTE", peak=peak, rss=peak / 2, minor_faults=5, cpu_ns=7, units={"token": 2})
        recording.begin("BETWEEN")
        recording.end("BETWEEN", peak=9)
    run = recording.run()
    found = mark(run, "EXECUTE")
    assert phases(run) == ["EXECUTE", "BETWEEN"]
    assert found.times_ns == (3 * MS,) * 4
    assert (found.rss_peak_bytes, found.rss_end_bytes) == (64 * MIB, 4 * MIB)
    assert (found.minor_faults, found.cpu_ns, found.units) == (20, 28, {"token": 8})
    assert found.rss_peak_exact


def test_one_inexact_repeat_makes_a_phase_inexact() -> None:
    recording = Recording()
    recording.phase("A", peak=20)
    recording.phase("A")
    assert not mark(recording.run(), "A").rss_peak_exact


def test_iterations_are_kept_one_by_one() -> None:
    recording = Recording()
    recording.begin("EXECUTE")
    for part in range(4):
        recording.mark("times", phase="EXECUTE", times_ns=[100 * part + number for number in range(100)])
    recording.end("EXECUTE", peak=10)
    assert mark(recording.run(), "EXECUTE").times_ns == tuple(range(400))


def test_times_of_long_followed_phases_are_bounded() -> None:
    recording = Recording(env={"MEMPROF_WORK": "1"})
    for _ in range(50):
        recording.begin("EXECUTE")
        recording.mark("times", phase="EXECUTE", times_ns=[1] * 100)
        recording.end("EXECUTE", peak=10)
    assert len(mark(recording.run(), "EXECUTE").times_ns) == 4096


def test_polls_are_counted_by_phase() -> None:
    recording = Recording()
    recording.poll()
    recording.begin("A")
    recording.quiet(7)
    recording.end("A", peak=10)
    recording.quiet(2)
    recording.phase("B", peak=10)
    run = recording.run()
    assert (mark(run, "A").samples, mark(run, "B").samples) == (7, 1)
    assert run.timeline.samples == 12  # with the two before A, and those between the two


def test_periods_are_of_the_phase() -> None:
    recording = Recording(intervals={"": MS, "EXECUTE": 5 * MS, "WARMUP": 0})
    for phase in ("LOAD", "WARMUP", "EXECUTE"):
        recording.phase(phase, peak=10)
    run = recording.run()
    assert [(found.interval_ns, found.samples) for found in run.marks] == [(MS, 1), (0, 0), (5 * MS, 1)]


def test_inner_phase_ends_before_the_outer() -> None:
    recording = Recording()
    recording.begin("OUTER")
    recording.phase("INNER", peak=20)
    assert recording.folded().phase == "OUTER"
    recording.end("OUTER", peak=30)
    assert recording.folded().phase == ""
    run = recording.run()
    assert phases(run) == ["INNER", "OUTER"]


def test_phase_that_never_ends_lasts_on() -> None:
    recording = Recording()
    recording.at(10).begin("A")
    recording.poll({ROOT: 32})
    recording.at(110)
    run = recording.run()
    found = mark(run, "A")
    assert run.outcome.ok
    assert run.warnings == ("A was never ended: it is taken to last until the program's end",)
    assert (found.rss_peak_bytes, found.rss_peak_exact, found.rss_end_bytes, found.time_ns) == (32 * MIB, False, None, 100 * MS)


def test_phase_that_nobody_saw_is_no_record() -> None:
    recording = Recording(rss=None)
    recording.tell(f"start %d {ROOT}")
    recording.begin("A")
    recording.ended()
    assert phases(recording.run()) == []


def test_startup_begins_with_the_program() -> None:
    recording = Recording()
    recording.begin("STARTUP", ms=5)
    recording.at(20).end("STARTUP", peak=12)
    assert mark(recording.run(), "STARTUP").begin_ns == BEGIN_NS


def test_startup_of_a_child_begins_with_that() -> None:
    recording = Recording()
    recording.spawn(101, 9)
    recording.poll()
    recording.begin("STARTUP", 101, ms=5)
    recording.at(20).end("STARTUP", 101, peak=12)
    assert mark(recording.run(), "STARTUP").begin_ns == ns(5)


@pytest.mark.parametrize(("before", "peak"), [(64, 8), (8 + BOUND / 2, 8 + BOUND / 2)])
def test_startup_is_not_of_another_program(before: float, peak: float) -> None:
    """What the process was before its exec is in the polls, and not in its high-water mark, which may be a little low."""
    recording = Recording(rss=before)
    recording.poll({ROOT: 5})
    recording.startup(peak=8)
    assert bounds(recording.run(), "STARTUP") == (peak, peak)


def test_refaults_are_of_the_phase() -> None:
    recording = Recording()
    recording.group(5, 6, 100)
    recording.begin("A")
    recording.group(9, 9, 130)
    recording.end("A", peak=10)
    recording.group(7, 12, 150, 0)
    run = recording.run()
    assert mark(run, "A").refaults == 30
    assert run.charged is not None
    assert (run.charged.peak_bytes, run.charged.with_swap_peak_bytes, run.charged.oom_kills) == (9 * MIB, 12 * MIB, 0)


def test_group_without_figures_has_none() -> None:
    recording = Recording()
    recording.tell("group %d - 7 - - 1")
    recording.phase("A", peak=10)
    run = recording.run()
    assert mark(run, "A").refaults is None
    assert run.charged is not None and (run.charged.peak_bytes, run.charged.with_swap_peak_bytes, run.charged.oom_kills) == (None, 7, None)


def test_refaults_of_repeats_are_added() -> None:
    recording = Recording()
    for refaults in (10, 30):
        recording.group(1, 1, refaults)
        recording.begin("A")
        recording.group(1, 1, refaults + 5)
        recording.end("A", peak=10)
    assert mark(recording.run(), "A").refaults == 10


def test_marks_read_after_the_end_keep_their_phases() -> None:
    """A recorder without CPU time reads marks when the program has ended: its last resident set is none of the phases since then."""
    recording = Recording(rss=10)
    recording.begin("A")
    recording.poll({ROOT: 40})
    recording.at(30).gone(ROOT)
    recording.polled()
    recording.end("A", ms=10, peak=42, rss=12)
    recording.begin("B", ms=12)
    recording.polled()
    recording.end("B", ms=14, peak=12, rss=12)
    recording.polled()
    run = recording.run(largest=42)
    assert [bounds(run, phase) for phase in ("A", "B")] == [(42, 42), (12, 12)]
    assert mark(run, "B").rss_peak_exact
