"""`memprof worker`: offers a place to a fleet, as a Dask worker of one thread with a resource for each label.

Dask works in a thread of its own, and the main thread measures. So what ends `memprof run` at Ctrl-C ends what is measured here, with its processes,
when nobody waits for it any more, and when its place or the scheduler is lost. Then the place is reached again, because nobody knows where it was
interrupted. The worker holds the place's lease meanwhile.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ...base.cache import cache_folder
from ...base.errors import InputError, MemprofError
from ...base.leftovers import end_leftovers
from ...places.parse import reached
from ...places.place import HERE, Place
from ...places.recorder_start import recorder_command
from ...programs import runtimes
from . import comparison_runs, message
from .comparison_runs import PlaceLost
from .message import FACTS, ComparisonTask, Doing, Event, Offered, Result
from .scheduler import TIMEOUTS, calm, greet
from .security import security, unreachable

_AGAIN_S = 15.0  # between two attempts to reach a place, and how long a scheduler is waited for
_CONNECT_S = 1.0  # between two attempts to reach a scheduler that was there
# Between two reports to the scheduler of what a place does: every fourth of those that Dask makes, each of which takes CPU time.
_BEAT_S = 1.9
_SILENCE_S = 60.0  # how long a desk may send nothing of a file that is needed
_PR_SET_PDEATHSIG = 1
# Without -m, which would look for modules in the working folder first.
_MEMPROF = "import sys; sys.path.pop(0); from memprof.__main__ import main; main()"


class Interrupted(KeyboardInterrupt):
    """What is measured is to end, and the worker goes on."""


class Station(Struct):
    """A place that is offered, and what is measured there. place: None while it is lost. worker: Dask's. task: the key of what it measures, empty
    while nobody may stop that. pieces: of files, from a desk."""

    offered: Offered
    place: Place | None
    worker: Any = None
    task: str = ""
    doing: Doing = field(default_factory=Doing)
    since_s: float = 0.0
    pieces: queue.Queue[bytes] = field(default_factory=lambda: queue.Queue(2))

    def interrupt(self) -> None:
        """End what is measured."""
        self.task = ""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)  # a thread that waits hears nothing but a signal

    def doing_now(self) -> dict[str, Any]:
        """What the place does, for the scheduler. Durations travel, never times: the clocks of two machines may differ by hours."""
        for_s = time.monotonic() - self.since_s if self.doing.title else 0.0
        return msgspec.to_builtins(replace(self.doing, for_s=for_s))  # type: ignore[no-any-return]

    def measure(self, comparison: ComparisonTask, task: str, tell: Callable[..., None]) -> None:
        """Measure a comparison, and tell all that happens, the end last. Raises Interrupted if its place is lost."""
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

        assert self.place is not None
        lost = False
        try:
            tell(begins=True)
            result = comparison_runs.measure(comparison, self.place, self.worker.name, told, asked)
        except PlaceLost as error:
            result, lost = Result("refused", str(error)), True
        finally:
            self.task, self.doing = "", Doing()
        tell(end=result)
        if lost:
            raise Interrupted


# -- what desks ask of a worker, by these names


_STATIONS: list[Station] = []  # the process's own


def measure(comparison: ComparisonTask, task: str, events: str) -> None:
    """The Dask task of this key: measure a comparison. What happens goes to the queue `events` of the scheduler."""
    from distributed.utils import sync

    (station,) = _STATIONS
    worker = station.worker

    def tell(**words: Any) -> None:
        event = Event(comparison.key, task, worker.address, **words)
        sync(worker.loop, worker.scheduler.queue_put, name=events, data=pickle.dumps(event), timeout=None)

    station.measure(comparison, task, tell)


async def receive(task: str, piece: bytes) -> bool:
    """A piece of a file that a task needs, or nothing at its end; whether the task goes on."""
    (station,) = _STATIONS
    if station.task == task:
        await asyncio.to_thread(station.pieces.put, piece, timeout=_SILENCE_S)
    return station.task == task


# -- the worker itself


def serve(
    scheduler: str, offer: str, folder: str | None, python: str | None, labels: Mapping[str, str], say: Callable[[str], None]
) -> NoReturn:
    """Offer a place, in the main thread, until that is interrupted. What is lost later is tried again for as long as it takes.

    offer, folder, python: see `reached`. Raises what `security` does, and InputError if the scheduler does not answer, or if the place cannot be
    reached.
    """
    calm()
    certificates = security(scheduler, "worker", say)
    say(f"waiting for the scheduler at {scheduler}, for {_AGAIN_S:.0f} s at most")
    try:
        asyncio.run(greet(scheduler, certificates, "worker", _AGAIN_S))
    except (OSError, *TIMEOUTS) as error:
        raise unreachable(scheduler, error) from None
    end_leftovers()  # of a worker that was killed
    executor = _MainThread()
    signal.signal(signal.SIGUSR1, executor.interrupted)
    while True:
        try:
            with suppress(Interrupted), _held(offer, folder, python) as place:
                if not _STATIONS:
                    _prepare(place)
                    _STATIONS.append(Station(_offered(offer, place, labels), place))
                    work = _offer(scheduler, _STATIONS[0], certificates, executor, say)
                    threading.Thread(target=asyncio.run, args=(work,), daemon=True).start()
                _STATIONS[0].place = place
                executor.work()
        except InputError as error:
            if not _STATIONS:
                raise InputError(f"{offer} cannot be offered: {error}") from None
            if _STATIONS[0].place is not None:
                say(f"{offer} is lost: {error}; it is tried again every {_AGAIN_S:.0f} s")
            _STATIONS[0].place = None
            time.sleep(_AGAIN_S)


def serve_each(offers: Sequence[str], words: Sequence[str]) -> NoReturn:
    """Offer each place by a worker of its own, which is started again when it ends. words: of its command. Raises InputError once all have ended."""
    end_with_us = partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM)

    def begin(offer: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", _MEMPROF, "worker", *words, "--offer", offer], stdin=subprocess.DEVNULL, preexec_fn=end_with_us
        )

    workers = {offer: begin(offer) for offer in offers}
    while True:
        time.sleep(_AGAIN_S)
        ended = [offer for offer, worker in workers.items() if worker.poll() is not None]
        if len(ended) == len(workers):
            raise InputError("no place can be offered")
        workers.update((offer, begin(offer)) for offer in ended)


class _MainThread(Executor):
    """Has calls made by the main thread, which alone can be interrupted."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._working = False

    def submit(self, call: Callable[..., Any], /, *words: Any, **more: Any) -> Future[Any]:
        """See Executor."""
        future: Future[Any] = Future()
        self._calls.put((future, partial(call, *words, **more)))
        return future

    def work(self) -> NoReturn:
        """Make the calls, without an end. An interruption passes through."""
        try:
            self._working = True
            while True:
                future, call = self._calls.get()
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(call())
                    except BaseException as error:
                        future.set_exception(RuntimeError(f"ended by {type(error).__name__}"))
                        raise
        finally:
            self._working = False

    def interrupted(self, number: int, frame: object) -> None:
        """The handler of a signal. Elsewhere nothing is measured."""
        if self._working:
            raise Interrupted


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
    with suppress(MemprofError):  # a comparison that needs it gets the reason
        recorder_command(place.recorder, place)
        if place is HERE:
            runtimes.describe(place.interpreter(None), None, place)


def _offered(offer: str, place: Place, labels: Mapping[str, str]) -> Offered:
    """What the place itself says, and who offers it; a label that the user gave comes first."""
    machine, host = place.machine(), os.uname().nodename
    labels = {"machine": machine.name, "arch": machine.arch, "host": host, "place": offer, **labels}
    return Offered(offer, host, machine.name, labels, message.PROTOCOL, message.version())


async def _offer(scheduler: str, station: Station, certificates: Any, executor: Executor, say: Callable[[str], None]) -> None:
    """Offer the place to the scheduler while it can be reached, and again whenever one of them was lost."""
    while True:
        if station.place is None:
            await asyncio.sleep(_CONNECT_S)
            continue
        await connected(scheduler, station, certificates, executor)
        say(f"{station.offered.place} is offered at {scheduler}")
        while station.place is not None and station.worker.status.name == "running":
            await asyncio.sleep(0.2)
        if station.place is not None:
            say(f"the connection to {scheduler} is lost; {station.offered.place} waits for it")
            station.interrupt()
        await station.worker.close()


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
                death_timeout=_AGAIN_S,
                executor=executor,
                plugins=(Stops(),),
                metrics={**DEFAULT_METRICS, FACTS: lambda worker: station.doing_now()},
                startup_information={**DEFAULT_STARTUP_INFORMATION, FACTS: lambda worker: facts},
            )
            return
        except (OSError, RuntimeError, ValueError, *TIMEOUTS) as error:
            if isinstance(error, (RuntimeError, ValueError)):  # it is taken: containers of one machine have the same names for themselves
                name = f"{offered.place} of {offered.host} ({os.getpid()})"
            await asyncio.sleep(_CONNECT_S)
