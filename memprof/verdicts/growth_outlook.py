"""What a verdict of growth has not ruled out, and how long a run would tell: a leak and a cache rise alike until the cache is full.

A setting of the runtime that bounds a cache says where growth would stop, if that cache is what grows. Nothing here measures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..base.units import counted, format_bytes
from .curve_tail import BOUND_SHARE, LEAST_RISE
from .growth import Verdict, Word

Counts = Literal["bytes", "entries"]

_LONGER = 2.5  # times the longest run, for one that tells more of growth
_MUCH_LONGER = 4  # for one that tells more of a level
_SIZE = (0.9, 1.25)  # of a bound's bytes: a cache has bytes beside its entries, and the process has other memory that rose
_FILLED = 0.1  # how far from a bound's entries a cache is full, as a share, if each unit adds one


class CacheBound(Struct, frozen=True):
    """A knob that bounds a cache: its name, its value here, and what it counts."""

    knob: str
    value: int
    counts: Counts


class Outlook(Struct, frozen=True):
    """What more work could overturn a verdict, and to what.

    to: the words that it could become. units: a cache that is not full, or growth that does not begin, within so much of the unit that counts
    the rows is not ruled out. rise_bytes: how much memory rose meanwhile; in_use: whether that is of the bytes in use, and more than the resident set
    rose by. slope_bytes: growth of less than this for each unit of the verdict is not ruled out either; 0 for a verdict of growth. needed: how much
    of the first unit would tell, None if no longer run does. shown: a bound within so much of it would then be seen. option: what asks `memprof grow`
    for it, None if the work cannot be made longer by it.

    bound: the setting at whose value growth stops, if its cache is what grows, or that memory has reached, None for none. bound_units: how much of
    the first unit fills it. passed: settings whose bound memory has left behind, so that their caches alone are not what grows.
    """

    to: tuple[Word, ...]
    units: int
    rise_bytes: int
    slope_bytes: float = 0.0
    needed: int | None = None
    shown: int | None = None
    option: str | None = None
    bound: CacheBound | None = None
    bound_units: int | None = None
    passed: tuple[CacheBound, ...] = ()
    in_use: bool = False

    def unfilled_cache(self, unit: str) -> str:
        """What a verdict of growth has not ruled out, without its stop. unit: what counts the rows."""
        what = "Memory in use" if self.in_use else "Memory"
        return f"{what} rose by {format_bytes(self.rise_bytes)} in {counted(self.units, unit)}. It may be a cache that is not full yet"


def outlook(verdict: Verdict, rise: tuple[int, bool], bounds: Sequence[CacheBound] = (), *, longer: bool = True) -> Outlook:
    """What could overturn the verdict. rise: see growth.risen. longer: whether `memprof grow` can repeat the work more often."""
    units = verdict.warmup + verdict.tail
    rise_bytes, in_use = rise
    if verdict.word == "grows":
        return replace(_of_growth(units, rise_bytes, bounds, longer), in_use=in_use)
    if verdict.word == "undecided":
        bound, filled = _next_bound(units, rise_bytes, bounds) if rise_bytes > LEAST_RISE else (None, None)
        option = _option(verdict.needed) if longer else None
        return Outlook(
            ("steady", "bounded", "grows"), units, rise_bytes, needed=verdict.needed, option=option, bound=bound, bound_units=filled
        )
    needed = _rounded(_MUCH_LONGER * units)
    reached = next((bound for bound in bounds if _reached(bound, verdict)), None) if verdict.word == "bounded" else None
    to: tuple[Word, ...] = ("grows",) if verdict.word == "bounded" else ("bounded", "grows")
    option = _option(needed) if longer else None
    return Outlook(to, units, rise_bytes, verdict.high, needed, None, option, reached, verdict.warmup if reached else None)


def _of_growth(units: int, rise_bytes: int, bounds: Sequence[CacheBound], longer: bool) -> Outlook:
    bound, filled = _next_bound(units, rise_bytes, bounds)
    passed = tuple(each for each in bounds if each.counts == "bytes" and rise_bytes > _SIZE[1] * each.value)
    needed = _rounded(max(_LONGER * units, (filled or 0) / BOUND_SHARE))
    option = _option(needed) if longer else None
    return Outlook(("bounded",), units, rise_bytes, 0.0, needed, int(BOUND_SHARE * needed), option, bound, filled, passed)


def _next_bound(units: int, rise_bytes: int, bounds: Sequence[CacheBound]) -> tuple[CacheBound | None, int | None]:
    """The bound that is reached first of those that are still ahead, and after how much of the first unit that is."""
    ahead: list[tuple[int, CacheBound]] = []
    for bound in bounds:
        filled = bound.value if bound.counts == "entries" else math.ceil(bound.value * units / max(rise_bytes, 1))
        if bound.value * _SIZE[1] >= rise_bytes if bound.counts == "bytes" else filled > units:
            ahead.append((max(filled, units), bound))
    if not ahead:
        return None, None
    first_filled, first = min(ahead, key=lambda pair: pair[0])
    return first, first_filled


def _reached(bound: CacheBound, verdict: Verdict) -> bool:
    if bound.counts == "bytes":
        return _SIZE[0] * bound.value <= verdict.rise_bytes <= _SIZE[1] * bound.value
    return abs(verdict.warmup - bound.value) <= _FILLED * bound.value


def _option(units: int | None) -> str | None:
    return f"--budget {units}" if units is not None else None


def _rounded(units: float) -> int:
    """Upwards, to two digits that count."""
    step = int(10 ** max(0, len(str(math.ceil(units))) - 2))
    return math.ceil(units / step) * step
