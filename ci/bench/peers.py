"""Other tools beside memprof: a program runs under mprof or psrecord. Its marks (runners/memprof_marks.py) go to a file, so that phases are known."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memprof.campaign import recorder_client
from memprof.subjects.order import Order

from . import tools

_LONGEST_S = 120
_MARKS_FD = 7
_MIB = 1 << 20


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
MPROF_FASTEST = Peer("mprof", "no pause", ("-T", "0"))
PSRECORD = Peer("psrecord", "no pause")
PSRECORD_1MS = Peer("psrecord", "1 ms", ("--interval", "0.001"))


@dataclass(frozen=True)
class Seen:
    """The resident sets that a peer recorded, in bytes, and the program's marks of the same time."""

    rss: tuple[float, ...]
    marks: tuple[dict[str, Any], ...]

    def mark(self, phase: str) -> dict[str, Any]:
        """The finished phase of that name."""
        return next(mark for mark in self.marks if mark["mark"] == "end" and mark["phase"] == phase)


def require() -> None:
    """Leave with a sentence where a peer is not installed."""
    missing = [tool for tool in ("mprof", "psrecord") if tools.installed(tool) is None]
    if missing:
        raise SystemExit(f"bench: {' and '.join(missing)} not installed here: {sys.executable} -m pip install memory-profiler psrecord")


def program(order: Order) -> Program:
    """The child that memprof starts for an order."""
    start = recorder_client.message(order, set(), "bench").start
    return Program(tuple(start.argv), start.stdin.encode(), {key: value for key, value in start.env.items() if value is not None})


def under(peer: Peer, measured: Program) -> Seen:
    """Run the program under a peer. Raises SystemExit where it does not come to its end."""
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as name:
        folder = Path(name)
        job, marks, log = folder / "job", folder / "marks", folder / "log"
        job.write_bytes(measured.stdin)
        marks.touch()
        status = marks.stat()
        # The shell is replaced by the program, so that the process the peer started is the one to measure.
        line = f"exec {shlex.join(measured.argv)} <{shlex.quote(str(job))} {_MARKS_FD}>>{shlex.quote(str(marks))}"
        own = ("run", "--output", str(log), *peer.options, "sh", "-c") if peer.tool == "mprof" else (*peer.options, "--log", str(log))
        subprocess.run(
            [tools.script(peer.tool), *own, line],
            env={**os.environ, **measured.env, "MEMPROF_MARKS": f"{_MARKS_FD}:{status.st_dev}:{status.st_ino}"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LONGEST_S,
            check=False,
        )
        told = tuple(json.loads(line) for line in marks.read_text().splitlines())
        if not told or told[-1]["mark"] != "done":
            raise SystemExit(f"bench: the program under {peer.tool} did not come to its end: {told[-1] if told else 'it wrote no marks'}")
        return Seen((_mprof_log if peer.tool == "mprof" else _psrecord_log)(log), told)


def _mprof_log(path: Path) -> tuple[float, ...]:
    """Resident sets in bytes of lines `MEM MIB UNIX_TIME`."""
    return tuple(float(line.split()[1]) * _MIB for line in path.read_text().splitlines() if line.startswith("MEM "))


def _psrecord_log(path: Path) -> tuple[float, ...]:
    """The same of lines `ELAPSED_S CPU_PERCENT RSS_MIB VMS_MIB`; psrecord's MB is 1024 * 1024 bytes."""
    return tuple(float(line.split()[2]) * _MIB for line in path.read_text().splitlines() if not line.startswith("#"))
