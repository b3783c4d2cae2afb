"""What goes wrong on a board: a clock that jumps, a shell that forks the program away, and memory that runs out."""

from __future__ import annotations

from pathlib import Path

import failing
from conftest import Memprof

from .booting import Board
from .test_places import MIB, Words, on, reach  # noqa: F401  (the fixtures)


def test_a_clock_that_jumps_changes_no_time(memprof: Memprof, on: Words, tmp_path: Path) -> None:  # noqa: F811
    day = 86400
    jump = f"sleep 0.3; date -s @$(($(date +%s) + {day})); sleep 0.3; date -s @$(($(date +%s) - {day}))"

    done = memprof("exec", *on, "-o", "r.jsonl", "--", "sh", "-c", jump)

    assert done.returncode == 0, done.stderr
    (run,) = failing.runs_in(tmp_path / "r.jsonl")
    (mark,) = run["marks"]
    assert 600 <= (mark["end_ns"] - mark["begin_ns"]) / 1e6 < day * 1000 / 2


def test_the_program_is_measured_and_not_the_shell_that_forks_it_away(memprof: Memprof, on: Words, tmp_path: Path) -> None:  # noqa: F811
    # dd holds its block until nobody reads any more.
    done = memprof("exec", *on, "-o", "r.jsonl", "--", "sh", "-c", "dd if=/dev/zero bs=8M count=1 | sleep 2; true")

    assert done.returncode == 0, done.stderr
    (run,) = failing.runs_in(tmp_path / "r.jsonl")
    assert run["marks"][0]["rss_peak_bytes"] >= 8 * MIB
    assert len(run["processes"]) == 3


def test_memory_that_runs_out_is_said_from_the_kernel_s_words(memprof: Memprof, board: Board, on: Words, tmp_path: Path) -> None:  # noqa: F811
    total_kib = int(board.run("grep MemTotal /proc/meminfo").split()[1])
    most = f"bs={total_kib - 4096}k"  # more than is free, and not more than may be asked for

    with board.memory():
        done = memprof("exec", *on, "-o", "r.jsonl", "--interval", "50ms", "--", "dd", "if=/dev/zero", "of=/dev/null", most, "count=1")

    assert done.returncode == 4, done.stderr
    (run,) = failing.runs_in(tmp_path / "r.jsonl")
    assert (run["outcome"]["signal"], run["outcome"]["out_of_memory"]) == ("SIGKILL", True)
    assert "the kernel killed it for want of memory" in done.stderr
    assert board.run("echo well") == b"well\n"
