"""What goes wrong on a board: a clock that jumps, a shell that forks the program away, and memory that runs out."""

from __future__ import annotations

from pathlib import Path

from conftest import Memprof
from support import recorder_runs

from .booting import Board
from .test_places import MIB, Words, on, reach  # noqa: F401  (the fixtures)


def test_clock_jump_without_effect(memprof: Memprof, on: Words, tmp_path: Path) -> None:
    day = 86400
    jump = f"sleep 0.3; date -s @$(($(date +%s) + {day})); sleep 0.3; date -s @$(($(date +%s) - {day}))"

    done = memprof("exec", *on, "-o", "r.jsonl", "--", "sh", "-c", jump)

    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    (mark,) = run["marks"]
    assert 600 <= (mark["end_ns"] - mark["begin_ns"]) / 1e6 < day * 1000 / 2


def test_program_forked_by_shell_measured(memprof: Memprof, on: Words, tmp_path: Path) -> None:
    # dd holds its block until nobody reads any more.
    done = memprof("exec", *on, "-o", "r.jsonl", "--", "sh", "-c", "dd if=/dev/zero bs=8M count=1 | sleep 2; true")

    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert run["marks"][0]["rss_peak_bytes"] >= 8 * MIB
    assert len(run["processes"]) == 3


def test_out_of_memory_told_by_kernel(memprof: Memprof, board: Board, on: Words, tmp_path: Path) -> None:
    total_kib = int(board.run("grep MemTotal /proc/meminfo").split()[1])
    most = f"bs={total_kib - 4096}k"  # more than is free, and not more than may be asked for

    with board.memory():
        done = memprof("exec", *on, "-o", "r.jsonl", "--interval", "50ms", "--", "dd", "if=/dev/zero", "of=/dev/null", most, "count=1")

    assert done.returncode == 4, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert (run["outcome"]["signal"], run["outcome"]["out_of_memory"]) == ("SIGKILL", True)
    assert "the kernel killed it for lack of memory" in done.stderr
    assert board.run("echo well") == b"well\n"
