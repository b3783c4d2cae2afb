"""A process and all that it starts, polled together: the sum of their memory, and the largest of each.

Children are found in /proc/PID/task/TID/children; a poll needs two reads a process, on open descriptors. More costly reads have a limited share
of the time: faults, high-water marks, the children of other threads than the first, and the shares of memory that processes have in common
(rounds.py). sums.py makes the sum of it.

A child that vfork has made runs in its parent's memory until it execs (kcmp tells), and counts for nothing until then.

A child that started and ended between two polls is not seen. Its parent's faults tell that it was there (/proc/PID/stat, 11 cminflt: those of
children that were waited for): if they rise and no known child has gone, there was at least one unknown child. So `unseen` is the least number
of such children.
"""

import errno
import os
import time

from . import procfs
from .mappings import Mappings, together
from .node import Node
from .rounds import Rounds
from .sums import History
from .vfork import same_memory

_clock = time.thread_time_ns  # CPU time of polling alone: on a busy machine much more time passes
_LOOK_SHARE, _FAULTS_SHARE = 0.007, 0.005  # of one CPU
_LOOK_ALLOWANCE_NS, _FAULTS_ALLOWANCE_NS = 20_000_000, 5_000_000  # beyond the share: a short run is looked at too
_READ_NS, _READ_EACH_NS = 200_000, 30_000  # a sample that took longer was held up: a process may be in its next phase by then
_READS = 3  # such a sample is taken again, at most this often in all; a late sample of a single process is left out
_FEW = 256 << 10  # bytes of copies that are not worth asking where the faults came from
_STRETCHES = 100  # times at which the measured process had children: a phase that has ended asks for the last few alone
_KEPT = 1000  # processes that a record names


class Tree:
    """The tree below a process. reaper: the process that adopts orphans of the tree; its other children belong to the tree too.

    whole: the History of all processes; own: that of the measured process and its descendants, the same if that is the process that was started.
    """

    def __init__(self, root, now, reaper=None):
        self._root = self._centre = root
        self._nodes = {}
        self._members = None  # the processes that do not run in another's memory; None if they have to be found anew
        self._known = set()  # pids that were listed as children and have been dealt with
        self._ended = []
        self._begin_ns = now
        self._look_ns = self._faults_ns = 0
        self._turn = self._faults_turn = 0
        self._reaped_faults = {}
        self._huge_faults = procfs.huge_faults()
        self._changed = False  # since the last sample
        self.whole = self.own = History()
        self.rounds = Rounds(now)
        self._mappings = Mappings(now)
        self.unseen = 0
        self.most = 0
        self.unfollowed = 0
        self._stretches = []  # [from, to] when the process that is measured was seen with children, the last of them
        self.swapped = None  # the Swapped to tell of the measured process and its descendants
        self._adopted = None
        if reaper is not None:
            self._adopted = os.open("/proc/%d/task/%d/children" % (reaper, reaper), os.O_RDONLY | os.O_CLOEXEC)
        self._add(root, None, now)

    def measure(self, pid, alone):
        """Make this process the measured process. alone: processes that are not below it, such as a debugger, are no part of the tree."""
        self._centre, self._stretches, self._changed = pid, [], True
        for node in self._nodes.values():
            node.inside = self._below(node)
        if alone:
            self._root = pid
            self._ended, self.most, self.unseen = [], 0, 0
            for other in [node for node in self._nodes.values() if not node.inside]:
                self._forget(other)
            self._known.add(pid)
            if self._adopted is not None:
                os.close(self._adopted)
                self._adopted = None
            self.whole = self._history()
        self.own = self.whole if self.is_whole else self._history()

    def _history(self):
        history = History()
        members = [node for node in self._nodes.values() if node.inside and node.twin is None]
        history.sum.gain(0, sum(node.rss - node.file for node in members), sum(node.file for node in members))
        return history

    def had_others(self, begin_ns, end_ns):
        """Whether the measured process was seen with children between two times, also if both have passed a while ago."""
        return any(begin <= end_ns and end >= begin_ns for begin, end in self._stretches)

    @property
    def is_whole(self):
        """Whether the measured process is the process that was started, so that both sums are the same."""
        return self._centre == self._root

    def add(self, pid, now):
        """Add a process that is known to belong to the tree before polling has found it."""
        if pid not in self._nodes and pid not in self._known:
            self._add(pid, None, now)

    def poll(self, now):
        """(rss, file-backed, vms) of all processes together in bytes, as far as is known at once, or None if no process is left."""
        self._list_all(now)
        if self._adopted is not None:
            self._orphans(now)
        self._look(now)
        late = True
        for _ in range(_READS):
            now = time.monotonic_ns()
            for node in list(self._nodes.values()):
                self._poll_node(node, now)
            late = time.monotonic_ns() - now > _READ_NS + len(self._nodes) * _READ_EACH_NS
            if not late:
                break
        if not self._nodes:
            return None
        if late and len(self._nodes) == 1 and self.whole.sum.last is not None:
            return self.whole.sum.last
        self.most = max(self.most, len(self._nodes))
        if len(self._nodes) > 1:
            self._ask_for_faults(now)
        if self._members is None:
            self._members = [node for node in self._nodes.values() if node.twin is None]
        self._sample(now)
        if len(self._members) > 1:
            reading = self.rounds.step(now, self._members, self.whole.sum, self._tell_faults)
            if reading is not None:
                self._confirm(reading)
            mapped = self._mappings.step(now, self._members, self.whole.sum)
            if mapped is not None:
                self._confirm_files(mapped)
        return self.whole.sum.last

    def settle(self):
        """Settle all samples so far: nothing more will be known of them."""
        self.whole.sum.flush()
        self.own.sum.flush()

    def reaped(self, pid, faults):
        """The reaper has waited for a process; faults: its minor faults and those of its children."""
        if pid not in self._known:
            self.unseen += 1
        elif pid not in self._nodes:
            self._known.discard(pid)
        self._reaped_faults[pid] = faults

    def high_water(self, pid):
        """The largest high-water mark that a process was seen with, in bytes; 0 if it was never seen."""
        return next((node.hwm for node in (*self._nodes.values(), *self._ended) if node.pid == pid), 0)

    def called(self, pid):
        """The name that a process last gave itself, empty if it was never seen."""
        return next((node.name for node in (*self._nodes.values(), *self._ended) if node.pid == pid), "")

    def records(self):
        """memprof.runs.records.Process of each process, in the order of their begin; the largest alone if there are too many."""
        nodes = sorted((*self._ended, *self._nodes.values()), key=lambda node: node.begin_ns)
        if len(nodes) > _KEPT:
            nodes = sorted(sorted(nodes, key=lambda node: -node.rss_peak)[:_KEPT], key=lambda node: node.begin_ns)
        return [node.record() for node in nodes if node.samples]

    # -- processes

    def _add(self, pid, parent, now):
        self._known.add(pid)
        try:
            statm = procfs.Statm(pid)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self.unfollowed += 1
            elif pid != self._root:
                self.unseen += 1  # it was listed, and has ended since
            return
        node = Node(pid, statm, parent.pid if parent is not None else None, now)
        node.above = parent
        node.inside = pid == self._centre or (parent is not None and parent.inside)
        try:
            node.descriptor = os.open("/proc/%d/task/%d/children" % (pid, pid), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass  # it has just ended, or a kernel without CONFIG_PROC_CHILDREN: `_look` then asks procfs, which knows another way
        if parent is not None and same_memory(statm.task, parent.task):
            node.twin = parent.pid
        else:
            self._begin_memory(node, parent)
        self._nodes[pid] = node
        self._members, self._changed = None, True
        self.rounds.changed(now)
        self._mappings.drop()

    def _begin_memory(self, node, parent):
        """A process has separate memory from now on: by a fork, or by an exec after a vfork."""
        values = node.statm.read()
        if values is None:
            return
        node.values = values
        node.rss, node.file, node.vms = values
        node.rss_peak = max(node.rss_peak, node.rss)
        anon = node.rss - node.file
        stat = procfs.stat(node.task)
        if stat is not None:
            node.faults, node.stack = stat.faults, stat.stack
        if parent is not None:
            above = procfs.stat(parent.task)
            node.waited = above.child_faults if above is not None else 0
            parent.stack = above.stack if above is not None else parent.stack
        # After an exec nothing of its parent is left. A parent that is gone had its memory from its own parent: then any process may share it.
        others = [other for other in self._nodes.values() if other.twin is None]
        gone = parent is None or parent.statm.read() is None
        kin = others if gone else [parent]
        if stat is not None and stat.stack:
            kin = [other for other in kin if other.stack in (0, stat.stack)]
        before = after = 0
        for other in kin:
            # Its memory is read now too: it may have grown since the last poll, and then forked.
            rss, file, _ = other.statm.read() or (0, 0, 0)
            other.own = 0
            most = max(other.rss - other.file, rss - file)
            before, after = max(before, most), max(after, rss - file)
            self._begin_to_share(other, most)
        inherited = min(anon, before)
        between = parent.faults if parent is not None and gone else 0
        new_bytes = (node.faults + between) * procfs.PAGE + max(0, anon - before)
        certain = max(0, min(anon, after) - new_bytes) if stat is not None and stat.stack else 0
        node.shared = inherited
        node.own = node.rss - certain
        if others:
            inside = any(other.inside for other in kin)
            for history in self._histories(node):
                history.sum.gain(certain if inside or history is self.whole else 0, inherited, node.file)

    def _begin_to_share(self, node, size):
        if node.shared:
            self._tell_faults(node)
        else:  # it shared nothing so far: no fault was a copy
            stat = procfs.stat(node.pid)
            node.faults, node.grown = stat.faults if stat is not None else node.faults, 0
        node.shared = size

    def _histories(self, node):
        return (self.whole, self.own) if node.inside and self.own is not self.whole else (self.whole,)

    def _below(self, node):
        while node is not None and node.pid != self._centre:
            node = self._nodes.get(node.parent)
        return node is not None

    def _list_all(self, now):
        for node in list(self._nodes.values()):
            if self._list(node):
                self._children_changed(node, now)

    def _list(self, node):
        """Whether the children of a process's first thread have changed."""
        if node.descriptor is None:
            return False
        before = node.children
        try:
            node.children = os.pread(node.descriptor, 65536, 0)
        except OSError:
            return False
        return node.children != before

    def _children_changed(self, node, now, others=()):
        kids = tuple(int(pid) for pid in node.children.split()) + tuple(others)
        for pid in kids:
            if pid not in self._known:
                self._add(pid, node, now)
        for pid in node.kids:
            if pid not in kids:
                node.gone += 1
                if pid not in self._nodes and procfs.stat(pid) is None:
                    self._known.discard(pid)  # it was waited for, and the reaper has not adopted it: its number may come again
        node.kids = kids

    def _orphans(self, now):
        try:
            adopted = os.pread(self._adopted, 65536, 0)
        except OSError:
            return
        for pid in (int(text) for text in adopted.split()):
            if pid not in self._known:
                self._add(pid, None, now)

    def _end(self, node, now):
        self._copied_at_its_end(node)
        shared = min(node.rss, node.shared + node.file)
        for history in self._histories(node):
            history.sum.lose(shared, min(shared, node.rss - node.own))
        self._forget(node)
        self.rounds.left(node.pid, now)
        self._mappings.drop()
        if node.samples:
            self._ended.append(node)
            if len(self._ended) > 4 * _KEPT:
                self._ended = sorted(self._ended, key=lambda other: -other.rss_peak)[: 2 * _KEPT]
        elif node.pid != self._root:
            self.unseen += 1  # found only once it had ended

    def _forget(self, node):
        del self._nodes[node.pid]
        self._members, self._changed = None, True
        node.statm.close()
        if node.descriptor is not None:
            os.close(node.descriptor)

    # -- memory

    def _poll_node(self, node, now):
        if node.twin is not None:
            twin = self._nodes.get(node.twin)
            if twin is None or not same_memory(node.task, twin.task):
                node.twin, self._members = None, None
                self._begin_memory(node, twin)
        values = node.statm.read()
        if values is None:
            self._missed(node)
            self._end(node, now)
            return
        node.end_ns = now
        node.samples += 1
        if values is not node.values and node.twin is None:
            self._moved(node, values)
        self._missed(node)

    def _missed(self, node):
        """If the last look found a high-water mark above all samples, tell the sums: that memory was there between two samples."""
        if node.rose and node.hwm > node.rss_peak:
            for history in self._histories(node):
                history.sum.miss(node.hwm - node.rss_peak)
        node.rose = False

    def _moved(self, node, values):
        """Take a process's memory that has changed since the last poll. values: (rss, file-backed, vms) in bytes."""
        rss, file = node.rss, node.file
        node.values, self._changed = values, True
        node.rss, node.file, node.vms = values
        if node.rss > node.rss_peak:
            node.rss_peak = node.rss
        node.own = max(0, node.own + node.rss - rss)
        node.grown += max(0, node.rss - node.file - rss + file)
        grown, dropped = max(0, node.file - file), max(0, file - node.file)
        let_go = min(max(0, rss - file - node.rss + node.file), node.shared)
        node.shared -= let_go
        if grown or dropped or let_go:
            for history in self._histories(node):
                if grown:
                    history.sum.gain(0, 0, grown)
                if dropped or let_go:
                    history.sum.lose(dropped + let_go)

    def _sample(self, now):
        for history in (self.whole,) if self.own is self.whole else (self.whole, self.own):
            members = self._members if history is self.whole else [node for node in self._members if node.inside]
            if not members:
                continue
            before = history.sum.several
            if self._changed or history.sum.last is None:
                history.sum.sample(now, members)
            else:
                history.sum.again(now)
            if history is self.own and history.sum.several:
                if not before:
                    self._stretches = [*self._stretches[-_STRETCHES:], [now, now]]
                self._stretches[-1][1] = now
        self._changed = False

    def _confirm(self, reading):
        """Take a complete round of shares; no process has come or gone since it began. reading: [(process, shares)]."""
        self._changed = True
        overlap = file = unread = beside = 0
        own_overlap = own_file = own_unread = 0
        for node, shares in reading:
            if shares is None:
                unread += node.rss
                own_unread += node.rss if node.inside else 0
                continue
            node.pss_peak = max(node.pss_peak or 0, shares.pss)
            node.shared, node.own = shares.shared_anon, shares.private
            both = max(0, shares.rss - shares.pss)
            overlap += both
            file += min(both, shares.file_overlap)
            if node.inside:
                own_overlap += both
                own_file += min(both, shares.file_overlap)
            else:
                beside += both
        self._confirmed(self.whole.sum, overlap, file, unread, 0)
        if self.own is not self.whole and self.own.sum.several:
            # Pages that these processes share with others of the tree are in their shares too.
            self._confirmed(self.own.sum, own_overlap, own_file, own_unread, beside + unread - own_unread)

    def _confirm_files(self, mapped):
        """Take what the processes have mapped: file-backed memory beyond it is counted more than once. mapped: [(process, places)]."""
        self._changed = True
        spread = self._mappings.spread(self.whole.sum)
        for history in (self.whole,) if self.own is self.whole else (self.whole, self.own):
            inside = [(node, places) for node, places in mapped if node.inside or history is self.whole]
            low = sum(node.file for node, _ in inside) - together([place for _, places in inside for place in places]) - spread
            if low > history.sum.overlap[0]:
                history.sum.at_least(low)
                for node, _ in inside:  # its end takes all that it has of files from the overlap that is certain
                    node.own = min(node.own, node.rss - node.file)

    def _confirmed(self, whole, overlap, file, unread, beside):
        spread = self.rounds.spread(self.whole.sum)
        whole.confirm(max(0, overlap - spread - beside), overlap - file + unread + spread, file + spread)

    # -- costly looks

    def _ask_for_faults(self, now):
        """Ask for the faults of processes that share memory, in turn, as the share of the time allows: nothing else shows a copy on write."""
        nodes = [node for node in self._nodes.values() if node.shared]
        allowed = (now - self._begin_ns) * _FAULTS_SHARE + _FAULTS_ALLOWANCE_NS
        for _ in nodes:
            if self._faults_ns > allowed:
                return
            begin_ns = _clock()
            self._faults_turn += 1
            self._tell_faults(nodes[self._faults_turn % len(nodes)])
            self._faults_ns += _clock() - begin_ns

    def _tell_faults(self, node):
        stat = procfs.stat(node.pid)
        if stat is not None:
            self._copied(node, stat.faults)

    def _copied(self, node, faults):
        """Take a process's number of minor faults: each may have copied a page that it shared, except the faults by which it grew."""
        size = max(0, faults - node.faults) * procfs.PAGE
        if min(size, node.shared) > _FEW and node.grown and procfs.huge_faults() == self._huge_faults:
            size = max(0, size - node.grown)  # with huge pages it grows by more than a page a fault
        copied = min(size, node.shared)
        node.faults, node.grown = max(node.faults, faults), 0
        if copied:
            node.shared -= copied
            node.own += copied
            self._changed = True
            for history in self._histories(node):
                history.sum.copy(copied)

    def _copied_at_its_end(self, node):
        """Take the faults of a process that has ended, as far as they are still known; else it may have copied all that it shared.

        The process that has waited for it has its faults in cminflt, with those of all processes that it had waited for.
        """
        stat = procfs.stat(node.pid)
        faults = stat.faults if stat is not None else self._reaped_faults.get(node.pid)
        others, below = 0, node
        while faults is None and below.above is not None:
            others += below.waited
            above = procfs.stat(below.above.pid)
            if above is not None:
                faults = above.child_faults - others
            elif below.above.pid in self._reaped_faults:
                faults = self._reaped_faults[below.above.pid] - below.above.faults - others
            others += below.above.faults
            below = below.above
        self._copied(node, faults if faults is not None else 1 << 40)

    def _look(self, now):
        """Look closer at as many processes as their share of the time allows, in turn."""
        nodes = list(self._nodes.values())
        allowed = (now - self._begin_ns) * _LOOK_SHARE + _LOOK_ALLOWANCE_NS
        for _ in range(len(nodes)):
            if self._look_ns > allowed:
                return
            begin_ns = _clock()
            self._turn += 1
            self._look_at(nodes[self._turn % len(nodes)], now)
            self._look_ns += _clock() - begin_ns

    def _look_at(self, node, now):
        stat = procfs.stat(node.pid)
        if stat is None or stat.ended:
            return
        node.name = stat.name
        if node.twin is None:
            read_ns = time.monotonic_ns()
            status = procfs.status(node.task)
            hwm = status.get("hwm", 0)
            node.rose = node.hwm > 0 and hwm > node.hwm
            node.hwm = max(node.hwm, hwm)
            if self.swapped is not None and node.inside and "rss" in status:
                node.swap, node.stack_seen = status.get("swap", 0), stat.stack
                self._tell_swapped(read_ns, status["rss"], stat.threads)
        if not node.command or node.samples < 100:
            node.command = procfs.command(node.pid) or node.command
        changed = self._list(node)
        if stat.threads > 1 or node.descriptor is None:
            first = {int(pid) for pid in node.children.split()}
            others = tuple(pid for pid in _children(node.pid) if pid not in first)
            changed = changed or set(others) != set(node.kids) - first
        else:
            others = ()
        if changed:
            self._children_changed(node, now, others)
        if node.child_faults is not None and stat.child_faults > node.child_faults:
            if node.gone:
                node.gone = 0
            else:
                self.unseen += 1
        node.child_faults = stat.child_faults

    def _tell_swapped(self, now, rss, threads):
        """Tell what is swapped out by now. Of processes that were forked and have not exec'd since, pages may be the same: the most counts."""
        inside = [node for node in self._nodes.values() if node.inside and node.twin is None]
        if len(inside) == 1:
            self.swapped.take(now, rss, inside[0].swap, threads)
            return
        by_stack: "dict[int, int]" = {}
        for node in inside:
            by_stack[node.stack_seen] = max(by_stack.get(node.stack_seen, 0), node.swap)
        certain = self.own.sum.last[0] if self.own.sum.last is not None else rss
        self.swapped.take(now, certain, sum(by_stack.values()), threads)


def _children(pid):
    try:
        return procfs.children(pid)
    except OSError:
        return []
