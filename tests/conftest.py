"""What the tests share: a folder of scenarios for the synthetic runtime, memprof as a command, and tools that may be missing."""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import recorder_runs
from support.browser_page import browser, chromium  # noqa: F401  (the fixtures)
from support.session_cache import SHARED, USERS_CACHE, once
from support.sshd import board, server  # noqa: F401  (the fixtures)

# BLAS reads this once, when numpy is imported, here and in what tests start. Its threads wait by spinning, and the CPUs are busy with other tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
with pytest.MonkeyPatch.context() as _environment:
    _environment.setenv("HYPOTHESIS_NO_PLUGINS", "1")  # it would import trio, which no test uses
    import hypothesis

from memprof.base import configuration_file
from memprof.campaign import recorder_client
from memprof.doors import cli
from memprof.places import recorder_start
from memprof.places.recorder_start import RecorderKind
from memprof.programs import recorder_build

# How long an example takes says how busy the machine is, and nothing of what it shows. The examples are the same in each session: a change fails
# by what it did, and not by an example that nobody had met before. `pytest --hypothesis-profile=drawn` draws others.
_PATIENT = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("memprof", _PATIENT, derandomize=True)
hypothesis.settings.register_profile("quick", _PATIENT, derandomize=True, max_examples=5)
hypothesis.settings.register_profile("drawn", _PATIENT)
hypothesis.settings.load_profile("memprof")

Scenario = Callable[..., Path]
Memprof = Callable[..., "subprocess.CompletedProcess[str]"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What is collected stays until the session's end: no garbage collection looks at it, neither meanwhile nor in the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take long begin first: whoever begins one when the others have nothing left is waited for."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session", autouse=True)
def _folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    # The C library that zig compiles for each architecture, minutes of work, is kept where it is kept without tests.
    os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zig"))
    os.environ.setdefault(USERS_CACHE, os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
    cache = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(cache)
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    shared.mkdir(exist_ok=True)
    os.environ[SHARED] = str(shared)
    (shared / "native").mkdir(exist_ok=True)
    (cache / "memprof").mkdir()
    (cache / "memprof/native").symlink_to(shared / "native")  # programs of memprof's own, which take seconds to compile
    os.environ["MPLCONFIGDIR"] = str(shared / "matplotlib")  # its list of fonts takes a second to make
    # Where a busy machine takes 5 s, matplotlib says so on standard error: among the words of whichever command draws first.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


@pytest.fixture(scope="session", autouse=True)
def _heeds_signals() -> None:
    """What a shell starts in the background, or under nohup, ignores these, and so would every program that a test interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# -- what tests ask for


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    """Write a scenario of the synthetic runtime: scenario(load=[...], execute=[...]) -> its path."""

    def write(name: str = "scenario.json", **phases: object) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(phases))
        return path

    return write


@pytest.fixture
def memprof(tmp_path: Path) -> Memprof:
    """memprof("table", ...) -> the completed command, run in the test's folder or in `cwd`.

    The command is a call inside this process, which saves the start of an interpreter and the imports. With any other keyword of subprocess.run
    (env, stdin, input, ...) it is a process.
    """

    def call(*words: str | Path, cwd: Path = tmp_path, **rest: object) -> subprocess.CompletedProcess[str]:
        return _process(cwd, *words, **rest) if rest else _called(cwd, *map(str, words))

    return call


@pytest.fixture
def memprof_process(tmp_path: Path) -> Memprof:
    """As `memprof`, always in a process: for tests of what a process does."""

    def call(*words: str | Path, cwd: Path = tmp_path, **rest: object) -> subprocess.CompletedProcess[str]:
        return _process(cwd, *words, **rest)

    return call


def _process(folder: Path, *words: str | Path, **rest: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memprof", *map(str, words)]
    options: dict[str, object] = {"cwd": folder, "capture_output": True, "text": True, "timeout": 120, **rest}
    return subprocess.run(command, check=False, **options)  # type: ignore[call-overload, no-any-return]


def _called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    before = os.getcwd(), dict(os.environ), {number: signal.getsignal(number) for number in _SIGNALS}
    temporary, tempfile.tempdir = tempfile.tempdir, None  # as a process does, it looks at TMPDIR
    configuration_file.read.cache_clear()  # and at its folder
    os.chdir(folder)
    try:
        with _caught(1) as out, _caught(2) as err, pytest.raises(SystemExit) as end:
            cli.main(list(words))
        return subprocess.CompletedProcess(words, int(end.value.code or 0), out(), err())
    finally:
        os.chdir(before[0])
        configuration_file.read.cache_clear()
        tempfile.tempdir = temporary
        os.environ.clear()
        os.environ.update(before[1])
        for number, handler in before[2].items():
            signal.signal(number, handler)


@contextmanager
def _caught(number: int) -> Iterator[Callable[[], str]]:
    """Catches a standard stream, with all that child processes write to it. Gives the function that says what came."""
    name = {1: "stdout", 2: "stderr"}[number]
    stream, descriptor = getattr(sys, name), os.dup(number)
    with tempfile.TemporaryFile() as file:
        text = ""
        os.dup2(file.fileno(), number)
        setattr(sys, name, io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), "utf-8", "backslashreplace"))
        try:
            yield lambda: text
        finally:
            getattr(sys, name).flush()
            setattr(sys, name, stream)
            os.dup2(descriptor, number)
            os.close(descriptor)
            file.seek(0)
            text = file.read().decode(errors="replace").replace("\r\n", "\n")


def made_recorder_build() -> None:
    """The recorder in C, compiled once a session, in the cache that the workers share."""
    once("the recorder in C", lambda _: recorder_build.built())


@pytest.fixture(params=["python", "c"])
def recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs twice, and whatever is measured in its own process is looked at by the one recorder, then by the other."""
    kind: RecorderKind = request.param
    if kind == "c":
        need_tool("cc")
        made_recorder_build()
    monkeypatch.setattr(recorder_client, "recorder_command", lambda *_: recorder_start.recorder_command(kind))
    return kind


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the test starts must have ended when the test ends."""
    monkeypatch.setenv(recorder_runs.MARK, recorder_runs.new_mark())
    yield
    recorder_runs.wait_for(recorder_runs.all_gone)


def need_tool(name: str) -> str:
    """The path of a system tool; without it the test is skipped, or fails where CI promises to have everything."""
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not installed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return path
