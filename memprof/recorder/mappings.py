"""Readings of which parts of which files the processes have mapped, at one poll and again at the next: what was mapped before or after that poll
covers what the poll saw.

/proc/PID/maps (proc_pid_maps(5)): BEGIN-END PERMISSIONS OFFSET DEVICE INODE NAME, the first three numbers in hexadecimal. Shared anonymous
memory is a file too: /dev/zero (deleted), with an inode for each piece.
"""

import time

from . import procfs
from .looks import LookBudget

_cpu = time.thread_time_ns
_SHARE, _ALLOWANCE_NS = 0.004, 20_000_000
_PAUSE_NS = 4_000_000  # between two readings
_LEAST = (1 << 20) // procfs.PAGE  # by which file-backed memory has changed since the last reading
_NUMBERS = (1 << 48) - 1  # of files: so many that two files have the same one in no run


class MappingReader:
    """The readings of all processes that do not run in another's memory."""

    def __init__(self, writer, processes, begin_ns):
        self._writer, self._processes = writer, processes
        self._budget = LookBudget(begin_ns, _SHARE, _ALLOWANCE_NS)
        self._next_ns = self._moved = self._turnover = 0
        self._again = False  # a second reading is to follow the first

    def step(self, now):
        """Read if it is worth it; the processes have just been polled."""
        again, self._again = self._again and self._turnover == self._processes.turnover, False
        members = self._processes.members() if again or self._is_time(now) else ()
        if len(members) < 2:
            return
        begin_ns = _cpu()
        if not again:
            self._again, self._turnover = True, self._processes.turnover
            self._moved, self._next_ns = self._processes.moved_files, now + _PAUSE_NS
        for process in members:
            self._read(process)
        self._writer.tell(b"mapped")
        self._budget.spend(begin_ns)

    def _is_time(self, now):
        return self._processes.moved_files - self._moved >= _LEAST and now >= self._next_ns and now >= self._budget.free_ns

    def _read(self, process):
        places = _places(process.pid, procfs.read("/proc/%d/maps" % process.statm.task))
        maps = [b"%d:%d:%d" % (hash(file) & _NUMBERS, first, end - first) for file, first, end in places]
        if maps != process.maps:
            process.maps = maps
            self._writer.tell(b"maps", process.pid, *maps)


def _places(pid, text):
    """[(file, first page, page after the last)] of all parts of files that a process has mapped, adjacent ones together.

    A device can put different memory at the same place of each mapping, and so can what has only a name in brackets or an inode that many things
    share (anon_inode:[io_uring]): the file is then this process's.
    """
    places: "list[tuple]" = []
    for line in text.split(b"\n")[:-1]:  # a name may hold other ends of lines
        where, _, offset, device, inode, *rest = line.split(None, 5)
        name = rest[0] if rest else b""
        if inode == b"0" and not name.startswith((b"/", b"[v")):  # [vdso] and other names of that kind count as file-backed
            continue
        begin, _, end = where.partition(b"-")
        ordinary = name.startswith(b"/") and (not name.startswith(b"/dev/") or name.startswith((b"/dev/zero", b"/dev/shm/")))
        # Inodes of two volumes of one btrfs can have the same device and number, so the name is asked too.
        file = (device, inode, name) if ordinary else (device, inode, name, pid, begin)
        first = int(offset, 16) // procfs.PAGE
        after = first + (int(end, 16) - int(begin, 16)) // procfs.PAGE
        if places and places[-1][0] == file and places[-1][2] == first:
            first = places.pop()[1]
        places.append((file, first, after))
    return places
