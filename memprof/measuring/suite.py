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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from .. import toml
from ..errors import InputError, UsageError, near, os_reason
from ..programs import commands, runtimes
from ..programs.commands import Command
from ..runs.records import COMMAND, Cache
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
        found: _File = toml.read(path, _File)
    except OSError as error:
        raise InputError(f"suite {path}: {os_reason(error)}") from None
    except ValueError as error:
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
    """`NAME=./app --model m.tflite` as a variant: see memprof.programs.commands. Raises UsageError."""
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


def variants_of(suite: Suite) -> list[Variant]:
    """All variants that a suite names, in their order."""
    return [Variant(runtime=name) for name in suite.runtimes] + list(suite.variants)
