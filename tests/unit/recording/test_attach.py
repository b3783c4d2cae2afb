"""A process that runs already, looked at for a while."""

from __future__ import annotations

from memprof.records import work
from memprof.records.recorder_order import CommandStart

from .written import MIB, MS, ROOT, Recording, bounds, mark, phases


def attached(command: CommandStart | None = None, *, rss: float = 20, hwm: float = 64) -> Recording:
    """A process of this size, whose mark was higher before."""
    recording = Recording(command, rss=None, attach=ROOT)
    recording.spawn(ROOT, (rss, 2), parent=0)
    recording.tell(f"start %d {ROOT}")
    recording.look("begin", rss=rss, hwm=hwm, reset=False)
    return recording


def test_window_has_its_own_peak() -> None:
    recording = attached()
    recording.poll()
    recording.poll({ROOT: 23})
    recording.poll({ROOT: 21})
    recording.at(400).look("end", rss=21, hwm=64, swap=3, reset=False)
    run = recording.finish()
    assert run.outcome.ok and run.warnings == ()
    found = mark(run, "RUN")
    assert (found.rss_begin_bytes, found.rss_end_bytes, found.swap_end_bytes) == (20 * MIB, 21 * MIB, 3 * MIB)
    assert (found.rss_peak_bytes, found.rss_peak_exact, found.hwm_bytes) == (23 * MIB, False, 64 * MIB)
    assert (found.time_ns, found.samples, run.timeline.samples) == (400 * MS, 3, 3)
    assert found.vms_peak_bytes == 63 * MIB


def test_mark_that_rises_is_exact() -> None:
    recording = attached()
    recording.poll()
    recording.look("end", rss=21, hwm=90, reset=False)
    run = recording.finish()
    assert (bounds(run, "RUN"), mark(run, "RUN").rss_peak_exact) == ((90, 90), True)


def test_children_make_it_a_sum() -> None:
    recording = attached()
    recording.fork(101, faults=256)
    recording.poll()
    recording.look("end", rss=20, hwm=90, reset=False)
    run = recording.finish()
    assert (bounds(run, "RUN"), mark(run, "RUN").rss_peak_exact) == ((20, 23), False)
    assert [process.pid for process in run.processes] == [ROOT, 101]
    assert run.warnings[0].startswith("up to 2 processes at once (program); peaks and the timeline are of their sum")


def test_process_that_ends_meanwhile_is_said() -> None:
    recording = attached()
    recording.poll({ROOT: 30})
    recording.zombie(ROOT)
    recording.polled()
    recording.look("end", there=False)
    run = recording.finish()
    assert run.outcome.ok
    assert bounds(run, "RUN") == (30, 30)
    assert run.warnings == ("the process ended while it was polled",)


def test_process_that_ends_at_once_has_its_first_size() -> None:
    recording = attached()
    recording.gone(ROOT)
    recording.polled()
    recording.look("end", there=False)
    assert bounds(recording.finish(), "RUN") == (20, 20)


def test_lines_of_its_log_are_units() -> None:
    recording = attached(CommandStart((("request", "served"),), log="/log"))
    for number in range(3):
        recording.poll({ROOT: 20 + number})
        recording.output("served\n")
        recording.look(rss=20, reset=False)
    recording.look("end", rss=22, hwm=64, reset=False)
    run = recording.finish()
    assert phases(run) == ["RUN"]
    (curve,) = map(work.unpack, run.work)
    assert list(curve.counts["request"]) == [1, 2, 3]
    assert list(curve.rss) == [20 * MIB, 21 * MIB, 22 * MIB]
    assert run.warnings == ()  # lines end units, and no phase


def test_child_that_no_poll_saw_is_said() -> None:
    recording = attached()
    recording.stat()
    recording.poll()
    recording.stat(child_faults=50)
    recording.poll()
    recording.look("end", rss=20, hwm=64, reset=False)
    assert recording.finish().warnings == ("processes that started and ended between two readings and are in no figure: at least 1",)


def test_children_of_before_are_no_unseen_ones() -> None:
    recording = Recording(None, rss=None, attach=ROOT)
    recording.spawn(ROOT, 20, parent=0).child_faults = 5000
    recording.tell(f"start %d {ROOT}")
    recording.look("begin", rss=20, hwm=64, reset=False)
    recording.stat()
    recording.poll()
    recording.look("end", rss=20, hwm=64, reset=False)
    assert len(recording.finish().warnings) <= 1


def test_swapped_pages_are_told() -> None:
    recording = attached()
    recording.poll()
    recording.status(rss=20, swap=30)
    recording.at(100).look("end", rss=20, hwm=64, reset=False)
    found = mark(recording.finish(), "RUN")
    assert (found.swap_peak_bytes, found.rss_swap_peak_bytes) == (30 * MIB, 50 * MIB)
