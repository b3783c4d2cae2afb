"""A gate's report: Markdown for people, worst first and one line each; JSON, JUnit XML and GitHub annotations for machines. No pandas."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from memprof.base.terminal_text import harmless
from memprof.base.units import counted, format_change
from memprof.records import metrics
from memprof.records.metrics import amount
from memprof.verdicts.baseline import Updated
from memprof.verdicts.verdicts import OUTCOME, WORST_FIRST, Judged, Report, Verdict, worst_first

from .. import modes
from ..rows import exactness_notes, key_fields, place
from . import gate_data, grid, headline, inputs
from .grid import TextTable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# The version of the JSON, its first field.
#   1   2026-11   the first
SCHEMA = 1

_LABELS = ("model", "variant", "phase", "metric")
_MARKS = {
    "failed": "✗ failed",
    "regressed": "✗ regressed",
    "over": "✗ over budget",
    "failing": "✗ failing",
    "undecided": "? undecided",
    "gone": "- gone",
    "acknowledged": "✓ acknowledged",
    "improved": "✓ improved",
    "new": "+ new",
    "ok": "✓ ok",
}
# A comment on GitHub holds 65,536 characters, a step's summary 1 MiB; the folded rows give way first.
_MOST_ROWS = 300
# Of each verdict; more lines repeat the first ones.
_MOST_LINES = 20
# A row as a test. An undecided row is a test that could not be made; the job decides whether that fails it.
_KINDS = {"failed": "failure", "regressed": "failure", "over": "failure", "failing": "error", "undecided": "skipped", "gone": "skipped"}
# GitHub shows ten errors, ten warnings and ten notices of a step (docs.github.com, workflow commands).
_MOST_ANNOTATIONS = 10


def render(report: Report, format: str = "markdown") -> str:
    """The report as text, without a line's end at its end."""
    return _RENDERERS[format](report)


def outcome(report: Report) -> str:
    """The outcome in a word: `measured` where nothing was there to judge by."""
    if all(row.verdict == "new" for row in report.rows):
        return "measured"
    if report.exit_code == 1 and not (report.count("regressed") or report.count("over")):
        return "failed"
    return {0: "fine", 1: "worse", 3: "undecided", 4: "not measured"}[report.exit_code]


def tally(report: Report) -> str:
    """The outcome in a line: how many rows have each verdict."""
    counts = [
        _many(report.count("failed"), "failure", "failures"),
        _regressions(report),
        _many(report.count("over"), "row over budget", "rows over budget"),
        _many(report.count("failing"), "variant that fails", "variants that fail"),
        _many(report.count("undecided"), "row undecided", "rows undecided"),
        _many(report.count("gone"), "row gone", "rows gone"),
        _many(report.count("acknowledged"), "acknowledged regression", "acknowledged regressions"),
        _many(report.count("improved"), "improvement", "improvements"),
        _many(report.count("new"), *(("row measured", "rows measured") if outcome(report) == "measured" else ("new row", "new rows"))),
    ]
    counts += [f"{report.count('ok')} fine"] if report.count("ok") or not any(counts) else []
    return ", ".join(count for count in counts if count)


def _regressions(report: Report) -> str:
    causes = sum(row.verdict == "regressed" and row.cause is None for row in report.rows)
    regressions = _many(report.count("regressed"), "regression", "regressions")
    return regressions if causes == report.count("regressed") else f"{regressions} of {'one cause' if causes == 1 else f'{causes} causes'}"


def _many(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}" if count else ""


def title(row: Judged) -> str:
    """The row's metric, and whether a budget judges it."""
    if row.metric == OUTCOME:
        return "outcome"
    return metrics.described(row.metric).title + (" (budget)" if row.budget is not None else "")


def _unit(metric: str) -> str | None:
    return None if metric == OUTCOME else metrics.described(metric).unit


# -- Markdown


def _markdown(report: Report) -> str:
    parts = [f"### memprof gate: {outcome(report)}", grid.escaped(headline.of_gate(report))]
    parts.append(f"{grid.escaped(report.title)}: {tally(report)}.")
    parts += [grid.escaped(" ".join(notes))] if (notes := inputs.notes(report.ran)) else []
    rows = worst_first(report.rows)
    lines = [line for verdict in WORST_FIRST if verdict not in ("ok", "new") for line in _lines(verdict, rows)]
    parts += ["\n".join(lines)] if lines else []
    parts += [f"Positive control: {grid.escaped(report.proof.sentence)}."] if report.proof else []
    parts += ["\n".join(f"- {grid.escaped(remark)}" for remark in report.remarks)] if report.remarks else []
    parts += [f"{why}\n\n    {command}" for why, command in report.commands.items()]
    parts += exactness_notes(side.exact for row in rows for side in (row.base, row.head) if side is not None)
    parts += [_folded(rows), grid.escaped(headline.origin_of_entries(report.sources))]
    return "\n\n".join(part for part in parts if part)


def _lines(verdict: Verdict, rows: Sequence[Judged]) -> list[str]:
    causes = [row for row in _by_variant(rows) if row.verdict == verdict and row.cause is None]
    more = [f"- and {len(causes) - _MOST_LINES} more **{_MARKS[verdict]}**: all rows are below"] if len(causes) > _MOST_LINES else []
    return [_line(row) + _following(row, rows) for row in causes[:_MOST_LINES]] + more


def _by_variant(rows: Sequence[Judged]) -> list[Judged]:
    """The rows, those of a variant that is gone with all its rows as one."""
    variants: dict[tuple[object, ...], list[Judged]] = {}
    for row in rows:
        variants.setdefault(row.key.place, []).append(row)
    wholly = {id(row): group for group in variants.values() for row in group if all(other.verdict == "gone" for other in group)}
    shown = []
    for row in rows:
        group = wholly.get(id(row), [row])
        if len(group) == 1:
            shown.append(row)
        elif row is group[0]:
            shown.append(Judged(row.key, "", OUTCOME, "gone", f"{row.reason} ({counted(len(group), 'row')})"))
    return shown


def _following(cause: Judged, rows: Sequence[Judged]) -> str:
    """The rows that are worse because of this cause: a sentence behind the cause's."""
    follow = _follow(cause, rows)
    phases: dict[str, list[str]] = {}
    for row in follow:
        phases.setdefault(title(row), []).append(row.phase)
    places = "; ".join(f"{name} of {', '.join(of_metric)}" for name, of_metric in phases.items())
    return f". It explains {_many(len(follow), 'further row', 'further rows')}: {grid.escaped(places)}" if follow else ""


def _follow(cause: Judged, rows: Sequence[Judged]) -> list[Judged]:
    if cause.verdict != "regressed":
        return []
    return [row for row in rows if row.cause == (cause.phase, cause.metric) and row.key == cause.key]


def _line(row: Judged) -> str:
    return f"- **{_MARKS[row.verdict]}** {grid.escaped(_where(row))}{_change(row)}; {grid.escaped(row.reason)}"


def _where(row: Judged) -> str:
    # A variant that is gone has no outcome.
    return place(row.key, row.phase) + ("" if (row.verdict, row.metric) == ("gone", OUTCOME) else f", {title(row)}")


def _change(row: Judged) -> str:
    return f": {_figure(row, 'base')} → {_figure(row, 'head')}" if row.base and row.head else ""


def _figure(row: Judged, side: str) -> str:
    """The figure of a side: the median of its repeats, of a row in modes that of each, or the largest of them if a budget limits each."""
    figures = getattr(row, side)
    if figures is None:
        return "-"
    return ("" if figures.exact else "~") + (modes.of_row(figures) if row.budget is None else amount(row.metric, figures.max))


def _folded(rows: Sequence[Judged]) -> str:
    swept = any(row.key.threads for row in rows)
    header = (*_LABELS[:2], *(["threads"] if swept else []), *_LABELS[2:], "base", "head", "change", "needed", "repeats", "verdict")
    shown = rows[:_MOST_ROWS]
    table = TextTable("", header, tuple(_cells(row, swept) for row in shown), len(header) - 6)
    more = f"\n\n{_many(len(rows) - len(shown), 'more row is', 'more rows are')} in the JSON." if len(rows) > len(shown) else ""
    return f"<details><summary>{_all(rows)}</summary>\n\n{grid.markdown(grid.Section('', (table,)))}{more}\n\n</details>"


def _all(rows: Sequence[Judged]) -> str:
    count = counted(len(rows), "row")
    return count if len(rows) == 1 else f"All {count}"


def _cells(row: Judged, swept: bool) -> tuple[str, ...]:
    counts = "/".join(str(len(side.values)) for side in (row.base, row.head) if side)
    counts = f"worst of {counts}" if row.budget is not None and counts else counts
    return (
        row.key.model,
        row.key.heading,
        *([str(row.key.threads or "default")] if swept else []),
        row.phase or "-",
        title(row),
        _figure(row, "base") if row.budget is None else f"≤ {amount(row.metric, row.budget)}",
        _figure(row, "head") if row.metric != OUTCOME else "-",
        _share(row),
        "-" if row.threshold is None else amount(row.metric, row.threshold),
        counts or "-",
        _MARKS[row.verdict],
    )


def _share(row: Judged) -> str:
    """The change in proportion; of a row in modes that did not move, how many these are: its medians differ by chance."""
    if row.change is None:
        return "-"
    count = max(modes.count(side) for side in (row.base, row.head) if side is not None)
    return f"{count} modes" if count > 1 and row.verdict in ("ok", "undecided") else format_change(row.change)


def render_update(updated: Updated, format: str = "markdown") -> str:
    """Which medians of a baseline an update changed."""
    changed = [
        (row, [side.median if side else None for side in sides]) for sides in updated.changed if (row := sides[1] or sides[0]) is not None
    ]
    if format == "json":
        rows = [
            {**key_fields(row.key), "phase": row.phase, "metric": row.metric, "before": before, "after": after}
            for row, (before, after) in changed
        ]
        return json.dumps({"changed": rows}, indent=1)
    lines = []
    for row, medians in changed:
        figures = " → ".join("-" if median is None else amount(row.metric, median) for median in medians)
        lines.append(f"- {grid.say_in(format)(place(row.key, row.phase))}, {metrics.METRICS[row.metric].title}: {figures}")
    return "\n".join(lines) or "No median changed."


# -- JSON


def _json(report: Report) -> str:
    content = {
        "memprof_gate": SCHEMA,
        "title": report.title,
        "sentence": headline.of_gate(report),
        "origin": headline.origin_of_entries(report.sources),
        "exit_code": report.exit_code,
        "counts": {verdict: report.count(verdict) for verdict in WORST_FIRST},
        "rows": [_plain(row) for row in worst_first(report.rows)],
        "remarks": list(report.remarks),
        "inputs": inputs.fields(report.ran),
        "proof": _plain_proof(report),
        "commands": dict(report.commands),
    }
    return json.dumps(content, indent=1)


def _plain(row: Judged) -> dict[str, Any]:
    return {
        **key_fields(row.key),
        "machine": row.key.machine,
        "phase": row.phase or None,
        "metric": row.metric,
        "unit": _unit(row.metric),
        "verdict": row.verdict,
        "reason": row.reason,
        "base": list(row.base.values) if row.base else None,
        "head": list(row.head.values) if row.head else None,
        "base_median": row.base.median if row.base else None,
        "head_median": row.head.median if row.head else None,
        "difference": row.difference,
        "change": row.change,
        "threshold": row.threshold,
        "p": row.p,
        "budget": row.budget,
        "cause": dict(zip(("phase", "metric"), row.cause, strict=True)) if row.cause else None,
        "exact": all(side.exact for side in (row.base, row.head) if side),
    }


def _plain_proof(report: Report) -> dict[str, Any] | None:
    proof = report.proof
    if proof is None:
        return None
    facts = {
        "key": to_builtins(proof.key),
        "added_bytes": proof.added_bytes,
        "seen": proof.seen,
        "silent": proof.silent,
        "holds": proof.holds,
    }
    return {**facts, "rows": [_plain(row) for row in proof.rows]}


# -- JUnit XML, as Jenkins and GitLab read it (a testsuite a variant, a testcase a row)


def _junit(report: Report) -> str:
    from xml.etree.ElementTree import Element, indent, tostring

    suites: dict[str, list[Judged]] = {}
    for row in worst_first(report.rows):
        suites.setdefault(place(row.key), []).append(row)
    root = Element("testsuites", name="memprof gate")
    for name, rows in suites.items():
        _suite(root, name, rows)
    if report.proof:
        fails = not report.proof.holds
        suite = _element(root, "testsuite", name="positive control", tests="1", failures=f"{fails:d}", errors="0")
        case = _element(suite, "testcase", classname="memprof gate", name="positive control")
        if fails:
            _element(case, "failure", message=report.proof.sentence)
    indent(root, "")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}'


def _suite(root: Element, name: str, rows: Sequence[Judged]) -> None:
    counts = Counter(_KINDS.get(row.verdict) for row in rows)
    totals = {"failures": str(counts["failure"]), "errors": str(counts["error"]), "skipped": str(counts["skipped"])}
    suite = _element(root, "testsuite", name=name, tests=str(len(rows)), **totals)
    uses: Counter[str] = Counter()
    for row in rows:
        title_of_row = f"{row.phase} {title(row)}".strip()
        uses[title_of_row] += 1  # a variant may have several outcomes, and readers count two tests of the same name once
        number = f" ({uses[title_of_row]})" if uses[title_of_row] > 1 else ""
        _outcome(_element(suite, "testcase", classname=name, name=title_of_row + number), row)


def _outcome(case: Element, row: Judged) -> None:
    kind = _KINDS.get(row.verdict)
    if kind is None:
        _element(case, "system-out").text = _legal(row.reason)
        return
    figures = f"{_figure(row, 'base')} -> {_figure(row, 'head')}; " if row.base and row.head else ""
    figures += f"follows from {row.cause[0]}, {metrics.METRICS[row.cause[1]].title}; " if row.cause else ""
    _element(case, kind, **({} if kind == "skipped" else {"type": row.verdict}), message=figures + row.reason)


def _element(parent: Element, tag: str, **attributes: str) -> Element:
    from xml.etree.ElementTree import SubElement

    return SubElement(parent, tag, {name: _legal(text) for name, text in attributes.items()})


def _legal(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold: control characters, halves of surrogate pairs."""
    return "".join(letter if letter in "\t\n\r" or _is_legal(letter) else "\ufffd" for letter in text)


def _is_legal(letter: str) -> bool:
    return letter >= " " and not "\ud800" <= letter <= "\udfff" and letter not in "\ufffe\uffff"


# -- annotations: workflow commands that GitHub's runner reads from a step's output


def _github(report: Report) -> str:
    lines = []
    kinds = {"error": ("failed", "regressed", "over", "failing"), "warning": ("undecided", "gone"), "notice": ("improved",)}
    if report.report_only:  # a step that is green has no errors
        kinds = {"warning": (*kinds["error"], *kinds["warning"]), "notice": kinds["notice"]}
    for kind, verdicts in kinds.items():
        rows = [row for row in _by_variant(worst_first(report.rows)) if row.verdict in verdicts and row.cause is None]
        shown = rows if len(rows) <= _MOST_ANNOTATIONS else rows[: _MOST_ANNOTATIONS - 1]
        lines += [_annotation(kind, f"memprof: {row.verdict}", _annotated(row, report.rows)) for row in shown]
        if len(rows) > len(shown):
            lines.append(_annotation(kind, "memprof", f"{len(rows) - len(shown)} more: see the job's summary"))
    if report.proof and not report.proof.holds:
        lines.append(_annotation("error", "memprof: positive control", report.proof.sentence))
    return "\n".join(lines)


def _annotated(row: Judged, rows: Sequence[Judged]) -> str:
    follow = _many(len(_follow(row, rows)), "further row follows", "further rows follow")
    return f"{_where(row)}{_change(row)}; {row.reason}{f'; {follow} from it' if follow else ''}"


def _annotation(kind: str, title: str, text: str) -> str:
    # Escaped as actions/toolkit does it (packages/core/src/command.ts): data by the first three, a property by all five.
    name = _command_data(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={name}::{_command_data(harmless(text))}"  # a log is read on terminals too


def _command_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


_RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "markdown": _markdown,
    "json": _json,
    "junit": _junit,
    "github": _github,
    "bencher": gate_data.bencher,
    "github-benchmark": gate_data.github_benchmark,
    "openmetrics": gate_data.openmetrics,
}
