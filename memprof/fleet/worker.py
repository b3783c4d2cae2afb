"""`memprof worker`: offers places to a fleet, each as a Dask worker of one thread with a resource of one, and tends each by a process beside it.

`measure` and `receive` are what desks ask of it, by these names: a desk and a worker of one protocol number understand one another.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..base.cache import cache_folder
from ..base.errors import InputError, MemprofError
from . import membership, message
from .message import FACTS, RESOURCE, Doing, Result, Said
from .scheduler import TIMEOUTS, calm
from .security import security, unreachable
from .worker_slots import Cancelled, Gone, Stand

_AGAIN_S = 15.0  # between two attempts to reach a place or the scheduler
_BEAT_S = (
    1.9  # between two reports to the scheduler of what a place does: every fourth of those that Dask makes, each of which takes CPU time
)


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

    # What goes with the next message. Each takes CPU time of the worker, the scheduler and the desk.
    unsaid: dict[str, Any] = {"began": True}

    def tell(**words: Any) -> None:
        said = message.encode(Said(key, **unsaid, **words)).decode()
        unsaid.clear()
        sync(worker.loop, worker.scheduler.queue_put, name=queue, data=said, timeout=None)

    def cancelled() -> bool:
        state = worker.state.tasks.get(key)
        return state is None or state.state != "executing" or worker.status.name not in ("running", "paused")

    def ended(result: Result) -> bytes:
        tell(ended=result)
        return message.encode(result)

    stand.doing, stand.since_s = Doing(task.title, task.desk), time.monotonic()
    try:
        membership.bring(task, tell, cancelled)
        return ended(stand.measure(task, tell, cancelled, unsaid))
    except MemprofError as error:
        return ended(Result(0, "refused", str(error)))
    except Cancelled:
        stand.close()
        try:
            stand.open()  # so that the place stays leased
        except InputError:
            worker.loop.add_callback(stand.gone.set)
        return message.encode(Result(0, "lost", "it was cancelled"))  # nobody listens any more
    except Gone as error:
        with suppress(Exception):  # the scheduler may be gone too
            if unsaid:
                tell()
        stand.close()
        worker.loop.add_callback(stand.gone.set)
        return message.encode(Result(0, "lost", str(error)))
    finally:
        stand.doing = Doing()
        shutil.rmtree(message.folder_of(task), ignore_errors=True)


def receive(task: str, sha256: str, offset: int, size: int, data: bytes) -> str:
    """A piece of a file, from a desk. The reason if it cannot be kept, else nothing."""
    return membership.keep(task, sha256, offset, size, data)


# -- the worker itself


async def serve(scheduler: str, stands: Sequence[Stand], say: Callable[[str], None]) -> None:
    """Offer the places until this is cancelled. Raises what `security` does, and InputError if the scheduler does not answer, or if no place can be
    reached.

    A place or a scheduler that is lost later is tried again for as long as it takes.
    """
    calm()
    certificates = security(scheduler, "worker", say)
    await asyncio.to_thread(membership.tidy)
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
    say(f"waiting for the scheduler at {scheduler}, for {_AGAIN_S:.0f} s at most")
    try:
        await asyncio.gather(*(_offer(scheduler, number, stand, certificates, say) for number, stand in enumerate(stands)))
    finally:
        for stand in stands:
            await asyncio.to_thread(stand.close)


async def _offer(scheduler: str, number: int, stand: Stand, certificates: Any, say: Callable[[str], None]) -> None:
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
            worker = await _connected(scheduler, number, stand, certificates)
        except (OSError, *TIMEOUTS, ValueError) as error:
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


async def _connected(scheduler: str, number: int, stand: Stand, certificates: Any) -> Any:
    from distributed import Worker
    from distributed.worker import DEFAULT_METRICS, DEFAULT_STARTUP_INFORMATION

    class Calm(Worker):  # type: ignore[misc]  # Dask has no types
        """Reports to the scheduler less often than that asks for."""

        reported_s = -_BEAT_S

        async def heartbeat(self) -> None:
            if time.monotonic() - self.reported_s >= _BEAT_S:
                self.reported_s = time.monotonic()
                await super().heartbeat()

    assert stand.offered is not None
    facts = msgspec.to_builtins(stand.offered)
    name = f"{stand.offer} of {stand.offered.host} ({os.getpid()}.{number})"
    _STANDS[name] = stand
    return await Calm(
        scheduler,
        nthreads=1,
        name=name,
        resources={RESOURCE: 1},
        memory_limit=0,
        security=certificates,
        dashboard=False,
        local_directory=str(cache_folder("fleet")),
        death_timeout=_AGAIN_S,
        metrics={**DEFAULT_METRICS, FACTS: lambda worker: stand.doing_now()},
        startup_information={**DEFAULT_STARTUP_INFORMATION, FACTS: lambda worker: facts},
    )
