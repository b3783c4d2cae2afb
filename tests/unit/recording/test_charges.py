"""Control groups: the run's own, and one that is looked at with its limit and those above it."""

from __future__ import annotations

import pytest

from memprof.records.types import Charged, Mark, Run

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
    assert (found.charged_slab_peak_bytes, found.charged_kernel_stacks_peak_bytes) == (1.5 * MIB, None)
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


KERNEL_PARTS = ("kernel", "kernel_stacks", "slab", "page_tables", "sockets", "percpu")


def kernel_mib(record: Mark | Charged, prefix: str = "") -> list[float | None]:
    """Its peaks of the kernel's memory, of stacks, slab, page tables, sockets and data by CPU, in MiB."""
    sizes = [getattr(record, f"{prefix}{name}_peak_bytes") for name in KERNEL_PARTS]
    return [None if size is None else size / MIB for size in sizes]


@pytest.mark.parametrize(
    "readings, sizes",
    [
        # Version 2: page tables, slab and the rest are in `kernel`, sockets are not. The most of each, at whatever time.
        ([(None, 10, 1, 4, 2, 3, 0.5), (None, 9, 0.5, 5, 1, 6, 0.25)], [10, 1, 5, 2, 6, 0.5]),
        ([(None, None, 1, 4, 2, 3, 0.5)], [7.5, 1, 4, 2, 3, 0.5]),  # before Linux 5.18 `kernel` is the sum of what is in it
        ([(None, None, 1, 4, 2, 3, None)], [7, 1, 4, 2, 3, None]),
        ([(None, None, None, 4, 2, 3, 0.5)], [None, None, 4, 2, 3, 0.5]),  # a part is missing: no sum
        # Version 1 has a peak, and what it is of is not known.
        ([(12, 10, None, None, None, 0, None), (11, 9, None, None, None, 2, None)], [12, None, None, None, 2, None]),
        ([(None, 10, None, None, None, None, None)], [10, None, None, None, None, None]),
        ([(None,) * 7], [None] * 6),  # a kernel that tells of none
        ([(None, 0, 0, 0, 0, 0, 0)], [0] * 6),  # one that tells of nothing (cgroup.memory=nokmem)
    ],
)
def test_kernel_memory_of_own_group(readings: list[tuple[float | None, ...]], sizes: list[float | None]) -> None:
    recording = Recording()
    for reading in readings:
        recording.kernel(*reading, peak=30)
    found = charged(recording.run())
    assert kernel_mib(found) == sizes
    assert found.peak_bytes == 30 * MIB


def test_recording_before_kernel_memory_was_read() -> None:
    recording = Recording()
    recording.group(9, 12, 0)
    recording.phase("A", peak=5)
    run = recording.run()
    assert kernel_mib(charged(run)) == kernel_mib(mark(run, "A"), "charged_") == [None] * 6
    assert (charged(run).peak_bytes, charged(run).with_swap_peak_bytes) == (9 * MIB, 12 * MIB)


def test_kernel_memory_of_each_phase() -> None:
    """What is there where a phase begins is its own too; what was there between phases, and in others, is not."""
    recording = Recording()
    recording.kernel(None, 30, 0, 20, 1, 0, 0, reset="-")
    recording.kernel(None, 5, 0, 1, 1, 0, 0)
    recording.begin("A")
    recording.kernel(None, 8, 1, 4, 2, 3, 0, reset="-")  # between the marks
    recording.kernel(None, 6, 0, 2, 3, 0, 0)
    recording.end("A")
    recording.kernel(None, 6, 0, 2, 3, 0, 0)
    recording.begin("B")
    recording.kernel(None, 2, 0, 1, 1, 0, 0)
    recording.end("B")
    run = recording.run()
    assert kernel_mib(mark(run, "A"), "charged_") == [8, 1, 4, 3, 3, 0]
    assert kernel_mib(mark(run, "B"), "charged_") == [6, 0, 2, 3, 0, 0]
    assert kernel_mib(charged(run)) == [30, 1, 20, 3, 3, 0]


@pytest.mark.parametrize(("reset", "peaks"), [("1", [9, 7]), ("0", [6, 5])])
def test_kernel_peak_where_it_begins_again(reset: str, peaks: list[float]) -> None:
    """Version 1: a peak that cannot be reset is of no phase, and what was read is."""
    recording = Recording()
    recording.kernel(20, 5, None, None, None, 0, None, reset=reset)
    for phase, peak, now in (("A", 9, 6), ("B", 7, 5)):
        recording.begin(phase)
        recording.kernel(peak, now, None, None, None, 0, None, reset=reset)
        recording.end(phase)
        recording.kernel(now, 4, None, None, None, 0, None, reset=reset)
    run = recording.run()
    assert [(mark(run, phase).charged_kernel_peak_bytes or 0) / MIB for phase in "AB"] == peaks
    assert charged(run).kernel_peak_bytes == 20 * MIB


def test_phase_around_others_has_their_charges() -> None:
    """The peaks begin again at each mark, and so at those of a phase within another."""
    recording = Recording()
    for phase, peak, kernel in (("A", 5, 1), ("B", 20, 2)):
        recording.kernel(kernel, kernel, 0, 0, 0, 0, 0, peak=peak)
        recording.begin(phase)
    recording.kernel(9, 3, 0, 0, 0, 0, 0, peak=80)
    recording.end("B")
    recording.kernel(4, 3, 0, 0, 0, 0, 0, peak=40)
    recording.end("A")
    run = recording.run()
    figures = {phase: (mark(run, phase).charged_peak_bytes, mark(run, phase).charged_kernel_peak_bytes) for phase in "AB"}
    assert figures == {"A": (80 * MIB, 9 * MIB), "B": (80 * MIB, 9 * MIB)}


def test_repeats_of_a_phase_have_the_most_charges() -> None:
    recording = Recording()
    for kernel in (7, 3):
        recording.kernel(None, 1, 0, 0, 0, 0, 0)
        recording.begin("A")
        recording.kernel(None, kernel, 0, 0, 0, 0, 0)
        recording.end("A")
    assert mark(recording.run(), "A").charged_kernel_peak_bytes == 7 * MIB


def test_readings_between_marks_are_of_no_mark() -> None:
    """They change neither what a phase was charged at most nor its refaults."""
    recording = Recording()
    recording.tell(f"group %d {5 * MIB} - 100 0 1 - - - - - - -")
    recording.begin("A")
    recording.tell(f"group %d {60 * MIB} - 120 0 - - - - - - - -")
    recording.tell(f"group %d {80 * MIB} - 130 2 1 - - - - - - -")
    recording.end("A")
    recording.tell(f"group %d {90 * MIB} - 150 3 - - - - - - - -")
    run = recording.run()
    assert (mark(run, "A").charged_peak_bytes, mark(run, "A").refaults) == (80 * MIB, 30)
    assert (charged(run).peak_bytes, charged(run).oom_kills) == (90 * MIB, 3)


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
