"""What a killed memprof leaves: its temporary folders are removed, and what it had started is ended, by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from failing import PYTHON, QUICK, processes, runtime_file, script, started, wait_for

from memprof.cache import cache_folder
from memprof.measuring import leftovers, limits
from memprof.programs import lasting

# A memprof that works in a folder and has started a process for it.
WORKS = """
import os, subprocess, sys, time
from memprof.measuring.leftovers import scratch
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


def test_what_a_killed_memprof_worked_in_and_started_is_gone_after_the_next(working):
    process, folder = working
    process.kill()
    process.wait()
    assert folder.exists() and wait_for(lambda: processes("sleep", "613"))

    assert leftovers.end_leftovers() == 1

    assert not folder.exists() and not processes("sleep", "613")
    assert not list(cache_folder("running").glob(f"*{folder.name.rpartition('-')[2]}*"))


def test_a_process_that_takes_a_while_to_end_is_counted_once(working, monkeypatch):
    process, _ = working
    process.kill()
    process.wait()
    kill, asked = psutil.Process.kill, []

    def slow(self):
        asked.append(self.pid)
        if len(asked) > 1:
            kill(self)

    monkeypatch.setattr(psutil.Process, "kill", slow)

    assert leftovers.end_leftovers() == 1 and len(asked) > 1


def test_a_process_in_the_midst_of_a_long_exec_is_waited_for(working, monkeypatch):
    process, _ = working
    process.kill()
    process.wait()
    (sleeping,) = wait_for(lambda: processes("sleep", "613"))
    environment, looks = leftovers._environment, []

    def late(process):
        looks.extend([process.pid] if process.pid == sleeping.pid else [])
        return {} if process.pid == sleeping.pid and len(looks) <= 30 else environment(process)

    monkeypatch.setattr(leftovers, "_environment", late)
    monkeypatch.setattr(leftovers, "_STARTING_S", 0.0)
    monkeypatch.setattr(leftovers, "_YOUNG_S", 600)

    assert leftovers.end_leftovers() == 1 and len(looks) > 30


def test_what_a_memprof_is_working_in_is_left_alone(working):
    _, folder = working
    leftovers.end_leftovers()
    assert folder.exists() and wait_for(lambda: processes("sleep", "613"))


def test_an_interruption_ends_what_was_started_and_removes_the_folder_at_once(working):
    process, folder = working
    process.send_signal(signal.SIGINT)
    process.wait()
    assert not folder.exists() and not processes("sleep", "613")


class Listed:
    """A process of psutil's list, with one environment after another."""

    pid, kills, age_s = 2**22 + 1, 0, 0.0

    def __init__(self, *environments):
        self.environments = list(environments)

    def environ(self):
        return self.environments.pop(0) if len(self.environments) > 1 else self.environments[0]

    def kill(self):
        self.kills += 1

    def uids(self):
        return Mock(effective=os.geteuid())

    def ppid(self):
        return os.getpid()

    def status(self):
        return psutil.STATUS_RUNNING

    def create_time(self):
        return time.time() - self.age_s


@pytest.mark.parametrize(
    ("environments", "age_s", "ended", "kills"),
    [
        (({leftovers.TOKEN: "token"},) * 3 + ({},), 100, 1, 3),  # it takes its time to end
        (({}, {}, {leftovers.TOKEN: "token"}, {}), 0, 1, 1),  # in the midst of its exec at first
        (({}, {leftovers.TOKEN: "token"}), 100, 0, 0),  # one without an environment for long is none that starts
        (({leftovers.TOKEN: "another"},), 0, 0, 0),
    ],
)
def test_a_process_is_ended_as_soon_as_it_is_known_and_counted_once(monkeypatch, environments, age_s, ended, kills):
    process = Listed(*environments)
    process.age_s = age_s
    monkeypatch.setattr(leftovers, "_STARTING_S", 0)
    monkeypatch.setattr(psutil, "process_iter", lambda: [process])
    monkeypatch.setattr(psutil, "wait_procs", lambda *_, **__: None)

    assert (leftovers.end_marked({"token"}), process.kills) == (ended, kills)


@pytest.mark.parametrize("name", ["precious", "memprof-test-{other}", "link"])
def test_a_note_that_names_anything_else_removes_nothing(tmp_path, name):
    token = os.urandom(8).hex()
    precious = tmp_path / (f"memprof-test-{token}" if name == "link" else name.format(other="0" * 16))
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    if name == "link":
        precious.symlink_to(target)
    else:
        precious.mkdir()
    note = cache_folder("running") / token
    note.write_text(f"{2**22} 1 {limits.pid_namespace()}\n{precious}")

    leftovers.end_leftovers()

    assert precious.exists() and (target / "file").exists() and not note.exists()


def test_the_folders_of_a_killed_command_are_removed_by_the_next(tmp_path, scenario, memprof, monkeypatch, nothing_left):
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


def test_the_run_of_a_plan_and_its_folder_do_not_outlive_a_killed_memprof(tmp_path, monkeypatch, memprof, nothing_left):
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


def test_the_conversion_of_a_net_of_the_zoo_does_not_outlive_a_killed_memprof(tmp_path, monkeypatch, nothing_left):
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


def test_inputs_that_a_killed_memprof_was_unpacking_are_removed_and_those_of_a_living_one_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # other tests end leftovers too
    inputs = cache_folder(lasting.INPUTS)
    (inputs / "0123.half").mkdir()
    (inputs / "0123.half" / "0.npy").write_bytes(b"x")
    leftovers.end_leftovers()
    assert not (inputs / "0123.half").exists()

    with lasting.whole(inputs / "4567") as work:
        (work / "0.npy").write_bytes(b"x")
        leftovers.end_leftovers()
    assert (inputs / "4567" / "0.npy").read_bytes() == b"x" and not work.exists()


def test_the_folder_of_a_marked_test_does_not_outlive_a_killed_pytest(tmp_path, monkeypatch, nothing_left):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "test_slow.py").write_text(
        'import time, pytest\n@pytest.mark.peak_rss("1 GiB")\ndef test_slow():\n    open("reached", "w").close()\n    time.sleep(600)\n'
    )
    process = subprocess.Popen([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_for((tmp_path / "reached").exists)
    process.kill()
    process.wait()
    assert list((tmp_path / "tmp").glob("memprof-pytest-*"))

    leftovers.end_leftovers()

    assert not list((tmp_path / "tmp").iterdir())
