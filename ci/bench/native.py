"""Users' programs: how far the peak of a C program with marks lies from the truth, and the cost of following a tree.

The ladder is that of ladder.py, by transient.c in place of transient.py. The tree is 50 processes that sleep, under one that holds memory which
they share, polled at 10 ms; the cost is the recorder's CPU time, from its start to its end. No peer counts the shared pages of a
tree once: mprof and psrecord add the resident sets up (with --include-children); that sum is shown beside.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memprof.programs import commands, runtimes
from memprof.records.types import COMMAND, Run
from memprof.subjects.order import Order
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant

from . import tools
from .table import Row, Section, Setting

_BYTES = 100 << 20
_MIB = 1 << 20
_LADDER_LIMIT = 0.5 * _MIB
_PHASES = ("MODEL_LOAD", "PREPARE", "EXECUTE")
_HOLDS_US = (0, 100, 1_000, 10_000, 100_000)
_THREADS = (1, 8)
_SETTLE_US = 10_000
_PROCESSES = 50
_SHARED_MIB = 100
_CPU_LIMIT = 0.10

_TREE = """
import os, sys, time
count, mib, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
memory = bytearray(b"x") * (mib << 20)
for _ in range(count - 1):
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)
time.sleep(seconds)
"""


def measure_ladder(setting: Setting) -> Section:
    """The worst error of a C program with marks, by length of the transient and number of threads."""
    program = _compiled(setting.folder)
    note = "C program: transient.c with memprof.h, the worst of all three phases, in MiB."
    return ladder(setting, program, {phase: phase for phase in _PHASES}, "C program with marks", note)


def measure_tree(setting: Setting) -> Section:
    """The recorder's CPU while it follows a tree of 50 processes at 10 ms, and how far the sum is from the memory they share."""
    seconds = setting.count(20, 3)
    script = setting.folder / "tree.py"
    script.write_text(_TREE)
    words = (sys.executable, "-I", "-S", script, _PROCESSES, _SHARED_MIB, seconds)
    seen = tools.recorded(order_of(*words, interval_ns=10_000_000), look=True)
    setting.say(f"a tree of {_PROCESSES} processes")
    assert seen.cost is not None
    run = seen.run
    summed = sum(process.rss_peak_bytes for process in run.processes)
    rows = (
        Row(
            f"CPU of following {_PROCESSES} processes at 10 ms, of one core",
            f"<= {_CPU_LIMIT:.0%}",
            f"{seen.cost.cpu_share:.1%}",
            met=seen.cost.cpu_share <= _CPU_LIMIT and len(run.processes) == _PROCESSES,
        ),
        Row(
            f"the peak of {_PROCESSES} processes that share {_SHARED_MIB} MiB",
            "",
            f"{run.timeline.rss_max_bytes / _MIB:.0f} MiB (the sum of their RSS: {summed / _MIB:.0f})",
        ),
    )
    note = f"The tree: {_PROCESSES} Python processes for {seconds} s, {run.polling.median_ns / 1e6 if run.polling else 0:.1f} ms achieved."
    return Section(rows, (note,), {"run": run, "cost": seen.cost})


def order_of(*words: object, **settings: Any) -> Order:
    """The order that measures a program with these words."""
    command = commands.of_words([str(word) for word in words])
    variant = Variant(runtime=COMMAND, name="c", command=command)
    (order,) = plan(Suite(variants=(variant,), repeats=1, **settings)).orders
    return order


def _compiled(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("bench: no C compiler; the ladder of a C program needs one")
    program = folder / "transient"
    source, header = Path(__file__).with_name("transient.c"), runtimes.runners_path() / "native"
    subprocess.run([compiler, "-std=gnu99", "-O1", f"-I{header}", "-pthread", "-o", str(program), str(source)], check=True)
    return program


def ladder(setting: Setting, program: Path, words: Mapping[str, str], title: str, note: str, **settings: Any) -> Section:
    """The worst error of a program, by length of the transient and number of threads. words: the program's own for each phase."""
    errors: dict[tuple[int, int], list[tuple[str, float]]] = defaultdict(list)
    for threads in _THREADS:
        for hold_us in _HOLDS_US:
            for phase, word in words.items():
                order = order_of(program, word, _BYTES, threads, hold_us, _SETTLE_US, **settings)
                for _ in range(setting.count(3, 1)):
                    errors[threads, hold_us].append((phase, _error(tools.recorded(order).run, phase)))
            setting.say(f"ladder, {title}, {threads} thread(s), {hold_us / 1000:g} ms")
    rows = tuple(_ladder_row(title, threads, hold_us, [error for _, error in values]) for (threads, hold_us), values in errors.items())
    return Section(rows, (note,), {f"{threads} threads, {hold_us} us": values for (threads, hold_us), values in errors.items()})


def _error(run: Run, phase: str) -> float:
    """The distance of a phase's peak from the truth, in bytes."""
    mark = run.mark(phase)
    assert mark is not None and mark.rss_begin_bytes is not None, run.outcome.sentence
    return mark.height_bytes - (mark.rss_begin_bytes + _BYTES)


def _ladder_row(program: str, threads: int, hold_us: int, errors: list[float]) -> Row:
    """A row of the ladder, by the worst of the errors."""
    worst = max(map(abs, errors))
    return Row(
        subject=f"{program}, {hold_us / 1000:g} ms transient, {threads} thread{'s' if threads > 1 else ''}",
        target=f"<= {_LADDER_LIMIT / _MIB:g} MiB",
        memprof=f"{worst / _MIB:.2f}",
        met=worst <= _LADDER_LIMIT,
    )
