"""Attacks: some cases of each table of tests/support/attacks/, and that each sees what is wrong. ci/attack.py tries all of them."""

from __future__ import annotations

import dataclasses
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import made_recorder_build
from support.attacks import buffers, faults, hostile, kills, sandbox, trees
from support.examples import tried

from memprof import zoo
from memprof.records.types import DeviceKind, Mark


@pytest.mark.parametrize(
    ("role", "phase", "victim", "number"),
    [
        ("run", "MODEL_LOAD", "memprof", signal.SIGKILL),
        ("run", kills.CONVERT, "memprof", signal.SIGTERM),
        ("exec", "RUN", "child", signal.SIGTERM),
        ("tune", "PREPARE", "memprof", signal.SIGTERM),  # ends with 130 and its proposals
        ("doctor", kills.ANY, "memprof", signal.SIGTERM),
        ("merge", kills.WRITE, "memprof", signal.SIGTERM),  # neither the merged file nor its draft
    ],
)
def test_kill_leaves_only_permitted_state(monkeypatch, role, phase, victim, number):
    monkeypatch.setattr(kills, "SOON_S", 120.0)
    assert list(kills.tried(kills.Kill(role, phase, victim, number))) == []


def test_kill_detects_exit_code_and_loss(monkeypatch):
    role = kills.ROLES["run"]
    monkeypatch.setitem(kills.ROLES, "run", dataclasses.replace(role, codes=(0,), words=(*kills._RUN[:-2], "--variant", "slow=./slow.py")))

    wrongs = list(kills.tried(kills.Kill("run", "PREPARE", "child", signal.SIGKILL)))

    assert wrongs == ["exit code 4 and not 0", "the run before the kill is lost"]


def test_doors_cover_every_command():
    from memprof.doors.cli import group

    doors = {words[0] for words in faults.DOORS.values()}
    assert doors | {"clean", "worker", "fleet"} >= set(group.listed) >= doors  # those need another machine, or a scheduler


@pytest.fixture(scope="module")
def template():
    with sandbox.place() as place:
        yield place


@pytest.mark.parametrize(
    ("door", "names"),
    [
        ("run", ("closed-input", "closed-output", "closed-error", "all-closed", "full-cache")),
        ("zoo", ("no-home", "closed-output", "addresses-30MiB")),
    ],
)
def test_door_bears_faults(template, door, names):
    results = dict(faults.tried_at(template, door, names))

    assert {name: wrongs for name, wrongs in results.items() if wrongs} == {}
    assert set(results) | {"full-cache"} >= set(names)  # only root can fill a disk


def test_torn_output_detected(tmp_path):
    torn = tmp_path / "runs.jsonl"
    torn.write_bytes(b'{"schema":1')
    assert faults.torn(torn, None) is not None


hostile_files = pytest.mark.xdist_group("hostile_files")  # one worker makes what its tests share


@pytest.fixture(scope="module")
def hostile_place():
    """A place, and the cases by their kind."""
    with sandbox.place() as place:
        yield place, hostile.prepared(place)


@hostile_files
@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("a timeline that unpacks to 760 MiB", "trace"),
        ("a small model of a large tensor", "plan"),
        ("a history of 100,000 repeats", "history"),
    ],
)
def test_hostile_files_bounded(hostile_place, monkeypatch, kind, command):
    place, cases = hostile_place
    # The attack allows a second. A process takes more of the CPUs' time when others use them too, and far more if a bound is gone.
    monkeypatch.setattr(hostile, "MOST_TO_REFUSE_S", 5.0)
    case = next(case for case in cases if case.kind == kind and case.words[0] == command)

    assert hostile.tried(place, case).wrongs == ()


@pytest.fixture
def bounded():
    """The test's process gets so much more memory at most: what reads without an end fails, and takes nothing from others."""
    pages, limits = int(Path("/proc/self/statm").read_text().split()[0]), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 29), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def test_hostile_heap_profiles_bounded(memprof, tmp_path, bounded):
    wrong = []
    for case in hostile.profiles():
        (tmp_path / case.name).write_bytes(case.content)
        begin_s = time.process_time()
        done = memprof(*case.words)
        refused = done.returncode == 5 and done.stderr.startswith("memprof: ") and done.stderr.count("\n") == 1
        refused = refused and not re.search("too little memory|Cannot allocate memory", done.stderr)  # it took all that there was
        if not (done.returncode == 0 or refused) or (tmp_path / "executed").exists() or time.process_time() - begin_s > 10:
            wrong.append(f"{case}: {done.returncode} {done.stderr[-300:]}")

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("words", hostile._READ_DEVICE, ids=" ".join)
def test_device_without_end_refused(memprof, tmp_path, bounded, words):
    zoo.make("founding_example", tmp_path / "small.onnx", format="onnx")

    done = memprof(*words)

    assert (done.returncode, done.stderr.count("\n")) == (5, 1) and done.stderr.startswith("memprof: "), done.stderr


@hostile_files
def test_hostile_slowness_and_size_detected(hostile_place, monkeypatch):
    place, cases = hostile_place
    monkeypatch.setattr(hostile, "MOST_TO_REFUSE_S", 0.0)
    monkeypatch.setattr(hostile, "MOST_BYTES", 1 << 20)

    slow, large = hostile.tried(place, cases[0]).wrongs

    assert slow.startswith("it takes ") and slow.endswith(" s") and large.endswith(" MiB")


def test_trees_judge_missed_and_wide_sums():
    held, _ = trees.truth("fork")
    assert trees.judged("fork", [(held, held + 1.0)] * 20) == (20, 20, True)
    assert trees.judged("fork", [(held, held + 1.0)] * 19 + [(held * 2.0, held * 2.1)]) == (19, 20, False)
    assert trees.judged("fork", [(held, held * 1.5)] * 20) == (20, 0, False)


@pytest.mark.parametrize("kind", buffers.KINDS)
@pytest.mark.parametrize("seed", tried(range(3)))
def test_tree_counts_each_buffer_once(kind, seed):
    if kind == "c":
        made_recorder_build()
    assert buffers.tried(seed, kind) == []


def test_buffers_judge_double_and_missed_ones():
    mark = Mark("P0", 0, 1, None, False, device_peak_bytes=9, device_end_bytes=7, devices=(DeviceKind("memfd", 9, 7, 2),))
    assert list(buffers.judged(buffers.Phase((), 7, 2, 9), mark)) == []
    assert len(list(buffers.judged(buffers.Phase((), 6, 2, 8), mark))) == 2  # a buffer of a byte was counted twice
    assert len(list(buffers.judged(buffers.Phase((), 7, 3, 10), mark))) == 1
    assert list(buffers.judged(buffers.Phase((), 0, 0, 0), None)) == ["a phase without figures"]


def test_attack_script_counts_cases(tmp_path):
    """One case through the script, which prints its counts."""
    script = Path(__file__).resolve().parents[2] / "ci" / "attack.py"
    done = subprocess.run([sys.executable, script, "faults", "--only", "no-home, marks"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "no-home, marks: right" in done.stderr
    assert [line.split() for line in done.stdout.splitlines()[-1:]] == [["|", "all", "|", "1", "|", "1", "|"]]
