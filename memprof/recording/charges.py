"""What a control group that is looked at was charged, from the readings of its files (memprof/recorder/watch.py); its limit, and those above it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from .events import number

_NO_LIMIT = 1 << 60  # version 1 writes "none" as the largest whole number of pages


class Bound(Struct, frozen=True):
    """The peak of a group since it was made, and its limit, in bytes, None for none."""

    peak: int | None
    limit: int | None


class GroupCharges:
    """The readings so far. kills: how many processes of the group were killed for lack of memory since it was made, None if unknown."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}
        self._most_charged: int | None = None
        self._bounds: dict[int, Bound] = {}
        self.kills: int | None = None

    def see_charge(self, fields: Sequence[bytes]) -> None:
        """Take a line `charge`. The working set is as kubelet has it from cAdvisor (setMemoryStats in container/libcontainer/handler.go): the
        charge without the inactive pages of files, and not below 0."""
        current, inactive, anon, file, kernel, stacks, slab, tables = (number(field) for field in fields[1:9])
        sockets, swap = (number(fields[place]) if len(fields) > place else None for place in (9, 10))  # earlier recordings lack them
        if kernel is None and None not in (stacks, slab, tables):
            kernel = sum(part or 0 for part in (stacks, slab, tables))  # before Linux 5.18
        working_set = max(0, current - inactive) if current is not None and inactive is not None else None
        figures = {"charged_anon": anon, "charged_file": file, "charged_kernel": kernel}
        parts = {"charged_slab": slab, "charged_page_tables": tables, "charged_sockets": sockets, "charged_swap": swap}
        for name, size in {"working_set": working_set, **figures, **parts}.items():
            if size is not None:
                self._most[name] = max(size, self._most.get(name, 0))
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
        return {f"{name}_peak_bytes": size for name, size in self._most.items()}

    def charged(self, folders: Sequence[str]) -> dict[str, Any] | None:
        """The fields of a Charged; None if nothing was read. folders: of the group and of those above it."""
        if not self._bounds and self._most_charged is None:
            return None
        own = self._bounds.get(0, Bound(None, None))
        # Before Linux 5.19 version 2 keeps no peak: then it is the most of the readings.
        peaks = {depth: bound.peak for depth, bound in self._bounds.items()} | {0: own.peak if own.peak is not None else self._most_charged}
        limit, depth = min(((bound.limit, depth) for depth, bound in self._bounds.items() if bound.limit is not None), default=(None, 0))
        return {
            "peak_bytes": own.peak,
            "oom_kills": self.kills,
            "group": folders[0],
            "limit_bytes": limit,
            "limit_group": folders[depth] if depth else None,
            "limit_peak_bytes": peaks[depth] if limit is not None else None,
        }
