"""How much file-backed and shared memory some processes can have together, from which parts of which files they have mapped.

A part of a file is in memory once, however many processes map it. So the parts that any of the processes maps, taken together, bound what all
of them have of files; what their resident sets have beyond it is counted more than once for certain. Reading /proc/PID/maps takes a tenth of a
millisecond, where shares (rounds.py) take a hundred times that: on a busy machine no round of shares may ever be complete.

/proc/PID/maps (proc_pid_maps(5)): BEGIN-END PERMISSIONS OFFSET DEVICE INODE NAME, the first three numbers in hexadecimal. Shared anonymous
memory is a file too: /dev/zero (deleted), with an inode for each piece.
"""

import time

from . import procfs

_clock = time.thread_time_ns
_SHARE, _ALLOWANCE_NS = 0.004, 20_000_000  # of one CPU, as for the shares
_PAUSE_NS = 4_000_000  # between two readings
_LEAST = 1 << 20  # of file-backed memory that may be counted twice; less is left to the shares


class Mappings:
    """The readings of one tree."""

    def __init__(self, now):
        self._begin_ns = now
        self._spent_ns = self._next_ns = self._moved_seen = 0
        self._reading = None  # [(process, lines of its maps)] until the next poll

    def drop(self):
        """A process has come or gone: the reading is of other processes."""
        self._reading = None

    def step(self, now, members, whole):
        """Read if it is worth it; the processes have just been polled.

        whole: the Sum of all members. Returns [(process, what it maps)] a poll after it was read first, else None: what was mapped before or after
        that poll covers what the poll saw. A process whose maps may not be read is left out.
        """
        if self._reading is None and not self._time_to_read(now, whole):
            return None
        begin_ns = _clock()
        before, self._reading = self._reading, None
        if before is None:
            self._moved_seen, self._next_ns = whole.moved, now + _PAUSE_NS
            self._reading = [(node, procfs.maps(node.task)) for node in members]
            done = None
        else:
            lines = [(node, old, procfs.maps(node.task)) for node, old in before]
            done = [(node, parts(node.pid, old if old == new else old + new)) for node, old, new in lines if old and new]
        self._spent_ns += _clock() - begin_ns
        return done

    def spread(self, whole):
        """By how much the overlap may have changed since the reading, in bytes."""
        return whole.moved - self._moved_seen

    def _time_to_read(self, now, whole):
        worth = min(whole.width, whole.overlap[2]) >= _LEAST and whole.moved != self._moved_seen
        return worth and now >= self._next_ns and self._spent_ns <= (now - self._begin_ns) * _SHARE + _ALLOWANCE_NS


def parts(pid, lines):
    """[(file, begin, end)] of all parts of files that a process has mapped, in bytes. lines: of its maps.

    A device can put different memory at the same place of each mapping, and so can what has only a name in brackets or an inode that many things
    share (anon_inode:[io_uring]): the file is then this process's.
    """
    places = []
    for line in lines:
        where, _, offset, device, inode, *rest = line.split(None, 5)
        name = rest[0] if rest else ""
        if inode == "0" and not name.startswith(("/", "[v")):  # [vdso] and the like count as file-backed
            continue
        begin, _, end = where.partition("-")
        ordinary = name.startswith("/") and (not name.startswith("/dev/") or name.startswith(("/dev/zero", "/dev/shm/")))
        # Inodes of two volumes of one btrfs can have the same device and number, so the name is asked too.
        file = (device, inode, name) if ordinary else (str(pid), begin, "")
        start = int(offset, 16)
        places.append((file, start, start + int(end, 16) - int(begin, 16)))
    return places


def together(places):
    """The bytes of all parts, each place of a file counted once. places: results of `parts`, one after another."""
    total, last, reached = 0, None, 0
    for file, begin, end in sorted(places):
        if file != last:
            last, reached = file, 0
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total
