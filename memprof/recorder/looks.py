"""Costly looks at processes, one after another, within a share of the time: their stat, status, words, and the children of other threads than the
first."""

import os
import time

from . import procfs
from .writer import escaped

_clock = time.monotonic_ns
_cpu = time.thread_time_ns  # CPU time of reading alone: on a busy machine much more time passes
_LOOKS, _FAULTS, _ROLLUPS = (0.007, 20_000_000), (0.005, 5_000_000), (0.018, 100_000_000)
_PAUSE_NS = 2_000_000  # between two looks at the same process
_SWAP_NS = 10_000_000


class LookBudget:
    """A share of one CPU, and nanoseconds beyond it so that a short run is looked at too. free_ns: from when on some of it is left."""

    def __init__(self, begin_ns, share, allowance_ns):
        self._begin_ns, self._share, self._allowance_ns = begin_ns, share, allowance_ns
        self._spent_ns = 0
        self.free_ns = begin_ns

    def spend(self, since_ns):
        """Take what this thread has used since it had used since_ns."""
        self._spent_ns += _cpu() - since_ns
        self.free_ns = self._begin_ns + int((self._spent_ns - self._allowance_ns) / self._share)


class LookSchedule:
    """The looks at all processes. swap: read status more often, as swap or threads matter."""

    def __init__(self, writer, processes, devices, swap, begin_ns):
        self._writer, self._processes, self._devices, self._swap = writer, processes, devices, swap
        self._looks, self._faults, self._rollups = (LookBudget(begin_ns, *share) for share in (_LOOKS, _FAULTS, _ROLLUPS))
        self._place = self._faults_place = 0
        version = [int(part) for part in os.uname().release.split(".")[:2] if part.isdigit()]
        self._late = version < [6, 17]  # for smaps_rollup the kernel walks the pages; before, it updates every other count late

    def turn(self, now):
        """Look at as many processes as their share of the time allows."""
        processes = self._processes.living
        if self._processes.tree and now >= self._looks.free_ns:
            self._look_in_turn(processes, now)
        if self._swap:
            for process in processes:
                if now - process.status_ns >= _SWAP_NS and process.twin is None:
                    self._processes.look_at_status(process)
        if now >= self._faults.free_ns and len(processes) > 1:
            self._ask_for_faults(processes, now)

    def _look_in_turn(self, processes, now):
        for _ in processes:
            process = processes[self._place % len(processes)]
            if now < self._looks.free_ns or now - process.looked_ns < _PAUSE_NS:
                return
            begin_ns = _cpu()
            self._place += 1
            process.looked_ns = now
            self._look_at(process)
            self._looks.spend(begin_ns)

    def _look_at(self, process):
        stat = self._processes.look_at_stat(process)
        if stat is None or stat.over:
            return
        if process.twin is None:
            self._processes.look_at_status(process)
        program = (stat.stack, stat.name)
        if program != process.program:
            command = b" ".join(procfs.read("/proc/%d/cmdline" % process.pid).replace(b"\0", b" ").split())[:200]
            if command:
                process.program = program
            if command not in (b"", process.command):
                process.command = command
                self._writer.tell(b"command", process.pid, escaped(command))
        if self._processes.tree and (stat.threads > 1 or process.children is None):
            self._processes.list_threads(process)

    def _ask_for_faults(self, processes, now):
        """Read stat of processes that may share pages copied on write, one after another: nothing else shows a copy."""
        begin_ns = _cpu()
        stacks: "dict[bytes, int]" = {}
        for process in processes:
            stacks[process.stack] = stacks.get(process.stack, 0) + 1
        kin = [process for process in processes if stacks[process.stack] > 1]
        for _ in kin:
            self._faults_place += 1
            self._processes.look_at_stat(kin[self._faults_place % len(kin)])
            self._faults.spend(begin_ns)
            if now < self._faults.free_ns:
                return
            begin_ns = _cpu()

    def look(self, pid, text, reset, exact):
        """Look at one process more closely. exact: read its shares in any case, else where the kernel counts late and there is time."""
        self._processes.tell_poll()
        process, begin_ns = self._processes.get(pid), _clock()
        status = rollup = read = b"-"
        stat = procfs.stat(pid) if process is not None else None
        if process is not None:
            task = process.statm.task
            status, read = procfs.status(task), procfs.number("/proc/%d/io" % pid, b"read_bytes:")
            if exact or (self._late and begin_ns >= self._rollups.free_ns):
                spent_ns = _cpu()
                rollup = procfs.rollup(task)
                self._rollups.spend(spent_ns)
        is_reset = reset and process is not None and procfs.reset_high_water(pid)
        fields = stat.fields if stat is not None else b"-"
        took_ns = _clock() - begin_ns
        self._devices.look(must=exact)
        self._writer.add(b"look ", begin_ns, took_ns, pid, is_reset, status, rollup, fields, read, escaped(text))
        self._writer.flush()
