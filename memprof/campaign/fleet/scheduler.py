"""Dask's scheduler as memprof sees it: the connection, Dask's own settings, and the places that workers offer there.

Dask profiles nothing and seldom looks at the system: a measurement may be running on the same machine.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from ...base.errors import InputError
from ...base.units import counted
from . import message
from .message import FACTS, PROTOCOL, Doing, Labels, Offered
from .security import Role, security, unreachable

_CONNECT_S = 10
TIMEOUTS = (TimeoutError, asyncio.TimeoutError)  # the same from Python 3.11 on
# All that Dask's client raises while its scheduler is away, or is another.
AWAY = (OSError, *TIMEOUTS, CancelledError, RuntimeError, AttributeError, LookupError, ValueError)

CALM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
}


def calm() -> None:
    """Take these settings, and keep Dask from talking. To be called before anything of Dask is made."""
    import dask
    import distributed  # noqa: F401  (it gives levels to its loggers)

    dask.config.set(CALM)
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # memprof says by itself what a user needs to know


class FleetPlace(Struct, frozen=True):
    """A place at the scheduler. name, address: of its Dask worker, the only one of this name there. doing: what it does now."""

    name: str
    address: str
    offered: Offered
    doing: Doing


@contextmanager
def connected(address: str, say: Callable[[str], None]) -> Iterator[Any]:
    """A client of the scheduler at an address. Raises what `security` does, and InputError if the scheduler cannot be reached."""
    from distributed import Client

    calm()
    certificates = security(address, "client", say)
    try:
        asyncio.run(greet(address, certificates, "client", _CONNECT_S))
        client = Client(address, security=certificates, timeout=_CONNECT_S, set_as_default=False, name="memprof")
    except (OSError, *TIMEOUTS) as error:
        raise unreachable(address, error) from None
    try:
        yield client
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.close(timeout=2)


async def greet(address: str, certificates: Any, role: Role, seconds: float) -> None:
    """Raises OSError or a timeout if no scheduler answers: Dask's client waits without an end for the first words of another program."""
    from distributed.comm import connect

    connection = await asyncio.wait_for(connect(address, timeout=seconds, **certificates.get_connection_args(role)), 2 * seconds)
    connection.abort()


def places(client: Any) -> tuple[list[FleetPlace], list[str]]:
    """The places at a scheduler, and a sentence for each that this memprof cannot use. Raises InputError if the scheduler does not answer."""
    try:
        workers = asked(client)["workers"]
    except AWAY:
        raise gone() from None
    there, sentences = [], []
    for address, facts in workers.items():
        told = facts.get(FACTS)
        if told is None:
            continue  # somebody else's worker
        if told["protocol"] == PROTOCOL:
            doing = facts["metrics"].get(FACTS) or {}
            there.append(FleetPlace(facts["name"], address, Offered(**told), Doing(**doing)))
        else:
            sentences.append(
                f"{facts['name']} has memprof {told.get('version')}, and this is memprof {message.version()}: "
                f"they do not understand one another (protocol {told['protocol']} and {PROTOCOL})"
            )
    return there, sentences


def asked(client: Any) -> Mapping[str, Any]:
    """What the scheduler says of itself and of all its workers. Raises what AWAY has.

    The client's own scheduler_info may have lost the workers: every two seconds a task of the client asks for the same without them, and both
    answers have one place (distributed 2026.8).
    """
    from distributed import Scheduler

    older = "n_workers" not in inspect.signature(Scheduler.identity).parameters  # tells of all
    return client.sync(client.scheduler.identity, **({} if older else {"n_workers": -1}))  # type: ignore[no-any-return]


def gone() -> InputError:
    """The error for a scheduler that was there."""
    return InputError("the scheduler does not answer any more")


def described(labels: Labels) -> str:
    """Labels for people."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels)) or "no labels"


def offered_words(there: Sequence[FleetPlace]) -> str:
    """The places of the fleet, for the error of a request that fits nothing."""
    if not there:
        return "there is no place at all: start `memprof worker` beside the machines"
    kinds = Counter(sorted(described(place.offered.labels_of_kind) for place in there))
    return "it has " + "; ".join(f"{counted(count, 'place')} with {kind}" for kind, count in kinds.most_common(8))
