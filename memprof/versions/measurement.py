"""What is measured of a version: the requested orders of its suite, each with the version's label."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError
from ..records.summary import VariantKey, place_of
from ..records.types import Job, Run
from ..subjects.order import Order
from ..subjects.orders import plan
from ..subjects.suite import Suite


class Selection(Struct, frozen=True):
    """What is asked of each version. model, variant: by their names, None for all. place: the only one to follow, None while it is not chosen."""

    model: str | None = None
    variant: str | None = None
    place: VariantKey | None = None

    def asks(self, job: Job) -> bool:
        """Whether the request has a job."""
        return self.model in (None, job.model.name) and self.variant in (None, job.variant) and self.place in (None, place_of(job))


def by_place(runs: Iterable[Run]) -> dict[VariantKey, list[Run]]:
    """The runs of a version at each place."""
    places: dict[VariantKey, list[Run]] = {}
    for run in runs:
        places.setdefault(place_of(run.job), []).append(run)
    return places


def orders(suite: Suite, which: Selection) -> list[Order]:
    """The orders of one repeat of a version. Raises MemprofError if the version cannot be measured, or lacks a part of the request."""
    planned = plan(replace(suite, repeats=1)).orders
    wanted = [order for order in planned if which.asks(order.job)]
    failure = next((order.error for order in wanted if order.error is not None), None)
    if failure is not None:
        raise failure
    if not wanted:
        names = "; ".join(dict.fromkeys(f"{order.job.model.name}, {order.job.variant}" for order in planned))
        raise InputError(f"there is no such model and variant; there are {names}")
    return wanted


def again(order: Order, label: str, repeat: int) -> Order:
    """The order as a repeat of a version."""
    return replace(order, job=replace(order.job, version=label, repeat=repeat))
