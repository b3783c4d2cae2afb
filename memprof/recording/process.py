"""A process of a tree, as far as a recording has told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .devices import ProcessDevices
from .events import StatFields


@dataclass(slots=True, eq=False)
class ProcessState:
    """A process. rss, file and vms in bytes as last read.

    above: the ProcessState of its parent, if that was seen. twin: the process in whose memory it runs, until it execs; None for all but a child of
    vfork. inside: whether it is the measured process or below that. waited: its parent's cminflt when it was found.

    samples: how many polls saw it; samples_before: how many polls there were before it was found.

    shared: how much of its anonymous memory another process may have too, at most, in bytes; copied, released: how much of that it may have copied
    and given back since, as the sums know. own: how much the sum's upper bound loses for certain when the process ends, in bytes: the pages that
    it brought in, as long as no child of it has them too. faults: the minor faults up to which that is known, at faults_ns; faults_polled: the same
    at the newest poll; grown: by how much its anonymous memory has grown since then, for certain. ended: whether the newest stat is of its end.

    child_faults: its cminflt as last read, None before. waits: whether that has risen and it is not known yet for which child; departed: how many
    of its children have gone that it has not waited for yet, at most. hwm: its high-water mark as last read; rose: whether that had risen since
    the last poll.
    """

    pid: int
    parent: int | None
    above: ProcessState | None
    begin_ns: int
    name: str
    rss: int = 0
    file: int = 0
    vms: int = 0
    end_ns: int = 0
    rss_peak: int = 0
    samples: int = 0
    samples_before: int = 0
    hwm: int = 0
    rose: bool = False
    pss_peak: int | None = None
    command: str = ""
    twin: int | None = None
    inside: bool = False
    shared: int = 0
    copied: int = 0
    released: int = 0
    own: int = 0
    faults: int = 0
    faults_ns: int = 0
    faults_polled: int = 0
    grown: int = 0
    ended: bool = False
    waited: int = 0
    child_faults: int | None = None
    waits: bool = False
    departed: int = 0
    stack: int = 0
    swap: int = 0
    devices: ProcessDevices = field(default_factory=ProcessDevices)

    @property
    def anon(self) -> int:
        """Its anonymous memory, in bytes."""
        return self.rss - self.file

    def share(self, size: int) -> None:
        """Another process may have this much of its anonymous memory too, from here on."""
        self.shared, self.copied, self.released = size, 0, 0

    def know_faults(self, t_ns: int, faults: int) -> None:
        """What its minor faults up to here have changed is known."""
        self.faults, self.faults_ns, self.grown = max(self.faults, faults), t_ns, 0

    def see(self, stat: StatFields) -> None:
        """Take what a reading of stat tells beside faults."""
        self.ended = stat.state in "ZX" or stat.stack == 0 < self.stack  # the stack goes with the memory, before there is a zombie
        self.stack = stat.stack or self.stack
        if self.child_faults is not None and stat.child_faults > self.child_faults:
            self.waits = True
        self.child_faults = stat.child_faults

    def record(self) -> dict[str, Any]:
        """The process in the form of memprof.records.types.Process."""
        return {
            "pid": self.pid,
            "parent": self.parent,
            "name": self.name,
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "rss_peak_bytes": max(self.rss_peak, self.hwm),
            "pss_peak_bytes": self.pss_peak,
            "command": self.command,
            "samples": self.samples,
        }
