"""Facts about a process of this machine, and what the kernel starts for a script."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ..recorder import procfs as _procfs

procfs: Any = _procfs  # it has no annotations
_SHEBANG_BYTES = 256  # as much of the line as Linux reads


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


def is_seen(pid: int) -> bool:
    """Whether this user sees a process of this number."""
    return os.path.exists(f"/proc/{pid}/stat")


def may_be_hidden() -> bool:
    """Whether /proc hides processes of others from some users: hidepid, a word or a number above 0 (proc(5))."""
    return re.search(rb"(?m)^\S+ /proc proc \S*hidepid=[^0o]", procfs.read("/proc/mounts")) is not None


def boot() -> str:
    """This machine's last start, in eight letters."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]


def pid_namespace() -> str:
    """This host and its process numbers: a memprof elsewhere, which may share the cache, cannot be looked up here."""
    return f"{os.uname().nodename}/{os.stat('/proc/self/ns/pid').st_ino}"


def interpreter_words(script: str) -> list[str]:
    """The words of a script's first line (execve(2)): its interpreter and what that gets. None for any other file, or one that cannot be read."""
    try:
        with open(script, "rb") as file:
            first = file.readline(_SHEBANG_BYTES)
    except OSError:
        return []
    return os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
