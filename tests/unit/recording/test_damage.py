"""Recordings that were cut off make a Run that says so; what is no recording, or a damaged one, is refused with the number of its line."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from memprof.base.errors import InputError
from memprof.recording.fold import Fold, fold
from memprof.records import store, work
from memprof.records.recorder_order import CommandStart, Hold
from memprof.records.types import Run

from .written import ROOT, Recording, bounds, phases


def rich() -> Recording:
    """A recording with every kind of line."""
    recording = Recording(
        CommandStart((("LOAD", "loaded"),)), rss=(30, 10), env={"MEMPROF_WORK": "1"}, hold=Hold(9, units={"EXECUTE": (1,)})
    )
    recording.lines.insert(3, b"kills 1 5 -\n")
    recording.tell("layout %d 0")
    recording.stat()
    recording.status(swap=5)
    recording.output("loaded\n")
    recording.look(rss=30, hwm=40, shares={"rss": 30, "pss": 30, "anon": 20, "private": 30}, read=7)
    recording.startup(peak=30)
    recording.group(9, 10, 5)
    recording.kernel(3, 2, None, 1, None, 0, None, reset="-")
    recording.begin("EXECUTE")
    recording.fork(101)
    recording.vfork(102)
    recording.huge(1)
    recording.poll({ROOT: (40, 10)})
    recording.command(101, "a worker")
    recording.separate(102, (5, 5))
    recording.stat(101, faults=900)
    recording.round(
        {ROOT: {"rss": 40, "pss": 25, "anon": 30, "private": 10}, 101: {"rss": 30, "pss": 20, "anon": 20, "private": 5}, 102: None}
    )
    recording.maps({pid: [(1, 0, 12)] for pid in (ROOT, 101, 102)})
    recording.poll({101: (31, 10)})
    recording.maps({})
    recording.missed(103)
    recording.lineage(104, 1)
    recording.mark("work", phase="EXECUTE", units=["iteration"], rows=[1, 2, 3, 4, 0, 2, 3, 4, 5, 1])
    recording.mark("anchor", phase="EXECUTE", iteration=1, seen=1, rss=2, swap=3)
    recording.tell("stopped %d 100 told")
    recording.tell("continued %d 100")
    recording.mark("times", phase="EXECUTE", times_ns=[5])
    recording.mark("about", runtime_version="1", python_version="3", notes=[])
    recording.mark("value", name="x", value=1.5, t_ns=7)
    recording.quiet(3)
    recording.end("EXECUTE", peak=50, anon_end_bytes=7, units={"token": 5})
    recording.zombie(101)
    recording.poll({102: 30})
    recording.zombie(102)
    recording.closed(alive=False)
    recording.tell("limit %d asked")
    recording.tell("fault %d behind 3")
    recording.zombie(ROOT)
    recording.ended(signal=9, largest=60)
    recording.tell("kills %d 6 -")
    recording.tell("kernel %d 100")
    recording.tell("left %d 105 it")
    recording.tell("refused %d 105 it")
    recording.tail(b"loaded\n")
    recording.tell("periods 5 " + " ".join(["7"] * 101))
    recording.tell("end %d")
    return recording


def driven() -> Recording:
    recording = Recording(CommandStart(driven=True))
    word = {"word": "ended", "phase": "MODEL_LOAD", "times_ns": [1], "units": {"token": 4}, "first_token_ns": [1], "remark": "odd"}
    recording.look(json.dumps(word), rss=20, hwm=30)
    recording.look('{"word": "failed", "phase": "A", "message": "m"}')
    recording.run()
    return recording


def attached() -> Recording:
    recording = Recording(None, rss=None, attach=ROOT, watch=["/groups/a", "/groups"])
    recording.spawn(ROOT, 20, parent=0)
    recording.tell(f"start %d {ROOT}")
    recording.look("begin", rss=20, hwm=20)
    recording.poll()
    recording.charge(30, 5, 20, 8, None, 1, 1, 1)
    recording.tell("bound %d 0 31457280 41943040 2")
    recording.tell("bound %d 1 - max -")
    recording.look("end", rss=20, hwm=30)
    recording.finish()
    return recording


def refused() -> Recording:
    recording = Recording(rss=None)
    recording.tell("error %d exec 8 7f454c4602010100000000000000000002003e00 app")
    recording.finish()
    return recording


WHOLE = [b"".join(make().lines) for make in (rich, driven, attached, refused)]


def checked(run: Run) -> Run:
    """The Run, which a file can hold and readers can read."""
    assert store.decode(store.encode(run).rstrip(b"\n"), "its line") == run
    store.unpack(run.timeline)
    for curve in run.work:
        work.unpack(curve)
    return run


@pytest.mark.parametrize("whole", WHOLE, ids=["rich", "driven", "attached", "refused"])
def test_recording_cut_off_at_any_line_makes_a_run(whole: bytes) -> None:
    lines = whole.splitlines(keepends=True)
    for count in range(2, len(lines)):
        run = checked(fold(lines[:count]))
        assert run.outcome.status == "lost"
    assert checked(fold(lines)).outcome.status != "lost"


@given(st.sampled_from(WHOLE), st.data())
@examples(60)
def test_recording_cut_off_at_any_byte_makes_a_run(whole: bytes, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(whole) - 1))
    rest = whole[:size]
    if rest.count(b"\n") < 2:
        with pytest.raises(InputError, match=r"^by hand: there is no recording$"):
            fold(rest.splitlines(keepends=True), "by hand")
    else:
        assert checked(fold(rest.splitlines(keepends=True))).outcome.status == "lost"


def test_cut_off_recording_has_what_came() -> None:
    recording = Recording(rss=(20, 0))
    recording.phase("A", peak=30)
    recording.begin("B")
    recording.spawn(101, (50, 0))
    recording.poll()
    run = recording.so_far()
    assert (phases(run), bounds(run, "A")) == (["A"], (30, 30))
    assert (run.outcome.status, run.outcome.phase) == ("lost", "B")
    assert run.outcome.sentence == "it was ended, with memprof, while it ran"
    assert run.timeline.rss_max_bytes == 70 << 20


@pytest.mark.parametrize("whole", WHOLE[1:], ids=["driven", "attached", "refused"])
def test_run_so_far_changes_nothing(whole: bytes) -> None:
    made = Fold()
    for line in whole.splitlines():
        made.take(line)
        if made.started:
            checked(made.run())
    assert made.run() == fold(whole.splitlines(keepends=True))


def test_run_so_far_keeps_bounds_that_hold() -> None:
    """Samples up to there then have the bounds that are known by then."""
    recording = Recording(rss=100)
    recording.begin("A")
    recording.fork(101, faults=40 * 256)
    recording.poll()
    made = recording.folded()
    assert made.run().timeline.rss_max_high_bytes == 140 << 20
    recording.end("A")
    recording.zombie(101, faults=40 * 256)
    recording.poll()
    recording.run()
    for line in recording.lines[-8:]:
        made.take(line[:-1])
    assert bounds(made.run(), "A") == bounds(recording.so_far(), "A") == (100, 140)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "by hand: there is no recording"),
        ([b"hello\n"], "by hand, line 1: a recording begins with the lines recording and order"),
        ([b"\n"], "by hand, line 1: a recording begins"),
        ([b"recording 1 4096 100 c\n"], "by hand: there is no recording"),
        ([b"recording 1 4096 100 c\n", b"begin 1 2 3 4\n"], "by hand, line 2: a recording begins"),
        ([b"recording 2 4096 100 c\n"], "by hand, line 1: the recording has version 2; this memprof reads version 1"),
        ([b"recording one\n"], "by hand, line 1: "),
        ([b"recording 1 4096 100 c\n", b"order 5 {}\n"], "by hand, line 2: Object missing required field"),
        ([b"recording 1 4096 100 c\n", b"order 5 \xff\n"], "by hand, line 2: "),
    ],
)
def test_foreign_file_is_refused(lines: list[bytes], said: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(said)):
        fold(lines, "by hand")


@pytest.mark.parametrize(
    "line",
    [
        b"start",
        b"start x y",
        b"process 1 2",
        b"process 1 2 3 4 0 1 2",
        b". 1 2 3",
        b". 1 2 3 4 5 x 1 1",
        b"stat 1 100 S",
        b"maps 1 100 1:2",
        b"ended 1 100",
        b"look 1 2 3 0 - - - - {no JSON",
        b'look 1 2 3 0 - - - - {"word":"ended","phase":"A","times_ns":7,"units":{},"first_token_ns":[],"remark":""}',
        b'look 1 2 3 0 - - - - {"a":["word"]}',
        b"error 1 exec x - app",
        b"error 1 exec 1 zz app",
        b"tail 1",
        b"status 1 2 100 7",
        b"shares 1 2 100 7",
        b"kills 1",
        b"group 1 2",
        b"group 1 2 3 4 5 1 x",
        b"group 1 2 3 4 5 1 6 - - - - y",
        b"separate 1 2",
        b"start " + b"9" * 5000,
    ],
)
def test_damaged_line_is_refused_with_its_number(line: bytes) -> None:
    recording = Recording()
    recording.lines.append(line + b"\n")
    recording.poll()
    with pytest.raises(InputError, match=f"^by hand, line {recording.lines.index(line + bytes([10])) + 1}: "):
        recording.so_far()


def test_unknown_lines_are_left_out() -> None:
    recording = Recording()
    recording.tell("weather %d sunny")
    recording.lines.append(b"\n")
    assert recording.run().outcome.ok


WRONG = [b"", b"-", b"-5", b"0", b"1", b"x", b"1e9", b"\xff", b"99", b"100", b"101", b"4294967296", b"9" * 18, b"9" * 19, b"9" * 40]


@given(st.sampled_from(WHOLE), st.data())
@examples(400)
def test_damage_is_refused_or_harmless(whole: bytes, data: st.DataObject) -> None:
    """Fields changed, lost and doubled, lines lost, doubled and moved: a Run that can be kept, or an error with a line's number."""
    lines = whole.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        how = data.draw(st.sampled_from(["change", "change", "change", "lose", "double", "lose line", "move", "bytes"]))
        if how == "lose line":
            del lines[at]
        elif how == "move":
            lines.insert(data.draw(st.integers(0, len(lines))), lines[at])
        elif how == "bytes":
            lines[at] = data.draw(st.binary(max_size=20))
        else:
            fields = lines[at].split(b" ")
            place = data.draw(st.integers(0, len(fields) - 1))
            if how == "change":
                fields[place] = data.draw(st.sampled_from(WRONG))
            else:
                fields[place : place + 1] = [fields[place]] * (2 if how == "double" else 0)
            lines[at] = b" ".join(fields)
        if not lines:
            return
    try:
        run = fold([line.replace(b"\n", b"") + b"\n" for line in lines], "by hand")
    except InputError as error:
        assert re.match(r"by hand(, line \d+)?: ", str(error))
    else:
        with suppress(InputError):  # who reads it says what is wrong: times that do not increase, numbers that nobody measures
            checked(run)


@given(st.lists(st.binary(max_size=30), max_size=5))
@examples(50)
def test_any_bytes_are_refused(lines: list[bytes]) -> None:
    with pytest.raises(InputError, match=r"^by hand"):
        fold([line.replace(b"\n", b"") + b"\n" for line in lines], "by hand")
