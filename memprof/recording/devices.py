"""Memory that no resident set counts, over time and by kind: what a recording's `buffers`, `clients` and `tables` tell of some processes together.

A buffer is one by its kind and inode, however many processes and descriptors have it. What any resident set counts of it is taken off its size. A
client of a DRM driver is one by its driver, device and id; of clients without an id the largest alone counts. An object of a client may be shared
with another client, or be a dma-buf too, and nothing tells which: shared parts count once, the largest alone, and only as far as they are more than
all dma-bufs together. A dma-buf of udmabuf has the pages of a memfd, and nothing tells of which: such buffers count as far as they are more than all
memfds together. So a sum is the certain part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from ..records.types import PAGE_TABLES
from .events import decoded, number
from .timeline import FILE, TimelineBuilder

HUGETLB, MEMFD, DMABUF, DRM, NVIDIA = "hugetlb", "memfd", "dma-buf", "drm", "nvidia, approximate"
UDMABUF = f"{DMABUF} udmabuf"
_WHOLE_NS = 100_000_000  # as often as the recorder reads all of a process
_KINDS = 64  # that are kept apart, the first ones


class DeviceBuffer(Struct, frozen=True):
    """A buffer as a process has it, in bytes. kind: with the name of its exporter; resident: what the process's resident set counts of it."""

    kind: str
    inode: int
    size: int
    resident: int


class Region(Struct, frozen=True):
    """A client's memory in a region, in bytes. shared: what another client or buffer may have too; None if the driver does not tell."""

    name: str
    size: int
    shared: int | None


class ProcessDevices(Struct):
    """The newest readings of a process. clients: by driver, device and id. hidden: its descriptors may not be read; silent: drivers of DRM that tell
    of no memory; nameless: those whose clients have memory and no id; uses_nvidia: it has a file of NVIDIA's, whose memory NVML alone tells. nvidia,
    page_tables, huge, huge_shared: in bytes."""

    buffers: Sequence[DeviceBuffer] = ()
    clients: dict[str, list[Region]] | None = None
    hidden: bool = False
    silent: tuple[str, ...] = ()
    nameless: tuple[str, ...] = ()
    uses_nvidia: bool = False
    nvidia: int = 0
    page_tables: int = 0
    huge: int = 0
    huge_shared: int = 0

    def see_buffers(self, fields: Sequence[bytes]) -> None:
        """The fields of `buffers` behind PID."""
        self.hidden = list(fields) == [b"-"]
        self.buffers = [] if self.hidden else [_buffer(field) for field in fields if field]

    def see_clients(self, fields: Sequence[bytes]) -> None:
        """The fields of `clients` behind PID."""
        self.clients, silent, nameless = {}, [], []
        for field in fields:
            if field:
                driver, device, key, *regions = decoded(field).split(",")
                _keep(self.clients, f"{driver},{device},{key}", [_region(region) for region in regions])
                silent += [driver] if not regions else []
                nameless += [driver] if regions and key == "-" else []
        self.uses_nvidia = "nvidia" in silent
        self.silent, self.nameless = tuple(driver for driver in silent if driver != "nvidia"), tuple(nameless)

    def see_nvidia(self, size: bytes) -> None:
        """What NVML tells of it, in bytes; `-` where it does not know."""
        self.nvidia, self.silent = number(size) or 0, (*self.silent, "nvidia") if size == b"-" else self.silent

    def see_tables(self, fields: Sequence[bytes]) -> None:
        """The fields of `tables` behind PID."""
        self.page_tables, self.huge, self.huge_shared = ((number(field) or 0) << 10 for field in fields[:3])


def _keep(clients: dict[str, list[Region]], client: str, regions: Sequence[Region]) -> None:
    """Keep the newest figures of a client. drm-client-id is optional (Documentation/gpu/drm-usage-stats.rst): two descriptors without it may be of
    one client or of two, so the larger of each region is certain."""
    known = clients.get(client, []) if client.endswith(",-") else []
    by_size = sorted((*known, *regions), key=lambda region: region.size)
    clients[client] = list({region.name: region for region in by_size}.values())


def _buffer(field: bytes) -> DeviceBuffer:
    kind, exporter, inode, size, _, resident = decoded(field).split(":")
    return DeviceBuffer(f"{DMABUF} {exporter}".strip() if kind == "dmabuf" else MEMFD, int(inode), int(size), int(resident))


def _region(text: str) -> Region:
    name, *words = text.split("/")
    total, resident, shared, _, memory = (None if word == "-" else int(word) for word in words)
    size = next((amount for amount in (resident, memory, total) if amount is not None), 0)
    return Region(f"{DRM} {name}", size, None if shared is None else min(shared, size))


def sizes(processes: Iterable[ProcessDevices]) -> dict[str, tuple[int, int]]:
    """(bytes that no resident set counts, bytes that one does) by kind, of these processes together."""
    held, found = list(processes), dict[str, tuple[int, int]]()
    buffers: dict[tuple[str, int], tuple[int, int]] = {}
    for buffer in (buffer for process in held for buffer in process.buffers):
        size, resident = buffers.get((buffer.kind, buffer.inode), (0, 0))
        buffers[buffer.kind, buffer.inode] = max(size, buffer.size), resident + buffer.resident
    shared_buffers = memfds = 0
    for (kind, _), (size, resident) in buffers.items():
        outside, inside = found.get(kind, (0, 0))
        counted = min(size, resident)
        found[kind] = outside + size - counted, inside + counted
        shared_buffers += size if kind.startswith(DMABUF) else 0
        memfds += size if kind == MEMFD else 0
    if UDMABUF in found:
        outside, inside = found[UDMABUF]
        found[UDMABUF] = max(0, outside - memfds), inside
    for kind, size in _clients(held, shared_buffers).items():
        found[kind] = size, 0
    huge_shared = [process.huge_shared for process in held]
    huge = sum(process.huge for process in held) - sum(huge_shared) + max(huge_shared, default=0)
    nvidia = sum(process.nvidia for process in held)
    for kind, size in ((NVIDIA, nvidia), (HUGETLB, huge), (PAGE_TABLES, sum(process.page_tables for process in held))):
        if size:
            found[kind] = size, 0
    return found


def _clients(processes: Iterable[ProcessDevices], buffers: int) -> dict[str, int]:
    """Bytes of all clients by kind, without what may be among so many bytes of dma-bufs."""
    clients: dict[str, list[Region]] = {}
    for process in processes:
        for client, regions in (process.clients or {}).items():
            _keep(clients, client, regions)
    own: dict[str, int] = {}
    common: dict[str, int] = {}
    for region in (region for regions in clients.values() for region in regions):
        if region.shared is None:
            own[region.name] = own.get(region.name, 0) + region.size
        else:
            own[region.name] = own.get(region.name, 0) + region.size - region.shared
            common[region.name] = max(common.get(region.name, 0), region.shared)
    unknown = {region.name for regions in clients.values() for region in regions if region.shared is None}
    for name in own:
        # Where the driver does not tell what is shared, all of it may be.
        possible = common.get(name, 0) + (own[name] if name in unknown else 0)
        overlap = min(possible, buffers)
        buffers -= overlap
        own[name] += common.get(name, 0) - overlap
    return own


def _highest(history: TimelineBuilder, begin_ns: int, end_ns: int) -> int:
    """The most that was there in a phase. A reading that is the same as the one before is not in the recording: the level of the phase's begin was
    read again in it where none that differs came in time."""
    read, again_ns = history.highest(begin_ns, end_ns), begin_ns + _WHOLE_NS
    return max(read, history.held(begin_ns, again_ns)) if again_ns <= end_ns else read


class DeviceHistory:
    """The memory of some processes by kind over time. known: whether any was read. hidden: of how many the descriptors could not be read at most;
    silent: drivers that told of no memory; nameless: drivers that told of no id; uses_nvidia, asks_nvidia: whether NVIDIA's driver was used, and NVML
    asked. left_out: readings for which the recorder had no time."""

    def __init__(self) -> None:
        self.timeline = TimelineBuilder()  # all kinds but page tables; its file is what resident sets count
        self._kinds: dict[str, TimelineBuilder] = {}
        self.hidden = 0
        self.silent: set[str] = set()
        self.nameless: set[str] = set()
        self.uses_nvidia = self.asks_nvidia = False
        self.left_out = 0
        self.known, self._read_ns = False, 0

    def take(self, t_ns: int, processes: Iterable[ProcessDevices]) -> None:
        """The processes as they are now."""
        held = list(processes)
        self.known, t_ns = True, max(t_ns, self._read_ns)
        self._read_ns = t_ns
        self.hidden = max(self.hidden, sum(process.hidden for process in held))
        self.silent.update(driver for process in held for driver in process.silent)
        self.nameless.update(driver for process in held for driver in process.nameless)
        self.uses_nvidia = self.uses_nvidia or any(process.uses_nvidia for process in held)
        found = sizes(held)
        for kind in found:
            if kind not in self._kinds and len(self._kinds) < _KINDS:
                self._kinds[kind] = TimelineBuilder()
        for kind, history in self._kinds.items():
            history.add(t_ns, t_ns, *found.get(kind, (0, 0)))
        totals = [size for kind, size in found.items() if kind != PAGE_TABLES]
        self.timeline.add(t_ns, t_ns, sum(outside for outside, _ in totals), sum(inside for _, inside in totals))

    def confirm(self, t_ns: int) -> None:
        """All was read at this time, and nothing has changed since the newest reading."""
        if self.known:
            for history in (self.timeline, *self._kinds.values()):
                history.add(max(t_ns, self._read_ns), max(t_ns, self._read_ns), *history.last)
            self._read_ns = max(t_ns, self._read_ns)

    def describe(self, record: dict[str, Any], at_end: bool) -> None:
        """Add to a phase's record what it had. at_end: the newest reading was made because it ended."""
        if not self.known or self.hidden:
            return
        begin_ns, end_ns = record["begin_ns"], record["end_ns"]
        kinds = []
        for kind, history in self._kinds.items():
            end = self._end(history, end_ns) if at_end else None
            peak = max(_highest(history, begin_ns, end_ns), end[0] if end else 0)
            if peak or (end and end[1]):
                kinds.append({"kind": kind, "peak_bytes": peak, **({"end_bytes": end[0], "resident_end_bytes": end[1]} if end else {})})
        last = self._end(self.timeline, end_ns)[0] if at_end else 0
        record["device_peak_bytes"] = max(_highest(self.timeline, begin_ns, end_ns), last)
        if at_end:
            record["device_end_bytes"] = last
        record["devices"] = kinds

    def _end(self, history: TimelineBuilder, end_ns: int) -> tuple[int, int]:
        """The memory at this time: as read right after it, or if that reading came late, as read last before."""
        if self._read_ns - end_ns <= _WHOLE_NS:
            return history.last[0], history.last[1]
        return history.held(end_ns, end_ns), history.held(end_ns, end_ns, FILE)

    def columns(self) -> dict[str, str]:
        """The timeline's columns of devices, packed; none if there was nothing."""
        if not self.timeline.rss_max:
            return {}
        packed = self.timeline.encoded()
        return {"device_t_ns": packed["t_ns"], "device": packed["rss"]}

    def remarks(self) -> list[str]:
        """Warnings for the reader of the figures."""
        remarks = []
        if self.hidden:
            whose = "a process" if self.hidden == 1 else f"{self.hidden} processes"
            remarks.append(f"memory of devices is in no figure: the descriptors of {whose} may not be read")
        if self.silent:
            remarks.append(f"drivers that tell of no memory here, so that it is in no figure: {_drivers(self.silent)}")
        if self.nameless:
            remarks.append(
                f"drivers that give their clients no id here, so that of these the largest alone counts: {_drivers(self.nameless)}"
            )
        if self.uses_nvidia and not self.asks_nvidia:
            remarks.append("memory of NVIDIA's driver is in no figure, as NVML was not asked: `memprof doctor` says why")
        if self.left_out:
            remarks.append(
                f"there was no time to read descriptors every 8 ms: a peak of devices may be missed ({self.left_out} readings left out)"
            )
        return remarks


def _drivers(names: Iterable[str]) -> str:
    return ", ".join(sorted(name if name != "-" else "one without a name" for name in names))


def merge_devices(before: dict[str, Any], record: dict[str, Any]) -> None:
    """Take the peaks of the same phase before; figures at the end stay."""
    if "device_peak_bytes" not in before or "device_peak_bytes" not in record:
        return
    record["device_peak_bytes"] = max(before["device_peak_bytes"], record["device_peak_bytes"])
    kinds = {kind["kind"]: kind for kind in record["devices"]}
    for kind in before["devices"]:
        other = kinds.setdefault(kind["kind"], {"kind": kind["kind"], "peak_bytes": 0, "end_bytes": 0, "resident_end_bytes": 0})
        other["peak_bytes"] = max(other["peak_bytes"], kind["peak_bytes"])
    record["devices"] = list(kinds.values())
