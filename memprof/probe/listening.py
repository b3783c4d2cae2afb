"""A child's marks: lines on a pipe (runners/marks.py has their form) that become the records of its phases.

A line that is not understood is counted and left out: a program may write anything there.
"""

import os
import time

from . import procfs, wire
from .swapping import Swapped
from .timeline import Timeline
from .work import UNITS, Work

_LINE_LIMIT = 1 << 16
NEVER = 1 << 62
_VALUES = 4000  # kept; beyond them the values of each name are thinned to the extremes of neighbours
_MOST_VALUE = 1e100  # memprof refuses larger numbers; a file of JSON holds neither infinities nor NaN
_PHASES_OF_WORK = 16
_FOLLOWED_TIMES = 4096
_ERROR_KINDS = ("import", "refused", "error")


class Listener:
    """Follows the phases of one process. A subclass has _begin_ns, _marks_read, _watched, _intervals, _hold, _statm, pid, measured and usable.

    marks, values, about: what is known by now, in the form of memprof.runs.records. pid: the process that was started; measured: the process that
    writes the marks. usable: on how many CPUs it may run. _group: its own control group, None for none.
    """

    def __init__(self):
        self.timeline = Timeline()
        self.swapped = Swapped()
        self.marks = []
        self.values = []
        self.about = None
        self.polls = 0
        self._polls_begin = 0
        self._refaults_begin = 0
        self._group = None
        self._phase = ""
        self._open = []  # phases that have begun, the innermost last: that is `_phase`
        self._times = []
        self.work = {}  # phase: its Work, if the process reports it
        self.follows = False  # memory after each unit of work is wanted
        self._error = None
        self._done = False
        self._foreign = 0
        self._unfinished = b""  # the begin of a line whose end has not come yet
        self._skipping = False
        self._held = None  # [name, since when, whether memprof was told], while the child stands still or is about to

    def _marked(self):
        data = take(self._marks_read)  # once only: a program that writes without end must not keep the loop from its other work
        if data == b"":
            self._watched.pop(self._marks_read, None)
        if not data:
            return
        lines = (self._unfinished + data).split(b"\n")
        self._unfinished = lines.pop()
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                self._take_line(line)
        if len(self._unfinished) > _LINE_LIMIT:
            self._unfinished = b""
            self._foreign += not self._skipping
            self._skipping = True

    def _take_line(self, line):
        try:
            mark = wire.loads(line.decode("utf-8"))
            kind, pid = mark["mark"], mark["pid"]
            if pid != self.measured:
                if self._phase or self.marks or kind not in ("begin", "program"):
                    raise ValueError("a mark of another process")
                self._measure(pid)  # the process that was started is a wrapper; the first process that writes a mark is measured
            getattr(self, "_mark_" + kind)(mark)
        except Exception:  # a program may write anything there
            self._foreign += 1

    def _measure(self, pid):
        ancestor = pid
        while ancestor not in (self.pid, os.getpid()):
            ancestor = procfs.parent(ancestor)  # None, which ends here, for a process that does not belong to the child
        statm = procfs.Statm(pid)
        self._statm.close()
        self._statm, self.measured = statm, pid
        self.timeline, self.swapped = Timeline(), Swapped()  # the samples so far were of the wrapper

    def _mark_program(self, _):
        pass  # a debugger names its program's process before that writes a mark

    def _mark_begin(self, mark):
        self._phase = word(mark["phase"])
        self._open.append(self._phase)
        self._times = []
        self._polls_begin, self._refaults_begin = self.polls, self._refaults()
        if self._phase in self.work:
            self.work[self._phase].again()

    def _mark_times(self, mark):
        self._times += [count(time_ns) for time_ns in mark["times_ns"]]

    def _mark_work(self, mark):
        units = [word(unit) for unit in mark["units"]]
        self._work(mark).take(units, [count(number) for number in mark["rows"]])

    def _mark_anchor(self, mark):
        figures = [count(mark[name]) for name in ("iteration", "seen", "rss", "swap")]
        heap = [count(mark[name]) if name in mark else None for name in ("heap_used", "heap_free")]
        self._work(mark).anchor([*figures, *heap])

    def _work(self, mark):
        phase = word(mark["phase"])
        if phase not in self.work:
            if len(self.work) == _PHASES_OF_WORK:
                raise ValueError("too many phases with units")
            self.work[phase] = Work()
        return self.work[phase]

    def _mark_about(self, mark):
        self.about = {
            "runtime_version": text(mark["runtime_version"]),
            "python_version": text(mark["python_version"]),
            "notes": [text(note) for note in mark["notes"]],
            "packages": {text(name): text(version) for name, version in mark.get("packages", {}).items()},
        }

    def _mark_error(self, mark):
        if mark["kind"] not in _ERROR_KINDS:
            raise ValueError("an error of no known kind")
        self._error = {"status": mark["kind"], "phase": word(mark["phase"]), "message": text(mark["message"])}

    def _mark_done(self, _):
        self._done = True

    def _mark_value(self, mark):
        number = mark["value"]
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ValueError("no number")
        value = {"name": word(mark["name"]), "t_ns": count(mark["t_ns"]), "value": number}
        if number != number:
            value.update(value=None, note="not a number")
        elif abs(number) >= _MOST_VALUE:
            size = "infinite" if abs(number) == float("inf") else "1e100 or more"
            value.update(value=None, note=size if number > 0 else "minus " + size)
        elif abs(number) >= 1 << 53:
            value["value"] = float(number)
        if self._phase:
            value["phase"] = self._phase
        self.values.append(value)
        if len(self.values) > _VALUES:
            self.values = _thinned(self.values)

    def _mark_end(self, mark):
        begin_ns, end_ns = count(mark["begin_ns"]), count(mark["end_ns"])
        if end_ns < begin_ns:
            raise ValueError("a phase that ends before it begins")
        phase = word(mark["phase"])
        if self.measured == self.pid and phase == "STARTUP":
            begin_ns = min(begin_ns, self._begin_ns) if begin_ns else self._begin_ns
        sampled = self._highest(begin_ns, end_ns)
        figures = {name: count(mark[name]) for name in (*_FIGURES, "hwm_phase_bytes", "hwm_begin_bytes") if name in mark}
        hwm = figures.pop("hwm_phase_bytes", 0)
        exact = hwm > 0 and (bool(mark.get("hwm_reset")) or hwm > figures.get("hwm_begin_bytes", 0))
        figures.pop("hwm_begin_bytes", None)
        if exact and phase == "STARTUP" and sampled > hwm + self.peak_bound():
            sampled = 0  # of another program: the high-water mark is of the program since its last exec, the samples may be from before
        peak = max(sampled, figures.get("rss_end_bytes", 0), hwm if exact else figures.get("rss_begin_bytes", 0))
        record = {"phase": phase, "begin_ns": begin_ns, "end_ns": end_ns, "times_ns": self._times}
        record.update({"rss_peak_bytes": peak, "rss_peak_exact": exact, "samples": self.polls - self._polls_begin})
        record["interval_ns"] = self._intervals.get(phase, self._intervals[""])
        record.update(figures)
        if "units" in mark:
            if len(mark["units"]) > UNITS:
                raise ValueError("too many units")
            record["units"] = {word(unit): count(total) for unit, total in mark["units"].items()}
        self._keep(record)
        if phase in self._open:
            self._open.remove(phase)
        self._phase, self._times = self._open[-1] if self._open else "", []
        self._polls_begin = self.polls
        if self._hold and not self._hold.get("units"):
            self._held = [phase, time.monotonic_ns(), False]

    def _highest(self, begin_ns, end_ns):
        return self.timeline.highest(begin_ns, end_ns)

    def peak_bound(self):
        """How far a high-water mark of the child can lie from the truth, in bytes."""
        return procfs.peak_bound(self.usable, self.swapped.threads)

    def _refaults(self):
        return None if self._group is None else self._group.refaults()

    def _keep(self, record):
        """Keep a phase. A phase that comes again is merged with its record: each time is an iteration, and figures at the end are of the last."""
        self.swapped.tell(record)
        refaults = self._refaults()
        if refaults is not None and self._refaults_begin is not None:
            record["refaults"] = refaults - self._refaults_begin
        self._refaults_begin = refaults
        before = next((mark for mark in self.marks if mark["phase"] == record["phase"]), None)
        if before is None:
            self.marks.append(record)
            return
        times_ns = before["times_ns"] or [before["end_ns"] - before["begin_ns"]]
        times_ns += record["times_ns"] or [record["end_ns"] - record["begin_ns"]]
        if self.follows:
            del times_ns[_FOLLOWED_TIMES:]  # of hours the first are enough, as in native/memprof.h
        record["times_ns"] = times_ns
        record["begin_ns"] = before["begin_ns"]
        if "swap_peak_bytes" in before or "swap_peak_bytes" in record:
            both = (mark.get("rss_swap_peak_bytes", mark["rss_peak_bytes"]) for mark in (before, record))
            swap = max(mark.get("swap_peak_bytes", 0) for mark in (before, record))
            record.update(swap_peak_bytes=swap, rss_swap_peak_bytes=max(both))
        record["rss_peak_bytes"] = max(before["rss_peak_bytes"], record["rss_peak_bytes"])
        record["rss_peak_exact"] = before["rss_peak_exact"] and record["rss_peak_exact"]
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


_FIGURES = (
    "hwm_bytes",
    "rss_begin_bytes",
    "rss_end_bytes",
    "anon_end_bytes",
    "file_end_bytes",
    "shmem_end_bytes",
    "swap_end_bytes",
    "vms_end_bytes",
    "vms_peak_bytes",
    "pss_end_bytes",
    "uss_end_bytes",
    "heap_used_end_bytes",
    "heap_free_end_bytes",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "cpu_ns",
)


def text(value):
    if not isinstance(value, str):
        raise TypeError("text is wanted")
    return value.encode("utf-8", "backslashreplace").decode("utf-8")  # a file cannot hold half a surrogate pair


def word(value):
    name = "_".join(text(value).split())[:200]
    if not name:
        raise ValueError("a name must not be empty")
    return name


def count(value):
    number = int(value)
    if not 0 <= number < NEVER:
        raise ValueError("no time and no size")
    return number


def take(descriptor):
    """The bytes that can be read now: None if there are none yet, b"" at the end."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None
    except OSError:  # EIO of a terminal: nobody has its other side open
        return b""


def _thinned(values):
    """The smallest and the largest of each four neighbours of a name."""
    kept, group = [], {}
    for value in values:
        group.setdefault(value["name"], []).append(value)
    for same in group.values():
        for start in range(0, len(same), 4):
            part = same[start : start + 4]
            numbers = [value for value in part if value["value"] is not None] or part[:1]
            low, high = min(numbers, key=_number), max(numbers, key=_number)
            kept += [low] if low is high else [low, high]
    return sorted(kept, key=lambda value: value["t_ns"])


def _number(value):
    return value["value"] or 0
