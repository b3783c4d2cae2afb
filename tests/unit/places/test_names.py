"""Names of places: what --on means by them, and sentences for names that mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.configurations import configure, folder  # noqa: F401  (the fixture)

from memprof.base.errors import InputError, UsageError
from memprof.doors.cli.fleet import FleetOptions
from memprof.places import parse
from memprof.places.names import NamedPlace, known, meant
from memprof.places.place import HERE

PLACES = """
[places]
board = "ssh:pi@board"
desk = "here"
lab = "dask:tls://lab:8786"
tv = { on = "adb:4711", remote_dir = "/opt/memprof", python = "/opt/rt/bin/python" }
"""


def test_name_means_its_place(folder: Path) -> None:
    configure(folder, PLACES)

    assert meant("board") == NamedPlace("ssh:pi@board")
    assert meant("tv") == NamedPlace("adb:4711", "/opt/memprof", "/opt/rt/bin/python")
    assert list(known()) == ["board", "desk", "lab", "tv"]


def test_place_itself_needs_no_configuration(folder: Path) -> None:
    configure(folder, "this is no TOML")

    assert meant("ssh:board") == NamedPlace("ssh:board")
    assert meant("here") == NamedPlace("here")
    with parse.reached("here") as place:
        assert place is HERE


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be reached: the link's name, the folder and the interpreter."""
    seen: list[Any] = []

    class Never:
        def __init__(self, link: Any, folder: str | None, python: str | None, *rest: Any) -> None:
            seen.append((link, folder, python))

        def open(self) -> None:
            pass

        close = open

    @contextmanager
    def link(name: str, socket: Path) -> Iterator[str]:
        yield name

    monkeypatch.setattr(parse, "Remote", Never)
    monkeypatch.setattr(parse, "_link", link)
    return seen


def test_reached_by_name(folder: Path, opened: list[Any]) -> None:
    configure(folder, PLACES)
    for words in (("board",), ("tv",), ("tv", "/tmp/x"), ("tv", None, "python3"), ("adb:4711",)):
        with parse.reached(*words):
            pass

    assert opened == [
        ("ssh:pi@board", None, None),
        ("adb:4711", "/opt/memprof", "/opt/rt/bin/python"),
        ("adb:4711", "/tmp/x", "/opt/rt/bin/python"),
        ("adb:4711", "/opt/memprof", "python3"),
        ("adb:4711", None, None),
    ]


def test_name_of_this_machine(folder: Path) -> None:
    configure(folder, PLACES)
    with parse.reached("desk") as place:
        assert place is HERE
    with pytest.raises(UsageError, match="--remote-dir goes with --on"), parse.reached("desk", "/tmp"):
        pass


def test_name_of_fleet(folder: Path) -> None:
    configure(folder, PLACES)

    assert FleetOptions.given("lab", None, "kind=pi5") == FleetOptions("tls://lab:8786", "kind=pi5")
    assert FleetOptions.given("board", None, None) is None
    with pytest.raises(UsageError, match="go with --on dask:ADDRESS"):
        FleetOptions.given("board", None, "kind=pi5")


def test_unknown_name_suggests_near_name(folder: Path) -> None:
    configure(folder, PLACES)
    with pytest.raises(UsageError, match=r"no such kind of place; did you mean board\?; write ssh:"), parse.reached("bord"):
        pass


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ('b = "ssx:pi@board"', "there is no such kind of place as 'ssx:pi@board'; did you mean ssh?"),
        ('b = "board"', "there is no such kind of place as 'board'"),
        ('b = "ssh"', "there is no such kind of place as 'ssh'"),
        ("b = 1", 'write "ssh:pi@board", or { on = "ssh:pi@board", remote_dir = "FOLDER", python = "PATH" }'),
        ("b = { python = 'p' }", 'write "ssh:pi@board", or {'),
        ("b = { on = 'ssh:b', remote_dir = 1 }", 'write "ssh:pi@board", or {'),
        ("b = { on = 'ssh:b', remotedir = 'x' }", "there is no 'remotedir'; did you mean remote_dir?"),
        ("b = { on = 'dask:tcp://lab:1', python = 'x' }", "python cannot be said of dask:tcp://lab:1"),
        ("'ssh:b' = 'ssh:c'", "a name is no kind of place and has no colon"),
        ("here = 'ssh:c'", "a name is no kind of place and has no colon"),
    ],
)
def test_named_place_refusals(folder: Path, entry: str, sentence: str) -> None:
    path = configure(folder, f"[places]\n{entry}\n")
    name = entry.partition(" ")[0].strip("'")
    with pytest.raises(InputError) as refused:
        meant("anything")

    assert str(refused.value).startswith(f"{path}: place {name}: {sentence}")
