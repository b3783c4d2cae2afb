"""Folders as control groups show them, of either version and of machines with both: the files that memprof reads, in their documented forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

MIB = 1 << 20
NO_LIMIT = 9223372036854771712  # version 1's for none

# /proc/self/cgroup, and /proc/self/mountinfo from its third field on, by what is mounted.
_MOUNTS = {
    1: ("4:memory:/\n3:cpu:/\n", ("/sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", "/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory")),
    2: ("0::/\n", ("/sys/fs/cgroup rw - cgroup2 cgroup2 rw",)),
}
_BOTH = (_MOUNTS[1][0] + _MOUNTS[2][0], (*_MOUNTS[1][1], "/sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"))


class GroupTree:
    """A machine's files under `root`. versions: the versions that are mounted; with both, memory is counted by version 1."""

    def __init__(self, root: Path, versions: Sequence[int] = (2,)) -> None:
        self.root, self.version = root, min(versions)
        own, mounts = _BOTH if len(versions) == 2 else _MOUNTS[self.version]
        self.write("proc/self/cgroup", own)
        self.write("proc/self/mountinfo", "".join(f"{20 + at} 1 0:{at} / {mount}\n" for at, mount in enumerate(mounts)))
        self.mount = root / ("sys/fs/cgroup/memory" if self.version == 1 else "sys/fs/cgroup")
        self.write(f"{self.mount.relative_to(root)}/cgroup.procs", "1\n")
        if self.version == 2:
            self.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory pids\n")
        if len(versions) == 2:
            self.write("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n")

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = self.root / "draft"
        draft.write_text(text)
        draft.rename(file)  # a reader sees the old file or the new one
        return file

    def group(self, path: str, pids: Sequence[int] = (), limit: int | None = None, **sizes: int) -> Path:
        """A group with these processes and these figures in MiB; see `files`."""
        folder = self.mount / path.lstrip("/")
        for name, text in {"cgroup.procs": "".join(f"{pid}\n" for pid in pids), **files(self.version, limit, **sizes)}.items():
            self.write(str(folder.relative_to(self.root) / name), text)
        return folder


def files(version: int, limit: int | None = None, **mib: int) -> Mapping[str, str]:
    """The files of a group by name: Documentation/admin-guide/cgroup-v1/memory.rst, and cgroup-v2.rst. limit: in bytes.

    mib: used, peak, inactive, anon, file, kernel, tables, percpu, sockets, swap and, of no size, kills. Version 1 has a peak of the kernel's memory,
    which is 1 MiB more here.
    """
    names = ("used", "peak", "inactive", "anon", "file", "kernel", "tables", "percpu", "sockets", "swap")
    size = {name: mib.get(name, 0) * MIB for name in names}
    kills = mib.get("kills", 0)
    if version == 1:
        rows = {
            "inactive_file": 7,
            "total_cache": size["file"],
            "total_rss": size["anon"],
            "total_rss_huge": 5,
            "total_swap": size["swap"],
            "swap": 3,
        }
        return {
            "memory.usage_in_bytes": f"{size['used']}\n",
            "memory.max_usage_in_bytes": f"{size['peak']}\n",
            "memory.limit_in_bytes": f"{NO_LIMIT if limit is None else limit}\n",
            "memory.kmem.usage_in_bytes": f"{size['kernel']}\n",
            "memory.kmem.max_usage_in_bytes": f"{size['kernel'] + MIB}\n",
            "memory.kmem.tcp.usage_in_bytes": f"{size['sockets']}\n",
            "memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
            "memory.stat": "".join(f"{name} {value}\n" for name, value in {**rows, "total_inactive_file": size["inactive"]}.items()),
        }
    rows = {"anon": size["anon"], "file": size["file"], "kernel": size["kernel"], "kernel_stack": 3, "pagetables": size["tables"]}
    rows |= {"percpu": size["percpu"], "anon_thp": 5, "slab": 9, "inactive_file": size["inactive"], "sock": size["sockets"]}
    return {
        "memory.current": f"{size['used']}\n",
        "memory.peak": f"{size['peak']}\n",
        "memory.swap.current": f"{size['swap']}\n",
        "memory.max": f"{'max' if limit is None else limit}\n",
        "memory.events": f"low 0\nhigh 0\nmax 3\noom 2\noom_kill {kills}\noom_group_kill 0\n",
        "memory.stat": "".join(f"{name} {value}\n" for name, value in rows.items()),
    }
