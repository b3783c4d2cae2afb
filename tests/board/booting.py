"""Boots a board and ends it: one QEMU a session for all workers of pytest-xdist, which hold a lock as long as they use it.

A guard waits for that lock. It gets it when the last worker has ended, however that ended, and then ends the board.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.recorder_runs import free_port
from support.session_cache import SHARED

from .making import Files, Missing, made

_WITHIN_S = 120  # 4 s on an idle machine
_PROGRAM = "qemu-system-aarch64"
# kpti=off: with page tables of its own the kernel changes the address space at each system call, and QEMU then empties its TLB: a call costs five
# times as much. The kernel takes them because it lies at a random address, and not because this CPU needs them.
_KERNEL_WORDS = "console=ttyAMA0 quiet panic=-1 kpti=off"

_GUARD = """
import ctypes, fcntl, os, signal, subprocess, sys
users, words = sys.argv[1], sys.argv[2:]
board = subprocess.Popen(words, preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))  # 1: PR_SET_PDEATHSIG
with open(users) as file:
    fcntl.flock(file, fcntl.LOCK_EX)  # held until the board has ended: a worker that comes now must not take it for one that runs
    board.kill()
    board.wait()
"""


@dataclass(frozen=True)
class Board:
    """A board that runs: where its ssh is, and the key that it lets in. kept: paths of the programs that this worker has put there to stay."""

    host: str
    port: int
    key: Path
    known_hosts: Path
    cpus: int
    kept: set[str] = field(default_factory=set, compare=False)

    @property
    def ssh(self) -> list[str]:
        """The begin of a command that runs the rest of its words on the board, in a shell."""
        options = ("BatchMode=yes", f"UserKnownHostsFile={self.known_hosts}", "StrictHostKeyChecking=accept-new", "LogLevel=ERROR")
        words = ["ssh", "-F", "none", "-i", str(self.key), "-p", str(self.port)]
        return [*words, *(word for option in options for word in ("-o", option)), f"root@{self.host}"]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Meanwhile `run` shares one connection: a log-in costs the board twice as much as all else of a small command.

        dropbear lost the output and the exit code of 4 of 60 commands where three at once shared a connection (2022.83), so each worker has its own,
        and `answer` and adb log in by themselves. Where there is no connection, as under a path too long for a socket, `run` does too.
        """
        self._manage("-M", "-N", "-f")
        try:
            yield
        finally:
            self._manage("-O", "exit")

    def _manage(self, *words: str) -> None:
        """Begin or end that connection. Its process stays, so it gets none of this one's streams."""
        nothing = subprocess.DEVNULL
        subprocess.run([*self.ssh, *self._shared, *words], stdin=nothing, stdout=nothing, stderr=nothing, check=False)

    @property
    def _shared(self) -> tuple[str, str]:
        return "-S", str(self.known_hosts.parent / f"ssh-{os.getpid()}")

    def run(self, command: str, input: bytes = b"", check: bool = True, timeout: float = 240) -> bytes:
        """What a command line prints there. Its standard input ends with `input`."""
        done = subprocess.run([*self.ssh, *self._shared, command], input=input, capture_output=True, timeout=timeout, check=False)
        assert done.returncode == 0 or not check, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def answer(self, command: str, line: bytes, meanwhile: Callable[[], bytes] | None = None) -> bytes:
        """What a program there prints until it ends, once it has this line, and later what `meanwhile` gives; its standard input stays open."""
        words = [*self.ssh, command]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(line)
            process.stdin.flush()
            if meanwhile is not None:
                process.stdin.write(meanwhile())
                process.stdin.flush()
            return process.stdout.read()

    @contextmanager
    def memory(self) -> Iterator[None]:
        """The board's whole memory, and its swap, for one test at a time."""
        with (self.known_hosts.parent / "memory").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def put(self, content: bytes, path: str, mode: str = "755") -> None:
        """Write a file there, in one step: another worker may be running the program that it replaces."""
        self.run(f"cat > '{path}'.$$ && chmod {mode} '{path}'.$$ && mv -f '{path}'.$$ '{path}'", content)

    def keep(self, program: bytes) -> str:
        """The path of a program there, which stays for other tests: a mebibyte takes the board a third of a second."""
        path = f"/tmp/kept-{hashlib.sha256(program).hexdigest()[:16]}"
        if path not in self.kept:
            self.put(program, path)
            self.kept.add(path)
        return path


@contextmanager
def shared(cpus: int = 2, python: bool = False, port: int | None = None) -> Iterator[Board]:
    """The session's board of that kind, booted if nobody has yet. port: where its ssh is to be, None for any. Raises Missing."""
    files = made(python)
    if shutil.which(_PROGRAM) is None or shutil.which("ssh") is None:
        raise Missing(f"{_PROGRAM} and ssh are needed (ci/system-tools installs them)")
    folder = Path(os.environ[SHARED]) / f"board-{cpus}{'-python' if python else ''}"
    folder.mkdir(exist_ok=True)
    with (folder / "users").open("w") as users:
        with (folder / "booting").open("w") as booting:
            fcntl.flock(booting, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            facts = folder / "board.json"
            if not facts.exists() or not _runs(json.loads(facts.read_text())["port"]):
                (folder / "known_hosts").unlink(missing_ok=True)
                facts.write_text(json.dumps({"port": _boot(folder, files, cpus, port or free_port())}))
        found = Board("127.0.0.1", json.loads(facts.read_text())["port"], files.key, folder / "known_hosts", cpus)
        with found.connected():
            yield found


def _boot(folder: Path, files: Files, cpus: int, port: int) -> int:
    words = [
        *(_PROGRAM, "-machine", "virt", "-cpu", "cortex-a57", "-accel", "tcg,thread=multi", "-smp", str(cpus), "-m", "512"),
        *("-kernel", str(files.kernel), "-initrd", str(files.initramfs), "-append", _KERNEL_WORDS, "-no-reboot"),
        *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:22", "-device", "virtio-net-pci,netdev=net,romfile="),
        *("-display", "none", "-monitor", "none", "-serial", f"file:{folder / 'console'}"),
    ]
    log = folder / "qemu"
    with log.open("w") as output:
        # No Popen: the guard outlives this process, and a Popen would complain of that.
        guard = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _GUARD, str(folder / "users"), *words],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), 1), (os.POSIX_SPAWN_DUP2, output.fileno(), 2)],
            setsid=True,
        )
    if not _answers(port, _WITHIN_S):
        os.kill(guard, signal.SIGKILL)
        console = (folder / "console").read_text(errors="replace") if (folder / "console").exists() else ""
        raise Missing(f"the board did not answer within {_WITHIN_S} s: {(log.read_text() + console)[-500:]}")
    return port


def _runs(port: int) -> bool:
    """Whether the board of this port is there. QEMU takes connections as long as it runs, and a busy board may be slow to say its name."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0 and _answers(port, _WITHIN_S)


def _answers(port: int, within_s: float) -> bool:
    """Whether a server for ssh says its name within the time. QEMU takes connections before the board does, and then drops them."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                if connection.recv(4) == b"SSH-":
                    return True
        except OSError:
            pass
        time.sleep(0.05)
    return False
