"""What a model card shows of memory: YAML front matter for machines, and a table for people, with the command that measures it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from memprof.base.errors import InputError
from memprof.base.units import counted, format_bytes
from memprof.records import summary
from memprof.records.summary import Key, Row, whole
from memprof.records.types import COMMAND, PEAK, Run
from memprof.subjects.job_command import command_line

from .. import modes
from ..rows import exactness_notes
from . import grid
from .grid import Section, TextTable

METRIC = "rss_peak_bytes"


def render(runs: Sequence[Run]) -> str:
    """The card of all runs that ended well. Raises InputError if there is none."""
    groups = {key: group for key, all_runs in summary.groups(runs).items() if (group := [run for run in all_runs if run.complete])}
    if not groups:
        raise InputError("no run ended well: a card has nothing to show")
    rows = {key: {row.phase: whole(row) for row in summary.summarise(group, (METRIC,))} for key, group in groups.items()}
    entries = [_entry(key, group, rows[key]) for key, group in groups.items()]
    front = "\n".join(["---", f"memprof: {_scalar(metadata.version('ml-memprof'))}", "memory:", *_yaml(entries, "  "), "---"])
    return f"{front}\n\n{_markdown(groups, rows)}"


def _entry(key: Key, group: Sequence[Run], rows: Mapping[str, Row]) -> dict[str, Any]:
    """What the front matter says of a variant."""
    first = group[0]
    facts: dict[str, Any] = {"model": key.model, "variant": key.heading}
    if first.job.model.files:
        facts |= {"sha256": first.job.model.sha256, "size_bytes": first.job.model.bytes}
    facts["versions"] = _versions(first)
    facts["device"] = {"name": first.machine.name, "cpu": first.machine.words, "memory_bytes": first.machine.memory_bytes}
    facts["repeats"] = len(group)
    facts["peak_rss_bytes"] = {phase: int(row.median) for phase, row in rows.items()}
    facts["command"] = command_line(first.job, len(group))
    return facts


def _versions(run: Run) -> dict[str, str]:
    """Of what ran: the runtime, Python and the packages, as far as they are known."""
    about, job = run.about, run.job
    if about is None or job.runtime == COMMAND:
        return {"libc": run.machine.libc}
    known = {job.runtime: about.runtime_version, "python": about.python_version, **about.packages, "libc": run.machine.libc}
    return {name: version for name, version in known.items() if version}


def _yaml(value: Any, indent: str) -> list[str]:
    """Lines of block style. Text is quoted as JSON quotes it, which YAML 1.2 reads alike."""
    if isinstance(value, Mapping):
        lines = []
        for name, part in value.items():
            nested = isinstance(part, Mapping)
            lines += [
                f"{indent}{_key(name)}:" + ("" if nested else f" {_scalar(part)}"),
                *(_yaml(part, f"{indent}  ") if nested else []),
            ]
        return lines
    return [f"  {line}" if place else f"{indent}- {line.strip()}" for item in value for place, line in enumerate(_yaml(item, indent))]


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name[0].isalpha() and name.isascii() else json.dumps(name, ensure_ascii=False)


def _scalar(value: object) -> str:
    plain = isinstance(value, str) and value.replace("_", "").isalpha() and value.isascii() and value.lower() not in _WORDS
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


# Words that a reader of YAML 1.1 takes for something else than a text.
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf")


def _markdown(groups: Mapping[Key, Sequence[Run]], rows: Mapping[Key, Mapping[str, Row]]) -> str:
    phases = [*(phase for phase in summary.phases(run for group in groups.values() for run in group)), PEAK]
    phases = [phase for phase in phases if any(phase in of for of in rows.values())]
    header = ("model", "variant", *phases, "repeats")
    cells = tuple(
        (key.model, key.heading, *(_peak(rows[key].get(phase)) for phase in phases), str(len(group))) for key, group in groups.items()
    )
    parts = ["## Memory", "Peak resident memory in each phase, the median of the repeats."]
    parts.append(grid.markdown(Section("", (TextTable("", header, cells, 2),))))
    parts += exactness_notes(row.exact for of in rows.values() for row in of.values())
    for key, group in groups.items():
        first = group[0]
        versions = ", ".join(version if name == "libc" else f"{name} {version}" for name, version in _versions(first).items())
        where = f"{first.machine.name} ({first.machine.words}, {format_bytes(first.machine.memory_bytes)} of memory)"
        times = counted(len(group), "time")
        parts.append(f"{grid.escaped(key.label)}: {grid.escaped(versions)}, on {grid.escaped(where)}, measured {times} by")
        parts.append(f"    {command_line(first.job, len(group))}")
    return "\n\n".join(parts)


def _peak(row: Row | None) -> str:
    return "-" if row is None else ("" if row.exact else "~") + modes.of_row(row)
