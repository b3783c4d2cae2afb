"""Reads figures of a process or of the machine from /proc, in bytes. The kernel's field tables stand above the reads."""

import os

PAGE = os.sysconf("SC_PAGE_SIZE")


class Statm:
    """Polls /proc/PID/statm through one open descriptor.

    /proc/PID/statm, in pages (proc_pid_statm(5)):
        0 size      virtual memory
        1 resident  anonymous + file-backed + shared memory
        2 shared    file-backed + shared memory
        3 text, 4 lib (0), 5 data, 6 dt (0)

    task: the id by which /proc tells of the process's memory. It is the process id until the first thread has ended while others live (see
    `living`), and then the id of another thread.
    """

    def __init__(self, pid):
        self._pid = self.task = pid
        self._first = self._descriptor = self._open(pid)
        self._text = b""
        self._values = None

    def read(self):
        """(rss, file-backed, vms) in bytes, or None once the process is gone: a zombie's statm is all zeros."""
        values = self._read()
        while values is None and self._turn():
            values = self._read()
        return values

    def _read(self):
        try:
            text = os.pread(self._descriptor, 128, 0)
        except OSError:
            return None
        if text != self._text:
            self._text = text
            size, resident, shared = text.split(None, 3)[:3]
            self._values = (int(resident) * PAGE, int(shared) * PAGE, int(size) * PAGE) if size != b"0" else None
        return self._values

    def close(self):
        if self._descriptor != self._first:
            os.close(self._descriptor)
        os.close(self._first)

    def _turn(self):
        """Turn to another thread, as this one shows no memory any more; False if there is none that does."""
        if self.task != self._pid:
            os.close(self._descriptor)
            self._descriptor, self.task = self._first, self._pid
            if self._read() is not None:
                return True  # an exec of another thread has made that the first thread
        try:
            os.pread(self._first, 128, 0)  # else somebody has waited for the process: its number may be another's by now
            task = living(self._pid)
            if task in (None, self._pid):
                return task is not None
            self._descriptor, self.task = self._open(task), task
        except OSError:
            return False
        return True

    @staticmethod
    def _open(task):
        return os.open("/proc/%d/statm" % task, os.O_RDONLY | os.O_CLOEXEC)


def living(pid):
    """The id of a thread through which a process's memory can be seen, or None if it has none.

    A first thread that ends before the others (pthread_exit in main) leaves a zombie: /proc/PID tells of no memory from then on, though it is
    all there. /proc/TID of any other thread does, though no listing of /proc has it.
    """
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return None
    return next((int(thread) for thread in threads if sizes(int(thread))), None)


def sizes(pid):
    """The first three fields of a process's statm, or None if it is gone."""
    fields = _text("/proc/%d/statm" % pid).split()[:3]
    return fields if fields and fields[0] != "0" else None


def children(pid):
    """Process ids of the children of all threads of a process."""
    pids = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as file:
                pids += [int(child) for child in file.read().split()]
    except FileNotFoundError:  # a thread that ended meanwhile, or a kernel without CONFIG_PROC_CHILDREN
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent(int(name)) == pid]
    return pids


def parent(pid):
    """The process id of a process's parent, or None if the process has ended."""
    return _stat(pid, 4)


def name(pid: int) -> "object":
    """The name of a process (/proc/PID/comm, at most 15 characters), or an empty string if there is no such process."""
    return _text("/proc/%d/comm" % pid).strip()


def stopped(pid):
    """Whether a process stands still (state T: a stopping signal)."""
    return _text("/proc/%d/stat" % pid).rpartition(")")[2].split()[:1] == ["T"]


def started(pid: int) -> "object":
    """When a process was started, in clock ticks since the machine's start, or None if the process has ended."""
    return _stat(pid, 22)


def _stat(pid, field):
    # /proc/PID/stat (proc_pid_stat(5)): 1 pid, 2 (comm), which may hold anything, 3 state (Z: it has ended), 4 ppid, ..., 22 starttime
    fields = _text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return int(fields[field - 3]) if fields and not _ended(fields) else None


def _ended(fields):
    """Whether nothing is left of a process but its exit code. fields: those of its stat from the third on.

    A zombie with more than one thread is but the first thread: the others live on, and so does the memory.
    """
    return fields[0] in ("Z", "X") and int(fields[17]) <= 1


class Stat:
    """Fields of a process's /proc/PID/stat (proc_pid_stat(5)); that of a zombie still has its faults.

    2 (comm), 3 state, 10 minflt, 11 cminflt (of children that were waited for), 20 num_threads, 28 startstack: where its stack begins, which
    stays after a fork and changes at an exec; 0 if it may not be seen.
    """

    __slots__ = ("child_faults", "ended", "faults", "name", "stack", "threads")

    def __init__(self, name, fields):
        self.name = name
        self.ended = _ended(fields)
        self.faults, self.child_faults = int(fields[7]), int(fields[8])
        self.threads, self.stack = int(fields[17]), int(fields[25])


def stat(pid):
    """The Stat of a process, or None if there is no such process."""
    head, _, tail = _text("/proc/%d/stat" % pid).rpartition(")")
    fields = tail.split()
    return Stat(head.partition("(")[2], fields) if len(fields) > 25 else None


def counters(pid):
    """(minor faults, major faults, CPU time in ns) of a process since it started, or None if it has ended."""
    # /proc/PID/stat: 10 minflt, 12 majflt, 14 utime, 15 stime, the last two in clock ticks
    fields = _text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    if not fields or _ended(fields):
        return None
    return int(fields[7]), int(fields[9]), (int(fields[11]) + int(fields[12])) * (10**9 // os.sysconf("SC_CLK_TCK"))


def read_bytes(pid):
    """Bytes that were read from disk for a process (/proc/PID/io), or None if that may not be seen."""
    return _fields("/proc/%d/io" % pid).get("read_bytes")


def high_water(pid):
    """The high-water mark of a process's resident set (VmHWM), in bytes; 0 if it cannot be had."""
    return _fields("/proc/%d/status" % pid).get("VmHWM", 0)


# Fields of /proc/PID/status, and their names in a mark's figures.
_STATUS = {
    "VmRSS": "rss",
    "RssAnon": "anon",
    "RssFile": "file",
    "RssShmem": "shmem",
    "VmSwap": "swap",
    "VmSize": "vms",
    "VmHWM": "hwm",
    "VmPeak": "vms_peak",
}


def status(pid: int) -> "dict[str, int]":
    """Memory of a process in bytes, by the names of _STATUS; empty if the process has ended."""
    fields = _fields("/proc/%d/status" % pid)
    if "VmRSS" not in fields:
        fields = _fields("/proc/%d/status" % (living(pid) or pid))
    return {name: fields[field] for field, name in _STATUS.items() if field in fields}


def exact_status(pid: int) -> "dict[str, int]":
    """As `status`, with the resident set of smaps_rollup where the two differ by more than a page."""
    figures = status(pid)
    exact = shares(pid) if "rss" in figures else None
    if exact is not None:
        figures.update(exact_end(figures, exact.rss, exact.anon))
    return figures


def exact_end(figures: "dict[str, int]", rss: int, anon: int) -> "dict[str, int]":
    """The resident set and its parts, if smaps_rollup's differ by more than a page from those of `status`.

    Kernels before 6.17 keep the counters behind `status` late. For smaps_rollup they walk the pages, so it is exact on every kernel.
    """
    if "rss" not in figures or abs(rss - figures["rss"]) <= PAGE:
        return {}
    return {"rss": rss, "anon": anon, "file": max(0, rss - anon - figures.get("shmem", 0))}


def swapped(pid: int) -> "tuple[int, int, int] | None":
    """(resident set, swapped out, threads) of a process, the first two in bytes as of one moment, or None if it has ended."""
    fields = _fields("/proc/%d/status" % pid)
    return (fields["VmRSS"], fields.get("VmSwap", 0), fields.get("Threads", 1)) if "VmRSS" in fields else None


class Shares:
    """Fields of a process's /proc/PID/smaps_rollup, in bytes, all as of one moment.

    anon: its anonymous memory. pss: its share of its resident memory. file_overlap: the part of rss - pss that is file-backed and shared memory.
    shared_anon: how much of its anonymous memory another process may have too, at most. private: memory that no other process has. Pss_Anon and
    its like are there from Linux 5.4 on.
    """

    __slots__ = ("anon", "file_overlap", "private", "pss", "rss", "shared_anon")

    def __init__(self, fields):
        self.rss, self.pss = fields["Rss"], fields["Pss"]
        self.anon = anon = fields.get("Anonymous", 0)
        own_anon = fields.get("Pss_Anon", 0)
        self.file_overlap = max(0, self.rss - self.pss - max(0, anon - own_anon))
        self.private = fields.get("Private_Clean", 0) + fields.get("Private_Dirty", 0)
        self.shared_anon = min(anon, fields.get("Shared_Clean", 0) + fields.get("Shared_Dirty", 0))


def maps(pid):
    """The lines of a process's /proc/PID/maps; none if they may not be read or it has ended."""
    return _text("/proc/%d/maps" % pid).split("\n")[:-1]  # a name may hold other ends of lines


def shares(pid):
    """The Shares of a process, or None if they may not be read or it has ended; takes milliseconds for a large process."""
    fields = _fields("/proc/%d/smaps_rollup" % pid)
    return Shares(fields) if "Pss" in fields and "Rss" in fields else None


def reset_high_water(pid):
    """Set the high-water mark of a process to its resident set of now; False if that is not permitted."""
    try:
        with open("/proc/%d/clear_refs" % pid, "wb", buffering=0) as file:
            file.write(b"5")
    except OSError:
        return False
    return True


def command(pid, most=200):
    """The words of a process as one line, shortened, or an empty string."""
    words = _text("/proc/%d/cmdline" % pid).replace("\0", " ").split()
    return " ".join(words)[:most].encode("utf-8", "backslashreplace").decode("utf-8")


def oom_kills():
    """How often the kernel has killed a process for want of memory since the machine started (/proc/vmstat), or None."""
    return _counted("/proc/vmstat", "oom_kill ")


def oom_kills_inside():
    """The same for this container alone, or None outside of a container: the first group of a machine has no such file (cgroup-v2.rst).

    Groups below it count too.
    """
    return _counted("/sys/fs/cgroup/memory.events", "oom_kill ")


def huge_faults():
    """How often a page fault of any process has brought in a huge page (/proc/vmstat), or None."""
    return _counted("/proc/vmstat", "thp_fault_alloc ")


def _counted(path, name):
    for line in _text(path).splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return None


def machine(usable: "int | None" = None, threads: int = 1) -> "dict[str, object]":
    """Facts about this machine, in the form of memprof.runs.records.Machine. usable, threads: see `peak_bound`."""
    system = os.uname()
    cpus = os.cpu_count() or 1
    memory = _fields("/proc/meminfo")
    return {
        "name": system.nodename,
        "arch": system.machine,
        "kernel": system.release,
        "libc": _libc(),
        "cpu": _cpu_name(),
        "cpus": cpus,
        "cpus_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.get("MemTotal", 0),
        "swap_bytes": memory.get("SwapTotal", 0),
        "page_bytes": PAGE,
        "huge_pages": _chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "peak_bound_bytes": peak_bound(usable, threads),
    }


def peak_bound(usable=None, threads=1, cpus=None, release=None):
    """How far a high-water mark can lie from the truth, in bytes, for a process that may run on `usable` CPUs (None: as many as this process).

    Linux 6.2 and later keep a memory counter as a sum and a part for each CPU, and fold a part in once it reaches max(32, 2 x CPUs) pages
    (percpu_counter_batch in lib/percpu_counter.c). Parts are left only on CPUs where the process ran. The resident set is the sum of two
    counters that matter, anonymous and file-backed (a third, shared, hardly moves): in 4,000 trials on 2 CPUs the mark was up to 73 pages low,
    where one counter allows 64.

    Earlier kernels keep a part for each thread, and fold it in after 64 faults (TASK_RSS_EVENTS_THRESH in mm/memory.c). A fault in a mapped file
    maps up to 64 KiB around it (fault_around_bytes), all of it counted late. On Linux 6.1, status and the mark were up to 67 pages a thread low
    where threads touched anonymous memory, and 993 where they touched mapped files. threads: the most that the process had.
    """
    if late_by_thread(release):
        return 67 * max(PAGE, 64 << 10) * max(1, threads)
    cpus = cpus or os.sysconf("SC_NPROCESSORS_ONLN")
    return 2 * max(32, 2 * cpus) * (usable or len(os.sched_getaffinity(0))) * PAGE


def late_by_thread(release=None):
    """Whether the kernel (of that release, or this one) keeps a part of the memory counters for each thread: before 6.2."""
    version = (release or os.uname().release).split(".")[:2]
    return all(part.isdigit() for part in version) and tuple(int(part) for part in version) < (6, 2)


def has_swap():
    """Whether this machine has any swap now."""
    return _fields("/proc/meminfo").get("SwapTotal", 0) > 0


def _fields(path):
    fields = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        parts = value.split()
        if parts and parts[0].isdigit():
            fields[name] = int(parts[0]) * (1024 if parts[-1] == "kB" else 1)
    return fields


def _cpu_name():
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            head = file.read(2048).decode("utf-8", "replace")  # the first CPU is enough; a server's whole file takes milliseconds
    except OSError:
        return ""
    for line in head.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware", "Model"):
            return value.strip()
    return ""


def _libc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _chosen(path):
    """The word in brackets of a sysfs file such as `always [madvise] never`, or an empty string."""
    return _text(path).partition("[")[2].partition("]")[0]


def _text(path):
    try:
        with open(path, "rb", buffering=0) as file:
            chunks: "list[bytes]" = []
            while True:
                chunk = file.read(65536)
                if not chunk:
                    return b"".join(chunks).decode("utf-8", "replace")
                chunks.append(chunk)
    except OSError:
        return ""
