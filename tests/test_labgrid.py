"""Measuring at a place of a labgrid coordinator: labgrid's own, with an ssh server of the tests' own as the board."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import failing
import lab
import pytest

from memprof.errors import InputError
from memprof.measuring import reaching
from memprof.measuring.places import labgrid, ssh

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


def refused(done: subprocess.CompletedProcess[str], code: int = 5) -> str:
    """The sentence with which a command was refused."""
    assert done.returncode == code, done.stderr
    return failing.sentence(done)


def test_a_place_is_acquired_measured_and_released(memprof, words, shelf, tmp_path):
    done = memprof("exec", *words, "-o", "r.jsonl", "--", "/bin/sh", "-c", "exit 0")
    assert done.returncode == 0, done.stderr
    assert failing.runs_in(tmp_path / "r.jsonl")[0]["outcome"]["status"] == "ok"
    assert shelf.holder() == "None"


def test_a_place_is_held_as_long_as_it_is_used(words, shelf, tmp_path):
    with pytest.raises(InputError, match="no luck"), reaching.reached(NAME, str(tmp_path / "there")):
        assert shelf.holder() == f"{os.uname().nodename}/{getpass.getuser()}"
        raise InputError("no luck")
    assert shelf.holder() == "None"


@pytest.mark.usefixtures("nothing_left")
def test_a_place_is_released_after_a_ctrl_c(words, shelf, tmp_path):
    with failing.started(tmp_path, "exec", *words, "--", "sleep", "7005") as process:
        failing.wait_for(lambda: (tmp_path / "there" / "lease").exists())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130 and shelf.holder() == "None"


def test_a_place_that_this_user_holds_stays_acquired(words, shelf, tmp_path):
    shelf.client("acquire")
    try:
        with reaching.reached(NAME, str(tmp_path / "there")) as place:
            assert place.machine().name == os.uname().nodename
        assert shelf.holder() == f"{os.uname().nodename}/{getpass.getuser()}"
    finally:
        shelf.client("release")


def test_a_place_that_another_user_holds_says_who(memprof, words, shelf):
    shelf.client("acquire", user="ann")
    try:
        said = refused(memprof("exec", *words, "--", "true"))
    finally:
        shelf.client("release", user="ann")
    assert said == f"memprof: {NAME}: the place is acquired by desk/ann; labgrid gives it to one user at a time"


def test_a_place_that_is_released_meanwhile_says_so(words, shelf, tmp_path):
    message = f"{NAME}: the place could not be released: .* is not acquired"
    with pytest.raises(InputError, match=message), reaching.reached(NAME, str(tmp_path / "there")):
        shelf.client("release")


def test_a_place_that_is_not_there(memprof, words):
    said = refused(memprof("exec", "--on", "labgrid:none", "--", "true"))
    assert said == "memprof: labgrid:none: the coordinator has no place of that name; labgrid-client places lists them"
    for name in ("labgrid:", "labgrid:-k", "labgrid:a b"):
        assert "write labgrid:PLACE" in refused(memprof("exec", "--on", name, "--", "true"), 2)


def test_a_place_needs_one_network_service(memprof, words, shelf):
    shelf.client("add-match", "shelf/spare/NetworkService")
    try:
        assert "the place has 2 NetworkServices" in refused(memprof("exec", *words, "--", "true"))
        shelf.client("del-match", "shelf/spare/NetworkService")
        shelf.client("del-match", "shelf/board/NetworkService")
        assert "the place has no NetworkService" in refused(memprof("exec", *words, "--", "true"))
    finally:
        shelf.client("add-match", "shelf/board/NetworkService")
    assert shelf.holder() == "None"


def test_a_coordinator_that_does_not_answer(memprof, words, monkeypatch):
    monkeypatch.setenv("LG_COORDINATOR", "127.0.0.1:1")
    assert refused(memprof("exec", *words, "--", "true")) == f"memprof: {NAME}: labgrid says: Could not connect to coordinator"


def test_labgrid_is_not_installed(memprof, monkeypatch):
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


def test_a_board_behind_its_exporter_is_reached_through_it():
    """An exporter in isolated mode says so."""
    login = shown(_SHOWN)
    assert "ProxyJump=shelf" in login.words("true", first=True) and "ProxyJump=shelf" not in login.words("true")
    assert login.words("true")[-5:] == ["-p", "22", "--", "root@10.0.0.7", "true"]


@pytest.mark.parametrize(("words", "others"), [("'username'", "'user'"), ("'root'}}", "'root'"), ("'root'}}", "root()}}")])
def test_what_another_labgrid_may_print_is_refused(words, others):
    with pytest.raises(InputError, match=r"^labgrid:tv: what labgrid-client show prints of its NetworkService cannot be read$"):
        shown(_SHOWN.replace(words, others))
