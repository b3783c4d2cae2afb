"""What a gate measures once more: regressions that are to be confirmed, and verdicts that are to be proven able to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..errors import InputError, MemprofError, UsageError
from ..judge import baseline, verdicts
from ..judge.baseline import DEFAULT_METRICS, Entry, Place
from ..judge.ranks import LEAST_REPEATS
from ..judge.verdicts import Judged, Proof
from ..measuring import campaign
from ..measuring.orders import Order, plan
from ..measuring.progress import Progress
from ..measuring.suite import Suite, Variant
from ..runs import metrics, store
from ..runs.records import PEAK, Run
from ..runs.summary import Row
from .interleaved import interleaved
from .request import BASE, HEAD, Known, GateRequest

PROVEN_SHARE = 0.05

_AGAIN, _MORE = "measured again", "5% more"


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
    orders = plan(wanted).orders
    if orders[0].job.model.sha256 != job.model.sha256:
        raise InputError(f"{job.model.path} is not the file any more that was measured: it cannot be measured again")
    intervals = {"interval_ns": job.interval_ns, "iterations_interval_ns": job.iterations_interval_ns}
    return tuple(replace(order, job=replace(order.job, **intervals)) for order in orders)  # type: ignore[arg-type]


@dataclass
class Checks:
    """Fresh measurements, each of one place, kept in one runs file. fresh: base's and head's, or why there is none."""

    request: GateRequest
    known: Known
    progress: Progress
    keep: Callable[[bytes], None]
    fresh: dict[Place, tuple[Entry | None, Entry] | str] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def begun(cls, request: GateRequest, known: Known, progress: Progress) -> Iterator[Checks]:
        if not known.head.from_runs:
            raise UsageError("--confirm and --prove measure again what was measured: they need head's runs, not a baseline")
        writer = store.Writer(request.checks_output, append=False)
        try:
            yield cls(request, known, progress, writer.write)
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
        judged = verdicts.judge_row(before, after, bound, self.request.limits)
        if judged.verdict == "regressed":
            again = metrics.signed(row.metric, after.median - before.median, before.median)
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
        seen = verdicts.judge([entries["first"]], [_as(entries["more"], entries["first"])], self.request.limits)
        quiet = verdicts.judge([entries["first"]], [_as(entries["second"], entries["first"])], self.request.limits)
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
        return baseline.entries(runs, self.request.metrics or DEFAULT_METRICS)[0]


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
