"""What a control group was charged, from the readings of its files: the run's own (memprof/recorder/group.py), and one that is looked at
(memprof/recorder/watch.py), with its limit and those above it.

Sizes are kept in bytes by the names of a Charged's fields; those of a Mark have `charged_` before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from .events import number

_NO_LIMIT = 1 << 60  # version 1 writes "none" as the largest whole number of pages
_KERNEL, _STACKS, _SLAB, _TABLES = "kernel_peak_bytes", "kernel_stacks_peak_bytes", "slab_peak_bytes", "page_tables_peak_bytes"
_SOCKETS, _PERCPU = "sockets_peak_bytes", "percpu_peak_bytes"
_KERNEL_PARTS = (_KERNEL, _STACKS, _SLAB, _TABLES, _SOCKETS, _PERCPU)


def _kernel_sizes(fields: Sequence[bytes]) -> dict[str, int]:
    """The fields KERNEL STACKS SLAB TABLES SOCK PERCPU, as far as they are there; no size where no file told. The kernel's memory has all the others
    in it but the buffers of sockets, which are charged beside it (`kernel` in cgroup-v2.rst)."""
    sizes = _known(zip(_KERNEL_PARTS, map(number, fields), strict=False))
    if _KERNEL not in sizes and sizes.keys() >= {_STACKS, _SLAB, _TABLES}:
        sizes[_KERNEL] = sum(sizes.get(name, 0) for name in (_STACKS, _SLAB, _TABLES, _PERCPU))  # before Linux 5.18
    return sizes


def _known(sizes: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    return {name: size for name, size in sizes if size is not None}


def _raise(most: dict[str, int], sizes: Mapping[str, int]) -> None:
    """Keep the larger of each two sizes in the first."""
    for name, size in sizes.items():
        most[name] = max(size, most.get(name, size))


class _Span:
    """The most of each size since a reading of the group, which counts too. is_whole: the kernel's own peaks are of this time and of no other."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes, self._peaks, self._is_whole = dict(sizes), dict[str, int](), True

    def see_sizes(self, sizes: Mapping[str, int]) -> None:
        """Take a reading of the kernel's memory."""
        _raise(self._sizes, sizes)

    def see_peaks(self, peaks: Mapping[str, int], began: bool) -> None:
        """Take the kernel's own peaks since the reading before. began: they began again at that one."""
        self._is_whole = self._is_whole and began
        _raise(self._peaks, peaks)

    def mark(self) -> dict[str, int]:
        """Its fields of a Mark."""
        most = dict(self._sizes)
        _raise(most, self._peaks if self._is_whole else {})
        return {f"charged_{name}": size for name, size in most.items()}


class OwnCharges:
    """What the run's own control group was charged. kills: how many of its processes were killed for lack of memory, None if unknown; refaults: as
    last read at a mark."""

    def __init__(self) -> None:
        self._most: dict[str, int] | None = None
        self._sizes: dict[str, int] = {}
        self._since_mark = self._before_mark = _Span({})
        self._open: dict[str, _Span] = {}
        self._began = True  # the group was made where the program began
        self.kills: int | None = None
        self.refaults: int | None = None

    def see(self, fields: Sequence[bytes]) -> None:
        """Take a line `group`."""
        peak, both, refaults, self.kills = (number(field) for field in fields[1:5])
        kernel_peak = number(fields[6]) if len(fields) > 6 else None  # earlier recordings end here
        peaks = _known([("peak_bytes", peak), (_KERNEL, kernel_peak)])
        self._sizes = _kernel_sizes(fields[7:])
        self._most = self._most or {}
        for sizes in (peaks, self._sizes, _known([("with_swap_peak_bytes", both)])):
            _raise(self._most, sizes)
        spans = (self._since_mark, *self._open.values())
        for span in spans:
            span.see_sizes(self._sizes)
        if fields[5] == b"-":
            return
        for span in spans:
            span.see_peaks(peaks, self._began)
        self._began, self.refaults = fields[5] == b"1", refaults
        self._before_mark, self._since_mark = self._since_mark, _Span(self._sizes)

    def begin(self, phase: str) -> None:
        """A phase begins: its mark stands behind the newest line."""
        self._open[phase] = _Span(self._sizes)

    def end(self, phase: str) -> dict[str, int]:
        """The fields of a phase's Mark, which stands behind the newest line. A phase that no mark has begun began at the mark before."""
        return self._open.pop(phase, self._before_mark).mark()

    def charged(self) -> dict[str, int | None] | None:
        """The fields of a Charged; None without a group."""
        return None if self._most is None else {**self._most, "oom_kills": self.kills}


class Bound(Struct, frozen=True):
    """The peak of a group since it was made, and its limit, in bytes, None for none."""

    peak: int | None
    limit: int | None


class GroupCharges:
    """The readings so far. kills: how many processes of the group were killed for lack of memory since it was made, None if unknown."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}
        self._working_set: dict[str, int] = {}
        self._most_charged: int | None = None
        self._bounds: dict[int, Bound] = {}
        self.kills: int | None = None

    def see_charge(self, fields: Sequence[bytes]) -> None:
        """Take a line `charge`. The working set is as kubelet has it from cAdvisor (setMemoryStats in container/libcontainer/handler.go): the
        charge without the inactive pages of files, and not below 0."""
        current, inactive, anon, file = (number(field) for field in fields[1:5])
        swap = number(fields[10]) if len(fields) > 10 else None  # earlier recordings lack it, and sockets
        working_set = max(0, current - inactive) if current is not None and inactive is not None else None
        _raise(self._most, _known([("anon_peak_bytes", anon), ("file_peak_bytes", file), ("swap_peak_bytes", swap)]))
        _raise(self._most, _kernel_sizes(fields[5:10]))
        _raise(self._working_set, _known([("working_set_peak_bytes", working_set)]))
        if current is not None:
            self._most_charged = max(current, self._most_charged or 0)

    def see_bound(self, fields: Sequence[bytes]) -> None:
        """Take a line `bound`."""
        depth, limit = int(fields[1]), number(fields[3]) if fields[3] != b"max" else None
        self._bounds[depth] = Bound(number(fields[2]), limit if limit is not None and limit < _NO_LIMIT else None)
        if depth == 0:
            self.kills = number(fields[4])

    def mark(self) -> dict[str, int]:
        """Its fields of a Mark."""
        return self._working_set | {f"charged_{name}": size for name, size in self._most.items()}

    def charged(self, folders: Sequence[str]) -> dict[str, Any] | None:
        """The fields of a Charged; None if nothing was read. folders: of the group and of those above it."""
        if not self._bounds and self._most_charged is None:
            return None
        own = self._bounds.get(0, Bound(None, None))
        # Before Linux 5.19 version 2 keeps no peak: then it is the most of the readings.
        peaks = {depth: bound.peak for depth, bound in self._bounds.items()} | {0: own.peak if own.peak is not None else self._most_charged}
        limit, depth = min(((bound.limit, depth) for depth, bound in self._bounds.items() if bound.limit is not None), default=(None, 0))
        return {
            **{name: size for name, size in self._most.items() if name in _KERNEL_PARTS},
            "peak_bytes": own.peak,
            "oom_kills": self.kills,
            "group": folders[0],
            "limit_bytes": limit,
            "limit_group": folders[depth] if depth else None,
            "limit_peak_bytes": peaks[depth] if limit is not None else None,
        }
