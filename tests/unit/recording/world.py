"""A made-up machine whose processes fork, grow, copy, map files and end, page by page, and a recorder that looks at it as the real one does.

Of each poll the true sum is known: how many different pages the processes have. What no recording can tell does not happen here: that a process
gives memory back and gets other memory between two polls, or gives memory back between a fork and the look that finds the child.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from memprof.records.types import Run

from .written import ROOT, Process, Recording

_AROUND = 16  # pages that a fault in a mapped file brings in
_KB = 4  # of a page
_MOST = 6  # processes

File = tuple[int, int]  # a file's number, and a page of it


@dataclass
class Living:
    """A process. anon: the names of its anonymous pages, which stay the same in a child until one of both writes to them. twin: the process in whose
    memory it runs, as a child of vfork. inside: it belongs to the process that has the phases."""

    pid: int
    parent: int
    stack: int
    anon: set[int]
    files: set[File]
    faults: int = 0
    child_faults: int = 0
    twin: Living | None = None
    listed: bool = False
    inside: bool = False
    gives: bool | None = None  # whether it has given memory back since the last poll; None if its memory is what it was
    waited: bool = False  # its parent has waited for it
    separate: bool = False  # it ran in another's memory when it was polled last

    @property
    def pages(self) -> set[int | File]:
        return {*self.anon, *self.files}


@dataclass
class World:
    """alive: by process id. measured: the process that has the phases; it does not end, and nor does the one that was started. truth: at each poll,
    how many pages the measured process has with all below it; all processes, if it is the one that was started."""

    measured: int = ROOT
    recording: Recording = field(default_factory=lambda: Recording(rss=None))
    alive: dict[int, Living] = field(default_factory=dict)
    truth: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._names, self._pids, self._stacks = count(), count(ROOT), count(1 << 40)
        self._ended: list[Living] = []
        self._waiting: list[Living] | None = None  # of a round that is under way
        self.recording.tell(f"start %d {ROOT}")
        self._begin(0, {next(self._names) for _ in range(50)}, {(0, page) for page in range(20)}, next(self._stacks))
        while self.measured not in self.alive:
            self.have_child(self.alive[ROOT], "fork")
        self._list()
        self.poll()

    def one(self, number: int) -> Living:
        """Any of the living."""
        return list(self.alive.values())[number % len(self.alive)]

    # -- what happens

    def have_child(self, parent: Living, how: str) -> None:
        """It forks, or vforks, or starts another program."""
        if len(self.alive) == _MOST or parent.gives or parent.twin is not None:
            return
        if how == "fork":
            self._begin(parent.pid, set(parent.anon), set(parent.files), parent.stack)
        elif how == "vfork":
            self._begin(parent.pid, parent.anon, parent.files, parent.stack)
            self.one(-1).twin = parent
        else:
            self._begin(parent.pid, {next(self._names) for _ in range(30)}, {(0, page) for page in range(20)}, next(self._stacks))

    def execute(self, process: Living) -> None:
        """Its memory is all new."""
        if self._is_held_up(process) or (process.twin is None and not self._may_give(process)):
            return
        process.anon, process.files = {next(self._names) for _ in range(30)}, {(0, page) for page in range(20)}
        process.stack, process.twin = next(self._stacks), None
        process.faults += 50

    def _begin(self, parent: int, anon: set[int], files: set[File], stack: int) -> None:
        process = Living(next(self._pids), parent, stack, anon, files)
        self.alive[process.pid] = process

    def _is_held_up(self, process: Living) -> bool:
        """Whether a process waits until the child of its vfork has ended or has memory of its own."""
        return any(other.twin is process for other in self.alive.values())

    def _may_get(self, process: Living) -> bool:
        if process.twin is not None or process.gives:  # a child of vfork does next to nothing before its exec
            return False
        process.gives = False
        return True

    def _may_give(self, process: Living) -> bool:
        if process.twin is not None or process.gives is not None or not all(other.listed for other in self.alive.values()):
            return False
        process.gives = True
        return True

    def grow(self, process: Living, size: int, extra: int = 0) -> None:
        """It gets new pages, and some faults beside."""
        if self._may_get(process):
            process.anon.update({next(self._names) for _ in range(size)})
            process.faults += size + extra

    def copy(self, process: Living, size: int) -> None:
        """It writes to pages, some of which it shared."""
        if self._may_get(process):
            written = sorted(process.anon)[:size]
            process.anon.difference_update(written)
            self.grow(process, len(written))

    def drop(self, process: Living, size: int) -> None:
        """It gives memory back."""
        if self._may_give(process):
            process.anon.difference_update(sorted(process.anon)[-size:])

    def map(self, process: Living, file: int, size: int) -> None:
        """It reads a file from its begin."""
        if self._may_get(process):
            process.files.update({(file, page) for page in range(size)})
            process.faults += -(-size // _AROUND)

    def unmap(self, process: Living, file: int) -> None:
        if self._may_give(process):
            process.files.difference_update([place for place in process.files if place[0] == file])

    def end(self, process: Living, waited: bool) -> None:
        """It ends. waited: its parent has waited for it by the time that the recorder looks."""
        if process.pid in (ROOT, self.measured) or self._is_held_up(process):
            return
        del self.alive[process.pid]
        parent = self.alive.get(process.parent)
        process.waited = parent is not None and waited
        if parent is not None and waited:
            parent.child_faults += process.faults + process.child_faults
        for child in self.alive.values():
            if child.parent == process.pid:
                child.parent = 0  # it falls to the recorder
        if process.listed:
            self._ended.append(process)

    # -- how it is looked at

    def poll(self, stats: bool = False) -> None:
        """List, look and poll once, within a phase of its own. stats: read stat of all, which is read too where memory was given back: what the
        others have copied since it was read last would never be known if one process alone is left, and nor would it be seen who has exec'd."""
        self.recording.begin(f"P{len(self.truth)}", self.measured)
        self._list()
        if stats or self._ended or any(process.gives for process in self.alive.values()):
            self._look_at_stats()
        for process in self._ended:
            self._tell_end(process)
        turned, self._ended = bool(self._ended), []
        for process in self.alive.values():
            process.gives = None
        self.recording.now_ns += 1_000_000
        self.recording.polled(*(f"{pid} {self._reading(process).statm}" for pid, process in self.alive.items()))
        self.truth.append(len(set().union(*(process.pages for process in self.alive.values() if process.inside))))
        self.recording.end(f"P{len(self.truth) - 1}", self.measured)
        if turned:
            self._waiting = None

    def _list(self) -> None:
        for process in list(self.alive.values()):
            if not process.listed:
                process.listed, self._waiting = True, None
                above = self.alive.get(process.parent)
                process.inside = self.measured in (ROOT, process.pid) or (above is not None and above.inside)
                readings = f"{self._reading(above).statm} {self._reading(above).stat}" if above is not None else "- -"
                own = self._reading(process)
                same = int(process.twin is not None)
                self.recording.tell(f"process %d 9000 {own.pid} {process.parent} {same} {own.statm} {own.stat} {readings} it")

            elif process.twin is None and process.separate:
                own = self._reading(process)
                self.recording.tell(f"separate %d 9000 {own.pid} {own.statm} {own.stat}")
                self._waiting = None
            process.separate = process.twin is not None

    def _look_at_stats(self) -> None:
        for pid, process in self.alive.items():
            self.recording.tell(f"stat %d {pid} {self._reading(process).stat} it")

    def _tell_end(self, process: Living) -> None:
        if not process.waited:
            reading = self._reading(process)
            reading.state, reading.stack = "Z", 0
            self.recording.tell(f"stat %d {process.pid} {reading.stat} it")
        else:
            self._look_at_stats()
        self.recording.tell(f"gone %d {process.pid}")

    def _reading(self, process: Living) -> Process:
        files = len(process.files)
        sizes = {"rss": len(process.anon) + files, "file": files, "vms": 9999}
        return Process(process.pid, **sizes, stack=process.stack, faults=process.faults, child_faults=process.child_faults)

    def step_round(self) -> None:
        """Poll, and begin a round of shares, or read one process's, or end it."""
        self.poll()
        if len(self.alive) < 2:
            return
        if self._waiting is None:
            self._look_at_stats()
            self._waiting = [process for process in self.alive.values() if process.twin is None]
            self.recording.tell("round %d begin")
        elif self._waiting:
            process = self._waiting.pop()
            self.recording.tell(f"shares %d 9000 {process.pid} {self._rollup(process)}")
        else:
            self._look_at_stats()
            self._waiting = None
            self.recording.tell("round %d end")

    def read_maps(self) -> None:
        """Poll, and read maps."""
        self.poll()
        for pid, process in self.alive.items():
            files = sorted({file for file, _ in process.files})
            sizes = {file: 1 + max(page for number, page in process.files if number == file) for file in files}
            self.recording.tell(" ".join(["maps %d", str(pid), *(f"{file}:0:{size}" for file, size in sizes.items())]))
        self.recording.tell("mapped %d")

    def run(self) -> Run:
        """All processes end: the Run."""
        for process in list(self.alive.values())[::-1]:
            del self.alive[process.pid]
            self._tell_end(process)
        self.recording.ended()
        return self.recording.run()

    def _rollup(self, process: Living) -> str:
        others = [other.pages for other in self.alive.values() if other.twin is None]
        users = {page: sum(page in pages for pages in others) for page in process.pages}
        anon = [users[page] for page in process.anon]
        file = [users[place] for place in process.files]
        pss_anon, pss_file = (int(sum(_KB / number for number in part)) for part in (anon, file))
        shared = [sum(number > 1 for number in part) for part in (file, anon)]
        private = [sum(number == 1 for number in part) for part in (file, anon)]
        sizes = (len(anon) + len(file)) * _KB, pss_anon + pss_file, pss_anon, len(anon) * _KB
        return " ".join(map(str, (*sizes, *(_KB * number for number in (*shared, *private)))))
