"""A history as text: the newest commits as a table with arrows at steps, and every change in a line; the same as JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from memprof.base.units import counted, format_change, listed
from memprof.records import metrics
from memprof.records.metrics import amount, signed
from memprof.records.types import PEAK
from memprof.verdicts.steps import LevelStep
from memprof.versions.history_file import Checked, History, Hit, MetricLine, SharedStep

from ..rows import key_fields, part
from . import grid
from .grid import Section

_MOST_NAMED = 4


def render(history: History, count: int, metric: str, phase: str, format: str = "markdown") -> str:
    """The newest `count` commits with this metric in this phase, and all changes."""
    if format == "json":
        return json.dumps(_plain(history), indent=1)
    say = grid.say_in(format)
    parts = [grid.laid_out(_table(history, count, metric, phase), say)]
    parts.append("\n".join(f"- {say(sentence(change, history))}" for change in history.changes) or "No step was found.")
    parts += ["\n".join(f"- {say(remark)}" for remark in history.remarks)] if history.remarks else []
    return "\n\n".join(parts)


def render_check(checked: Checked, format: str = "markdown") -> str:
    """What the newest commit brings to light."""
    history = checked.history
    newest = history.commits[-1]
    if format == "json":
        return json.dumps(
            {
                "commit": newest.hash,
                "news": [_plain_change(change, history) for change in checked.news],
                "failing": list(checked.failing),
                "enough": checked.enough,
                "remarks": list(history.remarks),
            },
            indent=1,
        )
    say = grid.say_in(format)
    lines = [f"- {say(sentence(change, history))}" for change in checked.news]
    lines += [f"- {say(f'{newest.short}: {words}')}" for words in checked.failing]
    if not checked.enough:
        lines.append(f"- {say(newest.short)} is the only commit on its kind of machine: there is nothing to compare it with")
    remarks = [f"- {say(remark)}" for remark in history.remarks]
    return "\n".join([*(lines or [f"{say(newest.short)} shows no step."]), *remarks])


def sentence(change: SharedStep, history: History) -> str:
    """A change in a line: where it lies, how large it is, where it is first seen, whom it hit, and whether it went away again."""
    head = change.head
    step, line = head.step, head.line
    where = f"{history.commits[head.after].short}..{history.commits[head.at].short}"
    subject = history.commits[head.at].subject
    size = signed(line.metric, step.size, step.before)
    ends = [amount(line.metric, value) for value in sorted((abs(step.low), abs(step.high)))]
    interval = f" ({ends[0]} to {ends[1]})" if step.low * step.high > 0 and ends[0] != ends[1] else ""
    place = f"in {line.phase}" if line.phase == change.phase or line.phase != PEAK else f"in {line.phase}, first in {change.phase}"
    variants = listed(change.variants, _MOST_NAMED, "; ")
    rows = f" ({counted(len(change.hits), 'row')})" if len(change.hits) > 1 else ""
    text = f"{where}{f' ({subject})' if subject else ''}: {metrics.METRICS[line.metric].title} {size}{interval} {place}; {variants}{rows}"
    if step.undoes:
        text += "; it undoes the step before"
    if head.until is not None:
        text += f"; it went away again at {history.commits[head.until].short}"
    return f"{text}; also changed: {', '.join(change.also)}" if change.also else text


# -- the table


def _table(history: History, count: int, metric: str, phase: str) -> Section:
    lines = [line for line in history.lines if (line.metric, line.phase) == (metric, phase)]
    first = max(0, len(history.commits) - count)
    shown = [line for line in lines if line.places[-1] >= first]
    values = [dict(zip(line.places, map(statistics.median, line.samples), strict=True)) for line in shown]
    unit = grid.choose_unit(metrics.METRICS[metric].unit, [value for column in values for value in column.values()])
    commits = history.commits[first:]
    columns = [
        ("commit", [commit.short for commit in commits]),
        ("date", [time.strftime("%Y-%m-%d", time.gmtime(commit.time_s)) for commit in commits]),
    ]
    for name, line, medians in zip(labels(shown), shown, values, strict=True):
        arrows = {line.places[step.at]: f"{arrow(step)} " for step in line.steps}
        columns.append((name, [f"{arrows.get(place, '')}{unit.cell(medians.get(place))}" for place in range(first, len(history.commits))]))
    return Section("", (grid.of_columns(unit.caption(f"{metrics.METRICS[metric].title}, {phase}"), columns, 2),), ())


def labels(lines: Sequence[MetricLine]) -> list[str]:
    """The names of lines, as short as tells them apart."""
    several = {name: len({_part(line, name) for line in lines}) > 1 for name in ("model", "variant", "threads", "machine")}
    several["variant"] = several["variant"] or not any(several.values())
    return [", ".join(_part(line, name) for name, differs in several.items() if differs) for line in lines]


def _part(line: MetricLine, name: str) -> str:
    return f"machine {line.machine + 1}" if name == "machine" else part(line.key, name)


def arrow(step: LevelStep) -> str:
    """A step in a few letters: `▲ +5.0%`."""
    share = f" {format_change(step.share)}" if step.share is not None else ""
    return f"{'▲' if step.size > 0 else '▼'}{share}"


# -- JSON


def _plain(history: History) -> dict[str, Any]:
    return {
        "commits": [
            {"hash": commit.hash, "time_s": commit.time_s, "subject": commit.subject, "tags": list(commit.tags)}
            for commit in history.commits
        ],
        "machines": [machine.words for machine in history.machines],
        "lines": [
            {
                **_plain_line(line),
                "points": [
                    {"commit": history.commits[place].hash, "values": list(values)}
                    for place, values in zip(line.places, line.samples, strict=True)
                ],
            }
            for line in history.lines
        ],
        "steps": [_plain_change(change, history) for change in history.changes],
        "failures": [
            {"commit": history.commits[place].hash, "variant": variant, "failure": words}
            for (place, variant), words in history.failures.items()
        ],
        "remarks": list(history.remarks),
    }


def _plain_line(line: MetricLine) -> dict[str, Any]:
    return {
        **key_fields(line.key),
        "machine": line.machine,
        "phase": line.phase,
        "metric": line.metric,
    }


def _plain_change(change: SharedStep, history: History) -> dict[str, Any]:
    return {
        "after": history.commits[change.head.after].hash,
        "commit": history.commits[change.head.at].hash,
        "phase": change.phase,
        "also": list(change.also),
        "sentence": sentence(change, history),
        "rows": list(_plain_hits(change.hits, history)),
    }


def _plain_hits(hits: Sequence[Hit], history: History) -> Iterator[dict[str, Any]]:
    for hit in hits:
        step = hit.step
        yield {
            **_plain_line(hit.line),
            "before": step.before,
            "after": step.after,
            "size": step.size,
            "low": step.low,
            "high": step.high,
            "undoes": step.undoes,
            "until": None if hit.until is None else history.commits[hit.until].hash,
        }
