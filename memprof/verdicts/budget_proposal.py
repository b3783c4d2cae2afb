"""The budget that a program's peak would keep to: its highest repeat and room for its own noise."""

from __future__ import annotations

import math

from msgspec import Struct

from ..base.units import format_bytes
from ..records.summary import Row, whole
from ..records.types import PEAK
from .baseline import BaselineEntry
from .verdicts import Limits, floor

# Of five repeats, and five later ones of the same normal noise, the highest of the later lies above the budget in 0.8% of the cases; with three
# standard deviations in 3.7% (4,000 trials).
STDEVS = 5
_MIB = 1 << 20


class BudgetProposal(Struct, frozen=True):
    """A budget for a row's peak. tenths: the limit in tenths of a MiB, rounded up. room_bytes: above the highest repeat, before it is rounded. noisy:
    the noise makes the room, and not the least difference that a gate counts."""

    row: Row
    tenths: int
    room_bytes: float
    noisy: bool

    @property
    def word(self) -> str:
        """The limit as `--budget` takes it."""
        return f"{self.tenths // 10}MiB" if self.tenths % 10 == 0 else f"{self.tenths / 10}MiB"

    @property
    def sentence(self) -> str:
        """The budget and its reason."""
        row = whole(self.row)
        count = len(row.values)
        highest = (
            f"the highest of {count} repeats is {format_bytes(row.max)}" if count > 1 else f"the only repeat is {format_bytes(row.max)}"
        )
        if self.noisy:
            room = f"{STDEVS} standard deviations of its noise are {format_bytes(self.room_bytes)}"
        else:
            room = f"a gate counts no difference below {format_bytes(self.room_bytes)}"
        lone = "; one repeat does not show the noise" if count == 1 else ""
        return f"A budget of {self.word} would hold: {highest}, and {room}{lone}"


def proposal(entry: BaselineEntry) -> BudgetProposal | None:
    """The budget for an entry's peak, None if it has no peak."""
    row = next((row for row in entry.rows if (row.phase, row.metric) == (PEAK, "rss_peak_bytes")), None)
    if row is None:
        return None
    total = whole(row)
    least = floor(total.metric, total.median, entry.machine.peak_bound_bytes, Limits())
    noise = STDEVS * total.stdev
    room = max(noise, least)
    step = 10 if total.max >= 10 * _MIB else 1
    return BudgetProposal(row, math.ceil((total.max + room) * 10 / _MIB / step) * step, room, noise > least)
