"""What the tests of fleet security share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memprof.fleet import membership
from memprof.fleet.message import PROTOCOL, Sent, Task


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(membership, "_LOOK_S", 0.01)
    return tmp_path


HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"


def asked(name="m/hello"):
    return Task("c", 1, "t", "me", {}, (Sent(name, "/there/hello", HELLO, 5),), None)


class Lab:
    """A scheduler that tells what a test wants."""

    scheduler = SimpleNamespace(identity=None)

    def __init__(self, facts=None, desks=None, told=None, status="running"):
        self.desks, self.status = desks, status
        self.told = told or {"workers": {"tcp://a": {"memprof": facts}, "tcp://b": {"memprof": OFFERED}}}

    def sync(self, call, **words):
        return self.told

    def get_metadata(self, keys, default):
        return self.desks

    def cancel(self, futures, force):
        self.cancelled = futures


OFFERED = {"place": "here", "host": "b", "machine": "b", "labels": {}, "protocol": PROTOCOL, "version": "1"}
