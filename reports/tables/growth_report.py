"""A report of growth to send to the maintainers of a runtime: what they ask for first, in Markdown as issue trackers take it."""

from __future__ import annotations

from memprof.base.errors import InputError
from memprof.base.units import format_bytes
from memprof.growth.grow.grow import GrowthAnswer
from memprof.records.settings import in_a_line
from memprof.records.types import COMMAND, Run

from . import grid, growth, maintainer_report


def render(grown: GrowthAnswer, command: str, picture: str) -> str:
    """The report.

    command: the line that repeats the measurement. picture: the name of the picture's file, as it lies beside the report. Raises InputError if no run
    was made.
    """
    if not grown.runs:
        raise InputError("there is nothing to report: no process was measured")
    run = grown.runs[0]
    return maintainer_report.laid_out(
        _title(grown),
        growth.sentence(grown, grid.escaped),
        (picture, "memory of each process over its units of work"),
        maintainer_report.to_repeat(command, run.job.model, picture, run.job.inputs),
        grid.laid_out(growth.section(grown), grid.escaped),
        maintainer_report.listed(_versions(run)),
        "Each process reads its resident set after each unit of work; swapped pages count as resident.",
    )


def _title(grown: GrowthAnswer) -> str:
    verdict = grown.verdict
    where = grid.escaped(f"{grown.runtime} {grown.version}".strip())
    if verdict.word == "grows":
        return f"{where}: memory grows by {format_bytes(verdict.slope)} {growth.each_of(verdict.unit)}"
    return f"{where}: memory under repeated work is {verdict.word}"


def _versions(run: Run) -> list[tuple[str, str]]:
    job, about, machine = run.job, run.about, run.machine
    facts = [("model", maintainer_report.described(job.model))] if job.runtime != COMMAND or job.model.files else []
    if about is not None:
        facts += [("runtime", f"{job.runtime} {about.runtime_version}"), ("Python", about.python_version)]
        facts += [("packages", ", ".join(f"{name} {release}" for name, release in sorted(about.packages.items())))]
    facts += [
        ("settings", in_a_line(job.knobs)),
        ("environment", ", ".join(f"{name} unset" if value is None else f"{name}={value}" for name, value in job.env.items())),
        ("threads", str(job.threads or "")),
        ("machine", f"{machine.words}, {format_bytes(machine.memory_bytes)} of memory"),
        ("C library", machine.libc),
    ]
    return facts
