"""What a killed memprof leaves: its temporary folders are removed, and what it had started is ended, by the next."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.recorder_runs import PYTHON, QUICK, processes, runtime_file, script, started, wait_for

from memprof.base import leftovers
from memprof.base.cache import cache_folder

# A memprof that works in a folder and has started a process for it.
WORKS = """
import os, subprocess, sys, time
from memprof.base.leftovers import scratch
with scratch("test") as work:
    (work.folder / "kept.bin").write_bytes(b"x")
    subprocess.Popen(["sleep", "613"], env={**os.environ, **work.variables}, stdout=subprocess.DEVNULL, start_new_session=True)
    print(work.folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def working(tmp_path, monkeypatch, nothing_left):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp é"))
    (tmp_path / "tmp é").mkdir()
    process = subprocess.Popen([sys.executable, "-c", WORKS], stdout=subprocess.PIPE, text=True)
    folder = Path(process.stdout.readline().rstrip("\n"))
    assert (folder / "kept.bin").exists()
    yield process, folder
    process.kill()
    process.wait()
    process.stdout.close()
    leftovers.end_leftovers()


def test_killed_memprof_folder_and_processes_removed(working):
    process, folder = working
    process.kill()
    process.wait()
    assert folder.exists() and wait_for(lambda: processes("sleep", "613"))

    assert leftovers.end_leftovers() == 1

    assert not folder.exists() and not processes("sleep", "613")
    assert not list(cache_folder("running").glob(f"*{folder.name.rpartition('-')[2]}*"))


def test_working_memprof_left_alone(working):
    _, folder = working
    leftovers.end_leftovers()
    assert folder.exists() and wait_for(lambda: processes("sleep", "613"))


def test_interrupted_memprof_cleans_up(working):
    process, folder = working
    process.send_signal(signal.SIGINT)
    process.wait()
    assert not folder.exists() and not processes("sleep", "613")


def test_killed_command_folders_removed(tmp_path, scenario, memprof, monkeypatch, nothing_left):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    slow = runtime_file(tmp_path, execute="time.sleep(600)")
    waits = script(tmp_path / "waits", f'#!/bin/sh\n[ "$2" = run ] || exec {PYTHON} "$@"\nexec sleep 600\n')
    scenario(**QUICK)
    for words in (("tune", "scenario.json", "-r", slow), ("doctor", "--python", waits)):
        with started(tmp_path, *words) as process:
            wait_for(lambda: list((tmp_path / "tmp").glob(f"memprof-{words[0]}-*")))  # noqa: B023  (called before the next)
            process.kill()
            process.wait()
        assert list((tmp_path / "tmp").iterdir())

        memprof("run", "scenario.json", "-r", "synthetic", "--repeats", "1", "--runs", "1", "-o", f"after-{words[0]}.jsonl")

        assert not list((tmp_path / "tmp").iterdir())


# A plan that reads the executed order, from a process that does not end.
PLANS = """
import sys
from pathlib import Path
from memprof.plan import executed
from memprof.plan.graphs.read import read
executed._CHILD = "import time; time.sleep(614)"
executed.onnxruntime_order(read(Path(sys.argv[1])))
"""


def test_killed_plan_run_removed(tmp_path, monkeypatch, memprof, nothing_left):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    assert memprof("zoo", "founding_example", "--format", "onnx", "-o", "model.onnx").returncode == 0
    process = subprocess.Popen([sys.executable, "-c", PLANS, str(tmp_path / "model.onnx")])
    wait_for(lambda: list((tmp_path / "tmp").glob("memprof-plan-*")) and processes("-c", "import time; time.sleep(614)"))
    process.kill()
    process.wait()

    assert leftovers.end_leftovers() == 1

    assert not list((tmp_path / "tmp").iterdir()) and not processes("-c", "import time; time.sleep(614)")


# A net that its runtime's converter makes of another, with a temporary file and a process that does not end.
CONVERTS = """
import os, subprocess, sys
from pathlib import Path
from memprof import zoo
from memprof.programs import runtimes
def convert(runtime, model, folder, variables):
    subprocess.run(["sh", "-c", "mktemp; exec sleep 615"], env={**os.environ, **variables})
runtimes.convert = convert
zoo.make("mnist", Path(sys.argv[1]), format="mnn")
"""


def test_killed_zoo_conversion_removed(tmp_path, monkeypatch, nothing_left):
    pytest.importorskip("onnx", reason="the zoo needs onnx")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen([sys.executable, "-c", CONVERTS, str(tmp_path / "net.mnn")])
    wait_for(lambda: processes("sleep", "615"))
    process.kill()
    process.wait()
    (folder,) = (tmp_path / "tmp").iterdir()
    assert (folder / "mnist.onnx").exists() and len(list(folder.glob("tmp.*"))) == 1

    assert leftovers.end_leftovers() == 1

    assert not folder.exists() and not processes("sleep", "615")


def test_killed_pytest_folder_removed(tmp_path, monkeypatch, nothing_left):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "test_slow.py").write_text(
        'import time, pytest\n@pytest.mark.memprof("1 GiB")\ndef test_slow():\n    open("reached", "w").close()\n    time.sleep(600)\n'
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "memprof.doors.pytest_plugin"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_for((tmp_path / "reached").exists)
    process.kill()
    process.wait()
    assert list((tmp_path / "tmp").glob("memprof-pytest-*"))

    leftovers.end_leftovers()

    assert not list((tmp_path / "tmp").iterdir())
