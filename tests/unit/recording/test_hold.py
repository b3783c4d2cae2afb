"""What memprof is told to do while a run goes on: a process stands still, or is to be stopped."""

from __future__ import annotations

from memprof.recording.fold import Notice
from memprof.records.recorder_order import CommandStart, Hold

from .written import MIB, MS, ROOT, Recording, phases

HOLD = Hold(300 * 10**9, {"LOAD": 60 * MIB})


def test_process_stands_still_after_each_phase() -> None:
    recording = Recording(command=None, hold=HOLD)
    for phase in ("STARTUP", "LOAD", "EXECUTE"):
        recording.phase(phase, peak=10)
        recording.tell("stopped %d 100 itself")
        recording.tell("continued %d 100")
    assert recording.notices() == [Notice("held", phase, ROOT) for phase in ("STARTUP", "LOAD", "EXECUTE")]


def test_repeated_phase_is_held_by_its_name() -> None:
    recording = Recording(command=None, hold=HOLD)
    for phase in ("WARMUP", "EXECUTE", "WARMUP"):
        recording.phase(phase, peak=10)
        recording.tell("stopped %d 100 itself")
    assert [notice.text for notice in recording.notices()] == ["WARMUP", "EXECUTE", "WARMUP"]


def test_transient_is_held_inside_its_phase() -> None:
    recording = Recording(command=None, hold=HOLD)
    recording.begin("LOAD")
    recording.poll({ROOT: 61})
    recording.tell("stopped %d 100 size")
    assert recording.notices() == [Notice("held", "LOAD/peak", ROOT)]


def test_process_is_stopped_after_units() -> None:
    recording = Recording(hold=Hold(10**9, units={"EXECUTE": (10, 25)}), env={"MEMPROF_WORK": "1"})
    recording.begin("EXECUTE")
    for done in (0, 5, 12, 20, 26, 40):
        recording.mark("work", phase="EXECUTE", units=["iteration"], rows=[done * MS, 1, 1, 0, done])
        if done in (12, 26):
            recording.tell("stopped %d 100 told")
    stop, held = (lambda text: Notice("stop", text, ROOT)), (lambda text: Notice("held", text, ROOT))
    assert recording.notices() == [stop("EXECUTE/12"), held("EXECUTE/12"), stop("EXECUTE/26"), held("EXECUTE/26")]


def test_process_that_does_not_stop_yet_is_not_told_again() -> None:
    recording = Recording(hold=Hold(10**9, units={"EXECUTE": (10, 11)}), env={"MEMPROF_WORK": "1"})
    recording.begin("EXECUTE")
    for done in (10, 11, 12):
        recording.mark("work", phase="EXECUTE", units=["iteration"], rows=[done * MS, 1, 1, 0, done])
    assert [notice.text for notice in recording.notices()] == ["EXECUTE/10"]


def test_lines_are_units_too() -> None:
    command = CommandStart((("request", "^served"),))
    recording = Recording(command, hold=Hold(10**9, units={"RUN": (2,)}), env={"MEMPROF_WORK": "1"})
    for number in range(3):
        recording.output(f"served {number}\n")
    assert recording.notices() == [Notice("stop", "RUN/2", ROOT)]


def test_hold_at_its_limit_is_said() -> None:
    recording = Recording(command=None, hold=HOLD)
    recording.phase("LOAD", peak=10)
    recording.tell("stopped %d 100 itself")
    recording.tell("fault %d held 100")
    recording.tell("continued %d 100")
    recording.mark("done")
    run = recording.run()
    assert run.outcome.ok and phases(run) == ["LOAD"]
    assert run.warnings == ("LOAD: it was held for 300 s, its limit, and let go",)


def test_process_that_cannot_stop_is_said() -> None:
    recording = Recording(command=None, hold=HOLD)
    for phase in ("A", "B", "A"):
        recording.phase(phase, peak=10)
    recording.tell("fault %d free 100")
    recording.mark("done")
    assert recording.run().warnings == ("A: it could not be held, for it did not stop",)


def test_process_that_cannot_be_stopped_is_said() -> None:
    recording = Recording(hold=Hold(10**9, units={"EXECUTE": (10, 11)}), env={"MEMPROF_WORK": "1"})
    recording.begin("EXECUTE")
    recording.mark("work", phase="EXECUTE", units=["iteration"], rows=[1, 1, 1, 0, 10])
    recording.tell("fault %d free 100")
    recording.mark("work", phase="EXECUTE", units=["iteration"], rows=[1, 1, 1, 0, 11])
    assert [notice.text for notice in recording.notices()] == ["EXECUTE/10", "EXECUTE/11"]
    recording.end("EXECUTE", peak=10)
    assert recording.run().warnings == ("EXECUTE/10: it could not be held, for it did not stop",)


def test_killed_while_it_is_held_is_a_result() -> None:
    recording = Recording(command=None, hold=HOLD)
    recording.phase("PREPARE", peak=10)
    recording.tell("stopped %d 100 itself")
    run = recording.run(signal=9)
    assert (run.outcome.status, run.outcome.signal, run.outcome.phase) == ("signal", "SIGKILL", "after PREPARE")
