"""Marks of phases: the measured process itself writes where a phase begins and ends and what it cost, as lines of JSON.

The contract. The environment holds `MEMPROF_MARKS=FD:DEV:INO`: the descriptor to write to, with the device and inode that fstat must give for
it, because a program that closes descriptors may have given the number to another file. Without the variable nothing is done at all.
Each line is at most PIPE_BUF bytes, so that lines of several processes never mix, and one object with its kind under "mark":

    {"mark": "begin", "pid", "phase", "t_ns"}           a phase begins
    {"mark": "times", "pid", "phase", "times_ns"}       durations of iterations of the phase that runs, in order, as many as fit
    {"mark": "end", "pid", "phase", "begin_ns", "end_ns", ...}   it has ended; the figures that `end` writes follow
    {"mark": "about", "pid", "runtime_version", "python_version", "notes", "packages"}   versions, and notes for the reader
    {"mark": "error", "pid", "phase", "kind", "message"}         it failed: kind is "import", "refused" or "error"
    {"mark": "done", "pid"}                             the job is complete; the process may end now
    {"mark": "value", "pid", "name", "value", "t_ns"}   a figure of the program's own, such as an arena's size: a number, or NaN, Infinity or
                                                        -Infinity, as Python's json has them
    {"mark": "work", "pid", "phase", "units", "rows"}   with MEMPROF_WORK=1: memory after units of the phase's work. units: their names, the first
                                                        is iteration; rows: one list of numbers, for each row t_ns, rss, file, swap, and how many
                                                        of each unit were done by then. The first row is from before the first unit
    {"mark": "anchor", "pid", "phase", "iteration", "seen", "rss", "swap", "heap_used", "heap_free"}   the same moment by exact counters:
                                                        seen is the rss of the rows, rss and swap are those of smaps_rollup
    {"mark": "stray", "pid", "what", "phase"}           a call in the wrong order: a "begin" while that phase was open (which ends there), an
                                                        "end" with none open (the last phase's name, "" for none)

native/memprof.h and memprof_marks.py write the same lines for programs and scripts that are not memprof's own.

An "end" has "units" too if the phase counted others than iterations: {"token": 640}.

With `MEMPROF_HOLD=1` beside it, the process stops itself (SIGSTOP) after each "end" line, and goes on when it is sent SIGCONT.

Times are CLOCK_MONOTONIC in nanoseconds, one clock for all processes of a machine. Memory is in bytes. Figures that cannot be had are left
out. The high-water mark is reset where a phase begins (`5` to /proc/self/clear_refs) and read where it ends; all other looks at the
process happen outside the timed part. Stdlib only, Python 3.8 and later.
"""

import _signal  # the C part, which is there anyway: the module around it would move the memory of a process that is stopped
import ctypes
import json
import os
import resource
import sys
import time

import marks_memory
import marks_work

# /proc/self/status, in kB.
_STATUS = {
    b"VmRSS": "rss",
    b"RssAnon": "anon",
    b"RssFile": "file",
    b"RssShmem": "shmem",
    b"VmSwap": "swap",
    b"VmSize": "vms",
    b"VmHWM": "hwm",
    b"VmPeak": "vms_peak",
}
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TIMES_A_LINE = 150
_TEXT_LENGTHS = (1500, 600, 200, 50, 0)  # tried in turn until a line fits: a character takes up to 12 bytes in it


class Marks:
    """Writes the marks of one process. Every method is safe to call if nobody listens."""

    def __init__(self, environment=os.environ):
        self._target = _target(environment.get("MEMPROF_MARKS", ""))
        self._highest = 0  # of every high-water mark read so far: the figure of a tool that never resets it
        self._phase = None
        self.follows = self._target is not None and environment.get("MEMPROF_WORK") == "1"  # whether memory by units is wanted
        self._work = None
        self._hold = self._target is not None and environment.get("MEMPROF_HOLD") == "1"

    def begin(self, phase, started_ns=None):
        """Begin a phase. started_ns: it began earlier, at the process's start, so there is no high-water mark to reset."""
        if self._target is None:
            return
        self._phase = phase
        if started_ns is None:
            self._begin_work(phase)
        before = read_status()
        self._highest = max(self._highest, before.get("hwm", 0))
        self._reset = started_ns is not None or reset_high_water()
        self._hwm_begin = 0 if started_ns is not None else before.get("hwm", 0)
        self._rss_begin = 0 if started_ns is not None else before.get("rss", 0)
        self._counters = (0, 0, 0, 0) if started_ns is not None else _counters()
        self._begin_ns = started_ns or time.monotonic_ns()
        self.write({"mark": "begin", "phase": phase, "t_ns": self._begin_ns})
        if started_ns is None:
            self._begin_ns = time.monotonic_ns()

    def end(self, times_ns=(), values=dict):
        """End the phase that runs. times_ns: the durations of its iterations. values: called for numbers by name that belong to the phase."""
        end_ns = time.monotonic_ns()
        if self._target is None or self._phase is None:
            return
        units = self._work.end() if self._work is not None else {}
        after = read_status()
        counters = _counters()
        exact = shares("self", after)
        self._highest = max(self._highest, after.get("hwm", 0))
        for start in range(0, len(times_ns), _TIMES_A_LINE):
            self.write({"mark": "times", "phase": self._phase, "times_ns": list(times_ns[start : start + _TIMES_A_LINE])})
        minor, major, read_bytes, cpu_ns = (now - then for now, then in zip(counters, self._counters))
        figures = {
            "begin_ns": self._begin_ns,
            "end_ns": end_ns,
            "hwm_reset": self._reset,
            "hwm_begin_bytes": self._hwm_begin,
            "hwm_phase_bytes": after.get("hwm"),
            "hwm_bytes": self._highest or None,
            "rss_begin_bytes": self._rss_begin,
            "vms_peak_bytes": after.get("vms_peak"),
            "minor_faults": minor,
            "major_faults": major,
            "read_bytes": read_bytes if counters[2] >= 0 else None,
            "cpu_ns": cpu_ns,
        }
        for name in ("rss", "anon", "file", "shmem", "swap", "vms"):
            figures[name + "_end_bytes"] = after.get(name)
        figures.update(exact)
        figures.update(_heap())
        for name, value in values().items():
            self.write({"mark": "value", "name": name, "value": value, "t_ns": end_ns})
        line = {"mark": "end", "phase": self._phase}
        line.update((name, value) for name, value in figures.items() if value is not None)
        if units:
            line["units"] = units
        self._phase = None
        if self.write(line) and self._hold:
            _stop()

    def iteration(self, shape=None, **units):
        """An iteration of the phase has ended. shape: what tells its inputs' shape; units: how many of other units it did, such as tokens=12."""
        if self._target is None or self._phase is None:
            return
        if self._work is None:
            self._work = marks_work.Work(self._send, False)
        self._work.iteration(shape, [(name[:-1] if name.endswith("s") else name, count) for name, count in units.items()])

    def _begin_work(self, phase):
        if self.follows:
            self._work = self._work or marks_work.Work(self._send, True)
        if self._work is not None:
            self._work.begin(json.dumps(phase).encode())

    def about(self, runtime_version, notes):
        """Write the versions of the runtime and the interpreter, and notes for the reader of the figures."""
        python = "%d.%d.%d" % sys.version_info[:3]
        notes = [notes] if isinstance(notes, str) else [str(note) for note in notes]
        for most in _TEXT_LENGTHS:
            short = [note[:most] for note in notes]
            line = {"mark": "about", "runtime_version": runtime_version[:200], "python_version": python, "notes": short}
            if self.write(dict(line, packages=_packages())) or self.write(line):
                return

    def error(self, phase, kind, message):
        """Write why the job ends here."""
        for most in _TEXT_LENGTHS:
            if self.write({"mark": "error", "phase": phase, "kind": kind, "message": message[:most]}):
                return

    def done(self):
        """Write that the job is complete."""
        self.write({"mark": "done"})

    def write(self, line):
        """Write a line if somebody listens, with this process's id if it has none; False if it is too long for that."""
        if self._target is None:
            return True
        data = marks_memory.line(dict({"pid": os.getpid()}, **line))
        if data is None:
            return False
        self._send(data)
        return True

    def _send(self, data):
        number, device, inode = self._target
        try:
            file = os.fstat(number)
            if (file.st_dev, file.st_ino) == (device, inode):
                os.write(number, data)
        except OSError:
            pass  # nobody listens any more; the process goes on as if it had never been measured


def _packages():
    """Versions of the packages that are imported by now, which change figures too; nothing is imported to learn them."""
    versions = {}  # type: dict
    for name, module in sorted(sys.modules.items()):
        version = getattr(module, "__version__", None) if "." not in name else None
        installed = any(folder in (getattr(module, "__file__", None) or "") for folder in ("site-packages", "dist-packages"))
        if installed and isinstance(version, str) and len(versions) < 40:
            versions[name[:60]] = version[:40]
    return versions


def read_status(process="self"):
    """Memory of this process, or of that id, in bytes by the names of _STATUS; a field the kernel lacks is missing."""
    sizes = _sizes("/proc/%s/status" % process, _STATUS)
    return {_STATUS[name]: size for name, size in sizes.items()}


def _sizes(path, names):
    """Bytes by name: the rows of a /proc file, in kB there, that have these names; empty if it cannot be read."""
    length = marks_memory.read(path)
    sizes = ((name, marks_memory.row(name, length)) for name in names)
    return {name: size * 1024 for name, size in sizes if size is not None}


def _target(text):
    try:
        number, device, inode = (int(part) for part in text.split(":"))
    except ValueError:
        return None
    return number, device, inode


def reset_high_water(process="self"):
    """Set the high-water mark to the resident set of now; False if the kernel refuses."""
    try:
        with open("/proc/%s/clear_refs" % process, "wb", buffering=0) as file:
            file.write(b"5")
    except OSError:
        return False
    return True


def _stop():
    os.kill(os.getpid(), _signal.SIGSTOP)


def _counters():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)
    return usage.ru_minflt, usage.ru_majflt, bytes_read(), cpu_ns


def bytes_read(process="self"):
    """Bytes read from disk so far, -1 if the kernel does not say."""
    size = marks_memory.row(b"read_bytes", marks_memory.read("/proc/%s/io" % process))  # some containers hide it
    return -1 if size is None else size


def shares(process, after):
    """pss_end_bytes and uss_end_bytes; takes milliseconds for a large process, so never inside a timed part.

    after: what `read_status` has just told. If the resident set of smaps_rollup differs from it by more than a page, its parts by smaps_rollup are
    added: that is exact on every kernel, and the counters behind status lag before Linux 6.17.
    """
    names = (b"Rss", b"Anonymous", b"Pss", b"Private_Clean", b"Private_Dirty")
    sizes = _sizes("/proc/%s/smaps_rollup" % process, names)
    if b"Pss" not in sizes:
        return {}
    figures = {"pss_end_bytes": sizes[b"Pss"], "uss_end_bytes": sizes.get(b"Private_Clean", 0) + sizes.get(b"Private_Dirty", 0)}
    if "rss" in after and abs(sizes[b"Rss"] - after["rss"]) > _PAGE:
        rss, anon = sizes[b"Rss"], sizes[b"Anonymous"]
        figures.update(rss_end_bytes=rss, anon_end_bytes=anon, file_end_bytes=max(0, rss - anon - after.get("shmem", 0)))
    return figures


def _heap():
    """Bytes that glibc's allocator holds for the program, and bytes that it kept when they were freed; nothing elsewhere."""
    sizes = marks_work.heap()
    return {} if sizes is None else {"heap_used_end_bytes": sizes[0], "heap_free_end_bytes": sizes[1]}


def trim():
    """Let glibc give back freed memory that it kept; False if the C library has no malloc_trim."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True
