"""The log of a process that already runs: what is appended to a file, or comes through a FIFO, from now on.

A file that is cut off, or that another file with new lines replaces, is followed from its beginning, as logs are rotated.
"""

import os
import stat

_READ = 1 << 16  # at each poll


class LogTail:
    """Raises OSError if the file cannot be opened. Its lines until then are from before."""

    def __init__(self, path):
        self._path = path
        self._descriptor = self._open()
        if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def read(self):
        """What has been written since it was read last."""
        try:
            data = os.read(self._descriptor, _READ)
            if not data and self._begins_anew():
                data = b"\n" + os.read(self._descriptor, _READ)  # what was the last line had no end
        except BlockingIOError:
            return b""  # a FIFO that is empty
        return data

    def _open(self):
        return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _begins_anew(self):
        """Whether the log begins again, and stand at its beginning then. A new file counts once it has lines: until then the old one may get more."""
        before = os.fstat(self._descriptor)
        if not stat.S_ISREG(before.st_mode):
            return False
        if before.st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            return True
        try:
            after = os.stat(self._path)
            if os.path.samestat(before, after) or not stat.S_ISREG(after.st_mode) or not after.st_size:
                return False
            descriptor = self._open()
        except OSError:
            return False  # it is moved at this moment, or it is not for us
        os.close(self._descriptor)
        self._descriptor = descriptor
        return True
