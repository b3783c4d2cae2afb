"""The curves of Work as arrays: memory after units of a phase's work."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError
from ..base.units import format_bytes
from .store import numbers, unpacked_columns, unpacked_devices
from .types import MODEL_LOAD, PREPARE, Anchors, Run, Work

_MOST_ROWS = 1 << 16
_LEAST_FREED, _FREED_SHARE = 4 << 20, 0.05  # of freed memory before the work, and of the resident set, to be worth a sentence
_CALLED = "a curve of memory by units"


class WorkAnchors(Struct, frozen=True):
    """Anchors, unpacked: bytes by iteration; heap_used and heap_free are empty if the allocator does not tell."""

    iteration: Sequence[int]
    seen: Sequence[int]
    rss: Sequence[int]
    swap: Sequence[int]
    heap_used: Sequence[int]
    heap_free: Sequence[int]


class Curve(Struct, frozen=True):
    """Work, unpacked: t_ns, then bytes, then how much of each unit was done; all of one length. looks: the exact looks between. device: memory of
    devices beside the resident set, as it was read last, every 8 ms; empty where there was none."""

    phase: str
    t_ns: Sequence[int]
    rss: Sequence[int]
    file: Sequence[int]
    swap: Sequence[int]
    counts: Mapping[str, Sequence[int]]
    looks: WorkAnchors | None
    device: Sequence[int] = ()

    @property
    def whole(self) -> list[int]:
        """Resident and swapped pages, and memory of devices, as they are at that time."""
        device = self.device or [0] * len(self.rss)
        return [sum(parts) for parts in zip(self.rss, self.swap, device, strict=True)]


def curve_of(run: Run) -> Curve:
    """The curve of a run that has work: of the phase with most rows. Raises what `unpack` does."""
    curve = unpack(max(run.work, key=lambda record: record.rows))
    t_ns, sizes = numbers(unpacked_devices(run.timeline, _CALLED), _CALLED)
    if not sizes:
        return curve
    places = [bisect_right(t_ns, at) for at in curve.t_ns]
    return replace(curve, device=[sizes[place - 1] if place else 0 for place in places])


def last_round(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs of the last round, from runs of one variant in their order: a round begins with repeat 1."""
    begin = max((place for place, run in enumerate(runs) if run.job.repeat == 1), default=0)
    return runs[begin:]


def unpack(work: Work) -> Curve:
    """The arrays of a curve. Raises InputError if they are damaged."""
    if len(work.counts) != len(work.units) or not work.units or not 0 < work.rows <= _MOST_ROWS:
        raise InputError(f"{_CALLED} is damaged: its units or its rows do not fit together")
    packed = unpacked_columns((work.t_ns, work.rss, work.file, work.swap, *work.counts), work.rows, _CALLED)
    t_ns, rss, file, swap, *counts = numbers(packed, _CALLED)
    if len(t_ns) != work.rows:
        raise InputError(f"{_CALLED} is damaged: its units or its rows do not fit together")
    looks = _looks(work.anchors) if work.anchors is not None else None
    return Curve(work.phase, t_ns, rss, file, swap, dict(zip(work.units, counts, strict=True)), looks)


def _looks(anchors: Anchors) -> WorkAnchors:
    texts = [anchors.iteration, anchors.seen, anchors.rss, anchors.swap]
    if anchors.heap_used is not None and anchors.heap_free is not None:
        texts += [anchors.heap_used, anchors.heap_free]
    if not 0 < anchors.rows <= _MOST_ROWS:
        raise InputError(f"{_CALLED} is damaged: its units or its rows do not fit together")
    columns = numbers(unpacked_columns(texts, anchors.rows, _CALLED), _CALLED)
    return WorkAnchors(*columns, *([()] * (6 - len(columns))))


def freed_before(run: Run) -> str | None:
    """A sentence on freed memory that glibc holds when the work begins, without its large letter and full stop; None where that is next to nothing.

    ONNX Runtime 1.32 left 32 or 64 MiB there, by small blocks of Python that lay before the model's in the heap: others in `memprof grow` than in
    `memprof run`.
    """
    last = next((mark for mark in reversed(run.marks) if mark.phase in (MODEL_LOAD, PREPARE)), None)
    freed = (last.heap_free_end_bytes or 0) if last is not None else 0
    if last is None or freed <= max(_LEAST_FREED, _FREED_SHARE * (last.rss_end_bytes or 0)):
        return None
    return (
        f"at the end of {last.phase} glibc's heap holds {format_bytes(freed)} of freed memory. How much it holds depends on small blocks that were "
        "allocated before, so that `memprof run` of the same model may show a few tensors more or less; with `--set malloc_mmap_threshold=64KiB` "
        "large blocks go back at once"
    )
