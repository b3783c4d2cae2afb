"""The Orders of a suite's commands: their words with the placeholders filled, and what of the suite they cannot heed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache

from msgspec.structs import replace

from ..base.errors import MemprofError, UsageError
from ..programs import commands, runtimes
from ..programs.commands import Command
from ..programs.runtimes import Knob
from ..records.recorder_order import CommandStart
from ..records.types import COMMAND, Model, ModelFile
from .order import Order, asked, at_least
from .settings import OF_A_SUITE
from .suite import Suite, Variant, variants_of


def of_commands(suite: Suite, programs: Sequence[Variant], model: Model | None) -> list[Order]:
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


def check_drive(suite: Suite, programs: Sequence[Variant]) -> None:
    """Raises UsageError for a load that cannot be put on what is measured."""
    if not programs or len(programs) < len(variants_of(suite)):
        raise UsageError("--drive is for servers, which are programs: --cmd NAME='PROGRAM WORD...', or -- PROGRAM WORD...")
    if suite.phases or suite.phase_regexes:
        raise UsageError("--drive says where the server's phases end: give neither --phase nor --phase-regex")
    suite.place.only_here("--drive, whose requests memprof makes from here,")
    if suite.drive is not None:
        suite.drive.bodies()


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
    given = {**suite.set, **variant.set}
    common = common_knobs() if given else {}  # it asks an interpreter
    knobs = {key: common[key].check(value) for key, value in given.items() if key in common}
    env: dict[str, str | None] = {"MALLOC_ARENA_MAX": "1"} if suite.deterministic else {}
    for key, value in knobs.items():
        env.update(common[key].variables(value))
    env.update({**command.surroundings, **command.env})
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
    job = replace(
        asked(suite, model, COMMAND, command.name),
        # The command decides, unless it takes the number from here, or memprof makes the requests.
        warmup=at_least(suite.warmup, 0, "warmup") if suite.drive or variant.command.has("warmup") else 0,
        runs=at_least(suite.runs, 0, "runs") if suite.drive or variant.command.has("runs") else 0,
        knobs=knobs,
        threads=threads,
        env=command.env,
        argv=argv,
        cwd=cwd,
        program=file,
        phases=suite.phases,
        phase_regexes=suite.phase_regexes,
        drive=suite.drive.words if suite.drive else None,
    )
    watched = CommandStart(tuple(suite.phase_regexes.items()), bool(suite.phases), suite.drive is not None)
    reads = suite.stdin and error is None and suite.place.inherits
    return Order(
        job,
        commands.RUNTIME,
        "",
        env,
        None,
        argv=started,
        cwd=job.cwd,
        command=watched,
        stdin=reads,
        error=error,
        subject=replace(suite, runtimes=(), variants=(variant,), threads=(threads,) if threads else ()),
        place=suite.place,
        drive=suite.drive,
    )


@cache
def common_knobs() -> Mapping[str, Knob]:
    """The knobs, by name, that every runtime has and that act by the environment: a command has them too."""
    first, *others = [runtime for runtime in runtimes.describe(sys.executable) if not runtime.error]
    return {knob.name: knob for knob in first.knobs if knob.acts == "env" and all(other.knob(knob.name) for other in others)}


def check_counts(suite: Suite, variant: Variant) -> None:
    """Raises UsageError for thread counts that a command is not told."""
    if variant.command is not None:
        _sweep(suite, variant, variant.command)


def without_effect(given: Suite, suite: Suite, programs: Sequence[Variant], with_runtimes: Sequence[object]) -> list[str]:
    """Remarks on settings that nothing of the suite heeds: there are only commands, or only runtimes."""
    if programs and with_runtimes:
        return []
    kind = "program" if programs else "runtime"
    names = [setting.name for setting in OF_A_SUITE if setting.only not in ("", kind) and getattr(given, setting.field) not in (None, {})]
    remarks = [f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} no effect on a {kind}"] if names else []
    if not programs:
        return remarks
    for word in () if suite.drive else ("runs", "warmup"):
        deaf = [variant.name for variant in programs if variant.command is not None and not variant.command.has(word)]
        if getattr(given, word) is not None and deaf:
            remarks.append(f"{', '.join(deaf)}: {word} has no effect, write {{{word}}} into the command where the number goes")
    return remarks
