"""What is known of one process of a tree."""

from . import procfs


class Node:
    """One process. rss, file and vms in bytes as last seen.

    shared: how much of its anonymous memory another process may have too, at most, in bytes. own: how much the bound above loses for certain
    when the process ends: what it brought in, as long as no child of it has that too. faults: its minor faults up to which that is known;
    grown: by how much its anonymous memory has grown since then. above: its parent, where that was seen. waited: that one's cminflt when
    the process was found. stack: see procfs.Stat. twin: the process in whose memory it runs, until it execs; None for all but a child of
    vfork. inside: whether it is the measured process or below that. hwm: its high-water mark as last looked at; rose: whether that had risen.
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
        "statm",
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
        self.pss_peak = self.child_faults = self.values = self.twin = self.above = None
        self.inside = self.rose = False

    def record(self):
        """memprof.runs.records.Process of it."""
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
