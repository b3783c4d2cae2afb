"""What was swapped out of a process while it ran, phase by phase, and how many threads it had: only /proc/PID/status tells both.

It is read every 10 ms at most. A process that brings pages back, or gives them up, between two readings is not seen doing it: what is known is a
least amount. A process that thrashes answers late; one reading is of one moment all the same, so a late one counts too, where it lies wholly
within a phase.
"""

from __future__ import annotations

from typing import Any

from .timeline import FILE, RSS, TimelineBuilder

_EVERY_NS = 10_000_000


class Swap:
    """The swapped-out pages of the measured process, or of its tree, over time.

    threads: the most that a process was seen with. timeline: from the first reading on that found swapped pages; its rss is the sum of resident
    and swapped pages of that moment, its file the swapped ones.
    """

    def __init__(self) -> None:
        self.threads = 1
        self._timeline = TimelineBuilder()

    def take(self, begin_ns: int, end_ns: int, rss: int, swap: int, threads: int) -> None:
        """Take a reading: resident and swapped pages in bytes, as of one moment between the two times."""
        self.threads = max(self.threads, threads)
        if swap or self._timeline:
            self._timeline.add(begin_ns, end_ns, rss + swap, swap)

    @property
    def newest(self) -> int:
        """What was swapped out when it was last read, in bytes."""
        return self._timeline.last[1]

    def describe(self, record: dict[str, Any]) -> None:
        """Add to a phase's record the most that was swapped out in it, and the peak of resident and swapped pages together, if any was."""
        swap_end = record.get("swap_end_bytes", 0)
        swap = max(swap_end, self._highest(record, FILE))
        if swap:
            both = max(self._highest(record, RSS), record["rss_peak_bytes"], record.get("rss_end_bytes", 0) + swap_end)
            record.update(swap_peak_bytes=swap, rss_swap_peak_bytes=both)

    def _highest(self, record: dict[str, Any], column: int) -> int:
        """The largest value in a phase. A reading that is the same as the one before is not in the recording: the level of the phase's begin was read
        again in it where none that differs came in time."""
        begin_ns, end_ns = record["begin_ns"], record["end_ns"]
        read, again_ns = self._timeline.highest(begin_ns, end_ns, column), begin_ns + _EVERY_NS
        return max(read, self._timeline.held(begin_ns, again_ns, column)) if again_ns <= end_ns else read

    def columns(self) -> dict[str, str]:
        """The timeline's columns of swap, packed; none if nothing was swapped."""
        if not self._timeline:
            return {}
        packed = self._timeline.encoded()
        return {"swap_t_ns": packed["t_ns"], "swap": packed["file"]}
