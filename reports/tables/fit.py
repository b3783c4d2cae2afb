"""The outcome of `memprof fit`: the least limits as a table, and latency and page faults against the limit as another."""

from __future__ import annotations

import json
from collections.abc import Callable

from msgspec import to_builtins

from memprof.base.units import counted, exact_bytes, format_bytes
from memprof.footprint.fit import CONFIRMATIONS, WHOLE, Fitted, LimitPoint, PartLimit
from memprof.records.metrics import BYTES, NS

from ..ran import shaped
from . import grid, headline, resources
from .grid import Say, Section, TextTable, Unit
from .resources import Resources

_SLOW = 1.5  # times as long as with no limit, from where on the first sentence says it
_LIKE_PLAIN = 0.05  # a time this near to that with no limit, as a share, gets no mark
_OTHER_CAUSE = "(not by the limit)"  # a mark on a time


def render(fitted: Fitted, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    found = resources.of_fit(fitted)
    if format == "json":
        return json.dumps({**to_builtins(fitted), "resources": found and to_builtins(found)}, indent=1)
    say, code = grid.say_in(format), format != "text"
    lines = resources.block(found, format, fitted.threads, shaped(fitted.shapes, fitted.assumed).removeprefix(", "))
    text = f"{finding(fitted, say, unit)}\n\n{grid.laid_out(section(fitted, unit), say)}{lines}"
    called = headline.with_threads(fitted.settings, fitted.threads)
    ends = [headline.in_program(called, fitted.calls, code), _next(fitted, found, code)]
    return "\n\n".join([text, *filter(None, ends)])


def section(fitted: Fitted, unit: str | None = None) -> Section:
    """Two tables: the parts of the job, and the curve if there is one."""
    size = _unit(fitted, unit)
    limit = "least limit" if fitted.within_bytes is None else "limit that works"
    columns = [
        ("part", [part.name for part in fitted.parts]),
        (limit, [_bounds(part, size.cell) if fitted.within_bytes is None else size.cell(part.least_bytes) for part in fitted.parts]),
        ("RSS peak, no limit", [size.cell(part.rss_peak_bytes) for part in fitted.parts]),
    ]
    if _touched(fitted):
        columns.append(("touched pages", [size.cell(part.touched_bytes) for part in fitted.parts]))
    parts = grid.of_columns(size.caption("Least memory" if fitted.within_bytes is None else "Memory"), columns)
    return Section("", (parts, _curve(fitted, size)) if len(fitted.curve) > 1 else (parts,), tuple(_notes(fitted)))


def _next(fitted: Fitted, found: Resources | None, code: bool) -> str:
    """The command that goes on from here: a search for settings that keep within the limit, or the gate that holds the size of a container."""
    if found is not None and (gate := fitted.gate_command[0]):
        line = " ".join(filter(None, (gate, exact_bytes(found.limits.bytes), fitted.gate_command[1])))
        return f"To keep it so in CI:\n\n    {line}"
    if found is None and fitted.within_bytes is not None and fitted.tune_command and fitted.exact:
        return f"Settings whose RSS peak is within the limit are searched by\n\n    {fitted.tune_command}"
    return ""


def _bounds(part: PartLimit, words: Callable[[float], str]) -> str:
    """The least limit, or those between which it lies where the search ended before; `-` for none."""
    if part.least_bytes is None:
        return "-"
    least = words(part.least_bytes)
    return least if part.complete else f"{words(part.failed_bytes)} to {least}"


def _unit(fitted: Fitted, unit: str | None) -> Unit:
    """The unit of the table and of the sentence above it, which say the same in the same words."""
    sizes = [size for part in fitted.parts for size in (part.least_bytes, part.rss_peak_bytes, part.touched_bytes) if size]
    return grid.choose_unit(BYTES, sizes, unit)


def _curve(fitted: Fitted, size: Unit) -> TextTable:
    time = grid.choose_unit(NS, [point.time_ns for point in fitted.curve if point.time_ns])
    no_limit_ns = fitted.curve[-1].time_ns
    timed = "iteration" if grid.runtime(fitted.runtime) else "duration"
    curve = fitted.curve
    columns = [
        (f"limit ({size.name})", ["none" if point.limit_bytes is None else size.cell(point.limit_bytes) for point in curve]),
        ("runs", [str(point.runs) for point in curve]),
        (f"{timed} ({time.name})", [time.cell(point.time_ns) for point in curve]),
        (
            "of no limit",
            [f"{point.time_ns / no_limit_ns:.2f}x{_noise(point, curve[-1])}" if point.time_ns and no_limit_ns else "-" for point in curve],
        ),
        ("minor faults", [_count(point.minor_faults) for point in curve]),
        ("major faults", [_count(point.major_faults) for point in curve]),
    ]
    if any(point.refaults is not None for point in curve):
        columns.append(("refaults", [_count(point.refaults) for point in curve]))
    failures = [", ".join(filter(None, (point.ended, point.late))) for point in curve]
    if any(failures):
        columns.append(("failures", [words or "none" for words in failures]))
    return grid.of_columns("Under a limit over the whole run", columns)


def _noise(point: LimitPoint, plain: LimitPoint) -> str:
    """A mark on a time that the limit did not make: its runs took as long as some with no limit, or no page had to be read or found again. None
    where a run was ended by time: the limit may have made it slow."""
    if not point.time_ns or not plain.time_ns or point.late or abs(point.time_ns / plain.time_ns - 1) < _LIKE_PLAIN:
        return ""
    sides = point.times_ns, plain.times_ns
    overlap = all(sides) and max(map(min, sides)) <= min(map(max, sides)) and point.time_ns < _SLOW * plain.time_ns
    return f" {_OTHER_CAUSE}" if overlap or not resources.reads_again(point, plain) else ""


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def finding(fitted: Fitted, say: Say, unit: str | None = None) -> str:
    """The least limit in a sentence, after what it is of."""
    job = grid.subject(say, fitted.model, fitted.runtime, fitted.settings, fitted.threads)
    return f"{job}{say(shaped(fitted.shapes, {}))}: {outcome(fitted, unit)}."


def outcome(fitted: Fitted, unit: str | None = None) -> str:
    """The same without what it is of."""
    words = _unit(fitted, unit).amount
    part = fitted.whole
    slower = f", at most {fitted.max_time:g} times as slow," if fitted.max_time is not None else ""
    if part is None:
        least = [f"{part.name} works in {_bounds(part, words)}" for part in fitted.parts if part.least_bytes is not None]
        return ", ".join(least) or "no limit was found under which it works"
    peak = f"its RSS peak with no limit is {words(part.rss_peak_bytes)}"
    if fitted.within_bytes is not None:
        return _within(fitted, part, fitted.within_bytes, slower, words)
    if part.least_bytes is None:
        return f"no limit was found under which it runs{slower.rstrip(',')}"
    allocated = "" if fitted.exact else " of what it allocates"
    slow = _slow_words(fitted, part.least_bytes)
    beside = f" while other processes hold {format_bytes(fitted.held.bytes)} of its files" if fitted.held.bytes else ""
    if not part.complete:
        between = f"between {words(part.failed_bytes)} and" if part.failed_bytes else "at most"
        ended = "the search was interrupted" if fitted.interrupted else "the time was up"
        there = f"; in {words(part.least_bytes)} {slow}" if slow else ""
        return (
            f"the least limit in which it runs{slower} is {between} {words(part.least_bytes)}{allocated}{beside} ({ended}){there}; {peak}"
        )
    return f"runs{slower} in {words(part.least_bytes)}{allocated}{beside}{f', where {slow}' if slow else ''}; {peak}"


def _within(fitted: Fitted, part: PartLimit, limit_bytes: int, slower: str, words: Callable[[float], str]) -> str:
    """Whether it runs within the limit that was given, what it was charged there, and what a container needs that is the first to read the pages of
    its libraries."""
    limit, peak_bytes = words(limit_bytes), part.rss_peak_bytes
    peak = f"its RSS peak with no limit is {words(peak_bytes)}"
    if part.least_bytes is None and part.complete:
        return f"does not run{slower} within {limit}: trial {part.trials} of {CONFIRMATIONS} failed, which ended them; {peak}"
    trials = f"in {part.worked} of {counted(part.trials, 'trial')}"
    if not part.complete:
        return f"whether it runs{slower} within {limit} is not known: it ran {trials}, and {CONFIRMATIONS} are needed; {peak}"
    if not fitted.exact:
        spare = resources.spare_words(fitted)
        return f"runs{slower} within {limit} of what it allocates, {trials}; {peak}{f', which leaves {spare}' if spare else ''}"
    point = next((point for point in fitted.curve if point.limit_bytes == limit_bytes), None)
    charged = point.charged_bytes if point is not None else None
    slow = _slow_words(fitted, limit_bytes)
    runs = f"runs here{slower} within {limit}, {trials}{f', where {slow}' if slow else ''}"
    if charged is not None:
        spare_bytes = limit_bytes - charged
        used = f"{words(charged)} at most, with the page cache that the kernel drops at the limit; {words(spare_bytes)} stayed free"
        full = "the whole limit: there the kernel drops pages of files, and reads them again when needed"
        runs += f". Its group was charged {used if spare_bytes > 0 else full}"
    if not peak_bytes:
        return runs
    far = (
        f"{words(peak_bytes - limit_bytes)} more than"
        if peak_bytes > limit_bytes
        else f"{resources.spare_words(fitted) or 'nothing'} below"
    )
    first = "The first container on a machine may need as much, for the pages of its libraries are charged to it"
    if peak_bytes > limit_bytes:
        first += f". So no lines for a manifest follow, as these need a limit of {words(peak_bytes)} or more"
    return f"{runs}. With no limit its RSS peak is {words(peak_bytes)}, {far} the limit. {first}"


def _slow_words(fitted: Fitted, limit_bytes: int) -> str:
    """How many times as long as with no limit an iteration takes there, where that is worth a warning."""
    point, plain = next((point for point in fitted.curve if point.limit_bytes == limit_bytes), None), fitted.curve[-1]
    if point is None or not point.time_ns or not plain.time_ns or _noise(point, plain):
        return ""
    times = point.time_ns / plain.time_ns
    timed = "an iteration" if grid.runtime(fitted.runtime) else "it"
    return f"{timed} takes {times:.{1 if times < 10 else 0}f} times as long as with no limit" if times >= _SLOW else ""


def _touched(fitted: Fitted) -> bool:
    """Whether its touched pages are known: a program is not stopped, so that its own are not."""
    return any(part.touched_bytes is not None for part in fitted.parts) or bool(grid.runtime(fitted.runtime))


def _notes(fitted: Fitted) -> list[str]:
    notes = [f"Limited by {fitted.limiter}{_worked(fitted) if fitted.within_bytes is None else ''}."]
    dropped = "the model and of all files it maps" if grid.runtime(fitted.runtime) else "its model, if it has one,"
    if fitted.exact:
        notes.append(
            "The kernel kills a container by the charges of its group. A group is charged for the pages that its own processes read first. "
            f"So memprof drops the page cache of {dropped} before each trial. The kernel keeps the pages that other processes use, "
            f"such as those of the interpreter and of the C library{_held(fitted)}. The RSS peak counts them too: it is what the first container "
            "on a machine may need."
        )
    else:
        notes.append(
            "The limit is on allocated memory, touched or not, without the contents of files; RSS peak and touched pages are resident memory, "
            "files' pages included. So a limit may lie above the peak or below it: compare limits with one another."
        )
    if any(part.name != WHOLE for part in fitted.parts):
        notes.append(
            "A phase alone: the limit is set before it and lifted after it, while the process stands still; EXECUTE has its warm-up in it."
        )
    if _touched(fitted):
        notes.append(
            "Touched pages: resident pages referenced in the phase, files' pages too; of the whole run, those of the phase with the most."
        )
    failed = [point.limit_bytes for point in fitted.curve if point.ended and point.limit_bytes]
    worked = [point.limit_bytes for point in fitted.curve if point.limit_bytes and not point.ended]
    if failed and worked and min(worked) < max(failed):
        reason = (
            "a group is not charged for the pages of libraries that other processes hold, so a run beside these can work in less than it needs by "
            "itself, and one on a busy machine can fail in more"
            if fitted.exact
            else "a run on a busy machine can fail in more than it needs"
        )
        notes.append(
            f"All runs worked in {format_bytes(min(worked))}, and yet some failed in up to {format_bytes(max(failed))}: {reason}. No limit up to "
            "there is called the least."
        )
    if any(point.ended and point.time_ns for point in fitted.curve):
        notes.append("Where some runs failed, time and page faults are medians of those that worked.")
    if any(_noise(point, fitted.curve[-1]) for point in fitted.curve):
        notes.append(
            f"{_OTHER_CAUSE}: some runs with no limit took as long, or the kernel took no page from these runs. Something else made the "
            "difference."
        )
    found = fitted.whole is not None and fitted.whole.least_bytes is not None and fitted.within_bytes is None
    if short := resources.short_words(fitted):
        notes.append(short)
    if found and fitted.exact and resources.fast_limit(fitted) is None:
        how = (
            "--max-latency 2x searches the least limit that is not much slower"
            if fitted.max_time is None
            else "other work may disturb the times"
        )
        notes.append(
            f"No limit was measured at full speed (at most {resources.FULL_SPEED:g}x, or no page read again, in {CONFIRMATIONS} runs): {how}."
        )
    if fitted.assumed:
        notes.append(f"{', '.join(sorted(fitted.assumed))}: open dimensions of the model are taken as 1 (--shape sets others).")
    notes += fitted.remarks
    return notes


def _held(fitted: Fitted) -> str:
    """How much others held of its files at most, and the processes that held most of them."""
    held = fitted.held
    holders = f", those of {', '.join(held.holders)} and memprof" if held.holders else ", those of memprof"
    return f": up to {format_bytes(held.bytes)} of them here{holders}" if held.bytes else ""


def _worked(fitted: Fitted) -> str:
    """How often the least limits have worked, the same count for all that have it."""
    times: dict[int, list[str]] = {}
    for part in fitted.parts:
        if part.least_bytes is not None:
            name = f"the {part.name}" if part.name == WHOLE else part.name
            times.setdefault(part.worked, []).append(name)
    each = [f"the least limit of {' and '.join(names)} has worked {counted(count, 'time')}" for count, names in times.items()]
    return "; " + ", ".join(each) if each else ""
