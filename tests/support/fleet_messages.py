"""What the tests of fleet security share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memprof.campaign.fleet.message import PROTOCOL


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"


class Lab:
    """A scheduler that tells what a test wants. submitted: what it was asked to have measured. cancelled: the keys of tasks that were taken back."""

    scheduler = SimpleNamespace(identity=None, get_task_status=None)

    def __init__(self, facts=None, desks=None, told=None, status="running"):
        self.desks, self.status = desks, status
        self.told = told if told is not None else {"workers": {"tcp://a": worker(facts), "tcp://b": worker(OFFERED)}}
        self.submitted, self.cancelled = [], []

    def sync(self, call, **words):
        return self.told

    def get_metadata(self, keys, default):
        return self.desks

    def set_metadata(self, keys, value):
        self.desk = value

    def submit(self, function, data, **words):
        future = SimpleNamespace(key=words["key"], status="pending", add_done_callback=lambda call: None, exception=lambda: None)
        self.submitted.append(SimpleNamespace(future=future, **words))
        return future

    def cancel(self, futures, force):
        self.cancelled += [future.key for future in futures]


def worker(facts):
    """What a scheduler says of a worker with these facts."""
    return {"name": f"{facts['place']} of {facts['host']}", "metrics": {}, "memprof": facts}


OFFERED = {"place": "here", "host": "b", "machine": "b", "labels": {}, "protocol": PROTOCOL, "version": "1"}
