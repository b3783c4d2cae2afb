"""A process and all that it starts: their memory together, each of them, and those that nobody saw."""

from __future__ import annotations

import pytest

from memprof.records import store
from memprof.records.recorder_order import CommandStart
from memprof.records.types import Run

from .written import MIB, PAGE, ROOT, Recording, bounds, mark, phases

UNSEEN = "processes that started and ended between two readings and are in no figure: at least"


def unseen(run: Run) -> int:
    """How many processes a Run says that nobody saw."""
    return sum(int(said.split()[-1]) for said in run.warnings if said.startswith(UNSEEN))


# -- pages that processes share


def test_forked_pages_count_once() -> None:
    recording = Recording(rss=100)
    for pid in range(101, 107):
        recording.fork(pid)
    recording.poll()
    run = recording.run()
    assert bounds(run, "RUN")[0] == 100
    assert (run.timeline.rss_max_bytes, run.timeline.rss_max_high_bytes) == (100 * MIB, 100 * MIB)
    assert len(run.processes) == 7


def test_own_memory_of_each_is_summed() -> None:
    recording = Recording(rss=(4, 2))
    for pid in range(101, 105):
        recording.fork(pid)
    recording.poll({ROOT: (18, 2), **dict.fromkeys(range(101, 105), (28, 2))})
    run = recording.run()
    assert run.timeline.rss_max_bytes == (18 + 4 * 28 - 4 * 4) * MIB
    assert not mark(run, "RUN").rss_peak_exact


def test_parent_that_grew_before_fork_shares() -> None:
    recording = Recording(rss=5)
    recording.processes[ROOT].size(100)
    for pid in (101, 102, 103):
        recording.fork(pid)
    recording.poll({ROOT: 100})
    assert recording.run().timeline.rss_max_bytes == 100 * MIB


def test_child_faults_may_be_copies() -> None:
    recording = Recording(rss=100)
    recording.fork(101, faults=30 * 256)
    recording.poll()
    assert bounds_of_all(recording) == (100, 130)


def test_parent_faults_may_be_copies() -> None:
    recording = Recording(rss=100)
    recording.processes[ROOT].faults = 30 * 256
    recording.fork(101)
    recording.poll()
    assert bounds_of_all(recording) == (100, 130)


def test_later_faults_may_be_copies() -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    recording.stat(101, faults=30 * 256)
    assert bounds_of_all(recording) == (100, 130)


def test_faults_that_grew_a_process_copied_nothing() -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    recording.quiet()
    recording.poll({101: 130})
    recording.stat(101, faults=30 * 256)
    assert bounds_of_all(recording) == (130, 130)


def test_growth_by_huge_pages_hides_no_copies() -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.huge(7)
    recording.poll()
    recording.quiet()
    recording.poll({101: 130})
    recording.huge(22)  # 15 faults, and 2,000 others
    recording.stat(101, faults=2015)
    low, high = bounds_of_all(recording)
    assert low == 130 and high == pytest.approx(130 + 2015 * PAGE / MIB)


def test_growth_before_a_reading_hides_no_copies() -> None:
    """The growth between a poll and the stat after it is seen at the next poll. Its faults are known by then."""
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    recording.stat(101, faults=30 * 256)
    recording.poll({101: 130})
    recording.stat(101, faults=60 * 256)
    assert bounds_of_all(recording)[1] == 190


def test_spurious_faults_lose_no_shared_page() -> None:
    """Faults may have copied pages, or not: by the end of the child no less may be shared than before."""
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    recording.stat(101, faults=60 * 256)
    recording.poll({ROOT: 110})
    recording.zombie(101)
    recording.poll()
    assert bounds_of_all(recording) == (110, 170)


def test_memory_given_back_may_be_shared() -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    recording.quiet()
    recording.poll({101: 140})
    recording.poll({101: 100})
    recording.poll({ROOT: 110})
    recording.zombie(101, faults=40 * 256)
    recording.poll()
    assert bounds_of_all(recording) == (140, 150)


def test_copies_count_for_quiet_polls() -> None:
    """Nothing is written of polls after a copy on write: no resident set has changed."""
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    recording.stat(101, faults=40 * 256)
    recording.begin("A")
    recording.quiet(5)
    recording.end("A")
    assert bounds(recording.run(), "A") == (100, 140)


def test_quiet_phase_after_shares_has_bounds() -> None:
    recording = Recording(rss=100)
    recording.fork(101, faults=40 * 256)
    recording.poll()
    recording.round({ROOT: share(100, 60), 101: share(100, 60)})
    recording.quiet(2)
    recording.begin("A")
    recording.quiet(2)
    recording.end("A")
    recording.quiet(2)
    assert bounds(recording.run(), "A") == (120, 120)


def test_end_of_a_child_keeps_its_parents_pages() -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.fork(102)
    recording.poll()
    recording.zombie(101)
    recording.poll()
    recording.zombie(102)
    recording.poll()
    run = recording.run()
    assert run.timeline.rss_min_bytes == run.timeline.rss_max_bytes == 100 * MIB


def test_child_faults_of_a_parent_tell_of_an_end() -> None:
    recording = Recording(rss=100)
    recording.stat()
    recording.fork(101)
    recording.poll()
    recording.stat(ROOT, child_faults=30 * 256)
    recording.gone(101)
    recording.poll()
    assert bounds_of_all(recording) == (100, 130)


def test_end_of_which_nothing_is_known_may_have_copied_all() -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    recording.gone(101)
    recording.poll()
    assert bounds_of_all(recording) == (100, 200)


def test_number_that_comes_again_is_another_process() -> None:
    """What wait4 told of the first process with this number tells nothing of the second."""
    recording = Recording(rss=100)
    recording.spawn(101, 1, parent=0)
    recording.poll()
    recording.zombie(101)
    recording.ended(101, faults=0)
    recording.fork(101)
    recording.poll()
    recording.gone(101)
    recording.poll()
    assert bounds_of_all(recording) == (101, 200)


def test_orphan_may_share_with_anybody() -> None:
    recording = Recording(rss=(100, 0))
    recording.orphan(102)
    recording.poll()
    assert bounds_of_all(recording) == (100, 200)


def test_exec_shares_nothing_of_its_parent() -> None:
    recording = Recording(rss=(100, 0))
    recording.spawn(101, (40, 0))
    recording.poll()
    assert bounds_of_all(recording) == (140, 140)


def test_exec_may_share_files() -> None:
    recording = Recording(rss=(100, 10))
    recording.spawn(101, (40, 30))
    recording.poll()
    assert bounds_of_all(recording) == (130, 140)


def test_vfork_child_counts_once() -> None:
    recording = Recording(rss=300)
    for pid in (101, 102, 103):
        recording.vfork(pid)
    recording.poll({ROOT: 310})
    run = recording.run()
    assert (run.timeline.rss_max_bytes, len(run.processes)) == (310 * MIB, 4)


def test_vfork_child_counts_after_exec() -> None:
    recording = Recording(rss=(300, 0))
    recording.vfork(101)
    recording.poll()
    recording.separate(101, (20, 0))
    recording.poll()
    assert bounds_of_all(recording) == (320, 320)


def test_vfork_child_outlives_its_parent() -> None:
    recording = Recording(rss=(5, 0))
    recording.spawn(101, (300, 0))
    recording.vfork(102, parent=101)
    recording.poll()
    recording.zombie(101)
    recording.separate(102, (300, 0))
    recording.poll()
    assert bounds_of_all(recording) == (305, 305)


def test_high_water_mark_between_polls_is_possible() -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    for hwm in (100, 150):
        recording.status(101, hwm=hwm)
    recording.poll({ROOT: 101})
    assert bounds_of_all(recording) == (101, 151)


def test_child_that_never_moved_missed_nothing() -> None:
    recording = Recording(rss=50)
    recording.fork(101)
    recording.poll()
    for hwm in (50, 50.01):
        recording.status(101, hwm=hwm)
    recording.poll()
    low, high = bounds_of_all(recording)
    assert (low, round(high, 1)) == (50, 50.0)


# -- shares and mappings


def share(rss: float, pss: float, private: float = 0, anon: float | None = None, anon_pss: float | None = None) -> dict[str, float]:
    """Shares of anonymous memory, unless anon and anon_pss say otherwise."""
    anon = rss if anon is None else anon
    return {"rss": rss, "pss": pss, "anon": anon, "anon_pss": pss if anon_pss is None else anon_pss, "private": private}


def test_shares_tell_the_overlap() -> None:
    recording = Recording(rss=(100, 100))
    recording.spawn(101, (100, 100))
    recording.poll()
    half = share(100, 50, anon=0, anon_pss=0)
    recording.round({ROOT: half, 101: half})
    recording.poll({ROOT: (101, 101)})
    run = recording.run()
    assert bounds_of(run) == (101, 101)
    assert [process.pss_peak_bytes for process in run.processes] == [50 * MIB, 50 * MIB]
    assert pss(run) == "pages they share counted once"


@pytest.mark.parametrize("what", ["came", "went", "copied", "missing"])
def test_round_amid_events_is_dropped(what: str) -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.spawn(102)
    recording.poll()
    recording.tell("round %d begin")
    recording.shares({ROOT: share(100, 50), 101: share(100, 50)})
    if what == "came":
        recording.spawn(103)
    elif what == "went":
        recording.zombie(102)
    elif what == "copied":
        recording.stat(101, faults=90 * 256)
    if what != "missing":
        recording.shares({102: share(1, 1)})
    recording.tell("round %d end")
    assert "before the kernel's PSS was read" in pss(recording.run())


def test_small_events_widen_a_round() -> None:
    recording = Recording(rss=100)
    recording.fork(101)
    recording.poll()
    recording.tell("round %d begin")
    recording.shares({ROOT: share(100, 60), 101: share(100, 60)})
    recording.stat(101, faults=64)
    recording.tell("round %d end")
    recording.poll({ROOT: 100.5})
    assert bounds_of_all(recording) == (120.25, 120.75)


def test_refused_shares_may_overlap_in_full() -> None:
    recording = Recording(rss=(100, 0))
    recording.spawn(101, (40, 40))
    recording.fork(102)
    recording.poll()
    recording.round({ROOT: share(100, 50), 101: None, 102: share(100, 50)})
    run = recording.run()
    assert "possibly in full in 1 whose PSS may not be read" in pss(run)
    assert bounds_of(run)[1] >= 140


def test_mappings_bound_where_no_share_was_read() -> None:
    recording = Recording(rss=(100, 100))
    for pid in (101, 102):
        recording.spawn(pid, (100, 100))
    recording.poll()
    file = [(1, 0, 120)]
    recording.maps(dict.fromkeys((ROOT, 101, 102), file))
    recording.poll()
    recording.maps({})
    assert bounds_of_all(recording) == (100, 120)


def test_mapping_between_two_readings_counts_as_both() -> None:
    """One process has a MiB of a file, and so has the other: of the same, then of another."""
    recording = Recording(rss=(1, 1))
    recording.spawn(101, (1, 1))
    recording.poll()
    recording.maps({ROOT: [(1, 0, 1)], 101: [(1, 0, 1)]})
    recording.poll()
    recording.maps({101: [(2, 0, 1)]})
    assert bounds_of_all(recording) == (1, 2)


def test_process_between_two_readings_spoils_both() -> None:
    recording = Recording(rss=(1, 1))
    recording.spawn(101, (1, 1))
    recording.poll()
    recording.maps({ROOT: [(1, 0, 1)], 101: [(1, 0, 1)]})
    recording.spawn(102, (1, 1))
    recording.poll()
    recording.maps({102: [(1, 0, 1)]})
    assert bounds_of_all(recording) == (1, 3)


# -- who is in it


def test_processes_are_named() -> None:
    recording = Recording(rss=2)
    recording.spawn(101, 3, name="sh")
    recording.command(101, "worker --fast a\\nb")
    recording.poll()
    recording.processes[101].name = "worker\\\\"
    recording.stat(101)
    recording.status(101, hwm=7)
    recording.poll()
    recording.zombie(101)
    recording.poll()
    run = recording.run()
    root, worker = run.processes
    assert (root.pid, root.name, root.parent, root.samples) == (ROOT, "program", None, 4)
    assert (worker.name, worker.command, worker.parent, worker.samples) == ("worker\\", "worker --fast a\nb", ROOT, 2)
    assert worker.rss_peak_bytes == 7 * MIB
    assert root.begin_ns < worker.begin_ns < worker.end_ns < root.end_ns


def test_one_process_is_no_table() -> None:
    assert Recording().run().processes == ()


def test_largest_of_many_processes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memprof.recording.tree._KEPT", 3)
    recording = Recording(rss=50)
    for pid in range(101, 130):
        recording.spawn(pid, pid - 100)
        recording.poll()
        recording.zombie(pid)
        recording.poll()
    assert [process.pid for process in recording.run().processes] == [ROOT, 128, 129]


def test_child_that_no_poll_saw_is_counted() -> None:
    recording = Recording()
    recording.stat()
    recording.poll()
    recording.stat(child_faults=50)
    recording.poll()
    recording.stat(child_faults=90)
    recording.poll()
    assert unseen(recording.run()) == 2


def test_child_that_was_seen_is_not_counted() -> None:
    recording = Recording()
    recording.stat()
    recording.spawn(101)
    recording.poll()
    recording.stat(child_faults=50)  # before the poll that finds it gone
    recording.gone(101)
    recording.poll()
    assert unseen(recording.run()) == 0


def test_children_that_are_waited_for_late_count_once_each() -> None:
    recording = Recording()
    recording.stat()
    for pid in (101, 102):
        recording.spawn(pid)
    recording.poll()
    for pid in (101, 102):
        recording.zombie(pid)
    recording.poll()
    recording.stat(child_faults=50)
    recording.poll()
    recording.stat(child_faults=90)
    recording.poll()
    assert unseen(recording.run()) == 0


def test_child_that_ended_while_it_was_found_counts_once() -> None:
    recording = Recording()
    recording.stat()
    recording.missed(101)
    recording.poll()
    recording.stat(child_faults=50)
    recording.poll()
    assert unseen(recording.run()) == 1


def test_child_that_was_found_dead_counts_once() -> None:
    recording = Recording()
    recording.stat()
    recording.spawn(101)
    recording.gone(101)
    recording.poll()
    recording.stat(child_faults=50)
    recording.poll()
    run = recording.run()
    assert (unseen(run), run.processes) == (1, ())


def test_orphan_that_nobody_saw_is_counted() -> None:
    recording = Recording()
    recording.ended(105)
    assert unseen(recording.run()) == 1


def test_orphan_that_was_seen_is_not_counted() -> None:
    recording = Recording()
    recording.orphan(105)
    recording.poll()
    recording.zombie(105)
    recording.ended(105)
    recording.poll()
    recording.missed(106)
    recording.ended(106)
    assert unseen(recording.run()) == 1


def test_process_that_cannot_be_followed_is_said() -> None:
    recording = Recording()
    recording.missed(101, "files")
    run = recording.run()
    assert run.warnings == ("processes that were not followed, because too many files are open here: 1",)


def test_own_side_says_nothing_of_what_it_started() -> None:
    recording = Recording(command=None)
    recording.ended(105)
    recording.startup()
    recording.mark("done")
    assert recording.run().warnings == ()


# -- which phase has whom


def test_phase_with_children_is_inexact_alone() -> None:
    recording = Recording()
    recording.startup()
    recording.phase("ALONE", peak=58)
    recording.begin("TOGETHER")
    recording.spawn(101, 32)
    recording.poll({ROOT: 40})
    recording.zombie(101)
    recording.poll()
    recording.end("TOGETHER", peak=40)
    recording.phase("AFTER", peak=40)
    run = recording.run()
    assert {found.phase: found.rss_peak_exact for found in run.marks} == {"STARTUP": True, "ALONE": True, "TOGETHER": False, "AFTER": True}
    assert bounds(run, "TOGETHER") == (72, 72)
    assert mark(run, "ALONE").rss_peak_high_bytes is None


def test_bounds_of_a_phase_are_its_own() -> None:
    recording = Recording(rss=40)
    recording.begin("FORKS")
    recording.fork(101)
    recording.poll()
    recording.zombie(101)
    recording.poll()
    recording.end("FORKS")
    recording.begin("OWN")
    recording.spawn(102, (60, 0))
    recording.poll()
    recording.zombie(102)
    recording.poll()
    recording.end("OWN")
    run = recording.run()
    assert (bounds(run, "FORKS"), bounds(run, "OWN")) == ((40, 40), (100, 100))


def test_phase_with_children_has_the_largest_bounds() -> None:
    recording = Recording(rss=10)
    recording.spawn(101, (30, 0))
    for size in (40, 20):
        recording.phase("A", sizes={ROOT: size})
    assert bounds(recording.run(), "A") == (70, 70)


def test_figures_beside_the_peak_are_of_one_process() -> None:
    recording = Recording()
    recording.begin("A")
    recording.spawn(101, 64)
    recording.poll()
    recording.end("A", peak=10, anon_end_bytes=MIB, hwm_bytes=10 * MIB)
    run = recording.run()
    assert "anonymous memory, VMS, HWM, PSS and all else but peaks are of program alone, without what it starts" in run.warnings
    assert mark(run, "A").hwm_bytes == 10 * MIB


def test_program_under_a_shell_has_the_phases() -> None:
    recording = Recording(rss=3)
    recording.spawn(101, 40, name="app")
    recording.poll()
    recording.startup(101, peak=41)
    recording.begin("A", 101)
    recording.spawn(102, (60, 0), parent=101)
    recording.poll()
    recording.end("A", 101, peak=50)
    run = recording.run()
    assert bounds(run, "A") == (100, 100)
    assert run.timeline.rss_max_bytes == 103 * MIB
    (said,) = run.warnings
    assert said.startswith(
        "up to 3 processes at once (program, app); peaks are of app and what it starts, the timeline is of their sum, pages they share"
    )


def test_shares_bound_a_part_of_the_tree() -> None:
    """The measured process and its child share 60 of 100 MiB with one another, and perhaps with the process that has started them."""
    recording = Recording(rss=(100, 0))
    recording.fork(101)
    recording.fork(102, parent=101)
    recording.poll()
    recording.begin("A", 101)
    recording.poll()
    recording.round({ROOT: share(100, 90), 101: share(100, 70), 102: share(100, 70)})
    recording.end("A", 101)
    low, high = bounds(recording.run(), "A")
    assert low <= 140 <= high <= 160


def test_debugger_is_no_part_of_the_tree() -> None:
    recording = Recording(CommandStart(alone=True), rss=90)
    recording.spawn(101, 5)
    recording.poll()
    recording.mark("program", 101)
    recording.poll({ROOT: 95, 101: 6})
    recording.phase("A", 101, sizes={101: 7}, peak=7)
    run = recording.run()
    assert (run.timeline.rss_max_bytes, run.processes, phases(run)) == (7 * MIB, (), ["A"])
    assert len(store.unpack(run.timeline).t_ns) == run.timeline.samples == 2


def bounds_of(run: Run) -> tuple[float, float]:
    """The bounds of the whole tree's peak in MiB."""
    high = run.timeline.rss_max_high_bytes
    return run.timeline.rss_max_bytes / MIB, (run.timeline.rss_max_bytes if high is None else high) / MIB


def bounds_of_all(recording: Recording) -> tuple[float, float]:
    """The bounds of the whole tree's peak in MiB, if it ends now."""
    for pid in reversed(list(recording.processes)):
        recording.stat(pid, state="Z", stack=0)
    return bounds_of(recording.finish())


def pss(run: Run) -> str:
    """What a Run says of shares."""
    (said,) = (said for said in run.warnings if "processes at once" in said)
    return said.partition("of their sum, ")[2]


def test_processes_gone_before_peak_are_not_said() -> None:
    """A shell that ends before the program grows changes no figure."""
    recording = Recording(rss=(3, 0))
    recording.spawn(101, (4, 0))
    recording.poll()
    recording.zombie(101)
    recording.poll({ROOT: (100, 0)})
    assert recording.run().warnings == ()
