"""A control group that is looked at: its charges, its limit and those above it."""

from __future__ import annotations

import pytest

from memprof.records.types import Charged, Run

from .written import MIB, MS, ROOT, Recording, mark

GROUP, ABOVE, TOP = "/sys/fs/cgroup/pods/one", "/sys/fs/cgroup/pods", "/sys/fs/cgroup"


def looked_at() -> Recording:
    recording = Recording(None, rss=None, attach=ROOT, watch=[GROUP, ABOVE, TOP])
    recording.spawn(ROOT, 20, parent=0)
    recording.tell(f"start %d {ROOT}")
    recording.look("begin", rss=20, hwm=20, reset=False)
    return recording


def charged(run: Run) -> Charged:
    assert run.charged is not None
    return run.charged


def test_most_of_each_reading() -> None:
    recording = looked_at()
    recording.charge(50, 10, 20, 30, 2, None, 0.5, 1, 2, 8)
    recording.charge(60, 25, 30, 28, 1, None, 1.5, 0.5, 1, 9)
    recording.charge(40, 1, 25, 10, 3, None, None, 0.5)
    recording.look("end", rss=20, hwm=20, reset=False)
    found = mark(recording.finish(), "RUN")
    assert found.working_set_peak_bytes == 40 * MIB  # of the first: the readings with most charges have more pages of files that can go
    assert (found.charged_anon_peak_bytes, found.charged_file_peak_bytes) == (30 * MIB, 30 * MIB)
    assert (found.charged_kernel_peak_bytes, found.charged_page_tables_peak_bytes) == (3 * MIB, MIB)
    assert found.charged_slab_peak_bytes == 1.5 * MIB
    assert (found.charged_sockets_peak_bytes, found.charged_swap_peak_bytes) == (2 * MIB, 9 * MIB)  # the last reading has neither


def test_working_set_is_never_below_nothing() -> None:
    recording = looked_at()
    recording.charge(5, 6, 1, 4, 0, None, None, None)
    assert mark(recording.finish(), "RUN").working_set_peak_bytes == 0


def test_kernel_memory_before_its_row() -> None:
    """Linux 5.18 made the row `kernel`."""
    recording = looked_at()
    recording.charge(50, 10, 20, 30, None, 1, 2, 4)
    found = mark(recording.finish(), "RUN")
    assert (found.charged_kernel_peak_bytes, found.charged_page_tables_peak_bytes) == (7 * MIB, 4 * MIB)


def test_figures_of_no_file_are_absent() -> None:
    recording = looked_at()
    recording.charge(None, None, None, 3, None, 1, None, None)
    run = recording.finish()
    found = mark(run, "RUN")
    assert (found.working_set_peak_bytes, found.charged_anon_peak_bytes, found.charged_kernel_peak_bytes) == (None, None, None)
    assert run.charged is None  # only the files of the limits tell of it


@pytest.mark.parametrize(
    "bounds, limit, group, peak",
    [
        (["0 90 100 1", "1 95 200 -"], 100, None, 90),
        (["0 90 max 1", "1 95 200 -", "2 - max -"], 200, ABOVE, 95),
        (["0 90 100 1", "1 95 96 -", "2 97 98 -"], 96, ABOVE, 95),
        (["0 90 100 1", "1 95 100 -"], 100, None, 90),
        (["0 90 9223372036854771712 1", "1 95 9223372036854771712 -"], None, None, None),
        (["0 90 max 1"], None, None, None),
        (["0 - 70000000 1"], 70000000, None, 60 * MIB),  # Linux before 5.19 keeps no peak of version 2
        (["0 - 70000000 1", "1 - 60000000 -"], 60000000, ABOVE, None),
        (["0 90 100 1", "0 95 100 1"], 100, None, 95),
    ],
)
def test_lowest_limit_counts(bounds: list[str], limit: int | None, group: str | None, peak: int | None) -> None:
    recording = looked_at()
    recording.charge(60, 10, 20, 30, 2, None, None, 1)
    for bound in bounds:
        recording.tell(f"bound %d {bound}")
    found = charged(recording.finish())
    assert (found.group, found.limit_bytes, found.limit_group, found.limit_peak_bytes, found.oom_kills) == (GROUP, limit, group, peak, 1)


def test_own_group_and_others_are_two_things() -> None:
    """A group that memprof made itself has no folder: nothing is said of a limit that memprof set."""
    recording = Recording()
    recording.group(9, 12, 0)
    assert charged(recording.run()).group is None


def test_container_that_ends_is_said() -> None:
    recording = looked_at()
    recording.spawn(101, 10, parent=0)
    recording.poll()
    recording.zombie(ROOT)
    recording.poll()
    recording.look("end", there=False)
    assert "the first process of the control group ended while it was polled" in recording.finish().warnings

    recording = looked_at()
    recording.charge(50, 10, 20, 30, 2, None, None, 1)
    recording.poll()
    recording.zombie(ROOT)
    recording.polled()
    recording.at(300).look("end", there=False)
    run = recording.finish()
    assert "the control group's last process ended while it was polled" in run.warnings
    assert mark(run, "RUN").time_ns == 300 * MS and mark(run, "RUN").working_set_peak_bytes == 40 * MIB
