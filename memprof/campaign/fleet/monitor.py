"""What a fleet does: its places, the comparisons that they measure, and the desks that wait. Nothing is changed by looking.

Each desk writes its counts beside the scheduler's tasks, with one of its tasks. When a desk is gone, the scheduler drops them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from . import scheduler
from .scheduler import FleetPlace

_DESKS = "memprof-desks"
_LOOK_S = 2.5


class Waiting(Struct, frozen=True):
    """A desk, and how many of its comparisons run, wait and are done. task: the key of one that is not."""

    desk: str
    running: int
    waiting: int
    done: int
    task: str = ""


class Fleet(Struct, frozen=True):
    """See the module's text. unusable: a sentence for each place that this memprof cannot use."""

    scheduler: str
    places: tuple[FleetPlace, ...]
    desks: tuple[Waiting, ...]
    unusable: tuple[str, ...] = ()


def tell(client: Any, name: str, waiting: Waiting | None) -> None:
    """Write a desk's counts; None once it ends."""
    with suppress(Exception):  # it is only shown
        client.set_metadata([_DESKS, name], msgspec.to_builtins(waiting))


def look(client: Any, address: str) -> Iterator[Fleet]:
    """The fleet now, and again every few seconds, without an end. Raises InputError if the scheduler does not answer."""
    try:
        while True:
            there, unusable = scheduler.places(client)
            places = tuple(sorted(there, key=lambda place: place.name))
            yield Fleet(address, places, tuple(_desks(client)), tuple(unusable))
            time.sleep(_LOOK_S)
    except scheduler.AWAY:
        raise scheduler.gone() from None


def _desks(client: Any) -> list[Waiting]:
    """The desks that are not gone."""
    desks = [Waiting(**told) for told in client.get_metadata([_DESKS], {}).values() if told]  # nothing once it has ended
    states = client.sync(client.scheduler.get_task_status, keys=[desk.task for desk in desks])
    return [desk for desk in desks if states.get(desk.task) is not None]
