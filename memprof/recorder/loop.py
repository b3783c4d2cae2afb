"""One loop, no second thread: polls the processes, follows the child's marks and output, does what memprof asks for, and keeps to the time limits.

The child's end is learnt from SIGCHLD and waitid, never from the end of a pipe, which a grandchild may hold.
"""

import _signal as signal  # see __main__
import os
import select
import time

from . import procfs
from .devices import DeviceReader
from .end import Reaper
from .hold import Holds, send
from .looks import LookSchedule
from .mappings import MappingReader
from .marks import MarkReader
from .output import NEVER, Output
from .rounds import Rounds

_TICK_NS = 100_000_000  # between two occasions for anything but polls
_HOLD_NS = 1_000_000
_PERIODS = 4096
_LAST_READS = 16  # of marks and output written before the end; a grandchild may write for ever

_clock = time.monotonic_ns


class Stopped(Exception):
    """The process that asked for this recording is gone, or wants no more of it."""


class Wake:
    """A descriptor that can be read when a child has ended or SIGTERM has come."""

    def __init__(self):
        self.descriptor, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._told = False
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_):
        self._told = True

    def clear(self):
        """Take what was written there; whether SIGTERM has come."""
        _take(self.descriptor)
        return self._told


class Loop:
    """child: a launch.Child. limited: its time was over."""

    def __init__(self, order, writer, processes, child, wake):
        self._order, self._writer, self._processes, self._child, self._wake = order, writer, processes, child, wake
        self.reaper, self._holds = Reaper(writer, processes, child.pid), Holds(writer, order.hold)
        self._devices = DeviceReader(writer, processes, child.begin_ns)
        self._looks = LookSchedule(writer, processes, self._devices, order.swap, child.begin_ns)
        self._rounds, self._mappings = Rounds(writer, processes, child.begin_ns), MappingReader(writer, processes, child.begin_ns)
        self._marks = MarkReader(order, writer, processes, self._devices, self._holds, child.pid, child.group)
        self._output = Output(order, writer, processes, self._looks, child.pid)
        self._next_ns = self._tick_ns = 0  # when to poll, and when to do anything else
        self._end_ns, self._period = child.begin_ns + (order.timeout or NEVER), self._marks.period
        self._heard_ns = _clock()  # when standard input last had anything
        self._held_ns = self._polled_ns = self._left_out = 0
        self.limited = self._over = self._ends = False  # _ends: memprof ended it, and no limit did
        self._periods = 0  # of the first length; the newest of them are kept
        # The array module would serve too, but it imports collections: milliseconds of the start.
        self._newest = memoryview(bytearray(8 * _PERIODS)).cast("q")
        self._told, self._unsent = b"", order.stdin
        self._watched = {0: self._control, wake.descriptor: self._woken}
        if child.marks is not None:
            self._watched.update({child.marks: self._marked, child.output: self._printed})
            self._send()
        self._reading, self._sending = [], []

    def run(self, early):
        """Follow the child until it has ended, or nothing is left to look at. early: the bytes on standard input behind the order. Raises Stopped."""
        wait = select.select
        self._obey(early)
        self._choose()
        while not self._over:
            wait_ns = min(self._next_ns, self._tick_ns) - _clock()
            ready, writable, _ = wait(self._reading, self._sending, (), wait_ns / 1e9 if wait_ns > 0 else 0)
            if ready or writable:
                self._serve(ready, writable)
            now = _clock()
            if now >= self._next_ns:
                self._poll(now)
            if now >= self._tick_ns:
                self._tick(now)
        for _ in range(_LAST_READS):
            self._serve([descriptor for descriptor in (self._child.marks, self._child.output) if descriptor in self._watched], ())
        self._output.look()
        self._processes.poll()

    def finish(self):
        """Write what is known at the end."""
        self._processes.poll()
        self._tell_left_out()
        self._devices.tell_left_out()
        self._output.tell_tail()
        newest = sorted(self._newest[: min(self._periods, _PERIODS)])
        self._writer.add(b"periods ", self._periods, *[newest[(len(newest) - 1) * part // 100] for part in range(101 if newest else 0)])

    def _serve(self, ready, writable):
        for descriptor in ready:
            if descriptor in self._watched:
                self._watched[descriptor]()
        if self._child.input in writable:
            self._send()
        if 1 in writable:
            self._writer.flush()
        self._choose()

    def _choose(self):
        """Choose the descriptors to wait for. Where the reader takes nothing, what the child writes waits too."""
        self._reading = [0, self._wake.descriptor] if self._writer.behind else list(self._watched)
        self._sending = [1] if self._writer.blocked else []
        if self._unsent and self._child.input is not None:
            self._sending.append(self._child.input)

    # -- polls

    def _poll(self, now):
        if self._holds.active or self._writer.behind:
            self._wait(now)
            return
        self._read(now)
        self._devices.step(now)
        self._marks.stop_large()
        self._next_ns += self._period
        if self._next_ns <= now:
            self._next_ns = now + self._period
        if self._polled_ns and self._period == self._order.interval:
            self._newest[self._periods % _PERIODS] = now - self._polled_ns
            self._periods += 1
        self._polled_ns, self._held_ns = now, 0

    def _wait(self, now):
        """Leave out a poll: nobody takes what was read, or a process stands still, whose figures move where it is looked at."""
        self._polled_ns = 0
        if self._holds.active:
            self._end_ns += now - (self._held_ns or now)
            self._holds.step(now)
            self._held_ns = now if self._holds.active else 0
            self._next_ns = now + _HOLD_NS
        else:
            self._left_out += 1
            self._next_ns = now + self._period

    def _read(self, now):
        processes = self._processes
        if processes.tree:
            processes.list_children()
        self._looks.turn(now)
        processes.poll()
        if processes.tree and len(processes.living) > 1:
            self._rounds.step(now)
            self._mappings.step(now)
        if self._child.log is not None:
            self._output.take(self._child.log.read())
        if self._order.pid and not processes.living:
            self._over = True

    def _tick(self, now):
        self._processes.tell_poll()
        self._output.look()
        if not self._writer.behind:
            self.tell_group()
            self._tell_left_out()
        self._writer.flush()
        self._choose()
        if self._order.silence and now - self._heard_ns > self._order.silence:
            raise Stopped
        if now >= self._end_ns:
            self._time_out(now)
        self._tick_ns = min(now + _TICK_NS, self._end_ns)

    def _tell_left_out(self):
        if self._left_out:
            self._writer.tell(b"fault", b"behind", self._left_out)
            self._left_out = 0

    # -- what memprof says

    def _control(self):
        text = os.read(0, 4096)
        if not text:
            raise Stopped
        self._heard_ns = _clock()
        self._obey(text)

    def _obey(self, text):
        *lines, self._told = (self._told + text).split(b"\n")
        for line in lines:
            name, _, value = line.partition(b" ")
            number = int(value) if value.isdigit() else 0
            if name == b"look":
                self.look(value)
            elif name in (b"leave", b"end"):
                self._end_ns, self._tick_ns = min(self._end_ns, _clock() + number), 0
                if name == b"end":
                    self._end()
            elif name in (b"stop", b"continue") and not self._order.pid:
                (self._holds.stop(number, b"told") if name == b"stop" else self._holds.free(number))
                self._next_ns = 0

    def _end(self):
        if self._order.pid:
            self._over = True
        else:
            self._ends = True
            self.reaper.send(signal.SIGTERM)

    def look(self, text):
        """Look at the program, and let its high-water mark begin again."""
        self._looks.look(self._processes.main(self._child.pid), text, not self._order.pid, True)

    def tell_group(self):
        """Write the figures of the control group that is looked at, or of the child's own, if there is one."""
        if self._processes.group is not None:
            self._processes.group.tell()
        if self._child.group is not None:
            self._child.group.tell(self._writer, reset=None)

    # -- what the child reads and writes

    def _send(self):
        """Write the child's input, as far as the child reads; when all is written, the input ends."""
        try:
            self._unsent = self._unsent[os.write(self._child.input, self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent = b""
        if not self._unsent:
            os.close(self._child.input)

    def _marked(self):
        data = _take(self._child.marks)  # once only: a program that writes without end must not keep the loop from its other work
        if data == b"":
            del self._watched[self._child.marks]
            self._marks.close()
        self._marks.take(data or b"")
        if self._period != self._marks.period:
            self._period, self._next_ns, self._polled_ns = self._marks.period, 0, 0
        if self._holds.active:
            self._next_ns = 0

    def _printed(self):
        now = _clock()
        if now >= self._next_ns and not self._over:  # what is printed belongs to the memory of its time, not of the poll before
            self._poll(now)
        data = _take(self._child.output)
        if data == b"":
            del self._watched[self._child.output]
        self._output.take(data or b"")
        self._tick_ns = min(self._tick_ns, self._output.look_ns)

    # -- how it ends

    def _woken(self):
        if self._wake.clear():
            raise Stopped
        if not self._order.pid:
            self.reaper.reap()
            self._over = self._over or self.reaper.status is not None

    def _time_out(self, now):
        self._end_ns = NEVER
        asks = self._order.grace and not self.limited and not self._ends
        if self._order.pid:
            self._over = True
            return
        if not self._ends:
            self.limited = True
            self._writer.tell(b"limit", b"asked" if asks else b"killed")
            self._writer.flush()
        if asks:
            self._end_ns = now + self._order.grace
            for pid in self._to_be_asked():
                send(pid, signal.SIGTERM)  # a profiler writes its file at SIGTERM, and none at SIGKILL
        else:
            self.reaper.kill()
            self._over = True

    def _to_be_asked(self):
        """The program; if that is a profiler's script, its children, but not the programs that write its file."""
        root, main = self._child.pid, self._processes.main(self._child.pid)
        children = procfs.children(root) if self._order.writer and main == root else []
        return [pid for pid in children if procfs.name(pid) not in self._order.writer] or [main]


def _take(descriptor):
    """The bytes that can be read now: None if there are none yet, b"" at the end."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None
    except OSError:  # EIO of a terminal: nobody has its other side open
        return b""
