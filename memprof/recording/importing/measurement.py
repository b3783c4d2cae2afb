"""The measurement that a reader of a log hands back, and the numbers and sentences that several formats share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from ...base.errors import InputError
from ...records.types import Mark, Timeline, Value
from ..timeline import packed

MIB = 1 << 20
KIB = 1 << 10
_MOST_MEASUREMENTS = 10_000
_MOST = 1 << 62  # the bound of a size or a time in a runs file

# A group for a number as C++ prints it: `12.5`, `1e-05`.
NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)"

# Notes on measurements.
SAMPLED = "all memory was sampled; which part of it is file-backed is not known"
RSS_POLLED = "RSS was polled, its peaks may have been higher"
MEAN_LATENCY = "EXECUTE's latency is the mean of its runs"


class Measurement(Struct, frozen=True):
    """A measurement as a log tells it; fields that the log does not tell are empty. version: the runtime's."""

    tool: str
    runtime: str
    marks: Sequence[Mark]
    model: str = ""
    model_path: str = ""
    model_bytes: int = 0
    variant: str = ""
    warmup: int = 0
    runs: int = 0
    threads: int | None = None
    knobs: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    arch: str = ""
    version: str = ""
    started_ns: int = 0
    notes: Sequence[str] = ()
    values: Sequence[Value] = ()
    timeline: Timeline | None = None

    def cut_off(self, why: str) -> Measurement:
        """The same with a note that its end is missing, unless it has one."""
        return self if any(note.startswith(_CUT_OFF) for note in self.notes) else replace(self, notes=[*self.notes, torn(why)])


_CUT_OFF = "the log is cut off"


def torn(why: str) -> str:
    """The note on a log whose end is missing."""
    return f"{_CUT_OFF}: {why}"


def whole_lines(text: str) -> tuple[list[str], list[str]]:
    """Lines, and the notes on them. A last line without an end is left out, since a part of a number is a number too."""
    lines = text.splitlines()
    if not lines or text.splitlines(keepends=True)[-1] != lines[-1]:
        return lines, []
    return lines[:-1], [torn("its last line has no end and is left out")]


def count(number: float | str | None, unit: float = 1) -> int | None:
    """A size or a time in whole bytes or nanoseconds; None for other text, infinity and negative numbers."""
    try:
        value = float(number) * unit if number is not None else math.nan
    except (TypeError, ValueError, OverflowError):
        return None
    return round(value) if 0 <= value < _MOST else None


def figure_name(*words: str) -> str:
    """The name of a figure in bytes, made of a log's own words: `.so mmap`, `PSS` as `so_mmap_pss_bytes`."""
    return "_".join([*re.findall(r"[a-z0-9]+", " ".join(words).lower()[:200]), "bytes"])


def check_count(measurements: int, tool: str) -> None:
    """Raises InputError for a log of more measurements than anybody makes: each is a Run, a hundred times as large as its line."""
    if measurements > _MOST_MEASUREMENTS:
        raise InputError(f"this log of {tool} has more than {_MOST_MEASUREMENTS:,} measurements")


def in_a_row(phases: Sequence[tuple[str, int | None, Mapping[str, object]]]) -> list[Mark]:
    """Marks of phases that follow one another from 0: (phase, duration in ns, other fields). A phase without duration and fields is left out."""
    marks, now_ns = [], 0
    for phase, time_ns, fields in phases:
        known = {name: value for name, value in fields.items() if value is not None and value != ()}
        if time_ns is None and not known:
            continue
        end_ns = now_ns + (time_ns or 0)
        facts: dict[str, object] = {"rss_peak_bytes": None, "rss_peak_exact": False, **known}
        marks.append(Mark(phase, now_ns, end_ns, **facts))  # type: ignore[arg-type]
        now_ns = end_ns
    return marks


def timeline(rows: Sequence[tuple[int, int, int]]) -> Timeline:
    """A timeline of (t_ns, rss, vms) rows. The file-backed part is not known and stands as 0."""
    rows = sorted(rows)
    t_ns, rss, vms = (list(column) for column in zip(*rows, strict=True))
    spans = [after - now for now, after in pairwise(t_ns)]
    total = sum(spans)
    mean = sum(value * span for value, span in zip(rss, spans, strict=False)) // total if total else rss[0]
    return Timeline(packed(t_ns), packed(rss), packed([0] * len(rows)), packed(vms), len(rows), min(rss), mean, max(rss))
