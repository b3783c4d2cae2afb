"""This process's place among control groups of memory, and their limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

_ROOT = Path("/")


def _read(root: Path, path: str) -> str:
    return (root / path.lstrip("/")).read_text(errors="replace")


def read_or_none(root: Path, path: str) -> str | None:
    """A file's text, None where it does not exist; a file that may not be read raises OSError."""
    try:
        return _read(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return None


class Hierarchy(NamedTuple):
    """A mounted hierarchy of control groups that may limit memory: its version, where it is mounted, and this process's own group in it."""

    version: int
    mount: Path
    own: Path


def hierarchies(root: Path = _ROOT) -> list[Hierarchy]:
    """The hierarchies that may limit memory, version 1 first. Raises OSError if /proc does not tell.

    /proc/self/cgroup (cgroups(7)): `ID:CONTROLLERS:PATH`, version 2 with ID 0 and no controllers. /proc/self/mountinfo (proc(5)): the root
    within the file system is the fourth field, the mount point the fifth; after ` - ` the type, the source and the options.
    """
    groups: dict[int, str] = {}
    for line in _read(root, "/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            groups[1 if controllers else 2] = path
    hierarchies = []
    for line in _read(root, "/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, *_, options) = before.split(), after.split()
        version = 2 if kind == "cgroup2" else 1 if kind == "cgroup" and "memory" in options.split(",") else 0
        if version in groups:
            mount = root / fields[4].lstrip("/")
            hierarchies.append(Hierarchy(version, mount, _within(mount, fields[3], groups[version])))
    return sorted(hierarchies, key=lambda hierarchy: hierarchy.version)


def _within(mount: Path, top: str, path: str) -> Path:
    """A group's folder below the mount of `top`. A container may see no more than the mount itself."""
    inside = os.path.relpath(path, top)
    return mount if inside.split("/", 1)[0] in ("..", ".") else mount / inside


class GroupFiles(Struct, frozen=True):
    """The files of a memory control group: its limit, with the word for none, and what its pages are now and were at most, in bytes.

    cached: the row of memory.stat with pages of files, shared memory among them. swap: the file that keeps its pages out of swap by a 0.
    """

    limit: str
    none: str
    now: str
    peak: str
    cached: str
    swap: str


# By the version of control groups.
GROUP_FILES = {
    1: GroupFiles("memory.limit_in_bytes", "-1", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "cache", "memory.swappiness"),
    2: GroupFiles("memory.max", "max", "memory.current", "memory.peak", "file", "memory.swap.max"),
}


class MemoryGroup(Struct, frozen=True):
    """The cgroup with a memory controller that this process is in. limit_bytes: the least limit of this group and of those above it."""

    version: int
    folder: Path
    limit_bytes: int | None

    @property
    def peak_file(self) -> str:
        """The name of the file with the group's peak."""
        return GROUP_FILES[self.version].peak


def memory_group(root: Path = _ROOT) -> MemoryGroup | None:
    """The memory cgroup of this process, None if no controller is mounted. Raises OSError as `hierarchies` does."""
    for version, mount, own in hierarchies(root):
        folder = own if own.is_dir() else mount
        if version == 1 or "memory" in (read_or_none(folder, "cgroup.controllers") or "").split():
            return MemoryGroup(version, folder, _limit(folder, mount, version))
    return None


def _limit(folder: Path, top: Path, version: int) -> int | None:
    limits = []
    for group in (folder, *folder.parents):
        text = (read_or_none(group, GROUP_FILES[version].limit) or "").strip()
        if text.isdigit() and int(text) < 1 << 60:  # version 1 writes "none" as the largest whole number of pages
            limits.append(int(text))
        if group == top:
            break
    return min(limits, default=None)


def meminfo(root: Path) -> dict[str, int]:
    """The sizes of /proc/meminfo in bytes. Raises OSError."""
    return sizes_in(_read(root, "/proc/meminfo"))


def sizes_in(text: str) -> dict[str, int]:
    """The rows of a file of /proc that are sizes, in bytes."""
    rows = (line.partition(":") for line in text.splitlines())
    return {name: int(value.split()[0]) * 1024 for name, _, value in rows if value.endswith("kB")}
