"""What `memprof fit` found: the least limits as a table, and latency and page faults against the limit as a table and a picture."""

from __future__ import annotations

import json
from dataclasses import asdict

from matplotlib.figure import Figure

from memprof.errors import InputError
from memprof.fit import CONFIRMATIONS, Fitted
from memprof.metrics import BYTES, NS
from memprof.units import format_bytes

from . import grid, style
from .grid import Section, Table


def render(found: Fitted, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as Markdown, or the same content as JSON. Raises UsageError for an unknown unit."""
    if format == "json":
        return json.dumps(asdict(found), indent=1)
    return f"{_finding(found)}\n\n{grid.markdown(section(found, unit))}"


def section(found: Fitted, unit: str | None = None) -> Section:
    """Two tables: the parts of the job, and the curve."""
    sizes = [size for part in found.parts for size in (part.least_bytes, part.rss_peak_bytes, part.touched_bytes) if size]
    size = grid.choose_unit(BYTES, sizes, unit)
    time = grid.choose_unit(NS, [at.time_ns for at in found.curve if at.time_ns])

    def shown(value: float | None, unit: grid.Unit) -> str:
        return "-" if value is None else grid.number(value / unit.size)

    parts = Table(
        size.caption("Least memory"),
        ("part", "least limit", "RSS peak, no limit", "touched"),
        tuple(
            (part.name, shown(part.least_bytes, size), shown(part.rss_peak_bytes, size), shown(part.touched_bytes, size))
            for part in found.parts
        ),
    )
    plain = found.curve[-1].time_ns
    curve = Table(
        "Under a limit over the whole run",
        (f"limit ({size.name})", f"iteration ({time.name})", "of no limit", "minor faults", "major faults", ""),
        tuple(
            (
                "none" if at.limit_bytes is None else shown(at.limit_bytes, size),
                shown(at.time_ns, time),
                f"{at.time_ns / plain:.2f}x" if at.time_ns and plain else "-",
                "-" if at.minor_faults is None else f"{at.minor_faults:.0f}",
                "-" if at.major_faults is None else f"{at.major_faults:.0f}",
                at.ended or "",
            )
            for at in found.curve
        ),
    )
    return Section("", (parts, curve), tuple(_notes(found)))


def _finding(found: Fitted) -> str:
    what = ", ".join(grid.escaped(text) for text in (found.model, found.runtime, found.settings) if text)
    whole = next((part for part in found.parts if part.name == "whole run"), None)
    if whole is None:
        return f"{what}:"
    if whole.least_bytes is None:
        return f"{what}: no limit was found under which it runs."
    slower = f", at most {found.max_time:g} times as slow," if found.max_time is not None else ""
    return f"{what}: runs{slower} in {format_bytes(whole.least_bytes)}; its RSS peak with no limit is {format_bytes(whole.rss_peak_bytes)}."


def _notes(found: Fitted) -> list[str]:
    notes = [f"Limit by {found.limiter}; what works has worked {CONFIRMATIONS} times."]
    if found.exact:
        notes.append(
            "A group is charged for pages that the run brings in itself, so the page cache of the model and of all files it maps is dropped "
            "before each trial; pages that other processes hold meanwhile are free to it. The RSS peak counts them: it is the upper figure."
        )
    notes.append("A phase: the limit holds in it alone, set and lifted while the process stands still; EXECUTE with its warm-up.")
    notes.append("Touched: resident pages referenced in the phase, its working set.")
    notes += found.remarks
    return notes


def picture(found: Fitted) -> Figure:
    """Latency and major faults of EXECUTE against the limit, the least limit and the RSS peak marked. Raises InputError where there is no curve."""
    points = [at for at in found.curve if at.limit_bytes is not None and at.time_ns]
    if not points:
        raise InputError("there is no curve to draw: it ran under no limit")
    with style.look():
        return _picture(found)


def _picture(found: Fitted) -> Figure:
    points = [at for at in found.curve if at.limit_bytes is not None and at.time_ns]
    plain = found.curve[-1]
    sizes = grid.choose_unit(BYTES, [at.limit_bytes or 0 for at in points])
    times = grid.choose_unit(NS, [at.time_ns or 0 for at in found.curve])
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    x = [(at.limit_bytes or 0) / sizes.size for at in points]
    upper.plot(x, [(at.time_ns or 0) / times.size for at in points], color=style.INK, marker="o", markersize=4)
    if plain.time_ns:
        upper.axhline(plain.time_ns / times.size, color=style.GREY, linestyle="--", linewidth=1)
        upper.annotate("no limit", (x[-1], plain.time_ns / times.size), (0, 3), textcoords="offset points", ha="right", color=style.GREY)
    upper.set_ylim(bottom=0)
    upper.set_ylabel(times.caption("iteration"))
    for name, marker, line in (("minor_faults", "o", "-"), ("major_faults", "s", "--")):
        seen = [(place, value) for place, at in zip(x, points, strict=True) if (value := getattr(at, name)) is not None]
        columns = [place for place, _ in seen], [value for _, value in seen]
        lower.plot(*columns, color=style.INK, marker=marker, linestyle=line, markersize=4, label=name.replace("_", " "))
    lower.set_yscale("symlog", linthresh=1)
    lower.set_ylim(bottom=0)
    lower.set_ylabel("page faults in EXECUTE")
    lower.legend(frameon=False)
    lower.set_xlabel(sizes.caption("limit over the whole run"))
    for axes in (upper, lower):
        axes.grid(axis="y")
    upper.set_title(f"{style.escaped(found.model)}, {style.escaped(found.runtime)}: latency under a memory limit", loc="left")
    return figure
