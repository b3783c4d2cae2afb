"""Limits on the terms of a law: a suite's [[law]]. They are absolute, as budgets are, and need no base.

    [[law]]                          # in a suite, which `memprof gate --run` measures
    vary = "context=512..8192"       # as `memprof scale --vary` reads it; a list of several
    per = "context"                  # the term that is held: "batch x sequence²"; left out, the dimension that varies
    limit = "8.1 KiB"
    variant = "llama*"               # globs, as in budgets; a field that is left out means any

A law is fitted to several runs, so it is a figure of none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ...base.errors import UsageError, near_or_all
from ...base.units import format_bytes
from ...records.metrics import LAW
from ...records.summary import Key
from ...verdicts.verdicts import Judged, Verdict

if TYPE_CHECKING:
    from .laws import Coefficient, Law


class LawAtLimit(Struct, frozen=True):
    """A law to be held to a limit in bytes per unit of `per`: of which figure, and where it was measured, in words. law: None where no simple law
    holds. failure: why there is no answer at all. undecided: why the law's terms are not to be believed."""

    key: Key
    per: str
    limit_bytes: float
    figure: str = ""
    where: str = ""
    law: Law | None = None
    failure: str = ""
    undecided: str = ""


def judge(measured: Iterable[LawAtLimit]) -> list[Judged]:
    """A row for each law."""
    return [_judged(each) for each in measured]


def _judged(measured: LawAtLimit) -> Judged:
    verdict, reason = _decided(measured)
    return Judged(measured.key, f"per {measured.per}", LAW, verdict, reason, budget=measured.limit_bytes)


def _decided(measured: LawAtLimit) -> tuple[Verdict, str]:
    if measured.failure:
        return "failing", measured.failure
    allowed = f"the limit is {format_bytes(measured.limit_bytes)} per {measured.per}"
    if measured.law is None:
        return "undecided", f"no simple law of {measured.figure} holds at {measured.where}; {allowed}"
    if measured.undecided:
        return "undecided", f"{measured.undecided}; {allowed}"
    held, others = term(measured.law, measured.per)
    if held is None:
        if others:
            return "undecided", f"{measured.figure} has no such term, but {' and '.join(others)}; {allowed}"
        return "ok", f"{measured.figure} does not depend on {measured.per} at {measured.where}; {allowed}"
    span = f"{format_bytes(held.low_bytes)} to {format_bytes(held.high_bytes)}"
    cost = f"{measured.figure} has {format_bytes(held.bytes)} (95%: {span}) per {measured.per} at {measured.where}"
    if held.low_bytes > measured.limit_bytes:
        return "over", f"{cost}; {allowed}"
    if held.high_bytes <= measured.limit_bytes:
        return "ok", f"{cost}; {allowed}"
    return "undecided", f"{cost}, which may be above it or not; {allowed}"


def term(law: Law, per: str) -> tuple[Coefficient | None, list[str]]:
    """A law's coefficient of the term of these words; without it, the terms that its dimensions have in place of it."""
    held = next((each for each in law.coefficients if factors(each.term.words) == factors(per)), None)
    mine = dimensions(per)
    return held, [each.term.words for each in law.coefficients if held is None and mine & {name for name, _ in each.term.powers}]


def held_term(labels: Sequence[str], per: str | None) -> str:
    """The words of the term to hold: `per`, or the dimension that varies. Raises UsageError for words that no law of these dimensions can have."""
    if per is None and len(labels) != 1:
        raise UsageError(f"{' and '.join(labels)} vary: per names the term, such as {' x '.join(labels)!r}")
    words = per or labels[0]
    for name in sorted(dimensions(words) - set(labels)):
        raise UsageError(f"per {words!r}: {name!r} is not a dimension that varies{near_or_all(name, labels)}")
    return words


def factors(words: str) -> frozenset[str]:
    """The factors of a term in any order: `batch x sequence²` is `sequence²` and `batch`."""
    return frozenset(factor.strip() for factor in words.split(" x "))


def dimensions(words: str) -> set[str]:
    """The dimensions in the words of a term that is a product of powers."""
    return {factor.removesuffix("²").partition("^")[0] for factor in factors(words)}
