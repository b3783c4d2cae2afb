"""adb's own client and server to the board: an adbd of the tests' own hands its commands to the board's shell."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Memprof, Scenario
from support import adbd, recorder_runs
from support.adb_device import plugged, server, tools  # noqa: F401  (the fixtures)

from memprof.base.errors import InputError
from memprof.programs import recorder_build

from .booting import Board
from .making import CACHE
from .test_probe import MIB, compiled

pytestmark = pytest.mark.xdist_group("adb")  # one worker makes what its tests share

# A stand-in for onert's own program: it reads the model, makes ready, and runs so often. Its phases are lines of its output.
NNPACKAGE_RUN = """
    int runs = 0, at, file, got;
    char *weights, *arena;
    for (at = 1; at < count; ++at) {
        if (!strcmp(words[at], "-r")) runs = atoi(words[at + 1]);
        if (!strcmp(words[at], "--nnpackage")) {
            if ((file = open(words[at + 1], O_RDONLY)) < 0) return 3;
            weights = hold(24 * MIB);
            while ((got = (int)read(file, weights, 1 << 20)) > 0) {}
        }
    }
    puts("model loaded"); fflush(stdout);
    usleep(300000);
    arena = hold(8 * MIB);
    puts("prepared"); fflush(stdout);
    usleep(300000);
    for (at = 0; at < runs; ++at) { arena[at] = 1; usleep(30000); }
    printf("%d runs\\n", runs); fflush(stdout);
    usleep(300000);
"""


@pytest.fixture
def device(board: Board, plugged: Callable[..., adbd.Device], monkeypatch: pytest.MonkeyPatch) -> Iterator[adbd.Device]:
    """The board as adb's client sees it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE / "programs"))
    try:
        recorder_build.built("aarch64")
    except InputError as reason:
        pytest.skip(str(reason))
    yield plugged(lambda text: [*board.ssh, text])
    board.run("rm -rf /data")


@pytest.mark.long
def test_model_run_by_device_program(
    memprof: Memprof,
    board: Board,
    device: adbd.Device,
    scenario: Scenario,
    tmp_path: Path,
) -> None:
    program, there = tmp_path / "nnpackage_run", "/data/local/tmp/nnpackage_run"
    program.write_bytes(compiled(NNPACKAGE_RUN))
    program.chmod(0o755)
    pushed = subprocess.run(["adb", "-s", device.serial, "push", program, there], capture_output=True, text=True, timeout=240, check=False)
    assert "1 file pushed" in pushed.stdout, pushed

    phases = [
        f"--phase-regex={phase}={line}" for phase, line in (("load", "^model loaded"), ("prepare", "^prepared"), ("execute", "^10 runs"))
    ]
    command = f"{there} --nnpackage {{model}} -r {{runs}}"
    words = ("--cmd", command, "--on", f"adb:{device.serial}", *phases, "--runs", "10", "--repeats", "1")
    done = memprof("run", scenario("a model.tflite", load="weights"), *words, "-o", "r.jsonl")

    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert (run["machine"]["name"], run["machine"]["arch"], run["outcome"]["status"]) == ("board", "aarch64", "ok")
    peaks = {mark["phase"]: mark["rss_peak_bytes"] for mark in run["marks"]}
    assert 24 * MIB <= peaks["MODEL_LOAD"] < 27 * MIB and 32 * MIB <= peaks["EXECUTE"] < 35 * MIB, peaks

    failed = memprof("exec", "--on", f"adb:{device.serial}", "-o", "f.jsonl", "--", there, "--nnpackage", "/none")
    assert failed.returncode == 4, failed.stderr
    assert recorder_runs.runs_in(tmp_path / "f.jsonl")[0]["outcome"]["exit_code"] == 3
