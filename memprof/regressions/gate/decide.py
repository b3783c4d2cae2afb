"""A gate from end to end: from files, or from a suite that is measured now, to a Report.

Files are judged on any system. two_builds and confirmation measure, and are imported only where something is measured.
"""

from __future__ import annotations

import datetime
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from ...base.errors import InputError, MeasurementError, UsageError
from ...base.units import counted
from ...growth.laws import coefficients
from ...records import store, summary
from ...records.summary import VariantKey
from ...records.types import PEAK, RUN
from ...subjects.settings import options
from ...verdicts import acknowledgements, baseline, budget_proposal, budgets, growth_limits, input_files, verdicts
from ...verdicts.baseline import DEFAULT_METRICS, BaselineEntry, GateSide
from ...verdicts.budgets import Budget
from ...verdicts.verdicts import Judged, Proof, Report
from .request import HEAD, GateRequest, GateSides

if TYPE_CHECKING:
    from ...campaign.progress import Progress
    from ...programs.commands import Command
    from ...records.types import JobSide, Run
    from ...subjects.order import Order
    from ...subjects.suite import Suite

# What programs say that find no terminal: of Python's input(), of isatty and of ioctl.
_NO_TERMINAL = ("EOF when reading", "not a tty", "not a TTY", "not a terminal", "Inappropriate ioctl for device")


def judge(request: GateRequest, progress: Progress) -> Report:
    """Run a gate. Raises UsageError and InputError as its parts do; runs that were measured until then are in the output files."""
    request.check()
    limits = budgets.read(request.budgets) if request.budgets else ()
    limits += (replace(request.budget, number=len(limits) + 1),) if request.budget is not None else ()
    begins_baseline = request.begins_baseline
    accepted = acknowledgements.read(request.acknowledged) if request.acknowledged else ()
    names = tuple(dict.fromkeys((*(request.metrics or DEFAULT_METRICS), *budgets.metric_names(limits))))
    with ExitStack() as stack:
        known = stack.enter_context(_known(request, names, limits, progress))
        remarks = [*known.remarks, *known.base.warnings, *known.head.warnings]
        rows: list[Judged] = []
        if (request.base is not None and not begins_baseline) or request.of_two_trees:
            base_entries, renamings = baseline.renamed(known.base.entries, known.head.entries)
            known = replace(known, base=replace(known.base, entries=base_entries))
            remarks += [*renamings, *_other_names(known), *_surroundings(request, known)]
            remarks += [
                f"{entry.label}: {entry.failed} of base's {counted(entry.runs, 'run')} failed: {entry.failure}"
                for entry in known.base.entries
                if entry.failed
            ]
            rows += verdicts.judge(*_judged_metrics(request, known), request.limits, request.across_machines)
            rows += _not_in_both(known)
        if request.command is not None and not any(entry.rows or entry.failed for entry in known.head.entries):
            raise MeasurementError("the program ended before its memory could be read, in each run: there is no peak to judge")
        rows += budgets.judge(limits, known.head.entries)
        rows += growth_limits.judge(known.growth, limits)
        rows += coefficients.judge(known.laws)
        rows += _failures(rows, known.head.entries)
        alone = request.command is not None and not request.of_two_trees and (request.base is None or begins_baseline)
        if alone and (not limits or (begins_baseline and request.in_ci)):
            rows += _unjudged(request, known.head.entries, rows)
        if begins_baseline:
            remarks.append(_begun_baseline(request, known.head))
        if request.command is not None:
            remarks += _behaviour(request.command, known.head)
            if request.against is not None:
                remarks += [*_unbuilt(request.command, known), *_absent_file(request.command, known)]
        if not rows:
            raise InputError("there is no row to judge")
        rows = _without_run(rows)
        proof = None
        if request.confirm or request.prove:
            from .confirmation import Checks

            checks = stack.enter_context(Checks.begun(request, known, progress))
            if request.heads:
                remarks.append(
                    "fresh measurements are of the code that is here now: they do not show code that has changed since these runs were made"
                )
            if request.confirm:
                judged, rows = rows, [checks.confirmed(row) for row in rows]
                remarks += _unconfirmed(judged, rows)
            made = checks.proof() if request.prove else None
            proof = made if isinstance(made, Proof) else None
            rows += [_no_proof(known.head.entries, made)] if isinstance(made, str) else []
    rows, about = acknowledgements.apply(accepted, rows, datetime.date.today())
    remarks += about
    rows = verdicts.with_causes(rows)
    report = Report(
        known.title,
        verdicts.worst_first(rows),
        tuple(dict.fromkeys(remarks)),
        proof,
        _commands(request, known, rows),
        allow_gone=request.allow_gone,
        ran=_ran(known),
        figures=tuple(row for entry in known.head.entries for row in entry.rows),
        sources=(*known.base.entries, *known.head.entries),
    )
    return _only_said(report) if request.report_only else report


def _only_said(report: Report) -> Report:
    """The report with a remark on the exit code that it would have had."""
    said = f"report only: without --report-only the exit code would be {report.exit_code}"
    return replace(report, report_only=True, remarks=(said, *report.remarks))


def _unjudged(request: GateRequest, head: Sequence[BaselineEntry], rows: Sequence[Judged]) -> list[Judged]:
    """A row for each figure of a command that nothing judges yet.

    A CI service throws the checkout away, and with it the baseline that each run would make again: nothing would ever be judged, and nobody would see
    it. Jest with --ci, too, fails a test whose snapshot is missing, in place of writing it.
    """
    lost = request.base is not None and request.in_ci
    reason = f"the first run, which {request.base} keeps" if request.base is not None else "measured, and no budget or baseline judges it"
    if lost:
        reason = f"{request.base} is not in this checkout, so nothing judges this run"
    failing = {row.key for row in rows if row.metric == verdicts.OUTCOME}
    return [
        Judged(row.key, row.phase, row.metric, "undecided" if lost else "new", reason, head=row)
        for entry in head
        if entry.key not in failing
        for row in entry.rows
    ]


def _without_run(rows: Sequence[Judged]) -> list[Judged]:
    """The rows without those of RUN whose figures are PEAK's: a program without phases has one row."""
    peaks = {(row.key, row.metric): row for row in rows if row.phase == PEAK and row.budget is None}

    def repeats(row: Judged) -> bool:
        peak = peaks.get((row.key, row.metric)) if row.phase == RUN and row.budget is None else None
        return peak is not None and all(
            (mine and mine.values) == (its and its.values) for mine, its in ((row.base, peak.base), (row.head, peak.head))
        )

    return [row for row in rows if not repeats(row)]


def _behaviour(subject: Suite, head: GateSide) -> list[str]:
    """Remarks on what a command does that a gate cannot give it, or that it leaves behind."""
    command = subject.only.command
    assert command is not None
    warnings = next((run.warnings for run in head.from_runs if run.warnings), ())  # their figures differ from repeat to repeat
    remarks = [f"{command.name}: {warning}" for warning in warnings]
    if any(sign in (entry.failure or "") for entry in head.entries for sign in _NO_TERMINAL):
        with_one = f"script -qec {shlex.quote(_words(command))} /dev/null"
        remarks.append(f"{command.name} may need a terminal, and memprof gives a program none: {with_one} gives it one")
    return remarks


def _unbuilt(subject: Suite, known: GateSides) -> list[str]:
    """A remark if base's program, or one that it starts, cannot be started there, and head's can."""
    failed = _of_base_alone(known, _is_missing)
    if failed is None:
        return []
    from ...versions.worktrees import BUILD_HINT

    there = BUILD_HINT if subject.build is None else f"`{subject.build.command}` does not make it there"
    return [f"base cannot start {subject.only.name}, or a program that it starts ({failed.outcome.sentence}): {there}"]


def _of_base_alone(known: GateSides, fails: Callable[[Run], bool]) -> Run | None:
    """The first run of base's that fails so, where none of head's does."""
    if any(map(fails, known.head.from_runs)):
        return None
    return next(filter(fails, known.base.from_runs), None)


def _absent_file(subject: Suite, known: GateSides) -> list[str]:
    """A remark if base's program failed, head's did not, and the words of the failure name a file here that git does not track: the tree of another
    commit has none of those."""
    failed = _of_base_alone(known, lambda run: not run.outcome.ok)
    here = Path(subject.cwd or Path.cwd())
    path = next(_files_named(failed.outcome.sentence, here), None) if failed is not None else None
    if path is None:
        return []
    full = os.path.normpath(here / path)
    return [
        f"base's tree lacks {path}, which git does not track. If both sides may share it, give the program its full path, {full}, as a word or a "
        "variable (--env NAME=PATH)"
    ]


def _files_named(words: str, here: Path) -> Iterator[str]:
    """The relative paths among these words of plain files that git does not track, seen from a folder."""
    from ...versions.worktrees import Repository

    repository = Repository.around(here)
    for word in re.findall(r"[^\s'\"`:;,()\[\]]+", words):
        if not os.path.isabs(word) and (here / word).is_file() and not repository.tracks(here / word):
            yield word


def _is_missing(run: Run) -> bool:
    """Whether a program could not be started: as the kernel says it, or a shell (126 for one that may not be run, 127 for one that is not there)."""
    return run.outcome.status == "start" or run.outcome.exit_code in (126, 127)


def _words(command: Command) -> str:
    return shlex.join((*(f"{name}={value}" for name, value in command.env.items()), *command.argv))


def _begun_baseline(request: GateRequest, head: GateSide) -> str:
    """Make the baseline of a command's first run; what became of it."""
    assert request.base is not None
    failed = next((entry for entry in head.entries if entry.failed), None)
    if failed is not None:
        return f"{request.base} is not made: {summary.failures(failed.failed, failed.runs, failed.failure)}"
    baseline.update(request.base, head.entries)
    return f"{request.base} is made from this run: commit it, and later runs are compared with it"


def _ran(known: GateSides) -> dict[str, tuple[Run, ...]]:
    base, head = (input_files.by_place(side.from_runs) for side in (known.base, known.head))
    return input_files.of_sides(base, head) if base else input_files.beside_baseline(known.base.entries, known.head.entries, head)


def _other_names(known: GateSides) -> list[str]:
    """A sentence for each model of which one variant is gone and one is new: that may be one variant under two names."""
    before = {*((entry.model, entry.heading) for entry in known.base.entries), *((place.model, place.heading) for place in known.gone)}
    after = {(entry.model, entry.heading) for entry in known.head.entries}
    remarks = []
    for model in sorted({model for model, _ in before}):
        gone, new = ([variant for name, variant in pairs if name == model] for pairs in (before - after, after - before))
        if len(gone) == len(new) == 1:
            remarks.append(f"{model}: variant {gone[0]} is gone and variant {new[0]} is new: this may be one variant under another name")
    return remarks


def _not_in_both(known: GateSides) -> list[Judged]:
    """Rows for places that only base's suite has, or that base's suite has and cannot measure: neither passes in silence."""
    machine = known.head.entries[0].machine.name
    gone = [
        Judged(place.on(machine), "", verdicts.OUTCOME, "gone", "base's suite has it and head's has not: it was not measured")
        for place in known.gone
    ]
    keys = {(entry.model, entry.variant): entry.key for entry in known.head.entries}
    return gone + [
        Judged(keys[pair], "", verdicts.OUTCOME, "undecided", f"base cannot measure it: {error}")
        for pair, error in known.unmeasurable.items()
    ]


def _unconfirmed(judged: Sequence[Judged], checked: Sequence[Judged]) -> list[str]:
    """The rows that a fresh measurement has acquitted, by place: they are beyond the threshold, and a reader would wonder."""
    places: dict[str, list[str]] = {}
    for before, after in zip(judged, checked, strict=True):
        if before.verdict == "regressed" != after.verdict:
            places.setdefault(after.key.label, []).append(f"{after.phase} {after.metric}")
    return [f"{place}: not confirmed by a fresh measurement: {', '.join(names)}" for place, names in places.items()]


def _no_proof(head: Sequence[BaselineEntry], why: str) -> Judged:
    return Judged(head[0].key, "", verdicts.OUTCOME, "undecided", f"the positive control could not be made: {why}")


def _failures(rows: Sequence[Judged], head: Sequence[BaselineEntry]) -> list[Judged]:
    """Rows for head's failed runs that no row is about yet."""
    covered = {row.key for row in rows if row.metric == verdicts.OUTCOME}
    return [
        Judged(entry.key, "", verdicts.OUTCOME, "failing", summary.failures(entry.failed, entry.runs, entry.failure))
        for entry in head
        if entry.failed and entry.key not in covered
    ]


def _judged_metrics(request: GateRequest, known: GateSides) -> tuple[tuple[BaselineEntry, ...], tuple[BaselineEntry, ...]]:
    """Both sides with the metrics that are compared, without those of budgets alone. Raises for a metric that the request names and the runs lack."""
    wanted = request.metrics or DEFAULT_METRICS
    base, head = (
        tuple(replace(entry, rows=tuple(row for row in entry.rows if row.metric in wanted)) for entry in side.entries)
        for side in (known.base, known.head)
    )
    for name in request.metrics:
        if not any(row.metric == name for entry in head for row in entry.rows):
            raise UsageError(f"--metric {name}: nothing that was measured has it")
        if base and not any(row.metric == name for entry in base for row in entry.rows):
            raise InputError(f"the baseline has no {name}: memprof baseline update RUNS.jsonl -o BASELINE.json --metric {name} adds it")
    return base, head


def _surroundings(request: GateRequest, known: GateSides) -> list[str]:
    """Remarks on other differences between the sides. Raises InputError if --strict forbids them."""
    foreign, other = baseline.differing(known.base.entries, known.head.entries)
    if request.of_two_trees:
        return [*foreign, *other]
    if foreign and request.strict:
        raise InputError(f"--strict: the baseline does not come from here: {'; '.join(foreign)}")
    return [*(f"{fact}: the baseline comes from elsewhere, so a difference may too" for fact in foreign), *other]


def _commands(request: GateRequest, known: GateSides, rows: Sequence[Judged]) -> dict[str, str]:
    """The command that tightens the baseline, if something improved; for a command that nothing judges, the budget that would hold."""
    if request.command is not None and not (request.base or request.budget or request.budgets or request.of_two_trees):
        return _proposed(request.command, request.repeats, known.head.entries)
    improved = sum(row.verdict == "improved" for row in rows)
    if not improved or request.base is None:
        return {}
    heads = " ".join(shlex.quote(str(path)) for path in request.heads or (request.output,))
    target = request.base if not store.is_runs_file(request.base) else request.base.with_suffix(".json")
    asked = "".join(f" --metric {name}" for name in request.metrics)
    return {"To keep what was gained, tighten the baseline:": f"memprof baseline update {heads} -o {shlex.quote(str(target))}{asked}"}


def _proposed(subject: Suite, repeats: int | None, head: Sequence[BaselineEntry]) -> dict[str, str]:
    """The gate of a command with the budget that its peak would keep to, by the reason."""
    proposed = budget_proposal.proposal(head[0])
    command = subject.only.command
    if proposed is None or head[0].failed or command is None:
        return {}
    words = (["--build", subject.build.command] if subject.build is not None else []) + options(asdict(subject) | {"repeats": repeats})
    given = "".join(f" {shlex.quote(word)}" for word in words)
    return {f"{proposed.sentence}:": f"memprof gate --budget {proposed.word}{given} -- {_words(command)}"}


@contextmanager
def _known(request: GateRequest, names: Sequence[str], limits: Sequence[Budget], progress: Progress) -> Iterator[GateSides]:
    if request.base and not request.base.exists() and request.command is None:
        raise InputError(f"{request.base}: No such file or directory; memprof baseline update RUNS.jsonl -o {request.base} makes one")
    known_base = request.base if not request.begins_baseline else None
    base = baseline.load([known_base], names) if known_base else GateSide(())  # before anything is measured
    if request.measures:
        from . import two_builds

        with two_builds.measured(request, base, names, limits, progress) as known:
            yield known
        return

    def again(side: JobSide, place: VariantKey) -> Sequence[Order]:
        from .confirmation import orders_again

        return orders_again(head.from_runs, place) if side == HEAD else ()

    head = baseline.load(request.heads, names)
    if (request.confirm or request.prove) and not request.trust_runs and head.from_runs:
        raise InputError(_untrusted(head.from_runs[0], "--confirm" if request.confirm else "--prove"))
    title = f"{', '.join(map(str, request.heads))} against {request.judge_words}"
    yield GateSides(title, base, head, again, growth=growth_limits.of_runs(head.from_runs))


def _untrusted(run: Run, option: str) -> str:
    """Why a Run from a file is not measured again: a runs file is data, and to measure what it names is to execute it."""
    from .confirmation import execution_words

    job = run.job
    words = f"{option} executes what the runs file names for {job.label}: {execution_words(job)}"
    return f"{words}; if you trust the file, allow it with --trust-runs"
