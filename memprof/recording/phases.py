"""The phases of a run, and their records: a phase that comes again is merged with its record, and sums that are settled later reach theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .devices import merge_devices
from .fields import NEVER
from .state import FoldState

Record = dict[str, Any]  # memprof.records.types.Mark, as long as it may change
_TIMES = 4096  # of a phase whose memory is followed; of hours the first are enough, as in native/memprof.h


class Phases:
    """records: of the phases that have ended; last: the one that ended last. open: those that have begun, the innermost last. name: the one that
    runs. Both names are empty for none."""

    def __init__(self, state: FoldState) -> None:
        self._state = state
        self.records: list[Record] = []
        self.open: list[str] = []
        self.name = self.last = ""
        self.times: list[int] = []
        self._polls_before = 0
        self._refaults_before = 0 if state.header.message.start.group is not None else None  # a new group begins with none
        self._spans: list[tuple[int, int, Callable[[int, int], None]]] = []  # whose sum is not settled yet

    def begin(self, phase: str) -> None:
        """A phase begins, inside of those that are open."""
        self.name = phase
        self.open.append(phase)
        self.times = []
        self.mark()

    def end(self, phase: str) -> None:
        """It has ended: the one around it goes on."""
        if phase in self.open:
            self.open.remove(phase)
        self.name, self.times = self.open[-1] if self.open else "", []

    def mark(self) -> None:
        """Polls and refaults count from here on."""
        self._polls_before, self._refaults_before = self._state.polls, self._state.charges.refaults

    def record(self, phase: str) -> Record | None:
        """The record of a phase that has ended."""
        return next((record for record in self.records if record["phase"] == phase), None)

    def keep(self, record: Record, devices_read: bool = False) -> None:
        """Keep the record of a phase that has ended; its samples, period, swap, devices and refaults are added. devices_read: they were read at its
        end."""
        state, phase = self._state, record["phase"]
        self.last = phase
        begin_ns, end_ns = record["begin_ns"], record["end_ns"]
        several = state.tree.had_others(begin_ns, end_ns)
        if several:
            record["rss_peak_exact"] = False  # each process has a high-water mark, their sum has none
        interval_ns = state.interval_ns(phase)
        record.update(samples=state.polls - self._polls_before if interval_ns else 0, interval_ns=interval_ns)
        if state.charges.refaults is not None and self._refaults_before is not None:
            record["refaults"] = state.charges.refaults - self._refaults_before
        self.mark()
        state.swap.describe(record)
        state.devices.describe(record, devices_read)
        before = self.record(phase)
        if before is None:
            self.records.append(record)
        else:
            _merge(before, record, follows=state.header.message.follows)
        if several:
            self.when_settled(begin_ns, end_ns, lambda low, high: self._bound(phase, low, high))

    def _bound(self, phase: str, low: int, high: int) -> None:
        record = self.record(phase)
        if record is None:  # it ended with a line, and marks have come since
            return
        record["rss_peak_bytes"] = max(record["rss_peak_bytes"], low)
        record["rss_peak_high_bytes"] = max(record.get("rss_peak_high_bytes", 0), high, record["rss_peak_bytes"])

    def when_settled(self, begin_ns: int, end_ns: int, tell: Callable[[int, int], None]) -> None:
        """Call `tell` with the bounds of the largest sum between the two times, once they are known."""
        self._spans.append((begin_ns, end_ns, tell))
        self.settle(self._state.tree.own.settled_ns)

    def settle(self, until_ns: int) -> None:
        """Tell the sum of the spans up to this time: it is known by now."""
        known = [span for span in self._spans if span[1] <= until_ns]
        if known:
            self._spans = [span for span in self._spans if span[1] > until_ns]
        for begin_ns, end_ns, tell in known:
            tell(*self._state.tree.own.highest(begin_ns, end_ns))

    def settle_all(self) -> None:
        """Tell the sum of all spans, with what is known."""
        self._state.tree.settle()
        self.settle(NEVER)


def read_record(phase: str, begin_ns: int, end_ns: int, peak: int) -> Record:
    """The record of a phase whose peak comes from samples."""
    return {"phase": phase, "begin_ns": begin_ns, "end_ns": end_ns, "times_ns": [], "rss_peak_bytes": peak, "rss_peak_exact": False}


def _merge(before: Record, record: Record, follows: bool) -> None:
    """Make one record of both: each time is an iteration, and figures at the end are of the last."""
    times_ns = before["times_ns"] or [before["end_ns"] - before["begin_ns"]]
    times_ns += record["times_ns"] or [record["end_ns"] - record["begin_ns"]]
    if follows:
        del times_ns[_TIMES:]
    record["times_ns"] = times_ns
    record["begin_ns"] = before["begin_ns"]
    if "swap_peak_bytes" in before or "swap_peak_bytes" in record:
        swap = max(mark.get("swap_peak_bytes", 0) for mark in (before, record))
        record.update(swap_peak_bytes=swap, rss_swap_peak_bytes=max(_with_swap(before), _with_swap(record)))
    record["rss_peak_bytes"] = max(before["rss_peak_bytes"], record["rss_peak_bytes"])
    record["rss_peak_exact"] = before["rss_peak_exact"] and record["rss_peak_exact"]
    merge_devices(before, record)
    charges = [name for name in before if name.startswith("charged_") and name in record]
    record.update((name, max(before[name], record[name])) for name in charges)
    for name in ("samples", "minor_faults", "major_faults", "refaults", "read_bytes", "cpu_ns"):
        if name in before and name in record:
            record[name] += before[name]
    if "units" in before:
        units = record.setdefault("units", {})
        units.update((unit, total + units.get(unit, 0)) for unit, total in before["units"].items())
    if "rss_peak_high_bytes" in before:
        record["rss_peak_high_bytes"] = max(before["rss_peak_high_bytes"], record["rss_peak_bytes"])
    if "rss_begin_bytes" in before:
        record["rss_begin_bytes"] = before["rss_begin_bytes"]
    before.clear()
    before.update(record)


def _with_swap(record: Record) -> int:
    """The peak of resident and swapped pages together, in bytes."""
    return int(record["rss_swap_peak_bytes"] if "rss_swap_peak_bytes" in record else record["rss_peak_bytes"])
