"""psrecord's log:

    # Elapsed time   CPU (%)     Real (MB)   Virtual (MB)
           0.000        0.000        1.660        2.531

Seconds, percent of one CPU, and MiB (it divides by 1024 * 1024). Further columns, those of --include-io, are left out. There is one phase, RUN.
"""

from __future__ import annotations

from ...records.types import RUN, Mark
from .measurement import MIB, SAMPLED, Measurement, count, timeline, whole_lines

TOOL = "psrecord"
_S = 1_000_000_000
_COLUMNS = 4


def knows(text: str) -> bool:
    """Whether its heading is there."""
    return any(line.startswith("#") and "Elapsed time" in line and "Real (MB)" in line for line in text.splitlines()[:20])


def read(text: str, file: str) -> list[Measurement]:
    """The measurement in a log."""
    rows: list[tuple[int, int, int]] = []
    cpu_ns = 0
    lines, notes = whole_lines(text)
    for line in lines:
        cells = line.split()
        if line.startswith("#") or len(cells) < _COLUMNS:
            continue
        t_ns, percent, rss, vms = count(cells[0], _S), count(cells[1], 1000), count(cells[2], MIB), count(cells[3], MIB)
        if t_ns is None or rss is None or vms is None:
            continue
        cpu_ns += (percent or 0) * max(t_ns - (rows[-1][0] if rows else t_ns), 0) // 100_000
        rows.append((t_ns, rss, vms))
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
