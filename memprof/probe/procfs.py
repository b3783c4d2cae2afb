"""One look at a process or at the machine, as numbers in bytes. The kernel's own field tables stand above the reads."""

import os

PAGE = os.sysconf("SC_PAGE_SIZE")


class Statm:
    """Polls /proc/PID/statm through one open descriptor.

    /proc/PID/statm, in pages (proc_pid_statm(5)):
        0 size      virtual memory
        1 resident  anonymous + file-backed + shared memory
        2 shared    file-backed + shared memory
        3 text, 4 lib (0), 5 data, 6 dt (0)
    """

    def __init__(self, pid):
        self._descriptor = os.open("/proc/%d/statm" % pid, os.O_RDONLY | os.O_CLOEXEC)
        self._text = b""
        self._values = None

    def read(self):
        """(rss, file-backed, vms) in bytes, or None once the process is gone: a zombie's statm is all zeros."""
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
        os.close(self._descriptor)


def children(pid):
    """Process ids of the children of all threads of a process."""
    found = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as file:
                found += [int(child) for child in file.read().split()]
    except FileNotFoundError:  # a thread that ended meanwhile, or a kernel without CONFIG_PROC_CHILDREN
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent(int(name)) == pid]
    return found


def parent(pid):
    """The process id of a process's parent, or None where there is no such process any more."""
    return _stat(pid, 4)


def name(pid: int) -> "object":
    """What a process calls itself (/proc/PID/comm, at most 15 characters), or an empty string where there is no such process."""
    return _text("/proc/%d/comm" % pid).strip()


def stopped(pid):
    """Whether a process stands still (state T: a stopping signal)."""
    return _text("/proc/%d/stat" % pid).rpartition(")")[2].split()[:1] == ["T"]


def started(pid: int) -> "object":
    """When a process was started, in clock ticks since the machine's start, or None where there is no such process any more."""
    return _stat(pid, 22)


def _stat(pid, field):
    # /proc/PID/stat (proc_pid_stat(5)): 1 pid, 2 (comm), which may hold anything, 3 state (Z: it has ended), 4 ppid, ..., 22 starttime
    fields = _text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return int(fields[field - 3]) if fields and fields[0] != "Z" else None


def stat_fields(pid):
    """(name, minor faults of children that were waited for, threads) of a process, or None where there is none any more."""
    # /proc/PID/stat: 2 (comm), 3 state, 11 cminflt, 20 num_threads
    head, _, rest = _text("/proc/%d/stat" % pid).rpartition(")")
    fields = rest.split()
    if not fields or fields[0] == "Z":
        return None
    return head.partition("(")[2], int(fields[8]), int(fields[17])


def counters(pid):
    """(minor faults, major faults, CPU time in ns) of a process since it started, or None where there is none any more."""
    # /proc/PID/stat: 10 minflt, 12 majflt, 14 utime, 15 stime, the last two in clock ticks
    fields = _text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    if not fields or fields[0] == "Z":
        return None
    return int(fields[7]), int(fields[9]), (int(fields[11]) + int(fields[12])) * (10**9 // os.sysconf("SC_CLK_TCK"))


def read_bytes(pid):
    """Bytes that a process has had read from disk (/proc/PID/io), or None where that may not be seen."""
    return _fields("/proc/%d/io" % pid).get("read_bytes")


def high_water(pid):
    """The high-water mark of a process's resident set (VmHWM), in bytes; 0 where there is none to be had."""
    return _fields("/proc/%d/status" % pid).get("VmHWM", 0)


# /proc/PID/status, as the figures of a mark call them.
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
    """Memory of a process in bytes, by the names of _STATUS; empty where there is no such process any more."""
    found = _fields("/proc/%d/status" % pid)
    return {ours: found[theirs] for theirs, ours in _STATUS.items() if theirs in found}


def pss(pid):
    """(PSS, its file-backed and shared part, its anonymous part that others have too) of a process in bytes, or None where it may not be read.

    /proc/PID/smaps_rollup; takes milliseconds for a large process. Pss_Anon and its like are there from Linux 5.4 on.
    """
    found = _fields("/proc/%d/smaps_rollup" % pid)
    if "Pss" not in found:
        return None
    private = found.get("Private_Clean", 0) + found.get("Private_Dirty", 0)
    file = found.get("Pss_File", 0) + found.get("Pss_Shmem", 0)
    return found["Pss"], file, max(0, found.get("Pss_Anon", 0) - private)


def reset_high_water(pid):
    """Set the high-water mark of a process to what is resident now; False where that is not permitted."""
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
    """How often the kernel has killed a process for want of memory since it started (/proc/vmstat), or None."""
    for line in _text("/proc/vmstat").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return None


def machine() -> "dict[str, object]":
    """Facts about this machine, as memprof.runs.records.Machine has them."""
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
        "peak_bound_bytes": peak_bound(os.sysconf("SC_NPROCESSORS_CONF")),
    }


def peak_bound(cpus):
    """How far a high-water mark can lie from the truth.

    The kernel keeps a memory counter as a sum and a part for each CPU, and folds a part in once it reaches max(32, 2 x CPUs) pages
    (percpu_counter_batch in lib/percpu_counter.c, Linux 6.2 and later). The resident set is the sum of two that matter, anonymous and
    file-backed (a third, shared, hardly moves): in 4,000 trials on 2 CPUs the mark was up to 73 pages low, where one counter allows 64.
    """
    return 2 * max(32, 2 * cpus) * cpus * PAGE


def _fields(path):
    found = {}
    for line in _text(path).splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if parts and parts[0].isdigit():
            found[name] = int(parts[0]) * (1024 if parts[-1] == "kB" else 1)
    return found


def _cpu_name():
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            head = file.read(2048).decode("utf-8", "replace")  # the first CPU will do; a server's file takes milliseconds
    except OSError:
        return ""
    for line in head.splitlines():
        name, _, rest = line.partition(":")
        if name.strip() in ("model name", "Hardware", "Model"):
            return rest.strip()
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
