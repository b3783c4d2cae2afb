"""A control group with a memory limit for one child: made before it starts, joined before its exec, removed when it has ended.

The probe makes and removes it, because the probe outlives memprof when that is killed.

    version 1 (Documentation/admin-guide/cgroup-v1/memory.rst)   memory.limit_in_bytes, memory.max_usage_in_bytes, memory.oom_control
    version 2 (Documentation/admin-guide/cgroup-v2.rst)          memory.max, memory.swap.max, memory.peak, memory.events
    both                                                         memory.stat
"""

import os
import time

_REMOVE_FOR_S = 2.0


class Group:
    """The folder of a control group. settings: (file, text) pairs to write into it, in this order; a file that is missing is left out.

    Raises OSError if it cannot be made.
    """

    def __init__(self, path, settings):
        self._path = path
        os.mkdir(path)
        try:
            for name, value in settings:
                if os.path.exists(os.path.join(path, name)):
                    _write(os.path.join(path, name), value)
        except OSError:
            self.remove()
            raise

    def join(self):
        """Move this process into it; for a child between fork and exec."""
        _write(os.path.join(self._path, "cgroup.procs"), "0")

    def figures(self):
        """{"peak_bytes", "oom_kills"}: the most that was charged to the group, and how many of its processes were killed for want of memory."""
        peak = number(self._path, "memory.max_usage_in_bytes")
        if peak is None:
            peak = number(self._path, "memory.peak")
        kills = field(self._path, "memory.oom_control", "oom_kill")
        if kills is None:
            kills = field(self._path, "memory.events", "oom_kill")
        return {"peak_bytes": peak, "oom_kills": kills}

    def refaults(self):
        """How many pages of files were read in again soon after they had been dropped, so far; None where the kernel does not tell."""
        known = field(self._path, "memory.stat", "workingset_refault_file")
        return field(self._path, "memory.stat", "workingset_refault") if known is None else known  # before 5.9, of files alone

    def remove(self):
        """Remove the group. Its processes have ended; the kernel lets go of them a moment later."""
        end = time.monotonic() + _REMOVE_FOR_S
        while True:
            try:
                os.rmdir(self._path)
                return
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > end:
                    return  # the next memprof finds its name and removes it
                time.sleep(0.005)


def _write(path, text):
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(folder: "str | os.PathLike[str]", name: str) -> "str | None":
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return file.read()
    except OSError:
        return None


def number(folder: "str | os.PathLike[str]", name: str) -> "int | None":
    """The number in a file of a group; None where the kernel does not tell."""
    text = _read(folder, name)
    return int(text) if text is not None and text.strip().isdigit() else None


def field(folder: "str | os.PathLike[str]", name: str, field: str) -> "int | None":
    """The number beside a word in a file of a group, as memory.stat has them; None where the kernel does not tell."""
    for line in (_read(folder, name) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == field:
            return int(words[1])
    return None
