"""memprof.h and memprof_marks.py: exact peaks of programs whose memory is known, and what happens where marks are used wrongly."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest
from conftest import need_tool
from support.native_programs import HEADER, TRANSIENT, built, peak_mib, phases, program, ran, ran_until_seen
from support.recorder_runs import BOTH_RECORDERS, MIB, NEAR_MIB
from support.tables import cells

from memprof.base.runners import runners_path
from memprof.records import metrics
from memprof.records.types import PEAK
from memprof.reports.tables import table

PYTHON_MARKS = runners_path() / "memprof_marks.py"


@pytest.mark.parametrize("standard", ["c99", "gnu99", "c11", "c++11", "c++17"])
def test_header_clean_in_each_standard(tmp_path, standard):
    compiler = need_tool("g++" if "+" in standard else "gcc")
    source = tmp_path / f"clean.{'cpp' if '+' in standard else 'c'}"
    source.write_text(
        '#include <stdio.h>\n#include <time.h>\n#include "memprof.h"\nint main(void) { memprof_begin("A"); memprof_end(); return 0; }\n'
    )

    strict = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-O2"]
    done = subprocess.run(
        [compiler, f"-std={standard}", *strict, f"-I{HEADER.parent}", "-o", str(tmp_path / "clean"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_header_state_shared_between_files(tmp_path):
    gcc, gpp = need_tool("gcc"), need_tool("g++")
    (tmp_path / "ends.c").write_text('#include "memprof.h"\nvoid ends(void) { memprof_end(); }\n')
    (tmp_path / "main.cpp").write_text(
        '#include "memprof.h"\nextern "C" void ends();\nint main() { memprof_begin("SHARED"); ends(); memprof_begin("NEXT"); ends(); }\n'
    )
    include = f"-I{HEADER.parent}"
    subprocess.run([gcc, include, "-c", tmp_path / "ends.c", "-o", tmp_path / "ends.o"], check=True)
    subprocess.run([gpp, include, tmp_path / "main.cpp", tmp_path / "ends.o", "-o", tmp_path / "both"], check=True)

    run = ran(tmp_path / "both")

    assert phases(run) == ["STARTUP", "SHARED", "NEXT"]
    assert run.warnings == ()


def test_marks_cheap_without_memprof():
    # With a look at /proc each, these calls would take ten seconds.
    calls = program('for (int i = 0; i < 200000; ++i) { memprof_begin("A"); memprof_iteration(); memprof_value("x", 1); memprof_end(); }')
    before = os.times().children_user + os.times().children_system

    subprocess.run([calls], check=True)

    assert os.times().children_user + os.times().children_system - before < 2


@pytest.mark.parametrize(("phase", "threads"), [("MODEL_LOAD", 1), ("PREPARE", 8), ("EXECUTE", 1)])
def test_transient_peak_in_each_phase(phase, threads):
    run = ran(built(TRANSIENT), phase, 32 * MIB, threads, 0, 1000)

    peaks = {mark.phase: peak_mib(run, mark.phase) for mark in run.marks if mark.phase != "STARTUP"}
    assert all(mark.rss_peak_exact for mark in run.marks)
    assert abs(peaks.pop(phase) - 32) <= NEAR_MIB
    assert max(peaks.values()) <= NEAR_MIB, "a phase has a peak that belongs to its neighbour"


def test_phase_figures_match_process():
    run = ran(program('memprof_begin("A"); hold(20 * MIB); free(malloc(100)); memprof_end();'))

    startup, mark = run.mark("STARTUP"), run.mark("A")
    assert startup.rss_peak_exact
    assert 0 < startup.rss_end_bytes < 8 * MIB
    assert startup.begin_ns < startup.end_ns <= mark.begin_ns
    assert mark.anon_end_bytes >= 20 * MIB > mark.file_end_bytes > 0
    assert mark.minor_faults >= 20 * MIB // 4096 or mark.minor_faults > 0  # huge pages take fewer
    assert mark.vms_end_bytes >= mark.rss_end_bytes >= mark.pss_end_bytes >= mark.uss_end_bytes >= 20 * MIB
    assert mark.hwm_bytes >= mark.rss_end_bytes
    assert mark.heap_used_end_bytes is None or mark.heap_used_end_bytes < 20 * MIB
    assert mark.major_faults is not None and mark.cpu_ns > 0


def test_iterations_kept_one_by_one():
    run = ran(
        program(
            'memprof_begin("EXECUTE"); for (int i = 0; i < 500; ++i) { if (i == 400) usleep(100000); memprof_iteration(); } memprof_end();'
        )
    )

    times_ns = run.mark("EXECUTE").times_ns
    assert len(times_ns) == 500
    assert times_ns[400] >= 100_000_000 > sorted(times_ns)[250]


def test_values_keep_phase_and_digits():
    run = ran(
        program("""
            setenv("LC_ALL", "de_DE.UTF-8", 1);
            memprof_begin("A"); memprof_value("arena_bytes", 12345678901.0); memprof_value("most", 1e308 * 10 * count);
            memprof_value("least", -1e308 * 10 * count); memprof_value("large", 1e100); memprof_value("kept", 9e99);
            memprof_value("whole", 1e20); memprof_end();
            memprof_value("loss", 0.125); memprof_value("broken", 0.0 / (count - 1));
        """)
    )

    assert [(value.name, value.value, value.phase, value.note) for value in run.values] == [
        ("arena_bytes", 12345678901, "A", None),
        ("most", None, "A", "infinite"),
        ("least", None, "A", "minus infinite"),
        ("large", None, "A", "1e100 or more"),
        ("kept", 9e99, "A", None),
        ("whole", 1e20, "A", None),
        ("loss", 0.125, None, None),
        ("broken", None, None, "not a number"),
    ]
    assert not run.warnings
    row = cells(table.render([run]), "Reported by the program itself, last")["program"]
    assert (row["arena (MiB)"], row["most"], row["least"]) == ("11774", "infinite", "minus infinite")
    assert (row["loss"], row["broken"]) == ("0.125", "not a number")


def test_phase_repeats_are_iterations():
    body = """for (int i = 0; i < 4; ++i) {
        memprof_begin("EXECUTE"); drop(hold((i == 2 ? 64 : 8) * MIB), (i == 2 ? 64 : 8) * MIB); memprof_end();
        memprof_begin("BETWEEN"); memprof_end(); }"""
    run = ran(program(body))

    assert phases(run) == ["STARTUP", "EXECUTE", "BETWEEN"]
    assert len(run.mark("EXECUTE").times_ns) == 4
    assert abs(peak_mib(run, "EXECUTE") - 64) <= NEAR_MIB
    assert peak_mib(run, "BETWEEN") <= NEAR_MIB


def test_marks_in_wrong_order():
    body = """memprof_end();
        memprof_begin("A"); drop(hold(16 * MIB), 16 * MIB); memprof_begin("A"); memprof_end(); memprof_end();
        memprof_begin("a\\"b\\\\c\\nd"); memprof_end(); memprof_begin(""); memprof_end(); memprof_begin(NULL); memprof_end();"""
    run = ran(program(body))

    assert run.outcome.ok
    assert phases(run) == ["STARTUP", "A", "a_b_c_d", "_"]
    stray = "a phase was ended where none had begun"
    assert run.warnings == (stray, "A had not ended when the next phase began: it ends there", f"{stray} (after A)")
    assert abs(peak_mib(run, "A") - 16) <= NEAR_MIB
    assert len(run.mark("A").times_ns) == 2


@BOTH_RECORDERS
def test_marks_read_after_program_end():
    first, second = (program(f'memprof_begin("{name}"); drop(hold(8 * MIB), 8 * MIB); memprof_end();') for name in "AB")

    run = ran("sh", "-c", f"kill -STOP $PPID; {quote(first)}; {quote(second)}; kill -CONT $PPID")

    assert phases(run)[-2:] == ["A", "B"]
    assert abs(peak_mib(run, "B") - 8) <= NEAR_MIB
    assert run.mark("B").rss_peak_exact


@BOTH_RECORDERS
def test_marks_after_descriptors_closed(tmp_path):
    # That it has closed them is told from its end by a process that still lives.
    target = tmp_path / "mine.txt"
    body = f"""memprof_begin("A"); memprof_end();
        int wanted = atoi(getenv("MEMPROF_MARKS"));
        for (int i = 3; i < 256; ++i) close(i);
        int mine; do mine = open("{target}", O_WRONLY | O_CREAT, 0600); while (mine < wanted && mine >= 0);
        memprof_begin("B"); hold(64 * MIB); until(words[1]); memprof_end(); write(mine, "mine", 4);"""
    run = ran_until_seen(64, tmp_path / "seen", program(body))

    assert target.read_text() == "mine"
    assert phases(run) == ["STARTUP", "A", "between phases"]  # B is none: what it held is outside of all
    assert run.outcome.ok
    assert "the program closed the descriptor of its marks: its later work is in no phase" in run.warnings


def test_phases_of_many_threads():
    body = """pthread_t all[8];
        for (int i = 0; i < 8; ++i) pthread_create(&all[i], NULL, (void *(*)(void *))busy, NULL);
        for (int i = 0; i < 8; ++i) pthread_join(all[i], NULL);"""
    source = body.replace(
        "busy", '({ void *work(void *n) { for (int i = 0; i < 50; ++i) { memprof_begin("T"); memprof_end(); } return n; } work; })'
    )
    run = ran(program(source))

    assert run.outcome.ok
    assert phases(run) == ["STARTUP", "T"]
    assert not [said for said in run.warnings if "not understood" in said]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_peak_inexact_after_user_change():
    body = 'memprof_begin("A"); memprof_end(); if (setgid(65534) || setuid(65534)) return 9; memprof_begin("B"); hold(32 * MIB); memprof_end();'
    run = ran(program(body))

    exact = {mark.phase: mark.rss_peak_exact for mark in run.marks}
    assert run.outcome.ok
    assert exact["A"]
    # Its high-water mark cannot be reset, but it rose within the phase: then it tells the peak all the same.
    assert exact["B"] == (run.mark("B").hwm_bytes > run.mark("A").hwm_bytes)
    falls = ran(
        program(
            'drop(hold(64 * MIB), 64 * MIB); if (setgid(65534) || setuid(65534)) return 9; memprof_begin("B"); hold(8 * MIB); memprof_end();'
        )
    )
    assert not falls.mark("B").rss_peak_exact
    text = table.render([falls])
    assert "| ~" in text
    assert "the high-water mark was not reset" in text


def script(folder: Path, text: str) -> Path:
    (folder / "memprof_marks.py").write_bytes(PYTHON_MARKS.read_bytes())
    path = folder / "script.py"
    path.write_text("from memprof_marks import iteration, phase, value\n" + text)
    return path


TEXT = """
def spike(mib):
    memory = bytearray(b"x") * (mib << 20)
with phase("MODEL_LOAD"):
    spike(64)
with phase("EXECUTE"):
    for _ in range(250):
        iteration()
value("loss", 0.5)
value("worst", float("nan"))
with phase("EXECUTE"):
    spike(16)
"""


def test_script_phases_exact(tmp_path):
    run = ran(
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); exec(open({str(script(tmp_path, TEXT))!r}).read())",
    )

    assert phases(run) == ["STARTUP", "MODEL_LOAD", "EXECUTE"]
    assert all(mark.rss_peak_exact for mark in run.marks)
    assert abs(peak_mib(run, "MODEL_LOAD") - 64) <= 1 + NEAR_MIB
    assert len(run.mark("EXECUTE").times_ns) == 251
    assert [(value.name, value.value, value.note) for value in run.values] == [("loss", 0.5, None), ("worst", None, "not a number")]
    assert run.warnings == ()


def test_memory_between_phases_has_row():
    body = """memprof_begin("LOAD"); hold(8 * MIB); memprof_end();
        drop(hold(120 * MIB), 120 * MIB);
        memprof_begin("EXECUTE"); usleep(1000); memprof_end();"""
    run = ran(program(body))

    assert phases(run) == ["STARTUP", "LOAD", "between phases", "EXECUTE"]
    gap = run.mark("between phases")
    assert gap.rss_peak_exact
    assert 128 <= gap.rss_peak_bytes / MIB <= 132
    assert (gap.begin_ns, gap.end_ns) >= (run.mark("LOAD").end_ns, run.mark("LOAD").end_ns)
    assert gap.end_ns <= run.mark("EXECUTE").begin_ns
    (said,) = run.warnings
    assert said.startswith("between LOAD and EXECUTE, for ")
    assert f"memory reached {gap.rss_peak_bytes / MIB:.1f} MiB, above the " in said
    assert metrics.value(run, PEAK, metrics.METRICS["rss_peak_bytes"]) == gap.rss_peak_bytes
    assert "between phases" in table.render([run])


@BOTH_RECORDERS
def test_memory_after_last_phase_has_row():
    run = ran(program('memprof_begin("A"); hold(8 * MIB); memprof_end(); drop(hold(120 * MIB), 120 * MIB); usleep(1000);'))

    assert phases(run) == ["STARTUP", "A", "between phases"]
    assert run.mark("between phases").rss_peak_exact  # by wait4, however short it was
    assert 128 <= run.mark("between phases").rss_peak_bytes / MIB <= 132
    assert run.warnings[0].startswith("after A, for ")


@BOTH_RECORDERS
def test_startup_begins_anew_after_exec(tmp_path):
    inner = program('memprof_begin("A"); memprof_end();')
    run = ran(program(f'hold(64 * MIB); usleep(50000); execl("{inner}", "it", (char *)NULL); return 9;'))

    startup = run.mark("STARTUP")
    assert startup.rss_peak_exact
    assert startup.rss_peak_bytes < 8 * MIB


def test_script_without_memprof(tmp_path):
    path = script(tmp_path, TEXT + "import memprof_marks\nassert memprof_marks._own._laps == []\nprint('ran')")

    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("ran\n", "")


def test_script_exception_ends_phase(tmp_path):
    run = ran(sys.executable, script(tmp_path, "with phase('A'):\n    raise ValueError('not today')"))

    assert "A" in phases(run)
    assert run.outcome.sentence == "ended with exit code 1 after A (ValueError: not today)"


def test_marks_command_prints_paths(memprof):
    include = memprof("marks", "--include").stdout.strip()
    python = memprof("marks", "--python").stdout.strip()

    assert (Path(include) / "memprof.h").is_file()
    assert Path(python).is_file()
    text = memprof("marks").stdout
    assert "memprof_begin" in text
    assert f"cc -I{shlex.quote(include)} app.c -o app && memprof exec -- ./app" in text
