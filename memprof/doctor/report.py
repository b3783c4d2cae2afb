"""The judgement behind `memprof doctor`: which figures can be measured on this machine, and how exactly.

Allocations of known size go the way of every model (synthetic runtime, campaign, recorder), and the peaks that each source gives are put beside the
true ones. Every other check is a look at /proc and /sys or a system call without effect. Each look is guarded, because a container may hide or refuse
anything: a look that fails finds "unknown", and the others go on. Looks at files take the root of the file system.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import psutil
from msgspec import Struct

from ..base.counter_bounds import late_by_thread
from ..base.errors import MeasurementError, MemprofError, os_reason
from ..base.leftovers import scratch
from ..base.units import format_bound, format_bytes
from ..campaign.progress import Progress
from ..places.place import HERE, MachineState, Place
from ..records.types import RUN, Machine, Polling, Run
from .checks import CHILD, DEVICES, FIGURES, MACHINE, MIB, MS, ROOT, TOOLS, Check, Finding, guarded
from .devices import closed_drivers, device_facts, dma_bufs, drm_clients, kernel_parts, nvidia_driver
from .kernel import control_group, counters, idle_pages, pressure, soft_dirty
from .known_allocations import (
    KnownAllocations,
    Transient,
    compared,
    known_allocations,
    known_program,
    measured_marks,
    transient_bytes,
    typical_polling,
    worst,
)
from .machine import emulation, huge_pages, load, memory, processors, swap
from .process import address_layout, ending, path_files, ptrace
from .tools import LOOKED_FOR, distribution, tool, tool_answers


class DoctorReport(Struct, frozen=True):
    """All checks and figures of this machine. failure: why nothing could be measured, or None."""

    python: str
    machine: Machine
    checks: tuple[Check, ...]
    transients: tuple[Transient, ...]
    polling: Polling | None
    peak_exact: bool
    peak_error_bytes: int | None
    verdict: str
    failure: str | None = None


def examine(python: str | None, progress: Progress, place: Place = HERE) -> DoctorReport:
    """Look at everything, then measure; about 6 seconds, whatever the machine. At a place that is another machine there is less to look at.

    python: the interpreter of the measured processes, as for `run`. If the measuring fails, the report says why. Raises InputError if there is
    no such interpreter, MeasurementError if this is no Linux.
    """
    if not sys.platform.startswith("linux"):
        raise MeasurementError("measuring is for Linux; runs files can be read, compared and drawn anywhere")
    machine = place.machine()
    if place is HERE:
        interpreter = place.interpreter(python)
        checks, size = looks(interpreter, machine), transient_bytes(ROOT)
    else:
        with scratch("doctor") as work:
            mirror(place, work.folder)
            interpreter, checks, size = python or place.python or "", far_looks(place, machine, work.folder), transient_bytes(work.folder)
        if place.recorder == "c" and python is None:
            return _by_a_program(machine, checks, size, progress, place)
    known: list[KnownAllocations] = []
    failure = None
    try:
        known = known_allocations(place.interpreter(python), size, progress, place)
    except MemprofError as error:
        failure = str(error)
    except OSError as error:
        failure = f"{error.filename or 'measuring'}: {os_reason(error)}"
    transients = compared(known, size)
    runs = [measured.run for measured in known]
    polling = typical_polling(runs)
    exact = bool(runs) and all(mark.rss_peak_exact for run in runs for mark in measured_marks(run))
    return DoctorReport(
        python=interpreter,
        machine=machine,
        checks=(*measured_checks(runs, polling, exact), *checks),
        transients=transients,
        polling=polling,
        peak_exact=exact,
        peak_error_bytes=worst([transient.peak_error_bytes for transient in transients]),
        verdict=verdict(transients, machine.peak_bound_bytes, exact, failure, _by_thread(machine)),
        failure=failure,
    )


def _by_a_program(machine: Machine, checks: Sequence[Check], size: int, progress: Progress, place: Place) -> DoctorReport:
    """The report on a place without Python, where only programs can be measured. Raises InputError."""
    run = failure = None
    try:
        run = known_program(size, progress, place)
    except MemprofError as error:
        failure = str(error)
    except OSError as error:
        failure = os_reason(error)
    mark = run.mark(RUN) if run is not None else None
    exact = mark is not None and mark.rss_peak_exact
    polling = run.polling if run is not None else None
    looks: dict[str, Callable[[], Finding]] = {
        "high-water mark": lambda: _high_water(_succeeds(place, "echo 5 > /proc/self/clear_refs")),
        "polling": lambda: _polled(polling),
        "smaps_rollup": lambda: _rollup(_succeeds(place, "cat /proc/self/smaps_rollup")),
    }
    return DoctorReport(
        python="",
        machine=machine,
        checks=(*(Check(FIGURES, name, *guarded(look)) for name, look in looks.items()), *checks),
        transients=(),
        polling=polling,
        peak_exact=exact,
        peak_error_bytes=None,
        verdict=program_verdict(
            mark.height_bytes if mark is not None else 0, size, machine.peak_bound_bytes, exact, failure, _by_thread(machine)
        ),
        failure=failure,
    )


def _succeeds(place: Place, script: str) -> bool:
    return place.run(["sh", "-c", script], 20).returncode == 0


# -- judging the measured figures

_A_THREAD = " for each thread"  # as a run states its bound for all threads that it had


def _by_thread(machine: Machine) -> bool:
    return late_by_thread(machine.kernel)


def program_verdict(peak: int, size: int, bound: int, exact: bool, failure: str | None, by_thread: bool = False) -> str:
    """A sentence on how exact a program's peak is, by a program that held a block of this size, and little else; all in bytes.

    by_thread: see memprof.base.counter_bounds; the bound is then that of one thread.
    """
    if failure is not None:
        return f"nothing could be measured here: {failure}"
    measured = f"a program that holds {format_bytes(size)} was measured with {format_bytes(peak)}"
    if not exact or peak < size - bound:
        return f"peaks are not exact here: {measured}"
    return f"peaks of programs are exact to {format_bound(bound)}{_A_THREAD if by_thread else ''} here ({measured})"


def verdict(transients: Sequence[Transient], bound: int, exact: bool, failure: str | None, by_thread: bool = False) -> str:
    """A sentence on how exact a peak is here: never finer than the kernel's bound in bytes, and never finer than the errors that were measured.

    by_thread: as in `program_verdict`.
    """
    if failure is not None:
        return f"nothing could be measured here: {failure}"
    error_seen = worst([transient.peak_error_bytes for transient in transients]) or 0
    if not exact:
        return f"peaks are not exact here: the high-water mark cannot be reset, and polling was {abs(error_seen) / MIB:.1f} MiB off"
    error = max(abs(error_seen), bound)
    sentence = f"peaks are exact to {format_bound(error)}{_A_THREAD if by_thread else ''} here"
    slow = worst([transient.polled_50ms_error_bytes for transient in transients])
    if slow is not None and -slow > error:
        sentence += f" (polling every 50 ms: up to {-slow / MIB:.0f} MiB missed)"
    return sentence


def measured_checks(runs: Sequence[Run], polling: Polling | None, exact: bool) -> list[Check]:
    """The checks that the measured children answer, beside their peaks."""
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
    facts = f"median {polling.median_ns / MS:.2f} ms, p99 {polling.p99_ns / MS:.2f} ms where 1 ms was requested"
    if polling.p99_ns <= 2 * MS:
        return "ok", facts, "a timeline shows changes that last longer; peaks do not depend on it"
    return "limited", facts, "a timeline has gaps (a busy machine?); peaks do not depend on it"


def _rollup(has_rollup: bool) -> Finding:
    if has_rollup:
        return "ok", "there", "PSS and USS at the end of each phase, always exact"
    return "missing", "not there", "PSS and USS are shown as -"


def _allocator(has_mallinfo2: bool, python: str) -> Finding:
    if has_mallinfo2:
        return "ok", "has mallinfo2", "memory that the heap holds is shown apart from freed memory that glibc kept"
    return "missing", f"no mallinfo2 under Python {python} (glibc before 2.33, or no glibc)", "heap figures are shown as -"


# -- looks


_MIRRORED = (
    "/proc/meminfo",
    "/proc/pressure/memory",
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/proc/swaps",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
)


def mirror(place: Place, folder: Path) -> None:
    """Copy the files there that looks read to below this folder, as far as they are there. Raises InputError."""
    for path in _MIRRORED:
        done = place.run(["cat", path], 20)
        if done.returncode == 0:
            target = folder / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(done.stdout)


def far_looks(place: Place, machine: Machine, root: Path) -> tuple[Check, ...]:
    """The checks that can be made of another machine, from outside; root: see `mirror`."""
    table: tuple[tuple[str, str, Callable[[], Finding]], ...] = (
        (FIGURES, "statm, status", lambda: counters(machine.kernel)),
        (FIGURES, "pressure (PSI)", lambda: pressure(root)),
        *_device_looks(place, machine),
        (MACHINE, "CPUs", lambda: processors(machine.cpus, machine.cpus_usable, machine.peak_bound_bytes, _by_thread(machine))),
        (MACHINE, "emulation", lambda: emulation(place)),
        (MACHINE, "load", lambda: load(place.busy()[0])),
        (MACHINE, "memory", lambda: memory(root)),
        (MACHINE, "swap", lambda: swap(root)),
        (MACHINE, "huge pages", lambda: huge_pages(root)),
        (MACHINE, "temperature", lambda: _weather(place.weather())),
        (CHILD, "recorder", lambda: _recorder(place)),
    )
    return tuple(Check(topic, name, *guarded(look)) for topic, name, look in table)


def _device_looks(place: Place, machine: Machine) -> tuple[tuple[str, str, Callable[[], Finding]], ...]:
    facts = cache(partial(device_facts, place))  # one look, in the first check that needs it
    return (
        (DEVICES, "dma-buf", lambda: dma_bufs(facts(), machine.kernel)),
        (DEVICES, "DRM clients", lambda: drm_clients(facts())),
        (DEVICES, "NVIDIA", lambda: nvidia_driver(facts(), place is HERE)),
        (DEVICES, "closed drivers", lambda: closed_drivers(facts())),
        (DEVICES, "kernel parts", lambda: kernel_parts(facts())),
    )


def _weather(weather: MachineState) -> Finding:
    if weather.celsius is None:
        return "missing", "no sensor that the kernel tells of", "--max-temperature has no effect"
    return "ok", f"{weather.celsius:g} °C", "kept with each run; --max-temperature waits for a lower one"


def _recorder(place: Place) -> Finding:
    if place.recorder == "python":
        return "ok", f"Python, {place.python}", "runtimes and programs can be measured"
    return "limited", "in C: there is no Python 3.8 or later", "programs can be measured, runtimes only with --python"


def looks(python: str, machine: Machine, root: Path = ROOT) -> tuple[Check, ...]:
    """The checks that need no measuring."""
    answers = tool_answers()
    table: tuple[tuple[str, str, Callable[[], Finding]], ...] = (
        (FIGURES, "statm, status", lambda: counters(machine.kernel)),
        (FIGURES, "cgroup memory", lambda: control_group(root)),
        (FIGURES, "soft-dirty", soft_dirty),
        (FIGURES, "idle pages", lambda: idle_pages(root)),
        (FIGURES, "pressure (PSI)", lambda: pressure(root)),
        *_device_looks(HERE, machine),
        (MACHINE, "CPUs", lambda: processors(machine.cpus, machine.cpus_usable, machine.peak_bound_bytes, _by_thread(machine))),
        (MACHINE, "emulation", lambda: emulation(HERE)),
        (MACHINE, "load", lambda: load(psutil.cpu_percent(interval=0.3))),
        (MACHINE, "memory", lambda: memory(root)),
        (MACHINE, "swap", lambda: swap(root)),
        (MACHINE, "huge pages", lambda: huge_pages(root)),
        (CHILD, "interpreter", lambda: path_files(python)),
        (CHILD, "end of processes", ending),
        (CHILD, "address layout", address_layout),
        (CHILD, "ptrace", lambda: ptrace(root)),
        (TOOLS, "memprof", distribution),
        *((TOOLS, name, partial(tool, name, answers[name], root)) for name in LOOKED_FOR),
    )
    return tuple(Check(topic, name, *guarded(look)) for topic, name, look in table)
