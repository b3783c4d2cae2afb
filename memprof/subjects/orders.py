"""From a Suite to Orders: every run to be made, with all that its start needs, checked before anything is measured."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError, UsageError, near_or_all
from ..base.units import counted
from ..models import check_extents, inputs
from ..models.identity import identify
from ..models.indexed_tables import indexing
from ..places.recorder_start import recorder_command
from ..programs import commands, native, runtimes
from ..programs.runtimes import Runtime
from ..records.types import Model
from . import command_orders, shards
from .order import HASH_SEED, Order, asked, at_least
from .suite import ALL, DEFAULTS, MS, Suite, Variant, variants_of
from .values import check_arrays


class Plan(Struct, frozen=True):
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
        command_orders.check_drive(suite, programs)
    variants = _variants(suite)
    models = models_of(suite)
    orders: list[Order] = []
    if not models:
        orders += command_orders.of_commands(suite, programs, None)
    for model in models:
        taking, lacking, foreign = [], [], []
        for variant, runtime in variants:
            if not runtime.takes(model.path):
                if runtime.name in by_all:
                    foreign.append(variant.name)
                else:
                    remarks.append(f"{model.name}: {variant.name} is left out, {os.path.basename(runtime.name)} takes {_endings(runtime)}")
            elif runtime.builds(model.path) and (why := runtime.no_converter):
                if runtime.name not in by_all:
                    raise InputError(f"{model.name}: {why}")
                remarks.append(f"{model.name}: {variant.name} is left out, {why}")
                lacking.append(why)
            else:
                taking.append((variant, runtime))
        if foreign and taking:
            remarks.append(f"{model.name}: runtimes that take other files are left out: {', '.join(foreign)}")
        if not taking and not programs:
            raise InputError(f"{model.name}: {lacking[0]}") if lacking else _not_taken(model, variants)
        model_orders = [order for variant, runtime in taking for order in _orders(suite.of_model(model.path), model, variant, runtime)]
        remarks += _taken_as_one(model, model_orders)
        orders += model_orders
        orders += command_orders.of_commands(suite, programs, model)
    errors = [order.error for order in orders if order.error is not None]
    if errors and len(errors) == len(orders):
        raise errors[0]
    remarks += command_orders.without_effect(given, suite, programs, variants)
    repeats = at_least(suite.repeats, 1, "repeats")
    if repeats < 5 and not (programs and repeats == len(orders) == 1):  # one look at one program is no comparison
        remarks.append(f"{counted(repeats, 'repeat')}: too few to decide a comparison, which takes at least 5")
    recorder = suite.recorder or suite.place.recorder
    if recorder == "c":
        recorder_command(recorder, suite.place)  # its errors come before any measurement
    repeated = [
        replace(order, job=replace(order.job, repeat=repeat), recorder=recorder, max_celsius=suite.max_celsius)
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
    chosen, remarks, native, missing = [], [], [], []
    for runtime in runtimes.describe(python, None, suite.place):
        if runtime.name in named or runtime.distribution is None:
            continue  # a runtime without a package is memprof's own, for tests
        if runtime.native is not None:
            native += [runtime.name] if runtime.installed else []
            continue
        try:
            runtimes.located(runtime.name, suite.python, suite.place)
            chosen.append(runtime.name)
        except InputError as error:
            if runtime.installed:
                remarks.append(f"{runtime.name} is left out: {error}")
            else:
                missing.append(runtime.name)
    if native:
        remarks.append(f"runtimes without an interpreter are measured by name only (-r NAME): {', '.join(native)}")
    if missing:
        remarks.append(f"runtimes that are not installed are left out (memprof runtimes install NAME): {', '.join(missing)}")
    if not chosen and not named:
        raise UsageError(f"no runtime is installed for {python}: memprof runtimes says how to install them")
    spelled = [name for given in suite.runtimes for name in (chosen if given == ALL else [given])]
    return replace(suite, runtimes=tuple(dict.fromkeys(spelled))), remarks


def check_words(suite: Suite) -> None:
    """Raises UsageError for words that no version of a runtime takes: its name, knobs and their values, a model's ending and the names of inputs.

    No runtime need be installed. A user's own runtime and a model that does not exist yet get no remark.
    """
    variants = [variant for variant in variants_of(suite) if variant.command is None]
    if any(variant.runtime == ALL or variant.runtime.endswith(".py") or os.sep in variant.runtime for variant in variants):
        return
    chosen = [(variant, runtimes.named(variant.runtime.partition("@")[0], sys.executable)) for variant in variants]
    _check_set(suite, [runtime for _, runtime in chosen])
    for variant, runtime in chosen:
        _checked(suite, variant, runtime)
    for path in suite.models if chosen else ():
        with suppress(InputError):
            model = identify(path)
            taking = [(variant, runtime) for variant, runtime in chosen if runtime.takes(model.path)]
            if not taking and len(chosen) == len(variants_of(suite)):
                raise _not_taken(model, chosen)
            for variant, runtime in taking:
                _check_names(model, runtime, (*suite.of_model(path).shapes, *variant.shapes))


def of_one(suite: Suite) -> Order:
    """The Order of a suite that measures one thing, a model in a runtime or a program: its first thread count, repeat 1. Raises as `plan` does, and
    UsageError for a model that the runtime does not take."""
    variant = suite.only
    if variant.command is not None:
        return plan(replace(suite, repeats=1)).orders[0]
    if not suite.models:
        raise UsageError("name a model to measure")
    counts = variant.threads or suite.threads
    if len(counts) > 1:
        raise UsageError(f"one thread count: these are {', '.join(map(str, counts))}")
    first = order(suite, identify(suite.models[0], suite.name), variant)
    if not first.runtime.takes(first.job.model.path):
        raise UsageError(f"{first.job.model.name}: {os.path.basename(first.runtime.name)} does not take it")
    return first


def located(suite: Suite, travels: bool) -> tuple[Model, Runtime, str | None]:
    """The one model of a suite, its runtime, and the interpreter that has it at the suite's place.

    travels: each machine of a fleet takes an interpreter of its own, for the path of one here means nothing there. The interpreter is then the one
    that the suite names, if any. Raises UsageError for a model that the runtime does not take, and as runtimes.located does.
    """
    if not suite.models:
        raise UsageError("name a model to measure")
    own = suite.only
    named = own.python or suite.python
    runtime, python = runtimes.located(own.runtime, named, suite.place)
    model = identify(suite.models[0], suite.name)
    if not runtime.takes(model.path):
        raise UsageError(f"{model.name}: {os.path.basename(runtime.name)} does not take it")
    return model, runtime, named if travels else python


def order(suite: Suite, model: Model, variant: Variant) -> Order:
    """The Order of one variant on a model that was identified before: its first thread count, repeat 1. Raises as `plan` does."""
    suite = suite.over(DEFAULTS)
    ((named, runtime),) = _variants(replace(suite, runtimes=(), variants=(variant,)))
    first = _orders(suite.of_model(model.path), model, named, runtime)[0]
    recorder = suite.recorder or suite.place.recorder
    return replace(first, job=replace(first.job, repeat=1), recorder=recorder, max_celsius=suite.max_celsius)


def models_of(suite: Suite) -> list[Model]:
    """The models of a suite, hashed. Raises InputError for one that is none, UsageError for two of one name."""
    models = [identify(path, suite.name if len(suite.models) == 1 else None) for path in suite.models]
    for model in models:
        if sum(other.name == model.name for other in models) > 1:
            raise shards.same_name(model.name)
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
    _check_set(suite, [runtime for _, runtime in chosen])
    return chosen


def _check_set(suite: Suite, chosen: Sequence[Runtime]) -> None:
    """Raises UsageError for a knob for all variants that none of them has. chosen: the runtimes among them."""
    programs = any(variant.command is not None for variant in suite.variants)
    for key in suite.set:
        if not any(runtime.knob(key) for runtime in chosen) and not (programs and key in command_orders.common_knobs()):
            raise runtimes.unknown_knob(key, chosen or [commands.RUNTIME])


def _not_taken(model: Model, variants: Sequence[tuple[Variant, Runtime]]) -> UsageError:
    taken = ", ".join(sorted({_endings(runtime) for _, runtime in variants}))
    return UsageError(f"{model.name}: none of the named runtimes takes it (they take {taken})")


def _orders(suite: Suite, model: Model, variant: Variant, runtime: Runtime) -> list[Order]:
    runtime.check_file(model.path)
    if runtime.native is not None:
        suite.place.only_here(f"{runtime.name}, which is compiled,")
    native.check(runtime, suite.inputs)
    knobs = _checked(suite, variant, runtime)
    deterministic = bool(suite.deterministic)
    sweep: tuple[int | None, ...] = variant.threads or suite.threads or ((1,) if deterministic else (None,))
    counts = [at_least(threads, 1, "threads") if threads is not None else None for threads in sweep]
    return [_order(suite, model, variant, runtime, knobs, threads) for threads in counts]


def _order(suite: Suite, model: Model, variant: Variant, runtime: Runtime, knobs: dict[str, str], threads: int | None) -> Order:
    env: dict[str, str | None] = {**runtime.env}
    if suite.deterministic:
        env.update({HASH_SEED: "0", "MALLOC_ARENA_MAX": "1"})
    for key, value in knobs.items():
        knob = runtime.knob(key)
        if knob is not None and knob.acts == "env":
            env.update(knob.variables(value))
    if threads is not None and runtime.threads_env:
        env[runtime.threads_env] = str(threads)
    shapes = {**suite.shapes, **variant.shapes}
    given = (inputs.array_shapes(suite.inputs) or {}) if suite.inputs else {}
    _check_names(model, runtime, (*shapes, *given, *suite.values))
    _check_values(model, suite, given)
    if suite.inputs:
        check_arrays({name: shape for name, shape in suite.shapes.items() if name not in variant.shapes}, given, suite.inputs)
        check_arrays(variant.shapes, given, suite.inputs, f"variant {variant.name}: shape")
    for name, shape in shapes.items():
        at_least(min(shape, default=0), 0, f"a size of {name}")
    for name, shape in (*shapes.items(), *given.items()):
        check_extents(name, shape)
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
    job = replace(
        asked(suite, model, runtime.name, variant.name),
        warmup=at_least(suite.warmup, 0, "warmup"),
        runs=at_least(suite.runs, 0, "runs"),
        knobs=knobs,
        threads=threads,
        env=set_by_user,
        python=variant.python,
        iterations_interval_ns=_iterations_interval(suite, threads or runtime.default_threads),
        given=given,
        shapes=shapes,
        inputs=_inputs(suite.inputs),
        values=suite.values,
        assumed=(assumed := _assumed(model, runtime, shapes, suite.inputs)),
        fixed=_fixed(model, runtime, {*shapes, *given, *assumed}),
        ranges={name: rows for name, rows in indexing(Path(model.path)).limits().items() if name not in {*given, *suite.values}},
        release=bool(suite.release),
    )
    subject = replace(suite, models=(model.path,), runtimes=(), variants=(variant,), threads=(threads,) if threads else ())
    return Order(job, runtime, variant.python or "", env, build if build or converted else None, subject=subject, place=suite.place)


def offset(descriptor: int) -> int | None:
    """The position in a file. None for a pipe or a terminal, which can be read only once."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return None


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
    for _, _, sentence in runtime.lacks(knobs):
        raise UsageError(sentence)
    return knobs


def _iterations_interval(suite: Suite, threads: int | None) -> int:
    """The polling period of timed iterations in ns; 0, not polled, if the runtime uses every CPU, because their peak is exact anyway."""
    if suite.interval_ns is not None:
        return suite.interval_ns
    return 0 if threads is None or threads >= suite.place.cpus else 5 * MS


def _assumed(model: Model, runtime: Runtime, shapes: Mapping[str, tuple[int, ...]], arrays: str | None) -> dict[str, tuple[int, ...]]:
    """The shapes taken for inputs that the model leaves open. A user's own runtime has none: it may make its inputs itself."""
    if runtime.name.endswith(".py"):
        return {}
    return inputs.taken_as_one(Path(model.path), shapes, arrays)


def _fixed(model: Model, runtime: Runtime, others: Collection[str]) -> dict[str, tuple[int, ...]]:
    """The shapes that the model's file fixes, of the inputs that have none of another origin."""
    if runtime.name.endswith(".py"):
        return {}
    own = inputs.shapes_that_run(Path(model.path), {}, None) or {}
    return {name: shape for name, shape in own.items() if name not in others}


def _taken_as_one(model: Model, orders: Sequence[Order]) -> list[str]:
    """A sentence for each way in which open dimensions of a model are taken as 1; it names the variants if other variants have other shapes."""
    variants: dict[str, list[str]] = {}
    for order in orders:
        remark = inputs.remark(order.job.assumed, Path(model.path))
        variants.setdefault(remark, [])
        if order.job.variant not in variants[remark]:
            variants[remark].append(order.job.variant)
    whose = {remark: "" if len(variants) == 1 else f", {'; '.join(names)}" for remark, names in variants.items() if remark}
    return [f"{model.name}{names}: {remark}" for remark, names in whose.items()]


def _check_names(model: Model, runtime: Runtime, names: Sequence[str]) -> None:
    """Raises UsageError for a name that the inputs of the model lack, as far as its file tells. A converter or a user's own runtime may have
    others."""
    known = () if runtime.name.endswith(".py") or runtime.converted(model.path) else inputs.names(Path(model.path))
    for name in names:
        if known and name not in known:
            raise UsageError(f"{model.name} has no input {name!r}{near_or_all(name, known)}")


def _check_values(model: Model, suite: Suite, given: Collection[str]) -> None:
    """Raises UsageError for a value that its input's type has not, as far as the file tells, and for one of an input that has an array."""
    types = {declared.name: declared.dtype for declared in inputs.inputs(Path(model.path))} if suite.values else {}
    for name, value in suite.values.items():
        if expected := inputs.expected(types.get(name, ""), value):
            raise UsageError(f"--input {name}={value}: {name} is {types[name]}, which takes {expected}")
        if name in given:
            raise UsageError(f"--input {name}={value}: {suite.inputs} has {name} too; leave one of the two out")


def _inputs(path: str | None) -> str | None:
    if path is None:
        return None
    if not os.path.isfile(path):
        raise InputError(f"inputs {path}: no such file")
    return os.path.abspath(path)


def _endings(runtime: Runtime) -> str:
    return " or ".join(runtime.endings)
