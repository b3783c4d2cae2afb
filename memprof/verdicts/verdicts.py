"""Did it get worse? A verdict for every model, variant, phase and metric, and an exit code for all of them.

A regression is called only if the medians differ by more than the threshold and a one-sided rank test rejects equality at 0.01, which
takes five repeats per side. Samples in two modes or more (common with one malloc arena or one thread) are not judged by their medians: a mode
is compared with its like, and if modes cannot be told apart there is no verdict. Budgets are absolute and need one repeat.

    failed      head failed where base did not       improved   head is better, by the same rules
    regressed   head is worse                        new        head alone has the row
    over        head is above a budget               ok         no worse than noise
    failing     a run failed, and base is no better
    undecided   too few repeats, modes that cannot be told apart
    gone        base alone has the row: whether it got worse is not known any more
    acknowledged   head is worse, and somebody has written why that is accepted for now
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from ..base.errors import EXIT_OK, EXIT_REGRESSION, MeasurementError, UndecidedError, UsageError
from ..base.units import counted, format_bytes, parse_bytes
from ..records import metrics, settings, summary
from ..records.metrics import BYTES
from ..records.summary import Key, Row
from ..records.types import PEAK, RELEASE, Run
from . import machine_spread
from .baseline import BaselineEntry, changes
from .ranks import LEAST_REPEATS
from .row_verdict import Pair, by_machines

# Wait status tells the largest process of a tree, unless that is smaller than the recorder: 12 MiB in Python, 1 MiB in C.
POLLED_ADVICE = "--recorder c, a quiet machine or more repeats help"
# Changes that differ by less than this share of base are shown as alike.
_ALIKE = 0.001

Verdict = Literal["failed", "regressed", "over", "failing", "undecided", "gone", "acknowledged", "improved", "new", "ok"]
WORST_FIRST: tuple[Verdict, ...] = ("failed", "regressed", "over", "failing", "undecided", "gone", "acknowledged", "improved", "new", "ok")
OUTCOME = "outcome"


class Limits(Struct, frozen=True):
    """The smallest difference that counts: a share of base's median, and for memory a number of bytes; the larger of the two holds."""

    share: float = 0.01
    bytes: int = 512 << 10


class Judged(Struct, frozen=True):
    """A row with its verdict, and why, in words. The metric `outcome` is how the runs themselves ended; `growth_bytes` and
    `law_bytes` have no samples, their phase is the unit.

    base and head are the samples, if that side has them. threshold, in the metric's unit, and p of the one-sided test are None if the verdict
    did not need them. budget: the limit in the metric's unit if the verdict is on a budget; base is None then. cause: phase and metric of the
    regression that this row follows from (see `with_causes`).
    """

    key: Key
    phase: str
    metric: str
    verdict: Verdict
    reason: str
    base: Row | None = None
    head: Row | None = None
    threshold: float | None = None
    p: float | None = None
    budget: float | None = None
    cause: tuple[str, str] | None = None

    @property
    def difference(self) -> float | None:
        """Head's median less base's, None if a side is missing."""
        return self.head.median - self.base.median if self.head and self.base else None

    @property
    def change(self) -> float | None:
        """The difference as a share of base's median, None if there is no difference or no base to divide by."""
        return self.difference / self.base.median if self.base and self.base.median and self.difference is not None else None


class Proof(Struct, frozen=True):
    """The positive control: whether a known increase of `added_bytes` was seen, and whether the same build measured twice stayed silent."""

    key: Key
    added_bytes: int
    seen: bool
    silent: bool
    rows: tuple[Judged, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the gate can be trusted here."""
        return self.seen and self.silent

    @property
    def sentence(self) -> str:
        """The result, in words."""
        where = self.key.label
        increase = f"{format_bytes(self.added_bytes)} more in {where} {'were seen' if self.seen else 'were NOT seen'}"
        return f"{increase}; the same build measured twice {'was silent' if self.silent else 'was NOT silent'}"


class Report(Struct, frozen=True):
    """A gate's result: its title, all rows, worst first, and remarks for the reader.

    commands: what the user may want to run next, by why. allow_gone: rows that base alone has are meant to be gone. report_only: no exit code will
    say the result. ran: a run of each variant, for the shapes of its inputs, by side (see memprof.verdicts.input_files). figures: the known ones
    of head, judged or not. sources: the entries of both sides, for versions and machines.
    """

    title: str
    rows: tuple[Judged, ...]
    remarks: tuple[str, ...] = ()
    proof: Proof | None = None
    commands: Mapping[str, str] = field(default_factory=dict)
    allow_gone: bool = False
    report_only: bool = False
    ran: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    figures: tuple[Row, ...] = ()
    sources: tuple[BaselineEntry, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 for a regression, else 4 for a run that failed, else 3 if something is undecided or gone or the proof failed, else 0."""
        verdicts = {row.verdict for row in self.rows}
        if verdicts & {"regressed", "failed", "over"}:
            return EXIT_REGRESSION
        if "failing" in verdicts:
            return MeasurementError.exit_code
        open_questions = verdicts & {"undecided"} or ("gone" in verdicts and not self.allow_gone) or (self.proof and not self.proof.holds)
        return UndecidedError.exit_code if open_questions else EXIT_OK

    def count(self, verdict: Verdict) -> int:
        """How many rows have this verdict."""
        return sum(row.verdict == verdict for row in self.rows)


def worst_first(rows: Iterable[Judged]) -> tuple[Judged, ...]:
    """Rows by verdict, then variant by variant, the variant that moved most first; in a variant the worst row first.

    Rows that moved alike keep the order in which they ran, PEAK first. Rows and variants that are fine keep it too.
    """
    verdicts: dict[Verdict, dict[Key, list[Judged]]] = {verdict: {} for verdict in WORST_FIRST}
    for row in rows:
        verdicts[row.verdict].setdefault(row.key, []).append(row)
    ordered: list[Judged] = []
    for verdict, variants in verdicts.items():
        size = _size if verdict not in ("ok", "new") else _none
        for group in sorted(variants.values(), key=lambda group: -max(map(size, group))):
            ordered += _by_size(group, size)
    return tuple(ordered)


def _size(row: Judged) -> float:
    """By how much a row changed, or is above its budget, in proportion."""
    if row.budget is not None and row.head is not None:
        return (row.head.max - row.budget) / row.budget if row.budget else math.inf
    return abs(row.change or 0.0)


def _none(row: Judged) -> float:
    return 0.0


def _by_size(rows: Sequence[Judged], size: Callable[[Judged], float]) -> Iterator[Judged]:
    alike: list[list[Judged]] = []
    for row in sorted(rows, key=size, reverse=True):
        if alike and size(row) >= size(alike[-1][0]) - _ALIKE:
            alike[-1].append(row)
        else:
            alike.append([row])
    places = {id(row): place for place, row in enumerate(rows)}
    for group in alike:
        yield from sorted(group, key=lambda row: (row.phase != PEAK, places[id(row)]))


def with_causes(rows: Sequence[Judged]) -> list[Judged]:
    """The rows, each regression with the earlier regression that it follows from, if there is one.

    Memory that rises in a phase is still there in the next, and in PEAK. So among a variant's regressions in bytes, in the order of the phases, a
    regression follows from an earlier regression unless it is larger by more than its threshold. In a phase the peak stands for the other metrics.
    """
    courses: dict[Key, list[str]] = {}
    for row in rows:
        courses.setdefault(row.key, []).extend([row.phase] if row.phase != PEAK else [])
    order = {phase: place for place, phase in enumerate([*summary.merged(courses.values()), PEAK])}
    risen = [row for row in rows if row.verdict == "regressed" and metrics.METRICS[row.metric].unit == BYTES]
    causes: dict[int, tuple[str, str]] = {}
    roots: dict[Key, list[Judged]] = {}
    for row in sorted(risen, key=lambda row: (order[row.phase], row.metric not in metrics.HIGH_WATER_MARKS)):
        earlier = roots.setdefault(row.key, [])
        root = next((root for root in earlier if (row.difference or 0) <= (root.difference or 0) + (row.threshold or 0)), None)
        if root is None:
            earlier.append(row)
        else:
            causes[id(row)] = root.phase, root.metric
    return [replace(row, cause=causes.get(id(row))) for row in rows]


def parse_limits(words: Sequence[str]) -> Limits:
    """Limits from `2%` and `1MiB`, each taking the place of its default. Raises UsageError."""
    limits = Limits()
    for word in words:
        if word.strip().endswith("%"):
            try:
                share = float(word.strip()[:-1]) / 100
            except ValueError:
                share = -1.0
            if not 0 <= share < math.inf:
                raise UsageError(f"--threshold {word!r}: write a share such as 2%, or a size such as 1MiB")
            limits = replace(limits, share=share)
        elif re.fullmatch(r"[0-9.]*[1-9][0-9.]*", word.strip()):  # 5 bytes are what nobody means; 0 is none in any unit
            raise UsageError(f"--threshold {word!r} has no unit: write {word.strip()}% or {word.strip()}MiB")
        else:
            limits = replace(limits, bytes=parse_bytes(word))
    return limits


# -- all rows


def judge(
    base: Sequence[BaselineEntry], head: Sequence[BaselineEntry], limits: Limits = Limits(), across_machines: bool = False
) -> list[Judged]:
    """A verdict for each row of either side, and for each variant of head with a failed run.

    A variant whose sides come from different machines is undecided, unless across_machines is set. RELEASE is left out: whether the allocator gives
    freed pages back turns on the size of the environment, so that the same build of an 8 MiB model kept 34.5 or 42.5 MiB, five times of five.
    """
    before, after = ({entry.place: _compared(entry) for entry in side} for side in (base, head))
    judged: list[Judged] = []
    for place, entry in after.items():
        old = before.get(place)
        differs = settings.other_machine(old.machine, entry.machine) if old is not None and not across_machines else None
        judged += _elsewhere(old, entry, differs) if differs is not None else _judge_entry(old, entry, limits)
    judged += [_gone(entry.key, row) for place, entry in before.items() if place not in after for row in entry.rows]
    return judged


def _compared(entry: BaselineEntry) -> BaselineEntry:
    return replace(entry, rows=tuple(row for row in entry.rows if row.phase != RELEASE))


def _judge_entry(base: BaselineEntry | None, head: BaselineEntry, limits: Limits) -> list[Judged]:
    judged = [_failure(base, head)] if head.failed else []
    if base is not None and base.failed == base.runs and not head.failed:  # it may be broken, or lack what only this checkout has
        judged.append(Judged(head.key, "", OUTCOME, "undecided", f"nothing to compare with: each run of base failed ({base.failure})"))
    before = {(row.phase, row.metric): row for row in base.rows} if base else {}
    after = {(row.phase, row.metric): row for row in head.rows}
    bound = max(entry.machine.peak_bound_bytes for entry in (base or head, head))
    for place, row in after.items():
        if place not in before:
            reason = f"base failed: {base.failure}" if base and base.failed else "not in the baseline"
            judged.append(Judged(head.key, row.phase, row.metric, "new", reason, head=row))
        elif not head.failed or len(row.values) >= LEAST_REPEATS:
            deterministic = head.settings.get("deterministic") == "on"
            judged.append(_beside(judge_row(before[place], row, bound, limits, deterministic), base, head))
    if not head.failed:  # else the rows are missing because of that
        judged += [_gone(head.key, row) for place, row in before.items() if place not in after]
    return judged


def _elsewhere(base: BaselineEntry | None, head: BaselineEntry, differs: str) -> list[Judged]:
    reason = f"base is from another machine ({differs}): figures of two machines are not judged without --across-machines"
    failure = [_failure(base, head)] if head.failed else []
    return [*failure, Judged(head.key, "", OUTCOME, "undecided", reason)]


def _beside(row: Judged, base: BaselineEntry | None, head: BaselineEntry) -> Judged:
    """The row; a regression also names other changes, because the code need not be the cause."""
    also = changes(base, head) if base is not None and row.verdict == "regressed" else ()
    return replace(row, reason=f"{row.reason}; also changed: {', '.join(also)}") if also else row


def _failure(base: BaselineEntry | None, head: BaselineEntry) -> Judged:
    failures = summary.failures(head.failed, head.runs, head.failure)
    if base is None or base.failed:
        return Judged(head.key, "", OUTCOME, "failing", f"{failures} ({'base failed too' if base else 'not in the baseline'})")
    return Judged(head.key, "", OUTCOME, "failed", failures)


def _gone(key: Key, row: Row) -> Judged:
    return Judged(key, row.phase, row.metric, "gone", "in the baseline, but not measured now", base=row)


# -- a row


def judge_row(base: Row, head: Row, bound_bytes: int, limits: Limits = Limits(), deterministic: bool = False) -> Judged:
    """The verdict on a row that both sides have. bound_bytes: the peaks' error bound on the machines they come from. deterministic: head's runs were.

    Where pages were swapped out, resident memory alone decides nothing: both sides are judged with the swapped-out pages added.
    """
    base, head = summary.whole(base), summary.whole(head)
    judged = _judge_whole_row(base, head, bound_bytes, limits, deterministic)
    return replace(judged, reason=judged.reason + swap_words(base, head))


def swap_words(*rows: Row) -> str:
    """The end of a reason: the swapped-out pages that are in the rows' values, if there are any."""
    most = max(row.swapped for row in rows)
    return f"; with swapped-out pages, {format_bytes(most)} at most, which RSS lacks" if most else ""


def _judge_whole_row(base: Row, head: Row, bound_bytes: int, limits: Limits, deterministic: bool) -> Judged:
    machines = machine_spread.sides(base, head)
    if machines is not None:
        decision = by_machines(base, machines, floor(base.metric, base.median, bound_bytes, limits))
        return Judged(head.key, head.phase, head.metric, decision.verdict, decision.reason, base, head, decision.threshold, decision.p)
    count = min(len(base.values), len(head.values))
    if count < LEAST_REPEATS:
        many = f"{counted(count, 'repeat')} can never decide"
        return Judged(head.key, head.phase, head.metric, "undecided", f"{many}: {LEAST_REPEATS} a side are the least", base, head)
    least = floor(base.metric, base.median, bound_bytes, limits)
    decision = Pair.of(base, head, least, deterministic).decide()
    missed = max(base.missed, head.missed)
    if decision.verdict == "ok" and decision.threshold > least and missed > least:
        # The noise may be of polling, which sees less of a short peak on a busy machine, and it hides what lies within it.
        reason = (
            f"{decision.reason}, but a peak is only what polling saw, and up to {format_bytes(missed)} more is possible: {POLLED_ADVICE}"
        )
        decision = replace(decision, verdict="undecided", reason=reason)
    return Judged(head.key, head.phase, head.metric, decision.verdict, decision.reason, base, head, decision.threshold, decision.p)


def floor(metric: str, base: float, bound_bytes: int, limits: Limits) -> float:
    """The smallest difference from base's median that counts, whatever the samples look like. Bytes per unit have no least number of bytes."""
    least = [limits.share * abs(base)]
    least += [limits.bytes] if metric not in metrics.OF_SEVERAL and metrics.METRICS[metric].unit == BYTES else []
    return max(*least, bound_bytes if metric in metrics.HIGH_WATER_MARKS else 0)
