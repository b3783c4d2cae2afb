"""A program without phases: RUN from its start to its end, and how much of its peak is sure."""

from __future__ import annotations

import re

import pytest

from memprof.records import store

from .written import BEGIN_NS, MIB, MS, ROOT, Recording, bounds, mark, phases


def unseen_program(recorder_hwm: float = 10) -> Recording:
    """A program that has ended when it is looked at first."""
    recording = Recording(rss=None, recorder_hwm=recorder_hwm)
    recording.tell(f"start %d {ROOT}")
    recording.tell(f"process %d 9000 {ROOT} 0 0 - Z 9 0 0 0 1 0 - - program")
    recording.tell(f"gone %d {ROOT}")
    recording.polled()
    return recording


def test_run_is_the_whole_life() -> None:
    recording = Recording(rss=5)
    recording.poll({ROOT: 32})
    recording.at(200)
    run = recording.run(largest=33, faults=7, major=2, cpu_ns=5)
    assert phases(run) == ["RUN"]
    found = mark(run, "RUN")
    assert (found.begin_ns, found.time_ns) == (BEGIN_NS, 200 * MS)
    assert (found.rss_peak_bytes, found.rss_peak_exact, found.rss_peak_high_bytes) == (33 * MIB, True, None)  # wait4 tells
    assert (found.minor_faults, found.major_faults, found.cpu_ns, found.samples) == (7, 2, 5, 2)
    assert run.warnings == run.processes == ()


def test_program_smaller_than_the_recorder_is_bounded() -> None:
    """What wait4 tells is of the copy of the recorder then, before the exec."""
    recording = Recording(rss=3, recorder_hwm=9)
    run = recording.run(largest=9)
    assert (bounds(run, "RUN"), mark(run, "RUN").rss_peak_exact) == ((3, 9), False)


def test_status_tells_of_a_mark_above_the_polls() -> None:
    recording = Recording(rss=3, recorder_hwm=9)
    recording.status(hwm=4)
    assert bounds(recording.run(largest=9), "RUN") == (4, 9)


def test_program_that_no_poll_saw_is_exact() -> None:
    recording = unseen_program()
    recording.ended(largest=64)
    run = recording.run()
    assert (bounds(run, "RUN"), mark(run, "RUN").rss_peak_exact) == ((64, 64), True)
    assert run.outcome.ok and run.warnings == ()
    assert not store.unpack(run.timeline).t_ns


def test_small_program_that_no_poll_saw_is_told() -> None:
    recording = unseen_program(recorder_hwm=12.5)
    recording.ended(largest=12.5)
    run = recording.run()
    assert run.marks == ()
    assert run.warnings == ("it ended before it could be looked at, and had at most 12.5 MiB resident",)


def test_end_of_which_wait4_says_nothing_is_told() -> None:
    recording = unseen_program(recorder_hwm=0)
    recording.ended(largest=0)
    assert recording.run().warnings == ("it ended before it could be looked at",)


@pytest.mark.parametrize("what", ["waited for", "left behind", "ended after it"])
def test_child_that_no_poll_saw_makes_it_inexact(what: str) -> None:
    """The largest of the two is what wait4 tells."""
    recording = Recording(rss=3)
    if what == "waited for":
        recording.stat(ROOT, child_faults=70)
        recording.zombie(ROOT)
        recording.ended(largest=64)
    else:
        recording.zombie(ROOT)
        recording.ended(largest=64)
        recording.tell("left %d 101 x" if what == "left behind" else "ended %d 101 0 5 0 0 900")
    run = recording.run()
    assert (bounds(run, "RUN"), mark(run, "RUN").rss_peak_exact) == ((64, 64), False)


def test_child_that_was_waited_for_unseen_is_said() -> None:
    recording = unseen_program()
    recording.lines[-3] = re.sub(rb" Z 9 0 ", b" Z 9 70 ", recording.lines[-3])
    recording.ended(largest=64)
    run = recording.run()
    assert run.warnings == ("processes that started and ended between two readings and are in no figure: at least 1",)
    assert not mark(run, "RUN").rss_peak_exact


def test_unseen_child_is_said_with_period() -> None:
    recording = unseen_program()
    recording.lines[-3] = re.sub(rb" Z 9 0 ", b" Z 9 70 ", recording.lines[-3])
    recording.ended(largest=64)
    recording.tail(b"")
    recording.tell("periods 5000 " + " ".join(str(10_000 * part) for part in range(101)))
    recording.tell("end %d")
    (said,) = recording.so_far().warnings
    assert said == "processes that started and ended between two readings, mostly 500 us apart, and are in no figure: at least 1"


def test_children_make_the_peak_a_sum() -> None:
    recording = Recording(rss=(30, 0))
    recording.spawn(101, (50, 0))
    recording.poll()
    recording.zombie(101)
    recording.poll()
    run = recording.run(largest=50)
    assert (bounds(run, "RUN"), mark(run, "RUN").rss_peak_exact) == ((80, 80), False)
    assert mark(run, "RUN").rss_peak_high_bytes == 80 * MIB


def test_largest_of_all_bounds_a_sum_from_below() -> None:
    """Polls missed the peak of a process, which wait4 tells."""
    recording = Recording(rss=(30, 0))
    recording.spawn(101, (5, 0))
    recording.poll()
    recording.zombie(101)
    recording.poll()
    run = recording.run(largest=118)
    assert (bounds(run, "RUN"), mark(run, "RUN").rss_peak_exact) == ((118, 118 + 35), False)


def test_failed_program_has_no_run() -> None:
    assert phases(Recording().run(code=1)) == []


def test_run_of_tree_holds_each_high_water_mark() -> None:
    """A child's peak that lies between two polls is in the tree's, and what wait4 tells is possible where it may be the recorder's copy."""
    recording = Recording(rss=2, recorder_hwm=12)
    recording.fork(101)
    recording.poll({101: 3})
    for hwm in (3, 9):
        recording.status(101, hwm=hwm)
    recording.poll({101: 4})
    recording.zombie(101)
    recording.poll()

    low, high = bounds(recording.run(largest=11), "RUN")

    assert low == 9 and high >= 11
