"""Whether the kernel ended a process for lack of memory. A count of such kills tells that there was one, the kernel's log tells of whom.

/dev/kmsg (Documentation/ABI/testing/dev-kmsg): each read gives one record, `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE`; EAGAIN at the end of
the log; EPIPE if records were overwritten before they were read. mm/oom_kill.c writes `...: Killed process PID (NAME) ...`, with a number of
the machine's first PID namespace.
"""

import os
import time

from . import procfs

_FIRST_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO
# The kernel counts a kill first, sends the signal then, and writes its line last: where another process ran out of memory and a busy machine does not
# let that go on, this one has ended long before.
_WITHIN_NS = 2_000_000_000
_KILLED = b": Killed process "


class KillCounter:
    """The kernel's kills for lack of memory from now on."""

    def __init__(self, writer):
        self._writer = writer
        self._before = self._tell()
        self._log = _kernel_log()

    def tell(self):
        """Write the counts as of now, and if they have risen, which processes the log names."""
        machine, inside = (int(now) - int(before) if b"-" not in (now, before) else None for now, before in zip(self._tell(), self._before))
        count = 0 if self._log is None or inside == 0 else machine or 0
        end_ns = time.monotonic_ns() + _WITHIN_NS
        while count > 0 and time.monotonic_ns() < end_ns:
            try:
                message = os.read(self._log, 8192).partition(b";")[2].partition(b"\n")[0]
            except BlockingIOError:
                time.sleep(0.005)
                continue
            except OSError:
                self._writer.tell(b"kernel", b"-")
                continue
            pid = message.partition(_KILLED)[2].partition(b" ")[0]
            if pid:
                count -= 1
                self._writer.tell(b"kernel", pid)

    def _tell(self):
        # The first group of a machine has no such file (cgroup-v2.rst): it is there in a container alone, and counts groups below it too.
        counts = procfs.number("/proc/vmstat", b"oom_kill "), procfs.number("/sys/fs/cgroup/memory.events", b"oom_kill ")
        self._writer.tell(b"kills", *counts)
        return counts


def _kernel_log():
    """A descriptor of the kernel's log at its end, None if it may not be read, or if its process ids are not those that are seen here."""
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_NAMESPACE:
            return None
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(log, 0, os.SEEK_END)
    except OSError:
        return None
    return log
