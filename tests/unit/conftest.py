"""A unit test starts no process: it fails where it would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import scipy.special  # noqa: F401  (numpy.testing, which it imports, asks lscpu for the CPU)

_STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system")
_OF_MATPLOTLIB = "fc-list"  # whichever test of a session draws first makes the list of fonts that all of them share


class _Guard:
    """Python announces every process before it starts it. The hook that hears it cannot be taken back, so it asks whether a unit test runs."""

    runs = False

    def hear(self, event: str, words: tuple[object, ...]) -> None:
        if self.runs and event in _STARTS and words[:1] != (_OF_MATPLOTLIB,):
            pytest.fail("a unit test starts a process: tests that do so are in tests/process")


_guard = _Guard()
sys.addaudithook(_guard.hear)


def _guarded(item: pytest.Item) -> Iterator[None]:
    """pytest calls the hooks below for every test, wherever it lies."""
    _guard.runs = Path(__file__).parent in item.path.parents
    try:
        yield
    finally:
        _guard.runs = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from _guarded(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What ends afterwards is not heard: behind the last test of a session end the fixtures of others, such as a board's connection."""
    yield from _guarded(item)
