"""The swap table: MIN, AVR and MAX of memory over a window of the run, original against swap, with the difference in percent.

For RSS, for anonymous and for file-backed memory, because a mapped swap file moves memory from one to the other and a verdict on RSS alone
is then wrong. Values that the program reports itself (tensor and weight bytes) stand in further columns of the first table.

A window is a phase (`EXECUTE`), a span of time since the program's start (`2s..10s`), or either of them from and to: `PREPARE..` from the
begin of PREPARE to the end of the run, `MODEL_LOAD..EXECUTE`, `loss..` from the first value of that name on. The default window is the run
without STARTUP.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from memprof.base.errors import UsageError, near
from memprof.base.units import parse_duration_ns
from memprof.records import store, summary
from memprof.records.metrics import BYTES, NS
from memprof.records.phases import named as phase_named
from memprof.records.summary import Key
from memprof.records.types import RELEASE, STARTUP, Run

from ..rows import key_fields
from . import grid
from .grid import TextTable

KINDS = ("RSS", "anonymous", "file-backed")
ROWS = ("MIN", "AVR", "MAX")
Groups = Mapping[Key, Sequence[Run]]
Extremes = tuple[float, float, float]


class Window(Struct, frozen=True):
    """Each end is a time since the start in ns, the name of a phase or value, or None for the run's start or end. words: as the user wrote it."""

    begin: int | str | None = None
    end: int | str | None = None
    words: str = ""

    @property
    def title(self) -> str:
        """The words of a title: `over the run`, `in EXECUTE`, `from PREPARE on`."""
        if not self.words:
            return "over the run"
        first, dots, last = self.words.partition("..")
        if not dots:
            return f"in {self.begin}"
        shown = [str(side) if isinstance(side, str) else text for side, text in ((self.begin, first), (self.end, last))]
        return f"from {shown[0] or 'the start'} {f'to {shown[1]}' if shown[1] else 'on'}"


def window(text: str | None) -> Window:
    """A window in a user's words. Raises UsageError."""
    if not text:
        return Window()
    first, dots, last = text.partition("..")
    if not dots:
        if _is_time(first):
            raise UsageError(f"window {text!r}: a span of time has two ends, as in 2s..10s or 2s..")
        name = phase_named(first)
        return Window(name, name, text)
    begin, end = (_side(side) for side in (first, last))
    if begin is None and end is None:
        raise UsageError(f"window {text!r}: write PHASE, FROM..TO, FROM.. or ..TO")
    if isinstance(begin, int) and isinstance(end, int) and begin >= end:
        raise UsageError(f"window {text!r} ends before it begins")
    return Window(begin, end, text)


def _side(text: str) -> int | str | None:
    if not text.strip():
        return None
    return parse_duration_ns(text) if _is_time(text) else phase_named(text.strip())


def _is_time(text: str) -> bool:
    return re.match(r"\s*[0-9.]", text) is not None


# -- tables


def tables(groups: Groups, names: Mapping[Key, str], over: Window, unit: str | None) -> list[TextTable]:
    """A table for each kind of memory. names: of columns, by key. Raises UsageError where no run has the window."""
    _check(groups, over)
    firsts: dict[tuple[str, int | None, str], Key] = {}
    for key in groups:
        firsts.setdefault((key.model, key.threads, key.machine), key)
    rows = [*ROWS, *(f"{name} difference" for name in ROWS if len(firsts) < len(groups))]
    tables = []
    for kind in KINDS:
        figures = {key: extremes(group, kind, over) for key, group in groups.items()}
        values = [value for each in figures.values() if each for value in each]
        if not values:
            continue
        size = grid.choose_unit(BYTES, values, unit)
        columns: list[tuple[str, Sequence[str]]] = [("", rows)]
        for key, own in figures.items():
            first = firsts[key.model, key.threads, key.machine]
            differences = _differences(own, figures[first]) if first != key else [""] * len(ROWS)
            columns.append((names[key], [*(size.cell(own and own[place]) for place in range(len(ROWS))), *differences][: len(rows)]))
        if kind == KINDS[0]:
            columns += [(title, [*cells, *[""] * (len(rows) - len(cells))]) for title, cells in _reported(groups, names, over, size)]
        tables.append(grid.of_columns(size.caption(f"{kind} {over.title}"), columns))
    return tables


def note(over: Window) -> str:
    """The meaning of the cells."""
    where = "the whole run as polled, from the baseline on" if not over.words else "that part of the run, as polled"
    exact = "MAX of RSS takes in the exact peaks of phases that lie within it"
    return f"MIN, AVR and MAX over {where}, AVR weighted by time; {exact}; the median over repeats."


def as_json(groups: Groups, over: Window) -> str:
    """The same figures as JSON, an object for each variant and kind of memory or value: bytes, or the value's unit."""
    _check(groups, over)
    rows = []
    for key, group in groups.items():
        about = {**key_fields(key), "machine": key.machine, "window": over.words or "run"}
        good = [run for run in group if run.complete]
        figures = [(kind, extremes(good, kind, over)) for kind in KINDS]
        figures += [(name, _over_repeats(_value_extremes(run, name, over) for run in good)) for name in _value_names(good)]
        for kind, values in figures:
            if values is not None:
                row = {name: value for name, value in about.items() if value is not None}
                rows.append({**row, "what": kind, **dict(zip(("min", "avr", "max"), values, strict=True))})
    return json.dumps(rows, indent=1)


def _check(groups: Groups, over: Window) -> None:
    runs = [run for group in groups.values() for run in group if run.complete]
    known = list(dict.fromkeys([*summary.phases(runs), *_value_names(runs)]))
    for side in (over.begin, over.end):
        if isinstance(side, str) and runs and not any(_place(run, side) for run in runs):
            meant = near(side, known) or near(side.upper(), known) or f"; there are {', '.join(known)}"
            raise UsageError(f"window {over.words}: no run has a phase or value {side!r}{meant}")


def extremes(group: Iterable[Run], kind: str, over: Window) -> Extremes | None:
    """Smallest, mean and largest of a kind of memory (one of KINDS) in bytes: medians over the repeats that succeeded."""
    return _over_repeats(run_extremes(run, kind, over) for run in group if run.complete)


def _over_repeats(repeats: Iterable[Extremes | None]) -> Extremes | None:
    """Medians over repeats."""
    known = [extremes for extremes in repeats if extremes is not None]
    if not known:
        return None
    smallest, mean, largest = (statistics.median(values) for values in zip(*known, strict=True))
    return smallest, mean, largest


def _differences(figures: Extremes | None, first: Extremes | None) -> list[str]:
    """The change in percent from a model's first variant to another."""
    if figures is None or first is None:
        return [""] * len(ROWS)
    return [grid.percent(value / base) if base else "" for value, base in zip(figures, first, strict=True)]


# -- one run


def run_extremes(run: Run, kind: str, over: Window) -> Extremes | None:
    """Smallest, mean (weighted by time) and largest of a kind of memory over the window, in bytes; None where the run lacks the window."""
    if not run.timeline.samples or (run.imported and kind != KINDS[0]):  # a log does not say which part is file-backed
        return None
    columns = store.unpack(run.timeline)
    span = _span(run, columns.t_ns, over) if columns.t_ns else None
    if span is None:
        return None
    begin_ns, end_ns = span
    values = [
        file if kind == KINDS[2] else rss - file if kind == KINDS[1] else rss for rss, file in zip(columns.rss, columns.file, strict=True)
    ]
    polled = _extremes(columns.t_ns, values, begin_ns, end_ns)
    if polled is None or kind != KINDS[0]:
        return polled
    # A phase may end after the last sample. So a window without an end reaches to the last phase's end, and one that ends at a time to that time.
    if over.end is None:
        end_ns = max(end_ns, *(mark.end_ns for mark in run.before_release), 0)
    elif isinstance(over.end, int) and run.marks:
        end_ns = run.marks[0].begin_ns + over.end
    peaks = [mark.height_bytes for mark in run.marks if mark.sure and begin_ns <= mark.begin_ns and mark.end_ns <= end_ns]
    return polled[0], polled[1], max(polled[2], *peaks, 0)


def _extremes(t_ns: Sequence[int], values: Sequence[float], begin_ns: int, end_ns: int) -> Extremes | None:
    """Of a level that holds from each time until the next; its value where the window begins counts too."""
    inside = [(max(time, begin_ns), value) for time, value in zip(t_ns, values, strict=True) if time <= end_ns]
    first = max((index for index, (time, _) in enumerate(inside) if time <= begin_ns), default=0)
    inside = inside[first:]
    if not inside:
        return None
    steps = [(value, after - now) for (now, value), (after, _) in pairwise([*inside, (max(end_ns, inside[-1][0]), 0)])]
    total = sum(step for _, step in steps)
    mean = sum(value * step for value, step in steps) / total if total else inside[-1][1]
    return min(value for _, value in inside), mean, max(value for _, value in inside)


def _span(run: Run, t_ns: Sequence[int], over: Window) -> tuple[int, int] | None:
    """The window's start and end on CLOCK_MONOTONIC, None where the run, sampled at these times, does not have it."""
    last_ns = t_ns[-1]
    zero_ns = run.marks[0].begin_ns if run.marks else t_ns[0]
    startup = run.mark(STARTUP)
    begin_ns = startup.end_ns if startup is not None and over.begin is None else zero_ns  # without phases the program's start
    deleted = run.mark(RELEASE) if run.job.release else None
    end_ns = min(last_ns, deleted.begin_ns) if deleted is not None else last_ns
    if over.begin is None and over.end is not None:
        begin_ns = zero_ns
    for side, which in ((over.begin, 0), (over.end, 1)):
        if side is None:
            continue
        if isinstance(side, int):
            at = zero_ns + side
        else:
            place = _place(run, side)
            if place is None:
                return None
            at = place[which]
        if which:
            end_ns = min(at, last_ns) if isinstance(side, int) else at
        else:
            begin_ns = at
    return (begin_ns, end_ns) if begin_ns <= end_ns else None


def _place(run: Run, name: str) -> tuple[int, int] | None:
    """Begin and end of a phase; for a value, the first and last time it was reported."""
    mark = run.mark(name) or next((mark for mark in run.marks if mark.phase.lower() == name.lower()), None)
    if mark is not None:
        return mark.begin_ns, mark.end_ns
    times = [value.t_ns for value in run.values if value.name.lower() == name.lower()]
    return (times[0], times[-1]) if times else None


# -- values that programs report themselves


def _value_names(runs: Iterable[Run]) -> list[str]:
    return list(dict.fromkeys(value.name for run in runs for value in run.values))


def _value_extremes(run: Run, name: str, over: Window) -> Extremes | None:
    reported = [(value.t_ns, value.value) for value in run.values if value.name == name and value.value is not None]
    if not reported or not run.timeline.samples or (span := _span(run, store.unpack(run.timeline).t_ns, over)) is None:
        return None
    extremes = _extremes([t_ns for t_ns, _ in reported], [value for _, value in reported], *span)
    if extremes is None or name.endswith("_bytes"):
        return extremes
    inside = [value for t_ns, value in reported if span[0] <= t_ns <= span[1]]  # a loss is no level that holds until the next value
    return (min(inside), statistics.fmean(inside), max(inside)) if inside else extremes


def _reported(groups: Groups, names: Mapping[Key, str], over: Window, size: grid.Unit) -> list[tuple[str, list[str]]]:
    """Title and cells of a column for each value of each group; variants of a model that report the same figures share a column."""
    reported: dict[tuple[str, str], dict[Key, Extremes]] = {}
    for key, group in groups.items():
        good = [run for run in group if run.complete]
        for name in _value_names(good):
            figures = _over_repeats(_value_extremes(run, name, over) for run in good)
            if figures is not None:
                reported.setdefault((key.model, name), {})[key] = figures
    columns = []
    for (model, name), by_key in reported.items():
        shared = len(set(by_key.values())) == 1 and len(by_key) == sum(key.model == model for key in groups)
        for key, figures in list(by_key.items())[: 1 if shared else None]:
            title, unit = titled(name, figures, size)
            columns.append((f"{model if shared else names[key]}: {title}", [*map(unit.cell, figures)]))
    return columns


def titled(name: str, values: Sequence[float], size: grid.Unit) -> tuple[str, grid.Unit]:
    """A value's title, and the unit of it that these values have: bytes the table's, ns one of time, other values none."""
    unit = size if name.endswith("_bytes") else grid.choose_unit(NS, values) if name.endswith("_ns") else grid.Unit("", 1)
    return unit.caption(name.removesuffix("_bytes").removesuffix("_ns")), unit
