"""What a killed memprof leaves: its temporary folders are removed, and what it had started is ended, by the next."""

from __future__ import annotations

import os
import time
from unittest.mock import Mock

import psutil
import pytest

from memprof.base import cache_folders, leftovers, processes
from memprof.base.cache import cache_folder


class Listed:
    """A process of psutil's list, with one environment after another."""

    pid, kills, age_s, title = 2**22 + 1, 0, 0.0, ()

    def __init__(self, *environments):
        self.environments = list(environments)

    def environ(self):
        return self.environments.pop(0) if len(self.environments) > 1 else self.environments[0]

    def cmdline(self):
        return self.title

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
def test_process_ended_once_when_found(monkeypatch, environments, age_s, ended, kills):
    process = Listed(*environments)
    process.age_s = age_s
    monkeypatch.setattr(leftovers, "_STARTING_S", 0)
    monkeypatch.setattr(psutil, "process_iter", lambda: [process])
    monkeypatch.setattr(psutil, "wait_procs", lambda *_, **__: None)

    assert (leftovers.end_marked({"token"}), process.kills) == (ended, kills)


@pytest.mark.parametrize(("environments", "kills"), [(({},), 0), (({}, {leftovers.TOKEN: "token"}, {}), 1)])
def test_process_with_title_is_none_that_starts(monkeypatch, environments, kills):
    process = Listed(*environments)
    process.title = ("sshd: root@notty",)
    monkeypatch.setattr(leftovers.time, "sleep", lambda _: pytest.fail("it is awaited"))
    monkeypatch.setattr(psutil, "process_iter", lambda: [process])
    monkeypatch.setattr(psutil, "wait_procs", lambda *_, **__: None)

    assert (leftovers.end_marked({"token"}), process.kills) == (kills, kills)


@pytest.mark.parametrize("name", ["precious", "memprof-test-{other}", "link"])
def test_note_of_other_path_removes_nothing(tmp_path, name):
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
    note.write_text(f"{2**22} 1 {processes.pid_namespace()}\n{precious}")

    leftovers.end_leftovers()

    assert precious.exists() and (target / "file").exists() and not note.exists()


def test_inputs_half_unpacked_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # other tests end leftovers too
    inputs = cache_folder(cache_folders.INPUTS)
    (inputs / "0123.half").mkdir()
    (inputs / "0123.half" / "0.npy").write_bytes(b"x")
    leftovers.end_leftovers()
    assert not (inputs / "0123.half").exists()

    with cache_folders.whole(inputs / "4567") as work:
        (work / "0.npy").write_bytes(b"x")
        leftovers.end_leftovers()
    assert (inputs / "4567" / "0.npy").read_bytes() == b"x" and not work.exists()
