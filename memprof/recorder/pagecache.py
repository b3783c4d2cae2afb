"""Brings the page cache of a model's files to one state before a measurement: it decides how much of a mapped file is resident.

A file just written sits in the cache in large folios, which a fault maps whole (75 MB at once in a trial, against 8 MB after it was dropped
and read again). So files are dropped once before their first use, and from then on kept read through (warm) or dropped each time (cold).
A file that is read with read-ahead lies in folios too, and their size depends on the length of each read and on the device: where Linux 6.18
read 64 KiB at a time there were folios of 1 MiB. So files are read through without read-ahead, with folios of one page, on any device.
"""

import mmap
import os

from . import libc

_BLOCK = 1 << 20


def prepare(paths, state, drop_first):
    """Bring the files to `warm` or `cold`; `asis` leaves them. Files that cannot be opened are left to the runtime to complain about."""
    for path in paths if state != b"asis" else ():
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if state == b"cold" or drop_first:
                _drop(descriptor)
            if state == b"warm" and not _is_resident(descriptor):
                _read_through(descriptor)
        finally:
            os.close(descriptor)


def _drop(descriptor):
    """Write back dirty pages, then let go of all pages that nobody maps."""
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass  # some network file systems have neither: the state of their files stays


def resident(descriptor):
    """A byte for each page of a file: its lowest bit says whether the page lies in the page cache (mincore(2)). None if that cannot be told."""
    size = os.fstat(descriptor).st_size
    address = libc.function("mmap")(0, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0) if size else 0
    if address in (0, -1):
        return None if size else b""
    pages = libc.buffer(-(-size // mmap.PAGESIZE))
    told = libc.function("mincore")(address, size, pages) == 0
    libc.function("munmap")(address, size)
    return pages.raw[: -(-size // mmap.PAGESIZE)] if told else None


def _is_resident(descriptor):
    """Whether every page of the file lies in the page cache; False if that cannot be told."""
    pages = resident(descriptor)
    return pages is not None and b"\0" not in pages


def _read_through(descriptor):
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead: of this descriptor, not of the program's
    except OSError:
        pass
    offset, block = 0, b"-"
    while block:
        block = os.pread(descriptor, _BLOCK, offset)
        offset += len(block)
