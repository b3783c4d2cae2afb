"""How much of a file the page cache keeps although it was dropped: the pages that processes have mapped."""

from __future__ import annotations

import mmap
import os
from typing import Any

from ..recorder import pagecache as _pagecache

pagecache: Any = _pagecache  # it has no annotations


def kept_bytes(path: str) -> int:
    """The bytes of a file that stay in the page cache once it was dropped; all of it where the kernel does not say, 0 where it cannot be read."""
    pagecache.prepare([os.fsencode(path)], b"cold", True)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        pages = pagecache.resident(descriptor)
        return os.fstat(descriptor).st_size if pages is None else sum(page & 1 for page in pages) * mmap.PAGESIZE
    finally:
        os.close(descriptor)
