"""Memory after each unit of work: what programs and scripts write of it, how both recorders keep it, and the arrays that come out."""

from __future__ import annotations

import base64
import itertools
import shutil
import sys
import zlib

import pytest
from msgspec.structs import replace
from support.native_programs import MIB, ran, ran_in_time
from support.native_programs import program as compiled
from support.sample_runs import worked

from memprof.base.errors import InputError
from memprof.base.runners import runners_path
from memprof.records import work
from memprof.records.types import Run

FOLLOWED = {"MEMPROF_WORK": "1"}
PAGE = 4096


def curve(run: Run, phase: str = "EXECUTE") -> work.Curve:
    (record,) = (record for record in run.work if record.phase == phase)
    return work.unpack(record)


def script(folder, body: str) -> list[str]:
    shutil.copy(runners_path() / "memprof_marks.py", folder)
    (folder / "script.py").write_text(body)
    return [sys.executable, str(folder / "script.py")]


def test_curve_of_leaking_c_program():
    body = """memprof_begin("EXECUTE");
        for (int i = 0; i < 500; ++i) { memset(malloc(40000), 1, 40000); memprof_iteration_of(7, i % 3 ? "a" : "b"); }
        memprof_end();"""
    run = ran(compiled(body), env=FOLLOWED)

    seen = curve(run)
    assert not run.warnings
    assert list(seen.counts) == ["iteration", "token", "shape"]
    assert list(seen.counts["iteration"]) == list(range(501))
    assert seen.counts["token"][-1] == 3500 and seen.counts["shape"][-1] == 2
    assert list(seen.t_ns) == sorted(seen.t_ns)
    assert abs(seen.rss[-1] - seen.rss[0] - 500 * 40000) < MIB
    assert seen.looks is not None
    assert (seen.looks.iteration[0], seen.looks.iteration[-1]) == (0, 500)
    assert abs(seen.looks.rss[-1] - seen.looks.rss[0] - 500 * 40000) < MIB
    if seen.looks.heap_used:
        assert abs(seen.looks.heap_used[-1] - seen.looks.heap_used[0] - 500 * 40000) < MIB
    assert run.mark("EXECUTE").units == {"token": 3500, "shape": 2}
    assert len(run.mark("EXECUTE").times_ns) == 500


def test_small_objects_of_python_in_freed_arenas_counted(tmp_path):
    """The resident set does not move: the arenas of CPython's allocator have room, of which glibc knows nothing. A float takes 32 bytes there."""
    body = """
from memprof_marks import iteration, phase
freed = [float(number) for number in range(200_000)]
holes, held = freed[::97], [None] * 30_000
del freed
with phase("EXECUTE"):
    for at in range(300):
        held[100 * at : 100 * at + 100] = map(float, range(100))
        iteration()
"""
    seen = curve(ran(*script(tmp_path, body), env=FOLLOWED))

    assert abs(seen.rss[-1] - seen.rss[0]) < MIB // 4
    assert seen.looks is not None
    if not seen.looks.heap_used:
        pytest.skip("this C library does not tell the bytes in use")
    assert abs(seen.looks.heap_used[-1] - seen.looks.heap_used[0] - 30_000 * 32) < MIB // 32
    assert abs(seen.looks.heap_free[0] - seen.looks.heap_free[-1] - 30_000 * 32) < MIB // 32


def test_curve_of_leaking_python_script(tmp_path):
    body = """
from memprof_marks import iteration, phase
held = [None] * 300
with phase("EXECUTE"):
    for at in range(300):
        held[at] = bytes([1]) * 100_000
        iteration(tokens=2, shape=(1, at % 4))
"""
    run = ran(*script(tmp_path, body), env=FOLLOWED)

    seen = curve(run)
    assert not run.warnings
    assert list(seen.counts) == ["iteration", "token", "shape"]
    assert [column[-1] for column in seen.counts.values()] == [300, 600, 4]
    assert abs(seen.rss[-1] - seen.rss[0] - 300 * 100_000) < 2 * MIB
    assert seen.looks is not None and seen.looks.iteration[-1] == 300
    if seen.looks.heap_used:
        assert abs(seen.looks.heap_used[-1] - seen.looks.heap_used[0] - 300 * 100_000) < MIB
    assert run.mark("EXECUTE").units == {"token": 600, "shape": 4}


def test_meter_adds_no_page(tmp_path):
    body = """
from memprof_marks import iteration, phase
with phase("EXECUTE"):
    for at in range(9000):
        iteration(tokens=1)
"""
    c = 'memprof_begin("EXECUTE"); for (int i = 0; i < 9000; ++i) memprof_iteration_of(1, NULL); memprof_end();'
    for words in (script(tmp_path, body), [compiled(c)]):
        seen = curve(ran(*words, env=FOLLOWED))

        # Without pages of files: a slow moment may run code for the first time. 36 bytes per iteration would be 79 pages.
        rows = zip(seen.rss, seen.file, seen.counts["iteration"], strict=True)
        after_first = [rss - file for rss, file, done in rows if done >= 100]
        assert len(after_first) > 4000
        assert after_first[-1] - after_first[0] <= 4 * PAGE, words


def test_units_counted_without_curve(tmp_path):
    body = """
from memprof_marks import iteration, phase
with phase("GENERATE"):
    for at in range(3):
        iteration(tokens=5, requests=1)
"""
    c = 'memprof_begin("GENERATE"); for (int i = 0; i < 3; ++i) { memprof_work("request", 1); memprof_iteration_of(5, NULL); } memprof_end();'
    for words in (script(tmp_path, body), [compiled(c)]):
        run = ran(*words)

        assert run.mark("GENERATE").units == {"token": 15, "request": 3}
        assert len(run.mark("GENERATE").times_ns) == 3
        assert run.work == () and not run.warnings


@pytest.mark.parametrize("language", ["C", "Python"])
def test_exact_look_after_each_half_more(tmp_path, language):
    """However much of the time looks take: bytes in use tell of growth only if some looks lie between the first and the last."""
    if language == "C":
        words = [compiled('memprof_begin("EXECUTE"); for (int i = 0; i < 1000; ++i) memprof_iteration(); memprof_end();')]
    else:
        words = script(tmp_path, 'from memprof_marks import *\nwith phase("EXECUTE"):\n for _ in range(1000): iteration()\n')
    looks = curve(ran(*words, env=FOLLOWED)).looks

    assert looks is not None
    assert (looks.iteration[0], looks.iteration[-1]) == (0, 1000)
    assert all(after <= before + before // 2 + 1 for before, after in itertools.pairwise(looks.iteration)), list(looks.iteration)


def test_printed_lines_count_as_units():
    body = """int us = atoi(words[1]);
        for (int i = 0; i < 200; ++i) {
            memset(malloc(20000), 1, 20000); usleep(us / 200); printf(i % 4 ? "served %d\\n" : "cached %d\\n", i); }
        usleep(us);"""
    run = ran_in_time(
        lambda run: run.work and sum(column[-1] for column in curve(run, "RUN").counts.values()) == 200,
        compiled(body),
        "{us}",
        env=FOLLOWED,
        phase_regexes={"request": "^served", "hit": "^cached"},
    )

    assert run.outcome.ok, run.outcome.sentence
    seen = curve(run, "RUN")
    assert {unit: column[-1] for unit, column in seen.counts.items()} == {"hit": 50, "request": 150}
    assert list(seen.t_ns) == sorted(seen.t_ns)
    first = seen.counts["hit"][0] + seen.counts["request"][0]  # as many as were read at once
    assert abs(seen.rss[-1] - seen.rss[0] - (200 - first) * 20000) < MIB


def test_curve_damaged_refused():
    whole = worked([0, 1, 2], [PAGE, 2 * PAGE, 3 * PAGE])
    assert list(work.unpack(whole).rss) == [PAGE, 2 * PAGE, 3 * PAGE]
    bomb = base64.b64encode(zlib.compress(bytes(8 << 20))).decode()
    for broken in (
        replace(whole, rss=bomb),
        replace(whole, rss="no"),
        replace(whole, rows=4),
        replace(whole, rows=0),
        replace(whole, rows=1 << 40),
        replace(whole, counts=()),
        replace(whole, swap=whole.rss[:8]),
    ):
        with pytest.raises(InputError, match="a curve of memory by units is damaged"):
            work.unpack(broken)
