"""Readings of the shares (PSS) of all processes, a few at a time: when a round is worth its cost, and its lines.

A reading takes milliseconds a process and holds the process's memory map meanwhile, so it has a limited share of the time and is spread over
polls. If a process comes or goes meanwhile, the round is dropped.
"""

import time

from . import procfs
from .looks import LookBudget

_clock, _cpu = time.monotonic_ns, time.thread_time_ns
_SHARE, _ALLOWANCE_NS = 0.018, 100_000_000
_SLICE_NS = 2_000_000  # the longest that a poll is held up; a process is always read whole
_LEAST = (256 << 10) // procfs.PAGE  # by which resident sets have changed since the last round
_REFRESH_NS, _SOON_NS = 500_000_000, 50_000_000  # shares are read again after this in any case, and where processes have come or gone
_QUIET_NS = 2_000_000  # without a change, before a round begins
_PATIENCE_NS = 100_000_000  # the longest wait for such quiet


class Rounds:
    """The rounds over all processes that do not run in another's memory."""

    def __init__(self, writer, processes, begin_ns):
        self._writer, self._processes = writer, processes
        self._budget = LookBudget(begin_ns, _SHARE, _ALLOWANCE_NS)
        self._waiting = None  # processes that are still to be read in this round; None between rounds
        self._last_ns, self._changed_ns = begin_ns, 0  # the last round; when a process last came or went, 0 for not since then
        self._moved = self._moved_seen = self._turnover = 0  # as of the last round, and of the last step
        self._moved_ns = self._wanted_ns = 0

    def step(self, now):
        """Begin a round if it is time for it, or read on, or end it a poll after the last process was read; all have just been polled."""
        processes = self._processes
        if processes.turnover != self._turnover:
            self._turnover, self._changed_ns = processes.turnover, now
            if self._waiting is not None:
                self._waiting, self._wanted_ns = None, 0  # dropped: the next one waits for quiet again
        if processes.moved != self._moved_seen:
            self._moved_seen, self._moved_ns = processes.moved, now
        members = processes.members()
        if len(members) < 2 or (self._waiting is None and not self._is_time(now)):
            return
        begin_ns = _cpu()
        if not self._waiting:
            for process in members:
                processes.look_at_stat(process)
        if self._waiting is None:
            self._waiting, self._moved = members, processes.moved
            self._writer.tell(b"round", b"begin")
        elif not self._waiting:
            self._waiting, self._last_ns = None, now
            self._wanted_ns = self._changed_ns = 0
            self._writer.tell(b"round", b"end")
        while self._waiting:
            process, read_ns = self._waiting.pop(), _clock()
            self._writer.tell_since(b"shares", read_ns, process.pid, procfs.rollup(process.statm.task))
            if _cpu() - begin_ns > _SLICE_NS:
                break
        self._budget.spend(begin_ns)

    def _is_time(self, now):
        refresh_ns = _SOON_NS if self._changed_ns else _REFRESH_NS
        if now - max(self._last_ns, self._changed_ns) < refresh_ns and self._processes.moved - self._moved < _LEAST:
            self._wanted_ns = 0
            return False
        self._wanted_ns = self._wanted_ns or now
        if now < self._budget.free_ns:
            return False
        if now - self._moved_ns < _QUIET_NS and now - self._wanted_ns < _PATIENCE_NS:
            return False
        return not self._processes.leaves()
