"""The page of a massif file of 100 MB: in 5 s, in 10 MiB. The large file is made by repeating the trees of a real one."""

from __future__ import annotations

import re
import resource
import subprocess
import time
from pathlib import Path

from . import tools
from .heap import of_python
from .table import Row, Section, Setting, middle

_BYTES = 100 * 10**6
_LIMIT_S, _LIMIT_BYTES = 5.0, 10 << 20
_BLOCK = re.compile(r"(?=^#-----------\nsnapshot=)", re.MULTILINE)


def measure(setting: Setting) -> Section:
    """`memprof heap view` of the large file, several times, from the command to the page on disk."""
    small = setting.folder / "real.massif"
    of_python(setting, small)
    large = setting.folder / "large.massif"
    size = repeated(small, large, _BYTES if not setting.quick else _BYTES // 20)
    wall_s, pages, peak = [], [], 0
    for _ in range(setting.count(7, 2)):
        setting.say("heap page")
        page = setting.folder / "heap.html"
        page.unlink(missing_ok=True)
        begin = time.monotonic()
        subprocess.run([tools.script("memprof"), "heap", "view", str(large), "-o", str(page)], check=True, stderr=subprocess.DEVNULL)
        wall_s.append(time.monotonic() - begin)
        pages.append(page.stat().st_size)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    half, low, high = middle(wall_s)
    subject = f"page of a massif file of {size / 1e6:.0f} MB"
    rows = (
        Row(f"{subject}: time", f"<= {_LIMIT_S:g} s", f"{half:.2f} s ({low:.2f}-{high:.2f})", met=half <= _LIMIT_S),
        Row(f"{subject}: size", "<= 10 MiB", f"{pages[-1] / 2**20:.1f} MiB", met=pages[-1] <= _LIMIT_BYTES),
    )
    note = (
        f"Heap page: `memprof heap view` from the command to the file on disk, {len(wall_s)} times, median and quartiles; the file repeats the "
        f"trees of a real massif run of {small.stat().st_size / 1e6:.1f} MB."
    )
    return Section(rows, (note,), {"wall_s": wall_s, "page_bytes": pages, "file_bytes": size, "children_peak_bytes": peak})


def repeated(source: Path, target: Path, size: int) -> int:
    """Write a file of at least this many bytes that repeats a massif file's snapshots, numbered and timed on; its size."""
    head, *blocks = _BLOCK.split(source.read_text(errors="surrogateescape"))
    number, begin, last, written = 0, 0, 0, 0
    with target.open("w", errors="surrogateescape") as file:
        file.write(head)
        while written < size:
            for block in blocks:
                at = re.search(r"^time=(\d+)", block, re.MULTILINE)
                assert at is not None
                last = begin + int(at[1])
                timed = block[: at.start()] + f"time={last}" + block[at.end() :]
                written += file.write(re.sub(r"snapshot=\d+", f"snapshot={number}", timed, count=1))
                number += 1
            begin = last + 1
    return target.stat().st_size
