"""Phases of a program without marks, seen from outside: they end where a line is printed, or where memprof marks their end as it asks the program for
work.

A line arrives after the phase's end, and its look comes after the line, so times and peaks are approximate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from ..records.types import MODEL_LOAD, REQUEST, WARMUP
from .events import Shares, StatFields
from .phases import Phases, Record, read_record
from .state import FoldState
from .work import UNITS, WorkCurve

_LINE = 4096  # a longer line of output is matched in pieces


class StatusLook(Struct, frozen=True):
    """A closer look at a process. status: sizes in bytes by name. reset: its high-water mark begins again here."""

    t_ns: int
    status: dict[str, int]
    shares: Shares | None
    stat: StatFields | None
    read_bytes: int | None
    reset: bool

    def sizes(self, page: int) -> dict[str, int]:
        """Its memory, the resident set and its parts from smaps_rollup if those differ by more than a page.

        Kernels before 6.17 keep the counters behind status late. For smaps_rollup they walk the pages, so it is exact on every kernel.
        """
        sizes = {name: size for name, size in self.status.items() if name != "threads"}
        if self.shares is not None and "rss" in sizes and abs(self.shares.rss - sizes["rss"]) > page:
            rss, anon = self.shares.rss, self.shares.anon
            sizes.update(rss=rss, anon=anon, file=max(0, rss - anon - sizes.get("shmem", 0)))
        return sizes


class Word(Struct, frozen=True):
    """memprof's own word on the program that it asks for work, in a look's TEXT: a phase has ended, so many units are done since it began, it failed,
    or all is done. remark: a warning."""

    word: Literal["ended", "counted", "failed", "stop"]
    phase: str = ""
    message: str = ""
    times_ns: list[int] = field(default_factory=list)
    units: dict[str, int] = field(default_factory=dict)
    first_token_ns: list[int] = field(default_factory=list)
    remark: str = ""


class LinePhases:
    """lines: whether the output is searched. unmatched: phases whose line has not come. hwm: the largest high-water mark since the phase began."""

    def __init__(self, state: FoldState, phases: Phases, work: dict[str, WorkCurve]) -> None:
        message = state.header.message
        command = message.start.command
        self._state, self._phases, self._work = state, phases, work
        self._follows = message.follows
        self._attached = message.start.attach is not None
        self._regexes = [(phase, re.compile(pattern)) for phase, pattern in command.regexes] if command is not None else []
        self.driven = command is not None and command.driven
        self.active = bool(self._regexes or self.driven)
        self.unmatched = [] if self._attached else [phase for phase, _ in self._regexes]
        self._rest = b""  # a line whose end has not come yet
        self._counts: dict[str, int] = {}  # how many of each unit's lines there were
        self._pending: list[tuple[str, int]] = []  # phases whose line has come, and the look has not
        self._begin_ns = 0
        self._before: StatusLook | None = None
        self._hwm = 0

    def start(self) -> None:
        """The program has started: the first phase begins with it."""
        self._begin_ns = self._state.begin_ns
        if self.active and not self._attached:
            self._phases.name = self.unmatched[0] if self.unmatched else MODEL_LOAD

    def stop(self) -> bool:
        """Search the output no more; whether it was searched."""
        searched = self.active and not self._attached
        if searched:
            self.active, self._pending = False, []
            self._phases.name = ""
        return searched

    def hear(self, t_ns: int, data: bytes) -> None:
        """Output of the program, as it came."""
        if not self._regexes or not self.active:
            return
        self._end_pending(None)
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > _LINE:
            lines.append(self._rest)
            self._rest = b""
        self._match_all(t_ns, lines)

    def _match_all(self, t_ns: int, lines: Iterable[bytes]) -> None:
        before = sum(self._counts.values())
        for line in lines:
            self._match(t_ns, line.decode("utf-8", "replace"))
        if sum(self._counts.values()) > before:
            self._count(t_ns)

    def _match(self, t_ns: int, line: str) -> None:
        phase = next((phase for phase, regex in self._regexes if regex.search(line)), None)
        if phase is None:
            return
        if self._follows and (phase in self._counts or len(self._counts) < UNITS):
            self._counts[phase] = self._counts.get(phase, 0) + 1
        if self._attached:
            return
        if not self._follows or phase not in (pending for pending, _ in self._pending):  # lines of units may be many at once
            self._pending.append((phase, t_ns))
            if phase in self.unmatched:
                self.unmatched.remove(phase)

    def look(self, look: StatusLook) -> None:
        """A closer look at the program; it follows the output that it belongs to."""
        self._hwm = max(self._hwm, look.status.get("hwm", 0))
        if self._pending:
            self._end_pending(look)

    def end_driven(self, look: StatusLook, word: Word) -> None:
        """memprof says that a phase has ended, and what it asked for in it."""
        if not self.active:
            return
        self._hwm = max(self._hwm, look.status.get("hwm", 0))
        record = self._record(word.phase, look.t_ns, look)
        record.update(times_ns=word.times_ns, rss_peak_exact=self._before is None or self._before.reset)
        record.update(units=word.units, first_token_ns=word.first_token_ns)
        if word.remark:
            self._state.warnings.append(word.remark)
        self._keep(record, look)
        self._phases.name = REQUEST if word.phase != MODEL_LOAD else WARMUP

    def count_driven(self, look: StatusLook, word: Word) -> None:
        """memprof says how many units of a phase it has asked for, all of which are done."""
        state, sizes = self._state, look.sizes(self._state.page)
        self._hwm = max(self._hwm, sizes.get("hwm", 0))
        rss, file = sizes.get("rss", 0), sizes.get("file", 0) + sizes.get("shmem", 0)
        if state.tree.last is not None and state.tree.had_others(self._begin_ns, look.t_ns):
            rss, file = state.tree.last[:2]
        row = [look.t_ns, rss, file, state.swap.newest, *word.units.values()]
        self._work.setdefault(word.phase, WorkCurve()).take(list(word.units), row)

    def finish(self) -> None:
        """The program has ended: its last line may lack an end."""
        if self._regexes and self.active and self._rest.strip():
            self._match_all(self._state.end_ns, [self._rest])
        self._end_pending(None)
        if self._counts:
            self._work.get("RUN", WorkCurve()).level_end()

    def missed(self) -> list[str]:
        """A sentence for each phase whose line never came."""
        patterns = {phase: regex.pattern for phase, regex in self._regexes}
        return [f"no line that it printed matches '{patterns[phase]}', the end of {phase}" for phase in self.unmatched]

    @property
    def matched(self) -> bool:
        """Whether a phase has ended with a line."""
        return not self._attached and len(self.unmatched) < len(self._regexes)

    def _end_pending(self, look: StatusLook | None) -> None:
        pending, self._pending = self._pending, []
        for phase, t_ns in pending:
            self._keep(self._record(phase, t_ns, look), look)
            self._phases.name = self.unmatched[0] if self.unmatched else ""

    def _record(self, phase: str, end_ns: int, look: StatusLook | None) -> Record:
        """The record of a phase that ended here; look: None if nobody looked at the program then."""
        state, before = self._state, self._before
        sizes = look.sizes(state.page) if look is not None else {}
        sizes.pop("hwm", None)
        sizes.pop("vms_peak", None)
        rss_before = before.status.get("rss", 0) if before is not None else 0
        hwm_before = before.status.get("hwm", 0) if before is not None else 0
        reset = before is None or before.reset
        mark = self._hwm if reset or self._hwm > hwm_before else rss_before
        peak = max(state.highest(self._begin_ns, end_ns), sizes.get("rss", 0), mark)
        record = read_record(phase, self._begin_ns, end_ns, peak)
        record["rss_begin_bytes"] = rss_before
        record.update((f"{name}_end_bytes", size) for name, size in sizes.items())
        if look is not None:
            record.update(self._differences(before, look))
        return record

    def _differences(self, before: StatusLook | None, look: StatusLook) -> dict[str, int]:
        """What the program did between two looks, or since its start."""
        figures = {}
        if look.stat is not None and not look.stat.over and (before is None or before.stat is not None):
            stats = [(look.stat, 1)] + ([(before.stat, -1)] if before is not None and before.stat is not None else [])
            figures["minor_faults"] = sum(sign * stat.minor_faults for stat, sign in stats)
            figures["major_faults"] = sum(sign * stat.major_faults for stat, sign in stats)
            figures["cpu_ns"] = sum(sign * stat.ticks for stat, sign in stats) * (10**9 // self._state.ticks)
        read_before = 0 if before is None else before.read_bytes
        if look.read_bytes is not None and read_before is not None:
            figures["read_bytes"] = look.read_bytes - read_before
        return figures

    def _keep(self, record: Record, look: StatusLook | None) -> None:
        self._phases.keep(record, devices_read=look is not None)
        self._begin_ns = record["end_ns"]
        if look is not None:
            self._before, self._hwm = look, look.status.get("rss", 0)

    def _count(self, t_ns: int) -> None:
        """Units of work have ended with lines, all that have come at once. The first are the curve's begin: before them the program started."""
        last = self._state.tree.last
        if last is not None:
            row = [t_ns, *last[:2], self._state.swap.newest, *self._counts.values()]
            self._work.setdefault("RUN", WorkCurve()).take(list(self._counts), row)
