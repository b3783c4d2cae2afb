"""What was swapped out of a process while it ran, phase by phase, and how many threads it had: only /proc/PID/status tells both.

It costs 7 us to read where statm costs 1.3, and more to parse. So it is read every 10 ms at most, and not at all where there is no swap and the
kernel's counters do not depend on threads. A process that brings pages back, or gives them up, between two readings is not seen doing it: what
is known is a least amount.
"""

from . import procfs
from .timeline import Timeline

EVERY_NS = 10_000_000


class Swapped:
    """The swapped-out pages of the measured process, or of its tree, over time.

    threads: the most that a process was seen with. timeline: a row a reading from the first on that found swapped pages; its rss is the sum of
    resident and swapped pages of that moment, its file the swapped ones.
    """

    def __init__(self):
        self.threads = 1
        self.timeline = Timeline()
        self._wanted = procfs.has_swap() or procfs.late_by_thread()
        self._next_ns = 0

    def look(self, pid, now, late):
        """Read, if it is time for it. late: called with `now`; whether the reading took too long to be of that time."""
        if not self._wanted or now < self._next_ns:
            return
        self._next_ns = now + EVERY_NS
        reading = procfs.swapped(pid)
        if reading is not None and not late(now):
            self.take(now, *reading)

    def take(self, now, rss, swap, threads):
        """Take a reading: resident and swapped pages in bytes, as of one moment."""
        self.threads = max(self.threads, threads)
        if swap or self.timeline.count:
            self.timeline.add(now, rss + swap, swap, 0)

    @property
    def newest(self):
        """What was swapped out when it was last read, in bytes."""
        return self.timeline._last[1][1] if self.timeline.count else 0

    def tell(self, record):
        """Add to a phase's record the most that was swapped out in it, and the peak of resident and swapped pages together, if any was."""
        begin_ns, end_ns = record["begin_ns"], record["end_ns"]
        swap_end = record.get("swap_end_bytes", 0)
        swap = max(swap_end, self.timeline.highest(begin_ns, end_ns, column=2))
        if swap:
            both = max(record["rss_peak_bytes"], record.get("rss_end_bytes", 0) + swap_end, self.timeline.highest(begin_ns, end_ns))
            record.update(swap_peak_bytes=swap, rss_swap_peak_bytes=both)

    def columns(self):
        """The timeline's columns of swap, packed; none if nothing was swapped."""
        if not self.timeline.count:
            return {}
        packed = self.timeline.encoded()
        return {"swap_t_ns": packed["t_ns"], "swap": packed["file"]}
