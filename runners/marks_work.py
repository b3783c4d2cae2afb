"""Memory after each unit of work, read by the process itself into memory that is allocated and touched before the first unit.

The lines are those of marks.py. A list of samples would grow with the run, and so would be a leak in what it measures: rows are kept as text in
one buffer, which is written and begun anew when it is full or a tenth of a second old. After each _ROWS_A_RATE rows the rate is halved, so that
hours of work make some tens of thousands of rows.
"""

import ctypes
import os
import time

import marks_memory

_PAGE = os.sysconf("SC_PAGE_SIZE")
_BUFFER = 2400  # bytes of rows in a line; with its head a line has at most PIPE_BUF bytes
_ROW = 260  # most bytes of a row
_ROWS_A_RATE = 4096
_FLUSH_NS = 100_000_000
_SWAP_NS = 10_000_000
_NAMED = 6  # units beside iteration and shape
_SHAPES = 4096  # places for the hashes of distinct shapes, three quarters of which are filled at most


class Work:
    """The units of one phase after another. `write` takes a line as bytes."""

    def __init__(self, write, curve):
        self._write = write
        self._curve = curve  # whether memory after units is wanted; without it units are only counted
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
        self._anchor_at = self._anchor_ns = 0
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
        if last or (done >= self._anchor_at and now >= self._anchor_ns):
            self._write(self._anchor_line(self._seen))
            after = time.monotonic_ns()
            self._anchor_at = done + max(1, done // 32)
            self._anchor_ns = after + 100 * (after - now)  # an exact look at a large process takes milliseconds: 1% of the time at most
        if self._filled > _BUFFER - _ROW or now - self._flushed_ns > _FLUSH_NS:
            self._flush()
            self._flushed_ns = now
        if self._rows >= _ROWS_A_RATE:
            self._rows = 0
            self._every *= 2

    def _row(self, now):
        """Keep a row in the buffer. The resident set in bytes."""
        # /proc/self/statm in pages: size, resident, shared (proc_pid_statm(5))
        fields = marks_memory.words(3, marks_memory.read("/proc/self/statm")) or (0, 0, 0)
        rss = int(fields[1]) * _PAGE
        if now - self._swap_ns > _SWAP_NS:
            self._swap, self._swap_ns = _kib(b"VmSwap", marks_memory.read("/proc/self/status")) or 0, now
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
        return marks_memory.joined(head, memoryview(self._buffer)[:filled], b"]}\n")

    def _anchor_line(self, seen):
        length = marks_memory.read("/proc/self/smaps_rollup")  # missing before Linux 4.14
        rss, swap = _kib(b"Rss", length), _kib(b"Swap", length)
        done = self._counts["iteration"]
        figures = (os.getpid(), self._phase, done, seen, seen if rss is None else rss, self._swap if swap is None else swap)
        line = b'{"mark":"anchor","pid":%d,"phase":%s,"iteration":%d,"seen":%d,"rss":%d,"swap":%d' % figures
        if _mallinfo2 is not None:
            heap = _mallinfo2()
            line += b',"heap_used":%d,"heap_free":%d' % (heap.uordblks + heap.hblkhd, heap.fordblks)
        return line + b"}\n"


def _kib(name, length):
    """The bytes of a row in kB, None if there is none."""
    size = marks_memory.row(name, length)
    return None if size is None else size * 1024


class _MallInfo2(ctypes.Structure):
    # struct mallinfo2 of malloc.h, glibc 2.33 and later
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def _found():
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    ask.restype = _MallInfo2
    return ask


_mallinfo2 = _found()


def heap():
    """Bytes that glibc's allocator holds for the program, and bytes that it kept when they were freed; None elsewhere."""
    if _mallinfo2 is None:
        return None
    figures = _mallinfo2()
    return figures.uordblks + figures.hblkhd, figures.fordblks
