"""How far a recorded peak lies from the truth on a board: transient.c's 100 MiB in each phase, 0 to 100 ms long, by one thread and by eight.

The board is QEMU's, with its kernel's split counters. Its recorder in C measures where there is no Python, the recorder in Python where there is.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from memprof.places.remote import Remote
from memprof.programs import runtimes
from memprof.records.types import Run

from . import elsewhere
from .native import order_of
from .over_ssh import Part, verdict
from .table import aligned

_BYTES = 100 << 20
_MIB = 1 << 20
_LIMIT = _MIB // 2
_PHASES = ("MODEL_LOAD", "PREPARE", "EXECUTE")
_HOLDS_US = (0, 1_000, 10_000, 100_000)
_THREADS = (1, 8)
_SETTLE_US = 10_000
_COMPILER = "aarch64-linux-gnu-gcc"


def ladder(count: int) -> Part:
    """The worst error of each recorder, by length of the transient and number of threads."""
    rows = [("transient", "target", "recorder in C", "its bound", "recorder in Python", "its bound", "")]
    columns = []
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as folder:
        program = _compiled(Path(folder))
        for python in (False, True):
            with elsewhere.board(python) as place:
                columns.append(_column(place, program, count))
    for (threads, hold_us), (in_c, c_bound) in columns[0].items():
        in_python, python_bound = columns[1][threads, hold_us]
        met = in_c <= max(_LIMIT, c_bound) and in_python <= max(_LIMIT, python_bound)
        name = f"{hold_us / 1000:g} ms, {threads} thread{'s' if threads > 1 else ''}"
        sizes = (f"{size / _MIB:.2f} MiB" for size in (in_c, c_bound, in_python, python_bound))
        rows.append((name, "<= 0.5 MiB, or the bound", *sizes, verdict(met)))
    note = f"The worst error of {count} times each phase, of 100 MiB. The bound is what the run itself states for the board's kernel and its threads."
    return aligned(rows), (note,)


def _column(place: Remote, program: Path, count: int) -> dict[tuple[int, int], tuple[float, float]]:
    """The worst error and the bound, by threads and length."""
    there, worst = place.executable(str(program)), {}
    for threads in _THREADS:
        for hold_us in _HOLDS_US:
            print(f"ladder, recorder {place.recorder}, {threads} thread(s), {hold_us / 1000:g} ms", file=sys.stderr)
            runs = [
                (phase, elsewhere.measured_well(order_of(there, phase, _BYTES, threads, hold_us, _SETTLE_US, place=place)))
                for phase in _PHASES
                for _ in range(count)
            ]
            worst[threads, hold_us] = max(_error(run, phase) for phase, run in runs), max(run.machine.peak_bound_bytes for _, run in runs)
    return worst


def _error(run: Run, phase: str) -> float:
    mark = run.mark(phase)
    assert mark is not None and mark.rss_begin_bytes is not None, run.outcome.sentence
    return abs(mark.height_bytes - (mark.rss_begin_bytes + _BYTES))


def _compiled(folder: Path) -> Path:
    program = folder / "transient"
    words = [_COMPILER, "-std=gnu99", "-O1", f"-I{runtimes.runners_path() / 'native'}", "-pthread", "-static", "-o", str(program)]
    try:
        subprocess.run([*words, str(Path(__file__).with_name("transient.c"))], check=True)
    except FileNotFoundError:
        raise elsewhere.making.Missing(f"{_COMPILER} is needed for the ladder on a board") from None
    return program
