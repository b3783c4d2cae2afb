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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The test and its fixtures. pytest calls this for every test, wherever it lies."""
    _guard.runs = Path(__file__).parent in item.path.parents
    try:
        return (yield)
    finally:
        _guard.runs = False
