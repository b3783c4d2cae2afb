"""The process of a place that a worker offers: a Dask worker of one thread with a resource for each label.

Its words are SCHEDULER OFFER FOLDER PYTHON LABELS: an empty word stands for the usual, and the labels are JSON. It writes sentences for people, one
per line; a last one without a line's end says why the place cannot be offered.

Dask works in a thread of its own, and the main thread measures. So what ends `memprof run` at Ctrl-C ends here what is being measured, with its
processes, when nobody waits for it any more, when its place or the scheduler is lost, and at the end of the input. Then the place is reached anew,
because nobody knows where it was interrupted. If it cannot be, this process ends, and `memprof worker` starts another one.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from ..base.cache import cache_folder
from ..base.errors import InputError, MemprofError
from ..base.leftovers import end_leftovers
from ..places.parse import reached
from ..places.place import HERE, Place
from ..places.recorder_bundle import recorder_command
from ..programs import runtimes
from . import comparison_runs, message
from .comparison_runs import PlaceLost
from .message import FACTS, ComparisonTask, Doing, Event, Offered, Result
from .scheduler import TIMEOUTS, calm
from .security import security

_AGAIN_S = 1.0  # between two attempts to reach the scheduler
_CONNECT_S = 15.0
# Between two reports to the scheduler of what a place does: every fourth of those that Dask makes, each of which takes CPU time.
_BEAT_S = 1.9
_SILENCE_S = 60.0  # how long a desk may send nothing of a file that is needed
_LAST_S = 10  # for ending well, once there is no input any more


@dataclass
class Station:
    """A place that is offered, and what is measured there. worker: Dask's. task: the key of what it measures, empty while nobody may stop that.
    pieces: of files, from a desk."""

    offered: Offered
    place: Place
    worker: Any = None
    task: str = ""
    doing: Doing = field(default_factory=Doing)
    since_s: float = 0.0
    pieces: queue.Queue[bytes] = field(default_factory=lambda: queue.Queue(2))

    def interrupt(self) -> None:
        """End what is measured."""
        self.task = ""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # a thread that waits hears nothing but a signal

    def doing_now(self) -> dict[str, Any]:
        """What the place does, for the scheduler. Durations travel, never times: the clocks of two machines may differ by hours."""
        for_s = time.monotonic() - self.since_s if self.doing.title else 0.0
        return msgspec.to_builtins(replace(self.doing, for_s=for_s))  # type: ignore[no-any-return]

    def measure(self, comparison: ComparisonTask, task: str, tell: Callable[..., None]) -> None:
        """Measure a comparison, and tell all that happens, the end last."""
        self.task, self.doing, self.since_s = task, Doing(comparison.title, comparison.desk), time.monotonic()

        def told(**words: Any) -> None:
            self.doing = replace(self.doing, done=self.doing.done + ("run" in words), runs=words.get("plan", self.doing.runs))
            tell(**words)

        def asked(hashes: Sequence[str]) -> Iterator[bytes]:
            self.pieces = queue.Queue(2)
            tell(needs=tuple(hashes))
            while True:
                try:
                    yield self.pieces.get(timeout=_SILENCE_S)
                except queue.Empty:
                    raise InputError(f"the desk sent nothing of a file for {_SILENCE_S:.0f} s") from None

        try:
            tell(begins=True)
            result = comparison_runs.measure(comparison, self.place, self.worker.name, told, asked)
        finally:
            self.task, self.doing = "", Doing()
        tell(end=result)


# -- what desks ask of a worker, by these names


def measure(comparison: ComparisonTask, task: str, events: str) -> None:
    """The Dask task of this key: measure a comparison. What happens goes to the queue `events` of the scheduler."""
    from distributed.utils import sync

    (station,) = _STATIONS
    worker = station.worker

    def tell(**words: Any) -> None:
        event = Event(comparison.key, task, worker.address, **words)
        sync(worker.loop, worker.scheduler.queue_put, name=events, data=pickle.dumps(event), timeout=None)

    try:
        station.measure(comparison, task, tell)
    except PlaceLost as error:
        tell(end=Result("refused", str(error)))
        raise KeyboardInterrupt from None


async def receive(task: str, piece: bytes) -> bool:
    """A piece of a file that a task needs, or nothing at its end; whether the task goes on."""
    (station,) = _STATIONS
    if station.task == task:
        await asyncio.to_thread(station.pieces.put, piece, timeout=_SILENCE_S)
    return station.task == task


# -- the process


_STATIONS: list[Station] = []  # the process's own


class _MainThread(Executor):
    """Has calls made by the main thread, which alone can be interrupted."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()

    def submit(self, call: Callable[..., Any], /, *words: Any, **more: Any) -> Future[Any]:
        """See Executor."""
        future: Future[Any] = Future()
        self._calls.put((future, partial(call, *words, **more)))
        return future

    def work(self) -> None:
        """Make the calls, without an end. An interruption passes through."""
        while True:
            future, call = self._calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(RuntimeError(f"ended by {type(error).__name__}"))
                raise


def run() -> None:
    """The process from its words to its end."""
    scheduler, offer, folder, python, labels = sys.argv[1:]
    executor, ended = _MainThread(), threading.Event()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_read, args=(ended,), daemon=True).start()
    try:
        end_leftovers()  # the process before this one may have been killed
        while not ended.is_set():
            with suppress(KeyboardInterrupt), _held(offer, folder or None, python or None) as place:
                if not _STATIONS:
                    _prepare(place)
                    _STATIONS.append(Station(_offered(offer, place, json.loads(labels)), place))
                    threading.Thread(target=asyncio.run, args=(_offer(scheduler, _STATIONS[0], executor),), daemon=True).start()
                _STATIONS[0].place = place
                executor.work()
    except MemprofError as error:
        print(error, end="", flush=True)
    os._exit(0)  # Dask's thread would hold the interpreter up


def _read(ended: threading.Event) -> None:
    """Interrupt at the end of the input."""
    while sys.stdin.buffer.read(1):
        pass
    ended.set()
    threading.Timer(_LAST_S, os._exit, (1,)).start()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _offered(offer: str, place: Place, labels: Mapping[str, str]) -> Offered:
    """What the place itself says, and who offers it; a label that the user gave comes first."""
    machine, host = place.machine(), os.uname().nodename
    labels = {"machine": machine.name, "arch": machine.arch, "host": host, "place": offer, **labels}
    return Offered(offer, host, machine.name, labels, message.PROTOCOL, message.version())


@contextmanager
def _held(offer: str, folder: str | None, python: str | None) -> Iterator[Place]:
    """The place, leased. This machine has a lease too: one worker at a time offers it. Raises InputError."""
    if offer != "here":
        with reached(offer, folder, python) as place:
            yield place
        return
    with (cache_folder("fleet") / "here.lease").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError("here: another worker offers this machine") from None
        yield HERE


def _prepare(place: Place) -> None:
    """Have what a first comparison would wait for: the recorder and, if the place is this machine, what its interpreter says of its runtimes."""
    with suppress(MemprofError):  # a comparison that needs it is told
        recorder_command(place.recorder, place)
        if place is HERE:
            runtimes.describe(place.interpreter(None), None, place)


async def _offer(scheduler: str, station: Station, executor: Executor) -> None:
    """Offer the place to the scheduler, and again whenever that was lost."""
    calm()
    certificates = security(scheduler, "worker", lambda sentence: None)
    while True:
        await connected(scheduler, station, certificates, executor)
        print(f"{station.offered.place} is offered at {scheduler}", flush=True)
        await station.worker.finished()
        print(f"the connection to {scheduler} is lost; {station.offered.place} waits for it", flush=True)
        station.interrupt()


async def connected(scheduler: str, station: Station, certificates: Any, executor: Executor | None = None) -> None:
    """Return once the scheduler has a place's worker."""
    from distributed import Worker, WorkerPlugin
    from distributed.worker import DEFAULT_METRICS, DEFAULT_STARTUP_INFORMATION

    class Calm(Worker):  # type: ignore[misc]  # Dask has no types
        """Reports to the scheduler less often than that asks for."""

        reported_s = -_BEAT_S

        async def heartbeat(self) -> None:
            if time.monotonic() - self.reported_s >= _BEAT_S:
                self.reported_s = time.monotonic()
                await super().heartbeat()

    class Stops(WorkerPlugin):  # type: ignore[misc]
        """Ends what is measured once nobody waits for it any more."""

        def setup(self, worker: Any) -> None:
            station.worker = worker

        def transition(self, key: str, start: str, finish: str, **words: Any) -> None:
            if finish == "released" and key == station.task:
                station.interrupt()

    offered = station.offered
    name = f"{offered.place} of {offered.host}"
    facts = msgspec.to_builtins(offered)
    while True:
        try:
            await Calm(
                scheduler,
                nthreads=1,
                name=name,
                resources=offered.resources,
                memory_limit=0,
                security=certificates,
                dashboard=False,
                local_directory=str(cache_folder("fleet")),
                death_timeout=_CONNECT_S,
                executor=executor,
                plugins=(Stops(),),
                metrics={**DEFAULT_METRICS, FACTS: lambda worker: station.doing_now()},
                startup_information={**DEFAULT_STARTUP_INFORMATION, FACTS: lambda worker: facts},
            )
            return
        except (OSError, RuntimeError, ValueError, *TIMEOUTS) as error:
            if isinstance(
                error, (RuntimeError, ValueError)
            ):  # the name is taken: containers of one machine have the same names for themselves
                name = f"{offered.place} of {offered.host} ({os.getpid()})"
            await asyncio.sleep(_AGAIN_S)
