"""Waits for the child and for orphans of its tree, which have become this process's children, and ends what is left of them."""

import _signal as signal  # see __main__
import os
import time

from . import procfs
from .hold import send
from .writer import escaped

_ORPHANS_NS = 200_000_000  # for the processes that the child left behind to end by themselves
_KILL_NS = 2_000_000_000  # a killed process ends within this, unless it may not be killed

_clock = time.monotonic_ns


class Reaper:
    """root: the process that was started. status: its wait status, None as long as it runs."""

    def __init__(self, writer, processes, root):
        self._writer, self._processes, self._root = writer, processes, root
        self.status = None

    def send(self, number):
        """Send a signal to the child's process group, if there is any."""
        try:
            os.killpg(self._root, number)
        except OSError:
            pass

    def reap(self, sweeps=False):
        """Wait for all children that have ended; False if there are no others. sweeps: those were left when the program had ended."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return True
                self._processes.end(ended.si_pid)
                if sweeps and ended.si_pid != self._root:
                    self._writer.tell(b"left", ended.si_pid, escaped(procfs.name(ended.si_pid)))
                pid, status, used = os.wait4(ended.si_pid, 0)
            except ChildProcessError:
                return False
            self._processes.forget(pid)
            cpu_ns = round((used.ru_utime + used.ru_stime) * 1e9)
            self._writer.tell(b"ended", pid, status, used.ru_minflt, used.ru_majflt, cpu_ns, used.ru_maxrss)
            self._writer.flush()
            if pid == self._root:
                self.status = status

    def kill(self):
        """Kill the child, and all that has become this process's child."""
        self.send(signal.SIGKILL)
        for pid in procfs.children(os.getpid()):
            send(pid, signal.SIGKILL)
        end_ns = _clock() + _KILL_NS
        while self.reap() and self.status is None and (_clock() < end_ns or send(self._root, signal.SIGKILL) is not False):
            time.sleep(0.001)  # a program that has become another user's does not end: `sweep` reports it

    def sweep(self, patient):
        """End the remaining processes. patient: some clean up and end by themselves, as Python's resource tracker does with shared memory."""
        end_ns = _clock() + _ORPHANS_NS
        while patient and _clock() < end_ns and self.reap():
            time.sleep(0.002)
        self.send(signal.SIGKILL)
        refused = []
        while self.reap(sweeps=True) and not refused:
            pids = procfs.children(os.getpid())
            refused = [pid for pid in pids if send(pid, signal.SIGKILL) is False]
            if len(refused) < len(pids):
                refused = []
            time.sleep(0.001)
        for pid in refused:
            self._writer.tell(b"refused", pid, escaped(procfs.name(pid)))
