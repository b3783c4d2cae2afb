"""Either recorder on a real program: an order goes in, and its recording is read event by event.

Nothing here waits for a time. A program waits for a byte (`go`), and a test for an event; a test whose event does not come fails after WITHIN_S.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WITHIN_S = 60
MIB = 1 << 20

# What a program in Python begins with: `mark` writes a line for memprof, and `go` waits for a byte from the test.
HEAD = """
import os, signal, sys, time
def mark(text):
    os.write(int(os.environ["MEMPROF_MARKS"].split(":")[0]), text.encode() + b"\\n")
def go():
    os.read(0, 1)
def wait():
    while True: signal.pause()
"""


def python(code: str) -> list[str]:
    """The words of a program in Python, whose process never changes."""
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", HEAD + code]


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def unescaped(text: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in text.split("\\\\"))


@dataclass(frozen=True)
class Event:
    """A line of a recording. fields: all behind its kind, as they stand there."""

    kind: str
    fields: tuple[str, ...]

    def __getitem__(self, place: int) -> int:
        return int(self.fields[place])

    def text(self, place: int) -> str:
        """The TEXT that begins at this field, without its escapes."""
        return unescaped(" ".join(self.fields[place:]))

    @property
    def changes(self) -> dict[int, tuple[int, int, int]]:
        """Of a poll: STATM by process."""
        rest = list(map(int, self.fields[4:]))
        return {rest[at]: (rest[at + 1], rest[at + 2], rest[at + 3]) for at in range(0, len(rest), 4)}


@dataclass
class Recording:
    """A recorder that runs, and what it has written so far."""

    process: subprocess.Popen[bytes]
    program_input: int
    events: list[Event] = field(default_factory=list)
    _rest: bytes = b""

    def go(self, count: int = 1) -> None:
        """Let the program go on where it waits."""
        os.write(self.program_input, b"x" * count)

    def say(self, command: str) -> None:
        """Give the recorder a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def wait(self, kind: str, fits: Callable[[Event], bool] = lambda event: True) -> Event:
        """The first event of this kind that fits, as soon as it was written."""
        place = 0
        while True:
            for event in self.events[place:]:
                if event.kind == kind and fits(event):
                    return event
            place = len(self.events)
            assert self._read(), f"the recording ended without {kind}: {self.events[-5:]}"

    def read_until(self, true: Callable[[], bool]) -> None:
        """Read on until this holds of the events so far."""
        while not true():
            assert self._read(), f"the recording ended before: {self.events[-5:]}"

    def wait_pid(self) -> int:
        """The process that was started."""
        return self.wait("start")[1]

    def wait_mark(self, text: str) -> Event:
        return self.wait("mark", lambda event: event.text(2) == text)

    def finish(self, code: int = 0) -> list[Event]:
        """All events, once the recorder has ended with this exit code."""
        while self._read():
            pass
        assert self.process.wait(WITHIN_S) == code
        if code == 0:
            assert self.events[-1].kind == "end"
        return self.events

    def between(self, first: Event, last: Event) -> list[Event]:
        """The events from one to another, both among them. Two of a kind are told apart by their places."""
        places = {id(event): place for place, event in enumerate(self.events)}
        return self.events[places[id(first)] : places[id(last)] + 1]

    def _read(self) -> bool:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        assert select.select([descriptor], [], [], WITHIN_S)[0], f"nothing more was written: {self.events[-5:]}"
        data = os.read(descriptor, 1 << 20)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, *fields = line.decode("utf-8", "surrogateescape").split(" ")
            self.events.append(Event(kind, tuple(fields)))
        return bool(data)


@dataclass(frozen=True)
class Recorder:
    """One of the two recorders. command: how it is started."""

    kind: str
    command: Sequence[str]

    @contextlib.contextmanager
    def run(self, words: Sequence[str], **facts: object) -> Iterator[Recording]:
        """A recorder with an order for this program, whose standard input is the test's. facts: further lines of the order."""
        read, write = os.pipe()
        try:
            lines = [f"argv {escaped(word)}" for word in words]
            if "stdin" not in facts and words:
                lines.append(f"input {read}")
            with self.started(order(lines, **facts), read) as process:
                yield Recording(process, write)
        finally:
            for descriptor in (read, write):
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    @contextlib.contextmanager
    def started(self, text: bytes, *inherited: int, wrap: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
        """The recorder with this on its standard input. At the end it is gone."""
        command = [*wrap, *self.command]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=inherited)
        assert process.stdin is not None
        with process:
            try:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(text)
                    process.stdin.flush()
                yield process
            finally:
                process.kill()
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()


def order(lines: Sequence[str], **facts: object) -> bytes:
    """An order of these lines and facts; a list stands for several lines of a name."""
    given: dict[str, object] = {"interval": 10**6, "timeout": WITHIN_S * 10**9, **facts}
    for name, value in given.items():
        lines = [*lines, *(f"{name} {escaped(str(item))}" for item in (value if isinstance(value, list) else [value]))]
    return "\n".join([*lines, "", ""]).encode()


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that no event tells of."""
    end = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
