"""Reads figures of a process or of the machine from /proc, as the kernel wrote them. The kernel's field tables stand above the reads."""

import os

PAGE = os.sysconf("SC_PAGE_SIZE")


class Statm:
    """Polls /proc/PID/statm through one open descriptor. Raises OSError if it cannot be opened.

    /proc/PID/statm, in pages (proc_pid_statm(5)): 0 size (virtual memory), 1 resident (anonymous + file-backed + shared memory), 2 shared
    (file-backed + shared memory), 3 text, 4 lib (0), 5 data, 6 dt (0).

    text: as last read with memory; fields: the first three; resident, shared: as numbers. zombie: it has ended, and nobody has waited for it yet.
    task: the id by which /proc tells of the process's memory. A first thread that ends before the others (pthread_exit in main) leaves a zombie:
    /proc/PID tells of no memory from then on. /proc/TID of any other thread does, though no listing of /proc has it.
    """

    __slots__ = ("_descriptor", "_first", "_pid", "fields", "resident", "shared", "task", "text", "zombie")

    def __init__(self, pid):
        self._pid = self.task = pid
        self._first = self._descriptor = _open_statm(pid)
        self.text, self.fields, self.zombie = b"", b"-", False
        self.resident = self.shared = 0

    def read(self):
        """Whether the process has memory: a zombie's statm is all zeros."""
        while True:
            try:
                text = os.pread(self._descriptor, 128, 0)
            except OSError:
                text = b"0 0 0"
            if text == self.text:
                return True
            size, resident, shared = text.split(None, 3)[:3]
            if size != b"0":
                self.text, self.fields = text, b"%s %s %s" % (size, resident, shared)
                self.resident, self.shared = int(resident), int(shared)
                return True
            if not self._turn():
                return False

    def close(self):
        if self._descriptor != self._first:
            os.close(self._descriptor)
        os.close(self._first)

    def _turn(self):
        """Turn to a thread that may show memory; False if there is none."""
        if self.task != self._pid:  # an exec of another thread may have made that the first thread
            os.close(self._descriptor)
            self._descriptor, self.task = self._first, self._pid
            return True
        self.zombie = False
        try:
            os.pread(self._first, 128, 0)  # else somebody has waited for the process: its number may be another's by now
            self.zombie = True
            for thread in map(int, os.listdir("/proc/%d/task" % self._pid)):
                if read("/proc/%d/statm" % thread)[:2] not in (b"", b"0 "):
                    if thread != self._pid:
                        self._descriptor, self.task = _open_statm(thread), thread
                    return True
        except OSError:
            pass
        return False


def _open_statm(task):
    return os.open("/proc/%d/statm" % task, os.O_RDONLY | os.O_CLOEXEC)


class ProcessStat:
    """/proc/PID/stat (proc_pid_stat(5)); that of a zombie still has its faults.

    2 (comm), which may hold anything, 3 state, 4 ppid, 10 minflt, 11 cminflt (of children that were waited for), 12 majflt, 14 utime, 15 stime,
    20 num_threads, 22 starttime, 28 startstack: where its stack begins, which stays after a fork and changes at an exec; 0 if it may not be seen.

    fields: STAT of a recording. over: nothing is left of it but its exit code; a zombie with more than one thread is but the first thread.
    """

    __slots__ = ("faults", "fields", "name", "over", "parent", "stack", "started", "threads")

    def __init__(self, name, words):
        self.name, self.stack = name, words[25]
        self.parent, self.faults, self.threads, self.started = (int(words[place]) for place in (1, 7, 17, 19))
        ticks = int(words[11]) + int(words[12])
        self.fields = b"%s %s %s %s %d %s %s" % (words[0], words[7], words[8], words[9], ticks, words[17], words[25])
        self.over = words[0] in (b"Z", b"X") and self.threads <= 1


def stat(pid):
    """The ProcessStat of a process, or None if there is no such process."""
    head, _, tail = read("/proc/%d/stat" % pid).rpartition(b")")
    words = tail.split()
    return ProcessStat(head.partition(b"(")[2], words) if len(words) > 25 else None


def parent(pid):
    """The process id of a process's parent, or None if the process is gone."""
    found = stat(pid)
    return found.parent if found is not None else None


def name(pid):
    """The name of a process (/proc/PID/comm, at most 15 characters), empty if there is no such process."""
    return read("/proc/%d/comm" % pid)[:-1]


def children(pid):
    """Process ids of the children of all threads of a process, none if it has ended."""
    pids = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as file:
                pids += [int(child) for child in file.read().split()]
    except OSError:  # a thread that ended meanwhile, or a kernel without CONFIG_PROC_CHILDREN
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and parent(int(entry)) == pid]
    return pids


_STATUS = (b"VmSize:", b"VmPeak:", b"VmRSS:", b"VmHWM:", b"RssAnon:", b"RssFile:", b"RssShmem:", b"VmSwap:", b"Threads:")
# Pss_Anon is there from Linux 5.4 on.
_ROLLUP = (b"Rss:", b"Pss:", b"Pss_Anon:", b"Anonymous:", b"Shared_Clean:", b"Shared_Dirty:", b"Private_Clean:", b"Private_Dirty:")


def status(task):
    """STATUS of a process, b"-" if it has no memory."""
    text = read("/proc/%d/status" % task)
    return b" ".join([field(text, name) for name in _STATUS]) if b"\nVmRSS:" in text else b"-"


def rollup(task):
    """ROLLUP of a process, b"-" if it may not be read or the process has ended; takes milliseconds for a large process."""
    text = read("/proc/%d/smaps_rollup" % task)
    return b" ".join([field(text, name) for name in _ROLLUP]) if b"\nPss:" in text else b"-"


def field(text, name):
    """The number behind a name, with the colon or the space that ends it, at the begin of a line that is not the first; b"-" if there is none."""
    return text.partition(b"\n" + name)[2][:32].split(None, 1)[0] if b"\n" + name in text else b"-"


def number(path, name):
    """The number behind a name in a file, as `field` has it; b"-" if there is none."""
    return field(b"\n" + read(path), name)


def reset_high_water(pid):
    """Set the high-water mark of a process to its resident set of now; False if that is not permitted."""
    try:
        with open("/proc/%d/clear_refs" % pid, "wb", buffering=0) as file:
            file.write(b"5")
    except OSError:
        return False
    return True


def read(path):
    """The content of a file, empty if it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
