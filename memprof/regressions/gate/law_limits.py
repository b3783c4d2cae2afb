"""The laws that a suite's [[law]] asks a gate for: measured as `memprof scale` measures them, each variant in separate runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ...campaign.progress import Keep, Progress
from ...growth.laws import coefficients
from ...growth.laws.coefficients import LawAtLimit
from ...records.summary import Key
from ...subjects.order import Order
from ...subjects.suite import Suite, SuiteLaw
from . import suite_limits
from .request import GateRequest

if TYPE_CHECKING:
    from ...growth.scale.answer import Scaled, ScaleRequest


class LawMeasurement(Struct, frozen=True):
    """A law to measure: of which variant, how, and the term that is held to a limit in bytes."""

    key: Key
    per: str
    limit_bytes: float
    where: str
    request: ScaleRequest


def wished(suite: Suite, orders: Sequence[Order]) -> tuple[LawMeasurement, ...]:
    """What is to be measured. Raises UsageError, before anything is, for a [[law]] that matches no runtime, or holds a term that cannot be."""
    return tuple(
        _wished(wish, order)
        for wish in suite.laws
        for order in suite_limits.wanted("law", wish, orders, "a program has no dimensions to vary")
    )


def _wished(wish: SuiteLaw, order: Order) -> LawMeasurement:
    from ...growth.scale import scale  # brings numpy along, which no other gate needs

    asked = scale.request_of(order, wish.vary, wish.points)
    scale.check(asked)
    labels = [dimension.label for dimension in asked.dimensions if dimension.varies]
    return LawMeasurement(
        suite_limits.key_of(order), coefficients.held_term(labels, wish.per), wish.limit_bytes, ", ".join(wish.vary), asked
    )


def measured(wishes: Sequence[LawMeasurement], request: GateRequest, progress: Progress) -> tuple[LawAtLimit, ...]:
    """Each law that is wished for. A runtime that fails at all places is a result. Raises as campaign.measure does."""
    if not wishes:
        return ()
    from ...growth.scale import scale

    def seek(wish: LawMeasurement, keep: Keep) -> Scaled:
        progress.say(f"{wish.key.label}: its memory by {wish.where}")
        return scale.scale(wish.request, progress, keep)

    known = []
    for wish, answer, failure in suite_limits.answers(wishes, seek, request.law_output, "the runs that laws were fitted to", progress):
        row = LawAtLimit(wish.key, wish.per, wish.limit_bytes, where=wish.where, failure=failure)
        known.append(row if answer is None else replace(row, figure=answer.main, law=answer.law, undecided=answer.unbelievable))
    return tuple(known)
