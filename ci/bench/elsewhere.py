"""Places for a bench: an OpenSSH server on loopback, and QEMU's boards, both those of the tests, in a folder that goes with them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memprof.campaign import campaign
from memprof.campaign.progress import Silent
from memprof.places import parse
from memprof.places.remote import Remote
from memprof.records.types import Run
from memprof.subjects.order import Order
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite

# The tests' folder is no package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import pytest
from board import booting, making
from support import session_cache, sshd

# Why there is no such place here: the tests' server says so as to pytest.
LACKS = (making.Missing, pytest.skip.Exception, pytest.fail.Exception)


@contextmanager
def loopback() -> Iterator[sshd.Server]:
    """A server on this machine, for this user, with the `ssh` that knows it first on the PATH."""
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as top:
        server = sshd.start(Path(top) / "server")
        try:
            with _first_on_path(server.bin):
                yield server
        finally:
            server.stop()


@contextmanager
def reached(server: sshd.Server, folder: str = "there") -> Iterator[Remote]:
    """That server as a place, whose folder lies beside the server's and whose Python is this one."""
    with parse.remote(server.place, str(server.folder.parent / folder), sys.executable) as place:
        yield place


@contextmanager
def board(python: bool) -> Iterator[Remote]:
    """A board with 2 CPUs as a place."""
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as top:
        os.environ[session_cache.SHARED] = top
        with booting.shared(2, python) as machine:
            client = Path(top) / "bin" / "ssh"
            client.parent.mkdir()
            client.write_text(
                f"#!/bin/sh\nexec /usr/bin/ssh -F none -i {machine.key} -o UserKnownHostsFile={machine.known_hosts}"
                ' -o StrictHostKeyChecking=accept-new "$@"\n'
            )
            client.chmod(0o755)
            with _first_on_path(client.parent), parse.remote(f"ssh:root@{machine.host}:{machine.port}") as place:
                yield place


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


def order(suite: Suite) -> Order:
    """The only order of a suite."""
    (order,) = plan(suite).orders
    return order


def measured(order: Order, progress: campaign.Progress | None = None) -> Run:
    """The Run of an order, whatever its outcome."""
    (run,) = campaign.measure([order], progress or Silent(), lambda line: None)
    return run


def measured_well(order: Order) -> Run:
    """The Run of an order that must succeed."""
    run = measured(order)
    assert run.outcome.ok, run.outcome.sentence
    return run
