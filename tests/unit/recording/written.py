"""Recordings written by hand: what happened to a program on a made-up machine, event by event, and the Run that the fold makes of it.

Sizes are MiB in whole pages, times milliseconds since the program started; events come at `now`, and a poll a millisecond after whatever was before
it. A process keeps its newest readings, so that only what changes is said. The order of the lines is that of a recorder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from support.sample_runs import job, machine

from memprof.recording.events import escaped
from memprof.recording.fold import Fold, Notice, fold
from memprof.recording.order import encode
from memprof.records.recorder_order import CommandStart, Header, Hold, Message, Start
from memprof.records.types import Mark, Run

MIB = 1 << 20
MS = 1_000_000
PAGE = 4096
ROOT, RECORDER = 100, 99  # process ids
BEGIN_NS = 10**9
_TOOK_NS = 20_000  # a poll

Size = float | tuple[float, float]  # a resident set, or that and its file-backed part


@dataclass
class Process:
    """The newest readings of a process. rss, file and vms in pages; stack: where it begins, another number after each exec."""

    pid: int
    rss: int = 0
    file: int = 0
    vms: int = 0
    stack: int = 0
    faults: int = 0
    child_faults: int = 0
    major: int = 0
    ticks: int = 0
    threads: int = 1
    state: str = "S"
    name: str = "program"

    def size(self, size: Size) -> None:
        rss, file = size if isinstance(size, tuple) else (size, min(size, pages_mib(self.file)))
        self.rss, self.file = pages(rss), pages(file)
        self.vms = max(self.vms, self.rss)

    @property
    def statm(self) -> str:
        return f"{self.vms} {self.rss} {self.file}"

    @property
    def stat(self) -> str:
        return f"{self.state} {self.faults} {self.child_faults} {self.major} {self.ticks} {self.threads} {self.stack}"


class Recording:
    """A recording that grows. command, hold, attach, ...: of the order. rss: of the program when it is found; None if it has no memory by then."""

    def __init__(
        self,
        command: CommandStart | None = CommandStart(),  # noqa: B008  (frozen)
        *,
        rss: Size | None = 10,
        attach: int | None = None,
        watch: Sequence[str] = (),
        hold: Hold | None = None,
        intervals: Mapping[str, int] | None = None,
        env: Mapping[str, str | None] | None = None,
        cpus: Sequence[int] = (),
        timeout_ms: float = 60_000,
        kernel: str = "6.18",
        recorder_hwm: float = 1,
    ) -> None:
        self.lines: list[bytes] = []
        self.now_ns = BEGIN_NS
        self.polls = 0
        self.processes: dict[int, Process] = {}
        self._begun: dict[tuple[int, str], int] = {}  # when phases began
        self._poll_ns = 0  # the newest poll
        self._quiet = False  # that has no line yet
        self._stacks = 7 << 40
        start = Start(("program",), env or {}, cpus=cpus, command=command, attach=attach, watch=watch)
        message = Message(job(), start, int(timeout_ms * MS), intervals or {"": MS}, hold=hold)
        self._write(f"recording 1 {PAGE} 100 c")
        self._write(f"order {self.now_ns} ", encode(Header(message, machine(kernel=kernel), 7)))
        self._write(f"begin {self.now_ns} 2 {int(recorder_hwm * 1024)} {RECORDER}")
        if rss is not None:
            self.now_ns += MS // 2
            self._tell(f"start %d {ROOT}")
            self.spawn(ROOT, rss, parent=0)
            self.poll()

    # -- time

    def at(self, ms: float) -> Recording:
        """Go on at this time after the program's start."""
        self.now_ns = max(self.now_ns, ns(ms))
        return self

    @property
    def now_ms(self) -> float:
        return (self.now_ns - BEGIN_NS) / MS

    # -- processes

    def spawn(self, pid: int, size: Size = 1, *, parent: int = ROOT, name: str = "program", faults: int = 0) -> Process:
        """A process is found that has exec'd since it was forked."""
        process = Process(pid, stack=self._stack(), faults=faults, name=name)
        process.size(size)
        return self._find(process, parent)

    def fork(self, pid: int, parent: int = ROOT, **changes: Any) -> Process:
        """A process is found that was forked: it has its parent's memory. changes: of its readings, in pages."""
        own = replace(self.processes[parent], pid=pid, faults=0, child_faults=0, major=0, ticks=0)
        return self._find(replace(own, **changes), parent)

    def orphan(self, pid: int, of: int = ROOT, **changes: Any) -> Process:
        """A process is found that was forked below another, and whose parent has ended."""
        return self._find(replace(self.processes[of], pid=pid, faults=0, child_faults=0, **changes), 0)

    def vfork(self, pid: int, parent: int = ROOT) -> Process:
        """A process is found that runs in its parent's memory."""
        return self._find(replace(self.processes[parent], pid=pid, faults=0, child_faults=0), parent, same=True)

    def separate(self, pid: int, size: Size) -> None:
        """A child of vfork has exec'd."""
        process = self.processes[pid]
        process.stack, process.vms = self._stack(), 0
        process.size(size)
        self._tell(f"separate %d 9000 {pid} {process.statm} {process.stat}")

    def _stack(self) -> int:
        self._stacks += 1 << 20
        return self._stacks

    def _find(self, process: Process, parent: int, same: bool = False) -> Process:
        self._tell_poll()
        above = self.processes.get(parent)
        readings = f"{above.statm} {above.stat}" if above is not None else "- -"
        self._tell(f"process %d 9000 {process.pid} {parent} {int(same)} {process.statm} {process.stat} {readings} {process.name}")
        self.processes[process.pid] = process
        return process

    def stat(self, pid: int = ROOT, **changes: Any) -> None:
        """A process's stat is read."""
        process = self.processes[pid]
        for name, value in changes.items():
            setattr(process, name, value)
        self._tell(f"stat %d {pid} {process.stat} {process.name}")

    def command(self, pid: int, words: str) -> None:
        self._tell(f"command %d {pid} {words}")

    def zombie(self, pid: int, faults: int | None = None) -> None:
        """A process has ended, and its stat can be read."""
        process = self.processes[pid]
        self.stat(pid, state="Z", stack=0, faults=process.faults if faults is None else faults)
        self.gone(pid)

    def gone(self, pid: int) -> None:
        """A process has ended, and nothing is left of it."""
        del self.processes[pid]
        self._tell(f"gone %d {pid}")

    def missed(self, pid: int, why: str = "ended") -> None:
        self._tell(f"missed %d {pid} {why}")

    def lineage(self, pid: int, *above: int) -> None:
        self._tell(" ".join(["lineage %d", str(pid), *map(str, above)]))

    def ended(
        self, pid: int = ROOT, *, code: int = 0, signal: int = 0, largest: float = 0, faults: int = 0, major: int = 0, cpu_ns: int = 0
    ) -> None:
        """wait4 tells of a process. largest: ru_maxrss."""
        self._tell_poll()
        self._tell(f"ended %d {pid} {code << 8 | signal} {faults} {major} {cpu_ns} {int(largest * 1024)}")

    # -- memory

    def poll(self, sizes: Mapping[int, Size] | None = None, *, took_ms: float = _TOOK_NS / MS) -> None:
        """All is read. sizes: the resident sets that have changed."""
        self.now_ns += MS
        for pid, size in (sizes or {}).items():
            self.processes[pid].size(size)
        self.polled(*(f"{pid} {self.processes[pid].statm}" for pid in sizes or ()), took_ns=int(took_ms * MS))

    def polled(self, *changes: str, took_ns: int = _TOOK_NS) -> None:
        """All is read now, and these are the fields of what has changed."""
        self.polls += 1
        last_ns, self._poll_ns = self._poll_ns or self.now_ns, self.now_ns
        self._write(" ".join([f". {self.now_ns} {took_ns} {last_ns} {self.polls}", *changes]))
        self._quiet = False
        self.now_ns += took_ns

    def quiet(self, polls: int = 1) -> None:
        """All is read so often, and nothing has changed, so nothing is written."""
        for _ in range(polls):
            self.polls, self._quiet = self.polls + 1, True
            self._before_ns, self._poll_ns = self._poll_ns, self.now_ns + MS
            self.now_ns += MS + _TOOK_NS

    def _tell_poll(self) -> None:
        if self._quiet:
            self._quiet = False
            self._write(f". {self._poll_ns} {_TOOK_NS} {self._before_ns} {self.polls}")

    def status(
        self, pid: int = ROOT, *, rss: float | None = None, hwm: float = 0, swap: float = 0, threads: int = 1, took_ms: float = 0.01
    ) -> None:
        self._tell(f"status %d {int(took_ms * MS)} {pid} {self._status(pid, rss, hwm, swap, threads)}")
        self.now_ns += int(took_ms * MS)

    def _status(self, pid: int, rss: float | None, hwm: float, swap: float, threads: int) -> str:
        process = self.processes[pid]
        size = pages_mib(process.rss) if rss is None else rss
        file = min(size, pages_mib(process.file))
        return " ".join(str(int(part * 1024)) for part in (2 * size, 3 * size, size, hwm, size - file, file, 0, swap)) + f" {threads}"

    def round(self, shares: Mapping[int, Mapping[str, float] | None]) -> None:
        """Shares of all processes are read. shares: `rss`, `pss`, `anon`, `anon_pss` and `private` of each, None if they may not be read."""
        self._tell("round %d begin")
        self.shares(shares)
        self._tell("round %d end")

    def shares(self, shares: Mapping[int, Mapping[str, float] | None]) -> None:
        for pid, share in shares.items():
            self._tell(f"shares %d 9000 {pid} {_rollup(share) if share is not None else '-'}")

    def maps(self, parts: Mapping[int, Sequence[tuple[int, float, float]]]) -> None:
        """All maps are read. parts: the file's number, its first MiB there and how many MiB, of those whose maps have changed."""
        for pid, some in parts.items():
            self._tell(" ".join(["maps %d", str(pid), *(f"{file}:{pages(begin)}:{pages(size)}" for file, begin, size in some)]))
        self._tell("mapped %d")

    def huge(self, count: int) -> None:
        self._tell(f"huge %d {count}")

    def group(self, peak: float, both: float, refaults: int, kills: int = 0) -> None:
        """The control group is read at a mark, as recorders wrote it that did not read the kernel's memory."""
        self._tell(f"group %d {int(peak * MIB)} {int(both * MIB)} {refaults} {kills} 1")

    def kernel(self, *mib: float | None, reset: str = "1", peak: float = 1) -> None:
        """The group and the kernel's memory in it are read: its peak, all of it, stacks, slab, page tables, sockets, and data by CPU."""
        fields = " ".join("-" if size is None else str(int(size * MIB)) for size in mib)
        self._tell(f"group %d {int(peak * MIB)} - 0 0 {reset} {fields}")

    def buffers(self, pid: int, *buffers: str) -> None:
        """A process's buffers are read, each `KIND:EXPORTER:INODE:SIZE:MAPPED:RESIDENT`, the last three in MiB; `-` if they may not be."""
        fields = [
            ":".join([*words[:3], *(str(int(float(size) * MIB)) for size in words[3:])]) for words in (text.split(":") for text in buffers)
        ]
        self._tell(" ".join([f"buffers %d 9000 {pid}", *fields]))

    def clients(self, pid: int, *clients: str) -> None:
        """A process's clients are read, each as the line has them."""
        self._tell(" ".join([f"clients %d 9000 {pid}", *clients]))

    def tables(self, pid: int, tables: float, huge: float = 0, shared: float = 0) -> None:
        """The page tables and huge pages of a process are read."""
        self._tell(" ".join([f"tables %d 9000 {pid}", *(str(int(size * 1024)) for size in (tables, huge, shared))]))

    def charge(self, *mib: float | None) -> None:
        """The charges of a group that is looked at: all, inactive pages of files, anonymous, files, kernel, stacks, slab, page tables, sockets,
        and swap."""
        self._tell(f"charge %d {' '.join('-' if size is None else str(int(size * MIB)) for size in mib)}")

    def look(
        self,
        text: str = "output",
        pid: int = ROOT,
        *,
        rss: float | None = None,
        hwm: float = 0,
        swap: float = 0,
        shares: Mapping[str, float] | None = None,
        reset: bool = True,
        read: int | None = None,
        there: bool = True,
    ) -> None:
        """A closer look. there: it still has memory."""
        self._tell_poll()
        process = self.processes.get(pid)
        readings = "- - - -"
        if there and process is not None:
            rollup = _rollup(shares) if shares is not None else "-"
            readings = f"{self._status(pid, rss, hwm, swap, 1)} {rollup} {process.stat} {'-' if read is None else read}"
        self._tell(f"look %d 30000 {pid} {int(reset and there)} {readings} ", text.encode())

    # -- what comes from the program

    def mark(self, kind: str, pid: int = ROOT, /, **fields: object) -> None:
        self.line(json.dumps({"mark": kind, "pid": pid, **fields}))

    def line(self, text: str | bytes) -> None:
        """A line on the marks' descriptor."""
        self._tell_poll()
        self._tell(f"mark %d {self.polls} ", text.encode() if isinstance(text, str) else text)

    def begin(self, phase: str, pid: int = ROOT, *, ms: float | None = None) -> None:
        """A mark says that a phase begins now, or began at ms."""
        self._begun[pid, phase] = self.now_ns if ms is None else ns(ms)
        self.mark("begin", pid, phase=phase, t_ns=self._begun[pid, phase])

    def end(
        self,
        phase: str,
        pid: int = ROOT,
        *,
        ms: float | None = None,
        peak: float | None = None,
        rss: float | None = None,
        **figures: object,
    ) -> None:
        """A mark says that a phase ends now, or ended at ms. peak: of a high-water mark that was reset at its begin; rss: at its end."""
        if peak is not None:
            figures.update(hwm_phase_bytes=int(peak * MIB), hwm_reset=True)
        if rss is not None:
            figures["rss_end_bytes"] = int(rss * MIB)
        end_ns = self.now_ns if ms is None else ns(ms)
        self.mark("end", pid, phase=phase, begin_ns=self._begun.get((pid, phase), end_ns), end_ns=end_ns, **figures)

    def startup(self, pid: int = ROOT, peak: float = 10) -> None:
        """The marks of STARTUP, which memprof.h writes at the first phase."""
        self.begin("STARTUP", pid, ms=0)
        self.end("STARTUP", pid, peak=peak)

    def phase(self, phase: str, pid: int = ROOT, sizes: Mapping[int, Size] | None = None, **figures: Any) -> None:
        """A phase with one poll in it."""
        self.begin(phase, pid)
        self.poll(sizes)
        self.end(phase, pid, **figures)

    def closed(self, alive: bool) -> None:
        self._tell(f"closed %d {int(alive)}")

    def output(self, text: str) -> None:
        self._tell_poll()
        self._tell("output %d ", text.encode())

    def tail(self, text: bytes, size: int | None = None) -> None:
        self._tell(f"tail %d {len(text) if size is None else size} ", text)

    # -- reflexes, and the end

    def tell(self, event: str) -> None:
        """Any other event; %d stands for the time."""
        self._tell(event)

    def run(self, code: int = 0, signal: int = 0, output: bytes = b"", **used: Any) -> Run:
        """The program ends, unless it has already, and the recording ends with it: its Run."""
        if ROOT in self.processes:
            self.zombie(ROOT)
            self.ended(code=code, signal=signal, **used)
        self.tail(output)
        return self.finish()

    def finish(self) -> Run:
        """The recording ends here: its Run."""
        self._write("periods 0")
        self._tell("end %d")
        return self.so_far()

    def so_far(self) -> Run:
        """The Run of what was written so far."""
        return fold(self.lines, "by hand")

    def notices(self) -> list[Notice]:
        """What memprof was told to do while it took the lines so far."""
        return list(self.folded().notices)

    def folded(self) -> Fold:
        fold = Fold("by hand")
        for line in self.lines:
            fold.take(line[:-1])
        return fold

    def _tell(self, event: str, text: bytes = b"") -> None:
        self._write(event.replace("%d", str(self.now_ns), 1), escaped(text))

    def _write(self, event: str, text: bytes = b"") -> None:
        self.lines.append(event.encode() + text + b"\n")


def _rollup(share: Mapping[str, float]) -> str:
    rss, pss, anon = share["rss"], share["pss"], share["anon"]
    anon_pss, private = share.get("anon_pss", anon), share["private"]
    return " ".join(str(int(part * 1024)) for part in (rss, pss, anon_pss, anon, 0, rss - private, 0, private))


def ns(ms: float) -> int:
    """So many milliseconds after the program's start."""
    return BEGIN_NS + int(ms * MS)


def pages(mib: float) -> int:
    """MiB in pages."""
    return int(mib * MIB) // PAGE


def pages_mib(count: int) -> float:
    return count * PAGE / MIB


def mark(run: Run, phase: str) -> Mark:
    """A phase that a Run has."""
    found = run.mark(phase)
    assert found is not None, [found.phase for found in run.marks]
    return found


def bounds(run: Run, phase: str) -> tuple[float, float]:
    """The bounds of a phase's peak in MiB; equal for a peak that has none."""
    found = mark(run, phase)
    assert found.rss_peak_bytes is not None
    return found.rss_peak_bytes / MIB, (found.rss_peak_high_bytes or found.rss_peak_bytes) / MIB


def phases(run: Run) -> list[str]:
    """The names of its phases, in their order."""
    return [found.phase for found in run.marks]
