"""A process and all that it starts, polled together: the sum of their memory, and each one's own largest.

Children are found in /proc/PID/task/TID/children; two reads a process on open descriptors are all that every poll needs. What costs more has
a share of the time that it may take: PSS, by which pages that processes have in common count once in the sum, the high-water marks, the
children of other threads than the first. Between two readings of PSS the sum moves as the resident sets do: a process that has just been
forked counts for what it has beyond its parent, and where one ends, what it shared with others stays.

A child that started and ended between two polls is seen by nobody. That there was one is told by its parent's faults (/proc/PID/stat, 11
cminflt: those of children that were waited for): where they rise and no child that was known has gone, there was at least one. So the
number of such children is at least what `unseen` says.
"""

import errno
import os
import time

from . import procfs

_clock = time.thread_time_ns  # what polling itself takes: on a busy machine it is held up for much longer
_LOOK_SHARE, _PSS_SHARE = 0.007, 0.018  # of one CPU
_LOOK_ALLOWANCE_NS, _PSS_ALLOWANCE_NS = 20_000_000, 50_000_000  # beyond the share: a short run is looked at too
_SLICE_NS = 2_000_000  # the longest that one poll is held up by PSS; one process is always read whole
_RESTARTS = 3  # of a reading of PSS, because processes were started meanwhile
_REFRESH_NS = 500_000_000  # PSS is read again after this even where no process came or went
_DRIFT, _DRIFT_NS = 1 << 20, 20_000_000  # and after this where resident sets have moved so far: what was read while they did may be wrong
_STRETCHES = 100  # with children, of the measured process: a phase that has ended asks for no more than the last few
_KEPT = 1000  # processes that a record names


class Node:
    """One process. rss, file and vms in bytes as last seen.

    base_anon, base_file: its part of the sum when it had seen_anon and seen_file; base_anon is None where it counts in full. shared: how
    much of base_anon was others' too.
    """

    __slots__ = (
        "base_anon",
        "base_file",
        "begin_ns",
        "child_faults",
        "children",
        "command",
        "descriptor",
        "end_ns",
        "file",
        "gone",
        "hwm",
        "inside",
        "kids",
        "name",
        "parent",
        "pid",
        "pss",
        "pss_peak",
        "rss",
        "rss_peak",
        "samples",
        "seen_anon",
        "seen_file",
        "shared",
        "statm",
        "values",
        "vms",
    )


class Tree:
    """The tree below one process. reaper: the process that orphans of the tree fall to, whose other children belong to it too."""

    def __init__(self, root, now, reaper=None):
        self._root, self._reaper = root, reaper
        self._centre = root
        self._nodes = {}
        self._seen = set()  # processes that were listed as children and have been dealt with
        self._ended = []
        self._begin_ns = now
        self._look_ns = self._pss_ns = 0
        self._turn = 0
        self._reading = None  # processes whose PSS is still to be read in this round
        self._read = []
        self._restarts = 0
        self._changed = False
        self._round_ns = 0
        self._drift = 0  # how far resident sets have moved since the last round began
        self._returned = 0  # what processes that have ended since the last round shared with others
        self.unseen = 0
        self.most = 0
        self.rounds = 0
        self.refused = 0  # processes whose PSS may not be read
        self.unfollowed = 0
        self._stretches = []  # [from, to] when the process that is measured was seen with children, the last of them
        self.inside = None  # the sums of the measured process and what is below it
        self._sum = None  # of all processes as of the last poll, None where something has changed since
        self._several = False  # whether the measured process had others below it in that sum
        self._adopted = None
        if reaper is not None:
            self._adopted = os.open("/proc/%d/task/%d/children" % (reaper, reaper), os.O_RDONLY | os.O_CLOEXEC)
        self._add(root, None, now)

    def measure(self, pid, alone):
        """Take this process for the one that is measured. alone: what is not below it, such as a debugger, is no part of the tree."""
        self._centre, self._stretches, self._several, self._sum = pid, [], False, None
        for node in self._nodes.values():
            node.inside = self._below(node)
        if alone:
            self._root = pid
            self._ended, self.most, self.unseen = [], 0, 0
            for other in [node for node in self._nodes.values() if not node.inside]:
                self._forget(other)
            self._seen.add(pid)
            if self._adopted is not None:
                os.close(self._adopted)
                self._adopted = None

    def covers(self, pid):
        """Whether a process belongs to the tree and still runs."""
        return pid in self._nodes

    def had_others(self, begin_ns, end_ns):
        """Whether the process that is measured was seen with children between two times, of which the second may have passed a while ago."""
        return any(begin <= end_ns and end >= begin_ns for begin, end in self._stretches)

    @property
    def whole(self):
        """Whether the measured process is the one that was started, so that both sums are one."""
        return self._centre == self._root

    def add(self, pid, now):
        """A process that is known to be of the tree, before polling has found it."""
        if pid not in self._nodes and pid not in self._seen:
            self._add(pid, None, now)

    def poll(self, now):
        """(rss, file-backed, vms) of all processes together, or None where none is left."""
        self._look(now)
        self._list_all(now)
        if self._adopted is not None:
            self._orphans(now)
        for node in list(self._nodes.values()):
            values = node.statm.read()
            if values is None:
                self._end(node)
                continue
            node.end_ns = now
            node.samples += 1
            if values is node.values:
                continue
            node.values = values
            self._drift += abs(values[0] - node.rss)
            node.rss, node.file, node.vms = values
            if node.rss > node.rss_peak:
                node.rss_peak = node.rss
            self._sum = None
        count = len(self._nodes)
        if count > self.most:
            self.most = count
        if count > 1:
            self._share(now)
        if self._sum is None:
            before, self._sum = self._several, self._sums()
            if self._several and not before:
                self._stretches = [*self._stretches[-_STRETCHES:], [now, now]]
        if self._several:
            self._stretches[-1][1] = now
        return self._sum

    def reaped(self, pid):
        """A process was waited for that had fallen to the reaper."""
        if pid not in self._seen:
            self.unseen += 1

    def high_water(self, pid):
        """The largest high-water mark that a process was seen with, 0 where it never was."""
        return next((node.hwm for node in (*self._nodes.values(), *self._ended) if node.pid == pid), 0)

    def called(self, pid):
        """What a process called itself last, empty where it was never seen."""
        return next((node.name for node in (*self._nodes.values(), *self._ended) if node.pid == pid), "")

    def records(self):
        """What memprof.runs.records.Process has, a process each, the largest first where there are too many to name."""
        nodes = sorted((*self._ended, *self._nodes.values()), key=lambda node: node.begin_ns)
        if len(nodes) > _KEPT:
            nodes = sorted(sorted(nodes, key=lambda node: -node.rss_peak)[:_KEPT], key=lambda node: node.begin_ns)
        return [_record(node) for node in nodes if node.samples]

    # -- who there is

    def _add(self, pid, parent, now):
        self._seen.add(pid)
        try:
            statm = procfs.Statm(pid)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self.unfollowed += 1
            elif pid != self._root:
                self.unseen += 1  # it was listed, and has ended since
            return
        node = Node()
        node.pid, node.statm, node.parent = pid, statm, parent.pid if parent is not None else None
        node.descriptor, node.children = None, b""
        node.kids = ()
        node.name, node.command = procfs.name(pid), ""
        node.begin_ns = node.end_ns = now
        node.rss = node.file = node.vms = node.rss_peak = node.samples = node.hwm = 0
        node.pss = node.pss_peak = node.base_anon = None
        node.base_file = node.seen_anon = node.seen_file = node.shared = node.gone = 0
        node.child_faults = node.values = None
        node.inside = pid == self._centre or (parent is not None and parent.inside)
        try:
            node.descriptor = os.open("/proc/%d/task/%d/children" % (pid, pid), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass  # it has just ended, or a kernel without CONFIG_PROC_CHILDREN: `_look` then asks procfs, which knows another way
        values = statm.read()
        if values is not None:
            node.rss, node.file, node.vms = values
        if parent is not None:
            # Until PSS says better: all that its parent has too is its parent's, and of files what its parent has it may come to touch. What
            # the parent has is read now: it may have grown since the last poll, and then forked.
            rss, file, _ = parent.statm.read() or (parent.rss, parent.file, parent.vms)
            anon = max(0, node.rss - node.file)
            node.base_anon, node.seen_anon = max(0, anon - max(0, rss - file)), anon
            node.base_file, node.seen_file = max(0, node.file - file), max(node.file, file)
        self._nodes[pid] = node
        self._changed, self._sum = True, None

    def _below(self, node):
        while node is not None and node.pid != self._centre:
            node = self._nodes.get(node.parent)
        return node is not None

    def _list_all(self, now):
        for node in list(self._nodes.values()):
            if self._list(node):
                self._children_changed(node, now)

    def _list(self, node):
        """Whether the children of a process's first thread are others than before."""
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
            if pid not in self._seen:
                self._add(pid, node, now)
        for pid in node.kids:
            if pid not in kids:
                node.gone += 1
                if pid not in self._nodes:
                    self._seen.discard(pid)  # it was waited for: its number may come again
        node.kids = kids

    def _orphans(self, now):
        try:
            found = os.pread(self._adopted, 65536, 0)
        except OSError:
            return
        for pid in (int(text) for text in found.split()):
            if pid not in self._seen:
                self._add(pid, None, now)

    def _end(self, node):
        self._forget(node)
        self._changed = True
        self._returned = self._returned + node.shared if self._nodes else 0
        if node.samples:
            self._ended.append(node)
            if len(self._ended) > 4 * _KEPT:
                self._ended = sorted(self._ended, key=lambda other: -other.rss_peak)[: 2 * _KEPT]
        elif node.pid != self._root:
            self.unseen += 1  # found only once it had ended

    def _forget(self, node):
        del self._nodes[node.pid]
        self._sum = None
        node.statm.close()
        if node.descriptor is not None:
            os.close(node.descriptor)

    # -- what costs more

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
        fields = procfs.stat_fields(node.pid)
        if fields is None:
            return
        node.name, faults, threads = fields
        node.hwm = max(node.hwm, procfs.high_water(node.pid))
        if not node.command or node.samples < 100:
            node.command = procfs.command(node.pid) or node.command
        changed = self._list(node)
        if threads > 1 or node.descriptor is None:
            first = {int(pid) for pid in node.children.split()}
            others = tuple(pid for pid in _children(node.pid) if pid not in first)
            changed = changed or set(others) != set(node.kids) - first
        else:
            others = ()
        if changed:
            self._children_changed(node, now, others)
        if node.child_faults is not None and faults > node.child_faults:
            if node.gone:
                node.gone = 0
            else:
                self.unseen += 1
        node.child_faults = faults

    def _share(self, now):
        """Read on in the round of PSS, or begin one where something has changed and there is time for it."""
        if self._reading is None:
            wait_ns = _DRIFT_NS if self._drift >= _DRIFT else _REFRESH_NS
            if not self._changed and now - self._round_ns < wait_ns:
                return
            if self._pss_ns > (now - self._begin_ns) * _PSS_SHARE + _PSS_ALLOWANCE_NS:
                return
            self._reading, self._read, self._changed, self._drift = list(self._nodes.values()), [], False, 0
        elif self._changed and self._restarts < _RESTARTS:
            # A share that was read before a process was started is too large beside one that was read after.
            self._reading, self._read, self._changed = list(self._nodes.values()), [], False
            self._restarts += 1
        begin_ns = _clock()
        while self._reading:
            node = self._reading.pop()
            if node.pid in self._nodes:
                self._read.append((node, procfs.pss(node.pid)))
            if _clock() - begin_ns > _SLICE_NS:
                break
        if not self._reading:
            self._list_all(now)
            if (
                not self._changed or self._restarts >= _RESTARTS
            ):  # else what was read is shared with one that was not; the next poll begins again
                self._round_ends(now)
        self._pss_ns += _clock() - begin_ns

    def _round_ends(self, now):
        self._reading, self._restarts, self._round_ns, self._sum = None, 0, now, None
        self.rounds += 1
        self.refused = self._returned = 0
        for node, found in self._read:
            if found is None:
                self.refused += 1
                node.base_anon = None
                continue
            node.pss, file, node.shared = found
            node.pss_peak = max(node.pss_peak or 0, node.pss)
            anon = max(0, node.rss - node.file)
            node.base_anon, node.seen_anon = min(node.pss - file, anon), anon
            node.base_file, node.seen_file = min(file, node.file), node.file
        self._read = []

    def _sums(self):
        self._several = False
        if not self._nodes:
            self.inside = None
            return None
        rss = file = vms = inside_rss = inside_file = inside_vms = count = 0
        one = len(self._nodes) == 1
        for node in self._nodes.values():
            part, part_file = (node.rss, node.file) if one or node.base_anon is None else _part(node)
            rss += part
            file += part_file
            vms += node.vms
            if node.inside:
                count += 1
                inside_rss += part
                inside_file += part_file
                inside_vms += node.vms
        rss += 0 if one else self._returned
        if count > 1:
            self._several = True
            inside_rss += self._returned
        elif count == 1 and not one:  # alone in its part of the tree, it counts in full
            inside_rss, inside_file, inside_vms = next((node.rss, node.file, node.vms) for node in self._nodes.values() if node.inside)
        self.inside = (inside_rss, inside_file, inside_vms) if count else None
        return rss, file, vms


def _part(node):
    """A process's part of the sum, and what of it is file-backed: what it was at the last reading of PSS, and what came since."""
    anon = max(0, node.rss - node.file)
    if anon < node.seen_anon:
        share = anon / node.seen_anon
        node.base_anon, node.shared, node.seen_anon = int(node.base_anon * share), int(node.shared * share), anon
    if node.file < node.seen_file and node.base_file:
        node.base_file, node.seen_file = int(node.base_file * node.file / node.seen_file), node.file
    file = node.base_file + max(0, node.file - node.seen_file)
    return node.base_anon + anon - node.seen_anon + file, file


def _record(node):
    record = {
        "pid": node.pid,
        "name": node.name.encode("utf-8", "backslashreplace").decode("utf-8"),
        "begin_ns": node.begin_ns,
        "end_ns": node.end_ns,
        "rss_peak_bytes": max(node.rss_peak, node.hwm),
        "command": node.command,
        "samples": node.samples,
    }
    if node.parent is not None:
        record["parent"] = node.parent
    if node.pss_peak is not None:
        record["pss_peak_bytes"] = node.pss_peak
    return record


def _children(pid):
    try:
        return procfs.children(pid)
    except OSError:
        return []
