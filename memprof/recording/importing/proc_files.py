"""Copies of /proc/PID/status, smaps and smaps_rollup (https://docs.kernel.org/filesystems/proc.html), alone or one behind the other in a file:

    Name:   python3                                 a line of status
    VmHWM:     340922 kB
    7f1c00000000-7f1c00021000 rw-p 00000000 00:00 0          [heap]       a mapping of smaps, whose figures follow
    Rss:                 132 kB

kB means KiB. A process is a run with one phase, RUN, without times, because the files hold none. Further copies of the same process are later
moments: the peak is the largest of them, and the figures at the end are those of the last. VmHWM is the peak since the process began, if nothing
reset it. Of smaps, the sums stand, and the RSS of the largest mappings by file as values. smaps is exact where status lags, so its RSS is preferred.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from msgspec import Struct, field

from ...records.types import RUN, Mark, Value
from .measurement import KIB, Measurement, check_count, count, figure_name, whole_lines

TOOL = "/proc/PID/status and smaps"
_MAPPING = re.compile(r"([0-9a-f]{1,16})-[0-9a-f]{1,16} [r-][w-][x-][sp] [0-9a-f]{1,16} [0-9a-f]+:[0-9a-f]+ [0-9]+ *(.*)")
_FIGURE = re.compile(r"(\w{1,40}):\s{1,40}([0-9]{1,18}) kB$")
_MOST_MAPPINGS = 8
_ONE_MOMENT = "a copy shows one moment; only VmHWM knows what was before it"
_NO_TIMES = "the moments of its copies are not known"


def knows(text: str) -> bool:
    """Whether it has the size of a process in status, or a mapping with its figures."""
    lines = text.splitlines()
    return any(line.startswith("VmRSS:") for line in lines) or any(
        _MAPPING.match(line) and after.startswith(("Size:", "Rss:")) for line, after in pairwise(lines)
    )


class _Copy(Struct):
    """A process at one moment, in bytes. status: its lines. sums: those of smaps, over all mappings. rss: by file or kind of mapping."""

    name: str = ""
    pid: str = ""
    status: dict[str, int] = field(default_factory=dict)
    sums: Counter[str] = field(default_factory=Counter)
    rss: Counter[str] = field(default_factory=Counter)

    @property
    def rss_bytes(self) -> int | None:
        """Resident memory."""
        return self.sums.get("Rss", self.status.get("VmRSS"))

    @property
    def uss_bytes(self) -> int | None:
        """Private pages alone."""
        private = [size for name, size in self.sums.items() if name.startswith("Private_")]
        return sum(private) if private else None


def read(text: str, file: str) -> list[Measurement]:
    """The measurements in a file, one for each process."""
    lines, notes = whole_lines(text)
    by_process: dict[str, list[_Copy]] = {}
    for copy in _copies(lines):
        if copy.rss_bytes is not None:
            by_process.setdefault(copy.pid, []).append(copy)
    check_count(len(by_process), TOOL)
    return [_measurement(copies, len(by_process) > 1, notes) for copies in by_process.values()]


def _copies(lines: list[str]) -> list[_Copy]:
    copies: list[_Copy] = []
    copy, mapping, before = _Copy(), "", -1
    for line in lines:
        if line.startswith("Name:"):
            copy, mapping, before = _Copy(name=line.partition(":")[2].strip()[:200]), "", -1
            copies.append(copy)
        elif line.startswith("Pid:"):
            copy.pid = line.partition(":")[2].strip()[:20]
        elif match := _MAPPING.match(line):
            begin = int(match[1], 16)
            if not copies or begin <= before:  # the addresses of a process rise
                copy = _Copy(copy.name, copy.pid)
                copies.append(copy)
            before, mapping = begin, match[2].strip() or "anonymous"
        elif (match := _FIGURE.match(line)) and (size := count(match[2], KIB)) is not None:
            if not mapping:
                copy.status[match[1]] = size
                if not copies:
                    copies.append(copy)
                continue
            copy.sums[match[1]] += size
            if match[1] == "Rss" and mapping != "[rollup]":
                copy.rss[mapping.rpartition("/")[2]] += size
    return copies


def _measurement(copies: list[_Copy], several: bool, notes: list[str]) -> Measurement:
    last = copies[-1]
    status = last.status
    sizes = [size for copy in copies for size in (copy.rss_bytes, copy.status.get("VmHWM")) if size is not None]
    mark = Mark(
        phase=RUN,
        begin_ns=0,
        end_ns=0,
        rss_peak_bytes=max(sizes),
        rss_peak_exact=False,
        samples=len(copies),
        hwm_bytes=status.get("VmHWM"),
        rss_begin_bytes=copies[0].rss_bytes,
        rss_end_bytes=last.rss_bytes,
        anon_end_bytes=last.sums.get("Anonymous", status.get("RssAnon")),
        file_end_bytes=status.get("RssFile"),
        shmem_end_bytes=status.get("RssShmem"),
        swap_end_bytes=last.sums.get("Swap", status.get("VmSwap")),
        vms_end_bytes=status.get("VmSize", last.sums.get("Size")),
        vms_peak_bytes=status.get("VmPeak"),
        pss_end_bytes=last.sums.get("Pss"),
        uss_end_bytes=last.uss_bytes,
    )
    return Measurement(
        TOOL,
        "command",
        [mark],
        model=last.name,
        variant=f"{last.name} {last.pid}".strip() if several else "",
        notes=[_ONE_MOMENT, *([_NO_TIMES] if len(copies) > 1 else []), *notes],
        values=[Value(figure_name(name, "rss"), 0, size, RUN) for name, size in last.rss.most_common(_MOST_MAPPINGS) if size],
    )
