"""The fold of a recording: what happened on a machine, line by line, becomes a Run. Pure: no clock, no process, no file.

`Fold` takes the lines as they come, so that memprof follows a run while it goes on: which phase runs, and what is to be done now (`notices`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ..base.errors import InputError
from ..base.units import format_duration
from ..records.recorder_order import Header
from ..records.types import RUN, SCHEMA, STARTUP, Run
from . import events
from .charges import GroupCharges
from .events import decoded, number, unescaped
from .kills import KillCounts
from .life import Life, Usage
from .line_phases import LinePhases, StatusLook, Word
from .marks import MarkFold
from .order import decode
from .outcome import LaunchFailure, ProgramEnd, judge
from .phases import Phases, read_record
from .process import ProcessState
from .state import FoldState

_DAMAGE = (ArithmeticError, LookupError, TypeError, ValueError, re.error, msgspec.MsgspecError)  # what a line that is none may raise
# Made here, before there are threads: msgspec crashes when two of them are the first to decode a dataclass (0.22).
_word = msgspec.json.Decoder(Word)
_LOST = {"status": "lost", "message": "it was ended, with memprof, while it ran", "cut": "recorder"}


class Notice(NamedTuple):
    """What is to be done while the run goes on.

    kind: held (text: PHASE, PHASE/peak or PHASE/COUNT), say (text: a sentence), stop (the process is to be stopped), ended (memprof's own word that
    a phase has ended was read; text: the phase) or done (the program said that it is).
    """

    kind: str
    text: str
    pid: int = 0


def fold(lines: Iterable[bytes], place: str = "the recording") -> Run:
    """The Run of a recording. A recording that was cut off makes a Run with that outcome. Raises InputError for lines that are none of a
    recording."""
    made = Fold(place)
    for line in lines:
        if line.endswith(b"\n"):  # else it was cut off
            made.take(line[:-1])
    return made.run()


class Fold:
    """The state of a fold. place: where the lines come from, for errors."""

    def __init__(self, place: str = "the recording") -> None:
        self._place = place
        self._count = 0
        self._scales: tuple[int, int] | None = None  # bytes of a page, clock ticks in a second
        self._view: _View | None = None
        self.notices: deque[Notice] = deque()

    @property
    def phase(self) -> str:
        """The phase that runs, empty for none."""
        return self._view.phases.name if self._view is not None else ""

    @property
    def rss(self) -> int:
        """What was resident when it was last read, in bytes."""
        return self._view.state.rss if self._view is not None else 0

    @property
    def started(self) -> bool:
        """Whether the recording has its order."""
        return self._view is not None

    @property
    def over(self) -> bool:
        """Whether the recording is complete."""
        return self._view is not None and self._view.over

    def take(self, line: bytes) -> None:
        """Take a line, without its end. Raises InputError for one that is none of a recording."""
        self._count += 1
        kind, _, rest = line.partition(b" ")
        try:
            if self._view is not None:
                self._view.take(kind, rest)
            elif kind == b"recording":
                self._scales = self._version(rest)
            elif kind == b"order" and self._scales is not None:
                self._view = _View(decode(unescaped(rest.partition(b" ")[2])), *self._scales, self.notices)
            else:
                raise ValueError("a recording begins with the lines recording and order")
        except _DAMAGE as error:
            raise InputError(f"{self._place}, line {self._count}: {error}") from None

    def _version(self, rest: bytes) -> tuple[int, int]:
        version, page, ticks = (int(field) for field in rest.split()[:3])
        if version != events.VERSION:
            raise ValueError(f"the recording has version {version}; this memprof reads version {events.VERSION}")
        return page, ticks

    def run(self) -> Run:
        """The Run of what was taken; if the recording is not complete, its outcome has that. More lines can be taken afterwards, though they no
        longer narrow the bounds of the samples up to here. Raises InputError."""
        if self._view is None:
            raise InputError(f"{self._place}: there is no recording")
        try:
            return self._view.run()
        except _DAMAGE as error:
            raise InputError(f"{self._place}, line {self._count}: {error}") from None


class _View:
    """All that the lines tell."""

    def __init__(self, header: Header, page: int, ticks: int, notices: deque[Notice]) -> None:
        self._notices = notices
        self.state = state = FoldState(header, page, ticks)
        self.phases = Phases(state)
        self._marks = MarkFold(state, self.phases, self._leave_lines)
        self._lines = LinePhases(state, self.phases, self._marks.work)
        self._kills, self._life, self._end = KillCounts(), Life(), ProgramEnd()
        self._failure: LaunchFailure | None = None
        self._looks: dict[str, StatusLook] = {}  # the first and the last look at a process that is only looked at
        self._wanted = {phase: list(counts) for phase, counts in (header.message.hold.units if header.message.hold else {}).items()}
        self._ends_held = (
            {STARTUP} if header.message.hold and header.message.hold.ends else None
        )  # the phases whose ends need no hold any more
        self._held = self._name_held = ""  # at what it is, or is about to be, held; and was held last
        self._outcome: dict[str, Any] = {}
        self._watched = GroupCharges()
        self._periods: list[int] = []
        self._tail, self._output_bytes = b"", 0
        self._left: list[str] = []
        self._refused: list[str] = []
        self._left_out = 0
        self.over = False
        tree = state.tree
        self._takes: dict[bytes, Callable[[list[bytes]], None]] = {
            b"begin": self._begin,
            b"error": self._error,
            b"start": self._start,
            b"layout": self._layout,
            b"process": self._process,
            b"separate": self._separate,
            b"lineage": self._lineage,
            b"missed": lambda fields: tree.lose_sight(int(fields[1]), fields[2] != b"files"),
            b"command": lambda fields: tree.see_command(int(fields[1]), decoded(b" ".join(fields[2:]))),
            b"stat": self._stat,
            b"gone": lambda fields: tree.go(int(fields[0]), int(fields[1])),
            b"ended": self._ended,
            b".": self._poll,
            b"status": self._status,
            b"huge": self._huge,
            b"round": lambda fields: tree.begin_round() if fields[1] == b"begin" else tree.end_round(),
            b"shares": lambda fields: tree.see_shares(int(fields[2]), events.shares_at(fields, 3)[0]),
            b"maps": self._maps,
            b"mapped": lambda fields: tree.complete_mappings(),
            **{kind: partial(tree.see_devices, kind) for kind in (b"buffers", b"clients", b"tables")},
            b"nvidia": lambda fields: tree.see_nvidia(int(fields[0]), fields[2:]),
            b"group": state.charges.see,
            b"charge": self._watched.see_charge,
            b"bound": self._watched.see_bound,
            b"look": self._look,
            b"mark": self._mark,
            b"closed": lambda fields: self._marks.close(fields[1] == b"1"),
            b"output": self._output,
            b"tail": self._take_tail,
            b"stopped": self._stopped,
            b"limit": self._limit,
            b"kills": lambda fields: self._kills.count(number(fields[1]), number(fields[2])),
            b"kernel": lambda fields: self._kills.name(number(fields[1])),
            b"left": self._leave,
            b"refused": self._refuse,
            b"fault": self._fault,
            b"periods": self._take_periods,
            b"end": self._finish,
        }

    def take(self, kind: bytes, rest: bytes) -> None:
        """Take a line. Kinds that are not known here are left out: their file, or a later version's."""
        take = self._takes.get(kind)
        if take is not None:
            take(rest.split(b" "))

    # -- the begin

    def _begin(self, fields: list[bytes]) -> None:
        state = self.state
        state.begin_ns, state.usable = int(fields[0]), int(fields[1])
        state.recorder_hwm, state.recorder = (number(fields[2]) or 0) << 10, int(fields[3])

    def _error(self, fields: list[bytes]) -> None:
        head = bytes.fromhex(fields[3].decode()) if fields[3] != b"-" else b""
        self._failure = LaunchFailure(fields[1].decode(), int(fields[2]), head, decoded(b" ".join(fields[4:])))

    def _start(self, fields: list[bytes]) -> None:
        self.state.root = self.state.measured = int(fields[1])
        if self.state.header.message.start.attach is not None:
            self.phases.name = "RUN"
        self._lines.start()

    def _layout(self, fields: list[bytes]) -> None:
        if fields[1] != b"1":
            self.state.warnings.append("address space randomisation could not be turned off here: --deterministic is only partly so")

    # -- processes

    def _process(self, fields: list[bytes]) -> None:
        t_ns, pid, parent = int(fields[0]), int(fields[2]), int(fields[3])
        if pid in self._marks.strangers:
            return
        own, at = events.reading_at(fields, 5, self.state.page)
        of_parent, at = events.reading_at(fields, at, self.state.page)
        process = ProcessState(pid, parent or None, None, t_ns, decoded(b" ".join(fields[at:])), samples_before=self.state.polls)
        self.state.tree.find(t_ns, process, fields[4] == b"1", own, of_parent)

    def _separate(self, fields: list[bytes]) -> None:
        self.state.tree.separate(int(fields[0]), int(fields[2]), events.reading_at(fields, 3, self.state.page)[0])

    def _lineage(self, fields: list[bytes]) -> None:
        pid, above = int(fields[1]), [int(field) for field in fields[2:] if field != b"-"]
        belongs = any(self.state.tree.has(other) or other == self.state.recorder for other in above)
        if above and not belongs:  # nothing is above one that has ended by now
            self._marks.strangers.add(pid)

    def _stat(self, fields: list[bytes]) -> None:
        stat, at = events.stat_at(fields, 2)
        if stat is not None:
            self.state.tree.see_stat(int(fields[0]), int(fields[1]), stat, decoded(b" ".join(fields[at:])))

    def _ended(self, fields: list[bytes]) -> None:
        t_ns, pid, status, minor, major, cpu_ns, largest = (int(field) for field in fields[:7])
        state = self.state
        if pid == state.root:
            state.end_ns, self._end.status = t_ns, status
            self._life.usage = Usage(minor, major, cpu_ns, largest << 10)
            if state.tree.most <= 1 and state.measured == pid and state.tree.waited(pid):
                state.tree.unseen = max(1, state.tree.unseen)  # it has waited for a child, and no poll saw that
        elif self._end.status is not None:
            self._life.outlived = True
        state.tree.reap(pid, minor)

    # -- memory

    def _poll(self, fields: list[bytes]) -> None:
        begin_ns, state = int(fields[0]), self.state
        changes = [(int(fields[at]), events.statm_bytes(fields[at + 1 : at + 4], state.page)) for at in range(4, len(fields) - 3, 4)]
        state.polls = int(fields[3])
        state.tree.poll(begin_ns, begin_ns + int(fields[1]), int(fields[2]), state.polls, changes)
        self.phases.settle(self.state.tree.own.settled_ns)

    def _status(self, fields: list[bytes]) -> None:
        begin_ns = int(fields[0])
        self.state.tree.see_status(begin_ns, begin_ns + int(fields[1]), int(fields[2]), events.status_at(fields, 3)[0])

    def _huge(self, fields: list[bytes]) -> None:
        count = number(fields[1])
        if count is not None:
            self.state.tree.see_huge(count)

    def _maps(self, fields: list[bytes]) -> None:
        page = self.state.page
        parts = []
        for field in fields[2:]:
            if field:
                file, first, count = (int(part) for part in field.split(b":"))
                parts.append((file, first * page, (first + count) * page))
        self.state.tree.see_mappings(int(fields[1]), parts)

    def _look(self, fields: list[bytes]) -> None:
        status, at = events.status_at(fields, 4)
        shares, at = events.shares_at(fields, at)
        stat, at = events.stat_at(fields, at)
        self.state.devices.confirm(int(fields[0]))
        look = StatusLook(int(fields[0]), status, shares, stat, number(fields[at]), fields[3] == b"1")
        text = unescaped(b" ".join(fields[at + 1 :]))
        if text.startswith(b"{"):
            self._take_word(look, _word.decode(text))
        elif text in (b"begin", b"end"):
            self._looks[text.decode()] = look
        else:
            self._lines.look(look)
            self._want()

    def _take_word(self, look: StatusLook, word: Word) -> None:
        if word.word in ("ended", "counted"):
            (self._lines.end_driven if word.word == "ended" else self._lines.count_driven)(look, word)
            self._notices.append(Notice("ended", word.phase))
            self._want()
            return
        self._end.stopped = True
        if word.word == "failed":
            self._marks.error = {"status": "error", "phase": word.phase, "message": word.message}

    # -- lines of the program

    def _mark(self, fields: list[bytes]) -> None:
        self.state.polls = int(fields[1])
        done = self._marks.done
        self._marks.take(int(fields[0]), unescaped(b" ".join(fields[2:])))
        if self._marks.done and not done:
            self._notices.append(Notice("done", ""))
        self._notices.extend(Notice("say", sentence) for sentence in self._marks.said)
        self._marks.said.clear()
        self._want()

    def _leave_lines(self) -> None:
        """The first phase by marks begins: the output is not searched any more."""
        if self._lines.stop():
            self.phases.records.clear()
            self.state.warnings.append("its phases came by marks or by functions: its output was not searched for them")

    def _want(self) -> None:
        """Ask for the program to be held once it has done so much work, or ended a phase, as memprof wants to see it after."""
        for phase, counts in self._wanted.items():
            work = self._marks.work.get(phase)
            if counts and work is not None and work.done >= counts[0] and not self._held:
                counts.pop(0)
                self._held = f"{phase}/{work.done}"
                self._notices.append(Notice("stop", self._held, self.state.measured))
        ended = self.phases.last
        if self._ends_held is not None and ended and ended not in self._ends_held and not self._held:
            self._ends_held.add(ended)
            self._held = ended
            self._notices.append(Notice("stop", ended, self.state.measured))

    def _output(self, fields: list[bytes]) -> None:
        self._lines.hear(int(fields[0]), unescaped(b" ".join(fields[1:])))
        self._want()

    def _take_tail(self, fields: list[bytes]) -> None:
        self._output_bytes, self._tail = int(fields[1]), unescaped(b" ".join(fields[2:]))

    # -- reflexes, and the end

    def _stopped(self, fields: list[bytes]) -> None:
        pid, why = int(fields[1]), fields[2]
        if why == b"size":
            self._held = f"{self.phases.name or RUN}/peak"
        elif why == b"itself":
            self._held = self.phases.last or self.phases.name
        name, self._held = self._held, ""
        self._name_held = name
        self._notices.append(Notice("held", name, pid))

    def _limit(self, fields: list[bytes]) -> None:
        self._end.timed_out = True

    def _leave(self, fields: list[bytes]) -> None:
        self._life.outlived = True
        self._left.append(decoded(b" ".join(fields[2:])))

    def _refuse(self, fields: list[bytes]) -> None:
        self._refused.append(decoded(b" ".join(fields[2:])) or fields[1].decode())

    def _fault(self, fields: list[bytes]) -> None:
        what, amount = fields[1], int(fields[2]) if len(fields) > 2 else 0
        hold = self.state.header.message.hold
        if what == b"held" and hold is not None:
            self.state.warnings.append(f"{self._name_held}: it was held for {hold.limit_ns // 10**9} s, its limit, and let go")
        elif what == b"free":
            self.state.warnings.append(f"{self._held or self.phases.last}: it could not be held, for it did not stop")
            self._held = ""
        elif what == b"mark":
            self._marks.foreign += 1
        elif what == b"behind":
            self._left_out += amount
        elif what == b"devices":
            self.state.devices.left_out += amount

    def _take_periods(self, fields: list[bytes]) -> None:
        self._periods = [int(field) for field in fields[1:]]

    def _finish(self, fields: list[bytes]) -> None:
        self.over = True
        self.state.end_ns = self.state.end_ns or int(fields[0])
        self._outcome = self._concluded()

    def _concluded(self) -> dict[str, Any]:
        """What is known once all is over: the outcome, and the records of what no phase told."""
        state, phases, marks = self.state, self.phases, self._marks
        message = state.header.message
        if self._failure is not None:
            return self._failure.outcome(state)
        if message.start.attach is not None:
            self._attached()
            return {"status": "ok"}
        self._lines.finish()
        self._end.out_of_memory = True if state.charges.kills else self._kills.killed((state.root, state.measured))
        outcome = judge(state, phases, marks, self._lines, self._end)
        if marks.foreign:
            state.warnings.append(f"{marks.foreign} line(s) on the marks' descriptor were not understood and left out")
        phases.settle_all()
        if message.start.command is not None:
            self._complete_command(outcome)
        state.warnings += self._remarks()
        return outcome

    def _complete_command(self, outcome: dict[str, Any]) -> None:
        state, phases, lines = self.state, self.phases, self._lines
        if outcome["status"] == "exit" and not outcome.get("message"):
            last = _last_line(self._tail)
            outcome["message"] = last or ("its shell did not find the command" if outcome["exit_code"] == 127 else None)
        if outcome["status"] == "ok":
            self._life.complete(state, phases, self._marks)
            missed = lines.missed() if lines.active else []
            if missed:
                outcome.update(status="lost", phase=lines.unmatched[0], message="; ".join(missed))
        phases.settle_all()
        if not lines.active:
            self._marks.outside.complete(state.end_ns, self._life.peak(state))

    def _attached(self) -> None:
        """The one phase of a process that was only looked at."""
        state = self.state
        self.phases.settle_all()
        before, after = self._looks.get("begin"), self._looks.get("end")
        first = before.sizes(state.page) if before is not None else {}
        sizes = after.sizes(state.page) if after is not None else {}
        begin_ns, end_ns = state.begin_ns, after.t_ns if after is not None else state.end_ns
        hwm, alone = sizes.pop("hwm", 0), state.tree.most <= 1
        vms_peak = sizes.pop("vms_peak", 0)
        rose = alone and hwm > first.get("hwm", 0)
        own = (hwm if rose else 0, first.get("rss", 0), sizes.get("rss", 0)) if alone else (0,)
        low, high = state.tree.own.highest(begin_ns, end_ns)
        record = read_record("RUN", begin_ns, end_ns, max(low, *own))
        record.update((f"{name}_end_bytes", size) for name, size in sizes.items())
        if "rss" in first:
            record["rss_begin_bytes"] = first["rss"]
        if hwm:
            record.update(hwm_bytes=hwm, vms_peak_bytes=vms_peak)
        else:
            state.warnings.append(f"{self._ended_one()} ended while it was polled")
        record.update(self._watched.mark())
        self.phases.keep(record, devices_read=after is not None)
        record.update(rss_peak_exact=rose, samples=state.polls)
        if state.tree.most > 1:
            record["rss_peak_high_bytes"] = max(record["rss_peak_bytes"], high)
        state.warnings += self._remarks()

    def _ended_one(self) -> str:
        if not self.state.header.message.start.watch:
            return "the process"
        return "the first process of the control group" if self.state.tree.any_lives() else "the control group's last process"

    # -- the Run

    def run(self) -> Run:
        """The Run of what was taken so far."""
        state, header = self.state, self.state.header
        if not self.over:
            self.phases.settle_all()
        outcome = self._outcome if self.over else {**_LOST, "phase": self.phases.name or None}
        timeline = state.tree.whole.timeline
        columns: dict[str, Any] = {
            **timeline.encoded(),
            **state.swap.columns(),
            **state.devices.columns(),
            "samples": state.polls - state.polls_before if timeline else 0,
            "rss_min_bytes": timeline.rss_min,
            "rss_mean_bytes": timeline.mean(),
            "rss_max_bytes": timeline.rss_max,
        }
        if state.tree.most > 1:
            columns["rss_max_high_bytes"] = max(state.tree.whole.most, timeline.rss_max)
        work = [curve.encoded(phase) for phase, curve in self._marks.work.items()]
        record: dict[str, Any] = {
            "memprof": SCHEMA,
            "job": msgspec.to_builtins(header.message.job),
            "machine": {**msgspec.to_builtins(header.machine), "peak_bound_bytes": state.peak_bound},
            "started_ns": header.started_ns,
            "outcome": outcome,
            "timeline": columns,
            "marks": self.phases.records,
            "about": self._marks.about,
            "polling": self._polling(),
            "warnings": state.warnings,
            "output_bytes": self._output_bytes,
            "charged": state.charges.charged() or self._watched.charged(header.message.start.watch),
            "values": self._marks.values.records,
            "work": [curve for curve in work if curve],
            "processes": state.tree.records() if state.tree.most > 1 else [],
        }
        if outcome["status"] != "ok":
            record["output_tail"] = self._tail.decode("utf-8", "replace")
        return msgspec.convert(record, Run)

    def _polling(self) -> dict[str, int] | None:
        if not self._periods:
            return None
        last = len(self._periods) - 1
        return {"polls": self.state.polls, "median_ns": self._periods[last // 2], "p99_ns": self._periods[last * 99 // 100]}

    def _remarks(self) -> list[str]:
        """Warnings for the reader of the figures."""
        remarks = [*self._marks.remarks(), *self._sum_remarks(), *self.state.devices.remarks()]
        if self._lines.active and self._lines.matched:
            remarks.append("phases end where a line arrived: their times and peaks are approximate")
        if self._left and not self._end.timed_out:
            who = ", ".join(sorted({name for name in self._left if name}))
            remarks.append(f"processes that outlived the measured one and were ended: {len(self._left)}{f' ({who})' if who else ''}")
        if self._refused:
            who = ", ".join(self._refused)
            remarks.append(f"processes of another user that could not be ended and may still run: {len(self._refused)} ({who})")
        if self._left_out:
            remarks.append(f"{self._left_out} polls were left out, as memprof did not take what was read in time")
        return remarks

    def _sum_remarks(self) -> list[str]:
        state, tree = self.state, self.state.tree
        remarks = []
        # If all resident sets together never exceed the largest of one process, as with a shell that was gone at the peak, it has all figures.
        if tree.most > 1 and tree.together > tree.largest_seen() + state.peak_bound:
            how = "pages they share counted once"
            if not tree.rounds:
                how = "pages they share counted once as far as is known (they ended before the kernel's PSS was read)"
            elif tree.refused:
                how = f"pages they share counted once, but possibly in full in {tree.refused} whose PSS may not be read"
            who = tree.name_of(state.measured) or "the process that has the phase"
            what = "peaks and the timeline are" if tree.is_whole else f"peaks are of {who} and what it starts, the timeline is"
            remarks.append(f"up to {tree.most} processes at once ({tree.names()}); {what} of their sum, {how}")
        if tree.most > 1:
            who = tree.name_of(state.measured) or "the process that has the phase"
            if any("anon_end_bytes" in mark and not mark["rss_peak_exact"] for mark in self.phases.records):
                remarks.append(f"anonymous memory, VMS, HWM, PSS and all else but peaks are of {who} alone, without what it starts")
        if tree.unseen and state.header.message.start.followed:
            polling = self._polling()
            apart = f", mostly {format_duration(polling['median_ns'])} apart," if polling is not None else ""
            remarks.append(f"processes that started and ended between two readings{apart} and are in no figure: at least {tree.unseen}")
        if tree.unfollowed:
            remarks.append(f"processes that were not followed, because too many files are open here: {tree.unfollowed}")
        return remarks


_FAILURES = re.compile(r"\b\d+ (?:failed|errors?)\b.* in [\d.]+s")


def _last_line(output: bytes) -> str | None:
    """The last line of an output, behind the first that names what failed where that line only counts it, as pytest's does."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if named and _FAILURES.search(lines[-1]):
        return f"{named[0]}; {lines[-1].strip('= ')}"
    return lines[-1] if lines else None
