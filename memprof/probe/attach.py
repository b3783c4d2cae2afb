"""Polls a process that already runs, and its descendants, without touching them: no signal, no reset of a high-water mark, no child of ours.

`start["attach"]` of the probe's line is the process id, `start["attach_started"]` when the process started (None for unknown): the number may be
that of another process by now. timeout_ns is how long it is polled. Polling ends earlier if the process ends, or if
`end` comes on standard input. The outcome is ok in each case; the only phase, RUN, lasts as long as the polling.

`start["command"]`, if there is any: {"regexes": [[UNIT, REGEX]], "log": PATH}. Lines that match, and are appended to this file meanwhile or
come through it if it is a FIFO, end units of the process's work: its memory is read as soon as a poll sees them. A file that is cut off, or that
another file with new lines replaces, is followed from its beginning, as logs are rotated.

The high-water mark is never reset, so it tells the peak only if it rose meanwhile.
"""

import os
import stat
import time

from . import procfs
from .command import Command
from .tree import Tree

_READ = 1 << 16  # of a log, at each poll


class Attached(Command):
    """A process and its descendants, from now on for a while."""

    def __init__(self, start, timeout_ns, intervals, live, hold=None):
        asked = start.get("command") or {}
        super().__init__(dict(start, command=asked, deterministic=False, env={"MEMPROF_WORK": "1"}), timeout_ns, intervals, live)
        self.pid = self.measured = start["attach"]
        self._started = start.get("attach_started")
        self._open_ends = []
        self._unmatched = []  # lines end units, and no phase
        self._log_path, self._log = asked.get("log"), None

    def follow(self):
        """Poll until the time is over, the process has ended, or a line asks to end. Raises Stopped when the control pipe ends."""
        before = procfs.exact_status(self.pid)
        self._begin_ns = time.monotonic_ns()
        self._tree = Tree(self.pid, self._begin_ns)
        self._tree.swapped = self.swapped
        try:
            self.usable = len(os.sched_getaffinity(self.pid))
        except OSError:
            pass  # it has just ended
        started = procfs.started(self.pid)  # what the tree has opened is this process's, or an earlier one's
        if started is not None and self._started not in (None, started):
            message = "process %d has ended, and its number is another process's now" % self.pid
            self.outcome = {"status": "start", "phase": "RUN", "message": message}
            return
        self._started = started
        if "rss" not in before or self._tree.poll(self._begin_ns) is None:
            message = "process %d has ended, or is one of the kernel's own" % self.pid
            self.outcome = {"status": "start", "phase": "RUN", "message": message}
            return
        try:
            self._open_log()
        except OSError as error:
            self.outcome = {"status": "start", "phase": "RUN", "message": "%s: %s" % (self._log_path, error.strerror)}
            return
        # The loop is that of a child, on pipes into which nothing is ever written.
        self._wake_read, self._marks_read, self._output_read = (self._silence() for _ in range(3))
        self._stop = False
        self._phase = "RUN"
        self._loop()
        self._finish(before)

    def _silence(self):
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._open_ends.append(write)
        return read

    def _sample(self, now):
        values = self._tree.poll(now)
        if values is None:
            self._status = 0
        return values

    def _open_log(self):
        """From here on: what stands in the file already was written before."""
        if self._log_path is not None:
            self._log = os.open(self._log_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if stat.S_ISREG(os.fstat(self._log).st_mode):
                os.lseek(self._log, 0, os.SEEK_END)

    def _keep_sample(self, now, values):
        super()._keep_sample(now, values)
        if self._log is not None:
            try:
                data = os.read(self._log, _READ)
            except BlockingIOError:
                return  # a FIFO that is empty
            if not data and self._rotated():
                data = b"\n" + os.read(self._log, _READ)
            self._heard(data)

    def _rotated(self):
        """Whether the log begins anew, and stand at its beginning then. A new file counts once it has lines: until then the old one may get more."""
        before = os.fstat(self._log)
        if not stat.S_ISREG(before.st_mode):
            return False
        if before.st_size < os.lseek(self._log, 0, os.SEEK_CUR):
            os.lseek(self._log, 0, os.SEEK_SET)
            return True
        try:
            after = os.stat(self._log_path)
            if os.path.samestat(before, after) or not stat.S_ISREG(after.st_mode) or not after.st_size:
                return False
            log = os.open(self._log_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False  # it is moved at this moment, or it is not for us
        os.close(self._log)
        self._log = log
        return True

    def _obey(self, text):
        if b"end" in text.split():
            self._status = 0

    def _time_out(self):
        self._status = 0

    def _sweep(self):
        pass

    def _finish(self, before):
        self._settle_all()
        end_ns = time.monotonic_ns()
        after = procfs.exact_status(self.pid)
        if procfs.started(self.pid) not in (None, self._started):
            after = {}  # of another process, which has its number since it ended
        hwm, alone = after.get("hwm", 0), self._tree.most == 1
        rose = alone and hwm > before.get("hwm", 0)
        own = (hwm if rose else 0, before["rss"], after.get("rss", 0)) if alone else (0,)
        peak = max(self._highest(self._begin_ns, end_ns), *own)
        record = {"phase": "RUN", "begin_ns": self._begin_ns, "end_ns": end_ns, "times_ns": [], "rss_peak_bytes": peak}
        record.update(rss_peak_exact=rose, samples=self.polls, interval_ns=self._intervals[""], rss_begin_bytes=before["rss"])
        record.update((name + "_end_bytes", size) for name, size in after.items() if name not in ("hwm", "vms_peak"))
        if self._tree.most > 1:
            low, high = self._tree.own.highest(self._begin_ns, end_ns)
            record["rss_peak_bytes"] = max(peak, low)
            record["rss_peak_high_bytes"] = max(record["rss_peak_bytes"], high)
        if hwm:
            record["hwm_bytes"], record["vms_peak_bytes"] = hwm, after["vms_peak"]
        else:
            self.warnings.append("the process ended while it was polled")
        self.swapped.tell(record)
        self.marks.append(record)
        self.warnings += self._words()
        if self._tree.most > 1:
            self.processes = self._tree.records()
