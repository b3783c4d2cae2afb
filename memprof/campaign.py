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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from . import runtimes, store
from .bundle import cache_folder, probe_zip
from .errors import MeasurementError
from .probe import procfs
from .records import SCHEMA, Job, Machine, Outcome, Run, Timeline
from .suite import Order, intervals

_TOKEN = "MEMPROF_TOKEN"
_BUILD_TIMEOUT_S = 3600


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


def measure(orders: Sequence[Order], progress: Progress, keep: Callable[[bytes], None]) -> Iterator[Run]:
    """Measure the orders one after another; `keep` is given each Run as a line of a runs file before the Run is yielded.

    Raises InputError when the disk refuses, MeasurementError when a probe itself ends without a word; KeyboardInterrupt passes through. In
    each case no child is left.
    """
    end_leftovers()
    with _token() as token:
        seen: set[str] = set()
        built: dict[str, str | Outcome] = {}
        for index, order in enumerate(orders, 1):
            progress.started(order.job, index, len(orders))
            run, line = _one(order, seen, built, token, progress)
            keep(line)
            progress.finished(run)
            yield run


def _one(order: Order, seen: set[str], built: dict[str, str | Outcome], token: str, progress: Progress) -> tuple[Run, bytes]:
    if order.build is not None:
        key = _build_key(order)
        if key not in built:
            built[key] = _build(order, key, progress)
        result = built[key]
        if isinstance(result, Outcome):
            run = _never_started(order.job, result)
            return run, store.encode(run)
        order = replace(order, job=replace(order.job, built=result))
    line = _probe(order, seen, token, progress)
    return store.decode(line, "the probe's answer"), line + b"\n"


# -- the probe


def _probe(order: Order, seen: set[str], token: str, progress: Progress) -> bytes:
    # -I -S: no site-packages, no PYTHON* variable and no module in the working folder can change what is measured or how.
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(probe_zip())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    answer = None
    try:
        process.stdin.write(probe_line(order, seen, token))
        process.stdin.flush()
        for line in process.stdout:
            word, _, rest = line.rstrip(b"\n").partition(b" ")
            if word == b"run":
                answer = rest
            elif word == b"live":
                phase, _, rss = rest.rpartition(b" ")
                progress.live(phase.decode("utf-8", "replace"), int(rss))
    except BrokenPipeError:
        pass
    finally:
        try:
            process.stdin.close()  # the probe ends its tree at the end of its input, whatever the reason
        except BrokenPipeError:
            pass
        said = process.stderr.read().decode("utf-8", "replace").strip()
        process.wait()
    if answer is None:
        last = said.splitlines()[-1] if said else f"exit code {process.returncode}"
        raise MeasurementError(f"the probe ended without a result ({last})")
    return answer


def probe_line(order: Order, seen: set[str], token: str) -> bytes:
    """What the probe reads: see memprof.probe.__main__. `seen` holds the files that were dropped from the page cache before; it is added to."""
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
    }
    files = _files(job)
    drop = any(path not in seen for path in files)
    seen.update(files)
    message = {
        "job": job,
        "start": {
            "argv": [order.python, str(runtimes.runners_path()), "run"],
            "env": {**order.env, _TOKEN: token},
            "cwd": None,
            "stdin": json.dumps(child) + "\n",
            "deterministic": job.deterministic,
        },
        "timeout_ns": job.timeout_ns,
        "intervals": intervals(job),
        "files": files,
        "cache": job.cache,
        "cache_drop": drop,
    }
    return msgspec.json.encode(message) + b"\n"


def _files(job: Job) -> list[str]:
    if job.built is None:
        return [file.path for file in job.model.files]
    return sorted(str(path) for path in Path(job.built).parent.iterdir() if path.is_file())


# -- converted models


def _build_key(order: Order) -> str:
    """What the converted file depends on: the model's content, the runtime and its version, the knobs and shapes."""
    facts = [
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
    return {key: value for key, value in order.job.knobs.items() if (knob := order.runtime.knob(key)) and knob.acts == "load"}


def _build(order: Order, key: str, progress: Progress) -> str | Outcome:
    """The path of the converted model, from the cache where it was converted before; an Outcome where it failed."""
    folder = cache_folder("built") / key
    if (folder / "built.json").exists():
        return _built(folder)
    progress.say(f"{order.job.model.name}: converting for {order.job.variant}")
    work = Path(tempfile.mkdtemp(prefix=key + ".", dir=cache_folder("built")))
    try:
        outcome = _convert(order, work)
        if outcome is not None:
            return outcome
        if folder.exists():
            shutil.rmtree(folder)
        work.rename(folder)
        return _built(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _convert(order: Order, work: Path) -> Outcome | None:
    job = {
        "runtime": order.runtime.name,
        "model": order.job.model.path,
        "folder": str(work),
        "knobs": order.job.knobs,
        "shapes": order.job.shapes,
        "threads": order.job.threads,
    }
    process = subprocess.Popen(
        [order.python, str(runtimes.runners_path()), "build"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(msgspec.json.encode(job) + b"\n", timeout=_BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Outcome("timeout", phase="BUILD", message=f"converting the model took more than {_BUILD_TIMEOUT_S} s")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    try:
        answer = json.loads((work / "built.json").read_text())
    except (OSError, ValueError):
        last = said.decode("utf-8", "replace").strip().splitlines()[-1:]
        return Outcome("exit", phase="BUILD", exit_code=process.returncode, message=last[0] if last else "it said nothing")
    return Outcome("error", phase="BUILD", message=answer["error"]) if "error" in answer else None


def _built(folder: Path) -> str:
    path = json.loads((folder / "built.json").read_text())["path"]
    return str(folder / Path(path).name) if Path(path).parent.name.startswith(folder.name) else str(path)


def _never_started(job: Job, outcome: Outcome) -> Run:
    empty = Timeline("", "", "", "", 0, 0, 0, 0)
    machine = msgspec.convert(procfs.machine(), Machine)
    return Run(SCHEMA, job, machine, time.time_ns(), outcome, empty)


# -- what a killed memprof left behind


@contextmanager
def _token() -> Iterator[str]:
    """A token for the environments of this process's children, noted in a file for as long as the process lives."""
    token = secrets.token_hex(8)
    note = cache_folder("running") / token
    note.write_text(f"{os.getpid()} {psutil.Process().create_time()}")
    try:
        yield token
    finally:
        note.unlink(missing_ok=True)


def end_leftovers() -> int:
    """End processes whose memprof was killed together with its probe; returns how many."""
    ended = 0
    for note in cache_folder("running").iterdir():
        if _owner_lives(note):
            continue
        for process in psutil.process_iter():
            try:
                if process.environ().get(_TOKEN) == note.name:
                    process.kill()
                    ended += 1
            except (psutil.Error, OSError):
                continue
        note.unlink(missing_ok=True)
    return ended


def _owner_lives(note: Path) -> bool:
    try:
        pid, created = note.read_text().split()
        return psutil.Process(int(pid)).create_time() == float(created)
    except (OSError, ValueError, psutil.Error):
        return False


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
