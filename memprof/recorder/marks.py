"""The lines on the marks' descriptor: which process wrote them, and which rule they fit (memprof_marks.py has their form). A program may write
anything there."""

import time

from . import procfs
from .order import Rule
from .writer import escaped

IDLE_NS = 100_000_000  # between two polls where the order has no period
_MOST = 1 << 16


class MarkReader:
    """period: between two polls in ns, as the newest line that fits a rule has it. root: the process that was started; group: a ControlGroup."""

    def __init__(self, order, writer, processes, devices, holds, root, group):
        self._order, self._writer, self._processes, self._devices = order, writer, processes, devices
        self._holds, self._root, self._group = holds, root, group
        self.period = order.interval or IDLE_NS
        # A process, and the rule with the size at which it is stopped; None for no size.
        self._large = (root, Rule([b"0", b"%d" % order.size, b"0"])) if order.size else None
        self._rest = b""  # the begin of a line whose end has not come yet
        self._skips = False  # it is too long

    def take(self, data):
        """Take what was read."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if len(line) > _MOST:
                self._skip()
            elif not self._skips:
                self._take_line(line)
            self._skips = False
        if self._skips or len(self._rest) > _MOST:
            self._skip()
            self._rest = b""

    def close(self):
        """Nobody has the descriptor any more."""
        process = self._processes.get(self._processes.main(self._root))
        # A process that ends closes its descriptors too, but only when its memory has gone.
        self._writer.tell(b"closed", process is not None and process.statm.read())

    def stop_large(self):
        """Stop the process whose memory has reached the size of a rule."""
        if self._large is not None:
            pid, rule = self._large
            process = self._processes.get(pid)
            if process is not None and process.statm.resident * procfs.PAGE >= rule.size:
                self._large, rule.size = None, 0  # once, also where its phase comes again
                self._holds.stop(pid, b"size")

    def _skip(self):
        if not self._skips:
            self._writer.tell(b"fault", b"mark", 1)
        self._skips = True

    def _take_line(self, line):
        now = time.monotonic_ns()
        rule = next((rule for rule in self._order.rules if rule.fits(line)), None)
        pid = _writer_of(line)
        self._processes.take_name(pid)
        self._processes.tell_poll()
        if rule is not None:
            self._devices.look(must=True)
        if rule is not None and self._group is not None:
            self._group.tell(self._writer, reset=True)
        self._writer.add(b"mark ", now, self._processes.count, escaped(line))
        if rule is not None:
            self.period = rule.interval or IDLE_NS
            self._large = (pid, rule) if rule.size else None
            if rule.holds:
                self._holds.expect(pid, b"itself")
        if rule is not None or self._order.eager:
            self._writer.flush()


def _writer_of(line):
    """The id of the process that has written a line, 0 if it does not tell."""
    number = line.partition(b'"pid":')[2][:12].lstrip()
    digits = number[: len(number) - len(number.lstrip(b"0123456789"))]
    return int(digits or b"0")
