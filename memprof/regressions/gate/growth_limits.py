"""The growth that a suite's [[growth]] asks a gate for: measured as `memprof grow` measures it, each variant and unit in processes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ...campaign.progress import Keep, Progress
from ...records.summary import Key
from ...subjects.order import Order
from ...subjects.suite import Suite, SuiteGrowth
from ...verdicts.growth_limits import Limit, VariantGrowth
from . import suite_limits
from .request import GateRequest

if TYPE_CHECKING:
    from ...growth.grow.grow import GrowRequest, GrowthAnswer


class GrowthMeasurement(Struct, frozen=True):
    """A growth to measure: of which variant, by which unit, within which limit, and how."""

    key: Key
    limit: Limit
    request: GrowRequest


def wished(suite: Suite, orders: Sequence[Order]) -> tuple[GrowthMeasurement, ...]:
    """What is to be measured. Raises UsageError, before anything is, for a [[growth]] that matches nothing, or cannot be measured there."""
    return tuple(
        GrowthMeasurement(suite_limits.key_of(order), Limit(wish.per, wish.limit_bytes), _request(wish, order))
        for wish in suite.growth
        for order in suite_limits.wanted("growth", wish, orders)
    )


def _request(wish: SuiteGrowth, order: Order) -> GrowRequest:
    from ...growth.grow import grow  # brings numpy along, which no other gate needs

    return grow.request_of(order.subject, wish.per, wish.shapes, wish.budget)


def measured(wishes: Sequence[GrowthMeasurement], request: GateRequest, progress: Progress) -> tuple[VariantGrowth, ...]:
    """Each growth that is wished for. A runtime that fails before it can be judged is a result. Raises as campaign.measure does."""
    if not wishes:
        return ()
    from ...growth.grow import grow

    def seek(wish: GrowthMeasurement, keep: Keep) -> GrowthAnswer:
        progress.say(f"{wish.key.label}: whether it grows with each {wish.limit.per}")
        return grow.grow(wish.request, progress, keep)

    holds = "the processes whose growth was measured"
    return tuple(
        _of_answer(wish, answer, failure)
        for wish, answer, failure in suite_limits.answers(wishes, seek, request.growth_output, holds, progress)
    )


def _of_answer(wish: GrowthMeasurement, answer: GrowthAnswer | None, failure: str) -> VariantGrowth:
    if answer is None:
        return VariantGrowth(wish.key, wish.limit.per, None, wish.limit, failure)
    by = answer.inputs.by if answer.inputs is not None else None
    return VariantGrowth(wish.key, wish.limit.per, answer.verdict, wish.limit, by=by)
