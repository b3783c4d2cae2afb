"""A gate's report: Markdown for people, worst first and one line each; JSON, JUnit XML and GitHub annotations for machines. No pandas."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from memprof.judge.baseline import Updated
from memprof.judge.verdicts import OUTCOME, WORST_FIRST, Judged, Report, Verdict, worst_first
from memprof.runs import metrics
from memprof.runs.metrics import amount
from memprof.runs.summary import Key

from . import grid
from .grid import Table

FORMATS = ("markdown", "json", "junit", "github")

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
# A comment on GitHub holds 65,536 characters, a step's summary 1 MiB; what is folded gives way first.
_MOST_ROWS = 300
# Of one verdict; more of them say nothing that the first do not.
_MOST_LINES = 20
# What a row is as a test. Whether an undecided one fails the job is the job's affair: it is a test that could not be made.
_KINDS = {"failed": "failure", "regressed": "failure", "over": "failure", "failing": "error", "undecided": "skipped", "gone": "skipped"}
# GitHub shows ten errors, ten warnings and ten notices of a step (docs.github.com, workflow commands).
_MOST_ANNOTATIONS = 10


def render(report: Report, format: str = "markdown") -> str:
    """The report as text, without a line's end at its end."""
    return {"markdown": _markdown, "json": _json, "junit": _junit, "github": _github}[format](report)


def headline(report: Report) -> str:
    """What it comes to, in a line."""
    counts = [
        _many(report.count("failed"), "failure", "failures"),
        _regressions(report),
        _many(report.count("over"), "row over budget", "rows over budget"),
        _many(report.count("failing"), "variant that fails", "variants that fail"),
        _many(report.count("undecided"), "row undecided", "rows undecided"),
        _many(report.count("gone"), "row gone", "rows gone"),
        _many(report.count("acknowledged"), "acknowledged regression", "acknowledged regressions"),
        _many(report.count("improved"), "improvement", "improvements"),
        _many(report.count("new"), "new row", "new rows"),
        f"{report.count('ok')} fine",
    ]
    return ", ".join(count for count in counts if count)


def _regressions(report: Report) -> str:
    causes = sum(row.verdict == "regressed" and row.cause is None for row in report.rows)
    several = _many(report.count("regressed"), "regression", "regressions")
    return several if causes == report.count("regressed") else f"{several} of {'one cause' if causes == 1 else f'{causes} causes'}"


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}" if count else ""


def place(row: Judged) -> str:
    """Where a row is, in words: model, variant, threads, phase."""
    return _place(row.key, row.phase)


def _place(key: Key, phase: str) -> str:
    threads = [f"{key.threads} thread{'s' if key.threads > 1 else ''}"] if key.threads else []
    return ", ".join([key.model, key.variant, *threads, *([phase] if phase else [])])


def title(row: Judged) -> str:
    """What the row is about: its metric, and the budget where it is judged by one."""
    if row.metric == OUTCOME:
        return "outcome"
    return metrics.METRICS[row.metric].title + (" (budget)" if row.budget is not None else "")


# -- Markdown


def _markdown(report: Report) -> str:
    word = {0: "fine", 1: "worse", 3: "undecided", 4: "not measured"}[report.exit_code]
    parts = [f"### memprof gate: {word}", f"{grid.escaped(report.title)}: {headline(report)}."]
    rows = worst_first(report.rows)
    said = [line for verdict in WORST_FIRST if verdict not in ("ok", "new") for line in _lines(verdict, rows)]
    parts += ["\n".join(said)] if said else []
    parts += [f"Positive control: {grid.escaped(report.proof.sentence)}."] if report.proof else []
    parts += ["\n".join(f"- {grid.escaped(remark)}" for remark in report.remarks)] if report.remarks else []
    parts += [f"{why}\n\n    {command}" for why, command in report.commands.items()]
    parts.append(_folded(rows))
    return "\n\n".join(parts)


def _lines(verdict: Verdict, rows: Sequence[Judged]) -> list[str]:
    own = [row for row in rows if row.verdict == verdict and row.cause is None]
    more = [f"- and {len(own) - _MOST_LINES} more **{_MARKS[verdict]}**: all rows are below"] if len(own) > _MOST_LINES else []
    return [_line(row) + _following(row, rows) for row in own[:_MOST_LINES]] + more


def _following(cause: Judged, rows: Sequence[Judged]) -> str:
    """What else is worse because of it: a sentence behind the cause's own."""
    places = [_also(row, cause) for row in _follow(cause, rows)]
    return f". It explains {_many(len(places), 'further row', 'further rows')}: {grid.escaped(', '.join(places))}" if places else ""


def _also(row: Judged, cause: Judged) -> str:
    return f"{row.phase} {metrics.METRICS[row.metric].title}" if row.metric != cause.metric else row.phase


def _follow(cause: Judged, rows: Sequence[Judged]) -> list[Judged]:
    if cause.verdict != "regressed":
        return []
    return [row for row in rows if row.cause == (cause.phase, cause.metric) and row.key == cause.key]


def _line(row: Judged) -> str:
    figures = f": {_figure(row, 'base')} → {_figure(row, 'head')}" if row.base and row.head else ""
    return f"- **{_MARKS[row.verdict]}** {grid.escaped(place(row))}, {grid.escaped(title(row))}{figures}; {grid.escaped(row.reason)}"


def _figure(row: Judged, side: str) -> str:
    """What a side comes to: the median of its repeats, or the largest of them where a budget limits each."""
    found = getattr(row, side)
    if found is None:
        return "-"
    return ("" if found.exact else "~") + amount(row.metric, found.median if row.budget is None else found.max)


def _folded(rows: Sequence[Judged]) -> str:
    swept = any(row.key.threads for row in rows)
    header = (*_LABELS[:2], *(["threads"] if swept else []), *_LABELS[2:], "base", "head", "change", "needed", "repeats", "verdict")
    shown = rows[:_MOST_ROWS]
    table = Table("", header, tuple(_cells(row, swept) for row in shown), len(header) - 6)
    left = f"\n\n{len(rows) - len(shown)} more rows are in the JSON." if len(rows) > len(shown) else ""
    return f"<details><summary>All {len(rows)} rows</summary>\n\n{grid.markdown(grid.Section('', (table,)))}{left}\n\n</details>"


def _cells(row: Judged, swept: bool) -> tuple[str, ...]:
    counts = "/".join(str(len(side.values)) for side in (row.base, row.head) if side)
    counts = f"worst of {counts}" if row.budget is not None else counts
    return (
        row.key.model,
        row.key.variant,
        *([str(row.key.threads or "default")] if swept else []),
        row.phase or "-",
        title(row),
        _figure(row, "base") if row.budget is None else f"≤ {amount(row.metric, row.budget)}",
        _figure(row, "head") if row.metric != OUTCOME else "-",
        "-" if row.change is None else f"{row.change:+.1%}",
        "-" if row.threshold is None else amount(row.metric, row.threshold),
        counts or "-",
        _MARKS[row.verdict],
    )


def render_update(updated: Updated, format: str = "markdown") -> str:
    """Which medians of a baseline an update changed."""
    if format == "json":
        rows = [
            {
                "model": row.key.model,
                "variant": row.key.variant,
                "threads": row.key.threads,
                "phase": row.phase,
                "metric": row.metric,
                "before": before.median if before else None,
                "after": after.median if after else None,
            }
            for before, after in updated.changed
            if (row := after or before) is not None
        ]
        return json.dumps({"changed": rows}, indent=1)
    lines = []
    for before, after in updated.changed:
        row = after or before
        if row is not None:
            figures = " → ".join(amount(row.metric, side.median) if side else "-" for side in (before, after))
            lines.append(f"- {grid.escaped(_place(row.key, row.phase))}, {metrics.METRICS[row.metric].title}: {figures}")
    return "\n".join(lines) or "No median changed."


# -- JSON


def _json(report: Report) -> str:
    content = {
        "memprof_gate": SCHEMA,
        "title": report.title,
        "exit_code": report.exit_code,
        "counts": {verdict: report.count(verdict) for verdict in WORST_FIRST},
        "rows": [_plain(row) for row in worst_first(report.rows)],
        "remarks": list(report.remarks),
        "proof": _plain_proof(report),
        "commands": dict(report.commands),
    }
    return json.dumps(content, indent=1)


def _plain(row: Judged) -> dict[str, Any]:
    return {
        "model": row.key.model,
        "variant": row.key.variant,
        "threads": row.key.threads,
        "machine": row.key.machine,
        "phase": row.phase or None,
        "metric": row.metric,
        "unit": metrics.METRICS[row.metric].unit if row.metric != OUTCOME else None,
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
    facts = {"key": asdict(proof.key), "added_bytes": proof.added_bytes, "seen": proof.seen, "silent": proof.silent, "holds": proof.holds}
    return {**facts, "rows": [_plain(row) for row in proof.rows]}


# -- JUnit XML, as Jenkins and GitLab read it (a testsuite a variant, a testcase a row)


def _junit(report: Report) -> str:
    rows = worst_first(report.rows)
    suites: dict[str, list[Judged]] = {}
    for row in rows:
        suites.setdefault(place(_without_phase(row)), []).append(row)
    parts = [_suite(name, found) for name, found in suites.items()]
    if report.proof:
        problem = "" if report.proof.holds else f"<failure message={_attribute(report.proof.sentence)}/>"
        case = f'<testcase classname="memprof gate" name="positive control">{problem}</testcase>'
        parts.append(f'<testsuite name="positive control" tests="1" failures="{int(not report.proof.holds)}" errors="0">{case}</testsuite>')
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="memprof gate">\n' + "\n".join(parts) + "\n</testsuites>"


def _without_phase(row: Judged) -> Judged:
    return Judged(row.key, "", row.metric, row.verdict, row.reason)


def _suite(name: str, rows: Sequence[Judged]) -> str:
    counts = Counter(_KINDS.get(row.verdict) for row in rows)
    said = f'failures="{counts["failure"]}" errors="{counts["error"]}" skipped="{counts["skipped"]}"'
    lines = [f'<testsuite name={_attribute(name)} tests="{len(rows)}" {said}>']
    met: Counter[str] = Counter()
    for row in rows:
        case = f"{row.phase} {title(row)}".strip()
        met[case] += 1  # a variant may have several outcomes, and a reader takes two tests of one name for one
        lines.append(_case(name, case if met[case] == 1 else f"{case} ({met[case]})", row))
    return "\n".join([*lines, "</testsuite>"])


def _case(name: str, case: str, row: Judged) -> str:
    head = f"<testcase classname={_attribute(name)} name={_attribute(case)}>"
    kind = _KINDS.get(row.verdict)
    if kind is None:
        return f"{head}<system-out>{escape(_legal(row.reason))}</system-out></testcase>"
    figures = f"{_figure(row, 'base')} -> {_figure(row, 'head')}; " if row.base and row.head else ""
    figures += f"follows from {row.cause[0]}, {metrics.METRICS[row.cause[1]].title}; " if row.cause else ""
    type = "" if kind == "skipped" else f" type={_attribute(row.verdict)}"
    return f"{head}<{kind}{type} message={_attribute(figures + row.reason)}/></testcase>"


def _attribute(text: str) -> str:
    return quoteattr(_legal(text))


def _legal(text: str) -> str:
    """Text without what XML 1.0 cannot hold: control characters, halves of surrogate pairs."""
    return "".join(letter if letter in "\t\n\r" or _is_legal(letter) else "\ufffd" for letter in text)


def _is_legal(letter: str) -> bool:
    return letter >= " " and not "\ud800" <= letter <= "\udfff" and letter not in "\ufffe\uffff"


# -- annotations: workflow commands that GitHub's runner reads from a step's output


def _github(report: Report) -> str:
    lines = []
    kinds = {"error": ("failed", "regressed", "over", "failing"), "warning": ("undecided", "gone"), "notice": ("improved",)}
    for kind, verdicts in kinds.items():
        rows = [row for row in worst_first(report.rows) if row.verdict in verdicts and row.cause is None]
        shown = rows if len(rows) <= _MOST_ANNOTATIONS else rows[: _MOST_ANNOTATIONS - 1]
        lines += [_annotation(kind, f"memprof: {row.verdict}", _annotated(row, report.rows)) for row in shown]
        if len(rows) > len(shown):
            lines.append(_annotation(kind, "memprof", f"{len(rows) - len(shown)} more: see the job's summary"))
    if report.proof and not report.proof.holds:
        lines.append(_annotation("error", "memprof: positive control", report.proof.sentence))
    return "\n".join(lines)


def _annotated(row: Judged, rows: Sequence[Judged]) -> str:
    figures = f": {_figure(row, 'base')} → {_figure(row, 'head')}" if row.base and row.head else ""
    follow = _many(len(_follow(row, rows)), "further row follows", "further rows follow")
    return f"{place(row)}, {title(row)}{figures}; {row.reason}{f'; {follow} from it' if follow else ''}"


def _annotation(kind: str, title: str, text: str) -> str:
    # Escaped as actions/toolkit does it (packages/core/src/command.ts): data by the first three, a property by all five.
    data = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={name}::{data}"
