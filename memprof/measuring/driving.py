"""Requests for a server that is measured: `--drive openai:PORT`. A small client in this process asks it while the probe looks at its memory.

The server answers to OpenAI's `/v1/completions`. Its phases are MODEL_LOAD, from its start until `/v1/models` answers, WARMUP and REQUEST. The client
tells the probe where a phase ends, on the probe's standard input, and goes on when the probe has read the server's memory; no request is open
meanwhile. A prompt is a list of token ids, so that its length is known.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, UsageError, os_reason
from ..runs.records import MODEL_LOAD, REQUEST, WARMUP, Job
from ..units import counted
from .places.place import Started

_LOOPBACK = "127.0.0.1"
_LOOK_S = 0.02  # between two looks whether the server answers
_SPARE_S = 2.0  # of the time limit, for what is said when it does not
_DEATH_S = 2.0  # a server whose connection broke has ended, as the probe will say within this
# Ids that every vocabulary has and that end no text: the bytes and the commonest pieces.
_FIRST_TOKEN, _TOKENS, _STEP = 3, 251, 97


@dataclass(frozen=True)
class Drive:
    """A load: where the server listens, tokens of a prompt, tokens generated, requests open at once, and how many prompts differ (None: all)."""

    host: str
    port: int
    prompts: int = 128
    generate: int = 32
    parallel: int = 1
    distinct: int | None = None

    @property
    def words(self) -> str:
        """The load as a table's title has it."""
        differing = "all different" if self.distinct is None else f"{self.distinct} different"
        return f"prompts of {counted(self.prompts, 'token')}, {differing}, {self.generate} generated, {self.parallel} at once"


def parse(text: str, prompts: int | None, generate: int | None, parallel: int | None, distinct: int | None) -> Drive:
    """`openai:PORT` or `openai:HOST:PORT`, with the numbers of the load; None for the default. Raises UsageError."""
    kind, colon, place = text.partition(":")
    host, _, port = place.rpartition(":")
    if kind != "openai" or not colon or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise UsageError(f"--drive {text!r}: write openai:PORT, or openai:HOST:PORT for a server that does not listen on {_LOOPBACK}")
    given = {"prompts": prompts, "generate": generate, "parallel": parallel, "distinct": distinct}
    for name, number in given.items():
        if number is not None and number < 1:
            raise UsageError(f"--{name} {number}: it is at least 1")
    return Drive(host or _LOOPBACK, int(port), **{name: number for name, number in given.items() if number is not None})


def check_free(drive: Drive, name: str) -> None:
    """Raises InputError if a program listens on the port already: it would be asked in place of the variant of that name."""
    with suppress(OSError), socket.create_connection((drive.host, drive.port), timeout=1):
        raise InputError(f"port {drive.port} of {drive.host} is in use: the program there would be asked in place of {name}")


class _Failed(Exception):
    """The server does not do what it is asked, in a sentence."""


class _Broken(_Failed):
    """A connection broke: the server may have ended, which the probe says better."""


class _NotHttp(Exception):
    """The answer is not as HTTP has it; the text is the name of the error."""


class Driving:
    """One run of a server under a load. `start` is called with its probe, `heard` when the probe has ended a phase, `end` when it is over."""

    def __init__(self, drive: Drive, job: Job) -> None:
        self._drive, self._job = drive, job
        self._over, self._heard = threading.Event(), threading.Event()
        self._model: str | None = None
        self._thread = threading.Thread(target=self._run, name="drive", daemon=True)

    def start(self, process: Started) -> None:
        """Begin to ask the server that this probe starts."""
        self._process = process
        self._end_s = time.monotonic() + self._job.timeout_ns / 1e9
        self._thread.start()

    def heard(self) -> None:
        """The probe has ended the phase."""
        self._heard.set()

    def end(self) -> None:
        """The server is gone: ask no more."""
        self._over.set()
        self._heard.set()
        if self._thread.is_alive():
            self._thread.join(_DEATH_S)

    def _run(self) -> None:
        phase = MODEL_LOAD
        try:
            self._wait_for_answer()
            self._phase_ends(MODEL_LOAD, (), {})
            for phase, count in ((WARMUP, self._job.warmup), (REQUEST, self._job.runs)):
                first = 0 if phase == WARMUP else self._job.warmup
                if count and not self._over.is_set():
                    self._phase_ends(phase, *self._ask_for(range(first, first + count)))
            self._tell("stop")
        except _Failed as error:
            if not self._over.wait(_DEATH_S if isinstance(error, _Broken) else 0):
                self._tell("failed", phase=phase, message=str(error))

    def _wait_for_answer(self) -> None:
        why = "nothing listens there"
        while time.monotonic() < self._end_s - min(_SPARE_S, self._job.timeout_ns / 2e9):
            if self._over.wait(_LOOK_S):
                raise _Failed("it ended")
            try:
                status, answer = self._http("GET", "/v1/models")
            except (OSError, _NotHttp) as error:
                why = os_reason(error) if isinstance(error, OSError) else "that is not HTTP"
                continue
            if status in (200, 404):
                with suppress(LookupError, TypeError):
                    self._model = str(answer["data"][0]["id"])
                return
            why = f"HTTP {status}"
        raise _Failed(f"the server did not answer at http://{self._drive.host}:{self._drive.port}/v1/models in time ({why})")

    def _ask_for(self, numbers: range) -> tuple[Sequence[int], dict[str, int]]:
        """(times_ns, units) of requests by their numbers, as many at once as wanted."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(self._drive.parallel) as pool:
            answers = list(pool.map(self._request, numbers))
        units = {"token": sum(answer[2] for answer in answers), "prompt_token": sum(answer[1] for answer in answers)}
        return [answer[0] for answer in answers], units

    def _request(self, number: int) -> tuple[int, int, int]:
        """(time_ns, tokens of the prompt, tokens generated) of a request."""
        if self._over.is_set():
            raise _Failed("it ended")
        drive = self._drive
        prompt = number if drive.distinct is None else number % drive.distinct
        # Two prompts differ from their first token on, or in the distance of neighbours.
        step = _STEP + prompt // _TOKENS
        tokens = [_FIRST_TOKEN + (prompt + step * place) % _TOKENS for place in range(drive.prompts)]
        wanted = {"prompt": tokens, "max_tokens": drive.generate, "temperature": 0, "ignore_eos": True}
        begin_ns = time.monotonic_ns()
        try:
            status, answer = self._http("POST", "/v1/completions", {**wanted, **({"model": self._model} if self._model else {})})
        except (OSError, _NotHttp) as error:
            name = str(error) if isinstance(error, _NotHttp) else type(error).__name__
            raise _Broken(f"request {number + 1} had no answer: {name}") from None
        time_ns = time.monotonic_ns() - begin_ns
        if status != 200:
            message = answer.get("error", answer) if isinstance(answer, dict) else answer
            message = message.get("message", message) if isinstance(message, dict) else message
            raise _Failed(f"request {number + 1} was refused: HTTP {status}: {str(message)[:200]}")
        try:
            return time_ns, int(answer["usage"]["prompt_tokens"]), int(answer["usage"]["completion_tokens"])
        except (LookupError, TypeError, ValueError):
            raise _Failed(f"the answer to request {number + 1} has no usage with prompt_tokens and completion_tokens") from None

    def _http(self, method: str, path: str, content: dict[str, Any] | None = None) -> tuple[int, Any]:
        """The status and the JSON of an answer, None if it is none. Raises OSError and _NotHttp."""
        from http.client import HTTPConnection, HTTPException  # here: they load ssl and email, and few measurements ask a server

        connection = HTTPConnection(self._drive.host, self._drive.port, timeout=max(1.0, self._end_s - time.monotonic()))
        try:
            body = json.dumps(content) if content is not None else None
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
        except HTTPException as error:
            raise _NotHttp(type(error).__name__) from None
        finally:
            connection.close()
        try:
            return response.status, json.loads(data)
        except ValueError:
            return response.status, data.decode("utf-8", "replace")

    def _phase_ends(self, phase: str, times_ns: Sequence[int], units: dict[str, int]) -> None:
        self._heard.clear()
        self._tell("ended", phase=phase, times_ns=list(times_ns), units=units)
        while not self._heard.wait(1) and not self._over.is_set():
            pass

    def _tell(self, word: str, **content: Any) -> None:
        """A line for the probe."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it is gone
            self._process.stdin.write(f"{word} {json.dumps(content)}\n".encode())
            self._process.stdin.flush()
