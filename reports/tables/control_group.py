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
    looked_at = [
        (key, run.charged, mark) for key, runs in groups.items() for run in runs for mark in run.marks if _is_looked_at(run.charged)
    ]
    sizes = {id(mark): [getattr(mark, name) for name in _FIGURES.values()] for _, _, mark in looked_at}
    size = grid.choose_unit(BYTES, [value for values in sizes.values() for value in values if value is not None], unit)
    rows = []
    for key, charged, mark in looked_at:
        assert charged is not None
        figures = [*sizes[id(mark)], charged.peak_bytes, charged.limit_bytes]
        cells = ["-" if value is None else grid.number(value / size.size) for value in figures]
        if charged.limit_bytes is None:
            cells[-1] = "none"
        rows.append((*labels(key, names), *cells, "-" if charged.oom_kills is None else f"{charged.oom_kills}"))
    header = (*names, *_FIGURES, "all charges", "limit", "OOM kills")
    return [TextTable(size.caption("Control group, the most of each"), header, tuple(rows), len(names))] if rows else []


def sentences(run: Run) -> list[str]:
    """How near the peak of the run's control group came to its limit, and what was killed there; none without a group that was looked at."""
    charged = run.charged
    if charged is None or not _is_looked_at(charged):
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


def _is_looked_at(charged: Charged | None) -> bool:
    return charged is not None and charged.group is not None
