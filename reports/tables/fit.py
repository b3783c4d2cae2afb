"""What `memprof fit` found: the least limits as a table, and latency and page faults against the limit as another."""

from __future__ import annotations

import json
from dataclasses import asdict

from memprof.plain import plain
from memprof.runs.metrics import BYTES, NS
from memprof.seek.fit import CONFIRMATIONS, WHOLE, Fitted, Part

from . import grid
from .grid import Say, Section, Table, Unit
from .shapes import shaped


def render(found: Fitted, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    if format == "json":
        return json.dumps(asdict(found), indent=1)
    say = plain if format == "text" else grid.escaped
    return f"{_finding(found, say, unit)}\n\n{grid.laid_out(section(found, unit), say)}"


def section(found: Fitted, unit: str | None = None) -> Section:
    """Two tables: the parts of the job, and the curve, where there is one."""
    size = _unit(found, unit)
    rows = [
        (part.name, _shown(part.least_bytes, size), _shown(part.rss_peak_bytes, size), _shown(part.touched_bytes, size))
        for part in found.parts
    ]
    parts = Table(size.caption("Least memory"), ("part", "least limit", "RSS peak, no limit", "working set"), tuple(rows))
    return Section("", (parts, _curve(found, size)) if len(found.curve) > 1 else (parts,), tuple(_notes(found)))


def _unit(found: Fitted, unit: str | None) -> Unit:
    """The unit of the table and of the sentence above it, which say the same in the same words."""
    sizes = [size for part in found.parts for size in (part.least_bytes, part.rss_peak_bytes, part.touched_bytes) if size]
    return grid.choose_unit(BYTES, sizes, unit)


def _curve(found: Fitted, size: Unit) -> Table:
    time = grid.choose_unit(NS, [at.time_ns for at in found.curve if at.time_ns])
    plain = found.curve[-1].time_ns
    header = [f"limit ({size.name})", f"iteration ({time.name})", "of no limit", "minor faults", "major faults"]
    rows = [
        [
            "none" if at.limit_bytes is None else _shown(at.limit_bytes, size),
            _shown(at.time_ns, time),
            f"{at.time_ns / plain:.2f}x" if at.time_ns and plain else "-",
            _shown(at.minor_faults),
            _shown(at.major_faults),
        ]
        for at in found.curve
    ]
    if any(at.ended for at in found.curve):
        header.append("failures")
        rows = [[*row, at.ended or "none"] for row, at in zip(rows, found.curve, strict=True)]
    return Table("Under a limit over the whole run", tuple(header), tuple(map(tuple, rows)))


def _shown(value: float | None, unit: Unit | None = None) -> str:
    return "-" if value is None else grid.number(value / unit.size) if unit is not None else f"{value:.0f}"


def _finding(found: Fitted, say: Say, unit: str | None) -> str:
    size = _unit(found, unit)

    def words(value: float) -> str:
        return f"{_shown(value, size)} {size.name}"

    threads = f"{found.threads} thread{'s' if found.threads != 1 else ''}" if found.threads else ""
    what = ", ".join(say(text) for text in (found.model, found.runtime, found.settings, threads) if text)
    what += say(shaped(found.shapes, found.assumed))
    part = whole(found)
    slower = f", at most {found.max_time:g} times as slow," if found.max_time is not None else ""
    if part is None:
        least = [f"{part.name} works in {words(part.least_bytes)}" for part in found.parts if part.least_bytes is not None]
        return f"{what}: {', '.join(least) or 'no limit was found under which it works'}."
    if part.least_bytes is None:
        return f"{what}: no limit was found under which it runs{slower.rstrip(',')}."
    in_all = "" if found.exact else " of what it allocates"
    return f"{what}: runs{slower} in {words(part.least_bytes)}{in_all}; its RSS peak with no limit is {words(part.rss_peak_bytes)}."


def whole(found: Fitted) -> Part | None:
    return next((part for part in found.parts if part.name == WHOLE), None)


def _notes(found: Fitted) -> list[str]:
    notes = [f"Limited by {found.limiter}; what works has worked {CONFIRMATIONS} times."]
    if found.exact:
        notes.append(
            "A group is charged for pages that the run brings in itself, so the page cache of the model and of all files it maps is dropped "
            "before each trial; pages that other processes hold meanwhile are free to it. The RSS peak counts them: it is the upper figure."
        )
    else:
        notes.append(
            "The limit is on what is allocated, touched or not, but for what files hold; RSS peak and working set are what is resident, "
            "files' pages included. So a limit may lie above the peak or below it: compare limits with one another."
        )
    if any(part.name != WHOLE for part in found.parts):
        notes.append(
            "A phase alone: the limit is set before it and lifted after it, while the process stands still; EXECUTE has its warm-up in it."
        )
    notes.append(
        "Working set: resident pages referenced in the phase, files' pages too; of the whole run, that of the phase with the most."
    )
    notes += found.remarks
    return notes
