"""What a fleet does: its places, the comparisons that they measure, and the desks that wait. Nothing is changed by looking.

Each desk writes its counts beside the scheduler's tasks, with one of its tasks. When a desk is gone, the scheduler drops them.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from . import scheduler
from .scheduler import FleetPlace

_DESKS = "memprof-desks"
_LOOK_S = 2.5
_PAGES_S = 3.0  # for the scheduler's web server to answer
_ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@dataclass(frozen=True)
class Waiting:
    """A desk, and how many of its comparisons run, wait and are done. task: the key of one that is not."""

    desk: str
    running: int
    waiting: int
    done: int
    task: str = ""


@dataclass(frozen=True)
class Fleet:
    """See the module's text. dashboard: the address of Dask's own pages, None if the scheduler has none. unusable: a sentence for each place that
    this memprof cannot use."""

    scheduler: str
    dashboard: str | None
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
        dashboard = _dashboard(client)
        while True:
            there, unusable = scheduler.places_among(scheduler.asked(client)["workers"])
            places = tuple(sorted(there, key=lambda place: place.name))
            yield Fleet(address, dashboard, places, tuple(_desks(client)), tuple(unusable))
            time.sleep(_LOOK_S)
    except scheduler.AWAY:
        raise scheduler.gone() from None


def _dashboard(client: Any) -> str | None:
    """The address of Dask's own pages. A scheduler without them has an address too, where it lists none; one that cannot be asked may have them."""
    if not (scheduler.asked(client).get("services") or {}).get("dashboard"):
        return None
    link: str = client.dashboard_link
    try:
        with _ask(link.rpartition("/")[0] + "/individual-plots.json", timeout=_PAGES_S) as answer:
            return link if json.loads(answer.read(1 << 20)) else None
    except (OSError, ValueError):
        return link


def _desks(client: Any) -> list[Waiting]:
    """The desks that are not gone."""
    entries = client.get_metadata([_DESKS], {}) or {}
    desks = []
    for entry in entries.values() if isinstance(entries, dict) else ():
        with suppress(msgspec.ValidationError):  # of another memprof; None once it has ended
            desks.append(msgspec.convert(entry, Waiting))
    states = client.sync(client.scheduler.get_task_status, keys=[desk.task for desk in desks])
    return [desk for desk in desks if states.get(desk.task) is not None]
