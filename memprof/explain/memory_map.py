"""A process that stands still, looked at from outside: its mappings, which of their pages are present, and the bytes in them.

Looking must not change what is seen: a page that is read through the kernel is faulted in, so only pages that /proc/PID/pagemap calls present
are read, through one buffer that is used again and again. Documents: proc_pid_smaps(5), proc_pid_pagemap(5), process_vm_readv(2).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, MeasurementError
from ..base.mappings import Mapping, parse

PAGE = os.sysconf("SC_PAGE_SIZE")
BUFFER = 2 << 20  # beyond it the caches hold less of it; below it two threads wait for each other's turns at the interpreter
_HUGE = 2 << 20
_OVERLAP = 16  # bytes read twice where a range is split, so that nothing across the seam is missed
_MOST_PARTS = 512  # of one process_vm_readv, below IOV_MAX
_PRESENT, _FILE = np.uint64(1 << 63), np.uint64(1 << 61)
_PAGEMAP_CHUNK = 1 << 16

Addresses = NDArray[np.uint64]


class ProcessEndError(MeasurementError):
    """The process ended while it was looked at."""


class Unreadable(InputError):
    """The kernel does not let this process's memory be read."""


def mappings(pid: int) -> list[Mapping]:
    """The mappings of a process, by address. Raises ProcessEndError, or Unreadable where it belongs to another user."""
    found = parse(_text(pid, "smaps"))
    if not found:
        raise ProcessEndError(f"process {pid} ended while it was looked at")
    return found


def threads_stack_pointers(pid: int) -> list[int]:
    """The stack pointers of a stopped process's threads, as far as the kernel says (/proc/PID/task/TID/syscall: ... sp pc)."""
    pointers = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/syscall", "rb") as file:
                words = file.read().split()
            if len(words) >= 3:
                pointers.append(int(words[-2], 16))
    except (OSError, ValueError):
        pass
    return pointers


class Pages(NamedTuple):
    """The present pages of a process: address, the index of the mapping, and whether a file or shared memory lies behind each; by address."""

    address: Addresses
    mapping: NDArray[np.int32]
    filed: NDArray[np.bool_]

    def ranges(self, chosen: NDArray[np.bool_] | None = None) -> tuple[Addresses, Addresses]:
        """Runs of neighbouring pages as (starts, ends)."""
        address = self.address if chosen is None else self.address[chosen]
        if not len(address):
            return address, address
        breaks = np.flatnonzero(np.diff(address) != PAGE)
        starts = address[np.concatenate(([0], breaks + 1))]
        ends = address[np.concatenate((breaks, [len(address) - 1]))] + np.uint64(PAGE)
        return starts, ends

    def present(self, addresses: Addresses) -> NDArray[np.bool_]:
        """Whether the page that each address lies in is present."""
        if not len(self.address):
            return np.zeros(len(addresses), bool)
        page = addresses & ~np.uint64(PAGE - 1)
        place = np.minimum(np.searchsorted(self.address, page), len(self.address) - 1)
        return np.asarray(self.address[place] == page)

    def resident(self, start: int, end: int) -> int:
        """The bytes of a range that lie in present pages."""
        low = int(np.searchsorted(self.address, np.uint64(start & ~(PAGE - 1))))
        high = int(np.searchsorted(self.address, np.uint64(end)))
        if high <= low:
            return 0
        size = (high - low) * PAGE
        size -= max(0, start - int(self.address[low]))
        return size - max(0, int(self.address[high - 1]) + PAGE - end)


def present_pages(pid: int, mappings: list[Mapping]) -> Pages:
    """Which pages of these mappings are present. A mapping that vanished or that no one may read has none. Raises ProcessEndError or Unreadable."""
    addresses, owners, filed = [], [], []
    descriptor = _open(pid, "pagemap")
    try:
        for index, mapping in enumerate(mappings):
            if mapping.rss and mapping.path not in ("[vvar]", "[vdso]", "[vsyscall]"):
                for start, entries in _pagemap(descriptor, mapping):
                    present = np.flatnonzero(entries & _PRESENT)
                    addresses.append(present.astype(np.uint64) * np.uint64(PAGE) + np.uint64(start))
                    filed.append((entries[present] & _FILE) != 0)
                    owners.append(np.full(len(present), index, np.int32))
    finally:
        os.close(descriptor)
    if not addresses:
        return Pages(np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros(0, bool))
    return Pages(np.concatenate(addresses), np.concatenate(owners), np.concatenate(filed))


def _pagemap(descriptor: int, mapping: Mapping) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    # A reserved terabyte has two gigabytes of pagemap: stop once all bytes that smaps calls resident were counted.
    present_bytes, start = 0, mapping.start
    while start < mapping.end and present_bytes < mapping.rss:
        count = min(_PAGEMAP_CHUNK, (mapping.end - start) // PAGE)
        try:
            data = os.pread(descriptor, 8 * count, start // PAGE * 8)
        except OSError:
            return
        entries = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
        if not len(entries):
            return
        present_bytes += int(np.count_nonzero(entries & _PRESENT)) * PAGE
        yield start, entries
        start += len(entries) * PAGE


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))  # struct iovec


class MemoryPiece(NamedTuple):
    """The bytes of one read: `data` holds several ranges, the i-th from `offsets[i]` on, read at `addresses[i]`."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    addresses: Addresses

    def address_of(self, positions: NDArray[np.int64]) -> Addresses:
        """The addresses at which positions in `data` were read."""
        if len(self.offsets) == 1:
            return np.asarray(positions.astype(np.uint64) + self.addresses[0])
        part = np.searchsorted(self.offsets, positions, side="right") - 1
        return np.asarray(self.addresses[part] + (positions - self.offsets[part]).astype(np.uint64))


class Memory:
    """Reads the memory of one process through one buffer. bytes: how much was read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.bytes = 0
        self._buffer = _huge_buffer()
        self._local = _Iovec(self._buffer.ctypes.data, BUFFER)
        self._remote = np.zeros((_MOST_PARTS, 2), np.uint64)
        self._call = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._call.restype = ctypes.c_ssize_t
        self._call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong)

    def read(self, starts: Addresses, ends: Addresses) -> Iterator[MemoryPiece]:
        """The bytes of these ranges, in pieces of at most BUFFER bytes, each valid until the next is read. Raises ProcessEndError or Unreadable."""
        for batch in _batches(zip(starts.tolist(), ends.tolist(), strict=True)):
            while batch:
                piece, batch = self._read_batch(batch)
                if piece is not None:
                    yield piece

    def _read_batch(self, batch: list[tuple[int, int]]) -> tuple[MemoryPiece | None, list[tuple[int, int]]]:
        count = len(batch)
        self._remote[:count] = batch
        read_bytes = self._call(self.pid, ctypes.byref(self._local), 1, self._remote.ctypes.data, count, 0)
        reason = ctypes.get_errno() if read_bytes < 0 else 0
        if reason and reason != errno.EFAULT:
            raise _refused(self.pid, reason)
        read_bytes = max(read_bytes, 0)
        self.bytes += read_bytes
        sizes = [size for _, size in batch]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        whole = int(np.searchsorted(offsets, read_bytes, side="right")) - 1
        unread = batch[whole + 1 :]  # the part behind the whole ones could not be read, or not to its end
        if not read_bytes:
            return None, unread
        read = whole + (whole < count and read_bytes > int(offsets[whole]))
        addresses = np.array([begin for begin, _ in batch[:read]], np.uint64)
        return MemoryPiece(self._buffer[:read_bytes], offsets[:read].astype(np.int64), addresses), unread


def _huge_buffer() -> NDArray[np.uint8]:
    """A buffer in huge pages, where there are any: the kernel copies into it four times as fast as into small pages (seen with 6.18)."""
    region = mmap.mmap(-1, BUFFER + _HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a kernel without them
        region.madvise(mmap.MADV_HUGEPAGE)
    block = np.frombuffer(region, np.uint8)
    start = -block.ctypes.data % _HUGE
    block[start : start + BUFFER] = 0
    return block[start : start + BUFFER]


def _batches(ranges: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Ranges as lists of (address, size) that fit the buffer; a long one is split, with an overlap."""
    batch: list[tuple[int, int]] = []
    room = BUFFER
    for start, end in ranges:
        while start < end:
            if room < PAGE or len(batch) == _MOST_PARTS:
                yield batch
                batch, room = [], BUFFER
            size = min(end - start, room)
            batch.append((start, size))
            room -= size
            start += size
            if start < end:
                start -= _OVERLAP
    if batch:
        yield batch


def _open(pid: int, name: str) -> int:
    try:
        return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(pid, error.errno or 0) from None


def open_memory(pid: int) -> int:
    """A descriptor of /proc/PID/mem, for reads of a few bytes. Raises ProcessEndError or Unreadable."""
    return _open(pid, "mem")


def _text(pid: int, name: str) -> str:
    descriptor = _open(pid, name)
    chunks = []
    try:
        while chunk := os.read(descriptor, 1 << 20):  # a read gives about a page, however large the buffer is
            chunks.append(chunk)
    except OSError as error:
        raise _refused(pid, error.errno or 0) from None
    finally:
        os.close(descriptor)
    return b"".join(chunks).decode("utf-8", "replace")


def _refused(pid: int, reason: int) -> ProcessEndError | Unreadable:
    if reason in (errno.ESRCH, errno.ENOENT):
        return ProcessEndError(f"process {pid} ended while it was looked at")
    sentence = f"the memory of process {pid} cannot be read: {os.strerror(reason)}"
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", "rb") as file:
            scope = int(file.read())
    except (OSError, ValueError):
        scope = 0
    if scope >= 2:
        return Unreadable(f"{sentence} (kernel.yama.ptrace_scope is {scope}: only root may read other processes, from 3 on nobody)")
    if scope == 1:
        return Unreadable(
            f"{sentence} (kernel.yama.ptrace_scope is 1: only root and the processes that started it may; or it belongs to another user)"
        )
    return Unreadable(f"{sentence} (it belongs to another user, or a security policy forbids it)")
