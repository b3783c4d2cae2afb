"""How far the kernel's own figures can lie from the truth."""

from __future__ import annotations


def late_by_thread(kernel: str) -> bool:
    """Whether a kernel keeps a part of the memory counters for each thread: before 6.2."""
    version = kernel.split(".")[:2]
    return all(part.isdecimal() for part in version) and tuple(int(part) for part in version) < (6, 2)


def peak_bound(kernel: str, page: int, cpus: int, usable: int, threads: int = 1) -> int:
    """How far a high-water mark can lie from the truth, in bytes, for a process that may run on `usable` of the CPUs.

    Linux 6.2 and later keep a memory counter as a sum and a part for each CPU, and fold a part in once it reaches max(32, 2 x CPUs) pages
    (percpu_counter_batch in lib/percpu_counter.c). Parts are left only on CPUs where the process ran. The resident set is the sum of two
    counters that matter, anonymous and file-backed (a third, shared, moves by a page or two): in 4,000 trials on 2 CPUs the mark was up to 73 pages
    low, where one counter allows 64.

    Earlier kernels keep a part for each thread, and fold it in after 64 faults (TASK_RSS_EVENTS_THRESH in mm/memory.c). A fault in a mapped file
    maps up to 64 KiB around it (fault_around_bytes), all of it counted late. On Linux 6.1, status and the mark were up to 67 pages per thread low
    where threads touched anonymous memory, and 993 where they touched mapped files. threads: the most that the process had.
    """
    if late_by_thread(kernel):
        return 67 * max(page, 64 << 10) * max(1, threads)
    return 2 * max(32, 2 * cpus) * usable * page
