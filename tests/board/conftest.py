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
    """The same with 8 CPUs."""
    yield from _board(8)


@pytest.fixture(scope="session")
def python_board() -> Iterator[Board]:
    """A board with 2 CPUs and Debian's Python 3.11."""
    yield from _board(2, python=True)
