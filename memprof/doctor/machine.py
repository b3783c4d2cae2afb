"""The machine and how busy it is: processors, emulation, load, memory, swap, huge pages."""

from __future__ import annotations

import os
from pathlib import Path

from ..base.units import format_bound, format_bytes
from ..campaign.campaign import BUSY_PERCENT
from ..places.cgroups import meminfo, read_or_none
from ..places.place import Place
from .checks import MIB, Finding
from .kernel import HIDDEN, kernel_memory_shown


def processors(cpus: int, usable: int, bound: int, by_thread: bool) -> Finding:
    """CPUs, and the bound of every peak in bytes; by_thread: it is that of each thread."""
    facts = f"{usable} of {cpus} usable" if usable != cpus else f"{cpus}"
    each = " for each thread" if by_thread else ""
    meaning = f"peaks are exact to {format_bound(bound)}{each}; a runtime that uses all {usable} is not polled in timed iterations"
    return "ok" if bound <= 4 * MIB and usable == cpus else "limited", facts, meaning


def emulation(place: Place) -> Finding:
    """Whether programs there are translated by QEMU in its user mode, as in a container for another architecture.

    QEMU answers a process that asks for its own /proc/PID/exe with the program. Another process sees what the kernel runs: the translator. So a
    shell's child asks about the shell, which must not become that child.
    """
    program = os.path.basename(place.run(["sh", "-c", "readlink /proc/$$/exe; :"], 20).stdout.decode("utf-8", "replace").strip())
    if not program:
        return "unknown", "is not known (readlink prints nothing)", ""
    if not program.startswith("qemu-"):
        return "ok", "none", "memory is the measured process's own"
    return "limited", f"QEMU's user mode ({program})", "figures include the translator's own memory, and the code that it has translated"


def load(busy: float) -> Finding:
    """How busy the machine is, in percent of all CPUs."""
    facts = f"{busy:.0f}% of the CPUs are busy"
    if busy > BUSY_PERCENT:
        return "limited", facts, "times will be too long; peaks do not suffer"
    return "ok", facts, "times are the measured process's own"


def memory(root: Path) -> Finding:
    """Memory that is free or can be freed without swapping."""
    info = meminfo(root)
    free, total = info["MemAvailable"], info["MemTotal"]
    facts = f"{format_bytes(free)} of {format_bytes(total)} free"
    if free < total // 4:
        return "limited", facts, "a model that needs more is swapped or killed, and a cache kept warm is soon cold"
    return "ok", facts, "a model that needs more is swapped or killed"


def swap(root: Path) -> Finding:
    """Swap, how much of it is in use, and whether it is compressed memory (zram), by the devices in /proc/swaps."""
    info = meminfo(root)
    total, used = info["SwapTotal"], info["SwapTotal"] - info["SwapFree"]
    if total == 0:
        return "ok", "none", "nothing leaves the resident set but by being freed"
    devices = (read_or_none(root, "/proc/swaps") or "").splitlines()[1:]
    zram = f", zram {'alone' if all('zram' in line for line in devices) else 'among it'}" if any("zram" in line for line in devices) else ""
    facts = f"{format_bytes(used)} of {format_bytes(total)} used{zram}"
    meaning = (
        "swapped pages are missing in RSS: such peaks have a ≥, and the peak of RSS and swap beside them; --no-swap keeps a run out of it"
    )
    return ("limited" if used > total // 100 else "ok"), facts, meaning


def huge_pages(root: Path) -> Finding:
    """Transparent huge pages for anonymous memory (Documentation/admin-guide/mm/transhuge.rst)."""
    text = read_or_none(root, "/sys/kernel/mm/transparent_hugepage/enabled")
    if text is None and not kernel_memory_shown(root):
        return HIDDEN
    if text is None:
        return "ok", "not in this kernel", "a touched byte costs one page"
    chosen = text.partition("[")[2].partition("]")[0]
    size = format_bytes(int(read_or_none(root, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") or 2 * MIB))
    if chosen == "always":
        return "limited", "always", f"a touched byte can cost {size}: figures are higher and vary more than with never or madvise"
    if chosen == "madvise":
        return "ok", "madvise", f"a touched byte costs one page, or {size} where a runtime or its allocator asks for that"
    if chosen == "never":
        return "ok", "never", "a touched byte costs one page"
    return "unknown", f"cannot be told ({text.strip()[:40]!r})", ""
