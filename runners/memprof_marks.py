"""Marks for memprof in your Python script: copy this file beside the script. Stdlib only, Python 3.8 and later.

    from memprof_marks import iteration, phase, value

    with phase("MODEL_LOAD"):
        model = load(path)
    value("arena_bytes", model.arena_bytes)
    with phase("EXECUTE"):
        for batch in batches:
            model.run(batch)
            iteration(tokens=batch.tokens, shape=batch.shape)  # or iteration() alone

    cp "$(memprof marks --python)" .  &&  memprof exec -- python script.py

`memprof grow` reads memory after each iteration and says whether it rises with iterations, with tokens or with each new shape. Any other plural
is as good a unit: requests=1, sessions=1.

Without memprof around it, nothing is done. Phases do not nest.

The contract, which native/memprof.h follows too. The environment holds `MEMPROF_MARKS=FD:DEV:INO`: the descriptor to write to, with the device and
inode that fstat must give for it, because a program that closes descriptors may have given the number to another file. Each line is at most PIPE_BUF
bytes, so that lines of several processes never mix, and one object with its kind under "mark":

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
                                                        seen is the rss of the rows, rss and swap are those of smaps_rollup; heap_used and
                                                        heap_free are those of `heap`, with what Python's own allocator has of each: of
                                                        free bytes those of the arenas that it had before the first unit
    {"mark": "stray", "pid", "what", "phase"}           a call in the wrong order: a "begin" while that phase was open (which ends there), an
                                                        "end" with none open (the last phase's name, "" for none)

An "end" has "units" too if the phase counted others than iterations: {"token": 640}.

With `MEMPROF_HOLD=1` beside it, the process stops itself (SIGSTOP) after each "end" line, and goes on when it is sent SIGCONT.

Times are CLOCK_MONOTONIC in nanoseconds, one clock for all processes of a machine. Memory is in bytes. Figures that cannot be had are left
out. The high-water mark is reset where a phase begins (`5` to /proc/self/clear_refs) and read where it ends; all other looks at the
process happen outside the timed part.

Marks do not move the memory of what is measured. Python takes each object above 512 bytes from malloc. If a mark made such objects, their sizes
would follow the digits of its figures, and glibc would cut the program's heap another way from run to run: ONNX Runtime's arena then fits into what
is free there, or does not, which is 50 MiB of a ResNet-50. So texts lie in buffers of one size, and other objects are small. Memory after each unit
of work is kept as text in such a buffer, made before the first unit: a list of samples would grow with the run, and so would be a leak in what it
measures.
"""

import _signal  # the C part, which is there anyway: the module around it would move the memory of a process that is stopped
import json
import os
import resource
import sys
import time

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
_TEXT_LENGTHS = (1500, 600, 200, 50, 0)  # tried one after another until a line fits: a character takes up to 12 bytes in it
_SEEN = bytearray(8192)  # of a file of /proc
_LINE = bytearray(4096)  # of a mark: PIPE_BUF bytes

_STATS = 8192  # bytes for the statistics of Python's allocator, which are some 3,000
_BUFFER = 2400  # bytes of rows in a line; with its head a line has at most PIPE_BUF bytes
_ROW = 260  # most bytes of a row
_ROWS_A_RATE = 4096  # after so many the rate is halved, so that hours of work make some tens of thousands of rows
_FLUSH_NS = 100_000_000
_SWAP_NS = 10_000_000
_NAMED = 6  # units beside iteration and shape
_SHAPES = 4096  # places for the hashes of distinct shapes, three quarters of which are filled at most


class Marks:
    """Writes the marks of one process. Every method is safe to call if nobody listens."""

    def __init__(self, environment=os.environ):
        self._target = _target(environment.get("MEMPROF_MARKS", ""))
        self._highest = 0  # of every high-water mark read so far: the figure of a tool that never resets it
        self._phase = None
        self.follows = self._target is not None and environment.get("MEMPROF_WORK") == "1"  # whether memory by units is wanted
        self._work = None
        self._laps = []  # when iterations ended, for `lap`
        self.holds = self._target is not None and environment.get("MEMPROF_HOLD") == "1"

    def begin(self, phase, started_ns=None):
        """Begin a phase. started_ns: it began earlier, at the process's start, so there is no high-water mark to reset."""
        if self._target is None:
            return
        self._phase = phase
        self._laps.clear()
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
        """End the phase that runs. times_ns: the durations of its iterations, where `lap` did not take them. values: called for numbers by name that
        belong to the phase."""
        end_ns = time.monotonic_ns()
        if self._target is None or self._phase is None:
            return
        units = self._work.end() if self._work is not None else {}
        after = read_status()
        counters = _counters()
        exact, sizes = shares("self", after), heap()
        self._highest = max(self._highest, after.get("hwm", 0))
        if self._laps:
            times_ns = [later - earlier for earlier, later in zip([self._begin_ns, *self._laps], self._laps)]
        for start in range(0, len(times_ns), _TIMES_A_LINE):
            self.write({"mark": "times", "phase": self._phase, "times_ns": list(times_ns[start : start + _TIMES_A_LINE])})
        for name, value in values().items():
            self.write({"mark": "value", "name": name, "value": value, "t_ns": end_ns})
        line = {"mark": "end", "phase": self._phase, "begin_ns": self._begin_ns, "end_ns": end_ns}
        line.update(hwm_reset=self._reset, hwm_begin_bytes=self._hwm_begin, rss_begin_bytes=self._rss_begin)
        line.update(figures(after, after.get("hwm"), self._highest, counters, self._counters))
        line.update(exact)
        if sizes is not None:
            line.update(heap_used_end_bytes=sizes[0], heap_free_end_bytes=sizes[1])
        if units:
            line["units"] = units
        self._phase = None
        self.write_end(line)

    def write_end(self, line):
        """Write the line of a phase's end, and stand still if memprof wants to look now."""
        if self.write(line) and self.holds and self._reached():
            os.kill(os.getpid(), _signal.SIGSTOP)

    def lap(self):
        """An iteration has ended and the next one begins: its duration is kept, unless memory by units is wanted. A list of times grows too."""
        if self._phase is not None and not self.follows:
            self._laps.append(time.monotonic_ns())

    def iteration(self, shape=None, **units):
        """An iteration of the phase has ended. shape: what tells its inputs' shape; units: how many of other units it did, such as tokens=12."""
        if self._target is None or self._phase is None:
            return
        self._work = self._work or _Work(self._send, False)
        self._work.iteration(shape, [(name[:-1] if name.endswith("s") else name, count) for name, count in units.items()])

    def count(self):
        """Take the memory that counting units needs now, and not where the first iteration ends."""
        if self._target is not None:
            self._work = self._work or _Work(self._send, self.follows)

    def _begin_work(self, phase):
        if self.follows:
            self.count()
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
            if self.write({"mark": "error", "phase": phase, "kind": kind, "message": _shortened(message, most)}):
                return

    def done(self):
        """Write that the job is complete."""
        self.write({"mark": "done"})

    def write(self, line):
        """Write a line if somebody listens, with this process's id if it has none; False if it is too long for that."""
        if self._target is None:
            return True
        data = _line(dict({"pid": os.getpid()}, **line))
        if data is None:
            return False
        self._send(data)
        return True

    def _send(self, data):
        try:
            if self._reached():
                os.write(self._target[0], data)
        except OSError:
            pass  # nobody listens any more; the process goes on as if it had never been measured

    def _reached(self):
        """Whether the descriptor is still that of the marks."""
        number, device, inode = self._target
        try:
            file = os.fstat(number)
        except OSError:
            return False
        return (file.st_dev, file.st_ino) == (device, inode)


def figures(status, hwm, highest, counters, before):
    """A phase's figures at its end, under the names of its line.

    status: what `read_status` says there. hwm, highest: the high-water mark of the phase and of the process, in bytes. counters, before: minor and
    major faults, bytes read (-1 where unknown) and CPU time in ns, there and where the phase began.
    """
    minor, major, read, cpu_ns = (max(now - then, 0) for now, then in zip(counters, before))
    values = {"hwm_phase_bytes": hwm, "hwm_bytes": highest or None, "vms_peak_bytes": status.get("vms_peak")}
    values.update(minor_faults=minor, major_faults=major, read_bytes=read if counters[2] >= 0 else None, cpu_ns=cpu_ns)
    for name in ("rss", "anon", "file", "shmem", "swap", "vms"):
        values[name + "_end_bytes"] = status.get(name)
    return {name: value for name, value in values.items() if value is not None}


def _shortened(message, most):
    """An error's words in at most so many letters: its begin and, because an error that holds another has its root there, its end."""
    if len(message) <= most:
        return message
    return message[: most // 3] + " ... " + message[len(message) - most // 3 :]


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
    length = _read(path)
    sizes = ((name, _row(name, length)) for name in names)
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


def _counters():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)
    return usage.ru_minflt, usage.ru_majflt, bytes_read(), cpu_ns


def bytes_read(process="self"):
    """Bytes read from disk so far, -1 if the kernel does not say."""
    size = _row(b"read_bytes", _read("/proc/%s/io" % process))  # some containers hide it
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


def _read(path):
    """Read a file of /proc; how many bytes `row` and `place` find, 0 if it cannot be read. They are there until the next one is read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0  # some kernels and containers lack it
    try:
        return os.readv(descriptor, [_SEEN])
    except OSError:
        return 0
    finally:
        os.close(descriptor)


def _row(name, length):
    """The first word of the row of that name, which a colon follows, as a number; None without such a row."""
    begin = _SEEN.find(b"\n%s:" % name, 0, length) + 1
    if begin == 0 and not (length and _SEEN.startswith(b"%s:" % name)):
        return None
    begin += len(name) + 1
    end = _SEEN.find(b"\n", begin, length)
    return int(_SEEN[begin : end if end >= 0 else length].split()[0])


def _words(count, length):
    """The first words of the file, none if it is empty."""
    return _SEEN[: min(length, 200)].split(None, count)[:count]


def _line(values):
    """The values, numbers, texts, lists and dicts by name, as a line of JSON; None if it is longer than a pipe takes at once.

    It lies in the buffer until the next line.
    """
    try:
        filled = _put(b"\n", _value(values, 0))
    except OverflowError:
        return None
    return memoryview(_LINE)[:filled]


def _joined(*pieces):
    """The pieces as one line, in the same way. Raises OverflowError."""
    filled = 0
    for piece in pieces:
        filled = _put(piece, filled)
    return memoryview(_LINE)[:filled]


def _value(value, filled):
    if isinstance(value, dict):
        for at, (name, part) in enumerate(value.items()):
            filled = _value(part, _put(b"%s%s:" % (b"," if at else b"{", json.dumps(name).encode()), filled))
        return _put(b"}" if value else b"{}", filled)
    if isinstance(value, list):
        for at, part in enumerate(value):
            filled = _value(part, _put(b"," if at else b"[", filled))
        return _put(b"]" if value else b"[]", filled)
    return _put(json.dumps(value).encode(), filled)


def _put(piece, filled):
    if filled + len(piece) > len(_LINE):
        raise OverflowError
    _LINE[filled : filled + len(piece)] = piece
    return filled + len(piece)


class _Work:
    """The units of one phase after another. `write` takes a line as bytes."""

    def __init__(self, write, curve):
        self._write = write
        self._curve = curve  # whether memory after units is wanted; without it units are only counted
        self._heap = _heap_reader() if curve else heap
        self._buffer = bytearray(_BUFFER)
        self._shapes = memoryview(bytearray(8 * _SHAPES)).cast("q")
        self._distinct = 0
        self.begin(b'""')

    def begin(self, phase):
        """A phase begins, its name as JSON."""
        self._phase = phase
        self._counts = {"iteration": 0}
        if self._distinct:
            for place in range(_SHAPES):
                self._shapes[place] = 0
        self._distinct = 0
        self._filled = self._rows = self._unsaid = 0
        self._every = 1
        self._swap = self._swap_ns = self._flushed_ns = 0
        self._anchor_at = self._anchor_ns = self._anchor_last = 0
        if not self._curve:
            return
        for _ in range(4):  # what reading and writing need for the first time is taken now, not in the first iteration
            self._row(time.monotonic_ns())
            self._line(_BUFFER)
            self._anchor_line(0)
        self._filled = self._rows = 0
        self._seen = self._row(time.monotonic_ns())
        self._pending = self._anchor_line(self._seen)

    def iteration(self, shape=None, units=()):
        """An iteration has ended. shape: what tells its inputs' shape from others; units: (name, count) pairs of other units that it did."""
        counts = self._counts
        counts["iteration"] += 1
        for name, count in units:
            self._count(name, count)
        if shape is not None:
            self._count("shape", self._is_new(shape))
        if self._curve and counts["iteration"] % self._every == 0:
            self._take(False)
        else:
            self._unsaid += 1

    def end(self):
        """The phase ends: the last row and an exact look are written. The counts of all units but iterations."""
        if self._curve and self._counts["iteration"]:
            self._take(True)
            self._flush()
        return {name: count for name, count in self._counts.items() if name != "iteration"}

    def _count(self, name, count):
        if name[:30] not in self._counts:
            if len(self._counts) >= _NAMED + 2:
                return
            self._flush()
            self._counts[name[:30]] = 0
        self._counts[name[:30]] += count

    def _is_new(self, shape):
        key = hash(shape) or 1
        place = key % _SHAPES
        while self._shapes[place] not in (0, key):
            place = (place + 1) % _SHAPES
        if self._shapes[place] == key or self._distinct >= _SHAPES * 3 // 4:
            return 0
        self._shapes[place] = key
        self._distinct += 1
        return 1

    def _take(self, last):
        now = time.monotonic_ns()
        if self._pending:
            self._write(self._pending)
            self._pending = None
        if not last or self._unsaid:
            self._seen = self._row(now)
        self._unsaid = 0
        done = self._counts["iteration"]
        if last or done >= self._anchor_last or (done >= self._anchor_at and now >= self._anchor_ns):
            self._write(self._anchor_line(self._seen))
            after = time.monotonic_ns()
            self._anchor_at, self._anchor_last = done + max(1, done // 32), done + done // 8 + 1
            self._anchor_ns = after + 100 * (
                after - now
            )  # it takes milliseconds in a large process: 1% of the time, and after each eighth more
        if self._filled > _BUFFER - _ROW or now - self._flushed_ns > _FLUSH_NS:
            self._flush()
            self._flushed_ns = now
        if self._rows >= _ROWS_A_RATE:
            self._rows = 0
            self._every *= 2

    def _row(self, now):
        """Keep a row in the buffer. The resident set in bytes."""
        # /proc/self/statm in pages: size, resident, shared (proc_pid_statm(5))
        fields = _words(3, _read("/proc/self/statm")) or (0, 0, 0)
        rss = int(fields[1]) * _PAGE
        if now - self._swap_ns > _SWAP_NS:
            self._swap, self._swap_ns = _kib(b"VmSwap", _read("/proc/self/status")) or 0, now
        head = b",%d,%d,%d,%d" if self._filled else b"%d,%d,%d,%d"
        text = head % (now, rss, int(fields[2]) * _PAGE, self._swap)
        for count in self._counts.values():
            text += b",%d" % count
        self._buffer[self._filled : self._filled + len(text)] = text
        self._filled += len(text)
        self._rows += 1
        if self._filled > _BUFFER - _ROW:
            self._flush()
        return rss

    def _flush(self):
        if self._filled and self._counts["iteration"]:
            self._write(self._line(self._filled))
            self._filled = 0

    def _line(self, filled):
        names = b",".join(b'"%s"' % name.encode() for name in self._counts)
        head = b'{"mark":"work","pid":%d,"phase":%s,"units":[%s],"rows":[' % (os.getpid(), self._phase, names)
        return _joined(head, memoryview(self._buffer)[:filled], b"]}\n")

    def _anchor_line(self, seen):
        length = _read("/proc/self/smaps_rollup")  # missing before Linux 4.14
        rss, swap = _kib(b"Rss", length), _kib(b"Swap", length)
        done = self._counts["iteration"]
        figures = (os.getpid(), self._phase, done, seen, seen if rss is None else rss, self._swap if swap is None else swap)
        line = b'{"mark":"anchor","pid":%d,"phase":%s,"iteration":%d,"seen":%d,"rss":%d,"swap":%d' % figures
        sizes = self._heap()
        if sizes is not None:
            line += b',"heap_used":%d,"heap_free":%d' % sizes
        return line + b"}\n"


def _kib(name, length):
    """The bytes of a row in kB, None if there is none."""
    size = _row(name, length)
    return None if size is None else size * 1024


def _found():
    """glibc's mallinfo2, of 2.33 and later; None elsewhere, and where ctypes was not imported before: it takes most of a megabyte."""
    if "ctypes" not in sys.modules:
        return None
    import ctypes

    class MallInfo2(ctypes.Structure):  # malloc.h
        _fields_ = [
            (name, ctypes.c_size_t)
            for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
        ]

    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    ask.restype = MallInfo2
    return ask


_mallinfo2 = _found()


def heap():
    """Bytes that glibc's allocator holds for the program, and bytes that it kept when they were freed; None if it does not say."""
    if _mallinfo2 is None:
        return None
    figures = _mallinfo2()
    return figures.uordblks + figures.hblkhd, figures.fordblks


def _heap_reader():
    """A function that reads `heap` with Python's own allocator: it imports ctypes, which this process then has before its first unit of work."""
    try:
        import ctypes
    except ImportError:
        return heap
    ask, python_heap = _found(), _python_heap(ctypes)
    if ask is None or python_heap is None:
        return heap
    room = sum(python_heap())  # pages of later arenas are in memory once they are written to: they are not free memory that waits

    def read():
        figures, (used, _) = ask(), python_heap()
        return figures.uordblks + figures.hblkhd + used, figures.fordblks + max(0, room - used)

    return read


def _python_heap(ctypes):
    """A function that reads bytes in use and free bytes in the arenas of CPython's allocator, mappings that glibc knows nothing of: it keeps objects
    of up to 512 bytes there. None where CPython does not tell.

    `_PyObject_DebugMallocStats` prints them to a stream of C, here into one buffer, in some 20 us (seen in CPython 3.10 to 3.13). It prints nothing
    under PYTHONMALLOC=malloc.
    """
    text = bytearray(_STATS)
    try:
        library, print_stats = ctypes.CDLL(None), ctypes.pythonapi._PyObject_DebugMallocStats
        library.fmemopen.restype = ctypes.c_void_p
        stream = ctypes.c_void_p(library.fmemopen((ctypes.c_char * _STATS).from_buffer(text), ctypes.c_size_t(_STATS), b"w"))
    except (OSError, AttributeError):
        return None
    if not stream:
        return None

    def size(name):
        begin = text.find(b"=", text.find(name)) + 1 if name in text else 0
        return int(text[begin : text.find(b"\n", begin)].replace(b",", b"")) if begin else 0

    def read():
        library.rewind(stream)
        print_stats(stream)
        library.fflush(stream)
        return size(b"# bytes in allocated blocks"), size(b"# bytes in available blocks") + size(b" unused pools * ")

    return read


# -- the marks of a script

_own = Marks()


class phase:
    """The block is a phase of that name, and its peak is exact. The first phase ends STARTUP, the baseline."""

    _first = True

    def __init__(self, name):
        self._name = name

    def __enter__(self):
        if phase._first:
            phase._first = False
            _own.begin("STARTUP", int(os.environ.get("MEMPROF_STARTED_NS", 1)))
            _own.count()
            _own.end()
        _own.begin(self._name)

    def __exit__(self, *error):
        _own.end()


def iteration(shape=None, **units):
    """An iteration of the phase that runs has ended; the next one begins here.

    shape: what tells its inputs' shape from others. units: how much it did of other units, as plurals: tokens=12, requests=1.
    """
    _own.lap()
    _own.iteration(shape, **units)


def value(name, number):
    """A figure of the script; the name says what it is: arena_bytes, wait_ns, loss."""
    _own.write({"mark": "value", "name": name, "value": float(number), "t_ns": time.monotonic_ns()})
