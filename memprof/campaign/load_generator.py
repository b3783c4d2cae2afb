"""Requests for a server that is measured: `--drive`. A small client in this process asks it while the recorder looks at its memory.

Its phases are MODEL_LOAD, from its start until it answers, WARMUP and REQUEST. Where a phase ends, the client has the recorder look at the server
(the command `look`, with what was asked), and goes on when that has been read; no request is open meanwhile.

`openai:PORT`: the server answers to OpenAI's `/v1/completions`, and is ready when `/v1/models` answers. A prompt is a list of token ids, so that its
length is known. `http:PORT/PATH`: each request gets PATH, or posts a file there; the server is ready when `/` answers, with whatever but 5xx.

Requests want their answers as a stream (`stream`, server-sent events), so that the first token has a time. A server that does not stream, or whose
stream has no count of tokens (`stream_options`), gets requests for whole answers from then on.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ..base.errors import InputError, os_reason
from ..places.place import Started
from ..records.types import MODEL_LOAD, REQUEST, WARMUP, Job, Use
from ..subjects.drive import Drive

_LOOK_S = 0.02  # between two looks whether the server answers
_SPARE_S = 2.0  # of the time limit, for the message when it does not
_REST_S = 0.2  # at the end of requests: the recorder needs time to tell apart what several processes share
_STOP_NS = 5_000_000_000  # from SIGTERM to SIGKILL
_DEATH_S = 2.0  # a server whose connection broke has ended, as the recorder will say within this
# Ids that every vocabulary has and that end no text: the bytes and the commonest pieces.
_FIRST_TOKEN, _TOKENS, _STEP = 3, 251, 97


def check_free(drive: Drive, name: str) -> None:
    """Raises InputError if a program listens on the port already: it would be asked in place of the variant of that name."""
    with suppress(OSError), socket.create_connection((drive.host, drive.port), timeout=1):
        raise InputError(f"port {drive.port} of {drive.host} is in use: the program there would be asked in place of {name}")


class _Failed(Exception):
    """The server does not do what it is asked, in a sentence."""


class _Broken(_Failed):
    """A connection broke: the server may have ended, which the recorder says better."""


class _NotHttp(Exception):
    """The answer is not as HTTP has it; the text is the name of the error."""


class _Unstreamed(Exception):
    """The server's answer to a request for a stream is none that can be used; the text says why."""


class _Answer(NamedTuple):
    """A request that was answered: tokens of its prompt and tokens generated; when its first token came after its begin, None where only the whole
    answer came."""

    time_ns: int
    first_ns: int | None = None
    prompt: int = 0
    generated: int = 0


class Driving:
    """One run of a server under a load. `start` is called with its recorder, `heard` when the recorder has ended a phase, `end` when it is over."""

    def __init__(self, drive: Drive, job: Job) -> None:
        self._drive, self._job = drive, job
        self._bodies = drive.bodies()
        self._content_type = "application/json" if drive.is_json else "application/octet-stream"
        self._over, self._heard = threading.Event(), threading.Event()
        self._model: str | None = None
        self._streams = True  # as far as is known
        self._has_streamed = False
        self._remark = ""
        self._thread = threading.Thread(target=self._run, name="drive", daemon=True)

    def start(self, process: Started) -> None:
        """Begin to ask the server that this recorder starts."""
        self._process = process
        self._end_s = time.monotonic() + self._job.timeout_ns / 1e9
        self._thread.start()

    def heard(self) -> None:
        """The recorder has ended the phase."""
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
            self._phase_ends(MODEL_LOAD)
            for phase, count in ((WARMUP, self._job.warmup), (REQUEST, self._job.runs)):
                first = 0 if phase == WARMUP else self._job.warmup
                if count and not self._over.is_set():
                    numbers = range(first, first + count)
                    answers = self._ask_for(numbers) if self._job.use is None else self._follow(self._job.use, numbers)
                    self._over.wait(_REST_S)
                    self._phase_ends(phase, answers)
            self._stop(word="stop")
        except _Failed as error:
            if not self._over.wait(_DEATH_S if isinstance(error, _Broken) else 0):
                self._stop(word="failed", phase=phase, message=str(error))

    def _wait_for_answer(self) -> None:
        why, general = "nothing listens there", self._drive.kind == "http"
        ready = "/" if general else "/v1/models"
        while time.monotonic() < self._end_s - min(_SPARE_S, self._job.timeout_ns / 2e9):
            if self._over.wait(_LOOK_S):
                raise _Failed("it ended")
            try:
                status, answer, _ = self._http("GET", ready)
            except (OSError, _NotHttp) as error:
                why = os_reason(error) if isinstance(error, OSError) else "that is not HTTP"
                continue
            if general and status < 500:
                return
            if status in (200, 404):
                with suppress(LookupError, TypeError):
                    self._model = str(answer["data"][0]["id"])
                return
            why = f"HTTP {status}"
        raise _Failed(f"the server did not answer at http://{self._drive.host}:{self._drive.port}{ready} in time ({why})")

    def _ask_for(self, numbers: range) -> list[_Answer]:
        """The answers to requests by their numbers, as many at once as wanted."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(self._drive.parallel) as pool:
            return list(pool.map(self._request, numbers))

    def _follow(self, use: Use, numbers: range) -> list[_Answer]:
        """Ask, with a look at the server's memory between the requests, as long as there is time; the tokens of all answers as one."""
        end_ns = time.monotonic_ns() + use.time_ns if use.time_ns else None
        done, total = 0, _Answer(0)
        self._look(word="counted", phase=REQUEST, units={"request": 0})
        while done < len(numbers) and not self._over.is_set() and (end_ns is None or time.monotonic_ns() < end_ns):
            answers = self._ask_for(numbers[done : done + self._drive.parallel])
            done += len(answers)
            total = _Answer(
                0,
                None,
                total.prompt + sum(answer.prompt for answer in answers),
                total.generated + sum(answer.generated for answer in answers),
            )
            self._look(word="counted", phase=REQUEST, units={"request": done})
        return [total]

    def _request(self, number: int) -> _Answer:
        if self._over.is_set():
            raise _Failed("it ended")
        try:
            return self._plain(number) if self._drive.kind == "http" else self._completion(number)
        except (OSError, _NotHttp) as error:
            name = str(error) if isinstance(error, _NotHttp) else type(error).__name__
            raise _Broken(f"request {number + 1} had no answer: {name}") from None

    def _plain(self, number: int) -> _Answer:
        """A request for the path. Raises OSError and _NotHttp."""
        body = self._bodies[number % len(self._bodies)] if self._bodies else None
        begin_ns = time.monotonic_ns()
        status, answer, _ = self._http("GET" if body is None else "POST", self._drive.path, body)
        if status >= 400:
            raise _Failed(f"request {number + 1} was refused: HTTP {status}: {str(answer)[:200]}")
        return _Answer(time.monotonic_ns() - begin_ns)

    def _completion(self, number: int) -> _Answer:
        """A prompt, and its answer. Raises OSError and _NotHttp."""
        drive = self._drive
        prompt = number if drive.distinct is None else number % drive.distinct
        # Two prompts differ from their first token on, or in the distance of neighbours.
        step = _STEP + prompt // _TOKENS
        tokens = [_FIRST_TOKEN + (prompt + step * place) % _TOKENS for place in range(drive.prompts)]
        wanted = {"prompt": tokens, "max_tokens": drive.generate, "temperature": 0, "ignore_eos": True}
        wanted.update({"model": self._model} if self._model else {})
        if self._streams:
            try:
                return self._answer(number, {**wanted, "stream": True, "stream_options": {"include_usage": True}})
            except _Unstreamed as why:
                self._streams = False
                self._remark = f"memprof asked the server for whole answers, whose first token has no time: {why}"
        return self._answer(number, wanted)

    def _answer(self, number: int, wanted: dict[str, Any]) -> _Answer:
        """Raises _Unstreamed where a request wanted a stream and whole answers may do better, and OSError and _NotHttp."""
        doubtful = "stream" in wanted and not self._has_streamed
        begin_ns = time.monotonic_ns()
        status, answer, first_ns = self._http("POST", "/v1/completions", json.dumps(wanted).encode())
        time_ns = time.monotonic_ns() - begin_ns
        error = answer.get("error") if isinstance(answer, dict) else None
        if status != 200 or error:
            message = error or answer
            message = message.get("message", message) if isinstance(message, dict) else message
            said = f"HTTP {status}: {str(message)[:200]}"
            if doubtful:
                raise _Unstreamed(f"it refused a stream ({said})")
            raise _Failed(f"request {number + 1} was refused: {said}")
        try:
            tokens = int(answer["usage"]["prompt_tokens"]), int(answer["usage"]["completion_tokens"])
        except (LookupError, TypeError, ValueError):
            if doubtful:
                raise _Unstreamed("its stream has no usage with prompt_tokens and completion_tokens") from None
            raise _Failed(f"the answer to request {number + 1} has no usage with prompt_tokens and completion_tokens") from None
        self._has_streamed |= first_ns is not None
        if doubtful and not self._has_streamed:
            self._streams, self._remark = False, "the server does not stream: its first tokens have no time"
        return _Answer(time_ns, first_ns - begin_ns if first_ns is not None else None, *tokens)

    def _http(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any, int | None]:
        """The status, the JSON of an answer (its text if it is none), and when the first token of a stream came; of a stream the JSON is its last
        event's with a usage or an error. Raises OSError and _NotHttp."""
        from http.client import HTTPConnection, HTTPException  # here: they load ssl and email, and few measurements ask a server

        connection = HTTPConnection(self._drive.host, self._drive.port, timeout=max(1.0, self._end_s - time.monotonic()))
        try:
            connection.request(method, path, body, {"Content-Type": self._content_type})
            response = connection.getresponse()
            if (response.getheader("Content-Type") or "").startswith("text/event-stream"):
                return response.status, *_streamed(response)
            data = response.read()
        except HTTPException as error:
            raise _NotHttp(type(error).__name__) from None
        finally:
            connection.close()
        try:
            return response.status, json.loads(data), None
        except ValueError:
            return response.status, data.decode("utf-8", "replace"), None

    def _phase_ends(self, phase: str, answers: Sequence[_Answer] = ()) -> None:
        tokens = {"token": sum(answer.generated for answer in answers), "prompt_token": sum(answer.prompt for answer in answers)}
        firsts = [answer.first_ns for answer in answers if answer.first_ns is not None]
        self._look(
            word="ended",
            phase=phase,
            times_ns=[answer.time_ns for answer in answers] if self._job.use is None else [],
            units=tokens if answers and self._drive.kind == "openai" else {},
            first_token_ns=firsts if len(firsts) == len(answers) else [],
            remark=self._remark,
        )
        self._remark = ""

    def _look(self, **content: Any) -> None:
        """Have the recorder look at the server, with this word, and wait until it has."""
        self._heard.clear()
        self._tell(**content)
        while not self._heard.wait(1) and not self._over.is_set():
            pass

    def _stop(self, **content: Any) -> None:
        """End the server: all is done, or it failed."""
        self._tell(**content)
        self._write(b"end %d\n" % _STOP_NS)

    def _tell(self, **content: Any) -> None:
        """A word that the recorder writes beside a look at the server, for the fold."""
        self._write(b"look %s\n" % json.dumps(content).encode())

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it is gone
            self._process.stdin.write(line)
            self._process.stdin.flush()


def _streamed(lines: Iterable[bytes]) -> tuple[Any, int | None]:
    """The last event of a stream that has a usage or an error, and when the first one with a choice came (html.spec.whatwg.org, server-sent events:
    `data: JSON` a line, and a last one that is no JSON)."""
    told: Any = None
    first_ns = None
    for line in lines:
        if not line.startswith(b"data:"):
            continue
        with suppress(ValueError, AttributeError):
            event = json.loads(line.removeprefix(b"data:"))
            if event.get("choices") and first_ns is None:
                first_ns = time.monotonic_ns()
            if event.get("usage") or event.get("error"):
                told = event
    return told, first_ns
