"""What the recorder in C costs beside that in Python: `python ci/bench/recorder.py [--seconds N]`.

CPU time and memory at 1 ms, how well the interval is kept, and the sizes of the programs. It prints the table and
writes it into docs/evidence/claims.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs
from bench.table import aligned
from bench.tools import verdict
from memprof.base.errors import InputError
from memprof.places.machine import this_machine
from memprof.places.recorder_start import RecorderKind, recorder_command
from memprof.programs import recorder_build
from memprof.recording import order
from memprof.recording.fold import Fold
from memprof.records.recorder_order import CommandStart, Header, Message, Start
from memprof.records.types import COMMAND, Job, Model
from memprof.subjects.suite import MS

_MIB = 1 << 20
_ROUNDS = 3
# Its resident set changes all the time, so that each poll reads a new size.
_PROGRAM = "import mmap, time\nwhile True:\n    area = mmap.mmap(-1, 1 << 20)\n    area[:] = bytes(1 << 20)\n    time.sleep(0.002)\n    area.close()"


@dataclass(frozen=True)
class Cost:
    """A recorder while it polled. cpu: of one core; hwm: its VmHWM in bytes, when its Run was ready; p99: of the interval, in ns."""

    cpu: float
    hwm: int
    median_ns: int
    p99_ns: int


def main() -> None:
    """Measure both recorders, print the table and write it into the manual."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, metavar="N", help="for each recorder, three times  [default: %(default)s]")
    parser.add_argument("--dry", action="store_true", help="write nothing into docs/")
    words = parser.parse_args()
    load = os.getloadavg()[0]
    table, note = _recorders(words.seconds)
    print(table)
    if not words.dry:
        busy = (
            f"The machine's load average was {load:.1f} at the begin on {os.cpu_count()} CPUs: above 1 it was busy, and times are longer."
        )
        docs.write("recorder", table, (note, busy))


def _recorders(seconds: int) -> tuple[str, str]:
    kinds: tuple[RecorderKind, ...] = ("python", "c")
    costs: dict[RecorderKind, list[Cost]] = {kind: [] for kind in kinds}
    for number in range(_ROUNDS):
        for kind in kinds:
            print(f"recorder {kind}, {number + 1} of {_ROUNDS}", file=sys.stderr)
            costs[kind].append(_cost(kind, seconds))
    python, static = ([statistics.median(figures) for figures in zip(*map(_figures, costs[kind]), strict=True)] for kind in kinds)
    rows = [
        ("what", "target of C", "Python", "C", ""),
        ("CPU at 1 ms, of one core", "<= 4%", f"{python[0]:.1%}", f"{static[0]:.1%}", verdict(static[0] <= 0.04)),
        ("memory (VmHWM)", "<= 1 MiB", f"{python[1] / _MIB:.1f} MiB", f"{static[1] / _MIB:.2f} MiB", verdict(static[1] <= _MIB)),
        ("interval at 1 ms, median", "-", f"{python[2] / MS:.3f} ms", f"{static[2] / MS:.3f} ms", ""),
        ("interval at 1 ms, 99th percentile", "-", f"{python[3] / MS:.2f} ms", f"{static[3] / MS:.2f} ms", ""),
        *(row for architecture in ("x86_64", "aarch64", "armv7l", "riscv64") for row in _size(architecture)),
    ]
    note = f"Medians of {_ROUNDS} times {seconds} s each, the recorders alternating, on a program whose resident set changes every 2 ms."
    return aligned(rows), note


def _figures(cost: Cost) -> tuple[float, float, float, float]:
    return cost.cpu, cost.hwm, cost.median_ns, cost.p99_ns


def _cost(kind: RecorderKind, seconds: float) -> Cost:
    job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
    message = Message(job, Start((sys.executable, "-c", _PROGRAM), command=CommandStart()), int((seconds + 1) * 1000) * MS, {"": MS})
    lines: list[bytes] = []
    with subprocess.Popen(recorder_command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(order.lines(message, this_machine()))
        process.stdin.flush()
        drained = threading.Thread(target=lambda: lines.extend(process.stdout or ()))  # as memprof does: the recorder waits for nobody
        drained.start()
        time.sleep(1)  # started, and the program too
        recorder = psutil.Process(process.pid)
        before, begin = sum(recorder.cpu_times()[:2]), time.monotonic()
        time.sleep(seconds - 1)
        cpu = (sum(recorder.cpu_times()[:2]) - before) / (time.monotonic() - begin)
        hwm = _hwm_bytes(process.pid)
        drained.join()
    fold = Fold()
    for line in lines:
        fold.take(line.rstrip(b"\n"))
        if not fold.started:
            fold.take(b"order 0 " + order.encode(Header(message, this_machine(), 0)))
    polling = fold.run().polling
    assert polling is not None
    return Cost(cpu, hwm, polling.median_ns, polling.p99_ns)


def _hwm_bytes(pid: int) -> int:
    """VmHWM of a process."""
    rows = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("VmHWM"))


def _size(architecture: str) -> list[tuple[str, ...]]:
    try:
        size = recorder_build.built(architecture).stat().st_size
    except InputError as error:
        print(error, file=sys.stderr)
        return []
    return [(f"size for {architecture}", "<= 120 KB", "-", f"{size / 1000:.0f} KB", verdict(size <= 120_000))]


if __name__ == "__main__":
    main()
