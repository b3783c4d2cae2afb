"""`memprof worker`: offers places to a fleet, each as a Dask worker of one thread with a resource for each label, and a process beside it that
measures.

`measure` and `receive` are what desks ask of it, by these names: a desk and a worker of one protocol number understand one another.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from ..base.cache import cache_folder
from ..base.errors import InputError, MemprofError
from . import message, worker_files
from .message import FACTS, Doing, Event, Result
from .scheduler import TIMEOUTS, calm
from .security import security, unreachable
from .worker_slots import Cancelled, Gone, Slot

_AGAIN_S = 15.0  # between two attempts to reach a place or the scheduler
# Between two reports to the scheduler of what a place does: every fourth of those that Dask makes, each of which takes CPU time.
_BEAT_S = 1.9

_SLOTS: dict[str, Slot] = {}  # by the name of their Dask worker


# -- what desks ask; these run on the worker


def measure(data: bytes, queue: str) -> None:
    """The Dask task: measure a Task. What happens goes to the queue of that name as Events. Raises Reschedule if the place is being lost."""
    from distributed import Reschedule, get_worker
    from distributed.utils import sync

    worker: Any = get_worker()
    key = worker.get_current_task()
    slot = _SLOTS[worker.name]
    if slot.lost:
        raise Reschedule
    task = replace(message.task(data), execution=secrets.token_hex(8))
    if task.sought is not None and worker.address in task.repeats_at:
        task = replace(task, sought=replace(task.sought, repeats=task.repeats_at[worker.address]))

    def tell(event: Event) -> None:
        said = message.encode(replace(event, task=key, execution=task.execution)).decode()
        sync(worker.loop, worker.scheduler.queue_put, name=queue, data=said, timeout=None)

    def report(**words: Any) -> None:
        tell(Event(**words))

    def cancelled() -> bool:
        state = worker.state.tasks.get(key)
        return state is None or state.state != "executing" or worker.status.name not in ("running", "paused")

    slot.doing, slot.since_s = Doing(task.title, task.desk), time.monotonic()
    report(place=worker.address)
    try:
        worker_files.fetch(task, report, cancelled)
        for event in slot.measure(task, cancelled):
            tell(event)
    except MemprofError as error:
        report(end=Result(0, "refused", str(error)))
    except Gone as error:
        slot.lost = True
        with suppress(Exception):  # the scheduler may be gone too
            report(end=Result(0, "lost", str(error)))
        slot.close()
        worker.loop.add_callback(slot.gone.set)
    except Exception as error:  # nobody waits any more, or the scheduler is gone: the process must not go on with this
        slot.close()
        try:
            slot.open()  # so that the place stays leased
        except InputError:
            slot.lost = True
            worker.loop.add_callback(slot.gone.set)
        if not isinstance(error, Cancelled):
            raise
    finally:
        slot.doing = Doing()
        shutil.rmtree(message.folder_of(task), ignore_errors=True)


def receive(execution: str, sha256: str, offset: int, size: int, data: bytes) -> str:
    """A piece of a file, from a desk. The reason if it cannot be kept, else nothing."""
    return worker_files.keep(execution, sha256, offset, size, data)


# -- the worker itself


async def serve(scheduler: str, slots: Sequence[Slot], say: Callable[[str], None]) -> None:
    """Offer the places until this is cancelled. Raises what `security` does, and InputError if the scheduler does not answer, or if no place can be
    reached.

    A place or a scheduler that is lost later is tried again for as long as it takes.
    """
    calm()
    certificates = security(scheduler, "worker", say)
    await asyncio.to_thread(worker_files.tidy)
    refusals: list[InputError] = []
    for slot in slots:
        try:
            await asyncio.to_thread(slot.open)
        except InputError as error:
            refusals.append(error)
    if len(refusals) == len(slots):
        raise refusals[0]
    for refusal in refusals:
        say(f"{refusal}; it is tried again every {_AGAIN_S:.0f} s")
    say(f"waiting for the scheduler at {scheduler}, for {_AGAIN_S:.0f} s at most")
    try:
        await asyncio.gather(*(_offer(scheduler, number, slot, certificates, say) for number, slot in enumerate(slots)))
    finally:
        for slot in slots:
            await asyncio.to_thread(slot.close)


async def _offer(scheduler: str, number: int, slot: Slot, certificates: Any, say: Callable[[str], None]) -> None:
    connected_once = False
    while True:
        if slot.offered is None or slot.gone.is_set():
            slot.gone.clear()
            try:
                await asyncio.to_thread(slot.close)
                await asyncio.to_thread(slot.open)
            except InputError:
                slot.offered = None
                await asyncio.sleep(_AGAIN_S)
                continue
            say(f"{slot.offer} is offered again" if connected_once else f"{slot.offer} is offered")
        try:
            worker = await _connected(scheduler, number, slot, certificates)
        except (OSError, *TIMEOUTS, ValueError) as error:
            if not connected_once:
                raise unreachable(scheduler, error) from None
            await asyncio.sleep(_AGAIN_S / 5)
            continue
        if connected_once:
            say(f"{scheduler} has {slot.offer} again")
        else:
            say(f"{slot.offer} is offered at {scheduler}")
        connected_once = True
        ends = [asyncio.ensure_future(worker.finished()), asyncio.ensure_future(slot.gone.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            name = worker.name
            await worker.close()
            _SLOTS.pop(name, None)
        say(f"{slot.offer} is lost" if slot.gone.is_set() else f"the connection to {scheduler} is lost; {slot.offer} waits for it")


async def _connected(scheduler: str, number: int, slot: Slot, certificates: Any) -> Any:
    from distributed import Worker
    from distributed.worker import DEFAULT_METRICS, DEFAULT_STARTUP_INFORMATION

    class Calm(Worker):  # type: ignore[misc]  # Dask has no types
        """Reports to the scheduler less often than that asks for."""

        reported_s = -_BEAT_S

        async def heartbeat(self) -> None:
            if time.monotonic() - self.reported_s >= _BEAT_S:
                self.reported_s = time.monotonic()
                await super().heartbeat()

    assert slot.offered is not None
    facts = msgspec.to_builtins(slot.offered)
    name = f"{slot.offer} of {slot.offered.host} ({os.getpid()}.{number})"
    _SLOTS[name] = slot
    return await Calm(
        scheduler,
        nthreads=1,
        name=name,
        resources=slot.offered.resources,
        memory_limit=0,
        security=certificates,
        dashboard=False,
        local_directory=str(cache_folder("fleet")),
        death_timeout=_AGAIN_S,
        metrics={**DEFAULT_METRICS, FACTS: lambda worker: slot.doing_now()},
        startup_information={**DEFAULT_STARTUP_INFORMATION, FACTS: lambda worker: facts},
    )
