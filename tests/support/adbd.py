"""A device for adb's own client: a small adbd that speaks its protocol by TCP, and hands its commands to a shell.

That is Android's shell here (`android`), or the shell of a board. What is spoken is that of the sources of Android: protocol.txt, SERVICES.TXT,
SYNC.TXT and shell_protocol.h of packages/modules/adb. memprof itself sends files through the shell; `sync:` is for `adb push` and `adb pull`.
"""

from __future__ import annotations

import itertools
import os
import queue
import select
import shlex
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import need_tool

from support.recorder_runs import MARK, free_port

_HEAD = struct.Struct("<4s5I")  # command, two arguments, length of the data, sum of its bytes, the command's complement
_PACKET = struct.Struct("<BI")  # of the shell's protocol: which stream, length
_SYNC = struct.Struct("<4sI")
_SYNC_BYTES = 64 << 10
_NO_FILE = b"No such file or directory"
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_VERSION, _DATA_BYTES = 0x01000001, 256 << 10
_TOKEN = 1  # of AUTH: 20 bytes for the client to sign


class _Gone(Exception):
    """The client has closed a stream, or the connection."""


@dataclass
class Device:
    """A device. shell: the words of a process here that runs a command line there; trusts: whether it lets anybody in; features: those of its
    banner."""

    shell: Callable[[str], list[str]]
    trusts: bool = True
    features: str = "shell_v2,cmd"
    port: int = field(default_factory=free_port, init=False)
    _server: socket.socket = field(init=False)
    _connections: list[_Connection] = field(default_factory=list, init=False)

    @property
    def serial(self) -> str:
        """Its name at adb's client."""
        return f"127.0.0.1:{self.port}"

    def run(self, text: str) -> subprocess.Popen[bytes]:
        """A command line that has begun there."""
        return subprocess.Popen(
            self.shell(text),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    def listen(self) -> None:
        """Wait for clients, at the same port as before."""
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def unplug(self) -> None:
        """End all connections at once and take none, as if the cable was pulled."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # ends the wait in accept, as closing alone does not
        self._server.close()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection = _Connection(self, server.accept()[0])
                self._connections.append(connection)
                threading.Thread(target=connection.serve, daemon=True).start()


class _Connection:
    def __init__(self, device: Device, client: socket.socket) -> None:
        self.device, self._client = device, client
        self._streams: dict[int, _Stream] = {}
        self._numbers = itertools.count(1)
        self._sending = threading.Lock()

    def close(self) -> None:
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        with suppress(OSError, _Gone), self._client:
            while True:
                command, first, second, length, _, _ = _HEAD.unpack(self._read(_HEAD.size))
                self._answer(command, first, second, self._read(length))
        for stream in list(self._streams.values()):
            stream.end()

    def send(self, command: bytes, first: int, second: int, data: bytes = b"") -> None:
        complement = int.from_bytes(command, "little") ^ 0xFFFFFFFF
        total = sum(data) if command in (b"CNXN", b"AUTH") else 0  # both sides leave it out once they know each other's version
        try:
            with self._sending:
                self._client.sendall(_HEAD.pack(command, first, second, len(data), total, complement) + data)
        except OSError:
            raise _Gone from None

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            chunk = self._client.recv(length - len(data))
            if not chunk:
                raise _Gone
            data += chunk
        return bytes(data)

    def _answer(self, command: bytes, first: int, second: int, data: bytes) -> None:
        if command in (b"CNXN", b"AUTH"):
            if self.device.trusts:
                self.send(b"CNXN", _VERSION, _DATA_BYTES, f"device::ro.product.name=tests;features={self.device.features}".encode())
            elif (
                command == b"CNXN" or first == 2
            ):  # a key that it does not know; after the last, the client sends it for the user to accept
                self.send(b"AUTH", _TOKEN, 0, os.urandom(20))
        elif command == b"OPEN":
            number = next(self._numbers)
            stream = self._streams[number] = _Stream(self, number, first)
            service = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
            threading.Thread(target=stream.serve, args=(service,), daemon=True).start()
        elif second in self._streams:
            stream = self._streams[second]
            if command == b"OKAY":
                stream.sent.release()
            elif command == b"WRTE":
                stream.came.put(data)
            elif command == b"CLSE":
                stream.end()

    def forget(self, number: int) -> None:
        self._streams.pop(number, None)


class _Stream:
    """A service that a client has opened. Of each side's data one message is on its way at a time, until it is answered by OKAY."""

    def __init__(self, connection: _Connection, number: int, theirs: int) -> None:
        self._connection, self._number, self._theirs = connection, number, theirs
        self.came: queue.Queue[bytes | None] = queue.Queue()
        self.sent = threading.Semaphore(1)
        self._over = False
        self._writing = threading.Lock()

    def end(self) -> None:
        """The client takes no more and sends no more."""
        self._over = True
        self.came.put(None)
        self.sent.release()

    def serve(self, service: str) -> None:
        kind, _, text = service.partition(":")
        words = kind.split(",")
        with suppress(_Gone):
            if words[0] == "shell" and "v2" in words and "raw" in words and text:
                self._connection.send(b"OKAY", self._number, self._theirs)
                self._shell(text)
                self._connection.send(b"CLSE", self._number, self._theirs)
            elif service == "sync:":
                self._connection.send(b"OKAY", self._number, self._theirs)
                self._sync()
                self._connection.send(b"CLSE", self._number, self._theirs)
            else:
                self._connection.send(b"CLSE", 0, self._theirs)
        self._connection.forget(self._number)

    def _write(self, data: bytes) -> None:
        with self._writing:
            self.sent.acquire()
            if self._over:
                self.sent.release()  # the other output of the shell may wait too
                raise _Gone
            self._connection.send(b"WRTE", self._number, self._theirs, data)

    def _shell(self, text: str) -> None:
        """Run a command line. If the client goes away, the shell gets a SIGHUP and its input and output are closed (shell_service.cpp)."""
        process = self._connection.device.run(text)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        outputs = ((_STDOUT, process.stdout.fileno()), (_STDERR, process.stderr.fileno()))
        threads = [threading.Thread(target=self._pass_on, args=output, daemon=True) for output in outputs]
        feeder = threading.Thread(target=self._feed, args=(process,), daemon=True)
        for thread in (*threads, feeder):
            thread.start()
        for thread in threads:
            thread.join()
        if self._over:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGHUP)
        process.stdout.close()
        process.stderr.close()
        code = process.wait()
        with suppress(_Gone):
            self._write(_PACKET.pack(_EXIT, 1) + bytes([code if code >= 0 else 128 - code]))
        self.came.put(None)
        feeder.join()

    def _sync(self) -> None:
        """Files that come (SEND) and go (RECV), until QUIT: an identifier of four letters, a number, and as many bytes as that says."""
        incoming = _Incoming(self)
        while True:
            word, length = _SYNC.unpack(incoming.read(_SYNC.size))
            text = incoming.read(length).decode("utf-8", "surrogateescape")
            if word == b"QUIT":
                return
            if word == b"STAT":
                done = self._done(f"stat -L -c '%f %s %Y' {shlex.quote(text)}")
                mode, size, time_s = done[1].split() if done[0] == 0 else (b"0", b"0", b"0")
                self._write(struct.pack("<4s3I", b"STAT", int(mode, 16), int(size), int(time_s)))
            elif word == b"SEND":
                path, _, mode = text.rpartition(",")
                self._receive(incoming, path, int(mode))
            elif word == b"RECV":
                code, content = self._done(f"cat {shlex.quote(text)}")
                for at in range(0, len(content), _SYNC_BYTES) if code == 0 else ():
                    self._write(_SYNC.pack(b"DATA", len(content[at : at + _SYNC_BYTES])) + content[at : at + _SYNC_BYTES])
                self._write(_SYNC.pack(b"DONE", 0) if code == 0 else _SYNC.pack(b"FAIL", len(_NO_FILE)) + _NO_FILE)
            else:
                raise _Gone

    def _receive(self, incoming: _Incoming, path: str, mode: int) -> None:
        content = bytearray()
        while (head := _SYNC.unpack(incoming.read(_SYNC.size)))[0] == b"DATA":
            content += incoming.read(head[1])
        quoted = shlex.quote(path)
        code, said = self._done(
            f"mkdir -p {shlex.quote(os.path.dirname(path))} && cat > {quoted} && chmod {mode & 0o777:o} {quoted}", content
        )
        self._write(_SYNC.pack(b"OKAY", 0) if code == 0 else _SYNC.pack(b"FAIL", len(said)) + said)

    def _done(self, text: str, content: bytes = b"") -> tuple[int, bytes]:
        """The exit code of a command line there and its output, or its errors if it failed."""
        process = self._connection.device.run(text)
        out, errors = process.communicate(content)
        return process.returncode, errors if process.returncode else out

    def acknowledge(self) -> None:
        """The client may send its next message."""
        self._connection.send(b"OKAY", self._number, self._theirs)

    def _pass_on(self, kind: int, output: int) -> None:
        with suppress(_Gone):
            while not self._over:
                if not select.select([output], [], [], 0.1)[0]:
                    continue  # a client that goes away is noticed though nothing is written
                chunk = os.read(output, 64 << 10)
                if not chunk:
                    break
                self._write(_PACKET.pack(kind, len(chunk)) + chunk)

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        rest = b""
        with suppress(_Gone):
            while (data := self.came.get()) is not None:
                rest += data
                while len(rest) >= _PACKET.size:
                    kind, length = _PACKET.unpack_from(rest)
                    if len(rest) < _PACKET.size + length:
                        break
                    text, rest = rest[_PACKET.size : _PACKET.size + length], rest[_PACKET.size + length :]
                    with suppress(OSError, ValueError):  # it has ended, or closed its input
                        if kind == _STDIN:
                            process.stdin.write(text)
                            process.stdin.flush()
                        elif kind == _CLOSE_STDIN:
                            process.stdin.close()
                self.acknowledge()
        with suppress(OSError):
            process.stdin.close()


class _Incoming:
    """The bytes that come by a stream, whatever messages they came in."""

    def __init__(self, stream: _Stream) -> None:
        self._stream, self._rest = stream, b""

    def read(self, length: int) -> bytes:
        while len(self._rest) < length:
            data = self._stream.came.get()
            if data is None:
                raise _Gone
            self._stream.acknowledge()
            self._rest += data
        data, self._rest = self._rest[:length], self._rest[length:]
        return data


def android(tools: Path) -> Callable[[str], list[str]]:
    """Android's shell here, with these programs and no others on the PATH, as on a phone."""

    def words(text: str) -> list[str]:
        return ["/usr/bin/env", "-i", f"PATH={tools}", "HOME=/", f"{MARK}={os.environ.get(MARK, '')}", str(tools / "sh"), "-c", text]

    return words


def tools(folder: Path) -> Path:
    """A folder with Android's programs, made new: mksh as `sh`, and toybox. Skips the test where they are not installed."""
    shell, toybox = need_tool("mksh"), need_tool("toybox")
    folder.mkdir()
    for name in subprocess.run([toybox], capture_output=True, text=True, check=True).stdout.split():
        (folder / name).symlink_to(toybox)
    (folder / "sh").symlink_to(shell)
    return folder


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """A server of adb's own, apart from the user's. Gives the variables that let a client find it."""
    adb = need_tool("adb")
    port = free_port()
    # Its key lies in HOME; it is not to look for emulators at the usual ports.
    environment = {**os.environ, "HOME": str(folder), "ADB_LOCAL_TRANSPORT_MAX_PORT": "0"}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [adb, "-P", str(port), "server", "nodaemon"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        end = time.monotonic() + 120
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"adb's server does not start: {(folder / 'log').read_text()}")
            time.sleep(0.02)
        yield {"ANDROID_ADB_SERVER_PORT": str(port)}
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
