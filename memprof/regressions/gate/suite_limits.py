"""What [[growth]] and [[law]] of a suite have in common: which variants they name, and how each is sought and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from ...base.errors import MeasurementError, UsageError
from ...campaign.progress import Answer, Keep, Progress
from ...campaign.runs_writer import keeping
from ...records.summary import Key, place_of
from ...subjects.order import Order
from ...subjects.suite import SuiteGrowth, SuiteLaw

Item = TypeVar("Item")
Given = TypeVar("Given", bound=Answer)


def wanted(word: str, wish: SuiteGrowth | SuiteLaw, orders: Sequence[Order], of_a_program: str = "") -> list[Order]:
    """The first order of each variant that a [[growth]] or [[law]] names. of_a_program: why a program is none of them, empty if it may be. Raises
    UsageError if there is none, or it is elsewhere."""
    first = {place_of(order.job): order for order in reversed(orders)}
    matching = [
        order
        for order in reversed(first.values())
        if fnmatchcase(order.job.model.name, wish.model) and fnmatchcase(order.job.variant, wish.variant)
    ]
    fitting = [order for order in matching if order.command is None or not of_a_program]
    if not fitting:
        why = of_a_program if matching else "no model and variant of the suite match"
        raise UsageError(f"[[{word}]] model {wish.model}, variant {wish.variant} guards nothing: {why}")
    return fitting


def key_of(order: Order) -> Key:
    """The variant of an order, as rows name it."""
    return place_of(order.job).on(order.place.machine().name)


def answers(
    wishes: Sequence[Item], seek: Callable[[Item, Keep], Given], output: Path, holds: str, progress: Progress
) -> Iterator[tuple[Item, Given | None, str]]:
    """Each wish with its answer, or with the reason why a runtime has none. output: keeps the runs. Raises as campaign.measure does."""
    with keeping(output, progress.say, holds=holds) as keep:
        for wish in wishes:
            try:
                answer = seek(wish, keep)
            except MeasurementError as error:
                yield wish, None, str(error)
                continue
            if answer.interrupted:
                raise KeyboardInterrupt
            yield wish, answer, ""
