"""Facts about a process of this machine."""

from __future__ import annotations

from typing import Any

from ..recorder import procfs as _procfs

procfs: Any = _procfs  # it has no annotations


def started(pid: int) -> int | None:
    """When a process was started, in clock ticks since the machine's start, or None if it has ended."""
    stat = procfs.stat(pid)
    return None if stat is None or stat.over else int(stat.started)


def name(pid: int) -> str:
    """The name of a process, at most 15 characters, empty if there is no such process."""
    stat = procfs.stat(pid)
    return "" if stat is None else str(stat.name.decode("utf-8", "replace"))


def has_memory(pid: int) -> bool:
    """Whether a process has memory to look at: not one of the kernel's own, and not one that has ended."""
    try:
        statm = procfs.Statm(pid)
    except OSError:
        return False
    try:
        return bool(statm.read())
    finally:
        statm.close()
