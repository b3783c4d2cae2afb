"""From Orders to Runs: each in a fresh process beside a recorder, one after another, each Run handed over as soon as it exists.

Processes of an earlier memprof that was killed with its recorder are found by the
token in their environment, and ended before anything is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..base.errors import InputError
from ..base.leftovers import end_leftovers, new_token
from ..base.units import format_bytes
from ..places import remote_groups
from ..places.place import HERE, MachineState, Place
from ..records import store
from ..records.types import Conditions, Job, Run
from ..subjects.order import Order
from ..subjects.orders import offset
from . import failure_hints
from .conversion import converted
from .failed_variants import FailedVariants
from .load_generator import Driving, check_free
from .progress import Keep, Progress
from .recorder_client import ask, input_copy, message

BUSY_PERCENT = 25  # of the CPUs, from where on times are too long
_COOLING_S, _COOLING_STEP_S = 1800, 2


def measure(
    orders: Sequence[Order],
    progress: Progress,
    keep: Keep,
    look: Callable[[Job, str, int], None] | None = None,
    so_far: Callable[[bytes], None] = lambda line: None,
    recordings: Path | None = None,
    failures: FailedVariants | None = None,
) -> Iterator[Run]:
    """Convert what must be converted, then measure the orders one after another; each Run is given to `keep` as a line of a runs file.

    Raises InputError when the disk refuses, after yielding the Run that could not be kept, and OSError when no process can be started.
    KeyboardInterrupt passes through. In each case no child is left. An order with an error is a failed Run at once. look: called with (job,
    phase, pid) while the child of a job that holds stands still at the end of a phase, or inside it: near its peak (PHASE/peak), or at so many
    units of work (PHASE/COUNT). Its errors end the child and pass through. so_far, recordings: see `ask`. failures: which variants have no
    further repeats.
    """
    without_swap = {place: remote_groups.without_swap(place) for place in {order.place for order in orders if order.job.no_swap}}
    # Where there is swap, a reading can miss what a control group knows.
    counting = {place: remote_groups.counting(place) for place in {order.place for order in orders} if place.machine().swap_bytes}
    ended = end_leftovers()
    if ended:
        progress.say(f"an earlier memprof was killed; processes that it left behind were ended: {ended}")
    with new_token() as token:
        ready = converted(orders, token, progress)
        dropped: set[str] = set()
        without_sensor: set[Place] = set()
        begin = offset(0)
        for index, (order, failed) in enumerate(ready, 1):
            if failures is not None and failures.holds(order.job):
                continue
            progress.started(order.job, index, len(ready))
            if order.job.no_swap:
                kept: dict[str, Any] = without_swap[order.place]()
                kept["wrap"] = (*kept.get("wrap", ()), *order.wrap)
                order = replace(order, **kept)
            elif order.group is None and (count := counting.get(order.place)) is not None:
                grouped: dict[str, Any] = count()
                order = replace(order, **grouped)
            before = cooled(order, progress)
            if order.max_celsius is not None and before.celsius is None and order.place not in without_sensor:
                without_sensor.add(order.place)
                progress.say(f"{order.place.name} has no sensor of temperature that its kernel tells of: --max-temperature has no effect")
            with input_copy(order, begin) as input_descriptor:
                order_message = message(order, dropped, token, input_descriptor)
                if order.drive is not None and failed is None:
                    check_free(order.drive, order.job.heading)
                run, line = failed or ask(
                    order.job,
                    order_message,
                    token,
                    progress.live,
                    look,
                    input_descriptor=input_descriptor,
                    say=progress.say,
                    so_far=so_far,
                    place=order.place,
                    recorder=order.recorder,
                    driving=Driving(order.drive, order.job) if order.drive is not None else None,
                    recordings=recordings,
                )
            if order.outputs and run.complete:
                order.place.bring(order.outputs)
            hints, conditions = failure_hints.of(run), _conditions(before, order, run)
            if hints or conditions:
                run = replace(run, outcome=replace(run.outcome, hints=hints), conditions=conditions)
                line = store.encode(run)
            try:
                keep(line)
            finally:
                progress.finished(run)
                if failures is not None:
                    failures.add(run)
                yield run


def cooled(order: Order, progress: Progress) -> MachineState:
    """The machine's state right before a run, once it is cool enough. Raises InputError if it does not cool down."""
    told, end = False, time.monotonic() + _COOLING_S
    while True:
        now = order.place.weather()
        if order.max_celsius is None or now.celsius is None or now.celsius <= order.max_celsius:
            return now
        if time.monotonic() > end:
            raise InputError(
                f"{order.place.name} did not cool down to {order.max_celsius:g} °C in {_COOLING_S // 60} min; it has {now.celsius:g} °C"
            )
        if not told:
            progress.say(f"{order.place.name} has {now.celsius:g} °C: waiting until it has {order.max_celsius:g} °C")
            told = True
        time.sleep(_COOLING_STEP_S)


def _conditions(before: MachineState, order: Order, run: Run) -> Conditions | None:
    if (before.celsius is None and before.hertz is None) or run.outcome.status == "lost":
        return None  # the kernel does not tell, or the machine may be gone
    after = order.place.weather()
    return Conditions(before.celsius, after.celsius, before.hertz, after.hertz)


def surroundings(total_model_bytes: int, place: Place = HERE, *, timed: bool = True) -> list[str]:
    """Remarks on the state of the machine that would spoil figures. timed: times are among them; a busy machine spoils no other."""
    remarks = []
    busy, available = place.busy()
    if timed and busy > BUSY_PERCENT:
        remarks.append(f"the machine is busy ({busy:.0f}% of its CPUs): times will be too long, and ratios of times mean nothing")
    memory = place.machine().memory_bytes
    if 0 < memory < total_model_bytes:
        sizes = f"the model has {format_bytes(total_model_bytes)}, more than the machine's memory of {format_bytes(memory)}"
        remarks.append(f"{sizes}: mapped pages are read from disk again and again, and a runtime that reads the whole file fails")
    elif available < 4 * total_model_bytes:
        remarks.append(f"only {available >> 20} MiB of memory are free, for models of {total_model_bytes >> 20} MiB")
    return remarks
