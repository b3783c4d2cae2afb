"""phases.json, which `memprof heap record` keeps beside a profile: the run's phases, put onto the snapshots' own clock.

    {"memprof_heap": 1, "tool": "heaptrack", "files": ["heaptrack.zst"], "begin_ns": N, "wall_offset_ns": N, "partial": null,
     "zero_ns": N, "zero_error_ns": N, "phases": [{"name": "MODEL_LOAD", "begin_ns": N, "end_ns": N, "rss_peak_bytes": N}, ...]}

Times are CLOCK_MONOTONIC. begin_ns is the recorder's start, which STARTUP, the tool's launch, follows; wall_offset_ns by how much CLOCK_REALTIME
(memray's clock) is ahead. zero_ns is where alignment.py put the tool's time 0, and zero_error_ns how far it may be off; both are absent where it
could not. rss_peak_bytes, with the tool's own memory in it, is absent in earlier files and where pages were
swapped out. It is no runs file, so that a run under a tool is never compared with a plain one.
"""

from __future__ import annotations

import stat
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from ..base.errors import InputError
from ..base.files import content
from ..base.files import write as write_whole
from ..base.units import format_bytes
from ..records.types import STARTUP, Run
from .alignment import ClockZero
from .profile import HeapProfile, PhaseSpan, TimeUnit

NAME = "phases.json"
# How much later than its launch a tool begins to count time, at most: valgrind and heaptrack's shell script must start first.
ERROR_S = {"massif": 0.5, "heaptrack": 0.3, "memray": 0.02}
# A run of a hundred thousand phases takes 10 MiB.
_MOST_BYTES = 16 << 20
_SCALES: dict[TimeUnit, float] = {"ms": 1e6, "s": 1e9}  # nanoseconds in a profile's unit of time


_Ns = Annotated[int, msgspec.Meta(gt=-(1 << 62), lt=1 << 62)]


class _Phase(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    begin_ns: _Ns
    end_ns: _Ns | None
    rss_peak_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] | None = None


class _Record(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    memprof_heap: int
    tool: str
    files: list[str]
    begin_ns: _Ns
    wall_offset_ns: _Ns
    partial: str | None
    phases: list[_Phase]
    zero_ns: _Ns | None = None
    zero_error_ns: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0


def write(folder: Path, tool: str, files: Sequence[str], run: Run, partial: str | None, zero: ClockZero | None) -> None:
    """Keep a run's phases beside the files of its tool. zero: where the tool's time 0 lies, if that is known better than by its launch."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    marks = [
        _Phase(mark.phase, mark.begin_ns, mark.end_ns, None if mark.swapped_bytes else mark.rss_peak_high_bytes or mark.rss_peak_bytes)
        for mark in run.marks
    ]
    last = max((mark.end_ns for mark in run.marks), default=0)
    failed = run.outcome.phase
    if not run.outcome.ok and failed and not failed.startswith("after") and failed not in {mark.phase for mark in run.marks} and marks:
        marks.append(_Phase(failed, last, None))
    record = _Record(1, tool, list(files), run.started_ns - offset_ns, offset_ns, partial, marks, *(zero or ()))
    write_whole(folder / NAME, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def with_phases(profile: HeapProfile, path: Path) -> HeapProfile:
    """The profile with the phases that lie beside its file; unchanged if there are none.

    Raises InputError if phases.json is not of the form that `memprof heap record` writes.
    """
    record = _beside(path)
    if record is None:
        return profile
    first = path.name == record.files[0]  # the others are of its forked children, which end as they please
    partial = profile.partial or (record.partial if first else None)
    # A child that ran another program has a clock of its own, which nothing tells but a tool that writes CLOCK_REALTIME.
    phases = _spans(record, profile.time_unit, profile.started_ns) if first or profile.started_ns is not None else ()
    if not phases:
        return replace(profile, partial=partial)
    names = _names((snapshot.time for snapshot in profile.snapshots), phases)
    aligned = profile.started_ns is None and record.zero_ns is not None
    uncertain_ns = record.zero_error_ns if aligned else ERROR_S.get(record.tool, 0.5) * 1e9
    return replace(
        profile,
        snapshots=tuple(replace(snapshot, phase=names.get(snapshot.time)) for snapshot in profile.snapshots),
        phases=phases,
        phase_error=uncertain_ns / _SCALES[profile.time_unit],
        started_ns=record.zero_ns + record.wall_offset_ns if aligned and record.zero_ns is not None else profile.started_ns,
        partial=partial,
    )


def spans(path: Path, unit: TimeUnit, started_ns: int | None, split: tuple[str, int] | None = None) -> tuple[PhaseSpan, ...]:
    """The phases that lie beside a profile's file, on its snapshots' clock: for a parser that chooses its snapshots by them.

    started_ns: see HeapProfile. split: a phase that is given as so many, of equal time. Raises InputError as with_phases does.
    """
    record = _beside(path)
    whole = () if record is None else _spans(record, unit, started_ns)
    return whole if split is None else tuple(part for span in whole for part in _parts(span, *split))


def _parts(span: PhaseSpan, name: str, count: int) -> list[PhaseSpan]:
    if span.name != name or span.end is None:
        return [span]
    step = (span.end - span.begin) / count
    return [PhaseSpan(name, span.begin + number * step, span.begin + (number + 1) * step) for number in range(count)]


def _beside(path: Path) -> _Record | None:
    beside = path.parent / NAME
    try:
        facts = beside.stat()
        if not stat.S_ISREG(facts.st_mode):  # nobody named this file: a pipe there is not waited for
            return None
        if facts.st_size > _MOST_BYTES:
            raise InputError(f"{beside} is not what `memprof heap record` writes: it is larger than {format_bytes(_MOST_BYTES)}")
        data = content(beside)
    except OSError:
        return None
    try:
        record = msgspec.json.decode(data, type=_Record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]  # a field's name may hold anything
        raise InputError(f"{beside} is not what `memprof heap record` writes: {reason}") from None
    return record if path.name in record.files else None


def _spans(record: _Record, unit: TimeUnit, started_ns: int | None) -> tuple[PhaseSpan, ...]:
    scale = _SCALES.get(unit)
    if scale is None:
        return ()
    launch_ns = next((phase.begin_ns for phase in record.phases if phase.name == STARTUP), record.begin_ns)
    aligned_ns = launch_ns if record.zero_ns is None else record.zero_ns
    zero_ns = aligned_ns if started_ns is None else started_ns - record.wall_offset_ns
    return tuple(
        PhaseSpan(
            phase.name,
            max(0.0, (phase.begin_ns - zero_ns) / scale),
            None if phase.end_ns is None else (phase.end_ns - zero_ns) / scale,
            phase.rss_peak_bytes,
        )
        for phase in record.phases
    )


def _names(times: Iterable[float], spans: Sequence[PhaseSpan]) -> dict[float, str]:
    """The phase of each time that is in one; where phases lie over one another, the last of them.

    Each time is named once: spans are taken from the last, and step over the times that have a name by `following`, the next without one or a
    time on the way there. So a file full of phases takes no longer than to sort its times.
    """
    ordered = sorted(set(times))
    following = list(range(len(ordered) + 1))
    names: dict[float, str] = {}

    def unnamed(at: int) -> int:
        while following[at] != at:
            following[at] = following[following[at]]
            at = following[at]
        return at

    for span in reversed(spans):
        at = unnamed(bisect_left(ordered, span.begin))
        while at < len(ordered) and (span.end is None or ordered[at] <= span.end):
            names[ordered[at]] = span.name
            following[at] = at + 1
            at = unnamed(at)
    return names
