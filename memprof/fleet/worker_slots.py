"""A place that a worker offers, and its end of the conversation with the process that tends the place (see message.py)."""

from __future__ import annotations

import asyncio
import base64
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ..base.errors import InputError
from . import message
from .message import Doing, Offered, Result, Task

_LOOK_S = 0.2  # how often a thread that waits looks whether its comparison was cancelled
_OPEN_S = 120.0
_END_S = 15.0
# Not by -m, which would look for modules in the working folder first.
_TEND = "import sys; sys.path.pop(0); from memprof.fleet import worker_loop; worker_loop.run()"


class Gone(Exception):
    """The place cannot be reached."""


class Cancelled(Exception):
    """Nobody waits for the comparison any more."""


@dataclass(eq=False)
class Stand:
    """A place that is offered, and the process that tends it. labels: the worker's own."""

    offer: str
    folder: str | None
    python: str | None
    labels: Mapping[str, str]
    offered: Offered | None = None
    doing: Doing = field(default_factory=Doing)
    since_s: float = 0.0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _process: subprocess.Popen[bytes] | None = None
    _rest: bytes = b""

    def open(self) -> None:
        """Start the process, which reaches the place and takes its lease. Raises InputError."""
        words = [sys.executable, "-c", _TEND, self.offer, self.folder or "", self.python or ""]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._rest = b""
        end = time.monotonic() + _OPEN_S
        try:
            word, text = self._line(lambda: time.monotonic() > end)
        except (Gone, Cancelled):
            word, text = "failed", "lost it did not answer"
        if word != "ready":
            self.close()
            raise InputError(f"{self.offer} cannot be offered: {text.partition(' ')[2]}")
        facts = msgspec.json.decode(text, type=dict[str, str])
        host = os.uname().nodename
        # What the place itself says, and who offers it; a label that the user gave comes first.
        labels = {"arch": facts["arch"], "machine": facts["machine"], "host": host, "place": self.offer, **self.labels}
        self.offered = Offered(self.offer, host, facts["machine"], labels, message.PROTOCOL, message.version())

    def doing_now(self) -> dict[str, Any]:
        """What the place does, for the scheduler. Durations travel, never times: the clocks of two machines may differ by hours."""
        for_s = time.monotonic() - self.since_s if self.doing.title else 0.0
        return msgspec.to_builtins(replace(self.doing, for_s=for_s))  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process, and all that it does."""
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

    def measure(self, task: Task, tell: Callable[..., None], cancelled: Callable[[], bool], unsaid: dict[str, Any]) -> Result:
        """Measure a comparison whose files are there, and tell each thing that happens. Raises Gone and Cancelled. unsaid: goes with what is told
        next; the last Run is put there, because the end follows it at once."""
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
            raise Gone(f"the process that tends {self.offer} ended") from None
        count = plan = 0
        while True:
            word, text = self._line(cancelled)
            if word == "run":
                count += 1
                self.doing = replace(self.doing, done=count)
                if count == plan:
                    unsaid["run"] = text
                else:
                    tell(run=text)
            elif word == "plan":
                plan = int(text)
                self.doing = replace(self.doing, runs=plan)
                tell(plan=plan)
            elif word == "say":
                tell(say=text)
            elif word == "outputs":
                tell(outputs=base64.b64decode(text))
            elif word == "done":
                return Result(count)
            elif word == "unmade":
                reasons = msgspec.json.decode(text, type=dict[str, str])
                return Result(count, "unmade", "; ".join(reasons.values()), reasons)
            elif word == "failed":
                how, _, why = text.partition(" ")
                if how == "lost":
                    raise Gone(why)
                return Result(count, "usage" if how == "usage" else "refused", why)

    def _line(self, stop: Callable[[], bool]) -> tuple[str, str]:
        """The next line of the process, as a word and the rest. Raises Gone if the process ended, Cancelled if `stop` says so."""
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
                        raise Gone(f"the process that tends {self.offer} ended")
                    self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        word, _, text = line.decode("utf-8", "replace").partition(" ")
        return word, text
