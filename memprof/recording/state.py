"""What the parts of a fold share: the measured process, the lines so far, and the warnings for the reader of the figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..base.counter_bounds import peak_bound
from ..records.recorder_order import Header
from .charges import OwnCharges
from .devices import DeviceHistory
from .swap import Swap
from .tree import ProcessTree


@dataclass
class FoldState:
    """begin_ns, end_ns: when the program was started, and ended. usable: how many CPUs it may use. root: the process that was started; measured:
    the one that the phases are of. polls: how often all was read so far, polls_before: before the timeline began. charges: of the run's own
    control group. recorder, recorder_hwm: the recorder's process id and its high-water mark in bytes.
    """

    header: Header
    page: int
    ticks: int
    begin_ns: int = 0
    end_ns: int = 0
    usable: int = 1
    recorder: int = 0
    recorder_hwm: int = 0
    root: int = 0
    measured: int = 0
    polls: int = 0
    polls_before: int = 0
    charges: OwnCharges = field(default_factory=OwnCharges)
    tree: ProcessTree = field(init=False)
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree = ProcessTree(self.page)

    @property
    def swap(self) -> Swap:
        """What was swapped out of the tree."""
        return self.tree.swap

    @property
    def devices(self) -> DeviceHistory:
        """What the tree had outside of all resident sets."""
        return self.tree.devices

    @property
    def rss(self) -> int:
        """What was resident when it was last read, in bytes."""
        return self.tree.last[0] if self.tree.last is not None else 0

    @property
    def peak_bound(self) -> int:
        """How far a high-water mark of the child can lie from the truth, in bytes."""
        machine = self.header.machine
        return peak_bound(machine.kernel, self.page, machine.cpus, self.usable, self.swap.threads)

    def interval_ns(self, phase: str) -> int:
        """The polling period of a phase."""
        intervals = self.header.message.intervals
        return intervals.get(phase, intervals[""])

    def highest(self, begin_ns: int, end_ns: int) -> int:
        """The largest certain memory of the measured process and what it started between two times, as far as is known by now, in bytes."""
        return self.tree.own.highest(begin_ns, end_ns)[0]
