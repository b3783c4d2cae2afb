"""What to measure: models and variants, from flags or a TOML file, checked before anything starts and turned into Jobs.

A variant is a named column of the comparison: a runtime with settings of its own. A suite file says the same in the same words:

    models = ["inception_v3.tflite"]
    repeats = 5
    threads = [1, 2]
    [set]                        # a knob, for every runtime that has it
    malloc_arenas = "1"
    [[variant]]
    name = "mapped"
    runtime = "onert"
    set = { mmap = "on" }
    [[variant]]                  # any program; {model}, {threads}, {runs} and {warmup} are filled in
    name = "native"
    cmd = "./onert_run --nnpackage {model} -r {runs}"
    cwd = "build"

Paths in a file are relative to the file.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import InputError, MemprofError, UsageError, near, os_reason
from ..models.identity import identify
from ..programs import commands, native, runtimes
from ..programs.commands import Command
from ..programs.runtimes import Knob, Runtime
from ..runs.records import COMMAND, EXECUTE, Cache, Job, Model, ModelFile
from ..units import parse_duration_ns

MS = 1_000_000


@dataclass(frozen=True)
class Variant:
    """A named column: a runtime and what is set for it beyond what is set for all, or a command and no runtime."""

    runtime: str
    name: str = ""
    set: Mapping[str, str] = field(default_factory=dict)
    threads: tuple[int, ...] = ()
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    command: Command | None = None


@dataclass(frozen=True)
class Build:
    """How `gate --base-ref` makes an environment for each side: a shell command, run in the side's tree with the environment's python and pip
    first on the PATH; python makes the environment, None for memprof's own."""

    command: str = "pip install ."
    python: str | None = None


@dataclass(frozen=True)
class Suite:
    """Everything that flags or a file say; a field left at None has its default put in by `defaults`.

    cwd, phases (function by phase) and phase_regexes are for commands: where they run, and what their phases are where they do not mark them;
    stdin: whether they read memprof's own standard input.
    """

    models: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    threads: tuple[int, ...] = ()
    warmup: int | None = None
    runs: int | None = None
    repeats: int | None = None
    interval_ns: int | None = None
    cache: Cache | None = None
    deterministic: bool | None = None
    timeout_ns: int | None = None
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: str | None = None
    name: str | None = None
    cwd: str | None = None
    phases: Mapping[str, str] = field(default_factory=dict)
    phase_regexes: Mapping[str, str] = field(default_factory=dict)
    stdin: bool = False
    build: Build | None = None

    def over(self, other: Suite) -> Suite:
        """This suite's words where it has any, the other's elsewhere; settings by key are merged."""
        changes: dict[str, object] = {}
        for key in ("set", "env", "shapes", "phases", "phase_regexes"):
            changes[key] = {**getattr(other, key), **getattr(self, key)}
        for key in self.__dataclass_fields__:
            if key not in changes and getattr(self, key) in (None, (), ""):
                changes[key] = getattr(other, key)
        return replace(self, **changes)  # type: ignore[arg-type]


DEFAULTS = Suite(warmup=5, runs=5, repeats=5, cache="warm", deterministic=False, timeout_ns=600 * 1000 * MS)


@dataclass(frozen=True)
class Order:
    """A Job and how its child is started: what the probe needs beyond the Job itself.

    build: knobs that act on the model file, which must be converted before the first of its jobs; None where it is loaded as it is.
    outputs: an .npz file to write the model's outputs to, after the last iteration and outside any phase.
    argv: the command to start in place of the interpreter and memprof's own side. cwd: its working folder, memprof's own where None.
    command: what the probe must know of it (see memprof.probe.command), None for memprof's own side.
    wrap: the program to start it under, with its arguments: a profiler; python is then empty where it brings its own. until: the phase after
    which it is done. teardown: let the interpreter end as any program does. grace_ns: how long the child may take to end once it is done or
    was asked to end, 0 for no such limit; at its time limit it is then asked with SIGTERM first.
    group: a control group to make for the child, join and remove: {"path", "settings"}; rlimits: by name, in bytes. drop: files beside the
    model's whose page cache is treated like it.
    hold_at: for a job that holds, the RSS in bytes at which it is also held inside a phase, by phase.
    stdin: it reads memprof's own standard input, a file from where it stands now. error: why it cannot be started, where that is known already.
    """

    job: Job
    runtime: Runtime
    python: str
    env: Mapping[str, str | None]
    build: Mapping[str, str] | None
    outputs: str | None = None
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    command: Mapping[str, object] | None = None
    wrap: tuple[str, ...] = ()
    until: str | None = None
    teardown: bool = False
    grace_ns: int = 0
    group: Mapping[str, object] | None = None
    rlimits: Mapping[str, int] | None = None
    drop: Sequence[str] = ()
    hold_at: Mapping[str, int] = field(default_factory=dict)
    stdin: bool = False
    error: MemprofError | None = None


@dataclass(frozen=True)
class Plan:
    """Orders in the sequence in which they run, and what the user should know beforehand."""

    orders: tuple[Order, ...]
    remarks: tuple[str, ...]


# -- files


class _FileVariant(msgspec.Struct, forbid_unknown_fields=True):
    runtime: str = ""
    cmd: str | list[str] = ""
    cwd: str | None = None
    name: str = ""
    set: dict[str, str | int | bool] = {}
    threads: int | list[int] = []
    python: str | None = None
    env: dict[str, str] = {}


class _FileBuild(msgspec.Struct, forbid_unknown_fields=True):
    command: str = Build.command
    python: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    models: list[str] = []
    runtimes: list[str] = []
    variant: list[_FileVariant] = []
    set: dict[str, str | int | bool] = {}
    threads: int | list[int] = []
    warmup: int | None = None
    runs: int | None = None
    repeats: int | None = None
    interval: str | None = None
    cache: Literal["warm", "cold", "asis"] | None = None
    deterministic: bool | None = None
    timeout: str | None = None
    python: str | None = None
    env: dict[str, str] = {}
    shape: dict[str, list[int]] = {}
    inputs: str | None = None
    cwd: str | None = None
    phase: dict[str, str] = {}
    phase_regex: dict[str, str] = {}
    build: _FileBuild | None = None


def read(path: Path, folder: Path | None = None) -> Suite:
    """The suite in a TOML file, its paths relative to `folder` (the file's own where that is None).

    Raises InputError where it cannot be read or says what no suite can say.
    """
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise InputError(f"suite {path}: {os_reason(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"suite {path}: {_said(error)}") from None
    folder = folder or path.parent
    return Suite(
        models=tuple(_relative(folder, model) for model in found.models),
        runtimes=tuple(_relative(folder, name) if name.endswith(".py") else name for name in found.runtimes),
        variants=tuple(_variant(one, folder, path) for one in found.variant),
        set=_texts(found.set),
        threads=_counts(found.threads),
        warmup=found.warmup,
        runs=found.runs,
        repeats=found.repeats,
        interval_ns=parse_duration_ns(found.interval) if found.interval else None,
        cache=found.cache,
        deterministic=found.deterministic,
        timeout_ns=parse_duration_ns(found.timeout) if found.timeout else None,
        python=found.python,
        env=found.env,
        shapes={name: tuple(shape) for name, shape in found.shape.items()},
        inputs=_relative(folder, found.inputs) if found.inputs else None,
        cwd=_relative(folder, found.cwd) if found.cwd else None,
        phases=dict(_phase(f"{name}={function}") for name, function in found.phase.items()),
        phase_regexes=dict(commands.parse_regex(f"{name}={regex}") for name, regex in found.phase_regex.items()),
        build=Build(found.build.command, found.build.python) if found.build else None,
    )


def _variant(one: _FileVariant, folder: Path, path: Path) -> Variant:
    if bool(one.runtime) == bool(one.cmd):
        raise InputError(f"suite {path}: variant {one.name or '(without a name)'} needs either a runtime or a cmd")
    if one.cmd and (one.set or one.python):
        raise InputError(f"suite {path}: variant {one.name or one.cmd}: set and python are for runtimes")
    command = None
    if one.cmd:
        command = commands.of_words(commands.split(one.cmd) if isinstance(one.cmd, str) else one.cmd)
        # The file's own words win over those in front of the program; a suite may be started from anywhere.
        where = _relative(folder, one.cwd) if one.cwd else str(folder)
        command = replace(command, name=one.name or command.name, cwd=where)
    return Variant(
        runtime=_relative(folder, one.runtime) if one.runtime.endswith(".py") else one.runtime or COMMAND,
        name=one.name or (command.name if command else ""),
        set=_texts(one.set),
        threads=_counts(one.threads),
        python=one.python,
        env=one.env,
        command=command,
    )


def _said(error: Exception) -> str:
    """msgspec's words, and the nearest field where an unknown one was named."""
    unknown = re.search(r"unknown field `(.*?)`(?: - at `\$\.(\w+))?", str(error))
    if unknown is None:
        return str(error)
    fields = (_FileVariant if unknown[2] == "variant" else _File).__struct_fields__
    return f"there is no {unknown[1]!r}{near(unknown[1], fields) or '; there are ' + ', '.join(fields)}"


def _relative(folder: Path, text: str) -> str:
    return str(folder / os.path.expanduser(text))


def _texts(settings: Mapping[str, str | int | bool]) -> dict[str, str]:
    return {key: ("on" if value else "off") if isinstance(value, bool) else str(value) for key, value in settings.items()}


def _counts(value: int | list[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


# -- words of the command line


def parse_variant(text: str) -> Variant:
    """`NAME=RUNTIME,KEY=VALUE,...`, where the keys python, threads and env.NAME are no knobs. Raises UsageError."""
    name, equals, rest = text.partition("=")
    runtime, *settings = rest.split(",")
    if not equals or not name or not runtime:
        raise UsageError(f"--variant {text!r}: write NAME=RUNTIME,KEY=VALUE,...")
    knobs: dict[str, str] = {}
    env: dict[str, str] = {}
    python: str | None = None
    threads: tuple[int, ...] = ()
    for setting in settings:
        key, value = runtimes.split_setting(setting)
        if key == "python":
            python = value
        elif key == "threads":
            threads = parse_threads(value)
        elif key.startswith("env."):
            env[key[4:]] = value
        else:
            knobs[key] = value
    return Variant(runtime=runtime, name=name, set=knobs, threads=threads, python=python, env=env)


def parse_cmd(text: str) -> Variant:
    """`NAME=./app --model m.tflite` as a variant: see memprof.commands. Raises UsageError."""
    command = commands.parse(text)
    return Variant(runtime=COMMAND, name=command.name, command=command)


def _phase(text: str) -> tuple[str, str]:
    from ..programs import symbols  # it reads programs: only where that is asked for

    return symbols.parse_phase(text)


def parse_phases(texts: Sequence[str]) -> dict[str, str]:
    """`load=nnfw_load_model_from_file` each, as function by phase. Raises UsageError."""
    return dict(_phase(text) for text in texts)


def parse_threads(text: str) -> tuple[int, ...]:
    """Thread counts in `1,2,4`. Raises UsageError."""
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise UsageError(f"threads {text!r}: write whole numbers from 1 on, such as 1,2,4")
    return counts


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`INPUT=1,3,224,224` (or `INPUT=` for a scalar). Raises UsageError."""
    name, equals, rest = text.rpartition("=")
    try:
        shape = tuple(int(part) for part in rest.replace("x", ",").split(",") if part)
    except ValueError:
        shape = (-1,)
    if not equals or not name or (shape and min(shape) < 0):
        raise UsageError(f"--shape {text!r}: write INPUT=1,3,224,224")
    return name, shape


# -- from a suite to orders


def plan(suite: Suite) -> Plan:
    """All Orders of a suite: for each repeat, each model, each variant, so that variants are interleaved (A B A B).

    A command that cannot be started is an order with an error, so that the others are measured. Raises UsageError or InputError for whatever
    else is wrong, before anything is measured, and where there is no other order either.
    """
    asked, suite = suite, suite.over(DEFAULTS)
    programs = [one for one in suite.variants if one.command is not None]
    if not suite.models and not programs:
        raise UsageError("name a model to measure")
    variants = _variants(suite)
    models = _models(suite)
    orders: list[Order] = []
    remarks: list[str] = []
    if not models:
        orders += _commands(suite, programs, None)
    for model in models:
        taking = [(variant, runtime) for variant, runtime in variants if runtime.takes(model.path)]
        for variant, runtime in variants:
            if not runtime.takes(model.path):
                remarks.append(f"{model.name}: {variant.name} is left out, {os.path.basename(runtime.name)} takes {_endings(runtime)}")
        if not taking and not programs:
            wanted = ", ".join(sorted({_endings(runtime) for _, runtime in variants}))
            raise UsageError(f"{model.name}: no runtime that was named takes it (they take {wanted})")
        orders += [order for variant, runtime in taking for order in _orders(suite, model, variant, runtime)]
        orders += _commands(suite, programs, model)
    errors = [order.error for order in orders if order.error is not None]
    if errors and len(errors) == len(orders):
        raise errors[0]
    remarks += _without_effect(asked, suite, programs, variants)
    repeats = _at_least(suite.repeats, 1, "repeats")
    if repeats < 5 and not (programs and repeats == len(orders) == 1):  # one look at one program is no comparison
        remarks.append(f"{repeats} repeat{'s' if repeats > 1 else ''}: too few to ever decide a comparison, 5 are the least")
    each = [replace(order, job=replace(order.job, repeat=repeat)) for repeat in range(1, repeats + 1) for order in orders]
    if suite.stdin and len(each) > 1 and offset(0) is None:
        each = [replace(order, stdin=False) for order in each]
        if not os.isatty(0):
            remarks.append(f"standard input can be read only once, for it is no file: each of the {len(each)} runs has an empty one")
    return Plan(tuple(each), tuple(remarks))


def order(suite: Suite, model: Model, variant: Variant) -> Order:
    """The Order of one variant on a model that was identified before: its first thread count, repeat 1. Raises as `plan` does."""
    suite = suite.over(DEFAULTS)
    ((named, runtime),) = _variants(replace(suite, runtimes=(), variants=(variant,)))
    found = _orders(suite, model, named, runtime)[0]
    return replace(found, job=replace(found.job, repeat=1))


def _models(suite: Suite) -> list[Model]:
    models = [identify(Path(os.path.expanduser(path)), suite.name if len(suite.models) == 1 else None) for path in suite.models]
    for model in models:
        if sum(other.name == model.name for other in models) > 1:
            raise UsageError(f"two models are called {model.name}: rows could not be told apart; measure them one at a time, with --name")
    return models


def variants_of(suite: Suite) -> list[Variant]:
    """All variants that a suite names, in their order."""
    return [Variant(runtime=name) for name in suite.runtimes] + list(suite.variants)


def _variants(suite: Suite) -> list[tuple[Variant, Runtime]]:
    wanted = [Variant(runtime=name) for name in suite.runtimes] + [one for one in suite.variants if one.command is None]
    programs = [one.name for one in suite.variants if one.command is not None]
    if programs and not suite.models and wanted:
        raise UsageError("name a model to measure: a runtime among the commands needs one")
    if not wanted and not programs:
        raise UsageError("name a runtime to measure with: -r RUNTIME or --variant NAME=RUNTIME,...")
    found = []
    for variant in wanted:
        python = runtimes.interpreter(variant.python or suite.python)
        runtime = runtimes.find(variant.runtime, python)
        name = variant.name or os.path.basename(variant.runtime).removesuffix(".py")
        found.append((replace(variant, name=name, python=python), runtime))
    names = [variant.name for variant, _ in found] + programs
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two variants are called {name}; give each a name: --variant NAME=RUNTIME,...")
    for key in suite.set:
        if not any(runtime.knob(key) for _, runtime in found) and not (programs and _common(key)):
            raise runtimes.unknown_knob(key, [runtime for _, runtime in found] or [commands.RUNTIME])
    return found


def _orders(suite: Suite, model: Model, variant: Variant, runtime: Runtime) -> list[Order]:
    native.check(runtime, suite.inputs)
    deterministic = bool(suite.deterministic)
    sweep: tuple[int | None, ...] = variant.threads or suite.threads or ((1,) if deterministic else (None,))
    return [_order(suite, model, variant, runtime, threads) for threads in sweep]


def _order(suite: Suite, model: Model, variant: Variant, runtime: Runtime, threads: int | None) -> Order:
    knobs = _checked(suite, variant, runtime)
    env: dict[str, str | None] = {}
    if suite.deterministic:
        env.update({"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"})
    for key, value in knobs.items():
        knob = runtime.knob(key)
        if knob is not None and knob.acts == "env":
            env.update(knob.variables(value))
    if threads is not None and runtime.threads_env:
        env[runtime.threads_env] = str(threads)
    said = {**suite.env, **variant.env}
    env.update(said)
    build = {key: value for key, value in knobs.items() if (knob := runtime.knob(key)) is not None and knob.acts == "build"}
    job = Job(
        model=model,
        runtime=runtime.name,
        variant=variant.name,
        repeat=0,
        warmup=_at_least(suite.warmup, 0, "warmup"),
        runs=_at_least(suite.runs, 0, "runs"),
        knobs=knobs,
        threads=threads,
        env=said,
        python=variant.python,
        cache=suite.cache or "warm",
        deterministic=bool(suite.deterministic),
        timeout_ns=suite.timeout_ns or 0,
        interval_ns=suite.interval_ns or MS,
        iterations_interval_ns=_iterations_interval(suite, threads or runtime.default_threads),
        shapes=suite.shapes,
        inputs=_inputs(suite.inputs),
    )
    return Order(job, runtime, variant.python or "", env, build if build or runtime.always_builds else None)


def _commands(suite: Suite, programs: Sequence[Variant], model: Model | None) -> list[Order]:
    """The orders of all commands about a model, or about what each of them names where memprof was given none."""
    ready = [replace(one.command, cwd=one.command.cwd or suite.cwd) for one in programs if one.command is not None]
    sweeps = [_sweep(suite, variant, command) for variant, command in zip(programs, ready, strict=True)]
    filled = [
        [_filled(suite, variant, command, model, count) for count in sweep]
        for variant, command, sweep in zip(programs, ready, sweeps, strict=True)
    ]
    if model is not None:
        if len(suite.models) > 1:
            for command in ready:
                if not command.has("model"):
                    raise UsageError(f"{command.name}: write {{model}} where the model goes: there are {len(suite.models)} of them")
        about = [model] * len(ready)
    else:
        for command in ready:
            if command.has("model"):
                raise UsageError(f"{command.name}: {{model}} stands for a model, and none is given")
        about = commands.models([each[0] for each in filled], suite.name) if filled else []
    return [
        _command_order(suite, variant, command, of, count)
        for variant, each, sweep, of in zip(programs, filled, sweeps, about, strict=True)
        for command, count in zip(each, sweep, strict=True)
    ]


def _sweep(suite: Suite, variant: Variant, command: Command) -> tuple[int | None, ...]:
    wanted = variant.threads or suite.threads
    if wanted and not (command.has("threads") or any("{threads}" in value for value in {**suite.env, **variant.env}.values())):
        raise UsageError(f"{command.name}: write {{threads}} where the number of threads goes, or leave --threads out")
    if wanted:
        return wanted
    return ((1,) if suite.deterministic else (None,)) if command.has("threads") else (None,)


def _filled(suite: Suite, variant: Variant, command: Command, model: Model | None, threads: int | None) -> Command:
    command = replace(command, env={**suite.env, **command.env, **variant.env})
    if command.has("threads") and threads is None:
        raise UsageError(f"{command.name}: {{threads}} stands for --threads, and none are given")
    words: dict[str, object] = {"threads": threads, "runs": suite.runs, "warmup": suite.warmup}
    if model is not None:
        words["model"] = model.path
    return command.filled(words)


def _command_order(suite: Suite, variant: Variant, command: Command, model: Model, threads: int | None) -> Order:
    knobs = {key: _common(key).check(value) for key, value in suite.set.items() if _common(key)}  # type: ignore[union-attr]
    env: dict[str, str | None] = {"MALLOC_ARENA_MAX": "1"} if suite.deterministic else {}
    for key, value in knobs.items():
        env.update(_common(key).variables(value))  # type: ignore[union-attr]
    env.update(command.env)
    assert variant.command is not None
    argv = started = command.argv
    file: ModelFile | None = None
    error: MemprofError | None = None
    try:
        path = commands.program(command)
        argv = started = commands.argv(command, path)
        file = commands.program_file(path)
        if suite.phases:
            from ..programs import symbols

            started = symbols.wrap(argv, suite.phases, cwd=command.cwd)
    except MemprofError as found:
        error = found
    job = Job(
        model=model,
        runtime=COMMAND,
        variant=command.name,
        repeat=0,
        # A command's own affair, unless it takes the number from here.
        warmup=_at_least(suite.warmup, 0, "warmup") if variant.command.has("warmup") else 0,
        runs=_at_least(suite.runs, 0, "runs") if variant.command.has("runs") else 0,
        knobs=knobs,
        threads=threads,
        env=command.env,
        cache=suite.cache or "warm",
        deterministic=bool(suite.deterministic),
        timeout_ns=suite.timeout_ns or 0,
        interval_ns=suite.interval_ns or MS,
        iterations_interval_ns=suite.interval_ns or MS,
        argv=argv,
        cwd=os.path.abspath(command.cwd) if command.cwd else None,
        program=file,
        phases=suite.phases,
        phase_regexes=suite.phase_regexes,
    )
    about = {"regexes": list(suite.phase_regexes.items()), "alone": bool(suite.phases)}
    return Order(
        job, commands.RUNTIME, "", env, None, argv=started, cwd=job.cwd, command=about, stdin=suite.stdin and error is None, error=error
    )


def offset(descriptor: int) -> int | None:
    """Where a file stands, None for what is no file and so can be read only once."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return None


@cache
def _common(key: str) -> Knob | None:
    """The knob of that name, where every runtime has it and it is a matter of the environment: a command has it too."""
    found = [runtime.knob(key) for runtime in runtimes.describe(sys.executable) if not runtime.error]
    knob = found[0] if found and None not in found else None
    return knob if knob is not None and knob.acts == "env" else None


def _without_effect(asked: Suite, suite: Suite, programs: Sequence[Variant], others: Sequence[object]) -> list[str]:
    """What was asked for and no command heeds, where there are only commands."""
    if not programs or others:
        return []
    remarks = []
    for word in ("runs", "warmup"):
        deaf = [one.name for one in programs if one.command is not None and not one.command.has(word)]
        if getattr(asked, word) is not None and deaf:
            remarks.append(f"{', '.join(deaf)}: --{word} has no effect, write {{{word}}} into the command where the number goes")
    if suite.shapes or suite.inputs:
        remarks.append("--shape and --inputs have no effect on commands")
    return remarks


def _checked(suite: Suite, variant: Variant, runtime: Runtime) -> dict[str, str]:
    knobs = {}
    for key, value in suite.set.items():
        knob = runtime.knob(key)
        if knob is not None:
            knobs[key] = knob.check(value)
    for key, value in variant.set.items():
        knob = runtime.knob(key)
        if knob is None:
            raise runtimes.unknown_knob(key, [runtime])
        knobs[key] = knob.check(value)
    return knobs


def _iterations_interval(suite: Suite, threads: int | None) -> int:
    """How often timed iterations are polled: not at all where the runtime uses every CPU, because their peak is exact anyway."""
    if suite.interval_ns is not None:
        return suite.interval_ns
    cpus = len(os.sched_getaffinity(0))
    return 0 if threads is None or threads >= cpus else 5 * MS


def intervals(job: Job) -> dict[str, int]:
    """Polling periods by phase, "" for all that are not named."""
    return {"": job.interval_ns, EXECUTE: job.iterations_interval_ns}


def _inputs(path: str | None) -> str | None:
    if path is None:
        return None
    if not os.path.isfile(path):
        raise InputError(f"--inputs {path}: no such file")
    return os.path.abspath(path)


def _at_least(value: int | None, least: int, what: str) -> int:
    if value is None or value < least:
        raise UsageError(f"--{what} {value}: {least} is the least")
    return value


def _endings(runtime: Runtime) -> str:
    return " or ".join("a folder" if ending == "/" else ending for ending in runtime.formats)
