"""`memprof worker`: offers places to a fleet, each as a Dask worker of one thread with a resource of one, and tends each by a process beside it.

What Dask would do to keep itself busy or observed (stealing, profiling, memory limits) is off: a measurement may be running on the same machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import selectors
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ...cache import cache_folder
from ...errors import InputError, MemprofError, os_reason
from ...files import sha256_of
from ...units import format_bytes
from . import message
from .message import FACTS, RESOURCE, Doing, Offered, Result, Said, Sent, Task
from .security import Security, unreachable

_LOOK_S = 0.2  # how often a thread that waits looks whether its comparison was cancelled
_SILENCE_S = 60.0  # how long a desk may send nothing of a file that is needed
_AGAIN_S = 15.0  # between two attempts to reach a place or the scheduler
_OPEN_S = 120.0
_END_S = 15.0
# Not by -m, which would look for modules in the working folder first.
_TEND = "import sys; sys.path.pop(0); from memprof.measuring.fleet import tending; tending.run()"

CALM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


def calm() -> None:
    """Take these settings, and keep Dask from talking. To be called before anything of Dask is made."""
    import dask

    dask.config.set(CALM)
    for name in ("distributed", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # memprof says by itself what a user needs to know


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

    def measure(self, task: Task, tell: Callable[..., None], cancelled: Callable[[], bool]) -> Result:
        """Measure a comparison whose files are there, and tell each thing that happens. Raises Gone and Cancelled."""
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
        count = 0
        while True:
            word, text = self._line(cancelled)
            if word == "run":
                count += 1
                self.doing = replace(self.doing, done=count)
                tell(run=text)
            elif word == "plan":
                self.doing = replace(self.doing, runs=int(text))
                tell(plan=int(text))
            elif word == "say":
                tell(say=text)
            elif word == "done":
                return Result(count)
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


_STANDS: dict[str, Stand] = {}  # by the name of their Dask worker


# -- what desks ask; these run on the worker


def measure(data: bytes, queue: str) -> bytes:
    """The Dask task: a Task in, a Result out. What happens meanwhile goes to the queue of that name."""
    from distributed import get_worker
    from distributed.utils import sync

    worker: Any = get_worker()
    key = worker.get_current_task()
    stand = _STANDS[worker.name]
    task = message.task(data)

    def tell(**words: Any) -> None:
        said = message.encode(Said(key, **words)).decode()
        sync(worker.loop, worker.scheduler.queue_put, name=queue, data=said, timeout=None)

    def cancelled() -> bool:
        state = worker.state.tasks.get(key)
        return state is None or state.state != "executing" or worker.status.name not in ("running", "paused")

    stand.doing, stand.since_s = Doing(task.title, task.desk), time.monotonic()
    try:
        tell(began=True)
        _bring(task, tell, cancelled)
        return message.encode(stand.measure(task, tell, cancelled))
    except MemprofError as error:
        return message.encode(Result(0, "refused", str(error)))
    except Cancelled:
        stand.close()
        try:
            stand.open()  # so that the place stays leased
        except InputError:
            worker.loop.add_callback(stand.gone.set)
        return message.encode(Result(0, "lost", "it was cancelled"))
    except Gone as error:
        stand.close()
        worker.loop.add_callback(stand.gone.set)
        return message.encode(Result(0, "lost", str(error)))
    finally:
        stand.doing = Doing()
        shutil.rmtree(message.folder_of(task), ignore_errors=True)


def receive(task: str, sha256: str, offset: int, size: int, data: bytes) -> str:
    """A piece of a file, from a desk. The reason if it cannot be kept, else nothing."""
    path = _kept(sha256)
    if path.exists():
        return ""
    part = path.with_name(f"{sha256}.{hashlib.sha256(task.encode()).hexdigest()[:8]}.part")
    try:
        if offset == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(b"")
            free = shutil.disk_usage(path.parent).free
            if free < size:
                raise InputError(f"{format_bytes(size)} are to be sent and {format_bytes(free)} are free")
        with part.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        if offset + len(data) >= size:
            if sha256_of(part)[0] != sha256:
                part.unlink()
                raise InputError("it was damaged or changed on its way")
            part.chmod(0o700)
            part.rename(path)
    except (OSError, InputError) as error:
        part.unlink(missing_ok=True)
        _ARRIVALS.refused[sha256] = os_reason(error) if isinstance(error, OSError) else str(error)
        _ARRIVALS.last = time.monotonic()
        return f"{path.parent} on {os.uname().nodename}: {_ARRIVALS.refused[sha256]}"
    _ARRIVALS.last = time.monotonic()
    return ""


@dataclass
class _Arrivals:
    """Files on their way to this process: why one could not be kept, and when the last piece of any came."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    refused: dict[str, str] = field(default_factory=dict)
    last: float = 0.0


_ARRIVALS = _Arrivals()


def _kept(sha256: str) -> Path:
    return cache_folder("fleet") / "files" / sha256


def _bring(task: Task, tell: Callable[..., None], cancelled: Callable[[], bool]) -> None:
    """All files of a comparison in its folder, the missing ones asked for first. Raises InputError and Cancelled."""
    while not _ARRIVALS.lock.acquire(timeout=_LOOK_S):  # another place of this worker may be asking for the same file
        if cancelled():
            raise Cancelled
    try:
        missing = {file.sha256: file for file in task.files if not _kept(file.sha256).exists()}
        if missing:
            _await(missing, tell, cancelled)
    finally:
        _ARRIVALS.lock.release()
    folder = message.folder_of(task)
    shutil.rmtree(folder, ignore_errors=True)
    for file in task.files:
        target = folder / file.name
        if not target.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"the desk named a file outside of its folder: {file.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(_kept(file.sha256), target)
    folder.mkdir(parents=True, exist_ok=True)


def _await(missing: Mapping[str, Sent], tell: Callable[..., None], cancelled: Callable[[], bool]) -> None:
    for sha256 in missing:
        _ARRIVALS.refused.pop(sha256, None)
    _ARRIVALS.last = time.monotonic()
    tell(needs=tuple(missing))
    while any(not _kept(sha256).exists() for sha256 in missing):
        for sha256, file in missing.items():
            if sha256 in _ARRIVALS.refused:
                name = os.path.basename(file.name)
                raise InputError(
                    f"{name} cannot be kept on {os.uname().nodename}, in {_kept(sha256).parent}: {_ARRIVALS.refused[sha256]}; "
                    "XDG_CACHE_HOME of its worker can name another place"
                )
        if cancelled():
            raise Cancelled
        if time.monotonic() - _ARRIVALS.last > _SILENCE_S:
            raise InputError(f"the desk sent nothing of a file for {_SILENCE_S:.0f} s")
        time.sleep(_LOOK_S / 4)


# -- the worker itself


async def serve(scheduler: str, stands: Sequence[Stand], security: Security, say: Callable[[str], None]) -> None:
    """Offer the places until this is cancelled. Raises InputError if the scheduler does not answer, or if no place can be reached.

    A place or a scheduler that is lost later is tried again for as long as it takes.
    """
    calm()
    refusals: list[InputError] = []
    for stand in stands:
        try:
            await asyncio.to_thread(stand.open)
        except InputError as error:
            refusals.append(error)
    if len(refusals) == len(stands):
        raise refusals[0]
    for refusal in refusals:
        say(f"{refusal}; it is tried again every {_AGAIN_S:.0f} s")
    try:
        await asyncio.gather(*(_offer(scheduler, number, stand, security, say) for number, stand in enumerate(stands)))
    finally:
        for stand in stands:
            await asyncio.to_thread(stand.close)


async def _offer(scheduler: str, number: int, stand: Stand, security: Security, say: Callable[[str], None]) -> None:
    connected_once = False
    while True:
        if stand.offered is None or stand.gone.is_set():
            stand.gone.clear()
            try:
                await asyncio.to_thread(stand.close)
                await asyncio.to_thread(stand.open)
            except InputError:
                stand.offered = None
                await asyncio.sleep(_AGAIN_S)
                continue
            say(f"{stand.offer} is offered again" if connected_once else f"{stand.offer} is offered")
        try:
            worker = await _connected(scheduler, number, stand, security)
        except (OSError, TimeoutError, ValueError) as error:
            if not connected_once:
                raise unreachable(scheduler, error) from None
            await asyncio.sleep(_AGAIN_S / 5)
            continue
        if connected_once:
            say(f"{scheduler} has {stand.offer} again")
        else:
            say(f"{stand.offer} is offered at {scheduler}")
        connected_once = True
        ends = [asyncio.ensure_future(worker.finished()), asyncio.ensure_future(stand.gone.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            name = worker.name
            await worker.close()
            _STANDS.pop(name, None)
        say(f"{stand.offer} is lost" if stand.gone.is_set() else f"the connection to {scheduler} is lost; {stand.offer} waits for it")


async def _connected(scheduler: str, number: int, stand: Stand, security: Security) -> Any:
    from distributed import Worker
    from distributed.worker import DEFAULT_METRICS, DEFAULT_STARTUP_INFORMATION

    assert stand.offered is not None
    facts = msgspec.to_builtins(stand.offered)
    name = f"{stand.offer} of {stand.offered.host} ({os.getpid()}.{number})"
    _STANDS[name] = stand
    return await Worker(
        scheduler,
        nthreads=1,
        name=name,
        resources={RESOURCE: 1},
        memory_limit=0,
        security=security.dask("worker"),
        dashboard=False,
        local_directory=str(cache_folder("fleet")),
        death_timeout=_AGAIN_S,
        metrics={**DEFAULT_METRICS, FACTS: lambda worker: stand.doing_now()},
        startup_information={**DEFAULT_STARTUP_INFORMATION, FACTS: lambda worker: facts},
    )
