"""The tables of memory that no resident set counts: for each variant one row per kind, one column per phase."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from memprof.base.units import format_bytes
from memprof.records import metrics, summary
from memprof.records.metrics import BYTES
from memprof.records.summary import Key
from memprof.records.types import PAGE_TABLES, PEAK, STARTUP, Run

from ..rows import BASELINE, label_names, labels
from . import grid
from .control_group import looked_at
from .grid import TextTable

TITLE = "Device memory"
# What a runtime counts itself of its memory on a device, by the names that its runner gives (runners/runtimes/torch.py).
_COUNTS = {
    "torch_allocated_peak_bytes": "torch's tensors, by torch",
    "torch_reserved_peak_bytes": "torch's allocator, by torch",
}
_APART = 0.05  # of RSS, from which on a limit is about another figure
# What the kernel's memory in a charge is of.
_KERNEL_PARTS = {
    "slab": "charged_slab_peak_bytes",
    "page tables": "charged_page_tables_peak_bytes",
    "stacks": "charged_kernel_stacks_peak_bytes",
    "per-CPU data": "charged_percpu_peak_bytes",
}


def tables(groups: Mapping[Key, Sequence[Run]], unit: str | None) -> list[TextTable]:
    """The tables of peaks and of ends, if any of these runs had memory of a device. Medians over the repeats."""
    runs = [run for group in groups.values() for run in group]
    if not had_any(runs):
        return []
    having = {mark.phase for run in runs for mark in run.marks if mark.devices or own_counts(run, mark.phase)}
    phases = [phase for phase in summary.phases(runs) if phase in having]
    kinds = [
        *dict.fromkeys(kind.kind for run in runs for mark in run.marks for kind in mark.devices if kind.kind != PAGE_TABLES),
        PAGE_TABLES,
    ]
    counts = [own_counts(run, phase) for run in runs for phase in phases]
    own = [kind for name, kind in _COUNTS.items() if any(name in found for found in counts)]
    sizes = [mark.device_peak_bytes or 0 for run in runs for mark in run.marks]
    size = grid.choose_unit(BYTES, [*sizes, *(count for found in counts for count in found.values())], unit)
    names = label_names(groups)
    header = (*names, "kind", *(BASELINE if phase == STARTUP else phase for phase in phases))
    made = []
    for title, moment in (("peak", "peak"), ("at the end", "end")):
        rows = [
            (*labels(key, names), kind, *(size.median([_figure(run, phase, kind, moment) for run in group]) for phase in phases))
            for key, group in groups.items()
            for kind in (*kinds, *(own if moment == "peak" else ()))
        ]
        made.append(TextTable(size.caption(f"{TITLE} by kind, {title}"), header, tuple(rows), len(names) + 1))
    return made


def notes(runs: Sequence[Run]) -> list[str]:
    """Where the table's figures come from, and what of such memory resident sets count."""
    if not had_any(runs):
        return []
    resident = max((sum(kind.resident_end_bytes or 0 for kind in mark.devices) for run in runs for mark in run.marks), default=0)
    inside = f"; up to {format_bytes(resident)} of such memory is in RSS, and not in these figures" if resident else ""
    return [
        f"{TITLE}, which RSS does not count: read every 8 ms and at the ends of phases, each buffer once{inside}. A shorter peak may be missing."
    ]


def limits(group: Sequence[Run]) -> list[str]:
    """Which figure a limit of these repeats of a variant is about, where that differs from RSS by more than 5%."""
    names = ("rss_peak_bytes", "rss_swap_peak_bytes", metrics.CHARGED_PEAK, "device_peak_bytes")
    rss, with_swap, charged, device = (_middle(group, name) for name in names)
    if rss is None or any(looked_at(run) is not None for run in group):
        return []  # of a group that was looked at, control_group.py has more
    if charged is not None and abs(charged - rss) > _APART * rss:
        parts = [f"RSS peak {format_bytes(rss)}", *_up_to({"device memory": device}), *_kernel_parts(group)]
        swapped = max((mark.swapped_bytes for run in group for mark in run.marks), default=0)
        parts += [f"{format_bytes(swapped)} swapped out beside it"] if swapped else []
        return [
            f"a limit of a container or a service is on the charge of its control group, {format_bytes(charged)} at most here ({', '.join(parts)}): "
            "it has the page cache and kernel memory of the run too, and only what the run itself brought in"
        ]
    beside = [f", {format_bytes(with_swap)} with swapped pages"] if with_swap is not None and with_swap - rss > _APART * rss else []
    beside += [f", and of {format_bytes(device)} beside it"] if device is not None and device > _APART * rss else []
    if beside:
        return [
            f"a device is full by RSS, swapped pages and device memory together: here a peak of {format_bytes(rss)} in RSS{''.join(beside)}"
        ]
    return []


def _kernel_parts(group: Sequence[Run]) -> list[str]:
    """The kernel's memory in the charge, and what it is of. Where the kernel tells of no page tables of a group, those of its processes are known."""
    sizes = {name: _middle(group, metric) for name, metric in _KERNEL_PARTS.items()}
    if sizes["page tables"] is None:
        peaks = (kind.peak_bytes for run in group for mark in run.marks for kind in mark.devices if kind.kind == PAGE_TABLES)
        sizes["page tables"] = max(peaks, default=None)
    whole, known = _up_to({"kernel memory": _middle(group, "charged_kernel_peak_bytes")}), _up_to(sizes)
    sockets = _up_to({"sockets": _middle(group, "charged_sockets_peak_bytes")})
    return [*([f"{whole[0]} with {' and '.join(known)}"] if whole and known else [*whole, *known]), *sockets]


def _up_to(sizes: Mapping[str, float | None]) -> list[str]:
    return [f"{name} up to {format_bytes(size)}" for name, size in sizes.items() if size]


def _middle(group: Sequence[Run], name: str) -> float | None:
    values = metrics.values(group, PEAK, metrics.METRICS[name])
    return statistics.median(values) if values else None


def had_any(runs: Iterable[Run]) -> bool:
    """Whether any run had memory of a device, or counted such memory itself."""
    return any(mark.device_peak_bytes or own_counts(run, mark.phase) for run in runs for mark in run.marks)


def own_counts(run: Run, phase: str) -> Mapping[str, float]:
    """What the runtime itself counted of its memory on devices in a phase, at most, in bytes by name."""
    counts: dict[str, float] = {}
    for value in run.values:
        if value.name in _COUNTS and value.phase == phase and value.value is not None:
            counts[value.name] = max(value.value, counts.get(value.name, 0))
    return counts


def _figure(run: Run, phase: str, kind: str, moment: str) -> float | None:
    """The bytes of a kind in a phase. moment: `peak`, which a runtime's own counts have too, or `end`."""
    name = next((name for name, own in _COUNTS.items() if own == kind), None)
    if name is not None:
        return own_counts(run, phase).get(name)
    mark = run.mark(phase)
    if mark is None or getattr(mark, f"device_{moment}_bytes") is None:
        return None
    return next((getattr(found, f"{moment}_bytes") for found in mark.devices if found.kind == kind), 0)
