"""Facts about this machine."""

from __future__ import annotations

import os
from pathlib import Path

from ..base.counter_bounds import peak_bound
from ..records.types import Machine
from .cgroups import sizes_in

_HEAD_BYTES = 2048  # of /proc/cpuinfo: the first CPU is enough; a server's whole file takes milliseconds


def this_machine() -> Machine:
    """This machine, and how far a high-water mark can lie from the truth for a process with one thread that may run where memprof may."""
    system = os.uname()
    sizes = sizes_in(_text("/proc/meminfo"))
    page, cpus, usable = os.sysconf("SC_PAGE_SIZE"), os.cpu_count() or 1, len(os.sched_getaffinity(0))
    return Machine(
        name=system.nodename,
        arch=system.machine,
        kernel=system.release,
        libc=_libc(),
        cpu=_cpu_name(),
        cpus=cpus,
        cpus_usable=usable,
        memory_bytes=sizes.get("MemTotal", 0),
        swap_bytes=sizes.get("SwapTotal", 0),
        page_bytes=page,
        huge_pages=_text("/sys/kernel/mm/transparent_hugepage/enabled").partition("[")[2].partition("]")[0],
        peak_bound_bytes=peak_bound(system.release, page, cpus, usable),
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    for line in head.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware", "Model"):
            return value.strip()
    return ""


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""
