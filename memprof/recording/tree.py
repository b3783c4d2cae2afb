"""A process and those that it starts: the sum of their memory (sums.py makes it), and the largest of each.

A child that vfork has made runs in its parent's memory until it execs, and counts for nothing until then.

A child that started and ended between two polls is in no reading. Its parent's cminflt tells that it was there: if that rises and no known child
has gone, there was at least one unknown child. So `unseen` is the least number of such children.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from .devices import DeviceHistory
from .events import ProcessReading, Shares, StatFields
from .mappings import FileOverlap, Part, union_bytes
from .process import ProcessState
from .sums import SumHistory
from .swap import Swap

_FEW = 256 << 10  # bytes of faults before which the recorder does not look for huge pages
_ANY = 1 << 62  # bytes, where any process may share any page with another
_STRETCHES = 100  # times at which the measured process had children: a phase that has ended asks for the last few alone
_NAMED = 3  # names of processes in a remark
_KEPT = 1000  # processes that a record names
_LEAST = 256 << 10  # a round of shares counts if less than this has moved meanwhile, or if it brings the bounds closer by half

Statm = tuple[int, int, int]  # (rss, file-backed, vms) in bytes


class Round(Struct):
    """Shares of all processes, read one after another. moved: what the sum had moved by at its begin."""

    moved: int
    shares: dict[int, Shares | None]


class ProcessTree:
    """The tree below a process.

    whole: the SumHistory of all processes; own: that of the measured process and its descendants, the same if that is the process that was started.
    swap, devices: what was swapped out of the latter, and what it had outside of all resident sets. most: how many processes there were at once.
    together: the most that the resident sets of several processes were in all, shared pages counted for each, in bytes.
    unseen: how many at least are in no reading; unfollowed: how many could not be read for lack of files. rounds: how many rounds of shares counted;
    refused: of how many processes they may not be read.
    """

    def __init__(self, page: int) -> None:
        self._root = self._centre = 0  # until the first process was found
        self._apart = False  # whether the tree is without processes that are not below the measured one
        self._page = page
        self.swap, self.devices = Swap(), DeviceHistory()
        self._processes: dict[int, ProcessState] = {}
        self._members: list[ProcessState] | None = None  # those that do not run in another's memory; None if they have to be found again
        self._over: list[ProcessState] = []
        self._leaving: list[ProcessState] = []  # those that have gone since the last poll
        self._seen: set[int] = set()  # all that were ever found
        self._missed: set[int] = set()  # those that were listed, not followed, and perhaps not waited for yet
        self._reaped: dict[int, int] = {}  # the minor faults of processes that the recorder has waited for, and of their children
        self._huge: int | None = None
        self._huge_rose = False
        self._changed = False  # since the last sample
        self._round: Round | None = None
        self._mappings = FileOverlap()
        self._stretches: list[list[int]] = []  # [from, to] when the measured process had children, the last of them
        self.whole = self.own = SumHistory()
        self.unseen = self.most = self.together = self.unfollowed = self.rounds = self.refused = 0

    # -- what is asked of it

    @property
    def is_whole(self) -> bool:
        """Whether the measured process is the process that was started, so that both sums are the same."""
        return self._centre == self._root

    @property
    def _has_all(self) -> bool:
        """Whether all processes belong to the measured process, also one whose parent had ended before anybody saw it."""
        return self.is_whole and not self._apart

    @property
    def last(self) -> Statm | None:
        """(rss, file-backed, vms) of all processes together in bytes, as far as was known when they were last read."""
        return self.whole.sum.last

    def has(self, pid: int) -> bool:
        """Whether a process was ever found in the tree."""
        return pid in self._seen

    def waited(self, pid: int) -> bool:
        """Whether a process has waited for a child."""
        return any(process.pid == pid and process.child_faults for process in self._all())

    def lives(self, pid: int) -> bool:
        """Whether a process of the tree has memory, as far as is known."""
        return pid in self._processes and not self._processes[pid].ended

    def any_lives(self) -> bool:
        """Whether any process of the tree has memory, as far as is known."""
        return any(not process.ended for process in self._processes.values())

    def had_others(self, begin_ns: int, end_ns: int) -> bool:
        """Whether the measured process had children between two times, also if both have passed a while ago."""
        return any(begin <= end_ns and end >= begin_ns for begin, end in self._stretches)

    def largest(self) -> int:
        """The largest high-water mark that any process in the sum of the measured process was seen with, in bytes: no sum is smaller."""
        return max((process.hwm for process in self._all() if process.inside), default=0)

    def largest_seen(self) -> int:
        """The most memory that any one process was seen with, in bytes."""
        return max((max(process.hwm, process.rss_peak) for process in self._all()), default=0)

    def names(self) -> str:
        """The names of the largest processes, in words: `pytest, bash and 3 more`."""
        largest = sorted(self._all(), key=lambda process: -process.rss_peak)
        names = list(dict.fromkeys(process.name for process in largest if process.name))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{', '.join(names[:_NAMED])}{more}"

    def name_of(self, pid: int) -> str:
        """The name that a process last gave itself, empty if it was never seen."""
        return next((process.name for process in self._all() if process.pid == pid), "")

    def records(self) -> list[dict[str, Any]]:
        """memprof.records.types.Process of each process, in the order of their begin; the largest alone if there are too many."""
        processes = sorted(self._all(), key=lambda process: process.begin_ns)
        if len(processes) > _KEPT:
            largest = sorted(processes, key=lambda process: -process.rss_peak)[:_KEPT]
            processes = sorted(largest, key=lambda process: process.begin_ns)
        return [process.record() for process in processes if process.samples]

    def _all(self) -> list[ProcessState]:
        return [*self._over, *self._leaving, *self._processes.values()]

    def settle(self) -> None:
        """Settle all samples so far: nothing more will be known of them."""
        self.whole.sum.flush()
        self.own.sum.flush()

    def measure(self, pid: int, alone: bool) -> None:
        """Make this process the measured process. alone: the tree is without processes that are not below it, such as a debugger."""
        self._centre, self._stretches, self._changed = pid, [], True
        for process in self._processes.values():
            process.inside = self._below(process) or (self._has_all and not alone)
        if alone:
            self._root, self._apart = pid, True
            self._over, self._leaving = [], []
            self.most = self.together = self.unseen = 0
            self._processes = {key: process for key, process in self._processes.items() if process.inside}
            self._members, self._round = None, None
            self._mappings.drop()
            self.whole, self.swap, self.devices = self._history(), Swap(), DeviceHistory()
        self.own = self.whole if self.is_whole else self._history()

    def _history(self) -> SumHistory:
        history = SumHistory()
        members = [process for process in self._processes.values() if process.inside and process.twin is None]
        anon, file = [process.anon for process in members], [process.file for process in members]
        history.sum.gain(0, sum(anon) - max(anon, default=0), sum(file) - max(file, default=0))
        return history

    def _below(self, process: ProcessState | None) -> bool:
        while process is not None and process.pid != self._centre:
            process = self._processes.get(process.parent) if process.parent is not None else None
        return process is not None

    def _histories(self, process: ProcessState) -> Sequence[SumHistory]:
        return (self.whole, self.own) if process.inside and self.own is not self.whole else (self.whole,)

    # -- processes come and go

    def find(self, t_ns: int, process: ProcessState, same: bool, own: ProcessReading, of_parent: ProcessReading) -> None:
        """A process was found; of_parent: of that moment, without anything if its parent has ended."""
        self._seen.add(process.pid)
        if not self._root:
            self._root = self._centre = process.pid
        process.above = self._processes.get(process.parent) if process.parent is not None else None
        process.end_ns = t_ns
        process.child_faults = own.stat.child_faults if own.stat is not None else None
        process.inside = self._has_all or process.pid == self._centre or (process.above is not None and process.above.inside)
        if self._apart and not process.inside:
            return
        self._processes[process.pid] = process
        self._reaped.pop(process.pid, None)  # of an earlier process with this number
        if same and process.above is not None:
            process.twin = process.above.pid
        elif own.statm is not None:
            self._begin_memory(t_ns, process, own.statm, own.stat, of_parent)
        self._members, self._changed, self._round = None, True, None
        self._mappings.drop()

    def separate(self, t_ns: int, pid: int, own: ProcessReading) -> None:
        """A child of vfork runs in its parent's memory no longer: it has exec'd."""
        process = self._processes.get(pid)
        if process is None:
            return
        twin = self._processes.get(process.twin) if process.twin is not None else None
        process.twin, self._members, self._changed = None, None, True
        if own.statm is not None:
            of_twin = ProcessReading((twin.rss, twin.file, twin.vms) if twin is not None else None, None)
            self._begin_memory(t_ns, process, own.statm, own.stat, of_twin)

    def _begin_memory(self, t_ns: int, process: ProcessState, statm: Statm, stat: StatFields | None, of_parent: ProcessReading) -> None:
        """A process has separate memory from now on: by a fork, or by an exec after a vfork."""
        process.rss, process.file, process.vms = statm
        process.rss_peak = max(process.rss_peak, process.rss)
        parent, (parent_statm, parent_stat) = process.above, of_parent
        if stat is not None:
            process.know_faults(t_ns, stat.minor_faults)
            process.stack = stat.stack
        if parent is not None and parent_stat is not None:
            process.waited, parent.stack = parent_stat.child_faults, parent_stat.stack or parent.stack
        others = [other for other in self._processes.values() if other.twin is None and other is not process]
        kin = others
        if stat is not None and stat.stack:  # after an exec nothing of its parent is left
            kin = [other for other in others if other.stack in (0, stat.stack)]
        certain, most = 0, _ANY
        if parent is not None and parent in kin and parent_statm is not None:
            kin, now = [parent], parent_statm[0] - parent_statm[1]
            most = max(parent.anon, now)  # it may have grown since the last poll, and then forked
            if stat is not None and stat.stack and parent_stat is not None:
                faults = stat.minor_faults + parent_stat.minor_faults - parent.faults_polled  # each may have copied a page
                certain = max(0, min(process.anon, now) - faults * self._page - max(0, process.anon - most))
        # Else the parent has gone, or exec'd meanwhile: it had its memory from its own parent, or gave it to others, and any of them may share it.
        for other in kin:
            other.own = 0
            self._begin_to_share(t_ns, other, most, parent_stat if other is parent else None)
        process.shared = min(process.anon, most) if kin else 0
        process.own = process.rss - certain
        if others:
            inside = any(other.inside for other in kin)
            for history in self._histories(process):
                history.sum.gain(certain if inside or history is self.whole else 0, process.shared, process.file)

    def _begin_to_share(self, t_ns: int, process: ProcessState, size: int, stat: StatFields | None) -> None:
        if stat is not None:
            self._copy(t_ns, process, stat.minor_faults)
        process.share(size)

    def go(self, t_ns: int, pid: int) -> None:
        """No memory is left of a process."""
        process = self._processes.get(pid)
        if process is None:
            return
        self._miss(process)
        self._copy_at_end(t_ns, process)
        shared = min(process.rss, process.shared + process.file)
        for history in self._histories(process):
            history.sum.lose(shared, max(0, min(shared, process.rss - process.own)))
        del self._processes[pid]
        self._members, self._changed, self._round = None, True, None
        self._mappings.drop()
        if process.above is not None:
            process.above.departed += 1
        self._leaving.append(process)
        if process.inside and self.devices.known:
            self._tell_devices(t_ns)

    def _leave(self, polls: int, last_ns: int) -> None:
        """Keep the processes that were gone at the newest poll, and were last seen at the one before."""
        for process in self._leaving:
            process.samples = polls - process.samples_before
            if process.samples <= 0 and process.pid != self._root:
                self.unseen += 1  # found only once it had ended
                continue
            process.end_ns = last_ns
            self._over.append(process)
        self._leaving = []
        if len(self._over) > 4 * _KEPT:
            self._over = sorted(self._over, key=lambda other: -other.rss_peak)[: 2 * _KEPT]

    def lose_sight(self, pid: int, followed: bool) -> None:
        """A process was listed, and could not be followed: it had ended, or too many files are open."""
        self._seen.add(pid)
        self._missed.add(pid)
        self.unseen += followed
        self.unfollowed += not followed

    def reap(self, pid: int, faults: int) -> None:
        """The recorder has waited for a process. faults: its minor faults and those of its children."""
        if pid not in self._seen:
            self.unseen += 1
        self._reaped[pid] = faults
        self._missed.discard(pid)

    # -- readings

    def poll(self, begin_ns: int, end_ns: int, last_ns: int, polls: int, changes: Iterable[tuple[int, Statm]]) -> None:
        """All processes were read between the two times, and at last_ns before. polls: how often by now; the processes that `changes` lacks are as
        they were."""
        for history in self._both():
            history.sum.extend(last_ns)
        for pid, statm in changes:
            process = self._processes.get(pid)
            if process is not None and process.twin is None:
                self._move(process, statm, last_ns)
        self._leave(polls - 1, last_ns)
        for process in self._processes.values():
            process.end_ns, process.faults_polled = begin_ns, process.faults
            process.samples = polls - process.samples_before
            self._miss(process)
            if process.waits:
                self._explain_wait(process)
        self.most = max(self.most, len(self._processes))
        if len(self._processes) > 1:
            self.together = max(self.together, sum(process.rss for process in self._processes.values() if process.twin is None))
        self._sample(begin_ns, end_ns, last_ns)

    def _explain_wait(self, process: ProcessState) -> None:
        """A process has waited for a child at least: for one that has gone, else for one that was missed, else for one that nobody has seen."""
        process.waits = False
        if process.departed:
            process.departed -= 1
        elif self._missed:
            self._missed.pop()
        else:
            self.unseen += 1

    def see_stat(self, t_ns: int, pid: int, stat: StatFields, name: str) -> None:
        """A reading of a process's stat, and its name. Copies on write that it tells of change the sum, though no resident set has changed."""
        process = self._processes.get(pid)
        if process is None:
            for other in self._leaving:  # it has gone, and the recorder is about to wait for it
                if other.pid == pid:
                    other.see(stat)
            return
        process.see(stat)
        process.name = name or process.name
        if self._copy(t_ns, process, stat.minor_faults):
            for history in self._histories(process):
                history.sum.renew(t_ns)

    def see_status(self, begin_ns: int, end_ns: int, pid: int, status: Mapping[str, int]) -> None:
        """A reading of a process's status."""
        process = self._processes.get(pid)
        if process is None or process.twin is not None or "rss" not in status:
            return
        hwm = status.get("hwm", 0)
        process.rose = 0 < process.hwm < hwm
        process.hwm = max(process.hwm, hwm)
        if process.inside:
            process.swap = status.get("swap", 0)
            self._tell_swap(begin_ns, end_ns, status)

    def see_devices(self, kind: bytes, fields: Sequence[bytes]) -> None:
        """A reading of a process's buffers, clients or tables: the fields of that line."""
        process = self._processes.get(int(fields[2]))
        if process is None:
            return
        devices = process.devices
        {b"buffers": devices.see_buffers, b"clients": devices.see_clients, b"tables": devices.see_tables}[kind](fields[3:])
        if process.inside and process.twin is None:
            self._tell_devices(int(fields[0]))

    def see_nvidia(self, t_ns: int, fields: Iterable[bytes]) -> None:
        """What NVML tells of processes, of which some may be of this tree: the fields of that line."""
        sizes = {int(pid): size for pid, _, size in (field.partition(b":") for field in fields if field)}
        self.devices.asks_nvidia = True
        found = [process for process in self._processes.values() if process.pid in sizes or process.devices.nvidia]
        for process in found:
            process.devices.see_nvidia(sizes.get(process.pid, b"0"))
        if any(process.inside for process in found):
            self._tell_devices(t_ns)

    def _tell_devices(self, t_ns: int) -> None:
        self.devices.take(t_ns, [process.devices for process in self._processes.values() if process.inside and process.twin is None])

    def see_command(self, pid: int, words: str) -> None:
        """The words of a process."""
        process = self._processes.get(pid)
        if process is not None and words:
            process.command = words

    def see_huge(self, count: int) -> None:
        """How many huge pages faults have brought in on this machine."""
        self._huge_rose = self._huge_rose or self._huge not in (None, count)
        self._huge = count

    def _both(self) -> Sequence[SumHistory]:
        return (self.whole,) if self.own is self.whole else (self.whole, self.own)

    def _move(self, process: ProcessState, statm: Statm, last_ns: int) -> None:
        """Take a process's memory that has changed since the last poll, which was at last_ns."""
        rss, file, anon = process.rss, process.file, process.anon
        self._changed = True
        process.rss, process.file, process.vms = statm
        process.rss_peak = max(process.rss_peak, process.rss)
        process.own = max(0, process.own + process.rss - rss)
        if last_ns >= process.faults_ns:
            process.grown += max(0, process.anon - anon)
        grown, dropped = max(0, process.file - file), max(0, file - process.file)
        released = min(max(0, anon - process.anon), process.shared - process.released)
        process.released += released
        if grown or dropped or released:
            for history in self._histories(process):
                if grown:
                    history.sum.gain(0, 0, grown)
                if dropped or released:
                    history.sum.lose(dropped + released)

    def _miss(self, process: ProcessState) -> None:
        """If the last look found a high-water mark above all samples, tell the sums: that memory was there between two samples."""
        if process.rose and process.hwm > process.rss_peak:
            for history in self._histories(process):
                history.sum.miss(process.hwm - process.rss_peak)
        process.rose = False

    def _sample(self, begin_ns: int, end_ns: int, last_ns: int) -> None:
        if self._members is None:
            self._members = [process for process in self._processes.values() if process.twin is None]
        for history in self._both():
            members = self._members if history is self.whole else [process for process in self._members if process.inside]
            if not members:
                history.sum.end()
                continue
            several = history.sum.several
            if self._changed or history.sum.last is None:
                history.sum.sample(begin_ns, end_ns, members)
            else:
                history.sum.extend(begin_ns)
            if history is self.own:
                self._stretch(several, history.sum.several, begin_ns, last_ns)
        self._changed = False

    def _stretch(self, before: bool, several: bool, t_ns: int, last_ns: int) -> None:
        """Keep the times at which the measured process had children."""
        if several and not before:
            self._stretches = [*self._stretches[-_STRETCHES:], [t_ns, t_ns]]
        elif before and self._stretches:
            self._stretches[-1][1] = max(self._stretches[-1][1], t_ns if several else last_ns)

    def _tell_swap(self, begin_ns: int, end_ns: int, status: Mapping[str, int]) -> None:
        """Tell what is swapped out by now. Of processes that were forked and have not exec'd since, pages may be the same: the most counts."""
        inside = [process for process in self._processes.values() if process.inside and process.twin is None]
        threads = status.get("threads", 1)
        if len(inside) == 1:
            self.swap.take(begin_ns, end_ns, status["rss"], inside[0].swap, threads)
            return
        by_stack: dict[int, int] = {}
        for process in inside:
            by_stack[process.stack] = max(by_stack.get(process.stack, 0), process.swap)
        certain = self.own.sum.last[0] if self.own.sum.last is not None else status["rss"]
        self.swap.take(begin_ns, end_ns, certain, sum(by_stack.values()), threads)

    # -- copies on write

    def _copy(self, t_ns: int, process: ProcessState, faults: int) -> int:
        """Take a process's number of minor faults: each may have copied a page that it shared, except the faults by which it grew. The bytes that
        may have been copied."""
        size = max(0, faults - process.faults) * self._page
        if size > _FEW and not self._huge_rose:
            size = max(0, size - process.grown)  # with huge pages a fault adds more than one page
        process.know_faults(t_ns, faults)
        return self._tell_copies(process, size)

    def _tell_copies(self, process: ProcessState, size: int) -> int:
        copied = min(size, process.shared - process.copied)
        if copied:
            process.copied += copied
            process.own += copied
            self._changed = True
            for history in self._histories(process):
                history.sum.copy(copied)
        return copied

    def _copy_at_end(self, t_ns: int, process: ProcessState) -> None:
        """Take the faults of a process that has ended, as far as they are still known; else it may have copied every page that it shared.

        The process that has waited for it has its faults in cminflt, with those of all processes that it had waited for.
        """
        if process.ended:
            return  # its last reading of stat is of its end
        faults = self._reaped.get(process.pid)
        others, below = 0, process
        while faults is None and below.above is not None:
            above = below.above
            others += below.waited
            if above.child_faults is not None and (above.ended or self._processes.get(above.pid) is above):
                faults = above.child_faults - others
            elif above.pid in self._reaped:
                faults = self._reaped[above.pid] - above.faults - others
            others += above.faults
            below = above
        if faults is not None and faults >= max(1, process.faults):
            self._copy(t_ns, process, faults)
        else:
            self._tell_copies(process, process.rss_peak)

    # -- shares and mappings

    def begin_round(self) -> None:
        """Shares of all processes are about to be read; stat of all was read."""
        self._round = Round(self.whole.sum.moved, {})

    def see_shares(self, pid: int, shares: Shares | None) -> None:
        """The shares of a process, None if they may not be read."""
        if self._round is not None:
            self._round.shares[pid] = shares

    def end_round(self) -> None:
        """All shares were read, and stat of all again: no process has come or gone since the begin, or the round is dropped."""
        round_, self._round = self._round, None
        members = self._members or []
        if round_ is None or any(process.pid not in round_.shares for process in members):
            return
        if self.whole.sum.moved - round_.moved > max(_LEAST, self.whole.sum.width / 2):
            return
        self.rounds += 1
        self.refused = sum(shares is None for shares in round_.shares.values())
        self._confirm(round_, members)

    def _confirm(self, round_: Round, members: Sequence[ProcessState]) -> None:
        self._changed = True
        overlap = file = unread = beside = 0
        own_overlap = own_file = own_unread = 0
        for process in members:
            shares = round_.shares[process.pid]
            if shares is None:
                unread += process.rss
                own_unread += process.rss if process.inside else 0
                continue
            process.pss_peak = max(process.pss_peak or 0, shares.pss)
            process.share(shares.shared_anon)
            process.own = shares.private
            both = max(0, shares.rss - shares.pss)
            overlap += both
            file += min(both, shares.file_overlap)
            if process.inside:
                own_overlap += both
                own_file += min(both, shares.file_overlap)
            else:
                beside += both
        spread = self.whole.sum.moved - round_.moved
        self.whole.sum.confirm(max(0, overlap - spread), overlap - file + unread + spread, file + spread)
        if self.own is not self.whole and self.own.sum.several:
            # Pages that these processes share with others of the tree are in their shares too.
            least = own_overlap - spread - beside - unread + own_unread
            self.own.sum.confirm(max(0, least), own_overlap - own_file + own_unread + spread, own_file + spread)

    def see_mappings(self, pid: int, parts: list[Part]) -> None:
        """The parts of files that a process has mapped."""
        self._mappings.take(pid, parts)

    def complete_mappings(self) -> None:
        """The mappings of all processes were read: file-backed memory beyond what they have mapped is counted more than once."""
        members = self._members or []
        mapped = self._mappings.complete([process.pid for process in members], self.whole.sum.moved)
        if mapped is None:
            return
        self._changed = True
        spread = self.whole.sum.moved - self._mappings.moved
        for history in self._both():
            inside = [process for process in members if process.pid in mapped and (process.inside or history is self.whole)]
            parts = [part for process in inside for part in mapped[process.pid]]
            low = sum(process.file for process in inside) - union_bytes(parts) - spread
            if low > history.sum.certain:
                history.sum.at_least(low)
                for process in inside:  # its end takes all its pages of files from the overlap that is certain
                    process.own = min(process.own, process.rss - process.file)
