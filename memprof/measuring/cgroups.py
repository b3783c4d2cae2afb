"""Where this process stands among control groups of memory, and what they limit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


def _read(root: Path, path: str) -> str:
    return (root / path.lstrip("/")).read_text(errors="replace")


def read_or_none(root: Path, path: str) -> str | None:
    """A file's text, None where it does not exist; a file that may not be read raises OSError."""
    try:
        return _read(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return None


@dataclass(frozen=True)
class MemoryGroup:
    """The cgroup with a memory controller that this process is in. limit_bytes: the least of its own and of those above it."""

    version: int
    folder: Path
    limit_bytes: int | None

    @property
    def peak_file(self) -> str:
        """The name of the file with the group's peak."""
        return "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"


def memory_group(root: Path) -> MemoryGroup | None:
    """The memory cgroup of this process, None where no controller is mounted (proc_pid_cgroup(5), proc_pid_mountinfo(5))."""
    places = _mounted_groups(root)
    for line in _read(root, "/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        version = 1 if "memory" in controllers.split(",") else 2 if not controllers else 0
        if version not in places:
            continue
        mounted, place = places[version]
        top = root / place.lstrip("/")
        below = os.path.relpath(path, mounted) if os.path.commonpath([path, mounted]) == mounted else "."
        folder = top / below if (top / below).is_dir() else top
        if version == 1 or "memory" in (read_or_none(folder, "cgroup.controllers") or "").split():
            return MemoryGroup(version, folder, _limit(folder, top, version))
    return None


def _mounted_groups(root: Path) -> dict[int, tuple[str, str]]:
    """Version: (the group that is mounted, where)."""
    found: dict[int, tuple[str, str]] = {}
    for line in _read(root, "/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options, *_) = before.split(), [*after.split(), "", "", ""]
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            found.setdefault(2 if kind == "cgroup2" else 1, (fields[3], fields[4]))
    return found


def _limit(folder: Path, top: Path, version: int) -> int | None:
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    limits = []
    for group in (folder, *folder.parents):
        text = (read_or_none(group, name) or "").strip()
        if text.isdigit() and int(text) < 1 << 60:  # version 1 writes "none" as the largest whole number of pages
            limits.append(int(text))
        if group == top:
            break
    return min(limits, default=None)


def meminfo(root: Path) -> dict[str, int]:
    found = {}
    for line in _read(root, "/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith("kB"):
            found[name] = int(rest.split()[0]) * 1024
    return found


def hierarchies() -> list[tuple[int, Path, Path]]:
    """(version, mount point, this process's own group) of each mounted hierarchy that may limit memory; version 1 first, where it has memory.

    /proc/self/cgroup (cgroups(7)): `ID:CONTROLLERS:PATH`, version 2 with ID 0 and no controllers. /proc/self/mountinfo (proc(5)): the root
    within the file system is the fourth field, the mount point the fifth; after ` - ` the type and, last, the options.
    """
    try:
        memberships = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return []
    found = []
    for fields in mounts:
        kind = fields[fields.index("-") + 1]
        root, mount, options = fields[3], Path(fields[4]), fields[-1].split(",")
        if kind == "cgroup" and "memory" in options:
            found += [(1, mount, _within(mount, root, path)) for _, names, path in memberships if "memory" in names.split(",")]
        elif kind == "cgroup2":
            found += [(2, mount, _within(mount, root, path)) for number, names, path in memberships if number == "0" and not names]
    return sorted(found, key=lambda one: one[0])


def _within(mount: Path, root: str, path: str) -> Path:
    inside = os.path.relpath(path, root)
    return mount if inside.startswith("..") or inside == "." else mount / inside
