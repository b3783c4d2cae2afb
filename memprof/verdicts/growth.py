"""Does memory rise with use: a verdict on curves of memory by units of work, of several processes that did the same.

The curve of a process has a warm-up, whose end is found and not assumed, and a tail (see `curve_tail`). A tail that keeps its level is flat. Where no
tail is flat and none rises, or where processes do not agree, the verdict is undecided. A cache that fills evenly is a long warm-up: its end may lie
as late as beyond the middle of the run.

Kendall's test alone would call each warm-up a trend. A line through all points would do the same.

Nothing below a page over the whole run can be told.

A leak may fill memory that was freed before, and then the resident set does not rise until that is used up. The allocators' own counts of the bytes
in use tell it, where they were read: see `_in_freed_memory`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ..base.units import format_bytes
from ..records.store import TimelineColumns
from ..records.types import RELOAD
from ..records.work import Curve
from .curve_tail import LEAST_RISE, LEAST_SLOPE, SLOWER, Tail, by_doublings, middle_slope, points_of, slope_of, spread

Word = Literal["steady", "bounded", "grows", "undecided"]
Where = Literal["in use", "kept free", "file-backed", "other mappings"]

LEAST_PROCESSES = 3
LEAST_UNITS = 32  # of the unit that counts the rows
_GRID = 1000  # points of a curve by time
_STARTS = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)  # of the tail, as shares of the run; a longer warm-up needs a longer run
_LATE = 1 / 3  # of the run, from where on a bound was reached so late that a leak may have paused since
_ALIKE = 2.0  # rates of processes that agree
_NEARLY = 0.01  # of a bound: who is so near to it has reached it
_TOGETHER = 1 / 4  # of the run, that may lie between two rows: lines of a fast program are read many at once
_CLEARLY = 1.1  # the rise of the bytes in use over that of the resident set, from where on it is reported in its place
_EVEN = 48  # points of the bytes in use at even distances of the work, whose pairs are compared
_LEAST_LOOKS = 4  # at the bytes in use, that tell more than chance does of a saw-tooth
_STOPPED = 0.1  # the rate of the second half over that of the first, of bytes in use that rose no longer
_STEEP = 0.9  # of the rise to a bound, that the steep part has
_TOLD_APART = 0.7  # the scatter about one unit's line over that about another's


class Series(Struct, frozen=True):
    """Memory of one process after units of its work.

    counts: by unit, how much of it was done, the unit of the rows first. rss: resident and swapped pages and memory of devices, in bytes; file: the
    file-backed part, empty if unknown. used, free: bytes that the program holds of the allocator, and freed bytes that the allocator kept, after so
    many of the first unit (looked); all empty if unknown. doubt_bytes: how far rss was found from an exact reading.
    """

    counts: Mapping[str, Sequence[int]]
    rss: Sequence[int]
    file: Sequence[int] = ()
    looked: Sequence[int] = ()
    used: Sequence[int] = ()
    free: Sequence[int] = ()
    doubt_bytes: int = 0
    page_bytes: int = 4096


class Growth(Struct, frozen=True):
    """The verdict on one process.

    slope, low, high: bytes per unit of the tail, and its interval of 95%; for a flat tail high is the most that it can be. Where the program filled
    freed memory too, low is by the resident set alone, and slope and high by what it took. unit: what it grows
    with; rivals: units that explain it as well. warmup: after how much of the first unit the tail begins, and rise_bytes: how much memory rose until
    then; steep: after how much of it nine tenths of that had come, 0 where there is no bound. tail: how much of the first unit the tail has. where:
    which memory rose, None if that is not known. hidden: it fills memory that was freed before, and the resident set rises less than it. reason: why
    it is undecided, and needed: how much of the first unit would decide it, None if that cannot be told.
    """

    word: Word
    unit: str
    slope: float = 0.0
    low: float = 0.0
    high: float = 0.0
    warmup: int = 0
    rise_bytes: int = 0
    steep: int = 0
    tail: int = 0
    where: Where | None = None
    hidden: bool = False
    rivals: tuple[str, ...] = ()
    reason: str | None = None
    needed: int | None = None

    @property
    def row_unit(self) -> str:
        """The unit that counts the rows, for sentences: tokens and new shapes come beside iterations."""
        return self.unit if self.unit not in ("token", "shape") else "iteration"

    @property
    def late(self) -> bool:
        """Whether it is bounded, but reached its bound so late that a longer run is worth its time."""
        return self.word == "bounded" and self.warmup > _LATE * (self.warmup + self.tail)


class Verdict(Growth, frozen=True):
    """The verdict on all processes together: it needs all of them. processes: that on each."""

    processes: tuple[Growth, ...] = ()


def series(curve: Curve, page_bytes: int) -> Series:
    """The curve of a process as a series: swapped pages and memory of devices are counted as resident, because they are still there.

    A unit that comes once an iteration takes the iteration's place, because its name says more. The first load does not count as growth with reloads:
    their series begins after it.
    """
    first = next((row for row, count in enumerate(curve.counts[RELOAD]) if count), 0) if RELOAD in curve.counts else 0
    counts = {name: count[first:] for name, count in curve.counts.items()}
    iterations = counts.get("iteration")
    if any(name != "iteration" and list(count) == list(iterations or ()) for name, count in counts.items()):
        del counts["iteration"]
        counts = dict(sorted(counts.items(), key=lambda item: list(item[1]) != list(iterations or ())))
    both = curve.whole[first:]
    file = curve.file[first:]
    looks = curve.looks
    if looks is None:
        return Series(counts, both, file, page_bytes=page_bytes)
    doubt = max((abs(exact - seen) for exact, seen in zip(looks.rss, looks.seen, strict=True)), default=0)
    heap = (looks.iteration, looks.heap_used, looks.heap_free) if looks.heap_used else ((), (), ())
    return Series(counts, both, file, *heap, doubt_bytes=doubt, page_bytes=page_bytes)


def risen(processes: Sequence[Series], verdict: Verdict) -> tuple[int, bool]:
    """By how much memory rose in all, in the process where that was least, and whether that is of the bytes in use: more than the resident set,
    because they filled freed memory too."""
    if verdict.hidden:
        return max(0, min(process.used[-1] - process.used[0] for process in processes)), True
    each = [process.rss[-1] - process.rss[0] for process in processes]
    resident = max(0, min(each))
    rise = min(max([size, *_taken(process, range(len(process.looked)))[-1:]]) for process, size in zip(processes, each, strict=True))
    return (rise, True) if rise > _CLEARLY * resident else (resident, False)


def by_time(timeline: TimelineColumns, page_bytes: int) -> Growth:
    """The verdict on one process that was polled: bytes a second, and times in seconds."""
    t_ns = np.asarray(timeline.t_ns)
    grid_ns = np.linspace(t_ns[0], t_ns[-1], _GRID)
    rows = np.searchsorted(t_ns, grid_ns, side="right") - 1  # a row holds until the next
    ms = ((grid_ns - t_ns[0]) / 1e6).astype(int).tolist()
    rss, file = (np.asarray(column)[rows].tolist() for column in (timeline.rss, timeline.file))
    growth = judge_one(Series({"second": ms}, rss, file, page_bytes=page_bytes))
    scaled: dict[str, Any] = {name: 1000 * getattr(growth, name) for name in ("slope", "low", "high")}
    scaled.update((name, getattr(growth, name) // 1000) for name in ("warmup", "steep", "tail"))
    needed = growth.needed // 1000 if growth.needed is not None else None
    return replace(growth, **scaled, needed=needed)


def judge(processes: Sequence[Series]) -> Verdict:
    """The verdict on processes that did the same work.

    A process that rises in few steps does not tell units apart. The steps of several do: they come after the same amount of the unit that explains
    them, and after other amounts of a unit whose pace varies from process to process. Processes of the same pace do not tell them apart either: then
    the unit that most of them name stays.
    """
    each = _with_freed_memory(processes, [judge_one(process) for process in processes])
    if all(growth.word == "grows" for growth in each) and any(growth.rivals for growth in each):
        named = set.intersection(*({growth.unit, *growth.rivals} for growth in each))
        if len(named) > 1:
            units = sorted(named, key=list(processes[0].counts).index)
            mostly = max(units, key=[growth.unit for growth in each].count)
            unit, rivals = _alike_by(processes, units, mostly)
            each = tuple(_by(unit, rivals, growth, process) for growth, process in zip(each, processes, strict=True))
    return combined(each)


def _with_freed_memory(processes: Sequence[Series], each: Sequence[Growth]) -> tuple[Growth, ...]:
    """The verdicts, by the bytes in use for all processes whose resident set does not grow, if all of those tell more. Else a flat verdict may hide
    what the bytes in use leave open."""
    found = tuple(
        _with_taken(process, growth) if growth.word == "grows" else _in_freed_memory(process, growth)
        for process, growth in zip(processes, each, strict=True)
    )
    if all(before.word == "grows" or growth.word != before.word for growth, before in zip(found, each, strict=True)):
        return found
    each = [_with_taken(process, growth) if growth.word == "grows" else growth for process, growth in zip(processes, each, strict=True)]
    return tuple(
        replace(growth, high=max(growth.high, _most_in_use(process, growth))) if growth.word in ("steady", "bounded") else growth
        for process, growth in zip(processes, each, strict=True)
    )


def _with_taken(process: Series, growth: Growth) -> Growth:
    """A verdict of growth with the rate at which the program took memory, if that is above its interval: while freed memory is filled, the resident
    set rises by less. The interval then reaches from the one to the other. What was taken in one step is no rate: the slope is that of most of the
    work."""
    looks = _tail_looks(process, growth)
    taken = _taken(process, looks)
    if not taken:
        return growth
    units = [process.counts[growth.unit][row] for row in _rows_of(process, looks)]
    even = np.linspace(units[0], units[-1], _EVEN)
    rate = middle_slope(even, np.interp(even, units, taken))
    return replace(growth, slope=rate, high=rate) if rate > growth.high else growth


def _taken(process: Series, looks: Sequence[int]) -> list[int]:
    """By how much the bytes in use rose from the first of these looks to each, as far as they are resident or were freed before. Empty if they
    fell meanwhile, or the looks are too few."""
    if len(looks) < _LEAST_LOOKS or min(np.diff([process.used[place] for place in looks])) < -process.page_bytes:
        return []
    first, resident = looks[0], _resident_at(process, looks)
    return [
        min(process.used[place] - process.used[first], size - resident[0] - process.free[place] + process.free[first])
        for place, size in zip(looks, resident, strict=True)
    ]


def _tail_looks(process: Series, growth: Growth) -> list[int]:
    """The places of the looks at the bytes in use in the tail of a decided verdict, or after the first unit of an undecided one. What was given back
    in the first quarter of the work, where a warm-up may end, does not count."""
    begin = _tail_begin(growth)
    looks = [place for place, done in enumerate(process.looked) if done >= begin]
    early = [
        after
        for before, after in pairwise(looks)
        if process.used[after] < process.used[before] - process.page_bytes and process.looked[after] <= _STARTS[-1] * process.looked[-1]
    ]
    return [place for place in looks if place >= early[-1]] if early else looks


def _tail_begin(growth: Growth) -> int:
    return max(1, growth.warmup) if growth.word != "undecided" else 1


def _resident_at(process: Series, looks: Sequence[int]) -> list[int]:
    """The resident set at these looks."""
    return [process.rss[row] for row in _rows_of(process, looks)]


def _rows_of(process: Series, looks: Sequence[int]) -> list[int]:
    """The rows at these looks."""
    counts = np.asarray(process.counts[next(iter(process.counts))])
    rows = np.searchsorted(counts, [process.looked[place] for place in looks]).tolist()
    return [min(row, len(process.rss) - 1) for row in rows]


def _middle(process: Series, looks: Sequence[int]) -> int:
    """The look that is nearest to the middle of the work."""
    ends = process.looked[looks[0]] + process.looked[looks[-1]]
    return min(looks, key=lambda place: abs(2 * process.looked[place] - ends))


def _most_in_use(process: Series, growth: Growth) -> float:
    """The most that bytes in use can grow by each unit beside a flat resident set: by their whole range, in the tail or in its second half.

    Bytes that were taken and not written to move neither the resident set nor freed memory, and do not count.
    """
    looks = _tail_looks(process, growth)
    if len(looks) < _LEAST_LOOKS:
        return 0.0
    half = looks[looks.index(_middle(process, looks)) :]
    rates = []
    for part in (looks, half):
        taken = [resident - process.free[place] for place, resident in zip(part, _resident_at(process, part), strict=True)]
        used = [process.used[place] for place in part]
        length = process.looked[part[-1]] - process.looked[part[0]]
        if length:
            rates.append((min(max(used) - min(used), max(taken) - min(taken)) + process.page_bytes) / length)
    return min(rates)


def _in_freed_memory(process: Series, growth: Growth) -> Growth:
    """The verdict by the bytes that the program holds of the allocator, if they rose in memory that was freed before; else the same verdict.

    They are exact, and are read at few moments, after each eighth more of the work at the latest. They grow if they never fall, and rise no slower in
    the second half than in the first. Where no look lies between the halves, that cannot be told. What was taken in a step at first is warm-up, as in
    the tail of the resident set.
    """
    looks = _tail_looks(process, growth)
    begins = [[place for place in looks if process.looked[place] >= share * process.looked[-1]] for share in _STARTS if looks]
    found = [_of_looks(process, growth, part) for part in begins]
    return next((each for each in found if each.word == "grows"), found[0] if found else growth)


def _of_looks(process: Series, growth: Growth, looks: Sequence[int]) -> Growth:
    """The verdict by the bytes in use at these looks, else the same. A small rise counts if the looks lie so close that they show a tail that rises
    (see `curve_tail`)."""
    if not _taken(process, looks):
        return growth  # or a cache that is emptied and fills again
    first, last = looks[0], looks[-1]
    length = process.looked[last] - process.looked[first]
    rise, freed = (column[last] - column[first] for column in (process.used, process.free))
    before, after = _resident_at(process, (first, last))
    if after - before - freed < rise / 2:
        return growth  # or bytes in use that nothing was written to
    slope = rise / max(length, 1)
    total, begin = growth.warmup + growth.tail, max(_tail_begin(growth), process.looked[first])
    facts: dict[str, Any] = {"warmup": begin - 1, "tail": total - begin + 1, "where": "in use", "hidden": -freed >= rise / 2}
    if rise <= max(LEAST_RISE, LEAST_SLOPE * length, process.page_bytes):
        tail = _close_looks(process, looks)
        if tail is None or not tail.rises:
            return growth
        return Growth("grows", growth.unit, tail.slope, tail.low, tail.high, **facts)
    middle = _middle(process, looks)
    halves = process.looked[middle] - process.looked[first], process.looked[last] - process.looked[middle]
    if min(halves) >= length / 4:
        rates = (process.used[middle] - process.used[first]) / halves[0], (process.used[last] - process.used[middle]) / halves[1]
        if rates[0] > 0 and rates[1] >= SLOWER * rates[0]:
            return Growth("grows", growth.unit, slope, min(rates), max(rates), **facts)
        if rates[1] < _STOPPED * rates[0]:
            return growth
    if growth.word == "undecided":
        return growth
    used_up = round(total + process.free[last] / slope)
    reason = f"bytes in use rose by {format_bytes(rise)}, in memory that was freed before"
    return Growth("undecided", growth.unit, slope, tail=total, reason=reason, needed=max(4 * total, used_up))


def _close_looks(process: Series, looks: Sequence[int]) -> Tail | None:
    """The bytes in use as a tail at even distances of the work, None if a part between two looks is so long that its shape is unknown."""
    done = np.asarray([process.looked[place] for place in looks], dtype=np.float64)
    if float(np.diff(done).max()) > _TOGETHER * float(done[-1] - done[0]):
        return None
    even = np.linspace(done[0], done[-1], _GRID)
    return Tail(
        even, np.interp(even, done, np.asarray([process.used[place] for place in looks], dtype=np.float64)), done[0], process.page_bytes
    )


def _alike_by(processes: Sequence[Series], units: Sequence[str], mostly: str) -> tuple[str, tuple[str, ...]]:
    """The unit by which the curves of the processes lie closest to each other, and those that do no worse. Without a clear one it is `mostly`."""
    apart = {}
    for unit in units:
        common = np.linspace(0, min(process.counts[unit][-1] for process in processes), _GRID)
        curves = [_rises_at(process, unit, common) for process in processes]
        apart[unit] = float(np.mean(np.max(curves, axis=0) - np.min(curves, axis=0))) + processes[0].page_bytes
    best = min(units, key=lambda unit: apart[unit])
    if apart[best] > _TOLD_APART * apart[mostly]:
        best = mostly
    return best, tuple(unit for unit in units if unit != best and apart[best] > _TOLD_APART * apart[unit])


def _rises_at(process: Series, unit: str, common: NDArray[Any]) -> NDArray[Any]:
    """By how much memory had risen after so much of a unit; a row holds until the next."""
    rows = np.searchsorted(np.asarray(process.counts[unit]), common, side="right") - 1
    risen: NDArray[Any] = np.asarray(process.rss)[np.maximum(rows, 0)] - process.rss[0]
    return risen


def _by(unit: str, rivals: tuple[str, ...], growth: Growth, process: Series) -> Growth:
    """The verdict by another unit, that went along with its own."""
    pace = process.counts[growth.unit][-1] / process.counts[unit][-1]
    rates: dict[str, Any] = {name: pace * getattr(growth, name) for name in ("slope", "low", "high")}
    return replace(growth, unit=unit, rivals=rivals, **rates)


def combined(each: Sequence[Growth]) -> Verdict:
    """One verdict from those on the processes. All must agree, and grow at rates within a factor of two."""
    each = tuple(each)
    if len(each) < LEAST_PROCESSES:
        unit = each[0].unit if each else "iteration"
        return Verdict("undecided", unit, reason=f"{len(each)} of {LEAST_PROCESSES} processes were measured", processes=each)
    words = {growth.word for growth in each}
    middle = sorted(each, key=lambda growth: growth.slope)[len(each) // 2]
    whole = {
        "slope": middle.slope,
        "low": min(growth.low for growth in each),
        "high": max(growth.high for growth in each),
        "warmup": max(growth.warmup for growth in each),
        "rise_bytes": max(growth.rise_bytes for growth in each),
        "steep": max(growth.steep for growth in each),
        "tail": min(growth.tail for growth in each),
    }
    unsplit = {
        **whole,
        "warmup": 0,
        "tail": min(growth.warmup + growth.tail for growth in each),
    }  # as that of one process without a verdict
    longer = 4 * max(growth.warmup + growth.tail for growth in each)  # as the next round would be: only more work can make them agree
    needed = max((growth.needed for growth in each if growth.needed is not None), default=None if words == {"undecided"} else longer)
    if words <= {"steady", "bounded"}:
        return Verdict("bounded" if "bounded" in words else "steady", middle.unit, **whole, processes=each)  # type: ignore[arg-type]
    if words == {"grows"}:
        units = [{growth.unit, *growth.rivals} for growth in each]
        shared = set.intersection(*units)
        fastest, slowest = max(growth.slope for growth in each), min(growth.slope for growth in each)
        if len({growth.unit for growth in each}) > 1 or fastest <= _ALIKE * slowest:
            unit = middle.unit if middle.unit in shared or not shared else sorted(shared)[0]
            rivals = tuple(sorted(shared - {unit}))
            where = middle.where if len({growth.where for growth in each}) == 1 else None
            hidden = all(growth.hidden for growth in each)
            return Verdict("grows", unit, **whole, where=where, hidden=hidden, rivals=rivals, processes=each)  # type: ignore[arg-type]
        reason = f"all processes grow, but one {fastest / slowest:.1f} times as fast as another"
        return Verdict("undecided", middle.unit, **unsplit, reason=reason, needed=needed, processes=each)  # type: ignore[arg-type]
    undecided = [growth for growth in each if growth.word == "undecided"]
    growing = sum(growth.word == "grows" for growth in each)
    reason = undecided[0].reason or "" if undecided else ""
    if len(undecided) < len(each):
        some = f"growth in {growing}" if growing else f"no verdict on {len(undecided)}"
        some = f"{some} of {len(each)} processes"
        reason = f"{some}: {reason}" if reason else some
    return Verdict("undecided", middle.unit, **unsplit, reason=reason, needed=needed, processes=each)  # type: ignore[arg-type]


def judge_one(process: Series) -> Growth:
    """The verdict on one process, by the unit of its rows; what it grows with is then sought among all units.

    Memory that rises evenly with another unit may seem uneven by that of the rows: then the other is taken.
    """
    unit, *others = process.counts
    growth = _judged(process, unit)
    for other in others if growth.word == "undecided" else ():
        grows = _judged(process, other)
        if grows.word == "grows":
            return grows
    return growth


def _judged(process: Series, unit: str) -> Growth:
    done = np.asarray(process.counts[unit], dtype=np.float64)
    size = np.asarray(process.rss, dtype=np.float64)
    total = int(done[-1]) if len(done) else 0
    if total < LEAST_UNITS or len(done) < LEAST_UNITS:
        return Growth("undecided", unit, tail=total, reason=f"{total} are too few", needed=4 * LEAST_UNITS)
    together = int(np.diff(done).max())
    if together > _TOGETHER * total:
        return Growth(
            "undecided", unit, tail=total, reason=f"{together} of {total} came at once, so memory between them is unknown", needed=4 * total
        )
    floor = max(process.page_bytes, 2 * process.doubt_bytes)
    tails: list[Tail] = []
    for share in _STARTS:  # a tail takes milliseconds to look at, and mostly one of the first decides
        tails.append(tail := Tail(done, size, share * total, floor))
        if tail.flat:
            return _bounded(unit, done, size, tails[0], floor, tail) or _flat(unit, done, size, tail, floor)
        if tail.rises:
            return _grows(process, unit, tail)
    bound = _bounded(unit, done, size, tails[0], floor)
    if bound is not None:
        return bound
    rate = by_doublings(done, size, floor)
    if rate is not None:
        return _grows(process, unit, tails[0], rate)
    last = tails[-1]
    rise = max(0, round(float(size[-1] - size[0])))
    facts: dict[str, Any] = {
        "slope": last.slope,
        "low": last.low,
        "high": last.high,
        "tail": total,
        "rise_bytes": rise,
        "needed": 4 * total,
    }
    return Growth("undecided", unit, **facts, reason=last.reason)


def _flat(unit: str, done: NDArray[Any], size: NDArray[Any], tail: Tail, floor: float) -> Growth:
    level = float(np.median(tail.y[len(tail.y) // 2 :]))
    scatter = float(np.median(np.abs(tail.y - level))) + floor
    below = np.nonzero(size < level - 4 * scatter)[0]
    warmup = int(done[min(below[-1] + 1, len(done) - 1)]) if len(below) else 0
    if warmup > tail.begin + tail.length / 2:  # it came down to less for a moment: that was no warm-up
        warmup = int(done[np.searchsorted(done, tail.begin)])
    rise = round(level - float(size[0]))
    word: Word = "bounded" if rise > max(LEAST_RISE, 4 * scatter) else "steady"
    facts: dict[str, Any] = {"slope": 0.0, "low": min(tail.low, 0.0), "high": tail.most, "tail": int(done[-1]) - warmup}
    return Growth(word, unit, **facts, warmup=warmup, rise_bytes=max(rise, 0), steep=_steep(done, size, rise))


def _bounded(unit: str, done: NDArray[Any], size: NDArray[Any], whole: Tail, floor: float, flat: Tail | None = None) -> Growth | None:
    """What filled evenly until its bound, None if it is no such thing. What is emptied and fills again is as large as at its fullest.

    flat: a part that is flat in any case. Else memory must keep its height.
    """
    if whole.bound_at is None:
        return None
    tail = Tail(done, size, whole.bound_at, floor)
    if tail.keeps_height:
        most, level = tail.most_of_bound, float(np.median(tail.peaks))
    elif flat is not None:  # it is not as full in each quarter: its last height is the best that is known
        most, level = flat.most, float(size[done <= whole.bound_at].max())
    else:
        return None
    rise = level - float(size[0])
    warmup = int(done[np.argmax(size - size[0] >= rise - max(4 * floor, _NEARLY * rise))])
    steep = _steep(done, size, rise)
    return Growth("bounded", unit, high=most, warmup=warmup, rise_bytes=round(rise), steep=steep, tail=int(done[-1]) - warmup)


def _steep(done: NDArray[Any], size: NDArray[Any], rise: float) -> int:
    """After how many units memory had first risen by nine tenths of this: a cache of keys that come by chance fills ever more slowly."""
    return int(done[np.argmax(size - size[0] >= _STEEP * rise)])


def _grows(process: Series, unit: str, tail: Tail, rate: float | None = None) -> Growth:
    rows = np.asarray(process.counts[next(iter(process.counts))])
    begin = int(rows[len(rows) - len(tail.done)]) if tail.begin else 0
    explained, rivals = _explained(process, begin)
    slope, low, high = (tail.slope, tail.low, tail.high) if rate is None else (rate, rate / 2, rate * 2)
    if explained != unit:
        done = rows.astype(np.float64)
        other = np.asarray(process.counts[explained], dtype=np.float64)
        size = np.asarray(process.rss, dtype=np.float64)
        slope, low, high = slope_of(*points_of(other[done >= begin], size[done >= begin]))
    rise = max(0, round(float(tail.size[0]) - process.rss[0]))
    facts: dict[str, Any] = {"slope": slope, "low": low, "high": high, "warmup": begin, "rise_bytes": rise, "tail": int(rows[-1]) - begin}
    return Growth("grows", explained, **facts, where=_where(process, begin), rivals=rivals)


def _explained(process: Series, begin: int) -> tuple[str, tuple[str, ...]]:
    """The unit along which memory lies closest to a line, and those that do no worse."""
    unit, *others = process.counts
    done = np.asarray(process.counts[unit], dtype=np.float64)
    size = np.asarray(process.rss, dtype=np.float64)[done >= begin]
    scatter = {}
    for name in (unit, *others):
        count = np.asarray(process.counts[name], dtype=np.float64)[done >= begin]
        if count[-1] - count[0] < 4:
            continue
        slope, _, _ = slope_of(*spread(count, size))
        rest = size - slope * count
        scatter[name] = float(np.mean(np.abs(rest - np.median(rest)))) + process.page_bytes
    best = min(scatter, key=lambda name: (scatter[name] * (1.0 if name == unit else 1.02), name)) if scatter else unit
    rivals = tuple(name for name in scatter if name != best and scatter[best] > _TOLD_APART * scatter[name])
    return best, rivals


def _where(process: Series, begin: int) -> Where | None:
    """Which memory rose in the tail: that with more than half of the rise, by slopes, in which a step such as a library that is used late does not
    count."""
    unit, *_ = process.counts
    done = np.asarray(process.counts[unit])
    tail = done >= begin
    if not process.file or (rise := middle_slope(*spread(done[tail], np.asarray(process.rss)[tail]))) <= 0:
        return None
    if middle_slope(*spread(done[tail], np.asarray(process.file)[tail])) > rise / 2:
        return "file-backed"
    looked = np.asarray(process.looked)
    if (looked >= begin).sum() < 2:
        return None
    even = np.linspace(max(begin, looked[0]), looked[-1], _EVEN)
    if middle_slope(even, np.interp(even, looked, process.used)) > rise / 2:
        return "in use"
    return "kept free" if middle_slope(even, np.interp(even, looked, process.free)) > rise / 2 else "other mappings"
