"""The command that measures again what a Job was: `memprof run` for a runtime, `memprof exec` for a program."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from memprof.records.types import COMMAND, Job
from memprof.subjects.suite import DEFAULTS


def command_line(job: Job, repeats: int) -> str:
    """The words for a shell, in the folder of the model. repeats: how often it was measured. A setting that has its default is left out."""
    if job.runtime == COMMAND:
        words = ["memprof", "exec", *_shared(job), *([] if repeats == 1 else ["--repeats", str(repeats)]), "--"]
        return shlex.join([*words, *(f"{name}={value}" for name, value in job.variables.items()), *job.argv])
    words = ["memprof", "run", os.path.basename(job.model.path), "-r", job.runtime, *_of_a_runtime(job), *_shared(job)]
    words += [f"--env={name}={value}" for name, value in job.variables.items()]
    return shlex.join([*words, *([] if repeats == DEFAULTS.repeats else ["--repeats", str(repeats)])])


def settings(job: Job) -> Iterator[str]:
    """The words for a Job's knobs and threads."""
    for name, value in job.knobs.items():
        yield from ("--set", f"{name}={value}")
    if job.threads is not None:
        yield from ("--threads", str(job.threads))


def _of_a_runtime(job: Job) -> Iterator[str]:
    yield from settings(job)
    for name, shape in job.shapes.items():
        yield from ("--shape", f"{name}={','.join(map(str, shape))}")
    if job.inputs is not None:
        yield from ("--inputs", os.path.basename(job.inputs))
    for name, value in job.values.items():
        yield from ("--input", f"{name}={value}")
    for word, count in (("warmup", job.warmup), ("runs", job.runs)):
        if count != getattr(DEFAULTS, word):
            yield from (f"--{word}", str(count))
    if not job.release:
        yield "--no-release"


def _shared(job: Job) -> Iterator[str]:
    for name, regex in job.phase_regexes.items():
        yield from ("--phase-regex", f"{name}={regex}")
    for name, function in job.phases.items():
        yield from ("--phase", f"{name}={function}")
    if job.cache != DEFAULTS.cache:
        yield from ("--cache", job.cache)
    if job.cpus is not None:
        yield from ("--cpus", job.cpus)
    if job.deterministic:
        yield "--deterministic"
    if job.no_swap:
        yield "--no-swap"
