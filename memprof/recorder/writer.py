"""Writes the lines of a recording to standard output, many at once, and never waits for the reader as long as the child runs.

Standard output may be shared with a shell, so it stays blocking. Where select says that a pipe can be written, it has room for PIPE_BUF bytes.
"""

import os
import select
import time

_PIECE = 4096  # PIPE_BUF
_BATCH, _MOST = 32 << 10, 8 << 20

_clock = time.monotonic_ns


def escaped(text):
    """A text as a line of a recording holds it."""
    return text.replace(b"\\", b"\\\\").replace(b"\n", b"\\n") if b"\\" in text or b"\n" in text else text


class LineWriter:
    """blocked: standard output had no room for some lines when it was last asked. behind: so much waits that no more should be read of anything."""

    def __init__(self):
        self._waiting = bytearray()
        self._torn = self.blocked = self.behind = False

    def tell(self, kind, *fields):
        """Add an event of now. fields: numbers and bytes."""
        self.add(b"%s %d " % (kind, _clock()), *fields)

    def tell_since(self, kind, begin_ns, *fields):
        """Add a reading that began then and has just ended."""
        self.add(b"%s %d %d " % (kind, begin_ns, _clock() - begin_ns), *fields)

    def add(self, head, *fields):
        """Add a line. head: its begin, with a space before the fields."""
        self._waiting += head
        self._waiting += b" ".join([field if isinstance(field, bytes) else b"%d" % field for field in fields])
        self._waiting += b"\n"
        if len(self._waiting) >= _BATCH:
            self.behind = len(self._waiting) > _MOST
            if not self.blocked:
                self.flush()

    def flush(self):
        """Write as much as standard output takes now."""
        while self._waiting and select.select((), (1,), (), 0)[1]:
            self._write()
        self.blocked, self.behind = bool(self._waiting), len(self._waiting) > _MOST

    def finish(self, others, patience_ns):
        """Write all, however long the reader takes, but not longer than patience_ns without a sign (0: for ever); whether all was written.

        others: by descriptor, what is called when it can be read, and answers whether nobody wants the rest.
        """
        while self._waiting:
            ready, writable, _ = select.select(list(others), (1,), (), patience_ns / 1e9 if patience_ns else None)
            if any(others[descriptor]() for descriptor in ready) or not ready + writable:
                return False
            if writable:
                self._write()
        return not self._torn

    def _write(self):
        written = len(self._waiting)
        try:
            if not self._torn:
                written = os.write(1, self._waiting[:_PIECE])
        except OSError:
            self._torn = True  # nobody will ever read it; the child goes on until somebody says otherwise
        del self._waiting[:written]
