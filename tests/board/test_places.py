"""memprof's commands against a board by ssh: dropbear and busybox without Python, and a board with Debian's Python."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Memprof, Scenario
from support import recorder_runs

from memprof.base.counter_bounds import peak_bound
from memprof.base.errors import InputError
from memprof.programs import recorder_build

from .booting import Board
from .making import CACHE

MIB = 1 << 20
Words = list[str]


@pytest.fixture
def reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Board], Words]]:
    """reach(board) -> the words of a command that measures there, in a folder of the test's own. The ssh of the PATH knows the board's key."""
    reached = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE / "programs"))  # where the recorder for the board is kept once it is compiled

    def words(there: Board) -> Words:
        there.run("true")  # the client takes the board's key
        lines = (f"IdentityFile {there.key}", "IdentitiesOnly yes", "IdentityAgent none", f"UserKnownHostsFile {there.known_hosts}")
        (tmp_path / "client").write_text("\n".join((*lines, "GlobalKnownHostsFile /dev/null")) + "\n")
        client = tmp_path / "bin" / "ssh"
        client.parent.mkdir()
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/client "$@"\n')
        client.chmod(0o755)
        monkeypatch.setenv("PATH", str(client.parent), prepend=":")
        folder = f"/tmp/there-{tmp_path.name}"
        reached.append((there, folder))
        return ["--on", f"ssh:root@{there.host}:{there.port}", "--remote-dir", folder]

    yield words
    for there, folder in reached:
        there.run(f"rm -rf {folder}")


@pytest.fixture
def on(board: Board, reach: Callable[[Board], Words]) -> Words:
    """The words of a command that measures on the board without Python."""
    words = reach(board)
    try:
        recorder_build.built("aarch64")
    except InputError as reason:
        pytest.skip(str(reason))
    return words


def test_program_measured_and_files_removed(memprof: Memprof, board: Board, on: Words, tmp_path: Path) -> None:
    done = memprof("exec", *on, "-o", "r.jsonl", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=30")
    assert done.returncode == 0, done.stderr

    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert (run["outcome"]["status"], run["machine"]["name"], run["machine"]["arch"]) == ("ok", "board", "aarch64")
    assert run["job"]["program"]["path"] == "/bin/dd" and run["job"]["program"]["sha256"]
    (mark,) = run["marks"]
    assert 8 * MIB <= mark["rss_peak_bytes"] < 11 * MIB, "dd holds a block"
    assert b"lease" not in board.run(f"ls {on[-1]}")

    assert re.search(r"[1-9].* KiB were removed on ssh:root@", memprof("clean", *on).stdout)
    assert board.run(f"ls -A {on[-1]}") == b""


def test_model_sent_to_program_with_phases(memprof: Memprof, scenario: Scenario, on: Words, tmp_path: Path) -> None:
    app, model = tmp_path / "app", scenario("a model's.json", load="weights")
    app.write_text('#!/bin/sh\nsleep 0.4; echo loaded\nsleep 0.4; grep -q weights "$1" && echo ran\nsleep 0.2\n')
    app.chmod(0o755)
    phases = ("--phase-regex", "load=^loaded$", "--phase-regex", "execute=^ran$")
    done = memprof("run", model, "--cmd", "./app {model}", *phases, *on, "--repeats", "1", "-o", "r.jsonl")
    assert done.returncode == 0, done.stderr

    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    told = [mark["phase"] for mark in run["marks"]]
    assert run["outcome"]["status"] == "ok" and told.index("MODEL_LOAD") < told.index("EXECUTE"), run
    assert "MODEL_LOAD" in done.stdout


def test_attach_to_process_on_board(memprof: Memprof, board: Board, on: Words, tmp_path: Path) -> None:
    pid = board.run("sleep 300 > /dev/null 2>&1 < /dev/null & echo $!").decode().strip()
    try:
        done = memprof("attach", pid, "--for", "300ms", *on, "-o", "r.jsonl")
    finally:
        board.run(f"kill {pid}")
    assert done.returncode == 0, done.stderr

    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert run["job"]["argv"] == ["sleep", "300"] and run["job"]["program"]["path"] == "/bin/busybox"
    (mark,) = run["marks"]
    # Its kernel adds a thread's pages to the sum late: statm and the high-water mark say 4 KiB of so small a process, smaps_rollup all of it.
    assert run["outcome"]["status"] == "ok" and mark["rss_peak_bytes"] >= mark["rss_end_bytes"] > 0
    assert mark["rss_begin_bytes"] > 64 << 10  # so that its peak is told too if it is killed before its end can be read


def test_doctor_without_python(memprof: Memprof, on: Words) -> None:
    done = memprof("doctor", *on, "--json")
    assert done.returncode == 0, done.stderr

    report = json.loads(done.stdout)
    checks = {check["name"]: check["state"] for check in report["checks"]}
    assert (checks["high-water mark"], checks["smaps_rollup"], checks["recorder"]) == ("ok", "ok", "limited")
    assert report["peak_exact"] and report["polling"]["polls"] > 0 and report["failure"] is None
    # the bound of its kernel, which is not this machine's
    assert report["machine"]["peak_bound_bytes"] == peak_bound("6.1.0", 4096, 2, 2)
    # 8 MiB if other tests have taken most of its memory
    exact = r"^peaks of programs are exact to 4\.19 MiB for each thread here"
    assert re.search(exact + r" \(a program that holds (100|8)\.0 MiB was measured with", report["verdict"])


def test_model_needs_interpreter_on_board(memprof: Memprof, scenario: Scenario, on: Words) -> None:
    for words in (("runtimes",), ("run", scenario(load=[]), "-r", "synthetic")):
        done = memprof(*words, *on)
        assert (
            done.returncode == 5
            and "has no python3 on its PATH; python in a suite, or --python, names an interpreter there" in recorder_runs.sentence(done)
        )


@pytest.mark.long
def test_model_runs_in_interpreter_on_board(
    memprof: Memprof, scenario: Scenario, wide_board: Board, reach: Callable[[Board], Words], tmp_path: Path
) -> None:
    on = [*reach(wide_board), "--python", "/usr/bin/python3.11"]
    model = scenario(load=[{"allocate": "weights", "bytes": 8 * MIB}])
    done = memprof("run", model, "-r", "synthetic", *on, "--repeats", "1", "--runs", "2", "--interval", "20ms", "-o", "r.jsonl")
    assert done.returncode == 0, done.stderr

    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert (run["outcome"]["status"], run["machine"]["arch"], run["job"]["python"]) == ("ok", "aarch64", "/usr/bin/python3.11")
    load = next(mark for mark in run["marks"] if mark["phase"] == "MODEL_LOAD")
    assert load["rss_peak_exact"] and load["rss_end_bytes"] - load["rss_begin_bytes"] >= 8 * MIB

    listed = memprof("runtimes", *on)
    assert listed.returncode == 0, listed.stderr
    assert re.search("^synthetic  1  ", listed.stdout, re.M) and re.search("^tflite  not installed", listed.stdout, re.M)
