"""A control group with a memory limit for one child: made before it starts, joined before its exec, removed when it has ended.

The recorder makes and removes it, because the recorder outlives memprof when that is killed.

    version 1 (Documentation/admin-guide/cgroup-v1/memory.rst)   memory.max_usage_in_bytes, memory.memsw.max_usage_in_bytes, memory.oom_control;
                                                                 memory.kmem..., of the kernel's memory, stacks, slab and page tables in it,
                                                                 and of that memory.kmem.tcp... of TCP's buffers
    version 2 (Documentation/admin-guide/cgroup-v2.rst)          memory.peak, memory.events; no peak of memory and swap together; rows of
                                                                 memory.stat on the kernel's memory, `kernel` from Linux 5.18 on
    both                                                         memory.stat
"""

import os
import time

from . import procfs

_REMOVE_WITHIN_NS = 2_000_000_000


class ControlGroup:
    """The folder of a control group. settings: (file, text) pairs to write into it, in this order; a file that is missing is left out.

    Raises OSError if it cannot be made.
    """

    def __init__(self, path, settings):
        self._path = path
        os.mkdir(path)
        try:
            for name, text in settings:
                if os.path.exists(os.path.join(path, name)):
                    self._write(name, text)
        except OSError:
            self.remove()
            raise
        # From Linux 6.12 on memory.peak can be reset, for the descriptor that it was reset through.
        self._peak, self._both = self._open(b"memory.max_usage_in_bytes", b"memory.peak"), self._open(b"memory.memsw.max_usage_in_bytes")
        self._kernel_peak = self._open(b"memory.kmem.max_usage_in_bytes")
        self._told = None

    def join(self):
        """Move this process into it; for a child between fork and exec."""
        self._write(b"cgroup.procs", b"0")

    def tell(self, writer, reset):
        """Write its figures. reset: the peaks begin again from here on, if the kernel lets them; None for a reading that no mark asks for: it is
        written where a figure has changed."""
        stat = b"\n" + self._read(b"memory.stat")
        # Before 5.9 there is one field, of files alone.
        refaults = _first(*[procfs.field(stat, name) for name in (b"workingset_refault_file ", b"workingset_refault ")])
        kills = _first(*[procfs.field(b"\n" + self._read(name), b"oom_kill ") for name in (b"memory.oom_control", b"memory.events")])
        figures = (_pread(self._peak), _pread(self._both), refaults, kills), self._kernel_figures(stat)
        if reset is not None or figures != self._told:
            is_reset = b"-" if reset is None else reset and self._reset()
            writer.tell(b"group", *figures[0], is_reset, *figures[1])
            self._told = figures

    def _kernel_figures(self, stat):
        """KERNEL_PEAK KERNEL STACKS SLAB TABLES SOCK PERCPU of a line."""
        rows = (b"kernel ", b"kernel_stack ", b"slab ", b"pagetables ", b"sock ", b"percpu ")
        kernel, stacks, slab, tables, sockets, percpu = [procfs.field(stat, row) for row in rows]
        kernel = _first(self._read(b"memory.kmem.usage_in_bytes"), kernel)
        sockets = _first(self._read(b"memory.kmem.tcp.usage_in_bytes"), sockets)
        return _pread(self._kernel_peak), kernel, stacks, slab, tables, sockets, percpu

    def _reset(self):
        """Whether all its peaks begin again here."""
        return _reset(self._peak) and all(_reset(peak) for peak in (self._both, self._kernel_peak) if peak is not None)

    def remove(self):
        """Remove the group. Its processes have ended; the kernel lets go of them a moment later."""
        end_ns = time.monotonic_ns() + _REMOVE_WITHIN_NS
        while time.monotonic_ns() < end_ns:  # else the next memprof finds its name and removes it
            try:
                os.rmdir(self._path)
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.005)

    def _write(self, name, text):
        with open(os.path.join(self._path, name), "wb", buffering=0) as file:
            file.write(text)

    def _open(self, *names):
        """A descriptor of the first of these files that is there: the others are of the other version, or of other kernels."""
        paths = [os.path.join(self._path, name) for name in names]
        found = [path for path in paths if os.path.exists(path)]
        return os.open(found[0], (os.O_RDWR if os.access(found[0], os.W_OK) else os.O_RDONLY) | os.O_CLOEXEC) if found else None

    def _read(self, name):
        return procfs.read(os.path.join(self._path, name)).rstrip()


def _first(*numbers):
    """The first of these that a file told."""
    return next((number for number in numbers if number not in (b"", b"-")), b"-")


def _pread(descriptor):
    return os.pread(descriptor, 64, 0).strip() if descriptor is not None else b"-"


def _reset(descriptor):
    try:
        return descriptor is not None and os.pwrite(descriptor, b"0", 0) > 0
    except OSError:
        return False
