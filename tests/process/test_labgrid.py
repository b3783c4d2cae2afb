"""Measuring at a place of a labgrid coordinator: labgrid's own, with an ssh server of the tests' own as the board."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import lab, recorder_runs
from support.recorder_runs import refused

from memprof.base.errors import InputError
from memprof.places import labgrid, parse, ssh

pytestmark = pytest.mark.xdist_group("labgrid")  # one worker makes what its tests share

NAME = f"labgrid:{lab.PLACE}"


@pytest.fixture(scope="module")
def shelf(server, tmp_path_factory) -> Iterator[lab.Lab]:
    with lab.running(tmp_path_factory.mktemp("lab"), getpass.getuser(), server.port) as shelf:
        yield shelf


@pytest.fixture
def words(server, shelf, tmp_path, monkeypatch) -> list[str]:
    """The words of a command that measures at the place."""
    monkeypatch.setenv("PATH", os.pathsep.join((str(server.bin), os.environ["PATH"], str(shelf.bin))))
    for name, value in shelf.variables.items():
        monkeypatch.setenv(name, value)
    return ["--on", NAME, "--remote-dir", str(tmp_path / "there")]


def test_place_acquired_and_released(memprof, words, shelf, tmp_path):
    done = memprof("exec", *words, "-o", "r.jsonl", "--", "/bin/sh", "-c", "exit 0")
    assert done.returncode == 0, done.stderr
    assert recorder_runs.runs_in(tmp_path / "r.jsonl")[0]["outcome"]["status"] == "ok"
    assert shelf.holder() == "None"


def test_place_held_while_used(words, shelf, tmp_path):
    with pytest.raises(InputError, match="no luck"), parse.reached(NAME, str(tmp_path / "there")):
        assert shelf.holder() == f"{os.uname().nodename}/{getpass.getuser()}"
        raise InputError("no luck")
    assert shelf.holder() == "None"


@pytest.mark.usefixtures("nothing_left")
def test_place_released_after_interrupt(words, shelf, tmp_path):
    with recorder_runs.started(tmp_path, "exec", *words, "--", "sleep", "7005") as process:
        recorder_runs.wait_for(lambda: (tmp_path / "there" / "lease").exists())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130 and shelf.holder() == "None"


def test_place_of_user_stays_acquired(words, shelf, tmp_path):
    shelf.client("acquire")
    try:
        with parse.reached(NAME, str(tmp_path / "there")) as place:
            assert place.machine().name == os.uname().nodename
        assert shelf.holder() == f"{os.uname().nodename}/{getpass.getuser()}"
    finally:
        shelf.client("release")


def test_place_of_other_user_refused(memprof, words, shelf):
    shelf.client("acquire", user="ann")
    try:
        said = refused(memprof("exec", *words, "--", "true"))
    finally:
        shelf.client("release", user="ann")
    assert said == f"memprof: {NAME}: the place is acquired by desk/ann; labgrid gives it to one user at a time"


def test_place_released_meanwhile(words, shelf, tmp_path):
    message = f"{NAME}: the place could not be released: .* is not acquired"
    with pytest.raises(InputError, match=message), parse.reached(NAME, str(tmp_path / "there")):
        shelf.client("release")


def test_missing_place(memprof, words):
    said = refused(memprof("exec", "--on", "labgrid:none", "--", "true"))
    assert said == "memprof: labgrid:none: the coordinator has no place of that name; labgrid-client places lists them"
    for name in ("labgrid:", "labgrid:-k", "labgrid:a b"):
        assert "write labgrid:PLACE" in refused(memprof("exec", "--on", name, "--", "true"), 2)


def test_place_needs_one_network_service(memprof, words, shelf):
    shelf.client("add-match", "shelf/spare/NetworkService")
    try:
        assert "the place has 2 NetworkServices" in refused(memprof("exec", *words, "--", "true"))
        shelf.client("del-match", "shelf/spare/NetworkService")
        shelf.client("del-match", "shelf/board/NetworkService")
        assert "the place has no NetworkService" in refused(memprof("exec", *words, "--", "true"))
    finally:
        shelf.client("add-match", "shelf/board/NetworkService")
    assert shelf.holder() == "None"


def test_coordinator_without_answer(memprof, words, monkeypatch):
    monkeypatch.setenv("LG_COORDINATOR", "127.0.0.1:1")
    assert refused(memprof("exec", *words, "--", "true")) == f"memprof: {NAME}: labgrid says: Could not connect to coordinator"


def test_labgrid_not_installed(memprof, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "labgrid-client is not installed here (pip install labgrid)" in refused(memprof("exec", "--on", NAME, "--", "true"))


_SHOWN = """\
Place 'tv':
  acquired: desk/ann
Acquired resource 'NetworkService' (shelf/tv/NetworkService/NetworkService):
  {'acquired': 'tv',
   'cls': 'NetworkService',
   'params': {'address': '10.0.0.7',
              'extra': {'proxy': 'shelf', 'proxy_required': True},
              'username': 'root'}}
"""


def shown(text: str) -> ssh.Ssh:
    """The log-in from what `labgrid-client show` prints."""
    return labgrid._login("labgrid:tv", subprocess.CompletedProcess([], 0, text, ""), Path("/s"))


def test_login_through_exporter():
    """An exporter in isolated mode says so."""
    login = shown(_SHOWN)
    assert "ProxyJump=shelf" in login.words("true", first=True) and "ProxyJump=shelf" not in login.words("true")
    assert login.words("true")[-5:] == ["-p", "22", "--", "root@10.0.0.7", "true"]


@pytest.mark.parametrize(("words", "others"), [("'username'", "'user'"), ("'root'}}", "'root'"), ("'root'}}", "root()}}")])
def test_login_from_unknown_output_refused(words, others):
    with pytest.raises(InputError, match=r"^labgrid:tv: what labgrid-client show prints of its NetworkService cannot be read$"):
        shown(_SHOWN.replace(words, others))
