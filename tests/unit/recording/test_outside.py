"""Memory outside of all phases: a row and a sentence where that is more than in any phase."""

from __future__ import annotations

from memprof.base.counter_bounds import peak_bound

from .written import MIB, MS, ROOT, Recording, bounds, mark, phases

OUTSIDE = "between phases"
BOUND = peak_bound("6.18", 4096, 2, 2) / MIB


def test_memory_between_phases_is_a_row() -> None:
    recording = Recording()
    recording.phase("LOAD", peak=18)
    end_ms = recording.now_ms
    recording.poll({ROOT: 130})
    recording.poll({ROOT: 12})
    recording.at(end_ms + 500).phase("EXECUTE", peak=20)
    run = recording.run()
    assert phases(run) == ["LOAD", OUTSIDE, "EXECUTE"]
    found = mark(run, OUTSIDE)
    assert (found.rss_peak_bytes, found.rss_peak_exact, found.time_ns) == (130 * MIB, False, 500 * MS)
    words = "for 0.50 s outside of all phases, memory reached 130.0 MiB, above the 20.0 MiB of the highest phase"
    assert run.warnings == (f"between LOAD and EXECUTE, {words}",)


def test_high_water_mark_makes_a_gap_exact() -> None:
    recording = Recording()
    recording.phase("LOAD", hwm_phase_bytes=18 * MIB, hwm_reset=True)
    recording.phase("EXECUTE", hwm_begin_bytes=131 * MIB, hwm_phase_bytes=20 * MIB, hwm_reset=True)
    run = recording.run()
    assert bounds(run, OUTSIDE) == (131, 131)
    assert mark(run, OUTSIDE).rss_peak_exact


def test_mark_that_did_not_rise_tells_nothing() -> None:
    recording = Recording()
    recording.phase("LOAD", hwm_phase_bytes=131 * MIB, hwm_begin_bytes=131 * MIB)
    recording.phase("EXECUTE", hwm_begin_bytes=131 * MIB, hwm_phase_bytes=131 * MIB)
    assert phases(recording.run()) == ["LOAD", "EXECUTE"]


def test_memory_after_the_last_phase_is_a_row() -> None:
    recording = Recording()
    recording.phase("A", peak=18)
    recording.poll()
    run = recording.run(largest=130)
    assert phases(run) == ["A", OUTSIDE]
    assert (bounds(run, OUTSIDE), mark(run, OUTSIDE).rss_peak_exact) == ((130, 130), True)
    assert run.warnings[0].startswith("after A, for ")


def test_peak_of_life_may_be_of_a_phase() -> None:
    recording = Recording()
    recording.phase("A", peak=130)
    assert phases(recording.run(largest=130)) == ["A"]


def test_peak_of_life_may_be_of_an_earlier_gap() -> None:
    recording = Recording()
    recording.phase("A", peak=18)
    recording.phase("B", hwm_begin_bytes=130 * MIB, hwm_phase_bytes=18 * MIB, hwm_reset=True)
    run = recording.run(largest=130)
    assert phases(run) == ["A", OUTSIDE, "B"]


def test_peak_of_life_with_others_tells_nothing() -> None:
    recording = Recording()
    recording.phase("A", peak=18)
    recording.spawn(101)
    recording.poll()
    recording.zombie(101)
    assert phases(recording.run(largest=130)) == ["A"]


def test_quiet_time_between_phases_is_no_row() -> None:
    recording = Recording()
    recording.phase("A", sizes={ROOT: 64}, peak=64)
    recording.poll({ROOT: 64 + BOUND})
    recording.phase("B", sizes={ROOT: 64}, peak=64)
    run = recording.run()
    assert (phases(run), run.warnings) == (["A", "B"], ())


def test_highest_gap_is_the_row() -> None:
    recording = Recording()
    for phase, size in (("A", 40), ("B", 70), ("C", 50)):
        recording.phase(phase, peak=10)
        recording.poll({ROOT: size})
        recording.poll({ROOT: 10})
    run = recording.run()
    assert phases(run) == ["A", "B", OUTSIDE, "C"]
    assert bounds(run, OUTSIDE) == (70, 70)


def test_gap_inside_a_phase_is_none() -> None:
    recording = Recording()
    recording.begin("OUTER")
    recording.phase("INNER", peak=10)
    recording.poll({ROOT: 90})
    recording.end("OUTER", peak=90)
    assert phases(recording.run()) == ["INNER", "OUTER"]


def test_time_before_the_first_phase_is_no_gap() -> None:
    recording = Recording()
    recording.poll({ROOT: 90})
    recording.poll({ROOT: 10})
    recording.phase("A", peak=10)
    assert phases(recording.run()) == ["A"]


def test_gap_with_children_has_bounds() -> None:
    recording = Recording(rss=(50, 0))
    recording.phase("A", peak=50)
    recording.fork(101, faults=20 * 256)
    recording.poll({ROOT: 100})
    recording.zombie(101, faults=20 * 256)
    recording.poll({ROOT: 50})
    recording.phase("B", peak=50)
    run = recording.run()
    assert bounds(run, OUTSIDE) == (100, 120)
    assert not mark(run, OUTSIDE).rss_peak_exact


def test_swap_outside_of_phases_is_told() -> None:
    recording = Recording()
    recording.phase("A", peak=10)
    recording.poll({ROOT: 50})
    recording.status(swap=20)
    recording.poll({ROOT: 10})
    recording.phase("B", peak=10)
    assert mark(recording.run(), OUTSIDE).swap_peak_bytes == 20 * MIB


def test_failed_program_has_its_gap_too() -> None:
    recording = Recording()
    recording.phase("A", peak=10)
    recording.poll({ROOT: 50})
    run = recording.run(code=3)
    assert phases(run) == ["A", OUTSIDE]
