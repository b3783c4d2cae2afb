"""Limits on growth: a suite's [[growth]], and growth_bytes among budgets. They are absolute, as budgets are, and need no base.

    [[growth]]                       # in a suite, which `memprof gate --run` measures
    per = "iteration"                # or "reload", or "shape" with the shapes beside it
    limit = "0 B"
    variant = "onnx*"                # globs, as in budgets; a field that is left out means any

    [[budget]]                       # in a file of budgets: for what [[growth]] measured, and for runs of `memprof grow -o`
    growth_bytes = "0 B"
    per = "iteration"

A verdict of growth needs three processes that agree, so it is a figure of none of them. Memory that stopped rising is within any limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ..base.errors import UsageError
from ..base.units import counted, format_bytes
from ..records import store, summary, work
from ..records.metrics import GROWTH
from ..records.summary import Key
from ..records.types import Run
from .budgets import Budget
from .verdicts import Judged, Verdict

if TYPE_CHECKING:
    from .growth import Verdict as Growth
    from .growth_inputs import By

SHAPE = "shape"


class Limit(Struct, frozen=True):
    """At most so many bytes per unit."""

    per: str
    bytes: float


class VariantGrowth(Struct, frozen=True):
    """What is known of a variant's growth by a unit: the verdict, or why there is none. limit: that of the suite which asked, if there is one.
    by: what memory grows with (InputsVerdict.by), None if iterations had inputs of one kind."""

    key: Key
    per: str
    growth: Growth | None
    limit: Limit | None = None
    failure: str = ""
    by: By | None = None


def of_runs(runs: Sequence[Run]) -> tuple[VariantGrowth, ...]:
    """The growth of each variant that runs of `memprof grow` tell of: of its last round, whose processes did the same work."""
    followed = store.rounds_together(run for run in runs if run.followed)
    if not followed:
        return ()
    return tuple(known for key, group in summary.groups(followed).items() for known in _of_variant(key, group))


def _of_variant(key: Key, runs: Sequence[Run]) -> Iterator[VariantGrowth]:
    """By iterations or reloads, where the same input and new ones tell it together, and by shapes."""
    from . import growth_inputs  # brings numpy along, which no other gate needs

    works = [(run, run.job.use) for run in runs if run.job.use is not None]
    newest = works[-1][1]
    alike = [(run, use) for run, use in works if use.cycles == newest.cycles]
    same, fresh = ([run for run, use in alike if not use.shapes and use.fresh == wanted] for wanted in (False, True))
    verdicts = [_verdict(kind) for kind in (same, fresh) if kind]
    if verdicts:
        both = growth_inputs.judge(verdicts[0][1], verdicts[1][1], "input") if len(verdicts) > 1 else None
        unit, verdict = verdicts[0] if both is not None and both.decides == "same" else verdicts[-1]
        yield VariantGrowth(key, unit, verdict, by=both.by if both is not None else None)
    varied = [use for _, use in alike if use.shapes]
    if varied:
        _, verdict = _verdict([run for run, use in alike if (use.shapes, use.fresh) == (varied[-1].shapes, varied[-1].fresh)])
        yield VariantGrowth(key, SHAPE, verdict)


def _verdict(runs: Sequence[Run]) -> tuple[str, Growth]:
    """The unit that is repeated, and the verdict on the last round of processes that did the same work."""
    from . import growth

    last_round = work.last_round(runs)
    curves = [work.curve_of(run) for run in last_round]
    series = [growth.series(curve, run.machine.page_bytes) for curve, run in zip(curves, last_round, strict=True)]
    return next(iter(series[0].counts)), growth.judge(series)


def judge(measured: Iterable[VariantGrowth], budgets: Sequence[Budget] = ()) -> list[Judged]:
    """A row for each limit on what was measured. Raises UsageError for a budget on growth that limits nothing."""
    measured = tuple(measured)
    growing = [budget for budget in budgets if budget.metric == GROWTH]
    rows = []
    used = set()
    for each in measured:
        matching = [budget for budget in growing if budget.limits(each.key, phase(each.per))]
        used.update(matching)
        limits = [Limit(each.per, max(matching, key=lambda budget: (budget.closeness, budget.number)).limit)] if matching else []
        rows += [judged(each, limit) for limit in [*([each.limit] if each.limit else []), *limits]]
    for budget in growing:
        if budget not in used:
            there = "; ".join(dict.fromkeys(f"{each.key.label}, {phase(each.per)}" for each in measured))
            raise UsageError(
                f"budgets {budget.file}: {budget.words} guards nothing: "
                + (
                    f"growth was measured of {there}"
                    if there
                    else "no growth was measured ([[growth]] in a suite, or memprof grow -o RUNS.jsonl)"
                )
            )
    return rows


def phase(per: str) -> str:
    """The word that stands where other rows have a phase."""
    return f"per {per}"


def judged(measured: VariantGrowth, limit: Limit) -> Judged:
    """The row of a limit: over if the growth is certainly above it."""
    if measured.growth is None:
        return Judged(measured.key, phase(measured.per), GROWTH, "failing", measured.failure, budget=limit.bytes)
    verdict, reason = _decided(measured.growth, limit, measured.by)
    return Judged(measured.key, phase(measured.per), GROWTH, verdict, reason, budget=limit.bytes)


def words(grown: Growth, by: By | None = None, limit: Limit | None = None) -> str:
    """The verdict, its figure first and of growth the limit next, because pytest's summary has the begin alone: `64.0 KiB more per iteration (95%:
    63.9 KiB to 64.1 KiB)`."""
    from .growth_inputs import ONLY_WITH

    if grown.word == "undecided":
        needed = f"; a run of {grown.needed:,} would decide it" if grown.needed else ""
        return f"undecided after {counted(grown.tail, grown.row_unit)}: {grown.reason}{needed}"
    if grown.word != "grows":
        rose = f"{format_bytes(grown.rise_bytes)} more in the first {grown.warmup:,}, then " if grown.word == "bounded" else ""
        return f"{grown.word}: {rose}0 B (95%: at most {format_bytes(grown.high)}) per {grown.unit} over {grown.tail:,}"
    only = f" with {ONLY_WITH[by]} only" if by in ONLY_WITH else ""
    span = f"{format_bytes(grown.low)} to {format_bytes(grown.high)}"
    allowed = f", limit {format_bytes(limit.bytes)} per {limit.per}" if limit is not None else ""
    # Blocks in use are less than what the resident set rises by once they need new pages: it has the allocator's gaps too.
    least, span = ("at least ", f"{span} in use, in memory that was freed before") if grown.hidden else ("", span)
    return f"{least}{format_bytes(grown.slope)} more per {grown.unit}{only}{allowed} (95%: {span})"


def _decided(grown: Growth, limit: Limit, by: By | None) -> tuple[Verdict, str]:
    rate, allowed = words(grown, by), f"the limit is {format_bytes(limit.bytes)} per {limit.per}"
    if grown.word == "undecided":
        return "undecided", f"{rate}; {allowed}"
    if grown.word != "grows":
        return "ok", rate
    if limit.bytes and limit.per not in (grown.unit, *grown.rivals):
        return "undecided", f"{rate}, and {allowed}: the two units cannot be compared"
    if grown.low > limit.bytes:
        return "over", words(grown, by, limit)
    if grown.high <= limit.bytes:
        return "ok", words(grown, by, limit)
    return "undecided", f"{rate}, which may be above it or not; {allowed}"
