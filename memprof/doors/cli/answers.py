"""Shared by `tune`, `fit`, `scale` and `grow`: their common options, and the way from a question to its answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import EXIT_INTERRUPTED, InputError, UsageError
from ...base.units import capitalised
from . import answer_format, report, talk, write_text
from .subject import VERBOSE, SharedOption, as_one, command_line, refused_option, subject, with_options

if TYPE_CHECKING:
    from ...campaign.fleet.search_client import Machines
    from ...campaign.progress import Answer, Keep, Progress, Remarked
    from ...places.place import Place

Found = TypeVar("Found", bound="Remarked")
Ended = TypeVar("Ended", bound="Answer")

APPEND = click.option("--append", is_flag=True, cls=SharedOption, help="Add to an existing file.")
OUTPUT = click.option("-o", "--output", metavar="RUNS.jsonl", cls=SharedOption, help="Keep every run here.")
REPORT = click.option(
    "--report", "issue", metavar="FILE.md", help="Write a report to send to a maintainer, and its picture FILE.png beside it."
)
_SHOWN = (
    click.option("--unit", metavar="UNIT", cls=SharedOption, help="KiB, MiB, GiB, kB or MB for all sizes.  [default: the unit that suits]"),
    VERBOSE,
    click.option("--json", "as_json", is_flag=True, cls=SharedOption, help="Print the same as JSON."),
)


def report_file(issue: str | None, picture: str | None) -> Path | None:
    """The file of --report. picture: that of --plot. Raises UsageError and InputError now, so that a name which cannot be cost no measurement."""
    from ...base import files

    if issue is None:
        return None
    path = Path(issue)
    if path.suffix != ".md":
        raise UsageError(f"--report {issue}: the report is Markdown, so that its name ends in .md")
    if picture is not None and Path(picture).absolute() == path.with_suffix(".png").absolute():
        raise UsageError(f"--plot {picture}: --report {issue} writes its own picture there; leave out --plot, or name another file")
    for target in (path, path.with_suffix(".png")):
        files.check_target(target)
    return path


def write_report(path: Path, kind: str, answer: object, picture: object) -> None:
    """Write an answer's report to a maintainer, and its picture beside it. kind: its module of reports."""
    drawn = path.with_suffix(".png")
    report("pictures.saving").save(picture, drawn)
    again = command_line(without=("issue", "picture", "output", "keep_runs", "append", "form", "as_json", "verbose"))
    write_text(str(path), report(kind).render(answer, again, drawn.name))
    talk(f"{path} is the report, {drawn} its picture")


class Showing(Struct, frozen=True):
    """How an answer is kept and shown: the runs file, the picture's file, the unit of sizes, JSON or a table, and each run or not."""

    output: str | None
    append: bool
    picture: str | None
    unit: str | None
    as_json: bool
    verbose: bool


def shown(function: Any) -> Any:
    """The options for showing the answer. The function takes them, and the command's own -o, --append and --plot, as one Showing."""

    return with_options(_SHOWN, as_one(Showing, function))


def question(*own: Callable[[Any], Any], several: bool = False) -> Callable[[Any], Any]:
    """The options of a question: its own, those of what is measured (see memprof.doors.cli.subject.subject), and those for showing the answer."""

    def decorate(function: Any) -> Any:
        variant = refused_option(
            "--variant", sentence=lambda word: f"--variant {word}: only `memprof run` takes it; here it is -r and --set"
        )
        return with_options((*own, variant, functools.partial(subject, several=several)), shown(function))

    return decorate


def with_remarks(result: Found, state: Sequence[str]) -> Found:
    """An answer that also has these sentences on the machine as it was when it began: a report that is read later needs them."""
    return cast("Found", replace(cast("Any", result), remarks=(*state, *result.remarks)))


class _Notes:
    """What runtimes note for the reader of their figures, such as what memprof turned off in them: what all runs of a runtime have in common."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._by_runtime: dict[str, dict[str, None]] = {}

    def keep(self, line: bytes) -> None:
        """Keep a Run, and take its notes."""
        from ...records import store

        self._keep(line)
        run = store.decode(line, "a run")
        if run.about is not None:
            known = self._by_runtime.setdefault(run.job.runtime, dict.fromkeys(run.about.notes))
            self._by_runtime[run.job.runtime] = {note: None for note in known if note in run.about.notes}

    @property
    def sentences(self) -> list[str]:
        """The notes, with the name of the runtime where there are several."""
        several = len(self._by_runtime) > 1
        return [
            f"{runtime}: {note}." if several else f"{capitalised(note)}." for runtime, notes in self._by_runtime.items() for note in notes
        ]


def answer(
    kind: str,
    seek: Callable[[Progress, Keep], Ended],
    showing: Showing,
    place: Place | None = None,
    fleet: Machines | None = None,
    unmet: Callable[[Ended], str] = lambda result: "",
    *,
    timed: bool = True,
) -> int:
    """Call seek(progress, keep), which measures, and print and draw its result; the exit code. kind: the name of the modules of reports for it.

    place: where it measures, None for here. fleet: the machines that do, in place of that. unmet: a sentence on a capacity that was given and cannot
    be met, empty where it can. It is raised as InputError after the result was shown. timed: whether the answer has times.
    """
    from ...campaign import campaign
    from ...campaign.runs_writer import keeping
    from ...places.place import HERE
    from .progress import chosen, showing_output

    if showing.append and showing.output is None:
        raise UsageError("--append needs -o: the file to add to")
    report("tables.grid").choose_unit("bytes", (), showing.unit)  # an unknown one must not cost the result
    if showing.picture is not None:
        report("pictures.saving").check(Path(showing.picture))
    with keeping(Path(showing.output) if showing.output else None, talk, append=showing.append) as keep:
        with closing(chosen()) as progress:
            state = campaign.surroundings(0, place or HERE, timed=timed) if fleet is None else []
            for remark in state:
                progress.say(remark)
            notes = _Notes(showing_output(keep, progress) if showing.verbose else keep)
            result = seek(progress, notes.keep)
            result = with_remarks(result, [*state, *(note for note in notes.sentences if note not in result.remarks)])
        click.echo(report(f"tables.{kind}").render(result, unit=showing.unit, format=answer_format(showing.as_json)))
    if showing.picture is not None:
        report("pictures.saving").save(report(f"pictures.{kind}").picture(result), showing.picture)
        talk(f"{showing.picture} is drawn")
    if result.interrupted:
        talk("interrupted")
        return EXIT_INTERRUPTED
    if sentence := unmet(result):
        raise InputError(sentence)
    return 0
