"""Phases without marks: time outside of all phases, and phases that end where a line is printed."""

from . import procfs
from .listening import count

OUTSIDE = "between phases"  # as memprof.runs.records has it


class Gap:
    """Time outside of all phases, between two of them (before is None where none follows), and its peak as far as that is known."""

    def __init__(self, begin_ns, end_ns, after, before):
        self.begin_ns, self.end_ns, self.after, self.before = begin_ns, end_ns, after, before
        self.peak = self.high = 0
        self.exact = False


class Outside:
    """The highest of all gaps. since_ns: when the last phase ended; newest: the gap before the phase that runs."""

    def __init__(self):
        self.since_ns, self.after, self.newest, self.highest = 0, "", None, None
        self._hwm = 0

    def tell(self, gap, low, high):
        """Take the bounds of a gap's peak, in bytes, as polling saw them."""
        gap.peak, gap.high = max(gap.peak, low), max(gap.high, high)
        if self.highest is None or gap.peak > self.highest.peak:
            self.highest = gap

    def phase_ended(self, phase, mark):
        """A phase has ended. The high-water mark at its begin tells the peak of the gap before it, if the mark rose since the phase before."""
        gap, begin = self.newest, count(mark.get("hwm_begin_bytes", 0))
        if gap is not None and gap.before == phase and begin > self._hwm:
            gap.exact = True
            self.tell(gap, begin, begin)
        self._hwm = count(mark.get("hwm_phase_bytes", 0))
        self.since_ns, self.after, self.newest = count(mark["end_ns"]), phase, None

    def tell_life(self, peak, most_in_phases):
        """Take the peak of the process's life, in bytes: it was in the last gap if no phase and no earlier gap reached it."""
        if peak > max(most_in_phases, self.highest.peak if self.highest is not self.newest else 0):
            self.newest.exact = True
            self.tell(self.newest, peak, peak)


class LineMark:
    """A phase of a process that writes no marks, seen from outside: begun here, ended by `ended`. reset: its high-water mark was reset."""

    def __init__(self, pid, begin_ns, fresh=False):
        self.begin_ns = begin_ns
        self._pid = pid
        before = {} if fresh else procfs.status(pid)
        self._rss, self._hwm = before.get("rss", 0), before.get("hwm", 0)
        self._counters, self._read = (0, 0, 0) if fresh else procfs.counters(pid), 0 if fresh else procfs.read_bytes(pid)
        self.reset = fresh or procfs.reset_high_water(pid)

    def ended(self, phase, end_ns, sampled, samples, interval_ns):
        """The record of the phase, its peak not exact: a line arrives after the phase's end. sampled: the highest sample, in bytes."""
        after = procfs.exact_status(self._pid)
        hwm = after.pop("hwm", 0)
        peak = max(sampled, after.get("rss", 0), hwm if self.reset or hwm > self._hwm else self._rss)
        record = sampled_record(phase, self.begin_ns, end_ns, peak)
        record.update(samples=samples, interval_ns=interval_ns, rss_begin_bytes=self._rss)
        record.update((name + "_end_bytes", size) for name, size in after.items() if name != "vms_peak")
        now = procfs.counters(self._pid)
        if now is not None and self._counters is not None:
            names = ("minor_faults", "major_faults", "cpu_ns")
            record.update((name, later - earlier) for name, later, earlier in zip(names, now, self._counters))
        read = procfs.read_bytes(self._pid)
        if read is not None and self._read is not None:
            record["read_bytes"] = read - self._read
        return record


def sampled_record(phase, begin_ns, end_ns, peak):
    return {"phase": phase, "begin_ns": begin_ns, "end_ns": end_ns, "times_ns": [], "rss_peak_bytes": peak, "rss_peak_exact": False}
