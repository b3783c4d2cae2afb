"""A gate from end to end: from files, or from a suite that is measured now, to a Report.

Files are judged on any system; what measures is in memprof.fresh, and imported only where something is measured.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, UsageError
from ..judge import baseline, budgets, verdicts
from ..judge.baseline import DEFAULT_METRICS, Entry, Place, Side
from ..judge.budgets import Budget
from ..judge.verdicts import Judged, Limits, Report
from ..runs import metrics, store

if TYPE_CHECKING:
    from ..measuring.campaign import Progress
    from ..measuring.suite import Order

BASE, HEAD = "base", "head"


@dataclass(frozen=True)
class Wish:
    """What is asked of a gate. heads: runs files, none where the suite is measured; output: the runs file of what is measured now."""

    heads: tuple[Path, ...] = ()
    suite: Path | None = None
    base: Path | None = None
    base_ref: str | None = None
    budgets: Path | None = None
    metrics: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    repeats: int | None = None
    strict: bool = False
    confirm: bool = False
    prove: bool = False
    output: Path = Path("memprof-gate.jsonl")

    def check(self) -> None:
        """Raises UsageError for what cannot be meant together, InputError for an output file that exists."""
        if bool(self.heads) == (self.suite is not None):
            raise UsageError("give the runs to judge, or --run SUITE.toml to measure them now")
        if self.base_ref is not None and (self.suite is None or self.base is not None):
            raise UsageError("--base-ref goes with --run, and takes the place of --baseline")
        if self.base_ref is not None and not self.base_ref.strip():
            raise UsageError("--base-ref is empty: name a branch, a tag or a commit")
        if self.base is None and self.base_ref is None and self.budgets is None:
            raise UsageError("name what to judge by: --baseline FILE, --base-ref REF with --run, or --budgets FILE")
        if self.repeats is not None and self.suite is None:
            raise UsageError("--repeats goes with --run")
        for name in self.metrics:
            metrics.metric(name)
        for path in self._outputs():  # now, and not when two builds have been made
            if path.exists():
                raise InputError(f"{path} exists; -o names another")
            check_target(path)

    def _outputs(self) -> Iterator[Path]:
        if self.suite is not None:
            yield self.output
        if self.base_ref is not None:
            yield self.base_output
        if self.confirm or self.prove:
            yield self.checks_output

    @property
    def base_output(self) -> Path:
        """The runs file of base's runs."""
        return self.output.with_name(f"{self.output.stem}.base.jsonl")

    @property
    def checks_output(self) -> Path:
        """The runs file of what is measured again."""
        return self.output.with_name(f"{self.output.stem}.checks.jsonl")


def check_target(path: Path) -> None:
    """Raises InputError where it is known before anything is measured that no file can be written at this path."""
    if path.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder")
    if not path.exists() and not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: {os.strerror(errno.EACCES)}")


@dataclass(frozen=True)
class Known:
    """Both sides as they are known now, what they are called, and how to measure each once more: its orders, by place (none for a file)."""

    title: str
    base: Side
    head: Side
    again: Callable[[str, Place], Sequence[Order]]
    remarks: tuple[str, ...] = ()


def judge(wish: Wish, progress: Progress) -> Report:
    """The gate that is wished for. Raises UsageError and InputError as its parts do; what was measured until then is in the output files."""
    wish.check()
    limits = budgets.read(wish.budgets) if wish.budgets else ()
    names = tuple(dict.fromkeys((*(wish.metrics or DEFAULT_METRICS), *budgets.metric_names(limits))))
    with ExitStack() as stack:
        known = stack.enter_context(_known(wish, names, limits, progress))
        remarks = [*known.remarks, *known.base.warnings, *known.head.warnings]
        rows: list[Judged] = []
        if wish.base is not None or wish.base_ref is not None:
            remarks += _surroundings(wish, known)
            remarks += [
                f"{entry.model}, {entry.variant}: {entry.failed} of base's {entry.runs} runs failed: {entry.failure}"
                for entry in known.base.entries
                if entry.failed
            ]
            rows += verdicts.judge(*_judged_metrics(wish, known), wish.limits)
        rows += budgets.judge(limits, known.head.entries)
        rows += _failures(rows, known.head.entries)
        if not rows:
            raise InputError("there is no row to judge")
        proof = None
        if wish.confirm or wish.prove:
            from .both_sides import Checks

            checks = stack.enter_context(Checks.begun(wish, known, progress))
            if wish.heads:
                remarks.append(
                    "what was measured again is what is here now: of code that has changed since these runs were made it says nothing"
                )
            if wish.confirm:
                found, rows = rows, [checks.confirmed(row) for row in rows]
                remarks += _unconfirmed(found, rows)
            proof = checks.proof() if wish.prove else None
            rows += [_no_proof(known.head.entries)] if wish.prove and proof is None else []
    return Report(known.title, verdicts.worst_first(rows), tuple(dict.fromkeys(remarks)), proof, _commands(wish, rows))


def _unconfirmed(found: Sequence[Judged], rows: Sequence[Judged]) -> list[str]:
    """The rows that a fresh measurement has acquitted, by place: they are beyond the threshold, and a reader would wonder."""
    places: dict[str, list[str]] = {}
    for before, after in zip(found, rows, strict=True):
        if before.verdict == "regressed" != after.verdict:
            places.setdefault(f"{after.key.model}, {after.key.variant}", []).append(f"{after.phase} {after.metric}")
    return [f"{place}: not confirmed by a fresh measurement: {', '.join(names)}" for place, names in places.items()]


def _no_proof(head: Sequence[Entry]) -> Judged:
    reason = "the positive control could not be made: no variant has five runs that ended well, and a peak among what is compared"
    return Judged(head[0].key, "", verdicts.OUTCOME, "undecided", reason)


def _failures(rows: Sequence[Judged], head: Sequence[Entry]) -> list[Judged]:
    """Runs that failed, where no baseline has spoken of them."""
    spoken = {row.key for row in rows if row.metric == verdicts.OUTCOME}
    return [
        Judged(entry.key, "", verdicts.OUTCOME, "failing", f"{entry.failed} of {entry.runs} runs failed: {entry.failure}")
        for entry in head
        if entry.failed and entry.key not in spoken
    ]


def _judged_metrics(wish: Wish, known: Known) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """Both sides with the metrics that are compared: those of budgets alone are not. Raises for a metric that was asked for and is missing."""
    wanted = wish.metrics or DEFAULT_METRICS
    base, head = (
        tuple(replace(entry, rows=tuple(row for row in entry.rows if row.metric in wanted)) for entry in side.entries)
        for side in (known.base, known.head)
    )
    for name in wish.metrics:
        if not any(row.metric == name for entry in head for row in entry.rows):
            raise UsageError(f"--metric {name}: nothing that was measured has it")
        if base and not any(row.metric == name for entry in base for row in entry.rows):
            raise InputError(f"the baseline has no {name}: memprof baseline update RUNS.jsonl -o BASELINE.json --metric {name} adds it")
    return base, head


def _surroundings(wish: Wish, known: Known) -> list[str]:
    """What else differs. Raises InputError where it may not (--strict)."""
    foreign, other = baseline.differing(known.base.entries, known.head.entries)
    if wish.base_ref is not None:
        return [*foreign, *other]
    if foreign and wish.strict:
        raise InputError(f"--strict: the baseline does not come from here: {'; '.join(foreign)}")
    said = [f"{foreign_fact}: the baseline comes from elsewhere, so a difference may too" for foreign_fact in foreign]
    return [*said, *other]


def _commands(wish: Wish, rows: Sequence[Judged]) -> dict[str, str]:
    """What tightens the baseline where something improved and nothing got worse."""
    improved = sum(row.verdict == "improved" for row in rows)
    if not improved or wish.base is None:
        return {}
    heads = " ".join(shlex.quote(str(path)) for path in wish.heads or (wish.output,))
    target = wish.base if not store.is_runs_file(wish.base) else wish.base.with_suffix(".json")
    asked = "".join(f" --metric {name}" for name in wish.metrics)
    return {"To keep what was gained, tighten the baseline:": f"memprof baseline update {heads} -o {shlex.quote(str(target))}{asked}"}


@contextmanager
def _known(wish: Wish, names: Sequence[str], limits: Sequence[Budget], progress: Progress) -> Iterator[Known]:
    if wish.base and not wish.base.exists():
        raise InputError(f"{wish.base}: No such file or directory; memprof baseline update RUNS.jsonl -o {wish.base} makes one")
    base = baseline.load([wish.base], names) if wish.base else Side(())  # before anything is measured
    if wish.suite is not None:
        from . import both_sides

        with both_sides.measured(wish, base, names, limits, progress) as known:
            yield known
        return

    def again(side: str, place: Place) -> Sequence[Order]:
        from .both_sides import orders_again

        return orders_again(head.from_runs, place) if side == HEAD else ()

    head = baseline.load(wish.heads, names)
    yield Known(f"{', '.join(map(str, wish.heads))} against {wish.base or wish.budgets}", base, head, again)
