"""What `tune` searches the settings of: a model in a runtime, or a program. Each makes Orders of settings, and tells the settings of an earlier Run.

A program has the knobs that act by the environment of any process (malloc's, and other allocators), variables, and values for the `{NAME}`s among
its words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import InputError, UsageError, near
from ...programs import commands
from ...programs.commands import Command
from ...programs.runtimes import Knob
from ...records.settings import written
from ...records.types import COMMAND, Job, Model, Run
from ...subjects import command_orders, orders
from ...subjects.order import Order
from ...subjects.suite import Suite, Variant
from .answer import ENV, THREADS, TuneRequest, apart
from .candidates import candidates_of, needs_of
from .search import DEFAULT, Needs, Settings

# A word of a program that waits for a value. In a script with spaces, and behind a dollar sign, braces are the program's own.
_BRACES = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")


Written = Mapping[tuple[str, str], tuple[str, str]]


class Iterations(Struct, frozen=True):
    """The iterations of a run: warm-up ones, and timed ones."""

    warmup: int
    runs: int


class Subject(Protocol):
    """What is searched.

    name: of the runtime or the program. version: of the runtime, None where it is not known. suite: of all its trials. candidates, needs: see
    Search. is_program: it has no outputs to compare, and no iterations that memprof counts.
    """

    name: str
    version: str | None
    model: Model
    suite: Suite
    candidates: Mapping[str, Sequence[str]]
    needs: Needs
    is_program: bool

    def variant(self, settings: Settings, name: str) -> Variant:
        """The settings as a variant of that name."""

    def order(self, settings: Settings, name: str, iterations: Iterations) -> Order:
        """The Order of these settings. iterations: a program has them in its own words."""

    def settings_of(self, run: Run) -> Settings:
        """The settings of an earlier trial. Raises InputError for a Run that is none of this search."""


def subject_of(request: TuneRequest) -> Subject:
    """The subject of a request. Raises UsageError and InputError for a fault of the request."""
    command = request.suite.only.command
    if command is not None:
        return _OfProgram(request, command)
    return _InRuntime(request)


class _InRuntime:
    is_program = False

    def __init__(self, request: TuneRequest) -> None:
        self._request = request
        suite, own = request.suite, request.suite.only
        self.model, runtime, python = orders.located(suite, travels=request.fleet is not None)
        self.name, self.version = runtime.name, runtime.version
        self.suite = replace(
            suite,
            runtimes=(),
            variants=(),
            set=request.fixed,
            env={**suite.env, **own.env},
            shapes={**suite.shapes, **own.shapes},
            threads=request.threads[:1],
            python=python,
        )
        self.candidates: Mapping[str, Sequence[str]] = candidates_of(runtime, request)
        self.needs: Needs = needs_of(runtime, self.candidates)
        self._written = _as_written(runtime.knobs, self.candidates)

    @cached_property
    def _default(self) -> Job:
        return self.order(DEFAULT, "default", Iterations(0, 1)).job

    def variant(self, settings: Settings, name: str) -> Variant:
        values = apart(settings, self._request.defaults)
        env = {key.removeprefix(ENV): value for key, value in {**self._request.defaults, **values.filled}.items()}
        own = self._request.suite.only.runtime
        return Variant(runtime=own, name=name, set=values.knobs, threads=values.threads, python=self.suite.python, env=env)

    def order(self, settings: Settings, name: str, iterations: Iterations) -> Order:
        suite = replace(self.suite, warmup=iterations.warmup, runs=iterations.runs)
        return orders.order(suite, self.model, self.variant(settings, name))

    def settings_of(self, run: Run) -> Settings:
        job, default = run.job, self._default
        counts = self._request.threads or (None,)
        if (job.model.sha256, job.runtime) != (self.model.sha256, self.name) or job.threads not in counts:
            raise InputError("the runs in the -o file are of another model, runtime or thread count")
        settings = _beyond(default, job, self._written)
        if any(key in job.knobs and job.knobs[key] != value for key, value in default.knobs.items()):
            raise InputError("the runs in the -o file were measured with other --set")
        for name, first in self._request.defaults.items():
            value = job.env.get(name.removeprefix(ENV))
            if value is None or value not in self._request.tries[name]:
                raise InputError(f"the runs in the -o file were measured without --try {name}={first}")
            settings |= {(name, value)} if value != first else set()
        if self._request.fleet is None and run.about and self.version and run.about.runtime_version != self.version:
            raise InputError(f"the runs in the -o file are of {job.runtime} {run.about.runtime_version}, not {self.version}")
        return frozenset(settings)


class _OfProgram:
    is_program = True
    version: str | None = None

    def __init__(self, request: TuneRequest, command: Command) -> None:
        self._request, self.name = request, command.name
        runtime = replace(commands.RUNTIME, name=command.name, knobs=tuple(command_orders.common_knobs().values()))
        _check_names(request, command, [knob.name for knob in runtime.knobs])
        # A variable to try is one more place to fill in.
        variables = {name.removeprefix(ENV): f"{{{name}}}" for name in request.tries if name.startswith(ENV)}
        self._command = replace(command, env={**command.env, **variables})
        self.suite = replace(request.suite, runtimes=(), threads=request.threads[:1])
        self.candidates: Mapping[str, Sequence[str]] = candidates_of(runtime, request)
        self.needs: Needs = needs_of(runtime, self.candidates)
        self._written = _as_written(runtime.knobs, self.candidates)
        self.model = self._default.model

    @cached_property
    def _default(self) -> Job:
        return self.order(DEFAULT, self.name, Iterations(0, 0)).job  # its name is that of sentences

    def variant(self, settings: Settings, name: str) -> Variant:
        values = apart(settings, self._request.defaults)
        filled = self._command.filled({**self._request.defaults, **values.filled})
        return Variant(COMMAND, name, values.knobs, values.threads, command=replace(filled, name=name))

    def order(self, settings: Settings, name: str, iterations: Iterations) -> Order:
        return orders.of_one(replace(self.suite, variants=(self.variant(settings, name),)))

    def settings_of(self, run: Run) -> Settings:
        job, default, fixed = run.job, self._default, self._default.knobs
        filled = self._filled(job) if job.argv and job.threads in (self._request.threads or (default.threads,)) else None
        rebuilt = (
            job.program and default.program and job.program.path == default.program.path and job.program.sha256 != default.program.sha256
        )
        if filled is None or rebuilt or (job.phases, job.phase_regexes) != (default.phases, default.phase_regexes):
            raise InputError("the runs in the -o file are of another program, or of other words, values, phases or thread counts")
        if any(job.knobs.get(key) != value for key, value in fixed.items()):
            raise InputError("the runs in the -o file were measured with other --set")
        return frozenset(
            _beyond(default, job, self._written)
            | {(name, value) for name, value in filled.items() if value != self._request.defaults[name]}
        )

    def _filled(self, job: Job) -> dict[str, str] | None:
        """The values that a Run's words and variables have where something was to be filled in, None if they are not those of this search."""
        words: dict[str, object] = {"threads": job.threads, "runs": job.runs, "warmup": job.warmup}
        if self._command.has("model"):
            words["model"] = self.suite.place.model(self.model)
        command = self._command.filled({word: value for word, value in words.items() if word not in self._request.tries})
        env = {**self.suite.env, **command.env}
        if set(env) != set(job.env):
            return None
        program, *others = command.argv
        template = "\0".join([os.path.expanduser(program).removeprefix("./"), *others, *(env[name] for name in sorted(env))])
        pattern = re.escape(template)
        tried = {name: values for name, values in self._request.tries.items() if name in self._request.defaults}
        for number, (name, values) in enumerate(tried.items()):
            place = re.escape(f"{{{name}}}")
            pattern = pattern.replace(place, f"(?P<value{number}>{'|'.join(map(re.escape, values))})", 1).replace(
                place, f"(?P=value{number})"
            )
        found = re.fullmatch(f"(?:[^\0]*/)?{pattern}", "\0".join([*job.argv, *(str(job.env[name]) for name in sorted(job.env))]))
        return {name: found[f"value{number}"] for number, name in enumerate(tried)} if found else None


def _as_written(knobs: Sequence[Knob], candidates: Mapping[str, Sequence[str]]) -> Written:
    """Each candidate by its knob's name and its value as a Run keeps it: 65536 for 64KiB."""
    return {(knob.name, knob.check(value)): (knob.name, value) for knob in knobs for value in candidates.get(knob.name, ())}


def _beyond(default: Job, job: Job, as_written: Written) -> set[tuple[str, str]]:
    """The knobs and the thread count that a job has beyond the default settings, as the candidates write them."""
    texts = written(job.knobs)
    settings = {as_written.get((key, value), (key, texts[key])) for key, value in job.knobs.items() if key not in default.knobs}
    if job.threads != default.threads:
        settings.add((THREADS, str(job.threads)))
    return settings


def _check_names(request: TuneRequest, command: Command, knobs: Sequence[str]) -> None:
    """Raises UsageError for a name to try that is nowhere, and for a place that nothing fills in."""
    texts = [text for text in (*command.argv, *command.env.values(), *request.suite.env.values()) if not re.search(r"\s", text)]
    places = [name for text in texts for name in _BRACES.findall(text)]
    for name in request.tries:
        if not (name.startswith(ENV) or name in knobs or command.has(name)):
            raise UsageError(
                f"--try {name}: write {{{name}}} where its value goes among the words of {command.name}{near(name, [*places, *knobs])}"
            )
    for name in places:
        if name not in (*commands.WORDS, *request.tries):
            raise UsageError(f"{command.name}: {{{name}}} stands for values to try, and none are given: --try {name}=VALUE,VALUE")
