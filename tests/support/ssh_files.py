"""What the tests of places share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from memprof.places import parse
from memprof.places.sending import Sending


@pytest.fixture
def place(server, board, tmp_path):
    with parse.remote(server.place, str(tmp_path / "there"), sys.executable) as place:
        yield place


def sent_once(place, path: Path) -> None:
    """A file goes to the place whole, and a second time nothing goes."""
    told: list[Sending] = []
    place.tell = told.append
    path.write_bytes(os.urandom(1_000_000))
    there = place.file(str(path))
    assert Path(there).read_bytes() == path.read_bytes() and told[-1].sent == told[-1].total == 1_000_000
    told.clear()
    place._there.clear()
    assert place.file(str(path)) == there and told == []
