"""The words of the page: those on a model, notices that come before any comparison, failures, and how exact the figures are.

All of it is plain text, or Markup whose parts were escaped when they were put in.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape
from msgspec import Struct

from memprof.base.units import counted, format_bound, format_bytes, format_duration
from memprof.records import summary
from memprof.records.summary import Key
from memprof.records.types import Outcome, Run

from .. import ran, rows
from ..tables import missing
from ..tables.grid import TextTable
from .conditions import FACTS, conditions, when
from .finding import findings


class SharedFailure(Struct, frozen=True):
    """A failure that some repeats of a variant share."""

    who: str
    share: str
    how: str
    message: str
    output: str
    output_size: str


class FileWords(Struct, frozen=True):
    """A file of a model."""

    path: str
    size: str
    sha256: str
    weights: str
    used_by: str


class ModelWords(Struct, frozen=True):
    """The words on a model. common: conditions that all variants share, (name, text); conditions: a table of the others, if there are any."""

    name: str
    findings: tuple[Markup, ...]
    failures: tuple[SharedFailure, ...]
    common: tuple[tuple[str, str], ...]
    conditions: TextTable | None
    files: tuple[FileWords, ...]


def title(runs: Sequence[Run]) -> str:
    """The page's name."""
    names = list(dict.fromkeys(run.job.model.name for run in runs))
    return names[0] if len(names) == 1 else f"{len(names)} models"


def subtitle(runs: Sequence[Run]) -> str:
    """The numbers of variants and runs, the machine, the days, and the versions of the runtimes."""
    groups = summary.groups(runs)
    variants = len({key.heading for key in groups})
    machines = list(dict.fromkeys(run.machine.name for run in runs))
    facts = runs[0].machine.words  # an imported log may say none
    where = f"{len(machines)} machines" if len(machines) > 1 else f"{machines[0]} ({facts})" if facts else machines[0]
    parts = [counted(variants, "variant"), f"{counted(len(runs), 'run')} on {where}", *([when(runs)] if when(runs) else [])]
    return "; ".join([", ".join(parts), *ran.versions(runs), *ran.heading(runs)])


def model(runs: Sequence[Run], found: Sequence[str] = ()) -> ModelWords:
    """The words on the runs of a model. found: what they found, where it is more than which variant peaks highest."""
    groups = summary.groups(runs)
    measured = {label: conditions(group) for label, group in _labelled(groups)}
    first = next(iter(measured.values()))
    differing = [name for name in first if len({texts[name] for texts in measured.values()}) > 1]
    rows = tuple((label, *(texts[name] or "-" for name in differing)) for label, texts in measured.items())
    return ModelWords(
        runs[0].job.model.name,
        tuple(map(escape, found)) or tuple(findings(groups)),
        tuple(failure for label, group in _labelled(groups) for failure in _failures(label, group)),
        tuple((name, text) for name, text in first.items() if text and name not in differing),
        TextTable("", ("variant", *differing), rows, 1 + len(differing)) if differing else None,
        tuple(_files(groups)),
    )


def _labelled(groups: dict[Key, list[Run]]) -> list[tuple[str, list[Run]]]:
    return [(name, groups[key]) for key, name in rows.named(groups).items()]


# -- notices


def notices(runs: Sequence[Run], warnings: Sequence[str]) -> list[str]:
    """Facts that a reader must know first: mixtures, and files that were not whole."""
    sentences = list(warnings)
    machines = list(dict.fromkeys(run.machine.name for run in runs))
    if len(machines) > 1:
        sentences.append(
            f"These runs come from {len(machines)} machines ({', '.join(machines)}). Each has separate rows; nothing is averaged over machines."
        )
    groups = summary.groups(runs)
    for key, who in rows.named_with_models(groups).items():
        if differing := _differing(groups[key]):
            sentences.append(
                f"{who}: its repeats were not measured alike, they differ in {', '.join(differing)}. Its medians are over all of them."
            )
    return sentences


def _differing(runs: Sequence[Run]) -> list[str]:
    """The facts of their machine in which repeats differ. Repeats whose settings differ are rows of their own: see memprof.records.store."""
    return [name for name, of in FACTS.items() if name != "machine" and len({of(run.machine) for run in runs}) > 1]


# -- failures


_HOW = {
    "import": "the runtime could not be imported",
    "refused": "it could not be measured",
    "error": "the runtime raised an error",
    "start": "it could not be started",
}


def _failures(label: str, runs: Sequence[Run]) -> Iterable[SharedFailure]:
    alike: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        if not run.outcome.ok:
            outcome = run.outcome
            alike.setdefault((outcome.status, outcome.phase, outcome.exit_code, outcome.signal, outcome.message), []).append(run)
    for group in alike.values():
        run = group[-1]
        yield SharedFailure(
            who=label,
            share=f"failed in {len(group)} of {counted(len(runs), 'repeat')}",
            how=_how(run.outcome),
            message=_message(run.outcome),
            output=run.output_tail or "",
            output_size=format_bytes(run.output_bytes) if run.output_bytes else "",
        )


def _how(outcome: Outcome) -> str:
    if outcome.status not in _HOW:
        return outcome.sentence
    where = outcome.phase or ""
    return f"{where if where.startswith('after') or not where else 'in ' + where}: {_HOW[outcome.status]}"


def _message(outcome: Outcome) -> str:
    message = outcome.message or ""
    return "" if message in _how(outcome) else message


# -- files, and how exact the figures are


def _files(groups: dict[Key, list[Run]]) -> Iterable[FileWords]:
    users: dict[tuple[str, int, str], list[str]] = {}
    weights: dict[tuple[str, int, str], str] = {}
    labelled = _labelled(groups)
    for label, group in labelled:
        for model in dict.fromkeys(run.job.model for run in group):
            for place, file in enumerate(model.files):
                key = (file.path, file.bytes, file.sha256)
                users[key] = [*(who for who in users.get(key, ()) if who != label), label]
                if not place and model.weight_bytes:
                    weights[key] = format_bytes(model.weight_bytes)
    for key, who in users.items():
        path, size, sha256 = key
        yield FileWords(path, format_bytes(size), sha256, weights.get(key, ""), "" if len(who) == len(labelled) else "; ".join(who))


def exactness(runs: Sequence[Run]) -> list[str]:
    """Sentences on how far the figures can be trusted."""
    sentences = []
    marks = [mark for run in runs for mark in run.marks if mark.rss_peak_bytes is not None]
    inexact = [mark for mark in marks if not mark.sure]
    bound = format_bound(max(run.machine.peak_bound_bytes for run in runs))
    if len(inexact) < len(marks):
        sentences.append(
            "Peaks without a ~ are exact: the kernel's high-water mark was reset where each phase began and read where it ended, so that no "
            f"transient is lost. The kernel adds its counters up late, by up to {bound} here; no difference below that means anything."
        )
    if inexact:
        number = "All" if 1 < len(inexact) == len(marks) else f"{len(inexact):,}"
        verbs = "is inexact and carries" if len(inexact) == 1 else "are inexact and carry"
        sentences.append(
            f"{number} of {counted(len(marks), 'phase peak')} {verbs} a ~, and the true peak may be higher: "
            f"{'; or '.join(missing.why_inexact(runs))}."
        )
    sentences += missing.swapped(runs)
    sentences += _polling(runs)
    sentences.append(
        "Cells are medians over repeats, each a fresh process; ± is the distance to the farthest repeat. EXECUTE's latency is the median "
        "iteration of each repeat. 1 MiB is 1024 KiB, 1 MB is 1000 kB."
    )
    return sentences


def _polling(runs: Sequence[Run]) -> Iterable[str]:
    pollings = [run.polling for run in runs if run.polling]
    if pollings:
        middle = statistics.median(polling.median_ns for polling in pollings)
        yield (
            f"Timelines come from polling, every {format_duration(middle)} in the middle and within "
            f"{format_duration(max(polling.p99_ns for polling in pollings))} in 99 of 100 polls of the worst run. Long ones are thinned for "
            "this page without losing a maximum of any phase."
        )
    unpolled = {mark.phase for run in runs if not run.imported for mark in run.marks if not mark.interval_ns}
    blind = [phase for phase in summary.phases(runs) if phase in unpolled]
    if blind:
        yield (
            f"Not polled in some runs, so that timing is not disturbed: {', '.join(blind)}. Peaks there come from the high-water mark alone, "
            "and from the phase's end where it carries a ~."
        )


def remarks(runs: Sequence[Run], warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Warnings and notes: (the text, whom it concerns)."""
    groups = summary.groups(runs)
    users: dict[str, dict[str, None]] = {text: {} for text in warnings}
    for key, who in rows.named_with_models(groups).items():
        for run in groups[key]:
            for text in (*run.warnings, *(run.about.notes if run.about else ())):
                users.setdefault(text, {})[who] = None
    return [(text, "; ".join(who)) for text, who in users.items()]
