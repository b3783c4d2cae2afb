"""The outcome of `memprof grow`: a sentence, and a row for each process that it rests on."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from memprof.base.terminal_text import plain
from memprof.base.units import counted, format_bytes
from memprof.grow.grow import GrowthAnswer
from memprof.records.metrics import BYTES
from memprof.records.types import Run
from memprof.verdicts.growth import Growth, Where

from . import grid
from .grid import Say, Section, TextTable

_GIB = 1 << 30
_WHERE: dict[Where, str] = {
    "in use": "in use by the program",
    "kept free": "freed and kept by the allocator",
    "file-backed": "in file-backed memory",
    "other mappings": "in mappings outside of the C library's heap",
}


def render(grown: GrowthAnswer, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    if format == "json":
        return json.dumps({"sentence": sentence(grown, plain), **_content(grown)}, indent=1)
    say = plain if format == "text" else grid.escaped
    return f"{sentence(grown, say)}\n\n{grid.laid_out(section(grown, unit), say)}"


def polled(run: Run, growth: Growth, format: str = "text") -> str:
    """The verdict on a process that was polled, as a sentence, or as json."""
    text = f"{plain(run.job.model.name)}: {words(growth)}"
    return json.dumps({"sentence": text, **asdict(growth)}, indent=1) if format == "json" else text


def _content(grown: GrowthAnswer) -> dict[str, Any]:
    content = asdict(replace(grown, runs=()))
    del content["runs"]
    return content


def sentence(grown: GrowthAnswer, say: Say) -> str:
    """The verdict on the model in the runtime, in words."""
    who = f"{say(grown.model)} in {say(grown.runtime)}" if grown.model != grown.runtime else say(grown.model)
    who += f" {say(grown.version)}" if grown.version else ""
    more = [say(grown.settings)] if grown.settings else []
    more += [counted(grown.threads, "thread")] if grown.threads else []
    more += [counted(grown.shapes, "shape")] if grown.shapes else []
    return f"{', '.join([who, *more])}: {words(grown.verdict)}"


def words(growth: Growth) -> str:
    """The verdict alone: `grows. 64.0 KiB an iteration (95%: 63.9 to 64.1 KiB), from the 1st on.`"""
    each = each_of(growth.unit)
    if growth.word == "grows":
        where = f", {_WHERE[growth.where]}" if growth.where else ""
        more = f"; at this rate 1 GiB more after {_GIB / growth.slope:,.0f}" if growth.slope > 0 else ""
        rivals = f". It may as well be by {' or '.join(growth.rivals)}: they varied together" if growth.rivals else ""
        span = f"{format_bytes(growth.low)} to {format_bytes(growth.high)}"
        begin = f"from the {_ordinal(growth.warmup + 1)} on" if growth.warmup else f"from the 1st {_unit_of_rows(growth)} on"
        return f"grows. {format_bytes(growth.slope)} {each} (95%: {span}){where}, {begin}{more}{rivals}."
    if growth.word == "undecided":
        needed = f"; {growth.needed:,} would decide it" if growth.needed else ""
        rose = f" {format_bytes(growth.rise_bytes)} more by then." if growth.rise_bytes else ""
        return f"undecided after {growth.tail:,}: {growth.reason}{needed}.{rose}"
    most = f"0 B (95%: at most {format_bytes(_rounded(growth.high))}) {each} over {growth.tail:,}."
    if growth.word == "steady":
        return f"steady. {most}"
    first = f"in the first {counted(growth.warmup, growth.unit)}" if growth.warmup > 1 else f"in the first {growth.unit}"
    return f"bounded. {format_bytes(growth.rise_bytes)} {first}, then {most}"


def each_of(unit: str) -> str:
    """`an iteration`, `a token`, `a new shape`."""
    if unit == "shape":
        return "a new shape"
    return f"{'an' if unit[:1] in 'aeiou' else 'a'} {unit}"


def section(grown: GrowthAnswer, unit: str | None = None) -> Section:
    """A row for each process."""
    size = grid.choose_unit(BYTES, [end for pair in grown.resident for end in pair], unit)
    rows = []
    for number, (growth, (begin, end)) in enumerate(zip(grown.verdict.processes, grown.resident, strict=True), 1):
        slope = f"{format_bytes(growth.slope)}" if growth.word == "grows" else f"at most {format_bytes(_rounded(growth.high))}"
        if growth.word == "undecided":
            slope = "-"
        row = (str(number), growth.word, f"{slope} {each_of(growth.unit)}" if slope != "-" else slope, f"{growth.warmup:,}")
        rows.append((*row, f"{growth.tail:,}", grid.number(begin / size.size), grid.number(end / size.size)))
    header = ("process", "verdict", "rises by", "warm-up", "units after it", f"begin ({size.name})", f"end ({size.name})")
    table = TextTable("Resident and swapped memory of each process", header, tuple(rows), labels=2)
    return Section("", (table,), grown.remarks)


def _unit_of_rows(growth: Growth) -> str:
    return growth.unit if growth.unit not in ("token", "shape") else "iteration"


def _rounded(value: float) -> float:
    """Whole bytes, upwards: a bound."""
    return float(-int(-value // 1)) if value < 1024 else value


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
