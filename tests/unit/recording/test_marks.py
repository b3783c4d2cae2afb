"""Whose marks count, and what becomes of marks that come twice, not at all, or are none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprof.records import store
from memprof.records.recorder_order import CommandStart

from .written import BEGIN_NS, MIB, RECORDER, ROOT, Recording, bounds, mark, phases

LEFT_OUT = "line(s) on the marks' descriptor were not understood and left out"

# -- in the wrong order


def test_phase_begun_twice_is_said() -> None:
    recording = Recording()
    recording.begin("A")
    recording.end("A", peak=26)
    recording.mark("stray", what="begin", phase="A")
    recording.phase("A", peak=20)
    run = recording.run()
    assert run.warnings == ("A had not ended when the next phase began: it ends there",)
    assert len(mark(run, "A").times_ns) == 2


def test_phase_begun_inside_itself_counts_from_there() -> None:
    recording = Recording()
    recording.begin("A")
    recording.at(20).phase("A", peak=20)
    run = recording.run()
    assert run.warnings == ("A was begun again before it had ended: it is counted from there",)
    assert mark(run, "A").times_ns == ()


def test_end_without_a_begin_is_said() -> None:
    recording = Recording()
    recording.mark("stray", what="end", phase="")
    recording.phase("A", peak=20)
    recording.mark("stray", what="end", phase="A")
    run = recording.run()
    assert run.warnings == ("a phase was ended where none had begun", "a phase was ended where none had begun (after A)")
    assert phases(run) == ["A"]


def test_many_strays_are_said_in_short() -> None:
    recording = Recording()
    for number in range(9):
        recording.mark("stray", what="begin", phase=f"P{number}")
    recording.mark("stray", what="begin", phase="P0")
    run = recording.run()
    assert len(run.warnings) == 6
    assert run.warnings[-1] == "4 more marks came in the wrong order"


@pytest.mark.parametrize("name", ["PEAK", "Run", "STARTUP", "baseline", "between phases", "between_Phases"])
def test_names_of_own_figures_are_left_out(name: str) -> None:
    recording = Recording()
    recording.startup()
    recording.phase("A", peak=12)
    recording.begin(name)
    recording.mark("times", phase=name, times_ns=[1, 2])
    recording.end(name, peak=90)
    recording.phase("B", peak=12)
    run = recording.run()
    assert phases(run) == ["STARTUP", "A", "B"]
    assert [found.times_ns for found in run.marks] == [()] * 3
    left_out = "is a name of memprof's own figures: the phase that the program calls so is left out"
    assert run.warnings == (f"{name.replace(' ', '_')} {left_out}",)


def test_first_phase_called_startup_is_left_out() -> None:
    recording = Recording()
    recording.startup()
    recording.phase("startup", peak=12)
    recording.phase("Execute", peak=12)
    run = recording.run()
    assert phases(run) == ["STARTUP", "Execute"]
    assert len(run.warnings) == 1


@pytest.mark.parametrize("name", ["peak.2", "rerun", "running", "between"])
def test_similar_names_are_phases(name: str) -> None:
    recording = Recording()
    recording.phase(name, peak=10)
    assert phases(recording.run()) == [name]


def test_names_have_no_spaces() -> None:
    recording = Recording()
    recording.phase("a\nb  c" + "x" * 300, peak=10)
    (name,) = phases(recording.run())
    assert name.startswith("a_b_cx") and len(name) == 200


def test_descriptor_closed_by_a_living_program_is_said() -> None:
    recording = Recording()
    recording.phase("A", peak=10)
    recording.closed(alive=True)
    recording.poll({ROOT: 64})
    run = recording.run()
    assert phases(run) == ["A", "between phases"]
    assert "the program closed the descriptor of its marks: its later work is in no phase" in run.warnings


@pytest.mark.parametrize(("alive", "begun"), [(False, True), (True, False)])
def test_descriptor_closed_at_the_end_is_usual(alive: bool, begun: bool) -> None:
    recording = Recording()
    if begun:
        recording.phase("A", peak=10)
    recording.closed(alive)
    recording.closed(alive=True)
    assert recording.run().warnings == ()


# -- several processes


def test_marks_of_a_second_process_are_said() -> None:
    recording = Recording()
    recording.begin("A")
    recording.spawn(101, 20, name="helper")
    recording.poll()
    recording.phase("CHILDS", 101, peak=90)
    recording.phase("CHILDS", 102, peak=90)
    recording.end("A", peak=10)
    run = recording.run()
    assert phases(run) == ["A"]
    others = "only those of the first count, not those of helper (101), a process (102)"
    assert f"marks came from more than one process; {others}" in run.warnings


def test_one_program_after_another_has_phases() -> None:
    recording = Recording(rss=2)
    for pid, phase, size in ((101, "A", 8), (102, "B", 24)):
        recording.spawn(pid, size)
        recording.poll()
        recording.startup(pid, peak=size)
        recording.phase(phase, pid, peak=size + 1)
        recording.zombie(pid)
        recording.poll()
    run = recording.run()
    assert phases(run) == ["STARTUP", "A", "B"]
    assert (bounds(run, "A"), bounds(run, "B")) == ((9, 9), (25, 25))
    assert all(found.rss_peak_exact for found in run.marks)


def test_phase_in_two_processes_is_said() -> None:
    recording = Recording(rss=2)
    for pid, size in ((101, 40), (102, 20)):
        recording.spawn(pid, size, name="app")
        recording.poll()
        recording.phase("A", pid, peak=size, anon_end_bytes=size * MIB)
        recording.zombie(pid)
        recording.poll()
    run = recording.run()
    how = "each time is an iteration, the peak is the largest, all else is of the last"
    assert f"A: in 2 processes one after another; {how}" in run.warnings
    found = mark(run, "A")
    assert (found.rss_peak_bytes, found.anon_end_bytes, len(found.times_ns)) == (40 * MIB, 20 * MIB, 2)
    assert not [said for said in run.warnings if "alone" in said]  # each phase was of one process, and so are all its figures


def test_programs_that_ended_unseen_have_phases() -> None:
    """Their marks are read once they have ended: nobody can say who was above them."""
    recording = Recording(rss=2)
    for pid, phase in ((101, "A"), (102, "B")):
        recording.lineage(pid)
        recording.phase(phase, pid, peak=9)
    run = recording.run()
    assert phases(run) == ["A", "B"]
    assert bounds(run, "B") == (9, 9) and mark(run, "B").rss_peak_exact


@pytest.mark.parametrize("above", [(50, RECORDER), (ROOT,), (60, ROOT)])
def test_process_below_the_recorder_belongs_to_it(above: tuple[int, ...]) -> None:
    recording = Recording()
    recording.lineage(101, *above)
    recording.phase("A", 101, peak=9)
    assert phases(recording.run()) == ["A"]


@pytest.mark.parametrize(("pid", "above"), [(101, (55, 1, 0)), (1, (0,))])
def test_process_beside_the_recorder_is_not_believed(pid: int, above: tuple[int, ...]) -> None:
    recording = Recording()
    recording.lineage(pid, *above)
    recording.mark("begin", pid, phase="STARTUP", t_ns=0)
    recording.mark("value", pid, name="x", value=1, t_ns=0)
    recording.phase("A", peak=10)
    run = recording.run()
    assert phases(run) == ["A"]
    assert run.values == ()
    assert run.warnings == (f"2 {LEFT_OUT}",)


def test_only_a_begin_takes_over() -> None:
    recording = Recording()
    recording.spawn(101)
    recording.poll()
    recording.mark("done", 101)
    recording.end("A", 101, peak=9)
    run = recording.run()
    assert phases(run) == ["RUN"]


def test_figures_of_any_process_are_values() -> None:
    recording = Recording()
    recording.begin("A")
    recording.mark("value", 555, name="x", value=1, t_ns=0)
    recording.end("A", peak=10)
    run = recording.run()
    assert [(value.name, value.phase) for value in run.values] == [("x", "A")]


def test_debugger_names_its_program() -> None:
    recording = Recording(CommandStart(alone=True), rss=90)
    recording.spawn(101, 5)
    recording.poll()
    recording.mark("program", 101)
    recording.phase("A", 101, peak=7)
    recording.spawn(102, 5)
    recording.phase("B", 102, peak=7)
    assert phases(recording.run()) == ["A"]


def test_wrapper_of_own_side_is_not_measured() -> None:
    recording = Recording(command=None, rss=90)
    recording.lineage(101, ROOT)
    recording.spawn(101, 40, parent=0)
    recording.startup(101, peak=41)
    recording.phase("PREPARE", 101, sizes={101: 48}, peak=50)
    recording.mark("done", 101)
    run = recording.run()
    assert run.outcome.ok and run.warnings == ()
    assert (bounds(run, "PREPARE"), run.timeline.rss_max_bytes) == ((50, 50), 48 * MIB)


# -- lines that are none

LINES = {
    "text": "hello",
    "nothing": "",
    "bytes": b"\xff\x00\xfe",
    "torn": '{"mark":"end","pid":100,"phase":"MODEL_L',
    "a list": "[1, 2]",
    "a number": "7",
    "deep": "[" * 30_000,
    "no kind": '{"pid":100}',
    "a list of kinds": '{"mark":[],"pid":100}',
    "unknown kind": '{"mark":"bark","pid":100}',
    "an attribute": '{"mark":"_init__","pid":100}',
    "no process": '{"mark":"done","pid":"x"}',
    "negative process": '{"mark":"done","pid":-1}',
    "no name": '{"mark":"begin","pid":100,"phase":" ","t_ns":0}',
    "infinite": '{"mark":"end","pid":100,"phase":"X","begin_ns":0,"end_ns":Infinity}',
    "gigantic": '{"mark":"end","pid":100,"phase":"X","begin_ns":0,"end_ns":1' + "0" * 100 + "}",
    "backwards": '{"mark":"end","pid":100,"phase":"X","begin_ns":5,"end_ns":4}',
    "negative": '{"mark":"end","pid":100,"phase":"X","begin_ns":5,"end_ns":6,"rss_end_bytes":-1}',
    "times": '{"mark":"times","pid":100,"phase":"X","times_ns":7}',
    "units": '{"mark":"end","pid":100,"phase":"X","begin_ns":5,"end_ns":6,"units":["a"]}',
    "many units": '{"mark":"end","pid":100,"phase":"X","begin_ns":5,"end_ns":6,"units":%s}' % json.dumps(dict.fromkeys("abcdefghi", 1)),  # noqa: UP031
    "a foreign error": '{"mark":"error","pid":100,"phase":"X","kind":"grave","message":"m"}',
    "about nothing": '{"mark":"about","pid":100}',
    "stray nothing": '{"mark":"stray","pid":100,"phase":"X"}',
    "no words": '{"mark":"say","pid":100,"text":7}',
    "no figures": '{"mark":"anchor","pid":100,"phase":"X","iteration":1}',
    "no value": '{"mark":"value","pid":100,"name":"x","t_ns":0,"value":"1"}',
}


@pytest.mark.parametrize("kind", LINES)
def test_foreign_line_is_left_out(kind: str) -> None:
    recording = Recording()
    recording.begin("A")
    recording.line(LINES[kind])
    recording.end("A", peak=10)
    run = recording.run()
    assert run.outcome.ok and phases(run) == ["A"]
    assert run.warnings == (f"1 {LEFT_OUT}",)


def test_foreign_lines_are_counted_together() -> None:
    recording = Recording()
    for line in LINES.values():
        recording.line(line)
    recording.tell("fault %d mark 1")  # a line that was too long to be written
    assert recording.run().warnings == (f"{len(LINES) + 1} {LEFT_OUT}",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["A", "STARTUP", [0, 1, 2, 3, 4]]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
KINDS = ["begin", "end", "times", "about", "error", "done", "value", "work", "anchor", "stray", "say", "program"]
NAMES = [
    "phase",
    "t_ns",
    "begin_ns",
    "end_ns",
    "times_ns",
    "units",
    "rows",
    "kind",
    "message",
    "name",
    "value",
    "notes",
    "packages",
    "what",
    "text",
    "iteration",
    "seen",
    "rss",
    "swap",
]
NAMES += ["hwm_phase_bytes", "hwm_reset", "rss_end_bytes", "minor_faults", "runtime_version", "python_version", "heap_used", "heap_free"]
FIELDS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["A", 5, 1 << 61, [5]]) | JSON)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([ROOT, 101]), FIELDS), max_size=12))
def test_any_marks_make_a_run(marks: list[tuple[str, int, dict[str, object]]]) -> None:
    """A program may write anything there: its Run can be written and read again, and nothing is raised."""
    recording = Recording(env={"MEMPROF_WORK": "1"})
    recording.phase("A", peak=5)
    for kind, pid, fields in marks:
        recording.line(json.dumps({**fields, "mark": kind, "pid": pid}))
        recording.poll()
    run = recording.run()
    assert store.decode(store.encode(run).rstrip(b"\n"), "its line") == run
    store.unpack(run.timeline)


# -- what else a program says


def test_program_tells_its_versions() -> None:
    recording = Recording()
    packages = {"numpy": "1.26"}
    recording.mark("about", runtime_version="\ud800", python_version="3.11", notes=["\udfff"], packages=packages)
    about = recording.run().about
    assert about is not None
    assert (about.runtime_version, about.python_version, about.notes, about.packages) == ("\\ud800", "3.11", ("\\udfff",), packages)


def test_program_says_sentences() -> None:
    recording = Recording()
    recording.mark("say", text="a\n b " + "c" * 2000)
    recording.mark("done")
    recording.mark("done")
    notices = recording.notices()
    assert [notice.kind for notice in notices] == ["say", "done"]
    assert notices[0].text == ("a b " + "c" * 2000)[:1000]


def test_open_phase_is_known_while_it_runs() -> None:
    recording = Recording(rss=12)
    recording.begin("A")
    fold = recording.folded()
    assert (fold.phase, fold.rss, fold.started, fold.over) == ("A", 12 * MIB, True, False)
    assert recording.so_far().outcome.phase == "A"


def test_marks_of_a_time_before_the_program_are_taken() -> None:
    recording = Recording()
    recording.mark("end", phase="A", begin_ns=0, end_ns=BEGIN_NS, hwm_phase_bytes=10 * MIB, hwm_reset=True)
    assert phases(recording.run()) == ["A"]
