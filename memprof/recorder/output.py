"""The child's output, or new lines in the log of a process that already runs: written at once if that is wanted, with a look after it."""

import time

from .writer import escaped

NEVER = 1 << 62
_LOOK_NS = 1_000_000  # between two looks
_TAIL = 4096

_clock = time.monotonic_ns


class Output:
    """look_ns: when the look after the newest piece is due, NEVER if it has been. root: the process that was started, or is looked at."""

    def __init__(self, order, writer, processes, looks, root):
        self._order, self._writer, self._processes, self._looks, self._root = order, writer, processes, looks, root
        self._size, self._tail = 0, b""
        self._looked_ns, self.look_ns = 0, NEVER

    def take(self, data):
        """Take a piece."""
        self._size += len(data)
        self._tail = (self._tail + data)[-_TAIL:]
        if not data or not self._order.output:
            return
        self._processes.tell_poll()
        self._writer.tell(b"output", escaped(data))
        self.look_ns = self._looked_ns + _LOOK_NS
        if _clock() >= self.look_ns:
            self.look()
        elif self._order.eager:
            self._writer.flush()

    def look(self):
        """Look at the program, if that is owed."""
        if self.look_ns != NEVER:
            self._looked_ns, self.look_ns = _clock(), NEVER
            self._looks.look(self._processes.main(self._root), b"output", self._order.reset and not self._order.pid, False)

    def tell_tail(self):
        """Write how much there was, and the last of it."""
        self._writer.tell(b"tail", self._size, escaped(self._tail))
