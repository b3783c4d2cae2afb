"""Whether the kernel ended a process for want of memory. A count of such kills tells that there was one, the kernel's log tells of whom.

/dev/kmsg (Documentation/ABI/testing/dev-kmsg): each read gives one record, `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE`; EAGAIN at the end of
the log; EPIPE if records were overwritten before they were read. mm/oom_kill.c writes `...: Killed process PID (NAME) ...`, with a number of
the machine's first PID namespace.
"""

import os
import time

from . import procfs

_FIRST_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO
_WITHIN_NS = 200_000_000  # the kernel counts a kill first, sends the signal then, and writes its line last
_KILLED = b": Killed process "


class Kills:
    """The kernel's kills for want of memory from now on."""

    def __init__(self):
        self._before = procfs.oom_kills()
        self._before_inside = procfs.oom_kills_inside()
        self._log = _kernel_log()

    def ended(self, pids):
        """True if the kernel has killed one of these processes for want of memory, False if not, None if it may have: it killed a process
        meanwhile, and does not say which."""
        now, inside = procfs.oom_kills(), procfs.oom_kills_inside()
        if now is None or now <= (self._before or 0):
            return False
        if inside is not None and self._before_inside is not None and inside <= self._before_inside:
            return False
        return self._named(pids)

    def _named(self, pids):
        count = 0
        end_ns = time.monotonic_ns() + _WITHIN_NS
        while self._log is not None:
            try:
                message = os.read(self._log, 8192).partition(b";")[2].partition(b"\n")[0]
            except BlockingIOError:
                if count >= procfs.oom_kills() - (self._before or 0):
                    return False
                if time.monotonic_ns() > end_ns:
                    return None
                time.sleep(0.005)
                continue
            except OSError:  # EPIPE: some of the log is lost
                return None
            pid = message.partition(_KILLED)[2].split(b" ")[0]
            if pid.isdigit():
                count += 1
                if int(pid) in pids:
                    return True
        return None

    def close(self):
        """Close the kernel's log."""
        if self._log is not None:
            os.close(self._log)


def _kernel_log():
    """A descriptor of the kernel's log at its end, None if it may not be read, or if its process ids are not those that are seen here."""
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_NAMESPACE:
            return None
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.lseek(log, 0, os.SEEK_END)
    except OSError:
        os.close(log)
        return None
    return log
