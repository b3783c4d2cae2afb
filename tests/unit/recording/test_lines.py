"""Phases that end where a line is printed, or where memprof says so as it asks the program for work."""

from __future__ import annotations

import json

import pytest

from memprof.records.recorder_order import CommandStart
from memprof.records.types import Run

from .written import BEGIN_NS, MIB, MS, ROOT, Recording, bounds, mark, ns, phases

APPROXIMATE = "phases end where a line arrived: their times and peaks are approximate"


def lines(*regexes: tuple[str, str]) -> Recording:
    return Recording(CommandStart(regexes or (("LOAD", "^loaded"), ("PREPARE", "ready$"), ("EPOCH", r"^epoch \d"))))


def test_lines_end_phases_as_they_arrive() -> None:
    recording = lines()
    recording.at(50).output("loaded\n")
    recording.look(rss=20, hwm=64)
    recording.at(60).output("noise\nit is ready\n")
    recording.look(rss=25, hwm=30)
    for number in range(3):
        recording.at(70 + 10 * number).output(f"epoch {number}\n")
        recording.look(rss=25, hwm=40 + number)
    run = recording.run()
    assert phases(run) == ["LOAD", "PREPARE", "EPOCH"]
    assert [bounds(run, phase) for phase in phases(run)] == [(64, 64), (30, 30), (42, 42)]
    assert [found.rss_peak_exact for found in run.marks] == [False] * 3
    load, prepare, epoch = run.marks
    assert (load.begin_ns, load.end_ns, prepare.end_ns, epoch.end_ns) == (BEGIN_NS, ns(50), ns(60), ns(90))
    assert epoch.times_ns == (10 * MS,) * 3
    assert run.warnings == (APPROXIMATE,)


def test_polls_count_within_their_phase() -> None:
    recording = lines()
    recording.poll({ROOT: 90})
    recording.poll({ROOT: 20})
    recording.output("loaded\n")
    recording.look(rss=20, hwm=20)
    recording.poll({ROOT: 50})
    recording.output("ready\n")
    recording.look(rss=20, hwm=20)
    run = recording.run()
    assert (bounds(run, "LOAD"), bounds(run, "PREPARE")) == ((90, 90), (50, 50))
    assert (mark(run, "LOAD").samples, mark(run, "PREPARE").samples) == (3, 1)


@pytest.mark.parametrize(("reset", "hwm", "peak"), [(True, 30, 30), (False, 64, 25), (False, 70, 70)])
def test_mark_counts_if_it_was_reset_or_rose(reset: bool, hwm: float, peak: float) -> None:
    recording = lines()
    recording.output("loaded\n")
    recording.look(rss=20, hwm=64, reset=reset)
    recording.output("ready\n")
    recording.look(rss=25, hwm=hwm)
    assert bounds(recording.run(), "PREPARE") == (peak, peak)


def test_look_tells_figures_since_the_last() -> None:
    recording = lines()
    recording.processes[ROOT].faults, recording.processes[ROOT].major, recording.processes[ROOT].ticks = 100, 3, 7
    recording.output("loaded\n")
    recording.look(rss=20, hwm=20, read=5000)
    recording.processes[ROOT].faults, recording.processes[ROOT].major, recording.processes[ROOT].ticks = 130, 4, 9
    recording.output("ready\n")
    recording.look(rss=25, hwm=25, swap=3, read=5300)
    load, prepare = recording.run().marks
    assert (load.minor_faults, load.major_faults, load.cpu_ns, load.read_bytes) == (100, 3, 70 * MS, 5000)
    assert (prepare.minor_faults, prepare.major_faults, prepare.cpu_ns, prepare.read_bytes) == (30, 1, 20 * MS, 300)
    assert (prepare.rss_begin_bytes, prepare.rss_end_bytes, prepare.swap_end_bytes) == (20 * MIB, 25 * MIB, 3 * MIB)
    assert prepare.hwm_bytes is None


@pytest.mark.parametrize(
    ("shares", "rss", "anon", "file"),
    [
        (None, 100, 90, 10),
        ({"rss": 100.004, "pss": 1, "anon": 5, "private": 1}, 100, 90, 10),  # a page
        ({"rss": 103, "pss": 1, "anon": 92, "private": 1}, 103, 92, 11),  # the counters behind status were late
    ],
)
def test_shares_tell_where_status_lags(shares: dict[str, float] | None, rss: float, anon: float, file: float) -> None:
    recording = lines()
    recording.poll({ROOT: (100, 10)})
    recording.output("loaded\n")
    recording.look(rss=100, hwm=100, shares=shares)
    found = recording.run().marks[0]
    assert (found.rss_end_bytes, found.anon_end_bytes, found.file_end_bytes) == (rss * MIB, anon * MIB, file * MIB)


def test_lines_come_in_pieces() -> None:
    recording = lines()
    recording.output("loa")
    recording.output("ded\r\nit is re")
    recording.look(rss=10, hwm=10)
    recording.output("ady")
    assert phases(recording.run()) == ["LOAD", "PREPARE"]


def test_long_line_is_searched_in_pieces() -> None:
    recording = lines()
    recording.output("x" * 5000)
    recording.output("loaded\n")
    assert phases(recording.run()) == ["LOAD"]


def test_lines_at_once_end_their_phases() -> None:
    recording = lines()
    recording.at(30).output("loaded\nready\n")
    recording.look(rss=20, hwm=64)
    run = recording.run()
    assert phases(run) == ["LOAD", "PREPARE"]
    assert (bounds(run, "LOAD"), mark(run, "PREPARE").time_ns) == ((64, 64), 0)


def test_line_without_a_look_ends_its_phase() -> None:
    recording = lines()
    recording.at(30).output("loaded\n")
    recording.output("ready\n")
    recording.look(rss=20, hwm=20)
    run = recording.run()
    assert phases(run) == ["LOAD", "PREPARE"]
    assert mark(run, "LOAD").rss_end_bytes is None


def test_line_may_come_with_the_end() -> None:
    recording = lines()
    recording.output("loaded")
    recording.look(rss=20, hwm=20)
    recording.zombie(ROOT)
    recording.ended()
    recording.output(" now")
    recording.look(there=False)
    run = recording.run()
    assert phases(run) == ["LOAD"]


def test_first_pattern_that_fits_counts() -> None:
    recording = lines(("A", "x"), ("B", "xy"))
    recording.output("xy\n")
    assert phases(recording.run()) == ["A"]


def test_line_that_never_came_fails() -> None:
    recording = lines(("A", "hello"), ("B", "nothing like it"), ("C", "nor this"))
    recording.output("hello\n")
    run = recording.run(output=b"hello\r\n")
    assert phases(run) == ["A"]
    assert (run.outcome.word, run.outcome.phase) == ("lost", "B")
    missed = "no line that it printed matches"
    assert run.outcome.sentence == f"{missed} 'nothing like it', the end of B; {missed} 'nor this', the end of C"
    assert run.output_tail == "hello\r\n"


def test_without_any_line_the_run_is_a_phase() -> None:
    recording = lines(("B", "nothing like it"))
    run = recording.run()
    assert phases(run) == ["RUN"]
    assert run.outcome.word == "lost" and APPROXIMATE not in run.warnings


def test_failure_is_in_the_phase_that_ran() -> None:
    recording = lines()
    assert recording.folded().phase == "LOAD"
    recording.output("loaded\nbad tensor\n")
    recording.look(rss=20, hwm=20)
    assert recording.folded().phase == "PREPARE"
    run = recording.run(code=4, output=b"loaded\nbad tensor\n\n")
    assert run.outcome.sentence == "ended with exit code 4 in PREPARE (bad tensor)"
    assert phases(run) == ["LOAD"]


def test_marks_win_over_lines() -> None:
    recording = lines()
    recording.output("loaded\n")
    recording.phase("A", peak=10)
    recording.output("ready\n")
    run = recording.run()
    assert run.outcome.ok
    assert phases(run) == ["A"]
    assert run.warnings == ("its phases came by marks or by functions: its output was not searched for them",)


def test_marks_win_over_lines_of_a_tree() -> None:
    recording = lines()
    recording.fork(101)
    recording.poll()
    recording.output("loaded\n")
    recording.look(rss=10, hwm=10)
    recording.phase("A", peak=10)
    assert phases(recording.run()) == ["A"]


def test_tree_has_bounds_by_lines() -> None:
    recording = lines(("A", "first"), ("B", "second"))
    recording.output("first\n")
    recording.look(rss=10, hwm=10)
    recording.fork(101, faults=2 * 256)
    recording.poll()
    recording.output("second\n")
    recording.look(rss=10, hwm=10)
    recording.stat(101, state="Z", stack=0)
    run = recording.run()
    assert bounds(run, "B") == (10, 12)


# -- a program that memprof asks for work


def ended(recording: Recording, phase: str, hwm: float = 64, **fields: object) -> None:
    told = {"word": "ended", "phase": phase, "times_ns": [], "units": {}, "first_token_ns": [], "remark": "", **fields}
    recording.look(json.dumps(told), rss=20, hwm=hwm)


def driven() -> Recording:
    return Recording(CommandStart(driven=True))


def asked(recording: Recording) -> Run:
    ended(recording, "MODEL_LOAD")
    assert recording.folded().phase == "WARMUP"
    ended(recording, "WARMUP", 30, times_ns=[5], units={"token": 4})
    assert recording.folded().phase == "REQUEST"
    recording.poll({ROOT: 28})
    ended(recording, "REQUEST", 40, times_ns=[1, 2], units={"token": 8}, first_token_ns=[1, 1], remark="odd")
    recording.look('{"word": "stop"}')
    return recording.run(signal=15)


def test_driven_program_has_exact_phases() -> None:
    recording = driven()
    assert recording.folded().phase == "MODEL_LOAD"
    run = asked(recording)
    assert run.outcome.ok, run.outcome.sentence
    assert [(found.phase, found.rss_peak_bytes, found.rss_peak_exact) for found in run.marks] == [
        ("MODEL_LOAD", 64 * MIB, True),
        ("WARMUP", 30 * MIB, True),
        ("REQUEST", 40 * MIB, True),
    ]
    request = run.marks[-1]
    assert (request.times_ns, request.units, request.first_token_ns) == ((1, 2), {"token": 8}, (1, 1))
    assert run.marks[0].units == {}
    assert run.warnings == ("odd",)


def test_word_is_answered() -> None:
    recording = driven()
    ended(recording, "MODEL_LOAD")
    assert [notice[:2] for notice in recording.notices()] == [("ended", "MODEL_LOAD")]


def test_mark_that_was_not_reset_is_inexact() -> None:
    recording = driven()
    recording.look(
        json.dumps({"word": "ended", "phase": "MODEL_LOAD", "times_ns": [], "units": {}, "first_token_ns": [], "remark": ""}),
        rss=20,
        hwm=64,
        reset=False,
    )
    ended(recording, "REQUEST", 64)
    recording.look('{"word": "stop"}')
    run = recording.run(signal=15)
    assert [(found.rss_peak_bytes, found.rss_peak_exact) for found in run.marks] == [(64 * MIB, True), (20 * MIB, False)]


def test_program_that_does_something_else_fails() -> None:
    recording = driven()
    ended(recording, "MODEL_LOAD")
    recording.look('{"word": "failed", "phase": "REQUEST", "message": "request 2 was refused"}')
    run = recording.run(signal=15)
    assert (run.outcome.status, run.outcome.sentence) == ("error", "in REQUEST: request 2 was refused")


def test_program_that_dies_is_no_answer() -> None:
    recording = driven()
    ended(recording, "MODEL_LOAD")
    ended(recording, "WARMUP")
    run = recording.run(signal=9)
    assert run.outcome.sentence.startswith("ended by SIGKILL in REQUEST")


def test_program_that_leaves_is_an_error() -> None:
    recording = driven()
    ended(recording, "MODEL_LOAD")
    run = recording.run()
    assert run.outcome.sentence == "in WARMUP: it ended before all requests were made"


def test_time_limit_of_a_driven_program() -> None:
    recording = driven()
    recording.tell("limit %d killed")
    run = recording.run(signal=9)
    assert run.outcome.sentence == "did not end in time (timeout 60 s) in MODEL_LOAD, its RSS last 10.0 MiB"
