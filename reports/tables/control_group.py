"""What the control group of a container was charged (`memprof attach --container`): the figures that its limit is held against, and its kills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memprof.base.units import counted, format_bytes
from memprof.records.metrics import BYTES
from memprof.records.summary import Key
from memprof.records.types import Charged, Run

from ..rows import label_names, labels
from . import grid
from .grid import TextTable

_FIGURES = {
    "working set": "working_set_peak_bytes",
    "anonymous": "charged_anon_peak_bytes",
    "page cache": "charged_file_peak_bytes",
    "kernel": "charged_kernel_peak_bytes",
    "slab": "charged_slab_peak_bytes",
    "page tables": "charged_page_tables_peak_bytes",
    "sockets": "charged_sockets_peak_bytes",
    "swap": "charged_swap_peak_bytes",
}


def tables(groups: Mapping[Key, Sequence[Run]], unit: str | None) -> list[TextTable]:
    """A row for each run that looked at a control group; none without one."""
    names = label_names(groups)
    found = [
        (key, charged, [getattr(mark, name) for name in _FIGURES.values()])
        for key, runs in groups.items()
        for run in runs
        if (charged := looked_at(run)) is not None
        for mark in run.marks
    ]
    size = grid.choose_unit(BYTES, [value for _, _, sizes in found for value in sizes if value is not None], unit)
    rows = []
    for key, charged, sizes in found:
        limit = "none" if charged.limit_bytes is None else size.cell(charged.limit_bytes)
        kills = "-" if charged.oom_kills is None else f"{charged.oom_kills}"
        rows.append((*labels(key, names), *map(size.cell, sizes), size.cell(charged.peak_bytes), limit, kills))
    header = (*names, *_FIGURES, "all charges", "limit", "OOM kills")
    return [TextTable(size.caption("Control group, the most of each"), header, tuple(rows), len(names))] if rows else []


def sentences(run: Run) -> list[str]:
    """How near the peak of the run's control group came to its limit, and what was killed there; none without a group that was looked at."""
    charged = looked_at(run)
    if charged is None:
        return []
    said = [_limit(charged, run.machine.memory_bytes)]
    if charged.oom_kills:
        log = "the kernel's log may not be read here" if charged.kernel_log is None else "; ".join(charged.kernel_log)
        killed = f"{counted(charged.oom_kills, 'process')} of the control group killed for lack of memory since it was made"
        said.append(f"{killed}: {log or 'the log of the kernel has no line of it any more'}")
    return said


def _limit(charged: Charged, machine_bytes: int) -> str:
    if charged.limit_bytes is None:
        return f"no limit on its control group, nor on those above it: only the machine's {format_bytes(machine_bytes)} bound it"
    whose = f"{charged.limit_group}, a group above its own" if charged.limit_group else "its control group"
    limit = format_bytes(charged.limit_bytes)
    if charged.limit_peak_bytes is None:
        return f"a limit of {limit} on {whose}, whose peak is not known"
    share = charged.limit_peak_bytes / max(1, charged.limit_bytes)
    return f"a peak of {format_bytes(charged.limit_peak_bytes)}, {share:.0%} of the limit of {limit} on {whose}"


def looked_at(run: Run) -> Charged | None:
    """The charges of a group that memprof did not make, None without one."""
    return run.charged if run.charged is not None and run.charged.group is not None else None
