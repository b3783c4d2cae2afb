"""What the tests share: a folder of scenarios for the synthetic runtime, memprof as a command, and tools that may be missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import failing
import pytest

Scenario = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def _heeds_signals() -> None:
    """What a shell starts in the background, or under nohup, ignores these, and so would every program that a test interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    """Write a scenario of the synthetic runtime: scenario(load=[...], execute=[...]) -> its path."""

    def write(name: str = "scenario.json", **phases: object) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(phases))
        return path

    return write


@pytest.fixture
def memprof(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run memprof as a command in the test's folder: memprof("run", ...) -> the completed process."""

    def call(*words: str | Path, **rest: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "memprof", *map(str, words)]
        options: dict[str, object] = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 120, **rest}
        return subprocess.run(command, check=False, **options)  # type: ignore[call-overload, no-any-return]

    return call


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the test starts must have ended when the test ends."""
    monkeypatch.setenv(failing.MARK, failing.new_mark())
    yield
    failing.wait_for(failing.all_gone, 10)


def need_tool(name: str) -> str:
    """The path of a system tool; without it the test is skipped, or fails where CI promises to have everything."""
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not installed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return path
