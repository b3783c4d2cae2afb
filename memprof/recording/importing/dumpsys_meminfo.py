"""What Android's `dumpsys meminfo` prints (https://developer.android.com/tools/dumpsys#meminfo), of one process (PACKAGE, PID), or of all:

    Uptime: 6294345 Realtime: 6294345                           ms since the start of the device; Realtime goes on while it sleeps
    ** MEMINFO in pid 2611 [com.example.app] **
                       Pss  Private  Private  SwapPss      Rss     Heap     Heap     Heap
                     Total    Dirty    Clean    Dirty    Total     Size    Alloc     Free
      Native Heap    46498    46000        0        0    48516    63076    50190     2420
            TOTAL   469662   261052   186988        0   553516    67196    52250     4480
     App Summary
                           Pss(KB)                        Rss(KB)
             Native Heap:    46000                          48516

    Total PSS by process:
        469,662K: com.example.app (pid 2611 / activities)       (   12,345K in swap)

A process without Java has no line with its pid. kB means KiB. Which columns there are depends on the release of Android and on -a, so their titles
tell. A process is a run with one phase, RUN; its dumps in one file are its timeline. The PSS of each row, of the Dalvik Details too, and the App
Summary are values. Tables that count objects, and the sums of the whole device by other groups than processes, are left out.

TOTAL's PSS includes SwapPss, the process's part of what is swapped out (android.os.Debug.MemoryInfo.getTotalPss). It is taken off here, because
nothing that is swapped out is in the PSS of a run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, field

from ...base.units import format_bytes
from ...records.types import RUN, Mark, Value
from .measurement import KIB, Measurement, check_count, count, figure_name, timeline, torn, whole_lines

TOOL = "dumpsys meminfo"
_MS = 1_000_000
_HEADING = "Applications Memory Usage ("
_TIME = re.compile(r"Uptime: [0-9]{1,18} Realtime: ([0-9]{1,18})\b")
_PROCESS = re.compile(r"\*\* MEMINFO in pid ([0-9]{1,10}) \[([^\]]{1,1000})\] \*\*")
_LIST = re.compile(r"Total (PSS|RSS) by process:$")
_LISTED = re.compile(r" {1,40}([0-9,]{1,20})K: (\S.{0,1000}?) \(pid ([0-9]{1,10})\b")
_IN_SWAP = re.compile(r"\( *([0-9,]{1,20})K in swap\)")
_TABLE, _DETAILS, _SUMMARY = "", "Dalvik Details", "App Summary"
_TOTAL = "TOTAL"
_DUMPED = "a dump shows one moment; between dumps memory may have been higher"


def knows(text: str) -> bool:
    """Whether the heading of all dumps is there, or that of a process, or of the list of processes."""
    return _HEADING in text or bool(_PROCESS.search(text)) or any(_LIST.match(line) for line in text.splitlines())


class _Dump(Struct):
    """A process at one moment. rows: KiB by row and title of the column. details and summary: KiB by row."""

    pid: int
    name: str
    t_ns: int
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    details: dict[str, int] = field(default_factory=dict)
    summary: dict[str, int] = field(default_factory=dict)

    def total(self, *titles: str) -> int | None:
        """The sum in bytes of some columns of TOTAL, None if one of them is missing."""
        cells = self.rows.get(_TOTAL, {})
        return sum(cells[title] for title in titles) if all(title in cells for title in titles) else None

    @property
    def pss_bytes(self) -> int | None:
        """PSS without what is swapped out."""
        pss = self.total("Pss Total")
        return None if pss is None else max(pss - (self.total("SwapPss Dirty") or 0), 0)

    @property
    def graphics_bytes(self) -> int:
        """What the graphics driver said of memory that is in no mapping of the process."""
        return sum(cells.get("Pss Total", 0) for name, cells in self.rows.items() if name.endswith(" mtrack"))


def read(text: str, file: str) -> list[Measurement]:
    """The measurements in a file, one for each process."""
    lines, notes = whole_lines(text)
    by_process: dict[tuple[int, str], list[_Dump]] = {}
    for dump in _dumps(lines):
        by_process.setdefault((dump.pid, dump.name), []).append(dump)
    check_count(len(by_process), TOOL)
    several = len(by_process) > 1
    return [_measurement(dumps, several, notes) for dumps in by_process.values()]


def _dumps(lines: Sequence[str]) -> list[_Dump]:
    dumps: list[_Dump] = []
    listed: dict[int, _Dump] = {}
    now_ns, dump, listing = 0, None, ""
    part = _DumpTables()
    for line in lines:
        if time := _TIME.match(line):
            now_ns, dump, listing, listed = count(time[1], _MS) or 0, None, "", {}
        elif process := _PROCESS.match(line):
            dump, listing, part = _Dump(int(process[1]), process[2], now_ns), "", _DumpTables()
            dumps.append(dump)
        elif of := _LIST.match(line):
            listing, dump = of[1], None
        elif listing and (row := _LISTED.match(line)):
            if int(row[3]) not in listed:
                listed[int(row[3])] = _Dump(int(row[3]), row[2], now_ns, {_TOTAL: {}})
                dumps.append(listed[int(row[3])])
            _list(listed[int(row[3])].rows[_TOTAL], listing, row[1], line)
        elif listing and not line.startswith(" ") and line:
            listing = ""  # a list by other groups than processes
        else:
            if dump is None and line.split()[:1] == ["Pss"]:
                dump, part = _Dump(0, "", now_ns), _DumpTables()
                dumps.append(dump)
            if dump is not None:
                part.take(line, dump)
    return dumps


def _list(cells: dict[str, int], kind: str, size: str, line: str) -> None:
    """Add a line of a list of processes to the figures of its process."""
    swapped = _IN_SWAP.search(line)
    for title, text in (("Pss Total" if kind == "PSS" else "Rss Total", size), ("SwapPss Dirty", swapped[1] if swapped else None)):
        kib = count(text.replace(",", ""), KIB) if text else None
        if kib is not None:
            cells[title] = kib


class _DumpTables:
    """The tables of a process, line after line: which one it is, and the titles of its columns."""

    def __init__(self) -> None:
        self._part = _TABLE
        self._first: list[str] = []  # the upper words of the titles
        self._titles: list[str] = []
        self._ends: list[int] = []  # where the columns of the App Summary end

    def take(self, line: str, dump: _Dump) -> None:
        """Add what a line says to the dump."""
        words = line.split()
        if not words:
            return
        if words[0] == "Pss":
            self._first = words
        elif words[0] == "Total" and len(words) == len(self._first):
            self._titles = [f"{upper} {lower}" for upper, lower in zip(self._first, words, strict=True)]
        elif words[0] == "Pss(KB)":
            self._ends = [line.index(word) + len(word) for word in words]
        elif not any(character.isdigit() or character in "-:" for character in line):
            self._part = line.strip()
        elif self._part == _SUMMARY:
            self._summarise(line, dump)
        elif self._part in (_TABLE, _DETAILS) and self._titles:
            self._row(words, dump)

    def _row(self, words: list[str], dump: _Dump) -> None:
        first = next((place for place, word in enumerate(words) if word.isdecimal()), len(words))
        name, numbers = " ".join(words[:first]), [count(word, KIB) for word in words[first:]]
        cells = {title: number for title, number in zip(self._titles, numbers, strict=False) if number is not None}
        if not name or not cells:
            return
        if self._part == _TABLE:
            dump.rows[name] = cells
        elif "Pss Total" in cells:
            dump.details[name] = cells["Pss Total"]

    def _summarise(self, line: str, dump: _Dump) -> None:
        """A row of the App Summary may have its RSS alone: the place where a number ends says which column it is in."""
        name, _, _ = line.partition(":")
        number = re.search(r":\s{0,200}([0-9]{1,18})\b", line)
        if name.strip().startswith(_TOTAL) or number is None:
            return
        kib = count(number[1], KIB)
        if kib is not None and (not self._ends or min(self._ends, key=lambda end: abs(end - number.end())) == self._ends[0]):
            dump.summary[name.strip()] = kib


def _measurement(dumps: list[_Dump], several: bool, notes: Sequence[str]) -> Measurement:
    whole = sorted((dump for dump in dumps if dump.rows.get(_TOTAL)), key=lambda dump: dump.t_ns)
    remarks = [*notes] if len(whole) == len(dumps) or notes else [torn("a dump in it has no TOTAL")]
    first, last = dumps[0], whole[-1] if whole else None
    if last is None:
        return Measurement(TOOL, "command", [], model=first.name)
    start_ns = whole[0].t_ns
    seen = [(dump.t_ns - start_ns, rss, 0) for dump in whole if (rss := dump.total("Rss Total")) is not None]
    native = last.rows.get("Native Heap", {})
    mark = Mark(
        phase=RUN,
        begin_ns=0,
        end_ns=last.t_ns - start_ns,
        rss_peak_bytes=max((rss for _, rss, _ in seen), default=None),
        rss_peak_exact=False,
        samples=len(seen),
        rss_begin_bytes=whole[0].total("Rss Total"),
        rss_end_bytes=last.total("Rss Total"),
        pss_end_bytes=last.pss_bytes,
        uss_end_bytes=last.total("Private Dirty", "Private Clean"),
        swap_end_bytes=last.total("Swap Dirty"),
        heap_used_end_bytes=native.get("Heap Alloc"),
        heap_free_end_bytes=native.get("Heap Free"),
    )
    remarks.insert(0, _DUMPED)
    if last.graphics_bytes:
        remarks.append(
            f"RSS and PSS include {format_bytes(last.graphics_bytes)} of the graphics driver (mtrack), which no /proc/PID/status counts"
        )
    return Measurement(
        TOOL,
        "command",
        [mark],
        model=first.name,
        variant=first.name if several else "",
        notes=remarks,
        values=[value for dump in whole for value in _values(dump, dump.t_ns - start_ns)],
        timeline=timeline(seen) if seen else None,
    )


def _values(dump: _Dump, t_ns: int) -> list[Value]:
    figures = {figure_name(name, "pss"): cells["Pss Total"] for name, cells in dump.rows.items() if name != _TOTAL and "Pss Total" in cells}
    figures.update({figure_name("details", name, "pss"): size for name, size in dump.details.items()})
    figures.update({figure_name("summary", name): size for name, size in dump.summary.items()})
    return [Value(name, t_ns, size, RUN) for name, size in figures.items()]
