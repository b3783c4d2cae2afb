"""The growth that a suite's [[growth]] asks a gate for: measured as `memprof grow` measures it, each variant and unit in processes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..errors import MeasurementError, UsageError
from ..judge.growing import RELOAD, Limit, Measured
from ..measuring.keeping import keeping
from ..measuring.orders import Order
from ..measuring.places.place import HERE
from ..measuring.progress import Progress
from ..measuring.suite import GrowthWish, Suite
from ..runs.summary import Key
from .interleaved import place_of
from .request import GateRequest

if TYPE_CHECKING:
    from ..seek.grow import GrowRequest


@dataclass(frozen=True)
class Wished:
    """A growth to measure: of which variant, by which unit, within which limit, and how."""

    key: Key
    limit: Limit
    request: GrowRequest


def wished(suite: Suite, orders: Sequence[Order], request: GateRequest) -> tuple[Wished, ...]:
    """What is to be measured. Raises UsageError, before anything is, for a [[growth]] that matches no runtime, or cannot be measured there."""
    if suite.growth and request.on is not HERE:
        raise UsageError("[[growth]] is measured on this machine alone: leave out --on, or take [[growth]] out of the suite")
    first = {place_of(order.job): order for order in reversed(orders)}
    found: list[Wished] = []
    for wish in suite.growth:
        matching = [order for order in reversed(first.values()) if _matches(wish, order)]
        runtimes = [order for order in matching if order.command is None]
        if not runtimes:
            why = "the growth of a program is judged by memprof grow --cmd" if matching else "no model and variant of the suite match"
            raise UsageError(f"[[growth]] model {wish.model}, variant {wish.variant} guards nothing: {why}")
        found += [Wished(_key(order), Limit(wish.per, wish.limit_bytes), _request(wish, order)) for order in runtimes]
    return tuple(found)


def _matches(wish: GrowthWish, order: Order) -> bool:
    return fnmatchcase(order.job.model.name, wish.model) and fnmatchcase(order.job.variant, wish.variant)


def _key(order: Order) -> Key:
    return Key(*place_of(order.job), order.place.machine().name)


def _request(wish: GrowthWish, order: Order) -> GrowRequest:
    from ..seek import grow  # brings numpy along, which no other gate needs

    job = order.job
    varied, seed = grow.parse_shapes(wish.shapes) if wish.shapes is not None else ((), None)
    return grow.GrowRequest(
        model=job.model.path,
        runtime=job.runtime,
        knobs=job.knobs,
        threads=job.threads,
        python=job.python,
        shapes=job.shapes,
        inputs=job.inputs,
        varied=varied,
        seed=seed,
        cycles=RELOAD if wish.per == RELOAD else None,
        budget=grow.parse_budget(wish.budget) if wish.budget is not None else grow.Budget(),
        variant=job.variant,
        env={name: value for name, value in job.env.items() if value is not None},
    )


def measured(wishes: Sequence[Wished], request: GateRequest, progress: Progress) -> tuple[Measured, ...]:
    """Each growth that is wished for. A runtime that fails before it can be judged is a result. Raises as campaign.measure does."""
    if not wishes:
        return ()
    from ..seek import grow

    known = []
    with keeping(request.growth_output, progress.say, holds="the processes whose growth was measured") as keep:
        for wish in wishes:
            progress.say(f"{wish.key.model}, {wish.key.variant}: whether it grows with each {wish.limit.per}")
            try:
                answer = grow.grow(wish.request, progress, keep)
            except MeasurementError as error:
                known.append(Measured(wish.key, wish.limit.per, None, wish.limit, str(error)))
                continue
            if answer.interrupted:
                raise KeyboardInterrupt
            known.append(Measured(wish.key, wish.limit.per, answer.verdict, wish.limit))
    return tuple(known)
