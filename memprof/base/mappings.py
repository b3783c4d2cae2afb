"""The mappings of a process, as the kernel lists them: the text of /proc/PID/smaps, or of /proc/PID/maps, which has no sizes (proc_pid_smaps(5))."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Mapping(NamedTuple):
    """One mapping of a process: a line of the text and the fields below it, in bytes."""

    start: int
    end: int
    perms: str
    offset: int
    device: str
    inode: int
    path: str
    rss: int = 0
    anonymous: int = 0
    private_dirty: int = 0
    shared_clean: int = 0
    shared_dirty: int = 0
    swap: int = 0
    huge: int = 0
    flags: str = ""

    @property
    def is_file(self) -> bool:
        """Whether a file on a disk lies behind it. Shared memory has none."""
        return self.inode != 0 and not self.is_shared_memory

    @property
    def is_shared_memory(self) -> bool:
        """Whether it is memory that processes share and no file keeps."""
        return self.path.startswith(("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"))

    @property
    def is_shared(self) -> bool:
        """Whether writes to it are seen by others."""
        return "s" in self.perms


_FIELDS = {
    "Rss": "rss",
    "Anonymous": "anonymous",
    "Private_Dirty": "private_dirty",
    "Shared_Clean": "shared_clean",
    "Shared_Dirty": "shared_dirty",
    "Swap": "swap",
    "AnonHugePages": "huge",
}


def parse(text: str) -> list[Mapping]:
    """The mappings in the text of either file, by address."""
    found: list[tuple[tuple[int, int, str, int, str, int, str], dict[str, Any]]] = []
    for line in text.split("\n"):  # in a path the kernel escapes this alone: splitlines would break one with a form feed
        name, _, value = line.partition(":")
        if name in _FIELDS:
            found[-1][1][_FIELDS[name]] = int(value.split()[0]) * 1024
        elif name == "VmFlags":
            found[-1][1]["flags"] = value.strip()
        elif " " in name:  # 7f0000000000-7f0000021000 rw-p 00000000 00:00 0   /path
            where, perms, offset, device, inode, *path = line.split(None, 5)
            start, _, end = where.partition("-")
            head = (int(start, 16), int(end, 16), perms, int(offset, 16), device, int(inode), path[0] if path else "")
            found.append((head, {}))
    return [Mapping(*head, **figures) for head, figures in found]


def by_file(found: Iterable[Mapping], size: Callable[[Mapping], int]) -> dict[str, int]:
    """A size in bytes of each file, by its path: the sum over its mappings."""
    sizes: dict[str, int] = {}
    for each in found:
        if each.path.startswith("/"):
            sizes[each.path] = sizes.get(each.path, 0) + size(each)
    return sizes
