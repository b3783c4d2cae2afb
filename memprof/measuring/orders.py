"""From a Suite to Orders: every run to be made, with all that its start needs, checked before anything is measured."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ..errors import InputError, MemprofError, UsageError
from ..models import inputs
from ..models.identity import identify
from ..programs import commands, native, runtimes, static_probe
from ..programs.commands import Command
from ..programs.runtimes import Knob, Runtime
from ..runs.records import COMMAND, EXECUTE, GENERATE, PROMPT, Job, Model, ModelFile
from ..units import counted
from . import parts
from .bundle import probe_command
from .driving import Drive
from .places.place import HERE, Place, Probe
from .suite import ALL, DEFAULTS, MS, Suite, Variant, variants_of


@dataclass(frozen=True)
class Order:
    """A Job and how its child is started: all that the probe needs beyond the Job itself.

    build: knobs that act on the model file, which must be converted before the first of its jobs; None if it is loaded unconverted.
    outputs: an .npz file to write the model's outputs to, after the last iteration and outside any phase.
    argv: the command to start in place of the interpreter and memprof's runner. cwd: its working folder, None for memprof's own.
    command: facts on it for the probe (see memprof.probe.command), None for memprof's runner.
    wrap: the program to start it under, with its arguments: a profiler; python is then empty if the profiler brings its own. until: the phase
    after which it is done. teardown: let the interpreter end as any program does. grace_ns: how long the child may take to end once it is done
    or was asked to end, 0 for no such limit; at its time limit it is then asked with SIGTERM first.
    group: a control group to make for the child, join and remove: {"path", "settings"}; rlimits: by name, in bytes. drop: files beside the
    model's whose page cache is treated like it.
    hold_at: for a job that holds, the RSS in bytes at which it is also held inside a phase, by phase.
    stdin: it reads memprof's standard input, a file from its present position on. error: why it cannot be started, if that is known already.
    traced: a file for the lines of Python code whose objects grew (see runners/tracing.py).
    place: where it is measured. max_celsius: the machine must have cooled down to this first.
    probe: which of the probes measures it. drive: the load for a command that is a server. report_ns: how often the probe tells how
    far the run has come, 0 for not before its end.
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
    place: Place = HERE
    max_celsius: float | None = None
    probe: Probe = "python"
    report_ns: int = 0
    drive: Drive | None = None
    traced: str | None = None


@dataclass(frozen=True)
class Plan:
    """Orders in the sequence in which they run, and remarks for the user beforehand."""

    orders: tuple[Order, ...]
    remarks: tuple[str, ...]


def plan(suite: Suite) -> Plan:
    """All Orders of a suite: for each repeat, each model, each variant, so that variants are interleaved (A B A B).

    A command that cannot be started is an order with an error, so that the others are measured; its error is raised if all orders have one.
    Raises UsageError or InputError for any other mistake, before anything is measured.
    """
    given, suite = suite, suite.over(DEFAULTS)
    suite, remarks = _with_all_spelled_out(suite)
    by_all = suite.runtimes if suite.runtimes != given.runtimes else ()
    programs = [variant for variant in suite.variants if variant.command is not None]
    if not suite.models and not programs:
        raise UsageError("name a model to measure")
    if suite.drive is not None:
        _check_drive(suite, programs)
    variants = _variants(suite)
    models = _models(suite)
    orders: list[Order] = []
    if not models:
        orders += _commands(suite, programs, None)
    for model in models:
        taking = []
        for variant, runtime in variants:
            if not runtime.takes(model.path):
                remarks.append(f"{model.name}: {variant.name} is left out, {os.path.basename(runtime.name)} takes {_endings(runtime)}")
            elif runtime.builds(model.path) and runtime.no_converter:
                if runtime.name not in by_all:
                    raise InputError(f"{model.name}: {runtime.no_converter}")
                remarks.append(f"{model.name}: {variant.name} is left out, {runtime.no_converter}")
            else:
                taking.append((variant, runtime))
        if not taking and not programs:
            taken = ", ".join(sorted({_endings(runtime) for _, runtime in variants}))
            raise UsageError(f"{model.name}: none of the named runtimes takes it (they take {taken})")
        model_orders = [order for variant, runtime in taking for order in _orders(suite, model, variant, runtime)]
        remarks += dict.fromkeys(
            f"{model.name}: {inputs.remark(order.job.assumed, Path(model.path))}" for order in model_orders if order.job.assumed
        )
        orders += model_orders
        orders += _commands(suite, programs, model)
    errors = [order.error for order in orders if order.error is not None]
    if errors and len(errors) == len(orders):
        raise errors[0]
    remarks += _without_effect(given, suite, programs, variants)
    repeats = _at_least(suite.repeats, 1, "repeats")
    if repeats < 5 and not (programs and repeats == len(orders) == 1):  # one look at one program is no comparison
        remarks.append(f"{counted(repeats, 'repeat')}: too few to decide a comparison, which takes at least 5")
    probe = suite.probe or suite.place.probe
    if probe == "static":
        static_probe.check_regexes(suite.phase_regexes)
        probe_command(probe, suite.place)  # what is wrong with it is said before anything is measured
    repeated = [
        replace(order, job=replace(order.job, repeat=repeat), probe=probe, max_celsius=suite.max_celsius)
        for repeat in range(1, repeats + 1)
        for order in orders
    ]
    if suite.stdin and not suite.place.inherits and (stat.S_ISREG(mode := os.fstat(0).st_mode) or stat.S_ISFIFO(mode)):
        remarks.append(f"standard input is not sent to {suite.place.name}: it is empty there")
    elif suite.stdin and len(repeated) > 1 and offset(0) is None:
        repeated = [replace(order, stdin=False) for order in repeated]
        if not os.isatty(0):
            remarks.append(f"standard input is not a file and can be read only once: it is empty in each of the {len(repeated)} runs")
    return Plan(tuple(repeated), tuple(remarks))


def _with_all_spelled_out(suite: Suite) -> tuple[Suite, list[str]]:
    """The suite with the names of all installed runtimes in place of `all`, and a remark for each runtime that is left out.

    Raises UsageError if none is installed.
    """
    if ALL not in suite.runtimes:
        return suite, []
    named = {name for name in suite.runtimes if name != ALL}
    python = suite.place.interpreter(suite.python)
    chosen, remarks = [], []
    for runtime in runtimes.describe(python, None, suite.place):
        if runtime.name in named or runtime.distribution is None:
            continue  # a runtime without a package is memprof's own, for tests
        if runtime.native is not None:
            if runtime.installed:
                remarks.append(
                    f"{runtime.name} is left out: it is the same runtime without an interpreter (-r {runtime.name} measures it too)"
                )
            continue
        try:
            runtimes.located(runtime.name, suite.python, suite.place)
            chosen.append(runtime.name)
        except InputError as error:
            remarks.append(f"{runtime.name} is left out: {error}")
    if not chosen and not named:
        raise UsageError(f"no runtime is installed for {python}: memprof runtimes says how to install them")
    spelled = [name for given in suite.runtimes for name in (chosen if given == ALL else [given])]
    return replace(suite, runtimes=tuple(dict.fromkeys(spelled))), remarks


def order(suite: Suite, model: Model, variant: Variant) -> Order:
    """The Order of one variant on a model that was identified before: its first thread count, repeat 1. Raises as `plan` does."""
    suite = suite.over(DEFAULTS)
    ((named, runtime),) = _variants(replace(suite, runtimes=(), variants=(variant,)))
    first = _orders(suite, model, named, runtime)[0]
    return replace(first, job=replace(first.job, repeat=1), probe=suite.place.probe)


def _models(suite: Suite) -> list[Model]:
    models = [identify(Path(os.path.expanduser(path)), suite.name if len(suite.models) == 1 else None) for path in suite.models]
    for model in models:
        if sum(other.name == model.name for other in models) > 1:
            raise parts.same_name(model.name)
    return models


def _variants(suite: Suite) -> list[tuple[Variant, Runtime]]:
    variants = [variant for variant in variants_of(suite) if variant.command is None]
    programs = [variant.name for variant in suite.variants if variant.command is not None]
    if programs and not suite.models and variants:
        raise UsageError("name a model to measure: a runtime among the commands needs one")
    if not variants and not programs:
        raise UsageError("name a runtime to measure with, or a variant: NAME=RUNTIME,...")
    chosen = []
    for variant in variants:
        runtime, python = runtimes.located(variant.runtime, variant.python or suite.python, suite.place)
        name = variant.name or os.path.basename(variant.runtime).removesuffix(".py")
        chosen.append((replace(variant, name=name, python=python), runtime))
    names = [variant.name for variant, _ in chosen] + programs
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two variants are called {name}; give each a name: NAME=RUNTIME,...")
    for key in suite.set:
        if not any(runtime.knob(key) for _, runtime in chosen) and not (programs and _common(key)):
            raise runtimes.unknown_knob(key, [runtime for _, runtime in chosen] or [commands.RUNTIME])
    return chosen


def _orders(suite: Suite, model: Model, variant: Variant, runtime: Runtime) -> list[Order]:
    if runtime.native is not None:
        suite.place.only_here(f"{runtime.name}, which is compiled,")
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
    set_by_user = {**suite.env, **variant.env}
    env.update(set_by_user)
    build = {key: value for key, value in knobs.items() if (knob := runtime.knob(key)) is not None and knob.acts == "build"}
    for key in knobs:
        if (knob := runtime.knob(key)) is not None and knob.values in ("file", "path"):
            suite.place.only_here(f"{key}, whose value is a path,")
    converted = runtime.builds(model.path)
    if build or converted:
        suite.place.only_here(f"{', '.join(build) or runtime.name}, for which the model is converted first,")
    suite.place.model(model)  # sent before anything is measured
    job = Job(
        model=model,
        runtime=runtime.name,
        variant=variant.name,
        repeat=0,
        warmup=_at_least(suite.warmup, 0, "warmup"),
        runs=_at_least(suite.runs, 0, "runs"),
        knobs=knobs,
        threads=threads,
        env=set_by_user,
        python=variant.python,
        cache=suite.cache or "warm",
        deterministic=bool(suite.deterministic),
        timeout_ns=suite.timeout_ns or 0,
        cpus=suite.cpus,
        no_swap=bool(suite.no_swap),
        interval_ns=suite.interval_ns or MS,
        iterations_interval_ns=_iterations_interval(suite, threads or runtime.default_threads),
        given=(inputs.array_shapes(suite.inputs) or {}) if suite.inputs else {},
        shapes=suite.shapes,
        inputs=_inputs(suite.inputs),
        assumed=_assumed(suite, model, runtime),
        release=bool(suite.release),
    )
    return Order(job, runtime, variant.python or "", env, build if build or converted else None, place=suite.place)


def _commands(suite: Suite, programs: Sequence[Variant], model: Model | None) -> list[Order]:
    """The orders of all commands for a model, or, without one, for the model that each command names."""
    ready = [replace(variant.command, cwd=variant.command.cwd or suite.cwd) for variant in programs if variant.command is not None]
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
        about = commands.models([suite.place.words_here(variant_commands[0]) for variant_commands in filled], suite.name) if filled else []
    return [
        _command_order(suite, variant, command, of, count)
        for variant, variant_commands, sweep, of in zip(programs, filled, sweeps, about, strict=True)
        for command, count in zip(variant_commands, sweep, strict=True)
    ]


def _check_drive(suite: Suite, programs: Sequence[Variant]) -> None:
    """Raises UsageError for a load that cannot be put on what is measured."""
    if not programs or len(programs) < len(variants_of(suite)):
        raise UsageError("--drive is for servers, which are commands: --cmd NAME='PROGRAM WORD...'")
    if suite.phases or suite.phase_regexes:
        raise UsageError("--drive says where the server's phases end: give neither --phase nor --phase-regex")
    if (suite.probe or suite.place.probe) == "static":
        raise UsageError("--drive works with the probe in Python, and not with --probe static")
    suite.place.only_here("--drive")


def _sweep(suite: Suite, variant: Variant, command: Command) -> tuple[int | None, ...]:
    counts = variant.threads or suite.threads
    if counts and not (command.has("threads") or any("{threads}" in value for value in {**suite.env, **variant.env}.values())):
        raise UsageError(f"{command.name}: write {{threads}} where the number of threads goes, or give no thread counts")
    if counts:
        return counts
    return ((1,) if suite.deterministic else (None,)) if command.has("threads") else (None,)


def _filled(suite: Suite, variant: Variant, command: Command, model: Model | None, threads: int | None) -> Command:
    command = replace(command, env={**suite.env, **command.env, **variant.env})
    if command.has("threads") and threads is None:
        raise UsageError(f"{command.name}: {{threads}} stands for a thread count, and none is given")
    words: dict[str, object] = {"threads": threads, "runs": suite.runs, "warmup": suite.warmup}
    if model is not None:
        words["model"] = suite.place.model(model)
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
    cwd: str | None = None
    error: MemprofError | None = None
    try:
        argv, file = suite.place.program(command, model)
        started = argv
        cwd = suite.place.folder_of(command)
        if not model.files:
            model = replace(model, path=file.path, sha256=file.sha256)
        if suite.phases:
            from ..programs import symbols

            suite.place.only_here("--phase, for which gdb follows the program,")
            started = symbols.wrap(argv, suite.phases, cwd=command.cwd, env=env)
    except MemprofError as refusal:
        error = refusal
    job = Job(
        model=model,
        runtime=COMMAND,
        variant=command.name,
        repeat=0,
        # The command decides, unless it takes the number from here, or memprof makes the requests.
        warmup=_at_least(suite.warmup, 0, "warmup") if suite.drive or variant.command.has("warmup") else 0,
        runs=_at_least(suite.runs, 0, "runs") if suite.drive or variant.command.has("runs") else 0,
        knobs=knobs,
        threads=threads,
        env=command.env,
        cache=suite.cache or "warm",
        deterministic=bool(suite.deterministic),
        timeout_ns=suite.timeout_ns or 0,
        cpus=suite.cpus,
        no_swap=bool(suite.no_swap),
        interval_ns=suite.interval_ns or MS,
        iterations_interval_ns=suite.interval_ns or MS,
        argv=argv,
        cwd=cwd,
        program=file,
        phases=suite.phases,
        phase_regexes=suite.phase_regexes,
        drive=suite.drive.words if suite.drive else None,
    )
    about = {"regexes": list(suite.phase_regexes.items()), "alone": bool(suite.phases), "driven": suite.drive is not None}
    reads = suite.stdin and error is None and suite.place.inherits
    return Order(
        job,
        commands.RUNTIME,
        "",
        env,
        None,
        argv=started,
        cwd=job.cwd,
        command=about,
        stdin=reads,
        error=error,
        place=suite.place,
        drive=suite.drive,
    )


def offset(descriptor: int) -> int | None:
    """The position in a file. None for a pipe or a terminal, which can be read only once."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return None


@cache
def _common(key: str) -> Knob | None:
    """The knob of that name, if every runtime has it and it acts by the environment: a command has it too."""
    knobs = [runtime.knob(key) for runtime in runtimes.describe(sys.executable) if not runtime.error]
    knob = knobs[0] if knobs and None not in knobs else None
    return knob if knob is not None and knob.acts == "env" else None


def _without_effect(given: Suite, suite: Suite, programs: Sequence[Variant], with_runtimes: Sequence[object]) -> list[str]:
    """Remarks on settings that no command heeds, if there are only commands."""
    if not programs or with_runtimes:
        return []
    remarks = []
    for word in () if suite.drive else ("runs", "warmup"):
        deaf = [variant.name for variant in programs if variant.command is not None and not variant.command.has(word)]
        if getattr(given, word) is not None and deaf:
            remarks.append(f"{', '.join(deaf)}: {word} has no effect, write {{{word}}} into the command where the number goes")
    if suite.shapes or suite.inputs:
        remarks.append("shapes and inputs have no effect on commands")
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
    """The polling period of timed iterations in ns; 0, not polled, if the runtime uses every CPU, because their peak is exact anyway."""
    if suite.interval_ns is not None:
        return suite.interval_ns
    return 0 if threads is None or threads >= suite.place.cpus else 5 * MS


def intervals(job: Job) -> dict[str, int]:
    """Polling periods by phase, "" for all that are not named."""
    return {"": job.interval_ns, **dict.fromkeys((EXECUTE, PROMPT, GENERATE), job.iterations_interval_ns)}


def _assumed(suite: Suite, model: Model, runtime: Runtime) -> dict[str, tuple[int, ...]]:
    """The shapes taken for inputs that the model leaves open. A user's own runtime has none: it may make its inputs itself."""
    if runtime.name.endswith(".py"):
        return {}
    return inputs.taken_as_one(Path(model.path), suite.shapes, suite.inputs)


def _inputs(path: str | None) -> str | None:
    if path is None:
        return None
    if not os.path.isfile(path):
        raise InputError(f"inputs {path}: no such file")
    return os.path.abspath(path)


def _at_least(value: int | None, least: int, what: str) -> int:
    if value is None or value < least:
        raise UsageError(f"--{what} {value}: {least} is the least")
    return value


def _endings(runtime: Runtime) -> str:
    return " or ".join(runtime.endings)
