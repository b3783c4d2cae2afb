"""The scripts of `make attack`: a case of each, and that each sees what is wrong."""

from __future__ import annotations

import dataclasses
import importlib
import signal
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "ci" / "attack"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("sandbox", "kill", "faults", "hostile", "trees"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def script(name):
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("role", "phase", "victim", "number"),
    [
        ("run", "MODEL_LOAD", "memprof", signal.SIGKILL),
        ("exec", "RUN", "child", signal.SIGTERM),
        ("tune", "PREPARE", "memprof", signal.SIGTERM),  # ends with 130 and its proposals
        ("doctor", "any", "memprof", signal.SIGTERM),
        ("merge", "write", "memprof", signal.SIGTERM),  # neither the merged file nor its draft
    ],
)
def test_kill_leaves_only_permitted_state(monkeypatch, role, phase, victim, number):
    kill = script("kill")
    monkeypatch.setattr(kill, "SOON_S", 120.0)
    assert list(kill.tried(kill.Kill(role, phase, victim, number))) == []


def test_kill_detects_exit_code_and_loss(monkeypatch):
    kill = script("kill")
    role = kill.ROLES["run"]
    monkeypatch.setitem(kill.ROLES, "run", dataclasses.replace(role, codes=(0,), words=(*kill._RUN[:-2], "--variant", "slow=./slow.py")))

    wrongs = list(kill.tried(kill.Kill("run", "PREPARE", "child", signal.SIGKILL)))

    assert wrongs == ["exit code 4 and not 0", "the run before the kill is lost"]


def test_doors_cover_every_command():
    from memprof.cli import group

    doors = {words[0] for words in script("faults").DOORS.values()}
    assert doors | {"clean", "worker", "fleet"} >= set(group.listed) >= doors  # those need another machine, or a scheduler


def test_faults_pass_and_torn_file_detected(tmp_path):
    faults, sandbox = script("faults"), script("sandbox")
    with sandbox.place() as template:
        usual = faults.usually(template, "zoo")
        for name in ("no-home", "closed-output", "addresses-30MiB"):
            assert list(faults.tried(template, "zoo", faults.FAULTS[name], usual)) == [], name
    torn = tmp_path / "runs.jsonl"
    torn.write_bytes(b'{"schema":1')
    assert faults.torn(torn, None) is not None


@pytest.mark.long
def test_hostile_files_bounded_and_slowness_detected(monkeypatch):
    hostile, sandbox = script("hostile"), script("sandbox")
    with sandbox.place() as place:
        record = hostile.prepared(place)
        every = list(hostile.cases(record, next((place.work / "history").iterdir()).read_bytes()))
        many = next(case for case in every if "100,000 repeats" in case.kind and "check" in case.words)
        bombs = [case for case in every if "unpacks" in case.kind and case.words[0] in ("trace", "page")]
        small = [case for case in every if "small model" in case.kind]
        stranger = next(hostile.strangers(record))
        # The attack allows a second. A process takes more of the CPUs' time when others use them too, and far more if a bound is gone.
        monkeypatch.setattr(hostile, "MOST_TO_REFUSE_S", 5.0)
        assert (len(bombs), len(small)) == (2, 2)
        for case in (*bombs, *small, stranger, many):
            assert hostile.tried(place, case).wrongs == (), case
        monkeypatch.setattr(hostile, "MOST_TO_REFUSE_S", 0.0)
        monkeypatch.setattr(hostile, "MOST_BYTES", 1 << 20)
        slow, large = hostile.tried(place, stranger).wrongs
        assert slow.startswith("it takes ") and slow.endswith(" s") and large.endswith(" MiB")


def test_trees_judge_missed_and_wide_sums(capsys):
    trees = script("trees")
    held = trees.CASES["fork"][0]
    row, good = trees.judged("fork", 0, [(held, held + 1.0)] * 20, False)
    assert good and row[2:5] == ("20", "20", "20")
    row, good = trees.judged("fork", 0, [(held, held + 1.0)] * 19 + [(held * 2.0, held * 2.1)], False)
    assert not good and row[2:5] == ("20", "19", "20")
    row, good = trees.judged("fork", 0, [(held, held * 1.5)] * 20, False)
    assert not good and row[2:5] == ("20", "20", "0")
