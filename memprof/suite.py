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

Paths in a file are relative to the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from . import runtimes
from .errors import InputError, UsageError, near, os_reason
from .model import identify
from .records import EXECUTE, Cache, Job, Model
from .runtimes import Runtime
from .units import parse_duration_ns

MS = 1_000_000


@dataclass(frozen=True)
class Variant:
    """A named column: a runtime and what is set for it beyond what is set for all."""

    runtime: str
    name: str = ""
    set: Mapping[str, str] = field(default_factory=dict)
    threads: tuple[int, ...] = ()
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """Everything that flags or a file say; a field left at None has its default put in by `defaults`."""

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

    def over(self, other: Suite) -> Suite:
        """This suite's words where it has any, the other's elsewhere; settings by key are merged."""
        changes: dict[str, object] = {}
        for key in ("set", "env", "shapes"):
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
    group: a control group to make for the child, join and remove: {"path", "settings"}; rlimits: by name, in bytes. drop: files beside the
    model's whose page cache is treated like it.
    outputs: an .npz file to write the model's outputs to, after the last iteration and outside any phase.
    hold_at: for a job that holds, the RSS in bytes at which it is also held inside a phase, by phase.
    """

    job: Job
    runtime: Runtime
    python: str
    env: Mapping[str, str | None]
    build: Mapping[str, str] | None
    outputs: str | None = None
    group: Mapping[str, object] | None = None
    rlimits: Mapping[str, int] | None = None
    drop: Sequence[str] = ()
    hold_at: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Orders in the sequence in which they run, and what the user should know beforehand."""

    orders: tuple[Order, ...]
    remarks: tuple[str, ...]


# -- files


class _FileVariant(msgspec.Struct, forbid_unknown_fields=True):
    runtime: str
    name: str = ""
    set: dict[str, str | int | bool] = {}
    threads: int | list[int] = []
    python: str | None = None
    env: dict[str, str] = {}


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


def read(path: Path) -> Suite:
    """The suite in a TOML file. Raises InputError where it cannot be read or says what no suite can say."""
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise InputError(f"suite {path}: {os_reason(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"suite {path}: {_said(error)}") from None
    folder = path.parent
    return Suite(
        models=tuple(_relative(folder, model) for model in found.models),
        runtimes=tuple(_relative(folder, name) if name.endswith(".py") else name for name in found.runtimes),
        variants=tuple(
            Variant(
                runtime=_relative(folder, one.runtime) if one.runtime.endswith(".py") else one.runtime,
                name=one.name,
                set=_texts(one.set),
                threads=_counts(one.threads),
                python=one.python,
                env=one.env,
            )
            for one in found.variant
        ),
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

    Raises UsageError or InputError for whatever is wrong with it, before anything is measured.
    """
    suite = suite.over(DEFAULTS)
    if not suite.models:
        raise UsageError("name a model to measure")
    variants = _variants(suite)
    models = _models(suite)
    orders: list[Order] = []
    remarks: list[str] = []
    for model in models:
        taking = [(variant, runtime) for variant, runtime in variants if runtime.takes(model.path)]
        for variant, runtime in variants:
            if not runtime.takes(model.path):
                remarks.append(f"{model.name}: {variant.name} is left out, {os.path.basename(runtime.name)} takes {_endings(runtime)}")
        if not taking:
            wanted = ", ".join(sorted({_endings(runtime) for _, runtime in variants}))
            raise UsageError(f"{model.name}: no runtime that was named takes it (they take {wanted})")
        orders += [order for variant, runtime in taking for order in _orders(suite, model, variant, runtime)]
    repeats = _at_least(suite.repeats, 1, "repeats")
    if repeats < 5:
        remarks.append(f"{repeats} repeat{'s' if repeats > 1 else ''}: too few to ever decide a comparison, 5 are the least")
    each = [replace(order, job=replace(order.job, repeat=repeat)) for repeat in range(1, repeats + 1) for order in orders]
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


def _variants(suite: Suite) -> list[tuple[Variant, Runtime]]:
    wanted = [Variant(runtime=name) for name in suite.runtimes] + list(suite.variants)
    if not wanted:
        raise UsageError("name a runtime to measure with: -r RUNTIME or --variant NAME=RUNTIME,...")
    found = []
    for variant in wanted:
        python = runtimes.interpreter(variant.python or suite.python)
        runtime = runtimes.find(variant.runtime, python)
        name = variant.name or os.path.basename(variant.runtime).removesuffix(".py")
        found.append((replace(variant, name=name, python=python), runtime))
    names = [variant.name for variant, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two variants are called {name}; give each a name: --variant NAME=RUNTIME,...")
    for key in suite.set:
        if not any(runtime.knob(key) for _, runtime in found):
            raise runtimes.unknown_knob(key, [runtime for _, runtime in found])
    return found


def _orders(suite: Suite, model: Model, variant: Variant, runtime: Runtime) -> list[Order]:
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
