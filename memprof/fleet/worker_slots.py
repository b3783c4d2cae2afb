"""A place that a worker offers, and the worker's end of the conversation with the process that measures there (see message.py)."""

from __future__ import annotations

import asyncio
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ..base.errors import InputError
from . import message
from .message import Doing, Event, Offered, Result, Task

_LOOK_S = 0.2  # how often a thread that waits looks whether its comparison was cancelled
_OPEN_S = 120.0
_END_S = 15.0
# Without -m, which would look for modules in the working folder first.
_LOOP = "import sys; sys.path.pop(0); from memprof.fleet import worker_loop; worker_loop.run()"


class Gone(Exception):
    """The place cannot be reached."""


class Cancelled(Exception):
    """Nobody waits for the comparison any more."""


@dataclass(eq=False)
class Slot:
    """A place that is offered, and the process that measures there. labels: the worker's own. lost: the place cannot be
    reached, which `gone` tells the worker's event loop."""

    offer: str
    folder: str | None
    python: str | None
    labels: Mapping[str, str]
    offered: Offered | None = None
    doing: Doing = field(default_factory=Doing)
    since_s: float = 0.0
    lost: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _process: subprocess.Popen[bytes] | None = None
    _rest: bytes = b""

    def open(self) -> None:
        """Start the process, which reaches the place and takes its lease. Raises InputError."""
        words = [sys.executable, "-c", _LOOP, self.offer, self.folder or "", self.python or ""]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._rest = b""
        end = time.monotonic() + _OPEN_S
        try:
            first = self._event(lambda: time.monotonic() > end)
        except (Gone, Cancelled):
            first = Event(end=Result(how="lost", why="it did not answer"))
        if first.end is not None:
            self.close()
            raise InputError(f"{self.offer} cannot be offered: {first.end.why}")
        host = os.uname().nodename
        # What the place itself says, and who offers it; a label that the user gave comes first.
        labels = {**first.facts, "host": host, "place": self.offer, **self.labels}
        self.lost = False
        self.offered = Offered(self.offer, host, first.facts["machine"], labels, message.PROTOCOL, message.version())

    def doing_now(self) -> dict[str, Any]:
        """What the place does, for the scheduler. Durations travel, never times: the clocks of two machines may differ by hours."""
        for_s = time.monotonic() - self.since_s if self.doing.title else 0.0
        return msgspec.to_builtins(replace(self.doing, for_s=for_s))  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process, and its work."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def measure(self, task: Task, cancelled: Callable[[], bool]) -> Iterator[Event]:
        """Measure a comparison whose files are there; all that happens, its end last. Raises Gone and Cancelled."""
        if self._process is None:
            try:
                self.open()
            except InputError as error:
                raise Gone(str(error)) from None
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(message.encode(task) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Gone(f"the process that measures at {self.offer} ended") from None
        ended = False
        while not ended:
            event = self._event(cancelled)
            self.doing = replace(self.doing, done=self.doing.done + bool(event.run), runs=event.plan or self.doing.runs)
            ended = event.end is not None
            if event.end is not None and event.end.how == "lost":
                raise Gone(event.end.why)
            yield event

    def _event(self, stop: Callable[[], bool]) -> Event:
        """What the process says next. Raises Gone if the process ended, Cancelled once `stop` is true."""
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if stop():
                    raise Cancelled
                if selector.select(_LOOK_S):
                    chunk = os.read(descriptor, 1 << 20)
                    if not chunk:
                        raise Gone(f"the process that measures at {self.offer} ended")
                    self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return message.event(line)
        except msgspec.DecodeError as error:
            raise Gone(f"the process that measures at {self.offer} said what is no event: {error}") from None
