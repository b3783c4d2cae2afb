"""A process of a tree, as far as it is known."""

from . import procfs


class Node:
    """A process. rss, file and vms in bytes as last seen.

    shared: how much of its anonymous memory another process may have too, at most, in bytes. own: how much the sum's upper bound loses for
    certain when the process ends, in bytes: the pages that it brought in, as long as no child of it has them too. faults: the minor faults up
    to which shared and own are known; grown: by how much its anonymous memory has grown since then. above: the Node of its parent, if that was
    seen; waited: the parent's cminflt when the process was found. stack: see procfs.Stat. twin: the process in whose memory it runs, until it
    execs; None for all but a child of vfork. inside: whether it is the measured process or below that. hwm: its high-water mark as last looked
    at; rose: whether that had risen. swap, stack_seen: its swapped-out bytes, and its stack, at that look.
    """

    __slots__ = (
        "above",
        "begin_ns",
        "child_faults",
        "children",
        "command",
        "descriptor",
        "end_ns",
        "faults",
        "file",
        "gone",
        "grown",
        "hwm",
        "inside",
        "kids",
        "name",
        "own",
        "parent",
        "pid",
        "pss_peak",
        "rose",
        "rss",
        "rss_peak",
        "samples",
        "shared",
        "stack",
        "stack_seen",
        "statm",
        "swap",
        "twin",
        "values",
        "vms",
        "waited",
    )

    def __init__(self, pid, statm, parent, now):
        self.pid, self.statm, self.parent = pid, statm, parent
        self.descriptor, self.children, self.kids = None, b"", ()
        self.name, self.command = procfs.name(pid), ""
        self.begin_ns = self.end_ns = now
        self.rss = self.file = self.vms = self.rss_peak = self.samples = self.hwm = 0
        self.shared = self.own = self.grown = self.faults = self.waited = self.stack = self.gone = 0
        self.swap = self.stack_seen = 0
        self.pss_peak = self.child_faults = self.values = self.twin = self.above = None
        self.inside = self.rose = False

    @property
    def task(self):
        """The id by which /proc tells of its memory, see procfs.Statm."""
        return self.statm.task

    def record(self):
        """The process in the form of memprof.runs.records.Process."""
        record = {
            "pid": self.pid,
            "name": self.name.encode("utf-8", "backslashreplace").decode("utf-8"),
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "rss_peak_bytes": max(self.rss_peak, self.hwm),
            "command": self.command,
            "samples": self.samples,
        }
        if self.parent is not None:
            record["parent"] = self.parent
        if self.pss_peak is not None:
            record["pss_peak_bytes"] = self.pss_peak
        return record
