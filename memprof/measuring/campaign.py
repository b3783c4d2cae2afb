"""From Orders to Runs: each in a fresh process under a probe, one after another, each Run handed over as soon as it exists.

Where a probe runs is the only thing that could vary here; today it is this machine. What an earlier memprof could not clean up because it was
killed with its probe is found by the token in its environment, and ended, before anything is measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from ..errors import InputError, os_reason
from ..probe import procfs
from ..programs import native, runtimes
from ..runs import store
from ..runs.records import SCHEMA, STARTUP, Job, Machine, Outcome, Run
from .bundle import cache_folder, probe_command
from .suite import Order, intervals, offset

_TOKEN = "MEMPROF_TOKEN"
_BUILT = "built.json"
# Beside a converted model, the interpreter that made it: one that belongs to a side of a gate is gone soon, and so is what it made.
MADE_BY = "made_by.txt"
_BUILD_TIMEOUT_NS = 3600 * 10**9
_BUILD_INTERVAL_NS = 10**8
_ENDING_ROUNDS = 10
_HOLD_LIMIT_NS = 300 * 10**9


class Progress(Protocol):
    """Who is told how it goes."""

    def started(self, job: Job, index: int, total: int) -> None:
        """Job number `index` of `total`, from 1, starts."""

    def live(self, phase: str, rss_bytes: int) -> None:
        """The child is in this phase and this large."""

    def finished(self, run: Run) -> None:
        """A job ended, well or not."""

    def say(self, sentence: str) -> None:
        """Something the user should know."""


class Quiet:
    """Passes on what is said and where it is, but not how a run ended: whoever asked has words of its own for that. done: runs before these."""

    def __init__(self, progress: Progress, done: int = 0) -> None:
        self._progress, self._done = progress, done

    def started(self, job: Job, index: int, total: int) -> None:
        self._progress.started(job, self._done + index, self._done + total)

    def live(self, phase: str, rss_bytes: int) -> None:
        self._progress.live(phase, rss_bytes)

    def finished(self, run: Run) -> None:
        pass

    def say(self, sentence: str) -> None:
        self._progress.say(sentence)


def measure(
    orders: Sequence[Order], progress: Progress, keep: Callable[[bytes], None], look: Callable[[Job, str, int], None] | None = None
) -> Iterator[Run]:
    """Convert what must be converted, then measure the orders one after another; each Run is given to `keep` as a line of a runs file.

    Raises InputError when the disk refuses, once the Run that could not be kept was yielded, OSError when no process can be started;
    KeyboardInterrupt passes through. In each case no child is left. An order with an error is a failed Run at once. look: called with (job,
    phase, pid) while the child of a job that holds stands still at the end of a phase, or inside it (PHASE/peak); what it raises ends the
    child and passes through.
    """
    ended = end_leftovers()
    if ended:
        progress.say(f"{ended} process(es) of a memprof that was killed were still running and have been ended")
    with _token() as token:
        ready = _converted(orders, token, progress)
        seen: set[str] = set()
        at = offset(0)
        for index, (order, failed) in enumerate(ready, 1):
            progress.started(order.job, index, len(ready))
            with _input(order, at) as given:
                run, line = failed or ask(order.job, probe_line(order, seen, token, given), token, progress.live, look, given=given)
            try:
                keep(line)
            finally:
                progress.finished(run)
                yield run


def measure_program(job: Job, start: Mapping[str, object], progress: Progress) -> Run:
    """Measure one program that is no runtime of memprof's: `start` is the probe's, without memprof's own variable.

    Raises OSError when no process can be started; KeyboardInterrupt passes through.
    """
    with _token() as token:
        environment = start["env"]
        assert isinstance(environment, Mapping)
        message = {
            "job": job,
            "start": {**start, "env": {**environment, _TOKEN: token}},
            "timeout_ns": job.timeout_ns,
            "intervals": intervals(job),
            "files": [],
            "cache": "asis",
            "cache_drop": False,
        }
        run, _ = ask(job, msgspec.json.encode(message) + b"\n", token, progress.live)
        return run


# -- the probe


def ask(
    job: Job,
    message: bytes,
    token: str,
    live: Callable[[str, int], None],
    look: Callable[[Job, str, int], None] | None = None,
    began: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
    given: int | None = None,
) -> tuple[Run, bytes]:
    """A probe's Run, and its line. A probe that ends without one, whoever killed it, makes a Run that says so.

    look: see `measure`. began: is given the probe as soon as it has its line. given: a descriptor that the probe is to have.
    """
    started_ns, phase, rss, answer = time.time_ns(), STARTUP, 0, b""
    with _probe(given) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with suppress(BrokenPipeError):
            process.stdin.write(message)
            process.stdin.flush()
        began(process)
        for line in process.stdout:
            word, _, rest = line.rstrip(b"\n").partition(b" ")
            if word == b"run":
                answer = rest
            elif word == b"live":
                name, _, size = rest.rpartition(b" ")
                phase, rss = (phase if name == b"-" else name.decode()), int(size)
                live(name.decode(), rss)
            elif word == b"held":
                name, _, pid = rest.rpartition(b" ")
                if look is not None:
                    look(job, name.decode(), int(pid))
                with suppress(BrokenPipeError):
                    process.stdin.write(b"go\n")
                    process.stdin.flush()
        said = process.stderr.read().decode("utf-8", "replace").strip()
    try:
        return store.decode(answer, "its answer"), answer + b"\n"
    except InputError as error:
        end_marked({token})  # the child ended with its probe, but not what the child had started
        reason = str(error) if answer else said.splitlines()[-1] if said else _exit(process.returncode)
    outcome = Outcome("lost", phase, f"the probe ended without a result ({reason})", rss_last_bytes=rss or None)
    return _without_probe(job, started_ns, outcome)


def _without_probe(job: Job, started_ns: int, outcome: Outcome) -> tuple[Run, bytes]:
    """A failed Run of which no probe has anything to say, and its line."""
    machine = msgspec.convert(procfs.machine(), Machine)
    run = Run(SCHEMA, job, machine, started_ns, outcome, store.NOTHING_SEEN)
    return run, store.encode(run)


@contextmanager
def _input(order: Order, at: int | None) -> Iterator[int | None]:
    """For an order that reads it a copy of memprof's own standard input, a file from `at` on; None else, and where it was closed."""
    if not order.stdin or sys.stdin is None:
        yield None
        return
    if at is not None:
        os.lseek(0, at, os.SEEK_SET)  # an earlier repeat has read it
    copy = os.dup(0)
    try:
        yield copy
    finally:
        os.close(copy)


@contextmanager
def _probe(given: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A probe that waits for its line. At the end of the block it is gone, with all that it started. given: see `ask`."""
    # An interruption inside Popen would leave a probe that nobody knows of; inside the block it finds one that is ended.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        process = subprocess.Popen(
            probe_command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if given is None else (given,),
        )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield process
        finally:
            # At the end of its input a probe ends its tree. Its output is closed too, or a line that nobody reads would hold it up.
            for pipe in (process.stdin, process.stdout, process.stderr):
                with suppress(BrokenPipeError):
                    pipe.close()  # type: ignore[union-attr]
            process.wait()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def probe_line(order: Order, seen: set[str], token: str, given: int | None = None) -> bytes:
    """What the probe reads: see memprof.probe.__main__. `seen` holds the files that were dropped from the page cache before; it is added to.
    given: the descriptor that is the child's standard input.
    """
    job = order.job
    child = {
        "runtime": os.path.abspath(job.runtime) if job.runtime.endswith(".py") else job.runtime,
        "model": job.built or job.model.path,
        "threads": job.threads,
        "warmup": job.warmup,
        "runs": job.runs,
        "knobs": job.knobs,
        "shapes": job.shapes,
        "inputs": job.inputs,
        "outputs": order.outputs,
    }
    if order.until is not None or order.teardown:
        child.update(until=order.until, teardown=order.teardown)
    files = [*_files(job), *order.drop]
    drop = any(path not in seen for path in files)
    seen.update(files)
    start: dict[str, object] = {
        "argv": [*order.wrap, *(order.argv or native.argv(order) or [*_program(order), "run"])],
        "env": {**order.env, _TOKEN: token},
        "cwd": order.cwd,
        "stdin": "" if order.command is not None else json.dumps(child) + "\n",
        "input": given,
        "deterministic": job.deterministic,
        "grace_ns": order.grace_ns,
        "group": order.group,
        "rlimits": order.rlimits,
    }
    if order.command is not None:
        start["command"] = order.command
    message = {
        "job": job,
        "start": start,
        "timeout_ns": job.timeout_ns,
        "intervals": intervals(job),
        "files": files,
        "cache": job.cache,
        "cache_drop": drop,
        "hold": {"limit_ns": _HOLD_LIMIT_NS, "at": order.hold_at} if job.hold else None,
    }
    return msgspec.json.encode(message) + b"\n"


def _program(order: Order) -> list[str]:
    path = runtimes.runners_path()
    # A wrapper that is an interpreter itself may know nothing of programs that are folders.
    return [order.python, str(path)] if order.python else [str(path / "__main__.py")]


def _files(job: Job) -> list[str]:
    if job.built is None:
        return [file.path for file in job.model.files]
    folder = next((folder for folder in Path(job.built).parents if folder.parent == cache_folder("built")), None)
    if folder is None:
        return [job.built]
    return sorted(str(path) for path in folder.rglob("*") if path.is_file() and path.name not in (_BUILT, MADE_BY))


# -- converted models


def _converted(orders: Sequence[Order], token: str, progress: Progress) -> list[tuple[Order, tuple[Run, bytes] | None]]:
    """The orders with their converted models; beside one whose model could not be converted, or that cannot be started, the Run that says why."""
    built: dict[str, str | Run] = {}
    ready: list[tuple[Order, tuple[Run, bytes] | None]] = []
    for order in orders:
        if order.error is not None:
            ready.append((order, _without_probe(order.job, time.time_ns(), Outcome("start", STARTUP, str(order.error)))))
            continue
        if order.build is None:
            ready.append((order, None))
            continue
        key = _build_key(order)
        if key not in built:
            built[key] = _build(order, key, token, progress)
        result = built[key]
        if isinstance(result, Run):
            run = replace(result, job=order.job)
            ready.append((order, (run, store.encode(run))))
        else:
            path = result if result != order.job.model.path else None
            ready.append((replace(order, job=replace(order.job, built=path)), None))
    return ready


def _build_key(order: Order) -> str:
    """What the converted file depends on: the model's content, the runtime, its version and where it lives, the knobs and shapes."""
    facts = [
        order.python,  # two builds of one version convert in ways of their own
        order.job.model.sha256,
        order.runtime.name,
        str(order.runtime.version),
        json.dumps(order.build, sort_keys=True),
        json.dumps(_load_knobs(order), sort_keys=True),
        json.dumps(dict(order.job.shapes), sort_keys=True),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def _load_knobs(order: Order) -> dict[str, str]:
    # A conversion may depend on how it will be loaded: onnxruntime's own format holds the graph as optimised.
    return {key: value for key, value in order.job.knobs.items() if key in order.runtime.build_uses}


def _build(order: Order, key: str, token: str, progress: Progress) -> str | Run:
    """The path of the converted model, from the cache where it was converted before; the Run of the conversion where that failed."""
    folder = cache_folder("built") / key
    if not folder.exists():
        progress.say(f"{order.job.model.name}: converting for {order.job.variant}")
        work = folder.with_name(f"{key}.{token}")
        work.mkdir()
        try:
            run, _ = ask(order.job, _build_line(order, work, token), token, lambda phase, rss: None)
            if not run.outcome.ok:
                return run
            (work / MADE_BY).write_text(order.python)
            with suppress(OSError):  # another memprof may have been quicker, and may be measuring what it made
                work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return str(folder / json.loads((folder / _BUILT).read_text())["path"])


def _build_line(order: Order, work: Path, token: str) -> bytes:
    child = {
        "runtime": order.runtime.name,
        "model": order.job.model.path,
        "folder": str(work),
        "knobs": order.job.knobs,
        "shapes": order.job.shapes,
        "threads": order.job.threads,
    }
    message = {
        "job": order.job,
        "start": {
            "argv": [order.python, str(runtimes.runners_path()), "build"],
            "env": {**order.job.env, _TOKEN: token},
            "cwd": None,
            "stdin": json.dumps(child) + "\n",
            "deterministic": False,
        },
        "timeout_ns": _BUILD_TIMEOUT_NS,
        "intervals": {"": _BUILD_INTERVAL_NS},
        "files": [],
        "cache": "asis",
        "cache_drop": False,
    }
    return msgspec.json.encode(message) + b"\n"


# -- what a killed memprof left behind


@contextmanager
def _token() -> Iterator[str]:
    """A token for the environments of this process's children, noted in a file for as long as the process lives."""
    token = secrets.token_hex(8)
    note = cache_folder("running") / token
    try:
        fresh = note.with_name(f".{token}")
        fresh.write_text(f"{os.getpid()} {procfs.started(os.getpid())} {_place()}")
        fresh.rename(note)  # whole from the first moment on: another memprof that starts now takes a note without an owner for a dead one's
    except OSError as error:
        raise InputError(f"{note} cannot be written: {os_reason(error)}; XDG_CACHE_HOME can name another place") from None
    try:
        yield token
    finally:
        note.unlink(missing_ok=True)


def end_leftovers() -> int:
    """End processes whose memprof was killed together with its probe, and remove what it was converting; returns how many were ended."""
    orphaned = [note for note in cache_folder("running").iterdir() if not note.name.startswith(".") and not _owner_lives(note)]
    ended = end_marked({note.name for note in orphaned}) if orphaned else 0
    for note in orphaned:
        for work in cache_folder("built").glob(f"*.{note.name}"):
            shutil.rmtree(work, ignore_errors=True)
        note.unlink(missing_ok=True)
    return ended


def end_marked(tokens: set[str]) -> int:
    """End every process that has one of these tokens in its environment, and those they start meanwhile; returns how many."""
    ended = 0
    for _ in range(_ENDING_ROUNDS):
        found = [process for process in psutil.process_iter() if _token_of(process) in tokens]
        if not found:
            break
        for process in found:
            with suppress(psutil.Error):
                process.kill()
                ended += 1
        psutil.wait_procs(found, timeout=1)
    return ended


def _token_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(_TOKEN) if process.pid != os.getpid() else None
    except (psutil.Error, OSError):
        return None


def _owner_lives(note: Path) -> bool:
    """Whether the memprof that wrote a note still runs; one on another machine or in another container is taken to."""
    try:
        pid, started, place = note.read_text().split()
        return place != _place() or str(procfs.started(int(pid))) == started
    except OSError:
        return True  # it has just ended
    except ValueError:
        return True  # in another memprof's words: its own to clean up


def _place() -> str:
    return f"{os.uname().nodename}/{os.stat('/proc/self/ns/pid').st_ino}"


def surroundings(total_model_bytes: int) -> list[str]:
    """What about this machine, right now, would spoil a figure."""
    remarks = []
    busy = psutil.cpu_percent(interval=0.3)
    if busy > 25:
        remarks.append(f"the machine is busy ({busy:.0f}% of its CPUs): times will be too long")
    available = psutil.virtual_memory().available
    if available < 4 * total_model_bytes:
        remarks.append(f"only {available >> 20} MiB of memory are free, for models of {total_model_bytes >> 20} MiB")
    return remarks
