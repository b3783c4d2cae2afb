"""The lines of a recording, read: the readings of /proc in bytes, and texts without their escapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

VERSION = 1


def escaped(text: bytes) -> bytes:
    """A TEXT as a line holds it."""
    return text.replace(b"\\", b"\\\\").replace(b"\n", b"\\n") if b"\\" in text or b"\n" in text else text


def unescaped(text: bytes) -> bytes:
    """The TEXT of a line as it was read."""
    if b"\\" not in text:
        return text
    return b"\\".join(part.replace(b"\\n", b"\n") for part in text.split(b"\\\\"))


def decoded(text: bytes) -> str:
    """A name or a word, with what is no UTF-8 replaced."""
    return unescaped(text).decode("utf-8", "replace")


def number(field: bytes) -> int | None:
    """A field, None for what could not be read."""
    return None if field == b"-" else int(field)


class StatFields(Struct, frozen=True):
    """Fields of a process's stat. stack: where its stack begins, which stays after a fork and changes at an exec; 0 if it may not be seen."""

    state: str
    minor_faults: int
    child_faults: int
    major_faults: int
    ticks: int
    threads: int
    stack: int

    @property
    def over(self) -> bool:
        """Whether nothing is left of the process but its exit code: the first thread of several may be a zombie while the others live."""
        return self.state in "ZX" and self.threads <= 1


def stat_at(fields: Sequence[bytes], at: int) -> tuple[StatFields | None, int]:
    """STAT from a place on, and the place behind it."""
    if fields[at] == b"-":
        return None, at + 1
    numbers = (int(field) for field in fields[at + 1 : at + 7])
    return StatFields(fields[at].decode(), *numbers), at + 7


class ProcessReading(NamedTuple):
    """What was read of a process at once: (rss, file-backed, vms) in bytes, and its stat; None for what could not be read."""

    statm: tuple[int, int, int] | None
    stat: StatFields | None


def statm_bytes(fields: Sequence[bytes], page: int) -> tuple[int, int, int]:
    """The three fields of STATM as (rss, file-backed, vms) in bytes."""
    size, resident, shared = fields
    return int(resident) * page, int(shared) * page, int(size) * page


def reading_at(fields: Sequence[bytes], at: int, page: int) -> tuple[ProcessReading, int]:
    """STATM and STAT from a place on, and the place behind them."""
    known = fields[at] != b"-"
    behind = at + 3 if known else at + 1
    stat, end = stat_at(fields, behind)
    return ProcessReading(statm_bytes(fields[at:behind], page) if known else None, stat), end


_STATUS = ("vms", "vms_peak", "rss", "hwm", "anon", "file", "shmem", "swap")


def status_at(fields: Sequence[bytes], at: int) -> tuple[dict[str, int], int]:
    """STATUS from a place on, and the place behind it: bytes by the names of a mark's figures, and the number of threads. What could not be read is
    missing."""
    if fields[at] == b"-":
        return {}, at + 1
    end = at + len(_STATUS)
    sizes = {name: int(field) << 10 for name, field in zip(_STATUS, fields[at:end], strict=True) if field != b"-"}
    if fields[end] != b"-":
        sizes["threads"] = int(fields[end])
    return sizes, end + 1


class Shares(Struct, frozen=True):
    """A process's memory by smaps_rollup, in bytes, all as of one moment.

    anon: its anonymous memory. pss: its share of its resident memory. file_overlap: the part of rss - pss that is file-backed and shared memory.
    shared_anon: how much of its anonymous memory another process may have too, at most. private: memory that no other process has. Pss_Anon is
    there from Linux 5.4 on.
    """

    rss: int
    pss: int
    anon: int
    file_overlap: int
    shared_anon: int
    private: int


def shares_at(fields: Sequence[bytes], at: int) -> tuple[Shares | None, int]:
    """ROLLUP from a place on, and the place behind it."""
    if fields[at] == b"-":
        return None, at + 1
    sizes = [0 if field == b"-" else int(field) << 10 for field in fields[at : at + 8]]
    rss, pss, own_anon, anon, shared_clean, shared_dirty, private_clean, private_dirty = sizes
    file_overlap = max(0, rss - pss - max(0, anon - own_anon))
    return Shares(rss, pss, anon, file_overlap, min(anon, shared_clean + shared_dirty), private_clean + private_dirty), at + 8
