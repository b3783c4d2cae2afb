"""The measured program's own marks: lines of JSON (runners/memprof_marks.py has their form) that become the records of its phases.

A line that is not understood is counted and left out: a program may write anything there. Marks that come twice or not at all are put right as far
as possible, and a warning reports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..records.phases import is_reserved
from .fields import count, text, word
from .outside import Outside
from .phases import Phases, Record
from .state import FoldState
from .values import ValueCollector
from .work import UNITS, WorkCurve

_PHASES_OF_WORK = 16
_ERROR_KINDS = ("import", "refused", "error")
_MOST_STRAYS = 5
_FIGURES = (
    "hwm_bytes",
    "rss_begin_bytes",
    "rss_end_bytes",
    "anon_end_bytes",
    "file_end_bytes",
    "shmem_end_bytes",
    "swap_end_bytes",
    "vms_end_bytes",
    "vms_peak_bytes",
    "pss_end_bytes",
    "uss_end_bytes",
    "heap_used_end_bytes",
    "heap_free_end_bytes",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "cpu_ns",
)
Line = dict[str, Any]


class MarkFold:
    """begin: called when the first phase begins. came: whether any mark of a phase came. done: whether the program said that it is done;
    error: what it said of its failure. foreign: how many lines were not understood. work: memory after units of work, by phase. said: sentences for
    the user. strangers: processes that do not belong to the program. begun: when each phase that has begun did so.
    """

    def __init__(self, state: FoldState, phases: Phases, begin: Callable[[], None]) -> None:
        self._state, self._phases, self._begin_first = state, phases, begin
        self.outside = Outside(state, phases)
        self.values = ValueCollector()
        self.about: dict[str, Any] | None = None
        self.work: dict[str, WorkCurve] = {}
        self.came = self.done = False
        self.error: dict[str, Any] | None = None
        self.foreign = 0
        self.said: list[str] = []
        self._alone = _alone(state)
        self.strangers: set[int] = set()
        self.begun: dict[str, int] = {}
        self._ended_in: dict[str, set[int]] = {}  # the processes in which each phase has ended
        self._others: dict[int, str] = {}  # processes whose marks do not count, by their names
        self._strays: list[str] = []
        self._closed_early: bool | None = None
        self._takes = {
            "program": lambda mark: None,  # a debugger names its program's process before that writes a mark
            "begin": self._begin,
            "times": self._times,
            "end": self._end,
            "about": self._about,
            "error": self._fail,
            "done": self._finish,
            "value": self._value,
            "work": self._work,
            "anchor": self._anchor,
            "stray": self._stray,
            "say": self._say,
        }

    def take(self, t_ns: int, line: bytes) -> None:
        """Take a line that came at t_ns."""
        try:
            mark = json.loads(line.decode("utf-8"))
            kind, pid = mark["mark"], count(mark["pid"])
            take = self._takes[kind]
            if pid in self.strangers:
                raise ValueError("a mark of a process that does not belong to the program")
            if pid != self._state.measured and kind != "value":
                if not self._takes_over(kind, pid):
                    self._others.setdefault(pid, self._state.tree.name_of(pid))
                    return
                self._measure(pid)
            if kind in ("begin", "end"):
                self._state.devices.confirm(t_ns)
            take(mark)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            self.foreign += 1

    def close(self, alive: bool) -> None:
        """Nobody has the descriptor any more; alive: the program still had memory."""
        if self._closed_early is None:
            self._closed_early = alive

    # -- who is measured

    def _takes_over(self, kind: str, pid: int) -> bool:
        """Whether another process is the measured process from here on: its marks are the first, or come after the process before it has ended."""
        nobody = not self.came
        return kind in ("begin", "program") and (nobody or (not self._phases.name and not self._state.tree.lives(self._state.measured)))

    def _measure(self, pid: int) -> None:
        state = self._state
        self._phases.settle_all()
        state.tree.measure(pid, self._alone)
        state.polls_before = state.polls if self._alone else state.polls_before
        state.measured = pid
        self._alone = self._alone and state.header.message.start.command is None

    # -- phases

    def _begin(self, mark: Line) -> None:
        phase, begin_ns = word(mark["phase"]), count(mark["t_ns"])
        if self._reserves(phase, mark["pid"], begin_ns):
            self._strays.append(f"{phase} is a name of memprof's own figures: the phase that the program calls so is left out")
            return
        self._come()
        if phase in self._phases.open:
            self._strays.append(f"{phase} was begun again before it had ended: it is counted from there")
            self._phases.open.remove(phase)
        self.begun[phase] = begin_ns
        if not self._phases.open and self.outside.since_ns:
            self.outside.end_gap(begin_ns, phase)
        self._phases.begin(phase)
        self._state.charges.begin(phase)
        if phase in self.work:
            self.work[phase].again()

    def _come(self) -> None:
        if not self.came:
            self._begin_first()
        self.came = True

    def _reserves(self, phase: str, pid: int, begin_ns: int) -> bool:
        """Whether a phase has the name of memprof's own figures. The marks themselves write STARTUP, at a program's first phase; it began before
        the program did."""
        if phase == "STARTUP":
            return begin_ns > self._state.begin_ns and any(pid in pids for pids in self._ended_in.values())
        return is_reserved(phase)

    def _times(self, mark: Line) -> None:
        if not is_reserved(word(mark["phase"])) or mark["phase"] == "STARTUP":
            self._phases.times += [count(time_ns) for time_ns in mark["times_ns"]]

    def _end(self, mark: Line) -> None:
        phase = word(mark["phase"])
        if self._reserves(phase, mark["pid"], mark["begin_ns"]):
            return
        self._come()
        self._phases.keep(self._record(phase, mark), devices_read=True)
        self._phases.end(phase)
        self._ended_in.setdefault(phase, set()).add(mark["pid"])
        if not self._phases.open:
            self.outside.end_phase(phase, mark)

    def _record(self, phase: str, mark: Line) -> Record:
        state = self._state
        begin_ns, end_ns = count(mark["begin_ns"]), count(mark["end_ns"])
        if end_ns < begin_ns:
            raise ValueError("a phase that ends before it begins")
        if state.measured == state.root and phase == "STARTUP":
            begin_ns = min(begin_ns, state.begin_ns) if begin_ns else state.begin_ns
        figures = {name: count(mark[name]) for name in (*_FIGURES, "hwm_phase_bytes", "hwm_begin_bytes") if name in mark}
        hwm, hwm_begin = figures.pop("hwm_phase_bytes", 0), figures.pop("hwm_begin_bytes", 0)
        exact = hwm > 0 and (bool(mark.get("hwm_reset")) or hwm > hwm_begin)
        read = state.highest(begin_ns, end_ns)
        if exact and phase == "STARTUP" and read > hwm + state.peak_bound:
            read = 0  # of another program: the high-water mark is of the program since its last exec, the samples may be from before
        peak = max(read, figures.get("rss_end_bytes", 0), hwm if exact else figures.get("rss_begin_bytes", 0))
        record: Record = {"phase": phase, "begin_ns": begin_ns, "end_ns": end_ns, "times_ns": self._phases.times}
        record.update(rss_peak_bytes=peak, rss_peak_exact=exact, **figures)
        record.update(state.charges.end(phase))
        if "units" in mark:
            units = dict(mark["units"])
            if len(units) > UNITS:
                raise ValueError("too many units")
            record["units"] = {word(unit): count(total) for unit, total in units.items()}
        return record

    # -- its other lines

    def _work(self, mark: Line) -> None:
        units = [word(unit) for unit in mark["units"]]
        self._work_of(mark).take(units, [count(number) for number in mark["rows"]])

    def _anchor(self, mark: Line) -> None:
        figures = [count(mark[name]) for name in ("iteration", "seen", "rss", "swap")]
        heap = [count(mark[name]) if name in mark else None for name in ("heap_used", "heap_free")]
        self._work_of(mark).anchor([*figures, *heap])

    def _work_of(self, mark: Line) -> WorkCurve:
        phase = word(mark["phase"])
        if phase not in self.work:
            if len(self.work) == _PHASES_OF_WORK:
                raise ValueError("too many phases with units")
            self.work[phase] = WorkCurve()
        return self.work[phase]

    def _about(self, mark: Line) -> None:
        self.about = {
            "runtime_version": text(mark["runtime_version"]),
            "python_version": text(mark["python_version"]),
            "notes": [text(note) for note in mark["notes"]],
            "packages": {text(name): text(version) for name, version in dict(mark.get("packages", {})).items()},
        }

    def _fail(self, mark: Line) -> None:
        if mark["kind"] not in _ERROR_KINDS:
            raise ValueError("an error of no known kind")
        self.error = {"status": mark["kind"], "phase": word(mark["phase"]), "message": text(mark["message"])}

    def _finish(self, mark: Line) -> None:
        self.done = True

    def _value(self, mark: Line) -> None:
        self.values.take(mark, self._phases.name)

    def _stray(self, mark: Line) -> None:
        phase = word(mark["phase"] or "?")
        if mark["what"] == "begin":
            self._strays.append(f"{phase} had not ended when the next phase began: it ends there")
        else:
            after = f" (after {phase})" if mark["phase"] else ""
            self._strays.append(f"a phase was ended where none had begun{after}")

    def _say(self, mark: Line) -> None:
        self.said.append(" ".join(text(mark["text"]).split())[:1000])

    def remarks(self) -> list[str]:
        """Warnings for the reader of the figures."""
        remarks = list(dict.fromkeys(self._strays))
        if len(remarks) > _MOST_STRAYS:
            remarks = [*remarks[:_MOST_STRAYS], f"{len(remarks) - _MOST_STRAYS} more marks came in the wrong order"]
        if self._others:
            who = ", ".join(f"{name or 'a process'} ({pid})" for pid, name in list(self._others.items())[:5])
            remarks.append(f"marks came from more than one process; only those of the first count, not those of {who}")
        several = [phase for phase, pids in self._ended_in.items() if len(pids) > 1]
        if several:
            most = max(len(self._ended_in[phase]) for phase in several)
            how = "each time is an iteration, the peak is the largest, all else is of the last"
            remarks.append(f"{', '.join(several)}: in {most} processes one after another; {how}")
        if self._closed_early and self.begun and self._state.header.message.start.command is not None:
            remarks.append("the program closed the descriptor of its marks: its later work is in no phase")
        return remarks


def _alone(state: FoldState) -> bool:
    """Whether the tree is without processes that are not below the measured one: a wrapper of memprof's own side, or a debugger."""
    command = state.header.message.start.command
    return command is None or command.alone
