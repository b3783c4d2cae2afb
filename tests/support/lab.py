"""A laboratory of the tests' own: labgrid's coordinator and exporter on loopback, with one place whose NetworkService is an ssh server.

labgrid has an environment of its own in the user's cache, so that a fresh clone need not make it again.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.recorder_runs import free_port, script, wait_for

# As the tests are collected: later they have a cache of their own.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memprof-tests" / "labgrid"
PLACE = "bench-3"
_CLIENTS = Path(__file__).parents[1] / "support" / "lab_clients.py"
_READY = (b"ready", b"Coordinator ready", b"connected to coordinator")  # what the processes of a laboratory say once they work


@dataclass(frozen=True)
class Lab:
    """A laboratory that runs. bin: a folder with `labgrid-client`; variables: those that let it find the coordinator."""

    bin: Path
    variables: dict[str, str]

    def client(self, *words: str, user: str = "") -> str:
        """What labgrid-client prints for the place; as another user if one is named."""
        environment = {**os.environ, **self.variables, **({"LG_USERNAME": user, "LG_HOSTNAME": "desk"} if user else {})}
        command = [self.bin / "labgrid-client", "-p", PLACE, *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True).stdout

    def holder(self) -> str:
        """Who has acquired the place, as HOST/USER, or `None`."""
        (line,) = (line for line in self.client("show").splitlines() if line.startswith("  acquired: "))
        return line.split()[1]


def installed() -> Path:
    """The folder of labgrid's programs, installed the first time they are asked for. Skips the test if that is not possible."""
    folder = _CACHE / f"python{sys.version_info[0]}{sys.version_info[1]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.with_suffix(".made").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "labgrid>=24"]
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"labgrid cannot be installed: {(done.stderr.strip().splitlines() or [''])[-1]}")
            folder.with_suffix(".made").touch()
    return folder / "bin"


@contextmanager
def running(folder: Path, user: str, port: int) -> Iterator[Lab]:
    """A laboratory in this folder, whose only place is reached by ssh as this user at this port of loopback."""
    programs = installed()
    address = f"127.0.0.1:{free_port()}"
    service = f"{{address: 127.0.0.1, username: {user}, port: {port}}}"
    (folder / "resources.yaml").write_text(f"board:\n  NetworkService: {service}\nspare:\n  NetworkService: {service}\n")
    lab = Lab(folder / "bin", {"LG_COORDINATOR": address})
    clients = f"memprof-tests-{os.getpid()}-{address}"
    lab.bin.mkdir()
    front = shlex.join([sys.executable, "-I", "-S", str(_CLIENTS), "ask", clients])
    script(lab.bin / "labgrid-client", f'#!/bin/sh\nexec {front} "$@"\n')
    commands = (
        [programs / "python", _CLIENTS, "serve", clients],
        [programs / "labgrid-coordinator", "-l", address],
        [programs / "labgrid-exporter", "-c", address, "-n", "shelf", "--hostname", "localhost", "resources.yaml"],
    )
    processes = []
    try:
        for at, command in enumerate(commands):
            with (folder / f"log{at}").open("wb") as log:
                processes.append(subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            _wait(folder / f"log{at}", _READY[at])
        wait_for(lambda: all(f"shelf/{name}/NetworkService" in lab.client("resources") for name in ("board", "spare")))
        lab.client("create")
        lab.client("add-match", "shelf/board/NetworkService")
        yield lab
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _wait(log: Path, words: bytes) -> None:
    end = time.monotonic() + 120
    while words not in log.read_bytes():
        if time.monotonic() > end:
            pytest.fail(f"labgrid does not start: {log.read_text()}")
        time.sleep(0.05)
