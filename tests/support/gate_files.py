"""What the tests of gate files share."""

from __future__ import annotations

import signal
import subprocess

import pytest

from memprof.doors.cli import main
from memprof.records import store
from memprof.verdicts import baseline
from support.sample_runs import runs

STEADY = (0, 0.1, 0.2, 0.3, 0.4)


def write(path, *groups):
    path.write_bytes(b"".join(store.encode(run) for group in groups for run in group))
    return path


@pytest.fixture
def memprof(tmp_path, monkeypatch, capsys):
    """memprof as a command in the test's folder, in this process: it starts no other."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def call(*words):
        with pytest.raises(SystemExit) as end:
            main(list(words))
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(words, end.value.code, out, err)

    yield call
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def files(tmp_path):
    """base.jsonl, head.jsonl (10 MiB more), and base.json made of the first."""
    write(tmp_path / "base.jsonl", runs())
    write(tmp_path / "head.jsonl", runs(extra_mib=[10 + extra for extra in STEADY]))
    baseline.update(tmp_path / "base.json", baseline.entries(runs()))
    return tmp_path
