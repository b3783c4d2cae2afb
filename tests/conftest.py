"""What the tests share: a folder of scenarios for the synthetic runtime, memprof as a command, and tools that may be missing.

`pytest --quick` leaves out every test that starts a process, at the moment when it would.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import failing
import pytest
from browsing import browser, chromium  # noqa: F401  (the fixtures)
from once import SHARED, USERS_CACHE, once
from sshd import board, server  # noqa: F401  (the fixtures)

# BLAS reads this once, when numpy is imported. Its threads wait by spinning, and the CPUs are busy with other tests. What tests start is not told.
with pytest.MonkeyPatch.context() as _environment:
    _environment.setenv("OPENBLAS_NUM_THREADS", "1")
    import numpy  # noqa: F401

    _environment.setenv("HYPOTHESIS_NO_PLUGINS", "1")  # it would import trio, which no test uses
    import hypothesis

from memprof import cli
from memprof.measuring import bundle, probing
from memprof.measuring.bundle import RecorderKind
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

_STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system")
_LEFT_OUT = "starts a process, and --quick leaves those out"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the tests that start a process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each worker begins with its share of the tests that take long: whoever begins one when the others have nothing left is waited for.

    pytest-xdist hands each worker an equal stretch of the tests, and moves only the last ones of a stretch to others.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    long = [item for item in items if item.get_closest_marker("long")]
    others = iter([item for item in items if not item.get_closest_marker("long")])
    total, items[:] = len(items), []
    for worker in range(workers):
        share = long[worker::workers]
        stretch = (total - len(items)) // (workers - worker)
        items += [*share, *islice(others, stretch - len(share))]


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end: the collector of garbage need not look at it again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """A worker that is to run all tests imports their modules, each worker from another module on.

    Each module is then compiled, with its assertions, by the worker that comes to it first; all workers would do it side by side for the same
    module, 10 s of CPU time each.
    """
    gc.disable()
    if config.getoption("--quick"):
        hypothesis.settings.load_profile("quick")
    worker: dict[str, object] = getattr(config, "workerinput", {})
    if worker and config.args == config.getini("testpaths"):
        names = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
        first = len(names) * int(str(worker["workerid"]).removeprefix("gw")) // int(str(worker["workercount"]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name in names[first:] + names[:first]:
                with suppress(Exception, pytest.skip.Exception):  # collecting it says why
                    importlib.import_module(name)


@pytest.fixture(scope="session", autouse=True)
def _quick(pytestconfig: pytest.Config) -> Iterator[None]:
    """Python announces every process before it starts it. The hook that hears it cannot be taken back, only told that the tests are over."""
    leaves_out = bool(pytestconfig.getoption("--quick"))

    def hear(event: str, words: object) -> None:
        if leaves_out and event in _STARTS:
            pytest.skip(_LEFT_OUT)

    if leaves_out:
        sys.addaudithook(hear)
    yield
    leaves_out = False


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
    os.chdir(folder)
    try:
        with _caught(1) as out, _caught(2) as err, pytest.raises(SystemExit) as end:
            cli.main(list(words))
        return subprocess.CompletedProcess(words, int(end.value.code or 0), out(), err())
    finally:
        os.chdir(before[0])
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


def _make_recorder_build(_: Path) -> None:
    recorder_build.built()  # in the cache that the workers share


@pytest.fixture(params=["python", "c"])
def recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs twice, and whatever is measured in its own process is looked at by the one recorder, then by the other."""
    kind: RecorderKind = request.param
    if kind == "c":
        need_tool("cc")
        if request.config.getoption("--quick"):
            pytest.skip(_LEFT_OUT)  # the compiler, before anything else
        once("the recorder in C", _make_recorder_build)
    monkeypatch.setattr(probing, "recorder_command", lambda *_: bundle.recorder_command(kind))
    return kind


@pytest.fixture
def nothing_left(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the test starts must have ended when the test ends."""
    monkeypatch.setenv(failing.MARK, failing.new_mark())
    yield
    if not pytestconfig.getoption("--quick"):  # where nothing was started
        failing.wait_for(failing.all_gone)


def need_tool(name: str) -> str:
    """The path of a system tool; without it the test is skipped, or fails where CI promises to have everything."""
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not installed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return path
