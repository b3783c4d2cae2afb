"""Boards for tests: one boot a session for each kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .booting import Board, shared
from .making import Missing


def _board(cpus: int, python: bool = False) -> Iterator[Board]:
    try:
        with shared(cpus, python) as board:
            yield board
    except Missing as reason:
        pytest.skip(f"no board here: {reason}")


@pytest.fixture(scope="session")
def board() -> Iterator[Board]:
    """A board with 2 CPUs, 512 MiB and no Python."""
    yield from _board(2)


@pytest.fixture(scope="session")
def wide_board() -> Iterator[Board]:
    """A board with 4 CPUs, and with Debian's Python 3.11."""
    yield from _board(4, python=True)
