"""Readings of the shares (PSS) of all processes of a tree, a few at a time: when a reading is worth its cost, and its result.

A reading takes milliseconds a process and holds the process's memory map meanwhile, so it has a limited share of the time and is spread over
polls. Events in the tree meanwhile make it wrong: it is dropped if a process came or went, or if events changed too much; smaller changes are
added to its bounds.
"""

import time

from . import procfs

_clock = time.thread_time_ns  # CPU time of reading alone: on a busy machine much more time passes
_SHARE = 0.018  # of one CPU
_ALLOWANCE_NS = 100_000_000  # beyond the share: a short run is read too
_SLICE_NS = 2_000_000  # the longest that a poll is held up; a process is always read whole
_WANTED = 0.004  # of the sum: bounds closer than this need no reading
_LEAST = 256 << 10
_REFRESH_NS, _SOON_NS = 500_000_000, 50_000_000  # shares are read again after this in any case, and where processes have come or gone
_QUIET_NS = 2_000_000  # without an event, before a reading begins
_PATIENCE_NS = 100_000_000  # the longest wait for such quiet
_PAUSE_NS, _PAUSE_MOST_NS = 2_000_000, 64_000_000  # after a reading that was dropped, doubled each time


class Rounds:
    """The readings of one tree."""

    def __init__(self, now):
        self.count = 0
        self.refused = 0  # processes whose shares may not be read
        self._begin_ns = self._last_ns = now
        self._spent_ns = 0
        self._waiting = None  # processes that are still to be read in this round
        self._read = []
        self._moved = self._moved_seen = self._limit = 0
        self._changed_ns = 0  # when a process last came or went, 0 for not since the last round
        self._moved_ns = self._wanted_ns = self._pause_until_ns = 0
        self._pause_ns = _PAUSE_NS
        self._leaving = []

    def left(self, pid, now):
        """A process is ending. Its memory is unmapped meanwhile; until it is gone, the other processes' shares are too small."""
        self._leaving.append(pid)
        self.changed(now)

    def changed(self, now):
        """A process has come or gone: the reading that is under way is mixed."""
        self._changed_ns = now
        self.drop(now)

    def drop(self, now):
        """Drop the reading that is under way: too much has happened."""
        if self._waiting is not None:
            self._waiting, self._read = None, []
            self._pause_ns = min(2 * self._pause_ns, _PAUSE_MOST_NS)
            self._pause_until_ns = now + self._pause_ns

    def step(self, now, members, whole, tell_faults):
        """Begin a round if it is time for it, or read on; the processes have just been polled.

        whole: the Sum of all members. tell_faults: called with a process, so that the sums hear of its faults. Returns [(process, shares)] a poll
        after the last process was read, when the events meanwhile are known, else None. Shares are None if they may not be read.
        """
        if self._waiting is None and not self._time_to_begin(now, whole):
            return None
        begin_ns = _clock()
        if self._waiting is None:
            for node in members:
                tell_faults(node)
            self._waiting, self._read, self._moved = list(members), [], whole.moved
            self._limit = max(_LEAST, _WANTED * whole.last[0], whole.width / 8)
        complete = not self._waiting
        while self._waiting:
            node = self._waiting.pop()
            self._read.append((node, procfs.shares(node.task)))
            if _clock() - begin_ns > _SLICE_NS:
                break
        if complete:
            for node in members:
                tell_faults(node)
        self._spent_ns += _clock() - begin_ns
        if self.spread(whole) > self._limit:
            self.drop(now)
        elif complete:
            done, self._waiting, self._read = self._read, None, []
            self._last_ns, self._wanted_ns, self._pause_ns = now, 0, _PAUSE_NS
            self.count += 1
            self._changed_ns = 0
            self.refused = sum(shares is None for _, shares in done)
            return done
        return None

    def spread(self, whole):
        """How far the overlap that was read may be from the overlap at the end of the round, in bytes."""
        return whole.moved - self._moved

    def _time_to_begin(self, now, whole):
        if whole.moved != self._moved_seen:
            self._moved_seen, self._moved_ns = whole.moved, now
        refresh_ns = _SOON_NS if self._changed_ns else _REFRESH_NS
        if now - max(self._last_ns, self._changed_ns) < refresh_ns and whole.width < max(_LEAST, _WANTED * whole.last[0]):
            self._wanted_ns = 0
            return False
        self._wanted_ns = self._wanted_ns or now
        if now < self._pause_until_ns or (now - self._moved_ns < _QUIET_NS and now - self._wanted_ns < _PATIENCE_NS):
            return False
        if self._spent_ns > (now - self._begin_ns) * _SHARE + _ALLOWANCE_NS:
            return False
        if self._leaving:
            states = [(pid, procfs.stat(pid)) for pid in self._leaving]
            self._leaving = [pid for pid, stat in states if stat is not None and not stat.ended]
        return not self._leaving
