"""The suite to measure: models and variants, from flags or a TOML file, with the words of both checked.

A variant is a named column of the comparison: a runtime with its settings. A suite file has the same words as the flags:

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
    release = false              # at the top: runs end after EXECUTE, without the phase RELEASE
    [[growth]]                   # what `memprof gate --run` also measures, and the most that memory may grow (memprof.verdicts.growth_limits)
    per = "iteration"
    limit = "0 B"

Paths in a file are relative to the file.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ..base import toml
from ..base.errors import InputError, UsageError, near_or_all, os_reason
from ..base.pairs import by_name
from ..base.units import parse_bytes
from ..models.identity import is_named_as_model
from ..models.inputs import names as input_names
from ..places.place import HERE, Place, RecorderKind
from ..programs import commands
from ..programs.commands import Command
from ..records.types import COMMAND, Cache
from .drive import Drive
from .settings import OF_A_SUITE, OF_A_VARIANT, Setting, fields, program, relative, toml_value
from .values import parse_pair, parse_sizes, parse_threads

MS = 1_000_000
_A_LINE_EACH = "%s\\n"  # for printf
ALL = "all"  # in place of a runtime's name: every one that is installed


class Variant(Struct, frozen=True):
    """A named column: a runtime and its settings beyond those for all, or a command and no runtime. shapes: of inputs, by their names."""

    runtime: str
    name: str = ""
    set: Mapping[str, str] = field(default_factory=dict)
    threads: tuple[int, ...] = ()
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    command: Command | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def called(self, name: str) -> Variant:
        """The same under another name, which a command has too."""
        return replace(self, name=name, command=replace(self.command, name=name) if self.command is not None else None)


class Build(Struct, frozen=True):
    """How `gate --base-ref` makes an environment for each side: a shell command, run in the side's tree with the environment's python and pip
    first on the PATH; python makes the environment, None for memprof's own."""

    command: str = "pip install ."
    python: str | None = None


class SuiteGrowth(Struct, frozen=True):
    """A growth that a gate measures. per: iteration, reload or shape; limit_bytes: the most a unit. model, variant: globs. shapes, budget: as in the
    words of `memprof grow`, None for its defaults."""

    per: str = "iteration"
    limit_bytes: int = 0
    model: str = "*"
    variant: str = "*"
    shapes: str | None = None
    budget: str | None = None


class SuiteLaw(Struct, frozen=True):
    """A law that a gate measures and holds to a limit. vary: ranges in the words of `memprof scale --vary`. per: the term whose coefficient is held,
    None for the dimension that varies; limit_bytes: the most a unit of it. model, variant: globs. points: as in `memprof scale`."""

    vary: tuple[str, ...]
    limit_bytes: int
    per: str | None = None
    model: str = "*"
    variant: str = "*"
    points: int | None = None


class Suite(Struct, frozen=True):
    """Everything that flags or a file say. A field that is None gets its default from DEFAULTS.

    shapes: of inputs, for every model and variant; model_shapes: those of one model, by its path among `models`. A model's shape of an input wins
    over that for all, and a variant's over both. values: of inputs, as text by name.
    cwd, phases (function by phase) and phase_regexes are for commands: the folder they run in, and their phases if they do not mark them.
    stdin: whether they read memprof's standard input. cpus: the CPUs that a run may use, as `canonical_cpus` writes them. no_swap: keep its
    pages out of swap. recorder: which recorder measures, the place's own if None. place: where all is measured.
    release: whether runs of runtimes end with the phase RELEASE.
    max_celsius: the temperature to which the machine must have cooled down before each run. drive: the load for commands that are servers.
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
    values: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    cwd: str | None = None
    phases: Mapping[str, str] = field(default_factory=dict)
    phase_regexes: Mapping[str, str] = field(default_factory=dict)
    stdin: bool = False
    build: Build | None = None
    cpus: str | None = None
    no_swap: bool | None = None
    place: Place = HERE
    max_celsius: float | None = None
    recorder: RecorderKind | None = None
    release: bool | None = None
    growth: tuple[SuiteGrowth, ...] = ()
    laws: tuple[SuiteLaw, ...] = ()
    drive: Drive | None = None
    model_shapes: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    version: str | None = None  # the label that its Jobs have

    def over(self, other: Suite) -> Suite:
        """This suite's words, and the other's for those that it lacks; settings by key are merged."""
        changes: dict[str, object] = {}
        for key in ("set", "env", "shapes", "values", "phases", "phase_regexes", "model_shapes"):
            changes[key] = {**getattr(other, key), **getattr(self, key)}
        for key in self.__struct_fields__:
            if key not in changes and getattr(self, key) in (None, (), ""):
                changes[key] = getattr(other, key)
        return replace(self, **changes)

    @property
    def has_runtimes(self) -> bool:
        """Whether anything but programs is measured."""
        return bool(self.runtimes) or any(variant.command is None for variant in self.variants)

    @property
    def only(self) -> Variant:
        """The variant of a suite that measures one thing. Raises UsageError for none, and for several."""
        variants, named = variants_of(self), "name a runtime, -r NAME, or a program, -- PROGRAM WORD..."
        if not variants:
            raise UsageError(named)
        if len(variants) > 1 or len(self.models) > 1:
            names = "; ".join(self.models if len(self.models) > 1 else (variant.name or variant.runtime for variant in variants))
            raise UsageError(f"one model and one runtime, or one program: these are {names}")
        return variants[0]

    @property
    def together(self) -> Suite:
        """A suite that measures one thing, with the settings of its variant among those for all."""
        own = self.only
        changes = {name: {**getattr(self, name), **getattr(own, name)} for name in ("set", "env", "shapes")}
        return replace(self, **changes, threads=own.threads or self.threads, python=own.python or self.python)

    def of_model(self, path: str) -> Suite:
        """The suite for one of its models, whose shapes are then those for all; `models` stays.

        A shape or a value of an input that only other models have is left out.
        """
        own = {os.path.realpath(os.path.expanduser(named)): shapes for named, shapes in self.model_shapes.items()}
        foreign = self._foreign_inputs(path)
        shapes = {name: shape for name, shape in self.shapes.items() if name not in foreign}
        values = {name: value for name, value in self.values.items() if name not in foreign}
        return replace(self, shapes={**shapes, **own.get(os.path.realpath(os.path.expanduser(path)), {})}, values=values, model_shapes={})

    def _foreign_inputs(self, path: str) -> frozenset[str]:
        """The inputs of the other models that this one has not, as far as files tell."""
        if len(self.models) < 2 or not (self.shapes or self.values):
            return frozenset()
        own = input_names(Path(path).expanduser())
        others = frozenset(name for model in self.models for name in input_names(Path(model).expanduser()))
        return others.difference(own) if own else frozenset()


DEFAULTS = Suite(warmup=5, runs=5, repeats=5, cache="warm", deterministic=False, timeout_ns=600 * 1000 * MS, release=True)


def variants_of(suite: Suite) -> list[Variant]:
    """All variants that a suite names, in their order."""
    return [Variant(runtime=name) for name in suite.runtimes] + list(suite.variants)


# -- files


class _Column(msgspec.Struct, forbid_unknown_fields=True):
    runtime: str = ""
    cmd: str | list[str] = ""
    cwd: str | None = None
    name: str = ""


def _with_settings(name: str, settings: Sequence[Setting], base: type[msgspec.Struct]) -> Any:
    """The struct of a table of a file, which has these settings beside the base's words."""
    words = [(setting.parameter, setting.file_type | msgspec.UnsetType, msgspec.UNSET) for setting in settings]
    return msgspec.defstruct(name, words, bases=(base,), forbid_unknown_fields=True)


def of_words(words: Mapping[str, Any], kind: str, place: Place = HERE, **more: Any) -> Suite:
    """The suite of a command line's words, measured there. kind: see settings.fields. more: its further fields. Raises UsageError."""
    return Suite(place=place, **more, **fields(words, kind, place is not HERE))


def _fields(table: Any, settings: Sequence[Setting], folder: Path) -> dict[str, Any]:
    """The fields of a Suite or of a Variant that a table of a file gives. Raises UsageError."""
    given = {setting: getattr(table, setting.parameter) for setting in settings}
    return {setting.field: setting.value_in(folder, value) for setting, value in given.items() if value not in (msgspec.UNSET, [], {})}


_FileVariant = _with_settings("_FileVariant", OF_A_VARIANT, _Column)


class _FileModel(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    shape: dict[str, list[int]] = {}


class _FileGrowth(msgspec.Struct, forbid_unknown_fields=True):
    limit: str
    per: Literal["iteration", "reload", "shape"] = "iteration"
    model: str = "*"
    variant: str = "*"
    shapes: str | None = None
    budget: str | None = None


class _FileLaw(msgspec.Struct, forbid_unknown_fields=True):
    vary: str | list[str]
    limit: str
    per: str | None = None
    model: str = "*"
    variant: str = "*"
    points: int | None = None


class _FileBuild(msgspec.Struct, forbid_unknown_fields=True):
    command: str = Build().command
    python: str | None = None


class _Subjects(msgspec.Struct, forbid_unknown_fields=True):
    models: list[str] = []
    model: list[_FileModel] = []
    runtimes: list[str] = []
    variant: list[_FileVariant] = []  # type: ignore[valid-type]  # made from the table of settings
    build: _FileBuild | None = None
    growth: list[_FileGrowth] = []
    law: list[_FileLaw] = []


_File = _with_settings("_File", OF_A_SUITE, _Subjects)


def read(path: Path, folder: Path | None = None, cwd: str | None = None) -> Suite:
    """The suite in a TOML file, its paths relative to `folder` (None: the file's folder). cwd: where its commands run that name no folder, None for
    the file's own `cwd`, or else for `folder`.

    Raises InputError if it cannot be read, or for a word or value that no suite has.
    """
    try:
        file: Any = toml.read(path, _File)
    except OSError as error:
        raise InputError(f"suite {path}: {os_reason(error)}") from None
    except ValueError as error:
        raise InputError(f"suite {path}: {_reason(error)}") from None
    folder = folder or path.parent
    fields = _fields(file, OF_A_SUITE, folder)
    home = cwd or fields.get("cwd") or str(folder)
    suite = Suite(
        models=tuple(relative(folder, model) for model in (*file.models, *(model.path for model in file.model))),
        model_shapes={relative(folder, model.path): _shapes(model.shape) for model in file.model if model.shape},
        runtimes=tuple(relative(folder, name) if name.endswith(".py") else name for name in file.runtimes),
        variants=tuple(_variant(variant, folder, home, path) for variant in file.variant),
        build=_build(file.build, folder) if file.build is not None else None,
        growth=tuple(_growth(wish, path) for wish in file.growth),
        laws=tuple(_law(wish, path) for wish in file.law),
        **fields,
    )
    if suite.drive is not None and suite.drive.body is not None:
        suite = replace(suite, drive=replace(suite.drive, body=relative(folder, suite.drive.body)))
    return suite


def _build(build: _FileBuild, folder: Path) -> Build:
    return Build(build.command, program(folder, build.python) if build.python is not None else None)


def _growth(wish: _FileGrowth, path: Path) -> SuiteGrowth:
    if (wish.per == "shape") != (wish.shapes is not None):
        missing = "per shape needs the shapes" if wish.shapes is None else "shapes are for per = 'shape'"
        raise InputError(f"suite {path}: [[growth]] {missing}: shapes = 'INPUT=1,3,H,W; H,W in 224,320'")
    return SuiteGrowth(wish.per, parse_bytes(wish.limit), wish.model, wish.variant, wish.shapes, wish.budget)


def _law(wish: _FileLaw, path: Path) -> SuiteLaw:
    vary = (wish.vary,) if isinstance(wish.vary, str) else tuple(wish.vary)
    if not vary:
        raise InputError(f"suite {path}: [[law]] varies nothing: vary = 'batch=1..8'")
    if wish.points is not None and wish.points < 2:
        raise InputError(f"suite {path}: [[law]] points is at least 2")
    return SuiteLaw(vary, parse_bytes(wish.limit), wish.per, wish.model, wish.variant, wish.points)


def _variant(variant: Any, folder: Path, home: str, path: Path) -> Variant:
    if bool(variant.runtime) == bool(variant.cmd):
        raise InputError(f"suite {path}: variant {variant.name or '(without a name)'} needs either a runtime or a cmd")
    settings = _fields(variant, OF_A_VARIANT, folder)
    if variant.cmd and settings.keys() & {"set", "python", "shapes"}:
        raise InputError(f"suite {path}: variant {variant.name or variant.cmd}: set, python and shape are for runtimes")
    command = None
    if variant.cmd:
        command = commands.of_words(commands.split(variant.cmd) if isinstance(variant.cmd, str) else variant.cmd)
        # The file's own words win over those in front of the program; a suite may be started from anywhere.
        where = relative(folder, variant.cwd) if variant.cwd else home
        command = replace(command, name=variant.name or command.name, cwd=where)
    return Variant(
        runtime=relative(folder, variant.runtime) if variant.runtime.endswith(".py") else variant.runtime or COMMAND,
        name=variant.name or (command.name if command else ""),
        command=command,
        **settings,
    )


def _shapes(shapes: Mapping[str, list[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in shapes.items()}


def _reason(error: Exception) -> str:
    """msgspec's words; for an unknown field the nearest known fields."""
    unknown = re.search(r"unknown field `(.*?)`(?: - at `\$\.(\w+))?", str(error))
    if unknown is None:
        return str(error)
    fields = {"variant": _FileVariant, "model": _FileModel, "growth": _FileGrowth}.get(unknown[2], _File).__struct_fields__
    return f"there is no {unknown[1]!r}{near_or_all(unknown[1], fields)}"


def file_lines(suite: Suite) -> tuple[str, ...]:
    """The lines of a file that measures again what a suite of one model and one runtime does; see the module's text. The paths are as the suite has
    them."""
    together = suite.together
    names = {"models": suite.models, "runtimes": (suite.only.runtime,)}
    lines = [f"{key} = {toml_value(values)}" for key, values in names.items()]
    return (*lines, *(line for setting in OF_A_SUITE for line in setting.lines(getattr(together, setting.field))))


def models_among(words: Sequence[str]) -> tuple[str, ...]:
    """The words that are called as the files of models are."""
    return tuple(filter(is_named_as_model, words))


def gate_line(suite: Suite) -> str:
    """The words for a shell that write this file and hold its PEAK to a budget, whose size follows them. A file that is there already stays: with
    -C the shell refuses to write over it."""
    written = shlex.join(["printf", _A_LINE_EACH, *file_lines(suite)])
    return f"(set -C; {written} > suite.toml) && memprof gate --run suite.toml --budget"


# -- words of the command line


def parse_variant(text: str) -> Variant:
    """`NAME=RUNTIME,KEY=VALUE,...`, where the keys python, threads, env.NAME and shape.INPUT are settings of the variant. Raises UsageError."""
    name, equals, words = text.partition("=")
    runtime, *settings = words.split(",")
    if not equals or not name or not runtime:
        raise UsageError(f"--variant {text!r}: write NAME=RUNTIME,KEY=VALUE,...")
    knobs: dict[str, str] = {}
    env: dict[str, str] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    python: str | None = None
    threads: tuple[int, ...] = ()
    for key, value in by_name(map(parse_pair, settings), f"--variant {name}:").items():
        if key == "python":
            python = value
        elif key == "threads":
            threads = parse_threads(value)
        elif key.startswith("env."):
            env[key[4:]] = value
        elif key.startswith("shape."):
            shapes[key[6:]] = parse_sizes(value, f"--variant {name}: '{key}={value}': write shape.INPUT=1x3x224x224")
        else:
            knobs[key] = value
    return Variant(runtime=runtime, name=name, set=knobs, threads=threads, python=python, env=env, shapes=shapes)


def parse_cmd(text: str) -> Variant:
    """`NAME=./app --model m.tflite` as a variant: see memprof.programs.commands. Raises UsageError."""
    return of_command(commands.parse(text))


def of_command(command: Command) -> Variant:
    """The command as a variant, which has its name."""
    return Variant(runtime=COMMAND, name=command.name, command=command)
