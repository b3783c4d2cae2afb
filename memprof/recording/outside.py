"""Time outside of all phases, between two of them: its peak, as far as that is known."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..records.types import OUTSIDE
from .fields import count
from .phases import Phases, Record, read_record
from .state import FoldState


class Gap(Struct):
    """Time between two phases; before is None where none follows. peak, high: the bounds of its peak in bytes; exact: whether that is known."""

    begin_ns: int
    end_ns: int
    after: str
    before: str | None
    peak: int = 0
    high: int = 0
    exact: bool = False


class Outside:
    """The highest of all gaps. since_ns: when the last phase ended, 0 before the first."""

    def __init__(self, state: FoldState, phases: Phases) -> None:
        self._state, self._phases = state, phases
        self.since_ns = 0
        self._after = ""
        self._newest: Gap | None = None  # the gap before the phase that runs
        self._highest: Gap | None = None
        self._hwm = 0

    def end_gap(self, end_ns: int, before: str | None) -> None:
        """Time outside of all phases is over."""
        gap = self._newest = Gap(self.since_ns, end_ns, self._after, before)
        self._phases.when_settled(gap.begin_ns, end_ns, lambda low, high: self._take(gap, low, high))

    def end_phase(self, phase: str, mark: dict[str, Any]) -> None:
        """A phase has ended. The high-water mark at its begin tells the peak of the gap before it, if the mark rose since the phase before."""
        gap, begin = self._newest, count(mark.get("hwm_begin_bytes", 0))
        if gap is not None and gap.before == phase and begin > self._hwm:
            gap.exact = True
            self._take(gap, begin, begin)
        self._hwm = count(mark.get("hwm_phase_bytes", 0))
        self.since_ns, self._after, self._newest = count(mark["end_ns"]), phase, None

    def _take(self, gap: Gap, low: int, high: int) -> None:
        """Take the bounds of a gap's peak, in bytes."""
        gap.peak, gap.high = max(gap.peak, low), max(gap.high, high)
        if self._highest is None or gap.peak > self._highest.peak:
            self._highest = gap

    def _take_life(self, peak: int, most_in_phases: int) -> None:
        """Take the peak of the process's life, in bytes: it was in the last gap if no phase and no earlier gap reached it."""
        earlier = self._highest.peak if self._highest is not None and self._highest is not self._newest else 0
        if peak > max(most_in_phases, earlier) and self._newest is not None:
            self._newest.exact = True
            self._take(self._newest, peak, peak)

    def complete(self, end_ns: int, life_peak: int) -> None:
        """The program has ended: add a record of the memory outside of all phases, if that is more than in any phase."""
        records = self._phases.records
        if not self.since_ns or self._phases.open or not records:
            return
        self.end_gap(max(end_ns, self.since_ns), None)
        self._phases.settle_all()
        most = max(record["rss_peak_bytes"] for record in records)
        self._take_life(life_peak, most)
        gap = self._highest
        if gap is None or gap.peak <= most + self._state.peak_bound:
            return
        place = next((at for at, record in enumerate(records) if record["phase"] == gap.before), len(records))
        records.insert(place, self._record(gap))
        where = f"between {gap.after} and {gap.before}" if gap.before else f"after {gap.after}"
        seconds, reached, highest = (gap.end_ns - gap.begin_ns) / 1e9, gap.peak / (1 << 20), most / (1 << 20)
        self._state.warnings.append(
            f"{where}, for {seconds:.2f} s outside of all phases, memory reached {reached:.1f} MiB, "
            f"above the {highest:.1f} MiB of the highest phase"
        )

    def _record(self, gap: Gap) -> Record:
        several = self._state.tree.had_others(gap.begin_ns, gap.end_ns)
        record = read_record(OUTSIDE, gap.begin_ns, gap.end_ns, gap.peak)
        record.update(rss_peak_exact=gap.exact and not several, samples=0, interval_ns=self._state.interval_ns(""))
        if several:
            record["rss_peak_high_bytes"] = max(gap.high, gap.peak)
        self._state.swap.describe(record)
        self._state.devices.describe(record, at_end=False)
        return record
