"""psrecord's log, plain or with --log-format csv (https://github.com/astrofrog/psrecord):

    # Elapsed time   CPU (%)     Real (MB)   Virtual (MB)
           0.000        0.000        1.660        2.531

    elapsed_time,nproc,cpu,mem_real,mem_virtual
    7.7e-05,1,0.0,1.66,2.531

Seconds, percent of one CPU, and MiB (it divides by 1024 * 1024). A column is known by its title, since forks put others before them, such as a
Timestamp. Columns of other titles, those of --include-io too, are left out. There is one phase, RUN.
"""

from __future__ import annotations

import re

from ...base.errors import InputError
from ...records.types import RUN, Mark
from .measurement import MIB, SAMPLED, Measurement, count, timeline, whole_lines

TOOL = "psrecord"
_S = 1_000_000_000
_MOST_LINES_BEFORE = 20
_TIME, _CPU, _REAL, _VIRTUAL = "time", "cpu", "real", "virtual"
_NEEDED = {_TIME, _REAL, _VIRTUAL}
_TITLES = {
    "Elapsed time": _TIME,
    "CPU (%)": _CPU,
    "Real (MB)": _REAL,
    "Virtual (MB)": _VIRTUAL,
    "elapsed_time": _TIME,
    "cpu": _CPU,
    "mem_real": _REAL,
    "mem_virtual": _VIRTUAL,
}


def knows(text: str) -> bool:
    """Whether its heading is there."""
    return any(_columns(line) for line in text.splitlines()[:_MOST_LINES_BEFORE])


def read(text: str, file: str) -> list[Measurement]:
    """The measurement in a log. Raises InputError if its rows do not have the columns of its heading."""
    rows: list[tuple[int, int, int]] = []
    cpu_ns = 0
    lines, notes = whole_lines(text)
    columns: list[str] = []
    other_widths: set[int] = set()
    for line in lines:
        if titles := _columns(line):
            columns = titles
            continue
        cells = line.split(",") if "," in line else line.split()
        if not columns or not cells or line.startswith("#"):
            continue
        if len(cells) != len(columns):
            other_widths.add(len(cells))
            continue
        row = dict(zip(columns, cells, strict=True))
        t_ns, percent = count(row[_TIME], _S), count(row.get(_CPU), 1000)
        rss, vms = count(row[_REAL], MIB), count(row[_VIRTUAL], MIB)
        if t_ns is None or rss is None or vms is None:
            continue
        cpu_ns += (percent or 0) * max(t_ns - (rows[-1][0] if rows else t_ns), 0) // 100_000
        rows.append((t_ns, rss, vms))
    if not rows and other_widths:
        raise InputError(f"psrecord's heading has {len(columns)} columns, and its rows have {min(other_widths)}")
    if not rows:
        return []
    rows.sort()
    mark = Mark(
        phase=RUN,
        begin_ns=rows[0][0],
        end_ns=rows[-1][0],
        rss_peak_bytes=max(rss for _, rss, _ in rows),
        rss_peak_exact=False,
        samples=len(rows),
        rss_begin_bytes=rows[0][1],
        rss_end_bytes=rows[-1][1],
        vms_end_bytes=rows[-1][2],
        vms_peak_bytes=max(vms for _, _, vms in rows),
        cpu_ns=min(cpu_ns, 1 << 61),
    )
    notes.insert(0, SAMPLED)
    return [Measurement(TOOL, "command", [mark], model=file.rpartition(".")[0] or file, notes=notes, timeline=timeline(rows))]


def _columns(line: str) -> list[str]:
    """What each column of a heading holds, its own title where that is not used; [] for another line. Plain titles stand two spaces apart."""
    titles = line.split(",") if "," in line else re.split(r"\s{2,}", line.lstrip("#").strip()) if line.startswith("#") else []
    columns = [_TITLES.get(title.strip(), title.strip()) for title in titles]
    return columns if set(columns) >= _NEEDED else []
