"""An explanation to send to the maintainers of a runtime: the findings and the waterfall, in Markdown as issue trackers take it."""

from __future__ import annotations

from memprof.base.errors import InputError
from memprof.base.units import format_bytes
from memprof.explain.records import Explanation
from memprof.records.settings import in_a_line
from memprof.records.types import PEAK

from . import explain, grid, maintainer_report


def render(explanation: Explanation, command: str, picture: str) -> str:
    """The report.

    command: the line that repeats the measurement. picture: the name of the picture's file, as it lies beside the report. Raises InputError where
    nothing was looked at.
    """
    if not explanation.phases:
        raise InputError("there is nothing to report: the child was never looked at")
    return maintainer_report.laid_out(
        _title(explanation),
        f"{grid.escaped(explain.title(explanation))}: {grid.escaped(explain.lead(explanation))}.",
        (picture, "the resident set of each phase, slice by slice"),
        maintainer_report.to_repeat(command, explanation.model, picture),
        _found(explanation),
        maintainer_report.listed(_versions(explanation)),
        "The process was stopped at the end of each phase, and each resident page put down to one slice: the section `How it is found` of "
        "explain.md in memprof's manual tells how.",
    )


def _title(explanation: Explanation) -> str:
    runtime = grid.escaped(f"{explanation.runtime} {explanation.runtime_version}".strip())
    if explanation.findings:
        return f"{runtime}: {grid.escaped(explain.headline(explanation.findings[0], explanation.peak_bound_bytes))}"
    return f"{runtime}: {PEAK} {format_bytes(explanation.peak_bytes)}"


def _found(explanation: Explanation) -> str:
    parts = [grid.escaped(text) for text in explain.warned(explanation)]
    parts.append("\n".join(explain.found(explanation)))
    parts += [grid.escaped(text) for text in explain.ranked(explanation) if not explanation.ranked]
    table = grid.Section("", (explain.waterfall(explanation),), tuple(explain.notes(explanation)))
    return "\n\n".join([*parts, grid.markdown(table)])


def _versions(explanation: Explanation) -> list[tuple[str, str]]:
    model = explanation.model
    return [
        ("model", maintainer_report.described(model) if model.files else ""),
        ("runtime", f"{explanation.runtime} {explanation.runtime_version}".strip()),
        ("Python", explanation.python_version),
        ("packages", ", ".join(f"{name} {release}" for name, release in sorted(explanation.packages.items()))),
        ("settings", in_a_line(explanation.knobs)),
        ("threads", str(explanation.threads or "")),
        ("machine", explanation.machine_words),
        ("C library", explanation.libc),
    ]
