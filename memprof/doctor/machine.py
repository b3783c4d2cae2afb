"""What this machine is and how busy: processors, load, memory, swap, huge pages."""

from __future__ import annotations

from pathlib import Path

from ..measuring.cgroups import meminfo, read_or_none
from ..units import format_bytes
from .checks import MIB, Finding, mib_up
from .kernel import kernel_memory_shown


def processors(cpus: int, usable: int, bound: int) -> Finding:
    """CPUs, and the bound that their number sets to every peak."""
    found = f"{usable} of {cpus} usable" if usable != cpus else f"{cpus}"
    meaning = f"a high-water mark can be {mib_up(bound)} MiB off; a runtime that uses all {usable} is not polled in timed iterations"
    return "ok" if bound <= 4 * MIB and usable == cpus else "limited", found, meaning


def load(busy: float) -> Finding:
    """How busy the machine is, in percent of all CPUs."""
    found = f"{busy:.0f}% of the CPUs are busy"
    if busy > 25:
        return "limited", found, "times will be too long; peaks do not suffer"
    return "ok", found, "times are the measured process's own"


def memory(root: Path) -> Finding:
    """Memory that can be had without taking it from somebody."""
    found = meminfo(root)
    free, total = found["MemAvailable"], found["MemTotal"]
    words = f"{format_bytes(free)} of {format_bytes(total)} free"
    if free < total // 4:
        return "limited", words, "a model that needs more is swapped or killed, and a cache kept warm is soon cold"
    return "ok", words, "a model that needs more is swapped or killed"


def swap(root: Path) -> Finding:
    """Swap, and how much of it is in use."""
    found = meminfo(root)
    total, used = found["SwapTotal"], found["SwapTotal"] - found["SwapFree"]
    if total == 0:
        return "ok", "none", "nothing leaves the resident set but by being freed"
    words = f"{format_bytes(used)} of {format_bytes(total)} used"
    meaning = "what is swapped out is missing in RSS: see swap_end_bytes"
    return ("limited" if used > total // 100 else "ok"), words, meaning


def huge_pages(root: Path) -> Finding:
    """Transparent huge pages for anonymous memory (Documentation/admin-guide/mm/transhuge.rst)."""
    text = read_or_none(root, "/sys/kernel/mm/transparent_hugepage/enabled")
    if text is None and not kernel_memory_shown(root):
        return "unknown", "cannot be told (no /sys/kernel/mm)", ""
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
