"""Processes that stand still, or are about to, so that memprof can look at them: by a signal, or because they stop themselves."""

import _signal as signal  # see __main__
import os
import time

from . import procfs

_STOP_WITHIN_NS = 2_000_000_000  # the first process of a PID namespace cannot stop itself


class Holds:
    """limit_ns: how long a process may stand still, 0 for ever. active: by process id, (why, since when, what was stopped:
    the process itself or the debugger that holds it, None while it still runs)."""

    def __init__(self, writer, limit_ns):
        self._writer, self._limit_ns = writer, limit_ns
        self.active: "dict[int, tuple]" = {}

    def expect(self, pid, why):
        """A process is about to stop itself."""
        self.active.setdefault(pid, (why, time.monotonic_ns(), None))

    def stop(self, pid, why):
        """Stop a process."""
        if send(pid, signal.SIGSTOP):
            self.expect(pid, why)

    def free(self, pid):
        """Let a process go on if it stands still."""
        if pid in self.active and self.active[pid][2]:
            send(self.active[pid][2], signal.SIGCONT)
            self._writer.tell(b"continued", pid)
            del self.active[pid]

    def step(self, now):
        """Say of each process when it stands still, and let it go if memprof does not in time."""
        for pid, (why, since_ns, stands) in list(self.active.items()):
            stat = procfs.stat(pid)
            if stat is None or stat.over:
                del self.active[pid]
            elif not stands and (stopped := _stopped(pid, stat)):
                self.active[pid] = why, now, stopped
                self._writer.tell(b"stopped", pid, why)
                self._writer.flush()
            elif stands and self._limit_ns and now - since_ns > self._limit_ns:
                self._writer.tell(b"fault", b"held", pid)
                self.free(pid)
            elif not stands and now - since_ns > _STOP_WITHIN_NS:
                self._writer.tell(b"fault", b"free", pid)
                send(pid, signal.SIGCONT)
                del self.active[pid]


def _stopped(pid, stat):
    """The process that was stopped: this one, or the debugger that holds it; None if neither was. A debugger stops a process for moments too."""
    if stat.fields[:1] == b"T":
        return pid
    tracer = procfs.number("/proc/%d/status" % pid, b"TracerPid:") if stat.fields[:1] == b"t" else b"-"
    of_tracer = procfs.stat(int(tracer)) if tracer != b"-" else None
    return int(tracer) if of_tracer is not None and of_tracer.fields[:1] == b"T" else None


def send(pid, number):
    """Send a signal; False if the process is another user's, None if it has ended."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    except OSError:
        return None
    return True
