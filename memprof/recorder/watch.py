"""A control group that is looked at: which processes are in it and in the groups below it, and what the kernel charges it. Nothing is written to it.

version 1 (Documentation/admin-guide/cgroup-v1/memory.rst)   rows of memory.stat with `total_` count the groups below too, memory.oom_control does
                                                             not; the kernel's own memory is memory.kmem.usage_in_bytes, page tables among it,
                                                             and sockets' buffers of TCP are memory.kmem.tcp.usage_in_bytes; the row of swap is
                                                             there where the kernel counts it (CONFIG_MEMCG_SWAP, swapaccount=1)
version 2 (Documentation/admin-guide/cgroup-v2.rst)          all files count the groups below too; the row `kernel` is there from Linux 5.18 on,
                                                             and what is swapped out is memory.swap.current
"""

import os

from . import procfs

_LIST_NS = 10_000_000  # between two readings of who is in it: children of those that are known are found at each poll anyway


class WatchedGroup:
    """folders: the group's own, then those of the groups above it, as far as they are seen."""

    def __init__(self, writer, folders):
        self._writer, self._folders = writer, folders
        self._is_first = os.path.exists(os.path.join(folders[0], b"memory.usage_in_bytes"))
        self._groups, self._next_ns = [folders[0]], 0
        self._told = {}  # lines by their begin

    def members(self, now):
        """The process ids in it, None if it was read a moment ago. Those that cannot be seen from here are left out."""
        if now < self._next_ns:
            return None
        self._next_ns = now + _LIST_NS
        # Version 1 keeps an old list for as long as a file stays open (cgroup_pidlist_start in kernel/cgroup/cgroup-v1.c).
        return {int(pid) for group in self._groups for pid in procfs.read(os.path.join(group, b"cgroup.procs")).split()} - {0}

    def tell(self):
        """Write its figures as of now, as far as they have changed. Also find the groups below it."""
        self._groups = [folder for folder, _, _ in os.walk(self._folders[0])] or self._groups
        if self._is_first:
            current, peak, limit = b"memory.usage_in_bytes", b"memory.max_usage_in_bytes", b"memory.limit_in_bytes"
            rows = self._rows(b"total_inactive_file", b"total_rss", b"total_cache")
            rows += [self._file(0, b"memory.kmem.usage_in_bytes"), b"-", b"-", b"-", self._file(0, b"memory.kmem.tcp.usage_in_bytes")]
            rows += self._rows(b"total_swap")
        else:
            current, peak, limit = b"memory.current", b"memory.peak", b"memory.max"
            rows = self._rows(b"inactive_file", b"anon", b"file", b"kernel", b"kernel_stack", b"slab", b"pagetables", b"sock")
            rows.append(self._file(0, b"memory.swap.current"))
        self._tell(b"charge", self._file(0, current), *rows)
        for depth in range(len(self._folders)):
            self._tell(b"bound", b"%d" % depth, self._file(depth, peak), self._file(depth, limit), b"-" if depth else self._kills())

    def _tell(self, kind, *fields):
        """Write a line unless all its figures could not be read, as those of a group that is gone, or are as they were."""
        key = kind + fields[0] if kind == b"bound" else kind
        figures = fields[1:] if kind == b"bound" else fields
        if self._told.get(key) != fields and set(figures) != {b"-"}:
            self._told[key] = fields
            self._writer.tell(kind, *fields)

    def _file(self, depth, name):
        return procfs.read(os.path.join(self._folders[depth], name)).strip() or b"-"

    def _rows(self, *names):
        rows = dict([line.partition(b" ")[::2] for line in self._file(0, b"memory.stat").split(b"\n")])
        return [rows.get(name, b"-") for name in names]

    def _kills(self):
        if not self._is_first:
            return procfs.number(os.path.join(self._folders[0], b"memory.events"), b"oom_kill ")
        counts = [procfs.number(os.path.join(group, b"memory.oom_control"), b"oom_kill ") for group in self._groups]
        return b"%d" % sum([int(count) for count in counts if count != b"-"]) if set(counts) != {b"-"} else b"-"
