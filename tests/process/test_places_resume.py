"""Measuring on another machine by a real ssh connection to a server of the tests' own: going on after it broke, and kernels that hide or refuse."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import need_tool
from support import recorder_runs, sshd
from support.native_programs import built

from memprof import zoo
from memprof.base.runners import runners_path
from memprof.explain import remote
from memprof.programs import runtimes
from memprof.records import store


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.long
def test_campaign_resumes_after_lost_connection(memprof, board, server, scenario, tmp_path):
    model, (runtime, let, begun) = scenario(), recorder_runs.held_runtime(tmp_path)
    path, ssh = tmp_path / "r.jsonl", server.bin / "ssh"
    on = [*board, "--python", sys.executable]
    words = ["run", model, "-r", runtime, *on, "--warmup", "0", "--runs", "1", "--repeats", "4", "-o", "r.jsonl", "--append"]
    client = ssh.read_text()
    let(1)  # and the second stands still
    with recorder_runs.started(tmp_path, *words) as process:
        recorder_runs.wait_for(lambda: lines_of(path) == 1 and begun() == 2)
        ssh.write_text("#!/bin/sh\necho 'ssh: connect to host tv port 22: No route to host' >&2\nexit 255\n")
        server.cut()
        _, errors = process.communicate(timeout=120)
    ssh.write_text(client)
    let(1000)
    assert process.returncode == 5 and "the host cannot be reached from here" in errors
    assert [run["outcome"]["status"] for run in recorder_runs.runs_in(path)] == ["ok", "lost"]

    done = memprof(*words)

    assert done.returncode == 0, done.stderr
    assert f"going on: {path.name} holds 1 run of 4, so 3 are left" in done.stderr
    assert len(recorder_runs.runs_in(path)) == 5
    loaded = store.load([path])
    assert Counter((run.job.repeat, run.outcome.status) for run in loaded.runs) == {(repeat, "ok"): 1 for repeat in (1, 2, 3, 4)}
    assert loaded.warnings == (f"{model.name}: 1 run that was lost is left out; the same was measured again",)


@contextmanager
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, *options: str) -> Iterator[str]:
    """A place whose /proc is mounted by these words."""
    with sshd.reached(tmp_path / "server", monkeypatch, *options, mount=mount) as mounted:
        yield mounted.place


@pytest.mark.parametrize("recorder", ["python", "c"])
def test_peaks_inexact_without_clear_refs(memprof, tmp_path, monkeypatch, recorder):
    """A phase that raises the high-water mark has its own peak all the same; for a smaller one after it only what polling saw is left."""
    (tmp_path / "phases.c").write_text(
        '#include "memprof.h"\nstatic void phase(const char *name, size_t size) { '
        "size_t at; memprof_begin(name); volatile char *area = malloc(size); "
        "for (at = 0; at < size; at += 4096) area[at] = 1; free((void *)area); memprof_end(); }\n"
        'int main(void) { phase("LOAD", 20 << 20); phase("EXECUTE", 5 << 20); return 0; }'
    )
    shutil.copy(built(tmp_path / "phases.c"), tmp_path / "app")
    with proc(tmp_path, monkeypatch, "-o remount,bind,ro /proc") as place:
        words = ["--on", place, "--remote-dir", str(tmp_path / "there"), "--recorder", recorder]
        done = memprof("exec", *words, "-o", "r.jsonl", "--", "./app")
    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert [(mark["phase"], mark["rss_peak_exact"]) for mark in run["marks"]] == [("STARTUP", True), ("LOAD", True), ("EXECUTE", False)]
    assert run["marks"][1]["rss_peak_bytes"] > 20 << 20 > run["marks"][2]["rss_peak_bytes"]
    assert (
        re.search(r"\| +~\d+\.\d+ \|", done.stdout)
        and "~ not exact: the high-water mark was not reset where the phase began" in done.stdout
    )


def test_exec_and_attach_under_hidepid(memprof, tmp_path, monkeypatch):
    """The log-in is turned into one of a user without rights, from whom /proc hides the processes of others."""
    as_nobody = 'ForceCommand exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "$SSH_ORIGINAL_COMMAND"'
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    try:
        with proc(tmp_path, monkeypatch, "-t proc -o hidepid=2 proc /proc", as_nobody) as place:
            words = ["--on", place, "--remote-dir", str(folder / "there")]
            done = memprof(
                "exec", *words, "--recorder", "c", "-o", "r.jsonl", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=30"
            )
            hidden = memprof("attach", os.getpid(), *words)
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert run["marks"][0]["rss_peak_bytes"] > 8 << 20
    assert hidden.returncode == 5
    assert recorder_runs.sentence(hidden).endswith(
        f"there is no process {os.getpid()} on {place}, or hidepid of /proc hides it from this user"
    )


def test_run_under_hidepid(memprof, tmp_path, monkeypatch, scenario):
    """Whoever logs in sees the own processes alone, which are all that a run has."""
    bare = 'ForceCommand exec setpriv --regid=65534 --clear-groups --bounding-set -all --inh-caps -all sh -c "$SSH_ORIGINAL_COMMAND"'
    with proc(tmp_path, monkeypatch, "-t proc -o hidepid=2 proc /proc", bare) as place:
        words = ["--on", place, "--remote-dir", str(tmp_path / "there"), "--python", sys.executable]
        done = memprof("run", scenario(), "-r", "synthetic", *words, "--warmup", "0", "--runs", "1", "--repeats", "1", "-o", "r.jsonl")
    assert done.returncode == 0, done.stderr
    (run,) = store.load([tmp_path / "r.jsonl"]).runs
    assert run.outcome.ok and all(mark.device_peak_bytes == 0 and mark.rss_peak_bytes for mark in run.marks)
    assert not any("devices" in warning for warning in run.warnings)


def test_grow_on_board(memprof, board, tmp_path):
    recorder_runs.runtime_file(tmp_path, top="held = []", execute="held.append(os.urandom(100_000))")
    (tmp_path / "m.json").write_text("{}")

    done = memprof("grow", "m.json", "-r", "./mine.py", *board, "--python", sys.executable, "--budget", "200", "-o", "r.jsonl", "--json")

    assert done.returncode == 1, done.stderr
    assert '"grows"' in done.stdout
    assert list((tmp_path / "there" / "files").rglob("mine.py")), "the runtime was sent"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "m.onnx", "-r", "onnxruntime"], "fit works on this machine only, not on ssh:tv: memprof makes the control groups"),
        (["heap", "record", "m.onnx", "-o", "p"], "heap record works on this machine only, not on ssh:tv: the profiler must be installed"),
    ],
)
def test_local_command_refusals(memprof, words, said):
    done = memprof(*words, "--on", "ssh:tv")
    assert done.returncode == 2
    assert recorder_runs.sentence(done).startswith(f"memprof: {said}")


def test_grow_call_sites_refused(memprof, board, tmp_path):
    (tmp_path / "m.json").write_text("{}")
    done = memprof("grow", "m.json", "-r", "synthetic", "--who", *board, "--python", sys.executable)
    assert done.returncode == 2
    assert "--who, which records with memray or heaptrack, works on this machine only, not on ssh:" in recorder_runs.sentence(done)


TWICE = """
import numpy

class Runtime:
    version = "1"
    def load(self, model, options):
        self.kept = numpy.random.default_rng(0).standard_normal((1000, 1500)).astype("f4")
        self.turned = numpy.ascontiguousarray(self.kept.T)
    def prepare(self): pass
    def execute(self): pass
"""


def test_explain_on_board(memprof, board, tmp_path, nothing_left):
    """The program that looks has nothing of memprof but what is sent: its folder hides the memprof of the interpreter."""
    onnx = pytest.importorskip("onnx")
    values = np.random.default_rng(0).standard_normal((1000, 1500)).astype("f4")
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(values, "w")])), tmp_path / "n.onnx"
    )
    (tmp_path / "mine.py").write_text(TWICE)

    done = memprof("explain", "n.onnx", "-r", "./mine.py", "--warmup", "0", *board, "--python", sys.executable, "--json")

    assert done.returncode == 0, done.stderr
    explained = json.loads(done.stdout)
    assert explained["phases"][-1]["beyond_one_bytes"] == values.nbytes
    assert {held["layout"]: held["copies"] for held in explained["phases"][-1]["held"]} == {"as stored": 1, "transposed": 1}
    ends = [phase for phase in explained["phases"] if "/" not in phase["name"]]  # inside MODEL_LOAD numpy holds the values in another type
    assert all(phase["slices"][-1]["bytes"] < 0.05 * phase["rss_bytes"] for phase in ends)
    assert list((tmp_path / "there" / "sources").glob("looker-*"))


def test_explain_refused_before_measuring(memprof, board, scenario, tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", symlinks=True)
    words = ["explain", scenario(), "-r", "synthetic", *board, "--python"]
    bare = memprof(*words, tmp_path / "bare" / "bin" / "python")
    program = memprof("explain", *board, "--python", tmp_path / "bare" / "bin" / "python", "--", "sleep", "1")
    monkeypatch.setattr(remote, "PAGE", 4 * remote.PAGE)
    other = memprof(*words, sys.executable)

    assert (bare.returncode, program.returncode, other.returncode) == (5, 5, 5)
    for done in (bare, program):
        assert done.stderr.splitlines()[-1].endswith("it has no numpy, which looking at a process there needs")
    assert re.search(r"has pages of \d+ KiB, and this machine of \d+ KiB", other.stderr.splitlines()[-1])
    assert not any("measuring it" in done.stderr for done in (bare, program, other))


def test_native_runner_sent_to_board(memprof, board, tmp_path):
    """As docs/any-program.md compiles it; the library is the one of the wheel, by its path on the machine there."""
    need_tool("gcc")
    pytest.importorskip("onnx", reason="the zoo needs onnx")
    runtime = runtimes.find("onnxruntime-native", sys.executable)
    if runtime.library is None:
        pytest.skip("onnxruntime is not installed")
    source = runners_path() / "native" / "onnxruntime_runner.c"
    subprocess.run(["gcc", "-O2", source, "-o", tmp_path / "runner", "-ldl"], check=True)
    zoo.make("mnist", tmp_path / "net.onnx", format="onnx")

    done = memprof(
        "run", "net.onnx", "--cmd", f"native=./runner {shlex.quote(runtime.library)} {{model}} warmup={{warmup}} runs={{runs}}", *board,
        "--warmup", "1", "--runs", "3", "--repeats", "1", "-o", "r.jsonl",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert [mark["phase"] for mark in run["marks"]][:5] == ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE"]
    assert len(run["marks"][4]["times_ns"]) == 3
    assert str(tmp_path / "there") in run["job"]["argv"][0]
