#!/usr/bin/env python3
"""`make bench-boards`: how good measuring elsewhere is: `python ci/bench/boards.py [PART ...]`, all of it by default.

    recorder    the recorder in C beside that in Python: CPU time and memory at 1 ms, how well the interval is kept, and its sizes
    jobs     what a short job costs more over ssh than here
    same     whether peaks over ssh are those here
    ladder   how far the peaks of known transients on QEMU's boards lie from the truth
    sent     how often a model of 100 MB is sent, and in what time
    cable    what is lost and what is left when the connection is killed in each phase

Each part prints its Markdown table and writes it into docs/how-exact.md as soon as it has ended; after an interruption, name the parts that are
left. A part that lacks something here, such as QEMU, is left out with the reason, and the exit code is 1. Progress goes to standard error.
`--count N`: seconds for each recorder, jobs or repeats a side, transients of a kind, bytes of the model, cuts in each phase.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import board_ladder, docs, elsewhere, over_ssh
from bench.over_ssh import Part, verdict
from bench.table import aligned
from bench.tools import hwm_bytes
from memprof.base.errors import InputError
from memprof.places.machine import this_machine
from memprof.places.recorder_bundle import RecorderKind, recorder_command
from memprof.programs import recorder_build
from memprof.recording import order
from memprof.recording.fold import Fold
from memprof.recording.order import Command, Header, Message, Start
from memprof.records.types import COMMAND, Job, Model
from memprof.subjects.suite import MS

_MIB = 1 << 20
_ROUNDS = 3
_COUNTS = {"recorder": 10, "jobs": 200, "same": 10, "ladder": 3, "sent": 100_000_000, "cable": 10}
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
    """Measure the parts that are named."""
    parts: dict[str, tuple[str, Callable[[int], Part]]] = {
        "recorder": ("boards-recorder", _recorders),
        "jobs": ("boards-jobs", over_ssh.jobs),
        "same": ("boards-same", over_ssh.same),
        "ladder": ("boards-ladder", board_ladder.ladder),
        "sent": ("boards-sent", over_ssh.sent),
        "cable": ("boards-cable", over_ssh.cable),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], metavar="PART")
    parser.add_argument("--count", type=int, help="instead of the part's own number")
    parser.add_argument("--dry", action="store_true", help="write nothing into docs/")
    words = parser.parse_args()
    lacking = False
    for name in words.parts or parts:
        load = os.getloadavg()[0]
        block, measure = parts[name]
        try:
            table, notes = measure(words.count or _COUNTS[name])
        except elsewhere.LACKS as reason:
            print(f"bench: {name} is left out: {reason}", file=sys.stderr)
            lacking = True
            continue
        print(table, flush=True)
        if not words.dry:
            busy = f"The machine's load average was {load:.1f} at the begin on {os.cpu_count()} CPUs: above 1 it was busy, and times are longer."
            docs.write(block, table, (*notes, busy))
    if lacking:
        sys.exit(1)


def _recorders(seconds: int) -> Part:
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
    note = f"Medians of {_ROUNDS} times {seconds} s each, the recorders in turn, on a program whose resident set changes every 2 ms."
    return aligned(rows), (note,)


def _figures(cost: Cost) -> tuple[float, float, float, float]:
    return cost.cpu, cost.hwm, cost.median_ns, cost.p99_ns


def _cost(kind: RecorderKind, seconds: float) -> Cost:
    job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
    message = Message(job, Start((sys.executable, "-c", _PROGRAM), command=Command()), int((seconds + 1) * 1000) * MS, {"": MS})
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
        hwm = hwm_bytes(process.pid)
        drained.join()
    fold = Fold()
    for line in lines:
        fold.take(line.rstrip(b"\n"))
        if not fold.started:
            fold.take(b"order 0 " + order.encode(Header(message, this_machine(), 0)))
    polling = fold.run().polling
    assert polling is not None
    return Cost(cpu, hwm, polling.median_ns, polling.p99_ns)


def _size(architecture: str) -> list[tuple[str, ...]]:
    try:
        size = recorder_build.built(architecture).stat().st_size
    except InputError as error:
        print(error, file=sys.stderr)
        return []
    return [(f"size for {architecture}", "<= 120 KB", "-", f"{size / 1000:.0f} KB", verdict(size <= 120_000))]


if __name__ == "__main__":
    main()
