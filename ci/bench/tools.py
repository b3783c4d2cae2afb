"""Runs a program under memprof's recorder, under mprof, under psrecord, or alone; the result is the record of each tool, and its cost.

All four start the very same command with the same job on its standard input; without memprof the program's marks (runners/memprof_marks.py) go to a
file, so that phases and iteration times are known everywhere.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memprof.campaign import recorder_client
from memprof.places.machine import this_machine
from memprof.places.recorder_bundle import recorder_command
from memprof.recording import order as recording_order
from memprof.recording.fold import Fold
from memprof.recording.order import Header
from memprof.records.types import Run
from memprof.subjects.order import Order
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite

LONGEST_S = 120
_WATCH_S = 0.05
_START_NS = 500_000_000
_MIB = 1 << 20
_MARKS_FD = 7


@dataclass(frozen=True)
class Program:
    """A measured program: its command, the line it reads, and the variables that its environment has beyond the bench's."""

    argv: tuple[str, ...]
    stdin: bytes
    env: Mapping[str, str]


@dataclass(frozen=True)
class Peer:
    """Another tool and its options. label: how often it polls."""

    tool: str
    label: str
    options: tuple[str, ...] = ()


MPROF = Peer("mprof", "0.1 s")
MPROF_1MS = Peer("mprof", "1 ms", ("-T", "0.001"))
MPROF_FASTEST = Peer("mprof", "no pause", ("-T", "0"))
PSRECORD = Peer("psrecord", "no pause")
PSRECORD_1MS = Peer("psrecord", "1 ms", ("--interval", "0.001"))


@dataclass(frozen=True)
class Cost:
    """The cost of a poller: its share of a CPU while it polled, and its high-water mark."""

    cpu_share: float
    hwm_bytes: int


@dataclass(frozen=True)
class Seen:
    """A peer's record, and the program's marks of the same time."""

    t_s: tuple[float, ...]
    rss: tuple[float, ...]
    marks: tuple[dict[str, Any], ...]
    wall_ns: int
    cost: Cost | None = None

    def mark(self, phase: str) -> dict[str, Any]:
        """The finished phase of that name."""
        return next(mark for mark in self.marks if mark["mark"] == "end" and mark["phase"] == phase)


def orders(models: Sequence[Path], runtime: str | Path, **words: Any) -> tuple[Order, ...]:
    """The orders that `memprof run` would measure with these words."""
    return plan(Suite(models=tuple(map(str, models)), runtimes=(str(runtime),), **words)).orders


def program(order: Order) -> Program:
    """The child that memprof starts for an order."""
    start = recorder_client.message(order, set(), "bench").start
    return Program(tuple(start.argv), start.stdin.encode(), {key: value for key, value in start.env.items() if value is not None})


# -- memprof


@dataclass(frozen=True)
class Recorded:
    """A Run, the time from the recorder's start until all of it was read, and, with look, the recorder's cost."""

    run: Run
    wall_ns: int
    cost: Cost | None = None


def recorded(order: Order, *, child: Program | None = None, intervals: Mapping[str, int] | None = None, look: bool = False) -> Recorded:
    """Measure as memprof.campaign.campaign does, in a separate recorder.

    child: another program than the order's. intervals: other polling periods. look: read the recorder's cost as long as it runs.
    """
    message = recorder_client.message(order, set(), "bench")
    if child is not None:
        message = replace(message, start=replace(message.start, argv=child.argv, stdin=child.stdin.decode(), env=dict(child.env)))
    if intervals is not None:
        message = replace(message, intervals=dict(intervals))
    machine = this_machine()
    header = b"order 0 " + recording_order.encode(Header(message, machine, time.time_ns()))
    begin_ns = time.monotonic_ns()
    process = subprocess.Popen(
        recorder_command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    with ended(process):
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(recording_order.lines(message, machine))
        fold, cost = _followed(process.pid, process.stdout.fileno(), header, begin_ns, look)
        wall_ns = time.monotonic_ns() - begin_ns
        process.stdin.close()
    run = fold.run()
    if not run.outcome.ok:
        raise SystemExit(f"bench: {order.job.model.name}: {run.outcome.sentence}\n{run.output_tail or ''}")
    return Recorded(run, wall_ns, cost)


def _followed(pid: int, descriptor: int, header: bytes, begin_ns: int, look: bool) -> tuple[Fold, Cost | None]:
    """The fold of a recording, as soon as it is complete, and the recorder's cost up to the last piece of it."""
    fold, cost, rest = Fold(), None, b""
    while not fold.over:
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            raise SystemExit("bench: a recorder ended without a result")
        if look and (hwm := hwm_bytes(pid)):
            cost = Cost(_cpu_ns(pid) / (time.monotonic_ns() - begin_ns), hwm)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            fold.take(line)
            if not fold.started:
                fold.take(header)
    return fold, cost


# -- its peers


def require_peers() -> None:
    """Leave with a sentence where a peer is not installed."""
    missing = [tool for tool in ("mprof", "psrecord") if _installed(tool) is None]
    if missing:
        raise SystemExit(f"bench: {' and '.join(missing)} not installed here: {sys.executable} -m pip install memory-profiler psrecord")


def zoo(name: str, path: Path, *words: str) -> Path:
    """A model of the zoo at this path, whose ending says the format; made where it is not there yet."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        command = [script("memprof"), "zoo", name, "--format", path.suffix[1:], "-o", str(path), *words]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return path


def wall_ns(command: Sequence[str]) -> int:
    """The wall time of a command that must succeed, in nanoseconds. Its output is dropped."""
    begin_ns = time.monotonic_ns()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic_ns() - begin_ns


def script(name: str) -> str:
    """A command installed beside this interpreter, or on PATH."""
    return _installed(name) or name


def _installed(tool: str) -> str | None:
    beside = Path(sys.executable).parent / tool
    return str(beside) if beside.exists() else shutil.which(tool)


def under(peer: Peer, measured: Program, *, watch: bool = False) -> Seen:
    """Run the program under a peer. watch: look at the peer's cost from time to time."""
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as folder, _marks_file(folder, measured) as (job, marks, env):
        # The shell is replaced by the program, so that the process the peer started is the one to measure.
        line = f"exec {shlex.join(measured.argv)} <{shlex.quote(str(job))} {_MARKS_FD}>>{shlex.quote(str(marks))}"
        log = Path(folder) / "log"
        own = ("run", "--output", str(log), *peer.options, "sh", "-c") if peer.tool == "mprof" else (*peer.options, "--log", str(log))
        begin_ns = time.monotonic_ns()
        process = subprocess.Popen(
            [script(peer.tool), *own, line],
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with ended(process):
            cost = watched(process, [process.pid])[1][0] if watch else None
            process.wait()
            wall_ns = time.monotonic_ns() - begin_ns
        t_s, rss = (_mprof_log if peer.tool == "mprof" else _psrecord_log)(log)
        return Seen(t_s, rss, _read_marks(marks, peer.tool), wall_ns, cost)


def alone(measured: Program) -> int:
    """Run the program alone, its marks written all the same; its wall time in nanoseconds."""
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as folder, _marks_file(folder, measured) as (job, marks, env):
        with job.open("rb") as stdin, marks.open("ab") as target:
            env["MEMPROF_MARKS"] = _target(target.fileno(), marks)
            begin_ns = time.monotonic_ns()
            process = subprocess.Popen(
                measured.argv, env=env, stdin=stdin, stdout=subprocess.DEVNULL, pass_fds=(target.fileno(),), start_new_session=True
            )
            with ended(process):
                process.wait()
                wall_ns = time.monotonic_ns() - begin_ns
        _read_marks(marks, "nothing")
        return wall_ns


@contextmanager
def _marks_file(folder: str, measured: Program) -> Iterator[tuple[Path, Path, dict[str, str]]]:
    job, marks = Path(folder) / "job", Path(folder) / "marks"
    job.write_bytes(measured.stdin)
    marks.touch()
    yield job, marks, {**os.environ, **measured.env, "MEMPROF_MARKS": _target(_MARKS_FD, marks)}


def _target(descriptor: int, path: Path) -> str:
    status = path.stat()
    return f"{descriptor}:{status.st_dev}:{status.st_ino}"


def _read_marks(path: Path, tool: str) -> tuple[dict[str, Any], ...]:
    marks = tuple(json.loads(line) for line in path.read_text().splitlines())
    if not marks or marks[-1]["mark"] != "done":
        raise SystemExit(f"bench: the program under {tool} did not come to its end: {marks[-1] if marks else 'it wrote no marks'}")
    return marks


def _mprof_log(path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Times in s and resident sets in bytes of lines `MEM MIB UNIX_TIME`."""
    rows = [line.split() for line in path.read_text().splitlines() if line.startswith("MEM ")]
    return tuple(float(row[2]) for row in rows), tuple(float(row[1]) * _MIB for row in rows)


def _psrecord_log(path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The same of lines `ELAPSED_S CPU_PERCENT RSS_MIB VMS_MIB`; psrecord's MB is 1024 * 1024 bytes."""
    rows = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    return tuple(float(row[0]) for row in rows), tuple(float(row[2]) * _MIB for row in rows)


# -- looking at a poller


def watched(process: subprocess.Popen[bytes], pids: Sequence[int], also: int | None = None) -> tuple[bytes, list[Cost]]:
    """The cost of each of the processes `pids` while all of them run; returns when `process` ends.

    also: a descriptor to keep empty meanwhile; the bytes read from it come first. The start of the processes, with all their imports, is left out
    of the share. CPU time is that of a first thread, and pollers have no other.
    """
    looks: list[list[tuple[int, int, int]]] = []
    data = b""
    while process.poll() is None:
        if also is not None:
            data += _drained(also)
        time.sleep(_WATCH_S)
        try:
            looks.append([(time.monotonic_ns(), _cpu_ns(pid), hwm_bytes(pid)) for pid in pids])
        except (OSError, StopIteration, IndexError):
            continue  # a process has ended: the others poll no more
    return data, [_cost([look[index] for look in looks]) for index in range(len(pids))]


def _cost(looks: list[tuple[int, int, int]]) -> Cost:
    steady = [look for look in looks if look[0] - looks[0][0] > _START_NS] or looks
    (begin_ns, begin_cpu_ns, _), (end_ns, end_cpu_ns, _) = steady[0], steady[-1]
    return Cost((end_cpu_ns - begin_cpu_ns) / max(1, end_ns - begin_ns), max(hwm for _, _, hwm in looks))


def _drained(descriptor: int) -> bytes:
    """All that lies in a descriptor that does not block."""
    data = b""
    try:
        while chunk := os.read(descriptor, 1 << 16):
            data += chunk
    except OSError:
        pass  # nothing more for now; a terminal whose other side is closed says EIO
    return data


def _cpu_ns(pid: int) -> int:
    # /proc/PID/schedstat: time on a CPU in ns, time waited for one, number of time slices
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def hwm_bytes(pid: int) -> int:
    """VmHWM of a process, 0 if it has ended."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(row.split()[1]) * 1024 for row in rows if row.startswith("VmHWM")), 0)


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever happens, the process and its group are gone afterwards, and after LONGEST_S."""

    def end() -> None:
        if process.returncode is not None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    alarm = threading.Timer(LONGEST_S, end)
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()
        if process.poll() is None:
            if process.stdin is not None:
                process.stdin.close()  # a recorder then ends its own tree
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                end()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()
