"""The commands that measure again what a Job was, explain it or profile its heap: words for a shell."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from msgspec.structs import asdict, replace

from ..programs import environments
from ..records.types import COMMAND, Job
from .settings import options
from .suite import DEFAULTS


def command_line(job: Job, repeats: int) -> str:
    """The words for a shell, in the folder of the model. repeats: how often it was measured. A setting that has its default is left out."""
    words = _words(job, repeats)
    if job.runtime == COMMAND:
        return shlex.join(["memprof", "exec", *words, *_program(job)])
    return shlex.join(["memprof", "run", os.path.basename(job.model.path), "-r", _runtime(job), *words])


def explanation(job: Job, on: str | None = None) -> str:
    """The words that explain the memory of a Job that has a model, in this folder. on: the machine where it was measured, None for here."""
    path, place = os.path.relpath(job.model.path), ["--on", on] if on is not None else []
    if job.runtime == COMMAND:
        return shlex.join(["memprof", "explain", path, *place, *_words(job, 1), *_program(job)])
    return shlex.join(["memprof", "explain", *_model_words(job, path, place)])


def heap_record(job: Job, output: str) -> str:
    """The words that profile the heap of a Job, from any folder, into a new folder. gdb cannot follow a program there: functions are no phases."""
    if job.runtime == COMMAND:
        folder = ["--cwd", job.cwd] if job.cwd is not None else []
        return shlex.join(["memprof", "heap", "record", "-o", output, *folder, *_words(replace(job, phases={}), 1), *_program(job)])
    return shlex.join(["memprof", "heap", "record", "-o", output, *_model_words(job, job.model.path)])


def _model_words(job: Job, path: str, place: Sequence[str] = ()) -> list[str]:
    """A model and how it ran, for a command that measures it once and deletes the runtime's object. place: the words of another machine."""
    runtime = _runtime(job)
    elsewhere = job.python not in (None, sys.executable) and "@" not in runtime and os.access(str(job.python), os.X_OK)
    python = ["--python", str(job.python)] if elsewhere else []
    return [path, "-r", runtime, *place, *python, *_words(replace(job, release=True), DEFAULTS.repeats or 1, path)]


def _program(job: Job) -> list[str]:
    """A program behind `--`, with its variables in front. Its words hold the model and the counts that the given ones had places for."""
    return ["--", *(f"{name}={value}" for name, value in job.variables.items()), *job.argv]


def _runtime(job: Job) -> str:
    """The runtime's name, with the version of the environment that memprof made for it, if the Job ran in one."""
    if job.runtime.endswith(".py"):
        return job.runtime
    version = job.version or next((each.version for each in environments.every() if each.interpreter == job.python), None)
    return f"{job.runtime}@{version}" if version else job.runtime


def _words(job: Job, repeats: int, model: str = "") -> list[str]:
    """The settings that are not the defaults. model: its path, if not the folder of the model is meant."""
    is_program = job.runtime == COMMAND
    again = {
        "set": job.knobs,
        "threads": (job.threads,) if job.threads is not None and not is_program else (),
        "env": {} if is_program else job.variables,
        "shapes": job.shapes,
        "inputs": (os.path.relpath(job.inputs) if model else os.path.basename(job.inputs)) if job.inputs is not None else None,
        "values": job.values,
        "phases": job.phases,
        "phase_regexes": job.phase_regexes,
        "warmup": None if is_program else job.warmup,
        "runs": None if is_program else job.runs,
        "cache": job.cache,
        "deterministic": job.deterministic or None,
        "cpus": job.cpus,
        "no_swap": job.no_swap or None,
        "repeats": repeats,
        "release": None if job.release or is_program else False,
    }
    usual = asdict(DEFAULTS) | ({"repeats": 1} if is_program else {})
    return options({name: value for name, value in again.items() if value != usual[name]})
