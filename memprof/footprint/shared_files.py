"""The pages of a child's files that other processes keep in the page cache. A control group is charged for the pages that its own processes bring
in, so a limit that works beside these processes may be too small without them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil
from msgspec import Struct

from ..base import mappings, processes
from ..base.page_cache import kept_bytes

_NAMED = 3


class HeldFiles(Struct, frozen=True):
    """The most that others hold of the files that a child uses, in bytes, and the names and numbers of the processes that hold most of them.

    bytes: of each file no more than the child had of it, so it is an upper bound: the pages that others hold may be others than the child's.
    """

    bytes: int = 0
    holders: tuple[str, ...] = ()


def used(pid: int) -> dict[str, int]:
    """The bytes of each file that a process has mapped and resident, as the page cache holds them: without pages that it has copied."""
    sizes = mappings.by_file(_mappings(pid, "smaps"), lambda each: each.rss - each.anonymous)
    return {path: size for path, size in sizes.items() if os.path.isfile(path)}


def held(files: Mapping[str, int]) -> HeldFiles:
    """Drop the page cache of files, and see how much of it stays because other processes have it mapped. files: the bytes that the child had of each,
    and which no child has any more."""
    kept = {path: size for path, used_bytes in files.items() if (size := min(used_bytes, kept_bytes(path)))}
    sizes: dict[str, int] = {}
    for pid in psutil.pids() if kept else ():
        if pid != os.getpid() and (shared := sum(kept[path] for path in _mapped(pid) & kept.keys())):
            sizes[f"{processes.name(pid)} {pid}"] = shared
    return HeldFiles(sum(kept.values()), tuple(sorted(sizes, key=lambda name: -sizes[name])[:_NAMED]))


def _mapped(pid: int) -> set[str]:
    """The files that a process maps."""
    return {each.path for each in _mappings(pid, "maps") if each.path.startswith("/")}


def _mappings(pid: int, name: str) -> list[mappings.Mapping]:
    """The mappings of a process by that file of /proc, none where it may not be read."""
    try:
        return mappings.parse(Path(f"/proc/{pid}/{name}").read_text(errors="surrogateescape"))
    except OSError:
        return []
