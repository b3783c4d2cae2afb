"""Starts one child, follows its marks, polls its memory and reaps it: one loop, no second thread.

The child's marks arrive on a pipe of their own (listening.py); its output is read and all but the last part dropped. The child's end is learnt
from SIGCHLD and waitpid, never from the end of a pipe, which a grandchild may hold.
"""

import _signal as signal  # see __main__
import os
import select
import sys
import time

from . import libc, procfs
from .kills import Kills
from .launching import ADDR_NO_RANDOMIZE, Launcher
from .listening import NEVER, take
from .timeline import numbers

_PR_SET_CHILD_SUBREAPER = 36
_TAIL = 4096
_LIVE_NS = 100_000_000
_LATE_NS = 200_000  # a sample takes 2 us, or some tens on a slow board
_KILL_NS = 2_000_000_000  # a killed process ends within this, unless it may not be killed
_ORPHANS_NS = 200_000_000  # for the processes that the child left behind to end by themselves
_HOLD_TICK_NS = 1_000_000
_STOP_WITHIN_NS = 2_000_000_000
_LAST_READS = 16  # of marks and output written before the end; a grandchild may write for ever


class Stopped(Exception):
    """The process that asked for this measurement is gone, or wants no more of it."""


def become_reaper():
    """Make this process the subreaper: orphans of its tree become its children."""
    libc.function("prctl")(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Measurement(Launcher):
    """A child from its start to its end. `follow()` returns when it is over; the results are then in the attributes.

    start: {"argv", "env", "cwd", "stdin", "deterministic", "input", "grace_ns", "writers", "cpus"}; the last four may be left out. intervals: polling
    period in ns by phase, with the key "" for all others; 0 for not at all. live: called with (phase, rss) at most ten times a second. hold:
    {"limit_ns", "at"}, see __main__, or None.
    """

    def __init__(self, start, timeout_ns, intervals, live, hold=None):
        super().__init__(start, hold)
        self.follows = (start.get("env") or {}).get("MEMPROF_WORK") == "1"
        self._timeout_ns = timeout_ns
        self._intervals = intervals
        self._live = live
        self._ended_alone = False  # it ended by itself
        self.charged = None
        self.rss_max_high = None
        self.processes = []
        self.warnings = []
        self.output = b""
        self.output_bytes = 0
        self.periods = numbers(4096)
        self.timed_polls = 0
        self._reports = 0
        self._asked = False  # whether SIGTERM has asked it to end at its time limit
        self._held_seen_ns = 0
        self._heard_ns = 0  # when standard input last had anything
        self.silence_ns = 0  # how long it may have nothing, 0 for ever
        self.report_ns = 0  # how often to tell how far it has come, 0 for never
        self.report = None
        self.early = b""  # its bytes that came before the loop watched it
        self._rss = 0
        self._last_poll_ns = 0

    def follow(self):
        """Run the child to its end. Raises Stopped when the control pipe ends or SIGTERM comes; the child is gone then too."""
        self._wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._stop = False
        signal.signal(signal.SIGTERM, self._stopped)
        self._kills = Kills()
        try:
            if not self._launch():
                return
            status = self._loop()
            self._judge(status)
            self._ended_alone = self.outcome["status"] != "timeout"
        finally:
            self._sweep()
            self._kills.close()
            if self._group is not None:
                self.charged = self._group.figures()
                self._group.remove()

    def _stopped(self, *_):
        self._stop = True

    # -- following

    def _loop(self):
        watched = {0: self._control, self._wake_read: self._woken, self._marks_read: self._marked, self._output_read: self._printed}
        self._watched = watched
        self._status = None
        end_ns = self._begin_ns + self._timeout_ns
        next_ns = time.monotonic_ns()
        interval = self._intervals[""]
        if self._start["deterministic"]:
            self._check_layout()
        clock, wait, poll = time.monotonic_ns, select.select, self._poll
        reading, sending = list(watched), [self._input_write] if self._unsent else []
        tick_ns = 0  # when to do anything but poll
        self._heard_ns = next_ns
        self._obey(self.early)
        grace_ns, leaving = self._start.get("grace_ns", 0), False
        while self._status is None:
            wait_ns = (next_ns if interval and next_ns < tick_ns else tick_ns) - clock()
            ready, writable, _ = wait(reading, sending, (), wait_ns / 1e9 if wait_ns > 0 else 0)
            if ready or writable:
                if writable:
                    self._send()
                for descriptor in ready:
                    if descriptor in watched:
                        watched[descriptor]()
                if self._stop:
                    raise Stopped
                reading, sending = list(watched), [self._input_write] if self._unsent else []
                changed = self._intervals.get(self._phase, self._intervals[""])
                if changed != interval:
                    interval, next_ns = changed, clock()
            now = clock()
            if self.silence_ns and now - self._heard_ns > self.silence_ns:
                raise Stopped
            if self._held is not None:  # no sample is taken: a look at the child moves its figures
                end_ns += self._follow_hold(now)
                tick_ns, next_ns = now + _HOLD_TICK_NS, now
                continue
            if interval and now >= next_ns:
                poll(now, interval)
                next_ns += interval
                if next_ns <= now:
                    next_ns = now + interval
            if now >= tick_ns:
                if self.report_ns and now - self._begin_ns > self.report_ns * (self._reports + 1):
                    self._reports += 1
                    self.report()
                if not interval:
                    self._look()
                self._live(self._phase, self._rss)
                if grace_ns and self._done and not leaving:
                    leaving, end_ns = True, min(end_ns, now + grace_ns)
                if now >= end_ns and self._status is None:
                    if grace_ns and not self._asked:
                        self._ask_to_end()
                        end_ns = now + grace_ns
                    else:
                        self._time_out()
                        end_ns = NEVER
                tick_ns = min(now + _LIVE_NS, end_ns)
        for _ in range(_LAST_READS):
            self._marked()
            self._printed()
        return self._status

    def _sample(self, now):
        """(rss, file-backed, vms) in bytes, or None if there is nothing to see."""
        values = self._statm.read()
        return None if _late(now) else values

    def _poll(self, now, interval):
        values = self._sample(now)
        if values is None:
            return
        self._keep_sample(now, values)
        self._look_closer(now)
        self._rss = values[0]
        if self._hold and values[0] >= self._hold["at"].get(self._phase, NEVER):
            del self._hold["at"][self._phase]
            self._stop_inside(self._phase + "/peak", now)
        self.polls += 1
        if self._last_poll_ns and interval == self._intervals[""] == self._last_interval:
            self.periods[self.timed_polls % len(self.periods)] = now - self._last_poll_ns
            self.timed_polls += 1
        self._last_poll_ns, self._last_interval = now, interval

    def _keep_sample(self, now, values):
        """Keep a sample."""
        self.timeline.add(now, *values)

    def _look(self):
        # In a phase that is not polled: the size for a watching user, and for the case that the child dies; no sample.
        now = time.monotonic_ns()
        values = self._sample(now)
        if values is not None:
            self._rss = values[0]
            self._look_closer(time.monotonic_ns())

    def _look_closer(self, now):
        """Look at what statm does not tell."""
        self.swapped.look(self._statm.task, now, _late)

    def _control(self):
        text = os.read(0, 4096)
        if not text:
            raise Stopped
        self._heard_ns = time.monotonic_ns()
        self._obey(text)

    def _obey(self, text):
        """Do what lines on standard input say."""
        if b"go" in text.split() and self._held is not None and self._held[2]:
            self._let_go()

    def _follow_hold(self, now):
        """Say once that the child stands still, and let it go if memprof does not in time; returns the ns to add to the job's time limit."""
        name, since_ns, told = self._held
        if not told and procfs.stopped(self.measured):
            finish("held %s %d\n" % (name, self.measured))
            self._held = [name, now, True]
        elif told and now - since_ns > self._hold["limit_ns"]:
            self.warnings.append("%s: it was held for %d s, its limit, and let go" % (name, self._hold["limit_ns"] // 10**9))
            self._let_go()
        elif not told and now - since_ns > _STOP_WITHIN_NS:  # the first process of a PID namespace cannot stop itself
            self.warnings.append("%s: it could not be held, for it did not stop" % name)
            self._let_go()
        before_ns = self._held_seen_ns or now
        self._held_seen_ns = now if self._held is not None else 0
        return now - before_ns

    def _stop_inside(self, name, now):
        """Hold the child where it is, under this name, if it has not ended: what it has written is also read afterwards."""
        if self._status is not None:
            return
        try:
            os.kill(self.measured, signal.SIGSTOP)
        except OSError:
            return  # the measured process is another than the one that was started
        self._held = [name, now, False]

    def _let_go(self):
        try:
            os.kill(self.measured, signal.SIGCONT)
        except OSError:
            pass  # it was ended meanwhile
        self._held, self._held_seen_ns = None, 0

    def _woken(self):
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass
        self._reap()

    def _reap(self):
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                self._ends(ended.si_pid)
                pid, status, used = os.wait4(ended.si_pid, 0)
            except ChildProcessError:
                return
            self._reaped(pid, status, used)

    def _ends(self, pid):
        """Called with a process that has ended, as long as /proc has it."""

    def _reaped(self, pid, status, used):
        if pid == self.pid:
            self._status = status

    def _printed(self):
        data = take(self._output_read)
        if data == b"":
            self._watched.pop(self._output_read, None)
        elif data:
            self.output_bytes += len(data)
            self.output = (self.output + data)[-_TAIL:]
            self._heard(data)

    def _heard(self, data):
        """Called with the child's output as it arrives."""

    # -- ending

    def _ask_to_end(self):
        # A profiler writes its file at SIGTERM, and none at SIGKILL.
        self._asked = True
        self.outcome = {"status": "timeout"}
        for pid in self._to_be_asked():
            try:
                os.kill(pid, signal.SIGTERM)
            except OSError:
                pass

    def _to_be_asked(self):
        """The process that is measured; if that is a profiler's script, its children, but not the programs that write its file."""
        writers = self._start.get("writers")
        if not writers or self.measured != self.pid:
            return [self.measured]
        try:
            return [pid for pid in procfs.children(self.pid) if procfs.name(pid) not in writers] or [self.measured]
        except OSError:
            return [self.measured]

    def _time_out(self):
        self.outcome = {"status": "timeout"}
        _kill_group(self.pid)
        self._kill_all()
        end_ns = time.monotonic_ns() + _KILL_NS
        while self._status is None:
            self._woken()
            time.sleep(0.001)
            if time.monotonic_ns() > end_ns and not _kill(self.pid):
                self._status = 0  # a program that has become another user's: `_sweep` warns of it

    def _judge(self, status):
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if self.measured != self.pid and code is not None and code > 128:
            number = code - 128  # how a shell that wraps the measured process says that a signal ended it
        outcome = self.outcome
        if outcome["status"] == "timeout":
            code = number = None  # the program did not end by itself
            seconds = ("%.3f" % (self._timeout_ns / 1e9)).rstrip("0").rstrip(".")
            outcome["message"] = "did not end in time (timeout %s s)" % seconds
        elif self._error is not None and number is None:
            outcome.update(self._error)
        elif number is not None:
            outcome["status"] = "signal"
        elif code != 0 or not self._done:
            outcome["status"] = "exit" if code else "lost"
        if self._foreign:
            self.warnings.append("%d line(s) on the marks' descriptor were not understood and left out" % self._foreign)
        if outcome["status"] == "ok":
            return
        outcome.setdefault("phase", self._phase or self._next_phase())
        outcome["exit_code"] = code
        outcome["signal"] = _signal_name(number) if number is not None else None
        outcome["rss_last_bytes"] = self._rss or None
        outcome["out_of_memory"] = number == signal.SIGKILL and self._out_of_memory()

    def _out_of_memory(self):
        """Whether it was killed for want of memory; None if it may have been."""
        if self._group is not None and self._group.figures()["oom_kills"]:
            return True
        return self._kills.ended((self.pid, self.measured))

    def _next_phase(self):
        return "after " + self.marks[-1]["phase"] if self.marks else "STARTUP"

    def _check_layout(self):
        try:
            with open("/proc/%d/personality" % self.pid, "rb", buffering=0) as file:
                if int(file.read(32), 16) & ADDR_NO_RANDOMIZE:
                    return
        except OSError:
            pass
        self.warnings.append("address space randomisation could not be turned off here: --deterministic is only partly so")

    def _kill_all(self):
        for pid in procfs.children(os.getpid()):
            _kill(pid)

    def _sweep(self):
        """End all that is left of the child's tree: orphans have become this process's children."""
        if self._ended_alone:
            self._let_orphans_end()
        if getattr(self, "pid", 0):
            _kill_group(self.pid)
        names, left = set(), 0
        while True:
            pids = procfs.children(os.getpid())
            names.update(procfs.name(pid) for pid in pids if pid != getattr(self, "pid", 0))
            refused = [pid for pid in pids if not _kill(pid)]
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG if refused else 0)
            except ChildProcessError:
                break
            if pid == 0 and len(refused) == len(pids):
                who = ", ".join(procfs.name(pid) or str(pid) for pid in refused)
                self.warnings.append("processes of another user that could not be ended and may still run: %d (%s)" % (len(refused), who))
                break
            left += pid not in (0, getattr(self, "pid", 0))
            if pid == 0:
                time.sleep(0.001)
        if left and self.outcome["status"] != "timeout":
            who = ", ".join(sorted(name for name in names if name))
            self.warnings.append("processes that outlived the measured one and were ended: %d%s" % (left, " (%s)" % who if who else ""))

    def _let_orphans_end(self):
        """Wait for orphans that clean up and end by themselves: Python's resource tracker removes shared memory that was forgotten."""
        end_ns = time.monotonic_ns() + _ORPHANS_NS
        while time.monotonic_ns() < end_ns:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                time.sleep(0.002)


def _signal_name(number):
    try:
        from signal import Signals

        return Signals(number).name
    except ValueError:
        return "SIG%d" % number


def _kill(pid):
    """Kill a process; False if that is not permitted, because it has become another user's."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def _kill_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass


def _late(now):
    """Whether a sample is later than its time, because another program had the CPU between the clock and the look.

    The process may be in its next phase by then. No sample is better than a sample that gives a phase its neighbour's peak.
    """
    return time.monotonic_ns() - now > _LATE_NS


def say(line):
    """Write one line of at most PIPE_BUF bytes to standard output without waiting; a reader that is busy misses it."""
    try:
        if select.select([], [1], [], 0)[1]:
            os.write(1, line.encode("utf-8"))
    except OSError:
        pass


def finish(line):
    """Write the last line to standard output, waiting for the reader."""
    sys.stdout.write(line)
    sys.stdout.flush()
