"""The outcome of `memprof grow`: a sentence, and a row for each process that it rests on."""

from __future__ import annotations

import json
import math
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from memprof.base.terminal_text import plain
from memprof.base.units import counted, format_bytes
from memprof.growth.grow.grow import GrowthAnswer, KindGrowth
from memprof.records.metrics import BYTES
from memprof.records.types import Run
from memprof.verdicts.growth import Growth, Where
from memprof.verdicts.growth_inputs import ONLY_WITH
from memprof.verdicts.growth_outlook import CacheBound, Outlook

from . import grid
from .grid import Say, Section, TextTable

_GIB = 1 << 30
_WHERE: dict[Where, str] = {
    "in use": "in use by the program",
    "kept free": "freed and kept by the allocator",
    "file-backed": "in file-backed memory",
    "other mappings": "in mappings outside of the C library's heap",
}

_LONG = 100  # units, from which on the steep part of a rise is a part of its own


def render(grown: GrowthAnswer, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    if format == "json":
        return json.dumps({"sentence": sentence(grown, plain), **_content(grown)}, indent=1)
    say = grid.say_in(format)
    return f"{sentence(grown, say)}\n\n{grid.laid_out(section(grown, unit), say)}"


def polled(run: Run, growth: Growth, format: str = "text") -> str:
    """The verdict on a process that was polled, as a sentence, or as json."""
    text = f"{plain(run.job.model.name)}: {words(growth)}"
    return json.dumps({"sentence": text, **to_builtins(growth)}, indent=1) if format == "json" else text


def _content(grown: GrowthAnswer) -> dict[str, Any]:
    kinds = tuple(replace(kind, runs=()) for kind in grown.kinds)
    content: dict[str, Any] = to_builtins(replace(grown, runs=(), kinds=kinds))
    for part in (content, *content["kinds"]):
        del part["runs"]
    return content


def sentence(grown: GrowthAnswer, say: Say) -> str:
    """The verdict on the model in the runtime, in words."""
    who = f"{say(grown.model)} in {say(grown.runtime)}" if grown.model != grown.runtime else say(grown.model)
    who += f" {say(grown.version)}" if grown.version else ""
    more = [say(grown.settings)] if grown.settings else []
    more += [counted(grown.threads, "thread")] if grown.threads else []
    more += [counted(grown.shapes, "shape")] if grown.shapes else []
    more += ["fresh inputs"] if grown.fresh and not grown.kinds else []
    outlook = f" {prospect(grown.verdict, grown.would_change)}" if grown.would_change is not None else ""
    return f"{', '.join([who, *more])}: {words(grown.verdict)}{_inputs(grown)}{outlook}".rstrip()


def _inputs(grown: GrowthAnswer) -> str:
    """What the two kinds of processes tell, as more sentences; empty where only one was measured."""
    if grown.inputs is None:
        return ""
    same, varied = grown.kinds
    rest = varied if grown.inputs.decides == "same" else same
    if grown.inputs.by is None:
        if same.verdict.word == varied.verdict.word:
            return f" It is {same.verdict.word} with {same.inputs} and with {varied.inputs}."
        return f" With {rest.inputs}: {words(rest.verdict)}"
    if grown.inputs.by == "iteration":
        if grown.inputs.more:
            added = format_bytes(grown.inputs.more)
            return f" It grows with each iteration, and a new input adds {added}. With {rest.inputs}: {words(rest.verdict)}"
        return f" It grows with each iteration, with {same.inputs} and with {varied.inputs}."
    keyed = " This is a cache or a leak keyed by content." if grown.inputs.by == "new input" else ""
    return f" It grows with {ONLY_WITH[grown.inputs.by]} only.{keyed} With {rest.inputs}: {words(rest.verdict)}"


def words(growth: Growth) -> str:
    """The verdict alone: `grows. 64.0 KiB per iteration (95%: 63.9 to 64.1 KiB), from the 1st on.`"""
    each = each_of(growth.unit)
    if growth.word == "grows":
        where = f", {_WHERE[growth.where]}" if growth.where else ""
        more = f"; at this rate 1 GiB more after {_GIB / growth.slope:,.0f}" if growth.slope > 0 else ""
        if growth.hidden:
            more = "; it fills memory that was freed before, so the resident set does not rise yet"
        rivals = f". It may as well be by {' or '.join(growth.rivals)}: they varied together" if growth.rivals else ""
        span = f"{format_bytes(growth.low)} to {format_bytes(growth.high)}"
        begin = f"from the {_ordinal(growth.warmup + 1)} on" if growth.warmup else f"from the 1st {growth.row_unit} on"
        return f"grows. {format_bytes(growth.slope)} {each} (95%: {span}){where}, {begin}{more}{rivals}."
    if growth.word == "undecided":
        needed = f"; a run of {growth.needed:,} would decide it" if growth.needed else ""
        rose = f" Memory has risen by {format_bytes(growth.rise_bytes)} so far." if growth.rise_bytes else ""
        return f"undecided after {counted(growth.tail, growth.row_unit)}: {growth.reason}{needed}.{rose}"
    most = f"0 B (95%: at most {format_bytes(_rounded(growth.high))}) {each} over {growth.tail:,}."
    if growth.word == "steady":
        return f"steady. {most}"
    first = f"in the first {counted(growth.warmup, growth.unit)}" if growth.warmup > 1 else f"in the first {growth.unit}"
    steep = (
        f", nine tenths of it in the first {growth.steep:,}" if growth.warmup >= _LONG and 0 < growth.steep < 0.75 * growth.warmup else ""
    )
    return f"bounded. {format_bytes(growth.rise_bytes)} {first}{steep}, then {most}"


def prospect(growth: Growth, outlook: Outlook) -> str:
    """What is not ruled out, what would tell, and where growth would stop; empty where the verdict alone says it."""
    unit, bound = growth.row_unit, outlook.bound
    if growth.word == "bounded" and bound is not None:
        return f"This is where {bound.knob} bounds a cache: at {_amount(bound)}."
    sentences = []
    if growth.word == "grows" and outlook.needed and outlook.shown:
        longer = outlook.option or f"a run of {counted(outlook.needed, unit)}"
        sentences.append(f"{outlook.unfilled_cache(unit)}: {longer} would show a bound within {outlook.shown:,}.")
    if growth.word in ("grows", "undecided") and bound is not None:
        after = f", after about {counted(outlook.bound_units or 0, unit)}" if bound.counts == "bytes" else ""
        sentences.append(f"If it is the cache that {bound.knob} bounds, it stops at {_amount(bound)}{after}.")
    sentences += [f"It is not the cache of {each.knob} alone, which is bounded at {_amount(each)}." for each in outlook.passed]
    return " ".join(sentences)


def _amount(bound: CacheBound) -> str:
    return format_bytes(bound.value) if bound.counts == "bytes" else f"{bound.value:,} entries"


def each_of(unit: str) -> str:
    """`per iteration`, `per token`, `per new shape`."""
    return "per new shape" if unit == "shape" else f"per {unit}"


def section(grown: GrowthAnswer, unit: str | None = None) -> Section:
    """A row for each process, of all kinds."""
    kinds = grown.kinds or (KindGrowth("", grown.verdict, grown.resident),)
    size = grid.choose_unit(BYTES, [end for kind in kinds for pair in kind.resident for end in pair], unit)
    rows = []
    for kind in kinds:
        fed = (kind.inputs,) if grown.kinds else ()
        for number, (growth, (begin, end)) in enumerate(zip(kind.verdict.processes, kind.resident, strict=True), 1):
            slope = f"{format_bytes(growth.slope)}" if growth.word == "grows" else f"at most {format_bytes(_rounded(growth.high))}"
            if growth.word == "undecided":
                slope = "-"
            row = (str(number), growth.word, f"{slope} {each_of(growth.unit)}" if slope != "-" else slope, f"{growth.warmup:,}")
            rows.append((*fed, *row, f"{growth.tail:,}", size.cell(begin), size.cell(end)))
    columns = ("process", "verdict", "rises by", "warm-up", "units after it", f"begin ({size.name})", f"end ({size.name})")
    header = ("inputs", *columns) if grown.kinds else columns
    table = TextTable("Resident and swapped memory of each process", header, tuple(rows), labels=2 + bool(grown.kinds))
    return Section("", (table,), grown.remarks)


def _rounded(value: float) -> float:
    """Whole bytes, upwards: a bound."""
    return math.ceil(value) if value < 1024 else value


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
