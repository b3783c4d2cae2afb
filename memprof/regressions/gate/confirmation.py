"""Fresh measurements of a gate: they confirm regressions, and they prove that its verdicts can fail."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct, field
from msgspec.structs import replace

from ...base.errors import InputError, MemprofError, UsageError
from ...base.units import format_bytes
from ...campaign import campaign
from ...campaign.progress import Keep, Progress
from ...campaign.runs_writer import keeping
from ...places.place import HERE
from ...programs import commands
from ...records import metrics, summary
from ...records.summary import Row, VariantKey
from ...records.types import COMMAND, PEAK, Job, JobSide, Run
from ...subjects.order import Order
from ...subjects.orders import plan
from ...subjects.suite import Suite, Variant
from ...verdicts import baseline, verdicts
from ...verdicts.baseline import DEFAULT_METRICS, BaselineEntry
from ...verdicts.ranks import LEAST_REPEATS
from ...verdicts.verdicts import Judged, Proof
from . import ballast
from .interleaving import interleaved
from .request import BASE, HEAD, GateRequest, GateSides

PROVEN_SHARE = 0.05


def orders_again(runs: Sequence[Run], place: VariantKey) -> tuple[Order, ...]:
    """Orders that repeat the measurement of this place's Runs, as often. Raises InputError if the model is not here any more."""
    repeats = _runs_of(runs, place)
    job, machine = repeats[0].job, repeats[0].machine
    if machine.arch != HERE.machine().arch:
        raise InputError(f"{job.model.name} was measured on {machine.name} ({machine.arch}): this machine cannot measure it again")
    wanted = Suite(
        models=(job.model.path,) if job.model.files else (),
        variants=(_variant_of(job),),
        cwd=job.cwd,
        phases=job.phases,
        phase_regexes=job.phase_regexes,
        warmup=job.warmup,
        runs=job.runs,
        repeats=len(repeats),
        cache=job.cache,
        deterministic=job.deterministic,
        timeout_ns=job.timeout_ns,
        cpus=job.cpus,
        no_swap=job.no_swap,
        release=job.release,
        shapes=job.shapes,
        inputs=job.inputs,
        values=job.values,
        name=job.model.name,
    )
    orders = plan(wanted).orders
    if orders[0].job.model.sha256 != job.model.sha256:
        raise InputError(f"{job.model.path} is not the file any more that was measured: it cannot be measured again")
    same = {name: getattr(job, name) for name in ("interval_ns", "iterations_interval_ns", "version")}
    return tuple(replace(order, job=replace(order.job, **same)) for order in orders)


def _variant_of(job: Job) -> Variant:
    """Raises InputError for a server under a load, of which a Job has only words for people."""
    common = Variant(runtime=job.runtime, name=job.variant, set=job.knobs, python=job.python, env=job.variables)
    if job.runtime != COMMAND:
        return replace(common, threads=(job.threads,) if job.threads else ())
    if job.drive is not None:
        raise InputError(f"{job.variant} ran under a load ({job.drive}), and its runs do not tell all of that load")
    return replace(common, command=commands.of_words(job.argv, job.variant))


def execution_words(job: Job) -> str:
    """The program or the runtime, interpreter, variables and knobs that a Job would be measured with again, for people; no letter of it can act on
    a terminal."""
    if job.argv:
        words = [f"program {shlex.join(job.argv)}", f"folder {job.cwd or 'the current one'}"]
    else:
        words = [f"runtime {job.runtime}", f"interpreter {job.python or 'none'}"]
    words += [f"{name}={value}" if value is not None else f"{name} unset" for name, value in job.env.items()] or ["no variables"]
    words += [f"knob {name}={value}" for name, value in job.knobs.items()]
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in ", ".join(words))


def _runs_of(runs: Sequence[Run], place: VariantKey) -> list[Run]:
    return [run for run in runs if summary.key(run).place == place]


class Checks(Struct):
    """Fresh measurements, each of one place, kept in one runs file. measured: base's and head's entries, or why there are none."""

    request: GateRequest
    known: GateSides
    progress: Progress
    keep: Keep
    measured: dict[VariantKey, tuple[BaselineEntry | None, BaselineEntry] | str] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def begun(cls, request: GateRequest, known: GateSides, progress: Progress) -> Iterator[Checks]:
        if not known.head.from_runs:
            raise UsageError("--confirm and --prove measure again what was measured: they need head's runs, not a baseline")
        with keeping(request.checks_output, progress.say, holds="what was measured again") as keep:
            yield cls(request, known, progress, keep)

    def confirmed(self, row: Judged) -> Judged:
        """The row, called a regression only if a fresh measurement agrees."""
        if row.verdict != "regressed" or row.base is None:
            return row
        place = row.key.place
        if place not in self.measured:
            self._announce(place, "measured again to confirm a regression")
            self.measured[place] = self._again(place)
        fresh = self.measured[place]
        if isinstance(fresh, str):
            return replace(row, reason=f"{row.reason}; {fresh}")
        base, head = fresh
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

    def _again(self, place: VariantKey) -> tuple[BaselineEntry | None, BaselineEntry] | str:
        try:
            base, head = (self.known.again(side, place) for side in (BASE, HEAD))
        except MemprofError as error:  # the first verdict stands: it must not be lost
            return f"it cannot be measured again: {error}"
        entries = self._measure({"base, measured again": base, "head, measured again": head})
        fresh = entries["head, measured again"]
        if not base:
            judged = [entry for entry in self.known.head.entries if entry.place == place]
            if foreign := baseline.differing(judged, [_as(fresh, judged[0])])[0]:
                return f"a fresh measurement is of something else ({'; '.join(foreign)})"
        return entries.get("base, measured again"), fresh

    def proof(self) -> Proof | str:
        """The positive control, on the first variant with enough runs, or why there is none."""
        able = [entry for entry in self.known.head.entries if not entry.failed and entry.runs >= LEAST_REPEATS and _peak(entry)]
        why = "no variant has five runs that ended well, and a peak among what is compared"
        for entry in able:
            more = int(PROVEN_SHARE * _peak(entry))
            processes = next((run.processes for run in _runs_of(self.known.head.from_runs, entry.place) if run.processes), ())
            try:
                orders = self.known.again(HEAD, entry.place)
                orders = [replace(order, job=replace(order.job, release=False)) for order in orders]  # which nobody judges
                heavier = [ballast.heavier(order, more, processes) for order in orders]
            except MemprofError as error:
                why = str(error)
                continue
            return self._proof_of(entry, more, orders, heavier, several=bool(processes))
        return why

    def _proof_of(self, entry: BaselineEntry, more: int, orders: Sequence[Order], heavier: Sequence[Order], several: bool) -> Proof | str:
        """several: a run of this variant was more than one process."""
        self._announce(entry.place, f"measured with {more >> 10} KiB more, to prove that it would be seen")
        entries = self._measure({"as it is": orders, "measured again": orders, "5% more": heavier})
        first, raised_entry = entries["as it is"], entries["5% more"]
        if raised_entry.failed:
            return f"{entry.heading}: the runs with {format_bytes(more)} more failed: {raised_entry.failure}"
        risen = _peak(raised_entry) - _peak(first)
        if risen < more / 2:
            cause = f": {ballast.NOT_PRELOADED}" if orders[0].command is not None else ""
            return f"{entry.heading} does not hold the {format_bytes(more)} more{cause}"
        if several and risen > 1.5 * more:
            return f"{entry.heading} holds {format_bytes(round(risen))} more and not {format_bytes(more)}: {ballast.IN_SEVERAL}"
        raised = verdicts.judge([first], [_as(raised_entry, first)], self.request.limits)
        quiet = verdicts.judge([first], [_as(entries["measured again"], first)], self.request.limits)
        alarms = ("failed", "regressed", "improved", "failing")
        return Proof(
            entry.key,
            more,
            seen=any(row.verdict == "regressed" for row in raised),
            silent=not any(row.verdict in alarms for row in quiet),
            rows=tuple(row for row in (*raised, *quiet) if row.phase == PEAK),
        )

    def _announce(self, place: VariantKey, purpose: str) -> None:
        """Say that a place is measured; for runs from a file also say what will be executed, before it is."""
        self.progress.say(f"{', '.join(map(str, filter(None, (place.model, place.heading, place.threads))))}: {purpose}")
        if self.request.heads:
            job = _runs_of(self.known.head.from_runs, place)[0].job
            self.progress.say(f"as the runs file says: {execution_words(job)}")

    def _measure(self, orders: Mapping[JobSide, Sequence[Order]]) -> dict[JobSide, BaselineEntry]:
        """The entries of the sides that have orders."""
        sequence = interleaved(orders)
        named = [replace(order, job=replace(order.job, side=side)) for side, order in sequence]
        runs: dict[JobSide, list[Run]] = {}
        for (side, _), run in zip(sequence, campaign.measure(named, self.progress, self.keep), strict=True):
            runs.setdefault(side, []).append(run)
        return {side: baseline.entries(some, self.request.metrics or DEFAULT_METRICS)[0] for side, some in runs.items()}


def _as(entry: BaselineEntry, other: BaselineEntry) -> BaselineEntry:
    return replace(entry, **other.place._asdict())


def _row(entry: BaselineEntry, row: Judged) -> Row | None:
    return next((fresh for fresh in entry.rows if (fresh.phase, fresh.metric) == (row.phase, row.metric)), None)


def _peak(entry: BaselineEntry) -> float:
    return max((row.median for row in entry.rows if row.metric in ("rss_peak_bytes", "anon_end_bytes")), default=0.0)
