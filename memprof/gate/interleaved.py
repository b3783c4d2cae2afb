"""One campaign for several sides: their repeats side by side, and each Run in the file of its side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ..judge.baseline import Place
from ..measuring import campaign
from ..measuring.keeping import keeping
from ..measuring.orders import Order
from ..measuring.progress import Progress
from ..runs.records import Job, Run


def place_of(order: Order) -> Place:
    """What makes it the counterpart of the other side's order."""
    return order.job.model.name, order.job.variant, order.job.threads


def orders_at(orders: Sequence[Order], place: Place) -> tuple[Order, ...]:
    return tuple(order for order in orders if place_of(order) == place)


def interleaved(orders: dict[str, Sequence[Order]]) -> list[tuple[str, Order]]:
    """All sides' orders in one sequence: repeat by repeat, place by place, the sides beside one another and in turns the first."""
    names = list(orders)
    found = []
    places = dict.fromkeys(place_of(order) for name in reversed(names) for order in orders[name])
    repeats = max((order.job.repeat for side in orders.values() for order in side), default=0)
    by = {(name, order.job.repeat, place_of(order)): order for name, side in orders.items() for order in side}
    for repeat in range(1, repeats + 1):
        turn = names[(repeat - 1) % len(names) :] + names[: (repeat - 1) % len(names)]
        found += [(name, by[name, repeat, place]) for place in places for name in turn if (name, repeat, place) in by]
    return found


def measure_sides(orders: dict[str, Sequence[Order]], outputs: dict[str, Path], progress: Progress) -> dict[str, list[Run]]:
    """Measure all sides; each Run is in its side's file as soon as it exists."""
    sequence = interleaved(orders)
    for remark in campaign.surroundings(max(order.job.model.bytes for _, order in sequence)):
        progress.say(remark)
    turns = iter(sequence)
    shown = _Sided(progress, sequence) if len(orders) > 1 else progress
    found: dict[str, list[Run]] = {name: [] for name in orders}
    with ExitStack() as stack:
        keeps = {}
        for name, path in reversed(outputs.items()):  # the first to be opened is the last to be named
            keeps[name] = stack.enter_context(keeping(path, progress.say, holds=f"{name}'s runs"))
        runs = campaign.measure([order for _, order in sequence], shown, lambda line: keeps[next(turns)[0]](line))
        for (name, _), run in zip(sequence, runs, strict=True):
            found[name].append(run)
    return found


class _Sided:
    """A Progress that says whose run it is: both sides have variants of the same names."""

    def __init__(self, progress: Progress, sequence: Sequence[tuple[str, Order]]) -> None:
        self._progress = progress
        self._names = [name for name, _ in sequence]
        self._now = ""
        self.live = progress.live
        self.say = progress.say

    def started(self, job: Job, index: int, total: int) -> None:
        self._now = self._names[index - 1]
        self._progress.started(self._named(job), index, total)

    def finished(self, run: Run) -> None:
        self._progress.finished(replace(run, job=self._named(run.job)))

    def _named(self, job: Job) -> Job:
        return replace(job, variant=f"{job.variant} ({self._now})")
