"""What a gate measures itself: a suite, both sides of a git ref, and again what is to be confirmed or proven.

With --base-ref both sides are measured in one campaign, each repeat of a variant beside its counterpart and the side that goes first in
turns, so that a machine that drifts drifts for both. What is measured again goes into a runs file of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import InputError, MemprofError, UsageError
from ..judge import baseline, budgets, verdicts
from ..judge.baseline import DEFAULT_METRICS, Entry, Place, Side
from ..judge.budgets import Budget, Spot
from ..judge.compare import LEAST_REPEATS
from ..judge.verdicts import Judged, Proof
from ..measuring import campaign, suite
from ..measuring.bundle import cache_folder
from ..measuring.campaign import Progress
from ..measuring.suite import Build, Order, Suite, Variant
from ..runs import store
from ..runs.records import COMMAND, PEAK, PHASES, WARMUP, Job, Run
from ..runs.summary import Row
from . import worktrees
from .decide import BASE, HEAD, Known, Wish

PROVEN_SHARE = 0.05

_AGAIN, _MORE = "measured again", "5% more"


@contextmanager
def measured(wish: Wish, base: Side, names: Sequence[str], limits: Sequence[Budget], progress: Progress) -> Iterator[Known]:
    """The suite measured now, beside this base, or with --base-ref both sides; their trees live as long as the block.

    Raises UsageError, before anything is measured, for a limit on what the suite does not have.
    """
    assert wish.suite is not None
    if wish.base_ref is None:
        plan = suite.plan(_repeated(suite.read(wish.suite), wish))
        _say(plan.remarks, progress)
        budgets.check(limits, _spots(plan.orders))
        runs = _campaign({HEAD: plan.orders}, {HEAD: wish.output}, progress)[HEAD]
        title = f"{wish.suite}, measured now, against {wish.base or wish.budgets}"
        yield Known(title, base, _side(runs, names), lambda side, place: _at(plan.orders, place) if side == HEAD else ())
        return
    with _both_sides(wish, progress) as (title, orders, remarks):
        budgets.check(limits, _spots(orders[HEAD]))
        found = _campaign(orders, {BASE: wish.base_output, HEAD: wish.output}, progress)
        yield Known(
            title, _side(found[BASE], names), _side(found[HEAD], names), lambda side, place: _at(orders[side], place), tuple(remarks)
        )


def _spots(orders: Sequence[Order]) -> list[Spot]:
    """Where a budget may hold: a program, and a runtime in a file of its own, may have phases that nobody knows before."""
    found: list[Spot] = []
    for job in (order.job for order in orders):
        own = job.runtime == COMMAND or job.runtime.endswith(".py")
        phases = [phase for phase in PHASES if job.warmup or phase != WARMUP]
        found += [(job.model.name, job.variant)] if own else [(job.model.name, job.variant, phase) for phase in (*phases, PEAK)]
    return list(dict.fromkeys(found))


def _say(remarks: Sequence[str], progress: Progress) -> None:
    for remark in remarks:
        progress.say(remark)


def _side(runs: Sequence[Run], names: Sequence[str]) -> Side:
    return Side(baseline.entries(runs, names), from_runs=tuple(runs))


def _repeated(wanted: Suite, wish: Wish) -> Suite:
    return replace(wanted, repeats=wish.repeats) if wish.repeats is not None else wanted


@contextmanager
def _both_sides(wish: Wish, progress: Progress) -> Iterator[tuple[str, dict[str, Sequence[Order]], list[str]]]:
    """What is compared, the orders of both sides, whose trees live as long as the block, and what the user should know."""
    assert wish.suite is not None and wish.base_ref is not None
    repository = worktrees.Repository.of(wish.suite)
    build = suite.read(wish.suite).build or Build()
    with worktrees.trees(repository, wish.base_ref, build, progress.say) as (base, head):
        suites = {name: _repeated(worktrees.suite_in(repository, tree, head), wish) for name, tree in ((BASE, base), (HEAD, head))}
        plan = suite.plan(suites[HEAD])
        _say(plan.remarks, progress)
        try:
            orders, remarks = _base_orders(suites[BASE], plan.orders) if base.new is None else ([], [base.new])
        except InputError as error:
            if repository.has_suite(base.folder):
                raise
            orders, remarks = [], [str(error)]
        if not orders:
            remarks = [f"{base.label} has no {repository.suite} yet, so all rows are new", *remarks]
        try:
            yield f"{head.label} against {base.label}", {BASE: _alone(orders), HEAD: _alone(plan.orders)}, remarks
        finally:
            _forget_converted(head.folder.parent)


def _base_orders(wanted: Suite, head: Sequence[Order]) -> tuple[list[Order], list[str]]:
    """Base's orders, variant by variant: one that base does not know yet is new in head and no error. Raises where it knows none."""
    found: list[Order] = []
    remarks: list[str] = []
    errors: list[MemprofError] = []
    variants = {one.name or os.path.basename(one.runtime).removesuffix(".py"): one for one in suite.variants_of(wanted)}
    for model, variant in dict.fromkeys((order.job.model.name, order.job.variant) for order in head):
        # Commands may be about no file: they are about what head's suite says together.
        paths = [path for path in wanted.models if os.path.basename(os.path.normpath(path)) == model]
        known = {key: value for key, value in wanted.set.items() if any(key in order.job.knobs for order in _of(head, model, variant))}
        try:
            one = replace(wanted, models=tuple(paths), name=model, runtimes=(), variants=(variants[variant],), set=known)
            found += suite.plan(one).orders
        except MemprofError as error:
            errors.append(error)
            remarks.append(f"base cannot measure {model}, {variant}, so it is new: {error}")
    if errors and not found:
        raise InputError(f"base can measure nothing of this suite: {errors[0]}")
    return found, remarks


def _of(orders: Sequence[Order], model: str, variant: str) -> list[Order]:
    return [order for order in orders if (order.job.model.name, order.job.variant) == (model, variant)]


def _alone(orders: Sequence[Order]) -> tuple[Order, ...]:
    """The orders without a PYTHONPATH, which would put one side's modules (or the checkout's) before both sides' own."""
    return tuple(replace(order, env={"PYTHONPATH": None, **order.env}) for order in orders)


def _forget_converted(work: Path) -> None:
    """Remove models that an interpreter of these trees has converted: nobody will ask for them again."""
    for folder in cache_folder("built").iterdir():
        try:
            mine = str(work) in (folder / campaign.MADE_BY).read_text()
        except OSError:
            continue
        if mine:
            shutil.rmtree(folder, ignore_errors=True)


def _place(order: Order) -> Place:
    return order.job.model.name, order.job.variant, order.job.threads


def _at(orders: Sequence[Order], place: Place) -> tuple[Order, ...]:
    return tuple(order for order in orders if _place(order) == place)


def orders_again(runs: Sequence[Run], place: Place) -> tuple[Order, ...]:
    """Orders that measure once more what Runs of this place measured, as often. Raises InputError where that is not here any more."""
    own = [run for run in runs if (run.job.model.name, run.job.variant, run.job.threads) == place]
    job = own[0].job
    variant = Variant(
        runtime=job.runtime,
        name=job.variant,
        set=job.knobs,
        threads=(job.threads,) if job.threads else (),
        python=job.python,
        env={name: value for name, value in job.env.items() if value is not None},
    )
    wanted = Suite(
        models=(job.model.path,),
        variants=(variant,),
        warmup=job.warmup,
        runs=job.runs,
        repeats=len(own),
        cache=job.cache,
        deterministic=job.deterministic,
        timeout_ns=job.timeout_ns,
        shapes=job.shapes,
        inputs=job.inputs,
        name=job.model.name,
    )
    orders = suite.plan(wanted).orders
    if orders[0].job.model.sha256 != job.model.sha256:
        raise InputError(f"{job.model.path} is not the file any more that was measured: it cannot be measured again")
    intervals = {"interval_ns": job.interval_ns, "iterations_interval_ns": job.iterations_interval_ns}
    return tuple(replace(order, job=replace(order.job, **intervals)) for order in orders)  # type: ignore[arg-type]


# -- one campaign for all sides


def interleaved(orders: dict[str, Sequence[Order]]) -> list[tuple[str, Order]]:
    """All sides' orders in one sequence: repeat by repeat, place by place, the sides beside one another and in turns the first."""
    names = list(orders)
    found = []
    places = dict.fromkeys(_place(order) for name in reversed(names) for order in orders[name])
    repeats = max((order.job.repeat for side in orders.values() for order in side), default=0)
    by = {(name, order.job.repeat, _place(order)): order for name, side in orders.items() for order in side}
    for repeat in range(1, repeats + 1):
        turn = names[(repeat - 1) % len(names) :] + names[: (repeat - 1) % len(names)]
        found += [(name, by[name, repeat, place]) for place in places for name in turn if (name, repeat, place) in by]
    return found


def _campaign(orders: dict[str, Sequence[Order]], outputs: dict[str, Path], progress: Progress) -> dict[str, list[Run]]:
    """Measure all sides; each Run is in its side's file as soon as it exists."""
    sequence = interleaved(orders)
    for remark in campaign.surroundings(max(order.job.model.bytes for _, order in sequence)):
        progress.say(remark)
    turns = iter(sequence)
    shown = _Sided(progress, sequence) if len(orders) > 1 else progress
    found: dict[str, list[Run]] = {name: [] for name in orders}
    writers: dict[str, store.Writer] = {}
    try:
        for name, path in outputs.items():
            writers[name] = store.Writer(path, append=False)
        runs = campaign.measure([order for _, order in sequence], shown, lambda line: writers[next(turns)[0]].write(line))
        for (name, _), run in zip(sequence, runs, strict=True):
            found[name].append(run)
    finally:
        for name, writer in writers.items():
            writer.discard_if_empty()
            if writer.written:
                progress.say(f"{writer.path} holds {name}'s runs")
    return found


class _Sided:
    """A Progress that says whose run it is: both sides have variants of the same names."""

    def __init__(self, progress: Progress, sequence: Sequence[tuple[str, Order]]) -> None:
        self._progress = progress
        self._names = [name for name, _ in sequence]
        self._now = ""
        self.live = progress.live
        self.say = progress.say

    def started(self, job: Job, index: int, total: int) -> None:
        self._now = self._names[index - 1]
        self._progress.started(self._named(job), index, total)

    def finished(self, run: Run) -> None:
        self._progress.finished(replace(run, job=self._named(run.job)))

    def _named(self, job: Job) -> Job:
        return replace(job, variant=f"{job.variant} ({self._now})")


# -- what is measured again


@dataclass
class Checks:
    """Fresh measurements, each of one place, kept in one runs file. fresh: base's and head's, or why there is none."""

    wish: Wish
    known: Known
    progress: Progress
    keep: Callable[[bytes], None]
    fresh: dict[Place, tuple[Entry | None, Entry] | str] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def begun(cls, wish: Wish, known: Known, progress: Progress) -> Iterator[Checks]:
        if not known.head.from_runs:
            raise UsageError("--confirm and --prove measure again what was measured: they need head's runs, not a baseline")
        writer = store.Writer(wish.checks_output, append=False)
        try:
            yield cls(wish, known, progress, writer.write)
        finally:
            writer.discard_if_empty()
            if writer.written:
                progress.say(f"{writer.path} holds what was measured again")

    def confirmed(self, row: Judged) -> Judged:
        """The row, called a regression only where a fresh measurement of it agrees."""
        if row.verdict != "regressed" or row.base is None:
            return row
        place = (row.key.model, row.key.variant, row.key.threads)
        if place not in self.fresh:
            self.progress.say(f"{', '.join(map(str, filter(None, place)))}: measured again to confirm a regression")
            self.fresh[place] = self._again(place)
        found = self.fresh[place]
        if isinstance(found, str):
            return replace(row, reason=f"{row.reason}; {found}")
        base, head = found
        if head.failed or (base and base.failed):
            return replace(row, reason=f"{row.reason}; a fresh measurement failed")
        before = _row(base, row) if base else row.base
        after = _row(head, row)
        if before is None or after is None:
            return replace(row, reason=f"{row.reason}; a fresh measurement has no such row")
        bound = max(entry.machine.peak_bound_bytes for entry in (base or head, head))
        judged = verdicts.judge_row(before, after, bound, self.wish.limits)
        if judged.verdict == "regressed":
            again = verdicts.signed(row.metric, after.median - before.median, before.median)
            return replace(row, reason=f"{row.reason}; confirmed: {again}")
        verdict: verdicts.Verdict = "undecided" if judged.verdict == "undecided" else "ok"
        return replace(row, verdict=verdict, reason=f"{row.reason}, but not confirmed: {judged.reason}")

    def _again(self, place: Place) -> tuple[Entry | None, Entry] | str:
        try:
            orders = {side: found for side in (BASE, HEAD) if (found := self.known.again(side, place))}
        except MemprofError as error:  # what was found stands: it must not be lost
            return f"it cannot be measured again: {error}"
        named = {side: [_called(order, f"{side}, {_AGAIN}") for order in own] for side, own in orders.items()}
        runs = self._measure(named)
        entries = {side: self._entry(found) for side, found in runs.items()}
        if BASE not in entries:
            judged = [entry for entry in self.known.head.entries if entry.place == place]
            if foreign := baseline.differing(judged, [_as(entries[HEAD], judged[0])])[0]:
                return f"a fresh measurement is of something else ({'; '.join(foreign)})"
        return entries.get(BASE), entries[HEAD]

    def proof(self) -> Proof | None:
        """The positive control, on the first variant that has runs enough; None where there is none."""
        entry = next((one for one in self.known.head.entries if not one.failed and one.runs >= LEAST_REPEATS and _peak(one)), None)
        if entry is None:
            return None
        more = int(PROVEN_SHARE * _peak(entry))
        try:
            orders = self.known.again(HEAD, entry.place)
        except MemprofError as error:
            self.progress.say(f"no positive control: {error}")
            return None
        self.progress.say(f"{entry.model}, {entry.variant}: measured with {more >> 10} KiB more, to prove that it would be seen")
        sides = {
            "first": [_called(order, "as it is") for order in orders],
            "second": [_called(order, _AGAIN) for order in orders],
            "more": [_called(_heavier(order, more), _MORE) for order in orders],
        }
        runs = self._measure(sides)
        entries = {name: self._entry(found) for name, found in runs.items()}
        seen = verdicts.judge([entries["first"]], [_as(entries["more"], entries["first"])], self.wish.limits)
        quiet = verdicts.judge([entries["first"]], [_as(entries["second"], entries["first"])], self.wish.limits)
        alarms = ("failed", "regressed", "improved", "failing")
        return Proof(
            entry.key,
            more,
            seen=any(row.verdict == "regressed" for row in seen),
            silent=not any(row.verdict in alarms for row in quiet),
            rows=tuple(row for row in (*seen, *quiet) if row.phase == PEAK),
        )

    def _measure(self, orders: dict[str, list[Order]]) -> dict[str, list[Run]]:
        sequence = interleaved(dict(orders))
        found: dict[str, list[Run]] = {name: [] for name in orders}
        runs = campaign.measure([order for _, order in sequence], self.progress, self.keep)
        for (name, _), run in zip(sequence, runs, strict=True):
            found[name].append(run)
        return found

    def _entry(self, runs: Sequence[Run]) -> Entry:
        return baseline.entries(runs, self.wish.metrics or DEFAULT_METRICS)[0]


def _called(order: Order, words: str) -> Order:
    """The order under a name of its own: its runs are no repeats of the others."""
    return replace(order, job=replace(order.job, variant=f"{order.job.variant} ({words})"))


def _as(entry: Entry, other: Entry) -> Entry:
    return replace(entry, variant=other.variant, threads=other.threads)


def _heavier(order: Order, more: int) -> Order:
    held = int(order.job.knobs.get("ballast", 0))
    return replace(order, job=replace(order.job, knobs={**order.job.knobs, "ballast": str(held + more)}))


def _row(entry: Entry, row: Judged) -> Row | None:
    return next((one for one in entry.rows if (one.phase, one.metric) == (row.phase, row.metric)), None)


def _peak(entry: Entry) -> float:
    return max((row.median for row in entry.rows if row.metric in ("rss_peak_bytes", "anon_end_bytes")), default=0.0)
