"""What can be measured on this machine, and how exactly: the judgement behind `memprof doctor`.

Allocations whose size is known go the way of every model (synthetic runtime, campaign, probe), and what each source says of their peak is put
beside the truth. All else is a look at /proc and /sys or a system call without effect. Each look is guarded, because a container may hide or
refuse anything: what cannot be looked at is said to be unknown, and the rest goes on. Looks at files take the root of the file system.
"""

from __future__ import annotations

import ast
import ctypes
import math
import mmap
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from ..errors import MeasurementError, MemprofError, os_reason
from ..measuring import campaign, suite
from ..probe import procfs
from ..programs import runtimes
from ..runs import store
from ..runs.records import EXECUTE, PREPARE, Machine, Mark, Polling, Run
from ..units import format_bytes

State = Literal["ok", "limited", "missing", "unknown"]
Finding = tuple[State, str, str]

ROOT = Path("/")
MS = 1_000_000
MIB = 1 << 20

FIGURES, MACHINE, CHILD, TOOLS = "figures", "machine", "measured process", "tools"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: its state, what was found, and what that means for the figures."""

    topic: str
    name: str
    state: State
    found: str
    meaning: str


@dataclass(frozen=True)
class Transient:
    """What each source said of the peak of an allocation that was touched, held for `held_ns` and freed: its error, above the truth positive.

    The errors are the worst of the repeats; that of polling at 50 ms is also the worst of all moments at which a poller could have started,
    and the median of them stands beside it. threads: each held an equal part, all at once; their stacks, some 17 KiB each, count as error.
    took_ns: how long the phase took, touching and freeing included.
    """

    threads: int
    held_ns: int
    bytes: int
    repeats: int
    took_ns: int
    peak_error_bytes: int | None
    hwm_error_bytes: int | None
    polled_1ms_error_bytes: int | None
    polled_50ms_error_bytes: int | None
    polled_50ms_median_error_bytes: int | None


@dataclass(frozen=True)
class Report:
    """Everything that was found. failure: why nothing could be measured, where that is so."""

    python: str
    machine: Machine
    checks: tuple[Check, ...]
    transients: tuple[Transient, ...]
    polling: Polling | None
    peak_exact: bool
    peak_error_bytes: int | None
    verdict: str
    failure: str | None = None


def examine(python: str | None, progress: campaign.Progress) -> Report:
    """Look at everything, then measure; about 6 seconds, whatever the machine.

    python: the interpreter of the measured processes, as for `run`. Raises InputError where there is no such interpreter; where the measuring
    fails, the report says why. Raises MeasurementError where this is no Linux.
    """
    if not sys.platform.startswith("linux"):
        raise MeasurementError("measuring is for Linux; runs files can be read, compared and drawn anywhere")
    interpreter = runtimes.interpreter(python)
    machine = msgspec.convert(procfs.machine(), Machine)
    checks = looks(interpreter, machine)
    runs: list[Run] = []
    failure = None
    size = transient_bytes(ROOT)
    try:
        runs = known_allocations(interpreter, size, progress)
    except MemprofError as error:
        failure = str(error)
    except OSError as error:
        failure = f"{error.filename or 'measuring'}: {os_reason(error)}"
    transients = compared(runs, size)
    polling = typical_polling(runs)
    exact = bool(runs) and all(mark.rss_peak_exact for run in runs for mark in _measured_marks(run))
    return Report(
        python=interpreter,
        machine=machine,
        checks=(*measured_checks(runs, polling, exact), *checks),
        transients=transients,
        polling=polling,
        peak_exact=exact,
        peak_error_bytes=worst([one.peak_error_bytes for one in transients]),
        verdict=verdict(transients, machine.peak_bound_bytes, exact, failure),
        failure=failure,
    )


# -- allocations of known size

_SLOW_NS = 50 * MS
_BEFORE = 1.2  # an earlier, higher transient: what a high-water mark that is never reset keeps saying
_REPEATS = 5
_ENOUGH_NS = 4_500 * MS
_STARTS = 50

# (threads, held_ns) of the transient in PREPARE and of that in EXECUTE, a process a row.
_PROCESSES = (
    ((1, 0), (1, 100 * MS)),
    ((1, MS // 10), (8, 0)),
    ((1, 1 * MS), (1, 10 * MS)),
    ((8, 1 * MS), (8, 100 * MS)),
)


def transient_bytes(root: Path) -> int:
    """How large a known allocation can be here: 100 MiB, or 8 MiB on a machine (or under a limit) where that could end in a kill."""
    try:
        group = memory_group(root)
        room = [_meminfo(root)["MemAvailable"], *([group.limit_bytes] if group and group.limit_bytes is not None else [])]
    except (OSError, KeyError, ValueError):
        return 100 * MIB
    return 100 * MIB if min(room) > 400 * MIB else 8 * MIB


def known_allocations(python: str, size: int, progress: campaign.Progress) -> list[Run]:
    """Measure the known allocations, all of them once and again while there is time.

    Raises MeasurementError where one of them failed, and whatever campaign and suite raise.
    """
    with tempfile.TemporaryDirectory(prefix="memprof-doctor-") as folder:
        wanted = suite.Suite(
            models=tuple(str(path) for path in _scenarios(Path(folder), size)),
            runtimes=("synthetic",),
            python=python,
            warmup=0,
            runs=1,
            repeats=_REPEATS,
            interval_ns=MS,
            cache="asis",
            timeout_ns=60_000 * MS,
        )
        enough_ns = time.monotonic_ns() + _ENOUGH_NS
        runs: list[Run] = []
        with closing(_measure(suite.plan(wanted).orders, progress)) as measured:
            for run in measured:
                runs.append(run)
                if not run.outcome.ok:
                    raise MeasurementError(f"an allocation of {format_bytes(size)} could not be measured: {run.outcome.sentence}")
                if len(runs) >= len(_PROCESSES) and time.monotonic_ns() >= enough_ns:
                    break
    return runs


def _measure(orders: Sequence[suite.Order], progress: campaign.Progress) -> Generator[Run, None, None]:
    yield from campaign.measure(orders, progress, lambda line: None)


def _scenarios(folder: Path, size: int) -> Iterator[Path]:
    for index, (prepare, execute) in enumerate(_PROCESSES):
        path = folder / f"known-allocations-{index + 1}.json"
        earlier = _spike(1, 0, int(size * _BEFORE))
        path.write_bytes(msgspec.json.encode({"load": [earlier], "prepare": [_spike(*prepare, size)], "execute": [_spike(*execute, size)]}))
        yield path


def _spike(threads: int, held_ns: int, size: int) -> dict[str, object]:
    return {"spike": size // threads, "hold_s": held_ns / 1e9, "threads": threads}


def _measured_marks(run: Run) -> list[Mark]:
    return [mark for mark in run.marks if mark.phase in (PREPARE, EXECUTE)]


@dataclass(frozen=True)
class _Errors:
    """One transient, once: the error of each source in bytes."""

    took_ns: int
    peak: int
    hwm: int | None
    polled: int
    polled_slowly: tuple[int, ...]


def compared(runs: Sequence[Run], size: int) -> tuple[Transient, ...]:
    """What each source said of each known transient; its truth is the resident set where the phase began, and `size`."""
    found: dict[tuple[int, int], list[_Errors]] = {}
    for run in runs:
        columns = store.unpack(run.timeline)
        kinds = _PROCESSES[int(Path(run.job.model.path).stem.rpartition("-")[2]) - 1]
        for mark, (threads, held_ns) in zip(_measured_marks(run), kinds, strict=True):
            found.setdefault((threads, held_ns), []).append(_errors(mark, columns, size))
    return tuple(_worst_of(*kind, size, found[kind]) for kind in sorted(found))


def _errors(mark: Mark, columns: store.Columns, size: int) -> _Errors:
    truth = (mark.rss_begin_bytes or 0) + size
    inside = slice(bisect_left(columns.t_ns, mark.begin_ns), bisect_right(columns.t_ns, mark.end_ns))
    polled = max(columns.rss[inside], default=mark.rss_begin_bytes or 0)
    return _Errors(
        took_ns=mark.time_ns,
        peak=mark.height_bytes - truth,
        hwm=mark.hwm_bytes - truth if mark.hwm_bytes is not None else None,
        polled=polled - truth,
        polled_slowly=tuple(peak - truth for peak in polled_peaks(columns, mark.begin_ns, mark.end_ns, _SLOW_NS)),
    )


def polled_peaks(columns: store.Columns, begin_ns: int, end_ns: int, period_ns: int) -> list[int]:
    """The peaks that pollers of this period would report for a phase, for starts spread evenly over one period, by a finer timeline.

    Where none of its polls falls into the phase, a poller knows the level at its begin.
    """

    def level(t_ns: int) -> int:
        return columns.rss[max(0, bisect_right(columns.t_ns, t_ns) - 1)]

    starts = (begin_ns + period_ns * index // _STARTS for index in range(_STARTS))
    return [max((level(t_ns) for t_ns in range(start, end_ns + 1, period_ns)), default=level(begin_ns)) for start in starts]


def _worst_of(threads: int, held_ns: int, size: int, found: Sequence[_Errors]) -> Transient:
    slowly = [error for one in found for error in one.polled_slowly]
    return Transient(
        threads=threads,
        held_ns=held_ns,
        bytes=size,
        repeats=len(found),
        took_ns=int(statistics.median(one.took_ns for one in found)),
        peak_error_bytes=worst([one.peak for one in found]),
        hwm_error_bytes=worst([one.hwm for one in found]),
        polled_1ms_error_bytes=worst([one.polled for one in found]),
        polled_50ms_error_bytes=worst(slowly),
        polled_50ms_median_error_bytes=int(statistics.median(slowly)) if slowly else None,
    )


def worst(errors: Sequence[int | None]) -> int | None:
    """The error furthest from 0, None where there is none."""
    return max((error for error in errors if error is not None), key=abs, default=None)


def typical_polling(runs: Sequence[Run]) -> Polling | None:
    """The polling period that was achieved: the median run's median and 99th percentile."""
    found = [run.polling for run in runs if run.polling is not None]
    if not found:
        return None
    return Polling(
        polls=sum(one.polls for one in found),
        median_ns=int(statistics.median(one.median_ns for one in found)),
        p99_ns=int(statistics.median(one.p99_ns for one in found)),
    )


def verdict(transients: Sequence[Transient], bound: int, exact: bool, failure: str | None) -> str:
    """The one sentence: how exact a peak is here. Never finer than the kernel's bound, and never finer than what was seen."""
    if failure is not None:
        return f"nothing could be measured here: {failure}"
    seen = worst([one.peak_error_bytes for one in transients]) or 0
    if not exact:
        return f"peaks are not exact here: the high-water mark cannot be reset, and polling was {abs(seen) / MIB:.1f} MiB off"
    error = max(abs(seen), bound)
    sentence = f"peaks are exact to {_up(error)} MiB here"
    slow = worst([one.polled_50ms_error_bytes for one in transients])
    if slow is not None and -slow > error:
        sentence += f" (polling every 50 ms: up to {-slow / MIB:.0f} MiB missed)"
    return sentence


def _up(size: int) -> str:
    return f"{math.ceil(size / MIB * 100) / 100:.2f}"


def measured_checks(runs: Sequence[Run], polling: Polling | None, exact: bool) -> list[Check]:
    """What the measured children say of this machine, beside their peaks."""
    marks = [mark for run in runs for mark in run.marks]
    about = runs[0].about if runs else None
    nothing: Finding = ("unknown", "cannot be told (nothing could be measured)", "")
    findings: dict[str, Finding] = dict.fromkeys(("high-water mark", "polling", "smaps_rollup", "allocator"), nothing)
    if runs:
        findings = {
            "high-water mark": _high_water(exact),
            "polling": _polled(polling),
            "smaps_rollup": _rollup(any(mark.pss_end_bytes is not None for mark in marks)),
            "allocator": _allocator(any(mark.heap_used_end_bytes is not None for mark in marks), about.python_version if about else ""),
        }
    return [Check(FIGURES, name, *finding) for name, finding in findings.items()]


def _high_water(exact: bool) -> Finding:
    if exact:
        return "ok", "can be reset", "the peak of a phase is its own, whatever came before it"
    return "limited", "cannot be reset", "a peak below an earlier one is only polled, and marked inexact"


def _polled(polling: Polling | None) -> Finding:
    if polling is None:
        return "missing", "the children were never seen alive", "there is no timeline"
    found = f"median {polling.median_ns / MS:.2f} ms, p99 {polling.p99_ns / MS:.2f} ms where 1 ms was asked for"
    if polling.p99_ns <= 2 * MS:
        return "ok", found, "a timeline shows what lasts longer; peaks do not depend on it"
    return "limited", found, "a timeline has gaps (a busy machine?); peaks do not depend on it"


def _rollup(there: bool) -> Finding:
    if there:
        return "ok", "there", "PSS and USS at the end of each phase, always exact"
    return "missing", "not there", "PSS and USS are shown as -"


def _allocator(there: bool, python: str) -> Finding:
    if there:
        return "ok", "has mallinfo2", "what the heap holds and what glibc kept of freed memory are told apart"
    return "missing", f"no mallinfo2 under Python {python} (glibc before 2.33, or no glibc)", "heap figures are shown as -"


# -- looks


def looks(python: str, machine: Machine, root: Path = ROOT) -> tuple[Check, ...]:
    """Everything that is found without measuring."""
    tools = _asked_tools()
    table: tuple[tuple[str, str, Callable[[], Finding]], ...] = (
        (FIGURES, "statm, status", lambda: counters(machine.kernel)),
        (FIGURES, "cgroup memory", lambda: control_group(root)),
        (FIGURES, "soft-dirty", soft_dirty),
        (FIGURES, "idle pages", lambda: idle_pages(root)),
        (FIGURES, "pressure (PSI)", lambda: pressure(root)),
        (MACHINE, "CPUs", lambda: processors(machine.cpus, machine.cpus_usable, machine.peak_bound_bytes)),
        (MACHINE, "load", lambda: load(psutil.cpu_percent(interval=0.3))),
        (MACHINE, "memory", lambda: memory(root)),
        (MACHINE, "swap", lambda: swap(root)),
        (MACHINE, "huge pages", lambda: huge_pages(root)),
        (CHILD, "interpreter", lambda: path_files(python)),
        (CHILD, "end of processes", ending),
        (CHILD, "address layout", address_layout),
        (CHILD, "ptrace", lambda: ptrace(root)),
        *((TOOLS, name, partial(tool, name, tools[name], root)) for name in _TOOLS),
    )
    return tuple(Check(topic, name, *_guarded(look)) for topic, name, look in table)


def _guarded(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except OSError as error:
        reason = os_reason(error)
        return "unknown", f"cannot be told ({error.filename}: {reason})" if error.filename else f"cannot be told ({reason})", ""
    except Exception as error:  # a file in a form of its own, a system call that is not there
        return "unknown", f"cannot be told ({type(error).__name__}: {' '.join(str(error).split())[:200]})", ""


def _read(root: Path, path: str) -> str:
    return (root / path.lstrip("/")).read_text(errors="replace")


def _read_or_none(root: Path, path: str) -> str | None:
    """A file's text, None where it does not exist; a file that may not be read raises OSError."""
    try:
        return _read(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def counters(release: str) -> Finding:
    """How the kernel of that release keeps a process's memory counters: what one look at statm or status is worth.

    6.17 made statm and status sum all parts (and some stable kernels took that over); 6.2 replaced the counters of each thread, folded in every
    64 faults, by counters of each CPU (mm/memory.c, lib/percpu_counter.c).
    """
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if not version:
        return "unknown", f"cannot be told (kernel {release})", ""
    if version >= (6, 17):
        return "ok", f"Linux {release}: exact sums", "samples and ends of phases are exact; only peaks are bounded"
    if version >= (6, 2):
        return "limited", f"Linux {release}: parts of each CPU are added late", "samples and ends of phases have the bound of peaks"
    return "limited", f"Linux {release}: parts of each thread are added late", "samples, ends and peaks can lack 0.25 MiB for each thread"


# -- cgroup


@dataclass(frozen=True)
class MemoryGroup:
    """The cgroup with a memory controller that this process is in. limit_bytes: the least of its own and of those above it."""

    version: int
    folder: Path
    limit_bytes: int | None

    @property
    def peak_file(self) -> str:
        """The name of the file with the group's peak."""
        return "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"


def memory_group(root: Path) -> MemoryGroup | None:
    """The memory cgroup of this process, None where no controller is mounted (proc_pid_cgroup(5), proc_pid_mountinfo(5))."""
    places = _mounted_groups(root)
    for line in _read(root, "/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        version = 1 if "memory" in controllers.split(",") else 2 if not controllers else 0
        if version not in places:
            continue
        mounted, place = places[version]
        top = root / place.lstrip("/")
        below = os.path.relpath(path, mounted) if os.path.commonpath([path, mounted]) == mounted else "."
        folder = top / below if (top / below).is_dir() else top
        if version == 1 or "memory" in (_read_or_none(folder, "cgroup.controllers") or "").split():
            return MemoryGroup(version, folder, _limit(folder, top, version))
    return None


def _mounted_groups(root: Path) -> dict[int, tuple[str, str]]:
    """Version: (the group that is mounted, where)."""
    found: dict[int, tuple[str, str]] = {}
    for line in _read(root, "/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options, *_) = before.split(), [*after.split(), "", "", ""]
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            found.setdefault(2 if kind == "cgroup2" else 1, (fields[3], fields[4]))
    return found


def _limit(folder: Path, top: Path, version: int) -> int | None:
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    limits = []
    for group in (folder, *folder.parents):
        text = (_read_or_none(group, name) or "").strip()
        if text.isdigit() and int(text) < 1 << 60:  # version 1 writes "none" as the largest whole number of pages
            limits.append(int(text))
        if group == top:
            break
    return min(limits, default=None)


def control_group(root: Path) -> Finding:
    """The memory cgroup: version, limit, whether a group can be made, and whether a peak can be reset (tried on a new, empty group)."""
    group = memory_group(root)
    if group is None:
        return "missing", "no memory controller", "memory of a whole tree of processes, page cache included, has no figure"
    limit = f"limit {format_bytes(group.limit_bytes)}" if group.limit_bytes is not None else "no limit"
    made, resettable = _tried_group(group)
    peak = {True: "peak can be reset", False: "peak cannot be reset", None: "peak not tried"}[resettable]
    found = f"v{group.version}, {limit}, {'groups can be made' if made else 'no groups can be made'}, {peak}"
    if made and resettable:
        return "ok", found, "the peak of a tree of processes can be had, with the page cache it brought in"
    return "limited", found, "no peak for a tree of processes and its page cache, unless a group is made for it elsewhere"


def _tried_group(group: MemoryGroup) -> tuple[bool, bool | None]:
    trial = group.folder / f"memprof-doctor-{os.getpid()}"
    try:
        trial.mkdir()
    except OSError:
        file = group.folder / group.peak_file
        return False, os.access(file, os.W_OK) if file.exists() else None
    try:
        return True, _resets(trial / group.peak_file)
    finally:
        with suppress(OSError):
            trial.rmdir()


def _resets(file: Path) -> bool | None:
    try:
        with file.open("r+b", buffering=0) as opened:  # version 2: for this descriptor alone, from Linux 6.12
            opened.write(b"0")
    except FileNotFoundError:
        return None
    except OSError:
        return False
    return True


# -- pages


def soft_dirty() -> Finding:
    """Whether the kernel marks written pages, tried on a page of this process (Documentation/admin-guide/mm/soft-dirty.rst)."""
    page = mmap.mmap(-1, mmap.PAGESIZE)
    view = ctypes.c_char.from_buffer(page)
    address = ctypes.addressof(view)
    del view
    page[0] = 1
    with open("/proc/self/clear_refs", "wb", buffering=0) as file:
        file.write(b"4")
    before = _is_soft_dirty(address)
    page[0] = 2
    after = _is_soft_dirty(address)
    page.close()
    if after and not before:
        return "ok", "kept by this kernel", "the pages that a phase wrote can be counted"
    return "missing", "not kept by this kernel", "the pages that a phase wrote cannot be counted, only those it touched (Referenced)"


def _is_soft_dirty(address: int) -> bool:
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(address // mmap.PAGESIZE * 8)
        return bool(int.from_bytes(file.read(8), sys.byteorder) >> 55 & 1)


def _kernel_memory_shown(root: Path) -> bool:
    return (root / "sys/kernel/mm").is_dir()


def idle_pages(root: Path) -> Finding:
    """Idle page tracking (Documentation/admin-guide/mm/idle_page_tracking.rst)."""
    file = root / "sys/kernel/mm/page_idle/bitmap"
    if not _kernel_memory_shown(root):
        return "unknown", "cannot be told (no /sys/kernel/mm)", ""
    if not file.exists():
        return "missing", "not in this kernel", "pages touched are counted with clear_refs 1 alone"
    if not os.access(file, os.R_OK | os.W_OK):
        return "limited", "for root only", "pages touched are counted with clear_refs 1 alone"
    return "ok", "there", "pages touched can be counted in the page cache too, mapped or not"


def pressure(root: Path) -> Finding:
    """Pressure stall information; some kernels have the file and refuse to read it."""
    try:
        text = _read_or_none(root, "/proc/pressure/memory")
    except OSError as error:
        return "missing", f"turned off ({os_reason(error)})", "waiting for memory is not told from computing"
    if text is None:
        return "missing", "not in this kernel", "waiting for memory is not told from computing"
    some = re.search(r"some avg10=(\S+)", text)
    if some is not None and float(some[1]) > 0:
        return (
            "limited",
            f"processes wait for memory {some[1]}% of the time",
            "times are too long, and pages are taken from the measured process",
        )
    return "ok", "there, nothing waits for memory", "memory is not scarce now"


# -- machine


def processors(cpus: int, usable: int, bound: int) -> Finding:
    """CPUs, and the bound that their number sets to every peak."""
    found = f"{usable} of {cpus} usable" if usable != cpus else f"{cpus}"
    meaning = f"a high-water mark can be {_up(bound)} MiB off; a runtime that uses all {usable} is not polled in timed iterations"
    return "ok" if bound <= 4 * MIB and usable == cpus else "limited", found, meaning


def load(busy: float) -> Finding:
    """How busy the machine is, in percent of all CPUs."""
    found = f"{busy:.0f}% of the CPUs are busy"
    if busy > 25:
        return "limited", found, "times will be too long; peaks do not suffer"
    return "ok", found, "times are the measured process's own"


def _meminfo(root: Path) -> dict[str, int]:
    found = {}
    for line in _read(root, "/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith("kB"):
            found[name] = int(rest.split()[0]) * 1024
    return found


def memory(root: Path) -> Finding:
    """Memory that can be had without taking it from somebody."""
    found = _meminfo(root)
    free, total = found["MemAvailable"], found["MemTotal"]
    words = f"{format_bytes(free)} of {format_bytes(total)} free"
    if free < total // 4:
        return "limited", words, "a model that needs more is swapped or killed, and a cache kept warm is soon cold"
    return "ok", words, "a model that needs more is swapped or killed"


def swap(root: Path) -> Finding:
    """Swap, and how much of it is in use."""
    found = _meminfo(root)
    total, used = found["SwapTotal"], found["SwapTotal"] - found["SwapFree"]
    if total == 0:
        return "ok", "none", "nothing leaves the resident set but by being freed"
    words = f"{format_bytes(used)} of {format_bytes(total)} used"
    meaning = "what is swapped out is missing in RSS: see swap_end_bytes"
    return ("limited" if used > total // 100 else "ok"), words, meaning


def huge_pages(root: Path) -> Finding:
    """Transparent huge pages for anonymous memory (Documentation/admin-guide/mm/transhuge.rst)."""
    text = _read_or_none(root, "/sys/kernel/mm/transparent_hugepage/enabled")
    if text is None and not _kernel_memory_shown(root):
        return "unknown", "cannot be told (no /sys/kernel/mm)", ""
    if text is None:
        return "ok", "not in this kernel", "a touched byte costs one page"
    chosen = text.partition("[")[2].partition("]")[0]
    size = format_bytes(int(_read_or_none(root, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") or 2 * MIB))
    if chosen == "always":
        return "limited", "always", f"a touched byte can cost {size}: figures are higher and vary more than with never or madvise"
    if chosen == "madvise":
        return "ok", "madvise", f"a touched byte costs one page, or {size} where a runtime or its allocator asks for that"
    if chosen == "never":
        return "ok", "never", "a touched byte costs one page"
    return "unknown", f"cannot be told ({text.strip()[:40]!r})", ""


# -- the measured process

# Asks for nothing that is not imported already, so that no module is counted that the child would not have.
_ASK = """
import sys, site
folders = list(getattr(site, "getsitepackages", list)())
if site.ENABLE_USER_SITE:
    folders.append(site.getusersitepackages())
anon = [row.split()[1] for row in open("/proc/self/status") if row.startswith("RssAnon")]
print()
print(repr(("%d.%d.%d" % sys.version_info[:3], folders, len(sys.modules), int(anon[0]) if anon else 0)))
"""


def path_files(python: str) -> Finding:
    """The interpreter of the measured processes, and which .pth files run code in it whenever it starts."""
    version, folders, modules, anon_kib = _asked(python)
    executed = list(dict.fromkeys(file.name for file in executed_path_files([Path(folder) for folder in folders])))
    place = f"Python {version}, {python}"
    if not executed:
        return "ok", f"{place}, no .pth file runs code", "a child begins with nothing but its interpreter"
    _, _, least_modules, least_kib = _asked(python, "-S")
    more = f"{max(0, modules - least_modules)} modules, {max(0, anon_kib - least_kib) / 1024:.1f} MiB"
    found = f"{place}, code runs from {', '.join(executed)}"
    remedy = ": install properly, without -e, to compare" if any("editable" in name for name in executed) else ""
    return "limited", found, f"site-packages and these put {more} into every child and its baseline{remedy}"


def _asked(python: str, *flags: str) -> tuple[str, list[str], int, int]:
    done = subprocess.run([python, *flags, "-c", _ASK], capture_output=True, text=True, timeout=10, cwd="/", check=False)
    if done.returncode != 0:
        raise ValueError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    found: tuple[str, list[str], int, int] = ast.literal_eval(done.stdout.splitlines()[-1])
    return found


def executed_path_files(folders: Sequence[Path]) -> list[Path]:
    """The .pth files of these folders that hold code: lines that begin with `import` and a blank, in a file that is not hidden (site.py)."""
    found = []
    for folder in dict.fromkeys(folders):
        for file in sorted(folder.glob("*.pth")):
            with suppress(OSError):
                lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
                if not file.name.startswith(".") and any(line.startswith(("import ", "import\t")) for line in lines):
                    found.append(file)
    return found


_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 2, 36, 37
_ADDR_NO_RANDOMIZE = 0x0040000


def ending() -> Finding:
    """Whether the kernel ends what a killed memprof leaves: each setting is read and set to what it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    value = ctypes.c_int()
    able = {
        "PDEATHSIG": libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(value), 0, 0, 0)
        == 0
        == libc.prctl(_PR_SET_PDEATHSIG, value.value, 0, 0, 0),
        "subreaper": libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0) == 0
        and libc.prctl(_PR_SET_CHILD_SUBREAPER, value.value, 0, 0, 0) == 0,
        "pidfd": _has_pidfd(),
    }
    refused = [name for name, works in able.items() if not works]
    if not refused:
        return "ok", f"{', '.join(able)} work", "nothing is left running, however memprof ends"
    return "limited", f"{', '.join(refused)} refused", "what a killed memprof was measuring may go on until its next start"


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True


def address_layout() -> Finding:
    """Whether address randomisation can be turned off: tried on this process and taken back; it would act at the next exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    now = libc.personality(ctypes.c_ulong(0xFFFFFFFF))
    allowed = now != -1 and libc.personality(ctypes.c_ulong(now | _ADDR_NO_RANDOMIZE)) != -1
    if allowed:
        libc.personality(ctypes.c_ulong(now))
        return "ok", "can be fixed", "--deterministic repeats a figure to the page, where the runtime does"
    return (
        "limited",
        "cannot be fixed (personality is refused)",
        "--deterministic is only partly so; Docker: --security-opt seccomp=unconfined",
    )


def ptrace(root: Path) -> Finding:
    """Whether memory of a child of one's own can be read, tried on one; what yama allows beyond that stands beside it."""
    scope = (_read_or_none(root, "/proc/sys/kernel/yama/ptrace_scope") or "").strip()
    found = f"yama's ptrace_scope is {scope}" if scope else "no yama"
    if _can_read_a_child():
        return "ok", f"memory of a child can be read, {found}", "weight copies can be counted in the running process"
    return "limited", f"memory of a child cannot be read, {found}", "weight copies cannot be counted; Docker: --cap-add SYS_PTRACE"


def _can_read_a_child() -> bool:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            with open(f"/proc/{child.pid}/maps", encoding="ascii", errors="replace") as maps:
                address = int(maps.readline().partition("-")[0], 16)
            with open(f"/proc/{child.pid}/mem", "rb", buffering=0) as file:
                file.seek(address)
                return len(file.read(8)) == 8
        except PermissionError:
            return False
        finally:
            child.kill()


# -- tools

_TOOLS: Mapping[str, tuple[str, str]] = {
    "valgrind": ("massif: each allocation with its stack, 2 to 10 times slower, vector code far more", "no heap profiles by massif"),
    "heaptrack": ("each allocation with its stack, 3 to 4 times slower", "no heap profiles by heaptrack"),
    "perf": ("page faults with their stacks", "no page faults with their stacks"),
    "gdb": ("stacks of a running or crashed runtime", "no stacks of a running or crashed runtime"),
}


@dataclass(frozen=True)
class ToolAnswer:
    """Where a tool is, None for nowhere, and the version it says, None where it does not start."""

    path: str | None
    version: str | None


def _asked_tools() -> dict[str, ToolAnswer]:
    """Asked side by side: gdb alone takes 0.2 s."""
    started: dict[str, tuple[str | None, subprocess.Popen[bytes] | None]] = {}
    for name in _TOOLS:
        path, process = shutil.which(name), None
        if path is not None:
            with suppress(OSError):
                process = subprocess.Popen([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started[name] = (path, process)
    return {name: ToolAnswer(path, _version(process) if process else None) for name, (path, process) in started.items()}


def _version(process: subprocess.Popen[bytes]) -> str | None:
    """The last version number in the first line it says: `GNU gdb (Debian 13.1-3) 13.1`."""
    with process:
        try:
            said, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    numbers = re.findall(rb"\d+(?:\.\d+)+", said.split(b"\n", 1)[0])
    return numbers[-1].decode() if numbers and process.returncode == 0 else None


def tool(name: str, answer: ToolAnswer, root: Path) -> Finding:
    """A tool that memprof can call on."""
    gives, lacks = _TOOLS[name]
    if answer.path is None:
        return "missing", "not on PATH", lacks
    if answer.version is None:
        return "limited", f"{answer.path} does not start", lacks
    return _perf(answer.version, root) if name == "perf" else ("ok", answer.version, gives)


def _perf(version: str, root: Path) -> Finding:
    """perf_event_paranoid: 2 leaves a user his own programs (user space only), Debian's 3 and 4 nothing; root may do everything."""
    gives, lacks = _TOOLS["perf"]
    level = (_read_or_none(root, "/proc/sys/kernel/perf_event_paranoid") or "").strip()
    if not level:
        return "limited", f"{version}, but a kernel without perf events", lacks
    found = f"{version}, perf_event_paranoid {level}"
    if os.geteuid() != 0 and int(level) > 2:
        return "limited", f"{found}: for root only", lacks
    if not (root / "sys/kernel/tracing/events/kmem/rss_stat").exists():
        return "ok", found, f"{gives}; growth of the resident set (kmem:rss_stat) needs root and tracefs mounted"
    return "ok", found, f"{gives}, and growth of the resident set (kmem:rss_stat)"
