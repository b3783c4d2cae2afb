"""An OpenSSH server of the tests' own on loopback, as the user who runs them: with a host key, a user's key and a configuration in a folder."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from support.recorder_runs import free_port


@dataclass
class Server:
    """A server. Clients find its key and the user's by a configuration that stands before PATH's ssh (`bin`)."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def place(self) -> str:
        """The place as memprof takes it."""
        return f"ssh:{getpass.getuser()}@127.0.0.1:{self.port}"

    @property
    def bin(self) -> Path:
        """A folder with an `ssh` that knows the server, to be put first on the PATH."""
        return self.folder / "bin"

    def sessions(self) -> list[psutil.Process]:
        """The server's processes for log-ins."""
        return psutil.Process(self.process.pid).children(recursive=False)

    def cut(self) -> None:
        """Kill all sessions at once, as if the cable was pulled and the server noticed."""
        for session in self.sessions():
            with suppress(psutil.Error):  # a session, or a child of it, may end by itself meanwhile
                below = session.children()
                session.kill()
                for child in below:
                    with suppress(psutil.Error):
                        if child.name().startswith("sshd"):
                            child.kill()

    def stop(self) -> None:
        """End the server and all its sessions."""
        self.cut()
        self.process.kill()
        self.process.wait()


def start(folder: Path, *options: str, mount: str = "") -> Server:
    """Start a server in this folder; options: lines of sshd_config that win over the usual. Skips the test where there is none.

    mount: words for mount(8), whose file system the server and its log-ins see, and nobody else.
    """
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or shutil.which("ssh") is None:
        pytest.skip("sshd is not installed (openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # it insists; usually the system makes it
    folder.mkdir(mode=0o700)
    for name in ("host", "user", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    port = free_port()
    lines = [
        *options,
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder}/host",
        f"AuthorizedKeysFile {folder}/authorized",
        f"PidFile {folder}/pid",
        "KexAlgorithms curve25519-sha256",  # that against quantum computers takes the client 80 ms of CPU time more
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin yes",
        "StrictModes no",
        "UsePAM no",
        "MaxStartups 100",
        "PermitUserEnvironment no",
        "SetEnv SHLVL=2",  # at the first level bash reads ~/.bashrc, whatever the user has in it
        "AcceptEnv MEMPROF_TEST XDG_CACHE_HOME",
    ]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    know(folder, port, "host")
    (folder / "bin").mkdir()
    client = folder / "bin" / "ssh"
    client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/client "$@"\n')
    client.chmod(0o755)
    configure(folder)
    log = (folder / "log").open("wb")
    server = [program, "-D", "-e", "-f", str(folder / "sshd_config")]
    if mount:
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("no mount namespace can be made here")
        server = ["unshare", "-m", "sh", "-c", f'mount {mount} && exec "$@"', "sh", *server]
    process = subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    log.close()
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return Server(folder, port, process)
        time.sleep(0.02)
    process.kill()
    process.wait()
    pytest.fail(f"sshd does not answer: {(folder / 'log').read_text()}")


@contextmanager
def reached(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str, mount: str = "") -> Iterator[Server]:
    """A server for one test, as `start` makes it, whose `ssh` is the first on the PATH."""
    server = start(folder, *options, mount=mount)
    try:
        put_first(server, monkeypatch)
        yield server
    finally:
        server.stop()


def put_first(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the PATH find the `ssh` that knows the server."""
    monkeypatch.setenv("PATH", f"{server.bin}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the tests of a module."""
    server = start(tmp_path_factory.mktemp("ssh") / "server")
    yield server
    server.stop()


@pytest.fixture
def board(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a command that measures on the server."""
    put_first(server, monkeypatch)
    return ["--on", server.place, "--remote-dir", str(tmp_path / "there")]


def know(folder: Path, port: int, key: str | None) -> None:
    """Let the client know this key for the server; None for no key."""
    text = f"[127.0.0.1]:{port} {(folder / f'{key}.pub').read_text()}" if key else ""
    (folder / "known_hosts").write_text(text)


def configure(folder: Path, key: str = "user") -> None:
    """Let the client log in with this key and none else."""
    lines = (f"IdentityFile {folder}/{key}", "IdentitiesOnly yes", "IdentityAgent none", f"UserKnownHostsFile {folder}/known_hosts")
    (folder / "client").write_text("\n".join((*lines, "GlobalKnownHostsFile /dev/null", "SendEnv MEMPROF_TEST XDG_CACHE_HOME")) + "\n")
