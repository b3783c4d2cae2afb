"""The connection to another machine, by any way to reach its shell: `Link` is the way, the rest is the same for each.

One process stays for as long as the place is used: far.sh on the other machine. It holds the lease there, for as long as it hears from here now and
then, and a way that can share a connection shares that process's. Programs start through shells that stay as well (channel.py).
"""

from __future__ import annotations

import getpass
import os
import secrets
import select
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..base.errors import InputError, os_reason
from .channel import BROKEN, END_BELOW, Channel, ChannelProgram, beat, ended, errors_of
from .place import Started, piped

_BEGIN = b"memprof-begin\n"
_READY = b"memprof-ready\n"
_OPEN_S = 40  # for a connection, its log-in and the facts, on a slow board too
_SHORT_S = 120
_ENDING_S = 30  # 2 s on an idle board
_BEAT_S = 10.0  # how often the holder of a lease says that it is there
_LEASE_S = 60  # when its holder is silent for so long, a lease may be taken over; a recorder has ended its tree long before
_FAR = Path(__file__).with_name("far.sh")


class Link(Protocol):
    """A way to a machine's shell.

    name: as the user wrote it. folder: memprof's folder there if none is named, empty for the usual.
    """

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> str: ...

    def words(self, text: str, first: bool = False) -> list[str]:
        """The words that start a process here whose input and output are those of a shell there that follows this text. first: it stays."""

    def refused(self, said: str) -> str:
        """Why the shell there could not be reached, as a sentence; said: what the first process wrote to its standard error."""


@dataclass(eq=False)  # each is itself: what a place said is kept by the place
class Connection:
    """A connection. It lasts from `open` to `close`; if it broke, it is made again for the next program that is started.

    folder: memprof's folder there, None for the usual. wanted_python: the interpreter, None for the first python3. leases: whether nobody
    else may use the place meanwhile.
    """

    link: Link
    folder: str | None = None
    wanted_python: str | None = None
    leases: bool = True
    python: str | None = field(default=None, init=False)
    beat_ns: int = field(default=1_000_000_000, init=False)
    _first: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _closed: threading.Event = field(default_factory=threading.Event, init=False)  # of that process
    _facts: dict[str, str] = field(default_factory=dict, init=False)
    _idle: list[Channel] = field(default_factory=list, init=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)  # programs of several threads start one after another
    _token: str = field(default_factory=lambda: secrets.token_hex(8), init=False)

    @property
    def name(self) -> str:
        """As the user wrote it."""
        return self.link.name

    def open(self) -> None:
        """Reach the place, make its folder and take the lease. Raises InputError."""
        folder = self.folder if self.folder is not None else self.link.folder
        who = " ".join(f"{_user()}@{os.uname().nodename} (memprof {os.getpid()})".split())
        asked = (folder, self._token if self.leases else "", who, self.wanted_python or "", str(_LEASE_S))
        script = shlex.join(["sh", "-c", _FAR.read_text(), _BEGIN.decode().strip(), *asked])
        try:
            process = self._first = piped(self.link.words(f"exec {script}", first=True))
        except OSError as error:
            raise InputError(f"{self.name}: {self.link.words('')[0]} cannot be started: {os_reason(error)}") from None
        text = _until(process, _READY, _OPEN_S)
        if not text.endswith(_READY):
            reason = self._why_not(text, errors_of(process))
            self.close()
            raise InputError(f"{self.name}: {reason}")
        lines = text.partition(_BEGIN)[2].decode("utf-8", "replace").splitlines()
        self._facts = {key.rstrip(":"): value.strip() for key, _, value in (line.partition(" ") for line in lines)}
        self.python = self._facts["python"] or None
        if self.leases:
            self._closed = threading.Event()
            # A thread says that the holder of the lease is there: a place may be held for hours while nothing is measured.
            assert process.stdin is not None
            threading.Thread(target=beat, args=(process.stdin, b"\n", _BEAT_S, self._closed), daemon=True).start()

    def close(self) -> None:
        """Let the place go."""
        process, self._first = self._first, None
        self._closed.set()
        channels, self._idle = self._idle, []
        for channel in channels:
            channel.release()  # all at once: each takes some milliseconds
        for channel in channels:
            channel.close()
        if process is not None:
            ended(process)

    def _why_not(self, text: bytes, errors: str) -> str:
        said = text.partition(_BEGIN)[2].decode("utf-8", "replace").strip().splitlines()
        word, _, rest = said[-1].partition(" ") if said else ("", "", "")
        last = errors.splitlines()[-1].rpartition(": ")[2] if errors else "no reason was given"
        if word == "memprof-held":
            return f"it is in use by {rest}; there is one campaign at a time"
        if word == "memprof-fail":
            why, _, folder = rest.partition(" ")
            if why == "owner":
                return f"the folder {folder} there is not this user's alone; --remote-dir names another"
            return f"the folder {folder} there cannot be written: {last}; --remote-dir names another"
        if _BEGIN not in text and text.strip() and not errors:
            errors = text.decode("utf-8", "replace").strip()
        return self.link.refused(errors)

    def _connected(self) -> None:
        if self._first is None or self._first.poll() is not None:
            self.close()
            self.open()

    # -- programs

    def run(self, words: Sequence[str], timeout_s: float = _SHORT_S) -> subprocess.CompletedProcess[bytes]:
        program = self._channel().start(words, empty=True)
        try:
            out, errors = program.communicate(timeout_s)
        except subprocess.TimeoutExpired:
            try:
                self._end_below(program.channel)
            finally:
                program.channel.close()
            raise
        except BaseException:
            program.channel.close()
            raise
        if program.returncode in (None, BROKEN):
            program.channel.close()
            said = errors.decode("utf-8", "replace").strip()
            raise InputError(f"{self.name}: {self.link.refused(said) if said else 'the connection broke'}")
        self._idle.append(program.channel)
        return subprocess.CompletedProcess(list(words), program.returncode, out, errors)

    def _end_below(self, channel: Channel) -> None:
        """End what a channel's shell has started: it has no input whose end would tell it to."""
        with suppress(InputError, subprocess.TimeoutExpired, OSError):  # the connection may be what takes so long
            if channel.pid is not None:
                ending = self._new_channel()
                try:
                    ending.start(["sh", "-c", END_BELOW, "memprof", channel.pid], empty=True).communicate(_ENDING_S)
                finally:
                    ending.close()

    def start(self, words: Sequence[str], descriptors: Sequence[int] = ()) -> ChannelProgram:
        return self._channel().start(words)

    def lines(self, program: Started) -> Iterator[bytes]:
        assert isinstance(program, ChannelProgram)
        return program.lines(self.beat_ns)

    def end(self, program: Started) -> None:
        """Its channel serves again if it has ended."""
        assert isinstance(program, ChannelProgram)
        if program.returncode is None or self.broken(program):
            program.channel.close()
        else:
            self._idle.append(program.channel)

    def broken(self, program: Started) -> bool:
        return program.returncode in (None, BROKEN) or self._first is None or self._first.poll() is not None

    def _channel(self) -> Channel:
        """A channel that no program has. Raises InputError."""
        with self._turn:
            self._connected()
            while self._idle:
                channel = self._idle.pop()
                if channel.lives:
                    return channel
                channel.close()
            try:
                return self._new_channel()
            except InputError:
                self.close()  # the first process may not have noticed yet that the connection broke
                self.open()
                return self._new_channel()

    def _new_channel(self) -> Channel:
        channel = Channel(self.link.words)
        try:
            errors = channel.opened(_OPEN_S)
            if errors is not None:
                raise InputError(f"{self.name}: {self.link.refused(errors)}")
        except BaseException:
            channel.close()
            raise
        return channel

    def session(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        self._connected()
        return piped(self.link.words(f"exec {shlex.join(words)}"))

    def sh(self, script: str, *words: str) -> str:
        """The output of a shell script there. Raises InputError if it fails."""
        done = self.run(["sh", "-c", script, "memprof", *words])
        if done.returncode != 0:
            raise InputError(f"{self.name}: {why_failed(done)}")
        return done.stdout.decode("utf-8", "replace").strip()

    def owner(self) -> str:
        """The first process there, which lives as long as the connection."""
        self._connected()
        return self._facts["owner"]

    def path(self, *parts: str) -> str:
        return "/".join((self._facts["folder"], *parts))


def why_failed(done: subprocess.CompletedProcess[bytes]) -> str:
    """Why a program failed: the last line of its standard error."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return str(os.getuid())


def _until(process: subprocess.Popen[bytes], end: bytes, time_s: float) -> bytes:
    """The output of a process up to this end, or as far as it comes in this time."""
    assert process.stdout is not None
    descriptor, text, last = process.stdout.fileno(), b"", time.monotonic() + time_s
    while not text.endswith(end):
        left = last - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            break
        chunk = os.read(descriptor, 4096)
        if not chunk:
            break
        text += chunk
    return text
