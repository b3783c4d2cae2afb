"""Runs a model's job, or any program, under massif, heaptrack or memray, and keeps the tool's files with the phases beside them.

The run goes through the same recorder as every measurement, so the phases are those of `memprof run`, on CLOCK_MONOTONIC. Its memory
figures are the tool's doing and are not kept: the folder gets phases.json (see phases.py), never a runs file.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..base import files, processes
from ..base.errors import InputError, MeasurementError, UsageError, near, os_reason
from ..base.leftovers import end_leftovers, scratch
from ..campaign import campaign
from ..campaign.progress import Progress, Quiet
from ..records.phases import WORDS
from ..records.types import WARMUP, Outcome, Run
from ..subjects.order import Order
from ..subjects.orders import of_one
from ..subjects.suite import Suite
from . import alignment, heaptrack, phases

Tool = Literal["massif", "heaptrack", "memray"]
TOOLS: tuple[Tool, ...] = ("memray", "heaptrack", "massif")  # fastest first
_HEAPTRACK_WRITERS = ("zstd", "gzip", "heaptrack_inter")  # started by heaptrack's script beside the program; the kernel cuts names
SLOWDOWN = {
    "memray": "about 3 times slower than alone, up to 10 times where Python makes many objects",
    "heaptrack": "about 4 times slower than alone",
    "massif": "2 to 10 times slower than alone, on FMA kernels hundreds of times",
}
_UNKNOWN_TO_VALGRIND = (
    "valgrind probably lacks an instruction that this CPU has (AVX-512, for example); --tool heaptrack runs the program on the CPU itself"
)
_STARTERS = frozenset(
    {"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox", "env", "nice", "ionice", "taskset", "timeout", "setsid", "stdbuf"}
)
_GRACE_NS = 60 * 10**9
_WATCHED_NS = 20_000_000  # unless the user says more: the tool's own pace makes finer polling pointless


class HeapRequest(Struct, frozen=True):
    """A recording to be made, of either `suite` (a model in a runtime, or a program) or `order` (one run that is known in full).

    tool: None for the fastest installed tool that can. until: the last phase wanted, None for all. detailed_freq, threshold (percent): massif's.
    """

    folder: Path
    suite: Suite | None = None
    order: Order | None = None
    tool: Tool | None = None
    until: str | None = None
    pages_as_heap: bool = False
    stacks: bool = False
    detailed_freq: int | None = None
    threshold: float | None = None


class Recorded(Struct, frozen=True):
    """A recording. files: the tool's, that of the measured process first. partial: why they do not reach the program's end, or None."""

    tool: Tool
    files: tuple[Path, ...]
    run: Run
    partial: str | None = None


def parse_phases(text: str) -> str | None:
    """The last phase of `load,prepare`, None if it is the job's last. Raises UsageError for an unknown word, or for none at all."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in WORDS:
            raise UsageError(f"--phases {text}: there is no phase {word!r}{near(word, WORDS)}; there are {', '.join(WORDS)}")
    if not words:
        raise UsageError("--phases: name at least one of " + ", ".join(WORDS))
    last = max(words, key=list(WORDS).index)
    return None if last == "execute" else WORDS[last]


def choose(request: HeapRequest, python: str | None, starter: bool = False) -> tuple[Tool, str]:
    """The tool to use and why, in a line. python: the interpreter of the measured program, None if that is not Python's. starter: it is a shell or
    another program that starts the one of interest.

    Raises InputError if the tool is not installed, UsageError if it cannot do what the request asks.
    """
    needs_massif = _only_massif(request)
    if request.tool is not None:
        if request.tool != "massif" and needs_massif:
            raise UsageError(f"{needs_massif} needs --tool massif")
        if request.tool == "memray" and python is None:
            raise UsageError("--tool memray records programs of Python only, and this is none: --tool heaptrack or massif records it")
        missing = _missing(request.tool, python)
        if missing:
            raise InputError(missing)
        return request.tool, f"recording with {request.tool}: {SLOWDOWN[request.tool]}"
    needs_massif = needs_massif or ("the programs that a shell or a script starts" if starter else None)
    tools: Sequence[Tool] = ("massif",) if needs_massif else TOOLS
    reasons: list[str] = []
    for tool in tools:
        missing = _missing(tool, python)
        if missing is None:
            why = f"the one that takes {needs_massif}" if needs_massif else "the fastest that is installed and can do it"
            # Of a program of Python memray would have been the first choice.
            lacks = f". It names no lines of Python, because {reasons[0]}" if python is not None and reasons else ""
            return tool, f"recording with {tool}, {why}: {SLOWDOWN[tool]}{lacks}"
        reasons.append(missing)
    raise InputError("; ".join(reasons))


def _only_massif(request: HeapRequest) -> str | None:
    given = {
        "--pages-as-heap": request.pages_as_heap,
        "--stacks": request.stacks,
        "--detailed-freq": request.detailed_freq is not None,
        "--threshold": request.threshold is not None,
    }
    return next((option for option, is_given in given.items() if is_given), None)


def _missing(tool: Tool, python: str | None) -> str | None:
    """Why a tool cannot be used here, or None."""
    if tool == "massif":
        return None if shutil.which("valgrind") else "valgrind is not installed: on Debian, apt-get install valgrind"
    if tool == "heaptrack":
        return None if shutil.which("heaptrack") else "heaptrack is not installed: on Debian, apt-get install heaptrack"
    if python is None:
        return "memray records programs of Python only"
    check = [python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('memray') is None)"]
    try:
        if subprocess.run(check, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode == 0:
            return None
    except (OSError, subprocess.TimeoutExpired):
        pass
    return f"memray is not installed in {python}: pip install memray"


def record(request: HeapRequest, progress: Progress) -> Recorded:
    """Run the program under the tool. The folder is made, and must be new or empty.

    Raises UsageError or InputError before anything starts, MeasurementError if the program ended without leaving the tool's file.
    """
    order = _order(request)
    python = interpreter(order)
    tool, sentence = choose(request, python, order.argv is not None and python is None and _is_starter(order.argv[0]))
    _make(request.folder)
    progress.say(sentence)
    end_leftovers()
    # heaptrack's script cannot cope with a space in its file's path
    with scratch("heap") as work, scratch("recording") as recordings:
        wrap = _wrap(tool, request, str(work.folder), python, order.argv is not None)
        under = _under(order, tool, request, wrap, progress.say)
        keep = recordings.folder if tool == "heaptrack" else None
        (run,) = campaign.measure([under], Quiet(progress), lambda line: None, recordings=keep)
        kept = _kept(tool, work.folder, request.folder)
        zero = _heaptrack_zero(kept[0], recordings.folder) if tool == "heaptrack" and kept else None
    if tool == "massif" and _illegal_instruction(run.outcome):
        run = replace(run, outcome=replace(run.outcome, hints=(*run.outcome.hints, _UNKNOWN_TO_VALGRIND)))
    partial = None if run.outcome.ok else f"the program {run.outcome.sentence}"
    if not kept:
        raise MeasurementError(f"{tool} left no file: {_reason(run)}")
    try:
        phases.write(request.folder, tool, [path.name for path in kept], run, partial, zero)
    except OSError as error:
        raise InputError(f"{request.folder}: {os_reason(error)}") from None
    return Recorded(tool, tuple(kept), run, partial)


def _order(request: HeapRequest) -> Order:
    if request.order is not None:
        return request.order
    suite = request.suite or Suite()
    if suite.only.command is not None:
        if request.until is not None:
            raise UsageError("--phases is for a model in a runtime (-r); a program has no phases that memprof could end it after")
        if suite.phases:
            raise UsageError(
                "gdb, which --phase takes, cannot follow a program under a profiler: name the phases by marks (memprof.h) or --phase-regex"
            )
        order = of_one(suite)
        if order.error is not None:
            raise order.error
        return order
    executes = request.until in (None, WARMUP)
    warmup = max(suite.warmup or 0, int(request.until == WARMUP)) if executes else 0
    # release: a tool that ends the program at a phase, or its teardown, frees too
    runs = suite.runs or 1 if executes else 0
    return of_one(replace(suite, warmup=warmup, runs=runs, release=False))


def interpreter(order: Order) -> str | None:
    """The interpreter that runs an order's program, None if that is not Python, or is started by a shell, which memray cannot record."""
    if order.argv is None:
        return None if order.runtime.native is not None else order.python or None
    program = shutil.which(order.argv[0])
    if program is None or _is_python(program):
        return program
    return _named_by_script(program)


def _is_python(program: str) -> bool:
    return os.path.basename(program).startswith(("python", "pypy"))


def _is_starter(program: str) -> bool:
    """Whether heaptrack would see this one only, and not what it starts: it follows neither a fork nor an exec."""
    path = shutil.which(program)
    return path is not None and (os.path.basename(path) in _STARTERS or bool(processes.interpreter_words(path)))


def _named_by_script(script: str) -> str | None:
    """The Python that a script's first line names, by its path or after env; None for any other file."""
    words = processes.interpreter_words(script)
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    program = shutil.which(words[0]) if words else None
    return program if program is not None and _is_python(program) else None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder} is not empty: name a new folder with -o")
        if not os.access(folder, os.W_OK):
            raise InputError(f"{folder} cannot be written to")
    except OSError as error:
        raise InputError(f"{folder}: {os_reason(error)}") from None


# -- starting


def _wrap(tool: Tool, request: HeapRequest, scratch: str, python: str | None, of_program: bool) -> tuple[str, ...]:
    """The words in front of the program's command. of_program: it is none of memprof's runners."""
    if tool == "heaptrack":
        return ("heaptrack", "-o", f"{scratch}/heaptrack")
    if tool == "memray":
        # --native: a runtime's memory is in C++. --follow-fork: a forked child gets another file.
        return (python or sys.executable, "-m", "memray", "run", "--native", "--follow-fork", "--quiet", "-o", f"{scratch}/memray.bin")
    # vgdb would make pipes in the temporary folder, which stay if valgrind is killed.
    words = [
        "valgrind",
        "--vgdb=no",
        "--tool=massif",
        "--time-unit=ms",
        f"--massif-out-file={scratch.replace('%', '%%')}/massif.out.%p",
        "--depth=60",
    ]
    if of_program:
        words.append("--trace-children=yes")  # the program that a script starts
    if request.pages_as_heap:
        words.append("--pages-as-heap=yes")
    if request.stacks:
        words.append("--stacks=yes")
    if request.detailed_freq is not None:
        words.append(f"--detailed-freq={request.detailed_freq}")
    if request.threshold is not None:
        words.append(f"--threshold={request.threshold:g}")
    return tuple(words)


def _under(order: Order, tool: Tool, request: HeapRequest, wrap: tuple[str, ...], say: Callable[[str], None]) -> Order:
    """The order under its tool."""
    interval_ns = order.subject.interval_ns or _WATCHED_NS
    job = replace(order.job, interval_ns=interval_ns, iterations_interval_ns=interval_ns)
    env: dict[str, str | None] = dict(order.env)
    if tool == "massif":
        # valgrind runs one thread at a time anyway, and 3.19 was seen to hang at the exit of a process whose pool of threads still waits.
        if "OPENBLAS_NUM_THREADS" not in {**os.environ, **env}:
            env["OPENBLAS_NUM_THREADS"] = "1"
        if job.threads is None and order.argv is None:
            say("under massif with 1 thread, since valgrind runs one at a time anyway; --threads sets another count")
            job = replace(job, threads=1)
            if order.runtime.threads_env:
                env[order.runtime.threads_env] = "1"
        if request.until is None and order.argv is None and order.runtime.name != "synthetic":
            say("massif takes very long in EXECUTE where kernels use FMA; --phases load,prepare ends before it")
    under = replace(order, job=job, env=env, until=request.until, grace_ns=_GRACE_NS)
    if tool == "memray":
        # pymalloc's arenas would be recorded in place of the objects in them, each at the line that needed a new one.
        if "PYTHONMALLOC" not in {**os.environ, **env}:
            under = replace(under, env={**env, "PYTHONMALLOC": "malloc"})
        return replace(under, wrap=wrap, interprets=True, teardown=True, argv=None if order.argv is None else _script(order.argv))
    return replace(under, wrap=wrap, teardown=tool == "heaptrack", writers=_HEAPTRACK_WRITERS if tool == "heaptrack" else ())


def _script(argv: Sequence[str]) -> tuple[str, ...]:
    """A command of Python without its interpreter: the script that memray runs, and its words."""
    program = shutil.which(argv[0]) or argv[0]
    return tuple(argv[1:]) if _is_python(program) else (program, *argv[1:])


# -- afterwards


def _kept(tool: Tool, scratch: Path, folder: Path) -> list[Path]:
    """Move the tool's files into the folder where they stay. That of the first process comes first."""
    kept = []
    for path in sorted(scratch.iterdir(), key=lambda path: (_pid(path), path.name)):
        target = folder / path.name
        with suppress(OSError):
            if path.stat().st_size == 0 or (tool == "heaptrack" and not heaptrack.has_begun(path)):
                continue
        try:
            with files.drafts(target) as (draft,):
                shutil.move(path, draft)
        except OSError as error:
            raise InputError(f"{target} cannot be written: {os_reason(error)}") from None
        kept.append(target)
    return kept


def _heaptrack_zero(path: Path, recordings: Path) -> alignment.ClockZero | None:
    """The time 0 of heaptrack's file, from the recording in a folder; None where it is known no better than by the launch."""
    recording = next(recordings.iterdir(), None)
    if recording is None:
        return None
    try:
        readings = heaptrack.resident_set(path)
    except InputError:  # it is for who reads the profile to say
        return None
    zero = alignment.zero(readings, alignment.of_processes(recording))
    return zero if zero is not None and zero.error_ns < phases.ERROR_S["heaptrack"] * 1e9 else None


def _pid(path: Path) -> int:
    """The process of a file, by the file's name; 0 if it names none, as that of the first process does."""
    numbers = [part for part in path.name.split(".") if part.isdigit()]
    return int(numbers[-1]) if numbers else 0


def _illegal_instruction(outcome: Outcome) -> bool:
    """Whether SIGILL ended the program, or the one that a shell or a script had started."""
    return outcome.signal == "SIGILL" or outcome.exit_code == 128 + signal.SIGILL


def _reason(run: Run) -> str:
    if _illegal_instruction(run.outcome) and run.outcome.hints:
        return run.outcome.sentence  # valgrind's own words are an address and bytes
    tail = (run.output_tail or "").strip()
    for line in reversed(tail.splitlines()):
        low = line.lower()
        if any(word in low for word in ("ptrace", "permission", "not permitted", "perf_event", "cannot", "error", "failed")):
            return line.strip()[:300]
    if run.outcome.ok:
        return "the program allocated nothing, or ended without the tool's leave"
    return run.outcome.sentence
