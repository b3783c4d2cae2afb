"""Memory after each unit of work: as the program writes it, and as its lines tell."""

from __future__ import annotations

from itertools import pairwise

from memprof.records import work
from memprof.records.recorder_order import CommandStart
from memprof.records.types import Run

from .written import MIB, MS, ROOT, Recording, mark

FOLLOWED: dict[str, str | None] = {"MEMPROF_WORK": "1"}
LEFT_OUT = "1 line(s) on the marks' descriptor were not understood and left out"


def curve(run: Run, phase: str = "EXECUTE") -> work.Curve:
    (record,) = (record for record in run.work if record.phase == phase)
    return work.unpack(record)


def rows(recording: Recording, first: int, last: int, tokens: int = 1, phase: str = "EXECUTE") -> None:
    """Write a row for each iteration: its time, its resident set, of files, swapped, how many iterations and tokens."""
    numbers = [number for done in range(first, last + 1) for number in (done * MS, done * 4096, 5, 0, done, done * tokens)]
    recording.mark("work", phase=phase, units=["iteration", "token"], rows=numbers)


def test_rows_become_a_curve() -> None:
    recording = Recording(env=FOLLOWED)
    recording.begin("EXECUTE")
    rows(recording, 0, 40, tokens=7)
    rows(recording, 41, 100, tokens=7)
    recording.end("EXECUTE", peak=10, units={"token": 700})
    run = recording.run()
    seen = curve(run)
    assert {unit: list(done) for unit, done in seen.counts.items()} == {
        "iteration": list(range(101)),
        "token": [7 * done for done in range(101)],
    }
    assert list(seen.rss) == [4096 * done for done in range(101)]
    assert (seen.t_ns[-1], seen.file[-1], seen.swap[-1], seen.looks) == (100 * MS, 5, 0, None)
    assert mark(run, "EXECUTE").units == {"token": 700}


def test_units_that_come_later_were_zero() -> None:
    recording = Recording(env=FOLLOWED)
    recording.begin("EXECUTE")
    recording.mark("work", phase="EXECUTE", units=["iteration"], rows=[1, 1, 1, 0, 0, 2, 1, 1, 0, 1])
    recording.mark("work", phase="EXECUTE", units=["request", "iteration"], rows=[3, 1, 1, 0, 6, 2])
    recording.end("EXECUTE", peak=10)
    seen = curve(recording.run())
    assert {unit: list(done) for unit, done in seen.counts.items()} == {"iteration": [0, 1, 2], "request": [0, 0, 6]}


def test_repeated_phase_goes_on_counting() -> None:
    recording = Recording(env=FOLLOWED)
    for _ in range(3):
        recording.begin("EXECUTE")
        rows(recording, 0, 10, tokens=2)
        recording.mark("anchor", phase="EXECUTE", iteration=10, seen=1, rss=2, swap=3)
        recording.end("EXECUTE", peak=10, units={"token": 20})
    run = recording.run()
    seen = curve(run)
    assert (seen.counts["iteration"][-1], seen.counts["token"][-1]) == (30, 60)
    assert list(seen.counts["iteration"]) == sorted(seen.counts["iteration"])
    assert seen.looks is not None and list(seen.looks.iteration) == [10, 20, 30]
    assert mark(run, "EXECUTE").units == {"token": 60}


def test_anchors_have_the_heap_if_all_do() -> None:
    for heap in ({"heap_used": 5, "heap_free": 6}, {}):
        recording = Recording(env=FOLLOWED)
        recording.begin("EXECUTE")
        rows(recording, 0, 2)
        recording.mark("anchor", phase="EXECUTE", iteration=0, seen=1, rss=2, swap=3, heap_used=7, heap_free=8)
        recording.mark("anchor", phase="EXECUTE", iteration=2, seen=4, rss=5, swap=6, **heap)
        recording.end("EXECUTE", peak=10)
        looks = curve(recording.run()).looks
        assert looks is not None
        assert (list(looks.iteration), list(looks.seen), list(looks.rss), list(looks.swap)) == ([0, 2], [1, 4], [2, 5], [3, 6])
        assert list(looks.heap_used) == ([7, 5] if heap else [])


def test_long_phase_keeps_its_shape_in_few_rows() -> None:
    recording = Recording(env=FOLLOWED)
    recording.begin("EXECUTE")
    for first in range(0, 40_000, 1000):
        rows(recording, first, first + 999)
    recording.end("EXECUTE", peak=10)
    done = curve(recording.run()).counts["iteration"]
    assert done[-1] == 39_999
    assert 1 << 14 <= len(done) <= 1 << 15
    assert max(later - earlier for earlier, later in pairwise(done)) == 2


def test_one_row_is_no_curve() -> None:
    recording = Recording(env=FOLLOWED)
    recording.begin("EXECUTE")
    rows(recording, 0, 0)
    recording.end("EXECUTE", peak=10)
    assert recording.run().work == ()


def test_lines_that_are_not_whole_are_left_out() -> None:
    for units, numbers in (
        (["iteration"], [1, 2, 3]),
        (["iteration", "iteration"], [1, 2, 3, 4, 5, 6]),
        ([], [1, 2, 3, 4]),
        (["iteration"], [1, 2, 3, 4, -5]),
        (list("abcdefghi"), []),
        (["iteration"], [1, 2, 3, 4, 5] * 2000),
        (["iteration"], [1, 2, 3, 4, 1 << 62]),
    ):
        recording = Recording(env=FOLLOWED)
        recording.begin("EXECUTE")
        recording.mark("work", phase="EXECUTE", units=units, rows=numbers)
        rows(recording, 0, 1)
        recording.end("EXECUTE", peak=10)
        run = recording.run()
        assert run.warnings == (LEFT_OUT,)
        assert list(curve(run).counts["iteration"]) == [0, 1]


def test_counts_that_are_too_large_are_left_out() -> None:
    recording = Recording(env=FOLLOWED)
    for _ in range(3):
        recording.begin("EXECUTE")
        for done in (0, (1 << 62) - 1):
            recording.mark("work", phase="EXECUTE", units=["iteration"], rows=[1, 2, 3, 4, done])
            recording.mark("anchor", phase="EXECUTE", iteration=done, seen=1, rss=2, swap=3)
        recording.end("EXECUTE", peak=10)
    run = recording.run()
    assert len(curve(run).t_ns) == 4
    assert run.warnings == (f"4 {LEFT_OUT[2:]}",)


def test_phases_with_units_are_bounded() -> None:
    recording = Recording(env=FOLLOWED)
    for number in range(17):
        rows(recording, 0, 1, phase=f"P{number}")
    run = recording.run()
    assert (len(run.work), run.warnings) == (16, (LEFT_OUT,))


def test_what_came_before_a_kill_is_kept() -> None:
    recording = Recording(env=FOLLOWED)
    recording.begin("EXECUTE")
    rows(recording, 0, 300)
    run = recording.run(signal=9)
    assert run.outcome.signal == "SIGKILL"
    assert curve(run).counts["iteration"][-1] == 300


# -- units that are lines


def served() -> Recording:
    return Recording(CommandStart((("request", "^served"), ("hit", "^cached"))), env=FOLLOWED)


def test_printed_lines_are_units() -> None:
    recording = served()
    for number in range(200):
        recording.poll({ROOT: 10 + number})
        recording.output(f"served {number}\n" if number % 4 else f"cached {number}\n")
        recording.look(rss=10 + number)
    run = recording.run()
    assert run.outcome.ok, run.outcome.sentence
    seen = curve(run, "RUN")
    assert {unit: done[-1] for unit, done in seen.counts.items()} == {"hit": 50, "request": 150}
    assert list(seen.rss) == [(10 + number) * MIB for number in range(200)]
    assert list(seen.t_ns) == sorted(seen.t_ns)


def test_lines_without_a_look_are_units() -> None:
    """There is a look a millisecond at most; the last lines may have none."""
    recording = served()
    for number in range(3):
        recording.poll({ROOT: 10 + number})
        recording.output(f"served {number}\ncached\n")
    seen = curve(recording.run(), "RUN")
    assert {unit: list(done) for unit, done in seen.counts.items()} == {"request": [1, 2, 3], "hit": [1, 2, 3]}


def test_units_by_lines_are_bounded() -> None:
    recording = Recording(CommandStart(tuple((f"u{number}", f"^{number}$") for number in range(9))), env=FOLLOWED)
    for _ in range(2):
        for number in range(9):
            recording.output(f"{number}\n")
    assert list(curve(recording.run(), "RUN").counts) == [f"u{number}" for number in range(8)]


def test_memory_that_a_program_frees_as_it_ends_is_no_unit() -> None:
    """Its last lines may be read when it has freed what it had."""
    recording = served()
    for rss in (10, 12, 11, 13):
        recording.poll({ROOT: rss})
        recording.output("served\n")
    recording.status(swap=2)
    recording.poll({ROOT: 4})
    recording.output("served\nserved\n")
    run = recording.run()
    seen = curve(run, "RUN")
    assert list(seen.counts["request"]) == [1, 2, 3, 4, 6]
    assert list(seen.rss) == [size * MIB for size in (10, 12, 11, 13, 13)]
    assert list(seen.swap) == [0] * 5


def test_peak_lasts_to_the_last_unit() -> None:
    recording = served()
    for rss in (10, 60, 20):
        recording.poll({ROOT: rss})
        recording.output("served\nserved\n")
        recording.look(rss=rss, hwm=rss)
    run = recording.run()
    (request,) = (found for found in run.marks if found.phase == "request")
    assert (request.rss_peak_bytes, request.rss_end_bytes, len(request.times_ns)) == (60 * MIB, 20 * MIB, 3)


def test_swapped_pages_are_in_a_row() -> None:
    recording = served()
    recording.status(swap=30)
    for _ in range(2):
        recording.output("served\n")
    assert list(curve(recording.run(), "RUN").swap) == [30 * MIB] * 2
