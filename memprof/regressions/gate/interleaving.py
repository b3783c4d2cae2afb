"""One campaign for several sides: their repeats side by side, and each Run in the file of its side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from ...campaign import campaign
from ...campaign.failed_variants import FirstFailures
from ...campaign.progress import Progress
from ...campaign.runs_writer import keeping
from ...records.summary import VariantKey, place_of
from ...records.types import Job, JobSide, Run
from ...subjects.order import Order


def orders_at(orders: Sequence[Order], place: VariantKey) -> tuple[Order, ...]:
    return tuple(order for order in orders if place_of(order.job) == place)


def interleaved(orders: Mapping[JobSide, Sequence[Order]]) -> list[tuple[JobSide, Order]]:
    """All sides' orders in one sequence: repeat by repeat, place by place, side beside side; the sides alternate as the first."""
    names = list(orders)
    sequence = []
    places = dict.fromkeys(place_of(order.job) for name in reversed(names) for order in orders[name])
    repeats = max((order.job.repeat for side in orders.values() for order in side), default=0)
    by = {(name, order.job.repeat, place_of(order.job)): order for name, side in orders.items() for order in side}
    for repeat in range(1, repeats + 1):
        turn = names[(repeat - 1) % len(names) :] + names[: (repeat - 1) % len(names)]
        sequence += [(name, by[name, repeat, place]) for place in places for name in turn if (name, repeat, place) in by]
    return sequence


def measure_sides(orders: Mapping[JobSide, Sequence[Order]], outputs: dict[JobSide, Path], progress: Progress) -> dict[JobSide, list[Run]]:
    """Measure all sides; each Run goes to its side's file as soon as it exists."""
    sequence = interleaved(orders)
    for remark in campaign.surroundings(max(order.job.model.bytes for _, order in sequence), sequence[0][1].place):
        progress.say(remark)
    shown = _Sided(progress, sequence, named=len(orders) > 1)
    sides: dict[JobSide, list[Run]] = {name: [] for name in orders}
    with ExitStack() as stack:
        keeps = {}
        for name, path in reversed(outputs.items()):  # the file that is opened first is named last
            keeps[name] = stack.enter_context(keeping(path, progress.say, holds=f"{name}'s runs"))
        ordered = [order for _, order in sequence]
        for run in campaign.measure(ordered, shown, lambda line: keeps[shown.side](line), failures=FirstFailures(progress)):
            sides[shown.side].append(run)
    return sides


class _Sided:
    """A Progress that knows the side of the run that is measured: a Run of a side does not hold it, for its file is the side's.

    named: whether it shows the side's name.
    """

    def __init__(self, progress: Progress, sequence: Sequence[tuple[JobSide, Order]], named: bool) -> None:
        self._progress = progress
        self._names = [name for name, _ in sequence]
        self._named = named
        self.side = self._names[0]
        self.live = progress.live
        self.say = progress.say

    def started(self, job: Job, index: int, total: int) -> None:
        self.side = self._names[index - 1]
        self._progress.started(self._with_side(job), index, total)

    def finished(self, run: Run) -> None:
        self._progress.finished(replace(run, job=self._with_side(run.job)))

    def _with_side(self, job: Job) -> Job:
        return replace(job, side=self.side) if self._named else job
