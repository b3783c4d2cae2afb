"""The processes that are looked at: how they are found and go, and the polls of their memory.

Children are found in /proc/PID/task/TID/children; a poll needs two reads a process, on open descriptors. What is read of a process that was just
found, and of one that is just gone, is read at once: a moment later it tells less (memprof.recording says why).
"""

import errno
import os
import time

from . import procfs
from .devices import DeviceFiles
from .vfork import same_memory
from .writer import escaped

_READ_NS, _READ_EACH_NS = 200_000, 30_000  # a poll of several that took longer was held up: a process may be in its next phase by then
_READS = 3  # such a poll is made again, at most this often in all
_SOME_FAULTS = 64  # from here on it matters whether they brought in huge pages
_LARGEST_PID = 1 << 22  # PID_MAX_LIMIT
_LEAVING = 64

_clock = time.monotonic_ns


def _open_children(pid):
    """A descriptor of the children of a process's first thread; None if it has just ended, or on a kernel without CONFIG_PROC_CHILDREN."""
    try:
        return os.open("/proc/%d/task/%d/children" % (pid, pid), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _has_room():
    """Whether there are descriptors left for what is opened only for a moment."""
    try:
        for descriptor in os.pipe2(os.O_CLOEXEC):
            os.close(descriptor)
    except OSError:
        return False
    return True


class LiveProcess:
    """A process with memory.

    above: the LiveProcess of its parent, None if that was not seen. twin: the LiveProcess in whose memory it runs; None for all but a child of vfork.
    children: see `_open_children`; listed: what was read there; kids: all children that were found. resident, shared: its statm as it was counted
    last; written: as it was written last. stat, status, command, maps: as written last; faults, stack: of the newest stat; program: the stack and
    the name beside which the command was read, as an exec changes them; stale: statm has changed since. looked_ns, status_ns: when it was last looked
    at, and its status read. devices: its DeviceFiles.
    """

    def __init__(self, pid, statm, above, twin):
        self.pid, self.statm, self.above, self.twin = pid, statm, above, twin
        self.children, self.listed, self.kids = _open_children(pid), b"", set()
        self.resident, self.shared, self.written = 0, 0, statm.fields
        self.stat = self.status = self.command = self.stack = b""
        self.program = (b"", b"")
        self.maps: "list[bytes]" = []
        self.faults = self.looked_ns = self.status_ns = 0
        self.stale, self.devices = False, DeviceFiles(above is not None and above.devices.used)

    def see(self, stat):
        """Take a reading of its stat."""
        self.faults, self.stack, self.stale = stat.faults, stat.stack, False
        self.stat = b"%s %s" % (stat.fields, escaped(stat.name))

    def close(self):
        self.statm.close()
        if self.children is not None:
            os.close(self.children)


class Processes:
    """All processes that are looked at. tree: their children are looked for, with `adopts` also those of this process, the reaper of all that lose
    their parents. group: the WatchedGroup to which they belong, None if there is none.

    living: those that have memory; a new list where one comes or goes. count: how many polls there were. turnover: how often a process came, went,
    or got memory of its own. moved, moved_files: the pages by which resident sets have changed so far, and their file-backed part.
    """

    def __init__(self, writer, tree, adopts, group=None):
        self._writer, self.tree, self.group = writer, tree, group
        self.living = []
        self._by_pid = {}
        self._dealt = set()  # ids of processes that were listed, have no memory, and still are there
        self._grouped = set()  # ids that the group was read to have
        self._named = {}  # ids that marks have named, in their order
        self._leaving = []  # ids of the last that have gone
        self._changed = []  # processes whose statm has changed since the last line of a poll
        self._newest = (0, 0, 0)  # (begin, duration, begin of the poll before) of the newest poll
        self._silent = self._due = False  # the newest poll has no line yet; it is to have one
        self.count = self.turnover = self.moved = self.moved_files = 0
        self._huge = b"-"
        self._orphans, self._listed = _open_children(os.getpid()) if tree and adopts else None, b""

    def get(self, pid):
        """The LiveProcess of this id, None if it has no memory or is not looked at."""
        return self._by_pid.get(pid)

    def main(self, root):
        """The id of the program's process: the first of those that marks have named and that live, else the one that was started."""
        return next((pid for pid in self._named if pid in self._by_pid), root)

    def members(self):
        """The processes that do not run in another's memory."""
        return [process for process in self.living if process.twin is None]

    # -- processes come

    def list_children(self):
        """Find the new children of all processes, and their children."""
        if self._orphans is not None:
            listed = os.pread(self._orphans, 65536, 0)
            if listed != self._listed:
                self._listed = listed
                for pid in listed.split():
                    self._meet(int(pid), None)
        seen, waiting = 0, self.living
        while waiting:
            for process in waiting:
                self._list(process)
            seen += len(waiting)
            waiting = self.living[seen:]
        members = self.group.members(_clock()) if self.group is not None else None
        if members is not None:
            self._grouped = self._take(None, members, self._grouped)

    def list_threads(self, process):
        """Find the children of all its threads."""
        process.kids = self._take(process, procfs.children(process.pid), process.kids)

    def _list(self, process):
        try:
            listed = os.pread(process.children, 65536, 0) if process.children is not None else b""
        except OSError:
            return
        if listed != process.listed:
            process.listed = listed
            process.kids = self._take(process, [int(pid) for pid in listed.split()], process.kids)

    def _take(self, parent, pids, before):
        for pid in pids:
            self._meet(pid, parent)
        listed = set(pids)
        for pid in before - listed:
            if pid in self._dealt and procfs.stat(pid) is None:
                self._dealt.discard(pid)  # its parent has waited for it: its number may come again
        return listed

    def _meet(self, pid, parent):
        if pid not in self._by_pid and pid not in self._dealt:
            self.find(pid, parent)

    def find(self, pid, parent=None, first=False):
        """Look at one more process. first: it is the one that was started, which is recorded even if it has ended."""
        self.tell_poll()  # the readings of now are not those of that time
        begin_ns = _clock()
        try:
            statm = procfs.Statm(pid)
        except OSError as error:
            self._miss(pid, b"files" if error.errno in (errno.EMFILE, errno.ENFILE) else b"ended")
            return
        alive, stat = statm.read(), procfs.stat(pid)
        above, same = (b"-", b"-"), False
        if parent is not None:
            above = (parent.statm.fields if parent.statm.read() else b"-", _fields(procfs.stat(parent.pid)))
            same = alive and same_memory(statm, parent.statm)
            self._move(parent)
        if not alive and not first:
            statm.close()
            self._miss(pid, b"ended")
            return
        process = LiveProcess(pid, statm, parent, parent if same else None)
        if not _has_room():
            process.close()
            self._miss(pid, b"files")
            return
        name = escaped(stat.name) if stat is not None else b""
        place = (pid, parent.pid if parent is not None else 0, same)
        self._writer.tell_since(b"process", begin_ns, *place, statm.fields, _fields(stat), *above, name)
        self._by_pid[pid] = process
        self.living = [*self.living, process]
        if stat is not None:
            process.see(stat)
        self._move(process)
        self._turn()
        if len(self.living) == 2:
            self._tell_huge()

    def _miss(self, pid, why):
        self._dealt.add(pid)
        self._writer.tell(b"missed", pid, why)

    def take_name(self, pid):
        """A mark has come from this process: find it if it belongs to what was started."""
        if pid in self._named or not 0 < pid <= _LARGEST_PID:
            return
        if self._named:
            self.tell_poll()
            self.poll()  # the process whose marks came before may have ended: then this one takes over
        self._named[pid] = None
        if self.tree and pid not in self._by_pid:
            self.list_children()
        if pid not in self._by_pid and pid not in self._dealt:
            above = self._above(pid)
            self._writer.tell(b"lineage", pid, *above)
            if above and self._belongs(above[-1]):
                self.find(pid)

    def _above(self, pid):
        """The ids of the processes above one, up to this process, one that is looked at, or 0; none if it has ended."""
        line = [pid]
        while line[-1] and not (len(line) > 1 and self._belongs(line[-1])):
            above = procfs.parent(line[-1])
            if above is not None:
                line.append(above)
            elif len(line) > 1:
                line = [pid]  # a process between the two has just ended: those below it have another parent now
            else:
                break
        return line[1:]

    def _belongs(self, pid):
        return pid == os.getpid() or pid in self._by_pid

    # -- they go

    def go(self, process):
        """No memory is left of a process."""
        if process.statm.zombie:
            self.look_at_stat(process)
        above = process.above  # it may hold pages that this process shared, and tells of its faults if it has waited for it
        while above is not None:
            if self._by_pid.get(above.pid) is above:
                self.look_at_stat(above)
            above = above.above
        self._writer.tell(b"gone", process.pid)
        self._dealt.add(process.pid)
        del self._by_pid[process.pid]
        self.living = [other for other in self.living if other is not process]
        self._leaving = [*self._leaving[1 - _LEAVING :], process.pid]
        self.moved += process.resident
        self.moved_files += process.shared
        self._turn()
        process.close()

    def end(self, pid):
        """A child of this process has ended, and nobody has waited for it yet."""
        self.tell_poll()
        process = self._by_pid.get(pid)
        if process is not None:
            process.statm.zombie = True
            self.go(process)
        else:
            stat = procfs.stat(pid)
            if stat is not None:
                self._writer.tell(b"stat", pid, stat.fields, escaped(stat.name))

    def forget(self, pid):
        """Somebody has waited for a process: its number may come again."""
        self._dealt.discard(pid)

    def leaves(self):
        """Whether a process that went is still ending: its memory is unmapped meanwhile, and the other processes' shares are too small."""
        stats = [(pid, procfs.stat(pid)) for pid in self._leaving]
        self._leaving = [pid for pid, stat in stats if stat is not None and not stat.over]
        return bool(self._leaving)

    def _turn(self):
        self._due = True
        self.turnover += 1

    # -- readings

    def poll(self):
        """Read the statm of all processes."""
        for _ in range(_READS):
            begin_ns, processes = _clock(), self.living
            for process in processes:
                if process.twin is not None:
                    self._check_twin(process)
                statm = process.statm
                text = statm.text
                if not statm.read():
                    self.go(process)
                elif statm.text is not text:
                    self._move(process)
            took_ns = _clock() - begin_ns
            if len(processes) < 2 or took_ns <= _READ_NS + len(processes) * _READ_EACH_NS:
                break
        self.count += 1
        self._newest = (begin_ns, took_ns, self._newest[0] or begin_ns)
        self._silent = True
        if self._changed or self._due:
            self.tell_poll()

    def _move(self, process):
        """Take a process's statm, which may have changed."""
        statm = process.statm
        if process.twin is None:
            self.moved += abs(statm.resident - process.resident)
            self.moved_files += abs(statm.shared - process.shared)
        process.resident, process.shared = statm.resident, statm.shared
        self._changed.append(process)

    def tell_poll(self):
        """Write the newest poll if it has no line yet."""
        if not self._silent:
            return
        begin_ns, took_ns, last_ns = self._newest
        fields = [b". %d %d %d %d" % (begin_ns, took_ns, last_ns, self.count)]
        for process in self._changed:
            if process.statm.fields != process.written and self._by_pid.get(process.pid) is process:
                process.written, process.stale = process.statm.fields, True
                fields.append(b"%d %s" % (process.pid, process.written))
        self._writer.add(b"", *fields)
        self._changed, self._silent, self._due = [], False, False

    def _check_twin(self, process):
        if self._by_pid.get(process.twin.pid) is process.twin and same_memory(process.statm, process.twin.statm):
            return
        begin_ns = _clock()
        if process.statm.read():
            process.twin, process.written = None, process.statm.fields
            self._writer.tell_since(b"separate", begin_ns, process.pid, process.written, _fields(procfs.stat(process.pid)))
            self._move(process)
            self._turn()

    def look_at_stat(self, process):
        """Read its stat, and write it unless nothing has changed; the ProcessStat, None if there is none any more."""
        stat = procfs.stat(process.pid)
        if stat is not None:
            stale, before, faults = process.stale, process.stat, process.faults
            process.see(stat)
            if stale or process.stat != before:
                if self._huge != b"-" and stat.faults - faults >= _SOME_FAULTS:
                    self._tell_huge()
                self._writer.tell(b"stat", process.pid, process.stat)
        return stat

    def look_at_status(self, process):
        """Read its status, and write it unless nothing has changed."""
        process.status_ns = _clock()
        status = procfs.status(process.statm.task)
        if status not in (b"-", process.status):
            process.status = status
            self._writer.tell_since(b"status", process.status_ns, process.pid, status)

    def _tell_huge(self):
        count = procfs.number("/proc/vmstat", b"thp_fault_alloc ")
        if count != self._huge:
            self._huge = count
            self._writer.tell(b"huge", count)


def _fields(stat):
    return stat.fields if stat is not None else b"-"
