"""A fleet on this machine's loopback: a real scheduler, and workers that each believe to be alone."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from support.recorder_runs import free_port, wait_for


def _ends_with_us() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@dataclass
class Fleet:
    """A scheduler by its address, in a folder for all that its processes write."""

    folder: Path
    address: str
    scheduler: subprocess.Popen[bytes]
    configuration: Path | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _begun: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _named: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def worker(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """A worker whose places are offered; see `begin`."""
        process = self.begin(name, *words)
        self.wait_for_offers()
        return process

    def begin(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """A worker with caches of its own, not yet ready; its words on standard error are in NAME.log."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        env = {**_environment(self.configuration), "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "memprof", "worker", self.address, *words], env=env, stderr=log, preexec_fn=_ends_with_us
            )
        self.workers.append(process)
        self._begun[name] = self._named[name] = process
        return process

    def wait_for_offers(self) -> None:
        """Until each worker that was begun has offered its places, or has ended."""
        for name, process in self._begun.items():
            self._wait_for_offers_of(name, process)
        self._begun.clear()

    def _wait_for_offers_of(self, name: str, process: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: process.poll() is not None or b"is offered at" in self.log(name).read_bytes())

    def kill(self, name: str) -> None:
        """End a worker without a word of its own."""
        self._named[name].kill()
        self._named[name].wait()

    def restart(self) -> None:
        """Another scheduler where the first one was, which knows nothing of it."""
        self.scheduler.kill()
        self.scheduler.wait()
        self.scheduler, _ = _scheduler(self.folder, self.address, self.configuration)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def kept(self, name: str) -> list[Path]:
        """The files that a worker keeps by their content."""
        return [path for path in (self.folder / name / "cache/memprof/fleet/files").glob("*") if path.is_file()]


@contextmanager
def fleet(folder: Path, configuration: Path | None = None) -> Iterator[Fleet]:
    """A scheduler without workers; all processes are gone at the end. configuration: a file of Dask's with certificates, with which all is
    encrypted."""
    address = f"{'tcp' if configuration is None else 'tls'}://127.0.0.1:{free_port()}"
    process, address = _scheduler(folder, address, configuration)
    made = Fleet(folder, address, process, configuration)
    try:
        yield made
    finally:
        for process in (*made.workers, made.scheduler):
            process.terminate()
        for process in (*made.workers, made.scheduler):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# A scheduler may be anywhere, also where memprof is not installed.
_BARE = "import sys; sys.modules['memprof'] = None; from distributed.cli.dask_scheduler import main; main()"


def _environment(configuration: Path | None) -> dict[str, str]:
    return {**os.environ, **({"DASK_CONFIG": str(configuration)} if configuration is not None else {})}


def _scheduler(folder: Path, address: str, configuration: Path | None) -> tuple[subprocess.Popen[bytes], str]:
    """A scheduler that answers, and its address."""
    facts = folder / "scheduler.json"
    facts.unlink(missing_ok=True)
    words = ["--host", address, "--no-dashboard", "--scheduler-file", str(facts)]
    with (folder / "scheduler.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _BARE, *words], env=_environment(configuration), stdout=log, stderr=log, preexec_fn=_ends_with_us
        )

    def told() -> dict[str, str] | None:
        with suppress(OSError, ValueError):  # it is not there, or not whole
            return json.loads(facts.read_text())
        return None

    return process, wait_for(told)["address"]


def measuring(*workers: subprocess.Popen[bytes]) -> list[subprocess.Popen[bytes]]:
    """Those of the workers that measure: they have a recorder."""
    busy: list[subprocess.Popen[bytes]] = []
    for worker in workers:
        with suppress(psutil.Error):
            busy += [worker] if psutil.Process(worker.pid).children() else []
    return busy


def until(ready, seconds: float = 120) -> object:
    """As `wait_for`, for what takes longer between two looks."""
    end = time.monotonic() + seconds
    while not (result := ready()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)
    return result
