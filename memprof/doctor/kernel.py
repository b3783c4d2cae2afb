"""The kernel: counters, control groups, soft-dirty bits, idle pages, pressure."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from ..base.errors import os_reason
from ..base.units import format_bytes
from ..places.cgroups import MemoryGroup, memory_group, read_or_none
from .checks import Finding


def version_of(release: str) -> tuple[int, ...]:
    """The first two numbers of a kernel's release, fewer where it has no more."""
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


def counters(release: str) -> Finding:
    """How exactly the kernel of that release keeps a process's memory counters, which statm and status show.

    6.17 made statm and status sum all parts (and some stable kernels took that over). 6.2 replaced the counters of each thread, folded in every
    64 faults, by counters of each CPU (mm/memory.c, lib/percpu_counter.c). See peak_bound of memprof.base.counter_bounds.
    """
    version = version_of(release)
    if not version:
        return "unknown", f"cannot be told (kernel {release})", ""
    if version >= (6, 17):
        return "ok", f"Linux {release}: exact sums", "samples and ends of phases are exact; only peaks are bounded"
    if version >= (6, 2):
        return "limited", f"Linux {release}: parts of each CPU are added late", "samples and ends of phases have the bound of peaks"
    return (
        "limited",
        f"Linux {release}: parts of each thread are added late",
        "samples and peaks can lack 0.3 MiB of anonymous and 4 MiB of file-backed memory for each thread",
    )


def control_group(root: Path) -> Finding:
    """The memory cgroup: version, limit, whether a group can be made, and whether a peak can be reset (tried on a new, empty group)."""
    group = memory_group(root)
    if group is None:
        return "missing", "no memory controller", "memory of a whole tree of processes, page cache included, has no figure"
    limit = f"limit {format_bytes(group.limit_bytes)}" if group.limit_bytes is not None else "no limit"
    can_make, resettable = _tried_group(group)
    peak = {True: "peak can be reset", False: "peak cannot be reset", None: "peak not tried"}[resettable]
    facts = f"v{group.version}, {limit}, {'groups can be made' if can_make else 'no groups can be made'}, {peak}"
    if can_make and resettable:
        return "ok", facts, "the peak of a tree of processes can be had, with the page cache it brought in"
    return "limited", facts, "no peak for a tree of processes and its page cache, unless a group is made for it elsewhere"


def _tried_group(group: MemoryGroup) -> tuple[bool, bool | None]:
    """Whether a group can be made, and whether its peak can be reset; None for a peak that could not be tried."""
    probe = group.folder / f"memprof-doctor-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        file = group.folder / group.peak_file
        return False, os.access(file, os.W_OK) if file.exists() else None
    try:
        return True, _resets(probe / group.peak_file)
    finally:
        with suppress(OSError):
            probe.rmdir()


def _resets(file: Path) -> bool | None:
    try:
        with file.open("r+b", buffering=0) as opened:  # version 2: for this descriptor alone, from Linux 6.12
            opened.write(b"0")
    except FileNotFoundError:
        return None
    except OSError:
        return False
    return True


def soft_dirty() -> Finding:
    """Whether the kernel marks written pages, tried on a page of this process (Documentation/admin-guide/mm/soft-dirty.rst)."""
    page = mmap.mmap(-1, mmap.PAGESIZE)
    view = ctypes.c_char.from_buffer(page)
    address = ctypes.addressof(view)
    del view
    page[0] = 1
    with open("/proc/self/clear_refs", "wb", buffering=0) as file:
        file.write(b"4")
    before = _is_soft_dirty(address)
    page[0] = 2
    after = _is_soft_dirty(address)
    page.close()
    if after and not before:
        return "ok", "kept by this kernel", "the pages that a phase wrote can be counted"
    return "missing", "not kept by this kernel", "the pages that a phase wrote cannot be counted, only those it touched (Referenced)"


def _is_soft_dirty(address: int) -> bool:
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(address // mmap.PAGESIZE * 8)
        return bool(int.from_bytes(file.read(8), sys.byteorder) >> 55 & 1)


# The finding of a look below /sys/kernel/mm where a container hides that.
HIDDEN: Finding = ("unknown", "cannot be told (no /sys/kernel/mm)", "")


def kernel_memory_shown(root: Path) -> bool:
    """Whether /sys/kernel/mm is there."""
    return (root / "sys/kernel/mm").is_dir()


def idle_pages(root: Path) -> Finding:
    """Idle page tracking (Documentation/admin-guide/mm/idle_page_tracking.rst)."""
    file = root / "sys/kernel/mm/page_idle/bitmap"
    if not kernel_memory_shown(root):
        return HIDDEN
    if not file.exists():
        return "missing", "not in this kernel", "pages touched are counted with clear_refs 1 alone"
    if not os.access(file, os.R_OK | os.W_OK):
        return "limited", "for root only", "pages touched are counted with clear_refs 1 alone"
    return "ok", "there", "pages touched can be counted in the page cache too, mapped or not"


def pressure(root: Path) -> Finding:
    """Pressure stall information; some kernels have the file and refuse to read it."""
    try:
        text = read_or_none(root, "/proc/pressure/memory")
    except OSError as error:
        return "missing", f"turned off ({os_reason(error)})", "waiting for memory is not told from computing"
    if text is None:
        return "missing", "not in this kernel", "waiting for memory is not told from computing"
    some = re.search(r"some avg10=(\S+)", text)
    if some is not None and float(some[1]) > 0:
        return (
            "limited",
            f"processes wait for memory {some[1]}% of the time",
            "times are too long, and pages are taken from the measured process",
        )
    return "ok", "there, nothing waits for memory", "memory is not scarce now"
