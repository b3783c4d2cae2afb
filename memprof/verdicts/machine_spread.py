"""Runs of several machines of one kind: the machine is a random effect, so a difference between two machines is never one between two sides.

Where both sides were measured on the same machines, each machine is compared with itself: the test of van Elteren (1960), stratified by
machine. Where they were not, a machine counts as a single sample, its median: repeats on one machine are no evidence about another.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec import Struct

from ..base.units import counted
from ..records import metrics, summary
from ..records.metrics import NS, signed
from ..records.summary import Row
from ..records.types import EXECUTE, PEAK, Run
from .ranks import LEAST_REPEATS, pooled_stdev, stratified_p

ADVICE = f"{LEAST_REPEATS} repeats per side on machines that both sides have, or {LEAST_REPEATS} machines per side, are the least"
# How far the median of a machine lies from those of its kind before it is named: in standard deviations of these, and in proportion.
_FAR, _LEAST_SHARE = 5.0, {NS: 0.10}
_LEAST_OTHERS = 2


class Sides(Struct, frozen=True, dict=True):
    """Both sides of a row, by machine. strata: (base, head) for each machine, or a single pair of the machines' medians. words: how they were
    compared."""

    strata: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]
    words: str
    too_few: bool

    @property
    def difference(self) -> float:
        """The median over the strata of head's median less base's."""
        return statistics.median(statistics.median(head) - statistics.median(base) for base, head in self.strata)

    @property
    def stdev(self) -> float:
        """The standard deviation within sides and strata."""
        return pooled_stdev([side for stratum in self.strata for side in stratum])

    @cached_property
    def p(self) -> float:
        """How often chance alone would raise head this far above base."""
        return stratified_p(self.strata)

    @cached_property
    def turned(self) -> Sides:
        """The same with the sides exchanged."""
        return Sides(tuple((head, base) for base, head in self.strata), self.words, self.too_few)


def sides(base: Row, head: Row) -> Sides | None:
    """Both sides by machine; None unless both come from machines that are interchangeable."""
    if not base.machines or not head.machines:
        return None
    before, after = _by_machine(base), _by_machine(head)
    common = [machine for machine in before if machine in after]
    strata = tuple((before[machine], after[machine]) for machine in common)
    if all(sum(len(stratum[side]) for stratum in strata) >= LEAST_REPEATS for side in (0, 1)):
        many = f"{len(common)} machines" if len(common) > 1 else "one machine"
        return Sides(strata, f"on {many}, each compared with itself", False)
    medians = tuple(tuple(statistics.median(values) for values in side.values()) for side in (before, after))
    words = f"between {counted(len(medians[0]), 'machine')} of base and {len(medians[1])} of head"
    return Sides(((medians[0], medians[1]),), words, min(map(len, medians)) < LEAST_REPEATS)


def _by_machine(row: Row) -> dict[str, tuple[float, ...]]:
    values: dict[str, list[float]] = {}
    for machine, value in zip(row.machines, row.values, strict=True):
        values.setdefault(machine, []).append(value)
    return {machine: tuple(group) for machine, group in values.items()}


def deviating(runs: Iterable[Run]) -> list[str]:
    """A sentence for each machine that differs from the others of its kind, by the PEAK or by the time of an iteration, in any row."""
    rows = summary.summarise([run for run in runs if run.attempt is not None and run.attempt.kind], ("rss_peak_bytes", "time_median_ns"))
    sentences: dict[tuple[str, str], str] = {}
    for row in rows:
        if (row.phase, row.metric) not in ((PEAK, "rss_peak_bytes"), (EXECUTE, "time_median_ns")) or not row.machines:
            continue
        medians = {machine: statistics.median(values) for machine, values in _by_machine(row).items()}
        for machine, value in medians.items():
            others = [other for name, other in medians.items() if name != machine]
            if len(others) >= _LEAST_OTHERS and _far(value, others, _LEAST_SHARE.get(metrics.METRICS[row.metric].unit, 0.02)):
                usual = statistics.median(others)
                sentence = (
                    f"{machine} differs from the other {len(others)} machines of {row.key.machine}: {signed(row.metric, value - usual, usual)} "
                    f"in {row.phase} of {row.key.label}"
                )
                sentences.setdefault((machine, row.metric), sentence)
    return list(sentences.values())


def _far(value: float, others: Sequence[float], least_share: float) -> bool:
    usual = statistics.median(others)
    # The median absolute deviation, as a standard deviation of a normal distribution; one strange machine does not widen it.
    width = 1.4826 * statistics.median(abs(other - usual) for other in others)
    return abs(value - usual) > max(_FAR * width, least_share * abs(usual))
