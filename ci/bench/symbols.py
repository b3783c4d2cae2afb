"""Phases by the names of functions: how far the peak of an unmodified C++ program lies from the truth, and the time that gdb adds to a call.

The ladder is that of ladder.py, by transient.cpp, which holds no word of memprof. The program itself measures the time of many calls of a function
that does nothing; the cost of a call is that time under gdb less the time alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import native, tools
from .table import Row, Section, Setting

_CALL_LIMIT_MS = 2.0
_FUNCTIONS = {"MODEL_LOAD": "known::Model::load(const char *)", "PREPARE": "known::Model::prepare<int>", "EXECUTE": "known::Model::execute"}
_WORDS = {"MODEL_LOAD": "load", "PREPARE": "prepare", "EXECUTE": "execute"}


def measure_ladder(setting: Setting) -> Section:
    """The worst error of an unmodified C++ program, by length of the transient and number of threads."""
    note = "Unmodified C++ program: transient.cpp with phases by --phase, the worst of all three, in MiB."
    return native.ladder(setting, _compiled(setting.folder), _WORDS, "unmodified C++ program", note, phases=_FUNCTIONS)


def measure_calls(setting: Setting) -> Section:
    """The time that gdb adds to a call, with one thread and beside eight that sleep, and how much of it is in the call's own time."""
    program = _compiled(setting.folder)
    count = setting.count(2000, 200)
    rows, raw = [], {}
    for beside in (0, 8):
        alone_ns = _own_ns([str(program), "calls", str(count), str(beside)])
        target = setting.folder / f"calls-{beside}"
        words = ("sh", "-c", f'exec "$0" calls {count} {beside} >"$1"', program, target)
        run = tools.recorded(native.order_of(*words, phases={"EXECUTE": "nothing"})).run
        mark = run.mark("EXECUTE")
        assert mark is not None and len(mark.times_ns) == count + 1, run.outcome.sentence
        added_ms = (float(target.read_text()) - alone_ns) / 1e6
        left_ms = sorted(mark.times_ns)[count // 2] / 1e6
        setting.say(f"calls of a function under gdb, beside {beside} threads")
        raw[f"beside {beside} threads"] = {"alone_ns": alone_ns, "added_ms": added_ms, "left_ms": left_ms}
        where = f"beside {beside} other threads" if beside else "one thread"
        rows += [
            Row(
                f"added to a call by a symbol phase, {where}",
                f"<= {_CALL_LIMIT_MS:g} ms",
                f"{added_ms:.2f} ms",
                met=added_ms <= _CALL_LIMIT_MS,
            ),
            Row(f"of which in the call's own time, {where}", "", f"{left_ms:.2f} ms"),
        ]
    note = f"Calls: {count} of a function that does nothing, by the program's own clock; in the call's own time is the median it is given."
    return Section(tuple(rows), (note,), raw)


def _own_ns(words: list[str]) -> float:
    return float(subprocess.run(words, check=True, capture_output=True, text=True, env=dict(os.environ)).stdout)


def _compiled(folder: Path) -> Path:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None or shutil.which("gdb") is None:
        raise SystemExit("bench: phases by symbols need a C++ compiler and gdb")
    program = folder / "transient-cpp"
    if not program.exists():
        source = Path(__file__).with_name("transient.cpp")
        subprocess.run([compiler, "-std=c++17", "-O1", "-pthread", "-o", str(program), str(source)], check=True)
    return program
